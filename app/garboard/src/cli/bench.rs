//! `garboard bench`: what is asked for, and how it is told.

mod drives;
mod files;
mod jobs;
mod table;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use control::view::{ArrayState, ArrayView, ExportState, ExportView, Sharing, VolumeView};
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use serde::Serialize;
use units::Size;

use self::drives::Drives;
use self::files::Files;
use self::watch::Watch;
use super::{Yes, export};
use crate::bench::{
    self, Behind, ClientCore, Ladder, Rate, Report, Served, State, WORKLOADS, Wishes, Workload,
};
use crate::output::{self, Output};
use crate::session::{Question, Session};

/// What comes of `--output json`, at the end of the help.
const JSON_FORMAT: &str = "\
With --output json there is one object: layers, a list of what was measured in each layer, the
lowest first, and ladders, each load that several layers had, with the ratios. A layer has
layer (drives, array, volume, export or file_system), points, skipped, assumptions (the notes of
the table), errors and ended_early; a point has workload, request_bytes, jobs, depth, iops,
bytes_per_second, latency_us_p50 and so on, theoretical, efficiency_percent, cost and against.
What is not known is null. Where there is one layer only, its fields are at the top as well.
docs/measuring.md has all fields.";

/// Measure what exports answer, drives by themselves, an array and a volume on them, or a file
/// system, beside theory, a rival, and each other.
#[derive(Debug, Args)]
#[command(after_long_help = JSON_FORMAT)]
pub(super) struct Bench {
    /// The exports, by name or uuid, all loaded at once; no guest may be connected
    #[arg(value_parser = super::key, conflicts_with_all = ["target", "drive", "members"],
          required_unless_present_any = ["target", "drive", "members", "directory", "with"])]
    exports: Vec<String>,
    /// The socket of any vhost-user-blk back-end, instead of an export of the engine
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["drive", "members"])]
    target: Option<PathBuf>,
    #[command(flatten)]
    drives: Drives,
    #[command(flatten)]
    files: Files,
    /// The socket of a rival that is already running: the same load on it and on one export, pair
    /// by pair
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["drive", "members"])]
    against: Option<PathBuf>,
    /// How many pairs; of fewer than seven the spread says little
    #[arg(long, value_name = "N", default_value = "7", requires = "against",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Which: random_read, random_write, random_mixed, sequential_read, sequential_write,
    /// stripe_write, stripe_read, odd_write, interleaved_write, even_write, burst_write_64m,
    /// burst_write_256m, burst_read_64m, burst_read_256m, write_flush, or all
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
    /// Lengths of the requests of workloads that go on one after the other, also at odd offsets,
    /// instead of their own: 1024KiB,1472KiB
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = length)]
    length: Vec<u64>,
    /// Send requests when they are due instead of as soon as others are answered: so many per
    /// second, or a part of the peak that is found first: 50000, 200k, 80%; at most jobs x depth
    /// are in flight. Latencies count from when a request should have been sent, so that a server
    /// that stalls pays for all that it kept waiting (no coordinated omission)
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = str::parse::<Rate>,
          conflicts_with_all = ["drive", "members", "fio_jobs"])]
    rate: Vec<Rate>,
    /// The CPU that the client's thread is pinned to; free: one that no thread of the servers is
    /// pinned to, if there is one; any: none
    #[arg(long, value_name = "CPU|free|any", default_value = "free",
          value_parser = str::parse::<ClientCore>,
          conflicts_with_all = ["drive", "members"])]
    client_core: ClientCore,
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
    /// Write all of the range first, and compare every block that is read; of exports
    #[arg(long, conflicts_with_all = ["drive", "members"])]
    verify: bool,
    /// Write all of the range so many times before anything is measured
    #[arg(long, value_name = "PASSES", default_value = "0",
          value_parser = clap::value_parser!(u8).range(0..=10))]
    precondition: u8,
    /// Measure everything in each: as_found; degraded (member 0 is failed); rebuilding (it is
    /// filled again); of exports
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = state,
          default_value = "as_found", conflicts_with_all = ["drive", "members"])]
    states: Vec<State>,
    /// The drive that is filled while `rebuilding`; member 0's own where nothing is said
    #[arg(long, value_name = "DRIVE", value_parser = super::key)]
    replacement: Option<String>,
    /// The members' model, for theory; paced drives say theirs themselves
    #[arg(long, value_name = "NAME|FILE", value_parser = super::expect::model)]
    drive_model: Option<Model>,
    /// Write a page with plots, too, that needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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

fn state(text: &str) -> Result<State, String> {
    let found = State::ALL.into_iter().find(|state| state.word() == text);
    found.ok_or_else(|| "there are as_found, degraded and rebuilding".to_owned())
}

