//! An engine that is killed between any two of its stores: the next one answers every request
//! that the guest still waits for, in the guest's order, and none that the guest has back.

use std::collections::BTreeMap;
use std::sync::Arc;

use guest::{Driver, Layout, Memory, Options, Part, Token};

use super::Inflight;
use crate::stop::run_until_store;
use crate::testing::{self, View};
use crate::{Chain, Head, RingError, Vring};

/// A seeded generator; a failure prints its seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What outlives an engine: the guest, and the in-flight region.
struct Guest {
    driver: Driver,
    view: View,
    region: Memory,
    /// Descriptors that the region is for; the ring may have fewer.
    entries: u16,
    first_base: u32,
    next_number: u64,
    /// What the guest waits for.
    waits: BTreeMap<Token, (u64, Vec<Part>)>,
}

impl Guest {
    fn new(options: Options) -> Guest {
        Guest::with_region(options, options.size)
    }

    /// With a region for rings of `entries` descriptors.
    fn with_region(options: Options, entries: u16) -> Guest {
        let memory = Arc::new(Memory::heap(256 << 10));
        let driver = Driver::new(&memory, options);
        let first_base = driver.base();
        let layout = testing::layout(&driver);
        let bytes = units::bytes_usize(Inflight::bytes(layout, entries, 3));
        Guest {
            driver,
            view: View::new(&memory),
            region: Memory::heap(bytes),
            entries,
            first_base,
            next_number: 0,
            waits: BTreeMap::new(),
        }
    }

    /// The guest starts again, with a ring of `size` descriptors; the region stays.
    fn restart(&mut self, size: u16) {
        let options = Options {
            size,
            start: 0,
            ..self.driver.options()
        };
        self.driver = Driver::new(&self.view.memory, options);
        self.first_base = self.driver.base();
        self.waits.clear();
    }

    /// A request of one descriptor, for which even the smallest ring has room.
    fn submit_one(&mut self) {
        let number = self.next_number;
        let parts = testing::parts(&self.view.memory, number, &[2], &[]);
        let token = self.driver.submit(&parts).expect("there is room");
        self.next_number += 1;
        self.waits.insert(token, (number, parts));
    }

    fn submit(&mut self, chance: &mut Chance) {
        let number = self.next_number;
        let mut lengths = |most| -> Vec<u32> {
            let count = chance.below(most);
            (0..count)
                .map(|at| u32::try_from(at + 3).unwrap())
                .collect()
        };
        let (mut readable, writable) = (lengths(3), lengths(3));
        readable.push(2);
        let parts = testing::parts(&self.view.memory, number, &readable, &writable);
        let token = if chance.below(3) == 0 {
            self.driver.submit_indirect(&parts)
        } else {
            self.driver.submit(&parts)
        };
        if let Some(token) = token {
            self.next_number += 1;
            self.waits.insert(token, (number, parts));
        }
    }

    fn reap(&mut self) -> bool {
        let Some(used) = self.driver.reap() else {
            return false;
        };
        let (number, parts) = self.waits.remove(&used.token).expect("answered once");
        assert!(testing::is_answered(&self.view.memory, number, &parts));
        true
    }

    /// What the front-end says where the ring is. After a crash it does not know: QEMU takes the
    /// used index of a split ring, and its own old number of a packed one.
    fn base(&self) -> u32 {
        match self.driver.options().layout {
            Layout::Packed => self.first_base,
            Layout::Split => {
                let used = self.driver.addresses().device.0 + 2;
                u32::from(self.view.memory.load_u16(used))
            }
        }
    }

    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.waits.values().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// An engine, until it is killed.
struct Engine {
    vring: Vring,
    chain: Chain,
    taken: Vec<(Head, u64, u32)>,
    left: u16,
}

impl Engine {
    fn start(guest: &Guest) -> Result<Engine, RingError> {
        let mut vring = testing::try_vring(&guest.driver, guest.base())?;
        let layout = testing::layout(&guest.driver);
        let inflight = Inflight::new(layout, guest.entries, guest.region.segment(), 1)?;
        let left = vring.attach(inflight)?;
        Ok(Engine {
            vring,
            chain: Chain::default(),
            taken: Vec::new(),
            left,
        })
    }

