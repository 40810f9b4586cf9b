//! The home: what it asks of drives, and when it says that nothing is left to do.

use std::time::Duration;

use block::{Operation, Status};
use units::{MemberIndex, RoleSet, StripeIndex};

use super::handover::follow;
use super::{Bench, CLEAR_AFTER, OTHER, Shape};
use crate::command::{Command, Copying};
use crate::format::{ArrayConfig, MemberState};
use crate::geometry::Level;
use crate::io::{Event, MemberFailure, Message, PassEvent};
use crate::losses::{LossChange, Rows};
use crate::map::MapState;
use crate::regions::RegionState;
use crate::shard::coordinate::Fate;

/// A started home whose regions are clean.
fn clean() -> Bench {
    Bench::home(|_, _| {})
}

fn all_clean(bench: &Bench) -> bool {
    let regions = &bench.shard.shared.regions;
    let count = u32::try_from(regions.space.count()).expect("few");
    (0..count).all(|region| regions.get(region) == RegionState::Clean)
}

/// Time passes until idle regions are clean.
fn idle(bench: &mut Bench) {
    for _ in 0..8 {
        bench.pass(CLEAR_AFTER);
        bench.answer_all();
    }
}

#[test]
fn a_home_of_which_a_region_is_wanted_is_not_idle_until_it_is_dirty() {
    let mut bench = clean();
    assert!(bench.shard.is_idle());
    bench
        .shard
        .message(OTHER, Message::Dirty { region: 2 }, &mut bench.outside);
    assert!(!bench.shard.is_idle());
    bench.answer_all();
    assert!(bench.shard.is_idle());
    let done = |reply: &Message| matches!(reply, Message::DirtyDone { region: 2 });
    assert!(bench.outside.replies.iter().any(done));
    assert_eq!(bench.shard.shared.regions.get(2), RegionState::Dirty);
    idle(&mut bench);
    assert!(all_clean(&bench));
}

#[test]
fn who_asks_for_a_region_that_is_dirty_already_hears_so_at_once() {
    let mut bench = clean();
    bench.tell(Message::Dirty { region: 2 });
    bench.answer_all();
    bench.outside.replies.clear();
    let again = Message::Dirty { region: 2 };
    bench.shard.message(OTHER, again, &mut bench.outside);
    let done = |reply: &Message| matches!(reply, Message::DirtyDone { region: 2 });
    assert!(bench.outside.replies.iter().any(done));
    bench.poll();
    assert!(bench.outside.asked.is_empty(), "nothing is written again");
}

#[test]
fn a_region_is_dirty_when_everybody_leaves_out_who_has_not_taken_that() {
    let mut bench = clean();
    bench.shard.decider().reactors.push(OTHER);
    bench.tell(Message::Dirty { region: 2 });
    let holder = bench.is_asked(Operation::Write)[0];
    bench.answer(holder, Operation::Write, Status::ReadOnly);
    bench.answer_all();
    let is_done = |bench: &Bench| {
        let done = |reply: &Message| matches!(reply, Message::DirtyDone { region: 2 });
        bench.outside.replies.iter().any(done)
    };
    assert_eq!(bench.shard.map.members[holder].state, MapState::Lost);
    assert!(!is_done(&bench), "the other shard counts on it");
    follow(&mut bench);
    bench.answer_all();
    assert!(is_done(&bench));
}

#[test]
fn after_a_stop_no_region_becomes_dirty() {
    let mut bench = clean();
    bench.command(Command::Stop);
    assert!(bench.is_done());
    bench.outside.events.clear();
    bench.shard.command(2, Command::Dirty { regions: vec![0] });
    bench.poll();
    assert!(bench.is_done(), "it is refused");
    assert!(
        bench.outside.asked.is_empty(),
        "and the drives are left alone"
    );
}

#[test]
fn a_command_that_wants_regions_dirty_is_answered_when_they_are() {
    let mut bench = clean();
    let regions = vec![0, 3, 1000];
    bench.shard.command(2, Command::Dirty { regions });
    bench.poll();
    assert!(!bench.is_done() && !bench.outside.asked.is_empty());
    bench.answer_all();
    assert!(bench.is_done());
    let states = &bench.shard.shared.regions;
    for region in [0, 3] {
        assert_eq!(states.get(region), RegionState::Dirty);
    }
}

