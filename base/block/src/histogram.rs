//! How long requests took, in buckets of growing width.

/// Buckets of a histogram.
pub const LATENCY_BUCKETS: usize = 96;
/// Buckets per power of two: a bucket is at most a quarter wider than its lower bound.
const STEPS: u32 = 4;
/// The first power of two with buckets of its own: all below 1.024 µs is one bucket.
const FIRST_POWER: u32 = 10;

/// Counts of requests by how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Requests in each bucket.
    pub buckets: [u64; LATENCY_BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [0; LATENCY_BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts one request.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.buckets[Histogram::bucket_of(nanoseconds)] += 1;
    }

    /// The bucket that holds so many nanoseconds.
    #[inline]
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

    /// The first time, in nanoseconds, that is too long for a bucket; `None` for the last.
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

    /// The bucket of the time that all but a hundredth did not take longer than.
    #[must_use]
    pub fn p99_bucket(&self) -> Option<usize> {
        self.bucket_below(self.count() / 100)
    }

    /// The bucket of the longest time but so many.
    #[must_use]
    pub fn bucket_below(&self, mut above: u64) -> Option<usize> {
        for (bucket, &count) in self.buckets.iter().enumerate().rev() {
            if count > above {
                return Some(bucket);
            }
            above -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_whose_bounds_hold_it() {
        let mut begin = 0;
        for bucket in 0..LATENCY_BUCKETS - 1 {
            let end = Histogram::end_of_bucket(bucket).unwrap();
            assert!(end > begin, "bucket {bucket}");
            assert_eq!(Histogram::bucket_of(begin), bucket, "first of {bucket}");
            assert_eq!(Histogram::bucket_of(end - 1), bucket, "last of {bucket}");
            begin = end;
        }
        assert_eq!(Histogram::bucket_of(begin), LATENCY_BUCKETS - 1);
        assert_eq!(Histogram::bucket_of(u64::MAX), LATENCY_BUCKETS - 1);
        assert_eq!(Histogram::end_of_bucket(LATENCY_BUCKETS - 1), None);
        assert!(begin > 10_000_000_000, "ten seconds are not in the last");
    }

    #[test]
    fn a_hundredth_may_take_longer_and_no_more() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.p99_bucket(), None);
        for _ in 0..198 {
            histogram.record(5_000);
        }
        for _ in 0..2 {
            histogram.record(u64::MAX);
        }
        assert_eq!(
            histogram.p99_bucket(),
            Some(Histogram::bucket_of(5_000)),
            "two of 200"
        );
        histogram.record(9_000);
        assert_eq!(histogram.p99_bucket(), Some(Histogram::bucket_of(9_000)));
    }
}
