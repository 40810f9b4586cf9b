//! What becomes of regions that are being zeroed, one case at a time.

use array::format::{ConfigSlot, INCOMPAT_UNWRITTEN, Layout, Superblock};
use array::{Command, Geometry, GeometryParameters, Level, MapState, MemberPlace, RegionMap};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use memory::{Backing, Buffer, Pages, Pool, SegmentList, SegmentSlots};
use sim::disks;
use sim::drive::SimDrive;
use sim::world::{Setup, World, new_config, place, take_completion};
use units::{BlockSize, MemberIndex, ReactorIndex};
use uuid::Uuid;

/// 64 regions of 16 stripes.
const SIX: Shape = Shape {
    level: Level::L6,
    members: 4,
    group_size: None,
    rows: 1024,
    region_stripes: 16,
};
/// Blocks of guests in a region.
const REGION_BLOCKS: u64 = 16 * 2 * 8;
/// What is asked of drives at once to zero regions.
const DEPTH: usize = 32;
const SEEDS: u64 = 20;
/// Until as much is under way as may be; ten times what that takes.
const STEPS: usize = 4000;

/// What an array looks like.
#[derive(Clone, Copy)]
struct Shape {
    level: Level,
    members: usize,
    group_size: Option<usize>,
    rows: u64,
    region_stripes: u32,
}

/// A new array, and a guest's memory.
struct Bench {
    world: World,
    layout: Layout,
    pool: Pool,
    buffer: Option<Buffer>,
    lists: SegmentSlots,
    asked: usize,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.release(self.buffer.take().expect("it is there"));
    }
}

impl Bench {
    fn new(seed: u64) -> Bench {
        Bench::made(seed, SIX, 0..0)
    }

    /// On two reactors; its drives hold no zeroes, and some blocks are lost.
    fn made(seed: u64, shape: Shape, lost: std::ops::Range<u64>) -> Bench {
        let members = shape.members;
        let layout = Layout::for_member(64 << 20, BlockSize::B512, members).expect("large enough");
        let geometry = Geometry::new(GeometryParameters {
            level: shape.level,
            members,
            parity: None,
            group_size: shape.group_size,
            chunk_bytes: 4096,
            block: BlockSize::B512,
            member_data_blocks: shape.rows * 8,
        })
        .expect("a good shape");
        let garbage = vec![0xA5; units::bytes_usize(shape.rows * 4096)];
        let drive = |_| {
            let mut drive = SimDrive::new(BlockSize::B512);
            drive.put(layout.data.offset, &garbage);
            drive
        };
        let drives = (0..members).map(drive).collect();
        let mut config = new_config(&geometry, true);
        config.features.incompat |= INCOMPAT_UNWRITTEN;
        config.lost.add(lost);
        let superblock = Superblock {
            region_stripes: shape.region_stripes,
            ..disks::superblock(geometry, &layout, MemberIndex(0), Uuid::nil(), 1)
        };
        let regions = RegionMap::unwritten(superblock.regions(), config.array);
        let places: Vec<Option<MemberPlace>> =
            (0..members).map(|at| Some(place(&layout, at))).collect();
        let world = World::new(Setup {
            suspects: regions.suspects(true, config.resynced_until),
            regions,
            log: superblock.log(),
            begun: None,
            geometry,
            config,
            places,
            drives,
            reactors: 2,
            window_bytes: 1 << 20,
            seed,
        });
        let mut pool = Pool::new(1, 4096, Backing::Anonymous(Pages::Plain)).expect("memory");
        let buffer = pool.acquire().expect("one");
        pool.segment(&buffer).copy_from_slice(&[7; 4096]);
        Bench {
            world,
            layout,
            pool,
            buffer: Some(buffer),
            lists: SegmentSlots::new(8, 1),
            asked: 0,
        }
    }

    /// A guest writes the first block of a region.
    fn write(&mut self, region: u64) {
        self.ask(Operation::Write, region * REGION_BLOCKS, 1);
    }

    fn ask(&mut self, operation: Operation, start: u64, blocks: u32) {
        let buffer = self.buffer.as_ref().expect("it is there");
        let bytes = units::bytes_usize(u64::from(blocks) * 512);
        let segment = self.pool.segment(buffer).part(0, bytes);
        let segments: SegmentList = self.lists.lend(self.asked, |list| list.push(segment));
        self.asked += 1;
        let request = Request {
            operation,
            start,
            blocks,
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie: Cookie(units::bytes_u64(self.asked)),
        };
        assert!(self.world.submit(ReactorIndex(0), request), "there is room");
    }

    /// So many steps in which no change of member 1's data ends.
    fn keep_of_member_1(&mut self, steps: usize) {
        for _ in 0..steps {
            self.world.outside.drives[1].keep_writes_from(self.layout.data.offset);
            self.world.step();
        }
    }

    fn pending(&self, drive: usize) -> usize {
        self.world.outside.drives[drive].pending()
    }
}

