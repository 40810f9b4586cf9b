//! Limits under false time: the rate holds, nobody starves, changes take effect.

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// As many as a ring may have.
const BATCH: u32 = 256;

fn at(milliseconds: u64) -> Instant {
    Instant(milliseconds * 1_000_000)
}

fn limits(requests: u64, bytes: u64, burst_ms: u64) -> Limits {
    Limits {
        requests_per_second: NonZeroU64::new(requests),
        bytes_per_second: NonZeroU64::new(bytes),
        burst: Duration::from_millis(burst_ms),
    }
}

fn limiter(limits: &Limits, now: Instant) -> Arc<Limiter> {
    let limiter = Arc::new(Limiter::default());
    limiter.set(limits, now);
    limiter
}

/// A ring whose guest always has another request of the same size.
struct Greedy {
    gate: Gate,
    bytes: u64,
    done: u64,
}

impl Greedy {
    fn new(limiter: &Arc<Limiter>, bytes: u64) -> Greedy {
        Greedy {
            gate: Gate::new(Arc::clone(limiter)),
            bytes,
            done: 0,
        }
    }

    /// As a reactor polls a ring.
    fn poll(&mut self, now: Instant) {
        let limited = self.gate.is_limited(now);
        for _ in 0..BATCH {
            if limited && !self.gate.admits(self.bytes, now, Haste::None) {
                return;
            }
            self.gate.passed();
            self.done += 1;
        }
    }
}

/// Polls one ring every `step` for ten seconds, with nothing saved at the beginning.
fn requests_in_ten_seconds(limits: &Limits, bytes: u64, step: Duration) -> u64 {
    let limiter = limiter(limits, at(0));
    let mut ring = Greedy::new(&limiter, bytes);
    let mut now = at(0);
    while now < at(10_000) {
        ring.poll(now);
        now = now + step;
    }
    ring.done
}

#[test]
fn requests_keep_to_their_rate_within_one_percent_however_often_they_are_polled() {
    for rate in [100, 999, 10_000, 333_333, 3_000_000] {
        for step_us in [50, 900, 7_000] {
            let step = Duration::from_micros(step_us);
            // A ring takes so many requests per poll at the most.
            let polled = u64::from(BATCH) * (10_000_000 / step_us);
            let expected = (rate * 10).min(polled);
            for bytes in [512, 16 * MIB] {
                let done = requests_in_ten_seconds(&limits(rate, 0, 100), bytes, step);
                let off = done.abs_diff(expected);
                assert!(off * 100 <= expected, "{done} of {expected} at {rate}");
            }
        }
    }
}

#[test]
fn bytes_keep_to_their_rate_within_one_percent_whatever_the_size() {
    for rate in [10 * MIB, 1_000_000_000, 100 << 30] {
        for bytes in [512, 4 * KIB, 64 * KIB, MIB] {
            let step = Duration::from_micros(500);
            let polled = u64::from(BATCH) * 20_000 * bytes;
            let expected = (rate * 10).min(polled);
            let done = bytes * requests_in_ten_seconds(&limits(0, rate, 100), bytes, step);
            let off = done.abs_diff(expected);
            assert!(off * 100 <= expected, "{done} of {expected}, by {bytes}");
        }
    }
}

#[test]
fn a_request_larger_than_all_that_can_be_saved_passes_and_is_paid_for_afterwards() {
    let limiter = limiter(&limits(0, MIB, 10), at(0));
    let mut gate = Gate::new(limiter);
    assert!(gate.admits(16 * MIB, at(0), Haste::None));
    gate.passed();
    assert!(!gate.admits(512, at(1), Haste::None));
    assert_eq!(gate.waits_until(), Some(at(16_000)));
    assert!(!gate.admits(512, at(15_999), Haste::None));
    assert!(gate.admits(512, at(16_000), Haste::None));
    assert_eq!(gate.waits_until(), None);
}

#[test]
fn both_limits_hold_and_the_tighter_one_decides() {
    let step = Duration::from_millis(1);
    let by_requests = requests_in_ten_seconds(&limits(100, 100 * MIB, 100), 4 * KIB, step);
    assert_eq!(by_requests, 1000);
    let by_bytes = requests_in_ten_seconds(&limits(100_000, MIB, 100), 64 * KIB, step);
    assert_eq!(by_bytes, 160);
}

#[test]
fn unused_limit_is_kept_for_as_long_as_the_burst_and_no_longer() {
    for (burst_ms, pause_ms, kept) in [(50, 20, 20), (50, 10_000, 50), (1, 10_000, 1)] {
        let limiter = limiter(&limits(1000, 0, burst_ms), at(0));
        let mut ring = Greedy::new(&limiter, 512);
        ring.poll(at(pause_ms));
        // And the one that is due now.
        assert_eq!(ring.done, kept + 1, "{burst_ms} ms, {pause_ms} ms");
    }
}

