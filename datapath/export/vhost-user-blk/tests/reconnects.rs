//! An engine that dies under a guest, and the one that comes after it.
#![allow(
    clippy::unwrap_used,
    reason = "a test program; clippy takes only #[test] functions for tests"
)]

mod common;

use block::Operation;
use common::machine::{FLUSH, Guest, Kind, OK, OUT, pattern, protocol_without_inflight};
use common::{Engine, Mode, SECTORS, Volume, place, profile, settings};
use guest::Layout;
use vhost_user_blk::{QueueKey, SessionEvent};

const LAYOUTS: [Layout; 2] = [Layout::Split, Layout::Packed];

fn key(index: u16) -> QueueKey {
    QueueKey {
        front_end: 0,
        index,
    }
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for layout in LAYOUTS {
        for indirect in [false, true] {
            for (size, size_told) in [(16, 0), (64, 0), (16, 64)] {
                kinds.push(Kind {
                    indirect,
                    size,
                    size_told,
                    ..Kind::new(layout, 2)
                });
            }
        }
    }
    kinds
}

#[test]
fn what_a_dead_engine_took_is_done_once_by_the_next_and_in_order() {
    for kind in kinds() {
        for before in [0, 1, 7, 30] {
            let (place, volume) = (place(), Volume::new(SECTORS));
            let path = place.path().join("s");
            let engine = Engine::start(settings(&path, profile(2)), &volume);
            let mut guest = Guest::start(&path, kind);
            // Rings that have gone around, or nearly.
            for round in 0..before {
                guest.rings[0].write(4000 + round, &[1; 512]);
            }
            engine.host.set_mode(Mode::Hold);
            for sector in 0..4 {
                guest.rings[0].send(OUT, sector, &pattern(sector, 512), 0);
                guest.rings[1].send(OUT, 100 + sector, &pattern(sector, 512), 0);
            }
            engine.host.wait_held(8);
            engine.kill();
            // A guest does not know, and asks for more.
            guest.rings[0].send(OUT, 4, &pattern(4, 512), 0);
            volume.lock().unwrap().asked.clear();

            let engine = Engine::start(settings(&path, profile(2)), &volume);
            guest.connect(&path).unwrap();

            let answers = guest.rings[0].wait_all();
            assert_eq!(answers.len(), 5, "{kind:?} {before}");
            assert!(answers.iter().all(|answer| answer.status == OK));
            assert_eq!(guest.rings[1].wait_all().len(), 4);
            let volume = volume.lock().unwrap();
            let asked = |first: u64| -> Vec<u64> {
                let of_ring = volume.asked.iter().map(|one| one.start);
                of_ring.filter(|at| *at / 100 == first / 100).collect()
            };
            assert_eq!(asked(0), [0, 1, 2, 3, 4], "{kind:?} {before}");
            assert_eq!(asked(100), [100, 101, 102, 103], "{kind:?} {before}");
            for sector in 0..5u64 {
                let at = usize::try_from(sector * 512).unwrap();
                assert_eq!(volume.bytes[at..at + 512], pattern(sector, 512));
            }
            drop(volume);
            assert_eq!(engine.host.counters(key(0)).resubmitted, 4);
            assert_eq!(engine.host.counters(key(1)).resubmitted, 4);
            for round in 0..40 {
                guest.rings[0].write(round, &[2; 512]);
            }
        }
    }
}

