//! Replacing a member that still works: another drive becomes a copy of it while the array runs as
//! it always does, and then takes its place. Redundancy is whole until that moment, and what the
//! copy lacks then is little: what was written since.
//!
//! A thread copies, without any lock: what guests write meanwhile is told by the regions that
//! became dirty (docs/on-disk.md, section 8, *Copies that take a place*). So it goes over those
//! again, until few are left. What the member cannot read is called dirty, too, and filled from the
//! others. The rest is done once a second, under the lock of all commands: the member is excluded
//! and the copy put in its place, as a member that returns.

mod copier;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use array::format::{MemberRecord, MemberState, Superblock};
use array::{Command, Copying, MemberPlace};
use control::request::MemberReplace;
use control::view::{ArrayView, JobKind, JobState};
use control::{Answer, ErrorKind};
use drive::Drive;
use engine::{ArrayState, ChangeError};
use units::{ArrayIndex, Clock, MemberIndex, MonotonicClock, Update};
use uuid::Uuid;

use self::copier::Copier;
use super::Candidate;
use super::members::{forget_replacement, format_replacement, own_superblock};
use crate::drives::{survives_without, torn_without};
use crate::error::{error, not_found, of_change, of_io};
use crate::jobs::open_job;
use crate::state::DriveRole;
use crate::undecided::About;
use crate::{Host, records};

/// A copy that is being made, by the number of its job.
#[derive(Debug)]
pub(crate) struct CopyEntry {
    array: Uuid,
    member: MemberIndex,
    /// The member's uuid.
    old: Uuid,
    /// The drive that becomes a copy.
    drive: String,
    superblock: Superblock,
    /// What it is formatted as, once it is made.
    formatted: Option<(Superblock, MemberRecord)>,
    /// The member was told to leave: there is no way back.
    leaves: bool,
    hand: Arc<Hand>,
}

#[cfg(test)]
impl CopyEntry {
    /// Whether nothing more is read or written for it.
    pub(crate) fn has_ended(&self) -> bool {
        self.hand.outcome().is_some()
    }
}

/// What the thread and the rest tell each other.
#[derive(Debug, Default)]
struct Hand {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
    /// Once the thread has ended.
    outcome: Mutex<Option<Result<Update, Ended>>>,
}

impl Hand {
    fn outcome(&self) -> Option<Result<Update, Ended>> {
        let outcome = self.outcome.lock();
        outcome.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Why a copy was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    /// Somebody said so, or the array does not run any more.
    Stopped,
    /// The member has left the array.
    Left,
    /// Something else.
    Failed(String),
}

/// What a copy waits for whose place is not free yet.
const WAITS: &str = "made; waits for the other members to answer";

impl Host {
    /// Begins to copy a member in sync to a drive that then takes its place.
    pub(super) fn begin_copy(
        &self,
        (name, index, uuid): (&str, ArrayIndex, Uuid),
        replace: &MemberReplace,
        (candidate, superblock): (&Candidate, Superblock),
    ) -> Answer<ArrayView> {
        let object = format!("member {} of array {name}", replace.member);
        let member = MemberIndex(replace.member);
        let state = self.engine.array_state(index);
        let state = state.ok_or_else(|| not_found("array", name))?;
        let source = self.source(&state, member);
        let (from_name, from) = source.ok_or_else(|| {
            let text = "the drive that filled it has just left";
            error(ErrorKind::Busy, object.clone(), text).next("try again")
        })?;
        self.begin_copying(index, member, &object)?;
        empty(candidate, &superblock, replace.force)
            .inspect_err(|_| self.no_copy(index, member))?;
        let hand = Arc::new(Hand::default());
        let job = {
            let mut state_of = self.state();
            let job = open_job(&mut state_of, uuid, name, JobKind::Copy);
            let entry = CopyEntry {
                array: uuid,
                member,
                old: state.config.members[member.at()].uuid,
                drive: replace.drive.clone(),
                superblock,
                formatted: None,
                leaves: false,
                hand: Arc::clone(&hand),
            };
            state_of.copies.insert(job, entry);
            if let Some(drive) = state_of.drives.get_mut(&replace.drive) {
                drive.now_holds(String::new());
                drive.blank = false;
                drive.role = DriveRole::Copy {
                    array: uuid,
                    member,
                    job,
                };
            }
            job
        };
        let copier = Copier {
            host: self.myself.clone(),
            index,
            member,
            incarnation: state.map.members[member.at()].incarnation,
            superblock,
            from,
            to: Arc::clone(&candidate.drive),
            // Until it is known better.
            looked: (MonotonicClock.now(), 0, true),
            hand: Arc::clone(&hand),
        };
        let spawned = std::thread::Builder::new()
            .name("copy".to_owned())
            .spawn(move || copier.run());
        if let Err(source) = spawned {
            self.end_copy(job, JobState::Failed, Some(source.to_string()));
            return Err(of_io(object, "starting a thread", &source));
        }
        tracing::info!(
            event = "member_copying",
            array = name,
            member = member.0,
            from = from_name,
            to = replace.drive,
            job,
            "the copy takes its place when it is made"
        );
        self.array_view(name)
    }

