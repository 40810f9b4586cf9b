//! Members that fail for good while others are waited for.

use block::{Operation, Status};
use units::{MemberIndex, StripeIndex};

use super::{GONE, HELD, LIMIT, OUT, SECOND, SERVES, WORKS, fail_with, live, serve, states, tell};
use crate::command::Command;
use crate::format::ArrayOptions;
use crate::geometry::Level;
use crate::io::{MemberFailure, MemberRequest};
use crate::map::MapState;
use crate::shard::tests::{Bench, Shape};

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
    live(&mut bench, LIMIT, [GONE, WORKS, GONE]);
    assert!(bench.shard.map.given_up);
    assert_eq!(states(&bench), [HELD, SERVES, HELD]);
    assert_eq!(bench.shard.map.hopeless, [false, true, false]);
}

#[test]
fn who_is_needed_when_the_others_are_back_is_beyond_help_at_once() {
    let mut bench = Bench::home(|_, _| {});
    bench.command(Command::Fail {
        member: MemberIndex(2),
    });
    fail_with(&mut bench, &[0], GONE);
    assert_eq!(states(&bench), [HELD, SERVES, OUT]);
    tell(&mut bench, 1, Status::Media, false);
    bench.shard.stir();
    bench.poll();
    assert_eq!(bench.shard.map.hopeless, [false, true, false]);
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
