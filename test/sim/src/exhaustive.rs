//! Small models, exhausted: in each scenario a stop comes at every moment, leaves every part of
//! what was not flushed, and takes every set of members with it that the scenario allows; the next
//! engine starts on what is left, and while it recovers, a stop comes again.
//!
//! The shard is the real one, alone on its reactor. Drives answer in a fixed order, in several
//! orders one after another. After each stop everything is read at once, and again when all is
//! resynced; what was read stays; then, with each set of members lost that the level survives, the
//! definitions in `model::Layout` must find the same bytes on the drives. Members that were out
//! come back if they may, and all this holds again.
//!
//! In some scenarios a drive errs, once, at each request that it carries out and in each way: a
//! block cannot be read, a write fails and is there or is not, a flush fails, the drive is gone.
//! Then stops come as before, and when the bounds say so, drives err while the next engine
//! recovers. Reads may fail of such blocks alone as nobody can tell: where parity was not trusted,
//! or more was missing than there is. Without a log a member and the power that go within one write
//! are the write hole; there, a drive that is gone by its error is there again after the stop.
//!
//! In some a drive that is needed takes no writes of a block, until a stop or until it is mended.
//!
//! In others the guest changes the memory of all that it writes, once, at each moment in turn; then
//! each block may be read as it was or as it is, and all copies and parity must be of the same.
//!
//! In some, what an engine has begun is in memory that outlives it, and the next one writes it
//! again; where nothing speaks against that, nothing is resynced.
//!
//! In some, what a killed engine has asked of a drive is carried out late: the next engine does
//! without the drive, which returns when it has let go.
//!
//! In some a new drive comes into the place of a member that is out, and is filled. Where that is
//! so, members that cannot come back after a stop get new drives, too.
//!
//! Not enumerated: orders of answers beyond those few, several reactors, several errors; those are
//! the random histories' part.

mod begun;
mod disk;
mod machine;
mod recovery;
mod scenario;
mod steps;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use array::Command;
use array::Geometry;
use array::format::{INCOMPAT_UNWRITTEN, RegionKind, WriteHole};
use block::Operation;
use units::{MemberIndex, bytes_u64, bytes_usize};
use uuid::Uuid;

use self::begun::{Memory, Told};
use self::disk::{Disk, Write, mix};
use self::machine::{Choice, Error, Machine, Schedule, Setup, Unwatched, Watch};
use self::scenario::{CHUNK_BYTES, ROWS, Scenario, Step, scenarios};
use self::steps::take;
use crate::disks;
use crate::world::{new_config, place};

/// How far it goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Stops one after another: 1 is a stop and a recovery that ends, 2 stops that recovery, too.
    pub depth: usize,
    /// The most parts of what was not flushed that are listed at one moment, at the first stop and
    /// at later ones. Where there are more: none, all, each write alone, and all but each write.
    pub parts_max: [u64; 2],
    /// Drives err while the next engine recovers, too.
    pub errs: bool,
}

impl Bounds {
    /// As far as each commit goes.
    pub const SLICE: Bounds = Bounds {
        depth: 1,
        parts_max: [256, 0],
        errs: false,
    };
    /// As far as it goes at all: a recovery is stopped, too.
    pub const FULL: Bounds = Bounds {
        depth: 2,
        parts_max: [4096, 16],
        errs: true,
    };

    /// The word on the command line, with a space behind, if it needs one.
    #[must_use]
    pub fn flag(&self) -> &'static str {
        if self.depth > 1 { "--full " } else { "" }
    }
}

/// What was enumerated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Moments at which a stop came.
    pub moments: u64,
    /// Stops: each moment with each part that is left and each set of lost members.
    pub stops: u64,
    /// Those that leave something else than any before, and were recovered from.
    pub recoveries: u64,
    /// Moments with more parts than are listed one by one.
    pub coarse: u64,
}

