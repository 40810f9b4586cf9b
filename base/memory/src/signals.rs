//! Handlers of the signals that end a process: how they are put in place, and how they give a
//! signal back to whoever had it before.

use std::io;
use std::ptr;

use libc::{c_int, c_void, siginfo_t};

/// A handler. Must be async-signal-safe.
pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Lets `handler` have `signal` from now on.
pub(crate) fn install(signal: c_int, handler: Handler) -> io::Result<()> {
    let mut action = blank();
    action.sa_sigaction = handler as usize;
    // On the alternate stack, where the standard library's own handler expects to be called.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    set_action(signal, &action)
}

/// From now on `signal` does nothing, here and in programs that this one becomes or starts.
pub(crate) fn ignore(signal: c_int) -> io::Result<()> {
    let mut action = blank();
    action.sa_sigaction = libc::SIG_IGN;
    set_action(signal, &action)
}

fn blank() -> libc::sigaction {
    // SAFETY: all zeroes is a `sigaction` without handler, flags and mask.
    unsafe { std::mem::zeroed() }
}

fn set_action(signal: c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` is a filled-in `sigaction`; its handler, if it has one, is async-signal-safe
    // (a `Handler`, or what stood there before us).
    match unsafe { libc::sigaction(signal, action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Who has `signal` now.
pub(crate) fn current_action(signal: c_int) -> libc::sigaction {
    let mut action = blank();
    // SAFETY: only writes the current action to `action`.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    assert_eq!(result, 0, "asking for the action of a signal that exists");
    action
}

/// Whether the signal is a fault of this thread, and was not sent by a process.
pub(crate) fn is_fault(information: *mut siginfo_t) -> bool {
    // SAFETY: the kernel hands a valid structure to a handler with SA_SIGINFO.
    let code = unsafe { (*information).si_code };
    // A code of the kernel's own is above zero. Else a process sent the signal and there is no
    // address in it.
    code > 0
}

/// Gives the signal back for good to whoever had it before us: a fault happens again as soon as the
/// handler returns, a signal that was sent is sent again (and held back until then).
pub(crate) fn give_back(signal: c_int, previous: Option<&libc::sigaction>, is_fault: bool) {
    let given = previous.map(|previous| set_action(signal, previous));
    if !matches!(given, Some(Ok(()))) {
        // SAFETY: ends the process; async-signal-safe. Returning would fault for ever.
        unsafe { libc::abort() };
    }
    if !is_fault {
        // SAFETY: async-signal-safe.
        unsafe { libc::raise(signal) };
    }
}
