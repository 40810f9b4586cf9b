//! Address space from the kernel: mapping, unmapping, page sizes. The only file with those calls.
//!
//! What does not live here: what a mapping is for (`pool`, `guest`), and which outlive their owners
//! (`kept`).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;

use units::{bytes_u64, bytes_usize};

use crate::Segment;
use crate::kept::{self, Part};

/// Asked for by its size, because the default huge page of a machine may be 512 MiB.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A mapping of our own; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    base: *mut u8,
    length: usize,
    /// Of a file, where mappings are kept: which part of it this is.
    part: Option<Part>,
}

// SAFETY: a range of addresses; the bytes are reached through `Segment` only, which is `Send`.
unsafe impl Send for Map {}
// SAFETY: as above; no method changes the mapping.
unsafe impl Sync for Map {}

impl Map {
    /// Zeroed memory of nobody else. `flags` are added to the usual ones.
    pub(crate) fn anonymous(length: usize, flags: libc::c_int) -> io::Result<Map> {
        Map::new(
            length,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            None,
        )
    }

    /// `length` bytes of `file` from `offset` on, shared with whoever else maps them.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        flags: libc::c_int,
    ) -> io::Result<Map> {
        Map::new(length, libc::MAP_SHARED | flags, Some((file, offset)))
    }

    /// As `shared`, for a part of a file that may be mapped again and again.
    pub(crate) fn of_file(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Map> {
        if !kept::keeps() {
            return Map::shared(file, offset, length, 0);
        }
        let part = Part {
            file: identity(file)?,
            offset,
            length,
        };
        if let Some(map) = kept::take(&part) {
            return Ok(map);
        }
        Ok(Map::shared(file, offset, length, 0)?.kept_as(part))
    }

    /// This is kept when it is dropped.
    pub(crate) fn kept_as(mut self, part: Part) -> Map {
        self.part = Some(part);
        self
    }

    fn new(
        length: usize,
        flags: libc::c_int,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Map> {
        let (descriptor, offset) =
            file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED (no caller in this crate passes it) the kernel chooses
        // addresses that are free, so nothing that exists is touched.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), length, access, flags, descriptor, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Map {
            base: base.cast(),
            length,
            part: None,
        })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// All of it. The owner of the map unmaps only when no request carries a part of it.
    #[inline]
    pub(crate) fn whole(&self) -> Segment {
        // SAFETY: mapped readable and writable by `new` until the map is dropped; its owners
        // (`Pool`, `Mapping`) say what keeps it alive, and make no Rust reference to the bytes.
        unsafe { Segment::new(self.base, self.length) }
    }

    /// Touches every page for writing, so that the lack of one is an error here, not a signal
    /// later.
    pub(crate) fn populate(&self) -> io::Result<()> {
        self.advise(libc::MADV_POPULATE_WRITE)
    }

    /// Gives the kernel a hint about all of the mapping.
    pub(crate) fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is ours; the advices used (populate, huge page, no dump) change no
        // byte.
        match unsafe { libc::madvise(self.base.cast(), self.length, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let Map { base, length, .. } = *self;
            let map = Map {
                base,
                length,
                part: None,
            };
            return kept::keep(part, map);
        }
        // SAFETY: the range was mapped by `new`, with this length, and is unmapped nowhere else.
        let result = unsafe { libc::munmap(self.base.cast(), self.length) };
        assert_eq!(result, 0, "unmapping what was mapped cannot fail");
    }
}

/// Which file a descriptor is of: no other has the same as long as one of them is open or mapped.
fn identity(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let found = File::from(file.try_clone_to_owned()?).metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Bytes of a page of this machine.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux has a page size")
}

/// An unnamed file in memory of `length` bytes. `flags` are added to close-on-exec.
pub(crate) fn memory_file(length: usize, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: the name is a C string; the call makes a new descriptor and touches nothing else.
    let descriptor = unsafe { libc::memfd_create(c"garboard".as_ptr(), libc::MFD_CLOEXEC | flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(bytes_u64(length))?;
    Ok(file)
}

/// The smallest multiple of `alignment` (a power of two) that is not below `length`.
pub(crate) fn align_up(length: usize, alignment: usize) -> Option<usize> {
    assert!(alignment.is_power_of_two());
    Some(length.checked_add(alignment - 1)? & !(alignment - 1))
}

/// The largest multiple of `alignment` (a power of two) that is not above `offset`, and the rest.
pub(crate) fn align_down(offset: u64, alignment: usize) -> (u64, usize) {
    assert!(alignment.is_power_of_two());
    let rest = offset & (bytes_u64(alignment) - 1);
    (offset - rest, bytes_usize(rest))
}
