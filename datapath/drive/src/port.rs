//! One reactor's door to all drives.
//!
//! Requests are taken by `submit`, handed to the kernel together by the next `poll`, and answered
//! by that or a later `poll`, each exactly once. Memory and null drives answer without the kernel.
//! What does not live here: the ring itself (`uring.rs`), and what to do about a failed drive.

mod commands;
mod delayed;
mod joined;
mod keys;
mod paused;
mod rings;
mod tasks;
#[cfg(test)]
mod tests;
mod touched;
mod watches;
mod work;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use block::{Completion, Cookie, Full, Operation, Status};
use memory::SegmentList;
use units::{Clock, DriveIndex, Instant, MonotonicClock, limits};

use crate::counters::{DriveCounters, PortCounters};
use crate::drive::Drive;
use crate::error::PortError;
use crate::fault::Access;
use crate::mapping::Mapping;
use crate::pins::Pins;
use crate::uring::{Answer, Handle};
use delayed::DelayedAnswers;
use joined::Run;
use keys::Key;
use paused::Paused;
use rings::Rings;
use tasks::{Buffers, Stage, Task, Tasks};
use touched::Touched;
use watches::Watches;
use work::{Begun, ZEROES_BYTES};

/// What is asked of a drive.
#[derive(Clone, Copy, Debug)]
pub struct DriveRequest {
    /// Which drive.
    pub drive: DriveIndex,
    /// Which kind.
    pub operation: Operation,
    /// First byte; a multiple of the drive's block size. Ignored by `Flush`.
    pub offset: u64,
    /// Bytes; a multiple of the drive's block size. Ignored by `Flush`.
    pub length: u64,
    /// Where `length` bytes are or go, of any alignment; empty but for `Read` and `Write`.
    pub segments: SegmentList,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl DriveRequest {
    fn access(&self) -> Access {
        let is_flush = self.operation == Operation::Flush;
        Access {
            operation: self.operation,
            offset: if is_flush { 0 } else { self.offset },
            length: if is_flush { 0 } else { self.length },
        }
    }
}

/// How large a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Requests taken and not yet answered, at most.
    pub requests: u32,
    /// Buffers for requests whose memory is not aligned enough for their drive.
    pub bounce_buffers: u16,
    /// Bytes of each of them: a multiple of 4096. They take memory when first used.
    pub bounce_bytes: usize,
    /// Bytes of one operation of requests that follow each other, at most; 0: none are joined.
    pub joined_bytes_max: u64,
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions {
            requests: limits::PORT_REQUESTS,
            bounce_buffers: 32,
            bounce_bytes: 2 * limits::LARGE_BUFFER_BYTES,
            joined_bytes_max: limits::JOINED_BYTES_MAX,
        }
    }
}

/// A drive as one port knows it.
struct Seat {
    drive: Arc<Drive>,
    handle: Option<Handle>,
    /// Tasks of this drive that hold a slot.
    busy: u32,
    /// Detached; everything is answered `Gone`.
    leaving: bool,
    /// What came last in this turn and may go on: writes, reads.
    runs: [Run; 2],
    counters: DriveCounters,
}

/// A request of a memory drive that waits for the next poll.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    seat: u16,
    request: DriveRequest,
    /// It is a write that goes past the caches.
    streams: bool,
    begun: Instant,
}

/// One reactor's door to all drives.
///
/// It may be made on any thread, and belongs to the one that first polls it. Dropping it waits for
/// what the kernel still works on, because the kernel writes to memory of the askers; drop it on
/// its own thread.
pub struct Port {
    rings: Rings,
    tasks: Tasks,
    buffers: Buffers,
    zeroes: Mapping,
    seats: Vec<Option<Seat>>,
    /// The seat of each drive index.
    seat_of: Vec<Option<u16>>,
    /// Tasks that can go to the kernel as soon as it has room.
    ready: VecDeque<u32>,
    /// Tasks that need a bounce buffer first.
    starved: VecDeque<u32>,
    /// Tasks whose drive wants to be left alone for a while.
    paused: Paused,
    /// What memory drives were asked since the last poll: the poll copies, when the first bytes of
    /// all of them are on their way into the cache.
    copies: Vec<Waiting>,
    touched: Touched,
    /// Answers that the next poll gives out.
    finished: Vec<Completion>,
    delayed: DelayedAnswers,
    watches: Watches,
    answers: Vec<Answer>,
    in_kernel: usize,
    /// Counts the times that tasks were handed over, from 1 on.
    turn: u64,
    joined_bytes_max: u64,
    starved_times: u64,
    joined_times: u64,
    parted_times: u64,
    clock: MonotonicClock,
    now: Instant,
    /// The caller said what time it is, since the last poll.
    told: bool,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("mode", &self.rings.mode())
            .field("pending", &self.pending())
            .field("in_kernel", &self.in_kernel)
            .finish_non_exhaustive()
    }
}

