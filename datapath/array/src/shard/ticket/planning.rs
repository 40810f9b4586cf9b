//! The plan of a ticket: which bands are written and how, given what is lost now.

use block::Status;
use units::{Role, RoleSet, StripeIndex};

use super::super::Shard;
use super::super::request::PART_BYTES;
use super::{Kind, Payload, PlannedBand, Step, TicketOrder};
use crate::io::Io;
use crate::map::Pass;
use crate::plan::{Band, Beyond, Method, StripeState, plan_read, plan_repair, plan_write};
use crate::planted::{self, Fault};

impl Shard {
    /// The cell whose lanes a ticket must have to itself, counted over all stripes.
    pub(super) fn cell_to_claim(&self, slot: u32, order: &TicketOrder) -> u64 {
        let nobody_elses = u64::MAX - u64::from(slot);
        let part = !order.part.is_whole();
        match order.kind {
            Kind::Write(_) if part && planted::is(Fault::PartWithoutLanes) => nobody_elses,
            Kind::Repair(Pass::Rebuild) if planted::is(Fault::RebuildWithoutLanes) => nobody_elses,
            Kind::Repair(Pass::Scrub) if planted::is(Fault::ScrubWithoutLanes) => nobody_elses,
            Kind::Read { .. } if planted::is(Fault::ReadWithoutLanes) => nobody_elses,
            Kind::Read { .. } if order.late.is_some() && planted::is(Fault::HedgeWithoutLanes) => {
                nobody_elses
            }
            Kind::Write(_)
            | Kind::Clear
            | Kind::Read { .. }
            | Kind::Repair(_)
            | Kind::Forfeit(_) => self.cell_of(order.stripe, order.cell),
        }
    }

    /// A cell, counted over all stripes.
    #[inline]
    pub(in crate::shard) fn cell_of(&self, stripe: StripeIndex, cell: u32) -> u64 {
        stripe.0 * self.stripe_cells + u64::from(cell)
    }

    #[inline]
    pub(in crate::shard) fn stripe_state(&self, slot: u32) -> StripeState {
        let ticket = &self.tickets[slot];
        let stripe = ticket.order.stripe;
        let filled = self.background.is_filled(stripe, ticket.order.cell);
        let lost = if self.optimal {
            RoleSet::EMPTY
        } else {
            self.map.lost(stripe, filled)
        };
        let trusted = self.optimal
            || self.map.parity_trusted(stripe, filled)
            || planted::is(Fault::DeltaAgainstUntrustedParity);
        let unreadable = ticket.media.union(ticket.late.without(lost));
        let unreadable = if ticket.avoids {
            unreadable.union(self.slow_roles(stripe, lost.union(unreadable)))
        } else {
            unreadable
        };
        StripeState::new(lost, unreadable.without(lost), trusted)
    }

    #[inline]
    pub(super) fn plan_ticket(&mut self, slot: u32) -> Result<(), Beyond> {
        if self.is_plain_write(slot) {
            for band in 0..self.tickets[slot].band_count {
                let asked = self.tickets[slot].bands[band].asked.clone();
                let planned = self.plan_write_band(asked, &StripeState::OPTIMAL)?;
                self.tickets[slot].bands[band] = planned;
            }
        } else {
            self.plan_by_state(slot)?;
        }
        let (serial, barrier) = (self.map.serial, self.map.barrier);
        let ticket = &mut self.tickets[slot];
        ticket.serial = serial;
        ticket.barrier = barrier;
        if planted::is(Fault::PlanWithoutBarrier) {
            ticket.barrier = 0;
        }
        Ok(())
    }

    /// Whether a ticket that cannot be planned can be when it asks slow members, too, or tries once
    /// more what returned errors.
    #[cold]
    pub(super) fn plans_with_less(&mut self, slot: u32) -> bool {
        if self.tickets[slot].stops_avoiding() && self.plan_ticket(slot).is_ok() {
            return true;
        }
        let ticket = &self.tickets[slot];
        if ticket.media.is_empty() || ticket.second_try {
            return false;
        }
        self.forget_errors(slot);
        self.plan_ticket(slot).is_ok()
    }

