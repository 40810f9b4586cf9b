//! The code: its matrix, and parity from data.

use std::fmt;

use memory::Segment;
use units::limits::{GROUP_MEMBERS_MAX, PARITY_MAX};

use crate::Backend;
use crate::backend::Ready;
use crate::field::{inverse, multiply, power};
use crate::kernels::{Pass, ROWS, Shape};
use crate::map::Map;

/// Why a code or a decoder cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// No data, or more members or parity than a group can have.
    Size {
        /// Data chunks asked for.
        data: usize,
        /// Parity chunks asked for.
        parity: usize,
    },
    /// This CPU lacks the instructions.
    Backend(Backend),
    /// A role is not one of the code's.
    Role {
        /// Roles of the code.
        roles: usize,
    },
    /// More is lost than the parity can give back.
    Lost {
        /// Chunks that can be read.
        available: usize,
        /// Chunks that are needed.
        needed: usize,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::Size { data, parity } => write!(
                f,
                "no code with {data} data and {parity} parity chunks: at least 1 data, at most \
                 {PARITY_MAX} parity and {GROUP_MEMBERS_MAX} in all"
            ),
            CodeError::Backend(backend) => write!(f, "this CPU cannot run {backend:?}"),
            CodeError::Role { roles } => write!(f, "a role is not below {roles}"),
            CodeError::Lost { available, needed } => {
                write!(
                    f,
                    "{available} chunks are available where {needed} are needed"
                )
            }
        }
    }
}

impl std::error::Error for CodeError {}

/// The code of k data and M parity chunks. Immutable; share it by `Arc`.
///
/// ```
/// # use memory::Segment;
/// let code = parity::Code::new(2, 1).expect("2 + 1 is a code");
/// let mut chunks = [*b"one ", *b"two ", [0; 4]];
/// // SAFETY: `chunks` outlives the segments and is not touched meanwhile.
/// let [one, two, p] = chunks.each_mut().map(|c| unsafe { Segment::new(c.as_mut_ptr(), 4) });
/// code.generate(&[one, two], &[p]);
/// assert_eq!(chunks[2][0], b'o' ^ b't');
/// ```
#[derive(Clone)]
pub struct Code {
    data: usize,
    parity: usize,
    backend: Ready,
    pub(crate) map: Map,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Code({}+{}, {:?})",
            self.data,
            self.parity,
            self.backend()
        )
    }
}

/// New content of one data chunk, beside the old.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which data chunk: `0..k`.
    pub column: usize,
    /// What the parity holds now.
    pub old: Segment,
    /// What the parity is to hold.
    pub new: Segment,
}

impl Code {
    /// The code with `data` data and `parity` parity chunks, computed by [`Backend::best`].
    ///
    /// # Errors
    /// [`CodeError::Size`].
    pub fn new(data: usize, parity: usize) -> Result<Code, CodeError> {
        Code::with_backend(data, parity, Backend::best())
    }

    /// The same, computed by a certain backend.
    ///
    /// # Errors
    /// [`CodeError::Size`], [`CodeError::Backend`].
    pub fn with_backend(data: usize, parity: usize, backend: Backend) -> Result<Code, CodeError> {
        let fits =
            data <= GROUP_MEMBERS_MAX && parity <= PARITY_MAX && data + parity <= GROUP_MEMBERS_MAX;
        if data == 0 || !fits {
            return Err(CodeError::Size { data, parity });
        }
        let backend = backend.ready().ok_or(CodeError::Backend(backend))?;
        Ok(Code {
            data,
            parity,
            backend,
            map: Map::new(parity, data, element),
        })
    }

