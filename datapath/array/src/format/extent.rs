//! Extents: the whole-stripe units that volumes are made of.

use units::bytes_u64;

use super::layout::EXTENT_BYTES_MIN;
use crate::geometry::Geometry;

/// Neighbouring extents; numbered from 0 at block 0 of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentRun {
    /// The first extent.
    pub first: u64,
    /// How many; at least one.
    pub count: u64,
}

impl ExtentRun {
    /// The extent after the last, if that is a number and the run is not empty.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.first
            .checked_add(self.count)
            .filter(|_| self.count > 0)
    }
}

/// How an array is cut into extents. Checked when made, so the arithmetic cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentSpace {
    stripes: u32,
    extent_blocks: u64,
    count: u64,
    block_bytes: u64,
}

impl ExtentSpace {
    /// How a new array of this geometry is cut: the fewest stripes that hold
    /// [`EXTENT_BYTES_MIN`].
    #[must_use]
    pub fn new(geometry: &Geometry) -> ExtentSpace {
        let stripes = EXTENT_BYTES_MIN.div_ceil(geometry.stripe_bytes());
        let stripes = u32::try_from(stripes).expect("at most 4096 stripes of 4 KiB");
        ExtentSpace::with_stripes(geometry, stripes).expect("at least one stripe")
    }

    /// How an array is cut whose superblock says `stripes` per extent; `None` when that is 0.
    #[must_use]
    pub fn with_stripes(geometry: &Geometry, stripes: u32) -> Option<ExtentSpace> {
        let extent_blocks = u64::from(stripes) * u64::from(geometry.stripe_blocks());
        Some(ExtentSpace {
            stripes,
            extent_blocks,
            count: geometry.blocks().checked_div(extent_blocks)?,
            block_bytes: geometry.block_size().bytes(),
        })
    }

    /// Stripes of one extent.
    #[must_use]
    pub fn stripes(&self) -> u32 {
        self.stripes
    }

    /// User blocks of one extent.
    #[must_use]
    pub fn extent_blocks(&self) -> u64 {
        self.extent_blocks
    }

    /// Extents of the array.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Extents that hold so many blocks.
    #[must_use]
    pub fn needed(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.extent_blocks)
    }

    /// Bytes of so many extents of this array.
    ///
    /// # Panics
    /// When the array has fewer.
    #[must_use]
    pub fn bytes(&self, extents: u64) -> u64 {
        assert!(extents <= self.count, "{extents} extents of {}", self.count);
        extents * self.extent_blocks * self.block_bytes
    }

    /// Whether the run lies in the array and is not empty.
    #[must_use]
    pub fn has(&self, run: ExtentRun) -> bool {
        run.end().is_some_and(|end| end <= self.count)
    }

    /// The array's blocks of a run: first block and how many.
    ///
    /// # Panics
    /// When the run is not in the array.
    #[must_use]
    pub fn blocks(&self, run: ExtentRun) -> (u64, u64) {
        assert!(self.has(run), "{run:?} of {} extents", self.count);
        (
            run.first * self.extent_blocks,
            run.count * self.extent_blocks,
        )
    }
}

/// How many extents the runs hold.
#[must_use]
pub fn extents_of(runs: &[ExtentRun]) -> u64 {
    runs.iter()
        .fold(0, |sum, run| sum.saturating_add(run.count))
}

/// Appends runs to a record.
pub(super) fn encode_runs(runs: &[ExtentRun], out: &mut Vec<u8>) {
    for run in runs {
        out.extend_from_slice(&run.first.to_le_bytes());
        out.extend_from_slice(&run.count.to_le_bytes());
    }
}

/// Reads runs; the bytes are a multiple of 16.
pub(super) fn decode_runs(bytes: &[u8]) -> Vec<ExtentRun> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    bytes
        .chunks_exact(2 * size_of::<u64>())
        .map(|pair| ExtentRun {
            first: number(&pair[..8]),
            count: number(&pair[8..]),
        })
        .collect()
}

const _: () = assert!(size_of::<u64>() == 8 && EXTENT_BYTES_MIN.is_power_of_two());

/// Sorts and joins runs.
///
/// # Errors
/// When a run is empty, overflows, or shares an extent with another.
pub fn join_runs(mut runs: Vec<ExtentRun>) -> Result<Vec<ExtentRun>, &'static str> {
    runs.sort_unstable();
    let mut joined: Vec<ExtentRun> = Vec::with_capacity(runs.len());
    for run in runs {
        run.end().ok_or("an extent run is empty or overflows")?;
        match joined.last_mut() {
            Some(last) if last.first + last.count > run.first => {
                return Err("an extent is used twice");
            }
            Some(last) if last.first + last.count == run.first => last.count += run.count,
            Some(_) | None => joined.push(run),
        }
    }
    Ok(joined)
}

/// The byte size of a run table of `runs` runs.
pub(super) fn runs_bytes(runs: usize) -> u64 {
    bytes_u64(runs).saturating_mul(16)
}
