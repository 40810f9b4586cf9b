//! One seed's history: an array is made, lives several lives with faults, and must have kept
//! everything at its end. See the crate's head for what is promised.

mod asking;
mod attempts;
mod begun;
mod busy;
mod copies;
mod distributing;
mod doomed;
mod doubted;
mod drives;
mod end;
mod faults;
mod first;
mod healed;
mod hedged;
mod kept;
mod killed;
mod late_help;
mod leaving;
mod lending;
mod loaded;
mod logged;
mod lost;
mod lost_holds;
mod map_copies;
mod modes;
mod outages;
mod outcome;
mod probe;
mod records;
mod refilled;
mod refused;
mod reset;
mod returns;
mod rewritten;
mod rings;
mod scrub;
mod spells;
mod stale;
mod starting;
mod stop;
mod successors;
mod vain;
mod victims;
mod volumes;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use ::volume::{NewVolume, VolumeTable, Zeroing};
use array::assembly::Verdict;
use array::format::{
    ArrayConfig, COMPAT_MAPPED, ExtentRun, INCOMPAT_UNWRITTEN, Layout, MemberRecord, MemberState,
    VolumeState, WriteHole,
};
use array::{
    Command, Event, Geometry, GeometryParameters, Level, MapState, Owners, PassState, Refusal,
    RegionMap, Shard, Suspects,
};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use memory::SegmentList;
use units::{
    BlockSize, DriveIndex, Instant, MemberIndex, ReactorIndex, Role, RoleSet, Size, StripeIndex,
    Update, bytes_u64, bytes_usize,
};
use uuid::Uuid;

pub use outcome::Outcome;

use crate::client::{Asked, Client, IN_FLIGHT, VOLUME_BYTES_MAX};
use crate::disks;
use crate::drive::{Failing, Failure, SimDrive};
use crate::random::Random;
use crate::rings::Rings;
use crate::world::{HEDGING, Setup, World, mix, new_config, place};

/// Level, members, parity, group, chunk bytes.
type Shape = (Level, usize, Option<usize>, Option<usize>, u64);

const SHAPES: [Shape; 15] = [
    (Level::L0, 3, None, None, 4096),
    (Level::L1, 2, None, None, 4096),
    (Level::L1, 3, None, None, 8192),
    (Level::L10, 4, None, None, 4096),
    (Level::L5, 3, None, None, 4096),
    (Level::L5, 6, None, None, 8192),
    (Level::L6, 4, None, None, 4096),
    (Level::L6, 8, None, None, 4096),
    (Level::L7, 7, None, None, 4096),
    (Level::Nm, 8, Some(4), None, 4096),
    (Level::Nm, 5, Some(2), None, 16 << 10),
    (Level::L50, 6, None, Some(3), 4096),
    (Level::L60, 8, None, Some(4), 4096),
    (Level::L70, 10, None, Some(5), 4096),
    (Level::L5, 3, None, None, 128 << 10),
];

/// The most reactors that a life has.
const REACTORS_MAX: usize = 3;

/// A command that was given and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Start,
    Fail,
    Replace,
    Volumes,
    Scrub,
    Copy,
    Options,
    Owners,
    Resync,
    Stop,
    Other,
}

/// A change of the volume table under way.
#[derive(Debug)]
struct Change {
    /// The volume, and its new size when it grows.
    uuid: Uuid,
    grows_to: Option<Size>,
    zeroing: Vec<(u64, u64)>,
    /// Parts of `zeroing` to be asked for, and how many are not answered.
    queue: Vec<(u64, u32)>,
    missing: usize,
    /// All parts, and whether they are to be asked for again because one has failed.
    parts: Vec<(u64, u32)>,
    again: bool,
    finishing: bool,
}

#[derive(Debug)]
struct History {
    random: Random,
    geometry: Geometry,
    layout: Layout,
    extent_stripes: u32,
    client: Client,
    /// The drive to use next as a replacement.
    spare: usize,
    command: u64,
    given: Option<(u64, Given)>,
    change: Option<Change>,
    started: bool,
    /// A stripe may be torn until the resync has ended: no member may be lost.
    torn: bool,
    forced: bool,
    /// Guests know of bad blocks where parity is not trusted.
    doubts: bool,
    /// The last stop has left a record in the drives' caches only.
    record_in_doubt: bool,
    /// The life ends now, and the power with it.
    power_is_due: bool,
    /// And nothing is finished before; the log protects what is under way.
    dies_at_once: bool,
    rounds_left: u64,
    /// A copy of a member counts, or is about to take its place.
    copied: bool,
    /// Members of which copies began that may not have ended.
    copying: Vec<MemberIndex>,
    /// A drive that hangs until another is in its place.
    swapped: Option<usize>,
    /// Of a thousand drives, so many have no cache that they would lose with the power.
    lasting: u64,
    /// What a stop may do.
    modes: modes::Modes,
    /// Drives that will work again.
    spell: Option<spells::Spell>,
    /// What a spell brought about is not over.
    is_spelled: bool,
    /// The array is stopped in the middle of one.
    abandons: bool,
    holds: spells::Holds,
    next_start: begun::NextStart,
    again: Vec<Asked>,
    /// What a scrub is still to find.
    rot: Vec<scrub::Rot>,
    hole: doomed::Hole,
    /// By member: its drive when the last events had been looked at.
    filled_by: Vec<Option<DriveIndex>>,
    /// What engines had begun, one file for each that had memory for it; those that no start looks
    /// at any more; whether this engine has one, and how often the power has failed.
    begun: Vec<File>,
    begun_before: Vec<File>,
    is_told: bool,
    boot: u64,
    outcome: Outcome,
}

