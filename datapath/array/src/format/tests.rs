//! The format's promises: what was written is read again, what was not is refused, and the areas
//! cost no more than docs/on-disk.md says.

use proptest::prelude::*;
use units::limits::{ARRAY_VOLUMES_MAX, NAME_BYTES_MAX};
use units::{BlockSize, MemberIndex, StripeIndex, Update};

use super::head::reseal;
use super::*;
use crate::RegionSpace;
use crate::geometry::{Geometry, GeometryParameters, Level};
use crate::losses::{LostBlocks, LostWord};
use crate::scrub::{ScrubRecord, ScrubState, ScrubTally};
use uuid::Uuid;

const MIB: u64 = 1 << 20;

/// The superblock of member `member` of a RAID 6 of `members` drives of `drive_bytes`.
pub(crate) fn superblock(member: u16, members: usize, drive_bytes: u64) -> Superblock {
    level_superblock(Level::L6, member, members, drive_bytes)
}

/// The superblock of a member of an array of any level that needs no more numbers.
pub(crate) fn level_superblock(
    level: Level,
    member: u16,
    members: usize,
    drive_bytes: u64,
) -> Superblock {
    let layout = Layout::for_member(drive_bytes, BlockSize::B4096, members).expect("large enough");
    let geometry = Geometry::new(GeometryParameters {
        level,
        members,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: layout.data.length / 4096,
    })
    .expect("a good geometry");
    Superblock {
        array: Uuid::from_u128(0xA7),
        member_uuid: Uuid::from_u128(1000 + u128::from(member)),
        member: MemberIndex(member),
        update: Update(1),
        features: Features::default(),
        sectors: Sectors {
            logical: 512,
            physical: 4096,
        },
        layout,
        geometry,
        extent_stripes: ExtentSpace::new(&geometry).stripes(),
        region_stripes: RegionSpace::stripes_for(&geometry, layout.region_map.length),
        created: Created {
            host: 0xB0,
            seconds: 1_700_000_000,
        },
    }
}

/// The first config of an array of `members` drives.
pub(crate) fn config(members: u16) -> ArrayConfig {
    ArrayConfig {
        array: Uuid::from_u128(0xA7),
        name: "tank".to_owned(),
        update: Update(1),
        update_id: 0xF001,
        ancestors: Vec::new(),
        forced_at: Update(0),
        unfinished_since: Update(0),
        written_seconds: 0,
        features: Features::default(),
        clean: true,
        resynced_until: StripeIndex(0),
        log_from: 0,
        members: (0..members)
            .map(|member| MemberRecord {
                uuid: Uuid::from_u128(1000 + u128::from(member)),
                state: MemberState::InSync,
                drive_bytes: 256 * MIB,
                identity: DriveIdentity::new(&format!("serial-{member}")),
            })
            .collect(),
        volumes: Vec::new(),
        unzeroed: Vec::new(),
        lost: Default::default(),
        options: ArrayOptions::default(),
        scrub: ScrubRecord::default(),
    }
}

fn encoded(config: &ArrayConfig) -> Vec<u8> {
    let mut area = vec![0xEE; 4 << 20];
    let written = config
        .encode_into(MemberIndex(2), &mut area)
        .expect("fits 4 MiB");
    assert!(area[written..].iter().all(|byte| *byte == 0xEE));
    area.truncate(written);
    area
}

#[test]
fn a_superblock_is_read_as_it_was_written() {
    for level in Level::ALL {
        let one = match level {
            Level::Nm | Level::L50 | Level::L60 | Level::L70 => continue,
            Level::L0 | Level::L1 | Level::L10 | Level::L5 | Level::L6 | Level::L7 => {
                level_superblock(level, 3, 8, 256 * MIB)
            }
        };
        assert_eq!(Superblock::decode(&one.encode()), Ok(one), "level {level}");
    }
}

#[test]
fn superblocks_with_groups_and_chosen_parity_are_read_again() {
    for (level, group_size, parity) in [
        (Level::L50, Some(4), None),
        (Level::L60, Some(6), None),
        (Level::L70, Some(4), None),
        (Level::Nm, None, Some(5)),
    ] {
        let mut one = superblock(11, 12, 256 * MIB);
        one.geometry = Geometry::new(GeometryParameters {
            level,
            members: 12,
            parity,
            group_size,
            chunk_bytes: 16 << 10,
            block: BlockSize::B512,
            member_data_blocks: one.layout.data.length / 512,
        })
        .expect("a good geometry");
        one.region_stripes = RegionSpace::stripes_for(&one.geometry, one.layout.region_map.length);
        assert_eq!(Superblock::decode(&one.encode()), Ok(one), "level {level}");
    }
}

