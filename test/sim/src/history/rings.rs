//! Guests with rings outlive one engine after another, and lose one with the power.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Engines at most, and what guests ask of each.
const ENGINES: u64 = 5;
const ASKED: u64 = 50;
/// Turns until there is a volume.
const TURNS: u64 = 2000;

impl History {
    /// From an array in order to one that is so again, or is being resynced.
    pub(super) fn outlive_engines(&mut self, mut world: World) -> World {
        if !self.client.has_rings() {
            return world;
        }
        for _ in 0..TURNS {
            if !self.client.disks.is_empty() {
                break;
            }
            self.change_volumes(&mut world);
            self.turn(&mut world, 20);
        }
        for _ in 0..self.random.below(ENGINES) {
            self.ask_through_rings(&mut world);
            if self.geometry.parity() > 0 && !self.is_sound(&world) {
                break;
            }
            self.outcome.crashes += 1;
            let power = self.random.happens(300);
            let victims = self.victims(&world, power);
            self.torn |= self.geometry.parity() > 0;
            let mut drives = self.end_all(world, power);
            self.lose_victims(&mut drives, (&victims, power));
            self.again = if power || !self.client.has_rings_in_use() {
                self.client.stop(power)
            } else {
                self.client.outlive()
            };
            world = self.restart(drives);
        }
        self.run_until(&mut world, |history, _| history.started);
        world
    }

    /// An engine has ended: what guests go on with. Those with rings outlive one that is killed.
    pub(super) fn leave_guests(&mut self, (power, at_once): (bool, bool)) {
        let left = if !power && !at_once && self.client.has_rings_in_use() {
            self.client.outlive()
        } else {
            self.client.stop(power)
        };
        let goes_on = !at_once && self.random.happens(700);
        self.again = if goes_on { left } else { Vec::new() };
    }

    /// Some engines are killed before they have started, or soon after.
    fn ask_through_rings(&mut self, world: &mut World) {
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..self.random.below(ASKED) {
            if self.started {
                self.read_back(world);
                let asked = self.again.pop();
                let asked = asked.or_else(|| self.client.draw(&mut self.random, stripe_blocks));
                if let Some(asked) = asked {
                    let _ = self.client.offer(asked, world);
                }
            }
            let steps = self.random.below(40);
            self.turn(world, steps);
        }
        for _ in 0..self.random.below(40) {
            world.step();
        }
    }
}
