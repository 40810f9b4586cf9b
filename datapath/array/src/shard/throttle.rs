//! A shard's part in holding a background pass back for the sake of requests (`crate::throttle`).
//!
//! Rebuilds are held back, scrubs, and resyncs that go over all of an array. A resync of what was
//! in use at an unclean stop is not: until it is done, parity there protects nothing.

use std::time::Duration;

use units::limits::BUCKETS;
use units::{Instant, ReactorIndex, StripeIndex, bytes_u64};

use super::{Shard, cell_lanes};
use crate::exposure::groups_of;
use crate::map::{ArrayMap, Pass};
use crate::throttle::{Governor, Heard, Latencies, UNLIMITED, WINDOWS_APART, Wish, Yield};

/// What was allowed and not used is kept for so long.
const KEPT: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(super) struct Throttle {
    /// The open pass is one that is held back.
    applies: bool,
    windows: Yield,
    latencies: Latencies,
    /// The window in which it looked last.
    window: u64,
    /// Bytes of each drive that the pass may take now.
    allowed: u64,
    allowed_at: Instant,
    /// When there will be more to do.
    pub(super) wake: Option<Instant>,
    governor: Governor,
    /// How many buckets of stripes this shard owns.
    owned: usize,
}

impl Throttle {
    pub(super) fn new(windows: Yield, owned: usize) -> Throttle {
        Throttle {
            applies: false,
            windows,
            latencies: Latencies::new(),
            window: 0,
            allowed: 0,
            allowed_at: Instant(0),
            wake: None,
            governor: Governor::new(),
            owned,
        }
    }

    /// A request of this shard was answered.
    #[inline]
    pub(super) fn heard(&mut self, took: Duration) {
        if self.applies {
            self.latencies.record(took);
        }
    }

    /// Acts by a new map.
    pub(super) fn follow(&mut self, map: &ArrayMap, me: ReactorIndex) {
        self.wake = None;
        self.owned = map.owners.share(me);
        self.applies = match map.window.map(|window| window.pass) {
            Some(Pass::Rebuild | Pass::Scrub) => true,
            Some(Pass::Resync) => map.suspects.count() == map.suspects.regions(),
            None => false,
        };
    }
}

impl Shard {
    /// Looks at what requests took, once a window, and sees what the pass may do now.
    pub(super) fn advance_throttle(&mut self, now: Instant) {
        self.throttle.wake = None;
        if !self.throttle.applies {
            return;
        }
        let window = self.throttle.windows.window_of(now);
        if window != self.throttle.window {
            if window > self.throttle.window + WINDOWS_APART {
                self.throttle.latencies = Latencies::new();
                self.throttle.governor = Governor::new();
            }
            self.throttle.window = window;
            let heard = self.throttle.latencies.take(self.throttle.windows.requests);
            // At the beginning of a pass nobody has listened yet.
            let heard = if self.is_busy() {
                heard.max(Heard::Few)
            } else {
                heard
            };
            self.shared.tell_latency(self.me, window, heard);
            self.govern(window);
        }
        if self.coordinator.is_some() {
            // It decides for others too, when its own part is done.
            self.throttle.wake = Some(self.throttle.windows.begin_of(window + 1));
        }
        let (share, cell) = (self.rate_share(), self.cell_bytes());
        let throttle = &mut self.throttle;
        if share == UNLIMITED {
            (throttle.allowed, throttle.allowed_at) = (UNLIMITED, now);
            return;
        }
        let most = bytes_in(share, KEPT).max(cell);
        let more = bytes_in(share, now.since(throttle.allowed_at));
        // Turns are short: what is less than a byte adds up.
        throttle.allowed_at = throttle.allowed_at + time_of(more, share);
        throttle.allowed = throttle.allowed.saturating_add(more).min(most);
    }

    /// The home decides for all shards.
    fn govern(&mut self, window: u64) {
        let Some(coordinator) = self.coordinator.as_deref() else {
            return;
        };
        let options = coordinator.config.options;
        let target = options.latency_target_us;
        let wish = Wish {
            // Microseconds as units of 1024 ns, for which they are a little too many.
            target: (target > 0).then_some(target),
            floor: options.rebuild_floor_bytes_per_second,
        };
        let worst = self.shared.worst_latency(window);
        let rate = self.throttle.governor.decide(worst, wish);
        self.shared.set_rate(rate);
    }

    /// Bytes per second that this shard may take: all groups share in the work.
    fn rate_share(&self) -> u64 {
        match self.shared.rate() {
            UNLIMITED => UNLIMITED,
            rate => {
                let all = rate.saturating_mul(self.groups_at_work());
                share_of(all, self.throttle.owned, self.shared.log.1)
            }
        }
    }

