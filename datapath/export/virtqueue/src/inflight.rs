//! The in-flight region: what was taken and not answered, in memory that outlives the engine.
//!
//! The front-end keeps the memory and hands it to the next engine. Layout and order of stores are
//! those of the vhost-user protocol, "Inflight I/O tracking"; the engine may be killed between
//! any two stores. What does not live here: the sockets over which the memory travels.
//!
//! A ring may have fewer descriptors than its region has entries: QEMU asks for memory by the size
//! that the device was given, and a firmware may have a smaller ring there. Where they differ,
//! bytes that the protocol leaves free say how many the ring has: a ring of another size has
//! nothing to do with what was left in the region, however that looks.

mod packed;
mod split;
#[cfg(test)]
mod tests;

use memory::Segment;

pub(crate) use packed::PackedRecord;
pub(crate) use split::SplitRecord;

use crate::{Layout, RingError};

/// The version of a region that is in use; 0 is one that was never used.
const VERSION: u16 = 1;
/// The region of each queue begins at a multiple of this.
const ALIGNMENT: u64 = 64;
/// Half-word of a region, of either layout, that holds the version.
const VERSION_AT: usize = 4;
/// Half-word of a region, of either layout, that holds how many entries it has.
const SIZE_AT: usize = 5;

/// The in-flight region of one queue, to be given to [`crate::Vring::attach`].
#[derive(Debug)]
pub struct Inflight {
    pub(crate) record: Record,
}

#[derive(Debug)]
pub(crate) enum Record {
    Split(SplitRecord),
    Packed(PackedRecord),
}

impl Inflight {
    /// Bytes from the region of one queue to that of the next, of `size` entries each.
    #[must_use]
    pub fn stride(layout: Layout, size: u16) -> u64 {
        let bytes = match layout {
            Layout::Split => split::bytes(size),
            Layout::Packed => packed::bytes(size),
        };
        units::bytes_u64(bytes).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of the regions of `queues` queues of at most `size` descriptors. The memory is all
    /// zeroes to begin with.
    #[must_use]
    pub fn bytes(layout: Layout, size: u16, queues: u16) -> u64 {
        Inflight::stride(layout, size) * u64::from(queues)
    }

    /// The region of queue number `queue` inside the memory of all of them, each of which has
    /// `size` entries: as many as the queue has descriptors, or more.
    ///
    /// # Errors
    /// When the memory is too short for that queue, or not aligned.
    pub fn new(
        layout: Layout,
        size: u16,
        memory: Segment,
        queue: u16,
    ) -> Result<Inflight, RingError> {
        let stride = units::bytes_usize(Inflight::stride(layout, size));
        let start = usize::from(queue) * stride;
        if memory.len() < start + stride {
            return Err(RingError::InflightRegion);
        }
        let region = memory.part(start, stride);
        let record = match layout {
            Layout::Split => SplitRecord::new(size, region).map(Record::Split),
            Layout::Packed => PackedRecord::new(size, region).map(Record::Packed),
        };
        record
            .map(|record| Inflight { record })
            .ok_or(RingError::InflightRegion)
    }
}

/// What a region of `entries` entries says of a ring of `size` descriptors. 0 where that goes
/// without saying: so it is in regions of engines that knew nothing else.
fn size_mark(size: u16, entries: u16) -> u16 {
    if size == entries { 0 } else { size }
}
