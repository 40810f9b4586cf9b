//! What a region needs before it is written is refused: its zeroes, or its word in the region map.

use std::time::Duration;

use block::{Operation, Status};
use units::{DriveIndex, MemberIndex, Role, StripeIndex};

use super::super::returning::replace;
use super::super::zeroing::unwritten;
use super::super::{Bench, REGION_STRIPES, STRIPE_BLOCKS, Shape};
use super::{Drives, NEW};
use crate::command::Command;
use crate::format::{MemberState, REGION_BLOCK_BYTES, RegionBlock, RegionKind};
use crate::io::{Event, MemberRequest};
use crate::map::{ArrayMap, MapMember, MapState};
use crate::regions::RegionState;

/// The region of which something is refused, and its first block.
const REGION: u32 = 1;
const FIRST: u64 = (REGION * REGION_STRIPES) as u64 * STRIPE_BLOCKS;
/// That of the next.
const NEXT: u64 = FIRST + REGION_STRIPES as u64 * STRIPE_BLOCKS;
/// The member that is out, and the one that refuses.
const LOST: usize = 1;
const NEEDED: usize = 0;
/// Between two places of a block of the map.
const PLACE: u64 = REGION_BLOCK_BYTES as u64;
/// Longer than what is refused is not asked for again.
const PAUSE: Duration = Duration::from_secs(11);

/// An array that nobody has written to and that lacks a member. Another one refuses a block of the
/// region.
fn refusing_zeroes() -> (Bench, Drives) {
    let mut bench = unwritten(Shape::default());
    let mut drives = Drives::default();
    bench.command(Command::Passes { run: false });
    let member = MemberIndex::from_at(LOST);
    bench.command(Command::Fail { member });
    drives.refuses.push((NEEDED, zeroed_block(&bench)));
    bench.fill(NEW);
    (bench, drives)
}

/// Some block of the member that refuses, in the third stripe of the region.
fn zeroed_block(bench: &Bench) -> u64 {
    let map = &bench.shard.map;
    let stripe = StripeIndex(FIRST / STRIPE_BLOCKS + 2);
    let places = map.geometry.places(stripe);
    let roles = (0..3).map(Role);
    let mut offsets = roles.map(|role| bench.shard.drive_offset(&places, role, 5));
    let (_, offset) = offsets
        .find(|(member, _)| member.at() == NEEDED)
        .expect("it has a chunk");
    offset / super::BLOCK
}

fn state(bench: &Bench) -> RegionState {
    bench.shard.shared.regions.get(REGION)
}

fn write(bench: &mut Bench, drives: &mut Drives, block: u64) -> Option<Status> {
    bench.fill(NEW);
    drives.outcome(bench, (Operation::Write, block, 1))
}

/// Who has refused what, as was told.
fn told(bench: &Bench) -> Vec<(usize, u64, u32)> {
    let told = |event: &Event| {
        let Event::WriteRefused {
            member,
            first,
            rows,
        } = event
        else {
            return None;
        };
        Some((member.at(), *first, *rows))
    };
    bench.outside.events.iter().filter_map(told).collect()
}

#[test]
fn zeroes_that_are_refused_cost_the_first_writes_of_their_region_and_nothing_else() {
    let (mut bench, mut drives) = refusing_zeroes();
    let other = bench.ask(Operation::Write, FIRST - 1, 1);
    let refused = bench.ask(Operation::Write, FIRST, 1);
    let also = bench.ask(Operation::Write, FIRST + 20, 1);
    drives.answer_for(&mut bench, 20);
    assert_eq!(bench.verdict(other), Some(Status::Ok));
    assert_eq!(write(&mut bench, &mut drives, NEXT), Some(Status::Ok));
    let verdicts = [refused, also].map(|cookie| bench.verdict(cookie));
    assert_eq!(verdicts, [Some(Status::Media); 2]);
    assert!(!bench.shard.map.is_holding() && bench.shard.hold.is_empty());
    assert_eq!(bench.shard.tickets.in_use(), 0);
    let rows = u32::try_from(u64::from(REGION_STRIPES) * STRIPE_BLOCKS / 2).expect("few");
    assert_eq!(told(&bench), [(NEEDED, FIRST, rows)]);
    // At once: that takes a second each time, and others wait for it.
    let now = bench.outside.now;
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    assert_eq!(bench.outside.now, now);
    assert_eq!(drives.look(&mut bench, FIRST), Some(0), "as before");
    assert_eq!(drives.look(&mut bench, NEXT), Some(NEW));
    assert_eq!(drives.look(&mut bench, FIRST - 1), Some(NEW));
    let zeroes = (Operation::WriteZeroes, FIRST, 9);
    assert_eq!(drives.outcome(&mut bench, zeroes), Some(Status::Ok));
}

