//! Volumes: named parts of an array, made of extents.
//!
//! Three parts. [`VolumeTable`] changes the volume table inside an array's config record; the
//! caller commits the record and zeroes what it is told to. [`VolumeMap`] finds a volume's blocks
//! in the array, for every request, without allocating. [`Limiter`] and [`Gate`] say when a request
//! may go. What does not live here: I/O, and the record's bytes (`array::format`).
#![forbid(unsafe_code)]

mod error;
mod free;
mod limiter;
mod map;
mod table;
#[cfg(test)]
mod tests;

pub use error::VolumeError;
pub use limiter::{Gate, Haste, Limiter, Limits, Throttled};
pub use map::{Piece, Pieces, VolumeMap};
pub use table::{NewVolume, VolumeTable, Zeroing, distrusted};
