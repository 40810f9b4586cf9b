//! Blocks that are to be written, because somebody waits or a holder lacks them, and whose turn it
//! is.

use units::{MemberIndex, bytes_usize};

use super::{ROUND_BLOCKS, RegionKeeper};

impl RegionKeeper {
    pub(super) fn enqueue(&mut self, block: u32) {
        let at = bytes_usize(u64::from(block));
        if !std::mem::replace(&mut self.queued[at], true) {
            self.queue.push_back(block);
        }
    }

    /// Some holder lacks a good copy. Where all blocks must be there, a place that is not good
    /// counts, too: both are written.
    pub(super) fn owe_block(&mut self, block: u32) {
        if let Some(twice) = &mut self.owed_twice {
            twice[bytes_usize(u64::from(block))] = true;
        }
        self.owe_once(block);
    }

    pub(super) fn owe_once(&mut self, block: u32) {
        let at = bytes_usize(u64::from(block));
        if !std::mem::replace(&mut self.owed[at], true) {
            self.owed_total += 1;
            self.owed_queue.push_back(block);
        }
    }

    /// The block that is written next: those that somebody waits for go before those that are
    /// only owed, but for the last of a round, or these would wait as long as guests write.
    pub(super) fn next_block(&mut self, position: usize) -> Option<u32> {
        let owed_first = position + 1 == ROUND_BLOCKS;
        let owed = if owed_first { self.next_owed() } else { None };
        owed.or_else(|| self.next_asked())
            .or_else(|| self.next_owed())
    }

    fn next_asked(&mut self) -> Option<u32> {
        let number = self.queue.pop_front()?;
        self.queued[bytes_usize(u64::from(number))] = false;
        Some(number)
    }

    fn next_owed(&mut self) -> Option<u32> {
        // Others were written since, because somebody asked.
        let owed = |number: &u32| self.owed[bytes_usize(u64::from(*number))];
        let skip = self.owed_queue.iter().take_while(|number| !owed(number));
        let skip = skip.count();
        self.owed_queue.drain(..skip);
        self.owed_queue.pop_front()
    }

    /// `member` is filled by a new drive, which has no copies.
    pub(in crate::shard) fn owe(&mut self, member: MemberIndex) {
        for block in 0..self.space.blocks() {
            let number = u32::try_from(block).expect("few blocks");
            let holds = self.space.holders(number).any(|other| other == member);
            // What was never written is clean without a copy.
            let written = self.sequences[block] > 0 || self.queued[block];
            if holds && written {
                self.owe_block(number);
            }
        }
    }

    /// Whether some holder in use still lacks a block.
    pub(in crate::shard) fn owes_copies(&self) -> bool {
        self.owed_total > 0
    }
}
