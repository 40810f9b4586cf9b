//! Power that fails while a record is written that may go over the last one that is durable.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// In so many steps a record that is due is on its way.
const STEPS: usize = 2000;

impl History {
    /// The first record of a start goes out, and the one before it, of an engine that was killed,
    /// may be in the drives' caches only.
    pub(super) fn die_in_first_record(&mut self, world: World) -> Vec<SimDrive> {
        self.record_in_doubt = false;
        self.die_in_a_record(world)
    }

    /// The flush that a record begins with fails on one member, so that another record is made
    /// without it.
    pub(super) fn die_starting_over(&mut self, mut world: World) -> Vec<SimDrive> {
        self.quiesce(&mut world, true);
        if self.is_sound(&world) && self.next_flush_fails(&mut world).is_some() {
            self.change_volumes(&mut world);
        }
        self.die_in_a_record(world)
    }

    fn die_in_a_record(&mut self, mut world: World) -> Vec<SimDrive> {
        let end = self.layout.region_map.offset;
        for _ in 0..STEPS {
            let writes = |drive: &SimDrive| drive.is_writing_below(end);
            if world.outside.drives.iter().any(writes) {
                break;
            }
            world.step();
        }
        let steps = self.random.below(24);
        (0..steps).for_each(|_| world.step());
        for drive in &mut world.outside.drives {
            // Or it fails in the next life, which may not lose a member.
            drive.failing = drive.failing.filter(|failing| failing.count == 0);
        }
        self.torn |= self.geometry.parity() > 0;
        self.dies_at_once = false;
        self.outcome.torn_records += 1;
        let drives = self.power_fails(world);
        self.client.stop(true);
        self.again.clear();
        drives
    }
}
