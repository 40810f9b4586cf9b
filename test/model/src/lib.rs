//! The oracle: what an array and a volume must hold, written as plainly as possible.
//!
//! [`Volume`] knows which bytes a read may return; [`Layout`] puts a volume on members and checks
//! the parity of members, in memory or in files. It shares no code with the engine (no dependency
//! at all): field, matrix and rotation are written a second time, from their definitions. Slow on
//! purpose. What does not live here: anything that the engine could call.
#![forbid(unsafe_code)]

pub mod field;
mod layout;
mod volume;

pub use layout::{Layout, MemberFile};
pub use volume::{Flush, Kept, Mismatch, Read, Volume, Write};
