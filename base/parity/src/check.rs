//! Checking: whether parity agrees with data, and which chunk is wrong when it does not.

use memory::Segment;
use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};
use units::{Role, RoleSet};

use crate::field::PRODUCTS;
use crate::map::common_length;
use crate::{Code, xor_into};

/// What the syndromes of a stripe say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// All are zero: parity agrees with data.
    Consistent,
    /// Every differing byte is explained by this one role being wrong, and by no other one.
    One(Role),
    /// No single role explains it, or (with one parity) every role does.
    Unlocated,
}

/// Bytes that are checked at a time.
const TILE_BYTES: usize = 512;

/// Syndromes of one tile, one line per parity row.
type Syndromes = [[u8; TILE_BYTES]; PARITY_MAX];

impl Code {
    /// Whether the parity chunks are those of the data chunks. Changes nothing.
    ///
    /// # Panics
    /// As [`Code::generate`].
    #[must_use]
    pub fn is_consistent(&self, data: &[Segment], parity: &[Segment]) -> bool {
        let length = common_length([data, parity]);
        let mut syndromes = [[0; TILE_BYTES]; PARITY_MAX];
        (0..length).step_by(TILE_BYTES).all(|start| {
            let bytes = TILE_BYTES.min(length - start);
            self.syndromes(data, parity, start, &mut syndromes);
            let rows = &syndromes[..self.parity()];
            rows.iter().all(|row| row[..bytes].iter().all(|&s| s == 0))
        })
    }

    /// Finds the one chunk that is wrong, if a single one is. Changes nothing.
    ///
    /// An error in one chunk e shows in row j as coefficient(j, e) · difference, and differences
    /// of two chunks never look the same with two parity rows or more. More wrong chunks than
    /// M − 1 can look like another single one, byte by byte; the more bytes differ, the less
    /// likely. Source: H. P. Anvin, "The mathematics of RAID-6", section 4.
    ///
    /// # Panics
    /// As [`Code::generate`].
    #[must_use]
    pub fn locate(&self, data: &[Segment], parity: &[Segment]) -> Finding {
        let length = common_length([data, parity]);
        let roles = RoleSet::range(0, self.data() + self.parity());
        let mut suspects = roles;
        let mut differs = false;
        let mut syndromes = [[0; TILE_BYTES]; PARITY_MAX];
        for start in (0..length).step_by(TILE_BYTES) {
            self.syndromes(data, parity, start, &mut syndromes);
            for at in 0..TILE_BYTES.min(length - start) {
                let mut syndrome = [0; PARITY_MAX];
                for (byte, row) in syndrome.iter_mut().zip(&syndromes[..self.parity()]) {
                    *byte = row[at];
                }
                if syndrome != [0; PARITY_MAX] {
                    differs = true;
                    suspects = suspects.both(self.suspects(&syndrome[..self.parity()]));
                }
            }
        }
        match (differs, suspects.first()) {
            (false, _) => Finding::Consistent,
            (true, Some(role)) if suspects.len() == 1 => Finding::One(role),
            (true, _) => Finding::Unlocated,
        }
    }

    /// The roles that, wrong alone, give this syndrome other than zero.
    fn suspects(&self, syndrome: &[u8]) -> RoleSet {
        // Row 0 is the plain sum, so it shows a difference of data as it is.
        let difference = usize::from(syndrome[0]);
        let data = (0..self.data()).filter(|&column| {
            syndrome.iter().enumerate().all(|(row, &byte)| {
                let factor = usize::from(self.coefficient(row, column));
                PRODUCTS[factor][difference] == byte
            })
        });
        let parity = (0..self.parity()).filter(|&row| {
            let mut others = syndrome
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != row);
            others.all(|(_, &byte)| byte == 0)
        });
        data.chain(parity.map(|row| self.data() + row))
            .map(Role::from_at)
            .collect()
    }

    /// Stored parity plus recomputed parity of the tile from `start` on.
    fn syndromes(&self, data: &[Segment], parity: &[Segment], start: usize, to: &mut Syndromes) {
        let length = common_length([data, parity]);
        let bytes = TILE_BYTES.min(length - start);
        let mut sources = [Segment::EMPTY; GROUP_MEMBERS_MAX];
        for (part, whole) in sources.iter_mut().zip(data) {
            *part = whole.part(start, bytes);
        }
        let targets = to.each_mut().map(|row| {
            // SAFETY: the row outlives the segments, which end with this function, and is not
            // touched meanwhile.
            unsafe { Segment::new(row.as_mut_ptr(), bytes) }
        });
        self.generate(&sources[..data.len()], &targets[..parity.len()]);
        for (target, stored) in targets.iter().zip(parity) {
            xor_into(*target, stored.part(start, bytes));
        }
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
