//! Rings and their guests on a reactor's core that a test turns.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use array::format::{ExtentRun, ExtentSpace, VolumeRecord, VolumeState};
use array::{Geometry, GeometryParameters, Level};
use block::Full;
use drive::{Port, PortOptions};
use guest::{Driver, Layout, Memory, Options, Part};
use memory::{Mapping, Region, RegionTable};
use queues::mesh;
use reactor::{Core as _, EventFd};
use units::{ArrayIndex, BlockSize, Clock, MonotonicClock};
use uuid::Uuid;
use vhost_user_blk::{
    Access, CacheMode, Event, Events, Notice, Profile, Queue, QueueKey, QueueSetup, Shown, feature,
};
use virtqueue::{Features, RingMemory, Vring};
use volume::{Limiter, VolumeMap};

use super::super::times::Spent;
use super::super::{Core, Leaving, Ring, Stopped};
use super::{Attention, BUSY_TURNS_A_LOOK, token_of};
use crate::lines::Wait;

const SIZE: u16 = 16;
const BYTES: usize = 1 << 16;
const SHORT: Option<Duration> = Some(Duration::from_millis(2));
/// For a sleep that something else has to end.
const LONG: Option<Duration> = Some(Duration::from_secs(5));

/// A guest with one ring.
struct Guest {
    memory: Arc<Memory>,
    driver: Driver,
    kick: Event,
}

impl Guest {
    fn new() -> Guest {
        let memory = Arc::new(Memory::new(BYTES).expect("memory"));
        Guest {
            driver: Driver::new(&memory, Options::new(Layout::Split, SIZE)),
            memory,
            kick: Event::new().expect("an event"),
        }
    }

    /// Makes a read of 512 bytes available. Whether it has to kick for that.
    fn ask(&mut self) -> bool {
        self.ask_for(0)
    }

    /// The same with a read (0) or a write (1).
    fn ask_for(&mut self, operation: u8) -> bool {
        let header = self.memory.allocate(16, 16);
        self.memory.write(header, &[0; 16]);
        self.memory.write(header, &[operation]);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let data = self.memory.allocate(513, 512);
        let status = self.memory.allocate(1, 1);
        let parts = if operation == 0 {
            vec![part(header, 16, false), part(data, 513, true)]
        } else {
            let status = part(status, 1, true);
            vec![part(header, 16, false), part(data, 512, false), status]
        };
        self.driver.submit(&parts).expect("room");
        self.driver.kick_wanted()
    }

    fn queue(&self, flushes: bool) -> Queue {
        let length = units::bytes_u64(BYTES);
        let mapping = Mapping::new(self.memory.file().as_fd(), 0, length).expect("mapped");
        let region = Region {
            guest_base: Memory::START,
            front_end_base: Memory::START,
            length,
            mapping: Arc::clone(&mapping),
            offset: 0,
        };
        let table = RegionTable::new(vec![region]).expect("one region");
        let addresses = self.driver.addresses();
        let part = |(address, length): (u64, usize)| {
            let part = table.front_end(address, units::bytes_u64(length));
            part.expect("inside")
        };
        let ring = RingMemory {
            descriptors: part(addresses.descriptors),
            driver: part(addresses.driver),
            device: part(addresses.device),
        };
        let features = Features {
            event_idx: true,
            indirect: true,
        };
        let vring = Vring::new(virtqueue::Layout::Split, SIZE, ring, features, 0);
        let profile = Profile {
            serial: [b'0'; 20],
            block: BlockSize::B512,
            logical_block: BlockSize::B512,
            physical_block_exponent: 3,
            minimum_io_blocks: 128,
            optimal_io_blocks: 512,
            queues: 1,
            queue_size: SIZE,
            cache: CacheMode::WriteBack,
            access: Access::ReadWrite,
            discard: None,
            write_zeroes: None,
        };
        Queue::new(QueueSetup {
            vring: vring.expect("a good ring"),
            size: SIZE,
            kept: vec![mapping],
            memory: table,
            events: Events {
                kick: Some(self.kick.clone()),
                ..Events::default()
            },
            shown: Arc::new(Shown::new(profile, 1 << 16)),
            features: feature::VERSION_1
                | feature::EVENT_IDX
                | if flushes { feature::FLUSH } else { 0 },
            notice: Arc::new(Notice::new(Event::new().expect("an event"))),
        })
    }
}