    /// What becomes of a ticket that cannot be planned as things are.
    #[cold]
    pub(super) fn goes_without_plan(&mut self, slot: u32, io: &mut impl Io) {
        if self.is_decided_since(slot) {
            self.wake_ticket(slot);
            return;
        }
        let is_open = self.is_open(self.tickets[slot].order.stripe);
        if is_open || self.awaits_decision(slot) {
            self.hold.push_ticket(slot);
            return;
        }
        if self.must_be_carried_out(slot) {
            self.wait_to_be_carried_out(slot, io);
            return;
        }
        if self.gives_up_blocks(slot, io) || self.takes_fewer_rows(slot) {
            return;
        }
        self.answer_ticket(slot, Status::Media, io);
        self.end_ticket(slot);
    }

    /// Whether a ticket is what nearly all are: a write of whole blocks where nothing is lost, slow
    /// or in doubt. Its plan is that of an optimal stripe, and nothing else need be asked.
    #[inline]
    fn is_plain_write(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let whole = matches!(ticket.order.kind, Kind::Write(_)) && ticket.order.part.is_whole();
        let sound = ticket.media.union(ticket.late).is_empty() && !ticket.avoids;
        let optimal = self.optimal && !self.any_hopeless && !self.losses.any;
        let writable = !self.map.read_only && !self.map.given_up;
        let is_plain = whole && sound && optimal && writable && !self.is_region_lost(slot);
        is_plain && !planted::is(Fault::PoisonedTicket)
    }

    fn plan_by_state(&mut self, slot: u32) -> Result<(), Beyond> {
        if !self.tickets[slot].late.is_empty() {
            self.judge_late(slot, self.tickets[slot].order.stripe);
        }
        self.reconsider(slot);
        self.clear_by_writing(slot);
        let state = self.stripe_state(slot);
        let kind = self.tickets[slot].order.kind;
        if planted::is(Fault::PoisonedTicket) && matches!(kind, Kind::Write(_)) {
            let stripe = self.tickets[slot].order.stripe.0;
            assert_ne!(stripe, planted::POISON_STRIPE, "a planted panic");
        }
        let changes = !matches!(kind, Kind::Read { .. });
        let stripe = self.tickets[slot].order.stripe;
        let torn = self.any_hopeless && self.map.is_torn(stripe) || self.map.is_given_up(stripe);
        let torn = torn || self.is_open(stripe);
        if changes && (self.map.read_only || torn || self.is_region_lost(slot)) {
            return Err(Beyond);
        }
        if self.losses.any && self.needs_lost(slot) {
            return Err(Beyond);
        }
        for band in 0..self.tickets[slot].band_count {
            let asked = self.tickets[slot].bands[band].asked.clone();
            let planned = match kind {
                Kind::Write(_) if !self.tickets[slot].order.part.is_whole() => {
                    self.plan_part_band(asked, &state)?
                }
                Kind::Write(_) if self.losses.any && self.asks_for_lost(slot) => {
                    self.plan_heal(asked, &state)?
                }
                Kind::Write(_) => self.plan_write_band(asked, &state)?,
                Kind::Clear => self.plan_clear_band(asked, &state)?,
                Kind::Forfeit(_) => self.plan_forfeit_band(slot, asked, &state)?,
                Kind::Read { tried } => self.plan_read_band(slot, asked, tried)?,
                Kind::Repair(Pass::Scrub) => self.plan_scrub_band(slot, asked, &state)?,
                Kind::Repair(pass) => self.plan_repair_band(slot, asked, pass, &state)?,
            };
            self.tickets[slot].bands[band] = planned;
        }
        Ok(())
    }

    /// Zeroes without buffers are for where a member that refuses them can be left out. Of one that
    /// is needed just the block is refused, and its row follows (`refused`): that takes buffers.
    fn clear_by_writing(&mut self, slot: u32) {
        let TicketOrder { kind, stripe, .. } = self.tickets[slot].order;
        if kind == Kind::Clear && self.is_at_its_limit(stripe) {
            self.tickets[slot].order.kind = Kind::Write(Payload::Zeroes);
        }
    }

    /// Whether a ticket needs what a lost block held.
    fn needs_lost(&self, slot: u32) -> bool {
        let order = &self.tickets[slot].order;
        let needs = match order.kind {
            Kind::Read { .. } => true,
            Kind::Write(_) => !order.part.is_whole(),
            Kind::Clear | Kind::Repair(_) | Kind::Forfeit(_) => false,
        };
        needs && self.asks_for_lost(slot)
    }

