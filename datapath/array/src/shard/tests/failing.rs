//! Members that fail, and what waits for them.

use std::time::Duration;

use block::{Operation, Status};
use units::{DriveIndex, MemberIndex, Role};

use super::{AMPLE, Bench, STRIPE_BLOCKS, Shape, member_of};
use crate::geometry::Level;
use crate::io::Message;
use crate::shard::hold::OLD;
use crate::shard::{DriveIo, IoOwner};

const PAUSE: Duration = Duration::from_secs(1);

/// How often the home was told of a member.
fn reports(bench: &Bench) -> usize {
    let reports = |message: &&Message| matches!(message, Message::Report(_));
    bench.outside.messages.iter().filter(reports).count()
}

#[test]
fn a_flush_is_answered_as_soon_as_everybody_leaves_out_whose_part_failed() {
    for status in [Status::Media, Status::Gone] {
        let mut bench = Bench::new();
        let flush = bench.ask(Operation::Flush, 0, 0);
        bench.answer(0, Operation::Flush, status);
        bench.answer_all();
        assert_eq!((bench.verdict(flush), reports(&bench)), (None, 1));
        let serial = bench.install(|map| {
            map.members[0].state = crate::map::MapState::Lost;
            map.barrier = map.serial;
        });
        assert_eq!(bench.verdict(flush), None, "others still count on it");
        bench.make_effective(serial);
        assert_eq!(bench.verdict(flush), Some(Status::Ok), "{status:?}");
    }
}

#[test]
fn a_drive_is_pinged_once_for_all_that_fails_before_it_answers() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.ask(Operation::Flush, 0, 0);
    }
    for _ in 0..3 {
        bench.answer(0, Operation::Flush, Status::Media);
        bench.poll();
        assert_eq!(bench.is_asked(Operation::Read), [0], "the first one");
    }
}

#[test]
fn who_could_not_be_pinged_for_want_of_room_is_pinged_later() {
    let mut bench = Bench::new();
    bench.ask(Operation::Flush, 0, 0);
    for drive in [0, 1] {
        bench.answer(drive, Operation::Flush, Status::Media);
    }
    bench.outside.room = 1;
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Read).len(), 1);
    bench.outside.room = 100;
    bench.poll();
    let mut pinged = bench.is_asked(Operation::Read);
    pinged.sort_unstable();
    assert_eq!(pinged, [0, 1]);
}

#[test]
fn where_a_member_is_beyond_help_nothing_is_reconstructed_and_all_else_is_read() {
    let mut bench = Bench::new();
    let [out, torn] = [0, 1].map(|role| member_of(&bench, 0, role));
    bench.exclude(out);
    bench.install(|map| map.hopeless[torn] = true);
    let reads = [0, 8].map(|block| bench.ask(Operation::Read, block, 1));
    bench.answer_all();
    let verdicts = reads.map(|read| bench.verdict(read));
    assert_eq!(verdicts, [Some(Status::Media), Some(Status::Ok)]);
}

#[test]
fn a_piece_that_was_given_up_in_its_line_is_answered_once_when_all_has_ended() {
    let mut bench = Bench::new();
    for stripe in 0..8 {
        bench.write_stripe(stripe);
    }
    let blocks = u32::try_from(6 * STRIPE_BLOCKS).expect("few");
    let write = bench.ask(Operation::Write, 8 * STRIPE_BLOCKS, blocks);
    bench.poll();
    assert_eq!(bench.shard.tickets.free(), 0, "some of it waits");
    let waiting = bench.shard.waiting_works.first();
    let work = waiting.expect("there is no ticket left");
    for _ in 0..=OLD {
        let _ = bench.shard.works[work].age(OLD);
    }
    while let Some(asked) = bench.outside.asked.pop() {
        let Bench { shard, outside, .. } = &mut bench;
        outside.room += 1;
        shard.drive_done(asked.cookie, Status::Ok, outside);
    }
    assert_eq!(bench.verdict(write), None, "it is still in its line");
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Media));
    assert_eq!(bench.outside.completions.len(), 9);
    assert!(bench.shard.is_idle());
}

