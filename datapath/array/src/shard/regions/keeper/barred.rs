//! What a member refuses that is needed, for regions to be written: their zeroes, or a block of the
//! map. Decides nothing about members and does no I/O.
//!
//! Regions that need it are *barred*, and not written for a while: each try takes its time, and
//! others wait for that. They are tried again when they are asked for after that, or when the
//! member is out or is not needed any more.
//!
//! A block of the map has two places. One that a holder has refused is written to the other place
//! next only if another holder in sync has it: else nothing would be left of it, should that write
//! be torn, but what was there before. So at every moment some holder in sync has all that anybody
//! has relied on, in a place that is not being written.

use std::time::Duration;

use units::{Instant, MemberIndex, bytes_usize};

use super::{RegionKeeper, Round};
use crate::regions::{RegionState, RegionStates};

/// From one try to the next.
const PAUSE: Duration = Duration::from_secs(10);

/// Who refuses, and with which drive.
pub(in crate::shard::regions) type Refuser = (MemberIndex, u32);

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard::regions) enum Bar {
    /// Zeroes of this region.
    Zeroes(u32),
    /// This block of the map.
    Block(u32),
}

/// See the module. There is at most one for each region, and for each block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barred {
    bar: Bar,
    refuser: Refuser,
    until: Instant,
}

/// A place of a block that a holder has not taken. There are at most two for each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadPlace {
    number: u32,
    place: u64,
    refuser: Refuser,
}

/// Whether a block was written to its other place just before, which some holder has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    Second,
}

/// What becomes of a block that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// All holders in use have it.
    #[default]
    Written,
    /// Some do, and it is written to the other place before it counts.
    Again,
    /// Nobody relies on it.
    Barred,
}

impl Round {
    /// Positions of blocks that a holder has refused, each once.
    pub(in crate::shard::regions) fn refused_blocks(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = self.refused.iter().map(|&(at, _)| at).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Who has refused a block.
    pub(in crate::shard::regions) fn refusers(&self, position: usize) -> Vec<Refuser> {
        let its = self.refused.iter().filter(|(at, _)| *at == position);
        its.map(|&(_, refuser)| refuser).collect()
    }

    /// Holders that have taken a block, and were flushed.
    pub(in crate::shard::regions) fn takers(&self, position: usize) -> Vec<MemberIndex> {
        let refusers = self.refusers(position);
        let holders = self.holders.iter().filter(|(at, _)| *at == position);
        let takes = |member: &MemberIndex| {
            let fails = |&(other, _): &Refuser| other == *member;
            let failed = self.failed.iter().any(fails) || refusers.iter().any(fails);
            !failed && self.flushed.contains(member)
        };
        holders.map(|&(_, member)| member).filter(takes).collect()
    }

    /// Whether a block was written to its other place just before.
    pub(in crate::shard::regions) fn is_second(&self, position: usize) -> bool {
        self.blocks[position].attempt == Attempt::Second
    }
}

impl RegionKeeper {
    /// Whoever needs this fails until `lift_bars` takes it back.
    pub(in crate::shard::regions) fn bar(&mut self, bar: Bar, refuser: Refuser, now: Instant) {
        if let Bar::Zeroes(region) = bar {
            self.zeroing.forbid(region);
        }
        self.barred.retain(|one| one.bar != bar);
        self.barred.push(Barred {
            bar,
            refuser,
            until: now + PAUSE,
        });
    }

    /// What is barred for long enough, or by a member that the array can do without, may be asked
    /// for again; and blocks of which that one lacks a place are owed to all. How much.
    pub(in crate::shard::regions) fn lift_bars(
        &mut self,
        now: Instant,
        is_needed: impl Fn(Refuser) -> bool,
        states: &RegionStates,
    ) -> usize {
        let is_over = |one: &mut Barred| now >= one.until || !is_needed(one.refuser);
        let over: Vec<Barred> = self.barred.extract_if(.., is_over).collect();
        for &Barred { bar, .. } in &over {
            match bar {
                Bar::Zeroes(region) => {
                    self.zeroing.allow(region);
                    self.lift(region, states);
                }
                Bar::Block(number) => {
                    for region in self.space.regions(number) {
                        self.lift(u32::try_from(region).expect("at most REGIONS_MAX"), states);
                    }
                }
            }
        }
        let is_over = |one: &mut BadPlace| !is_needed(one.refuser);
        let owed: Vec<BadPlace> = self.bad_places.extract_if(.., is_over).collect();
        for one in &owed {
            self.owe_block(one.number);
        }
        over.len() + owed.len()
    }

