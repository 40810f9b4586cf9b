//! What a session asks of the engine that runs its queues, and what it tells it.

use std::fmt;
use std::sync::Arc;

use memory::guest::RegionTable;
use virtqueue::RingError;

use crate::queue::{Broken, Queue};
use crate::system::Event;

/// Names one ring of an export: rings of different front-ends of a shared export are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Which connection, counted from 0 and never used again by the same session.
    pub front_end: u32,
    /// Which ring of it.
    pub index: u16,
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {} of front-end {}", self.index, self.front_end)
    }
}

/// How guest memory changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryChange {
    /// Regions were added; everything that was there stays.
    Added,
    /// Regions were removed; their memory may be used for something else at once.
    Removed,
}

/// Runs the queues of a session. Called from the session's threads, never from a reactor.
pub trait Host: Send + Sync + 'static {
    /// Puts a queue on a reactor, which polls it at once: work may be waiting without a kick.
    fn start_queue(&self, key: QueueKey, queue: Queue);

    /// Quiesces a queue, waits until it is drained (or broken and without pending requests),
    /// and ends it. Returns what [`Queue::stop`] says.
    fn stop_queue(&self, key: QueueKey) -> u32;

    /// Gives all queues of a front-end new memory by [`Queue::set_memory`]. After
    /// [`MemoryChange::Removed`] it returns only when every one [`Queue::has_let_go`].
    fn set_memory(&self, front_end: u32, memory: &Arc<RegionTable>, change: MemoryChange);

    /// Replaces the call of a running queue.
    fn set_call(&self, key: QueueKey, call: Option<Event>);

    /// Replaces the kick of a running queue.
    fn set_kick(&self, key: QueueKey, kick: Option<Event>);

    /// Replaces the error event of a running queue.
    fn set_error(&self, key: QueueKey, error: Option<Event>);

    /// Comes first on every thread of the session, which works for nobody else.
    fn begin_thread(&self) {}

    /// Takes note of something that happened; for the log. Must not wait.
    fn event(&self, event: &SessionEvent);
}

/// Something that happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A front-end has connected.
    Connected {
        /// Its number.
        front_end: u32,
    },
    /// A front-end is gone, and its queues are stopped.
    Disconnected {
        /// Its number.
        front_end: u32,
        /// What ended it.
        why: String,
    },
    /// A front-end was turned away.
    Refused {
        /// What for.
        why: &'static str,
    },
    /// A queue serves.
    QueueStarted {
        /// Which.
        key: QueueKey,
        /// Its descriptors.
        size: u16,
    },
    /// A ring cannot be served as it is.
    QueueNotStarted {
        /// Which.
        key: QueueKey,
        /// What about it.
        why: RingError,
    },
    /// A queue does not serve any more.
    QueueBroken {
        /// Which.
        key: QueueKey,
        /// What broke it.
        why: Broken,
        /// How many such events before this one were not told, to keep the log readable.
        untold: u64,
    },
    /// Drives move bytes of the guest's memory without looking its pages up.
    MemoryPinned {
        /// Whose.
        front_end: u32,
        /// How many bytes.
        bytes: u64,
    },
    /// The guest's memory was promised to stay, and is used as without that.
    MemoryNotPinned {
        /// Whose.
        front_end: u32,
        /// What for.
        why: String,
    },
    /// The thread of a front-end has panicked; its queues are stopped.
    Panicked,
    /// The socket cannot be served any more.
    Failed {
        /// What the operating system said.
        why: String,
    },
}

impl SessionEvent {
    /// A stable name for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            SessionEvent::Connected { .. } => "vhost_connected",
            SessionEvent::Disconnected { .. } => "vhost_disconnected",
            SessionEvent::Refused { .. } => "vhost_refused",
            SessionEvent::QueueStarted { .. } => "vhost_queue_started",
            SessionEvent::QueueNotStarted { .. } => "vhost_queue_not_started",
            SessionEvent::QueueBroken { .. } => "vhost_queue_broken",
            SessionEvent::MemoryPinned { .. } => "vhost_memory_pinned",
            SessionEvent::MemoryNotPinned { .. } => "vhost_memory_not_pinned",
            SessionEvent::Panicked => "vhost_panicked",
            SessionEvent::Failed { .. } => "vhost_failed",
        }
    }

    /// Whether somebody should look at it.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            SessionEvent::Connected { .. }
            | SessionEvent::Disconnected { .. }
            | SessionEvent::QueueStarted { .. }
            | SessionEvent::MemoryPinned { .. } => false,
            SessionEvent::Refused { .. }
            | SessionEvent::QueueNotStarted { .. }
            | SessionEvent::QueueBroken { .. }
            | SessionEvent::MemoryNotPinned { .. }
            | SessionEvent::Panicked
            | SessionEvent::Failed { .. } => true,
        }
    }
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionEvent::Connected { front_end } => write!(f, "front-end {front_end} connected"),
            SessionEvent::Disconnected { front_end, why } => {
                write!(f, "front-end {front_end} disconnected: {why}")
            }
            SessionEvent::Refused { why } => write!(f, "a front-end was refused: {why}"),
            SessionEvent::QueueStarted { key, size } => write!(f, "{key} started, size {size}"),
            SessionEvent::QueueNotStarted { key, why } => write!(f, "{key} not started: {why}"),
            SessionEvent::QueueBroken { key, why, untold } => {
                write!(f, "{key} broken: {why}")?;
                match untold {
                    0 => Ok(()),
                    _ => write!(f, " ({untold} more were not told)"),
                }
            }
            SessionEvent::MemoryPinned { front_end, bytes } => {
                write!(
                    f,
                    "{bytes} bytes of memory of front-end {front_end} are pinned"
                )
            }
            SessionEvent::MemoryNotPinned { front_end, why } => {
                write!(
                    f,
                    "memory of front-end {front_end} is not pinned, and used without: {why}"
                )
            }
            SessionEvent::Panicked => f.write_str("the thread of a front-end panicked"),
            SessionEvent::Failed { why } => write!(f, "the socket failed: {why}"),
        }
    }
}
