//! Records that change nothing. While an array is written to, updates are committed every so often,
//! so that a copy of a member that was made before is known for one, whatever ends the engine and
//! whenever it comes back (docs/on-disk.md, section 7).

use std::time::Duration;

use units::Instant;

use super::super::Shard;
use super::commit_of;
use crate::coordinator::{CommitPhase, WindowReports};
use crate::io::Io;
use crate::planted::{self, Fault};

/// Committed at once: a member that is one update behind may have been kept from the last by a
/// stop, a member that is two behind is old.
const RECORDS: u8 = 2;

/// When records are renewed.
#[derive(Debug)]
pub(crate) struct Renewal {
    after: Duration,
    /// When the last record of it began.
    last: Instant,
    /// What the keeper of regions had written before the first.
    written: u64,
    /// Records of it that have not begun.
    left: u8,
}

impl Renewal {
    pub(crate) fn new(after: Duration) -> Renewal {
        Renewal {
            after,
            last: Instant(0),
            written: 0,
            left: 0,
        }
    }

    /// The start of the array has committed its own.
    pub(super) fn started(&mut self, now: Instant) {
        self.last = now;
    }

    /// One more is to follow this record.
    pub(super) fn once_more(&mut self) {
        self.left = self.left.max(1);
    }

    fn next(&self) -> Instant {
        if self.left > 0 {
            self.last
        } else {
            self.last + self.after
        }
    }
}

impl Shard {
    /// When the home wants to renew the record; `None` when nothing was written since the last
    /// time, or something else is under way.
    pub(in crate::shard) fn renewal_deadline(&self) -> Option<Instant> {
        let decider = self.coordinator.as_deref()?;
        let runs = decider.started && !decider.stops && !decider.metadata_failed;
        let free = decider.commit.is_none() && decider.broadcast.is_none();
        let free = free && decider.failures.is_empty() && decider.commands.is_empty();
        // A window that all are done with waits for copies of the region map, and all else for it.
        let closes = |reports: WindowReports| reports.missing == 0;
        let free = free && !decider.window.is_some_and(closes);
        let renewal = &decider.renewal;
        let used = renewal.left > 0 || decider.keeper.is_used_since(renewal.written);
        let used = used && !planted::is(Fault::RecordNotRenewed);
        let due = runs && free && used && !self.broken;
        due.then(|| renewal.next())
    }

    pub(super) fn renew(&mut self, io: &mut impl Io) -> usize {
        let Some(deadline) = self.renewal_deadline() else {
            return 0;
        };
        let now = io.now();
        if now < deadline {
            return 0;
        }
        let decider = self.decider();
        decider.renewal.last = now;
        if decider.renewal.left == 0 {
            decider.renewal.left = RECORDS;
            decider.renewal.written = decider.keeper.written();
        }
        decider.renewal.left -= 1;
        let id = decider.draw_id();
        let next = decider.config.next(id);
        let places = decider.places.clone();
        self.begin_commit(commit_of(next, places, CommitPhase::Write));
        1
    }
}
