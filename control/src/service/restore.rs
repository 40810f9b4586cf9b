//! From the wanted state to the engine: at a start, and when something comes back.
//!
//! What is missing is reported and not fatal; whatever can serve, serves.

use std::sync::atomic::Ordering;

use units::limits::START_GRACE;
use units::{Clock, Instant, MonotonicClock};

use super::Control;
use crate::request::DriveKnown;
use crate::view::{ArrayState, ArrayView, DriveView, MemberState};
use crate::wanted::WantedState;
use crate::{Answer, EngineError, ErrorKind};

/// Which arrays are started without being told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Those that can serve.
    Degraded,
    /// Those that lack no drive: drives come back one after another, and one that comes after the
    /// start has to be rebuilt.
    Complete,
}

impl Control {
    /// Opens the wanted drives, assembles and starts the arrays, sets the limits, makes the
    /// exports. May be called again when drives came back.
    ///
    /// # Errors
    /// None: guests are served by what can be read and opened, and the rest is told.
    pub fn restore(&self) -> Answer<()> {
        let _changing = self.change();
        self.bring_back(Start::Degraded);
        Ok(())
    }

    /// [`Control::restore`] for who holds `changing`.
    pub(super) fn bring_back(&self, start: Start) {
        let mut state = self.wanted.state();
        self.open_drives(&state);
        self.engine.recall(state.memberships.clone());
        self.engine.assemble();
        self.start_arrays(&state, start);
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
        for known in state.drives.values() {
            if open.iter().any(|drive| drive.name == known.name) {
                continue;
            }
            match self.engine.open_drive(known) {
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
            let lacks = array
                .members
                .iter()
                .any(|m| m.state == MemberState::Missing);
            if lacks && start == Start::Complete {
                continue;
            }
            let object = format!("array {}", array.name);
            if !array.torn_without.is_empty() && self.may_still_come(MonotonicClock.now()) {
                tracing::warn!(
                    event = "array_waits",
                    object,
                    seconds = START_GRACE.as_secs(),
                    "for members that were in sync when it was not stopped cleanly"
                );
                continue;
            }
            match self.engine.start_array(&array.name, false) {
                Ok(array) => tracing::info!(event = "array_started", object, state = ?array.state),
                Err(error) => tracing::error!(event = "array_not_started", object, %error),
            }
        }
    }

    /// Whether the engine runs for so short a time that drives may only be late.
    fn may_still_come(&self, now: Instant) -> bool {
        let is_over = self.grace_is_over.load(Ordering::Relaxed);
        !is_over && now.since(self.begun) < START_GRACE
    }

    /// Starts the arrays that waited in vain for members.
    ///
    /// # Errors
    /// None: what does not start is told.
    pub fn tend_starts(&self, now: Instant) -> Answer<()> {
        let is_over = !self.may_still_come(now);
        if !is_over || self.grace_is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _changing = self.change();
        if self.tending().ended || self.grace_is_over.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let stopped = self.wanted.state().stopped;
        let waits =
            |array: &ArrayView| !array.torn_without.is_empty() && !stopped.contains(&array.uuid);
        if self.engine.arrays().iter().any(waits) {
            self.bring_back(Start::Degraded);
        }
        Ok(())
    }

    fn set_limits(&self, state: &WantedState) {
        for volume in self.engine.volumes() {
            let Some(limit) = state.limits.get(&volume.uuid) else {
                continue;
            };
            if volume.limit == *limit {
                continue;
            }
            if let Err(error) = self.engine.limit_volume(volume.uuid, limit) {
                let object = format!("volume {}", volume.name);
                tracing::error!(event = "limit_not_set", object, %error);
            }
        }
    }

    pub(super) fn make_exports(&self, state: &WantedState) {
        let volumes = self.engine.volumes();
        let there = self.engine.exports();
        for (name, wanted) in &state.exports {
            if there.iter().any(|export| export.name == *name)
                || state.held.contains_key(&wanted.create.uuid)
            {
                continue;
            }
            let volume = volumes
                .iter()
                .find(|volume| volume.uuid == wanted.volume_uuid);
            let made = match volume {
                // The volume's name may have changed since; its uuid never does.
                Some(volume) => {
                    let mut create = wanted.create.clone();
                    create.volume.clone_from(&volume.name);
                    let made = self.engine.create_export(&create, volume.uuid);
                    made.map(|_| ())
                }
                None => Err(EngineError::new(
                    ErrorKind::NotFound,
                    format!("volume {}", wanted.create.volume),
                    format!("volume {} is on no started array", wanted.create.volume),
                )),
            };
            let object = format!("export {name}");
            match made {
                Ok(()) => {
                    self.causes().exports.remove(name);
                    tracing::info!(event = "export_made", object);
                }
                Err(error) => {
                    tracing::error!(event = "export_missing", object, %error);
                    self.causes().exports.insert(name.clone(), error.message);
                }
            }
        }
    }
}

/// What is kept of a drive.
pub(super) fn known(drive: &DriveView) -> DriveKnown {
    DriveKnown {
        name: drive.name.clone(),
        uuid: drive.uuid,
        spec: drive.spec.kept(),
        identity: drive.identity.clone(),
    }
}

/// What could not be recorded is done all the same: it is recorded by the next start, or look.
fn say(recorded: Answer<()>) {
    if let Err(error) = recorded {
        tracing::error!(event = "wanted_state_unwritable", %error);
    }
}