/// A firmware's ring is smaller than the device's, the system's is as large; and there are
/// front-ends that keep the memory when a guest starts again.
#[test]
fn rings_of_several_sizes_share_inflight_memory_one_after_the_other() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let mut kind = Kind {
            size: 16,
            size_told: 64,
            ..Kind::new(layout, 1)
        };
        let mut engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, kind);
        for (boot, size) in [64u16, 16, 32, 64].into_iter().enumerate() {
            for sector in 0..20 {
                guest.rings[0].write(sector, &pattern(sector, 512));
            }
            // With requests that nobody answers any more, or without.
            if boot % 2 == 0 {
                engine.host.set_mode(Mode::Hold);
                guest.rings[0].send(OUT, 30, &[1; 512], 0);
                engine.host.wait_held(1);
                engine.kill();
                engine = Engine::start(settings(&path, profile(1)), &volume);
            }
            guest.disconnect();
            kind.size = size;
            guest = Guest {
                inflight: guest.inflight.take(),
                ..Guest::boot(kind)
            };
            guest.connect(&path).unwrap();
            assert_eq!(guest.rings[0].read(7, 512), pattern(7, 512));
            let writes = volume.lock().unwrap().writes.get(&30).copied();
            assert_eq!(writes, None, "{layout:?}: of a guest that is gone");
        }
    }
}

#[test]
fn what_was_answered_before_the_engine_died_is_not_done_again() {
    for kind in kinds() {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let mut engine = Engine::start(settings(&path, profile(2)), &volume);
        let mut guest = Guest::start(&path, kind);
        let mut done = 0u64;
        for death in 0..6 {
            for _ in 0..=death {
                guest.rings[0].write(done, &pattern(done, 512));
                done += 1;
            }
            engine.host.set_mode(Mode::PerformAndHold);
            for sector in 0..3 {
                guest.rings[0].send(OUT, 1000 + 10 * death + sector, &[3; 512], 0);
            }
            engine.host.wait_held(3);
            engine.kill();
            engine = Engine::start(settings(&path, profile(2)), &volume);
            guest.connect(&path).unwrap();
            assert_eq!(guest.rings[0].wait_all().len(), 3);
            assert_eq!(engine.host.counters(key(0)).resubmitted, 3);
        }
        let volume = volume.lock().unwrap();
        for sector in 0..done {
            assert_eq!(volume.writes[&sector], 1, "{kind:?} sector {sector}");
        }
        for death in 0..6 {
            for sector in 0..3 {
                assert_eq!(volume.writes[&(1000 + 10 * death + sector)], 2, "{kind:?}");
            }
        }
    }
}

#[test]
fn an_engine_may_die_while_it_redoes_what_another_left() {
    for kind in kinds() {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(2)), &volume);
        let mut guest = Guest::start(&path, kind);
        engine.host.set_mode(Mode::Hold);
        for sector in 0..4 {
            guest.rings[0].send(OUT, sector, &pattern(sector, 512), 0);
        }
        engine.host.wait_held(4);
        engine.kill();
        for _ in 0..5 {
            let engine = Engine::start(settings(&path, profile(2)), &volume);
            engine.host.set_mode(Mode::Hold);
            guest.connect(&path).unwrap();
            engine.host.wait_held(4);
            engine.kill();
        }
        assert_eq!(volume.lock().unwrap().writes.len(), 0);
        let engine = Engine::start(settings(&path, profile(2)), &volume);
        guest.connect(&path).unwrap();
        assert_eq!(guest.rings[0].wait_all().len(), 4);
        let volume = volume.lock().unwrap();
        assert!(volume.writes.values().all(|count| *count == 1));
        assert_eq!(volume.writes.len(), 4);
        drop(volume);
        drop(engine);
    }
}

#[test]
fn a_guest_that_switched_its_cache_off_has_it_off_after_a_restart() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, Kind::new(layout, 1));
        guest.front_end().set_configuration(32, &[0]).unwrap();
        guest.rings[0].write(0, &[1; 512]);
        engine.kill();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        guest.connect(&path).unwrap();
        guest.rings[0].write(1, &[2; 512]);
        assert_eq!(volume.lock().unwrap().durable[512], 2);
        assert_eq!(guest.front_end().configuration(32, 1).unwrap(), [0]);
        drop(engine);
    }
}