impl Count {
    /// Adds what another run has enumerated.
    pub fn add(&mut self, other: Count) {
        self.moments += other.moments;
        self.stops += other.stops;
        self.recoveries += other.recoveries;
        self.coarse += other.coarse;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} stops at {} moments, {} recoveries, {} moments listed in part",
            self.stops, self.moments, self.recoveries, self.coarse
        )
    }
}

/// The names of all scenarios that are run when none is named.
pub fn names(bounds: Bounds) -> impl Iterator<Item = &'static str> {
    let is_run = move |scenario: &&Scenario| !scenario.is_long || bounds.depth > 1;
    scenarios().filter(is_run).map(|scenario| scenario.name)
}

/// Runs the scenario of this name.
///
/// # Errors
/// How the array came to break a promise; the panic has said which.
///
/// # Panics
/// When there is no such scenario.
pub fn run(name: &str, bounds: Bounds) -> Result<Count, String> {
    let scenario = scenarios().find(|scenario| scenario.name == name);
    let scenario = scenario.expect("one of `names`");
    let late = (0..scenario.drives().len()).map(Schedule::Late);
    let others = [Schedule::Oldest, Schedule::Newest, Schedule::Tight];
    let mut count = Count::default();
    let mut seen = BTreeMap::new();
    for schedule in others.into_iter().chain(late) {
        let trail: Trail = Rc::default();
        let mut lister = Lister {
            scenario,
            schedule,
            bounds,
            depth: 0,
            erred: false,
            seen: &mut seen,
            count: &mut count,
            last: 0,
            trail: Rc::clone(&trail),
        };
        let played = catch_unwind(AssertUnwindSafe(|| lister.play_all()));
        if played.is_err() {
            let stops = trail.borrow().join("; then ");
            return Err(format!("{name}, {schedule:?}: {stops}"));
        }
    }
    Ok(count)
}

/// The stops so far, as words.
type Trail = Rc<RefCell<Vec<String>>>;

/// Lists all stops of one run, and recovers from each.
struct Lister<'a> {
    scenario: &'a Scenario,
    schedule: Schedule,
    bounds: Bounds,
    /// Stops before this run.
    depth: usize,
    /// A drive has erred before the first stop.
    erred: bool,
    /// By the hash of what a stop left: after how many stops it was recovered from.
    seen: &'a mut BTreeMap<u64, usize>,
    count: &'a mut Count,
    /// The last moment that was looked at.
    last: u64,
    /// Where a failure was found: moment and part of each stop.
    trail: Trail,
}

/// What a stop has left.
#[derive(Clone)]
struct Left {
    disks: Vec<Disk>,
    model: model::Volume,
    /// User blocks of which reads may fail.
    doubtful: BTreeSet<u64>,
    /// The drive that is gone because it erred.
    gone: Option<usize>,
    /// What outlives the process.
    memory: Option<Memory>,
}

/// Each error of each request.
fn choices(asked: &[Operation]) -> Vec<Choice> {
    let of = |(request, operation): (usize, &Operation)| {
        let errors = Error::of(*operation).iter();
        errors.map(move |error| Choice {
            request,
            error: *error,
        })
    };
    asked.iter().enumerate().flat_map(of).collect()
}

