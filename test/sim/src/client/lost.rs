//! What guests know of blocks that nobody can tell, or that drives refuse.

use std::collections::BTreeSet;
use std::ops::Range;

use block::Operation;
use volume::Piece;

use super::Client;

impl Client {
    /// Whether a request may fail because of what is lost.
    pub(super) fn may_meet_lost(&self, operation: Operation, pieces: &[Piece]) -> bool {
        let meets = |piece: &Piece| {
            let range = blocks_of(piece);
            let is_lost = |set: &BTreeSet<u64>| set.range(range.clone()).next().is_some();
            let beside = |unsure: &Range<u64>| unsure.start < range.end && range.start < unsure.end;
            let mut beside_some = self.unsure.iter().chain(&self.refused);
            let writes = operation.changes() && beside_some.any(beside);
            writes || is_lost(&self.lost) || is_lost(&self.discarded)
        };
        operation != Operation::Flush && pieces.iter().any(meets)
    }

    /// Drives take all writes again, and none waits that they refused: later ones do not fail.
    pub fn forget_refused_stripes(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        for pending in pending.values_mut() {
            pending.may_fail |= self.may_meet_lost(pending.asked.operation, &pending.pieces);
        }
        self.pending = pending;
        self.refused.clear();
    }

    /// What is under way and meets this block may fail: the engine that goes on with it has given
    /// the block up.
    pub fn may_fail_at(&mut self, block: u64) {
        for pending in self.pending.values_mut() {
            let holds = |piece: &Piece| blocks_of(piece).contains(&block);
            pending.may_fail |= pending.pieces.iter().any(holds);
        }
    }

    /// All drives take all writes.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
        self.cut_off.clear();
        self.is_refused = false;
    }

    /// A write of these that nobody waits for any more may go on: the next engine does what one
    /// that stopped had begun, and what was logged is carried out although its hold was given up.
    pub(super) fn note_cut_off(&mut self, operation: Operation, pieces: &[Piece]) {
        if is_write(operation) {
            self.cut_off.extend(pieces.iter().flat_map(blocks_of));
        }
    }

    /// One that was answered well came after all that was cut off there.
    pub(super) fn forget_cut_off(&mut self, operation: Operation, pieces: &[Piece]) {
        if is_write(operation) && !self.cut_off.is_empty() {
            for block in pieces.iter().flat_map(blocks_of) {
                self.cut_off.remove(&block);
            }
        }
    }

    /// Blocks are given up because the parity that they were written with was refused: only what
    /// is being written, or may fail anyway.
    ///
    /// # Panics
    /// When others are given up.
    pub fn give_up_written(&mut self, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            // What no volume covers stays on the list from before.
            let covered = self.place_of(block).is_some();
            if !covered || self.lost.contains(&block) || self.discarded.contains(&block) {
                continue;
            }
            let holds = |piece: &Piece| blocks_of(piece).contains(&block);
            let mut writes = self.pending.values();
            let is_written = writes.any(|pending| {
                pending.asked.operation.changes() && pending.pieces.iter().any(holds)
            });
            let is_cut_off = self.cut_off.contains(&block);
            assert!(
                is_written || is_cut_off,
                "block {block} is given up, and nobody writes it"
            );
            self.lost.insert(block);
        }
    }

    /// What was written is not lost.
    pub(super) fn forget_lost(&mut self, operation: Operation, pieces: &[Piece]) {
        for piece in pieces.iter().filter(|_| operation.changes()) {
            for block in blocks_of(piece) {
                let was_lost = self.lost.remove(&block);
                if operation == Operation::Discard {
                    if was_lost {
                        self.discarded.insert(block);
                    }
                } else {
                    self.discarded.remove(&block);
                }
            }
        }
    }
}

/// The blocks of the array that a piece covers.
fn blocks_of(piece: &Piece) -> Range<u64> {
    piece.array_block..piece.array_block + u64::from(piece.blocks)
}

/// Whether it goes by parity that a drive may refuse.
fn is_write(operation: Operation) -> bool {
    operation.changes() && operation != Operation::Discard
}
