//! Failures of members on a shard: told to the home, and what failed waits meanwhile.
//!
//! A member request that failed is parked when it may go well later: until the member is out, or,
//! when the array cannot do without it (the map calls it *held*), until it works again. To whoever
//! made it, a parked request is one over which a drive takes long, so nothing else changes while
//! the array holds: lanes stay claimed, regions dirty, flushes unanswered. Parked requests are made
//! again, from the memory that they had, at pauses that grow.
//!
//! When the hold is given up, whatever waits is answered with an error. A ticket that has begun to
//! write is not forgotten then: it keeps its lanes and its copy, and is carried out when the member
//! works again, so that no stripe is left torn.

mod give_up;
mod open;

use std::time::Duration;

use block::{Operation, Status};
use memory::{Backing, Buffer, Pages, Pool, Segment, SegmentSlots};
use units::{Instant, MemberIndex, RoleSet};

use super::begun::Gone;
use super::doubt::{Doubted, Overtaken};
use super::ticket::Page;
use super::{DriveIo, IoOwner, Shard};
use crate::coordinator::Coordinator;
use crate::format::SUPERBLOCK_BYTES;
use crate::io::{Io, MemberFailure, Message};
use crate::map::MapState;
use crate::planted::{self, Fault};

/// Between two attempts: at first, at most, and after the hold was given up.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_GIVEN_UP: Duration = Duration::from_millis(500);
/// What is older than so many attempts is answered with an error once the hold is given up.
pub(super) const OLD: u8 = 2;
/// The same of what lacks nothing, in a group that works: it waits behind others, which go on. A
/// minute is far longer than that takes, and short of waiting as long as the hold may last.
const OLD_BEHIND_OTHERS: u8 = 120;

/// After how many looks a request or a piece of one that waits for room is old.
pub(super) const fn looks_allowed(is_behind_others: bool) -> u8 {
    if is_behind_others {
        OLD_BEHIND_OTHERS
    } else {
        OLD
    }
}

/// A member request that failed and is to be made again.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) done: DriveIo,
    pub(super) status: Status,
    pub(super) segments: Vec<Segment>,
}

impl Parked {
    /// Whether it is a flush that a drive answered with an error.
    pub(super) fn is_failed_flush(&self) -> bool {
        self.done.operation == Some(Operation::Flush) && self.status == Status::Media
    }
}

/// See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "that the map is another one, and what it says, are two things"
)]
pub(super) struct Hold {
    parked: Vec<Parked>,
    /// Those of which it is not known what their errors mean, and the members that are pinged
    /// because of them.
    pub(super) doubted: Vec<Doubted>,
    pub(super) pinged: Vec<MemberIndex>,
    /// Memory that a drive may still write to which was asked what it holds, and is out.
    pub(super) buried: Vec<Page>,
    /// Flushes that went well, while it is open what others of the same drive have lost; and when
    /// they are looked at again.
    pub(super) overtaken: Vec<Overtaken>,
    pub(super) overtaken_at: Option<Instant>,
    /// Tickets that can go on only with a member whose fate is not decided.
    tickets: Vec<u32>,
    /// What the next engine is told of members that are gone.
    pub(super) gone: Gone,
    /// The map is another one.
    changed: bool,
    /// Somebody is waited for, or may have lost something: see `open`.
    cautious: bool,
    /// The next attempt, and the pause after it.
    next: Option<Instant>,
    pause: Duration,
    /// Where pings go; and zeroes.
    pool: Pool,
    buffers: [Option<Buffer>; 2],
    /// By ticket: what is kept of it.
    pub(super) lists: SegmentSlots,
}

impl Hold {
    /// # Errors
    /// When the host refuses the memory.
    pub(super) fn new(tickets: usize) -> std::io::Result<Hold> {
        let mut pool = Pool::new(2, SUPERBLOCK_BYTES, Backing::Anonymous(Pages::Plain))?;
        let buffers = [pool.acquire(), pool.acquire()];
        Ok(Hold {
            parked: Vec::new(),
            doubted: Vec::new(),
            pinged: Vec::new(),
            buried: Vec::new(),
            overtaken: Vec::new(),
            overtaken_at: None,
            tickets: Vec::new(),
            gone: Gone::default(),
            changed: false,
            cautious: false,
            next: None,
            pause: PAUSE_MIN,
            pool,
            buffers,
            lists: SegmentSlots::new(tickets, 1),
        })
    }

