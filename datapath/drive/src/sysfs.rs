//! What `/sys` and `/proc` say about block devices and about who holds a file.
//!
//! Everything here is advice: a missing file is a missing fact, never an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `/sys` knows of a block device.
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts read one by one, each independent of the others"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockFacts {
    pub(crate) write_through: bool,
    pub(crate) rotational: bool,
    pub(crate) write_zeroes: bool,
    /// What goes to the device as one request wherever it is in memory, page by page, and on the
    /// device; 0 where that is not known.
    pub(crate) request_bytes: u64,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) wwid: Option<String>,
}

/// The device's folder in `/sys`.
pub(crate) fn folder(device: u64) -> PathBuf {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    fs::canonicalize(&link).unwrap_or(link)
}

/// The folder of the drive that the device in `folder` is, or is a partition of.
pub(crate) fn whole(folder: &Path) -> &Path {
    // A partition has no queue of its own; its drive, one folder up, has.
    let is_part = folder.join("partition").exists();
    folder.parent().filter(|_| is_part).unwrap_or(folder)
}

/// Whether the device in `folder` writes through to what survives a loss of power; nothing where
/// the kernel does not say, as of one that it has taken away.
pub(crate) fn writes_through(folder: &Path) -> Option<bool> {
    let whole = whole(folder);
    let mode = text(&whole.join("queue/write_cache"))?;
    Some(mode == "write through" && !is_bridged(whole))
}

/// Reads what is known of the device in `folder`.
pub(crate) fn block_facts(folder: &Path) -> BlockFacts {
    let whole = whole(folder);
    let number = |name: &str| queue_number(whole, name);
    // Of a partition the number is part of the name, or two partitions would be one drive.
    let own = |name: String| match text(&folder.join("partition")) {
        Some(part) => format!("{name}-part{part}"),
        None => name,
    };
    BlockFacts {
        write_through: writes_through(folder) == Some(true),
        rotational: number("rotational") == Some(1),
        write_zeroes: number("write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0),
        request_bytes: request_bytes(number).unwrap_or(0),
        model: text(&whole.join("device/model")),
        serial: text(&whole.join("device/serial"))
            .or_else(|| text(&whole.join("serial")))
            .map(own),
        wwid: text(&whole.join("wwid"))
            .or_else(|| text(&whole.join("device/wwid")))
            .map(own),
    }
}

/// A number that the queue of the device in `folder` has, which is a whole drive.
pub(crate) fn queue_number(folder: &Path, name: &str) -> Option<u64> {
    text(&folder.join("queue").join(name))?.parse().ok()
}

/// See [`BlockFacts::request_bytes`], from what the device's queue says.
fn request_bytes(number: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    // Cut again where the device wants it: at multiples of its own.
    if number("chunk_sectors").unwrap_or(0) != 0 {
        return Some(0);
    }
    let bytes = number("max_sectors_kb")?.saturating_mul(1 << 10);
    let pages = number("max_segments")?.saturating_mul(4 << 10);
    Some(bytes.min(pages))
}

/// Devices that are built on others, at most so deep.
const DEPTH_MAX: usize = 8;
/// How the names of folders in `/sys/devices` begin below which disks of this machine are, or of
/// its hypervisor: PCI, what firmware describes (`vmbus` among it), PowerPC, s390, Xen.
const NEAR: [&str; 9] = [
    "pci", "platform", "LNXSYSTM", "acpi", "vmbus", "vio", "css", "soc", "vbd-",
];
/// What is in the path of a disk that lies at the other end of a network all the same: iSCSI, Fibre
/// Channel.
const FAR: [&str; 2] = ["session", "rport-"];
/// What the names of such drivers contain that show a disk at the other end of a network, or in a
/// process, a file or memory, as one of SCSI.
const FAR_HOSTS: [&str; 7] = ["srp", "iscsi", "iser", "fcoe", "sbp2", "tcm", "scsi_debug"];
/// Disks without hardware of their own, of which `slaves` says what they are built on.
const BUILT: [&str; 2] = ["dm-", "md"];
/// How the folders of buses begin whose disks are behind bridges.
const BRIDGES: [&str; 2] = ["usb", "fw"];
/// File systems that have a folder in `/sys/fs` for each device that is mounted.
const NOTED: [&str; 3] = ["ext4", "xfs", "f2fs"];

/// What is the same for as long as neither the device in `folder` nor those that it is built on
/// were away: the kernel counts the appearances of all disks, and gives none its number again
/// (since Linux 5.15). `own` is what tells the drive from others. 0 where the kernel does not say,
/// and for disks that may lose what they acknowledged without being away for the kernel.
pub(crate) fn appearance(folder: &Path, own: &[u64]) -> u64 {
    let mut found = Vec::new();
    let known = gather_appearances(folder, &mut found, DEPTH_MAX).is_some();
    found.sort_unstable();
    if known {
        fingerprint(own.iter().copied().chain(found))
    } else {
        0
    }
}

/// How long the machine is up, asleep or not: the same for all who share a time namespace.
pub fn since_boot() -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).ok()
}