fn length(text: &str) -> Result<u64, String> {
    let Size(bytes) = super::size(text)?;
    if bytes.is_multiple_of(4096) && (4096..=16 << 20).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("a request is a multiple of 4KiB, at most 16MiB".to_owned())
    }
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

/// What is measured: the devices, what is on them, what lies behind.
struct Found {
    sockets: Vec<PathBuf>,
    what: Vec<String>,
    behind: Behind,
    /// Names of the arrays.
    arrays: Vec<String>,
    /// What the volumes are limited to.
    limits: Vec<String>,
}

impl Bench {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        if let Some(folder) = &self.drives.fio.fio_jobs {
            return self.write_fio_jobs(session, folder);
        }
        let mut reports = self.files.earlier()?;
        let measured = if let Some(directory) = &self.files.directory {
            self.measure_files(session, directory)?
        } else if self.drives.is_meant() {
            self.measure_drives(session)?
        } else if self.target.is_some() || !self.exports.is_empty() {
            vec![self.measure_exports(session)?]
        } else {
            self.measure_nothing()?
        };
        let verdict = measured
            .iter()
            .try_for_each(verdict)
            .and_then(|()| something(&measured));
        reports.extend(measured);
        reports.sort_by_key(|report| report.layer);
        tell(session, &reports, self.how.html.as_deref())?;
        verdict
    }

    /// Reports are only put beside each other: whatever says how to measure was a mistake.
    fn measure_nothing(&self) -> Answer<Vec<Report>> {
        let words = [
            ("--against", self.against.is_some()),
            ("--rate", !self.rate.is_empty()),
            ("--jobs", !self.jobs.is_empty()),
            ("--depth", !self.depth.is_empty()),
            ("--length", !self.length.is_empty()),
            ("--range", self.how.range.is_some()),
            ("--verify", self.how.verify),
            ("--precondition", self.how.precondition > 0),
        ];
        let said = words
            .into_iter()
            .find_map(|(word, said)| said.then_some(word));
        let Some(word) = said.or_else(|| self.drives.in_vain()) else {
            return Ok(Vec::new());
        };
        let message = format!("{word} has no effect: with --with alone nothing is measured");
        let wrong = EngineError::new(ErrorKind::Invalid, "bench", message);
        Err(wrong.next("name an export, --target, --drive, --members or --directory, too"))
    }

    fn measure_exports(&self, session: &mut Session<'_, '_>) -> Answer<Report> {
        if self.against.is_some() && self.exports.len() > 1 {
            let message = format!(
                "--against compares one export with one rival: {} exports would get as many times \
                 the load of the rival",
                self.exports.len()
            );
            let wrong = EngineError::new(ErrorKind::Invalid, "bench", message);
            return Err(wrong.next("name one export; the others can be compared one by one"));
        }
        let mut found = self.find(session)?;
        found.behind.model = self.how.drive_model.clone();
        let wishes = self.wishes(found.sockets.clone());
        confirm(session, &wishes, found.what, self.yes)?;
        self.begin_page()?;
        let mut watch = Watch {
            arrays: found.arrays,
            exports: found.behind.exports.clone(),
            model: self.how.drive_model.clone(),
            replacement: self.how.replacement.clone(),
            ..Watch::of_nothing(session)?
        };
        let mut report = bench::run(&wishes, found.behind, &mut watch)?;
        for limit in found.limits {
            report.note(limit);
        }
        Ok(report)
    }

    /// Better told now than after all the measuring that the page cannot be written.
    fn begin_page(&self) -> Answer<()> {
        match &self.how.html {
            Some(path) => write_page(path, ""),
            None => Ok(()),
        }
    }

    /// The layer of a file system.
    fn measure_files(
        &self,
        session: &mut Session<'_, '_>,
        directory: &Path,
    ) -> Answer<Vec<Report>> {
        let wishes = self.wishes(Vec::new());
        // Who ends this from now on is heard.
        let mut watch = Watch::of_nothing(session)?;
        let raw = bench::files::make(directory, wishes.range, self.drives.loader())?;
        if let Some(file) = &raw.file {
            watch.session.remark(&file.system.text());
        }
        self.begin_page()?;
        bench::raw::run(&wishes, &raw, &mut watch)
    }

    /// The layers of drives, of an array of them, and of a volume on that.
    fn measure_drives(&self, session: &mut Session<'_, '_>) -> Answer<Vec<Report>> {
        let (raw, touched) = self.drives.open(session, self.how.drive_model.clone())?;
        let mut wishes = self.wishes(Vec::new());
        let mut skipped = Vec::new();
        if !self.drives.writes() {
            wishes.workloads.retain(|workload| {
                if workload.writes() {
                    let why = self.drives.why_no_writes();
                    skipped.push(format!("{}: {why}", workload.name));
                }
                !workload.writes()
            });
            if wishes.precondition > 0 {
                let why = self.drives.why_no_writes();
                let message = format!("--precondition writes: {why}");
                return Err(EngineError::new(ErrorKind::Invalid, "bench", message));
            }
        }
        // Drives that begin with this command and end with it hold nothing that could be lost.
        if !touched.is_empty() {
            confirm(session, &wishes, touched, self.yes)?;
        }
        self.begin_page()?;
        let mut watch = Watch::of_nothing(session)?;
        let mut reports = bench::raw::run(&wishes, &raw, &mut watch)?;
        reports[0].skipped.extend(skipped);
        Ok(reports)
    }

    fn find(&self, session: &Session<'_, '_>) -> Answer<Found> {
        if let Some(socket) = &self.target {
            return Ok(Found {
                sockets: vec![socket.clone()],
                what: vec![format!("the device behind {}", socket.display())],
                behind: Behind::default(),
                arrays: Vec::new(),
                limits: Vec::new(),
            });
        }
        let mut found = Found {
            sockets: Vec::new(),
            what: Vec::new(),
            behind: Behind::default(),
            arrays: Vec::new(),
            limits: Vec::new(),
        };
        for key in &self.exports {
            found.add(session, key)?;
        }
        Ok(found)
    }

    fn wishes(&self, sockets: Vec<PathBuf>) -> Wishes {
        let numbers = |list: &[u16]| list.iter().map(|number| usize::from(*number)).collect();
        Wishes {
            sockets,
            against: self.against.clone(),
            pairs: usize::from(self.pairs),
            workloads: self.workloads.concat(),
            jobs: numbers(&self.jobs),
            depths: numbers(&self.depth),
            lengths: self.length.clone(),
            rates: self.rate.clone(),
            client: self.client_core,
            time: self.how.seconds,
            range: self.how.range.map(|range| range.0),
            verify: self.how.verify,
            precondition: usize::from(self.how.precondition),
            states: self.how.states.clone(),
        }
    }
}

