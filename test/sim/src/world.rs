//! One array with its shards, drives and messages, and the chance that orders them.

mod door;
mod places;
mod ports;
mod room;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use array::format::{ArrayConfig, ArrayOptions, Features, Layout, MemberRecord, MemberState};
use array::{
    ArrayMap, Begun, Command, Coordinator, CoordinatorSettings, Event, Geometry, Io, LogSpace,
    LostBlocks, MapIdentity, MemberPlace, Message, Owners, Refusal, RegionMap, RegionSpace,
    ScrubRecord, Shard, Shared, Suspects, WallClock, initial_map,
};
use block::{Completion, Request, Status};
use units::{
    ArrayIndex, Instant, MemberIndex, ReactorIndex, StripeIndex, Update, bytes_u64, bytes_usize,
};
use uuid::Uuid;

pub use self::places::{place, place_of};
pub use self::room::{HEDGING, room};
use self::watch::Watch;
use crate::disks;
use crate::drive::SimDrive;
use crate::random::Random;

/// Credits of each pair of reactors.
const CREDITS: usize = 8;
/// Of these, so many are for messages that are no work.
const CREDITS_KEPT: usize = 4;
/// The reactor that decides.
const HOME: usize = 0;
/// The most that one event takes while members are waited for.
const HOLD_NANOSECONDS: u64 = 3_000_000;
/// Of a thousand times, a drive that drags answers so often when another would.
const DRAGS: u64 = 400;
/// Of a thousand answers, before so many a drive carries out what a dead engine has asked.
const LANDS: u64 = 10;
/// While members are waited for their drives are looked at so often, and what else is due then is
/// seen as late as that.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Idle regions are clean after so long: often in a history, and not at once.
const CLEAR_AFTER: Duration = Duration::from_millis(20);
/// Often in a history in which time goes fast.
const RENEW_AFTER: Duration = Duration::from_secs(20);

/// Everything outside the shards.
#[derive(Debug)]
pub struct Outside {
    /// Drives by `DriveIndex`.
    pub drives: Vec<SimDrive>,
    /// The time.
    pub now: Instant,
    /// The most that one event takes, in nanoseconds.
    pub step_nanoseconds: u64,
    /// By reactor: mail to it is late.
    pub mail_is_slow: Vec<bool>,
    /// Mail from one reactor to another that does not come for now.
    pub mail_is_stuck: Option<(usize, usize)>,
    /// A reactor that gets no room for requests to drives.
    pub starved: Option<usize>,
    /// Most events find room for hardly any, or for about as many as a ticket needs, as if others
    /// had filled the ports.
    is_tight: bool,
    /// A little more than the widest band of a ticket needs.
    wide: u64,
    /// By from × to.
    mail: Vec<Vec<VecDeque<(Message, bool)>>>,
    credits: Vec<Vec<usize>>,
    /// Answers that were not looked at.
    pub completions: Vec<(ReactorIndex, Completion)>,
    /// Events that were not looked at.
    pub events: Vec<Event>,
    /// A hash of all that shards did and met, in its order: the same for the same seed.
    pub trace: u64,
    /// What drives are asked in the present event.
    watch: Watch,
    /// Some drives are still busy with what a dead engine has asked.
    any_locked: bool,
}

/// Room for more than anybody asks.
const AMPLE: usize = 1000;
/// Room for hardly any is less.
const FEW: u64 = 4;

impl Outside {
    /// How many requests to drives this reactor may make in the next event.
    fn room(&self, me: ReactorIndex) -> usize {
        if self.starved == Some(me.at()) {
            return 0;
        }
        let drawn = mix(self.trace, self.now.0);
        match drawn % 8 {
            few @ 0..FEW if self.is_tight => bytes_usize(few),
            FEW..6 if self.is_tight => bytes_usize(FEW + (drawn >> 8) % (self.wide - FEW + 1)),
            _ => AMPLE,
        }
    }

