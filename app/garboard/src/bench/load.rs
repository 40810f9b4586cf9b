//! One measurement: keeps requests of one kind in flight for a while, and counts.

use std::io;
use std::path::Path;
use std::time::Duration;

use units::{Clock, Instant, MonotonicClock, bytes_u64, bytes_usize};

use super::bursts::{Burst, BurstTimes};
use super::device::{Device, Kind, Request, Room};
use super::histogram::Histogram;
use super::pattern::{Pattern, With, Work};
use super::rate::{self, Asked, Schedule};
use super::stalls::Stalled;
use super::verify::Book;
use crate::expect::float;

/// Longest silence that is taken for a slow device and not for a dead one.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// After so long a silence it is looked whether who does not answer is still there.
const GONE_LOOK: Duration = Duration::from_secs(1);
/// How long the client polls without an answer before it sleeps.
const POLL: Duration = Duration::from_micros(100);
/// How long it sleeps at a time.
const SLEEP: Duration = Duration::from_millis(20);
/// The least and the most that the time before the counting lasts.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A measurement that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) work: Work,
    pub(super) jobs: usize,
    pub(super) depth: usize,
    /// Bytes of the device that are used, from its start.
    pub(super) range: u64,
    pub(super) limit: Limit,
    /// Requests per second of all devices together, which are sent when they are due; none: as
    /// soon as there is a free slot.
    pub(super) rate: Option<u64>,
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// After so long, and a tenth of it before, to warm up.
    Time(Duration),
    /// When so many requests were answered, all of which count.
    Requests(u64),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// With those of the time before the counting.
    pub(super) all_requests: u64,
    pub(super) all_bytes: u64,
    pub(super) latency: Histogram,
    /// Of a load of bursts.
    pub(super) bursts: Option<BurstTimes>,
    /// Of a load at a given rate.
    pub(super) asked: Option<Asked>,
    /// Requests that were due before the end and never sent.
    pub(super) unsent: u64,
    /// The client's, while answers counted; of several devices at once the first has them. None
    /// where another program is the client.
    pub(super) stalled: Option<Stalled>,
    /// Requests that failed, and blocks that held something else than was written.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) verified_bytes: u64,
}

impl Measured {
    pub(super) fn nothing() -> Measured {
        Measured {
            requests: 0,
            bytes: 0,
            seconds: 0.0,
            all_requests: 0,
            all_bytes: 0,
            latency: Histogram::new(),
            bursts: None,
            asked: None,
            unsent: 0,
            stalled: None,
            errors: 0,
            first_error: None,
            verified_bytes: 0,
        }
    }

    /// Of several that were loaded at once.
    pub(super) fn of_all(each: &[Measured]) -> Measured {
        let mut all = Measured::nothing();
        for measured in each {
            all.add(measured);
            all.seconds = all.seconds.max(measured.seconds);
        }
        if all.bursts.is_some() {
            // Between bursts nothing is asked: only their own time counts. Each has its bursts, one
            // after the other, while the others have theirs, and so their rates add up.
            let rate = |measured: &Measured| float(measured.bytes) / measured.seconds.max(1e-9);
            let rates: f64 = each.iter().map(rate).sum();
            all.seconds = float(all.bytes) / rates.max(1e-9);
        }
        all
    }

    /// Takes over the counts of another one, but not its time.
    pub(super) fn add(&mut self, other: &Measured) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.all_requests += other.all_requests;
        self.all_bytes += other.all_bytes;
        self.latency.merge(&other.latency);
        match (&mut self.bursts, &other.bursts) {
            (Some(own), Some(theirs)) => own.add(theirs),
            (own, theirs) => *own = own.take().or_else(|| theirs.clone()),
        }
        match (&mut self.asked, other.asked) {
            (Some(own), Some(theirs)) => own.add(theirs),
            (own, theirs) => *own = own.or(theirs),
        }
        self.unsent += other.unsent;
        match (&mut self.stalled, &other.stalled) {
            (Some(own), Some(theirs)) => own.add(theirs),
            (own, theirs) => *own = own.or(*theirs),
        }
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.verified_bytes += other.verified_bytes;
    }

    pub(super) fn fault(&mut self, text: String) {
        self.errors += 1;
        self.first_error.get_or_insert(text);
    }
}

/// A device to be loaded, and what is known of its content.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) socket: &'a Path,
    pub(super) book: Option<&'a mut Book>,
}

