//! How a row is mended of which a drive has refused a block: see the module above.

use block::{Operation, Status};
use memory::Segment;
use units::{Role, RoleSet, bytes_u64};

use super::super::super::losses::first_of;
use super::super::super::{IoOwner, Order, Shard};
use super::super::{PlannedBand, Step, Ticket};
use super::{Holds, Page, Phase, Refused, Way};
use crate::buffers::Side;
use crate::io::{Event, Io};
use crate::losses::Rows;
use crate::planted::{self, Fault};

impl Shard {
    /// Whether a row is being mended of which a drive has refused a block. For simulators.
    #[must_use]
    pub fn is_mending(&self) -> bool {
        let mends = |ticket: &Ticket| ticket.refusals.as_ref().is_some_and(|it| !it.is_met());
        let mut used = self.tickets.used().into_iter();
        used.any(|slot| mends(&self.tickets[slot]))
    }

    /// All else is written.
    #[cold]
    pub(in crate::shard::ticket) fn follow_refusals(&mut self, slot: u32, io: &mut impl Io) {
        let map = &self.map;
        let ticket = &mut self.tickets[slot];
        let failures = &mut ticket.failures;
        failures.retain(|&(member, incarnation)| !map.is_out(member, incarnation));
        let refusals = ticket.refusals.as_ref().expect("looked at");
        let one = refusals.roles().len() == 1;
        if !one || !ticket.failures.is_empty() || self.map.read_only {
            self.await_refused(slot, io);
            return;
        }
        // From here on nothing of it is the guest's any more.
        ticket.keeps = true;
        let writes = std::array::from_fn(|band| {
            let band = self.tickets[slot].bands().get(band);
            band.map_or(RoleSet::EMPTY, |band| band.write)
        });
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("looked at");
        refusals.writes = writes;
        refusals.begun = ticket.serial;
        refusals.phase = Phase::Logging;
        self.go_on_refused(slot, io);
    }

    /// Its member is waited for, as for any that fails. Nothing is changed yet.
    fn await_refused(&mut self, slot: u32, io: &mut impl Io) {
        let refusals = self.tickets[slot].refusals.take();
        let mut refusals = refusals.expect("some are there");
        let blocks = std::mem::take(&mut refusals.blocks);
        let ticket = &mut self.tickets[slot];
        ticket.step = Step::Writing;
        ticket.serial = ticket.serial.min(refusals.begun);
        ticket.pending = u32::try_from(blocks.len()).expect("few");
        // What it was to write after that is in the guest's memory only.
        ticket.keeps = ticket.kept.is_some();
        for mut block in blocks {
            self.bury_lent(&mut block);
            // What is in the way may be out of it a second later.
            block.parked.done.refused_since = io.now();
            self.park_or_deliver(block.parked, io);
        }
    }

