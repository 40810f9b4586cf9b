//! How a running array is, asked of its home and of all its shards.

use std::sync::Arc;

use array::format::ArrayConfig;
use array::{
    ArrayMap, HoldStatus, MemberPace, PassStatus, ScrubStatus, ShardCounters, Suspects, Waits,
};
use units::{ArrayIndex, MemberIndex, Update};
use uuid::Uuid;

use crate::control::Engine;
use crate::core::Core;

/// An array as it is now.
#[derive(Clone, Debug)]
pub struct ArrayState {
    /// What is durable.
    pub config: ArrayConfig,
    /// What the data path acts by.
    pub map: Arc<ArrayMap>,
    /// The background pass that is due.
    pub pass: Option<PassStatus>,
    /// How its scrub stands.
    pub scrub: ScrubStatus,
    /// By member: blocks of its that scrubs found wrong, since the array started.
    pub scrub_guilt: Vec<u64>,
    /// Counts of all its shards, by reactor.
    pub counters: Vec<ShardCounters>,
    /// Requests that are not answered yet, on all reactors.
    pub pending: usize,
    /// Who is waited for.
    pub hold: Option<HoldStatus>,
    /// Member requests that failed and wait to be made again, on all reactors.
    pub held: usize,
    /// By member, how it keeps up with its peers; empty when nothing was compared yet.
    pub paces: Vec<MemberPace>,
    /// How long members take over what any reactor has asked them.
    pub waits: Waits,
}

impl Engine {
    /// The regions that a copy of a member lacks which began after update `base` was committed:
    /// `None` for all.
    #[must_use]
    pub fn missed_since(&self, array: ArrayIndex, base: Update) -> Option<Suspects> {
        let home = self.handle(self.home(array));
        home.call(move |core| core.shard(array)?.missed_since(base))
            .ok()?
    }

    /// Who an array waits for; `None` when it waits for nobody, or does not run.
    #[must_use]
    pub fn hold(&self, array: ArrayIndex) -> Option<HoldStatus> {
        let home = self.handle(self.home(array));
        home.call(move |core| core.shard(array)?.hold_status())
            .ok()?
    }

    /// Who is in sync, by the durable record of an array that has started: its update with its id,
    /// and the members' own uuids. `None` when it does not run, or another array does in its place.
    #[must_use]
    pub fn in_sync(&self, array: ArrayIndex, uuid: Uuid) -> Option<(Update, u128, Vec<Uuid>)> {
        let home = self.handle(self.home(array));
        let read = move |core: &mut Core| {
            let durable = core.shard(array)?.durable()?;
            let member = |member: MemberIndex| durable.members[member.at()].uuid;
            let in_sync = durable.in_sync().map(member).collect();
            let own = durable.array == uuid;
            own.then_some((durable.update, durable.update_id, in_sync))
        };
        home.call(read).ok()?
    }

    /// The record of an array that is durable, and the latest that was attempted; `None` when it
    /// does not run.
    #[must_use]
    pub fn records(&self, array: ArrayIndex) -> Option<[ArrayConfig; 2]> {
        let home = self.handle(self.home(array));
        home.call(move |core| core.shard(array)?.records()).ok()?
    }

    /// The array as it is now; `None` when it does not run.
    #[must_use]
    pub fn array_state(&self, array: ArrayIndex) -> Option<ArrayState> {
        let home = self.handle(self.home(array));
        let (config, map, pass, scrub, (hold, paces)) = home
            .call(move |core| {
                let shard = core.shard(array)?;
                let config = shard.coordinator()?.config().clone();
                let (scrub, hold) = (shard.scrub_status()?, (shard.hold_status(), shard.paces()));
                Some((config, core.map(array)?, shard.pass_status(), scrub, hold))
            })
            .ok()??;
        let mut counters = Vec::with_capacity(self.handles().len());
        let (mut pending, mut held) = (0, 0);
        let mut scrub_guilt = vec![0; map.members.len()];
        let mut waits = Waits::default();
        for handle in self.handles() {
            let count = move |core: &mut Core| {
                let shard = core.shard(array);
                shard.map_or_else(Default::default, |shard| {
                    let of_members = (shard.scrub_guilt().to_vec(), shard.waits());
                    (shard.counters(), shard.pending(), shard.held(), of_members)
                })
            };
            let (counts, requests, waiting, (guilt, here)) = handle.call(count).ok()?;
            waits.join(here);
            counters.push(counts);
            pending += requests;
            held += waiting;
            for (sum, blocks) in scrub_guilt.iter_mut().zip(guilt) {
                *sum += blocks;
            }
        }
        Some(ArrayState {
            config,
            map,
            pass,
            scrub,
            scrub_guilt,
            counters,
            pending,
            hold,
            held,
            paces,
            waits,
        })
    }
}
