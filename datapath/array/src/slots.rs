//! Room for a fixed number of things in flight.

/// A fixed set of slots. A slot's content stays when it is released, so that what it allocated
/// is used again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<T>,
    free: Vec<u32>,
    busy: Vec<bool>,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new(slots: usize) -> Slots<T> {
        let last = u32::try_from(slots).expect("limits.rs bounds every pool");
        Slots {
            entries: (0..slots).map(|_| T::default()).collect(),
            free: (0..last).rev().collect(),
            busy: vec![false; slots],
        }
    }

    /// A free slot, with whatever its last user left in it.
    #[inline]
    pub(crate) fn acquire(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        self.busy[at(slot)] = true;
        Some(slot)
    }

    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u32) {
        assert!(self.busy[at(slot)], "a slot is released once");
        self.busy[at(slot)] = false;
        self.free.push(slot);
    }

    /// Whether the slot is in use.
    pub(crate) fn is_busy(&self, slot: u32) -> bool {
        self.busy[at(slot)]
    }

    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn in_use(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The first slot in use from `from` on.
    pub(crate) fn used_from(&self, from: u32) -> Option<u32> {
        let slots = from..u32::try_from(self.busy.len()).expect("limits.rs bounds every pool");
        slots.into_iter().find(|&slot| self.busy[at(slot)])
    }

    /// The slots in use. Allocates.
    pub(crate) fn used(&self) -> Vec<u32> {
        let slots = 0..u32::try_from(self.busy.len()).expect("limits.rs bounds every pool");
        slots.filter(|&slot| self.busy[at(slot)]).collect()
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;
    #[inline]
    fn index(&self, slot: u32) -> &T {
        debug_assert!(self.busy[at(slot)], "slot {slot} is not in use");
        &self.entries[at(slot)]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        debug_assert!(self.busy[at(slot)], "slot {slot} is not in use");
        &mut self.entries[at(slot)]
    }
}

/// A slot number as a position.
#[inline]
pub(crate) fn at(slot: u32) -> usize {
    usize::try_from(slot).expect("u32 fits usize")
}
