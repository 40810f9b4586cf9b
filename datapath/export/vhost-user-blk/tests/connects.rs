//! Front-ends come, negotiate, go, and come back; sessions start and stop.
#![allow(
    clippy::unwrap_used,
    reason = "a test program; clippy takes only #[test] functions for tests"
)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::machine::{
    ALL_FEATURES, ALL_PROTOCOL, Guest, Kind, NEGOTIATED, OK, OUT, Ring, pattern,
};
use common::{Engine, Mode, SECTORS, Volume, place, profile, settings};
use guest::Layout;
use guest::front_end::{FrontEnd, message as messages, protocol, state};
use vhost_user_blk::{BindErrorKind, Session, SessionEvent, Sharing};
use virtqueue::RingError;

const LAYOUTS: [Layout; 2] = [Layout::Split, Layout::Packed];

#[test]
fn a_second_front_end_is_turned_away_and_a_successor_is_not() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let second = FrontEnd::connect(&engine.path).unwrap();
    assert!(second.is_cut());
    engine
        .host
        .wait_event(|event| matches!(event, SessionEvent::Refused { .. }));
    for round in 0..50 {
        guest.rings[0].write(round, &[1; 512]);
        guest.disconnect();
        guest.connect(&engine.path).unwrap();
    }
    guest.rings[0].write(51, &[1; 512]);
    assert_eq!(engine.session().status().front_ends.len(), 1);
}

/// It was counted as connected until the next one came, and commands asked whether to take the
/// volume away from a running guest: the thread that listens was told of the end before the
/// front-end's thread had ended, and looked once. What has hung up is not counted now.
#[test]
fn a_front_end_that_has_left_is_not_counted() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    assert_eq!(engine.session().status().front_ends.len(), 1);
    drop(guest);
    engine
        .host
        .wait_event(|event| matches!(event, SessionEvent::Disconnected { .. }));
    assert_eq!(engine.session().status().front_ends.len(), 0);
}

#[test]
fn a_shared_export_serves_several_and_keeps_their_cache_modes_apart() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let mut shared = settings(&place.path().join("s"), profile(1));
    shared.sharing = Sharing::Shared;
    let engine = Engine::start(shared, &volume);
    let mut one = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let mut two = Guest::start(&engine.path, Kind::new(Layout::Packed, 1));
    one.front_end().set_configuration(32, &[0]).unwrap();
    assert_eq!(two.front_end().configuration(32, 1).unwrap(), [1]);
    one.rings[0].write(1, &[1; 512]);
    assert_eq!(two.rings[0].read(1, 512), [1; 512]);
    drop(one);
    two.rings[0].write(2, &[2; 512]);
    assert_eq!(two.rings[0].read(2, 512), [2; 512]);
}

const BOTH: [Sharing; 2] = [Sharing::Exclusive, Sharing::Shared];

