//! Reads without end leave room at the drives to writes, and all that guests ask to the home.

use block::{Operation, Status};
use units::MemberIndex;

use super::super::room::Kept;
use super::{AMPLE, Bench, Shape};
use crate::Command;
use crate::map::MapState;

/// A home whose reads wait for room, and how many found some.
fn reading() -> (Bench, usize) {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.kept = Kept {
        to_home: 2,
        to_tickets: 2 + 10,
        to_retries: 2 + 10,
    };
    bench.outside.room = 20;
    bench.volume = Some(1);
    for _ in 0..4 {
        bench.ask(Operation::Read, 0, 512);
    }
    bench.poll();
    let found = bench.is_asked(Operation::Read).len();
    assert_eq!(found, 20 - 12);
    bench.volume = Some(2);
    assert!(!bench.shard.waiting_requests.is_empty());
    (bench, found)
}

#[test]
fn a_write_beside_reads_without_end_is_carried_out() {
    let (mut bench, found) = reading();
    let write = bench.ask(Operation::Write, 8, 1);
    let mut rounds = 0;
    while bench.verdict(write).is_none() {
        bench.poll();
        // What reads had before is theirs again at once.
        let read = bench.is_asked(Operation::Read)[0];
        bench.answer(read, Operation::Read, Status::Ok);
        for operation in [Operation::Write, Operation::Flush] {
            for drive in bench.is_asked(operation) {
                bench.answer(drive, operation, Status::Ok);
            }
        }
        bench.poll();
        assert!(bench.is_asked(Operation::Read).len() >= found, "they go on");
        rounds += 1;
        assert!(rounds < 60, "it waits for as long as they go on");
    }
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn a_member_is_left_out_although_guests_have_all_the_room() {
    let (mut bench, found) = reading();
    // What they read before is not answered, either.
    for at in 0..12 {
        bench.ask(Operation::Write, at * 16, 1);
    }
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Read).len(), found + 10);
    let member = MemberIndex(1);
    bench.shard.command(1, Command::Fail { member });
    for _ in 0..40 {
        bench.poll();
        for operation in [Operation::Write, Operation::Flush] {
            for drive in bench.is_asked(operation) {
                bench.answer(drive, operation, Status::Ok);
            }
        }
    }
    assert!(bench.is_asked(Operation::Read).len() >= found);
    assert_eq!(bench.shard.map().members[1].state, MapState::Lost);
    bench.outside.room = AMPLE;
}

#[test]
fn all_members_are_asked_whether_they_are_there_however_little_room_there_is() {
    let shape = Shape {
        members: 9,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    bench.ask(Operation::Read, 0, 8);
    bench.poll();
    bench.outside.room = 2;
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Gone);
    bench.answer_all();
    assert_eq!(bench.shard.map().members[drive].state, MapState::Lost);
}

#[test]
fn a_read_that_failed_is_tried_again_in_what_other_reads_leave_and_leaves_the_rest_to_tickets() {
    let shape = Shape {
        chunk_bytes: 32 << 10,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |_, _| {});
    bench.shard.kept = Kept {
        to_home: 2,
        to_tickets: 2 + 10,
        to_retries: 2 + 10 + 4,
    };
    bench.ask(Operation::Read, 0, 64);
    bench.poll();
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Media);
    // All else is with other reads by now.
    bench.outside.room = 2 + 10 + 4;
    bench.poll();
    assert_eq!(
        bench.is_asked(Operation::Read),
        [drive; 4],
        "of eight parts"
    );
}