/// A member's drive has said this, and works again perhaps.
fn fails(bench: &mut Bench, status: Status) {
    bench.shard.coordinate_failure(MemberFailure {
        member: MemberIndex(1),
        incarnation: 0,
        status,
        late: false,
        passing: true,
    });
    // As the message does that brings it.
    bench.shard.stir();
}

#[test]
fn a_stop_is_answered_although_a_member_failed_before_metadata_did() {
    let mut bench = clean();
    fails(&mut bench, Status::Gone);
    bench.turn();
    assert_eq!(
        bench.is_asked(Operation::Read),
        [0, 2],
        "the roll is called"
    );
    bench.shard.decider().metadata_failed = true;
    bench.shard.command(2, Command::Stop);
    bench.poll();
    assert!(bench.is_done(), "it is refused");
    bench.pass(Duration::from_secs(1));
}

#[test]
fn a_stop_is_answered_although_a_member_is_found_gone_again_and_again() {
    let mut bench = clean();
    bench.shard.decider().metadata_failed = true;
    bench.shard.command(2, Command::Stop);
    for _ in 0..10 {
        fails(&mut bench, Status::Gone);
        bench.turn();
    }
    assert!(bench.is_done(), "it is refused");
}

#[test]
fn a_failure_that_is_known_changes_nothing() {
    let mut bench = clean();
    fails(&mut bench, Status::NoSpace);
    bench.poll();
    let serial = bench.shard.map.serial;
    for status in [Status::NoSpace, Status::Gone, Status::Media] {
        fails(&mut bench, status);
        bench.poll();
        assert_eq!(
            bench.shard.map.serial, serial,
            "it is waited for: {status:?}"
        );
    }
    let mut bench = clean();
    fails(&mut bench, Status::Media);
    bench.answer_all();
    let stands = |bench: &Bench| {
        let update = bench.shard.coordinator().expect("home").config.update;
        (bench.shard.map.serial, update, bench.outside.events.len())
    };
    let before = stands(&bench);
    fails(&mut bench, Status::Media);
    bench.answer_all();
    assert_eq!(stands(&bench), before, "it is out");
}

#[test]
fn nobody_is_woken_for_a_roll_call_whose_member_turns_out_to_be_full() {
    let mut bench = clean();
    fails(&mut bench, Status::Gone);
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Read), [0, 2]);
    fails(&mut bench, Status::NoSpace);
    bench.poll();
    assert!(bench.shard.map.held[1]);
    bench.answer_all();
    bench.pass(Duration::from_millis(100));
    let due = bench.shard.deadline().expect("members are looked at");
    assert!(due > bench.outside.now, "nothing is left to do now");
}

#[test]
fn after_a_stop_no_block_is_given_up() {
    let mut bench = clean();
    bench.command(Command::Stop);
    let rows = Rows {
        stripe: StripeIndex(3),
        start: 1,
        end: 2,
        roles: RoleSet::one(units::Role(0)),
    };
    let change = LossChange::GivenUp;
    bench.tell(Message::ChangeLosses { change, rows });
    let refused = |reply: &Message| matches!(reply, Message::LossesChanged { ok: false });
    assert!(bench.outside.replies.iter().any(refused));
    assert!(bench.outside.asked.is_empty(), "and no record is written");
}

#[test]
fn regions_become_clean_once_their_resync_has_ended() {
    let mut bench = Bench::home(|config, regions| {
        config.resynced_until = StripeIndex(0);
        *regions = regions.clone().all_dirty();
    });
    let stripes = bench.shard.map.geometry.stripes();
    assert!(!all_clean(&bench));
    bench.answer_all();
    assert_eq!(bench.shard.map.trusted_until, StripeIndex(stripes));
    assert!(
        bench.shard.map.suspects.has(StripeIndex(0)),
        "as it was at the start"
    );
    idle(&mut bench);
    assert!(all_clean(&bench));
}

#[test]
fn how_far_a_pass_is_becomes_durable_every_other_second() {
    let mut bench = clean();
    bench.shard.command(2, Command::Resync);
    bench.poll();
    let stripes = bench.shard.map.geometry.stripes();
    let ends = |event: &Event| {
        matches!(
            event,
            Event::Pass {
                state: PassEvent::Finished,
                ..
            }
        )
    };
    let mut durable = Vec::new();
    while !bench.outside.events.iter().any(ends) {
        // Each answer takes a while.
        let next = bench.outside.asked.first().copied().expect("it goes on");
        bench.outside.now = bench.outside.now + Duration::from_millis(100);
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
        let home = bench.shard.coordinator().expect("it is the home");
        durable.push(home.config.resynced_until.0);
    }
    assert!(
        durable.iter().any(|done| (1..stripes).contains(done)),
        "{durable:?}"
    );
}

