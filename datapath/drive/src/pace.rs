//! How a pretended drive takes its time: the service law of a drive model.
//!
//! Every request passes a server of its direction, which gives each its cost one after the other
//! (4 KiB random requests by the model's requests per second, longer ones by its bytes per second,
//! whichever takes longer), and is answered no earlier than the model's latency after it came. So a
//! request alone takes the latency, d requests in flight give d per latency until the server is
//! busy without a pause, and the model's internal parallelism is latency × requests per second.
//! Where the model has one limit for both directions together, requests pass that server, too.
//! With interference, each request also takes a part of its cost from the other direction.
//!
//! What a request's place is plays no part: a small sequential one costs what a random one does.
//! Flushes, discards and zeroing take the write latency and nothing else; flushes of a model
//! without a volatile cache take nothing, as ports do not ask such drives for them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use block::Operation;
use models::Model;
use units::Instant;

/// Parts of a nanosecond that costs are counted in: rounding a cost to them changes a rate of
/// millions by less than a part in 10,000.
const TICKS_PER_NS: u64 = 64;
const TICKS_PER_SECOND: u128 = 1_000_000_000 * 64;
/// Bytes of the requests that are counted by requests per second.
const RANDOM_BYTES: u64 = 4096;
/// Binary digits behind the point of the cost of a byte.
const BYTE_SHIFT: u32 = 32;

/// The most that a pretended drive may be slowed down.
pub const SLOWER_MAX: u32 = 1_000_000;

/// What a pretended drive paces itself by. All of it is fixed when the drive is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceLaw {
    name: String,
    slower: u32,
    interference_percent: u8,
    read: Way,
    write: Way,
    /// Requests per second of both directions together.
    mixed_iops: Option<u64>,
    /// Whether it must be flushed.
    volatile_cache: bool,
}

/// The figures of one direction, of the model itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    iops: u64,
    bytes_per_second: u64,
    latency_us: u64,
}

impl PaceLaw {
    /// The law of `model`, `slower` times as slow, in which each request takes
    /// `interference_percent` of its cost from the other direction as well.
    ///
    /// # Panics
    /// When `slower` is zero or above [`SLOWER_MAX`], or the interference above 100.
    #[must_use]
    pub fn new(model: &Model, slower: u32, interference_percent: u8) -> PaceLaw {
        assert!((1..=SLOWER_MAX).contains(&slower), "slower by {slower}");
        assert!(interference_percent <= 100, "{interference_percent} %");
        PaceLaw {
            name: model.name.clone(),
            slower,
            interference_percent,
            read: Way {
                iops: model.read_iops.value,
                bytes_per_second: model.read_bytes_per_second.value,
                latency_us: model.read_latency_us.value,
            },
            write: Way {
                iops: model.write_iops.value,
                bytes_per_second: model.write_bytes_per_second.value,
                latency_us: model.write_latency_us.value,
            },
            mixed_iops: model.mixed_iops.as_ref().map(|mixed| mixed.value),
            volatile_cache: model.volatile_cache,
        }
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the model must be flushed.
    pub(crate) fn volatile_cache(&self) -> bool {
        self.volatile_cache
    }

    /// How many times slower than the model.
    #[must_use]
    pub fn slower(&self) -> u32 {
        self.slower
    }

    /// Ticks of one of `per_second`, slowed down.
    fn ticks(&self, per_second: u64) -> u64 {
        let all = TICKS_PER_SECOND * u128::from(self.slower);
        let each = (all + u128::from(per_second / 2)) / u128::from(per_second);
        u64::try_from(each).unwrap_or(u64::MAX)
    }

    fn costs(&self, way: &Way) -> Costs {
        let all = (TICKS_PER_SECOND * u128::from(self.slower)) << BYTE_SHIFT;
        let byte = all / u128::from(way.bytes_per_second);
        let latency = u128::from(way.latency_us) * u128::from(self.slower);
        let latency = latency * 1000 * u128::from(TICKS_PER_NS);
        Costs {
            request: self.ticks(way.iops),
            byte: u64::try_from(byte).unwrap_or(u64::MAX),
            latency: u64::try_from(latency).unwrap_or(u64::MAX),
        }
    }
}

impl fmt::Display for PaceLaw {
    /// All of the law in a line, in the figures that result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slower = f64::from(self.slower);
        write!(f, "paced as {}", self.name)?;
        if self.slower > 1 {
            write!(f, " at 1/{}", self.slower)?;
        }
        for (name, way) in [(": reads", self.read), ("; writes", self.write)] {
            let parallel = way.iops.saturating_mul(way.latency_us).div_ceil(1_000_000);
            write!(
                f,
                "{name} {:.1}/s of 4 KiB, {:.3} MB/s, {} us, {parallel} at a time",
                way.iops as f64 / slower,
                way.bytes_per_second as f64 / slower / 1e6,
                way.latency_us.saturating_mul(u64::from(self.slower)),
            )?;
        }
        if let Some(mixed) = self.mixed_iops {
            write!(f, "; both together {:.1}/s", mixed as f64 / slower)?;
        }
        if self.volatile_cache {
            f.write_str("; flushes take as long as a write")?;
        }
        match self.interference_percent {
            0 => f.write_str("; reads and writes do not slow each other"),
            percent => write!(f, "; each takes {percent} % of its time from the other"),
        }
    }
}

