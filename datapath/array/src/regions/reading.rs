//! What a start finds of the region map on the drives, and which of it counts.

use units::{MemberIndex, StripeIndex, Update, bytes_usize};

use super::RegionMap;
#[cfg(test)]
use super::{RegionSpace, Uuid};
use crate::format::{
    ArrayConfig, FormatError, REGION_BLOCK_REGIONS, RegionBlock, RegionEntry, RegionKind,
    Superblock,
};
use crate::planted::{self, Fault};

/// A block is written less often than that from one update to the next.
pub(super) const LOST_SHIFT: u32 = 20;
/// No block comes as far by itself; from there on numbers would end.
const SEQUENCE_END: u64 = 1 << 63;

/// Which blocks of a map its members must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// One that is blank on all members was never written.
    AsWritten,
    /// All were written when the array was made: one that is blank on all members is lost.
    Mapped,
    /// The same, and regions may be unwritten: a blank place may be the newest that is lost.
    All,
    /// Besides, the array was stopped when no block was being written: no place is torn.
    AllWhole,
}

impl Blocks {
    /// Whether regions may be unwritten: every place counts.
    pub(super) fn exist(self) -> bool {
        match self {
            Blocks::AsWritten | Blocks::Mapped => false,
            Blocks::All | Blocks::AllWhole => true,
        }
    }
}

/// The copies of a block: bit i for holder i.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// Was looked at.
    seen: u64,
    /// Has the newest.
    pub(super) newest: u64,
    /// A place of it is damaged, or it could not be read.
    damaged: u64,
    /// A place of it reads as zeroes.
    blank: u64,
}

impl Copies {
    /// Of a new map, which all have.
    pub(super) const NEW: Copies = Copies {
        seen: u64::MAX,
        newest: u64::MAX,
        damaged: 0,
        blank: 0,
    };
}

impl RegionMap {
    /// The map to be read of an array: its record says whether all blocks were written once.
    #[must_use]
    pub fn to_read(superblock: &Superblock, config: &ArrayConfig) -> RegionMap {
        RegionMap {
            blocks: match (config.features.has_unwritten(), config.clean) {
                (false, _) if config.features.is_mapped() => Blocks::Mapped,
                (false, _) => Blocks::AsWritten,
                (true, false) => Blocks::All,
                (true, true) => Blocks::AllWhole,
            },
            lost_from: config.update.0.min(SEQUENCE_END >> LOST_SHIFT) << LOST_SHIFT,
            // That of the record under way, perhaps.
            latest: Update(config.update.0 + 1),
            ..RegionMap::new(superblock.regions(), superblock.array)
        }
    }

    /// Takes one of the two places of `block` on `member`, a member that is in sync. Copies that
    /// nobody shall hold are ignored.
    pub fn take(&mut self, member: MemberIndex, block: u32, bytes: &[u8]) {
        let at = bytes_usize(u64::from(block));
        let Some(bit) = self.holder(member, block) else {
            return;
        };
        self.copies[at].seen |= bit;
        let is_ours = |found: &RegionBlock| {
            let sound = found.sequence < SEQUENCE_END;
            sound && found.array == self.array && found.number == block
        };
        let found = match RegionBlock::decode(bytes) {
            Ok(found) if is_ours(&found) => found,
            Err(FormatError::Blank) => {
                self.copies[at].blank |= bit;
                return self.agree(at, bit, 0);
            }
            Ok(_) | Err(_) => {
                // Torn when the engine was stopped while it was written; the other place counts.
                self.copies[at].damaged |= bit;
                return;
            }
        };
        let oldest = planted::is(Fault::OldestRegionsDecide) && found.sequence < self.sequences[at];
        if found.sequence > self.sequences[at] || oldest {
            self.sequences[at] = found.sequence;
            self.copies[at].newest = 0;
            for (entry, region) in found.entries.iter().zip(self.space.regions(block)) {
                let epoch = entry.epoch.min(self.latest);
                self.entries[region] = RegionEntry { epoch, ..*entry };
            }
        }
        self.agree(at, bit, found.sequence);
    }

    /// `member` cannot read its copy of `block`.
    pub fn miss(&mut self, member: MemberIndex, block: u32) {
        let bit = self.holder(member, block).filter(|_| self.blocks.exist());
        self.copies[bytes_usize(u64::from(block))].damaged |= bit.unwrap_or(0);
    }

    fn holder(&self, member: MemberIndex, block: u32) -> Option<u64> {
        let mut holders = self.space.holders(block);
        let holder = holders.position(|other| other == member)?;
        Some(1 << holder)
    }

    fn agree(&mut self, block: usize, holder: u64, sequence: u64) {
        if self.sequences[block] == sequence {
            self.copies[block].newest |= holder;
        }
    }

