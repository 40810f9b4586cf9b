//! Room for a fixed number of things in flight.

/// Links of slots: no slot, and a slot that is in use.
const NONE: u32 = u32::MAX;
const BUSY: u32 = u32::MAX - 1;

/// Slots that are looked at together.
const RUN: usize = 16;

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
        let is_busy = |link: &u32| *link == BUSY;
        let (runs, rest) = self.links.get(at(from)..)?.as_chunks::<RUN>();
        // Mostly few are in use: runs without one are passed over at once.
        let has_busy = |run: &[u32; RUN]| run.iter().fold(false, |any, link| any | is_busy(link));
        let run = runs.iter().position(has_busy).unwrap_or(runs.len());
        let slots = runs.get(run).map_or(rest, |run| run);
        let found = slots.iter().position(is_busy)?;
        let passed = u32::try_from(run * RUN + found).expect("limits.rs bounds every pool");
        Some(from + passed)
    }

    /// What is in the slots in use, in their order.
    pub(crate) fn busy(&self) -> impl Iterator<Item = &T> {
        let slots = self.links.iter().zip(&self.entries);
        let busy = slots.filter(|(link, _)| **link == BUSY);
        // Those that are used are the first, mostly.
        busy.take(self.in_use()).map(|(_, entry)| entry)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_use_are_found_in_their_order_wherever_they_are() {
        for slots in [1, 15, 16, 17, 50] {
            let mut room: Slots<usize> = Slots::new(slots);
            let mut taken = Vec::new();
            for _ in 0..slots {
                let slot = room.acquire().expect("one is free");
                room[slot] = at(slot);
                taken.push(slot);
            }
            assert_eq!(room.acquire(), None);
            // Every seventh goes, then every fifth of the rest, and so on, until none is left.
            for step in [7, 5, 3, 2, 1] {
                let (gone, left): (Vec<_>, Vec<_>) = taken
                    .iter()
                    .partition(|&&slot| at(slot).is_multiple_of(step));
                gone.into_iter().for_each(|slot| room.release(slot));
                taken = left;
                assert_eq!(room.used(), taken, "{slots} slots, {step}");
                let inside: Vec<usize> = room.busy().copied().collect();
                let expected: Vec<usize> = taken.iter().map(|slot| at(*slot)).collect();
                assert_eq!(inside, expected, "{slots} slots, {step}");
            }
            assert_eq!(room.in_use(), 0);
            assert_eq!(room.used_from(u32::try_from(slots).expect("few")), None);
            // One alone, behind or before all that are free.
            for slot in 0..u32::try_from(slots).expect("few") {
                while room.acquire().is_some() {}
                let others = room.used().into_iter().filter(|&other| other != slot);
                others.for_each(|other| room.release(other));
                assert_eq!(room.used(), [slot], "of {slots}");
                room.release(slot);
            }
        }
    }
}
