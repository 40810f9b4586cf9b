//! Writes that a drive has acknowledged and lost, or has written elsewhere: it holds what it held
//! before, durably, and no checksum of its own says otherwise. What it holds is no garbage but old
//! blocks of the same array, so nothing but the other chunks shows that it is wrong.
//!
//! As with bits that flip, nobody reads or writes there before the scrub has been there: a small
//! write would make parity of the old block. More drives that lose the same write than can be told
//! from the others are not drawn, either: a stripe of which all is old agrees with itself.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Blocks that are looked at for one that was written meanwhile.
const TRIES: usize = 300;
/// Rounds in which drives are written that lose some of it, at least, and besides.
const ROUNDS: u64 = 30;

impl History {
    /// Guests go on for a while, until all is quiet again; what drives held before.
    pub(super) fn live_on(&mut self, world: &mut World) -> Vec<SimDrive> {
        let before = world.outside.drives.iter().map(SimDrive::copy).collect();
        let rounds = ROUNDS + self.random.below(ROUNDS);
        self.rounds(world, rounds);
        self.settle(world);
        before
    }

    /// Drives hold what they held before, at one block of some stripe, in as many chunks as may be
    /// wrong; or one of them, and what it was to take is in another place.
    pub(super) fn lose_write(&mut self, world: &mut World, before: &[SimDrive], located: bool) {
        let (least, most) = self.wrong_bounds(located);
        for _ in 0..TRIES {
            let place = self.draw_block();
            if !self.may_rot(world, place) {
                continue;
            }
            let mut old = self.old_contents(world, before, place);
            if old.len() < least {
                continue;
            }
            let count = least + self.random.position(most.min(old.len()) + 1 - least);
            while old.len() > count {
                let left_out = self.random.position(old.len());
                old.swap_remove(left_out);
            }
            if count == 1 && self.random.happens(500) {
                self.write_elsewhere(world, (place, old[0].0), located);
            }
            self.put_wrong(world, place, old, (located, true));
            return;
        }
    }

    fn draw_block(&mut self) -> (StripeIndex, u64) {
        let stripe = StripeIndex(self.random.below(self.geometry.stripes()));
        let lane = self.random.below(u64::from(self.geometry.chunk_blocks()));
        (stripe, lane)
    }

    /// What the drives of a stripe held before at a block, as far as it is something else.
    fn old_contents(
        &self,
        world: &World,
        before: &[SimDrive],
        place: (StripeIndex, u64),
    ) -> Vec<(Role, Vec<u8>)> {
        let roles = (0..self.geometry.group_members()).map(Role::from_at);
        let old = roles.filter_map(|role| {
            let (drive, block) = self.chunk_block(world, place, role);
            // One that came meanwhile has its place from a rebuild.
            let old = before.get(drive.at())?.block(block);
            (old != world.outside.drives[drive.at()].block(block)).then_some((role, old))
        });
        old.collect()
    }

    /// What a drive holds in one place, as it should, it has written in another.
    fn write_elsewhere(
        &mut self,
        world: &mut World,
        (place, role): ((StripeIndex, u64), Role),
        located: bool,
    ) {
        let (drive, block) = self.chunk_block(world, place, role);
        let (member, _) = world.shards[world.home].map().member(place.0, role);
        let content = world.outside.drives[drive.at()].block(block);
        for _ in 0..TRIES {
            let other = self.draw_block();
            let Some(role) = self.geometry.role(other.0, member) else {
                continue;
            };
            let (_, block) = self.chunk_block(world, other, role);
            let same = other == place || world.outside.drives[drive.at()].block(block) == content;
            if same || !self.may_rot(world, other) {
                continue;
            }
            self.put_wrong(world, other, vec![(role, content)], (located, true));
            return;
        }
    }
}
