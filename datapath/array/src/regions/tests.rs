//! The region map's promises: it fits, one copy outlives every loss that the data outlives, what
//! was written is read again, and of what cannot be read the worst is thought.

use units::{BlockSize, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::*;
use crate::format::{HEAD_BYTES, Layout, REGION_BLOCK_BYTES};
use crate::geometry::{GeometryParameters, Level};

const GIB: u64 = 1 << 30;
const ARRAY: Uuid = Uuid::from_u128(5);

fn geometry(level: Level, members: usize, group: Option<usize>, layout: &Layout) -> Geometry {
    Geometry::new(GeometryParameters {
        level,
        members,
        parity: None,
        group_size: group,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: layout.data.length / 4096,
    })
    .expect("a good geometry")
}

fn space(level: Level, members: usize, group: Option<usize>, drive_bytes: u64) -> RegionSpace {
    let layout = Layout::for_member(drive_bytes, BlockSize::B4096, members).expect("large enough");
    let geometry = geometry(level, members, group, &layout);
    let area = layout.region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    let space = RegionSpace::new(&geometry, stripes, (area.offset, area.length)).expect("fits");
    let (first, end) = space.stripes(0);
    let bytes = (end.0 - first.0) * geometry.stripe_bytes();
    assert!(
        bytes >= 1 << 20 || space.count() == 1,
        "{bytes} of user data"
    );
    space
}

#[test]
fn the_map_fits_its_area_from_the_smallest_drive_to_the_largest_array() {
    for drive_bytes in [16 << 20, 64 << 20, 1 << 30, 1_000 * GIB, 61_440 * GIB] {
        for members in [4, 24, 64] {
            let space = space(Level::L6, members, None, drive_bytes);
            assert!(space.count() <= 1 << 20);
            let last = StripeIndex(space.stripes - 1);
            assert_eq!(
                bytes_usize(u64::from(space.region(last))),
                space.count() - 1
            );
            let last = u32::try_from(space.count() - 1).expect("few");
            assert_eq!(space.stripes(last).1, StripeIndex(space.stripes));
            assert!(space.regions(0).len() == 504.min(space.count()));
        }
    }
    // 22 × 61 TB: a region is the size that a fast array resynchronises in milliseconds.
    let large = space(Level::L6, 24, None, 61_440 * GIB);
    let (_, end) = large.stripes(0);
    let megabytes = (end.0 * 22 * (64 << 10)) >> 20;
    assert!((1024..4096).contains(&megabytes), "{megabytes} MiB");
}

#[test]
fn a_copy_is_left_as_long_as_the_group_has_its_data() {
    for (level, members, group) in [
        (Level::L1, 3, None),
        (Level::L10, 6, None),
        (Level::L5, 3, None),
        (Level::L7, 9, None),
        (Level::L60, 12, Some(6)),
    ] {
        let space = space(level, members, group, GIB);
        for block in 0..40 {
            let holders: Vec<MemberIndex> = space.holders(block).collect();
            assert_eq!(holders.len(), space.copies);
            let group = holders[0].at() / space.group_members;
            for (position, holder) in holders.iter().enumerate() {
                assert_eq!(holder.at() / space.group_members, group, "one group");
                assert!(!holders[..position].contains(holder), "{holders:?}");
            }
        }
    }
}

/// A map with one block's copies on the holders given, as sequence and dirty regions.
fn read(copies: &[(usize, u64, &[usize])]) -> RegionMap {
    let space = space(Level::L6, 6, None, GIB);
    let mut map = RegionMap::new(space, ARRAY);
    let holders: Vec<MemberIndex> = space.holders(0).collect();
    for &(holder, sequence, dirty) in copies {
        let mut bytes = [0; REGION_BLOCK_BYTES];
        if sequence > 0 {
            let told = |bit: usize| entry(dirty.contains(&bit), Update(sequence * 10));
            RegionBlock::encode_into((ARRAY, 0, sequence), told, &mut bytes);
        }
        map.take(holders[holder], 0, &bytes);
    }
    // The other blocks were never written.
    for block in 1..u32::try_from(space.blocks()).expect("few") {
        for holder in space.holders(block) {
            map.take(holder, block, &[0; REGION_BLOCK_BYTES]);
        }
    }
    map.complete();
    map
}

#[test]
fn what_was_written_is_read_again() {
    let mut bytes = [0; REGION_BLOCK_BYTES];
    let told = |bit: usize| entry(bit.is_multiple_of(3), Update(bytes_u64(bit) << 40));
    RegionBlock::encode_into((ARRAY, 9, 77), told, &mut bytes);
    let block = RegionBlock::decode(&bytes).expect("good");
    assert_eq!((block.array, block.number, block.sequence), (ARRAY, 9, 77));
    for (bit, found) in block.entries.iter().enumerate() {
        assert_eq!(*found, told(bit));
    }
    // As the document says: kind, sequence in the head's update, number, then 8 bytes for each.
    assert_eq!(&bytes[..8], b"GBREGION");
    assert_eq!(&bytes[40..48], &77_u64.to_le_bytes());
    assert_eq!(&bytes[HEAD_BYTES..HEAD_BYTES + 4], &9_u32.to_le_bytes());
    let third = (3_u64 << 40) << 8 | 1;
    assert_eq!(&bytes[64 + 3 * 8..][..8], &third.to_le_bytes());
    for at in (0..REGION_BLOCK_BYTES).step_by(7) {
        let mut torn = bytes;
        torn[at] ^= 0x10;
        assert!(RegionBlock::decode(&torn).is_err(), "byte {at}");
    }
}

#[test]
fn the_newest_copy_decides_and_members_without_it_are_uneven() {
    let map = read(&[(0, 4, &[1]), (0, 5, &[1, 2]), (1, 4, &[1]), (2, 5, &[1, 2])]);
    assert_eq!(map.dirty(), 2);
    assert_eq!(map.sequence(0), 5);
    assert_eq!(map.entry(2).epoch, Update(50));
    let holders: Vec<MemberIndex> = map.space().holders(0).collect();
    assert!(map.is_uneven(0, |_| true));
    assert!(map.is_uneven(0, |member| member == holders[1]));
    assert!(!map.is_uneven(0, |member| member != holders[1]));
    assert!(!map.is_uneven(1, |_| true), "never written, everywhere");
    // Written on the members, but not on all: nobody may write there before it is.
    let states = RegionStates::new(&map, |_| true);
    assert_eq!(states.get(1), RegionState::Clean);
    let states = RegionStates::new(&map, |member| member != holders[1]);
    assert_eq!(states.get(1), RegionState::Waiting);
    assert!(!states.begin_write(1), "the start is not durable");
    states.open();
    assert_eq!(states.get(1), RegionState::Dirty);
    assert_eq!(states.get(3), RegionState::Clean);
}

#[test]
fn of_what_cannot_be_read_the_worst_is_thought() {
    let all_blank: &[usize] = &[];
    let never_written = read(&[(0, 0, all_blank), (1, 0, all_blank), (2, 0, all_blank)]);
    assert_eq!(never_written.dirty(), 0);
    // Nobody in sync holds a copy.
    let nobody = read(&[]);
    assert_eq!(nobody.dirty(), nobody.space().regions(0).len());
    // The first write was torn on the only holder left.
    let mut torn = RegionMap::new(*nobody.space(), ARRAY);
    let holders: Vec<MemberIndex> = torn.space().holders(0).collect();
    torn.take(holders[0], 0, &[0; REGION_BLOCK_BYTES]);
    let mut bytes = [0; REGION_BLOCK_BYTES];
    RegionBlock::encode_into((ARRAY, 0, 1), |_| entry(false, Update(0)), &mut bytes);
    bytes[99] ^= 1;
    torn.take(holders[0], 0, &bytes);
    // A block of another array, and one that is another block.
    for (array, number) in [(Uuid::from_u128(6), 0), (ARRAY, 3)] {
        RegionBlock::encode_into((array, number, 9), |_| entry(false, Update(0)), &mut bytes);
        torn.take(holders[0], 0, &bytes);
    }
    torn.complete();
    assert!(torn.entry(0).dirty);
    assert_eq!(torn.sequence(0), 0);
    // What the last engine tells does not help there, and helps where a copy is good.
    let end = StripeIndex(torn.space().stripes);
    assert!(torn.suspects_when_told(end).has(StripeIndex(0)));
    let known = read(&[(0, 1, &[3]), (1, 1, &[3])]);
    assert_eq!(known.suspects(false, end).count(), 1);
    assert_eq!(known.suspects_when_told(end).count(), 0);
}

#[test]
fn suspects_are_the_dirty_and_those_that_no_resync_has_reached() {
    let map = read(&[(0, 1, &[3, 4, 7]), (1, 1, &[3, 4, 7]), (2, 1, &[3, 4, 7])]);
    let space = *map.space();
    let end = StripeIndex(space.stripes);
    let clean = map.suspects(true, end);
    assert_eq!(clean.run_from(StripeIndex(0)), None);
    let dirty = map.suspects(false, end);
    let (three, _) = space.stripes(3);
    let (_, four) = space.stripes(4);
    assert_eq!(dirty.run_from(StripeIndex(0)), Some((three, four)));
    let inside = StripeIndex(three.0 + 1);
    assert_eq!(dirty.run_from(inside), Some((inside, four)));
    assert_eq!(dirty.run_from(four), Some(space.stripes(7)));
    assert_eq!(dirty.run_from(space.stripes(8).0), None);
    let per_region = four.0 - three.0;
    assert_eq!(dirty.stripes_from(inside), per_region - 1 + per_region / 2);
    // The last region of a large array, found over many empty words.
    let reached = StripeIndex(space.stripes - 1);
    let late = map.suspects(true, reached);
    let last = u32::try_from(space.count() - 1).expect("few");
    assert_eq!(late.run_from(StripeIndex(0)), Some(space.stripes(last)));
    assert!(late.has(reached) && !late.has(three));
    let all = Suspects::all(&space);
    assert_eq!(all.run_from(StripeIndex(0)), Some((StripeIndex(0), end)));
}

#[test]
fn runs_end_where_the_last_region_is_cut_short() {
    let whole = space(Level::L5, 4, None, GIB);
    let cut = RegionSpace {
        stripes: whole.stripes - (whole.stripes % (1 << whole.shift)) - 1,
        ..whole
    };
    assert_ne!(cut.stripes % (1 << cut.shift), 0, "the last is shorter");
    let all = Suspects::all(&cut);
    let end = StripeIndex(cut.stripes);
    assert_eq!(all.run_from(StripeIndex(0)), Some((StripeIndex(0), end)));
    assert_eq!(all.run_from(end), None);
    assert_eq!(all.stripes_from(StripeIndex(0)), cut.stripes);
}
