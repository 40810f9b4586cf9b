//! The end of a ticket: when it may be answered, and what becomes of what it held.

use block::Status;

use super::super::Shard;
use super::{Kind, Step, Ticket, TicketOrder};
use crate::io::Io;
use crate::map::Pass;
use crate::planted::{self, Fault};

impl Shard {
    /// All writes are in: the ticket is answered, or waits until what it depends on is durable
    /// and known to every shard.
    #[inline(always)]
    pub(super) fn writes_done(&mut self, slot: u32, io: &mut impl Io) {
        let refusals = &self.tickets[slot].refusals;
        if refusals.as_ref().is_some_and(|it| it.is_met()) {
            self.follow_refusals(slot, io);
            return;
        }
        let ticket = &mut self.tickets[slot];
        ticket.step = Step::Barrier;
        if planted::is(Fault::AnswerBeforeExclusion) || planted::is(Fault::HeldWriteAnswered) {
            ticket.failures.clear();
        }
        let (well, known) = (ticket.failures.is_empty(), ticket.barrier <= self.effective);
        if well && ticket.refusals.is_none() && !ticket.is_to_be_checked() {
            // Else the next engine may have to write it again, until the members are out.
            self.release_written(slot);
        }
        if well && known {
            self.conclude(slot, Status::Ok, io);
        } else {
            self.barrier_waiters.push(slot);
        }
    }

    /// There was nothing to write.
    #[cold]
    pub(super) fn wrote_nothing(&mut self, slot: u32, io: &mut impl Io) {
        self.writes_done(slot, io);
    }

    /// Answers tickets whose membership change is effective.
    pub(in crate::shard) fn settle_tickets(&mut self, io: &mut impl Io) -> usize {
        let mut moved = 0;
        let mut position = 0;
        while position < self.barrier_waiters.len() {
            let slot = self.barrier_waiters[position];
            match self.ticket_verdict(slot) {
                None => position += 1,
                Some(status) => {
                    self.barrier_waiters.swap_remove(position);
                    self.conclude(slot, status, io);
                    moved += 1;
                }
            }
        }
        moved
    }

    fn ticket_verdict(&self, slot: u32) -> Option<Status> {
        let Ticket {
            barrier, failures, ..
        } = &self.tickets[slot];
        if self.map.read_only && !failures.is_empty() {
            return Some(Status::Media);
        }
        let depends_on = if planted::is(Fault::AnswerBeforeEveryReactor) {
            0
        } else if failures.is_empty() {
            *barrier
        } else {
            self.map.barrier.max(*barrier)
        };
        let settled = failures
            .iter()
            .all(|&(member, incarnation)| self.map.settled(member, incarnation));
        if self.effective < depends_on || !settled {
            return None;
        }
        let beyond = failures
            .iter()
            .any(|&(member, _)| self.map.hopeless[member.at()]);
        Some(if beyond { Status::Media } else { Status::Ok })
    }

    /// Its writes are decided on. One of what was lost is answered when it is not on the list any
    /// more: whoever is told that a block is written reads it from then on.
    #[inline(always)]
    fn conclude(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        if planted::is_watched() {
            self.assert_region_dirty(slot);
        }
        if self.tickets[slot].refusals.is_some() {
            self.conclude_refused(slot, status, io);
            return;
        }
        if status.is_ok() && self.losses.any && self.heals(slot) {
            if planted::is(Fault::HealedAfterTheAnswer) {
                self.answer_ticket(slot, status, io);
            }
            self.await_list(slot);
            return;
        }
        self.finish_ticket(slot, status, io);
    }

    #[inline(always)]
    pub(in crate::shard) fn finish_ticket(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        if !status.is_ok() {
            self.finish_badly(slot, status, io);
            return;
        }
        if self.tickets[slot].may_go_on() && self.goes_on_after_writes(slot, io) {
            return;
        }
        self.assert_decided(slot);
        self.answer_ticket(slot, status, io);
        self.end_written(slot);
    }

    /// Whether a ticket that has written is to do more.
    #[inline(never)]
    fn goes_on_after_writes(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if self.looks_again(slot) {
            self.replan(slot);
            return true;
        }
        self.reads_back(slot, io) || self.goes_on(slot) || self.goes_on_with_rows(slot)
    }

    #[cold]
    #[inline(never)]
    fn finish_badly(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        self.tell_torn(slot);
        self.answer_ticket(slot, status, io);
        self.end_ticket(slot);
    }

    #[inline(always)]
    pub(in crate::shard) fn answer_ticket(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        self.assert_not_lent(slot);
        let ticket = &mut self.tickets[slot];
        if std::mem::replace(&mut ticket.answered, true) {
            return;
        }
        let joined = ticket.joined;
        let TicketOrder {
            kind,
            work,
            stripe,
            cell,
            ..
        } = ticket.order;
        match kind {
            Kind::Repair(Pass::Scrub) => self.answer_scrub(slot, status, io),
            Kind::Repair(_) | Kind::Forfeit(_) => self.background.ticket_done(stripe, cell, status),
            Kind::Write(_) | Kind::Clear | Kind::Read { .. } => {
                self.work_ticket_done(work, status, io);
            }
        }
        if joined.is_some() {
            self.answer_joined(joined, status, io);
        }
    }

    /// Answers a ticket because the hold was given up. It ends when it is carried out, or at its
    /// next step if it has not begun to write.
    pub(in crate::shard) fn answer_given_up(&mut self, slot: u32, io: &mut impl Io) {
        if !std::mem::replace(&mut self.tickets[slot].given_up, true) {
            self.shared.owe();
        }
        self.answer_ticket(slot, Status::Media, io);
    }

    pub(in crate::shard) fn end_ticket(&mut self, slot: u32) {
        self.end_written(slot);
    }

    /// As `end_ticket`, where nearly all end.
    #[inline(always)]
    fn end_written(&mut self, slot: u32) {
        // One that wrote has given its buffers back already, and nothing else is left mostly.
        if self.tickets[slot].holds_anything() {
            self.let_go(slot);
        }
        self.assert_not_lent(slot);
        let Shard {
            tickets,
            lanes,
            granted,
            ..
        } = self;
        lanes.release(slot, |next| {
            tickets[next].step = Step::Ready;
            granted.push(next);
        });
        tickets.release(slot);
    }

    /// Gives back whatever a ticket holds besides its lanes.
    #[inline(never)]
    fn let_go(&mut self, slot: u32) {
        if std::mem::take(&mut self.tickets[slot].given_up) {
            self.shared.carry_out();
        }
        self.end_joined(slot);
        self.forget_refusals(slot);
        self.end_log(slot);
        self.release_buffers(slot);
        self.forget_kept(slot);
    }
}

impl Ticket {
    /// Whether it may be left to do more when all is written.
    #[inline]
    fn may_go_on(&self) -> bool {
        let passes = matches!(self.order.kind, Kind::Repair(_) | Kind::Forfeit(_));
        passes | !self.media.is_empty() | self.asked.is_some()
    }

    /// Whether anything of it is to be given back, besides its lanes.
    #[inline]
    fn holds_anything(&self) -> bool {
        let flagged = self.given_up | self.computed | self.is_begun | self.borrows;
        let rare = self.refusals.is_some() | self.kept.is_some() | self.grave.is_some();
        flagged | rare | self.joined.is_some() | self.log_slot.is_some() | self.buffers.any()
    }
}
