//! A well-behaved guest against an export: requests, cache modes, size, queues, disconnects.
#![allow(
    clippy::unwrap_used,
    reason = "a test program; clippy takes only #[test] functions for tests"
)]

mod common;

use std::io::Read;

use block::Operation;
use common::machine::{
    ALL_FEATURES, DISCARD, FLUSH, GET_ID, Guest, IN, IOERR, Kind, OK, OUT, UNSUPP, WRITE_ZEROES,
    pattern, ranges,
};
use common::{Asked, Engine, Mode, SECTORS, Volume, place, profile, settings};
use guest::Layout;
use guest::front_end::message as messages;
use units::{bytes_usize, limits};
use vhost_user_blk::{Access, CacheMode, MemoryChange, Profile, QueueKey, SessionEvent, feature};

const LAYOUTS: [Layout; 2] = [Layout::Split, Layout::Packed];

fn key(index: u16) -> QueueKey {
    QueueKey {
        front_end: 0,
        index,
    }
}

#[test]
fn what_is_written_is_read_again() {
    for layout in LAYOUTS {
        for indirect in [false, true] {
            for event_idx in [false, true] {
                let (place, volume) = (place(), Volume::new(SECTORS));
                let engine = Engine::start(settings(&place.path().join("s"), profile(4)), &volume);
                let mut kind = Kind::new(layout, 4);
                kind.indirect = indirect;
                if !event_idx {
                    kind.features &= !feature::EVENT_IDX;
                }
                let mut guest = Guest::start(&engine.path, kind);
                for round in 0..40u64 {
                    let ring = &mut guest.rings[usize::try_from(round % 4).unwrap()];
                    let bytes = usize::try_from(512 * (1 + round % 17)).unwrap();
                    ring.write(round * 20, &pattern(round, bytes));
                }
                for round in 0..40u64 {
                    let ring = &mut guest.rings[usize::try_from(round / 10).unwrap()];
                    let bytes = usize::try_from(512 * (1 + round % 17)).unwrap();
                    assert_eq!(ring.read(round * 20, bytes), pattern(round, bytes));
                    let at = usize::try_from(round * 20 * 512).unwrap();
                    assert_eq!(
                        volume.lock().unwrap().bytes[at..at + bytes],
                        pattern(round, bytes)
                    );
                }
            }
        }
    }
}

#[test]
fn every_request_is_answered_as_the_standard_says() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        let ring = &mut guest.rings[0];
        ring.write(0, &[0xFF; 4096]);

        let serial = ring.ask(GET_ID, 0, &[], 20);
        assert_eq!((serial.status, serial.written), (OK, 21));
        assert_eq!(&serial.data, b"0123456789abcdef0123");

        volume.lock().unwrap().asked.clear();
        let flush = ring.ask(FLUSH, 0, &[], 0);
        assert_eq!((flush.status, flush.written), (OK, 1));
        let zeroes = ring.ask(WRITE_ZEROES, 0, &ranges(&[(1, 1), (3, 2), (6, 0)]), 0);
        assert_eq!((zeroes.status, zeroes.written), (OK, 1));
        let discard = ring.ask(DISCARD, 0, &ranges(&[(7, 1)]), 0);
        assert_eq!(discard.status, OK);
        let asked = |operation, start, blocks| Asked {
            operation,
            start,
            blocks,
        };
        assert_eq!(
            volume.lock().unwrap().asked,
            [
                asked(Operation::Flush, 0, 0),
                asked(Operation::WriteZeroes, 1, 1),
                asked(Operation::WriteZeroes, 3, 2),
                asked(Operation::Discard, 7, 1),
            ]
        );
        let zero_sectors = [1u64, 3, 4, 7];
        for sector in 0..8 {
            let expected = if zero_sectors.contains(&sector) {
                0
            } else {
                0xFF
            };
            assert_eq!(ring.read(sector, 512), [expected; 512], "sector {sector}");
        }

        for (kind, sector, out, room, status) in [
            (2, 0, 0, 512, UNSUPP),
            (IN, SECTORS, 0, 512, IOERR),
            (OUT, SECTORS - 1, 1024, 0, IOERR),
            (IN, 0, 0, 100, IOERR),
            (OUT, 0, 513, 0, IOERR),
            (DISCARD, 0, 16 * 17, 0, IOERR),
        ] {
            let answer = ring.ask(kind, sector, &vec![0; out], room);
            assert_eq!(
                answer.status, status,
                "type {kind} sector {sector} {out} {room}"
            );
            assert_eq!(answer.written, u32::try_from(room + 1).unwrap());
        }
        let counters = engine.host.counters(key(0));
        assert_eq!((counters.writes, counters.write_bytes), (1, 4096));
        assert_eq!(
            (counters.reads, counters.flushes, counters.errors),
            (8, 1, 6)
        );
        assert_eq!(counters.requests(), 1 + 1 + 1 + 2 + 8 + 6);
    }
}

