//! `garboard bench`: what an export answers, beside what its drives could do and what a rival
//! does.
//!
//! Here are the workloads and how they are measured one after the other. The client is a
//! vhost-user front-end in this process (`device.rs`, `load.rs`).

mod device;
mod histogram;
mod load;
mod report;
mod theory;
mod verify;
mod workloads;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::view::{ArrayView, DriveView};
use control::{Answer, EngineError, ErrorKind};
use models::Model;
use units::{Clock, MonotonicClock, bytes_u64};

use load::{Limit, Measured, Order, Run, Work};
use report::{Against, Figures, Pair};
use theory::Basis;
use verify::Book;
use workloads::{KIB, MIB, work};

pub(crate) use report::{PointReport, Report};
pub(crate) use workloads::{WORKLOADS, Workload};

use crate::expect::Unit;

/// Requests of the pass that writes everything, and of the one that reads it again.
const PASS_BYTES: u64 = MIB;
const PASS_DEPTH: usize = 8;
/// Bytes that may be verified: their versions are kept in memory.
const VERIFY_BYTES_MAX: u64 = 64 << 30;
/// Requests in flight at the most.
const IN_FLIGHT_MAX: usize = 8192;
/// Bytes in flight at the most when they are compared.
const VERIFY_IN_FLIGHT_BYTES: u64 = 256 * MIB;

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) socket: PathBuf,
    pub(crate) against: Option<PathBuf>,
    pub(crate) pairs: usize,
    pub(crate) workloads: Vec<Workload>,
    /// Instead of the workloads' own; empty: those.
    pub(crate) jobs: Vec<usize>,
    pub(crate) depths: Vec<usize>,
    pub(crate) time: Duration,
    /// Bytes from the start of the device; `None`: all.
    pub(crate) range: Option<u64>,
    pub(crate) verify: bool,
}

/// What is known of what lies behind the socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    pub(crate) array: Option<ArrayView>,
    pub(crate) drives: Vec<DriveView>,
    pub(crate) model: Option<Model>,
}

/// One measurement to be made.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    about: &'static str,
    work: Work,
    jobs: usize,
    depth: usize,
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
    /// Hears how far it is.
    fn say(&mut self, text: &str);
    /// Microseconds that the engine's reactors were busy, all together, since it serves; none when
    /// there is no engine to ask.
    fn busy_us(&mut self) -> Option<u64>;
}

/// Measures everything that is wished.
///
/// # Errors
/// When a back-end cannot be used at all. What a device answers wrongly is in the report.
pub(crate) fn run(wishes: &Wishes, behind: Behind, onlooker: &mut dyn Onlooker) -> Answer<Report> {
    let facts = device::look(&wishes.socket).map_err(|error| of_io(&wishes.socket, &error))?;
    let mut size = facts.size_bytes;
    let mut queues = facts.queues;
    if let Some(against) = &wishes.against {
        let theirs = device::look(against).map_err(|error| of_io(against, &error))?;
        size = size.min(theirs.size_bytes);
        queues = queues.min(theirs.queues);
        refuse_read_only(wishes, against, &theirs)?;
    }
    refuse_read_only(wishes, &wishes.socket, &facts)?;
    let range = wishes.range.unwrap_or(size).min(size) / PASS_BYTES * PASS_BYTES;
    if range == 0 {
        return Err(invalid("the range to measure is shorter than 1 MiB"));
    }
    if wishes.verify && range > VERIFY_BYTES_MAX {
        return Err(invalid(
            "--verify keeps a version of each block; give --range of at most 64GiB",
        ));
    }
    let mut bench = Bench::new(wishes, behind, range);
    bench.report.size_bytes = facts.size_bytes;
    bench.report.queues = queues;
    bench.stripe = facts.optimal_bytes;
    bench.can_flush = facts.can_flush();
    bench.run(onlooker)?;
    Ok(bench.report)
}

fn refuse_read_only(wishes: &Wishes, socket: &Path, facts: &device::Facts) -> Answer<()> {
    let writes = wishes.verify || wishes.workloads.iter().any(Workload::writes);
    if facts.is_read_only() && writes {
        let object = format!("device {}", socket.display());
        return Err(
            EngineError::new(ErrorKind::Invalid, object, "it is read-only")
                .next("give --workloads random_read,sequential_read"),
        );
    }
    Ok(())
}

fn invalid(message: &str) -> EngineError {
    EngineError::new(ErrorKind::Invalid, "bench", message)
}

fn of_io(socket: &Path, error: &io::Error) -> EngineError {
    let object = format!("device {}", socket.display());
    EngineError::new(ErrorKind::Internal, object, error.to_string())
        .next("is a vhost-user-blk back-end listening there, with no other front-end?")
}