#[test]
fn refused_zeroes_are_tried_again_when_they_are_asked_for_after_a_while() {
    let (mut bench, mut drives) = refusing_zeroes();
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    let before = drives.writes.len();
    bench.pass(PAUSE);
    drives.answer(&mut bench);
    assert_eq!(state(&bench), RegionState::Unwritten);
    assert_eq!(drives.writes.len(), before, "nobody asks");
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    assert_eq!(told(&bench).len(), 2);
    drives.refuses.clear();
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    bench.pass(PAUSE);
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Ok));
    assert_eq!(drives.look(&mut bench, FIRST), Some(NEW));
    assert_eq!(drives.look(&mut bench, FIRST + 1), Some(0));
    assert_eq!(state(&bench), RegionState::Dirty);
}

#[test]
fn a_rebuild_ends_beside_refused_zeroes_and_then_the_member_that_refuses_is_left_out() {
    let (mut bench, mut drives) = refusing_zeroes();
    assert_eq!(write(&mut bench, &mut drives, NEXT), Some(Status::Ok));
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Media));
    bench.shard.command(8, replace(None));
    bench.shard.command(9, Command::Passes { run: true });
    drives.answer_for(&mut bench, 30);
    assert_eq!(bench.shard.map.members[LOST].state, MapState::InSync);
    assert!(!bench.shard.map.is_holding());
    bench.pass(PAUSE);
    assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Ok));
    assert_eq!(bench.shard.map.members[NEEDED].state, MapState::Lost);
    assert_eq!(drives.look(&mut bench, FIRST), Some(NEW));
    assert_eq!(drives.look(&mut bench, FIRST + 1), Some(0));
    assert_eq!(drives.look(&mut bench, NEXT), Some(NEW));
}

#[test]
fn an_array_stops_in_order_while_zeroes_are_refused_and_after_that() {
    for tenths in [0, 3, 30] {
        let (mut bench, mut drives) = refusing_zeroes();
        let refused = bench.ask(Operation::Write, FIRST, 1);
        drives.answer_for(&mut bench, tenths);
        bench.outside.events.clear();
        bench.shard.command(9, Command::Stop);
        drives.answer_for(&mut bench, 40);
        assert!(bench.is_done(), "after {tenths}");
        assert_eq!(bench.verdict(refused), Some(Status::Media));
        let config = &bench.shard.coordinator().expect("home").config;
        assert!(config.clean, "after {tenths}");
    }
}

#[test]
fn zeroes_that_a_member_has_refused_which_is_out_by_then_cost_nothing() {
    for is_out in [false, true] {
        let (mut bench, mut drives) = refusing_zeroes();
        let refused = bench.ask(Operation::Write, FIRST, 1);
        for _ in 0..30 {
            let next = |bench: &Bench| bench.outside.asked.first().map(|it| it.operation);
            while let Some(operation) = next(&bench) {
                if is_out && operation == Operation::Flush {
                    break;
                }
                drives.answer_next(&mut bench);
            }
            bench.pass(Duration::from_millis(100));
        }
        if is_out {
            // Another one is in sync by now, which lacks the zeroes.
            let mut map = bench.shard.successor();
            map.members[NEEDED].state = MapState::Lost;
            in_sync_again(&mut map, LOST);
            bench.set_map(map);
            bench.shard.stir();
            drives.writes.clear();
            drives.answer_for(&mut bench, 3);
            assert!(drives.writes.iter().any(|&(drive, _)| drive == LOST));
        }
        let right = if is_out { Status::Ok } else { Status::Media };
        assert_eq!(bench.verdict(refused), Some(right), "{is_out}");
        assert_eq!(told(&bench).is_empty(), is_out);
    }
}

#[test]
fn a_drive_that_takes_no_zeroes_and_nothing_else_is_waited_for() {
    let (mut bench, mut drives) = refusing_zeroes();
    drives.refuses.clear();
    drives.read_only = Some(NEEDED);
    assert_eq!(write(&mut bench, &mut drives, FIRST), None);
    assert!(bench.shard.map.is_holding());
    drives.read_only = None;
    drives.answer_for(&mut bench, 20);
    let done = bench.outside.completions.iter();
    assert!(done.clone().count() == 1 && done.clone().all(|done| done.status.is_ok()));
}

