//! Bad blocks where a stop may have torn parity from data, and the resync has not been there yet.

use std::sync::Arc;
use std::time::Duration;

use block::{Operation, Status};
use units::{Role, StripeIndex};

use super::{Bench, STRIPE_BLOCKS, Shape, member_of};
use crate::command::Command;
use crate::format::WriteHole;
use crate::geometry::Level;
use crate::io::{Event, MemberRequest, Message};
use crate::losses::LostBlocks;
use crate::map::{ArrayMap, MapState, Pass, Window};
use crate::regions::Suspects;

/// The stripe that is looked at, its first block, and where its chunks have a bad block.
const STRIPE: u64 = 9;
const START: u64 = STRIPE * STRIPE_BLOCKS;
const CHUNK: u64 = STRIPE_BLOCKS / 2;
const LANE: u64 = 3;
/// Its block of data role 0, and of data role 1.
const BAD: u64 = START + LANE;
const BESIDE: u64 = BAD + CHUNK;

/// Nothing was resynced.
fn doubt(map: &mut ArrayMap) {
    map.trusted_until = StripeIndex(0);
    map.suspects = Arc::new(Suspects::all(map.suspects.space()));
}

/// A shard of an array whose regions are all suspect.
fn suspect() -> Bench {
    let mut bench = Bench::new();
    bench.install(doubt);
    bench
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// They take no writes of bad blocks either.
    Refusing,
    /// They say that they take them, and cannot read them afterwards.
    Spent,
    /// Role 2 reads as something that agrees with no other.
    Torn,
}

/// Drives with blocks that cannot be read until they are written.
struct Drives {
    /// Which drive, and the byte.
    bad: Vec<(usize, u64)>,
    kind: Kind,
    /// What they were asked in the lane: which role, and what.
    asked: Vec<(u8, Operation)>,
    /// What they have written: drive and byte.
    written: Vec<(usize, u64)>,
    /// What was written in the lane: which role, and the first byte.
    content: Vec<(u8, u8)>,
    /// How many reads have failed.
    unread: usize,
}

impl Drives {
    /// The blocks of these roles are bad.
    fn with_bad(bench: &Bench, roles: &[u8]) -> Drives {
        Drives {
            bad: roles.iter().map(|role| place(bench, *role)).collect(),
            kind: Kind::Plain,
            asked: Vec::new(),
            written: Vec::new(),
            content: Vec::new(),
            unread: 0,
        }
    }

    /// They answer everything, and what comes of it.
    fn answer(&mut self, bench: &mut Bench) {
        bench.poll();
        let mut count = 0;
        while !bench.outside.asked.is_empty() {
            count += 1;
            assert!(count < 10_000, "it asks again and again");
            self.answer_one(bench);
        }
    }

    fn answer_one(&mut self, bench: &mut Bench) {
        let request = bench.outside.asked.remove(0);
        bench.outside.room += 1;
        let status = self.carry_out(bench, &request);
        let cookie = request.cookie;
        bench.shard.drive_done(cookie, status, &mut bench.outside);
        bench.poll();
    }

    fn carry_out(&mut self, bench: &Bench, request: &MemberRequest) -> Status {
        let covers = |&(drive, offset): &(usize, u64)| {
            let range = request.offset..request.offset + request.length;
            request.drive.at() == drive && range.contains(&offset)
        };
        let roles = u8::try_from(bench.shard.geometry().group_members()).expect("few");
        let asked = (0..roles).filter(|role| covers(&place(bench, *role)));
        self.asked
            .extend(asked.map(|role| (role, request.operation)));
        if request.operation == Operation::Read {
            let is_bad = self.bad.iter().any(covers);
            if self.kind == Kind::Torn && covers(&place(bench, 2)) {
                let segments = request.segments.as_slice().iter();
                segments.for_each(|segment| segment.fill(0x99));
            }
            self.unread += usize::from(is_bad);
            return if is_bad { Status::Media } else { Status::Ok };
        }
        if self.kind == Kind::Refusing && self.bad.iter().any(covers) {
            return Status::Media;
        }
        if self.kind != Kind::Spent {
            self.bad.retain(|block| !covers(block));
        }
        if request.operation == Operation::Write {
            self.written.push((request.drive.at(), request.offset));
            let lanes = (0..roles).map(|role| (role, place(bench, role)));
            let lanes = lanes.filter(|(_, at)| covers(at));
            let first = |(role, (_, at))| (role, byte_at(request, at));
            self.content.extend(lanes.map(first));
        }
        Status::Ok
    }