    /// All copies were taken. Blocks of which no good copy was found are called dirty, unless
    /// they were never written.
    pub fn complete(&mut self) {
        for block in 0..self.space.blocks() {
            let Copies {
                seen,
                newest,
                damaged,
                ..
            } = self.copies[block];
            let exist = self.blocks.exist();
            let nothing = self.sequences[block] == 0 && damaged == 0;
            let blank = nothing && seen != 0 && self.blocks == Blocks::AsWritten;
            let found = newest != 0 && self.sequences[block] > 0;
            if !blank && (!found || self.is_rotten(block)) {
                self.lose(block);
            } else if exist {
                let doubtful = self.doubtful(block);
                if self.blocks == Blocks::AllWhole {
                    self.erase(block, doubtful & !newest);
                }
                // Written anew, so that a place that is torn now is not found by a later start;
                self.copies[block].newest &= !doubtful;
                if damaged & !seen != 0 {
                    // and with another number than what could not be read may have.
                    self.skip_numbers(block);
                }
            }
        }
    }

    /// Nothing is known of a block: its regions are dirty.
    fn lose(&mut self, block: usize) {
        self.unknown[block] = true;
        self.skip_numbers(block);
        let Copies { seen, damaged, .. } = self.copies[block];
        self.copies[block].newest = 0;
        if self.blocks.exist() {
            self.erase(block, seen | damaged);
        }
        let number = u32::try_from(block).expect("few blocks");
        for region in self.space.regions(number) {
            self.entries[region].kind = RegionKind::Dirty;
        }
    }

    /// A block goes on with numbers above all that some copy may have. Its next write goes to the
    /// place where the newest is not, as ever: it may be torn.
    fn skip_numbers(&mut self, block: usize) {
        let place = self.sequences[block] & 1;
        self.sequences[block] = self.sequences[block].max(self.lost_from + place);
    }

    fn erase(&mut self, block: usize, holders: u64) {
        let number = u32::try_from(block).expect("few blocks");
        let holds = self.space.holders(number).enumerate();
        let holds = holds.filter(|(at, _)| holders & (1 << at) != 0);
        let copies = holds.map(|(_, member)| (member, number));
        self.to_erase.extend(copies);
    }

    /// Copies of which it is known now that they are no good, but would not be by what is on the
    /// drives once the next record is there: both places are to be zeroes before that.
    #[must_use]
    pub fn to_erase(&self) -> &[(MemberIndex, u32)] {
        &self.to_erase
    }

    /// Holders with a place that may have been newer than what was found.
    fn doubtful(&self, block: usize) -> u64 {
        let Copies { damaged, blank, .. } = self.copies[block];
        // When the array is made both places are written.
        damaged | if self.blocks.exist() { blank } else { 0 }
    }

    /// Whether what cannot be read of a block may be the newest of it: where nothing can be torn,
    /// only a holder without damage says which that is.
    fn is_rotten(&self, block: usize) -> bool {
        let doubtful = self.doubtful(block);
        let well = self.copies[block].newest & !doubtful;
        self.blocks == Blocks::AllWhole && doubtful != 0 && well == 0
    }

    /// Whether a holder without damage has told of a block, or no more than a resync depends on
    /// it: nobody else needs to be asked.
    #[must_use]
    pub fn is_told(&self, block: u32) -> bool {
        let at = bytes_usize(u64::from(block));
        let well = self.copies[at].newest & !self.doubtful(at);
        !self.blocks.exist() || (self.sequences[at] > 0 && well != 0)
    }

    /// The map of an array with unwritten regions of which nothing can be read.
    #[cfg(test)]
    pub(crate) fn lost(space: RegionSpace, array: Uuid) -> RegionMap {
        let mut map = RegionMap {
            blocks: Blocks::All,
            ..RegionMap::new(space, array)
        };
        map.complete();
        map
    }

    /// Of an array with unwritten regions, the stripes of which nobody can tell whether they were
    /// written: first, and the one after the last. Such a region reads as what its members hold.
    pub fn untold(&self) -> impl Iterator<Item = (StripeIndex, StripeIndex)> {
        let blocks = 0..self.space.blocks();
        let unknown = blocks.filter(|&block| self.blocks.exist() && self.unknown[block]);
        unknown.map(|block| {
            let regions = self
                .space
                .regions(u32::try_from(block).expect("few blocks"));
            let number = |region: usize| u32::try_from(region).expect("at most REGIONS_MAX");
            let (first, _) = self.space.stripes(number(regions.start));
            (first, self.space.stripes(number(regions.end - 1)).1)
        })
    }

    /// A region was written for certain: should the map call it unwritten, a newer block was on
    /// all holders, and nothing that this one says counts.
    pub(crate) fn note_written(&mut self, region: u32) {
        let at = bytes_usize(u64::from(region));
        if self.entries[at].kind == RegionKind::Unwritten {
            self.lose(at / REGION_BLOCK_REGIONS);
        }
    }
}
