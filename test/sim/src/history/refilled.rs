//! A window of a rebuild fails, or the engine ends, when some cells of the window are filled and
//! written already. What is written there next leaves the member out that is filled, and the
//! rebuild fills the cells again: after a power loss nothing of what the log holds about them may
//! come back.

use std::collections::BTreeSet;

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Steps, at most, for something that need not happen.
const STEPS: usize = 6000;
/// Writes that a member misses which returns.
const MISSED: u64 = 12;

impl History {
    /// So often of a thousand times: some mode that logs what lacks members, and no pass goes on.
    /// Not where nothing is logged.
    pub(super) fn stops_passes(&mut self, world: &mut World, often: u64) -> bool {
        let logs = self.geometry.parity() > 0 && self.geometry.data() > 1;
        let may = logs && !self.client.disks.is_empty() && !self.forced;
        if !may || !self.random.happens(often) {
            return false;
        }
        let strict = self.random.happens(500);
        self.give_log_mode(world, strict);
        self.await_commands(world);
        self.give(world, Given::Other, Command::Passes { run: false });
        self.await_commands(world);
        true
    }

    /// From an array in order to one in order.
    pub(super) fn fill_twice(&mut self, mut world: World) -> World {
        if !self.stops_passes(&mut world, 300) {
            return world;
        }
        let outs = self.take_out_and_in(&mut world);
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        self.await_commands(&mut world);
        let blocks = self.write_behind_the_fill(&mut world, &outs);
        let ends = self.random.happens(300);
        if !blocks.is_empty() && ends {
            world = self.stop_in_window(world);
        } else if !blocks.is_empty() {
            self.outcome.failed_windows += u64::from(self.fail_window(&mut world, outs[0]));
        }
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        for &block in &blocks {
            self.write_block(&mut world, block);
        }
        self.run_until(&mut world, |history, _| history.client.pending() == 0);
        if let Some(flush) = self.client.flush() {
            self.submit_surely(&mut world, flush);
        }
        let last = blocks.iter().map(|block| self.geometry.locate(*block).0);
        let reached = last.max().unwrap_or(StripeIndex(0));
        self.await_commands(&mut world);
        self.give(&mut world, Given::Other, Command::Passes { run: true });
        for _ in 0..STEPS {
            if outs.iter().all(|&out| self.claims(&world, out, reached)) {
                self.outcome.refilled += u64::from(!blocks.is_empty());
                break;
            }
            self.turn(&mut world, 1);
        }
        let steps = self.random.below(8);
        (0..steps).for_each(|_| world.step());
        let mut world = self.stop_by(world, true);
        self.read_everything(&mut world);
        self.refill(&mut world);
        self.settle(&mut world);
        world
    }

    /// One member is out, or as many as may be lost, and then there are drives in their places that
    /// are to be filled: new ones, or those that were there, which have missed some writes.
    fn take_out_and_in(&mut self, world: &mut World) -> Vec<usize> {
        let mut outs = self.fail_some(world);
        let returns = self.random.happens(400);
        if outs.len() > 1 && self.random.happens(500) {
            // All but one are filled from end to end before it begins.
            for position in outs.split_off(1) {
                self.put_in(world, position);
                self.await_commands(world);
            }
        }
        if returns {
            self.write_some(world, MISSED);
            self.run_until(world, |history, _| history.client.pending() == 0);
        }
        for &position in &outs {
            if !(returns && self.return_one(world, position)) {
                self.put_in(world, position);
            }
            self.await_commands(world);
        }
        outs
    }

