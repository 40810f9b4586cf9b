//! All counters, gauges and histograms, gathered from the reactors when somebody asks.

mod arrays;

use control::metrics::{Histogram, Labels, Metric, Samples};
use control::view::VolumeView;
use vhost_user_blk::Latency;

use crate::{Host, views};

const NS_PER_S: f64 = 1e9;

impl Host {
    pub(crate) fn all_metrics(&self) -> Vec<Metric> {
        let mut metrics = self.reactor_metrics();
        metrics.extend(self.drive_metrics());
        metrics.extend(self.drive_times());
        metrics.extend(self.volume_metrics());
        metrics.extend(self.queue_metrics());
        metrics.extend(self.array_metrics());
        metrics
    }

    fn reactor_metrics(&self) -> Vec<Metric> {
        let reports = self.engine.reports(&[]);
        let by = |select: fn(&engine::ReactorReport) -> u64| {
            let sample = |report: &engine::ReactorReport| {
                (
                    vec![("reactor", report.reactor.0.to_string())],
                    select(report),
                )
            };
            Samples::Counters(reports.iter().map(sample).collect())
        };
        vec![
            metric(
                "reactor_turns",
                "Turns of the reactor",
                by(|report| report.turns),
            ),
            metric(
                "reactor_busy_microseconds",
                "Time in turns with work",
                by(|report| views::microseconds(report.times.busy)),
            ),
            metric(
                "reactor_idle_microseconds",
                "Time in turns without work, and asleep",
                by(|report| views::microseconds(report.times.idle)),
            ),
            metric(
                "reactor_stalls",
                "Turns that took a millisecond or more: its CPU was taken away, or something took too long",
                by(|report| report.times.stalls),
            ),
            metric(
                "reactor_stalled_microseconds",
                "Time in these turns",
                by(|report| views::microseconds(report.times.stalled)),
            ),
            metric(
                "reactor_enters",
                "System calls that submitted or reaped",
                by(|report| report.port.enters),
            ),
            metric(
                "reactor_waits",
                "System calls that slept",
                by(|report| report.port.waits),
            ),
            metric(
                "reactor_drive_operations",
                "Operations handed to the kernel",
                by(|report| report.port.operations),
            ),
            metric(
                "reactor_pinned_transfers",
                "Of these, transfers of memory that is pinned: guests' or the engine's own",
                by(|report| report.port.pinned),
            ),
            metric(
                "reactor_joined_requests",
                "Requests of drives that went with the operation of another",
                by(|report| report.port.joined),
            ),
            metric(
                "reactor_parted_requests",
                "Requests that went together and were made again by themselves",
                by(|report| report.port.parted),
            ),
        ]
    }

    fn drive_metrics(&self) -> Vec<Metric> {
        let drives = self.do_drives();
        let by = |select: fn(&control::view::IoCounters) -> u64| {
            let sample = |drive: &control::view::DriveView| {
                (vec![("drive", drive.name.clone())], select(&drive.counters))
            };
            Samples::Counters(drives.iter().map(sample).collect())
        };
        vec![
            metric(
                "drive_reads",
                "Reads completed by the drive",
                by(|counters| counters.reads_total),
            ),
            metric(
                "drive_writes",
                "Writes completed by the drive",
                by(|counters| counters.writes_total),
            ),
            metric(
                "drive_flushes",
                "Flushes completed; guests' ask only drives that have a volatile write cache",
                by(|counters| counters.flushes_total),
            ),
            metric(
                "drive_read_bytes",
                "Bytes read from the drive",
                by(|counters| counters.read_bytes_total),
            ),
            metric(
                "drive_written_bytes",
                "Bytes written to the drive",
                by(|counters| counters.written_bytes_total),
            ),
            metric(
                "drive_errors",
                "Requests that the drive failed",
                by(|counters| counters.errors_total),
            ),
        ]
    }

    /// How long drives took over reads and writes, on all reactors together.
    fn drive_times(&self) -> Vec<Metric> {
        let reports = self.engine.reports(&[]);
        let drives: Vec<(String, units::DriveIndex)> = {
            let state = self.state();
            let drives = state.drives.values();
            drives
                .map(|drive| (drive.name.clone(), drive.index))
                .collect()
        };
        let mut samples = [Vec::new(), Vec::new()];
        for (name, index) in drives {
            let mut counts = [[0; block::LATENCY_BUCKETS]; 2];
            let mut sums = [0_u64; 2];
            let all = reports.iter().flat_map(|report| &report.drives);
            for (_, counters) in all.filter(|(drive, _)| *drive == index) {
                let times = [&counters.read_times, &counters.write_times];
                sums[0] = sums[0].saturating_add(counters.reads.latency_ns);
                sums[1] = sums[1].saturating_add(counters.writes.latency_ns);
                for (counts, times) in counts.iter_mut().zip(times) {
                    for (count, more) in counts.iter_mut().zip(times.buckets) {
                        *count += more;
                    }
                }
            }
            for kind in [0, 1] {
                let labels: Labels = vec![("drive", name.clone())];
                samples[kind].push((labels, histogram_of(&counts[kind], sums[kind])));
            }
        }
        let [reads, writes] = samples;
        vec![
            metric(
                "drive_read_latency_seconds",
                "From the submission of a read to its answer",
                Samples::Histograms(reads),
            ),
            metric(
                "drive_write_latency_seconds",
                "From the submission of a write to its answer",
                Samples::Histograms(writes),
            ),
        ]
    }

