//! A guest that breaks the rules: its ring is broken for good, with the reason, and nothing else
//! happens.

mod common;

use std::sync::Arc;

use common::View;
use guest::{Driver, Layout, Memory, Options, Part};
use proptest::prelude::*;
use units::limits::{CHAIN_BYTES_MAX, QUEUE_SIZE_MAX};
use virtqueue::{Area, Chain, Features, RingError, RingMemory, Vring};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;

const SIZE: u16 = 8;
/// Of the guest, which is sparse: two thirds of the largest request are good to point at.
const MEMORY_BYTES: u64 = 800 << 20;
const GOOD_BYTES: u64 = 700 << 20;

struct Attack {
    driver: Driver,
    vring: Vring,
    view: View,
    chain: Chain,
    /// Good memory for descriptors to point at.
    good: u64,
}

impl Attack {
    fn new(layout: Layout) -> Attack {
        let memory = common::memory(units::bytes_usize(MEMORY_BYTES));
        let driver = Driver::new(&memory, Options::new(layout, SIZE));
        let vring = common::vring(&driver);
        Attack {
            good: memory.allocate(units::bytes_usize(GOOD_BYTES), 4096),
            driver,
            vring,
            view: View::new(&memory),
            chain: Chain::default(),
        }
    }

    fn part(&self, length: u32) -> Part {
        Part {
            address: self.good,
            length,
            writable: false,
        }
    }

    /// A descriptor of the ring; of a packed ring it is available in the first lap.
    fn descriptor(&self, index: u16, part: Part, flags: u16, link: u16) {
        let turn = match self.driver.options().layout {
            Layout::Split => 0,
            Layout::Packed => AVAIL,
        };
        self.driver.raw_descriptor(index, part, flags | turn, link);
    }

    /// Makes head 0 of a split ring available; a packed ring needs no more than its flags.
    fn expose(&self) {
        if self.driver.options().layout == Layout::Split {
            self.driver.raw_driver(2, 0);
            self.driver.raw_driver(1, 1);
        }
    }

    /// An entry of an indirect table at the start of the good memory.
    fn entry(&self, index: u64, part: Part, flags: u16, link: u16) {
        let memory = &self.view.memory;
        let at = self.good + 16 * index;
        let halves = match self.driver.options().layout {
            Layout::Split => [flags, link],
            Layout::Packed => [link, flags],
        };
        memory.write(at, &part.address.to_le_bytes());
        memory.write(at + 8, &part.length.to_le_bytes());
        memory.write(at + 12, &halves[0].to_le_bytes());
        memory.write(at + 14, &halves[1].to_le_bytes());
    }

    fn pop(&mut self) -> Result<bool, RingError> {
        self.vring.pop(&self.view, &mut self.chain)
    }

    /// The ring is broken by `error`, and stays so.
    fn breaks(mut self, error: RingError) {
        let layout = self.driver.options().layout;
        assert_eq!(self.pop(), Err(error), "{layout:?}");
        assert_eq!(self.vring.health(), Err(error), "{layout:?}");
        assert!(
            !self.vring.waiting() && !self.vring.enable_kicks(),
            "{layout:?}"
        );
        // A guest that repairs its ring afterwards is not believed.
        self.descriptor(0, self.part(1), 0, 0);
        assert_eq!(self.pop(), Err(error), "{layout:?}");
        assert!(!error.to_string().is_empty());
    }
}

const BOTH: [Layout; 2] = [Layout::Split, Layout::Packed];

/// One attack in each layout: `prepare` writes descriptors, then head 0 is exposed.
fn both(prepare: impl Fn(&Attack), error: impl Fn(&Attack) -> RingError) {
    for layout in BOTH {
        let attack = Attack::new(layout);
        prepare(&attack);
        attack.expose();
        let error = error(&attack);
        attack.breaks(error);
    }
}

#[test]
fn memory_outside_the_guest() {
    let end = Memory::START + MEMORY_BYTES;
    for (address, length) in [
        (0, 1),
        (Memory::START - 1, 2),
        (end - 1, 2),
        (end, 1),
        (u64::MAX, 1),
        (u64::MAX - 3, u32::MAX),
        (Memory::START, u32::MAX),
    ] {
        let part = Part {
            address,
            length,
            writable: true,
        };
        let error = RingError::BadAddress { address, length };
        both(|attack| attack.descriptor(0, part, 0, 0), |_| error);
    }
    for address in [
        0,
        Memory::START - 16,
        end - 16,
        end,
        u64::MAX - 15,
        u64::MAX,
    ] {
        let part = Part {
            address,
            length: 32,
            writable: false,
        };
        let error = RingError::BadAddress {
            address,
            length: 32,
        };
        both(|attack| attack.descriptor(0, part, INDIRECT, 0), |_| error);
    }
}