#[test]
fn the_bytes_of_a_superblock_are_those_of_the_document() {
    let bytes = superblock(3, 8, 256 * MIB).encode();
    assert_eq!(&bytes[..8], b"GARBOARD");
    assert_eq!(&bytes[8..16], &[1, 0, 0, 0, 0, 16, 0, 0]);
    assert_eq!(&bytes[32..34], &[3, 0]);
    assert_eq!(&bytes[88..92], &4096u32.to_le_bytes());
    // Three stripes of 384 KiB hold 1 MiB, and four are a power of two.
    assert_eq!(&bytes[100..104], &4u32.to_le_bytes());
    assert_eq!(&bytes[104..112], &(256 * MIB).to_le_bytes());
    assert_eq!(&bytes[112..120], &(2 * MIB).to_le_bytes());
    assert_eq!(&bytes[240..248], &[6, 0, 6, 2, 1, 0, 1, 0]);
    assert_eq!(&bytes[248..252], &(64u32 << 10).to_le_bytes());
    // 6 chunks of 64 KiB per stripe: 43 stripes are the fewest that hold 16 MiB.
    assert_eq!(&bytes[252..256], &43u32.to_le_bytes());
}

#[test]
#[cfg_attr(miri, ignore = "too many records for Miri")]
fn no_single_changed_byte_of_a_superblock_is_believed() {
    let good = superblock(3, 8, 256 * MIB).encode();
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bad = good;
            bad[at] ^= flip;
            assert!(
                Superblock::decode(&bad).is_err(),
                "byte {at} flipped by {flip:#x}"
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many records for Miri")]
fn no_truncated_superblock_is_believed() {
    let good = superblock(3, 8, 256 * MIB).encode();
    for length in 0..good.len() {
        assert!(
            Superblock::decode(&good[..length]).is_err(),
            "{length} bytes"
        );
    }
}

/// The superblock with some bytes changed by somebody who can compute a checksum.
fn forged(at: usize, bytes: &[u8]) -> Result<Superblock, FormatError> {
    let mut forged = superblock(3, 8, 256 * MIB).encode();
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut forged);
    Superblock::decode(&forged)
}

#[test]
fn a_superblock_from_the_future_says_so() {
    let array = Uuid::from_u128(0xA7);
    assert_eq!(
        forged(8, &[2]),
        Err(FormatError::NewerFormat { array, format: 2 })
    );
    assert_eq!(
        forged(64, &[4]),
        Err(FormatError::NewerFeatures { array, bits: 4 })
    );
    let read_only = forged(56, &[1]).expect("may be read");
    assert_eq!(read_only.features.unknown_read_only(), 1);
    assert!(forged(48, &[1]).is_ok(), "a compat bit may be ignored");
}

#[test]
fn a_superblock_that_contradicts_itself_is_refused() {
    let invalid = |at: usize, bytes: &[u8]| match forged(at, bytes) {
        Err(FormatError::Invalid(what)) => what,
        other => panic!("byte {at}: {other:?}"),
    };
    assert_eq!(invalid(8, &[0]), "format 0");
    assert_eq!(invalid(88, &[1]), "block size");
    assert_eq!(invalid(104, &[1]), "member size");
    assert_eq!(invalid(184, &[0; 8]), "bad ranges area");
    assert_eq!(invalid(118, &[1]), "areas overlap or leave the member");
    assert_eq!(invalid(113, &[16]), "areas overlap or leave the member");
    assert_eq!(
        invalid(224, &u64::MAX.to_le_bytes()),
        "an area ends nowhere"
    );
    assert_eq!(
        invalid(232, &(246 * MIB - 1).to_le_bytes()),
        "an area is not made of whole blocks"
    );
    assert_eq!(invalid(232, &[0; 8]), "no data area");
    assert_eq!(invalid(240, &[3]), "level");
    assert_eq!(invalid(242, &[200]), "geometry");
    assert_eq!(invalid(243, &[0]), "geometry");
    assert_eq!(invalid(244, &[0]), "geometry");
    assert_eq!(invalid(246, &[9]), "rotation");
    assert_eq!(invalid(248, &[1]), "geometry");
    assert_eq!(invalid(252, &[0; 4]), "extent size");
    assert_eq!(invalid(32, &[8]), "member index");
}

#[test]
fn what_is_not_ours_is_told_from_what_is_damaged() {
    assert_eq!(Superblock::decode(&[0; 4096]), Err(FormatError::Blank));
    assert_eq!(Superblock::decode(&[0x55; 4096]), Err(FormatError::Foreign));
    assert_eq!(
        Superblock::decode(&[0; 47]),
        Err(FormatError::Truncated { bytes: 47 })
    );
    assert_eq!(
        Superblock::decode(&encoded(&config(4))),
        Err(FormatError::Foreign)
    );
}

#[test]
fn the_areas_cost_what_the_document_says() {
    let tenths_of_percent = |drive_bytes: u64, members: usize| {
        let layout =
            Layout::for_member(drive_bytes, BlockSize::B4096, members).expect("large enough");
        (drive_bytes - layout.data.length) * 1000 / drive_bytes
    };
    for members in [2, 8, 24, 256] {
        assert!(tenths_of_percent(256 * MIB, members) < 60, "{members}");
        assert!(tenths_of_percent(1_000_000_000_000, members) < 1);
        assert!(tenths_of_percent(1_000_204_886_016, members) < 1);
        assert!(tenths_of_percent(1 << 40, members) < 1);
    }
    let small = Layout::for_member(64 * MIB, BlockSize::B512, 3).expect("usable");
    assert_eq!(small.data.length, 59 * MIB);
    let layout = Layout::for_member(256 * MIB, BlockSize::B4096, 8).expect("usable");
    assert_eq!(layout.data.length, 246 * MIB);
    assert_eq!(layout.log.length, 4 * MIB);
    let terabyte = Layout::for_member(1_000_000_000_000, BlockSize::B4096, 8).expect("usable");
    assert_eq!(terabyte.log.length, 256 * MIB);
    assert_eq!(terabyte.region_map.length, 16 * MIB);
}

#[test]
fn copies_of_a_superblock_lie_a_mebibyte_from_both_ends() {
    let end = 64 << 20;
    let [first, second] = [1 << 20, (1 << 20) + (64 << 10)];
    let copies = [first, second, end - (1 << 20), end - (1 << 20) + (64 << 10)];
    assert_eq!(Superblock::offsets(end), copies);
    assert_eq!(Superblock::head_offsets(), [first, second]);
}

#[test]
fn a_drive_that_is_too_small_is_refused() {
    for bytes in [0, 1, MIB, 16 * MIB - 1] {
        let refused = Layout::for_member(bytes, BlockSize::B4096, 4);
        assert_eq!(refused, Err(MemberTooSmall { drive_bytes: bytes }));
    }
    assert!(Layout::for_member(16 * MIB, BlockSize::B4096, 4).is_ok());
}

#[test]
fn members_are_rounded_so_that_a_nearly_equal_drive_fits() {
    assert_eq!(Layout::member_bytes(256 * MIB + 77), 256 * MIB);
    let terabyte = 1_000_204_886_016;
    assert_eq!(
        Layout::member_bytes(terabyte - 10_000_000),
        Layout::member_bytes(terabyte)
    );
    assert_eq!(Layout::member_bytes(0), 0);
}

#[test]
fn every_small_array_has_room_for_its_largest_record() {
    // Mostly there is room beside; where it just fits depends on how sizes are rounded.
    let sizes = || (16..=64).chain([256, 1024]);
    let arrays = [3, 64, 256].map(|members| sizes().map(move |size| (size, members)));
    let words = |group| LostWord { group, mask: 1 };
    let lost =
        LostBlocks::of_words((0..256).map(words).collect()).expect("as many as there may be");
    for (drive_bytes, members) in arrays.into_iter().flatten() {
        let layout =
            Layout::for_member(drive_bytes * MIB, BlockSize::B4096, members).expect("usable");
        let extents = layout.data.length * u64::try_from(members).unwrap() / EXTENT_BYTES_MIN;
        let mut worst = config(u16::try_from(members).unwrap());
        worst.lost = lost.clone();
        worst.volumes = (0..extents.min(1024))
            .map(|n| volume(u128::from(n), vec![ExtentRun { first: n, count: 1 }]))
            .collect();
        // Alternating runs cannot be joined; as many as there are extents is more than possible.
        worst.unzeroed = (0..extents)
            .map(|n| ExtentRun {
                first: 2 * n,
                count: 1,
            })
            .collect();
        let runs_left = extents - extents.min(1024);
        let needed = worst.record_bytes() + 16 * runs_left;
        assert!(
            needed <= layout.config[0].length,
            "{drive_bytes} MiB × {members}"
        );
    }
}

fn volume(number: u128, extents: Vec<ExtentRun>) -> VolumeRecord {
    VolumeRecord {
        uuid: Uuid::from_u128(number),
        name: format!("volume-{number}"),
        size_blocks: 1,
        extents,
        state: VolumeState::Ready,
        stable_buffers: false,
    }
}

#[test]
fn runs_are_joined_where_they_touch_and_refused_where_they_share_an_extent() {
    for first in [0, 1, 5] {
        let runs = |second| {
            let run = |first, count| ExtentRun { first, count };
            join_runs(vec![run(second, 1), run(first, 3)])
        };
        let [shared, touching, apart] = [2, 3, 4].map(|after| runs(first + after));
        assert_eq!(shared, Err("an extent is used twice"));
        assert_eq!(touching, Ok(vec![ExtentRun { first, count: 4 }]));
        assert_eq!(apart.map(|runs| runs.len()), Ok(2));
    }
}

#[test]
fn a_record_that_does_not_fit_is_refused_and_the_area_left_alone() {
    let mut area = vec![0xEE; 4096];
    let refused = config(64).encode_into(MemberIndex(0), &mut area);
    assert_eq!(
        refused,
        Err(ConfigTooLarge {
            needed_bytes: 16384,
            room_bytes: 4096
        })
    );
    assert!(area.iter().all(|byte| *byte == 0xEE));
}

#[test]
fn no_single_changed_byte_of_a_config_record_is_believed() {
    let mut full = config(4);
    full.volumes = vec![volume(1, vec![ExtentRun { first: 0, count: 3 }])];
    full.unzeroed = vec![ExtentRun { first: 7, count: 1 }];
    let good = encoded(&full);
    let length = bytes_of(full.record_bytes());
    for at in 0..length {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            assert!(ArrayConfig::decode(&bad).is_err(), "byte {at} by {flip:#x}");
        }
    }
    for cut in 0..length {
        assert!(ArrayConfig::decode(&good[..cut]).is_err(), "{cut} bytes");
    }
    // The rest of the block is not part of the record.
    let mut padded = good.clone();
    padded[length..].fill(0xFF);
    assert_eq!(ArrayConfig::decode(&padded), Ok((MemberIndex(2), full)));
}

