//! What an error means. For a drive that is not there any more, operating systems often answer with
//! plain I/O errors, as for blocks that cannot be read. Where nothing else is left, that difference
//! decides: one is waited for, the other is told to the guest.
//!
//! So a read that failed for good, and every flush that failed, is set aside, and the member is
//! *pinged*: its superblock is read, one copy after the other. If neither can be read, the drive is
//! gone, and the request ends as one to a drive that is gone. If the drive is there, a read is made
//! again, and fails when the drive is there afterwards, too. A flush is not: what it should have
//! kept may be lost already. So one that waits for a drive that is gone is made again only just
//! after the drive has answered a ping. A drive that is gone for less than a ping takes, and for
//! which a flush is answered with an error meanwhile, counts as one that lost something. As long as
//! that is open, a later flush of the same drive that goes well is not handed on: a drive may tell
//! of what it lost only once. Nor is it, where the array cannot do without the member, before the
//! answers to flushes are dealt with that were asked for before it was answered, on whichever
//! shard: one of these may have failed, and nobody has looked yet. (Where it can, the member is out
//! in a moment, and the others have what it lost.) A write of zeroes over a bad block that is given
//! up is made again as well; refused twice by a drive that is there it is passed over
//! (`ticket/forfeit.rs`), and by one that is not it waits. Any other write to a member that the
//! array cannot do without is made again for a second. Then its drive is asked to write elsewhere.
//! What it refuses once more after it has taken that, and is there, fails for good
//! (`ticket/refused.rs`).

use std::time::Duration;

use block::{Operation, Status};
use units::{Instant, MemberIndex, bytes_u64};

use super::hold::Parked;
use super::{DriveIo, IoOwner, Order, Shard};
use crate::format::{SUPERBLOCK_BYTES, Superblock};
use crate::io::Io;
use crate::planted::{self, Fault};

/// Between two looks of a flush that waits for what another shard doubts, or has not looked at.
const OVERTAKEN: Duration = Duration::from_millis(10);
const UNREAD: Duration = Duration::from_micros(100);
/// A drive that is there must have refused a write for so long; and between two attempts.
pub(super) const REFUSED: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Instead of the time since when, and long ago: its drive has taken another write since it refused
/// this one.
const PROVEN: Instant = Instant(1);

/// A member request of which it is not known what its error means.
#[derive(Debug)]
pub(super) struct Doubted {
    pub(super) parked: Parked,
    step: Step,
}

/// A flush that went well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overtaken {
    done: DriveIo,
    /// The last that was asked of its member before this one was answered.
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It failed after its member was pinged last.
    New,
    /// Its member is pinged.
    Pinged,
    /// The drive is there: the request is to be made again.
    Again,
    /// The same, at that time.
    Later(Instant),
    /// It is refused for long: whether the drive takes other writes is to be asked, and is asked.
    Trial,
    Tried,
}

impl Shard {
    /// Whether it is not clear what this error means, and matters.
    pub(super) fn doubts(&self, done: &DriveIo, status: Status) -> bool {
        let settled = self.map.settled(done.member, done.incarnation);
        if status != Status::Media || settled || self.map.read_only {
            return false;
        }
        if planted::is(Fault::ErrorsBelieved) {
            return false;
        }
        match (done.operation, done.owner) {
            // Nothing reads what a flush was for from elsewhere.
            (Some(Operation::Flush), _) => true,
            (Some(Operation::Read), IoOwner::Direct { .. }) => self.geometry().parity() == 0,
            (Some(Operation::Read), IoOwner::Ticket { ticket, .. }) => {
                self.tickets[ticket].is_second_try()
            }
            (Some(Operation::Write | Operation::WriteZeroes | Operation::Discard), _) => {
                // Nothing is lost by that, if the drive is there.
                self.is_lost_all_the_same(done) || self.may_be_refused(done)
            }
            (_, _) => false,
        }
    }

    /// Sets a member request aside until it is known whether its drive is there.
    pub(super) fn doubt(&mut self, parked: Parked) {
        let step = Step::New;
        if parked.is_failed_flush() {
            self.shared.begin_doubt(parked.done.member);
        }
        self.hold.doubted.push(Doubted { parked, step });
    }

