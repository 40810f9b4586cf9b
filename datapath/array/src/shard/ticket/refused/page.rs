//! Memory for one block that is read by itself.

use memory::{Backing, Buffer, Pages, Pool, Segment};

/// Memory for one block.
#[derive(Debug)]
pub(in crate::shard) struct Page {
    pool: Pool,
    buffer: Option<Buffer>,
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.release(buffer);
        }
    }
}

impl Page {
    pub(super) fn new(bytes: usize) -> Option<Page> {
        let backing = Backing::Anonymous(Pages::Plain);
        let mut pool = Pool::new(1, bytes.next_multiple_of(4096), backing).ok()?;
        let buffer = pool.acquire();
        Some(Page { pool, buffer })
    }

    pub(super) fn whole(&self) -> Segment {
        let buffer = self.buffer.as_ref().expect("there is one");
        self.pool.segment(buffer)
    }
}
