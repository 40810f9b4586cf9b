//! What an engine's drives and arrays are made of, and how they are.

use std::collections::BTreeMap;

use control::request::{DriveSpec, Level, WriteHole};
use control::view::{
    ArrayState, ArrayView, DriveState, DriveView, LEFT_WRONG, MemberState, MemberView,
};
use units::Size;

use super::drives::{Device, device_of};
use super::tree::Tree;
use super::{Finding, Known, Severity};

/// Members of a group with one parity above which a second loss during a rebuild is likely
/// enough to be said.
const SINGLE_PARITY_MEMBERS: u16 = 16;
/// Reads of a member that failed within a day above which its drive is wearing out.
pub(super) const READ_ERRORS_A_DAY: u32 = 16;

pub(super) fn findings(tree: &Tree, known: &Known) -> Vec<Finding> {
    let mut findings: Vec<Finding> = known
        .status
        .engine
        .warnings
        .iter()
        .map(|warning| {
            Finding::good("engine", "engine", warning.clone())
                .at(Severity::Warning)
                .fix("as it says; garboard status tells it until it is over")
        })
        .collect();
    for drive in &known.drives {
        findings.extend(state_of_drive(drive, known));
        findings.extend(buffered(drive));
        findings.extend(forgetful_spare(drive));
    }
    for array in &known.arrays {
        let members = members(array, known);
        findings.push(state(array, known));
        findings.extend(reads_fail(array));
        findings.extend(kinds(array, &members));
        findings.extend(sizes(array, &members));
        findings.extend(redundancy(array));
        findings.extend(write_hole(array));
        findings.extend(lost(array));
        findings.extend(unrepaired(array));
        findings.extend(hardware(tree, array, &members));
        // What the engine saw when it made the array; the rest is told above.
        let cause = array.cause.as_deref().unwrap_or_default();
        let told = |warning: &&String| {
            (cause.is_empty() || !cause.starts_with(warning.as_str()))
                && !(array.unrepaired_blocks > 0 && warning.starts_with(LEFT_WRONG))
        };
        findings.extend(array.warnings.iter().filter(told).map(|warning| {
            Finding::good(&subject(array), "engine", warning.clone())
                .at(Severity::Notice)
                .fix(format!(
                    "as it says; garboard array show {} tells it until it is over",
                    array.name
                ))
        }));
    }
    findings
}

fn subject(array: &ArrayView) -> String {
    format!("array {}", array.name)
}

/// The drives that fill the array's places.
fn members<'a>(array: &ArrayView, known: &'a Known) -> Vec<&'a DriveView> {
    let names = array
        .members
        .iter()
        .filter_map(|member| member.drive.as_ref());
    names
        .filter_map(|name| known.drives.iter().find(|drive| drive.name == *name))
        .collect()
}

fn state_of_drive(drive: &DriveView, known: &Known) -> Option<Finding> {
    let name = &drive.name;
    let cause = drive.cause.as_deref().unwrap_or("no cause is known");
    let said = |found: &str, severity| {
        let found = format!("{found}: {cause}");
        Finding::good(&format!("drive {name}"), "drive", found).at(severity)
    };
    let place = place_of(drive, known);
    let replace = place
        .filter(|(_, member)| member.drive.is_none())
        .map(|(array, member)| format!("; or {}", replace(array, member, known)))
        .unwrap_or_default();
    let (finding, way_back) = match drive.state {
        DriveState::Failed => {
            if let Some(filled) = place.and_then(|(_, member)| member.drive.as_ref()) {
                let found = format!("it is left out, and drive {filled} fills its place");
                let fix = format!("garboard drive wipe {name} --force makes it free");
                let finding = said(&found, Severity::Notice);
                return Some(finding.costs("nothing: its place is filled").fix(fix));
            }
            let back = "see what it needs, and bring it back";
            (said("it has failed", Severity::Warning), back.to_owned())
        }
        DriveState::Missing => {
            let back = format!("bring it back: garboard drive add PLACE --name {name}");
            (said("it is missing", Severity::Warning), back)
        }
        DriveState::Free | DriveState::Spare | DriveState::Member => return None,
    };
    let finding = match (place, drive.state) {
        // Nothing says that an array misses it.
        (None, DriveState::Missing) => finding.costs("nothing that is known: no array misses it"),
        _ => finding.costs("its array has less redundancy, or none"),
    };
    Some(finding.fix(way_back + &replace))
}

