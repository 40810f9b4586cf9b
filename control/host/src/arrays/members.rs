//! Members of a running array: failed by command, released, replaced.

use std::io;
use std::sync::Arc;

use array::assembly::Verdict;
use array::format::{FormatError, MemberRecord, MemberState, Missed, Superblock};
use array::{Command, MapState, MemberPlace};
use control::request::MemberReplace;
use control::view::ArrayView;
use control::{Answer, EngineError, ErrorKind};
use engine::{ArrayState, ChangeError};
use units::{ArrayIndex, MemberIndex, Size, StripeIndex};
use uuid::Uuid;

use super::{Candidate, created_now, identity_of, sectors_of};
use crate::contents::{doubt, ends_unread};
use crate::drives::torn_without;
use crate::error::{error, not_found, of_io, of_refusal};
use crate::state::DriveRole;
use crate::undecided::About;
use crate::{Host, found, records, views};

impl Host {
    pub(crate) fn do_fail_member(&self, name: &str, member: u16) -> Answer<ArrayView> {
        let object = format!("member {member} of array {name}");
        let (index, _) = self.running(name)?;
        self.refuse_missing_member(name, member)?;
        self.refuse_waiting(&object, (name, index), Some(MemberIndex(member)))?;
        self.refuse_torn(&object, (name, index), MemberIndex(member))?;
        self.refuse_beside_deleted(&object, (name, index), MemberIndex(member))?;
        let failed = self.engine.change(
            index,
            Command::Fail {
                member: MemberIndex(member),
            },
        );
        failed.map_err(|change| self.of_change(object, (name, index), &change))?;
        tracing::warn!(event = "member_failed", array = name, member, "by command");
        // This one was carried out last.
        self.catch_up();
        self.release_excluded(name);
        self.array_view(name)
    }

    /// Refuses to give away what parity cannot tell yet.
    fn refuse_torn(
        &self,
        object: &str,
        (name, index): (&str, ArrayIndex),
        member: MemberIndex,
    ) -> Answer<()> {
        let state = self.engine.array_state(index);
        let torn = state.map_or(0, |state| torn_without(&state, member));
        if torn == 0 {
            return Ok(());
        }
        let text = format!(
            "array {name} waits for a resync of {torn} stripes, and what the member holds there \
             cannot be told without it"
        );
        let next = format!(
            "wait until that is done (`garboard job list`; `garboard array resync {name} start` if \
             it was stopped); `garboard drive remove DRIVE --force` takes it out now, and what it \
             held there may read as something else"
        );
        Err(error(ErrorKind::Unsafe, object, text).next(next))
    }

    fn refuse_missing_member(&self, name: &str, member: u16) -> Answer<()> {
        let state = self.state();
        let entry = state
            .arrays
            .get(name)
            .ok_or_else(|| not_found("array", name))?;
        let members = entry.superblock.geometry.members();
        if usize::from(member) < members {
            return Ok(());
        }
        let text = format!("the array has members 0 to {}", members - 1);
        Err(error(
            ErrorKind::NotFound,
            format!("member {member} of array {name}"),
            text,
        )
        .next(format!("`garboard array show {name}` lists them")))
    }

    /// Refuses to forget by the way what may decide how an array starts: a side of a split brain.
    pub(crate) fn refuse_side(&self, object: &str, array: Uuid, force: bool) -> Answer<()> {
        let state = self.state();
        let Some(entry) = state.array_by_uuid(array).filter(|_| !force) else {
            return Ok(());
        };
        let Some(split @ Verdict::Refused { .. }) = views::verdict(&state, entry) else {
            return Ok(());
        };
        let text = format!(
            "it is of array {}, which is not started: {split}",
            entry.name
        );
        let next = "--force forgets it nevertheless, and gives up what only it holds";
        Err(error(ErrorKind::Unsafe, object, text).next(next))
    }

