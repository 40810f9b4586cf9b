//! The logs of members, read at a start: each slot is a read of its own, an array may have 100,000
//! of them, and guests wait meanwhile. So all members are read at once, and of each several slots.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use array::Replay;
use array::format::{LOG_HEADER_BYTES, SUPERBLOCK_BYTES, Superblock};
use drive::Drive;
use units::{MemberIndex, bytes_u64};

use crate::records::MISSED_MAX;

/// Threads that read, unless there are more members; and how many of them read one drive, at most.
const READERS_MAX: usize = 128;
const READERS_OF_ONE_MAX: usize = 8;

/// Bytes of a header that are kept: it says nothing behind them.
const KEPT_BYTES: usize = 512;

/// A slot whose header counts, or one that cannot be read.
struct Slot {
    /// Empty when it is the header that cannot be read.
    header: Vec<u8>,
    payload: io::Result<Vec<u8>>,
}

/// What the log of a member holds that counts.
#[derive(Default)]
pub(crate) struct MemberLog {
    slots: Vec<Slot>,
    /// Nothing could be read of the drive when one of them could not.
    is_gone: bool,
}

/// What several threads read of one log.
struct Source<'a> {
    drive: &'a Drive,
    member: MemberIndex,
    superblock: &'a Superblock,
    replay: &'a Replay,
    readers: usize,
    /// The next slot to be read.
    next: AtomicU32,
    /// Slots that could not be read. After many of them the rest is not looked at.
    missed: AtomicUsize,
    is_gone: AtomicBool,
}

impl Source<'_> {
    /// Slots that no other thread reads.
    fn read_part(&self) -> Vec<Slot> {
        let space = self.superblock.log();
        let mut found = Vec::new();
        while self.missed.load(Ordering::Relaxed) <= MISSED_MAX {
            let slot = self.next.fetch_add(1, Ordering::Relaxed);
            if slot >= space.slots() {
                break;
            }
            if let Some(slot) = self.read_slot(space.slot(slot)) {
                if slot.payload.is_err() {
                    self.missed.fetch_add(1, Ordering::Relaxed);
                    let is_gone = is_gone(self.drive, self.superblock);
                    self.is_gone.fetch_or(is_gone, Ordering::Relaxed);
                }
                found.push(slot);
            }
        }
        found
    }

    fn read_slot(&self, offset: u64) -> Option<Slot> {
        let mut header = vec![0; LOG_HEADER_BYTES];
        if let Err(source) = self.drive.read(offset, &mut header) {
            return Some(Slot {
                header: Vec::new(),
                payload: Err(source),
            });
        }
        let mut payload = vec![0; self.replay.holds(self.member, &header)?];
        let read = if payload.is_empty() {
            Ok(())
        } else {
            let offset = offset + bytes_u64(LOG_HEADER_BYTES);
            self.drive.read(offset, &mut payload)
        };
        header.truncate(KEPT_BYTES);
        header.shrink_to_fit();
        Some(Slot {
            header,
            payload: read.map(|()| payload),
        })
    }

    /// All slots, by the threads of its readers; without threads where there are none to be had.
    fn read<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Vec<Reader<'scope>> {
        let start = |_| {
            let reader = Builder::new().name("log-reader".into());
            let read = reader.spawn_scoped(scope, || self.read_part());
            read.map_or_else(|_| Reader::Done(self.read_part()), Reader::Runs)
        };
        (0..self.readers).map(start).collect()
    }
}

enum Reader<'scope> {
    Runs(ScopedJoinHandle<'scope, Vec<Slot>>),
    Done(Vec<Slot>),
}

/// Reads the logs of all members that are here; by `MemberIndex`.
pub(crate) fn read_all(
    drives: &[Option<(String, Arc<Drive>)>],
    superblock: &Superblock,
    replay: &Replay,
) -> Vec<MemberLog> {
    let here = drives.iter().flatten().count().max(1);
    let readers = (READERS_MAX / here).clamp(1, READERS_OF_ONE_MAX);
    let mut sources = Vec::with_capacity(drives.len());
    for (position, drive) in drives.iter().enumerate() {
        sources.push(drive.as_ref().map(|(_, drive)| Source {
            drive: drive.as_ref(),
            member: MemberIndex::from_at(position),
            superblock,
            replay,
            readers,
            next: AtomicU32::new(0),
            missed: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
        }));
    }
    std::thread::scope(|scope| {
        let readers: Vec<Vec<Reader<'_>>> = sources
            .iter()
            .map(|source| source.as_ref().map_or_else(Vec::new, |one| one.read(scope)))
            .collect();
        let join = |reader: Reader<'_>| match reader {
            Reader::Runs(thread) => thread.join().expect("a reader does not panic"),
            Reader::Done(slots) => slots,
        };
        let log = |(readers, source): (Vec<Reader<'_>>, &Option<Source<'_>>)| MemberLog {
            slots: readers.into_iter().flat_map(join).collect(),
            is_gone: source
                .as_ref()
                .is_some_and(|source| source.is_gone.load(Ordering::Relaxed)),
        };
        readers.into_iter().zip(&sources).map(log).collect()
    })
}

impl MemberLog {
    /// Slots that count, and those that cannot be read.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds it to what is known of all logs; how many slots could not be read.
    ///
    /// # Errors
    /// The drive does not answer at all.
    pub(crate) fn take(self, member: MemberIndex, replay: &mut Replay) -> io::Result<usize> {
        let mut missed = 0;
        let mut last = None;
        for Slot { header, payload } in self.slots {
            let counts = !header.is_empty() && replay.payload_bytes(member, &header).is_some();
            match payload {
                Ok(payload) if counts => replay.take(member, &header, payload),
                Ok(_) => {}
                Err(source) => {
                    last = Some(source);
                    replay.miss(member);
                    missed += 1;
                }
            }
        }
        match last {
            Some(source) if self.is_gone => Err(source),
            _ => Ok(missed),
        }
    }
}

/// Whether nothing can be read where a superblock was.
fn is_gone(drive: &Drive, superblock: &Superblock) -> bool {
    let offsets = Superblock::offsets(superblock.layout.member_bytes);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let mut reads = |&offset: &u64| drive.read(offset, &mut bytes).is_ok();
    !offsets.iter().any(&mut reads)
}
