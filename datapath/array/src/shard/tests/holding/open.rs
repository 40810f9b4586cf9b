//! Members that fail for good while others are waited for.

use std::cell::Cell;

use block::{Operation, Status};
use units::{MemberIndex, StripeIndex};

use super::{
    GONE, HELD, LIMIT, OUT, SECOND, SERVES, STEP, WORKS, fail_with, live, serve, states, tell,
};
use crate::command::Command;
use crate::format::ArrayOptions;
use crate::geometry::Level;
use crate::io::{MemberFailure, MemberRequest};
use crate::map::MapState;
use crate::shard::tests::{Bench, Shape, member_of};

/// Members 0 and 2 are gone and waited for, and a flush of member 1 has failed.
fn one_has_lost_some() -> Bench {
    let mut bench = Bench::home(|_, _| {});
    fail_with(&mut bench, &[0, 2], GONE);
    live(&mut bench, SECOND, [GONE, WORKS, GONE]);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    tell(&mut bench, 1, Status::Media, false);
    bench.shard.stir();
    live(&mut bench, SECOND, [GONE, WORKS, GONE]);
    bench
}

#[test]
fn who_has_lost_some_is_left_out_when_those_that_were_away_are_back() {
    let mut bench = one_has_lost_some();
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    assert_eq!(bench.shard.map.hopeless, [false; 3], "it is open");
    live(&mut bench, SECOND, [WORKS, WORKS, GONE]);
    assert_eq!(
        states(&bench),
        [SERVES, SERVES, HELD],
        "nor with one of them"
    );
    live(&mut bench, SECOND, [WORKS; 3]);
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    assert!(!bench.shard.map.is_broken() && !bench.shard.map.read_only);
}

#[test]
fn who_has_lost_some_is_beyond_help_when_the_others_stay_away() {
    let mut bench = one_has_lost_some();
    let shared = &bench.shard.shared;
    assert!(!shared.is_flushed(MemberIndex(1), 0, Status::Media));
    live(&mut bench, LIMIT, [GONE, WORKS, GONE]);
    assert!(bench.shard.map.given_up);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    assert_eq!(bench.shard.map.hopeless, [false, true, false]);
    live(&mut bench, 3 * SECOND, [WORKS; 3]);
    let write = bench.ask(Operation::Write, 0, 1);
    live(&mut bench, STEP, [WORKS; 3]);
    assert_eq!(
        bench.verdict(write),
        Some(Status::Media),
        "it waits for nobody"
    );
}

#[test]
fn who_is_needed_when_the_others_are_back_is_beyond_help_at_once() {
    let mut bench = Bench::home(|_, _| {});
    bench.command(Command::Fail {
        member: MemberIndex(2),
    });
    fail_with(&mut bench, &[0], GONE);
    assert_eq!(states(&bench), [HELD, SERVES, OUT]);
    let shared = &bench.shard.shared;
    assert!(!shared.is_flushed(MemberIndex(1), 0, Status::Media));
    tell(&mut bench, 1, Status::Media, false);
    bench.shard.stir();
    bench.poll();
    assert_eq!(bench.shard.map.hopeless, [false, true, false]);
    let write = bench.ask(Operation::Write, 0, 1);
    live(&mut bench, STEP, [GONE, WORKS, WORKS]);
    assert_eq!(
        bench.verdict(write),
        Some(Status::Media),
        "it waits for nobody"
    );
}

#[test]
fn whose_record_fails_for_good_is_left_out_when_those_that_were_away_are_back() {
    let mut bench = Bench::home(|_, _| {});
    fail_with(&mut bench, &[0, 2], GONE);
    live(&mut bench, SECOND, [GONE, WORKS, GONE]);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    // They take the record, but do not answer looks as yet.
    let away = |request: &MemberRequest| match (request.drive.at(), request.operation) {
        (1, Operation::Flush) => Status::Media,
        (0 | 2, Operation::Read) => GONE,
        (_, _) => WORKS,
    };
    let options = Command::Options(ArrayOptions::default());
    bench.shard.command(3, options);
    serve(&mut bench, SECOND, away);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    assert!(!bench.is_done() && !bench.shard.map.is_torn(StripeIndex(0)));
    serve(&mut bench, 3 * SECOND, |request| match request.operation {
        Operation::Read => WORKS,
        Operation::Write | Operation::Flush | Operation::Discard | Operation::WriteZeroes => {
            away(request)
        }
    });
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    assert!(bench.is_done() && !bench.shard.map.read_only);
}

