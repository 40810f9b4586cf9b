//! Random long histories between the mock guest and the device: every request is taken once, in
//! order, with its bytes, and answered once. Nobody sleeps while the other waits.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::View;
use guest::{Driver, Layout, Options, Part, Token};
use proptest::prelude::*;
use virtqueue::{Chain, Head, Vring};

/// Requests of one guest and what has become of them.
struct World {
    driver: Driver,
    vring: Vring,
    view: View,
    chain: Chain,
    next_number: u64,
    /// Available and not taken, oldest first.
    waiting: VecDeque<u64>,
    /// Taken and not answered.
    taken: Vec<(Head, u64)>,
    /// Answered, in that order, with the bytes written.
    answered: VecDeque<(u64, u32)>,
    /// By token.
    in_flight: BTreeMap<Token, (u64, Vec<Part>)>,
}

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        readable: Vec<u32>,
        writable: Vec<u32>,
        table: bool,
    },
    Pop(u8),
    /// Answers as many, each chosen by a number.
    Push(Vec<u8>),
    Publish,
    Reap(u8),
}

impl World {
    fn new(options: Options, piece: u64) -> World {
        let memory = common::memory(16 << 20);
        let driver = Driver::new(&memory, options);
        let vring = common::vring(&driver);
        let view = View { memory, piece };
        World {
            driver,
            vring,
            view,
            chain: Chain::default(),
            next_number: 0,
            waiting: VecDeque::new(),
            taken: Vec::new(),
            answered: VecDeque::new(),
            in_flight: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Submit {
                readable,
                writable,
                table,
            } => self.submit(readable, writable, *table),
            Step::Pop(count) => {
                for _ in 0..*count {
                    self.pop();
                }
            }
            Step::Push(choices) => {
                for choice in choices {
                    self.push(usize::from(*choice));
                }
            }
            Step::Publish => {
                let _ = self.vring.publish();
            }
            Step::Reap(count) => {
                for _ in 0..*count {
                    self.reap();
                }
            }
        }
        assert_eq!(usize::from(self.vring.in_flight()), self.taken.len());
        assert_eq!(self.vring.waiting(), !self.waiting.is_empty());
    }

    fn submit(&mut self, readable: &[u32], writable: &[u32], table: bool) {
        let number = self.next_number;
        let parts = common::parts(&self.view.memory, number, readable, writable);
        let token = if table {
            // Tables need no alignment; neither do they lie in one piece of memory.
            let table = self.view.memory.allocate(16 * parts.len(), 1);
            self.driver.submit_table(table, &parts)
        } else {
            self.driver.submit(&parts)
        };
        if let Some(token) = token {
            self.next_number += 1;
            self.waiting.push_back(number);
            let old = self.in_flight.insert(token, (number, parts));
            assert!(old.is_none());
        }
    }

    fn pop(&mut self) -> bool {
        let popped = self
            .vring
            .pop(&self.view, &mut self.chain)
            .expect("the guest is honest");
        assert_eq!(popped, !self.waiting.is_empty());
        if let Some(number) = self.waiting.pop_front() {
            let head = self.chain.head;
            assert_eq!(self.in_flight[&Token(head.id())].0, number, "in order");
            assert!(!self.chain.again);
            let written = common::serve(&self.chain, number);
            assert_eq!(u64::from(written), self.chain.writable_bytes);
            self.taken.push((head, number));
        }
        popped
    }

    fn push(&mut self, choice: usize) {
        if self.taken.is_empty() {
            return;
        }
        let (head, number) = self.taken.swap_remove(choice % self.taken.len());
        let parts = &self.in_flight[&Token(head.id())].1;
        let written = parts
            .iter()
            .filter(|part| part.writable)
            .map(|part| part.length)
            .sum();
        self.vring.push(head, written);
        self.answered.push_back((number, written));
    }

    fn reap(&mut self) -> bool {
        let Some(used) = self.driver.reap() else {
            return false;
        };
        let (number, written) = self
            .answered
            .pop_front()
            .expect("nothing is used by itself");
        let (submitted, parts) = self.in_flight.remove(&used.token).expect("known");
        assert_eq!(
            (submitted, used.written),
            (number, written),
            "answers come in order"
        );
        assert!(common::is_answered(&self.view.memory, number, &parts));
        true
    }

