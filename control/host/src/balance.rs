//! Work follows load, while guests run: stripes of arrays go to the reactors whose rings ask for
//! them, to others as well while these have too much to do, and rings leave a reactor that has.
//!
//! Once a second counters are looked at; nothing of it is on a request's way. What does not live
//! here: how stripes go from one reactor to another (`array`, `Command::Distribute`). Nobody waits
//! until they have: an array whose drives or passes keep them holds no other up.

mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{Distribution, MoveError, ReactorLoad, Spread};
use units::{ArrayIndex, ReactorIndex};
use vhost_user_blk::QueueKey;

use self::policy::{Asked, Polled, leaves, returns, table};
use crate::Host;

/// How long a ring may take to leave: its guest waits meanwhile.
const RING_PATIENCE: Duration = Duration::from_millis(100);
/// Looks for which an array, or a ring, is left alone that has refused.
const LOOKS_AFTER_REFUSAL: u32 = 10;

/// Looks for which stripes may be under way. Then it is as if the array had refused, and what it is
/// asked later counts instead.
const LOOKS_FOR_STRIPES: u32 = 30;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    /// By reactor: time in turns with work, and in all.
    times: Vec<(Duration, Duration)>,
    requests: BTreeMap<(u64, QueueKey), u64>,
    tickets: BTreeMap<(ArrayIndex, usize), u64>,
    /// By array and reactor: requests, those of the last look at half weight and so on.
    asked: BTreeMap<ArrayIndex, Vec<f64>>,
    /// Stripes that are under way, and looks since they were asked to go.
    moving: BTreeMap<ArrayIndex, (Distribution, u32)>,
    /// Looks that an array is still left alone.
    refused: BTreeMap<ArrayIndex, u32>,
    /// Looks that a ring is still left alone: what was taken from it was not answered in time.
    stuck: BTreeMap<(u64, QueueKey), u32>,
}

/// What has happened since the last look.
struct Since {
    busy: Vec<f64>,
    /// Export, key, reactor, requests.
    rings: Vec<(u64, QueueKey, usize, f64)>,
    /// By array: requests, and tickets, by reactor.
    arrays: BTreeMap<ArrayIndex, (Vec<f64>, Vec<f64>)>,
}

impl Balance {
    /// As if the first reactor's rings had asked for this array.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, array: ArrayIndex) {
        let asked = self.asked.get_mut(&array).expect("it has been looked at");
        asked[0] = 1e3;
    }

    /// For how many looks stripes have been under way, as far as results were taken.
    #[cfg(test)]
    pub(crate) fn moving_for(&self, array: ArrayIndex) -> Option<u32> {
        self.moving.get(&array).map(|(_, looks)| *looks)
    }

    /// `None` at the first look.
    fn look(&mut self, loads: &[ReactorLoad]) -> Option<Since> {
        let count = loads.len();
        let is_first = self.times.len() != count;
        let times: Vec<_> = loads
            .iter()
            .map(|load| (load.times.busy, load.times.busy + load.times.idle))
            .collect();
        let busy = times.iter().zip(&self.times).map(|(now, before)| {
            let (busy, all) = (
                now.0.saturating_sub(before.0),
                now.1.saturating_sub(before.1),
            );
            busy.as_secs_f64() / all.as_secs_f64().max(1e-3)
        });
        let mut since = Since {
            busy: busy.collect(),
            rings: Vec::new(),
            arrays: BTreeMap::new(),
        };
        let (mut requests, mut tickets) = (BTreeMap::new(), BTreeMap::new());
        let none = || (vec![0.0; count], vec![0.0; count]);
        for (at, load) in loads.iter().enumerate() {
            for ring in &load.rings {
                let key = (ring.export, ring.key);
                let before = self.requests.get(&key).copied().unwrap_or(ring.requests);
                let more = lossy(ring.requests.saturating_sub(before));
                requests.insert(key, ring.requests);
                since.arrays.entry(ring.array).or_insert_with(none).0[at] += more;
                since.rings.push((ring.export, ring.key, at, more));
            }
            for &(array, all) in &load.tickets {
                let before = self.tickets.get(&(array, at)).copied().unwrap_or(all);
                tickets.insert((array, at), all);
                let more = lossy(all.saturating_sub(before));
                since.arrays.entry(array).or_insert_with(none).1[at] += more;
            }
        }
        (self.times, self.requests, self.tickets) = (times, requests, tickets);
        for (array, (asked, _)) in &mut since.arrays {
            let smooth = self.asked.entry(*array).or_insert_with(|| vec![0.0; count]);
            smooth.resize(count, 0.0);
            for (smooth, asked) in smooth.iter_mut().zip(asked) {
                *smooth = *smooth / 2.0 + *asked;
                *asked = *smooth;
            }
        }
        self.asked
            .retain(|array, _| since.arrays.contains_key(array));
        self.moving
            .retain(|array, _| since.arrays.contains_key(array));
        (!is_first).then_some(since)
    }

    /// What has become of stripes that were asked to go.
    pub(crate) fn take_results(&mut self) {
        let Balance {
            moving, refused, ..
        } = self;
        moving.retain(|&array, (distribution, looks)| {
            let result = distribution.result();
            if let Some(result) = &result {
                tracing::debug!(event = "stripes_distributed", array = array.0, ?result);
            }
            let stays = result.is_none() && *looks < LOOKS_FOR_STRIPES;
            if !stays && result.is_none_or(|result| result.is_err()) {
                refused.insert(array, LOOKS_AFTER_REFUSAL);
            }
            stays
        });
    }
}