#[test]
fn who_can_come_back_is_waited_for_when_another_one_has_to_be_left_out() {
    const LOST: (u16, Status, bool) = (1, Status::Media, false);
    for failures in [
        &[(0, GONE, true), LOST][..],
        &[LOST, (0, GONE, true)],
        &[(0, GONE, true), (2, GONE, true), LOST],
        &[LOST, (0, GONE, true), (2, GONE, true)],
        &[(0, GONE, true), LOST, (2, GONE, true)],
    ] {
        let mut bench = Bench::home(|_, _| {});
        for &(member, status, passing) in failures {
            tell(&mut bench, member, status, passing);
        }
        bench.shard.stir();
        let mut says = [GONE, WORKS, WORKS];
        if failures.len() > 2 {
            says[2] = GONE;
        }
        live(&mut bench, SECOND, says);
        let others = if failures.len() > 2 { HELD } else { SERVES };
        assert_eq!(states(&bench), [HELD, SERVES, others], "{failures:?}");
        assert_eq!(bench.shard.map.hopeless, [false; 3]);
        live(&mut bench, SECOND, [WORKS; 3]);
        assert_eq!(states(&bench), [SERVES, OUT, SERVES], "{failures:?}");
        assert!(!bench.shard.map.is_broken() && !bench.shard.map.read_only);
    }
}

#[test]
fn a_record_waits_for_who_can_come_back_when_another_one_has_to_be_left_out() {
    for order in [[0, 1], [1, 0]] {
        let mut bench = Bench::home(|_, _| {});
        let options = Command::Options(ArrayOptions::default());
        bench.shard.command(3, options);
        bench.poll();
        while bench.is_asked(Operation::Write).is_empty() {
            let flush = bench.outside.asked[0];
            bench.answer(flush.drive.at(), Operation::Flush, WORKS);
            bench.poll();
        }
        for drive in order {
            let status = [GONE, Status::OutOfRange][drive];
            bench.answer(drive, Operation::Write, status);
        }
        let takes_no_record =
            |request: &MemberRequest, away: Status| match (request.drive.at(), request.operation) {
                (0, _) => away,
                (1, Operation::Write) => Status::OutOfRange,
                (_, _) => WORKS,
            };
        serve(&mut bench, SECOND, |one| takes_no_record(one, GONE));
        assert_eq!(states(&bench), [HELD, SERVES, SERVES], "{order:?}");
        assert!(!bench.is_done() && !bench.shard.map.read_only);
        serve(&mut bench, 3 * SECOND, |one| takes_no_record(one, WORKS));
        assert_eq!(states(&bench), [SERVES, OUT, SERVES], "{order:?}");
        assert!(bench.is_done());
    }
}

#[test]
fn who_is_bad_for_good_in_another_group_is_left_out_meanwhile() {
    let shape = Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    let away = [GONE, WORKS, GONE, WORKS, WORKS, WORKS];
    fail_with(&mut bench, &[0, 2], GONE);
    live(&mut bench, SECOND, away);
    for member in [1, 4] {
        tell(&mut bench, member, Status::Media, false);
    }
    bench.shard.stir();
    live(&mut bench, SECOND, away);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    assert_eq!(bench.shard.map.members[4].state, MapState::Lost);
    assert_eq!(bench.shard.map.hopeless, [false; 6], "it is open");
    live(&mut bench, SECOND, [WORKS; 6]);
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
}

#[test]
fn who_was_late_while_others_were_away_and_answers_again_is_not_left_out() {
    let mut bench = Bench::home(|_, _| {});
    fail_with(&mut bench, &[0, 2], GONE);
    live(&mut bench, SECOND, [GONE, WORKS, GONE]);
    bench.shard.coordinate_failure(MemberFailure {
        member: MemberIndex(1),
        incarnation: 0,
        status: GONE,
        late: true,
        passing: false,
    });
    bench.shard.stir();
    live(&mut bench, 10 * SECOND, [GONE, WORKS, GONE]);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    live(&mut bench, 5 * SECOND, [WORKS; 3]);
    assert_eq!(states(&bench), [SERVES; 3]);
}

const AWAY: [Status; 5] = [GONE, WORKS, GONE, WORKS, WORKS];

