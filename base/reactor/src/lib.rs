//! Reactors: threads that own one core each, turn a [`Core`] endlessly, and sleep when there is
//! nothing to do, without ever missing what comes.
//!
//! What does not live here: what a core does in its turn. The thread of a reactor is the only one
//! that touches its core; everybody else hands it closures through a [`Handle`].
#![forbid(unsafe_code)]

mod control;
mod duty;
mod event_fd;
mod spin;
mod thread;
mod turns;

use std::time::Duration;

use units::Instant;

pub use control::{Handle, Stopped};
pub use duty::Duty;
pub use event_fd::EventFd;
pub use thread::{Settings, default_cores, start};
pub use turns::{CLOSURES_PER_TURN, Loop, Turn};

/// What a reactor turns. Its thread alone calls these, in the order that [`Loop::turn`] tells.
///
/// The sleep is ended by the wake-up handed to [`start`]; whoever implements `sleep` waits for that
/// one too. A wake-up is kept until it is taken (as an eventfd keeps its count), and may be taken
/// in `turn`, `prepare_sleep`, `sleep` and `woken` only.
pub trait Core: 'static {
    /// Does what there is to do, without waiting; returns how much it was. The turn begins `now`.
    fn turn(&mut self, now: Instant) -> usize;

    /// Asks everybody who brings work to wake us from now on, then looks once more. `false` when
    /// there is work after all. Always followed by `woken`, with or without a `sleep` between.
    fn prepare_sleep(&mut self) -> bool;

    /// Waits in one call until woken, at most for `limit`.
    fn sleep(&mut self, limit: Option<Duration>);

    /// Tells everybody that no wake-up is needed while we run.
    fn woken(&mut self);

    /// When the core must have its next turn even if nothing wakes it.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// When a reactor without work sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// Never: the lowest latency, for a whole core.
    Always,
    /// After a spell without work, whose length adapts to how soon work comes.
    #[default]
    Adaptive,
    /// At once.
    Never,
}
