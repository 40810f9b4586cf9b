//! A piece of a request on the reactor that owns its stripes: cut into tickets, answered once.

use std::ops::Range;

use block::{Operation, Part, Stability, Status};
use memory::SegmentList;
use units::{ReactorIndex, StripeIndex};

use super::hold::looks_allowed;
use super::ticket::{Kind, Payload, TicketOrder};
use super::{Shard, cell_lanes};
use crate::io::{Io, Message, Trouble, WorkMessage};
use crate::lines::Attempts;
use crate::map::MapState;
use crate::plan::{Band, bands};
use crate::planted::{self, Fault};

/// What a ticket costs besides its bytes.
const TICKET_COST: i64 = 4096;

/// A piece that is not answered yet.
#[derive(Debug)]
pub(super) struct Work {
    origin: ReactorIndex,
    request: u32,
    /// Its volume's number.
    pub(super) line: u16,
    /// It waits in a line, all of it or what is not cut yet.
    waits: bool,
    operation: Operation,
    trouble: Option<Trouble>,
    start: u64,
    blocks: u32,
    part: Part,
    offset: u32,
    segments: SegmentList,
    stability: Stability,
    /// Blocks whose tickets were all made.
    cut: u32,
    /// Cells of the stripe at `cut` whose tickets were made.
    cell: u32,
    /// Tickets under way.
    pending: u32,
    status: Status,
    /// Looks since it began to wait.
    attempts: u8,
}

impl Work {
    /// Whether all tickets were made and are answered.
    #[inline]
    fn is_done(&self) -> bool {
        let is_cut = self.cut >= self.blocks || planted::is(Fault::AnsweredWhileItWaits);
        self.pending == 0 && is_cut
    }

    /// One more look at a piece that is not cut: when it is old, what is left of it fails. Whether
    /// it does.
    pub(super) fn age(&mut self, old: u8) -> bool {
        self.attempts = self.attempts.saturating_add(1);
        let fails = self.attempts > old && self.cut < self.blocks;
        if fails {
            self.cut = self.blocks;
            self.status = self.status.and(Status::Media);
        }
        fails
    }
}

impl Default for Work {
    fn default() -> Work {
        Work {
            origin: ReactorIndex(0),
            request: 0,
            line: 0,
            waits: false,
            operation: Operation::Flush,
            trouble: None,
            start: 0,
            blocks: 0,
            part: Part::WHOLE,
            offset: 0,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            cut: 0,
            cell: 0,
            pending: 0,
            status: Status::Ok,
            attempts: 0,
        }
    }
}

/// The part of a work that lies in one stripe.
#[derive(Clone, Copy, Debug)]
struct StripePiece {
    stripe: StripeIndex,
    /// First block within the stripe.
    start: u32,
    blocks: u32,
}

impl Shard {
    /// One more look at the pieces that wait, after a hold was given up. How many are answered at
    /// the next poll.
    pub(super) fn age_works(&mut self, others_go_on: bool) -> usize {
        let (map, works) = (&self.map, &mut self.works);
        let mut old = 0;
        self.waiting_works.each(|slot| {
            let work = &mut works[slot];
            let next = work.start + u64::from(work.cut);
            let in_vain = work.cut == work.blocks || map.gives_up(next);
            old += usize::from(work.age(looks_allowed(others_go_on && !in_vain)));
        });
        old
    }

    /// Takes work from another reactor. The slots are as many as its credits, so there is room.
    pub(super) fn begin_work(&mut self, origin: ReactorIndex, work: WorkMessage) {
        self.assert_owns(self.geometry().locate(work.start).0);
        let taken = self.try_begin_work(origin, work);
        assert!(taken, "work slots cover the inboxes' credits");
    }

    /// Takes work if there is room. It is cut into tickets at the next poll.
    #[inline(always)]
    pub(super) fn try_begin_work(&mut self, origin: ReactorIndex, message: WorkMessage) -> bool {
        // Local work leaves room for what other reactors may send unasked.
        let reserve = if origin == self.me {
            self.foreign_works()
        } else {
            0
        };
        if self.works.free() <= reserve {
            return false;
        }
        let slot = self.works.acquire().expect("counted above");
        self.works[slot] = Work {
            origin,
            request: message.request,
            line: message.line,
            waits: true,
            operation: message.operation,
            trouble: message.trouble,
            start: message.start,
            blocks: message.blocks,
            part: message.part,
            offset: message.offset,
            segments: message.segments,
            stability: message.stability,
            cut: 0,
            cell: 0,
            pending: 0,
            status: Status::Ok,
            attempts: 0,
        };
        self.waiting_works.push(slot, message.line);
        true
    }

