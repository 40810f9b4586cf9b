//! Rows that a rebuild or a resync cannot make right, because more of their chunks cannot be read
//! than there is parity; or, in a resync, because some cannot and the parity is what it is to make
//! right.
//!
//! ```text
//! a cell fails → its half, and so on → one row: its lost blocks go onto the list (`shard/losses`)
//! → zeroes are written for them, and parity over the row → on with the rest of the cell
//! ```
//! The ticket keeps the lanes of the whole cell meanwhile. What it writes in the end is a write
//! like any other, logged and into a dirty region, with one difference: members that are being
//! filled get their part, so that the row counts as filled.

use std::ops::Range;

use units::{MemberIndex, RoleSet};

use super::super::losses::first_of;
use super::super::{DriveIo, IoOwner, Shard, cell_lanes};
use super::{Kind, PlannedBand, Step};
use crate::io::{Event, Io};
use crate::losses::Rows;
use crate::map::{MapState, Pass};
use crate::plan::{Band, Beyond, Method, StripeState};
use crate::planted::{self, Fault};

impl Shard {
    /// A ticket cannot be planned: whether it goes on all the same, as a pass with a smaller part
    /// of its cell, or without blocks that nobody can tell.
    pub(super) fn gives_up_blocks(&mut self, slot: u32, io: &mut impl Io) -> bool {
        let ticket = &self.tickets[slot];
        let (pass, decided) = match ticket.order.kind {
            Kind::Repair(pass @ (Pass::Rebuild | Pass::Resync)) => (pass, false),
            Kind::Forfeit(pass) => (pass, true),
            Kind::Repair(Pass::Scrub) | Kind::Write(_) | Kind::Clear | Kind::Read { .. } => {
                return false;
            }
        };
        // Only what drives that are there cannot read, asked twice.
        let is_sure = !ticket.media.is_empty() && ticket.second_try && ticket.gone.is_empty();
        if ticket.answered || ticket.given_up || !is_sure || self.map.read_only {
            return false;
        }
        if self.map.is_holding() && !self.map.given_up {
            self.hold.push_ticket(slot);
            return true;
        }
        if self.map.is_broken() {
            return false;
        }
        let lanes = ticket.lanes.clone();
        if lanes.len() > 1 {
            let half = (lanes.end - lanes.start) / 2;
            self.look_at(slot, lanes.start..lanes.start + half, pass);
            return true;
        }
        self.tickets[slot].order.kind = Kind::Forfeit(pass);
        self.reconsider(slot);
        if !matches!(self.tickets[slot].order.kind, Kind::Forfeit(_)) {
            // Enough of it can be read: something else is in the way.
            return false;
        }
        if !self.is_given_up_for_good(slot) {
            if pass == Pass::Resync
                && let Some(member) = self.who_has_it(slot)
            {
                let first = first_of(self.asked_rows(slot, 0), self.geometry());
                io.event(Event::NotGivenUp { first, member });
                return false;
            }
            self.tickets[slot].step = Step::Planning;
            self.await_list(slot);
            return true;
        }
        if !decided {
            self.replan(slot);
        }
        !decided
    }

    /// A member that is out and holds a chunk of a row of which too much cannot be read. It may be
    /// back soon, with what it had: what was in use at an unclean stop is resynced just after the
    /// start that did without it. Where enough can be read, no member that is out tells more.
    fn who_has_it(&self, slot: u32) -> Option<MemberIndex> {
        let stripe = self.tickets[slot].order.stripe;
        let state = self.stripe_state(slot);
        if !state.unreadable.exceeds(self.geometry().parity()) {
            return None;
        }
        let members = state.lost.iter();
        let mut members = members.map(|role| self.map.member(stripe, role));
        let out = members.find(|(_, entry)| entry.state == MapState::Lost);
        out.map(|(member, _)| member)
    }

    /// Whether it reads once more what it could not read with the rest of its cell.
    pub(super) fn looks_closer(&self, slot: u32) -> bool {
        let (ticket, lanes) = (&self.tickets[slot], cell_lanes(self.geometry()));
        let passes = match ticket.order.kind {
            Kind::Repair(Pass::Rebuild | Pass::Resync) | Kind::Forfeit(_) => true,
            Kind::Write(_) | Kind::Read { .. } => return ticket.asked.is_some(),
            Kind::Repair(Pass::Scrub) | Kind::Clear => false,
        };
        let is_part = ticket.lanes.start > ticket.order.cell * lanes;
        passes && (ticket.second_try || is_part || ticket.lanes.end < ticket.claimed)
    }

    /// A row is done: goes on with the rest of the cell.
    #[inline]
    pub(super) fn goes_on(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let (Kind::Repair(pass) | Kind::Forfeit(pass)) = ticket.order.kind else {
            return false;
        };
        let mut rest = ticket.lanes.end..ticket.claimed;
        if rest.is_empty() || ticket.answered || pass == Pass::Scrub {
            return false;
        }
        let is_before = ticket.order.kind == Kind::Repair(Pass::Rebuild) && ticket.media.is_empty();
        if is_before {
            // The bad block because of which it goes by parts is still to come.
            rest.end = rest.end.min(rest.start + self.short_lanes());
        }
        self.look_at(slot, rest, pass);
        true
    }