#[test]
fn a_descriptor_of_no_bytes() {
    both(
        |attack| attack.descriptor(0, attack.part(0), 0, 0),
        |_| RingError::ZeroLength,
    );
}

#[test]
fn readable_after_writable() {
    both(
        |attack| {
            attack.descriptor(0, attack.part(1), NEXT | WRITE, 1);
            attack.descriptor(1, attack.part(1), 0, 1);
        },
        |_| RingError::ReadableAfterWritable,
    );
}

#[test]
fn a_request_larger_than_the_largest() {
    let bytes = u32::try_from(CHAIN_BYTES_MAX / 2).unwrap();
    both(
        |attack| {
            attack.descriptor(0, attack.part(bytes), NEXT, 1);
            attack.descriptor(1, attack.part(bytes + 4097), WRITE, 1);
        },
        |_| RingError::RequestTooLarge(CHAIN_BYTES_MAX + 4097),
    );
    for layout in BOTH {
        let mut attack = Attack::new(layout);
        attack.descriptor(0, attack.part(bytes), NEXT, 1);
        attack.descriptor(1, attack.part(bytes + 4096), WRITE, 1);
        attack.expose();
        assert_eq!(attack.pop(), Ok(true), "the largest is taken");
    }
}

/// Memory in small pieces makes many segments of one descriptor, and a ring's worth of those kept
/// its reactor busy for a fifth of a second.
#[test]
fn a_request_in_too_many_pieces() {
    let pieces = 2 * u32::from(QUEUE_SIZE_MAX);
    for layout in BOTH {
        for (first, second) in [(pieces, 1), (pieces - 1, 2), (1, pieces)] {
            let mut attack = Attack::new(layout);
            attack.view.piece = 16;
            attack.descriptor(0, attack.part(16 * first), NEXT, 1);
            attack.descriptor(1, attack.part(16 * second), WRITE, 1);
            attack.expose();
            attack.breaks(RingError::TooManySegments(units::bytes_usize(u64::from(
                first + second,
            ))));
        }
        let mut attack = Attack::new(layout);
        attack.view.piece = 16;
        attack.descriptor(0, attack.part(16 * (pieces - 1)), NEXT, 1);
        attack.descriptor(1, attack.part(16), WRITE, 1);
        attack.expose();
        assert_eq!(attack.pop(), Ok(true), "as many as may be");
    }
}

#[test]
fn indirect_tables_of_bad_lengths() {
    for length in [0, 1, 15, 17, 24, 16 * 1025, 16 * 1024 + 1, u32::MAX, !15] {
        both(
            |attack| attack.descriptor(0, attack.part(length), INDIRECT, 0),
            |_| RingError::IndirectLength(length),
        );
    }
}

#[test]
fn an_indirect_descriptor_with_a_next_one() {
    both(
        |attack| {
            attack.entry(0, attack.part(1), 0, 0);
            attack.descriptor(0, attack.part(16), INDIRECT | NEXT, 1);
            attack.descriptor(1, attack.part(1), 0, 0);
        },
        |_| RingError::IndirectWithNext,
    );
}

#[test]
fn a_table_in_a_table() {
    both(
        |attack| {
            attack.entry(0, attack.part(1), NEXT, 1);
            attack.entry(1, attack.part(32), INDIRECT, 0);
            attack.descriptor(0, attack.part(32), INDIRECT, 0);
        },
        |_| RingError::IndirectNested,
    );
}

#[test]
fn tables_break_the_same_rules_as_rings() {
    let table = |attack: &Attack, first: (u32, u16), second: (u32, u16)| {
        attack.entry(0, attack.part(first.0), first.1 | NEXT, 1);
        attack.entry(1, attack.part(second.0), second.1, 0);
        attack.descriptor(0, attack.part(32), INDIRECT, 0);
    };
    both(
        |attack| table(attack, (1, 0), (0, 0)),
        |_| RingError::ZeroLength,
    );
    both(
        |attack| table(attack, (1, WRITE), (1, 0)),
        |_| RingError::ReadableAfterWritable,
    );
    both(
        |attack| table(attack, (600 << 20, 0), (600 << 20, WRITE)),
        |_| RingError::RequestTooLarge(1200 << 20),
    );
}

