//! Drives: opened, found again by what is on them, wiped and let go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use array::assembly::Found;
use array::format::Superblock;
use control::request::{DriveAdd, DriveKnown, DriveSpec, Lamp};
use control::view::DriveView;
use control::{Answer, ErrorKind};
use drive::{Drive, Fault};
use engine::ChangeError;
use units::ArrayIndex;
use uuid::Uuid;

use crate::apart::apart;
use crate::arrays::stopping;
use crate::error::{error, not_found, of_change, of_io, of_start};
use crate::opened::{Opened, path_of, same_file};
use crate::state::{DriveEntry, DriveRole};
use crate::{Host, found, records, views};

/// How long after its start an engine waits for drives that the engine before it still holds.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(20);
/// Between two attempts.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl Host {
    pub(crate) fn open(&self, name: &str, uuid: Uuid, spec: &DriveSpec) -> Answer<()> {
        let opened = self.look(name, spec)?;
        self.adopt(name, uuid, spec, opened)
    }

    /// Gives an open drive a number and a name, and makes it reachable from all reactors.
    pub(crate) fn adopt(
        &self,
        name: &str,
        uuid: Uuid,
        spec: &DriveSpec,
        opened: Opened,
    ) -> Answer<()> {
        let Opened {
            drive,
            mark,
            signature,
        } = opened;
        let (index, named) = {
            let state = self.state();
            (state.free_drive_index(), state.drives.contains_key(name))
        };
        if named {
            // Its entry would be lost, and the drive with it.
            let text = "a drive of this name is open already";
            return Err(
                error(ErrorKind::Exists, format!("drive {name}"), text).next("choose another name")
            );
        }
        let index = index.ok_or_else(|| {
            error(
                ErrorKind::Full,
                format!("drive {name}"),
                "the engine has all drives it may have",
            )
            .next("remove a drive that is free")
        })?;
        drive.wait_at_most(self.asks.wait);
        let attached = self.engine.attach_drive(index, &drive);
        attached.map_err(|start| of_start(format!("drive {name}"), &start))?;
        let entry = DriveEntry {
            mark,
            signature,
            name: name.to_owned(),
            uuid,
            spec: spec.kept(),
            index,
            node: drive.info().node,
            blank: drive.info().reads_zero_when_new,
            drive,
            role: DriveRole::Free,
        };
        self.state().drives.insert(name.to_owned(), entry);
        Ok(())
    }

    pub(crate) fn do_add_drive(&self, add: &DriveAdd) -> Answer<DriveView> {
        let taken = {
            let state = self.state();
            let mut drives = state.drives.values();
            drives
                .find(|drive| drive.name == add.name || drive.uuid == add.uuid)
                .map(|drive| format!("drive {} has the uuid {}", drive.name, drive.uuid))
        };
        if let Some(text) = taken {
            let object = format!("drive {}", add.name);
            return Err(error(ErrorKind::Exists, object, text).next("choose another name and uuid"));
        }
        if let Some(path) = path_of(&add.spec) {
            // Before they are asked: a file system may take its time to answer.
            let open: Vec<(String, PathBuf)> = {
                let state = self.state();
                let entries = state.drives.values();
                let path = |entry: &DriveEntry| path_of(&entry.spec).map(Path::to_owned);
                let open = entries.filter_map(|entry| Some((entry.name.clone(), path(entry)?)));
                open.collect()
            };
            let new = path.to_owned();
            let find = move || {
                let mut open = open.into_iter();
                open.find(|(_, other)| same_file(other, &new))
            };
            // A file's server that is away lets nobody wait for ever.
            let known = apart(self.asks.wait, vec![find]).pop().flatten();
            let known = known.ok_or_else(|| self.silent(&add.name))?;
            if let Some((known, _)) = known {
                let text = format!("{} is drive {known} already", path.display());
                let object = format!("drive {}", add.name);
                return Err(error(ErrorKind::Exists, object, text)
                    .next("use it by that name, or remove it first"));
            }
        }
        self.open(&add.name, add.uuid, &add.spec)?;
        self.complete(&add.name);
        self.note_twin(&add.name);
        self.bring_back(&add.name);
        self.drive_view(&add.name)
    }

    /// Opens them side by side: one that does not answer lets no other wait.
    pub(crate) fn do_open_drives(&self, known: &[DriveKnown]) -> Vec<Answer<DriveView>> {
        let mut opened: Vec<Option<Answer<()>>> = Vec::with_capacity(known.len());
        for (known, hint) in known.iter().zip(self.at_hints(known, is_it)) {
            opened.push(match hint {
                Ok(Some(there)) => Some(self.adopt(&known.name, known.uuid, &known.spec, there)),
                // It may be another's: closed, it is found by who looks for it.
                Ok(None) => None,
                // Who had it may have been one of these.
                Err(refused) if refused.kind == ErrorKind::Busy => None,
                Err(refused) => Some(Err(refused)),
            });
        }
        let opened = known.iter().zip(opened).map(|(known, opened)| {
            match opened {
                Some(Ok(())) => {}
                Some(Err(refused)) => self.open_known(known, Err(refused))?,
                None => self.open_known(known, self.at_hint(known))?,
            }
            self.complete(&known.name);
            self.bring_back(&known.name);
            self.drive_view(&known.name)
        });
        opened.collect()
    }

    /// What a drive says it is, by the maker's number or by what is on it; empty if by nothing.
    /// It is opened for that, and closed again.
    pub(crate) fn do_identify_drive(&self, spec: &DriveSpec) -> Answer<String> {
        let lasts = match spec {
            DriveSpec::File { create, .. } => !create,
            DriveSpec::Block { .. } => true,
            DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => false,
        };
        if !lasts || path_of(spec).is_some_and(|path| self.is_open(path)) {
            return Ok(String::new());
        }
        self.look(&spec.to_string(), spec)
            .map(|opened| opened.identity())
    }

    /// A drive that a stopped array has lacked, or had to do without, is looked at by it again.
    fn complete(&self, drive: &str) {
        let mark = {
            let state = self.state();
            state.drives.get(drive).map(|drive| drive.mark.clone())
        };
        if let Some((array, _)) = mark.and_then(|mark| found::member_of(&mark)) {
            self.reassemble_stopped(array);
        }
    }

    /// Lets go of a drive.
    pub(crate) fn close(&self, name: &str) {
        let entry = self.state().drives.remove(name);
        if let Some(entry) = entry {
            // It may have been left out since.
            let mut state = self.state();
            state.pulled.remove(&entry.uuid);
            state.silent.remove(&entry.uuid);
            drop(state);
            self.engine.detach_drive(entry.index).ok();
        }
    }

    /// Closes what the host has taken away, unless an array uses it: one that waits for its members
    /// relies on their descriptors (ARCHITECTURE.md, *When a member fails*). Also what has not said
    /// whose it is: opened anew, it is asked again. Gives why, by name.
    pub(crate) fn do_close_gone(&self) -> Vec<(String, String)> {
        let running: Vec<String> = self.state().arrays.keys().cloned().collect();
        for array in running {
            self.release_excluded(&array);
        }
        self.note_deleted();
        let unused: Vec<(String, Arc<Drive>, bool)> = {
            let state = self.state();
            let is_unused = |entry: &&DriveEntry| match entry.role {
                DriveRole::Free => true,
                // One that is being removed is not expected back: it is forgotten as well.
                DriveRole::LeftOut { .. } => !state.pulled.contains(&entry.uuid),
                DriveRole::Member { .. } | DriveRole::Copy { .. } => false,
            };
            let drives = state.drives.values().filter(is_unused);
            let drive = |entry: &DriveEntry| {
                // What nothing tells apart is not found again.
                let is_known = !found::identity(&entry.drive, &entry.mark).is_empty();
                let silent = state.silent.contains(&entry.uuid) || entry.drive.owes_an_answer();
                let silent = silent && is_known;
                (entry.name.clone(), Arc::clone(&entry.drive), silent)
            };
            drives.map(drive).collect()
        };
        let gone = unused.into_iter().filter_map(|(name, drive, silent)| {
            let cause = if silent {
                "it has not answered when it was asked what it holds"
            } else if drive.is_taken_away() {
                "the host has taken it away"
            } else {
                return None;
            };
            Some((name, cause.to_owned()))
        });
        let gone: Vec<(String, String)> = gone.collect();
        let closes = |(name, _): &(String, String)| self.do_remove_drive(name, false).is_ok();
        gone.into_iter().filter(closes).collect()
    }

    pub(crate) fn drive_view(&self, name: &str) -> Answer<DriveView> {
        let drives = self.do_drives();
        drives
            .into_iter()
            .find(|view| view.name == name)
            .ok_or_else(|| not_found("drive", name))
    }

    pub(crate) fn do_drives(&self) -> Vec<DriveView> {
        let indices: Vec<_> = self
            .state()
            .drives
            .values()
            .map(|entry| entry.index)
            .collect();
        let reports = self.engine.reports(&indices);
        let state = self.state();
        state
            .drives
            .values()
            .map(|entry| views::drive(&state, entry, &reports))
            .collect()
    }

    /// A drive of the array is gone: what was assembled may have failed for its sake only, and
    /// names it by its number, which the next drive gets.
    fn reassemble_stopped(&self, array: Uuid) {
        let stopped = {
            let state = self.state();
            let entry = state.array_by_uuid(array);
            // One whose stop is late is not: a reactor may still have its part.
            let stopped = entry.filter(|entry| !entry.serving.has_shards());
            stopped.map(|entry| entry.name.clone())
        };
        if let Some(stopped) = stopped {
            self.reassemble(&stopped, array);
        }
    }

    /// Refuses to take a member out of a running array that would lose data without it, and, unless
    /// by force, out of any.
    fn refuse_needed(
        &self,
        drive: &str,
        (name, array): (&str, ArrayIndex),
        member: units::MemberIndex,
        force: bool,
    ) -> Answer<()> {
        if force {
            // It would go out of service now, and out of the array whenever others are back.
            let object = format!("drive {drive}");
            self.refuse_removal(&object, (name, array), member)?;
            self.refuse_beside_deleted(&object, (name, array), member)?;
        }
        let state = self.engine.array_state(array);
        let needed = state.as_ref();
        let needed = needed.is_some_and(|state| !survives_without(state, member));
        let torn = state.map_or(0, |state| torn_without(&state, member));
        let first = format!("fill its lost places first: `garboard array show {name}` lists them");
        let (kind, text, next) = match (force, needed) {
            (true, false) => {
                if torn > 0 {
                    tracing::warn!(
                        event = "removed_untrusted",
                        array = name,
                        drive,
                        stripes = torn,
                        "what it held in stripes that wait for a resync may read as something else"
                    );
                }
                return Ok(());
            }
            (true, true) => {
                let text = format!("array {name} would lose data without it");
                (ErrorKind::Unsafe, text, first)
            }
            (false, true) => {
                let text = format!("it is {member} of array {name}, which cannot do without it");
                (ErrorKind::Busy, text, first)
            }
            (false, false) if torn > 0 => {
                let text = format!(
                    "it is {member} of array {name}, and what it holds in {torn} stripes that \
                     wait for a resync cannot be told without it"
                );
                let next = format!(
                    "wait until that is done (`garboard job list`; `garboard array resync {name} \
                     start` if it was stopped); --force takes it out now, and what it held there \
                     may read as something else"
                );
                (ErrorKind::Busy, text, next)
            }
            (false, false) => {
                let text = format!("it is {member} of array {name}");
                let next = format!("--force takes it out; array {name} survives it");
                (ErrorKind::Busy, text, next)
            }
        };
        Err(error(kind, format!("drive {drive}"), text).next(next))
    }

    /// What an array is called, and its number if it runs.
    fn using(&self, object: &str, array: Uuid) -> Answer<(String, Option<ArrayIndex>)> {
        let state = self.state();
        let entry = state.array_by_uuid(array);
        let name = entry.map_or_else(|| array.to_string(), |entry| entry.name.clone());
        let index = entry.map(|entry| entry.index);
        let running = index.filter(|index| self.engine.array_state(*index).is_some());
        // A reactor may still have requests to its drives, although the home has let go.
        if running.is_none() && entry.is_some_and(|entry| entry.serving.has_shards()) {
            return Err(stopping(object.to_owned(), &name));
        }
        Ok((name, running))
    }

    pub(crate) fn do_remove_drive(&self, name: &str, force: bool) -> Answer<()> {
        let object = format!("drive {name}");
        let (role, handle, index, uuid) = {
            let state = self.state();
            let entry = state
                .drives
                .get(name)
                .ok_or_else(|| not_found("drive", name))?;
            let handle = Arc::clone(&entry.drive);
            (entry.role.clone(), handle, entry.index, entry.uuid)
        };
        if let DriveRole::Copy { member, job, .. } = role {
            let text = format!("it becomes a copy of {member}");
            let next = format!("`garboard job cancel {job}` first");
            return Err(error(ErrorKind::Busy, object, text).next(next));
        }
        let (DriveRole::Member { array, .. } | DriveRole::LeftOut { array, .. }) = role else {
            self.close(name);
            return Ok(());
        };
        self.refuse_side(&object, array, force)?;
        let DriveRole::Member { member, .. } = role else {
            self.close(name);
            self.reassemble_stopped(array);
            return Ok(());
        };
        let (array_name, running) = self.using(&object, array)?;
        let Some(array_index) = running else {
            if force {
                self.close(name);
                self.reassemble_stopped(array);
                return Ok(());
            }
            let text = format!("it is {member} of array {array_name}, which is not started");
            return Err(
                error(ErrorKind::Busy, object, text).next("--force forgets it nevertheless")
            );
        };
        self.refuse_needed(name, (&array_name, array_index), member, force)?;
        // As if it was pulled: whatever is under way on it ends, and the array finds out by itself.
        self.state().pulled.insert(uuid);
        handle.inject(Fault::Pulled);
        let failed = self
            .engine
            .change(array_index, array::Command::Remove { member });
        if let Err(refusal) = failed {
            // As long as the array uses the drive's number, no other drive may get it.
            let state = self.engine.array_state(array_index);
            let uses = state.is_some_and(|state| {
                let entry = state.map.members[member.at()];
                entry.drive == Some(index) && entry.state != array::MapState::Lost
            });
            // One that is late comes after others, which may still give the drive a place.
            if refusal == ChangeError::Late {
                let waits = self.waits(&self.state(), (&array_name, array_index));
                let why = waits.unwrap_or_else(|| "drives hang".to_owned());
                let text = format!(
                    "array {array_name} has not left it out yet, because {why}; it is let go as \
                     soon as they answer"
                );
                return Err(error(ErrorKind::Busy, object, text)
                    .next("ask again if the array is stopped before that"));
            }
            if uses {
                self.state().put_back(array, Some(member));
                return Err(of_change(object, &refusal));
            }
            tracing::info!(event = "drive_pulled", drive = name, %refusal, "excluded already");
        }
        self.engine.detach_drive(index).ok();
        let mut state = self.state();
        state.drives.remove(name);
        state.pulled.remove(&uuid);
        Ok(())
    }

    /// Drives that somebody wanted to take out, and was told that it was late, and that are left
    /// out by now. Only for who may change arrays.
    pub(crate) fn do_removed_late(&self) -> Vec<String> {
        self.catch_up();
        let state = self.state();
        let is_out = |entry: &&DriveEntry| {
            let left_out = matches!(entry.role, DriveRole::LeftOut { .. });
            left_out && state.pulled.contains(&entry.uuid)
        };
        let drives = state.drives.values().filter(is_out);
        drives.map(|entry| entry.name.clone()).collect()
    }

    /// A drive that may be wiped, and what was found where members have superblocks.
    pub(crate) fn look_before_wipe(
        &self,
        name: &str,
        force: bool,
    ) -> Answer<(Arc<Drive>, Option<Found>)> {
        let object = format!("drive {name}");
        self.await_idle([&name.to_owned()])?;
        let (role, drive) = {
            let state = self.state();
            let entry = state
                .drives
                .get(name)
                .ok_or_else(|| not_found("drive", name))?;
            (entry.role.clone(), Arc::clone(&entry.drive))
        };
        if let DriveRole::Member { array, member } | DriveRole::Copy { array, member, .. } = role {
            let state = self.state();
            let name = state.array_by_uuid(array).map(|entry| entry.name.clone());
            let name = name.unwrap_or_else(|| array.to_string());
            let text = format!("it is {member} of array {name}");
            let next = format!(
                "`garboard array fail {name} --member {}` takes it out of an array that can do \
                 without it; `garboard array destroy {name}` forgets the array",
                member.0
            );
            return Err(error(ErrorKind::Busy, object, text).next(next));
        }
        self.refuse_silent(name)?;
        let carries = self.do_signature_on(name);
        if !force && let Some(signature) = carries? {
            let text = format!("it carries {signature}");
            return Err(error(ErrorKind::Unsafe, object, text).next("--force erases it"));
        }
        // Whoever forces it erases also what cannot be read. Whether that can be written shows.
        let found = records::read_head(units::DriveIndex(0), &drive, &self.member_sizes());
        Ok((drive, found.ok()))
    }

    pub(crate) fn do_wipe_drive(&self, name: &str, force: bool) -> Answer<DriveView> {
        let (drive, found) = self.look_before_wipe(name, force)?;
        let io =
            |source: std::io::Error| of_io(format!("drive {name}"), "wiping the drive", &source);
        // Records of a member lie where no other signature does. The last ones first: should this
        // stop half way, what is at the start still names the drive.
        let sizes = records::possible_sizes(&drive, found.as_ref(), &self.member_sizes());
        records::erase_last(&drive, &sizes).map_err(io)?;
        // Of a drive that has shrunk, what is left of its records lies where everything is erased.
        let fits = |own: &&Superblock| own.layout.member_bytes <= drive.info().size_bytes;
        if let Some(superblock) = found.as_ref().and_then(Found::superblock).filter(fits) {
            records::forget(&drive, superblock).map_err(io)?;
        }
        drive.wipe().map_err(io)?;
        let wiped = self.state().drives.get_mut(name).map(|entry| {
            entry.role = DriveRole::Free;
            entry.now_holds(String::new());
            entry.uuid
        });
        if let Some(drive) = wiped {
            self.give_up_claims(drive);
        }
        self.drive_view(name)
    }

    pub(crate) fn do_locate(&self, name: &str, _lamp: Lamp) -> Answer<()> {
        if !self.state().drives.contains_key(name) {
            return Err(not_found("drive", name));
        }
        let text = "no bay with a lamp is known for it";
        Err(error(ErrorKind::Invalid, format!("drive {name}"), text)
            .next("its serial is in `garboard drive show`"))
    }
}

/// Whether what was opened says that it is the drive.
fn is_it(known: &DriveKnown, opened: &Opened) -> bool {
    let seen = opened.identity();
    !seen.is_empty() && seen == known.identity
}

/// Whether every group keeps enough members in sync.
pub(crate) fn survives_without(state: &engine::ArrayState, member: units::MemberIndex) -> bool {
    let geometry = &state.map.geometry;
    let group = member.at() / geometry.group_members();
    let members = &state.map.members;
    if members[member.at()].state != array::MapState::InSync {
        return true;
    }
    let in_sync = (0..members.len())
        .filter(|position| position / geometry.group_members() == group)
        .filter(|&position| members[position].state == array::MapState::InSync)
        .count();
    in_sync > geometry.data()
}

/// Stripes of which nobody could tell what a member in sync holds, without it.
pub(crate) fn torn_without(state: &engine::ArrayState, member: units::MemberIndex) -> u64 {
    match state.map.members[member.at()].state {
        array::MapState::InSync => state.map.stripes_untrusted(),
        array::MapState::Rebuilding { .. } | array::MapState::Lost => 0,
    }
}
