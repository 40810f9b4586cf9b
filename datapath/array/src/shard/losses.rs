//! Lost blocks on a shard, and the home's part in them (`crate::losses`).
//!
//! ```text
//! a pass meets a row that nobody can tell: the home records its lost blocks → every shard has a
//! map that says so → zeroes are written there, and parity
//! a write covers a lost block: its members hold it → they are flushed, the record is written
//! without the block → every shard has a map that says so → the write is answered
//! ```
//! Both are asked for by the ticket that has the row's lanes, and it keeps them until all is done:
//! so no other ticket works on a row while the list changes there. Reads straight to drives know no
//! lanes. They look at the list when they begin, and those under way when it grows fail if they
//! meet it: what they bring may be the zeroes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use block::{Operation, Status};
use units::{Instant, MemberIndex, ReactorIndex, Role, RoleSet, StripeIndex};

use super::coordinate::commit_of;
use super::ticket::Kind;
use super::{DriveIo, IoOwner, Shard};
use crate::coordinator::CommitPhase;
use crate::format::{ArrayConfig, MemberState, Missed};
use crate::geometry::Geometry;
use crate::io::{Event, Io, Message};
use crate::losses::{LossChange, LostBlocks, Rows};
use crate::planted::{self, Fault};
use crate::regions::RegionStates;

/// The same block is not told of more often.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

/// A change of the list that a shard has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossAsked {
    from: ReactorIndex,
    change: LossChange,
    rows: Rows,
    /// A record with it was begun.
    tried: bool,
}

/// See the module.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "one is asked first")]
pub(crate) struct Losses {
    /// Some block is lost.
    pub(super) any: bool,
    /// Some block is lost, or may be unwritten: whoever reads looks closer.
    pub(super) looks_closer: bool,
    /// By region, when the last map came: it was unwritten. For a planted fault; else empty.
    pub(super) unwritten_before: Vec<bool>,
    /// Tickets that want the list changed. One question at a time: whoever waits for an answer
    /// holds a credit, and the home must be told of failures meanwhile.
    waiters: VecDeque<u32>,
    asked: Option<u32>,
}

impl Losses {
    pub(super) fn new(tickets: usize, list: &LostBlocks, regions: &RegionStates) -> Losses {
        Losses {
            any: !list.is_empty(),
            looks_closer: !list.is_empty() || regions.has_unwritten(),
            unwritten_before: Vec::new(),
            waiters: VecDeque::with_capacity(tickets),
            asked: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.asked.is_none()
    }

    /// Whether a ticket waits here. It keeps its lanes until the home has answered: a change of the
    /// list that was asked for may be made at any time until then.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.asked == Some(slot) || self.waiters.contains(&slot)
    }
}

/// The first block of the array among rows.
pub(super) fn first_of(rows: Rows, geometry: &Geometry) -> u64 {
    rows.blocks(geometry).next().map_or(0, |range| range.start)
}

impl Shard {
    // ---- tickets -------------------------------------------------------------------------

    /// The blocks of the array that a band of a ticket asks for.
    pub(super) fn asked_rows(&self, slot: u32, band: usize) -> Rows {
        let ticket = &self.tickets[slot];
        let asked = &ticket.bands()[band].asked;
        // All copies of a mirror are the one data chunk.
        let roles = if self.geometry().data() == 1 {
            RoleSet::one(Role(0))
        } else {
            asked.written
        };
        Rows {
            stripe: ticket.order.stripe,
            start: asked.lanes.start,
            end: asked.lanes.end,
            roles,
        }
    }

    /// Whether a ticket asks for what is lost.
    pub(super) fn asks_for_lost(&self, slot: u32) -> bool {
        let bands = self.tickets[slot].bands().len();
        let is_lost = |band| {
            let mut blocks = self.asked_rows(slot, band).blocks(self.geometry());
            blocks.any(|range| self.map.lost_blocks.first_in(range).is_some())
        };
        self.losses.any && (0..bands).any(is_lost)
    }

    /// Whether all that a ticket asks for is on the list.
    pub(super) fn is_given_up_for_good(&self, slot: u32) -> bool {
        self.is_given_up(self.asked_rows(slot, 0))
    }

    pub(super) fn is_given_up(&self, rows: Rows) -> bool {
        self.is_listed(rows) || planted::is(Fault::ForfeitNotRecorded)
    }

    pub(super) fn is_listed(&self, rows: Rows) -> bool {
        LossChange::GivenUp.is_made(&self.map.lost_blocks, rows, self.geometry())
    }

    /// The change of the list that a ticket waits for; `None` once it is made.
    fn wanted(&self, slot: u32) -> Option<(LossChange, Rows)> {
        if self.tickets[slot].refusals.is_some() {
            let rows = self.refused_rows(slot)?;
            return Some((LossChange::GivenUp, rows));
        }
        let change = match self.tickets[slot].order.kind {
            Kind::Forfeit(_) => LossChange::GivenUp,
            Kind::Write(_) | Kind::Clear => LossChange::Healed,
            Kind::Read { .. } | Kind::Repair(_) => return None,
        };
        let bands = 0..self.tickets[slot].bands().len();
        let mut rows = bands.map(|band| self.asked_rows(slot, band));
        let list = &self.map.lost_blocks;
        let rows = rows.find(|rows| !change.is_made(list, *rows, self.geometry()))?;
        Some((change, rows))
    }

