//! Which members a rebuild fills next: those of the groups that can lose the fewest members more,
//! and there the one that lacks least, so that the group can soon lose one more.

#[cfg(test)]
pub(crate) mod tests;

use units::{MemberIndex, MemberSet, StripeIndex, bytes_u64};

use crate::geometry::Geometry;
use crate::map::{ArrayMap, MapState, Window};

/// In a group, members that lack up to so many times as much as the one that lacks least are filled
/// together with it: one after another they would take longer, and not much would be gained.
const TOGETHER: u64 = 2;

/// The members that the next window of a rebuild fills; none when nobody is rebuilding. One that
/// lacks nothing comes before all others: it needs nothing but to be called in sync.
pub(crate) fn filled_next(map: &ArrayMap) -> MemberSet {
    let group_members = map.geometry.group_members();
    let groups = 0..map.members.len() / group_members;
    let least = |group: usize| {
        let members = group * group_members..(group + 1) * group_members;
        members.filter_map(|position| lacking(map, position)).min()
    };
    let urgency = |group: usize| {
        let members = &map.members[group * group_members..][..group_members];
        let out = members
            .iter()
            .filter(|member| member.state != MapState::InSync);
        least(group).map(|least| (least == 0, out.count()))
    };
    let most = groups.clone().filter_map(urgency).max();
    let mut filled = MemberSet::EMPTY;
    for group in groups.filter(|group| urgency(*group) == most) {
        let together = least(group).map_or(0, |least| least.saturating_mul(TOGETHER));
        for position in group * group_members..(group + 1) * group_members {
            if lacking(map, position).is_some_and(|lacking| lacking <= together) {
                filled = filled.with(MemberIndex::from_at(position));
            }
        }
    }
    filled
}

/// How many regions a rebuilding member lacks, or has begun to lack.
fn lacking(map: &ArrayMap, position: usize) -> Option<u64> {
    let MapState::Rebuilding { until } = map.members[position].state else {
        return None;
    };
    if map.next_lacking(position, until).is_none() {
        return Some(0);
    }
    Some(match &map.missed[position] {
        Some(missed) => missed.count_from(until),
        None => map.suspects.regions_from(until),
    })
}

/// The first stripe that one of `members` lacks, from `from` on; the end when there is none.
pub(crate) fn first_lacking(map: &ArrayMap, members: &MemberSet, from: StripeIndex) -> StripeIndex {
    let positions = 0..map.members.len();
    let positions = positions.filter(|position| members.has(MemberIndex::from_at(*position)));
    let firsts = positions.filter_map(|position| map.next_lacking(position, from));
    firsts.min().unwrap_or(StripeIndex(map.geometry.stripes()))
}

/// How many groups have some of `members`.
pub(crate) fn groups_of(geometry: &Geometry, members: &MemberSet) -> u64 {
    let group_members = geometry.group_members();
    let has = |group: &usize| {
        let mut places = group * group_members..(group + 1) * group_members;
        places.any(|position| members.has(MemberIndex::from_at(position)))
    };
    bytes_u64((0..geometry.groups()).filter(has).count())
}

/// Whether some member lacks nothing any more when the window is done.
pub(crate) fn completes(map: &ArrayMap, window: &Window) -> bool {
    let positions = 0..map.members.len();
    let mut filled = positions.filter(|at| window.fills.has(MemberIndex::from_at(*at)));
    filled.any(|position| {
        let is_rebuilding = matches!(map.members[position].state, MapState::Rebuilding { .. });
        is_rebuilding && map.next_lacking(position, window.end).is_none()
    })
}

/// Whether some rebuilding member lacks something.
pub(crate) fn is_lacking(map: &ArrayMap) -> bool {
    (0..map.members.len()).any(|position| map.next_lacking(position, StripeIndex(0)).is_some())
}
