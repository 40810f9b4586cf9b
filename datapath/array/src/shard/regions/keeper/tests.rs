//! Regions become clean only after a flush that went well, of all that was written before.

#[cfg(loom)]
mod interleavings;

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
    RegionMap::new(space(64 << 20), Uuid::from_u128(5)).all_dirty()
}

fn space(drive_bytes: u64) -> RegionSpace {
    let layout = Layout::for_member(drive_bytes, BlockSize::B4096, 3).expect("large enough");
    let geometry = geometry_of(drive_bytes);
    let area = layout.region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    RegionSpace::new(&geometry, stripes, (area.offset, area.length)).expect("fits")
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
    keeper.want((ReactorIndex(0), region), now, Some(4));
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
        keeper.want((ReactorIndex(0), region), Instant(5_000_000_000), None);
    }
    assert_eq!(keeper.dirty_total, 10);
}

/// A keeper of a new array, and the states of its regions.
fn unwritten() -> (RegionKeeper, RegionStates) {
    let space = *all_dirty().space();
    let map = RegionMap::unwritten(space, Uuid::from_u128(5));
    let keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    let states = RegionStates::new(&map, |_: MemberIndex| true);
    states.open();
    (keeper, states)
}

#[test]
fn a_region_that_was_never_written_is_zeroed_before_the_map_says_otherwise() {
    let (mut keeper, states) = unwritten();
    assert!(states.is_unwritten(3) && !states.begin_write(3));
    keeper.want((ReactorIndex(0), 3), Instant(0), Some(4));
    assert!(!keeper.has_work(), "nothing is to be said of it yet");
    assert_eq!(keeper.written_regions().count(), 0);
    let round = keeper.begin_zeroing(1).expect("one is wanted");
    assert_eq!(round.regions, [3]);
    keeper.zeroed(3);
    assert_eq!(keeper.written_regions().count(), 1);
    assert!(keeper.has_work() && states.is_unwritten(3));
    let missed = keeper.missed(Update(9)).expect("since an update");
    assert_eq!(missed.count(), 1, "who comes from here on lacks it");
    keeper.begin_round(|_| true);
    let mut round = keeper.round.take().expect("a round");
    round.flushed = (0..3).map(MemberIndex).collect();
    keeper.publish(&round, &states, false);
    assert!(states.begin_write(3) && !states.is_unwritten(3));
    let asked = keeper.take_answers(&states, false);
    assert_eq!(asked, [(ReactorIndex(0), 3)]);
}

#[test]
fn what_cannot_be_zeroed_stays_zeroes_and_is_never_written() {
    let (mut keeper, states) = unwritten();
    keeper.want((ReactorIndex(0), 3), Instant(0), Some(4));
    let round = keeper.begin_zeroing(1).expect("one is wanted");
    keeper.seal(&round.regions, &states);
    assert!(states.is_unwritten(3) && states.is_lost(3) && !states.begin_write(3));
    // Nor where nobody takes the block.
    keeper.want((ReactorIndex(0), 5), Instant(0), Some(4));
    let round = keeper.begin_zeroing(1).expect("one is wanted");
    keeper.zeroed(round.regions[0]);
    keeper.begin_round(|_| true);
    let round = keeper.round.take().expect("a round");
    keeper.publish(&round, &states, true);
    assert!(states.is_unwritten(5) && states.is_lost(5));
    assert_eq!(keeper.take_answers(&states, false).len(), 2);
}

