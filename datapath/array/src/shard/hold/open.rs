//! Members whose fate is open: a flush of theirs failed for good, so they may have lost what was
//! written, and they can be left out only when others that are waited for are back. Until then
//! nothing is computed in the stripes of their group: what they hold would become part of it, and
//! be acknowledged. Tickets wait for the next map. Reads of what they hold themselves go on, as
//! those of a member that is beyond help.

use units::{MemberIndex, StripeIndex};

use super::super::Shard;
use crate::map::{ArrayMap, MapState};

impl Shard {
    /// The map is another one: whether each stripe is to be asked about, although all members are
    /// in sync perhaps.
    pub(in crate::shard) fn follow_doubts(&mut self, map: &ArrayMap) {
        let lacks = (0..map.members.len()).any(|at| self.may_lack(map, at));
        let cautious = map.is_holding() || lacks;
        self.optimal = map.is_optimal() && !cautious;
        self.hold.follow(cautious);
    }

    /// Whether a member in sync has failed a flush for good and is to be left out. Once the array
    /// takes no writes, or the hold is given up, it may never be.
    fn may_lack(&self, map: &ArrayMap, at: usize) -> bool {
        let entry = &map.members[at];
        let member = MemberIndex::from_at(at);
        entry.state == MapState::InSync
            && !map.hopeless[at]
            && !map.read_only
            && !map.given_up
            && map.can_do_without(member)
            && self.shared.may_have_lost(member, entry.incarnation)
    }

    /// Whether the fate of a member of the stripe's group is open.
    #[inline]
    pub(in crate::shard) fn is_open(&self, stripe: StripeIndex) -> bool {
        self.hold.cautious && self.is_open_in_group(stripe)
    }

    #[cold]
    fn is_open_in_group(&self, stripe: StripeIndex) -> bool {
        let group = self.geometry().group_members();
        let first = self.geometry().group(stripe).at() * group;
        (first..first + group).any(|at| self.may_lack(&self.map, at))
    }
}
