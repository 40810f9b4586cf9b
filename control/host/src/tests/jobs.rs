//! Jobs as several threads show them, each by what it has seen of arrays.

use array::{Pass, PassState, PassStatus};
use control::Engine;
use control::view::{JobKind, JobState};
use units::StripeIndex;

use super::{Bench, wait_until};
use crate::jobs::open_job;

#[test]
fn what_was_seen_before_a_job_was_opened_neither_ends_nor_stops_it() {
    let bench = Bench::tank();
    let host = &bench.host;
    wait_until("nothing is due", || bench.array("tank").jobs.is_empty());
    let (index, uuid) = {
        let state = host.state();
        let entry = &state.arrays["tank"];
        (entry.index, entry.uuid)
    };
    let rebuild = || {
        let state = host.state();
        let mut jobs = state.jobs.values();
        let found = jobs.find(|job| job.view.kind == JobKind::Rebuild);
        found.map(|job| job.view.state)
    };
    let mut running = host.running_jobs();
    let mut seen = host.engine.array_state(index).expect("it runs");
    assert!(seen.pass.is_none());
    // What a command on another thread begins meanwhile, and shows.
    open_job(&mut host.state(), uuid, "tank", JobKind::Rebuild);
    host.show_passes(&mut running, (uuid, "tank", false), &seen);
    assert_eq!(rebuild(), Some(JobState::Running), "it has just begun");
    // Nor if another pass was due then.
    seen.pass = Some(PassStatus {
        pass: Pass::Resync,
        state: PassState::Running,
        done: StripeIndex(0),
        stripes: 1,
        to_visit: 1,
        left: 1,
    });
    host.show_passes(&mut running, (uuid, "tank", false), &seen);
    assert_eq!(rebuild(), Some(JobState::Running), "it has just begun");
    // Nor if its array was not served.
    host.pause_jobs_but(&running, &[]);
    assert_eq!(rebuild(), Some(JobState::Running), "it has just begun");
    // There is none in truth, as whoever looks now does see.
    host.jobs();
    assert_eq!(rebuild(), Some(JobState::Done));
}
