//! What else happens while a drive refuses a block: other members fail or come back, holds are
//! given up, maps come.

use std::time::Duration;

use block::{Operation, Status};
use units::StripeIndex;

use super::super::{Bench, LOOK, STRIPE_BLOCKS, member_of};
use super::{BLOCK, CHUNK, Drives, LANE, NEW, START, STRIPE, before, degraded, place, row};
use crate::format::WriteHole;
use crate::io::{MemberRequest, Message};
use crate::map::MapState;

/// An array that is whole, with content, of a shard whose home is another one.
pub(super) fn whole() -> (Bench, Drives) {
    let mut bench = Bench::new();
    let mut drives = Drives::default();
    for block in START..START + STRIPE_BLOCKS {
        bench.fill(before(block));
        let written = drives.outcome(&mut bench, (Operation::Write, block, 1));
        assert_eq!(written, Some(Status::Ok));
    }
    (bench, drives)
}

/// As `degraded`, of such a shard. What refuses: roles and lanes.
pub(super) fn alone(lost: u8, refused: &[(u8, u64)]) -> (Bench, Drives) {
    let (mut bench, mut drives) = whole();
    let member = member_of(&bench, STRIPE, lost);
    bench.exclude(member);
    for &(role, lane) in refused {
        let (drive, block) = place(&bench, role);
        drives.refuses.push((drive, block - LANE + lane));
    }
    bench.fill(NEW);
    (bench, drives)
}

/// All is answered: as `each` says, or as the drives do. What it says nothing of hangs.
pub(super) fn serve(
    bench: &mut Bench,
    drives: &mut Drives,
    mut each: impl FnMut(&mut Bench, &MemberRequest) -> Option<Option<Status>>,
) {
    bench.poll();
    let mut kept = Vec::new();
    let mut count = 0;
    while !bench.outside.asked.is_empty() {
        count += 1;
        assert!(count < 100_000, "it asks again and again");
        let request = bench.outside.asked.remove(0);
        let Some(answer) = each(bench, &request) else {
            kept.push(request);
            continue;
        };
        let status = answer.unwrap_or_else(|| drives.carry_out(&request));
        bench.outside.room += 1;
        let cookie = request.cookie;
        bench.shard.drive_done(cookie, status, &mut bench.outside);
        bench.poll();
    }
    bench.outside.asked = kept;
}

/// The ticket whose row is being mended, if there is one.
pub(super) fn mended(bench: &Bench) -> Option<u32> {
    let tickets = &bench.shard.tickets;
    let is_mended = |slot: &u32| {
        let refusals = tickets[*slot].refusals.as_ref();
        refusals.is_some_and(|it| !it.is_met())
    };
    tickets.used().into_iter().find(is_mended)
}

/// The third member is being filled, and has been in the stripe: so the one that refuses is needed,
/// and not for this stripe.
fn beside_a_rebuild() -> (Bench, Drives, (usize, u64), usize) {
    let (mut bench, mut drives) = alone(0, &[]);
    let other = member_of(&bench, STRIPE, 0);
    bench.install(|map| {
        let until = StripeIndex(STRIPE + 3);
        map.members[other].state = MapState::Rebuilding { until };
    });
    let spot = place(&bench, 1);
    drives.refuses.push(spot);
    (bench, drives, spot, other)
}

#[test]
fn two_members_that_refuse_in_one_write_are_waited_for_and_nothing_is_changed() {
    for (lost, one) in [(0, 1), (1, 0)] {
        let (mut bench, mut drives) = degraded(lost, one);
        let (drive, block) = place(&bench, 2);
        drives.refuses.push((drive, block + 1));
        bench.fill(NEW);
        let first = START + CHUNK * u64::from(one) + 2;
        let write = bench.ask(Operation::Write, first, 4);
        drives.answer_for(&mut bench, 30);
        assert_eq!(bench.verdict(write), None);
        drives.refuses.clear();
        bench.pass(Duration::from_secs(2));
        drives.answer(&mut bench);
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        for block in START..START + STRIPE_BLOCKS {
            let new = (first..first + 4).contains(&block);
            let right = if new { NEW } else { before(block) };
            assert_eq!(drives.look(&mut bench, block), Some(right));
        }
    }
}