fn lossy(count: u64) -> f64 {
    // More requests than this in a second there are not.
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Since {
    /// By reactor: the part of its time that it had with stripes of this array, at most.
    fn owning(&self, array: ArrayIndex) -> Vec<f64> {
        let of = |at: usize| {
            let all: f64 = self.arrays.values().map(|(_, tickets)| tickets[at]).sum();
            let own = self.arrays[&array].1[at];
            if all > 0.0 {
                self.busy[at] * own / all
            } else {
                0.0
            }
        };
        (0..self.busy.len()).map(of).collect()
    }
}

impl Host {
    /// One look at the load of all reactors, and what follows from it.
    pub(crate) fn do_look_at_load(&self) {
        let loads = self.engine.loads();
        self.pin_buffers(&loads);
        if self.engine.reactors() > 1 {
            self.place_arrays();
            self.balance_by(&loads);
        }
    }

    /// What follows from what reactors have done.
    pub(crate) fn balance_by(&self, loads: &[ReactorLoad]) {
        let since = {
            let mut balance = self.balance.lock().expect("nothing panics under this lock");
            let still = |looks: &mut u32| {
                *looks -= 1;
                *looks > 0
            };
            balance.refused.retain(|_, looks| still(looks));
            for (_, looks) in balance.moving.values_mut() {
                *looks += 1;
            }
            balance.take_results();
            balance.stuck.retain(|_, looks| still(looks));
            balance.look(loads)
        };
        let Some(since) = since else {
            return;
        };
        self.move_a_ring(&since);
        for array in since.arrays.keys() {
            self.distribute(*array, &since);
        }
    }

    /// Members may be other drives by now.
    fn place_arrays(&self) {
        let state = self.state();
        for entry in state.arrays.values() {
            let node = state.node_of(entry.uuid);
            self.engine.set_node(entry.index, node);
        }
    }

    fn distribute(&self, array: ArrayIndex, since: &Since) {
        let is_left_alone = {
            let balance = self.balance.lock().expect("nothing panics under this lock");
            balance.refused.contains_key(&array)
                || balance.moving.contains_key(&array)
                || !self.engine.all_may_own(array)
        };
        let requests = &since.arrays[&array].0;
        if is_left_alone || requests.iter().sum::<f64>() < 1.0 {
            return;
        }
        let Some(now) = self
            .engine
            .owners(array)
            .filter(|owners| !owners.is_moving())
        else {
            return;
        };
        let reactors = || (0..since.busy.len()).map(ReactorIndex::from_at);
        let owned = reactors().map(|reactor| now.share(reactor));
        let close = self.engine.near(array);
        let near = reactors().map(|reactor| close.contains(&reactor));
        let shares = Asked {
            busy: &since.busy,
            requests,
            owning: &since.owning(array),
            owned: &owned.collect::<Vec<_>>(),
            near: &near.collect::<Vec<_>>(),
        }
        .shares();
        let Some(shares) = shares else {
            return;
        };
        let owners = table(&now, &shares);
        let asked = self.engine.distribute(array, owners);
        tracing::debug!(event = "stripes_asked_to_go", array = array.0, ?shares);
        // A reactor that is gone takes the engine with it.
        if let Ok(distribution) = asked {
            let mut balance = self.balance.lock().expect("nothing panics under this lock");
            balance.moving.insert(array, (distribution, 0));
        }
    }

    /// At most one in a look: what it changes is seen at the next.
    fn move_a_ring(&self, since: &Since) {
        let stuck = {
            let balance = self.balance.lock().expect("nothing panics under this lock");
            balance.stuck.clone()
        };
        let (rings, hosts) = {
            let state = self.state();
            let mut rings = Vec::new();
            let mut hosts = Vec::new();
            for &(export, key, at, requests) in &since.rings {
                if stuck.contains_key(&(export, key)) {
                    continue;
                }
                let found = state.exports.values().find(|entry| entry.id == export);
                // A queue that somebody has placed stays there.
                let Some(entry) = found.filter(|entry| !entry.placed.contains(&key.index)) else {
                    continue;
                };
                let array = state.array_by_uuid(entry.array);
                let (near, far) = self.places_of(entry.host.spread(), array.map(|of| of.index));
                rings.push(Polled {
                    at,
                    requests,
                    near,
                    far,
                });
                hosts.push((
                    entry.create.name.clone(),
                    (export, key),
                    std::sync::Arc::clone(&entry.host),
                ));
            }
            (rings, hosts)
        };
        let (moves, why) = match leaves(&since.busy, &rings) {
            Some(moves) => (Some(moves), "its reactor had too much to do"),
            None => (returns(&since.busy, &rings), "it is nearer to its drives"),
        };
        let Some((position, to)) = moves else {
            return;
        };
        let (export, ring, host) = &hosts[position];
        let key = ring.1;
        let to = ReactorIndex::from_at(to);
        match host.move_ring(key, to, RING_PATIENCE) {
            Ok(()) => tracing::info!(
                event = "queue_moved",
                export,
                queue = key.index,
                reactor = to.0,
                "{why}"
            ),
            // The guest has waited for that in vain: not again right now.
            Err(MoveError::NoRing | MoveError::Late) => {
                let mut balance = self.balance.lock().expect("nothing panics under this lock");
                balance.stuck.insert(*ring, LOOKS_AFTER_REFUSAL);
            }
        }
    }

    /// Where rings that serve an array are best, and where else they may be.
    fn places_of(&self, spread: &Spread, array: Option<ArrayIndex>) -> (Vec<usize>, Vec<usize>) {
        let at = |reactors: &[ReactorIndex]| -> Vec<usize> {
            reactors.iter().map(|reactor| reactor.at()).collect()
        };
        let all = 0..self.engine.reactors();
        match (spread, array) {
            (Spread::Named(named), _) => (at(named), Vec::new()),
            (Spread::Anywhere, None) => (all.collect(), Vec::new()),
            (Spread::Anywhere, Some(array)) => {
                let near = at(&self.engine.near(array));
                let far = all.filter(|at| !near.contains(at)).collect();
                (near, far)
            }
        }
    }
}

/// Queues of an export that somebody has placed.
pub(crate) type Placed = BTreeSet<u16>;
