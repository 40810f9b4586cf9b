//! The layers below the engine: drives, all of them under load at once, each with a ring of its
//! own; the array of them, and a volume on that (`local.rs`); and a file in the place of a drive
//! (`files.rs`). What a drive does alone says little of what it does beside the others: they share
//! links, controllers and the power that cools them.

use std::io;
use std::sync::Arc;

use control::request::{DriveSpec, WriteHole};
use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, PortOptions};
use models::Model;
use units::{Size, bytes_u64};

use super::files::{self, OwnFile};
use super::lane::DriveLane;
use super::load::{self, Limit, Measured, Run};
use super::local::{self, ArrayLane, Shape};
use super::pattern::{Order, With};
use super::report::{self, DriveRate, Figures};
use super::theory::{Basis, Theory};
use super::workloads::{MIB, work};
use super::{Layer, Onlooker, Point, PointReport, Report, Wishes};
use super::{fio, float_of, invalid, median};
use crate::expect::{self, Asked, Limits, Unit, float};

/// A drive that answers so much less than the one in the middle is told apart.
const OUTLIER_PERCENT: f64 = 5.0;
/// Requests of the pass that writes everything.
const PASS_DEPTH: usize = 8;

/// The drives, and how they are to be loaded.
pub(crate) struct Raw {
    /// Name and drive, all open; for reading only where nothing is to be written.
    pub(crate) drives: Vec<(String, Arc<Drive>)>,
    /// By drive; none of a file system.
    pub(crate) kinds: Vec<Kind>,
    /// What they are, and how many times slower.
    pub(crate) model: Option<(Model, u32)>,
    pub(crate) by: Loader,
    /// The array that they are made, and measured as, too.
    pub(crate) array: Option<Asked>,
    /// The size of a volume on that array, which is measured, too.
    pub(crate) volume: Option<Size>,
    /// The file that is measured in place of drives; it is the only drive then.
    pub(crate) file: Option<OwnFile>,
}

/// What a drive does with what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is memory of this process, which there is only once it was used.
    Memory,
    /// A file or a block device keeps it.
    Kept,
    /// It forgets it.
    Nothing,
}

impl Kind {
    pub(crate) fn of(spec: &DriveSpec) -> Kind {
        match spec {
            DriveSpec::Memory { .. } | DriveSpec::Paced { forgets: false, .. } => Kind::Memory,
            DriveSpec::File { .. } | DriveSpec::Block { .. } => Kind::Kept,
            DriveSpec::Paced { forgets: true, .. } | DriveSpec::Null { .. } => Kind::Nothing,
        }
    }
}

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// This program, as the engine reaches its drives.
    Own,
    /// fio, which has to be installed.
    Fio,
}

/// Measures all drives at once, then the array of them, and then a volume on it. What ends a run
/// early is in its report, the last one then.
///
/// # Errors
/// When nothing can be measured from the start.
pub(crate) fn run(wishes: &Wishes, raw: &Raw, onlooker: &mut dyn Onlooker) -> Answer<Vec<Report>> {
    let sizes = raw.drives.iter().map(|(_, drive)| drive.info().size_bytes);
    let size = sizes.min().ok_or_else(|| invalid("there is no drive"))?;
    let above = shapes(raw, size).map_err(|wrong| invalid(&wrong))?;
    // What the volume adds is to be seen, and not what a longer range does.
    let longest = above.iter().map(|(_, shape)| shape.size_bytes()).min();
    if longest.is_some_and(|longest| longest < MIB) {
        return Err(invalid("the array, or --volume, is shorter than 1 MiB"));
    }
    let mut reports = vec![layer(wishes, raw, size, onlooker)?];
    for (asked, shape) in above {
        if reports.iter().any(|report| report.ended_early.is_some()) {
            break;
        }
        onlooker.say(match &shape.volume {
            None => "the array of these drives",
            Some(_) => "a volume on that array",
        });
        let longest = longest.unwrap_or(size);
        let range = wishes.range.unwrap_or(longest).min(longest);
        let mut report = layer_above(wishes, raw, (asked, shape, range), onlooker)?;
        report.notes(wishes.too_long_for(longest));
        reports.push(report);
    }
    Ok(reports)
}

