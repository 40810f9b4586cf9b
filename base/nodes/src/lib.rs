//! NUMA: on which node of the machine a CPU is and a device hangs, as `/sys` tells, and where an
//! array belongs whose drives hang on several.
//!
//! Everything here is advice: a missing or odd file is a missing fact, never an error.
//!
//! What does not live here: memory of a node (`memory`), and what follows from all this for arrays
//! and rings (the engine and the control path).
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use units::NodeIndex;

/// Where the kernel lists its nodes.
const NODES: &str = "sys/devices/system/node";
/// No machine has more CPUs or nodes; a wrong file must not fill memory.
const LISTED_MAX: usize = 1 << 16;
/// An array belongs to a node on which so many of so many of its members hang, at least.
const MOST: (usize, usize) = (2, 3);

/// The nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// With their CPUs, in order.
    cpus: Vec<(NodeIndex, Vec<u64>)>,
}

impl Nodes {
    /// What `/sys` below `root` says; no node at all where the kernel knows of none.
    #[must_use]
    pub fn read(root: &Path) -> Nodes {
        let folder = root.join(NODES);
        let online = text(&folder.join("online"));
        let online = online.map(|text| list(&text)).unwrap_or_default();
        let node = |number: u64| {
            let node = NodeIndex(u16::try_from(number).ok()?);
            let cpus = text(&folder.join(format!("node{number}/cpulist")));
            Some((node, cpus.map(|text| list(&text)).unwrap_or_default()))
        };
        Nodes {
            cpus: online.into_iter().filter_map(node).collect(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// The node of a CPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: u64) -> Option<NodeIndex> {
        let mut nodes = self.cpus.iter();
        let found = nodes.find(|(_, cpus)| cpus.contains(&cpu));
        found.map(|(node, _)| *node)
    }
}

/// The node on which the device hangs whose folder in `/sys`, without links, this is.
#[must_use]
pub fn of_device(folder: &Path) -> Option<NodeIndex> {
    let node = text(&controller(folder)?.join("numa_node"))?;
    // The kernel says -1 of a device that is as near to all.
    node.parse().ok().map(NodeIndex)
}

/// The PCI function on which a device hangs.
#[must_use]
pub fn controller(folder: &Path) -> Option<PathBuf> {
    pci_above(folder).or_else(|| {
        // A namespace that may have several paths lies below its subsystem, not below PCI.
        let is_path = |name: &str| name.starts_with("nvme");
        let subsystem = fs::read_dir(folder.parent()?).ok()?;
        let mut paths: Vec<PathBuf> = subsystem
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_path))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        let mut real = paths.iter().filter_map(|path| path.canonicalize().ok());
        real.find_map(|path| pci_above(&path))
    })
}

/// The nearest folder at or above `path` that is a PCI function: `0000:65:00.0`.
fn pci_above(path: &Path) -> Option<PathBuf> {
    let is_function = |name: &str| {
        let bytes = name.as_bytes();
        bytes.len() == 12 && bytes[4] == b':' && bytes[7] == b':' && bytes[10] == b'.'
    };
    path.ancestors()
        .find(|folder| {
            let name = folder.file_name().and_then(|name| name.to_str());
            name.is_some_and(is_function)
        })
        .map(Path::to_owned)
}

/// Where an array belongs whose members hang on these nodes, as far as that is known: where two
/// thirds of them are. With fewer, most of what it moves would cross between nodes wherever it was,
/// and the reactors of one node would have all of the work for little.
#[must_use]
pub fn of_members(members: impl IntoIterator<Item = NodeIndex>) -> Option<NodeIndex> {
    let mut members: Vec<NodeIndex> = members.into_iter().collect();
    members.sort_unstable();
    let mut runs = members.chunk_by(|one, other| one == other);
    let (some, of) = MOST;
    let most = runs.find(|run| run.len() * of >= members.len() * some)?;
    most.first().copied()
}

/// CPUs or nodes of a list of the kernel's: `0-3,8`.
#[must_use]
pub fn list(text: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            numbers.extend((first..=last).take(LISTED_MAX));
        }
    }
    numbers
}

/// The trimmed text of a file, if it is there and not empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn cpus_have_the_nodes_that_the_kernel_lists() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(Nodes::read(root), Nodes::default(), "a kernel without NUMA");
        write(root, "sys/devices/system/node/online", "0,2-3\n");
        write(root, "sys/devices/system/node/node0/cpulist", "0-3,8\n");
        write(root, "sys/devices/system/node/node2/cpulist", "4-7\n");
        // Memory without CPUs.
        write(root, "sys/devices/system/node/node3/cpulist", "\n");
        let nodes = Nodes::read(root);
        assert_eq!(nodes.count(), 3);
        for (cpu, node) in [(0, Some(0)), (8, Some(0)), (5, Some(2)), (9, None)] {
            assert_eq!(nodes.of_cpu(cpu), node.map(NodeIndex), "CPU {cpu}");
        }
    }

    #[test]
    fn odd_lists_are_no_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (online, count) in [
            ("nonsense", 0),
            ("7-3", 0),
            ("-", 0),
            ("70000", 0),
            ("0,x,1", 2),
        ] {
            write(root, "sys/devices/system/node/online", online);
            let nodes = Nodes::read(root);
            assert_eq!(nodes.count(), count, "{online}");
            assert_eq!(nodes.of_cpu(0), None);
        }
        assert_eq!(list("0-18446744073709551615").len(), LISTED_MAX);
    }

    #[test]
    fn a_device_hangs_where_its_pci_function_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let function = "sys/devices/pci0000:80/0000:80:00.0/0000:81:00.0";
        for (said, node) in [
            ("1\n", Some(1)),
            ("-1\n", None),
            ("\n", None),
            ("99999999", None),
        ] {
            write(root, &format!("{function}/numa_node"), said);
            let disk = root.join(function).join("nvme/nvme0/nvme0n1");
            assert_eq!(of_device(&disk), node.map(NodeIndex), "{said}");
        }
        let nowhere = root.join("sys/devices/virtual/block/loop0");
        assert_eq!(of_device(&nowhere), None);
        assert_eq!(of_device(Path::new("/")), None);
        // With several controllers, below its subsystem.
        write(root, &format!("{function}/numa_node"), "1\n");
        write(root, &format!("{function}/nvme/nvme0/state"), "live\n");
        let subsystem = root.join("sys/devices/virtual/nvme-subsystem/nvme-subsys0");
        fs::create_dir_all(subsystem.join("nvme0n1")).unwrap();
        let controller = root.join(function).join("nvme/nvme0");
        std::os::unix::fs::symlink(controller, subsystem.join("nvme0")).unwrap();
        assert_eq!(of_device(&subsystem.join("nvme0n1")), Some(NodeIndex(1)));
    }

    #[test]
    fn an_array_belongs_where_two_thirds_of_its_members_hang() {
        for (members, node) in [
            (&[][..], None),
            (&[0], Some(0)),
            (&[1, 1, 1, 1], Some(1)),
            (&[0, 1], None),
            (&[1, 0, 1], Some(1)),
            (&[0, 1, 1, 1, 0], None),
            (&[0, 1, 2], None),
            (&[3, 0, 3, 3, 1, 3], Some(3)),
        ] {
            let found = of_members(members.iter().copied().map(NodeIndex));
            assert_eq!(found, node.map(NodeIndex), "{members:?}");
        }
    }
}