// ---- blocks of the map -------------------------------------------------------------------

/// Which place of the map's block is refused: that of the next write, or of the one after it.
#[derive(Clone, Copy, Debug)]
enum Place {
    Next,
    AfterThat,
}

/// An array that lacks a member, of which another one refuses places of the map.
fn refusing_map(mut bench: Bench, lost: u16, places: &[Place]) -> (Bench, Drives) {
    let mut drives = Drives::default();
    bench.command(Command::Passes { run: false });
    let member = MemberIndex(lost);
    bench.command(Command::Fail { member });
    let space = bench.shard.shared.regions.space;
    let holders: Vec<usize> = space.holders(0).map(MemberIndex::at).collect();
    assert_eq!((holders, space.blocks()), (vec![0, 1], 1));
    let last = bench.shard.decider().keeper.offset(0);
    let both = [space.offset(0, 0), space.offset(0, 1)];
    for place in places {
        let is_it = |offset: &&u64| match place {
            Place::Next => **offset != last,
            Place::AfterThat => **offset == last,
        };
        let offset = both.iter().find(is_it).expect("there are two");
        drives.refuses.push((NEEDED, offset / super::BLOCK));
    }
    bench.outside.events.clear();
    (bench, drives)
}

fn clean() -> Bench {
    Bench::home(|_, _| {})
}

/// The newest block of the map that members in sync have, if what is being written now were torn.
fn newest(bench: &Bench, drives: &Drives) -> Option<RegionBlock> {
    let space = bench.shard.shared.regions.space;
    let mut newest: Option<RegionBlock> = None;
    for member in space.holders(0) {
        if bench.shard.map.members[member.at()].state != MapState::InSync {
            continue;
        }
        for offset in [space.offset(0, 0), space.offset(0, 1)] {
            let blocks = offset / super::BLOCK..(offset + PLACE) / super::BLOCK;
            let is_written = |request: &MemberRequest| {
                let writes = request.operation == Operation::Write;
                writes && request.drive.at() == member.at() && request.offset == offset
            };
            let torn = bench.outside.asked.iter().any(is_written);
            let bytes = blocks.flat_map(|block| {
                let block = drives.content.get(&(member.at(), block));
                block.copied().unwrap_or([0; 512])
            });
            let found = RegionBlock::decode(&bytes.collect::<Vec<u8>>());
            let found = found.ok().filter(|_| !torn);
            let is_newer = |found: &RegionBlock| {
                newest
                    .as_ref()
                    .is_none_or(|it| it.sequence < found.sequence)
            };
            if found.as_ref().is_some_and(is_newer) {
                newest = found;
            }
        }
    }
    newest
}

/// Whatever may be written now, the next engine would be told so, should the power fail.
fn assert_told(bench: &Bench, drives: &Drives) {
    let states = &bench.shard.shared.regions;
    let newest = newest(bench, drives);
    for region in 0..u32::try_from(states.space.count()).expect("few") {
        if states.is_dirty(region) {
            let block = newest.as_ref().expect("it was written");
            let entry = block.entries[usize::try_from(region).expect("few")];
            assert_eq!(entry.kind, RegionKind::Dirty, "{region}");
        }
    }
}

/// As `write`, and looked at between any two answers.
fn write_watched(bench: &mut Bench, drives: &mut Drives, block: u64) -> Option<Status> {
    bench.fill(NEW);
    let cookie = bench.ask(Operation::Write, block, 1);
    for _ in 0..40 {
        bench.poll();
        while !bench.outside.asked.is_empty() {
            assert_told(bench, drives);
            drives.answer_next(bench);
        }
        if let Some(verdict) = bench.verdict(cookie) {
            return Some(verdict);
        }
        bench.pass(Duration::from_millis(100));
    }
    None
}

/// How often the place of the map was written that its member takes.
fn times_written(bench: &Bench, drives: &Drives) -> usize {
    let space = bench.shard.shared.regions.space;
    let places = [0, 1].map(|number| (NEEDED, space.offset(0, number) / super::BLOCK));
    let taken = |it: &&(usize, u64)| places.contains(it) && !drives.refuses.contains(it);
    drives.writes.iter().filter(taken).count()
}

