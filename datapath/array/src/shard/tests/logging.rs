//! Writes that are logged first.

use block::{Operation, Status};

use super::{Bench, STRIPE_BLOCKS, member_of};
use crate::format::WriteHole;
use crate::io::Message;
use crate::map::MapState;

/// A write whose pieces are in the log, and not flushed.
fn logged() -> (Bench, u64) {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    let write = bench.write_stripe(0);
    assert_eq!(bench.is_asked(Operation::Write).len(), 3, "its pieces");
    (bench, write)
}

fn write_pieces(bench: &mut Bench) {
    for drive in bench.is_asked(Operation::Write) {
        bench.answer(drive, Operation::Write, Status::Ok);
    }
}

#[test]
fn a_flush_of_the_log_counts_when_all_members_were_asked_however_little_room_there_is() {
    let (mut bench, write) = logged();
    write_pieces(&mut bench);
    for room in [0, 1, 0, 2] {
        bench.outside.room = room;
        bench.poll();
    }
    bench.outside.room = 100;
    bench.poll();
    assert!(
        bench.is_asked(Operation::Write).is_empty(),
        "none is flushed"
    );
    let mut asked = bench.is_asked(Operation::Flush);
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2]);
    bench.answer(0, Operation::Flush, Status::Ok);
    bench.answer(1, Operation::Flush, Status::Ok);
    bench.poll();
    assert!(
        bench.is_asked(Operation::Write).is_empty(),
        "one is not flushed"
    );
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn after_a_flush_of_the_log_that_failed_the_next_one_waits_until_its_member_is_out() {
    let (mut bench, write) = logged();
    write_pieces(&mut bench);
    bench.poll();
    bench.answer(0, Operation::Flush, Status::Media);
    bench.answer_all();
    assert!(bench.outside.asked.is_empty(), "it would be in vain");
    assert_eq!(bench.verdict(write), None);
    bench.install(|map| {
        map.members[0].state = MapState::Lost;
        map.barrier = map.serial;
    });
    let serial = bench.shard.map.serial;
    bench.answer_all();
    assert_eq!(bench.verdict(write), None, "others still count on it");
    bench.make_effective(serial);
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn a_degraded_array_logs_where_data_is_lost_and_not_where_parity_is() {
    let mut logged = Vec::new();
    for stripe in 0..3 {
        let mut bench = Bench::new();
        bench.install(|map| {
            map.write_hole = WriteHole::Auto;
            map.members[0].state = MapState::Lost;
        });
        let write = bench.write_stripe(stripe);
        assert_eq!(bench.is_asked(Operation::Write).len(), 2, "of those left");
        write_pieces(&mut bench);
        bench.poll();
        let is_logged = bench.verdict(write).is_none();
        let parity = member_of(&bench, stripe, 2);
        assert_eq!(is_logged, parity != 0, "{stripe}: parity is on {parity}");
        bench.answer_all();
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        logged.push(is_logged);
    }
    logged.sort_unstable();
    assert_eq!(logged, [false, true, true]);
}

/// Two writes that are a stripe together, and were logged as one.
fn joined() -> (Bench, [u64; 2]) {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    bench.fill(1);
    let cookies = [(0, 5), (5, 11)].map(|(start, blocks)| {
        let cookie = bench.ask(Operation::Write, STRIPE_BLOCKS + start, blocks);
        bench.poll();
        cookie
    });
    // The first reads: that is dropped.
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Ok);
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write).len(), 3, "its pieces");
    assert_eq!(bench.shard.counters().joined_writes, 1);
    (bench, cookies)
}

/// The same, with the member out that has the parity; which.
fn joined_without_parity() -> (Bench, [u64; 2], usize) {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    bench.fill(1);
    let parity = member_of(&bench, 1, 2);
    bench.exclude(parity);
    let pieces = [(0, 5), (5, 11)];
    let cookies =
        pieces.map(|(start, blocks)| bench.ask(Operation::Write, STRIPE_BLOCKS + start, blocks));
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write).len(), 2, "its pieces");
    assert_eq!(bench.shard.counters().joined_writes, 1);
    (bench, cookies, parity)
}