/// The array of the drives, and that with a volume, as far as they are asked for.
fn shapes(raw: &Raw, drive_bytes: u64) -> Result<Vec<(Asked, Shape)>, String> {
    let Some(asked) = raw.array else {
        return Ok(Vec::new());
    };
    let array = local::shape(&asked, drive_bytes)?;
    let volume = raw.volume.map(|Size(bytes)| array.with_volume(bytes));
    let shapes = std::iter::once(array).chain(volume.transpose()?);
    Ok(shapes.map(|shape| (asked, shape)).collect())
}

/// The drives.
fn layer(wishes: &Wishes, raw: &Raw, size: u64, onlooker: &mut dyn Onlooker) -> Answer<Report> {
    let range = wishes.range.unwrap_or(size).min(size) / MIB * MIB;
    if range == 0 {
        return Err(invalid("the range to measure is shorter than 1 MiB"));
    }
    if raw.by == Loader::Fio {
        fio::check(raw)?;
    }
    let mut report = Report::new(Layer::Drives, wishes.time);
    report.size_bytes = size;
    report.range_bytes = range;
    report.notes(wishes.too_long_for(size));
    if let Some(file) = &raw.file {
        report.layer = Layer::FileSystem;
        report.size_bytes = file.system.size_bytes;
        report.file_system = Some(file.system.clone());
        files::assume(&mut report, raw, file);
    } else {
        report.drives = raw.drives.iter().map(|(name, _)| name.clone()).collect();
        assume(&mut report, raw, wishes);
    }
    if let Some((model, slower)) = &raw.model {
        report.drive_model = Some(model.clone());
        report.slower = *slower;
    }
    let bench = Bench {
        wishes,
        raw,
        report,
        above: None,
        basis: None,
    };
    Ok(bench.finish(onlooker))
}

/// The array of the drives, or a volume on it.
fn layer_above(
    wishes: &Wishes,
    raw: &Raw,
    (asked, shape, range): (Asked, Shape, u64),
    onlooker: &mut dyn Onlooker,
) -> Answer<Report> {
    let volume = shape.volume.as_ref();
    let layer = volume.map_or(Layer::Array, |_| Layer::Volume);
    let mut report = Report::new(layer, wishes.time);
    report.size_bytes = shape.size_bytes();
    report.range_bytes = range.min(report.size_bytes) / MIB * MIB;
    if report.range_bytes == 0 {
        return Err(invalid("the range to measure is shorter than 1 MiB"));
    }
    report.drives = raw.drives.iter().map(|(name, _)| name.clone()).collect();
    report.note(format!(
        "level {} of {} members, chunks of {} KiB: one reactor's share of an array on the thread \
         that makes the load, without rings and sockets; its regions are dirty already",
        asked.level.name(),
        asked.drives,
        asked.chunk_bytes >> 10
    ));
    if shape.volume.is_some() {
        report.note(
            "the volume lies as the first of a new array does, in one piece; it has no limits, but \
             they are asked"
                .to_owned(),
        );
    }
    report.note(report::LATENCY_STEPS.to_owned());
    let mut basis = None;
    if let Some((model, slower)) = &raw.model {
        report.drive_model = Some(model.clone());
        report.slower = *slower;
        let expected = expect::expect(&asked, model, &Limits::default());
        basis = Some(Basis {
            expected: expected.map_err(|wrong| invalid(&wrong))?,
            slower: *slower,
            write_hole: WriteHole::Auto,
            notes: Vec::new(),
        });
    }
    let bench = Bench {
        wishes,
        raw,
        report,
        above: Some(shape),
        basis,
    };
    Ok(bench.finish(onlooker))
}