#[test]
fn rings_share_evenly_however_often_each_is_polled() {
    for (requests, bytes) in [(1000, 0), (0, 4 * MIB)] {
        let limiter = limiter(&limits(requests, bytes, 20), at(0));
        let mut rings: Vec<Greedy> = (0..5).map(|_| Greedy::new(&limiter, 4 * KIB)).collect();
        for step in 0..100_000 {
            let now = Instant(step * 100_000);
            // The first is on a reactor that never sleeps, the others' wake up late.
            for _ in 0..20 {
                rings[0].poll(now);
            }
            let polled = rings.iter_mut().zip(1u64..);
            for (ring, _) in polled.filter(|(_, every)| step.is_multiple_of(*every)) {
                ring.poll(now);
            }
        }
        let done: Vec<u64> = rings.iter().map(|ring| ring.done).collect();
        let all: u64 = done.iter().sum();
        assert!((9900..=10_300).contains(&all), "{done:?}");
        let (least, most) = (done.iter().min(), done.iter().max());
        assert!(
            most.expect("five") - least.expect("five") <= 120,
            "{done:?}"
        );
    }
}

#[test]
fn a_ring_of_small_requests_is_not_starved_by_one_of_large_requests() {
    let limiter = limiter(&limits(0, 10 * MIB, 100), at(0));
    let mut large = Greedy::new(&limiter, MIB);
    let mut small = Greedy::new(&limiter, 4 * KIB);
    for millisecond in 0..10_000 {
        large.poll(at(millisecond));
        small.poll(at(millisecond));
    }
    let done = [small.done, large.done];
    // Turns that come in the same millisecond change places now and then.
    assert!(2 * small.done >= large.done, "{done:?}");
    assert!((99..=101).contains(&large.done), "{done:?}");
}

#[test]
fn raised_and_removed_limits_let_go_whoever_waits() {
    let limiter = limiter(&limits(0, 4 * KIB, 100), at(0));
    let mut gate = Gate::new(Arc::clone(&limiter));
    assert!(gate.admits(16 * MIB, at(0), Haste::None));
    gate.passed();
    assert!(!gate.admits(4 * KIB, at(10), Haste::None));
    assert_eq!(gate.waits_until(), Some(at(4_096_000)));
    limiter.set(&limits(0, 4 * MIB, 100), at(20));
    assert!(
        gate.admits(4 * KIB, at(20), Haste::None),
        "the debt is gone"
    );
    gate.passed();
    let held = limiter.throttled();
    assert_eq!((held.requests, held.time.as_millis()), (1, 10));

    limiter.set(&limits(1, 0, 1), at(30));
    assert!(gate.admits(0, at(30), Haste::None));
    gate.passed();
    assert!(!gate.admits(0, at(30), Haste::None));
    limiter.set(&limits(0, 0, 1), at(130));
    assert!(!gate.is_limited(at(130)));
    assert_eq!(gate.waits_until(), None);
    let held = limiter.throttled();
    assert_eq!((held.requests, held.time.as_millis()), (2, 110));
}

#[test]
fn a_change_gives_no_burst() {
    let limiter = limiter(&limits(1000, 0, 100), at(0));
    let mut ring = Greedy::new(&limiter, 512);
    for change in 1..=100 {
        limiter.set(&limits(1000, 0, 100), at(change));
        ring.poll(at(change));
    }
    assert_eq!(ring.done, 100);
}

#[test]
fn lowered_limits_hold_at_once() {
    let limiter = limiter(&limits(1_000_000, 0, 100), at(0));
    let mut ring = Greedy::new(&limiter, 512);
    ring.poll(at(1000));
    assert_eq!(ring.done, u64::from(BATCH));
    limiter.set(&limits(100, 0, 100), at(1000));
    for millisecond in 1000..2000 {
        ring.poll(at(millisecond));
    }
    assert_eq!(ring.done - u64::from(BATCH), 100);
}

#[test]
fn who_drains_goes_at_once_and_pays() {
    let limiter = limiter(&limits(1, 0, 1), at(0));
    let mut gate = Gate::new(Arc::clone(&limiter));
    assert!(gate.admits(0, at(0), Haste::None));
    gate.passed();
    assert!(!gate.admits(0, at(0), Haste::None));
    assert!(gate.admits(0, at(1), Haste::Drains));
    gate.passed();
    let mut other = Gate::new(limiter);
    assert!(!other.admits(0, at(1000), Haste::None));
    assert_eq!(other.waits_until(), Some(at(2000)));
}

#[test]
fn an_admitted_request_that_found_no_room_pays_once() {
    let limiter = limiter(&limits(10, 0, 1), at(0));
    let mut gate = Gate::new(limiter);
    for _ in 0..50 {
        assert!(gate.admits(0, at(0), Haste::None));
    }
    gate.passed();
    assert!(!gate.admits(0, at(0), Haste::None));
    assert_eq!(gate.waits_until(), Some(at(100)));
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    for rate in [1, u64::MAX] {
        let limiter = limiter(&limits(rate, rate, u64::MAX), Instant(u64::MAX));
        let mut gate = Gate::new(limiter);
        for now in [Instant(0), Instant(u64::MAX)] {
            gate.admits(u64::MAX, now, Haste::Drains);
            gate.passed();
        }
    }
}
