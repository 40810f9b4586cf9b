//! Checking: whether chunks agree with each other, and which are wrong when they do not.
//!
//! r chunks of a stripe of k + M, any of them, are a code of distance r − k + 1: with c = r − k
//! *checks*, e wrong chunks are located for sure when 2e ≤ c, and seen for sure when e ≤ c. Between
//! the two, more than c − ⌊c/2⌋ wrong chunks may look like ⌊c/2⌋ others. With M = 2 and two wrong
//! chunks each byte that differs does so with a chance of about n/255, and all bytes must point at
//! the same chunk. Sources: H. P. Anvin, "The mathematics of RAID-6", section 4; R. C. Singleton,
//! "Maximum distance q-nary codes" (1964).

use memory::Segment;
use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};
use units::{Role, RoleSet};

use crate::decode::Decoder;
use crate::field::{PRODUCTS, inverse};
use crate::map::common_length;
use crate::xor_into;

/// What chunks say about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// They agree.
    Consistent,
    /// Every differing byte is explained by these roles being wrong, and by no others so few.
    Wrong(RoleSet),
    /// Too many are wrong to say which.
    Unlocated,
}

/// Wrong chunks that are looked for where there is no majority to ask: more would be too many
/// combinations to try between two requests.
pub const LOCATED_MAX: usize = 2;

/// Bytes that are checked at a time.
const TILE_BYTES: usize = 512;

/// Syndromes of one tile, one line per check.
type Syndromes = [[u8; TILE_BYTES]; PARITY_MAX];

/// Syndromes of one byte.
type Syndrome = [u8; PARITY_MAX];

impl Decoder {
    /// Whether the targets as they are stored are those that the sources give. Changes nothing.
    ///
    /// # Panics
    /// As [`Decoder::recover`].
    #[must_use]
    pub fn is_consistent(&self, sources: &[Segment], stored: &[Segment]) -> bool {
        let length = common_length([sources, stored]);
        let mut syndromes = [[0; TILE_BYTES]; PARITY_MAX];
        (0..length).step_by(TILE_BYTES).all(|start| {
            let bytes = TILE_BYTES.min(length - start);
            self.syndromes(sources, stored, start, &mut syndromes);
            let rows = &syndromes[..stored.len()];
            // All bytes of a row, and then the question: it is nearly always answered the same.
            let any = |row: &[u8]| row.iter().fold(0, |any, byte| any | byte);
            rows.iter().all(|row| any(&row[..bytes]) == 0)
        })
    }

    /// Finds the chunks that are wrong, among sources and targets alike: at most half as many as
    /// there are targets, and for codes with several data chunks at most [`LOCATED_MAX`]. Changes
    /// nothing. What is guaranteed stands at the head of this file's documentation.
    ///
    /// Takes up to some hundred microseconds for the widest codes: for chunks that are known not to
    /// agree.
    ///
    /// # Panics
    /// As [`Decoder::recover`].
    #[must_use]
    pub fn locate(&self, sources: &[Segment], stored: &[Segment]) -> Finding {
        if self.is_consistent(sources, stored) {
            return Finding::Consistent;
        }
        let most = stored.len() / 2;
        if self.is_mirror() {
            return self.majority(sources, stored, most);
        }
        let chunks = sources.len() + stored.len();
        let sample = self.first_difference(sources, stored);
        for count in 1..=most.min(LOCATED_MAX) {
            for first in 0..chunks {
                let seconds = if count == 1 {
                    first..first + 1
                } else {
                    first + 1..chunks
                };
                for second in seconds {
                    let pair = [first, second];
                    let suspects = &pair[..count];
                    if self.explain_byte(sample, suspects)
                        && self.explain(sources, stored, suspects)
                    {
                        let roles = pair.map(|position| self.role_at(position));
                        return Finding::Wrong(roles[..count].iter().copied().collect());
                    }
                }
            }
        }
        Finding::Unlocated
    }

    /// The role of a chunk, counted over sources and then targets.
    fn role_at(&self, position: usize) -> Role {
        let sources = self.sources().len();
        let role = if position < sources {
            self.sources().iter().nth(position)
        } else {
            self.targets().iter().nth(position - sources)
        };
        role.expect("a position of a source or target")
    }

    /// Whether every target is a copy of the one source.
    fn is_mirror(&self) -> bool {
        self.sources().len() == 1
            && (0..self.targets().len()).all(|target| self.factor(target, 0) == 1)
    }

    /// Copies that differ from what most hold, if they are at most `most`.
    fn majority(&self, sources: &[Segment], stored: &[Segment], most: usize) -> Finding {
        let copies = || sources.iter().chain(stored);
        for kept in copies() {
            let mut wrong = RoleSet::EMPTY;
            for (position, copy) in copies().enumerate() {
                if !copy.equals(*kept) {
                    wrong = wrong.with(self.role_at(position));
                }
            }
            if wrong.len() <= most {
                return Finding::Wrong(wrong);
            }
        }
        Finding::Unlocated
    }

