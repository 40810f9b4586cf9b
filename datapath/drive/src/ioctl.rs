//! Questions to the kernel about an open file that the standard library cannot ask.
#![allow(unsafe_code, reason = "an island: ioctl, statx, fstatfs, fallocate")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use memory::Segment;

use crate::nvme::{COMMAND_BYTES, ENTRY_BYTES, IDENTIFY_BYTES};

/// `BLKGETSIZE64` of linux/fs.h: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
/// `NVME_IOCTL_ID` of linux/nvme_ioctl.h: `_IO('N', 0x40)`.
const NVME_IOCTL_ID: libc::Ioctl = 0x4E40;
/// `NVME_IOCTL_ADMIN_CMD`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`, 72 bytes.
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xC048_4E41;
/// `STATX_DIOALIGN` of linux/stat.h, since Linux 6.1.
const STATX_DIOALIGN: u32 = 0x2000;

const _: () = assert!(
    cfg!(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    )),
    "the ioctl numbers above are those of the generic layout"
);

/// Sizes of a block device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSizes {
    pub(crate) size: u64,
    pub(crate) logical: u64,
    pub(crate) physical: u64,
}

/// Asks a block device for its sizes.
pub(crate) fn block_sizes(device: &File) -> io::Result<BlockSizes> {
    let fd = device.as_raw_fd();
    let (mut size, mut logical, mut physical) = (0u64, 0i32, 0u32);
    // SAFETY: BLKGETSIZE64 writes one u64, which `size` is.
    let size_result = unsafe { libc::ioctl(fd, BLKGETSIZE64, &raw mut size) };
    check(size_result)?;
    // SAFETY: BLKSSZGET writes one int, which `logical` is.
    let logical_result = unsafe { libc::ioctl(fd, libc::BLKSSZGET, &raw mut logical) };
    check(logical_result)?;
    // SAFETY: BLKPBSZGET writes one unsigned int, which `physical` is.
    let physical_result = unsafe { libc::ioctl(fd, libc::BLKPBSZGET, &raw mut physical) };
    check(physical_result)?;
    Ok(BlockSizes {
        size,
        logical: u64::try_from(logical).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?,
        physical: u64::from(physical),
    })
}

/// Lets the kernel forget what it has read of a file or device ahead of, or for, others.
pub(crate) fn forget_pages(file: &File) {
    // SAFETY: takes numbers only; advice changes no byte.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Asks a device of NVMe which namespace of its controller it is.
pub(crate) fn nvme_namespace(device: &File) -> io::Result<u32> {
    // SAFETY: takes no memory; the answer is the result.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ID) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends a command to the controller of an NVMe device, which answers into `target`, the memory
/// that the command names.
pub(crate) fn nvme_admin(
    device: &File,
    mut command: [u8; ENTRY_BYTES],
    target: Segment,
) -> io::Result<()> {
    assert!(command.len() >= COMMAND_BYTES && target.len() == IDENTIFY_BYTES);
    // SAFETY: the kernel reads and writes 72 bytes, which `command` has; the drive writes into
    // `target` before the call returns, as much as there is, and it is mapped and writable
    // (Segment::new).
    let result = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            NVME_IOCTL_ADMIN_CMD,
            command.as_mut_ptr(),
        )
    };
    match result {
        0 => Ok(()),
        // A status of the drive.
        1.. => Err(io::Error::from_raw_os_error(libc::EIO)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What direct I/O on a file needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectAlign {
    /// The kernel does not say (before 6.1, or this file system).
    Unknown,
    /// Direct I/O is not possible on this file.
    Impossible,
    /// Memory and offset must be multiples of these.
    Known { memory: u64, offset: u64 },
}

/// Asks what direct I/O on a file needs.
pub(crate) fn direct_align(file: &File) -> DirectAlign {
    let mut facts = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: the empty path is a zero-terminated string and `facts` has room for one statx.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            STATX_DIOALIGN,
            facts.as_mut_ptr(),
        )
    };
    if result != 0 {
        return DirectAlign::Unknown;
    }
    // SAFETY: all zeroes is a statx, and the kernel filled in the rest.
    let facts = unsafe { facts.assume_init() };
    if facts.stx_mask & STATX_DIOALIGN == 0 {
        return DirectAlign::Unknown;
    }
    let memory = u64::from(facts.stx_dio_mem_align);
    let offset = u64::from(facts.stx_dio_offset_align);
    if memory == 0 || offset == 0 {
        DirectAlign::Impossible
    } else {
        DirectAlign::Known { memory, offset }
    }
}

/// Whether the file lives in memory (tmpfs, ramfs), where direct I/O is only a word.
pub(crate) fn in_memory(file: &File) -> bool {
    /// `RAMFS_MAGIC` of linux/magic.h.
    const RAMFS_MAGIC: u32 = 0x8584_58F6;
    /// `TMPFS_MAGIC` of linux/magic.h.
    const TMPFS_MAGIC: u32 = 0x0102_1994;
    let mut facts = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `facts` has room for one statfs.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), facts.as_mut_ptr()) };
    if result != 0 {
        return false;
    }
    // SAFETY: all zeroes is a statfs, and the kernel filled in the rest.
    let facts = unsafe { facts.assume_init() };
    let magic = u32::try_from(facts.f_type).ok();
    magic == Some(TMPFS_MAGIC) || magic == Some(RAMFS_MAGIC)
}

/// Whether holes can be punched into the file; tries it behind the end, where it changes nothing.
pub(crate) fn punches_holes(file: &File, end: u64) -> bool {
    let Ok(offset) = i64::try_from(end.next_multiple_of(1 << 20)) else {
        return false;
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes numbers only; behind the end there is nothing to lose.
    let result = unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, 1 << 20) };
    result == 0
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One blocking read into memory that direct I/O accepts. Returns how many bytes came.
pub(crate) fn read_at(file: &File, target: Segment, offset: u64) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the segment is mapped and writable for as long as the caller keeps it (Segment::new).
    let bytes = unsafe {
        libc::pread64(
            file.as_raw_fd(),
            target.address().cast(),
            target.len(),
            offset,
        )
    };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// One blocking write from memory that direct I/O accepts. Returns how many bytes went.
pub(crate) fn write_at(file: &File, source: Segment, offset: u64) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the segment is mapped and readable for as long as the caller keeps it (Segment::new).
    let bytes = unsafe {
        libc::pwrite64(
            file.as_raw_fd(),
            source.address().cast(),
            source.len(),
            offset,
        )
    };
    usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
}

/// Sends the I/O of an open file through the page cache.
pub(crate) fn set_buffered(file: &File) -> io::Result<()> {
    clear_flag(file, libc::O_DIRECT)
}

/// Lets the kernel wait where the I/O of an open file has to.
pub(crate) fn set_waiting(file: &File) -> io::Result<()> {
    clear_flag(file, libc::O_NONBLOCK)
}

fn clear_flag(file: &File, flag: i32) -> io::Result<()> {
    // SAFETY: takes and gives numbers only.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes and gives numbers only.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !flag) };
    check(result)
}
