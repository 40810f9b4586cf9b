//! Load at a given rate: when each request is due, whether or not earlier ones were answered.
//!
//! A latency counts from when its request was due. A server that stands still for a while thus
//! pays for all requests that should have been sent meanwhile, and not only for those that it had
//! taken (else a client that waits for answers would leave out what was slow).

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Instant, bytes_u64};

use super::histogram::Histogram;
use super::load::Measured;
use crate::expect::float;

/// The highest rate that can be asked for.
const PER_SECOND_MAX: u64 = 100_000_000;
const NS: u128 = 1_000_000_000;
/// Measured of asked from which on a server has kept up.
const KEPT_UP: f64 = 0.99;
/// Steps in which the ages of many requests that were never sent are counted.
const AGES_MAX: u64 = 4096;

/// How much is asked per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Requests, of all jobs and devices together.
    PerSecond(u64),
    /// Percent of what is answered when as many requests as may be are in flight all the time,
    /// which is measured right before.
    OfPeak(u8),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || {
            format!(
                "`{text}` is neither requests per second, 1 to {PER_SECOND_MAX}, nor a part of \
                 the peak, 1% to 100%"
            )
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse().ok();
            let percent = percent.filter(|percent| (1..=100).contains(percent));
            return percent.map(Rate::OfPeak).ok_or_else(wrong);
        }
        let (number, times) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1000),
            None => (text, 1),
        };
        let number = number.parse::<u64>().ok();
        let rate = number.and_then(|number| number.checked_mul(times));
        let rate = rate.filter(|rate| (1..=PER_SECOND_MAX).contains(rate));
        rate.map(Rate::PerSecond).ok_or_else(wrong)
    }
}

impl Rate {
    /// Behind a workload's name.
    pub(super) fn text(self) -> String {
        match self {
            Rate::PerSecond(rate) => format!("at {rate}/s"),
            Rate::OfPeak(percent) => format!("at {percent} % of peak"),
        }
    }

    /// Requests per second, where the peak is so many.
    pub(super) fn per_second(self, peak: u64) -> u64 {
        let rate = match self {
            Rate::PerSecond(rate) => rate,
            Rate::OfPeak(percent) => peak.saturating_mul(u64::from(percent)) / 100,
        };
        rate.clamp(1, PER_SECOND_MAX)
    }
}

/// What one of several devices gets of a rate: together exactly all of it, but one a second at
/// least.
pub(super) fn share(per_second: u64, device: usize, devices: usize) -> u64 {
    let (device, devices) = (bytes_u64(device), bytes_u64(devices));
    let more = u64::from(device < per_second % devices);
    (per_second / devices + more).max(1)
}

/// When requests are due: evenly, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    begun: Instant,
    per_second: u64,
    sent: u64,
}

impl Schedule {
    /// So many a second, at least one; the first of them now.
    pub(super) fn new(begun: Instant, per_second: u64) -> Schedule {
        assert!(per_second > 0, "a rate is at least one a second");
        Schedule {
            begun,
            per_second,
            sent: 0,
        }
    }

    /// When the next request is, or was, due; none while it is not.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let due = self.moment(self.sent);
        (due <= now).then_some(due)
    }

    /// Notes that the next request was sent.
    pub(super) fn took(&mut self) {
        self.sent += 1;
    }

    /// Requests that were due before `end` and never sent; how old each was then is added to
    /// `ages`: it would have waited for so long at least.
    pub(super) fn overdue(&self, end: Instant, ages: &mut Histogram) -> u64 {
        let passed = end.since(self.begun).as_nanos();
        // Number n is due at n / rate: so many are before the end.
        let due = (passed * u128::from(self.per_second)).div_ceil(NS);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let unsent = due.saturating_sub(self.sent);
        let step = unsent.div_ceil(AGES_MAX).max(1);
        for first in (0..unsent).step_by(usize::try_from(step).expect("64 bits")) {
            let count = step.min(unsent - first);
            let due = self.moment(self.sent + first + count / 2);
            let age = u64::try_from(end.since(due).as_nanos()).unwrap_or(u64::MAX);
            ages.add_many(age, count);
        }
        unsent
    }

    fn moment(&self, number: u64) -> Instant {
        let ns = u128::from(number) * NS / u128::from(self.per_second);
        self.begun + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// What was asked of a device, and its peak; sums, so that several measurements can be joined.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) requests: f64,
    /// Of the measurement that found the peak.
    pub(super) peak_requests: f64,
    pub(super) peak_seconds: f64,
}

impl Asked {
    pub(super) fn add(&mut self, other: Asked) {
        self.requests += other.requests;
        self.peak_requests += other.peak_requests;
        self.peak_seconds += other.peak_seconds;
    }
}

/// How a load at a given rate went.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AtRate {
    pub(crate) asked_iops: f64,
    /// What was found before; none when the rate was given as a number.
    pub(crate) peak_iops: Option<f64>,
    /// Requests that were due and not sent when the time was over; their ages are among the
    /// latencies.
    pub(crate) unsent: u64,
    /// Whether as much was answered as was asked.
    pub(crate) kept_up: bool,
}