#[test]
fn a_block_of_the_map_that_is_refused_goes_to_the_other_place_when_another_holder_has_it() {
    for place in [Place::Next, Place::AfterThat] {
        let (mut bench, mut drives) = refusing_map(clean(), 2, &[place]);
        for region in 0..6 {
            let block = region * u64::from(REGION_STRIPES) * STRIPE_BLOCKS;
            let verdict = write_watched(&mut bench, &mut drives, block);
            assert_eq!(verdict, Some(Status::Ok), "region {region}, {place:?}");
            let last = bench.shard.decider().keeper.offset(0) / super::BLOCK;
            assert!(!drives.refuses.contains(&(NEEDED, last)), "all have it");
        }
        assert!(!bench.shard.map.is_holding());
        assert_eq!(told(&bench), [], "nothing failed");
    }
}

#[test]
fn a_block_of_the_map_that_only_one_could_hold_costs_the_regions_that_are_not_dirty() {
    let (mut bench, mut drives) = refusing_map(clean(), 1, &[Place::AfterThat]);
    assert_eq!(write_watched(&mut bench, &mut drives, 0), Some(Status::Ok));
    let verdict = write_watched(&mut bench, &mut drives, FIRST);
    assert_eq!(verdict, Some(Status::Media));
    assert!(!bench.shard.map.is_holding() && bench.shard.hold.is_empty());
    let rows = u32::try_from(super::super::ROWS * STRIPE_BLOCKS / 2).expect("few");
    assert_eq!(told(&bench), [(NEEDED, 0, rows)]);
    // What it holds is not written over: it is all that is left.
    assert_eq!(times_written(&bench, &drives), 1);
    let now = bench.outside.now;
    for block in [FIRST, NEXT] {
        assert_eq!(write(&mut bench, &mut drives, block), Some(Status::Media));
        assert_eq!(drives.look(&mut bench, block), Some(0));
    }
    assert_eq!(write(&mut bench, &mut drives, 1), Some(Status::Ok));
    assert_eq!(bench.outside.now, now, "at once");
    drives.answer_for(&mut bench, 20);
    let state = bench.shard.shared.regions.get(0);
    assert_eq!(state, RegionState::Dirty, "it stays so");
    for _ in 0..2 {
        bench.pass(PAUSE);
        let verdict = write_watched(&mut bench, &mut drives, NEXT);
        assert_eq!(verdict, Some(Status::Media));
    }
    assert_eq!(times_written(&bench, &drives), 1, "as before");
    drives.refuses.clear();
    bench.pass(PAUSE);
    for block in [FIRST, NEXT] {
        let verdict = write_watched(&mut bench, &mut drives, block);
        assert_eq!(verdict, Some(Status::Ok));
        assert_eq!(drives.look(&mut bench, block), Some(NEW));
    }
}

/// The other member is in sync again, or a map says so.
fn in_sync_again(map: &mut ArrayMap, member: usize) {
    map.members[member] = MapMember {
        drive: Some(DriveIndex::from_at(member)),
        incarnation: 5,
        state: MapState::InSync,
        ..map.members[member]
    };
}

#[test]
fn what_a_member_has_that_is_being_filled_is_not_relied_on() {
    let (mut bench, mut drives) = refusing_map(clean(), 1, &[Place::Next]);
    bench.shard.command(8, replace(None));
    drives.answer_for(&mut bench, 20);
    let map = &bench.shard.map;
    assert!(matches!(map.members[1].state, MapState::Rebuilding { .. }));
    assert_eq!(
        times_written(&bench, &drives),
        0,
        "nobody else would have it"
    );
    assert_eq!(told(&bench).len(), 1);
}

#[test]
fn a_member_that_is_not_needed_any_more_is_left_out_for_what_it_refused_before() {
    for is_out in [false, true] {
        let (mut bench, mut drives) = refusing_map(clean(), 2, &[Place::Next]);
        bench.fill(NEW);
        let cookie = bench.ask(Operation::Write, FIRST, 1);
        for _ in 0..30 {
            let next = |bench: &Bench| bench.outside.asked.first().map(|it| it.operation);
            while next(&bench).is_some_and(|operation| operation != Operation::Flush) {
                drives.answer_next(&mut bench);
            }
            bench.pass(Duration::from_millis(100));
        }
        let mut map = bench.shard.successor();
        in_sync_again(&mut map, 2);
        if is_out {
            map.members[NEEDED].state = MapState::Lost;
            map.barrier = map.serial;
        }
        let serial = map.serial;
        bench.set_map(map);
        bench.shard.stir();
        if is_out {
            drives.answer(&mut bench);
            assert_eq!(state(&bench), RegionState::Clean, "not everybody knows");
            bench.shard.make_effective(serial);
            bench.shard.stir();
        }
        let config = &mut bench.shard.decider().config;
        config.members[2].state = MemberState::InSync;
        drives.answer_for(&mut bench, 1);
        assert!(bench.shard.shared.regions.is_dirty(REGION));
        assert_eq!(told(&bench), []);
        assert_eq!(bench.shard.map.members[NEEDED].state, MapState::Lost);
        drives.answer_for(&mut bench, 5);
        assert_eq!(bench.verdict(cookie), Some(Status::Ok));
    }
}

