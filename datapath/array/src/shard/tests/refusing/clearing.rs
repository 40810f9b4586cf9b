//! Zeroes of a whole stripe are under way when another member is lost, and meet a block that is
//! refused.

use std::time::Duration;

use block::{Operation, Status};
use units::{MemberIndex, RoleSet};

use super::super::{Bench, STRIPE_BLOCKS, Shape, member_of};
use super::{Drives, LANE, START, STRIPE, before, place, row};
use crate::buffers::TicketBuffers;
use crate::command::Command;
use crate::format::WriteHole;
use crate::geometry::Level;
use crate::io::{Event, MemberRequest};
use crate::map::MapState;

/// An array that is whole, with content.
fn whole(shape: Shape, mode: WriteHole) -> (Bench, Drives) {
    let mut bench = Bench::home_of(shape, |config, _| config.options.write_hole = mode);
    let mut drives = Drives::default();
    for block in START..START + STRIPE_BLOCKS {
        bench.fill(before(block));
        let written = drives.outcome(&mut bench, (Operation::Write, block, 1));
        assert_eq!(written, Some(Status::Ok));
    }
    drives.writes.clear();
    (bench, drives)
}

/// When the other member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Before its drive has refused anything.
    Before,
    /// While a record is written that leaves it out, so that the one that refuses is waited for.
    Beside,
}

/// All of the stripe is zeroed while one member is lost and another one refuses a block. What it
/// came to.
fn clear(
    (bench, drives): (&mut Bench, &mut Drives),
    operation: Operation,
    (lost, refusing): (u8, u8),
    when: Lost,
) -> Option<Status> {
    let all = u32::try_from(STRIPE_BLOCKS).expect("few");
    let cookie = bench.ask(operation, START, all);
    bench.poll();
    let refuses = member_of(bench, STRIPE, refusing);
    let is_kept = |request: &MemberRequest| {
        request.operation == Operation::WriteZeroes && request.drive.at() == refuses
    };
    // What is logged is logged first.
    while !bench.outside.asked.iter().any(is_kept) {
        drives.answer_next(bench);
    }
    drives.refuses.push(place(bench, refusing));
    let at = bench.outside.asked.iter().position(is_kept);
    let kept = bench.outside.asked.remove(at.expect("it is asked"));
    let member = MemberIndex::from_at(member_of(bench, STRIPE, lost));
    if when == Lost::Before {
        bench.shard.command(7, Command::Fail { member });
        drives.answer(bench);
    } else {
        drives.read_only = Some(member.at());
        while bench.shard.decider().commit.is_none() {
            drives.answer_next(bench);
        }
        assert_eq!(bench.shard.hold.len(), 1, "no map says so");
    }
    bench.outside.asked.insert(0, kept);
    for _ in 0..60 {
        drives.answer(bench);
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.shard.map.members[member.at()].state, MapState::Lost);
    let held = |event: &Event| matches!(event, Event::Holds { .. });
    let is_held = bench.outside.events.iter().any(held);
    let several = drives.refuses.len() > 1;
    assert_eq!(is_held, when == Lost::Beside || several);
    bench.verdict(cookie)
}