#[test]
fn numbers_of_updates_differ_in_both_halves() {
    let mut bench = clean();
    let decider = bench.shard.decider();
    let ids = [(); 4].map(|()| decider.draw_id());
    for half in [64, 0] {
        let mut halves = ids.map(|id| id >> half & u128::from(u64::MAX));
        halves.sort_unstable();
        assert!(
            halves.is_sorted_by(|one, next| one < next) && halves[0] > 0,
            "{ids:x?}"
        );
    }
}

#[test]
fn nobody_but_the_home_says_how_members_do() {
    let mut bench = clean();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.shard.paces().len(), bench.shard.map.members.len());
    assert!(Bench::new().shard.paces().is_empty());
}

/// Drives answer all they are asked: `full` takes no writes, and no flush of `other` goes well.
fn answer_full(bench: &mut Bench, full: usize, other: usize) {
    for _ in 0..100 {
        let Some(asked) = bench.outside.asked.first() else {
            break;
        };
        let (drive, operation) = (asked.drive.at(), asked.operation);
        let fails = match operation {
            Operation::Write => drive == full,
            Operation::Flush => drive == other,
            Operation::Read | Operation::Discard | Operation::WriteZeroes => false,
        };
        let status = if fails { Status::NoSpace } else { Status::Ok };
        bench.answer(drive, operation, status);
        bench.poll();
    }
}

#[test]
fn a_hold_in_a_record_that_fails_on_another_member_too_ends_at_its_time() {
    let mut bench = clean();
    let options = crate::format::ArrayOptions::default();
    let limit = options.hold_timeout_seconds;
    bench.shard.command(2, Command::Options(options));
    bench.poll();
    answer_full(&mut bench, 1, 0);
    let holds = |event: &Event| matches!(event, Event::Holds { .. });
    assert!(bench.outside.events.iter().any(holds));
    for _ in 0..limit + 5 {
        bench.pass(Duration::from_secs(1));
        answer_full(&mut bench, 1, 0);
    }
    // Without that other member the array cannot do without the one that is full.
    let ended = |event: &Event| matches!(event, Event::HoldTimedOut { .. });
    assert!(
        bench.outside.events.iter().any(ended),
        "{:?}",
        bench.outside.events
    );
    let holds = bench.outside.events.iter().filter(|event| holds(event));
    assert_eq!(holds.count(), 1, "once");
}

#[test]
fn a_pass_that_has_stopped_is_tried_again_when_a_member_is_out_and_for_no_other_record() {
    let mut bench = clean();
    let now = bench.outside.now;
    bench.shard.decider().retry.stop(now);
    bench.command(Command::Options(crate::format::ArrayOptions::default()));
    assert!(bench.is_done());
    assert!(bench.shard.decider().retry.is_stopped(), "all is as it was");
    bench.command(Command::Fail {
        member: MemberIndex(1),
    });
    assert!(!bench.shard.decider().retry.is_stopped());
}

#[test]
fn records_are_renewed_after_writes_and_neither_without_nor_after_the_end() {
    let mut bench = clean();
    bench.write_stripe(0);
    idle(&mut bench);
    let due = |bench: &Bench| bench.shard.renewal_deadline();
    assert!(due(&bench).is_some(), "it was written to");
    bench.shard.decider().metadata_failed = true;
    assert_eq!(due(&bench), None, "none can be written");
    bench.shard.decider().metadata_failed = false;
    bench.shard.decider().stops = true;
    assert_eq!(due(&bench), None, "its last one says that it is clean");
    bench.shard.decider().stops = false;
    let update = |bench: &mut Bench| bench.shard.decider().config.update.0;
    let before = update(&mut bench);
    bench.pass(Duration::from_secs(3600));
    bench.answer_all();
    assert_eq!(due(&bench), None, "nothing was written since");
    assert_eq!(
        update(&mut bench),
        before + 2,
        "one more is no more than behind"
    );
}

#[test]
fn a_member_works_again_whenever_it_answers_a_look_in_time() {
    let mut bench = clean();
    fails(&mut bench, Status::NoSpace);
    bench.poll();
    assert!(bench.shard.map.held[1], "it is waited for");
    while bench.is_asked(Operation::Read).is_empty() {
        bench.pass(Duration::from_millis(100));
    }
    bench.pass(Duration::from_millis(100));
    bench.answer(1, Operation::Read, Status::Ok);
    bench.poll();
    let works = |event: &Event| matches!(event, Event::MemberWorks { .. });
    assert!(bench.outside.events.iter().any(works));
    assert!(!bench.shard.map.held[1]);
}