    fn note(&mut self, what: u64, which: u64) {
        self.trace = mix(mix(self.trace, what), which);
    }
}

/// The trace once an event was told.
fn trace_after(trace: u64, event: &Event) -> u64 {
    let told = format!("{event:?}");
    let told = told
        .bytes()
        .fold(0, |hash, byte| mix(hash, u64::from(byte)));
    mix(mix(trace, 10), told)
}

/// Adds a number to a hash.
#[must_use]
pub fn mix(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed.rotate_right(29)
}

struct Ports<'a> {
    outside: &'a mut Outside,
    me: ReactorIndex,
    room: usize,
}

impl Ports<'_> {
    fn of(outside: &mut Outside, me: ReactorIndex) -> Ports<'_> {
        let room = outside.room(me);
        Ports { outside, me, room }
    }
}

/// See the module.
#[derive(Debug)]
pub struct World {
    /// One shard for each reactor.
    pub shards: Vec<Shard>,
    /// What they meet.
    pub outside: Outside,
    /// Where chance comes from.
    pub random: Random,
    /// The reactor that decides.
    pub home: usize,
    /// By reactor: how often it was polled, and so has looked at most.
    pub polls: Vec<u64>,
    /// By reactor: the map that its shard had when it did something last.
    maps: Vec<Arc<ArrayMap>>,
    /// By reactor: if it sleeps, until when at the most, unless somebody wakes it.
    asleep: Vec<Option<Option<Instant>>>,
}

/// What a world is made of.
#[derive(Debug)]
pub struct Setup {
    /// The fixed numbers.
    pub geometry: Geometry,
    /// The configuration that `Command::Start` commits.
    pub config: ArrayConfig,
    /// By member.
    pub places: Vec<Option<MemberPlace>>,
    /// All drives.
    pub drives: Vec<SimDrive>,
    /// How many reactors.
    pub reactors: usize,
    /// User bytes of one background window.
    pub window_bytes: u64,
    /// The region map as the drives have it.
    pub regions: RegionMap,
    /// Regions whose parity is not trusted.
    pub suspects: Suspects,
    /// Where the log lies.
    pub log: LogSpace,
    /// Where the next engine finds what this one has begun.
    pub begun: Option<Arc<Begun>>,
    /// Where chance comes from.
    pub seed: u64,
}

/// A world of `geometry` whose members are drives `0..members`, with spare drives behind.
#[must_use]
pub fn new_config(geometry: &Geometry, resynced: bool) -> ArrayConfig {
    let members = (0..geometry.members())
        .map(|position| MemberRecord {
            uuid: Uuid::from_u128(units::bytes_u64(position).into()),
            state: MemberState::InSync,
            drive_bytes: 64 << 20,
            identity: Default::default(),
        })
        .collect();
    ArrayConfig {
        array: Uuid::from_u128(7),
        name: "sim".to_owned(),
        update: Update(1),
        update_id: 1,
        ancestors: Vec::new(),
        forced_at: Update(0),
        unfinished_since: Update(0),
        written_seconds: 0,
        features: Features::default(),
        clean: true,
        log_from: 0,
        resynced_until: StripeIndex(if resynced { geometry.stripes() } else { 0 }),
        members,
        volumes: Vec::new(),
        unzeroed: Vec::new(),
        lost: LostBlocks::default(),
        options: ArrayOptions::default(),
        scrub: ScrubRecord::default(),
    }
}

impl World {
    /// Starts `config` on `reactors` reactors.
    #[must_use]
    pub fn start(
        geometry: Geometry,
        config: ArrayConfig,
        layout: &Layout,
        (drives, reactors): (Vec<SimDrive>, usize),
        seed: u64,
    ) -> World {
        let places: Vec<Option<MemberPlace>> = (0..geometry.members())
            .map(|position| Some(place(layout, position)))
            .collect();
        let area = layout.region_map.length;
        let superblock = disks::superblock(
            geometry,
            layout,
            MemberIndex(0),
            Uuid::nil(),
            RegionSpace::stripes_for(&geometry, area),
        );
        let regions = RegionMap::new(superblock.regions(), config.array);
        let suspects = regions.suspects(true, config.resynced_until);
        let mut world = World::new(Setup {
            regions,
            suspects,
            log: superblock.log(),
            begun: None,
            geometry,
            config,
            places,
            drives,
            reactors,
            window_bytes: 1 << 20,
            seed,
        });
        world.command(1, Command::Start).expect("starts");
        world
    }

