//! Passes over the whole array as their home tells of them: when a scrub waits, and how much is
//! looked at together.

use std::sync::Arc;
use std::time::Duration;

use block::{Operation, Status};
use units::{Instant, MemberIndex, StripeIndex};

use super::handover::follow;
use super::{AMPLE, Bench, CHUNK_BYTES, ME, OTHER, ROWS, Shape, member_of};
use crate::command::{Command, Copying};
use crate::coordinator::{PassState, PassStatus};
use crate::format::{ArrayOptions, MemberState, Missed, WriteHole};
use crate::geometry::Level;
use crate::io::{Event, MemberFailure, MemberRequest, Message, PassEvent};
use crate::map::{MapMember, MapState, Pass};
use crate::regions::Suspects;
use crate::scrub::{ScrubCourse, ScrubOrder, ScrubOutcome, ScrubState, WindowTally};

fn course(bench: &Bench) -> ScrubCourse {
    bench.shard.scrub_status().expect("it is the home").course
}

fn clean() -> Bench {
    Bench::home(|_, _| {})
}

#[test]
fn a_scrub_waits_for_a_resync_and_a_copy() {
    let mut bench = clean();
    assert_eq!(course(&bench), ScrubCourse::Free);
    bench.shard.command(2, Command::Resync);
    bench.poll();
    while course(&bench) == ScrubCourse::Free {
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    assert_eq!(course(&bench), ScrubCourse::Waits);
    bench.answer_all();
    assert_eq!(course(&bench), ScrubCourse::Free, "all was looked at");
    for (step, course_then) in [
        (Copying::Begins, ScrubCourse::Waits),
        (Copying::Ends, ScrubCourse::Free),
    ] {
        let member = MemberIndex(1);
        bench.command(Command::Copying { member, step });
        assert_eq!(course(&bench), course_then);
    }
}

/// The member has failed, and not for a while.
fn failure(member: u16) -> MemberFailure {
    MemberFailure {
        member: MemberIndex(member),
        incarnation: 0,
        status: Status::Media,
        late: false,
        passing: false,
    }
}

fn fail(bench: &mut Bench, member: u16) {
    bench.shard.coordinate_failure(failure(member));
    bench.shard.stir();
    bench.answer_all();
}

#[test]
fn a_scrub_waits_while_too_much_is_lost_and_not_for_a_member_that_is_out() {
    let mut bench = clean();
    fail(&mut bench, 0);
    assert_eq!(course(&bench), ScrubCourse::Free, "there is redundancy");
    fail(&mut bench, 1);
    assert_eq!(course(&bench), ScrubCourse::Waits);
}

#[test]
fn a_scrub_waits_for_whom_the_array_has_given_up() {
    let mut bench = clean();
    bench.install(|map| map.given_up = true);
    assert_eq!(course(&bench), ScrubCourse::Waits);
    bench.install(|map| map.given_up = false);
    assert_eq!(course(&bench), ScrubCourse::Free);
}

#[test]
fn a_scrub_whose_records_fail_has_failed_until_it_is_asked_for_again() {
    let mut bench = clean();
    bench.shard.decider().scrub.failed = true;
    assert_eq!(course(&bench), ScrubCourse::Failed);
    bench.command(Command::Scrub(ScrubOrder::Start));
    assert_eq!(course(&bench), ScrubCourse::Free);
}

#[test]
fn a_scrub_wakes_its_home_at_its_time_unless_something_else_is_to_be_done_before() {
    let due = Instant(77_000_000_000);
    let running = || {
        let mut bench = clean();
        let scrub = &mut bench.shard.decider().scrub;
        (scrub.record.state, scrub.not_before) = (ScrubState::Running, due);
        bench
    };
    assert_eq!(clean().shard.scrub_deadline(), None, "none is wanted");
    let mut bench = running();
    assert_eq!(bench.shard.scrub_deadline(), Some(due));
    bench.shard.decider().copied = Some(MemberIndex(1));
    assert_eq!(bench.shard.scrub_deadline(), None, "a copy");
    let mut bench = running();
    bench.shard.command(2, Command::Settle);
    assert_eq!(bench.shard.scrub_deadline(), None, "a command");
    bench.answer_all();
    assert_eq!(bench.shard.scrub_deadline(), Some(due));
    bench.shard.coordinate_failure(failure(1));
    assert_eq!(bench.shard.scrub_deadline(), None, "a failure");
    let mut bench = running();
    bench.shard.command(2, Command::Resync);
    bench.poll();
    assert!(bench.shard.coordinator().expect("home").commit.is_some());
    assert_eq!(bench.shard.scrub_deadline(), None, "a record");
    while bench.shard.coordinator().expect("home").window.is_none() {
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    assert_eq!(bench.shard.scrub_deadline(), None, "a resync");
    bench.answer_all();
    assert_eq!(bench.shard.scrub_deadline(), Some(due));
}

#[test]
fn a_scrub_that_a_low_rate_holds_back_goes_on_when_it_gets_another_one() {
    let far = Instant(77_000_000_000);
    for (write_hole, rate) in [
        (WriteHole::Auto, 100 << 20),
        (WriteHole::Auto, 0),
        (WriteHole::Strict, 100 << 20),
    ] {
        let mut bench = Bench::home(|config, _| config.options.scrub_rate_bytes_per_second = 1);
        let recorded = bench.shard.decider().config.options;
        let scrub = &mut bench.shard.decider().scrub;
        (scrub.record.state, scrub.not_before) = (ScrubState::Running, far);
        bench.command(Command::Options(ArrayOptions {
            latency_target_us: 5000,
            ..recorded
        }));
        let due = bench.shard.scrub_deadline();
        assert_eq!(due, Some(far), "its rate is what it was");
        bench.command(Command::Options(ArrayOptions {
            write_hole,
            scrub_rate_bytes_per_second: rate,
            ..recorded
        }));
        let due = bench.shard.scrub_deadline();
        assert!(due.is_none_or(|due| due < far), "{write_hole:?}, {rate}");
    }
}

#[test]
fn a_pass_is_told_with_what_it_has_done_and_has_to_do_and_whether_it_runs() {
    let mut bench = clean();
    assert_eq!(bench.shard.pass_status(), None);
    bench.shard.command(2, Command::Resync);
    bench.poll();
    let mut told = Vec::new();
    while let Some(next) = bench.outside.asked.first().copied() {
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
        told.extend(bench.shard.pass_status());
    }
    assert_eq!(bench.shard.pass_status(), None);
    for status in &told {
        let done = status.done.0;
        let expected = PassStatus {
            pass: Pass::Resync,
            done: StripeIndex(done),
            stripes: ROWS,
            left: ROWS - done,
            to_visit: ROWS,
            state: PassState::Running,
        };
        assert_eq!(*status, expected);
    }
    told.dedup();
    assert_eq!(told.len(), usize::try_from(ROWS).expect("few"));
    bench.command(Command::Passes { run: false });
    bench.command(Command::Resync);
    let state = |bench: &Bench| bench.shard.pass_status().expect("it waits").state;
    assert_eq!(state(&bench), PassState::Paused);
    let now = bench.outside.now;
    bench.shard.decider().retry.stop(now);
    assert_eq!(state(&bench), PassState::Stopped);
}

/// A part of the pass that is under way fails.
fn fail_pass(bench: &mut Bench) {
    bench.poll();
    while bench.shard.decider().window.is_none() {
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    bench.shard.background.failed = true;
    bench.answer_all();
}

#[test]
fn a_pass_that_has_stopped_is_tried_again_later_and_later() {
    let mut bench = clean();
    bench.shard.command(2, Command::Resync);
    let state = |bench: &Bench| bench.shard.pass_status().expect("it waits").state;
    let second = Duration::from_secs(1);
    for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
        fail_pass(&mut bench);
        let again = bench.outside.now + minutes * 60 * second;
        assert_eq!(bench.shard.retry_deadline(), Some(again));
        let wakes = bench.shard.deadline();
        assert!(wakes.is_some_and(|wakes| wakes <= again), "{wakes:?}");
        bench.pass(minutes * 60 * second - second);
        bench.answer_all();
        assert_eq!(state(&bench), PassState::Stopped);
        bench.pass(second);
        assert_eq!(state(&bench), PassState::Running);
    }
    // One part goes well, and the next one fails.
    let done = bench.shard.pass_status().expect("it runs").done;
    while bench.shard.pass_status().expect("it runs").done == done {
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    fail_pass(&mut bench);
    let again = bench.outside.now + 60 * second;
    assert_eq!(
        bench.shard.retry_deadline(),
        Some(again),
        "as the first time"
    );
    // Nobody wants it to go on by itself.
    bench.pass(60 * second);
    bench.shard.command(3, Command::Passes { run: false });
    fail_pass(&mut bench);
    bench.pass(3600 * second);
    bench.answer_all();
    assert_eq!(state(&bench), PassState::Stopped);
    assert_eq!(bench.shard.retry_deadline(), None);
    bench.command(Command::Passes { run: true });
    assert_eq!(bench.shard.pass_status(), None, "it went well");
}

/// Tickets of a pass that are under way together, once drives have answered all but reads.
fn depth(mut bench: Bench, command: Command, busy: bool) -> usize {
    if busy {
        bench.ask(Operation::Read, 0, 1);
    }
    bench.outside.room = AMPLE;
    bench.shard.command(2, command);
    bench.poll();
    while let Some(next) = bench
        .outside
        .asked
        .iter()
        .find(|next| next.operation != Operation::Read)
        .copied()
    {
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    bench.shard.tickets.in_use()
}

#[test]
fn passes_look_at_so_much_together_and_at_less_beside_requests() {
    let of = |members, level| {
        let shape = Shape {
            level,
            members,
            window_stripes: ROWS,
            ..Shape::default()
        };
        Bench::home_of(shape, |_, _| {})
    };
    let narrow = || of(3, Level::L5);
    let scrub = || Command::Scrub(ScrubOrder::Start);
    assert_eq!(depth(narrow(), scrub(), false), 8);
    assert_eq!(depth(narrow(), scrub(), true), 2);
    assert_eq!(depth(of(17, Level::L6), scrub(), false), 7, "by buffers");
    assert_eq!(depth(of(17, Level::L6), scrub(), true), 2);
    // As many as there are tickets.
    assert_eq!(depth(narrow(), Command::Resync, false), 12);
    assert_eq!(depth(narrow(), Command::Resync, true), 8);
}

/// A home of stripes of many cells that has begun a pass; its window is larger than a stripe.
fn of_cells(chunk_bytes: u64, pass: Command) -> Bench {
    let shape = Shape {
        chunk_bytes,
        window_stripes: 5,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    bench.shard.command(2, pass);
    bench.poll();
    bench
}

#[test]
fn a_pass_reads_each_byte_of_each_member_once() {
    for chunk_bytes in [CHUNK_BYTES, 64 << 10, 128 << 10, 256 << 10] {
        for pass in [Command::Scrub(ScrubOrder::Start), Command::Resync] {
            let mut bench = of_cells(chunk_bytes, pass);
            let mut reads = Vec::new();
            while let Some(next) = bench.outside.asked.first().copied() {
                let read = (next.drive.at(), next.offset, next.length);
                reads.extend(Some(read).filter(|_| next.operation == Operation::Read));
                bench.answer(next.drive.at(), next.operation, Status::Ok);
                bench.poll();
            }
            reads.sort_unstable();
            let bytes: u64 = reads.iter().map(|read| read.2).sum();
            assert_eq!(bytes, 3 * ROWS * chunk_bytes, "{chunk_bytes}");
            for pair in reads.windows(2) {
                let apart = pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1;
                assert!(apart, "twice: {pair:?}");
            }
        }
    }
}

#[test]
fn a_scrub_tells_the_block_that_is_bad_wherever_in_its_stripe_it_is() {
    for chunk_bytes in [CHUNK_BYTES, 256 << 10] {
        let blocks = chunk_bytes / 512;
        for (stripe, block) in [
            (0, 0),
            (1, blocks - 1),
            (7, blocks / 2),
            (13, blocks / 4 + 3),
        ] {
            let mut bench = of_cells(chunk_bytes, Command::Scrub(ScrubOrder::Start));
            let bad = member_of(&bench, stripe, 1);
            let data = bench.shard.map.members[bad].data_offset;
            let bad_byte = data + stripe * chunk_bytes + block * 512;
            let mut is_bad = true;
            while let Some(next) = bench.outside.asked.first().copied() {
                let covers = (next.offset..next.offset + next.length).contains(&bad_byte);
                let is_it = next.drive.at() == bad && covers;
                is_bad &= !(is_it && next.operation == Operation::Write);
                let fails = is_it && is_bad && next.operation == Operation::Read;
                let status = if fails { Status::Media } else { Status::Ok };
                bench.answer(next.drive.at(), next.operation, status);
                bench.poll();
            }
            let told = bench.outside.events.iter().filter_map(|event| {
                let Event::Scrubbed(finding) = event else {
                    return None;
                };
                Some((finding.stripe.0, u64::from(finding.block), finding.outcome))
            });
            let expected = [(stripe, block, ScrubOutcome::Repaired)];
            assert_eq!(told.collect::<Vec<_>>(), expected);
        }
    }
}

/// What is told of passes when an array starts whose parity is to be resynced, or not, and whose
/// members are filled up to these stripes.
fn told_at_start(resyncs: bool, filled: &[u64]) -> Vec<(Pass, PassEvent)> {
    let shape = Shape {
        level: Level::L6,
        members: 5,
        ..Shape::default()
    };
    let mut bench = Bench::of(shape, ME, |config, regions| {
        config.resynced_until = StripeIndex(ROWS * u64::from(!resyncs));
        *regions = regions.clone().all_dirty();
        for (member, &until) in config.members.iter_mut().zip(filled) {
            member.state = MemberState::Rebuilding {
                until: StripeIndex(until),
                missed: Missed::ALL,
            };
        }
    });
    bench.command(Command::Start);
    let in_sync = |member: &MapMember| member.state == MapState::InSync;
    assert!(bench.shard.map.members.iter().all(in_sync));
    let told = bench.outside.events.iter().filter_map(|event| {
        let Event::Pass { pass, state } = event else {
            return None;
        };
        Some((*pass, *state))
    });
    told.collect()
}

#[test]
fn a_pass_is_told_when_it_begins_and_when_all_of_it_is_over() {
    let whole = |pass| [(pass, PassEvent::Began), (pass, PassEvent::Finished)];
    let (resync, rebuild) = (whole(Pass::Resync), whole(Pass::Rebuild));
    assert_eq!(told_at_start(false, &[]), []);
    assert_eq!(told_at_start(true, &[]), resync);
    assert_eq!(told_at_start(false, &[0]), rebuild);
    assert_eq!(told_at_start(true, &[20]), [resync, rebuild].concat());
    // One is filled before the other, and both are the pass.
    let two = told_at_start(false, &[0, 20]);
    let ends = two.iter().filter(|told| told.1 == PassEvent::Finished);
    assert_eq!(ends.count(), 1, "{two:?}");
    assert_eq!(two.first(), rebuild.first());
    assert_eq!(two.last(), rebuild.last());
}

/// As when a resync is ordered just then.
#[test]
fn what_a_scrub_is_about_to_repair_is_left_alone_when_its_parity_is_not_trusted_any_more() {
    let mut bench = of_cells(CHUNK_BYTES, Command::Scrub(ScrubOrder::Start));
    let bad = member_of(&bench, 0, 1);
    let data = bench.shard.map.members[bad].data_offset;
    let in_row = |offset: u64| (data..data + CHUNK_BYTES).contains(&offset);
    let reads = |next: &MemberRequest| next.operation == Operation::Read && in_row(next.offset);
    // With the cell, and by itself.
    let mut failures = 0;
    while failures < 2 || bench.outside.asked.iter().any(reads) {
        let next = bench.outside.asked[0];
        let fails = reads(&next) && next.drive.at() == bad;
        failures += usize::from(fails);
        let status = if fails { Status::Media } else { Status::Ok };
        bench.answer(next.drive.at(), next.operation, status);
        if failures < 2 {
            bench.poll();
        }
    }
    bench.poll();
    assert!(bench.outside.asked.iter().any(reads));
    // Others are read, to make of them what is bad.
    let serial = bench.install(|map| {
        map.suspects = Arc::new(Suspects::all(map.suspects.space()));
        map.trusted_until = StripeIndex(0);
    });
    bench.make_effective(serial);
    while let Some(next) = bench.outside.asked.first().copied() {
        let writes = next.operation == Operation::Write;
        assert!(!writes || !in_row(next.offset), "{next:?}");
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    let told = |event: &Event| matches!(event, Event::Scrubbed(_));
    assert!(!bench.outside.events.iter().any(told));
}

#[test]
fn a_scrub_ends_when_another_shard_could_not_do_its_part() {
    for ok in [true, false] {
        let mut bench = clean();
        bench.shard.decider().reactors.push(OTHER);
        let order = Command::Scrub(ScrubOrder::Start);
        bench.shard.command(2, order);
        bench.answer_all();
        follow(&mut bench);
        bench.answer_all();
        let window = bench.shard.map.window.expect("one is open");
        let (serial, tally) = (window.opened, WindowTally::default());
        bench.tell(Message::WindowDone { serial, ok, tally });
        let stopped = |event: &Event| {
            let (pass, state) = (Pass::Scrub, PassEvent::Stopped);
            *event == Event::Pass { pass, state }
        };
        assert_eq!(bench.outside.events.iter().any(stopped), !ok);
    }
}
