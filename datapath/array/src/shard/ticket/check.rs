//! Bad blocks that were written again are read back: a drive that cannot read them even now has no
//! spare block for them, and that counts against it as any failed read does. What it brings is not
//! compared, as drives answer from their caches; nobody waits for it but who wants the same lanes.
//! All is written by then: whatever changes meanwhile, the ticket ends, and is not planned anew.

use block::Status;
use units::RoleSet;

use super::super::Shard;
use super::{Kind, PlannedBand, Step, Ticket};
use crate::io::Io;
use crate::map::Pass;

impl Ticket {
    /// Roles that it could not read, and writes again.
    pub(super) fn rewritten(&self) -> RoleSet {
        match self.order.kind {
            Kind::Read { .. } | Kind::Repair(Pass::Rebuild) => {
                self.roles(|band| band.write).both(self.media)
            }
            Kind::Write(_)
            | Kind::Clear
            | Kind::Forfeit(_)
            | Kind::Repair(Pass::Resync | Pass::Scrub) => RoleSet::EMPTY,
        }
    }

    /// Whether what it has written is to be read back, into the same buffers.
    #[inline]
    pub(super) fn is_to_be_checked(&self) -> bool {
        !self.media.is_empty() && self.failures.is_empty() && !self.rewritten().is_empty()
    }
}

impl Shard {
    /// All is written: whether it goes on with reading back what was bad.
    #[inline]
    pub(super) fn reads_back(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if !self.tickets[slot].is_to_be_checked() {
            return false;
        }
        self.begin_check(slot, io);
        true
    }

    #[cold]
    fn begin_check(&mut self, slot: u32, io: &mut impl Io) {
        let rewritten = self.tickets[slot].rewritten();
        let ticket = &mut self.tickets[slot];
        for band in &mut ticket.bands[..ticket.band_count] {
            *band = PlannedBand {
                asked: band.asked.clone(),
                read: band.write.both(rewritten),
                ..PlannedBand::default()
            };
        }
        ticket.step = Step::CheckRoom;
        self.seek_room(slot, io);
    }

    /// Whether the ticket goes without reading back, because the map has changed since it was
    /// planned. Most maps only move the window of a pass: whoever still serves its row is read. A
    /// member that is out is not, and nobody is when by the new map some member is waited for: the
    /// read could wait, too, and its lanes with it.
    #[cold]
    pub(super) fn goes_unchecked(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if self.tickets[slot].step != Step::CheckRoom || !self.is_stale(slot) {
            return false;
        }
        let is_broken = self.map.is_broken();
        let order = &self.tickets[slot].order;
        let filled = self.background.is_filled(order.stripe, order.cell);
        let lost = self.map.lost(order.stripe, filled);
        let ticket = &mut self.tickets[slot];
        // All is written and nothing is planned any more: what it reads is by the present map.
        ticket.serial = self.map.serial;
        for band in &mut ticket.bands[..ticket.band_count] {
            band.read = band.read.without(lost);
        }
        let goes = is_broken || ticket.roles(|band| band.read).is_empty();
        if goes {
            ticket.errors = RoleSet::EMPTY;
            self.is_checked(slot, io);
        }
        goes
    }

    /// What was bad is read back, or cannot be.
    #[cold]
    pub(super) fn is_checked(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        let unread = ticket.errors.without(ticket.gone);
        self.counters.failed_rewrites += u64::from(!unread.is_empty());
        ticket.step = Step::Barrier;
        for band in &mut ticket.bands[..ticket.band_count] {
            band.read = RoleSet::EMPTY;
        }
        self.release_buffers(slot);
        self.finish_ticket(slot, Status::Ok, io);
    }
}