fn bytes_of(length: u64) -> usize {
    units::bytes_usize(length)
}

#[test]
fn a_config_record_that_contradicts_itself_is_refused() {
    let run = |first, count| ExtentRun { first, count };
    let mut good = config(4);
    good.update = Update(9);
    good.ancestors = vec![(Update(8), 3), (Update(7), 2)];
    good.volumes = vec![
        volume(1, vec![run(0, 2), run(5, 1)]),
        volume(2, vec![run(2, 3)]),
    ];
    good.unzeroed = vec![run(6, 1), run(8, 2)];
    assert_eq!(good.check(), Ok(()));
    let refused = |change: fn(&mut ArrayConfig)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad.check().expect_err("contradicts itself").to_string()
    };
    let says = |text: &str| format!("contradicts itself: {text}");
    assert_eq!(
        refused(|c| c.volumes[1].name = c.volumes[0].name.clone()),
        says("two volumes of one name")
    );
    assert_eq!(
        refused(|c| c.volumes[1].uuid = c.volumes[0].uuid),
        says("two volumes of one uuid")
    );
    assert_eq!(
        refused(|c| c.volumes[1].extents[0].count = 4),
        says("an extent is used twice")
    );
    assert_eq!(
        refused(|c| c.volumes[1].extents[0].count = 0),
        says("an extent run is empty or overflows")
    );
    assert_eq!(
        refused(|c| c.volumes[1].extents[0].count = u64::MAX),
        says("an extent run is empty or overflows")
    );
    assert_eq!(
        refused(|c| c.volumes[1].size_blocks = 0),
        says("a volume without size")
    );
    assert_eq!(
        refused(|c| c.unzeroed.reverse()),
        says("unzeroed runs are not sorted and joined")
    );
    assert_eq!(refused(|c| c.ancestors.reverse()), says("history"));
    assert_eq!(refused(|c| c.forced_at = Update(10)), says("history"));
    assert_eq!(
        refused(|c| c.update = Update(1 << 56)),
        says("an update that no engine reaches")
    );
}

