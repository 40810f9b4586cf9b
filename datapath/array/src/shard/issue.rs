//! Member requests: their slots, their memory, and their way out.

use block::{Cookie, Operation};
use memory::{Segment, SegmentList};
use units::{DriveIndex, MemberIndex};

use super::{IoOwner, Shard};
use crate::io::{Io, MemberRequest};

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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DriveIo {
    pub(super) owner: IoOwner,
    pub(super) member: MemberIndex,
    pub(super) incarnation: u32,
    pub(super) operation: Option<Operation>,
    /// The look at which it was made.
    pub(super) issued: u32,
    /// Its segments are in a list of ours; else they are the request's own.
    pub(super) listed: bool,
}

impl Shard {
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
        let drive = self.map.members[order.member.at()].drive;
        self.issue_to(
            drive.expect("a member without a drive is not asked"),
            order,
            fill,
            io,
        );
    }

    /// As `issue`, to a drive that the map may not know yet.
    pub(super) fn issue_to(
        &mut self,
        drive: DriveIndex,
        order: Order,
        fill: impl FnOnce(&mut Vec<Segment>),
        io: &mut impl Io,
    ) {
        let slot = self.begin_io(&order, true);
        let segments = self.lists.lend(crate::slots::at(slot), fill);
        self.send_io((slot, drive), order, segments, io);
    }

    /// As `issue`, with segments that stay where they are until the request is answered.
    pub(super) fn issue_whole(&mut self, order: Order, segments: SegmentList, io: &mut impl Io) {
        let drive = self.map.members[order.member.at()].drive;
        let drive = drive.expect("a member without a drive is not asked");
        let slot = self.begin_io(&order, false);
        self.send_io((slot, drive), order, segments, io);
    }

    #[inline]
    fn begin_io(&mut self, order: &Order, listed: bool) -> u32 {
        let slot = self.ios.acquire().expect("can_issue");
        self.ios[slot] = DriveIo {
            owner: order.owner,
            member: order.member,
            incarnation: self.map.members[order.member.at()].incarnation,
            operation: Some(order.operation),
            issued: self.late.now,
            listed,
        };
        slot
    }

    #[inline]
    fn send_io(
        &mut self,
        (slot, drive): (u32, DriveIndex),
        order: Order,
        segments: SegmentList,
        io: &mut impl Io,
    ) {
        self.counters.drive_requests += 1;
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
