//! What lies on the simulated drives besides data: superblocks and records, written when an array
//! is made, and read again after a stop.

mod known;

use std::borrow::Cow;
use std::ops::Range;

use array::assembly::{Assembly, Found, PlaceRead, RecordPlace, Records, areas_to_erase, assemble};
use array::format::{
    Area, ArrayConfig, Created, Features, FormatError, LOG_HEADER_BYTES, Layout, MemberState,
    REGION_BLOCK_BYTES, RegionBlock, RegionKind, SUPERBLOCK_BYTES, Sectors, Superblock,
};
use array::planted::{self, Fault};
use array::{Geometry, MemberPlace, Redo, RefusedRedo, RegionMap, Replay, Suspects, agree_with};
use block::Status;
use units::{BlockSize, DriveIndex, MemberIndex, StripeIndex, Update, bytes_u64, bytes_usize};
use uuid::Uuid;

use crate::drive::SimDrive;
use crate::random::Random;
use crate::world::place;

/// A drive as the control path sees it, which reads and writes records before an array starts.
pub trait Medium {
    /// What a read of so many bytes finds now.
    fn get(&self, offset: u64, length: u64) -> Vec<u8>;
    /// As `get`, without a copy where the bytes lie together.
    fn find(&self, offset: u64, length: u64) -> Cow<'_, [u8]> {
        Cow::Owned(self.get(offset, length))
    }
    /// Stores bytes.
    fn put(&mut self, offset: u64, bytes: &[u8]);
    /// Makes durable what it holds.
    fn flush(&mut self);
    /// Whether it does not answer.
    fn is_gone(&self) -> bool;
    /// Stores bytes if the drive takes them; whether it did.
    fn try_put(&mut self, offset: u64, bytes: &[u8]) -> bool {
        self.put(offset, bytes);
        true
    }
    /// Whether the drive is there and cannot read this block.
    fn is_bad(&self, _offset: u64) -> bool {
        false
    }
    /// Whether the drive is there and can read this block.
    fn can_read(&self, offset: u64) -> bool {
        !self.is_gone() && !self.is_bad(offset)
    }
}

impl Medium for SimDrive {
    fn get(&self, offset: u64, length: u64) -> Vec<u8> {
        SimDrive::get(self, offset, length)
    }
    fn find(&self, offset: u64, length: u64) -> Cow<'_, [u8]> {
        SimDrive::find(self, offset, length)
    }
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        SimDrive::put(self, offset, bytes);
    }
    fn flush(&mut self) {
        SimDrive::flush(self);
    }
    fn is_gone(&self) -> bool {
        let believed = [Fault::DeadWritesNotAwaited, Fault::LockedDriveReturns];
        self.gone || (self.is_locked() && !believed.into_iter().any(planted::is))
    }
    fn try_put(&mut self, offset: u64, bytes: &[u8]) -> bool {
        SimDrive::try_put(self, offset, bytes)
    }
    fn can_read(&self, offset: u64) -> bool {
        let is_there = self.away.is_none() && !self.is_gone();
        is_there && !self.bad.contains(&(offset / self.block_bytes()))
    }
    fn is_bad(&self, offset: u64) -> bool {
        self.away.is_none() && self.bad.contains(&(offset / self.block_bytes()))
    }
}

/// What became of parts that drives did not take.
#[derive(Clone, Debug, Default)]
pub struct Untaken {
    /// Blocks that were left out.
    pub left_out: u64,
    /// Blocks that hold something else, to which parity goes.
    pub followed: Vec<RefusedRedo>,
    /// Whether nothing may start for now, and because of a block in a row with lost ones.
    pub refused: bool,
    /// See `refused`.
    pub in_lost_row: bool,
}

/// So many bytes of a chunk are checked together: as many lie together on every drive.
const PIECE_BYTES: usize = 4096;

/// Bytes of every drive.
pub const DRIVE_BYTES: u64 = 16 << 20;

