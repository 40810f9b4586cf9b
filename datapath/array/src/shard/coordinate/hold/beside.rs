//! Members that fail while a record waits for others that are held.
//!
//! Whoever can be left out is, by the next record. Until then it counts as no help to its group,
//! and a member that the record waits for is let go only when enough of the others work: if too few
//! are left beside all that failed, nothing would ever end that. So these are waited for as well:
//! they are looked at, and work again or do not.

use units::MemberIndex;

use crate::coordinator::{Commit, CommitPhase};
use crate::format::MemberState;
use crate::io::{Io, MemberFailure};
use crate::shard::Shard;

impl Shard {
    /// Waits for those that failed and may come back, where their group has too few without them.
    pub(super) fn hold_beside_a_record(&mut self, io: &mut impl Io) -> usize {
        let decider = self.coordinator.as_deref().expect("the home");
        let Some(commit) = &decider.commit else {
            return 0;
        };
        if decider.metadata_failed || !self.map.is_holding() || !self.record_waits() {
            return 0;
        }
        // Of one that is only late nothing failed.
        let failed = || {
            // A start acts on what it is told when it is through.
            let told = decider.failures.iter().filter(|_| decider.started);
            let told =
                told.filter(|one| !one.late && !self.map.settled(one.member, one.incarnation));
            commit.failed.iter().chain(told)
        };
        let mut open: Vec<MemberFailure> = Vec::new();
        for failure in failed().filter(|failure| failure.passing) {
            let is_new = open.iter().all(|other| other.member != failure.member);
            if is_new && self.counts(commit, failure.member) {
                open.push(*failure);
            }
        }
        let group = self.map.geometry.group_members();
        let data = self.map.geometry.data();
        open.retain(|one| {
            let first = one.member.at() / group * group;
            let members = first..first + group;
            let mut beside = failed().filter(|failure| members.contains(&failure.member.at()));
            // Of a hold that was given up nothing is open any more: another one that does not come
            // back would be beyond help while these are held.
            let may_all_come_back = !self.map.given_up
                || beside.all(|failure| failure.passing || !is_in_sync(commit, failure.member));
            let works = members.clone().map(MemberIndex::from_at).filter(|&other| {
                let fails = failed().any(|failure| failure.member == other);
                self.counts(commit, other) && !fails
            });
            may_all_come_back && works.count() < data
        });
        if open.is_empty() {
            return 0;
        }
        let is_open = |failure: &MemberFailure| {
            let mut open = open.iter();
            open.any(|other| other.member == failure.member)
        };
        let commit = self.decider().commit.as_mut().expect("looked at");
        // Their part of the record is made again, and waits with them. Of one that is only to be
        // flushed as yet it may be the record itself that failed.
        let again = commit.failed.extract_if(.., |failure| is_open(failure));
        let again: Vec<MemberIndex> = again.map(|failure| failure.member).collect();
        if !again.is_empty() && commit.phase == CommitPhase::FlushRecord {
            commit.phase = CommitPhase::Write;
        }
        commit.todo.extend(again);
        self.hold(&open, &[], io);
        1
    }

    /// Whether a member is in sync by a record and is not waited for.
    fn counts(&self, commit: &Commit, member: MemberIndex) -> bool {
        let at = member.at();
        is_in_sync(commit, member) && !self.map.held[at] && !self.map.hopeless[at]
    }
}

fn is_in_sync(commit: &Commit, member: MemberIndex) -> bool {
    commit.config.members[member.at()].state == MemberState::InSync
}
