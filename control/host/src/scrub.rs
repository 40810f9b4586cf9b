//! Scrubs: started, paused, shown; what they find is kept by volume and place.

use std::collections::VecDeque;
use std::time::SystemTime;

use array::format::{ArrayConfig, Superblock};
use array::{
    Command, Geometry, ScrubCause as Cause, ScrubCourse, ScrubFinding, ScrubOrder,
    ScrubOutcome as Outcome, ScrubState as Recorded, ScrubTally,
};
use control::scrub::{
    ScrubBody, ScrubCause, ScrubFindingView, ScrubMemberView, ScrubOutcome, ScrubState, ScrubView,
};
use control::view::{JobKind, JobState, JobView};
use control::{Answer, ErrorKind};
use drive::DriveKind;
use engine::ArrayState;
use units::{ArrayIndex, Clock, MemberIndex, MonotonicClock};
use uuid::Uuid;

use crate::Host;
use crate::arrays::Candidate;
use crate::error::{error, not_found};
use crate::jobs::open_job;
use crate::state::{ArrayEntry, JobEntry, State};

/// Findings that are kept of each array.
const FINDINGS_MAX: usize = 64;
/// How often an array of real drives is scrubbed, unless somebody says otherwise.
const EVERY_SECONDS: u32 = 30 * 24 * 60 * 60;

/// How often a new array is scrubbed by itself: what memory holds is gone before it rots.
pub(crate) fn every_by_default(geometry: &Geometry, candidates: &[Candidate]) -> u32 {
    let is_real = |candidate: &Candidate| match candidate.drive.info().kind {
        DriveKind::File | DriveKind::BlockDevice | DriveKind::NvmeGeneric => true,
        DriveKind::Memory | DriveKind::Null => false,
    };
    if geometry.parity() > 0 && candidates.iter().all(is_real) {
        EVERY_SECONDS
    } else {
        0
    }
}

impl Host {
    pub(crate) fn do_start_scrub(&self, name: &str, scrub: ScrubBody) -> Answer<JobView> {
        let object = format!("array {name}");
        let (index, uuid) = self.running(name)?;
        let parity = {
            let state = self.state();
            let entry = state.arrays.get(name);
            let entry = entry.ok_or_else(|| not_found("array", name))?;
            entry.superblock.geometry.parity()
        };
        if parity == 0 {
            let text = "it has no redundancy, so nothing could be compared";
            return Err(error(ErrorKind::Invalid, &object, text).next("choose another array"));
        }
        self.refuse_waiting(&object, (name, index), None)?;
        // The job is there before its end can be told.
        let (job, is_new) = {
            let mut state = self.state();
            let before = state.next_job;
            let job = open_job(&mut state, uuid, name, JobKind::Scrub);
            (job, state.next_job > before)
        };
        let order = if scrub.from_beginning {
            ScrubOrder::StartOver
        } else {
            ScrubOrder::Start
        };
        let started = self.engine.change(index, Command::Scrub(order));
        if let Err(change) = started {
            if is_new {
                self.state().jobs.remove(&job);
            }
            return Err(self.of_change(object, (name, index), &change));
        }
        self.refresh_jobs();
        let state = self.state();
        let job = state.jobs.get(&job);
        job.map(|job| job.view.clone())
            .ok_or_else(|| not_found("job", name))
    }

    pub(crate) fn do_stop_scrub(&self, name: &str) -> Answer<JobView> {
        let object = format!("array {name}");
        let (index, uuid) = self.running(name)?;
        self.refresh_jobs();
        let array = self.engine.array_state(index);
        let scrub = array.ok_or_else(|| not_found("array", name))?.scrub;
        if !scrub.record.state.runs() {
            return Err(
                error(ErrorKind::NotFound, &object, "no scrub runs").next(format!(
                    "`garboard array scrub {name} show` shows how it stands"
                )),
            );
        }
        self.refuse_waiting(&object, (name, index), None)?;
        let stopped = self.engine.change(index, Command::Scrub(ScrubOrder::Stop));
        // It may have reached the end in the meantime.
        stopped.map_err(|change| self.of_change(object, (name, index), &change))?;
        self.refresh_jobs();
        let state = self.state();
        let own = |job: &&JobEntry| job.array == uuid && job.view.kind == JobKind::Scrub;
        let job = state.jobs.values().rfind(own);
        job.map(|job| job.view.clone())
            .ok_or_else(|| not_found("job", name))
    }