/// The place that a drive has or had in an array.
fn place_of<'a>(drive: &DriveView, known: &'a Known) -> Option<(&'a ArrayView, &'a MemberView)> {
    let array = |array: &&ArrayView| drive.array.as_ref() == Some(&array.name);
    let (array, member) = (known.arrays.iter().find(array)?, drive.member?);
    let place = array.members.iter().find(|place| place.member == member);
    place.map(|place| (array, place))
}

/// How a place is filled anew: by a drive that is free and fits, if there is one.
fn replace(array: &ArrayView, member: &MemberView, known: &Known) -> String {
    // A drive that keeps nothing takes no place among others that do.
    let pretends = members(array, known)
        .iter()
        .any(|drive| is_pretended(drive));
    let fits = |drive: &&DriveView| {
        drive.state == DriveState::Free
            && drive.signature.is_none()
            && (pretends || !is_pretended(drive))
            && drive.size_bytes >= array.member_bytes
            && drive.block_bytes <= array.block_bytes
    };
    let drive = known.drives.iter().find(fits);
    let drive = drive.map_or("D, a free one", |drive| &drive.name);
    format!(
        "garboard array replace {} --member {} --drive {drive}",
        array.name, member.member
    )
}

fn buffered(drive: &DriveView) -> Option<Finding> {
    drive.access.contains("buffered").then(|| {
        Finding::good(
            &format!("drive {}", drive.name),
            "access",
            drive.access.clone(),
        )
        .at(Severity::Warning)
        .costs("every byte is copied through the page cache, and flushes write it back in one go")
        .fix("a file system that allows O_DIRECT (ext4, xfs), or a block device")
    })
}

fn state(array: &ArrayView, known: &Known) -> Finding {
    let finding =
        |severity, found: &str| Finding::good(&subject(array), "state", found).at(severity);
    match array.state {
        ArrayState::Optimal => finding(Severity::Good, "optimal"),
        ArrayState::Stopped => match &array.cause {
            None => finding(Severity::Good, "stopped"),
            Some(cause) => finding(Severity::Critical, &format!("it cannot start: {cause}"))
                .costs("its volumes are not served")
                .fix(format!(
                    "garboard drive list shows what is missing; then garboard array start {}",
                    array.name
                )),
        },
        ArrayState::Degraded => finding(Severity::Warning, "degraded")
            .costs(format!(
                "{}, reads of lost chunks cost k drive reads",
                survives(array)
            ))
            .fix(refill(array, known)),
        ArrayState::Holding => finding(Severity::Critical, "it waits for members")
            .costs("requests that need them wait, and fail after the hold timeout")
            .fix(format!(
                "garboard array show {} says for which drives; bring them back, or make space",
                array.name
            )),
        ArrayState::Failed if array.hold.is_some() => {
            finding(Severity::Critical, "it waited in vain for members")
                .costs("requests that need them fail, until these work again")
                .fix(format!(
                    "garboard array show {} says for which drives; bring them back, or make space",
                    array.name
                ))
        }
        ArrayState::Failed => finding(Severity::Critical, "too many members are lost")
            .costs("requests are not answered")
            .fix("bring lost drives back: garboard drive list says where they were"),
    }
}

/// How many members more it can lose, whichever they are.
fn survives(array: &ArrayView) -> String {
    let groups = array.members.chunks(usize::from(array.group_size.max(1)));
    let lost = |group: &[MemberView]| {
        let lost = group
            .iter()
            .filter(|place| place.state != MemberState::Online);
        lost.count()
    };
    let lost = groups.map(lost).max().unwrap_or(0);
    match usize::from(array.parity).saturating_sub(lost) {
        0 => "it survives no more loss".to_owned(),
        1 => "it survives one more loss".to_owned(),
        more => format!("it survives {more} more losses"),
    }
}

/// What brings back the redundancy of a degraded array.
fn refill(array: &ArrayView, known: &Known) -> String {
    let lost =
        |place: &&MemberView| !matches!(place.state, MemberState::Online | MemberState::Rebuilding);
    let mut ways: Vec<String> = array
        .members
        .iter()
        .filter(lost)
        .map(|place| replace(array, place, known))
        .collect();
    if ways.len()
        < array
            .members
            .iter()
            .filter(|place| place.state != MemberState::Online)
            .count()
    {
        let jobs: Vec<String> = array.jobs.iter().map(u64::to_string).collect();
        ways.insert(
            0,
            match jobs.as_slice() {
                [job] => format!("job {job} rebuilds it: garboard job wait {job}"),
                _ => "it is rebuilt: garboard job list".to_owned(),
            },
        );
    }
    ways.join("; ")
}