    /// What becomes of a request, and which roles it writes in the lane.
    fn outcome(&mut self, bench: &mut Bench, asked: (Operation, u64, u32)) -> (Status, Vec<u8>) {
        self.asked.clear();
        let (operation, start, blocks) = asked;
        let cookie = bench.ask(operation, start, blocks);
        self.answer(bench);
        let verdict = bench.verdict(cookie).expect("it is answered");
        assert_eq!(bench.shard.tickets.in_use(), 0);
        (verdict, self.written())
    }

    /// Which roles were written in the lane.
    fn written(&self) -> Vec<u8> {
        let asked = self.asked.iter();
        let written = asked.filter(|(_, operation)| *operation != Operation::Read);
        let mut roles: Vec<u8> = written.map(|(role, _)| *role).collect();
        roles.sort_unstable();
        roles
    }
}

/// What a request writes at this byte of its drive.
fn byte_at(request: &MemberRequest, at: u64) -> u8 {
    let mut before = units::bytes_usize(at - request.offset);
    for segment in request.segments.as_slice() {
        if before < segment.len() {
            let mut byte = [0];
            segment.part(before, 1).copy_to_slice(&mut byte);
            return byte[0];
        }
        before -= segment.len();
    }
    panic!("{request:?} has less than byte {at}");
}

/// The drive and the byte of the block of a role.
fn place(bench: &Bench, role: u8) -> (usize, u64) {
    let map = &bench.shard.map;
    let (_, member) = map.member(StripeIndex(STRIPE), Role(role));
    let block = map.geometry.member_block(StripeIndex(STRIPE)) + LANE;
    let drive = member_of(bench, STRIPE, role);
    (drive, member.data_offset + block * 512)
}

const fn read(start: u64) -> (Operation, u64, u32) {
    (Operation::Read, start, 1)
}

const fn write(start: u64) -> (Operation, u64, u32) {
    (Operation::Write, start, 1)
}

#[test]
fn a_bad_block_where_parity_may_be_torn_fails_and_is_not_written() {
    let mut bench = suspect();
    let mut drives = Drives::with_bad(&bench, &[0]);
    let fails = (Status::Media, vec![]);
    let well = (Status::Ok, vec![]);
    assert_eq!(drives.outcome(&mut bench, read(BAD)), fails);
    for start in [BAD - 1, BAD + 1, BESIDE] {
        assert_eq!(drives.outcome(&mut bench, read(start)), well);
    }
    // Of a long read no less fails, and the drive is asked for parts of it.
    let long = (Operation::Read, START, 8);
    assert_eq!(drives.outcome(&mut bench, long), fails);
}

#[test]
fn a_bad_block_where_parity_agrees_is_reconstructed_and_written() {
    let mut bench = Bench::new();
    let mut drives = Drives::with_bad(&bench, &[0]);
    let told = (Status::Ok, vec![0]);
    assert_eq!(drives.outcome(&mut bench, read(BAD)), told);
}

/// Two data and two parity chunks of so many bytes, and data role 1 is lost in the stripe.
fn without_role_1(chunk_bytes: u64) -> Bench {
    let mut bench = Bench::shaped(Shape {
        level: Level::L6,
        members: 4,
        chunk_bytes,
        ..Shape::default()
    });
    let lost = bench.shard.map.member(StripeIndex(STRIPE), Role(1)).0.at();
    bench.install(|map| map.members[lost].state = MapState::Lost);
    bench
}

#[test]
fn a_bad_block_that_is_met_on_the_way_to_a_lost_one_is_written_again_too() {
    for role in [0, 2] {
        let mut bench = without_role_1(CHUNK * 512);
        let mut drives = Drives::with_bad(&bench, &[role]);
        let told = (Status::Ok, vec![role]);
        assert_eq!(drives.outcome(&mut bench, read(BESIDE)), told);
        assert_eq!(drives.bad, []);
        // All of the row can be told by three of its four roles.
        let told = (Status::Ok, vec![]);
        assert_eq!(drives.outcome(&mut bench, read(BESIDE)), told);
    }
}

