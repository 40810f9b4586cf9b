//! What the home knows of the region map besides the states that all shards see: what the next
//! write of each block says, who waits for it, and the round that is under way. Decides nothing
//! about members and does no I/O.

mod barred;
#[cfg(test)]
mod tests;
mod turns;
mod zeroing;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use memory::{Backing, Buffer, Pages, Pool, Segment};
use units::{Instant, MemberIndex, ReactorIndex, Update, bytes_usize};
use uuid::Uuid;

use self::barred::{Attempt, BadPlace, Barred, Fate};
pub(super) use self::barred::{Bar, Refuser};
use self::zeroing::Zeroing;
pub(super) use self::zeroing::{ZeroPiece, ZeroRound, ZeroStep};
use crate::coordinator::MemberPlace;
use crate::format::{
    REGION_BLOCK_BYTES, REGION_BLOCK_REGIONS, RegionBlock, RegionEntry, RegionKind,
};
use crate::planted;
use crate::regions::{RegionMap, RegionSpace, RegionState, RegionStates, Suspects, entry, missed};

/// Blocks that one round writes at most.
const ROUND_BLOCKS: usize = 16;
/// So many regions, one after another, are a run.
const RUN: usize = 24;
/// Regions of one run that are asked for at shorter intervals are a storm: all of them become dirty
/// at once. What is written at random over much more than a run is none.
const STORM: Duration = Duration::from_millis(50);
/// A storm beside a run that one has been through within this time is a stream: the whole block
/// becomes dirty.
const STREAM: Duration = Duration::from_secs(1);
const _: () = assert!(
    REGION_BLOCK_REGIONS.is_multiple_of(RUN),
    "a run is of one block"
);

/// See the module.
#[derive(Debug)]
pub(crate) struct RegionKeeper {
    space: RegionSpace,
    array: Uuid,
    /// By region: what the next write of its block says.
    kinds: Vec<RegionKind>,
    epochs: Vec<Update>,
    /// By block.
    sequences: Vec<u64>,
    dirty_counts: Vec<u32>,
    dirty_total: usize,
    /// By run: when one of its regions was asked for last.
    asked: Vec<Option<Instant>>,
    queued: Vec<bool>,
    /// Some holder in use lacks the block.
    owed: Vec<bool>,
    /// It is to be written once more after that. `None` where one place is enough.
    owed_twice: Option<Vec<bool>>,
    owed_total: usize,
    queue: VecDeque<u32>,
    /// Blocks that are owed; some of them are no longer.
    owed_queue: VecDeque<u32>,
    askers: Vec<(ReactorIndex, u32)>,
    pub(super) round: Option<Round>,
    pub(super) zeroing: Zeroing,
    barred: Vec<Barred>,
    bad_places: Vec<BadPlace>,
    /// Blocks that are in one place, and go to the other next.
    seconds: Vec<u32>,
    pub(super) clear: Clear,
    clear_after: Duration,
    clear_at: Option<Instant>,
    /// Writes of blocks that were begun.
    written: u64,
    /// The last sweep left regions that are about to be clean.
    marked: bool,
    records: Pool,
    buffers: Vec<Buffer>,
}

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its blocks are written.
    Write,
    /// Their holders are flushed.
    Flush,
    /// Holders that failed are excluded.
    Settle,
}

/// A block on its way to its holders.
#[derive(Clone, Debug)]
pub(super) struct RoundBlock {
    pub(super) number: u32,
    /// By region of the block: it was written as dirty.
    dirty: [u64; REGION_BLOCK_REGIONS.div_ceil(64)],
    /// A holder lacked it when the round began.
    owed: bool,
    attempt: Attempt,
    fate: Fate,
}

