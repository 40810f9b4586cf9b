//! Members that take long.

use block::{Operation, Status};

use units::limits::REACTORS_MAX;
use units::{MemberIndex, ReactorIndex, Role};

use super::{Bench, LOOK, Patience, SLOW, STRIPE_BLOCKS, Shape, member_of};
use crate::format::HedgedReads;
use crate::geometry::Level;
use crate::io::Message;

/// Looks until a member that answers nothing is slow.
fn look_long(bench: &mut Bench) {
    for _ in 0..=SLOW {
        bench.pass(LOOK);
    }
}

/// A shard that reads block 0 from a member which does not answer; the member.
fn hanging(hedged: HedgedReads) -> (Bench, u64, usize) {
    let mut bench = Bench::new();
    bench.install(|map| map.hedged_reads = hedged);
    let read = bench.ask(Operation::Read, 0, 1);
    bench.poll();
    let member = member_of(&bench, 0, 0);
    assert_eq!(bench.is_asked(Operation::Read), [member]);
    (bench, read, member)
}

#[test]
fn a_member_that_takes_long_is_read_around_and_then_through_buffers_for_a_while() {
    let (mut bench, read, member) = hanging(HedgedReads::Auto);
    look_long(&mut bench);
    assert_eq!(
        bench.is_asked(Operation::Read),
        [member],
        "a guest's memory"
    );
    assert_eq!(bench.shard.counters().slow_spells, 1);
    let around = bench.ask(Operation::Read, 1, 1);
    bench.poll();
    let mut asked = bench.is_asked(Operation::Read);
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2], "the others instead");
    bench.answer_all_but(&[member]);
    assert_eq!(bench.verdict(around), Some(Status::Ok));
    assert_eq!(
        (bench.verdict(read), bench.shard.counters().detours),
        (None, 1)
    );
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
    look_long(&mut bench);
    assert_eq!(bench.shard.counters().bounced_reads, 0);
    bench.ask(Operation::Read, 2, 1);
    assert_eq!(bench.is_asked(Operation::Read), [member], "it answers");
    assert_eq!(bench.shard.counters().bounced_reads, 1, "for now");
}

#[test]
fn what_a_member_brings_that_is_out_by_then_is_not_believed() {
    // It may have carried out a write first that was given up, from memory that is another one's.
    for hedged in [HedgedReads::Auto, HedgedReads::Always] {
        let (mut bench, read, member) = hanging(hedged);
        bench.exclude(member);
        bench.answer(member, Operation::Read, Status::Ok);
        assert_eq!(bench.verdict(read), None);
        bench.poll();
        let mut asked = bench.is_asked(Operation::Read);
        asked.sort_unstable();
        let others: Vec<usize> = (0..3).filter(|other| *other != member).collect();
        assert_eq!(asked, others, "the others know");
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
    }
}

#[test]
fn a_read_that_is_given_up_in_vain_is_counted_and_one_that_was_not_is_not() {
    for (looks, wasted) in [(0, 1), (1, 0)] {
        let (mut bench, read, member) = hanging(HedgedReads::Always);
        let mut moved = 0;
        while bench.shard.counters().given_up_reads == 0 {
            bench.outside.now = bench.outside.now + LOOK;
            moved = bench.shard.advance_late(&mut bench.outside);
        }
        assert_eq!(moved, 1, "or its reactor sleeps");
        for _ in 0..looks {
            bench.pass(LOOK);
        }
        bench.answer(member, Operation::Read, Status::Ok);
        assert_eq!(bench.shard.counters().wasted_hedges, wasted);
        assert_eq!(bench.verdict(read), None, "nobody looks at that");
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
    }
}

