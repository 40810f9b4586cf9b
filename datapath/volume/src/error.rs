//! Why a change to the volume table is refused.

use std::fmt;

use array::format::{ConfigTooLarge, InvalidName, Uuid};
use units::Size;
use units::limits::ARRAY_VOLUMES_MAX;

/// Why a change to the volume table is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// The name cannot be one.
    Name(InvalidName),
    /// A volume has this name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// A volume has this uuid.
    UuidTaken {
        /// The uuid.
        uuid: Uuid,
        /// The volume's name.
        name: String,
    },
    /// No volume has this uuid.
    NotFound {
        /// The uuid.
        uuid: Uuid,
    },
    /// The array has all the volumes it may have.
    TooMany,
    /// The size is zero or no multiple of the array's block.
    Size {
        /// What was asked.
        size: Size,
        /// The array's block, in bytes.
        block_bytes: u64,
    },
    /// A volume does not shrink.
    Shrink {
        /// The volume.
        name: String,
        /// Its size.
        from: Size,
        /// What was asked.
        to: Size,
    },
    /// The array has too little space left.
    NoSpace {
        /// What was asked for, in whole extents.
        needed: Size,
        /// What is left, in whole extents.
        free: Size,
    },
    /// The volume is being created, grown or deleted.
    Busy {
        /// The volume.
        name: String,
    },
    /// The volume table is full: too many pieces.
    RecordFull(ConfigTooLarge),
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeError::Name(error) => error.fmt(f),
            VolumeError::NameTaken { name } => {
                write!(f, "volume {name} exists; choose another name")
            }
            VolumeError::UuidTaken { uuid, name } => {
                write!(f, "volume {name} has the uuid {uuid}")
            }
            VolumeError::NotFound { uuid } => write!(f, "no volume has the uuid {uuid}"),
            VolumeError::TooMany => write!(
                f,
                "the array has {ARRAY_VOLUMES_MAX} volumes, the most it may have; delete one"
            ),
            VolumeError::Size { size, block_bytes } => write!(
                f,
                "size {} is not a multiple of the array's block of {block_bytes} bytes, or zero",
                size.0
            ),
            VolumeError::Shrink { name, from, to } => write!(
                f,
                "volume {name} has {} bytes and cannot shrink to {}",
                from.0, to.0
            ),
            VolumeError::NoSpace { needed, free } => write!(
                f,
                "needs {needed} of space and the array has {free} free (in whole extents)"
            ),
            VolumeError::Busy { name } => write!(
                f,
                "volume {name} is being created, grown or deleted; try again when that is done"
            ),
            VolumeError::RecordFull(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for VolumeError {}
