//! The scrub: what it knows of a pass, what it finds, and when it goes on. Pure; the steps are in
//! `shard/scrub.rs` and `shard/ticket/scrub.rs`.

use std::time::Duration;

use units::{Instant, RoleSet, StripeIndex};

use crate::format::ArrayOptions;
use crate::map::ArrayMap;

/// A pass without a rate of its own that the schedule began takes at most this part of the time
/// from one to the next.
const SHARE_OF_PERIOD: u64 = 2;
/// And is no slower than that.
const SCHEDULED_RATE_MIN: u64 = 16 << 20;
/// A window of a pass with a rate lasts about so long, so that it does not come in bursts.
const WINDOWS_PER_SECOND: u64 = 4;

/// Whether a scrub is wanted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScrubState {
    /// No.
    #[default]
    Idle,
    /// Somebody asked for it.
    Running,
    /// The schedule asked for it.
    Scheduled,
    /// It goes on from where it is when somebody asks for it.
    Paused,
}

impl ScrubState {
    /// Whether a pass is under way.
    #[must_use]
    pub fn runs(self) -> bool {
        matches!(self, ScrubState::Running | ScrubState::Scheduled)
    }
}

/// What a scrub has found and done, in blocks of the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubTally {
    /// Blocks of stripes whose chunks did not agree.
    pub mismatches: u64,
    /// Blocks that a member could not read.
    pub unreadable: u64,
    /// Of both, those that are right again.
    pub repaired: u64,
    /// And those that are not.
    pub unrepaired: u64,
}

/// As [`ScrubTally`], of one shard in one window; small, for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowTally {
    /// See [`ScrubTally`].
    pub mismatches: u32,
    /// See [`ScrubTally`].
    pub unreadable: u32,
    /// See [`ScrubTally`].
    pub repaired: u32,
    /// See [`ScrubTally`].
    pub unrepaired: u32,
}

impl WindowTally {
    /// Counts what was found at one block.
    pub(crate) fn count(&mut self, finding: &ScrubFinding) {
        match finding.cause {
            ScrubCause::Mismatch => self.mismatches += 1,
            ScrubCause::Unreadable => self.unreadable += 1,
        }
        match finding.outcome {
            ScrubOutcome::Repaired => self.repaired += 1,
            ScrubOutcome::NotLocated | ScrubOutcome::NotKept | ScrubOutcome::Lost => {
                self.unrepaired += 1;
            }
        }
    }

    /// What was found in all.
    pub(crate) fn found(&self) -> u32 {
        self.mismatches + self.unreadable
    }
}

impl From<WindowTally> for ScrubTally {
    fn from(window: WindowTally) -> ScrubTally {
        ScrubTally {
            mismatches: window.mismatches.into(),
            unreadable: window.unreadable.into(),
            repaired: window.repaired.into(),
            unrepaired: window.unrepaired.into(),
        }
    }
}

impl ScrubTally {
    pub(crate) fn add(&mut self, other: ScrubTally) {
        self.mismatches += other.mismatches;
        self.unreadable += other.unreadable;
        self.repaired += other.repaired;
        self.unrepaired += other.unrepaired;
    }
}

/// How far a scrub is, as the configuration records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Whether one is wanted.
    pub state: ScrubState,
    /// Stripes below were looked at; 0 while none is under way.
    pub next: StripeIndex,
    /// When the last pass that reached the end did so: seconds since 1970 UTC, 0 = never.
    pub finished_at: u64,
    /// What the pass under way has found, or the last one.
    pub tally: ScrubTally,
}

/// Why a block is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubCause {
    /// The chunks of its stripe do not agree there.
    Mismatch,
    /// A drive could not read it.
    Unreadable,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// The wrong chunks were found, written anew, and read back.
    Repaired,
    /// Nothing was changed: it cannot be known which chunks are wrong.
    NotLocated,
    /// They were written anew, and what is read is still wrong.
    NotKept,
    /// Nothing was changed: too few chunks could be read.
    Lost,
}

/// What a scrub found at one block of the chunks of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// The stripe.
    pub stripe: StripeIndex,
    /// The block within the chunk.
    pub block: u32,
    /// The chunks that are, or were, wrong; none when it cannot be known.
    pub wrong: RoleSet,
    /// Why it was noticed.
    pub cause: ScrubCause,
    /// What became of it.
    pub outcome: ScrubOutcome,
}

/// What can be asked of the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubOrder {
    /// Goes on, or begins.
    Start,
    /// Begins anew.
    StartOver,
    /// Pauses.
    Stop,
}

/// How the scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// As it would be recorded now.
    pub record: ScrubRecord,
    /// Stripes in all.
    pub stripes: u64,
    /// Whether a pass, if one is wanted, goes on.
    pub course: ScrubCourse,
}