#[test]
fn nothing_is_zeroed_any_more_on_a_member_that_is_out() {
    let mut meant = 0;
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        bench.world.command(1, Command::Start).expect("starts");
        // Member 1 keeps the first zeroes. Behind them a stream comes together: the second region
        // is asked for right after the first, the third begins the next run.
        for region in [1, 2, 24] {
            bench.write(region);
            bench.keep_of_member_1(300);
        }
        bench.world.outside.drives[1].let_writes_go();
        bench
            .world
            .run_until(|world| world.outside.drives[1].pending() > 4);
        // It keeps what it is asked for then, until nothing more may be under way.
        let is_full = |bench: &Bench| bench.pending(1) >= DEPTH && bench.pending(0) == 0;
        for _ in 0..STEPS {
            if is_full(&bench) {
                break;
            }
            bench.keep_of_member_1(1);
        }
        if !is_full(&bench) {
            // A run of regions is asked for as a whole, and nothing is left of it.
            continue;
        }
        meant += 1;
        let fail = Command::Fail {
            member: MemberIndex(0),
        };
        bench.world.command(2, fail).expect("three are left");
        let is_out = |world: &World| {
            let out = |shard: &array::Shard| shard.map().members[0].state == MapState::Lost;
            world.shards.iter().all(out)
        };
        bench.world.run_until(is_out);
        assert_eq!(bench.pending(0), 0, "seed {seed}");
        assert!(bench.world.outside.completions.len() < 3, "seed {seed}");
        // Its drive is somebody else's from here on.
        bench.world.outside.drives[0].hung = true;
        bench.world.outside.drives[1].let_writes_go();
        bench.world.run_until(|world| {
            assert_eq!(world.outside.drives[0].pending(), 0, "seed {seed}");
            world.outside.completions.len() == 3
        });
        bench.world.run_until(World::is_quiet);
        assert_eq!(bench.pending(0), 0, "seed {seed}");
    }
    assert!(meant > SEEDS / 2, "{meant} of {SEEDS}");
}

#[test]
fn an_array_that_is_given_up_before_its_second_record_comes_to_rest() {
    for seed in 0..SEEDS {
        let mut bench = Bench::new(seed);
        bench.world.shards[0].command(1, Command::Start);
        let slots = bench.layout.config;
        let written = |world: &World, slot: ConfigSlot| {
            let area = slots[slot.at()];
            let drives = world.outside.drives.iter();
            let mut drives = drives.map(|drive| drive.get(area.offset, 512));
            drives.all(|bytes| bytes != [0; 512])
        };
        // The first record is there, and the second is never.
        bench
            .world
            .run_until(|world| written(world, ConfigSlot::A) || written(world, ConfigSlot::B));
        let second = if written(&bench.world, ConfigSlot::A) {
            slots[ConfigSlot::B.at()]
        } else {
            slots[ConfigSlot::A.at()]
        };
        for drive in &mut bench.world.outside.drives {
            let blocks = second.offset / 512..(second.offset + second.length) / 512;
            drive.unwritable.extend(blocks);
        }
        bench.write(1);
        for _ in 0..2000 {
            bench.world.step();
        }
        assert!(bench.world.outside.completions.is_empty(), "seed {seed}");
        bench.world.shards[0].command(2, Command::Stop);
        bench.world.run_until(World::is_quiet);
        assert_eq!(bench.world.outside.completions.len(), 1, "seed {seed}");
    }
}

#[test]
fn what_is_lost_is_not_read_as_zeroes_where_nothing_was_written() {
    let mut bench = Bench::made(1, SIX, 5..6);
    bench.world.command(1, Command::Start).expect("starts");
    for (start, blocks, status) in [
        (0, 5, Status::Ok),
        (0, 8, Status::Media),
        (5, 1, Status::Media),
        (6, 2, Status::Ok),
    ] {
        bench.ask(Operation::Read, start, blocks);
        let cookie = units::bytes_u64(bench.asked);
        bench
            .world
            .run_until(|world| !world.outside.completions.is_empty());
        let found = take_completion(&mut bench.world, cookie);
        assert_eq!(found, Some(status), "{blocks} blocks from {start}");
    }
}

#[test]
fn a_region_without_rows_in_a_group_does_not_wait_for_its_members() {
    let shape = Shape {
        level: Level::L50,
        members: 6,
        group_size: Some(3),
        rows: 200,
        region_stripes: 1,
    };
    for seed in 0..SEEDS {
        let mut bench = Bench::made(seed, shape, 0..0);
        bench.world.command(1, Command::Start).expect("starts");
        bench.world.run_until(World::is_quiet);
        // Stripe 0, and the block of the map, are on members of the first group.
        bench.world.outside.drives[4].hung = true;
        bench.write(0);
        bench
            .world
            .run_until(|world| !world.outside.completions.is_empty());
        let status = take_completion(&mut bench.world, 1);
        assert_eq!(status, Some(Status::Ok), "seed {seed}");
        let member = &bench.world.shards[0].map().members[4];
        assert_eq!(member.state, MapState::InSync, "seed {seed}");
        assert_eq!(bench.pending(4), 0, "seed {seed}");
    }
}
