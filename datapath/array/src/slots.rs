//! Room for a fixed number of things in flight.

/// Links of slots: no slot, and a slot that is in use.
const NONE: u32 = u32::MAX;
const BUSY: u32 = u32::MAX - 1;

/// A fixed set of slots. A slot's content stays when it is released, so that what it allocated
/// is used again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<T>,
    /// Of each free slot the one that was freed before it; apart, to be looked through quickly.
    links: Vec<u32>,
    /// The slot that was freed last.
    first: u32,
    free: usize,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new(slots: usize) -> Slots<T> {
        let last = u32::try_from(slots).expect("limits.rs bounds every pool");
        assert!(last < BUSY, "limits.rs bounds every pool");
        let next = |slot| if slot + 1 < last { slot + 1 } else { NONE };
        Slots {
            entries: (0..slots).map(|_| T::default()).collect(),
            links: (0..last).map(next).collect(),
            first: if last > 0 { 0 } else { NONE },
            free: slots,
        }
    }

    /// A free slot, with whatever its last user left in it.
    #[inline]
    pub(crate) fn acquire(&mut self) -> Option<u32> {
        let slot = self.first;
        // Beyond the end when no slot is free.
        let link = self.links.get_mut(at(slot))?;
        self.first = std::mem::replace(link, BUSY);
        self.free -= 1;
        Some(slot)
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u32) {
        let link = &mut self.links[at(slot)];
        assert!(*link == BUSY, "a slot is released once");
        *link = std::mem::replace(&mut self.first, slot);
        self.free += 1;
    }

    /// Whether the slot is in use.
    pub(crate) fn is_busy(&self, slot: u32) -> bool {
        self.links[at(slot)] == BUSY
    }

    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    pub(crate) fn in_use(&self) -> usize {
        self.entries.len() - self.free
    }

    /// The first slot in use from `from` on.
    pub(crate) fn used_from(&self, from: u32) -> Option<u32> {
        let slots = from..u32::try_from(self.links.len()).expect("limits.rs bounds every pool");
        slots.into_iter().find(|&slot| self.is_busy(slot))
    }

    /// The slots in use. Allocates.
    pub(crate) fn used(&self) -> Vec<u32> {
        let next = |slot: &u32| self.used_from(slot + 1);
        std::iter::successors(self.used_from(0), next).collect()
    }
}

impl<T> Slots<T> {
    /// What a slot's last user left in it.
    #[inline]
    pub(crate) fn last(&self, slot: u32) -> &T {
        &self.entries[at(slot)]
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    #[inline]
    fn index(&self, slot: u32) -> &T {
        debug_assert!(self.links[at(slot)] == BUSY, "slot {slot} is not in use");
        &self.entries[at(slot)]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        debug_assert!(self.links[at(slot)] == BUSY, "slot {slot} is not in use");
        &mut self.entries[at(slot)]
    }
}

/// A slot number as a position.
#[inline]
pub(crate) fn at(slot: u32) -> usize {
    usize::try_from(slot).expect("u32 fits usize")
}
