//! Plays the guest in tests: its memory, and the driver's side of its virtio rings.
//!
//! Written from the virtio specification and not from our device side, so that the two check each
//! other. A driver that follows the rules is [`Driver`]; one that breaks them uses its `raw_`
//! methods. The VMM's side of vhost-user is [`front_end`]. What does not live here: what requests
//! mean.
#![allow(
    unsafe_code,
    reason = "a guest's memory is shared with the device under test; all of it is in memory.rs"
)]

mod driver;
pub mod front_end;
mod memory;
mod packed;
mod split;

pub use crate::driver::{Driver, Layout, Options, Part, RingAddresses, Token, Used};
pub use crate::memory::Memory;
