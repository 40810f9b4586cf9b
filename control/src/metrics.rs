//! Counters, gauges and histograms as data, and their text form for Prometheus.
//!
//! The engine reads its per-core numbers when it is asked and hands them over; nothing here is on
//! a request's way.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

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
    /// `f64::INFINITY`.
    pub buckets: Vec<(f64, u64)>,
}

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "garboard";

/// The OpenMetrics text of `metrics`, every name with the prefix `garboard_`.
#[must_use]
pub fn text(metrics: &[Metric]) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Snapshot(metrics.to_vec())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a String does not fail");
    text
}

#[derive(Debug)]
struct Snapshot(Vec<Metric>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            encode_metric(&mut encoder, metric)?;
        }
        Ok(())
    }
}

fn encode_metric(encoder: &mut DescriptorEncoder<'_>, metric: &Metric) -> fmt::Result {
    let kind = match &metric.samples {
        Samples::Counters(_) => MetricType::Counter,
        Samples::Gauges(_) => MetricType::Gauge,
        Samples::Histograms(_) => MetricType::Histogram,
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
    match &metric.samples {
        Samples::Counters(samples) => each(&mut family, samples, |sample, value| {
            sample.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }),
        Samples::Gauges(samples) => each(&mut family, samples, |sample, value| {
            sample.encode_gauge(value)
        }),
        Samples::Histograms(samples) => each(&mut family, samples, |sample, histogram| {
            let count = histogram.buckets.iter().map(|(_, count)| count).sum();
            sample.encode_histogram::<NoLabelSet>(histogram.sum, count, &histogram.buckets, None)
        }),
    }
}

fn each<T>(
    family: &mut MetricEncoder<'_>,
    samples: &[(Labels, T)],
    encode: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (labels, value) in samples {
        if labels.is_empty() {
            encode(family, value)?;
        } else {
            encode(&mut family.encode_family(labels)?, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_prometheus_reads() {
        let labels = vec![("volume", "quo\"ted\\name".to_owned())];
        let histogram = Histogram {
            sum: 0.5,
            buckets: vec![(0.001, 2), (f64::INFINITY, 1)],
        };
        let metrics = [
            Metric {
                name: "volume_read_bytes",
                help: "Bytes that guests read",
                samples: Samples::Counters(vec![(labels.clone(), u64::MAX)]),
            },
            Metric {
                name: "drives_open",
                help: "Drives that are open",
                samples: Samples::Gauges(vec![(Vec::new(), 2.5)]),
            },
            Metric {
                name: "volume_read_seconds",
                help: "How long reads took",
                samples: Samples::Histograms(vec![(labels, histogram)]),
            },
        ];
        let expected = "\
# HELP garboard_volume_read_bytes Bytes that guests read
# TYPE garboard_volume_read_bytes counter
garboard_volume_read_bytes_total{volume=\"quo\\\"ted\\\\name\"} 18446744073709551615
# HELP garboard_drives_open Drives that are open
# TYPE garboard_drives_open gauge
garboard_drives_open 2.5
# HELP garboard_volume_read_seconds How long reads took
# TYPE garboard_volume_read_seconds histogram
garboard_volume_read_seconds_sum{volume=\"quo\\\"ted\\\\name\"} 0.5
garboard_volume_read_seconds_count{volume=\"quo\\\"ted\\\\name\"} 3
garboard_volume_read_seconds_bucket{le=\"0.001\",volume=\"quo\\\"ted\\\\name\"} 2
garboard_volume_read_seconds_bucket{le=\"+Inf\",volume=\"quo\\\"ted\\\\name\"} 3
# EOF
";
        assert_eq!(text(&metrics), expected);
    }
}