    /// Groups whose drives the open pass uses.
    fn groups_at_work(&self) -> u64 {
        let geometry = self.geometry();
        let groups = match self.map.window {
            Some(window) if window.pass == Pass::Rebuild => groups_of(geometry, &window.fills),
            _ => bytes_u64(geometry.groups()),
        };
        groups.max(1)
    }

    /// Bytes of a cell on each drive.
    fn cell_bytes(&self) -> u64 {
        self.bytes(cell_lanes(self.geometry()))
    }

    /// Whether a cell of `stripe` may be taken now; if so, that is counted.
    pub(super) fn take_allowance(&mut self, stripe: StripeIndex, now: Instant) -> bool {
        if !self.throttle.applies || self.throttle.allowed == UNLIMITED {
            return true;
        }
        let pass = self.map.window.map(|window| window.pass);
        if pass == Some(Pass::Rebuild) && self.map.to_fill(stripe).is_empty() {
            return true;
        }
        let cell = self.cell_bytes();
        if let Some(left) = self.throttle.allowed.checked_sub(cell) {
            self.throttle.allowed = left;
            return true;
        }
        let lacks = cell - self.throttle.allowed;
        let windows = self.throttle.windows;
        let next = windows.begin_of(windows.window_of(now) + 1);
        let share = self.rate_share();
        let until = if share == 0 || share == UNLIMITED {
            next
        } else {
            let until = time_of(lacks, share) + Duration::from_nanos(1);
            next.min(now + until.min(windows.window))
        };
        let before = self.throttle.wake;
        self.throttle.wake = Some(before.map_or(until, |before| before.min(until)));
        false
    }
}

/// Bytes in a time at a rate per second.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate).saturating_mul(time.as_nanos()) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// How long so many bytes take at a rate, in whole nanoseconds; no time where nothing is allowed.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX / 2))
}

