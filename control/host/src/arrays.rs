//! Arrays: made, assembled from drives, started, changed and stopped.

use std::sync::Arc;
use std::time::SystemTime;

use array::assembly::{Assembly, LeftOut, Verdict, assemble};
use array::format::{
    ArrayConfig, ArrayOptions, Created, DriveIdentity, EXTENT_BYTES_MIN, ExtentRun, ExtentSpace,
    Features, Layout, MemberRecord, MemberState, Sectors, Superblock, WriteHole,
};
use array::{Command, Geometry, GeometryParameters, Level, MemberPlace};
use control::request::{ArrayCreate, ArrayImport, ArrayModify, DriveSpec, MemberReplace};
use control::view::{ArrayView, FoundArray, FoundDrive};
use control::{Answer, EngineError, ErrorKind};
use drive::Drive;
use engine::ArrayStart;
use units::{BlockSize, DriveIndex, MemberIndex, StripeIndex, Update};
use uuid::Uuid;
use volume::VolumeTable;

use crate::error::{error, not_found, of_io, of_refusal, of_start};
use crate::state::{ArrayEntry, DriveRole, Serving, State};
use crate::{Host, drives, records, views};

/// The chunk when nobody says.
const CHUNK_BYTES: u64 = 64 << 10;

/// A drive that is about to become a member.
#[derive(Clone)]
struct Candidate {
    name: String,
    index: DriveIndex,
    drive: Arc<Drive>,
}

impl Host {
    // ---- create --------------------------------------------------------------------------

