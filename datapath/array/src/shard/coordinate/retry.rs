//! When a pass that has stopped is tried again: what was in its way may have passed, and nobody
//! may be there to say so.

use std::time::Duration;

use units::Instant;

use super::super::Shard;
use crate::coordinator::Coordinator;
use crate::io::Io;

/// After this a pass is tried again for the first time. Each time twice as long, up to the longest.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

/// What the home keeps for that.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// The pass has stopped until then.
    until: Option<Instant>,
    /// How long it has stopped the last time, since a part of it went well.
    pause: Duration,
}

impl Retry {
    /// The pass stops.
    pub(in crate::shard) fn stop(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(FIRST, LONGEST);
        self.until = Some(now + self.pause);
    }

    /// Whether the pass has stopped.
    pub(in crate::shard) fn is_stopped(&self) -> bool {
        self.until.is_some()
    }

    /// The pass goes on: something has changed, or a part of it went well.
    pub(super) fn go_on(&mut self) {
        *self = Retry::default();
    }
}

impl Coordinator {
    /// A pass that has stopped goes on when it is time, whatever has to be done before.
    #[inline]
    pub(super) fn try_again(&mut self, io: &impl Io) {
        let until = self.retry.until.filter(|_| self.passes_run);
        if until.is_some_and(|until| io.now() >= until) {
            self.retry.until = None;
        }
    }
}

impl Shard {
    /// When a pass that has stopped is tried again.
    pub(in crate::shard) fn retry_deadline(&self) -> Option<Instant> {
        let decider = self.coordinator.as_deref()?;
        decider.retry.until.filter(|_| decider.passes_run)
    }
}
