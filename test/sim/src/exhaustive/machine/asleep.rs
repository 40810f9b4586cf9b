//! When the reactor of a machine would sleep: nothing moves, and no drive has anything to answer.
//! Nobody wakes it before its deadline but who asks something, and so nothing moves until then.

use units::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Asleep(Option<Option<Instant>>);

impl Asleep {
    /// It sleeps until then at the most, or does not.
    pub(super) fn fall(&mut self, until: Option<Option<Instant>>) {
        self.0 = until;
    }

    /// Something is asked of it.
    pub(super) fn wake(&mut self) {
        self.0 = None;
    }

    /// So much has moved by now.
    pub(super) fn judge(&mut self, moved: usize, now: Instant) {
        let until = self.0.take().filter(|_| moved > 0);
        let late = until.filter(|until| until.is_none_or(|at| at > now));
        assert!(
            late.is_none(),
            "{moved} steps at {now:?}, asleep until {late:?}"
        );
    }
}