    /// What is to be given up that is not yet.
    pub(in crate::shard) fn refused_rows(&self, slot: u32) -> Option<Rows> {
        let ticket = &self.tickets[slot];
        let refusals = ticket.refusals.as_ref()?;
        let lists = refusals.phase == Phase::Listing;
        let (lost, data) = (self.stripe_state(slot).lost, self.geometry().data_roles());
        let is_given_up =
            |block: &&Refused| lists && block.judged == Way::GiveUp && !lost.has(block.role);
        let rows = |block: &Refused| Rows {
            stripe: ticket.order.stripe,
            start: block.lane,
            end: block.lane + 1,
            roles: lost.with(block.role).both(data),
        };
        let mut rows = refusals.blocks.iter().filter(is_given_up).map(rows);
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
    pub(in crate::shard::ticket) fn go_on_refused(&mut self, slot: u32, io: &mut impl Io) {
        let lost = self.stripe_state(slot).lost;
        let enough = !lost.exceeds(self.geometry().parity());
        let torn = self.map.is_torn(self.tickets[slot].order.stripe);
        if self.map.read_only || torn || self.is_region_lost(slot) || !enough {
            self.shared.tear();
            self.tell_torn(slot);
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
            band.leave_out(lost);
        }
        let phase = refusals.phase;
        let is_unlogged = ticket.log_slot.is_none() && !ticket.write_roles().is_empty();
        match phase {
            Phase::Met => unreachable!("its writes are over"),
            // Also when a member has failed, or the mode become another one, since it asked.
            Phase::Logging | Phase::Asking(_) | Phase::Listing
                if is_unlogged && self.must_log(slot) =>
            {
                let refusals = self.tickets[slot].refusals.as_mut();
                refusals.expect("some are there").phase = Phase::Logging;
                self.log_refused(slot, io);
            }
            Phase::Logging => self.ask_next(slot, 0, io),
            Phase::Asking(at) => self.ask_next(slot, at, io),
            Phase::Listing if self.refused_rows(slot).is_some() => self.await_list(slot),
            Phase::Listing => self.change_rows(slot, io),
            Phase::Writing => self.write_refused(slot, io),
            Phase::Telling if is_unlogged => self.log_refused(slot, io),
            Phase::Telling => self.end_refused(slot, io),
        }
    }

    /// What is in the buffers goes to the log, whole.
    fn log_refused(&mut self, slot: u32, io: &mut impl Io) {
        self.tickets[slot].step = Step::LogRoom;
        self.seek_room(slot, io);
    }

    /// What was in the way of writing in place is done: whether that was all that the ticket was
    /// to do.
    #[cold]
    pub(in crate::shard::ticket) fn refused_is_logged(
        &mut self,
        slot: u32,
        io: &mut impl Io,
    ) -> bool {
        let refusals = self.tickets[slot].refusals.as_ref().expect("looked at");
        match refusals.phase {
            Phase::Logging | Phase::Telling => {
                self.go_on_refused(slot, io);
                true
            }
            Phase::Met | Phase::Listing | Phase::Asking(_) | Phase::Writing => false,
        }
    }

    /// Goes on with this one of the blocks.
    fn ask_next(&mut self, slot: u32, at: usize, io: &mut impl Io) {
        let lost = self.stripe_state(slot).lost;
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("some are there");
        let bytes = refusals.block_bytes;
        for (at, block) in refusals.blocks.iter_mut().enumerate().skip(at) {
            if lost.has(block.role) || !block.has_memory(bytes, &mut self.hold.buried) {
                continue;
            }
            refusals.phase = Phase::Asking(at);
            ticket.forget_errors();
            ticket.gone = RoleSet::EMPTY;
            ticket.step = Step::AskRoom;
            self.seek_room(slot, io);
            return;
        }
        if self.judge_refused(slot) {
            let refusals = self.tickets[slot].refusals.as_mut();
            refusals.expect("some are there").phase = Phase::Listing;
            self.go_on_refused(slot, io);
        } else {
            self.await_refused(slot, io);
        }
    }

    /// Reads what the block holds; whether there was room.
    pub(in crate::shard::ticket) fn ask_refused(&mut self, slot: u32, io: &mut impl Io) -> bool {
        if !self.can_serve(1, io) {
            return false;
        }
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("some are there");
        let Phase::Asking(at) = refusals.phase else {
            unreachable!("it asks");
        };
        let bytes = refusals.block_bytes;
        let block = &mut refusals.blocks[at];
        block.holds = Holds::Asked;
        let memory = block.memory(bytes).expect("looked at");
        let order = Order {
            owner: IoOwner::Ticket {
                ticket: slot,
                role: block.role,
            },
            member: block.parked.done.member,
            operation: Operation::Read,
            offset: block.parked.done.offset,
            length: bytes_u64(bytes),
        };
        ticket.step = Step::Asking;
        ticket.errors = RoleSet::EMPTY;
        ticket.pending = 1;
        self.issue(order, |list| list.push(memory), io);
        true
    }

    /// It is read, or cannot be.
    pub(in crate::shard::ticket) fn refused_is_read(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("some are there");
        let Phase::Asking(at) = refusals.phase else {
            unreachable!("it asks");
        };
        let block = &mut refusals.blocks[at];
        let asked = block.parked.done;
        let is_read = std::mem::take(&mut ticket.errors).is_empty() && ticket.gone.is_empty();
        // Of one that is out it was given up, and may come yet.
        let is_out = self.map.is_out(asked.member, asked.incarnation);
        if !is_out {
            block.holds = if is_read { Holds::Read } else { Holds::Unknown };
        }
        if self.is_decided_since(slot) {
            self.wake_ticket(slot);
        } else if self.awaits_decision(slot) {
            self.hold.push_ticket(slot);
        } else if self.tickets[slot].gone.is_empty() || is_out {
            self.ask_next(slot, at + 1, io);
        } else {
            // What a drive holds that is away is no reason to give anything up.
            self.await_refused(slot, io);
        }
    }

    /// What the ticket does about each block, now that it is known what they hold; whether it can.
    fn judge_refused(&mut self, slot: u32) -> bool {
        let count = self.tickets[slot]
            .refusals
            .as_ref()
            .map(|it| it.blocks.len());
        for at in 0..count.expect("some are there") {
            let Some(judged) = self.judge_refusal(slot, at) else {
                return false;
            };
            let refusals = self.tickets[slot].refusals.as_mut().expect("some");
            refusals.blocks[at].judged = judged;
        }
        true
    }

    fn judge_refusal(&self, slot: u32, at: usize) -> Option<Way> {
        let refusals = self.tickets[slot].refusals.as_ref()?;
        let block = &refusals.blocks[at];
        let (role, lane, way) = (block.role, block.lane, block.way);
        let (lost, data) = (self.stripe_state(slot).lost, self.geometry().data_roles());
        if lost.has(role) || data.len() == 1 {
            // Nothing else hangs on it.
            return Some(way);
        }
        // Without memory it is not known whether it can be read.
        block.memory(refusals.block_bytes)?;
        let give_up = || self.is_told_by_parity(slot).then_some(Way::GiveUp);
        let Some(held) = block.held(refusals.block_bytes) else {
            // Where more parity is left than is needed, the others go on telling what hangs on it.
            let hangs = !lost.both(data).is_empty() && lost.len() == self.geometry().parity();
            let hangs = hangs && !planted::is(Fault::UnreadableRefusalStays);
            return if hangs { give_up() } else { Some(way) };
        };
        let now = self.part(slot, Side::New, role, &(lane..lane + 1));
        if data.has(role) {
            Some(way)
        } else if held.equals(now) {
            // It has taken what it says that it refused.
            Some(Way::Nothing)
        } else if way == Way::Undo && !self.was_held(slot, lane, role, held)? {
            // Neither one nor the other: nobody can tell what it told.
            give_up()
        } else {
            Some(way)
        }
    }

    /// Whether a block of parity holds what its row said before it was written to, if there is
    /// memory to tell that.
    fn was_held(&self, slot: u32, lane: u32, parity: Role, held: Segment) -> Option<bool> {
        let page = Page::new(held.len())?;
        let lanes = lane..lane + 1;
        let before = page.whole().part(0, held.len());
        before.copy_from(self.part(slot, Side::New, parity, &lanes));
        let row = [(parity.at() - self.geometry().data(), before)];
        for role in self.band_at(slot, lane).asked.written {
            let (now, old) = (
                self.part(slot, Side::New, role, &lanes),
                self.part(slot, Side::Old, role, &lanes),
            );
            self.code.delta(role.at(), now, old, &row);
        }
        Some(before.equals(held))
    }

    fn band_at(&self, slot: u32, lane: u32) -> &PlannedBand {
        let mut bands = self.tickets[slot].bands().iter();
        let band = bands.find(|band| band.asked.lanes.contains(&lane));
        band.expect("it wrote the block")
    }

    /// All is known and listed: the buffers change to what the rows are to hold.
    fn change_rows(&mut self, slot: u32, io: &mut impl Io) {
        // From here on they are neither what was begun nor what is there.
        self.shared.tear();
        self.tickets[slot].forget_begun(slot, self.begun.as_ref());
        let lost = self.stripe_state(slot).lost;
        let refusals = self.tickets[slot].refusals.as_mut().expect("some");
        refusals.phase = Phase::Writing;
        let bytes = refusals.block_bytes;
        let blocks = refusals.blocks.iter().filter(|it| !lost.has(it.role));
        let changes = blocks.map(|it| (it.role, it.lane, it.judged, it.held(bytes)));
        for (role, lane, way, held) in changes.collect::<Vec<_>>() {
            match (way, held) {
                (Way::Follow, Some(held)) => self.change_row(slot, lane, role, held),
                (Way::Undo, _) => self.undo_row(slot, lane),
                (Way::GiveUp | Way::Nothing, Some(held)) => {
                    // That the log says so as well.
                    self.part(slot, Side::New, role, &(lane..lane + 1))
                        .copy_from(held);
                }
                (Way::Follow | Way::GiveUp | Way::Nothing, None) => {}
            }
        }
        self.write_refused(slot, io);
    }

    /// A chunk of a row holds something else than was computed: parity goes with it.
    fn change_row(&mut self, slot: u32, lane: u32, role: Role, content: Segment) {
        let lanes = lane..lane + 1;
        let data = self.geometry().data_roles();
        if planted::is(Fault::RefusalNotFollowed) {
            return;
        }
        if data.len() == 1 {
            self.part(slot, Side::New, Role(0), &lanes)
                .copy_from(content);
            return;
        }
        let now = self.part(slot, Side::New, role, &lanes);
        let writes = self.band_at(slot, lane).write;
        for parity in writes.both(self.geometry().parity_roles()) {
            let target = self.part(slot, Side::New, parity, &lanes);
            let row = [(parity.at() - data.len(), target)];
            self.code.delta(role.at(), now, content, &row);
        }
        now.copy_from(content);
    }

    /// Everything in a row is as it was.
    fn undo_row(&mut self, slot: u32, lane: u32) {
        let lanes = lane..lane + 1;
        for role in self.band_at(slot, lane).asked.written {
            let old = self.part(slot, Side::Old, role, &lanes);
            self.change_row(slot, lane, role, old);
        }
    }

    /// Writes what goes with the blocks that are refused. What the log holds of the ticket is what
    /// was to be written, and protects this as well.
    fn write_refused(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("some");
        let roles = refusals.roles();
        if refusals.writes.iter().all(|writes| roles.covers(*writes)) {
            self.wrote_nothing(slot, io);
        } else if ticket.log_slot.is_some() {
            ticket.step = Step::WriteRoom;
            self.seek_room(slot, io);
        } else {
            refusals.is_told = true;
            self.begin_writing(slot, io);
        }
    }

    /// Whether a ticket is planned anew and keeps what the log holds of it.
    pub(in crate::shard::ticket) fn keeps_its_log(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let refuses = ticket.refusals.is_some();
        refuses
            && ticket
                .log_slot
                .is_some_and(|place| self.log.is_durable(place))
    }

    /// Whether what the ticket writes is protected by what the log has of it, which is something
    /// else: the next engine must not write both.
    pub(in crate::shard) fn is_mended_beside_the_log(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let refusals = ticket.refusals.as_ref();
        let is_mended = refusals.is_some_and(|it| !it.is_met() && !it.is_told);
        let planted = planted::is(Fault::RefusalBegunBesideTheLog);
        ticket.log_slot.is_some() && is_mended && !planted
    }

    /// What a drive may still write to stays until the end.
    fn bury_lent(&mut self, block: &mut Refused) {
        if block.holds == Holds::Asked {
            self.hold.buried.extend(block.page.take());
        }
    }

    /// The ticket ends.
    pub(in crate::shard) fn forget_refusals(&mut self, slot: u32) {
        if let Some(refusals) = self.tickets[slot].refusals.take() {
            for mut block in refusals.blocks {
                self.bury_lent(&mut block);
            }
        }
    }

    /// What is refused is not asked for again.
    #[cold]
    pub(in crate::shard::ticket) fn leave_refused(&mut self, slot: u32) {
        let ticket = &mut self.tickets[slot];
        let Some(refusals) = &ticket.refusals else {
            return;
        };
        let roles = refusals.roles();
        for band in &mut ticket.bands[..ticket.band_count] {
            band.write = band.write.without(roles);
        }
    }

    /// All that the ticket has left agrees, or will not. What the log says of the row is what was
    /// to be written, and later writes to it are computed with what is there: a replay of both
    /// would mix them. So the log is told what is there, before the lanes go. Its first slot goes
    /// before that: a ticket that holds one and waits for another may wait for itself.
    #[cold]
    pub(in crate::shard::ticket) fn conclude_refused(
        &mut self,
        slot: u32,
        status: Status,
        io: &mut impl Io,
    ) {
        let ticket = &mut self.tickets[slot];
        let refusals = ticket.refusals.as_mut().expect("some");
        let is_told = std::mem::replace(&mut refusals.is_told, true);
        let is_told = is_told || planted::is(Fault::RefusalNotTold);
        if status.is_ok() && !is_told && ticket.log_slot.is_some() {
            refusals.phase = Phase::Telling;
            self.end_log(slot);
            self.go_on_refused(slot, io);
            return;
        }
        if !status.is_ok() {
            self.tell_torn(slot);
        }
        self.end_refused(slot, io);
    }

    /// The ticket fails.
    fn end_refused(&mut self, slot: u32, io: &mut impl Io) {
        let (stripe, data) = (
            self.tickets[slot].order.stripe,
            self.geometry().data_roles(),
        );
        let refusals = self.tickets[slot].refusals.as_ref().expect("some");
        let mut blocks: Vec<&Refused> = refusals.blocks.iter().collect();
        blocks.sort_unstable_by_key(|block| block.lane);
        for run in blocks.chunk_by(|one, next| one.lane + 1 == next.lane) {
            let Refused {
                role, lane, parked, ..
            } = run[0];
            let roles = if data.has(*role) {
                RoleSet::one(*role)
            } else {
                data
            };
            let count = u32::try_from(run.len()).expect("lanes of a cell");
            let rows = Rows {
                stripe,
                start: *lane,
                end: lane + count,
                roles,
            };
            io.event(Event::WriteRefused {
                member: parked.done.member,
                first: first_of(rows, self.geometry()),
                rows: count,
            });
        }
        self.answer_ticket(slot, Status::Media, io);
        self.end_ticket(slot);
    }
}