/// A slot's request.
#[derive(Clone, Copy, Debug)]
struct Flying {
    request: Request,
    /// When the first of it was submitted, or due where a rate is given: a flush counts from its
    /// write on.
    begun: Instant,
}

/// A way to something that answers requests: slots are numbered, each has one request at a time.
pub(super) trait Lane {
    /// Begins a request in a slot that has none.
    fn submit(&mut self, slot: usize, request: Request);
    /// Hands over what was submitted.
    fn kick(&mut self) -> io::Result<()>;
    /// Takes an answer: the slot, and 0 when it went well.
    fn reap(&mut self) -> Option<(usize, u8)>;
    /// Sleeps until an answer is there, at most `longest`.
    fn wait(&mut self, longest: Duration) -> io::Result<()>;
    /// Puts bytes into a slot's data.
    fn put(&self, slot: usize, bytes: &[u8]);
    /// Copies from a slot's data.
    fn get(&self, slot: usize, target: &mut [u8]);
}

/// Connects to all targets, loads them at once, each with the whole of `order`, and leaves; what
/// came of each.
///
/// # Errors
/// When a back-end cannot be used, or none answers for a minute; with the socket of which.
pub(super) fn measure<'a>(
    targets: Vec<Target<'a>>,
    order: &Run,
) -> Result<Vec<Measured>, (&'a Path, io::Error)> {
    let mut sockets = Vec::new();
    let mut lanes = Vec::new();
    for Target { socket, book } in targets {
        let room = Room {
            slots: order.jobs * order.depth,
            bytes: bytes_usize(order.work.bytes),
            queues: order.jobs,
            own_data: book.is_some(),
        };
        let device = Device::connect(socket, &room).map_err(|error| (socket, error))?;
        sockets.push(socket);
        lanes.push((device, book));
    }
    let measured = measure_lanes(lanes, order);
    let measured = measured.map_err(|(number, error)| (sockets[number], error))?;
    let mut each = Vec::new();
    for ((device, measured), socket) in measured.into_iter().zip(sockets) {
        device.leave().map_err(|error| (socket, error))?;
        each.push(measured);
    }
    Ok(each)
}

/// Loads all lanes at once, each with the whole of `order`, and gives them back with what came of
/// each.
///
/// # Errors
/// When one cannot be used, or none answers for a minute; with its number.
pub(super) fn measure_lanes<L: Lane>(
    lanes: Vec<(L, Option<&mut Book>)>,
    order: &Run,
) -> Result<Vec<(L, Measured)>, (usize, io::Error)> {
    let lanes = lanes.into_iter().map(|(lane, book)| (lane, book, order));
    measure_apart(lanes.collect(), order)
}

/// The same, each with an order of its own; `order` says how long, and at which rate.
pub(super) fn measure_apart<L: Lane>(
    lanes: Vec<(L, Option<&mut Book>, &Run)>,
    order: &Run,
) -> Result<Vec<(L, Measured)>, (usize, io::Error)> {
    let mut workers = Vec::new();
    for ((lane, book, own), seed) in lanes.into_iter().zip(0..) {
        workers.push(Worker::new(lane, own, book, seed));
    }
    let times = Times::new(order.limit);
    if let Some(per_second) = order.rate {
        let count = workers.len();
        for (number, worker) in workers.iter_mut().enumerate() {
            let own = rate::share(per_second, number, count);
            worker.schedule = Some(Schedule::new(times.begun, own));
        }
    }
    let seconds = run(&mut workers, times)?;
    let done = workers.into_iter().map(|mut worker| {
        worker.count_unsent(&times);
        let of_bursts = worker.measured.bursts.as_ref().map(BurstTimes::seconds);
        worker.measured.seconds = of_bursts.unwrap_or(seconds);
        (worker.device, worker.measured)
    });
    Ok(done.collect())
}

/// When answers count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Before it warmed up.
    begun: Instant,
    pub(super) from: Instant,
    /// None: until so many requests were made.
    pub(super) until: Option<Instant>,
}

impl Times {
    pub(super) fn new(limit: Limit) -> Times {
        let now = MonotonicClock.now();
        match limit {
            Limit::Time(time) => {
                let warm = (time / 10).clamp(WARM_UP.0, WARM_UP.1);
                Times {
                    begun: now,
                    from: now + warm,
                    until: Some(now + warm + time),
                }
            }
            Limit::Requests(_) => Times {
                begun: now,
                from: now,
                until: None,
            },
        }
    }

    pub(super) fn counts(&self, now: Instant) -> bool {
        now >= self.from && self.until.is_none_or(|end| now <= end)
    }
}