    fn volume_metrics(&self) -> Vec<Metric> {
        let volumes = self.do_volumes();
        let of = |select: &dyn Fn(&VolumeView) -> u64| {
            let sample = |volume: &VolumeView| {
                // Volumes of two arrays may have one name.
                let array = ("array", volume.array.clone());
                (vec![array, ("volume", volume.name.clone())], select(volume))
            };
            Samples::Counters(volumes.iter().map(sample).collect())
        };
        let by = |select: fn(&control::view::IoCounters) -> u64| {
            of(&|volume: &VolumeView| select(&volume.counters))
        };
        vec![
            metric(
                "volume_reads",
                "Reads completed",
                by(|counters| counters.reads_total),
            ),
            metric(
                "volume_writes",
                "Writes, discards and write-zeroes completed",
                by(|counters| counters.writes_total),
            ),
            metric(
                "volume_flushes",
                "Flushes completed",
                by(|counters| counters.flushes_total),
            ),
            metric(
                "volume_read_bytes",
                "Bytes read",
                by(|counters| counters.read_bytes_total),
            ),
            metric(
                "volume_written_bytes",
                "Bytes written",
                by(|counters| counters.written_bytes_total),
            ),
            metric(
                "volume_errors",
                "Requests that ended with an error",
                by(|counters| counters.errors_total),
            ),
            metric(
                "volume_throttled_requests",
                "Requests that the volume's limits made wait",
                of(&|volume| volume.throttled_requests_total),
            ),
            metric(
                "volume_throttled_microseconds",
                "How long they waited in all",
                of(&|volume| volume.throttled_time_us_total),
            ),
        ]
    }

    fn queue_metrics(&self) -> Vec<Metric> {
        let exports: Vec<(String, u64)> = {
            let state = self.state();
            state
                .exports
                .values()
                .map(|entry| (entry.create.name.clone(), entry.id))
                .collect()
        };
        let mut requests = Vec::new();
        let mut calls = Vec::new();
        let mut kicks = Vec::new();
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        for (name, id) in exports {
            for (_, key, counters) in self.engine.rings(id) {
                let labels: Labels = vec![
                    ("export", name.clone()),
                    ("front_end", key.front_end.to_string()),
                    ("queue", key.index.to_string()),
                ];
                requests.push((labels.clone(), counters.requests()));
                calls.push((labels.clone(), counters.calls));
                kicks.push((labels.clone(), counters.kicks));
                reads.push((labels.clone(), histogram(&counters.read_latency)));
                writes.push((labels, histogram(&counters.write_latency)));
            }
        }
        vec![
            metric(
                "queue_requests",
                "Requests completed on the queue",
                Samples::Counters(requests),
            ),
            metric(
                "queue_calls",
                "Times the guest was called",
                Samples::Counters(calls),
            ),
            metric(
                "queue_kicks",
                "Times the guest woke us",
                Samples::Counters(kicks),
            ),
            metric(
                "queue_read_latency_seconds",
                "From the pop of a read to its answer",
                Samples::Histograms(reads),
            ),
            metric(
                "queue_write_latency_seconds",
                "From the pop of a write to its answer",
                Samples::Histograms(writes),
            ),
        ]
    }
}

fn metric(name: &'static str, help: &'static str, samples: Samples) -> Metric {
    Metric {
        name,
        help,
        samples,
    }
}

fn histogram(latency: &Latency) -> Histogram {
    histogram_of(&latency.buckets, latency.sum_ns)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "seconds for people; 53 bits are 104 days in ns"
)]
fn histogram_of(counts: &[u64], sum_ns: u64) -> Histogram {
    let bound = |bucket: usize| {
        block::Histogram::end_of_bucket(bucket).map_or(f64::MAX, |end| end as f64 / NS_PER_S)
    };
    Histogram {
        sum: sum_ns as f64 / NS_PER_S,
        buckets: counts
            .iter()
            .enumerate()
            .map(|(bucket, &count)| (bound(bucket), count))
            .collect(),
    }
}