    pub(crate) fn do_create_array(&self, create: &ArrayCreate) -> Answer<ArrayView> {
        let object = format!("array {}", create.name);
        let candidates = self.candidates(&object, &create.drives)?;
        refuse_signatures(&object, &candidates, create.force)?;
        let (superblock, config) = describe(create, &candidates)?;
        let index = self.state().free_array_index();
        let index = index.ok_or_else(|| {
            error(
                ErrorKind::Full,
                &object,
                "the engine has all arrays it may have",
            )
        })?;
        for (position, candidate) in candidates.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let own = Superblock {
                member,
                member_uuid: config.members[position].uuid,
                sectors: sectors_of(&candidate.drive),
                ..superblock
            };
            let io = |source| {
                of_io(
                    format!("drive {}", candidate.name),
                    "writing to it",
                    &source,
                )
            };
            if create.force {
                candidate.drive.wipe().map_err(io)?;
            }
            records::format(&candidate.drive, &own).map_err(io)?;
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
            records::write_config(&candidate.drive, &superblock, member, &config).map_err(io)?;
        }
        let initializing = config.resynced_until.0 < superblock.geometry.stripes();
        let mut next = config.next(Uuid::new_v4().as_u128());
        next.clean = false;
        let entry = ArrayEntry {
            index,
            uuid: create.uuid,
            name: create.name.clone(),
            superblock,
            config: next.clone(),
            serving: Serving::Running,
            warnings: shared_hardware(&candidates),
            initializing,
        };
        {
            let mut state = self.state();
            for (position, candidate) in candidates.iter().enumerate() {
                let member = MemberIndex::from_at(position);
                let drive = state.drives.get_mut(&candidate.name).expect("a candidate");
                drive.role = DriveRole::Member {
                    array: create.uuid,
                    member,
                };
            }
            state.arrays.insert(create.name.clone(), entry);
        }
        let places = candidates.iter().map(|candidate| {
            Some(MemberPlace {
                drive: candidate.index,
                layout: superblock.layout,
            })
        });
        let start = ArrayStart {
            array: index,
            geometry: superblock.geometry,
            config: next,
            places: places.collect(),
            seed: Uuid::new_v4().as_u64_pair().0,
        };
        if let Err(start) = self.engine.start_array(start) {
            self.forget_array(&create.name);
            return Err(of_start(object, &start));
        }
        tracing::info!(event = "array_created", array = create.name, uuid = %create.uuid, "created");
        self.array_view(&create.name)
    }

    /// Free drives by their names, each once.
    fn candidates(&self, object: &str, names: &[String]) -> Answer<Vec<Candidate>> {
        let state = self.state();
        let mut candidates: Vec<Candidate> = Vec::with_capacity(names.len());
        for name in names {
            let entry = state
                .drives
                .get(name)
                .ok_or_else(|| not_found("drive", name))?;
            if candidates.iter().any(|other| other.name == *name) {
                let text = format!("drive {name} is named twice");
                return Err(error(ErrorKind::Invalid, object, text).next("name each drive once"));
            }
            if let DriveRole::Member { array, member } = entry.role {
                let owner = state
                    .array_by_uuid(array)
                    .map_or("another array", |array| &array.name);
                let text = format!("drive {name} is {member} of array {owner}");
                return Err(error(ErrorKind::Busy, object, text).next("choose a free drive"));
            }
            candidates.push(Candidate {
                name: name.clone(),
                index: entry.index,
                drive: Arc::clone(&entry.drive),
            });
        }
        Ok(candidates)
    }

    // ---- assemble, start, stop -----------------------------------------------------------

    pub(crate) fn do_assemble(&self) -> Vec<ArrayView> {
        let assembled = assemble(&self.read_free_drives());
        for (drive, reason) in &assembled.strays {
            let name = self
                .state()
                .drive_at(*drive)
                .map(|entry| entry.name.clone());
            tracing::warn!(event = "drive_left_out", drive = name, reason = %reason, "left out");
        }
        let mut names = Vec::new();
        for assembly in assembled.arrays {
            if self.state().array_by_uuid(assembly.array()).is_some() {
                continue;
            }
            match self.register(assembly) {
                Ok(name) => names.push(name),
                Err(refused) => {
                    tracing::error!(event = "array_left_out", error = %refused, "not assembled");
                }
            }
        }
        names
            .iter()
            .filter_map(|name| self.array_view(name).ok())
            .collect()
    }

    /// Notes an assembled array and whose its drives are. It does not serve yet.
    fn register(&self, assembly: Assembly) -> Answer<String> {
        let mut state = self.state();
        let mut name = assembly.config.name.clone();
        if state.arrays.contains_key(&name) {
            // Two arrays of one name: the second goes by its uuid until it is renamed.
            name = assembly.array().simple().to_string();
        }
        let object = format!("array {name}");
        let index = state.free_array_index().ok_or_else(|| {
            error(
                ErrorKind::Full,
                object,
                "the engine has all arrays it may have",
            )
        })?;
        let uuid = assembly.array();
        let mut warnings = Vec::new();
        for (position, drive) in assembly.members.iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let Some(entry) = drive.and_then(|drive| by_index(&mut state, drive)) else {
                continue;
            };
            entry.role = DriveRole::Member {
                array: uuid,
                member,
            };
        }
        for (drive, reason) in &assembly.left_out {
            let Some(entry) = by_index(&mut state, *drive) else {
                continue;
            };
            warnings.push(format!("drive {} is left out: {reason}", entry.name));
            tracing::warn!(event = "drive_left_out", drive = entry.name, array = name, reason = %reason, "left out");
            let member = member_of(reason);
            entry.role = DriveRole::LeftOut {
                array: uuid,
                member,
                cause: reason.to_string(),
            };
        }
        if !matches!(
            assembly.verdict,
            Verdict::Startable {
                degraded: false,
                ..
            }
        ) {
            warnings.push(assembly.verdict.to_string());
        }
        let entry = ArrayEntry {
            index,
            uuid,
            name: name.clone(),
            superblock: assembly.superblock,
            config: assembly.config.clone(),
            serving: Serving::Stopped(Box::new(assembly)),
            warnings,
            initializing: false,
        };
        state.arrays.insert(name.clone(), entry);
        Ok(name)
    }

    pub(crate) fn do_start_array(&self, name: &str, force: bool) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let (index, assembly) = {
            let state = self.state();
            let entry = state
                .arrays
                .get(name)
                .ok_or_else(|| not_found("array", name))?;
            match &entry.serving {
                Serving::Running => {
                    return Err(error(ErrorKind::Busy, object, "it runs already"));
                }
                Serving::Stopped(assembly) => (entry.index, assembly.clone()),
            }
        };
        let next = assembly.start(Uuid::new_v4().as_u128(), force);
        let mut next = next.map_err(|verdict| of_verdict(&object, verdict))?;
        self.mend_records(&assembly)?;
        let dropped = VolumeTable::new(&mut next, &assembly.superblock).recover();
        for volume in dropped {
            tracing::warn!(
                event = "volume_dropped",
                array = name,
                volume = volume.name,
                "its creation or deletion was not finished"
            );
        }
        let geometry = assembly.superblock.geometry;
        let place = |drive: &Option<DriveIndex>| {
            drive.map(|drive| MemberPlace {
                drive,
                layout: assembly.superblock.layout,
            })
        };
        let start = ArrayStart {
            array: index,
            geometry,
            config: next.clone(),
            places: assembly.members.iter().map(place).collect(),
            seed: Uuid::new_v4().as_u64_pair().0,
        };
        if let Err(start) = self.engine.start_array(start) {
            // Some members may hold later records now than those it was assembled from; another
            // attempt from these would fork its history.
            self.reassemble(name, assembly.array());
            return Err(of_start(object, &start));
        }
        {
            let mut state = self.state();
            let entry = state.arrays.get_mut(name).expect("started just now");
            entry.serving = Serving::Running;
            entry.config = next;
        }
        tracing::info!(event = "array_started", array = name, verdict = %assembly.verdict, "started");
        self.array_view(name)
    }

    /// Brings members up to the record that decides, before the next update is written over
    /// their only good one.
    fn mend_records(&self, assembly: &Assembly) -> Answer<()> {
        let drive = |member: MemberIndex| {
            let index = assembly.members[member.at()]?;
            let state = self.state();
            let entry = state.drive_at(index)?;
            Some((entry.name.clone(), Arc::clone(&entry.drive)))
        };
        for &(member, copies) in &assembly.damaged {
            let Some((name, drive)) = drive(member) else {
                continue;
            };
            tracing::warn!(
                event = "superblock_damaged",
                drive = name,
                copies,
                "written anew"
            );
            let found = records::read(DriveIndex(0), &drive);
            if let Ok(found) = found
                && let Some(own) = found.superblock()
            {
                let io = |source| of_io(format!("drive {name}"), "writing its superblock", &source);
                records::write_superblocks(&drive, own).map_err(io)?;
            }
        }
        for &member in &assembly.behind {
            let Some((name, drive)) = drive(member) else {
                continue;
            };
            let io = |source| of_io(format!("drive {name}"), "writing its record", &source);
            records::write_config(&drive, &assembly.superblock, member, &assembly.config)
                .map_err(io)?;
        }
        Ok(())
    }

    pub(crate) fn do_stop_array(&self, name: &str) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let (index, uuid) = self.running(name)?;
        self.refuse_exported(&object, uuid)?;
        let stopped = self.engine.stop_array(index);
        // Without the clean mark it is stopped too, and comes up dirty.
        self.reassemble(name, uuid);
        stopped.map_err(|start| of_start(object, &start))?;
        tracing::info!(event = "array_stopped", array = name, "clean");
        self.array_view(name)
    }

    /// Puts a stopped array together again from what is on its drives.
    pub(crate) fn reassemble(&self, name: &str, uuid: Uuid) {
        {
            let mut state = self.state();
            for drive in state.drives.values_mut() {
                if matches!(drive.role, DriveRole::Member { array, .. } if array == uuid) {
                    drive.role = DriveRole::Free;
                }
            }
            state.arrays.remove(name);
        }
        let assembled = assemble(&self.read_free_drives());
        for assembly in assembled
            .arrays
            .into_iter()
            .filter(|array| array.array() == uuid)
        {
            if let Err(refused) = self.register(assembly) {
                tracing::error!(event = "array_left_out", error = %refused, "not assembled");
            }
        }
    }

    pub(crate) fn do_destroy_array(&self, name: &str, force: bool) -> Answer<()> {
        let object = format!("array {name}");
        let (index, uuid, volumes, superblock) = {
            let state = self.state();
            let entry = state
                .arrays
                .get(name)
                .ok_or_else(|| not_found("array", name))?;
            (
                entry.index,
                entry.uuid,
                self.config_of(entry).volumes.len(),
                entry.superblock,
            )
        };
        self.refuse_exported(&object, uuid)?;
        if volumes > 0 && !force {
            let text = format!("it holds {volumes} volumes");
            return Err(error(ErrorKind::Unsafe, object, text).next("delete them, or say --force"));
        }
        if self.engine.array_state(index).is_some() {
            // Whether the clean mark could be written does not matter any more.
            self.engine.stop_array(index).ok();
        }
        let members: Vec<(String, Arc<Drive>)> = {
            let state = self.state();
            let own = |role: &DriveRole| match role {
                DriveRole::Member { array, .. } | DriveRole::LeftOut { array, .. } => {
                    *array == uuid
                }
                DriveRole::Free => false,
            };
            let drives = state.drives.values().filter(|entry| own(&entry.role));
            drives
                .map(|entry| (entry.name.clone(), Arc::clone(&entry.drive)))
                .collect()
        };
        for (drive_name, drive) in members {
            if let Err(source) = records::forget(&drive, &superblock) {
                tracing::warn!(event = "drive_not_wiped", drive = drive_name, error = %source, "still names the array");
            }
        }
        self.forget_array(name);
        tracing::info!(event = "array_destroyed", array = name, "destroyed");
        Ok(())
    }

    fn forget_array(&self, name: &str) {
        let mut state = self.state();
        let Some(entry) = state.arrays.remove(name) else {
            return;
        };
        for drive in state.drives.values_mut() {
            let own = match &drive.role {
                DriveRole::Member { array, .. } | DriveRole::LeftOut { array, .. } => {
                    *array == entry.uuid
                }
                DriveRole::Free => false,
            };
            if own {
                drive.role = DriveRole::Free;
            }
        }
        state.jobs.retain(|_, job| job.array != entry.uuid);
    }

    fn refuse_exported(&self, object: &str, uuid: Uuid) -> Answer<()> {
        let state = self.state();
        let mut exports = state.exports.values().filter(|export| export.array == uuid);
        let Some(export) = exports.next() else {
            return Ok(());
        };
        let text = format!("export {} serves one of its volumes", export.create.name);
        let next = format!("`garboard export remove {}` first", export.create.name);
        Err(error(ErrorKind::Busy, object, text).next(next))
    }

    /// A running array's number.
    pub(crate) fn running(&self, name: &str) -> Answer<(units::ArrayIndex, Uuid)> {
        let state = self.state();
        let entry = state
            .arrays
            .get(name)
            .ok_or_else(|| not_found("array", name))?;
        match entry.serving {
            Serving::Running => Ok((entry.index, entry.uuid)),
            Serving::Stopped(_) => {
                let next = format!("`garboard array start {name}`");
                Err(error(
                    ErrorKind::Busy,
                    format!("array {name}"),
                    "it is not started",
                )
                .next(next))
            }
        }
    }

    /// What is durable of an array.
    pub(crate) fn config_of(&self, entry: &ArrayEntry) -> ArrayConfig {
        let running = match entry.serving {
            Serving::Running => self.engine.array_state(entry.index),
            Serving::Stopped(_) => None,
        };
        running.map_or_else(|| entry.config.clone(), |state| state.config)
    }

    // ---- import --------------------------------------------------------------------------

    pub(crate) fn do_find_arrays(&self, specs: &[DriveSpec]) -> Answer<Vec<FoundArray>> {
        let known: Vec<Uuid> = self
            .state()
            .arrays
            .values()
            .map(|array| array.uuid)
            .collect();
        let mut found = self.read_free_drives();
        let mut names: Vec<(DriveIndex, DriveSpec, Option<String>)> = {
            let state = self.state();
            state
                .drives
                .values()
                .map(|e| (e.index, e.spec.clone(), Some(e.name.clone())))
                .collect()
        };
        // Drives that are only looked at get numbers that no open drive has.
        let mut next = u16::MAX;
        let everywhere = specs.is_empty();
        let specs = if everywhere {
            block_devices()
        } else {
            specs.to_vec()
        };
        for spec in specs {
            let label = spec.to_string();
            let read = Drive::open(&drives::spec_of(&spec))
                .map_err(|open| crate::error::of_open(&label, &open))
                .and_then(|opened| {
                    let io = |source| of_io(format!("drive {label}"), "reading it", &source);
                    records::read(DriveIndex(next), &opened).map_err(io)
                });
            match read {
                Ok(one) => found.push(one),
                // A device that is mounted or cannot be read holds no array that is free.
                Err(_) if everywhere => continue,
                Err(refused) => return Err(refused),
            }
            names.push((DriveIndex(next), spec, None));
            next -= 1;
        }
        let arrays = assemble(&found).arrays;
        let arrays = arrays
            .iter()
            .filter(|assembly| !known.contains(&assembly.array()));
        Ok(arrays
            .map(|assembly| found_array(assembly, &names))
            .collect())
    }

    pub(crate) fn do_import_array(&self, import: &ArrayImport) -> Answer<ArrayView> {
        let object = format!("array {}", import.array);
        let found = self.do_find_arrays(&import.specs)?;
        let wanted = |array: &&FoundArray| {
            array.name == import.array || array.uuid.to_string() == import.array
        };
        let matching: Vec<&FoundArray> = found.iter().filter(wanted).collect();
        let array = match matching.as_slice() {
            [] => return Err(not_found("array", &import.array)),
            [array] => *array,
            several => {
                let text = format!("{} arrays have this name", several.len());
                return Err(error(ErrorKind::Invalid, object, text).next("name it by its uuid"));
            }
        };
        if self.state().arrays.contains_key(&array.name) {
            let text = "an array of this name is known already";
            return Err(error(ErrorKind::Exists, object, text).next("name it by its uuid"));
        }
        for drive in array.drives.iter().filter(|drive| drive.name.is_none()) {
            let name = format!("{}-{}", array.name, drive.member);
            self.open(&name, Uuid::new_v4(), &drive.spec)?;
        }
        self.do_assemble();
        let name = self
            .state()
            .array_by_uuid(array.uuid)
            .map(|entry| entry.name.clone());
        let name = name.ok_or_else(|| not_found("array", &import.array))?;
        self.do_start_array(&name, import.force)
    }

    // ---- change --------------------------------------------------------------------------

    pub(crate) fn do_modify_array(&self, name: &str, modify: &ArrayModify) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let (index, _) = self.running(name)?;
        let state = self.engine.array_state(index);
        let mut options = state
            .ok_or_else(|| not_found("array", name))?
            .config
            .options;
        if let Some(write_hole) = modify.write_hole {
            options.write_hole = write_hole_of(&object, write_hole)?;
        }
        if let Some(floor) = modify.rebuild_floor_bytes_per_second {
            options.rebuild_floor_bytes_per_second = floor;
        }
        let invalid =
            |what: &str| error(ErrorKind::Invalid, &object, format!("{what} is too large"));
        if let Some(target) = modify.latency_target_us {
            options.latency_target_us =
                u32::try_from(target).map_err(|_| invalid("the latency target"))?;
        }
        if let Some(timeout) = modify.hold_timeout_ms {
            options.hold_timeout_seconds =
                u32::try_from(timeout.div_ceil(1000)).map_err(|_| invalid("the hold timeout"))?;
        }
        let changed = self.engine.change(index, Command::Options(options));
        changed.map_err(|refusal| of_refusal(object, &refusal))?;
        self.array_view(name)
    }

    pub(crate) fn do_fail_member(&self, name: &str, member: u16) -> Answer<ArrayView> {
        let object = format!("member {member} of array {name}");
        let (index, _) = self.running(name)?;
        self.refuse_missing_member(name, member)?;
        let failed = self.engine.change(
            index,
            Command::Fail {
                member: MemberIndex(member),
            },
        );
        failed.map_err(|refusal| of_refusal(object, &refusal))?;
        tracing::warn!(event = "member_failed", array = name, member, "by command");
        self.release_excluded(name);
        self.array_view(name)
    }

    fn refuse_missing_member(&self, name: &str, member: u16) -> Answer<()> {
        let state = self.state();
        let entry = state
            .arrays
            .get(name)
            .ok_or_else(|| not_found("array", name))?;
        let members = entry.superblock.geometry.members();
        if usize::from(member) < members {
            return Ok(());
        }
        let text = format!("the array has members 0 to {}", members - 1);
        Err(error(
            ErrorKind::NotFound,
            format!("member {member} of array {name}"),
            text,
        ))
    }

    /// Drives whose members were excluded are nobody's any more.
    pub(crate) fn release_excluded(&self, name: &str) {
        let mut state = self.state();
        let Some(entry) = state.arrays.get(name) else {
            return;
        };
        let (uuid, index) = (entry.uuid, entry.index);
        let Some(running) = self.engine.array_state(index) else {
            return;
        };
        for drive in state.drives.values_mut() {
            let DriveRole::Member { array, member } = drive.role else {
                continue;
            };
            if array != uuid {
                continue;
            }
            if let MemberState::Excluded { cause, .. } = running.config.members[member.at()].state {
                let cause = cause.to_string();
                drive.role = DriveRole::LeftOut {
                    array,
                    member: Some(member),
                    cause,
                };
            }
        }
    }

    pub(crate) fn do_replace_member(
        &self,
        name: &str,
        replace: &MemberReplace,
    ) -> Answer<ArrayView> {
        let object = format!("member {} of array {name}", replace.member);
        let (index, uuid) = self.running(name)?;
        self.refuse_missing_member(name, replace.member)?;
        self.release_excluded(name);
        let member = MemberIndex(replace.member);
        let in_use = self
            .state()
            .drive_of(uuid, member)
            .map(|drive| drive.name.clone());
        if let Some(in_use) = in_use {
            let text = format!("drive {in_use} fills it");
            let next = format!(
                "`garboard array fail {name} --member {}` first",
                replace.member
            );
            return Err(error(ErrorKind::Busy, object, text).next(next));
        }
        let candidates = self.candidates(&object, std::slice::from_ref(&replace.drive))?;
        let candidate = candidates.into_iter().next().expect("one was asked for");
        // A drive that was a member of this very array before carries nothing else.
        let returns = matches!(
            self.state().drives.get(&replace.drive).map(|drive| drive.role.clone()),
            Some(DriveRole::LeftOut { array, .. }) if array == uuid
        );
        refuse_signatures(
            &object,
            std::slice::from_ref(&candidate),
            replace.force || returns,
        )?;
        let superblock = {
            let state = self.state();
            state
                .arrays
                .get(name)
                .ok_or_else(|| not_found("array", name))?
                .superblock
        };
        let drive_bytes = candidate.drive.info().size_bytes;
        if drive_bytes < superblock.layout.member_bytes {
            let text = format!(
                "drive {} has {} bytes and a member needs {}",
                candidate.name, drive_bytes, superblock.layout.member_bytes
            );
            return Err(error(ErrorKind::Full, object, text).next("choose a larger drive"));
        }
        if candidate.drive.info().block_bytes > superblock.geometry.block_size().bytes() {
            let text = format!("drive {} has larger blocks than the array", candidate.name);
            return Err(error(ErrorKind::Invalid, object, text));
        }
        let running = self
            .engine
            .array_state(index)
            .ok_or_else(|| not_found("array", name))?;
        let member_uuid = Uuid::new_v4();
        let own = Superblock {
            member,
            member_uuid,
            update: running.config.update,
            sectors: sectors_of(&candidate.drive),
            created: created_now(),
            ..superblock
        };
        let io = |source| {
            of_io(
                format!("drive {}", candidate.name),
                "writing to it",
                &source,
            )
        };
        if replace.force {
            candidate.drive.wipe().map_err(io)?;
        }
        records::format(&candidate.drive, &own).map_err(io)?;
        let record = MemberRecord {
            uuid: member_uuid,
            state: MemberState::Rebuilding {
                until: StripeIndex(0),
            },
            drive_bytes,
            identity: identity_of(&candidate.drive),
        };
        let place = MemberPlace {
            drive: candidate.index,
            layout: superblock.layout,
        };
        let replaced = self.engine.change(
            index,
            Command::Replace {
                member,
                place,
                record,
            },
        );
        replaced.map_err(|refusal| of_refusal(object, &refusal))?;
        {
            let mut state = self.state();
            let drive = state.drives.get_mut(&replace.drive).expect("a candidate");
            drive.role = DriveRole::Member {
                array: uuid,
                member,
            };
        }
        tracing::info!(
            event = "member_replaced",
            array = name,
            member = replace.member,
            drive = replace.drive,
            "rebuild begins"
        );
        self.array_view(name)
    }

    pub(crate) fn array_view(&self, name: &str) -> Answer<ArrayView> {
        let arrays = self.do_arrays();
        arrays
            .into_iter()
            .find(|view| view.name == name)
            .ok_or_else(|| not_found("array", name))
    }

    pub(crate) fn do_arrays(&self) -> Vec<ArrayView> {
        self.refresh_jobs();
        let state = self.state();
        let view = |entry: &ArrayEntry| {
            let running = match entry.serving {
                Serving::Running => self.engine.array_state(entry.index),
                Serving::Stopped(_) => None,
            };
            views::array(&state, entry, running.as_ref())
        };
        state.arrays.values().map(view).collect()
    }
}

