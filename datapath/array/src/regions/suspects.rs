//! Sets of regions.

use units::{StripeIndex, bytes_u64, bytes_usize};

use super::RegionSpace;

/// A set of regions: those whose parity is not trusted until a resync has been there, or those
/// that a member has missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspects {
    space: RegionSpace,
    words: Vec<u64>,
}

impl Suspects {
    /// None.
    #[must_use]
    pub fn none(space: &RegionSpace) -> Suspects {
        Suspects {
            space: *space,
            words: vec![0; space.count().div_ceil(64)],
        }
    }

    /// All.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn all(space: &RegionSpace) -> Suspects {
        let mut suspects = Suspects::none(space);
        for region in 0..space.count() {
            suspects.add(region);
        }
        suspects
    }

    pub(super) fn add(&mut self, region: usize) {
        self.words[region / 64] |= 1 << (region % 64);
    }

    pub(crate) fn space(&self) -> &RegionSpace {
        &self.space
    }

    /// Those of which `is` says so.
    pub(crate) fn of(space: &RegionSpace, is: impl Fn(usize) -> bool) -> Suspects {
        let mut suspects = Suspects::none(space);
        for region in (0..space.count()).filter(|region| is(*region)) {
            suspects.add(region);
        }
        suspects
    }

    /// How many regions there are, whether or not they are in it.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.space.count()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        let ones = |word: &u64| bytes_usize(u64::from(word.count_ones()));
        self.words.iter().map(ones).sum()
    }

    /// How many end behind `from`.
    pub(crate) fn count_from(&self, from: StripeIndex) -> u64 {
        let region = bytes_usize(from.0 >> self.space.shift);
        let Some((first, behind)) = self.words.get(region / 64..).and_then(<[u64]>::split_first)
        else {
            return 0;
        };
        let ones = |word: &u64| u64::from(word.count_ones());
        ones(&(first >> (region % 64))) + behind.iter().map(ones).sum::<u64>()
    }

    /// How many regions end behind `from`, whether or not they are in it.
    pub(crate) fn regions_from(&self, from: StripeIndex) -> u64 {
        bytes_u64(self.space.count()).saturating_sub(from.0 >> self.space.shift)
    }

    /// Whether the stripe lies in such a region.
    #[must_use]
    pub fn has(&self, stripe: StripeIndex) -> bool {
        self.has_region(bytes_usize(stripe.0 >> self.space.shift))
    }

    fn has_region(&self, region: usize) -> bool {
        self.words[region / 64] & (1 << (region % 64)) != 0
    }

    /// How many stripes lie in such regions from `from` on.
    #[must_use]
    pub fn stripes_from(&self, from: StripeIndex) -> u64 {
        let mut sum = 0;
        let mut next = from;
        while let Some((start, end)) = self.run_from(next) {
            sum += end.0 - start.0;
            next = end;
        }
        sum
    }

    /// The first run of such stripes from `from` on: first, and the one after the last.
    #[must_use]
    pub fn run_from(&self, from: StripeIndex) -> Option<(StripeIndex, StripeIndex)> {
        let count = self.space.count();
        let mut region = bytes_usize(from.0 >> self.space.shift);
        while region < count && !self.has_region(region) {
            // Whole words at a time where nothing is.
            region = if region.is_multiple_of(64) && self.words[region / 64] == 0 {
                region + 64
            } else {
                region + 1
            };
        }
        // The last region may be cut short, and then the end lies in it.
        if region >= count || from.0 >= self.space.stripes {
            return None;
        }
        let first = u32::try_from(region).expect("at most REGIONS_MAX");
        while region < count && self.has_region(region) {
            region += 1;
        }
        let last = u32::try_from(region - 1).expect("at most REGIONS_MAX");
        let start = self.space.stripes(first).0.max(from);
        Some((start, self.space.stripes(last).1))
    }
}
