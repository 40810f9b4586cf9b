//! Rings that come to a reactor, change there, and leave it; and where their requests go.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use array::Shard;
use block::Stability;
use units::Instant;
use vhost_user_blk::{Queue, QueueKey};
use volume::{Haste, VolumeMap};

use super::attention::Attention;
use super::{Core, Leaving, Ring, Stopped};
use crate::lines::Wait;
use crate::ports::Ports;
use crate::road::{Entrance, Road, bytes_of};

impl Ring {
    /// Whoever stops a ring, or takes memory away, waits for what was taken from it.
    pub(super) fn haste(&self) -> Haste {
        if self.stopping.is_some() || !self.queue.has_let_go() {
            Haste::Drains
        } else {
            Haste::None
        }
    }

    /// When the limits of its volume let it go on, if it waits for that.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        // A flush that finds no room goes before what the limits hold back.
        if self.queue.is_held() && self.waits_for != Some(Wait::ForRoom) {
            self.gate.waits_until()
        } else {
            None
        }
    }

    /// Whether its next request waits for answers on this reactor. They wake it, and a turn with an
    /// answer is followed by another, so the ring is looked at after each.
    fn waits_for_answers(&self) -> bool {
        match self.waits_for {
            Some(Wait::ForAnswers) => self.queue.is_held() && !self.queue.owes_flushes(),
            // Be it a flush that is to follow a write.
            Some(Wait::ForRoom) => self.queue.is_held() || self.queue.owes_flushes(),
            Some(Wait::ForTurn) | None => false,
        }
    }

    /// Whether drives may still read memory of its volume's guests, for writes that were given up.
    pub(super) fn borrows(&self, shards: &[Option<Box<Shard>>]) -> bool {
        let shard = shards[self.array.at()].as_ref();
        let stable = self.volume.stability() == Stability::Stable;
        stable && shard.is_some_and(|shard| shard.is_borrowing())
    }

    /// Whether there is nothing to do for it until it is kicked, others of this reactor are
    /// answered, or its limits let it go on.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        // It takes nothing new before, so it needs no kick.
        if self.waits_for_answers() {
            return true;
        }
        if self.waits_until().is_some() {
            return !self.queue.owes_flushes();
        }
        // A ring without a kick that can be watched has to be polled for ever.
        let can_kick = self.attention != Attention::Unwatchable && self.queue.kick().is_some();
        can_kick && !self.queue.enable_kicks()
    }
}

impl Core {
    pub(super) fn poll_rings(&mut self) -> usize {
        let now = self.times.turn_began;
        // First, so that one that has to wake is polled in this turn.
        self.look_at_a_sleeper();
        let (count, first) = (self.awake.len(), self.first_awake);
        self.lines.begin_turn();
        // Each is first in its turn: what is short for a while goes to whoever comes first.
        self.first_awake = if first + 1 < count { first + 1 } else { 0 };
        let turns = (first..count).chain(0..first.min(count));
        turns.map(|at| self.poll_ring(self.awake[at], now)).sum()
    }

    fn poll_ring(&mut self, place: usize, now: Instant) -> usize {
        let Core {
            rings,
            shards,
            port,
            shares,
            post,
            answers,
            events,
            splits,
            waiting_splits,
            lines,
            ..
        } = self;
        let Some(ring) = &mut rings[place] else {
            return 0;
        };
        let Some(shard) = shards[ring.array.at()].as_mut() else {
            return 0;
        };
        ring.duty.begin();
        let array = ring.array;
        let shift = ring.shift;
        let (haste, limited) = (ring.haste(), ring.gate.is_limited(now));
        let Ring {
            queue,
            gate,
            volume,
            line,
            waits_for,
            limiter,
            ..
        } = ring;
        let mut entrance = Entrance {
            gate: limited.then_some(gate),
            haste,
            now,
            lines,
            line: *line,
            waits: None,
        };
        let mut road = Road {
            place,
            number: limiter.number(),
            shifts: (shift, shard.map().geometry.block_size().shift()),
            volume,
            array,
            shard,
            ports: Ports {
                array,
                now,
                port,
                shares,
                post,
                completions: answers,
                events,
            },
            splits,
            waiting_splits,
        };
        let moved = queue.poll(now, &mut |request| {
            entrance.submit(request, bytes_of(&request, shift), &mut road)
        });
        *waits_for = entrance.waits;
        moved
    }

