//! Tickets: one stripe's share of a piece, on some lanes of one cell, from claim to answer.
//!
//! ```text
//! claim lanes → plan → take buffers → [read → (error: plan anew)] → compute → [helped] → write →
//! [barrier] → [check] → end
//! ```
//! A ticket whose map changed before it began to write is planned anew, unless nothing changed for
//! its stripe (`follow`). All member writes of a ticket are submitted in one turn, so that a killed
//! process has begun all of them or none.

mod answer;
mod borrow;
mod buffers;
mod check;
mod delay;
mod follow;
mod forfeit;
mod join;
mod late;
mod logged;
mod planning;
mod refused;
mod rows;
mod scrub;
mod state;
mod transfer;

use std::ops::Range;

use block::{Operation, Part, Stability, Status};
use memory::SegmentList;
use units::{MemberIndex, Role, RoleSet, StripeIndex};

pub(super) use self::borrow::is_aligned;
use self::delay::Delayed;
pub(in crate::shard) use self::refused::{Page, Refusals};
use self::rows::Asked;
pub(super) use self::scrub::Looking;
use super::Shard;
use super::kept::Kept;
use crate::buffers::{Class, TicketBuffers};
use crate::io::Io;
use crate::map::Pass;
use crate::plan::{Band, Method};
use crate::planted::{self, Fault};

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// The request's segments.
    Guest,
    /// Zeroes.
    Zeroes,
}

/// What a ticket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// New content for some blocks.
    Write(Payload),
    /// Zeroes for all blocks of the cell, parity included; the space may be released.
    Clear,
    /// Content of blocks that cannot be read directly. `tried`: the chunk in this role could not be
    /// read into the guest's memory, and is to be asked once more. What cannot be read into ours is
    /// reconstructed and rewritten, whoever holds it.
    Read { tried: Option<Role> },
    /// A cell of a background pass.
    Repair(Pass),
    /// A row of it that nobody can tell: zeroes for what is lost.
    Forfeit(Pass),
}

impl Kind {
    /// Whether it brings new content, not only what makes members agree.
    #[inline]
    pub(super) fn changes(self) -> bool {
        match self {
            Kind::Write(_) | Kind::Clear | Kind::Forfeit(_) => true,
            Kind::Read { .. } | Kind::Repair(_) => false,
        }
    }
}

/// What to do, as the work or the background pass asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TicketOrder {
    pub(super) kind: Kind,
    pub(super) work: u32,
    pub(super) stripe: StripeIndex,
    pub(super) cell: u32,
    /// First block of the piece within the stripe.
    pub(super) start: u32,
    /// Whole blocks, or which bytes of the one block.
    pub(super) part: Part,
    /// Where in `segments` the piece begins, in bytes.
    pub(super) offset: u64,
    pub(super) segments: SegmentList,
    /// What may become of that memory meanwhile.
    pub(super) stability: Stability,
    /// Who asks has given up to read this role.
    pub(super) late: Option<Role>,
}

/// One band with its plan.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedBand {
    pub(super) asked: Band,
    pub(super) method: Option<Method>,
    /// Roles to read.
    pub(super) read: RoleSet,
    /// Those of `read` whose content is kept beside the new one.
    pub(super) old: RoleSet,
    /// Roles to compute from those read.
    pub(super) decode: RoleSet,
    /// Roles to write.
    pub(super) write: RoleSet,
    /// Roles whose content goes to the log with that: as they were read, they are what is written
    /// was computed with.
    pub(super) told: RoleSet,
}

impl PlannedBand {
    #[inline]
    fn logged(&self) -> RoleSet {
        self.write.union(self.told)
    }

