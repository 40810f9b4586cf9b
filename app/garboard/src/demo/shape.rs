//! What array the demo makes, by its level.

use control::request::{ArrayOptions, Level};
use units::bytes_u64;

use super::content::BLOCK_BYTES;

/// Bytes of each drive.
pub(super) const DRIVE_BYTES: u64 = 256 << 20;
/// Drives that wait until others are pulled.
const WAITING: usize = 2;
/// Most of the volume, and how much of the members' data chunks it takes: the rest is what members
/// have besides chunks.
const VOLUME_BYTES_MAX: u64 = 512 << 20;
const VOLUME_SHARE: (u64, u64) = (3, 4);

/// An array of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(super) level: Level,
    pub(super) members: usize,
    /// Members of a group.
    pub(super) group: usize,
    /// Members of a group that it can do without.
    pub(super) parity: usize,
}

impl Shape {
    /// The array of a level.
    ///
    /// # Errors
    /// Why there is no demo of it.
    fn of(level: Level) -> Result<Shape, String> {
        let (members, group, parity) = match level {
            Level::Raid1 => (2, 2, 1),
            Level::Raid10 => (6, 2, 1),
            Level::Raid5 => (6, 6, 1),
            Level::Raid6 => (6, 6, 2),
            Level::Raid7 => (6, 6, 3),
            Level::Raid50 => (6, 3, 1),
            Level::Raid60 => (8, 4, 2),
            Level::Raid70 => (10, 5, 3),
            Level::Raid0 => return refuse("level 0 does not survive what happens to a demo"),
            Level::Nm => return refuse("level nm is shown by levels 5, 6 and 7"),
        };
        Ok(Shape {
            level,
            members,
            group,
            parity,
        })
    }

    /// The array of a level that somebody names.
    ///
    /// # Errors
    /// Why there is no demo of it.
    pub(crate) fn named(text: &str) -> Result<Shape, String> {
        let level = text.parse();
        level.map_or_else(
            |_: String| refuse(&format!("`{text}` is not a level")),
            Shape::of,
        )
    }

    /// Members and those that wait.
    pub(super) fn drives(&self) -> usize {
        self.members + WAITING
    }

    /// Blocks of the volume.
    pub(super) fn blocks(&self) -> u32 {
        let copies = matches!(self.level, Level::Raid1 | Level::Raid10);
        let data = if copies { 1 } else { self.group - self.parity };
        let chunks = bytes_u64(self.members / self.group * data) * DRIVE_BYTES;
        let bytes = VOLUME_BYTES_MAX.min(chunks * VOLUME_SHARE.0 / VOLUME_SHARE.1);
        u32::try_from(bytes / bytes_u64(BLOCK_BYTES)).expect("at most half a gigabyte")
    }

    /// What the level needs to be told.
    pub(super) fn options(&self) -> ArrayOptions {
        let grouped = matches!(
            self.level,
            Level::Raid50 | Level::Raid60 | Level::Raid70 | Level::Raid10
        );
        let group = u16::try_from(self.group).expect("few members");
        ArrayOptions {
            group_size: grouped.then_some(group),
            ..ArrayOptions::default()
        }
    }

    /// The members of the group of one.
    pub(super) fn group_of(&self, member: usize) -> std::ops::Range<usize> {
        let first = member / self.group * self.group;
        first..first + self.group
    }

    /// The members that are pulled one after the other.
    pub(super) fn victims(&self) -> &'static [u16] {
        if self.parity > 1 { &[1, 3] } else { &[1] }
    }
}

fn refuse(why: &str) -> Result<Shape, String> {
    Err(format!("{why}; take 1, 5, 6, 7, 10, 50, 60 or 70"))
}