    /// Drives whose members were excluded are nobody's any more. As long as it is not decided
    /// whether one becomes a member, its place looks like that, too.
    pub(crate) fn release_excluded(&self, name: &str) {
        let mut state = self.state();
        let Some(entry) = state.arrays.get(name) else {
            return;
        };
        let (uuid, index) = (entry.uuid, entry.index);
        if self.is_undecided(index, About::Members) {
            return;
        }
        let Some(running) = self.engine.array_state(index) else {
            return;
        };
        for drive in state.drives.values_mut() {
            let DriveRole::Member { array, member } = drive.role else {
                continue;
            };
            if array != uuid {
                continue;
            }
            let place = &running.config.members[member.at()];
            if let MemberState::Excluded { cause, .. } = place.state {
                // The place may be another drive's, which this one was to follow.
                let was_it = drive.mark.is_empty() || drive.mark.ends_with(&place.uuid.to_string());
                let cause = if was_it {
                    cause.to_string()
                } else {
                    format!("the array has not taken it as {member}: try again when all answer")
                };
                drive.role = DriveRole::LeftOut {
                    array,
                    member: Some(member),
                    cause,
                };
            }
        }
    }

    pub(crate) fn do_replace_member(
        &self,
        name: &str,
        replace: &MemberReplace,
        by_spare: bool,
    ) -> Answer<ArrayView> {
        let object = format!("member {} of array {name}", replace.member);
        let (index, uuid) = self.decided(name, About::Members)?;
        self.refuse_missing_member(name, replace.member)?;
        self.refuse_waiting(&object, (name, index), None)?;
        self.release_excluded(name);
        let member = MemberIndex(replace.member);
        let is_filled = self.state().drive_of(uuid, member).is_some();
        let copy = self.copy_of(uuid).filter(|&(_, copied)| copied == member);
        if !is_filled && !replace.force && self.return_to(member, uuid, &replace.drive)? {
            copy.inspect(|&(job, _)| self.stop_copy(job));
            return self.array_view(name);
        }
        if !by_spare {
            self.refuse_doubtful(name, replace)?;
        }
        if is_filled {
            return self.replace_by_copy((name, index, uuid), replace, by_spare);
        }
        let settled = self.engine.change(index, Command::Settle);
        settled.map_err(|change| self.of_change(object.clone(), (name, index), &change))?;
        self.await_idle([&replace.drive])?;
        let (candidate, superblock) = self.fitting(&object, (name, uuid), replace, by_spare)?;
        let running = self
            .engine
            .array_state(index)
            .ok_or_else(|| not_found("array", name))?;
        let own = own_superblock(superblock, member, (&running, &candidate));
        self.note_used(std::slice::from_ref(&candidate));
        let record = format_replacement(&candidate, &own, replace.force)
            .inspect_err(|_| forget_replacement(&candidate, &own))?;
        let place = MemberPlace {
            drive: candidate.index,
            layout: superblock.layout,
            appearance: crate::begun::same_appearance(&candidate.drive),
            records: Default::default(),
        };
        let replaced = self.engine.change(
            index,
            Command::Replace {
                member,
                place,
                record,
                copied: None,
            },
        );
        if let Err(ChangeError::Refused(refusal)) = &replaced {
            forget_replacement(&candidate, &own);
            return Err(of_refusal(object, refusal));
        }
        // The member had left, and this drive takes its place instead of a copy.
        copy.inspect(|&(job, _)| self.stop_copy(job));
        self.has_place(&replace.drive, uuid, &own);
        if let Err(late) = replaced {
            // The drive is taken all the same: it becomes a member once the others answer.
            return Err(self.of_change(object, (name, index), &late));
        }
        self.fill(index, uuid);
        // It may have failed already.
        self.release_excluded(name);
        tracing::info!(
            event = "member_replaced",
            array = name,
            member = replace.member,
            drive = replace.drive,
            "rebuild begins"
        );
        self.array_view(name)
    }

    /// A drive is the member that its superblock says.
    pub(super) fn has_place(&self, drive: &str, array: Uuid, own: &Superblock) {
        if let Some(entry) = self.state().drives.get_mut(drive) {
            let member = own.member;
            entry.role = DriveRole::Member { array, member };
            entry.now_holds(found::mark(own));
        }
    }