#[test]
fn of_what_a_long_read_meets_on_the_way_nothing_is_written() {
    // Twice as much as is asked for at a time when a drive has failed to read it.
    let mut bench = without_role_1(2 * CHUNK * 512);
    let mut drives = Drives::with_bad(&bench, &[0]);
    let chunk = bench.shard.geometry().chunk_blocks();
    let lost = STRIPE * 2 * u64::from(chunk) + u64::from(chunk);
    let told = (Status::Ok, vec![]);
    let long = (Operation::Read, lost, chunk);
    assert_eq!(drives.outcome(&mut bench, long), told);
    assert_eq!((drives.bad.len(), &drives.written[..]), (1, &[][..]));
    let short = (Operation::Read, lost, chunk / 2);
    assert_eq!(drives.outcome(&mut bench, short), (Status::Ok, vec![0]));
}

/// A rebuild is at the stripe, and fills this member there.
fn fills_at_stripe(map: &mut ArrayMap, lacks: units::MemberIndex) {
    map.members[lacks.at()].state = MapState::Rebuilding {
        until: StripeIndex(STRIPE),
    };
    map.window = Some(Window {
        pass: Pass::Rebuild,
        start: StripeIndex(STRIPE),
        end: StripeIndex(STRIPE + 1),
        fills: units::MemberSet::EMPTY.with(lacks),
        opened: map.serial,
    });
}

/// Data role 1 of an array of two data and two parity chunks is to be filled in the stripe.
fn lacking_role_1(chunk_bytes: u64) -> Bench {
    let mut bench = without_role_1(chunk_bytes);
    let lacks = bench.shard.map.member(StripeIndex(STRIPE), Role(1)).0;
    bench.install(|map| fills_at_stripe(map, lacks));
    bench
}

#[test]
fn a_rebuild_writes_just_those_parts_again_in_which_it_met_bad_blocks() {
    for role in [0, 2] {
        // 4 KiB are eight blocks, and the cell has 32.
        let mut bench = lacking_role_1(4 * 4096);
        let mut drives = Drives::with_bad(&bench, &[role]);
        let (drive, byte) = drives.bad[0];
        let bad = [byte, byte + 2 * 4096];
        drives.bad.push((drive, bad[1]));
        drives.answer(&mut bench);
        assert_eq!(drives.bad, []);
        let written = drives.written.iter().filter(|(to, _)| *to == drive);
        let written: Vec<u64> = written.map(|(_, at)| *at).collect();
        let is_near = |(at, bad): (&u64, u64)| (*at..at + 4096).contains(&bad);
        let near = written.len() == 2 && written.iter().zip(bad).all(is_near);
        assert!(near, "{role}: {written:?} for {bad:?}");
        assert_eq!(bench.shard.tickets.in_use(), 0);
        assert!(!bench.shard.background.failed);
        let counters = bench.shard.counters();
        assert_eq!((counters.rewrites, counters.failed_rewrites), (2, 0));
        let errors = bench.shard.shared.take_read_errors(place(&bench, role).0);
        assert_eq!(errors, 1, "however often it was tried");
        assert_eq!(drives.unread, 2 + 2, "each with others, and by itself");
    }
}

/// Refusing takes a second, in which maps come and go.
fn tenths_of_a_second(count: usize, bench: &mut Bench, drives: &mut Drives) {
    for tenth in 0..count {
        if tenth % 5 == 4 {
            let serial = bench.install(|_| {});
            bench.make_effective(serial);
        }
        drives.answer(bench);
        bench.outside.now = bench.outside.now + Duration::from_millis(100);
    }
}

#[test]
fn what_was_refused_is_not_written_for_ever_while_maps_change() {
    let mut bench = Bench::new();
    let filled = bench.shard.map.member(StripeIndex(STRIPE), Role(1)).0.at();
    bench.install(|map| {
        map.members[filled].state = MapState::Rebuilding {
            until: StripeIndex(STRIPE + 1),
        };
    });
    let mut drives = Drives::with_bad(&bench, &[0]);
    drives.kind = Kind::Refusing;
    let first = bench.ask(Operation::Read, BAD, 1);
    tenths_of_a_second(30, &mut bench, &mut drives);
    assert_eq!(bench.verdict(first), Some(Status::Ok));
    let write = bench.ask(Operation::Write, BESIDE, 1);
    tenths_of_a_second(30, &mut bench, &mut drives);
    assert_eq!(bench.verdict(write), Some(Status::Ok), "its lanes are free");
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert_eq!(bench.shard.counters().rewrites, 1);
}

#[test]
fn what_a_rebuild_has_written_is_filled_whoever_goes_while_another_refuses() {
    let mut bench = lacking_role_1(CHUNK * 512);
    let mut drives = Drives::with_bad(&bench, &[0]);
    drives.kind = Kind::Refusing;
    let source = bench.shard.map.member(StripeIndex(STRIPE), Role(3)).0.at();
    tenths_of_a_second(4, &mut bench, &mut drives);
    bench.exclude(source);
    tenths_of_a_second(30, &mut bench, &mut drives);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert!(bench.shard.background.is_filled(StripeIndex(STRIPE), 0));
}