#[test]
fn what_is_refused_is_barred_for_a_while_or_until_who_refuses_is_out() {
    let second = |seconds: u64| Instant(seconds * 1_000_000_000);
    for member_out in [false, true] {
        let (mut keeper, states) = unwritten();
        keeper.want((ReactorIndex(0), 3), second(1), None);
        let round = keeper.begin_zeroing(1).expect("one is wanted");
        assert!(!keeper.has_bars() && keeper.deadline().is_none());
        keeper.seal(&round.regions, &states);
        keeper.bar(Bar::Zeroes(3), (MemberIndex(1), 7), second(1));
        assert!(keeper.is_idle() || keeper.has_askers());
        assert_eq!(keeper.take_answers(&states, false).len(), 1);
        // Not ahead of others either.
        keeper.want((ReactorIndex(0), 1), second(2), Some(4));
        keeper.want((ReactorIndex(0), 2), second(2), Some(4));
        let round = keeper.begin_zeroing(1).expect("others are wanted");
        assert_eq!(round.regions, [1, 2, 4, 5, 6]);
        let end = keeper.deadline().expect("it ends");
        let early = Instant(end.0 - 1);
        assert_eq!(keeper.lift_bars(early, |_| true, &states), 0);
        assert!(states.is_lost(3));
        let is_needed = |refuser| !member_out || refuser != (MemberIndex(1), 7);
        let now = if member_out { early } else { end };
        assert_eq!(keeper.lift_bars(now, is_needed, &states), 1);
        assert!(!states.is_lost(3) && states.is_unwritten(3) && !keeper.has_bars());
        keeper.want((ReactorIndex(0), 3), second(90), None);
        let round = keeper.begin_zeroing(1).expect("it is wanted again");
        assert_eq!(round.regions, [3]);
    }
}

#[test]
fn what_two_things_bar_is_barred_until_both_are_over() {
    let (mut keeper, states) = unwritten();
    let who = (MemberIndex(1), 7);
    keeper.seal(&[3], &states);
    keeper.bar(Bar::Zeroes(3), who, Instant(9));
    keeper.bar(Bar::Block(0), who, Instant(5));
    keeper.close(0, &states);
    assert!(states.is_lost(3) && states.is_lost(4) && keeper.is_barred(3));
    let end = keeper.deadline().expect("it ends");
    assert_eq!(keeper.lift_bars(end, |_| true, &states), 1);
    assert!(states.is_lost(3) && !states.is_lost(4) && !keeper.is_barred(3));
    let end = keeper.deadline().expect("the other one ends");
    assert_eq!(keeper.lift_bars(end, |_| true, &states), 1);
    assert!(!states.is_lost(3) && keeper.deadline().is_none());
}

/// A round of the one block that a holder has refused.
fn refused_round(keeper: &mut RegionKeeper) -> Round {
    keeper.begin_round(|_| true);
    let mut round = keeper.round.take().expect("a round");
    round.flushed = (0..3).map(MemberIndex).collect();
    let refuser = (keeper.space.holders(0).next().expect("some"), 0);
    keeper.note_bad_place(0, refuser);
    round.refused.push((0, refuser));
    round
}

#[test]
fn a_block_that_is_owed_and_refused_stays_owed_until_it_was_written_again_or_barred() {
    for comes_meanwhile in [false, true] {
        for is_barred in [false, true] {
            let (mut keeper, states) = unwritten();
            keeper.owe_block(0);
            let mut round = refused_round(&mut keeper);
            assert_eq!(round.takers(0).len(), 1, "of two");
            let place = keeper.offset(0);
            if comes_meanwhile {
                keeper.owe_block(0);
            }
            if is_barred {
                keeper.bar_block(&mut round, 0, Instant(0));
            } else {
                keeper.write_again(&mut round, 0);
            }
            keeper.publish(&round, &states, false);
            assert_eq!(keeper.owes_copies(), !is_barred || comes_meanwhile);
            assert_eq!(keeper.has_work(), !is_barred || comes_meanwhile);
            let map = RegionMap::unwritten(keeper.space, Uuid::from_u128(5));
            let times = write_all(&mut keeper, &map).len();
            assert!(!keeper.owes_copies(), "{comes_meanwhile} {is_barred}");
            let expected = if is_barred {
                2 * usize::from(comes_meanwhile)
            } else {
                2
            };
            assert_eq!(times, expected, "{comes_meanwhile} {is_barred}");
            assert!(is_barred || keeper.has_bad_places() == (keeper.offset(0) != place));
        }
    }
}

