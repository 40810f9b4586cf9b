//! Jobs: the background passes of arrays, as somebody who waits for one sees them.

use std::collections::BTreeSet;

use array::{Command, MapState, Pass, PassState};
use control::request::BackgroundKind;
use control::view::{JobKind, JobState, JobView};
use control::{Answer, EngineError, ErrorKind};
use engine::ArrayState;
use units::{ArrayIndex, Clock, MemberIndex, MonotonicClock};
use uuid::Uuid;

use crate::Host;
use crate::error::{error, not_found};
use crate::state::{JobEntry, State};

/// Finished jobs that are kept for whoever waits for them.
const FINISHED_MAX: usize = 100;
/// Why a job does not run.
const STOPPED: &str = "its array is stopped; it goes on when that is started";

impl Host {
    /// Brings the jobs up to date with the passes of the arrays.
    pub(crate) fn refresh_jobs(&self) {
        self.refresh_copies();
        let mut running = self.running_jobs();
        let arrays: Vec<(ArrayIndex, Uuid, String, bool)> = {
            let state = self.state();
            let arrays = state.arrays.values();
            arrays
                .map(|a| (a.index, a.uuid, a.name.clone(), a.initializing))
                .collect()
        };
        let mut served = Vec::new();
        for (index, uuid, name, initializing) in arrays {
            if let Some(array) = self.engine.array_state(index) {
                served.push(uuid);
                self.show_passes(&mut running, (uuid, &name, initializing), &array);
            }
        }
        self.pause_jobs_but(&running, &served);
    }

    /// Jobs that run now. What is seen of arrays from here on ends these and no others: before it
    /// is shown, a command on another thread may have begun the next pass, and shown that.
    pub(crate) fn running_jobs(&self) -> BTreeSet<u64> {
        let state = self.state();
        let jobs = state.jobs.iter();
        let running = jobs.filter(|(_, job)| job.view.state == JobState::Running);
        running.map(|(&id, _)| id).collect()
    }

    /// Brings the jobs of an array up to date that was seen like this while these were `running`.
    pub(crate) fn show_passes(
        &self,
        running: &mut BTreeSet<u64>,
        (uuid, name, initializing): (Uuid, &str, bool),
        array: &ArrayState,
    ) {
        running.extend(self.resume_jobs(uuid));
        self.refresh_scrub(uuid, name, array);
        let Some(pass) = array.pass else {
            self.finish_jobs(running, uuid);
            return;
        };
        let stripe = array.map.geometry.stripe_bytes();
        let kind = match pass.pass {
            Pass::Resync if initializing => JobKind::Initialize,
            Pass::Resync => JobKind::Resync,
            Pass::Rebuild | Pass::Scrub => JobKind::Rebuild,
        };
        let mut state = self.state();
        end_other_kinds(&mut state, running, (uuid, kind));
        let job = open_job(&mut state, uuid, name, kind);
        let now = MonotonicClock.now();
        let job = state.jobs.get_mut(&job).expect("opened just now");
        // A rebuild of members that return visits what they have missed only.
        job.view.total_bytes = pass.to_visit * stripe;
        let done = (pass.to_visit - pass.left) * stripe;
        job.measure(now, done);
        (job.view.state, job.view.cause) = match pass.state {
            PassState::Running => (JobState::Running, None),
            PassState::Paused => (JobState::Cancelled, None),
            PassState::Stopped => {
                let cause = "a stripe could not be read or written; see the log";
                (JobState::Failed, Some(cause.to_owned()))
            }
        };
    }

    fn finish_jobs(&self, running: &BTreeSet<u64>, array: Uuid) {
        let mut state = self.state();
        let runs = |job: &&mut JobEntry| {
            let runs = job.view.state == JobState::Running && running.contains(&job.view.id);
            runs && job.array == array && is_pass(job.view.kind)
        };
        for job in state.jobs.values_mut().filter(runs) {
            job.view.state = JobState::Done;
            job.view.done_bytes = job.view.total_bytes;
            job.view.time_left_s = Some(0);
        }
        for entry in state
            .arrays
            .values_mut()
            .filter(|entry| entry.uuid == array)
        {
            entry.initializing = false;
        }
        let finished: Vec<u64> = state
            .jobs
            .values()
            .filter(|job| job.view.state != JobState::Running)
            .map(|job| job.view.id)
            .collect();
        for id in finished.iter().rev().skip(FINISHED_MAX) {
            state.jobs.remove(id);
        }
    }

    /// Nobody works on other arrays than these, and whoever waits for that is told.
    pub(crate) fn pause_jobs_but(&self, running: &BTreeSet<u64>, served: &[Uuid]) {
        for job in self.state().jobs.values_mut() {
            let runs = job.view.state == JobState::Running && running.contains(&job.view.id);
            let ends_itself = matches!(job.view.kind, JobKind::Copy | JobKind::Zero);
            if runs && !ends_itself && !served.contains(&job.array) {
                job.view.state = JobState::Cancelled;
                job.view.cause = Some(STOPPED.to_owned());
            }
        }
    }

