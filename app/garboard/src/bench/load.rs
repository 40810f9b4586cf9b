//! One measurement: keeps requests of one kind in flight for a while, and counts.

use std::io;
use std::path::Path;
use std::time::Duration;

use units::{Clock, Instant, MonotonicClock, bytes_u64, bytes_usize};

use super::device::{Device, Kind, Request, Room};
use super::histogram::Histogram;
use super::verify::Book;

/// Longest silence that is taken for a slow device and not for a dead one.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long the client polls without an answer before it sleeps.
const POLL: Duration = Duration::from_micros(100);
/// How long it sleeps at a time.
const SLEEP: Duration = Duration::from_millis(20);
/// The least and the most that the time before the counting lasts.
const WARM_UP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Anywhere, at multiples of their length.
    Random,
    /// One after the other, each job in its own part of the range.
    Sequential,
    /// One after the other, beginning 4 KiB off a multiple of their length.
    SequentialOdd,
}

/// What the requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) order: Order,
    pub(super) bytes: u64,
    /// Reads of each hundred requests.
    pub(super) read_percent: u8,
    /// Whether each write is followed by a flush, and counted when that is answered.
    pub(super) flush: bool,
}

/// A measurement that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) work: Work,
    pub(super) jobs: usize,
    pub(super) depth: usize,
    /// Bytes of the device that are used, from its start.
    pub(super) range: u64,
    pub(super) limit: Limit,
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
    pub(super) latency: Histogram,
    /// Requests that failed, and blocks that held something else than was written.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) verified_bytes: u64,
}

/// A slot's request.
#[derive(Clone, Copy, Debug)]
struct Flying {
    request: Request,
    /// When the first of it was submitted: a flush counts from its write on.
    begun: Instant,
}

/// Connects, measures, and leaves.
///
/// # Errors
/// When the back-end cannot be used, or answers nothing for a minute.
pub(super) fn measure(socket: &Path, order: &Run, book: Option<&mut Book>) -> io::Result<Measured> {
    let room = Room {
        slots: order.jobs * order.depth,
        bytes: bytes_usize(order.work.bytes),
        queues: order.jobs,
        own_data: book.is_some(),
    };
    let device = Device::connect(socket, &room)?;
    let mut worker = Worker::new(device, order, book);
    worker.run()?;
    let Worker {
        device, measured, ..
    } = worker;
    device.leave()?;
    Ok(measured)
}

struct Worker<'a> {
    device: Device,
    order: &'a Run,
    book: Option<&'a mut Book>,
    /// By slot; slot s belongs to job s mod jobs.
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// By job: requests begun.
    begun: Vec<u64>,
    submitted: u64,
    chance: u64,
    buffer: Vec<u8>,
    measured: Measured,
    /// Answers count from here on.
    counts_from: Instant,
    ends: Option<Instant>,
}

