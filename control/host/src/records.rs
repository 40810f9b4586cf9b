//! Reading and writing what names an array on a drive, from threads that may block. Only drives
//! that no running array uses are written here.

use std::io;

use array::RegionMap;
use array::assembly::{Found, PlaceRead, RecordPlace, Records, areas_to_erase};
use array::format::{
    Area, ArrayConfig, DriveIdentity, FormatError, Layout, MEMBER_BYTES_MIN, REGION_BLOCK_BYTES,
    RecordCopy, RegionBlock, RegionKind, SUPERBLOCK_BYTES, Superblock,
};
use drive::Drive;
use units::{DriveIndex, MemberIndex, bytes_u64, bytes_usize};

use crate::losses::{is_full, takes_others};

/// Bytes that are erased at once.
const ERASE_BYTES: u64 = 1 << 20;
/// After so many blocks of a map, or slots of a log, that cannot be read the rest is not looked at:
/// a drive that tries for seconds to read each should not keep an array for hours.
pub(crate) const MISSED_MAX: usize = 16;

/// Everything that is on a drive of an array. A copy that the drive cannot read is told as such,
/// as long as another one can be read.
pub(crate) fn read(index: DriveIndex, drive: &Drive) -> io::Result<Found> {
    let mut found = read_head(index, drive, &[])?;
    let Some(superblock) = found.superblock().copied() else {
        return Ok(found);
    };
    if superblock.layout.member_bytes > found.drive_bytes {
        return Ok(found);
    }
    let (records, unread) = read_records(drive, &superblock);
    found.configs = records.found;
    match unread {
        Some(source) if found.configs.iter().all(Result::is_err) => Err(source),
        Some(_) | None => Ok(found),
    }
}

/// What is in the config areas of a member, and an error when both starts cannot be read.
fn read_records(drive: &Drive, superblock: &Superblock) -> (Records, Option<io::Error>) {
    let areas = superblock.layout.config;
    let mut bytes = vec![0; bytes_usize(areas[0].length)];
    let starts = areas.map(|area| area.offset);
    let (starts, unread) = read_each(drive, starts, &mut bytes, RecordCopy::decode);
    let [start_a, start_b]: [PlaceRead; 2] = starts.try_into().expect("two areas");
    let [middle_a, middle_b] = areas.map(|area| {
        let [start, middle] = area.record_places();
        let room = &mut bytes[..bytes_usize(middle - start)];
        let read = read_start(drive, middle, room, RecordCopy::decode);
        read.unwrap_or(Err(FormatError::Unreadable))
    });
    let records = Records::of([[start_a, middle_a], [start_b, middle_b]]);
    (records, unread)
}

/// By config area, where a member's next record goes.
pub(crate) fn places(drive: &Drive, superblock: &Superblock) -> [RecordPlace; 2] {
    read_records(drive, superblock).0.next
}

/// As [`read`], without records. Superblocks at the end are looked for also where members of these
/// sizes have theirs.
pub(crate) fn read_head(
    index: DriveIndex,
    drive: &Drive,
    member_sizes: &[u64],
) -> io::Result<Found> {
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
    let by_size = Layout::member_bytes(drive_bytes);
    let (first, unread) = read_superblocks(drive, Superblock::head_offsets());
    let (last, last_unread) = read_superblocks(drive, last_offsets(by_size));
    if let (Some(_), Some(source)) = (unread, last_unread) {
        return Err(source);
    }
    let has_first = has_read_first(&first);
    found.superblocks = first;
    found.superblocks.extend(last);
    // A drive that is larger than its member has its end copies where the member ends.
    let told = found
        .superblock()
        .map(|superblock| superblock.layout.member_bytes);
    // A drive that fails for long at each place is not asked about more and more of them.
    let others = if has_first { member_sizes } else { &[] };
    let sizes = told.as_ref().map_or(others, std::slice::from_ref);
    for &member_bytes in sizes {
        if member_bytes <= drive_bytes && member_bytes != by_size {
            let (read, _) = read_superblocks(drive, last_offsets(member_bytes));
            if told.is_some() || read.iter().any(was_written) {
                found.superblocks.truncate(Superblock::head_offsets().len());
                found.superblocks.extend(read);
                break;
            }
        }
    }
    Ok(found)
}

/// Where the copies near the end of a member lie.
fn last_offsets(member_bytes: u64) -> [u64; 2] {
    let [_, _, last @ ..] = Superblock::offsets(member_bytes);
    last
}