#[test]
fn what_is_written_again_keeps_its_memory_until_a_drive_that_is_out_has_let_go_of_it() {
    let mut bench = Bench::new();
    bench.fill(0xA5);
    let read = bench.ask(Operation::Read, 0, 1);
    bench.poll();
    let member = member_of(&bench, 0, 0);
    bench.cannot_read(member);
    bench.answer_all_but(&[member]);
    assert_eq!(
        bench.is_asked(Operation::Write),
        [member],
        "in a clean region"
    );
    let mut asked = bench.outside.asked.iter();
    let again = *asked
        .find(|asked| asked.operation == Operation::Write)
        .expect("one");
    let before = Bench::content(&again);
    bench.exclude(member);
    look_long(&mut bench);
    assert_eq!(bench.verdict(read), Some(Status::Ok), "without it");
    assert_eq!(bench.shard.counters().abandoned, 1);
    bench.fill(0x5A);
    for stripe in 0..8 {
        let write = bench.write_stripe(stripe);
        bench.answer_all_but(&[member]);
        assert_eq!(bench.verdict(write), Some(Status::Ok));
    }
    // When it comes back, nobody knows that it was to be written there.
    assert_eq!(Bench::content(&again), before);
    bench.answer(member, Operation::Write, Status::Ok);
    assert!(bench.shard.is_idle());
}

/// Looks until the home is told that a member is late which answers all but what it was asked so
/// far; `None` when that does not come.
fn looks_until_late(bench: &mut Bench, member: usize) -> Option<u32> {
    bench.outside.asked.clear();
    (0..LONG).find(|_| {
        bench.pass(LOOK);
        bench.answer_all();
        let heard = (MemberIndex::from_at(member), bench.shard.late.now);
        bench.shard.hear(heard);
        bench.outside.messages.iter().any(|message| {
            let Message::Report(failure) = message else {
                return false;
            };
            failure.late && failure.member.at() == member
        })
    })
}

/// More looks than kernels wait for a drive.
const LONG: u32 = 3_200;

#[test]
fn who_keeps_a_request_for_ever_is_late_whatever_else_it_answers() {
    let on_time = 3_000..3_100;
    let (mut bench, read, member) = hanging(HedgedReads::Auto);
    let looks = looks_until_late(&mut bench, member).expect("it is told");
    assert!(on_time.contains(&looks), "{looks}");
    assert_eq!(bench.verdict(read), None);

    for operation in [Operation::Write, Operation::WriteZeroes] {
        let is_write = operation == Operation::Write;
        let mut bench = Bench::new();
        let stripe = u32::try_from(STRIPE_BLOCKS).expect("few");
        let write = bench.ask(operation, 0, stripe);
        bench.poll();
        let member = member_of(&bench, 0, 0);
        bench.answer_all_but(&[member]);
        assert_eq!(bench.is_asked(operation), [member]);
        let looks = looks_until_late(&mut bench, member);
        // Of zeroes that guests ask for it may have many, and is busy.
        let on_time = |looks: &u32| on_time.contains(looks);
        assert_eq!(looks.as_ref().is_some_and(on_time), is_write, "{looks:?}");
        assert_eq!(bench.verdict(write), None);
        bench.exclude(member);
        look_long(&mut bench);
        assert_eq!(bench.verdict(write), Some(Status::Ok), "without it");
    }
}

#[test]
fn who_takes_long_over_a_flush_and_answers_the_rest_is_busy() {
    let mut bench = Bench::new();
    let write = bench.write_stripe(0);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let flush = bench.ask(Operation::Flush, 0, 0);
    bench.poll();
    let member = member_of(&bench, 0, 0);
    bench.answer_all_but(&[member]);
    assert_eq!(bench.is_asked(Operation::Flush), [member]);
    assert_eq!(looks_until_late(&mut bench, member), None);
    assert_eq!(bench.verdict(flush), None);
}

#[test]
fn who_had_nothing_to_do_hears_of_a_slow_member_before_it_reads() {
    let mut bench = Bench::new();
    let member = member_of(&bench, 0, 0);
    bench.shard.shared.call_slow(member, super::OTHER, true);
    let read = bench.ask(Operation::Read, 0, 1);
    bench.poll();
    let asked = bench.is_asked(Operation::Read);
    assert!(!asked.contains(&member), "another shard knows");
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
    // And when it works again.
    bench.shard.shared.call_slow(member, super::OTHER, false);
    bench.pass(LOOK);
    bench.pass(LOOK);
    bench.ask(Operation::Read, 0, 1);
    assert_eq!(bench.is_asked(Operation::Read), [member]);
    bench.answer_all();
}

