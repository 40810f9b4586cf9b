//! Writes that were logged when the hold was given up. They are answered with an error like the
//! others, but the next engine may find them in the log and write them. What is planned after them
//! must therefore find them in their place, or a replay of both makes parity of contents that never
//! were together: they keep their lanes and a copy of what the guest wrote, and are carried out
//! when the members work again.
//!
//! A request has many tickets, and each keeps its own bytes only. Where these are not next to each
//! other in the request (cells of large chunks), they stay as far apart, for all sums over places
//! in it: what lies between them in the list is nobody's, and memory of the copy once more.

use std::ops::Range;

use memory::{Backing, Buffer, Pages, Pool, Segment, SegmentList};
use units::bytes_usize;

use super::Shard;
use super::ticket::{Kind, Payload};
use crate::io::Io;
use crate::plan::Band;
use crate::planted::{self, Fault};

/// What a guest wrote, for a ticket that is carried out although it was answered.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) pool: Pool,
    buffer: Option<Buffer>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.release(buffer);
        }
    }
}

impl Shard {
    /// Whether a ticket that cannot be planned now is carried out once members work again, because
    /// it was logged: a later ticket that is planned without it, and a replay of both, do not
    /// agree about parity.
    pub(super) fn must_be_carried_out(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let stripe = ticket.order.stripe;
        let can = !self.map.read_only && !self.map.is_torn(stripe);
        ticket.logged && can && self.map.is_given_up(stripe)
    }

    /// It is answered, and waits.
    pub(super) fn wait_to_be_carried_out(&mut self, slot: u32, io: &mut impl Io) {
        if self.keep(slot) {
            self.answer_given_up(slot, io);
        }
        self.hold.push_ticket(slot);
    }

    /// Copies what guests wrote, so that the ticket can be answered, and those that joined it, and
    /// carried out later; whether there was memory for that.
    pub(super) fn keep(&mut self, slot: u32) -> bool {
        let mut kept = self.keep_one(slot);
        if !planted::is(Fault::JoinedNotKept) {
            self.each_follower(slot, |shard, other| kept = kept && shard.keep_one(other));
        }
        kept
    }

    fn keep_one(&mut self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let has_copy = ticket.keeps || ticket.is_answered();
        let from_guest = ticket.order.kind == Kind::Write(Payload::Guest);
        if from_guest && !has_copy && !self.copy_payload(slot) {
            return false;
        }
        self.tickets[slot].keeps = true;
        true
    }

    /// The ticket's own bytes are in a copy from now on; whether there was memory for that.
    fn copy_payload(&mut self, slot: u32) -> bool {
        let own = self.own_bytes(slot);
        let bytes: usize = own.iter().map(Range::len).sum();
        let backing = Backing::Anonymous(Pages::Plain);
        let Ok(mut pool) = Pool::new(1, bytes.next_multiple_of(4096), backing) else {
            return false;
        };
        let buffer = pool.acquire().expect("there is one");
        let copy = pool.segment(&buffer).part(0, bytes);
        let from = self.tickets[slot].order.segments;
        let list = self.hold.lists.lend(crate::slots::at(slot), |list| {
            lay_out(&from, &own, copy, list);
        });
        let first = self.first_own_block(slot);
        let ticket = &mut self.tickets[slot];
        (ticket.order.start, ticket.order.offset) = (first, 0);
        ticket.order.segments = list;
        let buffer = Some(buffer);
        ticket.kept = Some(Kept { pool, buffer });
        true
    }

    /// Which bytes of the request's memory the ticket writes, in their order.
    fn own_bytes(&self, slot: u32) -> Vec<Range<usize>> {
        let ticket = &self.tickets[slot];
        let mut own: Vec<Range<usize>> = Vec::new();
        if !ticket.order.part.is_whole() {
            let first = bytes_usize(ticket.order.offset);
            own.push(first..first + usize::from(ticket.order.part.bytes));
            return own;
        }
        let all = ticket.all_own();
        for role in self.geometry().data_roles() {
            for band in all.bands().iter().filter(|band| band.written.has(role)) {
                let lanes = &band.lanes;
                let first = self.payload_offset(slot, role, lanes);
                let end = first + bytes_usize(self.bytes(lanes.end - lanes.start));
                match own.last_mut() {
                    Some(last) if last.end == first => last.end = end,
                    Some(_) | None => own.push(first..end),
                }
            }
        }
        own
    }

    /// The first of the ticket's blocks, within the stripe.
    fn first_own_block(&self, slot: u32) -> u32 {
        let chunk = self.geometry().chunk_blocks();
        let all = self.tickets[slot].all_own();
        let first = |band: &Band| {
            let role = band.written.first().expect("a band writes something");
            u32::from(role.0) * chunk + band.lanes.start
        };
        all.bands().iter().map(first).min().expect("there is one")
    }

    /// The ticket ends.
    pub(super) fn forget_kept(&mut self, slot: u32) {
        if self.tickets[slot].kept.take().is_some() {
            self.hold.lists.take_back(crate::slots::at(slot));
        }
    }
}

/// Copies these bytes of `from`, one after another, and lists the copy with as much between them as
/// there was.
fn lay_out(from: &SegmentList, own: &[Range<usize>], copy: Segment, list: &mut Vec<Segment>) {
    let (mut at, mut end) = (0, own[0].start);
    for range in own {
        let mut between = range.start - end;
        while between > 0 {
            let length = between.min(copy.len());
            list.push(copy.part(0, length));
            between -= length;
        }
        let target = copy.part(at, range.len());
        from.copy_to(range.start, target);
        list.push(target);
        at += range.len();
        end = range.end;
    }
}
