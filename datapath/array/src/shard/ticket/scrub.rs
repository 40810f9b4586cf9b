//! Tickets of a scrub.
//!
//! ```text
//! cell:  read all → agree: end; else or error: look at its blocks
//! block: read all → agree: end; located: compute → write → read all → agree or not: say so
//!                   not located: say so, and change nothing
//! ```
//! Parity is never made of data here: a block whose chunks do not agree is changed only when it is
//! known which of them are wrong, and then those are, be they data or parity. What is guaranteed of
//! that stands at the head of `base/parity/src/check.rs`.
//!
//! A scrub writes what its stripe holds already, so neither is its region made dirty nor is it
//! logged: a stop between any two of its writes leaves each block wrong as it was, or right.

use block::{Part, Stability, Status};
use memory::{Segment, SegmentList};
use parity::{Decoder, Finding};
use units::limits::GROUP_MEMBERS_MAX;
use units::{RoleSet, StripeIndex};

use super::super::Shard;
use super::{Kind, PlannedBand, Step, TicketOrder};
use crate::buffers::Side;
use crate::io::Io;
use crate::map::Pass;
use crate::plan::{Band, Beyond, StripeState};
use crate::planted::{self, Fault};
use crate::scrub::{ScrubCause, ScrubFinding, ScrubOutcome};

/// What a ticket of a scrub looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::shard) enum Look {
    /// A whole cell.
    #[default]
    Cell,
    /// One block of it, the second time that it is read.
    Block,
    /// The same, and what was wrong is being written.
    Writing,
    /// What was written, as the drives give it back.
    Verify,
}

/// What a ticket knows besides when it belongs to a scrub.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct Looking {
    look: Look,
    /// Roles that it writes anew, and why it does.
    wrong: RoleSet,
    mismatch: bool,
}

impl Shard {
    /// Asks for one block of a cell.
    pub(in crate::shard) fn begin_scrub_block(
        &mut self,
        slot: u32,
        (stripe, cell): (StripeIndex, u32),
        block: u32,
        io: &mut impl Io,
    ) {
        let asked = Band {
            lanes: block..block + 1,
            written: self.geometry().data_roles(),
        };
        let order = TicketOrder {
            kind: Kind::Repair(Pass::Scrub),
            work: 0,
            stripe,
            cell,
            start: 0,
            part: Part::WHOLE,
            offset: 0,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            late: None,
        };
        self.tickets[slot].looking = Looking {
            look: Look::Block,
            ..Looking::default()
        };
        self.begin_ticket(slot, order, &[asked], io);
    }

    /// How many chunks a scrub is about to write that it could read, and how many checks told it
    /// which they are.
    pub(in crate::shard) fn located(&self, slot: u32) -> (usize, usize) {
        let planned = &self.tickets[slot].bands()[0];
        let wrong = self.tickets[slot].looking.wrong.without(planned.decode);
        (wrong.len(), planned.read.len() - self.geometry().data())
    }

    /// Whether the ticket belongs to a scrub.
    #[inline]
    pub(in crate::shard) fn is_scrub(&self, slot: u32) -> bool {
        self.tickets[slot].order.kind == Kind::Repair(Pass::Scrub)
    }

    pub(super) fn plan_scrub_band(
        &mut self,
        slot: u32,
        asked: Band,
        state: &StripeState,
    ) -> Result<PlannedBand, Beyond> {
        let looking = &mut self.tickets[slot].looking;
        if looking.look == Look::Writing {
            // The map has changed before anything was written.
            looking.look = Look::Block;
        }
        if !state.parity_trusted && !planted::is(Fault::ScrubTrustsUntrustedParity) {
            // What is torn there is the resync's.
            return Ok(PlannedBand {
                asked,
                ..PlannedBand::default()
            });
        }
        let geometry = self.geometry();
        let all = geometry.data_roles().union(geometry.parity_roles());
        let read = all.without(state.unreadable);
        if read.len() < geometry.data() {
            return Err(Beyond);
        }
        Ok(PlannedBand {
            asked,
            read,
            decode: state.unreadable.without(state.lost),
            ..PlannedBand::default()
        })
    }

