//! Drives: add, list, remove, wipe, locate.

use units::limits::DRIVES_MAX;

use super::Control;
use super::restore::Start;
use super::spares::refuse_spare;
use crate::body::DriveAddBody;
use crate::name::{self, Create};
use crate::request::{DriveAdd, DriveKnown, DriveSpec, Lamp, MemberOf};
use crate::view::{ArrayView, DriveState, DriveView, IoCounters, MemberState, MemberView};
use crate::wanted::{Change, WantedState};
use crate::{Answer, EngineError, ErrorKind};

impl Control {
    /// All drives, open or only wanted, by name.
    #[must_use]
    pub fn drives(&self) -> Vec<DriveView> {
        let mut drives = self.engine.drives();
        let state = self.wanted.state();
        for (known, place) in self.missing_drives(&state) {
            drives.push(missing_drive(known.clone(), place, self.why_missing(known)));
        }
        self.show_spare_drives(&state, &mut drives);
        drives.sort_by(|a, b| a.name.cmp(&b.name));
        drives
    }

    /// The drives that are wanted and not open, and the places that they have left empty.
    fn missing_drives<'s>(
        &self,
        state: &'s WantedState,
    ) -> Vec<(&'s DriveKnown, Option<&'s MemberOf>)> {
        let open = self.engine.drives();
        let known = state.drives.values();
        let missing = known.filter(|known| open.iter().all(|drive| drive.name != known.name));
        let missing: Vec<&DriveKnown> = missing.collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let arrays = self.engine.arrays();
        // Of an array that is not known, all places may be empty.
        let is_filled = |place: &MemberOf| {
            let of_array = arrays.iter().find(|array| array.uuid == place.uuid);
            let filled = |at: &MemberView| at.member == place.member && at.drive.is_some();
            of_array.is_some_and(|array| array.members.iter().any(filled))
        };
        let with_place = |known: &'s DriveKnown| {
            let place = known.member_of.as_ref();
            (known, place.filter(|place| !is_filled(place)))
        };
        missing.into_iter().map(with_place).collect()
    }

    /// Why a drive is missing.
    fn why_missing(&self, known: &DriveKnown) -> String {
        let cause = self.causes().drives.get(&known.name).cloned();
        cause.unwrap_or_else(|| "it is not open".into())
    }

    /// Names the missing drives in the places that lack them.
    pub(super) fn show_missing_drives(&self, arrays: &mut [ArrayView]) {
        let is_empty = |place: &MemberView| place.state == MemberState::Missing;
        if !arrays
            .iter()
            .any(|array| array.members.iter().any(is_empty))
        {
            return;
        }
        let state = self.wanted.state();
        for (known, place) in self.missing_drives(&state) {
            let Some(place) = place else { continue };
            let array = arrays.iter_mut().find(|array| array.uuid == place.uuid);
            let members = array.map(|array| array.members.iter_mut());
            let member = members.and_then(|mut members| {
                members.find(|member| member.member == place.member && is_empty(member))
            });
            if let Some(member) = member {
                let (name, why) = (&known.name, self.why_missing(known));
                member.cause = Some(format!("drive {name} is missing: {why}"));
            }
        }
    }

    /// One drive, by name or uuid.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drive(&self, key: &str) -> Answer<DriveView> {
        name::find(self.drives(), key)
    }

    /// Adds a drive, or opens again a missing one: the one of this name, or, when no name is
    /// given, the one that it says it is.
    ///
    /// # Errors
    /// As [`crate::Engine::add_drive`]; `Exists` when the name or uuid is taken.
    pub fn add_drive(&self, body: DriveAddBody) -> Answer<DriveView> {
        let _changing = self.change()?;
        let drives = self.drives();
        check_spec(&body.spec)?;
        if body.name.is_none()
            && body.uuid.is_none()
            && let Some(gone) = self.gone(&drives, &body.spec)
        {
            return self.reopen(&again(gone, &body.spec));
        }
        let is_given = body.name.is_some();
        let name = match body.name {
            Some(name) => name,
            None => default_name(&drives, body.uuid)?,
        };
        if let Some(gone) = drives.iter().find(|drive| drive.name == name)
            && gone.state == DriveState::Missing
            && body.uuid.is_none_or(|uuid| uuid == gone.uuid)
            && self.engine.drives().iter().all(|drive| drive.name != name)
        {
            return self.reopen(&again(gone, &body.spec));
        }
        let differs =
            |drive: &DriveView| name::differing([("place", drive.spec.kept() == body.spec.kept())]);
        let uuid = match name::create(drives, &name, body.uuid, differs)? {
            Create::There(drive) => return Ok(drive),
            Create::New(uuid) => uuid,
        };
        let add = DriveAdd {
            name,
            uuid,
            spec: body.spec,
        };
        let drive = self.engine.add_drive(&add).map_err(|refused| {
            if is_given {
                refused
            } else {
                of_spec(refused, &add)
            }
        })?;
        let record = [Change::Drive(to_know(&drive, &self.engine.arrays()))];
        if let Err(error) = self.wanted.apply(&record) {
            // An array may have taken it back already.
            self.undo("remove_drive", self.engine.remove_drive(&drive.name, true));
            unmake(&add.spec);
            return Err(error);
        }
        tracing::info!(event = "drive_added", object = %format_args!("drive {}", drive.name), spec = %drive.spec);
        Ok(drive)
    }

    /// The missing drive that what lies behind `spec` says it is. What cannot be opened is
    /// refused by who adds it.
    fn gone<'a>(&self, drives: &'a [DriveView], spec: &DriveSpec) -> Option<&'a DriveView> {
        let mut missing = drives
            .iter()
            .filter(|drive| drive.state == DriveState::Missing && !drive.identity.is_empty())
            .peekable();
        missing.peek()?;
        let identity = self.engine.identify_drive(spec).ok()?;
        missing.find(|drive| drive.identity == identity)
    }

    /// Opens a wanted drive that was missing, perhaps at another place.
    pub(super) fn reopen(&self, known: &DriveKnown) -> Answer<DriveView> {
        let drive = self.engine.open_drive(known)?;
        let record = to_know(&drive, &self.engine.arrays());
        // One that is back where it was needs nothing to be written, which may not be possible now.
        if record != *known
            && let Err(error) = self.wanted.apply(&[Change::Drive(record)])
        {
            self.undo("remove_drive", self.engine.remove_drive(&drive.name, true));
            return Err(error);
        }
        let mut causes = self.causes();
        causes.drives.remove(&known.name);
        causes.flapping.remove(&known.uuid);
        drop(causes);
        tracing::info!(event = "drive_returned", object = %format_args!("drive {}", known.name));
        self.bring_back(Start::Complete);
        self.drive(&known.name)
    }

    /// Opens a drive that its array waits for as the device that it is now.
    pub(super) fn reopen_awaited(&self, known: &DriveKnown) -> Answer<()> {
        let drive = self.engine.reopen_awaited(known)?;
        self.causes().drives.remove(&known.name);
        // The engine finds it there in any case: the place is a hint.
        self.wanted
            .apply(&[Change::Drive(to_know(&drive, &self.engine.arrays()))])
    }

    /// Forgets a drive; what is on it stays.
    ///
    /// # Errors
    /// As [`crate::Engine::remove_drive`].
    pub fn remove_drive(&self, key: &str, force: bool) -> Answer<DriveView> {
        let _changing = self.change()?;
        let drive = self.drive(key)?;
        refuse_spare(&drive)?;
        if self
            .engine
            .drives()
            .iter()
            .any(|open| open.name == drive.name)
        {
            self.engine.remove_drive(&drive.name, force)?;
            self.record_memberships_or_say();
        }
        self.forget_drive(&drive)?;
        self.engine.give_up_claims(drive.uuid);
        Ok(drive)
    }

    fn forget_drive(&self, drive: &DriveView) -> Answer<()> {
        let gone = [
            Change::NoDrive(drive.name.clone()),
            Change::NoSpare(drive.uuid),
        ];
        self.wanted.apply(&gone)?;
        self.causes().drives.remove(&drive.name);
        tracing::info!(event = "drive_removed", object = %format_args!("drive {}", drive.name));
        Ok(())
    }

    /// Removes what was to be removed, late: its array would take it back when it starts the next
    /// time, and so would the next engine. Under the lock of changes.
    ///
    /// It is forgotten first, unlike with a command: a drive that is wanted and not open is opened
    /// again, and would be what it was. As long as it cannot be forgotten it stays as it is.
    pub(super) fn finish_removals(&self) {
        for name in self.engine.removed_late() {
            let removed = self.drive(&name).and_then(|drive| {
                self.forget_drive(&drive)?;
                self.engine.remove_drive(&name, false)?;
                self.engine.give_up_claims(drive.uuid);
                Ok(())
            });
            if let Err(error) = removed {
                let said = error.to_string();
                let before = self.causes().drives.insert(name.clone(), said.clone());
                // It is tried again once a second.
                if before.as_ref() != Some(&said) {
                    tracing::error!(event = "drive_not_removed", object = %format_args!("drive {name}"), %error,
                        "it may return to its array");
                }
            }
        }
    }

    /// Erases what names a content on a free drive.
    ///
    /// # Errors
    /// As [`crate::Engine::wipe_drive`].
    pub fn wipe_drive(&self, key: &str, force: bool) -> Answer<DriveView> {
        let _changing = self.change()?;
        let name = self.free_drive_name(key)?;
        let drive = self.engine.wipe_drive(&name, force)?;
        self.record_drives_or_say();
        tracing::info!(event = "drive_wiped", object = %format_args!("drive {name}"));
        Ok(drive)
    }

    /// Switches the lamp of a drive's bay.
    ///
    /// # Errors
    /// As [`crate::Engine::locate_drive`].
    pub fn locate_drive(&self, key: &str, lamp: Lamp) -> Answer<DriveView> {
        let _changing = self.change()?;
        let name = self.open_drive_name(key)?;
        self.engine.locate_drive(&name, lamp)?;
        self.drive(&name)
    }

    /// The name of a drive that must be open, and that nobody waits with.
    pub(super) fn free_drive_name(&self, key: &str) -> Answer<String> {
        refuse_spare(&self.drive(key)?)?;
        self.open_drive_name(key)
    }

    /// The name of a drive that must be open.
    pub(super) fn open_drive_name(&self, key: &str) -> Answer<String> {
        let drive = self.drive(key)?;
        if self
            .engine
            .drives()
            .iter()
            .any(|open| open.name == drive.name)
        {
            return Ok(drive.name);
        }
        let cause = drive
            .cause
            .unwrap_or_else(|| "it was not found at the start".into());
        Err(EngineError::new(
            ErrorKind::NotFound,
            name::object::<DriveView>(&drive.name),
            cause,
        )
        .next("bring the drive back and give `garboard drive add` its place and this name"))
    }

    /// Says when the way back fails too.
    pub(super) fn undo(&self, what: &'static str, result: Answer<()>) {
        if let Err(error) = result {
            tracing::error!(event = "undo_failed", what, %error);
        }
    }
}

