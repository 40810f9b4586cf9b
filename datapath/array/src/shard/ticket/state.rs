//! What is asked of a ticket, and how it moves from step to step.

use block::{Part, Stability};
use memory::SegmentList;
use units::{RoleSet, StripeIndex};

use super::{Kind, Looking, PlannedBand, Step, Ticket, TicketOrder};
use crate::buffers::TicketBuffers;
use crate::planted::{self, Fault};

impl Ticket {
    /// Whether its writes are under way, or await what decides on them.
    pub(in crate::shard) fn is_writing(&self) -> bool {
        // Between its writes, where a drive has refused a block, the row is torn.
        matches!(self.step, Step::Writing | Step::Barrier) || self.refusals.is_some()
    }

    /// Whether it was planned by a map of this serial or a later one, or has not begun to write.
    pub(in crate::shard) fn is_planned_since(&self, serial: u64) -> bool {
        let refusals = self.refusals.as_ref();
        let begun = refusals.map_or(self.serial, |it| it.begun().min(self.serial));
        !self.is_writing() || begun >= serial
    }

    /// Roles that it changes.
    #[inline]
    pub(in crate::shard) fn write_roles(&self) -> RoleSet {
        self.roles(|band| band.write)
    }

    /// Its pieces are on their way to a slot of the log.
    pub(in crate::shard) fn begin_log(&mut self, slot: u32, pieces: usize) {
        self.step = Step::Logging;
        self.logged = !planted::is(Fault::GivenUpLogForgotten);
        self.computed = matches!(self.order.kind, Kind::Write(_) | Kind::Forfeit(_));
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

    /// Whether it was begun before, and may have more to do than to be planned.
    #[inline]
    pub(super) fn has_a_past(&self) -> bool {
        self.given_up | self.computed | self.refusals.is_some()
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
        let asks = match self.step {
            Step::Reading | Step::Logging | Step::Writing | Step::Asking | Step::Checking => true,
            Step::Claiming
            | Step::Ready
            | Step::Planning
            | Step::Buffers
            | Step::ReadRoom
            | Step::Helped
            | Step::LogRoom
            | Step::WriteRoom
            | Step::AskRoom
            | Step::CheckRoom
            | Step::Barrier => false,
        };
        asks && self.pending > 0
    }

    /// Whether what it reads now is all that is left to try.
    pub(in crate::shard) fn is_second_try(&self) -> bool {
        self.second_try
    }

    /// Whether all is written.
    pub(in crate::shard) fn is_all_written(&self) -> bool {
        matches!(self.step, Step::Barrier | Step::CheckRoom | Step::Checking)
    }

    /// Whether what it reads now was bad and is written again.
    pub(super) fn is_checking(&self) -> bool {
        self.step == Step::Checking
    }

    /// What returned an error is read again, for the last time.
    pub(in crate::shard) fn forget_errors(&mut self) {
        self.forget_errors_but(RoleSet::EMPTY);
    }

    /// The same, but for these roles.
    pub(super) fn forget_errors_but(&mut self, roles: RoleSet) {
        self.media = self.media.both(roles);
        self.second_try = true;
    }

    /// Roles that it logs.
    pub(in crate::shard) fn logged_roles(&self) -> RoleSet {
        self.roles(PlannedBand::logged)
    }

    /// Its bytes are computed, by others as well.
    pub(in crate::shard) fn lend(&mut self) {
        self.copy_due = false;
        self.step = Step::Helped;
    }

    /// It may write in place.
    pub(in crate::shard) fn go_write(&mut self) {
        self.step = Step::WriteRoom;
    }

    pub(in crate::shard) fn set_write(&mut self, band: usize, write: RoleSet) {
        self.bands[band].write = write;
    }
}

impl Default for Ticket {
    fn default() -> Ticket {
        Ticket {
            order: TicketOrder {
                kind: Kind::Clear,
                work: 0,
                stripe: StripeIndex(0),
                cell: 0,
                start: 0,
                part: Part::WHOLE,
                offset: 0,
                segments: SegmentList::EMPTY,
                stability: Stability::MayChange,
                late: None,
            },
            lanes: 0..0,
            claimed: 0,
            asked: None,
            bands: Default::default(),
            band_count: 0,
            apart: None,
            joined: None,
            leader: None,
            delayed: None,
            promoted: false,
            step: Step::Claiming,
            region: None,
            serial: 0,
            barrier: 0,
            media: RoleSet::EMPTY,
            errors: RoleSet::EMPTY,
            late: RoleSet::EMPTY,
            second_try: false,
            gone: RoleSet::EMPTY,
            gone_serial: 0,
            pending: 0,
            refusals: None,
            answered: false,
            given_up: false,
            attempts: 0,
            logged: false,
            computed: false,
            keeps: false,
            kept: None,
            failures: Vec::new(),
            looking: Looking::default(),
            log_slot: None,
            log_failed: false,
            log_headers: Vec::new(),
            buffers: TicketBuffers::default(),
            grave: None,
            avoids: false,
            is_begun: false,
            copy_due: false,
            borrows: false,
        }
    }
}
