//! Drives that become copies of members and then take their places: what was asked for outlives
//! the engine, which begins such a copy again after a start.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::Control;
use crate::ErrorKind;
use crate::request::MemberReplace;
use crate::view::{ArrayState, ArrayView, DriveState, DriveView, JobKind, JobState};
use crate::wanted::{Change, WantedCopy};

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Arrays with copies that this engine has begun.
    pub(super) begun: BTreeSet<Uuid>,
    /// Arrays of which it was told that their copies have not begun again.
    told: BTreeSet<Uuid>,
}

/// What becomes of a wanted copy.
enum Next {
    /// It is made, or what it needs is not here yet.
    Waits,
    /// Nobody wants it any more.
    Over,
    /// It begins, to a drive of this name.
    Begins(String),
}

impl Control {
    /// A member is being replaced: unless the drive has its place already, that is to go on after
    /// a start.
    pub(super) fn note_copy(&self, view: &ArrayView, replace: &MemberReplace) {
        let drives = self.engine.drives();
        let Some(drive) = drives.iter().find(|drive| drive.name == replace.drive) else {
            return;
        };
        let mut places = view.members.iter();
        let in_place = places.any(|place| place.drive.as_ref() == Some(&replace.drive));
        if in_place {
            self.forget_copy_of(view.uuid, replace.member);
        }
        if in_place || !self.is_copying(view) {
            return;
        }
        let copy = WantedCopy {
            member: replace.member,
            drive: drive.uuid,
        };
        self.tending().copies.begun.insert(view.uuid);
        if let Err(error) = self.wanted.apply(&[Change::Copy(view.uuid, copy)]) {
            tracing::error!(event = "wanted_state_unwritable", %error,
                "should the engine end before the copy is made, it is not begun again");
        }
    }

    /// Forgets copies that have ended, and begins those again that an engine before this one was
    /// making.
    pub(super) fn go_on_with_copies(&self) {
        let wanted = self.wanted.state();
        if wanted.copies.is_empty() {
            return;
        }
        let (arrays, drives) = (self.engine.arrays(), self.engine.drives());
        for (uuid, copy) in &wanted.copies {
            // Somebody has given the drive another use.
            if wanted.spares.contains_key(&copy.drive) {
                self.forget_copy(*uuid);
                continue;
            }
            let Some(array) = arrays.iter().find(|array| array.uuid == *uuid) else {
                continue;
            };
            let is_known = wanted.drives.values().any(|known| known.uuid == copy.drive);
            let drive = drives.iter().find(|drive| drive.uuid == copy.drive);
            match self.next_of_copy(array, drive) {
                Next::Waits if is_known => {}
                Next::Waits | Next::Over => self.forget_copy(*uuid),
                Next::Begins(drive) => self.begin_again(array, copy, drive),
            }
        }
    }

    fn next_of_copy(&self, array: &ArrayView, drive: Option<&DriveView>) -> Next {
        let is_copying = self.is_copying(array);
        let begun = &mut self.tending().copies.begun;
        if is_copying {
            begun.insert(array.uuid);
            return Next::Waits;
        }
        if begun.contains(&array.uuid) {
            return Next::Over;
        }
        let serves = matches!(array.state, ArrayState::Optimal | ArrayState::Degraded);
        match drive {
            // It had its place when the engine ended.
            Some(drive) if drive.state == DriveState::Member => Next::Over,
            // Also one that calls itself a member already, of which the array does not know: the
            // engine has ended just before that was recorded.
            Some(drive) if serves => Next::Begins(drive.name.clone()),
            Some(_) | None => Next::Waits,
        }
    }

    fn begin_again(&self, array: &ArrayView, copy: &WantedCopy, drive: String) {
        let object = format!("array {}", array.name);
        let (uuid, member) = (array.uuid, copy.member);
        let replace = MemberReplace {
            member,
            drive,
            // It may carry something else by now.
            force: false,
        };
        let drive = &replace.drive;
        match self.engine.replace_member(&array.name, &replace) {
            Ok(_) => {
                self.tending().copies.begun.insert(uuid);
                self.record_drives_or_say();
                tracing::info!(
                    event = "copy_begun_again",
                    object,
                    member,
                    drive,
                    "the engine had ended before it was made"
                );
            }
            // Something about the array or the drive, which may pass.
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::Busy
                        | ErrorKind::Degraded
                        | ErrorKind::NotFound
                        | ErrorKind::Unreachable
                ) =>
            {
                if self.tending().copies.told.insert(uuid) {
                    tracing::warn!(event = "copy_waits", object, member, drive, %error);
                }
            }
            Err(error) => {
                tracing::error!(event = "copy_not_begun_again", object, member, drive, %error,
                    "the engine had ended before it was made; ask for it again");
                self.forget_copy(uuid);
            }
        }
    }

    /// Another drive has this place now: a copy that waits for its own is not to push it out.
    pub(super) fn forget_copy_of(&self, array: Uuid, member: u16) {
        let wanted = self.wanted.state();
        if wanted
            .copies
            .get(&array)
            .is_some_and(|copy| copy.member == member)
        {
            self.forget_copy(array);
        }
    }

    fn forget_copy(&self, array: Uuid) {
        if let Err(error) = self.wanted.apply(&[Change::NoCopy(array)]) {
            // As long as it is recorded it would begin again.
            tracing::error!(event = "wanted_state_unwritable", %error);
            return;
        }
        let copies = &mut self.tending().copies;
        copies.begun.remove(&array);
        copies.told.remove(&array);
    }

    /// Whether a copy of a member of the array is being made.
    fn is_copying(&self, array: &ArrayView) -> bool {
        let jobs = self.engine.jobs();
        let mut copies = jobs.iter().filter(|job| job.kind == JobKind::Copy);
        copies.any(|job| job.array == array.name && job.state == JobState::Running)
    }
}
