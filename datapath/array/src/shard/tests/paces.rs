//! How long drives took: told window by window, and judged by the home.

use std::time::Duration;

use block::{Histogram, Operation};
use units::MemberIndex;

use super::{Bench, Drive, Shape};
use crate::format::ExclusionCause;
use crate::geometry::Level;
use crate::io::Event;
use crate::laggards::Sample;
use crate::map::MapState;
use crate::throttle::Heard;

const WINDOW: Duration = Duration::from_secs(1);
/// The slow one.
const SLOW: usize = 2;

/// Drives answer 100 reads, one of them slowly, in one window.
fn read_slowly(bench: &mut Bench) {
    for (drive, times) in bench.outside.times.iter_mut().enumerate() {
        let took = if drive == SLOW { 10_000_000 } else { 300_000 };
        for _ in 0..100 {
            times.counts[0] += 1;
            times.took[0].record(took);
        }
    }
    bench.pass(WINDOW);
}

fn slow_windows(bench: &Bench) -> Vec<u32> {
    let paces = bench.shard.paces();
    paces.iter().map(|pace| pace.slow_windows).collect()
}

/// A home whose drives are counted, after four windows in which one was slow.
fn slowly() -> Bench {
    let mut bench = Bench::home(|_, _| {});
    bench.outside.times = std::iter::repeat_with(Drive::default).take(3).collect();
    bench.pass(WINDOW);
    for _ in 0..4 {
        read_slowly(&mut bench);
    }
    assert_eq!(slow_windows(&bench), [0, 0, 4]);
    bench
}

#[test]
fn what_drives_took_is_judged_in_its_window_and_in_no_other() {
    let mut bench = slowly();
    for _ in 0..20 {
        bench.pass(WINDOW);
    }
    assert_eq!(slow_windows(&bench), [0, 0, 4], "nothing is new");
    read_slowly(&mut bench);
    assert_eq!(slow_windows(&bench), [0, 0, 5]);
    assert!(bench.shard.paces()[SLOW].lags);
    assert_eq!(bench.is_asked(Operation::Read), [], "nothing is tried yet");
}

#[test]
fn a_drive_that_is_counted_anew_is_judged_by_what_it_does_since() {
    let mut bench = slowly();
    for times in &mut bench.outside.times {
        *times = Drive::default();
    }
    read_slowly(&mut bench);
    assert_eq!(slow_windows(&bench), [0, 0, 5]);
}

#[test]
fn all_times_of_a_window_are_told_however_they_are_spread() {
    let mut bench = slowly();
    let shared = std::sync::Arc::clone(&bench.shard.shared);
    let before = shared.counted((SLOW, 0));
    let times = &mut bench.outside.times[SLOW];
    for took in [5_000, 300_000, 300_000, 10_000_000, 900_000_000] {
        times.counts[0] += 1;
        times.took[0].record(took);
    }
    bench.pass(WINDOW);
    assert_eq!(shared.counted((SLOW, 0)), before + 5);
}

#[test]
fn what_is_added_while_somebody_looks_is_seen_the_next_time() {
    let bench = Bench::home(|_, _| {});
    let (shared, which) = (&bench.shard.shared, (0, 0));
    let (mut seen, mut sample) = (Histogram::default(), Sample::default());
    let found = |sample: &Sample| (sample.count, [3, 40].map(|at| sample.times.buckets[at]));
    shared.add_times(which, [(3, 5), (40, 2)].into_iter());
    for (new, expected) in [(5, (5, [5, 0])), (2, (2, [0, 2]))] {
        shared.see_times(which, (&mut seen, new), &mut sample);
        assert_eq!(found(&sample), expected);
    }
    shared.add_times(which, [(3, 1), (40, 1)].into_iter());
    shared.see_times(which, (&mut seen, 2), &mut sample);
    assert_eq!(found(&sample), (2, [1, 1]), "all that is new");
}

#[test]
fn another_shard_is_heard_as_well() {
    let mut bench = slowly();
    let shared = std::sync::Arc::clone(&bench.shard.shared);
    for position in 0..3 {
        let took = if position == SLOW {
            10_000_000
        } else {
            300_000
        };
        let bucket = Histogram::bucket_of(took);
        let more = std::iter::once((bucket, 100));
        shared.add_times((position, 0), more);
    }
    bench.pass(WINDOW);
    assert_eq!(slow_windows(&bench), [0, 0, 5]);
}

