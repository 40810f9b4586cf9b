//! Words in a file in memory, which others read when this process is gone.
//!
//! What does not live here: what the words mean, and where the file is.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use crate::map::{Map, memory_file, page_bytes};

/// A part of a file, word by word.
#[derive(Debug)]
pub struct Words {
    map: Map,
    count: usize,
}

impl Words {
    /// `count` words of `file` from byte `offset` on, a multiple of the page. The file is that
    /// long, and nobody makes it shorter.
    ///
    /// # Errors
    /// What the kernel says when it does not map the file there; `InvalidInput` when the file ends
    /// before.
    pub fn in_file(file: &File, offset: u64, count: usize) -> io::Result<Words> {
        use std::os::fd::AsFd;
        let bytes = count.checked_mul(size_of::<u64>());
        let bytes = bytes.filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let end = offset.checked_add(units::bytes_u64(bytes));
        let length = file.metadata()?.len();
        if end.is_none_or(|end| end > length) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let whole = crate::map::align_up(bytes, page_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
        let file: BorrowedFd<'_> = file.as_fd();
        let map = Map::of_file(file, offset, whole)?;
        Ok(Words { map, count })
    }

    /// The words. Other processes may see and change them.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[AtomicU64] {
        let first: *const AtomicU64 = self.map.base().cast();
        // SAFETY: `in_file` has mapped at least `count` words at a page's start, which is aligned
        // for them, until `self` is dropped; any bits are a value, and who else stores here is
        // another process or another such slice, so all of it is atomic.
        unsafe { std::slice::from_raw_parts(first, self.count) }
    }
}

/// A file in memory without a name: it lives as long as somebody has it open. All zero, of `length`
/// bytes.
///
/// # Errors
/// What the kernel says.
pub fn unnamed_file(length: usize) -> io::Result<File> {
    memory_file(length, 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn words_are_those_of_the_file() {
        let page = page_bytes();
        let file = unnamed_file(3 * page).expect("memory");
        let offset = units::bytes_u64(page);
        let words = Words::in_file(&file, offset, 5).expect("mapped");
        assert_eq!(words.as_slice().len(), 5);
        words.as_slice()[4].store(0x0102_0304_0506_0708, Ordering::Release);
        drop(words);
        let mut found = [0; 8];
        file.read_exact_at(&mut found, offset + 32).expect("read");
        assert_eq!(u64::from_ne_bytes(found), 0x0102_0304_0506_0708);
        let again = Words::in_file(&file, offset, 5).expect("mapped");
        assert_eq!(
            again.as_slice()[4].load(Ordering::Acquire),
            0x0102_0304_0506_0708
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no memory files")]
    fn words_beyond_the_end_are_refused() {
        let page = page_bytes();
        let file = unnamed_file(page).expect("memory");
        for (offset, count) in [(0, page / 8 + 1), (page, 1), (0, 0), (0, usize::MAX)] {
            let refused = Words::in_file(&file, units::bytes_u64(offset), count);
            assert!(refused.is_err(), "{count} words from byte {offset} on");
        }
        assert!(Words::in_file(&file, 0, page / 8).is_ok());
    }
}