impl Found {
    /// Adds an export of the engine: its socket, what would be overwritten, and what lies behind.
    fn add(&mut self, session: &Session<'_, '_>, key: &str) -> Answer<()> {
        let export: ExportView = session.get(&export::path(key))?;
        let object = format!("export {}", export.name);
        if export.state == ExportState::Connected && export.sharing == Sharing::Exclusive {
            return Err(
                EngineError::new(ErrorKind::Busy, object, "a guest is connected")
                    .next("shut the guest down, or measure an export of another volume"),
            );
        }
        if let ExportState::Held | ExportState::Missing = export.state {
            let cause = export.cause.unwrap_or_else(|| "it is not made".to_owned());
            return Err(
                EngineError::new(ErrorKind::Busy, object, cause).next(format!(
                    "`garboard export show {}` tells how it is",
                    export.name
                )),
            );
        }
        if self.sockets.contains(&export.socket) {
            return Err(EngineError::new(
                ErrorKind::Invalid,
                object,
                "it is named twice",
            ));
        }
        let volume = volume_of(session, &export)?;
        self.what.push(format!(
            "volume {}, {}",
            volume.name,
            output::size(volume.size_bytes)
        ));
        if !volume.limit.is_none() {
            self.limits.push(format!(
                "volume {0} is limited to {1}, and so is what is measured: `garboard volume limit \
                 {0}` takes the limits off",
                volume.name,
                super::volume::limits(&volume.limit)
            ));
        }
        self.sockets.push(export.socket);
        let array: ArrayView = session.get(&format!("/v1/arrays/{}", volume.array))?;
        if !self.arrays.contains(&volume.array) {
            self.arrays.push(volume.array.clone());
            self.limits.extend(unrest(&array));
            self.behind.arrays.push(array);
        }
        self.behind.exports.push(Served {
            export: export.name,
            array: volume.array,
        });
        self.behind.drives = session.get("/v1/drives")?;
        Ok(())
    }
}

/// Not by its name, which a volume of another array may have, too.
fn volume_of(session: &Session<'_, '_>, export: &ExportView) -> Answer<VolumeView> {
    let volumes: Vec<VolumeView> = session.get("/v1/volumes")?;
    let serves = |volume: &VolumeView| volume.exports.contains(&export.name);
    match volumes.into_iter().find(serves) {
        Some(volume) => Ok(volume),
        None => session.get(&format!("/v1/volumes/{}", export.volume)),
    }
}