fn gather_appearances(folder: &Path, found: &mut Vec<u64>, depth: usize) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let whole = whole(folder);
    if !is_near(whole) {
        found.extend(near_paths(whole)?);
    }
    found.push(text(&whole.join("diskseq"))?.parse().ok()?);
    for below in fs::read_dir(whole.join("slaves")).ok()? {
        let below = fs::canonicalize(below.ok()?.path()).ok()?;
        gather_appearances(&below, found, depth)?;
    }
    Some(())
}

/// Whether the disk is known to be a device of this machine, or built on others: `slaves` says on
/// which. The far side of a network may lose its power while the kernel here only waits for it, and
/// then sends again what it had under way; and what a process, a file or memory stands behind
/// (`nbd`, `ublk`, `vduse`, `loop`, `zram`) loses with these. What is not known counts as far.
fn is_near(whole: &Path) -> bool {
    let names: Vec<&str> = whole.iter().filter_map(|name| name.to_str()).collect();
    let begins = |name: &str, list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    let Some(devices) = names.iter().position(|name| *name == "devices") else {
        return false;
    };
    match names[devices + 1..] {
        ["virtual", "block", disk] => begins(disk, &BUILT),
        [kind, ..] if begins(kind, &NEAR) => {
            !names.iter().any(|name| begins(name, &FAR)) && whole.ancestors().all(is_near_host)
        }
        _ => false,
    }
}

/// Whether a folder is no host of SCSI, or one whose driver is known to serve near disks.
fn is_near_host(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix("host"));
    let Some((name, _)) = name.zip(number.and_then(|number| number.parse::<u32>().ok())) else {
        return true;
    };
    let driver = text(&folder.join("scsi_host").join(name).join("proc_name"));
    // The kernel's word for a driver that has no name.
    let driver = driver.filter(|driver| driver != "(null)");
    driver.is_some_and(|driver| !FAR_HOSTS.iter().any(|far| driver.contains(far)))
}

/// The numbers of the controllers of a disk of NVMe that may have several, and may outlive them, if
/// all are in this machine.
fn near_paths(whole: &Path) -> Option<Vec<u64>> {
    let is_subsystem = |folder: &&Path| {
        let name = folder.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("nvme-subsys"))
    };
    let subsystem = whole.parent().filter(is_subsystem)?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(subsystem).ok()? {
        let folder = entry.ok()?.path();
        match text(&folder.join("transport")).as_deref() {
            Some("pcie") => paths.push(number_of(&folder)?),
            Some(_) => return None,
            None => {}
        }
    }
    (!paths.is_empty()).then_some(paths)
}

/// The number of a folder of the kernel's, which gives none twice.
fn number_of(folder: &Path) -> Option<u64> {
    let found = fs::metadata(folder).ok()?;
    Some(std::os::unix::fs::MetadataExt::ino(&found))
}

/// The number of the mounted file system on the device in `folder`: another one whenever it is
/// mounted anew. A file system that failed, and was mounted again, may have lost of its files what
/// its disk has not. `root` is `/sys/fs`.
pub(crate) fn mounted(root: &Path, folder: &Path) -> Option<u64> {
    let name = folder.file_name()?;
    let mut folders = NOTED.iter().map(|kind| root.join(kind).join(name));
    // The kernel makes these folders when it mounts.
    folders.find_map(|folder| number_of(&folder))
}

/// One number that is another one for other numbers, and never 0 (FNV-1a).
pub(crate) fn fingerprint(words: impl IntoIterator<Item = u64>) -> u64 {
    let bytes = words.into_iter().flat_map(u64::to_le_bytes);
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.fold(0xCBF2_9CE4_8422_2325, step).max(1)
}

