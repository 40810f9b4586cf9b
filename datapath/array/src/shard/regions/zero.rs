//! The home zeroes regions before their first write.
//!
//! ```text
//! asked → zeroes to all members in use → flush → nobody is in use that was not zeroed, and every
//! reactor knows who is → the region is written, and dirty, in the next round of the map
//! ```
//! Until that round is durable the region is unwritten for everybody: reads answer zeroes,
//! writes wait, passes go around it. So nobody but the home touches its stripes. What it writes
//! there goes the way of all member requests: it waits for members that are held, and what a
//! member has not answered that is out keeps its drive out, too. A block that a needed drive
//! refuses, which takes others, costs the first writes of that region (`keeper/barred.rs`). The
//! argument is in docs/design/009-unwritten-regions.md.

use block::{Operation, Status};
use units::{MemberIndex, StripeIndex};

use super::super::{DriveIo, IoOwner, Order, Shard};
use super::keeper::{Bar, ZeroPiece, ZeroRound, ZeroStep};
use crate::io::Io;
use crate::map::MapState;
use crate::planted::{self, Fault};

/// What is asked of a drive at once: it shall not be silent for long.
const PIECE_BYTES: u64 = 4 << 20;
/// Member requests under way for it.
const DEPTH: usize = 32;
/// User bytes that are zeroed ahead of a stream of first writes.
const AHEAD_BYTES: u64 = 24 << 20;

impl Shard {
    /// How many regions may be zeroed ahead.
    pub(super) fn zeroed_ahead(&self) -> usize {
        units::bytes_usize(AHEAD_BYTES / self.region_bytes())
    }

    /// User bytes of a region.
    fn region_bytes(&self) -> u64 {
        let (first, end) = self.shared.regions.space.stripes(0);
        (end.0 - first.0) * self.geometry().stripe_bytes()
    }

    /// One step of the zeroing that is under way, or the next.
    pub(super) fn advance_zeroing(&mut self, io: &mut impl Io) -> usize {
        let Some(mut round) = self.keeper().zeroing.round.take() else {
            if self.map.read_only && !self.keeper().zeroing.is_idle() {
                self.keeper().forget_zeroing();
            }
            // Who is not here is known for that first.
            if !self.shared.regions.is_open() {
                return 0;
            }
            if self.coordinator().is_some_and(|home| home.stopped) {
                self.keeper().forget_zeroing_ahead();
            }
            let bytes = self.region_bytes();
            let begun = self.keeper().begin_zeroing(bytes);
            let moved = usize::from(begun.is_some());
            self.keeper().zeroing.round = begun;
            return moved;
        };
        if self.map.read_only {
            round.todo.clear();
        }
        let moved = self.issue_zeroes(&mut round, io);
        if !round.todo.is_empty() || round.pending > 0 {
            self.keeper().zeroing.round = Some(round);
            return moved;
        }
        match round.step {
            ZeroStep::Zero => self.flush_zeroes(&mut round),
            ZeroStep::Flush => {
                let failed = std::mem::take(&mut round.members);
                let well = failed.into_iter().filter(|one| !round.failed.contains(one));
                round.zeroed.extend(well);
                round.step = ZeroStep::Settle;
            }
            ZeroStep::Settle => return moved + self.settle_zeroes(round, io),
        }
        self.keeper().zeroing.round = Some(round);
        moved + 1
    }

    fn issue_zeroes(&mut self, round: &mut ZeroRound, io: &mut impl Io) -> usize {
        let mut moved = 0;
        while let Some(piece) = round.todo.front().copied() {
            if round.pending >= DEPTH || !self.can_serve(1, io) {
                break;
            }
            round.todo.pop_front();
            moved += 1;
            let this = (piece.member, piece.incarnation);
            // The drive of one that is out may be anybody's by now.
            let is_out = self.map.is_out(piece.member, piece.incarnation);
            if is_out && !round.failed.contains(&this) {
                round.failed.push(this);
            }
            if round.failed.contains(&this) {
                continue;
            }
            round.pending += 1;
            let order = Order {
                owner: IoOwner::Zeroing,
                member: piece.member,
                operation: if piece.length > 0 {
                    Operation::WriteZeroes
                } else {
                    Operation::Flush
                },
                offset: piece.offset,
                length: piece.length,
            };
            self.issue(order, |_| {}, io);
        }
        moved
    }

