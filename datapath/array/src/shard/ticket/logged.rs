//! Writes that are logged first, and those that were when the map changed, or a member failed under
//! them.
//!
//! What a ticket has logged is the new content of all chunks that it changes. It keeps its lanes,
//! so that content stays right whoever is out since. Nothing is read again: a block that turns out
//! to be bad then would leave the row as it was, while the next engine writes there what the log
//! says. Parity is as good as it was when it was planned, as that of a write which has begun.
//!
//! So does a row of which blocks are given up (`forfeit.rs`), also while members are waited for, or
//! after that was in vain: what the next engine may write there can neither be taken back nor, once
//! one more member is gone or one more block is bad, be computed again.

use units::RoleSet;

use super::super::Shard;
use super::{Kind, Step, Ticket};
use crate::io::Io;

impl Shard {
    /// What is to be written is there: it is logged first, or written.
    #[inline(always)]
    pub(in crate::shard) fn begin_writing(&mut self, slot: u32, io: &mut impl Io) {
        self.tickets[slot].step = if self.must_log(slot) {
            // Since it was planned.
            self.own_payload(slot);
            Step::LogRoom
        } else {
            Step::WriteRoom
        };
        self.seek_room(slot, io);
    }

    /// A ticket is planned anew: whether it goes on with what it has logged, without the members
    /// that are out since. If more is to be written than that, or it was waited in vain, it
    /// begins from the beginning.
    pub(super) fn goes_on_as_logged(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if !self.tickets[slot].computed {
            return false;
        }
        let forfeits = matches!(self.tickets[slot].order.kind, Kind::Forfeit(_));
        if forfeits && self.must_be_carried_out(slot) {
            // Later, with what it has now.
            self.tickets[slot].step = Step::Planning;
            self.wait_to_be_carried_out(slot, io);
            return true;
        }
        let (mut lost, mut all) = (self.stripe_state(slot).lost, self.geometry().parity_roles());
        let most = all.len();
        let stripe = self.tickets[slot].order.stripe;
        if forfeits {
            // Members that are being filled get their part of it.
            let unfilled = self.map.unfilled(stripe);
            (lost, all) = (lost.without(unfilled), all.union(unfilled));
        }
        // Who is only waited for gets its part when it is back: were the row read again then, a
        // block of it might have become bad, and what is in the log could not be taken back.
        let in_vain = !forfeits && (self.map.is_given_up(stripe) || self.is_open(stripe));
        let is_broken = self.map.read_only || self.any_hopeless || in_vain;
        let sound = !is_broken && !self.is_region_lost(slot);
        let ticket = &mut self.tickets[slot];
        let fits = sound && !lost.exceeds(most) && ticket.has_logged_all(all, lost);
        if !fits {
            self.release_buffers(slot);
            return false;
        }
        for band in &mut ticket.bands[..ticket.band_count] {
            band.leave_out(lost);
        }
        (ticket.serial, ticket.barrier) = (self.map.serial, self.map.barrier);
        self.begin_writing(slot, io);
        true
    }
}

impl Ticket {
    /// Whether it has logged what it was asked for and these besides, but for those that are lost
    /// now.
    fn has_logged_all(&self, besides: RoleSet, lost: RoleSet) -> bool {
        let logged = |band: &super::PlannedBand| {
            let needed = band.asked.written.union(besides).without(lost);
            band.write.covers(needed)
        };
        self.bands().iter().all(logged)
    }
}
