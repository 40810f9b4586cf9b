//! What the host knows besides the data path: names, and which drive is whose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use array::assembly::Assembly;
use array::format::{ArrayConfig, Superblock};
use control::membership::Membership;
use control::request::{DriveSpec, ExportCreate, VolumeLimit};
use control::scrub::ScrubFindingView;
use control::view::{ExportProfile, IoCounters, JobView};
use drive::Drive;
use engine::{ExportHost, Past};
use units::{ArrayIndex, DriveIndex, Instant, MemberIndex, NodeIndex};
use uuid::Uuid;
use vhost_user_blk::SessionHandle;
use volume::Limiter;

use crate::arrays::copy::CopyEntry;
use crate::balance::Placed;
use crate::zeroing::{Run, ZeroedLate, ZeroingEntry};

/// An open drive.
#[derive(Debug)]
pub(crate) struct DriveEntry {
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    pub(crate) spec: DriveSpec,
    pub(crate) index: DriveIndex,
    pub(crate) drive: Arc<Drive>,
    /// What a member's superblock on it names it by; empty when there is none.
    pub(crate) mark: String,
    /// What else is known of what it holds, as it was found: asked again, a drive that hangs would
    /// let everybody wait who looks at drives.
    pub(crate) signature: Option<String>,
    pub(crate) role: DriveRole,
    /// The NUMA node that it hangs on, where that is known.
    pub(crate) node: Option<NodeIndex>,
    /// It reads as zeroes: it did when it was opened, and was part of nothing since.
    pub(crate) blank: bool,
}

impl DriveEntry {
    /// Notes that it holds a member of this mark now, or nothing.
    pub(crate) fn now_holds(&mut self, mark: String) {
        self.mark = mark;
        self.signature = None;
    }
}

/// Whose a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriveRole {
    Free,
    Member {
        array: Uuid,
        member: MemberIndex,
    },
    /// It becomes a copy of a member, and takes its place then.
    Copy {
        array: Uuid,
        member: MemberIndex,
        /// The job that makes it one.
        job: u64,
    },
    /// It was a member, and was left out.
    LeftOut {
        array: Uuid,
        member: Option<MemberIndex>,
        cause: String,
    },
}

impl DriveRole {
    /// Whether no array uses such a drive.
    pub(crate) fn is_unused(&self) -> bool {
        match self {
            Self::Free | Self::LeftOut { .. } => true,
            Self::Member { .. } | Self::Copy { .. } => false,
        }
    }
}

/// An assembled array.
#[derive(Debug)]
pub(crate) struct ArrayEntry {
    pub(crate) index: ArrayIndex,
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    /// Of one member; layout and geometry are those of all.
    pub(crate) superblock: Superblock,
    /// As it was when it last changed here; the data path has the truth while it runs.
    pub(crate) config: ArrayConfig,
    pub(crate) serving: Serving,
    pub(crate) notices: Vec<Notice>,
    /// See [`control::view::ArrayView::torn_without`].
    pub(crate) torn_without: Vec<u16>,
    /// The first resync of a new array is its initialization.
    pub(crate) initializing: bool,
    /// What scrubs have found since it started.
    pub(crate) findings: VecDeque<ScrubFindingView>,
    /// Volumes where zeroes may still land that were not answered in time: what they have is not
    /// given to others, and their end does not move.
    pub(crate) zeroed_late: Vec<ZeroedLate>,
    /// Held by who changes options, so that the next change is made to what this one leaves.
    pub(crate) changing: Arc<Mutex<()>>,
}

/// What the operator should know of an array, as long as it is so.
#[derive(Debug)]
pub(crate) enum Notice {
    /// What is not undone by anything that happens to members.
    Lasting(String),
    /// A start that may cost bytes.
    Told(String),
    /// A drive was not taken when the array was put together.
    LeftOut { drive: String, text: String },
    /// These members are files of one file system.
    Together(Vec<String>),
    /// A pass has met lost blocks for which the list of them has no room.
    LostListFull,
}

/// Whether an array serves.
#[derive(Debug)]
pub(crate) enum Serving {
    Stopped(Box<Assembly>),
    Running,
    /// It was told to stop, and has not ended in time: it serves nobody any more. Who asks again
    /// ends it.
    Stopping {
        /// It was told to be destroyed, too.
        destroys: bool,
    },
}

impl Serving {
    /// Whether there are parts of it on reactors.
    pub(crate) fn has_shards(&self) -> bool {
        match self {
            Serving::Running | Serving::Stopping { .. } => true,
            Serving::Stopped(_) => false,
        }
    }
}

