//! Regions become clean only after a flush that went well, of all that was written before.

use std::time::Duration;

use units::{BlockSize, Instant, MemberIndex, ReactorIndex, Update};
use uuid::Uuid;

use super::*;
use crate::format::Layout;
use crate::geometry::{Geometry, GeometryParameters, Level};

fn all_dirty() -> RegionMap {
    let layout = Layout::for_member(64 << 20, BlockSize::B4096, 3).expect("large enough");
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 3,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block: BlockSize::B4096,
        member_data_blocks: layout.data.length / 4096,
    })
    .expect("a good geometry");
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