/// Where things are on the members of an array whose chunks fill `data_bytes` of each.
///
/// # Panics
/// When that is more than there is.
#[must_use]
pub fn layout(block: BlockSize, members: usize, data_bytes: u64, log_bytes: u64) -> Layout {
    let mut layout = Layout::for_member(DRIVE_BYTES, block, members).expect("large enough");
    assert!(layout.data.length >= data_bytes);
    layout.data.length = data_bytes;
    // A small log comes round often.
    layout.log.length = layout.log.length.min(log_bytes);
    layout
}

/// The superblock of a new member.
#[must_use]
pub fn superblock(
    geometry: Geometry,
    layout: &Layout,
    member: MemberIndex,
    member_uuid: Uuid,
    extent_stripes: u32,
) -> Superblock {
    let block = u32::try_from(geometry.block_size().bytes()).expect("small");
    Superblock {
        array: Uuid::from_u128(7),
        member_uuid,
        member,
        update: Update(1),
        features: Features::default(),
        sectors: Sectors {
            logical: block,
            physical: block,
        },
        layout: *layout,
        geometry,
        extent_stripes,
        // Small regions, so that there are many; as large as extents are drawn.
        region_stripes: [1, 4, 16][bytes_usize(u64::from(extent_stripes)) % 3],
        created: Created::default(),
    }
}

/// Makes a drive a member.
pub fn write_superblocks(drive: &mut impl Medium, superblock: &Superblock) {
    for offset in Superblock::offsets(superblock.layout.member_bytes) {
        drive.put(offset, &superblock.encode());
    }
}

/// Fills the data area with what was there before the drive became a member.
pub fn soil(drive: &mut SimDrive, layout: &Layout, random: &mut Random) {
    drive.soil(layout.data.offset, layout.data.length, random);
}

/// Writes the region map of a new array: all regions are of this kind.
pub fn write_first_regions(drive: &mut impl Medium, superblock: &Superblock, kind: RegionKind) {
    let map = (superblock.regions(), superblock.array);
    let blocks = RegionMap::first_blocks(map, superblock.member, kind);
    for (offset, bytes) in blocks {
        drive.put(offset, &bytes);
    }
}

/// Makes zeroes of what members hold of regions that were never written: that is what they stand
/// for.
pub fn blank_unwritten(geometry: &Geometry, written: &Suspects, members: &mut [Option<Vec<u8>>]) {
    let chunk = bytes_usize(geometry.chunk_bytes());
    let stripes = (0..geometry.stripes()).map(StripeIndex);
    for stripe in stripes.filter(|stripe| !written.has(*stripe)) {
        let start = bytes_usize(geometry.row(stripe)) * chunk;
        let group = geometry.group(stripe).at() * geometry.group_members();
        for member in members[group..group + geometry.group_members()]
            .iter_mut()
            .flatten()
        {
            member[start..start + chunk].fill(0);
        }
    }
}

/// The stripes whose chunks do not agree, when members are these drives. What was never written is
/// zeroes, whatever they hold.
#[must_use]
pub fn torn_stripes(
    oracle: &model::Layout,
    layout: &Layout,
    written: &Suspects,
    members: &[Option<&SimDrive>],
) -> Vec<usize> {
    // One byte stands for all of a piece.
    let zeroes = [0];
    oracle.check_chunks(PIECE_BYTES, |stripe, member, bytes| {
        let drive = members[member]?;
        Some(if written.has(StripeIndex(bytes_u64(stripe))) {
            let start = layout.data.offset + bytes_u64(oracle.start(stripe) + bytes.start);
            drive.find(start, bytes_u64(bytes.len()))
        } else {
            Cow::Borrowed(&zeroes[..])
        })
    })
}

/// The superblock on a drive, whether or not it answers now.
#[must_use]
pub fn owner(drive: &impl Medium) -> Option<Superblock> {
    let offsets = Superblock::offsets(DRIVE_BYTES);
    Superblock::decode(&drive.find(offsets[0], bytes_u64(SUPERBLOCK_BYTES))).ok()
}

