//! Decoding: the matrix that gives lost roles from those that are left.

use std::fmt;

use memory::Segment;
use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};
use units::{Role, RoleSet};

use crate::backend::Ready;
use crate::field::{PRODUCTS, inverse};
use crate::map::Map;
use crate::{Backend, Code, CodeError};

/// One row of a matrix: a factor per source.
type Row = [u8; GROUP_MEMBERS_MAX];

/// Computes some roles of a stripe from k others.
#[derive(Clone)]
pub struct Decoder {
    sources: RoleSet,
    targets: RoleSet,
    backend: Ready,
    map: Map,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({:?} from {:?})", self.targets, self.sources)
    }
}

impl Decoder {
    /// The roles that are read: k of those available, data first; none for no target.
    #[must_use]
    pub fn sources(&self) -> RoleSet {
        self.sources
    }

    /// The roles that are computed.
    #[must_use]
    pub fn targets(&self) -> RoleSet {
        self.targets
    }

    /// Computes the targets from the sources, both in ascending order of their roles.
    ///
    /// # Panics
    /// When the numbers of segments are not those of the sets, or the lengths differ.
    pub fn recover(&self, sources: &[Segment], targets: &[Segment]) {
        self.map.run(self.backend, sources, targets);
    }

    /// What `source` is multiplied by in `target`; both are positions in the sets.
    pub(crate) fn factor(&self, target: usize, source: usize) -> u8 {
        self.map.factor(target, source)
    }
}

impl Code {
    /// How to compute the `targets`, any data or parity roles, from k roles of `available`: data
    /// roles first, then the lowest parity. A target is never read, even when it is available.
    ///
    /// # Errors
    /// [`CodeError::Role`] for a role that the code does not have, [`CodeError::Lost`] when less
    /// than k roles are available.
    pub fn decoder(&self, available: RoleSet, targets: RoleSet) -> Result<Decoder, CodeError> {
        let roles = self.data() + self.parity();
        if !RoleSet::range(0, roles).covers(available.union(targets)) {
            return Err(CodeError::Role { roles });
        }
        let readable = available.without(targets);
        if targets.is_empty() {
            return Ok(self.decoder_of(RoleSet::EMPTY, targets));
        }
        if readable.len() < self.data() {
            return Err(CodeError::Lost {
                available: readable.len(),
                needed: self.data(),
            });
        }
        // Data roles are the lowest.
        Ok(self.decoder_of(readable.lowest(self.data()), targets))
    }

    fn decoder_of(&self, sources: RoleSet, targets: RoleSet) -> Decoder {
        let rows = Elimination::new(self, sources).rows(targets);
        Decoder {
            sources,
            targets,
            backend: self.ready(),
            map: Map::new(targets.len(), sources.len(), |target, source| {
                rows[target][source]
            }),
        }
    }
}

/// The solution of the parity equations for the data roles that are not among the sources.
struct Elimination<'a> {
    code: &'a Code,
    sources: RoleSet,
    /// Data roles that are not read.
    unknown: RoleSet,
    /// For each unknown, in ascending order, its factors over the sources.
    solved: [Row; PARITY_MAX],
}

