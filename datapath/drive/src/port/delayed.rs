//! Answers that are given out later, by the time that they are due.

use std::cmp::Ordering;

use block::Completion;
use units::Instant;

/// An answer that an ordered fault holds back, or the pace of a pretended drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed {
    pub(super) due: Instant,
    /// How many were held back before it: those due together go out as they came.
    pub(super) order: u64,
    pub(super) seat: u16,
    pub(super) completion: Completion,
}

impl Ord for Delayed {
    fn cmp(&self, other: &Delayed) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Delayed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Delayed) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Delayed {}
