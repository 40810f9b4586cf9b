//! Writes of one cell that are carried out together.
//!
//! Tickets that write the same lanes of a cell go one after another, because they change the same
//! parity. When one begins, others of the cell *join*, whose lanes touch its own and which write
//! other blocks: those that wait behind it, and those that have their lanes and were not begun. The
//! first does the work of all, with one plan, so that a stream of writes becomes full stripes,
//! however it is cut, or at least one change of parity for many, and few member requests. Nothing
//! is waited for: they are those of the same turn, and those that came while the ticket before was
//! under way. (`delay` is about when it pays to wait.)
//!
//! What the first writes lies in lanes that it or one of the others has claimed. Each of these
//! waits for none but the others, so all of them are theirs.
//!
//! Only while no member is slow or waited for. When the ticket has to be planned anew, for whatever
//! reason, they part, and join again as far as that is right still. But not once pieces of it were
//! logged: the next engine may write all that these say, and after that what one of the parted has
//! logged for itself, with parity of what the others had not written yet. So they are carried out
//! together, however often they are planned.

use std::ops::Range;

use block::Status;
use units::Instant;
use units::limits::LARGE_BUFFER_BYTES;

use super::super::{Shard, cell_lanes};
use super::{Kind, Payload, PlannedBand, Step, Ticket};
use crate::io::Io;
use crate::plan::{Band, Union};
use crate::planted::{self, Fault};

/// The most tickets that join one.
const JOINED_MAX: usize = 64;
/// The smallest block.
const BLOCK_BYTES_MIN: usize = 512;

/// Some lanes of a cell, one bit each.
type LaneSet = u128;
const _: () = assert!(
    LARGE_BUFFER_BYTES / BLOCK_BYTES_MIN == 128,
    "a bit for each lane"
);

/// Tickets that may join one, and what all write together.
#[derive(Debug)]
pub(super) struct Party {
    others: [u32; JOINED_MAX],
    count: usize,
    pub(super) written: Union,
}

impl Ticket {
    /// Whether it may do the work of others, or others its.
    #[inline]
    pub(super) fn may_join(&self) -> bool {
        self.order.kind == Kind::Write(Payload::Guest) && self.order.part.is_whole()
    }

    /// Whether another ticket does its work.
    pub(in crate::shard) fn follows(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether it does the work of no others.
    #[inline]
    pub(in crate::shard) fn is_alone(&self) -> bool {
        self.joined.is_none()
    }

    /// Into how many bands that is cut which its own request writes.
    #[inline]
    pub(in crate::shard) fn own_count(&self) -> usize {
        self.apart
            .as_ref()
            .map_or(self.band_count, |apart| apart.count)
    }

    /// One of these bands.
    #[inline]
    pub(in crate::shard) fn own_band(&self, band: usize) -> &Band {
        match &self.apart {
            None => &self.bands[band].asked,
            Some(apart) => &apart.bands[band],
        }
    }

    /// Blocks of the cell that its own request writes.
    pub(super) fn own_blocks(&self) -> u32 {
        let bands = (0..self.own_count()).map(|band| self.own_band(band));
        bands.map(blocks_of).sum()
    }

    /// Its bands are these from now on; those whose lanes they are have claimed them.
    fn ask(&mut self, bands: &[Band]) {
        self.band_count = bands.len();
        for (planned, band) in self.bands.iter_mut().zip(bands) {
            *planned = PlannedBand {
                asked: band.clone(),
                ..PlannedBand::default()
            };
        }
        self.lanes = bands[0].lanes.start..bands[bands.len() - 1].lanes.end;
        self.claimed = self.lanes.end;
    }
}

/// Blocks that a band writes.
pub(super) fn blocks_of(band: &Band) -> u32 {
    let roles = u32::try_from(band.written.len()).expect("at most 64");
    (band.lanes.end - band.lanes.start) * roles
}

impl Shard {
    /// Takes over the work of others of its cell that fit.
    #[inline]
    pub(super) fn join_others(&mut self, slot: u32, now: Instant) {
        if self.lanes.has_company(slot) && self.may_lead(slot) {
            let party = self.party(slot);
            self.lead(slot, &party, now);
        }
    }