#[test]
fn a_failed_request_is_an_error_for_the_guest_and_no_more() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    engine.host.set_mode(Mode::Fail);
    assert_eq!(guest.rings[0].ask(OUT, 0, &[1; 512], 0).status, IOERR);
    let two = ranges(&[(0, 1), (8, 1)]);
    assert_eq!(guest.rings[0].ask(WRITE_ZEROES, 0, &two, 0).status, IOERR);
    // One of several pieces is enough, whichever it is.
    for (start, status) in [(0, IOERR), (8, IOERR), (16, OK)] {
        engine.host.set_mode(Mode::FailAt(start));
        let answer = guest.rings[0].ask(WRITE_ZEROES, 0, &two, 0);
        assert_eq!(answer.status, status, "block {start} fails");
    }
    engine.host.set_mode(Mode::Serve);
    guest.rings[0].write(0, &[2; 512]);
}

#[test]
fn a_read_only_volume_is_not_changed() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let profile = Profile {
        access: Access::ReadOnly,
        ..profile(1)
    };
    let engine = Engine::start(settings(&place.path().join("s"), profile), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    assert_eq!(guest.rings[0].ask(OUT, 0, &[1; 512], 0).status, IOERR);
    let one = ranges(&[(0, 1)]);
    assert_eq!(guest.rings[0].ask(DISCARD, 0, &one, 0).status, IOERR);
    assert_eq!(guest.rings[0].read(0, 512), [0; 512]);
}

/// Firmware reads a kernel at once, whatever it is told of sizes.
#[test]
fn a_request_of_more_than_is_asked_of_a_volume_at_once_is_carried_out_in_pieces() {
    const MOST: u64 = limits::REQUEST_BYTES_MAX;
    let bytes = bytes_usize(2 * MOST + 9 * 512);
    for layout in LAYOUTS {
        let place = place();
        let volume = Volume::new(3 * MOST / 512);
        let mut settings = settings(&place.path().join("s"), profile(1));
        settings.sectors = 3 * MOST / 512;
        let engine = Engine::start(settings, &volume);
        let mut kind = Kind::new(layout, 1);
        kind.memory_bytes = 256 << 20;
        kind.indirect = layout == Layout::Packed;
        kind.features &= !(feature::SIZE_MAX | feature::SEG_MAX);
        let mut guest = Guest::start(&engine.path, kind);
        // Not all of it has room in one turn.
        engine.host.set_mode(Mode::Full(2));
        let written = pattern(1, bytes);
        guest.rings[0].write(3, &written);
        assert_eq!(guest.rings[0].read(3, bytes), written);
        let asked: Vec<(u64, u32)> = {
            let asked = &volume.lock().unwrap().asked;
            asked.iter().map(|one| (one.start, one.blocks)).collect()
        };
        let most = u32::try_from(MOST / 512).unwrap();
        let next = 3 + u64::from(most);
        let pieces = [(3, most), (next, most), (next + u64::from(most), 9)];
        assert_eq!(asked, [pieces, pieces].concat());
        // A piece that fails is all that it takes.
        engine.host.set_mode(Mode::FailAt(next));
        let failed = guest.rings[0].ask(IN, 3, &[], bytes);
        assert_eq!(failed.status, IOERR);
        let end = 3 * MOST / 512 - 1;
        assert_eq!(guest.rings[0].ask(IN, end, &[], bytes).status, IOERR);
        assert_eq!(guest.rings[0].read(end, 512), [0; 512]);
    }
}

