//! The member requests of a ticket: what goes to which member, from or to which memory.

use std::ops::Range;

use block::Operation;
use memory::Segment;
use units::Role;

use super::super::{IoOwner, Order, Shard};
use super::{Kind, PlannedBand};
use crate::buffers::Side;
use crate::io::Io;

/// One member request of a ticket.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    role: Role,
    side: Side,
    lanes: Range<u32>,
}

impl Shard {
    /// Calls `visit` with each member request of the phase: by role, neighbouring bands as one.
    pub(super) fn each_transfer(
        &mut self,
        slot: u32,
        operation: Operation,
        mut visit: impl FnMut(&mut Shard, Transfer),
    ) -> usize {
        let read = operation == Operation::Read;
        let select = |band: &PlannedBand| if read { band.read } else { band.write };
        let mut count = 0;
        for role in self.tickets[slot].roles(select) {
            let mut open: Option<Transfer> = None;
            for position in 0..self.tickets[slot].band_count {
                let band = &self.tickets[slot].bands[position];
                if !select(band).has(role) {
                    continue;
                }
                let side = if read && band.old.has(role) {
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

    pub(super) fn issue_transfer(
        &mut self,
        slot: u32,
        operation: Operation,
        transfer: Transfer,
        io: &mut impl Io,
    ) {
        let Transfer { role, side, lanes } = transfer;
        let stripe = self.tickets[slot].order.stripe;
        let (member, offset) = self.drive_offset(stripe, role, lanes.start);
        let length = self.bytes(lanes.end - lanes.start);
        let source = if self.geometry().data() == 1 && operation == Operation::Write {
            self.mirror_source(slot, role)
        } else {
            role
        };
        let memory =
            (operation != Operation::WriteZeroes).then(|| self.part(slot, side, source, &lanes));
        let owner = IoOwner::Ticket { ticket: slot, role };
        let order = Order {
            owner,
            member,
            operation,
            offset,
            length,
        };
        self.issue(order, |list| list.extend(memory), io);
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
