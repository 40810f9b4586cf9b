//! Opening a drive by its generic device: locks first, then what it is, then one command to see
//! that commands work.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use units::limits;

use super::command::{Command, IDENTIFY_BYTES};
use super::namespace::{Format, Namespace};
use super::sibling::generic_beside;
use super::{Answered, Asked, RetryWaits, Sibling, judge, kernel};
use crate::error::{OpenError, OpenErrorKind};
use crate::info::{DriveInfo, DriveKind};
use crate::mapping::Mapping;
use crate::open::Lock;
use crate::uring::{self, Direction};
use crate::{ioctl, open, sysfs};

/// Memory of one command goes to the drive as a list of pages of this size, whatever the machine's
/// are: pieces meet at multiples of it.
const PAGE_BYTES: u64 = 4096;
/// Where the kernel does not say how memory has to be aligned.
const ALIGN_UNKNOWN: u64 = 4096;

/// A drive that is open by its generic device.
#[derive(Debug)]
pub(crate) struct Generic {
    /// Takes commands.
    pub(crate) commands: File,
    /// Keeps others out, and is read and written by the control path.
    pub(crate) block: File,
    pub(crate) namespace: Namespace,
}

impl Drop for Generic {
    /// What others have read of the block device meanwhile, and the kernel keeps, is not what
    /// commands have written since.
    fn drop(&mut self) {
        ioctl::forget_pages(&self.block);
    }
}

/// Opens a drive for ourselves alone, by its generic device at `path` of the number `device`.
///
/// Two locks, and both before anything is read. `O_EXCL` on the block device keeps everybody else
/// out: the kernel gives a block device to one holder, but knows no such thing of the generic one,
/// so a mount, an array of the kernel or an engine would use the drive under us. It is gone with
/// the process, though, and commands under way are not: those hold the file of the *generic* device
/// only. So that is locked too (`flock`); the lock goes when the kernel has let go of the last of
/// them, and a write of a killed engine cannot land over what its successor has acknowledged.
pub(crate) fn open_generic(path: &Path, device: u64) -> Result<(Generic, DriveInfo), OpenError> {
    let unsupported = |cause: String| OpenError::new(OpenErrorKind::Unsupported, path, cause);
    let sibling = Sibling::of(device).ok_or_else(|| {
        let cause = "is not a block device, nor the generic device of an NVMe drive";
        OpenError::new(OpenErrorKind::WrongKind, path, cause)
    })?;
    if let Some(release) = kernel::deceives() {
        return Err(unsupported(format!(
            "this kernel ({release}) takes commands that never reached the drive for successful \
             ones when a drive is pulled; use Linux 6.12, 6.6.2, 6.1.63 or a later one of these, \
             or {}",
            sibling.node.display()
        )));
    }
    if let Some(cause) = sibling.refusal() {
        return Err(unsupported(cause));
    }
    let node = fs::metadata(&sibling.node);
    let node = node.map_err(|error| OpenError::io(&sibling.node, "look", error))?;
    if node.rdev() != sibling.device {
        let cause = "is not the device that the kernel calls so".to_owned();
        let kind = OpenErrorKind::WrongKind;
        return Err(OpenError::new(kind, &sibling.node, cause));
    }
    let block = open::claim(&sibling.node, sibling.device, &sibling.folder)?;
    let commands = lock(path, device, Lock::Alone)?;
    settle(&sibling.node, &block)?;
    for part in parts(&sibling.folder) {
        let file = File::open(&part).map_err(|error| OpenError::io(&part, "open", error))?;
        settle(&part, &file)?;
    }
    let generic = Generic {
        namespace: look(path, &commands, &block, &sibling)?,
        commands,
        block,
    };
    let info = info(path, &generic, &sibling)?;
    let tried = try_out(&generic).map_err(|error| refused(path, error))?;
    match judge(Asked::Blocks, tried, 0) {
        Answered::Done => Ok((generic, info)),
        Answered::Failed(_) if tried > 0 => {
            // Its first block cannot be read; that is for the array to find out.
            Ok((generic, info))
        }
        Answered::Failed(_) => Err(refused(path, io::Error::from_raw_os_error(-tried))),
    }
}

/// Waits until no command of an engine that is gone is under way on the drive whose block device
/// is in `folder`, which is ours already: whoever sends commands has claimed that first. Where the
/// generic device cannot be opened, nothing is known of it. The lock is not kept, and shared: who
/// has claimed another part of the same drive asks the same.
pub(crate) fn await_commands(folder: &Path) -> Result<(), OpenError> {
    let Some((path, device)) = generic_beside(folder) else {
        return Ok(());
    };
    match lock(&path, device, Lock::Shared) {
        Err(busy) if busy.kind == OpenErrorKind::InUse => Err(busy),
        _ => Ok(()),
    }
}

