//! The buffers that a ticket's plan needs: all at once, and older tickets first.

use std::collections::VecDeque;
use std::ops::Range;

use units::{RoleSet, bytes_usize};

use super::super::Shard;
use super::Kind;
use crate::buffers::Class;

impl Shard {
    #[inline]
    pub(in crate::shard) fn nobody_waits_for_buffers(&self) -> bool {
        self.buffer_waiters.iter().all(VecDeque::is_empty)
    }

    /// Whether nobody waits for buffers of the size that the ticket needs.
    #[cold]
    pub(super) fn nobody_waits_before(&self, slot: u32) -> bool {
        let class = self.class_of(&self.tickets[slot].lanes);
        self.buffer_waiters[class as usize].is_empty()
    }

    /// What buffers tickets on these lanes need.
    pub(in crate::shard) fn class_of(&self, lanes: &Range<u32>) -> Class {
        Class::of(bytes_usize(self.bytes(lanes.end - lanes.start)))
    }

    /// The same for a ticket that has waited for them.
    #[cold]
    pub(super) fn take_buffers_at_last(&mut self, slot: u32) -> bool {
        self.take_buffers(slot)
    }

    /// Takes the buffers that the plan needs; all or none.
    #[inline(always)]
    pub(super) fn take_buffers(&mut self, slot: u32) -> bool {
        let mirrors = self.geometry().data() == 1;
        let shift = self.geometry().block_size().shift();
        let ticket = &mut self.tickets[slot];
        let old = ticket.roles(|band| band.old);
        let kind = ticket.order.kind;
        let writes = matches!(kind, Kind::Write(_) | Kind::Forfeit(_));
        let new = if kind == Kind::Clear {
            RoleSet::EMPTY
        } else if writes && mirrors {
            // All copies are written from the one buffer that holds the new content.
            ticket.roles(|band| band.asked.written.union(band.read))
        } else {
            ticket.roles(|band| {
                let computed = band.read.without(band.old).union(band.decode);
                let written = band.write.union(band.asked.written);
                computed.union(if writes { written } else { RoleSet::EMPTY })
            })
        };
        let lanes = ticket.lanes.end - ticket.lanes.start;
        let bytes = bytes_usize(u64::from(lanes) << shift);
        self.buffers.acquire(&mut ticket.buffers, bytes, old, new)
    }
}
