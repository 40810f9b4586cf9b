//! How a request is carried out: judged, handed to the kernel in as many operations as it takes,
//! and brought to its end.
//!
//! What does not live here: when (`port.rs`) and how (`uring.rs`) operations reach the kernel.

use std::time::Duration;

use block::{Operation, Status};

use super::keys::Key;
use super::tasks::{Method, Stage};
use super::{DriveRequest, Port, Waiting};
use crate::drive::Backing;
use crate::errno::{Verdict, verdict};
use crate::info::{DriveInfo, DriveKind};
use crate::mapping::Mapping;
use crate::nvme::{Answered, Asked, judge};
use crate::uring::{Direction, Transfer};

/// How much of a transfer a memory drive asks for ahead; the processor guesses the rest.
const PREFETCH_BYTES: usize = 1024;
/// So many copies ahead that is done; and so many ahead the address is looked up. Where memory is
/// large each lookup is a walk through tables that a single one waits for, and several side by
/// side hardly longer than one.
const NEAR: usize = 2;
/// See `NEAR`.
const FAR: usize = 12;
/// From so many bytes on, all writes of memory drives go past the caches, where that pays.
const STREAMED_BYTES: u64 = 32 << 10;
/// From so many bytes on, those do that write what was not moved lately (`touched`).
const SMALL_STREAMED_BYTES: u64 = 4 << 10;
/// Answers without progress after which a request is given up.
const TRIES_MAX: u16 = 1000;
/// Bytes of zeroes written at once where a drive cannot zero by itself.
pub(super) const ZEROES_BYTES: u64 = 1 << 20;

impl Port {
    /// Decides what becomes of a new request; carries it out when that needs no kernel.
    pub(super) fn begin(&mut self, place: u16, request: &DriveRequest) -> Begun {
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
                match fit(request, needs) {
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
            // The kernel would make a thread find out that there is nothing to do.
            Backing::Kernel(_) | Backing::Generic(_)
                if method == Method::Flush && !drive.has_volatile_cache() =>
            {
                Begun::Answered(Status::Ok)
            }
            Backing::Kernel(_) | Backing::Generic(_) => Begun::Kernel(method),
            Backing::Memory(memory) => {
                let streams = memory.streams()
                    && may_stream(request, |offset| self.touched.note(place, offset));
                // The poll asks for the others, several at a time.
                if self.copies.len() < NEAR && !streams {
                    ask_ahead(memory, request, PREFETCH_BYTES);
                }
                Begun::Copy { streams }
            }
            Backing::Null => Begun::Answered(Status::Ok),
        }
    }

