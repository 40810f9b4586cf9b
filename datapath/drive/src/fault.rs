//! Faults that a test orders from a drive of any kind.
//!
//! They are part of the product, not of the tests alone, so that the engine as it is shipped can be
//! shown to survive them. A drive without faults pays one relaxed load per request.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use block::{Operation, Status};

/// What shall go wrong, from now on, until [`crate::Drive::clear_faults`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The drive is pulled: every request is answered `Gone` and changes nothing.
    Pulled,
    /// Reads that touch these bytes are answered `Media`, until the bytes have been rewritten.
    Media {
        /// First byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// Writes, discards and zeroing that touch these bytes are answered `Media` and change nothing.
    Unwritable {
        /// First byte.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// The file system behind the drive is full: every change is answered `NoSpace`.
    NoSpace,
    /// Every flush is answered `Media`.
    FlushFails,
    /// Every answer comes at least so long after its request.
    Delay(Duration),
    /// What the control path asks is not answered until the faults are cleared. Requests of ports
    /// are.
    Silent,
}

/// What a request asks for, as far as faults care.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Access {
    fn meets(&self, range: &Range<u64>) -> bool {
        self.offset < range.end && range.start < self.offset.saturating_add(self.length)
    }
}

/// The faults of one drive.
#[derive(Debug, Default)]
pub(crate) struct FaultBook {
    armed: AtomicBool,
    faults: Mutex<Faults>,
    cleared: Condvar,
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "faults are ordered independently of each other"
)]
#[derive(Debug, Default)]
struct Faults {
    pulled: bool,
    full: bool,
    flush_fails: bool,
    unreadable: Vec<Range<u64>>,
    unwritable: Vec<Range<u64>>,
    delay: Duration,
    silent: bool,
}