fn assume(report: &mut Report, raw: &Raw, wishes: &Wishes) {
    report.note(match raw.by {
        Loader::Own => {
            "all drives are loaded at once by one thread of this process, each through a ring of \
             its own, as reactors do; with several drives it never sleeps"
                .to_owned()
        }
        Loader::Fio => "all drives are loaded at once by fio, one thread for each job of each \
                        drive; its latencies are from submission to answer (clat)"
            .to_owned(),
    });
    report.note(report::LATENCY_STEPS.to_owned());
    report.note("jobs and depth are of each drive, figures of all together".to_owned());
    report.note(format!(
        "a drive is told apart when it answers {OUTLIER_PERCENT} % less than the one in the middle, \
         and more than the requests in flight may make of it: an array is as fast as its slowest \
         member"
    ));
    if wishes.precondition == 0 && raw.kinds.contains(&Kind::Kept) {
        report.note(
            "nothing was written beforehand: what was never written may be answered faster"
                .to_owned(),
        );
    }
    if wishes.precondition == 0 && raw.kinds.contains(&Kind::Memory) {
        report.note(report::FRESH_MEMORY.to_owned());
    }
    if raw.model.is_none() {
        report.note("no theory: give --drive-model, or use paced drives".to_owned());
    }
    let buffered = raw
        .drives
        .iter()
        .filter(|(_, drive)| !drive.info().direct_io);
    let buffered: Vec<&str> = buffered
        .filter(|(_, drive)| drive.info().buffered_reason.is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    if !buffered.is_empty() {
        report.note(format!(
            "{}: the page cache answers, not a drive",
            buffered.join(", ")
        ));
    }
}

struct Bench<'a> {
    wishes: &'a Wishes,
    raw: &'a Raw,
    report: Report,
    /// The array, or a volume on it; none: the drives by themselves.
    above: Option<Shape>,
    /// Of an array.
    basis: Option<Basis>,
}

/// What could not be written is told; of a file it ends the run, since what is not there is
/// answered by the file system alone.
fn count_errors(report: &mut Report, written: &[Measured]) -> Answer<()> {
    for measured in written {
        report.errors += measured.errors;
        let first = report.first_error.take();
        report.first_error = first.or_else(|| measured.first_error.clone());
    }
    if report.layer != Layer::FileSystem || report.errors == 0 {
        return Ok(());
    }
    let why = report.first_error.as_deref().unwrap_or("no reason");
    let message = format!("the file could not be written in full: {why}");
    Err(invalid(&message))
}

