//! Blocks that a drive refuses to write, on a member that the array cannot do without.
//!
//! A member that fails a write is left out, if enough others are in sync. Else one bad block would
//! stop the array, and all writes with it, although nothing is wrong but that block. So just the
//! write fails: what the drive goes on holding there becomes what its row says.
//!
//! ```text
//! the drive is there, and refuses for a second (`shard/doubt`) → all else of the ticket is written
//! → what the drive holds is read → parity of that row is changed to it → logged and written → the
//! ticket fails
//! ```
//! Parity that is refused cannot be changed to anything. Where the old content of all that was
//! written is known, it is written back. Where it is not, but all that only this parity tells was
//! to be written anyway, that is given up (`shard/losses`). Else the member is waited for, and so
//! it is when several members refuse, or zeroes are refused that no buffer holds.
//!
//! The ticket keeps its lanes and its buffers until all is written, over changes of the map, and
//! when the hold is given up: the row is torn meanwhile. What was logged stays in the log until
//! then. A replay writes it again: a drive that takes it then has what was asked, and of one that
//! does not the start makes parity agree (`log/refused.rs`).

mod page;

use block::{Operation, Status};
use memory::Segment;
use units::limits::ARRAY_LOST_WORDS_MAX;
use units::{Role, RoleSet, bytes_u64, bytes_usize};

pub(in crate::shard) use self::page::Page;
use super::super::hold::{OfRefused, Parked};
use super::super::losses::first_of;
use super::super::{DriveIo, IoOwner, Order, Shard};
use super::{Kind, PlannedBand, Step};
use crate::buffers::Side;
use crate::io::{Event, Io};
use crate::losses::Rows;
use crate::map::{MapState, Pass};
use crate::planted::{self, Fault};

#[derive(Debug)]
struct Refused {
    parked: Parked,
    role: Role,
    lane: u32,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Other writes of the ticket are under way.
    Met,
    /// What can only be had by refused parity is being given up.
    Listing,
    /// What this one of the blocks holds is read.
    Asking(usize),
    /// What goes with it is written.
    Writing,
}

/// See the module.
#[derive(Debug)]
pub(in crate::shard) struct Refusals {
    blocks: Vec<Refused>,
    phase: Phase,
    /// By band: what it writes, the blocks that are refused included.
    writes: [RoleSet; 3],
    block_bytes: usize,
    /// Where what it holds is read, and whether a drive may still write there.
    memory: Page,
    is_lent: bool,
}

impl Refusals {
    fn new(block_bytes: u64) -> Option<Box<Refusals>> {
        let block_bytes = bytes_usize(block_bytes);
        Some(Box::new(Refusals {
            blocks: Vec::new(),
            phase: Phase::Met,
            writes: [RoleSet::EMPTY; 3],
            block_bytes,
            memory: Page::new(block_bytes)?,
            is_lent: false,
        }))
    }

    /// Whether other writes of the ticket are under way still.
    pub(in crate::shard) fn is_met(&self) -> bool {
        self.phase == Phase::Met
    }

    fn memory(&self) -> Segment {
        self.memory.whole().part(0, self.block_bytes)
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
    /// What can only be had by this parity is given up.
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
        if !changes || !same || self.map.read_only || !self.is_needed(done.member.at()) {
            return false;
        }
        let (slot, role) = match done.owner {
            IoOwner::Ticket { ticket, role } => (ticket, role),
            // Without parity nothing else hangs on it.
            IoOwner::Direct { .. } => return self.geometry().parity() == 0,
            IoOwner::Nobody
            | IoOwner::Bounced { .. }
            | IoOwner::GivenUp { .. }
            | IoOwner::Flush { .. }
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
            | IoOwner::Doubt => return false,
        };
        let ticket = &self.tickets[slot];
        match ticket.order.kind {
            // The row says what was to be written in any case.
            Kind::Read { .. } | Kind::Repair(Pass::Scrub) => true,
            Kind::Write(_) if self.hold.refused == OfRefused::FailAlone => {
                let first = ticket.refusals.as_ref().is_none_or(|it| it.is_met());
                let writes = |band: &&PlannedBand| band.write.has(role);
                let mut bands = ticket.bands().iter().filter(writes);
                first && bands.all(|band| self.way(slot, band, role).is_some())
            }
            Kind::Write(_)
            | Kind::Clear
            | Kind::Repair(Pass::Rebuild | Pass::Resync)
            | Kind::Forfeit(_) => false,
        }
    }

    /// Whether the array could not leave this member out as well.
    fn is_needed(&self, member: usize) -> bool {
        let group = self.geometry().group_members();
        let first = member / group * group;
        let left = (first..first + group).filter(|&other| {
            let in_sync = self.map.members[other].state == MapState::InSync;
            other != member && in_sync && !self.map.held[other]
        });
        left.count() < self.geometry().data()
    }

