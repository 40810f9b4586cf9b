//! Waiting for jobs, with a bar for people.

use std::time::Duration;

use control::view::{JobKind, JobState, JobView};
use control::{Answer, EngineError, ErrorKind};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{Output, word};
use crate::session::Session;

/// How often a job is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Waits for the jobs, one after another, and gives them back finished.
///
/// # Errors
/// `Internal` when one failed or was cancelled.
pub(crate) fn wait(session: &mut Session<'_, '_>, ids: &[u64]) -> Answer<Vec<JobView>> {
    wait_while(session, ids, &mut || Ok(()))
}

/// Waits until a job is worth another look.
pub(crate) fn pause(session: &mut Session<'_, '_>) {
    session.client.pause(LOOK);
}

/// As [`wait`], as long as `good`, which is asked at every look, has nothing against it.
///
/// # Errors
/// As [`wait`], and what `good` says.
pub(crate) fn wait_while(
    session: &mut Session<'_, '_>,
    ids: &[u64],
    good: &mut dyn FnMut() -> Answer<()>,
) -> Answer<Vec<JobView>> {
    ids.iter().map(|id| wait_one(session, *id, good)).collect()
}

fn wait_one(
    session: &mut Session<'_, '_>,
    id: u64,
    good: &mut dyn FnMut() -> Answer<()>,
) -> Answer<JobView> {
    let path = format!("/v1/jobs/{id}");
    let mut job: JobView = session.get(&path)?;
    // Draws itself only where somebody looks.
    let bar = match session.output {
        Output::Table => ProgressBar::new(job.total_bytes),
        Output::Json => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template(
        "{msg} [{bar:30}] {percent:>3}% {bytes}/{total_bytes} {prefix}",
    );
    bar.set_style(style.expect("a constant template"));
    bar.set_message(format!("{} of {}", word(&job.kind), job.array));
    while job.state == JobState::Running {
        bar.set_length(job.total_bytes);
        bar.set_position(job.done_bytes);
        bar.set_prefix(rate(&job));
        session.client.pause(LOOK);
        good()?;
        job = session.get(&path)?;
    }
    bar.finish_and_clear();
    let object = format!("job {id} ({} of array {})", word(&job.kind), job.array);
    match job.state {
        JobState::Running | JobState::Done => Ok(job),
        JobState::Failed => {
            let cause = job.cause.unwrap_or_else(|| "it failed".into());
            Err(
                EngineError::new(ErrorKind::Internal, object, cause).next(format!(
                    "`garboard array show {}` shows the array",
                    job.array
                )),
            )
        }
        JobState::Cancelled => {
            let next = match &job.cause {
                // Its array was stopped.
                Some(_) => format!("`garboard array start {}` starts that", job.array),
                None => way_on(&job),
            };
            let cause = job.cause.unwrap_or_else(|| "it was cancelled".into());
            Err(EngineError::new(ErrorKind::Internal, object, cause).next(next))
        }
    }
}

/// What goes on with a job that was cancelled.
pub(crate) fn way_on(job: &JobView) -> String {
    let array = &job.array;
    match job.kind {
        JobKind::Rebuild => format!("`garboard array rebuild {array} start` goes on with it"),
        JobKind::Resync | JobKind::Initialize => {
            format!("`garboard array resync {array} start` goes on with it")
        }
        JobKind::Scrub => format!("`garboard array scrub {array} start` goes on with it"),
        JobKind::Copy => format!("`garboard array replace {array}` begins anew"),
        JobKind::Zero => format!("`garboard volume list` shows the volumes of array {array}"),
    }
}

/// Empty before it was measured.
fn rate(job: &JobView) -> String {
    let Some(rate) = job.rate_bytes_per_second else {
        return String::new();
    };
    let rate = format!("{}/s", units::Size(rate));
    match job.time_left_s {
        Some(seconds) => format!("{rate}, {} left", duration(seconds)),
        None => rate,
    }
}

/// `14d`, `1h02m`, `3m07s`, `9s`.
pub(crate) fn duration(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    if seconds >= DAY && seconds.is_multiple_of(DAY) {
        return format!("{}d", seconds / DAY);
    }
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (187, "3m07s"),
            (3720, "1h02m"),
            (86_400, "1d"),
            (90_000, "25h00m"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
