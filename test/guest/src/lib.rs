//! Plays the guest in tests: its memory, and the driver's side of its virtio rings.
//!
//! Written from the virtio specification and not from our device side, so that the two check each
//! other. A driver that follows the rules is [`Driver`]; one that breaks them uses its `raw_`
//! methods. What does not live here: the VMM's side of vhost-user, and what requests mean.
#![allow(
    unsafe_code,
    reason = "a guest's memory is shared with the device under test; all of it is in memory.rs"
)]

mod driver;
mod memory;
mod packed;
mod split;

pub use crate::driver::{Driver, Layout, Options, Part, RingAddresses, Token, Used};
pub use crate::memory::Memory;
