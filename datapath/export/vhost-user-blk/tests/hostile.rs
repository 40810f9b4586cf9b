//! Front-ends and guests that break the rules. Each breaks what is its own, and nothing else.
#![allow(
    clippy::unwrap_used,
    reason = "a test program; clippy takes only #[test] functions for tests"
)]

mod common;

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use block::Operation;
use common::machine::{ALL_FEATURES, ALL_PROTOCOL, Guest, IN, Kind, OK, OUT, pattern};
use common::{Engine, Mode, SECTORS, TestHost, Volume, place, profile, settings};
use guest::front_end::{FrontEnd, message, message as messages, state};
use guest::{Layout, Memory, Part};
use memory::RegionTable;
use vhost_user_blk::{
    Broken, Event, Host, MemoryChange, Queue, QueueKey, Session, SessionEvent, Sharing, feature,
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const LAYOUTS: [Layout; 2] = [Layout::Split, Layout::Packed];

fn broken(engine: &Engine, index: u16) -> Broken {
    let event = engine.host.wait_event(
        |event| matches!(event, SessionEvent::QueueBroken { key, .. } if key.index == index),
    );
    let SessionEvent::QueueBroken { why, .. } = event else {
        unreachable!("just matched")
    };
    why
}

/// A front-end that has negotiated everything.
fn front_end(engine: &Engine) -> FrontEnd {
    let mut front_end = FrontEnd::connect(&engine.path).unwrap();
    front_end.negotiate(ALL_FEATURES, ALL_PROTOCOL).unwrap();
    front_end
}

fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// What comes with a wrong message.
#[derive(Clone, Copy)]
enum With {
    Nothing,
    Memory,
    Event,
    File,
    Two,
    Forty,
}

type Wrong = (&'static str, Vec<u8>, With);

fn say(number: u32, payload: &[u8]) -> Vec<u8> {
    message(number, 1, payload)
}

/// Longer than one header where descriptors are too many: the `vhost` crate drops the header then
/// and goes on reading.
fn wrong_headers() -> Vec<Wrong> {
    let endless = [message(1, 1, &[])[..8].to_vec(), vec![0xFF; 4]].concat();
    let log = words(&[4096, 0]);
    vec![
        ("noise", vec![0xFF; 64], With::Nothing),
        ("zeroes", vec![0; 64], With::Nothing),
        ("version 2", message(1, 2, &[]), With::Nothing),
        ("too long", endless, With::Nothing),
        ("unknown", say(200, &[]), With::Nothing),
        ("status", say(messages::GET_STATUS, &[]), With::Nothing),
        ("log", say(messages::SET_LOG_BASE, &log), With::Memory),
        ("short", say(messages::SET_FEATURES, &[0; 7]), With::Nothing),
        ("files", say(messages::GET_FEATURES, &[]), With::Two),
        (
            "40 files",
            say(messages::SET_MEM_TABLE, &[1; 40]),
            With::Forty,
        ),
        (
            "config",
            say(messages::SET_CONFIG, &[0xFF; 16]),
            With::Nothing,
        ),
    ]
}

fn wrong_features() -> Vec<Wrong> {
    let log = words(&[1 << 26]);
    let status = words(&[1 << 16]);
    let channel = say(messages::SET_BACKEND_REQ_FD, &[]);
    vec![
        ("log", say(messages::SET_FEATURES, &log), With::Nothing),
        (
            "status",
            say(messages::SET_PROTOCOL_FEATURES, &status),
            With::Nothing,
        ),
        ("a channel that is a file", channel.clone(), With::File),
        ("a channel that is missing", channel, With::Nothing),
    ]
}

fn wrong_memory() -> Vec<Wrong> {
    let far = u64::MAX - 4095;
    let add = |of: [u64; 4]| say(messages::ADD_MEM_REG, &[vec![0; 8], words(&of)].concat());
    let remove = |of: [u64; 4]| say(messages::REM_MEM_REG, &[vec![0; 8], words(&of)].concat());
    let table = |of: &[u64]| say(messages::SET_MEM_TABLE, &words(of));
    vec![
        ("a table of nothing", table(&[0]), With::Nothing),
        (
            "a table without memory",
            table(&[1, 0, 4096, 0, 0]),
            With::Nothing,
        ),
        ("a table that says too much", table(&[33]), With::Memory),
        (
            "a table of two files",
            table(&[1, 0, 4096, 0, 0]),
            With::Two,
        ),
        ("no bytes", add([0, 0, 0, 0]), With::Memory),
        ("behind its file", add([0, 4096, 0, 1 << 30]), With::Memory),
        ("without end", add([0, far, 0, 0]), With::Memory),
        ("around the end", add([far, 8192, 0, 0]), With::Memory),
        ("far in its file", add([0, 4096, 0, far]), With::Memory),
        ("an event", add([0, 4096, 0, 0]), With::Event),
        ("no memory", add([0, 4096, 0, 0]), With::Nothing),
        ("two files", add([0, 4096, 0, 0]), With::Two),
        (
            "a region that is not there",
            remove([0, 4096, 0, 0]),
            With::Nothing,
        ),
    ]
}

fn wrong_rings() -> Vec<Wrong> {
    let ring = |number, index, value| say(number, &state(index, value));
    let bell = |number, index: u64| say(number, &words(&[index]));
    let unaligned = say(messages::SET_VRING_ADDR, &words(&[0, 1, 3, 1, 0]));
    vec![
        ("size 0", ring(messages::SET_VRING_NUM, 0, 0), With::Nothing),
        (
            "too large",
            ring(messages::SET_VRING_NUM, 0, 2048),
            With::Nothing,
        ),
        (
            "far too large",
            ring(messages::SET_VRING_NUM, 0, u32::MAX),
            With::Nothing,
        ),
        (
            "queue 2",
            ring(messages::SET_VRING_NUM, 2, 8),
            With::Nothing,
        ),
        (
            "no queue",
            ring(messages::SET_VRING_BASE, u32::MAX, 0),
            With::Nothing,
        ),
        (
            "to stop",
            ring(messages::GET_VRING_BASE, 65536, 0),
            With::Nothing,
        ),
        (
            "to enable",
            ring(messages::SET_VRING_ENABLE, 256, 1),
            With::Nothing,
        ),
        (
            "half enabled",
            ring(messages::SET_VRING_ENABLE, 0, 2),
            With::Nothing,
        ),
        (
            "a kick for nobody",
            bell(messages::SET_VRING_KICK, 255),
            With::Event,
        ),
        (
            "a kick of a file",
            bell(messages::SET_VRING_KICK, 0),
            With::File,
        ),
        (
            "a kick missing",
            bell(messages::SET_VRING_KICK, 0),
            With::Nothing,
        ),
        (
            "a call of a file",
            bell(messages::SET_VRING_CALL, 0),
            With::File,
        ),
        ("unaligned", unaligned, With::Nothing),
    ]
}

fn wrong_inflight() -> Vec<Wrong> {
    let shape = |number, queues: u16, size: u16| {
        let tail = [queues.to_ne_bytes(), size.to_ne_bytes(), [0; 2], [0; 2]].concat();
        say(number, &[words(&[4096, 0]), tail].concat())
    };
    vec![
        (
            "none",
            shape(messages::GET_INFLIGHT_FD, 0, 0),
            With::Nothing,
        ),
        (
            "all",
            shape(messages::GET_INFLIGHT_FD, 65535, 65535),
            With::Nothing,
        ),
        (
            "too short",
            shape(messages::SET_INFLIGHT_FD, 2, 1024),
            With::Memory,
        ),
        (
            "missing",
            shape(messages::SET_INFLIGHT_FD, 1, 8),
            With::Nothing,
        ),
    ]
}

#[test]
fn a_wrong_message_ends_its_connection_and_nothing_else() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
    let memory = Memory::new(1 << 20).unwrap();
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    let file = tempfile::tempfile().unwrap();
    let [memory, event, file] = [
        memory.file().as_raw_fd(),
        event.as_raw_fd(),
        file.as_raw_fd(),
    ];
    let wrong = [
        wrong_headers(),
        wrong_features(),
        wrong_memory(),
        wrong_rings(),
        wrong_inflight(),
    ];
    for (what, bytes, with) in wrong.into_iter().flatten() {
        let descriptors = match with {
            With::Nothing => vec![],
            With::Memory => vec![memory],
            With::Event => vec![event],
            With::File => vec![file],
            With::Two => vec![memory, file],
            With::Forty => vec![event; 40],
        };
        let front_end = front_end(&engine);
        front_end.raw(&bytes, &descriptors).unwrap();
        assert!(front_end.is_cut(), "{what}");
    }
    // And one that says nothing whole.
    let whole = message(messages::SET_FEATURES, 1, &[0; 8]);
    for length in 1..whole.len() {
        let front_end = front_end(&engine);
        front_end.raw(&whole[..length], &[]).unwrap();
    }
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 2));
    guest.rings[1].write(0, &[1; 512]);
    let panicked = |event: &SessionEvent| matches!(event, SessionEvent::Panicked);
    assert!(!engine.host.events().iter().any(panicked));
}

