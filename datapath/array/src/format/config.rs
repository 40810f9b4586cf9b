//! The config record: everything of an array that changes, in one atomic commit per update.

use std::fmt;

use units::{MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::extent::{ExtentRun, extents_of, join_runs};
use super::head::{Features, FormatError};
use super::missed::Missed;
use super::superblock::Superblock;
use super::text::DriveIdentity;
use crate::losses::LostBlocks;
use crate::planted::{self, Fault};
use crate::scrub::ScrubRecord;

/// How many earlier updates a record names.
pub const ANCESTORS_MAX: usize = 16;

/// Which of the two config areas of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigSlot {
    /// Config A, for even updates.
    A,
    /// Config B, for odd updates.
    B,
}

impl ConfigSlot {
    /// The position in `Layout::config`.
    #[must_use]
    pub fn at(self) -> usize {
        match self {
            ConfigSlot::A => 0,
            ConfigSlot::B => 1,
        }
    }
}

/// Why a member was excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExclusionCause {
    /// The drive went away.
    Gone,
    /// It could not read, more often than is tolerated.
    ReadErrors,
    /// It could not write.
    WriteError,
    /// It could not flush, so what it holds is not known.
    FlushFailed,
    /// Slower than its peers for too long.
    TooSlow,
    /// Somebody said so.
    Command,
    /// It was not found when the array was assembled.
    Absent,
    /// Its record was too old when the array was assembled.
    Stale,
    /// Another drive took its place and is not filled yet.
    Replaced,
    /// The file system that its file lies on had no room left.
    NoSpace,
}

impl ExclusionCause {
    /// Its place in [`ExclusionCause::ALL`].
    #[must_use]
    pub fn at(self) -> usize {
        let place = ExclusionCause::ALL.iter().position(|cause| *cause == self);
        place.expect("all causes")
    }

    /// All causes.
    pub const ALL: [ExclusionCause; 10] = [
        ExclusionCause::Gone,
        ExclusionCause::ReadErrors,
        ExclusionCause::WriteError,
        ExclusionCause::FlushFailed,
        ExclusionCause::TooSlow,
        ExclusionCause::Command,
        ExclusionCause::Absent,
        ExclusionCause::Stale,
        ExclusionCause::Replaced,
        ExclusionCause::NoSpace,
    ];
}

impl fmt::Display for ExclusionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExclusionCause::Gone => "drive gone",
            ExclusionCause::ReadErrors => "read errors",
            ExclusionCause::WriteError => "write error",
            ExclusionCause::FlushFailed => "flush failed",
            ExclusionCause::TooSlow => "did not answer in time",
            ExclusionCause::Command => "by command",
            ExclusionCause::Absent => "absent at assembly",
            ExclusionCause::Stale => "stale at assembly",
            ExclusionCause::Replaced => "replaced",
            ExclusionCause::NoSpace => "no space left for its file",
        })
    }
}

/// What a member may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Holds all its chunks.
    InSync,
    /// Being filled.
    Rebuilding {
        /// Chunks of stripes below are good.
        until: StripeIndex,
        /// Of those from there on: what it may lack.
        missed: Missed,
    },
    /// Holds nothing that may be used.
    Excluded {
        /// The update that excluded it.
        since: Update,
        /// Why.
        cause: ExclusionCause,
        /// What it may lack when it returns.
        missed: Missed,
    },
    /// The place was never filled.
    Missing,
}

/// A place of an array and what fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// As in the member's superblock.
    pub uuid: Uuid,
    /// What it may be used for.
    pub state: MemberState,
    /// The whole drive.
    pub drive_bytes: u64,
    /// What names the drive, as far as known.
    pub identity: DriveIdentity,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeState {
    /// Its extents are being zeroed.
    Creating,
    /// Usable.
    Ready,
    /// Its extents are being given back.
    Deleting,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Its identity.
    pub uuid: Uuid,
    /// Its name, unique in the array; see `check_name`.
    pub name: String,
    /// Its size in blocks of the array, exactly as asked.
    pub size_blocks: u64,
    /// Where it lies, in the volume's order.
    pub extents: Vec<ExtentRun>,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Its user promises not to change a buffer that is being written.
    pub stable_buffers: bool,
}

/// What closes the write hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteHole {
    /// Resync after an unclean stop; writes are logged where a data chunk is missing.
    #[default]
    Auto,
    /// All writes are logged.
    Strict,
    /// Resync after an unclean stop, and nothing is logged.
    Off,
}

