//! Latencies, counted in buckets a thirty-second part wide.

/// Buckets of each power of two.
const PARTS: u64 = 32;
const PART_BITS: u32 = 5;

/// How often each latency was seen.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        let buckets = bucket_of(u64::MAX) + 1;
        Histogram {
            buckets: vec![0; buckets],
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }

    pub(super) fn add(&mut self, ns: u64) {
        self.add_many(ns, 1);
    }

    pub(super) fn add_many(&mut self, ns: u64, count: u64) {
        self.buckets[bucket_of(ns)] += count;
        self.count += count;
        self.sum_ns += u128::from(ns) * u128::from(count);
        if count > 0 {
            self.max_ns = self.max_ns.max(ns);
        }
    }

    /// Takes over what another one counted.
    pub(super) fn merge(&mut self, other: &Histogram) {
        for (own, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The latency that so many of a thousand stay below, at most a thirty-second part too long.
    pub(super) fn per_mille(&self, part: u64) -> u64 {
        let wanted = (self.count * part).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    pub(super) fn mean_ns(&self) -> u64 {
        let mean = self.sum_ns / u128::from(self.count.max(1));
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    pub(super) fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < PARTS {
        return units::bytes_usize(ns);
    }
    let power = 63 - ns.leading_zeros();
    let part = (ns >> (power - PART_BITS)) & (PARTS - 1);
    units::bytes_usize(u64::from(power - PART_BITS + 1) * PARTS + part)
}

/// The longest latency of a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = units::bytes_u64(bucket);
    if bucket < PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    let begin = u128::from(PARTS + bucket % PARTS) << shift;
    let end = begin + (1_u128 << shift) - 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_a_bucket_that_ends_at_most_a_part_later() {
        let mut ns = 0_u64;
        while ns < u64::MAX / 3 {
            let end = end_of(bucket_of(ns));
            assert!(end >= ns && end - ns <= ns / 32, "{ns}: {end}");
            assert!(bucket_of(end + 1) == bucket_of(ns) + 1, "{ns}");
            ns += ns / 16 + 1;
        }
        assert_eq!(end_of(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut histogram = Histogram::new();
        let mut other = Histogram::new();
        for number in 1..=10_000_u64 {
            let half = if number % 2 == 0 {
                &mut histogram
            } else {
                &mut other
            };
            half.add(number * 1000);
        }
        histogram.merge(&other);
        for (part, exact) in [(500, 5_000_000), (990, 9_900_000), (999, 9_990_000)] {
            let found = histogram.per_mille(part);
            assert!(
                found >= exact && found - exact <= exact / 32,
                "{part}: {found}"
            );
        }
        assert_eq!(histogram.per_mille(1000), 10_000_000);
        assert_eq!(histogram.max_ns(), 10_000_000);
        assert_eq!(histogram.mean_ns(), 5_000_500);
        assert_eq!(Histogram::new().per_mille(999), 0);
    }
}