/// Bytes of all writes under way, and whether all are `byte`, but for parity and headers.
fn written(bench: &Bench, byte: u8) -> (u64, usize) {
    let writes = bench.outside.asked.iter();
    let writes = writes.filter(|request| request.operation == Operation::Write);
    let (mut bytes, mut chunks) = (0, 0);
    for request in writes {
        bytes += request.length;
        let content = Bench::content(request);
        let chunk = &content[content.len() - 4096..];
        chunks += usize::from(chunk.iter().all(|&one| one == byte));
    }
    (bytes, chunks)
}

#[test]
fn writes_that_come_together_are_one_write_in_the_log() {
    let (mut bench, cookies) = joined();
    assert_eq!(written(&bench, 1), (3 * 8192, 2));
    write_pieces(&mut bench);
    bench.poll();
    assert!(bench.is_asked(Operation::Write).is_empty(), "not flushed");
    for drive in 0..3 {
        bench.answer(drive, Operation::Flush, Status::Ok);
    }
    bench.poll();
    assert_eq!(written(&bench, 1), (3 * 4096, 2), "in their place");
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), None);
    }
    bench.answer_all();
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    assert!(bench.shard.is_idle());
}

#[test]
fn writes_that_were_logged_together_are_planned_together_ever_after() {
    let (mut bench, cookies, parity) = joined_without_parity();
    write_pieces(&mut bench);
    bench.poll();
    // Now parity is to be written, too.
    bench.install(|map| map.members[parity].state = MapState::InSync);
    for drive in bench.is_asked(Operation::Flush) {
        bench.answer(drive, Operation::Flush, Status::Ok);
    }
    bench.poll();
    assert_eq!(written(&bench, 1), (3 * 8192, 2), "both again");
    bench.answer_all();
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    assert!(bench.shard.is_idle());
}

#[test]
fn what_was_logged_together_and_given_up_is_carried_out_from_copies_of_all() {
    let (mut bench, cookies, parity) = joined_without_parity();
    let [gone, other] = [0, 1].map(|role| member_of(&bench, 1, role));
    bench.answer(gone, Operation::Write, Status::Gone);
    bench.answer(other, Operation::Write, Status::Ok);
    bench.install(|map| {
        map.held[gone] = true;
        map.given_up = true;
    });
    for _ in 0..4 {
        bench.pass(std::time::Duration::from_secs(1));
    }
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Media));
    }
    // The memory is the guest's again.
    bench.fill(2);
    bench.install(|map| {
        map.held[gone] = false;
        map.given_up = false;
        map.released[gone] += 1;
        // What is logged is not all that is to be written now.
        map.members[parity].state = MapState::InSync;
    });
    bench.pass(std::time::Duration::from_secs(1));
    let mut places = 0;
    while !bench.outside.asked.is_empty() {
        let (bytes, of_then) = written(&bench, 1);
        assert_eq!(written(&bench, 2).1, 0, "what the guest has there now");
        places += usize::from((bytes, of_then) == (3 * 4096, 2));
        let asked = std::mem::take(&mut bench.outside.asked);
        for request in asked {
            bench.outside.room += 1;
            let cookie = request.cookie;
            bench
                .shard
                .drive_done(cookie, Status::Ok, &mut bench.outside);
        }
        bench.pass(std::time::Duration::from_millis(1));
    }
    assert_eq!(places, 1, "both are written in their place");
    assert!(bench.shard.tickets.in_use() == 0);
}

