//! Which block device a generic device of NVMe stands beside: both are the same drive.
//!
//! The kernel shows them side by side, as `.../nvme/nvme0/ng0n1` and `.../nvme/nvme0/nvme0n1`;
//! where it finds a path for each request by itself, both are in `.../nvme-subsystem/nvme-subsys0`
//! instead.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::sysfs;

const SYS: &str = "/sys";
const DEV: &str = "/dev";
/// What the kernel calls these devices.
const CLASS: &str = "nvme-generic";
/// What it calls those that stand for all controllers of a drive; the drives of which are below.
const SUBSYSTEMS: &str = "nvme-subsystem";

/// The block device beside a generic one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// In `/sys`.
    pub(crate) folder: PathBuf,
    /// In `/dev`.
    pub(crate) node: PathBuf,
    pub(crate) device: u64,
}

impl Sibling {
    /// Beside the character device of this number; none when that is something else.
    pub(crate) fn of(device: u64) -> Option<Sibling> {
        Sibling::below(Path::new(SYS), device)
    }

    fn below(sys: &Path, device: u64) -> Option<Sibling> {
        let (major, minor) = (libc::major(device), libc::minor(device));
        let folder = fs::canonicalize(sys.join(format!("dev/char/{major}:{minor}"))).ok()?;
        if !is_generic(&folder) {
            return None;
        }
        let name = folder.file_name()?.to_str()?.strip_prefix("ng")?;
        let name = format!("nvme{name}");
        let folder = folder.with_file_name(&name);
        Some(Sibling {
            device: number_of(&folder)?,
            node: Path::new(DEV).join(name),
            folder,
        })
    }

    /// Why commands to this drive would not do what its block device does.
    pub(crate) fn refusal(&self) -> Option<String> {
        let parent = self.folder.parent().expect("a device has a name");
        let node = self.node.display();
        // Only a controller has one.
        let transport = fs::read_to_string(parent.join("transport")).ok();
        match transport.as_deref().map(str::trim) {
            Some("pcie") => None,
            Some(far) => Some(format!(
                "lies at the other end of NVMe over {far}: its commands would fail whenever the \
                 connection does; use {node}"
            )),
            // Also with a single controller: while that is reset there is no path, and a command
            // is not told from a wrong one then.
            None if is_of_class(parent, SUBSYSTEMS) => Some(format!(
                "may have several controllers (the kernel's multipath): its commands would fail \
                 whenever one is reset; use {node}, which waits for a path, or start the kernel \
                 with nvme_core.multipath=N"
            )),
            None => Some("belongs to no controller that the kernel knows".to_owned()),
        }
    }
}

/// The generic device beside the block device in `folder`, or beside the drive that it is a part
/// of: in `/dev`, and its number.
pub(super) fn generic_beside(folder: &Path) -> Option<(PathBuf, u64)> {
    let whole = sysfs::whole(folder);
    let name = whole.file_name()?.to_str()?.strip_prefix("nvme")?;
    let name = format!("ng{name}");
    let generic = whole.with_file_name(&name);
    is_generic(&generic).then_some(())?;
    Some((Path::new(DEV).join(name), number_of(&generic)?))
}

fn is_generic(folder: &Path) -> bool {
    is_of_class(folder, CLASS)
}

fn is_of_class(folder: &Path, name: &str) -> bool {
    let class = fs::canonicalize(folder.join("subsystem"));
    class.is_ok_and(|class| class.ends_with(name))
}