    pub(crate) fn do_scrub(&self, name: &str) -> Answer<ScrubView> {
        self.refresh_jobs();
        let index = {
            let state = self.state();
            let entry = state.arrays.get(name);
            entry.ok_or_else(|| not_found("array", name))?.index
        };
        let running = self.engine.array_state(index);
        let state = self.state();
        let entry = state.arrays.get(name);
        let entry = entry.ok_or_else(|| not_found("array", name))?;
        Ok(view(&state, entry, running.as_ref()))
    }

    /// Brings the job of the array's scrub up to date.
    pub(crate) fn refresh_scrub(&self, uuid: Uuid, name: &str, array: &ArrayState) {
        let mut state = self.state();
        let (scrub, now) = (array.scrub, MonotonicClock.now());
        let id = if scrub.record.state.runs() && scrub.course != ScrubCourse::Failed {
            open_job(&mut state, uuid, name, JobKind::Scrub)
        } else {
            let runs = |job: &&JobEntry| {
                job.array == uuid
                    && job.view.kind == JobKind::Scrub
                    && job.view.state == JobState::Running
            };
            match state.jobs.values().rfind(runs) {
                Some(job) => job.view.id,
                None => return,
            }
        };
        let stripe = array.map.geometry.stripe_bytes();
        let job = state.jobs.get_mut(&id).expect("found or opened just now");
        job.view.total_bytes = scrub.stripes * stripe;
        match scrub.record.state {
            _ if scrub.course == ScrubCourse::Failed => {
                job.view.state = JobState::Failed;
                job.view.cause = Some("a stripe could not be looked at; see the log".to_owned());
            }
            Recorded::Running | Recorded::Scheduled => {
                let done = scrub.record.next.0 * stripe;
                job.measure(now, done);
            }
            Recorded::Paused => {
                job.view.state = JobState::Cancelled;
                job.view.done_bytes = scrub.record.next.0 * stripe;
                job.view.time_left_s = None;
            }
            // Its end is told after all that it found; unless the job came after its end.
            Recorded::Idle if now.since(job.seen.0).as_secs() > 1 => {
                finish(job, &scrub.record.tally);
            }
            Recorded::Idle => {}
        }
    }

    /// The scrub has reached the end, and all that it found was told before.
    pub(crate) fn finish_scrub(&self, array: ArrayIndex) {
        let tally = self.engine.array_state(array).map(|array| array.scrub);
        let tally = tally.map(|scrub| scrub.record.tally).unwrap_or_default();
        let mut state = self.state();
        let entry = state.arrays.values().find(|entry| entry.index == array);
        let Some(uuid) = entry.map(|entry| entry.uuid) else {
            return;
        };
        let running = |job: &&mut JobEntry| {
            job.array == uuid
                && job.view.kind == JobKind::Scrub
                && job.view.state == JobState::Running
        };
        for job in state.jobs.values_mut().filter(running) {
            finish(job, &tally);
        }
    }

    /// Keeps what a scrub found, and says it in the log.
    pub(crate) fn note_finding(&self, array: ArrayIndex, finding: &ScrubFinding) {
        let running = self.engine.array_state(array);
        let mut state = self.state();
        let mut arrays = state.arrays.values_mut();
        let Some(entry) = arrays.find(|entry| entry.index == array) else {
            return;
        };
        let config = running
            .as_ref()
            .map_or(&entry.config, |array| &array.config);
        let view = finding_view(finding, config, &entry.superblock);
        let (name, members) = (&entry.name, &view.members);
        let volume = view.volume.as_deref().unwrap_or("-");
        let (stripe, block) = (view.stripe, view.block);
        let (offset, cause, outcome) = (view.offset_bytes, view.cause, view.outcome);
        if outcome == ScrubOutcome::Repaired {
            tracing::warn!(
                event = "scrub_repaired",
                array = name,
                stripe,
                block,
                ?members,
                volume,
                offset,
                ?cause,
                "wrong blocks were written anew"
            );
        } else {
            tracing::error!(
                event = "scrub_mismatch",
                array = name,
                stripe,
                block,
                ?members,
                volume,
                offset,
                ?cause,
                ?outcome,
                "blocks are wrong and were not repaired"
            );
        }
        keep(&mut entry.findings, view);
    }
}

