//! Members that fail while a record waits for another one.

use block::{Operation, Status};
use units::MemberIndex;

use super::{
    GONE, HELD, LIMIT, OUT, SECOND, SERVES, STEP, WORKS, all_but_7, fail, fail_with, holding,
    holding_one_that_is_filled, live, new_drive, serve, states, tell,
};
use crate::command::Command;
use crate::format::ArrayOptions;
use crate::geometry::Level;
use crate::io::{MemberFailure, MemberRequest};
use crate::shard::tests::{Bench, Shape};

/// Whether this is the write of a record.
fn is_record(bench: &Bench, request: &MemberRequest) -> bool {
    let data = bench.shard.map.members[0].data_offset;
    request.operation == Operation::Write && request.offset < data
}

/// Drive 0 takes no writes for want of space.
fn full_0(request: &MemberRequest) -> Status {
    match (request.drive.at(), request.operation) {
        (0, Operation::Write) => Status::NoSpace,
        (_, _) => WORKS,
    }
}

/// A record waits for member 0, on drive 0.
fn waiting_for_a_full_one() -> Bench {
    let mut bench = holding(&[0]);
    let options = Command::Options(ArrayOptions::default());
    bench.shard.command(3, options);
    serve(&mut bench, SECOND, full_0);
    assert!(!bench.is_done(), "it waits for who is full");
    bench
}

#[test]
fn who_is_being_filled_and_stays_away_keeps_no_record_waiting() {
    let mut bench = holding_one_that_is_filled();
    bench
        .shard
        .command(2, Command::Options(ArrayOptions::default()));
    serve(&mut bench, 4 * SECOND, all_but_7);
    assert!(bench.is_done(), "it is recorded");
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    assert_eq!(bench.shard.hold_status(), None);
    assert!(!bench.shard.knows_of_gone(MemberIndex(1)));
}

#[test]
fn who_fails_while_a_record_waits_for_another_is_waited_for_with_him() {
    // Each of the two could be left out, and not both.
    for has_recorded in [false, true] {
        let mut bench = holding_one_that_is_filled();
        let mut says = [WORKS; 8];
        says[7] = GONE;
        let options = || Command::Options(ArrayOptions::default());
        if has_recorded {
            live(&mut bench, SECOND, says);
            bench.shard.command(2, options());
            live(&mut bench, STEP, says);
            assert!(bench.is_done());
        } else {
            serve(&mut bench, SECOND, all_but_7);
        }
        bench.outside.events.clear();
        bench.shard.command(3, options());
        serve(&mut bench, STEP, all_but_7);
        assert!(!bench.is_done(), "it waits for the new drive");
        fail_with(&mut bench, &[0, 2], GONE);
        serve(&mut bench, 5 * SECOND, all_but_7);
        assert!(bench.is_done());
        assert_eq!(states(&bench), [SERVES, OUT, SERVES], "{has_recorded}");
        assert_eq!(bench.shard.hold_status(), None);
    }
}

#[test]
fn whose_record_fails_while_it_waits_for_another_is_waited_for_with_him() {
    // Who else is told of by others, and what the record of which drives comes to once.
    for (told, drives) in [
        (&[][..], &[0, 2][..]),
        (&[0, 2], &[0, 2]),
        (&[2], &[0]),
        (&[0], &[2]),
    ] {
        let mut bench = holding_one_that_is_filled();
        serve(&mut bench, SECOND, all_but_7);
        bench.outside.events.clear();
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        bench.poll();
        let mut once = drives.to_vec();
        while let Some(next) = bench.outside.asked.first().copied() {
            let at = once.iter().position(|&drive| drive == next.drive.at());
            let fails = at.filter(|_| is_record(&bench, &next));
            let status = fails.map_or_else(|| all_but_7(&next), |_| GONE);
            fails.map(|at| once.swap_remove(at));
            bench.answer(next.drive.at(), next.operation, status);
            bench.poll();
        }
        assert!(once.is_empty() && !bench.is_done());
        fail_with(&mut bench, told, GONE);
        serve(&mut bench, 5 * SECOND, all_but_7);
        assert!(bench.is_done(), "{told:?} {drives:?}");
        assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
        assert_eq!(bench.shard.hold_status(), None);
    }
}