    /// Whether what a ticket has written was lost before.
    pub(super) fn heals(&self, slot: u32) -> bool {
        let gives_up = matches!(self.tickets[slot].order.kind, Kind::Forfeit(_));
        self.losses.any && !gives_up && self.wanted(slot).is_some()
    }

    /// The ticket waits until the list is as it wants.
    pub(super) fn await_list(&mut self, slot: u32) {
        self.losses.waiters.push_back(slot);
    }

    /// Asks the home for the change that the first of the tickets wants.
    pub(super) fn advance_losses(&mut self, io: &mut impl Io) -> usize {
        let Some(&slot) = self.losses.waiters.front() else {
            return 0;
        };
        if self.losses.asked.is_some() {
            return 0;
        }
        let ticket = &self.tickets[slot];
        if ticket.is_over() && matches!(ticket.order.kind, Kind::Forfeit(_)) {
            // It ends there, and gives up nothing.
            self.losses.waiters.pop_front();
            self.granted.push(slot);
            return 1;
        }
        let Some((change, rows)) = self.wanted(slot) else {
            self.losses.waiters.pop_front();
            self.list_is_changed(slot, true, io);
            return 1;
        };
        let home = self.map.home;
        if home == self.me {
            self.change_asked(home, change, rows);
        } else if io.ask(home, Message::ChangeLosses { change, rows }).is_ok() {
            self.counters.messages += 1;
        } else {
            return 0;
        }
        self.losses.waiters.pop_front();
        self.losses.asked = Some(slot);
        1
    }

    /// The home has answered.
    pub(super) fn losses_changed(&mut self, ok: bool, io: &mut impl Io) {
        let slot = self.losses.asked.take();
        let slot = slot.expect("a ticket stays until it is answered");
        self.list_is_changed(slot, ok, io);
    }

    fn list_is_changed(&mut self, slot: u32, ok: bool, io: &mut impl Io) {
        if self.tickets[slot].refusals.is_some() {
            self.refused_is_listed(slot, ok, io);
            return;
        }
        let is_written = match self.tickets[slot].order.kind {
            Kind::Write(_) | Kind::Clear => true,
            Kind::Read { .. } | Kind::Repair(_) | Kind::Forfeit(_) => false,
        };
        if ok && self.wanted(slot).is_some() {
            // Of another band.
            self.await_list(slot);
        } else if !is_written && (ok || self.must_be_carried_out(slot)) {
            self.granted.push(slot);
        } else if ok {
            self.finish_ticket(slot, Status::Ok, io);
        } else {
            self.answer_ticket(slot, Status::Media, io);
            self.end_ticket(slot);
        }
    }

    // ---- reads straight to drives --------------------------------------------------------

    /// How many blocks from this one on are all lost or all not; and which.
    pub(super) fn lost_run(&self, block: u64, blocks: u32) -> (u32, bool) {
        let range = block..block + u64::from(blocks);
        let (count, lost) = self.map.lost_blocks.run(range);
        (u32::try_from(count).expect("at most those asked for"), lost)
    }

    /// Whether blocks of a request are lost, some at least.
    pub(super) fn meets_lost(&self, request: u32, (first, blocks): (u32, u32)) -> bool {
        let start = self.requests[request].start() + u64::from(first);
        let range = start..start + u64::from(blocks);
        self.losses.any && self.map.lost_blocks.first_in(range).is_some()
    }

    /// Acts by the list of a new map: reads under way that meet it fail, whatever they bring.
    pub(super) fn follow_losses(&mut self, before: &Arc<LostBlocks>) {
        self.losses.any = !self.map.lost_blocks.is_empty();
        self.losses.looks_closer = self.losses.any || self.shared.regions.has_unwritten();
        if planted::is(Fault::ZeroesOfAnOldMap) {
            self.losses.unwritten_before = self.shared.regions.unwritten();
        }
        let same = Arc::ptr_eq(before, &self.map.lost_blocks);
        if same || !self.losses.any || planted::is(Fault::ReadOutlivesItsBlock) {
            return;
        }
        let mut from = 0;
        while let Some(slot) = self.ios.used_from(from) {
            from = slot + 1;
            self.ios[slot].outlived |= self.outlives(&self.ios[slot]);
        }
    }

    /// Whether this is a read for a request that meets what is lost.
    pub(super) fn outlives(&self, done: &DriveIo) -> bool {
        if !self.losses.any || done.operation != Some(Operation::Read) {
            return false;
        }
        if let IoOwner::Direct {
            request,
            first,
            blocks,
        } = done.owner
        {
            return self.meets_lost(request, (first, blocks));
        }
        if let IoOwner::Bounced { bounce } = done.owner {
            let (request, range) = self.bounced_range(bounce);
            return self.meets_lost(request, range);
        }
        false
    }

