//! A start does without a member and ends before its records are there; at the next one the member
//! is back. By all records it has missed nothing: so nothing may have been written meanwhile.

use super::end::position_drive;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Writes in the start, at most.
const WRITES: u64 = 6;
/// Steps of it, at most.
const STEPS: u64 = 400;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn write_in_a_start(&mut self, mut world: World) -> World {
        if !self.starts_without_some(300) {
            return world;
        }
        let group = self.geometry.group_members();
        let position = self.random.position(self.geometry.members());
        // What is dirty at a start may be written as soon as its records are there.
        let spots = self.write_spots(&mut world, position / group * group);
        let drive = position_drive(&world, position);
        let mut world = self.stop_without(world, &[drive]);
        for (stripe, _) in spots {
            let first = stripe.0 * u64::from(self.geometry.stripe_blocks());
            for _ in 0..=self.random.below(WRITES) {
                let block = first + self.random.below(u64::from(self.geometry.stripe_blocks()));
                if let Some((volume, start)) = self.client.place_of(block) {
                    let write = self.client.ask(volume, Operation::Write, start, 1);
                    let _ = self.client.submit(write, &mut world);
                }
            }
        }
        let answered = self.client.answered;
        for _ in 0..self.random.below(STEPS) {
            if self.client.answered > answered {
                break;
            }
            self.turn(&mut world, 1);
        }
        let mut drives = self.end_all(world, false);
        let _ = self.client.stop(false);
        drives[drive].heal();
        let mut world = self.restart(drives);
        self.run_until(&mut world, |history, _| history.started);
        self.refill(&mut world);
        self.read_everything(&mut world);
        self.settle(&mut world);
        world
    }
}