/// Whether a bridge stands between us and the disk, which may hide its cache: the kernel does not
/// ask disks behind USB for theirs, and takes them for write-through.
fn is_bridged(whole: &Path) -> bool {
    let names = whole.iter().filter_map(|name| name.to_str());
    names.into_iter().any(|name| {
        BRIDGES.iter().any(|bridge| {
            let number = name.strip_prefix(bridge);
            number.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        })
    })
}

/// Whether the kernel has taken a device away; not where nothing can be seen of its devices.
pub(crate) fn is_gone(device: u64) -> bool {
    let folder = folder(device);
    let all = folder.parent();
    matches!(folder.try_exists(), Ok(false)) && all.is_some_and(Path::exists)
}

/// Who holds the block device: what is built on it, or where it is mounted.
pub(crate) fn device_holder(folder: &Path, device: u64) -> Option<String> {
    let held_by: Vec<String> = fs::read_dir(folder.join("holders"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if !held_by.is_empty() {
        return Some(format!("it is part of {}", held_by.join(", ")));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    mount_point(&mounts, &number).map(|place| format!("it is mounted at {place}"))
}

/// The mount point of a device (`major:minor`) in the text of `/proc/self/mountinfo`.
fn mount_point(mounts: &str, number: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next()? == number).then(|| words.nth(1).map(str::to_owned))?
    })
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A process, in words.
    Here(String),
    /// This very process, in words.
    Own(String),
    /// A process that has ended; the lock goes with the last request that it made.
    Gone(u32),
}

/// The process that holds the lock on a file, by `/proc/locks`.
pub(crate) fn lock_holder(device: u64, inode: u64) -> Option<Holder> {
    let place = format!(
        "{:02x}:{:02x}:{inode}",
        libc::major(device),
        libc::minor(device)
    );
    // The list is longer than one read of it, and skips entries when others come and go between
    // the reads: a lock that is missing may be there the next time.
    let process = (0..8).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        lock_process(&locks, &place)
    })?;
    let name = text(Path::new(&format!("/proc/{process}/comm")));
    // One that has ended and is not yet waited for has given up its files already.
    let ended = fs::read_to_string(format!("/proc/{process}/stat"))
        .map_or(true, |stat| stat.contains(") Z ") || stat.contains(") X "));
    if ended {
        return Some(Holder::Gone(process));
    }
    let words = match name {
        Some(name) => format!("process {process} ({name}) has locked it"),
        None => format!("process {process} has locked it"),
    };
    Some(if process == std::process::id() {
        Holder::Own(words)
    } else {
        Holder::Here(words)
    })
}

/// The process that `flock`ed `place` (`major:minor:inode`) in the text of `/proc/locks`.
fn lock_process(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, at, ..] = words[..] else {
            return None;
        };
        (at == place).then(|| process.parse().ok())?
    })
}

