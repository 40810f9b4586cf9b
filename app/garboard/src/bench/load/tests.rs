//! Loads of a pretended device that stalls. A busy machine makes latencies longer and sends less:
//! nothing here is said against that.

use std::collections::VecDeque;

use super::super::pattern::Order;
use super::super::workloads::work;
use super::*;

/// Answers at once, but nothing at all in one spell of time.
struct Stalls {
    begun: Instant,
    spell: (Duration, Duration),
    taken: VecDeque<usize>,
    /// Keeps whoever hands over his requests for so long, once, when the spell begins.
    keeps: Option<Duration>,
}

impl Lane for Stalls {
    fn submit(&mut self, slot: usize, _: Request) {
        self.taken.push_back(slot);
    }

    fn kick(&mut self) -> io::Result<()> {
        let passed = MonotonicClock.now().since(self.begun);
        if passed >= self.spell.0
            && let Some(long) = self.keeps.take()
        {
            let from = MonotonicClock.now();
            while MonotonicClock.now().since(from) < long {}
        }
        Ok(())
    }

    fn reap(&mut self) -> Option<(usize, u8)> {
        let passed = MonotonicClock.now().since(self.begun);
        let stalls = (self.spell.0..self.spell.1).contains(&passed);
        let slot = if stalls { None } else { self.taken.pop_front() };
        slot.map(|slot| (slot, 0))
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        std::thread::yield_now();
        Ok(())
    }

    fn put(&self, _: usize, _: &[u8]) {}

    fn get(&self, _: usize, _: &mut [u8]) {}
}

/// Four slots, a warm-up of 100 ms and 400 ms that count, with a stall from some time on until
/// another.
fn measured(rate: Option<u64>, spell: (u64, u64)) -> Measured {
    measured_with(rate, spell, None)
}

fn measured_with(rate: Option<u64>, spell: (u64, u64), keeps: Option<Duration>) -> Measured {
    let order = Run {
        work: work(Order::Random, 4096, 100),
        jobs: 1,
        depth: 4,
        range: 1 << 20,
        limit: Limit::Time(Duration::from_millis(400)),
        rate,
    };
    let lane = Stalls {
        begun: MonotonicClock.now(),
        spell: (
            Duration::from_millis(spell.0),
            Duration::from_millis(spell.1),
        ),
        taken: VecDeque::new(),
        keeps,
    };
    let done = measure_lanes(vec![(lane, None)], &order);
    let done = done.map_err(|(_, error)| error).expect("it answers");
    done.into_iter().next().expect("one lane").1
}

const MS: u64 = 1_000_000;

#[test]
fn a_stall_costs_all_requests_that_it_keeps_waiting() {
    // Of 400 requests 100 are due in the 100 ms without an answer, and wait 50 ms on average.
    let open = measured(Some(1000), (200, 300));
    let due = open.requests + open.unsent;
    assert!(due >= 380, "{due}");
    let late = open.latency.per_mille(875);
    assert!(late >= 40 * MS, "a part of eight waited so long: {late}");
    // As fast as it answers, the same stall is seen by the four in flight only.
    let closed = measured(None, (200, 300));
    assert!(closed.latency.per_mille(999) < 40 * MS);
    assert!(closed.latency.max_ns() >= 50 * MS);
}

#[test]
fn what_is_answered_after_the_end_or_never_sent_has_its_latency() {
    // Nothing is answered from 100 ms before the end until 100 ms after it.
    let open = measured(Some(1000), (400, 600));
    let due = open.requests + open.unsent;
    assert!(due >= 380, "{due}");
    assert!(open.unsent >= 60, "{}", open.unsent);
    // The four that were sent waited to the end of the stall, the others to the end of time.
    let longest = open.latency.max_ns();
    assert!(longest >= 180 * MS, "{longest}");
    let late = open.latency.per_mille(875);
    assert!(late >= 40 * MS, "{late}");
}

#[test]
fn the_clients_own_stalls_are_told() {
    let kept = Duration::from_millis(150);
    let measured = measured_with(None, (200, 200), Some(kept));
    let found = measured.stalled.expect("we are the client");
    assert!(found.count >= 1 && found.longest >= kept, "{found:?}");
}

#[test]
fn bursts_of_several_at_once_count_for_all_of_them() {
    // Each makes two bursts of 100 bytes, one right after the other, in 1 and in 3 us.
    let each = [500, 1500].map(|ns| {
        let mut measured = Measured::nothing();
        let mut found = BurstTimes::default();
        let mut burst = Burst::new(1, 1);
        for begin in [0, ns] {
            burst.begin(Instant(begin));
            burst.submitted(0);
            burst.answered(0, 100, Instant(begin + ns), (Instant(0), &mut found));
        }
        (measured.bytes, measured.seconds) = (200, found.seconds());
        measured.bursts = Some(found);
        measured
    });
    let all = Measured::of_all(&each);
    // 200 bytes in 1 us, and 200 in 3.
    assert!((all.seconds - 1.5e-6).abs() < 1e-12, "{}", all.seconds);
    let point = super::super::Point {
        name: "",
        about: "",
        work: work(Order::Sequential, 100, 0),
        jobs: 1,
        depth: 1,
        rate: None,
    };
    let report = super::super::PointReport::new(&point, &all, None, each.len());
    let bursts = report.bursts.expect("there were some");
    let rate = report.measured.bytes_per_second;
    assert!((rate - (200.0 / 1e-6 + 200.0 / 3e-6)).abs() < 1.0, "{rate}");
    assert!(
        (bursts.last_done_bytes_per_second - rate).abs() < 1.0,
        "one figure"
    );
}
