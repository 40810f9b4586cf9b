//! What the engine has, as the API shows it.

use array::assembly::Verdict;
use array::format::{ExclusionCause, MemberState, VolumeRecord};
use array::{Level, MapState};
use block::Status;
use control::request::{HedgedReads, WriteHole};
use control::view::{
    ArrayState, ArrayView, DriveState, DriveView, ExportState, ExportView, HeldMember, HoldView,
    IoCounters, JobState, MemberView, PaceView, QueueView, VolumeView,
};
use drive::DriveKind;
use engine::ReactorReport;
use std::time::Duration;
use units::{Clock, MemberIndex, MonotonicClock, ReactorIndex};
use uuid::Uuid;
use vhost_user_blk::{Counters, QueueKey, SessionStatus};

mod warnings;

use crate::arrays::assemble::what_helps;
use crate::deleted::deleted_members;
use crate::error::file_limit;
use crate::found;
use crate::state::{ArrayEntry, DriveEntry, DriveRole, ExportEntry, Serving, State};
use warnings::{start_warnings, stopped_pass, torn_without, warnings};

const NS_PER_US: u64 = 1000;

pub(crate) fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn drive(state: &State, entry: &DriveEntry, reports: &[ReactorReport]) -> DriveView {
    let info = entry.drive.info();
    let (drive_state, array, member, cause) = match &entry.role {
        DriveRole::Free => (DriveState::Free, None, None, None),
        DriveRole::Member { array, member } => {
            (DriveState::Member, Some(*array), Some(*member), None)
        }
        DriveRole::Copy { array, member, job } => {
            let what = format!("it becomes a copy of {member}, job {job}");
            (DriveState::Member, Some(*array), Some(*member), Some(what))
        }
        DriveRole::LeftOut {
            array,
            member,
            cause,
        } => (
            DriveState::Failed,
            Some(*array),
            *member,
            Some(cause.clone()),
        ),
    };
    let array_name = |uuid| state.array_by_uuid(uuid).map(|array| array.name.clone());
    let own = (!entry.mark.is_empty()).then(|| drive::OWN_SIGNATURE.to_owned());
    let signature = own.or_else(|| entry.signature.clone());
    DriveView {
        name: entry.name.clone(),
        uuid: entry.uuid,
        spec: entry.spec.clone(),
        identity: found::identity(&entry.drive, &entry.mark),
        state: drive_state,
        array: array.and_then(array_name),
        pool: None,
        member: member.map(|member| member.0),
        model: info.model.clone(),
        serial: info.serial.clone(),
        size_bytes: info.size_bytes,
        block_bytes: info.block_bytes,
        physical_block_bytes: info.physical_block_bytes,
        atomic_bytes: info.atomic_bytes,
        access: access(entry),
        write_cache: if entry.drive.has_volatile_cache() {
            "volatile"
        } else {
            "none"
        }
        .to_owned(),
        signature,
        cause,
        node: entry.node.map(|node| node.0),
        counters: drive_counters(entry, reports),
    }
}

fn access(entry: &DriveEntry) -> String {
    let info = entry.drive.info();
    match info.kind {
        DriveKind::Memory | DriveKind::Null => {
            let kind = info.kind.to_string();
            match entry.drive.pace() {
                Some(law) => format!("{kind}, {law}"),
                None => kind,
            }
        }
        DriveKind::NvmeGeneric => "io_uring, NVMe commands".to_owned(),
        DriveKind::File | DriveKind::BlockDevice if info.direct_io => "io_uring, direct".to_owned(),
        DriveKind::File | DriveKind::BlockDevice => {
            let reason = info.buffered_reason.as_deref().unwrap_or("no direct I/O");
            format!("io_uring, buffered ({reason})")
        }
    }
}

