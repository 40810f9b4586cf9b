//! What the engine spent on a measurement: the difference of its counters.

use std::collections::BTreeMap;

use control::view::{DriveView, IoCounters, StatusView};

use super::load::Measured;
use super::report::{Cost, DriveShare};
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
        let of_arrays = |name: &str| {
            let of = |array: &String| sum(metrics, name, Some(("array", array)));
            arrays.iter().map(of).sum()
        };
        Counted {
            busy_us: reactors.map(|reactor| reactor.busy_time_us_total).sum(),
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

/// What was spent between two looks on what the client asked.
pub(super) fn cost(before: &Counted, after: &Counted, took: f64, measured: &Measured) -> Cost {
    let drives = shares(before, after);
    let requests = float(measured.all_requests.max(1));
    let bytes = float(measured.all_bytes.max(1));
    let more = |of: fn(&Counted) -> u64| float(of(after).saturating_sub(of(before)));
    let all = |of: fn(&DriveShare) -> u64| float(drives.iter().map(of).sum());
    let busy_us = more(|counted| counted.busy_us);
    Cost {
        cores_used: busy_us / 1e6 / took.max(1e-9),
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
        drives,
    }
}

fn shares(before: &Counted, after: &Counted) -> Vec<DriveShare> {
    let mut shares: Vec<DriveShare> = Vec::new();
    for (name, now) in &after.drives {
        let then = before.drives.get(name).copied().unwrap_or_default();
        let more = |of: fn(&IoCounters) -> u64| of(now).saturating_sub(of(&then));
        let (reads, writes) = (more(|c| c.reads_total), more(|c| c.writes_total));
        let time_us = more(|c| c.read_time_us_total) + more(|c| c.write_time_us_total);
        shares.push(DriveShare {
            drive: name.clone(),
            reads,
            writes,
            read_bytes: more(|c| c.read_bytes_total),
            written_bytes: more(|c| c.written_bytes_total),
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
            drives: time_us.iter().enumerate().map(drive).collect(),
            ..Counted::default()
        }
    }

    #[test]
    fn a_drive_that_takes_longer_than_the_others_is_told_apart() {
        let mut measured = Measured::nothing();
        measured.all_requests = 400;
        measured.all_bytes = 400 * 4096;
        let cost = cost(
            &counted([0; 4]),
            &counted([20_000, 21_000, 30_000, 20_500]),
            2.0,
            &measured,
        );
        let slow: Vec<bool> = cost.drives.iter().map(|drive| drive.outlier).collect();
        assert_eq!(slow, [false, false, true, false]);
        assert!((cost.cores_used - 0.25).abs() < 1e-9);
        assert!((cost.drive_requests_per_request - 2.0).abs() < 1e-9);
        assert!((cost.drive_read_bytes_per_byte - 2.0).abs() < 1e-9);
        assert!((cost.core_us_per_request - 1250.0).abs() < 1e-9);
    }
}
