//! What a volume gets and others have left is zeroed, which may take hours: other commands come
//! meanwhile, and whoever ends the array, or its volume, ends this first.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use array::format::Superblock;
use control::engine::Begun;
use control::view::{JobKind, JobState, VolumeKey, VolumeView};
use control::{Answer, EngineError, ErrorKind};
use engine::{LateZeroes, ZeroError};
use units::{ArrayIndex, Clock, MonotonicClock, Size};
use uuid::Uuid;
use volume::{VolumeTable, Zeroing};

use crate::Host;
use crate::error::{error, late_and_taken_back, not_found, of_volume};
use crate::jobs::new_job;
use crate::state::{Serving, State};
use crate::undecided::About;
use crate::waiting::way_back;

/// Zeroed at once: nobody who wants this to end waits for more.
const PIECE_BYTES: u64 = if cfg!(test) { 4 << 20 } else { 64 << 20 };

/// A volume that is being made, or grows.
#[derive(Clone, Debug)]
pub(crate) struct ZeroingEntry {
    /// The name, the place and the uuid of its array.
    pub(crate) array: (String, ArrayIndex, Uuid),
    pub(crate) superblock: Superblock,
    /// Its name and uuid.
    pub(crate) volume: (String, Uuid),
    pub(crate) change: VolumeChange,
    pub(crate) zeroing: Zeroing,
}

/// What is done when all is zeroed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VolumeChange {
    Create,
    Grow(Size),
}

/// A volume that is not made, or has not grown, because its zeroes were not answered in time.
#[derive(Debug)]
pub(crate) struct ZeroedLate {
    /// Its name and uuid.
    pub(crate) volume: (String, Uuid),
    zeroes: LateZeroes,
}

/// How far it is, for who zeroes and who wants that to end.
#[derive(Debug, Default)]
pub(crate) struct Run {
    stage: Mutex<Stage>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Stage {
    end: Option<EarlyEnd>,
    at: At,
}

/// Who has ended it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyEnd {
    /// Somebody cancelled its job.
    Cancelled,
    /// Its array was stopped.
    Stopped,
}

#[derive(Clone, Debug, Default)]
enum At {
    #[default]
    NotBegun,
    UnderWay,
    Over(Answer<()>),
}

impl Run {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether zeroes are to be written; from now on whoever ends this waits for that.
    fn begin(&self) -> bool {
        let mut stage = self.stage();
        let begins = stage.end.is_none();
        if begins {
            stage.at = At::UnderWay;
        }
        begins
    }

    fn is_ended(&self) -> bool {
        self.stage().end.is_some()
    }

    /// Nobody who has its array now has begun it.
    fn is_stopped(&self) -> bool {
        self.stage().end == Some(EarlyEnd::Stopped)
    }

    /// No more zeroes are written.
    fn finish(&self, zeroed: Answer<()>) {
        self.stage().at = At::Over(zeroed);
        self.over.notify_all();
    }

    fn cancel(&self) {
        self.stage().end.get_or_insert(EarlyEnd::Cancelled);
    }

