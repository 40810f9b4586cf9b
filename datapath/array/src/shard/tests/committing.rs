//! Records that some members do not take: who is left out, waited for, or stays what it was.

use std::sync::Arc;

use block::{Operation, Status};
use units::{MemberIndex, StripeIndex, Update};

use super::returning::{NEW_UUID, come_back, config, quiet, replace};
use super::{Bench, LOOK, ME, MEMBERS, Patience, Shape};
use crate::command::Command;
use crate::format::{ArrayOptions, ExclusionCause, MemberState, WriteHole};
use crate::io::{Event, MemberFailure};
use crate::map::MapState;
use crate::regions::Suspects;

const MEMBER: MemberIndex = MemberIndex(1);

fn state(bench: &Bench) -> MemberState {
    config(bench).members[MEMBER.at()].state
}

/// Options that tell a record from the one before.
fn options() -> ArrayOptions {
    ArrayOptions {
        latency_target_us: 777,
        ..ArrayOptions::default()
    }
}

/// Drives answer whatever they are asked; the first so many of these are answered like this.
fn answer(bench: &mut Bench, bad: (usize, Operation), mut count: usize, status: Status) {
    for _ in 0..1000 {
        let Some(asked) = bench.outside.asked.first() else {
            return;
        };
        let is_it = (asked.drive.at(), asked.operation) == bad && count > 0;
        count -= usize::from(is_it);
        let status = if is_it { status } else { Status::Ok };
        let (drive, operation) = (asked.drive.at(), asked.operation);
        bench.answer(drive, operation, status);
        bench.poll();
    }
    panic!("it asks again and again");
}

/// How a command ended, and which members were said to be out.
fn outcome(bench: &Bench) -> (Option<bool>, Vec<usize>) {
    let (mut done, mut out) = (None, Vec::new());
    for event in &bench.outside.events {
        if let Event::CommandDone { result, .. } = event {
            assert_eq!(done.replace(result.is_ok()), None, "it is answered once");
        }
        if let Event::MemberExcluded { member, .. } = event {
            out.push(member.at());
        }
    }
    (done, out)
}

#[test]
fn whoever_does_not_take_a_record_is_left_out_by_the_next_one_which_says_the_rest_too() {
    for operation in [Operation::Write, Operation::Flush] {
        let mut bench = quiet();
        let before = config(&bench).update;
        bench.shard.command(2, Command::Options(options()));
        bench.poll();
        answer(&mut bench, (1, operation), 1, Status::ReadOnly);
        assert_eq!(outcome(&bench), (Some(true), vec![1]), "{operation:?}");
        let config = config(&bench);
        // The record that it may have is another one than that which counts.
        assert_eq!(config.update, Update(before.0 + 2));
        assert_eq!(config.options, options());
        let MemberState::Excluded { since, cause, .. } = state(&bench) else {
            panic!("{:?}", state(&bench));
        };
        assert_eq!((since, cause), (config.update, ExclusionCause::WriteError));
        assert_eq!(bench.shard.map.members[1].state, MapState::Lost);
        let mut counted = [0; ExclusionCause::ALL.len()];
        counted[ExclusionCause::WriteError.at()] = 1;
        assert_eq!(bench.shard.counters().excluded, counted);
    }
}

#[test]
fn who_is_gone_when_a_record_is_written_is_called_gone() {
    let mut bench = quiet();
    bench.shard.command(2, Command::Options(options()));
    bench.poll();
    answer(&mut bench, (1, Operation::Write), 1, Status::Gone);
    assert_eq!(outcome(&bench), (Some(true), vec![1]));
    let MemberState::Excluded { cause, .. } = state(&bench) else {
        panic!("{:?}", state(&bench));
    };
    assert_eq!(cause, ExclusionCause::Gone);
}

#[test]
fn a_new_drive_that_does_not_take_its_first_record_was_never_there() {
    let mut bench = quiet();
    bench.command(Command::Fail { member: MEMBER });
    bench.outside.events.clear();
    let before = config(&bench);
    let places = bench.shard.coordinator().expect("home").places.clone();
    let member = bench.shard.map.members[1];
    bench.shard.command(2, replace(None));
    bench.poll();
    answer(&mut bench, (7, Operation::Write), 1, Status::ReadOnly);
    assert_eq!(
        outcome(&bench),
        (Some(false), vec![]),
        "nobody is out by it"
    );
    let after = config(&bench);
    assert_eq!(
        after.members, before.members,
        "who was there may still return"
    );
    assert_eq!(bench.shard.coordinator().expect("home").places, places);
    assert_eq!(bench.shard.map.members[1], member);
    let uuid = before.members[1].uuid;
    assert_ne!(uuid, NEW_UUID);
    bench.outside.events.clear();
    bench.command(come_back(uuid));
    assert_eq!(outcome(&bench), (Some(true), vec![]));
}

