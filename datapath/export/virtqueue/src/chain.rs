//! Chains: what one request of the guest consists of, and how it is gathered from descriptors.
//!
//! Everything here comes from the guest and is checked here. Where heads come from, and where
//! they go back to, is the matter of the two ring layouts.

use memory::Segment;
use units::limits::{CHAIN_BYTES_MAX, QUEUE_SIZE_MAX};

use crate::shared::{Pairs, for_each_pair};
use crate::{GuestMemory, RingError};

/// The chain goes on to another descriptor.
pub(crate) const NEXT: u16 = 1;
/// We may write the bytes; else we may read them.
pub(crate) const WRITE: u16 = 2;
/// The bytes are a table of descriptors.
pub(crate) const INDIRECT: u16 = 4;

/// Bytes of one descriptor, in a ring and in an indirect table.
const DESCRIPTOR_BYTES: u32 = 16;
/// What a request may have on top of its payload: its header, its status, a discard's ranges.
const HEADER_BYTES_MAX: u64 = 4096;
/// Pieces of guest memory in which the bytes of a chain may lie: a chain has at most as many
/// descriptors as a queue or a table, and where regions of memory touch each may have two.
const SEGMENTS_MAX: usize = 2 * QUEUE_SIZE_MAX as usize;

/// Names a chain until it is answered: the head (split) or the buffer id (packed). Below the
/// queue size, and no two in flight are equal, so it can be an index of the asker's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Head(pub(crate) u16);

impl Head {
    /// The number; below the queue size.
    #[must_use]
    pub fn id(self) -> u16 {
        self.0
    }

    pub(crate) fn at(self) -> usize {
        usize::from(self.0)
    }
}

/// One request as the guest gave it: memory we may read, then memory we may write.
///
/// Is filled by `pop`; keeps its room, so that a chain used again does not allocate.
#[derive(Debug, Default)]
pub struct Chain {
    /// Names the chain when it is answered.
    pub head: Head,
    /// What the guest tells us.
    pub readable: Vec<Segment>,
    /// What the guest wants filled in.
    pub writable: Vec<Segment>,
    /// Bytes of `readable`.
    pub readable_bytes: u64,
    /// Bytes of `writable`.
    pub writable_bytes: u64,
    /// The request was already taken by an engine that died before it answered.
    pub again: bool,
}

impl Chain {
    /// A chain with room for `segments` on either side.
    #[must_use]
    pub fn with_capacity(segments: usize) -> Chain {
        Chain {
            readable: Vec::with_capacity(segments),
            writable: Vec::with_capacity(segments),
            ..Chain::default()
        }
    }

    fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
        self.readable_bytes = 0;
        self.writable_bytes = 0;
        self.again = false;
    }
}

/// One descriptor, copied from the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) flags: u16,
    /// Split: the next descriptor. Packed: the buffer id.
    pub(crate) link: u16,
}

impl Descriptor {
    /// From the two words of a split ring's descriptor.
    #[inline(always)]
    pub(crate) fn from_split(words: [u64; 2]) -> Descriptor {
        let [a, b, c, d, e, f, g, h] = words[1].to_le_bytes();
        Descriptor {
            address: words[0],
            length: u32::from_le_bytes([a, b, c, d]),
            flags: u16::from_le_bytes([e, f]),
            link: u16::from_le_bytes([g, h]),
        }
    }

    /// From the two words of a packed ring's descriptor.
    #[inline(always)]
    pub(crate) fn from_packed(words: [u64; 2]) -> Descriptor {
        let [a, b, c, d, e, f, g, h] = words[1].to_le_bytes();
        Descriptor {
            address: words[0],
            length: u32::from_le_bytes([a, b, c, d]),
            flags: u16::from_le_bytes([g, h]),
            link: u16::from_le_bytes([e, f]),
        }
    }

    #[inline(always)]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// What gathering needs besides the chain; kept by the ring, so that nothing is allocated.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Where guest memory was found last.
    pub(crate) hint: usize,
    /// Whether indirect tables were negotiated.
    indirect: bool,
    /// Where an indirect table is.
    places: Vec<Segment>,
    /// A copy of the indirect table.
    table: Vec<Descriptor>,
}

impl Scratch {
    pub(crate) fn new(indirect: bool) -> Scratch {
        let tables = if indirect {
            usize::from(QUEUE_SIZE_MAX)
        } else {
            0
        };
        Scratch {
            hint: 0,
            indirect,
            places: Vec::with_capacity(4),
            table: Vec::with_capacity(tables),
        }
    }
}

/// Gathers one chain, descriptor after descriptor.
pub(crate) struct Gather<'a, M> {
    memory: &'a M,
    scratch: &'a mut Scratch,
    chain: &'a mut Chain,
}

impl<'a, M: GuestMemory> Gather<'a, M> {
    /// Begins with an empty chain.
    #[inline(always)]
    pub(crate) fn new(memory: &'a M, scratch: &'a mut Scratch, chain: &'a mut Chain) -> Self {
        chain.clear();
        Gather {
            memory,
            scratch,
            chain,
        }
    }

    /// Adds the memory of one descriptor.
    #[inline(always)]
    pub(crate) fn add(&mut self, descriptor: Descriptor) -> Result<(), RingError> {
        let length = u64::from(descriptor.length);
        if length == 0 {
            return Err(RingError::ZeroLength);
        }
        let out = if descriptor.has(WRITE) {
            self.chain.writable_bytes += length;
            &mut self.chain.writable
        } else {
            if self.chain.writable_bytes != 0 {
                return Err(RingError::ReadableAfterWritable);
            }
            self.chain.readable_bytes += length;
            &mut self.chain.readable
        };
        let hint = &mut self.scratch.hint;
        if let Some(segment) = self.memory.near(descriptor.address, length, *hint) {
            out.push(segment);
            return Ok(());
        }
        self.memory
            .translate(descriptor.address, length, hint, out)
            .map_err(|_| bad_address(descriptor))?;
        self.count_segments()
    }

