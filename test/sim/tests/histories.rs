//! Random histories of reads and writes while members fail, return errors and are replaced: every
//! block reads as it was written, and parity agrees with data at the end.
#![allow(clippy::cast_possible_truncation, reason = "test data are bytes")]

use std::collections::BTreeMap;

use array::format::{Layout, MemberState};
use array::{Command, Geometry, GeometryParameters, Level, MapState};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use memory::{Backing, Buffer, Pages, Pool, SegmentList, SegmentSlots};
use sim::drive::SimDrive;
use sim::random::Random;
use sim::world::{World, new_config, place, take_completion};
use units::{BlockSize, MemberIndex, ReactorIndex, StripeIndex, bytes_u64, bytes_usize};

const BLOCK: usize = 512;
const IN_FLIGHT: usize = 8;

struct Case {
    level: Level,
    members: usize,
    parity: Option<usize>,
    group: Option<usize>,
    chunk: u64,
}

struct Pending {
    operation: Operation,
    start: u64,
    blocks: u32,
    buffer: Buffer,
    slot: usize,
    tag: u8,
}

/// Requests under way and what blocks must read as.
struct Client {
    pool: Pool,
    lists: SegmentSlots,
    free: Vec<usize>,
    pending: BTreeMap<u64, Pending>,
    content: Vec<u8>,
    next: u64,
}

impl Client {
    fn new(blocks: u64) -> Client {
        Client {
            pool: Pool::new(IN_FLIGHT, 1 << 20, Backing::Anonymous(Pages::Plain)).expect("memory"),
            lists: SegmentSlots::new(IN_FLIGHT, 4),
            free: (0..IN_FLIGHT).collect(),
            pending: BTreeMap::new(),
            content: vec![0; bytes_usize(blocks)],
            next: 100,
        }
    }

    /// Submits something at random on blocks that nothing else under way touches.
    fn submit(&mut self, world: &mut World, random: &mut Random, stripe_blocks: u64) {
        if self.free.is_empty() {
            return;
        }
        let total = bytes_u64(self.content.len());
        let most = if random.happens(300) {
            stripe_blocks * 3
        } else {
            24
        }
        .min(1 << 11);
        let blocks = 1 + random.below(most.min(total));
        let start = random.below(total - blocks + 1);
        let overlaps = |other: &Pending| {
            other.start < start + blocks && start < other.start + u64::from(other.blocks)
        };
        if self.pending.values().any(overlaps) {
            return;
        }
        let operation = match random.below(10) {
            0..=4 => Operation::Write,
            5..=8 => Operation::Read,
            _ => Operation::WriteZeroes,
        };
        let slot = self.free.pop().expect("looked at");
        let buffer = self.pool.acquire().expect("one for each slot");
        let bytes = bytes_usize(blocks) * BLOCK;
        let segment = self.pool.segment(&buffer).part(0, bytes);
        let tag = 1 + (random.below(255) as u8);
        segment.fill(if operation == Operation::Write {
            tag
        } else {
            0xEE
        });
        let cut = bytes_usize(random.below(bytes_u64(bytes)));
        let segments = if operation == Operation::WriteZeroes {
            self.lists.lend(slot, |_| {});
            SegmentList::EMPTY
        } else {
            self.lists.lend(slot, |list| {
                list.extend([segment.part(0, cut), segment.part(cut, bytes - cut)]);
            })
        };
        let cookie = Cookie(self.next);
        let blocks = u32::try_from(blocks).expect("few");
        let request = Request {
            operation,
            start,
            blocks,
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie,
        };
        let reactor = ReactorIndex::from_at(random.position(world.shards.len()));
        self.pending.insert(
            self.next,
            Pending {
                operation,
                start,
                blocks,
                buffer,
                slot,
                tag,
            },
        );
        self.next += 1;
        if !world.submit(reactor, request) {
            self.end(cookie.0);
        }
    }

    fn end(&mut self, cookie: u64) -> Answered {
        let done = self.pending.remove(&cookie).expect("under way");
        let bytes = usize::try_from(done.blocks).expect("few") * BLOCK;
        let mut content = vec![0; bytes];
        self.pool
            .segment(&done.buffer)
            .part(0, bytes)
            .copy_to_slice(&mut content);
        self.lists.take_back(done.slot);
        self.free.push(done.slot);
        let Pending {
            operation,
            start,
            blocks,
            tag,
            buffer,
            ..
        } = done;
        self.pool.release(buffer);
        Answered {
            operation,
            start,
            blocks,
            tag,
            content,
        }
    }

