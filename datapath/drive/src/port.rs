//! One reactor's door to all drives.
//!
//! Requests are taken by `submit`, handed to the kernel together by the next `poll`, and answered by
//! that or a later `poll`, each exactly once. Memory and null drives answer without the kernel. What
//! does not live here: the ring itself (`uring.rs`), and what to do about a failed drive.

mod keys;
mod tasks;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use block::{Completion, Cookie, Full, Operation, Status};
use memory::SegmentList;
use units::{Clock, DriveIndex, Instant, MonotonicClock, limits};

use crate::counters::{DriveCounters, PortCounters};
use crate::drive::{Backing, Drive};
use crate::errno::{Verdict, verdict};
use crate::error::PortError;
use crate::fault::Access;
use crate::info::DriveKind;
use crate::mapping::Mapping;
use crate::uring::{Answer, Direction, Handle, Ring, Transfer};
use keys::Key;
use tasks::{Buffers, Method, Stage, Task, Tasks};
use watches::Watches;

/// Answers without progress after which a request is given up.
const TRIES_MAX: u16 = 1000;
/// Bytes of zeroes written at once where a drive cannot zero by itself.
const ZEROES_BYTES: u64 = 1 << 20;
/// Drives that may still be leaving while others take their numbers.
const LEAVING_MAX: usize = 64;

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
    /// Where the bytes are or go: for `Read` and `Write` exactly `length` bytes, of any alignment;
    /// else empty.
    pub segments: SegmentList,
    /// Comes back in the completion.
    pub cookie: Cookie,
}

