//! Who was in sync last: what this engine has seen of its arrays, and what was recorded before it
//! began.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use array::assembly::Assembly;
use array::format::ArrayConfig;
use control::membership::Membership;
use units::{ArrayIndex, MemberIndex, Update};
use uuid::Uuid;

use crate::Host;
use crate::state::State;

impl Host {
    /// Who is in sync in the arrays that run, and was in those that have stopped since this was
    /// asked last.
    pub(crate) fn do_memberships(&self) -> BTreeMap<Uuid, Membership> {
        let mut told = std::mem::take(&mut self.state().ended);
        told.extend(self.look_who_is_in_sync());
        told
    }

    /// Looks who is in sync in the arrays that run. One look at a time: what a later one sees is
    /// newer.
    pub(crate) fn look_who_is_in_sync(&self) -> BTreeMap<Uuid, Membership> {
        let looking = self.looking.lock();
        let _looking = looking.unwrap_or_else(PoisonError::into_inner);
        let running: Vec<(Uuid, ArrayIndex)> = {
            let state = self.state();
            let arrays = state.arrays.values();
            let running = arrays.filter(|entry| entry.serving.has_shards());
            running.map(|entry| (entry.uuid, entry.index)).collect()
        };
        let mut seen = BTreeMap::new();
        for (uuid, index) in running {
            let Some((update, id, in_sync)) = self.engine.in_sync(index, uuid) else {
                continue;
            };
            let now = Membership {
                update: update.0,
                update_id: Uuid::from_u128(id),
                in_sync,
            };
            self.state().memberships.insert(uuid, now.clone());
            seen.insert(uuid, now);
        }
        seen
    }

    /// Notes who was in sync when an array stopped.
    pub(crate) fn note_membership(&self, last: &ArrayConfig) {
        let looking = self.looking.lock();
        let _looking = looking.unwrap_or_else(PoisonError::into_inner);
        let member = |member: MemberIndex| last.members[member.at()].uuid;
        let now = Membership {
            update: last.update.0,
            update_id: Uuid::from_u128(last.update_id),
            in_sync: last.in_sync().map(member).collect(),
        };
        let mut state = self.state();
        state.memberships.insert(last.array, now.clone());
        state.ended.insert(last.array, now);
    }

    /// Forgets an array that is there no more.
    pub(crate) fn forget_membership(&self, array: Uuid) {
        let looking = self.looking.lock();
        let _looking = looking.unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.memberships.remove(&array);
        state.ended.remove(&array);
    }

    pub(crate) fn do_recall(&self, memberships: BTreeMap<Uuid, Membership>) {
        let mut state = self.state();
        for (array, membership) in memberships {
            // What this engine has seen itself is newer.
            state.memberships.entry(array).or_insert(membership);
        }
    }
}

impl State {
    /// Lets an array that lies on drives be judged by what is known of it.
    pub(crate) fn recall(&self, assembly: &mut Assembly) {
        if let Some(known) = self.memberships.get(&assembly.array()) {
            assembly.recall(Update(known.update), known.update_id.as_u128());
        }
    }
}