    /// Judges what was answered.
    fn collect(&mut self, world: &mut World) {
        let answered: Vec<u64> = world
            .outside
            .completions
            .iter()
            .map(|(_, completion)| completion.cookie.0)
            .collect();
        for cookie in answered {
            let status = take_completion(world, cookie).expect("looked at");
            let done = self.end(cookie);
            assert_eq!(
                status,
                Status::Ok,
                "{:?} of {}+{}",
                done.operation,
                done.start,
                done.blocks
            );
            for index in 0..bytes_usize(u64::from(done.blocks)) {
                let block = bytes_usize(done.start) + index;
                match done.operation {
                    Operation::Write => self.content[block] = done.tag,
                    Operation::WriteZeroes => self.content[block] = 0,
                    Operation::Read => {
                        let got = &done.content[index * BLOCK..(index + 1) * BLOCK];
                        let want = self.content[block];
                        assert!(
                            got.iter().all(|&byte| byte == want),
                            "block {block}: {} for {want}",
                            got[0]
                        );
                    }
                    Operation::Flush | Operation::Discard => unreachable!(),
                }
            }
        }
    }
}

struct Answered {
    operation: Operation,
    start: u64,
    blocks: u32,
    tag: u8,
    content: Vec<u8>,
}

fn geometry(case: &Case) -> Geometry {
    Geometry::new(GeometryParameters {
        level: case.level,
        members: case.members,
        parity: case.parity,
        group_size: case.group,
        chunk_bytes: case.chunk,
        block: BlockSize::B512,
        member_data_blocks: (case.chunk / 512) * 40,
    })
    .expect("a good shape")
}

fn check_parity(world: &World, geometry: &Geometry, layout: &Layout) {
    let code = parity_of(geometry);
    for stripe in 0..geometry.stripes() {
        let stripe = StripeIndex(stripe);
        let chunk = |role: usize| -> Vec<u8> {
            let role = units::Role::from_at(role);
            let (index, member) = world.shards[0].map().member(stripe, role);
            let drive = member
                .drive
                .unwrap_or_else(|| panic!("{index} has a drive"));
            let first = layout.data.offset / 512 + geometry.member_block(stripe);
            (first..first + u64::from(geometry.chunk_blocks()))
                .flat_map(|block| world.outside.drives[drive.at()].block(block))
                .collect()
        };
        let data: Vec<Vec<u8>> = (0..geometry.data()).map(chunk).collect();
        for (row, factors) in code.iter().enumerate() {
            let mut expected = vec![0; data[0].len()];
            for (factor, chunk) in factors.iter().zip(&data) {
                model::field::add_scaled(&mut expected, *factor, chunk);
            }
            assert!(
                expected == chunk(geometry.data() + row),
                "{stripe} row {row}"
            );
        }
    }
}

fn parity_of(geometry: &Geometry) -> Vec<Vec<u8>> {
    let row = |row| {
        (0..geometry.data())
            .map(|column| model::field::coefficient(row, column))
            .collect()
    };
    (0..geometry.parity()).map(row).collect()
}

fn history(case: &Case, seed: u64) {
    let geometry = geometry(case);
    let layout = Layout::for_member(64 << 20, BlockSize::B512, case.members).expect("large enough");
    let mut random = Random::new(seed ^ 0x5EED);
    let resynced = random.happens(500);
    let mut drives: Vec<SimDrive> = (0..case.members + 6)
        .map(|_| SimDrive::new(BlockSize::B512))
        .collect();
    drives.truncate(case.members + 6);
    let reactors = 1 + random.position(3);
    let config = new_config(&geometry, resynced);
    let mut world = World::start(geometry, config, &layout, (drives, reactors), seed);
    let mut client = Client::new(geometry.blocks());
    let mut spare = case.members;
    let mut command = 1000;
    for round in 0..1500 {
        client.submit(&mut world, &mut random, u64::from(geometry.stripe_blocks()));
        for _ in 0..random.below(20) {
            world.step();
        }
        client.collect(&mut world);
        if geometry.parity() == 0 || round % 50 != 0 {
            continue;
        }
        disturb(
            &mut world,
            &geometry,
            &layout,
            &mut random,
            (&mut spare, &mut command),
        );
    }
    world.run_until(|world| world.shards.iter().all(|shard| shard.pending() == 0));
    client.collect(&mut world);
    assert!(client.pending.is_empty());
    // Every place is filled again, and all is consistent.
    for member in 0..case.members {
        let index = MemberIndex::from_at(member);
        if world.shards[0].map().members[member].state == MapState::Lost {
            replace(&mut world, &layout, index, (&mut spare, &mut command));
        }
    }
    for drive in &mut world.outside.drives {
        drive.bad.clear();
    }
    world
        .command(command + 1, Command::Passes { run: true })
        .expect("runs");
    world.run_until(World::is_quiet);
    assert!(world.shards[0].map().is_optimal(), "seed {seed}");
    check_parity(&world, &geometry, &layout);
    world.command(command + 2, Command::Stop).expect("stops");
}