/// What is kept of a drive.
pub(super) fn to_know(drive: &DriveView, arrays: &[ArrayView]) -> DriveKnown {
    let is_its = |array: &&ArrayView| Some(&array.name) == drive.array.as_ref();
    let place = drive.member.zip(arrays.iter().find(is_its));
    DriveKnown {
        name: drive.name.clone(),
        uuid: drive.uuid,
        spec: drive.spec.kept(),
        identity: drive.identity.clone(),
        member_of: place.map(|(member, array)| MemberOf {
            uuid: array.uuid,
            array: array.name.clone(),
            member,
        }),
    }
}

/// A drive that was missing, at the place where somebody says it is.
fn again(gone: &DriveView, spec: &DriveSpec) -> DriveKnown {
    DriveKnown {
        name: gone.name.clone(),
        uuid: gone.uuid,
        spec: spec.kept(),
        identity: gone.identity.clone(),
        member_of: None,
    }
}

/// Removes the file that was made for a drive which is not added after all: the repeated command
/// makes it again.
fn unmake(spec: &DriveSpec) {
    if let DriveSpec::File {
        path, create: true, ..
    } = spec
    {
        // Where it stays, the repeated command says so.
        let _ = std::fs::remove_file(path);
    }
}

fn check_spec(spec: &DriveSpec) -> Answer<()> {
    let path = match spec {
        DriveSpec::File { path, .. } | DriveSpec::Block { path } => path,
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => {
            return Ok(());
        }
    };
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        let message = "a path cannot contain a zero byte";
        return Err(EngineError::new(ErrorKind::Invalid, "drive", message));
    }
    Ok(())
}

