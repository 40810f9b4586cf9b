//! Members that return: drives that were one when they left are taken back, and only what they have
//! missed is filled.

use std::sync::Arc;

use array::assembly::{NoReturn, Returning, may_return};
use array::format::Superblock;
use array::{Command, MemberPlace};
use control::{Answer, ErrorKind};
use drive::Drive;
use engine::ChangeError;
use units::{ArrayIndex, Clock, MemberIndex, MonotonicClock};
use uuid::Uuid;

use super::identity_of;
use crate::drives::LOCK_PAUSE;
use crate::error::{error, late, not_found, of_change, of_io, of_refusal, of_start};
use crate::found::CLOSE_WAIT;
use crate::state::{DriveEntry, DriveRole, Serving};
use crate::{Host, records};

/// A running array that a drive may return to.
struct Running {
    name: String,
    uuid: Uuid,
    index: ArrayIndex,
    superblock: Superblock,
}

impl Host {
    /// Takes a drive back by itself if it was a member of a running array that has only been away.
    pub(crate) fn bring_back(&self, drive: &str) {
        let Some((array, returning)) = self.returning(drive) else {
            return;
        };
        if !returning.by_itself() {
            tracing::info!(event = "member_waits", array = array.name, member = returning.member.0, drive,
                cause = %returning.cause, "it returns when it is asked to replace itself");
            return;
        }
        if let Some(rival) = self.rival_of(drive) {
            tracing::warn!(
                event = "member_not_returned",
                array = array.name,
                member = returning.member.0,
                drive,
                twin = rival,
                "two drives claim the place"
            );
            return;
        }
        if let Err(refused) = self.give_back(&array, drive, &returning) {
            tracing::warn!(event = "member_not_returned", array = array.name, member = returning.member.0, drive,
                error = %refused, "it stays out");
        }
    }

    /// Another drive that claims a drive's place; or one that has claimed it beside this one and is
    /// only away: that may be the right one, and this a copy of what it was a moment before.
    fn rival_of(&self, drive: &str) -> Option<String> {
        let mut state = self.state();
        let (uuid, mark) = state
            .drives
            .get(drive)
            .map(|own| (own.uuid, own.mark.clone()))?;
        let claims = |other: &&DriveEntry| other.mark == mark && !mark.is_empty();
        let claimants: Vec<(Uuid, String)> = {
            let claimants = state.drives.values().filter(claims);
            claimants
                .map(|other| (other.uuid, other.name.clone()))
                .collect()
        };
        let others = claimants.iter().filter(|(other, _)| *other != uuid);
        let rival = others.map(|(_, name)| name.clone()).next();
        let contested = &mut state.contested;
        if rival.is_some() {
            let claimants = claimants.into_iter().map(|(uuid, _)| uuid);
            contested.entry(mark).or_default().extend(claimants);
            return rival;
        }
        let is_contested = contested
            .get(&mark)
            .is_some_and(|all| all.iter().any(|it| *it != uuid));
        is_contested.then(|| "one that is away".to_owned())
    }

    /// Somebody has said of a drive that it is nobody: who is left alone with what it claimed is
    /// taken back. Only for who may change arrays.
    pub(crate) fn give_up_claims(&self, drive: Uuid) {
        let left: Vec<String> = {
            let mut state = self.state();
            let mut alone = Vec::new();
            for (mark, claimants) in &mut state.contested {
                if claimants.remove(&drive) && claimants.len() == 1 {
                    alone.extend(claimants.iter().map(|one| (*one, mark.clone())));
                }
            }
            let drives = state.drives.values();
            let is_left = |entry: &&DriveEntry| {
                alone
                    .iter()
                    .any(|(uuid, mark)| *uuid == entry.uuid && *mark == entry.mark)
            };
            drives
                .filter(is_left)
                .map(|entry| entry.name.clone())
                .collect()
        };
        for name in left {
            self.bring_back(&name);
        }
    }

    /// Takes back what was left out of an array that has just started.
    pub(super) fn bring_back_all(&self, uuid: Uuid) {
        let left_out: Vec<String> = {
            let state = self.state();
            let drives = state.drives.values();
            let drives = drives.filter(|drive| is_left_out(&drive.role, uuid));
            drives.map(|drive| drive.name.clone()).collect()
        };
        for drive in left_out {
            self.bring_back(&drive);
        }
    }

