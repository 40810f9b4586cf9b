//! How long an idle reactor looks for work before it sleeps.
//!
//! A sleep that was short would have been better spent looking, so the next look is longer; a long
//! one shows that looking is in vain, so the next look is shorter.

use std::time::Duration;

/// The longest look, in lengths given. A reactor that is asked for something that often looks on
/// between requests: it answers each some tens of microseconds sooner, and keeps its core busy.
const LONGEST: u32 = 20;
/// The shortest look is this part of the length given.
const SHORTEST: u32 = 8;

/// The length of the next look, within these bounds.
#[derive(Debug)]
pub(crate) struct Spin {
    length: Duration,
    shortest: Duration,
    longest: Duration,
}

impl Spin {
    pub(crate) fn new(length: Duration) -> Spin {
        Spin {
            length,
            shortest: length / SHORTEST,
            longest: length * LONGEST,
        }
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Learns from a sleep.
    pub(crate) fn slept(&mut self, duration: Duration) {
        self.length = if duration <= self.longest {
            (self.length * 2).min(self.longest)
        } else {
            (self.length / 2).max(self.shortest)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_lengthen_the_look_and_long_ones_shorten_it_within_bounds() {
        let micros = Duration::from_micros;
        let mut spin = Spin::new(micros(20));
        for (slept, length) in [
            (400, 40),
            (401, 20),
            (1_000_000, 10),
            (500, 5),
            (500, 2),
            (500, 2),
            (0, 5),
            (0, 10),
            (0, 20),
            (0, 40),
            (0, 80),
            (0, 160),
            (0, 320),
            (0, 400),
            (0, 400),
        ] {
            spin.slept(micros(slept));
            assert_eq!(spin.length().as_micros(), length, "after {slept} µs");
        }
    }

    #[test]
    fn no_look_stays_none() {
        let mut spin = Spin::new(Duration::ZERO);
        spin.slept(Duration::ZERO);
        spin.slept(Duration::from_secs(1));
        assert_eq!(spin.length(), Duration::ZERO);
    }
}
