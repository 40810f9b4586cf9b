//! What the engine shows: the JSON objects of the API and of `--output json`.
//!
//! Field names are stable. Numbers are in base units with the unit in the name. A field that does
//! not apply is `null`, never left out. Numbers called `_total` only grow while the engine runs.

mod status;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::status::{Count, EngineStatus, ReactorView, StatusView};
use crate::request::{DriveSpec, HedgedReads, Level, VolumeLimit, WriteHole};

/// Requests and bytes since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Reads completed.
    pub reads_total: u64,
    /// Writes completed, with discards and write-zeroes.
    pub writes_total: u64,
    /// Flushes completed.
    pub flushes_total: u64,
    /// Bytes read.
    pub read_bytes_total: u64,
    /// Bytes written.
    pub written_bytes_total: u64,
    /// Sum of the latencies of the reads.
    pub read_time_us_total: u64,
    /// Sum of the latencies of the writes.
    pub write_time_us_total: u64,
    /// Requests that ended with an error.
    pub errors_total: u64,
}

/// What a drive is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// Open, and nobody's.
    Free,
    /// Open, and waits to become a member.
    Spare,
    /// A member of an array, or a part of an array not started.
    Member,
    /// Answered with errors, or left out of its array.
    Failed,
    /// Wanted, and not to be found or not to be opened.
    Missing,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveView {
    /// Its name in this engine.
    pub name: String,
    /// Its uuid in this engine.
    pub uuid: Uuid,
    /// Where it is.
    pub spec: DriveSpec,
    /// What it is told by at the next start: an opaque text that only the engine compares
    /// ([`crate::Engine::open_drive`]). The WWID or serial where there is one, else what is on
    /// the drive (array uuid and place), else empty.
    pub identity: String,
    /// What it is doing.
    pub state: DriveState,
    /// Its array, if it belongs to one, or waits for its members to fail.
    pub array: Option<String>,
    /// The pool of spares that it is in.
    pub pool: Option<String>,
    /// Its place there.
    pub member: Option<u16>,
    /// The maker's name for it.
    pub model: Option<String>,
    /// The maker's number for it.
    pub serial: Option<String>,
    /// All of it.
    pub size_bytes: u64,
    /// The logical block.
    pub block_bytes: u64,
    /// The physical block.
    pub physical_block_bytes: u64,
    /// What survives a power loss whole or not at all.
    pub atomic_bytes: u64,
    /// How it is reached: `io_uring, direct`, `io_uring, buffered (the file system refuses
    /// O_DIRECT)`, `memory`, ….
    pub access: String,
    /// `volatile` or `none`: whether a flush is needed.
    pub write_cache: String,
    /// What was found on it, in words, naming every known superblock, partition table and file
    /// system; `null` when nothing known is there.
    pub signature: Option<String>,
    /// Why it is failed or missing.
    pub cause: Option<String>,
    /// The NUMA node that it, or the device below its file, hangs on, where that is known.
    #[serde(default)]
    pub node: Option<u16>,
    /// What it did.
    pub counters: IoCounters,
}

/// What an array is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayState {
    /// Serving, with all members good.
    Optimal,
    /// Serving, with members lost.
    Degraded,
    /// Waiting for members that it cannot do without: requests that need them wait, too.
    Holding,
    /// Too many members lost: requests that need them fail.
    Failed,
    /// Assembled, not serving.
    Stopped,
}

/// What a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Holds good data everywhere.
    Online,
    /// Is being filled.
    Rebuilding,
    /// Nobody fills the place.
    Missing,
    /// Left out after errors, or by command.
    Failed,
}

/// A place in an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its number over all groups.
    pub member: u16,
    /// Its group.
    pub group: u16,
    /// What it is doing.
    pub state: MemberState,
    /// The drive that fills it, if any.
    pub drive: Option<String>,
    /// Why it is missing or failed, what it lacks while it is being filled, or why it will be lost
    /// although it is online.
    pub cause: Option<String>,
    /// How it keeps up with its peers, as far as that is known.
    pub pace: Option<PaceView>,
}

