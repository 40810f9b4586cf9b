//! Writes from the memory of a guest that leaves it alone.

use block::{Operation, Stability, Status};
use units::bytes_u64;

use super::{Bench, LOOK, SLOW, STRIPE_BLOCKS, member_of};
use crate::io::MemberRequest;

/// Bytes of a chunk.
const CHUNK: usize = 4096;

/// A shard whose guest promises to leave its memory alone, which is full of this.
fn bench(byte: u8) -> Bench {
    let mut bench = Bench::new();
    bench.stability = Stability::Stable;
    bench.fill(byte);
    bench
}

/// By role of stripe 0: what its drive is asked to write now.
fn contents(bench: &Bench) -> Vec<Vec<u8>> {
    let role = |role| {
        let member = member_of(bench, 0, role);
        let mut asked = bench.outside.asked.iter();
        let is_its = |request: &&MemberRequest| request.drive.at() == member;
        asked.find(is_its).map(Bench::content).unwrap_or_default()
    };
    [0, 1, 2].map(role).to_vec()
}

#[test]
fn data_of_whole_rows_goes_to_the_drives_from_where_the_guest_has_it() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let counters = bench.shard.counters();
    assert_eq!((counters.borrowed_writes, counters.bytes_copied), (1, 0));
    assert_eq!(
        contents(&bench),
        [vec![7; CHUNK], vec![7; CHUNK], vec![0; CHUNK]]
    );
    // As drives see it that are slow, if the guest breaks its word.
    bench.fill(9);
    assert_eq!(
        contents(&bench),
        [vec![9; CHUNK], vec![9; CHUNK], vec![0; CHUNK]]
    );
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(bench.shard.is_idle());
}

#[test]
fn without_the_promise_and_where_others_hang_on_the_parity_it_is_copied() {
    let whole = u32::try_from(STRIPE_BLOCKS).expect("few");
    for (stability, blocks) in [
        (Stability::MayChange, whole),
        (Stability::Stable, whole - 1),
        (Stability::Stable, 1),
    ] {
        let mut bench = bench(7);
        bench.stability = stability;
        bench.ask(Operation::Write, 0, blocks);
        bench.answer_all();
        let counters = bench.shard.counters();
        let copied = u64::from(blocks) * 512;
        assert_eq!(
            (counters.borrowed_writes, counters.bytes_copied),
            (0, copied),
            "{stability:?} {blocks}"
        );
    }
}

#[test]
fn memory_that_drives_do_not_take_as_it_is_is_copied() {
    for (pieces, borrowed) in [(vec![512, 1024], 1), (vec![100, 412], 0)] {
        let mut bench = bench(1);
        bench.pieces = pieces;
        let write = bench.write_stripe(0);
        bench.answer_all();
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        assert_eq!(bench.shard.counters().borrowed_writes, borrowed);
    }
}

#[test]
fn what_is_degraded_is_copied() {
    let mut bench = bench(7);
    bench.exclude(member_of(&bench, 0, 0));
    let write = bench.write_stripe(0);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert_eq!(bench.shard.counters().borrowed_writes, 0);
}

#[test]
fn a_write_whose_memory_was_no_good_is_made_again_from_a_copy_and_nobody_is_blamed() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let member = member_of(&bench, 0, 1);
    bench.answer(member, Operation::Write, Status::Invalid);
    bench.fill(9);
    bench.poll();
    assert_eq!(contents(&bench)[1], vec![7; CHUNK], "what it was by then");
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(bench.outside.messages.is_empty(), "the home hears nothing");
    let copied = bytes_u64(2 * CHUNK);
    assert_eq!(bench.shard.counters().bytes_copied, copied);
}

#[test]
fn a_drive_that_refuses_the_copy_too_is_told_of() {
    let mut bench = bench(7);
    bench.write_stripe(0);
    let member = member_of(&bench, 0, 0);
    for _ in 0..2 {
        bench.answer(member, Operation::Write, Status::Invalid);
        bench.poll();
    }
    assert_eq!(bench.outside.messages.len(), 1);
}

