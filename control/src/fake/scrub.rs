//! The pretended scrub: it has found one block of each kind.

use crate::scrub::{
    ScrubCause, ScrubFindingView, ScrubMemberView, ScrubOutcome, ScrubState, ScrubView,
};
use crate::view::{JobKind, JobState, JobView};

pub(super) fn view(array: &str, jobs: &[JobView]) -> ScrubView {
    let own = |job: &&JobView| job.kind == JobKind::Scrub && job.array == array;
    let running = |job: &&JobView| job.state == JobState::Running;
    let job = jobs.iter().filter(own).rfind(running).map(|job| job.id);
    let finding = |outcome, members| ScrubFindingView {
        time_s: 1_700_000_000,
        stripe: 7,
        block: 3,
        blocks: 1,
        cause: ScrubCause::Mismatch,
        outcome,
        members,
        volume: Some("v".to_owned()),
        offset_bytes: Some(4096),
        length_bytes: Some(512),
    };
    ScrubView {
        array: array.to_owned(),
        state: match job {
            Some(_) => ScrubState::Running,
            None => ScrubState::Idle,
        },
        job,
        stripes_checked: 8,
        stripes: 8,
        mismatched_blocks: 2,
        unreadable_blocks: 0,
        repaired_blocks: 1,
        unrepaired_blocks: 1,
        finished_at_s: Some(1_700_000_001),
        every_s: Some(86_400),
        rate_bytes_per_second: None,
        members: vec![ScrubMemberView {
            member: 1,
            drive: Some("d1".to_owned()),
            wrong_blocks_total: 1,
        }],
        findings: vec![
            finding(ScrubOutcome::Repaired, vec![1]),
            finding(ScrubOutcome::NotLocated, Vec::new()),
        ],
    }
}
