//! What a request asks for that drives are not asked for: what was never written, and what nobody
//! can tell any more.

use block::{Operation, Status};
use units::{StripeIndex, bytes_usize};

use super::super::Shard;
use super::RequestSlot;
use crate::planted::{self, Fault};

impl Shard {
    /// Requests of this reactor that are not answered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.requests.in_use()
    }

    /// How many blocks from this one on drives are asked for at once: `None` when they are not,
    /// because nothing was ever written there, or nobody can tell what was.
    #[inline]
    pub(super) fn run_at_drives(
        &self,
        request: &RequestSlot,
        (stripe, block): (StripeIndex, u64),
        blocks: u32,
    ) -> Option<u32> {
        let reads = request.operation == Operation::Read;
        if self.is_unwritten(stripe) && (reads || request.part.is_whole()) {
            return None;
        }
        if !reads || !self.losses.any {
            return Some(blocks);
        }
        let (run, is_lost) = self.lost_run(block, blocks);
        (!is_lost).then_some(run)
    }

    /// Whether nothing was ever written to the stripe's region.
    #[inline]
    fn is_unwritten(&self, stripe: StripeIndex) -> bool {
        let regions = &self.shared.regions;
        let region = regions.space.region(stripe);
        if planted::is(Fault::ZeroesOfAnOldMap) {
            let before = self.losses.unwritten_before.get(bytes_usize(region.into()));
            return regions.is_unwritten(region) || before == Some(&true);
        }
        regions.is_unwritten(region)
    }

    /// Answers what [`Shard::run_at_drives`] says is none. What was never written reads as zeroes,
    /// and what is to be zeroes there, is.
    #[cold]
    pub(super) fn answer_without_drives(
        &mut self,
        slot: u32,
        (stripe, block): (StripeIndex, u64),
        mut blocks: u32,
    ) {
        let RequestSlot {
            operation,
            part,
            segments,
            issued,
            blocks: all,
            ..
        } = self.requests[slot];
        let reads = operation == Operation::Read;
        if self.losses.any && reads {
            let (run, is_lost) = self.lost_run(block, blocks);
            if is_lost {
                self.requests[slot].issued += run;
                self.requests[slot].status = self.requests[slot].status.and(Status::Media);
                return;
            }
            blocks = run;
        }
        let blocks = if reads {
            let (offset, length) = if part.is_whole() {
                (self.bytes(issued), bytes_usize(self.bytes(blocks)))
            } else {
                (0, segments.bytes())
            };
            segments.for_each_part(bytes_usize(offset), length, |bytes| bytes.fill(0));
            blocks
        } else {
            let regions = &self.shared.regions.space;
            let (_, end) = regions.stripes(regions.region(stripe));
            let left = end.0 * u64::from(self.geometry().stripe_blocks()) - block;
            u32::try_from(left.min((all - issued).into())).expect("at most all")
        };
        self.counters.unwritten_pieces += 1;
        self.requests[slot].issued += blocks;
    }
}
