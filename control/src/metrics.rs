//! Counters, gauges and histograms as data, and their text form for Prometheus.
//!
//! The engine reads its per-core numbers when it is asked and hands them over; nothing here is on
//! a request's way.

/// Labels of one sample: name and value.
pub type Labels = Vec<(&'static str, String)>;

/// One named family of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name without the prefix `garboard_`, without `_total`, with the unit last:
    /// `volume_read_bytes`.
    pub name: &'static str,
    /// What it says, as one sentence without a full stop.
    pub help: &'static str,
    /// The samples.
    pub samples: Samples,
}

/// The samples of a family.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Only grow. Printed with `_total`.
    Counters(Vec<(Labels, u64)>),
    /// Go up and down.
    Gauges(Vec<(Labels, f64)>),
    /// Distributions.
    Histograms(Vec<(Labels, Histogram)>),
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Sum of all values.
    pub sum: f64,
    /// Upper bound and count of each bucket (not cumulative), ascending; the last bound is
    /// `f64::MAX` for everything above.
    pub buckets: Vec<(f64, u64)>,
}
