//! What the next engine is told of a ticket: that it has begun to write, and when that is over.
//!
//! An entry begins right before the first member write is submitted, when all bytes are computed,
//! and ends before the ticket's buffers are given back, so before it is answered and before its
//! lanes are let go. While a member write has failed and its member is not out yet, it stays.
//!
//! And what the next engine is told of parity besides: docs/design/007-no-resync-after-a-kill.md.

use block::Status;
use units::{MemberIndex, Role, RoleSet};

use super::ticket::{Kind, Ticket, TicketOrder};
use super::{DriveIo, Shard, Shared};
use crate::begun::{Content, Order, Table, place};
use crate::buffers::Side;
use crate::map::{ArrayMap, MapState};
use crate::planted::{self, Fault};

/// Members that were gone when they were asked, or are held.
#[derive(Debug, Default)]
pub(super) struct Gone {
    members: Vec<GoneMember>,
}

#[derive(Clone, Copy, Debug)]
struct GoneMember {
    member: MemberIndex,
    incarnation: u32,
    /// As the map had it when it was gone last.
    released: u32,
    /// Some request has told so, not only the home that waits for it.
    is_heard: bool,
}

impl GoneMember {
    /// Whether it works again, and has lost nothing as far as that is known, or is out.
    fn is_over(&self, map: &ArrayMap, shared: &Shared) -> bool {
        let works = map.released[self.member.at()] != self.released;
        (works && !shared.is_doubted(self.member)) || map.is_out(self.member, self.incarnation)
    }
}

impl Gone {
    fn note(&mut self, (member, incarnation): (MemberIndex, u32), is_heard: bool, map: &ArrayMap) {
        let now = GoneMember {
            member,
            incarnation,
            released: map.released[member.at()],
            is_heard,
        };
        let same =
            |gone: &&mut GoneMember| (gone.member, gone.incarnation) == (member, incarnation);
        match self.members.iter_mut().find(same) {
            Some(gone) => {
                let is_heard = is_heard || gone.is_heard;
                *gone = GoneMember { is_heard, ..now };
            }
            None => self.members.push(now),
        }
    }

    /// Whether the next engine is told of some.
    pub(super) fn is_told(&self) -> bool {
        !self.members.is_empty()
    }
}

impl Ticket {
    /// Its writes are over, or never began.
    #[inline]
    pub(super) fn forget_begun(&mut self, slot: u32, table: Option<&Table>) {
        if std::mem::take(&mut self.is_begun)
            && let Some(table) = table
        {
            table.end(slot);
        }
    }
}

impl Shard {
    /// The ticket is about to write. Reads that rewrite, and passes, bring nothing new.
    #[inline]
    pub(super) fn tell_begun(&mut self, slot: u32) {
        let Some(table) = &self.begun else {
            return;
        };
        let ticket = &self.tickets[slot];
        let changes = ticket.order.kind.changes() && self.geometry().parity() > 0;
        if !changes || ticket.is_begun || self.is_mended_beside_the_log(slot) {
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
            content: if zeroes {
                Content::Zeroes
            } else if ticket.borrows && !planted::is(Fault::BorrowedTakenForKept) {
                Content::Borrowed
            } else {
                Content::Kept
            },
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
            self.tickets[slot].forget_begun(slot, self.begun.as_ref());
        }
    }

    /// What a ticket writes is all in its buffers now.
    pub(super) fn keep_begun(&self, slot: u32) {
        if self.tickets[slot].is_begun
            && let Some(table) = &self.begun
        {
            table.keep(slot);
        }
    }

    /// The ticket ends with an error although it had begun to write: what it leaves may be torn.
    pub(super) fn tell_torn(&self, slot: u32) {
        if self.tickets[slot].is_begun {
            self.shared.tear();
        }
        // As long as the array takes writes, the members that failed are known to the map.
        let TicketOrder {
            kind, stripe, cell, ..
        } = self.tickets[slot].order;
        if self.map.read_only && kind.changes() {
            let lanes = self.tickets[slot].lanes.clone();
            self.shared.tear_cell(self.cell_of(stripe, cell), lanes);
        }
    }

