//! What the home shard of an array knows besides: the durable configuration, what shall become
//! of it, and where its records go. The steps are in `shard/coordinate`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use block::Status;
use memory::{Backing, Buffer, Pages, Pool, Segment};
use units::limits::REACTORS_MAX;
use units::{
    ArrayIndex, DriveIndex, Instant, MemberIndex, MemberSet, ReactorIndex, StripeIndex, Update,
    bytes_u64, bytes_usize,
};

use crate::assembly::RecordPlace;
use crate::command::Command;
use crate::exposure::{filled_next, first_lacking, groups_of};
use crate::format::{
    ArrayConfig, ConfigSlot, ConfigTooLarge, ExclusionCause, Layout, MemberRecord, MemberState,
};
use crate::geometry::Geometry;
use crate::io::MemberFailure;
use crate::losses::LostBlocks;
use crate::map::{ArrayMap, MapMember, MapState, Pass, Window};
use crate::owners::Owners;
use crate::planted::{self, Fault};
use crate::regions::{RegionMap, Suspects};
use crate::scrub::{Scrub, ScrubTally, WallClock};
use crate::shard::{
    HandingOver, HoldKeeper, LaggardKeeper, LossAsked, RegionKeeper, Renewal, Retire, Retry,
};

/// The drive that fills a member's place, and where things are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// The drive.
    pub drive: DriveIndex,
    /// Its areas.
    pub layout: Layout,
    /// What is the same for as long as the drive was not away and kept its power; 0 when nothing
    /// shows that.
    pub appearance: u64,
    /// By config area, where its record goes.
    pub records: [RecordPlace; 2],
}

impl MemberPlace {
    /// Where a record of so many bytes goes, and where if that is refused: nowhere if it is too
    /// long, or has moved.
    pub(crate) fn places_of(&self, slot: ConfigSlot, bytes: u64) -> (u64, Option<u64>) {
        let [start, middle] = self.layout.config[slot.at()].record_places();
        match (start + bytes <= middle, self.records[slot.at()]) {
            (false, _) => (start, None),
            (true, RecordPlace::Middle) => (middle, None),
            (true, RecordPlace::Perhaps) => (middle, Some(start)),
            (true, RecordPlace::Start) => (start, Some(middle)),
        }
    }
}

/// How the background stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassStatus {
    /// The pass that runs or waits to run.
    pub pass: Pass,
    /// Stripes below are done.
    pub done: StripeIndex,
    /// Stripes in all.
    pub stripes: u64,
    /// Stripes that the pass still has to visit, and those that it had to visit in all.
    pub left: u64,
    /// See `left`.
    pub to_visit: u64,
    /// Whether it runs.
    pub state: PassState,
}

/// Whether a background pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassState {
    /// It runs, or will in a moment.
    Running,
    /// It was told not to.
    Paused,
    /// A stripe could not be read or written.
    Stopped,
}

/// A record on its way to all members.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) config: ArrayConfig,
    pub(crate) places: Vec<Option<MemberPlace>>,
    pub(crate) phase: CommitPhase,
    /// Members of this phase that are not asked yet, and how many are asked.
    pub(crate) todo: Vec<MemberIndex>,
    pub(crate) pending: usize,
    /// Members excluded by it.
    pub(crate) excluded: Vec<(MemberIndex, Status)>,
    /// Members that get a drive by it, and those of them that have returned.
    pub(crate) replaced: Vec<MemberIndex>,
    pub(crate) returned: Vec<MemberIndex>,
    pub(crate) answers: Vec<u64>,
    /// Members whose flush or record failed in this phase.
    pub(crate) failed: Vec<MemberFailure>,
    /// Marks the end of a pass.
    pub(crate) finished: Option<Pass>,
    pub(crate) ending: Ending,
}

/// What a commit means besides its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing.
    GoesOn,
    /// Parity is not trusted any more.
    Untrusts,
    /// The array is stopped.
    Stops,
}

/// Each begins when the one before is through on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitPhase {
    /// What the record claims is made durable.
    FlushData,
    /// The record is written.
    Write,
    /// And made durable.
    FlushRecord,
}

/// A map on its way to all shards.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "how far it is, and what it holds up until then"
)]
pub(crate) struct Broadcast {
    pub(crate) serial: u64,
    pub(crate) effective: bool,
    /// A member comes in with it that lacks some regions only: until every shard acts by it, no
    /// other region becomes dirty, or a shard that knows nothing of the member writes there.
    pub(crate) holds_regions: bool,
    pub(crate) todo: Vec<ReactorIndex>,
    pub(crate) pending: usize,
    pub(crate) answers: Vec<u64>,
    pub(crate) excluded: Vec<(MemberIndex, Status)>,
}

