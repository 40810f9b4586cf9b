//! A request on the reactor where it arrived: cut into pieces that go straight to the drives or
//! to the owners of their stripes.

mod elsewhere;
mod flush;
mod retry;

use block::{Completion, Cookie, Operation, Part, Request, Stability, Status};
use memory::{Segment, SegmentList};
use units::limits::REQUEST_BYTES_MAX;
use units::{Instant, MemberIndex, Role, RoleSet, StripeIndex, bytes_u64, bytes_usize};

pub(super) use self::retry::{PART_BYTES, Retry};
use super::hold::looks_allowed;
use super::{DriveIo, IoOwner, Order, Shard};
use crate::geometry::Place;
use crate::io::{Io, Message, Trouble, WorkMessage};
use crate::lines::Attempts;
use crate::map::MapState;
use crate::planted::{self, Fault};

const TOO_OLD: u8 = u8::MAX;

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct RequestSlot {
    cookie: Cookie,
    operation: Operation,
    start: u64,
    blocks: u32,
    part: Part,
    segments: SegmentList,
    stability: Stability,
    /// Blocks whose pieces are on their way. For a flush: members that were looked at.
    issued: u32,
    /// Pieces on their way.
    pending: u32,
    status: Status,
    begun: Instant,
    /// Members whose flush failed and whose exclusion is awaited.
    unsettled: Vec<(MemberIndex, u32)>,
    /// Looks since it began to wait for room, after a hold was given up. `TOO_OLD`: what is left of
    /// it fails.
    attempts: u8,
    /// Its volume's number.
    pub(super) line: u16,
}

impl RequestSlot {
    /// One more look at a request that waits for room. Whether it is too old by that.
    fn age(&mut self, old: u8) -> bool {
        let attempts = self.attempts.saturating_add(1);
        self.attempts = if attempts > old { TOO_OLD } else { attempts };
        attempts > old
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn segments(&self) -> SegmentList {
        self.segments
    }

    #[inline]
    fn is_to_be_cut(&self) -> bool {
        self.issued < self.blocks
    }

    /// Whether all pieces are answered, and there are no more.
    #[inline]
    fn is_over(&self) -> bool {
        self.pending == 0 && !self.is_to_be_cut()
    }

    /// What is left of one that is old fails. Whether it is.
    fn ends_old(&mut self) -> bool {
        let ends = self.attempts == TOO_OLD && self.is_to_be_cut();
        if ends {
            self.issued = self.blocks;
            self.status = self.status.and(Status::Media);
        }
        ends
    }

    /// Some blocks are on their way to a drive.
    #[inline]
    fn begin_piece(&mut self, first: u32, blocks: u32) -> Piece {
        self.pending += 1;
        Piece {
            first,
            blocks,
            is_all: blocks == self.blocks,
            operation: self.operation,
            segments: self.segments,
        }
    }
}

/// Blocks of a request that are asked of one drive.
#[derive(Clone, Copy)]
struct Piece {
    first: u32,
    blocks: u32,
    /// There are no others.
    is_all: bool,
    operation: Operation,
    segments: SegmentList,
}

impl Default for RequestSlot {
    fn default() -> RequestSlot {
        RequestSlot {
            cookie: Cookie(0),
            operation: Operation::Flush,
            start: 0,
            blocks: 0,
            part: Part::WHOLE,
            segments: SegmentList::EMPTY,
            stability: Stability::MayChange,
            issued: 0,
            pending: 0,
            status: Status::Ok,
            begun: Instant(0),
            unsettled: Vec::new(),
            attempts: 0,
            line: 0,
        }
    }
}

/// What became of an attempt to move a request forward.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Advance {
    /// One more piece is on its way.
    Moved,
    /// No room for the next piece now.
    Stuck,
    /// Nobody owns the stripe of the next piece, for now.
    Unowned,
}

impl Shard {
    /// One more look at the requests that wait for room, after a hold was given up. How many are
    /// answered at the next poll.
    pub(super) fn age_requests(&mut self, others_go_on: bool) -> usize {
        let (map, requests) = (&self.map, &mut self.requests);
        let mut old = 0;
        self.waiting_requests.each(|slot| {
            let request = &mut requests[slot];
            let is_flush = request.operation == Operation::Flush;
            let next = request.start + u64::from(request.issued);
            let in_vain = is_flush || !request.is_to_be_cut() || map.gives_up(next);
            old += usize::from(request.age(looks_allowed(others_go_on && !in_vain)));
        });
        old
    }

