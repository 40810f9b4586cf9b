//! Opening: lock first, then look, then say what was found.
//!
//! The lock is part of the open file, and every request in the kernel holds that file: so a drive
//! stays locked after a killed engine until the last of its old writes has landed.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use units::{BlockSize, Clock, MonotonicClock, Size, limits};

use crate::drive::Backing;
use crate::error::{OpenError, OpenErrorKind};
use crate::info::{DriveInfo, DriveKind};
use crate::ioctl::{self, DirectAlign};
use crate::mapping::Mapping;
use crate::nvme;
use crate::spec::DriveSpec;
use crate::sysfs::{self, Holder};

/// Segments of one transfer: the kernel's `UIO_MAXIOV`.
pub(crate) const SEGMENTS_MAX: usize = 1024;

/// The facts about memory and null, and what the others start from.
pub(crate) fn plain_info(kind: DriveKind, size_bytes: u64) -> DriveInfo {
    DriveInfo {
        kind,
        path: None,
        size_bytes,
        block_bytes: BlockSize::B512.bytes(),
        physical_block_bytes: BlockSize::B4096.bytes(),
        atomic_bytes: BlockSize::B512.bytes(),
        volatile_cache: false,
        direct_io: true,
        buffered_reason: None,
        // On what keeps nothing there is nothing to make agree first.
        reads_zero_when_new: true,
        discard_reads_zero: kind == DriveKind::Memory,
        can_discard: kind == DriveKind::Memory,
        can_write_zeroes: true,
        rotational: false,
        transfer_bytes_max: limits::REQUEST_BYTES_MAX,
        joined_bytes_max: 0,
        segments_max: SEGMENTS_MAX,
        memory_align: 1,
        memory_boundary: 1,
        appearance: 0,
        node: None,
        locked: None,
        model: None,
        serial: None,
        wwid: None,
    }
}

/// The size of a memory or null drive, rounded down to whole blocks.
pub(crate) fn plain_size(spec: &DriveSpec, size: Size) -> Result<u64, OpenError> {
    let bytes = size.0 / BlockSize::B512.bytes() * BlockSize::B512.bytes();
    let fits = isize::try_from(bytes).is_ok();
    if bytes == 0 || !fits {
        let cause = "the size must be at least one block and below 8 EiB".to_owned();
        return Err(OpenError::unnamed(
            OpenErrorKind::Size,
            spec.to_string(),
            cause,
        ));
    }
    Ok(bytes)
}

