//! How fast a background pass goes while requests are served.
//!
//! Time is cut into windows. Each shard says at the end of a window how long its slowest requests
//! took; the home compares the worst of them with a target, and lets the pass go faster by a
//! quarter or slower by a third, but never below the floor. The target is what the user asked for;
//! else one and a half times what requests take without the pass, which the home finds out by
//! stopping it for three windows now and then. While nobody asks for anything there is no limit.

use std::time::Duration;

use units::Instant;

/// How the requests of a window are judged.
#[derive(Clone, Copy, Debug)]
pub struct Yield {
    /// Between two decisions.
    pub window: Duration,
    /// Fewer requests in a window say nothing.
    pub requests: u32,
}

impl Default for Yield {
    fn default() -> Yield {
        Yield {
            window: Duration::from_millis(100),
            requests: 20,
        }
    }
}

impl Yield {
    /// The number of the window that `now` lies in.
    pub(crate) fn window_of(self, now: Instant) -> u64 {
        now.0 / self.nanoseconds()
    }

    /// When window `number` begins.
    pub(crate) fn begin_of(self, number: u64) -> Instant {
        Instant(number * self.nanoseconds())
    }

    fn nanoseconds(self) -> u64 {
        u64::try_from(self.window.as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

/// No limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Windows of a pass between two looks at what requests take without it.
const WINDOWS_PER_LOOK: u32 = 60;
/// Windows of a look, after one in which what is under way ends.
const WINDOWS_OF_LOOK: u32 = 2;
/// The most bytes per second and drive that are counted: more than any drive has, and near enough
/// to come down from.
const RATE_MAX: u64 = 4_000_000_000;
/// What it begins with, if the floor is lower.
const RATE_AT_START: u64 = 100_000_000;

/// Octaves of the histogram: from about a microsecond to about a minute.
const OCTAVES: u32 = 26;
/// Buckets of an octave: each at most an eighth wider than where it begins.
const STEPS: u32 = 8;
const BUCKETS: usize = (OCTAVES * STEPS + 1) as usize;

/// How long the requests of one window took. The unit is 1024 ns.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [u32; BUCKETS],
    count: u32,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies {
            buckets: [0; BUCKETS],
            count: 0,
        }
    }

    /// Counts one request.
    pub(crate) fn record(&mut self, took: Duration) {
        let units = u64::try_from(took.as_nanos() >> 10).unwrap_or(u64::MAX);
        let bucket = units.checked_ilog2().map_or(0, |power| {
            let step = (units << 3 >> power) & u64::from(STEPS - 1);
            let step = u32::try_from(step).expect("below eight");
            (power * STEPS + step + 1).min(OCTAVES * STEPS)
        });
        self.buckets[usize::try_from(bucket).expect("few buckets")] += 1;
        self.count += 1;
    }

    /// What all but a hundredth stayed below, if there were `enough`; begins anew.
    pub(crate) fn take_p99(&mut self, enough: u32) -> Option<u32> {
        let mut above = self.count / 100;
        let mut p99 = None;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            if *count > above {
                p99 = Some(bucket);
                break;
            }
            above -= count;
        }
        let enough = self.count >= enough;
        *self = Latencies::new();
        p99.filter(|_| enough).map(|bucket| {
            let Some(bucket) = u32::try_from(bucket).expect("few buckets").checked_sub(1) else {
                return 1;
            };
            let (power, step) = (bucket / STEPS, u64::from(bucket % STEPS));
            let end = (u64::from(STEPS) + step + 1) << power >> 3;
            u32::try_from(end).unwrap_or(u32::MAX).max(1)
        })
    }
}

/// What the user wants, in the unit of [`Latencies`] and in bytes per second and drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// None: compared with what requests take without the pass.
    pub(crate) target: Option<u32>,
    pub(crate) floor: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The pass goes on; windows until the next look.
    Goes { left: u32 },
    /// It was stopped, and what is under way ends.
    Ends,
    /// It stands still; windows to go, and the sum of those seen.
    Stands { left: u32, sum: u64 },
}

/// The home's side.
#[derive(Debug)]
pub(crate) struct Governor {
    phase: Phase,
    /// Bytes per second and drive, when it goes.
    rate: u64,
    /// What requests take without the pass, if that is known.
    without: Option<u64>,
}

impl Governor {
    pub(crate) fn new() -> Governor {
        Governor {
            phase: Phase::Goes { left: 0 },
            rate: 0,
            without: None,
        }
    }

