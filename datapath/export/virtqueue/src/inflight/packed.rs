//! The region of a packed ring: one entry per descriptor taken, because the ring itself is
//! overwritten with answers.
//!
//! Entries of a chain are linked; what is not in flight is on the free list. Two things go
//! beyond the letter of the protocol, because a stop between two stores would otherwise lose or
//! repeat a request: an index and its wrap counter are stored as one word, and answers behind
//! the first one of a batch are taken back when the batch was not published.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use memory::Segment;

use super::{SIZE_AT, VERSION, VERSION_AT, size_mark};
use crate::RingError;
use crate::chain::Descriptor;
use crate::packed::{DescriptorRing, Place, Recovered};
use crate::shared::Cells;

/// Bytes before the entries: features (8), version (2), size (2), free head (2), old free head
/// (2), used index (2), old used index (2), used wrap (1), old used wrap (1), padding (10).
const HEADER: usize = 32;
/// Bytes of one entry: in flight (1), padding (1), next (2), last (2), number (2), counter (8),
/// id (2), flags (2), length (4), address (8).
const ENTRY: usize = 32;
/// Word that holds the free head and the old free head.
const FREE_AT: usize = 3;
/// Long that holds used index, old used index, and their wrap counters.
const USED_AT: usize = 2;
/// Half-word, in the header's padding, that holds the ring's size if that is another.
const RING_SIZE_AT: usize = 12;

/// Bytes of the region of a queue.
pub(super) fn bytes(entries: u16) -> usize {
    HEADER + ENTRY * usize::from(entries)
}

/// The record of one packed ring.
#[derive(Debug)]
pub(crate) struct PackedRecord {
    /// Of the region; not below the ring's size.
    entries: u16,
    bytes: Cells<AtomicU8>,
    halves: Cells<AtomicU16>,
    words: Cells<AtomicU32>,
    longs: Cells<AtomicU64>,
    /// Orders the requests by when they were taken.
    counter: u64,
    /// First free entry; `entries` when there is none.
    free: u16,
    /// By entry: the next one, of its chain or of the free list. What the region says is only
    /// read at the start, since others may write there.
    next: Box<[u16]>,
    /// By first entry of a chain: the last one.
    last: Box<[u16]>,
    /// Up to where the guest has seen answers, and up to where it will.
    used: Places,
}

/// The used place as it is published, and as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    new: Place,
    old: Place,
}

impl Places {
    fn encode(self) -> u64 {
        let [a, b] = self.new.index.to_le_bytes();
        let [c, d] = self.old.index.to_le_bytes();
        let wraps = [u8::from(self.new.wrap), u8::from(self.old.wrap)];
        u64::from_le_bytes([a, b, c, d, wraps[0], wraps[1], 0, 0])
    }

    fn decode(long: u64) -> Places {
        let [a, b, c, d, new_wrap, old_wrap, _, _] = long.to_le_bytes();
        Places {
            new: Place {
                index: u16::from_le_bytes([a, b]),
                wrap: new_wrap != 0,
            },
            old: Place {
                index: u16::from_le_bytes([c, d]),
                wrap: old_wrap != 0,
            },
        }
    }
}

impl PackedRecord {
    pub(crate) fn new(entries: u16, region: Segment) -> Option<PackedRecord> {
        let length = bytes(entries);
        let none = vec![entries; usize::from(entries)].into_boxed_slice();
        Some(PackedRecord {
            entries,
            bytes: Cells::new(region, 0, length)?,
            halves: Cells::new(region, 0, length / 2)?,
            words: Cells::new(region, 0, length / 4)?,
            longs: Cells::new(region, 0, length / 8)?,
            counter: 0,
            free: 0,
            next: none.clone(),
            last: none,
            used: Places {
                new: Place::START,
                old: Place::START,
            },
        })
    }