    /// Takes a drive back as the member that it was, if it is one that left: whether it was.
    pub(super) fn return_to(&self, member: MemberIndex, array: Uuid, drive: &str) -> Answer<bool> {
        let Some((running, returning)) = self.returning(drive) else {
            return Ok(false);
        };
        if returning.member != member || running.uuid != array {
            return Ok(false);
        }
        if let Some(twin) = self.twin_of(drive) {
            let text = format!("drive {twin} claims to be the same member");
            return Err(error(ErrorKind::Invalid, format!("drive {drive}"), text)
                .next("remove the copy, or say --force to fill it from end to end"));
        }
        self.give_back(&running, drive, &returning)?;
        self.fill(running.index, running.uuid);
        Ok(true)
    }

    /// The running array and the place that a drive which is nobody's now had there.
    fn returning(&self, drive: &str) -> Option<(Running, Returning)> {
        let (index, handle) = {
            let state = self.state();
            let entry = state.drives.get(drive)?;
            if matches!(
                entry.role,
                DriveRole::Member { .. } | DriveRole::Copy { .. }
            ) {
                return None;
            }
            (entry.index, Arc::clone(&entry.drive))
        };
        if self.refuse_silent(drive).is_err() {
            // It is closed, and asked again when it is back.
            self.note_silent(drive);
            return None;
        }
        let found = records::read(index, &handle).ok()?;
        let uuid = found.superblock()?.array;
        let running = {
            let state = self.state();
            let entry = state.array_by_uuid(uuid)?;
            if !matches!(entry.serving, Serving::Running) {
                return None;
            }
            Running {
                name: entry.name.clone(),
                uuid,
                index: entry.index,
                superblock: entry.superblock,
            }
        };
        let config = self.engine.array_state(running.index)?.config;
        match may_return(&found, &running.superblock, &config) {
            Ok(returning) => Some((running, returning)),
            Err(reason) => {
                if !matches!(reason, NoReturn::NotOut(_)) {
                    tracing::warn!(event = "member_not_returned", array = running.name, drive, %reason,
                        "it can only be filled from end to end");
                }
                None
            }
        }
    }

    /// Says of a drive that it is a copy of another one here.
    pub(crate) fn note_twin(&self, drive: &str) {
        let Some(twin) = self.twin_of(drive) else {
            return;
        };
        let mut state = self.state();
        let Some((array, member)) = state.drives.get(&twin).and_then(|twin| match twin.role {
            DriveRole::Member { array, member } => Some((array, member)),
            DriveRole::LeftOut { .. } | DriveRole::Copy { .. } | DriveRole::Free => None,
        }) else {
            return;
        };
        let name = state.array_by_uuid(array).map(|array| array.name.clone());
        let of = name.unwrap_or_else(|| array.to_string());
        if let Some(entry) = state.drives.get_mut(drive) {
            let cause = format!(
                "it says that it is {member} of array {of}, which is drive {twin}: a copy; \
                 `garboard drive wipe {drive} --force` makes it free"
            );
            entry.role = DriveRole::LeftOut {
                array,
                member: Some(member),
                cause,
            };
        }
    }

    /// Another drive here with the same member's superblock.
    fn twin_of(&self, drive: &str) -> Option<String> {
        let state = self.state();
        let mark = &state.drives.get(drive)?.mark;
        let mut others = state.drives.values().filter(|other| other.name != drive);
        others
            .find(|other| other.mark == *mark && !mark.is_empty())
            .map(|other| other.name.clone())
    }

