//! A new array: which drives it may take, and what its first records say.

use std::collections::VecDeque;

use array::assembly::LIVES_SHIFT;
use array::format::{
    ArrayConfig, ArrayOptions, COMPAT_MAPPED, EXTENT_BYTES_MIN, ExtentRun, ExtentSpace, Features,
    INCOMPAT_UNWRITTEN, Layout, MemberRecord, MemberState, Sectors, Superblock, check_name,
};
use array::{
    Geometry, GeometryParameters, LostBlocks, MemberPlace, RegionMap, RegionSpace, Room,
    ScrubRecord,
};
use control::request::ArrayCreate;
use control::spares::Need;
use control::view::ArrayView;
use control::{Answer, ErrorKind};
use engine::{ArrayStart, StartError};
use units::{ArrayIndex, BlockSize, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::{
    Candidate, created_now, hedged_reads_of, identity_of, level_of, sectors_of, write_hole_of,
};
use crate::error::{error, late, of_geometry, of_io, of_start};
use crate::state::{ArrayEntry, DriveRole, Notice, Serving};
use crate::{Host, found, records};

/// The chunk when nobody says.
const CHUNK_BYTES: u64 = 64 << 10;

/// A new array, and what is taken for it.
struct Plan {
    candidates: Vec<Candidate>,
    superblock: Superblock,
    /// Its first record.
    config: ArrayConfig,
    index: ArrayIndex,
    room: Room,
}

impl Host {
    /// What a place of a new array asks of a drive, if there may be such an array.
    pub(crate) fn do_check_array(&self, create: &ArrayCreate) -> Answer<Need> {
        let plan = self.plan(create)?;
        self.engine.give_back_room(plan.index);
        Ok(Need {
            array: create.uuid,
            member_bytes: plan.superblock.layout.member_bytes,
            block_bytes: plan.superblock.geometry.block_size().bytes(),
            pool: None,
        })
    }

    /// Decides how a new array is, and takes room for it. Nothing is written.
    fn plan(&self, create: &ArrayCreate) -> Answer<Plan> {
        let object = format!("array {}", create.name);
        self.refuse_taken(&object, create)?;
        self.await_idle(&create.drives)?;
        let candidates = self.candidates(&object, &create.drives)?;
        if !create.force {
            let carries = self.refuse_contents(&object, &candidates, false);
            // What is seen now may be erased before the next try, and what came with it not.
            carries.inspect_err(|_| self.note_used(&candidates))?;
        }
        let (superblock, config) = describe(create, &candidates)?;
        let index = self.state().free_array_index();
        let index = index.ok_or_else(|| {
            error(
                ErrorKind::Full,
                &object,
                "the engine has all arrays it may have",
            )
        })?;
        let room = self.engine.take_room(index);
        let room = room.map_err(|short| of_start(object.clone(), &short))?;
        Ok(Plan {
            candidates,
            superblock,
            config,
            index,
            room,
        })
    }

    pub(crate) fn do_create_array(&self, create: &ArrayCreate) -> Answer<ArrayView> {
        let object = format!("array {}", create.name);
        let Plan {
            candidates,
            superblock,
            config,
            index,
            room,
        } = self.plan(create)?;
        self.note_used(&candidates);
        let written = write_members(&candidates, &superblock, &config, create.force);
        if let Err(failed) = written {
            self.engine.give_back_room(index);
            forget_members(&candidates, &superblock);
            return Err(failed);
        }
        let initializing = config.resynced_until.0 < superblock.geometry.stripes();
        let mut next = config.next(Uuid::new_v4().as_u128());
        next.clean = false;
        let entry = ArrayEntry {
            torn_without: Vec::new(),
            index,
            uuid: create.uuid,
            name: create.name.clone(),
            superblock,
            config: next.clone(),
            serving: Serving::Running,
            notices: shared_hardware(&candidates),
            initializing,
            findings: VecDeque::new(),
            zeroed_late: Vec::new(),
            changing: std::sync::Arc::default(),
        };
        self.note_created(entry, &candidates);
        let regions = first_regions(&superblock, &next);
        let begun = self.begin_begun(&create.name, &next, &superblock.geometry, &room);
        let start = ArrayStart {
            suspects: regions.suspects(true, next.resynced_until),
            log: superblock.log(),
            regions,
            array: index,
            uuid: create.uuid.into_bytes(),
            geometry: superblock.geometry,
            config: next,
            places: places_of(&candidates, &superblock),
            seed: Uuid::new_v4().as_u64_pair().0,
            created: superblock.created.seconds,
            room,
            begun,
            node: self.state().node_of(create.uuid),
        };
        self.forget_buffers(start.array);
        let started = self.engine.start_array(start);
        if matches!(started, Err(StartError::Late)) {
            // It serves once its drives answer.
            return Err(late(object));
        }
        if let Err(start) = started {
            forget_members(&candidates, &superblock);
            let marks = candidates.into_iter();
            let marks = marks.map(|one| (one.name, found::mark_on(&one.drive)));
            self.forget_array((&create.name, create.uuid), marks.collect());
            self.end_begun(create.uuid, None);
            return Err(of_start(object, &start));
        }
        tracing::info!(event = "array_created", array = create.name, uuid = %create.uuid, "created");
        self.array_view(&create.name)
    }

    /// Refuses a name that cannot be one, and a name or uuid that an array has.
    fn refuse_taken(&self, object: &str, create: &ArrayCreate) -> Answer<()> {
        check_name(&create.name).map_err(|wrong| {
            error(ErrorKind::Invalid, object, wrong.to_string()).next("choose another name")
        })?;
        let state = self.state();
        let taken = state
            .arrays
            .values()
            .find(|array| array.name == create.name || array.uuid == create.uuid);
        let Some(taken) = taken else {
            return Ok(());
        };
        let text = format!("array {} has the uuid {}", taken.name, taken.uuid);
        Err(error(ErrorKind::Exists, object, text).next("choose another name and uuid"))
    }

    /// Notes a new array, and that its drives are its members.
    fn note_created(&self, entry: ArrayEntry, candidates: &[Candidate]) {
        let mut state = self.state();
        for (position, candidate) in candidates.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let drive = state.drives.get_mut(&candidate.name).expect("a candidate");
            drive.role = DriveRole::Member {
                array: entry.uuid,
                member,
            };
            drive.now_holds(found::mark(&Superblock {
                member,
                member_uuid: entry.config.members[position].uuid,
                ..entry.superblock
            }));
        }
        state.arrays.insert(entry.name.clone(), entry);
    }
}

