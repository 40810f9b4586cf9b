//! Arrays by name: stopped, destroyed, changed and listed, and what all of that shares.

mod absent;
pub(crate) mod assemble;
mod awaited;
pub(crate) mod copy;
mod create;
mod import;
mod left_out;
pub(crate) mod members;
mod recover;
mod returns;

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use array::format::{
    ArrayConfig, Created, DriveIdentity, HedgedReads, Sectors, Superblock, WriteHole,
};
use array::{Command, Level};
use control::request::ArrayModify;
use control::view::ArrayView;
use control::{Answer, EngineError, ErrorKind};
use drive::Drive;
use engine::{ArrayState, StartError};
use units::DriveIndex;
use uuid::Uuid;

use crate::error::{WAY_OUT_OF_HANGS, error, not_found, of_start};
use crate::state::{ArrayEntry, DriveEntry, DriveRole, Serving};
use crate::undecided::About;
use crate::{Host, found, records, views};

/// A drive that is about to become a member.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    index: DriveIndex,
    pub(crate) drive: Arc<Drive>,
    /// It reads as zeroes.
    blank: bool,
    /// Why it is not the member that it was, if it was one: what is on it may be wanted.
    pub(crate) left_out: Option<String>,
}

impl Host {
    pub(crate) fn do_stop_array(&self, name: &str) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let (index, uuid, has_shards) = {
            let state = self.state();
            let entry = state
                .arrays
                .get(name)
                .ok_or_else(|| not_found("array", name))?;
            (entry.index, entry.uuid, entry.serving.has_shards())
        };
        if !has_shards {
            return Err(error(ErrorKind::Busy, object, "it is not started")
                .next("nothing is to be done: it serves nobody"));
        }
        self.refuse_exported(&object, uuid)?;
        if let Some((job, _)) = self.copy_of(uuid) {
            self.stop_copy(job);
        }
        self.end_zeroing(Some(uuid));
        // Afterwards nobody can be asked.
        self.look_who_is_in_sync();
        let stopped = self.engine.stop_array(index);
        if matches!(stopped, Err(StartError::Late)) {
            return Err(self.stops_late(name, false));
        }
        // Without the clean mark it is stopped too, and comes up dirty.
        self.reassemble(name, uuid);
        let last = stopped.map_err(|start| of_start(object, &start))?;
        last.as_ref().inspect(|config| self.note_membership(config));
        self.end_begun(uuid, None);
        // A resync that has not ended goes on at the next start.
        if last.is_some_and(|config| !config.clean) {
            tracing::info!(
                event = "array_stopped",
                array = name,
                "stopped, with a resync to be ended"
            );
        } else {
            tracing::info!(event = "array_stopped", array = name, "clean");
        }
        self.array_view(name)
    }

    pub(crate) fn do_destroy_array(&self, name: &str, force: bool) -> Answer<Vec<String>> {
        let object = format!("array {name}");
        let (index, uuid, config, superblock, has_shards) = {
            let state = self.state();
            let entry = state
                .arrays
                .get(name)
                .ok_or_else(|| not_found("array", name))?;
            (
                entry.index,
                entry.uuid,
                self.config_of(entry),
                entry.superblock,
                entry.serving.has_shards(),
            )
        };
        self.refuse_exported(&object, uuid)?;
        let volumes = config.volumes.len();
        if volumes > 0 && !force {
            let text = match volumes {
                1 => "it holds 1 volume".to_owned(),
                _ => format!("it holds {volumes} volumes"),
            };
            return Err(error(ErrorKind::Unsafe, object, text).next("delete them, or say --force"));
        }
        if let Some((job, _)) = self.copy_of(uuid) {
            self.stop_copy(job);
        }
        self.end_zeroing(Some(uuid));
        // Whether the clean mark could be written does not matter any more, but what is on its way
        // must land before the drives are anybody else's.
        if has_shards && matches!(self.engine.stop_array(index), Err(StartError::Late)) {
            return Err(self.stops_late(name, true));
        }
        self.end_begun(uuid, None);
        let members: Vec<(String, Uuid, Arc<Drive>)> = {
            let mut state = self.state();
            // What names the array on them is to be erased.
            state.put_back(uuid, None);
            let own = |role: &DriveRole| match role {
                DriveRole::Member { array, .. } | DriveRole::LeftOut { array, .. } => {
                    *array == uuid
                }
                DriveRole::Free | DriveRole::Copy { .. } => false,
            };
            let drives = state.drives.values().filter(|entry| own(&entry.role));
            let member =
                |entry: &DriveEntry| (entry.name.clone(), entry.uuid, Arc::clone(&entry.drive));
            drives.map(member).collect()
        };
        let (marks, left) = self.erase_members(members, &superblock);
        self.forget_array((name, uuid), marks);
        self.forget_membership(uuid);
        for volume in &config.volumes {
            self.state().limits.remove(&(uuid, volume.uuid));
        }
        tracing::info!(event = "array_destroyed", array = name, "destroyed");
        Ok(left)
    }

    /// Erases what names their array on these drives. Gives what is on each then, as far as it says
    /// so, and those that may still name it.
    fn erase_members(
        &self,
        members: Vec<(String, Uuid, Arc<Drive>)>,
        superblock: &Superblock,
    ) -> (Vec<(String, String)>, Vec<String>) {
        let drives: Vec<(Uuid, Arc<Drive>)> = members
            .iter()
            .map(|(_, uuid, drive)| (*uuid, Arc::clone(drive)))
            .collect();
        let answers = self.answering(&drives);
        let (mut marks, mut left) = (Vec::new(), Vec::new());
        for ((name, _, drive), answers) in members.into_iter().zip(answers) {
            let erased = if answers {
                let erased = records::forget(&drive, superblock);
                erased.map_err(|source| source.to_string())
            } else {
                Err("it does not answer".to_owned())
            };
            if let Err(error) = erased {
                tracing::warn!(
                    event = "drive_not_wiped",
                    drive = name,
                    error,
                    "still names the array"
                );
                left.push(name.clone());
            }
            let mark = answers.then(|| found::mark_on(&drive));
            marks.push((name, mark.unwrap_or_default()));
        }
        (marks, left)
    }

    /// An array was told to stop and has not ended: nothing may be begun on it any more, because it
    /// calls itself clean as soon as its drives answer.
    pub(super) fn stops_late(&self, name: &str, destroys: bool) -> EngineError {
        let mut has_left = false;
        if let Some(entry) = self.state().arrays.get_mut(name) {
            entry.serving = Serving::Stopping { destroys };
            // Nobody may be there any more who can tell what it holds.
            if let Some(config) = self.engine.stopping_config(entry.index) {
                entry.config = config;
                has_left = true;
            }
        }
        let text = "its drives have not answered yet; it stops as soon as they do";
        let refusal = error(ErrorKind::Busy, format!("array {name}"), text);
        if has_left {
            // Its drives cannot be taken out any more, because nobody can say whom it needs.
            return refusal.next("ask again then, or unplug the drive that hangs");
        }
        refusal.next(format!("ask again then; {WAY_OUT_OF_HANGS}"))
    }

    /// Forgets an array whose drives are marked so now: some could not be erased.
    fn forget_array(&self, (name, uuid): (&str, Uuid), marks: Vec<(String, String)>) {
        let mut state = self.state();
        state.arrays.remove(name);
        for (drive, mark) in marks {
            if let Some(entry) = state.drives.get_mut(&drive) {
                entry.role = DriveRole::Free;
                entry.now_holds(mark);
            }
        }
        state.jobs.retain(|_, job| job.array != uuid);
    }

    pub(crate) fn do_modify_array(&self, name: &str, modify: &ArrayModify) -> Answer<ArrayView> {
        let object = format!("array {name}");
        let changing = {
            let state = self.state();
            let entry = state.arrays.get(name);
            Arc::clone(&entry.ok_or_else(|| not_found("array", name))?.changing)
        };
        let _changing = changing.lock().unwrap_or_else(PoisonError::into_inner);
        // All of them are sent: those of a change that is not decided would be taken back.
        let (index, _) = self.decided(name, About::Options)?;
        self.refuse_waiting(&object, (name, index), None)?;
        let state = self.engine.array_state(index);
        let config = state.ok_or_else(|| not_found("array", name))?.config;
        let mut options = config.options;
        if let Some(write_hole) = modify.write_hole {
            options.write_hole = write_hole_of(write_hole);
        }
        if let Some(floor) = modify.rebuild_floor_bytes_per_second {
            options.rebuild_floor_bytes_per_second = floor;
        }
        let invalid = |what: &str| {
            let text = format!("{what} is too large");
            error(ErrorKind::Invalid, &object, text).next("choose a smaller one")
        };
        if let Some(target) = modify.latency_target_us {
            options.latency_target_us =
                u32::try_from(target).map_err(|_| invalid("the latency target"))?;
        }
        if let Some(timeout) = modify.hold_timeout_ms {
            options.hold_timeout_seconds =
                u32::try_from(timeout.div_ceil(1000)).map_err(|_| invalid("the hold timeout"))?;
        }
        if let Some(rate) = modify.scrub_rate_bytes_per_second {
            options.scrub_rate_bytes_per_second = rate;
        }
        if let Some(every) = modify.scrub_every_s {
            options.scrub_every_seconds =
                u32::try_from(every).map_err(|_| invalid("the time between scrubs"))?;
        }
        if let Some(hedged) = modify.hedged_reads {
            options.hedged_reads = hedged_reads_of(hedged);
        }
        let changed = self.engine.change(index, Command::Options(options));
        changed.map_err(|change| self.of_change(object, (name, index), &change))?;
        self.array_view(name)
    }

    /// Free drives by their names, each once, which answer.
    fn candidates(&self, object: &str, names: &[String]) -> Answer<Vec<Candidate>> {
        let candidates = self.free_drives(object, names)?;
        let drives: Vec<(Uuid, Arc<Drive>)> = {
            let state = self.state();
            let entries = names.iter().filter_map(|name| state.drives.get(name));
            let drive = |entry: &DriveEntry| (entry.uuid, Arc::clone(&entry.drive));
            entries.map(drive).collect()
        };
        let answers = self.answering(&drives).into_iter();
        if let Some((name, _)) = names.iter().zip(answers).find(|(_, answers)| !answers) {
            return Err(self.silent(name));
        }
        Ok(candidates)
    }

    fn free_drives(&self, object: &str, names: &[String]) -> Answer<Vec<Candidate>> {
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
            if let DriveRole::Copy { member, job, .. } = entry.role {
                let text = format!("drive {name} becomes a copy of {member} (job {job})");
                return Err(error(ErrorKind::Busy, object, text).next(format!(
                    "choose a free drive, or `garboard job cancel {job}`"
                )));
            }
            candidates.push(Candidate {
                name: name.clone(),
                index: entry.index,
                drive: Arc::clone(&entry.drive),
                blank: entry.blank,
                left_out: match &entry.role {
                    DriveRole::LeftOut { cause, .. } => Some(cause.clone()),
                    DriveRole::Free | DriveRole::Copy { .. } | DriveRole::Member { .. } => None,
                },
            });
        }
        Ok(candidates)
    }

    /// Something is about to be written to drives: they are not as they were when they were new,
    /// whatever becomes of that.
    fn note_used(&self, candidates: &[Candidate]) {
        let mut state = self.state();
        for candidate in candidates {
            if let Some(entry) = state.drives.get_mut(&candidate.name) {
                entry.blank = false;
            }
        }
    }

    fn refuse_exported(&self, object: &str, uuid: Uuid) -> Answer<()> {
        let state = self.state();
        let Some((name, next)) = state.export_where(|array, _| array == uuid) else {
            return Ok(());
        };
        let text = format!("export {name} serves one of its volumes");
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
            Serving::Stopping { .. } => Err(stopping(format!("array {name}"), name)),
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
        let running = self.state_of(entry);
        running.map_or_else(|| entry.config.clone(), |state| state.config)
    }

    pub(crate) fn state_of(&self, entry: &ArrayEntry) -> Option<ArrayState> {
        let there = entry.serving.has_shards();
        there.then(|| self.engine.array_state(entry.index))?
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
            let running = self.state_of(entry);
            views::array(&state, entry, running.as_ref())
        };
        state.arrays.values().map(view).collect()
    }
}

/// An array that was told to stop is not begun anything with.
pub(crate) fn stopping(object: String, name: &str) -> EngineError {
    let text = format!("array {name} is being stopped");
    error(ErrorKind::Busy, object, text).next(format!(
        "`garboard array stop {name}` again, until it has stopped"
    ))
}

fn sectors_of(drive: &Drive) -> Sectors {
    let bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(0);
    let info = drive.info();
    Sectors {
        logical: bytes(info.block_bytes),
        physical: bytes(info.physical_block_bytes),
    }
}

pub(crate) fn identity_of(drive: &Drive) -> DriveIdentity {
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

fn write_hole_of(wanted: control::request::WriteHole) -> WriteHole {
    match wanted {
        control::request::WriteHole::Auto => WriteHole::Auto,
        control::request::WriteHole::Off => WriteHole::Off,
        control::request::WriteHole::Strict => WriteHole::Strict,
    }
}

fn hedged_reads_of(wanted: control::request::HedgedReads) -> HedgedReads {
    match wanted {
        control::request::HedgedReads::Auto => HedgedReads::Auto,
        control::request::HedgedReads::Always => HedgedReads::Always,
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
