//! The list of lost blocks: those of an array that nobody can tell any more, because more copies of
//! them could not be read than there is parity, or because their members cannot read them and the
//! parity may be torn from what they held. A read of one fails until it is written.
//!
//! The list is durable (`format`), every shard has it with its map, and it is bounded. How blocks
//! come onto it and leave it is in `shard/losses.rs`; why in that order, in
//! docs/design/006-lost-blocks.md.

use std::ops::Range;

use units::limits::ARRAY_LOST_WORDS_MAX;
use units::{MemberIndex, RoleSet, StripeIndex};

use crate::geometry::Geometry;

/// Blocks of a word of the list.
pub(crate) const LOST_WORD_BLOCKS: u32 = 64;
const WORD_BLOCKS: u64 = 64;

/// Which of 64 consecutive blocks of an array are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostWord {
    /// The first block, divided by 64.
    pub group: u64,
    /// Bit i for block i of them; not zero.
    pub mask: u64,
}

/// Blocks of an array that are lost, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostBlocks {
    words: Vec<LostWord>,
}

impl LostBlocks {
    /// The list that these words are; `None` when they are not in order or too many.
    #[must_use]
    pub fn of_words(words: Vec<LostWord>) -> Option<LostBlocks> {
        let in_order = words.is_sorted_by(|one, next| one.group < next.group);
        let well = in_order && words.iter().all(|word| word.mask != 0);
        let list = LostBlocks { words };
        (well && list.fits()).then_some(list)
    }

    /// The list as words.
    #[must_use]
    pub fn words(&self) -> &[LostWord] {
        &self.words
    }

    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many blocks are lost.
    #[must_use]
    pub fn count(&self) -> u64 {
        let bits = |word: &LostWord| u64::from(word.mask.count_ones());
        self.words.iter().map(bits).sum()
    }

    /// Whether there is room for as many words.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.words.len() <= ARRAY_LOST_WORDS_MAX
    }

    /// The block after the last one of the list.
    #[must_use]
    pub fn end(&self) -> u64 {
        let end = |word: &LostWord| {
            let last = u64::from(63 - word.mask.leading_zeros());
            let base = word.group.saturating_mul(WORD_BLOCKS);
            base.saturating_add(last).saturating_add(1)
        };
        self.words.last().map_or(0, end)
    }

    /// The first lost block of a range.
    #[must_use]
    pub fn first_in(&self, range: Range<u64>) -> Option<u64> {
        let from = range.start / WORD_BLOCKS;
        let at = self.words.partition_point(|word| word.group < from);
        for word in &self.words[at..] {
            let base = word.group.saturating_mul(WORD_BLOCKS);
            if base >= range.end {
                return None;
            }
            let mask = word.mask & mask_from(range.start.saturating_sub(base));
            if mask != 0 {
                let block = base.saturating_add(mask.trailing_zeros().into());
                return (block < range.end).then_some(block);
            }
        }
        None
    }

    /// Whether a block is lost.
    #[must_use]
    pub fn has(&self, block: u64) -> bool {
        self.first_in(block..block + 1).is_some()
    }

    /// How many blocks of a range, from its first on, are all lost or all not; and which.
    #[must_use]
    pub fn run(&self, range: Range<u64>) -> (u64, bool) {
        let Some(first) = self.first_in(range.clone()) else {
            return (range.end - range.start, false);
        };
        if first > range.start {
            return (first - range.start, false);
        }
        let mut end = range.start + 1;
        while end < range.end && self.has(end) {
            end += 1;
        }
        (end - range.start, true)
    }

    /// The lost blocks as runs: first block and how many.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = self.end();
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = self.first_in(from..end)?;
            let (count, _) = self.run(first..end);
            from = first + count;
            Some((first, count))
        })
    }

    /// Whether a start may go on although a member does not take what is to be done again in a
    /// block. `is_bad`: it cannot be read either, and its drive is there. Then it is what it was
    /// before: one of those of which nobody can tell what they held, or parity of such. What can be
    /// read is old, and would be believed.
    #[must_use]
    pub fn may_be_left_out(
        &self,
        geometry: &Geometry,
        (member, member_block): (MemberIndex, u64),
        is_bad: impl FnOnce() -> bool,
    ) -> bool {
        self.row_has(geometry, member, member_block) && is_bad()
    }

    /// Whether nobody can tell what a block of a member's chunk holds, or if it is parity, what
    /// some block in its row does.
    #[must_use]
    pub fn row_has(&self, geometry: &Geometry, member: MemberIndex, member_block: u64) -> bool {
        let stripe = geometry.stripe_at(member, member_block);
        let Some(role) = geometry.role(stripe, member) else {
            return false;
        };
        let chunk = u64::from(geometry.chunk_blocks());
        let lane = u32::try_from(member_block % chunk).expect("below the chunk");
        let data = geometry.data_roles();
        let rows = Rows {
            stripe,
            start: lane,
            end: lane + 1,
            roles: if data.has(role) {
                RoleSet::one(role)
            } else {
                data
            },
        };
        rows.blocks(geometry)
            .any(|range| self.first_in(range).is_some())
    }

    /// Puts blocks on the list. See [`LostBlocks::fits`].
    pub fn add(&mut self, range: Range<u64>) {
        for block in range {
            let (group, bit) = (block / WORD_BLOCKS, 1 << (block % WORD_BLOCKS));
            let at = self.words.partition_point(|word| word.group < group);
            match self.words.get_mut(at) {
                Some(word) if word.group == group => word.mask |= bit,
                Some(_) | None => self.words.insert(at, LostWord { group, mask: bit }),
            }
        }
    }

    /// Takes blocks from the list.
    pub fn remove(&mut self, range: Range<u64>) {
        for word in &mut self.words {
            let base = word.group.saturating_mul(WORD_BLOCKS);
            let from = mask_from(range.start.saturating_sub(base));
            let behind = mask_from(range.end.saturating_sub(base));
            word.mask &= !(from & !behind);
        }
        self.words.retain(|word| word.mask != 0);
    }
}

