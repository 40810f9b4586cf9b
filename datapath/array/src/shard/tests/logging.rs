//! Writes that are logged first.

use block::{Operation, Status};

use super::Bench;
use crate::format::WriteHole;

/// A write whose pieces are in the log, and not flushed.
fn logged() -> (Bench, u64) {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    let write = bench.write_stripe(0);
    assert_eq!(bench.is_asked(Operation::Write).len(), 3, "its pieces");
    (bench, write)
}

fn write_pieces(bench: &mut Bench) {
    for drive in bench.is_asked(Operation::Write) {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
}

#[test]
fn a_flush_of_the_log_counts_when_all_members_were_asked_however_little_room_there_is() {
    let (mut bench, write) = logged();
    write_pieces(&mut bench);
    for room in [0, 1, 0, 2] {
        bench.outside.room = room;
        bench.poll();
    }
    bench.outside.room = 100;
    bench.poll();
    assert!(
        bench.is_asked(Operation::Write).is_empty(),
        "none is flushed"
    );
    let mut asked = bench.is_asked(Operation::Flush);
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2]);
    bench.answer(0, Operation::Flush, Status::Ok);
    bench.answer(1, Operation::Flush, Status::Ok);
    bench.poll();
    assert!(
        bench.is_asked(Operation::Write).is_empty(),
        "one is not flushed"
    );
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn after_a_flush_of_the_log_that_failed_the_next_one_waits_until_its_member_is_out() {
    let (mut bench, write) = logged();
    write_pieces(&mut bench);
    bench.poll();
    bench.answer(0, Operation::Flush, Status::Media);
    bench.answer_all();
    assert!(bench.outside.asked.is_empty(), "it would be in vain");
    assert_eq!(bench.verdict(write), None);
    bench.install(|map| {
        map.members[0].state = crate::map::MapState::Lost;
        map.barrier = map.serial;
    });
    let serial = bench.shard.map.serial;
    bench.answer_all();
    assert_eq!(bench.verdict(write), None, "others still count on it");
    bench.make_effective(serial);
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}
