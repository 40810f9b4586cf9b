//! What one port counted for one drive. Plain numbers of one reactor: nothing is shared.

use std::time::Duration;

use block::{Histogram, Operation, Status};

use crate::fault::Access;

/// Answered requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounters {
    /// Requests answered `Ok`.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Time from submission to answer of those, summed, in nanoseconds.
    pub latency_ns: u64,
}

impl OperationCounters {
    fn add(&mut self, bytes: u64, nanoseconds: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.latency_ns = self.latency_ns.saturating_add(nanoseconds);
    }
}

/// What one port counted for one drive since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounters {
    /// `Read`.
    pub reads: OperationCounters,
    /// `Write`.
    pub writes: OperationCounters,
    /// `Flush`.
    pub flushes: OperationCounters,
    /// `Discard`.
    pub discards: OperationCounters,
    /// `WriteZeroes`.
    pub write_zeroes: OperationCounters,
    /// How long those of `reads` took.
    pub read_times: Histogram,
    /// How long those of `writes` took.
    pub write_times: Histogram,
    /// Answers `Media`.
    pub media_errors: u64,
    /// Answers `Gone`.
    pub gone_errors: u64,
    /// Answers `NoSpace`.
    pub no_space_errors: u64,
    /// Requests that were wrong in themselves (range, alignment, memory that went away).
    pub refused: u64,
    /// Bytes copied because the asker's memory was not aligned enough for the drive.
    pub bounced_bytes: u64,
    /// Transfers that were continued after the kernel did only a part.
    pub continued: u64,
}

impl DriveCounters {
    /// Counts one answer.
    #[inline]
    pub(crate) fn count(&mut self, access: &Access, status: Status, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let kind = match (status, access.operation) {
            (Status::Ok, Operation::Read) => {
                self.read_times.record(nanoseconds);
                &mut self.reads
            }
            (Status::Ok, Operation::Write) => {
                self.write_times.record(nanoseconds);
                &mut self.writes
            }
            (Status::Ok, Operation::Flush) => &mut self.flushes,
            (Status::Ok, Operation::Discard) => &mut self.discards,
            (Status::Ok, Operation::WriteZeroes) => &mut self.write_zeroes,
            (Status::Media, _) => return self.media_errors += 1,
            (Status::Gone, _) => return self.gone_errors += 1,
            (Status::NoSpace, _) => return self.no_space_errors += 1,
            (Status::OutOfRange | Status::ReadOnly | Status::Unsupported | Status::Invalid, _) => {
                return self.refused += 1;
            }
        };
        kind.add(access.length, nanoseconds);
    }
}

/// What one port did in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Of those, calls that could sleep.
    pub waits: u64,
    /// Kernel operations started.
    pub operations: u64,
    /// Of those, transfers of pinned memory.
    pub pinned: u64,
    /// Times that a request waited for a bounce buffer.
    pub starved: u64,
    /// Requests that needed no kernel operation of their own: they went with the one before them.
    pub joined: u64,
    /// Requests that went together and were made again, each by itself.
    pub parted: u64,
}
