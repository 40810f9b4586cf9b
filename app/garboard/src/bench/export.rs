//! The export layer: one or several vhost-user-blk devices under load, one point after the other.

use std::io;
use std::path::Path;

use control::{Answer, EngineError, ErrorKind};
use units::{Clock, MonotonicClock, bytes_u64};

use super::load::{self, Limit, Measured, Run, Target};
use super::pattern::{Order, With};
use super::report::{Against, Figures, Pair};
use super::theory::Basis;
use super::verify::Book;
use super::workloads::{MIB, work};
use super::{
    Behind, Onlooker, Point, PointReport, Report, State, Wishes, account, device, invalid, median,
    report,
};

/// Requests of the pass that writes everything, and of the one that reads it again.
const PASS_BYTES: u64 = MIB;
const PASS_DEPTH: usize = 8;
/// Bytes that may be verified: their versions are kept in memory.
const VERIFY_BYTES_MAX: u64 = 64 << 30;
/// Requests in flight at the most.
const IN_FLIGHT_MAX: usize = 8192;
/// Bytes in flight at the most when they are compared.
const VERIFY_IN_FLIGHT_BYTES: u64 = 256 * MIB;

/// Measures everything that is wished. What ends a run early is in the report, with all that was
/// measured before.
///
/// # Errors
/// When a back-end cannot be used from the start.
pub(crate) fn run(wishes: &Wishes, behind: Behind, onlooker: &mut dyn Onlooker) -> Answer<Report> {
    let mut found: Option<device::Facts> = None;
    for socket in wishes.sockets.iter().chain(&wishes.against) {
        let facts = device::look(socket).map_err(|error| of_io(socket, &error))?;
        if facts.is_read_only() && wishes.writes() {
            let object = format!("device {}", socket.display());
            return Err(
                EngineError::new(ErrorKind::Invalid, object, "it is read-only")
                    .next("give --workloads random_read,sequential_read"),
            );
        }
        found = Some(found.map_or(facts, |before| before.common(&facts)));
    }
    let facts = found.ok_or_else(|| invalid("there is nothing to measure"))?;
    let size = facts.size_bytes;
    let range = wishes.range.unwrap_or(size).min(size) / PASS_BYTES * PASS_BYTES;
    if range == 0 {
        return Err(invalid("the range to measure is shorter than 1 MiB"));
    }
    if wishes.verify && range > VERIFY_BYTES_MAX {
        return Err(invalid(
            "--verify keeps a version of each block; give --range of at most 64GiB",
        ));
    }
    let mut bench = Bench::new(wishes, &behind, range);
    bench.report.size_bytes = facts.size_bytes;
    bench.report.queues = facts.queues;
    bench.stripe = facts.optimal_bytes;
    bench.can_flush = facts.can_flush();
    if let Err(error) = bench.run(onlooker) {
        // What was measured until then is kept.
        bench.report.ended_early = Some(error.to_string());
    }
    Ok(bench.report)
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
    /// By socket; empty when nothing is verified.
    books: Vec<Book>,
    state: State,
}

