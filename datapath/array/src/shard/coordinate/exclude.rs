//! What becomes of members that failed: left out, waited for, or beyond help.

use std::time::Duration;

use block::Status;
use units::MemberIndex;

use super::super::{DriveIo, IoOwner, Shard};
use super::commit_of;
use super::hold::RollCall;
use crate::coordinator::{Commit, CommitPhase, cause_of};
use crate::format::{ArrayConfig, ExclusionCause, MemberState};
use crate::io::{Io, MemberFailure};
use crate::map::MapState;
use crate::planted::{self, Fault};

/// How long an exclusion waits to hear which members are gone besides. Answers come in an instant,
/// but in guests under load they were seen to take up to 50 ms, and twice more than 500.
const ROLL_CALL: Duration = Duration::from_secs(1);

/// What shall become of a member that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Fate {
    /// The array goes on without it.
    Excluded,
    /// The array waits for it.
    Held,
    /// It may have lost something, and the array cannot do without it as long as others are away.
    /// It is decided when these are back, or are not waited for any more.
    Open,
    /// The array cannot do without it, and it may have lost something.
    Hopeless,
}

impl Shard {
    pub(in crate::shard) fn coordinate_failure(&mut self, failure: MemberFailure) {
        if self.decider().metadata_failed {
            // Nobody is left out any more. As long as guests read a member that is gone there is
            // one failure after the other, and a stop would wait for the last.
            return;
        }
        let same = |other: &&mut MemberFailure| {
            other.member == failure.member && other.incarnation == failure.incarnation
        };
        if let Some(told) = self.decider().failures.iter_mut().find(same) {
            told.take(failure);
        } else {
            self.decider().failures.push(failure);
        }
    }

    pub(super) fn begin_exclusion(&mut self, io: &mut impl Io) -> usize {
        if self.decider().metadata_failed {
            // These were told before; no record will say who is out.
            let decider = self.decider();
            decider.failures.clear();
            decider.hold.call = None;
            return 1;
        }
        if let Some(moved) = self.call_roll(io) {
            return moved;
        }
        let failures = std::mem::take(&mut self.decider().failures);
        let live = |failure: &MemberFailure| !self.map.settled(failure.member, failure.incarnation);
        let mut live: Vec<MemberFailure> = failures.into_iter().filter(live).collect();
        if live.is_empty() {
            return 1;
        }
        let config = &self.coordinator.as_deref().expect("the home").config;
        if live.iter().all(|one| self.fate(config, one) == Fate::Open) {
            // Who is only late is told again, if he still is when it is decided.
            let open = live.extract_if(.., |one| !one.late).collect();
            self.decider().failures = open;
            return live.len();
        }
        let id = self.decider().draw_id();
        let next = self.decider().config.next(id);
        self.begin_commit_excluding(next, live, io);
        1
    }

    /// When a member is gone, asks the others whether they are there: what takes some members away
    /// often takes all, and then none is left out. `None` once that is known.
    fn call_roll(&mut self, io: &mut impl Io) -> Option<usize> {
        let now = io.now();
        if let Some(call) = self.decider().hold.call {
            let moved = self.go_on_calling(io);
            let is_over = call.pending == 0 && self.next_to_call(call.next).is_none();
            if !is_over && now < call.until {
                return Some(moved);
            }
            self.decider().hold.call = None;
            return None;
        }
        let failures = &self.coordinator.as_deref().expect("the home").failures;
        let is_gone = |failure: &MemberFailure| {
            let settled = self.map.settled(failure.member, failure.incarnation);
            let may_be = matches!(failure.status, Status::Gone | Status::Media);
            may_be && failure.passing && !failure.late && !settled
        };
        if !failures.iter().any(is_gone) {
            return None;
        }
        let next = self.next_to_call(0)?;
        let keeper = &mut self.decider().hold;
        keeper.calls = keeper.calls.wrapping_add(1);
        keeper.call = Some(RollCall {
            serial: keeper.calls,
            until: now + ROLL_CALL,
            pending: 0,
            next,
        });
        Some(self.go_on_calling(io))
    }

    /// Asks those that are still to be asked, as far as there is room; how many were.
    fn go_on_calling(&mut self, io: &mut impl Io) -> usize {
        let mut asked = 0;
        while let Some(mut call) = self.decider().hold.call
            && let Some(next) = self.next_to_call(call.next)
            && self.can_issue(1, io)
        {
            let serial = call.serial;
            self.ping(MemberIndex::from_at(next), IoOwner::RollCall { serial }, io);
            call.pending += 1;
            call.next = next + 1;
            self.decider().hold.call = Some(call);
            asked += 1;
        }
        asked
    }

