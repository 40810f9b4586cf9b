//! Writes of one cell that are carried out together.
//!
//! Tickets that write the same lanes of a cell go one after another, because they change the same
//! parity. When one begins, those that wait behind it for the same lanes and other chunks *join*:
//! the first of them does the work of all, with one plan, so that a stream of writes shorter than
//! a stripe becomes full stripes, or at least one change of parity for many. Nothing is waited for:
//! they are those of the same turn, and those that came while the ticket before was under way.
//!
//! Only in an array to which nothing has happened, and never when the write is to be logged: the
//! next engine would find in the log what the parted tickets do not know of. When the ticket has to
//! be planned anew, for whatever reason, they part again, and each goes alone in its turn.

use block::Status;
use units::RoleSet;

use super::super::Shard;
use super::{Kind, Payload, Step, Ticket};
use crate::io::Io;
use crate::planted::{self, Fault};

impl Ticket {
    /// Whether it may do the work of others, or others its.
    #[inline]
    pub(super) fn may_join(&self) -> bool {
        let kind = self.order.kind == Kind::Write(Payload::Guest);
        kind && self.order.part.is_whole() && self.band_count == 1
    }

    /// Whether another ticket does its work.
    pub(in crate::shard) fn follows(&self) -> bool {
        self.follows
    }

    /// Whether it does the work of no others.
    #[inline]
    pub(in crate::shard) fn is_alone(&self) -> bool {
        self.joined.is_none()
    }

    /// The roles whose content its own request brings.
    pub(in crate::shard) fn own_roles(&self) -> RoleSet {
        self.own
    }
}

impl Shard {
    /// Takes over the work of tickets that wait for the same lanes and write other chunks, up to
    /// the first that does not fit: none is overtaken.
    #[inline]
    pub(super) fn join_those_that_wait(&mut self, slot: u32) {
        if self.lanes.next_waiting(slot, slot).is_none() {
            return;
        }
        let ticket = &self.tickets[slot];
        let well = self.optimal && !self.late.any_slow;
        let fresh = ticket.media.is_empty() && ticket.gone.is_empty();
        let fresh = fresh && !ticket.answered && !ticket.logged && ticket.asked.is_none();
        if !well || !fresh || !ticket.may_join() || self.must_log(slot) {
            return;
        }
        let lanes = ticket.lanes.clone();
        let (mut all, mut last) = (ticket.own, slot);
        while let Some(next) = self.lanes.next_waiting(slot, last) {
            let other = &self.tickets[next];
            let fits = other.may_join()
                && other.step == Step::Claiming
                && !other.answered
                && other.lanes == lanes
                && other.bands[0].asked.written.both(all).is_empty();
            if !fits {
                break;
            }
            all = all.union(other.bands[0].asked.written);
            self.tickets[last].joined = Some(next);
            self.tickets[next].follows = true;
            self.counters.joined_writes += 1;
            last = next;
        }
        let ticket = &mut self.tickets[slot];
        ticket.bands[0].asked.written = all;
    }

    /// A ticket is planned anew: what joined it waits behind it again.
    #[inline]
    pub(super) fn part_again(&mut self, slot: u32) {
        let ticket = &mut self.tickets[slot];
        let Some(first) = ticket.joined.take() else {
            return;
        };
        assert!(!ticket.answered, "an answered ticket has nothing to plan");
        ticket.bands[0].asked.written = ticket.own;
        self.each_joined(Some(first), |shard, other| {
            let other = &mut shard.tickets[other];
            other.joined = None;
            other.follows = false;
        });
    }

    /// Copies what the guest wants written in those that joined.
    #[inline]
    pub(in crate::shard) fn fill_joined(&mut self, slot: u32) {
        if planted::is(Fault::JoinedNotCopied) {
            return;
        }
        self.each_joined(self.tickets[slot].joined, |shard, other| {
            shard.fill_from(slot, other);
        });
    }

    pub(super) fn answer_joined(&mut self, first: Option<u32>, status: Status, io: &mut impl Io) {
        self.each_joined(first, |shard, other| {
            let ticket = &mut shard.tickets[other];
            if !std::mem::replace(&mut ticket.answered, true) {
                let work = ticket.order.work;
                shard.work_ticket_done(work, status, io);
            }
        });
    }

    /// The ticket ends, and with it those that joined. They give their claims up first, or they
    /// would be granted.
    #[inline]
    pub(super) fn end_joined(&mut self, slot: u32) {
        let first = self.tickets[slot].joined.take();
        self.each_joined(first, |shard, other| {
            assert!(shard.tickets[other].answered, "answered with the first");
            shard.tickets[other].joined = None;
            shard.tickets[other].follows = false;
            shard.end_ticket(other);
        });
    }

    #[inline]
    fn each_joined(&mut self, first: Option<u32>, mut visit: impl FnMut(&mut Shard, u32)) {
        let mut next = first;
        while let Some(other) = next {
            next = self.tickets[other].joined;
            visit(self, other);
        }
    }
}
