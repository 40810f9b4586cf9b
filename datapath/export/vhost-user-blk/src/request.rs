//! What a chain of a virtio-blk ring asks for, parsed once into checked types.
//!
//! Foreign bytes end here: no length, sector or type of a guest gets past this file unchecked.
//! VIRTIO lets a driver cut header, data and status into segments as it likes, so nothing here
//! looks at where one segment ends and the next begins.

use block::{Operation, Status};
use memory::Segment;
use units::{bytes_u64, limits};

use crate::profile::{Access, Profile, RangeLimits, SECTOR_BYTES, SERIAL_BYTES};

/// Bytes of `struct virtio_blk_req` before the data: type, reserved, sector.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of `struct virtio_blk_discard_write_zeroes`: sector, sectors, flags.
const RANGE_BYTES: usize = 16;
/// Bit 0 of a range's flags: the space may be released.
const RANGE_UNMAP: u32 = 1;

const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
const TYPE_DISCARD: u32 = 11;
const TYPE_WRITE_ZEROES: u32 = 13;

/// What the guest is told. The only place that knows virtio's status bytes.
#[inline]
pub(crate) fn status_byte(status: Status) -> u8 {
    const OK: u8 = 0;
    const IOERR: u8 = 1;
    const UNSUPP: u8 = 2;
    match status {
        Status::Ok => OK,
        Status::Unsupported => UNSUPP,
        Status::Media
        | Status::Gone
        | Status::OutOfRange
        | Status::ReadOnly
        | Status::NoSpace
        | Status::Invalid => IOERR,
    }
}

/// Consecutive blocks, in blocks of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) start: u64,
    pub(crate) count: u32,
}

impl Blocks {
    /// What a flush covers.
    pub(crate) const NONE: Blocks = Blocks { start: 0, count: 0 };
}

/// What is to be done for a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Answer at once.
    Answer(Status),
    /// Answer with the serial.
    Serial,
    /// Move the data of the chain from or to blocks.
    Move(Operation, Blocks),
    /// The same of more than a request may be: each of the ranges that were parsed beside is one.
    Large(Operation),
    /// Make what was completed durable.
    Flush,
    /// Discard or zero the ranges that were parsed beside.
    Ranges(Operation),
}

/// Why a chain cannot even be answered. Breaks its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The readable part is shorter than a request header.
    ShortHeader,
    /// There is no writable byte for the status.
    NoStatus,
}

/// The two ends of a chain: `struct virtio_blk_req` and the status byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    kind: u32,
    sector: u64,
    /// Where the status goes.
    pub(crate) status: Segment,
    /// Bytes of all writable segments: what the used ring is told, since the status is the last.
    pub(crate) writable: u64,
    /// Bytes of all readable segments after the header.
    readable_data: u64,
}

/// Copies the bytes from `offset` on to all of `target`; false when there are too few.
fn copy_out(segments: &[Segment], offset: usize, target: &mut [u8]) -> bool {
    let (mut skip, mut done) = (offset, 0);
    for segment in segments {
        if done == target.len() {
            break;
        }
        if skip >= segment.len() {
            skip -= segment.len();
            continue;
        }
        let take = (segment.len() - skip).min(target.len() - done);
        segment
            .part(skip, take)
            .copy_to_slice(&mut target[done..done + take]);
        skip = 0;
        done += take;
    }
    done == target.len()
}

/// Copies the serial to the writable part; what lies after the data is the status, so that a
/// guest with less room gets the beginning.
pub(crate) fn copy_serial(parts: Parts<'_>, serial: &[u8; SERIAL_BYTES]) {
    let room = units::bytes_usize(parts.writable_bytes - 1);
    let source = &serial[..room.min(SERIAL_BYTES)];
    let mut done = 0;
    for segment in parts.writable {
        let take = segment.len().min(source.len() - done);
        segment
            .part(0, take)
            .copy_from_slice(&source[done..done + take]);
        done += take;
    }
}

/// Reads the two ends of a chain.
///
/// # Errors
/// When one of them is missing.
#[inline]
pub(crate) fn open(parts: Parts<'_>) -> Result<Envelope, Malformed> {
    let mut header = [0u8; HEADER_BYTES];
    // Drivers put the header into a segment of its own; they need not.
    match parts.readable {
        [first, ..] if first.len() >= HEADER_BYTES => {
            first.part(0, HEADER_BYTES).copy_to_slice(&mut header);
        }
        readable => {
            if !copy_out(readable, 0, &mut header) {
                return Err(Malformed::ShortHeader);
            }
        }
    }
    let last = parts
        .writable
        .iter()
        .rfind(|segment| !segment.is_empty())
        .ok_or(Malformed::NoStatus)?;
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let [low, high] = [u32::from_le_bytes(word(8)), u32::from_le_bytes(word(12))];
    Ok(Envelope {
        kind: u32::from_le_bytes(word(0)),
        sector: u64::from(low) | u64::from(high) << 32,
        status: last.part(last.len() - 1, 1),
        writable: parts.writable_bytes,
        readable_data: parts.readable_bytes - bytes_u64(HEADER_BYTES),
    })
}