#[test]
fn nobody_relies_on_a_block_that_is_written_again_or_barred() {
    for is_barred in [false, true] {
        let mut keeper = clean_keeper();
        let map = RegionMap::new(keeper.space, Uuid::from_u128(5));
        let states = RegionStates::new(&map, |_: MemberIndex| true);
        ask(&mut keeper, 0, 0);
        let mut round = refused_round(&mut keeper);
        assert!(!round.is_second(0));
        let place = keeper.offset(0);
        if is_barred {
            keeper.bar_block(&mut round, 0, Instant(0));
        } else {
            keeper.write_again(&mut round, 0);
        }
        keeper.publish(&round, &states, false);
        assert_eq!(states.is_lost(0), is_barred);
        assert!(!states.begin_write(0));
        assert_eq!(
            keeper.take_answers(&states, false).len(),
            usize::from(is_barred)
        );
        keeper.enqueue(0);
        keeper.begin_round(|_| true);
        assert_eq!(keeper.offset(0) == place, is_barred);
        let mut round = keeper.round.take().expect("a round");
        assert_eq!(round.is_second(0), !is_barred);
        // All take that one: so the place is well that was refused, if it is the same.
        round.flushed = (0..3).map(MemberIndex).collect();
        keeper.publish(&round, &states, false);
        assert_eq!(keeper.has_bad_places(), !is_barred);
    }
}

#[test]
fn few_regions_are_zeroed_ahead_and_only_of_streams() {
    let (mut keeper, _) = unwritten();
    let mut zeroed = |region: u32, at: u64, ahead| {
        keeper.want((ReactorIndex(0), region), Instant(at), ahead);
        keeper
            .begin_zeroing(1)
            .map_or(0, |round| round.regions.len())
    };
    let later = 5_000_000_000;
    assert_eq!(zeroed(0, 0, Some(4)), 1);
    assert_eq!(zeroed(1, 1, Some(4)), 5, "one asked for right before");
    assert_eq!(zeroed(6, later, Some(4)), 1);
    assert_eq!(zeroed(7, later + 1, None), 1, "members are out");
    assert_eq!(zeroed(22, later + 2, Some(4)), 2, "to the end of its run");
    assert_eq!(zeroed(24, later + 3, Some(4)), 5, "on from the run before");
    assert_eq!(zeroed(24, later + 4, Some(4)), 0, "it is on its way");
}

#[test]
fn a_round_zeroes_no_more_than_a_bound_says_and_one_region_at_least() {
    let (mut keeper, _) = unwritten();
    for region in 0..20 {
        keeper.want((ReactorIndex(0), region), Instant(0), None);
    }
    let mut zeroed = |bytes| keeper.begin_zeroing(bytes).map(|round| round.regions.len());
    assert_eq!(zeroed(zeroing::TOGETHER_BYTES / 4), Some(4));
    assert_eq!(zeroed(zeroing::TOGETHER_BYTES - 1), Some(1));
    assert_eq!(zeroed(zeroing::TOGETHER_BYTES * 100), Some(1));
    assert_eq!(zeroed(1), Some(14));
    assert_eq!(zeroed(1), None);
}

#[test]
fn when_the_array_ends_only_what_somebody_waits_for_is_zeroed() {
    let (mut keeper, _) = unwritten();
    keeper.want((ReactorIndex(0), 3), Instant(0), Some(4));
    keeper.want((ReactorIndex(0), 4), Instant(1), Some(4));
    keeper.forget_zeroing_ahead();
    let round = keeper.begin_zeroing(1).expect("two are waited for");
    assert_eq!(round.regions, [3, 4]);
    // What was forgotten may be asked for again.
    keeper.want((ReactorIndex(0), 5), Instant(2), None);
    assert_eq!(keeper.begin_zeroing(1).expect("it is new").regions, [5]);
}

