//! Faults to test the tests with, in rings and in what is done with them. As those of the array
//! (its `planted.rs`), in one build they are switched on at run time, and the simulator must catch
//! each. In every other build [`is`] is false when it is compiled, and nothing of this is left.

use std::sync::atomic::{AtomicU8, Ordering};

/// What can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// The next engine takes a request that was in flight twice.
    InflightTakenTwice = 1,
    /// The next engine takes what was in flight in another order than the last one.
    InflightReversed,
    /// The next engine does not take the last request that was in flight.
    InflightForgotten,
    /// A request is put on the used ring before its status is written.
    AnsweredBeforeStatus,
    /// A write is answered before the flush that write-through adds.
    ThroughWithoutFlush,
    /// A ring leaves its reactor although requests are under way.
    LeavesUndrained,
    /// A ring stops before it has taken again what an engine before had taken.
    StopsBeforeRecovered,
    /// Guest memory is let go although requests are under way there.
    MemoryLetGo,
}

impl Fault {
    /// All that the simulator must catch.
    pub const ALL: &[Fault] = &[
        Fault::InflightTakenTwice,
        Fault::InflightReversed,
        Fault::InflightForgotten,
        Fault::AnsweredBeforeStatus,
        Fault::ThroughWithoutFlush,
        Fault::LeavesUndrained,
        Fault::StopsBeforeRecovered,
        Fault::MemoryLetGo,
    ];
}

/// The fault that is switched on; zero for none.
static SWITCHED_ON: AtomicU8 = AtomicU8::new(0);

/// Whether a fault is switched on.
#[inline(always)]
#[must_use]
pub fn is(fault: Fault) -> bool {
    cfg!(feature = "planted") && SWITCHED_ON.load(Ordering::Relaxed) == fault as u8
}

/// Switches one fault on for the whole process, or all off.
///
/// # Panics
/// In a build without the feature `planted`.
pub fn switch_on(fault: Option<Fault>) {
    if !cfg!(feature = "planted") {
        panic!("this build has no faults");
    }
    SWITCHED_ON.store(fault.map_or(0, |fault| fault as u8), Ordering::Relaxed);
}

/// Breaks the list of what an engine before us left, last first.
pub(crate) fn spoil<T: Clone>(recovered: &mut Vec<T>) {
    if is(Fault::InflightTakenTwice) {
        recovered.extend(recovered.last().cloned());
    }
    if is(Fault::InflightReversed) {
        recovered.reverse();
    }
    if is(Fault::InflightForgotten) && !recovered.is_empty() {
        recovered.remove(0);
    }
}
