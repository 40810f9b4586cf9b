//! A shard's part in giving stripes from one reactor to another (see `coordinate/handover.rs`).

use units::ReactorIndex;

use super::Shard;
use crate::io::{Io, Message};

/// What was asked of this shard and is not answered.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Who asked that what was sent to whom has come there.
    fence: Option<Fence>,
    /// Who waits until nothing is under way on stripes that nobody owns.
    drain: Option<ReactorIndex>,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    asked_by: ReactorIndex,
    owner: ReactorIndex,
    /// The owner was asked.
    knocked: bool,
}

impl Handover {
    pub(super) fn is_idle(&self) -> bool {
        self.fence.is_none() && self.drain.is_none()
    }
}

impl Shard {
    /// What this shard has asked `owner` is to have come there. By its map nobody asks that one
    /// for what moves any more.
    pub(super) fn begin_fence(&mut self, asked_by: ReactorIndex, owner: ReactorIndex) {
        assert!(self.handover.fence.is_none(), "one after the other");
        self.handover.fence = Some(Fence {
            asked_by,
            owner,
            knocked: false,
        });
    }

    /// Messages to one reactor come in order: all that was sent to it before has.
    pub(super) fn heard(&mut self, io: &mut impl Io) {
        let fence = self.handover.fence.take().expect("it knocked");
        if fence.asked_by == self.me {
            self.decider().handing_over.fenced();
        } else {
            self.counters.messages += 1;
            io.reply(fence.asked_by, Message::Fenced);
        }
    }

    /// What is under way here on stripes that nobody owns is to end.
    pub(super) fn begin_hand_over(&mut self, asked_by: ReactorIndex) {
        assert!(self.handover.drain.is_none(), "one after the other");
        self.handover.drain = Some(asked_by);
    }

    pub(super) fn advance_handover(&mut self, io: &mut impl Io) -> usize {
        if self.handover.is_idle() {
            return 0;
        }
        let mut moved = 0;
        if let Some(fence) = &mut self.handover.fence
            && !fence.knocked
            && io.ask(fence.owner, Message::Knock).is_ok()
        {
            fence.knocked = true;
            self.counters.messages += 1;
            moved += 1;
        }
        if let Some(asked_by) = self.handover.drain
            && self.is_handed_over()
        {
            self.handover.drain = None;
            moved += 1;
            let named = self.log.names();
            if asked_by == self.me {
                self.decider().handing_over.handed_over(named);
            } else {
                self.counters.messages += 1;
                io.reply(asked_by, Message::HandedOver { named });
            }
        }
        moved
    }

    /// Lets requests go on whose stripes have an owner again.
    pub(super) fn await_owners(&mut self) -> usize {
        if self.unowned.is_empty() || self.map.owners.is_moving() {
            return 0;
        }
        let moved = self.unowned.len();
        for slot in self.unowned.drain(..) {
            self.waiting_requests.push(slot, self.requests[slot].line);
        }
        moved
    }

    /// Whether nothing is under way here on stripes that nobody owns. A write that was given up and
    /// is still to be carried out is under way, answered or not.
    fn is_handed_over(&self) -> bool {
        if !self.map.owners.is_moving() {
            return true;
        }
        let moves = |stripe| self.map.owner(stripe).is_none();
        let next = |slot: &u32| self.works.used_from(slot + 1);
        let mut works = std::iter::successors(self.works.used_from(0), next);
        if works.any(|slot| moves(self.stripe_of(slot))) {
            return false;
        }
        let next = |slot: &u32| self.tickets.used_from(slot + 1);
        let mut tickets = std::iter::successors(self.tickets.used_from(0), next);
        !tickets.any(|slot| moves(self.tickets[slot].order.stripe))
    }
}
