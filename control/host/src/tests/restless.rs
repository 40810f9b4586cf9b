//! A guest that changes what it writes while that is under way, without a pause. What the drives
//! hold agrees with parity and with their copies all the same, and each word that is read back is
//! one that was in the guest's memory, at its place, between the request and the answer.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use control::Engine;
use control::request::Level;
use control::scrub::ScrubBody;
use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use units::{Clock, bytes_u64, bytes_usize};

use super::{Bench, MIB, Tuning, export_of, volume_of, wait_until};

/// Version 1, event index, several queues, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 12 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
/// Requests at a time, each from memory of its own to a part of the volume of its own.
const SLOTS: usize = 8;
/// All data of a stripe.
const STRIPE: usize = 192 << 10;
/// Where a request begins in its part of the volume, and how long it is: one block, some, chunks
/// and parts of them, and a stripe.
const SHAPES: [(usize, usize); 5] = [
    (0, 4096),
    (36 << 10, 20 << 10),
    (4096, 512),
    (50 << 10, 100 << 10),
    (0, STRIPE),
];
const WORD: usize = size_of::<u64>();
const LASTS: Duration = Duration::from_millis(700);

/// The memory that is written from, and how often all of it was changed.
struct Buffers {
    memory: Arc<Memory>,
    data: u64,
    round: AtomicU64,
    ends: AtomicBool,
}

impl Buffers {
    fn address(&self, slot: usize) -> u64 {
        self.data + bytes_u64(slot * STRIPE)
    }

    /// What tells where a word belongs, without the round in which it was stored.
    fn place(slot: usize, offset: usize) -> u64 {
        bytes_u64(slot * STRIPE + offset)
    }

    /// Changes all of it, round after round.
    fn change(&self) {
        while !self.ends.load(Ordering::Relaxed) {
            let round = self.round.load(Ordering::SeqCst);
            for slot in 0..SLOTS {
                for offset in (0..STRIPE).step_by(WORD) {
                    let word = round << 32 | Buffers::place(slot, offset);
                    let address = self.address(slot) + bytes_u64(offset);
                    self.memory.store_u64(address, word);
                }
            }
            self.round.store(round + 1, Ordering::SeqCst);
        }
    }
}

/// A part of the volume: which rounds each of its sectors may show, and from which place in memory.
#[derive(Clone)]
struct Sector {
    rounds: RangeInclusive<u64>,
    from: usize,
}

struct Restless {
    buffers: Arc<Buffers>,
    driver: Driver,
    bells: Bells,
    _front_end: FrontEnd,
    headers: u64,
    /// By slot: what is under way, and the round in which it began.
    under_way: [Option<(u16, usize, u64)>; SLOTS],
    sent: usize,
    sectors: Vec<Option<Sector>>,
}

impl Restless {
    fn connect(bench: &Bench) -> Restless {
        let volume = volume_of("v", "tank", 8 * MIB);
        bench.host.create_volume(&volume).expect("room");
        let view = bench.host.export_named(&export_of(bench, "export", "v"));
        let memory = Arc::new(Memory::new(4 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, 64));
        let headers = memory.allocate(32 * SLOTS, 32);
        let data = memory.allocate(SLOTS * STRIPE, 4096);
        let bells = Bells::new().expect("events");
        let socket = view.expect("a volume").socket;
        let mut front_end = FrontEnd::connect(&socket).expect("the engine listens");
        front_end.negotiate(FEATURES, PROTOCOL).expect("agreed");
        front_end.set_memory(&memory).expect("taken");
        front_end
            .set_ring(0, &driver, driver.base(), &bells)
            .expect("taken");
        front_end.enable(0, true).expect("enabled");
        let buffers = Arc::new(Buffers {
            memory,
            data,
            round: AtomicU64::new(1),
            ends: AtomicBool::new(false),
        });
        Restless {
            buffers,
            driver,
            bells,
            _front_end: front_end,
            headers,
            under_way: [None; SLOTS],
            sent: 0,
            sectors: vec![None; SLOTS * STRIPE / 512],
        }
    }