    /// Makes a request again as soon as there is room, because its drive was not what failed.
    pub(super) fn make_again(&mut self, parked: Parked) {
        let step = Step::Again;
        self.hold.doubted.push(Doubted { parked, step });
    }

    /// Tries a refused write again after a pause.
    pub(super) fn try_later(&mut self, parked: Parked, now: Instant) {
        let step = Step::Later(now + REFUSED_PAUSE);
        self.hold.doubted.push(Doubted { parked, step });
    }

    /// What the error of a request means is known: it ends so, or waits.
    fn believe(&mut self, parked: Parked, status: Status, io: &mut impl Io) {
        let (member, counted) = (parked.done.member, parked.is_failed_flush());
        let media = status == Status::Media;
        let writes = parked.done.operation == Some(Operation::Write);
        if media && writes && self.is_lost_all_the_same(&parked.done) {
            // Should it be readable again some day, its row does not agree with it.
            self.shared.tear();
            self.deliver(parked.done, Status::Ok, io);
            return;
        }
        // One that nobody can do without any more is not asked.
        if counted && (media || self.map.settled(member, parked.done.incarnation)) {
            self.note_failed_flush(&parked.done, false);
        }
        self.park_or_deliver(Parked { status, ..parked }, io);
        if counted {
            self.shared.finish_doubt(member);
        }
    }

    /// A flush went well: it is handed on, unless it is open what others have lost.
    pub(super) fn flush_went_well(&mut self, slot: u32, done: DriveIo, io: &mut impl Io) {
        // Of this one it is not.
        self.flushes.end(slot);
        let last = self.shared.last_flush(done.member);
        let flush = Overtaken { done, last };
        if self.is_overtaken(&flush) {
            self.hold.overtaken.push(flush);
        } else {
            self.deliver(done, Status::Ok, io);
        }
    }

    /// Whether it is open what other flushes have lost beside one that went well. First whether
    /// some answer is not dealt with: who deals with one tells of its doubts before.
    fn is_overtaken(&self, flush: &Overtaken) -> bool {
        let member = flush.done.member;
        !self.map.is_out(member, flush.done.incarnation)
            && (self.is_unread(flush) || self.shared.is_doubted(member))
    }

    /// Whether another flush may have failed, of a member that the array cannot do without, and
    /// nobody has looked at the answer.
    fn is_unread(&self, flush: &Overtaken) -> bool {
        let member = flush.done.member;
        !self.map.can_do_without(member) && self.shared.awaits_flushes(member, flush.last)
    }

    /// Hands on flushes that went well, now that it is known what others have lost.
    fn release_overtaken(&mut self, io: &mut impl Io) -> usize {
        let overtaken = std::mem::take(&mut self.hold.overtaken);
        let mut moved = 0;
        let mut pause = OVERTAKEN;
        for flush in overtaken {
            if self.is_overtaken(&flush) {
                if self.is_unread(&flush) {
                    pause = UNREAD;
                }
                self.hold.overtaken.push(flush);
            } else {
                self.deliver(flush.done, Status::Ok, io);
                moved += 1;
            }
        }
        self.hold.overtaken_at = (!self.hold.overtaken.is_empty()).then(|| io.now() + pause);
        moved
    }