#[test]
fn a_rebuild_goes_on_where_a_bad_block_is_refused() {
    let mut bench = lacking_role_1(CHUNK * 512);
    let mut drives = Drives::with_bad(&bench, &[0]);
    drives.kind = Kind::Refusing;
    // It is asked for a second.
    tenths_of_a_second(30, &mut bench, &mut drives);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    assert!(!bench.shard.background.failed);
    let bad = bench.shard.map.member(StripeIndex(STRIPE), Role(0)).1.state;
    assert_eq!(bad, MapState::InSync, "nobody else is out");
    let left_out = |event: &Event| matches!(event, Event::MemberExcluded { .. });
    assert!(!bench.outside.events.iter().any(left_out));
}

#[test]
fn a_rewrite_after_which_nothing_can_be_read_counts_as_failed() {
    for kind in [Kind::Plain, Kind::Spent] {
        let mut bench = Bench::new();
        let mut drives = Drives::with_bad(&bench, &[0]);
        drives.kind = kind;
        let told = (Status::Ok, vec![0]);
        assert_eq!(drives.outcome(&mut bench, read(BAD)), told);
        let last = drives.asked.last();
        assert_eq!(last, Some(&(0, Operation::Read)), "it is read back");
        let counters = bench.shard.counters();
        let failed = u64::from(kind == Kind::Spent);
        assert_eq!((counters.rewrites, counters.failed_rewrites), (1, failed));
        let errors = bench.shard.shared.take_read_errors(place(&bench, 0).0);
        assert_eq!(u64::from(errors), 1 + failed);
    }
}

/// A bad block of role 0 is written again, and another map comes before it is read back: while it
/// is written, or while there is no room. Which roles are read then.
fn read_back_after(change: impl Fn(&mut ArrayMap)) -> Vec<u8> {
    let [early, late] = [false, true].map(|is_written| {
        let mut bench = Bench::new();
        let mut drives = Drives::with_bad(&bench, &[0]);
        let cookie = bench.ask(Operation::Read, BAD, 1);
        bench.poll();
        bench.cannot_read(place(&bench, 0).0);
        for drive in bench.is_asked(Operation::Read) {
            bench.answer(drive, Operation::Read, Status::Ok);
        }
        bench.poll();
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
        let changes = |bench: &mut Bench, now: bool| now.then(|| bench.install(&change));
        changes(&mut bench, !is_written);
        bench.outside.room = 0;
        let write = bench.outside.asked.remove(0);
        assert_eq!(write.operation, Operation::Write);
        let Bench { shard, outside, .. } = &mut bench;
        shard.drive_done(write.cookie, Status::Ok, outside);
        drives.bad.clear();
        bench.poll();
        changes(&mut bench, is_written);
        bench.outside.room = super::AMPLE;
        drives.asked.clear();
        drives.answer(&mut bench);
        assert_eq!(bench.shard.tickets.in_use(), 0, "it is not planned anew");
        assert_eq!(bench.shard.counters().failed_rewrites, 0);
        let asked = drives.asked.into_iter().map(|(role, operation)| {
            assert_eq!(operation, Operation::Read);
            role
        });
        asked.collect::<Vec<u8>>()
    });
    assert_eq!(early, late);
    early
}

#[test]
fn what_is_to_be_read_back_is_when_another_map_says_nothing_of_its_member() {
    assert_eq!(read_back_after(|_| {}), [0]);
    let other = place(&Bench::new(), 1).0;
    let is_out = |map: &mut ArrayMap| map.members[other].state = MapState::Lost;
    assert_eq!(read_back_after(is_out), [0]);
    let window = |map: &mut ArrayMap| {
        map.trusted_until = StripeIndex(STRIPE + 1);
        map.window = Some(Window {
            pass: Pass::Scrub,
            start: StripeIndex(STRIPE + 1),
            end: StripeIndex(STRIPE + 2),
            fills: units::MemberSet::EMPTY,
            opened: map.serial,
        });
    };
    assert_eq!(read_back_after(window), [0]);
}

