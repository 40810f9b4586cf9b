//! Whether a drive is there of which a flush failed: what is read to see it, and what is believed.

use block::{Operation, Status};

use units::bytes_u64;

use super::Bench;
use crate::format::{SUPERBLOCK_BYTES, Superblock};
use crate::io::Message;

/// A shard that pings member 0, because a flush of it failed.
fn pinging() -> Bench {
    let mut bench = Bench::new();
    bench.ask(Operation::Flush, 0, 0);
    bench.answer(0, Operation::Flush, Status::Media);
    bench.answer_all_but(&[0]);
    bench
}

/// Which copy of its superblock member 0 is asked for, if it is asked.
fn copy(bench: &Bench) -> Option<usize> {
    let [asked] = &bench.outside.asked[..] else {
        assert!(bench.outside.asked.is_empty(), "one after the other");
        return None;
    };
    let what = (asked.operation, asked.drive.at(), asked.length);
    assert_eq!(what, (Operation::Read, 0, bytes_u64(SUPERBLOCK_BYTES)));
    let mut copies = Superblock::head_offsets().into_iter();
    Some(copies.position(|at| at == asked.offset).expect("a copy"))
}

fn answer(bench: &mut Bench, status: Status) {
    bench.answer(0, Operation::Read, status);
    bench.poll();
}

/// What the home was told that the member's flush came to.
fn told(bench: &Bench) -> Vec<Status> {
    let told = bench.outside.messages.iter().map(|message| {
        let Message::Report(failure) = message else {
            panic!("{message:?}");
        };
        failure.status
    });
    told.collect()
}

#[test]
fn a_drive_is_gone_when_neither_copy_of_its_superblock_can_be_read() {
    for (second, verdict) in [(Status::Ok, Status::Media), (Status::Media, Status::Gone)] {
        let mut bench = pinging();
        assert_eq!(copy(&bench), Some(0));
        answer(&mut bench, Status::Media);
        assert_eq!(copy(&bench), Some(1), "the first may lie on a bad block");
        assert_eq!(told(&bench), [], "it is open");
        answer(&mut bench, second);
        assert_eq!(copy(&bench), None, "there is no third");
        assert_eq!(told(&bench), [verdict]);
    }
}

#[test]
fn a_drive_whose_first_superblock_can_be_read_is_there() {
    let mut bench = pinging();
    answer(&mut bench, Status::Ok);
    assert_eq!(copy(&bench), None);
    assert_eq!(told(&bench), [Status::Media]);
}

#[test]
fn the_second_superblock_of_a_drive_that_is_out_is_not_read() {
    let mut bench = pinging();
    bench.exclude(0);
    answer(&mut bench, Status::Media);
    assert_eq!(copy(&bench), None);
}

#[test]
fn a_drive_whose_second_superblock_there_is_no_room_to_read_counts_as_gone() {
    let mut bench = pinging();
    bench.outside.room = 0;
    let ping = bench.outside.asked.remove(0);
    let Bench { shard, outside, .. } = &mut bench;
    shard.drive_done(ping.cookie, Status::Media, outside);
    bench.outside.room = super::AMPLE;
    bench.poll();
    assert_eq!(copy(&bench), None);
    assert_eq!(told(&bench), [Status::Gone]);
}