#[test]
fn requests_keep_their_order_when_the_volume_is_full() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        engine.host.set_mode(Mode::Full(3));
        let mut expected = Vec::new();
        for sector in 0..8u64 {
            guest.rings[0].send(OUT, sector, &pattern(sector, 512), 0);
            expected.push((Operation::Write, sector));
        }
        let many: Vec<(u64, u32)> = (100..110).map(|sector| (sector, 1)).collect();
        guest.rings[0].send(WRITE_ZEROES, 0, &ranges(&many), 0);
        expected.extend((100..110).map(|sector| (Operation::WriteZeroes, sector)));
        let answers = guest.rings[0].wait_all();
        assert_eq!(answers.len(), 9);
        assert!(answers.iter().all(|answer| answer.status == OK));
        let asked = &volume.lock().unwrap().asked;
        let asked: Vec<_> = asked.iter().map(|one| (one.operation, one.start)).collect();
        assert_eq!(asked, expected);
        assert!(engine.host.counters(key(0)).full > 0);
    }
}

#[test]
fn a_write_is_durable_before_its_answer_when_the_cache_is_off() {
    for layout in LAYOUTS {
        // The guest switches; or it cannot flush; or the export begins so.
        for (switch, features, cache) in [
            (true, ALL_FEATURES, CacheMode::WriteBack),
            (
                false,
                ALL_FEATURES & !feature::FLUSH & !feature::CONFIG_WCE,
                CacheMode::WriteBack,
            ),
            (false, ALL_FEATURES, CacheMode::WriteThrough),
        ] {
            let (place, volume) = (place(), Volume::new(SECTORS));
            let profile = Profile {
                cache,
                ..profile(1)
            };
            let engine = Engine::start(settings(&place.path().join("s"), profile), &volume);
            let mut kind = Kind::new(layout, 1);
            kind.features = features;
            let mut guest = Guest::start(&engine.path, kind);
            if switch {
                guest.rings[0].write(900, &[1; 512]);
                assert_ne!(volume.lock().unwrap().durable[900 * 512], 1);
                guest.front_end().set_configuration(32, &[0]).unwrap();
                assert_eq!(guest.front_end().configuration(32, 1).unwrap(), [0]);
            }
            for mode in [Mode::Serve, Mode::Full(1)] {
                engine.host.set_mode(mode);
                for sector in 0..10u64 {
                    let bytes = pattern(sector + 7, 512);
                    guest.rings[0].write(sector, &bytes);
                    let at = usize::try_from(sector * 512).unwrap();
                    assert_eq!(volume.lock().unwrap().durable[at..at + 512], bytes);
                }
                let answer = guest.rings[0].ask(WRITE_ZEROES, 0, &ranges(&[(0, 1), (5, 1)]), 0);
                assert_eq!(answer.status, OK);
                assert_eq!(volume.lock().unwrap().durable[5 * 512], 0);
            }
            assert_eq!(engine.host.counters(key(0)).flushes_added, 22);
        }
    }
}

#[test]
fn with_the_cache_on_nothing_is_flushed_unasked() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    guest.rings[0].write(0, &[1; 512]);
    assert_eq!(volume.lock().unwrap().durable[0], 0);
    assert_eq!(guest.rings[0].ask(FLUSH, 0, &[], 0).status, OK);
    assert_eq!(volume.lock().unwrap().durable[0], 1);
    assert_eq!(engine.host.counters(key(0)).flushes_added, 0);
}

#[test]
fn a_failed_write_is_not_followed_by_a_flush() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let profile = Profile {
        cache: CacheMode::WriteThrough,
        ..profile(1)
    };
    let engine = Engine::start(settings(&place.path().join("s"), profile), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    engine.host.set_mode(Mode::Fail);
    assert_eq!(guest.rings[0].ask(OUT, 0, &[1; 512], 0).status, IOERR);
    assert_eq!(engine.host.counters(key(0)).flushes_added, 0);
}

