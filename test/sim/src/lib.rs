//! The simulator: all shards of an array on one thread, false time, false drives, one seed.
//!
//! Promise of the faults: at most as many members are out or damaged at a time as the array has
//! parity, counted per stripe; beyond that nothing is judged but that nothing panics.
#![forbid(unsafe_code)]

pub mod drive;
pub mod random;
pub mod world;