#[test]
fn who_has_not_taken_a_record_takes_it_although_the_others_are_flushed() {
    let mut bench = holding_one_that_is_filled();
    serve(&mut bench, SECOND, all_but_7);
    let options = Command::Options(ArrayOptions::default());
    bench.shard.command(3, options);
    bench.poll();
    // Drive 0 does not take the record, drive 2 not flush it; 7 takes it and flushes it not.
    let mut has_taken = [false; 8];
    let mut refuses = [true, false, true];
    while let Some(next) = bench.outside.asked.first().copied() {
        let drive = next.drive.at();
        let writes = is_record(&bench, &next);
        let fails = match drive {
            0 => writes && std::mem::take(&mut refuses[0]),
            2 => !writes && has_taken[2] && std::mem::take(&mut refuses[2]),
            _ => next.operation == Operation::Read || (!writes && has_taken[7]),
        };
        has_taken[drive] |= writes && !fails;
        bench.answer(drive, next.operation, if fails { GONE } else { WORKS });
        bench.poll();
    }
    assert_eq!(states(&bench)[1], HELD);
    assert!(has_taken[0], "the record waits for another still");
    serve(&mut bench, 5 * SECOND, all_but_7);
    assert!(bench.is_done());
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
}

#[test]
fn who_fails_while_a_record_waits_for_a_full_one_is_waited_for_too() {
    let mut bench = waiting_for_a_full_one();
    bench.shard.coordinate_failure(MemberFailure {
        member: MemberIndex(1),
        incarnation: 0,
        status: GONE,
        late: true,
        passing: true,
    });
    serve(&mut bench, STEP, full_0);
    assert_eq!(
        states(&bench),
        [HELD, SERVES, SERVES],
        "it is slow, no more"
    );
    bench.shard.decider().failures.clear();
    fail_with(&mut bench, &[1], GONE);
    assert_eq!(states(&bench), [HELD, HELD, SERVES]);
    serve(&mut bench, SECOND, full_0);
    assert_eq!(states(&bench), [HELD, SERVES, SERVES]);
    serve(&mut bench, LIMIT, full_0);
    assert_eq!(states(&bench), [OUT, SERVES, SERVES]);
}

#[test]
fn a_failure_for_good_beside_one_that_passes_ends_no_array() {
    for reversed in [false, true] {
        let mut bench = holding(&[]);
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        bench.poll();
        while bench.is_asked(Operation::Write).is_empty() {
            let next = bench.outside.asked[0];
            bench.answer(next.drive.at(), next.operation, WORKS);
            bench.poll();
        }
        let mut failures = [(1, Status::Media, false), (2, GONE, true)];
        if reversed {
            failures.reverse();
        }
        for (member, status, passing) in failures {
            tell(&mut bench, member, status, passing);
        }
        bench.shard.stir();
        bench.poll();
        serve(&mut bench, 5 * SECOND, |request| {
            match (request.drive.at(), request.operation) {
                (1, Operation::Flush) => Status::Media,
                (_, _) => WORKS,
            }
        });
        assert_eq!(states(&bench), [SERVES, OUT, SERVES], "{reversed}");
        assert!(!bench.shard.map.read_only && !bench.shard.map.is_broken());
    }
}

