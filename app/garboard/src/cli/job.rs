//! `garboard job …`.

use clap::Subcommand;
use control::Answer;
use control::view::JobView;

use crate::output::{Row, or_dash, size, word};
use crate::progress;
use crate::session::Session;

/// Jobs: long work.
#[derive(Debug, Subcommand)]
pub(super) enum Job {
    /// List running and recent jobs
    List,
    /// Show one job
    Show {
        /// Its number
        id: u64,
    },
    /// Wait for the end of a job
    Wait {
        /// Its number
        id: u64,
    },
    /// Ask a job to end early
    Cancel {
        /// Its number
        id: u64,
    },
}

impl Job {
    pub(super) fn run(self, session: &mut Session<'_, '_>) -> Answer<()> {
        match self {
            Job::List => {
                let jobs: Vec<JobView> = session.get("/v1/jobs")?;
                session.list(&jobs)
            }
            Job::Show { id } => {
                let job: JobView = session.get(&format!("/v1/jobs/{id}"))?;
                session.show(&job)
            }
            Job::Wait { id } => {
                let job = progress::wait(session, &[id])?.remove(0);
                session.done(&job, &format!("job {id} is {}", word(&job.state)))
            }
            Job::Cancel { id } => {
                let job: JobView = session.delete(&format!("/v1/jobs/{id}"))?;
                session.done(&job, &format!("job {id} is {}", word(&job.state)))
            }
        }
    }
}

/// A dash where nobody has measured it: nobody has looked twice, or the job ended before.
fn rate(job: &JobView) -> String {
    let rate = job.rate_bytes_per_second;
    or_dash(rate.map(|rate| format!("{}/s", size(rate))))
}

impl Row for JobView {
    const HEADS: &'static [&'static str] =
        &["ID", "KIND", "ARRAY", "STATE", "DONE", "RATE", "LEFT"];

    fn cells(&self) -> Vec<String> {
        let hundredths = u128::from(self.done_bytes) * 100;
        let percent = hundredths
            .checked_div(u128::from(self.total_bytes))
            .unwrap_or(100);
        vec![
            self.id.to_string(),
            word(&self.kind),
            self.array.clone(),
            word(&self.state),
            format!("{percent}%"),
            rate(self),
            or_dash(self.time_left_s.map(progress::duration)),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "bytes",
                format!("{} of {}", self.done_bytes, self.total_bytes),
            ),
            ("cause", or_dash(self.cause.as_ref())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use control::view::{JobKind, JobState};

    use super::*;

    #[test]
    fn a_rate_is_a_dash_until_it_was_measured_and_then_may_be_none_at_all() {
        let rate = |rate_bytes_per_second| {
            let job = JobView {
                id: 1,
                kind: JobKind::Scrub,
                array: "a".into(),
                state: JobState::Running,
                done_bytes: 3 << 20,
                total_bytes: 4 << 20,
                rate_bytes_per_second,
                time_left_s: None,
                cause: None,
            };
            job.cells().swap_remove(5)
        };
        assert_eq!(rate(None), "-");
        assert_eq!(rate(Some(0)), "0/s");
        assert_eq!(rate(Some(1 << 20)), "1MiB/s");
    }
}
