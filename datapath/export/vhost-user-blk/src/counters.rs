//! What one queue has done, counted by the reactor that owns it and shared with nobody.

use block::{Histogram, LATENCY_BUCKETS, Operation};

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
    /// Counts one request that took so many nanoseconds.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.buckets[Histogram::bucket_of(nanoseconds)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanoseconds);
    }

    fn add(&mut self, other: &Latency) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// How many requests were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// With status "ok".
    pub(crate) well: bool,
    /// From the pop on.
    pub(crate) took_ns: u64,
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
        let changes = self.writes + self.discards + self.write_zeroes;
        self.reads + changes + self.flushes + self.others
    }

    /// Adds what another queue has done.
    pub fn add(&mut self, other: &Counters) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.write_zeroes += other.write_zeroes;
        self.others += other.others;
        self.errors += other.errors;
        self.flushes_added += other.flushes_added;
        self.resubmitted += other.resubmitted;
        self.full += other.full;
        self.calls += other.calls;
        self.kicks += other.kicks;
        self.read_latency.add(&other.read_latency);
        self.write_latency.add(&other.write_latency);
        self.other_latency.add(&other.other_latency);
    }

    /// Counts one answer, and how long it took. `bytes` were moved; `operation` is `None` for what
    /// is not of the volume.
    #[inline]
    pub(crate) fn answered(&mut self, operation: Option<Operation>, bytes: u64, answer: Answer) {
        self.errors += u64::from(!answer.well);
        let moved = if answer.well { bytes } else { 0 };
        let latency = match operation {
            Some(Operation::Read) => {
                self.reads += 1;
                self.read_bytes += moved;
                &mut self.read_latency
            }
            Some(Operation::Write) => {
                self.writes += 1;
                self.write_bytes += moved;
                &mut self.write_latency
            }
            Some(Operation::Flush) => {
                self.flushes += 1;
                &mut self.other_latency
            }
            Some(Operation::Discard) => {
                self.discards += 1;
                &mut self.write_latency
            }
            Some(Operation::WriteZeroes) => {
                self.write_zeroes += 1;
                &mut self.write_latency
            }
            None => {
                self.others += 1;
                &mut self.other_latency
            }
        };
        latency.record(answer.took_ns);
    }
}