/// Runs the history of a seed.
///
/// # Panics
/// When the array breaks a promise.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    run_part(seed, u64::MAX)
}

/// As `run`, but the history comes to its end after so many rounds: all rounds of `run` up to
/// there, and then its last life.
///
/// # Panics
/// When the array breaks a promise.
#[must_use]
pub fn run_part(seed: u64, rounds_max: u64) -> Outcome {
    let mut random = Random::new(seed ^ 0x5EED);
    let (level, members, parity, group_size, chunk_bytes) = SHAPES[random.position(SHAPES.len())];
    let rows = if chunk_bytes > 64 << 10 {
        24
    } else {
        (256 + random.below(200)) * 4096 / chunk_bytes
    };
    let slot_bytes = 4096 + chunk_bytes.min(64 << 10);
    let log_bytes = (6 + random.below(24)) * slot_bytes;
    // Drives of which all blocks are 4096 bytes.
    let block = if random.happens(200) {
        BlockSize::B4096
    } else {
        BlockSize::B512
    };
    let layout = disks::layout(block, members, rows * chunk_bytes, log_bytes);
    let geometry = Geometry::new(GeometryParameters {
        level,
        members,
        parity,
        group_size,
        chunk_bytes,
        block,
        member_data_blocks: rows * chunk_bytes / block.bytes(),
    })
    .expect("a good shape");
    let extents = 6 + random.below(8);
    let extent_stripes = u32::try_from((geometry.stripes() / extents).max(1)).expect("few");
    // Guests whose blocks are smaller than the array's; level 0 has none of them.
    let parts = geometry.parity() > 0 && random.happens(250);
    let mut history = History {
        random,
        geometry,
        layout,
        extent_stripes,
        client: Client::new(parts, u64::from(geometry.chunk_blocks()), block),
        spare: members,
        command: 100,
        given: None,
        change: None,
        started: false,
        torn: false,
        forced: false,
        doubts: false,
        record_in_doubt: false,
        power_is_due: false,
        dies_at_once: false,
        rounds_left: rounds_max,
        copied: false,
        copying: Vec::new(),
        swapped: None,
        lasting: 0,
        modes: modes::Modes::default(),
        spell: None,
        is_spelled: false,
        abandons: false,
        holds: spells::Holds::default(),
        next_start: begun::NextStart::default(),
        again: Vec::new(),
        rot: Vec::new(),
        hole: doomed::Hole::default(),
        filled_by: Vec::new(),
        begun: Vec::new(),
        begun_before: Vec::new(),
        is_told: false,
        boot: 0,
        outcome: Outcome::default(),
    };
    history.client.restless = history.random.happens(250);
    history.client.give_rings(Rings::drawn(seed, block));
    history.live();
    history.sum_up()
}

impl History {
    fn live(&mut self) {
        let world = self.create();
        let mut world = self.outlive_engines(world);
        let lives = self.random.below(4);
        let doom = self.random.happens(100);
        for _ in 0..lives {
            if self.rounds_left == 0 {
                break;
            }
            // Some do not even get going.
            let goes = self.random.happens(800) && !self.record_in_doubt;
            let rounds = self.random.below(250) * u64::from(goes);
            self.rounds(&mut world, rounds);
            let drives = self.crash(world);
            world = self.restart(drives);
            if self.record_in_doubt && self.random.happens(700) {
                let drives = self.die_in_first_record(world);
                world = self.restart(drives);
            }
            if self.random.happens(400) {
                world = self.kill_in_resync(world);
            }
            if self.random.happens(500) {
                self.probe(&mut world);
            }
        }
        let rounds = self.random.below(250);
        self.rounds(&mut world, rounds);
        if self.random.happens(300) {
            self.hang_among_reads(&mut world);
        }
        if doom {
            self.doom(world);
            return;
        }
        self.settle(&mut world);
        if self.random.happens(400) {
            world = self.rot(world);
            self.settle(&mut world);
        }
        world = self.hard_times(world);
        self.ask_without_a_pause(&mut world);
        self.scrub_finds_nothing(&mut world);
        self.check(&mut world);
        for counters in world.shards.iter().map(array::Shard::counters) {
            self.outcome.joined += counters.joined_writes;
            self.outcome.promoted += counters.promoted_writes;
            self.outcome.delayed += counters.delayed_writes;
            self.outcome.kept_plans += counters.kept_plans;
            self.outcome.borrowed += counters.borrowed_writes;
            self.outcome.lent += counters.lent_writes;
            self.outcome.helped += counters.helped_pieces;
        }
        self.count_unwritten(&world);
        self.last_lives(world);
    }

