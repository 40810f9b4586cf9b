//! The kernel's ring: how operations are handed over and answers fetched.
//!
//! An island: what is handed over here is used by the kernel until its answer has come. Memory
//! comes in segments, whose makers promised that (`Segment::new`); the port sees to it that buffers
//! of its own live as long. What does not live here: which operation, and what an answer means.
#![allow(unsafe_code, reason = "an island: io_uring submission")]

mod commands;
mod pinned;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{IoUring, Parameters, cqueue, opcode, squeue, types};
use memory::{Segment, SegmentList};
use units::limits;

use crate::counters::PortCounters;
use crate::error::PortError;
use crate::open::SEGMENTS_MAX;
pub(crate) use commands::{COMMAND_SEGMENTS_MAX, Commands, List, Sender, try_command};
use pinned::Pinned;

/// Room for segments of lists that are handed over in parts, per enter.
const ARENA_SEGMENTS: usize = 8 * SEGMENTS_MAX;
/// Operations that may sleep in the kernel: twice as many as one array has.
const WAITING_MAX: u32 = 8192;
const _: () = assert!(WAITING_MAX as usize == 2 * limits::ARRAY_DRIVE_REQUESTS_MAX);
/// Room for answers, by entry.
const ANSWERS: u32 = 4;
const _: () = assert!(ANSWERS * limits::URING_ENTRIES >= limits::PORT_REQUESTS);

/// How the ring learns that an operation is finished. Tried in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers appear only in our own calls; one thread (Linux 6.1).
    Deferred,
    /// Answers appear when we enter the kernel for any reason (Linux 5.19).
    Cooperative,
    /// The kernel interrupts us.
    Plain,
}

/// How the kernel knows a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handle {
    /// By its place in the ring's own table, which costs no shared reference count.
    Registered(u32),
    /// By its number.
    Plain(RawFd),
}

impl Handle {
    /// What an entry says of the file.
    fn file(self) -> (types::Fd, squeue::Flags) {
        match self {
            Handle::Registered(place) => {
                let place = RawFd::try_from(place).expect("a small table");
                (types::Fd(place), squeue::Flags::FIXED_FILE)
            }
            Handle::Plain(fd) => (types::Fd(fd), squeue::Flags::empty()),
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A transfer without its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) key: u64,
}

/// An answer: the operation's key, and a count or a negative error number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) key: u64,
    pub(crate) result: i32,
}

