//! Wrong bytes are seen, and a single wrong chunk is found.

use memory::Segment;
use units::{Role, RoleSet};

use super::{Chance, Chunks};
use crate::{Code, Decoder, Finding, is_zero, xor_into};

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

/// All that a stripe's chunks say when those in `read` are read.
struct Read {
    decoder: Decoder,
    sources: Vec<Segment>,
    stored: Vec<Segment>,
}

impl Read {
    fn new(code: &Code, segments: &[Segment], read: RoleSet) -> Read {
        let targets = read.without(read.lowest(code.data()));
        let decoder = code.decoder(read, targets).expect("k are read");
        assert_eq!(decoder.sources().union(targets), read);
        let of = |roles: RoleSet| roles.iter().map(|role| segments[role.at()]).collect();
        Read {
            sources: of(decoder.sources()),
            stored: of(targets),
            decoder,
        }
    }

    fn locate(&self) -> Finding {
        let finding = self.decoder.locate(&self.sources, &self.stored);
        let is_consistent = self.decoder.is_consistent(&self.sources, &self.stored);
        assert_eq!(is_consistent, finding == Finding::Consistent);
        finding
    }
}

fn wrong(roles: &[usize]) -> Finding {
    Finding::Wrong(roles.iter().map(|&role| Role::from_at(role)).collect())
}

/// Every set of at most `most` roles of `n`.
fn subsets(n: usize, most: usize) -> Vec<Vec<usize>> {
    let bits = |mask: &u32| (0..n).filter(|role| mask >> role & 1 == 1).collect();
    let all = (0..1u32 << n).map(|mask| bits(&mask));
    all.filter(|set: &Vec<usize>| set.len() <= most).collect()
}

#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn a_single_wrong_chunk_is_located_whatever_the_difference() {
    for (data, parity) in [(1, 2), (4, 2), (8, 3), (20, 4), (32, 32)] {
        let (code, roles) = (Code::new(data, parity).expect("a code"), data + parity);
        let (_chunks, segments) = stripe(&code, 5);
        let read = Read::new(&code, &segments, RoleSet::range(0, data + parity));
        assert_eq!(read.locate(), Finding::Consistent);
        for (role, segment) in segments.iter().enumerate().step_by(1 + roles / 12) {
            for difference in (1..=255).step_by(1 + roles * roles / 20) {
                let at = usize::from(difference) * 4;
                flip(*segment, at, difference);
                assert_eq!(read.locate(), wrong(&[role]));
                flip(*segment, at, difference);
            }
            // The last byte, and many bytes.
            for at in (0..LENGTH).rev().step_by(100) {
                flip(*segment, at, 0x41);
            }
            assert_eq!(read.locate(), wrong(&[role]));
            for at in (0..LENGTH).rev().step_by(100) {
                flip(*segment, at, 0x41);
            }
        }
        assert_eq!(read.locate(), Finding::Consistent);
    }
}

/// Of every small code, with every set of chunks lost, every set of wrong chunks: located when
/// there are two checks for each, and never taken for others as long as the head of `check.rs`
/// says so.
#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn wrong_chunks_are_located_or_seen_as_far_as_theory_goes_whatever_is_lost() {
    let shapes = [
        (1, 2),
        (1, 4),
        (2, 1),
        (3, 1),
        (2, 2),
        (3, 2),
        (4, 2),
        (2, 3),
        (3, 3),
        (2, 4),
    ];
    let mut chance = Chance::new(11);
    for (data, parity) in shapes {
        let code = Code::new(data, parity).expect("a code");
        let (_chunks, segments) = stripe(&code, 6);
        let roles = data + parity;
        for lost in subsets(roles, parity - 1) {
            let lost: RoleSet = lost.into_iter().map(Role::from_at).collect();
            let read_roles = RoleSet::range(0, roles).without(lost);
            let read = Read::new(&code, &segments, read_roles);
            let checks = read_roles.len() - data;
            for errors in subsets(roles, checks) {
                let set: RoleSet = errors.iter().map(|&role| Role::from_at(role)).collect();
                if set.meets(lost) {
                    continue;
                }
                let at = chance.below(LENGTH);
                let differences: Vec<u8> = errors
                    .iter()
                    .map(|_| 1 + chance.next().to_le_bytes()[0] % 255)
                    .collect();
                let change = || {
                    for (&role, &difference) in errors.iter().zip(&differences) {
                        flip(segments[role], at, difference);
                    }
                };
                change();
                let (count, finding) = (errors.len(), read.locate());
                if count == 0 {
                    assert_eq!(finding, Finding::Consistent);
                } else if 2 * count <= checks {
                    assert_eq!(finding, wrong(&errors), "{data}+{parity}, {lost:?} lost");
                } else {
                    // As many as there are checks are always seen.
                    assert_ne!(finding, Finding::Consistent);
                    if count + checks / 2 <= checks {
                        assert_eq!(finding, Finding::Unlocated);
                    }
                }
                change();
            }
        }
    }
}

