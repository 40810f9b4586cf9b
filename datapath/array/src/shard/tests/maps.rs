//! A map comes while a write reads: whether the write goes on, or reads again.

use std::sync::Arc;

use block::{Operation, Status};
use units::{DriveIndex, MemberSet, StripeIndex};

use super::{AMPLE, Bench, MEMBERS, STRIPE_BLOCKS, Shape, member_of};
use crate::geometry::Level;
use crate::losses::LostBlocks;
use crate::map::{ArrayMap, MapState, Pass, Window};
use crate::regions::Suspects;

const STRIPE: u64 = 9;

fn window(map: &ArrayMap, stripes: std::ops::Range<u64>) -> Option<Window> {
    Some(Window {
        pass: Pass::Rebuild,
        start: StripeIndex(stripes.start),
        end: StripeIndex(stripes.end),
        fills: MemberSet::EMPTY,
        opened: map.serial,
    })
}

/// Whether a write of one block that has read by one map writes after that by the other.
fn goes_on(before: impl FnOnce(&mut ArrayMap), after: impl FnOnce(&mut ArrayMap)) -> bool {
    let mut bench = Bench::new();
    bench.install(before);
    let cookie = bench.ask(Operation::Write, STRIPE * STRIPE_BLOCKS, 1);
    bench.poll();
    let read = bench.is_asked(Operation::Read);
    assert_eq!(read.len(), 1, "the other data chunk");
    let serial = bench.install(after);
    bench.answer(read[0], Operation::Read, Status::Ok);
    bench.poll();
    let writes = !bench.is_asked(Operation::Write).is_empty();
    assert_eq!(
        bench.is_asked(Operation::Read).is_empty(),
        writes,
        "it reads again or writes"
    );
    assert_eq!(bench.shard.counters().kept_plans, u64::from(writes));
    bench.answer_all();
    bench.make_effective(serial);
    assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    writes
}

#[test]
fn a_write_goes_on_when_only_the_window_of_a_pass_moves_elsewhere() {
    assert!(goes_on(|_| {}, |_| {}));
    assert!(goes_on(|_| {}, |map| map.window = window(map, 0..STRIPE)));
    let moves = |map: &mut ArrayMap| map.window = window(map, STRIPE + 1..20);
    assert!(goes_on(|map| map.window = window(map, 0..STRIPE), moves));
}

#[test]
fn a_write_reads_again_when_the_map_says_something_new_of_its_stripe() {
    let covers = |map: &mut ArrayMap| map.window = window(map, STRIPE..STRIPE + 1);
    assert!(!goes_on(|_| {}, covers));
    assert!(!goes_on(covers, |map| map.window = None));
    // Parity is not trusted any more.
    assert!(!goes_on(
        |_| {},
        |map| {
            map.trusted_until = StripeIndex(0);
            map.suspects = Arc::new(Suspects::all(map.suspects.space()));
        }
    ));
    assert!(!goes_on(|_| {}, |map| map.log_life += 1));
    assert!(!goes_on(
        |_| {},
        |map| map.lost_blocks = Arc::new(LostBlocks::default())
    ));
    assert!(!goes_on(
        |_| {},
        |map| {
            map.members[0].incarnation += 1;
            map.members[1].incarnation += 1;
            map.members[2].incarnation += 1;
        }
    ));
    assert!(!goes_on(|_| {}, |map| map.barrier = map.serial));
}

#[test]
fn a_write_reads_again_when_a_member_is_out_and_when_one_has_come_as_far() {
    for out in 0..3 {
        let mut bench = Bench::new();
        let cookie = bench.ask(Operation::Write, STRIPE * STRIPE_BLOCKS, 1);
        bench.poll();
        bench.exclude(out);
        bench.answer_all();
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
        assert_eq!(bench.shard.counters().kept_plans, 0);
    }
    let until = |at: u64| {
        move |map: &mut ArrayMap| {
            for member in &mut map.members {
                member.state = MapState::InSync;
            }
            let parity = map.geometry.member(StripeIndex(STRIPE), units::Role(2));
            let until = StripeIndex(at);
            map.members[parity.at()].state = MapState::Rebuilding { until };
        }
    };
    assert!(goes_on(until(STRIPE + 1), until(STRIPE + 2)));
}

#[test]
fn what_waits_for_room_does_not_read_a_drive_that_came_after_it_was_planned() {
    const NEW: DriveIndex = DriveIndex(3);
    let mut bench = Bench::new();
    // The write is to make parity of its block and of this member's.
    let member = member_of(&bench, 0, 1);
    bench.outside.room = 0;
    bench.ask(Operation::Write, 0, 1);
    bench.poll();
    bench.exclude(member);
    let serial = bench.install(|map| {
        let entry = &mut map.members[member];
        entry.state = MapState::Rebuilding {
            until: StripeIndex(0),
        };
        entry.incarnation += 1;
        entry.drive = Some(NEW);
    });
    bench.make_effective(serial);
    assert!(bench.outside.asked.is_empty(), "there is no room");
    bench.outside.room = AMPLE;
    bench.poll();
    let others: Vec<usize> = (0..MEMBERS).filter(|&other| other != member).collect();
    let mut asked = bench.is_asked(Operation::Read);
    asked.sort_unstable();
    assert_eq!(asked, others, "old data and old parity");
}

#[test]
fn stripes_are_untrusted_where_parity_is_to_agree_and_does_not_yet() {
    for (level, members, counts) in [
        (Level::L5, 3, 1),
        (Level::L6, 4, 1),
        (Level::L1, 2, 0),
        (Level::L10, 4, 0),
        (Level::L0, 2, 0),
    ] {
        let mut bench = Bench::shaped(Shape {
            level,
            members,
            ..Shape::default()
        });
        let stripes = bench.shard.map.geometry.stripes();
        assert_eq!(bench.shard.map.stripes_untrusted(), 0);
        for done in [3, 0] {
            bench.install(|map| {
                map.trusted_until = StripeIndex(done);
                map.suspects = Arc::new(Suspects::all(map.suspects.space()));
            });
            let untrusted = bench.shard.map.stripes_untrusted();
            assert_eq!(untrusted, (stripes - done) * counts, "{level:?}");
        }
    }
}
