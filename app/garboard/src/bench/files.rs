//! The layer of file systems: one file of our own in a directory, mostly of a guest, with the same
//! load as everything below it. Its name is gone before the first byte is written, so what ends a
//! run leaves nothing behind; only who is killed while the file is being made leaves an empty one.
//! No file that is there is ever touched.

use std::error::Error as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::{Answer, EngineError, ErrorKind};
use drive::{Drive, DriveSpec};
use serde::{Deserialize, Serialize};
use units::Size;

use super::raw::{Loader, Raw};
use super::workloads::MIB;
use super::{Report, report};
use crate::output;

/// How long the file is when nobody says, if half of the free space is not less.
const RANGE_DEFAULT: u64 = 1 << 30;

/// Where files are, as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSystem {
    pub(crate) directory: PathBuf,
    pub(crate) mount_point: PathBuf,
    /// `xfs`, `ext4` and so on.
    pub(crate) kind: String,
    /// Mostly a device.
    pub(crate) source: String,
    pub(crate) options: String,
    /// Of the device, where it has one: of a volume in a guest the begin of its uuid.
    pub(crate) serial: Option<String>,
    pub(crate) size_bytes: u64,
    /// For us, before the file was made.
    pub(crate) free_bytes: u64,
}

impl FileSystem {
    fn of(directory: &Path) -> io::Result<FileSystem> {
        let directory = fs::canonicalize(directory)?;
        let facts = fs::metadata(&directory)?;
        if !facts.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        let space = rustix::fs::statvfs(&directory)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mount_of(&directory, &mounts).unwrap_or_default();
        Ok(FileSystem {
            mount_point: mount.point,
            kind: mount.kind,
            source: mount.source,
            options: mount.options,
            serial: serial(facts.dev()),
            size_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            directory,
        })
    }

    /// For people: `xfs on /dev/vda (serial 0123), mounted at /mnt`.
    pub(crate) fn text(&self) -> String {
        let serial = self.serial.as_ref();
        let serial = serial.map(|serial| format!(" (serial {serial})"));
        format!(
            "{} on {}{}, mounted at {}",
            self.kind,
            self.source,
            serial.unwrap_or_default(),
            self.mount_point.display()
        )
    }
}

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
    source: String,
    options: String,
}

/// The mount that a path without links lies on. What was mounted last hides what was there before.
fn mount_of(path: &Path, mountinfo: &str) -> Option<Mount> {
    let mounts = mountinfo.lines().filter_map(mount);
    let own = mounts.filter(|mount| path.starts_with(&mount.point));
    own.max_by_key(|mount| mount.point.components().count())
}

fn mount(line: &str) -> Option<Mount> {
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(4);
    let mut system = system.split(' ');
    Some(Mount {
        point: unescaped(place.next()?).into(),
        options: place.next()?.to_owned(),
        kind: system.next()?.to_owned(),
        source: unescaped(system.next()?),
    })
}

/// Blanks and the like are written as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut plain = text.to_owned();
    for (code, sign) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        plain = plain.replace(code, sign);
    }
    plain
}

/// The serial number of the block device behind a file system, also of that of a partition.
fn serial(device: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let places = ["serial", "../serial", "device/serial", "../device/serial"];
    let found = places.iter().find_map(|place| {
        let text = fs::read_to_string(folder.join(place)).ok()?;
        Some(text.trim().to_owned())
    });
    found.filter(|serial| !serial.is_empty())
}

/// A file of our own that has no name any more.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(crate) system: FileSystem,
}

/// Where another process finds the very file that a drive has open, as long as this one lives: by
/// its name it could be another by then, for whoever owns the directory.
pub(super) fn path_for_others(drive: &Drive) -> Option<String> {
    let number = drive.fd()?;
    Some(format!("/proc/{}/fd/{number}", std::process::id()))
}