    /// Where a ping goes; what it finds does not matter.
    pub(super) fn memory(&self) -> Segment {
        self.segment(0)
    }

    /// What a trial writes.
    pub(super) fn zeroes(&self) -> Segment {
        self.segment(1)
    }

    fn segment(&self, which: usize) -> Segment {
        let buffer = self.buffers[which].as_ref().expect("there is one");
        self.pool.segment(buffer)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let asks = !self.doubted.is_empty() || !self.overtaken.is_empty();
        self.parked.is_empty() && self.tickets.is_empty() && !asks
    }

    /// The map is another one: what waits is looked at in the next turn.
    pub(super) fn follow(&mut self, cautious: bool) {
        (self.changed, self.cautious) = (true, cautious);
    }

    pub(super) fn push_ticket(&mut self, slot: u32) {
        self.tickets.push(slot);
    }

    /// Member requests that wait.
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for buffer in self.buffers.iter_mut().filter_map(Option::take) {
            self.pool.release(buffer);
        }
    }
}

/// Whether a request of this kind that ended so may go well another time, with nothing lost. A
/// flush that was carried out and failed may have lost what it should have kept.
pub(super) fn may_pass(operation: Option<Operation>, status: Status) -> bool {
    match (operation, status) {
        (_, Status::Gone) => true,
        (
            Some(Operation::Write | Operation::WriteZeroes | Operation::Discard),
            Status::Media | Status::NoSpace | Status::ReadOnly | Status::Unsupported,
        ) => true,
        (
            _,
            Status::Ok
            | Status::Media
            | Status::NoSpace
            | Status::OutOfRange
            | Status::ReadOnly
            | Status::Unsupported
            | Status::Invalid,
        ) => false,
    }
}

impl Shard {
    // ---- telling the home ----------------------------------------------------------------

    /// Notes that a member failed; its home is told at the next poll.
    pub(super) fn report(&mut self, done: DriveIo, status: Status) {
        let DriveIo {
            member,
            incarnation,
            operation,
            ..
        } = done;
        let passing = may_pass(operation, status);
        self.note_gone(&done, status);
        if self.map.settled(member, incarnation) || (passing && self.map.held[member.at()]) {
            return;
        }
        let failure = MemberFailure {
            member,
            incarnation,
            status,
            late: false,
            passing,
        };
        let same =
            |other: &&mut MemberFailure| other.member == member && other.incarnation == incarnation;
        if let Some(told) = self.reports.iter_mut().find(same) {
            told.take(failure);
            return;
        }
        self.reports.push(failure);
    }

    pub(super) fn send_reports(&mut self, io: &mut impl Io) -> usize {
        if self.reports.is_empty() {
            return self.settle(io);
        }
        if self.map.home == self.me {
            while let Some(failure) = self.reports.pop() {
                self.coordinate_failure(failure);
            }
            return 1;
        }
        let home = self.map.home;
        while let Some(failure) = self.reports.pop() {
            if io.ask(home, Message::Report(failure)).is_err() {
                self.reports.push(failure);
                return 0;
            }
            self.counters.messages += 1;
        }
        1
    }

    // ---- parking -------------------------------------------------------------------------

    /// A member request failed: its error is doubted, or it waits until it may go well, or it has
    /// failed. Its slot is free, and its list as it was.
    pub(super) fn request_failed(
        &mut self,
        slot: u32,
        done: DriveIo,
        end: Status,
        io: &mut impl Io,
    ) {
        self.note_gone(&done, end);
        let doubted = self.doubts(&done, end);
        let flushes = done.operation == Some(Operation::Flush) && end != Status::Gone;
        if flushes {
            // What it should have kept may be gone already, and the next engine cannot see that.
            self.note_failed_flush(&done, doubted);
        }
        if self.is_of_borrower(&done) {
            return self.borrowers_write_failed(slot, done, end, io);
        }
        if !doubted && !self.parks(&done, end) {
            self.deliver(done, end, io);
            return;
        }
        let segments = if done.listed {
            self.lists.list(crate::slots::at(slot)).to_vec()
        } else {
            done.segments.as_slice().to_vec()
        };
        let parked = Parked {
            done,
            status: end,
            segments,
        };
        if doubted {
            self.doubt(parked);
        } else {
            self.park(parked);
        }
    }

    pub(super) fn park(&mut self, mut parked: Parked) {
        self.counters.held += 1;
        if parked.status == Status::Gone {
            // What it refuses when it is back counts from then.
            parked.done.refused_since = Instant(0);
        }
        let (done, status) = (parked.done, parked.status);
        self.hold.parked.push(parked);
        self.report(done, status);
    }

