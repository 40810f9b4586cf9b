//! Writes that have not begun to write when the map changes.
//!
//! Each is planned anew, and reads again what it has read. But most maps only move the window of a
//! background pass, many times a second on fast drives, and say nothing new of stripes that lie in
//! neither window: what was planned there by the old map is what the new one would have planned.

use super::{Kind, Step};
use crate::map::ArrayMap;
use crate::plan::StripeState;
use crate::shard::Shard;

/// A write that may go on by the next map, and what the present one says of its stripe.
pub(in crate::shard) type Follower = (u32, StripeState);

impl Shard {
    /// Writes that are planned by the present map and may be by `next`: those of stripes that lie
    /// in no window, unless `next` says more than how far a pass is.
    pub(in crate::shard) fn followers(&self, next: &ArrayMap) -> Vec<Follower> {
        if !self.map.differs_by_passes(next) {
            return Vec::new();
        }
        let slots = self.tickets.used().into_iter();
        let slots = slots.filter(|&slot| {
            let ticket = &self.tickets[slot];
            let stripe = ticket.order.stripe;
            let writes = matches!(ticket.order.kind, Kind::Write(_));
            writes
                && ticket.step.is_before_writing()
                && !self.is_stale(slot)
                && !self.map.is_in_a_window(stripe)
                && !next.is_in_a_window(stripe)
        });
        slots.map(|slot| (slot, self.stripe_state(slot))).collect()
    }

    /// The map is a new one: who finds its stripe as it was is not planned anew.
    pub(in crate::shard) fn follow_tickets(&mut self, followers: Vec<Follower>) {
        for (slot, before) in followers {
            if self.stripe_state(slot) == before {
                self.tickets[slot].serial = self.map.serial;
                self.counters.kept_plans += 1;
            }
        }
    }
}

impl Step {
    /// Whether there is a plan, and nothing was written by it.
    fn is_before_writing(self) -> bool {
        match self {
            Step::ReadRoom
            | Step::Reading
            | Step::Helped
            | Step::LogRoom
            | Step::Logging
            | Step::WriteRoom => true,
            Step::Claiming
            | Step::Ready
            | Step::Planning
            | Step::Buffers
            | Step::Writing
            | Step::AskRoom
            | Step::Asking
            | Step::CheckRoom
            | Step::Checking
            | Step::Barrier => false,
        }
    }
}