impl DriveRequest {
    fn access(&self) -> Access {
        let (offset, length) = match self.operation {
            Operation::Flush => (0, 0),
            Operation::Read | Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                (self.offset, self.length)
            }
        };
        Access {
            operation: self.operation,
            offset,
            length,
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
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions {
            requests: limits::URING_ENTRIES,
            bounce_buffers: 32,
            bounce_bytes: 2 * limits::LARGE_BUFFER_BYTES,
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
    counters: DriveCounters,
}

/// An answer that an ordered fault holds back.
struct Delayed {
    due: Instant,
    seat: u16,
    completion: Completion,
}

/// One reactor's door to all drives.
///
/// It may be made on any thread, and belongs to the one that first polls it. Dropping it waits for
/// what the kernel still works on, because the kernel writes to memory of the askers; drop it on its
/// own thread.
pub struct Port {
    ring: Ring,
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
    /// Answers that the next poll gives out.
    finished: Vec<Completion>,
    delayed: Vec<Delayed>,
    watches: Watches,
    answers: Vec<Answer>,
    in_kernel: usize,
    starved_times: u64,
    clock: MonotonicClock,
    now: Instant,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("mode", &self.ring.mode())
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
        let files = limits::DRIVES_MAX + LEAVING_MAX;
        let operations = options.requests.max(64).next_power_of_two();
        let ring = Ring::new(operations, keys::place(files))?;
        Port::with_ring(ring, options)
    }

    fn with_ring(ring: Ring, options: PortOptions) -> Result<Port, PortError> {
        assert!(options.requests > 0 && options.bounce_buffers > 0);
        assert!(options.bounce_bytes > 0 && options.bounce_bytes.is_multiple_of(4096));
        if let Some(missing) = ring.missing() {
            return Err(PortError::too_old(missing));
        }
        let requests = keys::at(options.requests);
        let buffers = Buffers::new(options.bounce_buffers, options.bounce_bytes);
        let zeroes = Mapping::new(units::bytes_usize(ZEROES_BYTES));
        Ok(Port {
            ring,
            tasks: Tasks::new(requests),
            buffers: buffers.map_err(PortError::memory)?,
            zeroes: zeroes.map_err(PortError::memory)?,
            seats: Vec::new(),
            seat_of: vec![None; limits::DRIVES_MAX],
            ready: VecDeque::with_capacity(requests),
            starved: VecDeque::with_capacity(requests),
            finished: Vec::with_capacity(requests),
            delayed: Vec::with_capacity(requests),
            watches: Watches::default(),
            answers: Vec::with_capacity(4 * requests),
            in_kernel: 0,
            starved_times: 0,
            clock: MonotonicClock,
            now: MonotonicClock.now(),
        })
    }

    /// Makes a drive reachable under a number.
    ///
    /// # Panics
    /// When the number is taken, or not below [`limits::DRIVES_MAX`].
    pub fn attach(&mut self, index: DriveIndex, drive: Arc<Drive>) {
        assert!(self.seat_of[index.at()].is_none(), "{index} is attached");
        let free = self.seats.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() - 1
        });
        let handle = drive
            .fd()
            .map(|fd| self.ring.register(keys::place(place), fd));
        self.seats[place] = Some(Seat {
            drive,
            handle,
            busy: 0,
            leaving: false,
            counters: DriveCounters::default(),
        });
        let place = u16::try_from(place).expect("seats are about as many as drives");
        self.seat_of[index.at()] = Some(place);
    }

    /// Takes a drive away. Its pending requests, and later ones to this number, are answered `Gone`:
    /// at once, except those the kernel works on, which are answered when it lets go of their
    /// memory. Does nothing when the number is not attached.
    pub fn detach(&mut self, index: DriveIndex) {
        let Some(place) = self.seat_of.get_mut(index.at()).and_then(Option::take) else {
            return;
        };
        self.seat(place).leaving = true;
        let mut at = 0;
        while at < self.delayed.len() {
            if self.delayed[at].seat == place {
                let cookie = self.delayed.swap_remove(at).completion.cookie;
                let status = Status::Gone;
                self.finished.push(Completion { cookie, status });
            } else {
                at += 1;
            }
        }
        let queued = self
            .tasks
            .find(|task| task.seat == place && task.stage == Stage::Queued);
        self.ready.retain(|slot| !queued.contains(slot));
        self.starved.retain(|slot| !queued.contains(slot));
        for slot in queued {
            self.finish(slot, Status::Gone);
        }
        self.leave_if_idle(place);
    }

    /// How many requests can be taken now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.tasks.capacity() - self.pending()
    }

    /// Requests taken and not yet answered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.tasks.busy() + self.finished.len() + self.delayed.len()
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
            ..self.ring.counters()
        }
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
        if pending == 0 {
            // Later ones of a turn share the time of the last poll.
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
            Begun::Kernel(method) => {
                self.seat(place).busy += 1;
                let slot = self.tasks.acquire(Task {
                    request,
                    seat: place,
                    method,
                    stage: Stage::Queued,
                    done: 0,
                    buffer: None,
                    tries: 0,
                    begun: self.now,
                });
                self.start(slot);
            }
        }
        Ok(())
    }

    /// Hands everything submitted since the last call to the kernel in one call, and appends what is
    /// finished to `done`. Returns how many were appended. Never sleeps, and makes no system call
    /// when there is nothing to hand over and nothing to fetch.
    pub fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.start_ready();
        self.ring.turn();
        self.collect();
        let finished = self.finished.len();
        done.append(&mut self.finished);
        finished
    }

    /// Wakes [`Port::wait`] when `fd` is readable, for as long as it is. The fd stays open until
    /// [`Port::unwatch`]; tokens are the caller's own, and come back from [`Port::fired`].
    pub fn watch(&mut self, fd: RawFd, token: u64) {
        self.watches.add(fd, token);
    }

    /// Ends the watches of a token.
    pub fn unwatch(&mut self, token: u64) {
        self.watches.remove(token, &mut self.ring);
        // Now, because the caller may close the descriptor and sleep in something else.
        self.ring.turn();
    }

    /// Appends the tokens of watches that fired since the last call.
    pub fn fired(&mut self, tokens: &mut Vec<u64>) {
        self.watches.take_fired(tokens);
    }

    /// Sleeps, in one system call, until a request is finished, a watched fd is readable, a signal
    /// comes, or the limit is over; not at all when there is something to collect already. What
    /// happened is told by [`Port::poll`] and [`Port::fired`].
    pub fn wait(&mut self, limit: Option<Duration>) {
        if !self.finished.is_empty() || self.watches.any_fired() {
            return;
        }
        self.start_ready();
        let armed = self.watches.arm(&mut self.ring);
        if armed && self.ready.is_empty() && self.finished.is_empty() {
            let limit = self.until_due(limit);
            self.ring.sleep(limit);
        } else {
            // The ring was too small for all; this makes room.
            self.ring.turn();
        }
        self.collect();
    }

    fn seat(&mut self, place: u16) -> &mut Seat {
        self.seats[usize::from(place)]
            .as_mut()
            .expect("a seat stays while it is used")
    }

    /// Decides what becomes of a new request; carries it out when that needs no kernel.
    fn begin(&mut self, place: u16, request: &DriveRequest) -> Begun {
        let seat = self.seats[usize::from(place)]
            .as_ref()
            .expect("a seat stays while it is used");
        let drive = &*seat.drive;
        let access = request.access();
        let checked = drive.check_range(access.offset, access.length);
        if !checked.is_ok() {
            return Begun::Answered(checked);
        }
        let method = match request.operation {
            Operation::Read | Operation::Write => {
                let needs = drive.info();
                match fit(request, needs.memory_align, needs.length_align()) {
                    Fit::Direct => Method::Direct,
                    Fit::Misaligned => Method::Bounce,
                    Fit::WrongLength => return Begun::Answered(Status::Invalid),
                }
            }
            Operation::Flush => Method::Flush,
            Operation::Discard if !drive.info().can_discard => {
                return Begun::Answered(drive.faults().before(&access));
            }
            Operation::WriteZeroes if !drive.info().can_write_zeroes => Method::Zeroes,
            Operation::Discard | Operation::WriteZeroes => Method::Punch,
        };
        let allowed = drive.faults().before(&access);
        let nothing = access.length == 0 && request.operation != Operation::Flush;
        if !allowed.is_ok() || nothing {
            return Begun::Answered(allowed);
        }
        match drive.backing() {
            Backing::Kernel(_) => Begun::Kernel(method),
            Backing::Memory(memory) => {
                perform(memory, request);
                Begun::Answered(Status::Ok)
            }
            Backing::Null => Begun::Answered(Status::Ok),
        }
    }

    /// Hands a queued task to the kernel, or puts it into the queue for what it lacks.
    fn start(&mut self, slot: u32) {
        let task = self.tasks.get(slot);
        if task.method == Method::Bounce && task.buffer.is_none() {
            let Some(buffer) = self.buffers.acquire() else {
                self.starved_times += 1;
                self.starved.push_back(slot);
                return;
            };
            task.buffer = Some(buffer);
        }
        match self.hand_over(slot) {
            Some(bytes) => {
                self.in_kernel += 1;
                self.tasks.get(slot).stage = Stage::InKernel { bytes };
            }
            None => self.ready.push_back(slot),
        }
    }

    /// Starts the next operation of a task. Returns its bytes, or none when the ring is full.
    fn hand_over(&mut self, slot: u32) -> Option<u64> {
        let task = self.tasks.get(slot);
        let seat = self.seats[usize::from(task.seat)]
            .as_mut()
            .expect("a seat stays while it is used");
        let handle = seat.handle.expect("only files have tasks");
        let key = Key::Task(slot).encode();
        let request = &task.request;
        let transfer = Transfer {
            direction: if task.reads() {
                Direction::Read
            } else {
                Direction::Write
            },
            handle,
            offset: request.offset + task.done,
            key,
        };
        let left = task.left().min(seat.drive.info().transfer_bytes_max);
        let done = units::bytes_usize(task.done);
        match task.method {
            Method::Direct => {
                let length = units::bytes_usize(left);
                let bytes = self
                    .ring
                    .start_list(transfer, &request.segments, done, length)?;
                Some(units::bytes_u64(bytes))
            }
            Method::Bounce => {
                let length = units::bytes_usize(left).min(self.buffers.bytes());
                let buffer = task.buffer.expect("acquired before");
                let segment = self.buffers.segment(buffer, length);
                if !task.reads() {
                    request.segments.copy_to(done, segment);
                }
                let bytes = units::bytes_u64(length);
                let started = self.ring.start_segment(transfer, segment);
                if started {
                    seat.counters.bounced_bytes += bytes;
                }
                started.then_some(bytes)
            }
            Method::Zeroes => {
                let bytes = left.min(ZEROES_BYTES);
                let segment = self.zeroes.segment(0, units::bytes_usize(bytes));
                let started = self.ring.start_segment(transfer, segment);
                started.then_some(bytes)
            }
            Method::Flush => self.ring.start_flush(handle, key).then_some(0),
            Method::Punch => {
                let mode = punch_mode(seat.drive.info().kind, request.operation);
                let range = (request.offset, request.length);
                let started = self.ring.start_fallocate(handle, mode, range, key);
                started.then_some(request.length)
            }
        }
    }

    /// Hands queued tasks over while there is room.
    fn start_ready(&mut self) {
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
        if self.pending() > 0 {
            self.now = self.clock.now();
        }
        let mut answers = std::mem::take(&mut self.answers);
        self.ring.reap(&mut answers);
        for answer in answers.drain(..) {
            match Key::decode(answer.key) {
                Key::Ignored => {}
                Key::Watch(place) => self.watches.answered(place, answer.result),
                Key::Task(slot) => self.advance(slot, answer.result),
            }
        }
        self.answers = answers;
        if !self.delayed.is_empty() {
            self.give_due();
        }
    }

    /// The kernel's operation of a task is over: the task ends, goes on, or tries again.
    fn advance(&mut self, slot: u32, result: i32) {
        self.in_kernel -= 1;
        let task = self.tasks.get(slot);
        let Stage::InKernel { bytes } = task.stage else {
            unreachable!("the kernel answers once per operation");
        };
        task.stage = Stage::Queued;
        let place = task.seat;
        if self.seat(place).leaving {
            self.finish(slot, Status::Gone);
            return;
        }
        match u64::try_from(result) {
            Ok(moved) => self.progress(slot, bytes, moved),
            Err(_) => self.failed(slot, -result),
        }
    }

    /// `moved` bytes of an operation of `bytes` went through.
    fn progress(&mut self, slot: u32, bytes: u64, moved: u64) {
        let task = self.tasks.get(slot);
        match task.method {
            // Their answer is not a count.
            Method::Flush | Method::Punch => return self.finish(slot, Status::Ok),
            Method::Direct | Method::Bounce | Method::Zeroes => {}
        }
        assert!(moved <= bytes, "{moved} of {bytes} bytes were moved");
        let done = task.done + moved;
        let mut whole = done;
        if moved < bytes {
            let seat = self.seats[usize::from(task.seat)].as_mut();
            let seat = seat.expect("a seat stays while it is used");
            seat.counters.continued += 1;
            // Direct I/O can only go on at a whole block.
            let align = seat.drive.info().length_align();
            whole = done / align * align;
        }
        if task.method == Method::Bounce && task.reads() {
            let came = units::bytes_usize(whole.saturating_sub(task.done));
            let buffer = task.buffer.expect("held until the end");
            let source = self.buffers.segment(buffer, came);
            let at = units::bytes_usize(task.done);
            task.request.segments.copy_from(at, source);
        }
        if whole <= task.done {
            // Nothing came where the file should go on: somebody cut it off.
            return self.finish(slot, Status::Media);
        }
        task.done = whole;
        task.tries = 0;
        if task.left() == 0 {
            self.finish(slot, Status::Ok);
        } else {
            self.ready.push_back(slot);
        }
    }

    /// An operation failed with a positive error number.
    fn failed(&mut self, slot: u32, errno: i32) {
        let task = self.tasks.get(slot);
        let status = match verdict(errno) {
            Verdict::Final(status) => status,
            Verdict::Again if task.tries < TRIES_MAX => {
                task.tries += 1;
                self.ready.push_back(slot);
                return;
            }
            Verdict::Again => Status::Media,
            Verdict::NotSupported => match task.request.operation {
                // Old content is allowed after a discard.
                Operation::Discard => Status::Ok,
                Operation::WriteZeroes if task.method == Method::Punch => {
                    task.method = Method::Zeroes;
                    self.ready.push_back(slot);
                    return;
                }
                Operation::Read | Operation::Write | Operation::Flush | Operation::WriteZeroes => {
                    Status::Unsupported
                }
            },
        };
        self.finish(slot, status);
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
            seat.drive.faults().after(&request.access(), status)
        };
        let cookie = request.cookie;
        let completion = Completion { cookie, status };
        count(
            &mut seat.counters,
            request,
            status,
            now.since(begun).max(delay),
        );
        if delay.is_zero() {
            self.finished.push(completion);
        } else {
            let due = begun + delay;
            self.delayed.push(Delayed {
                due,
                seat: place,
                completion,
            });
        }
    }

    /// Moves delayed answers that are due to the finished ones.
    fn give_due(&mut self) {
        let now = self.now;
        let finished = &mut self.finished;
        self.delayed.retain(|delayed| {
            let wait = delayed.due > now;
            if !wait {
                finished.push(delayed.completion);
            }
            wait
        });
    }

    /// The limit of a sleep, or less when a delayed answer is due before.
    fn until_due(&self, limit: Option<Duration>) -> Option<Duration> {
        let Some(due) = self.delayed.iter().map(|delayed| delayed.due).min() else {
            return limit;
        };
        let until = due.since(self.clock.now());
        Some(limit.map_or(until, |limit| limit.min(until)))
    }

    /// Lets go of a detached drive when nothing of it is left.
    fn leave_if_idle(&mut self, place: u16) {
        let seat = self.seat(place);
        if !seat.leaving || seat.busy > 0 {
            return;
        }
        let handle = seat.handle;
        if let Some(handle) = handle {
            self.ring.unregister(handle);
        }
        self.seats[usize::from(place)] = None;
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // The kernel writes into memory of the askers and ours: it must be done before they go.
        while self.in_kernel > 0 {
            self.ring.sleep(None);
            let mut answers = std::mem::take(&mut self.answers);
            self.ring.reap(&mut answers);
            let ended = answers
                .drain(..)
                .filter(|answer| matches!(Key::decode(answer.key), Key::Task(_)))
                .count();
            self.in_kernel -= ended;
        }
        self.ring.unregister_all();
    }
}

