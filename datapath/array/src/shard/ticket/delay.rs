//! Writes that would have to read what the writes before them are about to bring.
//!
//! The last stripe of a stream of writes is never whole: the rest comes when the guest hears of
//! writes that are under way. A ticket that would have to read is *delayed* while the stripes right
//! before its own are being written, by other requests that came before it, with at least as many
//! blocks as its own lacks: each that is answered makes room for another. No clock decides. As
//! those before it end, they become fewer than it lacks, and it begins with what has come. Nobody
//! else waits for it but who shares its lanes, and those before it wait for nothing that it has: no
//! buffers, no region. Nobody is put off while a member is slow or waited for.
//!
//! A guest may have nothing more to write, or wait for all it has asked before it asks again. So it
//! is counted, for each volume, whether delayed tickets grew; where they did not, only some are
//! delayed, to see whether that has changed.
//!
//! A ticket that was not delayed reads, and while it does, others may come that make its stripe
//! whole. Then what was read is dropped, and the whole stripe is written: it is *promoted*.

use units::limits::SHARD_LINES;
use units::{Instant, StripeIndex, bytes_u64};

use super::super::{Shard, cell_lanes};
use super::Step;
use super::join::blocks_of;
use crate::plan::Band;
use crate::planted::{self, Fault};

/// So many stripes before its own are looked at.
const STRIPES: u64 = 8;
/// What a delay that brought something counts for, and one that did not.
const GROWN: i8 = 1;
const IN_VAIN: i8 = -2;
/// The best and the worst of it.
const BEST: i8 = 4;
const WORST: i8 = -32;

/// How a ticket was when it was put off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed {
    /// Blocks that it was to write.
    blocks: u32,
    since: Instant,
}

impl Shard {
    /// Whether a ticket that is about to begin is put off.
    #[inline]
    pub(super) fn is_delayed(&mut self, slot: u32, now: Instant) -> bool {
        // As random writes do: nothing is under way before them.
        let before = self.lanes.cell(slot).wrapping_sub(self.stripe_cells);
        if self.tickets[slot].delayed.is_none() && self.lanes.is_surely_free(before) {
            return false;
        }
        self.looks_before(slot, now)
    }

    #[inline(never)]
    fn looks_before(&mut self, slot: u32, now: Instant) -> bool {
        if !self.would_be_delayed(slot) {
            self.note_delay(slot, false, now);
            return false;
        }
        self.counters.delayed_writes += u64::from(self.tickets[slot].delayed.is_none());
        let blocks = self.blocks_to_write(slot);
        let delayed = Delayed { blocks, since: now };
        self.tickets[slot].delayed.get_or_insert(delayed);
        self.delayed.push(slot);
        true
    }

    fn would_be_delayed(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let fits = ticket.step == Step::Ready && self.may_lead(slot);
        let reads = ticket
            .bands()
            .iter()
            .any(|band| !self.is_whole(&band.asked));
        if !fits || !reads {
            return false;
        }
        let lanes = cell_lanes(self.geometry());
        let data = u32::try_from(self.geometry().data()).expect("few");
        let lacks = lanes * data - self.blocks_to_write(slot);
        if self.blocks_before(slot, lacks) < lacks {
            return false;
        }
        // Where it was in vain so far, it is tried now and then.
        let line = self.line_of(slot);
        let first_time = self.tickets[slot].delayed.is_none();
        if first_time && self.delays[line] < 0 {
            self.delays[line] += 1;
            return false;
        }
        true
    }

    /// A ticket begins: whether it was worth it to put it off, if it was; it has `joined` another,
    /// or does the work of more than before.
    #[inline]
    pub(super) fn note_delay(&mut self, slot: u32, joined: bool, now: Instant) {
        if let Some(Delayed { blocks, since }) = self.tickets[slot].delayed.take() {
            self.counters.delayed_nanoseconds += now.0.saturating_sub(since.0);
            let has_grown = joined || self.blocks_to_write(slot) > blocks;
            let line = self.line_of(slot);
            let change = if has_grown { GROWN } else { IN_VAIN };
            self.delays[line] = (self.delays[line] + change).clamp(WORST, BEST);
        }
    }