#[test]
fn what_was_logged_together_may_go_on_row_by_row() {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    bench.fill(1);
    let parity = 2;
    bench.exclude(parity);
    let cookies = [0, 3].map(|start| bench.ask(Operation::Write, start, 3));
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write).len(), 1, "the piece");
    assert_eq!(bench.shard.counters().joined_writes, 1);
    // More is to be written now, so it reads, and not all rows can be read at once.
    bench.install(|map| map.members[parity].state = MapState::InSync);
    let mut blocks = Vec::new();
    for _ in 0..100 {
        let Some(request) = bench.outside.asked.pop() else {
            break;
        };
        if request.operation == Operation::Write && request.length < 4096 {
            // In its place.
            let content = Bench::content(&request);
            let rows = request.offset / 512..(request.offset + request.length) / 512;
            if content.iter().all(|&byte| byte == 1) {
                blocks.extend(rows);
            }
        }
        let reads_all = request.operation == Operation::Read && request.length == 6 * 512;
        let status = if reads_all { Status::Media } else { Status::Ok };
        bench.outside.room += 1;
        bench
            .shard
            .drive_done(request.cookie, status, &mut bench.outside);
        bench.poll();
    }
    for cookie in cookies {
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
    blocks.sort_unstable();
    let first = blocks[0];
    blocks.dedup();
    assert_eq!(blocks, Vec::from_iter(first..first + 6), "each row of both");
    assert!(bench.shard.is_idle());
}

#[test]
fn what_was_logged_is_written_although_nothing_can_be_read_any_more() {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    let write = bench.ask(Operation::Write, 0, 3);
    bench.poll();
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Ok);
    bench.poll();
    let pieces = bench.is_asked(Operation::Write);
    assert_eq!(pieces.len(), 2, "of the chunk and of parity");
    write_pieces(&mut bench);
    bench.poll();
    // The one that was read is out.
    bench.exclude(drive);
    for member in [0, 1, 2] {
        bench.answer(member, Operation::Flush, Status::Ok);
    }
    bench.poll();
    assert!(bench.is_asked(Operation::Read).is_empty());
    assert_eq!(bench.is_asked(Operation::Write), pieces, "logged again");
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(bench.shard.is_idle());
}

#[test]
fn a_slot_names_its_cell_as_long_as_it_is_in_use_and_then_until_its_life_is_dead() {
    let (mut bench, write) = logged();
    bench.shard.log.forget(u64::MAX);
    assert!(bench.shard.log.names(), "it is in use");
    write_pieces(&mut bench);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let life = bench.shard.map.log_life;
    bench.shard.log.forget(life);
    assert!(bench.shard.log.names(), "its life goes on");
    bench.shard.log.forget(life + 1);
    assert!(!bench.shard.log.names());
}

#[test]
fn a_life_of_the_log_is_drained_when_the_last_write_that_it_holds_has_ended() {
    let (mut bench, write) = logged();
    let drained = |bench: &mut Bench| {
        let drained = |reply: &Message| matches!(reply, Message::LogDrained);
        let replies = std::mem::take(&mut bench.outside.replies);
        replies.iter().any(drained)
    };
    let (life, since) = (bench.shard.map.log_life, 0);
    bench.tell(Message::DrainLog { life, since });
    assert!(drained(&mut bench), "no write is older");
    let life = life + 1;
    bench.tell(Message::DrainLog { life, since });
    write_pieces(&mut bench);
    bench.poll();
    assert!(!drained(&mut bench), "it is to be written in its place");
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert!(drained(&mut bench));
}

/// What is in the log may be written by the next engine: were the row read again, and a block of it
/// bad by then, the write could fail and others go on beside it.
#[test]
fn what_is_logged_is_not_read_again_because_a_member_is_waited_for() {
    let mut bench = Bench::new();
    bench.install(|map| map.write_hole = WriteHole::Strict);
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    for drive in bench.is_asked(Operation::Read) {
        bench.answer(drive, Operation::Read, Status::Ok);
    }
    bench.poll();
    assert_eq!(bench.is_asked(Operation::Write).len(), 2, "its pieces");
    let parity = member_of(&bench, 0, 2);
    let mut map = bench.shard.successor();
    map.held[parity] = true;
    bench.set_map(map);
    write_pieces(&mut bench);
    bench.poll();
    for _ in 0..3 {
        for drive in bench.is_asked(Operation::Flush) {
            bench.answer(drive, Operation::Flush, Status::Ok);
        }
        bench.poll();
    }
    assert!(bench.is_asked(Operation::Read).is_empty());
    assert_eq!(
        bench.is_asked(Operation::Write).len(),
        2,
        "where they belong"
    );
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}