/// Opens the generic device and locks it; see [`open_generic`].
fn lock(path: &Path, device: u64, lock: Lock) -> Result<File, OpenError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|error| OpenError::io(path, "open", error))?;
    let facts = file.metadata();
    let facts = facts.map_err(|error| OpenError::io(path, "look", error))?;
    if facts.rdev() != device {
        let cause = "is another device than a moment ago";
        return Err(OpenError::new(OpenErrorKind::NotFound, path, cause));
    }
    open::lock_file(path, &file, lock, open::GONE_WAIT)?;
    Ok(file)
}

/// Has the kernel write what it holds back of a block device, and forget the rest. What somebody
/// wrote there before, through the page cache, and has open still, would land later: over blocks
/// that commands have written meanwhile.
fn settle(node: &Path, block: &File) -> Result<(), OpenError> {
    let doing = "writing back what others wrote there before";
    let written = block.sync_all();
    written.map_err(|error| OpenError::io(node, doing, error))?;
    ioctl::forget_pages(block);
    Ok(())
}

/// The nodes of the parts of a drive: the kernel has pages of their own for each.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().join("partition").exists())
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}

/// What the drive is, by itself and by the kernel.
fn look(
    path: &Path,
    commands: &File,
    block: &File,
    sibling: &Sibling,
) -> Result<Namespace, OpenError> {
    let look = |error| OpenError::io(path, "look", error);
    let id = ioctl::nvme_namespace(commands).map_err(look)?;
    let other = ioctl::nvme_namespace(block).map_err(look)?;
    if id != other {
        let cause = format!(
            "is namespace {id}, and {} is {other}",
            sibling.node.display()
        );
        return Err(OpenError::new(OpenErrorKind::WrongKind, path, cause));
    }
    let block_bytes = ioctl::block_sizes(block).map_err(look)?.logical;
    let identified = identify(commands, Command::identify(id));
    let answer = identified.map_err(|error| refused(path, error))?;
    let unsupported = |cause: String| OpenError::new(OpenErrorKind::Unsupported, path, cause);
    let format = Format::parse(&answer)
        .ok_or_else(|| unsupported("contradicts itself about how it is formatted".to_owned()))?;
    if let Some(cause) = format.refusal(block_bytes) {
        return Err(unsupported(cause));
    }
    let zero_bytes = sysfs::queue_number(&sibling.folder, "write_zeroes_max_bytes");
    // Only what it would like: no reason to refuse it.
    let controller = identify(commands, Command::identify_controller());
    Ok(Namespace {
        id,
        block_bytes,
        zero_bytes_max: zero_bytes.unwrap_or(0),
        deallocates: format.deallocates,
        retry_waits: controller.map_or(RetryWaits::NONE, |answer| RetryWaits::parse(&answer)),
    })
}

fn identify(commands: &File, command: Command) -> io::Result<[u8; IDENTIFY_BYTES]> {
    let room = Mapping::new(IDENTIFY_BYTES)?;
    let target = room.segment(0, IDENTIFY_BYTES);
    let length = u32::try_from(IDENTIFY_BYTES).expect("small");
    let command = command.encode(target.address(), length);
    ioctl::nvme_admin(commands, command, target)?;
    let mut answer = [0; IDENTIFY_BYTES];
    target.copy_to_slice(&mut answer);
    Ok(answer)
}

/// As of its block device; but what goes to the drive in one piece is cut by us, and nobody else.
fn info(path: &Path, generic: &Generic, sibling: &Sibling) -> Result<DriveInfo, OpenError> {
    let beside = open::block_info(&sibling.node, &generic.block, &sibling.folder)?;
    let real = fs::canonicalize(path).map_err(|error| OpenError::io(path, "look", error))?;
    let number = |name: &str| sysfs::queue_number(&sibling.folder, name);
    let limits = Limits {
        hardware_bytes: number("max_hw_sectors_kb").map(|kilobytes| kilobytes << 10),
        segments: number("max_segments"),
        align: number("dma_alignment").map(|mask| mask + 1),
        boundary: number("virt_boundary_mask").map(|mask| mask + 1),
    };
    let transfer_bytes_max = limits.transfer_bytes(beside.block_bytes);
    let zeroes = generic.namespace.zero_bytes_max >= beside.block_bytes;
    Ok(DriveInfo {
        kind: DriveKind::NvmeGeneric,
        path: Some(real),
        transfer_bytes_max,
        segments_max: uring::COMMAND_SEGMENTS_MAX,
        joined_bytes_max: limits.joined_bytes(beside.joined_bytes_max, transfer_bytes_max),
        memory_align: limits.align(),
        memory_boundary: limits.boundary(),
        can_discard: zeroes,
        discard_reads_zero: zeroes,
        can_write_zeroes: zeroes,
        ..beside
    })
}

/// What the kernel says that the drive and its own driver take as one command.
struct Limits {
    hardware_bytes: Option<u64>,
    segments: Option<u64>,
    align: Option<u64>,
    boundary: Option<u64>,
}