impl Bench<'_> {
    fn finish(mut self, onlooker: &mut dyn Onlooker) -> Report {
        if let Err(error) = self.run(onlooker) {
            // What was measured until then is kept.
            self.report.ended_early = Some(error.to_string());
        }
        self.report
    }

    fn run(&mut self, onlooker: &mut dyn Onlooker) -> Answer<()> {
        // Holes of a file would be answered, and filled, by the file system alone.
        let least = usize::from(self.raw.file.is_some());
        for pass in 0..self.wishes.precondition.max(least) {
            onlooker.goes_on()?;
            onlooker.say(&format!("writing all of the range, pass {}", pass + 1));
            let range = self.report.range_bytes;
            let run = Run {
                work: work(Order::Sequential, MIB, 0),
                jobs: 1,
                depth: PASS_DEPTH,
                range,
                limit: Limit::Requests(range / MIB),
                rate: None,
            };
            let written = self.own(&run)?;
            count_errors(&mut self.report, &written)?;
        }
        let stripe = self.above.as_ref();
        let stripe = stripe.map_or(0, |shape| shape.geometry.stripe_bytes());
        for point in self.wishes.points(stripe) {
            let text = point.text();
            if let Some(why) = self.obstacle(&point) {
                self.report.skipped.push(format!("{text}: {why}"));
                continue;
            }
            onlooker.goes_on()?;
            onlooker.say(&text);
            self.point(&point)?;
        }
        Ok(())
    }

    fn obstacle(&self, point: &Point) -> Option<String> {
        let slots = point.jobs * point.depth;
        if slots > 1024 {
            return Some(format!(
                "{slots} requests in flight of a drive are too many"
            ));
        }
        if point.work.bytes.saturating_mul(2 * bytes_u64(point.jobs)) > self.report.range_bytes {
            return Some("the range is too short for so many jobs".to_owned());
        }
        match (point.work.with, self.raw.by) {
            (With::Burst(_), Loader::Fio) if self.above.is_none() => {
                Some(fio::NO_BURSTS.to_owned())
            }
            (With::Burst(bytes), _) if bytes > self.report.range_bytes => {
                Some("the range is shorter than a burst".to_owned())
            }
            _ => None,
        }
    }

    fn point(&mut self, point: &Point) -> Answer<()> {
        let run = Run {
            work: point.work,
            jobs: point.jobs,
            depth: point.depth,
            range: self.report.range_bytes,
            limit: Limit::Time(self.wishes.time),
            rate: None,
        };
        let each = match (self.raw.by, &self.above) {
            (Loader::Fio, None) => fio::run(self.raw, &run, self.wishes.time)?,
            (Loader::Own | Loader::Fio, _) => self.own(&run)?,
        };
        let all = Measured::of_all(&each);
        self.report.errors += all.errors;
        if self.report.first_error.is_none() {
            self.report.first_error.clone_from(&all.first_error);
        }
        let (theory, drives) = match &self.above {
            None if self.raw.file.is_some() => (None, None),
            None => (
                self.theory(point),
                Some(rates(&self.raw.drives, &each, point.jobs * point.depth)),
            ),
            Some(_) => {
                let basis = self.basis.as_ref();
                (basis.and_then(|basis| basis.of_point(point, 1)), None)
            }
        };
        let together = self.together(&run)?;
        let report = PointReport::new(point, &all, theory, each.len());
        self.report.points.push(PointReport {
            drives,
            together: together.as_ref().map(Figures::of),
            ..report
        });
        Ok(())
    }

    /// All drives with as many requests in flight together as each of them has in a point: what the
    /// layers above, which have no more, can be divided by. None where there are no such layers,
    /// or the load is no sum of those of drives.
    fn together(&self, run: &Run) -> Answer<Option<Measured>> {
        let drives = &self.raw.drives;
        let is_burst = matches!(run.work.with, With::Burst(_));
        let is_below = self.above.is_none() && self.raw.array.is_some();
        if !is_below || drives.len() < 2 || self.raw.by != Loader::Own || is_burst {
            return Ok(None);
        }
        let all = run.jobs * run.depth;
        let share = |number: usize| Run {
            jobs: 1,
            depth: all / drives.len() + usize::from(number < all % drives.len()),
            ..*run
        };
        let shares: Vec<Run> = (0..drives.len()).map(share).collect();
        let mut lanes = Vec::new();
        // A few requests reach the first drives only.
        for ((name, drive), run) in drives.iter().zip(&shares).filter(|(_, run)| run.depth > 0) {
            let lane = DriveLane::new(drive, run, PortOptions::default().joined_bytes_max);
            let lane = lane.map_err(|error| self.of_drive(name, &error))?;
            lanes.push((lane, None, run));
        }
        let each = load::measure_apart(lanes, run);
        let each = each.map_err(|(number, error)| self.of_drive(&drives[number].0, &error))?;
        let each: Vec<Measured> = each.into_iter().map(|(_, measured)| measured).collect();
        Ok(Some(Measured::of_all(&each)))
    }

    /// Loads all drives ourselves; what came of each.
    fn own(&self, run: &Run) -> Answer<Vec<Measured>> {
        if let Some(shape) = &self.above {
            let lane = ArrayLane::new(&self.raw.drives, shape, run);
            let lane = lane.map_err(|error| of_array(&error))?;
            let measured = load::measure_lanes(vec![(lane, None)], run);
            let measured = measured.map_err(|(_, error)| of_array(&error))?;
            return Ok(measured.into_iter().map(|(_, measured)| measured).collect());
        }
        let mut lanes = Vec::new();
        for (name, drive) in &self.raw.drives {
            // Of files each request is to be the kernel's, as those of other programs are.
            let own = PortOptions::default().joined_bytes_max;
            let joined = self.raw.file.as_ref().map_or(own, |_| 0);
            let lane = DriveLane::new(drive, run, joined);
            lanes.push((lane.map_err(|error| self.of_drive(name, &error))?, None));
        }
        let measured = load::measure_lanes(lanes, run);
        let measured = measured
            .map_err(|(number, error)| self.of_drive(&self.raw.drives[number].0, &error))?;
        Ok(measured.into_iter().map(|(_, measured)| measured).collect())
    }

    fn of_drive(&self, name: &str, error: &io::Error) -> EngineError {
        let object = match &self.raw.file {
            None => format!("drive {name}"),
            Some(_) => name.to_owned(),
        };
        EngineError::new(ErrorKind::Internal, object, error.to_string())
    }

    /// What so many drives of the model can do.
    fn theory(&self, point: &Point) -> Option<Theory> {
        let (model, slower) = self.raw.model.as_ref()?;
        let random = point.work.order == Order::Random && point.work.bytes == 4096;
        let (figure, letter, latency) = match (random, point.work.read_percent) {
            _ if point.work.with != With::Nothing => return None,
            (true, 100) => (&model.read_iops, "N·R", &model.read_latency_us),
            (true, 0) => (&model.write_iops, "N·W", &model.write_latency_us),
            (false, 100) if point.work.bytes >= 64 << 10 => {
                (&model.read_bytes_per_second, "N·SR", &model.read_latency_us)
            }
            (false, 0) if point.work.bytes >= 64 << 10 => (
                &model.write_bytes_per_second,
                "N·SW",
                &model.write_latency_us,
            ),
            _ => return None,
        };
        let (drives, slower) = (float_of(self.raw.drives.len()), f64::from(*slower));
        let most = drives * float(figure.value) / slower;
        let bytes = float(point.work.bytes);
        let alone = if random { 1.0 } else { bytes };
        // A long request takes its own bytes' time, too.
        let moved = if random {
            0.0
        } else {
            bytes / float(figure.value)
        };
        let one = slower * (float(latency.value) / 1e6).max(moved);
        let in_flight = drives * float_of(point.jobs * point.depth) * alone / one;
        let (value, formula, bound) = if in_flight < most {
            (
                in_flight,
                "requests in flight/time of one on idle drives",
                "the requests in flight",
            )
        } else {
            (most, letter, "the drives")
        };
        Some(Theory {
            value,
            unit: if random {
                Unit::Iops
            } else {
                Unit::BytesPerSecond
            },
            formula: formula.to_owned(),
            bound: bound.to_owned(),
        })
    }
}