    /// Pings members, and makes requests again.
    pub(super) fn advance_doubts(&mut self, io: &mut impl Io) -> usize {
        let mut moved = self.release_overtaken(io);
        if self.hold.doubted.is_empty() {
            return moved;
        }
        let mut begun = Vec::new();
        // Looked for once, and not for each: there may be as many as a shard has requests.
        let mut rewritten = self.written_again();
        for Doubted { parked, step } in std::mem::take(&mut self.hold.doubted) {
            let member = parked.done.member;
            // Nothing is written to an array that takes no writes.
            let writes = parked.done.operation.is_some_and(Operation::changes);
            let ends = writes && self.map.read_only;
            let gone = ends || self.map.settled(member, parked.done.incarnation);
            if gone && step != Step::Pinged && step != Step::Tried {
                moved += 1;
                // Nobody looks any more what it has lost: a later flush proves nothing.
                let out = self.map.is_out(member, parked.done.incarnation);
                let lost = parked.is_failed_flush() && !out;
                let status = if lost { Status::Media } else { Status::Gone };
                self.believe(parked, status, io);
                continue;
            }
            let is_due = matches!(step, Step::Later(at) if io.now() >= at);
            let step = if is_due { Step::Again } else { step };
            // Neighbours that are there together are one request to the kernel, and one error.
            let waits = writes && step == Step::Again && rewritten.contains(&member);
            let step = match step {
                Step::Again if waits => Step::Again,
                Step::Again if self.can_repeat(parked.done.owner, io) => {
                    moved += 1;
                    rewritten.extend(writes.then_some(member));
                    self.issue_again(&parked.done, true, &parked.segments, io);
                    continue;
                }
                Step::New if self.hold.pinged.contains(&member) => Step::New,
                Step::New if self.can_issue(1, io) => {
                    moved += 1;
                    self.hold.pinged.push(member);
                    begun.push(member);
                    self.ping(member, IoOwner::Doubt, io);
                    Step::Pinged
                }
                Step::Trial if self.hold.pinged.contains(&member) => Step::Trial,
                Step::Trial if self.can_issue(1, io) => {
                    moved += 1;
                    self.hold.pinged.push(member);
                    self.try_writing(member, io);
                    Step::Tried
                }
                Step::New
                | Step::Pinged
                | Step::Again
                | Step::Later(_)
                | Step::Trial
                | Step::Tried => step,
            };
            self.hold.doubted.push(Doubted { parked, step });
        }
        // One ping is for all that failed before it.
        for doubted in &mut self.hold.doubted {
            let is_pinged = begun.contains(&doubted.parked.done.member);
            if is_pinged && doubted.step == Step::New {
                doubted.step = Step::Pinged;
            }
        }
        moved
    }

    /// Members to which a write is under way that was made again.
    fn written_again(&self) -> Vec<MemberIndex> {
        let is_one = |done: &&DriveIo| done.sure && done.operation.is_some_and(Operation::changes);
        let under_way = self.ios.busy().filter(is_one);
        under_way.map(|done| done.member).collect()
    }

    /// A ping has said whether a member is there.
    fn doubt_answered(&mut self, done: DriveIo, status: Status, io: &mut impl Io) {
        self.hold.pinged.retain(|&member| member != done.member);
        if done.operation == Some(Operation::Write) {
            self.trial_answered(done, status, io);
            return;
        }
        for Doubted { parked, step } in std::mem::take(&mut self.hold.doubted) {
            let was_asked = step == Step::Pinged || !status.is_ok();
            if parked.done.member != done.member || !was_asked {
                self.hold.doubted.push(Doubted { parked, step });
                continue;
            }
            let refuses = parked.status == Status::Media && self.may_be_refused(&parked.done);
            let now = io.now();
            // What was refused once may be a drive that was away for a moment.
            let again = match parked.done.operation {
                Some(Operation::Read) => true,
                Some(Operation::Write) => parked.status == Status::Media && !refuses,
                _ => false,
            };
            let waits = parked.status == Status::Gone;
            if !status.is_ok() {
                self.believe(parked, Status::Gone, io);
            } else if refuses {
                let mut parked = parked;
                let since = &mut parked.done.refused_since;
                if *since == Instant(0) {
                    *since = now;
                }
                let step = if now.since(*since) >= REFUSED {
                    Step::Trial
                } else {
                    Step::Later(now + REFUSED_PAUSE)
                };
                self.hold.doubted.push(Doubted { parked, step });
            } else if waits || (again && !parked.done.sure) {
                let step = Step::Again;
                self.hold.doubted.push(Doubted { parked, step });
            } else {
                let status = parked.status;
                self.believe(parked, status, io);
            }
        }
    }

    // ---- writes that drives refuse which are there ---------------------------------------

    /// Asks a drive to write where nobody reads: one that takes nothing at all is waited for.
    fn try_writing(&mut self, member: MemberIndex, io: &mut impl Io) {
        let zeroes = self.hold.zeroes();
        let order = Order {
            owner: IoOwner::Doubt,
            member,
            operation: Operation::Write,
            offset: self.map.members[member.at()].trial_offset,
            length: bytes_u64(zeroes.len()),
        };
        self.issue(order, |list| list.push(zeroes), io);
    }