impl Port {
    /// Makes a door with its ring and its buffers.
    ///
    /// # Errors
    /// When the kernel refuses `io_uring` (the error names the fix), is too old, or has no memory.
    ///
    /// # Panics
    /// When the options are out of bounds: no requests, or buffers that are no multiple of 4096.
    pub fn new(options: PortOptions) -> Result<Port, PortError> {
        let entries = options.requests.max(64).next_power_of_two();
        let entries = entries.min(limits::URING_ENTRIES);
        Port::with_rings(Rings::new(entries)?, options)
    }

    fn with_rings(rings: Rings, options: PortOptions) -> Result<Port, PortError> {
        assert!(options.requests > 0 && options.bounce_buffers > 0);
        assert!(options.bounce_bytes > 0 && options.bounce_bytes.is_multiple_of(4096));
        if let Some(missing) = rings.plain.missing() {
            return Err(PortError::too_old(missing));
        }
        let requests = keys::at(options.requests);
        let buffers = Buffers::new(options.bounce_buffers, options.bounce_bytes);
        let zeroes = Mapping::new(units::bytes_usize(ZEROES_BYTES));
        Ok(Port {
            rings,
            tasks: Tasks::new(requests),
            buffers: buffers.map_err(PortError::memory)?,
            zeroes: zeroes.map_err(PortError::memory)?,
            seats: Vec::new(),
            seat_of: vec![None; limits::DRIVES_MAX],
            ready: VecDeque::with_capacity(requests),
            starved: VecDeque::with_capacity(requests),
            paused: Paused::new(requests),
            copies: Vec::with_capacity(requests),
            touched: Touched::new(),
            finished: Vec::with_capacity(requests),
            delayed: DelayedAnswers::new(),
            watches: Watches::default(),
            answers: Vec::with_capacity(4 * requests),
            in_kernel: 0,
            joined_bytes_max: options.joined_bytes_max,
            turn: 1,
            starved_times: 0,
            joined_times: 0,
            parted_times: 0,
            clock: MonotonicClock,
            now: MonotonicClock.now(),
            told: false,
        })
    }

