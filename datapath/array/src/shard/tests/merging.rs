//! Writes of one stripe that come one by one and are carried out together.

use std::time::Duration;

use block::{Operation, Status};

use super::{Bench, CHUNK_BYTES, STRIPE_BLOCKS};
use crate::io::MemberRequest;

/// What drives are asked to read and to write: requests, and blocks.
fn asked(bench: &Bench) -> [(usize, u64); 2] {
    [Operation::Read, Operation::Write].map(|operation| {
        let asked = bench.outside.asked.iter();
        let asked = asked.filter(|request| request.operation == operation);
        let blocks = asked.map(|request| request.length / 512);
        blocks.fold((0, 0), |(count, sum), blocks| (count + 1, sum + blocks))
    })
}

const NOTHING: (usize, u64) = (0, 0);
/// Blocks of a piece in the log: its header, and a chunk.
const PIECE: u64 = 8 + 8;
/// A stripe: a chunk to each drive.
const WHOLE: [(usize, u64); 2] = [NOTHING, (3, 24)];

fn write(bench: &mut Bench, start: u64, blocks: u32) -> u64 {
    bench.ask(Operation::Write, start, blocks)
}

fn all_answered(bench: &mut Bench, cookies: &[u64]) {
    for &cookie in cookies {
        assert_eq!(bench.verdict(cookie), None, "nothing is written");
    }
    bench.answer_all();
    for &cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    assert!(bench.shard.is_idle());
}

#[test]
fn odd_pieces_of_a_turn_become_a_stripe_in_whichever_order_they_come() {
    let pieces = [(0, 5), (5, 6), (11, 5)];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut bench = Bench::new();
        let cookies = order.map(|piece: usize| {
            let (start, blocks) = pieces[piece];
            write(&mut bench, start, blocks)
        });
        bench.poll();
        assert_eq!(asked(&bench), WHOLE, "{order:?}");
        all_answered(&mut bench, &cookies);
        assert_eq!(bench.shard.counters().joined_writes, 2);
    }
}

/// As guests and hosts split a large request: into pieces of whole stripes, at odd boundaries.
#[test]
fn pieces_at_odd_boundaries_are_whole_stripes_but_for_the_first_and_the_last() {
    const PIECES: u64 = 3;
    for stripes in [1, 3] {
        for odd in [1, 7, 8, STRIPE_BLOCKS - 1] {
            for backwards in [false, true] {
                let mut bench = Bench::new();
                let length = stripes * STRIPE_BLOCKS;
                let mut starts: Vec<u64> = (0..PIECES).map(|piece| odd + piece * length).collect();
                if backwards {
                    starts.reverse();
                }
                let blocks = u32::try_from(length).expect("few");
                let cookies = starts.iter().map(|&start| write(&mut bench, start, blocks));
                let cookies: Vec<u64> = cookies.collect();
                bench.poll();
                let data = bench.shard.map.members[0].data_offset;
                let reads = bench.outside.asked.iter();
                let mut reads = reads.filter(|asked| asked.operation == Operation::Read);
                let row = |asked: &MemberRequest| (asked.offset - data) / CHUNK_BYTES;
                assert!(reads.all(|asked| [0, PIECES * stripes].contains(&row(asked))));
                all_answered(&mut bench, &cookies);
                let joined = bench.shard.counters().joined_writes;
                assert_eq!(joined, PIECES - 1, "{stripes} {odd}");
            }
        }
    }
}

#[test]
fn pieces_beside_each_other_are_one_request_to_each_drive() {
    let mut bench = Bench::new();
    let cookies = [0, 1, 2, 3].map(|block| write(&mut bench, block, 1));
    bench.poll();
    assert_eq!(asked(&bench), [(1, 4), NOTHING], "the other chunk");
    all_answered(&mut bench, &cookies);
    // Apart, nothing is won.
    let cookies = [0, 3].map(|block| write(&mut bench, block, 1));
    bench.poll();
    assert_eq!(asked(&bench), [(2, 2), NOTHING]);
    all_answered(&mut bench, &cookies);
}

