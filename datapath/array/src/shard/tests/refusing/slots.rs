//! What is refused is a part of the log.

use std::sync::Arc;

use block::{Operation, Status};
use units::bytes_usize;

use super::super::{Bench, STRIPE_BLOCKS, Shape, member_of};
use super::replays::layout;
use super::{BLOCK, CHUNK, Drives, START, STRIPE, before, degraded, row};
use crate::io::Event;
use crate::log::LogSpace;
use crate::map::MapState;

/// The role that is lost, and the one that refuses.
const LOST: u8 = 0;
const NEEDED: u8 = 2;
/// Slots of the log: it comes round soon.
const SLOTS: u32 = 16;

fn space() -> LogSpace {
    let area = layout().log;
    LogSpace::new(&Shape::default().geometry(), (area.offset, area.length))
}

/// The blocks of a slot.
fn slot_blocks(slot: u32) -> std::ops::Range<u64> {
    space().slot(slot) / BLOCK..space().slot(slot + 1) / BLOCK
}

fn refusals(bench: &Bench) -> usize {
    let refused = |event: &&Event| matches!(event, Event::LogSlotRefused { .. });
    bench.outside.events.iter().filter(refused).count()
}

/// A degraded array, of which a needed member refuses a block in each of these slots: one of the
/// header, or one of what follows it.
fn refusing(slots: impl Iterator<Item = u32>, of_payload: bool) -> (Bench, Drives) {
    let (mut bench, mut drives) = degraded(LOST, NEEDED);
    bench.shard.log.shorten(bytes_usize(u64::from(SLOTS)));
    let needed = member_of(&bench, STRIPE, NEEDED);
    drives.refuses.clear();
    let block = |slot| slot_blocks(slot).start + if of_payload { 8 } else { 0 };
    drives
        .refuses
        .extend(slots.map(|slot| (needed, block(slot))));
    (bench, drives)
}

/// Writes something else to a block of the row; whether it went well within so many tenths.
fn write(bench: &mut Bench, drives: &mut Drives, value: u8, tenths: u32) -> bool {
    bench.fill(value);
    let cookie = bench.ask(Operation::Write, row()[usize::from(value % 2)], 1);
    drives.answer_for(bench, tenths);
    bench.verdict(cookie) == Some(Status::Ok)
}

#[test]
fn a_slot_that_a_needed_member_refuses_is_passed_over() {
    for of_payload in [false, true] {
        let (mut bench, mut drives) = refusing([2, 3, 7].into_iter(), of_payload);
        let mut waited = 0;
        for value in 1..=40 {
            drives.writes.clear();
            let at_once = write(&mut bench, &mut drives, value, 1);
            if !at_once {
                waited += 1;
                drives.answer_for(&mut bench, 30);
            }
            assert_eq!(bench.shard.tickets.in_use(), 0, "it has ended");
            assert!(!bench.shard.map.is_holding(), "nobody is waited for");
            let found = drives.look(&mut bench, row()[usize::from(value % 2)]);
            assert_eq!(found, Some(value));
            let refused = drives.refuses.iter().any(|it| drives.writes.contains(it));
            assert!(at_once || refused, "nothing else takes time");
        }
        assert_eq!(
            (waited, refusals(&bench)),
            (2, 3),
            "two of them in one write"
        );
        for block in START..START + STRIPE_BLOCKS {
            let found = drives.look(&mut bench, block);
            assert!(row().contains(&block) || found == Some(before(block)));
        }
    }
}

#[test]
fn whatever_was_refused_of_the_log_a_start_finds_what_was_acknowledged() {
    for takes in [0, 256, 512] {
        let (mut bench, mut drives) = refusing([1, 4, 5].into_iter(), false);
        drives.takes = takes;
        let out = member_of(&bench, STRIPE, LOST);
        let [first, second] = row();
        let mut holds = [before(first), before(second)];
        for value in 1..=40 {
            bench.fill(value);
            let which = usize::from(value % 2);
            let cookie = bench.ask(Operation::Write, row()[which], 1);
            for _ in 0..30 {
                bench.poll();
                while !bench.outside.asked.is_empty() {
                    drives.answer_next(&mut bench);
                    let done = bench.verdict(cookie).is_some();
                    let mut end = drives.snapshot();
                    assert!(end.replay(out, true), "{takes}, {value}");
                    for (at, block) in row().into_iter().enumerate() {
                        let found = end.block(out, block);
                        let new = at == which && found[0] == value;
                        let old = found[0] == holds[at] && !(done && at == which);
                        let whole = found.iter().all(|&byte| byte == found[0]);
                        assert!(whole && (old || new), "{takes}, {value}: {}", found[0]);
                    }
                    assert_eq!(
                        end.block(out, START + LANE_BESIDE)[0],
                        before(START + LANE_BESIDE)
                    );
                }
                bench.pass(std::time::Duration::from_millis(100));
            }
            assert_eq!(bench.verdict(cookie), Some(Status::Ok));
            holds[which] = value;
        }
        assert_eq!(refusals(&bench), 3);
    }
}

/// A lane that is not written.
const LANE_BESIDE: u64 = CHUNK - 1;

#[test]
fn a_member_that_refuses_too_much_of_the_log_is_waited_for() {
    let (mut bench, mut drives) = refusing(0..SLOTS, true);
    let cookie = bench.ask(Operation::Write, row()[0], 1);
    drives.answer_for(&mut bench, 100);
    assert_eq!(bench.verdict(cookie), None);
    assert_eq!(refusals(&bench), 3, "of 16");
    assert!(bench.shard.map.is_holding());
    drives.refuses.clear();
    drives.answer_for(&mut bench, 30);
    assert!(!bench.shard.map.is_holding());
    let done = bench.outside.completions.iter();
    assert!(done.clone().all(|done| done.status.is_ok()), "it was made");
    for value in 100..150 {
        assert!(write(&mut bench, &mut drives, value, 1), "{value}");
    }
}

#[test]
fn a_slot_is_asked_for_again_when_its_member_is_not_needed_any_more() {
    let (mut bench, mut drives) = refusing([2].into_iter(), false);
    assert!(write(&mut bench, &mut drives, 1, 1) && write(&mut bench, &mut drives, 2, 1));
    assert!(write(&mut bench, &mut drives, 3, 30));
    bench.poll();
    assert!(bench.shard.log.is_barred(2));
    let mut map = (*bench.shard.map).clone();
    let lost = member_of(&bench, STRIPE, LOST);
    map.members[lost].state = MapState::InSync;
    bench.shard.map = Arc::new(map);
    bench.shard.advance_log(&mut bench.outside);
    assert!(!bench.shard.log.is_barred(2));
}
