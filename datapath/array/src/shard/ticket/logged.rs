//! Writes that are logged first, and those that were when the map changed, or a member failed under
//! them.
//!
//! What a ticket has logged is the new content of all chunks that it changes. It keeps its lanes,
//! so that content stays right whoever is out since. Nothing is read again: a block that turns out
//! to be bad then would leave the row as it was, while the next engine writes there what the log
//! says. Parity is as good as it was when it was planned, as that of a write which has begun.

use units::RoleSet;

use super::super::Shard;
use super::{Step, Ticket};
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
    /// that are out since. If more is to be written than that, or the array waits for members, it
    /// begins from the beginning.
    pub(super) fn goes_on_as_logged(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if !self.tickets[slot].computed {
            return false;
        }
        let lost = self.stripe_state(slot).lost;
        let parity = self.geometry().parity_roles();
        let sound = !self.map.is_broken() && !self.is_region_lost(slot);
        let enough = !lost.exceeds(parity.len());
        let ticket = &mut self.tickets[slot];
        let fits = sound && enough && ticket.has_logged_all(parity, lost);
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
    /// Whether it has logged all that is to be written now that these roles are lost.
    fn has_logged_all(&self, parity: RoleSet, lost: RoleSet) -> bool {
        let logged = |band: &super::PlannedBand| {
            let needed = band.asked.written.union(parity).without(lost);
            band.write.covers(needed)
        };
        self.bands().iter().all(logged)
    }
}