    /// A world in which nothing has begun.
    ///
    /// # Panics
    /// When the host has no memory.
    #[must_use]
    pub fn new(setup: Setup) -> World {
        let Setup {
            geometry,
            config,
            places,
            drives,
            reactors,
            window_bytes,
            regions,
            suspects,
            log,
            begun,
            seed,
        } = setup;
        let mut random = Random::new(seed);
        let all: Vec<ReactorIndex> = (0..reactors).map(ReactorIndex::from_at).collect();
        let owners = Owners::new(|_| all[random.position(reactors)]);
        let identity = MapIdentity {
            array: ArrayIndex(0),
            geometry,
            owners,
            home: all[HOME],
        };
        let known = (&regions, suspects);
        let map = Arc::new(initial_map(identity, &config, &places, known));
        let shared = Shared::new(&map, &regions, (log, reactors), begun);
        let shard = |&me| Shard::new(me, Arc::clone(&map), Arc::clone(&shared), room(reactors));
        let mut shards: Vec<Shard> = all.iter().map(|me| shard(me).expect("memory")).collect();
        let settings = CoordinatorSettings {
            config,
            places,
            reactors: all,
            seed,
            window_bytes,
            regions,
            clear_after: CLEAR_AFTER,
            renew_after: RENEW_AFTER,
            clock: WallClock {
                at: Instant(0),
                seconds: 0,
            },
            created: 0,
        };
        shards[HOME].set_coordinator(Coordinator::new(settings).expect("memory"));
        let mail = |_| (0..reactors).map(|_| VecDeque::new()).collect();
        let outside = Outside {
            any_locked: drives.iter().any(SimDrive::is_locked),
            drives,
            now: Instant(0),
            step_nanoseconds: 100_000,
            mail_is_slow: vec![false; reactors],
            mail_is_stuck: None,
            starved: None,
            is_tight: mix(seed, 8).is_multiple_of(2),
            wide: bytes_u64(geometry.group_members() + 2),
            mail: (0..reactors).map(mail).collect(),
            credits: vec![vec![CREDITS; reactors]; reactors],
            completions: Vec::new(),
            events: Vec::new(),
            trace: 0,
            watch: Watch::default(),
        };
        World {
            shards,
            outside,
            random,
            home: HOME,
            polls: vec![0; reactors],
            maps: vec![map; reactors],
            asleep: vec![None; reactors],
        }
    }

    /// The process dies; the drives live on.
    #[must_use]
    pub fn die(mut self) -> Vec<SimDrive> {
        self.outside
            .drives
            .iter_mut()
            .for_each(SimDrive::take_bytes);
        for shard in self.shards {
            shard.die();
        }
        self.outside.drives
    }

    /// Gives a command and runs until it is done.
    ///
    /// # Errors
    /// As the array refuses.
    pub fn command(&mut self, id: u64, command: Command) -> Result<(), Refusal> {
        self.give(id, command);
        for _ in 0..100_000 {
            self.step();
            let done = self.outside.events.iter().position(
                |event| matches!(event, Event::CommandDone { id: done, .. } if *done == id),
            );
            if let Some(position) = done {
                match self.outside.events.remove(position) {
                    Event::CommandDone { result, .. } => return result,
                    other => unreachable!("{other:?}"),
                }
            }
        }
        panic!("command {id} is never done");
    }

