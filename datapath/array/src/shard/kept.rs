//! Writes that were logged when the hold was given up. They are answered with an error like the
//! others, but the next engine may find them in the log and write them. What is planned after them
//! must therefore find them in their place, or a replay of both makes parity of contents that never
//! were together: they keep their lanes and a copy of what the guest wrote, and are carried out
//! when the members work again.

use memory::{Backing, Buffer, Pages, Pool};

use super::Shard;
use super::ticket::{Kind, Payload};
use crate::io::Io;
use crate::planted::{self, Fault};

/// What a guest wrote, for a ticket that is carried out although it was answered.
#[derive(Debug)]
pub(super) struct Kept {
    pool: Pool,
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
        let ticket = &mut self.tickets[slot];
        let has_copy = ticket.keeps || ticket.is_answered();
        if ticket.order.kind == Kind::Write(Payload::Guest) && !has_copy {
            let segments = ticket.order.segments;
            let bytes: usize = segments.as_slice().iter().map(|part| part.len()).sum();
            let backing = Backing::Anonymous(Pages::Plain);
            let Ok(mut pool) = Pool::new(1, bytes.next_multiple_of(4096), backing) else {
                return false;
            };
            let buffer = pool.acquire().expect("there is one");
            let copy = pool.segment(&buffer).part(0, bytes);
            segments.copy_to(0, copy);
            let list = self
                .hold
                .lists
                .lend(crate::slots::at(slot), |list| list.push(copy));
            ticket.order.segments = list;
            let buffer = Some(buffer);
            ticket.kept = Some(Kept { pool, buffer });
        }
        ticket.keeps = true;
        true
    }

    /// The ticket ends.
    pub(super) fn forget_kept(&mut self, slot: u32) {
        if self.tickets[slot].kept.take().is_some() {
            self.hold.lists.take_back(crate::slots::at(slot));
        }
    }
}
