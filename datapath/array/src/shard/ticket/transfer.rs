//! The member requests of a ticket: what goes to which member, from or to which memory.

use std::ops::Range;

use block::{Operation, Status};
use memory::Segment;
use units::{MemberIndex, Role, RoleSet};

use super::super::{DriveIo, IoOwner, Order, Shard};
use super::{Kind, PlannedBand};
use crate::buffers::Side;
use crate::geometry::StripePlaces;
use crate::io::Io;
use crate::map::MapMember;
use crate::planted::{self, Fault};

/// What is done with the roles of a band that are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Log,
}

impl Use {
    #[inline]
    fn of(operation: Operation) -> Use {
        if operation == Operation::Read {
            Use::Read
        } else {
            Use::Write
        }
    }

    #[inline]
    fn roles(self, band: &PlannedBand) -> RoleSet {
        match self {
            Use::Read => band.read,
            Use::Write => band.write,
            Use::Log => band.logged(),
        }
    }

    /// Those whose content is kept beside the new one.
    #[inline]
    fn old(self, band: &PlannedBand) -> RoleSet {
        if self == Use::Read {
            band.old
        } else {
            RoleSet::EMPTY
        }
    }
}

/// One member request of a ticket.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    role: Role,
    side: Side,
    lanes: Range<u32>,
}

/// Some lanes as bytes of the data areas of a stripe's members.
pub(super) struct Run {
    offset: u64,
    length: u64,
}

/// What the member requests of one phase of a ticket have in common.
pub(super) struct Phase {
    ticket: u32,
    operation: Operation,
    places: StripePlaces,
    /// Of the size of a block.
    shift: u32,
    /// All copies of a mirror are written from the buffer of the first.
    one_buffer: bool,
}

impl Phase {
    /// The role whose buffer is read or written for `role`, if bytes move.
    #[inline]
    pub(super) fn source(&self, role: Role) -> Option<Role> {
        if self.operation == Operation::WriteZeroes {
            return None;
        }
        Some(if self.one_buffer { Role(0) } else { role })
    }

    /// Where lanes are in the data area of each member.
    #[inline]
    pub(super) fn run(&self, lanes: &Range<u32>) -> Run {
        let block = self.places.block + u64::from(lanes.start);
        Run {
            offset: block << self.shift,
            length: u64::from(lanes.end - lanes.start) << self.shift,
        }
    }

    #[inline]
    pub(super) fn order(&self, members: &[MapMember], role: Role, run: &Run) -> Order {
        let member = self.places.member(role);
        let ticket = self.ticket;
        Order {
            owner: IoOwner::Ticket { ticket, role },
            member,
            operation: self.operation,
            offset: members[member.at()].data_offset + run.offset,
            length: run.length,
        }
    }
}

impl Shard {
    /// How many member requests the phase has.
    pub(super) fn count_transfers(&mut self, slot: u32, operation: Operation) -> usize {
        match self.tickets[slot].bands() {
            [band] => Use::of(operation).roles(band).iter().count(),
            _ => self.each_transfer(slot, Use::of(operation), |_, _| {}),
        }
    }

    /// Issues the member requests of the phase. How many.
    pub(super) fn issue_transfers(
        &mut self,
        slot: u32,
        operation: Operation,
        io: &mut impl Io,
    ) -> usize {
        let phase = self.phase(slot, operation);
        if self.tickets[slot].borrows {
            return self.issue_borrowed(slot, &phase, io);
        }
        let [band] = self.tickets[slot].bands() else {
            return self.each_transfer(slot, Use::of(operation), |shard, transfer| {
                shard.issue_transfer(slot, &phase, &transfer, io);
            });
        };
        // As nearly all writes of blocks are: nothing to put together.
        let of = Use::of(operation);
        let (roles, old) = (of.roles(band), of.old(band));
        let lanes = band.asked.lanes.clone();
        let (offset, length) = self.part_bytes(slot, &lanes);
        let run = phase.run(&lanes);
        let (mut issuer, buffers, tickets) = self.issuer();
        let held = &tickets[slot].buffers;
        let mut issue = |role, memory| {
            let order = phase.order(issuer.members, role, &run);
            issuer.issue(&order, memory, io);
        };
        let mut count = 0;
        if operation == Operation::WriteZeroes {
            for role in roles {
                issue(role, None);
                count += 1;
            }
            return count;
        }
        for role in roles {
            let side = if old.has(role) { Side::Old } else { Side::New };
            let source = if phase.one_buffer { Role(0) } else { role };
            let whole = buffers.segment(held, side, source);
            issue(role, Some(whole.part(offset, length)));
            count += 1;
        }
        count
    }

