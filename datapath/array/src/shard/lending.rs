//! Large tickets lend rows to other shards of the array that have nothing to do.
//!
//! A ticket that writes whole rows copies them and makes their parity in one pass over the guest's
//! memory. Where reactors beside this one are awake and idle, it asks them to help: the rows are
//! cut into pieces, and all take pieces until none is left. So nobody is waited for but those that
//! are in the middle of a piece. Until these are done the ticket waits (`Step::Helped`): its
//! buffers and the guest's memory stay what they are, and it is neither answered nor given up.
//!
//! Ticket, log, writes and entry for the next engine are the owner's alone
//! (docs/design/018-helped-stripes.md).

use std::sync::Arc;

use queues::Pieces;
use units::{BlockSize, ReactorIndex, bytes_usize};

use super::Shard;
use crate::io::{Io, Message};
use crate::lent::{Lent, Rows};
use crate::planted::{self, Fault};

/// Tickets that can lend at a time.
const RECORDS: usize = 4;

/// From when on tickets lend, and how much at a time.
#[derive(Clone, Copy, Debug)]
pub struct Lends {
    /// Bytes of data that a ticket has at least.
    pub from_bytes: u64,
    /// Bytes of each chunk in a piece, rounded up to whole blocks.
    pub piece_bytes: usize,
}

impl Default for Lends {
    fn default() -> Lends {
        Lends {
            from_bytes: 1 << 20,
            piece_bytes: 8 << 10,
        }
    }
}

/// What is lent by one ticket at a time.
#[derive(Debug)]
struct Record {
    /// Shared with the helpers until all have answered.
    lent: Arc<Lent>,
    /// Who lends it, until all pieces are done.
    ticket: Option<u32>,
    /// Helpers that have not answered.
    unanswered: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lending {
    lends: Lends,
    records: [Record; RECORDS],
    /// How many tickets lend.
    tickets: usize,
}

impl Lending {
    pub(super) fn new(lends: Lends, block: BlockSize) -> Lending {
        // No block is two people's, so that none holds bytes of two moments of a guest's memory.
        let piece = lends
            .piece_bytes
            .next_multiple_of(bytes_usize(block.bytes()));
        let record = |at| Record {
            lent: Arc::new(Lent {
                record: u32::try_from(at).expect("few"),
                rows: Rows::default(),
                piece,
                pieces: Pieces::new(0),
            }),
            ticket: None,
            unanswered: 0,
        };
        Lending {
            lends,
            records: std::array::from_fn(record),
            tickets: 0,
        }
    }

    /// Whether nothing is lent, and everybody who was asked has answered.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |record: &Record| record.ticket.is_none() && record.unanswered == 0;
        self.records.iter().all(idle)
    }

    /// Nobody begins a piece any more, or is in the middle of one: what is lent may go.
    pub(super) fn take_back(&mut self) {
        self.tickets = 0;
        for record in &mut self.records {
            if record.ticket.take().is_some() {
                record.lent.pieces.stop();
            }
        }
    }
}

impl Shard {
    /// Whether a ticket that writes whole rows has got help with its bytes. If so it goes on by
    /// itself.
    #[inline]
    pub(super) fn is_helped(&mut self, slot: u32, io: &mut impl Io) -> bool {
        let ticket = &self.tickets[slot];
        // Those are planned to write whole rows and all of their parity.
        let from_guest = ticket.copy_due || ticket.borrows;
        from_guest && self.is_large(slot) && ticket.refusals.is_none() && self.lend(slot, io)
    }

    fn is_large(&self, slot: u32) -> bool {
        let lanes = &self.tickets[slot].lanes;
        let data = self.geometry().data();
        let bytes = self.bytes(lanes.end - lanes.start) * units::bytes_u64(data);
        data > 1 && bytes >= self.lending.lends.from_bytes
    }

    #[inline(never)]
    fn lend(&mut self, slot: u32, io: &mut impl Io) -> bool {
        let help = io.help();
        if help.reactors().is_empty() {
            return false;
        }
        let records = &self.lending.records;
        let free = |record: &Record| record.ticket.is_none() && record.unanswered == 0;
        let Some(at) = records.iter().position(free) else {
            return false;
        };
        let copies = self.tickets[slot].copy_due;
        let rows = self.rows_from_guest(slot, self.geometry().parity_roles(), copies);
        let bytes = rows.data * rows.length;
        let record = &mut self.lending.records[at];
        let lent = Arc::get_mut(&mut record.lent).expect("whoever answers has let go of it");
        let pieces = rows.length.div_ceil(lent.piece);
        lent.pieces = Pieces::new(u32::try_from(pieces).expect("few"));
        lent.rows = rows;
        for &helper in help.reactors() {
            let message = Message::Lend(Arc::clone(&record.lent));
            record.unanswered += usize::from(io.ask(helper, message).is_ok());
        }
        if record.unanswered == 0 {
            return false;
        }
        io.show();
        let (lent, asked) = (Arc::clone(&record.lent), record.unanswered);
        record.ticket = Some(slot);
        self.lending.tickets += 1;
        self.counters.messages += units::bytes_u64(asked);
        self.counters.lent_writes += 1;
        self.counters.full_writes += 1;
        if copies {
            self.counters.bytes_copied += units::bytes_u64(bytes);
        }
        self.tickets[slot].lend();
        lent.do_pieces(&self.code, help.own);
        drop(lent);
        self.go_on_if_done(at, io);
        true
    }

    /// Another shard asks for help.
    pub(super) fn help(&mut self, from: ReactorIndex, lent: Arc<Lent>, io: &mut impl Io) {
        let record = lent.record;
        let done = lent.do_pieces(&self.code, u32::MAX);
        drop(lent);
        self.counters.helped_pieces += u64::from(done);
        self.counters.messages += 1;
        io.reply(from, Message::Lent { record });
        // There may be more mail, and drives to be seen to.
        io.show();
    }

    /// A helper has found no piece any more.
    pub(super) fn helper_answered(&mut self, record: u32, io: &mut impl Io) {
        let at = bytes_usize(u64::from(record));
        let record = &mut self.lending.records[at];
        assert!(record.unanswered > 0, "a helper answers once");
        record.unanswered -= 1;
        self.go_on_if_done(at, io);
    }

    /// Tickets whose bytes are all there go on: helpers have more to do than to say so.
    #[inline]
    pub(super) fn advance_lending(&mut self, io: &mut impl Io) -> usize {
        if self.lending.tickets == 0 {
            return 0;
        }
        (0..RECORDS).map(|at| self.go_on_if_done(at, io)).sum()
    }

    /// The ticket that lends goes on, once all of its bytes are there.
    fn go_on_if_done(&mut self, at: usize, io: &mut impl Io) -> usize {
        let record = &mut self.lending.records[at];
        let done = record.lent.pieces.are_done() || planted::is(Fault::HelpedLanesNotAwaited);
        if done && let Some(slot) = record.ticket.take() {
            self.lending.tickets -= 1;
            self.begin_writing(slot, io);
            return 1;
        }
        0
    }

    /// Whether others may be in the middle of a ticket's bytes.
    pub(super) fn is_lending(&self, slot: u32) -> bool {
        let lends = |record: &Record| record.ticket == Some(slot);
        self.lending.records.iter().any(lends)
    }
}