    /// The array is served again: what was under way goes on, or is through by now. Gives which
    /// that is.
    fn resume_jobs(&self, array: Uuid) -> Vec<u64> {
        let mut resumed = Vec::new();
        for job in self.state().jobs.values_mut() {
            if job.array == array && job.view.cause.as_deref() == Some(STOPPED) {
                (job.view.state, job.view.cause) = (JobState::Running, None);
                resumed.push(job.view.id);
            }
        }
        resumed
    }

    pub(crate) fn do_jobs(&self) -> Vec<JobView> {
        self.refresh_jobs();
        self.state()
            .jobs
            .values()
            .map(|job| job.view.clone())
            .collect()
    }

    pub(crate) fn do_start_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        let object = format!("array {name}");
        let (index, uuid) = self.running(name)?;
        let array = self
            .engine
            .array_state(index)
            .ok_or_else(|| not_found("array", name))?;
        let refused = |change| self.of_change(object.clone(), (name, index), &change);
        if kind == BackgroundKind::Resync && array.map.geometry.parity() == 0 {
            let text = "it has no parity to resync";
            return Err(error(ErrorKind::Invalid, &object, text).next("choose another array"));
        }
        let due = array.pass.map(|pass| pass.pass);
        match (kind, due) {
            (BackgroundKind::Rebuild, Some(Pass::Rebuild))
            | (BackgroundKind::Resync, Some(Pass::Resync)) => {}
            (_, Some(Pass::Scrub)) => unreachable!("a scrub is never due before others"),
            (BackgroundKind::Resync, None) => {
                self.refuse_waiting(&object, (name, index), None)?;
                refuse_distrust(&object, name, &array)?;
                self.engine
                    .change(index, Command::Resync)
                    .map_err(refused)?;
            }
            (BackgroundKind::Resync, Some(Pass::Rebuild)) => {
                return Err(
                    error(ErrorKind::Busy, &object, "a rebuild runs").next("wait for it first")
                );
            }
            (BackgroundKind::Rebuild, Some(Pass::Resync)) => {
                return Err(error(ErrorKind::Busy, &object, "a resync runs")
                    .next("a rebuild follows by itself"));
            }
            (BackgroundKind::Rebuild, None) => return Err(no_rebuild(&object, name, &array)),
        }
        self.engine
            .change(index, Command::Passes { run: true })
            .map_err(refused)?;
        let own = |job: &JobEntry| job.array == uuid && is_pass(job.view.kind) && !job.over;
        if due.is_some()
            && let Some(job) = self.state().jobs.values_mut().rfind(|job| own(job))
        {
            // It goes on; it may be through already, and then it is done, not stopped.
            job.view.state = JobState::Running;
        }
        self.refresh_jobs();
        let state = self.state();
        let own = |job: &&JobEntry| own(job);
        let job = state.jobs.values().rfind(own);
        job.map(|job| job.view.clone())
            .ok_or_else(|| not_found("job", name))
    }

    /// Whoever has come into a place is filled: a stop was about what ran then.
    pub(crate) fn fill(&self, index: ArrayIndex, array: Uuid) {
        let has_stopped = |job: &JobEntry| match job.view.state {
            JobState::Cancelled | JobState::Failed => job.array == array && is_pass(job.view.kind),
            JobState::Running | JobState::Done => false,
        };
        for job in self.state().jobs.values_mut() {
            job.over |= has_stopped(job);
        }
        if let Err(change) = self.engine.change(index, Command::Passes { run: true }) {
            tracing::warn!(event = "not_filled", array = %index, ?change, "no pass was begun");
        }
    }

    pub(crate) fn do_stop_background(&self, name: &str, kind: BackgroundKind) -> Answer<JobView> {
        let object = format!("array {name}");
        let (index, uuid) = self.running(name)?;
        self.refresh_jobs();
        let wanted = |job: &&JobEntry| {
            let same = match kind {
                BackgroundKind::Rebuild => job.view.kind == JobKind::Rebuild,
                BackgroundKind::Resync => {
                    matches!(job.view.kind, JobKind::Resync | JobKind::Initialize)
                }
            };
            job.array == uuid && same && job.view.state == JobState::Running
        };
        let id = self
            .state()
            .jobs
            .values()
            .find(wanted)
            .map(|job| job.view.id);
        let id = id.ok_or_else(|| {
            error(ErrorKind::NotFound, &object, "nothing of the kind runs")
                .next("`garboard job list` shows what runs")
        })?;
        self.engine
            .change(index, Command::Passes { run: false })
            .map_err(|change| self.of_change(object, (name, index), &change))?;
        let mut state = self.state();
        // It may have ended meanwhile, and so many others that it is not told of any more.
        let job = state.jobs.get_mut(&id);
        let job = job.ok_or_else(|| not_found("job", &id.to_string()))?;
        job.view.state = JobState::Cancelled;
        Ok(job.view.clone())
    }

    pub(crate) fn do_cancel_job(&self, id: u64) -> Answer<JobView> {
        self.refresh_jobs();
        let (kind, name) = {
            let state = self.state();
            let job = state
                .jobs
                .get(&id)
                .ok_or_else(|| not_found("job", &id.to_string()))?;
            if job.view.state != JobState::Running {
                return Err(error(ErrorKind::Busy, format!("job {id}"), "it has ended")
                    .next("`garboard job list` shows what runs"));
            }
            (job.view.kind, job.view.array.clone())
        };
        match kind {
            JobKind::Initialize => {
                let text =
                    "an initialization cannot be cancelled: parity would not agree with data";
                Err(error(ErrorKind::Busy, format!("job {id}"), text)
                    .next("wait for it: `garboard job wait`"))
            }
            JobKind::Rebuild => self.do_stop_background(&name, BackgroundKind::Rebuild),
            JobKind::Resync => self.do_stop_background(&name, BackgroundKind::Resync),
            JobKind::Scrub => self.do_stop_scrub(&name),
            JobKind::Zero => {
                self.cancel_zeroing(id);
                self.job_view(id)
            }
            JobKind::Copy => {
                self.stop_copy(id);
                let job = self.job_view(id)?;
                if job.state == JobState::Running {
                    let text = "the member is leaving already";
                    return Err(error(ErrorKind::Busy, format!("job {id}"), text)
                        .next("wait for it: `garboard job wait`"));
                }
                Ok(job)
            }
        }
    }

    fn job_view(&self, id: u64) -> Answer<JobView> {
        let job = self.state().jobs.get(&id).map(|job| job.view.clone());
        job.ok_or_else(|| not_found("job", &id.to_string()))
    }
}

