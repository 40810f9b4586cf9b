//! `garboard serve` is the engine; every other sub-command is a thin client of its API.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use garboard::Console;

fn main() -> ExitCode {
    // Any file may be on a file system of small files, or the process under a limit. The kernel
    // refuses this for no signal that it knows.
    memory::faults::survive_large_files().expect("SIGXFSZ is a signal");
    // Not locked: the progress bar and the log write to stderr as well.
    let (mut out, mut error) = (io::stdout(), io::stderr());
    let mut input = io::stdin().lock();
    let mut console = Console {
        terminal: io::stdin().is_terminal() && error.is_terminal(),
        width: columns(&out),
        out: &mut out,
        error: &mut error,
        input: &mut input,
    };
    ExitCode::from(garboard::run(std::env::args_os(), &mut console))
}

/// How wide the terminal of the results is, if it is one.
fn columns(out: &io::Stdout) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}
