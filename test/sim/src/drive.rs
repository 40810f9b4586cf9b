//! A simulated drive: what is durable, what its cache holds, what is under way, and how it fails.

mod dead;
mod reads;
mod taken;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use array::planted::{self, Fault};
use array::{MemberRequest, Times};
use block::{Histogram, Operation, Status};
use units::{BlockSize, Instant, ReactorIndex, bytes_u64, bytes_usize};

use self::taken::{Taken, copy_of};
use crate::random::Random;
use crate::store::Store;

/// Requests that will fail: the `after`-th of its kind from now on, and `count - 1` after it.
#[derive(Clone, Copy, Debug)]
pub struct Failing {
    /// Which kind of request fails.
    pub what: Failure,
    /// So many go well before.
    pub after: u64,
    /// So many fail.
    pub count: u64,
    /// The answer.
    pub status: Status,
}

/// Which kind of request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Anything that changes blocks.
    Writes,
    /// Writes below this byte: metadata.
    WritesBelow(u64),
    /// Flushes.
    Flushes,
    /// Everything.
    All,
}

/// Which requests a drive keeps: it answers all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Reads.
    Reads,
    /// Anything that changes blocks.
    Changes,
}

/// See the module.
#[derive(Debug, Default)]
pub struct SimDrive {
    /// Bytes of a block.
    block: u64,
    store: Store,
    taken: Vec<Taken>,
    /// What it is still to carry out for an engine that is dead.
    dead: Vec<Taken>,
    /// How much of that it has carried out while another engine was at work.
    pub landed: u64,
    /// The drive answers nothing but `Gone`.
    pub gone: bool,
    /// It is not there, and everything is answered so; it comes back as it was.
    pub away: Option<Status>,
    /// Changes of every so many-th 32 KiB are answered so, and flushes if `Gone`; it passes.
    pub refuses: Option<(u64, Status)>,
    /// The drive answers nothing at all for now.
    pub hung: bool,
    /// What it is asked from now on of this kind, it answers only after `let_writes_go`.
    pub keeps: Option<Keeps>,
    /// It has no cache that it would lose with the power: what is answered is durable.
    pub keeps_all: bool,
    /// It takes many times as long over everything.
    pub drags: bool,
    /// By reactor: how long reads and writes took.
    times: Vec<([u64; 2], [Histogram; 2])>,
    /// What fails.
    pub failing: Option<Failing>,
    /// Something was wrong with it once: it may be excluded.
    pub hurt: bool,
    /// Blocks that cannot be read until they are written.
    pub bad: BTreeSet<u64>,
    /// Blocks that take no writes.
    pub unwritable: BTreeSet<u64>,
    /// Or take them, and say that they do not.
    pub takes_refused: bool,
    /// What such blocks were to hold, as far as they cannot be read either. When they can again,
    /// somebody has written that there: a block that then held what it did before would be
    /// believed (docs/design/006-lost-blocks.md, *Left open*).
    refused: BTreeMap<u64, Vec<u8>>,
    /// The next read of this block is answered only once it was written.
    pub stuck: Option<u64>,
    /// Blocks that stay as they are whatever is written, without an error.
    pub forgets: BTreeSet<u64>,
    /// The next read of the first block brings what the second holds, without an error.
    pub astray: BTreeMap<u64, u64>,
    /// How many blocks were read that held something else.
    pub went_astray: u64,
    /// Of guests' requests, so many may have met a bad block.
    pub met_bad: u64,
    /// How often it has lost its power while the machine had not.
    pub outages: u64,
    /// Requests that it was asked.
    submitted: u64,
    /// Room for the bytes of writes, from those that were carried out.
    rooms: Vec<Vec<u8>>,
}

/// What a drive that is well takes at the most.
const QUICK: Duration = Duration::from_micros(250);
/// What a full host has room for, or not.
const SPELL_BYTES: u64 = 32 << 10;

impl SimDrive {
    /// An empty drive with such blocks.
    #[must_use]
    pub fn new(block: BlockSize) -> SimDrive {
        SimDrive {
            block: block.bytes(),
            store: Store::new(bytes_usize(block.bytes())),
            ..SimDrive::default()
        }
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block
    }

