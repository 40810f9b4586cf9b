//! The region of a split ring: one entry per head.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use memory::Segment;

use super::{SIZE_AT, VERSION, VERSION_AT, size_mark};
use crate::RingError;
use crate::chain::Head;
use crate::shared::Cells;

/// Bytes before the entries.
const HEADER: usize = 16;
/// Bytes of one entry: in flight (1), padding (5), next of its batch (2), counter (8).
const ENTRY: usize = 16;
/// Half-word that holds the head answered last.
const BATCH_HEAD_AT: usize = 6;
/// Half-word that holds the used index up to which the entries are true.
const USED_AT: usize = 7;
/// Half-word, in the padding of the first entry, that holds the ring's size if that is another.
const RING_SIZE_AT: usize = 9;

/// Bytes of the region of a queue.
pub(super) fn bytes(entries: u16) -> usize {
    HEADER + ENTRY * usize::from(entries)
}

/// The record of one split ring.
#[derive(Debug)]
pub(crate) struct SplitRecord {
    /// Of the region; not below the ring's size.
    entries: u16,
    bytes: Cells<AtomicU8>,
    halves: Cells<AtomicU16>,
    longs: Cells<AtomicU64>,
    /// Orders the requests by when they were taken.
    counter: u64,
    /// Heads answered and not published.
    batch: Vec<u16>,
}

impl SplitRecord {
    pub(crate) fn new(entries: u16, region: Segment) -> Option<SplitRecord> {
        let length = bytes(entries);
        Some(SplitRecord {
            entries,
            bytes: Cells::new(region, 0, length)?,
            halves: Cells::new(region, 0, length / 2)?,
            longs: Cells::new(region, 0, length / 8)?,
            counter: 0,
            batch: Vec::with_capacity(usize::from(entries)),
        })
    }

    /// Writes down that `head` is in flight.
    #[inline(always)]
    pub(crate) fn take(&mut self, head: Head) {
        self.longs
            .store(counter_at(head.0), self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.bytes.store(flag_at(head.0), 1, Ordering::Release);
    }

    /// Keeps in mind that `head` is answered.
    #[inline(always)]
    pub(crate) fn answer(&mut self, head: Head) {
        self.batch.push(head.0);
    }

    /// Writes down what is about to be published. Before the used index is stored.
    pub(crate) fn begin_publish(&mut self) {
        let mut last = self.halves.load(BATCH_HEAD_AT, Ordering::Relaxed);
        for &head in &self.batch {
            self.halves.store(next_at(head), last, Ordering::Relaxed);
            self.halves.store(BATCH_HEAD_AT, head, Ordering::Release);
            last = head;
        }
    }

    /// Writes down that the used index is now `used`, and all before it answered.
    pub(crate) fn finish_publish(&mut self, used: u16) {
        for &head in &self.batch {
            self.bytes.store(flag_at(head), 0, Ordering::Release);
        }
        self.halves.store(USED_AT, used, Ordering::Release);
        self.batch.clear();
    }

    /// Brings the region in order after a stop at any point. The heads in flight, in the order in
    /// which they were taken; `None` when the region has no past that belongs to this ring, which
    /// has `size` descriptors and whose used index is `used`.
    pub(crate) fn recover(&mut self, size: u16, used: u16) -> Result<Option<Vec<u16>>, RingError> {
        if size > self.entries {
            return Err(RingError::InflightRegion);
        }
        let version = self.halves.load(VERSION_AT, Ordering::Acquire);
        if version == 0 {
            self.begin(size, used);
            return Ok(None);
        }
        if version != VERSION || self.halves.load(SIZE_AT, Ordering::Relaxed) != self.entries {
            return Err(RingError::InflightRegion);
        }
        let mark = self.halves.load(RING_SIZE_AT, Ordering::Acquire);
        let answered = used.wrapping_sub(self.halves.load(USED_AT, Ordering::Acquire));
        if mark != size_mark(size, self.entries) || answered > size {
            // No batch is that long, or the ring has another size: the guest began a new ring,
            // and the old requests with their memory are gone.
            self.begin(size, used);
            return Ok(None);
        }
        self.finish_batch(size, answered, used)?;
        Ok(Some(self.in_order(size)))
    }

    /// Makes the region that of a ring without a past. What says that it has none comes last.
    fn begin(&mut self, size: u16, used: u16) {
        for entry in 0..self.entries {
            self.bytes.store(flag_at(entry), 0, Ordering::Relaxed);
            self.halves.store(next_at(entry), 0, Ordering::Relaxed);
        }
        self.halves.store(BATCH_HEAD_AT, 0, Ordering::Relaxed);
        self.halves.store(SIZE_AT, self.entries, Ordering::Relaxed);
        self.halves.store(USED_AT, used, Ordering::Release);
        let mark = size_mark(size, self.entries);
        self.halves.store(RING_SIZE_AT, mark, Ordering::Release);
        self.halves.store(VERSION_AT, VERSION, Ordering::Release);
    }

    /// Ends what a stop between the used index and the end of `finish_publish` left open.
    fn finish_batch(&mut self, size: u16, answered: u16, used: u16) -> Result<(), RingError> {
        let mut at = self.halves.load(BATCH_HEAD_AT, Ordering::Relaxed);
        for _ in 0..answered {
            if at >= size {
                return Err(RingError::InflightGarbage);
            }
            self.bytes.store(flag_at(at), 0, Ordering::Relaxed);
            at = self.halves.load(next_at(at), Ordering::Relaxed);
        }
        self.halves.store(USED_AT, used, Ordering::Release);
        Ok(())
    }

    fn in_order(&mut self, size: u16) -> Vec<u16> {
        let mut heads: Vec<(u64, u16)> = (0..size)
            .filter(|&head| self.bytes.load(flag_at(head), Ordering::Relaxed) == 1)
            .map(|head| (self.longs.load(counter_at(head), Ordering::Relaxed), head))
            .collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(last, _)| last.wrapping_add(1));
        heads.into_iter().map(|(_, head)| head).collect()
    }
}

#[inline(always)]
fn flag_at(entry: u16) -> usize {
    HEADER + ENTRY * usize::from(entry)
}

#[inline(always)]
fn next_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 6) / 2
}

#[inline(always)]
fn counter_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 8) / 8
}