fn drive_counters(entry: &DriveEntry, reports: &[ReactorReport]) -> IoCounters {
    let mut all = IoCounters::default();
    let own = reports
        .iter()
        .flat_map(|report| &report.drives)
        .filter(|(index, _)| *index == entry.index);
    for (_, counters) in own {
        all.reads_total += counters.reads.requests;
        all.writes_total +=
            counters.writes.requests + counters.discards.requests + counters.write_zeroes.requests;
        all.flushes_total += counters.flushes.requests;
        all.read_bytes_total += counters.reads.bytes;
        all.written_bytes_total += counters.writes.bytes;
        all.read_time_us_total += counters.reads.latency_ns / NS_PER_US;
        all.write_time_us_total += counters.writes.latency_ns / NS_PER_US;
        all.errors_total += counters.media_errors + counters.gone_errors + counters.no_space_errors;
    }
    all
}

pub(crate) fn array(
    state: &State,
    entry: &ArrayEntry,
    running: Option<&engine::ArrayState>,
) -> ArrayView {
    let config = running.map_or(&entry.config, |running| &running.config);
    let geometry = &entry.superblock.geometry;
    let space = entry.superblock.extents();
    let used: u64 = config
        .volumes
        .iter()
        .map(|volume| array::format::extents_of(&volume.extents))
        .sum();
    let members: Vec<MemberView> = (0..geometry.members())
        .map(|position| {
            let index = MemberIndex::from_at(position);
            let returned = running.and_then(|running| returned(running, position));
            let pace = running.and_then(|running| running.paces.get(position));
            let view = member(state, entry, (config, returned), index);
            let pace = pace.filter(|_| view.drive.is_some()).map(pace_of);
            MemberView { pace, ..view }
        })
        .collect();
    let jobs = state.jobs.values();
    let running_jobs =
        jobs.filter(|job| job.array == entry.uuid && job.view.state == JobState::Running);
    let options = &config.options;
    ArrayView {
        name: entry.name.clone(),
        uuid: entry.uuid,
        level: level(geometry.level()),
        state: array_state(entry, running),
        members,
        group_size: u16::try_from(geometry.group_members()).expect("limits.rs"),
        parity: u16::try_from(geometry.parity()).expect("limits.rs"),
        chunk_bytes: geometry.chunk_bytes(),
        stripe_bytes: geometry.stripe_bytes(),
        block_bytes: geometry.block_size().bytes(),
        member_bytes: entry.superblock.layout.member_bytes,
        // The control path knows the spares.
        spares: Vec::new(),
        pool: None,
        size_bytes: space.bytes(space.count()),
        free_bytes: space.bytes(space.count().saturating_sub(used)),
        extent_bytes: space.bytes(1),
        write_hole: match options.write_hole {
            array::format::WriteHole::Auto => WriteHole::Auto,
            array::format::WriteHole::Strict => WriteHole::Strict,
            array::format::WriteHole::Off => WriteHole::Off,
        },
        rebuild_floor_bytes_per_second: options.rebuild_floor_bytes_per_second,
        latency_target_us: (options.latency_target_us > 0)
            .then(|| u64::from(options.latency_target_us)),
        hold_timeout_ms: Some(u64::from(options.hold_timeout_seconds) * 1000),
        scrub_rate_bytes_per_second: (options.scrub_rate_bytes_per_second > 0)
            .then_some(options.scrub_rate_bytes_per_second),
        scrub_every_s: (options.scrub_every_seconds > 0)
            .then_some(options.scrub_every_seconds.into()),
        hedged_reads: hedged_reads(options.hedged_reads),
        unwritten_regions: config.features.has_unwritten(),
        hold: running.and_then(|running| hold(state, entry, running)),
        lost: crate::losses::view(entry, config),
        unrepaired_blocks: warnings::unrepaired(config, running),
        node: state.node_of(entry.uuid).map(|node| node.0),
        reactors: running.map_or_else(Vec::new, owners),
        update: config.update.0,
        volumes: u32::try_from(config.volumes.len()).expect("limits.rs"),
        jobs: running_jobs.map(|job| job.view.id).collect(),
        cause: cause(state, entry),
        torn_without: torn_without(state, entry, running).to_vec(),
        warnings: warnings(state, entry, config, running),
        start_warnings: start_warnings(entry),
        stopped_pass: running.and_then(|running| stopped_pass(entry, running)),
    }
}

