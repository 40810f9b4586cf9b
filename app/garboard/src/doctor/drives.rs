//! Block devices: how the kernel drives them, and how they are attached.

use std::path::PathBuf;

use control::request::DriveSpec;
use control::view::DriveView;

use super::tree::{self, Tree};
use super::{Finding, Known, Severity, cpus};

/// Kernel names of devices that are no drives of their own.
const NO_DRIVES: [&str; 9] = [
    "loop", "ram", "zram", "sr", "fd", "md", "dm-", "nbd", "drbd",
];

/// Requests longer than this are not worth splitting: the engine's longest transfer is a chunk.
const REQUEST_KIB: u64 = 256;

/// A flash drive that takes longer than this is not going to answer.
const TIMEOUT_MS: u64 = 10_000;

/// A block device.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// As in `/sys/block`.
    pub(super) name: String,
    /// Its folder, without links.
    folder: PathBuf,
    /// The engine's drives that are on it.
    pub(super) drives: Vec<String>,
}

/// The devices to look at: those of the engine's drives, or all when it has none.
pub(super) fn devices(tree: &Tree, known: Option<&Known>) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for view in known.into_iter().flat_map(|known| &known.drives) {
        let Some(device) = device_of(tree, view) else {
            continue;
        };
        match devices.iter_mut().find(|found| found.name == device.name) {
            Some(found) => found.drives.extend(device.drives),
            None => devices.push(device),
        }
    }
    if !devices.is_empty() {
        return devices;
    }
    let names = tree.names("/sys/block").into_iter();
    let drives = names.filter(|name| !NO_DRIVES.iter().any(|other| name.starts_with(other)));
    drives
        .filter_map(|name| {
            Some(Device {
                folder: tree.real(&format!("/sys/block/{name}"))?,
                name,
                drives: Vec::new(),
            })
        })
        .collect()
}

/// The whole device that a drive is, or that its file lies on.
pub(super) fn device_of(tree: &Tree, view: &DriveView) -> Option<Device> {
    let folder = match &view.spec {
        DriveSpec::Block { path } => {
            let real = tree.real(path.to_str()?)?;
            let name = real.file_name()?.to_str()?;
            // The generic device of an NVMe drive stands beside its block device.
            let beside = name.strip_prefix("ng").map(|rest| format!("nvme{rest}"));
            let name = beside.as_deref().unwrap_or(name);
            tree.real(&format!("/sys/class/block/{name}"))?
        }
        DriveSpec::File { path, .. } => {
            let (major, minor) = tree.device_of(path)?;
            tree.real(&format!("/sys/dev/block/{major}:{minor}"))?
        }
        DriveSpec::Memory { .. } | DriveSpec::Paced { .. } | DriveSpec::Null { .. } => return None,
    };
    // A partition has no queue of its own; its drive, one folder up, has.
    let folder = if folder.join("partition").exists() {
        folder.parent()?.to_owned()
    } else {
        folder
    };
    Some(Device {
        name: folder.file_name()?.to_str()?.to_owned(),
        folder,
        drives: vec![view.name.clone()],
    })
}

