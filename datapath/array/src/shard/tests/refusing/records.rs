//! What is refused is a record of the array.

use block::{Operation, Status};
use units::MemberIndex;

use super::super::Bench;
use super::{BLOCK, Drives, START};
use crate::assembly::RecordPlace;
use crate::command::Command;
use crate::coordinator::MemberPlace;
use crate::format::{ArrayConfig, ArrayOptions, ConfigSlot};
use crate::io::Event;
use crate::map::MapState;

/// The member that is out, and the one that refuses.
const LOST: usize = 1;
const NEEDED: usize = 0;

/// Block addresses of where records of the next updates go on each member: the start of the area
/// and its middle.
fn places(bench: &Bench) -> [[u64; 2]; 2] {
    let decider = bench.shard.coordinator().expect("the home");
    let place = decider.places[NEEDED].as_ref().expect("it has a drive");
    let areas = place.layout.config;
    areas.map(|area| area.record_places().map(|place| place / BLOCK))
}

fn refusing(refuses: impl Fn([[u64; 2]; 2]) -> Vec<u64>) -> (Bench, Drives) {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::default();
    let member = MemberIndex::from_at(LOST);
    bench.shard.command(7, Command::Fail { member });
    drives.answer(&mut bench);
    let refused = refuses(places(&bench)).into_iter();
    drives.refuses.extend(refused.map(|block| (NEEDED, block)));
    bench.outside.events.clear();
    (bench, drives)
}

/// Commits something; whether it is done within so many tenths of a second.
fn commit(bench: &mut Bench, drives: &mut Drives, id: u64, tenths: u32) -> bool {
    let config = bench.shard.coordinator().expect("the home").config();
    let options = ArrayOptions {
        hold_timeout_seconds: config.options.hold_timeout_seconds ^ 1,
        ..config.options
    };
    bench.shard.command(id, Command::Options(options));
    drives.answer_for(bench, tenths);
    let done = Event::CommandDone { id, result: Ok(()) };
    bench.outside.events.contains(&done)
}

/// The update that a record at a block of the member is of, if there is a good one.
fn update_at(drives: &Drives, block: u64) -> Option<u64> {
    let content = |at| drives.content.get(&(NEEDED, at)).copied();
    let blocks = block..block + 32;
    let bytes: Vec<u8> = blocks
        .flat_map(|at| content(at).unwrap_or([0; 512]))
        .collect();
    let (_, config) = ArrayConfig::decode(&bytes).ok()?;
    Some(config.update.0)
}

fn moved(bench: &Bench) -> usize {
    let moved = |event: &&Event| matches!(event, Event::RecordMoved { .. });
    bench.outside.events.iter().filter(moved).count()
}

fn durable(bench: &Bench) -> u64 {
    bench
        .shard
        .coordinator()
        .expect("the home")
        .config()
        .update
        .0
}

#[test]
fn a_record_that_a_needed_member_refuses_is_written_to_the_middle_from_then_on() {
    let (mut bench, mut drives) = refusing(|places| places.map(|[start, _]| start).to_vec());
    for id in 10..12 {
        assert!(commit(&mut bench, &mut drives, id, 30), "{id}");
    }
    assert_eq!(moved(&bench), 2, "told once for each area");
    let places = places(&bench);
    for id in 12..16 {
        drives.writes.clear();
        bench.outside.events.clear();
        // Nobody waits for anything.
        assert!(commit(&mut bench, &mut drives, id, 1), "{id}");
        assert!(
            bench
                .outside
                .events
                .iter()
                .all(|event| !matches!(event, Event::Holds { .. }))
        );
        let [start, middle] = places[usize::from(durable(&bench) % 2 == 1)];
        assert!(
            !drives.writes.contains(&(NEEDED, start)),
            "it is known to refuse"
        );
        assert_eq!(update_at(&drives, middle), Some(durable(&bench)));
    }
    assert_eq!(moved(&bench), 0);
    // The array works.
    let written = drives.outcome(&mut bench, (Operation::Write, START, 1));
    assert_eq!(written, Some(Status::Ok));
}