    /// Tells the array that a copy of a member begins.
    fn begin_copying(&self, index: ArrayIndex, member: MemberIndex, object: &str) -> Answer<()> {
        let step = Copying::Begins;
        let begun = self.engine.change(index, Command::Copying { member, step });
        begun.map_err(|change| {
            if matches!(change, ChangeError::Late) {
                // It is taken back when it is through.
                self.no_copy(index, member);
            }
            self.of_change(object.to_owned(), (&self.array_name(index), index), &change)
        })
    }

    /// A copy counts for nothing any more.
    fn no_copy(&self, index: ArrayIndex, member: MemberIndex) {
        let ends = Command::Copying {
            member,
            step: Copying::Ends,
        };
        // An array that cannot do this has no copy either.
        self.engine.change(index, ends).ok();
    }

    /// Asks a copy to end, unless its member is leaving already; its drive is free once the thread
    /// has ended.
    pub(crate) fn stop_copy(&self, job: u64) {
        let stopped = {
            let mut state = self.state();
            let copy = state.copies.get(&job).filter(|copy| !copy.leaves);
            let copy = copy.map(|copy| {
                let stops = copy.hand.stop.swap(true, Ordering::Relaxed);
                (copy.array, copy.member, stops)
            });
            let stopped = copy.filter(|(.., stops)| !stops).map(|(array, member, _)| {
                let array = state.array_by_uuid(array);
                (array.map(|array| array.index), member)
            });
            if stopped.is_some()
                && let Some(job) = state.jobs.get_mut(&job)
            {
                job.view.state = JobState::Cancelled;
            }
            stopped
        };
        if let Some((Some(index), member)) = stopped {
            self.no_copy(index, member);
        }
    }