/// Whether a pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubCourse {
    /// It does.
    Free,
    /// It waits: for a resync or rebuild, or because too much is lost.
    Waits,
    /// It gave up at an error: a stripe could not be looked at.
    Failed,
}

/// The time of day, as the control path knows it: so many seconds since 1970 UTC at this instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// The instant.
    pub at: Instant,
    /// Seconds since 1970 UTC.
    pub seconds: u64,
}

impl WallClock {
    fn seconds_at(&self, now: Instant) -> u64 {
        self.seconds.saturating_add(now.since(self.at).as_secs())
    }
}

/// The scrub on the home shard.
#[derive(Debug)]
pub(crate) struct Scrub {
    pub(crate) record: ScrubRecord,
    /// It gave up, until somebody asks for it again or members change.
    pub(crate) failed: bool,
    /// The rate allows no window before.
    pub(crate) not_before: Instant,
    clock: WallClock,
    /// When the array was created: seconds since 1970 UTC. The schedule counts from there until a
    /// pass has reached the end.
    created: u64,
    /// When one has since the array was started, by a clock that nobody sets.
    finished: Option<Instant>,
}

impl Scrub {
    pub(crate) fn new(record: ScrubRecord, clock: WallClock, created: u64) -> Scrub {
        Scrub {
            record,
            failed: false,
            not_before: Instant(0),
            clock,
            created,
            finished: None,
        }
    }

    /// The time of day, for people.
    pub(crate) fn seconds_at(&self, now: Instant) -> u64 {
        self.clock.seconds_at(now)
    }

    /// The options are about to change. What it took at another rate delays it no longer: a rate
    /// that was too low by mistake could hold it back for days after it was corrected.
    pub(crate) fn change_rate(&mut self, old: &ArrayOptions, new: &ArrayOptions) {
        if old.scrub_rate_bytes_per_second != new.scrub_rate_bytes_per_second {
            self.not_before = Instant(0);
        }
    }

    /// The schedule's turn: when the next pass is to begin. What is told of times to come, by a
    /// clock that was wrong then or is now, counts as of the start: nothing waits longer than that.
    fn scheduled_at(&self, every_seconds: u32) -> Option<Instant> {
        if every_seconds == 0 || self.record.state != ScrubState::Idle {
            return None;
        }
        let every = Duration::from_secs(u64::from(every_seconds));
        if let Some(finished) = self.finished {
            return Some(finished + every);
        }
        let last = self.record.finished_at.max(self.created);
        let since = Duration::from_secs(self.clock.seconds.saturating_sub(last));
        Some(self.clock.at + every.saturating_sub(since))
    }

    /// When there is something to do next. Now or earlier: there is.
    pub(crate) fn due_at(&self, map: &ArrayMap, every_seconds: u32) -> Option<Instant> {
        let at = if self.record.state.runs() {
            self.not_before
        } else {
            self.scheduled_at(every_seconds)?
        };
        (!self.failed && can_scrub(map)).then_some(at)
    }

    /// The pass begins because its time has come.
    pub(crate) fn begin_scheduled(&mut self) {
        assert_eq!(self.record.state, ScrubState::Idle, "one pass at a time");
        self.begin(ScrubState::Scheduled);
    }

    pub(crate) fn begin(&mut self, state: ScrubState) {
        self.record.state = state;
        self.record.next = StripeIndex(0);
        self.record.tally = ScrubTally::default();
        self.not_before = Instant(0);
    }

    /// The pass has reached the end.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.record.state = ScrubState::Idle;
        self.record.next = StripeIndex(0);
        self.record.finished_at = self.clock.seconds_at(now);
        self.finished = Some(now);
    }

    /// User bytes per second that the pass may take; 0 = as the background goes.
    pub(crate) fn rate(&self, set: u64, every_seconds: u32, array_bytes: u64) -> u64 {
        match self.record.state {
            _ if set > 0 => set,
            ScrubState::Scheduled => {
                let seconds = u64::from(every_seconds.max(1)).div_ceil(SHARE_OF_PERIOD);
                array_bytes.div_ceil(seconds).max(SCHEDULED_RATE_MIN)
            }
            ScrubState::Idle | ScrubState::Running | ScrubState::Paused => 0,
        }
    }
}

/// Whether there is anything to compare, and a repair could be written. Members that were waited
/// for in vain may come back.
pub(crate) fn can_scrub(map: &ArrayMap) -> bool {
    let works = !map.read_only && !map.given_up && !map.hopeless.contains(&true);
    map.geometry.parity() > 0 && works
}

/// User bytes of one window at such a rate, when without one it would be `most`.
pub(crate) fn window_bytes(rate: u64, most: u64) -> u64 {
    match rate {
        0 => most,
        rate => most.min(rate / WINDOWS_PER_SECOND),
    }
}

/// How long so many bytes take at such a rate.
pub(crate) fn time_of(bytes: u64, rate: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        rate => {
            let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        }
    }
}

#[cfg(test)]
mod tests;
