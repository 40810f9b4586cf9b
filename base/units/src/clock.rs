//! Time comes from a clock that is handed in, so that a simulator can own it.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::rc::Rc;
use std::time::Duration;

/// Nanoseconds since the clock's own beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// How long ago `earlier` was; zero when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// Where time comes from.
pub trait Clock {
    /// The time now; never goes back.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock. Two of them in one process agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        // Not `std::time::Instant`, which has to be subtracted from another: reactors look each
        // turn.
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // Since the machine began, so neither is below zero.
        let (seconds, rest) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Instant(seconds * 1_000_000_000 + rest)
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Clone, Debug, Default)]
pub struct FalseClock(Rc<Cell<u64>>);

impl FalseClock {
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.0.set((Instant(self.0.get()) + by).0);
    }
}

impl Clock for FalseClock {
    fn now(&self) -> Instant {
        Instant(self.0.get())
    }
}
