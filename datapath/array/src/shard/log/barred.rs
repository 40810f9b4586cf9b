//! Slots that are passed over: a block there is refused by a member that the array cannot do
//! without, and whose drive takes other writes. What was to be logged in such a slot was not begun,
//! and is logged in the next one.
//!
//! With n slots and a window of w, a slot of number p is taken again by a number q ≥ p + n − b, if
//! b slots have been passed over, and up to b numbers before q may have left no piece that is
//! durable. So that what is done again after a stop is still the last of its cell (docs/on-disk.md,
//! section 9), q waits until all up to its n − w − 2b-th predecessor have ended and were flushed.

use units::{MemberIndex, bytes_u64};

use super::super::Shard;
use super::{Log, Use};
use crate::io::{Event, Io};

/// Slots that a shard passes over, at most. A write may meet one after the other, each for more
/// than a second; a drive that refuses more is waited for, which is told.
const BARRED_MAX: usize = 16;

/// A slot that was refused. One that is asked for again counts for another round: it may have been
/// passed over in this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barred {
    slot: usize,
    by: Refuser,
}

#[derive(Clone, Copy, Debug)]
enum Refuser {
    /// This member, as it was filled then.
    Member(MemberIndex, u32),
    /// Nobody that matters, since this number.
    Nobody { since: u64 },
}

impl Log {
    /// How many writes may be under way, if so many slots are passed over: 0 if none can be.
    fn room_beside(&self, barred: usize) -> usize {
        let older = self.slots.len() - self.window();
        older.saturating_sub(2 * barred)
    }

    /// Whether the log goes on without a slot.
    pub(in crate::shard) fn can_bar(&self, slot: u32) -> bool {
        let slot = crate::slots::at(slot);
        let is_new = self.barred.iter().all(|barred| barred.slot != slot);
        let barred = self.barred.len() + usize::from(is_new);
        barred <= BARRED_MAX && self.room_beside(barred) > 0
    }

    /// Passes a slot over that a member refuses.
    fn bar(&mut self, slot: u32, by: (MemberIndex, u32)) {
        let slot = crate::slots::at(slot);
        let by = Refuser::Member(by.0, by.1);
        match self.barred.iter_mut().find(|barred| barred.slot == slot) {
            Some(barred) => barred.by = by,
            None => self.barred.push(Barred { slot, by }),
        }
    }

    /// Slots are asked for again whose refuser does not matter any more, and are forgotten when all
    /// have been taken since.
    pub(super) fn lift_bars(&mut self, matters: impl Fn(MemberIndex, u32) -> bool) {
        let (since, slots) = (self.sequence, bytes_u64(self.slots.len()));
        for barred in &mut self.barred {
            if let Refuser::Member(member, filling) = barred.by
                && !matters(member, filling)
            {
                barred.by = Refuser::Nobody { since };
            }
        }
        self.barred.retain(|barred| match barred.by {
            Refuser::Member(..) => true,
            Refuser::Nobody { since } => self.sequence < since + slots,
        });
    }

    pub(in crate::shard) fn is_barred(&self, slot: usize) -> bool {
        let is_it =
            |barred: &Barred| barred.slot == slot && matches!(barred.by, Refuser::Member(..));
        self.barred.iter().any(is_it)
    }

    /// Goes on to the next slot that is not passed over; whether it may be taken.
    #[cold]
    pub(super) fn pass_barred(&mut self) -> bool {
        let slots = self.slots.len();
        while self.is_barred(self.next) {
            self.next = (self.next + 1) % slots;
        }
        // The slot itself was the first, so many turns ago.
        let is_over = |back: usize| {
            let slot = (self.next + slots - back) % slots;
            self.slots[slot].state == Use::Free
        };
        (self.room_beside(self.barred.len())..=slots).all(is_over)
    }
}

