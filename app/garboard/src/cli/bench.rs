//! `garboard bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control::view::{
    ArrayView, DriveView, ExportState, ExportView, Sharing, StatusView, VolumeView,
};
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use units::Size;

use super::{Yes, expect::amount, export};
use crate::bench::{self, Behind, Onlooker, PointReport, Report, WORKLOADS, Wishes, Workload};
use crate::expect::Unit;
use crate::output::{self, Output};
use crate::session::{Question, Session};

/// Measure what an export answers, beside theory and a rival.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// The export, by name or uuid; no guest may be connected
    #[arg(value_parser = super::key, required_unless_present = "target", conflicts_with = "target")]
    export: Option<String>,
    /// The socket of any vhost-user-blk back-end, instead of an export of the engine
    #[arg(long, value_name = "SOCKET")]
    target: Option<PathBuf>,
    /// The socket of a rival that is already running: the same load on both, pair by pair
    #[arg(long, value_name = "SOCKET")]
    against: Option<PathBuf>,
    /// How many pairs
    #[arg(long, value_name = "N", default_value = "7", requires = "against",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Which: random_read, random_write, random_mixed, sequential_read, sequential_write,
    /// stripe_write, stripe_read, odd_write, write_flush, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = workload,
          default_value = "random_read,random_write,sequential_read,stripe_write")]
    workloads: Vec<Vec<Workload>>,
    /// Jobs, instead of each workload's own
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Vec<u16>,
    /// Requests in flight of each job, instead of each workload's own
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Vec<u16>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    yes: Yes,
}

#[derive(Debug, Args)]
struct How {
    /// How long each measurement counts
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Use only so much of the volume, from its start
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    range: Option<Size>,
    /// Write all of the range first, and compare every block that is read
    #[arg(long)]
    verify: bool,
    /// The members' model, for theory; paced drives say theirs themselves
    #[arg(long, value_name = "NAME|FILE", value_parser = super::expect::model)]
    drive_model: Option<Model>,
}

/// Tells the person at the console how far it is, and asks the engine how busy it was.
struct Watch<'a, 'b, 'c> {
    session: &'a mut Session<'b, 'c>,
    asks: bool,
}

impl Onlooker for Watch<'_, '_, '_> {
    fn say(&mut self, text: &str) {
        self.session.remark(text);
    }

    fn busy_us(&mut self) -> Option<u64> {
        if !self.asks {
            return None;
        }
        // A figure less is no reason to stop.
        let status: StatusView = self.session.get("/v1/status").ok()?;
        let reactors = status.engine.reactors.iter();
        Some(reactors.map(|reactor| reactor.busy_time_us_total).sum())
    }
}

