//! `garboard bench`: what each layer answers, beside what its drives could do and what a rival
//! does.
//!
//! Here is what the layers have in common. `export.rs` measures exports: the client is a
//! vhost-user front-end in this process (`device.rs`, `load.rs`). `raw.rs` measures drives by
//! themselves, with the same load (`lane.rs`) or with fio's (`fio.rs`), and an array of them with a
//! volume on it (`local.rs`). `files.rs` measures a file system, in a file, as one drive.
//! `ladder.rs` puts layers beside each other.

mod account;
mod bursts;
pub(crate) mod details;
mod device;
mod export;
pub(crate) mod files;
mod fio;
mod histogram;
pub(crate) mod html;
mod ladder;
mod lane;
mod load;
mod local;
mod pairs;
mod pattern;
mod peer;
mod rate;
pub(crate) mod raw;
mod report;
mod stalls;
mod theory;
mod verify;
mod workloads;

use std::path::PathBuf;
use std::time::Duration;

use control::view::{ArrayView, DriveView};
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use units::bytes_u64;

use crate::output;
use pattern::{Order, Work};

pub(crate) use account::Counted;
pub(crate) use export::run;
pub(crate) use ladder::{Ladder, Layer, ladders};
pub(crate) use peer::ClientCore;
pub(crate) use rate::Rate;
pub(crate) use report::{Efficiency, PointReport, Report};
pub(crate) use workloads::{WORKLOADS, Workload};

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// Devices that are loaded at once, each with the whole load; at least one.
    pub(crate) sockets: Vec<PathBuf>,
    pub(crate) against: Option<PathBuf>,
    pub(crate) pairs: usize,
    pub(crate) workloads: Vec<Workload>,
    /// Instead of the workloads' own; empty: those.
    pub(crate) jobs: Vec<usize>,
    pub(crate) depths: Vec<usize>,
    /// Bytes of a request, of workloads that go on one after the other.
    pub(crate) lengths: Vec<u64>,
    /// How much is asked per second; empty: as much as is answered.
    pub(crate) rates: Vec<Rate>,
    pub(crate) client: ClientCore,
    pub(crate) time: Duration,
    /// Bytes from the start of the device; `None`: all.
    pub(crate) range: Option<u64>,
    pub(crate) verify: bool,
    /// How often all of the range is written before anything is measured.
    pub(crate) precondition: usize,
    /// What the array is brought to, one after the other; at least one.
    pub(crate) states: Vec<State>,
}

impl Wishes {
    pub(crate) fn writes(&self) -> bool {
        self.verify || self.precondition > 0 || self.workloads.iter().any(Workload::writes)
    }

    /// What is to be said where the range that is asked for ends behind what there is.
    fn too_long_for(&self, size: u64) -> Option<String> {
        let range = self.range.filter(|range| *range > size)?;
        Some(format!(
            "--range {} is longer than what there is: {} were used",
            output::size(range),
            output::size(size)
        ))
    }

    /// All measurements of one state; `stripe` is what the device likes best.
    fn points(&self, stripe: u64) -> Vec<Point> {
        let mut points = Vec::new();
        for workload in &self.workloads {
            let own = workload.bytes(stripe);
            let one_after_the_other = workload.work.order != Order::Random;
            let lengths = if one_after_the_other && !self.lengths.is_empty() {
                self.lengths.clone()
            } else {
                vec![own]
            };
            let or = |given: &[usize], own: &[usize]| match given {
                [] => own.to_vec(),
                given => given.to_vec(),
            };
            for bytes in lengths {
                for jobs in or(&self.jobs, workload.jobs) {
                    for depth in or(&self.depths, workload.depths) {
                        let point = |rate| Point {
                            name: workload.name,
                            about: workload.about,
                            work: Work {
                                bytes,
                                ..workload.work
                            },
                            jobs,
                            depth,
                            rate,
                        };
                        if self.rates.is_empty() {
                            points.push(point(None));
                        }
                        points.extend(self.rates.iter().map(|rate| point(Some(*rate))));
                    }
                }
            }
        }
        points
    }
}

/// What an array is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// As it is.
    AsFound,
    /// Without one of its members.
    Degraded,
    /// While that member is filled again.
    Rebuilding,
}

impl State {
    pub(crate) const ALL: [State; 3] = [State::AsFound, State::Degraded, State::Rebuilding];

    /// As on the command line and in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::AsFound => "as_found",
            State::Degraded => "degraded",
            State::Rebuilding => "rebuilding",
        }
    }

    /// Behind a workload's name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            State::AsFound => "",
            State::Degraded => ", degraded",
            State::Rebuilding => ", rebuilding",
        }
    }

    fn about(self) -> &'static str {
        match self {
            State::AsFound => "as it was found",
            State::Degraded => "failing a member",
            State::Rebuilding => "filling the member again",
        }
    }
}