/// An export.
pub(crate) struct ExportEntry {
    pub(crate) create: ExportCreate,
    pub(crate) id: u64,
    pub(crate) array: Uuid,
    pub(crate) volume: Uuid,
    pub(crate) profile: ExportProfile,
    pub(crate) host: Arc<ExportHost>,
    pub(crate) session: SessionHandle,
    /// Queues that stay where somebody has put them.
    pub(crate) placed: Placed,
}

/// An export that was removed, whose last requests are not answered yet.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) array: Uuid,
    pub(crate) volume: Uuid,
}

/// A job and what its rate is computed from.
#[derive(Debug)]
pub(crate) struct JobEntry {
    pub(crate) view: JobView,
    pub(crate) array: Uuid,
    /// When it was opened or measured last, and how much was done then, if that is known.
    pub(crate) seen: (Instant, Option<u64>),
    /// It was stopped, and what is done since is another job.
    pub(crate) over: bool,
}

impl JobEntry {
    /// So much is done of the total.
    pub(crate) fn measure(&mut self, now: Instant, done: u64) {
        let (at, before) = self.seen;
        let elapsed = now.since(at).as_secs_f64();
        let since = before.and_then(|before| done.checked_sub(before));
        match since {
            // It has begun, or begun anew: from here on it can be told.
            None => {
                self.view.rate_bytes_per_second = None;
                self.seen = (now, Some(done));
            }
            Some(bytes) if elapsed > 0.5 => {
                self.view.rate_bytes_per_second = Some(per_second(bytes, elapsed));
                self.seen = (now, Some(done));
            }
            Some(_) => {}
        }
        self.view.done_bytes = done;
        let left = self.view.total_bytes - done;
        let rate = self.view.rate_bytes_per_second.filter(|rate| *rate > 0);
        self.view.time_left_s = rate.map(|rate| left.div_ceil(rate));
    }
}

/// Bytes per second, rounded down.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate for people"
)]
fn per_second(bytes: u64, seconds: f64) -> u64 {
    if seconds <= 0.0 {
        0
    } else {
        (bytes as f64 / seconds) as u64
    }
}

/// What a volume may do, and what its guests did that have gone.
#[derive(Debug, Default)]
pub(crate) struct LimitEntry {
    /// As it was asked for.
    pub(crate) limit: VolumeLimit,
    /// As its rings obey it.
    pub(crate) limiter: Arc<Limiter>,
    /// What its rings did that have ended.
    pub(crate) past: Arc<Past>,
    /// What somebody was told that all of its rings did.
    told: Mutex<IoCounters>,
}

impl LimitEntry {
    /// What all rings of the volume share.
    pub(crate) fn shared(&self) -> (Arc<Limiter>, Arc<Past>) {
        (Arc::clone(&self.limiter), Arc::clone(&self.past))
    }

    /// What to tell when so much was found: never less than before. A ring that is on its way from
    /// one reactor to another is found on neither, and who takes rates of counters that fall takes
    /// it for another engine.
    pub(crate) fn tell(&self, found: IoCounters) -> IoCounters {
        let mut told = self.told.lock().expect("nothing panics under it");
        *told = IoCounters {
            reads_total: found.reads_total.max(told.reads_total),
            writes_total: found.writes_total.max(told.writes_total),
            flushes_total: found.flushes_total.max(told.flushes_total),
            read_bytes_total: found.read_bytes_total.max(told.read_bytes_total),
            written_bytes_total: found.written_bytes_total.max(told.written_bytes_total),
            read_time_us_total: found.read_time_us_total.max(told.read_time_us_total),
            write_time_us_total: found.write_time_us_total.max(told.write_time_us_total),
            errors_total: found.errors_total.max(told.errors_total),
        };
        *told
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) drives: BTreeMap<String, DriveEntry>,
    /// Drives that somebody takes out of their arrays, by uuid: what they are asked fails, as if
    /// somebody had pulled them.
    pub(crate) pulled: BTreeSet<Uuid>,
    /// Drives of members whose files were deleted, when somebody looked last.
    pub(crate) deleted: BTreeSet<Uuid>,
    /// By what drives say that they are ([`DriveEntry::mark`]): those that claimed it beside each
    /// other when one of them would have returned to its array. Until somebody removes or wipes all
    /// but one, or gives one the place.
    pub(crate) contested: BTreeMap<String, BTreeSet<Uuid>>,
    /// Drives that have not said what they hold: whoever assembled arrays has done so without.
    pub(crate) silent: BTreeSet<Uuid>,
    pub(crate) arrays: BTreeMap<String, ArrayEntry>,
    pub(crate) exports: BTreeMap<String, ExportEntry>,
    pub(crate) ending: BTreeMap<String, Ending>,
    /// By array and volume: somebody may have chosen one uuid for volumes of two arrays.
    pub(crate) limits: BTreeMap<(Uuid, Uuid), LimitEntry>,
    pub(crate) jobs: BTreeMap<u64, JobEntry>,
    /// Copies that are being made, by their jobs.
    pub(crate) copies: BTreeMap<u64, CopyEntry>,
    /// Volumes that are being made or grow, by their jobs.
    pub(crate) zeroings: BTreeMap<u64, (ZeroingEntry, Arc<Run>)>,
    /// What was around a drive that is not open when it was looked for last, by the drive's uuid.
    pub(crate) around: BTreeMap<Uuid, Vec<DriveSpec>>,
    /// When that was, of a drive that its array waits for, and where it was found.
    pub(crate) looked: BTreeMap<Uuid, units::Instant>,
    pub(crate) again: BTreeMap<Uuid, Vec<DriveSpec>>,
    /// Who was in sync in arrays that have stopped since somebody looked.
    pub(crate) ended: BTreeMap<Uuid, Membership>,
    /// Who was in sync last, by array.
    pub(crate) memberships: BTreeMap<Uuid, Membership>,
    pub(crate) next_job: u64,
    pub(crate) next_export: u64,
}

