//! What writes of a drive leave there.

use std::ops::Range;

use units::bytes_usize;

use super::SimDrive;

impl SimDrive {
    /// Stores what a write carries.
    pub(super) fn take_in(&mut self, blocks: Range<u64>, bytes: &[u8]) {
        if self.forgets.is_empty() {
            self.keep(blocks.start, bytes);
            self.are_well(blocks);
            return;
        }
        let contents = bytes.chunks_exact(bytes_usize(self.block));
        for (block, content) in blocks.zip(contents) {
            if !self.forgets.contains(&block) {
                self.keep(block, content);
                self.are_well(block..block + 1);
            }
        }
    }

    /// These blocks were written: they can be read.
    pub(super) fn are_well(&mut self, blocks: Range<u64>) {
        if self.bad.is_empty() && self.refused.is_empty() {
            return;
        }
        for block in blocks {
            self.bad.remove(&block);
            self.refused.remove(&block);
        }
    }

    pub(super) fn keep(&mut self, block: u64, contents: &[u8]) {
        if self.keeps_all {
            let contents = contents.chunks_exact(bytes_usize(self.block));
            for (block, content) in (block..).zip(contents) {
                self.store.write_through(block, content);
            }
        } else {
            self.store.write(block, contents);
        }
    }
}