    /// Makes tickets of waiting work while there are ticket slots, up to the turn's bytes: by
    /// volumes in turn, and oldest first in each.
    pub(super) fn advance_works(&mut self, io: &mut impl Io) -> usize {
        let mut moved = 0;
        let mut attempts = Attempts::default();
        let mut turn_left = i64::from(self.turn_bytes);
        while turn_left > 0
            && let Some(slot) = self.waiting_works.first()
        {
            let alone = self.waiting_works.count() == 1;
            let (slot, credit) = if alone {
                (slot, turn_left)
            } else {
                let slot = attempts.next(&mut self.waiting_works);
                (slot.expect("somebody waits"), self.waiting_works.credit())
            };
            let allowed = turn_left.min(credit);
            self.allowed = allowed;
            let (made, all) = self.cut_work(slot, io);
            moved += made;
            let cost = allowed - self.allowed;
            turn_left -= cost;
            if !alone {
                self.waiting_works.charge(cost);
            }
            if all {
                // What needed no ticket makes room for others, too.
                moved += usize::from(made == 0);
                self.waiting_works.pop();
                let work = &mut self.works[slot];
                work.waits = false;
                // Everything may have been answered at once, or need no ticket at all.
                if work.is_done() {
                    self.finish_work(slot, io);
                }
                continue;
            }
            // Its turn is over, or it waits for buffers that others may do without.
            let in_vain = attempts.tried(made > 0, &self.waiting_works);
            // What is given up needs no ticket to be answered, in whichever line it waits.
            let none = self.tickets.free() == 0 && !self.map.given_up;
            if none || in_vain {
                break;
            }
            if turn_left > 0 {
                self.waiting_works.pass_on();
            }
        }
        moved
    }

    /// Makes tickets until the work is used up (true) or there is no slot.
    fn cut_work(&mut self, slot: u32, io: &mut impl Io) -> (usize, bool) {
        let mut made = 0;
        loop {
            let work = &self.works[slot];
            if work.cut == work.blocks {
                return (made, true);
            }
            let geometry = self.geometry();
            let (stripe, start) = geometry.locate(work.start + u64::from(work.cut));
            let blocks = (work.blocks - work.cut).min(geometry.stripe_blocks() - start);
            let piece = StripePiece {
                stripe,
                start,
                blocks,
            };
            if work.operation.changes() && self.map.is_given_up(stripe) {
                let work = &mut self.works[slot];
                work.status = work.status.and(Status::Media);
            } else if !self.is_skipped(work, piece) {
                let (count, all) = self.cut_stripe(slot, piece, io);
                made += count;
                if !all {
                    return (made, false);
                }
            }
            let work = &mut self.works[slot];
            work.cut += blocks;
            work.cell = 0;
        }
    }

    /// A discard of less than a stripe would have to change parity for nothing: it is ignored, as
    /// a discard may be. So is one where a drive that does not take it could not be left out.
    #[inline]
    fn is_skipped(&self, work: &Work, piece: StripePiece) -> bool {
        let whole = work.part.is_whole() && piece.blocks == self.geometry().stripe_blocks();
        work.operation == Operation::Discard && (!whole || self.is_at_its_limit(piece.stripe))
    }

    /// Whether the stripe's group needs all members that are in sync.
    pub(super) fn is_at_its_limit(&self, stripe: StripeIndex) -> bool {
        let group = self.geometry().group_members();
        let first = self.geometry().group(stripe).at() * group;
        let members = self.map.members[first..first + group].iter();
        let in_sync = members.filter(|member| member.state == MapState::InSync);
        self.geometry().parity() > 0 && in_sync.count() <= self.geometry().data()
    }

    /// Makes the tickets of one stripe, one for each cell that the piece touches.
    fn cut_stripe(&mut self, slot: u32, piece: StripePiece, io: &mut impl Io) -> (usize, bool) {
        let (chunk, lanes) = (self.geometry().chunk_blocks(), cell_lanes(self.geometry()));
        let cut = bands(chunk, self.geometry().data(), piece.start, piece.blocks);
        if lanes == chunk {
            return self.cut_cell(slot, piece, cut.as_slice(), io);
        }
        let mut made = 0;
        loop {
            let cell = self.works[slot].cell;
            let cell_start = cell * lanes;
            if cell_start >= chunk {
                return (made, true);
            }
            let window = cell_start..(cell_start + lanes).min(chunk);
            let mut in_cell: [Band; 3] = Default::default();
            let mut count = 0;
            for band in &cut {
                let lanes = clip(&band.lanes, &window);
                if !lanes.is_empty() {
                    in_cell[count] = Band {
                        lanes,
                        written: band.written,
                    };
                    count += 1;
                }
            }
            let (more, all) = self.cut_cell(slot, piece, &in_cell[..count], io);
            made += more;
            if !all {
                return (made, false);
            }
            self.works[slot].cell = cell + 1;
        }
    }