/// How a member keeps up with the other members of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceView {
    /// What all but a hundredth of its reads took at the most, in the last second with enough of
    /// them.
    pub read_p99_us: Option<u64>,
    /// The same of its writes.
    pub write_p99_us: Option<u64>,
    /// Seconds in which it took more than four times as long as its peers, of the last 300 in which
    /// there was work.
    pub slow_seconds: u32,
    /// It did so for long enough to be read around.
    pub lags: bool,
    /// Reads of it that failed within the last 24 hours, since the engine began.
    #[serde(default)]
    pub read_errors: u32,
}

/// Members that an array waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    /// How long it has waited, in seconds.
    pub waited_s: u64,
    /// For how many more seconds requests wait; `null` when they fail.
    pub left_s: Option<u64>,
    /// Requests to drives that failed and are tried again.
    pub requests: u64,
    /// Who is waited for.
    pub members: Vec<HeldMember>,
}

/// Blocks of an array that nobody can tell any more: more of what was to be read for them could not
/// be read than there is parity. Reads of them fail until they are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostView {
    /// How many.
    pub blocks: u64,
    /// How large they are together.
    pub bytes: u64,
    /// Where they are.
    pub runs: Vec<LostRun>,
}

/// Lost blocks one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRun {
    /// The volume that they belong to; `null` when it is none.
    pub volume: Option<String>,
    /// Where they begin in the volume, or in the array when they belong to none.
    pub offset_bytes: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A member that its array waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldMember {
    /// Its number.
    pub member: u16,
    /// Its drive.
    pub drive: Option<String>,
    /// What its drive said.
    pub cause: String,
}

/// How the warning begins that tells of [`ArrayView::unrepaired_blocks`].
pub const LEFT_WRONG: &str = "the last scrub left wrong: ";
/// So begins the refusal of a start that nobody is to be asked about: force does not help.
pub const NOT_BY_FORCE: &str = "it cannot be started, not even by force";
/// So begins what an import says of an array whose name another one has.
pub const GOES_BY_ITS_UUID: &str = "it goes by its uuid, ";

