//! The region map's promises: it fits, one copy outlives every loss that the data outlives, what
//! was written is read again, and of what cannot be read the worst is thought.

use units::{BlockSize, MemberIndex, StripeIndex, Update};
use uuid::Uuid;

use super::*;
use crate::format::{ArrayConfig, HEAD_BYTES, Layout, REGION_BLOCK_BYTES};
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

const fn kind(dirty: bool) -> RegionKind {
    if dirty {
        RegionKind::Dirty
    } else {
        RegionKind::Clean
    }
}

/// A map with one block's copies on the holders given, as sequence and dirty regions.
fn read(copies: &[(usize, u64, &[usize])]) -> RegionMap {
    let space = space(Level::L6, 6, None, GIB);
    taken(RegionMap::new(space, ARRAY), copies)
}

fn taken(mut map: RegionMap, copies: &[(usize, u64, &[usize])]) -> RegionMap {
    let space = *map.space();
    let holders: Vec<MemberIndex> = space.holders(0).collect();
    for &(holder, sequence, dirty) in copies {
        let mut bytes = [0; REGION_BLOCK_BYTES];
        if sequence > 0 {
            let told = |bit: usize| entry(kind(dirty.contains(&bit)), Update(sequence * 10));
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
    let told = |bit: usize| entry(kind(bit.is_multiple_of(3)), Update(bytes_u64(bit) << 40));
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
    // It was written, and somebody has erased it.
    let erased = RegionMap {
        blocks: Blocks::Mapped,
        ..RegionMap::new(*never_written.space(), ARRAY)
    };
    let erased = taken(
        erased,
        &[(0, 0, all_blank), (1, 0, all_blank), (2, 0, all_blank)],
    );
    assert_eq!(
        erased.dirty(),
        erased.space().count(),
        "not a block is there"
    );
    let end = StripeIndex(erased.space().stripes);
    assert!(erased.suspects_when_told(end).has(StripeIndex(0)));
    assert!(
        !erased.suspects(true, end).has(StripeIndex(0)),
        "a clean stop"
    );
    // Nobody in sync holds a copy.
    let nobody = read(&[]);
    assert_eq!(nobody.dirty(), nobody.space().regions(0).len());
    // The first write was torn on the only holder left.
    let mut torn = RegionMap::new(*nobody.space(), ARRAY);
    let holders: Vec<MemberIndex> = torn.space().holders(0).collect();
    torn.take(holders[0], 0, &[0; REGION_BLOCK_BYTES]);
    let mut bytes = [0; REGION_BLOCK_BYTES];
    RegionBlock::encode_into(
        (ARRAY, 0, 1),
        |_| entry(RegionKind::Clean, Update(0)),
        &mut bytes,
    );
    bytes[99] ^= 1;
    torn.take(holders[0], 0, &bytes);
    // A block of another array, and one that is another block.
    for (array, number) in [(Uuid::from_u128(6), 0), (ARRAY, 3)] {
        RegionBlock::encode_into(
            (array, number, 9),
            |_| entry(RegionKind::Clean, Update(0)),
            &mut bytes,
        );
        torn.take(holders[0], 0, &bytes);
    }
    torn.complete();
    assert_eq!(torn.entry(0).kind, RegionKind::Dirty);
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

#[test]
fn sets_of_regions_count_and_find_what_lies_behind_a_stripe() {
    let space = space(Level::L5, 4, None, GIB / 4);
    let count = space.count();
    assert!(count > 3 * 64, "more than some words: {count}");
    let patterns: [fn(usize) -> bool; 6] = [
        |_| false,
        |_| true,
        |region| region % 3 == 0,
        |region| region == 63 || region == 64,
        |region| region / 64 == 1,
        |region| region > 190,
    ];
    let bytes = |regions: usize| u64::try_from(regions).expect("few");
    for (number, is_in) in patterns.into_iter().enumerate() {
        let set = Suspects::of(&space, is_in);
        assert_eq!(set.count(), (0..count).filter(|at| is_in(*at)).count());
        for region in 0..count {
            let (start, end) = space.stripes(u32::try_from(region).expect("few"));
            for from in [start.0, start.0 + 1, end.0 - 1] {
                let left = (region..count).filter(|at| is_in(*at));
                let place = format!("pattern {number}, from {from} of region {region}");
                let from = StripeIndex(from);
                assert_eq!(set.count_from(from), bytes(left.clone().count()), "{place}");
                assert_eq!(set.regions_from(from), bytes(count - region), "{place}");
                assert_eq!(set.has(from), is_in(region), "{place}");
                let stripes = left.clone().map(|at| {
                    let (start, end) = space.stripes(u32::try_from(at).expect("few"));
                    end.0 - start.max(from).0
                });
                assert_eq!(set.stripes_from(from), stripes.sum::<u64>(), "{place}");
                let run = left.clone().next().map(|first| {
                    let after = (first..count).find(|at| !is_in(*at)).unwrap_or(count);
                    let place = |at| space.stripes(u32::try_from(at).expect("few"));
                    (place(first).0.max(from), place(after - 1).1)
                });
                assert_eq!(set.run_from(from), run, "{place}");
            }
        }
        let end = StripeIndex(space.stripes);
        assert_eq!((set.count_from(end), set.run_from(end)), (0, None));
    }
}

/// The map of an array that wrote all of its blocks when it was made, of which holder 0 has this.
fn formatted(blocks: impl Iterator<Item = (u64, [u8; REGION_BLOCK_BYTES])>) -> RegionMap {
    let space = space(Level::L6, 6, None, GIB);
    let mut map = RegionMap {
        blocks: Blocks::All,
        lost_from: 7 << reading::LOST_SHIFT,
        ..RegionMap::new(space, ARRAY)
    };
    let holder = space.holders(0).next().expect("M + 1");
    let mut places = [[0; REGION_BLOCK_BYTES]; 2];
    for (offset, block) in blocks {
        if offset == space.offset(0, 0) {
            places[0] = block;
        } else if offset == space.offset(0, 1) {
            places[1] = block;
        }
    }
    for place in &places {
        map.take(holder, 0, place);
    }
    map.complete();
    map
}

#[test]
fn a_new_array_is_unwritten_and_nobody_lacks_anything() {
    let space = space(Level::L6, 6, None, GIB);
    let holder = space.holders(0).next().expect("M + 1");
    let map = formatted(RegionMap::first_blocks(
        (space, ARRAY),
        holder,
        RegionKind::Unwritten,
    ));
    let all = space.regions(0);
    for region in all.clone() {
        assert_eq!(map.entry(region).kind, RegionKind::Unwritten);
    }
    // The other blocks were not read.
    assert_eq!(map.written(), space.count() - all.len());
    let written = map.written_regions();
    for region in [0, all.len() - 1, all.len(), space.count() - 1] {
        let (first, _) = space.stripes(u32::try_from(region).expect("few"));
        assert_eq!(written.has(first), region >= all.len(), "region {region}");
    }
    let suspects = map.suspects(false, StripeIndex(0));
    assert!(!suspects.has(StripeIndex(0)), "whatever the record says");
    for base in [0, 1, 7] {
        let missed = map.missed(Update(base)).expect("not everything");
        assert!(!missed.has(StripeIndex(0)), "since {base}");
    }
}

#[test]
fn who_has_nothing_lacks_what_is_written_and_after_a_clean_stop_nothing_is_suspect() {
    let map = found(true, &[[block_of(3, 6), block_of(3, 5)]]);
    let all = map.space().regions(0);
    let missed = map.missed(Update(0)).expect("not everything");
    for region in all {
        let (first, _) = map.space().stripes(u32::try_from(region).expect("few"));
        assert_eq!(missed.has(first), region < 3, "region {region}");
        assert_eq!(map.written_regions().has(first), region < 3);
    }
    let end = StripeIndex(map.space().stripes);
    assert!(map.suspects(false, end).has(StripeIndex(0)));
    assert!(!map.suspects(true, end).has(StripeIndex(0)), "it was told");
}

#[test]
fn a_member_of_a_new_array_gets_the_blocks_of_the_map_that_it_holds_and_no_others() {
    let space = space(Level::L6, 6, None, GIB);
    let blocks = u32::try_from(space.blocks()).expect("few blocks");
    for member in (0..6).map(MemberIndex::from_at) {
        let given = RegionMap::first_blocks((space, ARRAY), member, RegionKind::Clean);
        let given = given.map(|(offset, _)| offset);
        let held = (0..blocks).filter(|&block| space.holders(block).any(|one| one == member));
        let held = held.flat_map(|block| [2, 1].map(|sequence| space.offset(block, sequence)));
        assert!(given.eq(held), "{member}");
    }
}

#[test]
fn a_map_that_is_blank_where_it_was_written_is_lost() {
    let map = formatted(std::iter::empty());
    assert_eq!(map.entry(0).kind, RegionKind::Dirty);
    assert_eq!(
        map.sequence(0),
        7 << reading::LOST_SHIFT,
        "above all old copies"
    );
    let clean = map.suspects(true, StripeIndex(u64::MAX));
    assert!(clean.has(StripeIndex(0)), "whatever a stop has said");
    assert!(
        map.suspects(false, StripeIndex(u64::MAX))
            .has(StripeIndex(0))
    );
}

#[test]
fn what_is_unwritten_is_read_so_again() {
    let mut bytes = [0; REGION_BLOCK_BYTES];
    let told = |_| entry(RegionKind::Unwritten, Update(7));
    RegionBlock::encode_into((ARRAY, 0, 1), told, &mut bytes);
    let block = RegionBlock::decode(&bytes).expect("a good one");
    assert_eq!(block.entries[503], told(503));
}

/// A block of a map where regions up to so many are written.
fn block_of(written: usize, sequence: u64) -> [u8; REGION_BLOCK_BYTES] {
    let told = |bit: usize| {
        let kind = if bit < written {
            RegionKind::Dirty
        } else {
            RegionKind::Unwritten
        };
        entry(kind, Update(0))
    };
    let mut bytes = [0; REGION_BLOCK_BYTES];
    RegionBlock::encode_into((ARRAY, 0, sequence), told, &mut bytes);
    bytes
}

/// What a start finds of block 0: by holder both of its places.
fn found(is_whole: bool, places: &[[[u8; REGION_BLOCK_BYTES]; 2]]) -> RegionMap {
    let space = space(Level::L6, 6, None, GIB);
    let mut map = RegionMap {
        blocks: if is_whole {
            Blocks::AllWhole
        } else {
            Blocks::All
        },
        ..RegionMap::new(space, ARRAY)
    };
    for (member, places) in space.holders(0).zip(places) {
        for place in places {
            map.take(member, 0, place);
        }
    }
    map.complete();
    map
}

#[test]
fn after_a_clean_stop_a_newest_block_that_cannot_be_read_is_lost_and_not_torn() {
    let (old, new) = (block_of(3, 6), block_of(4, 7));
    let mut rotten = new;
    rotten[99] ^= 1;
    let end = StripeIndex(u64::MAX);
    // It was being written when the engine was killed: nobody relied on it.
    let torn = found(false, &[[old, rotten]]);
    assert_eq!(torn.entry(3).kind, RegionKind::Unwritten);
    assert_eq!(torn.entry(2).kind, RegionKind::Dirty);
    assert!(torn.is_uneven(0, |_| true), "it is written anew");
    // And not when the array was stopped well.
    let lost = found(true, &[[old, rotten]]);
    assert_eq!(lost.entry(3).kind, RegionKind::Dirty);
    let last = lost.space().regions(0).end - 1;
    assert_eq!(lost.entry(last).kind, RegionKind::Dirty);
    assert!(lost.suspects(true, end).has(StripeIndex(0)));
    let (first, behind) = lost.untold().next().expect("block 0");
    assert_eq!(first, StripeIndex(0));
    assert_eq!(lost.space().region(StripeIndex(behind.0 - 1)), 503);
    // Another holder knows which is the newest.
    let known = found(true, &[[old, rotten], [old, new]]);
    assert_eq!(known.entry(3).kind, RegionKind::Dirty);
    assert_eq!(known.entry(4).kind, RegionKind::Unwritten);
    assert!(known.is_told(0) && !lost.is_told(0) && !torn.is_told(0));
    let holders: Vec<MemberIndex> = known.space().holders(0).collect();
    assert!(known.is_uneven(0, |member| member == holders[0]));
    assert!(!known.is_uneven(0, |member| member == holders[1]));
}

#[test]
fn what_a_clean_stop_has_proved_is_known_to_later_starts() {
    let (old, new) = (block_of(3, 6), block_of(4, 7));
    let mut rotten = new;
    rotten[99] ^= 1;
    let blank = [[0; REGION_BLOCK_BYTES]; 2];
    let holders: Vec<MemberIndex> = found(true, &[]).space().holders(0).collect();
    // The record says "not clean" from the first start on, before a block is written.
    let lost = found(true, &[[old, rotten]]);
    assert_eq!(lost.to_erase(), [(holders[0], 0)]);
    let later = found(false, &[blank]);
    assert_eq!(later.entry(3).kind, RegionKind::Dirty);
    assert_eq!(later.untold().count(), later.space().blocks());
    // Of one that another holder makes up for no older place is to be believed.
    let known = found(true, &[[old, rotten], [old, new]]);
    assert_eq!(known.to_erase(), [(holders[0], 0)]);
    let older = found(true, &[[rotten, new], [old, new]]);
    assert!(older.to_erase().is_empty(), "it has the newest");
    // What is torn by a kill is believed to be that at the next start, too.
    let torn = found(false, &[[old, rotten], [old, new]]);
    assert!(torn.to_erase().is_empty());
}

#[test]
fn a_place_that_is_blank_beside_a_newer_block_is_damaged() {
    let blank = [0; REGION_BLOCK_BYTES];
    let first = found(true, &[[block_of(0, 2), block_of(0, 1)]]);
    assert_eq!(first.entry(0).kind, RegionKind::Unwritten, "as it is made");
    assert!(first.is_told(0) && first.to_erase().is_empty());
    let trimmed = found(true, &[[blank, block_of(0, 1)]]);
    assert_eq!(trimmed.entry(0).kind, RegionKind::Dirty);
    let lost = found(true, &[[block_of(3, 6), blank]]);
    assert_eq!(
        lost.entry(3).kind,
        RegionKind::Dirty,
        "7 may have been there"
    );
    assert!(!lost.is_told(0));
    let torn = found(false, &[[block_of(3, 6), blank]]);
    assert_eq!(torn.entry(3).kind, RegionKind::Unwritten);
}

#[test]
fn a_block_that_a_holder_could_not_read_goes_on_with_a_number_of_its_own() {
    let space = space(Level::L6, 6, None, GIB);
    let holders: Vec<MemberIndex> = space.holders(0).collect();
    let read = |blocks, newest| {
        let mut map = RegionMap {
            blocks,
            lost_from: 7 << reading::LOST_SHIFT,
            ..RegionMap::new(space, ARRAY)
        };
        map.miss(holders[0], 0);
        map.take(holders[1], 0, &block_of(3, newest));
        map.take(holders[1], 0, &block_of(3, newest - 1));
        map.complete();
        map
    };
    // It may have one more, and the same number may be written anew where the others are.
    for newest in [6, 7] {
        let map = read(Blocks::All, newest);
        assert_eq!(map.entry(3).kind, RegionKind::Unwritten);
        assert!(map.sequence(0) >= 7 << reading::LOST_SHIFT);
        assert!(map.is_uneven(0, |member| member == holders[0]));
        let next = space.offset(0, map.sequence(0) + 1);
        assert_ne!(next, space.offset(0, newest), "it may be torn");
    }
    let plain = read(Blocks::AsWritten, 6);
    assert_eq!(plain.sequence(0), 6, "it costs a resync there");
}

#[test]
fn what_was_written_for_certain_is_written_and_suspect_whatever_the_map_says() {
    let mut map = found(false, &[[block_of(3, 6), block_of(4, 7)]; 3]);
    let end = StripeIndex(u64::MAX);
    map.note_written(2);
    assert!(!map.is_uneven(0, |_| true), "it says so already");
    assert!(!map.suspects_when_told(end).has(map.space().stripes(2).0));
    assert_eq!(map.untold().count(), map.space().blocks() - 1, "not read");
    // Then a newer block was on all holders, and nobody knows what else it said.
    map.note_written(70);
    for region in [70, 71, 503] {
        assert_eq!(map.entry(region).kind, RegionKind::Dirty);
        let (stripe, _) = map.space().stripes(70);
        assert!(map.suspects_when_told(end).has(stripe));
        assert!(map.suspects(true, end).has(stripe));
    }
    assert!(map.is_uneven(0, |_| true), "it is on no drive as yet");
    assert_eq!(map.untold().count(), map.space().blocks());
    let holders = map.space().holders(0).count();
    assert_eq!(map.to_erase().len(), holders, "nobody believes it any more");
}

#[test]
fn a_block_that_is_lost_goes_on_behind_whatever_was_written_before_this_update() {
    let superblock = crate::format::tests::superblock(0, 6, GIB);
    let mut config = crate::format::tests::config(6);
    config.update = Update(9);
    let mut map = RegionMap::to_read(&superblock, &config);
    map.complete();
    assert_eq!(map.sequence(0), 9 << reading::LOST_SHIFT);
}

#[test]
fn a_block_that_was_made_up_tells_of_no_update_to_come_and_ends_no_numbers() {
    let superblock = crate::format::tests::superblock(0, 6, GIB);
    let mut config = crate::format::tests::config(6);
    config.update = Update(9);
    let read = |config: &ArrayConfig, sequence, epoch| {
        let epoch = Update(epoch);
        let entry = |_| RegionEntry {
            kind: RegionKind::Clean,
            epoch,
        };
        let mut bytes = [0; REGION_BLOCK_BYTES];
        RegionBlock::encode_into((superblock.array, 0, sequence), entry, &mut bytes);
        let mut map = RegionMap::to_read(&superblock, config);
        let holders: Vec<MemberIndex> = map.space().holders(0).collect();
        for holder in holders {
            map.take(holder, 0, &bytes);
        }
        map.complete();
        map
    };
    for (epoch, taken) in [(8, 8), (10, 10), (11, 10), (1 << 50, 10)] {
        let map = read(&config, 5, epoch);
        let expected = RegionEntry {
            kind: RegionKind::Clean,
            epoch: Update(taken),
        };
        assert_eq!(map.entry(0), expected);
    }
    for sequence in [1 << 63, u64::MAX] {
        let map = read(&config, sequence, 8);
        assert_eq!(map.entry(0).kind, RegionKind::Dirty, "it is damaged");
        assert_eq!(map.sequence(0), 9 << reading::LOST_SHIFT);
    }
    config.update = Update((1 << 56) - 1);
    let sequence = read(&config, u64::MAX, 8).sequence(0);
    assert!(
        sequence > 1 << 60 && sequence < u64::MAX / 2 + 10,
        "{sequence}"
    );
}