#[test]
fn zeroes_under_way_that_meet_a_refused_block_fail_and_nothing_else_is_lost() {
    let roles = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    for (lost, refusing) in roles {
        for operation in [Operation::WriteZeroes, Operation::Discard] {
            for mode in [WriteHole::Off, WriteHole::Auto, WriteHole::Strict] {
                for when in [Lost::Before, Lost::Beside] {
                    let what = format!("{operation:?} {mode:?} {when:?}: {lost} {refusing}");
                    let (mut bench, mut drives) = whole(Shape::default(), mode);
                    let both = (&mut bench, &mut drives);
                    let verdict = clear(both, operation, (lost, refusing), when);
                    assert_eq!(verdict, Some(Status::Media), "{what}");
                    assert_eq!(bench.shard.tickets.in_use(), 0, "{what}");
                    assert_eq!(bench.shard.buffers.in_use(), 0, "{what}");
                    assert!(!bench.shard.map.is_holding(), "{what}");
                    let told = bench.outside.events.iter();
                    let told = told.filter(|event| matches!(event, Event::WriteRefused { .. }));
                    assert_eq!(told.count(), 1, "{what}");
                    for block in START..START + STRIPE_BLOCKS {
                        let there = drives.look(&mut bench, block);
                        let in_row = row().contains(&block);
                        match there {
                            Some(byte) if in_row => assert!(byte == 0 || byte == before(block)),
                            Some(byte) => assert_eq!(byte, 0, "{what}: {block}"),
                            None => {
                                let listed = bench.shard.map.lost_blocks.has(block);
                                assert!(in_row && listed && refusing == 2, "{what}: {block}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_copy_that_refuses_zeroes_under_way_decides_what_all_hold() {
    let shape = Shape {
        level: Level::L1,
        members: 3,
        ..Shape::default()
    };
    for operation in [Operation::WriteZeroes, Operation::Discard] {
        let mut bench = Bench::home_of(shape, |_, _| {});
        let mut drives = Drives::default();
        bench.fill(9);
        let blocks = u32::try_from(STRIPE_BLOCKS / 2).expect("few");
        let write = (Operation::Write, 0, blocks);
        assert_eq!(drives.outcome(&mut bench, write), Some(Status::Ok));
        for lost in [0, 1] {
            let cookie = (lost == 1).then(|| bench.ask(operation, 0, blocks));
            bench.poll();
            let is_kept = |it: &MemberRequest| it.drive.at() == 2 && it.operation.changes();
            let at = bench.outside.asked.iter().position(is_kept);
            let kept = at.map(|at| bench.outside.asked.remove(at));
            let member = MemberIndex(lost);
            bench.shard.command(7, Command::Fail { member });
            drives.answer(&mut bench);
            let Some(kept) = kept else {
                continue;
            };
            let data = bench.shard.map.members[2].data_offset / super::BLOCK;
            drives.refuses.push((2, data + LANE));
            bench.outside.asked.push(kept);
            drives.answer_for(&mut bench, 30);
            let verdict = bench.verdict(cookie.expect("asked"));
            assert_eq!(verdict, Some(Status::Media), "{operation:?}");
            assert!(!bench.shard.map.is_holding() && bench.shard.tickets.in_use() == 0);
            for block in 0..u64::from(blocks) {
                let right = if block == LANE { 9 } else { 0 };
                assert_eq!(drives.look(&mut bench, block), Some(right));
            }
        }
    }
}

#[test]
fn without_buffers_zeroes_that_are_refused_wait_for_some() {
    let (mut bench, mut drives) = whole(Shape::default(), WriteHole::Auto);
    let taken: Vec<_> = std::iter::from_fn(|| bench.shard.lend_buffer(4096)).collect();
    let mut ticket = TicketBuffers::default();
    let all = RoleSet(!0);
    let left = 128 - taken.len();
    assert_eq!(left, 64);
    let got = bench
        .shard
        .buffers
        .acquire(&mut ticket, 4096, RoleSet::EMPTY, all);
    assert!(got);
    let both = (&mut bench, &mut drives);
    let verdict = clear(both, Operation::WriteZeroes, (0, 1), Lost::Before);
    assert_eq!((verdict, bench.shard.tickets.in_use()), (None, 1));
    bench.shard.buffers.release(&mut ticket);
    for loan in taken {
        bench.shard.buffers.give_back(loan);
    }
    drives.answer_for(&mut bench, 30);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert_eq!(drives.look(&mut bench, START), Some(0));
}

/// Whoever has the buffers may wait until their place in the log is free.
#[test]
fn without_buffers_logged_zeroes_that_are_refused_do_not_wait_for_ever() {
    let (mut bench, mut drives) = whole(Shape::default(), WriteHole::Strict);
    let taken: Vec<_> = std::iter::from_fn(|| bench.shard.lend_buffer(4096)).collect();
    let mut ticket = TicketBuffers::default();
    let all = RoleSet(!0);
    let got = bench
        .shard
        .buffers
        .acquire(&mut ticket, 4096, RoleSet::EMPTY, all);
    assert!(got && taken.len() == 64);
    let cookie = bench.ask(
        Operation::WriteZeroes,
        START,
        u32::try_from(STRIPE_BLOCKS).expect("few"),
    );
    bench.poll();
    let refuses = member_of(&bench, STRIPE, 1);
    let is_kept = |request: &MemberRequest| {
        request.operation == Operation::WriteZeroes && request.drive.at() == refuses
    };
    while !bench.outside.asked.iter().any(is_kept) {
        drives.answer_next(&mut bench);
    }
    drives.refuses.push(place(&bench, 1));
    let at = bench.outside.asked.iter().position(is_kept);
    let kept = bench.outside.asked.remove(at.expect("it is asked"));
    let member = MemberIndex::from_at(member_of(&bench, STRIPE, 0));
    bench.shard.command(7, Command::Fail { member });
    drives.answer(&mut bench);
    bench.outside.asked.insert(0, kept);
    drives.answer_for(&mut bench, 30);
    assert!(bench.shard.map.is_holding(), "it is waited for");
    assert_eq!(bench.verdict(cookie), None);
    drives.answer_for(&mut bench, 700);
    assert_eq!(bench.verdict(cookie), Some(Status::Media));
    bench.shard.buffers.release(&mut ticket);
    for loan in taken {
        bench.shard.buffers.give_back(loan);
    }
    drives.answer_for(&mut bench, 50);
    assert_eq!(bench.shard.tickets.in_use(), 0);
}

#[test]
fn zeroes_that_two_members_refuse_wait_until_one_of_them_does_not() {
    let (mut bench, mut drives) = whole(Shape::default(), WriteHole::Auto);
    drives.refuses.push(place(&bench, 2));
    let both = (&mut bench, &mut drives);
    let verdict = clear(both, Operation::WriteZeroes, (0, 1), Lost::Before);
    assert_eq!((verdict, bench.shard.tickets.in_use()), (None, 1));
    drives.refuses.remove(0);
    drives.answer_for(&mut bench, 50);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert_eq!(bench.shard.buffers.in_use(), 0);
    assert!(!bench.shard.map.is_holding());
    for block in START..START + STRIPE_BLOCKS {
        let there = drives.look(&mut bench, block);
        let right = there == Some(0) || row().contains(&block) && there == Some(before(block));
        assert!(right, "{block}: {there:?}");
    }
}
