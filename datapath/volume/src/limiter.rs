//! How fast a volume may go: one [`Limiter`] per volume, shared by all its rings on all reactors,
//! and one [`Gate`] per ring.
//!
//! A limit is one word: the time at which all that was let through so far is paid for, at the rate
//! of the limit (the virtual scheduling form of the generic cell rate algorithm, ITU-T I.371 annex
//! A). A ring draws a time for its next request by moving that word on, and waits until then. So
//! nobody can take a ring's turn away: rings that wait go on in the order in which they drew, one
//! request each, whichever reactors they are on. The price of a request is paid after it, so one
//! that is larger than all that may be saved passes too, and those behind it wait the longer.
//!
//! What does not live here: a clock, and the sleep of whoever waits.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use units::Instant;

/// Sixteenths of a nanosecond are fine enough for 100 million requests per second within 1 %, and
/// 64 bits of them last for 36 years.
const TICKS_PER_NS: u64 = 16;
const TICKS_PER_S: u64 = TICKS_PER_NS * 1_000_000_000;
/// Binary digits of a price after the point.
const PRICE_SHIFT: u32 = 26;

/// What a volume may do in a second; `None` is without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests of every kind but flushes.
    pub requests_per_second: Option<NonZeroU64>,
    /// Bytes read and written. Write-zeroes count as written; discards are free.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Unused limit of so long a time is kept, and may be spent at once.
    pub burst: Duration,
}

/// How much was held back since the limiter was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Requests that had to wait.
    pub requests: u64,
    /// The sum of their waits.
    pub time: Duration,
}

/// The limits of one volume. Atomics only: it is changed while reactors read it.
#[derive(Debug)]
pub struct Limiter {
    /// See [`Limiter::number`].
    number: u16,
    limited: AtomicBool,
    /// Counts changes: whoever drew a time before one draws again.
    change: AtomicU64,
    saved_ticks: AtomicU64,
    requests: Bucket,
    bytes: Bucket,
    throttled: AtomicU64,
    throttled_ns: AtomicU64,
}

impl Default for Limiter {
    /// Without limits, and with the next number.
    fn default() -> Limiter {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        Limiter {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            limited: AtomicBool::default(),
            change: AtomicU64::default(),
            saved_ticks: AtomicU64::default(),
            requests: Bucket::default(),
            bytes: Bucket::default(),
            throttled: AtomicU64::default(),
            throttled_ns: AtomicU64::default(),
        }
    }
}

impl Limiter {
    /// Tells volumes of one process apart, as far as 65,536 are enough.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Replaces the limits. Nothing is saved and nothing is owed afterwards. Wake the reactors
    /// that serve the volume, for their rings may go on earlier than they knew.
    pub fn set(&self, limits: &Limits, now: Instant) {
        let burst_ns = u64::try_from(limits.burst.as_nanos()).unwrap_or(u64::MAX);
        let saved = burst_ns.saturating_mul(TICKS_PER_NS);
        let paid = ticks(now).saturating_add(saved);
        self.saved_ticks.store(saved, Ordering::Relaxed);
        self.requests.set(limits.requests_per_second, paid);
        self.bytes.set(limits.bytes_per_second, paid);
        let limited = limits.requests_per_second.is_some() || limits.bytes_per_second.is_some();
        self.limited.store(limited, Ordering::Relaxed);
        // Released last: whoever sees this count sees what it counts.
        self.change.fetch_add(1, Ordering::Release);
    }

    /// What was held back.
    #[must_use]
    pub fn throttled(&self) -> Throttled {
        Throttled {
            requests: self.throttled.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.throttled_ns.load(Ordering::Relaxed)),
        }
    }

    /// Takes a request's share of all limits, and says when it may go.
    fn draw(&self, bytes: u64, now: Instant) -> Instant {
        let now = ticks(now);
        let saved = self.saved_ticks.load(Ordering::Relaxed);
        let paid = self.requests.take(1, now).max(self.bytes.take(bytes, now));
        Instant(paid.saturating_sub(saved).div_ceil(TICKS_PER_NS))
    }
}

