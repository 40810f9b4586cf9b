//! Which flushes of members are under way, as the next engine is told: one may fail when nobody
//! hears of it any more, or its answer may lie there unread (docs/design/007).

use std::sync::Arc;

use block::{Operation, Status};
use units::{Instant, ReactorIndex};

use super::{DriveIo, IoOwner, Shard};
use crate::begun::Begun;
use crate::io::Io;

/// See the module.
#[derive(Debug)]
pub(super) struct Flushes {
    begun: Option<Arc<Begun>>,
    me: ReactorIndex,
    /// The slots of their requests, and when they were made; the oldest first. A slot may be there
    /// twice while the answer to its first request is dealt with.
    under_way: Vec<(u32, Instant)>,
}

impl Flushes {
    /// Of a shard that has so many slots.
    pub(super) fn new(begun: Option<Arc<Begun>>, me: ReactorIndex, slots: usize) -> Flushes {
        let under_way = Vec::with_capacity(slots + 1);
        Flushes {
            begun,
            me,
            under_way,
        }
    }

    /// Comes before the request is made.
    pub(super) fn begin(&mut self, slot: u32, now: Instant) {
        self.under_way.push((slot, now));
        if self.under_way.len() == 1 {
            self.tell();
        }
    }

    /// Its answer is dealt with.
    pub(super) fn end(&mut self, slot: u32) {
        let at = self.under_way.iter().position(|(other, _)| *other == slot);
        let at = at.expect("what is answered was asked");
        self.under_way.remove(at);
        if at == 0 {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(begun) = &self.begun {
            begun.note_flush(self.me, self.under_way.first().map(|(_, at)| *at));
        }
    }
}

impl IoOwner {
    /// Whether nobody waits any more for what the drive has not answered.
    #[inline]
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self, IoOwner::Abandoned { .. } | IoOwner::GivenUp { .. })
    }
}

impl Shard {
    /// A drive has answered what was given up.
    #[cold]
    pub(super) fn late_done(&mut self, slot: u32, done: DriveIo, status: Status, io: &mut impl Io) {
        self.note_gone(&done, status);
        if let IoOwner::Abandoned { grave, look } = done.owner {
            self.abandoned_done((grave, look));
            self.note_borrower(&done, false);
            self.late_flush_answered(slot, done, status, io);
        } else if let IoOwner::GivenUp { bounce, look } = done.owner {
            self.counters.wasted_hedges += u64::from(look == self.late.now);
            self.given_up_done(bounce, (done, status));
        }
    }

    /// A drive has answered what was abandoned. Nobody waits for it, but a flush that has failed
    /// may have lost what others count on as long as its member is not out: a later one that goes
    /// well proves nothing then.
    fn late_flush_answered(&mut self, slot: u32, done: DriveIo, status: Status, io: &mut impl Io) {
        let flushes = done.operation == Some(Operation::Flush);
        let failed = flushes && !matches!(status, Status::Ok | Status::Gone);
        if failed && !self.map.settled(done.member, done.incarnation) {
            self.request_failed(slot, done, status, io);
        }
    }

    /// What the error of such a flush means is known.
    pub(super) fn late_flush_done(&mut self, done: DriveIo, status: Status) {
        let DriveIo {
            member,
            incarnation,
            ..
        } = done;
        if !self.shared.is_flushed(member, incarnation, status) {
            self.report(done, status);
        }
    }
}
