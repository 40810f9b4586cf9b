//! What may take for ever, a drive's answer, is waited for on threads of their own: whoever wants
//! several of them has those that come in time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use units::limits::DRIVES_MAX;
use units::{Clock, MonotonicClock};

/// At once, as many as there may be drives; others come as these end.
const THREADS_MAX: usize = DRIVES_MAX;

/// Does all of it, several at once. `None` for what has not ended within `patience`: it ends some
/// time, and what it gives then is dropped.
pub(crate) fn apart<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    patience: Duration,
    tasks: Vec<F>,
) -> Vec<Option<T>> {
    let mut ended: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    let threads = tasks.len().min(THREADS_MAX);
    let begun = MonotonicClock.now();
    let left = Arc::new(Mutex::new(tasks.into_iter().enumerate()));
    let (sender, receiver) = channel();
    for _ in 0..threads {
        let (left, sender) = (Arc::downgrade(&left), sender.clone());
        let run = move || {
            // Nobody waits any more when it is gone.
            while let Some(tasks) = left.upgrade() {
                let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
                drop(tasks);
                let Some((position, task)) = next else { return };
                // What comes too late is nobody's.
                sender.send((position, task())).ok();
            }
        };
        let spawned = std::thread::Builder::new()
            .name("apart".to_owned())
            .spawn(run);
        if let Err(error) = spawned {
            tracing::error!(event = "no_thread", %error, "others do it, one after the other");
        }
    }
    drop(sender);
    loop {
        let waited = MonotonicClock.now().since(begun);
        match receiver.recv_timeout(patience.saturating_sub(waited)) {
            Ok((position, value)) => ended[position] = Some(value),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    #[test]
    fn one_that_does_not_end_lets_no_other_wait() {
        let (hold, held) = channel::<()>();
        let mut held: Option<Receiver<()>> = Some(held);
        let mut task = |number: usize| {
            let held = if number == 1 { held.take() } else { None };
            move || {
                if let Some(held) = held {
                    held.recv().ok();
                }
                number
            }
        };
        let tasks: Vec<_> = (0..200).map(&mut task).collect();
        let ended = apart(Duration::from_millis(300), tasks);
        let expected = (0..200).map(|number| (number != 1).then_some(number));
        assert_eq!(ended, expected.collect::<Vec<_>>());
        drop(hold);
    }

    #[test]
    fn whoever_has_all_answers_waits_no_longer() {
        let begun = MonotonicClock.now();
        let ended = apart(Duration::from_secs(3600), vec![|| 7; 3]);
        assert_eq!(ended, [Some(7); 3]);
        assert!(MonotonicClock.now().since(begun) < Duration::from_secs(600));
        assert!(apart(Duration::ZERO, Vec::<fn() -> u8>::new()).is_empty());
    }

    #[test]
    fn what_is_left_is_not_begun_when_nobody_waits() {
        let count = Arc::new(Mutex::new(0));
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let task = |_| {
            let (count, held) = (Arc::clone(&count), Arc::clone(&held));
            move || {
                *count.lock().expect("no panic") += 1;
                held.lock().expect("no panic").recv().ok();
            }
        };
        let tasks: Vec<_> = (0..2 * THREADS_MAX).map(task).collect();
        apart(Duration::from_millis(100), tasks);
        drop(hold);
        // All that hold it have ended when it is ours alone.
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(*count.lock().expect("no panic"), THREADS_MAX);
    }
}