/// What a copy of member 1 is told at this step.
fn copying(bench: &mut Bench, step: Copying) -> Result<(), String> {
    bench.outside.events.clear();
    let member = MemberIndex(1);
    bench.command(Command::Copying { member, step });
    let answer = bench.outside.events.iter().find_map(|event| {
        let Event::CommandDone { result, .. } = event else {
            return None;
        };
        Some(result.clone())
    });
    answer.expect("answered").map_err(|why| format!("{why:?}"))
}

#[test]
fn a_copy_counts_from_its_begin_to_its_end_and_there_is_one() {
    let mut bench = clean();
    let is_refused = |answer: Result<(), String>, why: &str| {
        let text = answer.expect_err(why);
        assert!(text.contains(why), "{text}");
    };
    is_refused(copying(&mut bench, Copying::GoesOn), "counts for nothing");
    assert_eq!(copying(&mut bench, Copying::Begins), Ok(()));
    is_refused(copying(&mut bench, Copying::Begins), "is being copied");
    assert_eq!(copying(&mut bench, Copying::GoesOn), Ok(()));
    assert_eq!(copying(&mut bench, Copying::Ends), Ok(()));
    is_refused(copying(&mut bench, Copying::GoesOn), "counts for nothing");
    bench.command(Command::Fail {
        member: MemberIndex(1),
    });
    is_refused(copying(&mut bench, Copying::Begins), "not in sync");
}

/// Whom of the members the home lets wait although its drive has answered.
fn waits_for(bench: &mut Bench) -> [bool; 3] {
    let now = bench.outside.now;
    [0, 1, 2].map(|member| bench.shard.is_waiting_for(MemberIndex(member), now))
}

#[test]
fn a_member_works_when_nothing_that_was_asked_of_it_is_open() {
    let mut bench = clean();
    assert_eq!(waits_for(&mut bench), [false; 3]);
    // A record of which only the last member was asked so far.
    bench.outside.room = 1;
    let options = crate::format::ArrayOptions::default();
    bench.shard.command(2, Command::Options(options));
    bench.poll();
    assert_eq!(bench.outside.asked.len(), 1);
    assert_eq!(waits_for(&mut bench), [true; 3]);
    bench.outside.room = super::AMPLE;
    bench.answer_all();
    assert_eq!(waits_for(&mut bench), [false; 3]);
    // One that goes out once more, for this member.
    bench.ask(Operation::Read, 0, 1);
    let slot = bench.shard.ios.used()[0];
    let member = bench.shard.ios[slot].member;
    assert_eq!(waits_for(&mut bench), [false; 3], "one that is under way");
    bench.shard.ios[slot].again = true;
    let is_it = [0, 1, 2].map(|other| MemberIndex(other) == member);
    assert_eq!(waits_for(&mut bench), is_it);
    bench.shard.ios[slot].again = false;
    // A failure that is still to be told.
    bench.shard.reports.push(MemberFailure {
        member: MemberIndex(2),
        incarnation: 0,
        status: Status::Gone,
        late: false,
        passing: true,
    });
    assert_eq!(waits_for(&mut bench), [false, false, true]);
    bench.shard.reports.clear();
    assert_eq!(waits_for(&mut bench), [false; 3]);
}

