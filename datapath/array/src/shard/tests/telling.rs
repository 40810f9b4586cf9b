//! What the next engine is told while this one works: what it has begun to write, and whether
//! parity and members are to be trusted when it is killed now.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block::{Operation, Stability, Status};
use units::{MemberIndex, bytes_usize};
use uuid::Uuid;

use super::returning::replace;
use super::{Bench, LOOK, STRIPE_BLOCKS, Shape, room};
use crate::assembly::Assembly;
use crate::begun::tests::whole_array;
use crate::begun::{Begun, BegunOf, BegunSpace, BegunWrites, Doubt, Why};
use crate::command::Command;
use crate::format::ArrayOptions;
use crate::geometry::Level;
use crate::io::{Event, MemberFailure, PassEvent};
use crate::map::MapState;

const WHOSE: BegunOf = BegunOf {
    array: Uuid::from_u128(7),
    boot: Uuid::from_u128(8),
    life: 1,
};

/// A file for one shard, and what writes it.
pub(super) fn file() -> (File, Arc<Begun>) {
    let space = BegunSpace::new(1, &room());
    let file = memory::words::unnamed_file(bytes_usize(space.bytes())).expect("memory");
    let copy = file.try_clone().expect("a descriptor");
    (file, Begun::create(copy, space, &WHOSE).expect("memory"))
}

/// A started home that tells the next engine.
fn telling(level: Level, members: usize) -> Bench {
    let shape = Shape {
        level,
        members,
        tells: true,
        ..Shape::default()
    };
    Bench::home_of(shape, |_, _| {})
}

fn raid() -> Bench {
    telling(Level::L5, 3)
}

/// What is found when the engine is killed now.
fn found(bench: &Bench) -> BegunWrites {
    let file = bench.file.as_ref().expect("it tells");
    let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
    let length = file.metadata().expect("a file").len();
    let config = &bench.shard.coordinator().expect("home").config;
    let geometry = &bench.shard.map.geometry;
    BegunWrites::read(read, length, &WHOSE, (config, geometry)).expect("it is good")
}

/// Whether its parity is trusted then, where no drive was away since.
fn doubt(bench: &Bench) -> Option<Doubt> {
    let assembly: Assembly = whole_array(3);
    let appearance = |member: MemberIndex| 1 + u64::try_from(member.at()).expect("few");
    found(bench).doubt(&assembly, None, appearance)
}

/// What is written again then, by member: where in its data, and what.
fn again(bench: &Bench) -> Vec<(usize, u64, Vec<u8>)> {
    let file = bench.file.as_ref().expect("it tells");
    let writes = found(bench);
    let mut again = Vec::new();
    for position in 0..writes.len() {
        let read = |offset, bytes: &mut [u8]| file.read_exact_at(bytes, offset);
        let done = writes.redo(position, read, |_, _, _| Ok(0));
        let redo = done.expect("memory").redo;
        again.extend(
            redo.into_iter()
                .map(|redo| (redo.member.at(), redo.offset, redo.bytes)),
        );
    }
    again.sort();
    again
}

/// What drives are asked to write now of the members' data, in the same words.
fn asked(bench: &Bench) -> Vec<(usize, u64, Vec<u8>)> {
    let data = bench.shard.map.members[0].data_offset;
    let asked = bench
        .outside
        .asked
        .iter()
        .filter(|asked| asked.offset >= data);
    let asked = asked.map(|asked| {
        let zeroes = vec![0; bytes_usize(asked.length)];
        let content = if asked.operation == Operation::Write {
            Bench::content(asked)
        } else {
            zeroes
        };
        (asked.drive.at(), asked.offset - data, content)
    });
    let mut asked: Vec<_> = asked.collect();
    asked.sort();
    asked
}

/// A region is dirty, so that what is written there goes to the drives at once.
fn dirty(bench: &mut Bench) {
    bench.command(Command::Dirty { regions: vec![0] });
    bench.outside.events.clear();
}

fn all_ok(bench: &mut Bench, operation: Operation) {
    for member in bench.is_asked(operation) {
        bench.answer(member, operation, Status::Ok);
    }
    bench.poll();
}

#[test]
fn what_goes_to_the_drives_is_told_before_it_does_and_until_the_last_has_it() {
    let mut bench = raid();
    bench.fill(0xA5);
    let write = bench.write_stripe(1);
    assert!(found(&bench).is_empty(), "its region is not dirty yet");
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(found(&bench).is_empty());
    bench.fill(0x5A);
    let write = bench.write_stripe(2);
    assert_eq!(asked(&bench).len(), 3);
    assert_eq!(again(&bench), asked(&bench));
    let all = again(&bench);
    for drive in [2, 0] {
        bench.answer(drive, Operation::Write, Status::Ok);
        bench.poll();
        assert_eq!(again(&bench), all, "one has not got it");
    }
    bench.answer(1, Operation::Write, Status::Ok);
    bench.poll();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(found(&bench).is_empty());
    assert_eq!(doubt(&bench), None);
}