/// The reactors that own stripes of an array.
fn owners(running: &engine::ArrayState) -> Vec<u16> {
    let owners = running.map.owners.reactors().into_iter();
    owners.map(|reactor| reactor.0).collect()
}

fn hedged_reads(option: array::format::HedgedReads) -> HedgedReads {
    match option {
        array::format::HedgedReads::Auto => HedgedReads::Auto,
        array::format::HedgedReads::Always => HedgedReads::Always,
    }
}

/// Why a stopped array cannot start as it is.
fn cause(state: &State, entry: &ArrayEntry) -> Option<String> {
    match verdict(state, entry)? {
        Verdict::Startable { .. } => None,
        verdict @ (Verdict::NeedsForce { .. }
        | Verdict::Failed { .. }
        | Verdict::Refused { .. }) => Some(format!("{verdict}; {}", what_helps(&verdict))),
    }
}

/// Whether a stopped array may start.
pub(crate) fn verdict(state: &State, entry: &ArrayEntry) -> Option<Verdict> {
    let Serving::Stopped(assembly) = &entry.serving else {
        return None;
    };
    let mut assembly = assembly.clone();
    state.recall(&mut assembly);
    Some(assembly.verdict)
}

fn array_state(entry: &ArrayEntry, running: Option<&engine::ArrayState>) -> ArrayState {
    let Some(running) = running else {
        return ArrayState::Stopped;
    };
    let map = &running.map;
    let geometry = &entry.superblock.geometry;
    let group = geometry.group_members();
    let in_sync = |group_members: &[array::MapMember]| {
        group_members
            .iter()
            .filter(|member| member.state == MapState::InSync)
            .count()
    };
    let failed = map
        .members
        .chunks(group)
        .any(|members| in_sync(members) < geometry.data());
    if failed || map.read_only || map.hopeless.contains(&true) || map.given_up {
        return ArrayState::Failed;
    }
    if map.is_holding() {
        return ArrayState::Holding;
    }
    let all = map
        .members
        .iter()
        .all(|member| member.state == MapState::InSync);
    if all {
        ArrayState::Optimal
    } else {
        ArrayState::Degraded
    }
}

/// What a rebuilding member has missed that had been one before.
fn returned(running: &engine::ArrayState, position: usize) -> Option<String> {
    let MapState::Rebuilding { .. } = running.map.members[position].state else {
        return None;
    };
    let MemberState::Rebuilding { missed, .. } = running.config.members[position].state else {
        return None;
    };
    if missed.base == units::Update(0) {
        return None;
    }
    let missed = running.map.missed[position].as_ref()?;
    let (lacks, all) = (missed.count(), missed.regions());
    Some(format!("returned, {lacks} of {all} regions"))
}

/// What an array waits for.
fn hold(state: &State, entry: &ArrayEntry, running: &engine::ArrayState) -> Option<HoldView> {
    let hold = running.hold.as_ref()?;
    let now = MonotonicClock.now();
    let member = |&(member, status): &(MemberIndex, Status)| {
        let drive = state.drive_of(entry.uuid, member);
        HeldMember {
            member: member.0,
            drive: drive.map(|drive| drive.name.clone()),
            cause: held_because(drive, status),
        }
    };
    Some(HoldView {
        waited_s: now.since(hold.since).as_secs(),
        left_s: (!hold.given_up).then(|| hold.until.since(now).as_secs()),
        requests: units::bytes_u64(running.held),
        members: hold.members.iter().map(member).collect(),
    })
}