fn by_index(state: &mut State, drive: DriveIndex) -> Option<&mut crate::state::DriveEntry> {
    state.drives.values_mut().find(|entry| entry.index == drive)
}

fn member_of(reason: &LeftOut) -> Option<MemberIndex> {
    match reason {
        LeftOut::Stale { member, .. } => Some(*member),
        _ => None,
    }
}

fn of_verdict(object: &str, verdict: &Verdict) -> EngineError {
    let kind = match verdict {
        Verdict::NeedsForce { .. } | Verdict::Refused { .. } => ErrorKind::Unsafe,
        Verdict::Failed { .. } | Verdict::Startable { .. } => ErrorKind::Degraded,
    };
    error(kind, object, verdict.to_string())
}

fn found_array(
    assembly: &Assembly,
    names: &[(DriveIndex, DriveSpec, Option<String>)],
) -> FoundArray {
    let geometry = assembly.superblock.geometry;
    let drives = assembly
        .members
        .iter()
        .enumerate()
        .filter_map(|(position, drive)| {
            let (_, spec, name) = names.iter().find(|(index, _, _)| Some(*index) == *drive)?;
            let member = MemberIndex::from_at(position).0;
            Some(FoundDrive {
                spec: spec.clone(),
                name: name.clone(),
                member,
            })
        });
    FoundArray {
        name: assembly.config.name.clone(),
        uuid: assembly.array(),
        level: views::level(geometry.level()),
        members: u16::try_from(geometry.members()).expect("limits.rs"),
        drives: drives.collect(),
        size_bytes: geometry.blocks() << geometry.block_size().shift(),
        update: assembly.config.update.0,
        cause: match assembly.verdict {
            Verdict::Startable { .. } => None,
            _ => Some(assembly.verdict.to_string()),
        },
    }
}

