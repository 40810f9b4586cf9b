//! What a history asks for in between.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// A request at random; of a stream, some that come at once.
    pub(super) fn ask(&mut self, world: &mut World, stripe_blocks: u64) {
        while let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
            let _ = self.client.offer(asked, world);
            if !self.client.streams() || self.random.happens(300) {
                break;
            }
        }
    }

    /// Reads on every reactor what was just written: one that acts on an old map may read it from
    /// a member that has missed the write.
    pub(super) fn read_back(&mut self, world: &mut World) {
        for asked in self.client.take_written() {
            for reactor in 0..world.shards.len() {
                let _ = self.client.submit_on(asked.clone(), world, reactor);
            }
        }
    }

    /// What the history has counted, at its end.
    pub(super) fn sum_up(mut self) -> Outcome {
        Outcome {
            trace: mix(self.outcome.trace, self.random.next()),
            answered: self.client.answered,
            changed: self.client.changed,
            rings: self.client.ring_counts(),
            ..self.outcome
        }
    }
}
