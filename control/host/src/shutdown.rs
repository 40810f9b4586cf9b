//! The engine ends: exports first, all at once, then arrays are marked clean, all at once as well.

use std::sync::Arc;
use std::time::Duration;

use control::{Answer, ErrorKind};
use engine::StartError;
use units::{ArrayIndex, Clock, MonotonicClock};
use uuid::Uuid;

use crate::Host;
use crate::apart::apart;
use crate::error::{error, of_start};
use crate::state::ArrayEntry;

/// How long a shutdown waits for exports of an array that waits for its members.
pub(crate) const HOLD_PATIENCE: Duration = Duration::from_secs(2);

impl Host {
    pub(crate) fn do_shutdown(&self) -> Answer<()> {
        self.stop_copies();
        let arrays = self.do_arrays();
        let waiting = arrays.iter().filter(|array| array.hold.is_some());
        let waiting: Vec<(String, Uuid)> = waiting.map(|a| (a.name.clone(), a.uuid)).collect();
        let waits = |array: Uuid| waiting.iter().any(|(_, uuid)| *uuid == array);
        let mut first = self.remove_exports(waits);
        let arrays: Vec<(String, ArrayIndex, Uuid)> = {
            let state = self.state();
            // Requests that are not answered are left to the next engine, and so is what was begun
            // on members that an array still waits for, be its requests answered or not. To stop it
            // would forget the one and answer the others with an error.
            let ends = |a: &ArrayEntry| {
                let ending = state.ending.values().any(|ending| ending.array == a.uuid);
                ending || waits(a.uuid)
            };
            let running = state
                .arrays
                .values()
                .filter(|a| a.serving.has_shards() && !ends(a));
            running
                .map(|array| (array.name.clone(), array.index, array.uuid))
                .collect()
        };
        self.end_zeroing(None);
        // Of those that do not end in order nobody can be asked afterwards.
        self.look_who_is_in_sync();
        first = first.and(self.stop_arrays(arrays));
        for (name, _) in waiting {
            tracing::error!(
                event = "array_not_clean",
                array = name,
                "it waits for members and comes up dirty: what was begun on them is done by the next engine"
            );
            let text = "it waits for members, so it is not clean";
            let waits = error(ErrorKind::Degraded, format!("array {name}"), text);
            first = first.and(Err(waits.next("start the engine again when they are back")));
        }
        self.state().drives.clear();
        self.engine.stop();
        first
    }

    /// Stops arrays and marks them clean, all at once: one that hangs keeps no other from it.
    fn stop_arrays(&self, arrays: Vec<(String, ArrayIndex, Uuid)>) -> Answer<()> {
        let stop = |(_, index, uuid): &(String, ArrayIndex, Uuid)| {
            let (index, uuid) = (*index, *uuid);
            let (host, engine) = (self.myself.clone(), Arc::clone(&self.engine));
            move || {
                let last = engine.stop_array(index)?;
                if let Some(host) = host.upgrade() {
                    last.inspect(|config| host.note_membership(config));
                    host.end_begun(uuid, None);
                }
                Ok(())
            }
        };
        // Each says by itself that it is late: once for its record, and once for its requests.
        let stopped = apart(
            3 * self.engine.patience(),
            arrays.iter().map(stop).collect(),
        );
        let mut first = Ok(());
        for ((name, ..), stopped) in arrays.iter().zip(stopped) {
            if let Err(start) = stopped.unwrap_or(Err(StartError::Late)) {
                tracing::error!(event = "array_not_clean", array = name, error = %start, "comes up dirty");
                first = first.and(Err(of_start(format!("array {name}"), &start)));
            }
        }
        first
    }

    /// Ends all exports. One of an array that waits for its members is not waited for as long as
    /// others are: what it has taken is left to the next engine, as after a kill.
    fn remove_exports(&self, waits: impl Fn(Uuid) -> bool) -> Answer<()> {
        let exports: Vec<(String, Uuid)> = {
            let state = self.state();
            let exports = state.exports.iter();
            exports
                .map(|(name, entry)| (name.clone(), entry.array))
                .collect()
        };
        // All are asked before one is waited for: whoever ends this process when it takes too long
        // does not ask how many drives hang.
        let removals: Vec<_> = exports
            .into_iter()
            .map(|(name, array)| (self.begin_removal(&name), waits(array)))
            .collect();
        let begun = MonotonicClock.now();
        let long = self.engine.patience();
        let short = long.min(HOLD_PATIENCE);
        let mut first = Ok(());
        for (removal, waits) in removals {
            // An array whose export still waits for a drive comes up dirty; the others do not.
            let patience = if waits { short } else { long };
            let left = patience.saturating_sub(MonotonicClock.now().since(begun));
            first = first.and(removal.and_then(|removal| removal.wait(left)));
        }
        first
    }
}
