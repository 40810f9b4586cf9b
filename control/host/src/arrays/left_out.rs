//! Drives of an array that are not its members when it is put together.

use array::assembly::{Assembly, LeftOut};
use units::{DriveIndex, MemberIndex};
use uuid::Uuid;

use crate::state::{DriveEntry, DriveRole, Notice, State};

/// Notes of the drives of an array that are left out why they are; and says so.
pub(super) fn note_left_out(state: &mut State, assembly: &Assembly, array: &str) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (drive, reason) in &assembly.left_out {
        let told = reason.told(&|drive| {
            let entry = state.drive_at(drive);
            entry.map_or_else(
                || drive.to_string(),
                |entry| format!("drive {}", entry.name),
            )
        });
        let Some(entry) = by_index(state, *drive) else {
            continue;
        };
        let way_out = way_out(reason, array, &entry.name);
        let text = format!("drive {} is left out: {told}{way_out}", entry.name);
        tracing::warn!(event = "drive_left_out", array, reason = text, "left out");
        notices.push(Notice::LeftOut {
            drive: entry.name.clone(),
            text,
        });
        entry.role = DriveRole::LeftOut {
            array: assembly.array(),
            member: reason.member(),
            cause: format!("{told}{way_out}"),
        };
    }
    notices
}

/// The drives of an array by name, with their places.
pub(super) fn members_of(state: &State, array: Uuid) -> Vec<(String, MemberIndex)> {
    let drives = state.drives.values();
    let member = |entry: &DriveEntry| match entry.role {
        DriveRole::Member { array: of, member } if of == array => {
            Some((entry.name.clone(), member))
        }
        DriveRole::Member { .. }
        | DriveRole::LeftOut { .. }
        | DriveRole::Copy { .. }
        | DriveRole::Free => None,
    };
    drives.filter_map(member).collect()
}

/// Former members of which nobody could read what they hold when their array was put together: they
/// may come back.
pub(super) fn leave_out_unread(
    state: &mut State,
    array: Uuid,
    (members, read): (Vec<(String, MemberIndex)>, &[DriveIndex]),
) {
    for (name, member) in members {
        if let Some(entry) = state.drives.get_mut(&name)
            && entry.role == DriveRole::Free
            && !read.contains(&entry.index)
        {
            entry.role = DriveRole::LeftOut {
                array,
                member: Some(member),
                cause: "it could not be read when its array was looked for".to_owned(),
            };
        }
    }
}

/// What to do about a drive that is left out, as the end of the sentence that says so.
fn way_out(reason: &LeftOut, array: &str, drive: &str) -> String {
    match reason {
        LeftOut::Hidden { member } => format!(
            "; `garboard array replace {array} --member {} --drive {drive}` fills it anew, and what \
             it has is lost then; to go on from that instead, take the other members away, and \
             start by force",
            member.0
        ),
        LeftOut::NoConfig { member }
        | LeftOut::OtherLayout { member }
        | LeftOut::Stale { member, .. }
        | LeftOut::Abandoned { member, .. } => format!(
            "; `garboard array replace {array} --member {} --drive {drive}` fills it anew",
            member.0
        ),
        LeftOut::Shrunk { .. } => "; give it its size back, or replace it by another".to_owned(),
        LeftOut::OlderClone { .. } => format!("; `garboard drive remove {drive}` forgets the copy"),
        LeftOut::Clone { .. } => {
            format!("; `garboard drive remove {drive} --force` if this is the copy, then start it")
        }
        LeftOut::Damaged(_) | LeftOut::Replaced { .. } => {
            format!("; `garboard drive wipe {drive} --force` makes it free")
        }
        // The verdict says what to do, or it returns as a command says.
        LeftOut::Future(_) | LeftOut::Excluded { .. } | LeftOut::SplitBrain { .. } => String::new(),
    }
}

pub(super) fn by_index(state: &mut State, drive: DriveIndex) -> Option<&mut DriveEntry> {
    state.drives.values_mut().find(|entry| entry.index == drive)
}
