//! What a window has, and who can be excluded.

use units::BlockSize;

use super::*;
use crate::exposure::tests::whole;
use crate::geometry::{GeometryParameters, Level};

/// How many stripes a window has that is to be of this many.
fn stripes_of(map: &ArrayMap, pass: Pass, start: u64, stripes: u64) -> u64 {
    let bytes = stripes * map.geometry.stripe_bytes();
    let window = next_window(map, pass, StripeIndex(start), bytes);
    assert_eq!((window.pass, window.start), (pass, StripeIndex(start)));
    assert_eq!(window.opened, map.serial);
    window.end.0 - start
}

#[test]
fn a_window_has_its_bytes_in_the_groups_that_it_is_for_and_ends_with_the_array() {
    let rebuilds = MapState::Rebuilding {
        until: StripeIndex(0),
    };
    // Two groups of five: the stripes of one that is not filled do not count.
    for (members, each) in [(&[2][..], 2), (&[7][..], 2), (&[2, 7][..], 1)] {
        let mut map = whole();
        map.suspects = Arc::new(Suspects::all(map.suspects.space()));
        map.members.iter_mut().enumerate().for_each(|(at, member)| {
            let is_filled = members.contains(&at);
            member.state = [MapState::InSync, rebuilds][usize::from(is_filled)];
        });
        for (start, wanted) in [(0, 1), (0, 8), (5, 3)] {
            let has = stripes_of(&map, Pass::Rebuild, start, wanted);
            assert_eq!(has, wanted * each, "{members:?}");
        }
        for pass in [Pass::Scrub, Pass::Resync] {
            assert_eq!(stripes_of(&map, pass, 5, 8), 8, "of all groups");
        }
    }
    let map = whole();
    let all = map.geometry.stripes();
    assert_eq!(stripes_of(&map, Pass::Scrub, 5, 0), 1, "it goes on");
    assert_eq!(stripes_of(&map, Pass::Scrub, all - 3, 8), 3);
}

#[test]
fn whoever_is_filled_lacks_what_is_behind_and_was_written_since_he_left() {
    let mut map = whole();
    let (member, until) = (MemberIndex(2), StripeIndex(8));
    let of_all = |map: &ArrayMap| {
        let stripes = (0..16).map(StripeIndex);
        let lacking = stripes.filter(|&stripe| !map.unfilled(stripe).is_empty());
        lacking.map(|stripe| stripe.0).collect::<Vec<_>>()
    };
    assert!(of_all(&map).is_empty());
    map.members[member.at()].state = MapState::Rebuilding { until };
    // The other group has the odd ones.
    assert_eq!(of_all(&map), [8, 10, 12, 14]);
    let role = map
        .geometry
        .role(until, member)
        .expect("it is of its group");
    assert_eq!(map.unfilled(until), units::RoleSet::one(role));
    map.missed[member.at()] = Some(Arc::new(Suspects::none(map.suspects.space())));
    assert!(of_all(&map).is_empty());
}

#[test]
fn a_resync_is_due_before_a_rebuild_and_only_where_there_is_parity() {
    let bare = GeometryParameters {
        level: Level::L0,
        members: 10,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: 1 << 10,
    };
    let bare = Geometry::new(bare).expect("a good shape");
    let mut map = whole();
    assert_eq!(due_pass(&map), None);
    map.members[3].state = MapState::Rebuilding {
        until: StripeIndex(0),
    };
    assert_eq!(due_pass(&map), Some(Pass::Rebuild));
    map.trusted_until = StripeIndex(map.geometry.stripes() - 1);
    assert_eq!(due_pass(&map), Some(Pass::Resync));
    map.members[3].state = MapState::InSync;
    assert_eq!(due_pass(&map), Some(Pass::Resync));
    map.geometry = bare;
    map.trusted_until = StripeIndex(0);
    assert_eq!(due_pass(&map), None);
}

#[test]
fn a_member_can_be_excluded_while_its_group_keeps_as_many_as_it_has_data() {
    let geometry = whole().geometry;
    let out = MemberState::Missing;
    // Of groups of three and two: who is out, and whether members 0 and 7 can be.
    for (missing, can) in [
        (&[][..], [true, true]),
        (&[1][..], [true, true]),
        (&[1, 2][..], [false, true]),
        (&[8][..], [true, true]),
        (&[5, 9][..], [true, false]),
        (&[1, 4, 6, 8][..], [false, false]),
        (&[0, 1, 2][..], [true, true]),
    ] {
        let mut config = crate::format::tests::config(10);
        for &member in missing {
            config.members[member].state = out;
        }
        let found = [0, 7].map(|member| can_exclude(&geometry, &config, MemberIndex(member)));
        assert_eq!(found, can, "without {missing:?}");
    }
}

#[test]
fn ids_are_drawn_from_the_published_sequence() {
    let mut state = 0;
    for number in [
        0xE220_A839_7B1D_CDAF,
        0x6E78_9E6A_A1B9_65F4,
        0x06C4_5D18_8009_454F,
    ] {
        assert_eq!(split_mix(&mut state), number);
    }
}