    /// All reads are in.
    pub(super) fn scrub_reads_done(&mut self, slot: u32, io: &mut impl Io) {
        let ticket = &mut self.tickets[slot];
        let errors = std::mem::take(&mut ticket.errors);
        if !ticket.gone.is_empty() {
            // A drive is gone: once its member is out, or back, everything is looked at anew.
            self.release_buffers(slot);
            if self.is_decided_since(slot) {
                self.wake_ticket(slot);
            } else if self.awaits_decision(slot) {
                self.hold.push_ticket(slot);
            } else if self.map.is_broken() {
                self.answer_ticket(slot, Status::Media, io);
                self.end_ticket(slot);
            } else {
                self.wake_ticket(slot);
            }
            return;
        }
        match ticket.looking.look {
            Look::Cell => {
                let read = !self.tickets[slot].bands()[0].read.is_empty();
                self.counters.scrubbed_cells += u64::from(read);
                let suspect = !errors.is_empty() || !self.agrees(slot);
                self.end_scrub(slot, suspect);
            }
            Look::Block if !errors.is_empty() => {
                ticket.media = ticket.media.union(errors);
                self.replan(slot);
            }
            Look::Block => self.judge_block(slot, io),
            Look::Verify => {
                let outcome = if errors.is_empty() && self.agrees(slot) {
                    ScrubOutcome::Repaired
                } else {
                    ScrubOutcome::NotKept
                };
                self.find(slot, outcome, io);
                self.end_scrub(slot, false);
            }
            Look::Writing => unreachable!("ticket {slot} reads what it writes"),
        }
    }

    /// What is to be done about a block, by what all its chunks say.
    fn judge_block(&mut self, slot: u32, io: &mut impl Io) {
        let planned = self.tickets[slot].bands()[0].clone();
        let located = self.compare(slot, Decoder::locate);
        let wrong = match located.unwrap_or(Finding::Consistent) {
            Finding::Consistent => RoleSet::EMPTY,
            Finding::Wrong(_) | Finding::Unlocated if planted::is(Fault::ScrubRecomputesParity) => {
                planned.read.both(self.geometry().parity_roles())
            }
            Finding::Wrong(roles) if planted::is(Fault::ScrubRepairsTheNeighbour) => {
                let others = planned.read.without(roles);
                others.lowest(roles.len())
            }
            Finding::Wrong(roles) => roles,
            Finding::Unlocated if planted::is(Fault::ScrubRepairsWhatItCannotLocate) => {
                planned.read.lowest(1)
            }
            Finding::Unlocated => {
                self.tickets[slot].looking.mismatch = true;
                self.find(slot, ScrubOutcome::NotLocated, io);
                self.end_scrub(slot, false);
                return;
            }
        };
        let repaired = wrong.union(planned.decode);
        if repaired.is_empty() {
            // It was written in between, or what the drive said first was not so.
            self.end_scrub(slot, false);
            return;
        }
        self.tickets[slot].looking = Looking {
            look: Look::Writing,
            wrong: repaired,
            mismatch: !wrong.is_empty(),
        };
        self.decode(slot, 0, planned.read.without(wrong), repaired);
        self.tickets[slot].set_write(0, repaired);
        self.tickets[slot].step = Step::WriteRoom;
        self.seek_room(slot, io);
    }

    /// Whether a ticket whose wait is over looks again: at what it wrote, or, when a member is out
    /// since, at everything anew.
    #[inline]
    pub(super) fn looks_again(&mut self, slot: u32) -> bool {
        self.is_scrub(slot) && self.look_changed(slot)
    }