impl Device {
    fn text(&self, name: &str) -> Option<String> {
        tree::text(&self.folder.join(name))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn rotational(&self) -> bool {
        self.number("queue/rotational") == Some(1)
    }

    /// `nvme0n1 (drives d0, d1)`.
    fn subject(&self) -> String {
        if self.drives.is_empty() {
            self.name.clone()
        } else {
            format!("{} (drive {})", self.name, self.drives.join(", "))
        }
    }

    fn bad(&self, severity: Severity, check: &'static str, found: String) -> Finding {
        Finding::good(&self.subject(), check, found).at(severity)
    }

    /// The PCI function that it hangs on.
    pub(super) fn controller(&self) -> Option<PathBuf> {
        nodes::controller(&self.folder)
    }

    /// The NUMA node that it is attached to, if it has one.
    pub(super) fn node(&self) -> Option<u64> {
        nodes::of_device(&self.folder).map(|node| node.0.into())
    }
}

pub(super) fn findings(tree: &Tree, devices: &[Device], known: Option<&Known>) -> Vec<Finding> {
    let cpus = tree
        .text("/sys/devices/system/cpu/online")
        .map_or(1, |online| nodes::list(&online).len());
    let mut findings = Vec::new();
    for device in devices {
        findings.extend(scheduler(device));
        findings.extend(queues(device, cpus));
        findings.extend(write_cache(device));
        findings.extend(blocks(device));
        findings.extend(request_size(device));
        findings.extend(timeout(device));
        findings.extend(link(device));
        findings.extend(reactor_node(tree, device, known));
    }
    findings.extend(poll_queues(tree, devices));
    findings.extend(nodes(devices, known));
    findings
}

fn scheduler(device: &Device) -> Option<Finding> {
    let line = device.text("queue/scheduler")?;
    let (_, rest) = line.split_once('[').unwrap_or(("", "none]"));
    let (active, _) = rest.split_once(']')?;
    if active == "none" || device.rotational() {
        return Some(Finding::good(&device.subject(), "scheduler", active));
    }
    Some(
        device
            .bad(
                Severity::Warning,
                "scheduler",
                format!("its scheduler is {active}"),
            )
            .costs(
                "every request passes a queue that all cores share, to be put into an order that \
                 flash does not need",
            )
            .fix(format!(
                "echo none > /sys/block/{}/queue/scheduler",
                device.name
            )),
    )
}

fn queues(device: &Device, cpus: usize) -> Option<Finding> {
    let queues = tree::names(&device.folder.join("mq")).len();
    if queues == 0 || device.rotational() {
        return None;
    }
    let found = format!("{queues} hardware queues for {cpus} CPUs");
    if queues >= cpus {
        return Some(Finding::good(&device.subject(), "queues", found));
    }
    Some(
        device
            .bad(Severity::Notice, "queues", found)
            .costs("cores share queues, and take turns at their locks")
            .fix(
                "run reactors on no more cores than there are queues; in a virtual machine give the \
                 drive more queues",
            ),
    )
}

fn write_cache(device: &Device) -> Option<Finding> {
    let mode = device.text("queue/write_cache")?;
    if mode != "write back" {
        let found = "no volatile write cache, or one that survives power loss";
        return Some(Finding::good(&device.subject(), "write_cache", found));
    }
    Some(
        device
            .bad(
                Severity::Notice,
                "write_cache",
                "its write cache is volatile".to_owned(),
            )
            .costs(
                "each flush of a guest becomes one of every member that was written, and waits for \
                 the slowest: journal commits take as long as the medium",
            )
            .fix("drives with power-loss protection, which report `write through`"),
    )
}

fn blocks(device: &Device) -> Option<Finding> {
    let logical = device.number("queue/logical_block_size")?;
    let physical = device.number("queue/physical_block_size")?;
    if logical >= physical || physical < 4096 {
        return None;
    }
    Some(
        device
            .bad(
                Severity::Notice,
                "block_size",
                format!("it shows blocks of {logical} bytes, and has {physical}"),
            )
            .costs("a write of less than a physical block is read-modify-write inside the drive")
            .fix(
                "format it with 4096-byte blocks (nvme format --lbaf=, this erases it) before it \
                 becomes a member, or create arrays with --block-size 4096",
            ),
    )
}

fn request_size(device: &Device) -> Option<Finding> {
    let most = device.number("queue/max_sectors_kb")?;
    let could = device.number("queue/max_hw_sectors_kb").unwrap_or(most);
    if most >= REQUEST_KIB || could <= most {
        return None;
    }
    Some(
        device
            .bad(
                Severity::Notice,
                "request_size",
                format!("requests above {most} KiB are split, though it takes {could} KiB"),
            )
            .costs("large chunks become several requests")
            .fix(format!(
                "echo {} > /sys/block/{}/queue/max_sectors_kb",
                could.min(1024),
                device.name
            )),
    )
}

/// How long the kernel waits for a drive that does not answer.
fn timeout(device: &Device) -> Option<Finding> {
    let milliseconds = device.number("queue/io_timeout")?;
    let found = format!(
        "the kernel gives a request up after {} s",
        milliseconds / 1000
    );
    if milliseconds <= TIMEOUT_MS || device.rotational() {
        return Some(Finding::good(&device.subject(), "timeout", found));
    }
    let boot = if device.name.starts_with("nvme") {
        "; for NVMe at boot: nvme_core.io_timeout=10"
    } else {
        ""
    };
    Some(
        device
            .bad(Severity::Notice, "timeout", found)
            .costs(
                "an array goes around a drive that hangs, but requests that the drive had taken \
                 already, and their guests, wait so long",
            )
            .fix(format!(
                "echo 10000 > /sys/block/{}/queue/io_timeout, not less than the drive's own \
                 recovery takes{boot}",
                device.name
            )),
    )
}

/// Megabytes per second of one lane, after encoding, by the speed that `/sys` names.
fn lane(speed: &str) -> Option<u64> {
    let transfers = speed.split_whitespace().next()?;
    Some(match transfers {
        "2.5" => 250,
        "5.0" | "5" => 500,
        "8.0" | "8" => 985,
        "16.0" | "16" => 1969,
        "32.0" | "32" => 3938,
        "64.0" | "64" => 7563,
        _ => return None,
    })
}

fn link(device: &Device) -> Option<Finding> {
    let controller = device.controller()?;
    let read = |name: &str| tree::text(&controller.join(name));
    let width = |name: &str| read(name)?.parse::<u64>().ok();
    let (wide, widest) = (width("current_link_width")?, width("max_link_width")?);
    let (speed, fastest) = (read("current_link_speed")?, read("max_link_speed")?);
    let (now, most) = (lane(&speed)? * wide, lane(&fastest)? * widest);
    let gigabytes = |megabytes: u64| format!("{}.{}", megabytes / 1000, megabytes % 1000 / 100);
    let found = format!("linked by {wide} lanes of {speed}: {} GB/s", gigabytes(now));
    if now >= most {
        return Some(Finding::good(&device.subject(), "link", found));
    }
    Some(
        device
            .bad(
                Severity::Warning,
                "link",
                format!("{found}; it could have {widest} of {fastest}"),
            )
            .costs(format!(
                "at most {} of {} GB/s, and an array is as fast as its slowest member",
                gigabytes(now),
                gigabytes(most)
            ))
            .fix(
                "another slot or bay, a cable or riser that is seated; firmware settings of the \
                 slot. A drive that sleeps may show a slow link until it is used",
            ),
    )
}

fn reactor_node(tree: &Tree, device: &Device, known: Option<&Known>) -> Option<Finding> {
    let node = device.node()?;
    let nodes = cpus::reactor_nodes(tree, known.map(|known| &known.status));
    if nodes.is_empty() || nodes.contains(&node) || tree.nodes().count() < 2 {
        return None;
    }
    let found = format!(
        "it hangs on NUMA node {node}, all reactors run on node {}",
        tree::as_list(&nodes)
    );
    Some(
        device
            .bad(Severity::Warning, "numa", found)
            .costs("every byte of it crosses the link between the sockets, and so do completions")
            .fix(format!(
                "serve with --cores of node {node} (see /sys/devices/system/node/node{node}/cpulist)"
            )),
    )
}

/// Drives on several nodes, as far as one array or the whole host.
fn nodes(devices: &[Device], known: Option<&Known>) -> Option<Finding> {
    let mut nodes: Vec<u64> = devices.iter().filter_map(Device::node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.len() < 2 || known.is_some_and(|known| !known.arrays.is_empty()) {
        // Arrays are told apart in their own findings.
        return None;
    }
    let each = nodes.iter().map(|node| {
        let on = devices.iter().filter(|device| device.node() == Some(*node));
        let names: Vec<&str> = on.map(|device| device.name.as_str()).collect();
        format!("node {node}: {}", names.join(", "))
    });
    let found = each.collect::<Vec<_>>().join("; ");
    Some(
        Finding::good("host", "drive_nodes", found)
            .at(Severity::Notice)
            .costs("an array over drives of several NUMA nodes moves its bytes between sockets")
            .fix(
                "make each array of drives of one node, and serve with --cores on all these nodes: \
                 arrays stay with the reactors of theirs",
            ),
    )
}

fn poll_queues(tree: &Tree, devices: &[Device]) -> Option<Finding> {
    let nvme = devices.iter().any(|device| device.name.starts_with("nvme"));
    let queues = tree.number("/sys/module/nvme/parameters/poll_queues")?;
    nvme.then(|| {
        let found = format!("the nvme driver has {queues} poll queues; the engine uses none yet");
        Finding::good("host", "poll_queues", found)
    })
}