#[test]
fn a_member_is_slow_as_long_as_one_of_many_reactors_finds_it_slow() {
    let bench = Bench::new();
    let shared = &bench.shard.shared;
    let last = u16::try_from(REACTORS_MAX - 1).expect("few");
    for me in [0, 63, 64, last].map(ReactorIndex) {
        shared.call_slow(1, me, true);
        for other in (0..=last).map(ReactorIndex).filter(|&other| other != me) {
            shared.call_slow(1, other, true);
            shared.call_slow(1, other, false);
            assert!(shared.is_slow(1), "{me:?} says so only once, not {other:?}");
        }
        shared.call_slow(1, me, false);
        assert!(!shared.is_slow(1));
    }
}

#[test]
fn a_new_drive_is_not_slow_because_the_old_one_hangs() {
    let (mut bench, read, member) = hanging(HedgedReads::Auto);
    bench.install(|map| map.members[member].incarnation += 1);
    look_long(&mut bench);
    assert_eq!(bench.shard.counters().slow_spells, 0);
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok));
}

#[test]
fn a_read_through_a_buffer_is_one_request_and_copied_when_it_went_well() {
    for (status, copied) in [(Status::Ok, 4096), (Status::Media, 0)] {
        let (mut bench, read, member) = hanging(HedgedReads::Always);
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
        let before = bench.shard.counters().bytes_copied;
        let read = bench.ask(Operation::Read, 0, 8);
        bench.poll();
        assert_eq!(bench.is_asked(Operation::Read), [member]);
        bench.answer(member, Operation::Read, status);
        assert_eq!(bench.shard.counters().bytes_copied - before, copied);
        bench.answer_all();
        assert_eq!(bench.verdict(read), Some(Status::Ok));
    }
}

#[test]
fn a_read_through_a_buffer_does_not_wait_for_a_member_that_is_out() {
    let (mut bench, read, member) = hanging(HedgedReads::Always);
    bench.exclude(member);
    let mut moved = 0;
    while bench.shard.counters().abandoned == 0 {
        bench.outside.now = bench.outside.now + LOOK;
        moved = bench.shard.advance_late(&mut bench.outside);
    }
    assert_eq!(moved, 1, "or its reactor sleeps");
    bench.answer_all_but(&[member]);
    assert_eq!(bench.verdict(read), Some(Status::Ok));
    assert_eq!(bench.shard.counters().given_up_reads, 0);
    bench.answer(member, Operation::Read, Status::Ok);
    assert_eq!(bench.shard.buffers.in_use(), 0);
    assert!(bench.shard.is_idle());
}

/// How often the home was told that some member is late.
fn told_late(bench: &Bench) -> Vec<usize> {
    let late = |message: &Message| {
        let Message::Report(failure) = message else {
            return None;
        };
        (failure.late && !failure.passing).then(|| failure.member.at())
    };
    bench.outside.messages.iter().filter_map(late).collect()
}

#[test]
fn a_member_that_answers_nothing_is_told_of_again_and_again_if_others_answer() {
    let late = Patience::default().late;
    let (mut bench, _, member) = hanging(HedgedReads::Auto);
    let wait = |bench: &mut Bench, looks: u32| {
        for _ in 0..looks {
            bench.pass(LOOK);
        }
    };
    wait(&mut bench, late - 1);
    assert_eq!(told_late(&bench), []);
    wait(&mut bench, 3);
    assert_eq!(told_late(&bench), [member]);
    wait(&mut bench, late / 4);
    assert_eq!(told_late(&bench), [member; 2], "not at each look");
    bench.exclude(member);
    wait(&mut bench, late);
    assert_eq!(told_late(&bench), [member; 2], "it is out");
    // When no other answers, it is not the drive.
    let (mut bench, _, member) = hanging(HedgedReads::Auto);
    let others = (1..9).find(|stripe| member_of(&bench, *stripe, 0) != member);
    let start = others.expect("some stripe") * super::STRIPE_BLOCKS;
    bench.ask(Operation::Read, start, 1);
    wait(&mut bench, late * 2);
    assert_eq!(told_late(&bench), []);
}

