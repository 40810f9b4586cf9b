//! What every block of the range must hold, so that every read can be compared.

use units::bytes_usize;

use super::device::{Kind, Request};
use crate::demo::content::{BLOCK_BYTES, Content};

/// Versions of the blocks of a range that this bench has written.
#[derive(Debug)]
pub(super) struct Book {
    content: Content,
    /// By block: the version that it holds, or will when its write is answered; 0 is unknown.
    versions: Vec<u32>,
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

    /// Notes that a request was answered, or the flush after it.
    pub(super) fn end(&mut self, request: &Request) {
        self.busy[Book::blocks(request)].fill(false);
    }

    /// Says what is wrong with what was read.
    pub(super) fn check(&mut self, request: &Request, found: &[u8]) -> Result<(), String> {
        let blocks = Book::blocks(request).zip(found.chunks_exact(BLOCK_BYTES));
        for (block, found) in blocks {
            let version = self.versions[block];
            self.content.check(number(block), version, found)?;
        }
        Ok(())
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
        book.end(&write);
        let mut second = vec![0; 8192];
        book.begin(&write, &mut second);
        book.end(&write);
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
}