fn volume() -> Arc<VolumeMap> {
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 3,
        parity: None,
        group_size: None,
        chunk_bytes: 4096,
        block: BlockSize::B512,
        member_data_blocks: 512,
    });
    let space = ExtentSpace::with_stripes(&geometry.expect("a shape"), 8).expect("extents");
    let record = VolumeRecord {
        uuid: Uuid::from_u128(1),
        name: "v".to_owned(),
        size_blocks: space.extent_blocks(),
        extents: vec![ExtentRun { first: 0, count: 1 }],
        state: VolumeState::Ready,
        stable_buffers: false,
    };
    Arc::new(VolumeMap::new(&record, &space).expect("ready"))
}

fn key(index: u16) -> QueueKey {
    QueueKey {
        front_end: 0,
        index,
    }
}

/// A reactor's core without arrays, so that what is in rings stays there, and the rings' guests.
fn core<const N: usize>() -> (Core, [Guest; N]) {
    let wake = Arc::new(EventFd::new().expect("an event"));
    let port = Port::new(PortOptions::default()).expect("io_uring");
    let post = mesh(vec![wake.clone()], 16).remove(0);
    let mut core = Core::new(port, post, wake, channel().0, Vec::new());
    let guests = std::array::from_fn(|_| Guest::new());
    for (index, guest) in (0..).zip(&guests) {
        core.add_ring(ring(guest, index));
    }
    (core, guests)
}

fn ring(guest: &Guest, index: u16) -> Ring {
    ring_of(guest.queue(true), index)
}

fn ring_of(queue: Queue, index: u16) -> Ring {
    let which = ((1, [0; 16]), key(index));
    let place = (ArrayIndex(0), volume());
    let shared = (Arc::new(Limiter::default()), Arc::default());
    Ring::new(which, queue, place, shared)
}

/// Takes the one request that is in a ring. Its slot.
fn take(core: &mut Core, place: usize) -> u32 {
    let ring = core.rings[place].as_mut().expect("it is there");
    let mut taken = Vec::new();
    let submitted = ring.queue.poll(MonotonicClock.now(), &mut |request| {
        taken.push(request.cookie.0);
        Ok(())
    });
    assert_eq!((submitted, ring.queue.pending()), (1, 1));
    u32::try_from(taken[0]).expect("a slot")
}

fn complete(core: &mut Core, place: usize, slot: u32) {
    let ring = core.rings[place].as_mut().expect("it is there");
    let now = MonotonicClock.now();
    ring.queue.complete(slot, block::Status::Ok, now);
}

/// What a reactor's loop does when there is nothing to do.
fn sleep(core: &mut Core, limit: Option<Duration>) -> bool {
    core.turn(MonotonicClock.now());
    let ready = core.prepare_sleep();
    if ready {
        core.sleep(limit);
    }
    core.woken();
    ready
}

fn attention(core: &Core, place: usize) -> Attention {
    let ring = core.rings[place].as_ref().expect("it is there");
    let awake = core.awake.contains(&place);
    assert_eq!(awake, ring.attention != Attention::Asleep, "{place}");
    ring.attention
}

/// Turns until the ring is awake.
fn turn_until_awake(core: &mut Core, place: usize) {
    let begun = MonotonicClock.now();
    while attention(core, place) == Attention::Asleep {
        core.turn(MonotonicClock.now());
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < Duration::from_secs(60), "its kick is lost");
    }
}

