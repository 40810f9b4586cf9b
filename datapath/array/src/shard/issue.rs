//! Member requests: their slots, their memory, and their way out and back.

use block::{Cookie, Operation, Status};
use memory::{Segment, SegmentList, SegmentSlots};
use units::{DriveIndex, Instant, MemberIndex};

use super::flushes::Flushes;
use super::ticket::Ticket;
use super::{IoOwner, Shard};
use crate::buffers::Buffers;
use crate::io::{Io, MemberRequest};
use crate::map::{MapMember, MapState};
use crate::planted::{self, Fault};
use crate::slots::Slots;

/// A member request to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) owner: IoOwner,
    pub(super) member: MemberIndex,
    pub(super) operation: Operation,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A member request under way.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "where its segments are has nothing to do with whether it failed before"
)]
pub(super) struct DriveIo {
    pub(super) owner: IoOwner,
    pub(super) member: MemberIndex,
    pub(super) incarnation: u32,
    pub(super) operation: Option<Operation>,
    /// The look at which it was made.
    pub(super) issued: u32,
    pub(super) drive: DriveIndex,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) segments: SegmentList,
    /// Since when its drive refuses it, and is there; 0 when it does not.
    pub(super) refused_since: Instant,
    /// It failed before; and the drive was there when it was made again.
    pub(super) again: bool,
    pub(super) sure: bool,
    /// Its segments are in a list of ours; else they are the request's own.
    pub(super) listed: bool,
    /// A read of what was given up meanwhile: it fails, whatever it brings.
    pub(super) outlived: bool,
    /// A read that would have been given up, were there no budget.
    pub(super) refused: bool,
    /// A write from a guest's memory.
    pub(super) borrows: bool,
}

impl Default for DriveIo {
    fn default() -> DriveIo {
        DriveIo {
            owner: IoOwner::Nobody,
            member: MemberIndex(0),
            incarnation: 0,
            operation: None,
            issued: 0,
            drive: DriveIndex(0),
            offset: 0,
            length: 0,
            segments: SegmentList::EMPTY,
            refused_since: Instant(0),
            again: false,
            sure: false,
            listed: false,
            outlived: false,
            refused: false,
            borrows: false,
        }
    }
}

/// Whom a member request is for.
#[derive(Clone, Copy)]
struct Target {
    drive: DriveIndex,
    /// Of its member.
    incarnation: u32,
}

/// What it takes to make a member request.
pub(super) struct Issuer<'a> {
    ios: &'a mut Slots<DriveIo>,
    lists: &'a mut SegmentSlots,
    pub(super) members: &'a [MapMember],
    flushes: &'a mut Flushes,
    look: u32,
    made: &'a mut u64,
}

impl Issuer<'_> {
    /// Submits one member request, with one piece of memory or without bytes.
    #[inline(always)]
    pub(super) fn issue(&mut self, order: &Order, memory: Option<Segment>, io: &mut impl Io) {
        debug_assert_ne!(order.operation, Operation::Flush, "these are counted");
        // First: should it panic, no slot is taken that nothing was lent to.
        let target = self.target(order.member);
        let slot = self.slot();
        let at = crate::slots::at(slot);
        let segments = match memory {
            Some(memory) => self.lists.lend_one(at, memory),
            None => self.lists.lend(at, |_| {}),
        };
        self.send((slot, target), order, (segments, true), io);
    }

    #[inline]
    fn slot(&mut self) -> u32 {
        self.ios.acquire().expect("can_issue")
    }

    /// The drive of a member that counts: one that is out holds nothing that may be used, and is
    /// asked again only as a new member.
    #[inline]
    fn target(&self, member: MemberIndex) -> Target {
        let entry = &self.members[member.at()];
        match entry.drive {
            Some(drive) if entry.state != MapState::Lost || planted::is_forgiven() => Target {
                drive,
                incarnation: entry.incarnation,
            },
            Some(_) | None => asks_one_that_is_out(member),
        }
    }

    /// As `send`, of what may be a flush.
    fn send_any(
        &mut self,
        (slot, target): (u32, Target),
        order: &Order,
        segments: SegmentList,
        io: &mut impl Io,
    ) {
        if order.operation == Operation::Flush {
            let member = (order.member, target.incarnation);
            self.flushes.begin(slot, member, io.now());
        }
        self.send((slot, target), order, (segments, true), io);
    }

    #[inline(always)]
    fn send(
        &mut self,
        (slot, target): (u32, Target),
        order: &Order,
        (segments, listed): (SegmentList, bool),
        io: &mut impl Io,
    ) {
        let Target { drive, incarnation } = target;
        *self.made += 1;
        self.ios[slot] = DriveIo {
            owner: order.owner,
            member: order.member,
            incarnation,
            operation: Some(order.operation),
            issued: self.look,
            drive,
            offset: order.offset,
            length: order.length,
            segments,
            refused_since: Instant(0),
            again: false,
            sure: false,
            listed,
            outlived: false,
            refused: false,
            borrows: false,
        };
        io.drive(MemberRequest {
            drive,
            operation: order.operation,
            offset: order.offset,
            length: order.length,
            segments,
            cookie: Cookie(u64::from(slot)),
        });
    }
}