#[test]
fn who_waits_for_a_third_does_not_join() {
    let mut bench = Bench::new();
    let third = write(&mut bench, 14, 2);
    bench.poll();
    let first = write(&mut bench, 0, 3);
    // All lanes: behind the other two.
    let second = write(&mut bench, 3, 6);
    bench.poll();
    assert_eq!(asked(&bench), [(2, 5), NOTHING]);
    all_answered(&mut bench, &[third, first, second]);
    assert_eq!(bench.shard.counters().joined_writes, 0);
}

#[test]
fn no_block_is_written_by_two_at_once() {
    let mut bench = Bench::new();
    let cookies = [(0, 5), (4, 12)].map(|(start, blocks)| write(&mut bench, start, blocks));
    bench.poll();
    assert_eq!(asked(&bench), [(1, 5), NOTHING], "the first alone");
    all_answered(&mut bench, &cookies);
    assert_eq!(bench.shard.counters().joined_writes, 0);
}

#[test]
fn what_was_read_is_dropped_when_the_stripe_becomes_whole_meanwhile() {
    let mut bench = Bench::new();
    let first = write(&mut bench, 0, 5);
    bench.poll();
    assert_eq!(asked(&bench), [(1, 5), NOTHING]);
    let others = [write(&mut bench, 5, 6), write(&mut bench, 11, 5)];
    bench.poll();
    assert_eq!(asked(&bench), [(1, 5), NOTHING], "they wait for its lanes");
    let drives = bench.is_asked(Operation::Read);
    for drive in drives {
        bench.answer(drive, Operation::Read, Status::Ok);
    }
    bench.poll();
    assert_eq!(asked(&bench), WHOLE);
    all_answered(&mut bench, &[first, others[0], others[1]]);
    let counters = bench.shard.counters();
    assert_eq!((counters.promoted_writes, counters.wasted_reads), (1, 1));
}

#[test]
fn what_was_read_is_used_when_the_stripe_does_not_become_whole() {
    let mut bench = Bench::new();
    let cookies = [write(&mut bench, 0, 5), write(&mut bench, 5, 6)];
    bench.poll();
    assert_eq!(asked(&bench)[1], NOTHING);
    let last = write(&mut bench, 12, 4);
    let mut drives = bench.is_asked(Operation::Read);
    drives.drain(..).for_each(|drive| {
        bench.answer(drive, Operation::Read, Status::Ok);
    });
    bench.poll();
    let [reads, (_, written)] = asked(&bench);
    // Eleven blocks, and parity of all eight lanes.
    assert_eq!((reads, written), (NOTHING, 19));
    all_answered(&mut bench, &[cookies[0], cookies[1], last]);
    let counters = bench.shard.counters();
    assert_eq!((counters.promoted_writes, counters.wasted_reads), (0, 0));
}

/// A stripe is being written whole, and the beginning of the next one comes.
fn delayed(bench: &mut Bench, stripe: u64) -> [u64; 2] {
    let before = bench.write_stripe(stripe);
    assert_eq!(asked(bench), WHOLE);
    let start = write(bench, (stripe + 1) * STRIPE_BLOCKS, 5);
    bench.poll();
    [before, start]
}

#[test]
fn the_end_of_a_stream_waits_for_what_the_writes_before_it_bring() {
    let mut bench = Bench::new();
    let [before, start] = delayed(&mut bench, 0);
    assert_eq!(asked(&bench), WHOLE, "it is put off");
    bench.outside.now = bench.outside.now + Duration::from_micros(30);
    let rest = write(&mut bench, STRIPE_BLOCKS + 5, 11);
    bench.poll();
    assert_eq!(asked(&bench), [NOTHING, (6, 48)], "and is whole");
    bench.outside.now = bench.outside.now + Duration::from_micros(500);
    all_answered(&mut bench, &[before, start, rest]);
    let counters = bench.shard.counters();
    assert_eq!(counters.delayed_writes, 1);
    assert_eq!(counters.delayed_nanoseconds, 30_000, "until it began");
}

