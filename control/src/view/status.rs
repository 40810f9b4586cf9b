//! How the engine itself is, and how many there are of everything.

use serde::{Deserialize, Serialize};

/// A reactor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactorView {
    /// Its number.
    pub reactor: u16,
    /// Its CPU.
    pub core: u16,
    /// The NUMA node of its CPU, where that is known.
    #[serde(default)]
    pub node: Option<u16>,
    /// `polling` or `parked`.
    pub state: String,
    /// Turns with work.
    pub busy_time_us_total: u64,
    /// Turns without, and sleep.
    pub idle_time_us_total: u64,
    /// Turns of a millisecond or more, sleep left out: its CPU was taken away, or something took
    /// longer than it should. Requests waited meanwhile.
    #[serde(default)]
    pub stalls_total: u64,
    /// In these; a part of the times above.
    #[serde(default)]
    pub stalled_time_us_total: u64,
    /// Guest requests completed.
    pub requests_total: u64,
}

/// How the engine itself is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The reactors.
    pub reactors: Vec<ReactorView>,
    /// The budget for the transfer buffers of all arrays; 0 without one.
    pub memory_bytes: u64,
    /// What these take, at most; they take it as they are used.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// How much of it is pinned (docs/design/016-pinned-memory.md).
    #[serde(default)]
    pub pinned_buffer_bytes: u64,
    /// `always`, `adaptive` or `never`.
    pub poll: String,
    /// The parity kernels in use.
    pub parity_backend: String,
    /// What was found on this host that costs speed or safety, in sentences.
    pub warnings: Vec<String>,
}

/// How many of a kind, and how many of them need attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// All.
    pub total: u32,
    /// Those that are not as they should be.
    pub attention: u32,
}

/// Everything at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    /// Of the engine that answers.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Since it serves.
    pub uptime_s: u64,
    /// Drives; failed and missing need attention.
    pub drives: Count,
    /// Arrays; degraded and failed need attention, those that nobody stopped and do not run, those
    /// with blocks that are lost, or that the last scrub left wrong, and those with a member whose
    /// file was deleted.
    pub arrays: Count,
    /// Volumes.
    pub volumes: Count,
    /// Exports; held and missing need attention.
    pub exports: Count,
    /// Jobs that run.
    pub jobs_running: u32,
    /// What needs attention, and why, a sentence for each: arrays, drives that no array of these
    /// lacks, exports that are missing. Those held back are among the engine's warnings.
    #[serde(default)]
    pub attention: Vec<String>,
    /// The engine itself.
    pub engine: EngineStatus,
}
