//! What the next engine is told of a ticket: that it has begun to write, and when that is over.
//!
//! An entry begins right before the first member write is submitted, when all bytes are computed,
//! and ends before the ticket's buffers are given back, so before it is answered and before its
//! lanes are let go. While a member write has failed and its member is not out yet, it stays.
//!
//! And what the next engine is told of parity besides: docs/design/007-no-resync-after-a-kill.md.

use block::Status;
use units::{MemberIndex, Role, RoleSet};

use super::ticket::Kind;
use super::{DriveIo, Shard};
use crate::begun::{Order, place};
use crate::buffers::Side;
use crate::planted::{self, Fault};

/// Members that were gone when they were asked.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// By incarnation, and whether they were held since: until they are out, or held no more.
    members: Vec<(MemberIndex, u32, bool)>,
    /// The next engine is told of some, or of one that is held.
    pub(super) is_told: bool,
}

impl Shard {
    /// The ticket is about to write. Reads that rewrite, and passes, bring nothing new.
    pub(super) fn tell_begun(&mut self, slot: u32) {
        let Some(table) = &self.begun else {
            return;
        };
        let ticket = &self.tickets[slot];
        let changes = match ticket.order.kind {
            Kind::Write(_) | Kind::Clear | Kind::Forfeit(_) => self.geometry().parity() > 0,
            Kind::Read { .. } | Kind::Repair(_) => false,
        };
        if !changes || ticket.is_begun {
            return;
        }
        let roles = ticket.write_roles();
        if roles.is_empty() {
            return;
        }
        let zeroes = ticket.order.kind == Kind::Clear;
        let order = Order {
            stripe: ticket.order.stripe,
            first: ticket.lanes.start,
            zeroes,
        };
        let mirrors = self.geometry().data() == 1;
        let from = if zeroes { RoleSet::EMPTY } else { roles };
        let places = from.iter().map(|role| {
            let source = if mirrors { Role(0) } else { role };
            place(self.buffers.offset(&ticket.buffers, Side::New, source))
        });
        let bands = ticket.bands().iter();
        let bands = bands.filter(|band| !band.write.is_empty());
        let bands = bands.map(|band| (band.asked.lanes.clone(), band.write));
        table.begin(slot, &order, bands, places);
        self.tickets[slot].is_begun = true;
        if planted::is(Fault::BegunForgottenEarly) {
            self.forget_begun(slot);
        }
    }

    /// Its writes are over, or never began.
    #[inline]
    pub(super) fn forget_begun(&mut self, slot: u32) {
        if std::mem::take(&mut self.tickets[slot].is_begun)
            && let Some(table) = &self.begun
        {
            table.end(slot);
        }
    }

    /// The ticket ends with an error although it had begun to write: what it leaves may be torn.
    pub(super) fn tell_torn(&self, slot: u32) {
        if self.tickets[slot].is_begun {
            self.shared.tear();
        }
    }

    /// Tells the next engine whether parity agrees wherever no ticket is: never before every shard
    /// acts by a map that says so, and no longer than that.
    pub(super) fn tell_trust(&self, effective: bool) {
        let Some(begun) = &self.shared.begun else {
            return;
        };
        let resynced = self.map.trusted_until.0 >= self.map.geometry.stripes()
            || planted::is(Fault::TrustedTooEarly);
        let trusted = resynced && self.shared.regions.is_open();
        if effective || !trusted {
            begun.trust(trusted);
        }
    }

    /// A member that is gone may come back without what it had acknowledged; when this engine is
    /// killed before it is decided what becomes of it, the next one is not to trust it.
    pub(super) fn note_gone(&mut self, done: &DriveIo, status: Status) {
        let told = (done.member, done.incarnation);
        if status != Status::Gone || self.map.settled(told.0, told.1) {
            return;
        }
        if !self
            .hold
            .gone
            .members
            .iter()
            .any(|gone| (gone.0, gone.1) == told)
        {
            self.hold.gone.members.push((told.0, told.1, false));
        }
        self.hold.gone.is_told = true;
        self.shared.call_gone(self.me, true);
    }

    /// Tells the next engine whether some member is gone or held, again and again as long as one
    /// is: another shard may share the bit.
    #[cold]
    pub(super) fn tell_gone(&mut self) {
        let map = &self.map;
        self.hold
            .gone
            .members
            .retain_mut(|(member, incarnation, was_held)| {
                let held = map.held[member.at()];
                let is_back = std::mem::replace(was_held, held) && !held;
                !is_back && !map.settled(*member, *incarnation)
            });
        self.hold.gone.is_told = !self.hold.gone.members.is_empty() || map.is_holding();
        self.shared.call_gone(self.me, self.hold.gone.is_told);
    }
}
