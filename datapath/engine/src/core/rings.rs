//! Rings that come to a reactor, change there, and leave it.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use vhost_user_blk::{Queue, QueueKey};
use volume::VolumeMap;

use super::{Core, Leaving, Ring, Stopped};

impl Core {
    pub(crate) fn add_ring(&mut self, mut ring: Ring) {
        ring.queue.disable_kicks();
        let free = self.rings.iter().position(Option::is_none);
        match free {
            Some(place) => self.rings[place] = Some(ring),
            None => self.rings.push(Some(ring)),
        }
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
        for place in 0..self.rings.len() {
            let Some(ring) = &mut self.rings[place] else {
                continue;
            };
            ring.queue.publish();
            if ring.stopping.is_some() && ring.queue.is_drained() {
                self.finish_ring(place);
            }
        }
    }

    fn finish_ring(&mut self, place: usize) {
        let mut ring = self.rings[place].take().expect("looked at");
        let (answer, leaving) = ring.stopping.take().expect("looked at");
        let stopped = match leaving {
            Leaving::Moves => Stopped::Moved(Box::new(ring)),
            Leaving::Ends => Stopped::Ended(ring.queue.stop()),
        };
        answer.send(stopped).ok();
    }

    pub(super) fn tell_let_go(&mut self) {
        if self.let_go.is_empty() {
            return;
        }
        let Core { let_go, rings, .. } = self;
        let_go.retain(|(export, front_end, answer)| {
            let holds = |ring: &Ring| {
                ring.export == *export
                    && ring.key.front_end == *front_end
                    && !ring.queue.has_let_go()
            };
            let waits = rings.iter().flatten().any(holds);
            if !waits {
                answer.send(()).ok();
            }
            waits
        });
    }
}