/// All block devices of this host that are not made of memory or files.
fn block_devices() -> Vec<DriveSpec> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let pretended = |name: &String| {
        ["loop", "ram", "zram", "fd", "sr"]
            .iter()
            .any(|p| name.starts_with(p))
    };
    let mut names: Vec<String> = names.filter(|name| !pretended(name)).collect();
    names.sort_unstable();
    let spec = |name: String| DriveSpec::Block {
        path: std::path::Path::new("/dev").join(name),
    };
    names.into_iter().map(spec).collect()
}

/// Refuses drives that carry anything known, naming all that was found.
fn refuse_signatures(object: &str, candidates: &[Candidate], force: bool) -> Answer<()> {
    let mut found = Vec::new();
    for candidate in candidates {
        let io = |source| of_io(format!("drive {}", candidate.name), "reading it", &source);
        if let Some(signature) = candidate.drive.signature().map_err(io)? {
            found.push(format!(
                "drive {} carries {}",
                candidate.name, signature.kind
            ));
        }
    }
    if found.is_empty() || force {
        return Ok(());
    }
    let next = "--force overwrites it; `garboard drive wipe` erases it";
    Err(error(ErrorKind::Unsafe, object, found.join(", ")).next(next))
}

/// The superblock and first record of a new array.
fn describe(create: &ArrayCreate, candidates: &[Candidate]) -> Answer<(Superblock, ArrayConfig)> {
    let object = format!("array {}", create.name);
    let invalid = |text: String| error(ErrorKind::Invalid, &object, text);
    let smallest = candidates
        .iter()
        .map(|candidate| candidate.drive.info().size_bytes)
        .min();
    let smallest = smallest.ok_or_else(|| invalid("it has no drives".to_owned()))?;
    let largest = candidates
        .iter()
        .map(|candidate| candidate.drive.info().block_bytes)
        .max();
    let block_bytes = create.options.block_bytes.or(largest).unwrap_or(512);
    let block = BlockSize::from_bytes(block_bytes).ok_or_else(|| {
        invalid(format!(
            "{block_bytes} is no block size; there are 512 and 4096"
        ))
    })?;
    if largest.is_some_and(|largest| largest > block_bytes) {
        return Err(invalid(
            "its drives have blocks of 4096 bytes, and it cannot have smaller ones".to_owned(),
        ));
    }
    let layout = Layout::for_member(smallest, block, candidates.len())
        .map_err(|small| error(ErrorKind::Full, &object, small.to_string()))?;
    let geometry = Geometry::new(GeometryParameters {
        level: level_of(create.level),
        members: candidates.len(),
        parity: create.options.parity.map(usize::from),
        group_size: create.options.group_size.map(usize::from),
        chunk_bytes: create.options.chunk_bytes.unwrap_or(CHUNK_BYTES),
        block,
        member_data_blocks: layout.data.length >> block.shift(),
    });
    let geometry = geometry.map_err(|wrong| invalid(wrong.to_string()))?;
    let space = ExtentSpace::new(&geometry);
    if space.count() == 0 {
        let text = format!(
            "its drives are too small: it has no room for one extent of {EXTENT_BYTES_MIN} bytes"
        );
        return Err(error(ErrorKind::Full, &object, text));
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
        created: created_now(),
    };
    // Zeroes agree with their parity: where all members read as zeroes there is nothing to do.
    let blank = candidates
        .iter()
        .all(|candidate| candidate.drive.info().reads_zero_when_new);
    let members = candidates.iter().map(|candidate| MemberRecord {
        uuid: Uuid::new_v4(),
        state: MemberState::InSync,
        drive_bytes: candidate.drive.info().size_bytes,
        identity: identity_of(&candidate.drive),
    });
    let config = ArrayConfig {
        array: create.uuid,
        name: create.name.clone(),
        update: Update(1),
        update_id: Uuid::new_v4().as_u128(),
        ancestors: Vec::new(),
        forced_at: Update(0),
        features: Features::default(),
        clean: true,
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
        options: ArrayOptions {
            write_hole: write_hole_of(&object, create.options.write_hole)?,
            ..ArrayOptions::default()
        },
    };
    Ok((superblock, config))
}

