//! What every shard of an array must agree on: who the members are and how far they can be
//! trusted. Immutable; a change is a new map with a higher serial, installed on every shard.

use std::sync::Arc;

use units::{
    ArrayIndex, DriveIndex, MemberIndex, MemberSet, ReactorIndex, Role, RoleSet, StripeIndex,
    Update, bytes_u64,
};

use crate::format::{HedgedReads, WriteHole};
use crate::geometry::Geometry;
use crate::losses::LostBlocks;
use crate::owners::Owners;
use crate::planted::{self, Fault};
use crate::regions::Suspects;

/// One member as the data path sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapMember {
    /// Its drive, when it has one.
    pub drive: Option<DriveIndex>,
    /// Counts the drives that filled this place.
    pub incarnation: u32,
    /// First byte of the data area on the drive.
    pub data_offset: u64,
    /// Where a write shows whether the drive takes any: nobody reads what is there.
    pub trial_offset: u64,
    /// What it may be used for.
    pub state: MapState,
}

/// What a member may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// Holds all its chunks.
    InSync,
    /// Holds its chunks of stripes below `until`, of regions that it has not missed
    /// ([`ArrayMap::missed`]), and of cells of the open window that are done.
    Rebuilding {
        /// First stripe that is not filled.
        until: StripeIndex,
    },
    /// Holds nothing that may be used.
    Lost,
}

/// A background pass over the stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Makes parity agree with data again, after an unclean stop or on a new array.
    Resync,
    /// Fills members that are rebuilding.
    Rebuild,
    /// Looks whether the chunks of every stripe agree.
    Scrub,
}

/// The stripes that the background pass works on now. Those below are done, those above are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Which pass.
    pub pass: Pass,
    /// First stripe.
    pub start: StripeIndex,
    /// The stripe after the last.
    pub end: StripeIndex,
    /// Of a rebuild: the members that it fills.
    pub fills: MemberSet,
    /// Serial of the map that opened it.
    pub opened: u64,
}

/// See the module.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "a hold can be given up whether or not anything may be written"
)]
pub struct ArrayMap {
    /// Which array.
    pub array: ArrayIndex,
    /// Orders the maps of one assembly.
    pub serial: u64,
    /// Acknowledgements of tickets planned by this map wait until this serial is effective.
    pub barrier: u64,
    /// The durable configuration behind it.
    pub update: Update,
    /// The fixed numbers.
    pub geometry: Geometry,
    /// By `MemberIndex`.
    pub members: Vec<MapMember>,
    /// Members of which nobody knows what they hold and that the array cannot do without, by
    /// `MemberIndex`.
    pub hopeless: Vec<bool>,
    /// Members that fail and that are waited for, by `MemberIndex`.
    pub held: Vec<bool>,
    /// How often a member that was held was found to work, by `MemberIndex`.
    pub released: Vec<u32>,
    /// They were waited for long enough: what needs them fails until they work again.
    pub given_up: bool,
    /// Parity of stripes below agrees with data.
    pub trusted_until: StripeIndex,
    /// Parity of stripes outside of these regions agrees with data, too.
    pub suspects: Arc<Suspects>,
    /// By `MemberIndex`: the regions that a rebuilding member lacks; all when there are none here.
    pub missed: Vec<Option<Arc<Suspects>>>,
    /// Blocks that nobody can tell any more: reads of them fail until they are written.
    pub lost_blocks: Arc<LostBlocks>,
    /// The background pass at work.
    pub window: Option<Window>,
    /// The life of pieces of the log that are written now; what [`ArrayMap::log_from`] says is
    /// durable, and pieces of earlier lives are dead.
    pub log_life: u64,
    /// See `log_life`.
    pub log_from: u64,
    /// What closes the write hole.
    pub write_hole: WriteHole,
    /// Which reads can be given up.
    pub hedged_reads: HedgedReads,
    /// Who owns which stripes.
    pub owners: Arc<Owners>,
    /// The reactor whose shard writes metadata.
    pub home: ReactorIndex,
    /// Metadata could not be written: no more writes.
    pub read_only: bool,
}

impl ArrayMap {
    /// Stripes whose parity may not agree with data: what a lost member has there cannot be told.
    /// Copies tell one version or another, which is as good.
    #[must_use]
    pub fn stripes_untrusted(&self) -> u64 {
        let (k, m) = (self.geometry.data(), self.geometry.parity());
        if k == 1 || m == 0 {
            return 0;
        }
        self.suspects.stripes_from(self.trusted_until)
    }

