//! The bytes of a ticket: payload in, lost content and parity out. No decision is taken here; the
//! one exception is that a resync drops the writes of parity that is right already.

use std::ops::Range;

use memory::Segment;
use parity::Change;
use units::{Role, RoleSet, bytes_usize};

use super::Shard;
use super::ticket::{Kind, Payload, is_aligned};
use crate::buffers::{Buffers, Side, TicketBuffers};
use crate::lent::Rows;
use crate::map::Pass;
use crate::plan::{Band, Method};
use crate::planted::{self, Fault};

/// Parity chunks that are changed at once. Few: the list is made anew for each chunk.
const ROWS: usize = 4;
/// The most roles of one stripe.
const ROLES: usize = units::limits::GROUP_MEMBERS_MAX;

/// Some lanes of the buffers of a ticket.
struct Parts<'a> {
    buffers: &'a Buffers,
    ticket: &'a TicketBuffers,
    offset: usize,
    length: usize,
}

impl Parts<'_> {
    #[inline(always)]
    fn of(&self, side: Side, role: Role) -> Segment {
        let whole = self.buffers.segment(self.ticket, side, role);
        whole.part(self.offset, self.length)
    }
}

impl Shard {
    /// The memory of `lanes` of a role.
    #[inline]
    pub(super) fn part(&self, slot: u32, side: Side, role: Role, lanes: &Range<u32>) -> Segment {
        self.parts(slot, lanes).of(side, role)
    }

    /// Where `lanes` are in a ticket's buffers: the first byte, and how many.
    #[inline]
    pub(super) fn part_bytes(&self, slot: u32, lanes: &Range<u32>) -> (usize, usize) {
        let first = self.tickets[slot].lanes.start;
        let bytes = |lanes: u32| bytes_usize(self.bytes(lanes));
        (bytes(lanes.start - first), bytes(lanes.end - lanes.start))
    }