    /// Members are out: nothing of theirs is written.
    fn leave_out(&mut self, lost: RoleSet) {
        self.write = self.write.without(lost);
        self.told = self.told.without(lost);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Claiming,
    /// Its lanes are granted, and it was not begun.
    Ready,
    Planning,
    Buffers,
    ReadRoom,
    Reading,
    /// Others are in the middle of its bytes (`shard/lending.rs`).
    Helped,
    LogRoom,
    Logging,
    WriteRoom,
    Writing,
    /// What a drive holds that has refused a block is to be read, and is read.
    AskRoom,
    Asking,
    Barrier,
    /// What was bad and is written again is to be read back, and is.
    CheckRoom,
    Checking,
}

/// See the module.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "none follows from others")]
pub(super) struct Ticket {
    pub(super) order: TicketOrder,
    pub(super) lanes: Range<u32>,
    /// The lane after the last that it has claimed.
    claimed: u32,
    /// All that it was asked for, when it does its rows one after another.
    asked: Option<Asked>,
    bands: [PlannedBand; 3],
    band_count: usize,
    /// What its own request asks for, while its bands name the work of others besides (`join`).
    apart: Option<Asked>,
    /// The next of the tickets whose work is done with that of the first.
    joined: Option<u32>,
    /// The ticket that does its work.
    leader: Option<u32>,
    /// It is put off, or was until now (`delay`).
    delayed: Option<Delayed>,
    /// It has dropped once what it had read.
    promoted: bool,
    step: Step,
    /// The region that must be dirty while it writes; as it was planned.
    pub(super) region: Option<u32>,
    /// Serial of the map it was planned by, and of the map that must be effective before it is
    /// answered.
    serial: u64,
    pub(super) barrier: u64,
    /// Roles that returned errors when read, and those of the reads under way.
    media: RoleSet,
    errors: RoleSet,
    /// Roles that did not answer.
    late: RoleSet,
    /// What returned an error is tried once more, because nothing else is left.
    second_try: bool,
    /// Roles whose members were gone when they were read, and the serial of the map by which they
    /// were asked: they may be out by the time they answer.
    pub(super) gone: RoleSet,
    pub(super) gone_serial: u64,
    pending: u32,
    /// Blocks that a member has refused.
    pub(super) refusals: Option<Box<Refusals>>,
    answered: bool,
    /// It was answered because the hold was given up; and looks since it began.
    pub(super) given_up: bool,
    pub(super) attempts: u8,
    /// Pieces of it were logged: the next engine may write them, and what is planned after it must
    /// find them in their place.
    pub(super) logged: bool,
    /// All that it is to write is in its buffers, as it was logged (`logged`).
    pub(super) computed: bool,
    /// It is carried out although it was answered, from a copy of what the guest wrote.
    pub(super) keeps: bool,
    pub(super) kept: Option<Kept>,
    pub(super) failures: Vec<(MemberIndex, u32)>,
    pub(super) looking: Looking,
    /// The slot of the log that holds its pieces; some piece could not be written.
    pub(super) log_slot: Option<u32>,
    log_failed: bool,
    pub(super) log_headers: Vec<u32>,
    pub(super) buffers: TicketBuffers,
    /// Where they go when a drive may still use them.
    pub(super) grave: Option<u32>,
    /// It is planned around members that are slow.
    avoids: bool,
    /// The next engine knows of its writes.
    pub(super) is_begun: bool,
    /// What it writes is still where the guest has it: it is copied while parity is computed.
    pub(super) copy_due: bool,
    /// Its data goes to the drives from where the guest has it.
    pub(super) borrows: bool,
}

impl Ticket {
    #[inline]
    pub(super) fn bands(&self) -> &[PlannedBand] {
        &self.bands[..self.band_count]
    }

