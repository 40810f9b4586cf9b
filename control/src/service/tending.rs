//! Spares start by themselves: looks for lost members again and again, and replaces them.
//!
//! A look is one call like any other that changes something, so two arrays never get the same
//! drive. What is remembered between two looks is lost with the process: then the grace begins
//! anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use units::Instant;
use units::limits::SPARE_RETRY;
use uuid::Uuid;

use super::Control;
use super::copies::Copies;
use super::spares::{need_of, pool_of};
use crate::name;
use crate::request::MemberReplace;
use crate::spares::{Choice, Need, Spare, choose};
use crate::view::{ArrayState, ArrayView, DriveState, DriveView, MemberState};
use crate::wanted::{Change, WantedState};
use crate::{Answer, ErrorKind};

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Tending {
    /// Since when a place of an array is known to be lost.
    lost: BTreeMap<(Uuid, u16), Instant>,
    /// Places that were failed by command: nobody waits for their drives.
    pub(super) given_up: BTreeSet<(Uuid, u16)>,
    /// Drives that could not be made members, by uuid: since when, and why.
    pub(super) unusable: BTreeMap<Uuid, (Instant, String)>,
    /// By array, why no spare has started.
    pub(super) warnings: BTreeMap<Uuid, String>,
    /// Arrays that were stopped, which could not be recorded.
    pub(super) unrecorded_stops: BTreeSet<Uuid>,
    /// Drives that are spares no more, which is still to be recorded.
    used: BTreeSet<Uuid>,
    /// Copies of members that are wanted.
    pub(super) copies: Copies,
}

/// A place that is lost for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    array: Uuid,
    member: u16,
}

impl Tending {
    /// Notes which places are lost now, and says which are for long enough: those first whose
    /// groups have lost the most.
    fn due(&mut self, arrays: &[ArrayView], now: Instant, grace: Duration) -> Vec<Due> {
        let mut lost = BTreeMap::new();
        let mut due = Vec::new();
        for array in arrays {
            if array.state != ArrayState::Degraded {
                continue;
            }
            let is_lost = |state| matches!(state, MemberState::Missing | MemberState::Failed);
            let gone = || array.members.iter().filter(|place| is_lost(place.state));
            for place in gone() {
                let key = (array.uuid, place.member);
                let since = self.lost.get(&key).copied().unwrap_or(now);
                lost.insert(key, since);
                if now.since(since) >= grace || self.given_up.contains(&key) {
                    let exposed = gone().filter(|other| other.group == place.group).count();
                    let (array, member) = key;
                    due.push((exposed, Due { array, member }));
                }
            }
        }
        self.given_up.retain(|key| lost.contains_key(key));
        self.lost = lost;
        self.unusable
            .retain(|_, (since, _)| now.since(*since) < SPARE_RETRY);
        due.sort_by_key(|(exposed, _)| std::cmp::Reverse(*exposed));
        due.into_iter().map(|(_, due)| due).collect()
    }
}

impl Control {
    /// Another grace than [`units::limits::SPARE_GRACE`], for tests that do not wait for it.
    #[must_use]
    pub fn with_spare_grace(mut self, grace: Duration) -> Control {
        self.spare_grace = grace;
        self
    }

    pub(super) fn tending(&self) -> MutexGuard<'_, Tending> {
        self.tending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look: replaces members that are lost for longer than the grace by spares.
    ///
    /// # Errors
    /// `Internal` when the wanted state cannot be written.
    pub fn tend_spares(&self, now: Instant) -> Answer<()> {
        let Ok(_changing) = self.change() else {
            return Ok(());
        };
        let state = self.wanted.state();
        if self.engine.tend_copies() {
            self.record_drives_or_say();
        }
        self.go_on_with_copies();
        self.finish_removals();
        let mut recorded = self.forget_used();
        if state.spares.is_empty() && state.pools.is_empty() {
            let mut tending = self.tending();
            let kept = std::mem::take(&mut *tending);
            *tending = Tending {
                copies: kept.copies,
                unrecorded_stops: kept.unrecorded_stops,
                ..Tending::default()
            };
            return recorded;
        }
        let arrays = self.engine.arrays();
        let due = self.tending().due(&arrays, now, self.spare_grace);
        let mut warnings = BTreeMap::new();
        for due in due {
            let array = arrays.iter().find(|array| array.uuid == due.array);
            let array = array.expect("its place is due");
            match self.fill(array, due.member, now) {
                Ok(Some(warning)) => {
                    warnings.insert(array.uuid, warning);
                }
                Ok(None) => {}
                // The others are no less due.
                Err(unrecorded) => recorded = Err(unrecorded),
            }
        }
        let told = std::mem::replace(&mut self.tending().warnings, warnings.clone());
        for (uuid, warning) in &warnings {
            if told.get(uuid) != Some(warning) {
                let array = arrays.iter().find(|array| array.uuid == *uuid);
                let name = array.map_or("", |array| array.name.as_str());
                tracing::warn!(event = "no_spare", object = %format_args!("array {name}"), warning);
            }
        }
        recorded
    }

    /// One look for write caches that somebody has turned on.
    ///
    /// # Errors
    /// None: what goes wrong is told.
    pub fn tend_write_caches(&self, _: Instant) -> Answer<()> {
        self.engine.look_at_write_caches();
        Ok(())
    }

    /// One look at the load of reactors.
    ///
    /// # Errors
    /// None.
    pub fn tend_load(&self, _: Instant) -> Answer<()> {
        self.engine.look_at_load();
        Ok(())
    }