    // ---- lives ---------------------------------------------------------------------------

    fn world(
        &mut self,
        config: ArrayConfig,
        places: Vec<Option<array::MemberPlace>>,
        (regions, suspects): (RegionMap, Suspects),
        drives: Vec<SimDrive>,
    ) -> World {
        self.client.let_engine_go();
        let windows = 1 + self.random.below(20);
        let reactors = 1 + self.random.position(REACTORS_MAX);
        let begun = self.begun_file(&config, reactors);
        let mut world = World::new(Setup {
            geometry: self.geometry,
            config,
            places,
            drives,
            regions,
            suspects,
            log: self.superblock(MemberIndex(0), Uuid::nil()).log(),
            begun,
            reactors,
            window_bytes: windows * self.geometry.stripe_bytes(),
            seed: self.random.next(),
        });
        if self.random.happens(500) {
            world.outside.step_nanoseconds = 20_000_000;
        }
        if self.random.happens(300) {
            let to = self.random.position(world.shards.len());
            world.outside.mail_is_slow[to] = true;
        }
        self.started = false;
        self.swapped = None;
        self.holds.begin();
        self.given = None;
        self.change = None;
        self.give(&mut world, Given::Start, Command::Start);
        world
    }

    fn rounds(&mut self, world: &mut World, rounds: u64) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let readers = self.random.happens(300);
        if readers {
            let mut all = self.client.read_all();
            self.again.append(&mut all);
        }
        for _ in 0..rounds.min(self.rounds_left) {
            if self.power_is_due {
                return;
            }
            self.rounds_left -= 1;
            if self.started {
                self.read_back(world);
                if let Some(asked) = self.again.pop() {
                    if !self.client.offer(asked.clone(), world) {
                        self.again.push(asked);
                    }
                } else {
                    self.ask(world, stripe_blocks);
                }
                if self.random.happens(60) {
                    self.change_volumes(world);
                }
                if self.random.happens(75) {
                    self.disturb(world);
                }
                if self.random.happens(30) {
                    self.begin_spell(world);
                }
                if self.random.happens(10) {
                    self.change_options(world);
                }
                if self.random.happens(distributing::OFTEN) {
                    self.distribute(world);
                }
                if self.random.happens(first::OFTEN) {
                    self.write_first_without_one(world);
                }
            }
            let steps = self.random.below(40);
            self.turn(world, steps);
        }
    }

    /// Some events, and what follows from them.
    fn turn(&mut self, world: &mut World, steps: u64) {
        let members = &world.shards[world.home].map().members;
        self.filled_by.clear();
        self.filled_by
            .extend(members.iter().map(|member| member.drive));
        self.client.advance(world);
        for drive in &mut world.outside.drives {
            if !drive.bad.is_empty() {
                drive.met_bad = self.client.begun;
            }
        }
        for _ in 0..steps {
            world.step();
            if self.client.restless && self.random.happens(200) {
                self.client.change_memory(&mut self.random);
            }
            if self.started && self.client.has_rings() {
                self.client.turn_rings(world);
            }
        }
        self.outcome.trace = mix(self.outcome.trace, world.outside.trace);
        self.follow_spell(world);
        self.collect_zeroing(world);
        self.note_hole(world);
        self.client.judge_rings();
        self.client.collect(world);
        self.take_events(world);
        self.advance_change(world);
        if world.shards[world.home].map().trusted_until.0 >= self.geometry.stripes() {
            self.torn = false;
            self.doubts_end(world);
        }
    }

    fn run_until(&mut self, world: &mut World, done: impl Fn(&History, &World) -> bool) {
        for _ in 0..100_000 {
            if done(self, world) {
                return;
            }
            self.turn(world, 20);
        }
        if std::env::var_os("SIM_DESCRIBE").is_some() {
            eprintln!("{}", world.describe());
        }
        panic!(
            "the world hangs: {:?}, given {:?}, pending {}, idle {:?}, pass {:?}, members {:?}",
            self.geometry.level(),
            self.given,
            self.client.pending(),
            world.shards.iter().map(Shard::is_idle).collect::<Vec<_>>(),
            world.shards[world.home].pass_status(),
            world.shards[world.home].map().members,
        );
    }

    /// Whether a stop may tear stripes: no member is out, or may go out by what is under way.
    fn is_sound(&self, world: &World) -> bool {
        let failing = self.given.is_some_and(|(_, given)| given == Given::Fail);
        let map = world.shards[world.home].map();
        !failing
            && map.members.iter().all(|member| {
                let well = |drive: DriveIndex| world.outside.drives[drive.at()].is_well();
                member.state == MapState::InSync && member.drive.is_some_and(well)
            })
    }

    fn is_unchanging(&self) -> bool {
        let zeroing = |change: &Change| change.missing > 0 || !change.queue.is_empty();
        // Once the table is recorded, its new extents are zeroed.
        let recording = self.given.is_some_and(|(_, given)| given == Given::Volumes);
        !recording && !self.change.as_ref().is_some_and(zeroing)
    }

    fn forget_deleted(&mut self, config: &ArrayConfig) {
        if let Some(uuid) = self.client.hidden.take()
            && !config.volumes.iter().any(|volume| volume.uuid == uuid)
        {
            self.client.disks.remove(&uuid);
        }
    }

    // ---- commands ------------------------------------------------------------------------

    fn give(&mut self, world: &mut World, given: Given, command: Command) {
        assert!(self.given.is_none());
        self.command += 1;
        self.given = Some((self.command, given));
        world.give(self.command, command);
    }

    fn take_events(&mut self, world: &mut World) {
        for event in std::mem::take(&mut world.outside.events) {
            match event {
                Event::CommandDone { id, result } => self.done(world, id, result),
                Event::MetadataFailed | Event::BeyondRedundancy { .. } => {
                    assert!(self.may_fail(), "{event:?}");
                }
                Event::MemberExcluded { member, .. } => {
                    // Another drive may be in its place since.
                    let now = world.shards[world.home].map().members[member.at()].drive;
                    let before = self.filled_by.get(member.at()).copied().flatten();
                    let hurt = |drive: DriveIndex| world.outside.drives[drive.at()].hurt;
                    let hurt = now.is_none_or(hurt) || before.is_none_or(hurt);
                    assert!(self.client.doomed || hurt, "{member} is well: {event:?}");
                }
                Event::MemberLags { .. } => self.outcome.lagged += 1,
                Event::MemberLeftBehind { member, .. } => self.judge_left(world, member),
                Event::Scrubbed(finding) => self.judge_finding(world, &finding),
                Event::MemberReturned { regions, .. } => {
                    let space = self.superblock(MemberIndex(0), Uuid::nil()).regions();
                    self.outcome.returned += 1;
                    self.outcome.missed.0 += bytes_u64(regions);
                    self.outcome.missed.1 += bytes_u64(space.count());
                }
                // What holds do is looked at before (`follow_spell`).
                _ => {}
            }
        }
    }

    fn done(&mut self, world: &mut World, id: u64, result: Result<(), Refusal>) {
        let (expected, given) = self.given.take().expect("a command was given");
        assert_eq!(id, expected);
        match given {
            Given::Start => {
                assert!(self.client.doomed || result.is_ok(), "{result:?}");
                self.started = true;
                self.client.half_written.clear();
                // Nobody sees a volume before: what was found need not be durable.
                let coordinator = world.shards[world.home].coordinator().expect("home");
                let config = coordinator.config().clone();
                self.modes.confirmed();
                self.forget_deleted(&config);
                let space = self.superblock(MemberIndex(0), Uuid::nil()).extents();
                self.client.follow(&config, &space);
            }
            Given::Stop | Given::Other | Given::Resync => {
                assert!(self.may_fail() || result.is_ok(), "{result:?}");
            }
            Given::Options => self.modes.done(self.client.doomed, &result),
            // What is under way may not end soon.
            Given::Owners => self.outcome.distributed.1 += u64::from(result.is_ok()),
            // There may be nothing to pause, or nothing to compare.
            Given::Scrub => {}
            Given::Copy => self.copied = result.is_ok(),
            Given::Fail if self.copied => {}
            // A drive may fail before it is failed, and the new drive too.
            Given::Replace => {
                if let Some(drive) = self.swapped.take() {
                    world.outside.drives[drive].hung = false;
                    world.outside.starved = None;
                }
            }
            Given::Fail if self.swapped.is_some() || self.random.happens(400) => {
                self.replace_one(world);
            }
            Given::Fail => {}
            Given::Volumes => {
                assert!(self.client.doomed || result.is_ok(), "{result:?}");
                if result.is_err() {
                    // Metadata is lost: nothing came of it.
                    self.change = None;
                    return;
                }
                self.volumes_done(world);
            }
        }
    }
}
