//! From the wanted state to the engine: at a start, and when something comes back.
//!
//! What is missing is reported and not fatal; whatever can serve, serves.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use units::Instant;
use units::limits::START_GRACE;
use uuid::Uuid;

use super::Control;

use crate::request::DriveKnown;
use crate::view::{ArrayState, ArrayView, MemberState, VolumeView};
use crate::wanted::{Change, WantedExport, WantedState, WantedVolume};
use crate::{Answer, EngineError, ErrorKind};

/// Which arrays are started without being told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Those that can serve.
    Degraded,
    /// Those that lack no drive: drives come back one after another, and one that comes after the
    /// start has to be rebuilt.
    Complete,
    /// Those that waited for members, or had too few, and no other.
    Waited,
    /// None: somebody has started the one that he wanted, and others are to wait on.
    Nothing,
}

/// Arrays whose members may only be late.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Those that were passed over because a start without some could show wrong bytes.
    arrays: BTreeSet<Uuid>,
    /// Those that could not start with what was here.
    short: BTreeSet<Uuid>,
    grace: Grace,
    /// The grace of the start begins anew; and since when it counts then.
    anew: bool,
    since: Option<Instant>,
}

/// What the waiting is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Grace {
    /// The engine has started: whoever is late may come.
    #[default]
    Start,
    /// Nothing: whoever has not come is done without.
    Over,
    /// Something came back to an array that had too few, or did not answer one that was started,
    /// just now or at that time: others may follow.
    Came,
    CameAt(Instant),
}

impl Waiting {
    /// Whether a stopped array is to be started now, and notes it if it is to wait.
    fn starts(&mut self, array: &ArrayView, start: Start) -> bool {
        let waited = self.arrays.contains(&array.uuid);
        let may_be_torn = !array.torn_without.is_empty();
        let is_due = match start {
            Start::Degraded => true,
            // Whoever it waited for is here. Others that it lacks were out before.
            Start::Complete => !lacks(array) || (waited && !may_be_torn),
            Start::Waited => waited || self.short.contains(&array.uuid),
            Start::Nothing => return false,
        };
        // Also what would not be started yet: the end of the waiting is for it, too.
        if may_be_torn && self.grace == Grace::Start {
            if self.arrays.insert(array.uuid) {
                tracing::warn!(event = "array_waits", object = %format_args!("array {}", array.name),
                    members = ?array.torn_without, seconds = START_GRACE.as_secs(),
                    "for members that were in sync when it went down");
            }
            return false;
        }
        if !is_due && start == Start::Complete {
            self.short.insert(array.uuid);
        }
        is_due
    }

    /// Whether whoever did not come until now is to be done without.
    fn is_due(&mut self, now: Instant, begun: Instant) -> bool {
        if self.grace == Grace::Came {
            self.grace = Grace::CameAt(now);
        }
        if std::mem::take(&mut self.anew) {
            self.since = Some(now);
        }
        let since = match self.grace {
            Grace::Start => self.since.unwrap_or(begun),
            Grace::CameAt(at) => at,
            Grace::Over | Grace::Came => return false,
        };
        now.since(since) >= START_GRACE
    }

    /// Something came back, and all was started that could be.
    fn came_back(&mut self) {
        if self.grace != Grace::Start && !self.short.is_empty() {
            self.grace = Grace::Came;
        }
    }

    /// A member did not answer when its array was started: it may when its host has reset it.
    fn begin_anew(&mut self) {
        match self.grace {
            Grace::Start => self.anew = true,
            Grace::Over | Grace::Came | Grace::CameAt(_) => self.grace = Grace::Came,
        }
    }

    /// Nobody is waited for any more; whether somebody was.
    fn end(&mut self) -> bool {
        self.grace = Grace::Over;
        !self.arrays.is_empty() || !self.short.is_empty()
    }
}

fn lacks(array: &ArrayView) -> bool {
    let mut members = array.members.iter();
    members.any(|member| member.state == MemberState::Missing)
}

