//! How fast a background pass goes while requests are served.
//!
//! Time is cut into windows. Each shard says at the end of a window how long its slowest requests
//! took; the home compares the worst of them with a target, and lets the pass go faster by a
//! quarter or slower by a third, but never below the floor, with which it begins. The target is
//! what the user asked for; else five quarters of what requests take without the pass, which
//! the home finds out by stopping it for three windows now and then. A shard with few requests
//! gathers them over some windows. While nobody asks for much there is no limit.

use std::time::Duration;

use units::Instant;

/// How the requests of a window are judged.
#[derive(Clone, Copy, Debug)]
pub struct Yield {
    /// Between two decisions.
    pub window: Duration,
    /// Fewer requests say nothing.
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
/// The least that it gets, if the floor is lower: it comes to its end some day.
const RATE_MIN: u64 = 1_000_000;
/// So many windows together have few requests: who asks for no more than that gives the pass no
/// reason to take days.
const WINDOWS_OF_FEW: u32 = 10;
/// A look ends when so many of its windows say nothing.
const WINDOWS_IN_VAIN: u32 = 3;
/// After that, and after a time of few, so many windows are to say something before the next look.
const WINDOWS_TO_LOOK: u32 = 5;
/// So many windows without a decision, and it is another pass.
pub(crate) const WINDOWS_APART: u64 = 20;

/// Octaves of the histogram: from about a microsecond to about a minute.
const OCTAVES: u32 = 26;
/// Buckets of an octave: each at most an eighth wider than where it begins.
const STEPS: u32 = 8;
const BUCKETS: usize = (OCTAVES * STEPS + 1) as usize;

/// What a shard heard of its requests until a window's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Heard {
    /// Nobody asked for anything.
    Nothing,
    /// Too few to say how long they take.
    Few,
    /// What all but a hundredth of them stayed below, in units of 1024 ns.
    P99(u32),
}

impl Heard {
    /// As a number: the more, the worse.
    pub(crate) fn encode(self) -> u32 {
        match self {
            Heard::Nothing => 0,
            Heard::Few => 1,
            Heard::P99(units) => units.saturating_add(1).max(2),
        }
    }

    /// What was encoded.
    pub(crate) fn decode(number: u32) -> Heard {
        match number {
            0 => Heard::Nothing,
            1 => Heard::Few,
            _ => Heard::P99(number - 1),
        }
    }
}

/// How long the requests of some windows took. The unit is 1024 ns.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [u32; BUCKETS],
    count: u32,
    windows: u32,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies {
            buckets: [0; BUCKETS],
            count: 0,
            windows: 0,
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

    /// A window has ended. Begins anew when there were `enough`, or after some windows.
    pub(crate) fn take(&mut self, enough: u32) -> Heard {
        self.windows += 1;
        let heard = match self.count {
            0 => Heard::Nothing,
            few if few < enough => Heard::Few,
            _ => Heard::P99(self.p99()),
        };
        if heard != Heard::Few || self.windows >= WINDOWS_OF_FEW {
            *self = Latencies::new();
        }
        heard
    }

    /// What all but a hundredth stayed below.
    fn p99(&self) -> u32 {
        let mut above = self.count / 100;
        let mut p99 = 0;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            if *count > above {
                p99 = bucket;
                break;
            }
            above -= count;
        }
        let Some(bucket) = u32::try_from(p99).expect("few buckets").checked_sub(1) else {
            return 1;
        };
        let (power, step) = (bucket / STEPS, u64::from(bucket % STEPS));
        let end = (u64::from(STEPS) + step + 1) << power >> 3;
        u32::try_from(end).unwrap_or(u32::MAX).max(1)
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
    /// Windows since anything was said of how long they take.
    few: u32,
}

impl Governor {
    pub(crate) fn new() -> Governor {
        Governor {
            phase: Phase::Goes { left: 0 },
            rate: 0,
            without: None,
            few: 0,
        }
    }

    /// Decides for the window that begins, by the worst that a shard heard until the one before it
    /// ended. Bytes per second and drive.
    pub(crate) fn decide(&mut self, worst: Heard, wish: Wish) -> u64 {
        let knows = self.rate > 0;
        if !knows {
            self.rate = wish.floor.clamp(RATE_MIN, RATE_MAX);
        }
        let worst = match worst {
            Heard::P99(units) => u64::from(units),
            Heard::Nothing if !knows && self.few == 0 => {
                self.rate = 0;
                return UNLIMITED;
            }
            Heard::Nothing | Heard::Few => return self.wait(),
        };
        self.few = 0;
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
        let floor = wish.floor.clamp(RATE_MIN, RATE_MAX);
        self.rate = self.rate.clamp(floor, RATE_MAX);
        self.rate
    }

    /// Goes on as it is for a while, since little was heard; then without a limit, until more is.
    fn wait(&mut self) -> u64 {
        if self.few < WINDOWS_OF_FEW {
            self.few += 1;
            let looks = !matches!(self.phase, Phase::Goes { .. });
            if looks && self.few <= WINDOWS_IN_VAIN {
                return 0;
            }
            if looks {
                self.phase = Phase::Goes {
                    left: WINDOWS_TO_LOOK,
                };
            }
            return self.rate;
        }
        // What will be asked next may be quite another load. Bursts are no reason to stand still.
        *self = Governor {
            phase: Phase::Goes {
                left: WINDOWS_TO_LOOK,
            },
            few: WINDOWS_OF_FEW,
            ..Governor::new()
        };
        UNLIMITED
    }