/// What drives are asked for a change of the list of lost blocks, one kind after another.
fn change_of_losses(change: LossChange, is_lost: bool) -> Vec<Operation> {
    let rows = Rows {
        stripe: StripeIndex(3),
        start: 1,
        end: 2,
        roles: RoleSet::one(units::Role(0)),
    };
    let mut bench = Bench::home(|config, _| {
        if is_lost {
            let geometry = Shape::default().geometry();
            LossChange::GivenUp.apply(&mut config.lost, rows, &geometry);
        }
    });
    for member in 0..3 {
        bench.shard.shared.mark_written(MemberIndex(member));
    }
    bench.tell(Message::ChangeLosses { change, rows });
    let mut asked = Vec::new();
    while let Some(next) = bench.outside.asked.first().copied() {
        asked.push(next.operation);
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    let made = |reply: &Message| matches!(reply, Message::LossesChanged { ok: true });
    assert!(bench.outside.replies.iter().any(made));
    asked.dedup();
    asked
}

#[test]
fn a_block_is_called_healed_when_what_heals_it_is_durable_and_lost_at_once() {
    use Operation::{Flush, Write};
    let given_up = change_of_losses(LossChange::GivenUp, false);
    assert_eq!(given_up, [Write, Flush]);
    let healed = change_of_losses(LossChange::Healed, true);
    assert_eq!(healed, [Flush, Write, Flush]);
    let nothing: [Operation; 0] = [];
    assert_eq!(change_of_losses(LossChange::GivenUp, true), nothing);
    assert_eq!(change_of_losses(LossChange::Healed, false), nothing);
}

#[test]
fn a_life_of_the_log_ends_for_other_options_where_there_is_a_log() {
    let lives = |level, members| {
        let shape = Shape {
            level,
            members,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        let before = bench.shard.map.log_life;
        bench.command(Command::Options(crate::format::ArrayOptions {
            write_hole: crate::format::WriteHole::Strict,
            ..crate::format::ArrayOptions::default()
        }));
        assert!(bench.is_done());
        bench.shard.map.log_life - before
    };
    assert_eq!(lives(Level::L5, 3), 1);
    assert_eq!(lives(Level::L1, 2), 0, "copies need none");
    assert_eq!(lives(Level::L0, 3), 0);
}

#[test]
fn a_member_is_left_out_that_takes_no_block_of_the_region_map_or_no_flush_for_it() {
    let is_left_out = |bench: &mut Bench, operation| {
        let member = bench.is_asked(operation)[0];
        bench.answer(member, operation, Status::Media);
        bench.answer_all();
        bench.shard.map.members[member].state == MapState::Lost
    };
    for operation in [Operation::Write, Operation::Flush] {
        let mut bench = clean();
        let write = bench.ask(Operation::Write, 0, 1);
        bench.poll();
        while bench.is_asked(operation).is_empty() {
            let next = bench.outside.asked[0];
            bench.answer(next.drive.at(), next.operation, Status::Ok);
            bench.poll();
        }
        assert_eq!(bench.verdict(write), None, "its region is not dirty");
        assert!(is_left_out(&mut bench, operation), "{operation:?}");
        assert_eq!(bench.verdict(write), Some(Status::Ok));
    }
    // What is flushed so that regions become clean.
    let mut bench = clean();
    bench.write_stripe(0);
    bench.answer_all();
    while bench.is_asked(Operation::Flush).is_empty() {
        bench.pass(CLEAR_AFTER);
    }
    assert!(
        is_left_out(&mut bench, Operation::Flush),
        "before it is clean"
    );
}

#[test]
fn the_roll_is_called_for_a_member_that_is_gone_for_now_and_for_no_other_failure() {
    for (status, late, passing, calls) in [
        (Status::Gone, false, true, true),
        (Status::Media, false, true, true),
        (Status::NoSpace, false, true, false),
        (Status::Gone, true, true, false),
        (Status::Gone, false, false, false),
    ] {
        let mut bench = clean();
        let failure = MemberFailure {
            member: MemberIndex(1),
            incarnation: 0,
            status,
            late,
            passing,
        };
        for failure in [failure, failure] {
            bench.shard.coordinate_failure(failure);
        }
        assert_eq!(bench.shard.decider().failures.len(), 1, "one failed");
        bench.shard.stir();
        bench.turn();
        let called = bench.is_asked(Operation::Read);
        assert_eq!(!called.is_empty(), calls, "{status:?} {late} {passing}");
    }
}

#[test]
fn who_cannot_be_done_without_is_waited_for_if_that_may_help() {
    let mut bench = clean();
    let whole = bench.shard.coordinator().expect("home").config.clone();
    let mut degraded = whole.clone();
    degraded.members[2].state = MemberState::Missing;
    let fate = |bench: &Bench, config: &ArrayConfig, status, passing| {
        let failure = MemberFailure {
            member: MemberIndex(1),
            incarnation: 0,
            status,
            late: false,
            passing,
        };
        bench.shard.fate(config, &failure)
    };
    let gone = |bench: &Bench, config: &ArrayConfig| fate(bench, config, Status::Gone, true);
    let torn = |bench: &Bench, config: &ArrayConfig| fate(bench, config, Status::Media, false);
    let full = |bench: &Bench, config: &ArrayConfig| fate(bench, config, Status::NoSpace, true);
    assert_eq!(gone(&bench, &whole), Fate::Excluded);
    assert_eq!(gone(&bench, &degraded), Fate::Held);
    assert_eq!(torn(&bench, &whole), Fate::Excluded);
    assert_eq!(torn(&bench, &degraded), Fate::Hopeless);
    assert_eq!(full(&bench, &whole), Fate::Held);
    std::sync::Arc::make_mut(&mut bench.shard.map).hopeless[1] = true;
    assert_eq!(gone(&bench, &degraded), Fate::Hopeless, "it has lost some");
    degraded.members[1].state = MemberState::Missing;
    assert_eq!(torn(&bench, &degraded), Fate::Excluded, "it is out");
}

#[test]
fn what_was_given_up_and_is_not_carried_out_leaves_a_stop_unclean() {
    for owed in [false, true] {
        let mut bench = clean();
        if owed {
            bench.shard.shared.owe();
        }
        assert_eq!(bench.shard.shared.owes(), owed);
        bench.command(Command::Stop);
        let config = &bench.shard.coordinator().expect("home").config;
        assert_eq!(config.clean, !owed);
    }
}

#[test]
fn a_command_does_not_wait_for_the_end_of_a_pass() {
    for distributes in [false, true] {
        let mut bench = clean();
        bench.shard.command(2, Command::Resync);
        while bench.shard.map.window.is_none() {
            bench.poll();
            let next = bench.outside.asked[0];
            bench.answer(next.drive.at(), next.operation, Status::Ok);
        }
        bench.outside.events.clear();
        if distributes {
            let owners = crate::owners::Owners::new(|_| super::ME);
            bench.shard.command(3, Command::Distribute(owners));
        }
        let options = crate::format::ArrayOptions::default();
        bench.shard.command(4, Command::Options(options));
        bench.answer_all();
        let at = |is_it: fn(&Event) -> bool| bench.outside.events.iter().position(is_it);
        let done = at(|event| matches!(event, Event::CommandDone { id: 4, .. }));
        let distributed = at(|event| matches!(event, Event::CommandDone { id: 3, .. }));
        let ended = at(|event| {
            matches!(
                event,
                Event::Pass {
                    state: PassEvent::Finished,
                    ..
                }
            )
        });
        assert!(done.is_some() && done < ended, "{done:?} {ended:?}");
        assert_eq!(distributed.is_some(), distributes);
        assert!(distributed.is_none_or(|at| Some(at) > done));
    }
}

#[test]
fn a_block_is_not_given_up_while_a_member_of_its_group_may_bring_it_back() {
    let shape = Shape {
        level: Level::L10,
        members: 4,
        ..Shape::default()
    };
    for (stripe, refused) in [(4, false), (5, true)] {
        let mut bench = Bench::home_of(shape, |_, _| {});
        bench.command(Command::Fail {
            member: MemberIndex(3),
        });
        bench.outside.events.clear();
        let rows = Rows {
            stripe: StripeIndex(stripe),
            start: 1,
            end: 2,
            roles: RoleSet::one(units::Role(0)),
        };
        let change = LossChange::GivenUp;
        let pauses = [0, 1, 8, 1].map(Duration::from_secs);
        for pause in pauses {
            bench.outside.now = bench.outside.now + pause;
            bench.tell(Message::ChangeLosses { change, rows });
            bench.answer_all();
            let answer = bench.outside.replies.pop();
            let made = matches!(answer, Some(Message::LossesChanged { ok: true }));
            assert_eq!(made, !refused, "stripe {stripe}");
        }
        let told = |event: &&Event| {
            let member = MemberIndex(3);
            matches!(event, Event::NotGivenUp { member: it, .. } if *it == member)
        };
        let told = bench.outside.events.iter().filter(told).count();
        assert_eq!(told, 2 * usize::from(refused), "once in ten seconds");
    }
}

#[test]
fn the_log_may_be_in_use_once_a_member_is_out_and_where_a_rebuild_has_failed() {
    let mut bench = clean();
    assert!(!bench.shard.is_log_used());
    bench.command(Command::Fail {
        member: MemberIndex(1),
    });
    assert!(bench.shard.is_log_used());
    for (level, members, is_unsafe) in [(Level::L5, 3, true), (Level::L1, 2, false)] {
        let shape = Shape {
            level,
            members,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        assert!(!bench.shard.is_refill_unsafe());
        bench.shard.unfill();
        assert_eq!(bench.shard.is_refill_unsafe(), is_unsafe);
        bench.shard.stir();
        bench.answer_all();
        assert!(!bench.shard.is_refill_unsafe(), "another life has begun");
    }
}
