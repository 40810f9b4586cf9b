//! A block of the region map with a right checksum and any content.
#![no_main]

use array::format::{REGION_BLOCK_BYTES, RegionBlock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = RegionBlock::decode(data);
    let record = fuzz::record(*b"GBREGION", data, REGION_BLOCK_BYTES);
    let Ok(found) = RegionBlock::decode(&record) else {
        return;
    };
    let mut bytes = vec![0; REGION_BLOCK_BYTES];
    let head = (found.array, found.number, found.sequence);
    RegionBlock::encode_into(head, |at| found.entries[at], &mut bytes);
    assert_eq!(RegionBlock::decode(&bytes), Ok(found));
});