fn sectors_of(drive: &Drive) -> Sectors {
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(0);
    let info = drive.info();
    Sectors {
        logical: bytes(info.block_bytes),
        physical: bytes(info.physical_block_bytes),
    }
}

fn identity_of(drive: &Drive) -> DriveIdentity {
    DriveIdentity::new(&drive.info().identity().unwrap_or_default())
}

fn created_now() -> Created {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Created {
        host: u128::from_str_radix(id.trim(), 16).unwrap_or(0),
        seconds: since.map_or(0, |since| since.as_secs()),
    }
}

/// Sentences about drives that fail together.
fn shared_hardware(candidates: &[Candidate]) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut by_device: std::collections::BTreeMap<u64, Vec<&str>> = Default::default();
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
                .push(&candidate.name);
        }
    }
    let shared = by_device.into_values().filter(|names| names.len() > 1);
    let sentence = |names: Vec<&str>| {
        format!(
            "drives {} are files of one file system and fail together",
            names.join(", ")
        )
    };
    shared.map(sentence).collect()
}

fn write_hole_of(object: &str, wanted: control::request::WriteHole) -> Answer<WriteHole> {
    match wanted {
        control::request::WriteHole::Auto => Ok(WriteHole::Auto),
        control::request::WriteHole::Off => Ok(WriteHole::Off),
        control::request::WriteHole::Strict => {
            let text = "the partial-parity log that strict needs is not in this version";
            Err(error(ErrorKind::Invalid, object, text)
                .next("use auto, and read docs/on-disk.md on what it leaves open"))
        }
    }
}

/// The level, as the array names it.
pub(crate) fn level_of(level: control::request::Level) -> Level {
    use control::request::Level as Asked;
    match level {
        Asked::Raid0 => Level::L0,
        Asked::Raid1 => Level::L1,
        Asked::Raid10 => Level::L10,
        Asked::Raid5 => Level::L5,
        Asked::Raid6 => Level::L6,
        Asked::Raid7 => Level::L7,
        Asked::Nm => Level::Nm,
        Asked::Raid50 => Level::L50,
        Asked::Raid60 => Level::L60,
        Asked::Raid70 => Level::L70,
    }
}