struct Bench<'a> {
    wishes: &'a Wishes,
    basis: Option<Basis>,
    report: Report,
    stripe: u64,
    can_flush: bool,
    book: Option<Book>,
}

impl<'a> Bench<'a> {
    fn new(wishes: &'a Wishes, behind: Behind, range: u64) -> Bench<'a> {
        let mut assumptions = vec![
            "the client is one thread of this process that polls, and sleeps after 100 us without \
             an answer; it shares the host with what it measures"
                .to_owned(),
            "latencies are counted in steps of 3 %".to_owned(),
        ];
        let basis = behind.array.as_ref().map_or_else(
            || Err("what lies behind the socket is not known".to_owned()),
            |array| Basis::of(array, &behind.drives, behind.model),
        );
        match &basis {
            Ok(basis) => {
                assumptions.extend(basis.notes.iter().cloned());
                assumptions.push(
                    "sequential reads are held against all drives (N·SR); against data drives \
                     alone their efficiency is (k+M)/k as high"
                        .to_owned(),
                );
            }
            Err(why) => assumptions.push(format!("no theory: {why}")),
        }
        assumptions.push(if wishes.verify {
            "all of the range was written first; every read is compared, which costs the client \
             time: take rates from a run without --verify"
                .to_owned()
        } else {
            "nothing was written beforehand: blocks never written may be answered faster, and \
             drives that were not filled may be, too"
                .to_owned()
        });
        if wishes.against.is_some() {
            assumptions.push(
                "the rival is measured by the same client, in turn; nothing is known of the cores \
                 and redundancy it uses"
                    .to_owned(),
            );
        }
        let basis = basis.ok();
        Bench {
            report: Report {
                layer: "export",
                socket: wishes.socket.clone(),
                against: wishes.against.clone(),
                size_bytes: 0,
                range_bytes: range,
                queues: 0,
                seconds_per_point: wishes.time.as_secs_f64(),
                verified: wishes.verify,
                assumptions,
                drive_model: basis
                    .as_ref()
                    .map(|basis| basis.expected.drive_model.clone()),
                slower: basis.as_ref().map_or(1, |basis| basis.slower),
                points: Vec::new(),
                skipped: Vec::new(),
                errors: 0,
                first_error: None,
            },
            basis,
            stripe: 0,
            can_flush: false,
            book: wishes
                .verify
                .then(|| Book::new(range, 0x6761_7262_6f61_7264)),
            wishes,
        }
    }

    fn run(&mut self, onlooker: &mut dyn Onlooker) -> Answer<()> {
        if self.book.is_some() {
            onlooker.say("writing all of the range");
            self.pass(0)?;
        }
        for point in self.points() {
            let text = format!("{} {}x{}", point.name, point.jobs, point.depth);
            if let Some(why) = self.obstacle(&point) {
                self.report.skipped.push(format!("{text}: {why}"));
                continue;
            }
            onlooker.say(&text);
            self.point(&point, onlooker)?;
        }
        if self.book.is_some() {
            onlooker.say("reading all of the range");
            self.pass(100)?;
        }
        Ok(())
    }

    /// Writes or reads every block once, and compares what it reads.
    fn pass(&mut self, read_percent: u8) -> Answer<()> {
        let run = Run {
            work: work(Order::Sequential, PASS_BYTES, read_percent),
            jobs: 1,
            depth: PASS_DEPTH,
            range: self.report.range_bytes,
            limit: Limit::Requests(self.report.range_bytes / PASS_BYTES),
        };
        let measured = load::measure(&self.wishes.socket, &run, self.book.as_mut());
        let measured = measured.map_err(|error| of_io(&self.wishes.socket, &error))?;
        self.note_errors(&measured);
        Ok(())
    }

    fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for workload in &self.wishes.workloads {
            let mut work = workload.work;
            if work.bytes == 0 {
                let stripe = self.stripe.max(4 * KIB);
                work.bytes = stripe * MIB.div_ceil(stripe);
            }
            let or = |given: &'a [usize], own: &'static [usize]| match given {
                [] => own.to_vec(),
                given => given.to_vec(),
            };
            for jobs in or(&self.wishes.jobs, workload.jobs) {
                for depth in or(&self.wishes.depths, workload.depths) {
                    points.push(Point {
                        name: workload.name,
                        about: workload.about,
                        work,
                        jobs,
                        depth,
                    });
                }
            }
        }
        points
    }

