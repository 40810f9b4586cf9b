//! Cuts a range of one stripe into bands: lanes that write the same set of data chunks.

use std::ops::Range;

use units::{Role, RoleSet};

/// Lanes of one stripe in which a range covers the same data chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// Blocks within the chunk; not empty.
    pub lanes: Range<u32>,
    /// The data roles whose blocks in these lanes are all in the range; not empty.
    pub written: RoleSet,
}

/// At most three bands, in ascending order of lanes, not overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bands {
    bands: [Band; 3],
    count: usize,
}

impl Bands {
    /// The bands as a slice.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Band] {
        &self.bands[..self.count]
    }

    /// The bands one after another.
    pub fn iter(&self) -> std::slice::Iter<'_, Band> {
        self.as_slice().iter()
    }

    /// The only band there is.
    #[inline]
    fn one(lanes: Range<u32>, chunk: usize) -> Bands {
        let written = RoleSet::one(Role::from_at(chunk));
        let [_, second, third]: [Band; 3] = Default::default();
        Bands {
            bands: [Band { lanes, written }, second, third],
            count: 1,
        }
    }

    fn push(&mut self, lanes: Range<u32>, first: usize, end: usize) {
        if !lanes.is_empty() && first < end {
            let written = RoleSet::range(first, end);
            self.bands[self.count] = Band { lanes, written };
            self.count += 1;
        }
    }
}

impl<'a> IntoIterator for &'a Bands {
    type Item = &'a Band;
    type IntoIter = std::slice::Iter<'a, Band>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Cuts `blocks` blocks from block `start` of a stripe of `k` data chunks into bands. The union of
/// lanes × roles is exactly the range.
///
/// # Panics
/// When the range is empty or not inside the stripe.
#[inline]
#[must_use]
pub fn bands(chunk_blocks: u32, k: usize, start: u32, blocks: u32) -> Bands {
    let end = start.checked_add(blocks).expect("a range inside a stripe");
    let stripe_blocks = u32::try_from(k).expect("k is at most 64") * chunk_blocks;
    if blocks == 0 || end > stripe_blocks {
        outside((start, blocks), stripe_blocks);
    }
    let chunk = |block: u32| usize::try_from(block / chunk_blocks).expect("below 64");
    let (first, last) = (chunk(start), chunk(end - 1));
    let (head, tail) = (start % chunk_blocks, (end - 1) % chunk_blocks + 1);

    if first == last {
        return Bands::one(head..tail, first);
    }
    let mut bands = Bands::default();
    // The first chunk covers the lanes from `head` on, the last those below `tail`, the chunks
    // between them all lanes.
    let (low, high) = (head.min(tail), head.max(tail));
    bands.push(0..low, first + 1, last + 1);
    if head <= tail {
        bands.push(low..high, first, last + 1);
    } else {
        bands.push(low..high, first + 1, last);
    }
    bands.push(high..chunk_blocks, first, last);
    bands
}

#[cold]
#[inline(never)]
fn outside((start, blocks): (u32, u32), stripe_blocks: u32) -> ! {
    panic!("blocks {start}+{blocks} of a stripe of {stripe_blocks}")
}
