//! How long the home waits for members, of two that are gone or of one.

mod beside;
mod open;

use std::time::Duration;

use block::{Operation, Status};
use units::{Instant, MemberIndex};

use super::handover::follow;
use super::returning::replace;
use super::{Bench, OTHER, Shape};
use crate::command::Command;
use crate::format::ArrayOptions;
use crate::geometry::Level;
use crate::io::{Event, MemberFailure, MemberRequest, Message};
use crate::map::MapState;
use crate::shard::HoldStatus;

const STEP: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
/// As options say by themselves.
const LIMIT: Duration = Duration::from_secs(60);
const GONE: Status = Status::Gone;
const WORKS: Status = Status::Ok;

/// A home two or fewer of whose members have no space left.
fn holding(members: &[u16]) -> Bench {
    let mut bench = Bench::home(|_, _| {});
    assert_eq!(bench.shard.hold_status(), None);
    fail(&mut bench, members);
    bench
}

fn fail(bench: &mut Bench, members: &[u16]) {
    fail_with(bench, members, Status::NoSpace);
}

fn fail_with(bench: &mut Bench, members: &[u16], status: Status) {
    for &member in members {
        tell(bench, member, status, true);
    }
    bench.shard.stir();
    bench.poll();
}

/// The home is told of a failure, and has not looked at it yet.
fn tell(bench: &mut Bench, member: u16, status: Status, passing: bool) {
    let member = MemberIndex(member);
    bench.shard.coordinate_failure(MemberFailure {
        member,
        incarnation: bench.shard.map.members[member.at()].incarnation,
        status,
        late: false,
        passing,
    });
}

/// So much time passes, in which drives say this to reads, and take all else.
fn live(bench: &mut Bench, time: Duration, says: impl AsRef<[Status]>) {
    serve(bench, time, |request| {
        if request.operation == Operation::Read {
            says.as_ref()[request.drive.at()]
        } else {
            WORKS
        }
    });
}

/// So much time passes, in which requests come to this.
fn serve(bench: &mut Bench, time: Duration, says: impl Fn(&MemberRequest) -> Status) {
    let end = bench.outside.now + time;
    while bench.outside.now < end {
        bench.pass(STEP);
        while let Some(next) = bench.outside.asked.first().copied() {
            bench.answer(next.drive.at(), next.operation, says(&next));
            bench.poll();
        }
    }
}

/// All work but the drive of member 1, the new one.
fn all_but_7(request: &MemberRequest) -> Status {
    if request.drive.at() == 7 { GONE } else { WORKS }
}

fn states(bench: &Bench) -> [(bool, bool); 3] {
    [0, 1, 2].map(|at| {
        let is_out = bench.shard.map.members[at].state == MapState::Lost;
        (bench.shard.map.held[at], is_out)
    })
}

const SERVES: (bool, bool) = (false, false);
const HELD: (bool, bool) = (true, false);
const OUT: (bool, bool) = (false, true);

fn since(bench: &Bench) -> Instant {
    bench.shard.hold_status().expect("it waits").since
}

