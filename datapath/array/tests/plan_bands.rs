//! Every range of every stripe of up to eight data chunks, cut into bands.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is red")]

use std::collections::BTreeSet;

use array::bands;
use units::RoleSet;

/// The blocks of a stripe that lanes × roles cover.
fn covered(chunk_blocks: u32, lanes: std::ops::Range<u32>, roles: RoleSet) -> BTreeSet<u32> {
    let chunk = |lane| {
        roles
            .iter()
            .map(move |role| u32::from(role.0) * chunk_blocks + lane)
    };
    lanes.flat_map(chunk).collect()
}

#[test]
fn the_bands_of_a_range_are_exactly_the_range() {
    let mut counts = BTreeSet::new();
    for (chunk_blocks, k) in (1..=5).flat_map(|chunk| (1..=8).map(move |k| (chunk, k))) {
        let stripe_blocks = chunk_blocks * u32::try_from(k).unwrap();
        for start in 0..stripe_blocks {
            for end in start + 1..=stripe_blocks {
                let context = format!("{start}..{end} of {k} chunks of {chunk_blocks}");
                let bands = bands(chunk_blocks, k, start, end - start);
                counts.insert(bands.as_slice().len());
                let mut blocks = BTreeSet::new();
                let mut lane = 0;
                for band in &bands {
                    assert!(
                        band.lanes.start >= lane && !band.lanes.is_empty(),
                        "{context}"
                    );
                    assert!(band.lanes.end <= chunk_blocks, "{context}");
                    assert!(RoleSet::range(0, k).covers(band.written), "{context}");
                    blocks.extend(covered(chunk_blocks, band.lanes.clone(), band.written));
                    lane = band.lanes.end;
                }
                assert_eq!(blocks, (start..end).collect(), "{context}");
            }
        }
    }
    assert_eq!(
        counts,
        BTreeSet::from([1, 2, 3]),
        "every number of bands was seen"
    );
}

#[test]
fn the_largest_stripe_is_cut_without_overflow() {
    let whole = bands(2048, 64, 0, 64 * 2048);
    assert_eq!(whole.as_slice().len(), 1);
    assert_eq!(whole.as_slice()[0].lanes, 0..2048);
    assert_eq!(whole.as_slice()[0].written, RoleSet::range(0, 64));
}

#[test]
#[should_panic(expected = "blocks 7+2 of a stripe of 8")]
fn a_range_beyond_the_stripe_is_a_programmers_error() {
    let _ = bands(4, 2, 7, 2);
}