    /// No zeroes are written any more when this returns. It waits for drives no longer than any
    /// command does.
    fn stop(&self) {
        let mut stage = self.stage();
        stage.end = Some(EarlyEnd::Stopped);
        while matches!(stage.at, At::UnderWay) {
            stage = self
                .over
                .wait(stage)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// The job that makes a volume or lets it grow, and the volume.
    fn zeroing_where(&self, is: impl Fn(&str, Uuid) -> bool) -> Option<(u64, &ZeroingEntry)> {
        let zeroings = self.zeroings.iter();
        let mut zeroings = zeroings.filter(|(_, (_, run))| !run.is_stopped());
        let found = zeroings.find(|(_, (entry, _))| is(&entry.volume.0, entry.volume.1));
        found.map(|(&job, (entry, _))| (job, entry))
    }

    /// Volumes that are being made or grow: what is half-made of them is as it should be.
    pub(crate) fn volumes_under_way(&self) -> Vec<Uuid> {
        let zeroings = self.zeroings.values();
        zeroings.map(|(entry, _)| entry.volume.1).collect()
    }
}

impl Host {
    /// Notes what is to be zeroed, and shows it as a job.
    pub(crate) fn begin_zeroing(&self, entry: ZeroingEntry) -> Begun {
        let mut state = self.state();
        let (name, _, array) = &entry.array;
        let job = new_job(&mut state, *array, name, JobKind::Zero);
        let blocks: u64 = entry
            .zeroing
            .blocks(&entry.superblock.extents())
            .map(|(_, blocks)| blocks)
            .sum();
        let shown = state.jobs.get_mut(&job).expect("made just now");
        shown.view.total_bytes = blocks << entry.superblock.geometry.block_size().shift();
        state.zeroings.insert(job, (entry, Arc::default()));
        Begun::Zeroing { job }
    }

    /// Refuses to begin anything with a volume, or one of this name, that is being made or grows.
    pub(crate) fn refuse_under_way(
        &self,
        object: &str,
        is: impl Fn(&str, Uuid) -> bool,
    ) -> Answer<()> {
        let state = self.state();
        let Some((job, entry)) = state.zeroing_where(is) else {
            return Ok(());
        };
        let does = match entry.change {
            VolumeChange::Create => "is being made",
            VolumeChange::Grow(_) => "grows",
        };
        let (name, _) = &entry.volume;
        let text = format!("volume {name} {does}: what it gets is zeroed first");
        let next = format!("`garboard job wait {job}`, or `garboard job cancel {job}`");
        Err(error(ErrorKind::Busy, object, text).next(next))
    }

    /// The job that makes a volume of this name or uuid.
    pub(crate) fn volume_being_made(&self, key: &str) -> Option<u64> {
        let uuid = Uuid::try_parse(key).ok();
        let state = self.state();
        let found = state.zeroing_where(|name, of| name == key || Some(of) == uuid);
        let made = found.filter(|(_, entry)| matches!(entry.change, VolumeChange::Create));
        made.map(|(job, _)| job)
    }

    pub(crate) fn do_zero_volume(&self, job: u64) {
        let Some((entry, run)) = self.state().zeroings.get(&job).cloned() else {
            return;
        };
        if !run.begin() {
            return;
        }
        let zeroed = self.zero(job, &entry, &run);
        run.finish(zeroed.map_err(|failed| self.not_zeroed(&entry, failed)));
    }

    /// Zeroes all of it, unless somebody ends that.
    fn zero(&self, job: u64, entry: &ZeroingEntry, run: &Run) -> Result<(), ZeroError> {
        let shift = entry.superblock.geometry.block_size().shift();
        let mut done = 0;
        for (start, blocks) in entry.zeroing.blocks(&entry.superblock.extents()) {
            let end = start + blocks;
            let mut at = start;
            while at < end && !run.is_ended() {
                let count = (PIECE_BYTES >> shift).min(end - at);
                self.engine.zero(entry.array.1, at, count)?;
                at += count;
                done += count;
                if let Some(shown) = self.state().jobs.get_mut(&job) {
                    shown.measure(MonotonicClock.now(), done << shift);
                }
            }
        }
        Ok(())
    }

    /// What is said of that. When zeroes may still land, it is kept where.
    fn not_zeroed(&self, entry: &ZeroingEntry, failed: ZeroError) -> EngineError {
        let object = format!("volume {}", entry.volume.0);
        let zeroes = match failed {
            ZeroError::Status(status) => {
                let text = format!("its extents could not be zeroed: {status:?}");
                return error(ErrorKind::Degraded, object, text)
                    .next("see the drives of its array");
            }
            ZeroError::Late(zeroes) => zeroes,
        };
        let (name, index, _) = &entry.array;
        let mut state = self.state();
        // Nobody has stopped it since: he would have waited.
        if let Some(array) = state.arrays.get_mut(name) {
            let volume = entry.volume.clone();
            array.zeroed_late.push(ZeroedLate { volume, zeroes });
        }
        let Some(waits) = self.waits(&state, (name, *index)) else {
            return late_and_taken_back(object);
        };
        let text = format!("{waits}; what it has begun is taken back when they work again");
        let next = format!("ask again then; {}", way_back(name));
        error(ErrorKind::Busy, object, text).next(next)
    }

    /// Takes back what was begun of volumes whose zeroes were late, once these have been answered.
    /// Only for who may change arrays.
    pub(crate) fn settle_zeroed_late(&self) {
        let mut settled = Vec::new();
        for entry in self.state().arrays.values_mut() {
            // What has stopped, or is about to, is taken back by its next start.
            let runs = matches!(entry.serving, Serving::Running);
            let is_over = |late: &mut ZeroedLate| runs && late.zeroes.are_over();
            for late in entry.zeroed_late.extract_if(.., is_over) {
                let (volume, _) = late.volume;
                tracing::info!(
                    event = "late_zeroes_over",
                    array = entry.name,
                    volume,
                    "taken back"
                );
                settled.push((entry.name.clone(), entry.index, entry.superblock));
            }
        }
        for (name, index, superblock) in settled {
            self.undo_half_made(&name, index, &superblock);
        }
    }

    pub(crate) fn do_finish_volume(&self, job: u64) -> Answer<VolumeView> {
        let found = self.state().zeroings.get(&job).cloned();
        let (entry, run) = found.ok_or_else(|| not_found("job", &job.to_string()))?;
        let (end, at) = {
            let stage = run.stage();
            (stage.end, stage.at.clone())
        };
        let finished = match (end, at) {
            (Some(end), _) => Err(ended_early(&entry, job, end)),
            (None, At::Over(zeroed)) => zeroed.and_then(|()| self.finish(&entry)),
            (None, At::NotBegun | At::UnderWay) => unreachable!("it was zeroed before"),
        };
        self.state().zeroings.remove(&job);
        // A start takes back what it finds half-made.
        if finished.is_err() && end != Some(EarlyEnd::Stopped) {
            let (name, index, _) = &entry.array;
            self.undo_half_made(name, *index, &entry.superblock);
        }
        if let Some(shown) = self.state().jobs.get_mut(&job) {
            shown.view.rate_bytes_per_second = None;
            shown.view.time_left_s = None;
            (shown.view.state, shown.view.cause) = match (&finished, end) {
                (Ok(_), _) => (JobState::Done, None),
                (Err(_), Some(EarlyEnd::Cancelled)) => (JobState::Cancelled, None),
                (Err(failed), Some(EarlyEnd::Stopped) | None) => {
                    (JobState::Failed, Some(failed.message.clone()))
                }
            };
        }
        finished
    }

    /// Makes it what it was to be.
    fn finish(&self, entry: &ZeroingEntry) -> Answer<VolumeView> {
        let (volume, uuid) = &entry.volume;
        let object = format!("volume {volume}");
        let (name, _, _) = &entry.array;
        let key = VolumeKey {
            array: name.clone(),
            uuid: *uuid,
        };
        // Others have changed volumes meanwhile, and not all of that may be decided.
        let (array, _) = self.decided(name, About::Volumes)?;
        let mut config = self.running_config(array, name)?;
        let mut table = VolumeTable::new(&mut config, &entry.superblock);
        let changed = match entry.change {
            VolumeChange::Create => table.finish_create(*uuid),
            VolumeChange::Grow(size) => table.finish_grow(*uuid, size),
        };
        changed.map_err(|refused| of_volume(object.clone(), &refused))?;
        self.commit_volumes(&object, array, &config)?;
        match entry.change {
            VolumeChange::Create => {
                tracing::info!(event = "volume_created", volume, array = name, "created");
            }
            VolumeChange::Grow(size) => {
                self.show_new_size(&key)?;
                let size_bytes = size.0;
                tracing::info!(event = "volume_resized", volume, size_bytes, "resized");
            }
        }
        self.volume_view(&key)
    }

    /// Somebody cancels the job: what was begun is taken back by who finishes it.
    pub(crate) fn cancel_zeroing(&self, job: u64) {
        let mut state = self.state();
        if let Some((_, run)) = state.zeroings.get(&job) {
            run.cancel();
        }
        if let Some(shown) = state.jobs.get_mut(&job) {
            shown.view.state = JobState::Cancelled;
        }
    }

    /// Nothing is zeroed in this array any more, or in none, when this returns.
    pub(crate) fn end_zeroing(&self, array: Option<Uuid>) {
        let runs: Vec<Arc<Run>> = {
            let state = self.state();
            let zeroings = state.zeroings.values();
            let own =
                zeroings.filter(|(entry, _)| array.is_none_or(|array| entry.array.2 == array));
            own.map(|(_, run)| Arc::clone(run)).collect()
        };
        for run in runs {
            run.stop();
        }
    }
}

fn ended_early(entry: &ZeroingEntry, job: u64, end: EarlyEnd) -> EngineError {
    let text = match end {
        EarlyEnd::Cancelled => format!("job {job} was cancelled before all of it was zeroed"),
        EarlyEnd::Stopped => {
            let (array, _, _) = &entry.array;
            format!("array {array} was stopped before all of it was zeroed")
        }
    };
    let next = match entry.change {
        VolumeChange::Create => {
            "what was begun is taken back; `garboard volume create` begins anew"
        }
        VolumeChange::Grow(_) => "it is as it was; `garboard volume resize` begins anew",
    };
    error(ErrorKind::Busy, format!("volume {}", entry.volume.0), text).next(next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_stops_it_waits_until_no_zeroes_are_written() {
        let run = Run::default();
        assert!(run.begin());
        std::thread::scope(|scope| {
            let stopping = scope.spawn(|| run.stop());
            while !run.is_ended() {
                std::thread::yield_now();
            }
            std::thread::park_timeout(Duration::from_millis(20));
            assert!(!stopping.is_finished());
            run.finish(Ok(()));
        });
    }

    #[test]
    fn what_was_ended_before_it_began_is_waited_for_by_nobody() {
        let run = Run::default();
        run.cancel();
        assert!(!run.begin(), "nothing is to be zeroed");
        run.stop();
        assert!(run.is_stopped(), "there is nothing to be taken back");
    }
}