/// What is on a drive that answers.
#[must_use]
pub fn read(index: usize, drive: &impl Medium) -> Option<Found> {
    if drive.is_gone() {
        return None;
    }
    let length = bytes_u64(SUPERBLOCK_BYTES);
    let superblocks = Superblock::offsets(DRIVE_BYTES)
        .map(|offset| known::superblock((index, offset), &drive.find(offset, length)));
    let mut found = Found {
        drive: DriveIndex::from_at(index),
        drive_bytes: DRIVE_BYTES,
        identity: Default::default(),
        superblocks: superblocks.into(),
        configs: Vec::new(),
    };
    let layout = found.superblock()?.layout;
    found.configs = read_records(index, drive, &layout).found;
    Some(found)
}

/// What is in the config areas of a drive.
fn read_records(index: usize, drive: &impl Medium, layout: &Layout) -> Records {
    let places = layout.config.map(Area::record_places);
    Records::of(places.map(|area| area.map(|place| read_record(index, drive, place))))
}

/// By config area, where the next record of a drive goes.
#[must_use]
pub fn record_places(index: usize, drive: &impl Medium, layout: &Layout) -> [RecordPlace; 2] {
    read_records(index, drive, layout).next
}

/// By config area, whether the newest record of a drive says that the one there is in the middle.
#[must_use]
pub fn told(index: usize, drive: &impl Medium, layout: &Layout) -> [bool; 2] {
    let places = layout.config.into_iter().flat_map(Area::record_places);
    let records = places.filter_map(|place| read_record(index, drive, place).ok());
    let newest = records.max_by_key(|copy| copy.config.update);
    newest.map_or([false; 2], |copy| copy.moved)
}

/// The record at a place. Those of simulated arrays are small, and most are very small.
fn read_record(index: usize, drive: &impl Medium, place: u64) -> PlaceRead {
    if drive.is_bad(place) {
        return Err(FormatError::Unreadable);
    }
    let decode = |bytes: u64| known::record((index, place), &drive.find(place, bytes));
    match decode(4 << 10) {
        Err(FormatError::Length { .. }) => decode(32 << 10),
        read => read,
    }
}

/// Finds the array again, and finishes what the last commit left on members behind it. The engine
/// may be killed meanwhile: `random` decides how many of them are reached.
///
/// # Panics
/// When there is not exactly one array.
pub fn find(drives: &mut [impl Medium]) -> Assembly {
    let found: Vec<Found> = drives
        .iter()
        .enumerate()
        .filter_map(|(index, drive)| read(index, drive))
        .collect();
    let mut assembled = assemble(&found);
    assert!(assembled.strays.is_empty(), "{:?}", assembled.strays);
    assert_eq!(assembled.arrays.len(), 1);
    assembled.arrays.remove(0)
}

/// Writes the record that decides to members that are one behind, as the control path does.
///
/// # Panics
/// When a record has no room, which was looked at when it was first written.
pub fn catch_up(drives: &mut [impl Medium], assembly: &Assembly) {
    for &member in &assembly.behind {
        write_record(drives, assembly, member);
    }
}

fn write_record(drives: &mut [impl Medium], assembly: &Assembly, member: MemberIndex) {
    let layout = &assembly.superblock.layout;
    let area = layout.config[ArrayConfig::slot(assembly.config.update).at()];
    let drive = assembly.members[member.at()].expect("it was found");
    let [start, middle] = area.record_places();
    let index = drive.at();
    let drive = &mut drives[index];
    let known = record_places(index, drive, layout);
    let mut moved = known.map(|place| place == RecordPlace::Middle);
    let mut bytes = vec![0; bytes_usize(area.length)];
    let mut encode = |moved| {
        let length = assembly.config.encode_copy((member, moved), &mut bytes);
        bytes[..length.expect("room")].to_vec()
    };
    let slot = ArrayConfig::slot(assembly.config.update).at();
    if known[slot] != RecordPlace::Start || !drive.try_put(start, &encode(moved)) {
        moved[slot] = true;
        drive.put(middle, &encode(moved));
    }
}