impl Lister<'_> {
    /// The scenario as it is, then with each error at each request, or with each change of memory.
    fn play_all(&mut self) {
        let (asked, moments) = self.play(None, None);
        let scenario = self.scenario;
        let errors = choices(&asked).into_iter().filter(|_| scenario.errs);
        for choice in errors {
            self.erred = true;
            self.trail.borrow_mut().push(format!("{choice:?}"));
            self.play(Some(choice), None);
            self.trail.borrow_mut().pop();
        }
        for moment in (0..moments).filter(|_| scenario.changes) {
            let said = format!("memory changes at {moment}");
            self.trail.borrow_mut().push(said);
            self.play(None, Some(moment));
            self.trail.borrow_mut().pop();
        }
    }

    /// What drives were asked while somebody looked, and how many moments there were.
    fn play(&mut self, choice: Option<Choice>, change: Option<u64>) -> (Vec<Operation>, u64) {
        let scenario = self.scenario;
        let mut machine = self.create();
        machine
            .finish(&mut Unwatched, Command::Start)
            .expect("a new array");
        let all = bytes_usize(scenario.geometry().blocks());
        let all = if scenario.is_new { 0 } else { all };
        let mut number = 1;
        for first in (0..all).step_by(16) {
            let blocks = 16.min(all - first);
            machine.ask(
                Operation::Write,
                bytes_u64(first),
                &content(&mut number, blocks),
            );
            machine.run(&mut Unwatched, Machine::is_answered);
        }
        machine.ask(Operation::Flush, 0, &[]);
        machine.run(&mut Unwatched, Machine::is_answered);
        let mut is_watched = false;
        for step in scenario.steps {
            if matches!(step, Step::Watch) {
                is_watched = true;
                machine.choose(choice);
                machine.change_at(change);
            }
            let nobody: &mut dyn Watch = &mut Unwatched;
            let watch = if is_watched { &mut *self } else { nobody };
            take(&mut machine, (scenario, *step), watch, &mut number);
        }
        assert!(is_watched, "a stop may come at some time");
        machine.run(self, Machine::is_answered);
        // All is answered, and a stop comes now.
        self.look(&machine);
        let seen = (machine.asked().to_vec(), machine.moments());
        machine.die();
        seen
    }

    fn create(&self) -> Machine {
        let geometry = self.scenario.geometry();
        let layout = layout(self.scenario);
        let mut config = new_config(&geometry, true);
        config.clean = false;
        if self.scenario.strict {
            config.options.write_hole = WriteHole::Strict;
        }
        let mut all = Vec::new();
        for (position, record) in config.members.iter_mut().enumerate() {
            record.drive_bytes = disks::DRIVE_BYTES;
            let mut disk = Disk::default();
            let member = MemberIndex::from_at(position);
            let superblock = superblock(self.scenario, member, record.uuid);
            disks::write_superblocks(&mut disk, &superblock);
            if self.scenario.is_new {
                disks::write_first_regions(&mut disk, &superblock, RegionKind::Unwritten);
                let garbage = 0x11 * u8::try_from(position + 1).expect("few");
                let garbage = vec![garbage; bytes_usize(layout.data.length)];
                disks::Medium::put(&mut disk, layout.data.offset, &garbage);
            }
            disk.flush(disk.begin_flush());
            all.push(disk);
        }
        let first = superblock(self.scenario, MemberIndex(0), Uuid::nil());
        let regions = if self.scenario.is_new {
            config.features.incompat |= INCOMPAT_UNWRITTEN;
            array::RegionMap::unwritten(first.regions(), config.array)
        } else {
            array::RegionMap::new(first.regions(), config.array)
        };
        let setup = Setup {
            suspects: regions.suspects(true, config.resynced_until),
            regions,
            places: (0..all.len()).map(|at| Some(place(&layout, at))).collect(),
            log: first.log(),
            told: self.scenario.told.then(|| Told::new(&config)),
            model: model::Volume::new(bytes_usize(geometry.blocks()) * 512, 512),
            geometry,
            config,
            disks: all,
        };
        Machine::new(setup, self.schedule)
    }

    /// Every stop of this moment: of the power, of the process alone, and of the process while a
    /// drive takes long over what it was asked.
    fn list(&mut self, now: &Left, taken: &[(usize, &Write)]) {
        self.count.moments += 1;
        let is_last = self.depth + 1 == self.bounds.depth;
        let busy = 0..if self.scenario.lands_late && is_last {
            now.disks.len()
        } else {
            0
        };
        let writes = |drive: &usize| taken.iter().any(|(at, _)| at == drive);
        let busy = busy.filter(writes).map(|drive| (false, Some(drive)));
        for (power, busy) in [(true, None), (false, None)].into_iter().chain(busy) {
            let mut left = now.clone();
            let mut units: Vec<(usize, Write)> = Vec::new();
            if power {
                left.model.power_loss();
                left.memory = None;
                for (at, disk) in now.disks.iter().enumerate() {
                    left.disks[at] = disk.without_cache();
                    units.extend(disk.cached().map(|write| (at, write.clone())));
                }
            } else {
                left.model.stop();
                left.disks.iter_mut().for_each(Disk::process_dies);
            }
            for (at, write) in taken.iter().filter(|(at, _)| !now.disks[*at].gone) {
                if busy == Some(*at) {
                    left.disks[*at].lock((*write).clone());
                } else {
                    units.push((*at, (*write).clone()));
                }
            }
            let ways: Vec<usize> = units.iter().map(|(_, write)| write.ways()).collect();
            for parts in self.parts(&ways) {
                self.stop(left.clone(), &units, (&parts, power));
            }
        }
    }

    /// All combinations of the ways in which writes may be left, or the chosen few.
    fn parts(&mut self, ways: &[usize]) -> Vec<Vec<usize>> {
        let most = self.bounds.parts_max[self.depth.min(1)];
        let all = ways
            .iter()
            .fold(1_u64, |all, ways| all.saturating_mul(bytes_u64(*ways)));
        if all <= most {
            return (0..all)
                .map(|mut number| {
                    let digit = |ways: &usize| {
                        let ways = bytes_u64(*ways);
                        let digit = bytes_usize(number % ways);
                        number /= ways;
                        digit
                    };
                    ways.iter().map(digit).collect()
                })
                .collect();
        }
        self.count.coarse += 1;
        let none = vec![0; ways.len()];
        let whole: Vec<usize> = ways.iter().map(|ways| ways - 1).collect();
        let mut parts = vec![none.clone(), whole.clone()];
        for (at, ways) in ways.iter().enumerate() {
            for way in 0..*ways {
                for base in [&none, &whole] {
                    let mut part = base.clone();
                    part[at] = way;
                    parts.push(part);
                }
            }
        }
        parts
    }

    /// One stop: with it each set of members is lost that may be, and drives that were gone are
    /// there again or not.
    fn stop(&mut self, mut left: Left, units: &[(usize, Write)], how: (&[usize], bool)) {
        let (parts, power) = how;
        for ((at, write), way) in units.iter().zip(parts) {
            let part = write.part(*way);
            if power {
                left.disks[*at].keep(&part);
            } else {
                left.disks[*at].write(part);
            }
        }
        let lost_max = if self.depth == 0 {
            self.scenario.lost
        } else {
            0
        };
        let gone: Vec<usize> = (0..left.disks.len())
            .filter(|at| left.disks[*at].gone)
            .collect();
        let is_locked: Vec<bool> = left.disks.iter().map(Disk::is_locked).collect();
        let known: Vec<u64> = left.disks.iter().map(Disk::content).collect();
        let memory = left.memory.as_ref().map_or(0, |memory| memory.said);
        // Where more may fail, less is asked of the recovery.
        let doubtful = left.doubtful.iter().fold(memory, |sum, at| mix(sum, *at));
        let knowledge = mix(left.model.fingerprint(mix), doubtful);
        let geometry = self.scenario.geometry();
        let owners = self.scenario.drives();
        for lost in losses(&geometry, &vec![lost_max; geometry.groups()]) {
            for back in sets(gone.len(), gone.len()) {
                let back: Vec<usize> = back.iter().map(|at| gone[*at]).collect();
                let waits = left.gone.is_some_and(|drive| !back.contains(&drive));
                if waits && !self.scenario.strict {
                    continue;
                }
                let is_gone = |at: usize| {
                    let is_lost = lost.contains(&owners[at]) || is_locked[at];
                    is_lost || gone.contains(&at) && !back.contains(&at)
                };
                let state = known
                    .iter()
                    .enumerate()
                    .fold(knowledge, |sum, (at, content)| {
                        mix(mix(sum, *content), u64::from(is_gone(at)))
                    });
                self.count.stops += 1;
                if !self.is_new(state) {
                    continue;
                }
                let mut left = left.clone();
                left.gone = None;
                for (at, disk) in left.disks.iter_mut().enumerate() {
                    disk.gone = is_gone(at);
                }
                let (moment, what) = (self.count.moments, if power { "power" } else { "process" });
                let busy = is_locked.iter().position(|is_locked| *is_locked);
                let said = format!(
                    "{what} at {moment}, left {parts:?}, lost {lost:?}, there again {back:?}, \
                     busy {busy:?}"
                );
                self.trail.borrow_mut().push(said);
                self.recover(left);
                self.trail.borrow_mut().pop();
            }
        }
    }

    /// Whether nothing like this was recovered from after so few stops.
    fn is_new(&mut self, state: u64) -> bool {
        let before = self.seen.get(&state).copied().unwrap_or(usize::MAX);
        if before <= self.depth {
            return false;
        }
        self.seen.insert(state, self.depth);
        self.count.recoveries += 1;
        true
    }
}