    fn flush_zeroes(&self, round: &mut ZeroRound) {
        round.step = ZeroStep::Flush;
        if planted::is(Fault::WrittenBeforeZeroes) {
            return;
        }
        let flush = |&(member, incarnation): &(MemberIndex, u32)| ZeroPiece {
            member,
            incarnation,
            offset: 0,
            length: 0,
        };
        let well = round.members.iter();
        let well = well.filter(|one| !round.failed.contains(one));
        round.todo = well.map(flush).collect();
    }

    /// All that was begun has ended: the regions are written once nobody is left who was not
    /// zeroed, in any map by which some reactor acts.
    fn settle_zeroes(&mut self, mut round: ZeroRound, io: &mut impl Io) -> usize {
        if self.map.read_only {
            self.keeper().forget_zeroing();
            return 1;
        }
        let settled =
            |&(member, incarnation): &(MemberIndex, u32)| self.map.settled(member, incarnation);
        let waits = !round.failed.iter().all(settled)
            || (self.effective < self.map.barrier && !planted::is(Fault::ZeroesBeforeEveryReactor));
        if waits {
            self.keeper().zeroing.round = Some(round);
            return 0;
        }
        self.bar_refused(&mut round, io);
        self.seal_hopeless(&mut round, io);
        let left = self.left_to_zero(&round);
        if left.is_empty() {
            let count = units::bytes_u64(round.regions.len());
            self.counters.regions_zeroed += count;
            self.counters.regions_zeroed_in_pass += count * u64::from(self.map.window.is_some());
            for region in round.regions {
                self.keeper().zeroed(region);
            }
            return 1;
        }
        round.step = ZeroStep::Zero;
        round.failed.clear();
        round.todo = self.zero_pieces(&round.regions, &left).into();
        round.members = left;
        self.keeper().zeroing.round = Some(round);
        1
    }

    /// Members in use, being filled or not, that were not zeroed.
    fn left_to_zero(&self, round: &ZeroRound) -> Vec<(MemberIndex, u32)> {
        let again = !round.zeroed.is_empty() || round.regions.is_empty();
        if planted::is(Fault::RegionsNotZeroed)
            || again && planted::is(Fault::ZeroesWithoutNewcomers)
        {
            return Vec::new();
        }
        let members = self.map.members.iter().enumerate();
        let used = members.filter(|(_, entry)| {
            let unfilled = matches!(entry.state, MapState::Rebuilding { .. });
            let skipped = unfilled && planted::is(Fault::ZeroesWithoutTheUnfilled);
            entry.drive.is_some() && entry.state != MapState::Lost && !skipped
        });
        let used = used.map(|(at, entry)| (MemberIndex::from_at(at), entry.incarnation));
        let used = used.filter(|one| !round.zeroed.contains(one));
        let is_in = |&(member, _): &(MemberIndex, u32)| {
            let mut regions = round.regions.iter();
            regions.any(|&region| self.has_rows(member, region))
        };
        used.filter(is_in).collect()
    }

    /// The member's rows whose stripes are the region's: first, and the one after the last, in
    /// bytes.
    pub(super) fn rows(&self, member: MemberIndex, region: u32) -> (u64, u64) {
        let geometry = self.geometry();
        let groups = units::bytes_u64(geometry.groups());
        let group = units::bytes_u64(member.at() / geometry.group_members());
        let (first, end) = self.shared.regions.space.stripes(region);
        let row = |stripe: StripeIndex| {
            stripe.0.saturating_sub(group).div_ceil(groups) * geometry.chunk_bytes()
        };
        (row(first), row(end))
    }

    fn has_rows(&self, member: MemberIndex, region: u32) -> bool {
        let (start, end) = self.rows(member, region);
        start < end
    }

