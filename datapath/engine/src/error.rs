//! Why something that was asked of the engine is not done.

use std::fmt;
use std::io;

use array::Refusal;
use block::Status;
use drive::PortError;
use units::Size;

use crate::undecided::LateZeroes;

/// Drives have not answered within [`crate::EngineSettings::patience`]. Nothing was taken back:
/// what was asked for is done as soon as they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its drives have not answered yet")
    }
}

/// Why a change was not reported done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The array refused it, and nothing was changed.
    Refused(Refusal),
    /// It is under way.
    Late,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Refused(refusal) => refusal.fmt(f),
            ChangeError::Late => Late.fmt(f),
        }
    }
}

/// Why extents were not zeroed.
#[derive(Debug)]
pub enum ZeroError {
    /// The verdict of the array.
    Status(Status),
    /// A part is under way, and may still land; what tells when it cannot any more.
    Late(LateZeroes),
}

/// Why the engine, or an array, could not start.
#[derive(Debug)]
pub enum StartError {
    /// The reactor's io_uring.
    Port(PortError),
    /// A thread, a core, memory.
    Io(io::Error),
    /// A reactor is gone.
    Stopped,
    /// The array refused.
    Refused(Refusal),
    /// It is under way; the array's number stays taken.
    Late,
    /// The shard could not be made.
    Shard(array::ShardError),
    /// Of the budget for buffers less is left than an array takes at least, in bytes.
    Memory {
        /// What there is.
        given: u64,
        /// What is wanted.
        least: u64,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Port(error) => write!(f, "{error}"),
            StartError::Io(error) => write!(f, "{error}"),
            StartError::Stopped => f.write_str("a reactor has stopped"),
            StartError::Refused(refusal) => write!(f, "{refusal}"),
            StartError::Late => Late.fmt(f),
            StartError::Shard(error) => write!(f, "{error}"),
            StartError::Memory { given, least } => write!(
                f,
                "its buffers take {} at least, and the budget for them has {}",
                Size(*least),
                Size(*given)
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl StartError {
    /// Why a reactor has not begun: its port, or whatever came before.
    pub(crate) fn of_reactor(error: io::Error) -> StartError {
        match error.downcast::<PortError>() {
            Ok(port) => StartError::Port(port),
            Err(error) => StartError::Io(error),
        }
    }
}

impl From<reactor::Stopped> for StartError {
    fn from(_: reactor::Stopped) -> StartError {
        StartError::Stopped
    }
}
