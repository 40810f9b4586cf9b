//! The device's side of virtio rings: takes chains of a guest's memory, gives answers back.
//!
//! Split and packed rings, indirect tables, event index, and the vhost-user in-flight region. A
//! guest is not trusted: whatever it writes, the worst is a [`RingError`] on its own queue.
//! What does not live here: sockets and event descriptors, and what the bytes of a request mean.
//! Sources: virtio 1.2, sections 2.6 to 2.8; vhost-user protocol, "Inflight I/O tracking".
#![allow(
    unsafe_code,
    reason = "an island: rings lie in memory shared with a guest; all of it is in shared.rs"
)]

#[cfg(test)]
extern crate self as virtqueue;

mod chain;
mod error;
mod inflight;
mod packed;
pub mod planted;
mod shared;
mod split;
#[cfg(test)]
mod stop;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod testing;
mod vring;

use memory::Segment;
use memory::guest::RegionTable;

pub use chain::{Chain, Head};
pub use error::{Area, RingError};
pub use inflight::Inflight;
pub use memory::guest::BadAddress;
pub use vring::Vring;

/// Guest memory, as the guest addresses it.
pub trait GuestMemory {
    /// Appends where the `length` bytes at guest address `address` are, exactly as many; they may
    /// lie in several pieces. `hint` is the caller's: a place where the answer was found before, to
    /// begin with.
    ///
    /// # Errors
    /// When not all of the bytes are guest memory. What was appended then is to be ignored.
    fn translate(
        &self,
        address: u64,
        length: u64,
        hint: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress>;

    /// Where the `length` bytes at `address` are, if they are one piece and quickly found where
    /// `hint` says. Else `translate` is to be asked.
    fn near(&self, _address: u64, _length: u64, _hint: usize) -> Option<Segment> {
        None
    }

    /// What is at `address` and behind it, if that is quickly found where `hint` says. Only for
    /// bringing bytes nearer; nothing is decided by it.
    fn peek(&self, _address: u64, _hint: usize) -> Option<Segment> {
        None
    }
}

impl GuestMemory for RegionTable {
    #[inline]
    fn translate(
        &self,
        address: u64,
        length: u64,
        hint: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        RegionTable::translate(self, address, length, hint, out)
    }

    #[inline(always)]
    fn near(&self, address: u64, length: u64, hint: usize) -> Option<Segment> {
        RegionTable::near(self, address, length, hint)
    }

    #[inline(always)]
    fn peek(&self, address: u64, hint: usize) -> Option<Segment> {
        RegionTable::peek(self, address, hint)
    }
}

/// The two ways to lay out a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A descriptor table, an avail ring and a used ring (virtio 1.2, 2.7).
    Split,
    /// One descriptor ring for both directions (virtio 1.2, 2.8).
    Packed,
}

/// What guest and device have agreed on, as far as a ring cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent feature bits of virtio"
)]
pub struct Features {
    /// `VIRTIO_F_EVENT_IDX`: each side says at which entry it wants to be told.
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC`: a descriptor may stand for a table of them.
    pub indirect: bool,
}

/// Where the three parts of a ring are.
///
/// Whoever built the segments promises that they stay mapped as long as the ring lives.
#[derive(Clone, Copy, Debug)]
pub struct RingMemory {
    /// Descriptor table or ring.
    pub descriptors: Segment,
    /// Avail ring, or the guest's event suppression.
    pub driver: Segment,
    /// Used ring, or our event suppression.
    pub device: Segment,
}

/// How many bytes the three parts of a ring have at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBytes {
    /// Of [`RingMemory::descriptors`].
    pub descriptors: usize,
    /// Of [`RingMemory::driver`].
    pub driver: usize,
    /// Of [`RingMemory::device`].
    pub device: usize,
}

impl Layout {
    /// How many bytes the parts of a ring of `size` descriptors have (virtio 1.2, 2.6).
    #[must_use]
    pub fn ring_bytes(self, size: u16, features: Features) -> RingBytes {
        let size = usize::from(size);
        let event = if features.event_idx { 2 } else { 0 };
        match self {
            Layout::Split => RingBytes {
                descriptors: 16 * size,
                driver: 4 + 2 * size + event,
                device: 4 + 8 * size + event,
            },
            Layout::Packed => RingBytes {
                descriptors: 16 * size,
                driver: 4,
                device: 4,
            },
        }
    }
}