#[test]
fn a_flush_that_goes_well_beside_one_that_fails_counts_only_when_the_member_is_out() {
    let mut bench = Bench::new();
    let flushes = [(); 2].map(|()| bench.ask(Operation::Flush, 0, 0));
    let verdicts = |bench: &Bench| flushes.map(|flush| bench.verdict(flush));
    bench.answer(0, Operation::Flush, Status::Media);
    bench.answer(0, Operation::Flush, Status::Ok);
    for _ in 0..2 {
        for drive in [1, 2] {
            bench.answer(drive, Operation::Flush, Status::Ok);
        }
    }
    bench.poll();
    assert_eq!(verdicts(&bench), [None; 2], "nobody knows what is lost");
    assert_eq!(bench.is_asked(Operation::Read), [0], "it is pinged");
    bench.answer_all();
    assert_eq!(verdicts(&bench), [None; 2], "it is lost");
    bench.exclude(0);
    assert_eq!(verdicts(&bench), [Some(Status::Ok); 2]);
}

/// Two flushes, of which all drives have answered both but the first one, which has answered one.
fn all_but_one_answer(bench: &mut Bench, others: &[usize]) -> u64 {
    let [flush, _] = [(); 2].map(|()| bench.ask(Operation::Flush, 0, 0));
    for &drive in [others, others].concat().iter().chain([&0]) {
        bench.answer(drive, Operation::Flush, Status::Ok);
    }
    flush
}

#[test]
fn a_flush_of_a_member_that_is_needed_waits_for_answers_to_those_that_were_asked_before_its_own() {
    let mut bench = Bench::new();
    bench.exclude(2);
    let flush = all_but_one_answer(&mut bench, &[1]);
    bench.poll();
    assert_eq!(bench.verdict(flush), None, "the other may have failed");
    let third = bench.ask(Operation::Flush, 0, 0);
    bench.answer(0, Operation::Flush, Status::Ok);
    bench.poll();
    assert_eq!(bench.verdict(flush), Some(Status::Ok));
    assert_eq!(bench.verdict(third), None, "it was asked for later");
}

#[test]
fn a_flush_of_a_member_that_is_needed_fails_if_another_had_failed_when_it_went_well() {
    let mut bench = Bench::new();
    bench.exclude(2);
    let flush = all_but_one_answer(&mut bench, &[1]);
    bench.answer(0, Operation::Flush, Status::Media);
    bench.answer_all();
    assert_eq!(bench.verdict(flush), None, "it is open what becomes of it");
    bench.install(|map| map.hopeless[0] = true);
    assert_eq!(bench.verdict(flush), Some(Status::Media));
}

#[test]
fn a_flush_proves_nothing_for_a_member_that_was_given_up_while_another_one_was_in_doubt() {
    for is_pinged in [true, false] {
        let mut bench = Bench::new();
        bench.exclude(2);
        let flushes = [(); 2].map(|()| bench.ask(Operation::Flush, 0, 0));
        bench.answer(0, Operation::Flush, Status::Media);
        if is_pinged {
            bench.poll();
            assert_eq!(bench.is_asked(Operation::Read), [0]);
        }
        // As an array does that takes no writes from now on.
        bench.install(|map| (map.hopeless[0], map.read_only) = (true, true));
        bench.poll();
        for drive in [0, 1, 1] {
            bench.answer(drive, Operation::Flush, Status::Ok);
        }
        bench.answer_all();
        let third = bench.ask(Operation::Flush, 0, 0);
        bench.answer_all();
        let verdicts = flushes.map(|flush| bench.verdict(flush));
        assert_eq!(verdicts, [Some(Status::Media); 2], "{is_pinged}");
        assert_eq!(bench.verdict(third), Some(Status::Media), "{is_pinged}");
    }
}

#[test]
fn a_flush_of_a_member_that_others_can_replace_waits_for_no_other() {
    let mut bench = Bench::new();
    let flush = all_but_one_answer(&mut bench, &[1, 2]);
    assert_eq!(bench.verdict(flush), Some(Status::Ok));
}

#[test]
fn a_flush_asks_nobody_who_has_written_nothing_since_the_last_one() {
    let mut bench = Bench::new();
    bench.write_stripe(0);
    bench.answer_all();
    for asked in [3, 0] {
        let flush = bench.ask(Operation::Flush, 0, 0);
        bench.poll();
        assert_eq!(bench.outside.asked.len(), asked);
        bench.answer_all();
        assert_eq!(bench.verdict(flush), Some(Status::Ok));
    }
}

