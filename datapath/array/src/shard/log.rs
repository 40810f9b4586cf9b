//! The log on a shard: tickets that write where a chunk can only be had from the others get their
//! pieces into the members' logs first, and go on when these are flushed. See `crate::log`.
//!
//! A shard has a part of the slots to itself and takes them in turn, so that of two writes to the
//! same lanes the older is overwritten first. A slot is taken again only when what it held has
//! ended and was flushed in its place. A write to a cell that some slot still names is logged
//! whatever the state of its members, or that slot would undo it after a stop.

mod barred;
mod retire;
mod slots;

use std::collections::VecDeque;

use block::{Operation, Status};
use memory::{Backing, Buffer, Pages, Pool, Segment};
use units::{MemberIndex, ReactorIndex, Role, RoleSet, StripeIndex, bytes_u64, bytes_usize};

use self::barred::Barred;
pub(crate) use self::retire::Retire;
use super::ticket::{Kind, TicketOrder};
use super::{DriveIo, IoOwner, Order, Shard};
use crate::format::{LOG_HEADER_BYTES, LOG_RUNS, LogPiece, WriteHole};
use crate::io::{Io, Message};
use crate::log::{LogSpace, cell_hash};
use crate::map::{MapState, Pass};
use crate::planted::{self, Fault};

/// Headers of pieces on their way: as many as the widest ticket has.
const HEADERS: usize = units::limits::GROUP_MEMBERS_MAX;
/// Values of `cell_hash`.
const CELLS: usize = 1 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    Free,
    /// A ticket's pieces are there, or on their way.
    Busy,
    /// The ticket has ended.
    Ended,
    /// It had ended when the flush began that is under way.
    Flushing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    state: Use,
    /// Its pieces are durable.
    durable: bool,
    /// The cell that it names, until it is taken again or its life is dead.
    cell: Option<u16>,
    life: u64,
}

#[derive(Debug)]
struct Flush {
    members: Vec<MemberIndex>,
    /// Of these, so many were asked.
    asked: usize,
    pending: usize,
    ok: bool,
    tickets: Vec<u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    space: LogSpace,
    first: u32,
    slots: Vec<Slot>,
    /// Slots that ended and were not flushed.
    ended: usize,
    /// Slots that were refused.
    barred: Vec<Barred>,
    next: usize,
    sequence: u64,
    /// By cell hash: slots that name such a cell.
    cells: Vec<u16>,
    /// Tickets that wait for a slot, and those whose pieces are written and not flushed.
    waiters: VecDeque<u32>,
    flush_waiters: Vec<u32>,
    flush: Option<Flush>,
    /// Members whose flush failed: until they are dealt with another one is in vain.
    failed: Vec<(MemberIndex, u32)>,
    drain: Option<(ReactorIndex, u64, u64)>,
    headers: Pool,
    buffers: Vec<Buffer>,
    free_headers: Vec<u32>,
    scratch: Vec<u8>,
}

impl Log {
    /// The part of shard number `writer` of so many.
    ///
    /// # Errors
    /// When the host refuses the memory.
    pub(super) fn new(space: LogSpace, writer: usize, shards: usize) -> std::io::Result<Log> {
        let writers = space.writers(shards);
        let each = bytes_usize(u64::from(space.slots())) / writers.max(1);
        let each = if writer < writers { each } else { 0 };
        let mut headers = Pool::new(HEADERS, LOG_HEADER_BYTES, Backing::Anonymous(Pages::Plain))?;
        let buffers: Vec<Buffer> = (0..HEADERS)
            .map(|_| headers.acquire().expect("one for each"))
            .collect();
        Ok(Log {
            space,
            first: u32::try_from(writer * each).expect("below the slots"),
            slots: vec![Slot::default(); each],
            ended: 0,
            barred: Vec::new(),
            next: 0,
            sequence: 0,
            cells: vec![0; CELLS],
            waiters: VecDeque::with_capacity(64),
            flush_waiters: Vec::with_capacity(64),
            flush: None,
            failed: Vec::new(),
            drain: None,
            headers,
            buffers,
            free_headers: (0..u32::try_from(HEADERS).expect("few")).collect(),
            scratch: vec![0; units::limits::LARGE_BUFFER_BYTES],
        })
    }

