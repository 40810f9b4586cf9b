//! Blocks that a drive refuses to write, on a member that the array cannot do without.
//!
//! A member that fails a write is left out, if enough others are in sync. Else one bad block would
//! stop the array, and all writes with it, although nothing is wrong but that block. So just the
//! write fails: what the drive goes on holding there becomes what its row says.
//!
//! ```text
//! the drive is there, and refuses for a second (`shard/doubt`) → all else of the ticket is written
//! → what the drive holds is read → parity of that row is changed to it, and written → the log is
//! told what the row holds now → the ticket fails
//! ```
//! Parity that is refused cannot be changed to anything. Where the old content of all that was
//! written is known, it is written back. Where it is not, but all that only this parity tells was
//! to be written anyway, that is given up (`shard/losses`). So is what hangs on a block that cannot
//! be read either: one day it may be, and nobody knows what it says then. Else the member is waited
//! for, and so it is when several members refuse.
//!
//! The ticket keeps its lanes and its buffers until all is written, over changes of the map, and
//! when the hold is given up: the row is torn meanwhile. What was logged stays in the log until
//! then. A replay writes it again: a drive that takes it then has what was asked, and of one that
//! does not the start makes parity agree (`log/refused.rs`).

mod clears;
mod mend;
mod page;

use block::{Operation, Status};
use memory::Segment;
use units::limits::ARRAY_LOST_WORDS_MAX;
use units::{Role, RoleSet, bytes_usize};

pub(in crate::shard) use self::page::Page;
use super::super::hold::Parked;
use super::super::{DriveIo, IoOwner, Shard};
use super::{Kind, PlannedBand};
use crate::io::{Event, Io};
use crate::map::{MapState, Pass};
use crate::planted::{self, Fault};

#[derive(Debug)]
struct Refused {
    parked: Parked,
    role: Role,
    lane: u32,
    /// What is to be done, as far as it was known when it was refused; and what is.
    way: Way,
    judged: Way,
    /// Where what it holds is read, if there is memory.
    page: Option<Page>,
    holds: Holds,
}

/// Whether it is known what a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Unknown,
    /// It is asked, or was and is out: it may still write to the memory.
    Asked,
    Read,
}

impl Refused {
    /// Whether there is memory to read to. What a drive may still write to stays until the end.
    fn has_memory(&mut self, bytes: usize, buried: &mut Vec<Page>) -> bool {
        if self.holds == Holds::Asked {
            buried.extend(self.page.take());
            self.holds = Holds::Unknown;
        }
        if self.page.is_none() {
            self.page = Page::new(bytes);
        }
        self.page.is_some()
    }

    fn memory(&self, bytes: usize) -> Option<Segment> {
        self.page.as_ref().map(|page| page.whole().part(0, bytes))
    }

    /// What the block holds, if it can be read.
    fn held(&self, bytes: usize) -> Option<Segment> {
        self.memory(bytes).filter(|_| self.holds == Holds::Read)
    }
}

/// In this order. Nothing is changed before `Writing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Other writes of the ticket are under way.
    Met,
    /// What was to be written is logged, if that has become necessary since it was begun.
    Logging,
    /// What this one of the blocks holds is read.
    Asking(usize),
    /// What can only be had by refused parity is being given up.
    Listing,
    /// What goes with it is written.
    Writing,
    /// What the row holds now is logged.
    Telling,
}

/// See the module.
#[derive(Debug)]
pub(in crate::shard) struct Refusals {
    blocks: Vec<Refused>,
    phase: Phase,
    /// By band: what it writes, the blocks that are refused included.
    writes: [RoleSet; 3],
    block_bytes: usize,
    /// Serial of the map by which it began to write: until it ends its row is torn.
    begun: u64,
    /// What the log has of the ticket is what the row is to hold in the end.
    is_told: bool,
}

impl Refusals {
    fn new(block_bytes: u64) -> Box<Refusals> {
        Box::new(Refusals {
            blocks: Vec::new(),
            phase: Phase::Met,
            writes: [RoleSet::EMPTY; 3],
            block_bytes: bytes_usize(block_bytes),
            begun: u64::MAX,
            is_told: false,
        })
    }