    /// What all member requests of the phase have in common.
    #[inline]
    pub(super) fn phase(&self, slot: u32, operation: Operation) -> Phase {
        let order = &self.tickets[slot].order;
        let copies = self.geometry().data() == 1 && operation == Operation::Write;
        Phase {
            ticket: slot,
            operation,
            places: self.geometry().places(order.stripe),
            shift: self.geometry().block_size().shift(),
            one_buffer: copies && matches!(order.kind, Kind::Write(_) | Kind::Forfeit(_)),
        }
    }

    /// Calls `visit` with each member request of the phase: by role, neighbouring bands as one.
    fn each_transfer(
        &mut self,
        slot: u32,
        of: Use,
        mut visit: impl FnMut(&mut Shard, Transfer),
    ) -> usize {
        let mut count = 0;
        for role in self.tickets[slot].roles(|band| of.roles(band)) {
            let mut open: Option<Transfer> = None;
            for position in 0..self.tickets[slot].band_count {
                let band = &self.tickets[slot].bands[position];
                if !of.roles(band).has(role) {
                    continue;
                }
                let side = if of.old(band).has(role) {
                    Side::Old
                } else {
                    Side::New
                };
                let lanes = band.asked.lanes.clone();
                match &mut open {
                    Some(last) if last.side == side && last.lanes.end == lanes.start => {
                        last.lanes.end = lanes.end;
                    }
                    _ => {
                        if let Some(done) = open.replace(Transfer { role, side, lanes }) {
                            count += 1;
                            visit(self, done);
                        }
                    }
                }
            }
            if let Some(done) = open {
                count += 1;
                visit(self, done);
            }
        }
        count
    }

    fn issue_transfer(&mut self, slot: u32, phase: &Phase, transfer: &Transfer, io: &mut impl Io) {
        let Transfer { role, side, lanes } = transfer;
        let memory = phase
            .source(*role)
            .map(|source| self.part(slot, *side, source, lanes));
        let mut issuer = self.issuer().0;
        let order = phase.order(issuer.members, *role, &phase.run(lanes));
        issuer.issue(&order, memory, io);
    }

    /// Calls `visit` with the memory and lanes of each run of `role` that the ticket logs.
    pub(in crate::shard) fn each_logged_run(
        &mut self,
        slot: u32,
        role: Role,
        mut visit: impl FnMut(Segment, Range<u32>),
    ) {
        let clears = self.tickets[slot].order.kind == Kind::Clear;
        self.each_transfer(slot, Use::Log, |shard, transfer| {
            if transfer.role != role {
                return;
            }
            let memory = if clears {
                Segment::EMPTY
            } else {
                shard.part(slot, transfer.side, role, &transfer.lanes)
            };
            visit(memory, transfer.lanes);
        });
    }

    /// A member request of a ticket is done.
    #[inline]
    pub(in crate::shard) fn ticket_io_done(
        &mut self,
        slot: u32,
        role: Role,
        (done, status): (&DriveIo, Status),
        io: &mut impl Io,
    ) {
        let operation = done.operation.expect("it was made once");
        let forgotten = operation != Operation::Read && planted::is(Fault::FailedWriteForgotten);
        if status.is_ok() || forgotten {
            return self.ticket_io_went_well(slot, done.member, operation, io);
        }
        self.ticket_io_failed(slot, role, (done, status));
        self.ticket_io_over(slot, operation, io);
    }

    /// As nearly all do.
    #[inline(always)]
    pub(in crate::shard) fn ticket_io_went_well(
        &mut self,
        slot: u32,
        member: MemberIndex,
        operation: Operation,
        io: &mut impl Io,
    ) {
        if operation != Operation::Read {
            self.shared.mark_written(member);
        }
        self.ticket_io_over(slot, operation, io);
    }

    #[inline(always)]
    fn ticket_io_over(&mut self, slot: u32, operation: Operation, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        assert!(ticket.pending > 0, "a member request completes once");
        ticket.pending -= 1;
        if ticket.pending > 0 {
            return;
        }
        if operation == Operation::Read {
            self.reads_done(slot, io);
        } else {
            self.writes_done(slot, io);
        }
    }

    #[cold]
    fn ticket_io_failed(&mut self, slot: u32, role: Role, (done, status): (&DriveIo, Status)) {
        let reading = done.operation == Some(Operation::Read);
        if !reading || status == Status::Gone {
            self.report(*done, status);
        }
        if !reading {
            // The next engine may have to write it again, until the member is out.
            self.own_payload(slot);
        }
        let checks = self.tickets[slot].is_checking();
        let counted = reading && self.looks_closer(slot) && !checks;
        let ticket = &mut self.tickets[slot];
        if !reading {
            ticket.failures.push((done.member, done.incarnation));
            return;
        }
        ticket.errors = ticket.errors.with(role);
        if status == Status::Gone {
            if ticket.gone.is_empty() {
                ticket.gone_serial = ticket.serial;
            }
            ticket.gone = ticket.gone.with(role);
        } else if !counted {
            // One bad block is read many times before it is given up.
            self.shared.note_read_error(done.member);
        }
        self.counters.media_errors += 1;
    }
}
