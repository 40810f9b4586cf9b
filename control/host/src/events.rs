//! What arrays tell: written into the log, and handed to who acts on it.

use array::format::ExclusionCause;
use array::{Event, MemberPace, Pass, PassEvent};
use units::{ArrayIndex, MemberIndex};
use uuid::Uuid;

use crate::Host;
use crate::views::{held_because, microseconds};

impl Host {
    /// Writes what arrays tell into the log, until the engine stops.
    pub(crate) fn log_event(&self, array: ArrayIndex, event: &Event) {
        let (name, uuid) = {
            let state = self.state();
            let found = state.arrays.values().find(|entry| entry.index == array);
            found.map_or((array.to_string(), None), |entry| {
                (entry.name.clone(), Some(entry.uuid))
            })
        };
        match event {
            Event::MemberExcluded { member, status } => {
                tracing::warn!(event = "member_excluded", array = name, member = member.0, status = ?status,
                    "the array goes on without it");
                self.release_excluded(&name);
            }
            Event::MemberReturned { member, regions } => {
                tracing::info!(
                    event = "member_returned",
                    array = name,
                    member = member.0,
                    regions,
                    "what it has missed is being filled"
                );
            }
            Event::MemberLags { .. }
            | Event::MemberKeepsUp { .. }
            | Event::MemberLeftBehind { .. } => self.log_pace((&name, uuid), event),
            Event::BeyondRedundancy { .. }
            | Event::Holds { .. }
            | Event::HoldTimedOut { .. }
            | Event::MemberWorks { .. }
            | Event::Resumes { .. } => self.log_hold((&name, uuid), event),
            Event::Pass { pass, state } => {
                tracing::info!(event = "background_pass", array = name, pass = ?pass, state = ?state, "pass");
                if (*pass, *state) == (Pass::Scrub, PassEvent::Finished) {
                    self.finish_scrub(array);
                }
                if *state != PassEvent::Began {
                    self.refresh_jobs();
                }
            }
            Event::BlocksLost { .. }
            | Event::LostListFull { .. }
            | Event::NotGivenUp { .. }
            | Event::BlocksHealed { .. } => self.log_losses((&name, array), event),
            Event::WriteRefused { member, .. }
            | Event::RecordMoved { member }
            | Event::LogSlotRefused { member } => {
                log_refused(&name, &self.drive_name_of(uuid, *member), event);
            }
            Event::Scrubbed(finding) => self.note_finding(array, finding),
            Event::MetadataFailed => {
                tracing::error!(
                    event = "metadata_failed",
                    array = name,
                    "no more writes are taken"
                );
            }
            Event::CommandDone { .. } => {}
        }
    }

    /// What the drive of a member of an array is called.
    fn drive_name_of(&self, array: Option<Uuid>, member: MemberIndex) -> String {
        let state = self.state();
        let drive = array.and_then(|array| state.drive_of(array, member));
        drive.map_or_else(|| "-".to_owned(), |drive| drive.name.clone())
    }

    /// Writes into the log which members take longer than their peers, and what becomes of them.
    fn log_pace(&self, (name, uuid): (&str, Option<Uuid>), event: &Event) {
        let drive_of = |member| self.drive_name_of(uuid, member);
        let p99 = |pace: &MemberPace| pace.p99.into_iter().flatten().max().map(microseconds);
        match event {
            Event::MemberLags { member, pace } => {
                tracing::warn!(
                    event = "member_lags",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    p99_us = p99(pace),
                    "takes more than four times as long as its peers: it is read around where possible"
                );
            }
            Event::MemberKeepsUp { member } => {
                tracing::info!(
                    event = "member_keeps_up",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    "keeps up with its peers again, or another drive is in its place"
                );
            }
            Event::MemberLeftBehind {
                member,
                pace,
                cause: ExclusionCause::ReadErrors,
            } => {
                tracing::error!(
                    event = "member_left_behind",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    read_errors = pace.read_errors,
                    "could so often not read what it holds that the array goes on without it"
                );
            }
            Event::MemberLeftBehind { member, pace, .. } => {
                tracing::error!(
                    event = "member_left_behind",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    p99_us = p99(pace),
                    slow_seconds = pace.slow_windows,
                    "has been slow for so long that the array goes on without it"
                );
            }
            Event::MemberExcluded { .. }
            | Event::MemberReturned { .. }
            | Event::BeyondRedundancy { .. }
            | Event::Holds { .. }
            | Event::HoldTimedOut { .. }
            | Event::MemberWorks { .. }
            | Event::Resumes { .. }
            | Event::Pass { .. }
            | Event::Scrubbed(_)
            | Event::WriteRefused { .. }
            | Event::RecordMoved { .. }
            | Event::LogSlotRefused { .. }
            | Event::BlocksLost { .. }
            | Event::LostListFull { .. }
            | Event::NotGivenUp { .. }
            | Event::BlocksHealed { .. }
            | Event::MetadataFailed
            | Event::CommandDone { .. } => {}
        }
    }

