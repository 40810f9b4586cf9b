//! A superblock with a right checksum and any content.
#![no_main]

use array::format::{SUPERBLOCK_BYTES, Superblock};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Superblock::decode(data);
    let record = fuzz::record(*b"GARBOARD", data, SUPERBLOCK_BYTES);
    let Ok(found) = Superblock::decode(&record) else {
        return;
    };
    // Whatever is believed can be used and written again.
    let _ = (
        found.regions().count(),
        found.extents().count(),
        found.log().slots(),
    );
    let _ = found.geometry.blocks();
    let features = array::format::Features {
        compat: 0,
        ..found.features
    };
    let mut again = found;
    again.features = features;
    assert_eq!(Superblock::decode(&again.encode()), Ok(again));
});