/// The trimmed text of a small file, if it is there and not empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_point_is_that_of_the_device() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      31 22 8:17 / /srv/a\\040b rw - xfs /dev/sdb1 rw\n";
        assert_eq!(mount_point(mounts, "8:17").as_deref(), Some("/srv/a\\040b"));
        assert_eq!(mount_point(mounts, "8:1").as_deref(), Some("/"));
        assert_eq!(mount_point(mounts, "8:2"), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_found_among_other_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:99 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 12 08:01:99 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 13 08:01:99 0 EOF\n";
        assert_eq!(lock_process(locks, "08:01:99"), Some(13));
        assert_eq!(lock_process(locks, "08:01:9"), None);
    }

    #[test]
    fn a_device_looks_another_one_when_one_below_it_was_away() {
        let root = tempfile::tempdir().unwrap();
        let paths = ["virtual/block/dm-0", "pci0000:00/ata1/block/sdx"];
        let [upper, lower] = paths.map(|path| root.path().join("devices").join(path));
        let part = lower.join("sdx1");
        for folder in [&upper, &lower] {
            fs::create_dir_all(folder.join("slaves")).unwrap();
        }
        fs::create_dir(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(upper.join("diskseq"), "9\n").unwrap();
        std::os::unix::fs::symlink(&part, upper.join("slaves/sdx1")).unwrap();
        assert_eq!(
            appearance(&upper, &[1]),
            0,
            "the kernel says nothing of the lower one"
        );
        fs::write(lower.join("diskseq"), "4\n").unwrap();
        let before = appearance(&upper, &[1]);
        assert_ne!(before, 0);
        assert_eq!(appearance(&upper, &[1]), before);
        assert_ne!(appearance(&upper, &[2]), before);
        assert_ne!(appearance(&part, &[1]), before);
        fs::write(lower.join("diskseq"), "5\n").unwrap();
        assert_ne!(appearance(&upper, &[1]), before);
    }

    /// The folder of a disk.
    fn disk(root: &Path, path: &str) -> PathBuf {
        let folder = root.join("devices").join(path);
        fs::create_dir_all(folder.join("slaves")).unwrap();
        fs::write(folder.join("diskseq"), "7\n").unwrap();
        folder
    }

    #[test]
    fn only_disks_of_this_machine_are_known_not_to_have_been_away() {
        let root = tempfile::tempdir().unwrap();
        let disk = |path: &str| disk(root.path(), path);
        let driver = |host: &str, driver: &str| {
            let (_, name) = host.rsplit_once('/').unwrap();
            let folder = root.path().join("devices").join(host);
            let folder = folder.join("scsi_host").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("proc_name"), driver).unwrap();
        };
        driver("pci0000:00/0000:00:1f.2/ata1/host0", "ahci\n");
        driver("pci0000:00/0000:00:04.0/virtio3/host1", "virtio_scsi\n");
        driver("pci0000:00/0000:00:05.0/host5", "ib_srp\n");
        driver("pci0000:00/0000:00:03.0/host4", "qla2xxx\n");
        driver("vio/30000003/host2", "ibmvscsi\n");
        driver("platform/host3", "iscsi_tcp\n");
        driver("platform/host9", "tcm_loopback\n");
        driver("platform/host10", "(null)\n");
        let near = [
            "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda",
            "pci0000:00/0000:00:04.0/virtio3/host1/target1:0:0/1:0:0:0/block/sdh",
            "pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1",
            "pci0000:00/0000:00:02.0/virtio1/block/vda",
            "platform/soc/fe340000.mmc/mmc_host/mmc0/mmc0:0001/block/mmcblk0",
            "LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/namespace0.0/block/pmem0",
            "vio/30000003/host2/target2:0:1/2:0:1:0/block/sdi",
            "css0/0.0.0001/0.0.0200/block/dasda",
            "vbd-51712/block/xvda",
            "virtual/block/dm-3",
            "virtual/block/md127",
        ];
        let far = [
            "platform/host3/session1/target3:0:0/3:0:0:0/block/sdb",
            "platform/host3/target3:0:0/3:0:0:0/block/sdb",
            "platform/host9/target9:0:0/9:0:0:0/block/sdg",
            "platform/host10/target10:0:0/10:0:0:0/block/sdk",
            "pci0000:00/0000:00:03.0/host4/rport-4:0-0/target4:0:0/block/sdc",
            "pci0000:00/0000:00:05.0/host5/target5:0:0/5:0:0:0/block/sdd",
            "pci0000:00/0000:00:06.0/host6/target6:0:0/6:0:0:0/block/sde",
            "tcm_loop_0/tcm_loop_adapter_0/host7/target7:0:1/7:0:1:0/block/sdf",
            "pseudo_0/adapter0/host8/target8:0:0/8:0:0:0/block/sdj",
            "vduse/disk0/virtio4/block/vdb",
            "rbd/0/block/rbd0",
            "virtual/block/nbd0",
            "virtual/block/loop0",
            "virtual/mdev/block/md0",
            "virtual/nvme-fabrics/ctl/nvme1/nvme1n1",
            "virtual/nvme-subsystem/nvme-subsys2/nvme2n1",
        ];
        for path in near {
            assert_ne!(appearance(&disk(path), &[1]), 0, "{path}");
        }
        for path in far {
            assert_eq!(appearance(&disk(path), &[1]), 0, "{path}");
        }
    }

    #[test]
    fn a_disk_behind_a_bridge_has_a_cache_whatever_the_kernel_thinks() {
        let root = tempfile::tempdir().unwrap();
        let cases = [
            ("pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda", true),
            (
                "pci0000:00/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb",
                false,
            ),
        ];
        for (path, through) in cases {
            let folder = disk(root.path(), path);
            fs::create_dir_all(folder.join("queue")).unwrap();
            fs::write(folder.join("queue/write_cache"), "write through\n").unwrap();
            assert_eq!(block_facts(&folder).write_through, through, "{path}");
            fs::write(folder.join("queue/write_cache"), "write back\n").unwrap();
            assert_eq!(writes_through(&folder), Some(false), "{path}");
            fs::remove_dir_all(&folder).unwrap();
            assert_eq!(writes_through(&folder), None, "{path}");
            assert!(!block_facts(&folder).write_through, "{path}");
        }
    }

    #[test]
    fn disks_of_several_controllers_and_those_built_on_others_are_as_these_are() {
        let root = tempfile::tempdir().unwrap();
        let disk = |path: &str| disk(root.path(), path);
        let shared = disk("virtual/nvme-subsystem/nvme-subsys3/nvme3n1");
        let controller = |name: &str, transport: &str| {
            let folder = shared.parent().unwrap().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("transport"), transport).unwrap();
        };
        controller("nvme3", "pcie\n");
        let before = appearance(&shared, &[1]);
        assert_ne!(before, 0);
        let subsystem = shared.parent().unwrap();
        // The disk stays when its controller goes, and another one comes.
        controller("nvme5", "pcie\n");
        fs::remove_dir_all(subsystem.join("nvme3")).unwrap();
        assert_ne!(appearance(&shared, &[1]), before);
        controller("nvme4", "tcp\n");
        assert_eq!(appearance(&shared, &[1]), 0);
        // Whatever is built on one of the others is as they are.
        let built = disk("virtual/block/dm-4");
        let lower = disk("virtual/block/nbd0");
        std::os::unix::fs::symlink(lower, built.join("slaves/nbd0")).unwrap();
        assert_eq!(appearance(&built, &[1]), 0);
    }

    #[test]
    fn a_file_system_that_is_mounted_anew_has_another_number() {
        let root = tempfile::tempdir().unwrap();
        let device = Path::new("/sys/devices/pci0000:00/ata1/block/sda/sda1");
        assert_eq!(mounted(root.path(), device), None);
        fs::create_dir_all(root.path().join("xfs/sda1")).unwrap();
        let before = mounted(root.path(), device).unwrap();
        // Whatever was made in between has a number of its own.
        fs::create_dir(root.path().join("xfs/sdb1")).unwrap();
        fs::remove_dir(root.path().join("xfs/sda1")).unwrap();
        fs::rename(root.path().join("xfs/sdb1"), root.path().join("xfs/sda1")).unwrap();
        assert_ne!(mounted(root.path(), device), Some(before));
    }

    #[test]
    fn facts_of_a_partition_come_from_its_drive() {
        let root = tempfile::tempdir().unwrap();
        let drive = root.path().join("sdx");
        for (name, content) in [
            ("queue/write_cache", "write through\n"),
            ("queue/rotational", "1\n"),
            ("queue/max_sectors_kb", "1280\n"),
            ("queue/max_segments", "127\n"),
            ("queue/chunk_sectors", "0\n"),
            ("queue/write_zeroes_max_bytes", "4096\n"),
            ("device/model", "  FAST DRIVE \n"),
            ("device/serial", "\n"),
            ("wwid", "eui.01\n"),
            ("sdx2/partition", "2\n"),
        ] {
            let path = drive.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let mut wanted = BlockFacts {
            write_through: true,
            rotational: true,
            write_zeroes: true,
            request_bytes: 127 * 4096,
            model: Some("FAST DRIVE".into()),
            serial: None,
            wwid: Some("eui.01".into()),
        };
        assert_eq!(block_facts(&drive), wanted);
        wanted.wwid = Some("eui.01-part2".into());
        assert_eq!(block_facts(&drive.join("sdx2")), wanted);
        assert_eq!(block_facts(root.path()), BlockFacts::default());
        for (name, content, request_bytes) in [
            ("queue/max_sectors_kb", "128\n", 128 << 10),
            ("queue/chunk_sectors", "256\n", 0),
        ] {
            fs::write(drive.join(name), content).unwrap();
            assert_eq!(block_facts(&drive).request_bytes, request_bytes, "{name}");
        }
    }
}
