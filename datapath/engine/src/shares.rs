//! What each array of a reactor may have in flight at the drives, and at other reactors. They share
//! one port and one inbox for each other reactor, and an array whose drives hang, or that waits for
//! them, must not take all of it: every other keeps its share free.

use array::Help;
use units::limits::{ARRAYS_MAX, PORT_REQUESTS, REACTORS_MAX};
use units::{ArrayIndex, ReactorIndex};

/// The most member requests that are kept for an array that does not use them: more than the
/// widest ticket asks for at once and its own records need (`Room`). So many are kept for each of
/// as many arrays as there may be.
const SHARE_MAX: usize = 256;
const _: () = assert!(ARRAYS_MAX * SHARE_MAX <= PORT_REQUESTS as usize);
/// The most pieces under way at one other reactor that are kept for an array.
const PIECES_MAX: usize = 64;
/// Reactors that are looked at for one ticket, to see whether they can help.
const LOOKS: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Member requests at the port.
    pub(crate) drives: Share,
    /// By reactor: pieces that it works on.
    pieces: Vec<Share>,
    /// Who may help here.
    pub(crate) helpers: Helpers,
}

impl Shares {
    /// No arrays yet, on a port that takes `drives` requests, and with other reactors each of
    /// which takes so many pieces.
    pub(crate) fn new(drives: usize, pieces: usize) -> Shares {
        let inbox = || Share::new(pieces, PIECES_MAX);
        Shares {
            drives: Share::new(drives, SHARE_MAX),
            pieces: (0..REACTORS_MAX).map(|_| inbox()).collect(),
            helpers: Helpers::default(),
        }
    }

    /// An array comes, or goes; one that goes has nothing in flight.
    pub(crate) fn set(&mut self, array: ArrayIndex, present: bool) {
        self.drives.set(array, present);
        for pieces in &mut self.pieces {
            pieces.set(array, present);
        }
    }

    /// What may be under way at another reactor.
    pub(crate) fn pieces(&mut self, at: ReactorIndex) -> &mut Share {
        &mut self.pieces[at.at()]
    }
}

/// The reactors beside this one, which may help it: on its node, where its buffers lie.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    beside: Vec<ReactorIndex>,
    /// Who is looked at first.
    next: usize,
}

impl Helpers {
    pub(crate) fn new(beside: Vec<ReactorIndex>) -> Helpers {
        Helpers { beside, next: 0 }
    }

    /// Some that may, by turns. Few are looked at: each look may miss the cache.
    pub(crate) fn find(&mut self, may: impl Fn(ReactorIndex) -> bool) -> Help {
        let mut help = Help::NOBODY;
        for _ in 0..self.beside.len().min(LOOKS) {
            let reactor = self.beside[self.next];
            self.next = (self.next + 1) % self.beside.len();
            if may(reactor) && !help.add(reactor) {
                break;
            }
        }
        help
    }
}

/// Something that all arrays of a reactor use, and of which each keeps a share.
#[derive(Debug)]
pub(crate) struct Share {
    /// By array: whether it is on this reactor, and how many it uses.
    arrays: Vec<(bool, usize)>,
    capacity: usize,
    /// The most that is kept for one array.
    most: usize,
    /// Kept for each array, as far as it does not use them itself.
    share: usize,
    /// What is kept for all arrays together and not in use.
    kept: usize,
}

impl Share {
    /// No arrays yet. There are `capacity` in all, of which an array keeps at most so many.
    pub(crate) fn new(capacity: usize, most: usize) -> Share {
        Share {
            arrays: vec![(false, 0); ARRAYS_MAX],
            capacity,
            most,
            share: 0,
            kept: 0,
        }
    }

    /// An array comes, or goes; one that goes has nothing in flight.
    pub(crate) fn set(&mut self, array: ArrayIndex, present: bool) {
        self.arrays[array.at()].0 = present;
        let present = self.arrays.iter().filter(|(present, _)| *present);
        let count = present.clone().count().max(1);
        self.share = self.most.min(self.capacity / count);
        let free = |(_, used): &(bool, usize)| self.share.saturating_sub(*used);
        self.kept = present.map(free).sum();
    }

    /// How many more `array` may have when there is room for `room`.
    #[inline]
    pub(crate) fn room(&self, array: ArrayIndex, room: usize) -> usize {
        let (_, used) = self.arrays[array.at()];
        let own = self.share.saturating_sub(used);
        room.saturating_sub(self.kept - own)
    }

