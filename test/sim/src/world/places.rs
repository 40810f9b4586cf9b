//! Where members are on their drives.

use array::MemberPlace;
use array::format::Layout;
use units::DriveIndex;

use crate::disks;
use crate::drive::SimDrive;

/// Where things are on drive `drive`.
#[must_use]
pub fn place(layout: &Layout, drive: usize) -> MemberPlace {
    MemberPlace {
        drive: DriveIndex::from_at(drive),
        layout: *layout,
        appearance: units::bytes_u64(drive) + 1,
        records: Default::default(),
    }
}

/// As `place`, of a drive that may have been away.
#[must_use]
pub fn place_of(layout: &Layout, drives: &[SimDrive], drive: usize) -> MemberPlace {
    let place = place(layout, drive);
    MemberPlace {
        appearance: place.appearance | drives[drive].outages << 32,
        records: disks::record_places(drive, &drives[drive], layout),
        ..place
    }
}
