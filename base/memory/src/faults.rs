//! Telling somebody about a fault (a load that the kernel refuses, an instruction that is none, a
//! stack that is full) before it ends the process.

use std::io;
use std::sync::OnceLock;

use libc::{c_int, c_void, siginfo_t};

use crate::signals;

/// The signals that a fault of a thread becomes.
const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

static TELL: OnceLock<fn(c_int)> = OnceLock::new();
static PREVIOUS: [OnceLock<libc::sigaction>; SIGNALS.len()] =
    [const { OnceLock::new() }; SIGNALS.len()];

/// From now on `tell` is called with the signal's number when a thread faults, on that thread, and
/// must be async-signal-safe; then the process ends as it would have. Once per process; more calls
/// do nothing. A bus error that [`crate::guest::survive_truncation`] survives is told only when
/// that came before this: call this first.
///
/// # Errors
/// What the kernel says when it refuses the handler.
pub fn tell_faults(tell: fn(i32)) -> io::Result<()> {
    if TELL.set(tell).is_err() {
        return Ok(());
    }
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        // The previous action is in place before the handler can run.
        previous.get_or_init(|| signals::current_action(signal));
        signals::install(signal, on_fault)?;
    }
    Ok(())
}

/// From now on a write beyond what a file may have (`RLIMIT_FSIZE`) fails with `EFBIG`, as one
/// beyond what its file system has does, and does not end the process (`SIGXFSZ`) with all that it
/// serves.
///
/// # Errors
/// What the kernel says when it refuses that.
pub fn survive_large_files() -> io::Result<()> {
    signals::ignore(libc::SIGXFSZ)
}

/// The handler. Only touches statics that are set before it is installed.
extern "C" fn on_fault(signal: c_int, information: *mut siginfo_t, _context: *mut c_void) {
    let is_fault = signals::is_fault(information);
    if let (Some(tell), true) = (TELL.get(), is_fault) {
        tell(signal);
    }
    let place = SIGNALS.iter().position(|known| *known == signal);
    let previous = place.and_then(|place| PREVIOUS[place].get());
    signals::give_back(signal, previous, is_fault);
}