#[test]
fn who_cannot_be_done_without_is_given_up_at_the_limit_and_comes_back_whenever_he_works() {
    let mut bench = holding(&[1, 0]);
    let begun = bench.outside.now;
    let members = [1, 0].map(|member| (MemberIndex(member), Status::NoSpace));
    let mut status = HoldStatus {
        since: begun,
        until: begun + LIMIT,
        given_up: false,
        members: members.to_vec(),
    };
    assert_eq!(bench.shard.hold_status().as_ref(), Some(&status));
    live(&mut bench, LIMIT - STEP, [GONE, GONE, WORKS]);
    assert_eq!(bench.shard.hold_status().as_ref(), Some(&status));
    assert!(!bench.shard.map.given_up);
    live(&mut bench, STEP, [GONE, GONE, WORKS]);
    status.given_up = true;
    assert_eq!(bench.shard.hold_status().as_ref(), Some(&status));
    assert!(bench.shard.map.given_up);
    live(&mut bench, LIMIT, [GONE, GONE, WORKS]);
    assert_eq!(states(&bench), [HELD, HELD, SERVES], "nobody is left out");
    let timed_out = |event: &&Event| matches!(event, Event::HoldTimedOut { .. });
    assert_eq!(bench.outside.events.iter().filter(timed_out).count(), 1);
    live(&mut bench, SECOND, [WORKS; 3]);
    assert_eq!(states(&bench), [SERVES; 3]);
    assert_eq!(bench.shard.hold_status(), None);
    assert!(!bench.shard.map.given_up);
    // So soon it is the same hold, and its time is over.
    fail(&mut bench, &[0, 1]);
    assert_eq!(since(&bench), begun);
    live(&mut bench, STEP, [GONE, GONE, WORKS]);
    assert!(bench.shard.map.given_up);
    live(&mut bench, SECOND, [WORKS; 3]);
    live(&mut bench, 10 * SECOND, [WORKS; 3]);
    let again = bench.outside.now;
    fail(&mut bench, &[0, 1]);
    assert_eq!(since(&bench), again, "this is another one");
}

#[test]
fn who_stays_away_when_others_have_come_back_is_left_out_two_seconds_later() {
    let mut bench = holding(&[0, 1]);
    live(&mut bench, SECOND, [GONE, GONE, WORKS]);
    assert_eq!(states(&bench), [HELD, HELD, SERVES]);
    live(&mut bench, 5 * STEP, [WORKS, GONE, WORKS]);
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    live(&mut bench, 14 * STEP, [WORKS, GONE, WORKS]);
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    live(&mut bench, 6 * STEP, [WORKS, GONE, WORKS]);
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    assert_eq!(bench.shard.hold_status(), None);
    let config = &bench.shard.coordinator().expect("home").config;
    let crate::format::MemberState::Excluded { cause, .. } = config.members[1].state else {
        panic!("it is out: {config:?}");
    };
    assert_eq!(cause, crate::format::ExclusionCause::NoSpace);
}

/// Three mirrors.
fn mirrors() -> Bench {
    let shape = Shape {
        level: Level::L1,
        ..Shape::default()
    };
    Bench::home_of(shape, |_, _| {})
}

/// Three mirrors of which member 1 has a new drive.
fn with_a_new_drive() -> Bench {
    let mut bench = mirrors();
    new_drive(&mut bench);
    bench
}

/// Member 1 has a new drive, number 7, of which nothing is filled yet.
fn new_drive(bench: &mut Bench) {
    bench.command(Command::Passes { run: false });
    bench.command(Command::Fail {
        member: MemberIndex(1),
    });
    bench.command(replace(None));
    bench.outside.events.clear();
}

/// All of them are gone.
fn holding_one_that_is_filled() -> Bench {
    let mut bench = with_a_new_drive();
    fail_with(&mut bench, &[1, 2, 0], GONE);
    assert_eq!(states(&bench), [HELD; 3]);
    bench
}

#[test]
fn who_is_being_filled_is_waited_for_whatever_is_recorded_meanwhile() {
    let mut bench = holding_one_that_is_filled();
    let filled = MemberIndex(1);
    let mut says = [WORKS; 8];
    says[7] = GONE;
    live(&mut bench, SECOND, says);
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    bench
        .shard
        .command(2, Command::Options(ArrayOptions::default()));
    live(&mut bench, STEP, says);
    assert!(bench.is_done(), "it is recorded");
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    assert!(bench.shard.knows_of_gone(filled));
    live(&mut bench, SECOND, [WORKS; 8]);
    assert_eq!(states(&bench), [SERVES; 3]);
    assert_eq!(bench.shard.hold_status(), None);
    assert!(!bench.shard.knows_of_gone(filled), "it works, as was seen");
}