#[test]
fn a_table_without_the_feature() {
    for layout in BOTH {
        let mut attack = Attack::new(layout);
        let features = Features {
            event_idx: true,
            indirect: false,
        };
        let memory = common::ring_memory(&attack.driver);
        let (layout, base) = (common::layout(&attack.driver), attack.driver.base());
        attack.vring = Vring::new(layout, SIZE, memory, features, base).unwrap();
        attack.descriptor(0, attack.part(16), INDIRECT, 0);
        attack.expose();
        attack.breaks(RingError::IndirectNotNegotiated);
    }
}

#[test]
fn loops_of_descriptors() {
    for (to, flags) in [(0, NEXT), (1, NEXT | WRITE)] {
        let attack = Attack::new(Layout::Split);
        attack.descriptor(0, attack.part(1), NEXT | flags, 1);
        attack.descriptor(1, attack.part(1), flags, to);
        attack.expose();
        attack.breaks(RingError::ChainTooLong);
    }
    for to in [0, 1] {
        let attack = Attack::new(Layout::Split);
        attack.entry(0, attack.part(1), NEXT, 1);
        attack.entry(1, attack.part(1), NEXT, to);
        attack.descriptor(0, attack.part(32), INDIRECT, 0);
        attack.expose();
        attack.breaks(RingError::ChainTooLong);
    }
    // A packed chain has no links: it only may have no end.
    let attack = Attack::new(Layout::Packed);
    for index in 0..SIZE {
        attack.descriptor(index, attack.part(1), NEXT, 0);
    }
    attack.breaks(RingError::ChainTooLong);
}

#[test]
fn links_out_of_their_table() {
    for to in [SIZE, SIZE + 1, u16::MAX] {
        let attack = Attack::new(Layout::Split);
        attack.descriptor(0, attack.part(1), NEXT, to);
        attack.expose();
        attack.breaks(RingError::NextOutOfRange(to));
    }
    for to in [2, SIZE, u16::MAX] {
        let attack = Attack::new(Layout::Split);
        attack.entry(0, attack.part(1), NEXT, to);
        attack.descriptor(0, attack.part(32), INDIRECT, 0);
        attack.expose();
        attack.breaks(RingError::NextOutOfRange(to));
    }
}

#[test]
fn avail_indices_that_jump() {
    for to in [SIZE + 1, 1000, u16::MAX] {
        let attack = Attack::new(Layout::Split);
        attack.driver.raw_driver(1, to);
        attack.breaks(RingError::IndexJump { from: 0, to });
    }
    // Back behind what was taken.
    let mut attack = Attack::new(Layout::Split);
    attack.descriptor(0, attack.part(1), 0, 0);
    attack.expose();
    assert_eq!(attack.pop(), Ok(true));
    attack.driver.raw_driver(1, 0);
    attack.breaks(RingError::IndexJump { from: 1, to: 0 });
}

#[test]
fn heads_out_of_range() {
    for head in [SIZE, u16::MAX] {
        let attack = Attack::new(Layout::Split);
        attack.driver.raw_driver(2, head);
        attack.driver.raw_driver(1, 1);
        attack.breaks(RingError::HeadOutOfRange(head));
        let attack = Attack::new(Layout::Packed);
        attack.descriptor(0, attack.part(1), 0, head);
        attack.breaks(RingError::HeadOutOfRange(head));
    }
}

#[test]
fn heads_that_are_in_flight() {
    for layout in BOTH {
        let mut attack = Attack::new(layout);
        attack.descriptor(0, attack.part(1), 0, 0);
        attack.descriptor(1, attack.part(1), 0, 0);
        attack.expose();
        assert_eq!(attack.pop(), Ok(true));
        let head = attack.chain.head;
        if layout == Layout::Split {
            attack.driver.raw_driver(3, 0);
            attack.driver.raw_driver(1, 2);
        }
        assert_eq!(attack.pop(), Err(RingError::HeadInFlight(0)));
        // What was taken before is answered all the same.
        attack.vring.push(head, 0);
        let _ = attack.vring.publish();
        assert_eq!(attack.vring.in_flight(), 0);
        attack.breaks(RingError::HeadInFlight(0));
    }
}

#[test]
fn more_descriptors_than_the_packed_ring_has() {
    let mut attack = Attack::new(Layout::Packed);
    for index in 0..SIZE {
        attack.descriptor(index, attack.part(1), 0, index);
        assert_eq!(attack.pop(), Ok(true));
    }
    // The next lap, although nothing was answered.
    attack.driver.raw_descriptor(0, attack.part(1), 1 << 15, 0);
    attack.breaks(RingError::Overrun);

    let mut attack = Attack::new(Layout::Packed);
    for index in 0..4 {
        attack.descriptor(index, attack.part(1), if index < 3 { NEXT } else { 0 }, 0);
    }
    assert_eq!(attack.pop(), Ok(true));
    for index in 4..SIZE {
        attack.descriptor(index, attack.part(1), NEXT, 1);
    }
    attack.breaks(RingError::Overrun);
}