/// Opens and locks a regular file, making it first when `create` says so.
pub(crate) fn open_file(
    path: &Path,
    size: Option<Size>,
    create: bool,
) -> Result<(File, DriveInfo), OpenError> {
    if !create {
        check_is_file(path)?;
    }
    let purpose = if create { Purpose::Make } else { Purpose::Use };
    let (file, buffered) = open_direct(path, purpose)?;
    let opened = lock_file(path, &file, Lock::Alone, GONE_WAIT).and_then(|()| {
        if create {
            let size = size.unwrap_or_default();
            make(path, &file, size).map_err(|error| OpenError::io(path, "create", error))?;
        }
        file_info(path, &file, size, buffered)
    });
    match opened {
        Ok(mut info) => {
            info.reads_zero_when_new = create;
            Ok((file, info))
        }
        Err(error) => {
            // What we made a moment ago and cannot use is ours to remove.
            if create {
                let _ = fs::remove_file(path);
            }
            Err(error)
        }
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To be made, read and written.
    Make,
    /// To be read and written.
    Use,
    /// To be read, whoever else has it.
    Look,
}

/// Opens a file or a block device that may be in use, without a lock: the kernel refuses writes.
/// A drive of NVMe is looked at by its block device.
pub(crate) fn open_to_look(
    path: &Path,
    size: Option<Size>,
) -> Result<(File, DriveInfo), OpenError> {
    let beside = nvme::block_device_of(path);
    let path = beside.as_deref().unwrap_or(path);
    let facts = fs::metadata(path).map_err(|error| OpenError::io(path, "look", error))?;
    if facts.file_type().is_block_device() {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        let opened = options.open(path);
        let file = opened.map_err(|error| OpenError::io(path, "open", error))?;
        let info = block_info(path, &file, &sysfs::folder(facts.rdev()))?;
        return Ok((file, info));
    }
    check_is_file(path)?;
    let (file, buffered) = open_direct(path, Purpose::Look)?;
    let info = file_info(path, &file, size, buffered)?;
    Ok((file, info))
}

fn check_is_file(path: &Path) -> Result<(), OpenError> {
    let facts = fs::metadata(path).map_err(|error| OpenError::io(path, "look", error))?;
    if facts.is_file() {
        return Ok(());
    }
    let kind = facts.file_type();
    let cause = if kind.is_block_device() || kind.is_char_device() && is_generic(&facts) {
        format!("is a device, not a file; write just {}", path.display())
    } else {
        "is neither a file nor a block device".to_owned()
    };
    Err(OpenError::new(OpenErrorKind::WrongKind, path, cause))
}

fn is_generic(facts: &fs::Metadata) -> bool {
    nvme::Sibling::of(facts.rdev()).is_some()
}

/// Opens past the page cache if the file system lets us; else says why not.
fn open_direct(path: &Path, purpose: Purpose) -> Result<(File, Option<String>), OpenError> {
    let create = purpose == Purpose::Make;
    let mut options = OpenOptions::new();
    options.read(true).mode(0o600);
    options.write(purpose != Purpose::Look);
    let direct = options
        .clone()
        .create_new(create)
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK)
        .open(path);
    let refused = "the file system refuses direct I/O";
    let (file, reason) = match direct {
        // What is in memory is better copied at once than by a thread of the kernel's.
        Ok(file) if ioctl::in_memory(&file) => (
            file,
            "the file lives in memory (tmpfs); there is no drive to go to directly",
        ),
        Ok(file) if ioctl::direct_align(&file) == DirectAlign::Impossible => (file, refused),
        Ok(file) => {
            wait_for_answers(path, &file)?;
            return Ok((file, None));
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // Some kernels make the file before they refuse the flag.
            let buffered = options.create(create).open(path);
            let file = buffered.map_err(|error| OpenError::io(path, "open", error))?;
            return Ok((file, Some(refused.to_owned())));
        }
        Err(error) => return Err(OpenError::io(path, "open", error)),
    };
    ioctl::set_buffered(&file).map_err(|error| OpenError::io(path, "open", error))?;
    if !ioctl::in_memory(&file) {
        wait_for_answers(path, &file)?;
    }
    Ok((file, Some(reason.to_owned())))
}

/// Nobody waits for whoever opens a pipe that was put there, but for the answers of a drive the
/// kernel has to: else it says at once that it would have to (before Linux 6.5, where a device
/// below cannot answer at once), or makes the reactor wait (file systems that do not care, as ZFS).
fn wait_for_answers(path: &Path, file: &File) -> Result<(), OpenError> {
    ioctl::set_waiting(file).map_err(|error| OpenError::io(path, "open", error))
}

/// How long an opening waits for the last requests of an engine that is gone. A drive that takes
/// longer is left out, and comes back when it has found its way.
pub(crate) const GONE_WAIT: Duration = Duration::from_secs(3);
/// A child of this process has its open files, too, from its fork to its exec.
const FORK_WAIT: Duration = Duration::from_millis(200);
/// How often it looks.
const GONE_LOOK: Duration = Duration::from_millis(10);

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Against everybody.
    Alone,
    /// Against who has it alone.
    Shared,
}

