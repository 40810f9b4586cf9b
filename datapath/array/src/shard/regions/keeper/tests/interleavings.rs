//! All interleavings of writers, flushers and the home on the bytes of regions and the words of
//! flushes, as loom sees them:
//! `RUSTFLAGS="--cfg loom" cargo test -p array --release --lib interleavings`.
//!
//! The words and the home's keeper are the real ones. Round them are a drive, and shards that do
//! what `shard/regions.rs` and `shard/request/flush.rs` do, and nothing else.

use std::sync::{Arc, Mutex};

use block::Status;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use super::*;
use crate::exposure::tests::whole;
use crate::log::LogSpace;
use crate::map::ArrayMap;
use crate::shard::shared::Shared;

/// The only member, and the only region.
const MEMBER: MemberIndex = MemberIndex(0);
const REGION: u32 = 0;
/// One that another reactor asks for.
const ASKED: (ReactorIndex, u32) = (ReactorIndex(1), REGION);
/// Shards: the writers.
const SHARDS: usize = 2;
/// By writer: what it wrote.
type Versions = [u32; SHARDS];

/// Checks all interleavings with at most `preemptions` involuntary switches.
fn bounded(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// A drive that keeps what it must, and as late as it may: what would help is there once it is
/// flushed, what would harm is there at once.
struct Drive {
    /// The map calls the region dirty. Without an order of its own: who writes was told of it.
    is_dirty: AtomicBool,
    /// Between two moments others may have theirs. In order, as requests of a drive are.
    moments: AtomicU32,
    /// Not loom's, so that nobody learns by it what he was not told.
    holds: Mutex<Holds>,
}

#[derive(Clone, Copy, Debug)]
struct Holds {
    map: RegionKind,
    /// What was written last of the map, and how often it was.
    map_written: (RegionKind, usize),
    under_way: usize,
    cached: Versions,
    durable: Versions,
    /// Flushes that are to fail. What they should have kept no later one keeps.
    failures: usize,
    forsaken: Versions,
}

impl Drive {
    fn new(map: RegionKind, failures: usize) -> Drive {
        let holds = Holds {
            map,
            map_written: (map, 0),
            under_way: 0,
            cached: [0; 2],
            durable: [0; 2],
            failures,
            forsaken: [0; 2],
        };
        Drive {
            is_dirty: AtomicBool::new(map == RegionKind::Dirty),
            moments: AtomicU32::new(0),
            holds: Mutex::new(holds),
        }
    }

    /// Nobody else runs in the middle of one.
    fn moment<R>(&self, happens: impl FnOnce(&mut Holds) -> R) -> R {
        self.moments.fetch_add(1, Ordering::AcqRel);
        let mut holds = self.holds.lock().unwrap();
        let result = happens(&mut holds);
        holds.assert_safe();
        result
    }

    fn begin_write(&self) {
        let told = self.is_dirty.load(Ordering::Relaxed);
        assert!(told, "who may write knows that the region is dirty");
        self.moment(|holds| holds.under_way += 1);
    }

    fn finish_write(&self, writer: usize) -> u32 {
        self.moment(|holds| {
            holds.under_way -= 1;
            holds.cached[writer] += 1;
            holds.cached[writer]
        })
    }

    fn write_map(&self, kind: RegionKind) {
        let is_clean = kind == RegionKind::Clean;
        self.moment(|holds| {
            holds.map_written = (kind, holds.map_written.1 + 1);
            if is_clean {
                holds.map = kind;
            }
        });
        if is_clean {
            self.is_dirty.store(false, Ordering::Relaxed);
        }
    }

    fn flush(&self) -> Status {
        let begun = self.moment(|holds| *holds);
        let status = self.moment(|holds| holds.flush(&begun));
        if status.is_ok() && begun.map_written.0 == RegionKind::Dirty {
            self.is_dirty.store(true, Ordering::Relaxed);
        }
        status
    }
}

impl Holds {
    /// A flush ends that began when all was like this.
    fn flush(&mut self, begun: &Holds) -> Status {
        if self.failures > 0 {
            self.failures -= 1;
            self.forsaken = begun.cached;
            return Status::Media;
        }
        for (writer, cached) in begun.cached.into_iter().enumerate() {
            if cached > self.forsaken[writer] {
                self.durable[writer] = cached.max(self.durable[writer]);
            }
        }
        if begun.map_written == self.map_written {
            self.map = self.map_written.0;
        }
        Status::Ok
    }

    fn assert_safe(&self) {
        let is_clean = self.map != RegionKind::Dirty;
        let is_whole = self.under_way == 0 && self.cached == self.durable;
        assert!(!is_clean || is_whole, "clean on the drive: {self:?}");
    }
}

/// What all threads have.
struct World {
    drive: Drive,
    shared: Arc<Shared>,
    /// By writer: it is asked to keep dirty what it writes, and has done so.
    asked: [AtomicBool; 2],
    kept: [AtomicBool; 2],
}

/// What is no word that threads share, made once.
#[derive(Clone)]
struct Given {
    array: Arc<ArrayMap>,
    log: LogSpace,
    regions: RegionMap,
}

fn given(regions: impl Fn(RegionMap) -> RegionMap) -> Given {
    let array = Arc::new(whole());
    let geometry = array.geometry;
    let space = RegionSpace::new(&geometry, 1 << 31, (0, 1 << 20)).expect("fits");
    assert_eq!(space.count(), 1);
    Given {
        log: LogSpace::new(&geometry, (0, 1 << 20)),
        regions: regions(RegionMap::new(space, Uuid::from_u128(5))),
        array,
    }
}

impl World {
    fn new(given: &Given, failures: usize) -> Arc<World> {
        let Given {
            array,
            log,
            regions,
        } = given;
        let shared = Shared::new(array, regions, (*log, SHARDS), None);
        shared.open_regions();
        let no = || [AtomicBool::new(false), AtomicBool::new(false)];
        Arc::new(World {
            drive: Drive::new(regions.entry(0).kind, failures),
            shared,
            asked: no(),
            kept: no(),
        })
    }

    /// A flush as a guest asks for it. Whether it went well.
    fn flush(&self, writer: usize) -> bool {
        if !self.shared.begin_flush(MEMBER) {
            return true;
        }
        let me = ReactorIndex::from_at(writer);
        let number = self.shared.ask_flush(MEMBER);
        self.shared.call_oldest_flush(me, MEMBER, Some(number));
        let status = self.drive.flush();
        if !status.is_ok() {
            self.shared.begin_doubt(MEMBER);
        }
        self.shared.call_oldest_flush(me, MEMBER, None);
        let flushed = if status.is_ok() {
            let last = self.shared.last_flush(MEMBER);
            while self.shared.awaits_flushes(MEMBER, last) || self.shared.is_doubted(MEMBER) {
                thread::yield_now();
            }
            self.shared.is_flushed(MEMBER, 0, status)
        } else {
            // It is known what that means.
            let flushed = self.shared.is_flushed(MEMBER, 0, status);
            self.shared.finish_doubt(MEMBER);
            flushed
        };
        self.shared.finish_flush(MEMBER, flushed);
        flushed
    }

    fn keep_dirty(&self, writer: usize, is_writing: bool) {
        if self.asked[writer].load(Ordering::Acquire) {
            self.asked[writer].store(false, Ordering::Relaxed);
            if is_writing {
                self.shared.regions.begin_write(REGION);
            }
            self.kept[writer].store(true, Ordering::Release);
        }
    }

    /// A write, if the region lets it begin, and turns of its shard before, beside and after it.
    fn write(&self, writer: usize) {
        self.keep_dirty(writer, false);
        if !self.shared.regions.begin_write(REGION) {
            return;
        }
        self.drive.begin_write();
        self.keep_dirty(writer, true);
        assert!(self.shared.regions.is_dirty(REGION), "since it began");
        self.drive.finish_write(writer);
        self.shared.mark_written(MEMBER);
    }

    /// Answers until nobody asks any more.
    fn serve(&self, writer: usize) {
        while !self.kept[writer].load(Ordering::Relaxed) {
            self.keep_dirty(writer, false);
            thread::yield_now();
        }
    }
}

/// The home.
struct Home {
    world: Arc<World>,
    keeper: RegionKeeper,
    writers: usize,
}

impl Home {
    fn new(world: &Arc<World>, given: &Given, writers: usize) -> Home {
        let nobody = vec![None; given.array.members.len()];
        let keeper = RegionKeeper::new(&given.regions, &nobody, Duration::ZERO);
        Home {
            world: Arc::clone(world),
            keeper: keeper.expect("memory"),
            writers,
        }
    }

    /// Somebody wants to write.
    fn make_dirty(&mut self) {
        if !self.world.shared.regions.begin_write(REGION) {
            self.keeper.want(ASKED, Instant(0), None);
            self.write_map();
        }
    }

    fn write_map(&mut self) {
        self.keeper.begin_round(|member| member == MEMBER);
        let mut round = self.keeper.round.take().expect("there is work");
        let kind = self.keeper.kinds[0];
        self.world.drive.write_map(kind);
        round.todo.clear();
        round.flush();
        assert_eq!(self.world.drive.flush(), Status::Ok);
        round.flushed.push(MEMBER);
        self.keeper
            .publish(&round, &self.world.shared.regions, false);
    }

    /// Looks for a region that nobody writes: the first time it is marked, the second time clean.
    fn clear(&mut self) {
        let World {
            shared,
            drive,
            asked,
            kept,
        } = &*self.world;
        self.keeper.begin_clear(Instant(0), Vec::new());
        if matches!(self.keeper.clear, Clear::Asking { .. }) {
            for writer in 0..self.writers {
                asked[writer].store(true, Ordering::Release);
                while !kept[writer].load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            if shared.begin_flush(MEMBER) {
                assert_eq!(drive.flush(), Status::Ok);
                shared.finish_flush(MEMBER, true);
            }
        }
        self.keeper
            .sweep((0, 1), Update(1), &shared.regions, |_| true);
        if self.keeper.has_work() {
            self.write_map();
        }
    }
}

#[test]
fn who_may_write_knows_that_the_region_is_dirty_on_the_drives() {
    let given = given(|map| map);
    loom::model(move || {
        let world = World::new(&given, 0);
        let writer = thread::spawn({
            let world = Arc::clone(&world);
            move || world.write(0)
        });
        let mut home = Home::new(&world, &given, 1);
        home.make_dirty();
        writer.join().unwrap();
    });
}

#[test]
fn no_region_becomes_clean_while_it_is_written_or_before_that_is_flushed() {
    let given = given(RegionMap::all_dirty);
    bounded(3, move || {
        let world = World::new(&given, 0);
        let writer = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.write(0);
                world.keep_dirty(0, false);
                world.flush(0);
                world.write(0);
                world.serve(0);
            }
        });
        let mut home = Home::new(&world, &given, 1);
        home.clear();
        home.clear();
        home.make_dirty();
        writer.join().unwrap();
    });
}

#[test]
fn two_reactors_take_back_what_is_about_to_be_clean() {
    let given = given(RegionMap::all_dirty);
    bounded(2, move || {
        let world = World::new(&given, 0);
        let writers = [0, 1].map(|writer| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.write(writer);
                world.serve(writer);
            })
        });
        let mut home = Home::new(&world, &given, 2);
        home.clear();
        home.clear();
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// Also when another one has taken the word and its flush is under way, or fails, and nobody has
/// looked at its answer yet.
#[test]
fn what_was_written_before_a_flush_that_went_well_is_durable() {
    for failures in [0, 1] {
        let given = given(RegionMap::all_dirty);
        bounded(3, move || {
            let world = World::new(&given, failures);
            let other = thread::spawn({
                let world = Arc::clone(&world);
                move || write_and_flush(&world, 1)
            });
            write_and_flush(&world, 0);
            other.join().unwrap();
        });
    }
}

fn write_and_flush(world: &World, writer: usize) {
    world.drive.begin_write();
    let version = world.drive.finish_write(writer);
    world.shared.mark_written(MEMBER);
    if world.flush(writer) {
        let holds = world.drive.moment(|holds| *holds);
        assert!(holds.durable[writer] >= version, "{holds:?}");
    }
}