    /// Whether nothing may be computed from what the members of its stripe hold in the ticket's
    /// lanes: some may have what others lack.
    pub(super) fn is_torn(&self, slot: u32) -> bool {
        let TicketOrder { stripe, cell, .. } = self.tickets[slot].order;
        if self.map.is_torn(stripe) || !self.map.read_only {
            return self.map.is_torn(stripe);
        }
        // No record can be written that says of a member what it lacks, and the map does not.
        let group = self.geometry().group_members();
        let first = self.geometry().group(stripe).at() * group;
        let lacks = |position: usize| {
            let entry = &self.map.members[position];
            let member = MemberIndex::from_at(position);
            entry.state == MapState::InSync && self.shared.may_have_lost(member, entry.incarnation)
        };
        let lanes = &self.tickets[slot].lanes;
        (first..first + group).any(lacks)
            || self.shared.is_cell_torn(self.cell_of(stripe, cell), lanes)
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
        if status == Status::Gone && !self.map.is_out(done.member, done.incarnation) {
            let member = (done.member, done.incarnation);
            self.hold.gone.note(member, true, &self.map);
            self.shared.call_gone(self.me, done.member, true);
        }
    }

    /// A flush has failed that was carried out, or, as long as that is doubted, one that was not as
    /// the drive is gone.
    pub(super) fn note_failed_flush(&mut self, done: &DriveIo, is_doubted: bool) {
        if is_doubted {
            self.note_gone(done, Status::Gone);
        } else if !self.map.is_out(done.member, done.incarnation) {
            self.shared.call_unflushed(done.member);
        }
    }

    /// Whether this shard tells the next engine that a member is gone or held. For simulators.
    #[must_use]
    pub fn knows_of_gone(&self, member: MemberIndex) -> bool {
        let mut gone = self.hold.gone.members.iter();
        gone.any(|gone| gone.member == member)
    }

    /// Tells the next engine which members are gone or held, as this shard knows: until they are
    /// out for everybody, or were found to work. That nobody waits for one any more is not enough:
    /// it is still a member until the record is durable that says otherwise.
    #[cold]
    pub(super) fn tell_gone(&mut self) {
        let Shard {
            map, hold, shared, ..
        } = self;
        for (position, _) in map.held.iter().enumerate().filter(|(_, held)| **held) {
            let incarnation = map.members[position].incarnation;
            let member = MemberIndex::from_at(position);
            hold.gone.note((member, incarnation), false, map);
        }
        let gone = &mut hold.gone.members;
        while let Some(over) = gone.iter().position(|gone| gone.is_over(map, shared)) {
            let member = gone.swap_remove(over).member;
            let is_it = |other: &GoneMember| other.member == member && other.is_heard;
            if !gone.iter().any(is_it) {
                shared.call_gone(self.me, member, false);
            }
        }
        shared.call_held(self.me, gone.iter().any(|gone| !gone.is_heard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::Bench;

    #[test]
    fn a_member_that_some_request_found_gone_stays_so_and_is_noted_once() {
        let bench = Bench::new();
        for told in [[false, false], [false, true], [true, false], [true, true]] {
            let mut gone = Gone::default();
            assert!(!gone.is_told());
            for is_heard in told {
                gone.note((MemberIndex(1), 0), is_heard, &bench.shard.map);
            }
            let [one] = gone.members[..] else {
                panic!("one: {:?}", gone.members);
            };
            assert_eq!(one.is_heard, told.contains(&true), "{told:?}");
            // Another drive in its place, and another member.
            gone.note((MemberIndex(1), 1), false, &bench.shard.map);
            gone.note((MemberIndex(2), 0), false, &bench.shard.map);
            assert_eq!(gone.members.len(), 3);
        }
    }
}
