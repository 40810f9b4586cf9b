//! What a region needs before it is written is refused: its zeroes, or its word in the region map.

use std::time::Duration;

use block::{Operation, Status};
use units::{DriveIndex, MemberIndex, Role, StripeIndex};

use super::super::returning::replace;
use super::super::zeroing::unwritten;
use super::super::{Bench, REGION_STRIPES, STRIPE_BLOCKS, Shape};
use super::{Drives, NEW};
use crate::command::Command;
use crate::io::Event;
use crate::map::{MapMember, MapState};
use crate::regions::RegionState;

/// The region of which something is refused, and its first block.
const REGION: u32 = 1;
const FIRST: u64 = (REGION * REGION_STRIPES) as u64 * STRIPE_BLOCKS;
/// That of the next.
const NEXT: u64 = FIRST + REGION_STRIPES as u64 * STRIPE_BLOCKS;
/// The member that is out, and the one that refuses.
const LOST: usize = 1;
const NEEDED: usize = 0;
/// Longer than what is refused is not asked for again.
const PAUSE: Duration = Duration::from_secs(11);

/// An array that nobody has written to and that lacks a member. Another one refuses a block of the
/// region.
fn refusing_zeroes() -> (Bench, Drives) {
    let mut bench = unwritten(Shape::default());
    let mut drives = Drives::default();
    bench.command(Command::Passes { run: false });
    let member = MemberIndex::from_at(LOST);
    bench.command(Command::Fail { member });
    drives.refuses.push((NEEDED, zeroed_block(&bench)));
    bench.fill(NEW);
    (bench, drives)
}

/// Some block of the member that refuses, in the third stripe of the region.
fn zeroed_block(bench: &Bench) -> u64 {
    let map = &bench.shard.map;
    let stripe = StripeIndex(FIRST / STRIPE_BLOCKS + 2);
    let places = map.geometry.places(stripe);
    let roles = (0..3).map(Role);
    let mut offsets = roles.map(|role| bench.shard.drive_offset(&places, role, 5));
    let (_, offset) = offsets
        .find(|(member, _)| member.at() == NEEDED)
        .expect("it has a chunk");
    offset / super::BLOCK
}

fn state(bench: &Bench) -> RegionState {
    bench.shard.shared.regions.get(REGION)
}

fn write(bench: &mut Bench, drives: &mut Drives, block: u64) -> Option<Status> {
    bench.fill(NEW);
    drives.outcome(bench, (Operation::Write, block, 1))
}

/// Who has refused what, as was told.
fn told(bench: &Bench) -> Vec<(usize, u64, u32)> {
    let told = |event: &Event| match event {
        Event::WriteRefused {
            member,
            first,
            rows,
        } => Some((member.at(), *first, *rows)),
        _ => None,
    };
    bench.outside.events.iter().filter_map(told).collect()
}

#[test]
fn zeroes_that_are_refused_cost_the_first_writes_of_their_region_and_nothing_else() {
    let (mut bench, mut drives) = refusing_zeroes();
    let refused = bench.ask(Operation::Write, FIRST, 1);
    let also = bench.ask(Operation::Write, FIRST + 20, 1);
    let other = drives.outcome(&mut bench, (Operation::Write, NEXT, 1));
    assert_eq!(other, Some(Status::Ok));
    drives.answer_for(&mut bench, 20);
    let verdicts = [refused, also].map(|cookie| bench.verdict(cookie));
    assert_eq!(verdicts, [Some(Status::Media); 2]);
    assert!(!bench.shard.map.is_holding() && bench.shard.hold.is_empty());
    assert_eq!(bench.shard.tickets.in_use(), 0);
    let rows = u32::try_from(u64::from(REGION_STRIPES) * STRIPE_BLOCKS / 2).expect("few");
    assert_eq!(told(&bench), [(NEEDED, FIRST, rows)]);
    // At once: that takes a second each time, and others wait for it.
    let now = bench.outside.now;
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    assert_eq!(bench.outside.now, now);
    assert_eq!(drives.look(&mut bench, FIRST), Some(0), "as before");
    assert_eq!(drives.look(&mut bench, NEXT), Some(NEW));
    let zeroes = (Operation::WriteZeroes, FIRST, 9);
    assert_eq!(drives.outcome(&mut bench, zeroes), Some(Status::Ok));
}

