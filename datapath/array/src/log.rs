//! The log of a group that lacks members: where its slots are, and what is to be done again after
//! an unclean stop.
//!
//! While a chunk of a stripe can only be had from the others, a write that is torn there loses
//! what it did not touch. So each member first gets its own part of the write into its own log,
//! and only when all have it durable does the write begin in place. After a stop, a write whose
//! pieces are all there is done again, and of any other nothing was begun. The rules and their
//! proof are in docs/on-disk.md, section 9, the choice in docs/design/001-log-of-pieces.md.

mod refused;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use units::limits::LARGE_BUFFER_BYTES;
use units::{MemberIndex, Role, StripeIndex, bytes_u64, bytes_usize};
use uuid::Uuid;

pub use self::refused::{RefusedRedo, agree_with};
use crate::format::{ArrayConfig, LOG_HEADER_BYTES, LogPiece, MemberState, Superblock};
use crate::geometry::Geometry;
use crate::planted::{self, Fault};
use crate::regions::{RegionMap, Suspects};
use crate::shard::cell_lanes;

/// Where the slots of the log lie; the same on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpace {
    offset: u64,
    slot_bytes: u64,
    slots: u32,
}

impl LogSpace {
    /// Slots that hold a cell each, in an area given by first byte and length.
    #[must_use]
    pub fn new(geometry: &Geometry, (offset, length): (u64, u64)) -> LogSpace {
        let payload = geometry.chunk_bytes().min(bytes_u64(LARGE_BUFFER_BYTES));
        let slot_bytes = bytes_u64(LOG_HEADER_BYTES) + payload;
        LogSpace {
            offset,
            slot_bytes,
            slots: u32::try_from(length / slot_bytes).unwrap_or(u32::MAX),
        }
    }

    /// How many slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// How many of so many shards can have slots: one needs two, or there is no older half. The
    /// first ones do, and of an array with parity no other may own stripes.
    #[must_use]
    pub fn writers(&self, shards: usize) -> usize {
        shards.min(bytes_usize(u64::from(self.slots / 2)))
    }

    /// Where a slot lies on a member, in bytes.
    #[must_use]
    pub fn slot(&self, slot: u32) -> u64 {
        self.offset + u64::from(slot) * self.slot_bytes
    }
}

impl Superblock {
    /// Where the log lies.
    #[must_use]
    pub fn log(&self) -> LogSpace {
        let area = self.layout.log;
        LogSpace::new(&self.geometry, (area.offset, area.length))
    }
}

/// A part of a write that is to be done again, on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redo {
    /// On which member.
    pub member: MemberIndex,
    /// Where, in bytes from the start of its data area.
    pub offset: u64,
    /// What is written there.
    pub bytes: Vec<u8>,
}

/// Of what would be written several times at one place, only the last. A start that is killed
/// while it writes leaves nothing there that is older than what it found: the next one may find
/// other members, and know by their logs that the older is long over.
fn last_of_each(redo: Vec<Redo>) -> Vec<Redo> {
    // By member: ranges that later ones write, by their first byte.
    let mut later: BTreeMap<MemberIndex, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut last = Vec::with_capacity(redo.len());
    for Redo {
        member,
        offset,
        bytes,
    } in redo.into_iter().rev()
    {
        let later = later.entry(member).or_default();
        let end = offset + bytes_u64(bytes.len());
        let mut gaps = Vec::new();
        let before = later.range(..=offset).next_back();
        let mut at = before.map_or(offset, |(_, &to)| to.max(offset));
        if offset < end {
            for (&from, &to) in later.range(offset + 1..end) {
                gaps.push(at..from);
                at = to;
            }
        }
        gaps.push(at..end);
        for gap in gaps.into_iter().filter(|gap| gap.start < gap.end) {
            let inside = bytes_usize(gap.start - offset)..bytes_usize(gap.end - offset);
            last.push(Redo {
                member,
                offset: gap.start,
                bytes: bytes[inside].to_vec(),
            });
            later.insert(gap.start, gap.end);
        }
    }
    last.reverse();
    last
}

/// The pieces of one write with their content, by role.
type Pieces = BTreeMap<Role, (LogPiece, Vec<u8>)>;

/// The pieces that were found on the members of an array, gathered.
#[derive(Debug)]
pub struct Replay {
    array: Uuid,
    from: u64,
    /// By member: what it has of stripes below counts, and what it has of others unless it has
    /// missed them.
    counted: Vec<(StripeIndex, Option<Suspects>)>,
    /// By member: whether its drive is here.
    here: Vec<bool>,
    geometry: Geometry,
    /// By life, number and writer; then by role.
    writes: BTreeMap<(u64, u64, u16), Pieces>,
    /// By writer: its highest number.
    newest: BTreeMap<u16, u64>,
    /// By member: slots that could not be read.
    unreadable: Vec<u32>,
    torn: usize,
}

