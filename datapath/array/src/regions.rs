//! Regions: runs of stripes that the region map calls clean or dirty.
//!
//! A region is *dirty* while writes to it may be under way or may be missing on a member, so that
//! after an unclean stop only dirty regions are resynchronised. A write begins only once its region
//! is dirty on the drives; the home shard (`shard/regions.rs`) writes the map and makes regions
//! clean again when nothing was written for a while and all members have flushed.
//!
//! The rules and their proof are in docs/on-disk.md, section 8.

mod reading;
mod states;
mod suspects;
#[cfg(test)]
mod tests;

use units::{MemberIndex, StripeIndex, Update, bytes_u64, bytes_usize};
use uuid::Uuid;

use self::reading::{Blocks, Copies};
pub(crate) use self::states::{RegionState, RegionStates};
pub use self::suspects::Suspects;
use crate::format::{
    REGION_BLOCK_BYTES, REGION_BLOCK_REGIONS, RegionBlock, RegionEntry, RegionKind, Superblock,
};
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
    /// By block.
    copies: Vec<Copies>,
    /// By block: no good copy was found, and nothing is known of its regions.
    unknown: Vec<bool>,
    blocks: Blocks,
    /// Blocks that are lost go on with numbers above this, or an old copy that can be read again
    /// some day would win.
    lost_from: u64,
    /// No region was written to by a later update, whatever a block says that was made up.
    latest: Update,
    /// Members, and the block whose copies they shall not have.
    to_erase: Vec<(MemberIndex, u32)>,
}

impl RegionMap {
    /// A map without blocks: nothing was written, everything is clean.
    #[must_use]
    pub fn new(space: RegionSpace, array: Uuid) -> RegionMap {
        let blocks = space.blocks();
        RegionMap {
            space,
            array,
            entries: vec![RegionEntry::default(); space.count()],
            sequences: vec![0; blocks],
            copies: vec![Copies::default(); blocks],
            unknown: vec![false; blocks],
            blocks: Blocks::AsWritten,
            lost_from: 0,
            latest: Update(u64::MAX),
            to_erase: Vec::new(),
        }
    }

    /// The map of a new array as [`RegionMap::first_blocks`] have it: every region is clean, or
    /// unwritten.
    #[must_use]
    pub fn first(space: RegionSpace, array: Uuid, kind: RegionKind) -> RegionMap {
        let mut map = RegionMap::new(space, array);
        for entry in &mut map.entries {
            entry.kind = kind;
        }
        map.sequences.fill(2);
        map.copies.fill(Copies::NEW);
        map.blocks = match kind {
            RegionKind::Unwritten => Blocks::All,
            RegionKind::Clean | RegionKind::Dirty => Blocks::Mapped,
        };
        map
    }

    /// The map of a new array that may have unwritten regions: all are.
    #[must_use]
    pub fn unwritten(space: RegionSpace, array: Uuid) -> RegionMap {
        RegionMap::first(space, array, RegionKind::Unwritten)
    }

    /// What a member of a new array is to hold of such a map, in both places of each block: by
    /// offset on the member.
    pub fn first_blocks(
        (space, array): (RegionSpace, Uuid),
        member: MemberIndex,
        first: RegionKind,
    ) -> impl Iterator<Item = (u64, [u8; REGION_BLOCK_BYTES])> {
        let blocks = u32::try_from(space.blocks()).expect("few blocks");
        let holds = move |block: &u32| space.holders(*block).any(|other| other == member);
        let places = |block| [(block, 2), (block, 1)];
        let places = (0..blocks).filter(holds).flat_map(places);
        places.map(move |(block, sequence)| {
            let last = space.regions(block).len();
            let told = |position: usize| {
                let kind = if position < last {
                    first
                } else {
                    RegionKind::Clean
                };
                entry(kind, Update(0))
            };
            let mut bytes = [0; REGION_BLOCK_BYTES];
            RegionBlock::encode_into((array, block, sequence), told, &mut bytes);
            (space.offset(block, sequence), bytes)
        })
    }

    /// How the array is cut.
    #[must_use]
    pub fn space(&self) -> &RegionSpace {
        &self.space
    }

