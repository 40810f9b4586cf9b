//! What shards may do in a region now: one byte for each.

use queues::sync::{AtomicBool, AtomicU8, Ordering};
use units::{MemberIndex, bytes_usize};

use super::{RegionMap, RegionSpace};
use crate::format::RegionKind;
use crate::planted::{self, Fault};

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
    /// Unwritten on the drives, or about to be written: it reads as zeroes. The home is asked
    /// before the first write.
    Unwritten = 5,
    /// Unwritten, and its members or the map's block cannot be written: nor can the region, for
    /// good or until the home tries again.
    Sealed = 6,
}

/// The states of all regions.
#[derive(Debug)]
pub(crate) struct RegionStates {
    pub(crate) space: RegionSpace,
    states: Vec<AtomicU8>,
    /// What waited for the start does not any more.
    is_open: AtomicBool,
    /// Some region may be unwritten.
    has_unwritten: bool,
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
                let kind = map.entries[region].kind;
                let dirty = even && kind == RegionKind::Dirty;
                let state = if kind == RegionKind::Unwritten {
                    RegionState::Unwritten
                } else if dirty && planted::is(Fault::WriteBeforeStart) {
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
            has_unwritten: map.written() < map.space.count(),
        }
    }

    /// Whether some region may be unwritten.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.has_unwritten
    }

    /// By region: it reads as zeroes now. For a planted fault.
    pub(crate) fn unwritten(&self) -> Vec<bool> {
        let regions = 0..u32::try_from(self.space.count()).expect("at most REGIONS_MAX");
        regions.map(|region| self.is_unwritten(region)).collect()
    }

    /// Whether the region reads as zeroes, whatever lies on the members. Who has seen that it does
    /// not, or has heard from somebody who has, is never told so again.
    #[inline]
    pub(crate) fn is_unwritten(&self, region: u32) -> bool {
        self.states[bytes_usize(u64::from(region))].load(Ordering::Acquire)
            >= RegionState::Unwritten as u8
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
            4 => RegionState::Waiting,
            5 => RegionState::Unwritten,
            _ => RegionState::Sealed,
        }
    }

    /// Whether the region is dirty on the drives and may be written. The home may just be looking
    /// who writes there.
    #[inline]
    pub(crate) fn is_dirty(&self, region: u32) -> bool {
        let state = self.states[bytes_usize(u64::from(region))].load(Ordering::Relaxed);
        state == RegionState::Dirty as u8 || state == RegionState::Clearing as u8
    }

    /// Whether the region can never be written.
    #[inline]
    pub(crate) fn is_lost(&self, region: u32) -> bool {
        let state = self.states[bytes_usize(u64::from(region))].load(Ordering::Acquire);
        state == RegionState::Lost as u8 || state >= RegionState::Sealed as u8
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
            RegionState::Clean
            | RegionState::Lost
            | RegionState::Waiting
            | RegionState::Unwritten
            | RegionState::Sealed => false,
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
