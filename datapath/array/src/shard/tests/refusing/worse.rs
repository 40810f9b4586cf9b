//! More goes wrong while a row is mended: the drive fails a flush, cannot read what it refuses,
//! another member is out, the mode becomes another one.

use std::time::Duration;

use block::{Operation, Status};

use super::super::{Bench, member_of};
use super::meanwhile::{alone, mended, serve, whole};
use super::{Drives, NEW, STRIPE, before, degraded, place, row};
use crate::format::WriteHole;
use crate::io::{MemberRequest, Message};

/// As long as anything of this takes.
const TENTHS: u32 = 60;

/// Where the data of members begins.
fn data_offset(bench: &Bench) -> u64 {
    bench.shard.map.members[0].data_offset
}

/// Whether a row is mended, and this asks what its drive holds there.
fn asks(bench: &Bench, drive: usize, request: &MemberRequest) -> bool {
    let reads = request.operation == Operation::Read && request.offset >= data_offset(bench);
    mended(bench).is_some() && reads && request.drive.at() == drive
}

/// The block that was not asked for is told as it was, or not at all.
fn assert_other_is_right(bench: &mut Bench, drives: &mut Drives) {
    let [first, _] = row();
    let there = drives.look(bench, first);
    let right = there.is_none() || there == Some(before(first));
    assert!(right, "it is {there:?}, and was {}", before(first));
}

#[test]
fn a_flush_that_fails_while_the_log_is_told_ends_the_write() {
    let (mut bench, mut drives) = degraded(0, 1);
    bench.fill(NEW);
    let drive = member_of(&bench, STRIPE, 1);
    let write = bench.ask(Operation::Write, row()[1], 1);
    let mut failed = 0;
    for _ in 0..TENTHS {
        serve(&mut bench, &mut drives, |bench, request| {
            let flushes = request.operation == Operation::Flush && request.drive.at() == drive;
            let fails = mended(bench).is_some() && flushes;
            failed += u32::from(fails);
            Some(fails.then_some(Status::Media))
        });
        bench.pass(Duration::from_millis(100));
    }
    assert!(failed > 0);
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.shard.tickets.in_use(), 0);
}

#[test]
fn a_drive_of_which_nothing_is_hoped_any_more_ends_the_write() {
    for answer in [Status::Gone, Status::Media, Status::Ok] {
        let (mut bench, mut drives) = alone(0, &[(1, super::LANE)]);
        let drive = member_of(&bench, STRIPE, 1);
        let write = bench.ask(Operation::Write, row()[1], 1);
        let mut asked = 0;
        for _ in 0..TENTHS {
            serve(&mut bench, &mut drives, |bench, request| {
                if !asks(bench, drive, request) {
                    return Some(None);
                }
                asked += 1;
                if asked == 1 {
                    bench.install(|map| map.hopeless[drive] = true);
                }
                Some(Some(answer))
            });
            bench.pass(Duration::from_millis(100));
        }
        assert!(asked > 0);
        assert_eq!(bench.verdict(write), Some(Status::Media), "{answer:?}");
        assert_eq!(bench.shard.tickets.in_use(), 0, "{answer:?}");
    }
}

#[test]
fn nothing_is_given_up_because_of_a_drive_that_is_away() {
    let (mut bench, mut drives) = alone(0, &[(1, super::LANE)]);
    let drive = member_of(&bench, STRIPE, 1);
    let write = bench.ask(Operation::Write, row()[1], 1);
    let mut asked = 0;
    for step in 0..2 * TENTHS {
        serve(&mut bench, &mut drives, |bench, request| {
            let is_asked = asks(bench, drive, request);
            asked += u32::from(is_asked);
            if is_asked && asked == 1 {
                bench.install(|map| (map.held[drive], map.given_up) = (true, true));
            }
            let away = asked > 0 && step < TENTHS && request.drive.at() == drive;
            Some(away.then_some(Status::Gone))
        });
        if step == TENTHS + 30 {
            bench.install(|map| {
                (map.held[drive], map.given_up) = (false, false);
                map.released[drive] += 1;
            });
        }
        bench.pass(Duration::from_millis(100));
    }
    assert!(asked > 1, "it is asked again");
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.shard.tickets.in_use(), 0);
    let lists = |it: &Message| matches!(it, Message::ChangeLosses { .. });
    assert!(!bench.outside.messages.iter().any(lists));
    let [first, second] = row();
    assert_eq!(drives.look(&mut bench, first), Some(before(first)));
    assert_eq!(drives.look(&mut bench, second), Some(before(second)));
}