    /// Decides for the window that begins, by what the worst shard said of the one that ended;
    /// `None` when nobody asked for much. Bytes per second and drive.
    pub(crate) fn decide(&mut self, worst: Option<u32>, wish: Wish) -> u64 {
        let Some(worst) = worst.map(u64::from) else {
            // What will be asked next may be quite another load.
            *self = Governor::new();
            return UNLIMITED;
        };
        if self.rate == 0 {
            self.rate = RATE_AT_START;
        }
        match self.phase {
            Phase::Goes { left: 0 } if wish.target.is_none() => {
                self.phase = Phase::Ends;
                return 0;
            }
            Phase::Goes { left } => {
                self.phase = Phase::Goes {
                    left: left.saturating_sub(1),
                };
                self.steer(worst, wish);
            }
            Phase::Ends => {
                let left = WINDOWS_OF_LOOK;
                self.phase = Phase::Stands { left, sum: 0 };
                return 0;
            }
            Phase::Stands { left, sum } => {
                let (left, sum) = (left - 1, sum + worst);
                if left > 0 {
                    self.phase = Phase::Stands { left, sum };
                    return 0;
                }
                self.without = Some(sum / u64::from(WINDOWS_OF_LOOK));
                self.phase = Phase::Goes {
                    left: WINDOWS_PER_LOOK,
                };
            }
        }
        self.rate = self.rate.clamp(wish.floor.min(RATE_MAX), RATE_MAX);
        self.rate.max(1)
    }

    fn steer(&mut self, worst: u64, wish: Wish) {
        let without = self.without.map(|without| without + without / 2);
        let Some(target) = wish.target.map(u64::from).or(without) else {
            return;
        };
        if worst <= target {
            self.rate += self.rate / 4;
        } else {
            self.rate -= self.rate / 3;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load whose requests take `without` alone, and longer the faster the pass goes.
    fn settles(without: u32, knee: u64, wish: Wish) -> (u64, u32) {
        let mut governor = Governor::new();
        let mut rate = UNLIMITED;
        let mut rates = Vec::new();
        let mut stood = 0;
        for window in 0..2000 {
            let over = u32::try_from(rate.min(RATE_MAX) / (knee / 10)).unwrap();
            rate = governor.decide(Some(without + without * over / 10), wish);
            if window >= 1000 {
                stood += u32::from(rate == 0);
                rates.push(rate);
            }
        }
        (rates.iter().sum::<u64>() / 1000, stood)
    }

    #[test]
    fn a_pass_goes_as_fast_as_requests_stay_within_half_as_long_again() {
        let wish = Wish {
            target: None,
            floor: 1,
        };
        // At the knee they take twice as long, so at half of it half as long again.
        let (rate, stood) = settles(200, 1_000_000_000, wish);
        assert!((350_000_000..600_000_000).contains(&rate), "{rate}");
        assert!(stood * 15 < 1000, "it stood still for {stood} of 1000");
        let (faster, _) = settles(200, 4_000_000_000, wish);
        assert!(faster > 3 * rate, "{faster} and {rate}");
    }

    #[test]
    fn a_target_needs_no_look_and_the_floor_holds_whatever_requests_take() {
        let target = |target, floor| Wish {
            target: Some(target),
            floor,
        };
        let (rate, stood) = settles(200, 1_000_000_000, target(220, 1));
        assert!((50_000_000..200_000_000).contains(&rate), "{rate}");
        assert_eq!(stood, 0);
        let (rate, _) = settles(200, 1_000_000_000, target(100, 50_000_000));
        assert_eq!(rate, 50_000_000);
        let (rate, _) = settles(200, 1_000_000_000, target(100, 0));
        assert!(rate >= 1, "a pass never stops for ever");
    }

    #[test]
    fn without_requests_there_is_no_limit() {
        let wish = Wish {
            target: Some(1),
            floor: 5_000_000,
        };
        let mut governor = Governor::new();
        for _ in 0..50 {
            governor.decide(Some(1000), wish);
        }
        assert_eq!(governor.decide(Some(1000), wish), 5_000_000);
        assert_eq!(governor.decide(None, wish), UNLIMITED);
        assert_eq!(governor.decide(None, wish), UNLIMITED);
        let again = governor.decide(Some(1000), wish);
        assert!(again > 5_000_000 && again < UNLIMITED, "{again}");
    }

    #[test]
    fn the_99th_of_a_hundred_is_told_an_eighth_too_long_at_most() {
        for took in [
            0,
            3,
            900,
            1024,
            77_000,
            1_000_000,
            80_000_000,
            9_000_000_000_u64,
        ] {
            let mut latencies = Latencies::new();
            for _ in 0..99 {
                latencies.record(Duration::from_nanos(took));
            }
            latencies.record(Duration::from_secs(3600));
            let told = u64::from(latencies.take_p99(20).unwrap()) << 10;
            assert!(told >= took, "{told} for {took}");
            assert!(told <= took + took / 8 + 2048, "{told} for {took}");
            assert_eq!(latencies.take_p99(20), None, "begun anew");
        }
        let mut few = Latencies::new();
        few.record(Duration::ZERO);
        assert_eq!(few.take_p99(20), None);
    }

    #[test]
    fn windows_follow_each_other() {
        for now in [0, 1, 99_999_999, 100_000_000, 1_234_567_890] {
            let windows = Yield::default();
            let number = windows.window_of(Instant(now));
            let bounds = windows.begin_of(number).0..windows.begin_of(number + 1).0;
            assert!(bounds.contains(&now), "{now} in {bounds:?}");
        }
    }
}
