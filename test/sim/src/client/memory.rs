//! The memory of guests without rings. What a history leaves there, the next one on its thread
//! gets: new memory is slow, and guests fill what they hand over.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use ::memory::{Backing, Buffer, Pages, Pool, Segment};
use units::bytes_usize;

use super::{BUFFER_BYTES, IN_FLIGHT};

thread_local! {
    static LEFT: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// What guests have in memory that no request carries.
const OTHER: u8 = 0xDD;

/// A buffer for each request; always there until it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    pool: Option<Pool>,
    /// By buffer: so many of its first bytes are `OTHER`, but for those that a request has.
    filled: [usize; IN_FLIGHT],
}

impl Memory {
    /// # Panics
    /// When there is no memory.
    pub(super) fn new() -> Memory {
        let new = || Pool::new(IN_FLIGHT, BUFFER_BYTES, Backing::Anonymous(Pages::Plain));
        let pool = LEFT.take().unwrap_or_else(|| new().expect("memory"));
        Memory {
            pool: Some(pool),
            filled: [0; IN_FLIGHT],
        }
    }

    /// Memory for so many bytes in which is nothing that anybody was given.
    pub(super) fn other(&mut self, buffer: &Buffer, length: usize) -> Segment {
        let memory = self.segment(buffer);
        let filled = &mut self.filled[place(self.pool.as_ref(), buffer)];
        if *filled < length {
            memory.part(*filled, length - *filled).fill(OTHER);
            *filled = length;
        }
        memory.part(0, length)
    }

    /// A request is answered that had the first bytes of a buffer: they are the guest's again, who
    /// has other things there.
    pub(super) fn take_back(&mut self, buffer: Buffer, had: Segment) {
        had.fill(OTHER);
        let filled = &mut self.filled[place(self.pool.as_ref(), &buffer)];
        *filled = had.len().max(*filled);
        self.release(buffer);
    }

    /// Nobody answers the request that has this buffer.
    pub(super) fn forsake(&mut self, buffer: Buffer) {
        self.filled[place(self.pool.as_ref(), &buffer)] = 0;
        self.release(buffer);
    }
}

/// Which of the buffers it is.
fn place(pool: Option<&Pool>, buffer: &Buffer) -> usize {
    let offset = pool.expect("until it is dropped").offset(buffer);
    bytes_usize(offset) / BUFFER_BYTES
}

impl Deref for Memory {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        self.pool.as_ref().expect("until it is dropped")
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut Pool {
        self.pool.as_mut().expect("until it is dropped")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What a history that failed had under way, nobody gives back.
        LEFT.set(self.pool.take().filter(|pool| pool.free() == pool.len()));
    }
}
