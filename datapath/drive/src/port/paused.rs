//! Tasks that are made again later, because their drive has asked for that.
//!
//! They are few, and for whole tenths of a second, so they lie in no order. What does not live
//! here: how long (`nvme/answer.rs`).

use std::collections::VecDeque;

use units::Instant;

/// Tasks that wait for a time.
#[derive(Debug)]
pub(super) struct Paused {
    tasks: Vec<(Instant, u32)>,
}

impl Paused {
    pub(super) fn new(capacity: usize) -> Paused {
        Paused {
            tasks: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// When the first of them is due, if there is one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.tasks.iter().map(|(due, _)| *due).min()
    }

    pub(super) fn push(&mut self, due: Instant, slot: u32) {
        self.tasks.push((due, slot));
    }

    /// Puts those that are due into the queue for the kernel, as they came.
    #[cold]
    pub(super) fn take_due(&mut self, now: Instant, ready: &mut VecDeque<u32>) {
        self.tasks.retain(|&(due, slot)| {
            if due <= now {
                ready.push_back(slot);
            }
            due > now
        });
    }

    /// Forgets these.
    pub(super) fn leave(&mut self, slots: &[u32]) {
        self.tasks.retain(|(_, slot)| !slots.contains(slot));
    }
}