/// Where the members of a new array are.
fn places_of(candidates: &[Candidate], superblock: &Superblock) -> Vec<Option<MemberPlace>> {
    let place = |candidate: &Candidate| MemberPlace {
        drive: candidate.index,
        layout: superblock.layout,
        appearance: crate::begun::same_appearance(&candidate.drive),
        records: Default::default(),
    };
    candidates.iter().map(place).map(Some).collect()
}

/// The region map of a new array, as its members have it.
fn first_regions(superblock: &Superblock, config: &ArrayConfig) -> RegionMap {
    let (space, array) = (superblock.regions(), superblock.array);
    match config.features.first_region() {
        Some(kind) => RegionMap::first(space, array, kind),
        None => RegionMap::new(space, array),
    }
}

/// Formats all members of a new array, and then gives each its first record.
fn write_members(
    candidates: &[Candidate],
    superblock: &Superblock,
    config: &ArrayConfig,
    force: bool,
) -> Answer<()> {
    for (position, candidate) in candidates.iter().enumerate() {
        let member = MemberIndex::from_at(position);
        let own = Superblock {
            member,
            member_uuid: config.members[position].uuid,
            sectors: sectors_of(&candidate.drive),
            ..*superblock
        };
        let io = |source| {
            of_io(
                format!("drive {}", candidate.name),
                "writing to it",
                &source,
            )
        };
        if force {
            candidate.drive.wipe().map_err(io)?;
        }
        records::format(&candidate.drive, &own).map_err(io)?;
        if let Some(kind) = config.features.first_region() {
            records::write_first_regions(&candidate.drive, &own, kind).map_err(io)?;
        }
    }
    // The records come last: a crash before leaves members of nothing.
    for (position, candidate) in candidates.iter().enumerate() {
        let member = MemberIndex::from_at(position);
        let io = |source| {
            of_io(
                format!("drive {}", candidate.name),
                "writing to it",
                &source,
            )
        };
        records::write_first_config(&candidate.drive, superblock, member, config).map_err(io)?;
    }
    Ok(())
}

/// Takes back what [`write_members`] wrote, so that the drives are free again and no later start
/// finds an array that nobody was given.
fn forget_members(candidates: &[Candidate], superblock: &Superblock) {
    for candidate in candidates {
        if let Err(source) = records::forget(&candidate.drive, superblock) {
            tracing::warn!(
                event = "drive_not_wiped",
                drive = candidate.name,
                error = %source,
                "may name an array that was not made"
            );
        }
    }
}

/// The superblock and first record of a new array.
fn describe(create: &ArrayCreate, candidates: &[Candidate]) -> Answer<(Superblock, ArrayConfig)> {
    let object = format!("array {}", create.name);
    let smallest = candidates
        .iter()
        .map(|candidate| candidate.drive.info().size_bytes)
        .min();
    let smallest = smallest.ok_or_else(|| {
        error(ErrorKind::Invalid, &object, "it has no drives").next("name its drives: --drives")
    })?;
    let block = block_size_of(create, candidates)?;
    let layout = Layout::for_member(smallest, block, candidates.len()).map_err(|small| {
        error(ErrorKind::Full, &object, small.to_string()).next("choose larger drives")
    })?;
    let geometry = Geometry::new(GeometryParameters {
        level: level_of(create.level),
        members: candidates.len(),
        parity: create.options.parity.map(usize::from),
        group_size: create.options.group_size.map(usize::from),
        chunk_bytes: create.options.chunk_bytes.unwrap_or(CHUNK_BYTES),
        block,
        member_data_blocks: layout.data.length >> block.shift(),
    });
    let geometry = geometry.map_err(|wrong| of_geometry(&object, &wrong))?;
    let space = ExtentSpace::new(&geometry);
    if space.count() == 0 {
        let text = format!(
            "its drives are too small: it has no room for one extent of {EXTENT_BYTES_MIN} bytes"
        );
        return Err(error(ErrorKind::Full, &object, text).next("choose larger drives"));
    }
    let superblock = Superblock {
        array: create.uuid,
        member_uuid: Uuid::nil(),
        member: MemberIndex(0),
        update: Update(1),
        features: Features::default(),
        sectors: Sectors::default(),
        layout,
        geometry,
        extent_stripes: space.stripes(),
        region_stripes: RegionSpace::stripes_for(&geometry, layout.region_map.length),
        created: created_now(),
    };
    let config = first_config(create, candidates, &geometry)?;
    Ok((superblock, config))
}

