//! An export over vhost-user-blk: a volume that a virtual machine sees as a virtio-blk device.
//!
//! Two halves. On a reactor, a [`Queue`] takes requests from a guest's ring and puts answers
//! back. On threads of its own, a [`Session`] has the socket, follows the vhost-user protocol and
//! starts and stops queues through a [`Host`].
//! What does not live here: rings (crate `virtqueue`), volumes, reactors.
#![deny(unsafe_code, reason = "allowed in system.rs only")]

mod connection;
mod counters;
mod guest_memory;
mod host;
mod inflight;
mod profile;
mod protocol;
mod queue;
mod request;
mod session;
mod socket;
mod system;

pub use counters::{Counters, Latency};
pub use host::{Host, MemoryChange, QueueKey, SessionEvent};
pub use profile::{
    Access, CONFIG_BYTES_MAX, CacheMode, Configuration, FRONT_END_QUEUES_MAX, Profile, RangeLimits,
    SECTOR_BYTES, SERIAL_BYTES, Shown, WRITEBACK_OFFSET, WrongProfile, feature,
};
pub use queue::{Broken, Events, Notice, Queue, QueueSetup};
pub use request::Malformed;
pub use session::{
    FRONT_ENDS_MAX, FrontEndStatus, Session, SessionHandle, SessionStatus, Settings, Sharing,
};
pub use socket::{BindError, BindErrorKind, SocketSettings};
pub use system::Event;