    /// Makes the ticket of the next cell, unless the piece has nothing there or there is no slot
    /// (false).
    #[inline(always)]
    fn cut_cell(
        &mut self,
        slot: u32,
        piece: StripePiece,
        asked: &[Band],
        io: &mut impl Io,
    ) -> (usize, bool) {
        let cell = self.works[slot].cell;
        let mut made = 0;
        if !asked.is_empty() {
            if self.allowed <= 0 || self.must_wait(asked) {
                return (0, false);
            }
            let Some(ticket) = self.tickets.acquire() else {
                return (0, false);
            };
            self.allowed -= self.cost_of(piece, asked);
            made = 1;
            let order = self.order(slot, piece, cell);
            self.works[slot].pending += 1;
            self.begin_ticket(ticket, order, asked, io);
        }
        (made, true)
    }

    /// Whether somebody waits for buffers like those that these bands need.
    #[inline]
    fn must_wait(&self, asked: &[Band]) -> bool {
        !self.nobody_waits_for_buffers() && self.must_wait_for_buffers(asked)
    }

    #[cold]
    fn must_wait_for_buffers(&self, asked: &[Band]) -> bool {
        let class = self.class_of(&lanes_of(asked));
        !self.buffer_waiters[class as usize].is_empty()
    }

    /// What a ticket costs: bytes that a processor moves, and what all cost.
    #[inline]
    fn cost_of(&self, piece: StripePiece, asked: &[Band]) -> i64 {
        let lanes = lanes_of(asked);
        let data = u32::try_from(self.geometry().data()).expect("few chunks");
        let cell = (lanes.end - lanes.start) * data;
        TICKET_COST + self.bytes(piece.blocks.min(cell)).cast_signed()
    }

    #[inline]
    fn order(&self, slot: u32, piece: StripePiece, cell: u32) -> TicketOrder {
        let work = &self.works[slot];
        let whole = work.part.is_whole() && piece.blocks == self.geometry().stripe_blocks();
        let (tried, late) = match work.trouble {
            Some(Trouble::Failed(role)) => (Some(role), None),
            Some(Trouble::Late(role)) => (None, Some(role)),
            None => (None, None),
        };
        let kind = match work.operation {
            Operation::Read => Kind::Read { tried },
            Operation::Write => Kind::Write(Payload::Guest),
            Operation::WriteZeroes if whole => Kind::Clear,
            Operation::WriteZeroes => Kind::Write(Payload::Zeroes),
            Operation::Discard => Kind::Clear,
            Operation::Flush => unreachable!("a flush is no work"),
        };
        TicketOrder {
            kind,
            work: slot,
            stripe: piece.stripe,
            cell,
            start: piece.start,
            part: work.part,
            offset: u64::from(work.offset) + self.bytes(work.cut),
            segments: work.segments,
            stability: work.stability,
            late,
        }
    }

    /// A ticket of this work is answered.
    #[inline(always)]
    pub(super) fn work_ticket_done(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        let work = &mut self.works[slot];
        assert!(work.pending > 0, "a ticket is answered once");
        work.pending -= 1;
        work.status = work.status.and(status);
        if work.is_done() {
            self.finish_work(slot, io);
        }
    }

    #[inline(always)]
    fn finish_work(&mut self, slot: u32, io: &mut impl Io) {
        let Work {
            origin,
            request,
            status,
            waits,
            ..
        } = self.works[slot];
        // Work that still waits in a line is finished by whoever takes it from there.
        if waits && !planted::is(Fault::AnsweredWhileItWaits) {
            return;
        }
        self.works.release(slot);
        if origin == self.me {
            self.piece_done(request, status, io);
        } else {
            self.counters.messages += 1;
            io.reply(origin, Message::WorkDone { request, status });
        }
    }

    /// The stripe in which it begins; all of it is in one bucket.
    pub(super) fn stripe_of(&self, slot: u32) -> StripeIndex {
        self.geometry().locate(self.works[slot].start).0
    }

    #[inline]
    fn foreign_works(&self) -> usize {
        self.foreign_work_slots
    }
}

/// All lanes of these bands.
#[inline]
fn lanes_of(bands: &[Band]) -> Range<u32> {
    bands[0].lanes.start..bands[bands.len() - 1].lanes.end
}

fn clip(lanes: &Range<u32>, window: &Range<u32>) -> Range<u32> {
    lanes.start.max(window.start)..lanes.end.min(window.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_fails_that_was_looked_at_too_often_before_it_was_cut() {
        for (cut, verdict) in [(1, Status::Media), (4, Status::Ok)] {
            let mut work = Work {
                blocks: 4,
                cut,
                ..Work::default()
            };
            for _ in 0..2 {
                work.age(2);
                assert_eq!((work.cut, work.status), (cut, Status::Ok));
            }
            work.age(2);
            assert_eq!((work.cut, work.status), (4, verdict));
        }
    }
}
