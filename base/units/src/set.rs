//! Sets of roles of one stripe, of which a group has at most 64, and of an array's members.

use crate::limits::ARRAY_MEMBERS_MAX;
use crate::{MemberIndex, Role};

/// A set of roles (chunks of one stripe), as a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleSet(pub u64);

impl RoleSet {
    /// The set without members.
    pub const EMPTY: RoleSet = RoleSet(0);

    /// Roles `first..end`.
    ///
    /// # Panics
    /// When `end` is over 64 or below `first`.
    #[inline]
    #[must_use]
    pub fn range(first: usize, end: usize) -> RoleSet {
        assert!(first <= end && end <= 64, "a group has at most 64 roles");
        let below = |n: usize| if n == 64 { u64::MAX } else { (1u64 << n) - 1 };
        RoleSet(below(end) & !below(first))
    }

    /// The set of one role.
    #[inline]
    #[must_use]
    pub fn one(role: Role) -> RoleSet {
        RoleSet(1u64 << role.0)
    }

    /// Whether `role` is in the set.
    #[inline]
    #[must_use]
    pub fn has(self, role: Role) -> bool {
        self.0 >> role.0 & 1 == 1
    }

    /// Whether the set is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many roles are in the set.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether this set has fewer roles than `other`. For small sets cheaper than to count.
    #[inline]
    #[must_use]
    pub fn is_smaller(self, other: RoleSet) -> bool {
        let (mut mine, mut others) = (self.0, other.0);
        while mine != 0 && others != 0 {
            mine &= mine - 1;
            others &= others - 1;
        }
        others != 0
    }

    /// Whether the set has more than `count` roles. For small sets cheaper than to count.
    #[inline]
    #[must_use]
    pub fn exceeds(self, count: usize) -> bool {
        let mut rest = self.0;
        for _ in 0..count {
            if rest == 0 {
                return false;
            }
            rest &= rest - 1;
        }
        rest != 0
    }

    /// This set and `role`.
    #[inline]
    #[must_use]
    pub fn with(self, role: Role) -> RoleSet {
        RoleSet(self.0 | 1u64 << role.0)
    }

    /// Everything in either.
    #[inline]
    #[must_use]
    pub fn union(self, other: RoleSet) -> RoleSet {
        RoleSet(self.0 | other.0)
    }

    /// Everything in both.
    #[inline]
    #[must_use]
    pub fn both(self, other: RoleSet) -> RoleSet {
        RoleSet(self.0 & other.0)
    }

    /// Everything here that is not in `other`.
    #[inline]
    #[must_use]
    pub fn without(self, other: RoleSet) -> RoleSet {
        RoleSet(self.0 & !other.0)
    }

    /// Whether the two share a role.
    #[inline]
    #[must_use]
    pub fn meets(self, other: RoleSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of `other` is here.
    #[inline]
    #[must_use]
    pub fn covers(self, other: RoleSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// The lowest role.
    #[inline]
    #[must_use]
    pub fn first(self) -> Option<Role> {
        self.iter().next()
    }

    /// The lowest `count` roles.
    #[inline]
    #[must_use]
    pub fn lowest(self, count: usize) -> RoleSet {
        let mut taken = RoleSet::EMPTY;
        for role in self.iter().take(count) {
            taken = taken.with(role);
        }
        taken
    }

    /// The roles in ascending order.
    #[inline]
    #[must_use]
    pub fn iter(self) -> RoleSetIter {
        RoleSetIter(self.0)
    }
}

impl IntoIterator for RoleSet {
    type Item = Role;
    type IntoIter = RoleSetIter;
    #[inline]
    fn into_iter(self) -> RoleSetIter {
        self.iter()
    }
}

impl FromIterator<Role> for RoleSet {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> RoleSet {
        roles.into_iter().fold(RoleSet::EMPTY, RoleSet::with)
    }
}

/// Roles in ascending order.
#[derive(Clone, Debug)]
pub struct RoleSetIter(u64);

impl Iterator for RoleSetIter {
    type Item = Role;
    #[inline]
    fn next(&mut self) -> Option<Role> {
        if self.0 == 0 {
            return None;
        }
        let role = u8::try_from(self.0.trailing_zeros()).expect("below 64");
        self.0 &= self.0 - 1;
        Some(Role(role))
    }
}

/// A set of members of one array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSet([u64; ARRAY_MEMBERS_MAX.div_ceil(64)]);

impl MemberSet {
    /// The set without members.
    pub const EMPTY: MemberSet = MemberSet([0; ARRAY_MEMBERS_MAX.div_ceil(64)]);

    /// The set with one more member.
    ///
    /// # Panics
    /// When the index is not below [`ARRAY_MEMBERS_MAX`].
    #[inline]
    #[must_use]
    pub fn with(mut self, member: MemberIndex) -> MemberSet {
        self.0[member.at() / 64] |= 1 << (member.at() % 64);
        self
    }

    /// Whether `member` is in the set.
    #[inline]
    #[must_use]
    pub fn has(&self, member: MemberIndex) -> bool {
        let word = self.0.get(member.at() / 64);
        word.is_some_and(|word| word >> (member.at() % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_roles_and_no_other() {
        for first in 0..=64 {
            for end in first..=64 {
                let roles: Vec<usize> = RoleSet::range(first, end).iter().map(Role::at).collect();
                assert_eq!(roles, (first..end).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_smaller_set_has_fewer_roles() {
        let sets = [0, 1, 0b110, 1 << 63, u64::MAX, u64::MAX >> 1, 0b1011];
        for one in sets.map(RoleSet) {
            for other in sets.map(RoleSet) {
                assert_eq!(one.is_smaller(other), one.len() < other.len());
            }
        }
    }

    #[test]
    fn a_set_exceeds_what_is_less_than_its_length() {
        for set in [0, 1, 0b110, 1 << 63, u64::MAX, 0b1011].map(RoleSet) {
            for count in 0..=65 {
                assert_eq!(set.exceeds(count), set.len() > count);
            }
        }
    }

    #[test]
    fn members_are_in_the_set_that_were_put_there() {
        let members = [0, 63, 64, 255].map(MemberIndex::from_at);
        let set = members.into_iter().fold(MemberSet::EMPTY, MemberSet::with);
        for at in 0..ARRAY_MEMBERS_MAX {
            let member = MemberIndex::from_at(at);
            assert_eq!(set.has(member), members.contains(&member), "{at}");
        }
    }

    #[test]
    fn the_lowest_roles_come_first() {
        let set: RoleSet = [Role(5), Role(1), Role(63)].into_iter().collect();
        assert_eq!(set.lowest(2).iter().collect::<Vec<_>>(), [Role(1), Role(5)]);
        assert_eq!(set.len(), 3);
        assert!(set.covers(set.lowest(2)) && !set.lowest(2).covers(set));
    }
}
