//! Ours beside a rival's: ratios pair by pair, and whether one of the two falls into two modes.

use serde::{Deserialize, Serialize};

use super::median;
use super::rate::AtRate;
use super::report::{Figures, Processors};

/// Neighbours in a sorted list of rates that are further apart than this begin another mode.
const APART: f64 = 1.25;
/// Pairs that a mode has at least: one alone is a stray.
const MODE_PAIRS: usize = 2;

/// How a rival did, pair by pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Against {
    pub(crate) theirs: Figures,
    /// Of a load at a given rate.
    pub(crate) theirs_rate: Option<AtRate>,
    /// What the rival's process spent; none when it cannot be seen.
    pub(crate) theirs_processors: Option<Processors>,
    pub(crate) pairs: Vec<Pair>,
    /// Of requests per second, ours of theirs: above 1 is faster.
    pub(crate) ratio_median: f64,
    pub(crate) ratio_min: f64,
    pub(crate) ratio_max: f64,
    /// Of latencies, ours of theirs: below 1 is faster.
    pub(crate) latency_p50: Spread,
    pub(crate) latency_p99: Spread,
    pub(crate) latency_p999: Spread,
    /// Of our own latencies within each pair: p99.9 of p50.
    pub(crate) ours_tail: Spread,
    pub(crate) theirs_tail: Spread,
    /// Both modes of the rates of each, the slower first; empty where there is only one.
    pub(crate) ours_modes: Vec<Mode>,
    pub(crate) theirs_modes: Vec<Mode>,
}

/// One measurement of each, one right after the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) ours_iops: f64,
    pub(crate) theirs_iops: f64,
    /// Ours of theirs.
    pub(crate) ratio: f64,
    pub(crate) ours_latency: Latency,
    pub(crate) theirs_latency: Latency,
}

/// Percentiles of one measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) us_p50: f64,
    pub(crate) us_p99: f64,
    pub(crate) us_p999: f64,
}

/// A figure of several pairs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Pairs that answered about as fast as each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mode {
    pub(crate) pairs: usize,
    /// Medians of these pairs.
    pub(crate) iops: f64,
    pub(crate) latency_us_p50: f64,
}

impl Latency {
    pub(super) fn of(figures: &Figures) -> Latency {
        Latency {
            us_p50: figures.latency_us_p50,
            us_p99: figures.latency_us_p99,
            us_p999: figures.latency_us_p999,
        }
    }
}

impl Pair {
    pub(super) fn of(ours: &Figures, theirs: &Figures) -> Pair {
        Pair {
            ours_iops: ours.iops,
            theirs_iops: theirs.iops,
            ratio: ratio(ours.iops, theirs.iops),
            ours_latency: Latency::of(ours),
            theirs_latency: Latency::of(theirs),
        }
    }
}

fn ratio(of: f64, by: f64) -> f64 {
    of / by.max(1e-9)
}

impl Spread {
    /// Of a list that is not empty.
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Spread {
            median: median(&values),
            min: values[0],
            max: values[values.len() - 1],
        }
    }
}

impl Against {
    /// Of at least one pair; `theirs` are the figures of all of them together.
    pub(super) fn of(pairs: Vec<Pair>, theirs: Figures) -> Against {
        let rates = Spread::of(pairs.iter().map(|pair| pair.ratio));
        let latency = |of: fn(&Latency) -> f64| {
            let ratios = pairs
                .iter()
                .map(|pair| ratio(of(&pair.ours_latency), of(&pair.theirs_latency)));
            Spread::of(ratios)
        };
        let tail = |of: fn(&Pair) -> &Latency| {
            let tails = pairs.iter().map(of);
            Spread::of(tails.map(|latency| ratio(latency.us_p999, latency.us_p50)))
        };
        Against {
            theirs,
            theirs_rate: None,
            theirs_processors: None,
            ratio_median: rates.median,
            ratio_min: rates.min,
            ratio_max: rates.max,
            latency_p50: latency(|latency| latency.us_p50),
            latency_p99: latency(|latency| latency.us_p99),
            latency_p999: latency(|latency| latency.us_p999),
            ours_tail: tail(|pair| &pair.ours_latency),
            theirs_tail: tail(|pair| &pair.theirs_latency),
            ours_modes: modes(pairs.iter().map(|pair| (pair.ours_iops, pair.ours_latency))),
            theirs_modes: modes(
                pairs
                    .iter()
                    .map(|pair| (pair.theirs_iops, pair.theirs_latency)),
            ),
            pairs,
        }
    }
}