/// Blocks on their way to their holders.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) blocks: Vec<RoundBlock>,
    pub(super) phase: Phase,
    /// Position in `blocks` and holder: not asked yet in this phase.
    pub(super) todo: Vec<(usize, MemberIndex)>,
    pub(super) pending: usize,
    /// All holders of all blocks.
    holders: Vec<(usize, MemberIndex)>,
    /// Holders that failed, with their incarnation, and those that were flushed.
    pub(super) failed: Vec<(MemberIndex, u32)>,
    pub(super) flushed: Vec<MemberIndex>,
    /// Blocks, by position, that a holder has refused which is needed.
    pub(super) refused: Vec<(usize, Refuser)>,
}

/// How far clearing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Clear {
    /// For its time.
    Waiting,
    /// Other shards are asked to keep dirty what they write.
    Asking {
        todo: Vec<ReactorIndex>,
        pending: usize,
    },
    /// Members are flushed.
    Flushing {
        todo: Vec<MemberIndex>,
        under_way: Vec<MemberIndex>,
        ok: bool,
        /// Of all that were to be flushed, those that are not.
        left: Vec<MemberIndex>,
    },
    /// Blocks below `next` were looked at.
    Sweeping { next: u32 },
}

impl Round {
    /// All writes are done: the holders that took them are flushed.
    pub(super) fn flush(&mut self) {
        self.phase = Phase::Flush;
        for &(position, member) in &self.holders {
            let failed = self.failed.iter().any(|&(other, _)| other == member);
            let there = self.todo.iter().any(|&(_, other)| other == member);
            if !failed && !there {
                self.todo.push((position, member));
            }
        }
    }
}

impl Clear {
    pub(super) fn answered(&mut self) {
        let Clear::Asking { pending, .. } = self else {
            panic!("an answer that nobody waits for");
        };
        *pending -= 1;
    }

    pub(super) fn flushed(&mut self, member: MemberIndex, well: bool) {
        if let Clear::Flushing {
            under_way,
            ok,
            left,
            ..
        } = self
        {
            under_way.retain(|&other| other != member);
            left.retain(|&other| other != member || !well);
            *ok &= well;
        }
    }
}

impl RegionKeeper {
    /// Begins with what the drives have.
    ///
    /// # Errors
    /// When the host refuses the memory for the blocks.
    pub(crate) fn new(
        map: &RegionMap,
        places: &[Option<MemberPlace>],
        clear_after: Duration,
    ) -> std::io::Result<RegionKeeper> {
        let space = *map.space();
        let (count, blocks) = (space.count(), space.blocks());
        let mut records = Pool::new(
            ROUND_BLOCKS,
            REGION_BLOCK_BYTES,
            Backing::Anonymous(Pages::Plain),
        )?;
        let buffers = (0..ROUND_BLOCKS)
            .map(|_| records.acquire().expect("one for each"))
            .collect();
        let mut keeper = RegionKeeper {
            space,
            array: map.array(),
            kinds: (0..count).map(|region| map.entry(region).kind).collect(),
            epochs: (0..count).map(|region| map.entry(region).epoch).collect(),
            sequences: (0..blocks).map(|block| map.sequence(block)).collect(),
            dirty_counts: vec![0; blocks],
            dirty_total: 0,
            asked: vec![None; count.div_ceil(RUN)],
            queued: vec![false; blocks],
            owed: vec![false; blocks],
            owed_twice: map.has_all_blocks().then(|| vec![false; blocks]),
            owed_total: 0,
            queue: VecDeque::with_capacity(blocks),
            owed_queue: VecDeque::with_capacity(blocks),
            askers: Vec::new(),
            round: None,
            zeroing: Zeroing::new(count),
            barred: Vec::new(),
            bad_places: Vec::new(),
            seconds: Vec::new(),
            clear: Clear::Waiting,
            clear_after,
            clear_at: None,
            written: 0,
            marked: false,
            records,
            buffers,
        };
        for block in 0..blocks {
            let number = u32::try_from(block).expect("few blocks");
            let dirty = space
                .regions(number)
                .filter(|&region| keeper.is_dirty(region));
            let dirty = dirty.count();
            keeper.dirty_counts[block] = u32::try_from(dirty).expect("at most a block's");
            keeper.dirty_total += dirty;
            if map.is_uneven(number, |member| places[member.at()].is_some()) {
                keeper.owe_block(number);
            }
        }
        Ok(keeper)
    }