    fn pop(&mut self, guest: &Guest) -> Option<u64> {
        let popped = self
            .vring
            .pop(&guest.view, &mut self.chain)
            .expect("an honest guest");
        popped.then(|| {
            let token = Token(self.chain.head.id());
            let number = guest.waits.get(&token).expect("the guest waits for it").0;
            let written = testing::serve(&self.chain, number);
            self.taken.push((self.chain.head, number, written));
            number
        })
    }

    fn push(&mut self, choice: u64) {
        if !self.taken.is_empty() {
            let count = units::bytes_u64(self.taken.len());
            let (head, _, written) = self.taken.swap_remove(units::bytes_usize(choice % count));
            self.vring.push(head, written);
        }
    }
}

/// A life of an engine: some turns, and the guest in between.
fn live(guest: &mut Guest, seed: u64, turns: u64) {
    let mut chance = Chance(seed);
    let mut engine = Engine::start(guest).expect("a good region");
    for _ in 0..turns {
        match chance.below(8) {
            0..=2 => guest.submit(&mut chance),
            3 => drop(engine.pop(guest)),
            4 => while engine.pop(guest).is_some() {},
            5 => {
                engine.push(chance.below(64));
                engine.push(chance.below(64));
            }
            6 => drop(engine.vring.publish()),
            _ => while guest.reap() {},
        }
    }
}

/// How the guest and the next engine go on after a stop.
#[derive(Clone, Copy)]
struct After {
    guest: Meanwhile,
    answers: Answers,
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    GoesOn,
    Waits,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    OneByOne,
    AllAtOnce,
}

impl After {
    /// One of the ways, so that stops next to each other go on in different ones.
    fn new(seed: u64, stop: u64) -> After {
        let way = Chance(seed.wrapping_mul(1_000_003) ^ stop).below(4);
        After {
            guest: [Meanwhile::GoesOn, Meanwhile::Waits][units::bytes_usize(way % 2)],
            answers: [Answers::OneByOne, Answers::AllAtOnce][units::bytes_usize(way / 2)],
            seed: seed ^ stop,
        }
    }
}

/// A new engine comes and finds everything in order.
fn recover_and_check(guest: &mut Guest, after: After, what: &str) {
    if after.guest == Meanwhile::GoesOn {
        // The guest goes on while nobody serves it.
        while guest.reap() {}
        guest.submit(&mut Chance(7));
        guest.submit(&mut Chance(8));
    }
    let mut engine = Engine::start(guest).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut numbers = Vec::new();
    let mut again = 0;
    while let Some(number) = engine.pop(guest) {
        again += u16::from(engine.chain.again);
        assert_eq!(
            engine.chain.again,
            numbers.len() < usize::from(engine.left),
            "{what}"
        );
        numbers.push(number);
    }
    assert_eq!(again, engine.left, "{what}");
    assert!(
        numbers.is_sorted(),
        "{what}: {numbers:?} in the guest's order"
    );
    if after.guest == Meanwhile::GoesOn {
        assert_eq!(
            numbers,
            guest.numbers(),
            "{what}: all that the guest waits for"
        );
    }
    let mut chance = Chance(after.seed);
    while !engine.taken.is_empty() {
        engine.push(chance.below(64));
        if after.answers == Answers::OneByOne {
            let _ = engine.vring.publish();
            while guest.reap() {}
        }
    }
    let _ = engine.vring.publish();
    while guest.reap() {}
    assert_eq!(guest.numbers(), [], "{what}: all are answered");
    assert_eq!(engine.vring.base(), guest.driver.base(), "{what}");

    let engine = Engine::start(guest).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(engine.left, 0, "{what}: nothing is left to the next");
    assert_eq!(engine.vring.base(), guest.driver.base(), "{what}");
}

fn options(layout: Layout, seed: u64) -> Options {
    let mut chance = Chance(seed);
    let size = match layout {
        Layout::Split => 1 << chance.below(4),
        Layout::Packed => 1 + chance.below(9),
    };
    Options {
        layout,
        size: u16::try_from(size).unwrap(),
        event_idx: chance.below(2) == 0,
        start: [0, 1, 5, 65_533][units::bytes_usize(chance.below(4))],
    }
}

/// A guest whose region is for a larger ring than it has, as every other one's.
fn guest(layout: Layout, seed: u64) -> Guest {
    let options = options(layout, seed);
    let more = [0, 1, 2 * options.size][units::bytes_usize(Chance(!seed).below(3))];
    Guest::with_region(options, options.size + more)
}

/// Runs lives of engines and stops them at every store.
fn stop_at_every_store(layout: Layout, seeds: u64) {
    for seed in 0..seeds {
        for stop in 0.. {
            let mut guest = guest(layout, seed);
            let ended = run_until_store(stop, || live(&mut guest, seed, 40));
            let what = format!("{layout:?}, seed {seed}, stopped at store {stop}");
            recover_and_check(&mut guest, After::new(seed, stop), &what);
            if ended {
                break;
            }
        }
    }
}

/// As above, and the next engine is killed too while it recovers and a little later.
fn stop_the_recovery_as_well(layout: Layout, seeds: u64) {
    for seed in 1000..1000 + seeds {
        let (mut stop, mut ended) = (0, false);
        while !ended {
            for second in 0.. {
                let mut guest = guest(layout, seed);
                ended = run_until_store(stop, || live(&mut guest, seed, 25));
                let recovered = run_until_store(second, || live(&mut guest, !seed, 6));
                let what = format!("{layout:?}, seed {seed}, stops at {stop} and {second}");
                recover_and_check(&mut guest, After::new(seed ^ stop, second), &what);
                if recovered {
                    break;
                }
            }
            stop += 1;
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_split_ring_survives_a_stop_at_every_store() {
    stop_at_every_store(Layout::Split, 150);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_packed_ring_survives_a_stop_at_every_store() {
    stop_at_every_store(Layout::Packed, 150);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_split_ring_survives_a_stop_of_its_recovery() {
    stop_the_recovery_as_well(Layout::Split, 8);
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_packed_ring_survives_a_stop_of_its_recovery() {
    stop_the_recovery_as_well(Layout::Packed, 8);
}

/// An entry that a stop left half written, as the first of a chain, is then used inside one.
#[test]
fn what_a_stop_left_behind_does_not_come_back() {
    let parts = |guest: &Guest, number, count: usize| {
        testing::parts(&guest.view.memory, number, &vec![1; count], &[])
    };
    for stop in 0.. {
        let mut guest = Guest::new(Options::new(Layout::Packed, 4));
        for (number, count) in [(0, 1), (1, 2)] {
            let parts = parts(&guest, number, count);
            let token = guest.driver.submit(&parts).unwrap();
            guest.waits.insert(token, (number, parts));
        }
        let mut engine = Engine::start(&guest).unwrap();
        assert_eq!(engine.pop(&guest), Some(0));
        let ended = run_until_store(stop, || assert_eq!(engine.pop(&guest), Some(1)));

        // The next one frees an entry before it takes the second request anew.
        let mut engine = Engine::start(&guest).unwrap();
        assert_eq!(engine.pop(&guest), Some(0));
        engine.push(0);
        let _ = engine.vring.publish();
        assert!(guest.reap());
        assert_eq!(engine.pop(&guest), Some(1));

        let mut engine = Engine::start(&guest).unwrap_or_else(|error| panic!("{stop}: {error}"));
        assert_eq!(
            (engine.left, engine.pop(&guest)),
            (1, Some(1)),
            "stopped at store {stop}"
        );
        if ended {
            break;
        }
    }
}

/// Also where its last answer brought the ring to where a new one begins.
#[test]
fn a_call_that_a_dead_engine_owed_is_made() {
    for (layout, start, answers) in [
        (Layout::Split, 0, 1),
        (Layout::Split, 65_535, 1),
        (Layout::Packed, 0, 1),
        (Layout::Packed, 0, 8),
    ] {
        let mut guest = Guest::new(Options {
            start,
            ..Options::new(layout, 4)
        });
        let mut engine = Engine::start(&guest).unwrap();
        let _ = engine.vring.publish();
        for _ in 0..answers {
            guest.submit_one();
            engine.pop(&guest).unwrap();
            engine.push(0);
            // The call for the last of these is never made.
            let _ = engine.vring.publish();
            assert!(guest.reap());
        }
        // Without memory of ours the next one knows as little.
        for with_record in [true, false] {
            let mut vring = testing::try_vring(&guest.driver, guest.driver.base()).unwrap();
            if with_record {
                vring = Engine::start(&guest).unwrap().vring;
            }
            assert!(vring.publish(), "{layout:?} {start}: now it is");
            assert!(!vring.publish(), "{layout:?} {start}: once");
        }
    }
}

#[test]
fn what_a_dead_engine_has_taken_of_a_packed_ring_nobody_takes_again() {
    let mut guest = Guest::new(Options::new(Layout::Packed, 4));
    let parts = testing::parts(&guest.view.memory, 0, &[2], &[]);
    let token = guest.driver.submit(&parts).expect("there is room");
    guest.waits.insert(token, (0, parts.clone()));
    let mut engine = Engine::start(&guest).expect("a good region");
    assert_eq!(engine.pop(&guest), Some(0));
    let mut engine = Engine::start(&guest).expect("a good region");
    assert_eq!(engine.pop(&guest), Some(0), "again");
    // The other three begin a chain that has its end in the first.
    let (next, available) = (1, 1 << 7);
    for index in 1..4 {
        guest
            .driver
            .raw_descriptor(index, parts[0], next | available, 1);
    }
    let popped = engine.vring.pop(&guest.view, &mut engine.chain);
    assert_eq!(popped, Err(RingError::Overrun));
}

#[test]
fn regions_of_queues_lie_apart() {
    for layout in [crate::Layout::Split, crate::Layout::Packed] {
        for size in [1u16, 2, 128, 1000, 1024] {
            let (header, entry) = match layout {
                crate::Layout::Split => (16, 16),
                crate::Layout::Packed => (32, 32),
            };
            let stride = Inflight::stride(layout, size);
            assert!(stride >= header + entry * u64::from(size) && stride.is_multiple_of(64));
            assert_eq!(Inflight::bytes(layout, size, 256), 256 * stride);
            let memory = Memory::heap(units::bytes_usize(3 * stride));
            let open = |queue| Inflight::new(layout, size, memory.segment(), queue).map(drop);
            assert_eq!(open(2), Ok(()));
            assert_eq!(open(3), Err(RingError::InflightRegion));
            assert_eq!(open(u16::MAX), Err(RingError::InflightRegion));
        }
    }
}

/// The layout is that of the protocol: a request in flight, byte for byte.
#[test]
fn the_region_is_laid_out_as_the_protocol_says() {
    let write_one = |layout| {
        let mut guest = Guest::new(Options::new(layout, 2));
        guest.submit(&mut Chance(1));
        let mut engine = Engine::start(&guest).unwrap();
        engine.pop(&guest).unwrap();
        let stride = Inflight::stride(testing::layout(&guest.driver), 2);
        let start = Memory::START + stride;
        (
            engine.chain.head.id().to_le_bytes(),
            guest.region.read(start, 64),
        )
    };
    let (head, split) = write_one(Layout::Split);
    assert_eq!(
        split[..16],
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0]
    );
    let entry = 16 + 16 * usize::from(head[0]);
    assert_eq!(split[entry], 1, "in flight");
    assert_eq!(
        split[entry + 1..entry + 16],
        [0; 15],
        "first counter, no batch"
    );

    let (id, packed) = write_one(Layout::Packed);
    let header = [1, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1];
    assert_eq!(
        packed[8..22],
        header,
        "version, size, free heads, used indices, wraps"
    );
    assert_eq!(packed[32..34], [1, 0], "in flight");
    assert_eq!(packed[36..40], [0, 0, 1, 0], "last, number");
    assert_eq!(packed[48..50], id, "buffer id");
}

/// The protocol's number is that of the entries; the ring's own is where the protocol has nothing.
#[test]
fn a_region_for_a_larger_ring_says_both_sizes() {
    for (layout, at) in [(Layout::Split, 18), (Layout::Packed, 24)] {
        for (entries, mark) in [(4, [0, 0]), (8, [4, 0])] {
            let guest = Guest::with_region(Options::new(layout, 4), entries);
            drop(Engine::start(&guest).unwrap());
            let start = Memory::START + Inflight::stride(testing::layout(&guest.driver), entries);
            assert_eq!(guest.region.load_u16(start + 10), entries, "{layout:?}");
            assert_eq!(guest.region.read(start + at, 2), mark, "{layout:?}");
        }
    }
}

#[test]
fn a_region_of_another_queue_is_refused() {
    for layout in [Layout::Split, Layout::Packed] {
        let mut guest = Guest::new(Options::new(layout, 4));
        live(&mut guest, 3, 30);
        let start = Memory::START + Inflight::stride(testing::layout(&guest.driver), 4);
        for (at, value) in [(8, 2), (10, 8)] {
            let old = guest.region.load_u16(start + at);
            guest.region.store_u16(start + at, value);
            let error = Engine::start(&guest).map(drop).unwrap_err();
            assert_eq!(error, RingError::InflightRegion, "{layout:?}");
            guest.region.store_u16(start + at, old);
        }
        assert!(Engine::start(&guest).is_ok(), "{layout:?}: in order again");
    }
}

#[test]
fn a_region_of_the_other_layout_is_refused() {
    for (ring, region) in [
        (Layout::Split, crate::Layout::Packed),
        (Layout::Packed, crate::Layout::Split),
    ] {
        let guest = Guest::new(Options::new(ring, 4));
        let bytes = units::bytes_usize(Inflight::bytes(region, 4, 1));
        let memory = Memory::heap(bytes);
        let inflight = Inflight::new(region, 4, memory.segment(), 0).unwrap();
        let mut vring = testing::try_vring(&guest.driver, guest.base()).unwrap();
        assert_eq!(vring.attach(inflight), Err(RingError::InflightRegion));
        assert_eq!(vring.health(), Err(RingError::InflightRegion));
    }
}

#[test]
fn a_region_for_a_smaller_ring_is_refused() {
    for layout in [Layout::Split, Layout::Packed] {
        let mut guest = Guest::with_region(Options::new(layout, 4), 2);
        let error = Engine::start(&guest).map(drop).unwrap_err();
        assert_eq!(error, RingError::InflightRegion, "{layout:?}");
        guest.restart(2);
        assert!(Engine::start(&guest).is_ok(), "{layout:?}");
    }
}

/// A guest of whose requests some were answered, and some left by an engine that was killed.
fn guest_with_a_past(options: Options, answered: u64, left: u64) -> Guest {
    let mut guest = Guest::with_region(options, 8);
    let mut engine = Engine::start(&guest).expect("a new region");
    for number in 0..answered + left {
        guest.submit_one();
        engine.pop(&guest).expect("it was sent");
        if number < answered {
            engine.push(0);
            let _ = engine.vring.publish();
            assert!(guest.reap());
        }
    }
    guest
}

/// A firmware has a ring of 128 where the guest's system has one of 256, and there are front-ends
/// that keep the region between them.
#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_ring_of_another_size_over_the_same_region_has_no_past() {
    for (layout, start) in [
        (Layout::Split, 0),
        (Layout::Split, 65_530),
        (Layout::Packed, 0),
    ] {
        for (before, after) in [(4, 8), (8, 4), (2, 4)] {
            for (answered, left) in [(0, 0), (0, 2), (1, 0), (5, 2), (7, 0), (9, 1)] {
                let options = Options {
                    start,
                    ..Options::new(layout, before)
                };
                for stop in 0.. {
                    let what = format!("{options:?} {after}, {answered}, {left}, {stop}");
                    let mut guest = guest_with_a_past(options, answered, left);
                    guest.restart(after);
                    guest.submit_one();
                    let ended = run_until_store(stop, || {
                        let engine = Engine::start(&guest).expect("a good region");
                        assert_eq!(engine.left, 0, "{what}");
                    });
                    recover_and_check(&mut guest, After::new(1, stop), &what);
                    if ended {
                        break;
                    }
                }
            }
        }
    }
}

/// Whatever stands in the region: an error or requests, never a panic, never an endless loop.
#[test]
#[cfg_attr(miri, ignore = "takes Miri hours; the rest of this file does not")]
fn a_region_of_garbage_breaks_nothing_else() {
    let mut errors = 0;
    for seed in 0..6000 {
        let mut chance = Chance(seed);
        let layout = [Layout::Split, Layout::Packed][units::bytes_usize(seed % 2)];
        let mut guest = guest(layout, seed);
        run_until_store(chance.below(150), || live(&mut guest, seed, 40));
        let bytes = guest.region.segment().len();
        for _ in 0..=chance.below(6) {
            let at = units::bytes_usize(chance.below(units::bytes_u64(bytes)));
            let byte = u8::try_from(chance.below(12)).unwrap();
            guest
                .region
                .write(Memory::START + units::bytes_u64(at), &[byte]);
        }
        let Ok(mut engine) = Engine::start(&guest) else {
            errors += 1;
            continue;
        };
        for _ in 0..100 {
            match engine.vring.pop(&guest.view, &mut engine.chain) {
                Ok(true) => engine.vring.push(engine.chain.head, 0),
                Ok(false) | Err(_) => break,
            }
        }
        let _ = engine.vring.publish();
    }
    assert!(errors > 100, "garbage was found only {errors} times");
}