    /// Writes into the log what members are waited for, and how that ends.
    fn log_hold(&self, (name, uuid): (&str, Option<Uuid>), event: &Event) {
        let drive_of = |member| self.drive_name_of(uuid, member);
        let because = |member: MemberIndex, status| {
            let state = self.state();
            let drive = uuid.and_then(|uuid| state.drive_of(uuid, member));
            held_because(drive, status)
        };
        match event {
            Event::BeyondRedundancy { member, status } => {
                tracing::error!(
                    event = "beyond_redundancy",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    cause = because(*member, *status),
                    "may have lost what it was to keep: what needs it fails until the array is started anew"
                );
            }
            Event::Holds { member, status } => {
                tracing::error!(
                    event = "array_holds",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    cause = because(*member, *status),
                    "requests that need it wait"
                );
            }
            Event::HoldTimedOut { after } => {
                tracing::error!(
                    event = "hold_timed_out",
                    array = name,
                    seconds = after.as_secs(),
                    "requests that need the members that are waited for fail until these work again"
                );
            }
            Event::MemberWorks { member } => {
                tracing::info!(
                    event = "member_works",
                    array = name,
                    member = member.0,
                    drive = drive_of(*member),
                    "works again"
                );
            }
            Event::Resumes { after } => {
                tracing::info!(
                    event = "array_resumes",
                    array = name,
                    seconds = after.as_secs(),
                    "nothing is waited for any more"
                );
            }
            Event::MemberExcluded { .. }
            | Event::MemberLags { .. }
            | Event::MemberKeepsUp { .. }
            | Event::MemberLeftBehind { .. }
            | Event::Pass { .. }
            | Event::MetadataFailed
            | Event::MemberReturned { .. }
            | Event::Scrubbed(_)
            | Event::WriteRefused { .. }
            | Event::RecordMoved { .. }
            | Event::LogSlotRefused { .. }
            | Event::BlocksLost { .. }
            | Event::LostListFull { .. }
            | Event::NotGivenUp { .. }
            | Event::BlocksHealed { .. }
            | Event::CommandDone { .. } => {}
        }
    }
}

/// What a drive refused that the array cannot do without, and what becomes of it.
fn log_refused(array: &str, drive: &str, event: &Event) {
    if let Event::WriteRefused {
        member,
        first,
        rows,
    } = event
    {
        tracing::error!(
            event = "write_refused",
            array,
            member = member.0,
            drive,
            first,
            rows,
            "takes other writes, but not this one, and the array cannot do without it: just \
             what needs it fails; bring the missing members back or put drives in their \
             places, then replace this one"
        );
    }
    if let Event::RecordMoved { member } = event {
        tracing::error!(
            event = "record_moved",
            array,
            member = member.0,
            drive,
            "it refuses a record of the array where that belongs, and the array cannot do \
             without it: the record is kept elsewhere on it; bring the missing members back or \
             put drives in their places, then replace this one"
        );
    }
    if let Event::LogSlotRefused { member } = event {
        tracing::error!(
            event = "log_slot_refused",
            array,
            member = member.0,
            drive,
            "it refuses a part of its log, and the array cannot do without it: another part \
             is used; bring the missing members back or put drives in their places, then \
             replace this one"
        );
    }
}
