//! Regions: runs of stripes that the region map calls clean or dirty.
//!
//! A region is *dirty* while writes to it may be under way or may be missing on a member, so that
//! after an unclean stop only dirty regions are resynchronised. A write begins only once its region
//! is dirty on the drives; the home shard (`shard/regions.rs`) writes the map and makes regions
//! clean again when nothing was written for a while and all members have flushed.
//!
//! The rules and their proof are in docs/on-disk.md, section 8.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use units::{MemberIndex, StripeIndex, Update, bytes_u64, bytes_usize};
use uuid::Uuid;

use crate::format::{FormatError, REGION_BLOCK_REGIONS, RegionBlock, RegionEntry, Superblock};
use crate::geometry::Geometry;
use crate::planted::{self, Fault};

/// A region covers at least so many bytes of user data.
const REGION_BYTES_MIN: u64 = 1 << 20;
/// The most regions of an array.
const REGIONS_MAX: u64 = 1 << 20;

/// How an array's stripes are cut into regions, and where the map of them lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpace {
    stripes: u64,
    shift: u32,
    groups: usize,
    group_members: usize,
    copies: usize,
    area_offset: u64,
}

impl RegionSpace {
    /// The stripes of one region in a new array whose map has an area of so many bytes: the least
    /// power of two that covers 1 MiB of user data and needs no more regions than there is room.
    #[must_use]
    pub fn stripes_for(geometry: &Geometry, area_bytes: u64) -> u32 {
        let room = bytes_u64(RegionBlock::room(area_bytes) * REGION_BLOCK_REGIONS);
        let most = room.clamp(1, REGIONS_MAX);
        let by_size = REGION_BYTES_MIN.div_ceil(geometry.stripe_bytes());
        let stripes = by_size.max(geometry.stripes().div_ceil(most));
        u32::try_from(stripes.next_power_of_two()).unwrap_or(1 << 31)
    }

    /// Regions of `stripes` stripes each; `None` when that is no power of two or the map has no
    /// room in its area.
    #[must_use]
    pub fn new(
        geometry: &Geometry,
        stripes: u32,
        (area_offset, area_bytes): (u64, u64),
    ) -> Option<RegionSpace> {
        if !stripes.is_power_of_two() {
            return None;
        }
        let space = RegionSpace {
            stripes: geometry.stripes(),
            shift: stripes.ilog2(),
            groups: geometry.groups(),
            group_members: geometry.group_members(),
            copies: geometry.parity() + 1,
            area_offset,
        };
        let fits = space.blocks() <= RegionBlock::room(area_bytes)
            && bytes_u64(space.count()) <= REGIONS_MAX;
        fits.then_some(space)
    }

    /// How many regions.
    #[must_use]
    pub fn count(&self) -> usize {
        bytes_usize(self.stripes.div_ceil(1 << self.shift))
    }

    /// How many blocks the map has.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.count().div_ceil(REGION_BLOCK_REGIONS)
    }

    /// The region of a stripe.
    #[inline]
    #[must_use]
    pub fn region(&self, stripe: StripeIndex) -> u32 {
        u32::try_from(stripe.0 >> self.shift).expect("at most REGIONS_MAX")
    }

    /// First stripe of a region, and the stripe after its last.
    #[must_use]
    pub fn stripes(&self, region: u32) -> (StripeIndex, StripeIndex) {
        let first = u64::from(region) << self.shift;
        let end = (first + (1 << self.shift)).min(self.stripes);
        (StripeIndex(first), StripeIndex(end))
    }

    /// The regions that a block describes.
    #[must_use]
    pub fn regions(&self, block: u32) -> std::ops::Range<usize> {
        let first = bytes_usize(u64::from(block)) * REGION_BLOCK_REGIONS;
        first..(first + REGION_BLOCK_REGIONS).min(self.count())
    }

    /// The members that hold copies of a block: M + 1 of one group, so that one copy is left as
    /// long as the group has its data.
    pub fn holders(&self, block: u32) -> impl Iterator<Item = MemberIndex> + use<> {
        let block = bytes_usize(u64::from(block));
        let first = block % self.groups * self.group_members;
        let (turn, n) = (block / self.groups, self.group_members);
        (0..self.copies).map(move |copy| MemberIndex::from_at(first + (turn + copy) % n))
    }

    /// Where on a member the write `sequence` of a block goes, in bytes.
    #[must_use]
    pub fn offset(&self, block: u32, sequence: u64) -> u64 {
        self.area_offset + RegionBlock::offset(block, sequence)
    }
}