#[test]
fn a_part_of_a_stripe_is_told_with_its_parity_when_all_is_read() {
    let mut bench = raid();
    dirty(&mut bench);
    bench.fill(0x11);
    bench.ask(Operation::Write, 3, 2);
    bench.poll();
    assert!(!bench.is_asked(Operation::Read).is_empty());
    assert!(found(&bench).is_empty(), "nothing is torn yet");
    while !bench.is_asked(Operation::Read).is_empty() {
        all_ok(&mut bench, Operation::Read);
    }
    assert_eq!(asked(&bench).len(), 2, "data and parity");
    assert_eq!(again(&bench), asked(&bench));
}

#[test]
fn copies_are_told_each_and_zeroes_as_what_they_are() {
    let mut bench = telling(Level::L1, 3);
    dirty(&mut bench);
    bench.fill(0x33);
    bench.ask(Operation::Write, 1, 2);
    bench.poll();
    assert_eq!(asked(&bench).len(), 3);
    assert_eq!(again(&bench), asked(&bench));
    let mut bench = raid();
    dirty(&mut bench);
    let blocks = u32::try_from(STRIPE_BLOCKS).expect("few");
    let zeroes = bench.ask(Operation::WriteZeroes, 0, blocks);
    bench.poll();
    assert_eq!(asked(&bench).len(), 3);
    assert_eq!(again(&bench), asked(&bench));
    bench.answer_all();
    assert_eq!(bench.verdict(zeroes), Some(Status::Ok));
    assert!(found(&bench).is_empty());
}

#[test]
fn nothing_is_told_where_nothing_can_be_torn() {
    let mut bench = telling(Level::L0, 3);
    dirty(&mut bench);
    bench.ask(Operation::Write, 0, 4);
    bench.poll();
    assert!(!asked(&bench).is_empty());
    assert!(found(&bench).is_empty(), "without parity");
    // What a drive could not read is written again as it was.
    let mut bench = raid();
    bench.ask(Operation::Read, 0, 1);
    let member = bench.is_asked(Operation::Read)[0];
    bench.cannot_read(member);
    while !bench.is_asked(Operation::Read).is_empty() {
        all_ok(&mut bench, Operation::Read);
    }
    assert_eq!(bench.is_asked(Operation::Write), [member]);
    assert!(found(&bench).is_empty());
}

#[test]
fn what_lies_in_a_guests_memory_is_told_as_that_until_it_is_copied() {
    let mut bench = raid();
    dirty(&mut bench);
    bench.stability = Stability::Stable;
    bench.fill(0x77);
    bench.write_stripe(0);
    assert_eq!(bench.shard.counters().borrowed_writes, 1);
    assert!(found(&bench).is_borrowed(0));
    let all = asked(&bench);
    bench.answer(0, Operation::Write, Status::NoSpace);
    bench.poll();
    assert!(!found(&bench).is_borrowed(0), "it may take long from here");
    assert_eq!(again(&bench), all);
    bench.stability = Stability::MayChange;
    bench.write_stripe(1);
    assert!(!found(&bench).is_borrowed(1));
}

