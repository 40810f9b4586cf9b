//! A drive whose every possible state after a stop can be listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::MemberRequest;
use units::{bytes_u64, bytes_usize};

use crate::disks::Medium;

const BLOCK: u64 = 512;

/// One block, and the hash of its content.
#[derive(Debug)]
struct Block {
    hash: u64,
    /// It cannot be read.
    is_bad: bool,
    bytes: [u8; 512],
}

/// A write that a stop may undo, in whole or in part.
#[derive(Clone, Debug)]
pub(super) struct Write {
    first: u64,
    blocks: Vec<Arc<Block>>,
}

impl Write {
    pub(super) fn new(offset: u64, bytes: &[u8]) -> Write {
        assert!(offset.is_multiple_of(BLOCK) && bytes.len().is_multiple_of(512));
        let block = |bytes: &[u8]| {
            let bytes: [u8; 512] = bytes.try_into().expect("whole blocks");
            let hash = hash(&bytes);
            Arc::new(Block {
                hash,
                is_bad: false,
                bytes,
            })
        };
        Write {
            first: offset / BLOCK,
            blocks: bytes.chunks_exact(512).map(block).collect(),
        }
    }

    /// What a request carries now.
    pub(super) fn carried_by(request: &MemberRequest) -> Write {
        let mut bytes = vec![0; bytes_usize(request.length)];
        let mut done = 0;
        for segment in request.segments.as_slice() {
            segment.copy_to_slice(&mut bytes[done..done + segment.len()]);
            done += segment.len();
        }
        assert_eq!(done, bytes.len(), "a write carries what it names");
        Write::new(request.offset, &bytes)
    }

    /// In how many ways a stop may leave it: one or two blocks each for itself; more of them, which
    /// have one checksum, not at all, wholly, or torn behind the first, where records have content.
    pub(super) fn ways(&self) -> usize {
        match self.blocks.len() {
            few @ 0..=2 => 1 << few,
            _ => 4,
        }
    }

    /// The part that is left in one of these ways: nothing in way 0, everything in the last.
    pub(super) fn part(&self, way: usize) -> Write {
        let blocks = &self.blocks;
        let kept = match (blocks.len(), way) {
            (2, 2) => 1..2,
            (few @ 0..=2, way) => 0..way.min(few),
            (_, 0) => 0..0,
            (_, 1) => 0..1,
            (many, 2) => 1..many,
            (many, _) => 0..many,
        };
        Write {
            first: self.first + bytes_u64(kept.start),
            blocks: blocks[kept].to_vec(),
        }
    }

    /// Two writes of one hash are alike.
    pub(super) fn hash(&self) -> u64 {
        let blocks = self.blocks.iter();
        blocks.fold(self.first, |sum, block| mix(sum, block.hash))
    }

    /// Whether both write some block.
    fn meets(&self, other: &Write) -> bool {
        let end = |write: &Write| write.first + bytes_u64(write.blocks.len());
        self.first < end(other) && other.first < end(self)
    }

    fn put(&self, blocks: &mut BTreeMap<u64, Arc<Block>>) {
        for (at, block) in (self.first..).zip(&self.blocks) {
            if block.bytes == [0; 512] {
                blocks.remove(&at);
            } else {
                blocks.insert(at, Arc::clone(block));
            }
        }
    }
}

/// FNV-1a, eight bytes at a time.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        let word = word
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        mix(sum, word)
    })
}

/// Adds a number to a hash.
pub(super) fn mix(sum: u64, number: u64) -> u64 {
    let mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// What a block is after it has refused a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refuses {
    AsItWas,
    Unreadable,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    durable: BTreeMap<u64, Arc<Block>>,
    /// What a read finds.
    now: BTreeMap<u64, Arc<Block>>,
    /// Since the last flush, in order.
    cached: Vec<Write>,
    /// What flushes have failed to make durable: no later one does.
    forsaken: Vec<Write>,
    /// What a dead engine had asked, and the drive carries out later. Nobody opens it until then.
    dead: Vec<Write>,
    /// How many were flushed before.
    flushed: usize,
    /// It takes no write of this block. One that is refused leaves it unreadable, or as it was.
    refuses: Option<(u64, Refuses)>,
    /// The drive answers nothing but that it is gone.
    pub(super) gone: bool,
}

impl Disk {
    pub(super) fn write(&mut self, write: Write) {
        write.put(&mut self.now);
        if !write.blocks.is_empty() {
            self.cached.push(write);
        }
    }

    /// A flush begins: it covers the writes of lower numbers.
    pub(super) fn begin_flush(&self) -> usize {
        self.flushed + self.cached.len()
    }

    /// What was written when the flush `began` is durable.
    pub(super) fn flush(&mut self, began: usize) {
        let count = began.saturating_sub(self.flushed);
        for write in self.cached.drain(..count) {
            write.put(&mut self.durable);
            // What it is written over cannot come back.
            self.forsaken.retain(|other| !other.meets(&write));
        }
        self.flushed += count;
    }

    /// The same flush fails: what was written before can be read until the power fails, and it may
    /// be lost then.
    pub(super) fn flush_fails(&mut self, began: usize) {
        let count = began.saturating_sub(self.flushed);
        self.forsaken.extend(self.cached.drain(..count));
        self.flushed += count;
    }