#[test]
fn rings_that_cannot_be() {
    for layout in BOTH {
        let attack = Attack::new(layout);
        let memory = common::ring_memory(&attack.driver);
        let layout = common::layout(&attack.driver);
        let features = common::features(&attack.driver);
        let new = |size, memory, base| {
            let ring = Vring::new(layout, size, memory, features, base);
            ring.map(drop)
        };
        let base = attack.driver.base();
        assert_eq!(new(SIZE, memory, base), Ok(()));
        for size in [0, 1025, u16::MAX] {
            assert_eq!(new(size, memory, base), Err(RingError::QueueSize(size)));
        }
        for (area, shorten) in [
            (Area::Descriptors, [1, 0, 0]),
            (Area::Driver, [0, 1, 0]),
            (Area::Device, [0, 0, 1]),
        ] {
            let cut = |from: usize| RingMemory {
                descriptors: part(memory.descriptors, shorten[0], from),
                driver: part(memory.driver, shorten[1], from),
                device: part(memory.device, shorten[2], from),
            };
            let error = Err(RingError::RingMemory(area));
            assert_eq!(
                new(SIZE, cut(0), base),
                error,
                "{layout:?} {area} too short"
            );
            assert_eq!(
                new(SIZE, cut(1), base),
                error,
                "{layout:?} {area} not aligned"
            );
        }
    }
    let attack = Attack::new(Layout::Split);
    let error = common::try_vring(&attack.driver, 0x1_0000).map(drop);
    assert_eq!(error, Err(RingError::Base(0x1_0000)));
    let attack = Attack::new(Layout::Packed);
    // Index outside; avail behind used; more than a lap apart.
    for base in [
        0x8000_8008,
        0x8008_8000,
        0x8001_8000,
        0x8001_0002,
        0x8000_0001,
    ] {
        let error = common::try_vring(&attack.driver, base).map(drop);
        assert_eq!(error, Err(RingError::Base(base)), "{base:#x}");
    }
}

/// All of a segment but `shorter` bytes, from `from` on when it is shorter.
fn part(segment: memory::Segment, shorter: usize, from: usize) -> memory::Segment {
    segment.part(from * shorter, segment.len() - shorter)
}

/// Some front-ends start a new packed ring at base 0, or without the used half.
#[test]
fn a_new_packed_ring_may_be_said_to_start_at_zero() {
    for base in [0, 0x8000, 0x8000_8000] {
        let memory = common::memory(1 << 20);
        let mut driver = Driver::new(&memory, Options::new(Layout::Packed, 4));
        let mut vring = common::try_vring(&driver, base).unwrap();
        driver
            .submit(&common::parts(&memory, 1, &[1], &[]))
            .unwrap();
        assert_eq!(
            vring.pop(&View::new(&memory), &mut Chain::default()),
            Ok(true)
        );
    }
    // After one lap, 0 is to be taken by the letter.
    let memory = common::memory(1 << 20);
    let options = Options {
        start: 4,
        ..Options::new(Layout::Packed, 4)
    };
    let mut driver = Driver::new(&memory, options);
    assert_eq!(driver.base(), 0);
    let mut vring = common::try_vring(&driver, 0).unwrap();
    driver
        .submit(&common::parts(&memory, 1, &[1], &[]))
        .unwrap();
    assert_eq!(
        vring.pop(&View::new(&memory), &mut Chain::default()),
        Ok(true)
    );
}

#[test]
#[should_panic(expected = "answered once")]
fn a_request_cannot_be_answered_twice() {
    let memory = common::memory(1 << 20);
    let mut driver = Driver::new(&memory, Options::new(Layout::Packed, 4));
    let mut vring = common::vring(&driver);
    driver
        .submit(&common::parts(&memory, 1, &[1], &[]))
        .unwrap();
    let mut chain = Chain::default();
    assert_eq!(vring.pop(&View::new(&memory), &mut chain), Ok(true));
    vring.push(chain.head, 0);
    vring.push(chain.head, 0);
}

