//! The drives of a machine, as scenarios know them.

use super::Machine;
use crate::exhaustive::disk::{Disk, Write};

impl Machine {
    pub(in crate::exhaustive) fn disks(&self) -> &[Disk] {
        &self.outside.disks
    }

    pub(in crate::exhaustive) fn disk(&mut self, drive: usize) -> &mut Disk {
        &mut self.outside.disks[drive]
    }

    /// One more drive is there.
    pub(in crate::exhaustive) fn add(&mut self, disk: Disk) {
        self.outside.disks.push(disk);
    }

    /// Writes that the drives have taken and not answered, oldest first.
    pub(in crate::exhaustive) fn taken(&self) -> impl Iterator<Item = (usize, &Write)> {
        let writes = self.outside.taken.iter();
        writes.filter_map(|taken| Some((taken.request.drive.at(), taken.write.as_ref()?)))
    }

    /// Whether the drive was asked for something that it has not answered.
    pub(in crate::exhaustive) fn is_asked(&self, drive: usize) -> bool {
        let mut taken = self.outside.taken.iter();
        taken.any(|taken| taken.request.drive.at() == drive)
    }
}