impl<'a> Bench<'a> {
    fn new(wishes: &'a Wishes, behind: &Behind, range: u64) -> Bench<'a> {
        let mut report = Report::new("export", wishes.time);
        report.sockets.clone_from(&wishes.sockets);
        report.against.clone_from(&wishes.against);
        report.range_bytes = range;
        report.verified = wishes.verify;
        report.assumptions = assumptions(wishes);
        let books = if wishes.verify {
            let seeds = wishes.sockets.iter().zip(0x6761_7262_6f61_7264..);
            seeds.map(|(_, seed)| Book::new(range, seed)).collect()
        } else {
            Vec::new()
        };
        let mut bench = Bench {
            wishes,
            basis: None,
            report,
            stripe: 0,
            can_flush: false,
            books,
            state: State::AsFound,
        };
        bench.learn(behind);
        bench
    }

    /// Takes note of what lies behind the sockets now.
    fn learn(&mut self, behind: &Behind) {
        let basis = behind.array.as_ref().map_or_else(
            || Err("what lies behind the socket is not known".to_owned()),
            |array| Basis::of(array, &behind.drives, behind.model.clone()),
        );
        let mut notes = Vec::new();
        match &basis {
            Ok(basis) => {
                notes.extend(basis.notes.iter().cloned());
                notes.push(
                    "sequential reads are held against all drives (N·SR); against data drives \
                     alone their efficiency is (k+M)/k as high"
                        .to_owned(),
                );
            }
            Err(why) => notes.push(format!("no theory: {why}")),
        }
        for note in notes {
            self.report.note(note);
        }
        self.basis = basis.ok();
        if let Some(basis) = &self.basis {
            self.report.drive_model = Some(basis.expected.drive_model.clone());
            self.report.slower = basis.slower;
        }
    }

    fn run(&mut self, onlooker: &mut dyn Onlooker) -> Answer<()> {
        for pass in 0..self
            .wishes
            .precondition
            .max(usize::from(self.wishes.verify))
        {
            onlooker.say(&format!("writing all of the range, pass {}", pass + 1));
            self.pass(0)?;
        }
        for state in &self.wishes.states {
            if *state != State::AsFound {
                onlooker.say(state.about());
                let behind = onlooker.bring(*state)?;
                self.learn(&behind);
            }
            self.state = *state;
            self.all_points(onlooker)?;
        }
        if self.wishes.verify {
            onlooker.say("reading all of the range");
            self.pass(100)?;
        }
        Ok(())
    }

    fn all_points(&mut self, onlooker: &mut dyn Onlooker) -> Answer<()> {
        for point in self.wishes.points(self.stripe) {
            let text = format!("{} {}x{}", point.name, point.jobs, point.depth);
            if let Some(why) = self.obstacle(&point) {
                if self.state == self.wishes.states[0] {
                    self.report.skipped.push(format!("{text}: {why}"));
                }
                continue;
            }
            onlooker.say(&format!("{text}{}", self.state.suffix()));
            self.point(&point, onlooker)?;
            if !onlooker.is_in(self.state) {
                self.report.note(format!(
                    "{text}: the array was not {} any more when it ended: a larger volume or a \
                     shorter --seconds keeps it so",
                    self.state.word()
                ));
            }
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
        self.measure(true, &run).map(|_| ())
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
        if matches!(point.work.with, With::Burst(bytes) if bytes > range) {
            return Some("the range is shorter than a burst".to_owned());
        }
        if !self.books.is_empty() && in_flight > VERIFY_IN_FLIGHT_BYTES.min(range / 2) {
            return Some("too many bytes in flight to compare each".to_owned());
        }
        if point.work.with == With::Flush && !self.can_flush {
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
        let (before, begun) = (onlooker.counted(), MonotonicClock.now());
        let (measured, against) = match &self.wishes.against {
            None => (self.measure(true, &run)?, None),
            Some(_) => self.pairs(&run)?,
        };
        let took = MonotonicClock.now().since(begun);
        let counted = before.zip(onlooker.counted());
        let counted = counted.filter(|_| against.is_none());
        let cost = counted
            .map(|(before, after)| account::cost(&before, &after, took.as_secs_f64(), &measured));
        let devices = self.wishes.sockets.len();
        let basis = self.basis.as_ref();
        let theoretical = basis.and_then(|basis| basis.of_point(point, devices));
        let report = PointReport::new(point, &measured, theoretical);
        self.report.points.push(PointReport {
            state: self.state.word(),
            cores_used: cost.as_ref().map(|cost| cost.cores_used),
            window_error_percent: report.window_error_percent * super::float_of(devices),
            cost,
            against,
            ..report
        });
        Ok(())
    }

    /// Loads our own devices, or the rival.
    fn measure(&mut self, own: bool, run: &Run) -> Answer<Measured> {
        let mut targets: Vec<Target<'_>> = Vec::new();
        if own {
            // Only our own devices are written with what the books say.
            let mut books = self.books.iter_mut();
            let sockets = self.wishes.sockets.iter();
            targets.extend(sockets.map(|socket| Target {
                socket,
                book: books.next(),
            }));
        } else {
            let socket = self.wishes.against.as_deref();
            targets.extend(socket.map(|socket| Target { socket, book: None }));
        }
        let measured = load::measure(targets, run);
        let measured = measured.map_err(|(socket, error)| of_io(socket, &error))?;
        self.report.errors += measured.errors;
        if self.report.first_error.is_none() {
            self.report.first_error.clone_from(&measured.first_error);
        }
        Ok(measured)
    }

    /// Measures both in turn; the first of a pair is the other one each time.
    fn pairs(&mut self, run: &Run) -> Answer<(Measured, Option<Against>)> {
        let mut all: [Option<Measured>; 2] = [None, None];
        let mut pairs = Vec::new();
        for number in 0..self.wishes.pairs {
            let mut rates = [0.0; 2];
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in order {
                let measured = self.measure(which == 0, run)?;
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
}

/// What was taken for granted, and what the figures are not.
fn assumptions(wishes: &Wishes) -> Vec<String> {
    let mut assumptions = vec![
        "the client is one thread of this process that polls, and sleeps after 100 us without \
         an answer; it shares the host with what it measures"
            .to_owned(),
        report::LATENCY_STEPS.to_owned(),
    ];
    if wishes.sockets.len() > 1 {
        assumptions.push(format!(
            "{} devices are loaded at once by one thread, which then never sleeps; jobs are of \
             each, figures of all together",
            wishes.sockets.len()
        ));
    }
    assumptions.push(match (wishes.verify, wishes.precondition) {
        (true, _) => "all of the range was written first; every read is compared, which costs the \
                      client time: take rates from a run without --verify"
            .to_owned(),
        (false, 0) => {
            "nothing was written beforehand: blocks never written may be answered faster, and \
             drives that were not filled may be, too"
                .to_owned()
        }
        (false, passes) => format!("all of the range was written beforehand, {passes} x"),
    });
    if wishes.against.is_some() {
        assumptions.push(
            "the rival is measured by the same client, in turn; nothing is known of the cores \
             and redundancy it uses"
                .to_owned(),
        );
    }
    assumptions
}

/// Two measurements of the same thing, one after the other, as one.
fn joined(mut one: Measured, other: &Measured) -> Measured {
    one.seconds += other.seconds;
    one.add(other);
    one
}