/// An export of one queue, and a guest that has hung up while its write to sector 1 is held.
fn hung(place: &std::path::Path, volume: &Arc<Mutex<Volume>>, sharing: Sharing) -> (Engine, Guest) {
    let mut settings = settings(&place.join("s"), profile(1));
    settings.sharing = sharing;
    let engine = Engine::start(settings, volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    engine.host.set_mode(Mode::Hold);
    guest.rings[0].send(OUT, 1, &[1; 512], 0);
    engine.host.wait_held(1);
    guest.disconnect();
    (engine, guest)
}

/// A front-end that says what QEMU does before its machine runs, and then asks where a ring goes
/// on. It does not wait for answers without end.
fn comes_back(engine: &Engine) -> FrontEnd {
    let mut again = FrontEnd::connect(&engine.path).unwrap();
    again.set_patience(Duration::from_secs(10)).unwrap();
    let negotiated = again.negotiate(ALL_FEATURES, ALL_PROTOCOL);
    negotiated.expect("nothing of this has to do with rings");
    for event in [messages::SET_VRING_ERR, messages::SET_VRING_CALL] {
        again.set_event(event, 0, None).unwrap();
    }
    assert_eq!(again.configuration(32, 1).unwrap(), [1]);
    let ring = state(0, 0);
    again.send(messages::GET_VRING_BASE, &ring, &[]).unwrap();
    again
}

/// Its rings would be served twice at once: what hangs there would be carried out again, from
/// memory that is somebody else's by then.
#[test]
fn who_comes_back_is_served_when_its_last_requests_are_answered() {
    for sharing in BOTH {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let (engine, mut guest) = hung(place.path(), &volume, sharing);
        let [before] = engine.host.running()[..] else {
            panic!("one ring runs");
        };
        let (sender, came_back) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (path, guest) = (engine.path.clone(), &mut guest);
            scope.spawn(move || sender.send(guest.connect(&path).is_ok()));
            let waits = came_back.recv_timeout(Duration::from_millis(300));
            let running = engine.host.running();
            engine.host.set_mode(Mode::Serve);
            assert!(waits.is_err(), "{sharing:?}");
            assert_eq!(running, [before], "{sharing:?}");
            assert!(came_back.recv().unwrap(), "{sharing:?}");
        });
        assert_eq!(guest.rings[0].wait().status, OK);
        guest.rings[0].write(2, &[2; 512]);
        assert_eq!(volume.lock().unwrap().writes[&1], 1, "{sharing:?}");
    }
}

/// The thread that listens waited for the last request of whoever had hung up, and everybody
/// that connected stood still with it, also when the export was removed.
#[test]
fn who_waits_for_requests_of_an_earlier_one_keeps_nobody_waiting() {
    for sharing in BOTH {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let (mut engine, _guest) = hung(place.path(), &volume, sharing);
        let most = if sharing == Sharing::Exclusive { 1 } else { 8 };
        let again: Vec<FrontEnd> = (0..most).map(|_| comes_back(&engine)).collect();
        let more = FrontEnd::connect(&engine.path).unwrap();
        assert!(more.is_cut(), "there are as many as may be");
        assert!(again[0].is_silent(Duration::from_millis(300)));
        // Who gives up makes room at once.
        drop(again);
        let again = comes_back(&engine);
        assert!(again.is_silent(Duration::from_millis(300)));

        let session = engine.session.take().expect("started");
        std::thread::scope(|scope| {
            let stopper = scope.spawn(move || session.stop());
            assert!(again.is_cut(), "the export is removed");
            let is_over = stopper.is_finished();
            engine.host.set_mode(Mode::Serve);
            assert!(!is_over, "the last request is not answered");
        });
        assert_eq!(volume.lock().unwrap().writes[&1], 1, "{sharing:?}");
    }
}

#[test]
fn handshakes_are_held_until_the_array_is_there() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    engine.session().set_ready(false);
    // Whoever was accepted is served; who comes now waits. The first wait may have begun before.
    let mut early = FrontEnd::connect(&engine.path).unwrap();
    let (held, answered) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            early.negotiate(ALL_FEATURES, ALL_PROTOCOL).unwrap();
            held.send(()).unwrap();
        });
        assert!(!engine.session().status().ready);
        engine.session().set_ready(true);
        answered.recv().unwrap();
    });
}

#[test]
fn a_session_that_is_not_ready_answers_nothing() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let (host, _reactor) = common::TestHost::start(&volume);
    let path = place.path().join("s");
    let session = Session::start(settings(&path, profile(1)), host.clone()).unwrap();
    let front_end = FrontEnd::connect(&path).unwrap();
    front_end.send(messages::GET_FEATURES, &[], &[]).unwrap();
    assert!(front_end.is_silent(Duration::from_millis(200)));
    drop(session);
    assert!(front_end.is_cut());
    assert_eq!(host.events(), [], "nobody was let in");
    assert!(!path.exists());
}

