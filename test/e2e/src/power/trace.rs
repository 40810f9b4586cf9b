//! What the kernel did, in its order: block tracepoints say when each bio of each member was handed
//! to its drive and when it was done; the log of dm-log-writes below all members says what was
//! written.
//!
//! The log alone is not enough: it tells the order of completion, but not of which member a flush
//! was (an empty flush has no address once it has passed a second device mapper), and a flush of
//! one drive says nothing about another's cache.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a sector, the unit of the tracepoints.
pub(crate) const SECTOR: usize = 512;

/// What happened to one member, or to the marker device (the last).
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A write was handed to the drive: it may land from now on.
    WriteBegun { device: usize, write: usize },
    /// It was answered; when it was forced through the cache, it is durable.
    WriteDone { device: usize, write: usize },
    /// A flush was handed to the drive.
    FlushBegun { device: usize, flush: usize },
    /// It was answered: what was answered before it began is durable.
    FlushDone { device: usize, flush: usize },
}

/// A write and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// First sector on its device.
    pub(crate) sector: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_forced: bool,
}

impl Write {
    /// Whether both change a common sector.
    pub(crate) fn meets(&self, other: &Write) -> bool {
        let end = |write: &Write| write.sector + units::bytes_u64(write.bytes.len() / SECTOR);
        self.sector < end(other) && other.sector < end(self)
    }
}

/// A whole recording.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) events: Vec<Event>,
    pub(crate) writes: Vec<Write>,
}

/// Which end of a bio's life a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Begun,
    Done,
}

/// What a bio does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write { is_forced: bool },
    Flush,
}

/// A line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    device: usize,
    moment: Moment,
    kind: Kind,
    sector: u64,
    sectors: u64,
}

impl Line {
    /// `… 35: block_bio_queue: 253,2 WS 24 + 8 [dd]`; `None` when it is no change of a member or
    /// of the markers.
    fn parse(line: &str) -> Result<Option<Line>, String> {
        let wrong = |why: &str| format!("{why}: {line}");
        let begun = line.split_once("block_bio_queue: ");
        let done = line.split_once("block_bio_complete: ");
        let (moment, rest) = match (begun, done) {
            (Some((_, rest)), _) => (Moment::Begun, rest),
            (None, Some((_, rest))) => (Moment::Done, rest),
            (None, None) => return Err(wrong("no line of a trace")),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [device, operation, sector, "+", sectors, ..] = words[..] else {
            return Err(wrong("no line of a trace"));
        };
        // The device mapper's major number; its first device is the log.
        let Some(minor) = device.strip_prefix("253,").filter(|minor| *minor != "0") else {
            return Ok(None);
        };
        let number = |word: &str| word.parse().map_err(|_| wrong("no number"));
        // `F` before the letter of the operation is a flush, after it FUA.
        let (before, after) = match operation.split_once('W') {
            Some(parts) => parts,
            None if operation.starts_with('F') => (operation, ""),
            None if operation.contains('D') => return Err(wrong("a discard was not expected")),
            None => return Ok(None),
        };
        let sectors = number(sectors)?;
        let kind = match before.contains('F') {
            true if sectors > 0 => return Err(wrong("a flush with data was not expected")),
            true => Kind::Flush,
            false => Kind::Write {
                is_forced: after.contains('F'),
            },
        };
        Ok(Some(Line {
            device: units::bytes_usize(number(minor)?) - 1,
            moment,
            kind,
            sector: number(sector)?,
            sectors,
        }))
    }
}

/// Writes of the log by where they went on the whole device, oldest first.
type Logged = BTreeMap<u64, VecDeque<Vec<u8>>>;

/// The log of dm-log-writes: a superblock, then an entry and its data, one after another.
fn read_log(path: &Path) -> Result<Logged, String> {
    const MAGIC: u64 = 0x006a_7366_7773_6872;
    const DISCARD: u64 = 4;
    const MARK: u64 = 8;
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let read = |offset: u64, bytes: u64| -> Result<Vec<u8>, String> {
        let mut found = vec![0; usize::try_from(bytes).map_err(|error| error.to_string())?];
        file.read_exact_at(&mut found, offset)
            .map_err(|error| format!("log at {offset}: {error}"))?;
        Ok(found)
    };
    let word = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"))
    };
    let head = read(0, 512)?;
    let sector_bytes = word(&head, 3) & u64::from(u32::MAX);
    if word(&head, 0) != MAGIC || word(&head, 1) != 1 || sector_bytes != 512 {
        return Err(format!("{} is no log of 512-byte sectors", path.display()));
    }
    let mut logged = Logged::new();
    let mut place = sector_bytes;
    for _ in 0..word(&head, 2) {
        let entry = read(place, sector_bytes)?;
        place += sector_bytes;
        let (sector, sectors, flags) = (word(&entry, 0), word(&entry, 1), word(&entry, 2));
        if flags & MARK != 0 {
            continue;
        }
        if flags & DISCARD != 0 {
            return Err("a discard was not expected in the log".to_owned());
        }
        if sectors > 0 {
            let bytes = read(place, sectors * sector_bytes)?;
            logged.entry(sector).or_default().push_back(bytes);
            place += sectors * sector_bytes;
        }
    }
    Ok(logged)
}

