//! What the control path does on a reactor, between two turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use array::{ArrayMap, Refusal, Shard, ShardCounters};
use block::{Full, Request, Status};
use drive::Port;
use reactor::Duty;
use units::{ArrayIndex, Clock, MonotonicClock, ReactorIndex};

use super::times::ReactorTimes;
use super::{Core, Ring};
use crate::load::{ReactorLoad, RingLoad};
use crate::ports::Ports;
use crate::road::Asker;

/// Work of the control path on an array.
#[derive(Debug)]
pub(super) struct ControlRequest {
    pub(super) answer: Sender<Status>,
}

/// Work of the control path that its array has no room for yet.
#[derive(Debug)]
pub(super) struct WaitingControl {
    array: ArrayIndex,
    request: Request,
    answer: Sender<Status>,
}

impl Core {
    pub(crate) fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Requests of guests that were answered here.
    pub(crate) fn requests(&self) -> u64 {
        let rings = self.rings.iter().flatten();
        let answered = rings.map(|ring| ring.queue.counters().requests());
        answered.fold(self.requests_past, u64::wrapping_add)
    }

    pub(crate) fn times(&self) -> ReactorTimes {
        self.times.report(MonotonicClock.now())
    }

    pub(crate) fn load(&self, reactor: ReactorIndex) -> ReactorLoad {
        let rings = self.rings.iter().flatten();
        let ring = |ring: &Ring| RingLoad {
            export: ring.export,
            key: ring.key,
            array: ring.array,
            requests: ring.queue.counters().requests(),
        };
        let count = |of: fn(&ShardCounters) -> u64| {
            let shards = self.shards[..self.shards_end].iter().enumerate();
            let counts = shards.filter_map(|(position, shard)| {
                let counters = shard.as_ref()?.counters();
                Some((ArrayIndex::from_at(position), of(&counters)))
            });
            counts.collect()
        };
        ReactorLoad {
            reactor,
            times: self.times(),
            rings: rings.map(ring).collect(),
            tickets: count(ShardCounters::tickets),
            buffered: count(ShardCounters::buffered_transfers),
        }
    }

    /// A shard of the array with this uuid comes here.
    pub(crate) fn set_shard(&mut self, array: ArrayIndex, uuid: [u8; 16], shard: Box<Shard>) {
        let before = self.shards[array.at()].replace(shard);
        self.shards_end = self.shards_end.max(array.at() + 1);
        self.duties[array.at()] = Duty::Array(uuid);
        assert!(before.is_none(), "{array} is there already");
        self.shares.set(array, true);
        self.splits.set(array, true);
    }

    /// Whether something that an array was asked here is not answered.
    pub(crate) fn has_requests(&self, array: ArrayIndex) -> bool {
        let waits = |waiting: &WaitingControl| waiting.array == array;
        let asked = self.shard(array).is_some_and(|shard| shard.pending() > 0);
        asked || self.waiting_controls.iter().any(waits)
    }

    /// Takes a shard away if nothing is in flight in it.
    pub(crate) fn take_shard(&mut self, array: ArrayIndex) -> Option<Box<Shard>> {
        let idle = self.shards[array.at()]
            .as_ref()
            .is_some_and(|shard| shard.is_idle());
        if idle {
            self.shares.set(array, false);
            self.splits.set(array, false);
            self.shards[array.at()].take()
        } else {
            None
        }
    }

    pub(crate) fn shard(&self, array: ArrayIndex) -> Option<&Shard> {
        self.shards[array.at()].as_deref()
    }

    pub(crate) fn map(&self, array: ArrayIndex) -> Option<Arc<ArrayMap>> {
        self.shard(array).map(|shard| Arc::clone(shard.map()))
    }

    /// Asks the coordinator for a change, on the home reactor.
    pub(crate) fn command(
        &mut self,
        array: ArrayIndex,
        command: array::Command,
        answer: Sender<Result<(), Refusal>>,
    ) {
        let Some(shard) = self.shards[array.at()].as_mut() else {
            let gone = Refusal::Invalid("the array is not running".to_owned());
            answer.send(Err(gone)).ok();
            return;
        };
        self.next_id += 1;
        shard.command(self.next_id, command);
        self.commands.insert(self.next_id, answer);
    }

    /// Submits a request of the control path; it waits for room before those of rings do.
    pub(crate) fn control_request(
        &mut self,
        array: ArrayIndex,
        request: Request,
        answer: Sender<Status>,
    ) {
        self.waiting_controls.push_back(WaitingControl {
            array,
            request,
            answer,
        });
    }

    /// Gives waiting requests of the control path to their arrays, each array's in order.
    pub(super) fn submit_controls(&mut self) -> usize {
        let before = self.waiting_controls.len();
        let mut left: VecDeque<WaitingControl> = VecDeque::new();
        for waiting in std::mem::take(&mut self.waiting_controls) {
            let behind = left.iter().any(|other| other.array == waiting.array);
            let kept = if behind {
                Some(waiting)
            } else {
                self.submit_control(waiting)
            };
            left.extend(kept);
        }
        self.waiting_controls = left;
        before - self.waiting_controls.len()
    }

    /// Submits one, or gives it back when its array has no room.
    fn submit_control(&mut self, waiting: WaitingControl) -> Option<WaitingControl> {
        let WaitingControl {
            array,
            request,
            answer,
        } = waiting;
        self.next_id += 1;
        let id = self.next_id;
        let request = Request {
            cookie: Asker::control(id),
            ..request
        };
        let Core {
            shards,
            port,
            shares,
            post,
            answers,
            events,
            ..
        } = self;
        let Some(shard) = shards[array.at()].as_mut() else {
            answer.send(Status::Gone).ok();
            return None;
        };
        let mut ports = Ports {
            array,
            // Closures run between turns, perhaps long after the last one began.
            now: MonotonicClock.now(),
            port,
            shares,
            post,
            completions: answers,
            events,
        };
        if let Err(Full(request)) = shard.submit(request, &mut ports) {
            return Some(WaitingControl {
                array,
                request,
                answer,
            });
        }
        self.controls.insert(id, ControlRequest { answer });
        None
    }
}