pub(crate) fn lock_file(
    path: &Path,
    file: &File,
    lock: Lock,
    wait: Duration,
) -> Result<(), OpenError> {
    let begun = MonotonicClock.now();
    loop {
        let tried = match lock {
            Lock::Alone => file.try_lock(),
            Lock::Shared => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(OpenError::io(path, "lock", error)),
        }
        let facts = file.metadata().ok();
        let holder = facts.and_then(|facts| sysfs::lock_holder(facts.dev(), facts.ino()));
        let cause = match holder {
            Some(Holder::Gone(process)) => left_behind(process),
            Some(Holder::Here(ref holder) | Holder::Own(ref holder)) => {
                format!("is in use by another engine: {holder}")
            }
            None => "is in use by another engine: another process has locked it".to_owned(),
        };
        let patience = match holder {
            Some(Holder::Own(_)) => FORK_WAIT,
            Some(Holder::Here(_)) => Duration::ZERO,
            // Who is not to be found has let go meanwhile.
            Some(Holder::Gone(_)) | None => wait,
        };
        if MonotonicClock.now().since(begun) >= patience {
            return Err(OpenError::new(OpenErrorKind::InUse, path, cause));
        }
        std::thread::park_timeout(GONE_LOOK);
    }
}

/// Why a drive is not to be had whose engine has died.
fn left_behind(process: u32) -> String {
    format!(
        "is still busy with requests of process {process}, which has ended: they would land over \
         what a new engine writes; add it again when it is done with them"
    )
}

