//! The drives of an array.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    pub(super) fn new_drive(&mut self) -> SimDrive {
        let mut drive = SimDrive::new(self.geometry.block_size());
        drive.keeps_all = self.random.happens(self.lasting);
        drive
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> u64 {
        self.geometry.block_size().bytes()
    }

    /// The first block of a member's drive that holds data.
    pub(super) fn first_block(&self) -> u64 {
        self.layout.data.offset / self.block_bytes()
    }

    pub(super) fn superblock(&self, member: MemberIndex, uuid: Uuid) -> array::format::Superblock {
        disks::superblock(
            self.geometry,
            &self.layout,
            member,
            uuid,
            self.extent_stripes,
        )
    }
}
