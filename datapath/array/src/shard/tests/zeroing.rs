//! Regions that nobody has written yet: what is read there, and what is zeroed before a write.

use std::collections::BTreeMap;
use std::ops::Range;

use block::{Operation, Status};
use units::{MemberIndex, Role, StripeIndex};

use super::{Bench, LOOK, Shape};
use crate::command::Command;
use crate::format::INCOMPAT_UNWRITTEN;
use crate::geometry::Level;
use crate::io::MemberRequest;
use crate::map::{ArrayMap, MapState};
use crate::regions::{RegionMap, RegionState};

/// What a drive was asked, which, and of what bytes.
type Asked = (Operation, usize, Range<u64>);

/// A home of an array that nobody has written to.
pub(super) fn unwritten(shape: Shape) -> Bench {
    Bench::home_of(shape, |config, regions| {
        *regions = RegionMap::unwritten(*regions.space(), config.array);
        config.features.incompat |= INCOMPAT_UNWRITTEN;
    })
}

/// By drive: where the chunks of a region begin, by the definition of the geometry.
fn chunks(bench: &Bench, region: u32) -> BTreeMap<usize, Vec<u64>> {
    let map = &bench.shard.map;
    let (start, end) = bench.shard.shared.regions.space.stripes(region);
    let mut chunks: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for stripe in (start.0..end.0).map(StripeIndex) {
        let places = map.geometry.places(stripe);
        let roles = map.geometry.data_roles();
        for role in roles.union(map.geometry.parity_roles()) {
            let (member, offset) = bench.shard.drive_offset(&places, role, 0);
            chunks.entry(member.at()).or_default().push(offset);
        }
    }
    chunks
        .values_mut()
        .for_each(|offsets| offsets.sort_unstable());
    chunks
}

/// Drives answer until a request is answered; what they were asked, in that order.
fn carry_out(bench: &mut Bench, cookie: u64) -> Vec<Asked> {
    let mut asked = Vec::new();
    while bench.verdict(cookie).is_none() {
        let next = bench.outside.asked[0];
        let bytes = next.offset..next.offset + next.length;
        asked.push((next.operation, next.drive.at(), bytes));
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
    }
    asked
}

#[test]
fn a_drive_that_keeps_the_zeroes_before_a_first_write_for_ever_is_left_out() {
    let mut bench = unwritten(Shape::default());
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    while bench.is_asked(Operation::WriteZeroes).is_empty() {
        let request = bench.outside.asked[0];
        bench.answer(request.drive.at(), request.operation, Status::Ok);
        bench.poll();
    }
    let is_zeroes = |request: &MemberRequest| request.operation == Operation::WriteZeroes;
    let at = bench.outside.asked.iter().position(is_zeroes);
    let kept = bench.outside.asked.remove(at.expect("asked above"));
    for look in 0..3_300 {
        bench.pass(LOOK);
        bench.answer_all();
        bench
            .shard
            .hear((MemberIndex::from_at(kept.drive.at()), bench.shard.late.now));
        let is_answered = bench.verdict(write).is_some();
        assert!(!is_answered || look > 2_900, "not before: {look}");
    }
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let entry = bench.shard.map.members[kept.drive.at()];
    assert_eq!(entry.state, MapState::Lost);
}

fn shapes() -> [Shape; 4] {
    let narrow = Shape::default();
    let pieces = Shape {
        chunk_bytes: 1 << 20,
        region_stripes: 8,
        ..narrow
    };
    let mirrors = Shape {
        level: Level::L10,
        members: 6,
        ..narrow
    };
    let wide = Shape {
        level: Level::L6,
        members: 7,
        ..narrow
    };
    [narrow, pieces, mirrors, wide]
}

#[test]
fn before_the_first_write_all_chunks_of_its_region_are_zeroed_and_flushed() {
    for shape in shapes() {
        let mut bench = unwritten(shape);
        let expected = chunks(&bench, 1);
        let block = u64::from(bench.shard.map.geometry.stripe_blocks());
        let write = bench.ask(
            Operation::Write,
            u64::from(shape.region_stripes) * block + 3,
            1,
        );
        bench.poll();
        assert_eq!(bench.is_asked(Operation::Write), [], "it waits");
        let asked = carry_out(&mut bench, write);
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        let state = |region| bench.shard.shared.regions.get(region);
        assert_eq!(state(1), RegionState::Dirty);
        for region in [0, 2] {
            assert_eq!(state(region), RegionState::Unwritten, "nobody wrote there");
        }
        assert_eq!(bench.shard.counters().regions_zeroed, 1);
        let (zeroes, others) = asked.split_at(zeroes_of(&asked));
        let mut zeroed: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (_, drive, bytes) in zeroes {
            assert!(bytes.end - bytes.start <= 4 << 20, "no longer than that");
            let chunk = usize::try_from(shape.chunk_bytes).expect("small");
            let offsets = bytes.clone().step_by(chunk);
            zeroed.entry(*drive).or_default().extend(offsets);
        }
        zeroed
            .values_mut()
            .for_each(|offsets| offsets.sort_unstable());
        assert_eq!(zeroed, expected, "{shape:?}");
        let flushes = others.iter().take_while(|one| one.0 == Operation::Flush);
        let mut flushed: Vec<usize> = flushes.map(|one| one.1).collect();
        flushed.sort_unstable();
        assert_eq!(flushed, expected.into_keys().collect::<Vec<_>>());
        let again = others.iter().any(|one| one.0 == Operation::WriteZeroes);
        assert!(!again, "once");
    }
}