    /// Parks a request that failed, if it may go well later and is worth waiting for.
    pub(super) fn park_or_deliver(&mut self, parked: Parked, io: &mut impl Io) {
        if self.parks(&parked.done, parked.status) {
            self.park(parked);
        } else {
            self.deliver(parked.done, parked.status, io);
        }
    }

    pub(super) fn parks(&self, done: &DriveIo, status: Status) -> bool {
        let settled = self.map.settled(done.member, done.incarnation);
        if settled || self.map.read_only || !may_pass(done.operation, status) {
            return false;
        }
        let held = self.map.held[done.member.at()];
        let waits = held && !self.map.given_up;
        let reads = done.operation == Some(Operation::Read);
        let early = planted::is(Fault::AnswerBeforeExclusion)
            || planted::is(Fault::FailedWriteForgotten)
            || (held && planted::is(Fault::HeldWriteAnswered));
        match done.owner {
            IoOwner::Nobody
            | IoOwner::Abandoned { .. }
            | IoOwner::Bounced { .. }
            | IoOwner::GivenUp { .. }
            | IoOwner::Probe
            | IoOwner::Trial
            | IoOwner::RollCall { .. }
            | IoOwner::Doubt => false,
            // Whoever writes records decides about members.
            IoOwner::Metadata => held,
            IoOwner::Region => !planted::is(Fault::RegionCopyForgotten),
            IoOwner::Zeroing | IoOwner::Log { .. } => true,
            // Others may know what was to be read.
            IoOwner::Direct { .. } if reads && self.geometry().parity() > 0 => waits,
            IoOwner::Ticket { .. } if reads => waits,
            IoOwner::Ticket { .. } => !early,
            IoOwner::Flush { .. } if held && planted::is(Fault::HeldFlushAnswered) => false,
            IoOwner::Direct { .. } | IoOwner::Flush { .. } | IoOwner::LogFlush | IoOwner::Clear => {
                waits || !held
            }
        }
    }

    /// Whether something was decided since members were gone that the ticket has read from.
    pub(super) fn is_decided_since(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        !ticket.gone.is_empty() && ticket.gone_serial != self.map.serial
    }

    /// Whether a ticket that cannot be planned waits for a member of which it is not known yet
    /// whether it will be out.
    pub(super) fn awaits_decision(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let stripe = ticket.order.stripe;
        let is_open = |role| {
            let (member, entry) = self.map.member(stripe, role);
            let held = self.map.held[member.at()];
            let out = entry.state == MapState::Lost || self.map.hopeless[member.at()];
            let hopes = !held || !self.map.given_up;
            !out && hopes
        };
        !self.map.read_only && ticket.gone.iter().any(is_open)
    }