impl Superblock {
    /// How the array is cut into regions.
    ///
    /// # Panics
    /// When [`Superblock::region_stripes`] does not fit the layout, as every decoded one does.
    #[must_use]
    pub fn regions(&self) -> RegionSpace {
        let area = self.layout.region_map;
        RegionSpace::new(
            &self.geometry,
            self.region_stripes,
            (area.offset, area.length),
        )
        .expect("a decoded superblock has a map that fits")
    }
}

/// The region map as the drives have it, gathered copy by copy.
#[derive(Clone, Debug)]
pub struct RegionMap {
    space: RegionSpace,
    array: Uuid,
    entries: Vec<RegionEntry>,
    sequences: Vec<u64>,
    /// By block: bit i for holder i whose copy was looked at, and whose copy is the newest.
    seen: Vec<u64>,
    newest: Vec<u64>,
    /// By block: a copy could not be read.
    damaged: Vec<bool>,
    /// By block: no good copy was found, and nothing is known of its regions.
    unknown: Vec<bool>,
}

impl RegionMap {
    /// The map of a new array: nothing was written, everything is clean.
    #[must_use]
    pub fn new(space: RegionSpace, array: Uuid) -> RegionMap {
        let blocks = space.blocks();
        RegionMap {
            space,
            array,
            entries: vec![RegionEntry::default(); space.count()],
            sequences: vec![0; blocks],
            seen: vec![0; blocks],
            newest: vec![0; blocks],
            damaged: vec![false; blocks],
            unknown: vec![false; blocks],
        }
    }

    /// How the array is cut.
    #[must_use]
    pub fn space(&self) -> &RegionSpace {
        &self.space
    }

    /// Takes one of the two places of `block` on `member`, a member that is in sync. Copies that
    /// nobody shall hold are ignored.
    pub fn take(&mut self, member: MemberIndex, block: u32, bytes: &[u8]) {
        let at = bytes_usize(u64::from(block));
        let Some(holder) = self.space.holders(block).position(|other| other == member) else {
            return;
        };
        let bit = 1_u64 << holder;
        self.seen[at] |= bit;
        let found = match RegionBlock::decode(bytes) {
            Ok(found) if found.array == self.array && found.number == block => found,
            Err(FormatError::Blank) => return self.agree(at, bit, 0),
            Ok(_) | Err(_) => {
                // Torn when the engine was stopped while it was written; the other place counts.
                self.damaged[at] = true;
                return;
            }
        };
        let oldest = planted::is(Fault::OldestRegionsDecide) && found.sequence < self.sequences[at];
        if found.sequence > self.sequences[at] || oldest {
            self.sequences[at] = found.sequence;
            self.newest[at] = 0;
            for (entry, region) in found.entries.iter().zip(self.space.regions(block)) {
                self.entries[region] = *entry;
            }
        }
        self.agree(at, bit, found.sequence);
    }

    fn agree(&mut self, block: usize, holder: u64, sequence: u64) {
        if self.sequences[block] == sequence {
            self.newest[block] |= holder;
        }
    }

    /// All copies were taken. Blocks of which no good copy was found are called dirty, unless
    /// they were never written.
    pub fn complete(&mut self) {
        for block in 0..self.space.blocks() {
            let number = u32::try_from(block).expect("few blocks");
            let blank = self.sequences[block] == 0 && !self.damaged[block] && self.seen[block] != 0;
            if blank || self.newest[block] != 0 && self.sequences[block] > 0 {
                continue;
            }
            self.newest[block] = 0;
            self.unknown[block] = true;
            for region in self.space.regions(number) {
                self.entries[region].dirty = true;
            }
        }
    }

    /// Whether the copies of a block differ, or are missing, on members that `usable` names.
    pub(crate) fn is_uneven(&self, block: u32, usable: impl Fn(MemberIndex) -> bool) -> bool {
        let at = bytes_usize(u64::from(block));
        let holders = self.space.holders(block).enumerate();
        let mut holders = holders.filter(|(_, member)| usable(*member));
        holders.any(|(holder, _)| self.newest[at] & (1 << holder) == 0)
    }

    pub(crate) fn entry(&self, region: usize) -> RegionEntry {
        self.entries[region]
    }

    pub(crate) fn sequence(&self, block: usize) -> u64 {
        self.sequences[block]
    }

    pub(crate) fn array(&self) -> Uuid {
        self.array
    }