#[test]
fn a_flush_asks_only_who_has_a_cache_to_lose_and_whoever_gets_one() {
    let mut bench = Bench::new();
    bench.write_stripe(0);
    bench.answer_all();
    let all: Vec<_> = (0..3).map(DriveIndex).collect();
    // No room is needed for what nobody is asked.
    (bench.outside.keeping, bench.outside.room) = (all.clone(), 0);
    let flush = bench.ask(Operation::Flush, 0, 0);
    bench.poll();
    assert_eq!(bench.verdict(flush), Some(Status::Ok));
    bench.outside.room = AMPLE;
    for keeping in [all[1..].to_vec(), Vec::new()] {
        bench.outside.keeping = keeping;
        let flush = bench.ask(Operation::Flush, 0, 0);
        bench.poll();
        let asked = bench.outside.asked.iter();
        let asked: Vec<_> = asked.map(|request| request.drive).collect();
        let told = bench.outside.keeping.iter();
        assert!(!asked.is_empty() && told.clone().all(|drive| !asked.contains(drive)));
        bench.answer_all();
        assert_eq!(bench.verdict(flush), Some(Status::Ok));
    }
}

#[test]
fn nobody_waits_for_a_flush_of_a_drive_that_is_out() {
    let mut bench = Bench::new();
    bench.ask(Operation::Flush, 0, 0);
    bench.answer_all_but(&[0]);
    let awaits = |bench: &Bench| {
        let (shared, member) = (&bench.shard.shared, MemberIndex(0));
        shared.awaits_flushes(member, shared.last_flush(member))
    };
    assert!(awaits(&bench));
    bench.exclude(0);
    assert!(!awaits(&bench), "another may have its place");
}

#[test]
fn after_a_flush_that_failed_none_of_the_same_drive_counts() {
    let bench = Bench::new();
    let shared = &bench.shard.shared;
    let (member, other) = (MemberIndex(1), MemberIndex(2));
    assert!(shared.is_flushed(member, 0, Status::Ok));
    assert!(!shared.is_flushed(member, 0, Status::Gone), "not begun");
    assert!(shared.is_flushed(member, 0, Status::Ok));
    assert!(!shared.is_flushed(member, 0, Status::Media));
    assert!(!shared.is_flushed(member, 0, Status::Ok));
    assert!(shared.is_flushed(other, 0, Status::Ok));
    assert!(shared.is_flushed(member, 1, Status::Ok), "a new drive");
    assert!(!shared.is_flushed(member, 1, Status::Media));
    assert!(!shared.is_flushed(member, 0, Status::Media), "late");
    assert!(!shared.is_flushed(member, 1, Status::Ok));
}

#[test]
fn the_home_is_told_once_of_a_member_however_much_fails_on_it() {
    let mut bench = Bench::new();
    for stripe in [0, 1] {
        bench.write_stripe(stripe);
    }
    for _ in 0..2 {
        bench.answer(0, Operation::Write, Status::Media);
    }
    bench.poll();
    assert_eq!(reports(&bench), 1);
}

#[test]
fn what_waits_for_a_member_is_made_again_when_its_time_has_come_and_not_before() {
    let mut bench = Bench::new();
    let write = bench.write_stripe(0);
    bench.answer(0, Operation::Write, Status::Gone);
    bench.answer_all();
    bench.install(|map| map.held[0] = true);
    bench.answer(0, Operation::Write, Status::Gone);
    bench.poll();
    let due = bench.shard.deadline().expect("it is to be made again");
    bench.outside.now = units::Instant(due.0 - 1);
    bench.poll();
    assert!(bench.outside.asked.is_empty());
    bench.outside.now = due;
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write), [0]);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert_eq!(bench.shard.counters().held, 2);
}

