//! Tests of single promises; `tests/geometry_exhaustive.rs` goes through all geometries.

use super::*;

/// Parameters of an array of 64 KiB chunks and 4 KiB blocks, ten rows and a bit.
fn parameters(level: Level, members: usize) -> GeometryParameters {
    GeometryParameters {
        level,
        members,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: 163,
    }
}

#[test]
fn levels_are_read_as_they_are_printed() {
    for level in Level::ALL {
        assert_eq!(level.to_string().parse(), Ok(level));
    }
    assert!("raid5".parse::<Level>().is_err() && "NM".parse::<Level>().is_err());
}

#[test]
fn the_numbers_of_a_level_follow_from_its_members() {
    use Level::{L0, L1, L5, L6, L7, L10};
    for (level, members, data, parity, groups) in [
        (L0, 5, 5, 0, 1),
        (L1, 3, 1, 2, 1),
        (L10, 6, 1, 1, 3),
        (L5, 4, 3, 1, 1),
        (L6, 8, 6, 2, 1),
        (L7, 8, 5, 3, 1),
    ] {
        let geometry = Geometry::new(parameters(level, members)).expect("a geometry");
        let found = (geometry.data(), geometry.parity(), geometry.groups());
        assert_eq!(found, (data, parity, groups), "level {level}");
        assert_eq!((geometry.rows(), geometry.members()), (10, members));
        assert_eq!(geometry.blocks(), bytes_u64(10 * 16 * data * groups));
    }
}

#[test]
fn level_6_of_4_rotates_as_md_does() {
    // md, left-symmetric: rows of P, Q and the data chunks 0, 1 as `mdadm --examine` order shows.
    let geometry = Geometry::new(parameters(Level::L6, 4)).expect("a geometry");
    let (d0, d1, p, q) = (Role(0), Role(1), Role(2), Role(3));
    let rows = [
        [q, d0, d1, p],
        [d0, d1, p, q],
        [d1, p, q, d0],
        [p, q, d0, d1],
        [q, d0, d1, p],
    ];
    for (stripe, row) in (0..).map(StripeIndex).zip(rows) {
        let found = [0, 1, 2, 3].map(|member| geometry.role(stripe, MemberIndex(member)));
        assert_eq!(found, row.map(Some), "{stripe}");
    }
}

#[test]
fn a_run_of_stripes_holds_a_mebibyte_and_buckets_repeat() {
    let mut large = parameters(Level::L5, 4);
    large.member_data_blocks = 16 * 100_000;
    let geometry = Geometry::new(large).expect("a geometry");
    assert_eq!(
        geometry.run_stripes(),
        6,
        "6 stripes of 192 KiB are 1.1 MiB"
    );
    for (stripe, bucket) in [(0, 0), (5, 0), (6, 1), (6 * 4096 - 1, 4095), (6 * 4096, 0)] {
        assert_eq!(
            geometry.bucket(StripeIndex(stripe)),
            bucket,
            "stripe {stripe}"
        );
    }
}

/// The message for parameters that make no geometry.
fn refused(change: impl FnOnce(&mut GeometryParameters), level: Level, members: usize) -> String {
    let mut changed = parameters(level, members);
    change(&mut changed);
    Geometry::new(changed)
        .expect_err("parameters that make no geometry")
        .to_string()
}

#[test]
fn what_makes_no_array_is_refused_with_a_way_out() {
    use Level::{L0, L1, L5, L6, L7, L10, L50, L60, L70, Nm};
    for (level, members, expected) in [
        (L0, 1, "level 0 needs at least 2 drives and got 1; add 1 or"),
        (L1, 0, "level 1 needs at least 2 drives and got 0; add 2 or"),
        (
            L10,
            3,
            "level 10 needs at least 4 drives and got 3; add 1 or",
        ),
        (L5, 2, "level 5 needs at least 3"),
        (L6, 3, "level 6 needs at least 4"),
        (L7, 3, "level 7 needs at least 4"),
        (L50, 5, "level 50 needs at least 6"),
        (L60, 7, "level 60 needs at least 8"),
        (L70, 7, "level 70 needs at least 8"),
        (
            L1,
            34,
            "level 1 takes at most 33 drives and got 34; leave out 1 or choose",
        ),
        (L0, 65, "level 0 takes at most 64 drives and got 65"),
        (
            L10,
            258,
            "level 10 takes at most 256 drives and got 258; leave out 2",
        ),
        (
            L10,
            5,
            "5 drives do not make groups of 2; leave out 1 or add 1",
        ),
        (
            L50,
            8,
            "level 50 needs a group size that divides its 8 drives",
        ),
        (
            Nm,
            8,
            "level nm needs the number of parity drives; give one of 1 to 32",
        ),
    ] {
        let message = refused(|_| {}, level, members);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn numbers_that_contradict_the_level_are_refused() {
    use Level::{L5, L50, L70, Nm};
    let parity = |parity| move |p: &mut GeometryParameters| p.parity = Some(parity);
    let group = |size| move |p: &mut GeometryParameters| p.group_size = Some(size);
    for (message, expected) in [
        (
            refused(parity(2), L5, 4),
            "level 5 here has 1 parity drives per group, not 2",
        ),
        (
            refused(parity(0), Nm, 4),
            "level nm takes 1 to 32 parity drives and got 0",
        ),
        (
            refused(parity(33), Nm, 40),
            "level nm takes 1 to 32 parity drives and got 33",
        ),
        (
            refused(parity(4), Nm, 4),
            "4 parity drives of 4 leave none for data",
        ),
        (refused(group(2), L5, 4), "level 5 takes no group size of 2"),
        (
            refused(group(0), L50, 8),
            "level 50 takes groups of 3 to 64 drives and got 0",
        ),
        (
            refused(group(2), L50, 8),
            "level 50 takes groups of 3 to 64 drives and got 2",
        ),
        (
            refused(group(65), L50, 130),
            "level 50 takes groups of 3 to 64 drives and got 65",
        ),
        (
            refused(group(3), L50, 8),
            "8 drives do not make groups of 3; leave out 2 or add 1",
        ),
        (
            refused(group(8), L70, 8),
            "level 70 needs at least 2 groups",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn chunks_and_members_out_of_bounds_are_refused() {
    for bytes in [0, 1, 2048, 4095, 12 << 10, 2 << 20, u64::MAX] {
        let message = refused(|p| p.chunk_bytes = bytes, Level::L5, 4);
        assert!(message.contains("choose for example 64KiB"), "{message}");
    }
    let message = refused(|p| p.member_data_blocks = 15, Level::L5, 4);
    assert!(message.contains("room for 15 blocks"), "{message}");
    let message = refused(|p| p.member_data_blocks = 1 << 51, Level::L5, 4);
    assert!(message.contains("larger than 16 EiB"), "{message}");
}

#[test]
fn values_that_agree_with_the_level_may_be_given_again() {
    for (level, members, given) in [
        (Level::L0, 4, None),
        (Level::L1, 4, None),
        (Level::L10, 4, None),
        (Level::L6, 6, None),
        (Level::L60, 8, Some(4)),
    ] {
        let mut asked = parameters(level, members);
        asked.group_size = given;
        let geometry = Geometry::new(asked).expect("a geometry");
        asked.group_size = Some(geometry.group_members());
        asked.parity = Some(geometry.parity());
        assert_eq!(Geometry::new(asked), Ok(geometry), "level {level}");
    }
}
