//! One file of guest memory, mapped into our address space.
//!
//! What does not live here: guest addresses.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use units::{bytes_u64, bytes_usize};

use super::budget::{Admitted, Counted};
use super::truncation::Watched;
use crate::map::{Map, align_down, align_up, page_bytes};
use crate::{Lasting, Segment};

/// A part of a file that a front-end handed us, mapped for reading and writing and shared with it.
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: the signal handler forgets the range before others may reuse it.
    watched: Watched,
    map: Map,
    /// Last: what is counted less is not mapped any more.
    _counted: Counted,
    /// Bytes mapped before the part that was asked for, to begin on a page.
    before: usize,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes of `file` from `offset` on; neither need be a multiple of anything. The
    /// file may be closed afterwards.
    ///
    /// # Errors
    /// `InvalidInput` when the file is too short for that, or the numbers are absurd; `OutOfMemory`
    /// with [`super::MAPPINGS_MAX`] mappings or [`super::MAPPED_BYTES_MAX`] bytes of all; else what
    /// the kernel says.
    pub fn new(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Arc<Mapping>> {
        let none_yet = Counted::new(0).ok_or_else(too_much)?;
        Mapping::admitted(file, offset, length, Admitted(none_yet))
    }

    /// [`Mapping::new`] in address space that was [admitted](super::admit).
    ///
    /// # Errors
    /// As there.
    pub fn admitted(
        file: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        Admitted(counted): Admitted,
    ) -> io::Result<Arc<Mapping>> {
        let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let absurd = || wrong(format!("guest memory of {length} bytes at offset {offset}"));
        let metadata = File::from(file.try_clone_to_owned()?).metadata()?;
        let end = offset.checked_add(length).ok_or_else(absurd)?;
        if length == 0 || end > i64::MAX.unsigned_abs() {
            return Err(absurd());
        }
        if metadata.is_file() && end > metadata.len() {
            let has = metadata.len();
            return Err(wrong(format!(
                "guest memory up to byte {end} in a file of {has}"
            )));
        }
        // A file of huge pages is mapped in whole ones, and says their size as its block size.
        let unit = usize::try_from(metadata.blksize())
            .ok()
            .filter(|bytes| bytes.is_power_of_two())
            .unwrap_or(1)
            .max(page_bytes());
        let (start, before) = align_down(offset, unit);
        let mapped = align_up(before + bytes_usize(length), unit).ok_or_else(absurd)?;
        let counted = counted.at_least(bytes_u64(mapped)).ok_or_else(too_much)?;
        let map = Map::shared(file, start, mapped, libc::MAP_NORESERVE)?;
        // A guest's memory has no business in our core dumps; a kernel that cannot do that is no
        // reason to refuse the guest.
        let _ = map.advise(libc::MADV_DONTDUMP);
        Mapping::watch((map, counted), before, bytes_usize(length))
    }

    fn watch(
        (map, counted): (Map, Counted),
        before: usize,
        length: usize,
    ) -> io::Result<Arc<Mapping>> {
        Ok(Arc::new(Mapping {
            watched: Watched::new(map.base().addr(), map.len())?,
            map,
            _counted: counted,
            before,
            length,
        }))
    }

    /// Bytes of nobody's file, for tests where there are no files, such as under Miri.
    #[cfg(test)]
    pub(super) fn without_file(bytes: &[u8]) -> Arc<Mapping> {
        let length = align_up(bytes.len(), page_bytes()).expect("a small test");
        let map = Map::anonymous(length, 0).expect("a small test");
        let counted = Counted::new(bytes_u64(length)).expect("a small test");
        let map = (map, counted);
        let mapping = Mapping::watch(map, 0, bytes.len()).expect("few mappings in a test");
        mapping.segment().copy_from_slice(bytes);
        mapping
    }

    /// How many bytes were asked for.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u64 {
        bytes_u64(self.length)
    }

    /// The bytes that were asked for. They stay mapped while the mapping lives.
    #[inline]
    #[must_use]
    pub fn segment(&self) -> Segment {
        self.map.whole().part(self.before, self.length)
    }

    /// Whether the front-end took the memory away ([`super::survive_truncation`]). The bytes are
    /// then zeroes of our own; nothing read from them means anything.
    #[inline]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.watched.is_broken()
    }
}

fn too_much() -> io::Error {
    let text = "too much guest memory is mapped for more";
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

impl Lasting for Mapping {
    fn segment(&self) -> Segment {
        Mapping::segment(self)
    }
}
