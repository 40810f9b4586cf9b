//! What guests promised, and whether the engine makes use of it.

use control::view::{ExportState, ExportView, GuestMemory};

use super::{Finding, Known, Severity};

pub(super) fn findings(known: &Known) -> Vec<Finding> {
    let exports = known.exports.iter();
    let pinned = exports.filter(|export| export.guest_memory == GuestMemory::Pinned);
    pinned.filter_map(pinned_memory).collect()
}

/// Nothing to say while no guest is there.
fn pinned_memory(export: &ExportView) -> Option<Finding> {
    let subject = format!("export {}", export.name);
    if export.state != ExportState::Connected {
        return None;
    }
    let mebibytes = export.pinned_bytes >> 20;
    if export.pinned_bytes > 0 {
        let found = format!("{mebibytes} MiB of its guest's memory are pinned");
        return Some(Finding::good(&subject, "pinned_guest_memory", found));
    }
    let finding = Finding::good(
        &subject,
        "pinned_guest_memory",
        "its guest's memory is promised to stay, and is not pinned",
    );
    Some(
        finding
            .at(Severity::Notice)
            .costs("the kernel looks up the pages of every read and write")
            .fix("the engine's log says why (vhost_memory_not_pinned); it needs Linux 6.16"),
    )
}
