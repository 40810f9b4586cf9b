//! For whom a thread works at the moment, so that whoever looks at a crash can tell whose request
//! brought it about. A thread tells only itself: one plain store, no atomics, no other thread.

use std::cell::Cell;

/// For whom a thread works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// For nobody in particular.
    #[default]
    Nobody,
    /// For the guest of the export with this uuid.
    Export([u8; 16]),
    /// For the array with this uuid, and nobody knows whose request it is.
    Array([u8; 16]),
}

thread_local! {
    static DUTY: Cell<Duty> = const { Cell::new(Duty::Nobody) };
}

impl Duty {
    /// Says that this thread works for `self` from now on.
    #[inline(always)]
    pub fn begin(self) {
        DUTY.set(self);
    }

    /// For whom this thread works.
    #[must_use]
    pub fn now() -> Duty {
        DUTY.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_its_own_duty_and_no_others() {
        assert_eq!(Duty::now(), Duty::Nobody);
        Duty::Export([1; 16]).begin();
        let other = std::thread::Builder::new().spawn(|| {
            let before = Duty::now();
            Duty::Array([2; 16]).begin();
            (before, Duty::now())
        });
        let other = other.expect("a thread").join().expect("no panic");
        assert_eq!(other, (Duty::Nobody, Duty::Array([2; 16])));
        assert_eq!(Duty::now(), Duty::Export([1; 16]));
    }
}