    pub(crate) fn add_ring(&mut self, mut ring: Ring) {
        ring.queue.disable_kicks();
        let elsewhere = ring.queue.counters().requests();
        self.requests_past = self.requests_past.wrapping_sub(elsewhere);
        ring.line = self.lines.join(ring.array, &ring.limiter);
        ring.waits_for = None;
        ring.attention = Attention::Polled;
        let free = self.rings.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.rings.push(None);
            self.rings.len() - 1
        });
        self.rings[place] = Some(ring);
        self.awake.push(place);
    }

    fn find(&self, export: u64, key: QueueKey) -> Option<usize> {
        let same = |ring: &Ring| ring.export == export && ring.key == key;
        self.rings
            .iter()
            .position(|ring| ring.as_ref().is_some_and(same))
    }

    /// Runs `change` on a ring, if it is here.
    pub(crate) fn with_ring(
        &mut self,
        export: u64,
        key: QueueKey,
        change: impl FnOnce(&mut Queue),
    ) {
        let Some(place) = self.find(export, key) else {
            return;
        };
        // The kick may be another one afterwards.
        self.unwatch(place);
        change(&mut self.rings[place].as_mut().expect("found").queue);
    }

    /// Runs `visit` on all rings of a front-end of an export.
    pub(crate) fn each_ring(&mut self, export: u64, mut visit: impl FnMut(&QueueKey, &mut Queue)) {
        for ring in self.rings.iter_mut().flatten() {
            if ring.export == export {
                visit(&ring.key, &mut ring.queue);
            }
        }
    }

    /// Ends a ring once it is drained, or hands it over; told through `answer`.
    pub(crate) fn stop_ring(
        &mut self,
        export: u64,
        key: QueueKey,
        (answer, leaving): (Sender<Stopped>, Leaving),
    ) {
        let Some(place) = self.find(export, key) else {
            return;
        };
        self.unwatch(place);
        let ring = self.rings[place].as_mut().expect("found");
        if matches!(ring.stopping, Some((_, Leaving::Ends))) {
            // Nobody moves it any more, and whoever waits for its end is told of that.
            return;
        }
        ring.queue.quiesce();
        ring.stopping = Some((answer, leaving));
    }

    /// Takes back that a ring moves, if it has not left yet.
    pub(crate) fn stay(&mut self, export: u64, key: QueueKey) {
        let Some(place) = self.find(export, key) else {
            return;
        };
        let ring = self.rings[place].as_mut().expect("found");
        if matches!(ring.stopping, Some((_, Leaving::Moves))) {
            ring.stopping = None;
            ring.queue.resume();
        }
    }

    /// Tells `answer` when no ring of the front-end points into earlier memory any more.
    pub(crate) fn await_let_go(&mut self, export: u64, front_end: u32, answer: Sender<()>) {
        self.let_go.push((export, front_end, answer));
    }

    pub(crate) fn set_volume(&mut self, export: u64, volume: &Arc<VolumeMap>) {
        for ring in self.rings.iter_mut().flatten() {
            if ring.export == export {
                ring.volume = Arc::clone(volume);
            }
        }
    }

    pub(super) fn publish_rings(&mut self) {
        // Backwards, as one that ends leaves the list. Rings that sleep have answered everything.
        for at in (0..self.awake.len()).rev() {
            let place = self.awake[at];
            let ring = self.rings[place].as_mut().expect("it is awake");
            ring.duty.begin();
            ring.queue.publish();
            let is_drained = ring.stopping.is_some() && ring.queue.is_drained();
            if is_drained && !self.keeps_memory(place) {
                self.awake.remove(at);
                self.finish_ring(place);
            }
        }
    }

    /// Whether a ring that ends has to wait, because drives may still read its guest's memory.
    fn keeps_memory(&self, place: usize) -> bool {
        let ring = self.rings[place].as_ref();
        ring.is_some_and(|ring| {
            let ends = matches!(ring.stopping, Some((_, Leaving::Ends)));
            ends && ring.borrows(&self.shards)
        })
    }

    fn finish_ring(&mut self, place: usize) {
        // The reactor may have slept, and watched it again, while it was drained.
        self.unwatch(place);
        let mut ring = self.rings[place].take().expect("looked at");
        self.lines.leave(ring.line);
        let requests = ring.queue.counters().requests();
        self.requests_past = self.requests_past.wrapping_add(requests);
        let (answer, leaving) = ring.stopping.take().expect("looked at");
        let stopped = match leaving {
            Leaving::Moves => Stopped::Moved(Box::new(ring)),
            Leaving::Ends => {
                ring.past.add(ring.queue.counters());
                Stopped::Ended(ring.queue.stop())
            }
        };
        answer.send(stopped).ok();
    }

    pub(super) fn tell_let_go(&mut self) {
        if self.let_go.is_empty() {
            return;
        }
        let Core {
            let_go,
            rings,
            shards,
            ..
        } = self;
        let_go.retain(|(export, front_end, answer)| {
            let holds = |ring: &Ring| {
                ring.export == *export
                    && ring.key.front_end == *front_end
                    && (!ring.queue.has_let_go() || ring.borrows(shards))
            };
            let waits = rings.iter().flatten().any(holds);
            if !waits {
                answer.send(()).ok();
            }
            waits
        });
    }
}
