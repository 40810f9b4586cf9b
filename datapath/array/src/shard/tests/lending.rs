//! Whole rows whose bytes others help to compute.

use std::sync::Arc;
use std::time::Duration;

use block::{Operation, Stability, Status};

use super::borrowing::give_up;
use super::{Bench, LOOK, MEMBERS, OTHER, STRIPE_BLOCKS, member_of};
use crate::io::{Help, Message};
use crate::lent::Lent;
use crate::shard::Lends;

const CHUNK: usize = 4096;
/// Pieces of a chunk.
const PIECES: u32 = 4;

/// What tickets of the shards of tests lend.
pub(super) const LENDS: Lends = Lends {
    from_bytes: STRIPE_BLOCKS * 512,
    piece_bytes: CHUNK / PIECES as usize,
};

/// A shard that does so many pieces itself, beside one that has time.
fn bench(own: u32) -> Bench {
    let mut bench = Bench::new();
    bench.outside.help.add(OTHER);
    bench.outside.help.own = own;
    // Both chunks differ, so that parity is not zero.
    let bytes: Vec<u8> = (0..2 * CHUNK)
        .map(|at| u8::try_from(at / 7 % 251).expect("small"))
        .collect();
    bench.store(&bytes);
    bench
}

/// What the other one was asked.
fn lent(bench: &mut Bench) -> Arc<Lent> {
    match bench.outside.messages.pop() {
        Some(Message::Lend(lent)) => lent,
        other => panic!("{other:?}"),
    }
}

/// The other one does so many pieces of it.
fn help(bench: &Bench, lent: &Lent, most: u32) -> u32 {
    lent.do_pieces(&bench.shard.code, most)
}

/// The other one says that there are no more.
fn answer(bench: &mut Bench, lent: Arc<Lent>) {
    let record = lent.record();
    drop(lent);
    bench.tell(Message::Lent { record });
}

/// What each member is asked to write of stripe 0, by role.
fn contents(bench: &Bench) -> Vec<Vec<u8>> {
    let of_role = |role| {
        let member = member_of(bench, 0, role);
        let mut asked = bench.outside.asked.iter();
        let request = asked.find(|request| request.drive.at() == member);
        request.map(Bench::content).unwrap_or_default()
    };
    [0, 1, 2].map(of_role).to_vec()
}

/// What they are to be asked.
fn expected() -> Vec<Vec<u8>> {
    let mut alone = bench(0);
    alone.outside.help = Help::NOBODY;
    alone.write_stripe(0);
    assert_eq!(alone.shard.counters().lent_writes, 0);
    contents(&alone)
}

#[test]
fn nothing_is_written_before_the_last_piece_is_there() {
    let mut bench = bench(1);
    let write = bench.write_stripe(0);
    let lent = lent(&mut bench);
    assert_eq!(help(&bench, &lent, PIECES - 2), PIECES - 2);
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write), []);
    assert_eq!(help(&bench, &lent, u32::MAX), 1);
    answer(&mut bench, lent);
    assert_eq!(contents(&bench), expected());
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let counters = bench.shard.counters();
    assert_eq!((counters.lent_writes, counters.full_writes), (1, 1));
    assert_eq!(counters.bytes_copied, 2 * 4096);
    assert!(bench.shard.is_idle());
}

#[test]
fn nobody_is_waited_for_who_has_not_begun() {
    let mut bench = bench(u32::MAX);
    let write = bench.write_stripe(0);
    assert_eq!(contents(&bench), expected());
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    // The guest's memory is its own again.
    bench.fill(9);
    let lent = lent(&mut bench);
    assert_eq!(help(&bench, &lent, u32::MAX), 0, "it comes too late");
    assert!(!bench.shard.is_idle(), "it is still to answer");
    answer(&mut bench, lent);
    assert!(bench.shard.is_idle());
}

