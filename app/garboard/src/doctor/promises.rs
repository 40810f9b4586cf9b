//! What guests promised and the engine makes no use of yet.

use control::view::{ExportView, GuestMemory};

use super::{Finding, Known, Severity};

/// What the promise that guest memory stays is good for.
pub(crate) const PINNED_UNUSED: &str =
    "kept, but without effect yet: guest memory is used as without it";

pub(super) fn findings(known: &Known) -> Vec<Finding> {
    let exports = known.exports.iter();
    let pinned = exports.filter(|export| export.guest_memory == GuestMemory::Pinned);
    let notice = |export: &ExportView| {
        let subject = format!("export {}", export.name);
        let found = "its guest's memory is promised to stay";
        Finding::good(&subject, "pinned_guest_memory", found)
            .at(Severity::Notice)
            .costs(PINNED_UNUSED)
    };
    pinned.map(notice).collect()
}
