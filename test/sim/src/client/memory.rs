//! The memory of guests without rings. What a history leaves there, the next one on its thread
//! gets: new memory is slow, and guests fill what they hand over.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use ::memory::{Backing, Pages, Pool};

use super::{BUFFER_BYTES, IN_FLIGHT};

thread_local! {
    static LEFT: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// A buffer for each request; always there until it is dropped.
#[derive(Debug)]
pub(super) struct Memory(Option<Pool>);

impl Memory {
    /// # Panics
    /// When there is no memory.
    pub(super) fn new() -> Memory {
        let new = || Pool::new(IN_FLIGHT, BUFFER_BYTES, Backing::Anonymous(Pages::Plain));
        let pool = LEFT.take().unwrap_or_else(|| new().expect("memory"));
        Memory(Some(pool))
    }
}

impl Deref for Memory {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        self.0.as_ref().expect("until it is dropped")
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut Pool {
        self.0.as_mut().expect("until it is dropped")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What a history that failed had under way, nobody gives back.
        LEFT.set(self.0.take().filter(|pool| pool.free() == pool.len()));
    }
}
