//! A config record with a right checksum and any content.
#![no_main]

use array::format::ArrayConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = ArrayConfig::decode(data);
    let record = fuzz::record(*b"GBCONFIG", data, data.len() + 8);
    let Ok((member, found)) = ArrayConfig::decode(&record) else {
        return;
    };
    assert_eq!(found.check(), Ok(()));
    let _ = found.next(1);
    let mut area = vec![0; 64 << 10];
    let mut again = found;
    again.features.compat = 0;
    if let Ok(bytes) = again.encode_into(member, &mut area) {
        assert_eq!(ArrayConfig::decode(&area[..bytes]), Ok((member, again)));
    }
});