    /// The syndrome of the first byte at which the chunks do not agree; zero when they do.
    fn first_difference(&self, sources: &[Segment], stored: &[Segment]) -> Syndrome {
        let mut first = [0; PARITY_MAX];
        let _ = self.all_bytes(sources, stored, |syndrome| {
            first = syndrome;
            syndrome == [0; PARITY_MAX]
        });
        first
    }

    /// Whether errors in these chunks alone explain every byte.
    fn explain(&self, sources: &[Segment], stored: &[Segment], chunks: &[usize]) -> bool {
        self.all_bytes(sources, stored, |syndrome| {
            self.explain_byte(syndrome, chunks)
        })
    }

    /// Whether `is_good` says so of the syndrome of every byte.
    fn all_bytes(
        &self,
        sources: &[Segment],
        stored: &[Segment],
        mut is_good: impl FnMut(Syndrome) -> bool,
    ) -> bool {
        let length = common_length([sources, stored]);
        let mut syndromes = [[0; TILE_BYTES]; PARITY_MAX];
        (0..length).step_by(TILE_BYTES).all(|start| {
            self.syndromes(sources, stored, start, &mut syndromes);
            (0..TILE_BYTES.min(length - start)).all(|at| {
                let mut syndrome = [0; PARITY_MAX];
                for (byte, row) in syndrome.iter_mut().zip(&syndromes[..stored.len()]) {
                    *byte = row[at];
                }
                is_good(syndrome)
            })
        })
    }

    /// Whether the syndrome is a sum of multiples of these chunks' columns, at most two.
    fn explain_byte(&self, mut syndrome: Syndrome, chunks: &[usize]) -> bool {
        let checks = self.targets().len();
        let mut columns = [[0; PARITY_MAX]; LOCATED_MAX];
        for (column, &chunk) in columns.iter_mut().zip(chunks) {
            *column = self.column(chunk);
        }
        // Gauss: each column is used once to make one check zero, in the syndrome and in the
        // columns after it.
        for index in 0..chunks.len() {
            let pivot = columns[index];
            let row = (0..checks).find(|&row| pivot[row] != 0);
            let row = row.expect("any so few columns are independent");
            let scale = inverse(pivot[row]);
            let (factor, later) = (times(scale, syndrome[row]), index + 1);
            add_scaled(&mut syndrome, &pivot, factor);
            for column in &mut columns[later..chunks.len()] {
                let factor = times(scale, column[row]);
                add_scaled(column, &pivot, factor);
            }
        }
        syndrome[..checks].iter().all(|&byte| byte == 0)
    }

    /// How a difference in a chunk shows in the checks.
    fn column(&self, chunk: usize) -> Syndrome {
        let mut column = [0; PARITY_MAX];
        let (sources, checks) = (self.sources().len(), self.targets().len());
        for (row, element) in column[..checks].iter_mut().enumerate() {
            *element = if chunk < sources {
                self.factor(row, chunk)
            } else {
                u8::from(chunk - sources == row)
            };
        }
        column
    }

    /// Stored plus recomputed targets of the tile from `start` on.
    fn syndromes(&self, sources: &[Segment], stored: &[Segment], start: usize, to: &mut Syndromes) {
        let length = common_length([sources, stored]);
        let bytes = TILE_BYTES.min(length - start);
        let mut parts = [Segment::EMPTY; GROUP_MEMBERS_MAX];
        for (part, whole) in parts.iter_mut().zip(sources) {
            *part = whole.part(start, bytes);
        }
        let targets = to.each_mut().map(|row| {
            // SAFETY: the row outlives the segments, which end with this function, and is not
            // touched meanwhile.
            unsafe { Segment::new(row.as_mut_ptr(), bytes) }
        });
        self.recover(&parts[..sources.len()], &targets[..stored.len()]);
        for (target, stored) in targets.iter().zip(stored) {
            xor_into(*target, stored.part(start, bytes));
        }
    }
}

fn times(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

fn add_scaled(sum: &mut Syndrome, column: &Syndrome, factor: u8) {
    for (byte, element) in sum.iter_mut().zip(column) {
        *byte ^= times(factor, *element);
    }
}

/// Whether all bytes are zero.
#[must_use]
pub fn is_zero(segment: Segment) -> bool {
    const WORDS: usize = 8;
    let first = segment.address();
    let blocks = segment.len() / size_of::<[u64; WORDS]>();
    for block in 0..blocks {
        let from = first.wrapping_add(block * size_of::<[u64; WORDS]>());
        // SAFETY: within the segment, which is mapped (its constructor).
        let words = unsafe { from.cast::<[u64; WORDS]>().read_unaligned() };
        if words.iter().fold(0, |all, word| all | word) != 0 {
            return false;
        }
    }
    (blocks * size_of::<[u64; WORDS]>()..segment.len()).all(|at| {
        // SAFETY: as above.
        unsafe { first.wrapping_add(at).read() == 0 }
    })
}
