//! Some blocks of a member take no writes, or say so, when the array cannot do without it. What is
//! written there fails, and nothing else, over stops in the middle of it and after it. Some cannot
//! be read either, until all is well again: what hangs on them may be lost, and is never something
//! else. Some lie where nobody has written yet, which is zeroed before, and some in the region map:
//! then first writes to regions may fail, and nothing else. And some where records belong,
//! or in the log: then nothing fails.

#[allow(clippy::wildcard_imports, reason = "one type in several files")]
use super::*;

/// Blocks that take no writes, at most.
const BLOCKS: u64 = 5;

/// Of a block of the region map.
const MAP_BLOCK_BYTES: u64 = 4096;

/// A lane of a stripe.
type Spot = (StripeIndex, u64);

impl History {
    /// From an array in order to one that is so again.
    pub(super) fn refuse_needed(&mut self, mut world: World) -> World {
        if !self.stops_passes(&mut world, 200) {
            return world;
        }
        let outs = self.fail_some(&mut world);
        self.run_until(&mut world, |history, world| {
            let present = world.shards.iter().all(Shard::is_by_present_members);
            present && history.client.pending() == 0 && history.change.is_none()
        });
        self.calm(&mut world);
        let (drive, spots) = self.refuse_some(&mut world, &outs);
        for _ in 0..=self.random.below(3) {
            self.write_at_spots(&mut world, &spots);
            if self.random.happens(600) {
                let steps = self.random.below(3000);
                let mends = self.random.happens(700);
                for _ in 0..steps {
                    world.step();
                    if mends && world.shards.iter().any(Shard::is_mending) {
                        break;
                    }
                }
                let steps = self.random.below(40);
                (0..steps).for_each(|_| world.step());
                let power = self.random.happens(500);
                world = self.stop_by(world, power);
            }
            self.run_until(&mut world, |history, _| history.client.pending() == 0);
        }
        if self.random.happens(700) {
            self.mend_refusing(&mut world.outside.drives[drive]);
        }
        self.write_at_spots(&mut world, &spots);
        self.run_until(&mut world, |history, _| history.client.pending() == 0);
        self.hide_starts(&mut world.outside.drives[drive], drive);
        let power = self.random.happens(500);
        let mut world = self.stop_by(world, power);
        self.read_everything(&mut world);
        self.mend_refusing(&mut world.outside.drives[drive]);
        self.refill(&mut world);
        let mut world = self.write_lost(world);
        self.settle(&mut world);
        world
    }

    fn mend_refusing(&mut self, drive: &mut SimDrive) {
        if self.random.happens(500) {
            drive.mend_as_before();
        } else {
            drive.mend();
        }
    }

    /// Blocks of a member of the group take no writes: its drive, and where they are.
    fn refuse_some(&mut self, world: &mut World, outs: &[usize]) -> (usize, Vec<Spot>) {
        let group = self.geometry.group_members();
        let first = outs[0] / group * group;
        let others = (first..first + group).filter(|other| !outs.contains(other));
        let others: Vec<usize> = others.collect();
        let needed = others[self.random.position(others.len())];
        let drive = world.shards[world.home].map().members[needed].drive;
        let drive = drive.expect("in sync").at();
        let chunk = u64::from(self.geometry.chunk_blocks());
        let mut spots = Vec::new();
        for _ in 0..=self.random.below(BLOCKS) {
            let unwritten = self.random.happens(300);
            let unwritten = unwritten.then(|| self.draw_unwritten(world)).flatten();
            let drawn = unwritten.or_else(|| self.client.draw_block(&mut self.random));
            let Some((_, block)) = drawn else {
                break;
            };
            let (stripe, start) = self.geometry.locate(block);
            let lane = u64::from(start) % chunk;
            if self.geometry.group(stripe).at() * group == first {
                let place = self.first_block() + self.geometry.member_block(stripe) + lane;
                world.outside.drives[drive].unwritable.insert(place);
                spots.push((stripe, lane));
                if self.random.happens(250) {
                    world.outside.drives[drive].bad.insert(place);
                    let holders = outs.iter().copied().chain([needed]);
                    let lost = self.blocks_of(stripe, lane, holders);
                    self.client.lost.extend(lost);
                }
            }
        }
        if self.random.happens(400) {
            self.refuse_map(&mut world.outside.drives[drive], needed);
        }
        if self.random.happens(300) {
            self.refuse_records(&mut world.outside.drives[drive]);
        }
        if self.random.happens(300) {
            let writers = world.shards.len();
            self.refuse_slots(&mut world.outside.drives[drive], writers);
        }
        world.outside.drives[drive].hurt = true;
        world.outside.drives[drive].takes_refused = self.random.happens(300);
        self.client.is_refused = true;
        (drive, spots)
    }