#[test]
fn a_write_that_waits_for_its_flush_is_redone_whole() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, Kind::new(layout, 1));
        guest.front_end().set_configuration(32, &[0]).unwrap();
        engine.host.set_mode(Mode::HoldFlushes);
        guest.rings[0].send(OUT, 0, &[1; 512], 0);
        engine.host.wait_held(1);
        assert_eq!(volume.lock().unwrap().bytes[0], 1);
        assert!(guest.rings[0].reap().is_none(), "not durable yet");
        engine.kill();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        guest.connect(&path).unwrap();
        assert_eq!(guest.rings[0].wait().status, OK);
        let volume = volume.lock().unwrap();
        assert_eq!((volume.durable[0], volume.writes[&0]), (1, 2));
        assert_eq!(volume.asked.last().unwrap().operation, Operation::Flush);
        drop(volume);
        drop(engine);
    }
}

#[test]
fn a_call_that_a_dead_engine_may_have_owed_is_made() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, Kind::new(layout, 1));
        guest.rings[0].send(OUT, 0, &[1; 512], 0);
        engine.host.wait_idle();
        // The engine died after it had shown the answer and before it called.
        let _ = guest.rings[0].bells.call.read();
        engine.kill();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        // As far as the device is told, the guest has seen nothing yet.
        guest.connect(&path).unwrap();
        engine.host.wait_idle();
        assert!(guest.rings[0].bells.call.read().is_ok(), "{layout:?}");
        assert_eq!(guest.rings[0].reap().expect("shown").status, OK);
        assert_eq!(volume.lock().unwrap().writes[&0], 1);
    }
}

#[test]
fn a_front_end_that_drops_its_connection_finds_everything_finished() {
    for kind in kinds() {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(2)), &volume);
        let mut guest = Guest::start(&path, kind);
        for round in 0..10u64 {
            for sector in 0..3 {
                let sector = round * 3 + sector;
                guest.rings[0].send(OUT, sector, &pattern(sector, 512), 0);
            }
            guest.rings[0].send(FLUSH, 0, &[], 0);
            guest.disconnect();
            guest.connect(&path).unwrap();
            assert_eq!(guest.rings[0].wait_all().len(), 4);
        }
        assert!(
            volume
                .lock()
                .unwrap()
                .writes
                .values()
                .all(|count| *count == 1)
        );
        assert_eq!(engine.session().status().front_ends.len(), 1);
        assert!(
            engine
                .host
                .counted()
                .iter()
                .all(|counters| counters.resubmitted == 0)
        );
    }
}

#[test]
fn without_inflight_memory_a_reconnect_still_serves() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let mut kind = Kind::new(layout, 1);
        kind.protocol = protocol_without_inflight();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        let mut guest = Guest::start(&path, kind);
        guest.rings[0].write(0, &[1; 512]);
        engine.kill();
        let engine = Engine::start(settings(&path, profile(1)), &volume);
        guest.connect(&path).unwrap();
        guest.rings[0].write(1, &[2; 512]);
        drop(engine);
    }
}

#[test]
fn garbage_in_flight_memory_breaks_its_queue_only() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let path = place.path().join("s");
        let engine = Engine::start(settings(&path, profile(2)), &volume);
        let mut guest = Guest::start(&path, Kind::new(layout, 2));
        guest.rings[0].write(0, &[1; 512]);
        guest.rings[1].write(0, &[1; 512]);
        guest.disconnect();
        let inflight = guest.inflight.as_ref().expect("made");
        // The first region's head: features, version, then what is garbage.
        let file = &inflight.file;
        std::os::unix::fs::FileExt::write_all_at(file, &[0xEE; 200], 8).unwrap();
        guest.connect(&path).unwrap();
        engine.host.wait_event(
            |event| matches!(event, SessionEvent::QueueNotStarted { key, .. } if key.index == 0),
        );
        assert!(guest.rings[0].bells.error.read().is_ok());
        guest.rings[1].write(1, &[2; 512]);
    }
}