/// The region map, from the members that are in sync.
#[must_use]
pub fn regions(drives: &[impl Medium], assembly: &Assembly) -> RegionMap {
    let (superblock, config) = (&assembly.superblock, &assembly.config);
    let space = superblock.regions();
    let mut map = RegionMap::to_read(superblock, config);
    for block in 0..u32::try_from(space.blocks()).expect("few") {
        for member in space.holders(block) {
            let in_sync = config.members[member.at()].state == MemberState::InSync;
            let Some(drive) = assembly.members[member.at()].filter(|_| in_sync) else {
                continue;
            };
            for place in 0..2 {
                let offset = superblock.layout.region_map.offset;
                let offset = offset + RegionBlock::offset(block, place);
                let bytes = drives[drive.at()].find(offset, bytes_u64(REGION_BLOCK_BYTES));
                map.take(member, block, &bytes);
            }
        }
    }
    map.complete();
    map
}

/// Erases what must not be found on a drive that returns, as the control path does.
pub fn erase(drive: &mut impl Medium, superblock: &Superblock) {
    for area in areas_to_erase(superblock) {
        drive.put(area.offset, &vec![0; bytes_usize(area.length)]);
    }
}

/// Writes a part of what is to be done again, as the control path does.
/// What a drive that has not taken a block keeps there, if that can be followed.
fn keeps(
    drive: &mut impl Medium,
    assembly: &Assembly,
    (member, block): (MemberIndex, u64),
    bytes: &[u8],
) -> Option<RefusedRedo> {
    let superblock = &assembly.superblock;
    let block_bytes = superblock.geometry.block_size().bytes();
    let offset = superblock.layout.data.offset + block * block_bytes;
    let trial = superblock.layout.bad_ranges.offset;
    let tried = drive.can_read(offset) && drive.try_put(trial, &[0; SUPERBLOCK_BYTES]);
    tried.then(|| RefusedRedo {
        member,
        offset: block * block_bytes,
        bytes: bytes.to_vec(),
        holds: drive.get(offset, block_bytes),
    })
}

fn redo_part(drive: &mut impl Medium, assembly: &Assembly, part: &Redo, untaken: &mut Untaken) {
    let (superblock, lost) = (&assembly.superblock, &assembly.config.lost);
    let (geometry, data) = (&superblock.geometry, superblock.layout.data.offset);
    if drive.try_put(data + part.offset, &part.bytes) {
        return;
    }
    let block_bytes = geometry.block_size().bytes();
    let first = part.offset / block_bytes;
    let blocks = part.bytes.chunks_exact(bytes_usize(block_bytes));
    for (block, bytes) in (first..).zip(blocks) {
        let offset = data + block * block_bytes;
        let has = drive.can_read(offset) && *drive.find(offset, block_bytes) == *bytes;
        if has || drive.try_put(offset, bytes) {
            continue;
        }
        if let Some(kept) = keeps(drive, assembly, (part.member, block), bytes) {
            untaken.followed.push(kept);
            continue;
        }
        let is_bad = || drive.is_bad(offset);
        if lost.may_be_left_out(geometry, (part.member, block), is_bad) {
            untaken.left_out += 1;
            continue;
        }
        untaken.refused = true;
        untaken.in_lost_row = lost.row_has(geometry, part.member, block);
        return;
    }
}

