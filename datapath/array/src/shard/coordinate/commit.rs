//! A commit: what it claims is flushed, the record is written to every member that it calls a
//! member, and flushed there.

use std::sync::Arc;

use block::{Operation, Status};
use units::{Instant, MemberIndex, StripeIndex};

use super::super::doubt::REFUSED;
use super::super::hold::may_pass;
use super::super::{DriveIo, IoOwner, Order, Shard};
use super::exclude::Fate;
use crate::assembly::RecordPlace;
use crate::command::Refusal;
use crate::coordinator::{Commit, CommitPhase, Ending, cause_of, record_bytes, trusted_until};
use crate::format::{ArrayConfig, ExclusionCause, MemberState};
use crate::io::{Event, Io, MemberFailure, PassEvent};
use crate::map::MapState;
use crate::planted::{self, Fault};

impl Shard {
    pub(in crate::shard) fn begin_commit(&mut self, mut commit: Commit) {
        commit.todo = self.phase_members(&commit);
        let replaced = self.decider().commit.replace(commit);
        assert!(replaced.is_none(), "one change at a time");
    }

    /// Members that take part in the commit's phase.
    pub(super) fn phase_members(&self, commit: &Commit) -> Vec<MemberIndex> {
        let takes_part = |record: &crate::format::MemberRecord| match record.state {
            MemberState::InSync | MemberState::Rebuilding { .. } => true,
            MemberState::Excluded { .. } | MemberState::Missing => false,
        };
        let members = commit.config.members.iter().enumerate();
        let members = members.filter(|(_, record)| takes_part(record));
        let mut members: Vec<MemberIndex> = members
            .map(|(position, _)| MemberIndex::from_at(position))
            .collect();
        if planted::is(Fault::RecordOnHalfOfTheMembers) {
            members.truncate(members.len().div_ceil(2));
        }
        members
    }

    pub(super) fn advance_commit(&mut self, io: &mut impl Io) -> usize {
        let mut commit = self.decider().commit.take().expect("looked at");
        // One that goes out again stays the same.
        if commit.phase == CommitPhase::Write && commit.config.written_seconds == 0 {
            commit.config.written_seconds = self.decider().scrub.seconds_at(io.now());
        }
        let mut moved = 0;
        while let Some(&member) = commit.todo.last() {
            if !self.can_issue(1, io) {
                break;
            }
            commit.todo.pop();
            commit.pending += usize::from(self.issue_metadata(&commit, member, io));
            moved += 1;
        }
        if !commit.todo.is_empty() || commit.pending > 0 {
            self.decider().commit = Some(commit);
            return moved;
        }
        match commit.phase {
            // Also after a failure: the next attempt overwrites the record before this one, so
            // this one must be durable wherever it was written.
            CommitPhase::Write
                if commit.failed.is_empty() && planted::is(Fault::RecordNotFlushed) =>
            {
                self.commit_done(commit, io);
                return 1;
            }
            CommitPhase::Write => commit.phase = CommitPhase::FlushRecord,
            CommitPhase::FlushData | CommitPhase::FlushRecord if !commit.failed.is_empty() => {
                return moved + self.recommit(commit, io);
            }
            CommitPhase::FlushData => commit.phase = CommitPhase::Write,
            CommitPhase::FlushRecord => {
                self.commit_done(commit, io);
                return 1;
            }
        }
        commit.todo = self.phase_members(&commit);
        let failed = &commit.failed;
        let went_well = |member: &MemberIndex| failed.iter().all(|other| other.member != *member);
        commit.todo.retain(went_well);
        self.decider().commit = Some(commit);
        1
    }