    fn trial_answered(&mut self, done: DriveIo, status: Status, io: &mut impl Io) {
        for Doubted { mut parked, step } in std::mem::take(&mut self.hold.doubted) {
            if parked.done.member != done.member || step != Step::Tried {
                self.hold.doubted.push(Doubted { parked, step });
            } else if status == Status::Gone {
                self.believe(parked, status, io);
            } else if status.is_ok() && self.may_be_refused(&parked.done) {
                let since = std::mem::replace(&mut parked.done.refused_since, PROVEN);
                if since == PROVEN {
                    self.take_refusal(parked, io);
                } else {
                    // The drive may take everything by now.
                    self.make_again(parked);
                }
            } else {
                // What it takes later it may refuse anew.
                parked.done.refused_since = Instant(0);
                self.park_or_deliver(parked, io);
            }
        }
    }

    /// When a write is made again that was refused.
    pub(super) fn refusal_deadline(&self) -> Option<Instant> {
        let later = |doubted: &Doubted| match doubted.step {
            Step::Later(at) => Some(at),
            Step::New | Step::Pinged | Step::Again | Step::Trial | Step::Tried => None,
        };
        self.hold.doubted.iter().filter_map(later).min()
    }

    /// Whether it is not known yet what the error of a read or a flush means. For simulators.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        let writes = |operation: Option<Operation>| operation.is_some_and(Operation::changes);
        let mut doubted = self.hold.doubted.iter();
        let doubts = doubted.any(|it| !writes(it.parked.done.operation));
        doubts || !self.hold.overtaken.is_empty()
    }

    // ---- pings ---------------------------------------------------------------------------

    /// Reads the superblock of a member that has a drive. There is room.
    pub(super) fn ping(&mut self, member: MemberIndex, owner: IoOwner, io: &mut impl Io) {
        let drive = self.map.members[member.at()].drive;
        let drive = drive.expect("a member without a drive is not asked");
        self.read_superblock(
            DriveIo {
                owner,
                member,
                drive,
                offset: Superblock::head_offsets()[0],
                ..DriveIo::default()
            },
            io,
        );
    }

    /// A ping is answered.
    pub(super) fn ping_done(&mut self, done: DriveIo, status: Status, io: &mut impl Io) {
        if self.pings_again(done, status, io) {
            return;
        }
        if let IoOwner::RollCall { serial } = done.owner {
            self.roll_answered(serial, done, status);
        } else if matches!(done.owner, IoOwner::Probe) {
            self.probe_done(done, status, io.now());
        } else {
            self.doubt_answered(done, status, io);
        }
    }

    /// After a ping that failed, whether the other copy is read: one may lie on a bad block.
    fn pings_again(&mut self, done: DriveIo, status: Status, io: &mut impl Io) -> bool {
        let [first, second] = Superblock::head_offsets();
        let out = self.map.is_out(done.member, done.incarnation);
        if status.is_ok() || done.offset != first || out || !self.can_issue(1, io) {
            return false;
        }
        self.read_superblock(
            DriveIo {
                offset: second,
                ..done
            },
            io,
        );
        true
    }

    fn read_superblock(&mut self, ping: DriveIo, io: &mut impl Io) {
        // What it finds does not matter.
        let memory = self.hold.memory();
        let order = Order {
            owner: ping.owner,
            member: ping.member,
            operation: Operation::Read,
            offset: ping.offset,
            length: bytes_u64(SUPERBLOCK_BYTES),
        };
        self.issue_to(ping.drive, order, |list| list.push(memory), io);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::Bench;

    #[test]
    fn what_a_drive_refused_that_is_there_is_asked_once_more() {
        for (operation, status) in [
            (Operation::Write, Status::Media),
            (Operation::Read, Status::Media),
            (Operation::Flush, Status::Gone),
        ] {
            let mut bench = Bench::new();
            let done = DriveIo {
                owner: IoOwner::LogFlush,
                operation: Some(operation),
                offset: 1 << 20,
                ..DriveIo::default()
            };
            let parked = Parked {
                done,
                status,
                segments: Vec::new(),
            };
            bench.shard.doubt(parked);
            bench.poll();
            assert_eq!(bench.outside.asked.len(), 1, "it is pinged");
            bench.answer(0, Operation::Read, Status::Ok);
            bench.poll();
            let asked = bench.outside.asked.pop().expect("it is made again");
            assert_eq!((asked.operation, asked.offset), (operation, 1 << 20));
        }
    }
}