#[test]
fn when_a_hold_is_given_up_what_waits_for_room_or_lanes_ends() {
    let mut bench = Bench::new();
    let first = bench.write_stripe(0);
    bench.answer(0, Operation::Write, Status::Gone);
    let chunk = (2..).find(|stripe| member_of(&bench, *stripe, 0) == 0);
    let start = chunk.expect("some stripe") * STRIPE_BLOCKS;
    let read = bench.ask(Operation::Read, start, 1);
    bench.answer(0, Operation::Read, Status::Gone);
    bench.outside.room = 0;
    let others = [1, 1].map(|stripe| bench.write_stripe(stripe));
    assert_eq!(bench.shard.tickets.in_use(), 4);
    // It waits as a request, and is no ticket.
    let chunk = (2..).find(|stripe| member_of(&bench, *stripe, 0) == 1);
    let start = chunk.expect("some stripe") * STRIPE_BLOCKS;
    let unissued = bench.ask(Operation::Read, start, 1);
    bench.install(|map| {
        map.held[0] = true;
        map.given_up = true;
    });
    for _ in 0..4 {
        bench.pass(PAUSE);
    }
    for cookie in [first, read, others[0], others[1], unissued] {
        assert_eq!(bench.verdict(cookie), Some(Status::Media));
    }
    let left = bench.shard.tickets.in_use();
    assert_eq!(left, 1, "but for the one that has begun to write");
    bench.outside.room = 100;
    bench.poll();
    bench.install(|map| {
        map.held[0] = false;
        map.given_up = false;
        map.released[0] += 1;
    });
    bench.pass(PAUSE);
    bench.answer_all();
    let again = bench.write_stripe(1);
    bench.answer_all();
    assert_eq!(
        bench.verdict(again),
        Some(Status::Ok),
        "nobody has its lanes"
    );
}

#[test]
fn the_next_engine_is_told_of_a_member_that_is_gone_until_it_works() {
    let mut bench = Bench::new();
    bench.write_stripe(0);
    bench.answer(0, Operation::Write, Status::Gone);
    bench.poll();
    bench.install(|map| map.held[0] = true);
    let is_told = |bench: &Bench| bench.shard.hold.gone.is_told();
    assert!(is_told(&bench));
    bench.pass(PAUSE);
    bench.answer_all();
    bench.poll();
    assert!(is_told(&bench), "the home has not said so");
    bench.install(|map| {
        map.held[0] = false;
        map.released[0] += 1;
    });
    assert!(!is_told(&bench));
    bench.write_stripe(1);
    bench.answer(1, Operation::Write, Status::Gone);
    bench.poll();
    assert!(is_told(&bench));
    bench.exclude(1);
    bench.poll();
    assert!(!is_told(&bench), "it is out");
}

/// It blinked, and a flush failed that may have been carried out before or after that.
#[test]
fn a_member_that_works_again_stays_told_while_it_is_open_what_a_flush_has_lost() {
    let mut bench = Bench::new();
    bench.ask(Operation::Flush, 0, 0);
    bench.answer(0, Operation::Flush, Status::Media);
    bench.poll();
    let is_told = |bench: &Bench| bench.shard.hold.gone.is_told();
    assert!(is_told(&bench), "it is asked whether it was there");
    bench.install(|map| map.held[0] = true);
    bench.poll();
    bench.install(|map| {
        map.held[0] = false;
        map.released[0] += 1;
    });
    bench.poll();
    assert!(is_told(&bench), "it has not answered that");
    bench.exclude(0);
    bench.poll();
    assert!(!is_told(&bench), "it is out");
}

#[test]
fn whoever_waits_for_the_list_of_lost_blocks_is_found_there() {
    let mut bench = Bench::new();
    let losses = &mut bench.shard.losses;
    assert!(!losses.has(3) && losses.is_idle());
    bench.shard.await_list(3);
    let losses = &bench.shard.losses;
    assert!(losses.has(3) && !losses.has(2) && !losses.is_idle());
}

/// What members are asked to read now: which, and which bytes of their data.
fn reads(bench: &Bench) -> Vec<(usize, u64, u64)> {
    let mut reads = Vec::new();
    for request in &bench.outside.asked {
        assert_eq!(request.operation, Operation::Read);
        let member = request.drive.at();
        let data = bench.shard.map.members[member].data_offset;
        reads.push((member, request.offset - data, request.length));
    }
    reads.sort_unstable();
    reads
}

