//! What `cargo xtask` does. A library, so that each rule has tests that show it failing.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a command-line tool speaks on its output"
)]

pub mod bench;
pub mod check;
pub mod e2e;
pub mod fuzz;
pub mod instructions;
pub mod miri;
pub mod power;
pub mod races;
pub mod tidy;
mod workspace;

pub use workspace::Workspace;
