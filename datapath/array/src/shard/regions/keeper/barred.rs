//! Regions that are not written for a while, because a member that is needed refuses a block for
//! them: each try takes its time, and others wait for that. They are tried again when they are
//! asked for after that, or when the member is out.

use std::time::Duration;

use units::{Instant, MemberIndex};

use super::RegionKeeper;
use crate::regions::{RegionState, RegionStates};

/// From one try to the next.
const PAUSE: Duration = Duration::from_secs(10);

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard::regions) enum Bar {
    /// Zeroes of this region.
    Zeroes(u32),
}

/// See the module. There is at most one for each region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barred {
    bar: Bar,
    member: MemberIndex,
    incarnation: u32,
    until: Instant,
}

impl RegionKeeper {
    /// Whoever needs this fails until `lift_bars` takes it back.
    pub(in crate::shard::regions) fn bar(
        &mut self,
        bar: Bar,
        (member, incarnation): (MemberIndex, u32),
        now: Instant,
    ) {
        let Bar::Zeroes(region) = bar;
        self.zeroing.forbid(region);
        self.barred.push(Barred {
            bar,
            member,
            incarnation,
            until: now + PAUSE,
        });
    }

    /// What is barred for long enough, or by a member that is out, may be asked for again. How
    /// much.
    pub(in crate::shard::regions) fn lift_bars(
        &mut self,
        now: Instant,
        is_out: impl Fn(MemberIndex, u32) -> bool,
        states: &RegionStates,
    ) -> usize {
        let is_over = |one: &mut Barred| now >= one.until || is_out(one.member, one.incarnation);
        let over: Vec<Barred> = self.barred.extract_if(.., is_over).collect();
        for &Barred { bar, .. } in &over {
            let Bar::Zeroes(region) = bar;
            self.zeroing.allow(region);
            states.change(region, RegionState::Sealed, RegionState::Unwritten);
        }
        over.len()
    }

    /// Whether something is barred.
    pub(in crate::shard::regions) fn has_bars(&self) -> bool {
        !self.barred.is_empty()
    }

    /// When something is not barred any more.
    pub(super) fn bars_end(&self) -> Option<Instant> {
        self.barred.iter().map(|one| one.until).min()
    }
}