#[test]
fn what_is_to_be_read_back_is_not_when_its_member_is_out_or_some_member_is_waited_for() {
    let member = place(&Bench::new(), 0).0;
    let is_out = |map: &mut ArrayMap| map.members[member].state = MapState::Lost;
    assert_eq!(read_back_after(is_out), []);
    let is_replaced = |map: &mut ArrayMap| {
        map.members[member].incarnation += 1;
        map.members[member].state = MapState::Rebuilding {
            until: StripeIndex(0),
        };
    };
    assert_eq!(read_back_after(is_replaced), []);
    for waits in 0..3 {
        assert_eq!(read_back_after(|map| map.held[waits] = true), [], "{waits}");
    }
    assert_eq!(read_back_after(|map| map.read_only = true), []);
}

#[test]
fn a_rebuild_counts_what_a_drive_cannot_read_back() {
    for chunk_bytes in [4096, 4 * 4096] {
        let mut bench = lacking_role_1(chunk_bytes);
        let mut drives = Drives::with_bad(&bench, &[0]);
        drives.kind = Kind::Spent;
        drives.answer(&mut bench);
        let counters = bench.shard.counters();
        assert_eq!((counters.rewrites, counters.failed_rewrites), (1, 1));
        let errors = bench.shard.shared.take_read_errors(place(&bench, 0).0);
        assert_eq!(errors, 2, "{chunk_bytes}");
    }
}

#[test]
fn a_drive_that_is_gone_when_it_is_to_read_back_has_not_failed_to() {
    let mut bench = Bench::new();
    let mut drives = Drives::with_bad(&bench, &[0]);
    let cookie = bench.ask(Operation::Read, BAD, 1);
    bench.poll();
    while bench.shard.tickets.in_use() > 0 || bench.verdict(cookie).is_none() {
        let request = bench.outside.asked.remove(0);
        bench.outside.room += 1;
        let checks = bench.verdict(cookie).is_some() && request.operation == Operation::Read;
        let status = if checks {
            Status::Gone
        } else {
            drives.carry_out(&bench, &request)
        };
        bench
            .shard
            .drive_done(request.cookie, status, &mut bench.outside);
        bench.poll();
    }
    assert_eq!(bench.shard.counters().failed_rewrites, 0);
}

#[test]
fn what_is_met_on_the_way_stays_as_it_is_where_parity_is_doubted() {
    let mut bench = without_role_1(CHUNK * 512);
    bench.install(doubt);
    // The lost one is the best that can be told; of the bad one nobody knows better.
    for role in [0, 2] {
        let mut drives = Drives::with_bad(&bench, &[role]);
        let (_, written) = drives.outcome(&mut bench, read(BESIDE));
        assert_eq!((written, drives.bad.len()), (vec![], 1), "{role}");
    }
}

#[test]
fn a_bad_copy_is_written_again_also_where_copies_are_in_doubt() {
    let mut bench = Bench::shaped(Shape {
        level: Level::L1,
        members: 2,
        ..Shape::default()
    });
    bench.install(doubt);
    let mut drives = Drives::with_bad(&bench, &[0]);
    let outcome = drives.outcome(&mut bench, read(STRIPE * CHUNK + LANE));
    assert_eq!(outcome, (Status::Ok, vec![0]));
}

#[test]
fn a_block_is_not_rewritten_when_its_parity_is_doubted_meanwhile() {
    let mut bench = Bench::new();
    let mut drives = Drives::with_bad(&bench, &[0]);
    let cookie = bench.ask(Operation::Read, BAD, 1);
    bench.poll();
    bench.cannot_read(place(&bench, 0).0);
    bench.outside.room = 0;
    for asked in std::mem::take(&mut bench.outside.asked) {
        let Bench { shard, outside, .. } = &mut bench;
        shard.drive_done(asked.cookie, Status::Ok, outside);
    }
    assert_eq!(bench.verdict(cookie), Some(Status::Ok), "it was told");
    bench.install(doubt);
    bench.outside.room = super::AMPLE;
    drives.answer(&mut bench);
    assert_eq!(drives.written(), []);
    assert_eq!(bench.shard.tickets.in_use(), 0);
}

#[test]
fn a_write_beside_a_bad_block_leaves_what_untrusted_parity_says_of_that_as_it_is() {
    let mut bench = suspect();
    let mut drives = Drives::with_bad(&bench, &[0]);
    let written = (Status::Ok, vec![1, 2]);
    assert_eq!(drives.outcome(&mut bench, write(BESIDE)), written);
    let old = [1, 2].map(|role| (role, Operation::Read));
    assert!(old.iter().all(|old| drives.asked.contains(old)));
    assert_eq!(drives.bad.len(), 1);
}

