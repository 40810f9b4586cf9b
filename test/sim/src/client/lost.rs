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
            let range = piece.array_block..piece.array_block + u64::from(piece.blocks);
            let is_lost = |set: &BTreeSet<u64>| set.range(range.clone()).next().is_some();
            let beside = |unsure: &Range<u64>| unsure.start < range.end && range.start < unsure.end;
            let mut beside_some = self.unsure.iter().chain(&self.refused);
            let writes = operation.changes() && beside_some.any(beside);
            writes || is_lost(&self.lost) || is_lost(&self.discarded)
        };
        operation != Operation::Flush && pieces.iter().any(meets)
    }

    /// All drives take all writes.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
        self.cut_off.clear();
        self.is_refused = false;
    }

    /// A write of these that nobody waits for any more may go on: the next engine does what one
    /// that stopped had begun, and what was logged is carried out although its hold was given up.
    pub(super) fn note_cut_off(&mut self, pieces: &[Piece]) {
        let ranges = pieces
            .iter()
            .map(|piece| piece.array_block..piece.array_block + u64::from(piece.blocks));
        self.cut_off.extend(ranges);
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
            let holds = |piece: &Piece| {
                let range = piece.array_block..piece.array_block + u64::from(piece.blocks);
                range.contains(&block)
            };
            let mut writes = self.pending.values();
            let is_written = writes.any(|pending| {
                pending.asked.operation.changes() && pending.pieces.iter().any(holds)
            });
            let is_cut_off = self.cut_off.iter().any(|range| range.contains(&block));
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
            for block in piece.array_block..piece.array_block + u64::from(piece.blocks) {
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