/// Memory that is only promised costs addresses, of which the engine has 128 TiB for everything: a
/// front-end that took them all ended it.
#[test]
fn memory_without_end_is_refused_and_the_others_are_served() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let mut shared = settings(&place.path().join("s"), profile(1));
    shared.sharing = Sharing::Shared;
    let engine = Engine::start(shared, &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let tib: u64 = 1 << 40;
    let memory = Memory::new(4096).unwrap();
    memory.file().set_len(20 * tib).unwrap();
    for _ in 0..3 {
        let greedy = front_end(&engine);
        let add = |place: u64, tibs: u64| {
            let region = [
                vec![0; 8],
                words(&[place * tib, tibs * tib, place * tib, 0]),
            ]
            .concat();
            let descriptors = [memory.file().as_raw_fd()];
            greedy.set(messages::ADD_MEM_REG, &region, &descriptors)
        };
        add(0, 8).unwrap();
        add(8, 7).unwrap();
        assert!(add(16, 2).is_err());
        assert!(greedy.is_cut());
        let why = engine.host.wait_event(
            |event| matches!(event, SessionEvent::Disconnected { front_end, .. } if *front_end > 0),
        );
        assert!(why.to_string().contains("16 TiB"), "{why}");
        guest.rings[0].write(0, &[1; 512]);
    }
    assert!(Guest::boot(guest.kind).connect(&engine.path).is_ok());
}