#[test]
fn a_large_read_that_fails_is_made_again_in_parts_and_only_what_is_lost_is_reconstructed() {
    const PART: u64 = 4096;
    // Blocks of chunk 0 of the array, and which of their parts is bad.
    for (start, blocks, bad) in [
        (0, 128, 9),
        (0, 9, 1),
        (3, 40, 0),
        (5, 20, 2),
        (120, 8, 0),
        (127, 1, 0),
        (31, 60, 7),
        (64, 9, 0),
    ] {
        let mut bench = Bench::shaped(Shape {
            chunk_bytes: 64 << 10,
            ..Shape::default()
        });
        let member = member_of(&bench, 0, 0);
        let read = bench.ask(Operation::Read, start, blocks);
        bench.poll();
        let (first, end) = (start * 512, (start + u64::from(blocks)) * 512);
        assert_eq!(reads(&bench), [(member, first, end - first)]);
        bench.answer(member, Operation::Read, Status::Media);
        bench.poll();
        // Parts end at multiples of their size. What is no longer than one is not split.
        let is_split = end - first > PART;
        let cuts = (1..16).map(|part| part * PART);
        let cuts = cuts.filter(|cut| is_split && (first + 1..end).contains(cut));
        let begins: Vec<u64> = std::iter::once(first).chain(cuts).collect();
        let ends = begins[1..].iter().copied().chain([end]);
        let parts: Vec<(u64, u64)> = begins.iter().copied().zip(ends).collect();
        let tries = &parts[..parts.len() * usize::from(is_split)];
        let asked = tries.iter().map(|&(from, to)| (member, from, to - from));
        let (from, to) = parts[bad];
        let others = (0..3).filter(|other| *other != member);
        let others: Vec<_> = others.map(|other| (other, from, to - from)).collect();
        assert_eq!(reads(&bench)[..tries.len()], asked.collect::<Vec<_>>());
        for part in 0..tries.len() {
            let status = [Status::Ok, Status::Media][usize::from(part == bad)];
            bench.answer(member, Operation::Read, status);
        }
        bench.poll();
        assert_eq!(
            reads(&bench),
            [(member, from, to - from)],
            "into memory of ours"
        );
        bench.answer(member, Operation::Read, Status::Media);
        bench.poll();
        assert_eq!(reads(&bench), others, "{start} + {blocks}");
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
    }
}

#[test]
fn what_fails_only_in_the_memory_of_a_guest_is_not_its_drives_fault() {
    for (level, members) in [(Level::L5, 3), (Level::L1, 2)] {
        let shape = Shape {
            level,
            members,
            chunk_bytes: 64 << 10,
            ..Shape::default()
        };
        for blocks in [1, 16] {
            let mut bench = Bench::shaped(shape);
            bench.fill(0x5C);
            let read = bench.ask(Operation::Read, 0, blocks);
            bench.poll();
            let member = bench.is_asked(Operation::Read)[0];
            // The guest writes there while the drive compares what it has brought with its sum.
            while bench.shard.tickets.in_use() == 0 {
                bench.answer(member, Operation::Read, Status::Media);
                bench.poll();
            }
            let asked = &bench.outside.asked;
            assert!(asked.iter().all(|asked| asked.drive.at() == member));
            bench.answer_all();
            assert_eq!(bench.verdict(read), Some(Status::Ok));
            let errors = bench.shard.shared.take_read_errors(member);
            let counters = bench.shard.counters();
            let counted = (errors, counters.media_errors, counters.rewrites);
            assert_eq!(counted, (0, 0, 0), "{blocks}");
        }
    }
}

const NEVER: [bool; 3] = [false; 3];
const ALWAYS: [bool; 3] = [true; 3];
const WHILE_HELD: [bool; 3] = [false, true, false];
const UNLESS_GIVEN_UP: [bool; 3] = [true, true, false];

