//! What one port counted for one drive. Plain numbers of one reactor: nothing is shared.

use std::time::Duration;

use block::{Operation, Status};

use crate::fault::Access;

/// Buckets of a latency histogram.
pub const LATENCY_BUCKETS: usize = 24;

/// The first bucket ends below 2^10 ns; each next one is twice as wide.
const FIRST_BUCKET_SHIFT: u32 = 10;

/// Answered requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounters {
    /// Requests answered `Ok`.
    pub requests: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Time from submission to answer of those, summed, in nanoseconds.
    pub latency_ns: u64,
    /// Those by time: bucket `i` holds times below [`OperationCounters::bucket_bound`]`(i)` that
    /// fit in no smaller bucket. The last holds all the rest.
    pub latency: [u64; LATENCY_BUCKETS],
}

impl OperationCounters {
    /// The upper bound of a bucket; none for the last.
    #[must_use]
    pub fn bucket_bound(bucket: usize) -> Option<Duration> {
        if bucket + 1 >= LATENCY_BUCKETS {
            return None;
        }
        let shift = FIRST_BUCKET_SHIFT + u32::try_from(bucket).expect("a bucket is below 24");
        Some(Duration::from_nanos(1 << shift))
    }

    pub(crate) fn add(&mut self, bytes: u64, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let above = (nanoseconds >> FIRST_BUCKET_SHIFT).checked_ilog2();
        let bucket = above.map_or(0, |power| {
            usize::try_from(power + 1).expect("a logarithm is small")
        });
        self.requests += 1;
        self.bytes += bytes;
        self.latency_ns = self.latency_ns.saturating_add(nanoseconds);
        self.latency[bucket.min(LATENCY_BUCKETS - 1)] += 1;
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
    pub(crate) fn count(&mut self, access: &Access, status: Status, latency: Duration) {
        let kind = match (status, access.operation) {
            (Status::Ok, Operation::Read) => &mut self.reads,
            (Status::Ok, Operation::Write) => &mut self.writes,
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
        kind.add(access.length, latency);
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
    /// Times that a request waited for a bounce buffer.
    pub starved: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_below_the_bound_of_its_bucket_and_above_the_one_before() {
        for nanoseconds in [0, 1, 1023, 1024, 1025, 2047, 2048, 1 << 20, (1 << 33) - 1] {
            let mut counters = OperationCounters::default();
            let latency = Duration::from_nanos(nanoseconds);
            counters.add(512, latency);
            let bucket = counters.latency.iter().position(|n| *n == 1).unwrap();
            assert!(latency < OperationCounters::bucket_bound(bucket).unwrap_or(Duration::MAX));
            let below = bucket
                .checked_sub(1)
                .and_then(OperationCounters::bucket_bound);
            assert!(
                below.is_none_or(|bound| latency >= bound),
                "{latency:?} in {bucket}"
            );
        }
        let mut counters = OperationCounters::default();
        counters.add(0, Duration::MAX);
        assert_eq!(counters.latency[LATENCY_BUCKETS - 1], 1);
    }
}