impl Watch for Lister<'_> {
    fn look(&mut self, machine: &Machine) {
        if machine.awaits_error() || machine.awaits_change() {
            return;
        }
        let taken: Vec<(usize, &Write)> = machine.taken().collect();
        let disks = machine
            .disks()
            .iter()
            .fold(0, |sum, disk| mix(sum, disk.hash()));
        let moment = taken.iter().fold(disks, |sum, (at, write)| {
            mix(mix(sum, bytes_u64(*at)), write.hash())
        });
        let moment = mix(mix(moment, machine.knowledge()), machine.said());
        if std::mem::replace(&mut self.last, moment) == moment {
            return;
        }
        let now = Left {
            disks: machine.disks().to_vec(),
            model: machine.model.clone(),
            doubtful: machine.doubtful().clone(),
            gone: machine.gone_by_error(),
            memory: machine.memory(),
        };
        self.list(&now, &taken);
    }
}

/// Blocks that are like no others.
fn content(number: &mut u64, blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks * 512);
    for _ in 0..blocks {
        *number += 1;
        for word in 0..64 {
            bytes.extend_from_slice(&mix(*number, word).to_le_bytes());
        }
    }
    bytes
}

/// All sets of at most so many of the first numbers.
fn sets(numbers: usize, most: usize) -> Vec<Vec<usize>> {
    let all =
        (0..1_usize << numbers).map(|bits| (0..numbers).filter(move |at| bits >> at & 1 == 1));
    let all = all.map(Iterator::collect);
    all.filter(|set: &Vec<usize>| set.len() <= most).collect()
}

/// All sets of members that have at most so many of each group.
fn losses(geometry: &Geometry, most: &[usize]) -> Vec<Vec<usize>> {
    let size = geometry.group_members();
    let mut all = vec![Vec::new()];
    for (group, most) in most.iter().enumerate() {
        let of_group = sets(size, *most);
        let with = |set: &Vec<usize>| {
            let begun = set.clone();
            let more = of_group.iter().map(move |more| {
                let more = more.iter().map(|at| group * size + at);
                begun.iter().copied().chain(more).collect()
            });
            more.collect::<Vec<Vec<usize>>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

fn layout(scenario: &Scenario) -> array::format::Layout {
    // Four writes, then the log comes round.
    disks::layout(
        units::BlockSize::B512,
        scenario.members,
        ROWS * CHUNK_BYTES,
        4 * (4096 + CHUNK_BYTES),
    )
}

fn superblock(scenario: &Scenario, member: MemberIndex, uuid: Uuid) -> array::format::Superblock {
    let geometry = scenario.geometry();
    let mut superblock = disks::superblock(geometry, &layout(scenario), member, uuid, 1);
    superblock.region_stripes = 1;
    superblock
}