#[test]
fn a_socket_in_use_is_refused_and_left_alone() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let (host, _reactor) = common::TestHost::start(&volume);
    let error = Session::start(settings(&engine.path, profile(1)), host).unwrap_err();
    assert_eq!(error.kind, BindErrorKind::InUse);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    guest.rings[0].write(0, &[1; 512]);
}

#[test]
fn a_stopped_session_finishes_what_was_taken() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let mut engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    engine.host.set_mode(Mode::Hold);
    guest.rings[0].send(OUT, 1, &[1; 512], 0);
    engine.host.wait_held(1);
    let session = engine.session.take().expect("started");
    let stopper = std::thread::Builder::new();
    let stopper = stopper.spawn(move || session.stop()).unwrap();
    assert!(guest.front_end().is_cut());
    // Who comes back is not to wait for an answer: some machines stand still meanwhile.
    FrontEnd::connect(&engine.path).map(drop).unwrap_err();
    engine.host.set_mode(Mode::Serve);
    stopper.join().unwrap();
    assert_eq!(guest.rings[0].reap().expect("finished").status, OK);
    assert!(!engine.path.exists());
}

#[test]
fn what_is_offered_is_what_can_be_kept() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let front_end = FrontEnd::connect(&engine.path).unwrap();
    let features = front_end.ask(messages::GET_FEATURES, &[]).unwrap().number();
    assert_eq!(features, profile(1).features());
    let log_all = 1 << 26;
    assert_eq!(features & log_all, 0, "dirty logging is not followed");
    let offered = front_end.ask(messages::GET_PROTOCOL_FEATURES, &[]).unwrap();
    assert_eq!(offered.number(), ALL_PROTOCOL);
    assert_eq!(offered.number() & protocol::STATUS, 0);
}

#[test]
fn messages_may_come_in_any_order_that_the_protocol_allows() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::boot(Kind::new(Layout::Split, 1));
    guest.rings[0].send(OUT, 3, &[3; 512], 0);
    let mut front_end = FrontEnd::connect(&engine.path).unwrap();
    front_end.negotiate(ALL_FEATURES, ALL_PROTOCOL).unwrap();
    // Enabled before it has an address, addresses before there is memory, work before a kick.
    front_end.enable(0, true).unwrap();
    let ring = &guest.rings[0];
    front_end.set_ring(0, &ring.driver, 0, &ring.bells).unwrap();
    assert_eq!(engine.host.running(), []);
    let start = guest::Memory::START;
    front_end.add_memory(&guest.memory, start).unwrap();
    assert_eq!(guest.rings[0].wait().status, OK);
    assert_eq!(volume.lock().unwrap().bytes[3 * 512], 3);
    let slots = front_end.ask(messages::GET_MAX_MEM_SLOTS, &[]).unwrap();
    assert!(slots.number() >= 32);
}

/// Each message is legal. The ring was started over memory of the other layout, and that was a
/// panic, which is the end of the engine: none of its other guests was served any more.
#[test]
fn a_layout_chosen_after_the_inflight_memory_ends_no_engine() {
    for (first, second) in [
        (Layout::Split, Layout::Packed),
        (Layout::Packed, Layout::Split),
    ] {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::boot(Kind::new(second, 1));
        let mut front_end = FrontEnd::connect(&engine.path).unwrap();
        let wanted = |layout| Kind::new(layout, 1).wanted();
        front_end.negotiate(wanted(first), ALL_PROTOCOL).unwrap();
        let inflight = front_end.make_inflight(1, 32).unwrap();
        front_end.set_inflight(&inflight).unwrap();
        let features = profile(1).features() & wanted(second);
        let number = features.to_ne_bytes();
        front_end.set(messages::SET_FEATURES, &number, &[]).unwrap();
        front_end.set_memory(&guest.memory).unwrap();
        front_end.enable(0, true).unwrap();
        let ring = &guest.rings[0];
        front_end.set_ring(0, &ring.driver, 0, &ring.bells).unwrap();
        let refused = |event: &SessionEvent| {
            let why = RingError::InflightRegion;
            matches!(event, SessionEvent::QueueNotStarted { why: of, .. } if *of == why)
        };
        engine.host.wait_event(refused);
        assert_eq!(ring.bells.error.read().unwrap(), 1);

        // With memory of its layout it is served, by the same engine.
        drop(front_end);
        guest.connect(&engine.path).unwrap();
        guest.rings[0].write(1, &[1; 512]);
    }
}

