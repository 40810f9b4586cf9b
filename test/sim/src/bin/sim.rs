//! Runs histories: `sim --seed S --seeds N`. Ends at the first that fails, and says how to run it
//! again.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command")]
#![allow(
    clippy::disallowed_methods,
    reason = "measures how fast it is, nothing else"
)]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut first, mut count, mut keep_going) = (0, 100, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
        match (argument.as_str(), argument == "--keep-going") {
            (_, true) => keep_going = true,
            (name @ ("--seed" | "--seeds"), _) => match (number(rest.next()), name) {
                (Some(seed), "--seed") => first = seed,
                (Some(seeds), _) => count = seeds,
                (None, _) => return usage(),
            },
            _ => return usage(),
        }
    }
    let begun = Instant::now();
    let (mut answered, mut crashes, mut probed, mut failed) = (0, 0, 0, 0);
    for seed in first..first.saturating_add(count) {
        let Ok(outcome) = std::panic::catch_unwind(|| sim::history::run(seed)) else {
            println!(
                "seed {seed} failed; again: cargo run -p sim --release -- --seed {seed} --seeds 1"
            );
            failed += 1;
            if keep_going {
                continue;
            }
            return ExitCode::FAILURE;
        };
        answered += outcome.answered;
        crashes += outcome.crashes;
        probed += outcome.probed;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let per_second = f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
    println!(
        "{count} seeds from {first}: {failed} failed, {per_second:.1} seeds/s, {answered} requests, \
         {crashes} stops, {probed} torn blocks written"
    );
    if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn usage() -> ExitCode {
    println!("usage: sim [--seed S] [--seeds N] [--keep-going]");
    ExitCode::from(2)
}
