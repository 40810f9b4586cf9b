//! Blocks that a drive refuses to write, on a member that the array cannot do without.

mod clearing;
mod meanwhile;
mod records;
mod regions;
mod replays;
mod slots;
mod worse;

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Operation, Status};
use units::{MemberIndex, Role, StripeIndex};

use super::{Bench, STRIPE_BLOCKS, member_of};
use crate::command::Command;
use crate::io::{Event, MemberRequest};
use crate::map::MapState;

const STRIPE: u64 = 5;
const START: u64 = STRIPE * STRIPE_BLOCKS;
const CHUNK: u64 = STRIPE_BLOCKS / 2;
const LANE: u64 = 3;
const BLOCK: u64 = 512;

type Block = [u8; 512];

/// Drives with content, and what one of them refuses.
#[derive(Default)]
struct Drives {
    content: BTreeMap<(usize, u64), Block>,
    refuses: Vec<(usize, u64)>,
    /// This one takes no writes at all.
    read_only: Option<usize>,
    /// What is refused cannot be read either.
    unreadable: bool,
    /// Blocks that cannot be read.
    bad: Vec<(usize, u64)>,
    /// So many bytes of what is refused are written all the same.
    takes: usize,
    writes: Vec<(usize, u64)>,
}

impl Drives {
    fn carry_out(&mut self, request: &MemberRequest) -> Status {
        let drive = request.drive.at();
        let blocks = request.offset / BLOCK..(request.offset + request.length).div_ceil(BLOCK);
        let refuses = blocks
            .clone()
            .any(|block| self.refuses.contains(&(drive, block)));
        match request.operation {
            Operation::Flush => {}
            Operation::Read if refuses && self.unreadable => return Status::Media,
            Operation::Read if self.is_bad(drive, blocks.clone()) => return Status::Media,
            Operation::Read => self.read(drive, blocks, request),
            Operation::Write | Operation::WriteZeroes | Operation::Discard => {
                if self.read_only == Some(drive) {
                    return Status::Media;
                }
                let bytes = if request.operation == Operation::Write {
                    Bench::content(request)
                } else {
                    vec![0; usize::try_from(request.length).expect("few")]
                };
                for (block, bytes) in blocks.zip(bytes.chunks(512)) {
                    let mut content = [0; 512];
                    content[..bytes.len()].copy_from_slice(bytes);
                    if self.refuses.contains(&(drive, block)) {
                        let old = self.content.get(&(drive, block)).copied();
                        content[self.takes..]
                            .copy_from_slice(&old.unwrap_or([0; 512])[self.takes..]);
                    }
                    self.content.insert((drive, block), content);
                    self.writes.push((drive, block));
                }
                if refuses {
                    return Status::Media;
                }
            }
        }
        Status::Ok
    }

    fn is_bad(&self, drive: usize, mut blocks: std::ops::Range<u64>) -> bool {
        blocks.any(|block| self.bad.contains(&(drive, block)))
    }

    fn read(&self, drive: usize, blocks: std::ops::Range<u64>, request: &MemberRequest) {
        let block = |block| self.content.get(&(drive, block)).copied();
        let bytes: Vec<u8> = blocks
            .flat_map(|at| block(at).unwrap_or([0; 512]))
            .collect();
        let mut at = 0;
        for segment in request.segments.as_slice() {
            segment.copy_from_slice(&bytes[at..at + segment.len()]);
            at += segment.len();
        }
    }

    fn answer(&mut self, bench: &mut Bench) {
        bench.poll();
        let mut count = 0;
        while !bench.outside.asked.is_empty() {
            count += 1;
            assert!(count < 10_000, "it asks again and again");
            self.answer_next(bench);
        }
    }

    fn answer_next(&mut self, bench: &mut Bench) {
        let request = bench.outside.asked.remove(0);
        bench.outside.room += 1;
        let status = self.carry_out(&request);
        let cookie = request.cookie;
        bench.shard.drive_done(cookie, status, &mut bench.outside);
        bench.poll();
    }

    /// The same, for so many tenths of a second.
    fn answer_for(&mut self, bench: &mut Bench, tenths: u32) {
        for _ in 0..tenths {
            self.answer(bench);
            bench.pass(Duration::from_millis(100));
        }
    }