    /// A member that is needed has refused zeroes, and takes other writes: nobody fails but who
    /// needs this region. The round goes on as if they were written, and the region leaves it when
    /// nothing of it is under way any more.
    pub(in crate::shard) fn zeroes_refused(&mut self, done: DriveIo) {
        let (member, incarnation) = (done.member, done.incarnation);
        let row = done.offset - self.map.members[member.at()].data_offset;
        let round = self.keeper().zeroing.round.take();
        let mut round = round.expect("a round is under way");
        let mut regions = round.regions.iter();
        let is_it = |region: &&u32| {
            let (start, end) = self.rows(member, **region);
            (start..end).contains(&row)
        };
        let region = *regions.find(is_it).expect("it zeroes what is in the round");
        round.pending -= 1;
        let refused = (region, (member, incarnation));
        if !round.refused.contains(&refused) {
            round.refused.push(refused);
        }
        self.keeper().zeroing.round = Some(round);
    }

    /// Regions of a round that cannot be written for now, because a member refuses their zeroes
    /// that they need.
    fn bar_refused(&mut self, round: &mut ZeroRound, io: &mut impl Io) {
        let mut refused = std::mem::take(&mut round.refused);
        // Who is out by now is not needed.
        refused.retain(|&(_, (member, incarnation))| !self.map.is_out(member, incarnation));
        if refused.is_empty() {
            return;
        }
        let states = std::sync::Arc::clone(&self.shared.regions);
        let now = io.now();
        for (region, (member, incarnation)) in refused {
            round.regions.retain(|&other| other != region);
            io.event(self.refusal_of(member, region..region + 1));
            self.keeper().seal(&[region], &states);
            let who = (member, incarnation);
            self.keeper().bar(Bar::Zeroes(region), who, now);
        }
        self.answer_dirty_all(io);
    }

    /// Regions of a round that can never be written, because a member cannot be zeroed that they
    /// need.
    fn seal_hopeless(&mut self, round: &mut ZeroRound, io: &mut impl Io) {
        let left = self.left_to_zero(round);
        let hopeless = |(member, _): &&(MemberIndex, u32)| self.map.hopeless[member.at()];
        let hopeless: Vec<_> = left.iter().filter(hopeless).collect();
        if hopeless.is_empty() {
            return;
        }
        let is_sealed = |&mut region: &mut u32| {
            let mut members = hopeless.iter();
            members.any(|(member, _)| self.has_rows(*member, region))
        };
        let sealed: Vec<u32> = round.regions.extract_if(.., is_sealed).collect();
        let states = std::sync::Arc::clone(&self.shared.regions);
        self.keeper().seal(&sealed, &states);
        self.answer_dirty_all(io);
    }

    /// What is to be zeroed of these regions on these members, members in turn.
    fn zero_pieces(&self, regions: &[u32], members: &[(MemberIndex, u32)]) -> Vec<ZeroPiece> {
        let mut pieces = Vec::new();
        for &region in regions {
            let (first, _) = self.shared.regions.space.stripes(region);
            let mut skip = 0;
            loop {
                let before = pieces.len();
                for &(member, incarnation) in members {
                    let (start, end) = self.rows(member, region);
                    let start = start + skip;
                    if start >= end || self.is_left_out(member, first) {
                        continue;
                    }
                    let data = self.map.members[member.at()].data_offset;
                    pieces.push(ZeroPiece {
                        member,
                        incarnation,
                        offset: data + start,
                        length: PIECE_BYTES.min(end - start),
                    });
                }
                if pieces.len() == before {
                    break;
                }
                skip += PIECE_BYTES;
            }
        }
        pieces
    }

    fn is_left_out(&self, member: MemberIndex, stripe: StripeIndex) -> bool {
        let role = self.geometry().role(stripe, member);
        let is_parity = role.is_some_and(|role| role.at() >= self.geometry().data());
        is_parity && planted::is(Fault::ZeroesWithoutParity)
    }

    /// A member was zeroed or flushed.
    pub(in crate::shard) fn zero_io_done(&mut self, done: DriveIo, status: Status) {
        let this = (done.member, done.incarnation);
        let flushed = done.operation != Some(Operation::Flush)
            || self.shared.is_flushed(this.0, this.1, status);
        let status = if flushed {
            status
        } else {
            status.and(Status::Media)
        };
        if !status.is_ok() {
            self.report(done, status);
        }
        let round = self.keeper().zeroing.round.as_mut();
        let round = round.expect("a round is under way");
        round.pending -= 1;
        if !status.is_ok() && !round.failed.contains(&this) {
            round.failed.push(this);
        }
    }
}