/// Reports on the open window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowReports {
    pub(crate) window: Window,
    pub(crate) missing: usize,
    pub(crate) ok: bool,
    pub(crate) tally: ScrubTally,
}

/// What a coordinator starts from.
#[derive(Debug)]
pub struct CoordinatorSettings {
    /// The configuration to begin with: not yet durable, and committed as it is by
    /// `Command::Start`.
    pub config: ArrayConfig,
    /// By member: the drive, for members in sync or rebuilding.
    pub places: Vec<Option<MemberPlace>>,
    /// All reactors that have a shard of this array, the home included.
    pub reactors: Vec<ReactorIndex>,
    /// Where update ids come from.
    pub seed: u64,
    /// User bytes of one background window.
    pub window_bytes: u64,
    /// The region map as the drives have it.
    pub regions: RegionMap,
    /// A region that nobody wrote for once or twice this long is clean again.
    pub clear_after: Duration,
    /// While the array is written to, its record is renewed so often.
    pub renew_after: Duration,
    /// The time of day.
    pub clock: WallClock,
    /// When the array was created: seconds since 1970 UTC. Its schedules count from there.
    pub created: u64,
}

/// See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of which none follows from another"
)]
pub struct Coordinator {
    pub(crate) config: ArrayConfig,
    pub(crate) places: Vec<Option<MemberPlace>>,
    pub(crate) reactors: Vec<ReactorIndex>,
    pub(crate) failures: Vec<MemberFailure>,
    pub(crate) commands: VecDeque<(u64, Command)>,
    pub(crate) commit: Option<Commit>,
    pub(crate) broadcast: Option<Broadcast>,
    pub(crate) window: Option<WindowReports>,
    pub(crate) window_bytes: u64,
    pub(crate) checkpoint: Instant,
    pub(crate) passes_run: bool,
    pub(crate) retry: Retry,
    pub(crate) started: bool,
    /// The first of the two records of a stop has begun.
    pub(crate) stops: bool,
    pub(crate) stopped: bool,
    pub(crate) metadata_failed: bool,
    pub(crate) keeper: RegionKeeper,
    pub(crate) hold: HoldKeeper,
    pub(crate) retire: Retire,
    pub(crate) handing_over: HandingOver,
    pub(crate) renewal: Renewal,
    pub(crate) scrub: Scrub,
    pub(crate) laggards: Option<LaggardKeeper>,
    /// A copy of it is being made, and all that the array wrote since it began is told by regions.
    pub(crate) copied: Option<MemberIndex>,
    /// Blocks that shards want to give up, or have healed.
    pub(crate) losses: Vec<LossAsked>,
    /// What was not given up last, and when that was told: a write that waits for it asks again.
    pub(crate) not_given_up: Option<(u64, Instant)>,
    seed: u64,
    records: Pool,
    buffers: Vec<Buffer>,
    scratch: Vec<u8>,
}

impl Coordinator {
    /// Whether records can be written: not before the start, nor after the end or a failure.
    pub(crate) fn is_writing_records(&self) -> bool {
        self.started && !self.stopped && !self.metadata_failed
    }

    /// A coordinator that has committed nothing yet.
    ///
    /// # Errors
    /// When the host refuses the memory for the records.
    pub fn new(settings: CoordinatorSettings) -> std::io::Result<Coordinator> {
        let CoordinatorSettings {
            mut config,
            places,
            reactors,
            seed,
            window_bytes,
            regions,
            clear_after,
            renew_after,
            clock,
            created,
        } = settings;
        if planted::is(Fault::LostBlocksForgotten) {
            config.lost = LostBlocks::default();
        }
        let scrub = Scrub::new(config.scrub, clock, created);
        let keeper = RegionKeeper::new(&regions, &places, clear_after)?;
        let hold = HoldKeeper::new(config.members.len());
        let room = places
            .iter()
            .flatten()
            .map(|place| place.layout.config[0].length)
            .max();
        let room = bytes_usize(room.unwrap_or(64 << 10));
        let mut records = Pool::new(places.len(), room, Backing::Anonymous(Pages::Plain))?;
        let buffers = (0..places.len())
            .map(|_| records.acquire().expect("one for each"))
            .collect();
        Ok(Coordinator {
            config,
            places,
            reactors,
            failures: Vec::new(),
            commands: VecDeque::new(),
            commit: None,
            broadcast: None,
            window: None,
            window_bytes,
            checkpoint: Instant(0),
            passes_run: true,
            retry: Retry::default(),
            started: false,
            stops: false,
            stopped: false,
            metadata_failed: false,
            keeper,
            hold,
            retire: Retire::default(),
            handing_over: HandingOver::default(),
            renewal: Renewal::new(renew_after),
            scrub,
            laggards: None,
            copied: None,
            losses: Vec::with_capacity(REACTORS_MAX),
            not_given_up: None,
            seed,
            records,
            buffers,
            scratch: vec![0; room],
        })
    }