fn workload(text: &str) -> Result<Vec<Workload>, String> {
    if text == "all" {
        return Ok(WORKLOADS.to_vec());
    }
    let found = WORKLOADS.iter().find(|workload| workload.name == text);
    found.map(|found| vec![*found]).ok_or_else(|| {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("there are {} and all", names.join(", "))
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time in seconds from 0.1 to 3600");
    let number: f64 = text.parse().map_err(|_| wrong())?;
    if (0.1..=3600.0).contains(&number) {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err(wrong())
    }
}

impl Bench {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        let (socket, what, mut behind) = match (&self.export, &self.target) {
            (Some(key), _) => of_engine(session, key)?,
            (None, Some(socket)) => (
                socket.clone(),
                format!("the device behind {}", socket.display()),
                Behind::default(),
            ),
            (None, None) => unreachable!("clap wants one of them"),
        };
        behind.model = self.how.drive_model;
        let numbers = |list: &[u16]| list.iter().map(|number| usize::from(*number)).collect();
        let wishes = Wishes {
            socket,
            against: self.against,
            pairs: usize::from(self.pairs),
            workloads: self.workloads.concat(),
            jobs: numbers(&self.jobs),
            depths: numbers(&self.depth),
            time: self.how.seconds,
            range: self.how.range.map(|range| range.0),
            verify: self.how.verify,
        };
        confirm(session, &wishes, what, self.yes)?;
        let asks = self.export.is_some();
        let report = bench::run(&wishes, behind, &mut Watch { session, asks })?;
        match session.output {
            Output::Json => session.json(&report)?,
            Output::Table => session.line(&text(&report))?,
        }
        match report.first_error {
            None => Ok(()),
            Some(first) => {
                let object = format!("device {}", report.socket.display());
                let message = format!("{} errors, the first: {first}", report.errors);
                Err(EngineError::new(ErrorKind::Internal, object, message))
            }
        }
    }
}

/// The socket of an export, what would be overwritten, and what lies behind.
fn of_engine(session: &Session<'_, '_>, key: &str) -> Answer<(PathBuf, String, Behind)> {
    let export: ExportView = session.get(&export::path(key))?;
    if export.state == ExportState::Connected && export.sharing == Sharing::Exclusive {
        let object = format!("export {}", export.name);
        return Err(
            EngineError::new(ErrorKind::Busy, object, "a guest is connected")
                .next("shut the guest down, or measure an export of another volume"),
        );
    }
    let volume: VolumeView = session.get(&format!("/v1/volumes/{}", export.volume))?;
    let array: ArrayView = session.get(&format!("/v1/arrays/{}", volume.array))?;
    let drives: Vec<DriveView> = session.get("/v1/drives")?;
    let what = format!(
        "volume {}, {}",
        volume.name,
        output::size(volume.size_bytes)
    );
    let behind = Behind {
        array: Some(array),
        drives,
        model: None,
    };
    Ok((export.socket, what, behind))
}

/// Asks before anything is overwritten.
fn confirm(session: &mut Session<'_, '_>, wishes: &Wishes, what: String, yes: Yes) -> Answer<()> {
    if !wishes.verify && !wishes.workloads.iter().any(Workload::writes) {
        return Ok(());
    }
    let mut touched = vec![what];
    if let Some(against) = &wishes.against {
        touched.push(format!("the device behind {}", against.display()));
    }
    let question = Question {
        object: "bench".into(),
        what: "this overwrites what is on the volume".into(),
        touched,
    };
    session.confirm(&question, yes.yes)
}

/// The report for people.
fn text(report: &Report) -> String {
    let mut lines = vec![format!(
        "{} layer, {} of {}, {} queues, {} s each{}",
        report.layer,
        output::size(report.range_bytes),
        output::size(report.size_bytes),
        report.queues,
        report.seconds_per_point,
        if report.verified { ", verified" } else { "" },
    )];
    let mut table = output::table(&[
        "WORKLOAD",
        "BYTES",
        "JOBSxDEPTH",
        "MEASURED",
        "THEORY",
        "EFFICIENCY",
        "P50",
        "P99",
        "P99.9",
        "CORES",
        "BOUND BY",
    ]);
    for point in &report.points {
        table.add_row(row(point));
    }
    lines.push(table.to_string());
    for point in &report.points {
        if let Some(against) = &point.against {
            lines.push(format!(
                "{} {}x{}: {:.2} x the rival (median of {} pairs, {:.2} to {:.2}); theirs {}, p50 \
                 {}, p99 {}, p99.9 {}",
                point.workload,
                point.jobs,
                point.depth,
                against.ratio_median,
                against.pairs.len(),
                against.ratio_min,
                against.ratio_max,
                amount(against.theirs.iops, "IOPS"),
                micros(against.theirs.latency_us_p50),
                micros(against.theirs.latency_us_p99),
                micros(against.theirs.latency_us_p999),
            ));
        }
    }
    lines.extend(
        report
            .skipped
            .iter()
            .map(|skipped| format!("skipped: {skipped}")),
    );
    lines.extend(
        report
            .assumptions
            .iter()
            .map(|text| format!("note: {text}")),
    );
    if report.verified && report.errors == 0 {
        let bytes: u64 = report
            .points
            .iter()
            .map(|point| point.measured.verified_bytes)
            .sum();
        lines.push(format!(
            "verified: every block of the range, and {} read under load, held what was written",
            output::size(bytes)
        ));
    }
    lines.join("\n")
}

fn row(point: &PointReport) -> Vec<String> {
    let measured = &point.measured;
    let unit = point.theoretical.as_ref().map(|theory| theory.unit);
    let in_bytes = unit.map_or(point.request_bytes > 64 << 10, |unit| unit != Unit::Iops);
    let figure = if in_bytes {
        amount(measured.bytes_per_second, "B/s")
    } else {
        amount(measured.iops, "IOPS")
    };
    let theory = point.theoretical.as_ref();
    let theory_text = theory.map(|theory| match theory.unit {
        Unit::Iops => amount(theory.value, "IOPS"),
        Unit::BytesPerSecond | Unit::Seconds => amount(theory.value, "B/s"),
    });
    vec![
        point.workload.to_owned(),
        output::size(point.request_bytes),
        format!("{}x{}", point.jobs, point.depth),
        figure,
        output::or_dash(theory_text),
        output::or_dash(
            point
                .efficiency_percent
                .map(|percent| efficiency(point, percent)),
        ),
        micros(measured.latency_us_p50),
        micros(measured.latency_us_p99),
        micros(measured.latency_us_p999),
        output::or_dash(point.cores_used.map(|cores| format!("{cores:.2}"))),
        output::or_dash(theory.map(|theory| format!("{} ({})", theory.bound, theory.formula))),
    ]
}

/// Measured of theoretical, with how far off it may be where that is more than the digits say.
fn efficiency(point: &PointReport, percent: f64) -> String {
    if point.window_error_percent < 0.5 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.1} ±{:.0} %", point.window_error_percent.ceil())
    }
}

/// A latency for people.
fn micros(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.1} ms", value / 1000.0)
    } else {
        format!("{value:.1} us")
    }
}