/// How many of them come first that zero.
fn zeroes_of(asked: &[Asked]) -> usize {
    let first = asked
        .iter()
        .take_while(|one| one.0 == Operation::WriteZeroes);
    first.count()
}

#[test]
fn a_member_that_is_out_is_not_zeroed() {
    let mut bench = unwritten(Shape::default());
    bench.command(Command::Fail {
        member: MemberIndex(1),
    });
    assert_eq!(bench.shard.map.members[1].state, MapState::Lost);
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    let asked = carry_out(&mut bench, write);
    assert!(zeroes_of(&asked) > 0 && asked.iter().all(|one| one.1 != 1));
}

#[test]
fn a_region_is_written_only_when_whoever_was_not_zeroed_is_out() {
    let mut bench = unwritten(Shape::default());
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    bench.answer(2, Operation::WriteZeroes, Status::Media);
    for _ in 0..2 {
        let next = bench.is_asked(Operation::WriteZeroes)[0];
        bench.answer(next, Operation::WriteZeroes, Status::Ok);
    }
    bench.answer_all();
    assert_eq!(bench.shard.map.members[2].state, MapState::Lost);
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let zeroed = bench.shard.counters().regions_zeroed;
    assert_eq!(
        (zeroed, bench.shard.counters().regions_zeroed_in_pass),
        (1, 0)
    );
}

#[test]
fn what_was_never_written_is_zeroes_and_no_drive_is_asked() {
    for (operation, blocks) in [
        (Operation::Read, 100),
        (Operation::Read, 1),
        (Operation::WriteZeroes, 100),
        (Operation::Discard, 100),
    ] {
        let mut bench = unwritten(Shape::default());
        bench.fill(0xEE);
        let cookie = bench.ask(operation, 7, blocks);
        bench.poll();
        assert_eq!(bench.verdict(cookie), Some(Status::Ok), "{operation:?}");
        assert!(bench.outside.asked.is_empty());
        assert!(bench.shard.counters().unwritten_pieces > 0);
        let memory = bench.memory.as_ref().expect("there is one");
        let length = usize::try_from(blocks + 1).expect("few") * 512;
        let mut bytes = vec![0; length.min(64 << 10)];
        let seen = bytes.len();
        bench
            .pool
            .segment(memory)
            .part(0, seen)
            .copy_to_slice(&mut bytes);
        let read = if operation == Operation::Read {
            seen - 512
        } else {
            0
        };
        assert!(bytes[..read].iter().all(|&byte| byte == 0), "{blocks}");
        assert!(bytes[read..].iter().all(|&byte| byte == 0xEE), "no more");
    }
}

#[test]
fn reads_of_what_is_partly_written_ask_drives_for_that_part() {
    let mut bench = unwritten(Shape::default());
    let write = bench.write_stripe(4);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    // Region 1, which is written now, is stripes 4 to 7.
    let read = bench.ask(Operation::Read, 3 * 16, 6 * 16);
    bench.poll();
    let mut bytes = [0; 3];
    for request in &bench.outside.asked {
        assert_eq!(request.operation, Operation::Read);
        bytes[request.drive.at()] += request.length;
    }
    let mut expected = [0; 3];
    for stripe in 4..8 {
        for role in [0, 1] {
            let (member, _) = bench.shard.map.member(StripeIndex(stripe), Role(role));
            expected[member.at()] += 4096;
        }
    }
    assert_eq!(bytes, expected);
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
}

#[test]
fn a_stop_waits_for_regions_that_are_being_written_as_long_as_they_will_be() {
    let stopping = || {
        let mut bench = unwritten(Shape::default());
        bench.ask(Operation::Write, 0, 1);
        bench.poll();
        bench.shard.command(2, Command::Stop);
        assert!(bench.shard.stop_awaits_regions());
        bench
    };
    let mut bench = stopping();
    bench.shard.decider().commands.clear();
    assert!(!bench.shard.stop_awaits_regions(), "nobody stops it");
    let mut bench = stopping();
    bench.shard.decider().metadata_failed = true;
    assert!(!bench.shard.stop_awaits_regions(), "none is written");
    let mut bench = stopping();
    bench.shard.decider().started = false;
    assert!(!bench.shard.stop_awaits_regions(), "nor before the start");
    let changes: [fn(&mut ArrayMap); 2] =
        [|map| map.read_only = true, |map| map.hopeless.fill(true)];
    for change in changes {
        let mut bench = stopping();
        let mut map = bench.shard.successor();
        change(&mut map);
        bench.set_map(map);
        assert!(!bench.shard.stop_awaits_regions(), "it could wait for ever");
    }
    let mut bench = stopping();
    bench.answer_all();
    assert!(bench.is_done() && !bench.shard.stop_awaits_regions());
}