/// The bits from this one on.
fn mask_from(bit: u64) -> u64 {
    if bit >= WORD_BLOCKS {
        0
    } else {
        u64::MAX << bit
    }
}

/// Some rows of a stripe, and which of its data chunks are meant there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Which stripe.
    pub stripe: StripeIndex,
    /// First block within each chunk.
    pub start: u32,
    /// The block after the last.
    pub end: u32,
    /// Data roles.
    pub roles: RoleSet,
}

impl Rows {
    /// The blocks of the array that these are, as ranges.
    pub fn blocks(self, geometry: &Geometry) -> impl Iterator<Item = Range<u64>> + use<> {
        let stripe = self.stripe.0 * u64::from(geometry.stripe_blocks());
        let chunk = u64::from(geometry.chunk_blocks());
        self.roles.iter().map(move |role| {
            let base = stripe + u64::from(role.0) * chunk;
            base + u64::from(self.start)..base + u64::from(self.end)
        })
    }

    /// How many blocks these are.
    #[must_use]
    pub fn count(self) -> u64 {
        units::bytes_u64(self.roles.len()) * u64::from(self.end - self.start)
    }
}

/// What is to become of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossChange {
    /// They are given up.
    GivenUp,
    /// They were written anew.
    Healed,
}

impl LossChange {
    /// Makes the change.
    pub fn apply(self, list: &mut LostBlocks, rows: Rows, geometry: &Geometry) {
        for range in rows.blocks(geometry) {
            match self {
                LossChange::GivenUp => list.add(range),
                LossChange::Healed => list.remove(range),
            }
        }
    }

