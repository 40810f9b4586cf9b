//! What guests promised and the engine makes no use of yet.

use control::view::GuestMemory;

use super::{Finding, Known, Severity};

/// What the promise of stable buffers is good for.
pub(crate) const STABLE_UNUSED: &str =
    "kept, but without effect yet: every written byte is copied once, as without it";
/// What the promise that guest memory stays is good for.
pub(crate) const PINNED_UNUSED: &str =
    "kept, but without effect yet: guest memory is used as without it";

pub(super) fn findings(known: &Known) -> Vec<Finding> {
    let notice = |subject: String, check, found: &str, costs: &str| {
        Finding::good(&subject, check, found)
            .at(Severity::Notice)
            .costs(costs)
    };
    let volumes = known.volumes.iter().filter(|volume| volume.stable_buffers);
    let mut findings: Vec<Finding> = volumes
        .map(|volume| {
            let subject = format!("volume {}", volume.name);
            let found = "its guests promise stable buffers";
            notice(subject, "stable_buffers", found, STABLE_UNUSED)
        })
        .collect();
    let exports = known.exports.iter();
    let pinned = exports.filter(|export| export.guest_memory == GuestMemory::Pinned);
    findings.extend(pinned.map(|export| {
        let subject = format!("export {}", export.name);
        let found = "its guest's memory is promised to stay";
        notice(subject, "pinned_guest_memory", found, PINNED_UNUSED)
    }));
    findings
}