/// What became of a new request.
enum Begun {
    /// It is over.
    Answered(Status),
    /// The kernel is to do it.
    Kernel(Method),
}

/// How well the memory of a transfer fits its drive.
enum Fit {
    Direct,
    Misaligned,
    WrongLength,
}

fn fit(request: &DriveRequest, memory_align: u64, length_align: u64) -> Fit {
    let mut bytes: u64 = 0;
    let mut odd = 0;
    for segment in request.segments.as_slice() {
        let length = units::bytes_u64(segment.len());
        bytes = bytes.saturating_add(length);
        odd |= units::bytes_u64(segment.address().addr()) & (memory_align - 1);
        odd |= length & (length_align - 1);
    }
    match (bytes == request.length, odd == 0) {
        (true, true) => Fit::Direct,
        (true, false) => Fit::Misaligned,
        (false, _) => Fit::WrongLength,
    }
}

/// Carries out a request on memory. Two reactors may race on a block as two processes may on a real
/// drive; the bytes are raw, so the race is on their values only.
fn perform(memory: &Mapping, request: &DriveRequest) {
    let offset = units::bytes_usize(request.offset);
    let length = units::bytes_usize(request.length);
    match request.operation {
        Operation::Read => {
            let source = memory.segment(offset, length);
            request.segments.copy_from(0, source);
        }
        Operation::Write => {
            let target = memory.segment(offset, length);
            request.segments.copy_to(0, target);
        }
        Operation::Discard | Operation::WriteZeroes => memory.zero(offset, length),
        Operation::Flush => {}
    }
}

