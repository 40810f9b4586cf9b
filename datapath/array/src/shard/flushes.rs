//! Which flushes of members are under way, as the next engine is told: one may fail when nobody
//! hears of it any more, or its answer may lie there unread (docs/design/007). And as other shards
//! are told: an answer that one of them has not looked at yet may be that the drive has lost what
//! theirs should have kept.

use std::sync::Arc;

use block::{Operation, Status};
use units::{Instant, MemberIndex, ReactorIndex};

use super::{DriveIo, IoOwner, Shard, Shared};
use crate::begun::UnderWay;
use crate::io::Io;
use crate::map::ArrayMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Flushes {
    shared: Arc<Shared>,
    me: ReactorIndex,
    /// The oldest first. A slot may be there twice while the answer to its first request is dealt
    /// with.
    under_way: Vec<Asked>,
    told: UnderWay,
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    slot: u32,
    at: Instant,
    /// Among all that were asked of its member.
    number: u64,
    member: MemberIndex,
    incarnation: u32,
    /// Its member is out: what becomes of it is no matter.
    is_out: bool,
}

impl Flushes {
    /// Of a shard that has so many slots.
    pub(super) fn new(shared: Arc<Shared>, me: ReactorIndex, slots: usize) -> Flushes {
        let under_way = Vec::with_capacity(slots + 1);
        Flushes {
            shared,
            me,
            under_way,
            told: UnderWay::default(),
        }
    }

    /// Comes before the request is made.
    pub(super) fn begin(&mut self, slot: u32, of: (MemberIndex, u32), now: Instant) {
        self.under_way.push(Asked {
            slot,
            at: now,
            number: self.shared.ask_flush(of.0),
            member: of.0,
            incarnation: of.1,
            is_out: false,
        });
        self.tell(of.0);
    }

    /// Its answer is dealt with.
    pub(super) fn end(&mut self, slot: u32) {
        let at = self.under_way.iter().position(|asked| asked.slot == slot);
        let at = at.expect("what is answered was asked");
        let ended = self.under_way.remove(at);
        self.tell(ended.member);
    }

    /// The shard acts by `map`: what was asked of members that are out by it counts no more.
    pub(super) fn follow(&mut self, map: &ArrayMap) {
        for at in 0..self.under_way.len() {
            let asked = &mut self.under_way[at];
            let (member, was_out) = (asked.member, asked.is_out);
            asked.is_out |= map.is_out(member, asked.incarnation);
            if asked.is_out != was_out {
                self.tell(member);
            }
        }
    }

    /// Something has changed about flushes of `member`.
    fn tell(&mut self, member: MemberIndex) {
        let mut counts = self.under_way.iter().filter(|asked| !asked.is_out);
        let oldest = counts.find(|asked| asked.member == member);
        let oldest = oldest.map(|asked| asked.number);
        self.shared.call_oldest_flush(self.me, member, oldest);
        let Some(begun) = &self.shared.begun else {
            return;
        };
        let now = self.under_way();
        if now != self.told {
            begun.note_flushes(self.me, &now);
            self.told = now;
        }
    }

    fn under_way(&self) -> UnderWay {
        let mut counts = self.under_way.iter().filter(|asked| !asked.is_out);
        let oldest = counts.next().map(|asked| (asked.at, asked.member));
        let other = |asked: &&Asked| oldest.is_some_and(|(_, member)| member != asked.member);
        UnderWay {
            oldest,
            others: counts.find(other).map(|asked| asked.at),
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
        if failed && !self.map.is_out(done.member, done.incarnation) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposure::tests::whole;
    use crate::map::MapState;
    use crate::shard::tests::{Bench, ME};

    #[test]
    fn the_oldest_is_named_and_who_is_out_does_not_count() {
        let [first, second] = [MemberIndex(0), MemberIndex(1)];
        let shared = Arc::clone(&Bench::new().shard.shared);
        let mut flushes = Flushes::new(Arc::clone(&shared), ME, 4);
        let is = |flushes: &Flushes, oldest: Option<(u64, MemberIndex)>, others: Option<u64>| {
            let expected = UnderWay {
                oldest: oldest.map(|(at, member)| (Instant(at), member)),
                others: others.map(Instant),
            };
            assert_eq!(flushes.under_way(), expected);
        };
        is(&flushes, None, None);
        flushes.begin(0, (first, 0), Instant(5));
        flushes.begin(1, (first, 0), Instant(6));
        is(&flushes, Some((5, first)), None);
        flushes.begin(2, (second, 0), Instant(7));
        flushes.begin(3, (first, 1), Instant(8));
        is(&flushes, Some((5, first)), Some(7));
        flushes.end(0);
        is(&flushes, Some((6, first)), Some(7));
        // Another drive came in its place.
        let mut map = whole();
        map.members[0].incarnation = 1;
        flushes.follow(&map);
        is(&flushes, Some((7, second)), Some(8));
        map.members[1].state = MapState::Lost;
        flushes.follow(&map);
        is(&flushes, Some((8, first)), None);
        for slot in 1..4 {
            flushes.end(slot);
        }
        is(&flushes, None, None);
    }
}