impl Recording {
    /// Puts trace and log together; device `i` begins `device_sectors` × i on the logged device.
    ///
    /// # Errors
    /// When they do not agree on every single write.
    pub(crate) fn read(trace: &str, log: &Path, device_sectors: u64) -> Result<Recording, String> {
        let mut logged = read_log(log)?;
        let mut recording = Recording::default();
        // By device and sector: writes under way; by device: flushes under way.
        let mut writing: BTreeMap<(usize, u64), VecDeque<usize>> = BTreeMap::new();
        let mut flushing: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
        let mut flushes = 0;
        for line in trace.lines().filter(|line| !line.starts_with('#')) {
            let Some(line) = Line::parse(line)? else {
                continue;
            };
            let (device, place) = (line.device, (line.device, line.sector));
            let event = match (line.moment, line.kind) {
                (Moment::Begun, Kind::Flush) => {
                    let flush = flushes;
                    flushing.entry(device).or_default().push_back(flush);
                    flushes += 1;
                    Event::FlushBegun { device, flush }
                }
                (Moment::Done, Kind::Flush) => {
                    // Which of several ends first is not told; the newest covers the most, so
                    // nothing counts as lost that was safe.
                    let flush = flushing.get_mut(&device).and_then(VecDeque::pop_back);
                    let flush = flush.ok_or("a flush ends that has not begun")?;
                    Event::FlushDone { device, flush }
                }
                (Moment::Begun, Kind::Write { is_forced }) => {
                    let write = recording.writes.len();
                    recording.writes.push(Write {
                        sector: line.sector,
                        bytes: Vec::new(),
                        is_forced,
                    });
                    writing.entry(place).or_default().push_back(write);
                    Event::WriteBegun { device, write }
                }
                (Moment::Done, Kind::Write { .. }) => {
                    let write = writing.get_mut(&place).and_then(VecDeque::pop_front);
                    let write = write.ok_or("a write ends that has not begun")?;
                    let on_all = line.sector + device_sectors * units::bytes_u64(device);
                    let bytes = logged.get_mut(&on_all).and_then(VecDeque::pop_front);
                    let bytes = bytes.ok_or_else(|| format!("no data of sector {on_all}"))?;
                    if bytes.len() != units::bytes_usize(line.sectors) * SECTOR {
                        return Err(format!("another length logged at sector {on_all}"));
                    }
                    recording.writes[write].bytes = bytes;
                    Event::WriteDone { device, write }
                }
            };
            recording.events.push(event);
        }
        let left: usize = logged.values().map(VecDeque::len).sum();
        let open: usize = writing.values().map(VecDeque::len).sum();
        if left + open > 0 {
            return Err(format!(
                "{left} logged writes too many, {open} not finished"
            ));
        }
        Ok(recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_device_moment_and_kind() {
        let parse = |rest: &str| Line::parse(&format!(" dd-188 [000] d.h2. 54: {rest} [0]"));
        let line = |moment, kind, sectors| Line {
            device: 1,
            moment,
            kind,
            sector: 56,
            sectors,
        };
        let write = |is_forced| Kind::Write { is_forced };
        for (rest, wanted) in [
            (
                "block_bio_queue: 253,2 WS 56 + 8",
                line(Moment::Begun, write(false), 8),
            ),
            (
                "block_bio_queue: 253,2 WFS 56 + 8",
                line(Moment::Begun, write(true), 8),
            ),
            (
                "block_bio_complete: 253,2 W 56 + 8",
                line(Moment::Done, write(false), 8),
            ),
            (
                "block_bio_complete: 253,2 FWS 56 + 0",
                line(Moment::Done, Kind::Flush, 0),
            ),
        ] {
            assert_eq!(parse(rest), Ok(Some(wanted)), "{rest}");
        }
        for rest in [
            "block_bio_queue: 253,0 WS 56 + 8",
            "block_bio_queue: 253,2 RA 56 + 8",
        ] {
            assert_eq!(parse(rest), Ok(None), "{rest}");
        }
        for rest in [
            "block_bio_queue: 253,2 FWS 56 + 8",
            "block_bio_queue: 253,2 DS 56 + 8",
            "block_rq_issue: 253,2 WS 56 + 8",
        ] {
            assert!(parse(rest).is_err(), "{rest}");
        }
    }
}
