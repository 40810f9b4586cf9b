//! Whole rows whose parity is computed from where a guest has them, by their ticket's shard and by
//! others of the same array that have nothing to do.
//!
//! Only bytes are computed here, in the ticket's own buffers; what is done with them is decided by
//! its shard alone (`shard/lending.rs`).

use std::ops::Range;

use memory::{Segment, SegmentList, Walk};
use parity::Code;
use queues::Pieces;

use crate::planted::{self, Fault};

/// The most roles of one stripe.
const ROLES: usize = units::limits::GROUP_MEMBERS_MAX;

/// Some rows of all data chunks of a stripe.
#[derive(Debug)]
pub(crate) struct Rows {
    /// Where the guest has them.
    pub(crate) segments: SegmentList,
    /// The byte of that at which the rows of the first chunk begin, and from there to those of the
    /// next.
    pub(crate) first: usize,
    pub(crate) chunk: usize,
    /// Bytes of each chunk.
    pub(crate) length: usize,
    /// How many data and parity chunks.
    pub(crate) data: usize,
    pub(crate) parity: usize,
    /// Whether the data is copied in passing; and where to.
    pub(crate) copies: bool,
    pub(crate) held: [Segment; ROLES],
    /// Where parity goes.
    pub(crate) sums: [Segment; ROLES],
}

impl Default for Rows {
    fn default() -> Rows {
        Rows {
            segments: SegmentList::EMPTY,
            first: 0,
            chunk: 0,
            length: 0,
            data: 0,
            parity: 0,
            copies: false,
            held: [Segment::EMPTY; ROLES],
            sums: [Segment::EMPTY; ROLES],
        }
    }
}

impl Rows {
    /// Computes these bytes of each chunk.
    pub(crate) fn compute(&self, code: &Code, bytes: Range<usize>) {
        let k = self.data;
        let mut walks = [Walk::default(); ROLES];
        let mut next = self.segments.walk(self.first + bytes.start);
        for (role, walk) in walks[..k].iter_mut().enumerate() {
            if role > 0 {
                next.skip(self.chunk);
            }
            *walk = next;
        }
        let walks = &mut walks[..k];
        let (held, sums) = (&self.held[..k], &self.sums[..self.parity]);
        let mut lists = [[Segment::EMPTY; ROLES]; 3];
        let mut done = bytes.start;
        while done < bytes.end {
            let pieces = walks.iter().map(Walk::in_one_piece);
            let step = pieces.fold(bytes.end - done, usize::min);
            assert!(step > 0, "a request carries as many bytes as it names");
            let [sources, into, targets] = &mut lists;
            for (source, walk) in sources.iter_mut().zip(&mut *walks) {
                *source = walk.take(step);
            }
            for (target, whole) in targets.iter_mut().zip(sums) {
                *target = whole.part(done, step);
            }
            let (sources, targets) = (&sources[..k], &targets[..sums.len()]);
            if self.copies && !planted::is(Fault::StripeNotCopied) {
                for (into, held) in into.iter_mut().zip(held) {
                    *into = held.part(done, step);
                }
                code.copy_generate(sources, &into[..k], targets);
            } else {
                code.generate(sources, targets);
            }
            done += step;
        }
    }
}

/// Rows that a ticket lends. Its memory is there as long as somebody is in the middle of a piece,
/// and nobody begins one after that: whoever comes late finds none.
#[derive(Debug)]
pub struct Lent {
    /// The owner's number for it.
    pub(crate) record: u32,
    pub(crate) rows: Rows,
    /// Bytes of each chunk in a piece.
    pub(crate) piece: usize,
    pub(crate) pieces: Pieces,
}

impl Lent {
    /// The owner's number for it: comes back in the answer.
    #[must_use]
    pub fn record(&self) -> u32 {
        self.record
    }

    /// Does pieces as long as there are any, but no more than `most`. How many.
    pub(crate) fn do_pieces(&self, code: &Code, most: u32) -> u32 {
        let mut done = 0;
        while done < most
            && let Some(piece) = self.pieces.take()
        {
            let index = usize::try_from(piece.index()).expect("few");
            let start = index * self.piece;
            let end = (start + self.piece).min(self.rows.length);
            self.rows.compute(code, start..end);
            done += 1;
        }
        done
    }
}
