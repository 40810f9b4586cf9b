//! Regions that were never written and are to be: which, and how far their zeroing is. Does no I/O.

use std::collections::VecDeque;

use units::{Instant, MemberIndex, StripeIndex, bytes_usize};

use super::{REGION_BLOCK_REGIONS, RUN, RegionKeeper, STORM, STREAM};
use crate::format::RegionKind;
use crate::regions::{RegionState, RegionStates, Suspects};

/// User bytes in regions that are zeroed at a time, unless one has more.
pub(in crate::shard::regions) const TOGETHER_BYTES: u64 = 64 << 20;

/// Regions to be zeroed, and those that are.
#[derive(Debug)]
pub(in crate::shard::regions) struct Zeroing {
    queue: VecDeque<u32>,
    /// By region: it is in the queue, or in the round.
    wanted: Vec<bool>,
    pub(in crate::shard::regions) round: Option<ZeroRound>,
}

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard::regions) enum ZeroStep {
    /// Members are zeroed.
    Zero,
    /// And flushed.
    Flush,
    /// It is looked who is left that was not.
    Settle,
}

/// A member request to be made.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard::regions) struct ZeroPiece {
    pub(in crate::shard::regions) member: MemberIndex,
    pub(in crate::shard::regions) incarnation: u32,
    /// On the drive; no bytes for a flush.
    pub(in crate::shard::regions) offset: u64,
    pub(in crate::shard::regions) length: u64,
}

/// Regions on their way from unwritten to written.
#[derive(Debug)]
pub(in crate::shard::regions) struct ZeroRound {
    pub(in crate::shard::regions) regions: Vec<u32>,
    pub(in crate::shard::regions) step: ZeroStep,
    pub(in crate::shard::regions) todo: VecDeque<ZeroPiece>,
    pub(in crate::shard::regions) pending: usize,
    /// Who is being zeroed, with its incarnation; and who is, and flushed.
    pub(in crate::shard::regions) members: Vec<(MemberIndex, u32)>,
    pub(in crate::shard::regions) zeroed: Vec<(MemberIndex, u32)>,
    /// Who failed.
    pub(in crate::shard::regions) failed: Vec<(MemberIndex, u32)>,
    /// Regions whose zeroes a member has refused that is needed.
    pub(in crate::shard::regions) refused: Vec<(u32, (MemberIndex, u32))>,
}

impl Zeroing {
    pub(super) fn new(regions: usize) -> Zeroing {
        Zeroing {
            queue: VecDeque::new(),
            wanted: vec![false; regions],
            round: None,
        }
    }

    pub(in crate::shard::regions) fn is_idle(&self) -> bool {
        self.round.is_none() && self.queue.is_empty()
    }

    /// The region may be wanted again.
    pub(super) fn allow(&mut self, region: u32) {
        self.wanted[bytes_usize(u64::from(region))] = false;
    }

    /// Nobody wants the region to be zeroed ahead of its first write.
    pub(super) fn forbid(&mut self, region: u32) {
        self.wanted[bytes_usize(u64::from(region))] = true;
    }

    fn want(&mut self, region: usize) {
        if !std::mem::replace(&mut self.wanted[region], true) {
            let number = u32::try_from(region).expect("at most REGIONS_MAX");
            self.queue.push_back(number);
        }
    }
}

impl RegionKeeper {
    /// A region is to be zeroed, and in a storm or a stream so many behind it in its run.
    pub(super) fn want_zeroes(&mut self, region: usize, now: Instant, ahead: Option<usize>) {
        let run = region / RUN;
        let before = self.asked[run].replace(now);
        let storms = before.is_some_and(|before| now.since(before) < STORM);
        let streams = run > 0
            && region.is_multiple_of(RUN)
            && self.asked[run - 1].is_some_and(|asked| now.since(asked) < STREAM);
        let ahead = ahead.filter(|_| storms || streams).unwrap_or(0);
        let end = ((run + 1) * RUN).min(self.space.count());
        for region in region..end.min(region + 1 + ahead) {
            if self.kinds[region] == RegionKind::Unwritten {
                self.zeroing.want(region);
            }
        }
    }

    /// A region was zeroed on all members in use: the next write of its block says that it is
    /// written.
    pub(in crate::shard::regions) fn zeroed(&mut self, region: u32) {
        let region = bytes_usize(u64::from(region));
        self.zeroing.wanted[region] = false;
        assert!(
            self.kinds[region] == RegionKind::Unwritten,
            "a region is zeroed before it is written, and never after"
        );
        self.make_dirty(region);
        self.enqueue(u32::try_from(region / REGION_BLOCK_REGIONS).expect("few blocks"));
    }

    /// The regions that are not unwritten.
    pub(in crate::shard) fn written_regions(&self) -> Suspects {
        let is_written = |region: usize| self.kinds[region] != RegionKind::Unwritten;
        Suspects::of(&self.space, is_written)
    }

    /// The first stripes from `from` on in regions that are not unwritten, so many at most: first,
    /// and the one after the last. Both are the array's end when there are none.
    pub(in crate::shard) fn written_run(
        &self,
        from: StripeIndex,
        most: u64,
    ) -> (StripeIndex, StripeIndex) {
        let is_written = |region: usize| self.kinds[region] != RegionKind::Unwritten;
        let number = |region: usize| u32::try_from(region).expect("at most REGIONS_MAX");
        let (_, all) = self.space.stripes(number(self.space.count() - 1));
        if from >= all {
            return (all, all);
        }
        let at = bytes_usize(u64::from(self.space.region(from)));
        let Some(first) = (at..self.space.count()).find(|&region| is_written(region)) else {
            return (all, all);
        };
        let start = self.space.stripes(number(first)).0.max(from);
        let mut end = start;
        let regions = (first..self.space.count()).take_while(|&region| is_written(region));
        for region in regions {
            end = self.space.stripes(number(region)).1;
            if end.0 - start.0 >= most {
                break;
            }
        }
        (start, end.min(StripeIndex(start.0.saturating_add(most))))
    }

    /// Takes regions of so many user bytes each from the queue: nobody is zeroed yet.
    pub(in crate::shard::regions) fn begin_zeroing(&mut self, bytes: u64) -> Option<ZeroRound> {
        let together = bytes_usize((TOGETHER_BYTES / bytes).max(1));
        let most = self.zeroing.queue.len().min(together);
        (most > 0).then(|| ZeroRound {
            regions: self.zeroing.queue.drain(..most).collect(),
            step: ZeroStep::Settle,
            todo: VecDeque::new(),
            pending: 0,
            members: Vec::new(),
            zeroed: Vec::new(),
            failed: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Regions that cannot be written, because a member cannot be zeroed that is needed.
    pub(in crate::shard::regions) fn seal(&mut self, regions: &[u32], states: &RegionStates) {
        for &region in regions {
            self.zeroing.allow(region);
            states.change(region, RegionState::Unwritten, RegionState::Sealed);
        }
    }

    /// The array ends: what nobody waits for is not zeroed any more.
    pub(in crate::shard::regions) fn forget_zeroing_ahead(&mut self) {
        let RegionKeeper {
            askers, zeroing, ..
        } = self;
        zeroing.queue.retain(|&region| {
            let is_asked = askers.iter().any(|&(_, asked)| asked == region);
            zeroing.wanted[bytes_usize(u64::from(region))] = is_asked;
            is_asked
        });
    }

    /// Nothing is written any more: what is unwritten stays so.
    pub(in crate::shard::regions) fn forget_zeroing(&mut self) {
        self.zeroing.queue.clear();
        self.zeroing.wanted.fill(false);
        self.zeroing.round = None;
    }
}
