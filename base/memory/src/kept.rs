//! Mappings that outlive their owners, for simulators: these start engines by the dozen, and each
//! maps the same few files. The kernel gives a new mapping its pages one by one, when they are
//! touched, and that takes longer than what is done with them.
//!
//! Nothing is kept unless somebody asks for it, and no engine does. Whoever maps a part of a file
//! finds there what is in the file, whether its mapping is a new one or not.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::map::Map;

/// So many are kept by a thread, those that were dropped last.
const KEPT: usize = 64;

static KEEPS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DROPPED: RefCell<VecDeque<(Part, Map)>> = const { RefCell::new(VecDeque::new()) };
}

/// Which part of which file a mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Device and inode: a file that is mapped keeps both.
    pub(crate) file: (u64, u64),
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// From now on mappings of files are kept when they are dropped, and are given to whoever maps the
/// same part of the same file on the same thread next. For simulators.
pub fn keep_mappings() {
    KEEPS.store(true, Ordering::Relaxed);
}

pub(crate) fn keeps() -> bool {
    KEEPS.load(Ordering::Relaxed)
}

/// One that is of this part of a file. It comes back here when it is dropped.
pub(crate) fn take(part: &Part) -> Option<Map> {
    let dropped = DROPPED.with_borrow_mut(|dropped| {
        let place = dropped.iter().rposition(|(of, _)| of == part)?;
        dropped.remove(place)
    });
    dropped.map(|(part, map)| map.kept_as(part))
}

pub(crate) fn keep(part: Part, map: Map) {
    // A thread that ends keeps nothing.
    let _ = DROPPED.try_with(|dropped| {
        let mut dropped = dropped.borrow_mut();
        if dropped.len() == KEPT {
            dropped.pop_front();
        }
        dropped.push_back((part, map));
    });
}

#[cfg(test)]
mod tests;
