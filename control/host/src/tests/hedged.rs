//! A drive hangs for the first time, with all times as they are: what it keeps of reads is answered
//! from the others, and writes end when it is left out.
//!
//! How long that took is printed beside how late the machine was meanwhile, and not judged: a busy
//! machine is no fault of ours. What is judged is that the drive had not answered.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use array::format::ExclusionCause;
use array::{Hedging, Patience, ShardCounters};
use control::Engine;
use control::metrics::Samples;
use control::request::{ArrayModify, ExportCreate, HedgedReads, MemberReplace};
use control::view::{ArrayState, MemberState, Sharing};
use drive::Fault;
use units::{Clock, MonotonicClock};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

/// Longer than anything here waits.
const FOR_EVER: Duration = Duration::from_secs(60);
/// After this a drive that answers nothing is left out.
const LATE: Duration = Duration::from_secs(3);
const SECTORS_PER_CHUNK: u64 = 128;
/// Each with one request at a time.
const GUESTS: usize = 8;

/// Guests of one volume, of which the first bytes of each chunk are its number and one.
fn guests(bench: &Bench) -> Vec<Guest> {
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let connect = |number: usize| {
        let name = format!("e{number}");
        let export = ExportCreate {
            sharing: Sharing::Shared,
            ..export_of(bench, &name, "v")
        };
        bench.host.export_named(&export).expect("served");
        Guest::connect(&bench.path(&format!("{name}.sock")))
    };
    let mut guests: Vec<Guest> = (0..GUESTS).map(connect).collect();
    for chunk in 0..GUESTS {
        guests[0].fill(sector(chunk), byte(chunk));
    }
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    guests
}

fn sector(chunk: usize) -> u64 {
    units::bytes_u64(chunk) * SECTORS_PER_CHUNK
}

fn byte(chunk: usize) -> u8 {
    u8::try_from(chunk).expect("few") + 1
}

fn hedge(bench: &Bench, hedged_reads: HedgedReads) {
    let modify = ArrayModify {
        hedged_reads: Some(hedged_reads),
        ..ArrayModify::default()
    };
    let view = bench.host.modify_array("tank", &modify).expect("it runs");
    assert_eq!(view.hedged_reads, hedged_reads);
}

fn sum(bench: &Bench, of: fn(&ShardCounters) -> u64) -> u64 {
    let index = bench.host.state().arrays["tank"].index;
    let state = bench.host.engine.array_state(index).expect("it runs");
    state.counters.iter().map(of).sum()
}

/// Lets the drive of member 1 go at last.
fn relieve(bench: &Bench) {
    if bench.array("tank").state == ArrayState::Optimal {
        bench.host.fail_member("tank", 1).expect("two are left");
    }
    let drive = bench.host.state().drives["two"].index;
    bench.host.engine.detach_drive(drive).expect("it runs");
}