#[test]
fn a_new_size_reaches_the_guest() {
    let (place, volume) = (place(), Volume::new(SECTORS * 2));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let mut channel = guest.front_end().open_channel().unwrap();
    let capacity = |guest: &Guest| {
        let bytes = guest.front_end().configuration(0, 8).unwrap();
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    assert_eq!(capacity(&guest), SECTORS);
    assert_eq!(guest.rings[0].ask(OUT, SECTORS, &[1; 512], 0).status, IOERR);

    engine.session().resize(SECTORS * 2);

    // CONFIG_CHANGE_MSG is number 2, version 1, no payload.
    let mut told = [0u8; 12];
    channel.read_exact(&mut told).unwrap();
    assert_eq!(told, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(capacity(&guest), SECTORS * 2);
    guest.rings[0].write(SECTORS, &[1; 512]);
    assert_eq!(engine.session().status().sectors, SECTORS * 2);
}

/// QEMU forgets what it is told while no ring runs.
#[test]
fn a_size_that_changed_while_no_ring_ran_is_told_when_one_does() {
    let (place, volume) = (place(), Volume::new(SECTORS * 2));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let mut channel = guest.front_end().open_channel().unwrap();
    let stop = |guest: &Guest| {
        let front_end = guest.front_end();
        let message = messages::GET_VRING_BASE;
        front_end.send(message, &[0; 8], &[]).unwrap();
        front_end.reply().unwrap();
    };
    // The answer comes after what the start has to say.
    let start_and_read = |guest: &Guest| {
        let (front_end, ring) = (guest.front_end(), &guest.rings[0]);
        let base = ring.driver.base();
        front_end
            .set_ring(0, &ring.driver, base, &ring.bells)
            .unwrap();
        front_end.configuration(0, 8).unwrap()
    };
    let mut told = [0u8; 12];
    stop(&guest);
    assert_eq!(start_and_read(&guest), SECTORS.to_le_bytes());
    stop(&guest);
    engine.session().resize(SECTORS * 2);
    channel.read_exact(&mut told).unwrap();
    assert_eq!(start_and_read(&guest), (SECTORS * 2).to_le_bytes());
    channel.set_nonblocking(true).unwrap();
    channel.read_exact(&mut told).unwrap();
    assert_eq!(told[0], 2);
    stop(&guest);
    assert_eq!(start_and_read(&guest), (SECTORS * 2).to_le_bytes());
    let error = channel.read_exact(&mut told).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it knows");
    guest.rings[0].write(SECTORS, &[1; 512]);
}

#[test]
fn a_front_end_that_does_not_read_its_channel_stops_nobody() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let _channel = guest.front_end().open_channel().unwrap();
    for _ in 0..100_000 {
        engine.session().resize(SECTORS);
    }
    guest.rings[0].write(0, &[1; 512]);
}

#[test]
fn any_part_of_the_configuration_can_be_read() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(4)), &volume);
    let guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let all = guest.front_end().configuration(0, 256).unwrap();
    assert_eq!(all[..8], SECTORS.to_le_bytes());
    assert_eq!(all[64..], [0; 192]);
    for (offset, length) in [(0, 60), (0, 8), (34, 2), (0, 64), (200, 56), (0, 1)] {
        let part = guest.front_end().configuration(offset, length).unwrap();
        let at = usize::try_from(offset).unwrap();
        assert_eq!(part, all[at..at + usize::try_from(length).unwrap()]);
    }
    assert!(guest.front_end().configuration(0, 257).is_err());
    assert_eq!(
        guest.front_end().configuration(0, 256).unwrap(),
        all,
        "still there"
    );
}

#[test]
fn stopping_a_ring_finishes_what_was_taken() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        guest.rings[0].write(99, &[9; 512]);
        engine.host.set_mode(Mode::Hold);
        for sector in 0..4 {
            guest.rings[0].send(OUT, sector, &[7; 512], 0);
        }
        engine.host.wait_held(4);
        let front_end = guest.front_end();
        front_end
            .send(messages::GET_VRING_BASE, &[0; 8], &[])
            .unwrap();
        engine.host.set_mode(Mode::Serve);
        let reply = front_end.reply().unwrap();
        assert_eq!(guest.rings[0].driver.in_flight(), 4);
        for _ in 0..4 {
            assert_eq!(guest.rings[0].reap().expect("finished").status, OK);
        }
        let base = guest.rings[0].driver.base();
        assert_eq!(reply.payload[4..], base.to_ne_bytes());
        assert_eq!(engine.host.running(), []);
        // And it goes on from there.
        guest.rings[0].send(OUT, 50, &[5; 512], 0);
        let ring = &guest.rings[0];
        let front_end = guest.front_end();
        front_end
            .set_ring(0, &ring.driver, base, &ring.bells)
            .unwrap();
        assert_eq!(guest.rings[0].wait().status, OK);
        assert_eq!(volume.lock().unwrap().bytes[50 * 512], 5);
    }
}

