//! Writes whose data goes to the drives straight from guests' memory.
//!
//! Parity must be of the very bytes that the drives get, and a guest may change its memory while
//! they get them. So a write is copied first; but not where a guest has promised to leave its
//! memory alone (`Stability::Stable`), where the write covers all data of its rows, so that nobody
//! else's blocks hang on their parity, and where nothing is lost, slow or in doubt. Then the ticket
//! *borrows*: its buffers are taken and hold parity only, and data is read where the guest has it,
//! once for the parity and once by the drives.
//!
//! That goes well or it ends: whatever fails or is given up, the ticket makes the copy after all
//! (`own_payload`) and goes on with that, as any other. It is not answered as long as a drive of a
//! member that is in use reads the guest's memory. So nothing outlives the answer but what the
//! drive of a member that is out may still read; memory is not let go before that is over
//! (`Shared::is_borrowing`). What a process leaves that is killed meanwhile is in
//! docs/design/012-borrowed-writes.md.

use block::{Operation, Stability, Status};
use memory::{Segment, SegmentList};
use units::Role;
use units::limits::ARRAY_LOST_WORDS_MAX;

use super::super::hold::Parked;
use super::super::{DriveIo, IoOwner, Shard, cell_lanes};
use super::transfer::Phase;
use super::{Kind, Payload};
use crate::buffers::Side;
use crate::io::Io;
use crate::losses::LOST_WORD_BLOCKS;
use crate::plan::Method;
use crate::planted::{self, Fault};

/// Guests' memory is given to drives in multiples of this; what is not is copied.
const SECTOR: usize = 512;

/// Whether drives take this memory as it is.
pub(in crate::shard) fn is_aligned(segments: &SegmentList) -> bool {
    let odd = |segment: &Segment| segment.address().addr() | segment.len();
    let odd = segments
        .as_slice()
        .iter()
        .fold(0, |all, one| all | odd(one));
    odd.is_multiple_of(SECTOR)
}

impl Shard {
    /// Whether a ticket that is planned writes its data from where the guest has it.
    #[inline]
    pub(in crate::shard) fn borrows(&mut self, slot: u32) -> bool {
        let order = &self.tickets[slot].order;
        let stable = order.stability == Stability::Stable;
        let promised = stable || planted::is(Fault::BorrowedUnpromised);
        if !promised || !self.may_borrow(slot) {
            return false;
        }
        self.tickets[slot].borrows = true;
        self.borrowers += 1;
        true
    }

    /// A ticket does not borrow any more.
    #[inline]
    pub(in crate::shard) fn gives_back(&mut self, slot: u32) -> bool {
        let borrowed = std::mem::take(&mut self.tickets[slot].borrows);
        self.borrowers -= usize::from(borrowed);
        borrowed
    }

    fn may_borrow(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let [band] = ticket.bands() else {
            return false;
        };
        let guests = ticket.order.kind == Kind::Write(Payload::Guest);
        let whole = ticket.order.part.is_whole() && ticket.asked.is_none();
        let fresh = !ticket.answered && !ticket.keeps && !ticket.logged;
        let all = self
            .geometry()
            .data_roles()
            .union(self.geometry().parity_roles());
        // Mirrors count here, too: each copy is data.
        let full = band.method == Some(Method::Full) && band.read.is_empty() && band.write == all;
        let sound = self.optimal && self.is_well() && !self.losses.any;
        let few = self.borrowers < self.borrowers_max();
        guests
            && whole
            && fresh
            && full
            && sound
            && few
            && ticket.is_alone()
            && is_aligned(&ticket.order.segments)
            && !self.must_log(slot)
    }

    /// So many tickets borrow at a time, at the most: should the engine be killed, and as many
    /// members be lost as there is parity, the list of lost blocks has room for what they wrote.
    /// Of copies one is left.
    pub(in crate::shard) fn borrowers_max(&self) -> usize {
        if self.geometry().data() == 1 {
            return usize::MAX;
        }
        let lanes = cell_lanes(self.geometry());
        let words = usize::try_from(lanes.div_ceil(LOST_WORD_BLOCKS)).expect("few");
        let shards = self.shared.log.1;
        ARRAY_LOST_WORDS_MAX / shards / (words * self.geometry().parity()).max(1)
    }

