//! A fixed set of equal buffers in one mapping, for bytes on their way to and from drives.
//!
//! A pool belongs to one reactor and takes no lock. Every buffer begins on a multiple of 4096
//! bytes. What does not live here: pools of anything but bytes.

use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use units::bytes_u64;

use crate::map::{HUGE_PAGE_BYTES, Map, align_up, memory_file, page_bytes};
use crate::{Lasting, Segment};

/// Every buffer begins on a multiple of so many bytes: enough for any drive's direct I/O.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Where the bytes of a pool come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of this process alone.
    Anonymous(Pages),
    /// An unnamed file in memory, whose descriptor can be handed on ([`Pool::file`]).
    Shared(Pages),
}

/// The pages under a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The machine's usual pages.
    Plain,
    /// Reserved pages of 2 MiB if there are enough of them, else plain ones ([`Pool::pages`]
    /// tells).
    Huge,
}

/// A fixed set of equal buffers.
///
/// ```
/// use memory::pool::{Backing, Pages, Pool};
///
/// let mut pool = Pool::new(2, 4096, Backing::Anonymous(Pages::Plain)).unwrap();
/// let buffer = pool.acquire().unwrap();
/// pool.segment(&buffer).fill(7);
/// assert_eq!(pool.free(), 1);
/// pool.release(buffer);
/// ```
#[derive(Debug)]
pub struct Pool {
    map: Arc<Map>,
    file: Option<File>,
    pages: Pages,
    bytes_each: usize,
    buffers: usize,
    /// Positions of the buffers that are free; the last one released, warm in the cache, on top.
    free: Vec<u32>,
    /// Those of the first ones, that are taken before the others.
    free_first: Vec<u32>,
    first: u32,
    /// Tells the buffers of this pool from those of others.
    identity: NonZeroU32,
}

/// The first buffers of a pool; they stay mapped as long as this is there.
#[derive(Debug)]
struct First {
    map: Arc<Map>,
    bytes: usize,
}

impl Lasting for First {
    fn segment(&self) -> Segment {
        self.map.whole().part(0, self.bytes)
    }
}

/// One buffer of a pool, owned until it is released.
#[must_use = "a buffer that is not released is lost"]
pub struct Buffer {
    position: u32,
    pool: NonZeroU32,
}

impl Pool {
    /// `buffers` buffers of `bytes_each` bytes, all zero.
    ///
    /// # Errors
    /// What the kernel says when there is not that much memory.
    ///
    /// # Panics
    /// When `bytes_each` is zero or no multiple of [`BUFFER_ALIGNMENT`].
    pub fn new(buffers: usize, bytes_each: usize, backing: Backing) -> io::Result<Pool> {
        assert!(
            bytes_each > 0 && bytes_each.is_multiple_of(BUFFER_ALIGNMENT),
            "buffers of {bytes_each} bytes"
        );
        let too_large = || {
            let text = format!("a pool of {buffers} buffers of {bytes_each} bytes is too large");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let length = buffers.checked_mul(bytes_each).ok_or_else(too_large)?;
        let memory = match backing {
            Backing::Anonymous(Pages::Plain) => anonymous(length, Pages::Plain)?,
            Backing::Shared(Pages::Plain) => shared(length, Pages::Plain)?,
            Backing::Anonymous(Pages::Huge) => {
                anonymous(length, Pages::Huge).or_else(|_| anonymous(length, Pages::Plain))?
            }
            Backing::Shared(Pages::Huge) => {
                shared(length, Pages::Huge).or_else(|_| shared(length, Pages::Plain))?
            }
        };
        Pool::of(buffers, bytes_each, memory).ok_or_else(too_large)
    }

    /// `buffers` buffers of `bytes_each` bytes in a file in memory from `offset` on: what they hold
    /// stays there when this process is gone.
    ///
    /// # Errors
    /// What the kernel says when it does not map the file there.
    ///
    /// # Panics
    /// When `bytes_each` is zero or no multiple of [`BUFFER_ALIGNMENT`].
    pub fn in_file(
        buffers: usize,
        bytes_each: usize,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<Pool> {
        assert!(
            bytes_each > 0 && bytes_each.is_multiple_of(BUFFER_ALIGNMENT),
            "buffers of {bytes_each} bytes"
        );
        let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
        let length = buffers.checked_mul(bytes_each).ok_or_else(too_large)?;
        let length = rounded(length, Pages::Plain)?;
        let map = Map::of_file(file, offset, length)?;
        Pool::of(buffers, bytes_each, (map, None, Pages::Plain)).ok_or_else(too_large)
    }

    fn of(buffers: usize, bytes_each: usize, (map, file, pages): Memory) -> Option<Pool> {
        static POOLS: AtomicU32 = AtomicU32::new(1);
        let count = u32::try_from(buffers).ok()?;
        let identity = POOLS.fetch_add(1, Ordering::Relaxed);
        Some(Pool {
            map: Arc::new(map),
            file,
            pages,
            bytes_each,
            buffers,
            free: (0..count).rev().collect(),
            free_first: Vec::new(),
            first: 0,
            identity: NonZeroU32::new(identity).expect("few pools are made"),
        })
    }

    /// Has the first `buffers` buffers taken before the others, so that a pool of which few are in
    /// use at a time uses the same few.
    ///
    /// # Panics
    /// When there are not so many, or one is in use.
    #[must_use]
    pub fn first(mut self, buffers: usize) -> Pool {
        assert!(self.free.len() == self.buffers && buffers <= self.buffers);
        self.free_first = self.free.split_off(self.buffers - buffers);
        self.first = u32::try_from(buffers).expect("no more than there are");
        self
    }

    /// The memory of the buffers that are taken before the others ([`Pool::first`]), for whoever
    /// needs it to stay mapped for longer than the pool may.
    #[must_use]
    pub fn first_memory(&self) -> Arc<dyn Lasting> {
        let first = usize::try_from(self.first).expect("a u32 fits usize");
        Arc::new(First {
            map: Arc::clone(&self.map),
            bytes: first * self.bytes_each,
        })
    }

    /// A buffer, with whatever bytes it was left with; of the first ones if one is free, and of
    /// several the one released last.
    #[inline]
    pub fn acquire(&mut self) -> Option<Buffer> {
        let position = self.free_first.pop().or_else(|| self.free.pop())?;
        Some(Buffer {
            position,
            pool: self.identity,
        })
    }

    /// Takes a buffer back. No request may carry it any more.
    ///
    /// # Panics
    /// When the buffer is another pool's.
    #[inline]
    pub fn release(&mut self, buffer: Buffer) {
        let (position, pool) = (buffer.position, buffer.pool);
        // First: it would have to be kept somewhere to be dropped if anything here panics.
        std::mem::forget(buffer);
        assert!(pool == self.identity, "a buffer of another pool");
        // Neither grows: there are as many places as buffers, and a buffer is released once.
        if position < self.first {
            self.free_first.push(position);
        } else {
            self.free.push(position);
        }
    }

    /// The bytes of a buffer. They stay mapped while the pool lives; who holds the buffer keeps the
    /// segment no longer than the buffer.
    ///
    /// # Panics
    /// When the buffer is another pool's.
    #[inline]
    #[must_use]
    pub fn segment(&self, buffer: &Buffer) -> Segment {
        self.map.whole().part(self.start(buffer), self.bytes_each)
    }

    /// Where the buffer begins, counted from the start of the pool and of its file.
    ///
    /// # Panics
    /// When the buffer is another pool's.
    #[inline]
    #[must_use]
    pub fn offset(&self, buffer: &Buffer) -> u64 {
        bytes_u64(self.start(buffer))
    }

    /// How many buffers can be acquired now.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        self.free_first.len() + self.free.len()
    }

    /// How many buffers the pool has, free or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers
    }