    /// What becomes of a request within three seconds.
    fn outcome(&mut self, bench: &mut Bench, asked: (Operation, u64, u32)) -> Option<Status> {
        let (operation, start, blocks) = asked;
        let cookie = bench.ask(operation, start, blocks);
        for _ in 0..30 {
            self.answer(bench);
            if let Some(verdict) = bench.verdict(cookie) {
                return Some(verdict);
            }
            bench.pass(Duration::from_millis(100));
        }
        None
    }

    /// A block of the array as a guest reads it, if it can.
    fn look(&mut self, bench: &mut Bench, block: u64) -> Option<u8> {
        bench.fill(0xEE);
        let read = self.outcome(bench, (Operation::Read, block, 1));
        let memory = bench.memory.as_ref().expect("there is one");
        let mut bytes = [0; 512];
        bench
            .pool
            .segment(memory)
            .part(0, 512)
            .copy_to_slice(&mut bytes);
        let all = bytes.iter().all(|&byte| byte == bytes[0]);
        assert!(all, "a block is whole");
        (read == Some(Status::Ok)).then_some(bytes[0])
    }
}

/// The drive and the block of a role in the lane.
fn place(bench: &Bench, role: u8) -> (usize, u64) {
    let map = &bench.shard.map;
    let (_, member) = map.member(StripeIndex(STRIPE), Role(role));
    let block = map.geometry.member_block(StripeIndex(STRIPE)) + LANE;
    (
        member_of(bench, STRIPE, role),
        member.data_offset / BLOCK + block,
    )
}

/// What a block of the stripe holds before: never the same twice.
fn before(block: u64) -> u8 {
    u8::try_from(block - START).expect("few") + 1
}

const NEW: u8 = 0x77;

/// An array that lacks the member with a role in the stripe, and whose member with another role
/// refuses to write its block in the lane.
fn degraded(lost: u8, refusing: u8) -> (Bench, Drives) {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::default();
    for block in START..START + STRIPE_BLOCKS {
        bench.fill(before(block));
        let written = drives.outcome(&mut bench, (Operation::Write, block, 1));
        assert_eq!(written, Some(Status::Ok));
    }
    let member = member_of(&bench, STRIPE, lost);
    let member = MemberIndex::from_at(member);
    bench.shard.command(7, Command::Fail { member });
    drives.answer(&mut bench);
    let spot = place(&bench, refusing);
    drives.refuses.push(spot);
    drives.writes.clear();
    (bench, drives)
}

/// The data blocks that have the refused place in their row.
fn row() -> [u64; 2] {
    [START + LANE, START + LANE + CHUNK]
}

/// Each kind of write that meets the block: where, and how many blocks.
fn writes() -> Vec<(Operation, u64, u32)> {
    let [first, second] = row();
    let all = u32::try_from(STRIPE_BLOCKS).expect("few");
    vec![
        (Operation::Write, first, 1),
        (Operation::Write, second, 1),
        (Operation::Write, first - 1, 3),
        (Operation::Write, second - 2, 4),
        (Operation::Write, START, all),
        (Operation::Write, first - 1, 9),
        (Operation::WriteZeroes, first - 1, 3),
        (Operation::WriteZeroes, START, all),
    ]
}

/// Whether a write has to write a role's block in the lane.
fn needs(role: u8, (_, start, blocks): (Operation, u64, u32)) -> bool {
    let range = start..start + u64::from(blocks);
    match role {
        2 => row().iter().any(|block| range.contains(block)),
        data => range.contains(&row()[usize::from(data)]),
    }
}

#[test]
fn a_write_that_meets_a_refused_block_fails_and_nothing_else_is_lost() {
    for (lost, refusing) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        for asked in writes() {
            let (mut bench, mut drives) = degraded(lost, refusing);
            let what = format!("{asked:?} without role {lost}, role {refusing} refuses");
            bench.fill(NEW);
            let verdict = drives.outcome(&mut bench, asked);
            let fails = needs(refusing, asked);
            let right = if fails { Status::Media } else { Status::Ok };
            assert_eq!(verdict, Some(right), "{what}");
            assert_eq!(bench.shard.tickets.in_use(), 0, "{what}");
            assert!(
                !bench.shard.map.is_holding(),
                "{what}: nobody is waited for"
            );
            let (operation, start, blocks) = asked;
            let new = if operation == Operation::Write {
                NEW
            } else {
                0
            };
            for block in START..START + STRIPE_BLOCKS {
                let asked = (start..start + u64::from(blocks)).contains(&block);
                let there = drives.look(&mut bench, block);
                let old = before(block);
                let listed = bench.shard.map.lost_blocks.has(block);
                match there {
                    Some(byte) if asked && fails => {
                        assert!(byte == new || byte == old, "{what}: {block} is {byte}");
                    }
                    Some(byte) => assert_eq!(byte, if asked { new } else { old }, "{what}"),
                    None => assert!(asked && fails && listed, "{what}: {block} is lost"),
                }
                let told = refusing == 2 && row().contains(&block);
                assert!(!listed || told, "{what}: {block} is given up");
            }
        }
    }
}