impl Control {
    /// Opens the wanted drives, assembles and starts the arrays, sets the limits, makes the
    /// exports. May be called again when drives came back.
    ///
    /// # Errors
    /// None: guests are served by what can be read and opened, and the rest is told.
    pub fn restore(&self) -> Answer<()> {
        let _changing = self.change()?;
        self.bring_back(Start::Degraded);
        Ok(())
    }

    /// [`Control::restore`] for who holds `changing`.
    pub(super) fn bring_back(&self, start: Start) {
        let mut state = self.wanted.state();
        // Who starts nothing opens nothing either: what came back would not be started by anybody.
        if start != Start::Nothing {
            self.open_drives(&state);
            self.engine.recall(state.memberships.clone());
            self.engine.assemble();
            self.start_arrays(&state, start);
        }
        // Before guests write to what may have been started by force.
        self.record_memberships_or_say();
        self.record_drives_or_say();
        say(self.forget_used_spares(&state));
        self.set_limits(&state);
        say(self.hold_back_by_array(&mut state));
        self.make_exports(&state);
    }

    fn open_drives(&self, state: &WantedState) {
        let open = self.engine.drives();
        let is_open = |known: &DriveKnown| open.iter().any(|drive| drive.name == known.name);
        let wanted = state.drives.values().filter(|known| !is_open(known));
        let wanted: Vec<DriveKnown> = wanted.cloned().collect();
        for (known, opened) in wanted.iter().zip(self.engine.open_drives(&wanted)) {
            match opened {
                Ok(_) => {
                    self.causes().drives.remove(&known.name);
                }
                Err(error) => {
                    let object = format!("drive {}", known.name);
                    tracing::warn!(event = "drive_missing", object, spec = %known.spec, %error);
                    self.causes()
                        .drives
                        .insert(known.name.clone(), error.message);
                }
            }
        }
    }

    fn start_arrays(&self, state: &WantedState, start: Start) {
        for array in self.engine.arrays() {
            if array.state != ArrayState::Stopped || state.stopped.contains(&array.uuid) {
                continue;
            }
            if !self.waiting().starts(&array, start) {
                continue;
            }
            let object = format!("array {}", array.name);
            match self.engine.start_array(&array.name, false) {
                Ok(array) => tracing::info!(event = "array_started", object, state = ?array.state),
                Err(error) => {
                    self.note_short(&array, &error);
                    tracing::error!(event = "array_not_started", object, %error);
                }
            }
        }
        if start == Start::Complete {
            self.waiting().came_back();
        }
    }