    /// One look at who is in sync, and at what late starts have told. It waits for no other call:
    /// until it has been, a start without the others would trust a member that they have left out.
    ///
    /// # Errors
    /// `Full` or `Internal` when the wanted state cannot be written.
    pub fn tend_memberships(&self, _: Instant) -> Answer<()> {
        self.record_memberships()?;
        self.record_told()
    }

    /// Gives a place the best spare that there is. Why it got none.
    fn fill(&self, array: &ArrayView, member: u16, now: Instant) -> Answer<Option<String>> {
        let mut busy = BTreeMap::new();
        loop {
            let state = self.wanted.state();
            let drives = self.engine.drives();
            let need = need_of(array, pool_of(&state, array.uuid));
            let (spares, unusable) = self.usable((array, &need), (&state, &drives), &busy);
            let spare = match choose(&need, &spares) {
                Choice::Take(spare) => spare.clone(),
                Choice::NoneFits(why) => {
                    return Ok(Some(format!("no spare for member {member}: {why}")));
                }
                Choice::None => {
                    let why = if unusable.is_empty() {
                        "there is none left".to_owned()
                    } else {
                        unusable.join("; ")
                    };
                    let waits = need.pool.is_some() || !unusable.is_empty();
                    return Ok(waits.then(|| format!("no spare for member {member}: {why}")));
                }
            };
            let replace = MemberReplace {
                member,
                drive: spare.drive.clone(),
                force: false,
            };
            let replaced = self.engine.fill_by_spare(&array.name, &replace);
            let Err(refused) = &replaced else {
                self.started(array, member, &spare)?;
                return Ok(None);
            };
            // One that is only late is a member all the same.
            let taken =
                |drive: &DriveView| drive.uuid == spare.uuid && drive.state == DriveState::Member;
            if self.engine.drives().iter().any(taken) {
                self.started(array, member, &spare)?;
                return Ok(None);
            }
            let is_about_drive = refused.object == name::object::<DriveView>(&spare.drive);
            match refused.kind {
                // Something that may pass: about the drive, as of one that does not answer, and
                // the next look tries it again; or about the array.
                ErrorKind::Busy | ErrorKind::Degraded | ErrorKind::NotFound if is_about_drive => {
                    busy.insert(spare.uuid, refused.to_string());
                }
                ErrorKind::Busy | ErrorKind::Degraded | ErrorKind::NotFound => {
                    return Ok(Some(format!("no spare for member {member}: {refused}")));
                }
                ErrorKind::Exists
                | ErrorKind::Unsafe
                | ErrorKind::Invalid
                | ErrorKind::Full
                | ErrorKind::Internal
                | ErrorKind::Unreachable => {
                    tracing::error!(event = "spare_unusable", object = %format_args!("drive {}", spare.drive),
                        array = array.name, member, error = %refused);
                    let why = (now, refused.to_string());
                    self.tending().unusable.insert(spare.uuid, why);
                }
            }
        }
    }

    /// A spare has become a member.
    fn started(&self, array: &ArrayView, member: u16, spare: &Spare) -> Answer<()> {
        self.tending().used.insert(spare.uuid);
        let recorded = self.forget_used();
        self.record_drives_or_say();
        self.tending().lost.remove(&(array.uuid, member));
        self.forget_copy_of(array.uuid, member);
        tracing::warn!(event = "spare_started", object = %format_args!("array {}", array.name), member,
            drive = spare.drive, of = ?spare.of, "a spare takes the place of a lost member");
        recorded
    }

    /// Records which drives are spares no more; what could not be is tried again by the next look.
    fn forget_used(&self) -> Answer<()> {
        let used = self.tending().used.clone();
        if used.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = used.into_iter().map(Change::NoSpare).collect();
        self.wanted.apply(&changes)?;
        self.tending().used.clear();
        Ok(())
    }

    /// The array's spares that could be members, and why others of them could not, for a while or
    /// just now.
    fn usable(
        &self,
        (array, need): (&ArrayView, &Need),
        (state, drives): (&WantedState, &[DriveView]),
        busy: &BTreeMap<Uuid, String>,
    ) -> (Vec<Spare>, Vec<String>) {
        let tending = self.tending();
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        for drive in drives {
            let of = state.spares.get(&drive.uuid);
            let Some(of) = of.filter(|of| need.may_take(of)) else {
                continue;
            };
            // Left out of this very array: the engine may have ended while it was made a member. It
            // is looked at before it is written to.
            let is_half_made =
                drive.state == DriveState::Failed && drive.array.as_ref() == Some(&array.name);
            let useless = tending.unusable.get(&drive.uuid).map(|(_, why)| why);
            if let Some(why) = useless.or_else(|| busy.get(&drive.uuid)) {
                unusable.push(format!("drive {} cannot be used: {why}", drive.name));
            } else if drive.state == DriveState::Free || is_half_made {
                usable.push(Spare {
                    drive: drive.name.clone(),
                    uuid: drive.uuid,
                    size_bytes: drive.size_bytes,
                    block_bytes: drive.block_bytes,
                    of: of.clone(),
                });
            }
        }
        (usable, unusable)
    }

    /// Forgets that drives are spares which are members since: the engine ended between the two.
    pub(super) fn forget_used_spares(&self, state: &WantedState) -> Answer<()> {
        let drives = self.engine.drives();
        let used = drives.iter().filter(|drive| {
            drive.state == DriveState::Member && state.spares.contains_key(&drive.uuid)
        });
        let changes: Vec<Change> = used.map(|drive| Change::NoSpare(drive.uuid)).collect();
        self.wanted.apply(&changes)
    }
}
