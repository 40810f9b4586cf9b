//! Regions on a shard: writes wait until theirs is dirty on the drives. On the home shard: the map
//! is written, in rounds that gather whatever was asked meanwhile, and regions that nobody writes
//! any more become clean again.
//!
//! ```text
//! asked → round: blocks to all their holders → flush → states are Dirty, askers are answered
//! every few seconds: shards keep what they write dirty → flush → Clearing becomes Clean,
//!                    Dirty becomes Clearing → blocks are written by the next round
//! ```

mod keeper;
mod refused;
mod zero;

use block::{Operation, Status};
use units::{MemberIndex, ReactorIndex, Update, bytes_usize};

pub(crate) use self::keeper::RegionKeeper;
use self::keeper::{Clear, Phase};
use super::{DriveIo, IoOwner, Order, Shard};
use crate::command::Command;
use crate::coordinator::Ending;
use crate::format::REGION_BLOCK_BYTES;
use crate::io::{Io, Message};
use crate::map::MapState;
use crate::planted::{self, Fault};
use crate::regions::Suspects;

/// Blocks that one turn sweeps for regions to clear: some thousand regions, some microseconds.
const SWEEP_BLOCKS: usize = 16;

/// The first of some times, if there is any.
struct Earliest(Option<units::Instant>);

impl Earliest {
    #[inline]
    fn or(&mut self, at: Option<units::Instant>) {
        if let Some(at) = at {
            self.0 = Some(self.0.map_or(at, |first| first.min(at)));
        }
    }
}

impl Shard {
    /// The region that a ticket must find dirty before it writes.
    #[inline]
    pub(super) fn ticket_region(&self, slot: u32) -> Option<u32> {
        let order = &self.tickets[slot].order;
        let gated = order.kind.changes() && self.geometry().parity() > 0;
        gated.then(|| self.shared.regions.space.region(order.stripe))
    }

    /// Whether the ticket may begin to write as far as its region is concerned.
    #[inline]
    pub(super) fn is_region_ready(&self, slot: u32) -> bool {
        self.tickets[slot].region.is_none_or(|region| {
            self.shared.regions.begin_write(region) || planted::is(Fault::WriteBeforeDirty)
        })
    }

    /// Whether the ticket's region can never be written.
    #[inline]
    pub(super) fn is_region_lost(&self, slot: u32) -> bool {
        self.ticket_region(slot)
            .is_some_and(|region| self.shared.regions.is_lost(region))
    }

    /// Asks for the ticket's region unless that is done already.
    pub(super) fn want_region(&mut self, slot: u32, io: &mut impl Io) {
        let Some(region) = self.ticket_region(slot) else {
            return;
        };
        if self.asked_regions.contains(&region) {
            return;
        }
        if self.map.home == self.me {
            self.asked_regions.push(region);
            self.dirty_asked(self.me, region, io);
            return;
        }
        // What is asked here may wait for members to come back, when works no longer do: reads of
        // other shards' stripes go on all the same.
        let most = (self.asked_works_max / 2).max(1);
        if self.asked_regions.len() >= most {
            return;
        }
        if io.ask(self.map.home, Message::Dirty { region }).is_ok() {
            self.counters.messages += 1;
            self.asked_regions.push(region);
        }
    }

    pub(super) fn dirty_answered(&mut self, region: u32) {
        self.asked_regions.retain(|&asked| asked != region);
    }

    /// Moves tickets on whose regions are dirty now. A ticket whose map changed is planned anew.
    pub(super) fn advance_region_waiters(&mut self, io: &mut impl Io) -> usize {
        let mut moved = 0;
        let mut position = 0;
        while position < self.region_waiters.len() {
            let slot = self.region_waiters[position];
            if self.is_stale(slot) || self.is_region_lost(slot) {
                self.region_waiters.swap_remove(position);
                self.replan(slot);
            } else if self.is_region_ready(slot) {
                self.region_waiters.swap_remove(position);
                self.go_on_in_region(slot, io);
            } else {
                self.want_region(slot, io);
                position += 1;
                continue;
            }
            moved += 1;
        }
        moved
    }