/// Apart, because what a message shows would else be put together for every request.
#[cold]
#[inline(never)]
fn asks_one_that_is_out(member: MemberIndex) -> ! {
    panic!("{member} is asked, and is out or has no drive")
}

/// What the answer to a read counts that comes when its member is out: what the drive was asked
/// before, and what was given up since, it may have carried out first, with whatever was in that
/// memory by then.
#[cold]
fn too_late(owner: &IoOwner, status: Status) -> Status {
    match owner {
        IoOwner::Direct { .. } | IoOwner::Bounced { .. } | IoOwner::Ticket { .. }
            if status.is_ok() && !planted::is(Fault::OutMembersBelieved) =>
        {
            Status::Gone
        }
        IoOwner::Nobody
        | IoOwner::Direct { .. }
        | IoOwner::Bounced { .. }
        | IoOwner::GivenUp { .. }
        | IoOwner::Flush { .. }
        | IoOwner::Ticket { .. }
        | IoOwner::Log { .. }
        | IoOwner::LogFlush
        | IoOwner::Metadata
        | IoOwner::Region
        | IoOwner::Clear
        | IoOwner::Zeroing
        | IoOwner::Abandoned { .. }
        | IoOwner::Probe
        | IoOwner::Trial
        | IoOwner::RollCall { .. }
        | IoOwner::Doubt => status,
    }
}

impl Shard {
    /// What it takes to make a member request, and the buffers beside it.
    #[inline(always)]
    pub(super) fn issuer(&mut self) -> (Issuer<'_>, &Buffers, &Slots<Ticket>) {
        let issuer = Issuer {
            ios: &mut self.ios,
            lists: &mut self.lists,
            members: &self.map.members,
            flushes: &mut self.flushes,
            look: self.late.now,
            made: &mut self.counters.drive_requests,
        };
        (issuer, &self.buffers, &self.tickets)
    }

    /// Whether so many member requests can be submitted now.
    pub(super) fn can_issue(&self, count: usize, io: &impl Io) -> bool {
        self.ios.free() >= count && io.drive_room() >= count
    }

    /// The same of what guests wait for: it leaves some to the array's own records. While they have
    /// none, no member is left out, also not the one whose answers all others wait for.
    #[inline(always)]
    pub(super) fn can_serve(&self, count: usize, io: &impl Io) -> bool {
        self.can_issue(count + self.kept.to_home, io)
    }

    /// The same of what was asked for before and is made again.
    pub(super) fn can_repeat(&self, owner: IoOwner, io: &impl Io) -> bool {
        if matches!(owner, IoOwner::Metadata | IoOwner::Region | IoOwner::Clear) {
            self.can_issue(1, io)
        } else {
            self.can_serve(1, io)
        }
    }

    /// Whether a request may go straight to its drive: it leaves what a ticket needs at once, too.
    /// Reads that follow each other without a pause would leave none to writes.
    #[inline(always)]
    pub(super) fn can_go_straight(&self, io: &impl Io) -> bool {
        self.can_issue(1 + self.kept.to_retries, io)
    }

    /// Whether a part of one that failed may.
    pub(super) fn can_retry(&self, io: &impl Io) -> bool {
        self.can_issue(1 + self.kept.to_tickets, io)
    }

    /// Submits one member request; `fill` gives its memory. Its slot.
    ///
    /// # Panics
    /// When there is no room (`can_issue`).
    pub(super) fn issue(
        &mut self,
        order: Order,
        fill: impl FnOnce(&mut Vec<Segment>),
        io: &mut impl Io,
    ) -> u32 {
        let drive = self.issuer().0.target(order.member).drive;
        self.issue_to(drive, order, fill, io)
    }

    /// As `issue`, to a drive that the map may not know yet.
    pub(super) fn issue_to(
        &mut self,
        drive: DriveIndex,
        order: Order,
        fill: impl FnOnce(&mut Vec<Segment>),
        io: &mut impl Io,
    ) -> u32 {
        let mut issuer = self.issuer().0;
        let slot = issuer.slot();
        let segments = issuer.lists.lend(crate::slots::at(slot), fill);
        let incarnation = issuer.members[order.member.at()].incarnation;
        let target = Target { drive, incarnation };
        issuer.send_any((slot, target), &order, segments, io);
        slot
    }

    /// Makes a request again that failed. `sure`: its drive is there.
    pub(super) fn issue_again(
        &mut self,
        done: &DriveIo,
        sure: bool,
        memory: &[Segment],
        io: &mut impl Io,
    ) {
        let order = Order {
            owner: done.owner,
            member: done.member,
            operation: done.operation.expect("it was made once"),
            offset: done.offset,
            length: done.length,
        };
        let mut issuer = self.issuer().0;
        let slot = issuer.slot();
        let segments = issuer.lists.lend(crate::slots::at(slot), |list| {
            list.extend_from_slice(memory);
        });
        let target = Target {
            drive: done.drive,
            incarnation: issuer.members[order.member.at()].incarnation,
        };
        issuer.send_any((slot, target), &order, segments, io);
        (self.ios[slot].again, self.ios[slot].sure) = (true, sure);
        self.ios[slot].refused_since = done.refused_since;
        self.ios[slot].outlived = done.outlived || self.outlives(done);
    }