/// Whether a request waits for a member that is gone: while nothing is decided, while the array
/// waits for it, and when that was given up.
fn waits(level: Level, owner: IoOwner, operation: Operation) -> [bool; 3] {
    let mut bench = Bench::shaped(Shape {
        level,
        ..Shape::default()
    });
    let done = DriveIo {
        owner,
        operation: Some(operation),
        ..DriveIo::default()
    };
    let of_another_drive = DriveIo {
        incarnation: 1,
        ..done
    };
    let waits = [(false, false), (true, false), (true, true)].map(|(held, given_up)| {
        bench.install(|map| (map.held[0], map.given_up) = (held, given_up));
        assert!(!bench.shard.parks(&done, Status::Invalid), "it is in vain");
        assert!(!bench.shard.parks(&of_another_drive, Status::Gone));
        bench.shard.parks(&done, Status::Gone)
    });
    bench.install(|map| map.read_only = true);
    assert!(
        !bench.shard.parks(&done, Status::Gone),
        "nothing is written"
    );
    waits
}

#[test]
fn what_fails_on_a_member_that_is_gone_waits_for_what_becomes_of_it() {
    let (read, write, flush) = (Operation::Read, Operation::Write, Operation::Flush);
    let (request, ticket, role, look) = (0, 0, Role(0), 0);
    let direct = IoOwner::Direct {
        request,
        first: 0,
        blocks: 1,
    };
    let of_ticket = IoOwner::Ticket { ticket, role };
    let abandoned = IoOwner::Abandoned { grave: None, look };
    for (owner, operation, expected) in [
        (direct, read, WHILE_HELD),
        (direct, write, UNLESS_GIVEN_UP),
        (of_ticket, read, WHILE_HELD),
        (of_ticket, write, ALWAYS),
        (IoOwner::Flush { request }, flush, UNLESS_GIVEN_UP),
        (IoOwner::LogFlush, flush, UNLESS_GIVEN_UP),
        (IoOwner::Clear, flush, UNLESS_GIVEN_UP),
        (IoOwner::Log { ticket }, write, ALWAYS),
        (IoOwner::Zeroing, Operation::WriteZeroes, ALWAYS),
        (IoOwner::Region, write, ALWAYS),
        (IoOwner::Metadata, write, [false, true, true]),
        (IoOwner::Probe, read, NEVER),
        (IoOwner::Trial, read, NEVER),
        (IoOwner::Doubt, read, NEVER),
        (IoOwner::Bounced { bounce: 0 }, read, NEVER),
        (abandoned, write, NEVER),
    ] {
        let found = waits(Level::L5, owner, operation);
        assert_eq!(found, expected, "{owner:?} {operation:?}");
    }
    // Nobody else knows what was to be read.
    assert_eq!(waits(Level::L0, direct, read), UNLESS_GIVEN_UP);
    assert_eq!(waits(Level::L0, direct, write), UNLESS_GIVEN_UP);
}

/// A block of a member that is out is read from the two others, for the second time, and one of
/// these is gone.
fn reconstructing() -> (Bench, u64, [usize; 2]) {
    let mut bench = Bench::new();
    let [out, gone, other] = [0, 1, 2].map(|role| member_of(&bench, 0, role));
    bench.exclude(out);
    let read = bench.ask(Operation::Read, 0, 1);
    bench.poll();
    bench.answer(gone, Operation::Read, Status::Gone);
    bench.answer(other, Operation::Read, Status::Ok);
    bench.poll();
    bench.answer(gone, Operation::Read, Status::Gone);
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Read), [other]);
    (bench, read, [gone, other])
}

/// The array waits for a member, and it works again.
fn comes_back(bench: &mut Bench, member: usize) {
    bench.install(|map| map.held[member] = true);
    bench.install(|map| {
        map.held[member] = false;
        map.released[member] += 1;
    });
}

#[test]
fn a_read_waits_for_what_becomes_of_a_member_that_it_needs() {
    let (mut bench, read, [gone, other]) = reconstructing();
    bench.answer(other, Operation::Read, Status::Ok);
    bench.poll();
    assert_eq!(bench.verdict(read), None, "it may come back");
    assert!(bench.outside.asked.is_empty());
    comes_back(&mut bench, gone);
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
}

#[test]
fn a_read_is_made_again_if_its_member_came_back_while_it_waited_for_another() {
    let (mut bench, read, [gone, other]) = reconstructing();
    comes_back(&mut bench, gone);
    bench.answer(other, Operation::Read, Status::Ok);
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
}
