//! Looks at drives that may take for ever: one at a time at each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use units::{Clock, Instant, MonotonicClock};

/// Between two attempts to begin one.
const PAUSE: Duration = Duration::from_millis(5);

/// What is being looked at: drives by their uuids (one that hangs may be removed meanwhile, and
/// another one have its name), or paths.
#[derive(Debug)]
pub(crate) struct Looks<K: Ord>(Arc<Mutex<BTreeSet<K>>>);

/// A look that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Look<K: Ord + Clone> {
    at: K,
    looks: Looks<K>,
}

impl<K: Ord> Clone for Looks<K> {
    fn clone(&self) -> Looks<K> {
        Looks(Arc::clone(&self.0))
    }
}

impl<K: Ord> Default for Looks<K> {
    fn default() -> Looks<K> {
        Looks(Arc::default())
    }
}

impl<K: Ord + Clone> Looks<K> {
    /// None while another look there is under way.
    pub(crate) fn enter(&self, at: K) -> Option<Look<K>> {
        self.under_lock().insert(at.clone()).then(|| Look {
            at,
            looks: self.clone(),
        })
    }

    /// Waits until then for another look there to end.
    pub(crate) fn enter_until(&self, at: &K, end: Instant) -> Option<Look<K>> {
        loop {
            let look = self.enter(at.clone());
            if look.is_some() || MonotonicClock.now() >= end {
                return look;
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.under_lock().len()
    }

    fn under_lock(&self) -> MutexGuard<'_, BTreeSet<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> Drop for Look<K> {
    fn drop(&mut self) {
        self.looks.under_lock().remove(&self.at);
    }
}