    fn is_short(&self) -> bool {
        let ended = self.ended;
        ended > 0 && (!self.waiters.is_empty() || ended * 2 >= self.window())
    }

    /// Whether something is to happen here that no ticket waits for.
    pub(super) fn is_working(&self) -> bool {
        self.flush.is_some() || self.drain.is_some() || self.is_short()
    }
}

impl Log {
    /// The ticket does not wait here any more; whether it did.
    pub(super) fn leave(&mut self, slot: u32) -> bool {
        let before = self.waiters.len() + self.flush_waiters.len();
        self.waiters.retain(|&other| other != slot);
        self.flush_waiters.retain(|&other| other != slot);
        self.waiters.len() + self.flush_waiters.len() < before
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            self.headers.release(buffer);
        }
    }
}

impl Shard {
    /// Whether the ticket's pieces are to be logged before it writes.
    #[inline(always)]
    pub(super) fn must_log(&self, slot: u32) -> bool {
        let TicketOrder { stripe, cell, .. } = self.tickets[slot].order;
        if !self.can_log(slot) || planted::is(Fault::LogSkipped) {
            return false;
        }
        let named = self.log.cells[usize::from(cell_hash(stripe, cell))] > 0;
        let resyncs = matches!(self.tickets[slot].order.kind, Kind::Repair(_));
        let forgets = planted::is(Fault::NamedCellNotLogged)
            || (resyncs && planted::is(Fault::ResyncNotLogged));
        if named && !forgets {
            return true;
        }
        self.mode_logs(slot)
    }

    /// Whether what the ticket writes is of the kind that is logged.
    #[inline(always)]
    pub(super) fn can_log(&self, slot: u32) -> bool {
        if self.log.slots.is_empty() || !self.geometry().has_write_hole() {
            return false;
        }
        let kind = self.tickets[slot].order.kind;
        kind.changes() || kind == Kind::Repair(Pass::Resync)
    }

    /// Whether the array's mode wants such writes to the ticket's stripe logged. A resync is logged
    /// only where the log names its cell: what was written beside a bad block before it came has
    /// left parity that may be torn there, which a replay would bring back.
    #[inline]
    pub(super) fn mode_logs(&self, slot: u32) -> bool {
        let TicketOrder { stripe, kind, .. } = self.tickets[slot].order;
        if matches!(kind, Kind::Repair(_)) {
            return false;
        }
        match self.map.write_hole {
            WriteHole::Off => false,
            WriteHole::Strict => true,
            // What a member that rebuilds has is not for sure until it is in sync.
            WriteHole::Auto => !self.optimal && self.lacks_data(stripe),
        }
    }

    /// Whether some data of a stripe is not where it belongs.
    #[cold]
    fn lacks_data(&self, stripe: StripeIndex) -> bool {
        let lacks = |role| self.map.member(stripe, role).1.state != MapState::InSync;
        self.geometry().data_roles().iter().any(lacks)
    }

