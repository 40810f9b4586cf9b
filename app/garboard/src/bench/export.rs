//! The export layer: one or several vhost-user-blk devices under load, one point after the other.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::view::ArrayView;
use control::{Answer, EngineError, ErrorKind};
use units::{Clock, MonotonicClock, bytes_u64};

use super::account::Spent;
use super::load::{self, Limit, Measured, Run, Target};
use super::pairs::{Against, Pair};
use super::pattern::{Order, With};
use super::rate::{Asked, AtRate, Rate};
use super::report::{DeviceRate, Figures};
use super::theory::Basis;
use super::verify::Book;
use super::workloads::{MIB, work};
use super::{
    Behind, Layer, Onlooker, Point, PointReport, Report, State, Wishes, account, device, invalid,
    peer, report,
};
use crate::expect::float;

/// Requests of the pass that writes everything, and of the one that reads it again.
const PASS_BYTES: u64 = MIB;
const PASS_DEPTH: usize = 8;
/// Bytes that may be verified: their versions are kept in memory.
const VERIFY_BYTES_MAX: u64 = 64 << 30;
/// Requests in flight at the most.
const IN_FLIGHT_MAX: usize = 8192;
/// Pairs whose least and most ratio say something: the middle of what is yet to come lies between
/// them with 98 %, of three pairs with 75 %.
const PAIRS_TELLING: usize = 7;
/// Bytes in flight at the most when they are compared.
const VERIFY_IN_FLIGHT_BYTES: u64 = 256 * MIB;

