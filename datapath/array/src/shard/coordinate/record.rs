//! Between the record and the map: what a record says of members that leave, come and are being
//! filled, and the map that follows from it.

use std::sync::Arc;

use units::{MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::super::{RegionKeeper, Shard};
use crate::command::{Command, Copying, Refusal};
use crate::coordinator::{Commit, MemberPlace, can_exclude};
use crate::format::{
    ArrayConfig, ArrayOptions, Before, ExclusionCause, MemberRecord, MemberState, Missed, WriteHole,
};
use crate::map::{ArrayMap, MapState};
use crate::planted::{self, Fault};
use crate::regions::Suspects;

impl Shard {
    /// Calls a member excluded by a record that is to be committed.
    pub(super) fn exclude(
        &mut self,
        next: &mut ArrayConfig,
        member: MemberIndex,
        cause: ExclusionCause,
    ) {
        assert!(
            can_exclude(&self.map.geometry, next, member) || planted::is_forgiven(),
            "{member} is excluded although its group has no more than it needs"
        );
        let stripes = self.map.geometry.stripes();
        let decider = self.decider();
        // What a start begins with is not committed yet.
        let name = if decider.started {
            decider.config.name_of_update()
        } else {
            decider.config.name_of_last_update()
        };
        let before = Before {
            committed: &decider.config,
            name,
            stripes,
        };
        next.exclude(member, cause, &before);
    }

    /// Refuses to call an array strict where parity may not agree that nobody has logged: unless a
    /// resync is on record, the next start would believe it.
    pub(super) fn refuse_strict(&mut self, options: &ArrayOptions) -> Result<(), Refusal> {
        let (untrusted, stripes) = (self.map.stripes_untrusted(), self.map.geometry.stripes());
        let config = &self.decider().config;
        let is = |options: &ArrayOptions| options.write_hole == WriteHole::Strict;
        let begins = is(options) && !is(&config.options);
        let resyncs = config.resynced_until.0 < stripes;
        if !begins || resyncs || untrusted == 0 {
            return Ok(());
        }
        Err(Refusal::Failed(format!(
            "parity may not agree yet in {untrusted} stripes, which nobody has logged; ask again \
             when they are resynced (`garboard job list`)"
        )))
    }

    /// Refuses a member that has a drive.
    pub(super) fn refuse_in_use(&self, member: MemberIndex) -> Result<(), Refusal> {
        let state = self.map.members.get(member.at()).map(|member| member.state);
        if state == Some(MapState::Lost) {
            return Ok(());
        }
        let text = format!("{member} is still in use; fail it first");
        Err(Refusal::Invalid(text))
    }

    /// A new drive for a member that is out, or the one that it had.
    pub(super) fn prepare_drive(
        &mut self,
        commit: &mut Commit,
        command: Command,
    ) -> Result<(), Refusal> {
        if let Command::Replace {
            member,
            place,
            record,
            copied,
        } = command
        {
            self.refuse_in_use(member)?;
            let missed = self.missed_by_copy(commit, member, copied);
            commit.config.members[member.at()] = record;
            put_in(commit, (member, place), missed);
            if missed.base > Update(0) {
                commit.returned.push(member);
            }
        } else if let Command::Return {
            member,
            place,
            uuid,
            identity,
        } = command
        {
            self.prepare_return(commit, (member, place), uuid)?;
            commit.config.members[member.at()].identity = identity;
        }
        Ok(())
    }

    /// What a drive lacks that holds a copy of a member which was in sync until it was excluded.
    fn missed_by_copy(
        &mut self,
        commit: &Commit,
        member: MemberIndex,
        copied: Option<Update>,
    ) -> Missed {
        let known = self.decider().copied.take_if(|copied| *copied == member);
        let known = known.is_some();
        let MemberState::Excluded { missed, .. } = commit.config.members[member.at()].state else {
            return Missed::ALL;
        };
        let Some(copied) = copied.filter(|_| known && missed.base > Update(0)) else {
            return Missed::ALL;
        };
        let base = if planted::is(Fault::CopyCountsFromItsEnd) {
            missed.base
        } else {
            copied.min(missed.base)
        };
        Missed {
            base,
            ..Missed::ALL
        }
    }

    /// A copy of a member begins, goes on, or is given up.
    pub(super) fn prepare_copying(
        &mut self,
        member: MemberIndex,
        step: Copying,
    ) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::Invalid(text));
        let geometry = &self.map.geometry;
        let (parity, stripes) = (geometry.parity(), geometry.stripes());
        let state = self.map.members.get(member.at()).map(|one| one.state);
        let resynced = self.map.trusted_until.0 >= stripes;
        let held = self.map.held.get(member.at()) == Some(&true)
            || self.map.hopeless.get(member.at()) == Some(&true);
        let copied = self.decider().copied;
        match step {
            Copying::Ends if copied == Some(member) => self.decider().copied = None,
            Copying::Ends => {}
            Copying::Begins if parity == 0 => {
                return refuse("without redundancy no member can be left out".to_owned());
            }
            Copying::Begins if copied.is_some() => {
                return refuse("another member is being copied".to_owned());
            }
            Copying::Begins if !resynced => {
                return refuse("its parity is being computed anew".to_owned());
            }
            Copying::Begins if state != Some(MapState::InSync) => {
                return refuse(format!("{member} is not in sync"));
            }
            Copying::Begins if held => {
                return refuse(format!("{member} does not work"));
            }
            Copying::Begins => self.decider().copied = Some(member),
            Copying::GoesOn if copied != Some(member) => {
                return refuse(format!("the copy of {member} counts for nothing any more"));
            }
            Copying::GoesOn => {}
        }
        Ok(())
    }

    fn prepare_return(
        &mut self,
        commit: &mut Commit,
        (member, place): (MemberIndex, MemberPlace),
        uuid: Uuid,
    ) -> Result<(), Refusal> {
        self.refuse_in_use(member)?;
        let record = &commit.config.members[member.at()];
        let MemberState::Excluded { missed, .. } = record.state else {
            return Err(Refusal::Invalid(format!("{member} was not excluded")));
        };
        if record.uuid != uuid {
            let text = format!("another drive took the place of {member}");
            return Err(Refusal::Invalid(text));
        }
        put_in(commit, (member, place), missed);
        commit.returned.push(member);
        Ok(())
    }

    /// Writes into `config` how far the passes got. What it says is flushed before it is written.
    pub(super) fn claim_progress(&self, config: &mut ArrayConfig) {
        if let Some(coordinator) = self.coordinator.as_deref() {
            config.scrub = coordinator.scrub.record;
        }
        // A resync after an unclean stop begins below what an earlier one has done for good.
        config.resynced_until = config.resynced_until.max(self.map.trusted_until);
        for (record, member) in config.members.iter_mut().zip(&self.map.members) {
            let (MemberState::Rebuilding { missed, .. }, MapState::Rebuilding { until }) =
                (record.state, member.state)
            else {
                continue;
            };
            record.state = if until.0 >= self.map.geometry.stripes() {
                MemberState::InSync
            } else {
                MemberState::Rebuilding { until, missed }
            };
        }
    }

    /// The map of the durable configuration. Passes may be further than it says.
    pub(super) fn map_of_config(&mut self, replaced: &[MemberIndex], excluded: bool) -> ArrayMap {
        let mut map = self.successor();
        let stripes = map.geometry.stripes();
        let decider = self.decider();
        map.update = decider.config.update;
        map.log_from = decider.config.log_from;
        map.log_life = map.log_life.max(map.log_from);
        let mode_ahead = decider.retire.mode_ahead();
        map.write_hole = mode_ahead.unwrap_or(decider.config.options.write_hole);
        map.hedged_reads = decider.config.options.hedged_reads;
        if excluded {
            map.barrier = map.serial;
        }
        if *map.lost_blocks != decider.config.lost {
            map.lost_blocks = Arc::new(decider.config.lost.clone());
        }
        let mut excluded_for = [0; ExclusionCause::ALL.len()];
        for (position, record) in decider.config.members.iter().enumerate() {
            let member = &mut map.members[position];
            if let MemberState::Excluded { cause, .. } = record.state
                && member.state != MapState::Lost
            {
                excluded_for[cause.at()] += 1;
            }
            let is_new = replaced.contains(&MemberIndex::from_at(position));
            if is_new {
                let place = decider.places[position]
                    .as_ref()
                    .expect("replaced by a drive");
                member.drive = Some(place.drive);
                member.data_offset = place.layout.data.offset;
                member.trial_offset = place.layout.bad_ranges.offset;
                member.incarnation += 1;
                map.hopeless[position] = false;
                decider.hold.is_replaced(MemberIndex::from_at(position));
                map.missed[position] = missed_by(record, &decider.keeper);
            }
            member.state = match (record.state, member.state) {
                (MemberState::InSync, _) => MapState::InSync,
                (
                    MemberState::Rebuilding { until, .. },
                    MapState::Rebuilding { until: reached },
                ) if !is_new => MapState::Rebuilding {
                    until: until.max(reached),
                },
                (MemberState::Rebuilding { until, .. }, _) => MapState::Rebuilding { until },
                (MemberState::Excluded { .. } | MemberState::Missing, _) => MapState::Lost,
            };
            // Who is being filled is waited for with those that failed together with it.
            map.held[position] &= member.state != MapState::Lost;
            assert!(map.trusted_until.0 <= stripes);
        }
        for (count, more) in self.counters.excluded.iter_mut().zip(excluded_for) {
            *count += more;
        }
        map
    }
}

/// Puts a drive in a member's place that lacks what `missed` says.
fn put_in(commit: &mut Commit, (member, place): (MemberIndex, MemberPlace), missed: Missed) {
    commit.config.members[member.at()].state = MemberState::Rebuilding {
        until: StripeIndex(0),
        missed,
    };
    commit.places[member.at()] = Some(place);
    commit.replaced.push(member);
}

/// The regions that a member lacks which comes in now. From here until every shard acts by the map
/// that says so, no other region becomes dirty.
fn missed_by(record: &MemberRecord, keeper: &RegionKeeper) -> Option<Arc<Suspects>> {
    let MemberState::Rebuilding { missed, .. } = record.state else {
        return None;
    };
    if planted::is(Fault::ReturnedCountsAsWhole) && missed.base > Update(0) {
        return Some(Arc::new(Suspects::none(keeper.space())));
    }
    keeper.missed(missed.base).map(Arc::new)
}