    /// Issues one member's part of the phase; whether there was anything to do.
    pub(super) fn issue_metadata(
        &mut self,
        commit: &Commit,
        member: MemberIndex,
        io: &mut impl Io,
    ) -> bool {
        let place = commit.places[member.at()]
            .clone()
            .expect("a member has a drive");
        let slot = ArrayConfig::slot(commit.config.update);
        let (operation, record) = match commit.phase {
            CommitPhase::FlushData => {
                let known = self.map.members[member.at()].drive.is_some();
                if !known || !self.shared.begin_flush(member) {
                    return false;
                }
                (Operation::Flush, None)
            }
            CommitPhase::FlushRecord => (Operation::Flush, None),
            CommitPhase::Write => {
                let encoded = self
                    .decider()
                    .encode_record(&commit.config, (member, &place));
                (
                    Operation::Write,
                    Some(encoded.expect("its size was looked at")),
                )
            }
        };
        let (offset, length) = record.map_or((0, 0), |record| {
            let length = record_bytes(record);
            (place.places_of(slot, length).0, length)
        });
        let order = Order {
            owner: IoOwner::Metadata,
            member,
            operation,
            offset,
            length,
        };
        self.issue_to(place.drive, order, |list| list.extend(record), io);
        true
    }

    /// A record that its drive refuses, which is waited for, goes to its other place next when it
    /// has been refused for a while: this may be one bad block, or a drive that is coming back.
    pub(in crate::shard) fn try_other_place(&self, done: &mut DriveIo, now: Instant) {
        if done.refused_since == Instant(0) {
            done.refused_since = now;
        }
        if now.since(done.refused_since) < REFUSED {
            return;
        }
        let decider = self.coordinator.as_deref().expect("the home");
        let commit = decider.commit.as_ref();
        let commit = commit.expect("metadata is written by a commit");
        let place = commit.places[done.member.at()].as_ref();
        let place = place.expect("a member has a drive");
        let slot = ArrayConfig::slot(commit.config.update);
        done.offset = match place.places_of(slot, done.length) {
            (first, Some(other)) if done.offset == first => other,
            (first, _) => first,
        };
    }

    pub(in crate::shard) fn metadata_done(
        &mut self,
        done: DriveIo,
        mut status: Status,
        io: &mut impl Io,
    ) {
        let DriveIo {
            member,
            incarnation,
            operation,
            ..
        } = done;
        let shared = Arc::clone(&self.shared);
        let decider = self.decider();
        let commit = decider.commit.as_mut();
        let commit = commit.expect("metadata is written by a commit");
        commit.pending -= 1;
        // A drive that is only now becoming a member has no past.
        let known = !commit.replaced.contains(&member);
        if operation == Some(Operation::Flush)
            && known
            && !shared.is_flushed(member, incarnation, status)
        {
            status = status.and(Status::Media);
        }
        if operation == Some(Operation::Write) && status.is_ok() {
            let slot = ArrayConfig::slot(commit.config.update);
            let place = commit.places[member.at()].as_mut();
            let place = place.expect("a member has a drive");
            let moved = done.offset != place.layout.config[slot.at()].offset;
            let is_new = moved && place.records[slot.at()] != RecordPlace::Middle;
            place.records[slot.at()] = if moved {
                RecordPlace::Middle
            } else {
                RecordPlace::Start
            };
            if is_new {
                io.event(Event::RecordMoved { member });
                // The next one says so.
                decider.renewal.once_more();
            }
        }
        if !status.is_ok() {
            commit.failed.push(MemberFailure {
                member,
                incarnation,
                status,
                late: false,
                passing: may_pass(operation, status),
            });
        }
        if commit.phase == CommitPhase::FlushData {
            self.shared.finish_flush(member, status.is_ok());
        }
    }