/// Keeps all workers busy until they have done theirs; says how many seconds counted.
fn run<L: Lane>(workers: &mut [Worker<'_, L>], times: Times) -> Result<f64, (usize, io::Error)> {
    let mut last_answer = MonotonicClock.now();
    let (mut turned, mut stalled) = (last_answer, Stalled::default());
    loop {
        let mut answered = 0;
        let mut at_work = false;
        for (number, worker) in workers.iter_mut().enumerate() {
            let turn = worker.turn(&times);
            let (count, busy) = turn.map_err(|error| (number, error))?;
            answered += count;
            at_work |= busy;
        }
        if !at_work {
            break;
        }
        let now = MonotonicClock.now();
        if times.counts(turned) {
            stalled.turned(turned, now);
        }
        turned = now;
        if answered > 0 {
            last_answer = now;
            continue;
        }
        if workers.iter().any(|worker| worker.schedule.is_some()) {
            // The next request has its moment, which sleeping would miss; nobody answers while
            // nothing is asked.
            if workers.iter().all(|worker| !worker.is_busy()) {
                last_answer = now;
                continue;
            }
        }
        let silence = now.since(last_answer);
        if silence > GONE_LOOK {
            // Whoever has ended answers nothing any more, and need not be waited for.
            for (number, worker) in workers.iter_mut().enumerate() {
                let looked = worker.device.wait(Duration::ZERO);
                looked.map_err(|error| (number, error))?;
            }
        }
        let [first, others @ ..] = &mut *workers else {
            unreachable!("nobody would be at work");
        };
        if silence > SILENCE_MAX {
            let text = format!("no answer for {SILENCE_MAX:?}");
            return Err((0, io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        // Several cannot be waited for at once: they are polled all the time.
        if silence > POLL && others.is_empty() && first.schedule.is_none() {
            let waited = first.device.wait(SLEEP);
            waited.map_err(|error| (0, error))?;
            turned = MonotonicClock.now();
        }
    }
    workers[0].measured.stalled = Some(stalled);
    let end = times.until.unwrap_or_else(|| MonotonicClock.now());
    Ok(end.since(times.from).as_secs_f64())
}

struct Worker<'a, L> {
    device: L,
    order: &'a Run,
    book: Option<&'a mut Book>,
    pattern: Pattern,
    burst: Option<Burst>,
    /// Where a rate is given.
    schedule: Option<Schedule>,
    /// By slot; slot s belongs to job s mod jobs.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    submitted: u64,
    buffer: Vec<u8>,
    measured: Measured,
}

impl<'a, L: Lane> Worker<'a, L> {
    fn new(device: L, order: &'a Run, book: Option<&'a mut Book>, seed: u64) -> Worker<'a, L> {
        let slots = order.jobs * order.depth;
        let burst = match order.work.with {
            With::Burst(bytes) => Some(Burst::new(bytes / order.work.bytes, order.jobs)),
            With::Nothing | With::Flush => None,
        };
        let mut measured = Measured::nothing();
        measured.bursts = burst.as_ref().map(|_| BurstTimes::default());
        Worker {
            device,
            order,
            book,
            pattern: Pattern::new(order.work, order.jobs, order.range, seed),
            burst,
            schedule: None,
            flying: vec![None; slots],
            free: (0..slots).rev().collect(),
            submitted: 0,
            buffer: vec![0; bytes_usize(order.work.bytes)],
            measured,
        }
    }

    /// Submits what there is to submit and takes what is answered: how many answers, and whether
    /// there is more to do.
    fn turn(&mut self, times: &Times) -> io::Result<(usize, bool)> {
        let now = MonotonicClock.now();
        if !self.is_over(times, now) {
            self.refill(times, now);
        }
        self.device.kick()?;
        let mut answered = 0;
        while let Some((slot, status)) = self.device.reap() {
            self.take(slot, status, times);
            answered += 1;
        }
        Ok((
            answered,
            self.is_busy() || !self.is_over(times, MonotonicClock.now()),
        ))
    }

    /// Whether an answer is to come.
    fn is_busy(&self) -> bool {
        self.free.len() < self.flying.len()
    }

    /// Whether nothing more is to be submitted.
    fn is_over(&self, times: &Times, now: Instant) -> bool {
        if let Some(burst) = &self.burst {
            let counted = self.measured.bursts.as_ref().map_or(0, |found| found.count);
            // One has to count, however long it takes.
            if burst.is_running() || counted == 0 && self.measured.errors == 0 {
                return false;
            }
        }
        match self.order.limit {
            Limit::Time(_) => times.until.is_some_and(|end| now >= end),
            Limit::Requests(count) => self.submitted >= count,
        }
    }

    fn refill(&mut self, times: &Times, now: Instant) {
        if let Some(burst) = &mut self.burst
            && !burst.is_running()
        {
            burst.begin(now);
        }
        for _ in 0..self.free.len() {
            if self.is_over(times, now) {
                return;
            }
            let begun = match &self.schedule {
                None => now,
                Some(schedule) => match schedule.due(now) {
                    Some(due) => due,
                    None => return,
                },
            };
            let slot = self.free.pop().expect("counted");
            let Some(request) = self.choose(slot % self.order.jobs) else {
                // Others work on those blocks, or the job has no more to do: later.
                self.free.insert(0, slot);
                continue;
            };
            if let Some(book) = &mut self.book {
                book.begin(&request, &mut self.buffer);
                if request.kind == Kind::Write {
                    self.device.put(slot, &self.buffer);
                }
            }
            self.submitted += 1;
            if let Some(schedule) = &mut self.schedule {
                schedule.took();
            }
            self.start(slot, request, begun);
        }
    }

    fn start(&mut self, slot: usize, request: Request, begun: Instant) {
        self.device.submit(slot, request);
        self.flying[slot] = Some(Flying { request, begun });
    }

    /// The next request of the job; none when it has to wait.
    fn choose(&mut self, job: usize) -> Option<Request> {
        if self.burst.as_ref().is_some_and(|burst| !burst.wants(job)) {
            return None;
        }
        for _ in 0..self.pattern.tries() {
            let request = self.pattern.next(job);
            if self.book.as_ref().is_none_or(|book| book.is_free(&request)) {
                self.pattern.took(job);
                if let Some(burst) = &mut self.burst {
                    burst.submitted(job);
                }
                return Some(request);
            }
        }
        None
    }

    fn take(&mut self, slot: usize, status: u8, times: &Times) {
        let flying = self.flying[slot].take().expect("it was submitted");
        let Flying { request, begun } = flying;
        if status != 0 {
            self.measured.fault(format!(
                "{:?} of {} bytes at {} ended with status {status}",
                request.kind, request.bytes, request.offset
            ));
        } else if request.kind == Kind::Write && self.order.work.with == With::Flush {
            let flush = Request {
                kind: Kind::Flush,
                ..request
            };
            self.start(slot, flush, begun);
            return;
        }
        if self.book.is_some() {
            self.check(slot, &request, status);
        }
        self.free.push(slot);
        self.count(slot % self.order.jobs, &flying, status, times);
    }

    fn count(&mut self, job: usize, flying: &Flying, status: u8, times: &Times) {
        let (bytes, now) = (bytes_u64(flying.request.bytes), MonotonicClock.now());
        self.measured.all_requests += 1;
        self.measured.all_bytes += bytes;
        let counts = match (&mut self.burst, &mut self.measured.bursts) {
            (Some(burst), Some(found)) => burst.answered(job, bytes, now, (times.from, found)),
            _ => times.counts(now),
        };
        if counts && status == 0 {
            self.measured.requests += 1;
            self.measured.bytes += bytes;
        }
        // At a given rate all that was due within the time has its latency counted, also when
        // it was answered later: those are the slow ones.
        let times_it = match self.schedule {
            None => counts,
            Some(_) => times.counts(flying.begun),
        };
        if times_it && status == 0 {
            let latency = u64::try_from(now.since(flying.begun).as_nanos()).unwrap_or(u64::MAX);
            self.measured.latency.add(latency);
        }
    }

    /// Counts what was due before the end and never sent.
    fn count_unsent(&mut self, times: &Times) {
        if let (Some(schedule), Some(end)) = (&self.schedule, times.until) {
            self.measured.unsent = schedule.overdue(end, &mut self.measured.latency);
        }
    }

    /// Ends a request in the book, and compares what was read.
    fn check(&mut self, slot: usize, request: &Request, status: u8) {
        let Some(book) = &mut self.book else { return };
        book.end(request, status == 0);
        if status != 0 || request.kind != Kind::Read {
            return;
        }
        self.device.get(slot, &mut self.buffer);
        match book.check(request, &self.buffer) {
            Ok(()) => self.measured.verified_bytes += bytes_u64(request.bytes),
            Err(wrong) => self.measured.fault(wrong),
        }
    }
}

#[cfg(test)]
mod tests;
