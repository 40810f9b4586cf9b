//! Zeroes of whole stripes that no buffer holds, and that a member refuses. Where a member is
//! needed they are written from buffers to begin with (`clear_by_writing`), but another one may be
//! lost while they are under way.

use block::Operation;
use memory::Segment;
use units::Role;

use super::super::super::Shard;
use super::super::super::hold::Parked;
use super::super::{Kind, Payload};
use crate::buffers::Side;
use crate::io::Io;

impl Shard {
    /// From here on the ticket is a write of zeroes like any other, and the blocks that this member
    /// has refused are written one by one. The others have theirs. What the next engine is told of
    /// it, and the log, say zeroes all the same.
    pub(super) fn take_zeroes_apart(
        &mut self,
        mut parked: Parked,
        slot: u32,
        role: Role,
        io: &mut impl Io,
    ) {
        if self.tickets[slot].order.kind == Kind::Clear && !self.brings_zeroes(slot) {
            // All buffers are taken. Whoever has them may wait for its place in the log: then the
            // drive is waited for as one that takes nothing, and that ends.
            if self.tickets[slot].log_slot.is_some() {
                self.park_or_deliver(parked, io);
            } else {
                self.try_later(parked, io.now());
            }
            return;
        }
        parked.done.operation = Some(Operation::Write);
        parked.segments = vec![self.zeroes_of(slot, role, &parked)];
        self.take_apart(&parked, slot);
    }

    /// Takes buffers with zeroes for all that the ticket writes, if there are enough.
    fn brings_zeroes(&mut self, slot: u32) -> bool {
        self.tickets[slot].order.kind = Kind::Write(Payload::Zeroes);
        if !self.take_buffers(slot) {
            self.tickets[slot].order.kind = Kind::Clear;
            return false;
        }
        let mirrors = self.geometry().data() == 1;
        for at in 0..self.tickets[slot].bands().len() {
            let band = self.tickets[slot].bands()[at].clone();
            let roles = band.asked.written;
            let all = if mirrors {
                roles
            } else {
                roles.union(band.write)
            };
            for role in all {
                self.part(slot, Side::New, role, &band.asked.lanes).fill(0);
            }
        }
        true
    }

    /// The memory of what a member request of the ticket writes.
    fn zeroes_of(&self, slot: u32, role: Role, parked: &Parked) -> Segment {
        let start = self.first_lane(slot, &parked.done);
        let lanes = parked.done.length / self.geometry().block_size().bytes();
        let end = start + u32::try_from(lanes).expect("of a cell");
        let mirrors = self.geometry().data() == 1;
        let source = if mirrors { Role(0) } else { role };
        self.part(slot, Side::New, source, &(start..end))
    }
}