    /// The first member from `from` on of which nobody has told that it is not there.
    fn next_to_call(&self, from: usize) -> Option<usize> {
        let failures = &self.coordinator.as_deref().expect("the home").failures;
        let mut rest = from..self.map.members.len();
        rest.find(|&at| {
            let in_sync = self.map.members[at].state == MapState::InSync;
            let told = failures.iter().any(|failure| failure.member.at() == at);
            in_sync && !told && !self.map.held[at]
        })
    }

    /// A member was asked whether it is there.
    pub(in crate::shard) fn roll_answered(&mut self, serial: u32, done: DriveIo, status: Status) {
        let call = self.decider().hold.call.as_mut();
        if let Some(call) = call.filter(|call| call.serial == serial) {
            call.pending -= 1;
        }
        if !status.is_ok() {
            self.report(done, Status::Gone);
        }
    }

    /// Commits `next` without the members that failed. A member that cannot be done without is
    /// not excluded but waited for, and so are those that failed together with it: perhaps all
    /// come back.
    fn begin_commit_excluding(
        &mut self,
        mut next: ArrayConfig,
        mut failures: Vec<MemberFailure>,
        io: &mut impl Io,
    ) {
        // Those that failed come first: the others are still there. And before them those that do
        // not come back: they have to be left out, and the others can be waited for.
        failures.sort_by_key(|failure| (failure.late, failure.passing));
        let mut excluded = Vec::new();
        let mut hopeless = Vec::new();
        let mut held = Vec::new();
        let mut excludable = Vec::new();
        let mut open = Vec::new();
        for failure in failures {
            let MemberFailure {
                member,
                status,
                late,
                ..
            } = failure;
            let fate = self.fate(&next, &failure);
            if late && !(fate == Fate::Excluded && self.may_be_late(&next, member)) {
                continue;
            }
            match fate {
                Fate::Excluded => {
                    let cause = if late {
                        ExclusionCause::TooSlow
                    } else {
                        cause_of(status)
                    };
                    self.exclude(&mut next, member, cause);
                    excluded.push((member, status));
                    excludable.push(failure);
                }
                Fate::Held => held.push(failure),
                Fate::Open => open.push(failure),
                Fate::Hopeless => hopeless.push(failure),
            }
        }
        self.decider().failures = open;
        if !hopeless.is_empty() || !held.is_empty() {
            if !held.is_empty() {
                held.extend(excludable.extract_if(.., |failure| failure.passing));
            }
            // Those that can be excluded are, in the next step.
            self.decider().failures.append(&mut excludable);
            self.hold(&held, &hopeless, io);
            return;
        }
        if excluded.is_empty() {
            return;
        }
        let places = self.decider().places.clone();
        let commit = commit_of(next, places, CommitPhase::FlushData);
        self.begin_commit(Commit {
            excluded,
            phase: CommitPhase::Write,
            ..commit
        });
    }

    /// What shall become of a member, if the configuration were this.
    pub(in crate::shard) fn fate(&self, config: &ArrayConfig, failure: &MemberFailure) -> Fate {
        let MemberFailure {
            member,
            status,
            passing,
            ..
        } = *failure;
        if config.members[member.at()].state != MemberState::InSync {
            return Fate::Excluded;
        }
        let keeper = &self.coordinator.as_deref().expect("the home").hold;
        let full = status == Status::NoSpace && passing && !keeper.tired[member.at()];
        if full && !planted::is(Fault::FullMemberExcluded) {
            return Fate::Held;
        }
        let is_gone =
            |other: usize| self.map.held[other] && !keeper.is_full(MemberIndex::from_at(other));
        let group = self.map.geometry.group_members();
        let first = member.at() / group * group;
        let others = (first..first + group).filter(|&other| {
            let in_sync = config.members[other].state == MemberState::InSync;
            other != member.at() && in_sync
        });
        let data = self.map.geometry.data();
        let left = others.clone().filter(|&other| !is_gone(other));
        let enough = left.count() >= data || planted::is(Fault::NeededMemberExcluded);
        let may_be = others.count() >= data && !planted::is(Fault::OpenFateDecided);
        match (enough, self.map.hopeless[member.at()]) {
            (true, _) => Fate::Excluded,
            (false, true) => Fate::Hopeless,
            (false, false) if passing => Fate::Held,
            (false, false) if may_be && !self.map.given_up => Fate::Open,
            (false, false) => Fate::Hopeless,
        }
    }
}