    /// Why a point cannot be measured here.
    fn obstacle(&self, point: &Point) -> Option<String> {
        let slots = point.jobs * point.depth;
        let queues = point.jobs.min(self.report.queues);
        let range = self.report.range_bytes;
        let in_flight = point.work.bytes.saturating_mul(bytes_u64(slots));
        if slots > IN_FLIGHT_MAX || slots.div_ceil(queues) > 256 {
            return Some(format!(
                "{slots} requests in flight do not fit {queues} queues of 256; export with \
                 --queues"
            ));
        }
        if point.work.bytes > 16 * MIB {
            return Some("requests above 16 MiB are not served".to_owned());
        }
        if point.work.bytes.saturating_mul(2 * bytes_u64(point.jobs)) > range {
            return Some("the range is too short for so many jobs".to_owned());
        }
        if self.book.is_some() && in_flight > VERIFY_IN_FLIGHT_BYTES.min(range / 2) {
            return Some("too many bytes in flight to compare each".to_owned());
        }
        if point.work.flush && !self.can_flush {
            return Some("the device offers no flush".to_owned());
        }
        None
    }

    fn point(&mut self, point: &Point, onlooker: &mut dyn Onlooker) -> Answer<()> {
        let run = Run {
            work: point.work,
            jobs: point.jobs,
            depth: point.depth,
            range: self.report.range_bytes,
            limit: Limit::Time(self.wishes.time),
        };
        let (before, begun) = (onlooker.busy_us(), MonotonicClock.now());
        let (measured, against) = match &self.wishes.against {
            None => (self.measure(&self.wishes.socket, &run)?, None),
            Some(theirs) => self.pairs(theirs, &run)?,
        };
        let took = MonotonicClock.now().since(begun).as_secs_f64();
        let busy = before.zip(onlooker.busy_us()).filter(|_| against.is_none());
        let cores_used = busy.map(|(before, after)| {
            crate::expect::float(after.saturating_sub(before)) / 1e6 / took.max(1e-9)
        });
        let theoretical = self.basis.as_ref().and_then(|basis| basis.of_point(point));
        let figures = Figures::of(&measured);
        let efficiency = theoretical.as_ref().map(|theory| {
            let value = match theory.unit {
                Unit::Iops => figures.iops,
                Unit::BytesPerSecond | Unit::Seconds => figures.bytes_per_second,
            };
            100.0 * value / theory.value
        });
        self.report.points.push(PointReport {
            workload: point.name,
            about: point.about,
            request_bytes: point.work.bytes,
            jobs: point.jobs,
            depth: point.depth,
            measured: figures,
            theoretical,
            efficiency_percent: efficiency,
            window_error_percent: 100.0 * float_of(run.jobs * run.depth)
                / crate::expect::float(measured.requests.max(1)),
            cores_used,
            against,
        });
        Ok(())
    }

    fn measure(&mut self, socket: &Path, run: &Run) -> Answer<Measured> {
        // Only our own device is written with what the book says.
        let own = socket == self.wishes.socket;
        let book = if own { self.book.as_mut() } else { None };
        let measured = load::measure(socket, run, book);
        let measured = measured.map_err(|error| of_io(socket, &error))?;
        self.note_errors(&measured);
        Ok(measured)
    }

    /// Measures both in turn; the first of a pair is the other one each time.
    fn pairs(&mut self, theirs: &Path, run: &Run) -> Answer<(Measured, Option<Against>)> {
        let ours = self.wishes.socket.clone();
        let mut all: [Option<Measured>; 2] = [None, None];
        let mut pairs = Vec::new();
        for number in 0..self.wishes.pairs {
            let mut rates = [0.0; 2];
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                let socket = if which == 0 { &ours } else { theirs };
                let measured = self.measure(socket, run)?;
                rates[which] = Figures::of(&measured).iops;
                all[which] = Some(match all[which].take() {
                    None => measured,
                    Some(before) => joined(before, &measured),
                });
            }
            pairs.push(Pair {
                ours_iops: rates[0],
                theirs_iops: rates[1],
                ratio: rates[0] / rates[1].max(1e-9),
            });
        }
        let [Some(own), Some(rival)] = all else {
            return Err(invalid("no pair was measured"));
        };
        let mut ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let against = Against {
            theirs: Figures::of(&rival),
            ratio_median: median(&ratios),
            ratio_min: ratios[0],
            ratio_max: ratios[ratios.len() - 1],
            pairs,
        };
        Ok((own, Some(against)))
    }

    fn note_errors(&mut self, measured: &Measured) {
        self.report.errors += measured.errors;
        if self.report.first_error.is_none() {
            self.report.first_error.clone_from(&measured.first_error);
        }
    }
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

/// Two measurements of the same thing as one.
fn joined(mut one: Measured, other: &Measured) -> Measured {
    one.requests += other.requests;
    one.bytes += other.bytes;
    one.seconds += other.seconds;
    one.latency.merge(&other.latency);
    one.errors += other.errors;
    one.verified_bytes += other.verified_bytes;
    one
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