fn of_array(error: &io::Error) -> EngineError {
    EngineError::new(ErrorKind::Internal, "array", error.to_string())
}

/// Drive by drive, and who is slower than the one in the middle.
fn rates(drives: &[(String, Arc<Drive>)], each: &[Measured], in_flight: usize) -> Vec<DriveRate> {
    let figures: Vec<Figures> = each.iter().map(Figures::of).collect();
    let mut sorted: Vec<f64> = figures.iter().map(|figures| figures.iops).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = median(&sorted);
    let mut counts: Vec<f64> = each.iter().map(|found| float(found.requests)).collect();
    counts.sort_by(f64::total_cmp);
    // What the window cuts off of each drive is no difference between them.
    let cut = 100.0 * float_of(in_flight) / median(&counts).max(1.0);
    let rate = |((name, _), measured): (&(String, Arc<Drive>), Figures)| {
        // Where nobody answered, nobody is slower.
        let below = if middle > 0.0 {
            100.0 * (1.0 - measured.iops / middle)
        } else {
            0.0
        };
        DriveRate {
            drive: name.clone(),
            below_median_percent: below,
            outlier: below > OUTLIER_PERCENT + cut,
            measured,
        }
    };
    drives.iter().zip(figures).map(rate).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_cannot_be_written_is_counted_and_ends_what_measures_a_file() {
        let went_well = Measured::nothing();
        let mut failed = Measured::nothing();
        (failed.errors, failed.first_error) = (2, Some("no space".to_owned()));
        let mut later = Measured::nothing();
        (later.errors, later.first_error) = (1, Some("gone".to_owned()));
        for (layer, ends) in [(Layer::Drives, false), (Layer::FileSystem, true)] {
            let mut report = Report::new(layer, Duration::from_secs(1));
            let written = [Measured::nothing()];
            assert!(count_errors(&mut report, &written).is_ok());
            let written = [went_well.clone(), failed.clone(), later.clone()];
            let ended = count_errors(&mut report, &written);
            assert_eq!(ended.is_err(), ends, "{layer:?}");
            assert_eq!(report.errors, 3);
            assert_eq!(report.first_error.as_deref(), Some("no space"));
        }
    }
}