impl State {
    pub(crate) fn free_drive_index(&self) -> Option<DriveIndex> {
        let taken = |index: &usize| self.drives.values().any(|drive| drive.index.at() == *index);
        let free = (0..units::limits::DRIVES_MAX).find(|index| !taken(index))?;
        Some(DriveIndex::from_at(free))
    }

    pub(crate) fn free_array_index(&self) -> Option<ArrayIndex> {
        let taken = |index: &usize| self.arrays.values().any(|array| array.index.at() == *index);
        let free = (0..units::limits::ARRAYS_MAX).find(|index| !taken(index))?;
        Some(ArrayIndex::from_at(free))
    }

    pub(crate) fn drive_at(&self, index: DriveIndex) -> Option<&DriveEntry> {
        self.drives.values().find(|drive| drive.index == index)
    }

    pub(crate) fn array_by_uuid(&self, uuid: Uuid) -> Option<&ArrayEntry> {
        self.arrays.values().find(|array| array.uuid == uuid)
    }

    /// The first export of such an array and volume, and how to be rid of it.
    pub(crate) fn export_where(&self, is: impl Fn(Uuid, Uuid) -> bool) -> Option<(&str, String)> {
        let mut exports = self.exports.values();
        if let Some(export) = exports.find(|export| is(export.array, export.volume)) {
            let name = export.create.name.as_str();
            return Some((name, format!("`garboard export remove {name}` first")));
        }
        let mut ending = self.ending.iter();
        let (name, _) = ending.find(|(_, export)| is(export.array, export.volume))?;
        Some((name, "wait until its last requests are answered".to_owned()))
    }

    /// The array keeps its drives, or this member's: those that somebody wanted to take out are
    /// not pulled after all. Also one that was left out by now, and that nobody has let go yet.
    pub(crate) fn put_back(&mut self, array: Uuid, member: Option<MemberIndex>) {
        let keeps = |role: &DriveRole| match role {
            DriveRole::Member {
                array: of,
                member: place,
            } => *of == array && member.is_none_or(|member| member == *place),
            DriveRole::LeftOut { array: of, .. } => *of == array && member.is_none(),
            DriveRole::Free | DriveRole::Copy { .. } => false,
        };
        for drive in self.drives.values().filter(|drive| keeps(&drive.role)) {
            if self.pulled.remove(&drive.uuid) {
                drive.drive.clear_faults();
            }
        }
    }

    /// The node that an array belongs to: of most of its members that are here.
    pub(crate) fn node_of(&self, array: Uuid) -> Option<NodeIndex> {
        let is_member = |role: &DriveRole| match role {
            DriveRole::Member { array: of, .. } => *of == array,
            DriveRole::Free | DriveRole::Copy { .. } | DriveRole::LeftOut { .. } => false,
        };
        let drives = self.drives.values();
        let members = drives.filter(|drive| is_member(&drive.role));
        nodes::of_members(members.filter_map(|drive| drive.node))
    }

    /// The drive that fills a member's place.
    pub(crate) fn drive_of(&self, array: Uuid, member: MemberIndex) -> Option<&DriveEntry> {
        let role = DriveRole::Member { array, member };
        self.drives.values().find(|drive| drive.role == role)
    }
}