    pub(in crate::shard) fn space(&self) -> &RegionSpace {
        &self.space
    }

    fn is_dirty(&self, region: usize) -> bool {
        self.kinds[region] == RegionKind::Dirty
    }

    fn entry(&self, region: usize) -> RegionEntry {
        entry(self.kinds[region], self.epochs[region])
    }

    /// Whether somebody waits for a region.
    pub(super) fn has_askers(&self) -> bool {
        !self.askers.is_empty()
    }

    /// The regions that a member lacks which has missed what was written from update `base` on:
    /// `None` when that is everything.
    pub(in crate::shard) fn missed(&self, base: Update) -> Option<Suspects> {
        missed(&self.space, base, |region| self.entry(region))
    }

    /// Whether nothing is under way.
    pub(in crate::shard) fn is_idle(&self) -> bool {
        let clears = matches!(self.clear, Clear::Asking { .. } | Clear::Flushing { .. });
        self.round.is_none() && self.zeroing.is_idle() && self.askers.is_empty() && !clears
    }

    /// `from` waits for a region to be dirty.
    /// With members out, `ahead` is `None` and neighbours stay as they are: each region that
    /// becomes dirty now is one that these have missed. Else it says how many that are unwritten
    /// may be zeroed ahead.
    pub(super) fn want(
        &mut self,
        (from, region): (ReactorIndex, u32),
        now: Instant,
        ahead: Option<usize>,
    ) {
        self.askers.push((from, region));
        let region = bytes_usize(u64::from(region));
        let block = u32::try_from(region / REGION_BLOCK_REGIONS).expect("few blocks");
        if self.kinds[region] == RegionKind::Unwritten {
            return self.want_zeroes(region, now, ahead);
        }
        if !self.is_dirty(region) {
            let run = region / RUN;
            let before = self.asked[run].replace(now);
            if ahead.is_some() && before.is_some_and(|before| now.since(before) < STORM) {
                for neighbour in self.storm(block, run, now) {
                    if self.kinds[neighbour] == RegionKind::Clean {
                        self.make_dirty(neighbour);
                    }
                }
            }
            self.make_dirty(region);
        }
        self.enqueue(block);
    }

    /// What becomes dirty with a region of a run in a storm: the run, or the block.
    fn storm(&self, block: u32, run: usize, now: Instant) -> Range<usize> {
        let of_block = self.space.regions(block);
        let regions = |run: usize| run * RUN..((run + 1) * RUN).min(of_block.end);
        let passed = |other: usize| {
            let lately = self.asked[other].is_some_and(|asked| now.since(asked) < STREAM);
            lately && regions(other).all(|region| self.is_dirty(region))
        };
        let first = of_block.start / RUN;
        let last = (of_block.end - 1) / RUN;
        let before = run > first && passed(run - 1);
        let after = run < last && passed(run + 1);
        if before || after {
            of_block
        } else {
            regions(run)
        }
    }

    fn make_dirty(&mut self, region: usize) {
        if std::mem::replace(&mut self.kinds[region], RegionKind::Dirty) != RegionKind::Dirty {
            self.dirty_counts[region / REGION_BLOCK_REGIONS] += 1;
            self.dirty_total += 1;
        }
    }

    // ---- rounds --------------------------------------------------------------------------

    pub(super) fn has_work(&self) -> bool {
        self.round.is_none() && !(self.queue.is_empty() && self.owed_queue.is_empty())
    }

