//! Runs histories: `sim [--seed S] [--seeds N] [--hours H] [--rounds R] [--jobs J] [--keep-going]
//! [--twice]`: N seeds from S on, or as many as H hours have room for, each once more by another
//! process if they are to go the same way twice; or small models, exhausted: `sim --exhaustive
//! [--full] [--jobs J] [SCENARIO…]`. J of them at a time; what is told is the same for any J.
//! Ends at the first that fails, looks for its shortest part that still fails, and says how to run
//! that again.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command")]
#![allow(
    clippy::disallowed_methods,
    reason = "measures how fast it is and ends after hours, nothing else"
)]

use std::cell::Cell;
use std::ops::ControlFlow;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use sim::exhaustive::{self, Bounds, Count, names};
use sim::history::{Outcome, run_part};
use sim::jobs;

/// Seeds that are run, when the command line does not say.
const SEEDS: u64 = 100;
/// The most rounds that a history may have: four lives of 250.
const ROUNDS_MAX: u64 = 1000;

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Wanted {
    first: u64,
    seeds: u64,
    rounds: u64,
    jobs: usize,
    end: Option<Duration>,
    keep_going: bool,
    twice: bool,
}

/// Why a seed has no outcome.
enum Failed {
    /// There was no time left for it.
    NotRun,
    /// A promise was broken.
    Broken,
    /// It had another one in another process.
    Differs,
}