    /// Whether the pool has no buffer at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers == 0
    }

    /// Bytes of each buffer.
    #[must_use]
    pub fn bytes_each(&self) -> usize {
        self.bytes_each
    }

    /// The pages that were found.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// The file under a pool with [`Backing::Shared`].
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    #[inline]
    fn start(&self, buffer: &Buffer) -> usize {
        self.check(buffer);
        usize::try_from(buffer.position).expect("a u32 fits usize") * self.bytes_each
    }

    #[inline]
    fn check(&self, buffer: &Buffer) {
        assert!(buffer.pool == self.identity, "a buffer of another pool");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let used = self.buffers - self.free();
        if used > 0 {
            // A drive may still be writing there: it stays mapped for ever.
            std::mem::forget(Arc::clone(&self.map));
        }
        assert!(
            used == 0 || std::thread::panicking(),
            "a pool dropped while {used} of its buffers are in use"
        );
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking(),
            "buffer {} dropped without being released",
            self.position
        );
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {} of pool {}", self.position, self.pool)
    }
}

type Memory = (Map, Option<File>, Pages);

fn anonymous(length: usize, pages: Pages) -> io::Result<Memory> {
    let flags = match pages {
        Pages::Plain => 0,
        Pages::Huge => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
    };
    let map = Map::anonymous(rounded(length, pages)?, flags)?;
    populate(&map, pages)?;
    Ok((map, None, pages))
}

fn shared(length: usize, pages: Pages) -> io::Result<Memory> {
    let flags = match pages {
        Pages::Plain => 0,
        Pages::Huge => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
    };
    let length = rounded(length, pages)?;
    let file = memory_file(length, flags)?;
    let map = Map::shared(file.as_fd(), 0, length, 0)?;
    populate(&map, pages)?;
    Ok((map, Some(file), pages))
}

fn rounded(length: usize, pages: Pages) -> io::Result<usize> {
    let unit = match pages {
        Pages::Plain => page_bytes(),
        Pages::Huge => HUGE_PAGE_BYTES,
    };
    align_up(length.max(1), unit).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A huge page that is reserved but forbidden (by its cgroup) would be a signal on first touch.
fn populate(map: &Map, pages: Pages) -> io::Result<()> {
    match pages {
        Pages::Plain => Ok(()),
        Pages::Huge => map.populate(),
    }
}

#[cfg(test)]
mod tests;