    /// The process ends: for the next one, what a flush failed to keep is as if never flushed, and
    /// it takes all writes.
    pub(super) fn process_dies(&mut self) {
        if self.refuses.is_some() {
            self.mend();
        }
        let mut cached = std::mem::take(&mut self.forsaken);
        cached.append(&mut self.cached);
        self.cached = cached;
    }

    /// The process has died, and the drive takes long over this.
    pub(super) fn lock(&mut self, write: Write) {
        self.dead.push(write);
    }

    /// Whether it is still to carry out what a dead engine has asked.
    pub(super) fn is_locked(&self) -> bool {
        !self.dead.is_empty()
    }

    /// It carries that out.
    pub(super) fn let_go(&mut self) {
        for write in std::mem::take(&mut self.dead) {
            self.write(write);
        }
    }

    /// What would be lost with the power, or not.
    pub(super) fn cached(&self) -> impl Iterator<Item = &Write> {
        self.forsaken.iter().chain(&self.cached)
    }

    /// From now on it takes no write of a block.
    pub(super) fn refuse(&mut self, block: u64, how: Refuses) {
        self.refuses = Some((block, how));
    }

    /// The block that takes no write, if it is one of these.
    pub(super) fn refused(&self, write: &Write) -> Option<(u64, Refuses)> {
        let first = write.first;
        let blocks = first..first + bytes_u64(write.blocks.len());
        self.refuses.filter(|(block, _)| blocks.contains(block))
    }

    /// Nothing is wrong with its blocks any more: what could not be read is as it was.
    pub(super) fn mend(&mut self) {
        self.refuses = None;
        for block in self.bad() {
            for blocks in [&mut self.durable, &mut self.now] {
                if let Some(bytes) = blocks.get(&block).map(|block| block.bytes) {
                    Write::new(block * BLOCK, &bytes).put(blocks);
                }
            }
        }
    }

    /// From now on a block cannot be read, until it is written.
    pub(super) fn spoil(&mut self, block: u64) {
        for blocks in [&mut self.durable, &mut self.now] {
            let known = blocks.get(&block);
            let bytes = known.map_or([0; 512], |block| block.bytes);
            let bad = Block {
                hash: mix(hash(&bytes), 1),
                is_bad: true,
                bytes,
            };
            blocks.insert(block, Arc::new(bad));
        }
    }

    /// Whether some block of a range cannot be read.
    pub(super) fn is_unreadable(&self, offset: u64, length: u64) -> bool {
        let first = offset / BLOCK;
        let mut blocks = self.now.range(first..first + length / BLOCK);
        blocks.any(|(_, block)| block.is_bad)
    }

    /// The blocks that cannot be read.
    pub(super) fn bad(&self) -> Vec<u64> {
        let bad = self.now.iter().filter(|(_, block)| block.is_bad);
        bad.map(|(at, _)| *at).collect()
    }

    /// The same drive after a loss of its cache.
    pub(super) fn without_cache(&self) -> Disk {
        let mut disk = Disk {
            durable: self.durable.clone(),
            now: self.durable.clone(),
            cached: Vec::new(),
            forsaken: Vec::new(),
            dead: Vec::new(),
            flushed: 0,
            refuses: None,
            gone: self.gone,
        };
        if self.refuses.is_some() {
            disk.mend();
        }
        disk
    }

    /// Stores what is left of a write for good.
    pub(super) fn keep(&mut self, write: &Write) {
        write.put(&mut self.durable);
        write.put(&mut self.now);
    }

    /// Two drives of one hash hold the same, in the cache and below, and both are there or not.
    pub(super) fn hash(&self) -> u64 {
        mix(self.content(), u64::from(self.gone))
    }

    /// The same for what they hold.
    pub(super) fn content(&self) -> u64 {
        let of = |blocks: &BTreeMap<u64, Arc<Block>>| {
            let parts = blocks.iter();
            parts.fold(0, |sum, (at, block)| mix(mix(sum, *at), block.hash))
        };
        let cache = self.cached().flat_map(|write| &write.blocks);
        let cache = cache.fold(bytes_u64(self.forsaken.len()), |sum, block| {
            mix(sum, block.hash)
        });
        let dead = self.dead.iter();
        let cache = dead.fold(cache, |sum, write| mix(sum, write.hash()));
        let now = if self.cached().next().is_none() {
            0
        } else {
            of(&self.now)
        };
        mix(mix(of(&self.durable), now), cache)
    }
}

impl Medium for Disk {
    fn get(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; bytes_usize(length)];
        let first = offset / BLOCK;
        for (at, block) in self.now.range(first..first + length / BLOCK) {
            let place = bytes_usize((at - first) * BLOCK);
            bytes[place..place + 512].copy_from_slice(&block.bytes);
        }
        bytes
    }

    /// As the control path writes: it is flushed before anything else is written.
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.write(Write::new(offset, bytes));
    }

    fn flush(&mut self) {
        Disk::flush(self, self.begin_flush());
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_bad(&self, offset: u64) -> bool {
        self.is_unreadable(offset, BLOCK)
    }
}