    /// A place that a drive fills: another one becomes a copy of that first.
    fn replace_by_copy(
        &self,
        (name, index, uuid): (&str, ArrayIndex, Uuid),
        replace: &MemberReplace,
        by_spare: bool,
    ) -> Answer<ArrayView> {
        let object = format!("member {} of array {name}", replace.member);
        if let Some((job, copied)) = self.copy_of(uuid) {
            let text = format!("a copy of {copied} is being made, job {job}");
            return Err(error(ErrorKind::Busy, object, text)
                .next(format!("wait for it, or `garboard job cancel {job}`")));
        }
        self.refuse_uncopied((name, index), replace.member)?;
        self.await_idle([&replace.drive])?;
        let (candidate, superblock) = self.fitting(&object, (name, uuid), replace, by_spare)?;
        self.begin_copy((name, index, uuid), replace, (&candidate, superblock))
    }

    /// Refuses to copy a member that does not hold all that it should, and says when it will.
    fn refuse_uncopied(&self, (name, index): (&str, ArrayIndex), member: u16) -> Answer<()> {
        let Some(running) = self.engine.array_state(index) else {
            return Ok(());
        };
        let place = &running.map.members[MemberIndex(member).at()];
        let (text, next) = if matches!(place.state, MapState::Rebuilding { .. }) {
            let next = format!(
                "wait for it (`garboard job list`); or `garboard array fail {name} --member \
                 {member}` takes its drive out, and another one can be put there"
            );
            ("a rebuild is filling it, so there is nothing to copy", next)
        } else if running.map.stripes_untrusted() > 0 {
            let text = "its array waits for a resync, and no member is copied meanwhile";
            let next = format!(
                "wait until that is done (`garboard job list`; `garboard array resync {name} \
                 start` if it was stopped)"
            );
            (text, next)
        } else {
            return Ok(());
        };
        let object = format!("member {member} of array {name}");
        Err(error(ErrorKind::Busy, object, text).next(next))
    }

    /// The drive that shall take a place, if it may and fits, and a superblock of the array.
    fn fitting(
        &self,
        object: &str,
        (name, uuid): (&str, Uuid),
        replace: &MemberReplace,
        by_spare: bool,
    ) -> Answer<(Candidate, Superblock)> {
        let candidates = self.candidates(object, std::slice::from_ref(&replace.drive))?;
        let candidate = candidates.into_iter().next().expect("one was asked for");
        if !replace.force {
            let was_member = matches!(
                self.state().drives.get(&replace.drive).map(|drive| drive.role.clone()),
                Some(DriveRole::LeftOut { array, .. }) if array == uuid
            );
            // Of a spare nobody has said that what it holds as a member may go.
            let was_member = was_member && (!by_spare || self.is_half_made(name, &candidate));
            if !(was_member && is_only_of((object, name, uuid), &candidate)?) {
                self.refuse_contents(object, std::slice::from_ref(&candidate), by_spare)?;
            }
        }
        let superblock = {
            let state = self.state();
            let entry = state.arrays.get(name);
            entry.ok_or_else(|| not_found("array", name))?.superblock
        };
        refuse_unfit(object, &candidate, &superblock)?;
        Ok((candidate, superblock))
    }

    /// Whether a drive was to become a member of this array when the engine ended: it says that it
    /// is one whom the array does not know, and has not got a record.
    fn is_half_made(&self, name: &str, candidate: &Candidate) -> bool {
        let index = self.state().arrays.get(name).map(|array| array.index);
        let Some(running) = index.and_then(|index| self.engine.array_state(index)) else {
            return false;
        };
        let Ok(found) = records::read(candidate.index, &candidate.drive) else {
            return false;
        };
        let Some(own) = found.superblock().map(|own| own.member_uuid) else {
            return false;
        };
        let is_known = running.config.members.iter().any(|one| one.uuid == own);
        let blank = |record: &Result<_, FormatError>| matches!(record, Err(FormatError::Blank));
        !is_known && !found.configs.is_empty() && found.configs.iter().all(blank)
    }

    /// Refuses to fill a free drive of which nobody can tell what it holds, if an array has had it.
    /// One that is a spare was looked at, or erased, when it became one.
    pub(crate) fn refuse_doubtful(&self, name: &str, replace: &MemberReplace) -> Answer<()> {
        let Some(array) = self.lost_by(&replace.drive).filter(|_| !replace.force) else {
            return Ok(());
        };
        self.await_idle([&replace.drive])?;
        let drive = {
            let state = self.state();
            state
                .drives
                .get(&replace.drive)
                .map(|entry| Arc::clone(&entry.drive))
        };
        let drive = drive.ok_or_else(|| not_found("drive", &replace.drive))?;
        let Some(why) = doubt(&drive) else {
            return Ok(());
        };
        let object = format!("member {} of array {name}", replace.member);
        Err(untold(&object, (&replace.drive, &array), &why))
    }
}