/// The one data segment of a chain, where header, data and status each are by themselves, as all
/// drivers lay small requests out.
#[inline(always)]
pub(crate) fn only_data_of(operation: Operation, parts: Parts<'_>) -> Option<Segment> {
    match (operation, parts.readable, parts.writable) {
        (Operation::Read, _, [bytes, status]) if status.len() == 1 => Some(*bytes),
        (Operation::Write, [header, bytes], _) if header.len() == HEADER_BYTES => Some(*bytes),
        _ => None,
    }
}

/// Appends the data segments of a chain to `data`: what is readable after the header for a
/// write, what is writable before the status for a read.
pub(crate) fn data_of(operation: Operation, parts: Parts<'_>, data: &mut Vec<Segment>) {
    let (segments, mut skip, mut left) = match operation {
        Operation::Read => (parts.writable, 0, parts.writable_bytes - 1),
        Operation::Write | Operation::Flush | Operation::Discard | Operation::WriteZeroes => (
            parts.readable,
            HEADER_BYTES,
            parts.readable_bytes - bytes_u64(HEADER_BYTES),
        ),
    };
    for segment in segments {
        if left == 0 {
            return;
        }
        let from = skip.min(segment.len());
        skip -= from;
        let take = units::bytes_usize(left.min(bytes_u64(segment.len() - from)));
        if take > 0 {
            data.push(segment.part(from, take));
            left -= bytes_u64(take);
        }
    }
}

/// The segments of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    /// What the guest filled.
    pub(crate) readable: &'a [Segment],
    /// What we fill.
    pub(crate) writable: &'a [Segment],
    /// Bytes of `readable`.
    pub(crate) readable_bytes: u64,
    /// Bytes of `writable`.
    pub(crate) writable_bytes: u64,
}

/// Decides what a chain asks for. Fills `ranges` for [`Work::Ranges`]; `sectors` is the size.
#[inline]
pub(crate) fn parse(
    envelope: &Envelope,
    parts: Parts<'_>,
    shown: (&Profile, u64),
    ranges: &mut Vec<Blocks>,
) -> Work {
    let (profile, sectors) = shown;
    ranges.clear();
    let read_only = profile.access == Access::ReadOnly;
    match envelope.kind {
        TYPE_IN => transfer(Operation::Read, envelope, shown, ranges),
        TYPE_OUT if read_only => Work::Answer(Status::ReadOnly),
        TYPE_OUT => transfer(Operation::Write, envelope, shown, ranges),
        TYPE_FLUSH => Work::Flush,
        TYPE_GET_ID => Work::Serial,
        TYPE_DISCARD | TYPE_WRITE_ZEROES => {
            let (operation, limits) = if envelope.kind == TYPE_DISCARD {
                (Operation::Discard, profile.discard)
            } else {
                (Operation::WriteZeroes, profile.write_zeroes)
            };
            match limits {
                None => Work::Answer(Status::Unsupported),
                Some(_) if read_only => Work::Answer(Status::ReadOnly),
                Some(limits) => {
                    let source = RangeSource {
                        operation,
                        readable: parts.readable,
                        bytes: envelope.readable_data,
                        limits,
                    };
                    match source.parse(profile, sectors, ranges) {
                        Ok(()) => Work::Ranges(operation),
                        Err(refused) => Work::Answer(refused),
                    }
                }
            }
        }
        _ => Work::Answer(Status::Unsupported),
    }
}

#[inline]
fn transfer(
    operation: Operation,
    envelope: &Envelope,
    (profile, sectors): (&Profile, u64),
    ranges: &mut Vec<Blocks>,
) -> Work {
    let bytes = match operation {
        Operation::Read => envelope.writable - 1,
        Operation::Write | Operation::Flush | Operation::Discard | Operation::WriteZeroes => {
            envelope.readable_data
        }
    };
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Work::Answer(Status::Invalid);
    }
    match blocks_of(profile, sectors, envelope.sector, bytes / SECTOR_BYTES) {
        Err(refused) => Work::Answer(refused),
        Ok(Blocks { count: 0, .. }) => Work::Answer(Status::Ok),
        Ok(blocks) if bytes > limits::REQUEST_BYTES_MAX => {
            cut_blocks(blocks, profile, ranges);
            Work::Large(operation)
        }
        Ok(blocks) => Work::Move(operation, blocks),
    }
}