#[test]
fn parity_is_trusted_from_the_end_of_a_resync_to_the_next_that_is_due() {
    let shape = Shape {
        tells: true,
        ..Shape::default()
    };
    let mut bench = Bench::home_of(shape, |config, regions| {
        config.resynced_until = units::StripeIndex(0);
        *regions = regions.clone().all_dirty();
    });
    assert_eq!(doubt(&bench), None, "it went through at once");
    bench.shard.command(2, Command::Resync);
    bench.poll();
    while bench.shard.map.is_optimal() {
        let next = bench.outside.asked[0];
        let told = doubt(&bench);
        assert_ne!(told, Some(Doubt::NotTrusted), "no record says so");
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    bench.outside.events.clear();
    let mut open = 0;
    while !bench.shard.map.is_optimal() {
        assert_eq!(doubt(&bench), Some(Doubt::NotTrusted));
        open += 1;
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    assert!(open > 10, "{open}");
    bench.answer_all();
    let ends =
        |event: &Event| matches!(event, Event::Pass { state, .. } if *state == PassEvent::Finished);
    assert!(bench.outside.events.iter().any(ends));
    assert_eq!(doubt(&bench), None);
}

/// The home hears that a member's drive says this.
fn fails(bench: &mut Bench, member: u16, status: Status) {
    bench.shard.coordinate_failure(MemberFailure {
        member: MemberIndex(member),
        incarnation: 0,
        status,
        late: false,
        passing: true,
    });
    bench.shard.stir();
    bench.poll();
}

#[test]
fn a_member_that_is_waited_for_is_told_until_it_works_and_parity_of_held_ones_is_not_trusted() {
    let mut bench = raid();
    fails(&mut bench, 1, Status::NoSpace);
    assert!(bench.shard.map.held[1]);
    assert_eq!(doubt(&bench), Some(Doubt::Held));
    for _ in 0..30 {
        bench.pass(LOOK * 10);
        bench.answer_all();
    }
    assert!(!bench.shard.map.held[1]);
    assert_eq!(doubt(&bench), None);
    assert!(!bench.shard.knows_of_gone(MemberIndex(1)));
}

#[test]
fn a_member_that_a_write_found_gone_may_have_lost_something_until_it_is_out() {
    let mut bench = raid();
    dirty(&mut bench);
    bench.write_stripe(0);
    bench.answer(1, Operation::Write, Status::Gone);
    bench.poll();
    let member = MemberIndex(1);
    assert_eq!(doubt(&bench), Some(Doubt::Lacks(member, Why::Gone)));
    assert!(bench.shard.knows_of_gone(member));
    assert!(!bench.shard.knows_of_gone(MemberIndex(0)));
    bench.answer_all();
    assert_eq!(doubt(&bench), None, "it is out: its record says so");
    assert!(!bench.shard.knows_of_gone(member));
}

#[test]
fn a_flush_that_fails_is_told_until_another_drive_is_there() {
    let mut bench = raid();
    dirty(&mut bench);
    bench.write_stripe(0);
    bench.answer_all();
    bench.ask(Operation::Flush, 0, 0);
    assert_eq!(bench.is_asked(Operation::Flush).len(), 3);
    assert_eq!(doubt(&bench), Some(Doubt::FlushHung), "it may fail yet");
    bench.answer(1, Operation::Flush, Status::Media);
    for other in [0, 2] {
        bench.answer(other, Operation::Flush, Status::Ok);
    }
    bench.poll();
    let member = MemberIndex(1);
    // It is asked whether it is there.
    assert_eq!(doubt(&bench), Some(Doubt::Lacks(member, Why::Gone)));
    all_ok(&mut bench, Operation::Read);
    let failed = Some(Doubt::Lacks(member, Why::FlushFailed));
    assert_eq!(doubt(&bench), failed);
    bench.answer_all();
    assert_eq!(bench.shard.map.members[1].state, MapState::Lost);
    assert_eq!(doubt(&bench), failed, "it is out, if it is the same drive");
    bench.command(replace(None));
    assert_eq!(doubt(&bench), None);
}

#[test]
fn once_metadata_cannot_be_written_parity_is_torn_for_good() {
    let mut bench = raid();
    assert_eq!(doubt(&bench), None);
    bench
        .shard
        .command(2, Command::Options(ArrayOptions::default()));
    bench.poll();
    all_ok(&mut bench, Operation::Write);
    for drive in [0, 1, 2] {
        bench.answer(drive, Operation::Flush, Status::Media);
    }
    bench.answer_all();
    let failed = |event: &Event| matches!(event, Event::MetadataFailed);
    assert!(
        bench.outside.events.iter().any(failed),
        "{:?}",
        bench.outside.events
    );
    assert_eq!(doubt(&bench), Some(Doubt::Torn));
}

#[test]
fn trust_is_told_when_every_shard_acts_by_the_map_and_taken_back_before() {
    let mut bench = raid();
    let begun = bench.shard.shared.begun.clone().expect("it tells");
    begun.trust(false);
    bench.shard.tell_trust(false);
    assert_eq!(doubt(&bench), Some(Doubt::NotTrusted), "not everybody does");
    bench.shard.tell_trust(true);
    assert_eq!(doubt(&bench), None);
    let mut map = bench.shard.successor();
    map.trusted_until = units::StripeIndex(1);
    bench.set_map(map);
    bench.shard.tell_trust(false);
    assert_eq!(doubt(&bench), Some(Doubt::NotTrusted));
}

#[test]
fn a_member_that_only_errs_is_not_called_gone() {
    let mut bench = raid();
    dirty(&mut bench);
    bench.write_stripe(0);
    bench.answer(1, Operation::Write, Status::Media);
    bench.poll();
    assert!(!bench.shard.knows_of_gone(MemberIndex(1)));
    assert_eq!(doubt(&bench), None);
}

#[test]
fn parity_is_torn_when_a_write_ends_that_had_begun() {
    let mut bench = raid();
    dirty(&mut bench);
    let write = bench.write_stripe(0);
    for drive in [0, 1] {
        bench.answer(drive, Operation::Write, Status::Media);
    }
    assert_eq!(doubt(&bench), None, "nobody has decided yet");
    // Nobody knows what they hold, and the array cannot do without both.
    let serial = bench.install(|map| map.hopeless[..2].fill(true));
    bench.make_effective(serial);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(doubt(&bench), Some(Doubt::Torn));
}