impl AtRate {
    /// None where the load had no given rate.
    pub(super) fn of(measured: &Measured) -> Option<AtRate> {
        let asked = measured.asked?;
        let per_second = |requests: f64, seconds: f64| requests / seconds.max(1e-9);
        let asked_iops = per_second(asked.requests, measured.seconds);
        let answered = per_second(float(measured.requests), measured.seconds);
        let found = asked.peak_seconds > 0.0;
        Some(AtRate {
            asked_iops,
            peak_iops: found.then(|| per_second(asked.peak_requests, asked.peak_seconds)),
            unsent: measured.unsent,
            kept_up: answered >= KEPT_UP * asked_iops,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_evenly_whether_or_not_earlier_ones_were_sent_in_time() {
        let begun = Instant(5_000);
        // Three a second do not divide its nanoseconds: nothing drifts all the same.
        let mut schedule = Schedule::new(begun, 3);
        let mut dues = Vec::new();
        for _ in 0..7 {
            let due = schedule.due(Instant(u64::MAX)).expect("long ago");
            assert_eq!(schedule.due(due), Some(due), "at its moment");
            assert_eq!(schedule.due(Instant(due.0 - 1)), None, "not before");
            schedule.took();
            dues.push(due.0 - begun.0);
        }
        let third = 1_000_000_000 / 3;
        assert_eq!(
            dues,
            [
                0,
                third,
                2 * third,
                1_000_000_000,
                1_000_000_000 + third,
                1_000_000_000 + 2 * third,
                2_000_000_000
            ]
        );
    }

    #[test]
    fn what_was_due_and_never_sent_counts_with_its_age() {
        let mut schedule = Schedule::new(Instant(0), 1_000_000);
        for _ in 0..400 {
            schedule.took();
        }
        let mut ages = Histogram::new();
        // 1000 were due before a millisecond had passed; the last 600 were not sent.
        assert_eq!(schedule.overdue(Instant(1_000_000), &mut ages), 600);
        assert_eq!(ages.max_ns(), 600_000);
        let middle = ages.per_mille(500);
        assert!((290_000..=320_000).contains(&middle), "{middle}");
        // Nothing is overdue when all was sent.
        let mut none = Histogram::new();
        assert_eq!(schedule.overdue(Instant(400_000), &mut none), 0);
        assert_eq!(none.max_ns(), 0);
        // Many are counted in steps, none is left out: beside as many others they are half.
        let idle = Schedule::new(Instant(0), 1_000_000);
        let mut many = Histogram::new();
        many.add_many(1, 1_000_000);
        assert_eq!(idle.overdue(Instant(1_000_000_000), &mut many), 1_000_000);
        let middle = many.per_mille(750);
        assert!((490_000_000..=520_000_000).contains(&middle), "{middle}");
    }

    #[test]
    fn rates_are_numbers_or_parts_of_the_peak() {
        for (text, rate) in [
            ("1", Rate::PerSecond(1)),
            ("250000", Rate::PerSecond(250_000)),
            ("250k", Rate::PerSecond(250_000)),
            ("100000k", Rate::PerSecond(100_000_000)),
            ("80%", Rate::OfPeak(80)),
            ("100%", Rate::OfPeak(100)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for wrong in [
            "",
            "0",
            "-1",
            "1.5",
            "k",
            "%",
            "0%",
            "101%",
            "80 %",
            "100000001",
            "1m",
            "18446744073709551615k",
        ] {
            let said = wrong.parse::<Rate>().expect_err(wrong);
            assert!(said.contains(&format!("`{wrong}`")), "{said}");
        }
        assert_eq!(Rate::OfPeak(80).per_second(1_000_001), 800_000);
        assert_eq!(Rate::OfPeak(80).per_second(1), 1, "never nothing");
        assert_eq!(Rate::PerSecond(7).per_second(1_000_000), 7);
    }

    #[test]
    fn devices_share_a_rate() {
        let shares: Vec<u64> = (0..3).map(|device| share(100, device, 3)).collect();
        assert_eq!(shares, [34, 33, 33]);
        assert_eq!(share(100, 0, 1), 100);
        assert_eq!(share(1, 2, 3), 1, "never nothing");
    }

    #[test]
    fn who_answers_less_than_was_asked_has_not_kept_up() {
        let mut measured = Measured::nothing();
        assert!(AtRate::of(&measured).is_none());
        measured.seconds = 2.0;
        measured.asked = Some(Asked {
            requests: 2000.0,
            peak_requests: 1250.0,
            peak_seconds: 1.0,
        });
        for (requests, kept_up) in [(2000, true), (1980, true), (1979, false)] {
            measured.requests = requests;
            let found = AtRate::of(&measured).expect("asked");
            assert_eq!(found.kept_up, kept_up, "{requests}");
            assert!((found.asked_iops - 1000.0).abs() < 1e-9);
            assert!((found.peak_iops.expect("found") - 1250.0).abs() < 1e-9);
        }
    }
}
