//! When a shard need not be looked at: most turns of a reactor bring it nothing, or reads that go
//! straight to drives and back, and what could move then are some thirty places to look at.
//!
//! A shard *rests* once nothing moved and nothing waits, until something comes that is more than
//! such a read, or something may be due. What other shards have written into words that all share
//! it sees within [`REST_MAX`].

use std::time::Duration;

use block::Operation;
use units::Instant;

use super::Shard;
use crate::coordinator::Coordinator;
use crate::io::Io;

/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(1);

impl Shard {
    /// Something came that may let something move.
    #[inline]
    pub(super) fn stir(&mut self) {
        self.rests_until = Instant(0);
    }

    /// A request was taken.
    #[inline]
    pub(super) fn stir_by_request(&mut self, operation: Operation) {
        let waits = !self.waiting_requests.is_empty() || self.works.in_use() > 0;
        if operation != Operation::Read || waits {
            self.stir();
        }
    }

    /// Moves everything forward that waited for room, a message or a barrier. Called once a turn,
    /// after completions and messages. Returns how much moved.
    #[inline]
    pub fn poll(&mut self, io: &mut impl Io) -> usize {
        if self.rests(io.now()) {
            return 0;
        }
        self.poll_all(io)
    }

    /// Whether nothing can move now.
    #[inline]
    #[must_use]
    pub fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// As [`Shard::poll`], also when the shard rests: called before its reactor sleeps.
    pub fn poll_all(&mut self, io: &mut impl Io) -> usize {
        let moved = self.advance(io);
        if moved == 0 && !self.waits_for_anything() {
            let latest = io.now() + REST_MAX;
            let due = self.deadline().into_iter().chain(self.late.next);
            self.rests_until = due.fold(latest, Instant::min);
        } else {
            self.stir();
        }
        moved
    }

    /// Whether something is under way, or waits, that is more than reads by drives.
    fn waits_for_anything(&self) -> bool {
        let decides = |decider: &Coordinator| {
            decider.is_changing()
                || decider.window.is_some()
                || !decider.failures.is_empty()
                || !decider.commands.is_empty()
                || !decider.losses.is_empty()
        };
        self.coordinator().is_some_and(decides)
            || self.wants_to_leave()
            || self.holding
            || self.is_working()
            || self.log.is_working()
            || self.background.is_open()
            || !self.waiting_requests.is_empty()
            || !self.unowned.is_empty()
            || !self.retries.is_empty()
            || !self.unsettled_flushes.is_empty()
    }
}

impl Coordinator {
    /// Whether a change is being made, or others are being asked for one.
    pub(super) fn is_changing(&self) -> bool {
        self.commit.is_some()
            || self.broadcast.is_some()
            || !self.keeper.is_idle()
            || self.retire.is_asking()
            || self.handing_over.is_asking()
            || self.hold.is_asking()
    }
}
