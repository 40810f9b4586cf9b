//! Where a volume's blocks are in the array: looked up for every request, never changed.

use array::format::{ExtentSpace, VolumeRecord, VolumeState};
use block::{Stability, Status};
use units::bytes_usize;

/// A part of a request that is contiguous in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The block of the request that this part begins with.
    pub block_in_request: u32,
    /// Its first block in the array.
    pub array_block: u64,
    /// How many blocks.
    pub blocks: u32,
}

/// Blocks of the volume that follow each other in the array.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first, in the volume.
    volume_block: u64,
    /// The same, in the array.
    array_block: u64,
}

/// A volume's map, of one update; a volume that grew gets a new one.
#[derive(Debug)]
pub struct VolumeMap {
    /// By `volume_block`, from 0 on.
    runs: Box<[Run]>,
    blocks: u64,
    stability: Stability,
}

impl VolumeMap {
    /// The map of a volume; `None` when it is not ready, or has not the extents for its size.
    #[must_use]
    pub fn new(volume: &VolumeRecord, space: &ExtentSpace) -> Option<VolumeMap> {
        if volume.state != VolumeState::Ready || volume.size_blocks == 0 {
            return None;
        }
        let mut runs = Vec::with_capacity(volume.extents.len());
        let mut next = 0;
        for run in &volume.extents {
            if !space.has(*run) {
                return None;
            }
            let (array_block, blocks) = space.blocks(*run);
            runs.push(Run {
                volume_block: next,
                array_block,
            });
            next += blocks;
        }
        (next >= volume.size_blocks).then(|| VolumeMap {
            runs: runs.into_boxed_slice(),
            blocks: volume.size_blocks,
            stability: if volume.stable_buffers {
                Stability::Stable
            } else {
                Stability::MayChange
            },
        })
    }

    /// Blocks of the volume.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What its guests promise of the memory from which they write.
    #[inline]
    #[must_use]
    pub fn stability(&self) -> Stability {
        self.stability
    }

    /// Where `block` is in the array, and how many of the `blocks` from there on follow it there.
    ///
    /// # Errors
    /// `OutOfRange` when not all of them are inside the volume.
    pub fn locate(&self, block: u64, blocks: u32) -> Result<(u64, u32), Status> {
        self.check(block, blocks)?;
        if block == self.blocks {
            return Err(Status::OutOfRange);
        }
        Ok(self.find(block, blocks))
    }

    /// The parts of a request, in order; none for a request without blocks.
    ///
    /// # Errors
    /// `OutOfRange` when not all of them are inside the volume.
    pub fn split(&self, block: u64, blocks: u32) -> Result<Pieces<'_>, Status> {
        self.check(block, blocks)?;
        Ok(Pieces {
            map: self,
            block,
            blocks,
            done: 0,
        })
    }

    fn check(&self, block: u64, blocks: u32) -> Result<(), Status> {
        match block.checked_add(u64::from(blocks)) {
            Some(end) if end <= self.blocks => Ok(()),
            Some(_) | None => Err(Status::OutOfRange),
        }
    }

    /// As `locate`, for blocks that are inside.
    #[inline]
    fn find(&self, block: u64, blocks: u32) -> (u64, u32) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let after = self.runs.partition_point(|run| run.volume_block <= block);
        let run = self.runs[after - 1];
        let end = match self.runs.get(after) {
            Some(next) => next.volume_block,
            None => self.blocks,
        };
        let length = u32::try_from(end - block).map_or(blocks, |left| left.min(blocks));
        (run.array_block + (block - run.volume_block), length)
    }
}

/// The parts of a request; see [`VolumeMap::split`].
#[derive(Clone, Debug)]
pub struct Pieces<'m> {
    map: &'m VolumeMap,
    block: u64,
    blocks: u32,
    done: u32,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let left = self.blocks - self.done;
        if left == 0 {
            return None;
        }
        let (array_block, blocks) = self.map.find(self.block + u64::from(self.done), left);
        let piece = Piece {
            block_in_request: self.done,
            array_block,
            blocks,
        };
        self.done += blocks;
        Some(piece)
    }
}

impl Piece {
    /// Where the part's bytes begin in the request's memory.
    #[must_use]
    pub fn byte_offset(&self, block_bytes: u64) -> usize {
        bytes_usize(u64::from(self.block_in_request) * block_bytes)
    }
}
