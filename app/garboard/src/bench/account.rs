//! What the engine spent on a measurement: the difference of its counters.

use std::collections::BTreeMap;
use std::time::Duration;

use control::view::{DriveView, IoCounters, ReactorView, StatusView};

use super::load::Measured;
use super::report::{Cost, DriveShare, Processors};
use super::stalls::Stalls;
use crate::expect::float;

/// A drive is far slower than the others when its requests take this many times as long as those
/// of the one in the middle, on average.
const OUTLIER: f64 = 1.25;
/// Fewer requests say nothing of a drive.
const REQUESTS_MIN: u64 = 100;

/// What an engine has counted until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    busy_us: u64,
    stalls: u64,
    stalled_us: u64,
    system_calls: u64,
    messages: u64,
    copied_bytes: u64,
    drives: BTreeMap<String, IoCounters>,
}

impl Counted {
    /// From what the engine shows; `metrics` is its text for Prometheus, `arrays` and `drives` are
    /// those that matter.
    pub(crate) fn new(
        status: &StatusView,
        metrics: &str,
        arrays: &[String],
        drives: &[DriveView],
    ) -> Counted {
        let reactors = status.engine.reactors.iter();
        let of_reactors = |get: fn(&ReactorView) -> u64| reactors.clone().map(get).sum();
        let of_arrays = |name: &str| {
            let of = |array: &String| sum(metrics, name, Some(("array", array)));
            arrays.iter().map(of).sum()
        };
        Counted {
            busy_us: of_reactors(|reactor| reactor.busy_time_us_total),
            stalls: of_reactors(|reactor| reactor.stalls_total),
            stalled_us: of_reactors(|reactor| reactor.stalled_time_us_total),
            system_calls: sum(metrics, "reactor_enters", None),
            messages: of_arrays("array_messages"),
            copied_bytes: of_arrays("array_copied_bytes"),
            drives: drives
                .iter()
                .map(|drive| (drive.name.clone(), drive.counters))
                .collect(),
        }
    }
}

/// The sum of the samples of a counter, of all labels or of those that have one of a value.
fn sum(metrics: &str, name: &str, label: Option<(&str, &str)>) -> u64 {
    let name = format!("garboard_{name}_total");
    let label = label.map(|(label, value)| format!("{label}=\"{value}\""));
    let value = |line: &str| {
        let rest = line.strip_prefix(&name)?;
        // Another counter's name may go on here.
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        let (labels, value) = rest.rsplit_once(' ')?;
        let mut labels = labels.trim_matches(['{', '}']).split(',');
        let wanted = label.as_ref();
        let meant = wanted.is_none_or(|wanted| labels.any(|label| label == wanted));
        value.parse::<u64>().ok().filter(|_| meant)
    };
    metrics.lines().filter_map(value).sum()
}

/// What was spent on a measurement, with its warm-up.
#[derive(Clone, Debug, Default)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    /// None when there is no engine to ask.
    pub(super) counted: Option<Counted>,
    /// Of the processes behind the sockets; none when they cannot be seen.
    pub(super) processors: Option<Duration>,
}

impl Spent {
    /// Takes over what was spent on another measurement of the same.
    pub(super) fn add(&mut self, other: &Spent) {
        self.seconds += other.seconds;
        self.counted = match (self.counted.take(), &other.counted) {
            (Some(own), Some(more)) => Some(own.with(more)),
            _ => None,
        };
        let both = self.processors.zip(other.processors);
        self.processors = both.map(|(own, more)| own + more);
    }
}

impl Counted {
    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Counted) -> Counted {
        self.joined(before, u64::saturating_sub)
    }

    /// Both together.
    fn with(&self, other: &Counted) -> Counted {
        self.joined(other, u64::saturating_add)
    }

    fn joined(&self, other: &Counted, join: fn(u64, u64) -> u64) -> Counted {
        let of_drive = |(name, own): (&String, &IoCounters)| {
            let theirs = other.drives.get(name).copied().unwrap_or_default();
            (name.clone(), both(own, &theirs, join))
        };
        Counted {
            busy_us: join(self.busy_us, other.busy_us),
            stalls: join(self.stalls, other.stalls),
            stalled_us: join(self.stalled_us, other.stalled_us),
            system_calls: join(self.system_calls, other.system_calls),
            messages: join(self.messages, other.messages),
            copied_bytes: join(self.copied_bytes, other.copied_bytes),
            drives: self.drives.iter().map(of_drive).collect(),
        }
    }
}

fn both(own: &IoCounters, other: &IoCounters, join: fn(u64, u64) -> u64) -> IoCounters {
    IoCounters {
        reads_total: join(own.reads_total, other.reads_total),
        writes_total: join(own.writes_total, other.writes_total),
        flushes_total: join(own.flushes_total, other.flushes_total),
        read_bytes_total: join(own.read_bytes_total, other.read_bytes_total),
        written_bytes_total: join(own.written_bytes_total, other.written_bytes_total),
        read_time_us_total: join(own.read_time_us_total, other.read_time_us_total),
        write_time_us_total: join(own.write_time_us_total, other.write_time_us_total),
        errors_total: join(own.errors_total, other.errors_total),
    }
}

/// What the processes behind the sockets spent on what the client asked; none when they cannot be
/// seen.
pub(super) fn processors(spent: &Spent, measured: &Measured) -> Option<Processors> {
    let time = spent.processors?.as_secs_f64();
    Some(Processors {
        cores_used: time / spent.seconds.max(1e-9),
        core_us_per_request: time * 1e6 / float(measured.all_requests.max(1)),
    })
}