    /// Takes blocks from the queue and encodes them as they shall be now.
    pub(super) fn begin_round(&mut self, usable: impl Fn(MemberIndex) -> bool) {
        let mut round = Round {
            blocks: Vec::with_capacity(ROUND_BLOCKS),
            phase: Phase::Write,
            todo: Vec::new(),
            pending: 0,
            holders: Vec::new(),
            failed: Vec::new(),
            flushed: Vec::new(),
            refused: Vec::new(),
        };
        while round.blocks.len() < ROUND_BLOCKS {
            let Some(number) = self.next_block(round.blocks.len()) else {
                break;
            };
            let at = bytes_usize(u64::from(number));
            let position = round.blocks.len();
            let owed = std::mem::replace(&mut self.owed[at], false);
            let dirty = self.encode(position, number);
            round.blocks.push(RoundBlock {
                number,
                dirty,
                owed,
                attempt: self.attempt(number),
                fate: Fate::Written,
            });
            let holders = self.space.holders(number).filter(|&member| usable(member));
            round
                .holders
                .extend(holders.map(|member| (position, member)));
        }
        round.todo.clone_from(&round.holders);
        self.round = (!round.blocks.is_empty()).then_some(round);
    }

    fn encode(&mut self, position: usize, number: u32) -> [u64; REGION_BLOCK_REGIONS.div_ceil(64)] {
        self.written += 1;
        let at = bytes_usize(u64::from(number));
        self.sequences[at] += 1;
        let regions = self.space.regions(number);
        let mut dirty = [0; REGION_BLOCK_REGIONS.div_ceil(64)];
        for (bit, region) in regions.clone().enumerate() {
            dirty[bit / 64] |= u64::from(self.is_dirty(region)) << (bit % 64);
        }
        let told = |bit: usize| {
            let region = regions.start + bit;
            if region < regions.end {
                self.entry(region)
            } else {
                entry(RegionKind::Clean, Update(0))
            }
        };
        let mut bytes = [0; REGION_BLOCK_BYTES];
        RegionBlock::encode_into((self.array, number, self.sequences[at]), told, &mut bytes);
        self.record(position).copy_from_slice(&bytes);
        dirty
    }

    /// The encoded block at a position of the round.
    pub(super) fn record(&self, position: usize) -> Segment {
        self.records.segment(&self.buffers[position])
    }

    /// Where the present write of a block goes.
    pub(in crate::shard) fn offset(&self, block: u32) -> u64 {
        let at = bytes_usize(u64::from(block));
        self.space.offset(block, self.sequences[at])
    }

    /// The round is durable, or in vain: lets writes begin, or calls their regions lost.
    pub(super) fn publish(&mut self, round: &Round, states: &RegionStates, in_vain: bool) {
        for (position, block) in round.blocks.iter().enumerate() {
            self.owed_total -= usize::from(block.owed);
            let at = bytes_usize(u64::from(block.number));
            // Should a member have come meanwhile, it has neither.
            // Also one that was not when it was owed, because somebody has refused it then.
            let settled = !self.owed[at] && block.fate == Fate::Written;
            let twice = self.owed_twice.as_mut().filter(|_| settled);
            if twice.is_some_and(|twice| std::mem::take(&mut twice[at])) {
                self.owe_once(block.number);
            }
            let holds = |&(at, member): &(usize, MemberIndex)| {
                let holds =
                    at == position && round.failed.iter().all(|&(failed, _)| failed != member);
                assert!(
                    !holds || round.flushed.contains(&member) || planted::is_forgiven(),
                    "{member} was not flushed, and its copy of the region map counts"
                );
                holds
            };
            let durable = match block.fate {
                Fate::Again if !in_vain => continue,
                Fate::Written => !in_vain && round.holders.iter().any(holds),
                Fate::Again | Fate::Barred => false,
            };
            if durable {
                self.is_well_placed(block.number);
            }
            if block.fate == Fate::Barred {
                self.close(block.number, states);
            }
            for (bit, region) in self.space.regions(block.number).enumerate() {
                let written = block.dirty[bit / 64] & (1 << (bit % 64)) != 0;
                // What became clean since is written as clean by a later round.
                if !written || !self.is_dirty(region) {
                    continue;
                }
                let number = u32::try_from(region).expect("at most REGIONS_MAX");
                let (before, lost) = if states.is_unwritten(number) {
                    (RegionState::Unwritten, RegionState::Sealed)
                } else {
                    (RegionState::Clean, RegionState::Lost)
                };
                let state = if durable { RegionState::Dirty } else { lost };
                states.change(number, before, state);
            }
        }
    }