/// Whether any of the first copies could be read.
fn has_read_first(superblocks: &[Result<Superblock, FormatError>]) -> bool {
    let mut first = superblocks.iter().take(Superblock::head_offsets().len());
    first.any(|copy| *copy != Err(FormatError::Unreadable))
}

/// Whether somebody wrote a superblock there, be it torn or from the future.
pub(crate) fn was_written(copy: &Result<Superblock, FormatError>) -> bool {
    match copy {
        Ok(_)
        | Err(
            FormatError::Length { .. }
            | FormatError::Checksum { .. }
            | FormatError::NewerFormat { .. }
            | FormatError::NewerFeatures { .. }
            | FormatError::Invalid(_),
        ) => true,
        Err(
            FormatError::Truncated { .. }
            | FormatError::Unreadable
            | FormatError::Blank
            | FormatError::Foreign,
        ) => false,
    }
}

fn read_superblocks<const COPIES: usize>(
    drive: &Drive,
    offsets: [u64; COPIES],
) -> (Vec<Result<Superblock, FormatError>>, Option<io::Error>) {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    read_each(drive, offsets, &mut bytes, Superblock::decode)
}

/// All copies of something, and an error when none of them can be read.
fn read_each<T, const COPIES: usize>(
    drive: &Drive,
    offsets: [u64; COPIES],
    bytes: &mut [u8],
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
) -> (Vec<Result<T, FormatError>>, Option<io::Error>) {
    let mut copies = Vec::with_capacity(COPIES);
    let mut unread = Vec::new();
    for offset in offsets {
        let decoded = match drive.read(offset, bytes) {
            Ok(()) => Ok(decode(bytes)),
            // No less than this can be read of it either.
            Err(source) if bytes.len() == SUPERBLOCK_BYTES => Err(source),
            Err(_) => read_start(drive, offset, bytes, &decode),
        };
        copies.push(match decoded {
            Ok(decoded) => decoded,
            Err(source) => {
                tracing::warn!(event = "record_unreadable", offset, error = %source,
                    "another copy of it is used");
                unread.push(source);
                Err(FormatError::Unreadable)
            }
        });
    }
    let all = unread.len() == COPIES;
    (copies, unread.pop().filter(|_| all))
}

/// What something decodes to that lies at the start of an area of which not all can be read.
pub(crate) fn read_start<T>(
    drive: &Drive,
    offset: u64,
    bytes: &mut [u8],
    decode: impl Fn(&[u8]) -> Result<T, FormatError>,
) -> io::Result<Result<T, FormatError>> {
    let mut length = SUPERBLOCK_BYTES;
    loop {
        let start = &mut bytes[..length];
        drive.read(offset, start)?;
        let decoded = decode(start);
        let Err(FormatError::Length { length: told, .. }) = decoded else {
            return Ok(decoded);
        };
        // So long it is, and what lies behind that is nothing.
        let told = bytes_usize(told.into());
        if told <= length || told > bytes.len() {
            return Ok(decoded);
        }
        length = told.next_multiple_of(SUPERBLOCK_BYTES).min(bytes.len());
    }
}

/// Takes the copies of the region map that a member holds, from a block on; the last error of those
/// that cannot be read. After so many of them it ends, and gives the block that is next. Without
/// such a bound only what nobody has told as yet is looked at, and more than a resync depends on.
pub(crate) fn read_regions(
    drive: &Drive,
    superblock: &Superblock,
    (member, first): (MemberIndex, u32),
    map: &mut RegionMap,
    missed_max: Option<usize>,
) -> (io::Result<()>, Option<u32>) {
    let space = *map.space();
    let mut read = Ok(());
    let mut missed = 0;
    for block in first..u32::try_from(space.blocks()).expect("at most 2^20 regions") {
        let holds = space.holders(block).any(|holder| holder == member);
        if !holds {
            continue;
        }
        if missed_max.is_none() && map.is_told(block) {
            map.miss(member, block);
            continue;
        }
        let offset = superblock.layout.region_map.offset + RegionBlock::offset(block, 0);
        let mut places = [0; 2 * REGION_BLOCK_BYTES];
        if let Err(source) = drive.read(offset, &mut places) {
            read = Err(source);
            map.miss(member, block);
            missed += 1;
            if missed_max.is_some_and(|most| missed > most) {
                return (read, Some(block + 1));
            }
            continue;
        }
        for place in places.chunks_exact(REGION_BLOCK_BYTES) {
            map.take(member, block, place);
        }
    }
    (read, None)
}