#[test]
fn what_is_borrowed_is_lent_and_not_copied() {
    let mut bench = bench(2);
    bench.stability = Stability::Stable;
    bench.write_stripe(0);
    let lent = lent(&mut bench);
    assert_eq!(help(&bench, &lent, u32::MAX), PIECES - 2);
    answer(&mut bench, lent);
    assert_eq!(contents(&bench), expected());
    let counters = bench.shard.counters();
    assert_eq!((counters.borrowed_writes, counters.bytes_copied), (1, 0));
}

#[test]
fn small_writes_and_such_as_are_read_for_are_not_lent() {
    let mut bench = bench(0);
    let blocks = u32::try_from(STRIPE_BLOCKS - 1).expect("few");
    bench.ask(Operation::Write, 0, blocks);
    bench.answer_all();
    bench.ask(Operation::Write, STRIPE_BLOCKS, 1);
    bench.answer_all();
    assert_eq!(bench.shard.counters().lent_writes, 0);
    assert!(bench.shard.is_idle());
}

#[test]
fn a_member_that_is_left_out_meanwhile_gets_nothing() {
    let mut bench = bench(1);
    let write = bench.write_stripe(0);
    let first = lent(&mut bench);
    let out = member_of(&bench, 0, 1);
    bench.exclude(out);
    assert_eq!(bench.is_asked(Operation::Write), []);
    help(&bench, &first, u32::MAX);
    answer(&mut bench, first);
    bench.poll();
    // It is planned anew, and the other one may have been asked again.
    while let Some(Message::Lend(again)) = bench.outside.messages.pop() {
        help(&bench, &again, u32::MAX);
        answer(&mut bench, again);
    }
    let asked = bench.is_asked(Operation::Write);
    assert_eq!(asked.len(), MEMBERS - 1);
    assert!(!asked.contains(&out));
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn it_is_not_given_up_as_long_as_others_read_the_guests_memory() {
    let mut bench = bench(1);
    let write = bench.write_stripe(0);
    let lent = lent(&mut bench);
    let held = [0, 1].map(|role| member_of(&bench, 0, role));
    give_up(&mut bench, &held);
    assert_eq!(bench.verdict(write), None);
    help(&bench, &lent, u32::MAX);
    answer(&mut bench, lent);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.is_asked(Operation::Write), []);
}

#[test]
fn it_goes_on_before_its_helper_says_so() {
    let mut bench = bench(1);
    bench.write_stripe(0);
    let lent = lent(&mut bench);
    help(&bench, &lent, u32::MAX);
    bench.poll();
    assert_eq!(contents(&bench), expected());
    bench.answer_all();
    assert!(!bench.shard.is_idle());
    answer(&mut bench, lent);
    assert!(bench.shard.is_idle());
}

#[test]
fn nobody_begins_with_what_a_shard_has_left_that_is_gone() {
    let mut bench = bench(1);
    bench.write_stripe(0);
    let lent = lent(&mut bench);
    let code = Arc::clone(&bench.shard.code);
    let mut other = Bench::new();
    std::mem::swap(&mut bench.shard, &mut other.shard);
    drop(other);
    assert_eq!(lent.do_pieces(&code, u32::MAX), 0);
}

#[test]
fn who_has_no_record_left_does_it_alone() {
    let mut bench = bench(u32::MAX);
    for stripe in 0..6 {
        bench.write_stripe(stripe);
    }
    assert_eq!(bench.shard.counters().lent_writes, 4);
    assert_eq!(bench.shard.counters().full_writes, 6);
    bench.answer_all();
    for _ in 0..4 {
        let lent = lent(&mut bench);
        answer(&mut bench, lent);
    }
    assert!(bench.shard.is_idle());
    bench.write_stripe(6);
    assert_eq!(bench.shard.counters().lent_writes, 5, "they are used again");
    let lent = lent(&mut bench);
    bench.answer_all();
    answer(&mut bench, lent);
    bench.pass(LOOK);
}
