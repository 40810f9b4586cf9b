//! What several writes of one cell write together, as bands.

use std::ops::Range;

use units::RoleSet;

use super::Band;

/// The most bands of what is put together. A plan takes three; on the way to a whole stripe it may
/// be more for a while.
const BANDS_MAX: usize = 8;
/// Where bands of both sides may begin or end: those that are there, and three more.
const EDGES_MAX: usize = 2 * (BANDS_MAX + 3);

/// Bands in ascending order of lanes, not overlapping; neighbours differ in what they write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Union {
    bands: [Band; BANDS_MAX],
    count: usize,
}

impl Union {
    /// What these bands write, at most [`BANDS_MAX`].
    pub(crate) fn of<'a>(bands: impl Iterator<Item = &'a Band>) -> Union {
        let mut all = Union::default();
        for band in bands {
            all.bands[all.count] = band.clone();
            all.count += 1;
        }
        all
    }

    /// The bands as a slice.
    pub(crate) fn as_slice(&self) -> &[Band] {
        &self.bands[..self.count]
    }

    /// Adds what other bands write, at most three. `false`, and nothing is changed, if some block
    /// would be written twice or the bands would be too many.
    pub(crate) fn add(&mut self, more: &[Band]) -> bool {
        if let ([mine], [other]) = (&mut self.bands[..self.count], more)
            && mine.lanes == other.lanes
        {
            // Pieces of one size, each of another chunk.
            let is_new = !mine.written.meets(other.written);
            if is_new {
                mine.written = mine.written.union(other.written);
            }
            return is_new;
        }
        let mut edges = [0; EDGES_MAX];
        let both = self.as_slice().iter().chain(more);
        let ends = both.flat_map(|band| [band.lanes.start, band.lanes.end]);
        let mut count = 0;
        for (edge, end) in edges.iter_mut().zip(ends) {
            *edge = end;
            count += 1;
        }
        let edges = &mut edges[..count];
        edges.sort_unstable();
        let mut all = Union::default();
        for pair in edges.windows(2) {
            let lanes = pair[0]..pair[1];
            let mine = written_at(self.as_slice(), lanes.start);
            let theirs = written_at(more, lanes.start);
            if lanes.is_empty() || mine.union(theirs).is_empty() {
                continue;
            }
            if mine.meets(theirs) || !all.push(lanes, mine.union(theirs)) {
                return false;
            }
        }
        *self = all;
        true
    }

    /// Appends a band behind all others; whether there is room.
    fn push(&mut self, lanes: Range<u32>, written: RoleSet) -> bool {
        let last = self.bands[..self.count].last_mut();
        if let Some(last) = last.filter(|last| last.lanes.end == lanes.start)
            && last.written == written
        {
            last.lanes.end = lanes.end;
            return true;
        }
        let Some(free) = self.bands.get_mut(self.count) else {
            return false;
        };
        *free = Band { lanes, written };
        self.count += 1;
        true
    }
}

/// What is written in a lane.
fn written_at(bands: &[Band], lane: u32) -> RoleSet {
    let has_it = bands.iter().find(|band| band.lanes.contains(&lane));
    has_it.map_or(RoleSet::EMPTY, |band| band.written)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::bands;
    use super::*;

    /// The blocks that bands write, as (lane, role).
    fn blocks(bands: &[Band]) -> BTreeSet<(u32, usize)> {
        let all = bands.iter().flat_map(|band| {
            let roles: Vec<usize> = band.written.iter().map(units::Role::at).collect();
            band.lanes
                .clone()
                .flat_map(move |lane| roles.clone().into_iter().map(move |role| (lane, role)))
        });
        all.collect()
    }

    #[test]
    fn pieces_in_order_become_the_stripe_that_they_are_cut_from() {
        // 48 KiB of stripes of 4 x 64 KiB, beginning 16 KiB into one.
        let (chunk, k) = (16, 4);
        let mut union = Union::of(bands(chunk, k, 0, 4).iter());
        let mut start = 4;
        while start < 64 {
            assert!(union.add(bands(chunk, k, start, 12).as_slice()));
            start += 12;
            let whole = bands(chunk, k, 0, start);
            assert_eq!(union.as_slice(), whole.as_slice(), "up to block {start}");
        }
        assert_eq!(union.as_slice().len(), 1);
    }

    #[test]
    fn it_is_all_that_either_writes_or_nothing_is_changed() {
        let (chunk, k) = (5, 2);
        let pieces: Vec<_> = (0..chunk * 2)
            .flat_map(|start| [1, 2, 4, 7].map(|length| (start, length)))
            .filter(|(start, length)| start + length <= chunk * 2)
            .map(|(start, length)| bands(chunk, k, start, length))
            .collect();
        let (mut taken, mut refused) = (0, 0);
        for one in &pieces {
            for two in &pieces {
                for three in &pieces {
                    let mut union = Union::of(one.iter());
                    let mut all = blocks(one.as_slice());
                    for more in [two, three] {
                        let theirs = blocks(more.as_slice());
                        let before = union.clone();
                        let fits = union.add(more.as_slice());
                        // Five lanes never make more than eight bands.
                        assert_eq!(fits, all.is_disjoint(&theirs), "{before:?} and {more:?}");
                        if fits {
                            all.extend(theirs);
                            taken += 1;
                        } else {
                            assert_eq!(union.as_slice(), before.as_slice());
                            refused += 1;
                        }
                        assert_eq!(blocks(union.as_slice()), all);
                        let in_order = union.as_slice().windows(2).all(|pair| {
                            let apart = pair[0].lanes.end < pair[1].lanes.start;
                            let beside = pair[0].lanes.end == pair[1].lanes.start;
                            apart || beside && pair[0].written != pair[1].written
                        });
                        assert!(in_order, "{union:?}");
                    }
                }
            }
        }
        assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
    }

    #[test]
    fn what_makes_too_many_bands_is_refused() {
        let mut union = Union::of(bands(64, 2, 0, 1).iter());
        for band in 1..8 {
            assert!(union.add(bands(64, 2, band * 2, 1).as_slice()));
        }
        assert!(!union.add(bands(64, 2, 20, 1).as_slice()));
        assert!(union.add(bands(64, 2, 1, 1).as_slice()), "closes a gap");
        assert!(union.add(bands(64, 2, 20, 1).as_slice()));
    }
}