#[test]
fn a_member_that_is_waited_for_is_not_compared_with_others() {
    for (held, windows) in [(None, 5), (Some(SLOW), 0)] {
        let mut bench = slowly();
        let mut map = bench.shard.successor();
        map.held
            .iter_mut()
            .enumerate()
            .for_each(|(member, waits)| *waits = held == Some(member));
        bench.set_map(map);
        read_slowly(&mut bench);
        assert_eq!(slow_windows(&bench), [0, 0, windows], "{held:?}");
    }
}

#[test]
fn a_member_that_often_cannot_read_is_left_out_where_another_is_to_spare() {
    let member = MemberIndex::from_at(SLOW);
    for (level, members, leaves) in [(Level::L5, 3, false), (Level::L6, 5, true)] {
        let shape = Shape {
            level,
            members,
            ..Shape::default()
        };
        let mut bench = Bench::home_of(shape, |_, _| {});
        let errs = |bench: &mut Bench, times: u32| {
            (0..times).for_each(|_| bench.shard.shared.note_read_error(member));
            // It looks more seldom while nothing goes on.
            for _ in 0..10 {
                bench.pass(WINDOW);
                bench.answer_all();
            }
            bench.shard.map.members[SLOW].state == MapState::Lost
        };
        assert!(!errs(&mut bench, 256), "so many may be");
        assert_eq!(bench.shard.paces()[SLOW].read_errors, 256);
        assert_eq!(errs(&mut bench, 1), leaves, "{level:?}");
        let told = bench.outside.events.iter().filter_map(|event| {
            let Event::MemberLeftBehind { member, cause, .. } = event else {
                return None;
            };
            Some((*member, *cause))
        });
        let expected = [(member, ExclusionCause::ReadErrors)];
        let left = usize::from(leaves);
        assert_eq!(told.collect::<Vec<_>>(), expected[..left]);
        assert_eq!(bench.shard.counters().left_behind, u64::from(leaves));
    }
}

#[test]
fn a_member_that_lags_is_tried_all_over_its_data_and_nowhere_else() {
    let mut bench = slowly();
    let member = MemberIndex::from_at(SLOW);
    bench.shard.shared.call_laggard(member, true);
    bench.shard.late.any_slow = true;
    let geometry = bench.shard.map.geometry;
    let bytes = geometry.member_blocks() * 512;
    let data = bench.shard.map.members[SLOW].data_offset;
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..100 {
        for _ in 0..2 {
            bench.shard.try_laggards(&mut bench.outside);
        }
        let [trial] = bench.outside.asked[..] else {
            panic!("one: {:?}", bench.outside.asked);
        };
        assert_eq!((trial.drive.at(), trial.operation), (SLOW, Operation::Read));
        let end = trial.offset + trial.length;
        assert!(trial.offset >= data && end <= data + bytes, "{trial:?}");
        let place = trial.offset - data;
        assert!(place.is_multiple_of(trial.length), "{trial:?}");
        places.insert(place);
        bench.answer(SLOW, Operation::Read, block::Status::Ok);
    }
    assert_eq!(bench.shard.counters().trials, 100);
    assert!(places.len() > 10, "{places:?}");
}

#[test]
fn trials_of_a_member_that_lags_are_no_reason_for_more_of_them() {
    let mut bench = slowly();
    read_slowly(&mut bench);
    assert!(bench.shard.paces()[SLOW].lags && bench.shard.has_trials());
    let trial = &mut bench.outside.times[SLOW];
    trial.counts[0] += 1;
    trial.took[0].record(10_000_000);
    bench.pass(WINDOW);
    assert!(!bench.shard.has_trials(), "nobody asks for anything");
    read_slowly(&mut bench);
    assert!(bench.shard.has_trials());
}

#[test]
fn what_a_shard_told_counts_in_its_window_and_in_the_next_and_the_worst_of_all_does() {
    let bench = Bench::home(|_, _| {});
    let shared = &bench.shard.shared;
    shared.tell_latency(super::ME, 7, Heard::P99(50));
    let heard = [6, 7, 8, 9].map(|window| shared.worst_latency(window));
    let told = Heard::P99(50);
    assert_eq!(heard, [Heard::Nothing, told, told, Heard::Nothing]);
    shared.tell_latency(super::OTHER, 8, Heard::P99(40));
    assert_eq!(shared.worst_latency(8), told);
    assert_eq!(shared.worst_latency(9), Heard::P99(40));
}