impl<'a> Worker<'a> {
    fn new(device: Device, order: &'a Run, book: Option<&'a mut Book>) -> Worker<'a> {
        let slots = order.jobs * order.depth;
        let now = MonotonicClock.now();
        let (counts_from, ends) = match order.limit {
            Limit::Time(time) => {
                let warm = (time / 10).clamp(WARM_UP.0, WARM_UP.1);
                (now + warm, Some(now + warm + time))
            }
            Limit::Requests(_) => (now, None),
        };
        Worker {
            device,
            order,
            book,
            flying: vec![None; slots],
            free: (0..slots).rev().collect(),
            begun: vec![0; order.jobs],
            submitted: 0,
            chance: 0x9E37_79B9_7F4A_7C15,
            buffer: vec![0; bytes_usize(order.work.bytes)],
            measured: Measured {
                requests: 0,
                bytes: 0,
                seconds: 0.0,
                latency: Histogram::new(),
                errors: 0,
                first_error: None,
                verified_bytes: 0,
            },
            counts_from,
            ends,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut last_answer = MonotonicClock.now();
        loop {
            let now = MonotonicClock.now();
            if !self.is_over(now) {
                self.refill(now);
            }
            self.device.kick()?;
            let mut answered = 0;
            while let Some((slot, status)) = self.device.reap() {
                self.take(slot, status);
                answered += 1;
            }
            let now = MonotonicClock.now();
            if self.is_over(now) && self.free.len() == self.flying.len() {
                break;
            }
            if answered > 0 {
                last_answer = now;
                continue;
            }
            let silence = now.since(last_answer);
            if silence > SILENCE_MAX {
                let text = format!("no answer for {SILENCE_MAX:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if silence > POLL {
                self.device.wait(SLEEP)?;
            }
        }
        let end = self.ends.unwrap_or_else(|| MonotonicClock.now());
        self.measured.seconds = end.since(self.counts_from).as_secs_f64();
        Ok(())
    }

    /// Whether nothing more is to be submitted.
    fn is_over(&self, now: Instant) -> bool {
        match self.order.limit {
            Limit::Time(_) => self.ends.is_some_and(|end| now >= end),
            Limit::Requests(count) => self.submitted >= count,
        }
    }

    fn refill(&mut self, now: Instant) {
        for _ in 0..self.free.len() {
            if self.is_over(now) {
                return;
            }
            let slot = self.free.pop().expect("counted");
            let Some(request) = self.choose(slot) else {
                // Others work on those blocks: later.
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
            self.start(slot, request, now);
        }
    }

    fn start(&mut self, slot: usize, request: Request, begun: Instant) {
        self.device.submit(slot, request);
        self.flying[slot] = Some(Flying { request, begun });
    }

    /// The next request of the slot's job; none when verification has to wait for others.
    fn choose(&mut self, slot: usize) -> Option<Request> {
        let work = &self.order.work;
        let kind = if self.random(100) < u64::from(work.read_percent) {
            Kind::Read
        } else {
            Kind::Write
        };
        let tries = if work.order == Order::Random { 16 } else { 1 };
        for _ in 0..tries {
            let request = Request {
                kind,
                offset: self.place(slot),
                bytes: bytes_usize(work.bytes),
            };
            if self.book.as_ref().is_none_or(|book| book.is_free(&request)) {
                self.begun[slot % self.order.jobs] += 1;
                return Some(request);
            }
        }
        None
    }

    /// Where the next request of the slot's job goes.
    fn place(&mut self, slot: usize) -> u64 {
        let Run {
            work, jobs, range, ..
        } = *self.order;
        let begin = match work.order {
            Order::Random => return self.random(range / work.bytes) * work.bytes,
            Order::Sequential => 0,
            Order::SequentialOdd => 4096,
        };
        let job = slot % jobs;
        let part = (range - begin) / bytes_u64(jobs) / work.bytes;
        let part = part.max(1);
        let own = bytes_u64(job) * part % ((range - begin) / work.bytes);
        begin + (own + self.begun[job] % part) * work.bytes
    }

    fn take(&mut self, slot: usize, status: u8) {
        let Flying { request, begun } = self.flying[slot].take().expect("it was submitted");
        let now = MonotonicClock.now();
        if status != 0 {
            self.fault(format!(
                "{:?} of {} bytes at {} ended with status {status}",
                request.kind, request.bytes, request.offset
            ));
        } else if request.kind == Kind::Write && self.order.work.flush {
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
        let counted = status == 0 && now >= self.counts_from;
        if counted && self.ends.is_none_or(|end| now <= end) {
            let latency = now.since(begun).as_nanos();
            self.measured.requests += 1;
            self.measured.bytes += bytes_u64(request.bytes);
            let latency = u64::try_from(latency).unwrap_or(u64::MAX);
            self.measured.latency.add(latency);
        }
    }

    /// Ends a request in the book, and compares what was read.
    fn check(&mut self, slot: usize, request: &Request, status: u8) {
        let Some(book) = &mut self.book else { return };
        book.end(request);
        if status != 0 || request.kind != Kind::Read {
            return;
        }
        self.device.get(slot, &mut self.buffer);
        match book.check(request, &self.buffer) {
            Ok(()) => self.measured.verified_bytes += bytes_u64(request.bytes),
            Err(wrong) => self.fault(wrong),
        }
    }

    fn fault(&mut self, text: String) {
        self.measured.errors += 1;
        self.measured.first_error.get_or_insert(text);
    }

    /// A random number below `end` (xorshift; good enough to choose blocks).
    fn random(&mut self, end: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) % end
    }
}
