//! What is asked of scrubs, and what they show.

use serde::{Deserialize, Serialize};

/// `POST /v1/arrays/NAME/scrub`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScrubBody {
    /// Begin anew, also when one is under way or paused.
    pub from_beginning: bool,
}

/// What a scrub is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// Nothing: none is under way.
    Idle,
    /// It goes through the stripes.
    Running,
    /// It waits: for a resync or rebuild, or because the array is stopped or has lost too much.
    Waiting,
    /// It was stopped, and goes on when it is started again.
    Paused,
    /// It gave up at a stripe, and goes on when it is started again.
    Failed,
}

/// Why a block is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubCause {
    /// The chunks of its stripe do not agree.
    Mismatch,
    /// A drive could not read it.
    Unreadable,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubOutcome {
    /// The wrong chunks were located, written anew and read back.
    Repaired,
    /// It cannot be known which chunk is wrong: nothing was changed.
    NotLocated,
    /// Wrong chunks were written anew, and what is read back is still wrong.
    NotKept,
    /// Too few chunks could be read: nothing was changed.
    Lost,
}

/// Neighbouring blocks of the chunks of one stripe at which a scrub found the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFindingView {
    /// When: seconds since 1970 UTC.
    pub time_s: u64,
    /// The stripe.
    pub stripe: u64,
    /// First block within the chunks.
    pub block: u32,
    /// How many blocks.
    pub blocks: u32,
    /// Why they were noticed.
    pub cause: ScrubCause,
    /// What became of them.
    pub outcome: ScrubOutcome,
    /// The members whose chunks were wrong; empty when that cannot be known.
    pub members: Vec<u16>,
    /// The volume that the stripe belongs to, if it belongs to one.
    pub volume: Option<String>,
    /// Where in the volume: exactly, when one data chunk was wrong; all of the stripe, when it
    /// cannot be known; `null` when only parity was wrong, or the volume does not use it.
    pub offset_bytes: Option<u64>,
    /// How much from there.
    pub length_bytes: Option<u64>,
}

/// How often a member was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubMemberView {
    /// Its number.
    pub member: u16,
    /// The drive that fills it now.
    pub drive: Option<String>,
    /// Blocks of its that scrubs found wrong or unreadable, since the array started.
    pub wrong_blocks_total: u64,
}

/// The scrub of one array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubView {
    /// The array.
    pub array: String,
    /// What it is doing.
    pub state: ScrubState,
    /// The job that runs it.
    pub job: Option<u64>,
    /// Stripes looked at by the pass under way; all of them after a pass that reached the end.
    pub stripes_checked: u64,
    /// Stripes in all.
    pub stripes: u64,
    /// Of the pass under way, or the last: blocks of stripes whose chunks did not agree.
    pub mismatched_blocks: u64,
    /// Blocks that a drive could not read.
    pub unreadable_blocks: u64,
    /// Of both, those that are right again.
    pub repaired_blocks: u64,
    /// And those that are not.
    pub unrepaired_blocks: u64,
    /// When a pass last reached the end: seconds since 1970 UTC; `null`: never.
    pub finished_at_s: Option<u64>,
    /// One begins by itself so long after the last; `null`: never.
    pub every_s: Option<u64>,
    /// The most that it may take; `null`: as the background goes.
    pub rate_bytes_per_second: Option<u64>,
    /// Members that were wrong.
    pub members: Vec<ScrubMemberView>,
    /// The last that was found since the array started, newest last; at most 64.
    pub findings: Vec<ScrubFindingView>,
}