    /// The union over bands of what `select` names.
    #[inline]
    fn roles(&self, select: impl Fn(&PlannedBand) -> RoleSet) -> RoleSet {
        match self.bands() {
            // As most have: nothing to go through.
            [only] => select(only),
            bands => bands
                .iter()
                .fold(RoleSet::EMPTY, |all, band| all.union(select(band))),
        }
    }
}

/// Apart, because what a message shows would else be put together for every ticket.
#[cold]
#[inline(never)]
fn seeks_nothing(step: Step) -> ! {
    unreachable!("a ticket seeks room in {step:?}")
}

impl Shard {
    /// Fills a ticket slot and starts it once its lanes are free.
    #[inline(always)]
    pub(super) fn begin_ticket(
        &mut self,
        slot: u32,
        order: TicketOrder,
        asked: &[Band],
        io: &mut impl Io,
    ) {
        let cell = self.cell_to_claim(slot, &order);
        let ticket = &mut self.tickets[slot];
        ticket.order = order;
        ticket.band_count = asked.len();
        for (band, asked) in ticket.bands.iter_mut().zip(asked) {
            band.asked = asked.clone();
        }
        ticket.lanes = asked[0].lanes.start..asked[asked.len() - 1].lanes.end;
        ticket.claimed = ticket.lanes.end;
        ticket.asked = None;
        ticket.step = Step::Claiming;
        (ticket.media, ticket.gone) = (RoleSet::EMPTY, RoleSet::EMPTY);
        ticket.late = ticket.order.late.map_or(RoleSet::EMPTY, RoleSet::one);
        (ticket.answered, ticket.given_up, ticket.second_try) = (false, false, false);
        (ticket.logged, ticket.computed) = (false, false);
        (ticket.keeps, ticket.attempts) = (false, 0);
        (ticket.apart, ticket.joined, ticket.leader) = (None, None, None);
        (ticket.delayed, ticket.promoted) = (None, false);
        ticket.failures.clear();
        let lanes = ticket.lanes.clone();
        let may_lead = ticket.may_join();
        if self.lanes.claim(slot, cell, lanes) {
            if may_lead {
                // Later in this turn, when what else the turn brings is known.
                self.tickets[slot].step = Step::Ready;
                self.granted.push(slot);
            } else {
                self.start_ticket(slot, io);
            }
        }
    }

    /// Moves tickets forward that waited for lanes, buffers or room.
    pub(super) fn advance_tickets(&mut self, io: &mut impl Io) -> usize {
        let mut moved = 0;
        self.look_at_delayed();
        while !self.granted.is_empty() {
            // In the order in which they came.
            std::mem::swap(&mut self.granted, &mut self.starting);
            for position in 0..self.starting.len() {
                let slot = self.starting[position];
                // Who joined another since is begun, or has ended, with that.
                if self.tickets.is_busy(slot) && !self.tickets[slot].follows() {
                    assert!(
                        self.lanes.is_granted(slot),
                        "its lanes are granted, or were"
                    );
                    let delayed = self.delayed.len();
                    self.start_ticket(slot, io);
                    moved += usize::from(self.delayed.len() <= delayed);
                }
            }
            self.starting.clear();
        }
        for class in [Class::Small, Class::Large] {
            while let Some(&slot) = self.buffer_waiters[class as usize].front() {
                if !self.take_buffers_at_last(slot) {
                    break;
                }
                self.buffer_waiters[class as usize].pop_front();
                self.fill_and_read(slot, io);
                moved += 1;
            }
        }
        moved += self.advance_log(io);
        moved += self.advance_region_waiters(io);
        while let Some(&slot) = self.room_waiters.front() {
            if !self.try_issue(slot, io) {
                break;
            }
            self.room_waiters.pop_front();
            moved += 1;
        }
        moved
    }

