//! A job in pieces, which threads take one after another until none is left.
//!
//! Whoever takes a piece does it. The one whose job it is takes pieces like the others, so it waits
//! for nobody who has not begun, and at the end for those pieces only that others have begun. What
//! the pieces are about is handed to the others before, by a message.

use crate::sync::{AtomicU32, Ordering, wait_a_little};

/// In the count of pieces that are over: some was left in the middle of it.
const LEFT: u32 = 1 << 31;

/// See the module.
#[derive(Debug)]
pub struct Pieces {
    count: u32,
    /// The next piece, or behind the last.
    next: AtomicU32,
    /// How many are over.
    over: AtomicU32,
}

/// A piece that somebody does; it is over when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Piece<'a> {
    pieces: &'a Pieces,
    index: u32,
}

impl Pieces {
    /// A job of so many pieces.
    ///
    /// # Panics
    /// With 2³⁰ pieces or more.
    #[must_use]
    pub fn new(count: u32) -> Pieces {
        assert!(count < LEFT / 2, "a job of {count} pieces");
        Pieces {
            count,
            next: AtomicU32::new(0),
            over: AtomicU32::new(0),
        }
    }

    /// The next piece, unless all were taken.
    #[inline]
    pub fn take(&self) -> Option<Piece<'_>> {
        // The load keeps the counter from growing without end.
        if self.next.load(Ordering::Relaxed) >= self.count {
            return None;
        }
        // That each is given out once needs no order. What it is about came before, by a message.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let pieces = self;
        // Made only where it is given out: it counts when it is dropped.
        (index < self.count).then(|| Piece { pieces, index })
    }

    /// Whether all were done: what was stored meanwhile is seen from now on.
    #[inline]
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.over.load(Ordering::Acquire) == self.count
    }

    /// Nobody takes a piece any more, and those that were taken are over when this returns, done or
    /// not: once, for the end of whatever they are about. It waits for threads that are in the
    /// middle of a piece, and for nothing else.
    pub fn stop(&self) {
        let taken = self.next.swap(self.count, Ordering::Relaxed);
        let taken = taken.min(self.count);
        while self.over.load(Ordering::Acquire) & !LEFT < taken {
            wait_a_little();
        }
    }
}

impl Piece<'_> {
    /// Which.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for Piece<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Who was left in the middle uses no memory any more, but the job is never done.
            self.pieces.over.fetch_or(LEFT, Ordering::Relaxed);
        }
        self.pieces.over.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_given_out_once() {
        let pieces = Pieces::new(3);
        let taken: Vec<Piece<'_>> = std::iter::from_fn(|| pieces.take()).collect();
        let indices: Vec<u32> = taken.iter().map(Piece::index).collect();
        assert_eq!(indices, [0, 1, 2]);
        assert!(pieces.take().is_none());
        assert!(!pieces.are_done(), "they are being done");
        drop(taken);
        assert!(pieces.are_done());
    }

    #[test]
    fn nobody_begins_after_a_stop() {
        let pieces = Pieces::new(3);
        drop(pieces.take());
        pieces.stop();
        assert!(pieces.take().is_none());
        assert!(!pieces.are_done(), "two were not begun");
    }

    #[test]
    fn what_was_left_in_the_middle_is_over_and_never_done() {
        let pieces = Pieces::new(1);
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _piece = pieces.take();
            panic!("in the middle");
        }));
        assert!(left.is_err());
        pieces.stop();
        assert!(!pieces.are_done());
    }
}
