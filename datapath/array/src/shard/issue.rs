//! Member requests: their slots, their memory, and their way out.

use block::{Cookie, Operation};
use memory::{Segment, SegmentList, SegmentSlots};
use units::{DriveIndex, MemberIndex};

use super::flushes::Flushes;
use super::ticket::Ticket;
use super::{IoOwner, Shard};
use crate::buffers::Buffers;
use crate::io::{Io, MemberRequest};
use crate::map::MapMember;
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
    /// It failed before; and the drive was there when it was made again.
    pub(super) again: bool,
    pub(super) sure: bool,
    /// Its segments are in a list of ours; else they are the request's own.
    pub(super) listed: bool,
    /// A read of what was given up meanwhile: it fails, whatever it brings.
    pub(super) outlived: bool,
    /// A read that would have been given up, were there no budget.
    pub(super) refused: bool,
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
            again: false,
            sure: false,
            listed: false,
            outlived: false,
            refused: false,
        }
    }
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
        let slot = self.slot();
        let drive = self.drive_of(order.member);
        let at = crate::slots::at(slot);
        let segments = match memory {
            Some(memory) => self.lists.lend_one(at, memory),
            None => self.lists.lend(at, |_| {}),
        };
        self.send((slot, drive), order, (segments, true), io);
    }

    #[inline]
    fn slot(&mut self) -> u32 {
        self.ios.acquire().expect("can_issue")
    }

    #[inline]
    fn drive_of(&self, member: MemberIndex) -> DriveIndex {
        let drive = self.members[member.at()].drive;
        drive.expect("a member without a drive is not asked")
    }

    #[inline(always)]
    fn send(
        &mut self,
        (slot, drive): (u32, DriveIndex),
        order: &Order,
        (segments, listed): (SegmentList, bool),
        io: &mut impl Io,
    ) {
        *self.made += 1;
        self.ios[slot] = DriveIo {
            owner: order.owner,
            member: order.member,
            incarnation: self.members[order.member.at()].incarnation,
            operation: Some(order.operation),
            issued: self.look,
            drive,
            offset: order.offset,
            length: order.length,
            segments,
            again: false,
            sure: false,
            listed,
            outlived: false,
            refused: false,
        };
        if order.operation == Operation::Flush {
            self.flushes.begin(slot, io.now());
        }
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

    /// Submits one member request; `fill` gives its memory.
    ///
    /// # Panics
    /// When there is no room (`can_issue`).
    pub(super) fn issue(
        &mut self,
        order: Order,
        fill: impl FnOnce(&mut Vec<Segment>),
        io: &mut impl Io,
    ) {
        let drive = self.issuer().0.drive_of(order.member);
        self.issue_to(drive, order, fill, io);
    }

    /// As `issue`, to a drive that the map may not know yet.
    pub(super) fn issue_to(
        &mut self,
        drive: DriveIndex,
        order: Order,
        fill: impl FnOnce(&mut Vec<Segment>),
        io: &mut impl Io,
    ) {
        let mut issuer = self.issuer().0;
        let slot = issuer.slot();
        let segments = issuer.lists.lend(crate::slots::at(slot), fill);
        issuer.send((slot, drive), &order, (segments, true), io);
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
        issuer.send((slot, done.drive), &order, (segments, true), io);
        (self.ios[slot].again, self.ios[slot].sure) = (true, sure);
        self.ios[slot].outlived = done.outlived || self.outlives(done);
    }

    /// As `issue`, with segments that stay where they are until the request is answered.
    #[inline(always)]
    pub(super) fn issue_whole(&mut self, order: &Order, segments: SegmentList, io: &mut impl Io) {
        let mut issuer = self.issuer().0;
        let slot = issuer.slot();
        let drive = issuer.drive_of(order.member);
        issuer.send((slot, drive), order, (segments, false), io);
    }
}