    /// Places of a block of the region map take no writes either: one, or both.
    fn refuse_map(&mut self, drive: &mut SimDrive, position: usize) {
        let space = self.superblock(MemberIndex(0), Uuid::nil()).regions();
        let holds = |number: &u32| {
            let mut holders = space.holders(*number);
            holders.any(|member| member.at() == position)
        };
        let numbers: Vec<u32> = (0..).take(space.blocks()).filter(holds).collect();
        if numbers.is_empty() {
            return;
        }
        let number = numbers[self.random.position(numbers.len())];
        let both = self.random.happens(250);
        let first = self.random.below(2);
        for sequence in first..first + 1 + u64::from(both) {
            let start = space.offset(number, sequence) / drive.block_bytes();
            let blocks = MAP_BLOCK_BYTES / drive.block_bytes();
            let block = start + self.random.below(blocks);
            drive.unwritable.insert(block);
            if self.random.happens(250) {
                drive.bad.insert(block);
            }
        }
    }

    /// Records are refused where they belong, in one config area or in both: that costs nothing.
    fn refuse_records(&mut self, drive: &mut SimDrive) {
        let areas = self.superblock(MemberIndex(0), Uuid::nil()).layout.config;
        let both = self.random.happens(400);
        let first = self.random.position(areas.len());
        for (position, area) in areas.into_iter().enumerate() {
            if both || position == first {
                let block = area.offset / drive.block_bytes();
                drive.unwritable.insert(block);
            }
        }
    }

    /// Parts of the log are refused: that costs nothing.
    fn refuse_slots(&mut self, drive: &mut SimDrive, writers: usize) {
        let space = self.superblock(MemberIndex(0), Uuid::nil()).log();
        for _ in 0..=self.random.below(3) {
            // Those that a writer takes soon after a start.
            let each = u64::from(space.slots()) / bytes_u64(writers);
            let writer = self.random.below(bytes_u64(writers));
            let slot = writer * each + self.random.below(each.clamp(1, 12));
            let slot = u32::try_from(slot).expect("below the slots");
            let (start, end) = (space.slot(slot), space.slot(slot + 1));
            let blocks = (end - start) / drive.block_bytes();
            let block = start / drive.block_bytes() + self.random.below(blocks);
            drive.unwritable.insert(block);
        }
    }

    /// Where records are elsewhere, what is where they belong cannot be read any more.
    fn hide_starts(&mut self, drive: &mut SimDrive, index: usize) {
        let layout = self.superblock(MemberIndex(0), Uuid::nil()).layout;
        let told = disks::told(index, drive, &layout);
        for (area, told) in layout.config.into_iter().zip(told) {
            if told && self.random.happens(500) {
                drive.bad.insert(area.offset / drive.block_bytes());
            }
        }
    }

    /// Writes around such blocks are begun.
    fn write_at_spots(&mut self, world: &mut World, spots: &[Spot]) {
        let chunk = u64::from(self.geometry.chunk_blocks());
        for &(stripe, lane) in spots {
            for _ in 0..self.random.below(4) {
                let role = self.random.below(bytes_u64(self.geometry.data()));
                let base = stripe.0 * u64::from(self.geometry.stripe_blocks());
                let block = base + role * chunk + lane;
                let before = self.random.below(2).min(block);
                let (block, length) = if self.random.happens(150) {
                    (base, u64::from(self.geometry.stripe_blocks()))
                } else {
                    (block - before, before + 1 + self.random.below(3))
                };
                let Some((volume, start)) = self.client.place_of(block) else {
                    continue;
                };
                let length = length.min(self.client.blocks(volume) - start);
                let asked = self.client.ask(volume, Operation::Write, start, length);
                let _ = self.client.submit(asked, world);
                let steps = self.random.below(40);
                self.turn(world, steps);
            }
        }
    }
}