/// Erases both places of blocks of the region map on a member: nobody shall believe them. Good ones
/// first: cut off in between, the other is still known to be no good.
pub(crate) fn erase_regions(
    drive: &Drive,
    superblock: &Superblock,
    blocks: &[u32],
) -> io::Result<()> {
    for good in [true, false] {
        for &block in blocks {
            for place in [0, 1] {
                let offset =
                    superblock.layout.region_map.offset + RegionBlock::offset(block, place);
                let mut bytes = [0; REGION_BLOCK_BYTES];
                let read = drive.read(offset, &mut bytes);
                let is_good = read.is_ok() && RegionBlock::decode(&bytes).is_ok();
                if is_good == good {
                    drive.write(offset, &[0; REGION_BLOCK_BYTES])?;
                }
            }
        }
        drive.flush()?;
    }
    Ok(())
}

/// Makes a drive a member: clears both config areas and the region map, then writes the
/// superblocks. A crash in between leaves a drive that belongs to nothing.
pub(crate) fn format(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    let offsets = Superblock::offsets(superblock.layout.member_bytes);
    for offset in offsets {
        drive.write(offset, &[0; SUPERBLOCK_BYTES])?;
    }
    drive.flush()?;
    let [config_a, config_b] = superblock.layout.config;
    for Area { offset, length } in [config_a, config_b, superblock.layout.region_map] {
        let zeroes = vec![0; bytes_usize(length)];
        drive.write(offset, &zeroes)?;
    }
    drive.flush()?;
    write_superblocks(drive, superblock)
}

/// Writes the region map of a new array to one member: all regions are of this kind.
pub(crate) fn write_first_regions(
    drive: &Drive,
    superblock: &Superblock,
    kind: RegionKind,
) -> io::Result<()> {
    let Area { offset, length } = superblock.layout.region_map;
    let mut area = vec![0; bytes_usize(length)];
    let mut end = 0;
    let map = (superblock.regions(), superblock.array);
    let blocks = RegionMap::first_blocks(map, superblock.member, kind);
    for (at, block) in blocks {
        let at = bytes_usize(at - offset);
        end = at + block.len();
        area[at..end].copy_from_slice(&block);
    }
    drive.write(offset, &area[..end])?;
    drive.flush()
}

/// Erases what a drive that was a member before must not bring along: the pieces in its log, and
/// its copies of the region map.
pub(crate) fn erase(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    for area in areas_to_erase(superblock) {
        let mut offset = area.offset;
        while offset < area.offset + area.length {
            let bytes = ERASE_BYTES.min(area.offset + area.length - offset);
            drive.write(offset, &vec![0; bytes_usize(bytes)])?;
            offset += bytes;
        }
    }
    drive.flush()
}

/// Writes all copies of a superblock anew.
pub(crate) fn write_superblocks(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    for offset in Superblock::offsets(superblock.layout.member_bytes) {
        drive.write(offset, &superblock.encode())?;
    }
    drive.flush()
}

/// Writes all copies of a superblock anew, as far as that goes. An error when none can be.
pub(crate) fn mend_superblocks(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    let offsets = Superblock::offsets(superblock.layout.member_bytes);
    let written = offsets.map(|offset| drive.write(offset, &superblock.encode()));
    drive.flush()?;
    if written.iter().any(Result::is_ok) {
        for source in written.into_iter().filter_map(Result::err) {
            tracing::warn!(event = "superblock_unwritable", error = %source, "other copies serve");
        }
        return Ok(());
    }
    written.into_iter().collect()
}

/// Writes the first record of a new array to one member.
pub(crate) fn write_first_config(
    drive: &Drive,
    superblock: &Superblock,
    member: MemberIndex,
    config: &ArrayConfig,
) -> io::Result<()> {
    let area = superblock.layout.config[ArrayConfig::slot(config.update).at()];
    let record = encode(superblock, (member, [false; 2]), config)?;
    drive.write(area.offset, &record)?;
    drive.flush()
}

fn encode(
    superblock: &Superblock,
    copy: (MemberIndex, [bool; 2]),
    config: &ArrayConfig,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_usize(superblock.layout.config[0].length)];
    let used = config.encode_copy(copy, &mut bytes);
    bytes.truncate(used.map_err(io::Error::other)?);
    Ok(bytes)
}