/// Cuts blocks into ranges of as many as a request may have.
#[cold]
fn cut_blocks(all: Blocks, profile: &Profile, ranges: &mut Vec<Blocks>) {
    let most = limits::REQUEST_BYTES_MAX >> profile.block.shift();
    let most = u32::try_from(most).expect("a request has few blocks");
    let mut done = 0;
    while done < all.count {
        let count = most.min(all.count - done);
        ranges.push(Blocks {
            start: all.start + u64::from(done),
            count,
        });
        done += count;
    }
}

/// Cuts the data segments of a chain so that each request of `Work::Large` begins with one.
#[cold]
pub(crate) fn cut_data(data: &mut Vec<Segment>) {
    let most = units::bytes_usize(limits::REQUEST_BYTES_MAX);
    let whole = std::mem::take(data);
    let mut room = most;
    for mut segment in whole {
        while segment.len() > room {
            data.push(segment.part(0, room));
            segment = segment.part(room, segment.len() - room);
            room = most;
        }
        data.push(segment);
        room -= segment.len();
        if room == 0 {
            room = most;
        }
    }
}

/// Sectors as blocks of the array, if they are inside and begin and end with a block.
#[inline]
fn blocks_of(profile: &Profile, size: u64, sector: u64, sectors: u64) -> Result<Blocks, Status> {
    let end = sector.checked_add(sectors).ok_or(Status::OutOfRange)?;
    if end > size {
        return Err(Status::OutOfRange);
    }
    // A block is a power of two of sectors, so no division is needed.
    let shift = profile.block.shift() - SECTOR_BYTES.ilog2();
    if (sector | sectors) & ((1 << shift) - 1) != 0 {
        return Err(Status::Invalid);
    }
    Ok(Blocks {
        start: sector >> shift,
        count: u32::try_from(sectors >> shift).map_err(|_| Status::Invalid)?,
    })
}

/// The ranges of a discard or write-zeroes, still in guest memory.
struct RangeSource<'a> {
    operation: Operation,
    readable: &'a [Segment],
    bytes: u64,
    limits: RangeLimits,
}

impl RangeSource<'_> {
    /// Copies each range out of guest memory once, checks it, and appends it to `ranges`.
    fn parse(&self, profile: &Profile, size: u64, ranges: &mut Vec<Blocks>) -> Result<(), Status> {
        let count = self.bytes / bytes_u64(RANGE_BYTES);
        if !self.bytes.is_multiple_of(bytes_u64(RANGE_BYTES))
            || count == 0
            || count > u64::from(self.limits.ranges_max)
        {
            return Err(Status::Invalid);
        }
        for index in 0..units::bytes_usize(count) {
            let mut bytes = [0u8; RANGE_BYTES];
            let offset = HEADER_BYTES + index * RANGE_BYTES;
            let whole = copy_out(self.readable, offset, &mut bytes);
            assert!(whole, "the ranges were counted from the same segments");
            let blocks = self.check(profile, size, bytes)?;
            if blocks.count > 0 {
                ranges.push(blocks);
            }
        }
        Ok(())
    }

    fn check(
        &self,
        profile: &Profile,
        size: u64,
        bytes: [u8; RANGE_BYTES],
    ) -> Result<Blocks, Status> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        let sector = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let sectors = u32::from_le_bytes([i, j, k, l]);
        let flags = u32::from_le_bytes([m, n, o, p]);
        // VIRTIO 1.2, 5.2.6.2: unknown flags, and unmap on a discard, are unsupported.
        let known = if self.operation == Operation::Discard {
            0
        } else {
            RANGE_UNMAP
        };
        if flags & !known != 0 {
            return Err(Status::Unsupported);
        }
        if sectors > self.limits.sectors_max {
            return Err(Status::Invalid);
        }
        if self.operation == Operation::Discard {
            // A discard is a hint, so what does not fill a block is left as it is.
            return discarded(profile, size, sector, u64::from(sectors));
        }
        blocks_of(profile, size, sector, u64::from(sectors))
    }
}

/// The whole blocks inside a range of sectors that lies inside.
fn discarded(profile: &Profile, size: u64, sector: u64, sectors: u64) -> Result<Blocks, Status> {
    let end = sector.checked_add(sectors).ok_or(Status::OutOfRange)?;
    if end > size {
        return Err(Status::OutOfRange);
    }
    let block_sectors = profile.block.bytes() / SECTOR_BYTES;
    let first = sector.div_ceil(block_sectors);
    let count = (end / block_sectors).saturating_sub(first);
    Ok(Blocks {
        start: first,
        count: u32::try_from(count).map_err(|_| Status::Invalid)?,
    })
}

#[cfg(test)]
mod tests;