    /// How many regions are dirty.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.entries.iter().filter(|entry| entry.dirty).count()
    }

    /// The regions whose parity cannot be trusted: after an unclean stop those that are dirty, and
    /// all from `resynced_until` on.
    #[must_use]
    pub fn suspects(&self, clean: bool, resynced_until: StripeIndex) -> Suspects {
        self.suspects_by(resynced_until, |region| {
            self.entries[region].dirty && !clean
        })
    }

    /// As `suspects`, when the last engine has told that parity agrees where regions are dirty
    /// ([`crate::BegunWrites::doubt`]): those of which not even the map can be read, and all from
    /// `resynced_until` on.
    #[must_use]
    pub fn suspects_when_told(&self, resynced_until: StripeIndex) -> Suspects {
        let is_unknown = |region: usize| self.unknown[region / REGION_BLOCK_REGIONS];
        self.suspects_by(resynced_until, is_unknown)
    }

    fn suspects_by(
        &self,
        resynced_until: StripeIndex,
        is_suspect: impl Fn(usize) -> bool,
    ) -> Suspects {
        let mut suspects = Suspects::none(&self.space);
        for region in 0..self.entries.len() {
            let number = u32::try_from(region).expect("at most REGIONS_MAX");
            let (_, end) = self.space.stripes(number);
            if is_suspect(region) || end > resynced_until {
                suspects.words[region / 64] |= 1 << (region % 64);
            }
        }
        suspects
    }

    /// The regions that a member lacks which has missed what was written from update `base` on:
    /// `None` when that is everything.
    #[must_use]
    pub fn missed(&self, base: Update) -> Option<Suspects> {
        let of = |region: usize| is_missed(self.entries[region], base);
        (base > Update(0)).then(|| Suspects::of(&self.space, of))
    }

    /// Calls all regions dirty, on all copies.
    #[must_use]
    pub fn all_dirty(mut self) -> RegionMap {
        for entry in &mut self.entries {
            entry.dirty = true;
        }
        self.newest.fill(u64::MAX);
        self
    }
}

/// A set of regions: those whose parity is not trusted until a resync has been there, or those
/// that a member has missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspects {
    space: RegionSpace,
    words: Vec<u64>,
}

impl Suspects {
    /// None.
    #[must_use]
    pub fn none(space: &RegionSpace) -> Suspects {
        Suspects {
            space: *space,
            words: vec![0; space.count().div_ceil(64)],
        }
    }

    /// All.
    #[must_use]
    pub(crate) fn all(space: &RegionSpace) -> Suspects {
        let mut suspects = Suspects::none(space);
        for region in 0..space.count() {
            suspects.words[region / 64] |= 1 << (region % 64);
        }
        suspects
    }

    pub(crate) fn space(&self) -> &RegionSpace {
        &self.space
    }

    /// Those of which `is` says so.
    pub(crate) fn of(space: &RegionSpace, is: impl Fn(usize) -> bool) -> Suspects {
        let mut suspects = Suspects::none(space);
        for region in (0..space.count()).filter(|region| is(*region)) {
            suspects.words[region / 64] |= 1 << (region % 64);
        }
        suspects
    }

    /// How many regions there are, whether or not they are in it.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.space.count()
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        let ones = |word: &u64| bytes_usize(u64::from(word.count_ones()));
        self.words.iter().map(ones).sum()
    }

    /// How many end behind `from`.
    pub(crate) fn count_from(&self, from: StripeIndex) -> u64 {
        let region = bytes_usize(from.0 >> self.space.shift);
        let Some((first, behind)) = self.words.get(region / 64..).and_then(<[u64]>::split_first)
        else {
            return 0;
        };
        let ones = |word: &u64| u64::from(word.count_ones());
        ones(&(first >> (region % 64))) + behind.iter().map(ones).sum::<u64>()
    }

    /// How many regions end behind `from`, whether or not they are in it.
    pub(crate) fn regions_from(&self, from: StripeIndex) -> u64 {
        bytes_u64(self.space.count()).saturating_sub(from.0 >> self.space.shift)
    }

    /// Whether the stripe lies in such a region.
    #[must_use]
    pub fn has(&self, stripe: StripeIndex) -> bool {
        self.has_region(bytes_usize(stripe.0 >> self.space.shift))
    }

    fn has_region(&self, region: usize) -> bool {
        self.words[region / 64] & (1 << (region % 64)) != 0
    }

    /// How many stripes lie in such regions from `from` on.
    #[must_use]
    pub fn stripes_from(&self, from: StripeIndex) -> u64 {
        let mut sum = 0;
        let mut next = from;
        while let Some((start, end)) = self.run_from(next) {
            sum += end.0 - start.0;
            next = end;
        }
        sum
    }

    /// The first run of such stripes from `from` on: first, and the one after the last.
    #[must_use]
    pub fn run_from(&self, from: StripeIndex) -> Option<(StripeIndex, StripeIndex)> {
        let count = self.space.count();
        let mut region = bytes_usize(from.0 >> self.space.shift);
        while region < count && !self.has_region(region) {
            // Whole words at a time where nothing is.
            region = if region.is_multiple_of(64) && self.words[region / 64] == 0 {
                region + 64
            } else {
                region + 1
            };
        }
        // The last region may be cut short, and then the end lies in it.
        if region >= count || from.0 >= self.space.stripes {
            return None;
        }
        let first = u32::try_from(region).expect("at most REGIONS_MAX");
        while region < count && self.has_region(region) {
            region += 1;
        }
        let last = u32::try_from(region - 1).expect("at most REGIONS_MAX");
        let start = self.space.stripes(first).0.max(from);
        Some((start, self.space.stripes(last).1))
    }
}