    /// Brings everything to its end.
    fn finish(&mut self) {
        while self.pop() {}
        while !self.taken.is_empty() {
            self.push(0);
        }
        let _ = self.vring.publish();
        while self.reap() {}
        assert!(self.in_flight.is_empty() && self.answered.is_empty());
        assert_eq!(
            self.vring.base(),
            self.driver.base(),
            "both sides are at the same place"
        );
        assert!(!self.vring.waiting());
    }
}

fn any_options() -> impl Strategy<Value = Options> {
    let size = prop_oneof![1u16..=9, 1u16..=64, 1u16..=1024, Just(1024)];
    let start = prop_oneof![Just(0u16), 0u16..=40, 65_500u16..=65_535, any::<u16>()];
    (any::<bool>(), size, any::<bool>(), start).prop_map(|(packed, size, event_idx, start)| {
        Options {
            layout: if packed {
                Layout::Packed
            } else {
                Layout::Split
            },
            size: if packed {
                size
            } else {
                size.next_power_of_two()
            },
            event_idx,
            start,
        }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let lengths = || proptest::collection::vec(1u32..300, 0..5);
    prop_oneof![
        6 => (lengths(), lengths(), any::<bool>()).prop_map(|(readable, mut writable, table)| {
            if readable.is_empty() && writable.is_empty() {
                writable.push(1);
            }
            Step::Submit { readable, writable, table }
        }),
        2 => (1u8..6).prop_map(Step::Pop),
        3 => proptest::collection::vec(any::<u8>(), 1..6).prop_map(Step::Push),
        2 => Just(Step::Publish),
        2 => (1u8..8).prop_map(Step::Reap),
    ]
}

proptest! {
    #![proptest_config(common::cases(300))]

    #[test]
    fn everything_submitted_is_taken_once_and_answered_once(
        options in any_options(),
        piece in prop_oneof![Just(1u64 << 40), 8u64..200],
        steps in proptest::collection::vec(any_step(), 1..250),
    ) {
        let mut world = World::new(options, piece);
        for step in &steps {
            world.step(step);
        }
        world.finish();
    }

    /// Each side sleeps whenever the rules allow it, and is woken only as the rules say.
    #[test]
    fn nobody_sleeps_while_the_other_waits(
        options in any_options(),
        turns in proptest::collection::vec((any::<bool>(), 1u8..5, any::<u8>()), 1..200),
    ) {
        let mut world = World::new(options, 1 << 40);
        let mut sleep = Sleep::default();
        for (device, count, choice) in turns {
            if device {
                device_turn(&mut world, &mut sleep, count, choice);
            } else {
                driver_turn(&mut world, &mut sleep, count);
            }
        }
        // Now both only act when awake; all must come to its end all the same.
        for _ in 0..10_000 {
            if sleep.device && sleep.driver {
                break;
            }
            device_turn(&mut world, &mut sleep, 255, 0);
            sleep.submitting = false;
            driver_turn(&mut world, &mut sleep, 255);
        }
        prop_assert!(sleep.device && sleep.driver, "both come to rest");
        prop_assert!(world.in_flight.is_empty(), "a request was left while both slept");
    }
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "two sleepers, independent")]
struct Sleep {
    device: bool,
    driver: bool,
    /// The driver may wake up by itself, to submit.
    submitting: bool,
}

fn device_turn(world: &mut World, sleep: &mut Sleep, count: u8, choice: u8) {
    if sleep.device {
        return;
    }
    world.vring.disable_kicks();
    for _ in 0..count {
        world.pop();
    }
    for _ in 0..count {
        world.push(usize::from(choice));
    }
    if world.vring.publish() {
        sleep.driver = false;
    }
    // A device with work of its own in hand is polled until it is done.
    let busy = !world.taken.is_empty();
    sleep.device = !busy && !world.vring.enable_kicks();
}

fn driver_turn(world: &mut World, sleep: &mut Sleep, count: u8) {
    if sleep.driver && !sleep.submitting {
        sleep.submitting = true;
        return;
    }
    world.driver.disable_calls();
    if sleep.submitting {
        for _ in 0..count % 8 {
            world.submit(&[3], &[], count.is_multiple_of(2));
        }
    }
    for _ in 0..count {
        world.reap();
    }
    if world.driver.kick_wanted() {
        sleep.device = false;
    }
    sleep.driver = !world.driver.enable_calls();
    sleep.submitting = true;
}

#[test]
fn both_indices_of_a_split_ring_wrap_at_16_bits() {
    let mut world = World::new(
        Options {
            start: 65_530,
            ..Options::new(Layout::Split, 8)
        },
        1 << 40,
    );
    for turn in 0..200usize {
        world.submit(&[1], &[1], false);
        world.submit(&[1, 2], &[], false);
        while world.pop() {}
        world.push(turn);
        world.push(0);
        let _ = world.vring.publish();
        while world.reap() {}
    }
    world.finish();
}

#[test]
fn a_full_ring_of_any_size_is_emptied_in_one_batch() {
    let sizes = [1u16, 2, 3, 5, 64, 127, 256, 1023, 1024];
    for (layout, size) in sizes
        .iter()
        .flat_map(|&size| [(Layout::Split, size), (Layout::Packed, size)])
    {
        if layout == Layout::Split && !size.is_power_of_two() {
            continue;
        }
        let mut world = World::new(Options::new(layout, size), 1 << 40);
        for _ in 0..3 {
            for _ in 0..size {
                world.submit(&[1], &[], false);
            }
            assert_eq!(world.driver.in_flight(), usize::from(size));
            while world.pop() {}
            assert_eq!(world.vring.in_flight(), size);
            while !world.taken.is_empty() {
                world.push(1);
            }
            assert!(
                world.vring.publish(),
                "{layout:?} {size}: the guest asked for a call"
            );
            while world.reap() {}
            let _ = world.driver.enable_calls();
        }
        world.finish();
    }
}

/// A world in which `count` requests are answered and published in one batch.
fn publish(world: &mut World, count: usize) -> bool {
    for _ in 0..count {
        world.submit(&[1], &[], false);
        assert!(world.pop());
        world.push(0);
    }
    let call = world.vring.publish();
    while world.reap() {}
    call
}

#[test]
fn the_guest_is_called_when_it_asks_and_only_then() {
    for (layout, event_idx) in [
        (Layout::Split, false),
        (Layout::Split, true),
        (Layout::Packed, false),
        (Layout::Packed, true),
    ] {
        let options = Options {
            event_idx,
            ..Options::new(layout, 8)
        };
        let mut world = World::new(options, 1 << 40);
        let what = format!("{layout:?}, event index {event_idx}");
        assert!(publish(&mut world, 1), "{what}: it asks to begin with");
        for turn in 0..50 {
            assert!(!world.driver.enable_calls());
            assert!(publish(&mut world, 1 + turn % 3), "{what}: it asked");
            assert!(!world.vring.publish(), "{what}: nothing is new");
            if event_idx {
                assert!(
                    !publish(&mut world, 2),
                    "{what}: the place it asked for is past"
                );
            }
            world.driver.disable_calls();
            assert!(!publish(&mut world, 1), "{what}: it asked for silence");
        }
    }
}

#[test]
fn the_device_is_kicked_when_it_asks_and_only_then() {
    for (layout, event_idx) in [
        (Layout::Split, false),
        (Layout::Split, true),
        (Layout::Packed, false),
        (Layout::Packed, true),
    ] {
        let options = Options {
            event_idx,
            ..Options::new(layout, 8)
        };
        let mut world = World::new(options, 1 << 40);
        let what = format!("{layout:?}, event index {event_idx}");
        for _ in 0..50 {
            let _ = publish(&mut world, 3);
            world.driver.kick_wanted();

            assert!(!world.vring.enable_kicks(), "{what}: nothing is there");
            world.submit(&[1], &[], false);
            assert!(world.driver.kick_wanted(), "{what}: it asked");
            assert!(world.vring.enable_kicks(), "{what}: that one is there");
            assert!(world.pop());

            world.vring.disable_kicks();
            world.submit(&[1], &[], false);
            assert!(!world.driver.kick_wanted(), "{what}: it is awake");
            assert!(world.pop());
            world.push(0);
            world.push(0);
            let _ = world.vring.publish();
            while world.reap() {}
        }
    }
}
