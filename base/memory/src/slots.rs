//! Lists of segments that stay in place while a request carries them.

use crate::segment::{Segment, SegmentList};

/// A fixed number of segment lists. A list is lent to one request and taken back when that
/// request is completed; a lent list is never touched.
#[derive(Debug)]
pub struct SegmentSlots {
    lists: Vec<List>,
}

#[derive(Debug)]
struct List {
    lent: bool,
    /// Most lists are of one segment, which is here, and not in `all`.
    one: Option<Segment>,
    all: Vec<Segment>,
}

impl List {
    #[inline(always)]
    fn segments(&self) -> &[Segment] {
        match &self.one {
            Some(one) => std::slice::from_ref(one),
            None => &self.all,
        }
    }

    #[inline(always)]
    fn lend(&mut self) -> SegmentList {
        self.lent = true;
        // SAFETY: a lent list is neither moved nor changed until `take_back` (nobody else calls
        // this), and `drop` leaks the lists when one is still lent.
        unsafe { SegmentList::new(self.segments()) }
    }
}

impl SegmentSlots {
    /// `slots` lists with room for `segments` each; a list that once grew keeps its room.
    #[must_use]
    pub fn new(slots: usize, segments: usize) -> SegmentSlots {
        let list = || List {
            lent: false,
            one: None,
            all: Vec::with_capacity(segments),
        };
        SegmentSlots {
            lists: (0..slots).map(|_| list()).collect(),
        }
    }

    /// Fills list `slot` and lends it.
    ///
    /// # Panics
    /// When the list is lent already.
    #[inline]
    pub fn lend(&mut self, slot: usize, fill: impl FnOnce(&mut Vec<Segment>)) -> SegmentList {
        let list = self.at_home(slot);
        list.one = None;
        list.all.clear();
        fill(&mut list.all);
        list.lend()
    }

    /// As `lend`, for one segment.
    ///
    /// # Panics
    /// When the list is lent already.
    #[inline(always)]
    pub fn lend_one(&mut self, slot: usize, segment: Segment) -> SegmentList {
        let list = self.at_home(slot);
        list.one = Some(segment);
        list.lend()
    }

    #[inline(always)]
    fn at_home(&mut self, slot: usize) -> &mut List {
        let list = &mut self.lists[slot];
        assert!(!list.lent, "a list is lent once");
        list
    }

    /// What list `slot` holds; until it is lent again, also after it was taken back.
    #[must_use]
    pub fn list(&self, slot: usize) -> &[Segment] {
        self.lists[slot].segments()
    }

    /// Takes list `slot` back; the request that carried it is completed.
    ///
    /// # Panics
    /// When the list is not lent.
    #[inline]
    pub fn take_back(&mut self, slot: usize) {
        let list = &mut self.lists[slot];
        assert!(list.lent, "a list is taken back once");
        list.lent = false;
    }
}

impl Drop for SegmentSlots {
    fn drop(&mut self) {
        if self.lists.iter().any(|list| list.lent) {
            std::mem::forget(std::mem::take(&mut self.lists));
        }
    }
}