/// Writes what is to be done again on the members that are here, as the control path does; not more
/// than `most` parts of it.
pub fn redo_all(
    drives: &mut [impl Medium],
    assembly: &Assembly,
    redo: &[Redo],
    most: usize,
) -> Untaken {
    let mut untaken = Untaken::default();
    for part in redo.iter().take(most) {
        if let Some(drive) = assembly.members[part.member.at()] {
            redo_part(&mut drives[drive.at()], assembly, part, &mut untaken);
        }
        if untaken.refused {
            return untaken;
        }
    }
    if untaken.followed.is_empty() || most < redo.len() {
        return untaken;
    }
    let counts = |member, stripe| assembly.counts(member, stripe);
    let geometry = &assembly.superblock.geometry;
    let agrees = agree_with(geometry, redo, &untaken.followed, counts);
    let data = assembly.superblock.layout.data.offset;
    let parts = agrees.expect("memory");
    untaken.refused = parts.is_none();
    for part in parts.into_iter().flatten() {
        let drive = assembly.members[part.member.at()].expect("it is here");
        untaken.refused |= !drives[drive.at()].try_put(data + part.offset, &part.bytes);
    }
    untaken
}

/// What is to be done again by the log, and which members may know better that are not here.
#[must_use]
pub fn read_log(
    drives: &[impl Medium],
    assembly: &Assembly,
    regions: &RegionMap,
) -> (Vec<Redo>, Vec<MemberIndex>) {
    let (superblock, config) = (&assembly.superblock, &assembly.config);
    if config.clean {
        return (Vec::new(), Vec::new());
    }
    let space = superblock.log();
    let is_here = |member: MemberIndex| assembly.members[member.at()].is_some();
    let mut replay = Replay::new(config, superblock, regions, is_here);
    for (position, drive) in assembly.members.iter().enumerate() {
        let Some(drive) = drive else { continue };
        let (member, drive) = (MemberIndex::from_at(position), &drives[drive.at()]);
        for slot in 0..space.slots() {
            let offset = space.slot(slot);
            let header = drive.find(offset, bytes_u64(LOG_HEADER_BYTES));
            if let Some(bytes) = replay.payload_bytes(member, &header) {
                let payload = drive.get(offset + bytes_u64(LOG_HEADER_BYTES), bytes_u64(bytes));
                replay.take(member, &header, payload);
            }
        }
    }
    (replay.redo(), replay.guesses())
}

/// Makes durable what was found in the log, as the control path does: a process was killed, and it
/// may be in caches only.
pub fn flush_log(drives: &mut [impl Medium], assembly: &Assembly) {
    if !planted::is(Fault::ReplayedUnflushed) {
        for drive in assembly.members.iter().flatten() {
            drives[drive.at()].flush();
        }
    }
}

/// Writes that those are out who are not here, as the control path does before it does again what
/// they may know better, and which blocks nobody can tell; on so many members at the most. It is
/// the record that decides from then on, once it is flushed. Whether all members have it.
///
/// # Panics
/// When the array may not start.
pub fn exclude_absent(
    drives: &mut [impl Medium],
    assembly: &mut Assembly,
    (regions, redo, who): (&RegionMap, &[Redo], &[MemberIndex]),
    lost: &[Range<u64>],
    (id, most): (u128, usize),
) -> bool {
    let next = assembly.without(|member| who.contains(&member), id, true);
    let mut next = next.expect("startable");
    assembly.note_replay(&mut next, &mut regions.clone(), redo);
    for blocks in assembly.lost_with(&next, lost) {
        next.lost.add(blocks);
    }
    assembly.config = next;
    let members = (0..assembly.members.len()).map(MemberIndex::from_at);
    let here: Vec<MemberIndex> = members
        .filter(|member| assembly.members[member.at()].is_some())
        .collect();
    for member in here.iter().take(most) {
        write_record(drives, assembly, *member);
    }
    here.len() <= most
}

/// By member: where it is.
#[must_use]
pub fn places(assembly: &Assembly) -> Vec<Option<MemberPlace>> {
    let layout = &assembly.superblock.layout;
    let drives = assembly.members.iter();
    drives
        .map(|drive| drive.map(|drive| place(layout, drive.at())))
        .collect()
}

/// Statuses that a failing drive answers with.
pub const ERRORS: [Status; 3] = [Status::Media, Status::NoSpace, Status::Gone];
