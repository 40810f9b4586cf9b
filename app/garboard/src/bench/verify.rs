//! What every block of the range must hold, so that every read can be compared.

use std::ops::RangeInclusive;

use units::bytes_usize;

use super::device::{Kind, Request};
use crate::demo::content::{BLOCK_BYTES, Content};

/// What is written whole or not at all: an array may have blocks of so few bytes.
const SECTOR_BYTES: usize = 512;
/// Of more versions that a block may hold, none is looked for.
const TELLABLE: u32 = 16;

/// Versions of the blocks of a range that this bench has written.
#[derive(Debug)]
pub(super) struct Book {
    content: Content,
    /// By block: the version that it holds, or will when its write is answered; 0 is unknown.
    versions: Vec<u32>,
    /// By block: the last version whose write went well. A write that failed may have changed some
    /// of the block, so each of its sectors may hold that one or any after it.
    sure: Vec<u32>,
    /// By block: whether a request on it is in flight.
    busy: Vec<bool>,
}

impl Book {
    /// A book of so many bytes, all of which are to be written before they are read.
    pub(super) fn new(range: u64, seed: u64) -> Book {
        let blocks = bytes_usize(range) / BLOCK_BYTES;
        Book {
            content: Content::new(seed),
            versions: vec![0; blocks],
            sure: vec![0; blocks],
            busy: vec![false; blocks],
        }
    }

    fn blocks(request: &Request) -> std::ops::Range<usize> {
        let first = bytes_usize(request.offset) / BLOCK_BYTES;
        let count = match request.kind {
            Kind::Read | Kind::Write | Kind::Flush => request.bytes / BLOCK_BYTES,
        };
        first..first + count
    }

    /// Whether nobody works on the blocks: what a read must find is certain only then.
    pub(super) fn is_free(&self, request: &Request) -> bool {
        !self.busy[Book::blocks(request)].contains(&true)
    }

    /// Notes that a request is begun; gives a write its bytes.
    pub(super) fn begin(&mut self, request: &Request, bytes: &mut [u8]) {
        let blocks = Book::blocks(request);
        self.busy[blocks.clone()].fill(true);
        if request.kind != Kind::Write {
            return;
        }
        for (block, target) in blocks.zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            self.versions[block] += 1;
            self.content
                .fill(number(block), self.versions[block], target);
        }
    }

    /// Notes that a request was answered, or the flush after it, and whether it went well.
    pub(super) fn end(&mut self, request: &Request, went_well: bool) {
        let blocks = Book::blocks(request);
        self.busy[blocks.clone()].fill(false);
        if went_well && request.kind != Kind::Read {
            self.sure[blocks.clone()].copy_from_slice(&self.versions[blocks]);
        }
    }

    /// Says what is wrong with what was read.
    pub(super) fn check(&mut self, request: &Request, found: &[u8]) -> Result<(), String> {
        let blocks = Book::blocks(request).zip(found.chunks_exact(BLOCK_BYTES));
        for (block, found) in blocks {
            let (sure, version) = (self.sure[block], self.versions[block]);
            if sure == version || !self.is_one_of(block, sure..=version, found) {
                self.content.check(number(block), version, found)?;
            }
        }
        Ok(())
    }

    /// Whether each sector of a block holds what one of these versions has there. Before the first
    /// write that went well it holds anything.
    fn is_one_of(&self, block: usize, versions: RangeInclusive<u32>, found: &[u8]) -> bool {
        let (sure, last) = (*versions.start(), *versions.end());
        if sure == 0 || last - sure > TELLABLE {
            return true;
        }
        let mut tells = [false; BLOCK_BYTES / SECTOR_BYTES];
        let mut expected = [0; BLOCK_BYTES];
        for version in versions {
            self.content.fill(number(block), version, &mut expected);
            let sectors = expected.chunks_exact(SECTOR_BYTES);
            let pairs = sectors.zip(found.chunks_exact(SECTOR_BYTES));
            for (tells, (expected, found)) in tells.iter_mut().zip(pairs) {
                *tells |= expected == found;
            }
        }
        !tells.contains(&false)
    }
}

fn number(block: usize) -> u32 {
    u32::try_from(block).expect("the range is below 2^32 blocks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_must_find_the_last_write_and_nothing_else() {
        let mut book = Book::new(16 * 4096, 7);
        let request = |kind, block: u64| Request {
            kind,
            offset: block * 4096,
            bytes: 8192,
        };
        let mut first = vec![0; 8192];
        let write = request(Kind::Write, 2);
        assert!(book.is_free(&write));
        book.begin(&write, &mut first);
        assert!(!book.is_free(&request(Kind::Read, 3)));
        assert!(book.is_free(&request(Kind::Read, 4)));
        book.end(&write, true);
        let mut second = vec![0; 8192];
        book.begin(&write, &mut second);
        book.end(&write, true);
        let read = request(Kind::Read, 2);
        assert_eq!(book.check(&read, &second), Ok(()));
        let old = book.check(&read, &first).expect_err("old");
        assert!(old.contains("block 2 should have version 2"), "{old}");
        book.check(&request(Kind::Read, 3), &second)
            .expect_err("moved");
        let mut torn = second.clone();
        torn[8191] ^= 1;
        book.check(&read, &torn).expect_err("torn");
    }

    #[test]
    fn a_write_that_failed_may_have_changed_any_of_its_sectors() {
        let mut book = Book::new(16 * 4096, 7);
        let request = |kind| Request {
            kind,
            offset: 8192,
            bytes: 4096,
        };
        let (write, read) = (request(Kind::Write), request(Kind::Read));
        let mut written = [(); 4].map(|()| vec![0; 4096]);
        let mut writes = |book: &mut Book, at: usize, went_well| {
            book.begin(&write, &mut written[at]);
            book.end(&write, went_well);
            written[at].clone()
        };
        // Nobody knows what was there before the first that goes well.
        let mut unknown = Book::new(16 * 4096, 7);
        let _ = writes(&mut unknown, 3, false);
        assert_eq!(unknown.check(&read, &[9; 4096]), Ok(()));

        let one = writes(&mut book, 0, true);
        book.check(&read, &[9; 4096]).expect_err("it is known");
        let two = writes(&mut book, 1, false);
        let three = writes(&mut book, 2, false);
        let mixed = [&one[..512], &three[512..1024], &two[1024..]].concat();
        for may_be in [&one, &two, &three, &mixed] {
            assert_eq!(book.check(&read, may_be), Ok(()));
        }
        let mut torn = mixed.clone();
        torn[700] ^= 1;
        book.check(&read, &torn).expect_err("no write had that");
        let four = writes(&mut book, 3, true);
        assert_eq!(book.check(&read, &four), Ok(()));
        book.check(&read, &mixed).expect_err("it is known again");
    }
}
