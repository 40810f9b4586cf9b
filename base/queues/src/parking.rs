//! How a thread goes to sleep while others may write to it, and no wake-up is lost.
//!
//! The receiver says "parked" and then looks into its inboxes once more; a sender fills an inbox
//! and then looks whether the receiver is parked. Between the two halves of each side stands a
//! sequentially consistent fence, so at least one of the two sees what the other did.

use std::fmt;
use std::sync::Arc;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use units::limits::REACTORS_MAX;

/// Wakes one sleeping thread. A wake-up of a thread that does not sleep ends its next sleep.
pub trait Wake: Send + Sync {
    /// Ends the sleep.
    fn wake(&self);
}

/// Wakes nobody; for reactors that never sleep, such as those of a simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// The answer to the wish to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Park {
    /// Sleep now: whoever writes from now on wakes us.
    Parked,
    /// Do not sleep: there is something to receive.
    MailWaiting,
}

const WORDS: usize = REACTORS_MAX.div_ceil(64);
const RUNNING: u32 = 0;
const PARKED: u32 = 1;

/// A set of reactors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReactorSet([u64; WORDS]);

impl ReactorSet {
    pub(crate) fn add(&mut self, reactor: usize) {
        self.0[reactor / 64] |= 1 << (reactor % 64);
    }

    pub(crate) fn remove(&mut self, reactor: usize) {
        self.0[reactor / 64] &= !(1 << (reactor % 64));
    }

    pub(crate) fn is_empty(self) -> bool {
        self == ReactorSet::default()
    }

    pub(crate) fn join(&mut self, other: ReactorSet) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// All of them, in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let reactor = self.first_from(from)?;
            from = reactor + 1;
            Some(reactor)
        })
    }

    /// The first reactor at or after `from`. (Not by value: a copy of words that were just stored
    /// one by one has to wait until they are in the cache.)
    pub(crate) fn first_from(&self, from: usize) -> Option<usize> {
        let mut keep = u64::MAX << (from % 64);
        for word in from / 64..WORDS {
            let bits = self.0[word] & keep;
            if bits != 0 {
                let bit = usize::try_from(bits.trailing_zeros()).expect("below 64");
                return Some(word * 64 + bit);
            }
            keep = u64::MAX;
        }
        None
    }
}

/// What the others see of one reactor: which inboxes they filled, and whether it sleeps.
pub(crate) struct Door {
    filled: [AtomicU64; WORDS],
    state: AtomicU32,
    waker: Arc<dyn Wake>,
}

impl Door {
    pub(crate) fn new(waker: Arc<dyn Wake>) -> Door {
        Door {
            filled: std::array::from_fn(|_| AtomicU64::new(0)),
            state: AtomicU32::new(RUNNING),
            waker,
        }
    }

    /// Sender: says that the inbox from `sender` holds published messages.
    pub(crate) fn mark(&self, sender: usize) {
        // Release: whoever sees the bit sees the published index.
        self.filled[sender / 64].fetch_or(1 << (sender % 64), Ordering::Release);
    }

    /// Sender: wakes the receiver if it is parked. A sequentially consistent fence stands between
    /// [`Door::mark`] and this call.
    pub(crate) fn wake_if_parked(&self) {
        // The load keeps the line shared while the receiver runs; the swap lets one sender wake.
        if self.state.load(Ordering::Relaxed) == PARKED
            && self.state.swap(RUNNING, Ordering::AcqRel) == PARKED
        {
            self.waker.wake();
        }
    }

    /// Receiver: the senders that filled inboxes since the last call.
    pub(crate) fn take_filled(&self) -> ReactorSet {
        let mut set = ReactorSet::default();
        for (word, filled) in set.0.iter_mut().zip(&self.filled) {
            // The load spares an idle receiver the exclusive access.
            if filled.load(Ordering::Relaxed) != 0 {
                *word = filled.swap(0, Ordering::Acquire);
            }
        }
        set
    }

    /// Receiver: wants to sleep.
    pub(crate) fn park(&self) -> Park {
        // Swaps, not stores: every change of state then follows the one it saw, so a sender's swap
        // that was overtaken cannot pass for the latest change. (Loom asks for it; C++20 would
        // not.)
        self.state.swap(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self
            .filled
            .iter()
            .any(|filled| filled.load(Ordering::Relaxed) != 0)
        {
            self.unpark();
            return Park::MailWaiting;
        }
        Park::Parked
    }

    /// Receiver: runs again, whoever woke it.
    pub(crate) fn unpark(&self) {
        self.state.swap(RUNNING, Ordering::Relaxed);
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("filled", &self.filled)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_added_and_not_removed() {
        let reactors = [0, 1, 62, 63, 64, 65, 126, 127];
        let mut set = ReactorSet::default();
        for reactor in reactors {
            assert!(set.first_from(reactor).is_none());
            set.add(reactor);
            assert_eq!(set.first_from(reactor), Some(reactor));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), reactors);
        for from in 0..=REACTORS_MAX {
            let expected = reactors.into_iter().find(|reactor| *reactor >= from);
            assert_eq!(set.first_from(from), expected);
        }
        for reactor in reactors {
            set.remove(reactor);
            assert_ne!(set.first_from(reactor), Some(reactor));
        }
        assert!(set.is_empty());
    }

    #[test]
    fn two_sets_join() {
        let (mut left, mut right) = (ReactorSet::default(), ReactorSet::default());
        left.add(3);
        right.add(3);
        right.add(100);
        left.join(right);
        assert_eq!(left.iter().collect::<Vec<_>>(), [3, 100]);
    }
}