    /// Whether the copies of a block differ, or are missing, on members that `usable` names.
    pub(crate) fn is_uneven(&self, block: u32, usable: impl Fn(MemberIndex) -> bool) -> bool {
        let at = bytes_usize(u64::from(block));
        let holders = self.space.holders(block).enumerate();
        let mut holders = holders.filter(|(_, member)| usable(*member));
        holders.any(|(holder, _)| self.copies[at].newest & (1 << holder) == 0)
    }

    /// Whether all blocks were written when the array was made, to one of their places.
    pub(crate) fn has_all_blocks(&self) -> bool {
        self.blocks.exist()
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

    /// Blocks of which no good copy was found, so that all of their regions are dirty.
    #[must_use]
    pub fn lost_blocks(&self) -> usize {
        self.unknown.iter().filter(|&&unknown| unknown).count()
    }

    /// How many regions are dirty.
    #[must_use]
    pub fn dirty(&self) -> usize {
        let is_dirty = |entry: &&RegionEntry| entry.kind == RegionKind::Dirty;
        self.entries.iter().filter(is_dirty).count()
    }

    /// The regions whose parity cannot be trusted: after an unclean stop those that are dirty, and
    /// all from `resynced_until` on.
    #[must_use]
    pub fn suspects(&self, clean: bool, resynced_until: StripeIndex) -> Suspects {
        self.suspects_by(resynced_until, |region| {
            let is_dirty = self.entries[region].kind == RegionKind::Dirty;
            // Of those that nobody can tell some were never written: a clean stop says nothing.
            let is_unknown = self.unknown[region / REGION_BLOCK_REGIONS];
            is_dirty && (!clean || (is_unknown && self.blocks.exist()))
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
            // When one becomes written, its parity agrees.
            let is_written = self.entries[region].kind != RegionKind::Unwritten;
            if is_suspect(region) || (end > resynced_until && is_written) {
                suspects.add(region);
            }
        }
        suspects
    }

    /// How many regions are not unwritten.
    #[must_use]
    pub fn written(&self) -> usize {
        let is_written = |entry: &&RegionEntry| entry.kind != RegionKind::Unwritten;
        self.entries.iter().filter(is_written).count()
    }

    /// Those that are not.
    #[must_use]
    pub fn written_regions(&self) -> Suspects {
        let is_written = |region: usize| self.entries[region].kind != RegionKind::Unwritten;
        Suspects::of(&self.space, is_written)
    }

    /// The regions that a member lacks which has missed what was written from update `base` on:
    /// `None` when that is everything.
    #[must_use]
    pub fn missed(&self, base: Update) -> Option<Suspects> {
        missed(&self.space, base, |region| self.entries[region])
    }

    /// Calls all regions dirty, on all copies.
    #[must_use]
    pub fn all_dirty(mut self) -> RegionMap {
        for entry in &mut self.entries {
            entry.kind = RegionKind::Dirty;
        }
        self.copies.fill(Copies::NEW);
        self
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
    match entry.kind {
        // When it is written, all members in use are zeroed first.
        RegionKind::Unwritten => false,
        RegionKind::Clean => later,
        RegionKind::Dirty => later || !planted::is(Fault::DirtyRegionsNotMissed),
    }
}

/// The regions that a member lacks which has missed what was written from update `base` on, in a
/// map of these entries: `None` when that is everything.
pub(crate) fn missed(
    space: &RegionSpace,
    base: Update,
    entry: impl Fn(usize) -> RegionEntry,
) -> Option<Suspects> {
    let is_written = |region: usize| entry(region).kind != RegionKind::Unwritten;
    let skipped = |region: usize| {
        let new = entry(region) == self::entry(RegionKind::Dirty, Update(0));
        new && planted::is(Fault::PassSkipsNewRegions)
    };
    if base > Update(0) {
        let of = |region: usize| is_missed(entry(region), base) && !skipped(region);
        return Some(Suspects::of(space, of));
    }
    let all_written = (0..space.count()).all(is_written);
    let of = |region: usize| is_written(region) && !skipped(region);
    (!all_written).then(|| Suspects::of(space, of))
}

pub(crate) const fn entry(kind: RegionKind, epoch: Update) -> RegionEntry {
    RegionEntry { kind, epoch }
}