    /// Begins a request of a slot, which has none under way.
    fn ask(&mut self, slot: usize, (first, bytes): (usize, usize), reads: bool) {
        let memory = &self.buffers.memory;
        let header = self.headers + bytes_u64(32 * slot);
        memory.store_u32(header, u32::from(!reads));
        memory.store_u64(header + 8, bytes_u64((slot * STRIPE + first) / 512));
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let length = u32::try_from(bytes).expect("few");
        let parts = [
            part(header, 16, false),
            part(self.buffers.address(slot), length, reads),
            part(header + 16, 1, true),
        ];
        let round = self.buffers.round.load(Ordering::SeqCst);
        let shape = SHAPES.iter().position(|&shape| shape == (first, bytes));
        let token = self.driver.submit(&parts).expect("room").0;
        self.under_way[slot] = Some((token, shape.expect("one of them"), round));
        self.bells.kick.write(1).expect("kicked");
    }

    /// Takes an answer, if there is one.
    fn take(&mut self, reads: bool) {
        let Some(used) = self.driver.reap() else {
            std::thread::yield_now();
            return;
        };
        let round = self.buffers.round.load(Ordering::SeqCst);
        let is_it = |under_way: &Option<(u16, usize, u64)>| {
            under_way.is_some_and(|(token, _, _)| token == used.token.0)
        };
        let slot = self.under_way.iter().position(is_it).expect("asked for");
        let (_, shape, begun) = self.under_way[slot].take().expect("found");
        let status = self.headers + bytes_u64(32 * slot + 16);
        assert_eq!(self.buffers.memory.read(status, 1), [0], "answered well");
        if reads {
            return;
        }
        let (first, bytes) = SHAPES[shape];
        for offset in (0..bytes).step_by(512) {
            // What it had in its memory then was stored in that round, or in the one before.
            self.sectors[(slot * STRIPE + first + offset) / 512] = Some(Sector {
                rounds: begun - 1..=round,
                from: offset,
            });
        }
    }

    fn write_for_a_while(&mut self) {
        let clock = units::MonotonicClock;
        let begun = clock.now();
        while clock.now().since(begun) < LASTS {
            for slot in 0..SLOTS {
                if self.under_way[slot].is_none() {
                    self.sent += 1;
                    self.ask(slot, SHAPES[self.sent * 7 / 3 % SHAPES.len()], false);
                }
            }
            self.take(false);
        }
        self.finish(false);
    }

    fn finish(&mut self, reads: bool) {
        let guest = std::cell::RefCell::new(self);
        wait_until("all answers", || {
            guest.borrow_mut().take(reads);
            guest.borrow().under_way.iter().all(Option::is_none)
        });
    }

    /// Reads everything back; how many words were from which round is theirs to say, but no other
    /// word may be there.
    fn judge(&mut self) {
        for slot in 0..SLOTS {
            self.ask(slot, SHAPES[SHAPES.len() - 1], true);
            self.finish(true);
            let address = self.buffers.address(slot);
            let found = self.buffers.memory.read(address, STRIPE);
            for (at, word) in found.chunks_exact(WORD).enumerate() {
                let Some(sector) = &self.sectors[(slot * STRIPE + at * WORD) / 512] else {
                    continue;
                };
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                let place = Buffers::place(slot, sector.from + at * WORD % 512);
                assert_eq!(bytes_usize(word & 0xFFFF_FFFF), bytes_usize(place));
                let round = word >> 32;
                assert!(
                    sector.rounds.contains(&round),
                    "round {round} is not of {:?}",
                    sector.rounds
                );
            }
        }
    }
}

#[test]
fn a_guest_that_changes_what_it_writes_finds_one_of_it_and_parity_agrees() {
    let cases: [(Level, &[&str]); 3] = [
        (Level::Raid5, &["one", "two", "three", "four"]),
        (Level::Raid6, &["one", "two", "three", "four", "five"]),
        (Level::Raid1, &["one", "two", "three"]),
    ];
    for (level, drives) in cases {
        let bench = Bench::tank_of(level, drives, Tuning::default());
        let mut guest = Restless::connect(&bench);
        let buffers = Arc::clone(&guest.buffers);
        let builder = std::thread::Builder::new().name("restless".to_owned());
        let thread = builder.spawn(move || buffers.change()).expect("a thread");
        wait_until("something in memory", || {
            guest.buffers.round.load(Ordering::SeqCst) > 1
        });
        guest.write_for_a_while();
        guest.buffers.ends.store(true, Ordering::Relaxed);
        thread.join().expect("it ends");
        assert!(guest.sent > 100, "{} requests", guest.sent);
        guest.judge();
        let from_beginning = true;
        let (_, view) = bench.scrubbed(ScrubBody { from_beginning });
        assert_eq!(view.findings, [], "{level:?}");
    }
}