    // ---- the home ------------------------------------------------------------------------

    /// Whether a record is on its way that changes the list. For simulators.
    #[must_use]
    pub fn is_changing_losses(&self) -> bool {
        self.coordinator().is_some_and(|decider| {
            let commit = decider.commit.as_ref();
            commit.is_some_and(|commit| commit.config.lost != decider.config.lost)
        })
    }

    pub(super) fn change_asked(&mut self, from: ReactorIndex, change: LossChange, rows: Rows) {
        self.decider().losses.push(LossAsked {
            from,
            change,
            rows,
            tried: false,
        });
    }

    /// Answers what has become of changes of the list, and begins a record with new ones. Nothing
    /// else is under way: every shard acts by the durable configuration.
    pub(super) fn change_losses(&mut self, io: &mut impl Io) -> usize {
        let decider = self.decider();
        if decider.losses.is_empty() || !decider.started {
            return 0;
        }
        let ends = decider.metadata_failed || decider.stopped || self.map.given_up;
        if self.map.is_holding() && !ends {
            // What is not answered now may be soon.
            return 0;
        }
        let geometry = *self.geometry();
        let decider = self.decider();
        let id = decider.draw_id();
        let mut next = decider.config.next(id);
        let mut phase = CommitPhase::Write;
        let asked = std::mem::take(&mut decider.losses);
        for mut one in asked {
            let LossAsked { change, rows, .. } = one;
            if change.is_made(&self.decider().config.lost, rows, &geometry) {
                self.tell_of_losses(&one, io);
                self.answer_losses(one.from, true, io);
                continue;
            }
            let before = next.lost.clone();
            change.apply(&mut next.lost, rows, &geometry);
            let refused = match change {
                LossChange::GivenUp => self.refuses_loss(&next, rows),
                LossChange::Healed => None,
            };
            if ends || refused.is_some() {
                next.lost = before;
                if let Some(event) = refused.filter(|_| !ends) {
                    self.tell_not_given_up(first_of(rows, &geometry), event, io);
                }
                self.answer_losses(one.from, false, io);
                continue;
            }
            one.tried = true;
            if change == LossChange::Healed && !planted::is(Fault::HealedBeforeFlush) {
                phase = CommitPhase::FlushData;
            }
            self.decider().losses.push(one);
        }
        if !self.decider().losses.is_empty() {
            let places = self.decider().places.clone();
            self.begin_commit(commit_of(next, places, phase));
        }
        1
    }

    fn tell_not_given_up(&mut self, first: u64, event: Event, io: &mut impl Io) {
        let (now, told) = (io.now(), &mut self.decider().not_given_up);
        let same = |(block, at): (u64, Instant)| block == first && now.since(at) < TOLD_AGAIN;
        if !told.is_some_and(same) {
            *told = Some((first, now));
            io.event(event);
        }
    }

    /// Why blocks are not given up, if there is a reason.
    fn refuses_loss(&mut self, next: &ArrayConfig, rows: Rows) -> Option<Event> {
        let first = first_of(rows, self.geometry());
        if let Some(member) = self.who_may_return(rows.stripe) {
            return Some(Event::NotGivenUp { first, member });
        }
        let has_room = next.lost.fits() && self.decider().fits(next).is_ok();
        (!has_room).then_some(Event::LostListFull { first })
    }

    /// A member of the stripe's group that is out and may come back with what it had there.
    fn who_may_return(&mut self, stripe: StripeIndex) -> Option<MemberIndex> {
        let group = self.geometry().group_members();
        let first = self.geometry().group(stripe).at() * group;
        let decider = self.decider();
        let may_return = |member: MemberIndex| {
            let state = decider.config.members[member.at()].state;
            let has = |missed: Missed| {
                let missed = decider.keeper.missed(missed.base);
                missed.is_some_and(|missed| !missed.has(stripe))
            };
            matches!(state, MemberState::Excluded { missed, .. } if has(missed))
        };
        let mut members = (first..first + group).map(MemberIndex::from_at);
        members.find(|&member| may_return(member))
    }

    fn tell_of_losses(&mut self, asked: &LossAsked, io: &mut impl Io) {
        if !asked.tried {
            return;
        }
        let geometry = *self.geometry();
        let total = self.decider().config.lost.count();
        io.event(match asked.change {
            LossChange::GivenUp => Event::BlocksLost {
                first: first_of(asked.rows, &geometry),
                blocks: asked.rows.count(),
                total,
            },
            LossChange::Healed => Event::BlocksHealed { total },
        });
    }

    fn answer_losses(&mut self, to: ReactorIndex, ok: bool, io: &mut impl Io) {
        if to == self.me {
            self.losses_changed(ok, io);
        } else {
            self.counters.messages += 1;
            io.reply(to, Message::LossesChanged { ok });
        }
    }
}
