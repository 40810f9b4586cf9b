//! The command line as a library, so that tests can run it with their own console and engine.
//!
//! Exit statuses: 0 success, 1 refused or failed, 2 wrong usage, 3 engine unreachable.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client;
mod demo;
mod doctor;
mod engine;
mod expect;
mod interrupt;
mod output;
mod progress;
pub mod serve;
mod session;
mod top;
pub mod vm;

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, Write};

use clap::{CommandFactory, Parser};
use control::{EngineError, ErrorKind};

use crate::output::Output;

/// Done.
pub const EXIT_OK: u8 = 0;
/// Refused or failed.
pub const EXIT_FAILED: u8 = 1;
/// Wrong usage.
pub const EXIT_USAGE: u8 = 2;
/// The engine does not answer.
pub const EXIT_UNREACHABLE: u8 = 3;

/// Where a command reads from and writes to.
pub struct Console<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Errors, warnings, questions.
    pub error: &'a mut dyn Write,
    /// Answers to questions.
    pub input: &'a mut dyn BufRead,
    /// Whether a person is there to be asked.
    pub terminal: bool,
    /// How many columns results may take; as many as they need where nobody looks at them.
    pub width: Option<u16>,
}

impl fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("terminal", &self.terminal)
            .finish_non_exhaustive()
    }
}

/// Runs one command line (the program's name first) and says the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>, console: &mut Console<'_>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &arguments, console),
    };
    let (output, own_judge) = (cli.output, cli.is_its_own_judge());
    match cli.run(console) {
        Ok(()) => EXIT_OK,
        Err(error) if output::is_closed(&error) => EXIT_OK,
        Err(error) => {
            output.error(&error, console);
            if error.kind == ErrorKind::Unreachable {
                EXIT_UNREACHABLE
            } else if error.kind == ErrorKind::Invalid && own_judge {
                EXIT_USAGE
            } else {
                EXIT_FAILED
            }
        }
    }
}

/// Says what clap found: help and versions are results, the rest is wrong usage.
fn usage(error: &clap::Error, arguments: &[OsString], console: &mut Console<'_>) -> u8 {
    if !error.use_stderr() {
        // Nobody reads the help any more: nothing to do about that.
        let _ = write!(console.out, "{error}");
        return EXIT_OK;
    }
    if asks_for_json(arguments) {
        Output::Json.error(&usage_error(error, arguments), console);
    } else {
        let _ = write!(console.error, "{error}");
    }
    EXIT_USAGE
}

/// What clap found as the API would say it: about the argument, with the help that tells more.
fn usage_error(error: &clap::Error, arguments: &[OsString]) -> EngineError {
    use clap::error::{ContextKind, ContextValue};
    let text = error.to_string();
    // What is wrong ends with an empty line; missing arguments have lines of their own.
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.map(str::trim).collect();
    let message = lines.join(" ");
    let object = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => format!("argument {argument}"),
        Some(ContextValue::Strings(arguments)) => format!("argument {}", arguments.join(", ")),
        _ => "command line".to_owned(),
    };
    let mut command = cli::Cli::command();
    let mut path = vec!["garboard".to_owned()];
    for argument in arguments.iter().skip(1).filter_map(|text| text.to_str()) {
        if let Some(found) = command.find_subcommand(argument).cloned() {
            path.push(argument.to_owned());
            command = found;
        }
    }
    let message = message.trim_start_matches("error: ");
    EngineError::new(ErrorKind::Invalid, object, message)
        .next(format!("`{} --help` shows what it takes", path.join(" ")))
}

/// Whether a command line that cannot be parsed wanted JSON.
fn asks_for_json(arguments: &[OsString]) -> bool {
    let pairs = arguments.windows(2);
    pairs
        .into_iter()
        .any(|pair| pair[0] == "--output" && pair[1] == "json")
        || arguments.iter().any(|argument| argument == "--output=json")
}
