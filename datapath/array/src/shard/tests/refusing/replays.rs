//! What a start makes of a refused write and of what came after it, wherever the engine ended.

use std::collections::BTreeSet;
use std::time::Duration;

use block::{Operation, Status};
use units::{BlockSize, MemberIndex, Role, StripeIndex, bytes_usize};

use super::super::{Bench, MEMBERS, REGION_STRIPES, STRIPE_BLOCKS, Shape, member_of};
use super::{BLOCK, Block, CHUNK, Drives, NEW, START, STRIPE, before, degraded, row, writes};
use crate::format::{LOG_HEADER_BYTES, Layout, Superblock};
use crate::log::{RefusedRedo, Replay, agree_with};
use crate::regions::{RegionMap, RegionSpace};

/// What is written after the write that fails, and is acknowledged.
const LATER: u8 = 0x55;

/// What there is when the engine ends.
struct End {
    drives: Drives,
    first: Option<Status>,
    later: Option<Status>,
    listed: BTreeSet<u64>,
}

pub(super) fn layout() -> Layout {
    Layout::for_member(64 << 20, BlockSize::B512, MEMBERS).expect("large enough")
}

impl Drives {
    pub(super) fn snapshot(&self) -> Drives {
        Drives {
            content: self.content.clone(),
            refuses: self.refuses.clone(),
            ..Drives::default()
        }
    }

    fn bytes(&self, drive: usize, offset: u64, length: usize) -> Vec<u8> {
        let first = offset / BLOCK;
        let blocks = first..first + u64::try_from(length).expect("few") / BLOCK;
        let block = |at| self.content.get(&(drive, at)).copied();
        blocks
            .flat_map(|at| block(at).unwrap_or([0; 512]))
            .collect()
    }

    /// What a start does without the member that is out; whether it can. `takes`: the drive takes
    /// what it has refused.
    pub(super) fn replay(&mut self, out: usize, takes: bool) -> bool {
        let (geometry, layout) = (Shape::default().geometry(), layout());
        let superblock = Superblock {
            geometry,
            layout,
            ..crate::format::tests::superblock(0, 6, 256 << 20)
        };
        let config = crate::format::tests::config(3);
        let area = (layout.region_map.offset, layout.region_map.length);
        let space = RegionSpace::new(&geometry, REGION_STRIPES, area).expect("fits");
        let regions = RegionMap::new(space, config.array);
        let is_here = |member: MemberIndex| member.at() != out;
        let mut replay = Replay::new(&config, &superblock, &regions, is_here);
        let log = superblock.log();
        for drive in (0..MEMBERS).filter(|&drive| drive != out) {
            for slot in 0..log.slots() {
                let offset = log.slot(slot);
                let header = self.bytes(drive, offset, LOG_HEADER_BYTES);
                let member = MemberIndex::from_at(drive);
                if let Some(length) = replay.payload_bytes(member, &header) {
                    let from = offset + u64::try_from(LOG_HEADER_BYTES).expect("few");
                    let length = length.next_multiple_of(512);
                    replay.take(member, &header, self.bytes(drive, from, length));
                }
            }
        }
        let redo = replay.redo();
        let mut refused = Vec::new();
        for part in &redo {
            let blocks = part.bytes.chunks(512).enumerate();
            for (at, bytes) in blocks {
                let offset = part.offset + 512 * u64::try_from(at).expect("few");
                let place = (part.member.at(), (layout.data.offset + offset) / BLOCK);
                let bytes: Block = bytes.try_into().expect("a block");
                if takes || !self.refuses.contains(&place) {
                    self.content.insert(place, bytes);
                    continue;
                }
                let holds = self.content.get(&place).copied().unwrap_or([0; 512]);
                if holds != bytes {
                    refused.push(RefusedRedo {
                        member: part.member,
                        offset,
                        bytes: bytes.to_vec(),
                        holds: holds.to_vec(),
                    });
                }
            }
        }
        if refused.is_empty() {
            return true;
        }
        let agrees =
            agree_with(&geometry, &redo, &refused, |member, _| is_here(member)).expect("memory");
        let Some(agrees) = agrees else {
            return false;
        };
        for part in agrees {
            let place = (part.member.at(), (layout.data.offset + part.offset) / BLOCK);
            let bytes = part.bytes.as_slice().try_into().expect("a block");
            self.content.insert(place, bytes);
        }
        true
    }

    /// A block of the stripe, as its role has it or the others tell.
    pub(super) fn block(&self, out: usize, block: u64) -> Block {
        let geometry = Shape::default().geometry();
        let (stripe, within) = (StripeIndex(STRIPE), block - START);
        let lane = within % CHUNK;
        let of_role = |role: usize| {
            let member = geometry.member(stripe, Role(u8::try_from(role).expect("few")));
            let at = geometry.member_block(stripe) + lane + layout().data.offset / BLOCK;
            let content = self.content.get(&(member.at(), at)).copied();
            (member.at(), content.unwrap_or([0; 512]))
        };
        let role = bytes_usize(within / CHUNK);
        let (member, content) = of_role(role);
        if member != out {
            return content;
        }
        let mut told = [0; 512];
        for (_, other) in (0..MEMBERS).filter(|&other| other != role).map(of_role) {
            told.iter_mut()
                .zip(other)
                .for_each(|(byte, more)| *byte ^= more);
        }
        told
    }
}