/// The costs of one direction, in ticks.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Of a request of at most 4 KiB.
    request: u64,
    /// Of a byte, times 2^[`BYTE_SHIFT`].
    byte: u64,
    /// From request to answer, at the least.
    latency: u64,
}

impl Costs {
    /// What a request of so many bytes takes of its server's time.
    fn of(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(RANDOM_BYTES);
        let moved = (u128::from(bytes) * u128::from(self.byte)) >> BYTE_SHIFT;
        self.request.max(u64::try_from(moved).unwrap_or(u64::MAX))
    }
}

/// Something that serves one request after the other: the tick at which it will have served all
/// that it was given. Shared by all reactors.
#[derive(Debug, Default)]
struct Server(AtomicU64);

impl Server {
    /// Gives it a request that comes at `now`; when it will be served.
    fn take(&self, now: u64, cost: u64) -> u64 {
        let after = |free: u64| free.max(now).saturating_add(cost);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                Some(after(free))
            });
        after(before.expect("the closure always has an answer"))
    }
}

/// The pace of one open drive.
#[derive(Debug)]
pub(crate) struct Pacer {
    law: PaceLaw,
    read: Costs,
    write: Costs,
    /// Ticks of a request on the server of both directions.
    mixed: Option<u64>,
    begin: Instant,
    reads: Server,
    writes: Server,
    both: Server,
}

impl Pacer {
    /// A drive that is idle, from `begin` on.
    pub(crate) fn new(law: PaceLaw, begin: Instant) -> Pacer {
        Pacer {
            read: law.costs(&law.read),
            write: law.costs(&law.write),
            mixed: law.mixed_iops.map(|mixed| law.ticks(mixed)),
            law,
            begin,
            reads: Server::default(),
            writes: Server::default(),
            both: Server::default(),
        }
    }

    pub(crate) fn law(&self) -> &PaceLaw {
        &self.law
    }

    /// How long after `now` a request that comes now is answered. Gives the request its place
    /// among those before it, so it is asked once for each.
    pub(crate) fn pause(&self, now: Instant, operation: Operation, bytes: u64) -> Duration {
        let came = ticks_of(now.since(self.begin));
        let (costs, own, other) = match operation {
            Operation::Read => (self.read, &self.reads, &self.writes),
            Operation::Write => (self.write, &self.writes, &self.reads),
            Operation::Flush if !self.law.volatile_cache => return Duration::ZERO,
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {
                return duration_of(self.write.latency);
            }
        };
        let cost = costs.of(bytes);
        let mut served = own.take(came, cost);
        if let Some(cost) = self.mixed {
            served = served.max(self.both.take(came, cost));
        }
        let percent = u64::from(self.law.interference_percent);
        if percent > 0 {
            // It waits for nobody there; those who come later wait for it.
            other.take(came, (cost / 100).saturating_mul(percent));
        }
        duration_of((served - came).max(costs.latency))
    }
}