#[test]
fn the_end_of_a_stream_begins_when_nothing_is_under_way_before_it() {
    let mut bench = Bench::new();
    let [before, start] = delayed(&mut bench, 0);
    assert_eq!(asked(&bench), WHOLE, "it is put off");
    // More of it, but not all.
    let more = write(&mut bench, STRIPE_BLOCKS + 5, 6);
    bench.poll();
    assert_eq!(asked(&bench), WHOLE, "still");
    for drive in 0..3 {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
    bench.poll();
    assert_eq!(bench.verdict(before), Some(Status::Ok));
    let [(_, read), written] = asked(&bench);
    assert!(read > 0 && written == NOTHING);
    all_answered(&mut bench, &[start, more]);
    assert_eq!(bench.shard.counters().joined_writes, 1);
}

#[test]
fn a_request_does_not_wait_for_itself() {
    let mut bench = Bench::new();
    let one = write(&mut bench, 0, 21);
    bench.poll();
    assert_eq!(asked(&bench), [(1, 5), (3, 24)]);
    all_answered(&mut bench, &[one]);
    assert_eq!(bench.shard.counters().delayed_writes, 0);
}

#[test]
fn nobody_waits_for_less_than_the_stripe_lacks() {
    let mut bench = Bench::new();
    let before = write(&mut bench, 8, 8);
    bench.poll();
    let start = write(&mut bench, STRIPE_BLOCKS, 5);
    bench.poll();
    let [(_, read), _] = asked(&bench);
    assert_eq!(read, 8 + 5, "both read");
    all_answered(&mut bench, &[before, start]);
    // But for what several stripes bring together.
    let before = [
        write(&mut bench, 8, 8),
        write(&mut bench, STRIPE_BLOCKS, 16),
    ];
    bench.poll();
    let start = write(&mut bench, 2 * STRIPE_BLOCKS, 1);
    bench.poll();
    assert_eq!(asked(&bench)[0], (1, 8), "it is put off");
    all_answered(&mut bench, &[before[0], before[1], start]);
}

#[test]
fn who_waits_in_vain_waits_less_often() {
    let mut bench = Bench::new();
    let mut put_off = Vec::new();
    for round in 0..24 {
        let before = bench.shard.counters().delayed_writes;
        let cookies = delayed(&mut bench, round % 8);
        all_answered(&mut bench, &cookies);
        put_off.push(bench.shard.counters().delayed_writes > before);
    }
    assert!(put_off[0]);
    let often = put_off.iter().filter(|&&was| was).count();
    assert_eq!(often, 8, "each costs two that are not put off");
    // Once it is worth it, always again.
    for round in 0..8 {
        let [before, start] = delayed(&mut bench, round);
        let rest = write(&mut bench, (round + 1) * STRIPE_BLOCKS + 5, 11);
        all_answered(&mut bench, &[before, start, rest]);
    }
    let before = bench.shard.counters().delayed_writes;
    let cookies = delayed(&mut bench, 0);
    all_answered(&mut bench, &cookies);
    assert_eq!(bench.shard.counters().delayed_writes, before + 1);
}

#[test]
fn the_end_of_a_stream_is_put_off_also_while_a_member_is_out() {
    let mut bench = Bench::new();
    bench.exclude(0);
    let before = bench.write_stripe(0);
    let start = write(&mut bench, STRIPE_BLOCKS, 5);
    bench.poll();
    let pieces = asked(&bench)[1];
    assert_eq!(asked(&bench), [NOTHING, (2, 2 * PIECE)], "of the first");
    let rest = write(&mut bench, STRIPE_BLOCKS + 5, 11);
    bench.poll();
    let twice = (2 * pieces.0, 2 * pieces.1);
    assert_eq!(asked(&bench), [NOTHING, twice], "and of all the second");
    all_answered(&mut bench, &[before, start, rest]);
    assert_eq!(bench.shard.counters().joined_writes, 1);
}

#[test]
fn who_is_put_off_and_joins_is_begun_once() {
    let mut bench = Bench::new();
    let first = write(&mut bench, STRIPE_BLOCKS, 3);
    bench.poll();
    let before = bench.write_stripe(0);
    let second = write(&mut bench, STRIPE_BLOCKS + 3, 5);
    let third = write(&mut bench, STRIPE_BLOCKS + 8, 8);
    bench.poll();
    assert_eq!(asked(&bench), [(1, 3), (3, 24)], "the second is put off");
    let reader = bench.is_asked(Operation::Read)[0];
    bench.answer(reader, Operation::Read, Status::Ok);
    bench.poll();
    assert_eq!(
        asked(&bench),
        [NOTHING, (6, 48)],
        "the first takes it along"
    );
    // All is written before the next turn, and the slots are somebody else's.
    for drive in [0, 1, 2, 0, 1, 2] {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
    for cookie in [first, before, second, third] {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    let others = [0, 5, 10].map(|stripe| write(&mut bench, stripe * STRIPE_BLOCKS, 2));
    bench.poll();
    assert_eq!(asked(&bench), [(3, 6), NOTHING]);
    all_answered(&mut bench, &others);
}

#[test]
fn what_is_read_is_dropped_once_though_the_stripe_seems_whole_again() {
    let mut bench = Bench::new();
    // The first of them does not wait for itself: the end of a request that writes stripe 0.
    let first = write(&mut bench, 0, 18);
    let apart = write(&mut bench, STRIPE_BLOCKS + 4, 2);
    let beside = write(&mut bench, STRIPE_BLOCKS + 2, 2);
    bench.poll();
    assert_eq!(asked(&bench), [(1, 4), (3, 24)], "the second is put off");
    let rest = write(&mut bench, STRIPE_BLOCKS + 6, 10);
    bench.poll();
    let mut reads = 0;
    while let Some(&reader) = bench.is_asked(Operation::Read).first() {
        bench.answer(reader, Operation::Read, Status::Ok);
        bench.poll();
        reads += 1;
        assert!(reads < 4, "again and again");
    }
    assert_eq!((reads, bench.shard.counters().promoted_writes), (2, 1));
    all_answered(&mut bench, &[first, apart, beside, rest]);
}

#[test]
fn who_is_put_off_waits_for_nobody_who_came_later() {
    let mut bench = Bench::new();
    let [before, start] = delayed(&mut bench, 0);
    let mut again = vec![before];
    for _ in 0..2 {
        again.push(write(&mut bench, 0, 16));
        bench.poll();
        assert_eq!(asked(&bench), WHOLE, "both wait");
    }
    for drive in 0..3 {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
    bench.poll();
    assert_eq!(asked(&bench), [(1, 5), (3, 24)], "it has begun");
    again.push(start);
    all_answered(&mut bench, &again[1..]);
}

#[test]
fn nobody_is_put_off_while_a_member_is_waited_for() {
    let mut bench = Bench::new();
    let [before, start] = delayed(&mut bench, 0);
    bench.answer(0, Operation::Write, Status::Gone);
    bench.poll();
    assert_eq!(bench.shard.held(), 1, "it is made again later");
    let [(reads, _), _] = asked(&bench);
    assert_eq!(reads, 1, "it has begun");
    assert_eq!(bench.verdict(before), None);
    assert_eq!(bench.verdict(start), None);
}

#[test]
fn nobody_is_begun_when_those_end_whom_it_has_joined() {
    let mut bench = Bench::new();
    // The last waits for the second only.
    let cookies = [(0, 3), (3, 6), (12, 4)].map(|(start, blocks)| write(&mut bench, start, blocks));
    bench.poll();
    let [(reads, _), _] = asked(&bench);
    assert_eq!(bench.shard.tickets.in_use(), 3);
    for _ in 0..reads {
        let drive = bench.is_asked(Operation::Read)[0];
        bench.answer(drive, Operation::Read, Status::Ok);
    }
    bench.poll();
    while let Some(&drive) = bench.is_asked(Operation::Write).first() {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    assert_eq!(bench.shard.counters().joined_writes, 2);
    // Their slots are somebody else's in the next turn.
    let others = [0, 5, 10].map(|stripe| write(&mut bench, stripe * STRIPE_BLOCKS, 2));
    bench.poll();
    assert_eq!(asked(&bench), [(3, 6), NOTHING]);
    all_answered(&mut bench, &others);
}

/// A ticket on lanes 2 to 6 of stripe 1 waits for one that reads; what comes after it writes stripe
/// 0. Then one on lanes 6 to 8 is put off, may take it along when that is over, and is answered.
#[test]
fn nobody_is_put_off_by_what_came_after_one_that_joined_it() {
    let mut bench = Bench::new();
    let reading = write(&mut bench, STRIPE_BLOCKS, 4);
    bench.poll();
    let second = write(&mut bench, STRIPE_BLOCKS + 10, 4);
    let before = bench.write_stripe(0);
    let last = write(&mut bench, STRIPE_BLOCKS + 6, 2);
    bench.poll();
    assert_eq!(asked(&bench), [(1, 4), (3, 24)], "the last is put off");
    let reader = bench.is_asked(Operation::Read)[0];
    bench.answer(reader, Operation::Read, Status::Ok);
    bench.poll();
    while asked(&bench)[1].0 > 3 {
        let request = bench.outside.asked.pop().expect("the newest");
        bench.outside.asked.insert(0, request);
        let drive = bench.is_asked(Operation::Write)[0];
        bench.answer(drive, Operation::Write, Status::Ok);
    }
    bench.poll();
    assert_eq!(bench.verdict(reading), Some(Status::Ok));
    let [(reads, _), written] = asked(&bench);
    assert!(reads > 0, "both have begun");
    assert_eq!(written, (3, 24), "of stripe 0");
    all_answered(&mut bench, &[second, before, last]);
    assert_eq!(bench.shard.counters().joined_writes, 1);
}

#[test]
fn writes_to_parts_of_a_block_go_one_after_the_other() {
    let mut bench = Bench::new();
    let parts = [0, 128].map(|offset| {
        bench.part = block::Part { offset, bytes: 128 };
        write(&mut bench, 0, 1)
    });
    bench.poll();
    let mut answered = 0;
    while bench.verdict(parts[0]).is_none() {
        let mut places: Vec<(usize, u64)> = Vec::new();
        for request in &bench.outside.asked {
            places.push((request.drive.at(), request.offset));
        }
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count, "both are under way");
        let next = bench.outside.asked[0];
        bench.answer(next.drive.at(), next.operation, Status::Ok);
        bench.poll();
        answered += 1;
    }
    assert!(answered >= 4, "data and parity are read and written");
    assert_eq!(bench.verdict(parts[1]), None);
    assert!(!bench.is_asked(Operation::Read).is_empty());
    bench.answer_all();
    assert_eq!(bench.verdict(parts[1]), Some(Status::Ok));
}

#[test]
fn write_requests_are_counted_by_how_they_lie_in_stripes() {
    let lie = |start: u64, blocks: u64| {
        let mut bench = Bench::new();
        let cookie = write(&mut bench, start, u32::try_from(blocks).expect("few"));
        all_answered(&mut bench, &[cookie]);
        let read = bench.ask(Operation::Read, start, 2);
        all_answered(&mut bench, &[read]);
        let counters = bench.shard.counters();
        [counters.whole_requests, counters.split_requests]
    };
    let (stripe, chunk) = (STRIPE_BLOCKS, STRIPE_BLOCKS / 2);
    for (start, blocks) in [(0, stripe), (3 * stripe, 2 * stripe)] {
        assert_eq!(lie(start, blocks), [1, 0], "{start}+{blocks}");
    }
    for (start, blocks) in [(stripe - 1, 2), (0, stripe + 1), (1, 3 * stripe)] {
        assert_eq!(lie(start, blocks), [0, 1], "{start}+{blocks}");
    }
    for (start, blocks) in [(0, 1), (stripe - 1, 1), (chunk - 1, 2), (1, stripe - 1)] {
        assert_eq!(lie(start, blocks), [0, 0], "{start}+{blocks}");
    }
}