#[test]
fn a_write_that_needs_a_bad_block_fails_where_parity_may_be_torn() {
    let mut bench = suspect();
    let mut drives = Drives::with_bad(&bench, &[0, 2]);
    let fails = (Status::Media, vec![]);
    assert_eq!(drives.outcome(&mut bench, write(BESIDE)), fails);
    // The rest of a block is not known, or is no part of new parity.
    let mut drives = Drives::with_bad(&bench, &[0]);
    bench.part = block::Part {
        offset: 128,
        bytes: 128,
    };
    for start in [BAD, BESIDE] {
        assert_eq!(drives.outcome(&mut bench, write(start)), fails);
    }
}

#[test]
fn a_write_of_all_of_a_bad_block_needs_nothing_of_it() {
    for (asked, roles) in [
        (write(BAD), vec![0, 2]),
        ((Operation::Write, START, 16), vec![0, 1, 2]),
        ((Operation::WriteZeroes, START, 16), vec![0, 1, 2]),
    ] {
        let mut bench = suspect();
        let mut drives = Drives::with_bad(&bench, &[0]);
        let written = (Status::Ok, roles);
        assert_eq!(drives.outcome(&mut bench, asked), written);
        let well = (Status::Ok, vec![]);
        assert_eq!(drives.outcome(&mut bench, read(BAD)), well);
    }
}

#[test]
fn a_resync_gives_a_bad_block_up_and_a_write_of_all_of_it_heals_it() {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::with_bad(&bench, &[0]);
    bench.shard.command(2, Command::Resync);
    drives.answer(&mut bench);
    assert!(bench.shard.map.is_optimal());
    let (member, _) = place(&bench, 0);
    let errors = bench.shard.shared.take_read_errors(member);
    assert_eq!(errors, 1, "however often it was tried");
    let lost = |event: &Event| {
        if let Event::BlocksLost { first, total, .. } = event {
            return Some((*first, *total));
        }
        None
    };
    let lost: Vec<(u64, u64)> = bench.outside.events.iter().filter_map(lost).collect();
    assert_eq!(lost, [(BAD, 1)]);
    assert_eq!(drives.written(), [0, 2], "zeroes, and parity of them");
    let (fails, well) = ((Status::Media, vec![]), (Status::Ok, vec![]));
    assert_eq!(drives.outcome(&mut bench, read(BAD)), fails);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE)), well);
    let (verdict, _) = drives.outcome(&mut bench, write(BAD));
    assert_eq!(verdict, Status::Ok);
    assert_eq!(drives.outcome(&mut bench, read(BAD)), well);
    assert!(bench.shard.map.lost_blocks.is_empty());
}

#[test]
fn a_resync_does_not_leave_a_member_out_because_a_bad_block_takes_no_zeroes() {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::with_bad(&bench, &[0]);
    drives.kind = Kind::Refusing;
    bench.shard.command(2, Command::Resync);
    drives.answer(&mut bench);
    assert!(bench.shard.map.is_optimal(), "nobody is out");
    assert_eq!(
        bench.shard.map.lost_blocks.first_in(BAD..BAD + 1),
        Some(BAD)
    );
    let (fails, well) = ((Status::Media, vec![]), (Status::Ok, vec![]));
    assert_eq!(drives.outcome(&mut bench, read(BAD)), fails);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE)), well);
}

#[test]
fn a_resync_makes_parity_that_cannot_be_read_of_the_data() {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::with_bad(&bench, &[2]);
    bench.shard.command(2, Command::Resync);
    drives.answer(&mut bench);
    assert!(bench.shard.map.is_optimal());
    assert!(bench.shard.map.lost_blocks.is_empty());
    assert_eq!(drives.written(), [2]);
}

/// The log holds parity that was changed beside a bad block and may be torn: were it replayed after
/// the resync, it would be so again, and trusted.
#[test]
fn a_resync_is_logged_where_the_log_names_its_cell_and_nowhere_else() {
    for writes_before in [true, false] {
        let mut bench = Bench::new();
        bench.install(|map| {
            doubt(map);
            map.write_hole = WriteHole::Strict;
        });
        let mut drives = Drives::with_bad(&bench, &[0]);
        if writes_before {
            let write = bench.ask(Operation::Write, BESIDE - 1, 3);
            drives.answer(&mut bench);
            assert_eq!(bench.verdict(write), Some(Status::Ok));
        }
        drives.bad.clear();
        drives.written.clear();
        // What is there does not agree: parity reads as what was read before.
        bench.fill(0x55);
        bench.install(|map| {
            map.window = Some(Window {
                pass: Pass::Resync,
                start: StripeIndex(STRIPE),
                end: StripeIndex(STRIPE + 1),
                fills: units::MemberSet::EMPTY,
                opened: map.serial,
            });
        });
        drives.kind = Kind::Torn;
        drives.answer(&mut bench);
        let (parity, byte) = place(&bench, 2);
        let chunk = byte - LANE * 512;
        let in_place = drives.written.iter().position(|it| *it == (parity, chunk));
        let in_place = in_place.expect("it is made right");
        let logged = drives.written[..in_place]
            .iter()
            .any(|(drive, _)| *drive == parity);
        assert_eq!(logged, writes_before, "written: {:?}", drives.written);
    }
}

