//! Drives: files, block devices, NVMe drives by their commands, memory and null, behind one door
//! per reactor; some pretend to be as slow as a real one.
//!
//! A [`Drive`] is opened once by the process, locked for as long as it lives, and shared by all
//! reactors; each reactor has its own [`Port`], through which it submits requests to all drives and
//! collects the answers. Offsets and lengths are bytes here, multiples of the drive's block size.
//!
//! What does not live here: what the bytes mean. This crate knows no array; of our own superblock
//! it knows the magic and the two places, so that a drive in use is recognised.

mod blocking;
mod counters;
mod drive;
mod errno;
mod error;
mod fault;
mod info;
mod ioctl;
mod mapping;
mod nvme;
mod open;
mod pace;
mod pins;
mod port;
mod probe;
mod signature;
mod spec;
mod sysfs;
mod uring;

pub use blocking::{ANSWER_WAIT, Unanswered};
pub use counters::{DriveCounters, OperationCounters, PortCounters};
pub use drive::{CacheWatch, Drive};
pub use error::{OpenError, OpenErrorKind, PortError, PortErrorKind};
pub use fault::Fault;
pub use info::{DriveInfo, DriveKind};
pub use nvme::{block_device_of, generic_device_of};
pub use pace::{PaceLaw, SLOWER_MAX};
pub use pins::{Pin, Pins};
pub use port::{DriveRequest, Port, PortOptions};
pub use probe::{RingProbe, probe_ring};
pub use signature::{
    GARBOARD_MAGIC, OWN_SIGNATURE, SUPERBLOCK_OFFSET, Signature, WIPE_BYTES, superblock_end_offset,
};
pub use spec::{DriveSpec, ParseSpecError};
pub use sysfs::since_boot;