#[test]
fn rings_sleep_after_their_reactor_has_slept_and_only_the_kicked_one_wakes() {
    let (mut core, mut guests) = core::<3>();
    assert!(sleep(&mut core, SHORT));
    for (place, guest) in guests.iter_mut().enumerate() {
        assert_eq!(attention(&core, place), Attention::Asleep);
        guest.kick.signal();
        // Without a limit: were the kick lost, this would hang.
        assert!(sleep(&mut core, None));
        assert_eq!(core.awake, [place]);
        assert_eq!(attention(&core, place), Attention::Kicked);
        let ring = core.rings[place].as_ref().expect("it is there");
        assert_eq!(ring.queue.counters().kicks, 1);
        assert!(sleep(&mut core, SHORT), "the kick was taken");
        assert!(core.awake.is_empty());
    }
}

#[test]
fn a_ring_that_sleeps_is_woken_by_its_kick_while_the_reactor_runs() {
    let (mut core, guests) = core::<2>();
    assert!(sleep(&mut core, SHORT));
    // There is no request, so nothing but the kick tells.
    guests[1].kick.signal();
    turn_until_awake(&mut core, 1);
    assert_eq!(attention(&core, 1), Attention::Kicked);
    assert_eq!(attention(&core, 0), Attention::Asleep);
    // It is watched again from the next sleep on.
    assert!(sleep(&mut core, SHORT));
    assert_eq!(attention(&core, 1), Attention::Asleep);
    guests[1].kick.signal();
    assert!(sleep(&mut core, None));
    assert_eq!(attention(&core, 1), Attention::Kicked);
}

#[test]
fn a_ring_that_sleeps_has_asked_for_a_kick_and_one_that_is_awake_has_not() {
    let (mut core, mut guests) = core::<2>();
    core.turn(MonotonicClock.now());
    assert!(core.prepare_sleep());
    core.woken();
    assert_eq!(
        [0, 1].map(|place| attention(&core, place)),
        [Attention::Watched; 2],
        "nobody slept, so no kick was watched"
    );
    assert!(sleep(&mut core, SHORT));
    assert!(guests[0].ask(), "it sleeps");
    assert!(!guests[0].ask(), "it was asked for one kick");
    guests[0].kick.signal();
    turn_until_awake(&mut core, 0);
    assert!(!sleep(&mut core, None), "there is something to do");
    assert_eq!(core.awake, [0]);
    assert!(!guests[0].ask(), "it is looked at anyway");
    assert!(guests[1].ask(), "the other sleeps on");
}

#[test]
fn what_comes_while_a_reactor_goes_to_sleep_is_seen() {
    let (mut core, mut guests) = core::<2>();
    core.turn(MonotonicClock.now());
    // Before the guest was asked for a kick.
    assert!(!guests[0].ask() || guests[0].driver.in_flight() == 1);
    assert!(!core.prepare_sleep(), "there is a request");
    core.woken();
    assert_eq!(attention(&core, 0), Attention::Watched);

    // Between that and the sleep.
    let (mut core, mut guests) = self::core::<2>();
    core.turn(MonotonicClock.now());
    assert!(core.prepare_sleep());
    assert!(guests[1].ask(), "it was asked for");
    guests[1].kick.signal();
    core.sleep(None);
    core.woken();
    assert_eq!(core.awake, [1]);
}

#[test]
fn a_ring_of_which_something_is_under_way_does_not_sleep() {
    let (mut core, mut guests) = core::<2>();
    guests[0].ask();
    let slot = take(&mut core, 0);
    assert!(sleep(&mut core, SHORT), "drives wake the reactor");
    assert_eq!(core.awake, [0]);
    complete(&mut core, 0, slot);
    assert!(sleep(&mut core, SHORT));
    assert!(core.awake.is_empty(), "all is answered");
    assert!(guests[0].driver.reap().is_some());
}

/// What the ring has for its array finds no room there.
fn turn_away(core: &mut Core, place: usize) {
    let ring = core.rings[place].as_mut().expect("it is there");
    let submitted = ring
        .queue
        .poll(MonotonicClock.now(), &mut |request| Err(Full(request)));
    assert_eq!(submitted, 0);
    ring.waits_for = Some(Wait::ForRoom);
}

