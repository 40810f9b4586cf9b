//! Moments in which the client, or a reactor of the engine, stood still: its CPU was taken away, as
//! by another task or by the hypervisor. What was under way meanwhile took that much longer, which
//! the highest percentiles tell of before they tell of what was to be measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Instant;

use crate::expect::float;

/// A turn of this length is a stall; reactors count theirs by the same.
const STALL: Duration = Duration::from_millis(1);
/// Part of the time, in percent, from which on stalls decide about p99.9: requests that come evenly
/// meet one with that probability.
const DECISIVE_PERCENT: f64 = 0.1;

/// Stalls of one thread, as they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stalled {
    pub(super) count: u64,
    pub(super) time: Duration,
    pub(super) longest: Duration,
}

impl Stalled {
    /// A turn lasted from then until now.
    pub(super) fn turned(&mut self, from: Instant, now: Instant) {
        let passed = now.since(from);
        if passed >= STALL {
            self.count += 1;
            self.time += passed;
            self.longest = self.longest.max(passed);
        }
    }

    pub(super) fn add(&mut self, other: &Stalled) {
        self.count += other.count;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
    }
}

/// Stalls of a point.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stalls {
    pub(crate) count: u64,
    /// Of the time that was measured; of reactors of all the time in which they were busy, where
    /// that is longer, since more than one was.
    pub(crate) percent: f64,
    /// None where only their sum is known.
    pub(crate) longest_us: Option<f64>,
}

impl Stalls {
    pub(super) fn new(count: u64, time: Duration, seconds: f64) -> Stalls {
        Stalls {
            count,
            percent: 100.0 * time.as_secs_f64() / seconds.max(1e-9),
            longest_us: None,
        }
    }

    /// Of the client.
    pub(super) fn of(stalled: &Stalled, seconds: f64) -> Stalls {
        let longest_ns = u64::try_from(stalled.longest.as_nanos()).unwrap_or(u64::MAX);
        Stalls {
            longest_us: Some(float(longest_ns) / 1e3),
            ..Stalls::new(stalled.count, stalled.time, seconds)
        }
    }

    fn text(&self) -> String {
        let times = if self.count == 1 { "time" } else { "times" };
        let longest = self
            .longest_us
            .map(|us| format!(", at most {:.1} ms", us / 1e3));
        let longest = longest.unwrap_or_default();
        format!(
            "{} {times}, {:.2} % of the time{longest}",
            self.count, self.percent
        )
    }
}

/// A sentence about both, as far as they are known, where they decide about p99.9.
pub(crate) fn text(client: Option<&Stalls>, reactors: Option<&Stalls>) -> Option<String> {
    let both = [("the client", client), ("reactors", reactors)];
    let known = both
        .iter()
        .filter_map(|(who, stalls)| Some((who, (*stalls)?)));
    let percent: f64 = known.clone().map(|(_, stalls)| stalls.percent).sum();
    if percent < DECISIVE_PERCENT {
        return None;
    }
    let texts: Vec<String> = known
        .map(|(who, stalls)| format!("{who} {}", stalls.text()))
        .collect();
    let texts = texts.join("; ");
    Some(format!(
        "stood still for a millisecond or more: {texts}. p99.9 tells of that first"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_turns_count() {
        let mut stalled = Stalled::default();
        let at = |us: u64| Instant(us * 1_000);
        for (from, now) in [(0, 999), (999, 1_999), (5_000, 8_000), (8_000, 8_100)] {
            stalled.turned(at(from), at(now));
        }
        let wanted = Stalled {
            count: 2,
            time: Duration::from_millis(4),
            longest: Duration::from_millis(3),
        };
        assert_eq!(stalled, wanted);
        stalled.add(&Stalled {
            count: 1,
            time: Duration::from_millis(2),
            longest: Duration::from_millis(2),
        });
        assert_eq!(
            (stalled.count, stalled.longest),
            (3, Duration::from_millis(3))
        );
        assert_eq!(stalled.time, Duration::from_millis(6));
    }

    #[test]
    fn stalls_are_told_where_one_request_of_a_thousand_meets_them() {
        let client = |ms| {
            let time = Duration::from_millis(ms);
            let stalled = Stalled {
                count: ms,
                time,
                longest: Duration::from_micros(1_500),
            };
            Stalls::of(&stalled, 10.0)
        };
        let text = |client: Stalls, reactors: Option<&Stalls>| text(Some(&client), reactors);
        let reactors = Stalls::new(4, Duration::from_millis(5), 10.0);
        assert_eq!(text(client(9), None), None);
        let alone = text(client(10), None).expect("0.1 %");
        assert!(
            alone.contains("the client 10 times, 0.10 % of the time, at most 1.5 ms. "),
            "{alone}"
        );
        assert_eq!(text(client(4), Some(&reactors)), None);
        let both = text(client(5), Some(&reactors)).expect("0.1 % together");
        assert!(
            both.contains("; reactors 4 times, 0.05 % of the time. "),
            "{both}"
        );
        let one = text(
            client(0),
            Some(&Stalls::new(1, Duration::from_millis(20), 10.0)),
        );
        assert!(one.expect("0.2 %").contains("the client 0 times, 0.00 %"));
    }
}