impl Replay {
    /// With nothing found yet. `is_here` tells of each member whether its drive is here.
    #[must_use]
    pub fn new(
        config: &ArrayConfig,
        superblock: &Superblock,
        regions: &RegionMap,
        is_here: impl Fn(MemberIndex) -> bool,
    ) -> Replay {
        let counted = config.members.iter().map(|record| match record.state {
            MemberState::InSync => (StripeIndex(u64::MAX), None),
            MemberState::Rebuilding { until, missed } => (until, regions.missed(missed.base)),
            MemberState::Excluded { .. } | MemberState::Missing => (StripeIndex(0), None),
        });
        let members = 0..config.members.len();
        Replay {
            array: config.array,
            from: config.log_from,
            counted: counted.collect(),
            here: members
                .map(|at| is_here(MemberIndex::from_at(at)))
                .collect(),
            geometry: superblock.geometry,
            writes: BTreeMap::new(),
            newest: BTreeMap::new(),
            unreadable: vec![0; config.members.len()],
            torn: 0,
        }
    }

    /// What the header of a slot says, if it counts: how many bytes of payload follow it.
    pub fn payload_bytes(&mut self, member: MemberIndex, header: &[u8]) -> Option<usize> {
        let piece = self.judge(member, header)?;
        let newest = self.newest.entry(piece.writer).or_default();
        *newest = piece.sequence.max(*newest);
        Some(self.bytes_of(&piece))
    }

    /// As [`Replay::payload_bytes`], without taking notice of the slot.
    #[must_use]
    pub fn holds(&self, member: MemberIndex, header: &[u8]) -> Option<usize> {
        Some(self.bytes_of(&self.judge(member, header)?))
    }

    fn bytes_of(&self, piece: &LogPiece) -> usize {
        let bytes = u64::from(piece.lanes()) << self.geometry.block_size().shift();
        if piece.zeroes { 0 } else { bytes_usize(bytes) }
    }

    fn judge(&self, member: MemberIndex, header: &[u8]) -> Option<LogPiece> {
        let piece = LogPiece::decode(header).ok()?;
        let chunk = self.geometry.chunk_blocks();
        let inside =
            |(lane, lanes): &(u32, u32)| lane.checked_add(*lanes).is_some_and(|end| end <= chunk);
        let counts = piece.array == self.array
            && piece.member == member
            && (piece.life >= self.from || planted::is(Fault::StaleLogReplayed))
            && piece.stripe.0 < self.geometry.stripes()
            && piece.roles.len() <= self.geometry.group_members()
            && piece
                .roles
                .iter()
                .all(|role| role.at() < self.geometry.group_members())
            && self.geometry.member(piece.stripe, piece.role) == member
            && piece.runs.iter().all(inside)
            && piece.lanes() <= chunk;
        counts.then_some(piece)
    }

    /// Takes a slot of a member that is in sync or rebuilding.
    pub fn take(&mut self, member: MemberIndex, header: &[u8], payload: Vec<u8>) {
        let Some(piece) = self.judge(member, header) else {
            return;
        };
        if LogPiece::checksum([&payload[..]].into_iter()) != piece.payload_checksum {
            // Torn: the write that it belongs to was not begun.
            self.torn += 1;
            return;
        }
        let key = (piece.life, piece.sequence, piece.writer);
        let pieces = self.writes.entry(key).or_default();
        pieces.insert(piece.role, (piece, payload));
    }

    /// How many pieces were torn: their content is not what their header says.
    #[must_use]
    pub fn torn(&self) -> usize {
        self.torn
    }

    /// A slot of a member cannot be read.
    pub fn miss(&mut self, member: MemberIndex) {
        self.unreadable[member.at()] += 1;
    }

    /// Members with slots that cannot be read, where that may matter: their group lacks a chunk,
    /// and a write that was begun, or one that must not be undone by an older one, may be among
    /// what is unknown. A write of one piece alone tears nothing, and has nothing older to fear
    /// where nothing was found.
    #[must_use]
    pub fn doubtful(&self) -> Vec<MemberIndex> {
        let members = self.geometry.group_members();
        let lacks = |member: &usize| self.unreadable[*member] > 0;
        let doubtful = (0..self.unreadable.len()).filter(|member| {
            let group = member / members;
            let of_group = (group * members..(group + 1) * members).filter(lacks);
            let found = |pieces: &Pieces| {
                let mut pieces = pieces.values();
                pieces.any(|(piece, _)| self.geometry.group(piece.stripe).at() == group)
            };
            let matters = of_group.count() > 1 || self.writes.values().any(found);
            lacks(member) && !self.is_whole(group) && matters
        });
        doubtful.map(MemberIndex::from_at).collect()
    }

    /// Whether all members of a group are in sync and here: a resync makes its parity right from
    /// its data, of which each block is as some write has left it.
    fn is_whole(&self, group: usize) -> bool {
        let members = self.geometry.group_members();
        let mut group = group * members..(group + 1) * members;
        group.all(|at| self.here[at] && self.counted[at].0.0 == u64::MAX)
    }

    /// Whether what is known of a write's group is of no use, and not needed either.
    fn is_left_to_resync(&self, stripe: StripeIndex) -> bool {
        let members = self.geometry.group_members();
        let group = self.geometry.group(stripe).at();
        let unreadable = &self.unreadable[group * members..(group + 1) * members];
        unreadable.iter().any(|slots| *slots > 0) && self.is_whole(group)
    }