    /// Makes a drive reachable under a number.
    ///
    /// # Errors
    /// When the drive is the first that takes commands, and the kernel refuses a ring for them.
    ///
    /// # Panics
    /// When the number is taken, or not below [`limits::DRIVES_MAX`].
    pub fn attach(&mut self, index: DriveIndex, drive: Arc<Drive>) -> Result<(), PortError> {
        assert!(self.seat_of[index.at()].is_none(), "{index} is attached");
        // One operation of each task is under way at a time.
        self.rings.prepare(&drive, self.tasks.capacity())?;
        let free = self.seats.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() - 1
        });
        self.delayed.make_room(place);
        let handle = self.rings.register(&drive, place);
        self.seats[place] = Some(Seat {
            drive,
            handle,
            busy: 0,
            leaving: false,
            runs: [Run::default(); 2],
            counters: DriveCounters::default(),
        });
        let place = u16::try_from(place).expect("seats are about as many as drives");
        self.seat_of[index.at()] = Some(place);
        Ok(())
    }

    /// Takes a drive away. Its pending requests, and later ones to this number, are answered
    /// `Gone`: at once, except those the kernel works on, which are answered when it lets go of
    /// their memory. Does nothing when the number is not attached.
    pub fn detach(&mut self, index: DriveIndex) {
        let Some(place) = self.seat_of.get_mut(index.at()).and_then(Option::take) else {
            return;
        };
        self.copy_waiting();
        self.seat(place).leaving = true;
        let gone = self.delayed.leave(place).map(|completion| Completion {
            status: Status::Gone,
            ..completion
        });
        self.finished.extend(gone);
        let queued = self
            .tasks
            .find(|task| task.seat == place && task.stage == Stage::Queued);
        self.ready.retain(|slot| !queued.contains(slot));
        self.starved.retain(|slot| !queued.contains(slot));
        self.paused.leave(&queued);
        for slot in queued {
            self.finish(slot, Status::Gone);
        }
        self.leave_if_idle(place);
    }

    /// Replaces the pinned memory of which requests may make use. Those under way keep theirs.
    pub fn set_pins(&mut self, pins: Arc<Pins>) {
        self.rings.plain.set_pins(pins);
    }

    /// How many requests can be taken now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.tasks.capacity() - self.pending()
    }

    /// Requests taken and not yet answered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.tasks.busy() + self.copies.len() + self.finished.len() + self.delayed.len()
    }

    /// Whether what an attached drive has answered is durable, so that a flush of it would do
    /// nothing; no drive of which a test wants something says so.
    #[must_use]
    #[inline]
    pub fn keeps_all(&self, index: DriveIndex) -> bool {
        let place = self.seat_of.get(index.at()).copied().flatten();
        let seat = place.and_then(|place| self.seats[usize::from(place)].as_ref());
        seat.is_some_and(|seat| {
            let drive = &seat.drive;
            !seat.leaving && !drive.has_volatile_cache() && !drive.faults().armed()
        })
    }

    /// What was counted for an attached drive.
    #[must_use]
    pub fn counters(&self, index: DriveIndex) -> Option<&DriveCounters> {
        let place = (*self.seat_of.get(index.at())?)?;
        let seat = self.seats[usize::from(place)].as_ref()?;
        Some(&seat.counters)
    }

    /// What the port did in all.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        PortCounters {
            starved: self.starved_times,
            joined: self.joined_times,
            parted: self.parted_times,
            ..self.rings.counters()
        }
    }

    /// Spares the port a look at the clock: what is submitted until the next poll began now.
    pub fn tell_time(&mut self, now: Instant) {
        self.now = now;
        self.told = true;
    }

    /// When the port looked at the clock last, or was told.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Takes a request; its answer comes from a later [`Port::poll`]. Never blocks.
    ///
    /// The asker keeps list and memory of the segments until then.
    ///
    /// # Errors
    /// Gives the request back when no slot is free.
    pub fn submit(&mut self, request: DriveRequest) -> Result<(), Full<DriveRequest>> {
        let pending = self.pending();
        if pending == self.tasks.capacity() {
            return Err(Full(request));
        }
        if pending == 0 && !self.told {
            // Later ones of a turn share the time of the last poll that had answers.
            self.now = self.clock.now();
        }
        let place = self.seat_of.get(request.drive.at()).copied().flatten();
        let Some(place) = place else {
            let (cookie, status) = (request.cookie, Status::Gone);
            self.finished.push(Completion { cookie, status });
            return Ok(());
        };
        match self.begin(place, &request) {
            Begun::Answered(status) => {
                let begun = self.now;
                self.answer(place, &request, begun, status);
            }
            Begun::Copy { streams } => self.copies.push(Waiting {
                seat: place,
                request,
                streams,
                begun: self.now,
            }),
            Begun::Kernel(method) => {
                self.seat(place).busy += 1;
                let slot = self.tasks.acquire(Task {
                    request,
                    seat: place,
                    method,
                    stage: Stage::Queued,
                    done: 0,
                    buffer: None,
                    next: None,
                    tries: 0,
                    pinned: false,
                    begun: self.now,
                });
                self.queue(slot);
            }
        }
        Ok(())
    }

    /// Hands everything submitted since the last call to the kernel, in one call for what becomes
    /// commands and one for all else, and appends what is finished to `done`. Returns how many were
    /// appended. Never sleeps, and makes no system call when there is nothing to hand over and
    /// nothing to fetch.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.copy_waiting();
        self.start_ready();
        self.rings.turn();
        self.collect();
        let finished = self.finished.len();
        done.append(&mut self.finished);
        self.told = false;
        finished
    }

    /// Wakes [`Port::wait`] when `fd` is readable, for as long as it is. The fd stays open until
    /// [`Port::unwatch`]; tokens are the caller's own, and come back from [`Port::fired`].
    pub fn watch(&mut self, fd: RawFd, token: u64) {
        self.watches.add(fd, token);
    }

    /// Ends the watches of a token.
    pub fn unwatch(&mut self, token: u64) {
        self.watches.remove(token, &mut self.rings.plain);
        // Now, because the caller may close the descriptor and sleep in something else.
        self.rings.plain.turn();
    }

    /// Appends the tokens of watches that fired since the last call. Those are armed again by the
    /// next [`Port::wait`].
    pub fn fired(&mut self, tokens: &mut Vec<u64>) {
        self.watches.take_fired(tokens);
    }

    /// The token of a watch that fired because the kernel cannot watch its descriptor; it has
    /// ended. Each is told once.
    pub fn lost(&mut self) -> Option<u64> {
        self.watches.take_lost()
    }

    /// Sleeps, in one system call, until a request is finished, a watched fd is readable, a signal
    /// comes, or the limit is over; not at all when there is something to collect already. What
    /// happened is told by [`Port::poll`] and [`Port::fired`].
    ///
    /// Whether all watches were armed for it. Those that have not fired stay armed: also while
    /// the caller is awake, a later `poll` or `wait` has them among `fired`.
    pub fn wait(&mut self, limit: Option<Duration>) -> bool {
        self.copy_waiting();
        if !self.finished.is_empty() || self.watches.any_fired() {
            return false;
        }
        self.start_ready();
        let armed = self.watches.arm(&mut self.rings.plain);
        if armed && self.ready.is_empty() {
            let limit = self.until_due(limit);
            self.rings.sleep(limit);
        } else {
            // A ring was too small for all; this makes room.
            self.rings.turn();
        }
        self.collect();
        armed
    }

    fn seat(&mut self, place: u16) -> &mut Seat {
        self.seats[usize::from(place)]
            .as_mut()
            .expect("a seat stays while it is used")
    }

    /// Hands queued tasks over while there is room.
    fn start_ready(&mut self) {
        self.turn += 1;
        while self.buffers.any_free()
            && let Some(slot) = self.starved.pop_front()
        {
            self.start(slot);
        }
        for _ in 0..self.ready.len() {
            let slot = self.ready.pop_front().expect("counted");
            self.start(slot);
        }
    }

    /// Takes the kernel's answers and the answers that are due.
    fn collect(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        self.rings.reap(&mut answers);
        // A look at the clock only for what is answered by it: most turns wait for drives.
        let waits = !self.delayed.is_empty() || !self.paused.is_empty();
        if waits || !answers.is_empty() || !self.finished.is_empty() {
            self.now = self.clock.now();
        }
        for answer in answers.drain(..) {
            match Key::decode(answer.key) {
                Key::Ignored | Key::Commands => {}
                Key::Watch(place) => self.watches.answered(place, answer.result),
                Key::Task(slot) => self.advance(slot, answer.result),
            }
        }
        self.answers = answers;
        self.delayed.take_due(self.now, &mut self.finished);
        if !self.paused.is_empty() {
            self.paused.take_due(self.now, &mut self.ready);
        }
    }

    /// A task is over: its slot and buffer are free again, its request is answered.
    fn finish(&mut self, slot: u32, status: Status) {
        let task = self.tasks.release(slot);
        assert_eq!(task.stage, Stage::Queued, "the kernel still has it");
        if let Some(buffer) = task.buffer {
            self.buffers.release(buffer);
        }
        self.seat(task.seat).busy -= 1;
        self.answer(task.seat, &task.request, task.begun, status);
        self.leave_if_idle(task.seat);
    }

    /// Counts an answer and gives it out, now or when a fault lets it.
    fn answer(&mut self, place: u16, request: &DriveRequest, begun: Instant, status: Status) {
        let now = self.now;
        let seat = self.seat(place);
        let (status, delay) = if seat.leaving {
            (Status::Gone, Duration::ZERO)
        } else {
            // Only drives without a kernel behind them have a pace: answered as they begin.
            let pause = seat.drive.pause(begun, &request.access(), status);
            let (status, delay) = seat.drive.faults().after(&request.access(), status);
            (status, delay.max(pause))
        };
        let cookie = request.cookie;
        let completion = Completion { cookie, status };
        let latency = now.since(begun).max(delay);
        seat.counters.count(&request.access(), status, latency);
        if delay.is_zero() {
            self.finished.push(completion);
        } else {
            let kind = (place, request.operation == Operation::Read);
            self.delayed.push(kind, begun + delay, completion);
        }
    }

    /// The limit of a sleep, or less when a delayed answer or a paused task is due before.
    fn until_due(&self, limit: Option<Duration>) -> Option<Duration> {
        let next = self.delayed.next().into_iter().chain(self.paused.next());
        let until = next.min().map(|due| due.since(self.clock.now()));
        limit.into_iter().chain(until).min()
    }

    /// Lets go of a detached drive when nothing of it is left.
    fn leave_if_idle(&mut self, place: u16) {
        // With the last answer of a detached drive it has left already.
        let Some(seat) = &self.seats[usize::from(place)] else {
            return;
        };
        if !seat.leaving || seat.busy > 0 {
            return;
        }
        if let Some(handle) = seat.handle {
            self.rings.unregister(&seat.drive, handle);
        }
        self.seats[usize::from(place)] = None;
    }

    /// Sleeps until the kernel has no operation of ours: it writes into memory of the askers and of
    /// the port, and must be done before they go. Nothing is answered or continued any more.
    fn wait_for_kernel(&mut self) {
        while self.in_kernel > 0 {
            self.rings.sleep(None);
            let mut answers = std::mem::take(&mut self.answers);
            self.rings.reap(&mut answers);
            let ended = answers
                .drain(..)
                .filter(|answer| matches!(Key::decode(answer.key), Key::Task(_)))
                .count();
            self.in_kernel -= ended;
            self.answers = answers;
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.wait_for_kernel();
        self.rings.unregister_all();
    }
}