    #[inline]
    pub(super) fn plan_write_band(
        &self,
        asked: Band,
        state: &StripeState,
    ) -> Result<PlannedBand, Beyond> {
        let (k, m) = (self.geometry().data(), self.geometry().parity());
        let plan = plan_write(k, m, asked.written, state)?;
        let old = plan.read.both(asked.written);
        Ok(PlannedBand {
            asked,
            method: Some(plan.method),
            read: plan.read,
            old,
            decode: plan.decode,
            write: plan.write,
            told: RoleSet::EMPTY,
        })
    }

    /// Plans the write of what is lost. What a drive says of it is not relied on, if that may be: a
    /// bad block that took no zeroes may be read again. One that can be read again by now may have
    /// been refused before, and what it was to hold be in the log: the next engine would write
    /// that, and the row would say something else. So the log is told what it holds, too.
    fn plan_heal(&self, asked: Band, state: &StripeState) -> Result<PlannedBand, Beyond> {
        let written = asked.written.without(state.lost);
        let unread = StripeState {
            unreadable: state.unreadable.union(written),
            ..*state
        };
        let plan = self.plan_write_band(asked.clone(), &unread);
        let mut plan = plan.or_else(|Beyond| self.plan_write_band(asked, state))?;
        plan.told = plan
            .read
            .without(plan.old)
            .both(self.geometry().data_roles());
        Ok(plan)
    }

    /// Plans the write of a part of a block: all that is there of the stripe is read or
    /// reconstructed first, whatever is cheaper for whole blocks. Guests that know the size of
    /// physical blocks write few parts.
    fn plan_part_band(&self, asked: Band, state: &StripeState) -> Result<PlannedBand, Beyond> {
        let (k, m) = (self.geometry().data(), self.geometry().parity());
        if state.lost.exceeds(m) {
            return Err(Beyond);
        }
        let parity = self.geometry().parity_roles();
        let write = asked.written.union(parity).without(state.lost);
        let (method, read, decode) = if k == 1 {
            let copies = self.geometry().data_roles().union(parity);
            let copy = copies.without(state.unreadable).first().ok_or(Beyond)?;
            (Method::Full, RoleSet::one(copy), RoleSet::EMPTY)
        } else {
            let plan = plan_read(k, m, self.geometry().data_roles(), state)?;
            if plan.decode.meets(state.untold(k)) {
                return Err(Beyond);
            }
            (Method::ReconstructFirst, plan.read, plan.decode)
        };
        Ok(PlannedBand {
            asked,
            method: Some(method),
            read,
            old: RoleSet::EMPTY,
            decode,
            write,
            told: RoleSet::EMPTY,
        })
    }

    fn plan_clear_band(&self, asked: Band, state: &StripeState) -> Result<PlannedBand, Beyond> {
        if state.lost.exceeds(self.geometry().parity()) {
            return Err(Beyond);
        }
        let all = self
            .geometry()
            .data_roles()
            .union(self.geometry().parity_roles());
        Ok(PlannedBand {
            asked,
            write: all.without(state.lost),
            ..Default::default()
        })
    }

    /// Plans the read of the one role that is asked for. For mirrors that is the copy which the
    /// asker tried: into memory of ours it may be read, and only what fails here, too, is the
    /// drive's doing.
    fn plan_read_band(
        &self,
        slot: u32,
        asked: Band,
        tried: Option<Role>,
    ) -> Result<PlannedBand, Beyond> {
        let (k, m) = (self.geometry().data(), self.geometry().parity());
        let stripe = self.tickets[slot].order.stripe;
        let role = asked.written.first().expect("a band has roles");
        let readable = self.direct_role(stripe, role).unwrap_or(role);
        let role = if k == 1 { readable } else { role };
        let wanted = RoleSet::one(tried.unwrap_or(role));
        let state = self.stripe_state(slot);
        let plan = plan_read(k, m, wanted, &state)?;
        if !plan.decode.is_empty() && (self.is_open(stripe) || self.is_torn(slot)) {
            return Err(Beyond);
        }
        // One that is only slow is judged elsewhere (`late`).
        let untold = state.untold(k).both(self.tickets[slot].media);
        if plan.decode.meets(untold) {
            return Err(Beyond);
        }
        let met = self.met_besides(slot, &state);
        let plan = match plan_read(k, m, wanted.union(met), &state) {
            Ok(more) if !plan.decode.is_empty() => more,
            Ok(_) | Err(Beyond) => plan,
        };
        let write = if self.map.read_only || planted::is(Fault::MediaErrorStays) {
            RoleSet::EMPTY
        } else {
            plan.decode.both(met).without(state.lost)
        };
        let asked = Band {
            lanes: asked.lanes,
            written: wanted,
        };
        Ok(PlannedBand {
            asked,
            read: plan.read,
            decode: plan.decode,
            write,
            ..Default::default()
        })
    }

