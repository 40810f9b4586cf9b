//! What several targets need: records whose checksum is right, since a fuzzer finds none by itself.
#![forbid(unsafe_code)]

/// Where the checksum lies in a metadata record (docs/on-disk.md, section 2).
const CHECKSUM_AT: usize = 36;
/// Where its length lies.
const LENGTH_AT: usize = 12;
/// Bytes of the head.
const HEAD_BYTES: usize = 48;

/// A record of `kind` with these bytes as its content, `length` long, its head made right as a
/// forger would.
#[must_use]
pub fn record(kind: [u8; 8], data: &[u8], length: usize) -> Vec<u8> {
    let mut record = vec![0; length.max(HEAD_BYTES)];
    let count = data.len().min(record.len() - 8);
    record[8..8 + count].copy_from_slice(&data[..count]);
    record[..8].copy_from_slice(&kind);
    record[8..LENGTH_AT].copy_from_slice(&1u32.to_le_bytes());
    let bytes = u32::try_from(record.len()).expect("short");
    record[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&bytes.to_le_bytes());
    record[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &record);
    let sum = u32::try_from(sum).expect("CRC-32C has 32 bits");
    record[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    record
}
