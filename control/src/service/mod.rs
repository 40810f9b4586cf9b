//! The control path itself: every command as one blocking call over the engine and the wanted
//! state. HTTP, sockets and text are elsewhere.
//!
//! Calls that change something come one at a time (`changing`) and are never abandoned half-way:
//! the API runs each on its own thread to its end, even when the client hangs up. What may take
//! hours, zeroing what a volume gets, is done between two such calls.

mod arrays;
mod attention;
mod copies;
mod drives;
mod exports;
pub mod held;
mod imports;
mod restore;
mod returns;
mod spares;
mod tending;
mod told;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use units::limits::SPARE_GRACE;
use units::{Clock, Instant, MonotonicClock};
use uuid::Uuid;

use crate::membership::Membership;
use crate::metrics::Metric;
use crate::view::{ArrayView, Count, JobKind, JobState, JobView, StatusView};
use crate::wanted::{Change, Wanted};
use crate::{Answer, Engine, EngineError, ErrorKind};

/// The control path over one engine.
pub struct Control {
    engine: Arc<dyn Engine>,
    wanted: Wanted,
    runtime_dir: PathBuf,
    /// Held by who changes something; whether the engine has ended.
    changing: Mutex<Ended>,
    /// Held by who records memberships: not `changing`, which a call may hold for minutes.
    ///
    /// Arrays of which it was done since they were started.
    remembering: Mutex<BTreeSet<Uuid>>,
    causes: Mutex<Causes>,
    tending: Mutex<tending::Tending>,
    returns: Mutex<returns::Returns>,
    spare_grace: Duration,
    /// Arrays that wait for members that may only be late.
    waiting: Mutex<restore::Waiting>,
    begun: Instant,
}

/// Whether there is nothing to be changed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

/// Why wanted things are not there, by name.
#[derive(Debug, Default)]
struct Causes {
    drives: BTreeMap<String, String>,
    /// Drives that come and go too often to be taken back by themselves.
    flapping: BTreeSet<Uuid>,
    exports: BTreeMap<String, String>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("runtime_dir", &self.runtime_dir)
            .finish_non_exhaustive()
    }
}