fn untold(object: &str, (drive, array): (&str, &str), why: &str) -> EngineError {
    let text = format!("drive {drive} was a member of array {array}, and {why}");
    error(ErrorKind::Unsafe, object, text)
        .next("--force fills it from end to end, and what it holds is lost")
}

/// Whether a drive that was a member of this array carries nothing but what it had as that, or
/// nothing at all. Another one may be at its path now, and it may have been given another use.
///
/// Refused where nobody can tell: what it holds may be all that is left of something.
fn is_only_of((object, name, array): (&str, &str, Uuid), candidate: &Candidate) -> Answer<bool> {
    let drive = &candidate.drive;
    let untold = |why: String| untold(object, (&candidate.name, name), &why);
    if let Some(why) = doubt(drive) {
        return Err(untold(why));
    }
    let io = |source: io::Error| untold(ends_unread(&source));
    if drive.foreign_signature().map_err(io)?.is_some() {
        return Ok(false);
    }
    let found = records::read(candidate.index, drive).map_err(io)?;
    let of = found.superblock().map(|superblock| superblock.array);
    Ok(of.is_none_or(|of| of == array))
}

/// The superblock of a new member in this place.
pub(super) fn own_superblock(
    superblock: Superblock,
    member: MemberIndex,
    (running, candidate): (&ArrayState, &Candidate),
) -> Superblock {
    Superblock {
        member,
        member_uuid: Uuid::new_v4(),
        update: running.config.update,
        sectors: sectors_of(&candidate.drive),
        created: created_now(),
        ..superblock
    }
}

/// Refuses a drive that is too small for a member or has larger blocks than the array.
fn refuse_unfit(object: &str, candidate: &Candidate, superblock: &Superblock) -> Answer<()> {
    let drive_bytes = candidate.drive.info().size_bytes;
    let least = superblock.layout.member_bytes;
    if drive_bytes < least {
        let text = format!(
            "drive {} has {drive_bytes} bytes ({}) and a member needs {least} ({})",
            candidate.name,
            Size(drive_bytes),
            Size(least)
        );
        return Err(error(ErrorKind::Full, object, text).next("choose a larger drive"));
    }
    if candidate.drive.info().block_bytes > superblock.geometry.block_size().bytes() {
        let text = format!("drive {} has larger blocks than the array", candidate.name);
        return Err(
            error(ErrorKind::Invalid, object, text).next("choose a drive of smaller blocks")
        );
    }
    Ok(())
}

/// Writes an empty member with this superblock to a drive, and says what the array's record
/// shall say of it.
pub(super) fn format_replacement(
    candidate: &Candidate,
    own: &Superblock,
    force: bool,
) -> Answer<MemberRecord> {
    let io = |source| {
        of_io(
            format!("drive {}", candidate.name),
            "writing to it",
            &source,
        )
    };
    if force {
        candidate.drive.wipe().map_err(io)?;
    }
    // It may have been a member before, with pieces in its log that are not dead yet.
    records::erase(&candidate.drive, own).map_err(io)?;
    records::format(&candidate.drive, own).map_err(io)?;
    Ok(MemberRecord {
        uuid: own.member_uuid,
        state: MemberState::Rebuilding {
            until: StripeIndex(0),
            missed: Missed::ALL,
        },
        drive_bytes: candidate.drive.info().size_bytes,
        identity: identity_of(&candidate.drive),
    })
}

/// Takes back what [`format_replacement`] wrote: the drive stays free.
pub(super) fn forget_replacement(candidate: &Candidate, own: &Superblock) {
    if let Err(source) = records::forget(&candidate.drive, own) {
        tracing::warn!(
            event = "drive_not_wiped",
            drive = candidate.name,
            error = %source,
            "may name a place that it does not fill"
        );
    }
}
