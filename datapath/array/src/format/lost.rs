//! The bytes of a config record that list lost blocks.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::head::{Features, FormatError};
use crate::losses::{LostBlocks, LostWord};

/// Bytes of a word of the list.
pub const LOST_RECORD_BYTES: usize = 16;

/// Incompat: the record ends with a list of lost blocks, which is not empty. An engine that does
/// not know it would serve zeroes as data.
const INCOMPAT_LOST: u64 = 1 << 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawLost {
    group: U64,
    mask: U64,
}

const _: () = assert!(
    size_of::<RawLost>() == LOST_RECORD_BYTES,
    "part of the on-disk format"
);

impl Features {
    /// Whether the record lists lost blocks; the bit belongs to the bytes only.
    pub(super) fn take_lost(&mut self) -> bool {
        let has_lost = self.incompat & INCOMPAT_LOST != 0;
        self.incompat &= !INCOMPAT_LOST;
        has_lost
    }

    /// With the bit that says so, if the list is not empty.
    pub(super) fn with_lost(mut self, lost: &LostBlocks) -> Features {
        if !lost.is_empty() {
            self.incompat |= INCOMPAT_LOST;
        }
        self
    }
}

pub(super) fn encode_lost(lost: &LostBlocks, record: &mut Vec<u8>) {
    for word in lost.words() {
        let raw = RawLost {
            group: word.group.into(),
            mask: word.mask.into(),
        };
        record.extend_from_slice(raw.as_bytes());
    }
}

pub(super) fn decode_lost(bytes: &[u8]) -> Result<LostBlocks, FormatError> {
    let word = |bytes: &[u8]| {
        let raw = RawLost::read_from_bytes(bytes).expect("chunks of the right size");
        LostWord {
            group: raw.group.get(),
            mask: raw.mask.get(),
        }
    };
    let words = bytes.chunks_exact(LOST_RECORD_BYTES).map(word).collect();
    LostBlocks::of_words(words).ok_or(FormatError::Invalid("lost blocks"))
}
