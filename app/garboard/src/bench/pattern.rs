//! Which block comes next: the same for every layer, so that they can be compared.

use units::{bytes_u64, bytes_usize};

use super::device::{Kind, Request};

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Anywhere, at multiples of their length.
    Random,
    /// One after the other, each job in its own part of the range.
    Sequential,
    /// One after the other, beginning 4 KiB off a multiple of their length.
    SequentialOdd,
    /// All jobs in one run of requests, each taking every so-manieth, beginning 4 KiB off: as
    /// processes that share a file do (IO500's "hard" write).
    InterleavedOdd,
}

/// What the requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) order: Order,
    pub(super) bytes: u64,
    /// Reads of each hundred requests.
    pub(super) read_percent: u8,
    /// What belongs to each request besides itself.
    pub(super) with: With,
}

/// What belongs to a request, or to many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    Nothing,
    /// Each write is followed by a flush, and counted when that is answered.
    Flush,
    /// So many bytes are begun together, and nothing else before all of them are done.
    Burst(u64),
}

/// Chooses requests, job by job.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    work: Work,
    jobs: usize,
    range: u64,
    /// By job: requests begun.
    begun: Vec<u64>,
    chance: u64,
}

impl Pattern {
    /// Requests of `work` by so many jobs in the first `range` bytes; different `seed`s differ.
    pub(super) fn new(work: Work, jobs: usize, range: u64, seed: u64) -> Pattern {
        Pattern {
            work,
            jobs,
            range,
            begun: vec![0; jobs],
            // Never zero, which xorshift does not leave.
            chance: 0x9E37_79B9_7F4A_7C15 ^ (seed << 1),
        }
    }

    /// The next request of a job; the same again until it is [`Pattern::took`], but for chance.
    pub(super) fn next(&mut self, job: usize) -> Request {
        let work = self.work;
        let read = self.random(100) < u64::from(work.read_percent);
        Request {
            kind: if read { Kind::Read } else { Kind::Write },
            offset: self.place(job),
            bytes: bytes_usize(work.bytes),
        }
    }

    /// Notes that the job has begun what came next.
    pub(super) fn took(&mut self, job: usize) {
        self.begun[job] += 1;
    }

    /// How many places are worth trying while others are busy on them.
    pub(super) fn tries(&self) -> usize {
        if self.work.order == Order::Random {
            16
        } else {
            1
        }
    }

    fn place(&mut self, job: usize) -> u64 {
        let bytes = self.work.bytes;
        let begin = match self.work.order {
            Order::Random => return self.random(self.range / bytes) * bytes,
            Order::Sequential => 0,
            Order::SequentialOdd | Order::InterleavedOdd => 4096,
        };
        let all = (self.range - begin) / bytes;
        let (jobs, job_number) = (bytes_u64(self.jobs), bytes_u64(job));
        let part = (all / jobs).max(1);
        let turn = self.begun[job] % part;
        let number = match self.work.order {
            Order::InterleavedOdd => turn * jobs + job_number,
            Order::Random | Order::Sequential | Order::SequentialOdd => job_number * part + turn,
        };
        begin + number % all * bytes
    }

    /// A random number below `end` (xorshift; good enough to choose blocks).
    fn random(&mut self, end: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(order: Order, jobs: usize, count: usize) -> Vec<Vec<u64>> {
        let work = Work {
            order,
            bytes: 48 << 10,
            read_percent: 0,
            with: With::Nothing,
        };
        let mut pattern = Pattern::new(work, jobs, 1 << 20, 1);
        let mut of_job = |job| {
            let mut next = || {
                let request = pattern.next(job);
                pattern.took(job);
                assert_eq!(request.kind, Kind::Write);
                assert!(request.offset + (48 << 10) <= 1 << 20, "inside the range");
                request.offset
            };
            (0..count).map(|_| next()).collect()
        };
        (0..jobs).map(&mut of_job).collect()
    }

    #[test]
    fn interleaved_streams_fill_one_run_of_requests_together() {
        let of = offsets(Order::InterleavedOdd, 2, 10);
        let mut all = of.concat();
        all.sort_unstable();
        let run: Vec<u64> = (0..20).map(|number| 4096 + number * (48 << 10)).collect();
        assert_eq!(all, run, "every piece once, none aligned");
        assert_eq!(of[0][1] - of[0][0], 96 << 10, "the other's piece between");
        // And from the start again.
        assert_eq!(offsets(Order::InterleavedOdd, 2, 11)[1][10], of[1][0]);
    }

    #[test]
    fn streams_of_their_own_do_not_meet() {
        for (order, begin) in [(Order::Sequential, 0), (Order::SequentialOdd, 4096)] {
            let of = offsets(order, 2, 10);
            assert_eq!(of[0][0], begin);
            assert_eq!(of[0][1], begin + (48 << 10));
            assert_eq!(of[1][0], begin + 10 * (48 << 10));
        }
    }

    #[test]
    fn random_requests_lie_anywhere_at_multiples_of_their_length() {
        let of = offsets(Order::Random, 1, 2000);
        let mut places: Vec<u64> = of[0].iter().map(|offset| offset / (48 << 10)).collect();
        assert!(of[0].iter().all(|offset| offset.is_multiple_of(48 << 10)));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 21, "all places of 1 MiB");
    }
}