    #[inline(always)]
    pub(super) fn begin_request(
        &mut self,
        slot: u32,
        line: u16,
        request: Request,
        io: &mut impl Io,
    ) {
        // Whoever waits has its turn first, or a steady stream of small ones starves a large one.
        let waits = !self.waiting_requests.is_empty();
        let entry = &mut self.requests[slot];
        entry.line = line;
        entry.cookie = request.cookie;
        entry.operation = request.operation;
        entry.start = request.start;
        entry.blocks = request.blocks;
        entry.part = request.part;
        entry.segments = request.segments;
        entry.stability = request.stability;
        entry.issued = 0;
        entry.pending = u32::from(!waits);
        entry.status = Status::Ok;
        entry.begun = io.now();
        entry.unsettled.clear();
        entry.attempts = 0;
        if request.operation == Operation::Flush {
            entry.blocks = u32::try_from(self.map.members.len()).expect("limits.rs");
        }
        if waits || self.cut_request(slot, io) == Advance::Stuck {
            self.waiting_requests.push(slot, line);
        }
    }

    /// Issues pieces until all are on their way, or there is no room, or nobody to ask: then it
    /// waits for that in no line, and stands in nobody's way. There is one at least. Answers the
    /// request when nothing is left to wait for.
    ///
    /// That it is cut counts as a piece on its way: it must not be answered by a piece that
    /// completes meanwhile.
    #[inline(always)]
    fn cut_request(&mut self, slot: u32, io: &mut impl Io) -> Advance {
        debug_assert!(self.requests[slot].is_to_be_cut(), "it asks for something");
        loop {
            let last = self.issue_next_piece(slot, io);
            let request = &mut self.requests[slot];
            if last == Advance::Moved && request.is_to_be_cut() {
                continue;
            }
            request.pending -= 1;
            match last {
                Advance::Moved if request.is_over() => self.finish_request(slot, io),
                Advance::Moved | Advance::Stuck => {}
                Advance::Unowned => self.unowned.push(slot),
            }
            return last;
        }
    }

    /// The same for one that has waited.
    fn advance_request(&mut self, slot: u32, io: &mut impl Io) -> Advance {
        let request = &mut self.requests[slot];
        if request.ends_old() {
            self.finish_if_done(slot, io);
            return Advance::Moved;
        }
        request.pending += 1;
        self.cut_request(slot, io)
    }

    /// Moves requests on that wait for room: by volumes in turn, and oldest first in each.
    pub(super) fn advance_requests(&mut self, io: &mut impl Io) -> usize {
        let mut moved = self.await_owners();
        let mut attempts = Attempts::default();
        while let Some(slot) = attempts.next(&mut self.waiting_requests) {
            let RequestSlot { issued, blocks, .. } = self.requests[slot];
            let last = self.advance_request(slot, io);
            // One that is answered has no slot any more.
            let now = match last {
                Advance::Moved => blocks,
                Advance::Stuck | Advance::Unowned => self.requests[slot].issued,
            };
            let all = last != Advance::Stuck;
            // A discard may be of any size.
            let cost = self.bytes(now - issued).min(REQUEST_BYTES_MAX);
            self.waiting_requests.charge(cost.cast_signed());
            moved += usize::from(all || now > issued);
            if all {
                self.waiting_requests.pop();
                attempts = Attempts::default();
                continue;
            }
            // What it has no room for may be what others do not need.
            if attempts.tried(now > issued, &self.waiting_requests) {
                break;
            }
            self.waiting_requests.pass_on();
        }
        moved
    }

    #[inline(always)]
    fn issue_next_piece(&mut self, slot: u32, io: &mut impl Io) -> Advance {
        let request = &self.requests[slot];
        if request.operation == Operation::Flush {
            return self.issue_flush(slot, io);
        }
        let block = request.start + u64::from(request.issued);
        let left = request.blocks - request.issued;
        let geometry = self.geometry();
        let Place {
            stripe,
            role,
            block_in_chunk: in_chunk,
        } = geometry.place(block);
        let to_chunk_end = left.min(geometry.chunk_blocks() - in_chunk);
        let unprotected = geometry.parity() == 0;
        let to_chunk_end = if self.losses.looks_closer && request.operation != Operation::Write {
            let Some(run) = self.run_at_drives(request, (stripe, block), to_chunk_end) else {
                self.answer_without_drives(slot, (stripe, block), to_chunk_end);
                return Advance::Moved;
            };
            run
        } else {
            to_chunk_end
        };
        if unprotected && self.map.read_only && request.operation.changes() {
            self.requests[slot].issued += to_chunk_end;
            self.requests[slot].status = self.requests[slot].status.and(Status::Media);
            return Advance::Moved;
        }
        if !request.part.is_whole() {
            // Nothing keeps two writes to parts of a block apart where there are no tickets.
            if unprotected {
                self.requests[slot].issued += 1;
                self.requests[slot].status = self.requests[slot].status.and(Status::Invalid);
                return Advance::Moved;
            }
            return self.issue_work(slot, stripe, 1, io);
        }
        if request.operation == Operation::Read || unprotected {
            if let Some(source) = self.direct_role(stripe, role) {
                return self.issue_direct(slot, (stripe, source, in_chunk), to_chunk_end, io);
            }
            if unprotected {
                // Nothing to reconstruct from: these blocks fail, the others are served.
                self.requests[slot].issued += to_chunk_end;
                self.requests[slot].status = self.requests[slot].status.and(Status::Media);
                return Advance::Moved;
            }
            return self.issue_work(slot, stripe, to_chunk_end, io);
        }
        if to_chunk_end == left {
            return self.issue_work(slot, stripe, left, io);
        }
        let run = geometry.run_stripes();
        let run_end = (stripe.0 / run + 1) * run * u64::from(geometry.stripe_blocks());
        let to_run_end =
            u32::try_from((run_end - block).min(u64::from(left))).expect("at most left");
        let is_first = request.issued == 0 && request.operation == Operation::Write;
        let in_stripe = u32::from(role.0) * geometry.chunk_blocks() + in_chunk;
        let advance = self.issue_work(slot, stripe, to_run_end, io);
        if is_first && advance == Advance::Moved {
            self.count_alignment(in_stripe, left);
        }
        advance
    }