/// Measures everything that is wished. What ends a run early is in the report, with all that was
/// measured before.
///
/// # Errors
/// When a back-end cannot be used from the start.
pub(crate) fn run(wishes: &Wishes, behind: Behind, onlooker: &mut dyn Onlooker) -> Answer<Report> {
    let mut found: Option<device::Facts> = None;
    let mut processes = Vec::new();
    for socket in wishes.sockets.iter().chain(&wishes.against) {
        let looked = device::look(socket);
        let (facts, process) = looked.map_err(|error| of_io(socket, &error))?;
        processes.push(process);
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
    let (ours, theirs) = processes.split_at(wishes.sockets.len());
    let (ours, theirs) = (known(ours), known(theirs));
    let (client_cpu, place) = peer::place(wishes.client, &[&ours[..], &theirs].concat())?;
    let mut bench = Bench::new(wishes, &behind, range);
    bench.report.client_cpu = client_cpu;
    bench.report.note(place);
    bench.report.notes(wishes.too_long_for(size));
    (bench.ours, bench.theirs) = (ours, theirs);
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

/// The processes behind sockets, each once; none when one of them is not known.
fn known(found: &[Option<u32>]) -> Vec<u32> {
    let all: Option<BTreeSet<u32>> = found.iter().copied().collect();
    all.unwrap_or_default().into_iter().collect()
}

fn of_io(socket: &Path, error: &io::Error) -> EngineError {
    let object = format!("device {}", socket.display());
    EngineError::new(ErrorKind::Internal, object, error.to_string())
        .next("is a vhost-user-blk back-end listening there, with no other front-end?")
}

struct Bench<'a> {
    wishes: &'a Wishes,
    /// By array, with how many of the devices are on it; empty when there is no theory.
    bases: Vec<(Basis, usize)>,
    /// What the devices are called, by socket.
    names: Vec<String>,
    report: Report,
    stripe: u64,
    can_flush: bool,
    /// The processes behind our own sockets and behind the rival's; none when they are not known.
    ours: Vec<u32>,
    theirs: Vec<u32>,
    /// By socket; empty when nothing is verified.
    books: Vec<Book>,
    state: State,
}

impl<'a> Bench<'a> {
    fn new(wishes: &'a Wishes, behind: &Behind, range: u64) -> Bench<'a> {
        let mut report = Report::new(Layer::Export, wishes.time);
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
            bases: Vec::new(),
            names: names(wishes, behind),
            report,
            stripe: 0,
            can_flush: false,
            ours: Vec::new(),
            theirs: Vec::new(),
            books,
            state: State::AsFound,
        };
        bench.learn(behind);
        if wishes.precondition == 0 && !wishes.verify && behind.is_on_memory() {
            bench.report.note(report::FRESH_MEMORY.to_owned());
        }
        bench
    }

    /// Takes note of what lies behind the sockets now.
    fn learn(&mut self, behind: &Behind) {
        let bases = self.bases_of(behind);
        let mut notes = Vec::new();
        match &bases {
            Ok(bases) => {
                for (array, (basis, _)) in behind.arrays.iter().zip(bases) {
                    let own = basis.notes.iter().cloned();
                    notes.extend(own.map(|note| of_array(behind, array, note)));
                }
                if let [_, _, ..] = bases.as_slice() {
                    notes.push(format!(
                        "theory is the sum of {} arrays, which have no drive in common, each with \
                         the load of its own exports",
                        bases.len()
                    ));
                }
                notes.push(
                    "sequential reads are held against all drives (N·SR); against data drives \
                     alone their efficiency is (k+M)/k as high"
                        .to_owned(),
                );
            }
            Err(why) => notes.push(format!("no theory: {why}")),
        }
        self.report.notes(notes);
        self.bases = bases.unwrap_or_default();
        if let Some((basis, _)) = self.bases.first() {
            let model = &basis.expected.drive_model;
            let alike = self.bases.iter().all(|(other, _)| {
                let theirs = &other.expected.drive_model;
                (&theirs.name, other.slower) == (&model.name, basis.slower)
            });
            self.report.drive_model = alike.then(|| model.clone());
            self.report.slower = if alike { basis.slower } else { 1 };
        }
    }

    /// What theory is made of; or why there is none.
    fn bases_of(&self, behind: &Behind) -> Result<Vec<(Basis, usize)>, String> {
        if behind.arrays.is_empty() {
            return Err("what lies behind the socket is not known".to_owned());
        }
        let of = |array: &ArrayView| {
            let on_it = behind.exports.iter();
            let on_it = on_it.filter(|served| served.array == array.name);
            let basis = Basis::of(array, &behind.drives, behind.model.clone());
            let basis = basis.map_err(|why| of_array(behind, array, why));
            basis.map(|basis| (basis, on_it.count()))
        };
        behind.arrays.iter().map(of).collect()
    }

    fn run(&mut self, onlooker: &mut dyn Onlooker) -> Answer<()> {
        for pass in 0..self
            .wishes
            .precondition
            .max(usize::from(self.wishes.verify))
        {
            onlooker.goes_on()?;
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
            let text = point.text();
            if let Some(why) = self.obstacle(&point) {
                if self.state == self.wishes.states[0] {
                    self.report.skipped.push(format!("{text}: {why}"));
                }
                continue;
            }
            onlooker.goes_on()?;
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
            rate: None,
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
        if matches!(point.work.with, With::Burst(_)) && point.rate.is_some() {
            return Some("a burst has no rate".to_owned());
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
            rate: None,
        };
        let load = (&run, point.rate);
        let (taken, against) = match &self.wishes.against {
            None => (self.take(true, load, onlooker)?, None),
            Some(_) => self.pairs(load, onlooker)?,
        };
        let Taken {
            measured,
            spent,
            each,
        } = taken;
        let cost = account::cost(&spent, &measured);
        let devices = self.wishes.sockets.len();
        // A load at a given rate asks for less than could be had.
        let theoretical = match point.rate {
            None => Basis::of_all(&self.bases, point),
            Some(_) => None,
        };
        let report = PointReport::new(point, &measured, theoretical, devices);
        self.report.points.push(PointReport {
            state: self.state.word().to_owned(),
            cores_used: cost.as_ref().map(|cost| cost.cores_used),
            cost,
            processors: account::processors(&spent, &measured),
            against,
            devices: (devices > 1).then(|| {
                let named = self.names.iter().zip(&each);
                named
                    .map(|(name, found)| DeviceRate::new(name, found))
                    .collect()
            }),
            ..report
        });
        Ok(())
    }

    /// One measurement of our own devices or of the rival, with what it cost there; at a part of
    /// the peak, the peak is found first, and costs nothing.
    fn take(
        &mut self,
        own: bool,
        (run, rate): (&Run, Option<Rate>),
        onlooker: &mut dyn Onlooker,
    ) -> Answer<Taken> {
        let mut run = *run;
        let mut asked = Asked::default();
        if let Some(rate) = rate {
            if let Rate::OfPeak(_) = rate {
                let peak = Measured::of_all(&self.measure(own, &run)?);
                asked.peak_requests = float(peak.requests);
                asked.peak_seconds = peak.seconds;
            }
            let peak = asked.peak_requests / asked.peak_seconds.max(1e-9);
            run.rate = Some(rate.per_second(Duration::from_secs_f64(peak).as_secs()));
        }
        let processes = if own { &self.ours } else { &self.theirs };
        let processes = processes.clone();
        let mut counted = || if own { onlooker.counted() } else { None };
        let (before, begun) = (counted(), MonotonicClock.now());
        let time = peer::processor_time(&processes);
        let each = self.measure(own, &run)?;
        let mut measured = Measured::of_all(&each);
        let after = peer::processor_time(&processes);
        let took = MonotonicClock.now().since(begun);
        let spent = Spent {
            seconds: took.as_secs_f64(),
            counted: before
                .zip(counted())
                .map(|(before, now)| now.since(&before)),
            processors: time
                .zip(after)
                .map(|(before, now)| now.saturating_sub(before)),
        };
        if let Some(per_second) = run.rate {
            asked.requests = float(per_second) * measured.seconds;
            measured.asked = Some(asked);
        }
        Ok(Taken {
            measured,
            spent,
            each,
        })
    }

    /// Loads our own devices, or the rival; what came of each.
    fn measure(&mut self, own: bool, run: &Run) -> Answer<Vec<Measured>> {
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
        let each = measured.map_err(|(socket, error)| of_io(socket, &error))?;
        for measured in &each {
            self.report.errors += measured.errors;
            if self.report.first_error.is_none() {
                self.report.first_error.clone_from(&measured.first_error);
            }
        }
        Ok(each)
    }

    /// Measures both in turn; the first of a pair is the other one each time.
    fn pairs(
        &mut self,
        load: (&Run, Option<Rate>),
        onlooker: &mut dyn Onlooker,
    ) -> Answer<(Taken, Option<Against>)> {
        let mut all: [Option<Taken>; 2] = [None, None];
        let mut pairs = Vec::new();
        for number in 0..self.wishes.pairs {
            let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
            let mut found = [None, None];
            for which in order {
                let taken = self.take(which == 0, load, onlooker)?;
                found[which] = Some(Figures::of(&taken.measured));
                all[which] = Some(match all[which].take() {
                    None => taken,
                    Some(before) => before.joined(&taken),
                });
            }
            if let [Some(ours), Some(theirs)] = &found {
                pairs.push(Pair::of(ours, theirs));
            }
        }
        let [Some(own), Some(rival)] = all else {
            return Err(invalid("no pair was measured"));
        };
        let against = Against {
            theirs_rate: AtRate::of(&rival.measured),
            theirs_processors: account::processors(&rival.spent, &rival.measured),
            ..Against::of(pairs, Figures::of(&rival.measured))
        };
        Ok((own, Some(against)))
    }
}

/// What devices are called: exports by their names, others by their sockets.
fn names(wishes: &Wishes, behind: &Behind) -> Vec<String> {
    let sockets = wishes.sockets.iter().enumerate();
    let name = |(number, socket): (usize, &PathBuf)| match behind.exports.get(number) {
        Some(served) => format!("export {}", served.export),
        None => format!("device {}", socket.display()),
    };
    sockets.map(name).collect()
}

/// Something that is said of one array, with its name where there are several.
fn of_array(behind: &Behind, array: &ArrayView, text: String) -> String {
    if behind.arrays.len() > 1 {
        format!("array {}: {text}", array.name)
    } else {
        text
    }
}

/// A measurement with what it cost.
struct Taken {
    measured: Measured,
    spent: Spent,
    /// By device.
    each: Vec<Measured>,
}

impl Taken {
    /// Two measurements of the same thing, one after the other, as one.
    fn joined(mut self, other: &Taken) -> Taken {
        self.measured.seconds += other.measured.seconds;
        self.measured.add(&other.measured);
        self.spent.add(&other.spent);
        for (own, more) in self.each.iter_mut().zip(&other.each) {
            own.seconds += more.seconds;
            own.add(more);
        }
        self
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
            "the rival is measured by the same client, in turn; nothing is known of its \
             redundancy, and of its cost only the time that its process spends"
                .to_owned(),
        );
        if wishes.pairs < PAIRS_TELLING {
            assumptions.push(format!(
                "{} of at least {PAIRS_TELLING} pairs: the spread of so few says little about what \
                 the next would find",
                wishes.pairs
            ));
        }
    }
    if !wishes.rates.is_empty() {
        assumptions.push(
            "at a given rate requests are due evenly, whether or not earlier ones were answered, \
             and latencies count from when a request was due; no more than jobs x depth are in \
             flight, the others wait and grow old; the client never sleeps"
                .to_owned(),
        );
    }
    if wishes
        .rates
        .iter()
        .any(|rate| matches!(rate, Rate::OfPeak(_)))
    {
        assumptions.push(
            "the peak is what was answered right before with all jobs x depth in flight, \
             of each side and in each pair its own"
                .to_owned(),
        );
    }
    assumptions
}