    /// Whether all members that are there do what they are asked, as far as anybody knows.
    #[inline]
    pub(super) fn is_well(&self) -> bool {
        !self.late.any_slow && self.hold.is_empty() && !self.map.is_broken()
    }

    /// Whether a ticket may do the work of others, as things are.
    pub(super) fn may_lead(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let well = self.is_well();
        let fresh = ticket.media.is_empty() && ticket.gone.is_empty() && !ticket.second_try;
        let fresh = fresh && !ticket.answered && !ticket.logged && ticket.asked.is_none();
        well && fresh && ticket.may_join()
    }

    /// Who of its cell fits, besides those that have joined already: none overtakes one that it
    /// shares lanes with, and together they write in three bands.
    pub(super) fn party(&self, slot: u32) -> Party {
        let ticket = &self.tickets[slot];
        let mut written = Union::of(ticket.bands().iter().map(|band| &band.asked));
        let mut party = Party {
            others: [0; JOINED_MAX],
            count: 0,
            written: written.clone(),
        };
        let mut lanes = ticket.lanes.clone();
        let mut joined = 0;
        // Lanes of those that do not fit: who waits for them goes after them.
        let mut theirs: LaneSet = 0;
        let mut count = 0;
        for (other, claimed) in self.lanes.of_cell(self.lanes.cell(slot)) {
            if self.tickets[other].leader == Some(slot) {
                joined += 1;
            }
            if other == slot || self.tickets[other].leader == Some(slot) {
                continue;
            }
            let set = self.lane_set(claimed);
            let free = set & theirs == 0 || planted::is(Fault::JoinsOverOthers);
            let touches = claimed.start <= lanes.end && lanes.start <= claimed.end;
            let fits = joined + count < JOINED_MAX
                && free
                && touches
                && self.waits_to_begin(other)
                && self.adds(&mut written, other);
            if !fits {
                theirs |= set;
                continue;
            }
            lanes = lanes.start.min(claimed.start)..lanes.end.max(claimed.end);
            party.others[count] = other;
            count += 1;
            if written.as_slice().len() <= ticket.bands.len() {
                party.count = count;
                party.written = written.clone();
            }
        }
        party
    }

    /// Whether a ticket waits for its lanes, or has them and was not begun; it may join another.
    fn waits_to_begin(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let waits = ticket.step == Step::Ready
            || ticket.step == Step::Claiming && !self.lanes.is_granted(slot);
        waits && ticket.may_join() && !ticket.answered && !ticket.follows() && ticket.is_alone()
    }

    fn adds(&self, written: &mut Union, other: u32) -> bool {
        let ticket = &self.tickets[other];
        let mut bands: [Band; 3] = Default::default();
        for (band, planned) in bands.iter_mut().zip(ticket.bands()) {
            *band = planned.asked.clone();
        }
        written.add(&bands[..ticket.band_count])
    }

    fn lane_set(&self, lanes: &Range<u32>) -> LaneSet {
        let first = lanes.start % cell_lanes(self.geometry());
        let below = |lane: u32| {
            LaneSet::MAX
                .checked_shl(lane)
                .map_or(LaneSet::MAX, |set| !set)
        };
        below(first + (lanes.end - lanes.start)) & !below(first)
    }

    /// The ticket does the work of all of them.
    fn lead(&mut self, slot: u32, party: &Party, now: Instant) {
        let others = &party.others[..party.count];
        if others.is_empty() {
            return;
        }
        let mut next = None;
        for &other in others.iter().rev() {
            let ticket = &mut self.tickets[other];
            ticket.joined = next;
            ticket.leader = Some(slot);
            next = Some(other);
        }
        let ticket = &mut self.tickets[slot];
        ticket.joined = next;
        ticket.apart = Some(ticket.all_asked());
        ticket.ask(party.written.as_slice());
        others
            .iter()
            .for_each(|&other| self.note_delay(other, true, now));
        let tickets = &self.tickets;
        self.delayed.retain(|&other| !tickets[other].follows());
    }

