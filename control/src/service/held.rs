//! Exports whose requests crashed the engine again and again: held back at a start, so that all
//! others are served, until somebody lets them go on or another version of the program starts.
//!
//! An export that is held back is wanted and not made: nobody listens on its socket, so its
//! front-end keeps trying to connect, and its guest waits without an error.

use std::path::Path;

use super::Control;
use crate::crashes::{self, CrashLog, HeldBack, Suspect};
use crate::metrics::{Metric, Samples};
use crate::name;
use crate::view::{ExportState, ExportView};
use crate::wanted::{Change, Verdicts, Wanted, WantedExport, WantedState, WantedVolume};
use crate::{Answer, EngineError, ErrorKind};

/// Looks at how earlier processes ended, decides who is held back, and lets crashes of this one be
/// noted. Comes before the engine is built. Nothing that is found or fails here is fatal.
pub fn begin(directory: &Path, wanted: &Wanted) {
    let unusable =
        |error: &dyn std::fmt::Display| tracing::error!(event = "crashes_not_kept", %error);
    let found = crashes::read(directory).unwrap_or_else(|error| {
        unusable(&error);
        Vec::new()
    });
    let kept = decide(&found, crashes::now_s(), wanted).unwrap_or_else(|error| {
        unusable(&error);
        found
    });
    match CrashLog::begin(directory, &kept) {
        Ok(log) => crashes::arm(log),
        Err(error) => unusable(&error),
    }
}

/// Holds back who is from now on; gives back the crashes that still count for nobody. An error when
/// that could not be recorded, and holds for this process only: then all crashes are to be kept.
pub(super) fn decide(
    found: &[crashes::Crash],
    now_s: u64,
    wanted: &Wanted,
) -> Answer<Vec<crashes::Crash>> {
    let version = env!("CARGO_PKG_VERSION");
    let (verdicts, kept) = crashes::judge(found, now_s, version);
    let state = wanted.state();
    let mut changes = Verdicts::new();
    for (uuid, held) in state
        .held
        .iter()
        .filter(|(_, held)| held.version != version)
    {
        tracing::info!(event = "export_released", object = %held.suspect, by = version,
            "another version of the program tries it again");
        changes.insert(*uuid, None);
    }
    for crash in &kept {
        tracing::warn!(event = "crashed_before", object = %crash.suspect, at_s = crash.at_s,
            "{}", crash.message);
    }
    for held in verdicts {
        let suspect = held.suspect;
        let known = match suspect {
            Suspect::Export(uuid) => state.exports.values().any(|e| e.create.uuid == uuid),
            Suspect::Array(_) => true,
        };
        if known {
            tracing::error!(event = "held_back", object = %suspect, "{held}");
            changes.insert(suspect.uuid(), Some(held));
        }
    }
    wanted.hold_back(changes)?;
    Ok(kept)
}

impl Control {
    /// Turns an array that is held back into its exports, one by one, so that each can be tried
    /// again by itself. An array that is not there waits.
    pub(super) fn hold_back_by_array(&self, state: &mut WantedState) -> Answer<()> {
        let suspected = |(_, held): &(_, &HeldBack)| matches!(held.suspect, Suspect::Array(_));
        if !state.held.iter().any(|held| suspected(&held)) {
            return Ok(());
        }
        let (arrays, volumes) = (self.engine.arrays(), self.engine.volumes());
        let mut changes = Verdicts::new();
        for (uuid, held) in state.held.iter().filter(suspected) {
            if state
                .exports
                .values()
                .any(|export| export.create.uuid == *uuid)
            {
                continue;
            }
            let Some(array) = arrays.iter().find(|array| array.uuid == *uuid) else {
                continue;
            };
            let on_it = |export: &&WantedExport| {
                let mut volumes = volumes.iter().filter(|v| v.array == array.name);
                volumes.any(|found| {
                    export.serves(WantedVolume {
                        array: Some(array.uuid),
                        uuid: found.uuid,
                    })
                })
            };
            for export in state.exports.values().filter(on_it) {
                let object = format_args!("export {}", export.create.name);
                tracing::error!(event = "held_back", object = %object, "{held}");
                changes.insert(export.create.uuid, Some(held.clone()));
            }
            changes.insert(*uuid, None);
        }
        let recorded = self.wanted.hold_back(changes);
        state.held = self.wanted.state().held;
        recorded
    }

    /// Serves an export again that is held back.
    ///
    /// # Errors
    /// `Invalid` when it is not held back; as [`crate::Engine::create_export`] when it cannot be
    /// served for another reason: it is not held back any more even so.
    pub fn resume_export(&self, key: &str) -> Answer<ExportView> {
        let _changing = self.change()?;
        let export = self.export(key)?;
        let object = name::object::<ExportView>(&export.name);
        if !self.wanted.state().held.contains_key(&export.uuid) {
            let next = format!("`garboard export show {}` tells how it is", export.name);
            return Err(
                EngineError::new(ErrorKind::Invalid, object, "it is not held back").next(next),
            );
        }
        self.wanted.apply(&[Change::Release(export.uuid)])?;
        tracing::info!(event = "export_released", object, by = "command");
        self.make_exports(&self.wanted.state());
        self.made_export(&export.name).map_err(|mut error| {
            error.message = format!("it is not held back any more, but {}", error.message);
            error
        })
    }

    /// Refuses an export of a volume of which another one is held back: its guest has writes in
    /// flight that are still to be done.
    pub(super) fn refuse_beside_held(&self, object: &str, volume: WantedVolume) -> Answer<()> {
        let state = self.wanted.state();
        let mut others = state.exports.values();
        let held = others
            .find(|other| other.serves(volume) && state.held.contains_key(&other.create.uuid));
        let Some(held) = held else { return Ok(()) };
        let name = &held.create.name;
        let message = format!("export {name} of its volume is held back");
        let next = format!("`garboard export resume {name}` or `garboard export remove {name}`");
        Err(EngineError::new(ErrorKind::Busy, object, message).next(next))
    }

    /// Who is held back and why, for the status, in sentences.
    pub(super) fn held_warnings(exports: &[ExportView]) -> Vec<String> {
        let held = exports.iter().filter(|e| e.state == ExportState::Held);
        held.map(|export| {
            let cause = export.cause.as_deref().unwrap_or("no cause is known");
            format!(
                "export {} is {cause}; {}",
                export.name,
                way_out(&export.name)
            )
        })
        .collect()
    }

    /// Which exports are held back, for the metrics.
    pub(super) fn held_metric(&self) -> Option<Metric> {
        let exports = self.exports();
        let sample = |export: ExportView| {
            let held = if export.state == ExportState::Held {
                1.0
            } else {
                0.0
            };
            (vec![("export", export.name)], held)
        };
        Some(Metric {
            name: "export_held",
            help: "Whether the export is held back because its requests crashed the engine",
            samples: Samples::Gauges(exports.into_iter().map(sample).collect()),
        })
    }
}

/// What to do about an export that is held back.
pub(super) fn way_out(name: &str) -> String {
    format!(
        "upgrade the engine, or end the guest that sends it, then `garboard export resume {name}`"
    )
}