    /// Ends all copies: the engine stops.
    pub(crate) fn stop_copies(&self) {
        for copy in self.state().copies.values() {
            copy.hand.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The job of the copy that is made of a member of this array, and which member that is.
    pub(crate) fn copy_of(&self, array: Uuid) -> Option<(u64, MemberIndex)> {
        let state = self.state();
        let mut copies = state.copies.iter();
        let goes_on = |copy: &CopyEntry| !copy.hand.stop.load(Ordering::Relaxed);
        let own = copies.find(|(_, copy)| copy.array == array && goes_on(copy));
        own.map(|(&job, copy)| (job, copy.member))
    }

    /// The drive that the array asks as this member.
    fn source(&self, array: &ArrayState, member: MemberIndex) -> Option<(String, Arc<Drive>)> {
        let index = array.map.members.get(member.at())?.drive?;
        let state = self.state();
        let entry = state.drive_at(index)?;
        Some((entry.name.clone(), Arc::clone(&entry.drive)))
    }

    /// Says how far copies are.
    pub(crate) fn refresh_copies(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let now = MonotonicClock.now();
        for (job, copy) in &state.copies {
            let Some(job) = state.jobs.get_mut(job) else {
                continue;
            };
            let done = copy.hand.done.load(Ordering::Relaxed);
            job.view.total_bytes = copy.hand.total.load(Ordering::Relaxed).max(done);
            job.measure(now, done);
        }
    }

    /// Puts copies that are made in the places of their members. Whether one took one.
    pub(crate) fn do_tend_copies(&self) -> bool {
        // Here because this comes once a second, before anything else is changed.
        self.catch_up();
        let ended: Vec<(u64, Result<Update, Ended>)> = {
            let state = self.state();
            let copies = state.copies.iter();
            copies
                .filter_map(|(&job, copy)| Some((job, copy.hand.outcome()?)))
                .collect()
        };
        let mut any = false;
        for (job, outcome) in ended {
            let stopped = {
                let state = self.state();
                let copy = state.copies.get(&job);
                copy.is_none_or(|copy| copy.hand.stop.load(Ordering::Relaxed))
            };
            match outcome {
                Ok(_) | Err(Ended::Left) if !stopped => {
                    match self.put_in_place(job, outcome.ok()) {
                        Ok(taken) => any |= taken,
                        Err(refused) => {
                            self.end_copy(job, JobState::Failed, Some(refused.to_string()));
                        }
                    }
                }
                Err(Ended::Failed(text)) => self.end_copy(job, JobState::Failed, Some(text)),
                Ok(_) | Err(Ended::Stopped | Ended::Left) => {
                    self.end_copy(job, JobState::Cancelled, None);
                }
            }
        }
        any
    }

    /// A copy was not made, or is not wanted.
    fn end_copy(&self, job: u64, how: JobState, cause: Option<String>) {
        let Some((index, copy)) = ({
            let mut state = self.state();
            let copy = state.copies.remove(&job);
            copy.map(|copy| {
                let index = state.array_by_uuid(copy.array).map(|array| array.index);
                if let Some(drive) = state.drives.get_mut(&copy.drive)
                    && matches!(drive.role, DriveRole::Copy { job: of, .. } if of == job)
                {
                    drive.role = DriveRole::Free;
                }
                if let Some(job) = state.jobs.get_mut(&job) {
                    job.view.state = how;
                    job.view.done_bytes = copy.hand.done.load(Ordering::Relaxed);
                    job.view.total_bytes = copy.hand.total.load(Ordering::Relaxed);
                    job.view.cause.clone_from(&cause);
                    job.view.time_left_s = None;
                }
                (index, copy)
            })
        }) else {
            return;
        };
        // One that was stopped counts for nothing since, and another may have begun; one that takes
        // the place says so itself.
        let stopped = copy.hand.stop.load(Ordering::Relaxed);
        if let Some(index) = index.filter(|_| !stopped && how != JobState::Done) {
            self.no_copy(index, copy.member);
        }
        if how != JobState::Done {
            self.forget_copy(&copy);
            tracing::warn!(
                event = "copy_ended",
                job,
                drive = copy.drive,
                member = copy.member.0,
                cause = cause.as_deref().unwrap_or("cancelled"),
                "it takes no place"
            );
        }
    }

    /// Excludes the member that was copied and puts the copy there; `base`: what the copy has, or
    /// nothing when the member left before. Whether it took the place, or waits.
    fn put_in_place(&self, job: u64, base: Option<Update>) -> Answer<bool> {
        let placing = self.placing(job)?;
        let Placing {
            uuid,
            index,
            member,
            ..
        } = placing;
        let object = format!("member {} of array {}", member.0, placing.array);
        if self.is_undecided(index, About::Members) {
            self.say(job, WAITS);
            return Ok(false);
        }
        let state = self.engine.array_state(index);
        let state = state.ok_or_else(|| gone(job, "the array does not run any more"))?;
        if let Some(why) = why_not_yet(job, (&state, &placing), base)? {
            self.say(job, why);
            return Ok(false);
        }
        let (own, record) = self.format_copy(job, &placing, &state)?;
        if !self.leave_place(job, &object, &placing)? {
            self.say(job, WAITS);
            return Ok(false);
        }
        let replace = Command::Replace {
            member,
            place: MemberPlace {
                drive: placing.candidate.index,
                layout: own.layout,
                appearance: crate::begun::same_appearance(&placing.candidate.drive),
                records: Default::default(),
            },
            record,
            copied: base,
        };
        let replaced = self.engine.change(index, replace);
        if let Err(change @ ChangeError::Refused(_)) = &replaced {
            // Nothing was wrong with it but that it was to be replaced.
            self.bring_back_all(uuid);
            let refusal = of_change(object, change);
            if self.state().drive_of(uuid, member).is_some() {
                return Err(refusal.next("its own drive has its place again"));
            }
            return Err(refusal.next(format!(
                "the member is out: `garboard array replace {} --member {}` with its own drive \
                 takes it back",
                placing.array, member.0
            )));
        }
        let drive = &placing.candidate.name;
        self.has_place(drive, uuid, &own);
        if replaced.is_ok() {
            self.fill(index, uuid);
        }
        self.end_copy(job, JobState::Done, None);
        if replaced.is_ok() {
            // It may have failed already. One that is late is not in its place yet, and must not
            // be taken for the member that left.
            self.release_excluded(&placing.array);
        }
        tracing::info!(
            event = "member_replaced",
            array = placing.array,
            member = member.0,
            drive,
            copied = base.is_some(),
            "what the copy lacks is being filled"
        );
        Ok(true)
    }

    fn placing(&self, job: u64) -> Answer<Placing> {
        let state = self.state();
        let copy = &state.copies[&job];
        let array = state.array_by_uuid(copy.array);
        let array = array.ok_or_else(|| gone(job, "the array is gone"))?;
        let entry = state.drives.get(&copy.drive);
        let entry = entry.ok_or_else(|| gone(job, "the drive is gone"))?;
        Ok(Placing {
            uuid: copy.array,
            array: array.name.clone(),
            index: array.index,
            member: copy.member,
            old: copy.old,
            superblock: copy.superblock,
            formatted: copy.formatted.clone(),
            candidate: Candidate {
                name: copy.drive.clone(),
                index: entry.index,
                drive: Arc::clone(&entry.drive),
                blank: false,
                left_out: None,
            },
        })
    }

    /// Makes a member of the copy that the array does not know yet; once.
    fn format_copy(
        &self,
        job: u64,
        placing: &Placing,
        state: &ArrayState,
    ) -> Answer<(Superblock, MemberRecord)> {
        if let Some(formatted) = &placing.formatted {
            return Ok(formatted.clone());
        }
        let candidate = &placing.candidate;
        let own = own_superblock(placing.superblock, placing.member, (state, candidate));
        let record = format_replacement(candidate, &own, false)
            .inspect_err(|_| forget_replacement(candidate, &own))?;
        let formatted = (own, record);
        if let Some(copy) = self.state().copies.get_mut(&job) {
            copy.formatted = Some(formatted.clone());
        }
        Ok(formatted)
    }

    /// Excludes the member, if it is not out. Whether that is through.
    fn leave_place(&self, job: u64, object: &str, placing: &Placing) -> Answer<bool> {
        let member = placing.member;
        let is_out = || {
            let state = self.engine.array_state(placing.index);
            let state = state.ok_or_else(|| gone(job, "the array does not run any more"))?;
            let in_place = &state.config.members[member.at()];
            Ok(matches!(in_place.state, MemberState::Excluded { .. }))
        };
        let change = |command| self.engine.change(placing.index, command);
        let leaves = {
            let state = self.state();
            state.copies.get(&job).is_some_and(|copy| copy.leaves)
        };
        if !leaves && !is_out()? {
            // Only a copy that still counts is worth losing the member for.
            let step = Copying::GoesOn;
            match change(Command::Copying { member, step }) {
                Ok(()) => {}
                Err(ChangeError::Late) => return Ok(false),
                Err(refused) => return Err(of_change(object.to_owned(), &refused)),
            }
            self.leaves(job, true);
            if matches!(change(Command::Leave { member }), Err(ChangeError::Late)) {
                return Ok(false);
            }
        }
        // It may have left by itself, or may not leave now: what the array says counts.
        if change(Command::Settle).is_err() {
            return Ok(false);
        }
        let out = is_out()?;
        self.leaves(job, out);
        if out {
            // Before another one has the place.
            self.release_excluded(&placing.array);
        }
        Ok(out)
    }

    /// Notes whether there is a way back for the member.
    fn leaves(&self, job: u64, leaves: bool) {
        if let Some(copy) = self.state().copies.get_mut(&job) {
            copy.leaves = leaves;
        }
    }

    /// A drive that took no place carries no member.
    fn forget_copy(&self, copy: &CopyEntry) {
        let Some((own, _)) = &copy.formatted else {
            return;
        };
        let handle = {
            let state = self.state();
            let entry = state.drives.get(&copy.drive);
            entry.map(|entry| (entry.index, Arc::clone(&entry.drive)))
        };
        if let Some((index, drive)) = handle {
            let candidate = Candidate {
                name: copy.drive.clone(),
                index,
                drive,
                blank: false,
                left_out: None,
            };
            forget_replacement(&candidate, own);
        }
    }

    /// What a copy waits for.
    fn say(&self, job: u64, what: &str) {
        if let Some(job) = self.state().jobs.get_mut(&job) {
            job.view.cause = Some(what.to_owned());
        }
    }
}

/// A drive that was a member must not be taken for it once its data are another's.
fn empty(candidate: &Candidate, superblock: &Superblock, force: bool) -> Answer<()> {
    let io = |source| of_io(format!("drive {}", candidate.name), "wiping it", &source);
    if force {
        candidate.drive.wipe().map_err(io)?;
    }
    records::forget(&candidate.drive, superblock).map_err(io)
}

/// What a copy that is made is to be put where.
struct Placing {
    uuid: Uuid,
    array: String,
    index: ArrayIndex,
    member: MemberIndex,
    /// The uuid of the member that was copied.
    old: Uuid,
    superblock: Superblock,
    formatted: Option<(Superblock, MemberRecord)>,
    candidate: Candidate,
}

fn gone(job: u64, what: &str) -> control::EngineError {
    error(ErrorKind::NotFound, format!("job {job}"), what)
}

/// What a copy that is made waits for.
///
/// # Errors
/// When its place is not to be had any more.
fn why_not_yet(
    job: u64,
    (state, placing): (&ArrayState, &Placing),
    base: Option<Update>,
) -> Answer<Option<&'static str>> {
    let in_place = &state.config.members[placing.member.at()];
    match in_place.state {
        _ if in_place.uuid != placing.old => {
            Err(gone(job, "another drive took the member's place"))
        }
        MemberState::InSync if base.is_none() => {
            Err(gone(job, "the member left and came back; begin again"))
        }
        _ if state.hold.is_some() => Ok(Some("made; waits for members that do not work")),
        MemberState::InSync if torn_without(state, placing.member) > 0 => {
            Ok(Some("made; waits until the resync is done"))
        }
        MemberState::InSync if !survives_without(state, placing.member) => Ok(Some(
            "made; waits until the array can lose a member for a moment",
        )),
        MemberState::InSync | MemberState::Excluded { .. } => Ok(None),
        MemberState::Rebuilding { .. } | MemberState::Missing => {
            Err(gone(job, "the member is being filled itself"))
        }
    }
}