    /// Whether members are waited for by the map, asked of every turn.
    #[inline]
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.holding
    }

    /// Moves on whatever waits: makes it again, hands its failure on, or gives it up.
    pub(super) fn advance_hold(&mut self, io: &mut impl Io) -> usize {
        let mut moved = self.advance_doubts(io);
        if std::mem::take(&mut self.hold.changed) {
            moved += self.sort_parked(io);
        }
        let is_holding = self.holding;
        debug_assert_eq!(is_holding, self.map.is_holding(), "as the map says");
        debug_assert_eq!(self.broken, self.map.is_broken(), "as the map says");
        if is_holding || self.hold.gone.is_told() {
            self.tell_gone();
        }
        if self.hold.parked.is_empty() && !is_holding {
            self.hold.next = None;
            return moved;
        }
        let now = io.now();
        let Some(next) = self.hold.next else {
            self.hold.pause = PAUSE_MIN;
            self.hold.next = Some(now + PAUSE_MIN);
            return moved;
        };
        if now < next {
            return moved;
        }
        self.hold.pause = if self.map.given_up {
            PAUSE_GIVEN_UP
        } else {
            (self.hold.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
        };
        self.hold.next = Some(now + self.hold.pause);
        if self.map.given_up {
            moved += self.give_up(io);
        }
        moved + self.retry_parked(io)
    }

    /// When something that waits is to be tried again.
    pub(super) fn hold_deadline(&self) -> Option<Instant> {
        let waits = !self.hold.parked.is_empty() || self.holding;
        let next = self.hold.next.filter(|_| waits);
        let again = self.refusal_deadline();
        next.into_iter()
            .chain(self.hold.overtaken_at)
            .chain(again)
            .min()
    }

    /// The map is another one: what failed on a member that is out now has failed, and what
    /// waited for the decision about a member goes on.
    fn sort_parked(&mut self, io: &mut impl Io) -> usize {
        let parked = std::mem::take(&mut self.hold.parked);
        let before = parked.len();
        for parked in parked {
            let Parked { done, status, .. } = parked;
            let decides = matches!(done.owner, IoOwner::Metadata);
            let held = self.map.held[done.member.at()];
            let settled = self.map.settled(done.member, done.incarnation);
            if settled || self.map.read_only || (decides && !held) {
                self.deliver(done, status, io);
                continue;
            }
            self.hold.parked.push(parked);
            self.report(done, status);
        }
        let mut moved = before - self.hold.parked.len();
        for slot in std::mem::take(&mut self.hold.tickets) {
            self.wake_ticket(slot);
            moved += 1;
        }
        // What changed may be that the hold was given up.
        self.hold.next = self.hold.next.map(|_| io.now());
        moved
    }

    /// Reads everything once more.
    pub(super) fn wake_ticket(&mut self, slot: u32) {
        self.tickets[slot].gone = RoleSet::EMPTY;
        self.forget_errors(slot);
        self.forget_look(slot);
        self.granted.push(slot);
    }

    /// Makes what is parked again, as far as its member is held.
    fn retry_parked(&mut self, io: &mut impl Io) -> usize {
        let parked = std::mem::take(&mut self.hold.parked);
        let mut moved = 0;
        for parked in parked {
            let held = self.map.held[parked.done.member.at()];
            if !held || !self.can_repeat(parked.done.owner, io) {
                self.hold.parked.push(parked);
                continue;
            }
            if parked.done.operation == Some(Operation::Flush) {
                self.doubt(parked);
                moved += 1;
                continue;
            }
            let Parked {
                mut done,
                segments,
                status,
            } = parked;
            let write = done.operation == Some(Operation::Write);
            if write && status == Status::Media && matches!(done.owner, IoOwner::Metadata) {
                self.try_other_place(&mut done, io.now());
            }
            if write && planted::is(Fault::HeldWriteNotRepeated) {
                self.deliver(done, Status::Ok, io);
                continue;
            }
            self.issue_again(&done, false, &segments, io);
            moved += 1;
        }
        moved
    }

    /// Whether some failure of a member is not dealt with. For simulators.
    #[must_use]
    pub fn is_in_trouble(&self) -> bool {
        let decides = |decider: &Coordinator| {
            !decider.failures.is_empty() || decider.commit.is_some() || decider.broadcast.is_some()
        };
        !self.hold.is_empty()
            || !self.reports.is_empty()
            || self.holding
            || self.coordinator().is_some_and(decides)
    }

    // ---- what the home asks --------------------------------------------------------------

    /// Whether the record that this shard writes waits for a member that is held.
    pub(super) fn record_waits(&self) -> bool {
        let doubted = self.hold.doubted.iter().map(|doubted| &doubted.parked);
        let mut parked = self.hold.parked.iter().chain(doubted);
        parked.any(|parked| {
            let is_record = matches!(parked.done.owner, IoOwner::Metadata);
            is_record && self.map.held[parked.done.member.at()]
        })
    }

    /// Whether requests to a member are parked here. They are made again at once.
    pub(super) fn is_waiting_for(&mut self, member: MemberIndex, now: Instant) -> bool {
        let is_its = |parked: &Parked| parked.done.member == member;
        let doubted = self.hold.doubted.iter();
        let doubted = doubted.map(|doubted| &doubted.parked).any(is_its);
        let waits = self.hold.parked.iter().any(is_its) || doubted;
        // A record that goes out once more is as good as parked.
        let again = self.ios.used().into_iter().any(|slot| {
            let under_way = &self.ios[slot];
            let record = matches!(under_way.owner, IoOwner::Metadata);
            under_way.member == member && (under_way.again || record)
        });
        let commit = self
            .coordinator()
            .and_then(|decider| decider.commit.as_ref());
        let again = again || commit.is_some_and(|commit| commit.todo.contains(&member));
        // Told after the member is released, a failure from before would count as a new one.
        let again = again || self.reports.iter().any(|told| told.member == member);
        if waits {
            self.hold.next = Some(now);
        }
        waits || again
    }
}