#[test]
fn a_discard_that_might_meet_such_a_block_is_ignored() {
    let all = u32::try_from(STRIPE_BLOCKS).expect("few");
    let discard = (Operation::Discard, START, all);
    let (mut bench, mut drives) = degraded(0, 1);
    let verdict = drives.outcome(&mut bench, discard);
    assert_eq!(verdict, Some(Status::Ok));
    assert!(!bench.shard.map.is_holding() && drives.writes.is_empty());
    for block in START..START + STRIPE_BLOCKS {
        assert_eq!(drives.look(&mut bench, block), Some(before(block)));
    }
    let mut bench = Bench::home(|_, _| {});
    let verdict = drives.outcome(&mut bench, discard);
    assert_eq!(verdict, Some(Status::Ok));
    let member = member_of(&bench, STRIPE, 1);
    assert_eq!(
        bench.shard.map.members[member].state,
        MapState::Lost,
        "not needed"
    );
}

#[test]
fn a_drive_that_takes_no_writes_at_all_is_waited_for() {
    // What is logged meets that at the log, and what is not in its place.
    for lost in [0, 2] {
        let (mut bench, mut drives) = degraded(lost, 1);
        drives.refuses.clear();
        drives.read_only = Some(member_of(&bench, STRIPE, 1));
        let verdict = drives.outcome(&mut bench, (Operation::Write, row()[1], 1));
        assert_eq!(verdict, None, "without role {lost}");
        assert!(bench.shard.map.is_holding());
        drives.read_only = None;
        let verdict = drives.outcome(&mut bench, (Operation::Write, row()[1] + 1, 1));
        assert_eq!(verdict, Some(Status::Ok));
        bench.pass(Duration::from_secs(2));
        drives.answer(&mut bench);
        let done = bench.outside.completions.iter();
        assert!(done.clone().count() > 1 && done.clone().all(|done| done.status.is_ok()));
    }
}

#[test]
fn a_drive_that_is_not_needed_is_left_out_when_it_refuses_a_block() {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::default();
    drives.refuses.push(place(&bench, 1));
    let verdict = drives.outcome(&mut bench, (Operation::Write, row()[1], 1));
    assert_eq!(verdict, Some(Status::Ok));
    let out = member_of(&bench, STRIPE, 1);
    assert_eq!(bench.shard.map.members[out].state, MapState::Lost);
}

#[test]
fn a_block_that_is_refused_and_cannot_be_read_costs_nothing_but_its_row() {
    for (lost, refusing) in [(0, 1), (1, 0)] {
        let (mut bench, mut drives) = degraded(lost, refusing);
        drives.unreadable = true;
        bench.fill(NEW);
        let bad = row()[usize::from(refusing)];
        let verdict = drives.outcome(&mut bench, (Operation::Write, bad - 1, 3));
        assert_eq!(verdict, Some(Status::Media));
        for block in START..START + STRIPE_BLOCKS {
            let there = drives.look(&mut bench, block);
            if row().contains(&block) {
                assert_eq!(there, None, "{block}: nobody can tell");
            } else if (bad - 1..bad + 2).contains(&block) {
                assert!(there == Some(NEW) || there == Some(before(block)));
            } else {
                assert_eq!(there, Some(before(block)));
            }
        }
    }
}