#[test]
fn a_failure_for_good_is_not_made_hopeless_by_waiting_for_another() {
    for is_given_up in [false, true] {
        let shape = Shape {
            level: Level::L6,
            members: 5,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        bench.command(Command::Fail {
            member: MemberIndex(4),
        });
        fail(&mut bench, &[0]);
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        let works = |request: &MemberRequest| match (request.drive.at(), request.operation) {
            (1, Operation::Flush) => Status::Media,
            (_, _) => WORKS,
        };
        let fails = |request: &MemberRequest| match (request.drive.at(), request.operation) {
            (0, Operation::Write) => Status::NoSpace,
            (2, Operation::Read) => GONE,
            (_, _) => works(request),
        };
        serve(&mut bench, if is_given_up { LIMIT } else { STEP }, fails);
        tell(&mut bench, 1, Status::Media, false);
        tell(&mut bench, 2, GONE, true);
        bench.shard.stir();
        serve(&mut bench, SECOND, fails);
        // Of a hold that was given up nothing is open.
        let gone = if is_given_up { SERVES } else { HELD };
        assert_eq!(states(&bench), [HELD, SERVES, gone]);
        assert_eq!(bench.shard.map.given_up, is_given_up);
        serve(&mut bench, 5 * SECOND, works);
        assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
        assert!(!bench.shard.map.is_broken() && !bench.shard.map.read_only);
    }
}

#[test]
fn who_fails_under_a_record_is_no_help_to_his_group_while_the_record_waits_for_another() {
    for (level, members, is_out) in [(Level::L5, 3, false), (Level::L6, 5, true)] {
        let shape = Shape {
            level,
            members,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        fail(&mut bench, &[0]);
        let options = ArrayOptions {
            latency_target_us: 777,
            ..ArrayOptions::default()
        };
        bench.shard.command(2, Command::Options(options));
        bench.poll();
        while bench.is_asked(Operation::Write).is_empty() {
            let flush = bench.outside.asked[0];
            bench.answer(flush.drive.at(), Operation::Flush, WORKS);
            bench.poll();
        }
        let says = |request: &MemberRequest| match (request.drive.at(), request.operation) {
            (0, Operation::Write) => Status::NoSpace,
            (1, Operation::Write) => Status::ReadOnly,
            (_, _) => WORKS,
        };
        serve(&mut bench, LIMIT + STEP, says);
        let [full, failed, _] = states(&bench);
        let expected = if is_out { (OUT, OUT) } else { (HELD, HELD) };
        assert_eq!((full, failed), expected, "{level:?}");
    }
}

#[test]
fn who_is_being_filled_or_out_by_the_record_bars_nobody_from_being_waited_for() {
    for is_out in [false, true] {
        let shape = Shape {
            level: Level::L1,
            members: 4,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        new_drive(&mut bench);
        fail_with(&mut bench, &[1, 2, 0, 3], GONE);
        serve(&mut bench, SECOND, all_but_7);
        assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
        bench.outside.events.clear();
        // A record waits for the new drive, by which member 0 is out, or not.
        if is_out {
            tell(&mut bench, 0, Status::Media, false);
            bench.shard.stir();
        } else {
            let options = Command::Options(ArrayOptions::default());
            bench.shard.command(3, options);
        }
        serve(&mut bench, STEP, all_but_7);
        assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
        // Whose requests go on failing.
        tell(&mut bench, u16::from(!is_out), Status::Media, false);
        for member in [0, 2, 3] {
            tell(&mut bench, member, GONE, true);
        }
        bench.shard.stir();
        bench.poll();
        bench.poll();
        assert!(bench.shard.map.held[2] && bench.shard.map.held[3]);
        serve(&mut bench, 5 * SECOND, all_but_7);
        let first = if is_out { OUT } else { SERVES };
        assert_eq!(states(&bench), [first, OUT, SERVES]);
        assert_eq!(bench.shard.hold_status(), None);
    }
}

#[test]
fn who_fails_while_a_record_waits_for_nobody_is_left_out() {
    for is_told in [false, true] {
        let mut bench = Bench::home(|_, _| {});
        let data = bench.shard.map.members[0].data_offset;
        // It takes records, and nothing of guests.
        let full = |request: &MemberRequest| {
            let is_data = request.operation == Operation::Write && request.offset >= data;
            if request.drive.at() == 0 && is_data {
                Status::NoSpace
            } else {
                WORKS
            }
        };
        bench.write_stripe(0);
        serve(&mut bench, SECOND, full);
        assert_eq!(states(&bench), [HELD, SERVES, SERVES]);
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        bench.poll();
        if is_told {
            fail_with(&mut bench, &[1], GONE);
        }
        serve(&mut bench, SECOND, |request| match request.drive.at() {
            1 => GONE,
            _ => full(request),
        });
        assert_eq!(states(&bench), [HELD, OUT, SERVES]);
        assert!(bench.is_done());
    }
}

#[test]
fn who_is_being_filled_is_let_go_at_the_limit_whoever_else_fails() {
    for reversed in [false, true] {
        let mut bench = holding_one_that_is_filled();
        serve(&mut bench, SECOND, all_but_7);
        bench.outside.events.clear();
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        serve(&mut bench, STEP, all_but_7);
        let mut failures = [(0, Status::Media, false), (2, GONE, true)];
        if reversed {
            failures.reverse();
        }
        for (member, status, passing) in failures {
            tell(&mut bench, member, status, passing);
        }
        bench.shard.stir();
        serve(&mut bench, LIMIT, all_but_7);
        assert!(bench.is_done(), "{reversed}");
        assert!(!bench.shard.map.read_only && !bench.shard.map.given_up);
        assert_eq!(states(&bench)[1], OUT);
        assert_eq!(bench.shard.hold_status(), None);
    }
}

#[test]
fn who_is_held_and_fails_for_good_is_not_made_hopeless_by_waiting_for_another() {
    let mut bench = waiting_for_a_full_one();
    // A flush of it has failed besides.
    tell(&mut bench, 0, Status::Media, false);
    tell(&mut bench, 2, GONE, true);
    bench.shard.stir();
    serve(&mut bench, SECOND, full_0);
    assert_eq!(states(&bench), [HELD, SERVES, SERVES]);
    assert_eq!(bench.shard.map.hopeless, [false; 3]);
}
