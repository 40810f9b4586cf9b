//! What is told of measurements: the JSON, and what the table is made of.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use models::Model;
use serde::{Deserialize, Serialize};

use super::bursts::BurstTimes;
use super::files::FileSystem;
use super::load::Measured;
use super::pairs::Against;
use super::rate::{AtRate, Rate};
use super::stalls::Stalls;
use super::theory::Theory;
use super::{Layer, Point};
use crate::expect::{Unit, float};

/// From so much error on an efficiency says nothing.
const SURE_PERCENT: f64 = 50.0;

/// Said of every report.
pub(super) const LATENCY_STEPS: &str = "latencies are counted in steps of 3 %";

/// Said of drives that are memory, where nothing was written beforehand.
pub(super) const FRESH_MEMORY: &str = "memory of memory and paced drives is asked of the kernel at its first use, while the request \
     waits, which is slower, many times so in a short run: --precondition 1 (of drives with \
     --write), or content=none of paced drives, avoids that";

/// Everything that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) layer: Layer,
    /// When it was begun: seconds since 1970 UTC.
    pub(crate) begun_s: u64,
    pub(crate) host: Host,
    /// Of the devices that were measured; none where the layer has no sockets.
    pub(crate) sockets: Vec<PathBuf>,
    /// Names of the drives that were measured by themselves; none of other layers.
    pub(crate) drives: Vec<String>,
    /// Where the file was that was measured; none of other layers.
    pub(crate) file_system: Option<FileSystem>,
    pub(crate) against: Option<PathBuf>,
    /// The CPU that the client was pinned to; none where it was not.
    pub(crate) client_cpu: Option<usize>,
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
    /// Why not all points were measured; none when they were.
    pub(crate) ended_early: Option<String>,
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) processor: Option<String>,
    pub(crate) cpus: usize,
    pub(crate) kernel: Option<String>,
}

impl Host {
    fn here() -> Host {
        let tree = crate::doctor::Tree::new("/".into());
        let (processor, kernel) = tree.names_of_host();
        Host {
            processor,
            // Not those of this thread: it may be pinned.
            cpus: tree.cpus_of_host(),
            kernel,
        }
    }
}

impl Report {
    pub(super) fn new(layer: Layer, time: Duration) -> Report {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Report {
            layer,
            begun_s: now.map_or(0, |since| since.as_secs()),
            host: Host::here(),
            sockets: Vec::new(),
            drives: Vec::new(),
            file_system: None,
            against: None,
            client_cpu: None,
            size_bytes: 0,
            range_bytes: 0,
            queues: 0,
            seconds_per_point: time.as_secs_f64(),
            verified: false,
            assumptions: Vec::new(),
            drive_model: None,
            slower: 1,
            points: Vec::new(),
            skipped: Vec::new(),
            errors: 0,
            first_error: None,
            ended_early: None,
        }
    }

    /// What gets all jobs, each: several drives or devices at once, or one.
    pub(super) fn targets(&self) -> usize {
        match self.layer {
            Layer::Drives => self.drives.len().max(1),
            Layer::Array | Layer::Volume | Layer::FileSystem => 1,
            Layer::Export => self.sockets.len().max(1),
        }
    }

    /// Adds all of them to what was taken for granted, each once.
    pub(crate) fn notes(&mut self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|text| self.note(text));
    }

    /// Adds to what was taken for granted, once.
    pub(crate) fn note(&mut self, text: String) {
        if !self.assumptions.contains(&text) {
            self.assumptions.push(text);
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PointReport {
    pub(crate) workload: String,
    /// What its requests are.
    pub(crate) about: String,
    /// `as_found`, `degraded` or `rebuilding`.
    pub(crate) state: String,
    pub(crate) request_bytes: u64,
    pub(crate) jobs: usize,
    pub(crate) depth: usize,
    #[serde(flatten)]
    pub(crate) measured: Figures,
    pub(crate) bursts: Option<Bursts>,
    pub(crate) theoretical: Option<Theory>,
    /// Measured of theoretical, in percent; none without theory, and where by
    /// `window_error_percent` it may be anything.
    pub(crate) efficiency_percent: Option<f64>,
    /// By how much rates may be off because the window of the measurement cuts through the
    /// requests in flight, in percent.
    pub(crate) window_error_percent: f64,
    /// Reactors that were busy, on average over the measurement with its warm-up; none when there
    /// is no engine to ask.
    pub(crate) cores_used: Option<f64>,
    /// None where another program is the client.
    pub(crate) client_stalls: Option<Stalls>,
    /// What the engine spent; none as for `cores_used`.
    pub(crate) cost: Option<Cost>,
    /// What the processes behind the sockets spent, work or not; none when they cannot be seen.
    pub(crate) processors: Option<Processors>,
    /// Of a load at a given rate.
    pub(crate) rate: Option<AtRate>,
    /// What was asked for, of such a load.
    pub(crate) rate_text: Option<String>,
    pub(crate) against: Option<Against>,
    /// Drive by drive, where drives were measured by themselves.
    pub(crate) drives: Option<Vec<DriveRate>>,
    /// All drives with as many requests in flight together as each has in the other figures, where
    /// layers above them are measured, too.
    pub(crate) together: Option<Figures>,
    /// Device by device, where several were measured at once.
    pub(crate) devices: Option<Vec<DeviceRate>>,
}

/// What one of several devices did that were measured at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceRate {
    pub(crate) device: String,
    #[serde(flatten)]
    pub(crate) measured: Figures,
}

impl DeviceRate {
    pub(super) fn new(name: &str, measured: &Measured) -> DeviceRate {
        DeviceRate {
            device: name.to_owned(),
            measured: Figures::of(measured),
        }
    }
}

/// What one of several drives did that were measured at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DriveRate {
    pub(crate) drive: String,
    #[serde(flatten)]
    pub(crate) measured: Figures,
    /// By how much its rate is below that of the one in the middle; negative when above.
    pub(crate) below_median_percent: f64,
    /// Whether that is worth a look.
    pub(crate) outlier: bool,
}

