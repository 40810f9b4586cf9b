//! One queue, step by step: what a poll takes, and a stop before the queue has taken again what an
//! engine before had taken.

use std::os::fd::AsFd;
use std::sync::Arc;

use block::{Full, Request, Status};
use guest::{Driver, Memory, Options, Part};
use memory::{Mapping, Region, RegionTable};
use units::{BlockSize, Instant, bytes_u64};
use vhost_user_blk::{
    Access, CacheMode, Event, Events, Notice, Profile, Queue, QueueSetup, Shown, feature,
};
use virtqueue::{Features, Inflight, Layout, RingMemory, Vring};

const BYTES: usize = 2 << 20;
const SIZE: u16 = 64;

struct Machine {
    memory: Arc<Memory>,
    mapping: Arc<Mapping>,
    region: u64,
}

impl Machine {
    fn new(layout: Layout) -> Machine {
        let memory = Memory::new(BYTES).expect("good");
        let mapping = Mapping::new(memory.file().as_fd(), 0, bytes_u64(BYTES)).expect("good");
        let bytes = units::bytes_usize(Inflight::stride(layout, SIZE));
        Machine {
            region: memory.allocate(bytes, 64),
            memory: Arc::new(memory),
            mapping,
        }
    }

    fn found(&self, (address, length): (u64, usize)) -> memory::Segment {
        let offset = units::bytes_usize(address - Memory::START);
        self.mapping.segment().part(offset, length)
    }

    /// Makes a flush available.
    fn ask(&self, driver: &mut Driver) {
        let header = self.memory.allocate(17, 16);
        self.memory.write(header, &4_u32.to_le_bytes());
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let parts = [part(header, 16, false), part(header + 16, 1, true)];
        driver.submit(&parts).expect("the ring has room");
    }

    /// Makes a request of `kind` available that has so many descriptors, in a table, of one byte
    /// each beside its header.
    fn ask_in_pieces(&self, driver: &mut Driver, kind: u32, descriptors: usize) {
        let header = self.memory.allocate(17, 16);
        self.memory.write(header, &kind.to_le_bytes());
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let mut parts = vec![part(header, 16, false)];
        parts.resize(descriptors, part(header + 16, 1, true));
        driver.submit_indirect(&parts).expect("the ring has room");
    }

    /// An engine's queue; and how many requests it is to take again.
    fn queue(&self, layout: Layout, driver: &Driver, base: u32) -> (Queue, u16) {
        let addresses = driver.addresses();
        let ring = RingMemory {
            descriptors: self.found(addresses.descriptors),
            driver: self.found(addresses.driver),
            device: self.found(addresses.device),
        };
        let features = Features {
            event_idx: true,
            indirect: true,
        };
        let mut vring = Vring::new(layout, SIZE, ring, features, base).expect("good");
        let stride = units::bytes_usize(Inflight::stride(layout, SIZE));
        let region = self.found((self.region, stride));
        let inflight = Inflight::new(layout, SIZE, region, 0).expect("good");
        let again = vring.attach(inflight).expect("good");
        let region = Region {
            guest_base: Memory::START,
            front_end_base: Memory::START,
            length: bytes_u64(BYTES),
            mapping: Arc::clone(&self.mapping),
            offset: 0,
        };
        let queue = Queue::new(QueueSetup {
            vring,
            size: SIZE,
            kept: vec![Arc::clone(&self.mapping)],
            memory: RegionTable::new(vec![region]).expect("good"),
            events: Events::default(),
            shown: Arc::new(Shown::new(profile(), 1024)),
            features: feature::VERSION_1 | feature::FLUSH,
            notice: Arc::new(Notice::new(Event::new().expect("good"))),
        });
        (queue, again)
    }
}

fn profile() -> Profile {
    Profile {
        serial: [b'0'; 20],
        block: BlockSize::B512,
        logical_block: BlockSize::B512,
        physical_block_exponent: 0,
        minimum_io_blocks: 1,
        optimal_io_blocks: 8,
        queues: 1,
        queue_size: SIZE,
        cache: CacheMode::WriteBack,
        access: Access::ReadWrite,
        discard: None,
        write_zeroes: None,
    }
}

/// Polls, and takes at most so many requests.
fn poll(queue: &mut Queue, most: usize) -> Vec<u32> {
    let mut taken = Vec::new();
    queue.poll(Instant(0), &mut |request: Request| {
        if taken.len() == most {
            return Err(Full(request));
        }
        taken.push(u32::try_from(request.cookie.0).expect("good"));
        Ok(())
    });
    taken
}

fn driver(machine: &Machine, layout: Layout) -> Driver {
    let guests = match layout {
        Layout::Split => guest::Layout::Split,
        Layout::Packed => guest::Layout::Packed,
    };
    Driver::new(&machine.memory, Options::new(guests, SIZE))
}

