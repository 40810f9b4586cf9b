//! Where everything lies on a member; the formulas are used once, when an array is created.

use std::fmt;

use units::{BlockSize, Size, bytes_u64};

use super::codec::{
    CONFIG_FIXED_BYTES, MEMBER_RECORD_BYTES, RUN_RECORD_BYTES, VOLUME_RECORD_BYTES,
};
use super::lost::LOST_RECORD_BYTES;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The smallest member.
pub const MEMBER_BYTES_MIN: u64 = 16 * MIB;
/// An extent holds at least so many bytes of user data.
pub const EXTENT_BYTES_MIN: u64 = 16 * MIB;

/// The first MiB is not ours; superblocks A and B follow, 64 KiB apart, in the second.
pub(super) const FIRST_SUPERBLOCK: u64 = MIB;
/// Between copies of the superblock.
pub(super) const SUPERBLOCK_DISTANCE: u64 = 64 * KIB;
/// The last MiB holds the other two copies.
const TAIL_BYTES: u64 = MIB;

/// A run of bytes on a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// How many bytes; 0 when the area does not exist.
    pub length: u64,
}

impl Area {
    /// The byte after the last, if that is a number.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }

    /// Where a record may begin in a config area: at its start, or, when the drive of a member that
    /// is needed refuses to write there, in the middle.
    #[must_use]
    pub fn record_places(self) -> [u64; 2] {
        let half = self.length / 2;
        [self.offset, self.offset + (half - half % (4 * KIB))]
    }
}

/// Where everything lies on a member; all members of an array have the same. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How much of the drive belongs to the member.
    pub member_bytes: u64,
    /// Config A and config B.
    pub config: [Area; 2],
    /// The region map.
    pub region_map: Area,
    /// Kept for the log.
    pub log: Area,
    /// Kept for the list of bad ranges.
    pub bad_ranges: Area,
    /// Kept for checksums; does not exist yet.
    pub checksums: Area,
    /// Kept for snapshots; does not exist yet.
    pub snapshots: Area,
    /// The chunks.
    pub data: Area,
}

/// A drive is too small to be a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberTooSmall {
    /// Its size.
    pub drive_bytes: u64,
}

impl fmt::Display for MemberTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a drive of {} bytes is too small for a member of this array; {} is the least",
            self.drive_bytes,
            Size(MEMBER_BYTES_MIN)
        )
    }
}

impl std::error::Error for MemberTooSmall {}

impl Layout {
    /// The layout for an array of `members` whose smallest drive has `drive_bytes`.
    ///
    /// # Errors
    /// When that drive is below [`MEMBER_BYTES_MIN`], or the metadata leaves no data.
    pub fn for_member(
        drive_bytes: u64,
        block: BlockSize,
        members: usize,
    ) -> Result<Layout, MemberTooSmall> {
        let too_small = MemberTooSmall { drive_bytes };
        let member_bytes = Layout::member_bytes(drive_bytes);
        if member_bytes < MEMBER_BYTES_MIN {
            return Err(too_small);
        }
        let mut next = FIRST_SUPERBLOCK + MIB;
        let mut take = |length: u64| {
            let area = Area {
                offset: next,
                length: length.next_multiple_of(4 * KIB),
            };
            next += area.length;
            area
        };
        let config_bytes = config_bytes(member_bytes, bytes_u64(members));
        let config = [take(config_bytes), take(config_bytes)];
        let region_map = take((member_bytes / 1024).clamp(64 * KIB, 16 * MIB));
        let bad_ranges = take((member_bytes / 4096).clamp(64 * KIB, MIB));
        let log = take((member_bytes / 64).clamp(MIB, 256 * MIB));
        let offset = next.next_multiple_of(MIB);
        let data = Area {
            offset,
            length: (member_bytes - TAIL_BYTES)
                .checked_sub(offset)
                .filter(|length| *length >= MIB)
                .ok_or(too_small)?,
        };
        let layout = Layout {
            member_bytes,
            config,
            region_map,
            log,
            bad_ranges,
            checksums: Area::default(),
            snapshots: Area::default(),
            data,
        };
        assert_eq!(layout.check(block), Ok(()), "made what we would refuse");
        Ok(layout)
    }

    /// A drive's size rounded down, so that a nearly equal replacement fits: to 1 MiB below 1 GiB,
    /// else to the largest power of two that is not above a thousandth. Rounding twice changes
    /// nothing.
    #[must_use]
    pub fn member_bytes(drive_bytes: u64) -> u64 {
        let granule = 1 << (drive_bytes / 1000).max(MIB).ilog2();
        drive_bytes - drive_bytes % granule
    }

    /// Refuses areas that overlap, leave the member, or do not consist of whole blocks.
    pub(super) fn check(&self, block: BlockSize) -> Result<(), &'static str> {
        if self.member_bytes < MEMBER_BYTES_MIN || !self.member_bytes.is_multiple_of(MIB) {
            return Err("member size");
        }
        let mut areas = [
            self.config[0],
            self.config[1],
            self.region_map,
            self.log,
            self.bad_ranges,
            self.checksums,
            self.snapshots,
            self.data,
        ];
        areas.sort_unstable();
        let mut free_from = FIRST_SUPERBLOCK + MIB;
        for area in areas.iter().filter(|area| area.length > 0) {
            let end = area.end().ok_or("an area ends nowhere")?;
            if area.offset < free_from || end > self.member_bytes - TAIL_BYTES {
                return Err("areas overlap or leave the member");
            }
            if !(area.offset | area.length).is_multiple_of(block.bytes()) {
                return Err("an area is not made of whole blocks");
            }
            free_from = end;
        }
        if self.bad_ranges.length < 4 * KIB {
            // What nobody reads is written there as a trial.
            return Err("bad ranges area");
        }
        let config = self.config.map(|area| area.length);
        if config[0] != config[1] || config[0] < CONFIG_BYTES_MIN {
            return Err("config areas");
        }
        if config[0] > CONFIG_BYTES_MAX {
            return Err("config areas are larger than any record");
        }
        if self.data.length == 0 {
            return Err("no data area");
        }
        Ok(())
    }
}

/// The smallest config area: each half has room for what is read first.
const CONFIG_BYTES_MIN: u64 = 8 * KIB;
/// The largest.
const CONFIG_BYTES_MAX: u64 = 4 * MIB;

/// Bytes of one config area: enough for the largest record of a small array.
fn config_bytes(member_bytes: u64, members: u64) -> u64 {
    let extents = (member_bytes / EXTENT_BYTES_MIN).saturating_mul(members) + members;
    let volumes = extents.min(bytes_u64(units::limits::ARRAY_VOLUMES_MAX));
    let largest = bytes_u64(CONFIG_FIXED_BYTES)
        + bytes_u64(MEMBER_RECORD_BYTES) * members
        + bytes_u64(VOLUME_RECORD_BYTES) * volumes
        + (2 * bytes_u64(RUN_RECORD_BYTES)).saturating_mul(extents)
        + bytes_u64(LOST_RECORD_BYTES * units::limits::ARRAY_LOST_WORDS_MAX);
    (member_bytes / 256)
        .max(largest)
        .clamp(64 * KIB, CONFIG_BYTES_MAX)
}