    /// Only after a look into the table of regions: what is near is one piece, and of such there
    /// are not more than descriptors.
    #[inline(always)]
    fn count_segments(&self) -> Result<(), RingError> {
        let count = self.chain.readable.len() + self.chain.writable.len();
        if count > SEGMENTS_MAX {
            return Err(RingError::TooManySegments(count));
        }
        Ok(())
    }

    /// Adds the memory of a split ring's indirect table: a chain inside the table.
    #[inline(always)]
    pub(crate) fn add_split_table(&mut self, descriptor: Descriptor) -> Result<(), RingError> {
        let entries = self.find_table(descriptor)?;
        if let Some(table) = self.table_in_place(entries) {
            return self.follow(entries, |at| Descriptor::from_split(table.pair(at)));
        }
        let table = self.copy_table(Descriptor::from_split);
        let followed = self.follow(entries, |at| table[at]);
        self.scratch.table = table;
        followed
    }

    /// Adds the memory of a packed ring's indirect table: all of it, in order.
    #[inline(always)]
    pub(crate) fn add_packed_table(&mut self, descriptor: Descriptor) -> Result<(), RingError> {
        let entries = self.find_table(descriptor)?;
        if let Some(table) = self.table_in_place(entries) {
            return self.add_all(entries, |at| Descriptor::from_packed(table.pair(at)));
        }
        let table = self.copy_table(Descriptor::from_packed);
        let added = self.add_all(entries, |at| table[at]);
        self.scratch.table = table;
        added
    }

    /// Follows the chain in a table of `entries` descriptors.
    #[inline(always)]
    fn follow(
        &mut self,
        entries: usize,
        entry: impl Fn(usize) -> Descriptor,
    ) -> Result<(), RingError> {
        let mut at = 0;
        for _ in 0..entries {
            let descriptor = entry(at);
            if descriptor.has(INDIRECT) {
                return Err(RingError::IndirectNested);
            }
            self.add(descriptor)?;
            if !descriptor.has(NEXT) {
                return Ok(());
            }
            at = usize::from(descriptor.link);
            if at >= entries {
                return Err(RingError::NextOutOfRange(descriptor.link));
            }
        }
        Err(RingError::ChainTooLong)
    }

    /// Adds all of a table of `entries` descriptors.
    #[inline(always)]
    fn add_all(
        &mut self,
        entries: usize,
        entry: impl Fn(usize) -> Descriptor,
    ) -> Result<(), RingError> {
        for at in 0..entries {
            let descriptor = entry(at);
            if descriptor.has(INDIRECT) {
                return Err(RingError::IndirectNested);
            }
            self.add(descriptor)?;
        }
        Ok(())
    }

    /// Ends the chain.
    #[inline(always)]
    pub(crate) fn finish(self, head: Head) -> Result<(), RingError> {
        let bytes = self.chain.readable_bytes + self.chain.writable_bytes;
        if bytes > CHAIN_BYTES_MAX + HEADER_BYTES_MAX {
            return Err(RingError::RequestTooLarge(bytes));
        }
        self.chain.head = head;
        Ok(())
    }

    /// Finds where an indirect table is. How many descriptors it has, at least one.
    #[inline(always)]
    fn find_table(&mut self, descriptor: Descriptor) -> Result<usize, RingError> {
        let length = descriptor.length;
        if !self.scratch.indirect {
            return Err(RingError::IndirectNotNegotiated);
        }
        if descriptor.has(NEXT) {
            return Err(RingError::IndirectWithNext);
        }
        let length_max = DESCRIPTOR_BYTES * u32::from(QUEUE_SIZE_MAX);
        if length == 0 || !length.is_multiple_of(DESCRIPTOR_BYTES) || length > length_max {
            return Err(RingError::IndirectLength(length));
        }
        let Scratch { hint, places, .. } = self.scratch;
        places.clear();
        match self
            .memory
            .near(descriptor.address, u64::from(length), *hint)
        {
            Some(place) => places.push(place),
            None => self
                .memory
                .translate(descriptor.address, u64::from(length), hint, places)
                .map_err(|_| bad_address(descriptor))?,
        }
        Ok(units::bytes_usize(u64::from(length / DESCRIPTOR_BYTES)))
    }

    /// The indirect table as it lies in guest memory, when that is in one piece and aligned.
    #[inline(always)]
    fn table_in_place(&self, entries: usize) -> Option<Pairs> {
        match self.scratch.places[..] {
            [place] => Pairs::new(place, entries),
            _ => None,
        }
    }

    /// Takes out the scratch table, with a copy of the guest's table in it.
    #[cold]
    fn copy_table(&mut self, decode: fn([u64; 2]) -> Descriptor) -> Vec<Descriptor> {
        let mut table = std::mem::take(&mut self.scratch.table);
        table.clear();
        for_each_pair(&self.scratch.places, |words| table.push(decode(words)));
        table
    }
}

#[cold]
fn bad_address(descriptor: Descriptor) -> RingError {
    RingError::BadAddress {
        address: descriptor.address,
        length: descriptor.length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_its_room_before_the_first_request() {
        let chain = Chain::with_capacity(7);
        assert!(chain.readable.capacity() >= 7 && chain.writable.capacity() >= 7);
    }
}