    /// Keeps the regions dirty in which this shard has writes under way.
    pub(super) fn keep_dirty(&self) {
        for slot in self.tickets.used() {
            // What is logged may be written again by the next engine.
            let ticket = &self.tickets[slot];
            if !ticket.is_writing() && ticket.log_slot.is_none() && !ticket.logged {
                continue;
            }
            let Some(region) = self.ticket_region(slot) else {
                continue;
            };
            if ticket.is_writing() || ticket.log_slot.is_some() {
                // Nobody has called it clean since it began.
                self.assert_region_dirty(slot);
            }
            if !planted::is(Fault::ClearedInUse) {
                self.shared.regions.begin_write(region);
            }
        }
    }

    // ---- the home ------------------------------------------------------------------------

    fn keeper(&mut self) -> &mut RegionKeeper {
        &mut self
            .coordinator
            .as_deref_mut()
            .expect("asked of the home shard")
            .keeper
    }

    pub(super) fn dirty_asked(&mut self, from: ReactorIndex, region: u32, io: &mut impl Io) {
        if self.shared.regions.begin_write(region) || self.shared.regions.is_lost(region) {
            self.answer_dirty(from, region, io);
            return;
        }
        let now = io.now();
        // A copy lacks what becomes dirty while it is made.
        let is_copied = self.coordinator().is_some_and(|home| home.copied.is_some());
        let is_whole = self.map.is_whole() && !is_copied;
        let ahead = is_whole.then(|| self.zeroed_ahead());
        self.keeper().want((from, region), now, ahead);
    }

    /// Before the command that is next: `None` once regions that it wants dirty are.
    pub(super) fn dirty_for_command(&mut self, io: &mut impl Io) -> Option<usize> {
        let Some((_, Command::Dirty { regions })) = self.decider().commands.front() else {
            return None;
        };
        let regions = regions.clone();
        let (mut all, mut moved) = (true, 0);
        let decider = self.coordinator().expect("the home");
        let refused = !decider.started || decider.stopped || decider.metadata_failed;
        if refused || planted::is(Fault::UnreadableCounts) {
            return None;
        }
        let known = self.shared.regions.space.count();
        for region in regions {
            if bytes_usize(u64::from(region)) >= known {
                continue;
            }
            let states = &self.shared.regions;
            // Nothing is written any more where none can become dirty.
            if states.begin_write(region) || states.is_lost(region) || self.map.read_only {
                continue;
            }
            all = false;
            if !self.asked_regions.contains(&region) {
                self.asked_regions.push(region);
                self.dirty_asked(self.me, region, io);
                moved += 1;
            }
        }
        (!all).then_some(moved)
    }

    /// The regions that a copy lacks of which it is known that it began after update `base` was
    /// committed: `None` for all. Asked of the home.
    #[must_use]
    pub fn missed_since(&self, base: Update) -> Option<Suspects> {
        self.coordinator()?.keeper.missed(base)
    }

    fn answer_dirty(&mut self, to: ReactorIndex, region: u32, io: &mut impl Io) {
        if to == self.me {
            self.dirty_answered(region);
        } else {
            self.counters.messages += 1;
            io.reply(to, Message::DirtyDone { region });
        }
    }

    pub(super) fn kept_dirty(&mut self) {
        self.keeper().clear.answered();
    }