    /// Whether every member is in sync and all parity is trusted.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.trusted_until.0 >= self.geometry.stripes()
            && self
                .members
                .iter()
                .all(|member| member.state == MapState::InSync)
    }

    /// Whether every member is in sync.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let in_sync = |member: &MapMember| member.state == MapState::InSync;
        self.members.iter().all(in_sync)
    }

    /// The reactor that owns `stripe`; nobody while it goes from one to another.
    #[inline]
    #[must_use]
    pub fn owner(&self, stripe: StripeIndex) -> Option<ReactorIndex> {
        self.owners.of(self.geometry.bucket(stripe))
    }

    /// The roles of `stripe` that hold nothing usable, when `filled` tells whether the cell in
    /// question was done by the open window. A shard that does not own the stripe says no.
    #[must_use]
    pub fn lost(&self, stripe: StripeIndex, filled: bool) -> RoleSet {
        let mut lost = RoleSet::EMPTY;
        for position in 0..self.members.len() {
            if self.usable(position, stripe, filled) {
                continue;
            }
            if let Some(role) = self.geometry.role(stripe, MemberIndex::from_at(position)) {
                lost = lost.with(role);
            }
        }
        lost
    }

    fn usable(&self, position: usize, stripe: StripeIndex, filled: bool) -> bool {
        match self.members[position].state {
            MapState::InSync => true,
            MapState::Rebuilding { .. } => {
                !self.lacks(position, stripe) || (filled && self.is_filled(position, stripe))
            }
            MapState::Lost => false,
        }
    }

    /// Whether a rebuilding member lacks its chunk of `stripe`, as far as closed windows tell.
    fn lacks(&self, position: usize, stripe: StripeIndex) -> bool {
        let MapState::Rebuilding { until } = self.members[position].state else {
            return false;
        };
        let missed = self.missed[position].as_ref();
        stripe >= until && missed.is_none_or(|missed| missed.has(stripe))
    }

    /// Whether the open window fills a rebuilding member's chunk of `stripe`.
    fn is_filled(&self, position: usize, stripe: StripeIndex) -> bool {
        let fills = |window: &Window| {
            window.fills.has(MemberIndex::from_at(position))
                || planted::is(Fault::WindowFillsEverybody)
        };
        self.in_window(Pass::Rebuild, stripe) && self.window.as_ref().is_some_and(fills)
    }

    /// The first stripe from `from` on that a rebuilding member lacks.
    pub(crate) fn next_lacking(&self, position: usize, from: StripeIndex) -> Option<StripeIndex> {
        let MapState::Rebuilding { until } = self.members[position].state else {
            return None;
        };
        let next = until.max(from);
        match &self.missed[position] {
            None => (next.0 < self.geometry.stripes()).then_some(next),
            Some(missed) => missed.run_from(next).map(|(first, _)| first),
        }
    }

    /// How many stripes rebuilding members lack, and how many they lacked when they came. One that
    /// several lack counts for each: they need not be filled together.
    #[must_use]
    pub fn lacking(&self) -> (u64, u64) {
        let (mut left, mut all) = (0, 0);
        let stripes = self.geometry.stripes();
        for (member, missed) in self.members.iter().zip(&self.missed) {
            let MapState::Rebuilding { until } = member.state else {
                continue;
            };
            let behind = |from: StripeIndex| match missed {
                Some(missed) => missed.stripes_from(from),
                None => stripes.saturating_sub(from.0),
            };
            left += behind(until);
            all += behind(StripeIndex(0));
        }
        // One in so many stripes is of a member's group.
        let groups = bytes_u64(self.geometry.groups());
        (left / groups, all / groups)
    }

    /// Whether parity of `stripe` agrees with data; `filled` as for [`ArrayMap::lost`].
    #[must_use]
    pub fn parity_trusted(&self, stripe: StripeIndex, filled: bool) -> bool {
        stripe < self.trusted_until
            || !self.suspects.has(stripe)
            || (filled && self.in_window(Pass::Resync, stripe))
    }

    fn in_window(&self, pass: Pass, stripe: StripeIndex) -> bool {
        self.window.is_some_and(|window| {
            window.pass == pass && window.start <= stripe && stripe < window.end
        })
    }

    /// Whether some pass works on `stripe` now.
    pub(crate) fn is_in_a_window(&self, stripe: StripeIndex) -> bool {
        let covers = |window: Window| window.start <= stripe && stripe < window.end;
        self.window.is_some_and(covers)
    }

    /// Whether `next` says nothing else than this one, but for how far passes are and who owns
    /// what: how a stripe is planned does not depend on who does it.
    pub(crate) fn differs_by_passes(&self, next: &ArrayMap) -> bool {
        let place = |member: &MapMember| {
            let state = match member.state {
                MapState::Rebuilding { .. } => MapState::Rebuilding {
                    until: StripeIndex(0),
                },
                state @ (MapState::InSync | MapState::Lost) => state,
            };
            MapMember { state, ..*member }
        };
        let ArrayMap {
            array,
            serial: _,
            barrier,
            update: _,
            geometry,
            members,
            hopeless,
            held,
            released,
            given_up,
            // How far passes are.
            trusted_until: _,
            suspects: _,
            missed: _,
            lost_blocks,
            window: _,
            log_life,
            log_from,
            write_hole,
            hedged_reads,
            owners: _,
            home,
            read_only,
        } = self;
        *array == next.array
            && *barrier == next.barrier
            && *geometry == next.geometry
            && members.iter().map(place).eq(next.members.iter().map(place))
            && *hopeless == next.hopeless
            && *held == next.held
            && *released == next.released
            && *given_up == next.given_up
            && Arc::ptr_eq(lost_blocks, &next.lost_blocks)
            && *log_life == next.log_life
            && *log_from == next.log_from
            && *write_hole == next.write_hole
            && *hedged_reads == next.hedged_reads
            && *home == next.home
            && *read_only == next.read_only
    }

    /// The roles of `stripe` whose members are waiting to be filled.
    #[must_use]
    pub fn unfilled(&self, stripe: StripeIndex) -> RoleSet {
        let mut roles = RoleSet::EMPTY;
        for position in 0..self.members.len() {
            if !self.lacks(position, stripe) {
                continue;
            }
            if let Some(role) = self.geometry.role(stripe, MemberIndex::from_at(position)) {
                roles = roles.with(role);
            }
        }
        roles
    }

    /// The roles of `stripe` whose members the open window is to fill there.
    #[must_use]
    pub fn to_fill(&self, stripe: StripeIndex) -> RoleSet {
        let mut roles = RoleSet::EMPTY;
        let Some(window) = self
            .window
            .filter(|_| self.in_window(Pass::Rebuild, stripe))
        else {
            return roles;
        };
        let group = self.geometry.group_members();
        let first = self.geometry.group(stripe).at() * group;
        for position in first..first + group {
            let member = MemberIndex::from_at(position);
            if window.fills.has(member)
                && self.lacks(position, stripe)
                && let Some(role) = self.geometry.role(stripe, member)
            {
                roles = roles.with(role);
            }
        }
        roles
    }

    /// The member that plays `role` in `stripe`.
    #[inline]
    #[must_use]
    pub fn member(&self, stripe: StripeIndex, role: Role) -> (MemberIndex, &MapMember) {
        let index = self.geometry.member(stripe, role);
        (index, &self.members[index.at()])
    }

    /// Whether a member of the stripe's group failed that the group cannot do without. Some write
    /// may have reached a part of its members only, so nothing may be reconstructed there: the
    /// blocks that are where they belong are served, all else fails.
    #[inline]
    #[must_use]
    pub fn is_torn(&self, stripe: StripeIndex) -> bool {
        let members = self.geometry.group_members();
        let first = self.geometry.group(stripe).at() * members;
        self.hopeless[first..first + members].contains(&true)
    }

    /// Whether nothing may begin that could as well be done later: members are waited for, or the
    /// array takes no writes.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.read_only || self.hopeless.contains(&true) || self.is_holding()
    }

    /// Whether some member is waited for.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.held.iter().any(|held| *held)
    }

    /// Whether what changes `stripe` fails because a member of its group was waited for in vain.
    #[inline]
    #[must_use]
    pub fn is_given_up(&self, stripe: StripeIndex) -> bool {
        self.given_up && self.waits_in_group(stripe)
    }

    /// As `is_given_up`, of the stripe of a block.
    pub(crate) fn gives_up(&self, block: u64) -> bool {
        self.given_up && self.is_given_up(self.geometry.locate(block).0)
    }

    /// Whether a member of the stripe's group is waited for.
    #[must_use]
    pub(crate) fn waits_in_group(&self, stripe: StripeIndex) -> bool {
        let members = self.geometry.group_members();
        let first = self.geometry.group(stripe).at() * members;
        self.held[first..first + members].contains(&true)
    }

    /// Whether the failure of `member`'s filling `incarnation` is dealt with: it is out, replaced,
    /// or cannot be done without.
    #[inline]
    #[must_use]
    pub fn settled(&self, member: MemberIndex, incarnation: u32) -> bool {
        self.is_out(member, incarnation) || self.hopeless[member.at()]
    }

    /// Whether the members in sync of its group are enough without `member`.
    #[must_use]
    pub(crate) fn can_do_without(&self, member: MemberIndex) -> bool {
        let group = self.geometry.group_members();
        let first = member.at() / group * group;
        let left = (first..first + group)
            .filter(|&other| other != member.at() && self.members[other].state == MapState::InSync);
        left.count() >= self.geometry.data()
    }

    /// Whether the array could not leave this member out as well, as long as others are waited for.
    #[must_use]
    pub(crate) fn needs(&self, member: MemberIndex) -> bool {
        let group = self.geometry.group_members();
        let first = member.at() / group * group;
        let left = (first..first + group).filter(|&other| {
            let in_sync = self.members[other].state == MapState::InSync;
            other != member.at() && in_sync && !self.held[other]
        });
        left.count() < self.geometry.data()
    }

    /// Whether `member`'s filling `incarnation` is out, or replaced: nobody counts on what its
    /// drive holds.
    #[inline]
    #[must_use]
    pub fn is_out(&self, member: MemberIndex, incarnation: u32) -> bool {
        let now = &self.members[member.at()];
        let replaced = now.incarnation != incarnation && !planted::is(Fault::IncarnationIgnored);
        replaced || now.state == MapState::Lost
    }
}
