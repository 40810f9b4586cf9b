//! What garboard writes on a member's drive, as types: layout, superblock, config record.
//!
//! The bytes are described in docs/on-disk.md. Nothing here does I/O, and nothing here decides
//! what a set of records means: that is `assembly.rs`.

mod codec;
mod config;
mod extent;
mod head;
mod layout;
mod log;
mod lost;
mod missed;
mod region;
mod scrub;
mod superblock;
mod text;

pub use codec::{
    CONFIG_FIXED_BYTES, MEMBER_RECORD_BYTES, RUN_RECORD_BYTES, RecordCopy, VOLUME_RECORD_BYTES,
};
pub use config::{
    ANCESTORS_MAX, ArrayConfig, ArrayOptions, ConfigSlot, ConfigTooLarge, ExclusionCause,
    HedgedReads, MemberRecord, MemberState, VolumeRecord, VolumeState, WriteHole,
};
pub use extent::{ExtentRun, ExtentSpace, extents_of, join_runs};
pub use head::{COMPAT_MAPPED, Features, FormatError, HEAD_BYTES};
pub use layout::{Area, EXTENT_BYTES_MIN, Layout, MEMBER_BYTES_MIN, MemberTooSmall};
pub use log::{LOG_HEADER_BYTES, LOG_RUNS, LogPiece};
pub use lost::LOST_RECORD_BYTES;
pub(crate) use missed::lower_half;
pub use missed::{Before, Missed};
pub use region::{
    INCOMPAT_UNWRITTEN, REGION_BLOCK_BYTES, REGION_BLOCK_REGIONS, RegionBlock, RegionEntry,
    RegionKind,
};
pub use superblock::{Created, SUPERBLOCK_BYTES, Sectors, Superblock};
pub use text::{DriveIdentity, IDENTITY_BYTES_MAX, InvalidName, check_name};
pub use uuid::Uuid;

#[cfg(test)]
pub(crate) mod tests;