    /// Issues the member writes of a ticket that borrows. How many.
    pub(super) fn issue_borrowed(&mut self, slot: u32, phase: &Phase, io: &mut impl Io) -> usize {
        let band = &self.tickets[slot].bands()[0];
        let (roles, lanes) = (band.write, band.asked.lanes.clone());
        let data_roles = self.geometry().data_roles();
        let length = self.part_bytes(slot, &lanes).1;
        let run = phase.run(&lanes);
        for role in roles {
            let source = phase.source(role).expect("bytes move");
            let order = phase.order(&self.map.members, role, &run);
            if data_roles.has(source) {
                let segments = self.tickets[slot].order.segments;
                let offset = self.payload_offset(slot, source, &lanes);
                let io_slot = self.issue(order, |list| segments.cut(offset, length, list), io);
                self.ios[io_slot].borrows = true;
            } else {
                let memory = self.part(slot, Side::New, source, &lanes);
                self.issue(order, |list| list.push(memory), io);
            }
        }
        self.counters.borrowed_writes += 1;
        roles.len()
    }

    /// A ticket that borrows goes on from a copy of what its guest has.
    #[cold]
    pub(in crate::shard) fn own_payload(&mut self, slot: u32) {
        if !self.gives_back(slot) {
            return;
        }
        let answered = self.tickets[slot].answered;
        assert!(!answered, "its memory is the guest's again");
        self.fill_from(slot, slot);
        self.keep_begun(slot);
    }

    /// Whether a member request is a write of a ticket that borrows, or did when it was made.
    pub(in crate::shard) fn is_of_borrower(&self, done: &DriveIo) -> bool {
        let borrows = |ticket: u32| self.tickets[ticket].borrows;
        done.borrows || matches!(done.owner, IoOwner::Ticket { ticket, .. } if borrows(ticket))
    }

    /// Such a write failed. The ticket goes on from a copy, as any other would: the guest's memory
    /// may be what was wrong with it, and may be the guest's again before the end.
    pub(in crate::shard) fn borrowers_write_failed(
        &mut self,
        slot: u32,
        done: DriveIo,
        status: Status,
        io: &mut impl Io,
    ) {
        let IoOwner::Ticket { ticket, role } = done.owner else {
            unreachable!("only tickets write from guests' memory");
        };
        self.own_payload(ticket);
        let segments = if done.borrows && !planted::is(Fault::BorrowedMadeAgain) {
            vec![self.owned_memory(ticket, role)]
        } else {
            self.lists.list(crate::slots::at(slot)).to_vec()
        };
        let borrows = false;
        let parked = Parked {
            done: DriveIo { borrows, ..done },
            status,
            segments,
        };
        // Neither says anything of the memory. Whatever else it is may be no fault of the drive.
        let is_drives = matches!(status, Status::Gone | Status::NoSpace);
        let settled = self.map.settled(done.member, done.incarnation);
        if done.borrows && !is_drives && !settled {
            self.make_again(parked);
        } else if self.doubts(&parked.done, status) {
            self.doubt(parked);
        } else {
            self.park_or_deliver(parked, io);
        }
    }

    /// Where a ticket has its copy of what a role is to hold.
    fn owned_memory(&self, ticket: u32, role: Role) -> Segment {
        let lanes = &self.tickets[ticket].bands()[0].asked.lanes;
        let phase = self.phase(ticket, Operation::Write);
        let source = phase.source(role).expect("bytes move");
        self.part(ticket, Side::New, source, lanes)
    }

    /// Whether drives still read a guest's memory for a ticket: it cannot be answered before. A
    /// read into such memory is waited for, too.
    pub(in crate::shard) fn lends_memory(&self, slot: u32) -> bool {
        let is_its = |io: u32| {
            let under_way = &self.ios[io];
            let owner = under_way.owner;
            under_way.borrows && matches!(owner, IoOwner::Ticket { ticket, .. } if ticket == slot)
        };
        let lends = self.ios.used().into_iter().any(is_its);
        lends && !planted::is(Fault::BorrowedAnsweredEarly)
    }

    /// Nobody waits any more for a write that its drive may still read from a guest's memory.
    pub(in crate::shard) fn note_borrower(&self, done: &DriveIo, begins: bool) {
        if done.borrows && !planted::is(Fault::BorrowersForgotten) {
            self.shared.note_borrower(begins);
        }
    }

    /// Whether drives may still read guests' memory for writes that were given up, on any shard.
    #[must_use]
    pub fn is_borrowing(&self) -> bool {
        self.shared.is_borrowing()
    }
}