/// Which reads can be answered from other members when their drive hangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HedgedReads {
    /// Those of drives that were slow lately.
    #[default]
    Auto,
    /// All: what is read goes through a buffer of ours and is copied.
    Always,
}

/// What can be set while an array runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayOptions {
    /// What closes the write hole.
    pub write_hole: WriteHole,
    /// How long requests wait for members that the array cannot do without, before they fail; 0:
    /// not at all.
    pub hold_timeout_seconds: u32,
    /// A rebuild gets at least so much of each drive.
    pub rebuild_floor_bytes_per_second: u64,
    /// Background work yields above this latency; 0 means no target.
    pub latency_target_us: u32,
    /// User bytes per second that a scrub may take; 0 means as the background goes.
    pub scrub_rate_bytes_per_second: u64,
    /// A scrub begins by itself so long after the last one; 0 means never.
    pub scrub_every_seconds: u32,
    /// Which reads can be given up.
    pub hedged_reads: HedgedReads,
}

impl Default for ArrayOptions {
    fn default() -> ArrayOptions {
        ArrayOptions {
            write_hole: WriteHole::Auto,
            hold_timeout_seconds: 60,
            rebuild_floor_bytes_per_second: 50_000_000,
            latency_target_us: 0,
            scrub_rate_bytes_per_second: 0,
            scrub_every_seconds: 0,
            hedged_reads: HedgedReads::Auto,
        }
    }
}

/// Everything of an array that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayConfig {
    /// The array.
    pub array: Uuid,
    /// Its name; see `check_name`.
    pub name: String,
    /// Orders the records; strictly increases.
    pub update: Update,
    /// A random number, new for each update: two engines that wrote alone cannot agree on it.
    pub update_id: u128,
    /// When it was first written to a drive, by the clock of whoever did so: seconds since 1970
    /// UTC; 0 when nobody knows. Only for people: clocks go wrong.
    pub written_seconds: u64,
    /// Updates before this one, newest first; at most [`ANCESTORS_MAX`].
    pub ancestors: Vec<(Update, u128)>,
    /// The last update that began with a forced start; 0 when none did.
    pub forced_at: Update,
    /// The first update of starts that have not come to their second record; 0 when the last one
    /// has. See [`crate::assembly::Assembly::without`].
    pub unfinished_since: Update,
    /// Features in use.
    pub features: Features,
    /// Stopped cleanly: nothing is in flight.
    pub clean: bool,
    /// Parity of stripes below can be trusted, if the array is clean or running.
    pub resynced_until: StripeIndex,
    /// Pieces of the log of lives before this one count for nothing.
    pub log_from: u64,
    /// By `MemberIndex`.
    pub members: Vec<MemberRecord>,
    /// In order of creation.
    pub volumes: Vec<VolumeRecord>,
    /// Extents that may hold old data, sorted and joined.
    pub unzeroed: Vec<ExtentRun>,
    /// Blocks that nobody can tell any more; reads of them fail until they are written.
    pub lost: LostBlocks,
    /// What can be set.
    pub options: ArrayOptions,
    /// How far the scrub is.
    pub scrub: ScrubRecord,
}

/// A config record does not fit its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigTooLarge {
    /// What the record needs.
    pub needed_bytes: u64,
    /// What there is.
    pub room_bytes: u64,
}

impl fmt::Display for ConfigTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "config record needs {} bytes and its area has {}; delete volumes to make room",
            self.needed_bytes, self.room_bytes
        )
    }
}

impl std::error::Error for ConfigTooLarge {}

impl ArrayConfig {
    /// The record to change and commit next: one update later, this one its first ancestor.
    ///
    /// # Panics
    /// After 2⁶⁴ updates.
    #[must_use]
    pub fn next(&self, update_id: u128) -> ArrayConfig {
        let mut next = self.clone();
        next.update = Update(
            self.update
                .0
                .checked_add(1)
                .expect("updates do not run out"),
        );
        next.update_id = update_id;
        next.written_seconds = 0;
        next.unfinished_since = Update(0);
        next.ancestors.insert(0, (self.update, self.update_id));
        next.ancestors.truncate(ANCESTORS_MAX);
        next
    }

    /// The config area that takes an update.
    #[must_use]
    pub fn slot(update: Update) -> ConfigSlot {
        if update.0.is_multiple_of(2) || planted::is(Fault::RecordOverTheLast) {
            ConfigSlot::A
        } else {
            ConfigSlot::B
        }
    }