    /// Takes a request.
    pub fn submit(&mut self, (reactor, at): (ReactorIndex, Instant), request: MemberRequest) {
        self.submitted += 1;
        let is_early = self.submitted.is_multiple_of(2);
        let bytes = is_early.then(|| copy_of(&request, &mut self.rooms));
        assert!(
            request.offset.is_multiple_of(self.block) && request.length.is_multiple_of(self.block)
        );
        let began = match request.operation {
            Operation::Flush => self.store.begin_flush(),
            _ => 0,
        };
        let range = request.offset / self.block..(request.offset + request.length) / self.block;
        let reads = request.operation == Operation::Read;
        let sticks = self.stuck.take_if(|block| reads && range.contains(block));
        let is_kept = match self.keeps {
            None => false,
            Some(Keeps::Reads) => reads,
            Some(Keeps::Changes) => request.operation.changes(),
        };
        self.taken.push(Taken {
            sticks,
            is_kept,
            reactor,
            request,
            bytes,
            began,
            at,
        });
    }

    /// How many requests are under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.taken.len()
    }

    /// Whether a loss of power now may tear what lies below this byte.
    #[must_use]
    pub fn is_in_doubt_below(&self, byte: u64) -> bool {
        let writes = |taken: &Taken| {
            taken.request.operation == Operation::Write && taken.request.offset < byte
        };
        self.taken.iter().any(writes) || self.store.has_cached_below(byte / self.block)
    }

    /// Whether something below this byte was written and would be lost with the power.
    #[must_use]
    pub fn has_cached_below(&self, byte: u64) -> bool {
        self.store.has_cached_below(byte / self.block)
    }

    /// Blocks that a stop now may leave old or new.
    #[must_use]
    pub fn unsettled(&self, power: bool) -> BTreeSet<u64> {
        let changes = self.taken.iter().map(|taken| &taken.request);
        let changes = changes.filter(|request| request.operation.changes());
        let mut blocks: BTreeSet<u64> = changes
            .flat_map(|request| {
                request.offset / self.block..(request.offset + request.length) / self.block
            })
            .collect();
        if power {
            blocks.extend(self.store.cached());
        }
        blocks
    }

    /// Whether a write from this byte on is under way.
    #[must_use]
    pub fn is_writing_from(&self, byte: u64) -> bool {
        let writes =
            |taken: &Taken| taken.request.operation.changes() && taken.request.offset >= byte;
        self.taken.iter().any(writes)
    }

    /// Whether a write that begins below this byte is under way.
    #[must_use]
    pub fn is_writing_below(&self, byte: u64) -> bool {
        let writes =
            |taken: &Taken| taken.request.operation.changes() && taken.request.offset < byte;
        self.taken.iter().any(writes)
    }

    /// Whether a write to a block is under way that cannot be read.
    #[must_use]
    pub fn is_writing_bad(&self) -> bool {
        let writes = |Taken { request, .. }: &Taken| {
            let end = (request.offset + request.length) / self.block;
            let mut bad = self.bad.range(request.offset / self.block..end);
            request.operation == Operation::Write && bad.next().is_some()
        };
        self.taken.iter().any(writes)
    }

    /// Whether a request that is made now is answered at once.
    #[must_use]
    pub fn answers(&self) -> bool {
        !self.gone && self.away.is_none() && !self.hung
    }

    /// Whether nothing is wrong with it.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let here = !self.gone && !self.hung && !self.drags && !self.is_under_a_spell();
        here && self.keeps.is_none() && self.failing.is_none() && self.bad.is_empty()
    }

    /// Whether something is wrong with it that passes.
    #[must_use]
    pub fn is_under_a_spell(&self) -> bool {
        self.away.is_some() || self.refuses.is_some()
    }

    /// What is wrong with it and passes has passed.
    pub fn end_spell(&mut self) {
        self.away = None;
        self.refuses = None;
    }

    /// Nothing is wrong with it any more. What it lost stays lost.
    pub fn heal(&mut self) {
        if !planted::is(Fault::LockedDriveReturns) {
            self.let_go();
        }
        self.gone = false;
        self.end_spell();
        self.hung = false;
        self.keeps = None;
        self.drags = false;
        self.failing = None;
        self.mend();
        self.loosen();
    }

    /// Every block can be read and written again.
    pub fn mend(&mut self) {
        self.unwritable.clear();
        self.takes_refused = false;
        for (block, content) in std::mem::take(&mut self.refused) {
            if self.bad.contains(&block) {
                self.store.write_through(block, &content);
            }
        }
        self.bad.clear();
    }

    /// The same, and each block holds what it held before.
    pub fn mend_as_before(&mut self) {
        self.refused.clear();
        self.mend();
    }

    /// How many bad blocks have refused what they should hold.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether some of the blocks of a write do not take it.
    fn refuses_blocks(&mut self, blocks: Range<u64>, bytes: Option<&[u8]>) -> bool {
        let size = bytes_usize(self.block);
        let mut refuses = false;
        for block in blocks.clone() {
            if self.unwritable.contains(&block) {
                refuses = true;
                let at = bytes_usize(block - blocks.start) * size;
                let content = bytes.map_or(vec![0; size], |bytes| bytes[at..at + size].to_vec());
                if self.bad.contains(&block) {
                    self.refused.insert(block, content);
                }
            }
        }
        refuses
    }

    /// Stores bytes for good, from outside of the engine.
    ///
    /// # Panics
    /// When they are not whole blocks.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        assert!(
            offset.is_multiple_of(self.block) && bytes_u64(bytes.len()).is_multiple_of(self.block)
        );
        let blocks = offset / self.block..(offset + bytes_u64(bytes.len())) / self.block;
        let contents = bytes.chunks_exact(bytes_usize(self.block));
        for (block, content) in blocks.clone().zip(contents) {
            self.store.write_through(block, content);
        }
        self.are_well(blocks);
    }

    /// Stores for good whatever `random` draws, from outside of the engine.
    pub fn soil(&mut self, offset: u64, length: u64, random: &mut Random) {
        let end = offset + length;
        self.store.soil(offset..end, random);
        self.are_well(offset / self.block..end / self.block);
    }

    /// Makes durable what it holds, from outside of the engine.
    pub fn flush(&mut self) {
        let began = self.store.begin_flush();
        self.store.flush(began);
    }

    /// As `put`, but the drive may not take it; whether it did.
    ///
    /// # Panics
    /// When they are not whole blocks.
    pub fn try_put(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let blocks = offset / self.block..(offset + bytes_u64(bytes.len())) / self.block;
        if self.refuses.is_some() {
            self.unwritable.extend(blocks.clone());
        }
        if self.refuses_blocks(blocks, Some(bytes)) {
            return false;
        }
        self.put(offset, bytes);
        true
    }

    /// Another drive with what a read of this one finds now.
    #[must_use]
    pub fn copy(&self) -> SimDrive {
        SimDrive {
            block: self.block,
            store: self.store.copy(),
            ..SimDrive::default()
        }
    }

    /// The status of a request that fails, if it does.
    fn failure(&mut self, request: &MemberRequest) -> Option<Status> {
        if self.gone {
            return Some(Status::Gone);
        }
        if self.away.is_some() {
            return self.away;
        }
        let changes = request.operation.changes();
        let flushes = request.operation == Operation::Flush;
        if let Some((each, status)) = self.refuses
            && (changes || (flushes && status == Status::Gone))
            && (request.offset / SPELL_BYTES).is_multiple_of(each)
        {
            return Some(status);
        }
        let failing = self.failing.as_mut()?;
        let hit = match failing.what {
            Failure::Writes => changes,
            Failure::WritesBelow(byte) => changes && request.offset < byte,
            Failure::Flushes => flushes,
            Failure::All => true,
        };
        if !hit {
            return None;
        }
        if failing.after > 0 {
            failing.after -= 1;
            return None;
        }
        if failing.count == 0 {
            return None;
        }
        failing.count -= 1;
        Some(failing.status)
    }

    /// Finishes one request, by chance.
    pub fn finish_one(
        &mut self,
        now: Instant,
        random: &mut Random,
    ) -> Option<(ReactorIndex, MemberRequest, Status)> {
        if self.taken.is_empty() || self.hung {
            return None;
        }
        let position = self.next_to_finish(random)?;
        let Taken {
            reactor,
            request,
            bytes,
            began,
            at,
            ..
        } = self.taken.remove(position);
        let bytes = bytes.unwrap_or_else(|| copy_of(&request, &mut self.rooms));
        let status = self.carry_out(&request, &bytes, began);
        self.note_flush_end(request.operation);
        if request.operation == Operation::Write {
            self.rooms.push(bytes);
        }
        self.count((reactor, request.operation), now.since(at));
        Some((reactor, request, status))
    }

    fn count(&mut self, (reactor, operation): (ReactorIndex, Operation), took: Duration) {
        let kind = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => return,
        };
        if self.times.len() <= reactor.at() {
            self.times.resize_with(reactor.at() + 1, Default::default);
        }
        // Chance does not make a drive slow that is well.
        let took = if self.drags { took } else { took.min(QUICK) };
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let (counts, took) = &mut self.times[reactor.at()];
        counts[kind] += 1;
        took[kind].record(nanoseconds);
    }

    /// How long reads and writes of a reactor took.
    #[must_use]
    pub fn times(&self, reactor: ReactorIndex) -> Option<Times<'_>> {
        let (counts, took) = self.times.get(reactor.at())?;
        Some(Times {
            counts: *counts,
            took: took.each_ref(),
        })
    }

    /// Any request, and often the oldest: a drive that is well does not leave one for long.
    fn next_to_finish(&self, random: &mut Random) -> Option<usize> {
        let is_free = |position: &usize| {
            let taken = &self.taken[*position];
            taken.sticks.is_none() && !taken.is_kept
        };
        let first = if random.happens(500) {
            0
        } else {
            random.position(self.taken.len())
        };
        let count = self.taken.len();
        (first..count).chain(0..first).find(is_free)
    }

    /// Whether a read waits for its block to be written.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.taken.iter().any(|taken| taken.sticks.is_some())
    }

    /// No read waits for its block any more.
    pub fn loosen(&mut self) {
        self.stuck = None;
        for taken in &mut self.taken {
            taken.sticks = None;
        }
        self.let_writes_go();
    }

    /// What takes longer than anything does so no more.
    pub fn let_writes_go(&mut self) {
        for taken in &mut self.taken {
            taken.is_kept = false;
        }
    }

    /// How many requests take longer than anything that comes.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.taken.iter().filter(|taken| taken.is_kept).count()
    }

    /// Changes from this byte on that are under way take longer than anything that comes.
    pub fn keep_writes_from(&mut self, byte: u64) {
        for taken in &mut self.taken {
            let request = &taken.request;
            taken.is_kept |= request.operation.changes() && request.offset >= byte;
        }
    }

    fn carry_out(&mut self, request: &MemberRequest, bytes: &[u8], began: u64) -> Status {
        if let Some(status) = self.failure(request) {
            // A flush of a drive that was not there was not begun.
            let is_there = status != Status::Gone && self.away.is_none();
            if request.operation == Operation::Flush && is_there {
                self.store.flush_fails();
            }
            return status;
        }
        let blocks = request.offset / self.block..(request.offset + request.length) / self.block;
        let content = (request.operation == Operation::Write).then_some(bytes);
        let refuses = request.operation.changes() && self.refuses_blocks(blocks.clone(), content);
        if refuses && !self.takes_refused {
            return Status::Media;
        }
        match request.operation {
            Operation::Read => {
                if self.bad.range(blocks).next().is_some() {
                    return Status::Media;
                }
                self.bring(request);
                if !self.astray.is_empty() {
                    self.go_astray(request);
                }
            }
            Operation::Write => {
                for taken in &mut self.taken {
                    let _ = taken.sticks.take_if(|block| blocks.contains(block));
                }
                self.take_in(blocks, bytes);
            }
            Operation::WriteZeroes | Operation::Discard => {
                let zeroes = vec![0; bytes_usize(self.block)];
                for block in blocks {
                    self.keep(block, &zeroes);
                    self.are_well(block..block + 1);
                }
            }
            Operation::Flush => self.store.flush(began),
        }
        if refuses { Status::Media } else { Status::Ok }
    }

    /// The process is about to end: the kernel has what was asked.
    pub fn take_bytes(&mut self) {
        for taken in &mut self.taken {
            let bytes = taken.bytes.take();
            taken.bytes = Some(bytes.unwrap_or_else(|| copy_of(&taken.request, &mut self.rooms)));
        }
    }

    /// Whether a flush is under way.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        let mut taken = self.taken.iter();
        taken.any(|taken| taken.request.operation == Operation::Flush)
    }

    /// A flush fails, and any part of the cache is gone. It was not away, and is as before.
    pub fn loses_cache(&mut self, random: &mut Random) {
        let kept = 500 * random.below(2);
        self.store.power_fails(|| random.happens(kept));
    }

    /// Power fails: any part of the cache and of what was taken is stored, block by block.
    pub fn power_fails(&mut self, random: &mut Random) {
        self.times.clear();
        let size = bytes_usize(self.block);
        let zeroes = vec![0; size];
        let kept = 1000 * random.below(3) / 2;
        self.store.power_fails(|| random.happens(kept));
        let taken = std::mem::take(&mut self.taken).into_iter();
        for Taken { request, bytes, .. } in taken.chain(std::mem::take(&mut self.dead)) {
            let bytes = bytes.expect("taken before");
            if self.gone || !request.operation.changes() {
                continue;
            }
            let blocks =
                request.offset / self.block..(request.offset + request.length) / self.block;
            for (position, block) in blocks.enumerate() {
                if random.happens(400) && !self.unwritable.contains(&block) {
                    let content = bytes.get(position * size..(position + 1) * size);
                    self.bad.remove(&block);
                    self.refused.remove(&block);
                    self.store.write_through(block, content.unwrap_or(&zeroes));
                }
            }
        }
    }
}
