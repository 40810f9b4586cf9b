//! Tests: who is filled next, and what a window may say of whom it does not fill.

use std::sync::Arc;

use units::{
    ArrayIndex, BlockSize, DriveIndex, MemberIndex, MemberSet, ReactorIndex, StripeIndex, Update,
};

use super::{completes, filled_next, first_lacking, is_lacking};
use crate::format::{HedgedReads, Layout, WriteHole};
use crate::geometry::{Geometry, GeometryParameters, Level};
use crate::map::{ArrayMap, MapMember, MapState, Pass, Window};
use crate::owners::Owners;
use crate::regions::{RegionSpace, Suspects};

/// A RAID 60 of two groups of five, all in sync.
pub(crate) fn whole() -> ArrayMap {
    let block = BlockSize::B4096;
    let layout = Layout::for_member(1 << 30, block, 10).expect("large enough");
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L60,
        members: 10,
        parity: None,
        group_size: Some(5),
        chunk_bytes: 64 << 10,
        block,
        member_data_blocks: layout.data.length / block.bytes(),
    })
    .expect("a good shape");
    let area = (layout.region_map.offset, layout.region_map.length);
    let stripes = RegionSpace::stripes_for(&geometry, area.1);
    let space = RegionSpace::new(&geometry, stripes, area).expect("fits");
    let member = |drive| MapMember {
        drive: Some(DriveIndex(drive)),
        incarnation: 0,
        data_offset: layout.data.offset,
        trial_offset: layout.bad_ranges.offset,
        state: MapState::InSync,
    };
    ArrayMap {
        array: ArrayIndex(0),
        serial: 1,
        barrier: 0,
        update: Update(1),
        geometry,
        members: (0..10).map(member).collect(),
        hopeless: vec![false; 10],
        held: vec![false; 10],
        released: vec![0; 10],
        given_up: false,
        trusted_until: StripeIndex(geometry.stripes()),
        suspects: Arc::new(Suspects::none(&space)),
        missed: vec![None; 10],
        lost_blocks: Arc::default(),
        window: None,
        log_life: 1,
        log_from: 1,
        write_hole: WriteHole::Auto,
        hedged_reads: HedgedReads::Auto,
        owners: Owners::new(|_| ReactorIndex(0)),
        home: ReactorIndex(0),
        read_only: false,
    }
}

/// One that was filled below `permille` of the stripes.
fn rebuild(map: &mut ArrayMap, position: usize, permille: u64) {
    let until = StripeIndex(map.geometry.stripes() * permille / 1000);
    map.members[position].state = MapState::Rebuilding { until };
}

/// One that comes back, and has missed so many regions from `first` on.
fn bring_back(map: &mut ArrayMap, position: usize, first: usize, count: usize) {
    rebuild(map, position, 0);
    let missed = Suspects::of(map.suspects.space(), |region| {
        (first..first + count).contains(&region)
    });
    map.missed[position] = Some(Arc::new(missed));
}

fn filled(map: &ArrayMap) -> Vec<usize> {
    let next = filled_next(map);
    let has = |position: &usize| next.has(MemberIndex::from_at(*position));
    (0..map.members.len()).filter(has).collect()
}

#[test]
fn the_group_that_has_lost_more_comes_first() {
    let mut map = whole();
    assert_eq!(filled(&map), [0; 0]);
    rebuild(&mut map, 1, 900);
    assert_eq!(filled(&map), [1]);
    rebuild(&mut map, 7, 0);
    assert_eq!(filled(&map), [1, 7], "both groups can lose one more");
    map.members[9].state = MapState::Lost;
    assert_eq!(filled(&map), [7], "its group can lose no more");
    rebuild(&mut map, 9, 400);
    assert_eq!(filled(&map), [7, 9], "one after another would take longer");
}

#[test]
fn the_member_that_lacks_little_comes_before_one_that_lacks_much() {
    let mut map = whole();
    rebuild(&mut map, 5, 100);
    bring_back(&mut map, 8, 40, 3);
    assert_eq!(filled(&map), [8]);
    let (first, _) = map.suspects.space().stripes(40);
    assert_eq!(
        first_lacking(&map, &filled_next(&map), StripeIndex(0)),
        first
    );
    // Its group's drives are not the other group's.
    rebuild(&mut map, 0, 0);
    rebuild(&mut map, 2, 990);
    assert_eq!(filled(&map), [2, 8]);
}

#[test]
fn one_that_lacks_nothing_is_called_in_sync_first() {
    let mut map = whole();
    rebuild(&mut map, 0, 0);
    rebuild(&mut map, 1, 0);
    bring_back(&mut map, 8, 0, 0);
    assert_eq!(filled(&map), [8]);
    let start = first_lacking(&map, &filled_next(&map), StripeIndex(0));
    assert_eq!(start.0, map.geometry.stripes());
    let window = crate::coordinator::next_window(&map, Pass::Rebuild, start, 1 << 20);
    assert_eq!((window.start, window.end), (start, start));
    assert!(completes(&map, &window));
    rebuild(&mut map, 0, 1000);
    map.missed[8] = None;
    assert_eq!(filled(&map), [0], "its last region is cut short");
}

#[test]
fn a_window_fills_and_completes_its_own_members_only() {
    let mut map = whole();
    rebuild(&mut map, 5, 0);
    bring_back(&mut map, 8, 2, 1);
    let (start, end) = map.suspects.space().stripes(2);
    // Every other stripe is of its group.
    let bytes = (end.0 - start.0) / 2 * map.geometry.stripe_bytes();
    let window = crate::coordinator::next_window(&map, Pass::Rebuild, start, bytes);
    assert_eq!((window.start, window.end), (start, end));
    assert_eq!(window.fills, MemberSet::EMPTY.with(MemberIndex::from_at(8)));
    map.window = Some(window);
    let stripe = (start.0..end.0).map(StripeIndex);
    let stripe = stripe.filter(|stripe| map.geometry.group(*stripe).at() == 1);
    for stripe in stripe {
        let role = |position| map.geometry.role(stripe, MemberIndex::from_at(position));
        let (five, eight) = (role(5).expect("its group"), role(8).expect("its group"));
        let to_fill = map.to_fill(stripe);
        assert!(to_fill.has(eight) && to_fill.len() == 1);
        let lost = map.lost(stripe, true);
        assert!(lost.has(five) && !lost.has(eight));
        assert!(map.lost(stripe, false).has(eight));
    }
    assert!(completes(&map, &window) && is_lacking(&map));
    let fills = MemberSet::EMPTY.with(MemberIndex::from_at(5));
    assert!(!completes(&map, &Window { fills, ..window }));
    map.members[5].state = MapState::InSync;
    map.missed[8] = Some(Arc::new(Suspects::none(map.suspects.space())));
    assert!(!is_lacking(&map));
}

#[test]
fn what_is_lacked_is_counted_in_stripes_of_all_groups() {
    let mut map = whole();
    let stripes = map.geometry.stripes();
    assert_eq!(map.lacking(), (0, 0));
    let filled = |until| MapState::Rebuilding {
        until: StripeIndex(until),
    };
    map.members[2].state = filled(stripes / 4);
    assert_eq!(
        map.lacking(),
        ((stripes - stripes / 4) / 2, stripes / 2),
        "half of the stripes are of the other group"
    );
    map.members[7].state = filled(0);
    assert_eq!(
        map.lacking(),
        ((2 * stripes - stripes / 4) / 2, stripes),
        "one in each group"
    );
}