    /// Those whose regions need not be waited for any more, or all.
    pub(super) fn take_answers(
        &mut self,
        states: &RegionStates,
        all: bool,
    ) -> Vec<(ReactorIndex, u32)> {
        let ready = |&mut (_, region): &mut (ReactorIndex, u32)| {
            all || !matches!(
                states.get(region),
                RegionState::Clean | RegionState::Unwritten
            )
        };
        self.askers.extract_if(.., ready).collect()
    }

    // ---- clearing ------------------------------------------------------------------------

    /// How many writes of blocks were begun.
    pub(in crate::shard) fn written(&self) -> u64 {
        self.written
    }

    /// Whether guests may have written since `written` was asked: what is dirty is written as
    /// clean only after the last write to it.
    pub(in crate::shard) fn is_used_since(&self, written: u64) -> bool {
        self.written != written || self.dirty_total > 0
    }

    pub(super) fn is_all_clean(&self) -> bool {
        self.dirty_total == 0
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let waits = self.clear == Clear::Waiting && self.dirty_total > 0;
        let clears = self.clear_at.filter(|_| waits);
        clears.into_iter().chain(self.bars_end()).min()
    }

    /// Whether it is time to look for regions to clear.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let after = self.clear_after;
        now >= *self.clear_at.get_or_insert(now + after)
    }

    pub(super) fn begin_clear(&mut self, now: Instant, others: Vec<ReactorIndex>) {
        self.clear_at = Some(now + self.clear_after);
        self.clear = if std::mem::replace(&mut self.marked, false) {
            Clear::Asking {
                todo: others,
                pending: 0,
            }
        } else {
            // Nothing can be clean yet; the sweep only marks.
            Clear::Sweeping { next: 0 }
        };
    }

    /// The members could not be flushed: what was about to be clean goes through all of it again.
    pub(super) fn clear_later(&mut self) -> Clear {
        self.marked = true;
        Clear::Waiting
    }

    /// Looks at some blocks from `next` on.
    pub(super) fn sweep(
        &mut self,
        (next, most): (u32, usize),
        epoch: Update,
        states: &RegionStates,
        trusted: impl Fn(u32) -> bool,
    ) {
        let mut block = bytes_usize(u64::from(next));
        let mut looked_at = 0;
        while block < self.space.blocks() && looked_at < most {
            if self.dirty_counts[block] > 0 {
                looked_at += 1;
                self.sweep_block(block, epoch, states, &trusted);
            }
            block += 1;
        }
        self.clear = if block < self.space.blocks() {
            Clear::Sweeping {
                next: u32::try_from(block).expect("few blocks"),
            }
        } else {
            Clear::Waiting
        };
    }

    fn sweep_block(
        &mut self,
        block: usize,
        epoch: Update,
        states: &RegionStates,
        trusted: impl Fn(u32) -> bool,
    ) {
        let number = u32::try_from(block).expect("few blocks");
        if self.is_badly_placed(number) {
            // What becomes clean now may not become dirty again.
            return;
        }
        for region in self.space.regions(number) {
            let index = u32::try_from(region).expect("at most REGIONS_MAX");
            if !self.is_dirty(region) || !trusted(index) {
                continue;
            }
            if states.change(index, RegionState::Clearing, RegionState::Clean) {
                assert!(self.epochs[region] <= epoch, "updates do not go back");
                self.kinds[region] = RegionKind::Clean;
                self.epochs[region] = epoch;
                self.dirty_counts[block] -= 1;
                self.dirty_total -= 1;
                self.enqueue(number);
            } else if states.change(index, RegionState::Dirty, RegionState::Clearing) {
                self.marked = true;
            }
        }
    }
}

impl Drop for RegionKeeper {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            self.records.release(buffer);
        }
    }
}
