//! Stripes go from one reactor to another: what a shard that is not the home does for it.

use std::time::Duration;

use block::{Operation, Status};
use units::limits::BUCKETS;

use super::{Bench, ME, OTHER, STRIPE_BLOCKS};
use crate::command::{Command, Refusal};
use crate::io::{Event, Message};
use crate::owners::Owners;

/// All stripes are in this bucket.
const BUCKET: usize = 0;

/// From now on this shard's stripes go to the other one; the tables between and after.
fn begin(bench: &mut Bench) -> (std::sync::Arc<Owners>, std::sync::Arc<Owners>) {
    let target = Owners::new(|bucket| if bucket == BUCKET { OTHER } else { ME });
    let step = bench.shard.map.owners.toward(&target, BUCKETS);
    let step = step.expect("it differs");
    let between = step.between.clone();
    bench.install(|map| map.owners = between);
    (step.between, step.after)
}

#[test]
fn what_is_asked_while_stripes_move_waits_and_goes_to_the_next_owner() {
    let mut bench = Bench::new();
    let before = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    let (_, after) = begin(&mut bench);
    let write = bench.ask(Operation::Write, STRIPE_BLOCKS, 1);
    let read = bench.ask(Operation::Read, 2 * STRIPE_BLOCKS, 1);
    bench.answer_all();
    assert_eq!(bench.verdict(read), Some(Status::Ok), "it asks no owner");
    assert_eq!(bench.verdict(before), Some(Status::Ok), "it had begun");
    assert_eq!(bench.verdict(write), None);
    assert!(bench.outside.messages.is_empty(), "nobody is asked");
    bench.install(|map| map.owners = after);
    let work = bench
        .outside
        .messages
        .pop()
        .expect("the next owner is asked");
    let Message::Work(work) = work else {
        panic!("{work:?}");
    };
    assert_eq!((work.start, work.blocks), (STRIPE_BLOCKS, 1));
    let (request, status) = (work.request, Status::Ok);
    bench.tell(Message::WorkDone { request, status });
    assert_eq!(bench.verdict(write), Some(Status::Ok));
}

#[test]
fn stripes_are_handed_over_when_nothing_is_under_way_there() {
    for given_up in [false, true] {
        let mut bench = Bench::new();
        let write = bench.ask(Operation::Write, 0, 1);
        bench.poll();
        let (_, after) = begin(&mut bench);
        let owners = |bench: &Bench| bench.shard.map.owners.clone();
        let between = owners(&bench);
        bench.outside.replies.clear();
        bench.tell(Message::HandOver);
        assert!(bench.outside.replies.is_empty(), "it writes");
        assert!(!bench.shard.is_idle());
        if given_up {
            bench.install(|map| map.owners = Owners::new(|_| ME));
            let last = bench.outside.replies.pop().expect("none move any more");
            assert!(
                matches!(last, Message::HandedOver { named: false }),
                "{last:?}"
            );
            bench.answer_all();
        } else {
            bench.answer_all();
            let last = bench.outside.replies.pop().expect("it has ended");
            assert!(
                matches!(last, Message::HandedOver { named: false }),
                "{last:?}"
            );
            assert_eq!(owners(&bench), between);
            bench.install(|map| map.owners = after);
        }
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        assert!(bench.shard.is_idle());
    }
}

#[test]
fn what_was_sent_before_has_come_when_the_owner_has_heard_a_knock() {
    let mut bench = Bench::new();
    bench.tell(Message::Fence { owner: OTHER });
    let knock = bench.outside.messages.pop().expect("it asks the owner");
    assert!(matches!(knock, Message::Knock), "{knock:?}");
    assert!(bench.outside.replies.is_empty() && !bench.shard.is_idle());
    bench.tell(Message::Heard);
    let last = bench.outside.replies.pop().expect("the home waits");
    assert!(matches!(last, Message::Fenced), "{last:?}");
    bench.tell(Message::Knock);
    let last = bench.outside.replies.pop().expect("so does the other one");
    assert!(matches!(last, Message::Heard), "{last:?}");
    assert!(bench.shard.is_idle());
}

