//! `garboard job …`.

use clap::Subcommand;
use control::Answer;
use control::view::{JobState, JobView};

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

/// A dash where nobody has measured it: the job ended before anybody looked twice.
fn rate(job: &JobView) -> String {
    let is_known = job.rate_bytes_per_second > 0 || job.state == JobState::Running;
    or_dash(is_known.then(|| format!("{}/s", size(job.rate_bytes_per_second))))
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
