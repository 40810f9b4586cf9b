//! What a reactor does with its time: plain numbers of its own, read between two of its turns.
//!
//! One look at the clock per turn, which the rings need anyway.

use std::time::Duration;

use units::Instant;

/// A reactor that does not begin its next turn for so long stands still: its CPU was taken away, or
/// something took longer than anything should.
const STALL: Duration = Duration::from_millis(1);

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
    stalls: u64,
    stalled: Duration,
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
    /// Turns that took a millisecond or more, sleep left out. They count as busy or idle, too.
    pub stalls: u64,
    /// In these.
    pub stalled: Duration,
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
            stalls: 0,
            stalled: Duration::ZERO,
        }
    }

    /// A turn begins: what was since the last one did, that one is told by.
    pub(super) fn turn(&mut self, now: Instant) {
        let passed = now.since(self.turn_began);
        match self.last {
            Spent::Busy => self.busy += passed,
            Spent::Idle | Spent::Asleep => self.idle += passed,
        }
        if passed >= STALL && self.last != Spent::Asleep {
            self.stalls += 1;
            self.stalled += passed;
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
            stalls: self.stalls,
            stalled: self.stalled,
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

    #[test]
    fn turns_of_a_millisecond_are_stalls_and_sleep_is_not() {
        let at = |microseconds: u64| Instant(microseconds * 1_000);
        let mut times = Times::new(at(0));
        // As long as may be with work and without, then longer.
        for (now, spent) in [
            (999, Spent::Busy),
            (1_998, Spent::Idle),
            (2_998, Spent::Busy),
            (5_998, Spent::Asleep),
            (999_998, Spent::Busy),
        ] {
            times.turn(at(now));
            times.last = spent;
        }
        let told = times.report(at(999_999));
        assert_eq!((told.stalls, told.stalled.as_micros()), (2, 4_000));
    }
}
