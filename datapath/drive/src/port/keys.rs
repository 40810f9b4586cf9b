//! What the kernel carries for us from an operation to its answer.

/// Whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Of the task in this slot.
    Task(u32),
    /// Of the watch at this place.
    Watch(u32),
    /// That the ring of commands has answers.
    Commands,
    /// Nobody's.
    Ignored,
}

const KIND_SHIFT: u32 = 32;

impl Key {
    pub(super) fn encode(self) -> u64 {
        match self {
            Key::Ignored => 0,
            Key::Task(slot) => 1 << KIND_SHIFT | u64::from(slot),
            Key::Watch(place) => 2 << KIND_SHIFT | u64::from(place),
            Key::Commands => 3 << KIND_SHIFT,
        }
    }

    /// # Panics
    /// When the number is none of ours.
    pub(super) fn decode(key: u64) -> Key {
        let low = u32::try_from(key & u64::from(u32::MAX)).expect("masked");
        match key >> KIND_SHIFT {
            0 => Key::Ignored,
            1 => Key::Task(low),
            2 => Key::Watch(low),
            3 => Key::Commands,
            kind => panic!("the kernel gave back a key of kind {kind}"),
        }
    }
}

/// A position as a number that fits a key.
pub(super) fn place(position: usize) -> u32 {
    u32::try_from(position).expect("slots and watches are far below 2^32")
}

/// The position again.
pub(super) fn at(place: u32) -> usize {
    usize::try_from(place).expect("a u32 fits usize")
}