#[test]
fn an_array_that_takes_no_writes_computes_nothing_where_a_write_was_cut_short_or_a_flush_failed() {
    let fails = (Status::Media, vec![]);
    let well = (Status::Ok, vec![]);
    let mut bench = without_role_1(CHUNK * 512);
    bench.install(|map| map.read_only = true);
    let mut drives = Drives::with_bad(&bench, &[]);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE)), well);
    let cell = STRIPE * bench.shard.stripe_cells;
    let lane = u32::try_from(LANE).expect("few");
    bench.shard.shared.tear_cell(cell, lane..lane + 1);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE)), fails);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE + 1)), well);
    assert_eq!(drives.outcome(&mut bench, read(BAD)), well, "it is there");
    // Who may have lost something that was acknowledged tells nothing of others.
    let (lacks, entry) = bench.shard.map.member(StripeIndex(STRIPE), Role(3));
    let incarnation = entry.incarnation;
    let flushed = bench
        .shard
        .shared
        .is_flushed(lacks, incarnation, Status::Media);
    assert!(!flushed);
    assert_eq!(drives.outcome(&mut bench, read(BESIDE + 1)), fails);
}

/// Role 1 is to be filled in the stripe, and others cannot be read. What that costs is given up by
/// the home, and is about to be logged.
fn logged_loss(shape: Shape, bad: &[u8]) -> (Bench, Drives) {
    let mut bench = Bench::shaped(shape);
    let lacks = bench.shard.map.member(StripeIndex(STRIPE), Role(1)).0;
    bench.install(|map| {
        map.write_hole = WriteHole::Strict;
        fills_at_stripe(map, lacks);
    });
    let mut drives = Drives::with_bad(&bench, bad);
    drives.kind = Kind::Torn;
    drives.answer(&mut bench);
    let asks = |message: &Message| {
        if let Message::ChangeLosses { change, rows } = message {
            return Some((*change, *rows));
        }
        None
    };
    let (change, rows) = bench.outside.messages.iter().find_map(asks).expect("asks");
    bench.install(|map| {
        let mut list = LostBlocks::default();
        change.apply(&mut list, rows, &map.geometry);
        map.lost_blocks = Arc::new(list);
    });
    bench.tell(Message::LossesChanged { ok: true });
    while bench.is_asked(Operation::Write).is_empty() {
        drives.answer_one(&mut bench);
    }
    (bench, drives)
}

/// What is logged as lost cannot be taken back, but that is no more than what was lost then.
#[test]
fn what_could_not_be_read_for_a_moment_is_not_given_up_with_what_is_lost() {
    for kind in [Kind::Plain, Kind::Refusing] {
        let shape = Shape {
            level: Level::L50,
            members: 8,
            group_size: Some(4),
            ..Shape::default()
        };
        let (mut bench, mut drives) = logged_loss(shape, &[0]);
        drives.kind = kind;
        // The other group has lost too much: it looks at the row once more.
        let [lacks, blinks, away] = [1, 2, 3].map(|role| member_of(&bench, STRIPE, role));
        let other = (lacks + 4) % 8;
        bench.install(|map| map.hopeless[other] = true);
        while bench.is_asked(Operation::Read).is_empty() {
            drives.answer_one(&mut bench);
        }
        // All blink, and one is told to be away first.
        bench.install(|map| {
            map.hopeless[other] = false;
            map.held[away] = true;
        });
        while bench.is_asked(Operation::Read).contains(&blinks) {
            bench.answer(blinks, Operation::Read, Status::Media);
            bench.poll();
        }
        drives.answer(&mut bench);
        assert_eq!(
            bench.shard.tickets.in_use(),
            1,
            "it waits until they are back"
        );
        bench.install(|map| {
            map.held[away] = false;
            map.released[away] += 1;
        });
        drives.answer(&mut bench);
        assert!(!bench.shard.background.failed);
        assert_eq!(bench.shard.tickets.in_use(), 0, "{kind:?}");
        let rewritten = drives.written.iter().any(|(drive, _)| *drive == blinks);
        assert!(!rewritten, "nothing of it was lost");
    }
}

