//! The numbers that cross crate borders, as types: indices, sizes, time, and every bound.
//!
//! What does not live here: anything that knows RAID, drives or guests.
#![forbid(unsafe_code)]

mod clock;
pub mod dates;
mod index;
pub mod limits;
mod set;
mod size;

pub use clock::{Clock, FalseClock, Instant, MonotonicClock};
pub use index::{
    ArrayIndex, DriveIndex, GroupIndex, MemberIndex, NodeIndex, ReactorIndex, Role, StripeIndex,
    Update,
};
pub use set::{MemberSet, RoleSet, RoleSetIter};
pub use size::{BlockSize, ParseSizeError, Size};

/// Converts a length that is known to fit, because every length in memory does.
///
/// # Panics
/// Never on the 64-bit machines this engine runs on.
#[inline]
#[must_use]
pub fn bytes_u64(length: usize) -> u64 {
    u64::try_from(length).expect("a usize fits u64 on 64-bit machines")
}

/// Converts a length read from a format or a request into a length in memory.
///
/// # Panics
/// Never on the 64-bit machines this engine runs on.
#[inline]
#[must_use]
pub fn bytes_usize(length: u64) -> usize {
    usize::try_from(length).expect("a u64 fits usize on 64-bit machines")
}
