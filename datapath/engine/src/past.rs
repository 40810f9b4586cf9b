//! What rings did that have ended: what is counted of a volume does not fall when its guests go.

use std::sync::Mutex;

use vhost_user_blk::Counters;

/// Of all rings of one volume that have ended, since the engine began.
#[derive(Debug, Default)]
pub struct Past {
    counters: Mutex<Counters>,
}

impl Past {
    /// A ring has ended. Nobody holds the lock for longer than a copy takes, and rings end seldom.
    pub(crate) fn add(&self, ring: &Counters) {
        let counters = self.counters.lock();
        counters.expect("nothing panics under it").add(ring);
    }

    /// What they did together.
    ///
    /// # Panics
    /// When a thread panicked while it counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let counters = self.counters.lock();
        counters.expect("nothing panics under it").clone()
    }
}