    fn way(&self, slot: u32, band: &PlannedBand, role: Role) -> Option<Way> {
        let (data, parity) = (self.geometry().data_roles(), self.geometry().parity_roles());
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
        let is_told_by_it = lost.len() == parity.len();
        let is_new = written.covers(lost.both(data));
        let is_whole = self.tickets[slot].order.part.is_whole();
        let room = self.map.lost_blocks.words().len() < ARRAY_LOST_WORDS_MAX;
        (is_told_by_it && is_new && is_whole && room).then_some(Way::GiveUp)
    }

    /// A drive that is there has refused a write for long.
    pub(in crate::shard) fn take_refusal(&mut self, parked: Parked, io: &mut impl Io) {
        let done = parked.done;
        let IoOwner::Ticket { ticket: slot, role } = done.owner else {
            if let IoOwner::Direct { request, first, .. } = done.owner {
                let first = self.requests[request].start() + u64::from(first);
                let member = done.member;
                io.event(Event::WriteRefused { member, first });
            }
            self.deliver(done, Status::Media, io);
            return;
        };
        let kind = self.tickets[slot].order.kind;
        if matches!(kind, Kind::Read { .. } | Kind::Repair(_)) {
            self.deliver(done, Status::Ok, io);
            return;
        }
        let block_bytes = self.geometry().block_size().bytes();
        if done.length > block_bytes {
            self.take_apart(&parked, slot);
            return;
        }
        if self.tickets[slot].refusals.is_none() {
            self.tickets[slot].refusals = Refusals::new(block_bytes);
        }
        let chunk = self
            .geometry()
            .member_block(self.tickets[slot].order.stripe);
        let data_offset = self.map.members[done.member.at()].data_offset;
        let lane = (done.offset - data_offset) / block_bytes - chunk;
        let lane = u32::try_from(lane).expect("below the chunk");
        let bands = self.tickets[slot].bands().iter();
        let mut bands = bands.filter(|band| band.asked.lanes.contains(&lane));
        let way = bands.find_map(|band| self.way(slot, band, role));
        let refusals = self.tickets[slot].refusals.as_mut();
        let (Some(refusals), Some(way)) = (refusals, way) else {
            // Without memory it waits as for any other member.
            self.park(parked);
            return;
        };
        refusals.blocks.push(Refused {
            parked,
            role,
            lane,
            way,
        });
        self.deliver(done, Status::Ok, io);
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

    // ---- what is done about it -------------------------------------------------------------

    /// All else is written.
    #[cold]
    pub(super) fn follow_refusals(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        // From here on nothing of it is the guest's any more.
        ticket.keeps = true;
        let refusals = ticket.refusals.as_ref().expect("looked at");
        let one = refusals.roles().len() == 1;
        if !one || !ticket.failures.is_empty() || self.map.read_only {
            self.await_refused(slot, io);
            return;
        }
        let writes = std::array::from_fn(|band| {
            let band = self.tickets[slot].bands().get(band);
            band.map_or(RoleSet::EMPTY, |band| band.write)
        });
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("looked at");
        refusals.writes = writes;
        refusals.phase = Phase::Listing;
        self.go_on_refused(slot, io);
    }

    /// Its member is waited for, as for any that fails.
    fn await_refused(&mut self, slot: u32, io: &mut impl Io) {
        let refusals = self.tickets[slot].refusals.take();
        let mut refusals = refusals.expect("some are there");
        let blocks = std::mem::take(&mut refusals.blocks);
        let ticket = &mut self.tickets[slot];
        ticket.step = Step::Writing;
        ticket.pending = u32::try_from(blocks.len()).expect("few");
        for block in blocks {
            self.park_or_deliver(block.parked, io);
        }
    }

    /// What is to be given up that is not yet.
    pub(in crate::shard) fn refused_rows(&self, slot: u32) -> Option<Rows> {
        let ticket = &self.tickets[slot];
        let refusals = ticket.refusals.as_ref()?;
        let lists = refusals.phase == Phase::Listing;
        let is_given_up = |block: &&Refused| lists && block.way == Way::GiveUp;
        let rows = |block: &Refused| Rows {
            stripe: ticket.order.stripe,
            start: block.lane,
            end: block.lane + 1,
            roles: self.stripe_state(slot).lost,
        };
        let data = self.geometry().data_roles();
        let rows = refusals.blocks.iter().filter(is_given_up).map(rows);
        let mut rows = rows.map(|rows| Rows {
            roles: rows.roles.both(data),
            ..rows
        });
        rows.find(|rows| !self.is_listed(*rows))
    }

    /// The home has answered what the ticket gives up.
    pub(in crate::shard) fn refused_is_listed(&mut self, slot: u32, ok: bool, io: &mut impl Io) {
        if ok {
            self.go_on_refused(slot, io);
        } else {
            self.await_refused(slot, io);
        }
    }

    /// The ticket goes on where it is, by the map of now. Nothing of it is planned anew: what its
    /// row holds is in its buffers only.
    pub(super) fn go_on_refused(&mut self, slot: u32, io: &mut impl Io) {
        let lost = self.stripe_state(slot).lost;
        let enough = !lost.exceeds(self.geometry().parity());
        if self.map.read_only || self.is_region_lost(slot) || !enough {
            self.shared.tear();
            self.answer_ticket(slot, Status::Media, io);
            self.end_ticket(slot);
            return;
        }
        let (serial, barrier) = (self.map.serial, self.map.barrier);
        let ticket = &mut self.tickets[slot];
        ticket.computed = true;
        (ticket.serial, ticket.barrier) = (serial, barrier);
        let refusals = ticket.refusals.as_mut().expect("some are there");
        let bands = ticket.bands[..ticket.band_count].iter_mut();
        for (band, writes) in bands.zip(&mut refusals.writes) {
            *writes = writes.without(lost);
            band.write = *writes;
        }
        let phase = refusals.phase;
        match phase {
            Phase::Met => unreachable!("its writes are over"),
            Phase::Listing if self.refused_rows(slot).is_some() => self.await_list(slot),
            Phase::Listing => {
                // From here on its buffers are neither what was begun nor what is there.
                self.shared.tear();
                self.forget_begun(slot);
                self.ask_next(slot, 0, io);
            }
            Phase::Asking(at) => self.ask_next(slot, at, io),
            Phase::Writing => self.write_refused(slot, io),
        }
    }

    /// Goes on with this one of the blocks.
    fn ask_next(&mut self, slot: u32, mut at: usize, io: &mut impl Io) {
        let lost = self.stripe_state(slot).lost;
        loop {
            let refusals = self.tickets[slot].refusals.as_ref().expect("some");
            let Some(block) = refusals.blocks.get(at) else {
                break;
            };
            let (role, lane, way) = (block.role, block.lane, block.way);
            if way != Way::Follow || lost.has(role) {
                at += 1;
                if way == Way::Undo && !lost.has(role) {
                    self.undo_row(slot, lane);
                }
                continue;
            }
            if !self.has_memory(slot) {
                at += 1;
                continue;
            }
            let ticket = &mut self.tickets[slot];
            ticket.refusals.as_mut().expect("some").phase = Phase::Asking(at);
            ticket.forget_errors();
            ticket.gone = RoleSet::EMPTY;
            ticket.step = Step::AskRoom;
            self.seek_room(slot, io);
            return;
        }
        let refusals = self.tickets[slot].refusals.as_mut();
        refusals.expect("some").phase = Phase::Writing;
        self.write_refused(slot, io);
    }

    /// Whether there is memory to read to. What a drive may still write to stays until the end.
    fn has_memory(&mut self, slot: u32) -> bool {
        let refusals = self.tickets[slot].refusals.as_mut().expect("some");
        if refusals.is_lent {
            let Some(page) = Page::new(refusals.block_bytes) else {
                return false;
            };
            refusals.is_lent = false;
            let lent = std::mem::replace(&mut refusals.memory, page);
            self.hold.buried.push(lent);
        }
        true
    }

    /// Reads what the block holds; whether there was room.
    pub(super) fn ask_refused(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if !self.can_issue(1, io) {
            return false;
        }
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_ref().expect("some are there");
        let Phase::Asking(at) = refusals.phase else {
            unreachable!("it asks");
        };
        let (block, memory) = (&refusals.blocks[at], refusals.memory());
        let order = Order {
            owner: IoOwner::Ticket {
                ticket: slot,
                role: block.role,
            },
            member: block.parked.done.member,
            operation: Operation::Read,
            offset: block.parked.done.offset,
            length: bytes_u64(memory.len()),
        };
        ticket.step = Step::Asking;
        ticket.errors = RoleSet::EMPTY;
        ticket.pending = 1;
        ticket.refusals.as_mut().expect("some").is_lent = true;
        self.issue(order, |list| list.push(memory), io);
        true
    }

    /// It is read, or cannot be: then the row says what was to be written, and nobody else does.
    pub(super) fn refused_is_read(&mut self, slot: u32, io: &mut impl Io) {
        let refusals = self.tickets[slot].refusals.as_mut().expect("some");
        let Phase::Asking(at) = refusals.phase else {
            unreachable!("it asks");
        };
        let asked = refusals.blocks[at].parked.done;
        // Of one that is out it was given up, and may come yet.
        refusals.is_lent = self.map.is_out(asked.member, asked.incarnation);
        if !self.tickets[slot].gone.is_empty() {
            if self.is_decided_since(slot) {
                self.wake_ticket(slot);
            } else {
                self.hold.push_ticket(slot);
            }
            return;
        }
        let ticket = &mut self.tickets[slot];
        let is_read = std::mem::take(&mut ticket.errors).is_empty();
        let refusals = ticket.refusals.as_ref().expect("some are there");
        let (block, memory) = (&refusals.blocks[at], refusals.memory());
        let (role, lane) = (block.role, block.lane);
        if is_read && !refusals.is_lent && !planted::is(Fault::RefusalNotFollowed) {
            self.change_row(slot, lane, role, memory);
        }
        self.ask_next(slot, at + 1, io);
    }

    /// A chunk of a row holds something else than was computed: parity goes with it.
    fn change_row(&mut self, slot: u32, lane: u32, role: Role, content: Segment) {
        let lanes = lane..lane + 1;
        let data = self.geometry().data_roles();
        if data.len() == 1 {
            self.part(slot, Side::New, Role(0), &lanes)
                .copy_from(content);
            return;
        }
        let now = self.part(slot, Side::New, role, &lanes);
        let bands = self.tickets[slot].bands().iter();
        let mut bands = bands.filter(|band| band.asked.lanes.contains(&lane));
        let band = bands.next().expect("it wrote the block");
        for parity in band.write.both(self.geometry().parity_roles()) {
            let target = self.part(slot, Side::New, parity, &lanes);
            let row = [(parity.at() - data.len(), target)];
            self.code.delta(role.at(), now, content, &row);
        }
        now.copy_from(content);
    }

    /// Everything in a row is as it was.
    fn undo_row(&mut self, slot: u32, lane: u32) {
        let lanes = lane..lane + 1;
        let bands = self.tickets[slot].bands().iter();
        let mut bands = bands.filter(|band| band.asked.lanes.contains(&lane));
        let written = bands.next().expect("it wrote the block").asked.written;
        for role in written {
            let old = self.part(slot, Side::Old, role, &lanes);
            if !planted::is(Fault::RefusalNotFollowed) {
                self.change_row(slot, lane, role, old);
            }
        }
    }

    /// Writes what goes with the blocks that are refused. What the log holds of the ticket is what
    /// was to be written, and protects this as well.
    fn write_refused(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_ref().expect("some");
        let roles = refusals.roles();
        if refusals.writes.iter().all(|writes| roles.covers(*writes)) {
            self.writes_done(slot, io);
        } else if ticket.log_slot.is_some() {
            ticket.step = Step::WriteRoom;
            self.seek_room(slot, io);
        } else {
            self.begin_writing(slot, io);
        }
    }

    /// Whether a ticket is planned anew and keeps what the log holds of it.
    pub(super) fn keeps_its_log(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let refuses = ticket.refusals.is_some();
        refuses
            && ticket
                .log_slot
                .is_some_and(|place| self.log.is_durable(place))
    }

    /// The ticket ends.
    pub(in crate::shard) fn forget_refusals(&mut self, slot: u32) {
        if let Some(refusals) = self.tickets[slot].refusals.take()
            && refusals.is_lent
        {
            self.hold.buried.push(refusals.memory);
        }
    }

    /// What is refused is not asked for again.
    #[cold]
    pub(super) fn leave_refused(&mut self, slot: u32) {
        let ticket = &mut self.tickets[slot];
        let Some(refusals) = &ticket.refusals else {
            return;
        };
        let roles = refusals.roles();
        for band in &mut ticket.bands[..ticket.band_count] {
            band.write = band.write.without(roles);
        }
    }

    /// The ticket fails: all that it has left agrees.
    #[cold]
    pub(super) fn conclude_refused(&mut self, slot: u32, io: &mut impl Io) {
        let (stripe, data) = (
            self.tickets[slot].order.stripe,
            self.geometry().data_roles(),
        );
        let refusals = self.tickets[slot].refusals.as_ref().expect("some");
        for block in &refusals.blocks {
            let member = block.parked.done.member;
            let roles = if data.has(block.role) {
                RoleSet::one(block.role)
            } else {
                data
            };
            let rows = Rows {
                stripe,
                start: block.lane,
                end: block.lane + 1,
                roles,
            };
            let first = first_of(rows, self.geometry());
            io.event(Event::WriteRefused { member, first });
        }
        self.answer_ticket(slot, Status::Media, io);
        self.end_ticket(slot);
    }
}
