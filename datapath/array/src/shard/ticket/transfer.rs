//! The member requests of a ticket: what goes to which member, from or to which memory.

use std::ops::Range;

use block::Operation;
use memory::Segment;
use units::{Role, RoleSet};

use super::super::{IoOwner, Order, Shard};
use super::{Kind, PlannedBand};
use crate::buffers::Side;
use crate::geometry::StripePlaces;
use crate::io::Io;

/// The roles that the phase asks.
#[inline]
fn roles_of(band: &PlannedBand, operation: Operation) -> RoleSet {
    if operation == Operation::Read {
        band.read
    } else {
        band.write
    }
}

/// Those whose content is kept beside the new one.
#[inline]
fn old_of(band: &PlannedBand, operation: Operation) -> RoleSet {
    if operation == Operation::Read {
        band.old
    } else {
        RoleSet::EMPTY
    }
}

/// One member request of a ticket.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    role: Role,
    side: Side,
    lanes: Range<u32>,
}

impl Shard {
    /// How many member requests the phase has.
    pub(super) fn count_transfers(&mut self, slot: u32, operation: Operation) -> usize {
        match self.tickets[slot].bands() {
            [band] => roles_of(band, operation).len(),
            _ => self.each_transfer(slot, operation, |_, _| {}),
        }
    }

    /// Issues the member requests of the phase. How many.
    pub(super) fn issue_transfers(
        &mut self,
        slot: u32,
        operation: Operation,
        io: &mut impl Io,
    ) -> usize {
        let ticket = &self.tickets[slot];
        let places = self.map.geometry.places(ticket.order.stripe);
        let [band] = ticket.bands() else {
            return self.each_transfer(slot, operation, |shard, transfer| {
                shard.issue_transfer(slot, (operation, &places), &transfer, io);
            });
        };
        // As nearly all writes of blocks are: nothing to put together.
        let (roles, lanes) = (roles_of(band, operation), band.asked.lanes.clone());
        let old = old_of(band, operation);
        let mut count = 0;
        for role in roles {
            let side = if old.has(role) { Side::Old } else { Side::New };
            let lanes = lanes.clone();
            let transfer = Transfer { role, side, lanes };
            self.issue_transfer(slot, (operation, &places), &transfer, io);
            count += 1;
        }
        count
    }

    /// Calls `visit` with each member request of the phase: by role, neighbouring bands as one.
    fn each_transfer(
        &mut self,
        slot: u32,
        operation: Operation,
        mut visit: impl FnMut(&mut Shard, Transfer),
    ) -> usize {
        let select = |band: &PlannedBand| roles_of(band, operation);
        let mut count = 0;
        for role in self.tickets[slot].roles(select) {
            let mut open: Option<Transfer> = None;
            for position in 0..self.tickets[slot].band_count {
                let band = &self.tickets[slot].bands[position];
                if !select(band).has(role) {
                    continue;
                }
                let old = old_of(band, operation);
                let side = if old.has(role) { Side::Old } else { Side::New };
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

    #[inline]
    fn issue_transfer(
        &mut self,
        slot: u32,
        (operation, places): (Operation, &StripePlaces),
        transfer: &Transfer,
        io: &mut impl Io,
    ) {
        let Transfer { role, side, lanes } = transfer;
        let (role, side) = (*role, *side);
        let (member, offset) = self.drive_offset(places, role, lanes.start);
        let length = self.bytes(lanes.end - lanes.start);
        let source = if self.geometry().data() == 1 && operation == Operation::Write {
            self.mirror_source(slot, role)
        } else {
            role
        };
        let owner = IoOwner::Ticket { ticket: slot, role };
        let order = Order {
            owner,
            member,
            operation,
            offset,
            length,
        };
        if operation == Operation::WriteZeroes {
            self.issue(order, |_| {}, io);
        } else {
            let memory = self.part(slot, side, source, lanes);
            self.issue_one(&order, memory, io);
        }
    }

    /// The role whose buffer is written to copy `role` of a mirror.
    fn mirror_source(&self, slot: u32, role: Role) -> Role {
        match self.tickets[slot].order.kind {
            Kind::Write(_) => Role(0),
            Kind::Clear | Kind::Read { .. } | Kind::Repair(_) => role,
        }
    }

    /// Calls `visit` with the memory and lanes of each run of `role` that the ticket writes.
    pub(in crate::shard) fn each_write_run(
        &mut self,
        slot: u32,
        role: Role,
        mut visit: impl FnMut(Segment, Range<u32>),
    ) {
        let clears = self.tickets[slot].order.kind == Kind::Clear;
        self.each_transfer(slot, Operation::Write, |shard, transfer| {
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
}