/// Members that can often not read what they hold.
fn reads_fail(array: &ArrayView) -> Vec<Finding> {
    let errors = |member: &MemberView| member.pace.as_ref().map_or(0, |pace| pace.read_errors);
    let often = array
        .members
        .iter()
        .filter(|member| errors(member) >= READ_ERRORS_A_DAY);
    let finding = |member: &MemberView| {
        let drive = member.drive.as_deref().unwrap_or("-");
        let found = format!(
            "drive {drive} could not read {} times within 24 hours",
            errors(member)
        );
        Finding::good(&subject(array), "read_errors", found)
            .at(Severity::Warning)
            .costs("what it could not read was answered from the others; such drives tend to fail soon")
            .fix(format!(
                "garboard array replace {} --member {} --drive D",
                array.name, member.member
            ))
    };
    often.map(finding).collect()
}

/// Whether a drive does not keep what is written.
fn is_pretended(drive: &DriveView) -> bool {
    match drive.spec {
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => true,
        DriveSpec::File { .. } | DriveSpec::Block { .. } => false,
    }
}

/// Members that do not keep what is written.
fn kinds(array: &ArrayView, members: &[&DriveView]) -> Option<Finding> {
    let names: Vec<&str> = members
        .iter()
        .filter(|drive| is_pretended(drive))
        .map(|drive| drive.name.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        let found = format!("drives {} are pretended", names.join(", "));
        Finding::good(&subject(array), "pretended", found)
            .at(Severity::Critical)
            .costs("memory is empty after a restart, null drives keep nothing at all: for measuring only")
            .fix("file or block devices for data that is to be kept")
    })
}

/// A spare that does not keep what is written.
fn forgetful_spare(drive: &DriveView) -> Option<Finding> {
    let waits = drive.state == DriveState::Spare && is_pretended(drive);
    waits.then(|| {
        let found = "it is a spare, and pretended".to_owned();
        Finding::good(&format!("drive {}", drive.name), "pretended", found)
            .at(Severity::Warning)
            .costs("an array that takes it has lost that member again after the next restart")
            .fix("file or block devices as spares of arrays that are to be kept")
    })
}

/// Blocks that are wrong, and that a scrub could not put right.
fn unrepaired(array: &ArrayView) -> Option<Finding> {
    let (name, wrong) = (&array.name, array.unrepaired_blocks);
    (wrong > 0).then(|| {
        let blocks = if wrong == 1 { "block" } else { "blocks" };
        let found = format!("{LEFT_WRONG}{wrong} {blocks}");
        Finding::good(&subject(array), "scrub", found)
            .at(Severity::Warning)
            .costs("nobody can tell which bytes of them are right")
            .fix(format!(
                "garboard array scrub {name} show lists them; write them anew from a backup, and \
                 scrub again"
            ))
    })
}

/// What of its members an array cannot use, because others are smaller.
pub(crate) fn sizes(array: &ArrayView, members: &[&DriveView]) -> Option<Finding> {
    let smallest = members.iter().map(|drive| drive.size_bytes).min()?;
    let wasted: u64 = members
        .iter()
        .map(|drive| drive.size_bytes - smallest)
        .sum();
    let all: u64 = members.iter().map(|drive| drive.size_bytes).sum();
    // A hundredth is what makers differ by for the same size.
    if wasted <= all / 100 {
        return None;
    }
    let small: Vec<&str> = members
        .iter()
        .filter(|drive| drive.size_bytes == smallest)
        .map(|drive| drive.name.as_str())
        .collect();
    let found = format!(
        "members have different sizes, the smallest is {}",
        small.join(", ")
    );
    Some(
        Finding::good(&subject(array), "sizes", found)
            .at(Severity::Notice)
            .costs(format!("{} of other members is not used", Size(wasted)))
            .fix("replace the smallest members, or make arrays of equal drives"),
    )
}

fn redundancy(array: &ArrayView) -> Option<Finding> {
    if array.parity == 0 {
        return Some(
            Finding::good(&subject(array), "redundancy", "level 0 survives no loss")
                .at(Severity::Warning)
                .costs("the first drive that fails takes everything with it")
                .fix("a level with redundancy: 1, 10, 5, 6, 7, nm, 50, 60 or 70"),
        );
    }
    let mirror = matches!(array.level, Level::Raid1 | Level::Raid10);
    if array.parity > 1 || mirror || array.group_size <= SINGLE_PARITY_MEMBERS {
        return None;
    }
    let found = format!("{} members with one parity", array.group_size);
    Some(
        Finding::good(&subject(array), "redundancy", found)
            .at(Severity::Notice)
            .costs(
                "while one member is rebuilt, a loss or an unreadable block of any of the others \
                 loses data",
            )
            .fix("level 6 or 60, or smaller groups (level 50)"),
    )
}

