//! A member does not take its copy of the region map while something is written for the first
//! time, and at the next start all others with a copy are away: it must have been left out, or
//! its copy says that nothing was written.

use super::end::position_drive;
#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn lose_other_copies(&mut self, mut world: World) -> World {
        if !self.starts_without_some(200) {
            return world;
        }
        let Some((asked, block)) = self.draw_unwritten(&world) else {
            return world;
        };
        self.calm(&mut world);
        self.run_until(&mut world, |history, world| {
            history.given.is_none() && world.is_quiet() && !world.is_in_trouble()
        });
        let space = self.superblock(MemberIndex(0), Uuid::nil()).regions();
        let region = space.region(self.geometry.locate(block).0);
        let is_in = |number: &u32| space.regions(*number).contains(&bytes_usize(region.into()));
        let mut numbers = (0..).take(space.blocks());
        let number = numbers.find(is_in).expect("every region is in a block");
        let mut holders: Vec<usize> = space.holders(number).map(MemberIndex::at).collect();
        let failing = holders.swap_remove(self.random.position(holders.len()));
        let drive = position_drive(&world, failing);
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].failing = Some(Failing {
            what: Failure::WritesBelow(self.layout.data.offset),
            after: 0,
            count: 1,
            status: Status::Media,
        });
        self.submit_surely(&mut world, asked);
        if let Some(flush) = self.client.flush() {
            self.submit_surely(&mut world, flush);
        }
        world.outside.drives[drive].failing = None;
        self.run_until(&mut world, |_, world| !world.is_in_trouble());
        let map = world.shards[world.home].map();
        if map.members[failing].state == MapState::InSync {
            let drives: Vec<usize> = holders
                .iter()
                .map(|&position| position_drive(&world, position))
                .collect();
            world = self.stop_without(world, &drives);
            self.run_until(&mut world, |history, _| history.started);
            self.read_everything(&mut world);
        } else {
            self.outcome.copies_refused += 1;
        }
        self.settle(&mut world);
        world
    }
}
