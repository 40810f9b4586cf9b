//! Why there is no such array, and the way out.

use std::fmt;

use units::Size;
use units::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, PARITY_MAX};

use super::Level;

/// Why parameters make no geometry. Prints what is wrong and the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The level needs more members.
    TooFewMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members needed.
        least: usize,
    },
    /// The level takes fewer members.
    TooManyMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members allowed.
        most: usize,
    },
    /// The level does not take the group size given.
    GroupSizeNotTaken {
        /// The level asked for.
        level: Level,
        /// The group size given.
        given: usize,
    },
    /// The level needs a group size.
    GroupSizeMissing {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
    },
    /// A group of this size is too small or too large.
    GroupSize {
        /// The level asked for.
        level: Level,
        /// The group size given.
        group_size: usize,
        /// The smallest allowed.
        least: usize,
        /// The largest allowed.
        most: usize,
    },
    /// The members do not fill groups of this size.
    UnequalGroups {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Members per group.
        group_size: usize,
    },
    /// All members would be in one group.
    OneGroup {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
    },
    /// The level has another number of parities.
    ParityNotTaken {
        /// The level asked for.
        level: Level,
        /// Parities given.
        given: usize,
        /// Parities of the level.
        implied: usize,
    },
    /// Level nm needs the number of parities.
    ParityMissing,
    /// The number of parities is out of bounds.
    Parity {
        /// Parities given.
        given: usize,
    },
    /// All members would hold parity.
    NoData {
        /// Members of one group.
        members: usize,
        /// Parities given.
        parity: usize,
    },
    /// The chunk size is not a power of two within bounds.
    Chunk {
        /// Bytes given.
        bytes: u64,
    },
    /// Not one chunk fits on a member.
    MemberTooSmall {
        /// Blocks of the data area.
        blocks: u64,
        /// Blocks of a chunk.
        chunk_blocks: u32,
    },
    /// The array's bytes do not fit 64 bits.
    TooLarge,
}

impl fmt::Display for GeometryError {
    #[allow(clippy::too_many_lines, reason = "a table: one sentence per variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GeometryError::TooFewMembers {
                level,
                members,
                least,
            } => write!(
                f,
                "level {level} needs at least {least} drives and got {members}; \
                 add {} or choose another level",
                least - members
            ),
            GeometryError::TooManyMembers {
                level,
                members,
                most,
            } => write!(
                f,
                "level {level} takes at most {most} drives and got {members}; leave out {}{}",
                members - most,
                if level.has_groups() {
                    ""
                } else {
                    " or choose a level with groups (10, 50, 60, 70)"
                }
            ),
            GeometryError::GroupSizeNotTaken { level, given } => write!(
                f,
                "level {level} takes no group size of {given}; leave the group size out, \
                 or choose level 50, 60 or 70"
            ),
            GeometryError::GroupSizeMissing { level, members } => write!(
                f,
                "level {level} needs a group size that divides its {members} drives; \
                 give the number of drives per group"
            ),
            GeometryError::GroupSize {
                level,
                group_size,
                least,
                most,
            } => write!(
                f,
                "level {level} takes groups of {least} to {most} drives and got {group_size}; \
                 choose another group size"
            ),
            GeometryError::UnequalGroups {
                level,
                members,
                group_size,
            } => unequal(f, level, members, group_size),
            GeometryError::OneGroup { level, members } => write!(
                f,
                "level {level} needs at least 2 groups and one group of {members} drives \
                 leaves 1; choose a smaller group size"
            ),
            GeometryError::ParityNotTaken {
                level,
                given,
                implied,
            } => write!(
                f,
                "level {level} here has {implied} parity drives per group, not {given}; \
                 leave the parity out, or choose level nm"
            ),
            GeometryError::ParityMissing => write!(
                f,
                "level nm needs the number of parity drives; give one of 1 to {PARITY_MAX}"
            ),
            GeometryError::Parity { given } => write!(
                f,
                "level nm takes 1 to {PARITY_MAX} parity drives and got {given}; \
                 choose another number"
            ),
            GeometryError::NoData { members, parity } => write!(
                f,
                "{parity} parity drives of {members} leave none for data; \
                 choose less parity or add drives"
            ),
            GeometryError::Chunk { bytes } => write!(
                f,
                "a chunk of {bytes} bytes is not a power of two from {} to {}; \
                 choose for example 64KiB",
                Size(CHUNK_BYTES_MIN),
                Size(CHUNK_BYTES_MAX)
            ),
            GeometryError::MemberTooSmall {
                blocks,
                chunk_blocks,
            } => write!(
                f,
                "a member with room for {blocks} blocks of data does not hold a chunk of \
                 {chunk_blocks} blocks; choose a smaller chunk or larger drives"
            ),
            GeometryError::TooLarge => write!(
                f,
                "the array would be larger than 16 EiB; use fewer or smaller drives"
            ),
        }
    }
}

impl std::error::Error for GeometryError {}

fn unequal(
    f: &mut fmt::Formatter<'_>,
    level: Level,
    members: usize,
    group_size: usize,
) -> fmt::Result {
    write!(
        f,
        "level {level} needs equal groups, and {members} drives do not make groups of \
         {group_size}; leave out {} or add {}",
        members % group_size,
        group_size - members % group_size
    )
}