    /// Some members failed while a record went out: a later record without them goes out next.
    /// Each record that was written is an update of its own: a part of the members may hold it.
    /// Only when a member is waited for the same record goes out again, because a member in sync
    /// must not be two updates behind. Nothing moves as long as the fate of one is open.
    pub(super) fn recommit(&mut self, mut commit: Commit, io: &mut impl Io) -> usize {
        let mut failed = std::mem::take(&mut commit.failed);
        // Those that come back can be waited for when the others have to be left out.
        failed.sort_by_key(|failure| failure.passing);
        let id = self.decider().draw_id();
        let is_on_no_drive = commit.phase == CommitPhase::FlushData;
        let mut next = if is_on_no_drive && !planted::is(Fault::NumberOfARecordSkipped) {
            // The number after it would go over the last record that is durable.
            commit.config.clone()
        } else {
            commit.config.next(id)
        };
        self.keep_unfinished(&commit, &mut next);
        let mut trial = commit.config.clone();
        let (mut waits, mut is_open) = (false, false);
        for failure in &failed {
            let fate = self.fate(&trial, failure);
            if fate == Fate::Hopeless || self.map.read_only {
                self.fail_metadata(commit.answers, &gone_of(&failed, &commit.excluded), io);
                return 1;
            }
            waits |= fate == Fate::Held;
            is_open |= fate == Fate::Open;
            if fate == Fate::Excluded {
                self.exclude(&mut trial, failure.member, cause_of(failure.status));
            }
        }
        if waits {
            // One of which nobody knows what it holds is not waited for, nor are others with it.
            let hopeless = |failure: &MemberFailure| self.map.hopeless[failure.member.at()];
            if failed.iter().any(hopeless) {
                self.fail_metadata(commit.answers, &gone_of(&failed, &commit.excluded), io);
            } else {
                self.commit_waits(commit, failed, io);
            }
            return 1;
        }
        if is_open {
            self.decider().commit = Some(Commit { failed, ..commit });
            return 0;
        }
        for MemberFailure { member, status, .. } in failed {
            let cause = self.cause_of(member, status);
            let at = member.at();
            let before = self.decider().config.members[at].clone();
            if commit.replaced.contains(&member) && before.uuid != next.members[at].uuid {
                // Nobody has counted on the new drive, and who had its place may still return.
                next.members[at] = before;
                commit.places[at] = self.decider().places[at].clone();
            } else {
                self.exclude(&mut next, member, cause);
                commit.excluded.push((member, status));
            }
            if commit.replaced.contains(&member) {
                commit.replaced.retain(|&other| other != member);
                commit.returned.retain(|&other| other != member);
                let text = format!("the new drive of {member} failed: {status:?}");
                for id in commit.answers.drain(..) {
                    io.event(Event::CommandDone {
                        id,
                        result: Err(Refusal::Failed(text.clone())),
                    });
                }
            }
        }
        commit.config = next;
        if commit.phase == CommitPhase::FlushRecord {
            commit.phase = CommitPhase::Write;
        }
        self.begin_commit(commit);
        1
    }

    /// Members that failed are waited for: this phase goes on with them.
    fn commit_waits(
        &mut self,
        mut commit: Commit,
        mut failed: Vec<MemberFailure>,
        io: &mut impl Io,
    ) {
        let config = &commit.config;
        let in_sync = |failure: &MemberFailure| {
            config.members[failure.member.at()].state == MemberState::InSync
        };
        let waiting = failed.extract_if(.., |failure| failure.passing && in_sync(failure));
        let waiting: Vec<MemberFailure> = waiting.collect();
        commit.failed = failed;
        commit.todo = waiting.iter().map(|failure| failure.member).collect();
        if commit.phase == CommitPhase::FlushRecord {
            commit.phase = CommitPhase::Write;
        }
        self.decider().commit = Some(commit);
        self.hold(&waiting, &[], io);
    }

    /// The array takes no more writes: it does not guess what is on its members. Of those that are
    /// `gone` no record can say so.
    pub(in crate::shard) fn fail_metadata(
        &mut self,
        answers: Vec<u64>,
        gone: &[MemberIndex],
        io: &mut impl Io,
    ) {
        self.shared.tear();
        self.decider().metadata_failed = true;
        io.event(Event::MetadataFailed);
        let text = "the configuration could not be written to enough members".to_owned();
        for id in answers {
            io.event(Event::CommandDone {
                id,
                result: Err(Refusal::Failed(text.clone())),
            });
        }
        let mut map = self.successor();
        self.forsake(&mut map);
        for member in gone {
            map.hopeless[member.at()] |= map.members[member.at()].state == MapState::InSync;
        }
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
    }