    fn give_back(&self, array: &Running, drive: &str, returning: &Returning) -> Answer<()> {
        let object = format!("member {} of array {}", returning.member.0, array.name);
        // Its exclusion is through on all reactors, and what it was asked before has landed:
        // a write that lands later would undo what is filled now.
        let settled = self.engine.change(array.index, Command::Settle);
        settled.map_err(|change| of_change(object.clone(), &change))?;
        // What was asked before is decided only now, and may have given the place away.
        let Some((_, returning)) = self.returning(drive) else {
            let text = format!("drive {drive} cannot return any more");
            return Err(error(ErrorKind::Busy, object, text).next(format!(
                "`garboard array show {}` tells its state",
                array.name
            )));
        };
        self.let_go(drive, None)?;
        let (index, handle) = {
            let state = self.state();
            let entry = state.drives.get(drive);
            let entry = entry.ok_or_else(|| not_found("drive", drive))?;
            (entry.index, Arc::clone(&entry.drive))
        };
        let io = |source| of_io(format!("drive {drive}"), "erasing its old log", &source);
        records::erase(&handle, &array.superblock).map_err(io)?;
        let records = records::places(&handle, &array.superblock);
        let member = returning.member;
        // Who stopped one that is due still wants it stopped.
        let state = self.engine.array_state(array.index);
        let was_due = state.is_some_and(|state| state.pass.is_some());
        let returned = self.engine.change(
            array.index,
            Command::Return {
                member,
                place: MemberPlace {
                    drive: index,
                    layout: array.superblock.layout,
                    appearance: crate::begun::same_appearance(&handle),
                    records,
                },
                uuid: returning.uuid,
                identity: identity_of(&handle),
            },
        );
        if let Err(ChangeError::Refused(refusal)) = &returned {
            return Err(of_refusal(object, refusal));
        }
        let mark = self
            .state()
            .drives
            .get(drive)
            .map(|entry| entry.mark.clone());
        if let Some(mark) = mark {
            self.state().contested.remove(&mark);
        }
        if let Some(entry) = self.state().drives.get_mut(drive) {
            entry.role = DriveRole::Member {
                array: array.uuid,
                member,
            };
        }
        if returned.is_err() {
            // The drive is taken all the same: it is a member once the others answer.
            return Err(late(object));
        }
        if !was_due {
            self.fill(array.index, array.uuid);
        }
        // It may have failed already.
        self.release_excluded(&array.name);
        tracing::info!(event = "drive_returned", array = array.name, member = member.0, drive,
            since = returning.since.0, cause = %returning.cause, "what it has missed is being filled");
        Ok(())
    }

    /// Waits until nothing that drives were asked which no array uses is under way any more: a
    /// write that lands later would undo what is written to them now.
    pub(crate) fn await_idle<'a>(
        &self,
        drives: impl IntoIterator<Item = &'a String>,
    ) -> Answer<()> {
        for name in drives {
            let is_free = {
                let state = self.state();
                let role = state.drives.get(name).map(|drive| &drive.role);
                role.is_some_and(DriveRole::is_unused)
            };
            if is_free {
                self.let_go(name, None)?;
            }
        }
        Ok(())
    }

    /// Waits until nothing that a drive was asked is under way any more; then `next`, which an
    /// array waits for, is reached by its number, or the drive itself again.
    pub(super) fn let_go(&self, name: &str, next: Option<(&Arc<Drive>, ArrayIndex)>) -> Answer<()> {
        let object = format!("drive {name}");
        let (index, handle) = {
            let state = self.state();
            let entry = state.drives.get(name);
            let entry = entry.ok_or_else(|| not_found("drive", name))?;
            (entry.index, Arc::clone(&entry.drive))
        };
        let start = |start| of_start(object.clone(), &start);
        self.engine.detach_drive(index).map_err(start)?;
        let asked = MonotonicClock.now();
        // A reactor keeps its drive until the kernel has let go of the last request to it; the
        // others that have it are the list of drives and this function.
        let mut landed = Arc::strong_count(&handle) <= 2;
        while !landed && MonotonicClock.now().since(asked) < CLOSE_WAIT {
            std::thread::park_timeout(LOCK_PAUSE);
            landed = Arc::strong_count(&handle) <= 2;
        }
        let attached = match next.filter(|_| landed) {
            Some((next, array)) => self.engine.attach_awaited(index, next, array),
            None => self.engine.attach_drive(index, &handle),
        };
        attached.map_err(start)?;
        if landed {
            return Ok(());
        }
        Err(error(
            ErrorKind::Busy,
            object,
            "requests to it are still under way",
        )
        .next("wait until it answers, and try again"))
    }
}

fn is_left_out(role: &DriveRole, of: Uuid) -> bool {
    matches!(role, DriveRole::LeftOut { array, .. } if *array == of)
}