impl FaultBook {
    /// Whether there may be any. The cheap question, asked for every request.
    pub(crate) fn armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, fault: Fault) {
        let mut faults = self.lock();
        let range = |offset: u64, length: u64| offset..offset.saturating_add(length);
        match fault {
            Fault::Pulled => faults.pulled = true,
            Fault::NoSpace => faults.full = true,
            Fault::FlushFails => faults.flush_fails = true,
            Fault::Media { offset, length } => faults.unreadable.push(range(offset, length)),
            Fault::Unwritable { offset, length } => faults.unwritable.push(range(offset, length)),
            Fault::Delay(delay) => faults.delay = delay,
            Fault::Silent => faults.silent = true,
        }
        self.armed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        let mut faults = self.lock();
        *faults = Faults::default();
        self.armed.store(false, Ordering::Relaxed);
        self.cleared.notify_all();
    }

    /// Waits as long as the drive does not answer the control path.
    pub(crate) fn wait_for_answer(&self) {
        if !self.armed() {
            return;
        }
        let mut faults = self.lock();
        while faults.silent {
            let woken = self.cleared.wait(faults);
            faults = woken.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The verdict on a request before it begins; `Ok` lets it pass.
    #[inline]
    pub(crate) fn before(&self, access: &Access) -> Status {
        if self.armed() {
            self.judge_before(access)
        } else {
            Status::Ok
        }
    }

    #[cold]
    fn judge_before(&self, access: &Access) -> Status {
        let faults = self.lock();
        let any = |ranges: &[Range<u64>]| ranges.iter().any(|range| access.meets(range));
        match access.operation {
            _ if faults.pulled => Status::Gone,
            Operation::Read if any(&faults.unreadable) => Status::Media,
            Operation::Flush if faults.flush_fails => Status::Media,
            Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                match (any(&faults.unwritable), faults.full) {
                    (true, _) => Status::Media,
                    (false, true) => Status::NoSpace,
                    (false, false) => Status::Ok,
                }
            }
            Operation::Read | Operation::Flush => Status::Ok,
        }
    }

    /// The verdict on a request that ended with `status`, and how late it may be told.
    #[inline]
    pub(crate) fn after(&self, access: &Access, status: Status) -> (Status, Duration) {
        if self.armed() {
            self.judge_after(access, status)
        } else {
            (status, Duration::ZERO)
        }
    }

    #[cold]
    fn judge_after(&self, access: &Access, status: Status) -> (Status, Duration) {
        let mut faults = self.lock();
        if faults.pulled {
            // In flight when the drive was pulled: it may have landed, nobody will know.
            return (Status::Gone, faults.delay);
        }
        let rewritten = match access.operation {
            Operation::Write | Operation::WriteZeroes => status.is_ok(),
            Operation::Read | Operation::Flush | Operation::Discard => false,
        };
        if rewritten && !faults.unreadable.is_empty() {
            let written = access.offset..access.offset + access.length;
            faults.unreadable = without(&faults.unreadable, &written);
        }
        (status, faults.delay)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What is left of `ranges` outside `hole`.
fn without(ranges: &[Range<u64>], hole: &Range<u64>) -> Vec<Range<u64>> {
    ranges
        .iter()
        .flat_map(|range| {
            let left = range.start..range.end.min(hole.start);
            let right = range.start.max(hole.end)..range.end;
            [left, right]
        })
        .filter(|range| !range.is_empty())
        .collect()
}

/// The operating system's word for an ordered fault.
pub(crate) fn as_error(status: Status) -> io::Result<()> {
    let errno = match status {
        Status::Ok => return Ok(()),
        Status::Gone => libc::ENODEV,
        Status::NoSpace => libc::ENOSPC,
        Status::Media
        | Status::OutOfRange
        | Status::ReadOnly
        | Status::Unsupported
        | Status::Invalid => libc::EIO,
    };
    Err(io::Error::from_raw_os_error(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(operation: Operation, offset: u64, length: u64) -> Access {
        Access {
            operation,
            offset,
            length,
        }
    }

    #[test]
    fn bad_bytes_heal_where_they_are_rewritten_and_nowhere_else() {
        let book = FaultBook::default();
        book.add(Fault::Media {
            offset: 4096,
            length: 4096,
        });
        let read = |at| book.before(&access(Operation::Read, at, 512));
        let write = access(Operation::Write, 5120, 512);
        assert_eq!(book.before(&write), Status::Ok);
        assert_eq!(book.after(&write, Status::Media).0, Status::Media);
        assert_eq!(read(5120), Status::Media, "a failed write heals nothing");
        assert_eq!(book.after(&write, Status::Ok).0, Status::Ok);
        let good: Vec<u64> = (3584..=8192)
            .step_by(512)
            .filter(|at| read(*at).is_ok())
            .collect();
        assert_eq!(good, [3584, 5120, 8192]);
    }

    #[test]
    fn each_fault_hits_its_own_operations() {
        let verdicts = |fault: Fault| {
            let book = FaultBook::default();
            book.add(fault);
            [
                Operation::Read,
                Operation::Write,
                Operation::Flush,
                Operation::Discard,
                Operation::WriteZeroes,
            ]
            .map(|operation| book.before(&access(operation, 0, 512)))
        };
        let (ok, gone, media, full) = (Status::Ok, Status::Gone, Status::Media, Status::NoSpace);
        assert_eq!(verdicts(Fault::Pulled), [gone; 5]);
        assert_eq!(verdicts(Fault::NoSpace), [ok, full, ok, full, full]);
        assert_eq!(verdicts(Fault::FlushFails), [ok, ok, media, ok, ok]);
        assert_eq!(verdicts(Fault::Delay(Duration::from_secs(1))), [ok; 5]);
        assert_eq!(verdicts(Fault::Silent), [ok; 5]);
        let (offset, length) = (0, 1);
        assert_eq!(
            verdicts(Fault::Unwritable { offset, length }),
            [ok, media, ok, media, media]
        );
        assert_eq!(
            verdicts(Fault::Media { offset, length }),
            [media, ok, ok, ok, ok]
        );
    }

    #[test]
    fn cleared_faults_are_gone() {
        let book = FaultBook::default();
        book.add(Fault::Pulled);
        book.clear();
        let read = access(Operation::Read, 0, 512);
        assert_eq!(book.before(&read), Status::Ok);
        assert_eq!(book.after(&read, Status::Ok), (Status::Ok, Duration::ZERO));
    }
}