    /// Writes the ticket's pieces; whether it is out of the way of others that wait for room.
    pub(super) fn try_log(&mut self, slot: u32, first_in_line: bool, io: &mut impl Io) -> bool {
        let roles = self.roles_to_log(slot);
        if roles.is_empty() {
            self.tickets[slot].go_write();
            self.seek_room(slot, io);
            return true;
        }
        // What is logged is written again by the next engine, in regions that must be dirty then:
        // a member that is out lacks it.
        if !self.is_region_ready(slot) && !planted::is(Fault::LoggedBeforeDirty) {
            self.want_region(slot, io);
            self.region_waiters.push(slot);
            return true;
        }
        if !self.can_serve(roles.len(), io) {
            return false;
        }
        self.assert_region_dirty(slot);
        self.assert_copied(slot);
        let waits = !first_in_line && !self.log.waiters.is_empty();
        let TicketOrder { stripe, cell, .. } = self.tickets[slot].order;
        let short = self.log.free_headers.len() < roles.len();
        let life = self.map.log_life;
        let taken = if waits || short {
            None
        } else {
            self.log.take(cell_hash(stripe, cell), life)
        };
        let Some(place) = taken else {
            if first_in_line {
                self.log.waiters.push_front(slot);
            } else {
                self.log.waiters.push_back(slot);
            }
            return true;
        };
        self.tickets[slot].begin_log(place, roles.len());
        for role in roles {
            self.log_piece(slot, place, role, io);
        }
        true
    }

    /// The roles whose pieces the next engine is to find. None of a member that is being filled,
    /// which only a ticket that gives blocks up writes to: later writes to the row leave it out,
    /// and the rebuild that fills it logs nothing, so that a replay would put old zeroes there.
    /// Without them it is filled from the others, as if it had not been written.
    pub(super) fn roles_to_log(&self, slot: u32) -> RoleSet {
        let roles = self.tickets[slot].logged_roles();
        let forfeits = matches!(self.tickets[slot].order.kind, Kind::Forfeit(_));
        if !forfeits || planted::is(Fault::ForfeitLogsWhatIsFilled) {
            return roles;
        }
        roles.without(self.stripe_state(slot).lost)
    }

    fn log_piece(&mut self, slot: u32, place: u32, role: Role, io: &mut impl Io) {
        let TicketOrder { kind, stripe, .. } = self.tickets[slot].order;
        let zeroes = kind == Kind::Clear;
        let mut runs = [(0, 0); LOG_RUNS];
        let mut parts = [Segment::EMPTY; LOG_RUNS];
        let (mut count, mut length) = (0, 0);
        self.each_logged_run(slot, role, |memory, lanes| {
            runs[count] = (lanes.start, lanes.end - lanes.start);
            parts[count] = if zeroes { Segment::EMPTY } else { memory };
            length += parts[count].len();
            count += 1;
        });
        let parts = &parts[..count];
        let (member, _) = self.map.member(stripe, role);
        let header = self.log.free_headers.pop().expect("looked at");
        self.tickets[slot].log_headers.push(header);
        let mut at = 0;
        for part in parts {
            part.copy_to_slice(&mut self.log.scratch[at..at + part.len()]);
            at += part.len();
        }
        let piece = LogPiece {
            array: self.shared.array,
            member,
            life: self.map.log_life,
            writer: self.me.0,
            sequence: self.log.sequence,
            window: u32::try_from(self.log.window()).expect("few slots"),
            stripe,
            role,
            roles: self.roles_to_log(slot),
            zeroes,
            runs,
            payload_checksum: LogPiece::checksum([&self.log.scratch[..at]].into_iter()),
        };
        let mut bytes = [0; 512];
        piece.encode_into(&mut bytes);
        let segment = self
            .log
            .headers
            .segment(&self.log.buffers[crate::slots::at(header)]);
        segment.part(0, bytes.len()).copy_from_slice(&bytes);
        let order = Order {
            owner: IoOwner::Log { ticket: slot },
            member,
            operation: Operation::Write,
            offset: self.log.space.slot(self.log.first + place),
            length: bytes_u64(LOG_HEADER_BYTES + length),
        };
        let fill = |list: &mut Vec<Segment>| {
            list.push(segment);
            list.extend(parts.iter().filter(|part| !part.is_empty()));
        };
        self.issue(order, fill, io);
    }

    /// A piece is written, or not.
    pub(super) fn log_io_done(&mut self, slot: u32, done: DriveIo, status: Status) {
        if !status.is_ok() {
            self.report(done, status);
        }
        self.piece_ended(slot, status.is_ok());
    }