    /// Hands a queued task to the kernel, or puts it into the queue for what it lacks.
    pub(super) fn start(&mut self, slot: u32) {
        let task = self.tasks.get(slot);
        if task.next.is_some() {
            return self.start_joined(slot);
        }
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
                let pinned = self.rings.plain.used_pin();
                let task = self.tasks.get(slot);
                task.stage = Stage::InKernel { bytes };
                task.pinned = task.method == Method::Direct && pinned;
            }
            None => self.ready.push_back(slot),
        }
    }

    /// Carries out what memory drives were asked.
    pub(super) fn copy_waiting(&mut self) {
        let mut copies = std::mem::take(&mut self.copies);
        for at in NEAR..FAR {
            self.ask_ahead(copies.get(at), 1);
        }
        for at in 0..copies.len() {
            self.ask_ahead(copies.get(at + FAR), 1);
            self.ask_ahead(copies.get(at + NEAR), PREFETCH_BYTES);
            let waiting = &copies[at];
            if let Backing::Memory(memory) = self.seat(waiting.seat).drive.backing() {
                perform(memory, &waiting.request, waiting.streams);
            }
            self.answer(waiting.seat, &waiting.request, waiting.begun, Status::Ok);
        }
        copies.clear();
        self.copies = copies;
    }

    #[inline]
    fn ask_ahead(&mut self, waiting: Option<&Waiting>, bytes: usize) {
        if let Some(waiting) = waiting
            && !waiting.streams
            && let Backing::Memory(memory) = self.seat(waiting.seat).drive.backing()
        {
            ask_ahead(memory, &waiting.request, bytes);
        }
    }

    /// Starts the next operation of a task. Returns its bytes, or none when the ring is full.
    pub(super) fn hand_over(&mut self, slot: u32) -> Option<u64> {
        let task = self.tasks.get(slot);
        let seat = self.seats[usize::from(task.seat)]
            .as_mut()
            .expect("a seat stays while it is used");
        if seat.drive.namespace().is_some() {
            return self.send_command(slot);
        }
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
                let bytes =
                    self.rings
                        .plain
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
                let started = self.rings.plain.start_segment(transfer, segment);
                if started {
                    seat.counters.bounced_bytes += bytes;
                }
                started.then_some(bytes)
            }
            Method::Zeroes => {
                let bytes = left.min(ZEROES_BYTES);
                let segment = self.zeroes.segment(0, units::bytes_usize(bytes));
                let started = self.rings.plain.start_segment(transfer, segment);
                started.then_some(bytes)
            }
            Method::Flush => self.rings.plain.start_flush(handle, key).then_some(0),
            Method::Punch => {
                let mode = punch_mode(seat.drive.info().kind, request.operation);
                let range = (request.offset, request.length);
                let started = self.rings.plain.start_fallocate(handle, mode, range, key);
                started.then_some(request.length)
            }
        }
    }

    /// The kernel's operation of a task is over: the task ends, goes on, or tries again.
    pub(super) fn advance(&mut self, slot: u32, result: i32) {
        self.in_kernel -= 1;
        let place = self.tasks.get(slot).seat;
        let namespace = self.seat(place).drive.namespace();
        // What else than commands is asked again, is so at once.
        let wait = namespace.map(|namespace| namespace.retry_waits.after(result));
        let task = self.tasks.get(slot);
        if task.next.is_some() {
            let moved = match (wait.is_some(), result) {
                (true, 0) => self
                    .tasks
                    .joined(slot)
                    .map(|task| task.request.length)
                    .sum(),
                (true, _) => 0,
                (false, _) => u64::try_from(result).unwrap_or(0),
            };
            return self.advance_joined(slot, moved, wait.unwrap_or_default());
        }
        let Stage::InKernel { bytes } = task.stage else {
            unreachable!("the kernel answers once per operation");
        };
        task.stage = Stage::Queued;
        let tries = task.tries;
        let asked = match task.method {
            Method::Flush => Asked::Flush,
            Method::Direct | Method::Bounce | Method::Zeroes | Method::Punch => Asked::Blocks,
        };
        if self.seat(place).leaving {
            self.finish(slot, Status::Gone);
            return;
        }
        if let Some(wait) = wait {
            return match judge(asked, result, tries) {
                Answered::Done => self.progress(slot, bytes, bytes),
                Answered::Failed(verdict) => self.failed(slot, verdict, wait),
            };
        }
        match u64::try_from(result) {
            Ok(moved) => self.progress(slot, bytes, moved),
            Err(_) => {
                // Also when the pins are out of use by now: without, it may go well.
                if self.tasks.get(slot).pinned && self.rings.plain.gives_up_pins(-result) {
                    self.ready.push_back(slot);
                } else {
                    self.seat(place).drive.note_no_space(-result);
                    self.failed(slot, verdict(-result), Duration::ZERO);
                }
            }
        }
    }

    /// `moved` bytes of an operation of `bytes` went through.
    pub(super) fn progress(&mut self, slot: u32, bytes: u64, moved: u64) {
        let task = self.tasks.get(slot);
        match task.method {
            Method::Flush => return self.finish(slot, Status::Ok),
            // The answer is not a count; a command may have done a part.
            Method::Punch if bytes == task.left() => return self.finish(slot, Status::Ok),
            Method::Direct | Method::Bounce | Method::Zeroes | Method::Punch => {}
        }
        assert!(moved <= bytes, "{moved} of {bytes} bytes were moved");
        let mut align = 1;
        if moved < bytes {
            let seat = self.seats[usize::from(task.seat)].as_mut();
            let seat = seat.expect("a seat stays while it is used");
            seat.counters.continued += 1;
            align = seat.drive.info().length_align();
        }
        let whole = resume_at(task.done, moved, align);
        if task.method == Method::Bounce && task.reads() {
            let came = units::bytes_usize(whole.saturating_sub(task.done));
            let buffer = task.buffer.expect("held until the end");
            let source = self.buffers.segment(buffer, came);
            let at = units::bytes_usize(task.done);
            task.request.segments.copy_from(at, source);
        }
        if whole <= task.done {
            // Nothing came where the file should go on: somebody cut it off.
            let status = self.or_gone(slot, Status::Media);
            return self.finish(slot, status);
        }
        task.done = whole;
        task.tries = 0;
        if task.left() == 0 {
            self.finish(slot, Status::Ok);
        } else {
            self.ready.push_back(slot);
        }
    }

    /// What an error means: the kernel gives a device that it takes away no bytes any more, so that
    /// reads find its end, and writes no space. One that became smaller says so behind its new end:
    /// there is no room that anybody could make, so nobody is to wait for it.
    #[cold]
    fn or_gone(&mut self, slot: u32, status: Status) -> Status {
        let task = self.tasks.get(slot);
        let (place, access) = (task.seat, task.request.access());
        let drive = &self.seat(place).drive;
        if drive.is_being_taken_away() {
            return Status::Gone;
        }
        if status == Status::NoSpace && drive.ends_before(access.offset + access.length) {
            return Status::Media;
        }
        status
    }

    /// Makes a task again: now, or after a while that its drive has asked for.
    pub(super) fn again(&mut self, slot: u32, wait: Duration) {
        if wait.is_zero() {
            self.ready.push_back(slot);
            return;
        }
        // Others have a use for its buffer meanwhile.
        if let Some(buffer) = self.tasks.get(slot).buffer.take() {
            self.buffers.release(buffer);
        }
        self.paused.push(self.now + wait, slot);
    }

    /// An operation failed; should it be made again, then not before `wait` is over.
    pub(super) fn failed(&mut self, slot: u32, verdict: Verdict, wait: Duration) {
        let task = self.tasks.get(slot);
        let status = match verdict {
            Verdict::Final(status @ (Status::Media | Status::NoSpace | Status::Invalid)) => {
                self.or_gone(slot, status)
            }
            Verdict::Final(status) => status,
            // The drive has changed: other blocks, or other memory than it took. A buffer of ours
            // fits whatever it takes, so what fails then is the drive's fault, not the asker's.
            Verdict::Misfit if task.method == Method::Direct => {
                task.method = Method::Bounce;
                self.ready.push_back(slot);
                return;
            }
            Verdict::Misfit => self.or_gone(slot, Status::Media),
            Verdict::NoMemory if task.request.operation == Operation::Flush => Status::Media,
            Verdict::Again | Verdict::NoMemory if task.tries < TRIES_MAX => {
                task.tries += 1;
                return self.again(slot, wait);
            }
            Verdict::Again | Verdict::NoMemory => Status::Media,
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
}

/// Where a transfer goes on that was at `done` and moved so many bytes more: direct I/O can only go
/// on at a whole block.
fn resume_at(done: u64, moved: u64, align: u64) -> u64 {
    (done + moved) / align * align
}

/// What became of a new request.
pub(super) enum Begun {
    /// It is over.
    Answered(Status),
    /// The next poll copies.
    Copy {
        /// Past the caches.
        streams: bool,
    },
    /// The kernel is to do it.
    Kernel(Method),
}

/// How well the memory of a transfer fits its drive.
enum Fit {
    Direct,
    Misaligned,
    WrongLength,
}

#[inline]
fn fit(request: &DriveRequest, needs: &DriveInfo) -> Fit {
    let length_align = needs.length_align();
    let mut bytes: u64 = 0;
    let mut odd = 0;
    // Where the piece before ends; nothing comes before the first.
    let mut end = 0;
    for segment in request.segments.as_slice() {
        let address = units::bytes_u64(segment.address().addr());
        let length = units::bytes_u64(segment.len());
        let seam = if bytes > 0 { end | address } else { 0 };
        bytes = bytes.saturating_add(length);
        end = address.wrapping_add(length);
        odd |= seam & (needs.memory_boundary - 1);
        odd |= address & (needs.memory_align - 1);
        odd |= length & (length_align - 1);
    }
    match (bytes == request.length, odd == 0) {
        (true, true) => Fit::Direct,
        (true, false) => Fit::Misaligned,
        (false, _) => Fit::WrongLength,
    }
}

/// Whether a request of a memory drive is a write that goes past the caches: nobody reads soon what
/// it writes, and it is not there yet. `lately`: notes that the place is moved, and says whether it
/// was lately.
#[inline]
fn may_stream(request: &DriveRequest, lately: impl FnOnce(u64) -> bool) -> bool {
    let writes = match request.operation {
        Operation::Write => true,
        Operation::Read => false,
        Operation::Flush | Operation::Discard | Operation::WriteZeroes => return false,
    };
    if request.length >= STREAMED_BYTES {
        return writes;
    }
    let is_there = lately(request.offset);
    writes && request.length >= SMALL_STREAMED_BYTES && !is_there
}

/// Has the first bytes of a request on memory brought to the caches.
#[inline]
fn ask_ahead(memory: &Mapping, request: &DriveRequest, bytes: usize) {
    let moves = matches!(request.operation, Operation::Read | Operation::Write);
    if moves {
        let length = units::bytes_usize(request.length);
        let place = memory.segment(units::bytes_usize(request.offset), length);
        place.prefetch(bytes);
    }
}

/// Carries out a request on memory. Two reactors may race on a block as two processes may on a real
/// drive; the bytes are raw, so the race is on their values only.
fn perform(memory: &Mapping, request: &DriveRequest, streams: bool) {
    let offset = units::bytes_usize(request.offset);
    let length = units::bytes_usize(request.length);
    match request.operation {
        Operation::Read => {
            let source = memory.segment(offset, length);
            request.segments.copy_from(0, source);
        }
        Operation::Write => {
            let target = memory.segment(offset, length);
            if streams {
                request.segments.stream_to(0, target);
            } else {
                request.segments.copy_to(0, target);
            }
        }
        Operation::Discard | Operation::WriteZeroes => memory.zero(offset, length),
        Operation::Flush => {}
    }
}

/// How a range is emptied. For files both kinds punch a hole, which reads as zeroes. For block
/// devices punching is zeroing with leave to unmap, refused where that is not to be had, and
/// zeroing is done by the kernel with writes if need be. So neither ever leaves other than zeroes
/// or, for a discard that is refused, the old content.
fn punch_mode(kind: DriveKind, operation: Operation) -> i32 {
    let how = match (kind, operation) {
        (DriveKind::BlockDevice, Operation::WriteZeroes) => libc::FALLOC_FL_ZERO_RANGE,
        _ => libc::FALLOC_FL_PUNCH_HOLE,
    };
    how | libc::FALLOC_FL_KEEP_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_cut_short_goes_on_at_a_whole_block_and_never_behind_it() {
        for (done, moved, align, wanted) in [
            (0, 4096, 512, 4096),
            (0, 1808, 512, 1536),
            (4096, 100, 512, 4096),
            (4096, 4195, 4096, 8192),
            (0, 1808, 1, 1808),
            (77, 3, 1, 80),
        ] {
            assert_eq!(resume_at(done, moved, align), wanted, "{done}+{moved}");
        }
    }

    #[test]
    fn small_writes_go_past_the_caches_where_nothing_was_moved_lately() {
        for (operation, length, is_there, wanted) in [
            (Operation::Write, 512, false, false),
            (Operation::Write, 4096, false, true),
            (Operation::Write, 4096, true, false),
            (Operation::Write, STREAMED_BYTES - 512, true, false),
            (Operation::Write, STREAMED_BYTES, true, true),
            (Operation::Read, 4096, false, false),
            (Operation::Read, 1 << 20, false, false),
            (Operation::WriteZeroes, 4096, false, false),
        ] {
            let request = DriveRequest {
                cookie: block::Cookie(0),
                drive: units::DriveIndex(0),
                operation,
                offset: 8192,
                length,
                segments: memory::SegmentList::EMPTY,
            };
            let mut asked = None;
            let streams = may_stream(&request, |offset| {
                asked = Some(offset);
                is_there
            });
            assert_eq!(streams, wanted, "{operation:?} {length} {is_there}");
            // What is larger pushes the rest out, and is not remembered.
            let moves = operation != Operation::WriteZeroes && length < STREAMED_BYTES;
            assert_eq!(asked, moves.then_some(8192));
        }
    }
}
