//! What `/sys` and `/proc` say about block devices and about who holds a file.
//!
//! Everything here is advice: a missing file is a missing fact, never an error.

use std::fs;
use std::path::{Path, PathBuf};

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
    pub(crate) memory_align: Option<u64>,
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

/// Reads what is known of the device in `folder`.
pub(crate) fn block_facts(folder: &Path) -> BlockFacts {
    // A partition has no queue of its own; its drive, one folder up, has.
    let is_part = folder.join("partition").exists();
    let whole = if is_part {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    let number = |name: &str| text(&whole.join("queue").join(name))?.parse::<u64>().ok();
    // Of a partition the number is part of the name, or two partitions would be one drive.
    let own = |name: String| match text(&folder.join("partition")) {
        Some(part) => format!("{name}-part{part}"),
        None => name,
    };
    BlockFacts {
        write_through: text(&whole.join("queue/write_cache")).as_deref() == Some("write through"),
        rotational: number("rotational") == Some(1),
        write_zeroes: number("write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0),
        memory_align: number("dma_alignment").map(|mask| mask + 1),
        model: text(&whole.join("device/model")),
        serial: text(&whole.join("device/serial"))
            .or_else(|| text(&whole.join("serial")))
            .map(own),
        wwid: text(&whole.join("wwid"))
            .or_else(|| text(&whole.join("device/wwid")))
            .map(own),
    }
}

/// Devices that are built on others, at most so deep.
const DEPTH_MAX: usize = 8;

/// What is the same for as long as neither the device in `folder` nor those that it is built on
/// were away: the kernel counts the appearances of all disks, and gives none its number again
/// (since Linux 5.15). `own` is what tells the drive from others. 0 where the kernel does not say.
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

fn gather_appearances(folder: &Path, found: &mut Vec<u64>, depth: usize) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let is_part = folder.join("partition").exists();
    let whole = folder.parent().filter(|_| is_part).unwrap_or(folder);
    found.push(text(&whole.join("diskseq"))?.parse().ok()?);
    for below in fs::read_dir(whole.join("slaves")).ok()? {
        let below = fs::canonicalize(below.ok()?.path()).ok()?;
        gather_appearances(&below, found, depth)?;
    }
    Some(())
}

/// One number that is another one for other numbers, and never 0 (FNV-1a).
pub(crate) fn fingerprint(words: impl IntoIterator<Item = u64>) -> u64 {
    let bytes = words.into_iter().flat_map(u64::to_le_bytes);
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.fold(0xCBF2_9CE4_8422_2325, step).max(1)
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
        let [upper, lower] = ["dm-0", "sdx"].map(|name| root.path().join(name));
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

    #[test]
    fn facts_of_a_partition_come_from_its_drive() {
        let root = tempfile::tempdir().unwrap();
        let drive = root.path().join("sdx");
        for (name, content) in [
            ("queue/write_cache", "write through\n"),
            ("queue/rotational", "1\n"),
            ("queue/dma_alignment", "3\n"),
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
            memory_align: Some(4),
            model: Some("FAST DRIVE".into()),
            serial: None,
            wwid: Some("eui.01".into()),
        };
        assert_eq!(block_facts(&drive), wanted);
        wanted.wwid = Some("eui.01-part2".into());
        assert_eq!(block_facts(&drive.join("sdx2")), wanted);
        assert_eq!(block_facts(root.path()), BlockFacts::default());
    }
}