    /// Blocks in the stripes right before, same cell, of writes that came before the ticket and all
    /// that joined it, and belong to requests of none of them: they only become fewer. Not counted
    /// on when there are `enough`.
    fn blocks_before(&self, slot: u32, enough: u32) -> u32 {
        let next = |ticket: &u32| self.tickets[*ticket].joined;
        let party = || std::iter::successors(Some(slot), next);
        let oldest = party().reduce(|oldest, other| {
            if self.lanes.came_before(other, oldest) {
                other
            } else {
                oldest
            }
        });
        let oldest = oldest.expect("the ticket itself");
        let mut blocks = 0;
        for distance in 1..=STRIPES {
            let Some(cell) = self.cell_before(slot, distance) else {
                break;
            };
            let mut claims = self.lanes.of_cell(cell).peekable();
            if claims.peek().is_none() {
                break;
            }
            for (before, _) in claims {
                let other = &self.tickets[before];
                let work = other.order.work;
                let own = || party().any(|member| self.tickets[member].order.work == work);
                if other.may_join() && self.lanes.came_before(before, oldest) && !own() {
                    blocks += other.own_blocks();
                }
            }
            if blocks >= enough {
                break;
            }
        }
        blocks
    }

    /// The ticket's cell so many stripes before its own.
    #[inline]
    fn cell_before(&self, slot: u32, distance: u64) -> Option<u64> {
        let order = &self.tickets[slot].order;
        let StripeIndex(stripe) = order.stripe;
        let before = stripe.checked_sub(distance)?;
        Some(before * self.stripe_cells + u64::from(order.cell))
    }

    /// Blocks of its cell that the ticket writes, those of all that joined included.
    fn blocks_to_write(&self, slot: u32) -> u32 {
        let bands = self.tickets[slot].bands().iter();
        bands.map(|band| blocks_of(&band.asked)).sum()
    }

    /// Whether all data of a band's lanes is written.
    #[inline]
    fn is_whole(&self, band: &Band) -> bool {
        band.written == self.geometry().data_roles()
    }

    fn line_of(&self, slot: u32) -> usize {
        let line = self.works[self.tickets[slot].order.work].line;
        usize::from(line) % SHARD_LINES
    }

    /// Lets delayed tickets look again, before any that is new, when something came or went.
    pub(super) fn look_at_delayed(&mut self) {
        if self.delayed.is_empty() || planted::is(Fault::DelayedForGood) {
            return;
        }
        if self.is_well() && self.delayed_at == self.lanes.changes() {
            return;
        }
        self.delayed_at = self.lanes.changes();
        let new = self.granted.len();
        self.granted.append(&mut self.delayed);
        self.granted.rotate_left(new);
    }

    /// Takes a ticket out of those that are put off; whether it was one.
    pub(in crate::shard) fn leave_delayed(&mut self, slot: u32) -> bool {
        let before = self.delayed.len();
        self.delayed.retain(|&other| other != slot);
        self.delayed.len() < before
    }

    /// Whether others came while the ticket read, so that it need not.
    #[inline(always)]
    pub(super) fn is_promoted(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        // Once: who was here when it was looked at may not be when it is planned.
        let may_be = ticket.step == Step::Reading && !ticket.promoted;
        may_be && self.lanes.has_company(slot) && self.need_not_have_read(slot)
    }

    #[inline(never)]
    fn need_not_have_read(&mut self, slot: u32) -> bool {
        if !self.may_lead(slot) {
            return false;
        }
        let party = self.party(slot);
        let whole = party
            .written
            .as_slice()
            .iter()
            .all(|band| self.is_whole(band));
        let ticket = &mut self.tickets[slot];
        ticket.promoted = whole;
        if whole {
            let read = ticket.roles(|band| band.read);
            self.counters.promoted_writes += 1;
            self.counters.wasted_reads += bytes_u64(read.len());
        }
        whole
    }
}
