//! Arrays: create, import, start, stop, destroy, modify, members, background work.

use units::limits::{
    ARRAY_MEMBERS_MAX, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, PARITY_MAX, SCRUB_RATE_MIN,
};
use units::{BlockSize, Size};

use super::restore::Start;
use super::spares::{NewSpares, refuse_pointless, refuse_unfit};
use super::volumes::no_limit;
use super::{Control, invalid};
use crate::body::{ArrayCreateBody, ReplaceBody};
use crate::name::{self, Create};
use crate::request::{
    ArrayCreate, ArrayModify, ArrayOptions, BackgroundKind, HedgedReads, Level, MemberReplace,
    WriteHole,
};
use crate::scrub::{ScrubBody, ScrubView};
use crate::spares::SpareOf;
use crate::view::{
    ArrayState, ArrayView, DriveState, DriveView, JobKind, JobView, MemberView, VolumeView,
};
use crate::wanted::{Change, WantedVolume};
use crate::{Answer, EngineError, ErrorKind};

impl Control {
    /// All arrays, by name.
    #[must_use]
    pub fn arrays(&self) -> Vec<ArrayView> {
        let mut arrays = self.engine.arrays();
        self.show_spares(&mut arrays);
        self.show_missing_drives(&mut arrays);
        self.show_told(&mut arrays);
        arrays
    }