/// The first free of `d0`, `d1`, …; for a repeated create the name it got the first time.
fn default_name(drives: &[DriveView], uuid: Option<uuid::Uuid>) -> Answer<String> {
    if let Some(drive) = drives.iter().find(|drive| Some(drive.uuid) == uuid) {
        return Ok(drive.name.clone());
    }
    (0..DRIVES_MAX)
        .map(|number| format!("d{number}"))
        .find(|name| drives.iter().all(|drive| drive.name != *name))
        .ok_or_else(|| {
            let message = format!("there are {DRIVES_MAX} drives, and no more fit");
            EngineError::new(ErrorKind::Full, "drive", message).next("remove one that is not used")
        })
}

/// The same refusal, about the spec: nobody has heard of the name that the drive would have got.
fn of_spec(mut refused: EngineError, add: &DriveAdd) -> EngineError {
    if refused.object == name::object::<DriveView>(&add.name) {
        refused.object = name::object::<DriveView>(&add.spec.to_string());
    }
    refused
}

/// What is shown of a drive that is wanted and not open.
fn missing_drive(known: DriveKnown, place: Option<&MemberOf>, cause: String) -> DriveView {
    DriveView {
        name: known.name,
        uuid: known.uuid,
        spec: known.spec,
        identity: known.identity,
        state: DriveState::Missing,
        array: place.map(|place| place.array.clone()),
        pool: None,
        member: place.map(|place| place.member),
        model: None,
        serial: None,
        size_bytes: 0,
        block_bytes: 0,
        physical_block_bytes: 0,
        atomic_bytes: 0,
        access: "none".into(),
        write_cache: "none".into(),
        signature: None,
        cause: Some(cause),
        node: None,
        counters: IoCounters::default(),
    }
}