#[test]
fn other_shards_hear_of_a_member_that_has_answered_and_of_no_other() {
    let mut bench = Bench::new();
    for block in [0, 8] {
        bench.ask(Operation::Read, block, 1);
    }
    let heard = |bench: &Bench| [0, 1, 2].map(|at| bench.shard.shared.heard(at));
    look_long(&mut bench);
    let before = heard(&bench);
    let answers = member_of(&bench, 0, 0);
    bench.answer(answers, Operation::Read, Status::Ok);
    bench.pass(LOOK);
    let changed = [0, 1, 2].map(|at| heard(&bench)[at] != before[at]);
    assert_eq!(changed, [0, 1, 2].map(|at| at == answers));
    bench.answer_all();
    let before = heard(&bench);
    look_long(&mut bench);
    let other = member_of(&bench, 0, 1);
    let changed = [0, 1, 2].map(|at| heard(&bench)[at] != before[at]);
    assert_eq!(changed, [0, 1, 2].map(|at| at == other));
}

#[test]
fn a_write_that_waits_for_what_a_slow_member_has_is_planned_without_it() {
    let mut bench = Bench::new();
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    let [member] = bench.is_asked(Operation::Read)[..] else {
        panic!("the other chunk: {:?}", bench.outside.asked);
    };
    look_long(&mut bench);
    assert_eq!(bench.shard.counters().given_up_reads, 1);
    bench.answer_all_but(&[member]);
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    assert_eq!(bench.is_asked(Operation::Read), [member]);
    bench.answer_all();
    assert!(bench.shard.is_idle());
}

#[test]
fn what_two_tickets_leave_to_drives_is_never_kept_together() {
    let mut bench = Bench::new();
    for stripe in 0..2 {
        bench.ask(Operation::Write, stripe * STRIPE_BLOCKS, 1);
    }
    bench.poll();
    let tickets = bench.shard.tickets.used();
    assert_eq!(tickets.len(), 2);
    let graves: Vec<u32> = [0, 1, 0, 1]
        .map(|at| bench.shard.bury(tickets[at], Role(1)))
        .to_vec();
    assert_eq!(graves[..2], graves[2..]);
    assert_ne!(
        graves[0], graves[1],
        "each goes when its own drives have answered"
    );
}

#[test]
fn a_write_does_not_wait_for_the_drive_that_was_a_members_before() {
    let mut bench = Bench::new();
    let write = bench.write_stripe(0);
    let member = member_of(&bench, 0, 0);
    bench.answer_all_but(&[member]);
    let serial = bench.install(|map| {
        map.members[member].incarnation += 1;
        map.barrier = map.serial;
    });
    bench.make_effective(serial);
    look_long(&mut bench);
    bench.answer_all_but(&[member]);
    assert_eq!(bench.shard.counters().abandoned, 1);
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

/// As reads of a member that hangs keep buffers: as many as are lent.
#[test]
fn what_reads_keep_leaves_buffers_for_the_widest_write() {
    let shape = Shape {
        level: Level::L6,
        members: 64,
        ..Shape::default()
    };
    let mut bench = Bench::shaped(shape);
    let loans: Vec<_> = std::iter::from_fn(|| bench.shard.lend_buffer(4096)).collect();
    let gone = member_of(&bench, 0, 61);
    bench.exclude(gone);
    let write = bench.ask(Operation::Write, 0, 40 * 8);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    for loan in loans {
        bench.shard.buffers.give_back(loan);
    }
    assert!(bench.shard.is_idle());
}
