//! A flush: of every member that was written since its last one, from where it arrived.

use block::{Operation, Status};
use units::{MemberIndex, bytes_usize};

use super::super::{DriveIo, IoOwner, Order, Shard};
use super::Advance;
use crate::io::Io;
use crate::map::MapState;
use crate::planted::{self, Fault};

impl Shard {
    /// Flushes the next member that was written since its last flush and has a cache that it could
    /// lose. One that has none is not asked, and counts as written for as long as it has none.
    pub(super) fn issue_flush(&mut self, slot: u32, io: &mut impl Io) -> Advance {
        let position = bytes_usize(u64::from(self.requests[slot].issued));
        let entry = &self.map.members[position];
        let drive = entry.drive.filter(|_| entry.state != MapState::Lost);
        let usable = drive.is_some_and(|drive| !io.keeps_all(drive));
        if usable && !self.can_serve(1, io) {
            return Advance::Stuck;
        }
        self.requests[slot].issued += 1;
        let member = MemberIndex::from_at(position);
        let last = position + 1 == self.map.members.len();
        let usable = usable && !(last && planted::is(Fault::MemberForgottenInFlush));
        if usable && self.shared.begin_flush(member) {
            self.requests[slot].pending += 1;
            let owner = IoOwner::Flush { request: slot };
            let operation = Operation::Flush;
            self.issue(
                Order {
                    owner,
                    member,
                    operation,
                    offset: 0,
                    length: 0,
                },
                |_| {},
                io,
            );
        }
        Advance::Moved
    }

    pub(in crate::shard) fn flush_done(
        &mut self,
        slot: u32,
        (done, status): (DriveIo, Status),
        io: &mut impl Io,
    ) {
        let DriveIo {
            member,
            incarnation,
            ..
        } = done;
        let flushed = self.shared.is_flushed(member, incarnation, status);
        self.shared.finish_flush(member, flushed);
        let forgotten =
            planted::is(Fault::FailedFlushForgotten) || planted::is(Fault::HeldFlushAnswered);
        let mut verdict = Status::Ok;
        if !flushed && !forgotten {
            self.report(done, status);
            if status == Status::Gone && self.map.given_up {
                // A later flush may still keep everything.
                verdict = Status::Media;
            } else {
                // What the drive still held is unknown now; it is no member any more.
                self.requests[slot].unsettled.push((member, incarnation));
            }
        }
        self.piece_done(slot, verdict, io);
    }

    /// Answers flushes whose failed members are settled on every shard.
    pub(in crate::shard) fn settle_flushes(&mut self, io: &mut impl Io) -> usize {
        if self.unsettled_flushes.is_empty() || self.effective < self.map.barrier {
            return 0;
        }
        let mut moved = 0;
        let mut position = 0;
        while position < self.unsettled_flushes.len() {
            let slot = self.unsettled_flushes[position];
            let unsettled = &self.requests[slot].unsettled;
            let settled = unsettled
                .iter()
                .all(|&(member, incarnation)| self.map.settled(member, incarnation));
            // Nobody can be excluded any more once metadata cannot be written, and not soon once a
            // hold was given up.
            if !settled && !self.map.read_only && !self.map.given_up {
                position += 1;
                continue;
            }
            let hopeless = |&(member, _): &(MemberIndex, u32)| self.map.hopeless[member.at()];
            let beyond = !settled || unsettled.iter().any(hopeless);
            let verdict = if beyond { Status::Media } else { Status::Ok };
            self.requests[slot].unsettled.clear();
            self.requests[slot].status = self.requests[slot].status.and(verdict);
            self.unsettled_flushes.swap_remove(position);
            self.finish_if_done(slot, io);
            moved += 1;
        }
        moved
    }
}