    #[cold]
    fn look_changed(&mut self, slot: u32) -> bool {
        let ticket = &mut self.tickets[slot];
        let changed = !ticket.failures.is_empty();
        ticket.looking.look = match ticket.looking.look {
            Look::Writing if !changed => Look::Verify,
            Look::Cell if changed => Look::Cell,
            Look::Block | Look::Writing | Look::Verify if changed => Look::Block,
            Look::Cell | Look::Block | Look::Writing | Look::Verify => return false,
        };
        ticket.failures.clear();
        ticket.media = RoleSet::EMPTY;
        ticket.second_try = false;
        true
    }

    /// Begins to look anew, if it is a scrub's: drives that were gone are there again, or out.
    pub(in crate::shard) fn forget_look(&mut self, slot: u32) {
        if !self.is_scrub(slot) {
            return;
        }
        let ticket = &mut self.tickets[slot];
        ticket.looking.look = match ticket.looking.look {
            Look::Cell => Look::Cell,
            Look::Block | Look::Writing | Look::Verify => Look::Block,
        };
        ticket.failures.clear();
        ticket.second_try = false;
    }

    /// The ticket ends without having looked: its stripe cannot be read any more.
    pub(super) fn answer_scrub(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        let TicketOrder { stripe, cell, .. } = self.tickets[slot].order;
        let broken = self.map.is_broken() || self.map.is_torn(stripe);
        let mut verdict = status;
        if !status.is_ok() && !broken {
            self.find(slot, ScrubOutcome::Lost, io);
            verdict = Status::Ok;
        }
        self.scrub_ticket_done((stripe, cell), false, verdict);
    }

    fn end_scrub(&mut self, slot: u32, suspect: bool) {
        let ticket = &mut self.tickets[slot];
        ticket.answered = true;
        let TicketOrder { stripe, cell, .. } = ticket.order;
        self.scrub_ticket_done((stripe, cell), suspect, Status::Ok);
        self.end_ticket(slot);
    }

    fn find(&mut self, slot: u32, outcome: ScrubOutcome, io: &mut impl Io) {
        let ticket = &self.tickets[slot];
        let finding = ScrubFinding {
            stripe: ticket.order.stripe,
            block: ticket.lanes.start,
            wrong: match outcome {
                ScrubOutcome::Repaired | ScrubOutcome::NotKept => ticket.looking.wrong,
                ScrubOutcome::NotLocated => RoleSet::EMPTY,
                ScrubOutcome::Lost => ticket.media,
            },
            cause: if ticket.looking.mismatch {
                ScrubCause::Mismatch
            } else {
                ScrubCause::Unreadable
            },
            outcome,
        };
        self.note_finding(finding, io);
    }

    fn agrees(&mut self, slot: u32) -> bool {
        self.compare(slot, Decoder::is_consistent).unwrap_or(true)
    }

    /// Asks how what was read agrees: k chunks with each other one. `None` when there is none.
    fn compare<T>(
        &mut self,
        slot: u32,
        ask: impl FnOnce(&Decoder, &[Segment], &[Segment]) -> T,
    ) -> Option<T> {
        let planned = &self.tickets[slot].bands()[0];
        let (read, lanes) = (planned.read, planned.asked.lanes.clone());
        let checked = read.without(read.lowest(self.geometry().data()));
        if checked.is_empty() {
            return None;
        }
        let mut sources = [Segment::EMPTY; GROUP_MEMBERS_MAX];
        let mut stored = [Segment::EMPTY; GROUP_MEMBERS_MAX];
        let used = read.without(checked);
        for (source, role) in sources.iter_mut().zip(used) {
            *source = self.part(slot, Side::New, role, &lanes);
        }
        for (chunk, role) in stored.iter_mut().zip(checked) {
            *chunk = self.part(slot, Side::New, role, &lanes);
        }
        let decoder = self.decoders.get(&self.code, read, checked);
        let decoder = decoder.expect("k chunks were read");
        let (sources, stored) = (&sources[..used.len()], &stored[..checked.len()]);
        Some(ask(decoder, sources, stored))
    }
}
