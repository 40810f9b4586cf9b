//! `power-loss record …` in a virtual machine, `power-loss replay …` on the host: the engine over
//! dm-log-writes on a real kernel, and the power failing between any two events of it. See
//! `test/e2e/power.test.sh`, which runs both.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for a test script")]

mod device;
mod diary;
mod engine;
mod image;
mod random;
mod record;
mod refused;
mod replay;
mod trace;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: power-loss record SOCKET MARKERS DIARY SEED REQUESTS
       power-loss refused SOCKET SEED REQUESTS
       power-loss replay FOLDER PROGRAM MEMBERS MEMBER-BYTES FILLER FAILED|lost=N|- CUTS SEED";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let number = |word: &str| word.parse::<usize>().map_err(|_| USAGE.to_owned());
    let seed = |word: &str| word.parse::<u64>().map_err(|_| USAGE.to_owned());
    match words {
        ["record", socket, markers, diary, of, requests] => {
            let paths = (Path::new(socket), Path::new(markers), Path::new(diary));
            let recorded = record::record(paths, seed(of)?, number(requests)?);
            recorded.map_err(|error| error.to_string())
        }
        ["refused", socket, of, requests] => {
            let found = refused::compare(Path::new(socket), seed(of)?, number(requests)?)?;
            println!("{found}");
            Ok(())
        }
        [
            "replay",
            folder,
            program,
            members,
            bytes,
            filler,
            missing,
            cuts,
            of,
        ] => {
            let wanted = replay::Wanted {
                folder: folder.into(),
                program: program.into(),
                members: number(members)?,
                member_bytes: seed(bytes)?,
                filler: filler.parse().map_err(|_| USAGE.to_owned())?,
                missing: replay::Missing::parse(missing).ok_or(USAGE)?,
                cuts: number(cuts)?,
                seed: seed(of)?,
            };
            println!("{}", replay::replay(&wanted)?);
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    }
}