    /// Gives a command to the home.
    pub fn give(&mut self, id: u64, command: Command) {
        self.asleep[self.home] = None;
        self.shards[self.home].command(id, command);
    }

    /// Hands a request to a reactor; whether it took it.
    pub fn submit(&mut self, reactor: ReactorIndex, request: Request) -> bool {
        // As if of several volumes.
        let line = u16::try_from(request.cookie.0 % 3).expect("small");
        self.act(reactor.at(), |shard, ports| {
            shard.submit_in(line, request, ports).is_ok()
        })
    }

    /// One event, by chance.
    pub fn step(&mut self) {
        // An array that waits is neither watched for long nor hurried.
        let most = if self.shards[self.home].is_holding() {
            HOLD_NANOSECONDS
        } else {
            self.outside.step_nanoseconds
        };
        self.outside.now = Instant(self.outside.now.0 + 1_000 + self.random.below(most));
        match self.random.below(10) {
            0..=2 => self.deliver_mail(),
            3..=6 => self.finish_drive(),
            _ => {
                let me = self.random.position(self.shards.len());
                self.polls[me] += 1;
                self.poll(me);
            }
        }
    }

    /// One turn of a reactor. If nothing moves and nothing is due, it may go to sleep: then nothing
    /// is left that it could do now. And what was due is not any more, or it would never sleep.
    fn poll(&mut self, me: usize) {
        if self.shards[me].rests(self.outside.now) && self.random.happens(500) {
            // As in turns of a reactor that others keep busy.
            return;
        }
        // What a reactor waits for that another one has written, or room, wakes nobody here.
        let is_alone = self.shards.len() == 1 && !self.outside.is_tight;
        let asleep = self.asleep[me];
        self.asleep[me] = self.act(me, |shard, ports| {
            // One that rests does nothing, and what is due stays.
            let rested = shard.rests(ports.now());
            let before = (!rested).then(|| shard.deadline());
            let (began, held) = (ports.outside.trace, shard.map().is_holding());
            let looks = shard.looks_who_leaves();
            let moved = shard.poll(ports);
            if moved > 0 {
                let soon = ports.now() + if held { LOOK_PAUSE } else { Duration::ZERO };
                let late = asleep.filter(|until| until.is_none_or(|at| at > soon));
                // Who errs too often is left out when the home does something, sooner or later.
                let late = late.filter(|_| shard.looks_who_leaves() == looks);
                assert!(
                    late.is_none(),
                    "{moved} steps, and it sleeps until {late:?}"
                );
                return None;
            }
            let due = shard.deadline();
            let before = before.unwrap_or(due);
            if let Some(due) = due.filter(|&at| at <= ports.now()) {
                // Drives are looked at in each turn here: what is due now may be another wait.
                assert!(
                    before != Some(due) || due == ports.now(),
                    "a reactor turns and turns, and does nothing"
                );
                return None;
            }
            let (told, known) = (ports.outside.events.len(), ports.outside.trace);
            let moved = shard.poll_all(ports);
            let expected = expected_trace(ports, told, known);
            // Nor is it one that the home asks itself then who is to leave.
            let asked = usize::from(rested && shard.coordinator().is_some());
            let is_quiet = moved <= asked && ports.outside.trace == expected;
            assert!(is_quiet, "a reactor sleeps over {moved} steps");
            // One that has asked itself does not sleep before it has answered. Paces may be judged
            // early, as said, and who lags is tried after that.
            let is_same = is_alone && moved == 0 && ports.outside.trace == began;
            let lags = is_same && shard.paces().iter().any(|pace| pace.lags);
            (is_same && !lags).then(|| shard.deadline())
        });
    }