/// What an array is at besides that is measured, or measured instead of what was meant.
fn unrest(array: &ArrayView) -> Option<String> {
    let state = match array.state {
        ArrayState::Optimal => None,
        ArrayState::Degraded | ArrayState::Holding | ArrayState::Stopped | ArrayState::Failed => {
            Some(format!("is {}", output::word(&array.state)))
        }
    };
    let works = (!array.jobs.is_empty()).then(|| "has a job running".to_owned());
    let parts: Vec<String> = state.into_iter().chain(works).collect();
    let text = parts.join(" and ");
    (!parts.is_empty()).then(|| {
        format!(
            "array {} {text} when this begins: rates, latencies and bytes of drives are not those \
             of an array at rest",
            array.name
        )
    })
}

/// Asks before anything is overwritten, or an array is made degraded.
fn confirm(
    session: &mut Session<'_, '_>,
    wishes: &Wishes,
    touched: Vec<String>,
    yes: Yes,
) -> Answer<()> {
    let changes = wishes.states.iter().any(|state| *state != State::AsFound);
    let what = match (wishes.writes(), changes) {
        (false, false) => return Ok(()),
        (true, false) if wishes.sockets.is_empty() => "this overwrites drives",
        (true, false) => "this overwrites what is on the volume",
        (false, true) => "this fails a member of the array, and fills it again where asked",
        (true, true) => {
            "this overwrites what is on the volume, fails a member of the array, and fills it \
             again where asked"
        }
    };
    let mut touched = touched;
    if let Some(against) = &wishes.against {
        touched.push(format!("the device behind {}", against.display()));
    }
    let question = Question {
        object: "bench".into(),
        what: what.into(),
        touched,
    };
    session.confirm(&question, yes.yes)
}

/// The JSON (docs/measuring.md): the reports of all layers, the lowest first, and what each leaves
/// of the one below.
#[derive(Debug, Serialize)]
struct Layers<'a> {
    /// The fields of the only layer, at the top as well, where those look who know nothing else.
    #[serde(flatten)]
    only: Option<&'a Report>,
    layers: &'a [Report],
    ladders: Vec<Ladder<'a>>,
}

/// Tells everything.
fn tell(session: &mut Session<'_, '_>, reports: &[Report], html: Option<&Path>) -> Answer<()> {
    let width = session.console.width;
    match session.output {
        Output::Json => session.json(&Layers {
            only: match reports {
                [only] => Some(only),
                _ => None,
            },
            layers: reports,
            ladders: bench::ladders(reports),
        })?,
        Output::Table => {
            for report in reports {
                session.line(&table::text(report, width))?;
            }
            let ladders = bench::ladders(reports);
            if !ladders.is_empty() {
                session.line(&table::layer_by_layer(&ladders, width))?;
            }
        }
    }
    if let Some(path) = html {
        write_page(path, &bench::html::page(reports))?;
        session.remark(&format!("the page is {}", path.display()));
    }
    Ok(())
}

/// What went wrong in a layer.
fn verdict(report: &Report) -> Answer<()> {
    let object = || match report.sockets.as_slice() {
        [socket] => format!("device {}", socket.display()),
        [] => match &report.file_system {
            Some(system) => format!("directory {}", system.directory.display()),
            None => format!("drives {}", report.drives.join(", ")),
        },
        _ => "bench".to_owned(),
    };
    let message = match (&report.ended_early, &report.first_error) {
        (Some(why), _) => format!(
            "it ended early, after {} points: {why}",
            report.points.len()
        ),
        (None, Some(first)) => format!("{} errors, the first: {first}", report.errors),
        (None, None) => return Ok(()),
    };
    Err(EngineError::new(ErrorKind::Internal, object(), message))
}

/// Whoever asked for measurements and got none learns it from the exit status, too.
fn something(measured: &[Report]) -> Answer<()> {
    if measured.iter().any(|report| !report.points.is_empty()) {
        return Ok(());
    }
    let mut skipped = measured.iter().flat_map(|report| &report.skipped);
    let Some(first) = skipped.next() else {
        // Reports of earlier runs are all that was asked for.
        return Ok(());
    };
    let message = match skipped.count() {
        0 => format!("nothing was measured: {first}"),
        more => format!("nothing was measured: {first}; and {more} more were skipped"),
    };
    Err(EngineError::new(ErrorKind::Invalid, "bench", message)
        .next("ask for loads that fit, as the reasons say"))
}

fn write_page(path: &Path, page: &str) -> Answer<()> {
    std::fs::write(path, page).map_err(|error| {
        let object = format!("file {}", path.display());
        EngineError::new(ErrorKind::Invalid, object, error.to_string())
    })
}
