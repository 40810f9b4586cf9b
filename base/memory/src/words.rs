//! Words in a file in memory, which others read when this process is gone.
//!
//! What does not live here: what the words mean, and where the file is.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

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
        let map = Map::shared(file, offset, whole, 0)?;
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

/// A number in the first word of a file. Whoever maps the same file counts
/// along.
#[derive(Debug)]
pub struct LastingCount {
    words: Words,
}

impl LastingCount {
    /// # Errors
    /// As [`Words::in_file`].
    pub fn in_file(file: &File) -> io::Result<LastingCount> {
        let words = Words::in_file(file, 0, 1)?;
        Ok(LastingCount { words })
    }

    /// One more. Whoever sees what is stored from here on sees that, too.
    pub fn add(&self) {
        self.words.as_slice()[0].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::Release);
    }

    /// One less, of what this process has added.
    pub fn take_back(&self) {
        self.words.as_slice()[0].fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::Release);
    }

    /// How often something was added, and the number that was there first.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.words.as_slice()[0].load(Ordering::SeqCst)
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
    fn a_count_is_one_for_all_who_map_its_file() {
        let file = unnamed_file(page_bytes()).expect("memory");
        file.write_all_at(&7_u64.to_ne_bytes(), 0).expect("room");
        let [one, two] = [(), ()].map(|()| LastingCount::in_file(&file).expect("mapped"));
        one.add();
        two.add();
        assert_eq!([one.value(), two.value()], [9, 9]);
    }

    #[test]
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