    fn piece_ended(&mut self, slot: u32, well: bool) {
        let Some(well) = self.tickets[slot].piece_logged(well) else {
            return;
        };
        let ticket = &mut self.tickets[slot];
        self.log.free_headers.append(&mut ticket.log_headers);
        if well {
            self.log.flush_waiters.push(slot);
        } else {
            self.replan(slot);
        }
    }

    /// The ticket needs its slot no more.
    pub(super) fn end_log(&mut self, slot: u32) {
        if let Some(place) = self.tickets[slot].log_slot.take() {
            self.log.end(place);
        }
    }

    /// Flushes pieces, frees slots, and lets tickets go on.
    pub(super) fn advance_log(&mut self, io: &mut impl Io) -> usize {
        let mut moved = self.advance_log_flush(io);
        if self.map.read_only {
            // Nothing is written any more; who waits finds that out when it plans anew.
            while let Some(slot) = self.log.flush_waiters.pop() {
                self.replan(slot);
                moved += 1;
            }
        }
        let map = &self.map;
        let open = |&(member, incarnation): &(MemberIndex, u32)| !map.settled(member, incarnation);
        self.log.failed.retain(open);
        self.log
            .lift_bars(|member, filling| !map.is_out(member, filling) && map.needs(member));
        let in_vain = self.map.given_up && self.log.flush_waiters.is_empty();
        let may_flush = self.log.failed.is_empty() && !self.map.read_only && !in_vain;
        if may_flush
            && self.log.flush.is_none()
            && (!self.log.flush_waiters.is_empty() || self.log.is_short())
        {
            self.begin_log_flush();
            moved += 1 + self.advance_log_flush(io);
        }
        while let Some(slot) = self.log.waiters.pop_front() {
            if self.is_stale(slot) {
                self.replan(slot);
                moved += 1;
                continue;
            }
            if !self.try_log(slot, true, io) {
                self.log.waiters.push_front(slot);
                break;
            }
            if self.log.waiters.front() == Some(&slot) {
                break;
            }
            moved += 1;
        }
        if let Some((from, life, since)) = self.log.drain
            && self.is_drained(life, since)
        {
            self.log.drain = None;
            self.counters.messages += 1;
            io.reply(from, Message::LogDrained);
            moved += 1;
        }
        moved
    }

    /// All members are flushed: pieces become durable, and so does what was written in place.
    fn begin_log_flush(&mut self) {
        for slot in &mut self.log.slots {
            if slot.state == Use::Ended {
                slot.state = Use::Flushing;
            }
        }
        self.log.ended = 0;
        let members = (0..self.map.members.len()).map(MemberIndex::from_at);
        let members = if planted::is(Fault::LogNotFlushed) {
            Vec::new()
        } else {
            members.filter(|&member| self.is_usable(member)).collect()
        };
        self.log.flush = Some(Flush {
            members,
            asked: 0,
            pending: 0,
            ok: true,
            tickets: std::mem::take(&mut self.log.flush_waiters),
        });
    }

    fn advance_log_flush(&mut self, io: &mut impl Io) -> usize {
        let Some(mut flush) = self.log.flush.take() else {
            return 0;
        };
        let mut moved = 0;
        while let Some(&member) = flush.members.get(flush.asked) {
            if !self.can_serve(1, io) {
                break;
            }
            flush.asked += 1;
            moved += 1;
            if !self.is_usable(member) {
                continue;
            }
            flush.pending += 1;
            let order = Order {
                owner: IoOwner::LogFlush,
                member,
                operation: Operation::Flush,
                offset: 0,
                length: 0,
            };
            self.issue(order, |_| {}, io);
        }
        let all = flush.asked == flush.members.len() || planted::is(Fault::LogFlushNeedsNoRoom);
        if !all || flush.pending > 0 {
            self.log.flush = Some(flush);
            return moved;
        }
        for slot in &mut self.log.slots {
            if slot.state == Use::Flushing {
                slot.state = if flush.ok { Use::Free } else { Use::Ended };
                self.log.ended += usize::from(!flush.ok);
            }
        }
        for slot in flush.tickets {
            if flush.ok {
                self.note_durable(slot, &flush.members[..flush.asked]);
                self.tickets[slot].go_write();
                self.seek_room(slot, io);
            } else {
                // That member will be out; without it this goes on.
                self.replan(slot);
            }
        }
        moved + 1
    }

