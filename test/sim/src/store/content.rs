//! The bytes of a page. Those that a drive leaves, the next one on its thread gets: there are
//! thousands in a history, and each from the allocator is slow.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Bytes of pages, and how many of each are kept. Others are left to the allocator.
const KEPT: [(usize, usize); 2] = [(4096, 16 << 10), (32 << 10, 4 << 10)];

thread_local! {
    static LEFT: RefCell<[Vec<Box<[u8]>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Which of `KEPT` has pages of so many bytes.
fn kind(bytes: usize) -> Option<usize> {
    KEPT.iter().position(|&(usual, _)| usual == bytes)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Content(Box<[u8]>);

impl Content {
    /// With whatever is in there.
    pub(super) fn any(bytes: usize) -> Content {
        let left = kind(bytes).and_then(|kind| LEFT.with_borrow_mut(|left| left[kind].pop()));
        Content(left.unwrap_or_else(|| vec![0; bytes].into()))
    }

    /// Zeroes.
    pub(super) fn zeroes(bytes: usize) -> Content {
        let mut content = Content::any(bytes);
        content.fill(0);
        content
    }
}

impl Clone for Content {
    fn clone(&self) -> Content {
        let mut copy = Content::any(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(kind) = kind(self.len()) {
            let bytes = std::mem::take(&mut self.0);
            // A thread that ends keeps nothing.
            let _ = LEFT.try_with(|left| {
                let left = &mut left.borrow_mut()[kind];
                if left.len() < KEPT[kind].1 {
                    left.push(bytes);
                }
            });
        }
    }
}

impl Deref for Content {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Content {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_used_before_is_zeroes_when_it_is_to_be() {
        for bytes in [4096, 32 << 10, 8192] {
            let mut used = Content::zeroes(bytes);
            used.fill(7);
            assert_eq!(*used.clone(), *used);
            drop(used);
            assert!(Content::zeroes(bytes).iter().all(|byte| *byte == 0));
        }
    }
}
