//! Runs histories: `sim [--seed S] [--seeds N] [--hours H] [--rounds R] [--keep-going] [--twice]`:
//! N seeds from S on, or as many as H hours have room for, each once more by another process if
//! they are to go the same way twice; or small models, exhausted: `sim --exhaustive
//! [--full] [SCENARIO…]`. Ends at the first that fails, looks for its
//! shortest part that still fails, and says how to run that again.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command")]
#![allow(
    clippy::disallowed_methods,
    reason = "measures how fast it is and ends after hours, nothing else"
)]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use sim::exhaustive::{self, Bounds, Count, names};
use sim::history::{Outcome, run_part};

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
    end: Option<Duration>,
    keep_going: bool,
    twice: bool,
}

fn main() -> ExitCode {
    sim::keep_freed_memory();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .first()
        .is_some_and(|first| first == "--exhaustive")
    {
        return exhaust(&arguments[1..]);
    }
    let Some(wanted) = parse(&arguments) else {
        println!(
            "usage: sim [--seed S] [--seeds N] [--hours H] [--rounds R] [--keep-going] [--twice]\n\
             N seeds from S on, or as many as H hours have room for, each for at most R rounds, \
             and --twice by two processes that must see the same"
        );
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let (mut total, mut run, mut failed) = (Outcome::default(), 0_u32, 0_u32);
    for seed in wanted.first..wanted.first.saturating_add(wanted.seeds) {
        if wanted.end.is_some_and(|end| begun.elapsed() >= end) {
            break;
        }
        run += 1;
        match attempt(seed, wanted.rounds) {
            Ok(outcome) if !wanted.twice || goes_the_same_way(seed, &wanted, &outcome) => {
                total.add(&outcome);
                continue;
            }
            Ok(_) => println!(
                "seed {seed} goes another way in another process: something in the engine or in \
                 the simulator depends on more than the seed (a hash map's order, an address, the \
                 real time), and no failure can be run again"
            ),
            Err(_) => report(seed, wanted.rounds),
        }
        failed += 1;
        if !wanted.keep_going {
            return ExitCode::FAILURE;
        }
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
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
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
    std::panic::set_hook(said);
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
    let mut bounds = Bounds::SLICE;
    let mut wanted: Vec<&str> = Vec::new();
    for word in words {
        match word.as_str() {
            "--full" => bounds = Bounds::FULL,
            name if names().any(|known| known == name) => wanted.push(name),
            _ => {
                let known: Vec<&str> = names().collect();
                println!(
                    "usage: sim --exhaustive [--full] [SCENARIO…]: {}",
                    known.join(", ")
                );
                return ExitCode::from(2);
            }
        }
    }
    if wanted.is_empty() {
        wanted = names().collect();
    }
    let begun = Instant::now();
    let mut all = Count::default();
    for name in wanted {
        let since = Instant::now();
        let count = match exhaustive::run(name, bounds) {
            Ok(count) => count,
            Err(stops) => {
                let flag = bounds.flag();
                println!("{stops}\nagain: cargo xtask sim --exhaustive {flag}{name}");
                return ExitCode::FAILURE;
            }
        };
        all.add(count);
        println!("{name}: {count}, {:.1} s", since.elapsed().as_secs_f64());
    }
    println!("in all: {all}, {:.1} s", begun.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}
