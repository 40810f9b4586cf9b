//! How a hold ends.

use block::Status;
use units::{Instant, MemberIndex};

use super::last::LastHold;
use super::timeout;
use crate::format::MemberState;
use crate::io::{Event, Io, MemberFailure};
use crate::map::ArrayMap;
use crate::shard::Shard;

impl Shard {
    /// Members that are out, or hopeless, are not waited for; whether that changed the map.
    pub(super) fn forget_settled(&mut self, io: &mut impl Io) -> bool {
        let held = self.map.held.clone();
        let keeper = &mut self.decider().hold;
        let holding = keeper.holding.as_mut().expect("looked at");
        holding.members.retain(|(member, _)| held[member.at()]);
        if !holding.members.is_empty() {
            return false;
        }
        let mut map = self.successor();
        self.end_if_empty(&mut map, io);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        true
    }

    /// Ends the hold when nobody is waited for any more.
    pub(super) fn end_if_empty(&mut self, map: &mut ArrayMap, io: &mut impl Io) {
        let now = io.now();
        let decider = self.decider();
        let Some(holding) = decider
            .hold
            .holding
            .take_if(|holding| holding.members.is_empty())
        else {
            return;
        };
        map.given_up = false;
        decider.hold.last = LastHold::of(&holding, decider, now);
        let after = now.since(holding.since);
        io.event(Event::Resumes { after });
    }

    /// Leaves out whom the array can do without now, and gives up the others when it is `late`.
    pub(super) fn time_out(&mut self, late: bool, now: Instant, io: &mut impl Io) -> usize {
        let leaving = self.dispensable(late);
        let mut map = self.successor();
        let decider = self.coordinator.as_deref_mut().expect("the home");
        let limit = timeout(decider);
        let holding = decider.hold.holding.as_mut().expect("looked at");
        holding.eased = None;
        for &(member, status) in &leaving {
            map.held[member.at()] = false;
            decider.hold.tired[member.at()] = true;
            decider.failures.push(MemberFailure {
                member,
                incarnation: map.members[member.at()].incarnation,
                status,
                late: false,
                passing: true,
            });
        }
        holding.members.retain(|held| !leaving.contains(held));
        if late && !holding.members.is_empty() {
            holding.given_up = true;
            map.given_up = true;
            // What a pass cannot do now it may do later.
            decider.hold.window_spoiled = decider.window.is_some();
            io.event(Event::HoldTimedOut { after: limit });
        } else if leaving.is_empty() {
            // Nobody is late any more: the look at members goes on.
            return 1;
        }
        assert!(now >= holding.since, "time does not go back");
        self.end_if_empty(&mut map, io);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
        1
    }

    /// Members that are held and without which, all of them, their groups still have their data;
    /// those without space only when they are not to be waited for any longer. Then those that are
    /// being filled as well, on whom nobody counts.
    fn dispensable(&self, late: bool) -> Vec<(MemberIndex, Status)> {
        let decider = self.coordinator.as_deref().expect("the home");
        let config = decider.commit.as_ref().map(|commit| &commit.config);
        let config = config.unwrap_or(&decider.config);
        let group = self.map.geometry.group_members();
        let holding = decider.hold.holding.as_ref().expect("looked at");
        let over = late || holding.given_up;
        let stays = |&(member, _): &(MemberIndex, Status)| {
            let first = member.at() / group * group;
            // What has failed and is about to be left out is no help, be it in the commit that
            // waits for this member.
            let failed = decider.commit.iter().flat_map(|commit| &commit.failed);
            // A start acts on what it is told when it is through.
            let told = decider.failures.iter().filter(|_| decider.started);
            let failed = told.chain(failed);
            let fails = |other: usize| {
                let is_it = |failure: &&MemberFailure| failure.member.at() == other;
                failed.clone().any(|one| is_it(&one) && !one.late)
            };
            let works = (first..first + group).filter(|&other| {
                let in_sync = config.members[other].state == MemberState::InSync;
                in_sync && !self.map.held[other] && !fails(other)
            });
            let too_few = works.count() < self.map.geometry.data();
            if config.members[member.at()].state != MemberState::InSync {
                return too_few && !over;
            }
            too_few || (decider.hold.is_full(member) && !over)
        };
        let mut members = holding.members.clone();
        members.retain(|held| !stays(held));
        members
    }

    /// The array is to stop while members are waited for. Those that it can do without are left
    /// out, if that are all.
    pub(super) fn end_for_a_stop(&mut self, io: &mut impl Io) -> usize {
        let keeper = &self.coordinator.as_deref().expect("the home").hold;
        let held = keeper.holding.as_ref().expect("looked at").members.len();
        let is_whole = !self.map.hopeless.contains(&true);
        if is_whole && self.dispensable(false).len() == held {
            return self.time_out(false, io.now(), io);
        }
        self.abandon(io);
        1
    }

    /// Nothing is written any more, so that the array can stop. It comes up as after an unclean
    /// stop.
    fn abandon(&mut self, io: &mut impl Io) {
        self.shared.tear();
        let mut map = self.successor();
        self.forsake(&mut map);
        let decider = self.decider();
        decider.metadata_failed = true;
        decider.hold.holding = None;
        io.event(Event::MetadataFailed);
        self.begin_broadcast(map, Vec::new(), Vec::new(), io);
    }

    /// The array takes no writes from now on, and nobody is waited for. Whether those who were come
    /// back as they were is not looked at any more, so nothing is computed from what they hold;
    /// those that were only full have it.
    pub(in crate::shard::coordinate) fn forsake(&self, map: &mut ArrayMap) {
        let decider = self.coordinator.as_deref().expect("the home");
        for (position, held) in map.held.iter_mut().enumerate() {
            let waits = std::mem::take(held);
            map.hopeless[position] |=
                waits && !decider.hold.is_full(MemberIndex::from_at(position));
        }
        map.given_up = false;
        map.read_only = true;
    }
}
