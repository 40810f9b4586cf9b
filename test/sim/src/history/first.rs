//! How an array begins. And first writes while not every reactor knows yet who is out: where the
//! member that leaves was not zeroed, nobody may read what it holds.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Often, or it is never possible.
pub(super) const OFTEN: u64 = 150;
/// Steps until the member is out, and while it is read there.
const STEPS: u64 = 1000;

impl History {
    /// An array is made of drives that hold zeroes, or anything.
    pub(super) fn create(&mut self) -> World {
        let members = self.geometry.members();
        let soiled = self.random.happens(500);
        // As arrays are made now; others were made before there were unwritten regions.
        let unwritten = self.geometry.parity() > 0 && self.random.happens(500);
        let mapped = self.geometry.parity() > 0 && self.random.happens(800);
        self.lasting = [0, 0, 0, 0, 500, 1000][self.random.position(6)];
        let mut drives: Vec<SimDrive> = (0..members).map(|_| self.new_drive()).collect();
        let mut config = new_config(&self.geometry, !soiled || unwritten);
        config.clean = false;
        if unwritten {
            config.features.incompat |= INCOMPAT_UNWRITTEN;
        }
        if mapped {
            config.features.compat |= COMPAT_MAPPED;
        }
        let first = config.features.first_region();
        self.draw_options(&mut config.options);
        for (position, drive) in drives.iter_mut().enumerate() {
            config.members[position].drive_bytes = disks::DRIVE_BYTES;
            let uuid = config.members[position].uuid;
            let superblock = self.superblock(MemberIndex::from_at(position), uuid);
            disks::write_superblocks(drive, &superblock);
            if let Some(kind) = first {
                disks::write_first_regions(drive, &superblock, kind);
            }
            if soiled {
                disks::soil(drive, &self.layout, &mut self.random);
            }
        }
        if soiled && !unwritten {
            let superblock = self.superblock(MemberIndex(0), Uuid::nil());
            let count = superblock.extents().count();
            config.unzeroed = vec![ExtentRun { first: 0, count }];
            self.torn = true;
        }
        let places = (0..members)
            .map(|at| Some(place(&self.layout, at)))
            .collect();
        let regions = self.first_regions(&config);
        let suspects = regions.suspects(true, config.resynced_until);
        let mut world = self.world(config, places, (regions, suspects), drives);
        // An array is there once its first record is.
        self.run_until(&mut world, |history, _| history.started);
        world
    }

    /// A member leaves, and one reactor hears of it late. Meanwhile a region is written for the
    /// first time, and read on that reactor.
    pub(super) fn write_first_without_one(&mut self, world: &mut World) {
        let late = world.shards.len() - 1;
        let may = self.geometry.parity() > 0 && late != world.home;
        let may = may && self.outcome.first_without < 2;
        let busy = self.torn || self.given.is_some() || !self.rot.is_empty();
        if !may || busy || self.spell.is_some() || !self.is_sound(world) {
            return;
        }
        let Some((asked, block)) = self.draw_unwritten(world) else {
            return;
        };
        let (stripe, _) = self.geometry.locate(block);
        let members = self.geometry.group_members();
        let group = self.geometry.group(stripe).at() * members;
        let position = group + self.random.position(members);
        let drive = world.shards[world.home].map().members[position].drive;
        world.outside.drives[drive.expect("sound").at()].hurt = true;
        let before = world.outside.mail_is_slow.clone();
        world.outside.mail_is_slow.fill(false);
        world.outside.mail_is_slow[late] = true;
        let member = MemberIndex::from_at(position);
        self.give(world, Given::Fail, Command::Fail { member });
        for _ in 0..STEPS {
            let map = world.shards[world.home].map();
            if map.members[position].state == MapState::Lost {
                break;
            }
            self.turn(world, 1);
        }
        let behind = world.shards[late].map().members[position].state == MapState::InSync;
        self.outcome.first_without += u64::from(behind);
        let Some((volume, start)) = self.client.place_of(block) else {
            return;
        };
        let home = world.home;
        let _ = self.client.submit_on(asked, world, home);
        let around = start.saturating_sub(u64::from(self.geometry.stripe_blocks()));
        let end = self.client.blocks(volume);
        let blocks = (end - around).min(64);
        for step in 0..STEPS {
            self.turn(world, 1);
            if step.is_multiple_of(3) && self.client.disks.contains_key(&volume) {
                let read = self.client.ask(volume, Operation::Read, around, blocks);
                let _ = self.client.submit_on(read, world, late);
            }
        }
        world.outside.mail_is_slow = before;
    }

    /// A write of a block of a region that was never written.
    pub(super) fn draw_unwritten(&mut self, world: &World) -> Option<(Asked, u64)> {
        let written = end::written(world);
        for _ in 0..20 {
            let (asked, block) = self.client.draw_block(&mut self.random)?;
            if !written.has(self.geometry.locate(block).0) {
                return Some((asked, block));
            }
        }
        None
    }

    /// The region map of a new array.
    pub(super) fn first_regions(&self, config: &ArrayConfig) -> RegionMap {
        let space = self.superblock(MemberIndex(0), Uuid::nil()).regions();
        match config.features.first_region() {
            Some(kind) => RegionMap::first(space, config.array, kind),
            None => RegionMap::new(space, config.array),
        }
    }

    /// Adds up what an engine has counted that is about to end.
    pub(super) fn count_unwritten(&mut self, world: &World) {
        let counters = || world.shards.iter().map(array::Shard::counters);
        self.outcome.zeroed += counters().map(|one| one.regions_zeroed).sum::<u64>();
        self.outcome.zeroed_in_pass += counters()
            .map(|one| one.regions_zeroed_in_pass)
            .sum::<u64>();
        self.outcome.unwritten += counters().map(|one| one.unwritten_pieces).sum::<u64>();
    }
}
