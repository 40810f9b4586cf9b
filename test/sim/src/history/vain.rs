//! Members go away when a write is in the log and not in its place, for longer than anybody waits.
//! It is answered with an error, and the log has it: what is planned after it must find it in its
//! place, or what the next engine writes again makes parity of contents that never were together.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;
use crate::history::spells::Spell;

/// Blocks that are looked at.
const LOOKS: usize = 100;
/// Steps until a write is in the log.
const STEPS: usize = 2000;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn log_in_vain(&mut self, mut world: World) -> World {
        if !self.stops_passes(&mut world, 150) {
            return world;
        }
        let outs = self.fail_some(&mut world);
        let Some((first, second)) = self.draw_beside(&world, &outs) else {
            self.settle(&mut world);
            return world;
        };
        self.leave_nothing_before(&mut world);
        let _ = self.client.submit(first.clone(), &mut world);
        self.client.advance(&mut world);
        if self.await_log(&mut world) {
            self.outcome.logged_in_vain += 1;
            self.be_away_for_long(&mut world);
        }
        self.run_until(&mut world, |history, _| history.client.pending() == 0);
        if self.random.happens(500) {
            let read = self.client.read_again(&first);
            self.submit_surely(&mut world, read);
        }
        self.submit_surely(&mut world, second);
        let power = self.random.happens(500);
        let mut world = self.stop_by(world, power);
        self.read_everything(&mut world);
        self.refill(&mut world);
        self.settle(&mut world);
        world
    }

    /// Writes of two blocks of one row, of which a third block is on a member that is out.
    fn draw_beside(&mut self, world: &World, outs: &[usize]) -> Option<(Asked, Asked)> {
        let chunk = u64::from(self.geometry.chunk_blocks());
        for _ in 0..LOOKS {
            let (asked, block) = self.client.draw_block(&mut self.random)?;
            let (stripe, _) = self.geometry.locate(block);
            let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
            let lane = (block - base) % chunk;
            let row = (0..bytes_u64(self.geometry.data())).map(|role| base + role * chunk + lane);
            let is_out = |block: &u64| outs.contains(&self.holder(world, *block));
            let (out, mut others): (Vec<u64>, Vec<u64>) = row.partition(is_out);
            others.retain(|other| *other != block);
            if out.is_empty() || others.is_empty() || is_out(&block) {
                continue;
            }
            let other = others[self.random.position(others.len())];
            if let Some((volume, start)) = self.client.place_of(other) {
                let beside = self.client.ask(volume, Operation::Write, start, 1);
                return Some((asked, beside));
            }
        }
        None
    }

    /// Goes on until a write is in the log, and is being flushed there; whether it came to that.
    fn await_log(&mut self, world: &mut World) -> bool {
        let (log, data) = (self.layout.log.offset, self.layout.data.offset);
        let mut begun = false;
        for _ in 0..STEPS {
            let drives = || world.outside.drives.iter();
            let writes = drives().any(|drive| drive.is_writing_from(log));
            if drives().any(|drive| drive.is_writing_from(data)) {
                return false;
            }
            begun |= writes;
            if begun && !writes && drives().any(SimDrive::is_flushing) {
                return true;
            }
            world.step();
        }
        false
    }

    /// All members are away until nobody waits for them any more, and a while longer.
    fn be_away_for_long(&mut self, world: &mut World) {
        for member in &world.shards[world.home].map().clone().members {
            let Some(drive) = member.drive.filter(|_| member.state != MapState::Lost) else {
                continue;
            };
            let drive = &mut world.outside.drives[drive.at()];
            (drive.away, drive.hurt) = (Some(Status::Gone), true);
        }
        self.spell = Some(Spell::endless(world.outside.now));
        self.is_spelled = true;
        self.outcome.spells.0 += 1;
        self.client.lenient = u64::MAX;
        self.run_until(world, |history, world| {
            let given_up = |shard: &Shard| shard.map().given_up;
            world.shards.iter().all(given_up) && history.client.pending() == 0
        });
        for _ in 0..self.random.below(100) {
            self.turn(world, 20);
        }
        self.come_back_all(world);
        self.run_until(world, |history, _| !history.is_spelled);
    }
}