    /// `array` has taken one.
    #[inline]
    pub(crate) fn taken(&mut self, array: ArrayIndex) {
        let (_, used) = &mut self.arrays[array.at()];
        self.kept -= usize::from(*used < self.share);
        *used += 1;
    }

    /// One of `array` is free again.
    #[inline]
    pub(crate) fn answered(&mut self, array: ArrayIndex) {
        let (_, used) = &mut self.arrays[array.at()];
        *used -= 1;
        self.kept += usize::from(*used < self.share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_found_by_turns_and_no_more_than_can_help() {
        let all: Vec<ReactorIndex> = (1..6).map(ReactorIndex).collect();
        let mut helpers = Helpers::new(all);
        let found = |help: Help| help.reactors().iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(found(helpers.find(|_| true)), [1, 2, 3]);
        assert_eq!(found(helpers.find(|_| true)), [4, 5, 1]);
        assert_eq!(found(helpers.find(|reactor| reactor.0 == 1)), [1]);
        assert!(found(helpers.find(|_| false)).is_empty());
        assert!(found(Helpers::default().find(|_| true)).is_empty(), "alone");
    }

    const PORT: usize = 1000;

    /// Submits as much as it may; how much that was.
    fn fill(shares: &mut Share, array: u16, in_flight: &mut usize) -> usize {
        let before = *in_flight;
        while shares.room(ArrayIndex(array), PORT - *in_flight) > 0 {
            shares.taken(ArrayIndex(array));
            *in_flight += 1;
        }
        *in_flight - before
    }

    #[test]
    fn an_array_alone_may_have_all() {
        let (mut shares, mut in_flight) = (Share::new(PORT, SHARE_MAX), 0);
        shares.set(ArrayIndex(3), true);
        assert_eq!(fill(&mut shares, 3, &mut in_flight), PORT);
    }

    #[test]
    fn an_array_that_hangs_leaves_every_other_its_share() {
        let (mut shares, mut in_flight) = (Share::new(PORT, SHARE_MAX), 0);
        for array in [0, 5, 63] {
            shares.set(ArrayIndex(array), true);
        }
        assert_eq!(fill(&mut shares, 5, &mut in_flight), PORT - 2 * SHARE_MAX);
        assert_eq!(fill(&mut shares, 0, &mut in_flight), SHARE_MAX);
        assert_eq!(fill(&mut shares, 63, &mut in_flight), SHARE_MAX);
        assert_eq!(in_flight, PORT);
        for _ in 0..SHARE_MAX {
            shares.answered(ArrayIndex(63));
            in_flight -= 1;
        }
        assert_eq!(fill(&mut shares, 5, &mut in_flight), 0, "it is kept");
        assert_eq!(fill(&mut shares, 63, &mut in_flight), SHARE_MAX);
    }

    #[test]
    fn arrays_come_and_go_while_others_are_busy() {
        let (mut shares, mut in_flight) = (Share::new(PORT, SHARE_MAX), 0);
        shares.set(ArrayIndex(1), true);
        fill(&mut shares, 1, &mut in_flight);
        shares.set(ArrayIndex(2), true);
        assert_eq!(fill(&mut shares, 2, &mut in_flight), 0);
        for _ in 0..SHARE_MAX {
            shares.answered(ArrayIndex(1));
            in_flight -= 1;
        }
        assert_eq!(fill(&mut shares, 1, &mut in_flight), 0);
        assert_eq!(fill(&mut shares, 2, &mut in_flight), SHARE_MAX);
        for _ in 0..SHARE_MAX {
            shares.answered(ArrayIndex(2));
            in_flight -= 1;
        }
        shares.set(ArrayIndex(2), false);
        assert_eq!(fill(&mut shares, 1, &mut in_flight), SHARE_MAX);
        assert_eq!(in_flight, PORT);
    }

    #[test]
    fn many_arrays_have_equal_shares() {
        let (mut shares, mut in_flight) = (Share::new(PORT, SHARE_MAX), 0);
        for array in 0..50 {
            shares.set(ArrayIndex(array), true);
        }
        for array in 0..50 {
            assert_eq!(fill(&mut shares, array, &mut in_flight), PORT / 50);
        }
    }
}
