//! Stops a queue between two stores, as a killed process would. Tests only.

use std::cell::Cell;

thread_local! {
    static STORES_LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What a stop looks like to `catch_unwind`.
#[derive(Debug)]
pub(crate) struct Stopped;

/// Runs `work` until it is about to do store number `stores`, counted from 0. Whether it ended.
pub(crate) fn run_until_store(stores: u64, work: impl FnOnce()) -> bool {
    STORES_LEFT.set(Some(stores));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    STORES_LEFT.set(None);
    match ended {
        Ok(()) => true,
        Err(payload) if payload.is::<Stopped>() => false,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Stops here when the time has come.
pub(crate) fn before_store() {
    match STORES_LEFT.get() {
        None => {}
        Some(0) => std::panic::resume_unwind(Box::new(Stopped)),
        Some(left) => STORES_LEFT.set(Some(left - 1)),
    }
}