/// How much later than asked for this machine wakes a thread, at the worst, until it is asked.
struct Lateness {
    worst_us: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Lateness {
    const NAP: Duration = Duration::from_millis(10);

    fn watch() -> Lateness {
        let worst_us = Arc::new(AtomicU64::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let (worst, end) = (Arc::clone(&worst_us), Arc::clone(&ends));
        let run = move || {
            while !end.load(Ordering::Relaxed) {
                let begun = MonotonicClock.now();
                std::thread::park_timeout(Lateness::NAP);
                let late = MonotonicClock
                    .now()
                    .since(begun)
                    .saturating_sub(Lateness::NAP);
                let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                worst.fetch_max(late, Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("lateness".to_owned());
        thread.spawn(run).expect("a thread");
        Lateness { worst_us, ends }
    }

    fn worst(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        Duration::from_micros(self.worst_us.load(Ordering::Relaxed))
    }
}

/// Has each guest ask for something, and waits until all are answered; how long the last took.
fn all_at_once(guests: Vec<Guest>, ask: impl Fn(&mut Guest, usize)) -> (Vec<Guest>, Duration) {
    let guests: Vec<RefCell<Guest>> = guests.into_iter().map(RefCell::new).collect();
    let begun = MonotonicClock.now();
    for (number, guest) in guests.iter().enumerate() {
        ask(&mut guest.borrow_mut(), number);
    }
    for guest in &guests {
        guest.borrow_mut().wait();
    }
    let took = MonotonicClock.now().since(begun);
    (guests.into_iter().map(RefCell::into_inner).collect(), took)
}

#[test]
fn reads_at_a_drive_that_hangs_for_the_first_time_are_answered_from_the_others() {
    let bench = Bench::tank();
    let guests = guests(&bench);
    hedge(&bench, HedgedReads::Always);
    let before = sum(&bench, |counters| counters.bounced_reads);
    let lateness = Lateness::watch();
    bench.inject("two", Fault::Delay(FOR_EVER));
    let (mut guests, took) = all_at_once(guests, |guest, number| guest.ask_read(sector(number)));
    // The drive has not answered: what was read came from the others.
    let given_up = sum(&bench, |counters| counters.given_up_reads);
    let bounced = sum(&bench, |counters| counters.bounced_reads) - before;
    println!(
        "{bounced} reads at once, {given_up} of them at the drive that hangs: the last answered \
         after {took:?}; the machine was {:?} late",
        lateness.worst()
    );
    assert!(given_up > 0 && bounced > 0, "{given_up} of {bounced}");
    assert_eq!(sum(&bench, |counters| counters.abandoned), 0);
    assert_eq!(sum(&bench, |counters| counters.unbuffered_reads), 0);
    assert_eq!(sum(&bench, |counters| counters.hedges_over_budget), 0);
    for (number, guest) in guests.iter_mut().enumerate() {
        assert_eq!(guest.answered_with(), [byte(number); 4096]);
        assert_eq!(guest.read(sector(number)), [byte(number); 4096]);
    }
    relieve(&bench);
}

#[test]
fn as_long_as_a_drive_hangs_no_other_read_is_made_at_it() {
    let bench = Bench::tank();
    let mut guest = guests(&bench).swap_remove(0);
    hedge(&bench, HedgedReads::Always);
    bench.inject("two", Fault::Delay(FOR_EVER));
    for _ in 0..3 {
        for chunk in 0..GUESTS {
            assert_eq!(guest.read(sector(chunk)), [byte(chunk); 4096]);
        }
    }
    assert_eq!(sum(&bench, |counters| counters.given_up_reads), 1);
    // Nobody waits for it, and it is left out all the same.
    wait_until("it is out", || {
        bench.array("tank").state == ArrayState::Degraded
    });
    assert_eq!(excluded(&bench), [("too_slow".to_owned(), 1)]);
    relieve(&bench);
}

#[test]
fn a_drive_that_takes_the_place_of_a_silent_one_is_not_taken_for_it() {
    let bench = Bench::tank();
    let mut guest = guests(&bench).swap_remove(0);
    hedge(&bench, HedgedReads::Always);
    bench.inject("two", Fault::Delay(FOR_EVER));
    for chunk in 0..GUESTS {
        guest.read(sector(chunk));
    }
    wait_until("it is out", || {
        bench.array("tank").state == ArrayState::Degraded
    });
    // What the old one keeps is still under way, and the new one takes its time.
    bench.memory("four");
    bench.inject("four", Fault::Delay(Duration::from_millis(100)));
    let replace = MemberReplace {
        member: 1,
        drive: "four".into(),
        force: false,
    };
    let replaced = bench.host.replace_member("tank", &replace);
    replaced.expect("it answers");
    bench.host.state().drives["four"].drive.clear_faults();
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    assert_eq!(excluded(&bench), [("too_slow".to_owned(), 1)]);
    let drive = bench.host.state().drives["two"].index;
    bench.host.engine.detach_drive(drive).expect("it runs");
}

#[test]
fn a_drive_that_has_lost_one_request_and_is_well_stays() {
    for _ in 0..5 {
        let bench = Bench::tank();
        let mut guest = guests(&bench).swap_remove(0);
        hedge(&bench, HedgedReads::Always);
        bench.inject("two", Fault::Delay(FOR_EVER));
        let mut chunks = (0..GUESTS).cycle();
        while sum(&bench, |counters| counters.given_up_reads) == 0 {
            guest.read(sector(chunks.next().expect("without end")));
        }
        // From here on it answers everything but what it has.
        bench.host.state().drives["two"].drive.clear_faults();
        let lost = 1 + sum(&bench, |counters| counters.trials);
        let begun = MonotonicClock.now();
        while lost == 1 && MonotonicClock.now().since(begun) < 2 * LATE {
            guest.read(sector(chunks.next().expect("without end")));
        }
        let state = bench.array("tank").state;
        let detours = sum(&bench, |counters| counters.detours);
        relieve(&bench);
        if lost == 1 {
            assert_eq!(state, ArrayState::Optimal, "{detours} reads went around it");
            return;
        }
    }
    panic!("each time it has lost what it was tried with, too");
}

#[test]
fn writes_to_a_drive_that_hangs_end_when_it_is_left_out() {
    let bench = Bench::tank();
    let guests = guests(&bench);
    let lateness = Lateness::watch();
    bench.inject("two", Fault::Delay(FOR_EVER));
    let (mut guests, took) = all_at_once(guests, |guest, number| {
        guest.begin_fill(sector(number), byte(number) + 100);
    });
    println!(
        "{GUESTS} writes at once: the last answered after {took:?}; the machine was {:?} late",
        lateness.worst()
    );
    let array = bench.array("tank");
    assert_eq!(array.state, ArrayState::Degraded);
    assert_eq!(array.members[1].state, MemberState::Failed);
    assert_eq!(
        array.members[1].cause.as_deref(),
        Some("did not answer in time")
    );
    assert_eq!(excluded(&bench), [("too_slow".to_owned(), 1)]);
    for (number, guest) in guests.iter_mut().enumerate() {
        assert_eq!(guest.read(sector(number)), [byte(number) + 100; 4096]);
    }
    relieve(&bench);
}

/// Why members were left out, and how many.
fn excluded(bench: &Bench) -> Vec<(String, u64)> {
    let metrics = bench.host.metrics();
    let family = metrics
        .iter()
        .find(|metric| metric.name == "array_excluded_members");
    let Samples::Counters(samples) = &family.expect("there").samples else {
        panic!("members are counted");
    };
    assert_eq!(samples.len(), ExclusionCause::ALL.len());
    let counted = samples.iter().filter(|(_, count)| *count > 0);
    let cause = |(labels, count): &(control::metrics::Labels, u64)| (labels[1].1.clone(), *count);
    counted.map(cause).collect()
}

#[test]
fn reads_go_through_buffers_from_the_first_one_on_and_straight_again_when_that_is_over() {
    let bench = Bench::tank();
    let mut guest = guests(&bench).swap_remove(0);
    let bounced = |bench: &Bench| sum(bench, |counters| counters.bounced_reads);
    assert_eq!(guest.read(0), [1; 4096]);
    assert_eq!(bounced(&bench), 0);
    hedge(&bench, HedgedReads::Always);
    assert_eq!(guest.read(0), [1; 4096]);
    assert_eq!(bounced(&bench), 1);
    hedge(&bench, HedgedReads::Auto);
    let guest = RefCell::new(guest);
    wait_until("reads go straight", || {
        let before = bounced(&bench);
        assert_eq!(guest.borrow_mut().read(0), [1; 4096]);
        bounced(&bench) == before
    });
}

#[test]
fn what_is_beyond_the_budget_waits_for_its_drive() {
    let once = Hedging {
        burst: 1,
        reads: u64::MAX,
        looks: u32::MAX,
    };
    let patience = Patience {
        hedging: once,
        ..Patience::default()
    };
    let bench = Bench::patient(patience);
    let guest = RefCell::new(guests(&bench).swap_remove(0));
    hedge(&bench, HedgedReads::Always);
    let given_up = || sum(&bench, |counters| counters.given_up_reads);
    let refused = || sum(&bench, |counters| counters.hedges_over_budget);
    let read_all = || {
        for chunk in 0..GUESTS {
            assert_eq!(guest.borrow_mut().read(sector(chunk)), [byte(chunk); 4096]);
        }
    };
    bench.inject("two", Fault::Delay(Duration::from_millis(300)));
    read_all();
    // It hangs again each time that it has answered.
    wait_until("the budget is used up", || {
        read_all();
        refused() > 0
    });
    assert_eq!(given_up(), 1);
    bench.host.state().drives["two"].drive.clear_faults();
}
