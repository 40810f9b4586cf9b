//! What becomes of what waits when a hold is given up: it is answered with an error. What has begun
//! to write is carried out all the same.

use block::Operation;

use super::super::ticket::Ticket;
use super::super::{IoOwner, Shard};
use super::{OLD, OLD_BEHIND_OTHERS, Parked};
use crate::io::Io;
use crate::planted::{self, Fault};

impl Shard {
    /// Answers what has waited for long. What has begun to write is carried out all the same.
    pub(super) fn give_up(&mut self, io: &mut impl Io) -> usize {
        let mut moved = 0;
        let (left, stays): (Vec<Parked>, Vec<Parked>) = std::mem::take(&mut self.hold.parked)
            .into_iter()
            .partition(|parked| match parked.done.owner {
                IoOwner::Direct { .. }
                | IoOwner::Flush { .. }
                | IoOwner::LogFlush
                | IoOwner::Clear => true,
                IoOwner::Ticket { .. } => {
                    let forgotten = planted::is(Fault::GivenUpWriteForgotten);
                    forgotten || parked.done.operation == Some(Operation::Read)
                }
                IoOwner::Nobody
                | IoOwner::Abandoned { .. }
                | IoOwner::Bounced { .. }
                | IoOwner::GivenUp { .. }
                | IoOwner::Log { .. }
                | IoOwner::Metadata
                | IoOwner::Region
                | IoOwner::Zeroing
                | IoOwner::Probe
                | IoOwner::Trial
                | IoOwner::Doubt
                | IoOwner::RollCall { .. } => false,
            });
        self.hold.parked = stays;
        for Parked { done, status, .. } in left {
            self.deliver(done, status, io);
            moved += 1;
        }
        for slot in self.tickets.used() {
            // One that ends takes those with it whose work it does.
            if self.tickets.is_busy(slot) {
                moved += usize::from(self.give_up_ticket(slot, io));
            }
        }
        let others_go_on = self.others_go_on();
        moved + self.age_requests(others_go_on) + self.age_works(others_go_on)
    }

    /// Whether the ticket was answered.
    fn give_up_ticket(&mut self, slot: u32, io: &mut impl Io) -> bool {
        let parked = self
            .hold
            .parked
            .iter()
            .any(|parked| match parked.done.owner {
                IoOwner::Ticket { ticket, .. } | IoOwner::Log { ticket } => ticket == slot,
                IoOwner::Nobody
                | IoOwner::Abandoned { .. }
                | IoOwner::Bounced { .. }
                | IoOwner::GivenUp { .. }
                | IoOwner::Direct { .. }
                | IoOwner::Flush { .. }
                | IoOwner::LogFlush
                | IoOwner::Metadata
                | IoOwner::Region
                | IoOwner::Clear
                | IoOwner::Zeroing
                | IoOwner::Probe
                | IoOwner::Trial
                | IoOwner::Doubt
                | IoOwner::RollCall { .. } => false,
            });
        let ticket = &mut self.tickets[slot];
        ticket.attempts = ticket.attempts.saturating_add(1);
        // A follower shares the fate of the one that does its work.
        if ticket.follows() || ticket.given_up || !(parked || ticket.attempts > OLD) {
            return false;
        }
        let is_young = ticket.attempts <= OLD_BEHIND_OTHERS;
        if !parked && is_young && self.is_behind_others(slot) {
            return false;
        }
        let ticket = &mut self.tickets[slot];
        if ticket.refusals.as_ref().is_some_and(|it| !it.is_met()) {
            // It is carried out, from what is in its buffers.
            ticket.keeps = true;
            self.answer_given_up(slot, io);
            return true;
        }
        let logged = ticket.logged;
        if self.losses.has(slot) {
            // The record that it waits for may be written at any time: no other ticket works on its
            // lanes before the home has answered. What it has logged is carried out, and what
            // follows.
            if logged && !self.keep(slot) {
                return false;
            }
            self.answer_given_up(slot, io);
            return true;
        }
        if self.is_lending(slot) {
            // Others are reading the guest's memory. In a moment it can be.
            return false;
        }
        let ticket = &self.tickets[slot];
        let (at_drives, is_written) = (ticket.is_at_drives(), ticket.is_all_written());
        if is_written || (at_drives && (!parked || self.lends_memory(slot))) {
            return false;
        }
        if logged && !self.keep(slot) {
            return false;
        }
        self.answer_given_up(slot, io);
        if logged {
            return true;
        }
        if self.leave_queues(slot) || !self.lanes.is_granted(slot) {
            self.end_ticket(slot);
        }
        true
    }

    /// Takes a ticket out of the queue in which it waits; whether it was in one. One that goes on
    /// at the next poll, or when a drive answers, ends there.
    fn leave_queues(&mut self, slot: u32) -> bool {
        let mut waited = self.log.leave(slot) | self.leave_delayed(slot);
        for list in [&mut self.region_waiters, &mut self.hold.tickets] {
            let before = list.len();
            list.retain(|&other| other != slot);
            waited |= list.len() < before;
        }
        let [small, large] = &mut self.buffer_waiters;
        for list in [small, large, &mut self.room_waiters] {
            let before = list.len();
            list.retain(|&other| other != slot);
            waited |= list.len() < before;
        }
        waited
    }

    /// Whether there are tickets to have, or will be: those that were given up stay until members
    /// work again.
    fn others_go_on(&self) -> bool {
        let ends = |ticket: &Ticket| !ticket.given_up && !ticket.follows();
        self.tickets.free() > 0 || self.tickets.busy().any(ends)
    }

    /// Whether the ticket only waits for lanes, buffers or room, as it always may, and its group
    /// lacks nothing.
    fn is_behind_others(&self, slot: u32) -> bool {
        let [small, large] = &self.buffer_waiters;
        let lists = [small, large, &self.room_waiters];
        let waits = !self.lanes.is_granted(slot) || lists.iter().any(|list| list.contains(&slot));
        waits && !self.map.is_given_up(self.tickets[slot].order.stripe)
    }
}
