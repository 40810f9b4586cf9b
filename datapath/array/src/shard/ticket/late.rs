//! Reads of a ticket that are given up because a drive does not answer (`shard/bounce`).

use units::{Role, RoleSet, StripeIndex};

use super::super::Shard;
use super::{Kind, Step, Ticket};
use crate::io::Io;

impl Ticket {
    /// Whether a read of its plan was given up.
    pub(super) fn lacks_a_read(&self) -> bool {
        !self.roles(|band| band.read).both(self.late).is_empty()
    }

    /// It is planned with members that do not answer, because it cannot be without; whether that
    /// changes anything.
    pub(super) fn stops_avoiding(&mut self) -> bool {
        let late = std::mem::replace(&mut self.late, RoleSet::EMPTY);
        std::mem::take(&mut self.avoids) | !late.is_empty()
    }
}

impl Shard {
    /// Whether a ticket can do without what it reads of a role.
    pub(in crate::shard) fn may_give_up_read(&self, slot: u32, role: Role) -> bool {
        let ticket = &self.tickets[slot];
        let asked = matches!(ticket.order.kind, Kind::Write(_) | Kind::Read { .. });
        let goes_on = !ticket.answered && !ticket.given_up && !ticket.second_try;
        if !asked || !goes_on || ticket.step != Step::Reading {
            return false;
        }
        let stripe = ticket.order.stripe;
        let lost = self.map.lost(stripe, false);
        let lost = lost.union(ticket.media).union(ticket.errors);
        let lost = lost.union(ticket.late);
        self.slow_roles(stripe, lost).has(role)
    }

    /// A ticket is about to be planned, maybe around members that are slow.
    #[cold]
    pub(super) fn count_detour(&mut self, slot: u32) {
        let stripe = self.tickets[slot].order.stripe;
        let slow = self.slow_roles(stripe, self.map.lost(stripe, true));
        let stuck = |role: Role| self.shared.is_slow(self.map.member(stripe, role).0.at());
        if slow.into_iter().any(stuck) {
            self.counters.detours += 1;
        } else if !slow.is_empty() {
            self.counters.laggard_detours += 1;
        }
    }

    /// A read of a ticket is not awaited any more.
    pub(in crate::shard) fn read_given_up(&mut self, slot: u32, role: Role, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        ticket.late = ticket.late.with(role);
        assert!(ticket.pending > 0, "a member request completes once");
        ticket.pending -= 1;
        if ticket.pending == 0 {
            self.nothing_to_read(slot, io);
        }
    }

    /// Where parity may be wrong now, what was given up is read once more.
    pub(super) fn judge_late(&mut self, slot: u32, stripe: StripeIndex) {
        if self.may_differ(stripe) {
            self.tickets[slot].late = RoleSet::EMPTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_changes_once_if_it_avoided_somebody_or_did_without_a_read() {
        let late = RoleSet::one(Role(1));
        for (avoids, late, changes) in [
            (false, RoleSet::EMPTY, false),
            (true, RoleSet::EMPTY, true),
            (false, late, true),
            (true, late, true),
        ] {
            let mut ticket = Ticket {
                avoids,
                late,
                ..Ticket::default()
            };
            assert_eq!(ticket.stops_avoiding(), changes, "{avoids} {late:?}");
            assert!(!ticket.stops_avoiding(), "nothing is left to change");
        }
    }
}