/// What is the matter with the drive of a member that is waited for, and what to do.
pub(crate) fn held_because(drive: Option<&DriveEntry>, status: Status) -> String {
    let file = drive.filter(|drive| drive.drive.info().kind == DriveKind::File);
    let path = file.and_then(|drive| Some((drive, drive.drive.info().path.as_deref()?)));
    match (status, path) {
        (Status::NoSpace, Some((drive, path))) if drive.drive.is_file_limited() => {
            let (limit, next) = file_limit();
            format!(
                "its file {} may not be as large as it must: {limit}: {next}",
                path.display()
            )
        }
        (Status::NoSpace, Some((_, path))) => format!(
            "the file system of {} is full: make room there",
            path.display()
        ),
        (status, _) => failure(status).to_owned(),
    }
}

/// What a drive said when it failed, for people.
fn failure(status: Status) -> &'static str {
    match status {
        Status::Gone => "it is gone",
        Status::NoSpace => "the file system that it lies on is full",
        Status::Media => "an I/O error",
        Status::ReadOnly => "it is read-only",
        Status::Unsupported => "it refuses the operation",
        Status::Ok | Status::OutOfRange | Status::Invalid => "it refuses the request",
    }
}

fn member(
    state: &State,
    entry: &ArrayEntry,
    (config, returned): (&array::format::ArrayConfig, Option<String>),
    index: MemberIndex,
) -> MemberView {
    use control::view::MemberState as Shown;
    let drive = state
        .drive_of(entry.uuid, index)
        .map(|drive| drive.name.clone());
    let stopped = matches!(entry.serving, Serving::Stopped(_));
    let mut deleted = deleted_members(state, entry.uuid).into_iter();
    let deleted = deleted.find(|(member, _)| *member == index);
    let deleted = deleted.map(|_| "its file was deleted: lost when the engine ends".to_owned());
    let (shown, cause) = match config.members[index.at()].state {
        MemberState::InSync | MemberState::Rebuilding { .. } if stopped && drive.is_none() => {
            let left_out = why_left_out(state, entry.uuid, index);
            let cause = left_out.unwrap_or_else(|| ExclusionCause::Absent.to_string());
            (Shown::Missing, Some(cause))
        }
        MemberState::InSync => (Shown::Online, deleted),
        MemberState::Rebuilding { .. } => (Shown::Rebuilding, returned),
        MemberState::Excluded {
            cause: ExclusionCause::Absent,
            ..
        } => {
            let left_out = why_left_out(state, entry.uuid, index);
            let cause = left_out.unwrap_or_else(|| ExclusionCause::Absent.to_string());
            (Shown::Missing, Some(cause))
        }
        MemberState::Excluded { cause, .. } => (Shown::Failed, Some(cause.to_string())),
        MemberState::Missing => (Shown::Missing, None),
    };
    let drive = if shown == Shown::Online || shown == Shown::Rebuilding {
        drive
    } else {
        None
    };
    let group = index.at() / entry.superblock.geometry.group_members();
    MemberView {
        member: index.0,
        group: u16::try_from(group).expect("limits.rs"),
        state: shown,
        drive,
        cause,
        pace: None,
    }
}

/// How a member keeps up with its peers.
fn pace_of(pace: &array::MemberPace) -> PaceView {
    let [read_p99_us, write_p99_us] = pace.p99.map(|p99| p99.map(microseconds));
    PaceView {
        read_p99_us,
        write_p99_us,
        slow_seconds: pace.slow_windows,
        lags: pace.lags,
        read_errors: pace.read_errors,
    }
}

/// Why a drive that says that it is this member does not fill its place.
fn why_left_out(state: &State, array: Uuid, index: MemberIndex) -> Option<String> {
    state.drives.values().find_map(|drive| match &drive.role {
        DriveRole::LeftOut {
            array: of,
            member: Some(member),
            ..
        } if *of == array && *member == index => Some(format!("drive {} is left out", drive.name)),
        DriveRole::LeftOut { .. }
        | DriveRole::Member { .. }
        | DriveRole::Copy { .. }
        | DriveRole::Free => None,
    })
}

type Rings = [(ReactorIndex, QueueKey, Counters)];

