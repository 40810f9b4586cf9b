//! Every block of every array of up to eight members: nothing twice, nothing left over, and where
//! the oracle says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on is red")]

mod geometry_common;

use std::collections::BTreeSet;

use array::{Geometry, Place};
use geometry_common::{geometries, layout};
use units::{MemberIndex, Role, StripeIndex};

/// All geometries with chunks of 1, 2 and 4 blocks.
fn all() -> impl Iterator<Item = Geometry> {
    [1, 2, 4].into_iter().flat_map(geometries)
}

fn roles(geometry: &Geometry) -> impl Iterator<Item = Role> {
    (0..geometry.group_members()).map(Role::from_at)
}

fn stripes(geometry: &Geometry) -> impl Iterator<Item = StripeIndex> {
    (0..geometry.stripes()).map(StripeIndex)
}

#[test]
fn every_block_has_one_place_and_every_place_one_block() {
    for geometry in all() {
        let mut places = BTreeSet::new();
        for block in 0..geometry.blocks() {
            let place = geometry.place(block);
            assert_eq!(geometry.block_of(place), block, "{geometry:?}");
            let (stripe, in_stripe) = geometry.locate(block);
            assert_eq!(stripe, place.stripe);
            let chunk = u32::from(place.role.0) * geometry.chunk_blocks();
            assert_eq!(in_stripe, chunk + place.block_in_chunk);
            places.insert((place.stripe, place.role, place.block_in_chunk));
        }
        for stripe in stripes(&geometry) {
            for role in geometry.data_roles() {
                for block_in_chunk in 0..geometry.chunk_blocks() {
                    let place = Place {
                        stripe,
                        role,
                        block_in_chunk,
                    };
                    assert_eq!(geometry.place(geometry.block_of(place)), place);
                    assert!(
                        places.remove(&(stripe, role, block_in_chunk)),
                        "{geometry:?}"
                    );
                }
            }
        }
        assert!(places.is_empty(), "{geometry:?}");
    }
}

#[test]
fn every_chunk_of_every_member_belongs_to_one_role_of_one_stripe() {
    for geometry in all() {
        let mut chunks = BTreeSet::new();
        for stripe in stripes(&geometry) {
            let members: BTreeSet<MemberIndex> = roles(&geometry)
                .map(|role| geometry.member(stripe, role))
                .collect();
            for role in roles(&geometry) {
                let member = geometry.member(stripe, role);
                assert_eq!(geometry.role(stripe, member), Some(role), "{geometry:?}");
                let block = geometry.member_block(stripe);
                for lane in 0..u64::from(geometry.chunk_blocks()) {
                    assert_eq!(geometry.stripe_at(member, block + lane), stripe);
                    assert!(
                        chunks.insert((member, block + lane)),
                        "{geometry:?} {stripe}"
                    );
                }
            }
            for member in (0..geometry.members()).map(MemberIndex::from_at) {
                let held = geometry.role(stripe, member).is_some();
                assert_eq!(held, members.contains(&member), "{geometry:?} {stripe}");
            }
        }
        let whole: BTreeSet<(MemberIndex, u64)> = (0..geometry.members())
            .map(MemberIndex::from_at)
            .flat_map(|member| (0..geometry.member_blocks()).map(move |block| (member, block)))
            .collect();
        assert_eq!(chunks, whole, "{geometry:?}");
    }
}

#[test]
fn members_hold_what_the_oracle_says() {
    for geometry in all() {
        let layout = layout(&geometry);
        for stripe in 0..usize::try_from(geometry.stripes()).unwrap() {
            let index = StripeIndex(u64::try_from(stripe).unwrap());
            let found: Vec<usize> = roles(&geometry)
                .map(|role| geometry.member(index, role).at())
                .collect();
            assert_eq!(
                found,
                layout.members_by_role(stripe),
                "{geometry:?} {index}"
            );
        }
        let user_blocks = layout.rows * layout.groups * layout.stripe_bytes();
        assert_eq!(geometry.blocks(), u64::try_from(user_blocks).unwrap());
    }
}

#[test]
fn stripes_are_dealt_over_groups_and_rows() {
    for geometry in all() {
        for stripe in stripes(&geometry) {
            let (group, row) = (geometry.group(stripe), geometry.row(stripe));
            assert_eq!(geometry.stripe(group, row), stripe, "{geometry:?}");
            assert!(group.at() < geometry.groups() && row < geometry.rows());
        }
    }
}