/// Firmware is given the memory of a guest, and then its system is given it again: for a moment
/// both are mapped.
#[test]
fn all_of_a_large_memory_takes_the_place_of_itself() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let (tib, memory) = (1_u64 << 40, Memory::new(4096).unwrap());
    memory.file().set_len(16 * tib).unwrap();
    let large = front_end(&engine);
    let one = [1_u32.to_le_bytes(), [0; 4]].concat();
    for _ in 0..3 {
        let table = [one.clone(), words(&[0, 16 * tib, 0, 0])].concat();
        let descriptors = [memory.file().as_raw_fd()];
        large
            .set(messages::SET_MEM_TABLE, &table, &descriptors)
            .unwrap();
    }
}

/// Whether a descriptor blocks is known to all who have it: a front-end may keep its copy of the
/// end that it gives away, and switch it back.
#[test]
fn a_channel_that_blocks_and_is_not_read_stops_nobody() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let (_unread, given) = UnixStream::pair().unwrap();
    let descriptors = [given.as_raw_fd()];
    let front_end = guest.front_end();
    front_end
        .set(messages::SET_BACKEND_REQ_FD, &[], &descriptors)
        .unwrap();
    given.set_nonblocking(false).unwrap();
    for _ in 0..10_000 {
        engine.session().resize(SECTORS);
    }
    guest.rings[0].write(0, &[1; 512]);
}

#[test]
fn a_wrong_message_under_a_running_guest_finishes_what_was_taken() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    for number in [
        messages::SET_VRING_NUM,
        messages::SET_VRING_BASE,
        messages::SET_VRING_ADDR,
        messages::SET_INFLIGHT_FD,
    ] {
        guest.rings[0].send(OUT, 0, &[1; 512], 0);
        let payload = if number == messages::SET_VRING_ADDR {
            words(&[0, 0x1000, 0x2000, 0x3000, 0])
        } else if number == messages::SET_INFLIGHT_FD {
            guest.inflight.as_ref().unwrap().description.clone()
        } else {
            state(0, 8)
        };
        let descriptors: &[RawFd] = match &guest.inflight {
            Some(inflight) if number == messages::SET_INFLIGHT_FD => &[inflight.file.as_raw_fd()],
            _ => &[],
        };
        let refused = guest.front_end().set(number, &payload, descriptors);
        assert!(refused.is_err(), "message {number} on a running ring");
        guest.disconnect();
        guest.connect(&engine.path).unwrap();
        assert_eq!(guest.rings[0].wait().status, OK);
    }
}

/// Makes one queue wrong; the packed or split ring is the guest's.
type Crime = fn(&mut Guest);

