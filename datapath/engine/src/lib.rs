//! The data path put together: on each reactor a [`Core`] with its drives' port, its shards of
//! all arrays and the rings it serves; and the [`Engine`], by which the control path reaches them.
//!
//! What does not live here: names, wanted state, files and sockets of the control path.
#![forbid(unsafe_code)]

mod arrays;
mod budget;
mod control;
mod core;
mod error;
mod exports;
mod lines;
mod load;
mod near;
mod past;
mod pins;
mod ports;
pub mod road;
mod shares;
mod splits;
mod stop;
mod undecided;

pub use arrays::ArrayState;
pub use control::{ArrayStart, Engine, EngineSettings, ReactorReport};
pub use core::{Core, ReactorTimes};
pub use error::{ChangeError, Late, StartError, ZeroError};
pub use exports::{ExportHost, MoveError, Served, Spread};
pub use load::{Distribution, ReactorLoad, RingLoad};
pub use past::Past;
pub use undecided::{Decided, LateZeroes};