#[test]
fn refused_zeroes_are_tried_again_when_they_are_asked_for_after_a_while() {
    let (mut bench, mut drives) = refusing_zeroes();
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    let before = drives.writes.len();
    bench.pass(PAUSE);
    drives.answer(&mut bench);
    assert_eq!(state(&bench), RegionState::Unwritten);
    assert_eq!(drives.writes.len(), before, "nobody asks");
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    assert_eq!(told(&bench).len(), 2);
    drives.refuses.clear();
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    bench.pass(PAUSE);
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Ok));
    assert_eq!(drives.look(&mut bench, FIRST), Some(NEW));
    assert_eq!(drives.look(&mut bench, FIRST + 1), Some(0));
    assert_eq!(state(&bench), RegionState::Dirty);
}

#[test]
fn a_rebuild_ends_beside_refused_zeroes_and_then_the_member_that_refuses_is_left_out() {
    let (mut bench, mut drives) = refusing_zeroes();
    assert_eq!(write(&mut bench, &mut drives, NEXT), Some(Status::Ok));
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    bench.shard.command(8, replace(None));
    bench.shard.command(9, Command::Passes { run: true });
    drives.answer_for(&mut bench, 30);
    assert_eq!(bench.shard.map.members[LOST].state, MapState::InSync);
    assert!(!bench.shard.map.is_holding());
    bench.pass(PAUSE);
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Ok));
    assert_eq!(bench.shard.map.members[NEEDED].state, MapState::Lost);
    assert_eq!(drives.look(&mut bench, FIRST), Some(NEW));
    assert_eq!(drives.look(&mut bench, FIRST + 1), Some(0));
    assert_eq!(drives.look(&mut bench, NEXT), Some(NEW));
}

#[test]
fn an_array_stops_in_order_while_zeroes_are_refused_and_after_that() {
    for tenths in [0, 3, 30] {
        let (mut bench, mut drives) = refusing_zeroes();
        let refused = bench.ask(Operation::Write, FIRST, 1);
        drives.answer_for(&mut bench, tenths);
        bench.outside.events.clear();
        bench.shard.command(9, Command::Stop);
        drives.answer_for(&mut bench, 40);
        assert!(bench.is_done(), "after {tenths}");
        assert_eq!(bench.verdict(refused), Some(Status::Media));
        let config = &bench.shard.coordinator().expect("home").config;
        assert!(config.clean, "after {tenths}");
    }
}

#[test]
fn zeroes_that_a_member_has_refused_which_is_out_by_then_cost_nothing() {
    for is_out in [false, true] {
        let (mut bench, mut drives) = refusing_zeroes();
        let refused = bench.ask(Operation::Write, FIRST, 1);
        for _ in 0..30 {
            let next = |bench: &Bench| bench.outside.asked.first().map(|it| it.operation);
            while let Some(operation) = next(&bench) {
                if is_out && operation == Operation::Flush {
                    break;
                }
                drives.answer_next(&mut bench);
            }
            bench.pass(Duration::from_millis(100));
        }
        if is_out {
            // Another one is in sync by now, which lacks the zeroes.
            let mut map = bench.shard.successor();
            map.members[NEEDED].state = MapState::Lost;
            map.members[LOST] = MapMember {
                drive: Some(DriveIndex::from_at(LOST)),
                incarnation: 5,
                state: MapState::InSync,
                ..map.members[LOST]
            };
            bench.set_map(map);
            bench.shard.stir();
            drives.writes.clear();
            drives.answer_for(&mut bench, 3);
            assert!(drives.writes.iter().any(|&(drive, _)| drive == LOST));
        }
        let right = if is_out { Status::Ok } else { Status::Media };
        assert_eq!(bench.verdict(refused), Some(right), "{is_out}");
    }
}

#[test]
fn a_drive_that_takes_no_zeroes_and_nothing_else_is_waited_for() {
    let (mut bench, mut drives) = refusing_zeroes();
    drives.refuses.clear();
    drives.read_only = Some(NEEDED);
    assert_eq!(write(&mut bench, &mut drives, FIRST), None);
    assert!(bench.shard.map.is_holding());
    drives.read_only = None;
    drives.answer_for(&mut bench, 20);
    let done = bench.outside.completions.iter();
    assert!(done.clone().count() == 1 && done.clone().all(|done| done.status.is_ok()));
}
