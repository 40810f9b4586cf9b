//! Whole rows of a guest that promises nothing: copied once, while their parity is computed.

use super::{Bench, STRIPE_BLOCKS, member_of};
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