/// A word of garbage, with small numbers and flags made likely.
fn any_half() -> impl Strategy<Value = u16> {
    prop_oneof![
        4 => 0u16..10,
        3 => proptest::bits::u16::masked(0x8087),
        1 => any::<u16>(),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    let address = prop_oneof![
        8 => Memory::START..Memory::START + (1 << 20),
        1 => any::<u64>(),
    ];
    let length = prop_oneof![
        4 => (1u32..20).prop_map(|count| 16 * count),
        4 => 0u32..5000,
        1 => any::<u32>(),
    ];
    (address, length, any::<bool>()).prop_map(|(address, length, writable)| Part {
        address,
        length,
        writable,
    })
}

/// Requests are brought near before their turn; a bad one behind good ones does them no harm.
#[test]
fn what_waits_behind_good_requests_is_judged_when_its_turn_has_come() {
    for good in [1, 2, 15, 16, 17, 40] {
        let memory = common::memory(1 << 20);
        let mut driver = Driver::new(&memory, Options::new(Layout::Split, 64));
        let mut vring = common::vring(&driver);
        let (view, mut chain) = (View::new(&memory), Chain::default());
        let address = memory.allocate(4096, 4096);
        for number in 0..good {
            let part = Part {
                address,
                length: 16 + number,
                writable: false,
            };
            let submitted = if number % 3 == 0 {
                driver.submit_indirect(&[part])
            } else {
                driver.submit(&[part])
            };
            assert!(submitted.is_some());
        }
        // Three more: tables nowhere and without their end, and a head that is none.
        for place in [u64::MAX - 7, address + 4096 - 8] {
            let part = Part {
                address: place,
                length: 16,
                writable: false,
            };
            driver.raw_descriptor(63, part, INDIRECT, u16::MAX);
        }
        let end = u16::try_from(good).unwrap();
        for (ahead, head) in [(0, 63), (1, u16::MAX), (2, 64)] {
            driver.raw_driver(2 + u64::from(end + ahead), head);
        }
        driver.raw_driver(1, end + 3);
        for number in 0..good {
            assert_eq!(vring.pop(&view, &mut chain), Ok(true), "{number} of {good}");
            assert_eq!(chain.readable_bytes, u64::from(16 + number));
        }
        let judged = vring.pop(&view, &mut chain);
        assert!(judged.is_err(), "{judged:?} behind {good}");
    }
}

proptest! {
    #![proptest_config(common::cases(1000))]

    /// Whatever the guest writes: requests in its own memory, or an error; always an end.
    #[test]
    fn garbage_breaks_the_ring_and_nothing_else(
        packed in any::<bool>(),
        size in 1u16..=8,
        turns in proptest::collection::vec(
            (
                proptest::collection::vec((0u16..8, any_part(), any_half(), any_half()), 0..8),
                proptest::collection::vec((0u64..10, any_half()), 0..4),
                any::<u8>(),
            ),
            1..12,
        ),
        tables in proptest::collection::vec((any_part(), any_half(), any_half()), 0..64),
    ) {
        let options = if packed {
            Options::new(Layout::Packed, size)
        } else {
            Options::new(Layout::Split, size.next_power_of_two())
        };
        let size = options.size;
        let memory = common::memory(1 << 20);
        let driver = Driver::new(&memory, options);
        let mut vring = common::vring(&driver);
        let view = View { memory: Arc::clone(&memory), piece: 4096 };
        let mut chain = Chain::default();
        for (index, (part, flags, link)) in (0u64..).zip(&tables) {
            let at = Memory::START + 4096 + 16 * index;
            memory.write(at, &part.address.to_le_bytes());
            memory.write(at + 8, &part.length.to_le_bytes());
            memory.write(at + 12, &flags.to_le_bytes());
            memory.write(at + 14, &link.to_le_bytes());
        }
        let mut taken = Vec::new();
        for (descriptors, words, choices) in turns {
            for (index, part, flags, link) in descriptors {
                driver.raw_descriptor(index % size, part, flags, link);
            }
            let halves = units::bytes_u64(driver.addresses().driver.1) / 2;
            for (word, value) in words {
                driver.raw_driver(word % halves, value);
            }
            for _ in 0..20 {
                match vring.pop(&view, &mut chain) {
                    Ok(true) => {
                        let segments = chain.readable.iter().chain(&chain.writable);
                        let bytes: usize = segments.map(|segment| segment.len()).sum();
                        let said = chain.readable_bytes + chain.writable_bytes;
                        prop_assert_eq!(units::bytes_u64(bytes), said);
                        prop_assert!(said <= CHAIN_BYTES_MAX + 4096);
                        prop_assert!(chain.head.id() < size);
                        prop_assert!(!taken.contains(&chain.head));
                        taken.push(chain.head);
                    }
                    Ok(false) | Err(_) => break,
                }
            }
            for _ in 0..choices % 4 {
                if let Some(head) = taken.pop() {
                    vring.push(head, 1);
                }
            }
            let _ = vring.publish();
            let _ = vring.enable_kicks();
            vring.disable_kicks();
        }
    }
}