impl Shard {
    /// A member that is needed refuses a piece, and takes other writes.
    pub(in crate::shard) fn piece_refused(
        &mut self,
        ticket: u32,
        by: (MemberIndex, u32),
        io: &mut impl Io,
    ) {
        let place = self.tickets[ticket].log_slot.expect("its pieces go there");
        self.log.bar(place, by);
        io.event(Event::LogSlotRefused { member: by.0 });
        self.piece_ended(ticket, false);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Slot;
    use super::*;
    use crate::format::Layout;
    use crate::log::LogSpace;
    use crate::shard::tests::Shape;
    use units::BlockSize;

    const FILLING: u32 = 1;

    /// A ring of slots as the drives have it. Numbers count from 0 here.
    struct Ring {
        log: Log,
        /// By number: whether its pieces are durable; and numbers that were logged since a flush.
        durable: Vec<bool>,
        logged: Vec<usize>,
        /// By slot: the number that it has.
        has: Vec<Option<usize>>,
        /// Numbers that a start might find whole: what a slot held before is torn, or not yet.
        whole: BTreeSet<usize>,
        /// Slots of writes that have not ended, with their numbers.
        open: Vec<(u32, usize)>,
        chance: u64,
    }

    impl Ring {
        fn new(slots: usize, seed: u64) -> Ring {
            let layout = Layout::for_member(64 << 20, BlockSize::B512, 3).expect("large enough");
            let area = (layout.log.offset, layout.log.length);
            let space = LogSpace::new(&Shape::default().geometry(), area);
            let mut log = Log::new(space, 0, 1).expect("memory");
            log.slots = vec![Slot::default(); slots];
            Ring {
                log,
                durable: Vec::new(),
                logged: Vec::new(),
                has: vec![None; slots],
                whole: BTreeSet::new(),
                open: Vec::new(),
                chance: seed,
            }
        }

        fn below(&mut self, bound: usize) -> usize {
            let mixed = self.chance.wrapping_mul(0x5851_F42D_4C95_7F2D);
            self.chance = mixed.wrapping_add(0x1405_7B7E_F767_814F);
            usize::try_from(self.chance >> 33).expect("31 bits") % bound
        }

        /// The next write takes a slot, if it may.
        fn take(&mut self) -> bool {
            let Some(slot) = self.log.take(0, 1) else {
                return false;
            };
            let (number, at) = (self.durable.len(), crate::slots::at(slot));
            let window = self.log.window();
            for &(_, open) in &self.open {
                assert!(open + window > number, "{open} is under way at {number}");
            }
            let torn = self.has[at].replace(number);
            if let Some(torn) = torn {
                self.check(torn);
                if self.below(2) == 0 {
                    self.whole.remove(&torn);
                }
            }
            self.durable.push(false);
            self.whole.insert(number);
            self.open.push((slot, number));
            true
        }

        /// That what a start does again is the last of its cell, if all is of one cell and the
        /// pieces of this number are torn.
        fn check(&self, torn: usize) {
            let found = self.whole.iter().filter(|&&number| number != torn);
            let Some(newest) = found.filter(|&&number| self.durable[number]).max() else {
                return;
            };
            for older in self.whole.range(..torn) {
                let counts = older + self.log.window() > *newest;
                assert!(!counts, "{older} is done again, {torn} is lost");
            }
        }

        /// One of those under way ends; what is refused was written perhaps.
        fn end(&mut self, which: usize, refused: bool) {
            let (slot, number) = self.open.remove(which);
            if refused && self.log.can_bar(slot) {
                self.log.bar(slot, (MemberIndex(0), FILLING));
                if self.below(2) == 0 {
                    self.whole.remove(&number);
                }
                self.has[crate::slots::at(slot)] = None;
            } else {
                self.logged.push(number);
            }
            self.log.end(slot);
        }

        fn flush(&mut self) {
            for slot in &mut self.log.slots {
                if slot.state == Use::Ended {
                    slot.state = Use::Free;
                }
            }
            for number in self.logged.drain(..) {
                self.durable[number] = true;
            }
        }

        fn lift(&mut self) {
            self.log.lift_bars(|_, _| false);
        }

        /// Some time of one of the ways in which an array works.
        fn go_on(&mut self, taken: &mut usize) {
            let slots = self.has.len();
            let many = |log: &Log| log.barred.len() * 3 >= log.slots.len();
            match self.below(6) {
                0 | 1 => {
                    for _ in 0..=self.below(2 * slots) {
                        *taken += usize::from(self.take());
                        if !self.open.is_empty() {
                            let last = self.open.len() - 1;
                            let which = [0, last][self.below(2)];
                            self.end(which, false);
                        }
                        self.flush();
                    }
                }
                2 => {
                    while self.take() {}
                    let mut refused = self.below(slots);
                    while !self.open.is_empty() {
                        self.end(0, refused > 0 && !many(&self.log));
                        refused = refused.saturating_sub(1);
                        if self.below(3) == 0 {
                            self.take();
                        }
                    }
                    self.flush();
                }
                3 => self.lift(),
                _ => {
                    for _ in 0..=self.below(slots) {
                        *taken += usize::from(self.take());
                        if !self.open.is_empty() && self.below(5) < 3 {
                            let which = self.below(self.open.len());
                            let refused = self.below(2) == 0 && !many(&self.log);
                            self.end(which, refused);
                        }
                        if self.below(2) == 0 {
                            self.flush();
                        }
                        self.log.lift_bars(|_, _| true);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_done_again_is_the_last_of_its_cell_whatever_is_passed_over() {
        let (mut taken, mut barred) = (0, 0);
        for slots in 2..26 {
            for seed in 0..200 {
                let mut ring = Ring::new(slots, seed);
                for _ in 0..40 {
                    ring.go_on(&mut taken);
                }
                barred += ring.log.barred.len();
                while !ring.open.is_empty() {
                    ring.end(0, false);
                }
                ring.flush();
                assert!(ring.take(), "{slots} slots: it stands still");
            }
        }
        assert!(taken > 10_000 && barred > 1_000, "{taken}, {barred}");
    }

    #[test]
    fn a_slot_is_given_up_only_while_another_write_finds_one() {
        for (slots, most) in [(2, 0), (4, 0), (5, 1), (8, 1), (9, 2), (64, 15), (1000, 16)] {
            let mut log = Ring::new(slots, 0).log;
            let mut barred = 0;
            while log.can_bar(barred) {
                log.bar(barred, (MemberIndex(0), FILLING));
                barred += 1;
            }
            assert_eq!(barred, most, "of {slots}");
            // One that was refused before costs no more.
            assert!(barred == 0 || log.can_bar(0));
        }
    }

    #[test]
    fn a_slot_is_asked_for_again_when_its_refuser_does_not_matter() {
        let mut ring = Ring::new(9, 0);
        ring.log.bar(3, (MemberIndex(1), FILLING));
        ring.log.bar(4, (MemberIndex(2), FILLING));
        ring.log.lift_bars(|member, _| member == MemberIndex(2));
        assert!(!ring.log.is_barred(3) && ring.log.is_barred(4));
        assert_eq!(ring.log.barred.len(), 2, "it counts all the same");
        // It is refused by another one.
        ring.log.bar(3, (MemberIndex(2), FILLING));
        assert!(ring.log.is_barred(3) && ring.log.barred.len() == 2);
        ring.lift();
        for count in 0..9 {
            assert_eq!(ring.log.barred.len(), 2, "after {count}");
            assert!(ring.take());
            ring.end(0, false);
            ring.flush();
            ring.lift();
        }
        assert!(ring.log.barred.is_empty(), "each was taken since");
    }
}
