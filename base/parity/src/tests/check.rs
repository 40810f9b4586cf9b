//! Wrong bytes are seen, and a single wrong chunk is found.

use memory::Segment;
use units::Role;

use super::{Chance, Chunks};
use crate::{Code, Finding, is_zero, xor_into};

const LENGTH: usize = 1100;

/// A consistent stripe.
fn stripe(code: &Code, seed: u64) -> (Chunks, Vec<Segment>) {
    let mut chunks = Chunks::new(code.data() + code.parity(), LENGTH, 5);
    chunks.randomize(&mut Chance::new(seed));
    let segments = chunks.segments();
    let (data, parity) = segments.split_at(code.data());
    code.generate(data, parity);
    (chunks, segments)
}

fn flip(segment: Segment, at: usize, difference: u8) {
    let mut byte = [0];
    segment.part(at, 1).copy_to_slice(&mut byte);
    segment.part(at, 1).fill(byte[0] ^ difference);
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn a_single_wrong_chunk_is_located_whatever_the_difference() {
    for (data, parity) in [(1, 2), (4, 2), (10, 2), (10, 3), (20, 4), (32, 32)] {
        let code = Code::new(data, parity).expect("a code");
        let (_chunks, segments) = stripe(&code, 5);
        let (d, p) = segments.split_at(data);
        assert_eq!(code.locate(d, p), Finding::Consistent);
        assert!(code.is_consistent(d, p));
        for (role, segment) in segments.iter().enumerate() {
            for difference in (1..=255).step_by(if parity == 2 { 1 } else { 17 }) {
                let at = usize::from(difference) * 4;
                flip(*segment, at, difference);
                assert!(!code.is_consistent(d, p));
                assert_eq!(code.locate(d, p), Finding::One(Role::from_at(role)));
                flip(*segment, at, difference);
            }
            // The last byte, and many bytes.
            for at in (0..LENGTH).rev().step_by(100) {
                flip(*segment, at, 0x41);
            }
            assert_eq!(code.locate(d, p), Finding::One(Role::from_at(role)));
            for at in (0..LENGTH).rev().step_by(100) {
                flip(*segment, at, 0x41);
            }
        }
        assert!(code.is_consistent(d, p));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn two_wrong_chunks_are_never_taken_for_one_with_three_parities() {
    let code = Code::new(6, 3).expect("a code");
    let (_chunks, segments) = stripe(&code, 6);
    let (d, p) = segments.split_at(6);
    let mut chance = Chance::new(7);
    for _ in 0..4000 {
        let pair = chance.subset(2, 9);
        let at = chance.below(LENGTH);
        let differences = [0, 1].map(|_| 1 + chance.next().to_le_bytes()[0] % 255);
        for (role, difference) in pair.iter().zip(differences) {
            flip(segments[*role], at, difference);
        }
        assert!(!code.is_consistent(d, p));
        assert_eq!(code.locate(d, p), Finding::Unlocated);
        for (role, difference) in pair.iter().zip(differences) {
            flip(segments[*role], at, difference);
        }
    }
}

#[test]
fn chunks_wrong_at_different_bytes_are_not_one() {
    let code = Code::new(6, 2).expect("a code");
    let (_chunks, segments) = stripe(&code, 8);
    let (d, p) = segments.split_at(6);
    flip(segments[1], 3, 1);
    flip(segments[7], 1000, 1);
    assert_eq!(code.locate(d, p), Finding::Unlocated);
}

#[test]
fn one_parity_sees_but_does_not_locate_and_none_sees_nothing() {
    let code = Code::new(3, 1).expect("a code");
    let (_chunks, segments) = stripe(&code, 9);
    let (d, p) = segments.split_at(3);
    flip(segments[1], LENGTH - 1, 1);
    assert!(!code.is_consistent(d, p));
    assert_eq!(code.locate(d, p), Finding::Unlocated);

    let none = Code::new(3, 0).expect("a code");
    assert!(none.is_consistent(d, &[]));
    assert_eq!(none.locate(d, &[]), Finding::Consistent);
}

#[test]
fn zero_is_zero_at_every_length_and_a_bit_anywhere_is_not() {
    for length in [0, 1, 7, 63, 64, 65, 200] {
        let mut chunk = Chunks::new(2, length, 9);
        let segment = chunk.segments()[1];
        assert!(is_zero(segment));
        for at in 0..length {
            flip(segment, at, 0x80);
            assert!(!is_zero(segment), "byte {at} of {length}");
            flip(segment, at, 0x80);
        }
    }
}

#[test]
fn a_sum_is_added_in_place() {
    for length in [0, 1, 31, 512, 1000] {
        let mut chunks = Chunks::new(2, length, 13);
        chunks.randomize(&mut Chance::new(10));
        let both = [0, 1].map(|index| chunks.get(index).to_vec());
        let segments = chunks.segments();
        xor_into(segments[0], segments[1]);
        let sum: Vec<u8> = both[0].iter().zip(&both[1]).map(|(a, b)| a ^ b).collect();
        assert_eq!(chunks.get(0), sum);
        assert_eq!(chunks.get(1), both[1]);
        chunks.assert_guards();
    }
}