    /// A rebuild has met bad blocks of drives that are there, among many others: whether it takes
    /// the cell in small parts, so that just these are written again with what is filled
    /// (`met_besides`). A drive may take seconds to say that it cannot read a block, so that is
    /// asked once more, and not by halves.
    pub(super) fn parts_from_bad_blocks(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let rebuilds = ticket.order.kind == Kind::Repair(Pass::Rebuild);
        let met = !ticket.media.is_empty() && ticket.gone.is_empty();
        if !rebuilds || !met || !self.is_long(slot) || self.tickets[slot].is_dropped() {
            return false;
        }
        let first = self.tickets[slot].lanes.start;
        self.look_at(slot, first..first + self.short_lanes(), Pass::Rebuild);
        true
    }

    fn look_at(&mut self, slot: u32, lanes: Range<u32>, pass: Pass) {
        let written = self.geometry().data_roles();
        let ticket = &mut self.tickets[slot];
        ticket.order.kind = Kind::Repair(pass);
        ticket.logged = false;
        ticket.bands[0].asked = Band {
            lanes: lanes.clone(),
            written,
        };
        self.begin_again(slot, lanes);
    }

    /// What a ticket gives up is what cannot be read now; nothing, if that may be read again.
    #[inline]
    pub(super) fn reconsider(&mut self, slot: u32) {
        if let Kind::Forfeit(pass) = self.tickets[slot].order.kind {
            self.reconsider_row(slot, pass);
        }
    }

    fn reconsider_row(&mut self, slot: u32, pass: Pass) {
        let (state, data) = (self.stripe_state(slot), self.geometry().data_roles());
        let is_beyond = state.unreadable.exceeds(self.geometry().parity());
        let untold = if pass == Pass::Resync {
            state.untold(self.geometry().data())
        } else {
            RoleSet::EMPTY
        };
        // Else what lost members held is what the others say of it.
        let lost = if is_beyond || untold.is_empty() {
            data.both(state.unreadable)
        } else {
            untold
        };
        let listed = self.listed_of(slot);
        let ticket = &mut self.tickets[slot];
        let written = &mut ticket.bands[0].asked.written;
        *written = if ticket.logged {
            // The next engine may write its zeroes: there is nothing to go back to, and parity is
            // computed with them from here on. Not so what it was only about to give up besides,
            // and what can be read by now.
            listed.union(lost)
        } else if is_beyond || !untold.is_empty() {
            lost
        } else {
            ticket.order.kind = Kind::Repair(pass);
            data
        };
    }

    /// What returned an error is read again, for the last time. Not what is logged as lost, and
    /// parity with it: both are only written, and whether drives may refuse that is asked of their
    /// errors.
    pub(in crate::shard) fn forget_errors(&mut self, slot: u32) {
        let ticket = &self.tickets[slot];
        let is_logged = ticket.logged && matches!(ticket.order.kind, Kind::Forfeit(_));
        let stays = if is_logged {
            self.listed_of(slot).union(self.geometry().parity_roles())
        } else {
            RoleSet::EMPTY
        };
        self.tickets[slot].forget_errors_but(stays);
    }

    /// Of what a ticket gives up, what is on the list: all that it has logged, at least.
    fn listed_of(&self, slot: u32) -> RoleSet {
        let rows = self.asked_rows(slot, 0);
        let mut listed = RoleSet::EMPTY;
        for role in rows.roles.iter() {
            let roles = RoleSet::one(role);
            if self.is_given_up(Rows { roles, ..rows }) {
                listed = listed.union(roles);
            }
        }
        listed
    }

    /// Plans a row without what is lost: zeroes there, and parity of all.
    pub(super) fn plan_forfeit_band(
        &self,
        slot: u32,
        asked: Band,
        state: &StripeState,
    ) -> Result<PlannedBand, Beyond> {
        if !self.is_given_up_for_good(slot) {
            return Err(Beyond);
        }
        let (data, parity) = (self.geometry().data_roles(), self.geometry().parity_roles());
        let kept = data.without(asked.written);
        let unfilled = self.map.unfilled(self.tickets[slot].order.stripe);
        let absent = state.lost.without(unfilled);
        let mut write = asked.written.union(parity).without(absent);
        if planted::is(Fault::ForfeitKeepsParity) {
            write = write.without(parity);
        }
        if kept.meets(state.unreadable) {
            // Of lost members: they go on holding what the others say.
            let planned = self.plan_write_band(asked, state)?;
            return Ok(PlannedBand { write, ..planned });
        }
        let method = if kept.is_empty() {
            Method::Full
        } else {
            Method::ReconstructWrite
        };
        Ok(PlannedBand {
            asked,
            method: Some(method),
            read: kept,
            write,
            ..PlannedBand::default()
        })
    }

    /// Whether a bad block does not take the zeroes that stand for what was lost there. Where as
    /// much is lost besides as there is parity, its row protects nothing by it, and no member is
    /// left out or waited for because of one bad block. Nor in a resync after an unclean stop,
    /// where what the member holds in all other rows could not be told without it. Asked of a
    /// write that failed.
    pub(in crate::shard) fn is_lost_all_the_same(&self, done: &DriveIo) -> bool {
        let IoOwner::Ticket { ticket: slot, role } = done.owner else {
            return false;
        };
        let ticket = &self.tickets[slot];
        let forfeits = matches!(ticket.order.kind, Kind::Forfeit(_));
        if !forfeits || !ticket.media.has(role) {
            return false;
        }
        let state = self.stripe_state(slot);
        let others = state.unreadable.without(RoleSet::one(role));
        let member = &self.map.members[done.member.at()];
        let same = member.incarnation == done.incarnation;
        let resyncs = ticket.order.kind == Kind::Forfeit(Pass::Resync);
        let untold = resyncs && state.untold(self.geometry().data()).has(role);
        let needless = untold || others.len() >= self.geometry().parity();
        same && member.state == MapState::InSync && needless
    }
}