#[test]
fn a_reactor_sleeps_while_a_ring_waits_for_room_and_looks_at_it_then() {
    let (mut core, mut guests) = core::<1>();
    guests[0].ask();
    turn_away(&mut core, 0);
    assert!(sleep(&mut core, SHORT));
    assert_eq!(core.awake, [0], "it is looked at when the reactor is woken");
    // The next finds room, and nothing is left to wait for.
    let slot = take(&mut core, 0);
    complete(&mut core, 0, slot);
    assert!(sleep(&mut core, SHORT));
    assert!(core.awake.is_empty());

    // The flush that follows a write, of a guest that does not flush.
    let (mut core, _) = self::core::<0>();
    let mut guest = Guest::new();
    core.add_ring(ring_of(guest.queue(false), 0));
    guest.ask_for(1);
    let slot = take(&mut core, 0);
    complete(&mut core, 0, slot);
    assert!(!sleep(&mut core, SHORT), "it was not tried yet");
    turn_away(&mut core, 0);
    assert!(sleep(&mut core, SHORT));
    assert_eq!(core.awake, [0]);
}

#[test]
fn a_request_without_a_kick_is_found_in_the_end_also_on_a_ring_that_sleeps() {
    let (mut core, mut guests) = core::<3>();
    assert!(sleep(&mut core, SHORT));
    assert!(guests[2].ask(), "which it then forgets");
    for _ in 0..3 {
        core.turn(MonotonicClock.now());
    }
    assert_eq!(core.awake, [2]);
}

#[test]
fn a_ring_that_was_found_to_sleep_too_long_has_its_turn_at_once() {
    let (mut core, mut guests) = core::<2>();
    assert!(sleep(&mut core, SHORT));
    guests[0].kick.signal();
    turn_until_awake(&mut core, 0);
    assert!(guests[1].ask(), "which it then forgets");
    while attention(&core, 1) == Attention::Asleep {
        assert_eq!(core.first_awake, 0, "there is one");
        core.turn(MonotonicClock.now());
    }
    assert_eq!(core.first_awake, 1, "there were two in this turn");
}

#[test]
fn turns_with_work_look_at_rings_that_sleep_now_and_then() {
    let (mut core, mut guests) = core::<1>();
    assert!(sleep(&mut core, SHORT));
    assert!(guests[0].ask(), "which it then forgets");
    core.turns = 0;
    for _ in 1..BUSY_TURNS_A_LOOK {
        core.times.last = Spent::Busy;
        core.turn(MonotonicClock.now());
        assert_eq!(attention(&core, 0), Attention::Asleep);
    }
    core.times.last = Spent::Busy;
    core.turn(MonotonicClock.now());
    assert_eq!(attention(&core, 0), Attention::Watched);
}

#[test]
fn a_ring_that_changes_or_ends_is_awake_and_its_new_kick_is_watched() {
    let (mut core, guests) = core::<2>();
    assert!(sleep(&mut core, SHORT));
    let other = Event::new().expect("an event");
    let new = other.clone();
    core.with_ring(1, key(1), |queue| queue.set_kick(Some(new)));
    assert_eq!(attention(&core, 1), Attention::Polled);
    assert!(sleep(&mut core, SHORT));
    guests[1].kick.signal();
    core.turn(MonotonicClock.now());
    core.turn(MonotonicClock.now());
    assert!(core.awake.is_empty(), "nobody watches the old one");
    other.signal();
    assert!(sleep(&mut core, None));
    assert_eq!(core.awake, [1]);

    let (sender, stopped) = channel();
    core.stop_ring(1, key(0), (sender, Leaving::Ends));
    assert!(stopped.try_recv().is_err());
    core.turn(MonotonicClock.now());
    assert!(stopped.try_recv().is_ok(), "nothing of it was under way");
    assert_eq!(core.awake, [1]);
    assert!(core.rings[0].is_none());
}