    /// An array was not started. It is tried again when members that it lacks may have come, or
    /// one that did not answer when it was started, without which it goes on then.
    fn note_short(&self, array: &ArrayView, error: &EngineError) {
        let mut waiting = self.waiting();
        let silent = error.kind == ErrorKind::Unreachable;
        if silent || lacks(array) {
            waiting.short.insert(array.uuid);
        }
        if silent {
            waiting.begin_anew();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the arrays that waited in vain for members, once the engine runs for long enough, or
    /// for long enough after one came back to an array that had too few. Nothing else ends that
    /// time: this looks for their drives first.
    ///
    /// # Errors
    /// None: what does not start is told.
    pub fn tend_starts(&self, now: Instant) -> Answer<()> {
        if !self.waiting().is_due(now, self.begun) {
            return Ok(());
        }
        let Ok(_changing) = self.change() else {
            return Ok(());
        };
        let waited = self.waiting().end();
        if waited {
            self.bring_back(Start::Waited);
            // One that did not start goes on counting: it may when its members are here.
            let arrays = self.engine.arrays();
            let stopped = |uuid: &Uuid| {
                let mut arrays = arrays.iter();
                arrays.any(|array| array.uuid == *uuid && array.state == ArrayState::Stopped)
            };
            let mut waiting = self.waiting();
            waiting.arrays.retain(stopped);
            waiting.short.retain(stopped);
        }
        Ok(())
    }

    fn set_limits(&self, state: &WantedState) {
        if state.limits.is_empty() {
            return;
        }
        let arrays = self.engine.arrays();
        for volume in self.engine.volumes() {
            let array = arrays.iter().find(|array| array.name == volume.array);
            let own = WantedVolume {
                array: array.map(|array| array.uuid),
                uuid: volume.uuid,
            };
            let unknown = WantedVolume { array: None, ..own };
            if let (None, Some(limit)) = (state.limits.get(&own), state.limits.get(&unknown)) {
                // An engine before this one did not note of which array the volume is.
                let changes = [Change::Limit(own, limit.clone()), Change::NoLimit(unknown)];
                say(self.wanted.apply(&changes));
            }
            let limit = state.limits.get(&own);
            let Some(limit) = limit.or_else(|| state.limits.get(&unknown)) else {
                continue;
            };
            if volume.limit == *limit {
                continue;
            }
            if let Err(error) = self.engine.limit_volume(&volume.key(), limit) {
                let object = format!("volume {}", volume.name);
                tracing::error!(event = "limit_not_set", object, %error);
            }
        }
    }

    pub(super) fn make_exports(&self, state: &WantedState) {
        let volumes = self.engine.volumes();
        let arrays = self.engine.arrays();
        let there = self.engine.exports();
        for (name, wanted) in &state.exports {
            if there.iter().any(|export| export.name == *name)
                || state.held.contains_key(&wanted.create.uuid)
            {
                continue;
            }
            let made = volume_of(wanted, &volumes, &arrays).and_then(|volume| {
                // The volume's name may have changed since; its uuid never does.
                let mut create = wanted.create.clone();
                create.volume.clone_from(&volume.name);
                self.engine.create_export(&create, &volume.key())?;
                Ok(volume)
            });
            let object = format!("export {name}");
            match made {
                Ok(volume) => {
                    self.causes().exports.remove(name);
                    tracing::info!(event = "export_made", object);
                    self.note_array_of(wanted, &volume);
                }
                Err(error) => {
                    tracing::error!(event = "export_missing", object, %error);
                    self.causes().exports.insert(name.clone(), error.message);
                }
            }
        }
    }
}

impl Control {
    /// An engine before this one did not note of which array the volume of an export is.
    fn note_array_of(&self, wanted: &WantedExport, volume: &VolumeView) {
        if wanted.array_uuid.is_some() {
            return;
        }
        let array_uuid = self.uuid_of_array(&volume.array);
        let noted = WantedExport {
            array_uuid,
            ..wanted.clone()
        };
        say(self.wanted.apply(&[Change::Export(Box::new(noted))]));
    }
}

/// The volume that an export is wanted of.
pub(super) fn volume_of(
    wanted: &WantedExport,
    volumes: &[VolumeView],
    arrays: &[ArrayView],
) -> Answer<VolumeView> {
    let name = &wanted.create.volume;
    let refuse = |kind, text| EngineError::new(kind, format!("volume {name}"), text);
    let is_its = |volume: &&VolumeView| {
        let array = arrays.iter().find(|array| array.name == volume.array);
        let uuid = array.map(|array| array.uuid);
        wanted.serves(WantedVolume {
            array: uuid,
            uuid: volume.uuid,
        })
    };
    let mut own: Vec<VolumeView> = volumes.iter().filter(is_its).cloned().collect();
    if let [one, other, ..] = &own[..] {
        let text = format!(
            "arrays {} and {} have volumes of one uuid, and which of them its guest has used is \
             not known; take the drives of the other one away, or remove the export and make it \
             anew",
            one.array, other.array
        );
        return Err(refuse(ErrorKind::Exists, text));
    }
    let text = || format!("volume {name} is on no started array");
    own.pop().ok_or_else(|| refuse(ErrorKind::NotFound, text()))
}

/// What could not be recorded is done all the same: it is recorded by the next start, or look.
fn say(recorded: Answer<()>) {
    if let Err(error) = recorded {
        tracing::error!(event = "wanted_state_unwritable", %error);
    }
}