#[test]
fn a_stop_leaves_nobody_out_where_another_may_have_lost_something() {
    let mut bench = holding_one_that_is_filled();
    serve(&mut bench, SECOND, all_but_7);
    let mut map = bench.shard.successor();
    map.hopeless[2] = true;
    bench.set_map(map);
    bench.shard.command(2, Command::Stop);
    serve(&mut bench, STEP, all_but_7);
    assert!(bench.shard.map.read_only);
    assert_eq!(states(&bench), [SERVES; 3]);
}

#[test]
fn a_stop_leaves_out_who_is_waited_for_and_not_needed() {
    let mut bench = holding_one_that_is_filled();
    serve(&mut bench, SECOND, all_but_7);
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    bench.shard.command(2, Command::Stop);
    serve(&mut bench, STEP, all_but_7);
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    let coordinator = bench.shard.coordinator().expect("home");
    assert!(coordinator.config.clean && !bench.shard.map.read_only);
}

/// The host of member 1 has no space, on this drive, when these others go away under a write; it
/// answers, and takes records. After a time the drives that are `back` work. What becomes of all.
fn full_beside(
    mut bench: Bench,
    (drive, others): (usize, &[usize]),
    (after, back): (Duration, &[usize]),
) -> (Bench, Option<Status>) {
    let stripe = bench.shard.map.geometry.stripe_blocks();
    let warm = bench.ask(Operation::Write, 0, stripe);
    bench.answer_all();
    assert_eq!(bench.verdict(warm), Some(WORKS));
    bench.ask(Operation::Write, 0, stripe);
    bench.poll();
    bench.answer(drive, Operation::Write, Status::NoSpace);
    for &other in others {
        bench.answer(other, Operation::Write, GONE);
    }
    bench.poll();
    let data = bench.shard.map.members[1].data_offset;
    let says = |request: &MemberRequest, works: &[usize]| match request.drive.at() {
        at if at != drive => {
            if works.contains(&at) {
                WORKS
            } else {
                GONE
            }
        }
        _ if request.operation == Operation::Write && request.offset >= data => Status::NoSpace,
        _ => WORKS,
    };
    serve(&mut bench, after, |request| says(request, &[]));
    let [first, _, third] = states(&bench);
    assert_eq!([first, third], [HELD; 2]);
    serve(&mut bench, 5 * SECOND, |request| says(request, back));
    let write = bench.ask(Operation::Write, 0, stripe);
    serve(&mut bench, SECOND, |request| says(request, back));
    let verdict = bench.verdict(write);
    (bench, verdict)
}

#[test]
fn who_is_being_filled_and_full_is_let_go_as_soon_as_others_work() {
    for after in [SECOND, LIMIT + SECOND] {
        let mut bench = with_a_new_drive();
        fill(&mut bench, 8);
        let (bench, verdict) = full_beside(bench, (7, &[2, 0]), (after, &[0]));
        assert_eq!(states(&bench), [SERVES, OUT, OUT], "{after:?}");
        assert_eq!(bench.shard.hold_status(), None);
        assert_eq!(verdict, Some(WORKS));
    }
}

#[test]
fn whose_host_is_full_is_waited_for_once() {
    for (after, state) in [(SECOND, HELD), (LIMIT + SECOND, OUT)] {
        let shape = Shape {
            level: Level::L6,
            members: 4,
            ..Shape::default()
        };
        let bench = Bench::home_of(shape, |_, _| {});
        let (mut bench, verdict) = full_beside(bench, (1, &[0, 2, 3]), (after, &[0, 2, 3]));
        assert_eq!(states(&bench), [SERVES, state, SERVES]);
        assert!(!bench.shard.map.given_up);
        let is_out = state == OUT;
        assert_eq!(bench.shard.hold_status().is_none(), is_out);
        assert_eq!(verdict, is_out.then_some(WORKS));
        // He is not left out for a stop either.
        bench.shard.command(2, Command::Stop);
        serve(&mut bench, SECOND, |_| WORKS);
        assert_eq!(bench.shard.map.read_only, !is_out);
        assert_eq!(states(&bench)[1].1, is_out);
    }
}

