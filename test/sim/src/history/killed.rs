//! The engine is killed in the middle of writes while all parity is trusted, and something goes
//! wrong with the one drive or the one flush that the next engine needs.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Times that guests lend their memory, until some drive needs it.
const LENDS: usize = 4;
/// Turns until some drive writes what was asked.
const TURNS: usize = 400;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn be_killed_in_writes(&mut self, mut world: World) -> World {
        let plain = !self.forced && !self.client.disks.is_empty();
        if !plain || !self.random.happens(300) || !self.may_lose_caches(&mut world) {
            return world;
        }
        self.outcome.crashes += 1;
        let mut world = if self.random.happens(700) {
            self.die_with_a_member(world)
        } else {
            let drives = self.die_trusted(world);
            self.restart(drives)
        };
        self.run_until(&mut world, |history, _| history.started);
        self.read_everything(&mut world);
        self.settle(&mut world);
        world
    }

    /// The process is killed while drives write, often from the memory of guests: then nobody has
    /// what a member was to write that is lost with it. Its drive may be busy with that while the
    /// next engine is at work.
    fn die_with_a_member(&mut self, mut world: World) -> World {
        self.run_until(&mut world, |history, _| history.client.pending() == 0);
        let mut lent = Vec::new();
        if self.random.happens(850) && !self.client.stable_volumes().is_empty() {
            lent = self.lend(&mut world);
        } else {
            self.write_at_once(&mut world);
        }
        let mut victim = self.victims(&world, false).first().copied();
        if victim.is_some() && !lent.is_empty() && self.random.happens(700) {
            let asked = &lent[self.random.position(lent.len())];
            let position = self.holder(&world, self.client.first_block(asked));
            victim = Some(DriveIndex::from_at(end::position_drive(&world, position)));
        }
        self.may_stay_busy(victim, false);
        self.torn = true;
        self.dies_at_once = false;
        let mut drives = self.end_killed(world);
        if let Some(victim) = victim {
            let drive = &mut drives[victim.at()];
            (drive.gone, drive.hurt) = (true, true);
            self.outcome.begun += 1;
        }
        let left = self.client.stop(false);
        self.again.clear();
        let mut world = self.restart(drives);
        if let Some(victim) = victim {
            self.outlive_the_dead(&mut world, victim, left);
        }
        world
    }

    /// Goes on until drives write from the memory of guests, in mirrors at the latest; what is lost
    /// then does not look like what was never written.
    fn lend(&mut self, world: &mut World) -> Vec<Asked> {
        for _ in 0..LENDS {
            let all = self.write_whole_stripes(world);
            self.run_until(world, |history, _| history.client.pending() == 0);
            let before = borrowed(world);
            for asked in &all {
                let write = self.client.write_again(asked);
                let _ = self.client.submit(write, world);
            }
            self.client.advance(world);
            for _ in 0..TURNS {
                if borrowed(world) > before {
                    return all;
                }
                if self.client.pending() == 0 {
                    break;
                }
                self.turn(world, 1);
            }
        }
        Vec::new()
    }

    /// What was under way is written anew, without the member, and again when it is back.
    fn outlive_the_dead(&mut self, world: &mut World, victim: DriveIndex, left: Vec<Asked>) {
        self.run_until(world, |history, _| history.started);
        self.read_everything(world);
        let left: Vec<Asked> = left.into_iter().filter(Asked::changes).collect();
        self.write_all_again(world, &left);
        let owner = disks::owner(&world.outside.drives[victim.at()]);
        let position = owner.expect("it was a member").member.at();
        self.give(world, Given::Other, Command::Passes { run: true });
        self.await_commands(world);
        for _ in 0..TURNS {
            if self.has_left(world, position) && self.return_one(world, position) {
                break;
            }
            self.turn(world, 40);
        }
        self.await_commands(world);
        for _ in 0..TURNS {
            if world.shards[world.home].map().is_whole() {
                break;
            }
            self.turn(world, 40);
        }
        self.write_all_again(world, &left);
    }

    fn write_all_again(&mut self, world: &mut World, all: &[Asked]) {
        for asked in all {
            let write = self.client.write_again(asked);
            self.submit_surely(world, write);
        }
    }
}

/// How often drives have been given the memory of guests to write from.
fn borrowed(world: &World) -> u64 {
    let counters = world.shards.iter().map(Shard::counters);
    counters.map(|counters| counters.borrowed_writes).sum()
}
