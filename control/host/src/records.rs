//! Reading and writing what names an array on a drive, from threads that may block. Only drives
//! that no running array uses are written here.

use std::io;

use array::assembly::Found;
use array::format::{
    ArrayConfig, DriveIdentity, FormatError, Layout, MEMBER_BYTES_MIN, SUPERBLOCK_BYTES, Superblock,
};
use drive::Drive;
use units::{DriveIndex, MemberIndex, bytes_usize};

/// Everything that is on a drive of an array.
pub(crate) fn read(index: DriveIndex, drive: &Drive) -> io::Result<Found> {
    let drive_bytes = drive.info().size_bytes;
    let identity = DriveIdentity::new(&drive.info().identity().unwrap_or_default());
    let mut found = Found {
        drive: index,
        drive_bytes,
        identity,
        superblocks: Vec::new(),
        configs: Vec::new(),
    };
    if drive_bytes < MEMBER_BYTES_MIN {
        return Ok(found);
    }
    // A drive that is larger than its member has its end copies where the member ends.
    let by_size = Superblock::offsets(Layout::member_bytes(drive_bytes));
    found.superblocks = read_superblocks(drive, by_size)?;
    let told = found
        .superblock()
        .map(|superblock| superblock.layout.member_bytes);
    if let Some(member_bytes) = told
        && member_bytes <= drive_bytes
        && Superblock::offsets(member_bytes) != by_size
    {
        found.superblocks = read_superblocks(drive, Superblock::offsets(member_bytes))?;
    }
    let Some(superblock) = found.superblock().copied() else {
        return Ok(found);
    };
    if superblock.layout.member_bytes > drive_bytes {
        return Ok(found);
    }
    for area in superblock.layout.config {
        let mut bytes = vec![0; bytes_usize(area.length)];
        drive.read(area.offset, &mut bytes)?;
        found.configs.push(ArrayConfig::decode(&bytes));
    }
    Ok(found)
}

fn read_superblocks(
    drive: &Drive,
    offsets: [u64; 4],
) -> io::Result<Vec<Result<Superblock, FormatError>>> {
    let mut copies = Vec::with_capacity(offsets.len());
    for offset in offsets {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        drive.read(offset, &mut bytes)?;
        copies.push(Superblock::decode(&bytes));
    }
    Ok(copies)
}

/// Makes a drive a member: clears both config areas, then writes the superblocks. A crash in
/// between leaves a drive that belongs to nothing.
pub(crate) fn format(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    let offsets = Superblock::offsets(superblock.layout.member_bytes);
    for offset in offsets {
        drive.write(offset, &[0; SUPERBLOCK_BYTES])?;
    }
    drive.flush()?;
    for area in superblock.layout.config {
        let zeroes = vec![0; bytes_usize(area.length)];
        drive.write(area.offset, &zeroes)?;
    }
    drive.flush()?;
    write_superblocks(drive, superblock)
}

/// Writes all copies of a superblock anew.
pub(crate) fn write_superblocks(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    for offset in Superblock::offsets(superblock.layout.member_bytes) {
        drive.write(offset, &superblock.encode())?;
    }
    drive.flush()
}

/// Writes a record to its area of one member.
pub(crate) fn write_config(
    drive: &Drive,
    superblock: &Superblock,
    member: MemberIndex,
    config: &ArrayConfig,
) -> io::Result<()> {
    let area = superblock.layout.config[ArrayConfig::slot(config.update).at()];
    let mut bytes = vec![0; bytes_usize(area.length)];
    let used = config
        .encode_into(member, &mut bytes)
        .map_err(io::Error::other)?;
    drive.write(area.offset, &bytes[..used])?;
    drive.flush()
}

/// Takes a drive out of every array.
pub(crate) fn forget(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    for area in superblock.layout.config {
        drive.write(area.offset, &[0; SUPERBLOCK_BYTES])?;
    }
    drive.flush()?;
    for offset in Superblock::offsets(superblock.layout.member_bytes) {
        drive.write(offset, &[0; SUPERBLOCK_BYTES])?;
    }
    drive.flush()
}