    /// The memory of `lanes`, role by role.
    #[inline]
    fn parts(&self, slot: u32, lanes: &Range<u32>) -> Parts<'_> {
        let (offset, length) = self.part_bytes(slot, lanes);
        Parts {
            buffers: &self.buffers,
            ticket: &self.tickets[slot].buffers,
            offset,
            length,
        }
    }

    /// Copies what the guest wants written, or leaves that to `apply_deltas` or `generate`. Each
    /// byte of its memory is looked at but once, so that parity is computed from the very bytes
    /// that the drives get.
    #[inline(always)]
    pub(super) fn fill_payload(&mut self, slot: u32) {
        let copies_late = self.copies_late(slot);
        self.tickets[slot].copy_due = copies_late;
        if copies_late || self.borrows(slot) {
            return;
        }
        if self.copies_stripe_late(slot) {
            self.tickets[slot].copy_due = true;
            return;
        }
        self.fill_from(slot, slot);
        self.fill_joined(slot);
        if planted::is(Fault::BegunBeforeComputed) {
            self.tell_begun(slot);
        }
    }

    /// Whether a ticket's bytes are copied while parity is brought to them, in one pass over them:
    /// those of a small write of one chunk, that are in one piece.
    #[inline]
    fn copies_late(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let [band] = ticket.bands() else {
            return false;
        };
        let small = band.method == Some(Method::ReadModifyWrite) && ticket.is_alone();
        let one_piece = ticket.order.segments.as_slice().len() == 1;
        let one_chunk = !band.asked.written.exceeds(1);
        let guests = ticket.order.kind == Kind::Write(Payload::Guest);
        let whole = ticket.order.part.is_whole();
        let late = small && guests && whole && one_chunk && one_piece;
        late && !planted::is(Fault::BegunBeforeComputed)
    }

    /// Whether whole rows are copied while their parity is computed: those of one write, that is in
    /// large pieces. Nothing is read for them, so they are copied in this call all the same.
    #[inline(always)]
    fn copies_stripe_late(&self, slot: u32) -> bool {
        let ticket = &self.tickets[slot];
        let [band] = ticket.bands() else {
            return false;
        };
        let full = band.method == Some(Method::Full) && band.read.is_empty();
        if !full || self.geometry().data() == 1 || !self.code.copies_in_passing() {
            return false;
        }
        let guests = ticket.order.kind == Kind::Write(Payload::Guest);
        let whole = ticket.order.part.is_whole() && ticket.is_alone();
        let all = band.write.covers(self.geometry().parity_roles());
        let segments = &ticket.order.segments;
        let pieces = segments.as_slice().len() == 1 || is_aligned(segments);
        let late = guests && whole && all && pieces;
        late && !planted::is(Fault::BegunBeforeComputed)
    }

    /// Copies what the guest wants written in ticket `source` to the buffers of `slot`, as far as
    /// that writes it now.
    #[inline]
    pub(super) fn fill_from(&mut self, slot: u32, source: u32) {
        let ticket = &self.tickets[source];
        let payload = match ticket.order.kind {
            Kind::Write(payload) => payload,
            Kind::Forfeit(_) => Payload::Zeroes,
            Kind::Clear | Kind::Read { .. } | Kind::Repair(_) => return,
        };
        if !ticket.order.part.is_whole() {
            // It goes over what is read first.
            return;
        }
        let now = &self.tickets[slot].lanes;
        let mut copied = 0;
        for band in 0..ticket.own_count() {
            let Band { lanes, written } = ticket.own_band(band);
            let lanes = &(lanes.start.max(now.start)..lanes.end.min(now.end));
            if lanes.is_empty() {
                continue;
            }
            for role in *written {
                let target = self.part(slot, Side::New, role, lanes);
                match payload {
                    Payload::Zeroes => target.fill(0),
                    Payload::Guest => {
                        let offset = self.payload_offset(source, role, lanes);
                        ticket.order.segments.copy_to(offset, target);
                        copied += units::bytes_u64(target.len());
                    }
                }
            }
        }
        self.counters.bytes_copied += copied;
    }

    /// Computes all bands of a ticket whose reads are in.
    #[inline(always)]
    pub(super) fn compute(&mut self, slot: u32) {
        let kind = self.tickets[slot].order.kind;
        for band in 0..self.tickets[slot].bands().len() {
            match kind {
                Kind::Clear => {}
                Kind::Write(_) | Kind::Forfeit(_) => self.compute_write(slot, band),
                Kind::Read { .. } => self.compute_read(slot, band),
                Kind::Repair(pass) => self.compute_repair(slot, band, pass),
            }
        }
        if planted::is(Fault::GuestMemoryReadTwice) {
            self.fill_from(slot, slot);
        }
    }

    #[inline(always)]
    fn compute_write(&mut self, slot: u32, band: usize) {
        let planned = &self.tickets[slot].bands()[band];
        let (read, decode) = (planned.read, planned.decode);
        let parity = planned.write.both(self.geometry().parity_roles());
        match planned.method.expect("writes have a method") {
            Method::Full if !self.tickets[slot].order.part.is_whole() => self.lay_part(slot, band),
            Method::Plain => {}
            Method::ReadModifyWrite => {
                self.counters.read_modify_writes += 1;
                self.apply_deltas(slot, band, parity);
            }
            Method::Full => {
                self.counters.full_writes += 1;
                self.generate(slot, band, parity);
            }
            Method::ReconstructWrite => {
                self.counters.reconstruct_writes += 1;
                self.generate(slot, band, parity);
            }
            Method::ReconstructFirst => {
                self.counters.reconstruct_writes += 1;
                self.decode(slot, band, read, decode);
                self.lay_part(slot, band);
                self.generate(slot, band, parity);
            }
        }
    }

    /// Lays the part of a block that is written over the block's old content, if only a part is.
    fn lay_part(&mut self, slot: u32, band: usize) {
        let ticket = &self.tickets[slot];
        let (order, planned) = (&ticket.order, &ticket.bands()[band]);
        let Kind::Write(payload) = order.kind else {
            return;
        };
        if order.part.is_whole() {
            return;
        }
        let role = planned.asked.written.first().expect("a part is of a block");
        let block = self.part(slot, Side::New, role, &planned.asked.lanes);
        if self.geometry().data() == 1 {
            let copy = planned.read.first().expect("one copy is read");
            if copy != role {
                block.copy_from(self.part(slot, Side::New, copy, &planned.asked.lanes));
            }
        }
        if planted::is(Fault::PartWithoutTheRest) {
            block.fill(0);
        }
        let (offset, bytes) = (
            usize::from(order.part.offset),
            usize::from(order.part.bytes),
        );
        let target = block.part(offset, bytes);
        match payload {
            Payload::Zeroes => target.fill(0),
            Payload::Guest => {
                order.segments.copy_to(bytes_usize(order.offset), target);
                self.counters.bytes_copied += units::bytes_u64(bytes);
            }
        }
    }

    /// Parity from what was, what is written, and old parity.
    #[inline]
    fn apply_deltas(&mut self, slot: u32, band: usize, parity: RoleSet) {
        let ticket = &self.tickets[slot];
        if ticket.copy_due && ticket.is_dropped() {
            // It was given up while it read, and ends at its next step. What it was to write is not
            // here, and the guest's memory is the guest's again.
            return;
        }
        let planned = &ticket.bands()[band];
        let lanes = &planned.asked.lanes;
        let k = self.geometry().data();
        let parts = self.parts(slot, lanes);
        let row = |role: Role| (role.at() - k, parts.of(Side::New, role));
        let (mut left, mut copied) = (parity, 0);
        if ticket.copy_due && !planted::is(Fault::SmallWriteNotCopied) {
            let role = planned.asked.written.first().expect("one chunk");
            let copy = parts.of(Side::New, role);
            let offset = self.payload_offset(slot, role, lanes);
            copied = units::bytes_u64(copy.len());
            // One pass for both is made for one sum only, and for what is in one piece: it may be
            // in several by now, where the copy of what was given up lies (`kept`).
            match (ticket.order.segments.as_slice(), parity.exceeds(1)) {
                ([only], false) => {
                    let sum = parity.first().expect("a change has parity");
                    let change = Change {
                        column: role.at(),
                        old: parts.of(Side::Old, role),
                        new: only.part(offset, copy.len()),
                    };
                    self.code.copy_delta(change, copy, &[row(sum)]);
                    left = RoleSet::EMPTY;
                }
                ([..], true | false) => ticket.order.segments.copy_to(offset, copy),
            }
        }
        while !left.is_empty() {
            let mut rows = [(0, Segment::EMPTY); ROWS];
            let mut count = 0;
            for (entry, role) in rows.iter_mut().zip(left) {
                *entry = row(role);
                left = left.without(RoleSet::one(role));
                count += 1;
            }
            for role in planned.asked.written {
                let (old, new) = (parts.of(Side::Old, role), parts.of(Side::New, role));
                self.code.delta(role.at(), old, new, &rows[..count]);
            }
        }
        self.tickets[slot].copy_due = false;
        self.counters.bytes_copied += copied;
    }

    /// The byte of the request's memory from which on `lanes` of a role are written.
    #[inline]
    pub(super) fn payload_offset(&self, slot: u32, role: Role, lanes: &Range<u32>) -> usize {
        let order = &self.tickets[slot].order;
        let in_stripe = u32::from(role.0) * self.geometry().chunk_blocks() + lanes.start;
        bytes_usize(order.offset + self.bytes(in_stripe - order.start))
    }

    /// Parity from the new content of all data roles.
    #[inline]
    fn generate(&mut self, slot: u32, band: usize, parity: RoleSet) {
        // Copies are written from the one buffer that there is.
        if self.geometry().data() > 1 && !parity.is_empty() {
            self.generate_parity(slot, band, parity);
        }
    }

    fn generate_parity(&mut self, slot: u32, band: usize, parity: RoleSet) {
        let copies = std::mem::take(&mut self.tickets[slot].copy_due);
        if copies || self.tickets[slot].borrows {
            self.generate_from_guest(slot, parity, copies);
            return;
        }
        let geometry = self.geometry();
        let (data_roles, all_parity) = (geometry.data_roles(), geometry.parity_roles());
        let lanes = self.tickets[slot].bands()[band].asked.lanes.clone();
        let mut sources = [Segment::EMPTY; ROLES];
        let mut targets = [Segment::EMPTY; ROLES];
        for (source, role) in sources.iter_mut().zip(data_roles) {
            *source = self.part(slot, Side::New, role, &lanes);
        }
        for (target, role) in targets.iter_mut().zip(parity) {
            *target = self.part(slot, Side::New, role, &lanes);
        }
        let (sources, targets) = (&sources[..data_roles.len()], &targets[..parity.len()]);
        if parity == all_parity {
            self.code.generate(sources, targets);
            return;
        }
        let decoder = self.decoders.get(&self.code, data_roles, parity);
        decoder
            .expect("all data gives any parity")
            .recover(sources, targets);
    }

    /// Parity of what the guest has, from there; and a copy of that in passing, unless it is
    /// borrowed.
    fn generate_from_guest(&mut self, slot: u32, parity: RoleSet, copies: bool) {
        let rows = self.rows_from_guest(slot, parity, copies);
        rows.compute(&self.code, 0..rows.length);
        if copies {
            self.counters.bytes_copied += units::bytes_u64(rows.data * rows.length);
        }
    }

    /// Where all of that is.
    #[inline]
    pub(super) fn rows_from_guest(&self, slot: u32, parity: RoleSet, copies: bool) -> Rows {
        let ticket = &self.tickets[slot];
        let lanes = ticket.bands()[0].asked.lanes.clone();
        let data_roles = self.geometry().data_roles();
        let parts = self.parts(slot, &lanes);
        let mut rows = Rows {
            segments: ticket.order.segments,
            first: self.payload_offset(slot, Role(0), &lanes),
            chunk: bytes_usize(self.bytes(self.geometry().chunk_blocks())),
            length: parts.length,
            data: data_roles.len(),
            parity: parity.len(),
            copies,
            ..Rows::default()
        };
        for (target, role) in rows.sums.iter_mut().zip(parity) {
            *target = parts.of(Side::New, role);
        }
        if copies {
            for (copy, role) in rows.held.iter_mut().zip(data_roles) {
                *copy = parts.of(Side::New, role);
            }
        }
        rows
    }

    /// Content of `targets` from `available`, which holds at least k roles.
    pub(super) fn decode(&mut self, slot: u32, band: usize, available: RoleSet, targets: RoleSet) {
        if targets.is_empty() {
            return;
        }
        let planned = &self.tickets[slot].bands()[band];
        let (lanes, old) = (planned.asked.lanes.clone(), planned.old);
        let decoder = self.decoders.get(&self.code, available, targets);
        let used = decoder.expect("the plan reads k roles").sources();
        let mut from = [Segment::EMPTY; ROLES];
        let mut to = [Segment::EMPTY; ROLES];
        for (source, role) in from.iter_mut().zip(used) {
            let side = if old.has(role) { Side::Old } else { Side::New };
            *source = self.part(slot, side, role, &lanes);
        }
        for (target, role) in to.iter_mut().zip(targets) {
            *target = self.part(slot, Side::New, role, &lanes);
        }
        let decoder = self.decoders.get(&self.code, available, targets);
        let decoder = decoder.expect("found just now");
        decoder.recover(&from[..used.len()], &to[..targets.len()]);
    }

    fn compute_read(&mut self, slot: u32, band: usize) {
        let planned = self.tickets[slot].bands()[band].clone();
        self.decode(slot, band, planned.read, planned.decode);
        let ticket = &self.tickets[slot];
        if ticket.is_answered() {
            return;
        }
        let role = planned
            .asked
            .written
            .first()
            .expect("a read names one role");
        let mut content = self.part(slot, Side::New, role, &planned.asked.lanes);
        let part = ticket.order.part;
        if !part.is_whole() {
            content = content.part(usize::from(part.offset), usize::from(part.bytes));
        }
        let chunk = self.geometry().chunk_blocks();
        // For mirrors every role is data role 0.
        let data_role = if self.geometry().data() == 1 {
            0
        } else {
            u32::from(role.0)
        };
        let skip = self.bytes(data_role * chunk + planned.asked.lanes.start - ticket.order.start);
        let offset = bytes_usize(ticket.order.offset + skip);
        ticket.order.segments.copy_from(offset, content);
        self.counters.bytes_copied += units::bytes_u64(content.len());
    }

    fn compute_repair(&mut self, slot: u32, band: usize, pass: Pass) {
        let planned = self.tickets[slot].bands()[band].clone();
        let available = planned.read.without(planned.old);
        self.decode(slot, band, available, planned.decode);
        if pass == Pass::Rebuild {
            return;
        }
        let mut wrong = planned.write;
        for role in planned.old {
            let stored = self.part(slot, Side::Old, role, &planned.asked.lanes);
            if stored.equals(self.part(slot, Side::New, role, &planned.asked.lanes)) {
                wrong = wrong.without(RoleSet::one(role));
            }
        }
        let stripe = self.tickets[slot].order.stripe;
        if planted::is(Fault::ResyncSkipsAStripe) && stripe.0 % 16 == 3 {
            wrong = RoleSet::EMPTY;
        }
        self.tickets[slot].set_write(band, wrong);
    }
}
