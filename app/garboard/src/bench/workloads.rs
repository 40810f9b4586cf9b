//! The workloads: what each asks, and at which jobs and depths it is measured.

use super::pattern::{Order, With, Work};

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;

/// A workload by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(super) work: Work,
    /// What it is measured at when nobody says.
    pub(super) jobs: &'static [usize],
    pub(super) depths: &'static [usize],
}

pub(super) const fn work(order: Order, bytes: u64, read_percent: u8) -> Work {
    Work {
        order,
        bytes,
        read_percent,
        with: With::Nothing,
    }
}

const fn burst(bytes: u64, read_percent: u8) -> Work {
    Work {
        with: With::Burst(bytes),
        ..work(Order::Sequential, MIB, read_percent)
    }
}

const BURST_JOBS: &[usize] = &[8];
const BURST_DEPTHS: &[usize] = &[32];
const ONE_AND_MANY: &[usize] = &[1, 32];
const DEPTHS: &[usize] = &[1, 2, 4, 8, 16, 32];
const STREAMS: &[usize] = &[1, 8];
const SHALLOW_AND_DEEP: &[usize] = &[1, 32];

/// All workloads, in the order in which they are measured. A length of zero is a full stripe, as
/// the device tells it, made at least 1 MiB.
pub(crate) const WORKLOADS: [Workload; 15] = [
    Workload {
        name: "random_read",
        about: "4 KiB anywhere",
        work: work(Order::Random, 4 * KIB, 100),
        jobs: ONE_AND_MANY,
        depths: DEPTHS,
    },
    Workload {
        name: "random_write",
        about: "4 KiB anywhere",
        work: work(Order::Random, 4 * KIB, 0),
        jobs: ONE_AND_MANY,
        depths: DEPTHS,
    },
    Workload {
        name: "random_mixed",
        about: "4 KiB anywhere, 70 reads to 30 writes",
        work: work(Order::Random, 4 * KIB, 70),
        jobs: ONE_AND_MANY,
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "sequential_read",
        about: "one after the other, each job in its own part",
        work: work(Order::Sequential, MIB, 100),
        jobs: STREAMS,
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "sequential_write",
        about: "one after the other, each job in its own part",
        work: work(Order::Sequential, MIB, 0),
        jobs: STREAMS,
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "stripe_write",
        about: "full stripes, at least 1 MiB, each job in its own part",
        work: work(Order::Sequential, 0, 0),
        jobs: STREAMS,
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "stripe_read",
        about: "full stripes, at least 1 MiB, each job in its own part",
        work: work(Order::Sequential, 0, 100),
        jobs: STREAMS,
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "odd_write",
        about: "one after the other, beginning at 4 KiB; two streams",
        work: work(Order::SequentialOdd, 48 * KIB, 0),
        jobs: &[2],
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "interleaved_write",
        about: "two streams that take turns in one run, beginning at 4 KiB",
        work: work(Order::InterleavedOdd, 48 * KIB, 0),
        jobs: &[2],
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "even_write",
        about: "one after the other, beginning at 0; two streams",
        work: work(Order::Sequential, 48 * KIB, 0),
        jobs: &[2],
        depths: SHALLOW_AND_DEEP,
    },
    Workload {
        name: "burst_write_64m",
        about: "64 MiB begun together in pieces of 1 MiB, nothing else before all are done",
        work: burst(64 * MIB, 0),
        jobs: BURST_JOBS,
        depths: BURST_DEPTHS,
    },
    Workload {
        name: "burst_write_256m",
        about: "256 MiB begun together in pieces of 1 MiB, nothing else before all are done",
        work: burst(256 * MIB, 0),
        jobs: BURST_JOBS,
        depths: BURST_DEPTHS,
    },
    Workload {
        name: "burst_read_64m",
        about: "64 MiB begun together in pieces of 1 MiB, nothing else before all are done",
        work: burst(64 * MIB, 100),
        jobs: BURST_JOBS,
        depths: BURST_DEPTHS,
    },
    Workload {
        name: "burst_read_256m",
        about: "256 MiB begun together in pieces of 1 MiB, nothing else before all are done",
        work: burst(256 * MIB, 100),
        jobs: BURST_JOBS,
        depths: BURST_DEPTHS,
    },
    Workload {
        name: "write_flush",
        about: "4 KiB and a flush, as journals commit",
        work: Work {
            order: Order::Random,
            bytes: 4 * KIB,
            read_percent: 0,
            with: With::Flush,
        },
        jobs: &[1],
        depths: SHALLOW_AND_DEEP,
    },
];

impl Workload {
    /// Bytes of its requests on a device with stripes of so many bytes (0: not known).
    pub(super) fn bytes(&self, stripe: u64) -> u64 {
        if self.work.bytes > 0 {
            return self.work.bytes;
        }
        let stripe = stripe.max(4 * KIB);
        stripe * MIB.div_ceil(stripe)
    }

    pub(crate) fn writes(&self) -> bool {
        self.work.read_percent < 100
    }
}
