//! The test of the test: switches one planted fault on after another, and runs histories until one
//! fails. `planted [--seed S] [--seeds N] [NAME…]`: N is the most seeds that a fault gets. A fault
//! that none of them catches is a hole in the simulator. `planted --exhaustive [NAME…]` does so
//! with the small models, for the faults that are theirs to find; names may be those of models,
//! too, and then no others are run. `planted --asserted [NAME…]` runs
//! histories as well, and what must see a fault is an assertion of the array: in all other runs
//! they let it pass, so that what comes of it is seen.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command")]

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};
use std::process::ExitCode;

use array::planted::{self, Fault, assert_all};
use sim::exhaustive::{self, Bounds};
use sim::jobs;
use virtqueue::planted as rings;

thread_local! {
    /// What the last panic of this thread said, and where.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Seeds that a fault gets, when the command line does not say.
const SEEDS: u64 = 1000;
/// Faults that the small models must catch; most others need several reactors, several
/// errors, or long histories.
const SMALL: [Fault; 41] = [
    Fault::AnswerBeforeExclusion,
    Fault::FailedWriteForgotten,
    Fault::FailedFlushForgotten,
    Fault::MediaErrorStays,
    Fault::DoubtfulDecodeBelieved,
    Fault::ReadAnUnfilledMember,
    Fault::AcceptTheLowerUpdate,
    Fault::RecordOverTheLast,
    Fault::NumberOfARecordSkipped,
    Fault::RecordOnHalfOfTheMembers,
    Fault::RecordNotFlushed,
    Fault::CleanWhileInUse,
    Fault::MemberForgottenInFlush,
    Fault::LaterFlushCounts,
    Fault::FlushDoesNotJoin,
    Fault::WriteDuringFlushForgotten,
    Fault::WriteBeforeDirty,
    Fault::RegionsNotFlushed,
    Fault::ClearedBeforeFlush,
    Fault::RegionCopyForgotten,
    Fault::LogSkipped,
    Fault::LogNotFlushed,
    Fault::LogFlushNeedsNoRoom,
    Fault::StaleLogReplayed,
    Fault::TornLogReplayed,
    Fault::EpochOffByOne,
    Fault::DirtyRegionsNotMissed,
    Fault::WrongRotationInOneGroup,
    Fault::RebuildWithoutLanes,
    Fault::ResyncNotLogged,
    Fault::RefusalNotFollowed,
    Fault::RefusalNotTold,
    Fault::RefusalBegunBesideTheLog,
    Fault::UnreadableRefusalStays,
    Fault::HeldFlushAnswered,
    Fault::FlushCountsBesideADoubt,
    Fault::TornEndNotTold,
    Fault::LockedDriveReturns,
    Fault::GuestMemoryReadTwice,
    Fault::OutMembersBelieved,
    Fault::BorrowedUnpromised,
];
/// Models that take as long as half of the others together: they are run last.
const LAST: [&str; 2] = [
    "strict-three-lost-of-level-7",
    "drives-err-under-a-logged-write",
];
/// Faults that break what the array asserts.
const ASSERTED: [Fault; 17] = [
    Fault::AnswerBeforeEveryReactor,
    Fault::ReadAnExcludedMember,
    Fault::PlanOfAnOldMap,
    Fault::HandedOverUnfenced,
    Fault::JoinsOverOthers,
    Fault::WriteBeforeDirty,
    Fault::LoggedBeforeDirty,
    Fault::RegionsNotFlushed,
    Fault::ClearedInUse,
    Fault::ClearedBeforeFlush,
    Fault::LogSkipped,
    Fault::LogNotFlushed,
    Fault::LogFlushNeedsNoRoom,
    Fault::NeededMemberExcluded,
    Fault::LaggardWasTheLastSpare,
    Fault::ScrubRecomputesParity,
    Fault::ScrubRepairsWhatItCannotLocate,
];
/// Of these, what a history meets so rarely besides that only an assertion must see it.
const ASSERTED_ONLY: [Fault; 1] = [Fault::HandedOverUnfenced];
/// Where assertions of the array are.
const ARRAY: &str = "datapath/array/src/";
/// Characters of a message that are shown.
const SHOWN: usize = 110;

/// Where a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Array(Fault),
    Ring(rings::Fault),
}

impl Planted {
    fn all() -> impl Iterator<Item = Planted> {
        let array = Fault::ALL.iter().copied().map(Planted::Array);
        array.chain(rings::Fault::ALL.iter().copied().map(Planted::Ring))
    }

    fn name(self) -> String {
        match self {
            Planted::Array(fault) => format!("{fault:?}"),
            Planted::Ring(fault) => format!("{fault:?}"),
        }
    }

    fn is_of(self, faults: &[Fault]) -> bool {
        matches!(self, Planted::Array(fault) if faults.contains(&fault))
    }

    /// Switches it on, and every other one off.
    fn switch_on(self) {
        let (array, ring) = match self {
            Planted::Array(fault) => (Some(fault), None),
            Planted::Ring(fault) => (None, Some(fault)),
        };
        planted::switch_on(array);
        rings::switch_on(ring);
    }
}