#[test]
fn where_another_one_may_do_instead_a_block_is_not_written_over_the_last_copy() {
    // The third member is away for a moment: the array could do without the first one then.
    let (mut bench, mut drives) = refusing_map(clean(), 2, &[Place::Next]);
    let mut map = bench.shard.successor();
    in_sync_again(&mut map, 2);
    map.held[2] = true;
    bench.set_map(map);
    bench.ask(Operation::Write, FIRST, 1);
    for _ in 0..20 {
        while !bench.outside.asked.is_empty() {
            drives.answer_next(&mut bench);
        }
        bench.outside.now = bench.outside.now + Duration::from_millis(100);
        bench.shard.stir();
        bench.poll();
    }
    assert_eq!(state(&bench), RegionState::Lost);
    assert_eq!(times_written(&bench, &drives), 0);
    assert_eq!(told(&bench).len(), 1);
}

#[test]
fn both_places_of_a_copy_may_be_refused() {
    let (mut bench, mut drives) = refusing_map(clean(), 2, &[Place::Next, Place::AfterThat]);
    for _ in 0..3 {
        let verdict = write_watched(&mut bench, &mut drives, FIRST);
        assert_eq!(verdict, Some(Status::Media));
        assert!(!bench.shard.map.is_holding());
        bench.pass(PAUSE);
    }
    assert_eq!(told(&bench).len(), 3);
    drives.refuses.pop();
    let verdict = write_watched(&mut bench, &mut drives, FIRST);
    assert_eq!(verdict, Some(Status::Ok));
}

#[test]
fn a_rebuild_ends_beside_a_refused_block_of_the_map_and_then_its_member_is_left_out() {
    for is_unwritten in [false, true] {
        let bench = if is_unwritten {
            unwritten(Shape::default())
        } else {
            clean()
        };
        let (mut bench, mut drives) = refusing_map(bench, 1, &[Place::Next]);
        let verdict = write_watched(&mut bench, &mut drives, FIRST);
        assert_eq!(verdict, Some(Status::Media));
        bench.shard.command(8, replace(None));
        bench.shard.command(9, Command::Passes { run: true });
        drives.answer_for(&mut bench, 40);
        assert_eq!(bench.shard.map.members[1].state, MapState::InSync);
        let state = bench.shard.map.members[NEEDED].state;
        assert_eq!(state, MapState::Lost, "it lacks its copy, and may");
        assert!(!bench.shard.map.is_holding());
        assert_eq!(write(&mut bench, &mut drives, FIRST), Some(Status::Ok));
        assert_eq!(drives.look(&mut bench, FIRST), Some(NEW));
        assert!(!bench.shard.decider().keeper.owes_copies());
    }
}

#[test]
fn a_stop_beside_a_refused_block_of_the_map_is_in_order_and_not_clean_where_that_might_mislead() {
    for (is_unwritten, tenths) in [(false, 5), (false, 30), (true, 5), (true, 30)] {
        let bench = if is_unwritten {
            unwritten(Shape::default())
        } else {
            clean()
        };
        let (mut bench, mut drives) = refusing_map(bench, 1, &[Place::Next]);
        let refused = bench.ask(Operation::Write, FIRST, 1);
        drives.answer_for(&mut bench, tenths);
        bench.outside.events.clear();
        bench.shard.command(9, Command::Stop);
        drives.answer_for(&mut bench, 40);
        assert!(bench.is_done());
        assert_eq!(bench.verdict(refused), Some(Status::Media));
        let config = &bench.shard.coordinator().expect("home").config;
        assert_eq!(config.clean, !is_unwritten);
    }
}