    /// Writes down a chain taken. Its first entry.
    ///
    /// There are as many entries as descriptors in the ring or more, so one is always free.
    pub(crate) fn take(&mut self, chain: &[Descriptor]) -> u16 {
        let first = self.free;
        let mut last = first;
        for descriptor in chain {
            last = self.free;
            self.write(last, *descriptor);
            self.free = self.next[usize::from(last)];
        }
        self.last[usize::from(first)] = last;
        let number = u16::try_from(chain.len()).expect("at most the queue size");
        self.halves.store(last_at(first), last, Ordering::Relaxed);
        self.halves
            .store(number_at(first), number, Ordering::Relaxed);
        self.longs
            .store(counter_at(first), self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.bytes.store(flag_at(first), 1, Ordering::Release);
        // Until here the entries are on the free list, and count for nothing.
        self.store_free(self.free, self.free);
        first
    }

    /// Writes down what is about to be published: chains beginning at `entries` are answered, up
    /// to `used`. Before the first flags are stored.
    pub(crate) fn begin_publish(&mut self, entries: impl Iterator<Item = u16>, used: Place) {
        let old_free = self.free;
        for entry in entries {
            let last = self.last[usize::from(entry)];
            self.next[usize::from(last)] = self.free;
            self.halves
                .store(next_at(last), self.free, Ordering::Release);
            self.free = entry;
            self.store_free(self.free, old_free);
        }
        self.used.new = used;
        self.longs
            .store(USED_AT, self.used.encode(), Ordering::Release);
    }

    /// Writes down that the flags are stored.
    pub(crate) fn finish_publish(&mut self, entries: impl Iterator<Item = u16>) {
        for entry in entries {
            self.bytes.store(flag_at(entry), 0, Ordering::Release);
        }
        self.commit();
    }

    fn commit(&mut self) {
        self.store_free(self.free, self.free);
        self.used.old = self.used.new;
        self.longs
            .store(USED_AT, self.used.encode(), Ordering::Release);
    }

    /// Brings the region in order after a stop at any point. Where the ring's answers go on, and
    /// the chains in flight in the order in which they were taken; `None` when the region has no
    /// past that belongs to this ring. Then the ring's answers begin at `base`.
    pub(crate) fn recover(
        &mut self,
        ring: &DescriptorRing,
        base: Place,
    ) -> Result<Option<(Place, Vec<Recovered>)>, RingError> {
        let size = ring.size();
        if size > self.entries {
            return Err(RingError::InflightRegion);
        }
        let version = self.halves.load(VERSION_AT, Ordering::Acquire);
        if version == 0 {
            self.begin(size, base);
            return Ok(None);
        }
        if version != VERSION || self.halves.load(SIZE_AT, Ordering::Relaxed) != self.entries {
            return Err(RingError::InflightRegion);
        }
        let mark = self.halves.load(RING_SIZE_AT, Ordering::Acquire);
        if mark != size_mark(size, self.entries) {
            // The guest began a new ring; the old requests with their memory are gone.
            self.begin(size, base);
            return Ok(None);
        }
        self.used = Places::decode(self.longs.load(USED_AT, Ordering::Acquire));
        if self.used.new.index >= size || self.used.old.index >= size {
            return Err(RingError::InflightGarbage);
        }
        self.end_publish(ring);
        let mut owned = vec![false; usize::from(self.entries)];
        self.load_free(&mut owned)?;
        let recovered = self.load_chains(&mut owned)?;
        let taken: usize = recovered.iter().map(|one| one.chain.len()).sum();
        if owned.contains(&false) || taken > usize::from(size) {
            return Err(RingError::InflightGarbage);
        }
        Ok(Some((self.used.new, recovered)))
    }

    /// Makes the region that of a ring without a past. What says that it has none comes last.
    fn begin(&mut self, size: u16, used: Place) {
        for entry in 0..self.entries {
            self.bytes.store(flag_at(entry), 0, Ordering::Relaxed);
            self.next[usize::from(entry)] = entry + 1;
            self.halves
                .store(next_at(entry), entry + 1, Ordering::Relaxed);
        }
        self.free = 0;
        self.store_free(0, 0);
        self.used = Places {
            new: used,
            old: used,
        };
        self.longs
            .store(USED_AT, self.used.encode(), Ordering::Release);
        self.halves.store(SIZE_AT, self.entries, Ordering::Relaxed);
        let mark = size_mark(size, self.entries);
        self.halves.store(RING_SIZE_AT, mark, Ordering::Release);
        self.halves.store(VERSION_AT, VERSION, Ordering::Release);
    }

    /// Ends or takes back a batch in the middle of which the engine stopped.
    fn end_publish(&mut self, ring: &DescriptorRing) {
        let [a, b, c, d] = self.words.load(FREE_AT, Ordering::Acquire).to_le_bytes();
        let (new_free, old_free) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        let Places { new, old } = self.used;
        if new != old && !ring.is_unanswered(old) {
            self.free = new_free;
        } else {
            self.free = old_free;
            if new != old {
                ring.retract(old, new);
            }
            self.used.new = old;
        }
        self.commit();
    }

    /// Reads the free list; nothing on it is in flight.
    fn load_free(&mut self, owned: &mut [bool]) -> Result<(), RingError> {
        let mut at = self.free;
        while at < self.entries {
            own(owned, at)?;
            self.bytes.store(flag_at(at), 0, Ordering::Relaxed);
            let next = self.halves.load(next_at(at), Ordering::Relaxed);
            self.next[usize::from(at)] = next.min(self.entries);
            at = next;
        }
        Ok(())
    }

    /// Reads the chains in flight, in the order in which they were taken.
    fn load_chains(&mut self, owned: &mut [bool]) -> Result<Vec<Recovered>, RingError> {
        let mut firsts: Vec<(u64, u16)> = (0..self.entries)
            .filter(|&entry| !owned[usize::from(entry)])
            .filter(|&entry| self.bytes.load(flag_at(entry), Ordering::Relaxed) == 1)
            .map(|entry| (self.longs.load(counter_at(entry), Ordering::Relaxed), entry))
            .collect();
        firsts.sort_unstable();
        self.counter = firsts.last().map_or(0, |(last, _)| last.wrapping_add(1));
        let mut recovered = Vec::with_capacity(firsts.len());
        for (_, entry) in firsts {
            let chain = self.load_chain(entry, owned)?;
            recovered.push(Recovered { entry, chain });
        }
        Ok(recovered)
    }

    fn load_chain(&mut self, first: u16, owned: &mut [bool]) -> Result<Vec<Descriptor>, RingError> {
        let number = self.halves.load(number_at(first), Ordering::Relaxed);
        let mut chain = Vec::new();
        let mut at = first;
        for done in 1..=number {
            if at >= self.entries {
                return Err(RingError::InflightGarbage);
            }
            own(owned, at)?;
            chain.push(self.read(at));
            self.last[usize::from(first)] = at;
            if done < number {
                let next = self.halves.load(next_at(at), Ordering::Relaxed);
                self.next[usize::from(at)] = next;
                at = next;
            }
        }
        if chain.is_empty() {
            return Err(RingError::InflightGarbage);
        }
        Ok(chain)
    }

    fn store_free(&self, new: u16, old: u16) {
        let both = u32::from(new) | u32::from(old) << 16;
        self.words.store(FREE_AT, both, Ordering::Release);
    }

    fn write(&self, entry: u16, descriptor: Descriptor) {
        let at = HEADER + ENTRY * usize::from(entry);
        self.halves
            .store((at + 16) / 2, descriptor.link, Ordering::Relaxed);
        self.halves
            .store((at + 18) / 2, descriptor.flags, Ordering::Relaxed);
        self.words
            .store((at + 20) / 4, descriptor.length, Ordering::Relaxed);
        self.longs
            .store((at + 24) / 8, descriptor.address, Ordering::Relaxed);
    }

    fn read(&self, entry: u16) -> Descriptor {
        let at = HEADER + ENTRY * usize::from(entry);
        Descriptor {
            link: self.halves.load((at + 16) / 2, Ordering::Relaxed),
            flags: self.halves.load((at + 18) / 2, Ordering::Relaxed),
            length: self.words.load((at + 20) / 4, Ordering::Relaxed),
            address: self.longs.load((at + 24) / 8, Ordering::Relaxed),
        }
    }
}

/// Each entry is on one list only.
fn own(owned: &mut [bool], entry: u16) -> Result<(), RingError> {
    let was = std::mem::replace(&mut owned[usize::from(entry)], true);
    if was {
        return Err(RingError::InflightGarbage);
    }
    Ok(())
}

fn flag_at(entry: u16) -> usize {
    HEADER + ENTRY * usize::from(entry)
}

fn next_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 2) / 2
}

fn last_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 4) / 2
}

fn number_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 6) / 2
}

fn counter_at(entry: u16) -> usize {
    (HEADER + ENTRY * usize::from(entry) + 8) / 8
}