fn crimes() -> Vec<(&'static str, Crime)> {
    vec![
        ("memory that is not there", |guest| {
            one(guest, &[(64, 16, false), (Memory::START, 512, true)]);
        }),
        ("memory around the end", |guest| {
            one(
                guest,
                &[(u64::MAX - 7, 16, false), (Memory::START, 1, true)],
            );
        }),
        ("no header", |guest| {
            one(
                guest,
                &[(Memory::START, 15, false), (Memory::START, 1, true)],
            );
        }),
        ("no status", |guest| {
            one(guest, &[(Memory::START, 512, false)]);
        }),
        ("nothing to read", |guest| {
            one(guest, &[(Memory::START, 512, true)]);
        }),
        ("an absurd length", |guest| {
            let memory = Memory::START;
            one(guest, &[(memory, 16, false), (memory, u32::MAX, true)]);
        }),
        ("a segment of nothing", |guest| {
            let memory = Memory::START;
            one(
                guest,
                &[(memory, 16, false), (memory, 0, true), (memory, 1, true)],
            );
        }),
        ("a loop", |guest| {
            let part = Part {
                address: Memory::START,
                length: 512,
                writable: false,
            };
            let size = guest.kind.size;
            for index in 0..size {
                let used = 1 << 7 | 1;
                let flags = if guest.kind.layout == Layout::Packed {
                    used
                } else {
                    1
                };
                let link = (index + 1) % size;
                guest.rings[0]
                    .driver
                    .raw_descriptor(index, part, flags, link);
            }
            if guest.kind.layout == Layout::Split {
                guest.rings[0].driver.raw_driver(2, 0);
                guest.rings[0].driver.raw_driver(1, 1);
            }
            guest.rings[0].bells.kick.write(1).unwrap();
        }),
    ]
}

fn one(guest: &mut Guest, parts: &[(u64, u32, bool)]) {
    let part = |(address, length, writable): &(u64, u32, bool)| Part {
        address: *address,
        length: *length,
        writable: *writable,
    };
    let parts: Vec<Part> = parts.iter().map(part).collect();
    guest.rings[0].driver.submit(&parts).unwrap();
    guest.rings[0].bells.kick.write(1).unwrap();
}

#[test]
fn a_broken_ring_breaks_its_own_queue_only_and_says_so() {
    for layout in LAYOUTS {
        for (what, commit) in crimes() {
            let (place, volume) = (place(), Volume::new(SECTORS));
            let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
            let mut guest = Guest::start(&engine.path, Kind::new(layout, 2));
            commit(&mut guest);
            let why = broken(&engine, 0);
            assert!(!why.to_string().is_empty(), "{what}");
            assert_eq!(guest.rings[0].bells.error.read().unwrap(), 1, "{what}");
            assert!(guest.rings[1].bells.error.read().is_err(), "{what}");
            guest.rings[1].write(0, &[1; 512]);
            // The ring can be stopped, and another one be put in its place.
            guest.front_end().stop_ring(0).unwrap();
            guest.front_end().stop_ring(1).unwrap();
        }
    }
}

#[test]
fn an_index_that_jumps_breaks_its_queue() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 2));
    guest.rings[0].driver.raw_driver(1, 1000);
    guest.rings[0].bells.kick.write(1).unwrap();
    assert!(matches!(broken(&engine, 0), Broken::Ring(_)));
    guest.rings[1].write(0, &[1; 512]);
}

#[test]
fn what_a_broken_queue_had_taken_finishes_silently() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        engine.host.set_mode(Mode::Hold);
        guest.rings[0].send(OUT, 0, &[1; 512], 0);
        engine.host.wait_held(1);
        one(&mut guest, &[(Memory::START, 512, false)]);
        broken(&engine, 0);
        engine.host.set_mode(Mode::Serve);
        guest.front_end().stop_ring(0).unwrap();
        assert!(
            guest.rings[0].reap().is_none(),
            "a broken ring is not touched"
        );
        assert_eq!(volume.lock().unwrap().bytes[0], 1);
    }
}

#[test]
fn a_queue_that_breaks_while_requests_wait_lets_go_of_all_of_them() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    guest.front_end().set_configuration(32, &[0]).unwrap();
    engine.host.set_mode(Mode::HoldFlushes);
    guest.rings[0].send(OUT, 0, &[1; 512], 0);
    engine.host.wait_held(1);
    one(&mut guest, &[(Memory::START, 512, false)]);
    broken(&engine, 0);
    engine.host.set_mode(Mode::Serve);
    guest.front_end().stop_ring(0).unwrap();
    assert_eq!(engine.host.running(), []);
}

#[test]
fn a_guest_that_breaks_queue_after_queue_does_not_flood_the_log() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(64)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 64));
    let parts = [Part {
        address: 0,
        length: 16,
        writable: false,
    }];
    for ring in &mut guest.rings {
        ring.driver.submit(&parts).unwrap();
        ring.bells.kick.write(1).unwrap();
    }
    engine.host.wait_idle();
    // A message that is answered, so that all that was to be said has been said.
    guest.front_end().configuration(0, 8).unwrap();
    guest.front_end().configuration(0, 8).unwrap();
    let told = |event: &&SessionEvent| matches!(event, SessionEvent::QueueBroken { .. });
    let told = engine.host.events().iter().filter(told).count();
    assert!((1..8).contains(&told), "{told} lines for 64 queues");
}