/// The block size asked for or else the largest of the drives, which none may exceed.
fn block_size_of(create: &ArrayCreate, candidates: &[Candidate]) -> Answer<BlockSize> {
    let object = format!("array {}", create.name);
    let invalid = |text: String| error(ErrorKind::Invalid, &object, text);
    let largest = candidates
        .iter()
        .map(|candidate| candidate.drive.info().block_bytes)
        .max();
    let block_bytes = create.options.block_bytes.or(largest).unwrap_or(512);
    let block = BlockSize::from_bytes(block_bytes).ok_or_else(|| {
        invalid(format!("{block_bytes} is no block size")).next("there are 512 and 4096")
    })?;
    if largest.is_some_and(|largest| largest > block_bytes) {
        return Err(invalid(
            "its drives have blocks of 4096 bytes, and it cannot have smaller ones".to_owned(),
        )
        .next("--block-size 4096"));
    }
    Ok(block)
}

/// The first record of a new array.
fn first_config(
    create: &ArrayCreate,
    candidates: &[Candidate],
    geometry: &Geometry,
) -> Answer<ArrayConfig> {
    let is_asked_for = create.options.unwritten_regions.unwrap_or(false);
    let is_unwritten = geometry.parity() > 0 && is_asked_for;
    // Zeroes agree with their parity: where all members read as zeroes there is nothing to do. Who
    // forces it says that somebody may have written to them.
    let zeroes = !create.force && candidates.iter().all(|candidate| candidate.blank);
    let blank = is_unwritten || zeroes;
    let space = ExtentSpace::new(geometry);
    let members = candidates.iter().map(|candidate| MemberRecord {
        uuid: Uuid::new_v4(),
        state: MemberState::InSync,
        drive_bytes: candidate.drive.info().size_bytes,
        identity: identity_of(&candidate.drive),
    });
    Ok(ArrayConfig {
        array: create.uuid,
        name: create.name.clone(),
        update: Update(1),
        update_id: Uuid::new_v4().as_u128(),
        ancestors: Vec::new(),
        forced_at: Update(0),
        unfinished_since: Update(0),
        written_seconds: created_now().seconds,
        features: Features {
            // Nothing is written, whatever lies on the drives: that is what the region map says.
            incompat: if is_unwritten { INCOMPAT_UNWRITTEN } else { 0 },
            compat: if geometry.parity() > 0 {
                COMPAT_MAPPED
            } else {
                0
            },
            ..Features::default()
        },
        clean: true,
        // Above all lives of an earlier array of this uuid, whose pieces may still be there.
        log_from: created_now().seconds << LIVES_SHIFT,
        resynced_until: StripeIndex(if blank || geometry.parity() == 0 {
            geometry.stripes()
        } else {
            0
        }),
        members: members.collect(),
        volumes: Vec::new(),
        unzeroed: if blank {
            Vec::new()
        } else {
            vec![ExtentRun {
                first: 0,
                count: space.count(),
            }]
        },
        lost: LostBlocks::default(),
        scrub: ScrubRecord::default(),
        options: ArrayOptions {
            write_hole: write_hole_of(create.options.write_hole),
            hedged_reads: hedged_reads_of(create.options.hedged_reads),
            scrub_every_seconds: crate::scrub::every_by_default(geometry, candidates),
            ..ArrayOptions::default()
        },
    })
}

/// Sentences about drives that fail together.
fn shared_hardware(candidates: &[Candidate]) -> Vec<Notice> {
    use std::os::unix::fs::MetadataExt;
    let mut by_device: std::collections::BTreeMap<u64, Vec<String>> = Default::default();
    for candidate in candidates {
        let info = candidate.drive.info();
        let file = info.kind == drive::DriveKind::File;
        let Some(path) = info.path.as_ref().filter(|_| file) else {
            continue;
        };
        if let Ok(metadata) = std::fs::metadata(path) {
            by_device
                .entry(metadata.dev())
                .or_default()
                .push(candidate.name.clone());
        }
    }
    let shared = by_device.into_values().filter(|names| names.len() > 1);
    shared.map(Notice::Together).collect()
}
