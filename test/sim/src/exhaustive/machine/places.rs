//! Which drive is whose.

use array::MapState;
use units::DriveIndex;

use super::Machine;
use crate::disks;

impl Machine {
    /// Whether all parity is trusted.
    pub(in crate::exhaustive) fn is_resynced(&self) -> bool {
        let map = self.shard.map();
        map.trusted_until.0 == map.geometry.stripes()
    }

    /// Whether a member is out.
    pub(in crate::exhaustive) fn is_out(&self, position: usize) -> bool {
        self.shard.map().members[position].state == MapState::Lost
    }

    /// The place that a drive fills, or would if it were taken back; none of one that another has
    /// replaced, or that is not a member yet.
    pub(in crate::exhaustive) fn place_of(&self, drive: usize) -> Option<usize> {
        let members = &self.shard.map().members;
        let index = Some(DriveIndex::from_at(drive));
        let serves = members.iter().position(|member| member.drive == index);
        serves.or_else(|| {
            let owner = disks::owner(&self.outside.disks[drive])?;
            let coordinator = self.shard.coordinator().expect("home");
            let record = &coordinator.config().members[owner.member.at()];
            (record.uuid == owner.member_uuid).then_some(owner.member.at())
        })
    }

    /// The drive that a member has, or had when it was last one.
    pub(in crate::exhaustive) fn last_drive(&self, position: usize) -> usize {
        let mut drives = 0..self.outside.disks.len();
        let drive = drives.find(|drive| self.place_of(*drive) == Some(position));
        drive.expect("each place had one")
    }
}
