//! What a reactor does with its time: plain numbers of its own, read between two of its turns.
//!
//! One look at the clock per turn, which the rings need anyway.

use std::time::Duration;

use units::Instant;

/// See the module.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) turn_began: Instant,
    /// What it did since then.
    pub(super) last: Spent,
    /// The turn before this one had work.
    pub(super) was_busy: bool,
    busy: Duration,
    idle: Duration,
}

/// What a reactor did since a turn began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    /// There was work.
    Busy,
    /// There was none.
    Idle,
    /// There was none, and it slept.
    Asleep,
}

/// How a reactor spent its time, and what it was doing when it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorTimes {
    /// In turns with work.
    pub busy: Duration,
    /// In turns without, and asleep.
    pub idle: Duration,
    /// Whether it slept until it was asked.
    pub parked: bool,
}

impl Times {
    pub(super) fn new(now: Instant) -> Times {
        Times {
            turn_began: now,
            last: Spent::Idle,
            was_busy: false,
            busy: Duration::ZERO,
            idle: Duration::ZERO,
        }
    }

    /// A turn begins: what was since the last one did, that one is told by.
    pub(super) fn turn(&mut self, now: Instant) {
        let passed = now.since(self.turn_began);
        match self.last {
            Spent::Busy => self.busy += passed,
            Spent::Idle | Spent::Asleep => self.idle += passed,
        }
        self.turn_began = now;
        self.was_busy = self.last == Spent::Busy;
        self.last = Spent::Idle;
    }

    /// Up to now, between two turns.
    pub(super) fn report(&self, now: Instant) -> ReactorTimes {
        let passed = now.since(self.turn_began);
        let (busy, idle) = match self.last {
            Spent::Busy => (passed, Duration::ZERO),
            Spent::Idle | Spent::Asleep => (Duration::ZERO, passed),
        };
        ReactorTimes {
            busy: self.busy + busy,
            idle: self.idle + idle,
            parked: self.last == Spent::Asleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_as_the_turn_that_it_followed() {
        let at = |milliseconds: u64| Instant(milliseconds * 1_000_000);
        let told = |times: &Times, now| {
            let report = times.report(at(now));
            (
                report.busy.as_millis(),
                report.idle.as_millis(),
                report.parked,
            )
        };
        let mut times = Times::new(at(10));
        times.turn(at(12));
        times.last = Spent::Busy;
        assert_eq!(told(&times, 15), (3, 2, false));
        times.turn(at(17));
        times.last = Spent::Asleep;
        assert_eq!(told(&times, 100), (5, 85, true));
        times.turn(at(101));
        assert_eq!(told(&times, 101), (5, 86, false));
    }
}