/// Adds a finding: to its neighbours of the same kind, be they before it, behind it or both, since
/// blocks are not found in order; or as the newest.
fn keep(findings: &mut VecDeque<ScrubFindingView>, mut new: ScrubFindingView) {
    while let Some(position) = findings.iter().rposition(|old| adjoins(old, &new)) {
        let old = findings.remove(position).expect("just seen");
        new = joined(old, &new);
    }
    if findings.len() == FINDINGS_MAX {
        findings.pop_front();
    }
    findings.push_back(new);
}

/// Whether two findings are one in two parts.
fn adjoins(old: &ScrubFindingView, new: &ScrubFindingView) -> bool {
    let same = old.stripe == new.stripe
        && old.members == new.members
        && (old.cause, old.outcome) == (new.cause, new.outcome);
    let (old_end, new_end) = (old.block + old.blocks, new.block + new.blocks);
    same && (old_end == new.block || new_end == old.block)
}

fn joined(mut old: ScrubFindingView, new: &ScrubFindingView) -> ScrubFindingView {
    old.block = old.block.min(new.block);
    old.blocks += new.blocks;
    if old.members.len() == 1
        && let (Some(offset), Some(at)) = (old.offset_bytes, new.offset_bytes)
    {
        old.offset_bytes = Some(offset.min(at));
        let lengths = old.length_bytes.zip(new.length_bytes);
        old.length_bytes = lengths.map(|(old, new)| old + new);
    }
    old
}

fn finish(job: &mut JobEntry, tally: &ScrubTally) {
    job.view.state = JobState::Done;
    job.view.done_bytes = job.view.total_bytes;
    job.view.time_left_s = Some(0);
    let found = tally.mismatches + tally.unreadable;
    job.view.cause = (found > 0).then(|| {
        let were = if found == 1 {
            "block was"
        } else {
            "blocks were"
        };
        let (repaired, not) = (tally.repaired, tally.unrepaired);
        format!("{found} {were} wrong: {repaired} repaired, {not} not")
    });
}

fn finding_view(
    finding: &ScrubFinding,
    config: &ArrayConfig,
    superblock: &Superblock,
) -> ScrubFindingView {
    let geometry = &superblock.geometry;
    let roles = finding.wrong;
    let member = |role| geometry.member(finding.stripe, role).0;
    let place = place(finding, config, superblock);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    ScrubFindingView {
        time_s: since.map_or(0, |since| since.as_secs()),
        stripe: finding.stripe.0,
        block: finding.block,
        blocks: 1,
        cause: match finding.cause {
            Cause::Mismatch => ScrubCause::Mismatch,
            Cause::Unreadable => ScrubCause::Unreadable,
        },
        outcome: match finding.outcome {
            Outcome::Repaired => ScrubOutcome::Repaired,
            Outcome::NotLocated => ScrubOutcome::NotLocated,
            Outcome::NotKept => ScrubOutcome::NotKept,
            Outcome::Lost => ScrubOutcome::Lost,
        },
        members: roles.iter().map(member).collect(),
        volume: place.as_ref().map(|(name, _)| name.clone()),
        offset_bytes: place
            .as_ref()
            .and_then(|(_, at)| at.map(|(offset, _)| offset)),
        length_bytes: place.and_then(|(_, at)| at.map(|(_, length)| length)),
    }
}