#[test]
fn what_waits_for_a_member_is_made_again_from_the_copy() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let member = member_of(&bench, 0, 1);
    bench.answer(member, Operation::Write, Status::Gone);
    bench.fill(9);
    bench.answer_all();
    bench.install(|map| map.held[member] = true);
    bench.pass(std::time::Duration::from_secs(1));
    assert_eq!(bench.is_asked(Operation::Write), [member]);
    assert_eq!(contents(&bench)[1], vec![7; CHUNK]);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn any_error_but_of_a_drive_that_is_gone_or_full_may_be_the_memorys() {
    for (status, again) in [
        (Status::Media, true),
        (Status::ReadOnly, true),
        (Status::Gone, false),
        (Status::NoSpace, false),
    ] {
        let mut bench = bench(7);
        bench.write_stripe(0);
        let member = member_of(&bench, 0, 1);
        bench.answer(member, Operation::Write, status);
        bench.poll();
        let asked = bench.is_asked(Operation::Write).contains(&member);
        let told = !bench.outside.messages.is_empty();
        assert_eq!((asked, told), (again, !again), "{status:?}");
    }
}

/// A hold is given up, in which these are waited for.
pub(super) fn give_up(bench: &mut Bench, held: &[usize]) {
    bench.install(|map| {
        held.iter().for_each(|&member| map.held[member] = true);
        map.given_up = true;
    });
    for _ in 0..4 {
        bench.pass(std::time::Duration::from_secs(1));
    }
}

#[test]
fn it_is_not_answered_as_long_as_a_drive_that_counts_reads_the_guests_memory() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let [gone, hangs] = [0, 1].map(|role| member_of(&bench, 0, role));
    bench.answer(gone, Operation::Write, Status::Gone);
    bench.answer_all_but(&[hangs]);
    give_up(&mut bench, &[gone]);
    assert_eq!(bench.verdict(write), None);
    bench.answer(hangs, Operation::Write, Status::Ok);
    // It was asked again meanwhile.
    bench.answer(gone, Operation::Write, Status::Gone);
    bench.pass(std::time::Duration::from_secs(1));
    assert_eq!(bench.verdict(write), Some(Status::Media), "given up");
    bench.fill(9);
    bench.install(|map| {
        map.held[gone] = false;
        map.given_up = false;
        map.released[gone] += 1;
    });
    assert_eq!(
        contents(&bench)[0],
        vec![7; CHUNK],
        "carried out all the same"
    );
    bench.answer_all();
    assert!(bench.shard.is_idle());
}

#[test]
fn nothing_is_copied_after_the_answer() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let [data, other, parity] = [0, 1, 2].map(|role| member_of(&bench, 0, role));
    for member in [data, other] {
        bench.answer(member, Operation::Write, Status::Ok);
    }
    bench.answer(parity, Operation::Write, Status::Gone);
    bench.poll();
    let copied = bytes_u64(2 * CHUNK);
    assert_eq!(bench.shard.counters().bytes_copied, copied);
    give_up(&mut bench, &[parity, data]);
    assert_eq!(bench.verdict(write), Some(Status::Media));
    bench.fill(9);
    bench.exclude(parity);
    bench.answer_all();
    assert_eq!(bench.shard.counters().bytes_copied, copied);
    assert!(bench.shard.is_idle());
}

#[test]
fn no_more_is_borrowed_than_can_be_lost_and_listed() {
    let mut bench = bench(7);
    let most = bench.shard.borrowers_max();
    assert_eq!(most, 256, "of one shard: a word for each");
    bench.shard.borrowers = most - 1;
    bench.write_stripe(0);
    bench.write_stripe(1);
    assert_eq!(bench.shard.counters().borrowed_writes, 1);
    bench.answer_all();
    bench.write_stripe(2);
    assert_eq!(bench.shard.counters().borrowed_writes, 2, "given back");
    bench.answer_all();
    assert_eq!(bench.shard.borrowers, most - 1);
}

#[test]
fn memory_is_not_let_go_before_a_drive_has_answered_what_was_given_up() {
    let mut bench = bench(7);
    let write = bench.write_stripe(0);
    let member = member_of(&bench, 0, 0);
    bench.answer_all_but(&[member]);
    bench.exclude(member);
    assert!(!bench.shard.is_borrowing());
    for _ in 0..=SLOW {
        bench.pass(LOOK);
    }
    assert_eq!(bench.verdict(write), Some(Status::Ok), "without the member");
    assert!(bench.shard.is_borrowing(), "its drive may read it still");
    bench.answer(member, Operation::Write, Status::Ok);
    assert!(!bench.shard.is_borrowing());
    bench.answer_all();
    assert!(bench.shard.is_idle());
}

#[test]
fn while_a_member_is_slow_nothing_is_borrowed() {
    let mut bench = bench(7);
    bench.shard.shared.call_slow(2, super::OTHER, true);
    let write = bench.write_stripe(0);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert_eq!(bench.shard.counters().borrowed_writes, 0);
}
