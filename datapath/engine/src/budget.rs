//! The budget for transfer buffers, of all arrays together.

use std::sync::MutexGuard;

use array::Room;
use units::{ArrayIndex, bytes_u64};

use crate::{Engine, StartError};

/// An array takes one of so many equal shares.
const SHARES: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: Option<u64>,
    reactors: u64,
    /// What arrays have taken.
    taken: Vec<(ArrayIndex, u64)>,
}

impl Budget {
    /// Of so many bytes, or without a limit.
    pub(crate) fn new(limit: Option<u64>, reactors: usize) -> Budget {
        Budget {
            limit,
            reactors: bytes_u64(reactors),
            taken: Vec::new(),
        }
    }

    /// The least that an array takes.
    pub(crate) fn least(&self) -> u64 {
        self.reactors * Room::BUFFER_BYTES_MIN
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> u64 {
        let left = |limit: u64| limit.saturating_sub(self.taken());
        self.limit.map_or(u64::MAX, left)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The room of each of an array's shards: `usual`, or an eighth of the budget, or the least.
    /// The same for all: those that ran together start together, in any order.
    fn share(&self, usual: Room) -> Room {
        let share = self.limit.map_or(u64::MAX, |limit| limit / SHARES);
        usual.within(share / self.reactors)
    }

    /// An array's share; what it lacks when too little is left.
    pub(crate) fn take(&mut self, array: ArrayIndex, usual: Room) -> Result<Room, StartError> {
        self.give_back(array);
        let room = self.share(usual);
        let (least, given) = (room.buffer_bytes() * self.reactors, self.left());
        if given < least {
            return Err(StartError::Memory { given, least });
        }
        self.taken.push((array, least));
        Ok(room)
    }

    /// The array is not served any more.
    pub(crate) fn give_back(&mut self, array: ArrayIndex) {
        self.taken.retain(|(other, _)| *other != array);
    }
}

impl Engine {
    /// The room of an array's shards, until the array is forgotten.
    ///
    /// # Errors
    /// When the budget for buffers has too little left.
    pub fn take_room(&self, array: ArrayIndex) -> Result<Room, StartError> {
        self.budget().take(array, self.room)
    }

    /// The array is not started after all.
    pub fn give_back_room(&self, array: ArrayIndex) {
        self.budget().give_back(array);
    }

    /// Bytes that transfer buffers of all arrays take.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.budget().taken()
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().expect("nothing panics under this lock")
    }
}

#[cfg(test)]
mod tests {
    //! What arrays get, one after another.

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn arrays_take_equal_shares_in_any_order() {
        for (limit, fit) in [(64, 3), (17, 1), (160, 8), (512, 8), (2048, 21)] {
            let mut budget = Budget::new(Some(limit * MIB), 2);
            let mut rooms = Vec::new();
            let mut arrays = (0..).map(ArrayIndex);
            let mut next = || arrays.next().expect("some");
            while let Ok(room) = budget.take(next(), Room::default()) {
                rooms.push(room.buffer_bytes());
            }
            assert_eq!(rooms.len(), fit, "{limit} MiB: {rooms:?}");
            assert!(rooms.iter().all(|bytes| *bytes == rooms[0]));
            assert!(budget.taken() <= limit * MIB);
            // The same array, started anew, takes no second share.
            let again = budget.take(ArrayIndex(0), Room::default());
            assert_eq!(again.expect("its own").buffer_bytes(), rooms[0]);
            budget.give_back(ArrayIndex(0));
            budget.take(next(), Room::default()).expect("room again");
        }
    }

    #[test]
    fn nothing_is_less_where_nobody_set_a_limit() {
        let mut budget = Budget::new(None, 4);
        for array in 0..100 {
            let room = budget.take(ArrayIndex(array), Room::default());
            let room = room.expect("no limit");
            assert_eq!(room.buffer_bytes(), Room::default().buffer_bytes());
        }
    }
}