/// What an engine spent on what the client asked; none when there is none to ask.
pub(super) fn cost(spent: &Spent, measured: &Measured) -> Option<Cost> {
    let counted = spent.counted.as_ref()?;
    let drives = shares(counted);
    let requests = float(measured.all_requests.max(1));
    let bytes = float(measured.all_bytes.max(1));
    let more = |of: fn(&Counted) -> u64| float(of(counted));
    let all = |of: fn(&DriveShare) -> u64| float(drives.iter().map(of).sum());
    let busy_us = more(|counted| counted.busy_us);
    Some(Cost {
        cores_used: busy_us / 1e6 / spent.seconds.max(1e-9),
        core_us_per_request: busy_us / requests,
        drive_requests_per_request: all(|drive| drive.reads + drive.writes) / requests,
        drive_flushes_per_request: more(|counted| {
            let drives = counted.drives.values();
            drives.map(|drive| drive.flushes_total).sum()
        }) / requests,
        drive_read_bytes_per_byte: all(|drive| drive.read_bytes) / bytes,
        drive_written_bytes_per_byte: all(|drive| drive.written_bytes) / bytes,
        copied_bytes_per_byte: more(|counted| counted.copied_bytes) / bytes,
        messages_per_request: more(|counted| counted.messages) / requests,
        system_calls_per_request: more(|counted| counted.system_calls) / requests,
        // Of several at work each has its part of the requests: a stall of one is met by those.
        reactor_stalls: Stalls::new(
            counted.stalls,
            Duration::from_micros(counted.stalled_us),
            (busy_us / 1e6).max(spent.seconds),
        ),
        drives,
    })
}

fn shares(counted: &Counted) -> Vec<DriveShare> {
    let mut shares: Vec<DriveShare> = Vec::new();
    for (name, counters) in &counted.drives {
        let (reads, writes) = (counters.reads_total, counters.writes_total);
        let time_us = counters.read_time_us_total + counters.write_time_us_total;
        shares.push(DriveShare {
            drive: name.clone(),
            reads,
            writes,
            read_bytes: counters.read_bytes_total,
            written_bytes: counters.written_bytes_total,
            latency_us_mean: float(time_us) / float((reads + writes).max(1)),
            outlier: false,
        });
    }
    let enough = |share: &&DriveShare| share.reads + share.writes >= REQUESTS_MIN;
    let mut latencies: Vec<f64> = shares
        .iter()
        .filter(enough)
        .map(|share| share.latency_us_mean)
        .collect();
    latencies.sort_by(f64::total_cmp);
    if latencies.len() > 2 {
        let limit = OUTLIER * super::median(&latencies);
        for share in &mut shares {
            share.outlier = enough(&&*share) && share.latency_us_mean > limit;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# TYPE garboard_array_messages counter
garboard_array_messages_total{array=\"a\",reactor=\"0\"} 5
garboard_array_messages_total{array=\"a\",reactor=\"1\"} 7
garboard_array_messages_total{array=\"aa\",reactor=\"1\"} 100
garboard_array_messages_old_total{array=\"a\",reactor=\"1\"} 1000
garboard_reactor_enters_total{reactor=\"0\"} 3
garboard_plain_total 9
";

    #[test]
    fn counters_are_those_of_the_array() {
        assert_eq!(sum(METRICS, "array_messages", Some(("array", "a"))), 12);
        assert_eq!(sum(METRICS, "array_messages", None), 112);
        assert_eq!(sum(METRICS, "reactor_enters", None), 3);
        assert_eq!(sum(METRICS, "plain", None), 9);
        assert_eq!(sum(METRICS, "array", None), 0);
    }

    fn counted(time_us: [u64; 4]) -> Counted {
        let drive = |(number, time): (usize, &u64)| {
            let counters = IoCounters {
                reads_total: time.min(&1) * 200,
                read_bytes_total: time.min(&1) * 200 * 4096,
                read_time_us_total: *time,
                ..IoCounters::default()
            };
            (format!("d{number}"), counters)
        };
        Counted {
            busy_us: 500_000 * time_us[0].min(1),
            stalls: 3 * time_us[0].min(1),
            stalled_us: 20_000 * time_us[0].min(1),
            drives: time_us.iter().enumerate().map(drive).collect(),
            ..Counted::default()
        }
    }

    #[test]
    fn a_drive_that_takes_longer_than_the_others_is_told_apart() {
        let mut measured = Measured::nothing();
        measured.all_requests = 400;
        measured.all_bytes = 400 * 4096;
        let after = counted([20_000, 21_000, 30_000, 20_500]);
        let spent = Spent {
            seconds: 2.0,
            counted: Some(after.since(&counted([0; 4]))),
            processors: Some(Duration::from_secs(1)),
        };
        let cost = cost(&spent, &measured).expect("counted");
        let slow: Vec<bool> = cost.drives.iter().map(|drive| drive.outlier).collect();
        assert_eq!(slow, [false, false, true, false]);
        assert!((cost.cores_used - 0.25).abs() < 1e-9);
        assert!((cost.drive_requests_per_request - 2.0).abs() < 1e-9);
        assert!((cost.drive_read_bytes_per_byte - 2.0).abs() < 1e-9);
        assert!((cost.core_us_per_request - 1250.0).abs() < 1e-9);
        let stalls = cost.reactor_stalls;
        assert_eq!(stalls.count, 3);
        assert!((stalls.percent - 1.0).abs() < 1e-9, "of two seconds");
        // Two reactors at work have twice the time.
        let busy = Spent {
            seconds: 0.25,
            ..spent
        };
        let stalls = super::cost(&busy, &measured)
            .expect("counted")
            .reactor_stalls;
        assert!((stalls.percent - 4.0).abs() < 1e-9, "of half a second");
    }
}
