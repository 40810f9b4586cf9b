//! Stops while members are out and the log protects what is written, and right after.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// Whether members are out, for good, and none of the others may go out by what is under way.
    pub(super) fn is_soundly_degraded(&self, world: &World) -> bool {
        let failing = self.given.is_some_and(|(_, given)| given == Given::Fail);
        let map = world.shards[world.home].map();
        !failing
            && !map.is_whole()
            && map.members.iter().all(|member| {
                let well = |drive: DriveIndex| world.outside.drives[drive.at()].is_well();
                member.state != MapState::InSync || member.drive.is_some_and(well)
            })
    }

    /// Goes on until every shard acts by the members that are here and nothing is under way, all of
    /// it flushed.
    pub(super) fn leave_nothing_before(&mut self, world: &mut World) {
        self.run_until(world, |history, world| {
            let present = world.shards.iter().all(Shard::is_by_present_members);
            present && history.client.pending() == 0 && history.change.is_none()
        });
        if let Some(flush) = self.client.flush() {
            self.submit_surely(world, flush);
        }
        self.calm(world);
    }

    /// Goes on until everything that was begun while a member now out was counted on is in its
    /// place and flushed, and then some: from here on the log protects what is written.
    pub(super) fn write_on_the_log(&mut self, world: &mut World) {
        self.calm(world);
        self.run_until(world, |history, world| {
            history.started && world.shards.iter().all(Shard::is_by_present_members)
        });
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        let mut flush = self.client.flush();
        let rounds = 10 + self.random.below(60);
        for _ in 0..rounds {
            if let Some(asked) = flush.take() {
                if !self.client.submit(asked.clone(), world) {
                    flush = Some(asked);
                }
                self.run_until(world, |history, _| history.client.pending() < IN_FLIGHT);
                if flush.is_none() {
                    self.run_until(world, |history, _| history.client.pending() == 0);
                }
            } else if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks) {
                let _ = self.client.submit(asked, world);
            }
            let steps = self.random.below(30);
            self.turn(world, steps);
        }
    }

    /// Fills what is missing while guests write, up to the moment at which nothing is missing: what
    /// the log still holds is older than what is written now.
    pub(super) fn write_until_whole(&mut self, world: &mut World) {
        self.calm(world);
        self.run_until(world, |history, _| {
            history.started && history.given.is_none()
        });
        self.give(world, Given::Other, Command::Passes { run: true });
        let stripe_blocks = u64::from(self.geometry.stripe_blocks());
        for _ in 0..2_000 {
            self.replace_one(world);
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks.min(8)) {
                let _ = self.client.submit(asked, world);
            }
            let steps = self.random.below(60);
            self.turn(world, steps);
            if world.shards[world.home].map().is_whole() {
                break;
            }
        }
        let rounds = self.random.below(6);
        for _ in 0..rounds {
            if let Some(asked) = self.client.draw(&mut self.random, stripe_blocks.min(8)) {
                let _ = self.client.submit(asked, world);
            }
            self.turn(world, 20);
        }
    }
}