    /// Plans the ticket by what is known now, and takes its buffers.
    fn start_ticket(&mut self, slot: u32, io: &mut impl Io) {
        if self.tickets[slot].has_a_past() && self.goes_on_otherwise(slot, io) {
            return;
        }
        self.part_again(slot);
        let now = io.now();
        self.join_others(slot, now);
        if self.is_delayed(slot, now) {
            return;
        }
        let ticket = &mut self.tickets[slot];
        ticket.step = Step::Planning;
        let asked = matches!(ticket.order.kind, Kind::Write(_) | Kind::Read { .. });
        ticket.avoids = self.late.any_slow && asked;
        if ticket.avoids {
            self.count_detour(slot);
        }
        if self.plan_ticket(slot).is_err() && !self.plans_with_less(slot) {
            self.goes_without_plan(slot, io);
            return;
        }
        // What it is for may have changed with the plan, and with that whether it has one.
        self.tickets[slot].region = self.ticket_region(slot);
        // The region becomes dirty while the ticket reads.
        if !self.is_region_ready(slot) && self.awaits_first_write(slot, io) {
            return;
        }
        self.tickets[slot].step = Step::Buffers;
        // Older tickets go first, or a steady stream of narrow ones starves a wide one.
        if (self.nobody_waits_for_buffers() || self.nobody_waits_before(slot))
            && self.take_buffers(slot)
        {
            self.fill_and_read(slot, io);
        } else {
            let class = self.class_of(&self.tickets[slot].lanes);
            self.buffer_waiters[class as usize].push_back(slot);
        }
    }

    /// Whether a ticket that was begun before does not begin anew: it ends, or goes on with what it
    /// has.
    #[cold]
    fn goes_on_otherwise(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if self.tickets[slot].is_over() {
            self.end_ticket(slot);
            return true;
        }
        if self.tickets[slot].refusals.is_some() {
            self.go_on_refused(slot, io);
            return true;
        }
        self.goes_on_as_logged(slot, io)
    }

    /// Brings the new content into the buffers and starts the reads, if there are any.
    #[inline(always)]
    fn fill_and_read(&mut self, slot: u32, io: &mut impl Io) {
        self.fill_payload(slot);
        if planted::is(Fault::JoinedAnsweredEarly) {
            self.answer_joined(self.tickets[slot].joined, Status::Ok, io);
        }
        if self.tickets[slot].roles(|band| band.read).is_empty() {
            if !self.is_helped(slot, io) {
                self.nothing_to_read(slot, io);
            }
            return;
        }
        self.tickets[slot].step = Step::ReadRoom;
        self.seek_room(slot, io);
    }

    #[inline(always)]
    pub(super) fn seek_room(&mut self, slot: u32, io: &mut impl Io) {
        if !self.room_waiters.is_empty() || !self.try_issue(slot, io) {
            self.room_waiters.push_back(slot);
        }
    }

    /// Issues the reads or writes that a ticket waits to issue, all or none. A ticket whose map
    /// changed is planned anew instead.
    fn try_issue(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if self.asks_for_more(slot)
            && let Some(moved) = self.try_otherwise(slot, io)
        {
            return moved;
        }
        let ticket = &self.tickets[slot];
        let (operation, next) = match (ticket.step, ticket.order.kind) {
            (Step::ReadRoom, _) => (Operation::Read, Step::Reading),
            (Step::CheckRoom, _) => (Operation::Read, Step::Checking),
            (Step::WriteRoom, Kind::Clear) => (Operation::WriteZeroes, Step::Writing),
            (Step::WriteRoom, _) => (Operation::Write, Step::Writing),
            (other, _) => seeks_nothing(other),
        };
        // They need not be counted where there is room for as many as there can be.
        let most = ticket.band_count * self.geometry().group_members();
        if next == Step::Writing && !self.is_region_ready(slot) {
            self.want_region(slot, io);
            self.region_waiters.push(slot);
            return true;
        }
        if !self.can_serve(most, io) {
            let count = self.count_transfers(slot, operation);
            if !self.can_serve(count, io) {
                return false;
            }
        }
        if next == Step::Writing {
            self.assert_may_write(slot);
            self.tell_begun(slot);
        }
        let ticket = &mut self.tickets[slot];
        ticket.step = next;
        ticket.errors = RoleSet::EMPTY;
        let count = self.issue_transfers(slot, operation, io);
        self.tickets[slot].pending = u32::try_from(count).expect("three bands of 64 roles");
        if count == 0 {
            self.wrote_nothing(slot, io);
        }
        true
    }

