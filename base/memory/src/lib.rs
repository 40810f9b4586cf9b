//! Memory that drives and guests read and write: segments, buffers, guest regions.
//!
//! What does not live here: what the bytes mean.
#![allow(
    unsafe_code,
    reason = "an island: raw memory shared with guests and drives"
)]

pub mod faults;
pub mod guest;
mod kept;
mod map;
mod near;
pub mod pool;
mod segment;
mod signals;
mod slots;
mod stream;
pub mod words;

pub use guest::{BadAddress, Mapping, Region, RegionTable};
pub use kept::keep_mappings;
pub use near::{near, prefer};
pub use pool::{Backing, Buffer, Pages, Pool};
pub use segment::{Lasting, Segment, SegmentList, Walk, prefetch, prefetch_to_write};
pub use slots::SegmentSlots;
pub use stream::streaming_pays;
pub use words::Words;