/// The new drive is filled up to this stripe at least.
fn fill(bench: &mut Bench, stripe: u64) {
    bench.shard.command(1, Command::Passes { run: true });
    let reaches = |bench: &Bench| match bench.shard.map.members[1].state {
        MapState::Rebuilding { until } => until.0 >= stripe,
        MapState::InSync | MapState::Lost => panic!("it is being filled"),
    };
    for _ in 0..10_000 {
        bench.poll();
        if reaches(bench) {
            break;
        }
        match bench.outside.asked.first().copied() {
            Some(next) => bench.answer(next.drive.at(), next.operation, WORKS),
            None => bench.pass(STEP),
        }
    }
    assert!(reaches(bench));
    bench.command(Command::Passes { run: false });
}

/// Member 1 stays away, until it is not waited for any more.
fn leave_out_1(bench: &mut Bench) {
    while bench.shard.hold_status().is_some() {
        bench.pass(STEP);
        if bench.shard.hold_status().is_some() && !bench.outside.asked.is_empty() {
            bench.answer(1, Operation::Read, GONE);
            bench.poll();
        }
    }
}

#[test]
fn a_hold_goes_on_if_who_came_back_fails_before_it_is_on_record_who_was_left_out() {
    for is_recorded in [false, true] {
        let mut bench = holding(&[0, 1]);
        let begun = bench.outside.now;
        live(&mut bench, SECOND, [WORKS, GONE, WORKS]);
        leave_out_1(&mut bench);
        if is_recorded {
            live(&mut bench, STEP, [WORKS, GONE, WORKS]);
            assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
        }
        fail(&mut bench, &[0]);
        live(&mut bench, STEP, [WORKS, GONE, WORKS]);
        assert_eq!(states(&bench), [HELD, OUT, SERVES]);
        assert_eq!(since(&bench) == begun, !is_recorded);
    }
}

#[test]
fn a_hold_of_others_is_another_one() {
    let shape = Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    fail(&mut bench, &[0, 1]);
    let mut says = [WORKS; 6];
    says[1] = GONE;
    live(&mut bench, SECOND, says);
    leave_out_1(&mut bench);
    let now = bench.outside.now;
    fail(&mut bench, &[3, 4]);
    (says[3], says[4]) = (GONE, GONE);
    live(&mut bench, STEP, says);
    assert!(since(&bench) >= now);
}

#[test]
fn a_hold_that_was_given_up_goes_on_whoever_has_left_since() {
    let mut bench = holding(&[1, 0]);
    let begun = bench.outside.now;
    live(&mut bench, LIMIT, [GONE, GONE, WORKS]);
    assert!(bench.shard.map.given_up);
    live(&mut bench, SECOND, [WORKS; 3]);
    bench.command(Command::Fail {
        member: MemberIndex(2),
    });
    assert_eq!(states(&bench), [SERVES, SERVES, OUT]);
    fail(&mut bench, &[0]);
    live(&mut bench, STEP, [GONE, WORKS, WORKS]);
    assert_eq!(since(&bench), begun);
}

#[test]
fn nothing_is_computed_from_who_was_gone_when_the_array_took_no_writes_any_more() {
    // The first one that is gone is left out, the next one is waited for.
    for stops in [true, false] {
        for (status, hopeless) in [(GONE, [false, true, false]), (Status::NoSpace, [false; 3])] {
            let mut bench = Bench::home(|_, _| {});
            bench.command(Command::Fail {
                member: MemberIndex(0),
            });
            fail_with(&mut bench, &[1], status);
            assert_eq!(states(&bench), [OUT, HELD, SERVES]);
            if stops {
                bench.shard.command(2, Command::Stop);
                bench.poll();
            } else {
                bench
                    .shard
                    .fail_metadata(Vec::new(), &[], &mut bench.outside);
                live(&mut bench, STEP, [WORKS; 3]);
            }
            let map = &bench.shard.map;
            assert!(map.read_only && !map.given_up);
            assert_eq!(
                (&map.held[..], &map.hopeless[..]),
                (&[false; 3][..], &hopeless[..])
            );
            assert_eq!(bench.shard.hold_status(), None);
        }
    }
}