    /// A write begins so far within its first stripe.
    fn count_alignment(&mut self, in_stripe: u32, blocks: u32) {
        let whole = self.geometry().stripe_blocks();
        if in_stripe == 0 && blocks.is_multiple_of(whole) {
            self.counters.whole_requests += 1;
        } else if in_stripe + blocks > whole {
            self.counters.split_requests += 1;
        }
    }

    /// The role to read blocks of data role `role` from without asking the owner, if there is one.
    #[inline]
    pub(super) fn direct_role(&self, stripe: StripeIndex, role: Role) -> Option<Role> {
        let geometry = self.geometry();
        let mirrors = geometry.data() == 1 && geometry.parity() > 0;
        if self.optimal && !mirrors && !self.late.any_slow {
            return Some(role);
        }
        self.role_to_read(stripe, role, mirrors)
    }

    /// The same where there is a choice.
    fn role_to_read(&self, stripe: StripeIndex, role: Role, mirrors: bool) -> Option<Role> {
        let geometry = self.geometry();
        let lost = self.to_avoid(stripe);
        if !mirrors {
            return (!lost.has(role)).then_some(role);
        }
        let copies = geometry
            .data_roles()
            .union(geometry.parity_roles())
            .without(lost);
        let by_turns = planted::is(Fault::UntrustedMirrorsTakeTurns);
        if !self.map.parity_trusted(stripe, false) && !by_turns {
            // Copies may differ until they are resynchronised: always read the same one.
            return copies.first();
        }
        let choice = bytes_usize(stripe.0 / bytes_u64(geometry.groups())) % copies.len().max(1);
        copies.iter().nth(choice)
    }

    /// The roles of `stripe` that are not read directly.
    fn to_avoid(&self, stripe: StripeIndex) -> RoleSet {
        let mut lost = self.map.lost(stripe, false);
        for role in lost {
            let member = self.map.member(stripe, role).1;
            let planted = match member.state {
                MapState::InSync => false,
                MapState::Rebuilding { .. } => planted::is(Fault::ReadAnUnfilledMember),
                MapState::Lost => planted::is(Fault::ReadAnExcludedMember),
            };
            if planted && member.drive.is_some() {
                lost = lost.without(RoleSet::one(role));
            }
        }
        lost.union(self.slow_roles(stripe, lost))
    }

    #[inline(always)]
    fn issue_direct(
        &mut self,
        slot: u32,
        (stripe, role, lane): (StripeIndex, Role, u32),
        blocks: u32,
        io: &mut impl Io,
    ) -> Advance {
        if !self.can_go_straight(io) {
            return Advance::Stuck;
        }
        let blocks = if self.late.any_shaky {
            self.at_once(self.map.member(stripe, role).0, blocks)
        } else {
            blocks
        };
        let request = &mut self.requests[slot];
        let first = request.issued;
        request.issued += blocks;
        let piece = request.begin_piece(first, blocks);
        self.issue_direct_part(slot, (stripe, role, lane), piece, io);
        Advance::Moved
    }

    /// Asks the drive of `role` for a piece of the request. There is room.
    #[inline(always)]
    fn issue_direct_part(
        &mut self,
        slot: u32,
        (stripe, role, lane): (StripeIndex, Role, u32),
        piece: Piece,
        io: &mut impl Io,
    ) {
        let Piece {
            first,
            blocks,
            is_all,
            operation,
            segments,
        } = piece;
        let places = self.map.geometry.places(stripe);
        let (member, offset) = self.drive_offset(&places, role, lane);
        let length = self.bytes(blocks);
        self.counters.direct_reads += u64::from(operation == Operation::Read);
        let owner = IoOwner::Direct {
            request: slot,
            first,
            blocks,
        };
        let order = Order {
            owner,
            member,
            operation,
            offset,
            length,
        };
        if self.late.any_shaky && self.issue_bounced(order, io) {
            return;
        }
        if is_all {
            return self.issue_whole(&order, segments, io);
        }
        let begin = bytes_usize(self.bytes(first));
        let has_bytes = matches!(operation, Operation::Read | Operation::Write);
        let fill = |list: &mut Vec<Segment>| {
            if has_bytes {
                segments.cut(begin, bytes_usize(length), list);
            }
        };
        self.issue(order, fill, io);
    }

