//! The head that every metadata record starts with, its checksum, and why a record is refused.

use std::fmt;

use units::{MemberIndex, Update, bytes_usize};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::region::{INCOMPAT_UNWRITTEN, RegionKind};
use crate::planted::{self, Fault};

/// Bytes of the head of every metadata record.
pub const HEAD_BYTES: usize = 48;

/// The one format this engine reads and writes.
const FORMAT: u32 = 1;
/// Where the checksum lies in a record.
const CHECKSUM_AT: usize = 36;

/// Why bytes are not a record that this engine may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// Fewer bytes than the smallest record.
    Truncated {
        /// How many there are.
        bytes: usize,
    },
    /// The drive could not read it.
    Unreadable,
    /// Zeroes where a record should begin: nothing was written here.
    Blank,
    /// Something else than a record of ours.
    Foreign,
    /// The record says a length that cannot be.
    Length {
        /// In bytes, as the record says.
        length: u32,
        /// Bytes there are.
        room: usize,
    },
    /// Torn or rotten.
    Checksum {
        /// What the record says.
        stored: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// Written by a newer engine, in a format this one does not know.
    NewerFormat {
        /// The array the record belongs to.
        array: Uuid,
        /// The record's format.
        format: u32,
    },
    /// Written by a newer engine, with features this one does not know.
    NewerFeatures {
        /// The array the record belongs to.
        array: Uuid,
        /// The unknown bits of the incompat word.
        bits: u64,
    },
    /// The checksum is right and the content contradicts itself.
    Invalid(&'static str),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Truncated { bytes } => write!(f, "only {bytes} bytes long"),
            FormatError::Unreadable => write!(f, "the drive cannot read it"),
            FormatError::Blank => write!(f, "nothing written"),
            FormatError::Foreign => write!(f, "not a record of garboard"),
            FormatError::Length { length, room } => {
                write!(f, "says to be {length} bytes long where {room} fit")
            }
            FormatError::Checksum { stored, computed } => {
                write!(f, "checksum is {computed:08x}, record says {stored:08x}")
            }
            FormatError::NewerFormat { array, format } => write!(
                f,
                "format {format} of array {array} is from the future, this engine knows {FORMAT}"
            ),
            FormatError::NewerFeatures { array, bits } => write!(
                f,
                "array {array} uses features from the future (incompat bits {bits:#x})"
            ),
            FormatError::Invalid(what) => write!(f, "contradicts itself: {what}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// The three feature words of a superblock or a config record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compat: u64,
    /// A reader that does not know one of these bits must not write.
    pub read_only_compat: u64,
    /// A reader that does not know one of these bits must not look further.
    pub incompat: u64,
}

/// Compat: the member table says what members missed that are out or rebuild.
pub(super) const COMPAT_MISSED: u64 = 2;

/// Compat: the record says which reads can be given up.
pub(super) const COMPAT_HEDGED: u64 = 4;

/// Compat: the record says since when members were left out by starts that came to nothing.
pub(super) const COMPAT_UNFINISHED: u64 = 8;

/// Compat: all blocks of the region map were written when the array was made. Stays with the
/// array.
pub const COMPAT_MAPPED: u64 = 16;

/// Compat: the record says when it was written.
pub(super) const COMPAT_DATED: u64 = 32;

impl Features {
    /// Whether the record says when it was written; the bit belongs to the bytes only.
    pub(super) fn take_dated(&mut self) -> bool {
        let is_dated = self.compat & COMPAT_DATED != 0;
        self.compat &= !COMPAT_DATED;
        is_dated
    }

    /// Whether the record says which members starts left out that came to nothing; the bit belongs
    /// to the bytes only.
    pub(super) fn take_unfinished(&mut self) -> bool {
        let is_unfinished = self.compat & COMPAT_UNFINISHED != 0;
        self.compat &= !COMPAT_UNFINISHED;
        is_unfinished
    }

    /// Whether the record says which reads can be given up; the bit belongs to the byte only.
    pub(super) fn take_hedged(&mut self) -> bool {
        let is_hedged = self.compat & COMPAT_HEDGED != 0;
        self.compat &= !COMPAT_HEDGED;
        is_hedged
    }

    /// Whether the member table says what members missed; the bit belongs to the bytes only.
    pub(super) fn take_missed(&mut self) -> bool {
        let has_missed = self.compat & COMPAT_MISSED != 0;
        self.compat &= !COMPAT_MISSED;
        has_missed
    }

    /// The read-only-compat bits that this engine does not know: with any, it must not write.
    #[must_use]
    pub fn unknown_read_only(self) -> u64 {
        self.read_only_compat
    }

    /// The incompat bits that this engine does not know.
    #[must_use]
    pub(super) fn unknown_incompat(self) -> u64 {
        self.incompat & !INCOMPAT_UNWRITTEN
    }

    /// Whether all blocks of the region map were written when the array was made.
    #[must_use]
    pub fn is_mapped(self) -> bool {
        self.compat & COMPAT_MAPPED != 0
    }

    /// What the region map of a new array says of all regions, if it is there from the beginning.
    #[must_use]
    pub fn first_region(self) -> Option<RegionKind> {
        if self.has_unwritten() {
            return Some(RegionKind::Unwritten);
        }
        self.is_mapped().then_some(RegionKind::Clean)
    }

    /// Whether the region map may call regions unwritten.
    #[must_use]
    pub fn has_unwritten(self) -> bool {
        self.incompat & INCOMPAT_UNWRITTEN != 0
    }
}

/// Features as they lie on the drive.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct RawFeatures {
    compat: U64,
    read_only_compat: U64,
    incompat: U64,
}

const _: () = assert!(size_of::<RawFeatures>() == 24, "part of the on-disk format");

impl From<Features> for RawFeatures {
    fn from(features: Features) -> RawFeatures {
        RawFeatures {
            compat: features.compat.into(),
            read_only_compat: features.read_only_compat.into(),
            incompat: features.incompat.into(),
        }
    }
}

impl From<RawFeatures> for Features {
    fn from(raw: RawFeatures) -> Features {
        Features {
            compat: raw.compat.get(),
            read_only_compat: raw.read_only_compat.get(),
            incompat: raw.incompat.get(),
        }
    }
}

/// The head as it lies on the drive.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHead {
    kind: [u8; 8],
    format: U32,
    length: U32,
    array: [u8; 16],
    member: U16,
    reserved: [u8; 2],
    checksum: U32,
    update: U64,
}

