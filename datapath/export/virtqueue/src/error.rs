//! Why a ring is broken.

use std::fmt;

/// One of the three parts of a ring in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The descriptor table (split) or the descriptor ring (packed).
    Descriptors,
    /// What the guest writes: the avail ring (split) or its event suppression (packed).
    Driver,
    /// What we write: the used ring (split) or our event suppression (packed).
    Device,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Area::Descriptors => "descriptor area",
            Area::Driver => "driver area",
            Area::Device => "device area",
        })
    }
}

/// Why a ring cannot be started, or is broken for good. The guest (or the front-end) broke a rule
/// of virtio; only its own queue suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The queue size is 0, above 1024 or, for a split ring, no power of two.
    QueueSize(u16),
    /// A part of the ring is too short or not aligned.
    RingMemory(Area),
    /// The ring cannot start there.
    Base(u32),
    /// The avail index is more than the queue size ahead of what we have taken.
    IndexJump {
        /// What we have taken.
        from: u16,
        /// What the guest says.
        to: u16,
    },
    /// A head (split) or buffer id (packed) is not below the queue size.
    HeadOutOfRange(u16),
    /// A head or buffer id is given again while it is in flight.
    HeadInFlight(u16),
    /// A descriptor names a next one that is not in its table.
    NextOutOfRange(u16),
    /// A chain is longer than its table: it has a loop, or no end.
    ChainTooLong,
    /// More descriptors are made available than the packed ring has room for.
    Overrun,
    /// A descriptor of no bytes.
    ZeroLength,
    /// A descriptor or table is not in guest memory.
    BadAddress {
        /// Guest address.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// A descriptor for reading comes after one for writing.
    ReadableAfterWritable,
    /// All segments together are larger than the largest request.
    RequestTooLarge(u64),
    /// The memory of a chain lies in more pieces than any honest guest's.
    TooManySegments(usize),
    /// An indirect table without the feature.
    IndirectNotNegotiated,
    /// An indirect table inside an indirect table.
    IndirectNested,
    /// An indirect descriptor that goes on to a next one.
    IndirectWithNext,
    /// An indirect table that is empty, larger than a queue, or not made of whole descriptors.
    IndirectLength(u32),
    /// The in-flight region is too short, not aligned, or was made for another queue.
    InflightRegion,
    /// The in-flight region contradicts itself.
    InflightGarbage,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            RingError::QueueSize(size) => write!(f, "queue size {size} is not allowed"),
            RingError::RingMemory(area) => write!(f, "the {area} is too short or not aligned"),
            RingError::Base(base) => write!(f, "the ring cannot start at base {base:#x}"),
            RingError::IndexJump { from, to } => {
                write!(f, "avail index {to} is too far ahead of {from}")
            }
            RingError::HeadOutOfRange(head) => write!(f, "head {head} is not in the queue"),
            RingError::HeadInFlight(head) => {
                write!(f, "head {head} was given again before it was answered")
            }
            RingError::NextOutOfRange(next) => {
                write!(f, "next descriptor {next} is not in its table")
            }
            RingError::ChainTooLong => write!(f, "a chain is longer than its table"),
            RingError::Overrun => write!(f, "more descriptors are available than the ring holds"),
            RingError::ZeroLength => write!(f, "a descriptor has no bytes"),
            RingError::BadAddress { address, length } => {
                write!(f, "{length} bytes at {address:#x} are not guest memory")
            }
            RingError::ReadableAfterWritable => {
                write!(f, "a readable descriptor follows a writable one")
            }
            RingError::RequestTooLarge(bytes) => write!(f, "a request of {bytes} bytes"),
            RingError::TooManySegments(count) => {
                write!(f, "a request in {count} pieces of guest memory")
            }
            RingError::IndirectNotNegotiated => {
                write!(f, "an indirect table, but the feature was not negotiated")
            }
            RingError::IndirectNested => write!(f, "an indirect table inside an indirect table"),
            RingError::IndirectWithNext => write!(f, "an indirect descriptor has a next one"),
            RingError::IndirectLength(bytes) => {
                write!(f, "an indirect table of {bytes} bytes")
            }
            RingError::InflightRegion => {
                write!(f, "the in-flight region does not belong to this queue")
            }
            RingError::InflightGarbage => write!(f, "the in-flight region contradicts itself"),
        }
    }
}

impl std::error::Error for RingError {}
