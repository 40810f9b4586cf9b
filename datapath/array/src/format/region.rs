//! One block of the region map as it lies on a member; docs/on-disk.md, section 8.

use units::{MemberIndex, Update, bytes_usize};
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::head::{FormatError, HEAD_BYTES, Head, open, seal};

/// Bytes of a block of the region map.
pub const REGION_BLOCK_BYTES: usize = 4096;
/// Regions that one block describes.
pub const REGION_BLOCK_REGIONS: usize = 504;

const KIND: [u8; 8] = *b"GBREGION";
/// Bits of an entry's state byte.
const DIRTY: u64 = 1;
const UNWRITTEN: u64 = 2;

/// Incompat: the region map may call regions unwritten. An engine that does not know it would serve
/// what lies there as data.
pub const INCOMPAT_UNWRITTEN: u64 = 1 << 5;

/// What a region is to the next engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegionKind {
    /// Written before, and all members agree.
    #[default]
    Clean,
    /// Writes may be under way, or may not have reached all members: parity is not trusted after
    /// an unclean stop.
    Dirty,
    /// Never written: it reads as zeroes, whatever lies on the members.
    Unwritten,
}

/// What the map says of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionEntry {
    /// What it is.
    pub kind: RegionKind,
    /// The array's update when the region was last found to agree: whoever left at this update or
    /// earlier may have missed writes to it. Below 2^56.
    pub epoch: Update,
}

/// A block of the region map. All its copies are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionBlock {
    /// The array.
    pub array: Uuid,
    /// Its number in the map.
    pub number: u32,
    /// Counts the times that it was written; the highest decides.
    pub sequence: u64,
    /// One for each region; those beyond the array are clean.
    pub entries: Vec<RegionEntry>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawRegionBlock {
    number: U32,
    reserved: [u8; 12],
    entries: [U64; REGION_BLOCK_REGIONS],
}

const _: () = assert!(
    HEAD_BYTES + size_of::<RawRegionBlock>() == REGION_BLOCK_BYTES,
    "part of the on-disk format"
);

impl RegionBlock {
    /// Writes a block into `bytes`; `entry` tells of each region, by its position in the block.
    ///
    /// # Panics
    /// When `bytes` are not [`REGION_BLOCK_BYTES`].
    pub fn encode_into(
        (array, number, sequence): (Uuid, u32, u64),
        entry: impl Fn(usize) -> RegionEntry,
        bytes: &mut [u8],
    ) {
        let mut raw = RawRegionBlock {
            number: number.into(),
            reserved: [0; 12],
            entries: [U64::ZERO; REGION_BLOCK_REGIONS],
        };
        for (position, word) in raw.entries.iter_mut().enumerate() {
            let RegionEntry { kind, epoch } = entry(position);
            let state = match kind {
                RegionKind::Clean => 0,
                RegionKind::Dirty => DIRTY,
                RegionKind::Unwritten => UNWRITTEN,
            };
            *word = (epoch.0 << 8 | state).into();
        }
        bytes[HEAD_BYTES..REGION_BLOCK_BYTES].copy_from_slice(raw.as_bytes());
        // All copies are alike, so the head names no member.
        let head = Head {
            kind: KIND,
            array,
            member: MemberIndex(0),
            update: Update(sequence),
        };
        seal(&mut bytes[..REGION_BLOCK_BYTES], head);
    }

    /// Reads a block.
    ///
    /// # Errors
    /// When it is none, is damaged, contradicts itself or is from the future.
    pub fn decode(bytes: &[u8]) -> Result<RegionBlock, FormatError> {
        let (head, record) = open(bytes, KIND)?;
        let invalid = FormatError::Invalid;
        let (raw, _) = RawRegionBlock::read_from_prefix(&record[HEAD_BYTES..])
            .map_err(|_| invalid("too short for a block of the region map"))?;
        let entry = |word: &U64| {
            let kind = match word.get() & 0xFF {
                0 => RegionKind::Clean,
                DIRTY => RegionKind::Dirty,
                UNWRITTEN => RegionKind::Unwritten,
                _ => return Err(invalid("state of a region")),
            };
            Ok(RegionEntry {
                kind,
                epoch: Update(word.get() >> 8),
            })
        };
        let entries: Result<Vec<RegionEntry>, FormatError> =
            raw.entries.iter().map(entry).collect();
        let entries = entries?;
        if head.update.0 == 0 {
            return Err(invalid("a block of the region map that was never written"));
        }
        Ok(RegionBlock {
            array: head.array,
            number: raw.number.get(),
            sequence: head.update.0,
            entries,
        })
    }

    /// Where the write `sequence` of block `number` goes, from the start of the region map's
    /// area: each block has two places that are written in turn.
    #[must_use]
    pub fn offset(number: u32, sequence: u64) -> u64 {
        (u64::from(number) * 2 + sequence % 2) * units::bytes_u64(REGION_BLOCK_BYTES)
    }

    /// How many blocks an area of so many bytes holds.
    #[must_use]
    pub fn room(area_bytes: u64) -> usize {
        bytes_usize(area_bytes) / (2 * REGION_BLOCK_BYTES)
    }
}
