//! Arrays put together from what is on their drives: found, imported, assembled and started.

use std::collections::VecDeque;
use std::sync::Arc;

use array::MemberPlace;
use array::assembly::{Assembly, LeftOut, Verdict, assemble};
use array::format::{ArrayConfig, ExclusionCause, MemberState};
use control::request::{ArrayImport, DriveSpec};
use control::view::{ArrayView, FoundArray, FoundDrive};
use control::{Answer, EngineError, ErrorKind};
use drive::Drive;
use engine::{ArrayStart, StartError};
use units::{DriveIndex, MemberIndex, StripeIndex};
use uuid::Uuid;
use volume::VolumeTable;

use crate::error::{error, late, not_found, of_io, of_start};
use crate::state::{ArrayEntry, DriveEntry, DriveRole, Serving, State};
use crate::{Host, drives, records, views};

impl Host {
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
            let known = {
                let state = self.state();
                let entry = state.array_by_uuid(assembly.array());
                entry.map(|entry| {
                    (
                        entry.name.clone(),
                        matches!(entry.serving, Serving::Running),
                    )
                })
            };
            match known {
                None => {}
                Some((_, true)) => continue,
                // One that lacks drives, and here are some that say they are its.
                Some((name, false)) => {
                    self.reassemble(&name, assembly.array());
                    continue;
                }
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
            tracing::warn!(
                event = "drive_left_out",
                drive = entry.name,
                array = name,
                reason = %reason,
                "left out"
            );
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
            findings: VecDeque::new(),
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
                    let next = format!("`garboard array show {name}` tells its state");
                    return Err(error(ErrorKind::Busy, object, "it runs already").next(next));
                }
                Serving::Stopped(assembly) => (entry.index, assembly.clone()),
            }
        };
        let (assembly, mut next) = self.first_update(name, *assembly, force)?;
        let geometry = assembly.superblock.geometry;
        let place = |drive: &Option<DriveIndex>| {
            drive.map(|drive| MemberPlace {
                drive,
                layout: assembly.superblock.layout,
            })
        };
        let regions = self.read_regions(&assembly);
        let redo = self.replay_log(&object, &assembly, &regions)?;
        assembly.note_replay(&mut next, &regions, &redo);
        let suspects = regions.suspects(assembly.config.clean, next.resynced_until);
        tracing::info!(
            event = "regions_read",
            array = name,
            dirty = regions.dirty(),
            regions = regions.space().count(),
            stripes_to_resync = suspects.stripes_from(StripeIndex(0)),
            "the region map is read"
        );
        let start = ArrayStart {
            regions,
            suspects,
            log: assembly.superblock.log(),
            array: index,
            uuid: assembly.array().into_bytes(),
            geometry,
            config: next.clone(),
            places: assembly.members.iter().map(place).collect(),
            seed: Uuid::new_v4().as_u64_pair().0,
            created: assembly.superblock.created.seconds,
        };
        let started = self.engine.start_array(start);
        let is_late = matches!(started, Err(StartError::Late));
        if let Err(start) = started
            && !is_late
        {
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
        if is_late {
            // It serves once its drives answer.
            return Err(late(object));
        }
        self.release_excluded(name);
        self.bring_back_all(assembly.array());
        tracing::info!(event = "array_started", array = name, verdict = %assembly.verdict, "started");
        self.array_view(name)
    }

    /// Mends what has to be mended on the members, and says what may start with which update.
    fn first_update(
        &self,
        name: &str,
        assembly: Assembly,
        force: bool,
    ) -> Answer<(Assembly, ArrayConfig)> {
        let object = format!("array {name}");
        let startable = assembly.start(Uuid::new_v4().as_u128(), force);
        startable.map_err(|verdict| of_verdict(&object, verdict))?;
        let (assembly, unwritable) = self.mend_records(&object, assembly)?;
        let next = assembly.start(Uuid::new_v4().as_u128(), force);
        let mut next = next.map_err(|verdict| of_verdict(&object, verdict))?;
        for member in unwritable {
            let name = assembly.config.name_of_update();
            assembly.exclude(&mut next, (member, ExclusionCause::WriteError), name);
        }
        let dropped = VolumeTable::new(&mut next, &assembly.superblock).recover();
        for volume in dropped {
            tracing::warn!(
                event = "volume_dropped",
                array = name,
                volume = volume.name,
                "its creation or deletion was not finished"
            );
        }
        Ok((assembly, next))
    }

    /// Brings members up to the record that decides, before the next update is written over
    /// their only good one. A member that takes no writes is left out, if the others are enough:
    /// gives what may start then, and who is left out.
    fn mend_records(
        &self,
        object: &str,
        mut assembly: Assembly,
    ) -> Answer<(Assembly, Vec<MemberIndex>)> {
        let mut to_mend: Vec<MemberIndex> = assembly.damaged.iter().map(|(m, _)| *m).collect();
        to_mend.extend(&assembly.behind);
        to_mend.sort_unstable();
        to_mend.dedup();
        let mut unwritable = Vec::new();
        let mut causes = Vec::new();
        for member in to_mend {
            let drive = assembly.members[member.at()].and_then(|index| {
                let state = self.state();
                let entry = state.drive_at(index)?;
                Some((entry.name.clone(), Arc::clone(&entry.drive)))
            });
            let Some((name, drive)) = drive else {
                continue;
            };
            if let Err(source) = mend(&assembly, member, &drive) {
                tracing::warn!(event = "member_unwritable", object, member = member.0, drive = name,
                    error = %source, "its records cannot be mended; it is left out");
                causes.push(format!(
                    "{member}, drive {name}, takes no records: {source}"
                ));
                unwritable.push(member);
            } else {
                tracing::info!(
                    event = "member_mended",
                    object,
                    member = member.0,
                    drive = name,
                    "its records are as those of the others again"
                );
            }
        }
        for &member in &unwritable {
            assembly.members[member.at()] = None;
        }
        if !unwritable.is_empty() && !is_enough(&assembly) {
            return Err(error(ErrorKind::Degraded, object, causes.join(", and "))
                .next("the others are not enough: see what its drives need, and start it again"));
        }
        Ok((assembly, unwritable))
    }

    /// Puts a stopped array together again from what is on its drives.
    pub(crate) fn reassemble(&self, name: &str, uuid: Uuid) {
        {
            let mut state = self.state();
            forget(&mut state, name, uuid);
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
            let read = drives::open_spec(&label, &spec).and_then(|opened| {
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
        let mut opened = Vec::new();
        let taken = self.take_over(array, import.force, &mut opened);
        let runs = {
            let state = self.state();
            let entry = state.array_by_uuid(array.uuid);
            entry.is_some_and(|entry| matches!(entry.serving, Serving::Running))
        };
        // One that is only late runs all the same.
        if taken.is_err() && !runs {
            // Refused means that nothing has changed.
            if let Ok(name) = self.name_of(array) {
                forget(&mut self.state(), &name, array.uuid);
            }
            for name in opened {
                self.close(&name);
            }
        }
        taken
    }

    /// Opens the drives of a found array, and starts it.
    fn take_over(
        &self,
        array: &FoundArray,
        force: bool,
        opened: &mut Vec<String>,
    ) -> Answer<ArrayView> {
        for drive in array.drives.iter().filter(|drive| drive.name.is_none()) {
            let name = format!("{}-{}", array.name, drive.member);
            self.open(&name, Uuid::new_v4(), &drive.spec)?;
            opened.push(name);
        }
        self.do_assemble();
        self.do_start_array(&self.name_of(array)?, force)
    }

    fn name_of(&self, array: &FoundArray) -> Answer<String> {
        let state = self.state();
        let entry = state.array_by_uuid(array.uuid);
        entry
            .map(|entry| entry.name.clone())
            .ok_or_else(|| not_found("array", &array.name))
    }
}

/// Forgets a stopped array; its drives are free.
fn forget(state: &mut State, name: &str, uuid: Uuid) {
    for drive in state.drives.values_mut() {
        if matches!(drive.role, DriveRole::Member { array, .. } if array == uuid) {
            drive.role = DriveRole::Free;
        }
    }
    state.arrays.remove(name);
}

/// Writes anew what is damaged or behind on one member.
fn mend(assembly: &Assembly, member: MemberIndex, drive: &Drive) -> std::io::Result<()> {
    if assembly
        .damaged
        .iter()
        .any(|(damaged, _)| *damaged == member)
    {
        let found = records::read(DriveIndex(0), drive)?;
        if let Some(own) = found.superblock() {
            records::write_superblocks(drive, own)?;
        }
    }
    if assembly.behind.contains(&member) {
        records::write_config(drive, &assembly.superblock, member, &assembly.config)?;
    }
    Ok(())
}

/// Whether every group has enough members in sync, and here.
fn is_enough(assembly: &Assembly) -> bool {
    let geometry = &assembly.superblock.geometry;
    let members = assembly.config.members.iter().zip(&assembly.members);
    let good: Vec<bool> = members
        .map(|(record, drive)| record.state == MemberState::InSync && drive.is_some())
        .collect();
    let count = |group: &[bool]| group.iter().filter(|good| **good).count();
    good.chunks(geometry.group_members())
        .all(|group| count(group) >= geometry.data())
}

fn by_index(state: &mut State, drive: DriveIndex) -> Option<&mut DriveEntry> {
    state.drives.values_mut().find(|entry| entry.index == drive)
}

fn member_of(reason: &LeftOut) -> Option<MemberIndex> {
    match reason {
        LeftOut::Stale { member, .. } => Some(*member),
        LeftOut::Damaged(_)
        | LeftOut::Future(_)
        | LeftOut::Shrunk { .. }
        | LeftOut::NoConfig { .. }
        | LeftOut::OtherLayout { .. }
        | LeftOut::OlderClone { .. }
        | LeftOut::Clone { .. }
        | LeftOut::Replaced { .. }
        | LeftOut::Excluded { .. }
        | LeftOut::Abandoned { .. }
        | LeftOut::SplitBrain { .. } => None,
    }
}

fn of_verdict(object: &str, verdict: &Verdict) -> EngineError {
    let kind = match verdict {
        Verdict::NeedsForce { .. } | Verdict::Refused { .. } => ErrorKind::Unsafe,
        Verdict::Failed { .. } | Verdict::Startable { .. } => ErrorKind::Degraded,
    };
    let next = match verdict {
        Verdict::NeedsForce { .. } => {
            "bring its other drives with `garboard drive add`, or give up with --force what only \
             they hold"
        }
        Verdict::Failed { .. } | Verdict::Startable { .. } => {
            "bring more of its drives with `garboard drive add`"
        }
        Verdict::Refused { .. } => "bring all of its drives, or remove those to give up",
    };
    error(kind, object, verdict.to_string()).next(next)
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
            Verdict::NeedsForce { .. } | Verdict::Failed { .. } | Verdict::Refused { .. } => {
                Some(assembly.verdict.to_string())
            }
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