/// The two modes of rates with a wide gap in their middle, which is wider than what lies on either
/// side of it; none where there is no such gap, or only a stray beyond it.
fn modes(found: impl Iterator<Item = (f64, Latency)>) -> Vec<Mode> {
    let mut found: Vec<(f64, Latency)> = found.collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    let apart = |low: usize, high: usize| ratio(found[high].0, found[low].0);
    let last = found.len().saturating_sub(1);
    let gaps = (1..found.len()).map(|second| (second, apart(second - 1, second)));
    let Some((second, gap)) = gaps.max_by(|one, other| one.1.total_cmp(&other.1)) else {
        return Vec::new();
    };
    let few = second < MODE_PAIRS || found.len() - second < MODE_PAIRS;
    if few || gap < APART || gap < apart(0, second - 1) || gap < apart(second, last) {
        return Vec::new();
    }
    let (slow, fast) = found.split_at(second);
    [slow, fast].map(Mode::of).to_vec()
}

impl Mode {
    fn of(found: &[(f64, Latency)]) -> Mode {
        let latencies = found.iter().map(|(_, latency)| latency.us_p50);
        Mode {
            pairs: found.len(),
            iops: Spread::of(found.iter().map(|(rate, _)| *rate)).median,
            latency_us_p50: Spread::of(latencies).median,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Measured;
    use super::*;

    fn figures(iops: f64, p50: f64, p99: f64, p999: f64) -> Figures {
        Figures {
            iops,
            latency_us_p50: p50,
            latency_us_p99: p99,
            latency_us_p999: p999,
            ..Figures::of(&Measured::nothing())
        }
    }

    fn is(found: Spread, wanted: [f64; 3]) {
        for (found, wanted) in [found.median, found.min, found.max].iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-9, "{found} for {wanted}");
        }
    }

    #[test]
    fn each_ratio_is_of_its_own_pair() {
        let pairs = vec![
            Pair::of(
                &figures(300.0, 10.0, 40.0, 50.0),
                &figures(100.0, 20.0, 20.0, 100.0),
            ),
            Pair::of(
                &figures(100.0, 30.0, 30.0, 90.0),
                &figures(200.0, 10.0, 10.0, 30.0),
            ),
            Pair::of(
                &figures(200.0, 20.0, 20.0, 80.0),
                &figures(200.0, 20.0, 20.0, 40.0),
            ),
        ];
        let against = Against::of(pairs, figures(1.0, 1.0, 1.0, 1.0));
        // Medians of the figures would say 1, 1 and 1.
        is(
            Spread {
                median: against.ratio_median,
                min: against.ratio_min,
                max: against.ratio_max,
            },
            [1.0, 0.5, 3.0],
        );
        is(against.latency_p50, [1.0, 0.5, 3.0]);
        is(against.latency_p99, [2.0, 1.0, 3.0]);
        is(against.latency_p999, [2.0, 0.5, 3.0]);
        is(against.ours_tail, [4.0, 3.0, 5.0]);
        is(against.theirs_tail, [3.0, 2.0, 5.0]);
        assert!(against.ours_modes.is_empty() && against.theirs_modes.is_empty());
    }

    fn found(rates: &[f64]) -> Vec<Mode> {
        let latency = |rate: f64| Latency {
            us_p50: 1e6 / rate,
            us_p99: 0.0,
            us_p999: 0.0,
        };
        modes(rates.iter().map(|rate| (*rate, latency(*rate))))
    }

    #[test]
    fn two_modes_are_told_apart_from_noise_and_strays() {
        let two = found(&[800e3, 400e3, 810e3, 390e3, 820e3, 405e3, 805e3]);
        let [slow, fast] = two.as_slice() else {
            panic!("two modes: {two:?}");
        };
        assert_eq!((slow.pairs, fast.pairs), (3, 4));
        assert!((slow.iops - 400e3).abs() < 1e-6 && (fast.iops - 807.5e3).abs() < 1e-6);
        assert!((slow.latency_us_p50 - 2.5).abs() < 1e-9);
        let none: [&[f64]; 6] = [
            &[],
            &[400e3],
            &[400e3, 800e3],
            // A stray.
            &[400e3, 800e3, 810e3, 820e3, 805e3],
            // Evenly spread.
            &[400e3, 520e3, 676e3, 879e3, 1142e3],
            // Close.
            &[400e3, 401e3, 480e3, 481e3],
        ];
        for rates in none {
            assert_eq!(found(rates), Vec::new(), "{rates:?}");
        }
    }
}