#[test]
fn whose_host_is_full_is_left_out_at_the_limit_if_he_can_be_done_without() {
    let mut bench = holding(&[1]);
    live(&mut bench, LIMIT - STEP, [WORKS, GONE, WORKS]);
    assert_eq!(states(&bench), [SERVES, HELD, SERVES]);
    live(&mut bench, STEP, [WORKS, GONE, WORKS]);
    assert_eq!(states(&bench), [SERVES, OUT, SERVES]);
    let timed_out = |event: &Event| matches!(event, Event::HoldTimedOut { .. });
    assert!(!bench.outside.events.iter().any(timed_out), "nothing fails");
    assert_eq!(bench.shard.hold_status(), None);
}

#[test]
fn who_can_be_done_without_is_asked_of_his_own_group() {
    let shape = Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        ..Shape::default()
    };
    let waits = |bench: &Bench| {
        let map = &bench.shard.map;
        let lost = map.members.iter().map(|it| it.state == MapState::Lost);
        let lost = lost.collect::<Vec<bool>>();
        (lost, map.held.clone(), map.given_up)
    };
    let only = |members: &[usize]| (0..6).map(|at| members.contains(&at)).collect();
    for (full, out) in [(&[3, 4][..], &[][..]), (&[0, 1, 5][..], &[5][..])] {
        let mut bench = Bench::home_of(shape, |_, _| {});
        let members: Vec<u16> = full
            .iter()
            .map(|&at| u16::try_from(at).expect("few"))
            .collect();
        fail(&mut bench, &members);
        assert_eq!(waits(&bench), (only(&[]), only(full), false));
        let says: Vec<Status> = (0..6)
            .map(|at| [WORKS, GONE][usize::from(full.contains(&at))])
            .collect();
        live(&mut bench, LIMIT + SECOND, &says);
        let held: Vec<usize> = full
            .iter()
            .copied()
            .filter(|at| !out.contains(at))
            .collect();
        assert_eq!(waits(&bench), (only(out), only(&held), true), "{full:?}");
    }
}

#[test]
fn a_drive_that_does_not_answer_a_look_keeps_nobody_from_coming_back() {
    let mut bench = holding(&[0, 1]);
    let is_it = |request: &MemberRequest| request.drive.at() == 1;
    for _ in 0..10 {
        bench.pass(STEP);
        while bench.outside.asked.iter().any(is_it) {
            bench.answer(1, Operation::Read, WORKS);
            bench.poll();
        }
    }
    assert_eq!(states(&bench), [HELD, SERVES, SERVES]);
    assert_eq!(bench.is_asked(Operation::Read), [0], "it is asked once");
    live(&mut bench, SECOND, [WORKS; 3]);
    assert_eq!(states(&bench), [SERVES; 3]);
}

#[test]
fn a_member_works_again_when_no_other_shard_has_anything_open_there() {
    let mut bench = holding(&[0, 1]);
    bench.shard.decider().reactors.push(OTHER);
    let mut asked = Vec::new();
    for waits in [true, true, false, false] {
        live(&mut bench, 2 * STEP, [WORKS; 3]);
        let message = bench.outside.messages.pop().expect("it is asked");
        assert!(bench.outside.messages.is_empty(), "of one at a time");
        let Message::HoldCheck { member } = message else {
            panic!("{message:?}");
        };
        asked.push(member.at());
        bench.tell(Message::HoldState { waits });
        follow(&mut bench);
    }
    assert_eq!(asked, [0, 1, 0, 1]);
    assert_eq!(states(&bench), [SERVES; 3]);
}

#[test]
fn a_home_that_waits_for_members_knows_when_to_look_at_them() {
    let mut bench = holding(&[]);
    assert_eq!(bench.shard.decider().hold.deadline(), None);
    let mut bench = holding(&[1]);
    let now = bench.outside.now;
    let due = bench.shard.decider().hold.deadline().expect("it looks");
    assert!(due > now && due <= now + 2 * STEP, "{due:?}");
}