/// A write that is refused, and one to the lost chunk of its row later. What there was after each
/// answer of a drive.
fn ends(case: Case, asked: (Operation, u64, u32)) -> Vec<End> {
    let Case { lost, refusing, .. } = case;
    let (mut bench, mut drives) = degraded(lost, refusing);
    (drives.takes, drives.unreadable) = (case.takes, case.unreadable);
    let mut ends = Vec::new();
    let mut go = |bench: &mut Bench, drives: &mut Drives, cookies: (u64, Option<u64>)| {
        for _ in 0..30 {
            bench.poll();
            while !bench.outside.asked.is_empty() {
                let request = bench.outside.asked.remove(0);
                bench.outside.room += 1;
                let status = drives.carry_out(&request);
                bench
                    .shard
                    .drive_done(request.cookie, status, &mut bench.outside);
                bench.poll();
                let blocks = START..START + STRIPE_BLOCKS;
                let listed = blocks.filter(|&block| bench.shard.map.lost_blocks.has(block));
                ends.push(End {
                    drives: drives.snapshot(),
                    first: bench.verdict(cookies.0),
                    later: cookies.1.and_then(|cookie| bench.verdict(cookie)),
                    listed: listed.collect(),
                });
            }
            bench.pass(Duration::from_millis(100));
        }
    };
    bench.fill(NEW);
    let (operation, start, blocks) = asked;
    let write = bench.ask(operation, start, blocks);
    go(&mut bench, &mut drives, (write, None));
    assert!(bench.verdict(write).is_some());
    if refusing == 2 {
        drives.refuses.clear();
    }
    drives.unreadable = false;
    bench.fill(LATER);
    let later = bench.ask(Operation::Write, row()[usize::from(lost)], 1);
    go(&mut bench, &mut drives, (write, Some(later)));
    assert_eq!(bench.verdict(later), Some(Status::Ok));
    ends
}

/// What is lost, what is refused, and how.
#[derive(Clone, Copy, Debug)]
struct Case {
    lost: u8,
    refusing: u8,
    /// The drive has taken so much of what it says that it has not.
    takes: usize,
    /// It cannot be read either, before the later write.
    unreadable: bool,
}

fn cases() -> impl Iterator<Item = Case> {
    let roles = [(0, 1), (1, 0), (0, 2), (1, 2)];
    roles.into_iter().flat_map(|(lost, refusing)| {
        let case = move |(takes, unreadable)| Case {
            lost,
            refusing,
            takes,
            unreadable,
        };
        // Parity that cannot be read keeps a start waiting (017, *Left open*).
        let unreadable = (refusing != 2).then_some((0, true));
        let ways = [(0, false), (256, false), (512, false)];
        ways.into_iter().chain(unreadable).map(case)
    })
}

#[test]
fn whatever_a_start_does_again_no_acknowledged_write_is_lost() {
    let (mut starts, mut refuses) = (0, 0);
    for case in cases() {
        let Case { lost, refusing, .. } = case;
        for asked in writes() {
            let what = format!("{asked:?}, {case:?}");
            let (operation, start, blocks) = asked;
            let new = if operation == Operation::Write {
                NEW
            } else {
                0
            };
            let lost_block = row()[usize::from(lost)];
            let out = {
                let bench = Bench::new();
                member_of(&bench, STRIPE, lost)
            };
            for (at, end) in ends(case, asked).into_iter().enumerate() {
                for takes in [true, false] {
                    let mut drives = end.drives.snapshot();
                    if !drives.replay(out, takes) {
                        // Parity that is refused, before the log is told what it holds.
                        assert!(refusing == 2 && end.first.is_none(), "{what}, at {at}");
                        refuses += 1;
                        continue;
                    }
                    starts += 1;
                    for block in START..START + STRIPE_BLOCKS {
                        let content = drives.block(out, block);
                        let torn = |&byte: &u8| byte == before(block) || byte == new;
                        let is_unknown = case.takes == 256 || case.unreadable;
                        let torn = case.takes == 256 && content.iter().all(torn);
                        let whole = content.iter().all(|&byte| byte == content[0]);
                        let is = |byte: u8| whole && content[0] == byte;
                        let asked = (start..start + u64::from(blocks)).contains(&block);
                        let later = block == lost_block;
                        let is_listed = end.listed.contains(&block);
                        assert!(
                            !is_listed || asked || (later && is_unknown),
                            "{what}, ended at {at}: {block} is given up"
                        );
                        let is_right = if later && end.later.is_some() {
                            is(LATER)
                        } else {
                            let done = asked && end.first == Some(Status::Ok);
                            let fits = (is(before(block)) && !done) || (asked && is(new));
                            let torn = torn && asked && !done;
                            fits || torn || (later && is(LATER)) || is_listed
                        };
                        assert!(
                            is_right,
                            "{what}, ended at {at}, {takes}, later {:?}: {block} is {:?}",
                            end.later,
                            &content[..2]
                        );
                    }
                }
            }
        }
    }
    assert!(starts > 1000 && refuses > 0, "{starts}, {refuses}");
}
