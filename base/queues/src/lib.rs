//! Queues between cores: rings with one sender and one receiver, and the mesh of reactors that
//! write to each other through them, with credits, and park without losing a message.
//!
//! What does not live here: what the messages mean, and the system call that wakes a thread.
#![allow(
    unsafe_code,
    reason = "an island: slots of a ring that two threads share"
)]

mod mesh;
mod parking;
mod pieces;
pub mod spsc;
pub mod sync;

pub use mesh::{MESSAGE_BYTES_MAX, Post, mesh};
pub use parking::{NoWake, Park, Wake};
pub use pieces::{Piece, Pieces};

/// The message handed back because there is no room for it now. Retry after the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);