/// What can be said of measured by theoretical.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Efficiency {
    /// In percent, and by how much of it that may be off.
    Known { percent: f64, error_percent: f64 },
    /// It may be anything.
    Unsure,
}

impl Efficiency {
    /// With how far off it may be where that is more than the digits say.
    pub(crate) fn text(self) -> String {
        match self {
            Efficiency::Known {
                percent,
                error_percent,
            } if error_percent < 0.5 => format!("{percent:.1} %"),
            Efficiency::Known {
                percent,
                error_percent,
            } => format!("{percent:.1} ±{:.0} %", error_percent.ceil()),
            Efficiency::Unsure => "unsure".to_owned(),
        }
    }

    /// The same in a sentence.
    pub(crate) fn of_theory(self) -> String {
        match self {
            Efficiency::Known { .. } => format!("{} of theory", self.text()),
            Efficiency::Unsure => "unsure how much of theory".to_owned(),
        }
    }
}

impl PointReport {
    /// Of so many targets that had the load at once, each all of it.
    pub(super) fn new(
        point: &Point,
        measured: &Measured,
        theory: Option<Theory>,
        targets: usize,
    ) -> PointReport {
        let figures = Figures::of(measured);
        let efficiency = theory.as_ref().map(|theory| {
            let value = match theory.unit {
                Unit::Iops => figures.iops,
                Unit::BytesPerSecond | Unit::Seconds => figures.bytes_per_second,
            };
            100.0 * value / theory.value
        });
        let counted = float(measured.requests.max(1));
        let in_flight = super::float_of(point.jobs * point.depth * targets);
        let bursts = measured.bursts.as_ref();
        let bursts = bursts.map(|times| Bursts::of(times, figures.bytes_per_second));
        let window_error_percent = match bursts {
            // They are counted whole.
            Some(_) => 0.0,
            None => 100.0 * in_flight / counted,
        };
        PointReport {
            workload: point.name.to_owned(),
            about: point.about.to_owned(),
            state: super::State::AsFound.word().to_owned(),
            request_bytes: point.work.bytes,
            jobs: point.jobs,
            depth: point.depth,
            measured: figures,
            theoretical: theory,
            efficiency_percent: efficiency.filter(|_| window_error_percent < SURE_PERCENT),
            window_error_percent,
            bursts,
            cores_used: None,
            client_stalls: measured
                .stalled
                .map(|stalled| Stalls::of(&stalled, measured.seconds)),
            cost: None,
            processors: None,
            rate: AtRate::of(measured),
            rate_text: point.rate.map(Rate::text),
            against: None,
            drives: None,
            together: None,
            devices: None,
        }
    }

    /// Measured of theoretical, where there is a theory.
    pub(crate) fn efficiency(&self) -> Option<Efficiency> {
        self.theoretical.as_ref()?;
        // Reports of earlier versions had one in any case.
        let percent = self
            .efficiency_percent
            .filter(|_| self.window_error_percent < SURE_PERCENT);
        Some(
            percent.map_or(Efficiency::Unsure, |percent| Efficiency::Known {
                percent,
                error_percent: self.window_error_percent,
            }),
        )
    }