    /// As `issue`, with segments that stay where they are until the request is answered.
    #[inline(always)]
    pub(super) fn issue_whole(&mut self, order: &Order, segments: SegmentList, io: &mut impl Io) {
        debug_assert_ne!(order.operation, Operation::Flush, "these are counted");
        let mut issuer = self.issuer().0;
        let target = issuer.target(order.member);
        let slot = issuer.slot();
        issuer.send((slot, target), order, (segments, false), io);
    }

    /// Takes the completion of a member request.
    // Inlined into the loop over what drives have answered, or each of them saves and restores all
    // registers.
    #[inline(always)]
    pub fn drive_done(&mut self, cookie: Cookie, status: Status, io: &mut impl Io) {
        let slot = u32::try_from(cookie.0).expect("cookies of member requests are slots");
        let done = &self.ios[slot];
        let member = done.member;
        let reads = done.operation == Some(Operation::Read);
        let is_well = status.is_ok() && !(reads && self.map.is_out(member, done.incarnation));
        match (&done.owner, done.operation) {
            // As nearly all are: nothing else that is known of them matters.
            (&IoOwner::Ticket { ticket, .. }, Some(operation)) if is_well => {
                self.io_over(slot);
                self.ticket_io_went_well(ticket, member, operation, io);
            }
            (&IoOwner::Direct { request, .. }, Some(Operation::Read))
                if is_well && !done.outlived =>
            {
                self.io_over(slot);
                self.piece_done(request, status, io);
            }
            _ => self.drive_done_otherwise(slot, status, io),
        }
    }

    /// A drive has answered: the slot is free, and as it was left but for its owner.
    #[inline(always)]
    fn io_over(&mut self, slot: u32) {
        let done = &mut self.ios[slot];
        done.owner = IoOwner::Nobody;
        let heard = (done.member, done.issued);
        if done.listed {
            self.lists.take_back(crate::slots::at(slot));
        }
        self.ios.release(slot);
        self.hear(heard);
    }

    /// The same, of what needs a closer look.
    #[inline(never)]
    fn drive_done_otherwise(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        let DriveIo {
            owner,
            member,
            incarnation,
            operation,
            ..
        } = self.ios[slot];
        let reads = operation == Some(Operation::Read);
        let status = if reads && self.map.is_out(member, incarnation) {
            too_late(&owner, status)
        } else {
            status
        };
        self.io_over(slot);
        self.stir();
        let done = DriveIo {
            owner,
            ..*self.ios.last(slot)
        };
        if done.owner.is_given_up() {
            self.late_done(slot, done, status, io);
        } else if status.is_ok() && done.operation == Some(Operation::Flush) {
            return self.flush_went_well(slot, done, io);
        } else if status.is_ok() {
            self.hand_on(&done, status, io);
        } else {
            self.request_failed(slot, done, status, io);
        }
        if done.operation == Some(Operation::Flush) {
            self.flushes.end(slot);
        }
    }

    /// Hands the verdict on a member request to whoever waits for it.
    #[cold]
    pub(super) fn deliver(&mut self, done: DriveIo, status: Status, io: &mut impl Io) {
        self.hand_on(&done, status, io);
    }

    /// As `deliver`, for what has just come.
    #[inline]
    fn hand_on(&mut self, done: &DriveIo, status: Status, io: &mut impl Io) {
        match done.owner {
            IoOwner::Nobody | IoOwner::GivenUp { .. } => {
                unreachable!("a completion that nobody waits for")
            }
            IoOwner::Abandoned { .. } => self.late_flush_done(*done, status),
            IoOwner::Direct {
                request,
                first,
                blocks,
            } => {
                self.direct_done(request, (first, blocks), (done, status), io);
            }
            IoOwner::Bounced { bounce } => self.bounced_done(bounce, (*done, status), io),
            IoOwner::Flush { request } => self.flush_done(request, (*done, status), io),
            IoOwner::Ticket { ticket, role } => {
                self.ticket_io_done(ticket, role, (done, status), io);
            }
            IoOwner::Log { ticket } => self.log_io_done(ticket, *done, status),
            IoOwner::LogFlush => self.log_flush_done(*done, status),
            IoOwner::Metadata => self.metadata_done(*done, status, io),
            IoOwner::Region => self.region_io_done(*done, status),
            IoOwner::Clear => self.clear_io_done(*done, status),
            IoOwner::Zeroing => self.zero_io_done(*done, status),
            IoOwner::Probe | IoOwner::RollCall { .. } | IoOwner::Doubt => {
                self.ping_done(*done, status, io);
            }
            IoOwner::Trial => self.trial_done(done.member),
        }
    }
}