    /// A shard does something; what it asks of drives meanwhile is looked at.
    fn act<T>(&mut self, me: usize, what: impl FnOnce(&mut Shard, &mut Ports<'_>) -> T) -> T {
        self.asleep[me] = None;
        let (shard, before) = (&mut self.shards[me], &mut self.maps[me]);
        if !Arc::ptr_eq(before, shard.map()) {
            *before = Arc::clone(shard.map());
        }
        let mut ports = Ports::of(&mut self.outside, ReactorIndex::from_at(me));
        let done = what(shard, &mut ports);
        self.outside.watch.judge(before, shard.map());
        done
    }

    fn deliver_mail(&mut self) {
        let count = self.shards.len();
        let (from, to) = (self.random.position(count), self.random.position(count));
        if self.outside.mail_is_stuck == Some((from, to)) {
            return;
        }
        if self.outside.mail_is_slow[to] && !self.random.happens(30) {
            return;
        }
        let Some((message, is_request)) = self.outside.mail[from][to].pop_front() else {
            return;
        };
        if !is_request {
            self.outside.credits[to][from] += 1;
        }
        self.act(to, |shard, ports| {
            shard.message(ReactorIndex::from_at(from), message, ports);
        });
    }

    fn finish_drive(&mut self) {
        let count = self.outside.drives.len();
        let first = self.random.position(count);
        if self.outside.any_locked && self.random.happens(LANDS) {
            self.land_one();
        }
        let busy = |drive: &usize| {
            let drive = &self.outside.drives[*drive];
            drive.pending() > 0 && !drive.hung
        };
        let Some(drive) = (first..count).chain(0..first).find(busy) else {
            return;
        };
        if self.outside.drives[drive].drags && !self.random.happens(DRAGS) {
            return;
        }
        let Some((reactor, request, status)) =
            self.outside.drives[drive].finish_one(self.outside.now, &mut self.random)
        else {
            return;
        };
        self.act(reactor.at(), |shard, ports| {
            shard.drive_done(request.cookie, status, ports);
        });
    }

    /// A drive carries out something that a dead engine has asked.
    fn land_one(&mut self) {
        let landed = self.outside.drives.iter_mut().any(SimDrive::land_one);
        self.outside.any_locked = landed;
    }

    /// Runs until `done` says so.
    ///
    /// # Panics
    /// When that takes too long: something hangs.
    pub fn run_until(&mut self, mut done: impl FnMut(&World) -> bool) {
        for _ in 0..3_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("the world hangs");
    }

    /// What is under way, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let pending: Vec<(usize, bool)> = self
            .outside
            .drives
            .iter()
            .map(|drive| (drive.pending(), drive.hung))
            .collect();
        format!(
            "drives {pending:?}, mail {:?}, {:#?}",
            self.outside.mail, self.shards
        )
    }

    /// Whether some failure of a member is not dealt with.
    #[must_use]
    pub fn is_in_trouble(&self) -> bool {
        self.shards.iter().any(Shard::is_in_trouble)
    }

    /// Whether no shard has anything in flight and no pass is due.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let mail = self
            .outside
            .mail
            .iter()
            .flatten()
            .any(|queue| !queue.is_empty());
        let passes = self.shards[self.home]
            .pass_status()
            .is_some_and(|pass| pass.state == array::PassState::Running);
        !mail && !passes && self.shards.iter().all(Shard::is_idle)
    }
}

/// What the trace is after the events from `told` on, if they are all that came to it. Paces are
/// judged when somebody looks after the end of a window, and in time by the deadline: that a look
/// was early is no step.
fn expected_trace(ports: &Ports<'_>, told: usize, known: u64) -> u64 {
    let is_pace = |event: &&Event| {
        matches!(
            event,
            Event::MemberLags { .. } | Event::MemberKeepsUp { .. }
        )
    };
    let paces = ports.outside.events[told..].iter().filter(is_pace);
    paces.fold(known, trace_after)
}

/// The verdict on the request of `cookie`, if it has come.
pub fn take_completion(world: &mut World, cookie: u64) -> Option<Status> {
    let done = &mut world.outside.completions;
    let position = done
        .iter()
        .position(|(_, completion)| completion.cookie.0 == cookie)?;
    Some(done.swap_remove(position).1.status)
}
