//! What a shard counts of what it does. Requests of drives and messages are compared with what was
//! asked in every turn of every test.

use block::{Operation, Status};
use units::StripeIndex;

use super::{Bench, Shape, member_of};
use crate::command::Command;
use crate::io::Event;
use crate::scrub::{ScrubFinding, ScrubOrder, ScrubOutcome};
use crate::shard::ShardCounters;

fn of(members: usize) -> Bench {
    Bench::shaped(Shape {
        members,
        ..Shape::default()
    })
}

/// All that is counted of one request, after which drives answer everything. The first to be asked
/// fails in this way.
fn counted(mut bench: Bench, asked: (Operation, u32), first: Status) -> ShardCounters {
    let before = bench.shard.counters();
    assert_eq!(before, ShardCounters::default());
    let (operation, blocks) = asked;
    let cookie = bench.ask(operation, 0, blocks);
    bench.poll();
    let request = bench.outside.asked[0];
    if first == Status::Media {
        bench.cannot_read(request.drive.at());
    } else {
        bench.answer(request.drive.at(), request.operation, first);
    }
    bench.answer_all();
    assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    bench.shard.counters()
}

#[test]
fn each_way_to_serve_a_request_counts_under_its_name() {
    let counters = ShardCounters {
        direct_reads: 1,
        drive_requests: 1,
        ..ShardCounters::default()
    };
    let read = (Operation::Read, 1);
    assert_eq!(counted(of(3), read, Status::Ok), counters);
    assert_eq!((counters.tickets(), counters.buffered_transfers()), (0, 0));
    // The ticket asks for the bad block once more, computes it, writes it anew and reads it back.
    let counters = ShardCounters {
        direct_reads: 1,
        reconstructed_reads: 1,
        media_errors: 1,
        rewrites: 1,
        bytes_copied: 512,
        drive_requests: 1 + 1 + 2 + 1 + 1,
        ..ShardCounters::default()
    };
    assert_eq!(counted(of(3), read, Status::Media), counters);
    assert_eq!((counters.tickets(), counters.buffered_transfers()), (1, 5));
    let write = |drive_requests, bytes_copied| ShardCounters {
        drive_requests,
        bytes_copied,
        ..ShardCounters::default()
    };
    let counters = ShardCounters {
        full_writes: 1,
        whole_requests: 1,
        ..write(3, 16 * 512)
    };
    let whole = (Operation::Write, 16);
    assert_eq!(counted(of(3), whole, Status::Ok), counters);
    assert_eq!((counters.tickets(), counters.buffered_transfers()), (1, 3));
    let counters = ShardCounters {
        reconstruct_writes: 1,
        ..write(1 + 2, 512)
    };
    let small = (Operation::Write, 1);
    assert_eq!(counted(of(3), small, Status::Ok), counters);
    assert_eq!(counters.tickets(), 1);
    let counters = ShardCounters {
        read_modify_writes: 1,
        ..write(2 + 2, 512)
    };
    assert_eq!(counted(of(8), small, Status::Ok), counters);
    assert_eq!(counters.tickets(), 1);
}

#[test]
fn what_a_scrub_finds_is_counted_told_and_in_its_record() {
    let mut bench = Bench::home(|_, _| {});
    let bad = member_of(&bench, 5, 0);
    bench.shard.command(2, Command::Scrub(ScrubOrder::Start));
    bench.poll();
    let mut fails = 0;
    while let Some(next) = bench.outside.asked.first().copied() {
        let (status, more) = match (next.operation, bench.shard.map.window) {
            (Operation::Read, Some(window))
                if window.start == StripeIndex(5) && next.drive.at() == bad && fails < 2 =>
            {
                (Status::Media, 1)
            }
            _ => (Status::Ok, 0),
        };
        fails += more;
        bench.answer(next.drive.at(), next.operation, status);
        bench.poll();
    }
    let counters = bench.shard.counters();
    assert_eq!((counters.scrub_found, counters.scrub_repaired), (1, 1));
    assert_eq!(counters.scrubbed_cells, bench.shard.map.geometry.stripes());
    let mut told = bench.outside.events.iter().filter_map(|event| {
        let Event::Scrubbed(finding) = event else {
            return None;
        };
        Some(*finding)
    });
    let ScrubFinding {
        stripe, outcome, ..
    } = told.next().expect("it is told");
    assert_eq!((stripe, outcome), (StripeIndex(5), ScrubOutcome::Repaired));
    assert_eq!(told.next(), None);
    let tally = bench.shard.scrub_status().expect("home").record.tally;
    assert_eq!((tally.unreadable, tally.repaired), (1, 1));
    assert_eq!((tally.mismatches, tally.unrepaired), (0, 0));
    let guilt: Vec<u64> = (0..3).map(|member| u64::from(member == bad)).collect();
    assert_eq!(bench.shard.scrub_guilt(), guilt);
}
