//! A second opinion on split rings: rust-vmm's `virtio-queue` plays the same histories.

mod common;

use std::sync::Arc;

use common::View;
use guest::{Driver, Layout, Memory, Options, Part};
use proptest::prelude::*;
use virtio_queue::{Queue, QueueT};
use virtqueue::{Chain, Head, Vring};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

const BYTES: usize = 4 << 20;

/// The same guest twice: one served by us, one by the other.
struct Twins {
    ours: Driver,
    theirs: Driver,
    vring: Vring,
    view: View,
    chain: Chain,
    queue: Queue,
    mapped: GuestMemoryMmap<()>,
    taken: Vec<(Head, u16)>,
    pushed: usize,
    ever_published: bool,
}

fn driver(options: Options) -> Driver {
    let memory = Arc::new(Memory::new(BYTES).expect("a memory file"));
    Driver::new(&memory, options)
}

impl Twins {
    fn new(options: Options) -> Twins {
        let (ours, theirs) = (driver(options), driver(options));
        let file = theirs.memory().file().try_clone().expect("a file");
        let range = (
            GuestAddress(Memory::START),
            BYTES,
            Some(FileOffset::new(file, 0)),
        );
        let mapped = GuestMemoryMmap::from_ranges_with_files([range]).expect("mapped");
        let addresses = theirs.addresses();
        let mut queue = Queue::new(options.size).expect("a queue");
        let halves = |address: u64| {
            let [a, b, c, d, e, f, g, h] = address.to_le_bytes();
            let low = u32::from_le_bytes([a, b, c, d]);
            (Some(low), Some(u32::from_le_bytes([e, f, g, h])))
        };
        let (low, high) = halves(addresses.descriptors.0);
        queue.set_desc_table_address(low, high);
        let (low, high) = halves(addresses.driver.0);
        queue.set_avail_ring_address(low, high);
        let (low, high) = halves(addresses.device.0);
        queue.set_used_ring_address(low, high);
        queue.set_event_idx(options.event_idx);
        queue.set_next_avail(options.start);
        queue.set_next_used(options.start);
        queue.set_ready(true);
        // Ours asks for kicks when it begins, also where an engine before it had not.
        let there = queue.enable_notification(&mapped);
        assert!(!there.expect("in memory"));
        Twins {
            vring: common::vring(&ours),
            view: View::new(ours.memory()),
            chain: Chain::default(),
            ours,
            theirs,
            queue,
            mapped,
            taken: Vec::new(),
            pushed: 0,
            ever_published: false,
        }
    }

    fn submit(&mut self, number: u64, readable: &[u32], writable: &[u32], table: bool) {
        for driver in [&mut self.ours, &mut self.theirs] {
            let parts = common::parts(driver.memory(), number, readable, writable);
            let _ = if table {
                driver.submit_indirect(&parts)
            } else {
                driver.submit(&parts)
            };
        }
        assert_eq!(
            self.ours.kick_wanted(),
            self.theirs.kick_wanted(),
            "same wish for kicks"
        );
    }

    /// The chain as the other sees it.
    fn pop_theirs(&mut self) -> Option<(u16, Vec<Part>)> {
        let chain = self.queue.pop_descriptor_chain(&self.mapped)?;
        let head = chain.head_index();
        let parts = chain.map(|descriptor| Part {
            address: descriptor.addr().0,
            length: descriptor.len(),
            writable: descriptor.is_write_only(),
        });
        Some((head, parts.collect()))
    }

    fn pop(&mut self) -> bool {
        let popped = self
            .vring
            .pop(&self.view, &mut self.chain)
            .expect("an honest guest");
        let theirs = self.pop_theirs();
        assert_eq!(popped, theirs.is_some());
        let Some((head, parts)) = theirs else {
            return false;
        };
        assert_eq!(self.chain.head.id(), head);
        let start = self.view.memory.segment().address().addr();
        let place = |segment: &memory::Segment, writable| Part {
            address: units::bytes_u64(segment.address().addr() - start) + Memory::START,
            length: u32::try_from(segment.len()).expect("small"),
            writable,
        };
        let ours: Vec<Part> = (self.chain.readable.iter().map(|one| place(one, false)))
            .chain(self.chain.writable.iter().map(|one| place(one, true)))
            .collect();
        assert_eq!(ours, parts);
        self.taken.push((self.chain.head, head));
        true
    }

    fn push(&mut self, choice: usize, written: u32) {
        if !self.taken.is_empty() {
            let (ours, theirs) = self.taken.swap_remove(choice % self.taken.len());
            self.vring.push(ours, written);
            self.queue
                .add_used(&self.mapped, theirs, written)
                .expect("in memory");
            self.pushed += 1;
        }
    }

    fn publish(&mut self) {
        let call = self.vring.publish();
        if self.pushed > 0 {
            let theirs = self
                .queue
                .needs_notification(&self.mapped)
                .expect("in memory");
            // The other always calls the first time, and without the event index; we only when a
            // ring has a history, and as the guest's flags say.
            let comparable = self.ever_published && self.ours.options().event_idx;
            assert!(!comparable || call == theirs, "{call} and {theirs}");
            self.ever_published = true;
        }
        self.pushed = 0;
        let (used, length) = self.ours.addresses().device;
        let mut bytes = vec![0; length];
        self.mapped
            .read_slice(&mut bytes, GuestAddress(used))
            .expect("in memory");
        assert_eq!(
            self.view.memory.read(used, length),
            bytes,
            "the same used ring"
        );
    }

    fn reap(&mut self) {
        assert_eq!(self.ours.reap(), self.theirs.reap());
    }
}

proptest! {
    #![proptest_config(common::cases(200))]

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn both_devices_do_the_same(
        shift in 0u32..=10,
        event_idx in any::<bool>(),
        start in prop_oneof![Just(0u16), 65_500u16..=65_535],
        steps in proptest::collection::vec((0u8..10, any::<u8>(), any::<u8>()), 1..200),
    ) {
        let options = Options {
            layout: Layout::Split,
            size: 1 << shift,
            event_idx,
            start,
        };
        let mut twins = Twins::new(options);
        for (number, (step, first, second)) in (0u64..).zip(steps) {
            let lengths = |seed: u8| vec![u32::from(seed) + 1; usize::from(seed % 4)];
            match step {
                0..=3 => {
                    let mut readable = lengths(first);
                    readable.push(16);
                    twins.submit(number, &readable, &lengths(second), first > 128);
                }
                4 => while twins.pop() {},
                5 | 6 => {
                    twins.pop();
                    twins.push(usize::from(first), u32::from(second));
                    twins.push(usize::from(second), 0);
                }
                7 => twins.publish(),
                8 => {
                    twins.publish();
                    twins.reap();
                    twins.reap();
                }
                _ => {
                    let ours = if first > 99 {
                        twins.ours.enable_calls()
                    } else {
                        twins.ours.disable_calls();
                        false
                    };
                    let theirs = if first > 99 {
                        twins.theirs.enable_calls()
                    } else {
                        twins.theirs.disable_calls();
                        false
                    };
                    // The other publishes each answer at once, so only what is published is equal.
                    prop_assert!(theirs || !ours);
                    if second > 99 {
                        let theirs = twins.queue.enable_notification(&twins.mapped).expect("in memory");
                        prop_assert_eq!(twins.vring.enable_kicks(), theirs);
                    } else {
                        twins.queue.disable_notification(&twins.mapped).expect("in memory");
                        twins.vring.disable_kicks();
                    }
                }
            }
        }
        twins.publish();
    }
}