    /// The id of an update in this history; `None` when it is too old or was never.
    #[must_use]
    pub fn id_of(&self, update: Update) -> Option<u128> {
        if update == self.update {
            return Some(self.update_id);
        }
        let same = |(ancestor, _): &&(Update, u128)| *ancestor == update;
        self.ancestors.iter().find(same).map(|(_, id)| *id)
    }

    /// Members in sync.
    pub fn in_sync(&self) -> impl Iterator<Item = MemberIndex> + '_ {
        let in_sync =
            |(_, member): &(usize, &MemberRecord)| matches!(member.state, MemberState::InSync);
        let index = |(position, _)| MemberIndex::from_at(position);
        self.members.iter().enumerate().filter(in_sync).map(index)
    }

    /// Members that starts have left out of which none has come to its second record: nobody has
    /// said yet what that costs.
    pub fn left_by_unfinished(&self) -> impl Iterator<Item = MemberIndex> + '_ {
        let first = self.unfinished_since;
        let left = move |(_, member): &(usize, &MemberRecord)| match member.state {
            MemberState::Excluded { since, .. } => first != Update(0) && since >= first,
            MemberState::InSync | MemberState::Rebuilding { .. } | MemberState::Missing => false,
        };
        let index = |(position, _)| MemberIndex::from_at(position);
        self.members.iter().enumerate().filter(left).map(index)
    }

    /// Refuses a record whose parts contradict each other. Every decoded record has passed.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), FormatError> {
        let invalid = |what| Err(FormatError::Invalid(what));
        let mut names: Vec<&str> = self.volumes.iter().map(|v| v.name.as_str()).collect();
        let mut uuids: Vec<Uuid> = self.volumes.iter().map(|v| v.uuid).collect();
        names.sort_unstable();
        uuids.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("two volumes of one name");
        }
        if uuids.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("two volumes of one uuid");
        }
        if self.volumes.iter().any(|volume| volume.size_blocks == 0) {
            return invalid("a volume without size");
        }
        let runs = self.volumes.iter().flat_map(|v| v.extents.iter().copied());
        join_runs(runs.collect()).map_err(FormatError::Invalid)?;
        match join_runs(self.unzeroed.clone()) {
            Ok(joined) if joined == self.unzeroed => {}
            Ok(_) => return invalid("unzeroed runs are not sorted and joined"),
            Err(what) => return invalid(what),
        }
        let newest_first = std::iter::once(self.update)
            .chain(self.ancestors.iter().map(|(update, _)| *update))
            .is_sorted_by(|newer, older| newer > older);
        // The region map keeps epochs in 56 bits. No engine gets so far; a forged record says it.
        if self.update.0 >> 56 != 0 {
            return invalid("an update that no engine reaches");
        }
        let known = self.forced_at.max(self.unfinished_since);
        if !newest_first || known > self.update {
            return invalid("history");
        }
        if !self.members.iter().all(|member| self.can_miss(member)) {
            return invalid("what a member missed");
        }
        Ok(())
    }

    /// Refuses a record that cannot belong to the array a superblock describes.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_against(&self, superblock: &Superblock) -> Result<(), FormatError> {
        let invalid = |what| Err(FormatError::Invalid(what));
        if self.array != superblock.array {
            return invalid("array uuid");
        }
        let (geometry, space) = (&superblock.geometry, superblock.extents());
        if self.members.len() != geometry.members() {
            return invalid("number of members");
        }
        let beyond = |member: &MemberRecord| match member.state {
            MemberState::Rebuilding { until, .. } => until.0 > geometry.stripes(),
            MemberState::InSync | MemberState::Excluded { .. } | MemberState::Missing => false,
        };
        let cursors = [self.resynced_until, self.scrub.next];
        let is_beyond = |cursor: StripeIndex| cursor.0 > geometry.stripes();
        if cursors.into_iter().any(is_beyond) || self.members.iter().any(beyond) {
            return invalid("a stripe beyond the end");
        }
        if self.lost.end() > geometry.blocks() {
            return invalid("a lost block beyond the end");
        }
        let mut runs = self.volumes.iter().flat_map(|volume| &volume.extents);
        if !runs.all(|run| space.has(*run)) || !self.unzeroed.iter().all(|run| space.has(*run)) {
            return invalid("an extent beyond the end");
        }
        let short =
            |volume: &VolumeRecord| extents_of(&volume.extents) < space.needed(volume.size_blocks);
        if self.volumes.iter().any(short) {
            return invalid("a volume larger than its extents");
        }
        Ok(())
    }
}
