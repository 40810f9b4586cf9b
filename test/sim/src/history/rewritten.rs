//! A drive hangs over the repair of its bad blocks until it is left out, and then carries it out,
//! when the memory of it may be somebody else's. It returns, and lacks nothing there: what it was
//! to write is no news to the others.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Blocks that are looked at, and how many of them go bad.
const LOOKS: usize = 80;
const BAD: usize = 8;
/// Steps for a read and its repair, and for the repair alone, at most.
const STEPS: u64 = 400;
const AFTER: u64 = 40;
/// Turns until a member is out that answers nothing.
const LEAVING_TURNS: usize = 2000;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn hang_over_rewrites(&mut self, mut world: World) -> World {
        let may = self.geometry.parity() > 0 && self.geometry.data() > 1 && !self.forced;
        let may = may && !self.client.disks.is_empty() && !self.torn;
        if !may || !self.random.happens(130) || !self.become_sound(&mut world) {
            return world;
        }
        self.run_until(&mut world, |history, world| {
            let still = history.given.is_none() && history.change.is_none();
            still && history.client.pending() == 0 && world.is_quiet()
        });
        // What is dirty when it leaves is filled when it returns.
        self.idle(&mut world);
        let position = self.random.position(self.geometry.members());
        let drive = end::position_drive(&world, position);
        let reads = self.damage_what_is_written(&mut world, position, drive);
        for asked in &reads {
            self.read_slowly(&mut world, drive, asked);
        }
        world.outside.drives[drive].hung = true;
        let hangs = world.outside.drives[drive].pending() > 0;
        // Also where nothing was damaged, and something else is under way there.
        world.outside.drives[drive].hurt |= hangs;
        for _ in 0..if hangs { LEAVING_TURNS } else { 0 } {
            if self.has_left(&world, position) {
                break;
            }
            self.turn(&mut world, 20);
        }
        if self.has_left(&world, position) {
            self.outcome.rewritten_late += bytes_u64(world.outside.drives[drive].pending());
            // Whatever needs it is made in memory that the repair has had.
            for asked in &reads {
                let read = self.client.read_again(asked);
                let _ = self.client.submit(read, &mut world);
                // One that waits for the drive itself is answered when it is.
                self.turn(&mut world, 200);
            }
        }
        world.outside.drives[drive].hung = false;
        self.answer_and_return(&mut world, position, drive);
        world
    }

    /// Some blocks of a member go bad that hold something; writes of these.
    fn damage_what_is_written(
        &mut self,
        world: &mut World,
        position: usize,
        drive: usize,
    ) -> Vec<Asked> {
        let written = end::written(world);
        let mut found = Vec::new();
        for _ in 0..LOOKS {
            let Some((asked, block)) = self.client.draw_block(&mut self.random) else {
                break;
            };
            let (stripe, start) = self.geometry.locate(block);
            if self.holder(world, block) != position || !written.has(stripe) || found.len() == BAD {
                continue;
            }
            let lane = u64::from(start % self.geometry.chunk_blocks());
            let bad = self.first_block() + self.geometry.member_block(stripe) + lane;
            world.outside.drives[drive].bad.insert(bad);
            found.push(asked);
        }
        world.outside.drives[drive].hurt |= !found.is_empty();
        found
    }

    /// A block is read, and its drive takes long over its repair.
    fn read_slowly(&mut self, world: &mut World, drive: usize, asked: &Asked) {
        let read = self.client.read_again(asked);
        let _ = self.client.submit(read, world);
        let data = self.layout.data.offset;
        // It is answered before the block is repaired.
        let mut left = AFTER;
        for _ in 0..STEPS {
            left -= u64::from(self.client.pending() == 0);
            if left == 0 {
                break;
            }
            self.turn(world, 1);
            world.outside.drives[drive].keep_writes_from(data);
        }
    }
}