#[test]
fn a_ring_that_left_after_its_reactor_slept_is_not_watched_any_more() {
    for leaving in [Leaving::Moves, Leaving::Ends] {
        let (mut core, mut guests) = core::<2>();
        guests[0].ask();
        let slot = take(&mut core, 0);
        let (sender, stopped) = channel();
        core.stop_ring(1, key(0), (sender, leaving));
        assert!(sleep(&mut core, SHORT), "drives wake the reactor");
        assert!(stopped.try_recv().is_err());
        complete(&mut core, 0, slot);
        core.turn(MonotonicClock.now());
        let stopped = stopped.try_recv().expect("it is drained");
        assert_eq!(
            matches!(stopped, Stopped::Moved(_)),
            leaving == Leaving::Moves
        );

        guests[0].kick.signal();
        core.port.wait(SHORT);
        let mut fired = Vec::new();
        core.port.fired(&mut fired);
        assert_eq!(fired, [0; 0], "nobody asked for it");

        // Nor does it get in the way of the ring that takes its place.
        let next = Guest::new();
        core.add_ring(ring(&next, 0));
        core.turn(MonotonicClock.now());
        assert!(sleep(&mut core, SHORT));
        assert_eq!(attention(&core, 0), Attention::Asleep);
        next.kick.signal();
        assert!(sleep(&mut core, LONG));
        assert_eq!(core.awake, [0]);
    }
}

#[test]
fn a_ring_that_ends_is_not_moved_and_its_end_is_told() {
    let (mut core, mut guests) = core::<1>();
    guests[0].ask();
    let slot = take(&mut core, 0);
    let (sender, ended) = channel();
    core.stop_ring(1, key(0), (sender, Leaving::Ends));
    let (sender, moved) = channel();
    core.stop_ring(1, key(0), (sender, Leaving::Moves));
    assert_eq!(moved.try_recv().err(), Some(TryRecvError::Disconnected));
    core.stay(1, key(0));
    complete(&mut core, 0, slot);
    core.turn(MonotonicClock.now());
    assert!(matches!(ended.try_recv(), Ok(Stopped::Ended(_))));
}

#[test]
fn what_the_port_tells_of_a_kick_that_it_does_not_know_is_not_believed() {
    let (mut core, guests) = core::<1>();
    let earlier = Event::new().expect("an event");
    core.port.watch(earlier.as_fd().as_raw_fd(), token_of(0));
    earlier.signal();
    core.port.wait(LONG);
    assert!(earlier.clear());
    core.turn(MonotonicClock.now());
    assert!(sleep(&mut core, SHORT));
    assert_eq!(attention(&core, 0), Attention::Asleep);
    guests[0].kick.signal();
    assert!(sleep(&mut core, LONG));
    assert_eq!(core.awake, [0], "its own kick is watched");

    // Nor that it cannot be watched.
    let (mut core, _guests) = self::core::<1>();
    core.port.watch(-1, token_of(0));
    core.port.wait(LONG);
    core.turn(MonotonicClock.now());
    assert_eq!(attention(&core, 0), Attention::Polled);
}

#[test]
fn a_ring_whose_kick_cannot_be_watched_stays_awake_and_so_does_its_reactor() {
    let (mut core, _guests) = core::<2>();
    assert!(sleep(&mut core, SHORT));
    core.attend(0, Attention::Unwatchable);
    for _ in 0..2 {
        assert!(!sleep(&mut core, SHORT), "nothing would tell of a request");
        assert_eq!(core.awake, [0]);
    }

    // Another kick may be watched.
    let (mut core, _guests) = self::core::<1>();
    core.attend(0, Attention::Unwatchable);
    let other = Event::new().expect("an event");
    core.with_ring(1, key(0), |queue| queue.set_kick(Some(other)));
    assert!(sleep(&mut core, SHORT));
    assert!(core.awake.is_empty());
}