pub(crate) fn volume(
    state: &State,
    entry: &ArrayEntry,
    record: &VolumeRecord,
    done: &Counters,
) -> VolumeView {
    let space = entry.superblock.extents();
    let exports = state
        .exports
        .values()
        .filter(|export| (export.array, export.volume) == (entry.uuid, record.uuid));
    let limits = state.limits.get(&(entry.uuid, record.uuid));
    let throttled = limits.map(|entry| entry.limiter.throttled());
    let throttled = throttled.unwrap_or_default();
    let found = io_counters(done);
    let counters = limits.map_or(found, |entry| entry.tell(found));
    VolumeView {
        name: record.name.clone(),
        uuid: record.uuid,
        array: entry.name.clone(),
        size_bytes: record.size_blocks * space.block_bytes(),
        allocated_bytes: space.bytes(array::format::extents_of(&record.extents)),
        stable_buffers: record.stable_buffers,
        limit: limits.map(|entry| entry.limit.clone()).unwrap_or_default(),
        exports: exports.map(|export| export.create.name.clone()).collect(),
        // Everything written is copied once, but where there is no parity to keep true.
        copied_bytes_total: match entry.superblock.geometry.parity() {
            0 => 0,
            _ => counters.written_bytes_total,
        },
        throttled_requests_total: throttled.requests,
        throttled_time_us_total: microseconds(throttled.time),
        counters,
    }
}

fn io_counters(done: &Counters) -> IoCounters {
    IoCounters {
        reads_total: done.reads,
        writes_total: done.writes + done.discards + done.write_zeroes,
        flushes_total: done.flushes,
        read_bytes_total: done.read_bytes,
        written_bytes_total: done.write_bytes,
        read_time_us_total: done.read_latency.sum_ns / NS_PER_US,
        write_time_us_total: done.write_latency.sum_ns / NS_PER_US,
        errors_total: done.errors,
    }
}

pub(crate) fn export(
    entry: &ExportEntry,
    status: &SessionStatus,
    rings: &Rings,
    cores: &[Option<usize>],
) -> ExportView {
    let core_of = |reactor: ReactorIndex| {
        cores
            .get(reactor.at())
            .copied()
            .flatten()
            .and_then(|core| u16::try_from(core).ok())
    };
    let queue = |(reactor, key, counters): &(ReactorIndex, QueueKey, Counters)| QueueView {
        queue: key.index,
        core: core_of(*reactor),
        requests_total: counters.requests(),
        cause: None,
    };
    let mut queues: Vec<QueueView> = rings.iter().map(queue).collect();
    queues.sort_by_key(|queue| queue.queue);
    let connections = u32::try_from(status.front_ends.len()).expect("few front-ends");
    ExportView {
        name: entry.create.name.clone(),
        uuid: entry.create.uuid,
        protocol: "vhost-user-blk".to_owned(),
        volume: entry.create.volume.clone(),
        state: if connections > 0 {
            ExportState::Connected
        } else {
            ExportState::Waiting
        },
        socket: entry.create.socket.path.clone(),
        connections,
        profile: Some(entry.profile.clone()),
        cores: entry.create.cores.clone(),
        access: entry.create.access,
        sharing: entry.create.sharing,
        guest_memory: entry.create.guest_memory,
        pinned_bytes: 0,
        queues,
        cause: None,
    }
}

/// The level, as the API names it.
pub(crate) fn level(level: Level) -> control::request::Level {
    use control::request::Level as Shown;
    match level {
        Level::L0 => Shown::Raid0,
        Level::L1 => Shown::Raid1,
        Level::L10 => Shown::Raid10,
        Level::L5 => Shown::Raid5,
        Level::L6 => Shown::Raid6,
        Level::L7 => Shown::Raid7,
        Level::Nm => Shown::Nm,
        Level::L50 => Shown::Raid50,
        Level::L60 => Shown::Raid60,
        Level::L70 => Shown::Raid70,
    }
}
