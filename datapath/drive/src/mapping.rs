//! Anonymous memory from the kernel: the contents of memory drives, bounce buffers, zeroes.
//!
//! An island: the only place of this crate that owns raw memory. Its bytes are shared between
//! reactors and with the kernel, so they are given out as segments, never as references.
#![allow(unsafe_code, reason = "an island: mmap and the segments made of it")]

use std::io;
use std::ptr::{self, NonNull};

use memory::{Lasting, Segment, streaming_pays};

/// Below this, huge pages would only waste memory.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Pages that read as zeroes when new and live as long as this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
    /// Large pieces are better written past the caches.
    streams: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread; the bytes are only reached through
// segments, whose copies are races on values at worst.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Lasting for Mapping {
    fn segment(&self) -> Segment {
        Mapping::segment(self, 0, self.length)
    }
}

impl Mapping {
    /// Maps `length` bytes, page-aligned; pages take memory when first written.
    pub(crate) fn new(length: usize) -> io::Result<Mapping> {
        assert!(length > 0, "an empty mapping");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping where the kernel likes; it overlaps nothing.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at zero unasked");
        let mapping = Mapping {
            base,
            length,
            streams: false,
        };
        if length >= HUGE_PAGE_BYTES {
            mapping.prefer_huge_pages();
        }
        Ok(mapping)
    }

    /// Asks for pages of 2 MiB: at random addresses of a large memory, a miss of the address
    /// translation costs as much as a miss of the cache.
    fn prefer_huge_pages(&self) {
        let base = self.base.as_ptr().cast();
        // SAFETY: the range is all of this mapping; the advice changes no byte. A kernel without
        // huge pages refuses, which is as good.
        unsafe { libc::madvise(base, self.length, libc::MADV_HUGEPAGE) };
    }

    /// For what is written seldom and read late, as the content of a drive: how to write it fastest
    /// is measured once per process.
    pub(crate) fn of_drive(length: usize) -> io::Result<Mapping> {
        let mut mapping = Mapping::new(length)?;
        mapping.streams = streaming_pays();
        Ok(mapping)
    }

    /// Whether large pieces are better written past the caches.
    #[inline]
    pub(crate) fn streams(&self) -> bool {
        self.streams
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// `length` bytes from `offset` on. Whoever uses the segment keeps the mapping meanwhile: a
    /// drive lives in an `Arc` until its requests are answered, and a port waits for the kernel
    /// before it unmaps.
    ///
    /// # Panics
    /// When they are not inside.
    pub(crate) fn segment(&self, offset: usize, length: usize) -> Segment {
        // SAFETY: all of the mapping stays mapped while `self` lives, which the users of segments
        // see to (above); there is never a Rust reference to the bytes.
        let whole = unsafe { Segment::new(self.base.as_ptr(), self.length) };
        whole.part(offset, length)
    }

    /// Makes bytes read as zeroes; whole pages of them are given back to the kernel.
    ///
    /// # Panics
    /// When they are not inside.
    pub(crate) fn zero(&self, offset: usize, length: usize) {
        let all = self.segment(offset, length);
        let page = page_bytes();
        let first = offset.next_multiple_of(page);
        let end = (offset + length) / page * page;
        // For less than this the call costs more than it gives back.
        if end.saturating_sub(first) < 64 * page {
            all.fill(0);
            return;
        }
        let inner = self.segment(first, end - first);
        // SAFETY: whole pages inside this private anonymous mapping (cut above): they become zero
        // pages and stay mapped.
        let result =
            unsafe { libc::madvise(inner.address().cast(), inner.len(), libc::MADV_DONTNEED) };
        if result != 0 {
            // Locked pages cannot be given back.
            all.fill(0);
            return;
        }
        all.part(0, first - offset).fill(0);
        all.part(end - offset, offset + length - end).fill(0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; no segment of it is in use any more (see `segment`).
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
        assert_eq!(result, 0, "a whole mapping can always be unmapped");
    }
}

/// Bytes of a page of this machine: 4 KiB, 16 KiB or 64 KiB.
fn page_bytes() -> usize {
    // SAFETY: asks for a number, touches no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has a page size")
}

/// A piece of memory that is not there, as a guest leaves it behind that takes a region away.
#[cfg(test)]
pub(crate) fn nowhere(length: usize) -> Segment {
    // SAFETY: nothing but the kernel follows the address, and it checks: nothing is ever mapped in
    // the first page.
    unsafe { Segment::new(ptr::null_mut(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_clears_exactly_what_it_names() {
        let length = 100 * page_bytes();
        for (offset, zeroed) in [
            (0, length),
            (1, length - 2),
            (page_bytes() + 7, 70 * page_bytes()),
            (512, 1024),
            (5, 0),
        ] {
            let mapping = Mapping::new(length).unwrap();
            mapping.segment(0, length).fill(0xA5);
            mapping.zero(offset, zeroed);
            let mut got = vec![0; length];
            mapping.segment(0, length).copy_to_slice(&mut got);
            for (at, byte) in got.iter().enumerate() {
                let inside = (offset..offset + zeroed).contains(&at);
                assert_eq!(
                    *byte,
                    if inside { 0 } else { 0xA5 },
                    "{offset}+{zeroed} at {at}"
                );
            }
        }
    }
}