/// Writes a record to its area of one member: to the middle of it, where records of that area are,
/// or where the drive takes that and other writes, but not this one at the start.
pub(crate) fn write_config(
    drive: &Drive,
    superblock: &Superblock,
    member: MemberIndex,
    config: &ArrayConfig,
) -> io::Result<()> {
    let slot = ArrayConfig::slot(config.update).at();
    let [start, middle] = superblock.layout.config[slot].record_places();
    let known = places(drive, superblock);
    let mut moved = known.map(|place| place == RecordPlace::Middle);
    let bytes = bytes_u64(encode(superblock, (member, moved), config)?.len());
    let (first, other) = match known[slot] {
        _ if start + bytes > middle => (start, None),
        RecordPlace::Start => (start, Some(middle)),
        RecordPlace::Perhaps => (middle, Some(start)),
        RecordPlace::Middle => (middle, None),
    };
    let mut write = |place| {
        moved[slot] = place == middle;
        let record = encode(superblock, (member, moved), config)?;
        drive.write(place, &record)
    };
    if let Err(source) = write(first) {
        let is_bad = !is_full(&source) && takes_others(drive, superblock);
        let Some(other) = other.filter(|_| is_bad) else {
            return Err(source);
        };
        // It may have been away for a moment.
        if write(first).is_err() {
            write(other)?;
            tracing::error!(event = "record_moved", member = member.0, error = %source,
                "its drive refuses a record of the array where that belongs: it is kept elsewhere \
                 on it");
        }
    }
    drive.flush()
}

/// Erases a record, wherever it is.
pub(crate) fn erase_config(
    drive: &Drive,
    superblock: &Superblock,
    config: &ArrayConfig,
) -> io::Result<()> {
    let area = superblock.layout.config[ArrayConfig::slot(config.update).at()];
    let mut bytes = vec![0; bytes_usize(area.length)];
    let erased = area.record_places().map(|place| {
        let room = &mut bytes[..bytes_usize(area.offset + area.length - place)];
        let found = read_start(drive, place, room, RecordCopy::decode);
        let is_it = |copy: RecordCopy| copy.config.update_id == config.update_id;
        let may_be = match found {
            Ok(found) => found.is_ok_and(is_it),
            // It may be read again some day.
            Err(_) => true,
        };
        if may_be {
            drive.write(place, &[0; SUPERBLOCK_BYTES])
        } else {
            Ok(())
        }
    });
    drive.flush()?;
    erased.into_iter().collect()
}

/// How large a member on a drive may have been, whose last superblocks are to be erased: by the
/// drive's size, by what was found on it, and as large as others. Where both first copies cannot be
/// read, nobody looks for those others either.
pub(crate) fn possible_sizes(drive: &Drive, found: Option<&Found>, others: &[u64]) -> Vec<u64> {
    let drive_bytes = drive.info().size_bytes;
    let mut sizes = vec![Layout::member_bytes(drive_bytes)];
    if let Some(found) = found {
        let own = found.superblocks.iter().flatten();
        sizes.extend(own.map(|superblock| superblock.layout.member_bytes));
        if has_read_first(&found.superblocks) {
            sizes.extend(others);
        }
    }
    sizes.retain(|size| (MEMBER_BYTES_MIN..=drive_bytes).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Erases the last superblocks of members of these sizes, where somebody wrote one, or where one by
/// the drive's size would be and cannot be read. Anything else there is left alone.
pub(crate) fn erase_last(drive: &Drive, member_sizes: &[u64]) -> io::Result<()> {
    let by_size = Layout::member_bytes(drive.info().size_bytes);
    for &member_bytes in member_sizes {
        let last = last_offsets(member_bytes);
        let (copies, _) = read_superblocks(drive, last);
        for (offset, copy) in last.into_iter().zip(copies) {
            let is_unread = copy == Err(FormatError::Unreadable) && member_bytes == by_size;
            if was_written(&copy) || is_unread {
                drive.write(offset, &[0; SUPERBLOCK_BYTES])?;
            }
        }
    }
    drive.flush()
}

/// Takes a drive out of every array.
pub(crate) fn forget(drive: &Drive, superblock: &Superblock) -> io::Result<()> {
    for area in superblock.layout.config {
        let [start, middle] = area.record_places();
        let erased = drive.write(start, &[0; SUPERBLOCK_BYTES]);
        let mut bytes = vec![0; bytes_usize(area.offset + area.length - middle)];
        let found = read_start(drive, middle, &mut bytes, RecordCopy::decode);
        if found.is_ok_and(|found| found.is_ok()) {
            // The start is refused, or was.
            drive.write(middle, &[0; SUPERBLOCK_BYTES])?;
        } else {
            erased?;
        }
    }
    drive.flush()?;
    for offset in Superblock::offsets(superblock.layout.member_bytes) {
        drive.write(offset, &[0; SUPERBLOCK_BYTES])?;
    }
    drive.flush()
}