    /// The ticket's pieces were written before a flush that went well on these members.
    fn note_durable(&mut self, slot: u32, flushed: &[MemberIndex]) {
        let place = self.tickets[slot].log_slot.expect("its pieces are there");
        let stripe = self.tickets[slot].order.stripe;
        let roles = self.roles_to_log(slot);
        let is_flushed = |role: Role| flushed.contains(&self.map.member(stripe, role).0);
        // One that is planned anew is logged anew.
        let durable = self.is_stale(slot) || roles.iter().all(is_flushed);
        assert!(
            durable || planted::is_forgiven(),
            "a member of ticket {slot} was not flushed for the log"
        );
        self.log.slots[crate::slots::at(place)].durable = true;
    }

    /// A flush for the log is done.
    pub(super) fn log_flush_done(&mut self, done: DriveIo, status: Status) {
        let DriveIo {
            member,
            incarnation,
            ..
        } = done;
        let flushed = self.shared.is_flushed(member, incarnation, status);
        if !flushed {
            self.report(
                done,
                if status.is_ok() {
                    Status::Media
                } else {
                    status
                },
            );
            // A drive that was not there may be flushed another time.
            if status != Status::Gone {
                self.log.failed.push((member, incarnation));
            }
        }
        let flush = self.log.flush.as_mut().expect("a flush is under way");
        flush.pending -= 1;
        flush.ok &= flushed;
    }

    // ---- the end of a life ---------------------------------------------------------------

    /// A shard is asked to finish what it logged in lives before `life`, and what it writes by maps
    /// before `since`.
    pub(super) fn drain_log(&mut self, from: ReactorIndex, life: u64, since: u64) {
        self.log.drain = Some((from, life, since));
    }

    /// Whether it has.
    fn is_drained(&self, life: u64, since: u64) -> bool {
        self.log.is_drained(life) && (since == 0 || !self.writes_by_maps_before(since))
    }

    fn writes_by_maps_before(&self, serial: u64) -> bool {
        let next = |slot: &u32| self.tickets.used_from(slot + 1);
        let mut tickets = std::iter::successors(self.tickets.used_from(0), next);
        tickets.any(|slot| !self.tickets[slot].is_planned_since(serial))
            && !planted::is(Fault::ModeWithoutDrain)
    }
}

#[cfg(test)]
mod tests {
    use units::BlockSize;

    use super::*;
    use crate::format::Layout;
    use crate::shard::tests::Shape;

    #[test]
    fn ended_slots_are_flushed_when_half_of_a_window_has_or_somebody_waits_for_one() {
        let geometry = Shape::default().geometry();
        let layout = Layout::for_member(64 << 20, BlockSize::B512, 3).expect("large enough");
        let space = LogSpace::new(&geometry, (layout.log.offset, layout.log.length));
        let mut log = Log::new(space, 0, 1).expect("memory");
        let window = log.window();
        assert!(window >= 8 && log.slots.len() >= 2 * window);
        let mut is_short = |ended, waits| {
            log.ended = ended;
            log.waiters.clear();
            log.waiters.extend(Some(5).filter(|_| waits));
            log.is_short()
        };
        for ended in 0..=window {
            assert_eq!(is_short(ended, false), ended >= window.div_ceil(2));
            assert_eq!(is_short(ended, true), ended > 0, "what else would help");
        }
    }
}
