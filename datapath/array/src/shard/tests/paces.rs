//! How long drives took: told window by window, and judged by the home.

use std::time::Duration;

use block::Operation;

use super::{Bench, Drive};

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
fn another_shard_is_heard_as_well() {
    let mut bench = slowly();
    let shared = std::sync::Arc::clone(&bench.shard.shared);
    for position in 0..3 {
        let took = if position == SLOW {
            10_000_000
        } else {
            300_000
        };
        let bucket = block::Histogram::bucket_of(took);
        let more = std::iter::once((bucket, 100));
        shared.add_times((position, 0), more);
    }
    bench.pass(WINDOW);
    assert_eq!(slow_windows(&bench), [0, 0, 5]);
}