#[test]
fn without_protocol_features_rings_are_enabled_at_once() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut kind = Kind::new(Layout::Split, 1);
    kind.features &= !NEGOTIATED;
    let mut guest = Guest::start(&engine.path, kind);
    guest.rings[0].write(1, &[1; 512]);
    assert_eq!(guest.rings[0].read(1, 512), [1; 512]);
}

/// A ring of a guest that has started again, in the memory of the one before.
fn start_ring_anew(guest: &mut Guest) {
    let options = guest.rings[0].driver.options();
    guest.rings[0] = Ring::new(&guest.memory, options);
    let (ring, front_end) = (&guest.rings[0], guest.front_end());
    front_end.set_ring(0, &ring.driver, 0, &ring.bells).unwrap();
    front_end.enable(0, true).unwrap();
}

#[test]
fn a_reset_device_starts_again() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    guest.rings[0].write(1, &[1; 512]);
    guest
        .front_end()
        .set(messages::RESET_DEVICE, &[], &[])
        .unwrap();
    assert_eq!(engine.host.running(), []);
    start_ring_anew(&mut guest);
    assert_eq!(guest.rings[0].read(1, 512), [1; 512]);
}

/// QEMU resets the device whenever a guest's driver does, and answers reads of the configuration
/// from its own copy: a guest that chose write-through finds it still chosen, and does not choose
/// it again. It was told of writes before they were durable, because a reset had switched back.
#[test]
fn a_reset_device_keeps_its_cache_mode() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, Kind::new(layout, 1));
        let front_end = guest.front_end();
        front_end.set_configuration(32, &[0]).unwrap();
        front_end.set(messages::RESET_DEVICE, &[], &[]).unwrap();
        assert_eq!(front_end.configuration(32, 1).unwrap(), [0]);
        // QEMU asks for new in-flight memory then.
        let inflight = front_end.make_inflight(1, 32).unwrap();
        front_end.set_inflight(&inflight).unwrap();
        guest.inflight = Some(inflight);
        start_ring_anew(&mut guest);
        guest.rings[0].write(1, &[1; 512]);
        assert_eq!(volume.lock().unwrap().durable[512], 1, "{layout:?}");

        engine.kill();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        guest.connect(&path).unwrap();
        guest.rings[0].write(2, &[2; 512]);
        assert_eq!(volume.lock().unwrap().durable[1024], 2, "{layout:?}");
        drop(engine);
    }
}

#[test]
fn two_hundred_and_fifty_six_queues_serve() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(256)), &volume);
        let mut kind = Kind::new(layout, 256);
        kind.size = 8;
        let mut guest = Guest::start(&engine.path, kind);
        let queues = guest.front_end().ask(messages::GET_QUEUE_NUM, &[]);
        assert_eq!(queues.unwrap().number(), 256);
        for (sector, ring) in (0..).zip(&mut guest.rings) {
            ring.send(OUT, sector, &pattern(sector, 512), 0);
        }
        for ring in &mut guest.rings {
            assert_eq!(ring.wait().status, OK);
        }
        for (sector, ring) in (0..).zip(guest.rings.iter_mut().rev()) {
            assert_eq!(ring.read(sector, 512), pattern(sector, 512));
        }
        assert_eq!(engine.session().status().front_ends[0].queues.len(), 256);
        for index in 0..256 {
            guest.front_end().stop_ring(index).unwrap();
        }
        assert_eq!(engine.host.running(), []);
    }
}