/// One reactor's ring, with entries and answers of some length.
pub(crate) struct Ring<S = squeue::Entry, C = cqueue::Entry>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    uring: IoUring<S, C>,
    /// Segments that entries not yet taken by the kernel point to; never grows past its capacity.
    arena: Vec<Segment>,
    mode: Mode,
    enabled: bool,
    files: u32,
    pinned: Pinned,
    counters: PortCounters,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Ring<S, C> {
    /// Sets up a ring that takes so many operations in one call, and a table for so many files.
    pub(crate) fn new(entries: u32, files: u32) -> Result<Ring<S, C>, PortError> {
        let mut refusal = None;
        for mode in [Mode::Deferred, Mode::Cooperative, Mode::Plain] {
            match Self::with_mode(mode, entries, files) {
                Ok(ring) => return Ok(ring),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refusal = Some(error),
                Err(error) => return Err(refused(error)),
            }
        }
        Err(refused(refusal.expect("every mode was refused")))
    }

    /// See [`Ring::new`]; `EINVAL` when the kernel does not know the mode.
    pub(crate) fn with_mode(mode: Mode, entries: u32, files: u32) -> io::Result<Ring<S, C>> {
        let mut builder = IoUring::<S, C>::builder();
        // Disabled at first: the ring then belongs to the thread that first uses it, not to the one
        // that made it. Room for the answers of all requests of a port: the kernel keeps those
        // beyond as long as it has memory.
        builder.setup_clamp().setup_r_disabled().dontfork();
        builder.setup_cqsize(ANSWERS * entries);
        match mode {
            Mode::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun();
                builder.setup_taskrun_flag();
            }
            Mode::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            Mode::Plain => {}
        }
        let uring = builder.build(entries)?;
        let_all_wait(&uring);
        let table = vec![-1; usize::try_from(files).expect("a u32 fits usize")];
        // Refused when it is larger than the limit of open files: then files go by number.
        let files = match uring.submitter().register_files(&table) {
            Ok(()) => files,
            Err(_) => 0,
        };
        Ok(Ring {
            uring,
            arena: Vec::with_capacity(ARENA_SEGMENTS),
            mode,
            enabled: false,
            files,
            pinned: Pinned::default(),
            counters: PortCounters::default(),
        })
    }

    /// What the ring cannot do without and an old kernel lacks.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let parameters: &Parameters = self.uring.params();
        let needs = [
            (parameters.is_feature_nodrop(), "IORING_FEAT_NODROP"),
            (
                parameters.is_feature_submit_stable(),
                "IORING_FEAT_SUBMIT_STABLE",
            ),
            (parameters.is_feature_ext_arg(), "IORING_FEAT_EXT_ARG"),
        ];
        needs.iter().find(|(has, _)| !has).map(|(_, name)| *name)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn counters(&self) -> PortCounters {
        self.counters
    }

    /// Makes a file known at a place of the table; by its number when that is not possible.
    pub(crate) fn register(&mut self, place: u32, fd: RawFd) -> Handle {
        let fits = place < self.files;
        let updated = || self.uring.submitter().register_files_update(place, &[fd]);
        if fits && matches!(updated(), Ok(1)) {
            Handle::Registered(place)
        } else {
            Handle::Plain(fd)
        }
    }

    /// Lets go of a file that no operation uses any more.
    pub(crate) fn unregister(&mut self, handle: Handle) {
        if let Handle::Registered(place) = handle {
            let result = self.uring.submitter().register_files_update(place, &[-1]);
            assert!(matches!(result, Ok(1)), "emptying a place: {result:?}");
        }
    }

    /// Lets go of all files now; closing the ring would do it, but much later.
    pub(crate) fn unregister_all(&mut self) {
        if self.files > 0 {
            // Fails on a foreign thread only; then the kernel lets go a moment later by itself.
            let _ = self.uring.submitter().unregister_files();
        }
        self.leave_pins();
    }

    fn is_full(&mut self) -> bool {
        self.uring.submission().is_full()
    }

    fn push(&mut self, mut entry: S, key: u64) -> bool {
        entry.set_user_data(key);
        let mut queue = self.uring.submission();
        // SAFETY: memory that the entry names comes from segments, which stay mapped until their
        // request is answered (Segment::new), and the port answers only after the kernel did; lists
        // of segments lie in the arena until the kernel has taken the entry (`enter`), those of
        // commands until it has answered (`Commands`).
        let pushed = unsafe { queue.push(&entry) };
        drop(queue);
        if pushed.is_ok() {
            self.counters.operations += 1;
        }
        pushed.is_ok()
    }

    /// Hands over everything queued, and lets finished operations appear; never sleeps. Makes no
    /// call when there is nothing to hand over and the kernel has nothing to show.
    pub(crate) fn turn(&mut self) {
        let queue = self.uring.submission();
        let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if needed {
            self.enter(0, None);
        }
    }

    /// Hands over everything queued, and sleeps until there is an answer, a signal, or the limit.
    pub(crate) fn sleep(&mut self, limit: Option<Duration>) {
        if self.has_answers() || limit == Some(Duration::ZERO) {
            self.turn();
            return;
        }
        self.counters.waits += 1;
        self.enter(1, limit);
    }

    /// Makes the ring that of the thread that asks, the first time.
    fn enable(&mut self) {
        if !self.enabled {
            let result = self.uring.submitter().register_enable_rings();
            result.expect("a ring that was made can be enabled");
            self.enabled = true;
        }
    }

    /// Whether there are answers to take.
    pub(crate) fn has_answers(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    fn enter(&mut self, want: usize, limit: Option<Duration>) {
        self.enable();
        self.counters.enters += 1;
        let submitter = self.uring.submitter();
        let result = match limit {
            None => submitter.submit_and_wait(want),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                submitter.submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        if let Err(error) = result {
            check_enter(&error);
        }
        if self.uring.submission().is_empty() {
            self.arena.clear();
            self.change_pins();
        }
    }

    /// Takes all answers.
    pub(crate) fn reap(&mut self, answers: &mut Vec<Answer>) {
        for entry in self.uring.completion() {
            let entry: cqueue::Entry = entry.into();
            answers.push(Answer {
                key: entry.user_data(),
                result: entry.result(),
            });
        }
    }
}

/// Lets more operations sleep in the kernel than one array can have. What cannot be done without
/// sleeping (a file system that allocates, or is frozen) is done by threads of the kernel's, at
/// most four for each CPU by default: one drive that hangs would take all of them from all the
/// others. They are made when they are needed only.
fn let_all_wait<S: squeue::EntryMarker, C: cqueue::EntryMarker>(uring: &IoUring<S, C>) {
    // Older than Linux 5.15 knows no such limit: what is kept apart there is worse, not wrong.
    let _ = uring
        .submitter()
        .register_iowq_max_workers(&mut [WAITING_MAX, 0]);
}

impl Ring {
    /// Starts a transfer with one piece of memory. False when the ring is full.
    pub(crate) fn start_segment(&mut self, transfer: Transfer, segment: Segment) -> bool {
        let address = segment.address();
        let length = u32::try_from(segment.len()).expect("a transfer is at most 16 MiB");
        let Transfer {
            direction,
            handle,
            offset,
            key,
        } = transfer;
        let (file, flags) = handle.file();
        let buffer = self.pinned(&[segment]);
        let entry = match (direction, buffer) {
            (Direction::Read, None) => opcode::Read::new(file, address, length)
                .offset(offset)
                .build(),
            (Direction::Read, Some(buffer)) => {
                opcode::ReadFixed::new(file, address, length, buffer)
                    .offset(offset)
                    .build()
            }
            (Direction::Write, None) => opcode::Write::new(file, address, length)
                .offset(offset)
                .build(),
            (Direction::Write, Some(buffer)) => {
                opcode::WriteFixed::new(file, address, length, buffer)
                    .offset(offset)
                    .build()
            }
        };
        self.push_transfer(entry.flags(flags), buffer, key)
    }

    /// Starts a transfer of at most `length` bytes of `list` from `skip` on. Returns how many are
    /// under way: fewer when there are too many segments; none when the ring is full.
    pub(crate) fn start_list(
        &mut self,
        transfer: Transfer,
        list: &SegmentList,
        skip: usize,
        length: usize,
    ) -> Option<usize> {
        let most = list.as_slice().len().min(SEGMENTS_MAX);
        if self.is_full() || self.arena.capacity() - self.arena.len() < most {
            return None;
        }
        let first = self.arena.len();
        let mut bytes = 0;
        let arena = &mut self.arena;
        list.for_each_part(skip, length, |part| {
            if arena.len() - first < SEGMENTS_MAX {
                arena.push(part);
                bytes += part.len();
            }
        });
        let started = match &self.arena[first..] {
            [segment] => {
                let segment = *segment;
                self.arena.truncate(first);
                self.start_segment(transfer, segment)
            }
            _ => self.start_vector(transfer, first),
        };
        assert!(started, "there was room a moment ago");
        Some(bytes)
    }

    /// Starts a transfer of all of `lists`, at most so many segments. False when there is no room.
    pub(crate) fn start_lists<'list>(
        &mut self,
        transfer: Transfer,
        lists: impl Iterator<Item = &'list SegmentList>,
        segments_max: usize,
    ) -> bool {
        if self.is_full() || self.arena.capacity() - self.arena.len() < segments_max {
            return false;
        }
        let first = self.arena.len();
        for list in lists {
            self.arena.extend_from_slice(list.as_slice());
        }
        let segments = self.arena.len() - first;
        assert!(segments <= segments_max, "the arena never moves");
        self.start_vector(transfer, first)
    }

    /// Starts a transfer with the arena's segments from `first` on.
    fn start_vector(&mut self, transfer: Transfer, first: usize) -> bool {
        let segments = &self.arena[first..];
        let count = u32::try_from(segments.len()).expect("at most SEGMENTS_MAX");
        // A segment is laid out as an iovec (asserted where it is defined). The arena is emptied
        // only when the kernel has taken every entry, and never moves.
        let vector = segments.as_ptr().cast::<libc::iovec>();
        let buffer = self.pinned(segments);
        let Transfer {
            direction,
            handle,
            offset,
            key,
        } = transfer;
        let (file, flags) = handle.file();
        let entry = match (direction, buffer) {
            (Direction::Read, None) => opcode::Readv::new(file, vector, count)
                .offset(offset)
                .build(),
            (Direction::Read, Some(buffer)) => opcode::ReadvFixed::new(file, vector, count, buffer)
                .offset(offset)
                .build(),
            (Direction::Write, None) => opcode::Writev::new(file, vector, count)
                .offset(offset)
                .build(),
            (Direction::Write, Some(buffer)) => {
                opcode::WritevFixed::new(file, vector, count, buffer)
                    .offset(offset)
                    .build()
            }
        };
        self.push_transfer(entry.flags(flags), buffer, key)
    }

    fn push_transfer(&mut self, entry: squeue::Entry, buffer: Option<u16>, key: u64) -> bool {
        let pushed = self.push(entry, key);
        self.pinned.used = buffer.is_some();
        self.counters.pinned += u64::from(pushed && buffer.is_some());
        pushed
    }

    /// Starts making completed writes durable. False when the ring is full.
    pub(crate) fn start_flush(&mut self, handle: Handle, key: u64) -> bool {
        let (file, flags) = handle.file();
        let flush = opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC);
        self.push(flush.build().flags(flags), key)
    }

    /// Starts a `fallocate`. False when the ring is full.
    pub(crate) fn start_fallocate(
        &mut self,
        handle: Handle,
        mode: i32,
        range: (u64, u64),
        key: u64,
    ) -> bool {
        let (offset, length) = range;
        let (file, flags) = handle.file();
        let entry = opcode::Fallocate::new(file, length);
        let entry = entry.offset(offset).mode(mode).build();
        self.push(entry.flags(flags), key)
    }

    /// Starts waiting for a file to become readable, once. False when the ring is full.
    pub(crate) fn start_watch(&mut self, fd: RawFd, key: u64) -> bool {
        let events = u32::try_from(libc::POLLIN).expect("a small flag");
        self.push(opcode::PollAdd::new(types::Fd(fd), events).build(), key)
    }

    /// Ends the waiting that was started with `watch_key`. False when the ring is full.
    pub(crate) fn stop_watch(&mut self, watch_key: u64, key: u64) -> bool {
        self.push(opcode::PollRemove::new(watch_key).build(), key)
    }
}

/// Errors of an enter that mean "later"; all others are our own mistakes.
fn check_enter(error: &io::Error) {
    match error.raw_os_error() {
        // A signal, the limit, or no memory or room for answers just now: the next turn tries again
        // with whatever the kernel did not take.
        Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
        Some(libc::EEXIST) => panic!("a port was used by a thread that is not its own"),
        _ => panic!("io_uring_enter: {error}"),
    }
}

fn refused(error: io::Error) -> PortError {
    let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    PortError::from_setup(error, switch.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_drive_that_hangs_takes_the_kernels_threads_from_the_others() {
        for mode in [Mode::Deferred, Mode::Cooperative, Mode::Plain] {
            let mut ring: Ring = Ring::with_mode(mode, 64, 1).expect("this kernel has it");
            // The threads are those of who uses the ring, from its first use on.
            ring.enter(0, None);
            let mut found = [0, 0];
            let submitter = ring.uring.submitter();
            submitter
                .register_iowq_max_workers(&mut found)
                .expect("said");
            let process = rustix::process::getrlimit(rustix::process::Resource::Nproc);
            let most = process.current.unwrap_or(u64::MAX).min(WAITING_MAX.into());
            assert_eq!(u64::from(found[0]), most, "{mode:?}");
        }
    }
}