/// Gives a new file its size, and makes file and name durable.
fn make(path: &Path, file: &File, size: Size) -> io::Result<()> {
    file.set_len(size.0)?;
    file.sync_all()?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

fn file_info(
    path: &Path,
    file: &File,
    size: Option<Size>,
    buffered_reason: Option<String>,
) -> Result<DriveInfo, OpenError> {
    let look = |error| OpenError::io(path, "look", error);
    let facts = file.metadata().map_err(look)?;
    if !facts.is_file() {
        let cause = "is not a regular file any more";
        return Err(OpenError::new(OpenErrorKind::WrongKind, path, cause));
    }
    let (block_bytes, memory_align) = if buffered_reason.is_some() {
        (BlockSize::B512.bytes(), 1)
    } else {
        direct_needs(path, file)?
    };
    let usable = size.map_or(facts.len(), |size| size.0);
    if usable > facts.len() {
        let cause = format!(
            "the file has {} bytes, fewer than size={usable}",
            facts.len()
        );
        return Err(OpenError::new(OpenErrorKind::Size, path, cause));
    }
    let size_bytes = whole_blocks(path, usable, block_bytes)?;
    let punches = ioctl::punches_holes(file, facts.len());
    Ok(DriveInfo {
        path: Some(fs::canonicalize(path).map_err(look)?),
        block_bytes,
        physical_block_bytes: BlockSize::B4096.bytes(),
        atomic_bytes: block_bytes,
        // Whatever lies below, the file system keeps things in memory until it is told.
        volatile_cache: !ioctl::in_memory(file),
        direct_io: buffered_reason.is_none(),
        buffered_reason,
        discard_reads_zero: punches,
        can_discard: punches,
        can_write_zeroes: punches,
        joined_bytes_max: limits::JOINED_BYTES_MAX,
        memory_align,
        appearance: file_appearance(file, &facts),
        node: nodes::of_device(&sysfs::folder(facts.dev())),
        ..plain_info(DriveKind::File, size_bytes)
    })
}

/// What is the same for as long as what is open was not away; 0 when nothing is known.
pub(crate) fn appearance(file: &File) -> u64 {
    match file.metadata() {
        Ok(facts) if facts.is_file() => file_appearance(file, &facts),
        Ok(facts) => sysfs::appearance(&sysfs::folder(facts.rdev()), &[facts.rdev()]),
        Err(_) => 0,
    }
}

/// A file is what it was if it is the same one, its file system was not mounted anew, and the
/// devices below that are the same. Memory has none below. Of file systems that do not say on
/// which device they are, or when they were mounted, nothing is known.
fn file_appearance(file: &File, facts: &fs::Metadata) -> u64 {
    let created = facts.created().ok();
    let created = created.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let created = created.map_or(0, |since| {
        since.as_secs() ^ u64::from(since.subsec_nanos()) << 34
    });
    let own = [facts.dev(), facts.ino(), created];
    if ioctl::in_memory(file) {
        return sysfs::fingerprint(own);
    }
    let folder = sysfs::folder(facts.dev());
    match sysfs::mounted(Path::new("/sys/fs"), &folder) {
        Some(mounted) => sysfs::appearance(&folder, &[own[0], own[1], own[2], mounted]),
        None => 0,
    }
}

/// The block size and the alignment of memory that direct I/O on a file needs.
fn direct_needs(path: &Path, file: &File) -> Result<(u64, u64), OpenError> {
    if let DirectAlign::Known { memory, offset } = ioctl::direct_align(file) {
        let block = offset.max(BlockSize::B512.bytes());
        check_block_size(path, block)?;
        return Ok((block, memory));
    }
    // The kernel does not say, so try: reading changes nothing.
    let room = Mapping::new(8192).map_err(|error| OpenError::io(path, "probe", error))?;
    for block in [BlockSize::B512.bytes(), BlockSize::B4096.bytes()] {
        let length = units::bytes_usize(block);
        // An address that is a multiple of this block and of no larger one.
        let answer = ioctl::read_at(file, room.segment(length, length), 0);
        match answer {
            Ok(_) => return Ok((block, block)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(OpenError::io(path, "probe", error)),
        }
    }
    let cause = "direct I/O needs blocks larger than 4096 bytes";
    Err(OpenError::new(OpenErrorKind::Unsupported, path, cause))
}

fn check_block_size(path: &Path, block_bytes: u64) -> Result<(), OpenError> {
    if BlockSize::from_bytes(block_bytes).is_some() {
        return Ok(());
    }
    let cause = format!("has blocks of {block_bytes} bytes; only 512 and 4096 are served");
    Err(OpenError::new(OpenErrorKind::Unsupported, path, cause))
}

fn whole_blocks(path: &Path, bytes: u64, block_bytes: u64) -> Result<u64, OpenError> {
    let whole = bytes / block_bytes * block_bytes;
    if whole == 0 {
        let cause = format!("has {bytes} bytes, less than one block of {block_bytes}");
        return Err(OpenError::new(OpenErrorKind::Size, path, cause));
    }
    Ok(whole)
}

/// Opens a block device, or the generic device of an NVMe drive, for ourselves alone.
pub(crate) fn open_device(path: &Path) -> Result<(DriveInfo, Backing), OpenError> {
    let facts = fs::metadata(path).map_err(|error| OpenError::io(path, "look", error))?;
    if facts.is_file() {
        let cause = format!(
            "is a regular file, not a block device; write file:{}",
            path.display()
        );
        return Err(OpenError::new(OpenErrorKind::WrongKind, path, cause));
    }
    if facts.file_type().is_char_device() {
        let (generic, info) = nvme::open_generic(path, facts.rdev())?;
        return Ok((info, Backing::Generic(generic)));
    }
    if !facts.file_type().is_block_device() {
        let cause = "is not a block device";
        return Err(OpenError::new(OpenErrorKind::WrongKind, path, cause));
    }
    let folder = sysfs::folder(facts.rdev());
    let file = claim(path, facts.rdev(), &folder)?;
    nvme::await_commands(&folder)?;
    let info = block_info(path, &file, &folder)?;
    Ok((info, Backing::Kernel(file)))
}

/// Opens a block device as its only holder, or waits for one that has just died.
pub(crate) fn claim(path: &Path, device: u64, folder: &Path) -> Result<File, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    // O_EXCL: the kernel gives a device to one holder; mounts and its own arrays are holders too.
    options.custom_flags(libc::O_DIRECT | libc::O_EXCL);
    let begun = MonotonicClock.now();
    loop {
        let error = match options.open(path) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(OpenError::io(path, "open", error));
        }
        let holder = sysfs::device_holder(folder, device);
        // Whoever is not to be found may be an engine that has just died.
        if holder.is_none() && MonotonicClock.now().since(begun) < GONE_WAIT {
            std::thread::park_timeout(GONE_LOOK);
            continue;
        }
        let holder = holder.unwrap_or_else(|| "another process holds it".to_owned());
        let cause = format!("is in use by another engine or mounted: {holder}");
        return Err(OpenError::new(OpenErrorKind::InUse, path, cause));
    }
}

