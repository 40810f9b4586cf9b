//! Drives that come back by themselves: what the host has taken away is closed, and what is wanted
//! and not open is looked for, again and again. A drive that is back is opened as at a start; if it
//! was a member and has only been away, only what it has missed is filled.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use units::Instant;
use units::limits::{DRIVE_LOOK, DRIVE_RETURNS_MAX, DRIVE_RETURNS_WITHIN};
use uuid::Uuid;

use super::Control;
use crate::request::DriveKnown;
use crate::{Answer, EngineError};

/// What is remembered between two looks; lost with the process.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// When drives came back, within [`DRIVE_RETURNS_WITHIN`].
    times: BTreeMap<Uuid, Vec<Instant>>,
    /// When drives that arrays wait for were refused last.
    refused: BTreeMap<Uuid, Instant>,
}

impl Returns {
    /// Whether it was refused a moment ago, so that nobody bothers it again already.
    fn was_refused(&self, drive: Uuid, now: Instant) -> bool {
        let last = self.refused.get(&drive);
        last.is_some_and(|&last| now.since(last) < DRIVE_LOOK)
    }

    /// Whether a drive came back so often lately that somebody should look at it.
    fn flaps(&mut self, drive: Uuid, now: Instant) -> bool {
        let times = self.times.entry(drive).or_default();
        times.retain(|&time| now.since(time) < DRIVE_RETURNS_WITHIN);
        times.len() >= DRIVE_RETURNS_MAX
    }
}

impl Control {
    /// One look for drives that have gone, and for those that are back.
    ///
    /// # Errors
    /// `Internal` when the wanted state cannot be written.
    pub fn tend_drives(&self, now: Instant) -> Answer<()> {
        self.close_gone();
        for known in self.not_open()? {
            if self.causes().flapping.contains(&known.uuid) {
                continue;
            }
            // Before the lock is taken: a drive that is not well may take long to answer.
            if self.engine.is_back(&known) {
                self.take_back(&known, now)?;
            }
        }
        Ok(())
    }

    /// One look for drives that arrays wait for and that come back as other devices. However often
    /// they go away: nobody else has what they hold.
    ///
    /// # Errors
    /// None: what goes wrong is told, and tried again.
    pub fn tend_awaited(&self, now: Instant) -> Answer<()> {
        let awaited = self.engine.awaited();
        if awaited.is_empty() {
            return Ok(());
        }
        let wanted = self.wanted.state().drives.into_values();
        let mut back: Vec<DriveKnown> = wanted.collect();
        back.retain(|known| awaited.contains(&known.name) && !known.identity.is_empty());
        back.retain(|known| !self.returns().was_refused(known.uuid, now));
        back.retain(|known| self.engine.is_back(known));
        if back.is_empty() {
            return Ok(());
        }
        let Ok(_changing) = self.change() else {
            return Ok(());
        };
        // All at once: the array waits but a moment for the others when one is back.
        for known in back {
            if let Err(error) = self.reopen_awaited(&known) {
                self.note_not_taken_back(&known, &error);
                self.returns().refused.insert(known.uuid, now);
            }
        }
        Ok(())
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_gone(&self) {
        let Ok(_changing) = self.change() else {
            return;
        };
        for (name, cause) in self.engine.close_gone() {
            tracing::warn!(event = "drive_gone", object = %format_args!("drive {name}"), cause,
                "it is taken back when it is there again");
            self.causes().drives.insert(name, cause);
        }
    }

    /// What is wanted, not open, and known when it is seen.
    fn not_open(&self) -> Answer<Vec<DriveKnown>> {
        let open = self.engine.drives();
        let wanted = self.wanted.state().drives.into_values();
        let gone = wanted.filter(|known| {
            let is_open = open.iter().any(|drive| drive.name == known.name);
            !is_open && !known.identity.is_empty()
        });
        Ok(gone.collect())
    }

    fn take_back(&self, known: &DriveKnown, now: Instant) -> Answer<()> {
        let Ok(_changing) = self.change() else {
            return Ok(());
        };
        // Somebody may have been faster.
        let still = self.not_open()?.iter().any(|gone| gone == known);
        if !still {
            return Ok(());
        }
        let object = format!("drive {}", known.name);
        if self.returns().flaps(known.uuid, now) {
            let cause = format!(
                "it went away and came back {DRIVE_RETURNS_MAX} times within a day, and is not taken \
                 back by itself any more: look at it, then `garboard drive add {} --name {}`",
                known.spec, known.name
            );
            tracing::error!(event = "drive_flaps", object, cause);
            let mut causes = self.causes();
            causes.flapping.insert(known.uuid);
            causes.drives.insert(known.name.clone(), cause);
            return Ok(());
        }
        match self.reopen(known) {
            Ok(_) => {
                let mut returns = self.returns();
                returns.times.entry(known.uuid).or_default().push(now);
            }
            Err(error) => self.note_not_taken_back(known, &error),
        }
        Ok(())
    }

    fn note_not_taken_back(&self, known: &DriveKnown, error: &EngineError) {
        let said = error.message.clone();
        let before = self
            .causes()
            .drives
            .insert(known.name.clone(), said.clone());
        if before.as_ref() != Some(&said) {
            let object = format!("drive {}", known.name);
            tracing::warn!(event = "drive_not_taken_back", object, spec = %known.spec, %error);
        }
    }
}