#[test]
fn memory_truncated_under_the_engine_breaks_the_queue_not_the_engine() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        let more = Memory::new(1 << 20).unwrap();
        let base = 1 << 33;
        guest.front_end().add_memory(&more, base).unwrap();
        volume.lock().unwrap().bytes[..512].copy_from_slice(&pattern(1, 512));
        engine.host.set_mode(Mode::Hold);
        guest.rings[0].send_at(IN, 0, (base + 4096, 0, 512));
        engine.host.wait_held(1);
        // From here on nobody in this process but the engine may touch that memory.
        more.file().set_len(0).unwrap();
        engine.host.set_mode(Mode::Serve);
        assert_eq!(broken(&engine, 0), Broken::MemoryGone);
        drop(guest);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        assert_eq!(guest.rings[0].read(0, 512), pattern(1, 512));
    }
}

#[test]
fn a_truncated_ring_breaks_the_queue_not_the_engine() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        guest.rings[0].write(0, &[1; 512]);
        engine.host.wait_idle();
        // The guest's own mapping is never touched again.
        guest.memory.file().set_len(0).unwrap();
        guest.rings[0].bells.kick.write(1).unwrap();
        let why = broken(&engine, 0);
        assert_eq!(why, Broken::MemoryGone);
        guest.front_end().stop_ring(0).unwrap();
        let next = guest.front_end.take();
        drop(next);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        assert_eq!(guest.rings[0].read(0, 512), [1; 512]);
    }
}

#[test]
fn a_ring_that_cannot_be_is_not_started_and_the_others_are() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
    let mut guest = Guest::boot(Kind::new(Layout::Split, 2));
    let mut front_end = FrontEnd::connect(&engine.path).unwrap();
    front_end
        .negotiate(ALL_FEATURES & !feature::RING_PACKED, ALL_PROTOCOL)
        .unwrap();
    front_end.set_memory(&guest.memory).unwrap();
    for (index, ring) in (0..).zip(&guest.rings) {
        front_end
            .set_ring(index, &ring.driver, 0, &ring.bells)
            .unwrap();
    }
    // No power of two.
    front_end
        .set(messages::SET_VRING_NUM, &state(0, 31), &[])
        .unwrap();
    front_end.enable(0, true).unwrap();
    front_end.enable(1, true).unwrap();
    engine
        .host
        .wait_event(|event| matches!(event, SessionEvent::QueueNotStarted { .. }));
    assert!(guest.rings[0].bells.error.read().is_ok());
    guest.rings[1].write(0, &[1; 512]);
    // Told better, it starts.
    front_end
        .set(messages::SET_VRING_NUM, &state(0, 32), &[])
        .unwrap();
    guest.rings[0].write(1, &[1; 512]);
    assert_eq!(volume.lock().unwrap().asked[0].operation, Operation::Write);
}

/// A host that panics where another would start a queue.
struct Clumsy(Arc<TestHost>);

impl Host for Clumsy {
    fn start_queue(&self, key: QueueKey, _queue: Queue) {
        panic!("{key} is too much for this host");
    }
    fn stop_queue(&self, key: QueueKey) -> u32 {
        self.0.stop_queue(key)
    }
    fn set_memory(&self, front_end: u32, memory: &Arc<RegionTable>, change: MemoryChange) {
        self.0.set_memory(front_end, memory, change);
    }
    fn set_call(&self, key: QueueKey, call: Option<Event>) {
        self.0.set_call(key, call);
    }
    fn set_kick(&self, key: QueueKey, kick: Option<Event>) {
        self.0.set_kick(key, kick);
    }
    fn set_error(&self, key: QueueKey, error: Option<Event>) {
        self.0.set_error(key, error);
    }
    fn event(&self, event: &SessionEvent) {
        self.0.event(event);
    }
}

#[test]
fn a_panic_under_a_message_ends_that_connection_only() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let (host, _reactor) = TestHost::start(&volume);
    let path = place.path().join("s");
    let clumsy = Arc::new(Clumsy(Arc::clone(&host)));
    let session = Session::start(settings(&path, profile(1)), clumsy).unwrap();
    session.set_ready(true);
    for _ in 0..2 {
        let mut guest = Guest::boot(Kind::new(Layout::Split, 1));
        assert!(guest.connect(&path).is_err());
        host.wait_event(|event| matches!(event, SessionEvent::Panicked));
    }
    let front_end = FrontEnd::connect(&path).unwrap();
    front_end.ask(messages::GET_FEATURES, &[]).unwrap();
}