    /// When the shard wants to be woken although nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Option<units::Instant> {
        let mut waits = Earliest(self.throttle.wake);
        waits.or(self.hold_deadline());
        waits.or(self.look_deadline());
        let Some(coordinator) = self.coordinator.as_deref() else {
            return waits.0;
        };
        if coordinator.started && !coordinator.stopped && !self.broken {
            waits.or(coordinator.keeper.deadline());
            waits.or(self.scrub_deadline());
            waits.or(self.pace_deadline());
            waits.or(self.retry_deadline());
        }
        waits.or(self.renewal_deadline());
        // While a map is on its way to all shards, the home waits for their answers only.
        if coordinator.broadcast.is_none() {
            waits.or(coordinator.hold.deadline());
            waits.or(coordinator.handing_over.deadline());
        }
        waits.0
    }

    pub(super) fn advance_regions(&mut self, io: &mut impl Io) -> usize {
        let Some(coordinator) = self.coordinator.as_deref() else {
            return 0;
        };
        if !coordinator.started {
            return 0;
        }
        let stopped = coordinator.stopped;
        let mut moved = self.advance_round(io);
        if self.map.read_only {
            // Nothing becomes dirty any more: whoever waits finds that out when it plans anew.
            let states = std::sync::Arc::clone(&self.shared.regions);
            for (from, region) in self.keeper().take_answers(&states, true) {
                self.answer_dirty(from, region, io);
                moved += 1;
            }
        } else {
            moved += self.begin_round();
        }
        moved += self.lift_bars(io);
        moved += self.advance_zeroing(io);
        moved + self.advance_clear(stopped, io)
    }

    pub(super) fn is_usable(&self, member: MemberIndex) -> bool {
        let entry = &self.map.members[member.at()];
        entry.drive.is_some() && entry.state != MapState::Lost && !self.map.hopeless[member.at()]
    }

    /// Whether blocks of the map may be torn by a kill now, in an array where that is not to be
    /// thought of after a clean stop.
    pub(super) fn writes_regions(&self) -> bool {
        self.coordinator().is_some_and(|decider| {
            let keeper = &decider.keeper;
            decider.config.features.has_unwritten()
                && (keeper.round.is_some() || keeper.owes_copies() || keeper.has_askers())
        })
    }

    /// Whether the stop that is next waits until no block of the map is being written. One that
    /// could wait for long does not: it is not clean.
    pub(super) fn stop_awaits_regions(&self) -> bool {
        let Some(decider) = self.coordinator() else {
            return false;
        };
        let stops = matches!(decider.commands.front(), Some((_, Command::Stop)));
        let goes_on = decider.started && !decider.metadata_failed && !decider.hold.is_holding();
        let goes_on = goes_on && !self.map.read_only && !self.map.is_broken();
        stops && goes_on && self.writes_regions()
    }

    fn begin_round(&mut self) -> usize {
        let decider = self.coordinator.as_deref().expect("the home");
        let commit = decider.commit.as_ref();
        let stops = decider.stopped || commit.is_some_and(|commit| commit.ending == Ending::Stops);
        if stops && decider.config.features.has_unwritten() && !decider.keeper.has_askers() {
            // What is on the drives is true, and a record may say that nothing is torn.
            return 0;
        }
        let broadcast = decider.broadcast.as_ref();
        let held = broadcast.is_some_and(|map| map.holds_regions && !map.effective);
        let held = held && !planted::is(Fault::DirtyBeforeEveryReactor);
        if held || !self.keeper().has_work() {
            return 0;
        }
        let usable: Vec<bool> = (0..self.map.members.len())
            .map(|position| self.is_usable(MemberIndex::from_at(position)))
            .collect();
        self.keeper().begin_round(|member| usable[member.at()]);
        1
    }

    /// One step of the round: writes, flushes, waits for exclusions, publishes.
    fn advance_round(&mut self, io: &mut impl Io) -> usize {
        let Some(mut round) = self.keeper().round.take() else {
            return 0;
        };
        let mut moved = 0;
        while let Some(&(position, member)) = round.todo.last() {
            if !self.can_issue(1, io) {
                break;
            }
            round.todo.pop();
            moved += 1;
            // The drive of one that is out may be anybody's by now.
            let incarnation = self.map.members[member.at()].incarnation;
            if self.map.is_out(member, incarnation) {
                round.failed.push((member, incarnation));
                continue;
            }
            round.pending += 1;
            let record = (round.phase == Phase::Write).then(|| self.keeper().record(position));
            let offset = match round.phase {
                Phase::Write => self.keeper().offset(round.blocks[position].number),
                Phase::Flush | Phase::Settle => 0,
            };
            let order = Order {
                owner: IoOwner::Region,
                member,
                operation: if record.is_some() {
                    Operation::Write
                } else {
                    Operation::Flush
                },
                offset,
                length: record.map_or(0, |_| units::bytes_u64(REGION_BLOCK_BYTES)),
            };
            self.issue(order, |list| list.extend(record), io);
        }
        if !round.todo.is_empty() || round.pending > 0 {
            self.keeper().round = Some(round);
            return moved;
        }
        match round.phase {
            Phase::Write if planted::is(Fault::RegionsNotFlushed) => round.phase = Phase::Settle,
            Phase::Write => {
                round.flush();
                self.keeper().round = Some(round);
                return moved + 1;
            }
            Phase::Flush => round.phase = Phase::Settle,
            Phase::Settle => {}
        }
        // A holder that missed the round must be known for that before anybody relies on it.
        let settled =
            |&(member, incarnation): &(MemberIndex, u32)| self.map.settled(member, incarnation);
        let waits = !round.failed.iter().all(settled)
            || (!round.failed.is_empty() && self.effective < self.map.barrier);
        if waits && !self.map.read_only {
            self.keeper().round = Some(round);
            return moved;
        }
        if self.settle_refused(&mut round, io) {
            self.keeper().round = Some(round);
            return moved + 1;
        }
        let read_only = self.map.read_only;
        let states = std::sync::Arc::clone(&self.shared.regions);
        self.keeper().publish(&round, &states, read_only);
        self.answer_dirty_all(io);
        moved + 1
    }

    /// Answers those who wait for nothing more.
    fn answer_dirty_all(&mut self, io: &mut impl Io) {
        let (states, all) = (
            std::sync::Arc::clone(&self.shared.regions),
            self.map.read_only,
        );
        for (from, region) in self.keeper().take_answers(&states, all) {
            self.answer_dirty(from, region, io);
        }
    }

    /// The regions that are not unwritten, on the home shard.
    #[must_use]
    pub fn written_regions(&self) -> Option<Suspects> {
        Some(self.coordinator()?.keeper.written_regions())
    }

    /// A write or flush of the map is done.
    pub(super) fn region_io_done(&mut self, done: DriveIo, status: Status) {
        let DriveIo {
            member,
            incarnation,
            ..
        } = done;
        let flushed = done.operation != Some(Operation::Flush)
            || self.shared.is_flushed(member, incarnation, status);
        let status = if flushed {
            status
        } else {
            status.and(Status::Media)
        };
        self.report_if_failed(done, status);
        let round = self.keeper().round.as_mut().expect("a round is under way");
        round.pending -= 1;
        if status.is_ok() && done.operation == Some(Operation::Flush) {
            round.flushed.push(member);
        }
        if !status.is_ok() && !planted::is(Fault::RegionCopyForgotten) {
            round.failed.push((member, incarnation));
        }
    }

    fn report_if_failed(&mut self, done: DriveIo, status: Status) {
        let forgotten =
            planted::is(Fault::RegionCopyForgotten) && matches!(done.owner, IoOwner::Region);
        if !status.is_ok() && !forgotten {
            self.report(done, status);
        }
    }

    // ---- clearing ------------------------------------------------------------------------

    /// A flush is done that was made to clear regions.
    pub(super) fn clear_io_done(&mut self, done: DriveIo, status: Status) {
        self.report_if_failed(done, status);
        let flushed = self
            .shared
            .is_flushed(done.member, done.incarnation, status);
        self.shared.finish_flush(done.member, flushed);
        self.keeper().clear.flushed(done.member, flushed);
    }

    fn advance_clear(&mut self, stopped: bool, io: &mut impl Io) -> usize {
        let broken = self.broken;
        match std::mem::replace(&mut self.keeper().clear, Clear::Waiting) {
            Clear::Waiting => {
                if stopped || broken || self.keeper().is_all_clean() {
                    return 0;
                }
                let now = io.now();
                if !self.keeper().is_due(now) {
                    return 0;
                }
                let me = self.me;
                let coordinator = self.coordinator.as_deref_mut().expect("the home");
                let reactors = coordinator.reactors.iter().copied();
                let others = reactors.filter(|&reactor| reactor != me).collect();
                coordinator.keeper.begin_clear(now, others);
                1
            }
            Clear::Asking {
                mut todo,
                mut pending,
            } => {
                let mut moved = 0;
                while let Some(&reactor) = todo.last() {
                    if io.ask(reactor, Message::KeepDirty).is_err() {
                        break;
                    }
                    self.counters.messages += 1;
                    todo.pop();
                    pending += 1;
                    moved += 1;
                }
                if todo.is_empty() && pending == 0 {
                    self.keep_dirty();
                    let all = 0..self.map.members.len();
                    let members = all.map(MemberIndex::from_at);
                    let todo = members.filter(|&member| self.is_usable(member));
                    let todo: Vec<MemberIndex> = todo.collect();
                    self.keeper().clear = Clear::Flushing {
                        left: todo.clone(),
                        todo,
                        under_way: Vec::new(),
                        ok: true,
                    };
                    return moved + 1;
                }
                self.keeper().clear = Clear::Asking { todo, pending };
                moved
            }
            Clear::Flushing {
                todo,
                under_way,
                ok,
                left,
            } => self.flush_to_clear((todo, under_way), (left, ok), io),
            Clear::Sweeping { next } => {
                self.sweep(next, broken);
                1
            }
        }
    }

    fn flush_to_clear(
        &mut self,
        (mut todo, mut under_way): (Vec<MemberIndex>, Vec<MemberIndex>),
        (mut left, ok): (Vec<MemberIndex>, bool),
        io: &mut impl Io,
    ) -> usize {
        let mut moved = 0;
        while let Some(&member) = todo.last() {
            if !self.can_issue(1, io) {
                break;
            }
            todo.pop();
            moved += 1;
            if planted::is(Fault::ClearedBeforeFlush) {
                continue;
            }
            if !self.is_usable(member) || !self.shared.begin_flush(member) {
                left.retain(|&other| other != member);
                continue;
            }
            under_way.push(member);
            let order = Order {
                owner: IoOwner::Clear,
                member,
                operation: Operation::Flush,
                offset: 0,
                length: 0,
            };
            self.issue(order, |_| {}, io);
        }
        let ended = todo.is_empty() && under_way.is_empty();
        assert!(
            !(ended && ok) || left.is_empty() || planted::is_forgiven(),
            "regions become clean although {left:?} were not flushed"
        );
        self.keeper().clear = match (ended, ok) {
            (false, _) => Clear::Flushing {
                todo,
                under_way,
                ok,
                left,
            },
            (true, true) => Clear::Sweeping { next: 0 },
            // What was not flushed stays dirty; the next attempt is made without that member.
            (true, false) => self.keeper().clear_later(),
        };
        moved + usize::from(ended)
    }

    /// Looks at some blocks: what is about to be clean and was left alone is clean, what is dirty
    /// is about to be.
    fn sweep(&mut self, next: u32, broken: bool) {
        let (map, states) = (
            std::sync::Arc::clone(&self.map),
            std::sync::Arc::clone(&self.shared.regions),
        );
        let coordinator = self.coordinator.as_deref_mut().expect("the home");
        let epoch = coordinator.config.update;
        let trusted = |region: u32| {
            let (start, end) = states.space.stripes(region);
            let resynced = end <= map.trusted_until || !map.suspects.has(start);
            !broken && (resynced || planted::is(Fault::ClearedBeforeResync))
        };
        coordinator
            .keeper
            .sweep((next, SWEEP_BLOCKS), epoch, &states, trusted);
    }
}