fn ticks_of(duration: Duration) -> u64 {
    let ticks = duration.as_nanos() * u128::from(TICKS_PER_NS);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Rounded up: an answer may be late, not early.
fn duration_of(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.div_ceil(TICKS_PER_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant(1_000);

    fn pacer(name: &str, slower: u32, interference: u8) -> Pacer {
        let model = Model::named(name).expect("built in");
        Pacer::new(PaceLaw::new(&model, slower, interference), START)
    }

    /// Answers per second of a drive that has `depth` requests in flight all the time.
    fn rate(pacer: &Pacer, depth: usize, mut next: impl FnMut(usize) -> (Operation, u64)) -> f64 {
        let count = 20_000;
        let mut in_flight: Vec<Instant> = vec![START; depth];
        let mut end = START;
        for number in 0..count {
            // The earliest answer makes room for the next request.
            let (place, now) = in_flight
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|(_, due)| *due)
                .expect("at least one");
            let (operation, bytes) = next(number);
            in_flight[place] = now + pacer.pause(now, operation, bytes);
            end = end.max(in_flight[place]);
        }
        f64::from(u32::try_from(count).expect("small")) / end.since(START).as_secs_f64()
    }

    fn assert_near(value: f64, expected: f64) {
        assert!(
            (value / expected - 1.0).abs() < 0.01,
            "{value}, not {expected}"
        );
    }

    #[test]
    fn a_request_alone_takes_the_latency_and_deep_queues_give_the_rate() {
        let read = |_| (Operation::Read, 4096);
        let write = |_| (Operation::Write, 4096);
        for slower in [1, 1000] {
            let scale = f64::from(slower);
            for (depth, expected) in [
                (1, 1e6 / 75.0),
                (32, 32e6 / 75.0),
                (202, 202e6 / 75.0),
                (203, 2.7e6),
                (1024, 2.7e6),
            ] {
                let pacer = pacer("kioxia-cm7", slower, 0);
                assert_near(rate(&pacer, depth, read), expected / scale);
            }
            for (depth, expected) in [(1, 1e6 / 14.0), (9, 9e6 / 14.0), (64, 0.7e6)] {
                let pacer = pacer("kioxia-cm7", slower, 0);
                assert_near(rate(&pacer, depth, write), expected / scale);
            }
        }
    }

    #[test]
    fn long_requests_are_paced_by_their_bytes() {
        let mib = 1_048_576.0;
        let pacer_of = || pacer("kioxia-cm7", 100, 0);
        let read = rate(&pacer_of(), 32, |_| (Operation::Read, 1 << 20));
        assert_near(read * mib, 140e6);
        let write = rate(&pacer_of(), 32, |_| (Operation::Write, 1 << 20));
        assert_near(write * mib, 67.5e6);
        // Half a block is a request like any other.
        assert_near(rate(&pacer_of(), 999, |_| (Operation::Read, 512)), 27e3);
    }

    #[test]
    fn reads_and_writes_have_servers_of_their_own_unless_the_model_says_otherwise() {
        let by_turns = |number: usize| match number % 2 {
            0 => (Operation::Read, 4096),
            _ => (Operation::Write, 4096),
        };
        // The slower direction keeps pace, the other one waits for it: twice its rate.
        assert_near(rate(&pacer("kioxia-cm7", 1, 0), 1024, by_turns), 1.4e6);
        // One arm.
        assert_near(rate(&pacer("hdd-7200", 1, 0), 64, by_turns), 170.0);
        // Full interference: the costs of both add up, 1/2.7 M + 1/0.7 M for a pair.
        let pair = 1.0 / 2.7e6 + 1.0 / 0.7e6;
        assert_near(
            rate(&pacer("kioxia-cm7", 1, 100), 1024, by_turns),
            2.0 / pair,
        );
        let half = 0.5 / 2.7e6 + 1.0 / 0.7e6;
        assert_near(
            rate(&pacer("kioxia-cm7", 1, 50), 1024, by_turns),
            2.0 / half,
        );
    }

    #[test]
    fn a_drive_that_was_idle_owes_nothing() {
        let pacer = pacer("kioxia-cm7", 1000, 0);
        let latency = Duration::from_millis(75);
        assert_eq!(pacer.pause(START, Operation::Read, 4096), latency);
        // A second later nothing has been saved up, and nothing is left.
        let later = START + Duration::from_secs(1);
        let cost = Duration::from_nanos(370_370);
        for number in 1..300u32 {
            let pause = pacer.pause(later, Operation::Read, 4096);
            let expected = latency.max(cost * number);
            assert!(
                pause.abs_diff(expected) < Duration::from_micros(1),
                "{number}: {pause:?}"
            );
        }
    }

    #[test]
    fn what_moves_no_bytes_takes_the_write_latency_and_holds_nobody_up() {
        let pacer = pacer("kioxia-cm7", 1000, 100);
        for operation in [Operation::Discard, Operation::WriteZeroes] {
            for _ in 0..100 {
                let pause = pacer.pause(START, operation, 1 << 30);
                assert_eq!(pause, Duration::from_millis(14), "{operation:?}");
            }
        }
        let read = pacer.pause(START, Operation::Read, 4096);
        assert_eq!(read, Duration::from_millis(75));
    }

    #[test]
    fn a_flush_takes_time_only_where_there_is_a_volatile_cache() {
        let flush = |name| pacer(name, 10, 0).pause(START, Operation::Flush, 0);
        assert_eq!(flush("kioxia-cm7"), Duration::ZERO);
        assert_eq!(flush("hdd-7200"), Duration::from_millis(120));
    }

    #[test]
    fn threads_share_one_rate() {
        let pacer = pacer("kioxia-cm7", 1, 0);
        let longest = std::thread::scope(|scope| {
            let ask = || {
                let pauses = (0..10_000).map(|_| pacer.pause(START, Operation::Read, 4096));
                pauses.max().expect("some")
            };
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let named = std::thread::Builder::new().name(format!("asker {number}"));
                    named.spawn_scoped(scope, ask).expect("a thread")
                })
                .collect();
            let longest = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            longest.max().expect("four")
        });
        assert_near(40_000.0 / longest.as_secs_f64(), 2.7e6);
    }

    #[test]
    fn extreme_figures_neither_wrap_nor_divide_by_zero() {
        let mut model = Model::named("hdd-7200").expect("built in");
        model.read_iops.value = 1;
        model.read_bytes_per_second.value = 1;
        model.read_latency_us.value = 3_600_000_000;
        let pacer = Pacer::new(PaceLaw::new(&model, SLOWER_MAX, 100), START);
        let far = Instant(u64::MAX / 2);
        for _ in 0..3 {
            let pause = pacer.pause(far, Operation::Read, u64::MAX);
            assert!(pause > Duration::from_secs(3600));
        }
        model.write_iops.value = 1 << 52;
        model.write_bytes_per_second.value = 1 << 52;
        model.write_latency_us.value = 1;
        model.mixed_iops = None;
        let pacer = Pacer::new(PaceLaw::new(&model, 1, 0), START);
        let pause = pacer.pause(START, Operation::Write, 4096);
        assert_eq!(pause, Duration::from_micros(1));
    }

    #[test]
    fn the_law_is_told_in_the_figures_that_result() {
        let text = pacer("kioxia-cm7", 1000, 0).law().to_string();
        assert_eq!(
            text,
            "paced as kioxia-cm7 at 1/1000: reads 2700.0/s of 4 KiB, 14.000 MB/s, 75000 us, 203 at \
             a time; writes 700.0/s of 4 KiB, 6.750 MB/s, 14000 us, 10 at a time; reads and writes \
             do not slow each other"
        );
        let text = pacer("hdd-7200", 1, 100).law().to_string();
        assert!(text.contains("paced as hdd-7200: reads 170.0/s"), "{text}");
        assert!(
            text.contains(
                "; both together 170.0/s; flushes take as long as a write; each takes 100 %"
            ),
            "{text}"
        );
    }
}