/// An array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Its level.
    pub level: Level,
    /// What it is doing.
    pub state: ArrayState,
    /// Why it cannot start as it is, when it is stopped and cannot.
    #[serde(default)]
    pub cause: Option<String>,
    /// Members without which it may show wrong bytes: it is stopped, was not stopped cleanly, and
    /// can start.
    #[serde(default)]
    pub torn_without: Vec<u16>,
    /// Its places, in order.
    pub members: Vec<MemberView>,
    /// Members of one group.
    pub group_size: u16,
    /// Chunks of a stripe that hold redundancy (copies beyond the first for 1 and 10).
    pub parity: u16,
    /// A chunk.
    pub chunk_bytes: u64,
    /// The data chunks of a stripe together.
    pub stripe_bytes: u64,
    /// The unit of addressing.
    pub block_bytes: u64,
    /// What a drive must have to be a member.
    pub member_bytes: u64,
    /// Drives that wait for its members to fail, and for no other array's.
    pub spares: Vec<String>,
    /// The pool that it takes spares from when it has none of its own.
    pub pool: Option<String>,
    /// What volumes can use in all.
    pub size_bytes: u64,
    /// What volumes can still use.
    pub free_bytes: u64,
    /// Volumes are cut from extents of this size.
    pub extent_bytes: u64,
    /// What is done against the write hole.
    pub write_hole: WriteHole,
    /// A rebuild gets at least this much of one member.
    pub rebuild_floor_bytes_per_second: u64,
    /// Background work makes room when guests see more than this; `null`: no target.
    pub latency_target_us: Option<u64>,
    /// How long requests wait for members that the array cannot do without, before they fail; 0:
    /// not at all; `null`: for ever.
    pub hold_timeout_ms: Option<u64>,
    /// The most that a scrub may take; `null`: as the background goes.
    pub scrub_rate_bytes_per_second: Option<u64>,
    /// A scrub begins by itself so long after the last; `null`: never.
    pub scrub_every_s: Option<u64>,
    /// Which reads can be answered from the other members when their drive hangs.
    #[serde(default)]
    pub hedged_reads: HedgedReads,
    /// What was never written reads as zeroes, whatever the drives hold.
    #[serde(default)]
    pub unwritten_regions: bool,
    /// What the array waits for, when it does.
    #[serde(default)]
    pub hold: Option<HoldView>,
    /// Blocks that nobody can tell any more, when there are some.
    #[serde(default)]
    pub lost: Option<LostView>,
    /// Blocks that the last scrub found wrong and could not put right.
    #[serde(default)]
    pub unrepaired_blocks: u64,
    /// The NUMA node that it belongs to: of two thirds of its drives at least; `null`: there is
    /// none, or nobody knows.
    #[serde(default)]
    pub node: Option<u16>,
    /// The reactors that own its stripes now; none when it is stopped.
    #[serde(default)]
    pub reactors: Vec<u16>,
    /// Orders the configurations of this array.
    pub update: u64,
    /// How many volumes it has.
    pub volumes: u32,
    /// Jobs that run on it.
    pub jobs: Vec<u64>,
    /// What the operator should know, in sentences: shared controllers, what a forced start lost.
    pub warnings: Vec<String>,
    /// Those of them that starts have told and that may cost bytes: they stay until somebody says
    /// that he knows ([`crate::Control::acknowledge_array`]).
    #[serde(default)]
    pub start_warnings: Vec<String>,
    /// That the resync or rebuild which is due has stopped, and how it goes on.
    #[serde(default)]
    pub stopped_pass: Option<String>,
}

/// Spares that several arrays share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// The drives that wait in it.
    pub drives: Vec<String>,
    /// The arrays that take spares from it.
    pub arrays: Vec<String>,
}

/// An array found on drives that serve none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundArray {
    /// The name on the drives.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Its level.
    pub level: Level,
    /// How many members it has.
    pub members: u16,
    /// Where the members that were found are.
    pub drives: Vec<FoundDrive>,
    /// What volumes can use in all.
    pub size_bytes: u64,
    /// When the members were last agreed on.
    pub update: u64,
    /// Why it cannot be imported as it is; `null` when it can.
    pub cause: Option<String>,
}

/// A drive that carries a member of a found array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDrive {
    /// Where it is.
    pub spec: DriveSpec,
    /// Its name, when this engine knows it.
    pub name: Option<String>,
    /// The place it fills.
    pub member: u16,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Its array.
    pub array: String,
    /// What the guest sees.
    pub size_bytes: u64,
    /// What it takes of the array.
    pub allocated_bytes: u64,
    /// Guests do not change pages that are being written.
    pub stable_buffers: bool,
    /// Its limits.
    pub limit: VolumeLimit,
    /// Names of its exports.
    pub exports: Vec<String>,
    /// Bytes copied on the way, to keep parity true to what the drives get.
    pub copied_bytes_total: u64,
    /// Requests that its limits made wait.
    pub throttled_requests_total: u64,
    /// The sum of their waits.
    pub throttled_time_us_total: u64,
    /// What it did.
    pub counters: IoCounters,
}

impl VolumeView {
    /// What tells it from all others.
    #[must_use]
    pub fn key(&self) -> VolumeKey {
        VolumeKey {
            array: self.array.clone(),
            uuid: self.uuid,
        }
    }
}

/// Which volume is meant. An array that comes from elsewhere may have another one of the same name,
/// and, where somebody has chosen uuids himself, of the same uuid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeKey {
    /// The name of its array.
    pub array: String,
    /// Its uuid.
    pub uuid: Uuid,
}