/// The volume of the finding's stripe, and where in it: offset and length in bytes.
fn place(
    finding: &ScrubFinding,
    config: &ArrayConfig,
    superblock: &Superblock,
) -> Option<(String, Option<(u64, u64)>)> {
    let geometry = &superblock.geometry;
    let extent_stripes = u64::from(superblock.extent_stripes);
    let extent = finding.stripe.0 / extent_stripes;
    for volume in &config.volumes {
        let mut before = 0;
        for run in &volume.extents {
            if !(run.first..run.first + run.count).contains(&extent) {
                before += run.count;
                continue;
            }
            let extents = before + extent - run.first;
            let stripe = extents * extent_stripes + finding.stripe.0 % extent_stripes;
            let start = stripe * geometry.stripe_bytes();
            let block_bytes = geometry.block_size().bytes();
            // All copies of a mirror are the one data chunk.
            let mirrors = geometry.data() == 1;
            let data = finding.wrong.both(geometry.data_roles());
            let at = match (finding.wrong.len(), data.first()) {
                (0, _) if !mirrors => Some((start, geometry.stripe_bytes())),
                (_, Some(role)) if data.len() == 1 => {
                    let chunk = u64::from(role.0) * geometry.chunk_bytes();
                    let block = u64::from(finding.block) * block_bytes;
                    Some((start + chunk + block, block_bytes))
                }
                _ if mirrors => Some((start + u64::from(finding.block) * block_bytes, block_bytes)),
                (_, Some(_)) => Some((start, geometry.stripe_bytes())),
                (_, None) => None,
            };
            let used = volume.size_blocks * block_bytes;
            return Some((volume.name.clone(), at.filter(|(offset, _)| *offset < used)));
        }
    }
    None
}

fn view(state: &State, entry: &ArrayEntry, running: Option<&ArrayState>) -> ScrubView {
    let config = running.map_or(&entry.config, |running| &running.config);
    let record = running.map_or(config.scrub, |running| running.scrub.record);
    let course = running.map_or(ScrubCourse::Waits, |running| running.scrub.course);
    let stripes = entry.superblock.geometry.stripes();
    let job = state.jobs.values().rfind(|job| {
        job.array == entry.uuid
            && job.view.kind == JobKind::Scrub
            && job.view.state == JobState::Running
    });
    let some = |number: u64| (number > 0).then_some(number);
    let guilt = running.map_or(&[][..], |running| &running.scrub_guilt);
    let members = guilt.iter().enumerate().filter(|(_, blocks)| **blocks > 0);
    let member = |(position, blocks): (usize, &u64)| {
        let member = MemberIndex::from_at(position);
        let drive = state.drive_of(entry.uuid, member);
        ScrubMemberView {
            member: member.0,
            drive: drive.map(|drive| drive.name.clone()),
            wrong_blocks_total: *blocks,
        }
    };
    ScrubView {
        array: entry.name.clone(),
        state: match record.state {
            Recorded::Running | Recorded::Scheduled => match course {
                ScrubCourse::Free => ScrubState::Running,
                ScrubCourse::Waits => ScrubState::Waiting,
                ScrubCourse::Failed => ScrubState::Failed,
            },
            Recorded::Paused => ScrubState::Paused,
            Recorded::Idle => ScrubState::Idle,
        },
        job: job.map(|job| job.view.id),
        stripes_checked: match record.state {
            Recorded::Idle if record.finished_at > 0 => stripes,
            Recorded::Idle | Recorded::Running | Recorded::Scheduled | Recorded::Paused => {
                record.next.0
            }
        },
        stripes,
        mismatched_blocks: record.tally.mismatches,
        unreadable_blocks: record.tally.unreadable,
        repaired_blocks: record.tally.repaired,
        unrepaired_blocks: record.tally.unrepaired,
        finished_at_s: some(record.finished_at),
        every_s: some(config.options.scrub_every_seconds.into()),
        rate_bytes_per_second: some(config.options.scrub_rate_bytes_per_second),
        members: members.map(member).collect(),
        findings: entry.findings.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_found_in_any_order_are_one_finding() {
        let block = |block: u32| ScrubFindingView {
            time_s: 1,
            stripe: 17,
            block,
            blocks: 1,
            cause: ScrubCause::Mismatch,
            outcome: ScrubOutcome::Repaired,
            members: vec![3],
            volume: Some("v".to_owned()),
            offset_bytes: Some(u64::from(block) * 512),
            length_bytes: Some(512),
        };
        for order in [[2, 3, 4], [4, 3, 2], [2, 4, 3], [4, 2, 3], [3, 2, 4]] {
            let mut findings = VecDeque::new();
            for at in order {
                keep(&mut findings, block(at));
            }
            let all = ScrubFindingView {
                blocks: 3,
                length_bytes: Some(3 * 512),
                ..block(2)
            };
            assert_eq!(findings, [all], "{order:?}");
        }
    }
}