    /// One array, by name or uuid.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn array(&self, key: &str) -> Answer<ArrayView> {
        name::find(self.arrays(), key)
    }

    /// Makes an array.
    ///
    /// # Errors
    /// As [`crate::Engine::create_array`].
    pub fn create_array(&self, body: ArrayCreateBody) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let differs = |array: &ArrayView| {
            let options = &body.options;
            name::differing([
                ("level", array.level == body.level),
                // Which ones does not matter: members may have been replaced since.
                ("number of drives", array.members.len() == body.drives.len()),
                ("chunk", is_or_open(options.chunk_bytes, array.chunk_bytes)),
                ("parity", is_or_open(options.parity, array.parity)),
                (
                    "group size",
                    is_or_open(options.group_size, array.group_size),
                ),
                (
                    "block size",
                    is_or_open(options.block_bytes, array.block_bytes),
                ),
                (
                    "unwritten regions",
                    is_or_open(options.unwritten_regions, array.unwritten_regions),
                ),
            ])
        };
        let uuid = match name::create(self.arrays(), &body.name, body.uuid, differs)? {
            Create::There(array) => {
                self.refuse_ending(&array)?;
                return self.with_its_spares(array, &body);
            }
            Create::New(uuid) => uuid,
        };
        let object = name::object::<ArrayView>(&body.name);
        check_options(&object, &body.options)?;
        refuse_unlogged(&object, body.level, Some(body.options.write_hole))?;
        if body.level == Level::Raid0 {
            refuse_hedges(&object, Some(body.options.hedged_reads))?;
            if body.options.unwritten_regions == Some(true) {
                let message = "level 0 has no region map, and so no unwritten regions";
                return Err(invalid(object, message).next("leave unwritten regions out"));
            }
        }
        let drives = self.drive_names(&object, &body.drives)?;
        let spares = self.spares_to_be(&object, &drives, &body)?;
        let create = ArrayCreate {
            name: body.name,
            uuid,
            level: body.level,
            drives,
            options: body.options,
            force: body.force,
        };
        self.make_array(&create, &spares)
    }

    /// An array that is made already, perhaps by an engine that ended before its spares were
    /// recorded. What has become something else since is let alone.
    fn with_its_spares(&self, array: ArrayView, body: &ArrayCreateBody) -> Answer<ArrayView> {
        let drives = body.spares.iter().filter_map(|key| self.drive(key).ok());
        let is_free =
            |drive: &DriveView| drive.state == DriveState::Free && drive.signature.is_none();
        let drives: Vec<DriveView> = drives.filter(is_free).collect();
        if drives.is_empty() {
            return Ok(array);
        }
        self.give_spares(&array, &drives, false)?;
        self.array(&array.name)
    }

    /// Makes an array once these are ready to be its spares. Before that nothing is written to its
    /// members, and before it is known that there may be such an array nothing to the spares.
    fn make_array(&self, create: &ArrayCreate, spares: &[DriveView]) -> Answer<ArrayView> {
        let mut ready = NewSpares::default();
        if !spares.is_empty() {
            refuse_pointless(&create.name, create.level == Level::Raid0)?;
            let need = self.engine.check_array(create)?;
            for drive in spares {
                refuse_unfit(&create.name, &need, drive)?;
            }
            ready = self.make_spares(spares, &SpareOf::Array(create.uuid), create.force)?;
        }
        let created = self.engine.create_array(create);
        // One that is only late has taken its drives all the same, and its spares.
        self.record_drives_or_say();
        let array = match created {
            Ok(array) => array,
            Err(refused) => {
                let mut arrays = self.engine.arrays().into_iter();
                if !arrays.any(|array| array.uuid == create.uuid) {
                    return Err(refused.after_erasing(&ready.erased));
                }
                let Err(failed) = self.wanted.apply(&ready.changes) else {
                    return Err(refused);
                };
                let object = name::object::<ArrayView>(&create.name);
                tracing::error!(event = "spares_not_recorded", object, error = %failed,
                    "it has none of its spares");
                return Err(refused.after_erasing(&ready.erased));
            }
        };
        if let Err(error) = self.wanted.apply(&ready.changes) {
            let undone = self.engine.destroy_array(&array.name, false);
            self.undo("destroy_array", undone.map(|_| ()));
            self.record_drives_or_say();
            return Err(error.after_erasing(&ready.erased));
        }
        let object = name::object::<ArrayView>(&array.name);
        tracing::info!(event = "array_created", object, uuid = %array.uuid);
        self.array(&array.name)
    }

    /// Refuses to call an array made that somebody else has told to be destroyed.
    fn refuse_ending(&self, array: &ArrayView) -> Answer<()> {
        if !self.engine.is_being_destroyed(array.uuid) {
            return Ok(());
        }
        let object = name::object::<ArrayView>(&array.name);
        let text = "it is being destroyed, and its drives have not answered yet";
        let next = format!(
            "`garboard array destroy {}` again, until it is gone; then make it anew",
            array.name
        );
        Err(EngineError::new(ErrorKind::Busy, object, text).next(next))
    }

    /// The drives that shall be spares of a new array, if they are free and none of its members.
    fn spares_to_be(
        &self,
        object: &str,
        members: &[String],
        body: &ArrayCreateBody,
    ) -> Answer<Vec<DriveView>> {
        let mut spares: Vec<DriveView> = Vec::new();
        for key in &body.spares {
            let drive = self.drive(key)?;
            let twice = spares.iter().any(|spare| spare.name == drive.name);
            if twice || members.contains(&drive.name) {
                let message = format!("drive {} is named twice", drive.name);
                return Err(invalid(object, message).next("name each drive once"));
            }
            self.refuse_unfree(&drive, body.force)?;
            spares.push(drive);
        }
        Ok(spares)
    }

    /// The names of open drives, each at most once.
    fn drive_names(&self, object: &str, keys: &[String]) -> Answer<Vec<String>> {
        if keys.is_empty() || keys.len() > ARRAY_MEMBERS_MAX {
            let message = format!(
                "{} drives: an array has 1 to {ARRAY_MEMBERS_MAX}",
                keys.len()
            );
            return Err(invalid(object, message));
        }
        let mut names: Vec<String> = Vec::with_capacity(keys.len());
        for key in keys {
            let name = self.free_drive_name(key)?;
            if names.contains(&name) {
                let message = format!("drive {name} is named twice");
                return Err(invalid(object, message).next("name each drive once"));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Lets an array serve, now and after the next start.
    ///
    /// # Errors
    /// As [`crate::Engine::start_array`].
    pub fn start_array(&self, key: &str, force: bool) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.tending().unrecorded_stops.remove(&array.uuid);
        let started = self.engine.start_array(&array.name, force);
        // One that is only late serves all the same, as soon as its drives answer.
        let was_stopped = array.state == ArrayState::Stopped;
        let runs = |array: ArrayView| array.state != ArrayState::Stopped;
        if was_stopped && self.array(&array.name).is_ok_and(runs) {
            self.wanted.apply(&[Change::NotStopped(array.uuid)])?;
            self.bring_back(Start::Nothing);
        }
        let started = started?;
        for warning in &started.warnings {
            tracing::warn!(event = "array_warning", object = %format_args!("array {}", array.name), warning);
        }
        tracing::info!(event = "array_started", object = %format_args!("array {}", array.name), state = ?started.state);
        self.array(&array.name)
    }

    /// Stops an array, now and after the next start.
    ///
    /// # Errors
    /// As [`crate::Engine::stop_array`].
    pub fn stop_array(&self, key: &str) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.finish_removals();
        let stopped = self.engine.stop_array(&array.name);
        // One that has stopped, which could not be recorded then, is only recorded now.
        let unrecorded = self.tending().unrecorded_stops.contains(&array.uuid);
        if !(unrecorded && array.state == ArrayState::Stopped) {
            stopped?;
        }
        self.record_memberships_or_say();
        self.remember().remove(&array.uuid);
        self.tending().unrecorded_stops.insert(array.uuid);
        self.wanted.apply(&[Change::Stopped(array.uuid)])?;
        self.tending().unrecorded_stops.remove(&array.uuid);
        tracing::info!(event = "array_stopped", object = %format_args!("array {}", array.name));
        self.array(&array.name)
    }

    /// Forgets an array and its volumes, on the drives too. The warnings of the view are what is
    /// left of it.
    ///
    /// # Errors
    /// As [`crate::Engine::destroy_array`].
    pub fn destroy_array(&self, key: &str, force: bool) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let mut array = self.array(key)?;
        let volumes: Vec<_> = self
            .volumes()
            .into_iter()
            .filter(|volume| volume.array == array.name)
            .collect();
        for volume in &volumes {
            self.refuse_wanted_exports(volume)?;
        }
        let mut changes = self.forgotten_with(&array)?;
        let left = self.engine.destroy_array(&array.name, force)?;
        let warning = |drive: &String| {
            format!(
                "drive {drive} could not be erased, and may still name it: `garboard drive wipe \
                 {drive} --force`, or it is found again"
            )
        };
        array.warnings = left.iter().map(warning).collect();
        let noted = |volume: &VolumeView| WantedVolume {
            array: Some(array.uuid),
            uuid: volume.uuid,
        };
        changes.extend(volumes.iter().flat_map(|volume| no_limit(noted(volume))));
        {
            let mut told_since = self.remember();
            told_since.remove(&array.uuid);
            self.wanted.apply(&changes)?;
        }
        self.record_drives_or_say();
        tracing::info!(event = "array_destroyed", object = %format_args!("array {}", array.name));
        Ok(array)
    }

    /// Changes options of a running array.
    ///
    /// # Errors
    /// As [`crate::Engine::modify_array`].
    pub fn modify_array(&self, key: &str, modify: &ArrayModify) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        if *modify == ArrayModify::default() {
            let object = name::object::<ArrayView>(&array.name);
            return Err(invalid(object, "nothing is to be changed").next("name an option"));
        }
        if let Some(timeout) = modify.hold_timeout_ms
            && timeout % 1000 != 0
        {
            let object = name::object::<ArrayView>(&array.name);
            let message = format!("a hold timeout of {timeout} ms: it is in whole seconds");
            let (less, more) = (
                timeout / 1000 * 1000,
                timeout.div_ceil(1000).saturating_mul(1000),
            );
            return Err(invalid(object, message).next(format!("give {less} or {more}")));
        }
        if let Some(rate) = modify.scrub_rate_bytes_per_second
            && (1..SCRUB_RATE_MIN).contains(&rate)
        {
            let object = name::object::<ArrayView>(&array.name);
            let message = format!("a scrub of {rate} bytes per second would hardly ever end");
            return Err(invalid(object, message).next("give the rate with its unit, as in 100MiB"));
        }
        let object = name::object::<ArrayView>(&array.name);
        refuse_unlogged(&object, array.level, modify.write_hole)?;
        if array.parity == 0 {
            refuse_hedges(&object, modify.hedged_reads)?;
            let scrubs = [modify.scrub_every_s, modify.scrub_rate_bytes_per_second];
            if scrubs.iter().flatten().any(|wish| *wish > 0) {
                let message = "level 0 has no parity and no copies that a scrub could compare";
                return Err(invalid(object, message).next("leave the scrub's options out"));
            }
        }
        self.engine.modify_array(&array.name, modify)
    }

    /// Excludes a member.
    ///
    /// # Errors
    /// As [`crate::Engine::fail_member`].
    pub fn fail_member(&self, key: &str, member: u16) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array_with_member(key, member)?;
        let view = self.engine.fail_member(&array.name, member)?;
        self.tending().given_up.insert((array.uuid, member));
        self.record_memberships_or_say();
        self.record_drives_or_say();
        tracing::warn!(event = "member_failed_by_command", object = %format_args!("array {}", array.name), member);
        Ok(view)
    }

    /// Gives a place a new drive.
    ///
    /// # Errors
    /// As [`crate::Engine::replace_member`].
    pub fn replace_member(&self, key: &str, member: u16, body: &ReplaceBody) -> Answer<ArrayView> {
        let _changing = self.change()?;
        let array = self.array_with_member(key, member)?;
        let drive = self.free_drive_name(&body.drive)?;
        let replace = MemberReplace {
            member,
            drive,
            force: body.force,
        };
        let replaced = self.engine.replace_member(&array.name, &replace);
        // One that is only late has taken its drive all the same.
        self.record_drives_or_say();
        let view = replaced?;
        self.note_copy(&view, &replace);
        let in_place = |place: &MemberView| {
            place.member == member && place.drive.as_ref() == Some(&replace.drive)
        };
        if view.members.iter().any(in_place) {
            tracing::info!(event = "member_replaced", object = %format_args!("array {}", array.name), member, drive = replace.drive);
        }
        Ok(view)
    }

    fn array_with_member(&self, key: &str, member: u16) -> Answer<ArrayView> {
        let array = self.array(key)?;
        if array.members.iter().any(|place| place.member == member) {
            return Ok(array);
        }
        let message = format!(
            "the array has members 0 to {}",
            array.members.len().saturating_sub(1)
        );
        let object = format!("member {member} of array {}", array.name);
        Err(EngineError::new(ErrorKind::NotFound, object, message)
            .next(format!("`garboard array show {}` shows them", array.name)))
    }

    /// Begins background work.
    ///
    /// # Errors
    /// As [`crate::Engine::start_background`].
    pub fn start_background(&self, key: &str, kind: BackgroundKind) -> Answer<JobView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.engine.start_background(&array.name, kind)
    }

    /// Stops background work.
    ///
    /// # Errors
    /// As [`crate::Engine::stop_background`].
    pub fn stop_background(&self, key: &str, kind: BackgroundKind) -> Answer<JobView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.engine.stop_background(&array.name, kind)
    }

    /// Begins or goes on with a scrub.
    ///
    /// # Errors
    /// As [`crate::Engine::start_scrub`].
    pub fn start_scrub(&self, key: &str, scrub: ScrubBody) -> Answer<JobView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.engine.start_scrub(&array.name, scrub)
    }

    /// Pauses a scrub.
    ///
    /// # Errors
    /// As [`crate::Engine::stop_scrub`].
    pub fn stop_scrub(&self, key: &str) -> Answer<JobView> {
        let _changing = self.change()?;
        let array = self.array(key)?;
        self.engine.stop_scrub(&array.name)
    }

    /// How the scrub of an array stands.
    ///
    /// # Errors
    /// As [`crate::Engine::scrub`].
    pub fn scrub(&self, key: &str) -> Answer<ScrubView> {
        let array = self.array(key)?;
        self.engine.scrub(&array.name)
    }

    /// The jobs of one kind on one array, running and finished.
    ///
    /// # Errors
    /// `NotFound` when there is no such array.
    pub fn background(&self, key: &str, kind: BackgroundKind) -> Answer<Vec<JobView>> {
        let array = self.array(key)?;
        let of_kind = |job: &JobView| match kind {
            BackgroundKind::Rebuild => job.kind == JobKind::Rebuild,
            BackgroundKind::Resync => matches!(job.kind, JobKind::Resync | JobKind::Initialize),
        };
        let jobs = self.engine.jobs().into_iter();
        Ok(jobs
            .filter(|job| job.array == array.name && of_kind(job))
            .collect())
    }
}