    /// A ticket is planned anew: what joined it goes for itself again, unless it was logged.
    #[inline]
    pub(super) fn part_again(&mut self, slot: u32) {
        let ticket = &mut self.tickets[slot];
        let stays = ticket.logged && !planted::is(Fault::LoggedPart);
        let Some(first) = ticket.joined.take_if(|_| !stays) else {
            return;
        };
        assert!(!ticket.answered, "an answered ticket has nothing to plan");
        let own = ticket.apart.take().expect("kept when others joined");
        ticket.ask(&own.bands[..own.count]);
        self.each_joined(Some(first), |shard, other| {
            let ticket = &mut shard.tickets[other];
            (ticket.joined, ticket.leader) = (None, None);
            if ticket.step == Step::Ready {
                shard.granted.push(other);
            }
        });
    }

    /// Copies what the guest wants written in those that joined.
    #[inline]
    pub(in crate::shard) fn fill_joined(&mut self, slot: u32) {
        if planted::is(Fault::JoinedNotCopied) {
            return;
        }
        self.each_follower(slot, |shard, other| {
            shard.counters.joined_writes += 1;
            shard.fill_from(slot, other);
        });
    }

    pub(super) fn answer_joined(&mut self, first: Option<u32>, status: Status, io: &mut impl Io) {
        self.each_joined(first, |shard, other| {
            let ticket = &mut shard.tickets[other];
            if !std::mem::replace(&mut ticket.answered, true) {
                let work = ticket.order.work;
                shard.work_ticket_done(work, status, io);
            }
        });
    }

    /// The ticket ends, and with it those that joined: the last of them first, or one that waits
    /// for another of them would be granted.
    #[inline]
    pub(super) fn end_joined(&mut self, slot: u32) {
        let first = self.tickets[slot].joined.take();
        if first.is_none() {
            return;
        }
        let (mut others, mut count) = ([0; JOINED_MAX], 0);
        self.each_joined(first, |_, other| {
            others[count] = other;
            count += 1;
        });
        for &other in others[..count].iter().rev() {
            let ticket = &mut self.tickets[other];
            assert!(ticket.answered, "answered with the first");
            (ticket.joined, ticket.leader) = (None, None);
            self.end_ticket(other);
        }
    }

    /// Whether a ticket has all lanes in which it writes: its own, and of those that joined.
    #[inline]
    pub(in crate::shard) fn holds_its_lanes(&self, slot: u32) -> bool {
        let alone = self.tickets[slot].is_alone();
        self.lanes.is_granted(slot) && (alone || self.holds_lanes_of_all(slot))
    }

    #[inline(never)]
    fn holds_lanes_of_all(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        // In front of each of them is none but themselves.
        let mut theirs: LaneSet = 0;
        let mut ours: LaneSet = 0;
        for (other, claimed) in self.lanes.of_cell(self.lanes.cell(slot)) {
            let set = self.lane_set(claimed);
            if other != slot && self.tickets[other].leader != Some(slot) {
                theirs |= set;
            } else if theirs & set != 0 {
                return false;
            } else {
                ours |= set;
            }
        }
        let writes = self.lane_set(&ticket.lanes);
        ours & writes == writes
    }

    /// Calls `visit` with each ticket whose work this one does.
    #[inline]
    pub(in crate::shard) fn each_follower(
        &mut self,
        slot: u32,
        visit: impl FnMut(&mut Shard, u32),
    ) {
        self.each_joined(self.tickets[slot].joined, visit);
    }

    #[inline]
    fn each_joined(&mut self, first: Option<u32>, mut visit: impl FnMut(&mut Shard, u32)) {
        let mut next = first;
        while let Some(other) = next {
            next = self.tickets[other].joined;
            visit(self, other);
        }
    }
}