#[test]
fn who_comes_back_and_does_not_take_its_record_is_out_with_what_it_lacked_before() {
    let mut bench = quiet();
    bench.command(Command::Fail { member: MEMBER });
    let missed = |bench: &Bench| match state(bench) {
        MemberState::Excluded { missed, .. } => missed,
        state @ (MemberState::InSync | MemberState::Rebuilding { .. } | MemberState::Missing) => {
            panic!("{state:?}")
        }
    };
    let before = missed(&bench);
    let uuid = config(&bench).members[1].uuid;
    bench.outside.events.clear();
    bench.shard.command(2, come_back(uuid));
    bench.poll();
    answer(&mut bench, (1, Operation::Write), 1, Status::ReadOnly);
    assert_eq!(outcome(&bench), (Some(false), vec![1]));
    assert_eq!(missed(&bench), before);
    let back = |event: &Event| matches!(event, Event::MemberReturned { .. });
    assert!(!bench.outside.events.iter().any(back), "it has not come");
    bench.outside.events.clear();
    bench.command(come_back(uuid));
    assert_eq!(outcome(&bench), (Some(true), vec![]));
    assert!(bench.outside.events.iter().any(back));
}

#[test]
fn a_record_waits_for_a_member_that_has_no_space_and_is_the_same_then() {
    let mut bench = quiet();
    let before = config(&bench).update;
    bench.shard.command(2, Command::Options(options()));
    bench.poll();
    answer(&mut bench, (1, Operation::Write), 100, Status::NoSpace);
    assert_eq!(outcome(&bench), (None, vec![]));
    assert_eq!(bench.shard.map.held, [false, true, false]);
    assert_eq!(config(&bench).update, before, "nothing is durable");
    for _ in 0..20 {
        bench.pass(super::LOOK * 10);
        bench.answer_all();
    }
    assert_eq!(outcome(&bench), (Some(true), vec![]));
    assert_eq!(bench.shard.map.held, [false; MEMBERS]);
    assert_eq!(
        config(&bench).update,
        Update(before.0 + 1),
        "no other number"
    );
}

#[test]
fn when_no_record_can_be_written_the_array_takes_no_more_writes_and_says_so_once() {
    let mut bench = quiet();
    let before = config(&bench);
    bench.shard.command(2, Command::Options(options()));
    bench.poll();
    for (operation, status) in [
        (Operation::Write, Status::Ok),
        (Operation::Flush, Status::Media),
    ] {
        for drive in 0..MEMBERS {
            bench.answer(drive, operation, status);
        }
        bench.poll();
    }
    bench.answer_all();
    assert_eq!(outcome(&bench), (Some(false), vec![]));
    let failed = |event: &&Event| matches!(event, Event::MetadataFailed);
    assert_eq!(bench.outside.events.iter().filter(failed).count(), 1);
    assert!(bench.shard.map.read_only);
    assert_eq!(config(&bench).members, before.members, "nobody is left out");
    let write = bench.ask(Operation::Write, 0, 1);
    bench.answer_all();
    assert!(!bench.verdict(write).expect("answered").is_ok());
    bench.outside.events.clear();
    bench.shard.command(2, Command::Options(options()));
    bench.poll();
    assert_eq!(outcome(&bench), (Some(false), vec![]));
    assert!(bench.outside.asked.is_empty(), "and no drive is asked");
}

#[test]
fn nothing_is_computed_from_who_was_gone_when_no_record_could_say_so() {
    for (status, hopeless) in [(Status::Gone, true), (Status::ReadOnly, false)] {
        let mut bench = quiet();
        bench.shard.coordinate_failure(MemberFailure {
            member: MEMBER,
            incarnation: 0,
            status,
            late: false,
            passing: status == Status::Gone,
        });
        bench.shard.stir();
        bench.poll();
        answer(&mut bench, (0, Operation::Flush), 1, Status::Media);
        let map = &bench.shard.map;
        assert!(map.read_only, "one is out, and one cannot have it");
        assert_eq!(map.hopeless, [false, hopeless, false], "{status:?}");
    }
}