    /// Writes to rows that the open window of a rebuild has filled, which stays open; the blocks.
    fn write_behind_the_fill(&mut self, world: &mut World, outs: &[usize]) -> BTreeSet<u64> {
        let mut blocks = BTreeSet::new();
        let windows = self.random.below(3);
        for _ in 0..windows {
            let before = world.shards[world.home].map().window;
            self.await_step(world, |world| {
                world.shards[world.home].map().window != before
            });
        }
        self.await_step(world, |world| {
            world.shards[world.home].map().window.is_some()
        });
        let Some(window) = world.shards[world.home].map().window else {
            return blocks;
        };
        let group = self.geometry.group_members();
        let theirs = |stripe: &StripeIndex| {
            let role = self.geometry.role(*stripe, MemberIndex::from_at(outs[0]));
            role.is_some()
        };
        let stripes = (window.start.0..window.end.0).map(StripeIndex);
        let stripes: Vec<StripeIndex> = stripes.filter(theirs).collect();
        let Some((&last, stripes)) = stripes.split_last() else {
            return blocks;
        };
        let first = outs[0] / group * group;
        let byte = self.first_block() + self.geometry.member_block(last);
        let members = world.shards[world.home].map().members.clone();
        for other in (first..first + group).filter(|other| !outs.contains(other)) {
            if let Some(drive) = members[other].drive {
                world.outside.drives[drive.at()].stuck = Some(byte);
            }
        }
        // What comes first is filled.
        let steps = self.random.below(600);
        for _ in 0..steps {
            world.step();
        }
        for &stripe in stripes {
            if blocks.len() < 6 && self.random.happens(600) {
                let out = outs[self.random.position(outs.len())];
                let block = self.block_in(stripe, out);
                if self.write_block(world, block) {
                    blocks.insert(block);
                }
            }
        }
        blocks
    }

    /// Some block of a stripe, mostly of a member.
    fn block_in(&mut self, stripe: StripeIndex, member: usize) -> u64 {
        let data = self.geometry.data();
        let role = self.geometry.role(stripe, MemberIndex::from_at(member));
        let its_own = role.map(Role::at).filter(|role| *role < data);
        let role = its_own.unwrap_or_else(|| self.random.position(data));
        let chunk = u64::from(self.geometry.chunk_blocks());
        let lane = self.random.below(chunk.min(8));
        stripe.0 * u64::from(self.geometry.stripe_blocks()) + bytes_u64(role) * chunk + lane
    }

    /// Writes something new to a block of the array, if it belongs to a volume.
    fn write_block(&mut self, world: &mut World, block: u64) -> bool {
        let Some((volume, start)) = self.client.place_of(block) else {
            return false;
        };
        let write = self.client.ask(volume, Operation::Write, start, 1);
        while !self.client.submit(write.clone(), world) {
            self.turn(world, 20);
        }
        self.client.advance(world);
        true
    }

    /// The engine ends, and the next one may not have filled much when it is written to.
    fn stop_in_window(&mut self, mut world: World) -> World {
        self.wait(&mut world, |history, _| history.client.pending() == 0);
        let power = self.random.happens(500);
        let mut world = self.end_and_restart(world, power);
        self.run_until(&mut world, |history, _| {
            history.started && history.given.is_none()
        });
        world
    }

    /// The others are away until nobody waits for them any more; whether a window failed by it.
    fn fail_window(&mut self, world: &mut World, out: usize) -> bool {
        self.wait(world, |history, _| history.client.pending() == 0);
        self.give(world, Given::Other, Command::Passes { run: false });
        self.wait(world, |history, _| history.given.is_none());
        let was_open = world.shards[world.home].map().window.is_some();
        let members = world.shards[world.home].map().members.clone();
        let group = self.geometry.group_members();
        let first = out / group * group;
        for member in &members[first..first + group] {
            if let (MapState::InSync, Some(drive)) = (member.state, member.drive) {
                let drive = &mut world.outside.drives[drive.at()];
                drive.away = Some(Status::Gone);
                drive.hurt = true;
            }
        }
        self.client.lenient = u64::MAX;
        for drive in &mut world.outside.drives {
            drive.loosen();
        }
        self.run_until(world, |_, world| {
            let map = world.shards[world.home].map();
            map.given_up || map.window.is_none()
        });
        self.come_back_all(world);
        self.run_until(world, |_, world| {
            world.shards[world.home].map().window.is_none()
        });
        was_open
    }

    /// Whether a record says that a member is filled beyond a stripe.
    pub(super) fn claims(&self, world: &World, position: usize, stripe: StripeIndex) -> bool {
        let coordinator = world.shards[world.home].coordinator().expect("home");
        match coordinator.config().members[position].state {
            MemberState::InSync => true,
            MemberState::Rebuilding { until, .. } => until > stripe,
            _ => false,
        }
    }
}
