//! A guest that changes, once, the memory of all that it is writing: at which moment is a choice
//! like any other.

use block::Operation;
use units::bytes_usize;

use super::super::content;
use super::super::disk::Write;
use super::{Machine, Taken, Token};

/// What guests change writes to has numbers from here on: nobody writes it otherwise.
const CHANGED: u64 = 1 << 48;

/// What is known of such changes.
#[derive(Debug, Default)]
pub(super) struct Change {
    is_counting: bool,
    /// Moments since they are counted.
    moments: u64,
    at: Option<u64>,
    has_come: bool,
}

impl Machine {
    /// From now on moments are counted, and at one of them the guest changes its memory.
    pub(in crate::exhaustive) fn change_at(&mut self, moment: Option<u64>) {
        self.change.is_counting = true;
        self.change.at = moment;
    }

    /// How many moments there were since then.
    pub(in crate::exhaustive) fn moments(&self) -> u64 {
        self.change.moments
    }

    /// Whether a change is still to come.
    pub(in crate::exhaustive) fn awaits_change(&self) -> bool {
        self.change.at.is_some() && !self.change.has_come
    }

    /// A moment at which the guest may change what it writes.
    pub(super) fn pass_moment(&mut self) {
        if !self.change.is_counting {
            return;
        }
        let moment = self.change.moments;
        self.change.moments += 1;
        if self.change.at == Some(moment) {
            self.change.has_come = true;
            self.change_all();
        }
    }

    fn change_all(&mut self) {
        for (cookie, pending) in &self.pending {
            let Token::Write(write) = &pending.token else {
                continue;
            };
            // Whoever zeroes hands over no memory.
            if !pending.carries {
                continue;
            }
            let mut number = CHANGED + (cookie << 16);
            let bytes = content(&mut number, pending.bytes / 512);
            let segment = self.pool.segment(&pending.buffer).part(0, pending.bytes);
            segment.copy_from_slice(&bytes);
            let offset = bytes_usize(pending.start) * 512;
            self.model.change_write(write, offset, &bytes);
        }
        // A drive may read what it writes at any time until it has answered.
        for taken in &mut self.outside.taken {
            taken.read_again();
        }
    }
}

impl Taken {
    /// Takes what is in memory now for what is written.
    pub(super) fn read_again(&mut self) {
        if self.request.operation == Operation::Write {
            self.write = Some(Write::carried_by(&self.request));
        }
    }
}
