//! What is asked of a ticket, and how it moves from step to step.

use units::RoleSet;

use super::{Kind, Step, Ticket};
use crate::planted::{self, Fault};

impl Ticket {
    /// Whether its writes are under way, or await what decides on them.
    pub(in crate::shard) fn is_writing(&self) -> bool {
        matches!(self.step, Step::Writing | Step::Barrier)
    }

    /// Whether it was planned by a map of this serial or a later one, or has not begun to write.
    pub(in crate::shard) fn is_planned_since(&self, serial: u64) -> bool {
        !self.is_writing() || self.serial >= serial
    }

    /// Roles that it changes.
    pub(in crate::shard) fn write_roles(&self) -> RoleSet {
        self.roles(|band| band.write)
    }

    /// Its pieces are on their way to a slot of the log.
    pub(in crate::shard) fn begin_log(&mut self, slot: u32, pieces: usize) {
        self.step = Step::Logging;
        self.logged = !planted::is(Fault::GivenUpLogForgotten);
        self.computed = matches!(self.order.kind, Kind::Write(_));
        self.log_slot = Some(slot);
        self.log_failed = false;
        self.pending = u32::try_from(pieces).expect("at most 64 roles");
    }

    /// One piece is done; when it was the last, whether all went well.
    pub(in crate::shard) fn piece_logged(&mut self, well: bool) -> Option<bool> {
        self.log_failed |= !well;
        self.pending -= 1;
        (self.pending == 0).then_some(!self.log_failed)
    }

    /// Whether its memory is the guest's again.
    pub(in crate::shard) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether it was given up and is not carried out: it ends at its next step.
    pub(in crate::shard) fn is_over(&self) -> bool {
        self.given_up && !self.keeps
    }

    /// Whether it was answered, and is not carried out all the same.
    pub(in crate::shard) fn is_dropped(&self) -> bool {
        self.answered && !self.keeps
    }

    /// Whether what it asked of drives is not answered.
    pub(in crate::shard) fn is_at_drives(&self) -> bool {
        let asks = matches!(self.step, Step::Reading | Step::Logging | Step::Writing);
        asks && self.pending > 0
    }

    /// Whether what it reads now is all that is left to try.
    pub(in crate::shard) fn is_second_try(&self) -> bool {
        self.second_try
    }

    /// Whether all is written.
    pub(in crate::shard) fn is_at_barrier(&self) -> bool {
        self.step == Step::Barrier
    }

    /// What returned an error is read again, for the last time.
    pub(in crate::shard) fn forget_errors(&mut self) {
        self.media = RoleSet::EMPTY;
        self.second_try = true;
    }

    /// It may write in place.
    pub(in crate::shard) fn go_write(&mut self) {
        self.step = Step::WriteRoom;
    }

    pub(in crate::shard) fn set_write(&mut self, band: usize, write: RoleSet) {
        self.bands[band].write = write;
    }
}
