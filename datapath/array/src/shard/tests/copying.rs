//! Whole rows of a guest that promises nothing: copied once, while their parity is computed. And
//! who comes first to the buffers for that.

use block::{Operation, Status};
use units::RoleSet;

use super::{Bench, STRIPE_BLOCKS, Shape, member_of};
use crate::buffers::TicketBuffers;
use crate::io::MemberRequest;

/// Bytes of a chunk.
const CHUNK: usize = 4096;

/// What the drive of a role of stripe 0 is asked to write.
fn written(bench: &Bench, role: u8) -> Vec<u8> {
    let member = member_of(bench, 0, role);
    let mut asked = bench.outside.asked.iter();
    let is_its = |request: &&MemberRequest| request.drive.at() == member;
    Bench::content(asked.find(is_its).expect("it is written"))
}

#[test]
fn whole_rows_are_copied_once_in_whatever_pieces_they_are() {
    let content: Vec<u8> = (0..=250).cycle().take(2 * CHUNK).collect();
    let (zero, one) = content.split_at(CHUNK);
    let parity: Vec<u8> = zero.iter().zip(one).map(|(a, b)| a ^ b).collect();
    for pieces in [
        vec![],
        vec![512],
        vec![CHUNK],
        vec![1536, 512, 2048],
        // No whole sectors.
        vec![1000],
        vec![513, 511],
    ] {
        let mut bench = Bench::new();
        bench.pieces.clone_from(&pieces);
        bench.store(&content);
        let write = bench.write_stripe(0);
        // The guest changes its mind too late.
        bench.fill(9);
        assert_eq!(written(&bench, 0), zero, "{pieces:?}");
        assert_eq!(written(&bench, 1), one, "{pieces:?}");
        assert_eq!(written(&bench, 2), parity, "{pieces:?}");
        assert_eq!(
            bench.shard.counters().bytes_copied,
            STRIPE_BLOCKS * 512,
            "{pieces:?}"
        );
        bench.answer_all();
        assert!(bench.verdict(write).expect("it is answered").is_ok());
    }
}

#[test]
fn whoever_needs_few_buffers_waits_behind_who_waits_for_many() {
    for others in [false, true] {
        let mut bench = Bench::shaped(Shape {
            members: 8,
            ..Shape::default()
        });
        let narrow = [(); 2].map(|()| bench.ask(Operation::Write, 0, 1));
        bench.poll();
        assert_eq!(
            bench.outside.asked.len(),
            2,
            "the second waits for the first"
        );
        // Six are left when the first has ended: enough for a block, and too few for a stripe.
        let mut taken = TicketBuffers::default();
        let (old, new) = (RoleSet::range(0, 64), RoleSet::range(0, 58));
        assert!(bench.shard.buffers.acquire(&mut taken, 512, old, new));
        let wide = others.then(|| bench.ask(Operation::Write, 7 * 8 * 7, 8 * 7));
        bench.poll();
        assert_eq!(bench.outside.asked.len(), 2, "there are too few buffers");
        while bench.verdict(narrow[0]).is_none() {
            let next = bench.outside.asked[0];
            bench.answer(next.drive.at(), next.operation, Status::Ok);
            bench.poll();
        }
        assert_eq!(bench.outside.asked.is_empty(), others);
        bench.shard.buffers.release(&mut taken);
        bench.answer_all();
        for cookie in narrow.into_iter().chain(wide) {
            assert_eq!(bench.verdict(cookie), Some(Status::Ok));
        }
    }
}