fn main() -> ExitCode {
    sim::keep_freed_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut first, mut seeds, mut names) = (0, SEEDS, Vec::new());
    let mut rest = arguments.iter();
    let (mut small, mut asserted) = (false, false);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            name @ ("--seed" | "--seeds") => {
                let Some(number) = rest.next().and_then(|text| text.parse().ok()) else {
                    return usage();
                };
                if name == "--seed" {
                    first = number;
                } else {
                    seeds = number;
                }
            }
            "--exhaustive" => small = true,
            "--asserted" => asserted = true,
            name if name.starts_with('-') => return usage(),
            name => names.push(name),
        }
    }
    let mut models: Vec<&str> = exhaustive::names(Bounds::FULL).collect();
    if small {
        models.retain(|model| names.contains(model));
        names.retain(|name| !models.contains(name));
    }
    let is_asked = |fault: &Planted| match names.is_empty() {
        true if asserted => fault.is_of(&ASSERTED),
        true => !small || fault.is_of(&SMALL),
        false => names.contains(&&*fault.name()),
    };
    let faults: Vec<Planted> = Planted::all().filter(is_asked).collect();
    if faults.len() < names.len() {
        return usage();
    }
    std::panic::set_hook(Box::new(|panic| {
        SAID.set(describe(panic));
    }));
    if asserted {
        assert_all();
    }
    let seeds = first..first.saturating_add(seeds);
    let missed = if small {
        exhaust(&faults, &models)
    } else if asserted {
        search(&faults, seeds, true)
    } else {
        let is_left = |fault: &Planted| fault.is_of(&ASSERTED_ONLY);
        let (left, seen): (Vec<Planted>, Vec<Planted>) =
            faults.iter().partition(|one| is_left(one));
        let missed = search(&seen, seeds.clone(), false);
        assert_all();
        missed + search(&left, seeds, true)
    };
    println!("{} of {} caught", faults.len() - missed, faults.len());
    if missed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs histories with each of the faults; how many were not caught, or by the end of a history
/// where an assertion of the array must see it.
fn search(faults: &[Planted], seeds: Range<u64>, asserted: bool) -> usize {
    let mut missed = 0;
    println!("{:<28} {:>5} {:>5}  caught by", "fault", "seeds", "seed");
    for fault in faults {
        fault.switch_on();
        let fails = |seed| std::panic::catch_unwind(|| sim::history::run(seed)).is_err();
        let caught = first(seeds.clone(), fails);
        let name = fault.name();
        if let Some((seed, said)) = caught {
            println!("{name:<28} {:>5} {seed:>5}  {said}", seed - seeds.start + 1);
            if asserted && !said.contains(ARRAY) {
                println!("{name:<28} NOT CAUGHT BY AN ASSERTION");
                missed += 1;
            }
        } else {
            let count = seeds.end - seeds.start;
            println!("{name:<28} {count:>5}     -  NOT CAUGHT");
            missed += 1;
        }
    }
    missed
}

/// Runs the small models with each of the faults, or those that are named; how many were not
/// caught.
fn exhaust(faults: &[Planted], named: &[&'static str]) -> usize {
    let mut scenarios = named.to_vec();
    if scenarios.is_empty() {
        scenarios.extend(exhaustive::names(Bounds::SLICE));
        scenarios.sort_by_key(|name| LAST.contains(name));
    }
    let mut missed = 0;
    for fault in faults {
        fault.switch_on();
        let scenario = |number: u64| scenarios[units::bytes_usize(number)];
        let fails = |number| exhaustive::run(scenario(number), Bounds::SLICE).is_err();
        let name = fault.name();
        if let Some((number, said)) = first(0..units::bytes_u64(scenarios.len()), fails) {
            let scenario = scenario(number);
            println!("{name:<28} {scenario:<30}  {said}");
        } else {
            println!("{name:<28} NOT CAUGHT");
            missed += 1;
        }
    }
    missed
}

/// The first number that fails, and what its last panic said. All cores look for it; the fault is
/// the same for the whole process.
fn first(numbers: Range<u64>, fails: impl Fn(u64) -> bool + Sync) -> Option<(u64, String)> {
    let mut found = None;
    let work = |number| fails(number).then(|| SAID.take());
    jobs::in_order(jobs::usual(), numbers, work, |number, said| {
        found = said.map(|said| (number, said));
        match found {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    found
}

/// Where a panic came from and what it said, in one line.
fn describe(panic: &std::panic::PanicHookInfo) -> String {
    let file = panic.location().map_or("", std::panic::Location::file);
    let payload = panic.payload();
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(payload.downcast_ref::<&str>().copied());
    let said = said.unwrap_or("?").replace('\n', " ");
    let said: String = said.chars().take(SHOWN).collect();
    format!("{file}: {said}")
}

fn usage() -> ExitCode {
    println!(
        "usage: planted [--seed S] [--seeds N] [--exhaustive [SCENARIO…] | --asserted] [FAULT…], FAULT one of"
    );
    for fault in Planted::all() {
        println!("  {}", fault.name());
    }
    ExitCode::from(2)
}
