//! Requests of the control path, which wait for their answers. A drive may never give one (a device
//! that hangs, a file server that is away), and nobody waits longer for it than was said: a request
//! is made on a thread of its own, which stays behind with it then. That costs 5 µs of a core for a
//! request, beside the 20 that one of 4 KiB takes anyway.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long the control path waits for an answer, unless somebody says otherwise. The kernel gives
/// an NVMe drive as long before it resets it.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// After so long without a request a thread ends.
const IDLE: Duration = Duration::from_secs(1);

type Task = Box<dyn FnOnce() + Send>;

/// The threads that make the requests of one drive.
#[derive(Debug)]
pub(crate) struct Blocking {
    /// Milliseconds.
    wait: AtomicU64,
    /// Those without a request, as far as they have not ended.
    idle: Mutex<Vec<Sender<Task>>>,
    /// Requests that nobody waits for any more and that are not answered.
    owed: Arc<AtomicUsize>,
}

/// What becomes of a request.
enum Answer<T> {
    Awaited,
    Given(io::Result<T>),
    /// Nobody waits any more.
    Late,
}

impl Default for Blocking {
    fn default() -> Blocking {
        let blocking = Blocking {
            wait: AtomicU64::new(0),
            idle: Mutex::default(),
            owed: Arc::default(),
        };
        blocking.wait_at_most(ANSWER_WAIT);
        blocking
    }
}

impl Blocking {
    pub(crate) fn wait_at_most(&self, wait: Duration) {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.wait.store(wait, Ordering::Relaxed);
    }

    /// Whether a request is under way that nobody waits for any more.
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Makes a request, and waits for its answer.
    ///
    /// # Errors
    /// `TimedOut` when there is none in time, and from then on, at once, until it has come. It may
    /// be done all the same. Else what the drive said, or that there is no thread.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let wait = Duration::from_millis(self.wait.load(Ordering::Relaxed));
        if self.owes() {
            return Err(unanswered(wait));
        }
        let answer = Arc::new((Mutex::new(Answer::Awaited), Condvar::new()));
        let (given, owed) = (Arc::clone(&answer), Arc::clone(&self.owed));
        let sender = self.send(Box::new(move || {
            let value = request();
            let mut state = lock(&given.0);
            if matches!(*state, Answer::Late) {
                owed.fetch_sub(1, Ordering::Release);
                return;
            }
            *state = Answer::Given(value);
            given.1.notify_one();
        }))?;
        let awaited = |state: &mut Answer<T>| matches!(state, Answer::Awaited);
        let waited = answer.1.wait_timeout_while(lock(&answer.0), wait, awaited);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, Answer::Late) {
            Answer::Given(value) => {
                lock(&self.idle).push(sender);
                value
            }
            Answer::Awaited | Answer::Late => {
                // Under the lock: whoever answers from here on finds that it was owed.
                self.owed.fetch_add(1, Ordering::Relaxed);
                Err(unanswered(wait))
            }
        }
    }

    /// Gives a task to a thread that has none.
    fn send(&self, task: Task) -> io::Result<Sender<Task>> {
        let mut task = task;
        loop {
            // Not held while it is sent.
            let idle = lock(&self.idle).pop();
            let Some(sender) = idle else {
                break;
            };
            match sender.send(task) {
                Ok(()) => return Ok(sender),
                // It has ended.
                Err(unsent) => task = unsent.0,
            }
        }
        let (sender, tasks) = channel::<Task>();
        let run = move || {
            while let Ok(task) = tasks.recv_timeout(IDLE) {
                task();
            }
        };
        Builder::new().name("drive-asked".to_owned()).spawn(run)?;
        let sent = sender.send(task);
        sent.expect("it has just begun to wait for a task");
        Ok(sender)
    }
}

fn unanswered(wait: Duration) -> io::Error {
    let text = format!("it does not answer: it was waited for {} s", wait.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use units::{Clock, MonotonicClock, Size};

    use super::*;
    use crate::{Drive, DriveSpec, Fault};

    const MIB: u64 = 1 << 20;

    fn memory() -> Arc<Drive> {
        let size = Size(MIB);
        let drive = Drive::open(&DriveSpec::Memory { size }).expect("memory");
        drive.wait_at_most(Duration::from_millis(50));
        drive
    }

    fn refused(result: io::Result<()>) {
        let error = result.expect_err("it is silent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn whoever_owes_an_answer_is_asked_nothing_else_until_it_has_come() {
        let drive = memory();
        drive.inject(Fault::Silent);
        refused(drive.write(4096, &[7; 512]));
        assert!(drive.owes_an_answer());
        drive.wait_at_most(Duration::from_secs(3600));
        // At once.
        refused(drive.read(0, &mut [0; 512]));
        refused(drive.flush());
        drive.clear_faults();
        while drive.owes_an_answer() {
            std::thread::yield_now();
        }
        // What was given up was done all the same.
        let mut bytes = [0; 512];
        drive.read(4096, &mut bytes).expect("it answers");
        assert_eq!(bytes, [7; 512]);
    }

    #[test]
    fn a_drive_is_open_as_long_as_it_owes_an_answer_and_no_longer() {
        let drive = memory();
        drive.inject(Fault::Silent);
        refused(drive.read(0, &mut [0; 512]));
        let left = Arc::downgrade(&drive);
        drop(drive);
        left.upgrade().expect("it is still asked").clear_faults();
        while left.strong_count() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_is_closed_when_its_answer_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        for round in 0..200 {
            let spec = DriveSpec::File {
                path: folder.path().join("drive"),
                size: Some(Size(MIB)),
                create: round == 0,
            };
            let drive = Drive::open(&spec).expect("nobody has it");
            drive.write(0, &[1; 4096]).expect("room");
            let mut bytes = [0; 4096];
            drive.read(0, &mut bytes).expect("just written");
            assert_eq!(bytes, [1; 4096]);
            assert_eq!(Arc::strong_count(&drive), 1);
        }
    }

    #[test]
    fn several_ask_at_once_and_few_threads_are_made() {
        let blocking = Blocking::default();
        std::thread::scope(|scope| {
            for number in 0..4_u64 {
                let blocking = &blocking;
                let asker = Builder::new().name(format!("asker {number}"));
                let ask = move || {
                    for round in 0..100 {
                        let asked = blocking.ask(move || Ok(number * round));
                        assert_eq!(asked.expect("an answer"), number * round);
                    }
                };
                asker.spawn_scoped(scope, ask).expect("a thread");
            }
        });
        assert!(lock(&blocking.idle).len() <= 4);
    }

    #[test]
    fn a_thread_that_has_ended_is_not_missed() {
        let blocking = Blocking::default();
        assert_eq!(blocking.ask(|| Ok(1)).expect("an answer"), 1);
        let begun = MonotonicClock.now();
        while MonotonicClock.now().since(begun) < 2 * IDLE {
            std::thread::park_timeout(IDLE / 10);
        }
        assert_eq!(blocking.ask(|| Ok(2)).expect("an answer"), 2);
    }
}
