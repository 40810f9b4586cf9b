//! Translation against a byte-by-byte answer, and foreign numbers.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::*;
use crate::map::{memory_file, page_bytes};
use units::bytes_u64;

/// Byte `i` is `i % 251`.
fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

fn file(length: usize) -> File {
    let file = memory_file(length, 0).unwrap();
    file.write_all_at(&pattern(length), 0).unwrap();
    file
}

fn mapping(length: usize) -> Arc<Mapping> {
    Mapping::without_file(&pattern(length))
}

fn region(guest_base: u64, length: u64, mapping: &Arc<Mapping>, offset: u64) -> Region {
    Region {
        guest_base,
        front_end_base: guest_base + (1 << 40),
        length,
        mapping: Arc::clone(mapping),
        offset,
    }
}

fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        let mut part = vec![0; segment.len()];
        segment.copy_to_slice(&mut part);
        bytes.extend(part);
    }
    bytes
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn a_mapping_begins_at_any_byte_of_its_file() {
    let page = bytes_u64(page_bytes());
    let file = file(page_bytes() * 3);
    for offset in [0, 1, 511, page - 1, page, page + 1, 2 * page + 7] {
        for length in [1, 250, 3 * page - offset] {
            let mapping = Mapping::new(file.as_fd(), offset, length).unwrap();
            assert_eq!(mapping.len(), length);
            let mut expected = vec![0; bytes_usize(length)];
            file.read_exact_at(&mut expected, offset).unwrap();
            assert_eq!(
                bytes_of(&[mapping.segment()]),
                expected,
                "{offset}+{length}"
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn what_is_written_to_a_mapping_is_in_the_file() {
    let file = file(10_000);
    let mapping = Mapping::new(file.as_fd(), 5_000, 100).unwrap();
    mapping.segment().part(10, 3).copy_from_slice(b"abc");
    let mut got = [0; 3];
    file.read_exact_at(&mut got, 5_010).unwrap();
    assert_eq!(&got, b"abc");
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no memory files")]
fn absurd_mappings_are_refused() {
    let file = file(8192);
    for (offset, length) in [
        (0, 0),
        (0, 8193),
        (8192, 1),
        (4096, 4097),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1 << 63, 1 << 63),
        (0, 1 << 63),
        (1, u64::MAX - 1),
    ] {
        let refused = Mapping::new(file.as_fd(), offset, length);
        let kind = refused.map(|_| ()).unwrap_err().kind();
        assert_eq!(kind, io_invalid(), "{offset}+{length}");
    }
}

fn io_invalid() -> std::io::ErrorKind {
    std::io::ErrorKind::InvalidInput
}

/// Three regions: two that touch, a hole, and one at another place of the file; small enough that
/// every address and length can be asked.
fn small_table() -> Arc<RegionTable> {
    let mapping = mapping(300);
    let regions = vec![
        region(160, 10, &mapping, 290),
        region(100, 20, &mapping, 200),
        region(120, 30, &mapping, 3),
    ];
    RegionTable::new(regions).unwrap()
}

/// Lengths asked at each address; Miri is slow.
const LENGTHS: u64 = if cfg!(miri) { 4 } else { 80 };

/// Which byte of the mapping is at a guest address of [`small_table`].
fn small_byte(address: u64) -> Option<u8> {
    let at = match address {
        100..120 => address - 100 + 200,
        120..150 => address - 120 + 3,
        160..170 => address - 160 + 290,
        _ => return None,
    };
    Some(u8::try_from(at % 251).unwrap())
}

#[test]
fn every_address_and_length_is_translated_byte_by_byte() {
    let table = small_table();
    for hint in [0, 1, 2, 3, usize::MAX] {
        for address in 95..175 {
            for length in 0..LENGTHS {
                let expected: Option<Vec<u8>> =
                    (address..address + length).map(small_byte).collect();
                let mut last = hint;
                let mut out = vec![Segment::EMPTY];
                let answer = table.translate(address, length, &mut last, &mut out);
                assert_eq!(out.remove(0), Segment::EMPTY);
                match expected {
                    Some(expected) => {
                        assert_eq!(answer, Ok(()));
                        assert_eq!(bytes_of(&out), expected, "{address}+{length}");
                    }
                    None => {
                        assert_eq!(answer, Err(BadAddress { address, length }));
                        assert!(out.is_empty(), "{address}+{length}");
                    }
                }
            }
        }
    }
}

#[test]
fn one_segment_comes_from_one_region_only() {
    let table = small_table();
    let one_region = |from: u64, length: u64| {
        [(100, 120), (120, 150), (160, 170)]
            .iter()
            .any(|(first, end)| (*first..*end).contains(&from) && from + length <= *end)
    };
    for address in 95..175 {
        for length in 0..LENGTHS {
            let expected: Option<Vec<u8>> = one_region(address, length)
                .then(|| (address..address + length).map(small_byte).collect())
                .flatten();
            let got = table.guest(address, length).ok().map(|s| bytes_of(&[s]));
            assert_eq!(got, expected, "guest {address}+{length}");
            let there = address + (1 << 40);
            let got = table.front_end(there, length).ok().map(|s| bytes_of(&[s]));
            assert_eq!(got, expected, "front-end {address}+{length}");
            assert!(table.front_end(address, length).is_err());
        }
    }
}

#[test]
fn the_hint_remembers_where_the_last_address_was() {
    let table = small_table();
    let mut last = 0;
    for (address, region) in [(165, 2), (105, 0), (125, 1), (125, 1)] {
        table
            .translate(address, 1, &mut last, &mut Vec::new())
            .unwrap();
        assert_eq!(last, region);
    }
}

#[test]
fn absurd_addresses_are_refused() {
    let mapping = mapping(4096);
    // The last region ends at the last address there is.
    let top = u64::MAX - 4095;
    let low = region(0, 4096, &mapping, 0);
    let high = Region {
        guest_base: top,
        front_end_base: top,
        length: 4096,
        mapping,
        offset: 0,
    };
    let table = RegionTable::new(vec![low, high]).unwrap();
    let refused = |address: u64, length: u64| {
        table
            .translate(address, length, &mut 0, &mut Vec::new())
            .is_err()
            && table.guest(address, length).is_err()
            && table.front_end(address, length).is_err()
    };
    assert!(!refused(top, 4096));
    assert!(!refused(u64::MAX, 1));
    for (address, length) in [
        (u64::MAX, 2),
        (u64::MAX, u64::MAX),
        (top, 4097),
        (top + 1, 4096),
        (0, u64::MAX),
        (4095, 2),
        (1 << 63, 1 << 63),
    ] {
        assert!(refused(address, length), "{address:#x}+{length:#x}");
    }
}

#[test]
fn wrong_regions_make_no_table() {
    let mapping = mapping(4096);
    let make = |regions: &[Region]| RegionTable::new(regions.to_vec()).map(|_| ());
    let good = region(4096, 4096, &mapping, 0);
    assert_eq!(make(&[]), Ok(()));
    assert_eq!(make(std::slice::from_ref(&good)), Ok(()));

    let guest_base = 4096;
    assert_eq!(
        make(&[region(guest_base, 0, &mapping, 0)]),
        Err(RegionError::Empty { guest_base })
    );
    for (length, offset) in [
        (4097, 0),
        (4096, 1),
        (1, 4096),
        (1, u64::MAX),
        (u64::MAX >> 1, 0),
    ] {
        assert_eq!(
            make(&[region(guest_base, length, &mapping, offset)]),
            Err(RegionError::OutsideMapping { guest_base }),
            "{length} at {offset}"
        );
    }
    for (guest_base, front_end_base) in [(u64::MAX - 4094, 0), (0, u64::MAX - 4094)] {
        let region = Region {
            guest_base,
            front_end_base,
            ..good.clone()
        };
        assert_eq!(make(&[region]), Err(RegionError::TooLong { guest_base }));
    }
    for other in [4096 - 100 + 1, 4096, 4097, 8191] {
        let regions = [good.clone(), region(other, 100, &mapping, 0)];
        let (lower, upper) = (other.min(4096), other.max(4096));
        assert_eq!(make(&regions), Err(RegionError::Overlap { lower, upper }));
    }
    for other in [4096 - 100, 8192] {
        assert_eq!(
            make(&[good.clone(), region(other, 100, &mapping, 0)]),
            Ok(())
        );
    }
    let many = |count: u64| -> Vec<Region> {
        (0..count)
            .map(|number| region(number * 4096, 4096, &mapping, 0))
            .collect()
    };
    assert_eq!(make(&many(512)), Ok(()));
    assert_eq!(make(&many(513)), Err(RegionError::TooMany { regions: 513 }));
}

#[test]
fn every_table_has_a_generation_of_its_own() {
    let first = RegionTable::new(Vec::new()).unwrap();
    let second = RegionTable::new(Vec::new()).unwrap();
    assert!(first.generation() < second.generation());
}