    /// Roles that the ticket could not read, asked for or met on the way: what they hold is
    /// computed from what it reads anyway, and written there again. Nobody else may ask for them
    /// for long. Not of long reads: most of their blocks are not bad, and must not become what
    /// others say. Copies are made alike also where they are in doubt: who has read one of them is
    /// not to read another one later.
    fn met_besides(&self, slot: u32, state: &StripeState) -> RoleSet {
        let ticket = &self.tickets[slot];
        let in_doubt = !state.parity_trusted && self.geometry().data() > 1;
        let stays = in_doubt || planted::is(Fault::MediaErrorStays);
        if ticket.media.is_empty() || self.is_long(slot) || stays {
            return RoleSet::EMPTY;
        }
        ticket.media.without(ticket.gone).without(state.lost)
    }

    /// Whether it covers more than what is written again because of one bad block.
    pub(super) fn is_long(&self, slot: u32) -> bool {
        let lanes = &self.tickets[slot].lanes;
        lanes.end - lanes.start > self.short_lanes()
    }

    /// Lanes of what is written again because of one bad block.
    pub(super) fn short_lanes(&self) -> u32 {
        u32::try_from(PART_BYTES >> self.geometry().block_size().shift()).expect("few")
    }

    fn plan_repair_band(
        &self,
        slot: u32,
        asked: Band,
        pass: Pass,
        state: &StripeState,
    ) -> Result<PlannedBand, Beyond> {
        let (k, m) = (self.geometry().data(), self.geometry().parity());
        let stripe = self.tickets[slot].order.stripe;
        let targets = match pass {
            Pass::Rebuild => self.map.to_fill(stripe),
            Pass::Resync => self.geometry().parity_roles().without(state.lost),
            Pass::Scrub => unreachable!("planned elsewhere"),
        };
        if targets.is_empty() {
            return Ok(PlannedBand {
                asked,
                ..Default::default()
            });
        }
        if pass == Pass::Resync && !state.untold(k).is_empty() {
            return Err(Beyond);
        }
        let targets = targets.union(self.met_besides(slot, state));
        let plan = plan_repair(k, m, targets, state)?;
        // A resync compares before it writes: most parity is right, and drives wear.
        let old = match pass {
            Pass::Rebuild | Pass::Scrub => RoleSet::EMPTY,
            Pass::Resync => plan.decode.without(state.unreadable),
        };
        let (read, decode, write) = (plan.read.union(old), plan.decode, plan.decode);
        Ok(PlannedBand {
            asked,
            method: None,
            read,
            old,
            decode,
            write,
            told: RoleSet::EMPTY,
        })
    }

    /// Asks for the ticket's region. One that was never written holds nothing that could be read:
    /// then the ticket begins anew once it is.
    #[cold]
    pub(super) fn awaits_first_write(&mut self, slot: u32, io: &mut impl Io) -> bool {
        self.want_region(slot, io);
        let is_unwritten = |region| self.shared.regions.is_unwritten(region);
        let waits = self.tickets[slot].region.is_some_and(is_unwritten);
        if !waits || planted::is(Fault::OldContentOfUnwritten) {
            return false;
        }
        self.tickets[slot].step = Step::Planning;
        self.region_waiters.push(slot);
        true
    }

    /// The ticket's region may be written.
    pub(in crate::shard) fn go_on_in_region(&mut self, slot: u32, io: &mut impl Io) {
        if self.tickets[slot].step == Step::Planning {
            self.replan(slot);
        } else {
            self.seek_room(slot, io);
        }
    }
}