/// The number of the device in a folder of `/sys`.
fn number_of(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The block device that is the same drive as the generic device of NVMe at `path`; none for
/// everything else.
#[must_use]
pub fn block_device_of(path: &Path) -> Option<PathBuf> {
    let facts = fs::metadata(path).ok()?;
    let sibling = facts.file_type().is_char_device();
    let sibling = sibling.then(|| Sibling::of(facts.rdev())).flatten()?;
    Some(sibling.node)
}

/// The generic device that is the same drive as the block device of NVMe at `path`; none for
/// everything else, parts of drives among it.
#[must_use]
pub fn generic_device_of(path: &Path) -> Option<PathBuf> {
    let facts = fs::metadata(path).ok()?;
    let folder = facts.file_type().is_block_device();
    let folder = folder.then(|| sysfs::folder(facts.rdev()))?;
    if sysfs::whole(&folder) != folder {
        return None;
    }
    Some(generic_beside(&folder)?.0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A drive of NVMe as `/sys` shows it, in `parent`; generic device 241:N, block device 259:N.
    fn drive(sys: &Path, parent: &str, name: &str, minor: u32) -> PathBuf {
        let parent = sys.join("devices").join(parent);
        let class = sys.join("class/nvme-generic");
        fs::create_dir_all(&class).unwrap();
        fs::create_dir_all(sys.join("dev/char")).unwrap();
        for (kind, major) in [("ng", 241), ("nvme", 259)] {
            let folder = parent.join(format!("{kind}{name}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("dev"), format!("{major}:{minor}\n")).unwrap();
        }
        let generic = parent.join(format!("ng{name}"));
        symlink(&class, generic.join("subsystem")).unwrap();
        symlink(&generic, sys.join(format!("dev/char/241:{minor}"))).unwrap();
        parent
    }

    #[test]
    fn a_generic_device_and_its_block_device_find_each_other() {
        let sys = tempfile::tempdir().unwrap();
        let parent = drive(sys.path(), "pci0/nvme/nvme3", "3n2", 7);
        let parent = fs::canonicalize(parent).unwrap();
        let sibling = Sibling::below(sys.path(), libc::makedev(241, 7)).unwrap();
        let wanted = Sibling {
            folder: parent.join("nvme3n2"),
            node: "/dev/nvme3n2".into(),
            device: libc::makedev(259, 7),
        };
        assert_eq!(sibling, wanted);
        let generic = Some(("/dev/ng3n2".into(), libc::makedev(241, 7)));
        assert_eq!(generic_beside(&sibling.folder), generic);
        let part = sibling.folder.join("nvme3n2p1");
        fs::create_dir(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        assert_eq!(generic_beside(&part), generic, "of the whole drive");
    }

    #[test]
    fn other_character_devices_have_no_drive_beside_them() {
        let sys = tempfile::tempdir().unwrap();
        let parent = drive(sys.path(), "pci0/nvme/nvme0", "0n1", 0);
        let found = |minor| Sibling::below(sys.path(), libc::makedev(241, minor));
        assert_eq!(found(1), None, "there is none");
        fs::remove_dir_all(parent.join("nvme0n1")).unwrap();
        assert_eq!(found(0), None, "it has no block device");
        let parent = drive(sys.path(), "pci0/nvme/nvme1", "1n1", 2);
        fs::remove_file(parent.join("ng1n1/subsystem")).unwrap();
        symlink(sys.path(), parent.join("ng1n1/subsystem")).unwrap();
        assert_eq!(found(2), None, "it only looks like one");
        assert_eq!(generic_beside(&parent.join("nvme1n1")), None);
        assert_eq!(block_device_of(Path::new("/dev/null")), None);
        assert_eq!(generic_device_of(Path::new("/dev/null")), None);
    }

    #[test]
    fn only_drives_of_one_controller_in_this_machine_are_served() {
        let sys = tempfile::tempdir().unwrap();
        let refusal = |parent: &str, minor: u32| {
            let sibling = Sibling::below(sys.path(), libc::makedev(241, minor)).unwrap();
            assert!(sibling.folder.to_string_lossy().contains(parent));
            sibling.refusal()
        };
        let reached = |folder: &Path, how: &str| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("transport"), how).unwrap();
        };
        let near = drive(sys.path(), "pci0/nvme/nvme0", "0n1", 0);
        assert!(refusal("nvme0", 0).unwrap().contains("no controller"));
        reached(&near, "pcie\n");
        assert_eq!(refusal("nvme0", 0), None);
        let far = drive(sys.path(), "virtual/nvme-fabrics/ctl/nvme1", "1n1", 1);
        reached(&far, "tcp\n");
        let words = refusal("nvme1", 1).unwrap();
        assert!(
            words.contains("tcp") && words.contains("use /dev/nvme1n1"),
            "{words}"
        );
        let shared = drive(sys.path(), "virtual/nvme-subsystem/nvme-subsys2", "2n1", 2);
        reached(&shared.join("nvme2"), "pcie\n");
        let class = sys.path().join("class/nvme-subsystem");
        fs::create_dir_all(&class).unwrap();
        symlink(&class, shared.join("subsystem")).unwrap();
        for controllers in ["one of two ports is in use", "both are"] {
            let words = refusal("nvme-subsys2", 2).unwrap();
            let ways = ["use /dev/nvme2n1", "nvme_core.multipath=N"];
            let named = ways.iter().all(|way| words.contains(way));
            assert!(named, "{controllers}: {words}");
            reached(&shared.join("nvme3"), "pcie\n");
        }
    }
}