/// Fails, damages or replaces a member, within what the array survives.
fn disturb(
    world: &mut World,
    geometry: &Geometry,
    layout: &Layout,
    random: &mut Random,
    (spare, command): (&mut usize, &mut u64),
) {
    let members = world.shards[0].map().members.clone();
    let member = random.position(members.len());
    let index = MemberIndex::from_at(member);
    let group = member / geometry.group_members();
    let in_group = |position: &usize| position / geometry.group_members() == group;
    let out = (0..members.len())
        .filter(in_group)
        .filter(|&position| members[position].state != MapState::InSync)
        .count();
    let pulled = |world: &World| {
        let gone = |position: &usize| {
            let drive = members[*position].drive;
            drive.is_some_and(|drive| world.outside.drives[drive.at()].gone)
                && members[*position].state == MapState::InSync
        };
        (0..members.len()).filter(in_group).filter(gone).count()
    };
    let damaged = world
        .outside
        .drives
        .iter()
        .any(|drive| !drive.bad.is_empty());
    let trusted = world.shards[0].map().trusted_until.0 >= geometry.stripes();
    *command += 1;
    match members[member].state {
        MapState::Lost if *spare < world.outside.drives.len() => {
            replace(world, layout, index, (spare, command));
        }
        MapState::InSync if trusted && !damaged && out + pulled(world) < geometry.parity() => {
            let drive = members[member].drive.expect("in sync").at();
            match random.below(3) {
                0 => world.outside.drives[drive].gone = true,
                1 => {
                    // One bad block in each of a few stripes, on this member only.
                    for _ in 0..4 {
                        let stripe = StripeIndex(random.below(geometry.stripes()));
                        let lane = random.below(u64::from(geometry.chunk_blocks()));
                        let block = layout.data.offset / 512 + geometry.member_block(stripe) + lane;
                        world.outside.drives[drive].bad.insert(block);
                    }
                }
                _ => {
                    // Its drive may have been pulled and its exclusion be under way.
                    let answer = world.command(*command, Command::Fail { member: index });
                    let out = world.shards[0].map().members[member].state == MapState::Lost;
                    assert!(out, "{answer:?}");
                }
            }
        }
        MapState::InSync | MapState::Lost | MapState::Rebuilding { .. } => {}
    }
    if damaged && random.happens(500) {
        for drive in &mut world.outside.drives {
            drive.bad.clear();
        }
    }
}

fn replace(
    world: &mut World,
    layout: &Layout,
    member: MemberIndex,
    (spare, command): (&mut usize, &mut u64),
) {
    let drive = *spare;
    *spare += 1;
    *command += 1;
    let config = new_config(&world.shards[0].map().geometry, true);
    let mut record = config.members[0].clone();
    record.uuid = uuid::Uuid::from_u128(u128::from(*command) << 32);
    record.state = MemberState::InSync;
    if world.outside.drives.len() <= drive {
        world.outside.drives.push(SimDrive::new(BlockSize::B512));
    }
    let place = place(layout, drive);
    world
        .command(
            *command,
            Command::Replace {
                member,
                place,
                record,
                copied: None,
            },
        )
        .expect("replaces");
}

#[test]
fn random_histories_keep_every_block_and_all_parity() {
    let case = |level, members, parity, group, chunk| Case {
        level,
        members,
        parity,
        group,
        chunk,
    };
    let cases = [
        case(Level::L0, 3, None, None, 4096),
        case(Level::L1, 2, None, None, 4096),
        case(Level::L1, 3, None, None, 8192),
        case(Level::L10, 4, None, None, 4096),
        case(Level::L5, 3, None, None, 4096),
        case(Level::L5, 5, None, None, 8192),
        case(Level::L6, 4, None, None, 4096),
        case(Level::L6, 6, None, None, 4096),
        case(Level::L7, 7, None, None, 4096),
        case(Level::Nm, 8, Some(4), None, 4096),
        case(Level::L50, 6, None, Some(3), 4096),
        case(Level::L60, 8, None, Some(4), 4096),
        case(Level::L5, 3, None, None, 128 << 10),
    ];
    for (position, case) in cases.iter().enumerate() {
        for seed in 0..3 {
            println!("{:?} of {} seed {seed}", case.level, case.members);
            history(case, seed * 100 + bytes_u64(position));
        }
    }
}