    /// Asks the owner of `stripe` to carry out the next `blocks` blocks.
    #[inline(always)]
    fn issue_work(
        &mut self,
        slot: u32,
        stripe: StripeIndex,
        blocks: u32,
        io: &mut impl Io,
    ) -> Advance {
        let first = self.requests[slot].issued;
        if !self.send_work(slot, (stripe, first, blocks), None, io) {
            let moves = self.map.owner(stripe).is_none();
            return if moves {
                Advance::Unowned
            } else {
                Advance::Stuck
            };
        }
        let request = &mut self.requests[slot];
        request.issued += blocks;
        request.pending += 1;
        Advance::Moved
    }

    #[inline(always)]
    fn send_work(
        &mut self,
        slot: u32,
        (stripe, first, blocks): (StripeIndex, u32, u32),
        trouble: Option<Trouble>,
        io: &mut impl Io,
    ) -> bool {
        let Some(owner) = self.map.owner(stripe) else {
            // It goes from one to another: soon.
            return false;
        };
        let request = &self.requests[slot];
        // Only what carries bytes is bounded in bytes.
        let carries = !request.segments.as_slice().is_empty();
        let offset = if carries { self.bytes(first) } else { 0 };
        let offset = u32::try_from(offset).expect("limits.rs bounds a request's bytes");
        let work = WorkMessage {
            request: slot,
            line: request.line,
            operation: request.operation,
            trouble,
            start: request.start + u64::from(first),
            blocks,
            part: request.part,
            offset,
            segments: request.segments,
            stability: request.stability,
        };
        if owner == self.me {
            return self.try_begin_work(owner, work);
        }
        if self.asked_works[owner.at()] >= self.asked_works_max {
            return false;
        }
        let sent = io.ask(owner, Message::Work(work)).is_ok();
        self.asked_works[owner.at()] += usize::from(sent);
        self.counters.messages += u64::from(sent);
        sent
    }

    #[inline(always)]
    pub(super) fn direct_done(
        &mut self,
        request: u32,
        (first, blocks): (u32, u32),
        (done, status): (&DriveIo, Status),
        io: &mut impl Io,
    ) {
        if status.is_ok() {
            if done.operation != Some(Operation::Read) {
                self.shared.mark_written(done.member);
            }
            // What was given up while it was read may have brought the zeroes.
            let verdict = if done.outlived { Status::Media } else { status };
            return self.piece_done(request, verdict, io);
        }
        self.direct_failed(request, (first, blocks), (done, status), io);
    }

    #[cold]
    fn direct_failed(
        &mut self,
        request: u32,
        (first, blocks): (u32, u32),
        (done, status): (&DriveIo, Status),
        io: &mut impl Io,
    ) {
        let unprotected = self.geometry().parity() == 0;
        if status == Status::Invalid || unprotected {
            let verdict = if status == Status::Gone {
                Status::Media
            } else {
                status
            };
            return self.piece_done(request, verdict, io);
        }
        // Some drives check what they have brought where the guest can still change it. So this
        // does not count against the member yet: its owner reads it into memory of its own.
        if status == Status::Gone {
            self.report(*done, status);
        }
        self.retry(request, (first, blocks), (done.member, status));
    }

    /// A piece of a request is answered.
    #[inline(always)]
    pub(super) fn piece_done(&mut self, slot: u32, status: Status, io: &mut impl Io) {
        let request = &mut self.requests[slot];
        assert!(request.pending > 0, "a piece is answered once");
        request.pending -= 1;
        request.status = request.status.and(status);
        if request.is_over() {
            self.finish_request(slot, io);
        }
    }

    fn finish_if_done(&mut self, slot: u32, io: &mut impl Io) {
        if self.requests[slot].is_over() {
            self.finish_request(slot, io);
        }
    }

    #[inline(always)]
    fn finish_request(&mut self, slot: u32, io: &mut impl Io) {
        let request = &self.requests[slot];
        if !request.unsettled.is_empty() {
            self.unsettled_flushes.push(slot);
            return;
        }
        let completion = Completion {
            cookie: request.cookie,
            status: request.status,
        };
        if request.operation != Operation::Flush {
            self.throttle.heard(io.now().since(request.begun));
        }
        self.requests.release(slot);
        io.complete(completion);
    }
}
