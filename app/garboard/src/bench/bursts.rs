//! Bursts: many requests begun together, and nothing else before all of them are done, as jobs of
//! one computation write what they have found.
//!
//! What counts is when the first job is done with its share, and when the last one is: between the
//! two the others wait for stragglers.

use units::{Instant, bytes_u64};

use super::histogram::Histogram;

/// The burst that is under way.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    /// Requests of each job.
    share: u64,
    /// When it began; none between two.
    begun: Option<Instant>,
    /// By job.
    submitted: Vec<u64>,
    answered: Vec<u64>,
    bytes: u64,
    /// How long until the first job was done, and the bytes of all jobs that were done by then.
    first: Option<(u64, u64)>,
}

/// What is known of the bursts that counted.
#[derive(Clone, Debug)]
pub(super) struct BurstTimes {
    pub(super) first: Histogram,
    pub(super) last: Histogram,
    first_ns: u64,
    first_bytes: u64,
    last_ns: u64,
    last_bytes: u64,
    pub(super) count: u64,
}

impl Default for BurstTimes {
    fn default() -> BurstTimes {
        BurstTimes {
            first: Histogram::new(),
            last: Histogram::new(),
            first_ns: 0,
            first_bytes: 0,
            last_ns: 0,
            last_bytes: 0,
            count: 0,
        }
    }
}

impl Burst {
    /// Bursts of so many requests by so many jobs, shared evenly; each job has at least one.
    pub(super) fn new(requests: u64, jobs: usize) -> Burst {
        Burst {
            share: (requests / bytes_u64(jobs)).max(1),
            begun: None,
            submitted: vec![0; jobs],
            answered: vec![0; jobs],
            bytes: 0,
            first: None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn begin(&mut self, now: Instant) {
        assert!(self.begun.is_none(), "one after the other");
        self.begun = Some(now);
        self.submitted.fill(0);
        self.answered.fill(0);
        self.bytes = 0;
        self.first = None;
    }

    /// Whether the job has something left to submit.
    pub(super) fn wants(&self, job: usize) -> bool {
        self.is_running() && self.submitted[job] < self.share
    }

    pub(super) fn submitted(&mut self, job: usize) {
        self.submitted[job] += 1;
    }

    /// Notes an answer; ends the burst with the last. Whether the answer counts: it does when the
    /// burst began after `from`.
    pub(super) fn answered(
        &mut self,
        job: usize,
        bytes: u64,
        now: Instant,
        (from, found): (Instant, &mut BurstTimes),
    ) -> bool {
        let begun = self.begun.expect("it was submitted in a burst");
        self.answered[job] += 1;
        self.bytes += bytes;
        let took = u64::try_from(now.since(begun).as_nanos()).unwrap_or(u64::MAX);
        if self.answered[job] == self.share && self.first.is_none() {
            self.first = Some((took, self.bytes));
        }
        let counts = begun >= from;
        if self.answered.iter().all(|answered| *answered == self.share) {
            self.begun = None;
            let (first_ns, first_bytes) = self.first.expect("a job was the first");
            if counts {
                found.first.add(first_ns);
                found.last.add(took);
                found.first_ns += first_ns;
                found.first_bytes += first_bytes;
                found.last_ns += took;
                found.last_bytes += self.bytes;
                found.count += 1;
            }
        }
        counts
    }
}

impl BurstTimes {
    /// The time of all bursts together.
    pub(super) fn seconds(&self) -> f64 {
        seconds(self.last_ns)
    }

    /// Bytes per second until the first job was done, and until the last one was.
    pub(super) fn rates(&self) -> (f64, f64) {
        let rate = |bytes: u64, ns: u64| crate::expect::float(bytes) / seconds(ns).max(1e-9);
        (
            rate(self.first_bytes, self.first_ns),
            rate(self.last_bytes, self.last_ns),
        )
    }

    pub(super) fn add(&mut self, other: &BurstTimes) {
        self.first.merge(&other.first);
        self.last.merge(&other.last);
        self.first_ns += other.first_ns;
        self.first_bytes += other.first_bytes;
        self.last_ns += other.last_ns;
        self.last_bytes += other.last_bytes;
        self.count += other.count;
    }
}

fn seconds(ns: u64) -> f64 {
    crate::expect::float(ns) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_with_its_last_answer_and_knows_who_was_first() {
        let mut burst = Burst::new(5, 2);
        let mut found = BurstTimes::default();
        let at = |ns: u64| Instant(ns);
        for (begin, counted) in [(0, 0), (1000, 1)] {
            burst.begin(at(begin));
            for job in [0, 0, 1, 1] {
                assert!(burst.wants(job));
                burst.submitted(job);
            }
            assert!(!burst.wants(0) && !burst.wants(1), "five are two each");
            for (job, ns) in [(1, 10), (0, 20), (1, 30), (0, 70)] {
                assert!(burst.is_running());
                let counts = burst.answered(job, 100, at(begin + ns), (at(500), &mut found));
                assert_eq!(counts, counted == 1);
            }
            assert!(!burst.is_running());
            assert_eq!(found.count, counted);
        }
        // Job 1 was done after 30 ns, when 300 bytes were; all 400 were after 70.
        assert_eq!((found.first.max_ns(), found.last.max_ns()), (30, 70));
        let (first, last) = found.rates();
        assert!((first - 1e10).abs() < 1.0, "{first}");
        assert!((last - 400e9 / 70.0).abs() < 1.0, "{last}");
    }
}