/// What is known of what lies behind the sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    /// Each once.
    pub(crate) arrays: Vec<ArrayView>,
    /// By socket; none when no engine is known.
    pub(crate) exports: Vec<Served>,
    pub(crate) drives: Vec<DriveView>,
    pub(crate) model: Option<Model>,
}

impl Behind {
    /// Whether a member of the arrays is memory that there is only once it was used.
    fn is_on_memory(&self) -> bool {
        let names = self.arrays.iter().map(|array| &array.name);
        let names: Vec<&String> = names.collect();
        let mut drives = self.drives.iter();
        drives.any(|drive| {
            let array = drive.array.as_ref();
            array.is_some_and(|array| names.contains(&array))
                && raw::Kind::of(&drive.spec) == raw::Kind::Memory
        })
    }
}

/// An export of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) export: String,
    /// The name of the array that its volume lies on.
    pub(crate) array: String,
}

/// One measurement to be made.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    about: &'static str,
    work: Work,
    jobs: usize,
    depth: usize,
    /// None: as much as is answered.
    rate: Option<Rate>,
}

impl Point {
    /// For messages.
    fn text(&self) -> String {
        let rate = self.rate.map(|rate| format!(" {}", rate.text()));
        let rate = rate.unwrap_or_default();
        format!("{}{rate} {}x{}", self.name, self.jobs, self.depth)
    }
}

/// A count in a formula.
fn float_of(number: usize) -> f64 {
    crate::expect::float(bytes_u64(number))
}

fn number_of(number: usize) -> u64 {
    bytes_u64(number)
}

/// Who looks on while it is measured.
pub(crate) trait Onlooker {
    /// An error when the next step is not to be begun.
    fn goes_on(&mut self) -> Answer<()>;
    /// Hears how far it is.
    fn say(&mut self, text: &str);
    /// What the engine has counted until now; none when there is no engine to ask.
    fn counted(&mut self) -> Option<Counted>;
    /// Brings the array into a state; says what lies behind the devices then.
    ///
    /// # Errors
    /// When there is no array to bring anywhere, or the engine refuses.
    fn bring(&mut self, state: State) -> Answer<Behind>;
    /// Whether the array is still in that state.
    fn is_in(&mut self, state: State) -> bool;
}

fn invalid(message: &str) -> EngineError {
    EngineError::new(ErrorKind::Invalid, "bench", message)
}

/// What fio is told.
pub(crate) struct FioJobs {
    /// Name and text.
    pub(crate) files: Vec<(String, String)>,
    /// Workloads that it has no word for, and why.
    pub(crate) left_out: Vec<String>,
}

/// fio's job files of all points. Of drives, or for a guest that has the volume, which has stripes
/// of so many bytes (0: not known).
///
/// # Errors
/// When a drive is nothing that fio could open, or the range is not known.
pub(crate) fn fio_files(wishes: &Wishes, raw: Option<&raw::Raw>, stripe: u64) -> Answer<FioJobs> {
    let targets = match raw {
        Some(raw) => fio::targets(raw)?,
        None => fio::guest(),
    };
    let drives = raw.into_iter().flat_map(|raw| &raw.drives);
    let smallest = drives.map(|(_, drive)| drive.info().size_bytes).min();
    let range = match (wishes.range, smallest) {
        (Some(range), Some(size)) => range.min(size),
        (Some(range), None) => range,
        (None, Some(size)) => size,
        (None, None) => return Err(invalid("say with --range how much of the volume is used")),
    };
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for point in wishes.points(stripe) {
        let run = load::Run {
            work: point.work,
            jobs: point.jobs,
            depth: point.depth,
            range,
            limit: load::Limit::Time(wishes.time),
            rate: None,
        };
        if let Some(text) = fio::jobs(&targets, &run, wishes.time) {
            let (bytes, jobs, depth) = (point.work.bytes, point.jobs, point.depth);
            files.push((format!("{}-{bytes}-{jobs}x{depth}.fio", point.name), text));
        } else {
            left_out.push(format!("{}: {}", point.text(), fio::NO_BURSTS));
        }
    }
    Ok(FioJobs { files, left_out })
}

/// The middle of a sorted list, which is not empty.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_names_of_their_own() {
        let mut names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[1.0, 2.0, 9.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[1.0, 2.0, 4.0, 9.0]) - 3.0).abs() < 1e-12);
        assert!((median(&[7.0]) - 7.0).abs() < 1e-12);
    }
}