    /// What is to be done again, each place once. To be durable before the next update is
    /// committed, and not to begin before members of which it [`Replay::guesses`] are out. Slots
    /// that cannot be read count as empty: see [`Replay::doubtful`].
    #[must_use]
    pub fn redo(&self) -> Vec<Redo> {
        let mut redo = Vec::new();
        for (piece, payload) in self.begun().flat_map(BTreeMap::values) {
            self.redo_piece(piece, payload, &mut redo);
        }
        last_of_each(redo)
    }

    /// The members that count where a piece of what is done again would be on them, and are not
    /// here. Nobody can tell whether such a member has it: if not, nothing of the write was begun,
    /// and a start that finds the member would leave alone what this one has half done. So it is
    /// to be out by a durable record before that.
    #[must_use]
    pub fn guesses(&self) -> Vec<MemberIndex> {
        let mut members = Vec::new();
        for pieces in self.begun() {
            let (first, _) = pieces.values().next().expect("made with one");
            for role in first.roles {
                let member = self.geometry.member(first.stripe, role);
                let is_away = !self.here[member.at()] && self.counts(member, first.stripe);
                if is_away && !members.contains(&member) {
                    members.push(member);
                }
            }
        }
        members
    }

    /// The writes that are done again, in their order.
    fn begun(&self) -> impl Iterator<Item = &Pieces> {
        // By cell: the newest write that may have been begun, for all that is known.
        let mut hidden: BTreeMap<(StripeIndex, u32), (u64, u64, u16)> = BTreeMap::new();
        for (key, pieces) in &self.writes {
            let (first, _) = pieces.values().next().expect("made with one");
            if self.missing(pieces).is_some_and(|hides| hides) {
                hidden.insert(self.cell(first), *key);
            }
        }
        let begun = self.writes.iter().filter(move |(key, pieces)| {
            let (first, _) = pieces.values().next().expect("made with one");
            let undoes = hidden
                .get(&self.cell(first))
                .is_some_and(|newer| *key < newer);
            let newest = self.newest.get(&first.writer).copied().unwrap_or(0);
            let old = first.sequence.saturating_add(first.window.into()) <= newest
                && !planted::is(Fault::OldPiecesReplayed);
            let torn = self.missing(pieces).is_some() && !planted::is(Fault::TornLogReplayed);
            !self.is_left_to_resync(first.stripe) && !undoes && !old && !torn
        });
        begun.map(|(_, pieces)| pieces)
    }

    /// Whether the write was not begun: of the members on which the stripe relies, all have their
    /// pieces if it was. Says whether only such pieces are missing as may be in slots that could
    /// not be read.
    fn missing(&self, pieces: &Pieces) -> Option<bool> {
        let (first, _) = pieces.values().next().expect("made with one");
        let mut missing = first.roles.iter().filter_map(|role| {
            let member = self.geometry.member(first.stripe, role);
            let there = pieces
                .get(&role)
                .is_some_and(|(piece, _)| piece.roles == first.roles);
            let missing = self.relies_on(member, first.stripe) && !there;
            missing.then_some(self.unreadable[member.at()] > 0)
        });
        let first = missing.next()?;
        Some(first && missing.all(|hides| hides))
    }

    /// What a write changes lies in one cell.
    fn cell(&self, piece: &LogPiece) -> (StripeIndex, u32) {
        let mut runs = piece.runs.iter().filter(|(_, lanes)| *lanes > 0);
        let lane = runs.next().map_or(0, |(lane, _)| *lane);
        (piece.stripe, lane / cell_lanes(&self.geometry))
    }

    fn relies_on(&self, member: MemberIndex, stripe: StripeIndex) -> bool {
        self.here[member.at()] && self.counts(member, stripe)
    }

    /// Whether what a member has of a stripe is what it should be, by the record.
    fn counts(&self, member: MemberIndex, stripe: StripeIndex) -> bool {
        let (until, missed) = &self.counted[member.at()];
        stripe < *until || missed.as_ref().is_some_and(|missed| !missed.has(stripe))
    }

    fn redo_piece(&self, piece: &LogPiece, payload: &[u8], redo: &mut Vec<Redo>) {
        let shift = self.geometry.block_size().shift();
        let mut from = 0;
        for (lane, lanes) in piece.runs.into_iter().filter(|(_, lanes)| *lanes > 0) {
            let length = bytes_usize(u64::from(lanes) << shift);
            let bytes = if piece.zeroes {
                vec![0; length]
            } else {
                payload[from..from + length].to_vec()
            };
            from += length;
            let block = self.geometry.member_block(piece.stripe) + u64::from(lane);
            redo.push(Redo {
                member: piece.member,
                offset: block << shift,
                bytes,
            });
        }
    }
}

/// The cell of a stripe, in few bits.
#[must_use]
pub(crate) fn cell_hash(stripe: StripeIndex, cell: u32) -> u16 {
    // Fibonacci hashing: neighbouring stripes fall far apart.
    let mixed = (stripe.0 << 5 ^ u64::from(cell)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u16::try_from(mixed >> 54).expect("ten bits")
}