/// Every difference of every pair of chunks: an RAID 6 stripe cannot tell some of them from one
/// wrong chunk, which is then never one of the pair. This is what nobody can do better without
/// checksums; where more than a byte differs it ends.
#[test]
#[cfg_attr(miri, ignore = "too many for Miri")]
fn two_wrong_chunks_of_two_parities_look_like_a_third_at_times() {
    let code = Code::new(4, 2).expect("a code");
    let mut chunks = Chunks::new(6, 2, 5);
    let segments = chunks.segments();
    let read = Read::new(&code, &segments, RoleSet::range(0, 6));
    let (mut seen, mut mistaken) = (0_u32, 0_u32);
    for pair in subsets(6, 2).into_iter().filter(|set| set.len() == 2) {
        for difference in 1..=255 {
            flip(segments[pair[0]], 0, 1);
            flip(segments[pair[1]], 0, difference);
            match read.locate() {
                Finding::Consistent => panic!("two wrong chunks are always seen"),
                Finding::Wrong(roles) => {
                    mistaken += 1;
                    let pair: RoleSet = pair.iter().map(|&role| Role::from_at(role)).collect();
                    assert!(roles.len() == 1 && !roles.meets(pair));
                }
                Finding::Unlocated => seen += 1,
            }
            // A second byte that differs another way.
            flip(segments[pair[0]], 1, 1);
            flip(segments[pair[1]], 1, difference ^ 0x1d | 1);
            let second = read.locate();
            flip(segments[pair[0]], 1, 1);
            flip(segments[pair[1]], 1, difference ^ 0x1d | 1);
            assert_ne!(second, Finding::Consistent);
            flip(segments[pair[0]], 0, 1);
            flip(segments[pair[1]], 0, difference);
        }
    }
    // Of 15 pairs with 255 differences each: every third chunk explains one difference.
    assert_eq!((mistaken, seen + mistaken), (60, 15 * 255));
}

#[test]
fn two_wrong_chunks_are_located_by_four_checks_at_different_bytes_too() {
    let code = Code::new(6, 4).expect("a code");
    let (_chunks, segments) = stripe(&code, 8);
    let read = Read::new(&code, &segments, RoleSet::range(0, 10));
    for (one, other) in [(1, 7), (0, 5), (6, 9), (2, 3)] {
        flip(segments[one], 3, 1);
        flip(segments[other], 1000, 9);
        assert_eq!(read.locate(), wrong(&[one, other]));
        flip(segments[one], 3, 1);
        flip(segments[other], 1000, 9);
    }
}

#[test]
fn chunks_wrong_at_different_bytes_are_not_one() {
    let code = Code::new(6, 2).expect("a code");
    let (_chunks, segments) = stripe(&code, 8);
    let read = Read::new(&code, &segments, RoleSet::range(0, 8));
    flip(segments[1], 3, 1);
    flip(segments[7], 1000, 1);
    assert_eq!(read.locate(), Finding::Unlocated);
}

#[test]
fn of_copies_the_most_are_right_and_a_tie_says_nothing() {
    let code = Code::new(1, 6).expect("a code");
    let (_chunks, segments) = stripe(&code, 9);
    let read = Read::new(&code, &segments, RoleSet::range(0, 7));
    for role in [0, 3, 6] {
        flip(segments[role], 10 * role, 4);
    }
    assert_eq!(read.locate(), wrong(&[0, 3, 6]));
    // With one lost, three of six are not the most.
    let tie = Read::new(&code, &segments, RoleSet::range(0, 6));
    flip(segments[1], 0, 2);
    assert_eq!(tie.locate(), Finding::Unlocated);
    // Two copies.
    let two = Read::new(&code, &segments, RoleSet::range(4, 6));
    assert_eq!(two.locate(), Finding::Consistent);
    flip(segments[4], 7, 1);
    assert_eq!(two.locate(), Finding::Unlocated);
}

#[test]
fn one_parity_sees_but_does_not_locate_and_none_sees_nothing() {
    let code = Code::new(3, 1).expect("a code");
    let (_chunks, segments) = stripe(&code, 9);
    let read = Read::new(&code, &segments, RoleSet::range(0, 4));
    flip(segments[1], LENGTH - 1, 1);
    assert_eq!(read.locate(), Finding::Unlocated);
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