/// Of five members of level 5, 0 and 2 are gone and waited for, and a flush of member 1 has failed.
fn one_of_five_has_lost_some() -> Bench {
    let shape = Shape {
        level: Level::L5,
        members: 5,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    let write = bench.write_stripe(0);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    fail_with(&mut bench, &[0, 2], GONE);
    live(&mut bench, SECOND, AWAY);
    let shared = &bench.shard.shared;
    assert!(!shared.is_flushed(MemberIndex(1), 0, Status::Media));
    tell(&mut bench, 1, Status::Media, false);
    bench.shard.stir();
    live(&mut bench, SECOND, AWAY);
    bench
}

/// A block of a chunk on `member`, in a stripe whose parity is on member 4.
fn block_on(bench: &Bench, member: usize) -> u64 {
    let geometry = &bench.shard.map.geometry;
    let is_it = |stripe: &u64| member_of(bench, *stripe, 4) == 4;
    let stripe = (0..5).find(is_it).expect("parity goes around");
    let role = (0..4).find(|&role| member_of(bench, stripe, role) == member);
    let chunk = geometry.chunk_bytes() / 512;
    stripe * u64::from(geometry.stripe_blocks()) + u64::from(role.expect("data")) * chunk
}

#[test]
fn nothing_is_made_of_what_a_member_holds_that_may_have_lost_some() {
    let mut bench = one_of_five_has_lost_some();
    let write = bench.ask(Operation::Write, block_on(&bench, 3), 1);
    bench.poll();
    assert_eq!(bench.outside.asked.len(), 0, "it waits");
    let read = bench.ask(Operation::Read, block_on(&bench, 1), 1);
    live(&mut bench, SECOND, AWAY);
    let works = Some(Status::Ok);
    assert_eq!((bench.verdict(read), bench.verdict(write)), (works, None));
    let asked = Cell::new(0);
    let data = bench.shard.map.members[1].data_offset;
    serve(&mut bench, 3 * SECOND, |request| {
        let is_data = request.operation != Operation::Flush && request.offset >= data;
        let of_1 = request.drive.at() == 1 && is_data;
        asked.set(asked.get() + u32::from(of_1));
        WORKS
    });
    assert_eq!(asked.get(), 0, "nor in the moment before it is out");
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    assert_eq!(bench.verdict(write), works);
}

#[test]
fn nothing_is_reconstructed_from_a_member_that_may_have_lost_some_and_is_about_to_be_left_out() {
    for fails in [false, true] {
        let shape = Shape {
            level: Level::L5,
            members: 5,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        if fails {
            let shared = &bench.shard.shared;
            assert!(!shared.is_flushed(MemberIndex(1), 0, Status::Media));
        }
        let serial = bench.install(|_| {});
        bench.make_effective(serial);
        let read = bench.ask(Operation::Read, block_on(&bench, 3), 1);
        bench.poll();
        while let Some(next) = bench.outside.asked.first().copied() {
            let reads = (next.drive.at(), next.operation) == (3, Operation::Read);
            let is_bad = reads && next.offset >= bench.shard.map.members[3].data_offset;
            let status = if is_bad { Status::Media } else { WORKS };
            bench.answer(next.drive.at(), next.operation, status);
            bench.poll();
        }
        let expected = if fails { None } else { Some(Status::Ok) };
        assert_eq!(bench.verdict(read), expected);
    }
}

#[test]
fn a_group_whose_member_may_have_lost_some_waits_for_the_record_that_waits_for_another_group() {
    let shape = Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    let write = bench.write_stripe(1);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    fail_with(&mut bench, &[0, 2], GONE);
    let away = |request: &MemberRequest| match request.drive.at() {
        0 | 2 => GONE,
        _ => WORKS,
    };
    serve(&mut bench, SECOND, away);
    let shared = &bench.shard.shared;
    assert!(!shared.is_flushed(MemberIndex(4), 0, Status::Media));
    tell(&mut bench, 4, Status::Media, false);
    bench.shard.stir();
    let write = bench.write_stripe(1);
    serve(&mut bench, SECOND, away);
    assert_eq!(bench.shard.map.members[4].state, MapState::InSync);
    assert_eq!(
        bench.verdict(write),
        None,
        "parity would be of what it lost"
    );
    serve(&mut bench, LIMIT, away);
    assert!(bench.shard.map.given_up);
    assert_eq!(bench.verdict(write), Some(Status::Ok), "not for ever");
    serve(&mut bench, 3 * SECOND, |_| WORKS);
    assert_eq!(bench.shard.map.members[4].state, MapState::Lost);
}

#[test]
fn where_nobody_can_be_done_without_nothing_waits_for_who_has_failed_a_flush() {
    for (level, members) in [(Level::L0, 3), (Level::L5, 3)] {
        let shape = Shape {
            level,
            members,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        if level == Level::L5 {
            bench.command(Command::Fail {
                member: MemberIndex(2),
            });
        }
        bench.write_stripe(0);
        bench.answer_all();
        let shared = &bench.shard.shared;
        assert!(!shared.is_flushed(MemberIndex(1), 0, Status::Media));
        let serial = bench.install(|_| {});
        bench.make_effective(serial);
        let write = bench.write_stripe(0);
        bench.answer_all();
        assert_eq!(bench.verdict(write), Some(Status::Ok), "{level:?}");
    }
}