    /// Unless something else bars it.
    fn lift(&mut self, region: u32, states: &RegionStates) {
        let block = self.block_of(region);
        let bars = |one: &Barred| one.bar == Bar::Zeroes(region) || one.bar == Bar::Block(block);
        if !self.barred.iter().any(bars) {
            states.change(region, RegionState::Sealed, RegionState::Unwritten);
            states.change(region, RegionState::Lost, RegionState::Clean);
        }
    }

    /// Whether something is barred, or some holder lacks a place.
    pub(in crate::shard::regions) fn has_bars(&self) -> bool {
        !self.barred.is_empty() || !self.bad_places.is_empty()
    }

    /// Whether something is barred.
    pub(in crate::shard::regions) fn bars_any(&self) -> bool {
        !self.barred.is_empty()
    }

    /// Whether a region cannot become dirty for now because of its block.
    pub(in crate::shard::regions) fn is_barred(&self, region: u32) -> bool {
        let bar = Bar::Block(self.block_of(region));
        self.barred.iter().any(|one| one.bar == bar)
    }

    /// Whether some holder lacks a place of a block: what is there may be no copy.
    pub(in crate::shard::regions) fn has_bad_places(&self) -> bool {
        !self.bad_places.is_empty()
    }

    /// When something is not barred any more.
    pub(super) fn bars_end(&self) -> Option<Instant> {
        self.barred.iter().map(|one| one.until).min()
    }

    // ---- blocks of the map ---------------------------------------------------------------

    /// A holder that is needed has refused a block.
    pub(in crate::shard::regions) fn note_bad_place(&mut self, number: u32, refuser: Refuser) {
        let place = self.sequences[bytes_usize(u64::from(number))] & 1;
        let bad = BadPlace {
            number,
            place,
            refuser,
        };
        if !self.bad_places.contains(&bad) {
            self.bad_places.push(bad);
        }
    }

    /// Whether some holder lacks a place of a block, or may have refused it just now.
    pub(super) fn is_badly_placed(&self, number: u32) -> bool {
        let is_under_way = |round: &Round| round.blocks.iter().any(|it| it.number == number);
        self.bad_places.iter().any(|bad| bad.number == number)
            || self.round.as_ref().is_some_and(is_under_way)
    }

    /// All holders have taken a block.
    pub(super) fn is_well_placed(&mut self, number: u32) {
        if self.bad_places.is_empty() {
            return;
        }
        let place = self.sequences[bytes_usize(u64::from(number))] & 1;
        self.bad_places
            .retain(|bad| (bad.number, bad.place) != (number, place));
    }

    /// A block goes to its other place before it counts. Somebody has it in this one.
    pub(in crate::shard::regions) fn write_again(&mut self, round: &mut Round, position: usize) {
        let block = &mut round.blocks[position];
        block.fate = Fate::Again;
        let at = bytes_usize(u64::from(block.number));
        // It is still, and counted once; it is written soon in any case.
        if std::mem::take(&mut block.owed) && std::mem::replace(&mut self.owed[at], true) {
            self.owed_total -= 1;
        }
        if !std::mem::replace(&mut self.queued[at], true) {
            self.queue.push_front(block.number);
        }
        self.seconds.push(block.number);
    }

    /// A block is about to be written.
    pub(super) fn attempt(&mut self, number: u32) -> Attempt {
        let before = self.seconds.len();
        self.seconds.retain(|&second| second != number);
        if self.seconds.len() < before {
            Attempt::Second
        } else {
            Attempt::First
        }
    }

    /// Regions that need a block are not written for a while. Its next write goes to the same
    /// place: in the other one somebody has what was relied on.
    pub(in crate::shard::regions) fn bar_block(
        &mut self,
        round: &mut Round,
        position: usize,
        now: Instant,
    ) {
        let refuser = round.refusers(position)[0];
        let block = &mut round.blocks[position];
        block.fate = Fate::Barred;
        self.sequences[bytes_usize(u64::from(block.number))] += 1;
        self.bar(Bar::Block(block.number), refuser, now);
    }

    /// No region of a block becomes dirty any more.
    pub(super) fn close(&self, number: u32, states: &RegionStates) {
        for region in self.space.regions(number) {
            let region = u32::try_from(region).expect("at most REGIONS_MAX");
            states.change(region, RegionState::Unwritten, RegionState::Sealed);
            states.change(region, RegionState::Clean, RegionState::Lost);
        }
    }

    fn block_of(&self, region: u32) -> u32 {
        let block = bytes_usize(u64::from(region)) / super::REGION_BLOCK_REGIONS;
        u32::try_from(block).expect("few blocks")
    }
}
