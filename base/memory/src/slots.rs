//! Lists of segments that stay in place while a request carries them.

use crate::segment::{Segment, SegmentList};

/// A fixed number of segment lists. A list is lent to one request and taken back when that
/// request is completed; a lent list is never touched.
#[derive(Debug)]
pub struct SegmentSlots {
    lists: Vec<Vec<Segment>>,
    lent: Vec<bool>,
}

impl SegmentSlots {
    /// `slots` lists with room for `segments` each; a list that once grew keeps its room.
    #[must_use]
    pub fn new(slots: usize, segments: usize) -> SegmentSlots {
        SegmentSlots {
            lists: (0..slots).map(|_| Vec::with_capacity(segments)).collect(),
            lent: vec![false; slots],
        }
    }

    /// Fills list `slot` and lends it.
    ///
    /// # Panics
    /// When the list is lent already.
    #[inline]
    pub fn lend(&mut self, slot: usize, fill: impl FnOnce(&mut Vec<Segment>)) -> SegmentList {
        assert!(!self.lent[slot], "a list is lent once");
        self.lent[slot] = true;
        let list = &mut self.lists[slot];
        list.clear();
        fill(list);
        // SAFETY: a lent list is neither moved nor changed until `take_back`, and `drop` leaks
        // the lists when one is still lent.
        unsafe { SegmentList::new(list) }
    }

    /// As `lend`, for one segment.
    ///
    /// # Panics
    /// When the list is lent already.
    #[inline]
    pub fn lend_one(&mut self, slot: usize, segment: Segment) -> SegmentList {
        self.lend(slot, |list| list.push(segment))
    }

    /// What list `slot` holds; until it is lent again, also after it was taken back.
    #[must_use]
    pub fn list(&self, slot: usize) -> &[Segment] {
        &self.lists[slot]
    }

    /// Takes list `slot` back; the request that carried it is completed.
    ///
    /// # Panics
    /// When the list is not lent.
    #[inline]
    pub fn take_back(&mut self, slot: usize) {
        assert!(self.lent[slot], "a list is taken back once");
        self.lent[slot] = false;
    }
}

impl Drop for SegmentSlots {
    fn drop(&mut self) {
        if self.lent.contains(&true) {
            std::mem::forget(std::mem::take(&mut self.lists));
        }
    }
}