/// The other shard follows the maps of the home, and answers nothing else.
pub(super) fn follow(bench: &mut Bench) {
    loop {
        let mut messages = bench.outside.messages.iter().enumerate();
        let next = messages.find_map(|(at, message)| {
            if let Message::Install(map) = message {
                return Some((at, map.serial));
            }
            if let Message::Effective { serial } = message {
                return Some((at, *serial));
            }
            None
        });
        let Some((at, serial)) = next else {
            return;
        };
        bench.outside.messages.remove(at);
        bench.tell(Message::Installed { serial });
    }
}

#[test]
fn stripes_that_wait_for_a_fence_are_taken_back_in_the_end() {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.decider().reactors.push(OTHER);
    let before = bench.shard.map.owners.clone();
    let target = Owners::new(|_| OTHER);
    bench.shard.command(3, Command::Distribute(target));
    bench.poll();
    follow(&mut bench);
    let is_fence = |message: &Message| matches!(message, Message::Fence { owner: ME });
    assert!(bench.outside.messages.iter().any(is_fence));
    let write = bench.ask(Operation::Write, 0, 1);
    bench.answer_all();
    assert_eq!(bench.verdict(write), None, "nobody owns its stripe");
    bench.pass(Duration::from_millis(99));
    assert!(bench.shard.map.owners.is_moving());
    bench.pass(Duration::from_millis(1));
    follow(&mut bench);
    assert_eq!(bench.shard.map.owners, before);
    bench.answer_all();
    assert_eq!(bench.verdict(write), Some(Status::Ok));
    let done = |event: &Event| {
        matches!(
            event,
            Event::CommandDone {
                id: 3,
                result: Err(_)
            }
        )
    };
    assert!(bench.outside.events.iter().any(done));
    // The answer may come after that, and the next move waits for it.
    assert!(bench.shard.decider().handing_over.is_asking());
    bench.tell(Message::Fenced);
    assert!(!bench.shard.decider().handing_over.is_asking());
}

#[test]
fn stripes_of_the_home_go_to_another_reactor_when_it_has_ended_its_work_there() {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.decider().reactors.push(OTHER);
    let write = bench.ask(Operation::Write, 0, 1);
    bench.poll();
    let target = Owners::new(|_| OTHER);
    bench.shard.command(3, Command::Distribute(target.clone()));
    bench.poll();
    let done = |event: &Event| {
        matches!(
            event,
            Event::CommandDone {
                id: 3,
                result: Ok(())
            }
        )
    };
    let mut moves = 0;
    while !bench.outside.events.iter().any(done) {
        moves += 1;
        assert!(moves <= BUCKETS, "each moves some");
        follow(&mut bench);
        assert!(bench.shard.map.owners.is_moving());
        let is_fence = |message: &Message| matches!(message, Message::Fence { owner: ME });
        let fence = bench.outside.messages.iter().position(is_fence);
        bench.outside.messages.remove(fence.expect("it is asked"));
        bench.tell(Message::Fenced);
        assert_eq!(bench.verdict(write).is_some(), moves > 1);
        bench.answer_all();
        assert_eq!(bench.verdict(write), Some(Status::Ok));
        // Everybody has to follow the map with the new owner, too.
        follow(&mut bench);
    }
    assert_eq!(bench.shard.map.owners, target);
}