    /// The configuration that is durable.
    #[must_use]
    pub fn config(&self) -> &ArrayConfig {
        &self.config
    }

    /// A number that no other update has. Two engines that write alone draw different ones,
    /// because their seeds differ.
    pub(crate) fn draw_id(&mut self) -> u128 {
        let high = u128::from(split_mix(&mut self.seed));
        high << 64 | u128::from(split_mix(&mut self.seed))
    }

    /// Encodes the record of `member`, which is at `place`, into its buffer.
    pub(crate) fn encode_record(
        &mut self,
        config: &ArrayConfig,
        (member, place): (MemberIndex, &MemberPlace),
    ) -> Result<Segment, ConfigTooLarge> {
        let room = bytes_usize(place.layout.config[0].length).min(self.scratch.len());
        let moved = place.records.map(|place| place == RecordPlace::Middle);
        let copy = (member, moved);
        let bytes = config.encode_copy(copy, &mut self.scratch[..room])?;
        let record = self
            .records
            .segment(&self.buffers[member.at()])
            .part(0, bytes);
        record.copy_from_slice(&self.scratch[..bytes]);
        Ok(record)
    }

    /// Whether a record of `config` fits every place.
    pub(crate) fn fits(&mut self, config: &ArrayConfig) -> Result<(), ConfigTooLarge> {
        let rooms = self
            .places
            .iter()
            .flatten()
            .map(|place| place.layout.config[0].length);
        let room = bytes_usize(rooms.min().unwrap_or(0)).min(self.scratch.len());
        config
            .encode_into(MemberIndex(0), &mut self.scratch[..room])
            .map(|_| ())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            self.records.release(buffer);
        }
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Whether a group keeps k members in sync without `member`.
pub(crate) fn can_exclude(geometry: &Geometry, config: &ArrayConfig, member: MemberIndex) -> bool {
    let in_sync = config.members[member.at()].state == MemberState::InSync;
    !in_sync || in_sync_without(geometry, config, member) >= geometry.data()
}

/// How many members of the group are in sync besides `member`.
pub(crate) fn in_sync_without(
    geometry: &Geometry,
    config: &ArrayConfig,
    member: MemberIndex,
) -> usize {
    let group = geometry.group_members();
    let first = member.at() / group * group;
    let left = (first..first + group).filter(|&other| {
        other != member.at() && config.members[other].state == MemberState::InSync
    });
    left.count()
}

/// Why a member is excluded, as its record says.
pub(crate) fn cause_of(status: Status) -> ExclusionCause {
    match status {
        Status::Gone => ExclusionCause::Gone,
        Status::NoSpace => ExclusionCause::NoSpace,
        Status::Ok
        | Status::Media
        | Status::OutOfRange
        | Status::ReadOnly
        | Status::Unsupported
        | Status::Invalid => ExclusionCause::WriteError,
    }
}

/// The pass that is due.
pub(crate) fn due_pass(map: &ArrayMap) -> Option<Pass> {
    // A pass would spread what a torn stripe holds.
    if map.is_broken() {
        return None;
    }
    if map.trusted_until.0 < map.geometry.stripes() && map.geometry.parity() > 0 {
        return Some(Pass::Resync);
    }
    let rebuilds = |member: &MapMember| matches!(member.state, MapState::Rebuilding { .. });
    map.members.iter().any(rebuilds).then_some(Pass::Rebuild)
}

/// Where a resync or a rebuild goes on.
pub(crate) fn next_start(map: &ArrayMap, pass: Pass) -> StripeIndex {
    match pass {
        Pass::Resync => {
            let next = map.suspects.run_from(map.trusted_until);
            next.expect("the cursor is at the end when nothing is left")
                .0
        }
        Pass::Rebuild => first_lacking(map, &filled_next(map), StripeIndex(0)),
        Pass::Scrub => unreachable!("its record says where"),
    }
}

/// What a scrub waits for.
pub(crate) fn goes_before_scrub(map: &ArrayMap) -> bool {
    due_pass(map).is_some() && !planted::is(Fault::ScrubTrustsUntrustedParity)
}

/// The window of a pass from `start` on.
pub(crate) fn next_window(
    map: &ArrayMap,
    pass: Pass,
    start: StripeIndex,
    window_bytes: u64,
) -> Window {
    let stripe_bytes = u64::from(map.geometry.stripe_blocks()) << map.geometry.block_size().shift();
    let stripes = (window_bytes / stripe_bytes).max(1);
    let fills = match pass {
        Pass::Rebuild => filled_next(map),
        Pass::Resync | Pass::Scrub => MemberSet::EMPTY,
    };
    // Stripes of other groups lie between those that are filled.
    let between = match pass {
        Pass::Rebuild => bytes_u64(map.geometry.groups()) / groups_of(&map.geometry, &fills).max(1),
        Pass::Resync | Pass::Scrub => 1,
    };
    let stripes = stripes.saturating_mul(between);
    // A resync looks at what is suspect only.
    let run = match pass {
        Pass::Resync => map.suspects.run_from(start).map(|(_, end)| end),
        Pass::Rebuild | Pass::Scrub => None,
    };
    let most = run.map_or(map.geometry.stripes(), |end| end.0);
    let end = StripeIndex(start.0.saturating_add(stripes).min(most));
    Window {
        pass,
        start,
        end,
        fills,
        opened: map.serial,
    }
}

/// Bytes that `Segment`s of a record cover, as the drive counts.
pub(crate) fn record_bytes(record: Segment) -> u64 {
    bytes_u64(record.len())
}

/// The first map of an assembly: by the configuration that `Command::Start` will commit, the
/// region map, and the regions whose parity is not trusted ([`RegionMap::suspects`]).
///
/// # Panics
/// When a member in sync or rebuilding has no place.
#[must_use]
pub fn initial_map(
    identity: MapIdentity,
    config: &ArrayConfig,
    places: &[Option<MemberPlace>],
    (regions, suspects): (&RegionMap, Suspects),
) -> ArrayMap {
    let MapIdentity {
        array,
        geometry,
        owners,
        home,
    } = identity;
    let member = |(record, place): (&MemberRecord, &Option<MemberPlace>)| {
        let state = match record.state {
            MemberState::InSync => MapState::InSync,
            MemberState::Rebuilding { until, .. } => MapState::Rebuilding { until },
            MemberState::Excluded { .. } | MemberState::Missing => MapState::Lost,
        };
        assert!(
            state == MapState::Lost || place.is_some(),
            "a usable member has a drive"
        );
        MapMember {
            drive: place.as_ref().map(|place| place.drive),
            incarnation: 0,
            data_offset: place.as_ref().map_or(0, |place| place.layout.data.offset),
            trial_offset: place
                .as_ref()
                .map_or(0, |place| place.layout.bad_ranges.offset),
            state,
        }
    };
    ArrayMap {
        array,
        serial: 0,
        barrier: 0,
        update: config.update,
        members: config.members.iter().zip(places).map(member).collect(),
        hopeless: vec![false; config.members.len()],
        missed: config
            .members
            .iter()
            .map(|record| missed_by(record, regions))
            .collect(),
        held: vec![false; config.members.len()],
        released: vec![0; config.members.len()],
        given_up: false,
        trusted_until: if geometry.parity() == 0 {
            StripeIndex(geometry.stripes())
        } else {
            trusted_until(&suspects, StripeIndex(0), geometry.stripes())
        },
        suspects: Arc::new(suspects),
        log_life: config.log_from,
        log_from: config.log_from,
        write_hole: config.options.write_hole,
        hedged_reads: config.options.hedged_reads,
        lost_blocks: Arc::new(if planted::is(Fault::LostBlocksForgotten) {
            LostBlocks::default()
        } else {
            config.lost.clone()
        }),
        geometry,
        window: None,
        owners,
        home,
        read_only: false,
    }
}

/// The regions that a member lacks at a start.
fn missed_by(record: &MemberRecord, regions: &RegionMap) -> Option<Arc<Suspects>> {
    let MemberState::Rebuilding { missed, .. } = record.state else {
        return None;
    };
    if planted::is(Fault::MissedForgottenAtRestart) && missed.base > Update(0) {
        return Some(Arc::new(Suspects::none(regions.space())));
    }
    regions.missed(missed.base).map(Arc::new)
}

/// Where a resync that has reached `cursor` stands: at the end when nothing more is suspect.
pub(crate) fn trusted_until(suspects: &Suspects, cursor: StripeIndex, stripes: u64) -> StripeIndex {
    if suspects.run_from(cursor).is_some() {
        cursor
    } else {
        StripeIndex(stripes)
    }
}

/// What an engine adds to a configuration to serve it.
#[derive(Clone, Debug)]
pub struct MapIdentity {
    /// The number of the array in this engine.
    pub array: ArrayIndex,
    /// The fixed numbers.
    pub geometry: Geometry,
    /// Who owns which stripes.
    pub owners: Arc<Owners>,
    /// The reactor that writes metadata.
    pub home: ReactorIndex,
}

#[cfg(test)]
mod tests;