/// What a shard takes of a rate that owns so many buckets of stripes: as much of it. Who owns less
/// than most takes as much as others would if all owned the same, and is through with its part of
/// each window sooner: nobody waits for a cell of one that may hardly do anything.
fn share_of(rate: u64, owned: usize, shards: usize) -> u64 {
    let buckets = owned.max(BUCKETS / shards.max(1));
    let share = u128::from(rate) * u128::from(bytes_u64(buckets)) / u128::from(bytes_u64(BUCKETS));
    u64::try_from(share).unwrap_or(u64::MAX).min(UNLIMITED - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::Operation;
    use units::{MemberIndex, MemberSet};

    use super::*;
    use crate::geometry::Level;
    use crate::map::Window;
    use crate::owners::Owners;
    use crate::shard::tests::{Bench, ME, Shape};

    #[test]
    fn bytes_of_a_time_do_not_overflow() {
        assert_eq!(bytes_in(1_000_000, Duration::from_millis(5)), 5_000);
        assert_eq!(bytes_in(u64::MAX, Duration::MAX), u64::MAX);
        assert_eq!(bytes_in(0, Duration::MAX), 0);
    }

    #[test]
    fn a_pass_is_woken_just_when_it_may_do_one_more_cell() {
        let mut bench = Bench::new();
        let (shard, now) = (&mut bench.shard, bench.outside.now);
        shard.shared.set_rate(1_000_000);
        for allowed in [0, 1, 4000] {
            (shard.throttle.applies, shard.throttle.allowed) = (true, allowed);
            (shard.throttle.allowed_at, shard.throttle.wake) = (now, None);
            assert!(!shard.take_allowance(StripeIndex(0), now));
            let wake = shard.throttle.wake.expect("a time");
            let early = Instant(wake.0 - 1_001);
            shard.advance_throttle(early);
            assert!(!shard.take_allowance(StripeIndex(0), early), "{allowed}");
            shard.advance_throttle(wake);
            assert!(shard.take_allowance(StripeIndex(0), wake), "{allowed}");
        }
    }

    #[test]
    fn a_shard_takes_its_share_of_the_rate_for_each_group_at_work() {
        let mut bench = Bench::shaped(Shape {
            level: Level::L10,
            members: 6,
            ..Shape::default()
        });
        bench.shard.shared.set_rate(1000);
        for (pass, fills, groups) in [
            (Pass::Scrub, &[][..], 3),
            (Pass::Resync, &[][..], 3),
            (Pass::Rebuild, &[0][..], 1),
            (Pass::Rebuild, &[0, 1][..], 1),
            (Pass::Rebuild, &[1, 4][..], 2),
        ] {
            let none = MemberSet::EMPTY;
            let fills = fills.iter().map(|&member| MemberIndex(member));
            let mut map = bench.shard.successor();
            map.window = Some(Window {
                pass,
                start: StripeIndex(0),
                end: StripeIndex(20),
                fills: fills.fold(none, MemberSet::with),
                opened: map.serial,
            });
            bench.shard.map = Arc::new(map);
            assert_eq!(bench.shard.rate_share(), 1000 * groups, "{pass:?}");
        }
        bench.shard.shared.set_rate(UNLIMITED);
        assert_eq!(bench.shard.rate_share(), UNLIMITED);
    }

    #[test]
    fn a_shard_takes_what_it_owns_and_no_less_than_if_all_owned_the_same() {
        for (owned, shards, share) in [
            (BUCKETS, 1, 4096),
            (BUCKETS, 8, 4096),
            (BUCKETS / 2, 8, 2048),
            (BUCKETS / 8, 8, 512),
            (1, 8, 512),
            (0, 8, 512),
        ] {
            assert_eq!(share_of(4096, owned, shards), share, "{owned} of {shards}");
        }
        assert_eq!(share_of(UNLIMITED - 1, BUCKETS, 2), UNLIMITED - 1);
        let mut bench = Bench::new();
        assert_eq!(bench.shard.throttle.owned, BUCKETS);
        let owner = |bucket: usize| ReactorIndex(u16::from(!bucket.is_multiple_of(4)));
        bench.install(|map| map.owners = Owners::new(owner));
        assert_eq!(bench.shard.throttle.owned, BUCKETS / 4);
    }

    #[test]
    fn what_short_turns_allow_adds_up() {
        let mut bench = Bench::new();
        let shard = &mut bench.shard;
        shard.shared.set_rate(1_000_000);
        (shard.throttle.applies, shard.throttle.allowed) = (true, 0);
        shard.throttle.allowed_at = bench.outside.now;
        for _ in 0..100 {
            bench.outside.now = bench.outside.now + Duration::from_nanos(1_500);
            bench.shard.advance_throttle(bench.outside.now);
        }
        assert_eq!(bench.shard.throttle.allowed, 150, "a byte each microsecond");
    }

    #[test]
    fn passes_slow_down_when_requests_take_longer_than_the_options_say() {
        let [none, missed, met] = [0, 1_000, 100_000].map(|target| {
            let mut bench = Bench::home(|config, _| config.options.latency_target_us = target);
            for window in 1..50 {
                let shard = &mut bench.shard;
                shard.shared.tell_latency(ME, window, Heard::P99(10_000));
                shard.govern(window);
            }
            bench.shard.shared.rate()
        });
        assert!(
            missed < none / 10 && missed < met / 10,
            "{none} {missed} {met}"
        );
    }

    #[test]
    fn a_scrub_waits_as_a_rebuild_does_while_requests_take_long() {
        let mut bench = Bench::new();
        bench.shard.shared.set_rate(1);
        bench.install(|map| {
            map.window = Some(Window {
                pass: Pass::Scrub,
                start: StripeIndex(0),
                end: StripeIndex(20),
                fills: MemberSet::EMPTY,
                opened: map.serial,
            });
        });
        assert!(bench.is_asked(Operation::Read).is_empty(), "it goes on");
        bench.shard.shared.set_rate(UNLIMITED);
        bench.pass(Duration::from_millis(100));
        assert!(!bench.is_asked(Operation::Read).is_empty(), "it waits");
        bench.answer_all();
        assert_eq!(bench.shard.counters().scrubbed_cells, 20);
    }

    #[test]
    fn a_pass_that_may_do_nothing_looks_again_in_the_next_window() {
        let mut bench = Bench::new();
        let (shard, now) = (&mut bench.shard, bench.outside.now);
        shard.shared.set_rate(0);
        (shard.throttle.applies, shard.throttle.allowed) = (true, 1);
        assert!(!shard.take_allowance(StripeIndex(0), now));
        let windows = shard.throttle.windows;
        let next = windows.begin_of(windows.window_of(now) + 1);
        assert_eq!(shard.throttle.wake, Some(next));
        shard.throttle.applies = false;
        assert!(shard.take_allowance(StripeIndex(0), now), "no other pass");
        (shard.throttle.applies, shard.throttle.allowed) = (true, UNLIMITED);
        assert!(shard.take_allowance(StripeIndex(0), now));
    }
}
