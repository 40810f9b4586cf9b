//! The engine is killed in the middle of writes while all parity is trusted, and something goes
//! wrong with the one drive or the one flush that the next engine needs.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

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
        let lends = !self.client.stable_volumes().is_empty();
        let drives = if lends && self.random.happens(700) {
            self.die_lending(world)
        } else {
            self.die_trusted(world)
        };
        let mut world = self.restart(drives);
        self.run_until(&mut world, |history, _| history.started);
        self.read_everything(&mut world);
        self.settle(&mut world);
        world
    }

    /// The process is killed while drives write from the memory of guests, and a member is lost
    /// with it: what it was to write, nobody has.
    fn die_lending(&mut self, mut world: World) -> Vec<SimDrive> {
        self.run_until(&mut world, |history, _| history.client.pending() == 0);
        self.write_whole_stripes(&mut world);
        let data = self.layout.data.offset;
        let writes = |drive: &SimDrive| drive.is_writing_from(data);
        for _ in 0..TURNS {
            if world.outside.drives.iter().any(writes) {
                break;
            }
            self.turn(&mut world, 1);
        }
        let victim = self.victim(&world, false);
        self.torn = true;
        self.dies_at_once = false;
        let mut drives = self.end_killed(world);
        if let Some(victim) = victim {
            let drive = &mut drives[victim.at()];
            (drive.gone, drive.hurt) = (true, true);
            self.outcome.begun += 1;
        }
        self.client.stop(false);
        self.again.clear();
        drives
    }
}