/// One limit.
#[derive(Debug, Default)]
struct Bucket {
    /// Ticks that one unit costs, shifted; 0 is without limit.
    price: AtomicU64,
    /// When all that was taken is paid for, in ticks.
    paid: AtomicU64,
}

impl Bucket {
    fn set(&self, per_second: Option<NonZeroU64>, paid: u64) {
        let price = |rate: NonZeroU64| ((TICKS_PER_S << PRICE_SHIFT) / rate).max(1);
        self.price
            .store(per_second.map_or(0, price), Ordering::Relaxed);
        self.paid.store(paid, Ordering::Relaxed);
    }

    /// Takes `amount` units. When all that was taken before is paid for.
    fn take(&self, amount: u64, now: u64) -> u64 {
        let price = self.price.load(Ordering::Relaxed);
        if price == 0 || amount == 0 {
            return 0;
        }
        let cost = (u128::from(amount) * u128::from(price)) >> PRICE_SHIFT;
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let next = |paid: u64| Some(paid.max(now).saturating_add(cost));
        let before = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.expect("there is always a next").max(now)
    }
}

fn ticks(instant: Instant) -> u64 {
    instant.0.saturating_mul(TICKS_PER_NS)
}

/// Whether a request may wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// It waits.
    None,
    /// Somebody waits for the ring to be drained: it is paid for, and goes at once.
    Drains,
}

/// Where one ring's requests meet the limits of its volume, one at a time.
#[derive(Debug)]
pub struct Gate {
    limiter: Arc<Limiter>,
    ticket: Option<Ticket>,
}

/// The turn of the ring's next request.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    change: u64,
    due: Instant,
    /// Since when it has been turned away.
    waits_since: Option<Instant>,
    admitted: bool,
}

impl Gate {
    /// A gate of a ring of the limiter's volume.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>) -> Gate {
        Gate {
            limiter,
            ticket: None,
        }
    }

    /// Whether requests have to ask, to be looked at before each batch of them.
    #[inline]
    pub fn is_limited(&mut self, now: Instant) -> bool {
        let limited = self.limiter.limited.load(Ordering::Relaxed);
        if !limited && self.ticket.is_some() {
            self.admit(now);
            self.ticket = None;
        }
        limited
    }

    /// Whether the ring's next request, which moves `bytes`, may go now. Until it has gone
    /// ([`Gate::passed`]), this is asked about that request only, and it pays once.
    pub fn admits(&mut self, bytes: u64, now: Instant, haste: Haste) -> bool {
        let change = self.limiter.change.load(Ordering::Acquire);
        let drawn = self.ticket.filter(|ticket| ticket.change == change);
        let ticket = drawn.unwrap_or_else(|| Ticket {
            change,
            due: self.limiter.draw(bytes, now),
            waits_since: self.ticket.and_then(|ticket| ticket.waits_since),
            admitted: false,
        });
        self.ticket = Some(ticket);
        if ticket.admitted {
            return true;
        }
        if ticket.due > now && haste == Haste::None {
            let since = ticket.waits_since.or(Some(now));
            self.ticket = Some(Ticket {
                waits_since: since,
                ..ticket
            });
            return false;
        }
        self.admit(now);
        true
    }

    /// The request that was admitted has gone.
    pub fn passed(&mut self) {
        self.ticket = None;
    }

    /// When the request that was turned away may go; `None` when none was.
    #[must_use]
    pub fn waits_until(&self) -> Option<Instant> {
        let ticket = self.ticket.as_ref()?;
        (!ticket.admitted).then_some(ticket.due)
    }

    fn admit(&mut self, now: Instant) {
        let Some(ticket) = &mut self.ticket else {
            return;
        };
        ticket.admitted = true;
        if let Some(since) = ticket.waits_since.take() {
            let waited = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
            self.limiter.throttled.fetch_add(1, Ordering::Relaxed);
            self.limiter
                .throttled_ns
                .fetch_add(waited, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
