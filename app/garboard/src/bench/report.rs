//! What is told of measurements: the JSON, and what the table is made of.

use std::path::PathBuf;

use models::Model;
use serde::Serialize;

use super::load::Measured;
use super::theory::Theory;

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) layer: &'static str,
    pub(crate) socket: PathBuf,
    pub(crate) against: Option<PathBuf>,
    pub(crate) size_bytes: u64,
    pub(crate) range_bytes: u64,
    pub(crate) queues: usize,
    pub(crate) seconds_per_point: f64,
    pub(crate) verified: bool,
    /// What was taken for granted, and what the figures are not.
    pub(crate) assumptions: Vec<String>,
    pub(crate) drive_model: Option<Model>,
    pub(crate) slower: u32,
    pub(crate) points: Vec<PointReport>,
    pub(crate) skipped: Vec<String>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PointReport {
    pub(crate) workload: &'static str,
    /// What its requests are.
    pub(crate) about: &'static str,
    pub(crate) request_bytes: u64,
    pub(crate) jobs: usize,
    pub(crate) depth: usize,
    #[serde(flatten)]
    pub(crate) measured: Figures,
    pub(crate) theoretical: Option<Theory>,
    /// Measured of theoretical, in percent.
    pub(crate) efficiency_percent: Option<f64>,
    /// By how much rates may be off because the window of the measurement cuts through the
    /// requests in flight, in percent.
    pub(crate) window_error_percent: f64,
    /// Reactors that were busy, on average over the measurement with its warm-up; none when there
    /// is no engine to ask, or a rival was measured in between.
    pub(crate) cores_used: Option<f64>,
    pub(crate) against: Option<Against>,
}

/// What was measured of one device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) latency_us_mean: f64,
    pub(crate) latency_us_p50: f64,
    pub(crate) latency_us_p99: f64,
    pub(crate) latency_us_p999: f64,
    pub(crate) latency_us_max: f64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) verified_bytes: u64,
}

/// How a rival did, pair by pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Against {
    pub(crate) theirs: Figures,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) ratio_median: f64,
    pub(crate) ratio_min: f64,
    pub(crate) ratio_max: f64,
}

/// One measurement of each, one right after the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) ours_iops: f64,
    pub(crate) theirs_iops: f64,
    /// Ours of theirs.
    pub(crate) ratio: f64,
}

impl Figures {
    pub(super) fn of(measured: &Measured) -> Figures {
        let micros = |ns: u64| crate::expect::float(ns.min(1 << 52)) / 1000.0;
        let latency = &measured.latency;
        let seconds = measured.seconds.max(1e-9);
        Figures {
            iops: crate::expect::float(measured.requests) / seconds,
            bytes_per_second: crate::expect::float(measured.bytes) / seconds,
            latency_us_mean: micros(latency.mean_ns()),
            latency_us_p50: micros(latency.per_mille(500)),
            latency_us_p99: micros(latency.per_mille(990)),
            latency_us_p999: micros(latency.per_mille(999)),
            latency_us_max: micros(latency.max_ns()),
            requests: measured.requests,
            errors: measured.errors,
            verified_bytes: measured.verified_bytes,
        }
    }
}