#[test]
fn blocks_that_somebody_waits_for_go_before_those_that_are_owed() {
    let space = space(32 << 30);
    let map = RegionMap::unwritten(space, Uuid::from_u128(5));
    let mut keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    let blocks = u32::try_from(space.blocks()).expect("few");
    for member in 0..3 {
        keeper.owe(MemberIndex(member));
    }
    assert!(keeper.owes_copies());
    // One that somebody waits for in the last block.
    keeper.zeroed((blocks - 1) * u32::try_from(REGION_BLOCK_REGIONS).expect("few"));
    let written = write_all(&mut keeper, &map);
    assert_eq!(written.first(), Some(&(blocks - 1)), "of {blocks}");
    for block in 0..blocks {
        let times = written.iter().filter(|&&number| number == block).count();
        assert_eq!(times, 2, "block {block}: once in each place");
    }
    assert!(!keeper.owes_copies());
}

/// Does all rounds, and gives the blocks that were written.
fn write_all(keeper: &mut RegionKeeper, map: &RegionMap) -> Vec<u32> {
    let states = RegionStates::new(map, |_: MemberIndex| true);
    let mut written = Vec::new();
    while keeper.has_work() {
        written.extend(write_round(keeper, &states));
    }
    written
}

fn write_round(keeper: &mut RegionKeeper, states: &RegionStates) -> Vec<u32> {
    keeper.begin_round(|_| true);
    let mut round = keeper.round.take().expect("a round");
    round.flushed = (0..3).map(MemberIndex).collect();
    keeper.publish(&round, states, false);
    round.blocks.iter().map(|block| block.number).collect()
}

#[test]
fn blocks_that_are_owed_are_written_though_somebody_always_waits_for_others() {
    let space = space(32 << 30);
    let map = RegionMap::unwritten(space, Uuid::from_u128(5));
    let states = RegionStates::new(&map, |_: MemberIndex| true);
    let mut keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    let blocks = u32::try_from(space.blocks()).expect("few");
    let asked = u32::try_from(ROUND_BLOCKS).expect("few");
    assert!(blocks > asked + 1, "{blocks}");
    keeper.owe(MemberIndex(1));
    assert!(keeper.owes_copies());
    let mut rounds = 0;
    while keeper.owes_copies() {
        for block in 0..asked {
            keeper.enqueue(block);
        }
        write_round(&mut keeper, &states);
        rounds += 1;
        assert!(
            rounds <= 2 * blocks,
            "those that nobody waits for come to their turn"
        );
    }
}

#[test]
fn a_member_that_comes_while_its_block_is_written_gets_both_places() {
    let space = *all_dirty().space();
    let map = RegionMap::unwritten(space, Uuid::from_u128(5));
    let states = RegionStates::new(&map, |_: MemberIndex| true);
    let mut keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    keeper.owe_block(0);
    write_round(&mut keeper, &states);
    // The second write is under way, without it.
    keeper.begin_round(|_| true);
    let mut round = keeper.round.take().expect("a round");
    keeper.owe_block(0);
    round.flushed = (0..3).map(MemberIndex).collect();
    keeper.publish(&round, &states, false);
    assert_eq!(write_all(&mut keeper, &map), [0, 0]);
    assert!(!keeper.owes_copies());
}

#[test]
fn a_block_of_which_nothing_is_left_is_written_to_both_places() {
    let map = RegionMap::lost(*all_dirty().space(), Uuid::from_u128(5));
    let mut keeper = RegionKeeper::new(&map, &vec![None; 3], Duration::ZERO).expect("memory");
    let states = RegionStates::new(&map, |_: MemberIndex| true);
    keeper.owe_block(0);
    let mut places = Vec::new();
    while keeper.has_work() {
        keeper.begin_round(|_| true);
        let mut round = keeper.round.take().expect("a round");
        round.flushed = (0..3).map(MemberIndex).collect();
        places.push(keeper.offset(0));
        assert!(keeper.owes_copies());
        keeper.publish(&round, &states, false);
    }
    assert_eq!(places.len(), 2);
    assert_ne!(places[0], places[1]);
    assert!(!keeper.owes_copies());
}