    /// Data chunks: k.
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }

    /// Parity chunks: M.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Which instructions compute.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend.backend()
    }

    /// The same, ready to compute.
    pub(crate) fn ready(&self) -> Ready {
        self.backend
    }

    /// What data chunk `column` is multiplied by in parity chunk `row`.
    ///
    /// # Panics
    /// When there is no such chunk.
    #[must_use]
    pub fn coefficient(&self, row: usize, column: usize) -> u8 {
        self.map.factor(row, column)
    }

    /// Computes all parity chunks from all data chunks.
    ///
    /// # Panics
    /// When the number of segments is not that of the code, or their lengths differ.
    pub fn generate(&self, data: &[Segment], parity: &[Segment]) {
        self.map.run(self.backend, data, parity);
    }

    /// Whether [`Code::copy_generate`] looks at each byte of the data but once. If not, it is as
    /// well to copy first.
    #[inline]
    #[must_use]
    pub fn copies_in_passing(&self) -> bool {
        self.map.copies_in_passing()
    }

    /// Copies `data` to `copies` and computes all parity chunks of the copies, even when somebody
    /// changes `data` meanwhile.
    ///
    /// # Panics
    /// As [`Code::generate`].
    pub fn copy_generate(&self, data: &[Segment], copies: &[Segment], parity: &[Segment]) {
        self.map.copy_run(self.backend, data, copies, parity);
    }

    /// Brings some parity chunks, given with their rows, from `old` to `new` content of a data
    /// chunk.
    ///
    /// # Panics
    /// When a row or column is not of the code, a row comes too often, or the lengths differ.
    pub fn delta(&self, column: usize, old: Segment, new: Segment, parity: &[(usize, Segment)]) {
        assert!(column < self.data, "a column of the code");
        assert!(parity.len() <= self.parity, "each row once");
        let length = new.len();
        assert!(old.len() == length, "old and new content are as long");
        for rows in parity.chunks(ROWS) {
            let mut factors = [0; ROWS];
            let mut targets = [Segment::EMPTY; ROWS];
            for (index, &(row, target)) in rows.iter().enumerate() {
                assert!(target.len() == length, "parity is as long as its change");
                factors[index] = self.coefficient(row, column);
                targets[index] = target;
            }
            self.backend.run(&Pass {
                shape: if factors[0] == 1 {
                    Shape::SumAndRows
                } else {
                    Shape::Rows
                },
                sources: &[new],
                old: &[old],
                factors: &[factors],
                targets: &targets[..rows.len()],
                bytes: 0..length,
                copies: &[],
                add: true,
            });
        }
    }

    /// Copies the new content to `copy` and brings parity chunks from the old content to that of
    /// the copy, even when somebody changes the new content meanwhile.
    ///
    /// # Panics
    /// As [`Code::delta`].
    #[inline]
    pub fn copy_delta(&self, change: Change, copy: Segment, parity: &[(usize, Segment)]) {
        let Change { column, old, new } = change;
        let &[(0, sum)] = parity else {
            // Copied first, and summed from there: one pass for both is made for one sum only.
            copy.copy_from(new);
            self.delta(column, old, copy, parity);
            return;
        };
        assert!(column < self.data, "a column of the code");
        let length = new.len();
        let same = [old, copy, sum]
            .iter()
            .all(|segment| segment.len() == length);
        assert!(same, "what is changed, its copy and parity are as long");
        self.backend.run(&Pass {
            shape: Shape::Sum,
            sources: &[new],
            old: &[old],
            factors: &[[1, 0, 0, 0]],
            targets: &[sum],
            bytes: 0..length,
            copies: &[copy],
            add: true,
        });
    }
}

/// Element of the generator matrix, which depends on nothing but its place, so that codes nest.
///
/// Row 0 is 1 and row 1 is 2^c. Row j from 2 on is 1 / (2^-c + 2^(j-1)), scaled by a factor that
/// makes its first element 1. With 0 for 2^(j-1), row 1 has that form too: so rows from 1 on are
/// a Cauchy matrix, whose square parts all have an inverse; a row of ones and the scaling of rows
/// keep that (an "extended" Cauchy matrix). It holds as long as all the summands differ: up to
/// c + j = 254. Source of the construction: snapraid, by A. Mazzoleni.
fn element(row: usize, column: usize) -> u8 {
    match row {
        0 => 1,
        1 => power(2, column),
        _ => {
            let summand = power(2, row - 1);
            let scale = 1 ^ summand;
            multiply(scale, inverse(inverse(power(2, column)) ^ summand))
        }
    }
}