#[test]
fn a_stop_is_clean_again_when_the_place_was_taken() {
    let bench = unwritten(Shape::default());
    let (mut bench, mut drives) = refusing_map(bench, 1, &[Place::Next]);
    let verdict = write_watched(&mut bench, &mut drives, FIRST);
    assert_eq!(verdict, Some(Status::Media));
    assert_eq!(state(&bench), RegionState::Sealed);
    assert_eq!(drives.look(&mut bench, FIRST), Some(0));
    drives.refuses.clear();
    bench.pass(PAUSE);
    assert_eq!(state(&bench), RegionState::Unwritten);
    let verdict = write_watched(&mut bench, &mut drives, FIRST);
    assert_eq!(verdict, Some(Status::Ok));
    bench.outside.events.clear();
    bench.shard.command(9, Command::Stop);
    drives.answer_for(&mut bench, 40);
    assert!(bench.is_done());
    assert!(bench.shard.coordinator().expect("home").config.clean);
}

#[test]
fn a_copy_does_not_count_of_which_regions_cannot_become_dirty() {
    let (mut bench, mut drives) = refusing_map(clean(), 1, &[Place::AfterThat]);
    assert_eq!(write_watched(&mut bench, &mut drives, 0), Some(Status::Ok));
    let verdict = write_watched(&mut bench, &mut drives, FIRST);
    assert_eq!(verdict, Some(Status::Media));
    let other = Command::Dirty { regions: vec![0] };
    bench.outside.events.clear();
    bench.shard.command(7, other);
    drives.answer(&mut bench);
    let result = Ok(());
    let done = Event::CommandDone { id: 7, result };
    assert!(bench.outside.events.contains(&done), "it is dirty");
    let mut dirty = |drives: &mut Drives| {
        bench.outside.events.clear();
        let regions = vec![REGION];
        bench.shard.command(8, Command::Dirty { regions });
        drives.answer_for(&mut bench, 20);
        let mut events = bench.outside.events.iter();
        let result = events.find_map(|event| {
            let Event::CommandDone { result, .. } = event else {
                return None;
            };
            Some(result.is_ok())
        });
        (result, state(&bench))
    };
    assert_eq!(dirty(&mut drives), (Some(false), RegionState::Lost));
    drives.refuses.clear();
    assert_eq!(dirty(&mut drives), (Some(false), RegionState::Lost));
    bench.pass(PAUSE);
    let regions = vec![REGION];
    bench.outside.events.clear();
    bench.shard.command(8, Command::Dirty { regions });
    drives.answer(&mut bench);
    assert!(bench.is_done());
    assert_eq!(state(&bench), RegionState::Dirty);
}

#[test]
fn a_block_that_was_refused_when_a_newcomer_was_owed_it_goes_to_both_its_places() {
    for refused in [false, true] {
        let bench = unwritten(Shape::default());
        let (mut bench, mut drives) = refusing_map(bench, 1, &[Place::Next]);
        if !refused {
            drives.refuses.clear();
        }
        bench.shard.command(8, replace(None));
        drives.answer_for(&mut bench, 20);
        drives.refuses.clear();
        bench.pass(PAUSE);
        // Somebody asks, and the drive takes the block by now.
        let mut use_it = |bench: &mut Bench| {
            let written = write(bench, &mut drives, FIRST);
            assert_eq!(written, Some(Status::Ok));
        };
        use_it(&mut bench);
        bench.shard.command(9, Command::Passes { run: true });
        for _ in 0..40 {
            // It is in use all the time, so that nothing else has the block written.
            use_it(&mut bench);
            bench.outside.now = bench.outside.now + Duration::from_millis(10);
        }
        drives.answer(&mut bench);
        assert_eq!(bench.shard.map.members[1].state, MapState::InSync);
        let space = bench.shard.shared.regions.space;
        let newcomer = bench.shard.map.members[1].drive.expect("it has one").at();
        for place in [0, 1] {
            let offset = space.offset(0, place);
            let blocks = offset / super::BLOCK..(offset + PLACE) / super::BLOCK;
            let block = |block| {
                let there = drives.content.get(&(newcomer, block));
                there.copied().unwrap_or([0; 512])
            };
            let bytes: Vec<u8> = blocks.flat_map(block).collect();
            RegionBlock::decode(&bytes).unwrap_or_else(|wrong| {
                panic!("{refused}: nothing in place {place} of the newcomer: {wrong:?}")
            });
        }
    }
}