    /// Whether other writes of the ticket are under way still.
    pub(in crate::shard) fn is_met(&self) -> bool {
        self.phase == Phase::Met
    }

    pub(in crate::shard) fn begun(&self) -> u64 {
        self.begun
    }

    fn roles(&self) -> RoleSet {
        let blocks = self.blocks.iter();
        blocks.fold(RoleSet::EMPTY, |all, block| all.with(block.role))
    }
}

/// What is to be done about a block that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Parity is changed to what the block holds.
    Follow,
    /// What was written is written back as it was.
    Undo,
    /// What can only be had by this block is given up.
    GiveUp,
    /// Nothing else was written: the row is as it was.
    Nothing,
}

impl Shard {
    // ---- what a refusal is -----------------------------------------------------------------

    /// Whether a write that its drive refuses fails for good, if the drive is there.
    pub(in crate::shard) fn may_be_refused(&self, done: &DriveIo) -> bool {
        let changes = done.operation.is_some_and(Operation::changes);
        let member = &self.map.members[done.member.at()];
        let same = member.incarnation == done.incarnation && member.state == MapState::InSync;
        if !changes || !same || self.map.read_only {
            return false;
        }
        let mends = |ticket: u32| self.tickets[ticket].order.kind == Kind::Repair(Pass::Rebuild);
        if let IoOwner::Ticket { ticket, .. } = done.owner
            && mends(ticket)
        {
            // What was bad before. Its group lacks a member already, and would lack another.
            return true;
        }
        if !self.map.needs(done.member) {
            return false;
        }
        let (slot, role) = match done.owner {
            IoOwner::Ticket { ticket, role } => (ticket, role),
            // Without parity nothing else hangs on it.
            IoOwner::Direct { .. } => return self.geometry().parity() == 0,
            // Only that region cannot be written.
            IoOwner::Zeroing => return true,
            // Only those that need this block.
            IoOwner::Region => return !planted::is(Fault::RegionCopyForgotten),
            // Another slot does as well.
            IoOwner::Log { ticket } => {
                let place = self.tickets[ticket].log_slot;
                return place.is_some_and(|place| self.log.can_bar(place));
            }
            IoOwner::Nobody
            | IoOwner::Bounced { .. }
            | IoOwner::GivenUp { .. }
            | IoOwner::Flush { .. }
            | IoOwner::LogFlush
            | IoOwner::Metadata
            | IoOwner::Clear
            | IoOwner::Abandoned { .. }
            | IoOwner::Probe
            | IoOwner::Trial
            | IoOwner::RollCall { .. }
            | IoOwner::Doubt => return false,
        };
        let ticket = &self.tickets[slot];
        match ticket.order.kind {
            // The row says what was to be written in any case.
            Kind::Read { .. } | Kind::Repair(Pass::Scrub) => true,
            // Zeroes without buffers get some (`clears`).
            Kind::Write(_) | Kind::Clear => {
                let first = ticket.refusals.as_ref().is_none_or(|it| it.is_met());
                let writes = |band: &&PlannedBand| band.write.has(role);
                let mut bands = ticket.bands().iter().filter(writes);
                first && bands.all(|band| self.way(slot, band, role).is_some())
            }
            Kind::Repair(Pass::Rebuild | Pass::Resync) | Kind::Forfeit(_) => false,
        }
    }

    fn way(&self, slot: u32, band: &PlannedBand, role: Role) -> Option<Way> {
        let data = self.geometry().data_roles();
        if data.has(role) || data.len() == 1 {
            return Some(Way::Follow);
        }
        if band.write == RoleSet::one(role) {
            return Some(Way::Nothing);
        }
        let lost = self.stripe_state(slot).lost;
        let written = band.asked.written;
        if !written.meets(lost) && band.old.covers(written) {
            return Some(Way::Undo);
        }
        let is_new = written.covers(lost.both(data));
        let is_whole = self.tickets[slot].order.part.is_whole();
        (is_new && is_whole && self.is_told_by_parity(slot)).then_some(Way::GiveUp)
    }

