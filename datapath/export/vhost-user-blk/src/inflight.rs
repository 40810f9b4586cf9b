//! The memory in which requests taken and not answered survive the engine.
//!
//! The front-end keeps it and hands it to the engine that comes after us. How a ring uses its
//! part is crate `virtqueue`'s matter. Behind the parts of the rings is a trailer of our own, for
//! the one thing that a guest says once and nobody repeats to a new engine: the cache mode.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use memory::guest::Mapping;
use units::{bytes_usize, limits};
use virtqueue::{Inflight, Layout, RingError};

use crate::profile::{CacheMode, FRONT_END_QUEUES_MAX};
use crate::system::sealed_memory;

/// Bytes of the trailer: a mark, and the cache mode.
const TRAILER_BYTES: u64 = 16;
/// What a trailer of ours begins with.
const MARK: [u8; 8] = *b"GRBDcach";
/// Cache modes in the trailer's second word.
const WRITE_BACK: u8 = 1;
const WRITE_THROUGH: u8 = 2;

/// The numbers of `VHOST_USER_GET_INFLIGHT_FD` and `VHOST_USER_SET_INFLIGHT_FD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightShape {
    pub(crate) layout: Layout,
    pub(crate) queues: u16,
    /// Descriptors of each queue at most.
    pub(crate) size: u16,
    /// Bytes of all of it.
    pub(crate) bytes: u64,
    /// Where it begins in its file.
    pub(crate) offset: u64,
}

impl InflightShape {
    /// What so many queues need. `None` for more than can be served.
    pub(crate) fn new(layout: Layout, queues: u16, size: u16) -> Option<InflightShape> {
        let fits = (1..=FRONT_END_QUEUES_MAX).contains(&queues)
            && (1..=limits::QUEUE_SIZE_MAX).contains(&size);
        fits.then(|| InflightShape {
            layout,
            queues,
            size,
            bytes: Inflight::bytes(layout, size, queues) + TRAILER_BYTES,
            offset: 0,
        })
    }

    /// New memory of this shape, all zeroes, whose size cannot be changed.
    pub(crate) fn make(&self) -> io::Result<File> {
        sealed_memory(self.offset + self.bytes)
    }
}

/// In-flight memory that is in use.
#[derive(Debug)]
pub(crate) struct InflightMemory {
    shape: InflightShape,
    mapping: Arc<Mapping>,
}

impl InflightMemory {
    /// Maps what a front-end hands over.
    pub(crate) fn map(shape: InflightShape, file: &File) -> Result<InflightMemory, &'static str> {
        let needed = InflightShape::new(shape.layout, shape.queues, shape.size)
            .ok_or("the in-flight region is for more than can be served")?;
        // A region made by another engine may have no trailer, which is no reason to refuse it.
        if shape.bytes < needed.bytes - TRAILER_BYTES {
            return Err("the in-flight region is too short");
        }
        let bytes = shape.bytes.min(needed.bytes);
        let mapping = Mapping::new(file.as_fd(), shape.offset, bytes)
            .map_err(|_| "the in-flight region cannot be mapped")?;
        Ok(InflightMemory { shape, mapping })
    }

    /// The part of one ring, and what keeps it mapped. The ring may be smaller than was told when
    /// the memory was made.
    pub(crate) fn of_queue(&self, index: u16) -> Result<(Inflight, Arc<Mapping>), RingError> {
        let InflightShape { queues, size, .. } = self.shape;
        if index >= queues {
            return Err(RingError::InflightRegion);
        }
        let memory = self.mapping.segment();
        let inflight = Inflight::new(self.shape.layout, size, memory, index)?;
        Ok((inflight, Arc::clone(&self.mapping)))
    }

    fn trailer(&self) -> Option<memory::Segment> {
        let rings = Inflight::bytes(self.shape.layout, self.shape.size, self.shape.queues);
        let bytes = bytes_usize(rings + TRAILER_BYTES);
        let whole = self.mapping.segment();
        (whole.len() >= bytes).then(|| whole.part(bytes_usize(rings), bytes_usize(TRAILER_BYTES)))
    }

    /// The cache mode that an engine before us was told.
    pub(crate) fn cache(&self) -> Option<CacheMode> {
        let mut bytes = [0u8; 16];
        self.trailer()?.copy_to_slice(&mut bytes);
        match (bytes.starts_with(&MARK), bytes[MARK.len()]) {
            (true, WRITE_BACK) => Some(CacheMode::WriteBack),
            (true, WRITE_THROUGH) => Some(CacheMode::WriteThrough),
            _ => None,
        }
    }

    /// Tells the engine after us the cache mode.
    pub(crate) fn set_cache(&self, cache: CacheMode) {
        let Some(trailer) = self.trailer() else {
            return;
        };
        let mode = match cache {
            CacheMode::WriteBack => WRITE_BACK,
            CacheMode::WriteThrough => WRITE_THROUGH,
        };
        // The mode before the mark: whoever finds the mark finds a mode.
        trailer.part(MARK.len(), 1).copy_from_slice(&[mode]);
        trailer.part(0, MARK.len()).copy_from_slice(&MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(layout: Layout, queues: u16, size: u16) -> (InflightShape, File) {
        let shape = InflightShape::new(layout, queues, size).unwrap();
        let file = shape.make().unwrap();
        (shape, file)
    }

    #[test]
    fn the_cache_mode_survives_the_engine() {
        for layout in [Layout::Split, Layout::Packed] {
            let (shape, file) = memory(layout, 3, 128);
            let first = InflightMemory::map(shape, &file).unwrap();
            assert_eq!(first.cache(), None);
            for cache in [CacheMode::WriteThrough, CacheMode::WriteBack] {
                first.set_cache(cache);
                let next = InflightMemory::map(shape, &file).unwrap();
                assert_eq!(next.cache(), Some(cache));
            }
        }
    }

    #[test]
    fn every_queue_has_a_part_of_its_own() {
        let (shape, file) = memory(Layout::Split, 256, 1024);
        let memory = InflightMemory::map(shape, &file).unwrap();
        memory.set_cache(CacheMode::WriteThrough);
        for index in 0..256 {
            assert!(memory.of_queue(index).is_ok(), "queue {index}");
        }
        assert!(memory.of_queue(256).is_err());
        assert_eq!(memory.cache(), Some(CacheMode::WriteThrough));
    }

    #[test]
    fn a_region_without_our_trailer_is_taken() {
        let (shape, file) = memory(Layout::Packed, 2, 64);
        let shape = InflightShape {
            bytes: shape.bytes - TRAILER_BYTES,
            ..shape
        };
        let memory = InflightMemory::map(shape, &file).unwrap();
        memory.set_cache(CacheMode::WriteThrough);
        assert_eq!(memory.cache(), None);
        assert!(memory.of_queue(1).is_ok());
    }

    #[test]
    fn absurd_regions_are_refused() {
        let (shape, file) = memory(Layout::Split, 2, 64);
        for wrong in [
            InflightShape { queues: 0, ..shape },
            InflightShape {
                queues: 257,
                ..shape
            },
            InflightShape { size: 0, ..shape },
            InflightShape {
                size: 2048,
                ..shape
            },
            InflightShape {
                size: 1024,
                ..shape
            },
            InflightShape { queues: 4, ..shape },
            InflightShape { bytes: 64, ..shape },
            InflightShape {
                offset: 4096,
                ..shape
            },
            InflightShape {
                offset: u64::MAX,
                ..shape
            },
        ] {
            assert!(InflightMemory::map(wrong, &file).is_err(), "{wrong:?}");
        }
    }
}