#[test]
fn a_record_with_lost_blocks_is_from_the_future_for_engines_that_do_not_know_them() {
    let mut with = config(4);
    assert_eq!(encoded(&with)[64] & 1 << 4, 0, "incompat 4");
    with.lost.add(62..66);
    let bytes = encoded(&with);
    assert_eq!(bytes[64], 1 << 4, "incompat 4");
    assert_eq!(bytes[212..216], [2, 0, 0, 0]);
    assert_eq!(ArrayConfig::decode(&bytes), Ok((MemberIndex(2), with)));
    let length = bytes_of(u64::from(u32::from_le_bytes(
        bytes[12..16].try_into().unwrap(),
    )));
    let forged = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        reseal(&mut bytes[..length]);
        ArrayConfig::decode(&bytes)
    };
    let none = Err(FormatError::Invalid("number of lost blocks"));
    assert_eq!(forged(212, 0), none);
    assert_eq!(forged(213, 4), none, "too many");
    let adds_up = Err(FormatError::Invalid("tables do not add up"));
    assert_eq!(forged(64, 0), adds_up, "the table does not count then");
    let order = Err(FormatError::Invalid("lost blocks"));
    assert_eq!(forged(length - 16, 0), order, "twice the same group");
    let next = FormatError::NewerFeatures {
        array: config(4).array,
        bits: 1 << 6,
    };
    assert_eq!(forged(64, 5 << 4), Err(next));
}

#[test]
fn a_record_of_an_engine_without_scrubs_tells_of_none_whatever_lies_there() {
    let mut scrubbed = config(4);
    scrubbed.options.scrub_every_seconds = 7;
    scrubbed.scrub = ScrubRecord {
        state: ScrubState::Paused,
        next: StripeIndex(3),
        finished_at: 5,
        tally: ScrubTally::default(),
    };
    let mut bytes = encoded(&scrubbed);
    assert_eq!(bytes[48] & 1, 1, "compat 0");
    assert_eq!(bytes[648..653], [7, 0, 0, 0, 3]);
    assert_eq!((bytes[656], bytes[664]), (3, 5));
    bytes[48] &= !1;
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
    reseal(&mut bytes[..bytes_of(u64::from(length))]);
    assert_eq!(
        ArrayConfig::decode(&bytes),
        Ok((MemberIndex(2), config(4))),
        "as if never scrubbed"
    );
    bytes[48] |= 1;
    bytes[652] = 4;
    reseal(&mut bytes[..bytes_of(u64::from(length))]);
    let unknown = ArrayConfig::decode(&bytes);
    assert_eq!(unknown, Err(FormatError::Invalid("state of the scrub")));
}

