//! Writes that were logged when the hold was given up, and are carried out from copies.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Operation, Part, Status};

use super::{Bench, STRIPE_BLOCKS, Shape, member_of};
use crate::format::WriteHole;
use crate::map::MapState;

const BLOCK: usize = 512;
/// The member that holds data of stripe 0 and goes.
const GONE: u8 = 0;

/// What block `at` of a request holds, in the tests here.
fn pattern(at: u32) -> u8 {
    u8::try_from(at % 251).expect("small") + 1
}

/// An array without the parity of stripe 0, whose guest writes `blocks` blocks from `start` on;
/// they are logged, but for what the member should have that goes, and given up. The request.
fn given_up(shape: Shape, part: Part, (start, blocks): (u64, u32)) -> (Bench, u64) {
    let mut bench = Bench::shaped(shape);
    bench.install(|map| map.write_hole = WriteHole::Strict);
    bench.exclude(member_of(&bench, 0, 2));
    let pattern: Vec<u8> = (0..blocks).flat_map(|at| [pattern(at); BLOCK]).collect();
    bench.store(&pattern);
    bench.part = part;
    let write = bench.ask(Operation::Write, start, blocks);
    bench.poll();
    let gone = member_of(&bench, 0, GONE);
    while bench.is_asked(Operation::Read).contains(&gone) {
        bench.answer(gone, Operation::Read, Status::Ok);
    }
    bench.answer_all_but(&[gone]);
    bench.install(|map| {
        map.held[gone] = true;
        map.given_up = true;
    });
    for _ in 0..4 {
        while bench.is_asked(Operation::Write).contains(&gone) {
            bench.answer(gone, Operation::Write, Status::Gone);
        }
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    (bench, write)
}

/// Bytes of memory that its tickets have for copies.
fn kept(bench: &Bench) -> usize {
    let tickets = bench.shard.tickets.used().into_iter();
    let kept = tickets.filter_map(|slot| bench.shard.tickets[slot].kept.as_ref());
    kept.map(|kept| kept.pool.len() * kept.pool.bytes_each())
        .sum()
}

/// The memory is the guest's again, and all members are back. What is written then to each block of
/// the data of stripe 0, by its place in the stripe.
fn carried_out(bench: &mut Bench) -> BTreeMap<u64, Vec<u8>> {
    let (gone, parity) = (member_of(bench, 0, GONE), member_of(bench, 0, 2));
    bench.part = Part::WHOLE;
    bench.fill(0xFF);
    bench.install(|map| {
        map.held[gone] = false;
        map.given_up = false;
        map.released[gone] += 1;
        // What is logged is not all that is to be written now.
        map.members[parity].state = MapState::InSync;
    });
    bench.pass(Duration::from_secs(1));
    let chunk = u64::from(bench.shard.geometry().chunk_blocks());
    let mut places = BTreeMap::new();
    while !bench.outside.asked.is_empty() {
        for request in std::mem::take(&mut bench.outside.asked) {
            let role = (0..2).find(|&role| member_of(bench, 0, role) == request.drive.at());
            let area = bench.shard.map.members[request.drive.at()].data_offset;
            let block = request.offset.checked_sub(area).map(|bytes| bytes / 512);
            let place = role.zip(block.filter(|&block| block < chunk));
            let writes = request.operation == Operation::Write;
            if let Some((role, first)) = place.filter(|_| writes) {
                let content = Bench::content(&request);
                let first = u64::from(role) * chunk + first;
                places.extend((first..).zip(content.chunks(BLOCK).map(<[u8]>::to_vec)));
            }
            bench.outside.room += 1;
            let cookie = request.cookie;
            bench
                .shard
                .drive_done(cookie, Status::Ok, &mut bench.outside);
        }
        bench.pass(Duration::from_millis(1));
    }
    assert!(bench.shard.is_idle());
    places
}

#[test]
fn each_ticket_keeps_its_own_bytes_of_the_request() {
    let blocks = 4 * u32::try_from(STRIPE_BLOCKS).expect("few");
    let (bench, _) = given_up(Shape::default(), Part::WHOLE, (0, blocks));
    assert!(kept(&bench) > 0, "some are logged");
    assert!(kept(&bench) <= 4 * 16 * BLOCK, "{}", kept(&bench));
}

#[test]
fn cells_of_large_chunks_keep_what_is_theirs_and_know_where_it_belongs() {
    let shape = Shape {
        chunk_bytes: 128 << 10,
        ..Shape::default()
    };
    for (start, blocks) in [
        (0, 512),
        (200, 312),
        (3, 400),
        (130, 300),
        (255, 2),
        (17, 1),
    ] {
        let (mut bench, _) = given_up(shape, Part::WHOLE, (start, blocks));
        let whole = 4096 / BLOCK;
        let most = usize::try_from(blocks)
            .expect("few")
            .next_multiple_of(whole)
            + whole;
        assert!(kept(&bench) <= most * BLOCK, "{} of {blocks}", kept(&bench));
        let written = carried_out(&mut bench);
        for at in 0..blocks {
            let there = &written[&(start + u64::from(at))];
            assert_eq!(there[..], [pattern(at); BLOCK], "{at} from {start}");
        }
        assert_eq!(written.len(), usize::try_from(blocks).expect("few"));
    }
}

#[test]
fn a_part_of_a_block_is_kept_as_such() {
    let part = Part {
        offset: 100,
        bytes: 200,
    };
    let (mut bench, _) = given_up(Shape::default(), part, (3, 1));
    assert_eq!(kept(&bench), 4096, "one page");
    let written = carried_out(&mut bench);
    assert_eq!(written[&3][100..300], [pattern(0); 200]);
}