#[test]
fn a_refused_write_ends_when_the_array_takes_no_writes_any_more() {
    let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
    let parity = member_of(&bench, STRIPE, 2);
    let data = bench.shard.map.members[0].data_offset;
    let write = bench.ask(Operation::Write, row()[1], 1);
    for _ in 0..15 {
        serve(&mut bench, &mut drives, |_, request| {
            let writes = request.operation == Operation::Write && request.offset >= data;
            (request.drive.at() != parity || !writes).then_some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    bench.install(|map| map.read_only = true);
    drives.answer(&mut bench);
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.shard.tickets.in_use(), 0);
}

#[test]
fn however_long_a_drive_takes_to_refuse_that_ends() {
    for seconds in [1, 7, 9, 30] {
        let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
        let write = bench.ask(Operation::Write, row()[1], 1);
        let (drive, block) = drives.refuses[0];
        let mut attempts = 0;
        for _ in 0..40 {
            serve(&mut bench, &mut drives, |bench, request| {
                let blocks = request.offset / BLOCK..(request.offset + request.length) / BLOCK;
                let writes = request.operation == Operation::Write;
                if writes && request.drive.at() == drive && blocks.contains(&block) {
                    attempts += 1;
                    bench.outside.now = bench.outside.now + Duration::from_secs(seconds);
                }
                Some(None)
            });
            bench.pass(Duration::from_millis(100));
        }
        assert_eq!(bench.verdict(write), Some(Status::Media), "{attempts}");
    }
}

#[test]
fn a_refusal_counts_from_its_own_first_attempt() {
    let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
    let first = bench.ask(Operation::Write, row()[1], 1);
    drives.answer(&mut bench);
    let spot = std::mem::take(&mut drives.refuses);
    bench.pass(Duration::from_millis(100));
    drives.answer(&mut bench);
    assert_eq!(bench.verdict(first), Some(Status::Ok));
    bench.pass(Duration::from_secs(3));
    drives.refuses = spot;
    let second = bench.ask(Operation::Write, row()[1], 1);
    drives.answer(&mut bench);
    assert_eq!(bench.verdict(second), None, "it was refused once");
}

#[test]
fn a_drive_that_was_gone_refuses_from_when_it_is_back() {
    let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
    let write = bench.ask(Operation::Write, row()[1], 1);
    let (drive, block) = drives.refuses[0];
    for step in 0..200 {
        serve(&mut bench, &mut drives, |_, request| {
            let gone = step > 3 && request.drive.at() == drive;
            Some(gone.then_some(Status::Gone))
        });
        if step == 5 {
            bench.install(|map| map.held[drive] = true);
        }
        bench.pass(Duration::from_millis(100));
    }
    let mut attempts = 0;
    for _ in 0..40 {
        serve(&mut bench, &mut drives, |_, request| {
            let blocks = request.offset / BLOCK..(request.offset + request.length) / BLOCK;
            let writes = request.operation == Operation::Write;
            attempts +=
                usize::from(writes && request.drive.at() == drive && blocks.contains(&block));
            Some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert!(
        attempts > 5,
        "it was asked {attempts} times, not for a second"
    );
}

#[test]
fn a_write_that_was_given_up_leaves_a_row_that_agrees() {
    let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
    bench.install(|map| map.write_hole = WriteHole::Off);
    let parity = member_of(&bench, STRIPE, 2);
    let [other, bad] = row();
    let write = bench.ask(Operation::Write, bad, 1);
    for step in 0..60 {
        serve(&mut bench, &mut drives, |_, request| {
            let reads = request.operation == Operation::Read;
            let gone = step < 40 && request.drive.at() == parity && !reads;
            Some(gone.then_some(Status::Gone))
        });
        if step == 2 {
            bench.install(|map| {
                map.held[parity] = true;
                map.given_up = true;
            });
        }
        bench.pass(Duration::from_millis(100));
        if step == 39 {
            assert_eq!(bench.verdict(write), Some(Status::Media));
        }
    }
    bench.install(|map| {
        map.held[parity] = false;
        map.given_up = false;
        map.released[parity] += 1;
    });
    drives.answer_for(&mut bench, 60);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert_eq!(drives.look(&mut bench, other), Some(before(other)));
    assert_eq!(drives.look(&mut bench, bad), Some(before(bad)));
}

#[test]
fn a_block_that_cannot_be_read_either_is_what_was_written_for_whom_the_others_tell() {
    let (mut bench, mut drives, ..) = beside_a_rebuild();
    drives.unreadable = true;
    let [first, bad] = row();
    assert_eq!(drives.look(&mut bench, bad), Some(before(bad)));
    bench.fill(NEW);
    let write = drives.outcome(&mut bench, (Operation::Write, bad, 1));
    assert_eq!(write, Some(Status::Media));
    assert_eq!(drives.look(&mut bench, bad), Some(NEW));
    assert_eq!(drives.look(&mut bench, first), Some(before(first)));
}

#[test]
fn what_the_log_has_of_it_stays_over_a_new_map_until_the_row_agrees() {
    let (mut bench, mut drives) = alone(0, &[(1, LANE)]);
    let data = bench.shard.map.members[0].data_offset;
    let write = bench.ask(Operation::Write, row()[1], 1);
    let (mut kept, mut written, mut told) = (None, 0, 0);
    for _ in 0..15 {
        serve(&mut bench, &mut drives, |bench, request| {
            let Some(slot) = mended(bench) else {
                return Some(None);
            };
            let now = bench.shard.tickets[slot].log_slot;
            if request.operation == Operation::Read && kept.is_none() {
                kept = now;
                bench.install(|map| map.log_life += 1);
            } else if request.operation == Operation::Write && request.offset >= data {
                assert_eq!((now, told), (kept, 0));
                written += 1;
            } else if request.operation == Operation::Write {
                assert_ne!(now, kept, "the log is told what is there");
                told += 1;
            }
            Some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    assert!(kept.is_some(), "it is logged");
    assert_eq!((written, told), (1, 2), "parity; then it and the block");
    assert_eq!(bench.verdict(write), Some(Status::Media));
    let [first, bad] = row();
    assert_eq!(drives.look(&mut bench, first), Some(before(first)));
    assert_eq!(drives.look(&mut bench, bad), Some(before(bad)));
}

#[test]
fn what_was_begun_without_the_log_is_logged_before_its_row_is_changed() {
    let (mut bench, mut drives) = whole();
    bench.fill(NEW);
    let [_, bad] = row();
    let write = bench.ask(Operation::Write, bad, 1);
    serve(&mut bench, &mut drives, |_, request| {
        (request.operation == Operation::Read).then_some(None)
    });
    assert_eq!(bench.is_asked(Operation::Write).len(), 2, "in place");
    let out = member_of(&bench, STRIPE, 0);
    bench.exclude(out);
    let spot = place(&bench, 1);
    drives.refuses.push(spot);
    let mut asked = 0;
    for _ in 0..15 {
        serve(&mut bench, &mut drives, |bench, request| {
            let is_here = (request.drive.at(), request.offset / BLOCK) == spot;
            if request.operation == Operation::Read && is_here {
                let slot = mended(bench).expect("nobody else reads it");
                assert!(bench.shard.tickets[slot].log_slot.is_some());
                asked += 1;
            }
            Some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!((asked, bench.verdict(write)), (1, Some(Status::Media)));
    let [first, bad] = row();
    assert_eq!(drives.look(&mut bench, first), Some(before(first)));
    assert_eq!(drives.look(&mut bench, bad), Some(before(bad)));
}

/// What refused parity told is to be given up, and whoever decides about that does not want it.
#[test]
fn a_row_that_is_not_given_up_is_waited_for_and_the_guests_memory_is_its_own() {
    for (given_up, by_rows) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut bench, mut drives) = alone(0, &[(2, LANE)]);
        let [first, second] = row();
        if by_rows {
            let (drive, block) = place(&bench, 1);
            drives.bad.push((drive, block - LANE + CHUNK - 1));
        }
        let blocks = STRIPE_BLOCKS - if by_rows { CHUNK / 2 } else { 0 };
        let blocks = u32::try_from(blocks).expect("few");
        let write = bench.ask(Operation::Write, START, blocks);
        let parity = member_of(&bench, STRIPE, 2);
        let mut refused = 0;
        for step in 0..60 {
            serve(&mut bench, &mut drives, |_, _| Some(None));
            for message in std::mem::take(&mut bench.outside.messages) {
                if matches!(message, Message::ChangeLosses { .. }) {
                    refused += 1;
                    if given_up && refused == 1 {
                        bench.install(|map| {
                            map.held[parity] = true;
                            map.given_up = true;
                        });
                        (0..8).for_each(|_| bench.pass(Duration::from_millis(500)));
                        assert_eq!(bench.verdict(write), Some(Status::Media));
                        bench.fill(0x33);
                    }
                    bench.tell(Message::LossesChanged { ok: false });
                }
            }
            if step == 5 {
                bench.install(|map| map.held[parity] = true);
            }
            bench.pass(Duration::from_millis(100));
        }
        assert!((2..7).contains(&refused), "it is asked {refused} times");
        let answer = given_up.then_some(Status::Media);
        assert_eq!(bench.verdict(write), answer);
        drives.refuses.clear();
        for _ in 0..30 {
            serve(&mut bench, &mut drives, |_, _| Some(None));
            bench.pass(Duration::from_millis(100));
        }
        bench.install(|map| {
            map.held.fill(false);
            map.given_up = false;
        });
        drives.answer_for(&mut bench, 10);
        assert_eq!(bench.shard.tickets.in_use(), 0);
        for block in [first, second] {
            assert_eq!(drives.look(&mut bench, block), Some(NEW));
        }
        let after = drives.look(&mut bench, START + CHUNK - 2);
        let is_old = by_rows && given_up;
        let right = if is_old {
            before(START + CHUNK - 2)
        } else {
            NEW
        };
        assert_eq!(after, Some(right), "{given_up}, {by_rows}");
    }
}

#[test]
fn what_only_refused_parity_told_is_as_it_was_when_nothing_else_was_written() {
    let (mut bench, mut drives) = degraded(0, 2);
    let [lost, _] = row();
    bench.fill(NEW);
    bench.part = block::Part {
        offset: 0,
        bytes: 64,
    };
    let write = drives.outcome(&mut bench, (Operation::Write, lost, 1));
    bench.part = block::Part::WHOLE;
    assert_eq!(write, Some(Status::Media));
    assert_eq!(drives.look(&mut bench, lost), Some(before(lost)));
}

#[test]
fn memory_that_a_drive_may_still_write_to_stays() {
    let (mut bench, mut drives, spot, other) = beside_a_rebuild();
    bench.fill(NEW);
    let write = bench.ask(Operation::Write, row()[1], 1);
    let is_here =
        |request: &MemberRequest| request.drive.at() == spot.0 && request.offset / BLOCK == spot.1;
    for _ in 0..20 {
        serve(&mut bench, &mut drives, |bench, request| {
            let hangs =
                mended(bench).is_some() && is_here(request) && request.operation == Operation::Read;
            (!hangs).then_some(None)
        });
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.outside.asked.len(), 1, "it hangs");
    bench.install(|map| {
        map.members[other].state = MapState::InSync;
        map.members[spot.0].state = MapState::Lost;
    });
    for _ in 0..20 {
        serve(&mut bench, &mut drives, |_, request| {
            (!is_here(request)).then_some(None)
        });
        bench.pass(LOOK);
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert_eq!(bench.outside.asked.len(), 1, "it has not answered");
    assert_eq!(bench.shard.hold.buried.len(), 1);
}