/// The folder in `/sys` of the block device behind `file`.
pub(crate) fn sysfs_folder(file: &File) -> Option<PathBuf> {
    Some(sysfs::folder(file.metadata().ok()?.rdev()))
}

pub(crate) fn block_info(path: &Path, file: &File, folder: &Path) -> Result<DriveInfo, OpenError> {
    let look = |error| OpenError::io(path, "look", error);
    let sizes = ioctl::block_sizes(file).map_err(look)?;
    check_block_size(path, sizes.logical)?;
    let size_bytes = whole_blocks(path, sizes.size, sizes.logical)?;
    let facts = sysfs::block_facts(folder);
    let device = file.metadata().map_err(look)?.rdev();
    let memory_align = match ioctl::direct_align(file) {
        DirectAlign::Known { memory, .. } => memory,
        // Before 6.0 the kernel asked for the logical block size, whatever the device could do.
        DirectAlign::Unknown | DirectAlign::Impossible => sizes.logical,
    };
    Ok(DriveInfo {
        path: Some(fs::canonicalize(path).map_err(look)?),
        block_bytes: sizes.logical,
        physical_block_bytes: sizes.physical.max(sizes.logical),
        // What the kernel calls the atomic unit needs its own kind of write.
        atomic_bytes: sizes.logical,
        volatile_cache: !facts.write_through,
        // Punching a hole into a device is zeroing it with leave to unmap.
        discard_reads_zero: facts.write_zeroes,
        can_discard: facts.write_zeroes,
        can_write_zeroes: facts.write_zeroes,
        rotational: facts.rotational,
        joined_bytes_max: facts.request_bytes.min(limits::JOINED_BYTES_MAX),
        memory_align,
        appearance: sysfs::appearance(folder, &[device]),
        node: nodes::of_device(folder),
        model: facts.model,
        serial: facts.serial,
        wwid: facts.wwid,
        ..plain_info(DriveKind::BlockDevice, size_bytes)
    })
}

/// Rooms for reads of at most so many bytes are kept: a start makes many small ones.
const KEPT_BYTES: usize = 128 << 10;

thread_local! {
    /// Memory that direct I/O accepts.
    static ROOM: RefCell<Option<Mapping>> = const { RefCell::new(None) };
}

/// Reads all of `target`, blocking, through memory that direct I/O accepts.
pub(crate) fn read_all(file: &File, offset: u64, target: &mut [u8]) -> io::Result<()> {
    let kept = ROOM.with(RefCell::take);
    let room = match kept.filter(|room| room.len() >= target.len()) {
        Some(room) => room,
        None => Mapping::new(target.len())?,
    };
    let mut done = 0;
    while done < target.len() {
        let part = room.segment(done, target.len() - done);
        match ioctl::read_at(file, part, offset + units::bytes_u64(done)) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    room.segment(0, target.len()).copy_to_slice(target);
    if room.len() <= KEPT_BYTES {
        ROOM.set(Some(room));
    }
    Ok(())
}

/// Writes all of `room`, blocking.
pub(crate) fn write_all(file: &File, offset: u64, room: &Mapping) -> io::Result<()> {
    let mut done = 0;
    while done < room.len() {
        let part = room.segment(done, room.len() - done);
        match ioctl::write_at(file, part, offset + units::bytes_u64(done)) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