#[test]
fn of_two_distributions_that_wait_the_later_one_counts() {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.decider().reactors.push(OTHER);
    let [half, most] =
        [2, 3].map(|part| Owners::new(move |bucket| if bucket % part == 0 { ME } else { OTHER }));
    bench.shard.command(3, Command::Distribute(half));
    bench.shard.command(4, Command::Distribute(most.clone()));
    bench.poll();
    let result = |bench: &Bench, command: u64| {
        let done = |result| Event::CommandDone {
            id: command,
            result,
        };
        let overruled = Refusal::Failed("stripes are to go elsewhere since".to_owned());
        let ends = [done(Ok(())), done(Err(overruled))];
        let [well, badly] = ends.map(|end| bench.outside.events.contains(&end));
        (well || badly).then_some(well)
    };
    assert_eq!(result(&bench, 3), Some(false), "overruled");
    for _ in 0..BUCKETS {
        follow(&mut bench);
        let is_fence = |message: &Message| matches!(message, Message::Fence { owner: ME });
        if let Some(fence) = bench.outside.messages.iter().position(is_fence) {
            bench.outside.messages.remove(fence);
            bench.tell(Message::Fenced);
        }
        bench.answer_all();
    }
    assert_eq!(result(&bench, 4), Some(true), "it comes to an end");
    assert_eq!(bench.shard.map.owners, most);
}

#[test]
fn stripes_go_to_nobody_who_has_no_share_and_stay_when_there_is_nothing_to_do() {
    let mut bench = Bench::home(|_, _| {});
    let result = |bench: &mut Bench, target: std::sync::Arc<Owners>| {
        bench.command(Command::Distribute(target));
        match bench.outside.events.pop() {
            Some(Event::CommandDone { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    };
    let to_other = Owners::new(|_| OTHER);
    let refused = result(&mut bench, to_other);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    let serial = bench.shard.map.serial;
    let same = Owners::new(|_| ME);
    assert_eq!(result(&mut bench, same), Ok(()));
    assert_eq!(bench.shard.map.serial, serial, "no map is needed");
    bench.command(Command::Stop);
    bench.outside.events.clear();
    let same = Owners::new(|_| ME);
    let refused = result(&mut bench, same);
    assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
}

#[test]
fn the_home_asks_others_to_drain_the_log_and_counts_that() {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.decider().reactors.push(OTHER);
    let options = crate::format::ArrayOptions {
        write_hole: crate::format::WriteHole::Strict,
        ..crate::format::ArrayOptions::default()
    };
    bench.shard.command(3, Command::Options(options));
    bench.poll();
    follow(&mut bench);
    let drains = |message: &Message| matches!(message, Message::DrainLog { .. });
    let asked = bench.outside.messages.iter().filter(|it| drains(it));
    assert_eq!(asked.count(), 1);
    assert!(bench.outside.asked.is_empty(), "it has not answered");
    bench.tell(Message::LogDrained);
    assert!(!bench.outside.asked.is_empty(), "a record says so");
    for _ in 0..4 {
        bench.answer_all();
        follow(&mut bench);
    }
    assert!(bench.is_done());
}

#[test]
fn a_life_of_the_log_ends_for_nobody_who_could_not_be_asked_yet() {
    let mut bench = Bench::home(|_, _| {});
    bench.shard.decider().reactors.push(OTHER);
    bench.outside.refuses = |message| matches!(message, Message::DrainLog { .. });
    let options = crate::format::ArrayOptions {
        write_hole: crate::format::WriteHole::Strict,
        ..crate::format::ArrayOptions::default()
    };
    bench.shard.command(3, Command::Options(options));
    bench.poll();
    follow(&mut bench);
    assert!(bench.outside.asked.is_empty(), "no record says so");
    bench.outside.refuses = |_| false;
    bench.poll();
    let asked = bench.outside.messages.pop();
    assert!(matches!(asked, Some(Message::DrainLog { .. })), "{asked:?}");
    assert!(bench.outside.asked.is_empty());
}

#[test]
fn an_owner_that_has_answered_can_be_asked_again() {
    let mut bench = Bench::new();
    bench.install(|map| map.owners = Owners::new(|_| OTHER));
    for _ in 0..20 {
        let write = bench.ask(Operation::Write, 0, 1);
        bench.poll();
        let Some(Message::Work(work)) = bench.outside.messages.pop() else {
            panic!("it owns the stripe");
        };
        let (request, status) = (work.request, Status::Ok);
        bench.tell(Message::WorkDone { request, status });
        assert_eq!(bench.verdict(write), Some(Status::Ok));
    }
}