    /// Whether bytes say more of it than requests.
    pub(crate) fn in_bytes(&self) -> bool {
        match &self.theoretical {
            Some(theory) => theory.unit != Unit::Iops,
            None => self.request_bytes > 16 << 10,
        }
    }

    /// Its name with the rate that was asked for and the state of the array.
    pub(crate) fn title(&self) -> String {
        let mut title = self.workload.clone();
        if let Some(rate) = &self.rate_text {
            title = format!("{title} {rate}");
        }
        if self.state == super::State::AsFound.word() {
            title
        } else {
            format!("{title}, {}", self.state)
        }
    }
}

/// How bursts went; of several targets at once each has its own, and rates are those of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bursts {
    pub(crate) count: u64,
    /// From the begin of a burst until the first job was done with its share.
    pub(crate) first_done_us_p50: f64,
    /// Until the last was.
    pub(crate) last_done_us_p50: f64,
    pub(crate) last_done_us_max: f64,
    /// Bytes of all jobs until the first was done, of all targets together.
    pub(crate) first_done_bytes_per_second: f64,
    pub(crate) last_done_bytes_per_second: f64,
}

impl Bursts {
    /// `all`: the rate of all targets together.
    fn of(times: &BurstTimes, all: f64) -> Bursts {
        let (first, last) = times.rates();
        let targets = all / last.max(1e-9);
        Bursts {
            count: times.count,
            first_done_us_p50: micros(times.first.per_mille(500)),
            last_done_us_p50: micros(times.last.per_mille(500)),
            last_done_us_max: micros(times.last.max_ns()),
            first_done_bytes_per_second: targets * first,
            last_done_bytes_per_second: all,
        }
    }
}

/// What the engine spent on a point, per request and byte of its clients. All figures are of the
/// whole measurement with its warm-up, and hold what else the engine did meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) cores_used: f64,
    pub(crate) core_us_per_request: f64,
    /// Reads and writes, without flushes.
    pub(crate) drive_requests_per_request: f64,
    pub(crate) drive_flushes_per_request: f64,
    pub(crate) drive_read_bytes_per_byte: f64,
    pub(crate) drive_written_bytes_per_byte: f64,
    pub(crate) copied_bytes_per_byte: f64,
    /// Between reactors.
    pub(crate) messages_per_request: f64,
    pub(crate) system_calls_per_request: f64,
    /// Of all reactors.
    pub(crate) reactor_stalls: Stalls,
    pub(crate) drives: Vec<DriveShare>,
}

/// What processes spent, as the kernel counts it (in steps of a tick, mostly 10 ms): all of their
/// threads, also what they polled for in vain.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Processors {
    pub(crate) cores_used: f64,
    pub(crate) core_us_per_request: f64,
}

/// What a drive did meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DriveShare {
    pub(crate) drive: String,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) latency_us_mean: f64,
    /// Whether it is far slower than the others.
    pub(crate) outlier: bool,
}

/// What was measured of one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

impl Figures {
    pub(super) fn of(measured: &Measured) -> Figures {
        let latency = &measured.latency;
        let seconds = measured.seconds.max(1e-9);
        Figures {
            iops: float(measured.requests) / seconds,
            bytes_per_second: float(measured.bytes) / seconds,
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

fn micros(ns: u64) -> f64 {
    float(ns.min(1 << 52)) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Order;
    use super::super::workloads::work;
    use super::*;

    #[test]
    fn an_efficiency_that_may_be_anything_is_told_nowhere() {
        let point = Point {
            name: "random_read",
            about: "",
            work: work(Order::Random, 4096, 100),
            jobs: 1,
            depth: 10,
            rate: None,
        };
        for (requests, targets, text, number) in [
            (2500, 1, Some("96.0 %"), true),
            (109, 1, Some("96.0 ±10 %"), true),
            (109, 5, Some("96.0 ±46 %"), true),
            (109, 6, Some("unsure"), false),
            (2, 1, Some("unsure"), false),
        ] {
            let mut measured = Measured::nothing();
            (measured.requests, measured.seconds) = (requests, 1.0);
            let theory = Theory {
                value: float(requests) / 0.96,
                unit: Unit::Iops,
                formula: String::new(),
                bound: String::new(),
            };
            let mut report = PointReport::new(&point, &measured, Some(theory), targets);
            assert_eq!(report.efficiency_percent.is_some(), number, "{requests}");
            let told = || report.efficiency().map(Efficiency::text);
            assert_eq!(told().as_deref(), text);
            // As earlier versions said it.
            report.efficiency_percent = Some(96.0);
            assert_eq!(report.efficiency().map(Efficiency::text).as_deref(), text);
            report.theoretical = None;
            assert_eq!(report.efficiency(), None);
        }
    }
}