/// How a range is emptied. For files both kinds punch a hole, which reads as zeroes. For block
/// devices punching is zeroing with leave to unmap, refused where that is not to be had, and zeroing
/// is done by the kernel with writes if need be. So neither ever leaves other than zeroes or, for a
/// discard that is refused, the old content.
fn punch_mode(kind: DriveKind, operation: Operation) -> i32 {
    let how = match (kind, operation) {
        (DriveKind::BlockDevice, Operation::WriteZeroes) => libc::FALLOC_FL_ZERO_RANGE,
        _ => libc::FALLOC_FL_PUNCH_HOLE,
    };
    how | libc::FALLOC_FL_KEEP_SIZE
}

fn count(counters: &mut DriveCounters, request: &DriveRequest, status: Status, latency: Duration) {
    match status {
        Status::Ok => {}
        Status::Media => counters.media_errors += 1,
        Status::Gone => counters.gone_errors += 1,
        Status::NoSpace => counters.no_space_errors += 1,
        Status::OutOfRange | Status::ReadOnly | Status::Unsupported | Status::Invalid => {
            counters.refused += 1;
        }
    }
    if !status.is_ok() {
        return;
    }
    let access = request.access();
    let kind = match request.operation {
        Operation::Read => &mut counters.reads,
        Operation::Write => &mut counters.writes,
        Operation::Flush => &mut counters.flushes,
        Operation::Discard => &mut counters.discards,
        Operation::WriteZeroes => &mut counters.write_zeroes,
    };
    kind.add(access.length, latency);
}