/// Four data and two parity chunks.
fn of_six() -> Shape {
    Shape {
        level: Level::L6,
        members: 6,
        ..Shape::default()
    }
}

/// What becomes of a member when a loss is logged.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Goes,
    IsHeld,
    /// It is given up, and goes.
    IsGivenUp,
}

/// Whoever goes when a loss is logged, or is being written, and whenever: what is written is what
/// is logged.
#[test]
fn what_is_logged_as_lost_is_written_as_it_was_computed() {
    for turn in [Turn::Goes, Turn::IsHeld, Turn::IsGivenUp] {
        for role in 0..6 {
            let mut answers = 0;
            while turns_while_logged(turn, role, answers) {
                answers += 1;
            }
            // Four pieces, a flush of each member, and five writes.
            assert!(answers >= 4 + 6 + 5, "{turn:?}, {role}: {answers}");
        }
    }
}

/// This happens after so many answers; whether there was anything left to be answered then.
fn turns_while_logged(turn: Turn, role: u8, answers: usize) -> bool {
    let (mut bench, mut drives) = logged_loss(of_six(), &[0, 3]);
    for _ in 0..answers {
        drives.answer_one(&mut bench);
    }
    if bench.outside.asked.is_empty() {
        return false;
    }
    let member = member_of(&bench, STRIPE, role);
    drives.asked.clear();
    match turn {
        Turn::Goes => bench.exclude(member),
        Turn::IsHeld => _ = bench.install(|map| map.held[member] = true),
        Turn::IsGivenUp => {
            bench.install(|map| (map.held[member], map.given_up) = (true, true));
            drives.answer(&mut bench);
            assert!(answers >= 4 || drives.content.is_empty(), "not now");
            bench.install(|map| (map.held[member], map.given_up) = (false, false));
            bench.exclude(member);
        }
    }
    drives.answer(&mut bench);
    let what = format!("{turn:?} {role} after {answers}");
    assert_eq!(bench.shard.tickets.in_use(), 0, "{what}");
    let reads = |asked: &&(u8, Operation)| asked.1 == Operation::Read;
    assert_eq!(drives.asked.iter().find(reads), None, "of this row: {what}");
    // 2 * 2 * 0x99 in the field of Q.
    let all = [(0, 0), (1, 0), (3, 0), (4, 0x99), (5, 0x5E)];
    drives.content.sort_unstable();
    let is_out = !matches!(turn, Turn::IsHeld);
    for written in &drives.content {
        assert!(all.contains(written), "{written:?}: {what}");
    }
    for needed in all.iter().filter(|(other, _)| !is_out || *other != role) {
        assert!(drives.content.contains(needed), "no {needed:?}: {what}");
    }
    true
}

/// Another member is to be filled since a loss was logged: it has got nothing of the row.
#[test]
fn a_row_logged_as_lost_is_not_filled_for_members_that_came_since() {
    let (mut bench, mut drives) = logged_loss(of_six(), &[0, 3]);
    let comes = member_of(&bench, STRIPE, 2);
    bench.install(|map| {
        let until = StripeIndex(STRIPE);
        map.members[comes].state = MapState::Rebuilding { until };
    });
    drives.answer(&mut bench);
    assert!(!bench.shard.background.is_filled(StripeIndex(STRIPE), 0));
    assert_eq!(drives.content, [], "it asks for what is lost with it");
}

/// A data block and one of parity refuse what is written when the loss is logged.
#[test]
fn what_refuses_that_it_is_lost_is_passed_over_after_a_hold_that_was_given_up() {
    let (mut bench, mut drives) = logged_loss(of_six(), &[0, 4]);
    drives.kind = Kind::Refusing;
    let away = member_of(&bench, STRIPE, 2);
    bench.install(|map| (map.held[away], map.given_up) = (true, true));
    drives.answer(&mut bench);
    bench.install(|map| (map.held[away], map.given_up) = (false, false));
    tenths_of_a_second(30, &mut bench, &mut drives);
    assert_eq!(bench.shard.tickets.in_use(), 0);
    let told = |message: &Message| matches!(message, Message::Report(_));
    assert!(!bench.outside.messages.iter().any(told), "nobody is failed");
}
