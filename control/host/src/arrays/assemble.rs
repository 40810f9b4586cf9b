//! Arrays put together from what is on their drives: found, imported, assembled and started.

use std::collections::VecDeque;
use std::sync::Arc;

use array::assembly::{Assembled, Assembly, Verdict, assemble_named};
use array::format::{ArrayConfig, ExclusionCause, Superblock};
use array::{MemberPlace, Refusal, RegionMap, Room};
use control::view::{ArrayView, NOT_BY_FORCE};
use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, Unanswered};
use engine::{ArrayStart, StartError};
use units::{ArrayIndex, DriveIndex, MemberIndex, StripeIndex};
use uuid::Uuid;
use volume::VolumeTable;

use super::absent::Starting;
use super::left_out::{by_index, leave_out_unread, members_of, note_left_out};
use super::recover::of_drive;
use super::stopping;
use crate::begun::{BegunFile, same_appearance};
use crate::error::{error, late, not_found, of_start};
use crate::losses::give_up_half_written;
use crate::state::{ArrayEntry, DriveRole, Notice, Serving, State};
use crate::{Host, records};

impl Host {
    pub(crate) fn do_assemble(&self) -> Vec<ArrayView> {
        let (assembled, _) = self.assembled(None);
        for (drive, reason) in &assembled.strays {
            let mut state = self.state();
            let Some(entry) = by_index(&mut state, *drive) else {
                continue;
            };
            tracing::warn!(event = "drive_left_out", drive = entry.name, reason = %reason, "left out");
            // It was a member of an array that cannot be told any more.
            entry.role = DriveRole::LeftOut {
                array: Uuid::nil(),
                member: None,
                cause: reason.to_string(),
            };
        }
        let mut names = Vec::new();
        for assembly in assembled.arrays {
            let known = {
                let state = self.state();
                let entry = state.array_by_uuid(assembly.array());
                entry.map(|entry| (entry.name.clone(), entry.serving.has_shards()))
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
            match self.register(assembly, None) {
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

    /// What lies on the drives that no array uses, and on the members of one that is stopped; and
    /// which could be read.
    fn assembled(&self, stopped: Option<Uuid>) -> (Assembled, Vec<DriveIndex>) {
        let is_its = |role: &DriveRole| match role {
            DriveRole::Member { array, .. } => Some(*array) == stopped,
            DriveRole::Free | DriveRole::LeftOut { .. } | DriveRole::Copy { .. } => false,
        };
        let found = self.read_drives(|role| role.is_unused() || is_its(role));
        let names: Vec<(DriveIndex, String)> = {
            let state = self.state();
            let drives = state.drives.values();
            drives
                .map(|entry| (entry.index, entry.name.clone()))
                .collect()
        };
        let assembled = assemble_named(&found, &|drive| {
            let known = names.iter().find(|(index, _)| *index == drive);
            known.map_or_else(|| drive.to_string(), |(_, name)| format!("drive {name}"))
        });
        (assembled, found.iter().map(|found| found.drive).collect())
    }

    /// Notes an assembled array and whose its drives are, in place of what it was known by; with
    /// the drives that could be read. It does not serve yet.
    fn register(
        &self,
        assembly: Assembly,
        known_by: Option<(&str, &[DriveIndex])>,
    ) -> Answer<String> {
        // Before the lock: it asks for the drives.
        let torn_without = self.torn_without(&assembly);
        let mut state = self.state();
        let mut before = (Vec::new(), &[][..]);
        if let Some((known_by, read)) = known_by {
            before = (members_of(&state, assembly.array()), read);
            forget(&mut state, known_by, assembly.array());
        }
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
        let notices = note_left_out(&mut state, &assembly, &name);
        leave_out_unread(&mut state, uuid, before);
        let entry = ArrayEntry {
            index,
            uuid,
            name: name.clone(),
            superblock: assembly.superblock,
            config: assembly.config.clone(),
            serving: Serving::Stopped(Box::new(assembly)),
            notices,
            torn_without,
            initializing: false,
            findings: VecDeque::new(),
            zeroed_late: Vec::new(),
            changing: Arc::default(),
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
                Serving::Stopping { .. } => return Err(stopping(object, name)),
                Serving::Stopped(assembly) => {
                    let mut assembly = assembly.clone();
                    state.recall(&mut assembly);
                    (entry.index, assembly)
                }
            }
        };
        let room = self.engine.take_room(index);
        let room = room.map_err(|short| of_start(object, &short))?;
        let uuid = assembly.array();
        let started = self.start_assembled(name, (index, *assembly), room, force);
        // One that is only late runs all the same.
        if started.is_err() && !self.is_running(name) {
            self.engine.give_back_room(index);
            let unreachable = |refused: &EngineError| refused.kind == ErrorKind::Unreachable;
            if started.as_ref().is_err_and(unreachable) {
                // The next start is not to wait for who does not answer.
                self.reassemble(name, uuid);
            }
        }
        started
    }

    fn is_running(&self, name: &str) -> bool {
        let state = self.state();
        let entry = state.arrays.get(name);
        entry.is_some_and(|entry| entry.serving.has_shards())
    }

    fn start_assembled(
        &self,
        name: &str,
        (index, assembly): (ArrayIndex, Assembly),
        room: Room,
        force: bool,
    ) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let (mut starting, begun) = self.prepare(&object, assembly, force)?;
        let found = starting.assembly.clone();
        let geometry = found.superblock.geometry;
        let mut regions = self.read_regions(&found);
        self.refuse_unanswered(&object, &starting.asked)?;
        let redone = self.redo(&object, &mut starting, (&regions, begun.as_ref()));
        let redone = redone.inspect_err(|_| {
            if starting.has_written(&found) {
                self.reassemble(name, found.array());
            }
        })?;
        let mut next = starting.first_update(name, &found)?;
        let (mut assembly, asked) = (starting.assembly, starting.asked);
        leave_out_unflushed(&mut assembly, &mut next, &redone.unflushed);
        found.note_replay(&mut next, &mut regions, &redone.redo);
        give_up_half_written(name, &mut next, &redone.lost);
        self.erase_regions(&object, &assembly, &regions);
        note_untold(name, (&mut next, &assembly.superblock), &regions);
        let suspects = redone.suspects((&regions, assembly.config.clean), &mut next);
        tracing::info!(
            event = "regions_read",
            array = name,
            dirty = regions.dirty(),
            regions = regions.space().count(),
            stripes_to_resync = suspects.stripes_from(StripeIndex(0)),
            "the region map is read"
        );
        let torn = suspects.stripes_from(StripeIndex(0));
        let places = self.places(&assembly);
        let answered = self.refuse_unanswered(&object, &asked);
        answered.inspect_err(|_| self.reassemble(name, assembly.array()))?;
        let start = ArrayStart {
            regions,
            suspects,
            log: assembly.superblock.log(),
            array: index,
            uuid: assembly.array().into_bytes(),
            geometry,
            config: next.clone(),
            places,
            seed: Uuid::new_v4().as_u64_pair().0,
            created: assembly.superblock.created.seconds,
            begun: self.begin_begun(name, &next, &geometry, &room),
            room,
            node: self.state().node_of(assembly.array()),
        };
        self.forget_buffers(start.array);
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
        self.say_forced(name, &found, redone.ignored);
        self.say_torn(name, (&found, &next), torn);
        self.note_running(name, next);
        if is_late {
            // It serves once its drives answer.
            return Err(late(object));
        }
        self.finish_start(name);
        tracing::info!(event = "array_started", array = name, verdict = %assembly.verdict, "started");
        self.array_view(name)
    }

    /// What was begun before is done, and the start of an array is durable. Of one that is late, no
    /// record may be there yet: the next start may have to do it again.
    pub(crate) fn finish_start(&self, name: &str) {
        let (uuid, life) = {
            let state = self.state();
            let Some(entry) = state.arrays.get(name) else {
                return;
            };
            // As the start has made it.
            (entry.uuid, entry.config.life())
        };
        self.end_begun(uuid, Some(life));
        self.release_excluded(name);
        self.bring_back_all(uuid);
    }

    /// A start that was late has failed.
    ///
    /// Its exports may have been made meanwhile, and rings serve it: then it is left to `array
    /// stop`, which wants them removed first.
    pub(crate) fn give_up_start(&self, name: &str, index: ArrayIndex, refusal: Refusal) {
        let Ok(uuid) = self.running(name).map(|(_, uuid)| uuid) else {
            return;
        };
        let is_exported = self
            .state()
            .export_where(|array, _| array == uuid)
            .is_some();
        if is_exported {
            return;
        }
        if self.engine.give_up(index, refusal).is_err() {
            self.stops_late(name, false);
            return;
        }
        self.reassemble(name, uuid);
    }

    /// By member: its drive, if it is here.
    fn places(&self, assembly: &Assembly) -> Vec<Option<MemberPlace>> {
        let drives = self.member_drives(assembly);
        let superblock = &assembly.superblock;
        let place = |(index, drive): (&Option<DriveIndex>, Option<(String, Arc<Drive>)>)| {
            let drive = drive.map(|(_, drive)| drive);
            let drive = drive.as_ref();
            index.map(|index| MemberPlace {
                drive: index,
                layout: superblock.layout,
                appearance: drive.map_or(0, |drive| same_appearance(drive)),
                records: drive
                    .map_or_else(Default::default, |drive| records::places(drive, superblock)),
            })
        };
        assembly.members.iter().zip(drives).map(place).collect()
    }

    /// An array serves, or will once its drives answer.
    fn note_running(&self, name: &str, config: ArrayConfig) {
        let mut state = self.state();
        let entry = state.arrays.get_mut(name).expect("started just now");
        entry.serving = Serving::Running;
        entry.config = config;
    }

    /// What is said of an array that a minority of its members was made to start, and what else
    /// there is to say.
    fn say_forced(&self, name: &str, assembly: &Assembly, more: Option<String>) {
        if let Some(said) = more
            && let Some(entry) = self.state().arrays.get_mut(name)
        {
            entry.notices.push(Notice::Told(said));
        }
        if !matches!(assembly.verdict, Verdict::NeedsForce { .. }) {
            return;
        }
        let in_sync: Vec<MemberIndex> = assembly.config.in_sync().collect();
        let here = in_sync
            .iter()
            .filter(|member| assembly.members[member.at()].is_some());
        let said = format!(
            "started by force with {} of the {} members in sync at {}: what the others \
             acknowledged since is lost",
            here.count(),
            in_sync.len(),
            assembly.config.update
        );
        if let Some(entry) = self.state().arrays.get_mut(name) {
            entry.notices.push(Notice::Told(said));
        }
    }

    /// Mends what has to be mended on the members, and says what may start; and what the last
    /// engine had begun.
    fn prepare(
        &self,
        object: &str,
        assembly: Assembly,
        force: bool,
    ) -> Answer<(Starting, Option<BegunFile>)> {
        let startable = assembly.start(Uuid::new_v4().as_u128(), force);
        startable.map_err(|verdict| of_verdict(object, verdict))?;
        // Before anything is written: a flush that fails from here on is not to be forgotten.
        let begun = self.take_begun(object, &assembly)?;
        let asked = self.asked_of(&assembly);
        let (assembly, unwritable) = self.mend_records(object, assembly)?;
        let starting = Starting {
            assembly,
            unwritable,
            force,
            asked,
        };
        Ok((starting, begun))
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
                if Unanswered::is(&source) {
                    return Err(of_drive((object, &name), "mending its records", &source));
                }
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
        if !unwritable.is_empty() && !assembly.has_enough() {
            return Err(error(ErrorKind::Degraded, object, causes.join(", and "))
                .next("the others are not enough: see what its drives need, and start it again"));
        }
        Ok((assembly, unwritable))
    }

    /// Puts a stopped array together again from what is on its drives. Whoever looks finds it as it
    /// was until then.
    pub(crate) fn reassemble(&self, name: &str, uuid: Uuid) {
        // Whoever wanted to take one out of it has to ask again.
        self.state().put_back(uuid, None);
        let (assembled, read) = self.assembled(Some(uuid));
        let mut found = assembled.arrays.into_iter();
        let Some(assembly) = found.find(|array| array.array() == uuid) else {
            forget(&mut self.state(), name, uuid);
            return;
        };
        if let Err(refused) = self.register(assembly, Some((name, &read[..]))) {
            tracing::error!(event = "array_left_out", error = %refused, "not assembled");
        }
    }
}

/// Members that may have lost what was acknowledged are out in the record that the start commits.
fn leave_out_unflushed(assembly: &mut Assembly, next: &mut ArrayConfig, members: &[MemberIndex]) {
    for &member in members {
        assembly.members[member.at()] = None;
        let name = assembly.config.name_of_update();
        assembly.exclude(next, (member, ExclusionCause::FlushFailed), name);
    }
}

/// Where nobody can tell what was ever written, the next volume is zeroed. What is said of the
/// volumes that are there is in their array's view, by what this leaves in the record.
fn note_untold(
    array: &str,
    (next, superblock): (&mut ArrayConfig, &Superblock),
    regions: &RegionMap,
) {
    let stripe_blocks = u64::from(superblock.geometry.stripe_blocks());
    let blocks = regions.untold();
    let blocks = blocks.map(|(first, end)| (first.0 * stripe_blocks, end.0 * stripe_blocks));
    let blocks: Vec<(u64, u64)> = blocks.collect();
    if blocks.is_empty() {
        return;
    }
    VolumeTable::new(next, superblock).distrust(blocks.iter().copied());
    let lost: u64 = blocks.iter().map(|(first, end)| end - first).sum();
    tracing::error!(
        event = "regions_lost",
        array,
        bytes = lost << superblock.geometry.block_size().shift(),
        volumes = ?volume::distrusted(next, &superblock.extents()),
        "no copy of this part of the region map is left: its parity is made to agree, and where \
         nothing but zeroes was ever written volumes may read as anything"
    );
}

/// Forgets a stopped array; its drives are free.
pub(super) fn forget(state: &mut State, name: &str, uuid: Uuid) {
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
            records::mend_superblocks(drive, own)?;
        }
    }
    if assembly.behind.contains(&member) {
        records::write_config(drive, &assembly.superblock, member, &assembly.config)?;
    }
    Ok(())
}

pub(super) fn of_verdict(object: &str, verdict: &Verdict) -> EngineError {
    let (kind, text) = match verdict {
        Verdict::NeedsForce { .. } => (ErrorKind::Unsafe, verdict.to_string()),
        Verdict::Failed { .. } | Verdict::Startable { .. } => {
            (ErrorKind::Degraded, verdict.to_string())
        }
        Verdict::Refused { explanation } => {
            (ErrorKind::Unsafe, format!("{NOT_BY_FORCE}: {explanation}"))
        }
    };
    error(kind, object, text).next(what_helps(verdict))
}

/// What lets an array start that cannot as it is.
pub(crate) fn what_helps(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::NeedsForce { .. } => {
            "bring its other drives with `garboard drive add`, or give up with --force what only \
             they hold"
        }
        Verdict::Failed { .. } | Verdict::Startable { .. } => {
            "bring more of its drives with `garboard drive add`"
        }
        Verdict::Refused { .. } => {
            "`garboard drive remove DRIVE --force` takes a drive away, and leaves what is on it"
        }
    }
}