#[test]
fn who_is_left_out_is_known_by_the_last_record_that_he_is_sure_to_have() {
    let held = |bench: &Bench| {
        let MemberState::Excluded { missed, .. } = state(bench) else {
            panic!("{:?}", state(bench));
        };
        missed.held
    };
    let mut bench = quiet();
    let name = config(&bench).name_of_update();
    bench.command(Command::Fail { member: MEMBER });
    assert_eq!(held(&bench), name, "all have taken it");
    // What a start begins with nobody has yet.
    let last = (Update(4), 0xABCD);
    let mut bench = Bench::of(Shape::default(), ME, |config, _| {
        config.update = Update(5);
        config.ancestors = vec![last];
    });
    bench.shard.command(2, Command::Start);
    bench.poll();
    answer(&mut bench, (1, Operation::Write), 1, Status::ReadOnly);
    assert_eq!(outcome(&bench), (Some(true), vec![1]));
    assert_eq!(held(&bench), (last.0, 0xABCD));
}

#[test]
fn the_first_record_of_a_start_says_so_also_when_a_member_does_not_take_it() {
    for refuses in [false, true] {
        let mut bench = Bench::of(Shape::default(), ME, |config, _| {
            config.update = Update(5);
            config.unfinished_since = Update(5);
        });
        bench.shard.command(2, Command::Start);
        bench.poll();
        while !bench.shard.decider().started {
            let asked = bench.outside.asked.first().expect("it goes on");
            let (drive, operation) = (asked.drive.at(), asked.operation);
            let refused = refuses && (drive, operation) == (1, Operation::Write);
            let status = if refused {
                Status::ReadOnly
            } else {
                Status::Ok
            };
            bench.answer(drive, operation, status);
            bench.poll();
        }
        let first = config(&bench);
        assert_eq!(first.unfinished_since, Update(5), "{refuses}");
        let update = first.update;
        answer(&mut bench, (0, Operation::Write), 0, Status::Ok);
        assert_eq!(outcome(&bench).0, Some(true));
        let second = config(&bench);
        assert!(second.update > update);
        assert_eq!(second.unfinished_since, Update(0));
    }
}

#[test]
fn nobody_calls_an_array_strict_while_parity_may_not_agree_that_was_not_logged() {
    let strict = || {
        Command::Options(ArrayOptions {
            write_hole: WriteHole::Strict,
            ..ArrayOptions::default()
        })
    };
    for (untrusted, done) in [(false, true), (true, false)] {
        let mut bench = Bench::home(|config, _| config.options.write_hole = WriteHole::Auto);
        bench.command(Command::Passes { run: false });
        bench.outside.events.clear();
        if untrusted {
            let mut map = bench.shard.successor();
            map.trusted_until = StripeIndex(0);
            map.suspects = Arc::new(Suspects::all(map.suspects.space()));
            bench.set_map(map);
        }
        let is_untrusted = bench.shard.map.stripes_untrusted() > 0;
        assert_eq!(is_untrusted, untrusted);
        bench.command(strict());
        assert_eq!(outcome(&bench).0, Some(done));
    }
}

/// What the drives that are asked for flushes say; member 1 says nothing.
fn flushes_end(bench: &mut Bench, statuses: [(usize, Status); 2]) {
    for (drive, status) in statuses {
        bench.answer(drive, Operation::Flush, status);
    }
    bench.poll();
}

#[test]
fn a_flush_that_was_abandoned_and_failed_counts_against_a_member_that_is_beyond_help() {
    for (says, verdict) in [(Status::Ok, Status::Ok), (Status::Media, Status::Media)] {
        let mut bench = quiet();
        bench.shard.command(2, Command::Options(options()));
        bench.poll();
        for drive in 0..MEMBERS {
            bench.answer(drive, Operation::Write, Status::Ok);
        }
        bench.poll();
        flushes_end(&mut bench, [(0, Status::Ok), (2, Status::Ok)]);
        for _ in 0..=Patience::default().late {
            bench.pass(LOOK);
        }
        assert_eq!(bench.shard.counters().abandoned, 1);
        for drive in [0, 2] {
            bench.answer(drive, Operation::Write, Status::Ok);
        }
        bench.poll();
        // Nobody can be left out any more, and nobody is to be believed who was silent.
        flushes_end(&mut bench, [(0, Status::Media), (2, Status::Ok)]);
        bench.answer_all_but(&[1]);
        let map = &bench.shard.map;
        assert!(map.read_only && !map.is_out(MEMBER, 0));
        assert_eq!(map.hopeless, [false, true, false]);
        bench.answer(1, Operation::Flush, says);
        bench.poll();
        bench.shard.shared.mark_written(MEMBER);
        let flush = bench.ask(Operation::Flush, 0, 0);
        bench.poll();
        assert_eq!(bench.is_asked(Operation::Flush), [1]);
        bench.answer_all();
        assert_eq!(bench.verdict(flush), Some(verdict));
    }
}