thread_local! {
    /// The seed that this thread runs.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
    /// Panics of this thread are known, and nobody is to read of them.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

fn main() -> ExitCode {
    sim::keep_freed_memory();
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_QUIET.get() {
            return;
        }
        if let Some(seed) = SEED.get() {
            eprintln!("seed {seed}:");
        }
        say(panic);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == "--exhaustive")
    {
        return exhaust(&arguments[1..]);
    }
    let Some(wanted) = parse(&arguments) else {
        println!(
            "usage: sim [--seed S] [--seeds N] [--hours H] [--rounds R] [--jobs J] [--keep-going] \
             [--twice]\nN seeds from S on, or as many as H hours have room for, each for at most R \
             rounds, J of them at a time, and --twice by two processes that must see the same"
        );
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let (mut total, mut run, mut failed) = (Outcome::default(), 0_u32, 0_u32);
    let seeds = wanted.first..wanted.first.saturating_add(wanted.seeds);
    let work = |seed| run_seed(seed, &wanted, begun);
    jobs::in_order(wanted.jobs, seeds, work, |seed, came| {
        run += 1;
        match came {
            Ok(outcome) => {
                total.add(&outcome);
                return ControlFlow::Continue(());
            }
            Err(Failed::NotRun) => {
                run -= 1;
                return ControlFlow::Break(());
            }
            Err(Failed::Broken) => report(seed, wanted.rounds),
            Err(Failed::Differs) => println!(
                "seed {seed} goes another way in another process: something in the engine or in \
                 the simulator depends on more than the seed (a hash map's order, an address, the \
                 real time), and no failure can be run again"
            ),
        }
        failed += 1;
        if wanted.keep_going {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if failed > 0 && !wanted.keep_going {
        return ExitCode::FAILURE;
    }
    let per_second = f64::from(run) / begun.elapsed().as_secs_f64();
    println!(
        "{run} seeds from {}: {failed} failed, {per_second:.1} seeds/s, {total}",
        wanted.first
    );
    if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn parse(arguments: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted {
        first: 0,
        seeds: SEEDS,
        rounds: ROUNDS_MAX,
        jobs: jobs::usual(),
        end: None,
        keep_going: false,
        twice: false,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--keep-going" || argument == "--twice" {
            wanted.keep_going |= argument == "--keep-going";
            wanted.twice |= argument == "--twice";
            continue;
        }
        let value = rest.next()?;
        match argument.as_str() {
            "--seed" => wanted.first = value.parse().ok()?,
            "--seeds" => wanted.seeds = value.parse().ok()?,
            "--rounds" => wanted.rounds = value.parse().ok()?,
            "--jobs" => wanted.jobs = value.parse().ok()?,
            "--hours" => {
                let hours: f64 = value.parse().ok()?;
                wanted.end = Some(Duration::try_from_secs_f64(hours * 3600.0).ok()?);
                wanted.seeds = u64::MAX;
            }
            _ => return None,
        }
    }
    Some(wanted)
}

/// Runs a seed, if there is time.
fn run_seed(seed: u64, wanted: &Wanted, begun: Instant) -> Result<Outcome, Failed> {
    if wanted.end.is_some_and(|end| begun.elapsed() >= end) {
        return Err(Failed::NotRun);
    }
    SEED.set(Some(seed));
    let outcome = attempt(seed, wanted.rounds).map_err(|_| Failed::Broken)?;
    if wanted.twice && !goes_the_same_way(seed, wanted, &outcome) {
        return Err(Failed::Differs);
    }
    Ok(outcome)
}

fn attempt(seed: u64, rounds: u64) -> std::thread::Result<Outcome> {
    std::panic::catch_unwind(|| run_part(seed, rounds))
}

/// Whether another process sees the same events, in the same order. Another process, because what
/// must not count, like where things are in memory, is the same for all that one does.
fn goes_the_same_way(seed: u64, wanted: &Wanted, outcome: &Outcome) -> bool {
    let [seed, rounds] = [seed, wanted.rounds].map(|number| number.to_string());
    let this = std::env::current_exe().expect("it runs");
    let words = ["--seed", &seed, "--seeds", "1", "--rounds", &rounds];
    let other = Command::new(this).args(words).output().expect("it runs");
    let events = format!("events {:016x}", outcome.trace);
    String::from_utf8_lossy(&other.stdout).contains(&events)
}

/// Says how to run a seed that has failed again, in its shortest part that fails.
fn report(seed: u64, rounds: u64) {
    IS_QUIET.set(true);
    // Below `passes` it does not fail, as far as was looked; at `fails` it does.
    let (mut passes, mut fails) = (0, rounds.min(ROUNDS_MAX));
    while passes < fails {
        let middle = passes.midpoint(fails);
        if attempt(seed, middle).is_ok() {
            passes = middle + 1;
        } else {
            fails = middle;
        }
    }
    IS_QUIET.set(false);
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let commit = commit.map_or_else(|_| Vec::new(), |output| output.stdout);
    println!(
        "seed {seed} failed at commit {}; again: cargo xtask sim --seed {seed} --seeds 1 --rounds \
         {fails}",
        String::from_utf8_lossy(&commit).trim()
    );
}

/// Runs the small models: those that are named, or all.
fn exhaust(words: &[String]) -> ExitCode {
    let (mut bounds, mut jobs) = (Bounds::SLICE, jobs::usual());
    let mut wanted: Vec<&str> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--full" => bounds = Bounds::FULL,
            "--jobs" => match words.next().map(|number| number.parse()) {
                Some(Ok(number)) => jobs = number,
                Some(Err(_)) | None => return usage_exhaustive(),
            },
            name if names(Bounds::FULL).any(|known| known == name) => wanted.push(name),
            _ => return usage_exhaustive(),
        }
    }
    if wanted.is_empty() {
        wanted = names(bounds).collect();
    }
    let begun = Instant::now();
    let (mut all, mut fails) = (Count::default(), false);
    let scenario = |number: u64| wanted[units::bytes_usize(number)];
    let work = |number| {
        let since = Instant::now();
        (exhaustive::run(scenario(number), bounds), since.elapsed())
    };
    let numbers = 0..units::bytes_u64(wanted.len());
    jobs::in_order(jobs, numbers, work, |number, (came, took)| {
        let name = scenario(number);
        match came {
            Ok(count) => {
                all.add(count);
                println!("{name}: {count}, {:.1} s", took.as_secs_f64());
                ControlFlow::Continue(())
            }
            Err(stops) => {
                let flag = bounds.flag();
                println!("{stops}\nagain: cargo xtask sim --exhaustive {flag}{name}");
                fails = true;
                ControlFlow::Break(())
            }
        }
    });
    if fails {
        return ExitCode::FAILURE;
    }
    println!("in all: {all}, {:.1} s", begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn usage_exhaustive() -> ExitCode {
    let known: Vec<&str> = names(Bounds::FULL).collect();
    println!(
        "usage: sim --exhaustive [--full] [--jobs J] [SCENARIO…]: {}",
        known.join(", ")
    );
    ExitCode::from(2)
}