#[test]
fn a_disabled_ring_waits_and_goes_on_when_enabled() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 1));
        for round in 0..3u64 {
            guest.rings[0].write(round, &[1; 512]);
            guest.front_end().enable(0, false).unwrap();
            assert_eq!(engine.host.running(), []);
            guest.rings[0].send(OUT, 100 + round, &[2; 512], 0);
            assert!(guest.rings[0].reap().is_none());
            guest.front_end().enable(0, true).unwrap();
            assert_eq!(guest.rings[0].wait().status, OK);
        }
    }
}

#[test]
fn a_ring_without_kicks_is_polled_and_one_without_calls_is_not_called() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let front_end = guest.front_end();
    front_end
        .set_event(messages::SET_VRING_KICK, 0, None)
        .unwrap();
    front_end
        .set_event(messages::SET_VRING_CALL, 0, None)
        .unwrap();
    guest.rings[0].send(OUT, 1, &[1; 512], 0);
    // This host sleeps all the same; what counts is that the queue says so and serves when polled.
    engine.host.wait_idle();
    assert_eq!(guest.rings[0].reap().expect("served").status, OK);
    let call = guest.rings[0].bells.call.try_clone().unwrap();
    let _ = call.read();
    assert!(call.read().is_err(), "nobody calls");
    // A new call is rung at once, in case one was missed.
    let front_end = guest.front_end();
    front_end
        .set_event(messages::SET_VRING_CALL, 0, Some(&call))
        .unwrap();
    engine.host.wait_idle();
    assert_eq!(call.read().unwrap(), 1);
}

#[test]
fn memory_can_be_added_and_taken_back_while_requests_are_pending() {
    let (place, volume) = (place(), Volume::new(SECTORS));
    let engine = Engine::start(settings(&place.path().join("s"), profile(1)), &volume);
    let mut guest = Guest::start(&engine.path, Kind::new(Layout::Split, 1));
    let more = guest::Memory::new(1 << 20).unwrap();
    let base = 1 << 33;
    guest.front_end().add_memory(&more, base).unwrap();
    more.write(guest::Memory::START + 4096, &[6; 512]);
    guest.rings[0].send_at(OUT, 6, (base + 4096, 512, 0));
    assert_eq!(guest.rings[0].wait().status, OK);
    assert_eq!(volume.lock().unwrap().bytes[6 * 512], 6);

    engine.host.set_mode(Mode::Hold);
    guest.rings[0].send_at(IN, 6, (base + 8192, 0, 512));
    engine.host.wait_held(1);
    let (done, when_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let front_end = guest.front_end.as_ref().expect("connected");
        let more = &more;
        scope.spawn(move || {
            front_end.remove_memory(more, base).unwrap();
            done.send(()).unwrap();
        });
        while !engine
            .host
            .memory_changes()
            .contains(&MemoryChange::Removed)
        {
            std::thread::yield_now();
        }
        engine.host.wait_idle();
        assert!(
            when_done.try_recv().is_err(),
            "something still points there"
        );
        engine.host.set_mode(Mode::Serve);
        when_done.recv().unwrap();
    });
    assert_eq!(guest.rings[0].wait().status, OK);
    assert_eq!(more.read(guest::Memory::START + 8192, 512), [6; 512]);
    // What was taken back is not memory any more, which is this queue's own problem.
    guest.rings[0].send_at(IN, 6, (base + 8192, 0, 512));
    engine
        .host
        .wait_event(|event| matches!(event, SessionEvent::QueueBroken { .. }));
}

#[test]
fn all_memory_can_be_replaced_while_rings_run() {
    for layout in LAYOUTS {
        let (place, volume) = (place(), Volume::new(SECTORS));
        let engine = Engine::start(settings(&place.path().join("s"), profile(2)), &volume);
        let mut guest = Guest::start(&engine.path, Kind::new(layout, 2));
        for round in 0..5 {
            guest.rings[0].write(round, &[1; 512]);
            guest.front_end().set_memory(&guest.memory).unwrap();
            guest.rings[1].write(round, &[2; 512]);
        }
        assert_eq!(engine.host.running().len(), 2);
    }
}
