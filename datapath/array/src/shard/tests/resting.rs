//! When nobody looks at a shard.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

/// A shard that rests, with regions of which it knows that they are dirty.
fn resting() -> Bench {
    let mut bench = Bench::home(|_, _| {});
    bench.answer_all();
    bench.write_stripe(0);
    bench.answer_all();
    bench.turn();
    assert!(bench.rests());
    bench
}

impl Bench {
    fn rests(&self) -> bool {
        self.shard.rests(self.outside.now)
    }
}

#[test]
fn reads_by_drives_do_not_end_a_rest() {
    let mut bench = resting();
    let cookie = bench.ask(Operation::Read, 0, 1);
    assert!(bench.rests(), "nothing of it waits");
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Ok);
    assert!(bench.rests());
    assert_eq!(bench.verdict(cookie), Some(Status::Ok));
}

#[test]
fn a_read_that_finds_no_room_ends_it() {
    let mut bench = resting();
    bench.outside.room = 0;
    bench.ask(Operation::Read, 0, 1);
    assert!(!bench.rests());
    bench.turn();
    assert!(!bench.rests(), "it waits");
    bench.outside.room = AMPLE;
    bench.turn();
    assert_eq!(bench.is_asked(Operation::Read).len(), 1);
}

#[test]
fn a_read_that_fails_ends_it() {
    let mut bench = resting();
    bench.ask(Operation::Read, 0, 1);
    let drive = bench.is_asked(Operation::Read)[0];
    bench.answer(drive, Operation::Read, Status::Media);
    assert!(!bench.rests());
}

#[test]
fn whatever_else_comes_ends_it() {
    let mut bench = resting();
    bench.ask(Operation::Write, 0, 1);
    assert!(!bench.rests(), "a write");
    bench.poll();
    while !bench.outside.asked.is_empty() {
        assert!(!bench.rests(), "it is under way");
        bench.turn();
        let request = bench.outside.asked.remove(0);
        bench.outside.room += 1;
        bench
            .shard
            .drive_done(request.cookie, Status::Ok, &mut bench.outside);
        assert!(!bench.rests(), "a drive answers a ticket");
        bench.turn();
    }
    bench.poll();
    assert!(bench.rests());
    bench.ask(Operation::Flush, 0, 0);
    assert!(!bench.rests(), "a flush");
    bench.answer_all();
    assert!(bench.rests());
    bench.shard.message(OTHER, Message::Ack, &mut bench.outside);
    assert!(!bench.rests(), "a message");
    bench.poll();
    assert!(bench.rests());
    bench.shard.command(7, Command::Resync);
    assert!(!bench.rests(), "a command");
}

#[test]
fn no_rest_is_longer_than_until_something_is_due_or_a_millisecond() {
    let mut bench = resting();
    bench.outside.now = bench.outside.now + MILLISECOND;
    assert!(!bench.rests());
    bench.turn();
    assert!(bench.rests());
    let due = bench.shard.deadline().expect("regions are cleared");
    assert!(due > bench.outside.now + MILLISECOND);
    bench.outside.now = Instant(due.0 - 1);
    bench.turn();
    assert!(bench.rests());
    bench.outside.now = due;
    assert!(!bench.rests());
}

#[test]
fn nobody_turns_round_and_round_for_what_finds_no_room() {
    let mut bench = resting();
    bench.outside.room = 0;
    let cookie = bench.ask(Operation::Read, 0, 1);
    bench.poll();
    bench.outside.room = AMPLE;
    bench.answer_all();
    assert_eq!(bench.verdict(cookie), Some(Status::Ok));
}

#[test]
fn a_shard_is_idle_only_when_it_has_nothing_of_any_kind() {
    assert!(Bench::new().shard.is_idle());
    let kinds: [fn(&mut Bench); 6] = [
        |bench| assert!(bench.shard.requests.acquire().is_some()),
        |bench| assert!(bench.shard.works.acquire().is_some()),
        |bench| assert!(bench.shard.tickets.acquire().is_some()),
        |bench| bench.shard.asked_regions.push(3),
        |bench| bench.shard.begin_fence(OTHER, OTHER),
        |bench| bench.shard.await_list(2),
    ];
    for (number, begin) in kinds.into_iter().enumerate() {
        let mut bench = Bench::new();
        begin(&mut bench);
        assert!(!bench.shard.is_idle(), "kind {number}");
    }
}

#[test]
fn no_more_is_begun_in_a_turn_than_its_bytes() {
    let turns = |turn_bytes: u32| {
        let mut bench = Bench::new();
        bench.shard.turn_bytes = turn_bytes;
        for stripe in 0..6 {
            bench.ask(Operation::Write, stripe * STRIPE_BLOCKS, 1);
        }
        let begun = (0..6).map(|_| {
            bench.turn();
            bench.shard.tickets.in_use()
        });
        begun.collect::<Vec<_>>()
    };
    assert_eq!(turns(1), [1, 2, 3, 4, 5, 6], "one at least");
    assert_eq!(turns(1 << 20), [6; 6]);
    // Each costs its block, and 4 KiB as all do.
    let each = 4096 + 512;
    assert_eq!(turns(2 * each), [2, 4, 6, 6, 6, 6]);
    assert_eq!(turns(2 * each + 1), [3, 6, 6, 6, 6, 6]);
}

#[test]
fn a_shard_is_busy_from_a_request_to_its_answer() {
    let mut bench = Bench::new();
    assert!(!bench.shard.is_busy());
    bench.write_stripe(0);
    assert!(bench.shard.is_busy());
    bench.answer_all();
    assert!(!bench.shard.is_busy());
}