/// Two requests outlive an engine, and a third comes. The next engine is asked to stop when it
/// has had room for so many.
fn stop_after(layout: Layout, most: usize) {
    let machine = Machine::new(layout);
    let mut driver = driver(&machine, layout);
    let base = driver.base();
    (0..2).for_each(|_| machine.ask(&mut driver));
    let (mut killed, _) = machine.queue(layout, &driver, base);
    assert_eq!(poll(&mut killed, 2).len(), 2);
    drop(killed);
    let (mut queue, again) = machine.queue(layout, &driver, base);
    assert_eq!(again, 2);
    machine.ask(&mut driver);
    let mut taken = if most > 0 {
        poll(&mut queue, most)
    } else {
        Vec::new()
    };
    queue.quiesce();
    assert!(!queue.is_drained(), "two requests were taken before");
    assert!(queue.enable_kicks(), "it may not sleep over them");
    taken.extend(poll(&mut queue, 3));
    assert_eq!(taken.len(), 2, "and the third is not");
    for slot in taken {
        queue.complete(slot, Status::Ok, Instant(0));
    }
    assert!(!queue.is_drained());
    queue.publish();
    assert!(queue.is_drained());
    let answered = std::iter::from_fn(|| driver.reap()).count();
    assert_eq!((answered, driver.in_flight()), (2, 1));
}

#[test]
fn a_stop_waits_for_what_an_engine_before_had_taken() {
    for layout in [Layout::Split, Layout::Packed] {
        for most in 0..2 {
            stop_after(layout, most);
        }
    }
}

#[test]
fn a_poll_takes_all_that_is_there() {
    for layout in [Layout::Split, Layout::Packed] {
        let machine = Machine::new(layout);
        let mut driver = driver(&machine, layout);
        let (mut queue, _) = machine.queue(layout, &driver, driver.base());
        // Two descriptors each: more requests than are brought near at once, and all that fit.
        for round in 0..3 {
            (0..SIZE / 2).for_each(|_| machine.ask(&mut driver));
            let taken = poll(&mut queue, usize::MAX);
            assert_eq!(taken.len(), usize::from(SIZE / 2), "round {round}");
            for slot in taken {
                queue.complete(slot, Status::Ok, Instant(0));
            }
            queue.publish();
            assert_eq!(std::iter::from_fn(|| driver.reap()).count(), 32);
        }
    }
}

/// Requests that need nothing of the volume are answered at once, and no limit of bytes counts
/// them: a ring of tables kept its reactor busy for milliseconds each turn.
#[test]
fn a_poll_takes_few_requests_of_many_descriptors() {
    const UNKNOWN: u32 = 99;
    const READ: u32 = 0;
    for layout in [Layout::Split, Layout::Packed] {
        // A read of one sector in so many pieces is for the volume.
        for (kind, descriptors) in [(UNKNOWN, 1000), (READ, 514)] {
            let machine = Machine::new(layout);
            let mut driver = driver(&machine, layout);
            let (mut queue, _) = machine.queue(layout, &driver, driver.base());
            (0..60).for_each(|_| machine.ask_in_pieces(&mut driver, kind, descriptors));
            let (mut taken, mut polls) = (0, 0);
            while taken < 60 {
                assert!(queue.wants_a_look(), "it may not sleep over the others");
                let mut submitted = Vec::new();
                let done = queue.poll(Instant(0), &mut |request: Request| {
                    submitted.push(u32::try_from(request.cookie.0).expect("good"));
                    Ok(())
                });
                assert!((1..=4).contains(&done), "{done} of {descriptors}");
                for slot in submitted {
                    queue.complete(slot, Status::Ok, Instant(0));
                }
                queue.publish();
                (taken, polls) = (taken + done, polls + 1);
            }
            assert_eq!(std::iter::from_fn(|| driver.reap()).count(), 60);
            assert!(polls >= 15 && !queue.wants_a_look());
        }
    }
}

#[test]
fn what_a_guest_adds_meanwhile_is_taken_by_the_next_poll() {
    let machine = Machine::new(Layout::Split);
    let mut driver = driver(&machine, Layout::Split);
    let (mut queue, _) = machine.queue(Layout::Split, &driver, driver.base());
    (0..2).for_each(|_| machine.ask(&mut driver));
    for taken_next in [2, 2, 2] {
        let mut taken = 0;
        queue.poll(Instant(0), &mut |_| {
            taken += 1;
            machine.ask(&mut driver);
            Ok(())
        });
        assert_eq!(
            taken, taken_next,
            "those of one look, not one after the other"
        );
        assert!(queue.wants_a_look(), "the others are seen");
    }
    assert_eq!(poll(&mut queue, usize::MAX).len(), 2);
    assert!(!queue.wants_a_look());
}