#[test]
fn a_record_that_is_refused_for_a_moment_stays_where_it_belongs() {
    let (mut bench, mut drives) = refusing(|places| places.map(|[start, _]| start).to_vec());
    assert!(!commit(&mut bench, &mut drives, 10, 9), "it is refused");
    drives.refuses.clear();
    let before = durable(&bench);
    drives.answer_for(&mut bench, 20);
    assert_eq!(durable(&bench), before + 1, "it was made");
    assert_eq!(moved(&bench), 0);
}

#[test]
fn a_record_that_has_moved_is_followed_by_one_that_tells_of_it() {
    for area in [0, 1] {
        let (mut bench, mut drives) = refusing(|places| vec![places[area][0]]);
        let before = durable(&bench);
        let is_refused = |update: u64| update % 2 == u64::from(area == 1);
        assert!(commit(&mut bench, &mut drives, 10, 30));
        let (updates, first) = if is_refused(before + 1) {
            (2, before + 1)
        } else {
            assert_eq!(durable(&bench), before + 1, "nothing has moved");
            assert!(commit(&mut bench, &mut drives, 11, 30));
            (3, before + 2)
        };
        assert_eq!(durable(&bench), before + updates, "area {area}");
        assert_eq!(moved(&bench), 1, "area {area}");
        assert_eq!(update_at(&drives, places(&bench)[area][1]), Some(first));
    }
}

#[test]
fn a_record_that_is_refused_everywhere_is_waited_for_and_goes_where_it_is_taken_first() {
    let (mut bench, mut drives) = refusing(|places| places.concat());
    assert!(!commit(&mut bench, &mut drives, 10, 30));
    assert_eq!(moved(&bench), 0);
    let holds = |event: &Event| matches!(event, Event::Holds { .. });
    assert!(bench.outside.events.iter().any(holds));
    let before = durable(&bench);
    let starts = places(&bench).map(|[start, _]| (NEEDED, start));
    drives.refuses.retain(|place| !starts.contains(place));
    drives.answer_for(&mut bench, 30);
    assert_eq!(durable(&bench), before + 1, "it was made");
    assert_eq!(moved(&bench), 0, "it is where it belongs");
    assert!(commit(&mut bench, &mut drives, 11, 1));
}

#[test]
fn a_member_that_refuses_a_record_and_is_not_needed_is_left_out() {
    let mut bench = Bench::home(|_, _| {});
    let mut drives = Drives::default();
    drives.answer(&mut bench);
    let starts = places(&bench).map(|[start, _]| (NEEDED, start));
    drives.refuses.extend(starts);
    assert!(commit(&mut bench, &mut drives, 10, 30));
    let state = bench.shard.map.members[NEEDED].state;
    assert_eq!(state, MapState::Lost);
    assert_eq!(moved(&bench), 0);
}

#[test]
fn a_record_of_more_than_half_an_area_goes_to_its_start() {
    let (mut bench, mut drives) = refusing(|places| places.map(|[start, _]| start).to_vec());
    for id in 10..12 {
        assert!(commit(&mut bench, &mut drives, id, 30), "{id}");
    }
    let [start, middle] = places(&bench)[0];
    let bytes = (middle - start) * BLOCK;
    let decider = bench.shard.coordinator().expect("the home");
    let place = decider.places[NEEDED].as_ref().expect("it has a drive");
    let [start, middle] = [start, middle].map(|block| block * BLOCK);
    assert_eq!(place.records, [RecordPlace::Middle; 2]);
    assert_eq!(place.places_of(ConfigSlot::A, bytes), (middle, None));
    assert_eq!(place.places_of(ConfigSlot::A, bytes + 512), (start, None));
    let fresh = MemberPlace {
        records: Default::default(),
        ..place.clone()
    };
    assert_eq!(fresh.places_of(ConfigSlot::A, bytes), (start, Some(middle)));
    assert_eq!(fresh.places_of(ConfigSlot::A, bytes + 512), (start, None));
    let unknown = MemberPlace {
        records: [RecordPlace::Perhaps; 2],
        ..fresh
    };
    let places = unknown.places_of(ConfigSlot::A, bytes);
    assert_eq!(places, (middle, Some(start)));
}