fn lost(array: &ArrayView) -> Option<Finding> {
    let lost = array.lost.as_ref()?;
    let found = format!(
        "{} blocks are lost, {} in all",
        lost.blocks,
        Size(lost.bytes)
    );
    Some(
        Finding::good(&subject(array), "lost_blocks", found)
            .at(Severity::Critical)
            .costs("while members were out, others could not read them: reads of them fail")
            .fix(format!(
                "garboard array show {} says where they are: write them again, or restore what \
                 they belong to from a backup",
                array.name
            )),
    )
}

fn write_hole(array: &ArrayView) -> Option<Finding> {
    match array.write_hole {
        WriteHole::Off => Some(
            Finding::good(&subject(array), "write_hole", "writes are never logged")
                .at(Severity::Warning)
                .costs(
                    "power loss on a degraded array can change what its missing members held \
                     beside writes that were not flushed",
                )
                .fix(format!(
                    "garboard array modify {} --write-hole auto",
                    array.name
                )),
        ),
        WriteHole::Auto | WriteHole::Strict => None,
    }
}

/// Members that share a device or a controller, or hang on different NUMA nodes.
fn hardware(tree: &Tree, array: &ArrayView, members: &[&DriveView]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let devices: Vec<Device> = members
        .iter()
        .filter_map(|drive| device_of(tree, drive))
        .collect();
    let survived = usize::from(array.parity);
    for (device, drives) in shared(&devices, |device| Some(device.name.clone())) {
        let severity = if drives.len() > survived {
            Severity::Warning
        } else {
            Severity::Notice
        };
        let found = format!("drives {} lie on one device, {device}", drives.join(", "));
        findings.push(
            Finding::good(&subject(array), "shared_device", found)
                .at(severity)
                .costs("they fail together, and share its speed")
                .fix("members on devices of their own"),
        );
    }
    let controller = |device: &Device| {
        let folder = device.controller()?;
        Some(folder.file_name()?.to_str()?.to_owned())
    };
    let mut whole: Vec<Device> = Vec::new();
    for device in &devices {
        if !whole.iter().any(|other| other.name == device.name) {
            whole.push(device.clone());
        }
    }
    for (controller, drives) in shared(&whole, controller) {
        let survives = drives.len() <= survived;
        let found = format!(
            "drives {} hang on one controller, {controller}",
            drives.join(", ")
        );
        let finding = Finding::good(&subject(array), "shared_controller", found).at(if survives {
            Severity::Notice
        } else {
            Severity::Warning
        });
        findings.push(
            finding
                .costs(if survives {
                    "its failure takes them together, which the array survives; they share its speed"
                } else {
                    "its failure takes more members than the array survives; they share its speed"
                })
                .fix("spread the members of a group over controllers"),
        );
    }
    findings.extend(nodes(array, &whole));
    findings
}

/// Members on several NUMA nodes, and where the array is then.
fn nodes(array: &ArrayView, members: &[Device]) -> Option<Finding> {
    let mut nodes: Vec<u64> = members.iter().filter_map(Device::node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() < 2 {
        return None;
    }
    let list = super::tree::as_list(&nodes);
    let found = match array.node {
        Some(node) => format!(
            "its members hang on NUMA nodes {list}, most on node {node}: reactors there serve it, if \
             there are any"
        ),
        None => format!(
            "its members hang on NUMA nodes {list}, on none of them two thirds: reactors of all \
             nodes serve it"
        ),
    };
    Some(
        Finding::good(&subject(array), "numa", found)
            .at(Severity::Warning)
            .costs("parts of every stripe cross the link between the sockets")
            .fix("make arrays of drives of one node"),
    )
}

/// What several devices have in common, and the drives on them.
fn shared(
    devices: &[Device],
    common: impl Fn(&Device) -> Option<String>,
) -> Vec<(String, Vec<String>)> {
    let mut by: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in devices {
        if let Some(common) = common(device) {
            by.entry(common)
                .or_default()
                .extend(device.drives.iter().cloned());
        }
    }
    by.into_iter()
        .filter(|(_, drives)| drives.len() > 1)
        .collect()
}