/// What a region may be used for; read by all shards, changed by the home, and from `Clearing` to
/// `Dirty` by whoever writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RegionState {
    /// Not dirty on the drives: the home is asked before the first write.
    Clean = 0,
    /// Dirty on the drives: writes may begin.
    Dirty = 1,
    /// Dirty on the drives, and about to be clean unless somebody writes.
    Clearing = 2,
    /// The map's block cannot be written any more: nor can the region.
    Lost = 3,
    /// Dirty on the drives, from before the start of the array, which is not durable yet.
    Waiting = 4,
}

/// The states of all regions.
#[derive(Debug)]
pub(crate) struct RegionStates {
    pub(crate) space: RegionSpace,
    states: Vec<AtomicU8>,
    /// What waited for the start does not any more.
    is_open: AtomicBool,
}

impl RegionStates {
    /// By `map`. A region is dirty only if all copies of its block on members that `usable` names
    /// say so, and nothing may be written before [`RegionStates::open`]: until the records of the
    /// start are durable, a member that is not here counts at the next start as one that missed
    /// nothing.
    pub(crate) fn new(map: &RegionMap, usable: impl Fn(MemberIndex) -> bool) -> RegionStates {
        let mut states = Vec::with_capacity(map.space.count());
        for block in 0..map.space.blocks() {
            let block = u32::try_from(block).expect("few blocks");
            let even = !map.is_uneven(block, &usable);
            for region in map.space.regions(block) {
                let dirty = even && map.entries[region].dirty;
                let state = if dirty && planted::is(Fault::WriteBeforeStart) {
                    RegionState::Dirty
                } else if dirty {
                    RegionState::Waiting
                } else {
                    RegionState::Clean
                };
                states.push(AtomicU8::new(state as u8));
            }
        }
        RegionStates {
            space: map.space,
            states,
            is_open: AtomicBool::new(false),
        }
    }

    /// The start is durable. Only the first call does something.
    pub(crate) fn open(&self) {
        if self.is_open.swap(true, Ordering::Relaxed) {
            return;
        }
        for state in &self.states {
            if state.load(Ordering::Relaxed) == RegionState::Waiting as u8 {
                state.store(RegionState::Dirty as u8, Ordering::Release);
            }
        }
    }

    /// Whether the start is durable.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, region: u32) -> RegionState {
        match self.states[bytes_usize(u64::from(region))].load(Ordering::Acquire) {
            0 => RegionState::Clean,
            1 => RegionState::Dirty,
            2 => RegionState::Clearing,
            3 => RegionState::Lost,
            _ => RegionState::Waiting,
        }
    }

    /// Whether the region is dirty on the drives and may be written. The home may just be looking
    /// who writes there.
    #[inline]
    pub(crate) fn is_dirty(&self, region: u32) -> bool {
        let state = self.states[bytes_usize(u64::from(region))].load(Ordering::Relaxed);
        state == RegionState::Dirty as u8 || state == RegionState::Clearing as u8
    }

    /// Whether writes to the region may begin now.
    #[inline]
    pub(crate) fn begin_write(&self, region: u32) -> bool {
        match self.get(region) {
            RegionState::Dirty => true,
            RegionState::Clearing => {
                self.change(region, RegionState::Clearing, RegionState::Dirty)
                    || self.get(region) == RegionState::Dirty
            }
            RegionState::Clean | RegionState::Lost | RegionState::Waiting => false,
        }
    }

    /// From one state to another, unless it is not in that state any more.
    pub(crate) fn change(&self, region: u32, from: RegionState, to: RegionState) -> bool {
        let word = &self.states[bytes_usize(u64::from(region))];
        let changed =
            word.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst);
        changed.is_ok()
    }
}

/// Whether a member that left by update `base` may lack what was written to a region. What was
/// written before is dirty as long as that member has not flushed it; what was written after was
/// called clean, if at all, at `base` or later.
pub(crate) fn is_missed(entry: RegionEntry, base: Update) -> bool {
    let later = if planted::is(Fault::EpochOffByOne) {
        entry.epoch > base
    } else {
        entry.epoch >= base
    };
    later || (entry.dirty && !planted::is(Fault::DirtyRegionsNotMissed))
}

pub(crate) const fn entry(dirty: bool, epoch: Update) -> RegionEntry {
    RegionEntry { dirty, epoch }
}
