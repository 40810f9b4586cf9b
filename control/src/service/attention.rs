//! What is not as it should be, and why: one sentence for each object.

use crate::name;
use crate::view::{
    ArrayState, ArrayView, DriveState, DriveView, ExportState, ExportView, MemberState, MemberView,
};

/// All of it: arrays, then drives that no array lacks, then exports.
pub(super) fn told(
    (arrays, of_array): (&[ArrayView], impl Fn(&ArrayView) -> Option<String>),
    drives: &[DriveView],
    exports: &[ExportView],
) -> Vec<String> {
    let of_arrays: Vec<(&String, String)> = (arrays.iter())
        .filter_map(|array| Some((&array.name, of_array(array)?)))
        .collect();
    let is_told = |drive: &&DriveView| {
        let mut of_arrays = of_arrays.iter();
        of_arrays.any(|(array, _)| Some(*array) == drive.array.as_ref())
    };
    let of_drives: Vec<String> = (drives.iter().filter(|drive| !is_told(drive)))
        .filter_map(of_drive)
        .collect();
    // The warnings of the engine tell who is held back.
    let others = exports
        .iter()
        .filter(|export| export.state != ExportState::Held);
    let of_exports = others.filter_map(of_export);
    let of_arrays = of_arrays.into_iter().map(|(_, told)| told);
    of_arrays.chain(of_drives).chain(of_exports).collect()
}

/// Why an array needs attention, if it does: what it is, that it does not get better by itself, and
/// what starts of it have told.
pub(super) fn of_array(array: &ArrayView, somebody_stopped_it: bool) -> Option<String> {
    let state = of_state(array, somebody_stopped_it).map(|state| format!(" {state}"));
    let told = array.stopped_pass.iter().chain(&array.start_warnings);
    let told = told.map(|told| format!(": {told}"));
    let said: Vec<String> = state.into_iter().chain(told).collect();
    let object = name::object::<ArrayView>(&array.name);
    (!said.is_empty()).then(|| format!("{object}{}", said.concat()))
}

fn of_state(array: &ArrayView, somebody_stopped_it: bool) -> Option<String> {
    let is_out = |member: &&MemberView| match member.state {
        MemberState::Missing | MemberState::Failed | MemberState::Rebuilding => true,
        MemberState::Online => false,
    };
    Some(match array.state {
        ArrayState::Degraded => format!("is degraded{}", members(array, is_out)),
        ArrayState::Failed => format!("has failed{}", members(array, is_out)),
        ArrayState::Holding => {
            let held = array.hold.iter().flat_map(|hold| &hold.members);
            let held = held.map(|held| match &held.drive {
                Some(drive) => format!("member {}, drive {drive}: {}", held.member, held.cause),
                None => format!("member {}: {}", held.member, held.cause),
            });
            format!("waits for {}", listed(held.collect()))
        }
        // It cannot start.
        ArrayState::Stopped if !somebody_stopped_it => {
            let cause = array.cause.as_ref();
            cause.map_or_else(
                || "is not started".into(),
                |cause| format!("is stopped: {cause}"),
            )
        }
        ArrayState::Optimal if array.lost.is_some() => "has blocks that are lost".into(),
        ArrayState::Optimal if array.unrepaired_blocks > 0 => {
            "has blocks that the last scrub left wrong".into()
        }
        ArrayState::Optimal if array.members.iter().any(is_doomed) => {
            format!(
                "is about to lose{}",
                members(array, |place| is_doomed(place))
            )
        }
        ArrayState::Stopped | ArrayState::Optimal => return None,
    })
}

/// Whether something is known that will cost the array a member which it still has.
fn is_doomed(member: &MemberView) -> bool {
    member.state == MemberState::Online && member.cause.is_some()
}

/// Why a drive needs attention, if it does.
pub(super) fn of_drive(drive: &DriveView) -> Option<String> {
    let state = match drive.state {
        DriveState::Failed => "has failed",
        DriveState::Missing => "is missing",
        DriveState::Free | DriveState::Spare | DriveState::Member => return None,
    };
    let cause = drive.cause.as_ref();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let object = name::object::<DriveView>(&drive.name);
    Some(format!("{object} {state}{cause}"))
}

/// Why an export needs attention, if it does.
pub(super) fn of_export(export: &ExportView) -> Option<String> {
    let state = match export.state {
        ExportState::Held => "is held back",
        ExportState::Missing => "is missing",
        ExportState::Waiting | ExportState::Connected => return None,
    };
    let cause = export.cause.as_ref();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let object = name::object::<ExportView>(&export.name);
    Some(format!("{object} {state}{cause}"))
}

/// Some members and what is the matter with each.
fn members(array: &ArrayView, which: impl Fn(&&MemberView) -> bool) -> String {
    let those = array.members.iter().filter(which);
    let told = those.map(|member| match (&member.cause, member.state) {
        (Some(cause), _) => format!("member {} ({cause})", member.member),
        (None, MemberState::Rebuilding) => format!("member {} (being filled)", member.member),
        (None, MemberState::Online | MemberState::Missing | MemberState::Failed) => {
            format!("member {}", member.member)
        }
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() {
        return String::new();
    }
    format!(": {}", listed(told))
}

/// The first few.
fn listed(mut told: Vec<String>) -> String {
    const FEW: usize = 4;
    let more = told.len().saturating_sub(FEW);
    told.truncate(FEW);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    told.join(", ")
}
