//! What must hold whenever members are written, asserted where it would be broken first: an engine
//! that finds itself wrong ends, and the next one starts from what is durable. One that went on
//! would tear stripes which nobody repairs. Each costs a look or two at what was just used.
//!
//! * A write that is answered is on every member that a start may count on: `assert_decided`.
//! * Who writes a member acts by the map that counts, has its lanes to itself, in a region that is
//!   dirty on the drives, and after its log entry is durable: `assert_may_write`.
//! * Copies of the region map, and entries of the log, count on members only that were flushed:
//!   `regions/keeper.rs`, `log.rs` (`note_durable`).
//! * Drives get the very bytes that parity is made of: `assert_copied`, `assert_not_lent`.
//! * One shard at a time works on a stripe: `assert_owns`, `assert_owns_all`.
//! * Updates do not go back: `regions/keeper.rs`.
//! * Nobody is left out whom its group needs: `coordinate/record.rs` (`exclude`).
//! * A scrub writes only what its checks tell for sure: `assert_located`.
//! * Buffers and slots come back: `memory::Buffer` when it is dropped, `Engine::drop_shards`.
//!
//! Not asserted, because it would take reading everything, or all the time: parity outside of
//! dirty regions agrees (the simulator looks after each recovery, and scrubs do), only the newest
//! entry of the log for a lane is written again and every request ends in time (the simulator),
//! and each block has one place (tests over small shapes).

use units::{MemberIndex, StripeIndex};

use super::Shard;
use crate::format::WriteHole;
use crate::planted;

impl Shard {
    /// The ticket is about to write on members: by the map that counts now, it holds its lanes, has
    /// what it is to write, its region is dirty on the drives, and what must be in the log first is
    /// durable there.
    #[inline]
    pub(super) fn assert_may_write(&self, slot: u32) {
        if self.is_stale(slot) && !planted::is_forgiven() {
            breaks("its plan is of another map", slot);
        }
        if !self.holds_its_lanes(slot) && !planted::is_forgiven() {
            breaks("it does not hold its lanes", slot);
        }
        self.assert_region_dirty(slot);
        self.assert_copied(slot);
        self.assert_not_lent(slot);
        if self.is_scrub(slot) {
            self.assert_located(slot);
        }
        let ticket = &self.tickets[slot];
        if !self.optimal || ticket.log_slot.is_some() || self.map.write_hole == WriteHole::Strict {
            self.assert_logged(slot);
        }
    }

    /// Nobody else is at the ticket's memory, or may yet be.
    #[inline]
    pub(super) fn assert_not_lent(&self, slot: u32) {
        if planted::is_watched() && self.is_lending(slot) && !planted::is_forgiven() {
            breaks("others compute what it writes", slot);
        }
    }

    /// The ticket is about to say that all went well: who did not take what it wrote is out, and
    /// every reactor knows.
    #[inline]
    pub(super) fn assert_decided(&self, slot: u32) {
        let ticket = &self.tickets[slot];
        let waits = ticket.barrier > self.effective;
        let is_in = |&(member, filling): &(MemberIndex, u32)| !self.map.is_out(member, filling);
        if (waits || ticket.failures.iter().any(is_in)) && !planted::is_forgiven() {
            is_early(slot);
        }
    }

    /// The checks of a scrub tell for sure which chunks it is about to write, in a stripe whose
    /// parity nobody is still to make.
    #[cold]
    fn assert_located(&self, slot: u32) {
        let order = self.tickets[slot].order;
        let filled = self.background.is_filled(order.stripe, order.cell);
        let (wrong, checks) = self.located(slot);
        let may = 2 * wrong <= checks && self.map.parity_trusted(order.stripe, filled);
        if !may && !planted::is_forgiven() {
            breaks("its checks do not tell what is wrong", slot);
        }
    }

    /// What the ticket writes, or logs, is in its buffers.
    #[inline]
    pub(super) fn assert_copied(&self, slot: u32) {
        if self.tickets[slot].copy_due {
            breaks("what it writes was not copied", slot);
        }
    }

    /// The ticket's region is dirty: nobody calls it clean before its writes are decided on.
    #[inline]
    pub(super) fn assert_region_dirty(&self, slot: u32) {
        let Some(region) = self.tickets[slot].region else {
            return;
        };
        if !self.shared.regions.is_dirty(region) && !planted::is_forgiven() {
            breaks("its region is clean", slot);
        }
    }

    /// This shard is asked to work on a stripe: it owns it, or is about to.
    #[inline]
    pub(super) fn assert_owns(&self, stripe: StripeIndex) {
        let owner = self.map.owner(stripe);
        let own = owner.is_none_or(|owner| owner == self.me);
        assert!(
            own || planted::is_forgiven(),
            "{} works on {stripe}, which is {owner:?}'s",
            self.me
        );
    }

    /// By a new map: it works on stripes that it owns, or hands over.
    pub(super) fn assert_owns_all(&self) {
        for slot in self.tickets.used() {
            self.assert_owns(self.tickets[slot].order.stripe);
        }
        for slot in self.works.used() {
            self.assert_owns(self.stripe_of(slot));
        }
    }

    /// Whether the ticket, which has no log entry, should have one.
    fn lacks_its_log(&self, slot: u32) -> bool {
        let wanted = self.can_log(slot) && self.mode_logs(slot);
        wanted && !self.roles_to_log(slot).is_empty()
    }

    #[inline(never)]
    fn assert_logged(&self, slot: u32) {
        if planted::is_forgiven() {
            return;
        }
        match self.tickets[slot].log_slot {
            Some(place) if !self.log.is_durable(place) => {
                breaks("its log entry is not durable", slot);
            }
            None if self.lacks_its_log(slot) => breaks("it is not logged", slot),
            Some(_) | None => {}
        }
    }
}

#[cold]
#[inline(never)]
fn is_early(slot: u32) -> ! {
    panic!("ticket {slot} is answered although some member has not taken it, and is not out");
}

/// Apart, because what a message shows would else be put together for every ticket.
#[cold]
#[inline(never)]
fn breaks(how: &str, slot: u32) -> ! {
    panic!("ticket {slot} writes although {how}")
}