    /// Whether what is lost of the stripe is told by all parity that is left, and could be listed.
    fn is_told_by_parity(&self, slot: u32) -> bool {
        let lost = self.stripe_state(slot).lost;
        let room = self.map.lost_blocks.words().len() < ARRAY_LOST_WORDS_MAX;
        lost.len() == self.geometry().parity() && room
    }

    /// A drive that is there has refused a write for long.
    pub(in crate::shard) fn take_refusal(&mut self, parked: Parked, io: &mut impl Io) {
        let done = parked.done;
        let IoOwner::Ticket { ticket: slot, role } = done.owner else {
            if matches!(done.owner, IoOwner::Zeroing) {
                return self.zeroes_refused(done);
            }
            if matches!(done.owner, IoOwner::Region) {
                return self.region_refused(done);
            }
            if let IoOwner::Log { ticket } = done.owner {
                return self.piece_refused(ticket, (done.member, done.incarnation), io);
            }
            if let IoOwner::Direct { request, first, .. } = done.owner {
                let blocks = done.length / self.geometry().block_size().bytes();
                io.event(Event::WriteRefused {
                    member: done.member,
                    first: self.requests[request].start() + u64::from(first),
                    rows: u32::try_from(blocks).expect("of one request"),
                });
            }
            self.deliver(done, Status::Media, io);
            return;
        };
        let kind = self.tickets[slot].order.kind;
        if matches!(kind, Kind::Read { .. } | Kind::Repair(_)) {
            self.deliver(done, Status::Ok, io);
            return;
        }
        if done.operation == Some(Operation::WriteZeroes) {
            self.take_zeroes_apart(parked, slot, role, io);
            return;
        }
        let block_bytes = self.geometry().block_size().bytes();
        if done.length > block_bytes {
            self.take_apart(&parked, slot);
            return;
        }
        let lane = self.first_lane(slot, &done);
        let bands = self.tickets[slot].bands().iter();
        let mut bands = bands.filter(|band| band.asked.lanes.contains(&lane));
        let way = bands.find_map(|band| self.way(slot, band, role));
        let Some(way) = way else {
            // It waits as for any other member.
            self.park(parked);
            return;
        };
        let refusals = &mut self.tickets[slot].refusals;
        let refusals = refusals.get_or_insert_with(|| Refusals::new(block_bytes));
        refusals.blocks.push(Refused {
            parked,
            role,
            lane,
            way,
            judged: way,
            page: None,
            holds: Holds::Unknown,
        });
        self.deliver(done, Status::Ok, io);
    }

    /// The lane of a ticket's cell where a member request of it begins.
    fn first_lane(&self, slot: u32, done: &DriveIo) -> u32 {
        let chunk = self
            .geometry()
            .member_block(self.tickets[slot].order.stripe);
        let data_offset = self.map.members[done.member.at()].data_offset;
        let block = (done.offset - data_offset) / self.geometry().block_size().bytes();
        u32::try_from(block - chunk).expect("below the chunk")
    }

    /// Asks for each block of a request by itself: it may be one that is refused.
    fn take_apart(&mut self, parked: &Parked, slot: u32) {
        let bytes = self.geometry().block_size().bytes();
        let whole = parked.segments.clone();
        let mut blocks = 0;
        for at in (0..parked.done.length).step_by(bytes_usize(bytes)) {
            let mut segments = Vec::new();
            let mut skip = bytes_usize(at);
            let mut left = bytes_usize(bytes);
            for segment in &whole {
                let from = skip.min(segment.len());
                let length = left.min(segment.len() - from);
                skip -= from;
                left -= length;
                if length > 0 {
                    segments.push(segment.part(from, length));
                }
            }
            let done = DriveIo {
                offset: parked.done.offset + at,
                length: bytes,
                ..parked.done
            };
            let status = parked.status;
            self.make_again(Parked {
                done,
                status,
                segments,
            });
            blocks += 1;
        }
        self.tickets[slot].pending += blocks - 1;
    }
}
