//! What a resync gives up is written while members lie there that are filled later, and as soon as
//! a record says that they are, the power fails: of what the log holds of giving up nothing may
//! come back over what was written since.

use std::collections::BTreeSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Turns, at most, for something that need not happen.
const TURNS: usize = 6000;

impl History {
    /// From an array in order to one in order.
    pub(super) fn heal_before_the_fill(&mut self, mut world: World) -> World {
        if !self.stops_passes(&mut world, 500) {
            return world;
        }
        let outs = self.fail_some(&mut world);
        for &position in &outs {
            self.put_in(&mut world, position);
            self.await_commands(&mut world);
        }
        let (_, rows) = self.spoil(&mut world, &outs);
        let mut lost = self.client.lost.clone();
        // Those that belong to no volume may be lost for long.
        lost.extend(lost::listed(&world));
        for &(stripe, _) in &rows {
            self.write_beside(&mut world, stripe, &lost);
        }
        // After a kill that takes nothing away there is no resync.
        let power = self.random.happens(900);
        let mut world = self.stop_by(world, power);
        let gone: BTreeSet<u64> = rows.iter().flat_map(|(_, gone)| gone.clone()).collect();
        self.await_given_up(&mut world, &gone);
        let healed = self.heal(&mut world, &gone);
        let last = healed.iter().map(|block| self.geometry.locate(*block).0);
        let reached = last.max().unwrap_or(StripeIndex(0));
        for _ in 0..TURNS {
            if outs.iter().all(|&out| self.claims(&world, out, reached)) {
                self.outcome.healed += bytes_u64(healed.len());
                break;
            }
            self.turn(&mut world, 1);
        }
        let steps = self.random.below(8);
        (0..steps).for_each(|_| world.step());
        let mut world = self.stop_by(world, true);
        self.read_everything(&mut world);
        self.judge_and_write(world, &lost)
    }

    /// Writes to a stripe, so that its region is dirty, and not to what is lost there.
    fn write_beside(&mut self, world: &mut World, stripe: StripeIndex, lost: &BTreeSet<u64>) {
        let first = stripe.0 * u64::from(self.geometry.stripe_blocks());
        let block = first + self.random.below(u64::from(self.geometry.stripe_blocks()));
        if lost.contains(&block) {
            return;
        }
        if let Some((volume, start)) = self.client.place_of(block) {
            let write = self.client.ask(volume, Operation::Write, start, 1);
            self.submit_surely(world, write);
        }
    }

    /// Waits until a resync has given blocks up, if it does so.
    fn await_given_up(&mut self, world: &mut World, gone: &BTreeSet<u64>) {
        for _ in 0..TURNS {
            let map = world.shards[world.home].map();
            let resynced = map.trusted_until.0 >= self.geometry.stripes();
            let listed = |block: &u64| map.lost_blocks.has(*block);
            if resynced || gone.iter().all(listed) {
                return;
            }
            self.turn(world, 1);
        }
    }

    /// Writes some of what was given up; which blocks.
    fn heal(&mut self, world: &mut World, gone: &BTreeSet<u64>) -> Vec<u64> {
        let mut healed = Vec::new();
        let most = 1 + self.random.position(2);
        // What was given up last is in the log for longest.
        for &block in gone.iter().rev() {
            if healed.len() == most {
                break;
            }
            let listed = world.shards[world.home].map().lost_blocks.has(block);
            let place = self.client.place_of(block).filter(|_| listed);
            let Some((volume, start)) = place else {
                continue;
            };
            let write = self.client.ask(volume, Operation::Write, start, 1);
            while !self.client.submit(write.clone(), world) {
                self.turn(world, 20);
            }
            healed.push(block);
        }
        self.run_until(world, |history, _| history.client.pending() == 0);
        healed
    }
}