/// The first member that is out.
fn out_of(array: &ArrayState) -> Option<MemberIndex> {
    let mut members = array.map.members.iter();
    let out = members.position(|member| member.state == MapState::Lost);
    out.map(MemberIndex::from_at)
}

/// Why no rebuild begins where no member is being filled.
fn no_rebuild(object: &str, name: &str, array: &ArrayState) -> EngineError {
    let (text, next) = match out_of(array) {
        Some(_) => (
            "no member waits for a rebuild",
            format!("`garboard array replace {name}` fills a place and begins it"),
        ),
        None => (
            "nothing is missing: each member holds all that it should",
            format!("`garboard array show {name}` tells its state"),
        ),
    };
    error(ErrorKind::Invalid, object, text).next(next)
}

/// Refuses to call parity untrusted that alone tells what a member had that is out.
fn refuse_distrust(object: &str, name: &str, array: &ArrayState) -> Answer<()> {
    let Some(out) = out_of(array) else {
        return Ok(());
    };
    let text = format!(
        "{out} is out, and only parity tells what it held: while a resync makes that anew, it could \
         not be relied on"
    );
    let next = format!(
        "`garboard array replace {name} --member {}` fills its place first",
        out.0
    );
    Err(error(ErrorKind::Unsafe, object, text).next(next))
}

/// The running job of this kind, opened if there is none.
pub(crate) fn open_job(state: &mut State, array: Uuid, name: &str, kind: JobKind) -> u64 {
    let running = |job: &&JobEntry| {
        // One that was stopped goes on; a scrub that goes on is another job.
        let goes_on = match job.view.state {
            JobState::Running => true,
            JobState::Cancelled | JobState::Failed => is_pass(kind),
            JobState::Done => false,
        };
        job.array == array && job.view.kind == kind && goes_on && !job.over
    };
    if let Some(job) = state.jobs.values().rfind(running) {
        return job.view.id;
    }
    new_job(state, array, name, kind)
}

/// Another job of this kind.
pub(crate) fn new_job(state: &mut State, array: Uuid, name: &str, kind: JobKind) -> u64 {
    // A pass or a scrub may have come a long way before, also with another engine.
    let seen = matches!(kind, JobKind::Copy | JobKind::Zero).then_some(0);
    state.next_job += 1;
    let id = state.next_job;
    let view = JobView {
        id,
        kind,
        array: name.to_owned(),
        state: JobState::Running,
        done_bytes: 0,
        total_bytes: 0,
        rate_bytes_per_second: None,
        time_left_s: None,
        cause: None,
    };
    state.jobs.insert(
        id,
        JobEntry {
            view,
            array,
            seen: (MonotonicClock.now(), seen),
            over: false,
        },
    );
    id
}

/// Whether it is a pass of the array that goes on where it was.
fn is_pass(kind: JobKind) -> bool {
    match kind {
        JobKind::Initialize | JobKind::Rebuild | JobKind::Resync => true,
        JobKind::Scrub | JobKind::Copy | JobKind::Zero => false,
    }
}

/// A pass of another kind has begun: that of this kind is through.
fn end_other_kinds(state: &mut State, running: &BTreeSet<u64>, (array, kind): (Uuid, JobKind)) {
    let others = state
        .jobs
        .values_mut()
        .filter(|job| job.array == array && job.view.kind != kind)
        .filter(|job| is_pass(job.view.kind) && running.contains(&job.view.id));
    for job in others.filter(|job| job.view.state == JobState::Running) {
        job.view.state = JobState::Done;
        job.view.done_bytes = job.view.total_bytes;
    }
}
