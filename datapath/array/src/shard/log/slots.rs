//! The slots of a shard's part of the log, taken in turn.

use super::{Log, Slot, Use};
use crate::planted::{self, Fault};

impl Log {
    /// Half of the slots, by number the latest, may be needed after a stop; those of the other
    /// half tell that they are not the latest, however the writes to these are torn.
    pub(super) fn window(&self) -> usize {
        self.slots.len() / 2
    }

    /// Leaves only the first slots.
    #[cfg(test)]
    pub(in crate::shard) fn shorten(&mut self, slots: usize) {
        self.slots.truncate(slots);
    }

    /// The slot that was taken when the present one would leave the window.
    fn oldest(&self) -> usize {
        (self.next + self.slots.len() - self.window()) % self.slots.len()
    }

    pub(super) fn take(&mut self, cell: u16, life: u64) -> Option<u32> {
        let is_free = if self.barred.is_empty() {
            self.slots[self.oldest()].state == Use::Free
        } else {
            self.pass_barred()
        };
        if !is_free {
            return None;
        }
        let taken = self.next;
        let slot = &mut self.slots[taken];
        assert_eq!(slot.state, Use::Free, "older than what is looked at");
        if let Some(old) = slot.cell.replace(cell) {
            self.cells[usize::from(old)] -= 1;
        }
        self.cells[usize::from(cell)] += 1;
        (slot.state, slot.durable) = (Use::Busy, false);
        slot.life = life;
        self.next = (self.next + 1) % self.slots.len();
        self.sequence += 1;
        Some(u32::try_from(taken).expect("few slots"))
    }

    pub(in crate::shard) fn end(&mut self, slot: u32) {
        let state = &mut self.slots[crate::slots::at(slot)].state;
        assert_eq!(*state, Use::Busy, "a slot ends once");
        if planted::is(Fault::LogSlotUsedAgainEarly) {
            *state = Use::Free;
            return;
        }
        *state = Use::Ended;
        self.ended += 1;
    }

    /// Pieces of lives before `from` are dead.
    pub(in crate::shard) fn forget(&mut self, from: u64) {
        for slot in &mut self.slots {
            if slot.life < from
                && slot.state != Use::Busy
                && let Some(cell) = slot.cell.take()
            {
                self.cells[usize::from(cell)] -= 1;
            }
        }
    }

    /// Whether some slot names a cell: its pieces count after a stop.
    pub(in crate::shard) fn names(&self) -> bool {
        self.slots.iter().any(|slot| slot.cell.is_some())
    }

    /// Whether the pieces in a slot are durable.
    pub(in crate::shard) fn is_durable(&self, slot: u32) -> bool {
        self.slots[crate::slots::at(slot)].durable
    }

    pub(super) fn is_drained(&self, life: u64) -> bool {
        let older = |slot: &Slot| slot.state == Use::Busy && slot.life < life;
        !self.slots.iter().any(older)
    }
}