impl Control {
    /// The control path over `engine`, with its wanted state; default sockets of exports go
    /// below `runtime_dir`. Call [`Control::restore`] before anything else.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, wanted: Wanted, runtime_dir: PathBuf) -> Control {
        Control {
            engine,
            wanted,
            runtime_dir,
            changing: Mutex::new(Ended::No),
            remembering: Mutex::default(),
            causes: Mutex::new(Causes::default()),
            tending: Mutex::default(),
            returns: Mutex::default(),
            spare_grace: SPARE_GRACE,
            waiting: Mutex::default(),
            begun: MonotonicClock.now(),
        }
    }

    /// Jobs, by id.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobView> {
        self.engine.jobs()
    }

    /// One job.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn job(&self, id: u64) -> Answer<JobView> {
        self.engine
            .jobs()
            .into_iter()
            .find(|job| job.id == id)
            .ok_or_else(|| {
                EngineError::new(
                    ErrorKind::NotFound,
                    format!("job {id}"),
                    "there is no such job",
                )
                .next("`garboard job list` shows what is there")
            })
    }

    /// Asks a job to end early.
    ///
    /// # Errors
    /// As [`Engine::cancel_job`].
    pub fn cancel_job(&self, id: u64) -> Answer<JobView> {
        let _changing = self.change()?;
        self.job(id)?;
        self.engine.cancel_job(id)
    }

    /// Everything at a glance.
    #[must_use]
    pub fn status(&self) -> StatusView {
        let uptime = MonotonicClock.now().since(self.begun);
        let jobs = self.engine.jobs();
        let stopped = self.wanted.state().stopped;
        let (drives, arrays, exports) = (self.drives(), self.arrays(), self.exports());
        let of_array =
            |array: &ArrayView| attention::of_array(array, stopped.contains(&array.uuid));
        let mut engine = self.engine.status();
        engine.warnings.extend(Control::held_warnings(&exports));
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            uptime_s: uptime.as_secs(),
            drives: count(&drives, |drive| attention::of_drive(drive).is_some()),
            arrays: count(&arrays, |array| of_array(array).is_some()),
            volumes: count(&self.volumes(), |_| false),
            exports: count(&exports, |export| attention::of_export(export).is_some()),
            jobs_running: count(&jobs, |job| job.state == JobState::Running).attention,
            attention: attention::told((&arrays, of_array), &drives, &exports),
            engine,
        }
    }

    /// Counters, gauges and histograms of the engine.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.engine.metrics();
        metrics.extend(self.held_metric());
        metrics
    }

    /// Lets calls end early that may take hours: the engine is about to end.
    pub fn end_long_calls(&self) {
        let jobs = self.engine.jobs().into_iter();
        let long = jobs.filter(|job| job.kind == JobKind::Zero && job.state == JobState::Running);
        for job in long {
            if let Err(error) = self.engine.cancel_job(job.id) {
                tracing::debug!(event = "job_not_cancelled", job = job.id, %error);
            }
        }
    }

    /// Finishes, marks the arrays clean, lets go of the drives. Nobody changes anything afterwards.
    ///
    /// # Errors
    /// As [`Engine::shutdown`].
    pub fn shutdown(&self) -> Answer<()> {
        let mut changing = self.change()?;
        *changing = Ended::Yes;
        self.finish_removals();
        let ended = self.engine.shutdown();
        self.record_memberships_or_say();
        ended
    }

    /// Waits until no other call changes anything. A panic of another call ends the process
    /// (see `serve`), so a poisoned lock only means that a test goes on after one.
    ///
    /// # Errors
    /// `Unreachable` when the engine has ended meanwhile: there is nothing left to be changed.
    fn change(&self) -> Answer<MutexGuard<'_, Ended>> {
        let changing = self.changing.lock();
        let changing = changing.unwrap_or_else(PoisonError::into_inner);
        match *changing {
            Ended::No => Ok(changing),
            Ended::Yes => {
                let text = "it has been stopped, and nothing was done";
                let refused = EngineError::new(ErrorKind::Unreachable, "engine", text);
                Err(refused.next("start it, and ask again"))
            }
        }
    }

    fn causes(&self) -> MutexGuard<'_, Causes> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what the engine's drives are told by now; members change their identity.
    fn record_drives(&self) -> Answer<()> {
        let state = self.wanted.state();
        let arrays = self.engine.arrays();
        let mut changes = Vec::new();
        for drive in self.engine.drives() {
            let known = drives::to_know(&drive, &arrays);
            if state.drives.get(&known.name) != Some(&known) {
                changes.push(Change::Drive(known));
            }
        }
        self.wanted.apply(&changes)
    }

    /// Records who is in sync, and what starts have told.
    fn record_memberships_or_say(&self) {
        let recorded = [self.record_memberships(), self.record_told()];
        for error in recorded.into_iter().filter_map(Result::err) {
            tracing::error!(event = "memberships_not_recorded", %error);
        }
    }

    /// Records who is in sync now in arrays where that has changed. Of an array that runs with an
    /// older record than is remembered, as after a start by force, the new story counts.
    fn record_memberships(&self) -> Answer<()> {
        let mut told_since = self.remember();
        let known = self.wanted.state().memberships;
        let mut changes = Vec::new();
        for (array, now) in self.engine.memberships() {
            let is_told =
                |told: &Membership| told.in_sync == now.in_sync && told.update <= now.update;
            // Once for each start: it may have been one by force, from an older record.
            let is_new = !told_since.contains(&array);
            if is_new || !known.get(&array).is_some_and(is_told) {
                changes.push(Change::Membership(array, now));
            }
        }
        self.wanted.apply(&changes)?;
        for change in changes {
            if let Change::Membership(array, _) = change {
                told_since.insert(array);
            }
        }
        Ok(())
    }

    /// Waits until nobody else records who is in sync.
    fn remember(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        let remembering = self.remembering.lock();
        remembering.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the drives' identities after something else succeeded: the engine's part is done
    /// and true on the drives, so a failure here is said, and is not the caller's error.
    fn record_drives_or_say(&self) {
        if let Err(error) = self.record_drives() {
            tracing::error!(event = "wanted_state_unwritable", %error);
        }
    }
}

fn count<T>(objects: &[T], attention: impl Fn(&T) -> bool) -> Count {
    let number = |count: usize| u32::try_from(count).expect("limits.rs bounds every kind");
    Count {
        total: number(objects.len()),
        attention: number(objects.iter().filter(|object| attention(object)).count()),
    }
}

/// A refusal of a call that contradicts itself.
fn invalid(object: impl Into<String>, message: impl Into<String>) -> EngineError {
    EngineError::new(ErrorKind::Invalid, object, message).next("give one that fits")
}

#[cfg(test)]
mod tests;