impl<'a> Elimination<'a> {
    fn new(code: &'a Code, sources: RoleSet) -> Elimination<'a> {
        let data = RoleSet::range(0, code.data());
        // Without sources there is nothing to solve, nor to compute.
        let unknown = if sources.is_empty() {
            RoleSet::EMPTY
        } else {
            data.without(sources)
        };
        let mut elimination = Elimination {
            code,
            sources,
            unknown,
            solved: [[0; GROUP_MEMBERS_MAX]; PARITY_MAX],
        };
        elimination.solve(sources.without(data));
        elimination
    }

    /// Each parity role read gives one equation: the unknowns by their coefficients on the left;
    /// that parity and the known data by theirs on the right. Gauss and Jordan turn the left
    /// side into the unit matrix; rows need not be exchanged, since every square part of the
    /// generator has an inverse, those in the upper left corner too, so that no pivot is zero.
    fn solve(&mut self, equations: RoleSet) {
        assert_eq!(equations.len(), self.unknown.len(), "as many as unknowns");
        let count = self.unknown.len();
        let mut left = [[0u8; PARITY_MAX]; PARITY_MAX];
        for (index, equation) in equations.iter().enumerate() {
            for (column, unknown) in self.unknown.iter().enumerate() {
                left[index][column] = self.element(equation, unknown);
            }
            for (column, source) in self.sources.iter().enumerate() {
                self.solved[index][column] = if source.at() < self.code.data() {
                    self.element(equation, source)
                } else {
                    u8::from(source == equation)
                };
            }
        }
        for pivot in 0..count {
            let factor = inverse(left[pivot][pivot]);
            scale(&mut left[pivot], factor);
            scale(&mut self.solved[pivot], factor);
            for row in (0..count).filter(|&row| row != pivot) {
                let factor = left[row][pivot];
                let (of_left, of_solved) = (left[pivot], self.solved[pivot]);
                add_scaled(&mut left[row], &of_left, factor);
                add_scaled(&mut self.solved[row], &of_solved, factor);
            }
        }
    }

    /// The factors of each target over the sources.
    fn rows(&self, targets: RoleSet) -> [Row; PARITY_MAX] {
        let mut rows = [[0; GROUP_MEMBERS_MAX]; PARITY_MAX];
        for (row, target) in rows.iter_mut().zip(targets) {
            if target.at() < self.code.data() {
                *row = self.solved[self.unknown_position(target)];
                continue;
            }
            for (column, source) in self.sources.iter().enumerate() {
                if source.at() < self.code.data() {
                    row[column] = self.element(target, source);
                }
            }
            for (solved, unknown) in self.solved.iter().zip(self.unknown) {
                add_scaled(row, solved, self.element(target, unknown));
            }
        }
        rows
    }

    fn unknown_position(&self, role: Role) -> usize {
        self.unknown
            .iter()
            .position(|unknown| unknown == role)
            .expect("a data role that is a target is not read")
    }

    fn element(&self, parity: Role, data: Role) -> u8 {
        self.code
            .coefficient(parity.at() - self.code.data(), data.at())
    }
}

fn scale(row: &mut [u8], factor: u8) {
    for element in row {
        *element = PRODUCTS[usize::from(factor)][usize::from(*element)];
    }
}

fn add_scaled(row: &mut [u8], other: &[u8], factor: u8) {
    for (element, other) in row.iter_mut().zip(other) {
        *element ^= PRODUCTS[usize::from(factor)][usize::from(*other)];
    }
}

/// Decoders by what is available and wanted, so that a pattern of losses is solved once.
///
/// Allocates when it is made and never again; when it is full, the oldest decoder makes room.
#[derive(Debug)]
pub struct DecoderCache {
    entries: Vec<Entry>,
    capacity: usize,
    oldest: usize,
}

/// A decoder with what it was asked for.
#[derive(Debug)]
struct Entry {
    key: Key,
    decoder: Decoder,
}

/// Codes of one size are equal, but for how they compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    data: usize,
    parity: usize,
    backend: Backend,
    available: RoleSet,
    targets: RoleSet,
}

impl DecoderCache {
    /// Room for `capacity` decoders of about 2 KiB.
    ///
    /// # Panics
    /// When that is none.
    #[must_use]
    pub fn new(capacity: usize) -> DecoderCache {
        assert!(capacity > 0, "a cache has room");
        DecoderCache {
            entries: Vec::with_capacity(capacity),
            capacity,
            oldest: 0,
        }
    }

    /// The decoder that [`Code::decoder`] makes of the same arguments.
    ///
    /// # Errors
    /// As [`Code::decoder`].
    pub fn get(
        &mut self,
        code: &Code,
        available: RoleSet,
        targets: RoleSet,
    ) -> Result<&Decoder, CodeError> {
        let key = Key {
            data: code.data(),
            parity: code.parity(),
            backend: code.backend(),
            available,
            targets,
        };
        let found = self.entries.iter().position(|entry| entry.key == key);
        let index = match found {
            Some(index) => index,
            None => self.insert(Entry {
                key,
                decoder: code.decoder(available, targets)?,
            }),
        };
        Ok(&self.entries[index].decoder)
    }

    fn insert(&mut self, entry: Entry) -> usize {
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
            return self.entries.len() - 1;
        }
        let index = self.oldest;
        self.entries[index] = entry;
        self.oldest = (index + 1) % self.capacity;
        index
    }
}
