//! Whether what a needed drive refuses fails alone.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether writes of tickets fail alone. Only in tests as yet: what is left to mend first is at the
/// head of docs/design/017-refused-blocks.md. Elsewhere their members are waited for.
static FAILS_ALONE: AtomicBool = AtomicBool::new(cfg!(test));

/// For simulators: writes that a needed drive refuses fail alone, in all arrays of this process.
pub fn fail_refused_alone() {
    FAILS_ALONE.store(true, Ordering::Relaxed);
}

pub(super) fn fails_alone() -> bool {
    FAILS_ALONE.load(Ordering::Relaxed)
}
