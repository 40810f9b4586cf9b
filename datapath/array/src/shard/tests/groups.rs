//! One group lacks more than it can: the others go on as if nothing were.

use std::time::Duration;

use block::{Operation, Status};
use units::RoleSet;

use super::{Bench, LOOK, SLOW, STRIPE_BLOCKS, Shape, member_of};
use crate::buffers::{Class, TicketBuffers};
use crate::format::HedgedReads;
use crate::geometry::Level;

/// How often a hold that was given up is looked at.
const STEP: Duration = Duration::from_millis(500);

/// Two groups of three; of the first, two are waited for, in vain by now if `given_up`.
fn one_of_two_waits(given_up: bool) -> Bench {
    let mut bench = Bench::shaped(Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        ..Shape::default()
    });
    bench.install(|map| {
        map.hedged_reads = HedgedReads::Always;
        (map.held[0], map.held[1]) = (true, true);
        map.given_up = given_up;
    });
    bench
}

/// Stripes of the second group.
fn sound(bench: &Bench) -> impl Iterator<Item = u64> {
    (0..64).filter(|&stripe| member_of(bench, stripe, 0) >= 3)
}

#[test]
fn who_waits_for_lanes_in_a_sound_group_is_not_answered_with_an_error() {
    let mut bench = one_of_two_waits(true);
    let stripe = sound(&bench).next().expect("some");
    let first = bench.write_stripe(stripe);
    let second = bench.write_stripe(stripe);
    (0..4).for_each(|_| bench.pass(STEP));
    bench.answer_all();
    assert_eq!(bench.verdict(first), Some(Status::Ok));
    assert_eq!(bench.verdict(second), Some(Status::Ok));
}

#[test]
fn who_waits_for_tickets_beside_a_lost_group_is_not_answered_with_an_error() {
    let mut bench = one_of_two_waits(true);
    // All tickets, then all pieces, and requests besides.
    let stripes: Vec<u64> = sound(&bench).take(30).collect();
    let write = |stripe: u64| bench.ask(Operation::Write, stripe * STRIPE_BLOCKS, 16);
    let writes: Vec<u64> = stripes.into_iter().take(15).map(write).collect();
    bench.poll();
    assert_eq!(bench.shard.tickets.free(), 0, "some wait");
    (0..4).for_each(|_| bench.pass(STEP));
    bench.answer_all();
    for write in writes {
        assert_eq!(bench.verdict(write), Some(Status::Ok));
    }
}

#[test]
fn a_ticket_that_waits_for_room_or_buffers_in_a_sound_group_is_not_answered_with_an_error() {
    for for_room in [true, false] {
        let mut bench = one_of_two_waits(true);
        let stripe = sound(&bench).next().expect("some");
        let room = bench.outside.room;
        let mut taken = TicketBuffers::default();
        if for_room {
            bench.outside.room = 0;
        } else {
            let all = RoleSet(!0);
            assert!(bench.shard.buffers.acquire(&mut taken, 512, all, all));
        }
        let write = bench.write_stripe(stripe);
        let shard = &bench.shard;
        let waiting = [
            &shard.room_waiters,
            &shard.buffer_waiters[Class::Small as usize],
        ];
        let waiting = waiting.map(|list| !list.is_empty());
        assert_eq!(waiting, [for_room, !for_room]);
        (0..4).for_each(|_| bench.pass(STEP));
        bench.outside.room = room;
        bench.shard.buffers.release(&mut taken);
        bench.pass(STEP);
        bench.answer_all();
        assert_eq!(bench.verdict(write), Some(Status::Ok), "{for_room}");
    }
}

#[test]
fn who_waits_for_room_beside_a_lost_group_is_not_answered_with_an_error() {
    for lost in [false, true] {
        let mut bench = one_of_two_waits(true);
        let lost_stripe = (0..).find(|&stripe| member_of(&bench, stripe, 0) == 2);
        let stripe = if lost {
            lost_stripe
        } else {
            sound(&bench).next()
        };
        let room = std::mem::take(&mut bench.outside.room);
        let read = bench.ask(Operation::Read, stripe.expect("some") * STRIPE_BLOCKS, 1);
        (0..4).for_each(|_| bench.pass(STEP));
        bench.outside.room = room;
        bench.answer_all();
        let verdict = if lost { Status::Media } else { Status::Ok };
        assert_eq!(bench.verdict(read), Some(verdict));
    }
}

/// What is given up keeps its ticket until it can be carried out.
#[test]
fn nobody_waits_for_tickets_that_only_a_lost_group_has() {
    let mut bench = one_of_two_waits(false);
    let lost: Vec<u64> = (0..64)
        .filter(|&stripe| member_of(&bench, stripe, 0) < 3)
        .collect();
    let mut lost = lost.into_iter();
    while bench.shard.tickets.free() > 0 {
        bench.write_stripe(lost.next().expect("many"));
        for member in [0, 1, 2] {
            let status = if member < 2 { Status::Gone } else { Status::Ok };
            while bench.is_asked(Operation::Write).contains(&member) {
                bench.answer(member, Operation::Write, status);
            }
        }
    }
    let stripe = sound(&bench).next().expect("some");
    let write = bench.write_stripe(stripe);
    bench.install(|map| map.given_up = true);
    (0..6).for_each(|_| bench.pass(STEP));
    assert_eq!(bench.shard.tickets.free(), 0);
    assert_eq!(bench.verdict(write), Some(Status::Media));
}

/// It may wait for something that only the lost group has, after all.
#[test]
fn nobody_in_a_sound_group_waits_as_long_as_the_hold_may_last() {
    let mut bench = one_of_two_waits(true);
    let stripe = sound(&bench).next().expect("some");
    let first = bench.write_stripe(stripe);
    let second = bench.write_stripe(stripe);
    (0..119).for_each(|_| bench.pass(STEP));
    assert_eq!(bench.verdict(second), None);
    (0..4).for_each(|_| bench.pass(STEP));
    assert_eq!(bench.verdict(second), Some(Status::Media));
    bench.answer_all();
    assert_eq!(bench.verdict(first), Some(Status::Ok));
}

#[test]
fn a_member_is_read_around_while_another_group_waits_for_its_own() {
    for waits in [false, true] {
        let mut bench = one_of_two_waits(false);
        let stripe = sound(&bench).next().expect("some");
        let slow = member_of(&bench, stripe, 0);
        if waits {
            // One of its group is waited for.
            let other = member_of(&bench, stripe, 1);
            bench.install(|map| map.held[other] = true);
        }
        let read = bench.ask(Operation::Read, stripe * STRIPE_BLOCKS, 1);
        bench.poll();
        (0..=SLOW + 2).for_each(|_| bench.pass(LOOK));
        bench.answer_all_but(&[slow]);
        let verdict = (!waits).then_some(Status::Ok);
        assert_eq!(bench.verdict(read), verdict, "{waits}");
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
    }
}