impl Limits {
    /// A command is not cut by anybody, and refused when it is too long. Every page of it may lie
    /// apart, and the first one may begin anywhere.
    fn transfer_bytes(&self, block_bytes: u64) -> u64 {
        let pages = self.segments.unwrap_or(0).saturating_sub(1).max(1);
        let bytes = self.hardware_bytes.unwrap_or(PAGE_BYTES);
        let bytes = bytes.min(pages.saturating_mul(PAGE_BYTES));
        let bytes = bytes.min(limits::REQUEST_BYTES_MAX);
        let bytes = bytes.min(Namespace::BLOCKS_MAX * block_bytes);
        // Whole pages, so that what goes on after a cut begins as it did.
        (bytes / PAGE_BYTES * PAGE_BYTES).max(block_bytes)
    }

    /// Requests join at pages.
    fn joined_bytes(&self, beside: u64, transfer_bytes_max: u64) -> u64 {
        if self.boundary() > PAGE_BYTES {
            return 0;
        }
        beside.min(transfer_bytes_max)
    }

    fn align(&self) -> u64 {
        self.align
            .filter(|align| align.is_power_of_two())
            .unwrap_or(ALIGN_UNKNOWN)
    }

    /// Also where the kernel sees none, for the drive takes other lists than of pages: it may
    /// choose pages all the same.
    fn boundary(&self) -> u64 {
        let boundary = self.boundary.filter(|boundary| boundary.is_power_of_two());
        boundary.unwrap_or(PAGE_BYTES).max(PAGE_BYTES)
    }
}

/// Reads the first block by a command. The answer is as [`judge`] takes it.
fn try_out(generic: &Generic) -> io::Result<i32> {
    let bytes = generic.namespace.block_bytes;
    let room = Mapping::new(units::bytes_usize(bytes))?;
    let command = Command::transfer(&generic.namespace, Direction::Read, 0, bytes);
    let target = room.segment(0, room.len());
    uring::try_command(&generic.commands, command, target)
}

/// Why commands do not work.
fn refused(path: &Path, error: io::Error) -> OpenError {
    let (kind, cause) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => (
            OpenErrorKind::Permission,
            "the kernel refuses its commands: before Linux 6.2 they need CAP_SYS_ADMIN, and a \
             security policy may forbid them",
        ),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS) => (
            OpenErrorKind::Unsupported,
            "this kernel takes no commands for it through io_uring (Linux 5.19 does)",
        ),
        _ => return OpenError::io(path, "sending a command", error),
    };
    OpenError::new(kind, path, format!("{cause} ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_as_long_as_drive_driver_and_page_lists_allow() {
        let limits = |hardware_bytes, segments| Limits {
            hardware_bytes,
            segments,
            align: None,
            boundary: None,
        };
        for (limits, block_bytes, wanted) in [
            // The first of 127 pages may begin in the middle of one.
            (limits(Some(512 << 10), Some(127)), 512, 126 << 12),
            (limits(Some(128 << 10), Some(127)), 512, 128 << 10),
            (limits(Some(130 << 10), Some(127)), 512, 128 << 10),
            (limits(Some(1 << 30), Some(65535)), 512, 16 << 20),
            (limits(Some(1 << 20), None), 512, 4096),
            (limits(None, Some(127)), 4096, 4096),
            (limits(Some(2 << 10), Some(1)), 512, 512),
        ] {
            assert_eq!(limits.transfer_bytes(block_bytes), wanted);
        }
    }

    #[test]
    fn a_drive_is_not_taken_when_older_writes_cannot_be_brought_to_it() {
        let node = Path::new("/dev/zero");
        let error = settle(node, &File::open(node).unwrap()).unwrap_err();
        let words = error.to_string();
        assert!(
            words.contains("/dev/zero") && words.contains("writing back what others wrote"),
            "{words}"
        );
        let file = tempfile::tempfile().unwrap();
        settle(node, &file).unwrap();
    }

    #[test]
    fn the_parts_of_a_drive_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        assert!(parts(folder.path()).is_empty());
        for name in ["queue", "nvme0n1p1", "holders"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("nvme0n1p1/partition"), "1\n").unwrap();
        assert_eq!(parts(folder.path()), [Path::new("/dev/nvme0n1p1")]);
    }

    #[test]
    fn where_the_kernel_does_not_say_memory_is_taken_in_pages() {
        let limits = |align, boundary| Limits {
            hardware_bytes: None,
            segments: None,
            align,
            boundary,
        };
        let unknown = limits(None, None);
        assert_eq!((unknown.align(), unknown.boundary()), (4096, 4096));
        let usual = limits(Some(4), Some(4096));
        assert_eq!((usual.align(), usual.boundary()), (4, 4096));
        let none = limits(Some(4), Some(1));
        assert_eq!((none.align(), none.boundary()), (4, 4096));
        let large = limits(Some(3), Some(65536));
        assert_eq!((large.align(), large.boundary()), (4096, 65536));
        assert_eq!(usual.joined_bytes(256 << 10, 504 << 10), 256 << 10);
        assert_eq!(usual.joined_bytes(256 << 10, 128 << 10), 128 << 10);
        assert_eq!(large.joined_bytes(256 << 10, 504 << 10), 0);
    }
}