    /// Whether a list is as it says already.
    #[must_use]
    pub fn is_made(self, list: &LostBlocks, rows: Rows, geometry: &Geometry) -> bool {
        rows.blocks(geometry).all(|range| match self {
            LossChange::GivenUp => {
                let length = range.end - range.start;
                list.run(range) == (length, true)
            }
            LossChange::Healed => list.first_in(range).is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(blocks: &[u64]) -> LostBlocks {
        let mut list = LostBlocks::default();
        for &block in blocks {
            list.add(block..block + 1);
        }
        list
    }

    #[test]
    fn exactly_the_blocks_that_were_added_are_lost() {
        let blocks = [0, 1, 63, 64, 200, 640];
        let list = list(&blocks);
        for block in 0..700 {
            assert_eq!(list.has(block), blocks.contains(&block), "block {block}");
        }
        assert_eq!((list.count(), list.end(), list.words().len()), (6, 641, 4));
        let runs: Vec<(u64, u64)> = list.runs().collect();
        assert_eq!(runs, [(0, 2), (63, 2), (200, 1), (640, 1)]);
    }

    #[test]
    fn a_list_is_the_same_in_whichever_order_blocks_are_added() {
        let blocks = [640, 0, 200, 63, 64, 1];
        let mut sorted = blocks;
        sorted.sort_unstable();
        assert_eq!(list(&blocks), list(&sorted));
        assert_eq!(list(&blocks).count(), 6);
    }

    #[test]
    fn what_is_removed_is_not_lost_and_nothing_around_it_is_touched() {
        let mut list = list(&[60, 61, 62, 63, 64, 65, 130]);
        list.remove(62..65);
        let runs: Vec<(u64, u64)> = list.runs().collect();
        assert_eq!(runs, [(60, 2), (65, 1), (130, 1)]);
        list.remove(0..u64::MAX);
        assert_eq!(list, LostBlocks::default());
    }

    #[test]
    fn a_range_begins_with_a_run() {
        let list = list(&[5, 6, 64]);
        assert_eq!(list.run(0..100), (5, false));
        assert_eq!(list.run(5..100), (2, true));
        assert_eq!(list.run(5..6), (1, true));
        assert_eq!(list.run(7..64), (57, false));
        assert_eq!(list.first_in(7..64), None);
        assert_eq!(list.first_in(7..65), Some(64));
    }

    #[test]
    fn words_out_of_order_or_too_many_are_no_list() {
        let word = |group, mask| LostWord { group, mask };
        assert!(LostBlocks::of_words(vec![word(3, 1), word(4, 2)]).is_some());
        assert!(LostBlocks::of_words(vec![word(4, 1), word(4, 2)]).is_none());
        assert!(LostBlocks::of_words(vec![word(4, 1), word(3, 2)]).is_none());
        assert!(LostBlocks::of_words(vec![word(4, 0)]).is_none());
        let most = u64::try_from(ARRAY_LOST_WORDS_MAX).expect("few");
        let words = |count| (0..count).map(|group| word(group, 1)).collect();
        assert!(LostBlocks::of_words(words(most)).is_some());
        assert!(LostBlocks::of_words(words(most + 1)).is_none());
        // Of a forged record.
        assert_eq!(list(&[3]).first_in(u64::MAX - 1..u64::MAX), None);
        let far = LostBlocks::of_words(vec![word(u64::MAX, 1 << 63)]);
        assert_eq!(far.map(|list| list.end()), Some(u64::MAX));
    }

    #[test]
    fn what_hangs_on_a_lost_block_is_it_and_the_parity_of_its_row() {
        use crate::geometry::{GeometryParameters, Level};
        let geometry = Geometry::new(GeometryParameters {
            level: Level::L5,
            members: 3,
            parity: None,
            group_size: None,
            chunk_bytes: 4096,
            block: units::BlockSize::B512,
            member_data_blocks: 32,
        });
        let geometry = geometry.expect("a good shape");
        for lost in [0, 5, 17, 43, 63] {
            let (place, list) = (geometry.place(lost), list(&[lost]));
            for (member, block) in (0..3).flat_map(|member| (0..32).map(move |at| (member, at))) {
                let member = MemberIndex(member);
                let stripe = geometry.stripe_at(member, block);
                let role = geometry.role(stripe, member).expect("one group");
                let lane = u64::from(place.block_in_chunk);
                let in_row = stripe == place.stripe && block % 8 == lane;
                let is_it = role == place.role || geometry.parity_roles().has(role);
                let hangs = in_row && is_it;
                assert_eq!(list.row_has(&geometry, member, block), hangs);
                for is_bad in [false, true] {
                    let left = list.may_be_left_out(&geometry, (member, block), || is_bad);
                    assert_eq!(left, hangs && is_bad, "{lost}: {block} of {member}");
                }
            }
        }
    }
}