const _: () = assert!(
    size_of::<RawHead>() == HEAD_BYTES,
    "part of the on-disk format"
);
const _: () = assert!(std::mem::offset_of!(RawHead, checksum) == CHECKSUM_AT);

/// What the head says, once believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: [u8; 8],
    pub(super) array: Uuid,
    pub(super) member: MemberIndex,
    pub(super) update: Update,
}

/// Writes the head over the first bytes of `record` and the checksum over all of it.
///
/// # Panics
/// When `record` is shorter than a head or longer than 4 GiB; callers have bounds.
pub(super) fn seal(record: &mut [u8], head: Head) {
    let length = u32::try_from(record.len()).expect("a record is bounded by its area");
    let mut raw = RawHead {
        kind: head.kind,
        format: FORMAT.into(),
        length: length.into(),
        array: head.array.into_bytes(),
        member: head.member.0.into(),
        reserved: [0; 2],
        checksum: 0.into(),
        update: head.update.0.into(),
    };
    record[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
    raw.checksum = checksum(record).into();
    record[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
}

/// Believes the record at the start of `bytes`, or says why not. Gives the head and the record.
pub(super) fn open(bytes: &[u8], kind: [u8; 8]) -> Result<(Head, &[u8]), FormatError> {
    let truncated = FormatError::Truncated { bytes: bytes.len() };
    let (raw, _) = RawHead::read_from_prefix(bytes).map_err(|_| truncated)?;
    if raw.kind == [0; 8] {
        return Err(FormatError::Blank);
    }
    if raw.kind != kind {
        return Err(FormatError::Foreign);
    }
    let length = raw.length.get();
    let record = bytes
        .get(..bytes_usize(u64::from(length)))
        .filter(|record| record.len() >= HEAD_BYTES)
        .ok_or(FormatError::Length {
            length,
            room: bytes.len(),
        })?;
    let (stored, computed) = (raw.checksum.get(), checksum(record));
    if stored != computed && !planted::is(Fault::TornRecordTaken) {
        return Err(FormatError::Checksum { stored, computed });
    }
    let head = Head {
        kind,
        array: Uuid::from_bytes(raw.array),
        member: MemberIndex(raw.member.get()),
        update: Update(raw.update.get()),
    };
    match raw.format.get() {
        FORMAT => Ok((head, record)),
        0 => Err(FormatError::Invalid("format 0")),
        format => Err(FormatError::NewerFormat {
            array: head.array,
            format,
        }),
    }
}

/// Refuses features that change what the bytes mean.
pub(super) fn check_features(features: Features, array: Uuid) -> Result<(), FormatError> {
    match features.unknown_incompat() {
        0 => Ok(()),
        bits => Err(FormatError::NewerFeatures { array, bits }),
    }
}

/// CRC-32C of a record, its own checksum counted as zero.
fn checksum(record: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&record[..CHECKSUM_AT]);
    digest.update(&[0; 4]);
    digest.update(&record[CHECKSUM_AT + 4..]);
    u32::try_from(digest.finalize()).expect("CRC-32C has 32 bits")
}

/// For tests: makes the checksum of tampered bytes right again, as a forger would.
#[cfg(test)]
pub(crate) fn reseal(record: &mut [u8]) {
    let sum = checksum(record).to_le_bytes();
    record[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum);
}