/// Whether guests may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// They may.
    #[default]
    ReadWrite,
    /// They may not.
    ReadOnly,
}

/// Whether there may be several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// One front-end on the socket, one export of the volume.
    #[default]
    Exclusive,
    /// Several.
    Shared,
}

/// What may be done with guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestMemory {
    /// Used request by request; a balloon may take pages away.
    #[default]
    Unpinned,
    /// Registered with the kernel; the operator promises that nobody takes pages away.
    Pinned,
}

/// What a guest sees of an export, fixed when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportProfile {
    /// Virtio feature bits offered.
    pub virtio_features: u64,
    /// vhost-user protocol feature bits offered.
    pub protocol_features: u64,
    /// Queues.
    pub queues: u16,
    /// Descriptors of a queue.
    pub queue_size: u16,
    /// The logical block.
    pub block_bytes: u64,
    /// The physical block.
    pub physical_block_bytes: u64,
    /// The smallest request that is not read-modify-write of a chunk.
    pub minimum_io_bytes: u64,
    /// A full stripe.
    pub optimal_io_bytes: u64,
    /// Segments of one request.
    pub segments_max: u32,
    /// Bytes of one segment.
    pub segment_bytes_max: u32,
    /// What GET_ID says.
    pub serial: String,
}

/// What an export is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    /// The socket waits for a front-end.
    Waiting,
    /// A front-end is connected.
    Connected,
    /// Not served, because its requests crashed the engine again and again; its front-end waits
    /// until somebody resumes it.
    Held,
    /// Wanted, and could not be made at the last start.
    Missing,
}

/// A queue of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// Its index.
    pub queue: u16,
    /// The CPU whose reactor serves it; `null` when no guest has started it.
    pub core: Option<u16>,
    /// Requests completed.
    pub requests_total: u64,
    /// Why the queue was stopped, when a guest broke the rules.
    pub cause: Option<String>,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportView {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// `vhost-user-blk`.
    pub protocol: String,
    /// Its volume.
    pub volume: String,
    /// What it is doing.
    pub state: ExportState,
    /// Where front-ends connect.
    pub socket: PathBuf,
    /// Front-ends connected now.
    pub connections: u32,
    /// What the guest sees; `null` only while the export is missing and was never made.
    pub profile: Option<ExportProfile>,
    /// CPUs it may use; empty: all reactors.
    pub cores: Vec<u16>,
    /// Whether guests may write.
    pub access: Access,
    /// Whether there may be several front-ends.
    pub sharing: Sharing,
    /// What may be done with guest memory.
    pub guest_memory: GuestMemory,
    /// How much of it is pinned now.
    pub pinned_bytes: u64,
    /// Its queues.
    pub queues: Vec<QueueView>,
    /// Why it is held or missing.
    pub cause: Option<String>,
}

/// Which kind of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// The first resync of a new array.
    Initialize,
    /// A member is filled.
    Rebuild,
    /// Parity is made to agree again.
    Resync,
    /// Everything is read and compared.
    Scrub,
    /// A drive becomes a copy of a member, to take its place.
    Copy,
    /// What a volume gets and others have left is zeroed.
    Zero,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Under way.
    Running,
    /// Came to its end.
    Done,
    /// Could not come to its end.
    Failed,
    /// Was asked to stop.
    Cancelled,
}

/// Long work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id; not used twice while the engine runs.
    pub id: u64,
    /// Which kind.
    pub kind: JobKind,
    /// The array it works on.
    pub array: String,
    /// How far it is.
    pub state: JobState,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// The rate now; `null` before it was measured.
    pub rate_bytes_per_second: Option<u64>,
    /// What is left at that rate; `null` when nobody knows.
    pub time_left_s: Option<u64>,
    /// Why it failed; for a scrub that is done, what it found.
    pub cause: Option<String>,
}
