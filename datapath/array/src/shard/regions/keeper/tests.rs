//! Regions become clean only after a flush that went well, of all that was written before.

use std::time::Duration;

use units::{BlockSize, Instant, MemberIndex, ReactorIndex, Update};
use uuid::Uuid;

use super::*;
use crate::format::Layout;
use crate::geometry::{Geometry, GeometryParameters, Level};

fn geometry_of(member_bytes: u64) -> Geometry {
    let layout = Layout::for_member(member_bytes, BlockSize::B4096, 3).expect("large enough");
    Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 3,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: layout.data.length / 4096,
    })
    .expect("a good geometry")
}

fn all_dirty() -> RegionMap {
    let layout = Layout::for_member(64 << 20, BlockSize::B4096, 3).expect("large enough");
    let geometry = geometry_of(64 << 20);
    let area = layout.region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    let space = RegionSpace::new(&geometry, stripes, (area.offset, area.length)).expect("fits");
    RegionMap::new(space, Uuid::from_u128(5)).all_dirty()
}

#[test]
fn after_a_flush_that_failed_regions_are_flushed_again_before_they_are_clean() {
    let map = all_dirty();
    let mut keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    let states = RegionStates::new(&map, |_: MemberIndex| true);
    states.open();
    let sweep = |keeper: &mut RegionKeeper| {
        keeper.sweep((0, usize::MAX), Update(1), &states, |_| true);
    };
    let others = || vec![ReactorIndex(1)];
    let asking = Clear::Asking {
        todo: others(),
        pending: 0,
    };
    keeper.begin_clear(Instant(0), others());
    assert_eq!(keeper.clear, Clear::Sweeping { next: 0 }, "it only marks");
    sweep(&mut keeper);
    assert_eq!(states.get(0), RegionState::Clearing);
    keeper.begin_clear(Instant(0), others());
    assert_eq!(keeper.clear, asking);
    // The flush fails.
    keeper.clear = keeper.clear_later();
    keeper.begin_clear(Instant(0), others());
    assert_eq!(keeper.clear, asking, "nothing was flushed");
    // This one goes well.
    sweep(&mut keeper);
    assert!(keeper.is_all_clean());
}

/// A map of three blocks, the last of which is short, that says clean throughout.
fn clean_keeper() -> RegionKeeper {
    let geometry = geometry_of(20 << 30);
    let area = Layout::for_member(20 << 30, BlockSize::B4096, 3)
        .expect("large enough")
        .region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    let space = RegionSpace::new(&geometry, stripes, (area.offset, area.length)).expect("fits");
    let map = RegionMap::new(space, Uuid::from_u128(5));
    assert!(space.blocks() >= 2, "{}", space.count());
    RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory")
}

fn ask(keeper: &mut RegionKeeper, region: u32, milliseconds: u64) -> usize {
    let now = Instant(1_000_000_000 + milliseconds * 1_000_000);
    keeper.want((ReactorIndex(0), region), now, true);
    keeper.dirty_total
}

#[test]
fn a_storm_dirties_its_run_and_a_stream_its_block() {
    let mut keeper = clean_keeper();
    assert_eq!(ask(&mut keeper, 0, 0), 1);
    assert_eq!(ask(&mut keeper, 1, 60), 2, "not so fast");
    assert_eq!(ask(&mut keeper, 2, 70), 24);
    // The next run begins as any.
    assert_eq!(ask(&mut keeper, 24, 80), 25);
    assert_eq!(ask(&mut keeper, 25, 90), 504);
    // So does the next block.
    assert_eq!(ask(&mut keeper, 504, 100), 505);
    assert_eq!(ask(&mut keeper, 505, 101), 528);
    // What was dirtied long before is nothing to go on with.
    assert_eq!(ask(&mut keeper, 528, 1_200), 529);
    assert_eq!(ask(&mut keeper, 529, 1_210), 552);
    // The last run of all is short.
    let last = u32::try_from(keeper.space.count() - 1).expect("few");
    assert!(last > 1_008, "{last}");
    let before = ask(&mut keeper, last, 2_000);
    let run = (keeper.space.count() - 1) % 24 + 1;
    assert!(run > 1, "{run}");
    assert_eq!(ask(&mut keeper, last - 1, 2_001), before - 1 + run);
}

#[test]
fn random_writes_over_many_runs_are_no_storm() {
    let mut keeper = clean_keeper();
    let mut random = 1_u64;
    let count = u64::try_from(keeper.space.count()).expect("few");
    for asked in 0..400 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let region = u32::try_from((random >> 33) % count).expect("few");
        ask(&mut keeper, region, asked);
    }
    // Every run is met once in 1.7 s, every block every 80 ms.
    assert!(keeper.dirty_total < 1_500, "{}", keeper.dirty_total);
}

#[test]
fn with_a_member_out_neighbours_stay_clean() {
    let mut keeper = clean_keeper();
    for region in 0..10 {
        keeper.want((ReactorIndex(0), region), Instant(5_000_000_000), false);
    }
    assert_eq!(keeper.dirty_total, 10);
}
