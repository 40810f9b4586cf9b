//! NVMe drives by their generic device (`/dev/ng0n1`): commands go to the drive as they are, past
//! the block layer of the kernel. Why and at what price: docs/design/013-nvme-passthrough.md.
//!
//! What does not live here: how commands reach the kernel (`uring.rs`), and when (`port.rs`).

mod answer;
mod command;
mod kernel;
mod namespace;
mod open;
mod sibling;

pub(crate) use answer::{Answered, Asked, RetryWaits, judge};
pub(crate) use command::{COMMAND_BYTES, Command, ENTRY_BYTES, IDENTIFY_BYTES};
pub(crate) use kernel::is_kernel_since;
pub(crate) use namespace::Namespace;
pub(crate) use open::{Generic, await_commands, open_generic};
pub(crate) use sibling::Sibling;
pub use sibling::{block_device_of, generic_device_of};