#[test]
fn it_is_told_of_and_a_write_elsewhere_goes_well_meanwhile() {
    let (mut bench, mut drives) = degraded(0, 1);
    bench.fill(NEW);
    let [_, bad] = row();
    let refused = bench.ask(Operation::Write, bad, 1);
    drives.answer(&mut bench);
    assert_eq!(bench.verdict(refused), None, "it may be taken yet");
    let other = drives.outcome(&mut bench, (Operation::Write, bad + 1, 1));
    assert_eq!((other, bench.verdict(refused)), (Some(Status::Ok), None));
    for _ in 0..15 {
        bench.pass(Duration::from_millis(100));
        drives.answer(&mut bench);
    }
    assert_eq!(bench.verdict(refused), Some(Status::Media));
    let told = bench.outside.events.iter();
    let told = told.filter(|event| matches!(event, Event::WriteRefused { .. }));
    let member = MemberIndex::from_at(member_of(&bench, STRIPE, 1));
    let told: Vec<&Event> = told.collect();
    let (first, rows) = (bad, 1);
    let refused = Event::WriteRefused {
        member,
        first,
        rows,
    };
    assert_eq!(told, [&refused]);
}

/// A kernel makes one request of neighbours that come together, and one error.
#[test]
fn blocks_of_a_refused_write_are_tried_one_after_another() {
    let (mut bench, mut drives) = degraded(0, 1);
    bench.fill(NEW);
    let [_, bad] = row();
    let write = bench.ask(Operation::Write, bad - 1, 3);
    let drive = member_of(&bench, STRIPE, 1);
    let (mut most, mut tries) = (0, 0);
    for _ in 0..2000 {
        bench.outside.now = bench.outside.now + Duration::from_millis(2);
        bench.turn();
        let asked = std::mem::take(&mut bench.outside.asked);
        let writes = |it: &&MemberRequest| it.drive.at() == drive && it.operation.changes();
        let writes = asked.iter().filter(writes).count();
        most = most.max(writes);
        tries += writes;
        for request in asked {
            bench.outside.room += 1;
            let status = drives.carry_out(&request);
            let cookie = request.cookie;
            bench.shard.drive_done(cookie, status, &mut bench.outside);
        }
    }
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert!(most == 1 && tries > 10, "{most} at once, {tries} in all");
    let told = bench.outside.events.iter();
    let mut rows = 0;
    for event in told {
        if let Event::WriteRefused { rows: more, .. } = event {
            rows += more;
        }
    }
    assert_eq!(rows, 1, "of three");
    assert_eq!(drives.look(&mut bench, bad - 1), Some(NEW));
    assert_eq!(drives.look(&mut bench, bad), Some(before(bad)));
}

#[test]
fn a_block_that_is_taken_within_a_second_after_all_is_written() {
    let (mut bench, mut drives) = degraded(0, 1);
    bench.fill(NEW);
    let [_, bad] = row();
    let refused = bench.ask(Operation::Write, bad, 1);
    drives.answer(&mut bench);
    bench.pass(Duration::from_millis(500));
    drives.answer(&mut bench);
    drives.refuses.clear();
    bench.pass(Duration::from_millis(100));
    drives.answer(&mut bench);
    assert_eq!(bench.verdict(refused), Some(Status::Ok));
    assert_eq!(drives.look(&mut bench, bad), Some(NEW));
}

#[test]
fn a_block_of_a_drive_that_takes_writes_again_when_it_is_tried_elsewhere_is_written() {
    // At the first trial; or it takes none at the second, after the first went well.
    for (trials, takes_none) in [(1, 0), (3, 2)] {
        let (mut bench, mut drives) = degraded(0, 1);
        bench.fill(NEW);
        let [_, bad] = row();
        let refused = bench.ask(Operation::Write, bad, 1);
        let drive = drives.refuses[0].0;
        let mut members = bench.shard.map.members.iter();
        let refuses = members.find(|member| member.drive.is_some_and(|it| it.at() == drive));
        let trial_offset = refuses.expect("it has a drive").trial_offset;
        let is_trial = |request: &MemberRequest| {
            let changes = request.operation == Operation::Write;
            changes && request.drive.at() == drive && request.offset == trial_offset
        };
        let mut tried = 0;
        for _ in 0..60 {
            bench.poll();
            while let Some(next) = bench.outside.asked.first() {
                if is_trial(next) {
                    tried += 1;
                    drives.read_only = (tried == takes_none).then_some(drive);
                    if tried == trials {
                        drives.refuses.clear();
                    }
                }
                drives.answer_next(&mut bench);
            }
            bench.pass(Duration::from_millis(100));
        }
        assert_eq!(bench.verdict(refused), Some(Status::Ok));
        assert_eq!(tried, trials);
        assert_eq!(drives.look(&mut bench, bad), Some(NEW));
    }
}
