//! Arrays without parity: what nobody can make up for.

use std::time::Duration;

use block::{Operation, Part, Status};
use units::MemberIndex;

use super::{Bench, Shape};
use crate::geometry::Level;
use crate::io::Event;
use crate::map::MapState;

const MEMBERS: usize = 3;
/// Blocks of a chunk, and of a stripe.
const CHUNK: u64 = 8;
const STRIPE: u64 = 24;

fn bare() -> Bench {
    Bench::shaped(Shape {
        level: Level::L0,
        members: MEMBERS,
        ..Shape::default()
    })
}

/// By drive: how many bytes it is asked for.
fn asked(bench: &Bench, operation: Operation) -> [u64; MEMBERS] {
    let mut bytes = [0; MEMBERS];
    for request in &bench.outside.asked {
        assert_eq!(request.operation, operation);
        bytes[request.drive.at()] += request.length;
    }
    bytes
}

#[test]
fn a_part_of_a_block_is_read_and_never_written() {
    let mut bench = bare();
    bench.part = Part {
        offset: 8,
        bytes: 100,
    };
    let write = bench.ask(Operation::Write, 1, 1);
    assert_eq!(bench.verdict(write), Some(Status::Invalid));
    assert!(bench.outside.asked.is_empty());
    bench.part = Part::WHOLE;
    let whole = bench.ask(Operation::Write, 1, 1);
    bench.answer_all();
    assert_eq!(bench.verdict(whole), Some(Status::Ok));
}

/// Every range of two stripes, with a member out or none, read and written.
#[test]
fn each_drive_is_asked_for_its_blocks_and_those_of_a_member_that_is_out_fail() {
    for (out, operation) in [None, Some(0), Some(1), Some(2)]
        .into_iter()
        .flat_map(|out| [Operation::Read, Operation::Write].map(|operation| (out, operation)))
    {
        let mut bench = bare();
        if let Some(member) = out {
            bench.install(|map| map.members[member].state = MapState::Lost);
        }
        for (start, end) in (0..2 * STRIPE).step_by(3).flat_map(|start| {
            (start + 1..=2 * STRIPE)
                .step_by(5)
                .map(move |end| (start, end))
        }) {
            let mut expected = [0; MEMBERS];
            for block in start..end {
                let place = bench.shard.map.geometry.place(block);
                let (MemberIndex(member), _) = bench.shard.map.member(place.stripe, place.role);
                expected[usize::from(member)] += 512;
            }
            let lost = out.is_some_and(|member| std::mem::take(&mut expected[member]) > 0);
            let blocks = u32::try_from(end - start).expect("few");
            let cookie = bench.ask(operation, start, blocks);
            bench.poll();
            assert_eq!(asked(&bench, operation), expected, "{start}..{end}");
            bench.answer_all();
            let verdict = if lost { Status::Media } else { Status::Ok };
            assert_eq!(bench.verdict(cookie), Some(verdict), "{start}..{end}");
            bench.outside.completions.clear();
        }
    }
}

#[test]
fn one_that_nothing_may_be_written_to_is_read() {
    let mut bench = bare();
    bench.install(|map| map.read_only = true);
    let blocks = u32::try_from(STRIPE + CHUNK).expect("few");
    for (operation, verdict) in [
        (Operation::Write, Status::Media),
        (Operation::WriteZeroes, Status::Media),
        (Operation::Discard, Status::Media),
        (Operation::Read, Status::Ok),
    ] {
        let cookie = bench.ask(operation, 3, blocks);
        let untouched = bench.outside.asked.is_empty();
        assert_eq!(untouched, operation != Operation::Read);
        bench.answer_all();
        assert_eq!(bench.verdict(cookie), Some(verdict), "{operation:?}");
    }
}

#[test]
fn a_write_that_a_drive_refuses_for_long_is_told_of_by_its_rows() {
    let mut bench = bare();
    let write = bench.ask(Operation::Write, 2, 3);
    for _ in 0..20 {
        while let Some(asked) = bench.outside.asked.first().copied() {
            // It takes others.
            let refuses = asked.operation == Operation::Write && asked.length == 3 * 512;
            let status = [Status::Ok, Status::Media][usize::from(refuses)];
            bench.answer(asked.drive.at(), asked.operation, status);
        }
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    let told = bench.outside.events.iter();
    let told = told.filter(|event| matches!(event, Event::WriteRefused { .. }));
    let place = bench.shard.map.geometry.place(2);
    let (member, _) = bench.shard.map.member(place.stripe, place.role);
    let refused = Event::WriteRefused {
        member,
        first: 2,
        rows: 3,
    };
    assert_eq!(told.collect::<Vec<_>>(), [&refused]);
}

#[test]
fn a_guest_hears_of_a_drive_that_is_gone_as_of_one_that_cannot_read() {
    let place = |bench: &Bench| bench.shard.map.geometry.place(0);
    for (status, verdict) in [
        (Status::Invalid, Status::Invalid),
        (Status::Gone, Status::Media),
    ] {
        let mut bench = bare();
        let place = place(&bench);
        let (member, _) = bench.shard.map.member(place.stripe, place.role);
        // Nobody waits for it any more.
        bench.install(|map| (map.held[member.at()], map.given_up) = (true, true));
        let read = bench.ask(Operation::Read, 0, 1);
        bench.answer(member.at(), Operation::Read, status);
        bench.poll();
        assert_eq!(bench.verdict(read), Some(verdict));
    }
}