/// Whether it is as wished, or nothing was wished.
fn is_or_open<T: PartialEq>(wished: Option<T>, is: T) -> bool {
    wished.is_none_or(|wished| wished == is)
}

/// An array without redundancy has nothing to answer reads from.
fn refuse_hedges(object: &str, hedged: Option<HedgedReads>) -> Answer<()> {
    match hedged {
        Some(HedgedReads::Always) => {
            let message = "level 0 has no other members to answer reads from";
            Err(invalid(object, message).next("leave hedged reads at auto"))
        }
        Some(HedgedReads::Auto) | None => Ok(()),
    }
}

/// Refuses a log of all writes where there is no parity that a write which was cut short could make
/// wrong. No log is what such an array has anyway.
fn refuse_unlogged(object: &str, level: Level, write_hole: Option<WriteHole>) -> Answer<()> {
    match write_hole {
        Some(WriteHole::Strict) => {}
        Some(WriteHole::Auto | WriteHole::Off) | None => return Ok(()),
    }
    let message = match level {
        Level::Raid0 => "level 0 has no parity, so there is nothing to log",
        Level::Raid1 | Level::Raid10 => {
            "its copies are whole by themselves: there is no parity from which another block would \
             be computed, so there is no write hole and nothing to log"
        }
        Level::Raid5
        | Level::Raid6
        | Level::Raid7
        | Level::Nm
        | Level::Raid50
        | Level::Raid60
        | Level::Raid70 => return Ok(()),
    };
    Err(invalid(object, message).next("leave the write hole at auto"))
}

/// Checks what can be checked without knowing the drives.
fn check_options(object: &str, options: &ArrayOptions) -> Answer<()> {
    if let Some(bytes) = options.chunk_bytes {
        let fits = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes) && bytes.is_power_of_two();
        if !fits {
            let (least, most) = (Size(CHUNK_BYTES_MIN), Size(CHUNK_BYTES_MAX));
            let message = format!(
                "a chunk of {} bytes: a chunk is a power of two from {least} to {most}",
                bytes
            );
            return Err(invalid(object, message).next("64KiB suits most work"));
        }
    }
    if let Some(bytes) = options.block_bytes
        && BlockSize::from_bytes(bytes).is_none()
    {
        return Err(invalid(
            object,
            format!("a block of {bytes} bytes: it is 512 or 4096"),
        ));
    }
    if let Some(parity) = options.parity
        && !(1..=PARITY_MAX).contains(&usize::from(parity))
    {
        return Err(invalid(
            object,
            format!("parity of {parity}: it is 1 to {PARITY_MAX}"),
        ));
    }
    if options.group_size == Some(0) {
        return Err(invalid(object, "a group of no members"));
    }
    Ok(())
}