    /// Whether a ticket that waits to issue something needs more than room for it, or something
    /// else.
    #[inline]
    fn asks_for_more(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let logs = ticket.step == Step::LogRoom;
        ticket.given_up | ticket.refusals.is_some() | logs | (ticket.serial != self.map.serial)
    }

    /// What it does then, and whether it is out of the way of others; `None`: as any other ticket.
    #[inline(never)]
    fn try_otherwise(&mut self, slot: u32, io: &mut impl Io) -> Option<bool> {
        if self.tickets[slot].is_over() {
            self.end_ticket(slot);
            return Some(true);
        }
        if self.goes_unchecked(slot, io) {
            return Some(true);
        }
        if self.is_stale(slot) && !planted::is(Fault::PlanOfAnOldMap) {
            self.replan(slot);
            return Some(true);
        }
        let step = self.tickets[slot].step;
        if step == Step::LogRoom {
            return Some(self.try_log(slot, false, io));
        }
        if self.tickets[slot].refusals.is_some() {
            if step == Step::AskRoom {
                return Some(self.ask_refused(slot, io));
            }
            if step == Step::WriteRoom && self.refused_is_logged(slot, io) {
                return Some(true);
            }
            self.leave_refused(slot);
        }
        None
    }

    /// Whether the ticket was planned by a map that is not valid any more.
    #[inline]
    pub(super) fn is_stale(&self, slot: u32) -> bool {
        self.tickets[slot].serial != self.map.serial
    }

    /// As `reads_done`, where no drive has just answered.
    #[inline(never)]
    fn nothing_to_read(&mut self, slot: u32, io: &mut impl Io) {
        self.reads_done(slot, io);
    }

    /// All reads are in: computes what is to be written, or plans anew after an error.
    #[inline(always)]
    fn reads_done(&mut self, slot: u32, io: &mut impl Io) {
        if self.is_scrub(slot) {
            self.scrub_reads_done(slot, io);
            return;
        }
        if self.tickets[slot].refusals.is_some() {
            self.refused_is_read(slot, io);
            return;
        }
        if self.tickets[slot].step == Step::Checking {
            self.is_checked(slot, io);
            return;
        }
        let ticket = &mut self.tickets[slot];
        if !ticket.errors.is_empty() || ticket.lacks_a_read() {
            ticket.media = ticket.media.union(ticket.errors);
            ticket.errors = RoleSet::EMPTY;
            if !self.parts_from_bad_blocks(slot) {
                self.replan(slot);
            }
            return;
        }
        if self.is_promoted(slot) {
            self.replan(slot);
            return;
        }
        self.compute(slot);
        if self.tickets[slot].order.kind == Kind::Repair(Pass::Rebuild) {
            let mends = !self.tickets[slot].rewritten().is_empty();
            self.counters.rewrites += u64::from(mends);
        }
        if let Kind::Read { .. } = self.tickets[slot].order.kind {
            self.counters.reconstructed_reads += 1;
            let rewrites = !self.tickets[slot].roles(|band| band.write).is_empty();
            if !rewrites && self.goes_on_with_rows(slot) {
                return;
            }
            if !self.has_rows_left(slot) {
                self.answer_ticket(slot, Status::Ok, io);
            }
            if !rewrites {
                self.end_ticket(slot);
                return;
            }
            self.counters.rewrites += 1;
        }
        self.begin_writing(slot, io);
    }

    /// Back to the plan, at the next poll; the lanes stay claimed. A read that was answered and
    /// lacks only its rewrite goes on for that.
    pub(super) fn replan(&mut self, slot: u32) {
        if !self.keeps_its_log(slot) {
            self.end_log(slot);
        }
        if !self.tickets[slot].computed {
            self.release_buffers(slot);
        }
        self.granted.push(slot);
    }
}