/// A config record with some bytes changed by somebody who can compute a checksum.
fn forged_config(at: usize, bytes: &[u8]) -> Result<(MemberIndex, ArrayConfig), FormatError> {
    forged_with(&[(at, bytes)])
}

fn forged_with(changes: &[(usize, &[u8])]) -> Result<(MemberIndex, ArrayConfig), FormatError> {
    let mut full = config(4);
    full.volumes = vec![volume(1, vec![ExtentRun { first: 0, count: 3 }])];
    full.unzeroed = vec![ExtentRun { first: 7, count: 1 }];
    let mut forged = encoded(&full);
    for &(at, bytes) in changes {
        forged[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let length = u32::from_le_bytes(forged[12..16].try_into().unwrap());
    reseal(&mut forged[..bytes_of(u64::from(length))]);
    ArrayConfig::decode(&forged)
}

#[test]
fn which_reads_are_hedged_counts_with_its_feature_only() {
    let hedged = |compat: u8, byte: u8| {
        let forged = forged_with(&[(48, &[compat]), (109, &[byte])]);
        forged.map(|(_, config)| (config.options.hedged_reads, config.features.compat))
    };
    assert_eq!(hedged(3, 1), Ok((HedgedReads::Auto, 0)));
    assert_eq!(hedged(3, 2), Ok((HedgedReads::Auto, 0)));
    assert_eq!(hedged(7, 0), Ok((HedgedReads::Auto, 0)));
    assert_eq!(hedged(7, 1), Ok((HedgedReads::Always, 0)));
    assert_eq!(hedged(7, 2), Err(FormatError::Invalid("hedged reads")));
}

#[test]
fn a_detail_of_a_cause_that_is_not_known_leaves_the_cause() {
    let cause = |code: u8, detail: u8| {
        let forged = forged_with(&[(1024 + 16, &[3, code, detail])]);
        let members = forged.expect("it can be read").1.members;
        let MemberState::Excluded { cause, .. } = members[0].state else {
            panic!("{members:?}");
        };
        cause
    };
    assert_eq!(cause(3, 0), ExclusionCause::WriteError);
    assert_eq!(cause(3, 1), ExclusionCause::NoSpace);
    assert_eq!(cause(3, 2), ExclusionCause::WriteError);
    assert_eq!(cause(1, 1), ExclusionCause::Gone);
}

#[test]
fn a_forged_config_record_is_refused_for_what_is_wrong_with_it() {
    let invalid = |at: usize, bytes: &[u8]| match forged_config(at, bytes) {
        Err(FormatError::Invalid(what)) => what,
        other => panic!("byte {at}: {other:?}"),
    };
    let length = u16::try_from(1024 + 4 * 192 + 128 + 2 * 16).unwrap();
    assert!(forged_config(12, &length.to_le_bytes()).is_ok());
    assert_eq!(
        invalid(12, &(length + 16).to_le_bytes()),
        "tables do not add up"
    );
    assert_eq!(
        invalid(12, &(length - 16).to_le_bytes()),
        "tables do not add up"
    );
    assert_eq!(
        invalid(12, &500u16.to_le_bytes()),
        "too short for a config record"
    );
    assert_eq!(invalid(32, &[4]), "member index");
    assert_eq!(invalid(108, &[3]), "write hole");
    assert_eq!(invalid(128, &[0]), "name of the array");
    assert_eq!(invalid(128, b"a/"), "name of the array");
    assert_eq!(invalid(190, &[65]), "name of the array");
    assert_eq!(invalid(192, &[0]), "number of members");
    assert_eq!(invalid(192, &[1, 1]), "number of members");
    assert_eq!(invalid(196, &[1, 4]), "number of volumes");
    assert_eq!(invalid(196, &[9]), "tables do not add up");
    assert_eq!(invalid(200, &[0xFF; 4]), "tables do not add up");
    // One run more and one unzeroed run less, and the other way round.
    assert_eq!(invalid(200, &[2, 0, 0, 0, 0]), "runs of no volume");
    assert_eq!(invalid(200, &[0, 0, 0, 0, 2]), "runs of a volume");
    assert_eq!(invalid(208, &[17]), "number of ancestors");
    assert_eq!(invalid(1024 + 16, &[4]), "a member");
    assert_eq!(invalid(1024 + 16, &[3, 10]), "a member");
    assert_eq!(invalid(1024 + 40, &[145]), "a member");
    assert_eq!(invalid(1024 + 48, &[0xFF]), "a member");
    let first_volume = 1024 + 4 * 192;
    assert_eq!(invalid(first_volume + 28, &[4]), "a volume");
    assert_eq!(invalid(first_volume + 32, &[0]), "a volume");
    assert_eq!(
        forged_config(64, &[1]),
        Err(FormatError::NewerFeatures {
            array: Uuid::from_u128(0xA7),
            bits: 1
        })
    );
}

#[test]
fn a_config_record_must_suit_the_superblock() {
    let superblock = superblock(0, 4, 256 * MIB);
    let count = superblock.extents().count();
    let good = config(4);
    assert_eq!(good.check_against(&superblock), Ok(()));
    let refused = |change: &dyn Fn(&mut ArrayConfig)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad.check_against(&superblock).expect_err("does not suit")
    };
    let invalid = FormatError::Invalid;
    let run = |first, count| vec![ExtentRun { first, count }];
    assert_eq!(refused(&|c| c.array = Uuid::nil()), invalid("array uuid"));
    assert_eq!(
        refused(&|c| c.members.truncate(3)),
        invalid("number of members")
    );
    assert_eq!(
        refused(&|c| c.resynced_until = StripeIndex(u64::MAX)),
        invalid("a stripe beyond the end")
    );
    let until = StripeIndex(u64::MAX);
    assert_eq!(
        refused(&|c| c.members[1].state = MemberState::Rebuilding {
            until,
            missed: Missed::ALL
        }),
        invalid("a stripe beyond the end")
    );
    assert_eq!(
        refused(&|c| c.volumes.push(volume(1, run(count, 1)))),
        invalid("an extent beyond the end")
    );
    assert_eq!(
        refused(&|c| c.unzeroed = run(0, count + 1)),
        invalid("an extent beyond the end")
    );
    let large = VolumeRecord {
        size_blocks: superblock.extents().extent_blocks() + 1,
        ..volume(1, run(0, 1))
    };
    assert_eq!(
        refused(&|c| c.volumes.push(large.clone())),
        invalid("a volume larger than its extents")
    );
    // All of it may be in use, and every pass at its end.
    let end = StripeIndex(superblock.geometry.stripes());
    let mut full = good.clone();
    full.volumes.push(VolumeRecord {
        size_blocks: superblock.extents().extent_blocks(),
        ..volume(1, run(count - 1, 1))
    });
    full.unzeroed = run(0, count - 1);
    (full.resynced_until, full.scrub.next) = (end, end);
    full.members[1].state = MemberState::Rebuilding {
        until: end,
        missed: Missed::ALL,
    };
    assert_eq!(full.check_against(&superblock), Ok(()));
}

#[test]
fn a_record_may_be_the_one_that_was_forced_or_of_a_start_and_name_none_that_comes() {
    let mut record = config(4).next(7);
    (record.forced_at, record.unfinished_since) = (record.update, record.update);
    let read = ArrayConfig::decode(&encoded(&record));
    assert_eq!(read, Ok((MemberIndex(2), record.clone())));
    for change in [
        |record: &mut ArrayConfig| record.forced_at.0 += 1,
        |record: &mut ArrayConfig| record.unfinished_since.0 += 1,
    ] {
        let mut bad = record.clone();
        change(&mut bad);
        assert_eq!(bad.check(), Err(FormatError::Invalid("history")));
    }
}

#[test]
fn a_record_says_when_it_was_written_and_one_without_the_bit_does_not() {
    let dated = ArrayConfig {
        written_seconds: 1_795_274_820,
        ..config(4)
    };
    let bytes = encoded(&dated);
    assert_eq!(bytes[616..624], 1_795_274_820_u64.to_le_bytes());
    let (_, read) = ArrayConfig::decode(&bytes).expect("good");
    assert_eq!(read, dated);
    assert_eq!(dated.next(9).written_seconds, 0, "not written yet");
    let undated = encoded(&config(4));
    let bit = |bytes: &[u8]| bytes[48] & 32 != 0;
    assert!(bit(&bytes) && !bit(&undated));
}

#[test]
fn no_two_writes_of_the_region_map_that_count_have_the_same_place() {
    let places = (0..4).flat_map(|block| [6, 7].map(|at| RegionBlock::offset(block, at)));
    let size = u64::try_from(REGION_BLOCK_BYTES).expect("few");
    assert!(places.eq((0..8).map(|place| place * size)));
    assert!(!Features::default().has_unwritten(), "unless it says so");
}

#[test]
fn records_alternate_between_the_areas_and_name_their_ancestors() {
    let mut now = config(4);
    for id in 0..40 {
        let next = now.next(id);
        assert_ne!(
            ArrayConfig::slot(next.update),
            ArrayConfig::slot(now.update)
        );
        assert_eq!(next.id_of(now.update), Some(now.update_id));
        assert!(next.ancestors.len() <= ANCESTORS_MAX);
        assert_eq!(next.check(), Ok(()));
        now = next;
    }
    assert_eq!(now.update, Update(41));
    assert_eq!(now.id_of(Update(25)), Some(23));
    assert_eq!(now.id_of(Update(24)), None);
}

#[test]
fn names_and_identities_are_bounded() {
    assert!(check_name(&"n".repeat(NAME_BYTES_MAX)).is_ok());
    for bad in ["", "a b", "ä", "a/b", &"n".repeat(64), "a\0"] {
        let said = check_name(bad).expect_err(bad).to_string();
        assert!(said.contains("is not a name"), "{said}");
    }
    let long = DriveIdentity::new(&format!("ä{}", "x".repeat(119)));
    assert_eq!(long.as_str().len(), 119, "half a character is not kept");
}

#[test]
fn what_members_missed_lies_behind_the_identity() {
    let mut one = config(4).next(7).next(8);
    let missed = Missed {
        base: Update(2),
        held: (Update(1), 0xABCD),
    };
    one.members[1].state = MemberState::Excluded {
        since: Update(3),
        cause: ExclusionCause::Gone,
        missed,
    };
    one.members[2].state = MemberState::Rebuilding {
        until: StripeIndex(9),
        missed,
    };
    let bytes = encoded(&one);
    let at = CONFIG_FIXED_BYTES + MEMBER_RECORD_BYTES + 168;
    assert_eq!(bytes[48], 3, "compat bits 0 and 1");
    assert_eq!(&bytes[at..at + 8], &2_u64.to_le_bytes());
    assert_eq!(&bytes[at + 8..at + 16], &1_u64.to_le_bytes());
    assert_eq!(&bytes[at + 16..at + 24], &0xABCD_u64.to_le_bytes());
    assert_eq!(ArrayConfig::decode(&bytes).expect("good").1, one);
    // Nobody can have missed what is still to come.
    for base in [4, u64::MAX] {
        let mut wrong = one.clone();
        wrong.members[1].state = MemberState::Excluded {
            since: Update(3),
            cause: ExclusionCause::Gone,
            missed: Missed {
                base: Update(base),
                ..missed
            },
        };
        let invalid = Err(FormatError::Invalid("what a member missed"));
        assert_eq!(wrong.check(), invalid, "base {base}");
        let mut wrong = one.clone();
        wrong.members[2].state = MemberState::Rebuilding {
            until: StripeIndex(9),
            missed: Missed {
                base: Update(base),
                ..missed
            },
        };
        assert_eq!(wrong.check(), invalid, "base {base}");
    }
}

#[test]
fn a_record_that_does_not_say_what_members_missed_means_everything() {
    let mut one = config(4).next(7);
    one.members[1].state = MemberState::Excluded {
        since: Update(2),
        cause: ExclusionCause::Gone,
        missed: Missed {
            base: Update(2),
            held: (Update(1), 5),
        },
    };
    // As engines wrote it before: without the bit, and with a longer identity.
    let mut bytes = encoded(&one);
    let length = 1024 + 4 * MEMBER_RECORD_BYTES;
    let record = CONFIG_FIXED_BYTES + MEMBER_RECORD_BYTES;
    bytes[48] = 0;
    bytes[record + 40..record + 42].copy_from_slice(&144_u16.to_le_bytes());
    bytes[record + 48..record + 192].fill(b'x');
    bytes.truncate(length);
    reseal(&mut bytes);
    let (_, found) = ArrayConfig::decode(&bytes).expect("an older record");
    assert_eq!(
        found.members[1].identity.as_str(),
        "x".repeat(IDENTITY_BYTES_MAX)
    );
    assert!(matches!(
        found.members[1].state,
        MemberState::Excluded {
            missed: Missed::ALL,
            since: Update(2),
            ..
        }
    ));
}

fn any_name() -> impl Strategy<Value = String> {
    proptest::collection::vec(0usize..64, 1..=NAME_BYTES_MAX).prop_map(|indices| {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
        indices
            .iter()
            .map(|index| char::from(letters[*index]))
            .collect()
    })
}

fn any_missed(base_max: u64) -> impl Strategy<Value = Missed> {
    (0..=base_max, any::<u64>(), any::<u64>()).prop_map(|(base, update, id)| Missed {
        base: Update(base),
        held: (Update(update), id),
    })
}

fn any_member() -> impl Strategy<Value = MemberRecord> {
    let state = prop_oneof![
        Just(MemberState::InSync),
        Just(MemberState::Missing),
        (any::<u64>(), any_missed(1)).prop_map(|(until, missed)| MemberState::Rebuilding {
            until: StripeIndex(until),
            missed,
        }),
        (
            any::<u64>(),
            0..ExclusionCause::ALL.len(),
            any_missed(u64::MAX)
        )
            .prop_map(|(since, cause, mut missed)| {
                missed.base = missed.base.min(Update(since));
                MemberState::Excluded {
                    since: Update(since),
                    cause: ExclusionCause::ALL[cause],
                    missed,
                }
            }),
    ];
    (any::<u128>(), state, any::<u64>(), ".{0,200}").prop_map(
        |(uuid, state, drive_bytes, identity)| MemberRecord {
            uuid: Uuid::from_u128(uuid),
            state,
            drive_bytes,
            identity: DriveIdentity::new(&identity),
        },
    )
}

/// Volumes whose extents are dealt out in turn, so that none is used twice.
fn any_volumes() -> impl Strategy<Value = Vec<VolumeRecord>> {
    let shape = (
        any_name(),
        1..=u64::MAX,
        proptest::collection::vec(1u64..1000, 0..6),
        0..3usize,
        any::<bool>(),
    );
    proptest::collection::vec(shape, 0..20).prop_map(|shapes| {
        let states = [
            VolumeState::Creating,
            VolumeState::Ready,
            VolumeState::Deleting,
        ];
        let mut next = 0;
        let mut volumes: Vec<VolumeRecord> = Vec::new();
        for (number, (name, size_blocks, counts, state, stable_buffers)) in (0..).zip(shapes) {
            let mut extents = Vec::new();
            for count in counts {
                extents.push(ExtentRun { first: next, count });
                next += 2 * count;
            }
            volumes.push(VolumeRecord {
                uuid: Uuid::from_u128(number),
                name,
                size_blocks,
                extents,
                state: states[state],
                stable_buffers,
            });
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        volumes.dedup_by(|one, other| one.name == other.name);
        volumes
    })
}

prop_compose! {
    fn any_config()(
        members in proptest::collection::vec(any_member(), 3..40),
        volumes in any_volumes(),
        name in any_name(),
        numbers in any::<(u128, u64, bool, u32, u64, u32)>(),
        ancestors in proptest::collection::vec(any::<u128>(), 0..=ANCESTORS_MAX),
        update in 1000u64..1 << 56,
        read_only_compat in any::<u64>(),
    ) -> ArrayConfig {
        ArrayConfig {
            array: Uuid::from_u128(numbers.0),
            name,
            update: Update(update),
            update_id: numbers.0 ^ 5,
            ancestors: (1..).zip(ancestors).map(|(back, id)| (Update(update - back), id)).collect(),
            forced_at: Update(update / 2),
            unfinished_since: Update(update / 3),
            written_seconds: update / 5,
            features: Features { compat: 0, read_only_compat, incompat: 0 },
            clean: numbers.2,
            resynced_until: StripeIndex(numbers.1),
            log_from: numbers.1 / 3,
            members,
            unzeroed: volumes
                .iter()
                .flat_map(|v| v.extents.iter().copied())
                .take(9)
                .collect::<Vec<_>>(),
            volumes,
            lost: {
                let mut lost = LostBlocks::default();
                lost.add(numbers.1..numbers.1.saturating_add(numbers.4 % 100));
                lost
            },
            options: ArrayOptions {
                write_hole: WriteHole::Strict,
                hold_timeout_seconds: numbers.3,
                rebuild_floor_bytes_per_second: numbers.4,
                latency_target_us: numbers.5,
                scrub_rate_bytes_per_second: numbers.4 ^ 7,
                scrub_every_seconds: numbers.3 ^ 9,
                hedged_reads: if numbers.2 { HedgedReads::Always } else { HedgedReads::Auto },
            },
            scrub: ScrubRecord {
                state: if numbers.2 { ScrubState::Paused } else { ScrubState::Scheduled },
                next: StripeIndex(numbers.1 / 5),
                finished_at: numbers.4 / 7,
                tally: ScrubTally {
                    mismatches: numbers.4,
                    unreadable: numbers.1,
                    repaired: 3,
                    unrepaired: numbers.1 ^ 4,
                },
            },
        }
    }
}

fn with_unzeroed_joined(mut config: ArrayConfig) -> ArrayConfig {
    config.unzeroed = join_runs(config.unzeroed).expect("dealt out in turn");
    config
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_config_record_is_read_as_it_was_written(
        config in any_config().prop_map(with_unzeroed_joined),
    ) {
        let bytes = encoded(&config);
        prop_assert_eq!(bytes.len() % 4096, 0);
        prop_assert_eq!(ArrayConfig::decode(&bytes), Ok((MemberIndex(2), config)));
    }

    #[test]
    fn member_sizes_lose_at_most_a_thousandth_and_rounding_twice_changes_nothing(
        bytes in any::<u64>(),
    ) {
        let rounded = Layout::member_bytes(bytes);
        prop_assert!(rounded <= bytes);
        prop_assert!(bytes - rounded < (1 << 20).max(bytes / 1000));
        prop_assert_eq!(Layout::member_bytes(rounded), rounded);
        prop_assert_eq!(rounded % (1 << 20), 0);
    }

    #[test]
    fn forged_bytes_never_panic_and_what_is_believed_can_be_written_again(
        changes in proptest::collection::vec((0usize..1600, any::<u8>()), 1..12),
        kind in any::<bool>(),
    ) {
        let mut full = config(3);
        full.volumes = vec![volume(1, vec![ExtentRun { first: 0, count: 3 }])];
        let mut bytes = if kind {
            encoded(&full)
        } else {
            superblock(1, 4, 1 << 28).encode().to_vec()
        };
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        let end = bytes_of(u64::from(length)).clamp(HEAD_BYTES, bytes.len());
        reseal(&mut bytes[..end]);
        if let Ok(superblock) = Superblock::decode(&bytes) {
            prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
            let _ = superblock.extents();
        }
        if let Ok((_, config)) = ArrayConfig::decode(&bytes) {
            let again = encoded(&config);
            prop_assert!(ArrayConfig::decode(&again).is_ok());
            let _ = config.check_against(&superblock(1, 3 + 1, 1 << 28));
        }
    }

    #[test]
    fn arbitrary_bytes_with_a_right_checksum_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), HEAD_BYTES..4096),
        kind in 0usize..2,
    ) {
        bytes[..8].copy_from_slice([b"GARBOARD", b"GBCONFIG"][kind]);
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        reseal(&mut bytes);
        let _ = Superblock::decode(&bytes);
        let _ = ArrayConfig::decode(&bytes);
    }
}

const _: () = assert!(ARRAY_VOLUMES_MAX == 1024, "docs/on-disk.md says so");