/// Makes a file in a directory that is to be measured. `range` is how long it is to be; none: as
/// the free space suggests.
///
/// # Errors
/// When there is no such directory, no space, or files cannot be made or removed there.
pub(crate) fn make(directory: &Path, range: Option<u64>, by: Loader) -> Answer<Raw> {
    let object = format!("directory {}", directory.display());
    let wrong = |message: String| EngineError::new(ErrorKind::Invalid, object.clone(), message);
    let system = FileSystem::of(directory).map_err(|error| wrong(error.to_string()))?;
    let free = system.free_bytes;
    // Others write there, too.
    let usable = free - free / 16;
    let asked = range.unwrap_or(RANGE_DEFAULT.min(free / 2));
    let range = asked / MIB * MIB;
    if range == 0 && free >= 2 * MIB {
        return Err(wrong(
            "the range to measure is shorter than 1 MiB".to_owned(),
        ));
    }
    if range == 0 || range > usable {
        let message = format!(
            "a file of {} does not fit: {}, has {} free, of which a 16th is left alone",
            output::size(range.max(MIB)),
            system.text(),
            output::size(free)
        );
        return Err(wrong(message).next("make room, or say with --range how long it may be"));
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let number = now.map_or(0, |since| since.as_nanos());
    let name = format!(".garboard-bench-{}-{number}", std::process::id());
    let path = system.directory.join(name);
    let drive = nameless(&path, range)
        .map_err(|message| wrong(message).next("choose a directory in which you may write"))?;
    Ok(Raw {
        drives: vec![(object, drive)],
        kinds: Vec::new(),
        model: None,
        by,
        array: None,
        volume: None,
        file: Some(OwnFile { system }),
    })
}

/// A new file that is open and has lost its name; what is there already is left alone.
fn nameless(path: &Path, bytes: u64) -> Result<Arc<Drive>, String> {
    let spec = DriveSpec::File {
        path: path.to_owned(),
        size: Some(Size(bytes)),
        create: true,
    };
    let drive = Drive::open(&spec).map_err(|error| {
        // What the operating system said; the rest is for those who add drives to an engine.
        let why = error.source().map(ToString::to_string);
        let why = why.unwrap_or_else(|| error.to_string());
        format!("no file can be made there: {why}")
    })?;
    let text = |error: io::Error| format!("file {} is left: {error}", path.display());
    fs::remove_file(path).map_err(text)?;
    Ok(drive)
}

/// What is taken for granted of files.
pub(super) fn assume(report: &mut Report, raw: &Raw, file: &OwnFile) {
    report.note(match raw.by {
        Loader::Own => {
            "one thread of this process loads one file through io_uring; all jobs share \
                        the file; requests that follow each other are not joined; a flush is an \
                        fdatasync"
                .to_owned()
        }
        Loader::Fio => "fio loads one file, one thread for each job; a flush is an fdatasync; its \
                        latencies are from submission to answer (clat)"
            .to_owned(),
    });
    report.note(report::LATENCY_STEPS.to_owned());
    report.note(
        "the file was written in full beforehand, so that no block of it is a hole; it has no \
         name, and its space is free again when this has ended, however that was"
            .to_owned(),
    );
    for (_, drive) in &raw.drives {
        report.note(match &drive.info().buffered_reason {
            None => "past the page cache (O_DIRECT)".to_owned(),
            Some(reason) => format!("the page cache answers, not the device: {reason}"),
        });
    }
    report.note(format!("mounted with {}", file.system.options));
    report.note("no theory: what lies below is not known here".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /mnt rw - tmpfs tmpfs rw
31 30 254:16 / /mnt/a\\040b rw,noatime shared:5 - xfs /dev/vdb rw,attr2
32 22 254:32 / /mnt rw,nodev - btrfs /dev/vdc rw
";

    #[test]
    fn a_path_lies_on_the_last_of_the_deepest_mounts_above_it() {
        let of = |path: &str| mount_of(Path::new(path), MOUNTS).expect("there is a root");
        assert_eq!(of("/mntx/file").source, "/dev/vda");
        let blank = of("/mnt/a b/c");
        assert_eq!(
            (blank.kind.as_str(), blank.source.as_str()),
            ("xfs", "/dev/vdb")
        );
        assert_eq!(blank.options, "rw,noatime");
        assert_eq!(of("/mnt/other").kind, "btrfs", "it hides the other");
    }

    #[test]
    fn some_room_is_left_to_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let free = FileSystem::of(folder.path()).expect("told").free_bytes;
        let made = make(folder.path(), Some(free - free / 64), Loader::Own);
        let wrong = made.err().expect("a 16th is left").to_string();
        assert!(wrong.contains("left alone"), "{wrong}");
        let short = make(folder.path(), Some(MIB / 2), Loader::Own).err();
        let short = short.expect("too short").to_string();
        assert!(short.contains("shorter than 1 MiB"), "{short}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_file_that_is_there_is_left_alone_and_ours_has_no_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f");
        fs::write(&path, b"precious").expect("written");
        let wrong = nameless(&path, MIB).expect_err("it is there");
        assert!(wrong.contains("exists"), "{wrong}");
        assert_eq!(fs::read(&path).expect("read"), b"precious");
        let drive = nameless(&folder.path().join("g"), MIB).expect("made");
        assert_eq!(drive.info().size_bytes, MIB);
        let path = path_for_others(&drive).expect("it is open");
        assert_eq!(fs::metadata(path).expect("found").len(), MIB);
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1, "the precious one");
    }
}
