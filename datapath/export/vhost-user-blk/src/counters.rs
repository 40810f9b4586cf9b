//! What one queue has done, counted by the reactor that owns it and shared with nobody.

use std::time::Duration;

use block::Operation;

/// Buckets of the latency histogram.
pub const LATENCY_BUCKETS: usize = 96;
/// Buckets per power of two: a bucket is at most a quarter wider than its lower bound.
const STEPS: u32 = 4;
/// The first power of two with buckets of its own: all below 1.024 µs is one bucket.
const FIRST_POWER: u32 = 10;

/// How long requests took, from the pop to the answer, in buckets of growing width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Requests in each bucket.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// Sum of all, in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            buckets: [0; LATENCY_BUCKETS],
            sum_ns: 0,
        }
    }
}

impl Latency {
    /// Counts one request.
    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[Latency::bucket_of(nanoseconds)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
    }

    /// The bucket that holds a duration.
    #[must_use]
    pub fn bucket_of(nanoseconds: u64) -> usize {
        let power = nanoseconds.max(1).ilog2();
        if power < FIRST_POWER {
            return 0;
        }
        let step = nanoseconds >> (power - STEPS.ilog2()) & u64::from(STEPS - 1);
        let bucket = u64::from((power - FIRST_POWER) * STEPS) + step + 1;
        units::bytes_usize(bucket).min(LATENCY_BUCKETS - 1)
    }

    /// The first duration, in nanoseconds, that is too long for a bucket; `None` for the last.
    #[must_use]
    pub fn end_of_bucket(bucket: usize) -> Option<u64> {
        if bucket + 1 >= LATENCY_BUCKETS {
            return None;
        }
        let bucket = u32::try_from(bucket).ok()?;
        let (power, step) = (FIRST_POWER + bucket / STEPS, bucket % STEPS);
        Some((u64::from(STEPS + step)) << (power - STEPS.ilog2()))
    }

    /// How many requests were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// What one queue has done since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads answered.
    pub reads: u64,
    /// Bytes of reads answered well.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes of writes answered well.
    pub write_bytes: u64,
    /// Flushes that the guest asked for.
    pub flushes: u64,
    /// Discards answered.
    pub discards: u64,
    /// Write-zeroes answered.
    pub write_zeroes: u64,
    /// Everything else: the serial, unknown and malformed requests.
    pub others: u64,
    /// Requests answered with another status than "ok".
    pub errors: u64,
    /// Flushes that the cache mode added to writes.
    pub flushes_added: u64,
    /// Requests taken over from an engine that died.
    pub resubmitted: u64,
    /// Times that a request had to wait because the volume was full.
    pub full: u64,
    /// Calls of the guest.
    pub calls: u64,
    /// Kicks by the guest that were seen.
    pub kicks: u64,
    /// From the pop to the answer: reads.
    pub read_latency: Latency,
    /// Writes, discards and write-zeroes.
    pub write_latency: Latency,
    /// Flushes and all else.
    pub other_latency: Latency,
}

impl Counters {
    /// Requests answered.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.read_latency.count() + self.write_latency.count() + self.other_latency.count()
    }

    /// Counts how long an answer took.
    pub(crate) fn took(&mut self, operation: Option<Operation>, took: Duration) {
        match operation {
            Some(Operation::Read) => self.read_latency.record(took),
            Some(Operation::Write | Operation::Discard | Operation::WriteZeroes) => {
                self.write_latency.record(took);
            }
            Some(Operation::Flush) | None => self.other_latency.record(took),
        }
    }

    /// Counts one answer. `bytes` were moved; `operation` is `None` for what is not of the volume.
    pub(crate) fn answered(&mut self, operation: Option<Operation>, bytes: u64, well: bool) {
        self.errors += u64::from(!well);
        let moved = if well { bytes } else { 0 };
        match operation {
            Some(Operation::Read) => {
                self.reads += 1;
                self.read_bytes += moved;
            }
            Some(Operation::Write) => {
                self.writes += 1;
                self.write_bytes += moved;
            }
            Some(Operation::Flush) => self.flushes += 1,
            Some(Operation::Discard) => self.discards += 1,
            Some(Operation::WriteZeroes) => self.write_zeroes += 1,
            None => self.others += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_whose_bounds_hold_it() {
        let mut begin = 0;
        for bucket in 0..LATENCY_BUCKETS - 1 {
            let end = Latency::end_of_bucket(bucket).unwrap();
            assert!(end > begin, "bucket {bucket}");
            assert_eq!(Latency::bucket_of(begin), bucket, "first of {bucket}");
            assert_eq!(Latency::bucket_of(end - 1), bucket, "last of {bucket}");
            begin = end;
        }
        assert_eq!(Latency::bucket_of(begin), LATENCY_BUCKETS - 1);
        assert_eq!(Latency::bucket_of(u64::MAX), LATENCY_BUCKETS - 1);
        assert_eq!(Latency::end_of_bucket(LATENCY_BUCKETS - 1), None);
        assert!(begin > 10_000_000_000, "ten seconds are not in the last");
    }
}