#[test]
fn what_hangs_on_a_block_that_can_be_read_again_later_is_right_or_given_up() {
    for refusing in [1, 2] {
        for takes in [0, 512] {
            let (mut bench, mut drives) = degraded(0, refusing);
            drives.takes = takes;
            bench.fill(NEW);
            let [_, second] = row();
            // It reads before it writes.
            let write = bench.ask(Operation::Write, second, 1);
            drives.answer(&mut bench);
            drives.unreadable = true;
            drives.answer_for(&mut bench, 20);
            assert_eq!(bench.verdict(write), Some(Status::Media));
            assert_other_is_right(&mut bench, &mut drives);
            drives.unreadable = false;
            assert_other_is_right(&mut bench, &mut drives);
            let there = drives.look(&mut bench, second);
            let right = [None, Some(NEW), Some(before(second))];
            assert!(right.contains(&there), "{there:?}");
            // Written again, all is as it should be.
            drives.refuses.clear();
            for block in row() {
                let written = drives.outcome(&mut bench, (Operation::Write, block, 1));
                assert_eq!(written, Some(Status::Ok));
            }
            for block in row() {
                assert!(drives.look(&mut bench, block).is_some());
            }
        }
    }
}

#[test]
fn a_mode_that_promises_more_waits_for_a_row_that_is_torn_without_the_log() {
    let (mut bench, mut drives) = alone(0, &[(1, super::LANE)]);
    bench.install(|map| map.write_hole = WriteHole::Off);
    let drive = member_of(&bench, STRIPE, 1);
    let write = bench.ask(Operation::Write, row()[1], 1);
    for _ in 0..20 {
        serve(&mut bench, &mut drives, |bench, request| {
            (!asks(bench, drive, request)).then_some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    let slot = mended(&bench).expect("it asks");
    assert!(bench.shard.tickets[slot].log_slot.is_none());
    let since = bench.install(|map| {
        map.write_hole = WriteHole::Auto;
        map.log_life += 1;
    });
    bench.make_effective(since);
    let life = bench.shard.map.log_life;
    bench.tell(Message::DrainLog { life, since });
    let drained = |bench: &Bench| {
        let mut replies = bench.outside.replies.iter();
        replies.any(|reply| matches!(reply, Message::LogDrained))
    };
    // What it holds is told, and nothing that is written to the log.
    serve(&mut bench, &mut drives, |bench, request| {
        let logs = request.operation == Operation::Write && request.offset < data_offset(bench);
        (!logs).then_some(None)
    });
    assert!(!drained(&bench), "the row is torn, and no log has it");
    let mut logged = 0;
    for _ in 0..20 {
        serve(&mut bench, &mut drives, |bench, request| {
            let writes = request.operation == Operation::Write;
            logged += u32::from(writes && request.offset < data_offset(bench));
            Some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    // Of two chunks: what was to be written, before the row is changed, and what it holds then.
    assert_eq!(logged, 4);
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert!(drained(&bench));
}

#[test]
fn a_member_that_failed_under_the_write_and_is_out_is_not_in_the_way() {
    let (mut bench, mut drives) = whole();
    bench.fill(NEW);
    let [out, needed] = [0, 1].map(|role| member_of(&bench, STRIPE, role));
    let spot = place(&bench, 1);
    drives.refuses.push(spot);
    let write = bench.write_stripe(STRIPE);
    serve(&mut bench, &mut drives, |bench, request| {
        let in_place = request.offset >= data_offset(bench);
        if request.drive.at() == out {
            Some(Some(Status::Gone))
        } else {
            (request.drive.at() != needed || !in_place).then_some(None)
        }
    });
    bench.exclude(out);
    for _ in 0..TENTHS {
        serve(&mut bench, &mut drives, |_, _| Some(None));
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.shard.tickets.in_use(), 0);
}
