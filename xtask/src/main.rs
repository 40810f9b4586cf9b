//! The workspace's own commands, `cargo xtask check` and so on. Only the command line is read here.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a command-line tool speaks on its output"
)]

use std::process::ExitCode;

use xtask::{Workspace, bench, check, e2e, fuzz, instructions, miri, power, races, tidy};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check            everything: format, clippy, tidy, tests, simulator, loom, fuzzing, documentation,
                   and the end-to-end tests beside them
  tidy             the rules of STYLE.md that a program can check
  tidy --bless     the same, and write the unsafe counts found to xtask/unsafe.txt
  instructions     what one request costs in instructions, against test/bench/instructions.txt
  instructions --bless
                   the same, and keep what was counted
  bench [WORDS…]   what parts of the engine reach, beside each other or a limit in the same run:
                   bench [reactors | iops | beside | idle [WORDS…]]
  e2e [NAME…]      the end-to-end tests test/e2e/*.test.sh, all or those whose name contains NAME
  power [WORDS…]   power loss on a real kernel, each level optimal and degraded, 1000 cut points:
                   power [--cuts N] [--seed S] [--planted FAULT] [LEVEL…]
  sim [WORDS…]     the simulator: sim [--seed S] [--seeds N] [--hours H] [--jobs J], or all that
                   can happen in small models: sim --exhaustive [--full] [SCENARIO…]
  planted [WORDS…] breaks the array on purpose and shows that the simulator sees it:
                   planted [--seed S] [--seeds N] [--exhaustive [SCENARIO…] | --asserted] [FAULT…]
  races [CRATE…]   tests with real threads under ThreadSanitizer (half an hour, needs nightly)
  miri [CRATE…]    tests of crates with unsafe code under Miri (needs nightly with miri)
  fuzz [WORDS…]    the fuzz targets, ten minutes each: fuzz [--seconds N | --runs N] [--keep]
                   [TARGET…];
                   --keep puts what they found into fuzz/corpus";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let workspace = Workspace::here();
    let result = match words.as_slice() {
        ["check"] => check::run(&workspace),
        ["tidy"] => tidy::run(&workspace),
        ["tidy", "--bless"] => tidy::bless(&workspace).and_then(|()| tidy::run(&workspace)),
        ["instructions"] => instructions::run(&workspace, false),
        ["instructions", "--bless"] => instructions::run(&workspace, true),
        ["bench", words @ ..] => bench::run(&workspace, words),
        ["e2e", names @ ..] => e2e::run(&workspace, names),
        ["power", words @ ..] => power::run(&workspace, words),
        ["sim", words @ ..] => check::sim(&workspace, words),
        ["planted", words @ ..] => check::planted(&workspace, words),
        ["races", crates @ ..] => races::run(&workspace, crates),
        ["miri", crates @ ..] => miri::run(&workspace, crates),
        ["fuzz", words @ ..] => fuzz::run(&workspace, words),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
