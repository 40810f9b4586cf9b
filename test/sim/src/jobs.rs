//! Work on several threads at once whose results come in order, as if one had done it all.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, available_parallelism, scope};

/// As much as the main thread has: histories nest deeply when they fail.
const STACK_BYTES: usize = 8 << 20;

/// As many as the host has cores.
#[must_use]
pub fn usual() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Does `work` for one number after another on so many threads, and hands each result to `take` in
/// the order of the numbers, until that breaks off: then nothing is begun any more, and results of
/// what was begun beyond are dropped. `work` catches its panics.
///
/// # Panics
/// When the host has no threads, or `work` panics.
pub fn in_order<T: Send>(
    jobs: usize,
    numbers: Range<u64>,
    work: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(u64, T) -> ControlFlow<()>,
) {
    let (next, end) = (AtomicU64::new(numbers.start), AtomicU64::new(numbers.end));
    let draw = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        (number < end.load(Ordering::Relaxed)).then_some(number)
    };
    // Nobody is far ahead of what is taken, which may take long.
    let (results, taken) = sync_channel(jobs);
    scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (results, draw, work) = (results.clone(), &draw, &work);
            let run = move || {
                while let Some(number) = draw() {
                    if results.send((number, work(number))).is_err() {
                        return;
                    }
                }
            };
            let thread = Builder::new().name("job".to_owned());
            let thread = thread.stack_size(STACK_BYTES).spawn_scoped(scope, run);
            thread.expect("a thread");
        }
        drop(results);
        let (mut early, mut wanted) = (BTreeMap::new(), numbers.start);
        for (number, result) in taken {
            early.insert(number, result);
            while let Some(result) = early.remove(&wanted) {
                if take(wanted, result).is_break() {
                    end.store(0, Ordering::Relaxed);
                    return;
                }
                wanted += 1;
            }
        }
        assert!(early.is_empty(), "number {wanted} is missing");
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_numbers_whoever_is_first() {
        let barrier = Barrier::new(2);
        // The first is done when the second is, and the second is done first.
        let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = |number: u64| {
            if number < 12 {
                barrier.wait();
            }
            if number == 10 {
                while second.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                first.store(1, Ordering::SeqCst);
            } else {
                second.store(1, Ordering::SeqCst);
            }
            number * number
        };
        let mut all = Vec::new();
        in_order(2, 10..40, work, |number, result| {
            all.push((number, result));
            ControlFlow::Continue(())
        });
        let expected: Vec<(u64, u64)> = (10..40).map(|number| (number, number * number)).collect();
        assert_eq!(all, expected);
        assert_eq!(first.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn nothing_is_taken_after_the_first_that_breaks_off() {
        for jobs in [1, 2, 5] {
            let mut last = None;
            let done = AtomicU64::new(0);
            let work = |number| {
                done.fetch_add(1, Ordering::SeqCst);
                number
            };
            in_order(jobs, 0..100_000, work, |number, result| {
                assert_eq!(number, result);
                last = Some(number);
                if number == 17 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            assert_eq!(last, Some(17), "{jobs} jobs");
            let done = done.load(Ordering::SeqCst);
            assert!(
                (18..100_000).contains(&done),
                "{done}: nothing is begun any more"
            );
        }
    }
}
