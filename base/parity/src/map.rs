//! A linear map of segments, and how it is cut into passes that suit the caches.

use std::ops::Range;

use memory::Segment;
use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};

use crate::backend::Ready;
use crate::field::power;
use crate::kernels::{Pass, ROWS, Shape};

/// With more sources than this, chunks that start at the same place of a page push each other
/// out of the caches; then a tile of few sources is summed at a time.
const SOURCES_WITHOUT_TILES: usize = 12;
/// Bytes of a tile.
const TILE_BYTES: usize = 4096;
/// Sources of a tile.
const TILE_SOURCES: usize = 8;

/// Targets = factors · sources. Without heap memory, so that making one on the data path is free.
#[derive(Clone)]
pub(crate) struct Map {
    sources: usize,
    targets: usize,
    /// `groups[target / ROWS].factors[source][target % ROWS]`.
    groups: [Group; PARITY_MAX / ROWS],
}

/// Up to `ROWS` targets, computed together.
#[derive(Clone, Copy)]
struct Group {
    shape: Shape,
    factors: [[u8; ROWS]; GROUP_MEMBERS_MAX],
}

impl Map {
    /// The map with `factor(target, source)`.
    ///
    /// # Panics
    /// With more targets or sources than a group can have.
    pub(crate) fn new(targets: usize, sources: usize, factor: impl Fn(usize, usize) -> u8) -> Map {
        assert!(targets <= PARITY_MAX && sources <= GROUP_MEMBERS_MAX);
        let empty = Group {
            shape: Shape::Rows,
            factors: [[0; ROWS]; GROUP_MEMBERS_MAX],
        };
        let mut groups = [empty; PARITY_MAX / ROWS];
        for target in 0..targets {
            let factors = &mut groups[target / ROWS].factors;
            for (source, row) in factors[..sources].iter_mut().enumerate() {
                row[target % ROWS] = factor(target, source);
            }
        }
        for (index, group) in groups.iter_mut().enumerate() {
            let rows = targets.saturating_sub(index * ROWS).min(ROWS);
            group.shape = shape(&group.factors[..sources], rows);
        }
        Map {
            sources,
            targets,
            groups,
        }
    }

    /// The factor of `source` in `target`.
    pub(crate) fn factor(&self, target: usize, source: usize) -> u8 {
        assert!(target < self.targets && source < self.sources);
        self.groups[target / ROWS].factors[source][target % ROWS]
    }

    /// Computes `targets` from `sources`.
    ///
    /// # Panics
    /// When the lists have other sizes than the map, or the segments different lengths.
    pub(crate) fn run(&self, backend: Ready, sources: &[Segment], targets: &[Segment]) {
        self.check(sources, targets);
        let length = common_length([sources, targets]);
        let many_rows = self.targets > ROWS || self.sources > SOURCES_WITHOUT_TILES;
        let tile_bytes = if many_rows { TILE_BYTES } else { length.max(1) };
        for start in (0..length).step_by(tile_bytes) {
            let bytes = start..length.min(start + tile_bytes);
            self.run_tile(backend, sources, targets, bytes);
        }
    }

    /// The same after copying `sources` to `copies`: the targets are those of the copies, even
    /// when somebody changes the sources meanwhile.
    ///
    /// P and Q are summed while they are copied. For more, each tile is copied and then, still in
    /// the nearest cache, summed: there it is the products that take long.
    ///
    /// # Panics
    /// As [`Map::run`].
    pub(crate) fn copy_run(
        &self,
        backend: Ready,
        sources: &[Segment],
        copies: &[Segment],
        targets: &[Segment],
    ) {
        self.check(sources, targets);
        assert_eq!(copies.len(), sources.len(), "each source has its copy");
        let length = common_length([sources, copies, targets]);
        for start in (0..length).step_by(TILE_BYTES) {
            let bytes = start..length.min(start + TILE_BYTES);
            if self.copies_in_passing() {
                backend.run(&Pass {
                    shape: self.groups[0].shape,
                    sources,
                    old: &[],
                    factors: &self.groups[0].factors[..self.sources],
                    targets,
                    bytes,
                    copies,
                    add: false,
                });
                continue;
            }
            for (copy, source) in copies.iter().zip(sources) {
                let source = source.part(start, bytes.len());
                copy.part(start, bytes.len()).copy_from(source);
            }
            self.run_tile(backend, copies, targets, bytes);
        }
    }

    /// Whether `copy_run` looks at each byte but once.
    pub(crate) fn copies_in_passing(&self) -> bool {
        matches!(self.groups[0].shape, Shape::Sum | Shape::SumAndPowers)
    }

    fn check(&self, sources: &[Segment], targets: &[Segment]) {
        assert_eq!(sources.len(), self.sources, "sources of a map");
        assert_eq!(targets.len(), self.targets, "targets of a map");
    }

    fn run_tile(
        &self,
        backend: Ready,
        sources: &[Segment],
        targets: &[Segment],
        bytes: Range<usize>,
    ) {
        let tile_sources = if self.sources > SOURCES_WITHOUT_TILES {
            TILE_SOURCES
        } else {
            SOURCES_WITHOUT_TILES
        };
        for (group, rows) in self.groups.iter().zip(targets.chunks(ROWS)) {
            let mut end = self.sources;
            // From the last source to the first, as Horner's rule goes.
            while end > 0 {
                let first = (end - 1) / tile_sources * tile_sources;
                backend.run(&Pass {
                    shape: group.shape,
                    sources: &sources[first..end],
                    old: &[],
                    factors: &group.factors[first..end],
                    targets: rows,
                    bytes: bytes.clone(),
                    copies: &[],
                    add: end < self.sources,
                });
                end = first;
            }
        }
    }
}

/// The fastest kernel for the first `rows` of these factors.
fn shape(factors: &[[u8; ROWS]], rows: usize) -> Shape {
    let has_sum = factors.iter().all(|row| row[0] == 1);
    let has_powers = factors
        .iter()
        .enumerate()
        .all(|(source, row)| row[1] == power(2, source));
    match (has_sum, has_powers, rows) {
        (true, _, 1) => Shape::Sum,
        (true, true, 2) => Shape::SumAndPowers,
        (true, _, _) => Shape::SumAndRows,
        (false, _, _) => Shape::Rows,
    }
}

/// The one length of all segments; zero when there are none.
///
/// # Panics
/// When they differ.
pub(crate) fn common_length<const N: usize>(lists: [&[Segment]; N]) -> usize {
    let mut all = lists.into_iter().flatten().map(|segment| segment.len());
    let length = all.next().unwrap_or(0);
    assert!(
        all.all(|other| other == length),
        "the segments of one call have one length"
    );
    length
}
