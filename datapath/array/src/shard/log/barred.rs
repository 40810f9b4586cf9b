//! Slots that are passed over: a block there is refused by a member that the array cannot do
//! without, and whose drive takes other writes. What was to be logged in such a slot was not begun,
//! and is logged in the next one.
//!
//! With n slots and a window of w, a slot of number p is taken again by a number q ≥ p + n − b, if
//! b slots have been passed over, and up to b numbers before q may have left no piece that is
//! durable. So that what is done again after a stop is still the last of its cell (docs/on-disk.md,
//! section 9), q waits until all up to its n − w − 2b-th predecessor have ended and were flushed.

use units::MemberIndex;

use super::super::Shard;
use super::{Log, Use};
use crate::io::{Event, Io};

/// A slot that was refused at some time. It counts from then on: one that is asked for again has
/// been passed over in this round all the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barred {
    slot: usize,
    /// By which member, and its filling; nobody that matters any more.
    by: Option<(MemberIndex, u32)>,
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
        self.room_beside(self.barred.len() + usize::from(is_new)) > 0
    }

    /// Passes a slot over that a member refuses.
    fn bar(&mut self, slot: u32, by: (MemberIndex, u32)) {
        let slot = crate::slots::at(slot);
        let by = Some(by);
        match self.barred.iter_mut().find(|barred| barred.slot == slot) {
            Some(barred) => barred.by = by,
            None => self.barred.push(Barred { slot, by }),
        }
    }

    /// Slots are asked for again whose refuser does not matter any more.
    pub(super) fn lift_bars(&mut self, matters: impl Fn(MemberIndex, u32) -> bool) {
        for barred in &mut self.barred {
            barred.by = barred
                .by
                .filter(|&(member, filling)| matters(member, filling));
        }
    }

    pub(in crate::shard) fn is_barred(&self, slot: usize) -> bool {
        let is_it = |barred: &Barred| barred.slot == slot && barred.by.is_some();
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
    use super::super::Slot;
    use super::*;
    use crate::format::Layout;
    use crate::log::LogSpace;
    use crate::shard::tests::Shape;
    use units::BlockSize;

    const FILLING: u32 = 1;

    /// What drives have of a number that was given out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Logged {
        /// Perhaps a part.
        Open,
        /// All of it; durable if so.
        Whole(bool),
        /// Nothing that anybody could find.
        Never,
    }

    /// A ring of slots as the drives have it. Numbers count from 0 here.
    struct Ring {
        log: Log,
        logged: Vec<Logged>,
        /// By slot: the number that it has.
        has: Vec<Option<usize>>,
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
                logged: Vec::new(),
                has: vec![None; slots],
                open: Vec::new(),
                chance: seed,
            }
        }

        fn below(&mut self, bound: usize) -> usize {
            let mixed = self.chance.wrapping_mul(0x5851_F42D_4C95_7F2D);
            self.chance = mixed.wrapping_add(0x1405_7B7E_F767_814F);
            usize::try_from(self.chance >> 33).expect("31 bits") % bound
        }

        /// The next write takes a slot, if it may; nothing of it is written yet.
        fn take(&mut self) -> bool {
            let Some(slot) = self.log.take(0, 1) else {
                return false;
            };
            let number = self.logged.len();
            self.logged.push(Logged::Open);
            self.check(number, crate::slots::at(slot));
            self.has[crate::slots::at(slot)] = Some(number);
            self.open.push((slot, number));
            true
        }

        /// That what a start does again is the last of its cell, if all is of one cell and the
        /// new pieces are torn.
        fn check(&self, number: usize, slot: usize) {
            let window = self.log.window();
            for &(_, open) in &self.open {
                assert!(open + window > number, "{open} is under way at {number}");
            }
            let newest = |durable: bool| {
                let mut logged = self.logged.iter();
                logged.rposition(|&it| it == Logged::Whole(true) || !durable)
            };
            let Some(newest) = newest(true) else {
                return;
            };
            let torn = self.has[slot].filter(|&had| self.logged[had] != Logged::Never);
            let numbers = self.has.iter().flatten();
            for &older in numbers.filter(|&&number| torn.is_some_and(|torn| number < torn)) {
                let counts = older + window > newest && self.logged[older] != Logged::Never;
                assert!(!counts, "{older} is done again, {torn:?} is lost");
            }
        }

        /// One of those under way ends, as `refused` says.
        fn end(&mut self, refused: bool) {
            if self.open.is_empty() {
                return;
            }
            let which = self.below(self.open.len());
            let (slot, number) = self.open.swap_remove(which);
            self.logged[number] = Logged::Whole(false);
            if refused && self.log.can_bar(slot) {
                self.logged[number] = Logged::Never;
                self.log.bar(slot, (MemberIndex(0), FILLING));
            }
            self.log.end(slot);
        }

        fn flush(&mut self) {
            for slot in &mut self.log.slots {
                if slot.state == Use::Ended {
                    slot.state = Use::Free;
                }
            }
            for logged in &mut self.logged {
                if *logged == Logged::Whole(false) {
                    *logged = Logged::Whole(true);
                }
            }
        }
    }

    #[test]
    fn what_is_done_again_is_the_last_of_its_cell_whatever_is_passed_over() {
        let (mut taken, mut barred) = (0, 0);
        for slots in 2..24 {
            for seed in 0..60 {
                let mut ring = Ring::new(slots, seed);
                for _ in 0..20 * slots {
                    match ring.below(12) {
                        0..5 => taken += usize::from(ring.take()),
                        5..8 => ring.end(false),
                        8 => ring.end(ring.log.barred.len() * 4 < slots),
                        9 | 10 => ring.flush(),
                        _ if ring.below(8) > 0 => {}
                        _ => ring.log.lift_bars(|_, _| false),
                    }
                }
                barred += ring.log.barred.len();
                while !ring.open.is_empty() {
                    ring.end(false);
                }
                ring.flush();
                assert!(ring.take(), "{slots} slots: it stands still");
            }
        }
        assert!(taken > 10_000 && barred > 1_000, "{taken}, {barred}");
    }

    #[test]
    fn a_slot_is_given_up_only_while_another_write_finds_one() {
        for (slots, most) in [(2, 0), (4, 0), (5, 1), (8, 1), (9, 2), (64, 15)] {
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
        let mut log = Ring::new(9, 0).log;
        log.bar(3, (MemberIndex(1), FILLING));
        log.bar(4, (MemberIndex(2), FILLING));
        log.lift_bars(|member, _| member == MemberIndex(2));
        assert!(!log.is_barred(3) && log.is_barred(4));
        assert_eq!(log.barred.len(), 2, "it counts all the same");
        // It is refused by another one.
        log.bar(3, (MemberIndex(2), FILLING));
        assert!(log.is_barred(3) && log.barred.len() == 2);
    }
}