    fn cause_of(&self, member: MemberIndex, status: Status) -> ExclusionCause {
        if status == Status::Gone && self.is_silent(member) {
            return ExclusionCause::TooSlow;
        }
        cause_of(status)
    }

    /// What is committed anew before a start has its first record is still that.
    fn keep_unfinished(&mut self, commit: &Commit, next: &mut ArrayConfig) {
        if !self.decider().started {
            next.unfinished_since = commit.config.unfinished_since;
        }
    }

    pub(super) fn commit_done(&mut self, commit: Commit, io: &mut impl Io) {
        let now = io.now();
        let decider = self.decider();
        if decider.config.lost == commit.config.lost {
            // One that changes the list says nothing of how far passes are.
            decider.checkpoint = now;
        }
        // Who was late then may have answered by now; else it is told again.
        decider.failures.retain(|failure| !failure.late);
        if decider.started || planted::is(Fault::OneRecordAtStart) {
            // Whoever is not here is known for that. Any second record will do, an exclusion's as
            // well as the start's.
            self.shared.regions.open();
        } else {
            decider.renewal.started(now);
        }
        let begun = self.shared.begun.clone();
        let decider = self.decider();
        decider.started = true;
        decider.stopped |= commit.ending == Ending::Stops;
        decider.config = commit.config;
        decider.places = commit.places;
        let (update, id) = (decider.config.update, decider.config.update_id);
        let places = self.decider().places.iter();
        let appearances = places.map(|place| place.as_ref().map_or(0, |place| place.appearance));
        if let Some(begun) = &begun {
            begun.note_appearances(appearances);
            for &member in &commit.replaced {
                begun.forget_unflushed(member);
            }
            begun.note_update(update, id);
        }
        let decider = self.decider();
        if !commit.excluded.is_empty() {
            decider.hold.have_left();
        }
        if !commit.replaced.is_empty() || !commit.excluded.is_empty() {
            decider.retry.go_on();
            decider.scrub.failed = false;
        }
        if let Some(pass) = commit.finished {
            io.event(Event::Pass {
                pass,
                state: PassEvent::Finished,
            });
        }
        let mut map = self.map_of_config(&commit.replaced, !commit.excluded.is_empty());
        if commit.ending == Ending::Untrusts && map.geometry.parity() > 0 {
            // Those that become written have parity that agrees.
            let suspects = self.decider().keeper.written_regions();
            let stripes = map.geometry.stripes();
            map.trusted_until = trusted_until(&suspects, StripeIndex(0), stripes);
            map.suspects = Arc::new(suspects);
        }
        for &member in &commit.returned {
            let missed = map.missed[member.at()].as_ref();
            let regions = missed.map_or(map.suspects.space().count(), |missed| missed.count());
            io.event(Event::MemberReturned { member, regions });
        }
        self.begin_broadcast(map, commit.answers, commit.excluded, io);
        if let Some(broadcast) = &mut self.decider().broadcast {
            // A new drive lacks nothing of what is unwritten as yet.
            broadcast.holds_regions = !commit.replaced.is_empty();
        }
        for member in commit.replaced {
            self.decider().keeper.owe(member);
        }
    }
}

/// The members of a record in vain that are not there.
fn gone_of(failed: &[MemberFailure], excluded: &[(MemberIndex, Status)]) -> Vec<MemberIndex> {
    let failed = failed
        .iter()
        .map(|failure| (failure.member, failure.status));
    let all = failed.chain(excluded.iter().copied());
    all.filter_map(|(member, status)| (status == Status::Gone).then_some(member))
        .collect()
}