    fn steer(&mut self, worst: u64, wish: Wish) {
        // An array that lacks a member takes some longer than a whole one already: both together
        // are to stay below one and a half times what that takes.
        let without = self.without.map(|without| without + without / 4);
        // Where a look says nothing, there are bursts, or few requests.
        let target = wish.target.map(u64::from).or(without);
        if target.is_none_or(|target| worst <= target) {
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
            rate = governor.decide(Heard::P99(without + without * over / 10), wish);
            if window >= 1000 {
                stood += u32::from(rate == 0);
                rates.push(rate);
            }
        }
        (rates.iter().sum::<u64>() / 1000, stood)
    }

    #[test]
    fn a_pass_goes_as_fast_as_requests_stay_within_a_quarter_more() {
        let wish = Wish {
            target: None,
            floor: 1,
        };
        // At the knee they take twice as long, so at a quarter of it a quarter more.
        let (rate, stood) = settles(200, 1_000_000_000, wish);
        assert!((180_000_000..320_000_000).contains(&rate), "{rate}");
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
        assert_eq!(rate, RATE_MIN, "a pass never stops for ever");
    }

    #[test]
    fn without_requests_there_is_no_limit() {
        let wish = Wish {
            target: Some(1),
            floor: 5_000_000,
        };
        let mut governor = Governor::new();
        assert_eq!(governor.decide(Heard::Nothing, wish), UNLIMITED);
        for _ in 0..50 {
            governor.decide(Heard::P99(1000), wish);
        }
        assert_eq!(governor.decide(Heard::P99(1000), wish), 5_000_000);
        let held = (0..WINDOWS_OF_FEW).map(|_| governor.decide(Heard::Nothing, wish));
        assert!(held.into_iter().all(|rate| rate == 5_000_000));
        for heard in [Heard::Nothing, Heard::Few, Heard::Nothing, Heard::Nothing] {
            assert_eq!(governor.decide(heard, wish), UNLIMITED, "{heard:?}");
        }
        assert_eq!(governor.decide(Heard::P99(1000), wish), 5_000_000);
    }

    #[test]
    fn a_pass_that_begins_beside_requests_begins_with_the_floor() {
        for (floor, first) in [(0, RATE_MIN), (50_000_000, 50_000_000)] {
            let wish = Wish {
                target: Some(1000),
                floor,
            };
            let mut governor = Governor::new();
            assert_eq!(governor.decide(Heard::Few, wish), first);
            assert_eq!(governor.decide(Heard::Few, wish), first);
            let faster = governor.decide(Heard::P99(10), wish);
            assert_eq!(faster, first + first / 4);
        }
    }

    #[test]
    fn few_requests_count_together_and_very_few_do_not_hold_a_pass_back() {
        let wish = Wish {
            target: Some(100),
            floor: 1_000_000,
        };
        // Five a window are enough in four of them.
        let (mut latencies, mut governor) = (Latencies::new(), Governor::new());
        let mut told = 0;
        for _ in 0..100 {
            for _ in 0..5 {
                latencies.record(Duration::from_millis(50));
            }
            let heard = latencies.take(20);
            told += u32::from(heard != Heard::Few);
            assert_eq!(governor.decide(heard, wish), 1_000_000);
        }
        assert_eq!(told, 25);
        // One now and then is not, whether or not its windows follow each other.
        for pause in [1, 3] {
            let (mut latencies, mut governor) = (Latencies::new(), Governor::new());
            for window in 0..100 {
                if window % pause == 0 {
                    latencies.record(Duration::from_millis(50));
                }
                let rate = governor.decide(latencies.take(20), wish);
                assert!(window < 12 || rate == UNLIMITED, "{rate} in {window}");
            }
        }
    }

    #[test]
    fn a_look_waits_for_requests_a_little_and_then_the_pass_goes_on() {
        let wish = Wish {
            target: None,
            floor: 5_000_000,
        };
        let mut governor = Governor::new();
        while governor.decide(Heard::P99(100), wish) > 0 {}
        for window in 0..WINDOWS_IN_VAIN {
            assert_eq!(governor.decide(Heard::Few, wish), 0, "window {window}");
        }
        assert!(governor.decide(Heard::Few, wish) > 0);
    }

    #[test]
    fn bursts_do_not_stop_a_pass() {
        let wish = Wish {
            target: None,
            floor: 50_000_000,
        };
        // Bursts so far apart that each look would be one in vain, and so near that it has ended.
        for pause in 2..30 {
            let mut governor = Governor::new();
            let mut sum = 0;
            for window in 0..1200 {
                let heard = match window % pause {
                    0 => Heard::P99(100),
                    _ => Heard::Nothing,
                };
                sum += governor.decide(heard, wish).min(200_000_000);
            }
            let mean = sum / 1200;
            assert!(mean >= 40_000_000, "{mean} with a burst in {pause} windows");
        }
        // Steady, and too few for a look: it goes faster and faster.
        let mut governor = Governor::new();
        let rates = (0..1200).map(|window| match window % 8 {
            0 => governor.decide(Heard::P99(100), wish),
            _ => governor.decide(Heard::Few, wish),
        });
        assert_eq!(rates.max(), Some(RATE_MAX));
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
            let Heard::P99(told) = latencies.take(20) else {
                panic!("a hundred are enough");
            };
            assert_eq!(Heard::decode(Heard::P99(told).encode()), Heard::P99(told));
            let told = u64::from(told) << 10;
            assert!(told >= took, "{told} for {took}");
            assert!(told <= took + took / 8 + 2048, "{told} for {took}");
            assert_eq!(latencies.take(20), Heard::Nothing, "begun anew");
        }
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
