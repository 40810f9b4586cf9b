//! Requests of the control path, which wait for their answers. A drive may never give one (a device
//! that hangs, a file server that is away), and nobody waits longer for it than was said: a request
//! is made on a thread of its own, which stays behind with it then. That costs 5 µs of a core for a
//! request, beside the 20 that one of 4 KiB takes anyway.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long the control path waits for an answer, unless somebody says otherwise. The kernel gives
/// an NVMe drive as long before it resets it.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// After so long without a request a thread ends.
const IDLE: Duration = Duration::from_secs(1);

/// Why the control path has given up a request: it was not answered in time, or an earlier one is
/// not. A drive that says itself that it has timed out has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// So long.
    pub waited: Duration,
}

impl Display for Unanswered {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs();
        write!(out, "it does not answer: it was waited for {seconds} s")
    }
}

impl Error for Unanswered {}

impl Unanswered {
    /// Whether this is what is wrong.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        error
            .get_ref()
            .is_some_and(|cause| cause.is::<Unanswered>())
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// The threads that make the requests of one drive.
#[derive(Debug)]
pub(crate) struct Blocking {
    /// Milliseconds.
    wait: AtomicU64,
    /// Requests that were given up.
    given_up: AtomicU64,
    /// Those of them that are not answered.
    owed: Arc<AtomicUsize>,
    threads: Arc<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    queue: Mutex<Queue>,
    come: Condvar,
}

#[derive(Default)]
struct Queue {
    /// At most one for each thread that waits for one, or has just begun.
    tasks: VecDeque<Task>,
    /// Threads that have none.
    idle: usize,
}

/// What becomes of a request.
enum Answer<T> {
    Awaited,
    Given(io::Result<T>),
    /// Nobody waits any more.
    Late,
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} for {} threads", self.tasks.len(), self.idle)
    }
}

impl Default for Blocking {
    fn default() -> Blocking {
        let blocking = Blocking {
            wait: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            owed: Arc::default(),
            threads: Arc::default(),
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

    /// How many requests were given up.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether one of them is not answered.
    pub(crate) fn owes(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// Makes a request, and waits for its answer.
    ///
    /// # Errors
    /// [`Unanswered`] when there is none in time, and from then on, at once, until it has come. It
    /// may be done all the same. Else what the drive said, or that there is no thread.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.owes() {
            return Err(self.give_up());
        }
        let answer = Arc::new((Mutex::new(Answer::Awaited), Condvar::new()));
        let (given, owed) = (Arc::clone(&answer), Arc::clone(&self.owed));
        self.threads.take(Box::new(move || {
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
        let waited = (answer.1).wait_timeout_while(lock(&answer.0), self.wait(), awaited);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, Answer::Late) {
            Answer::Given(value) => value,
            Answer::Awaited | Answer::Late => {
                // Under the lock: whoever answers from here on finds that it was owed.
                self.owed.fetch_add(1, Ordering::Relaxed);
                Err(self.give_up())
            }
        }
    }

    fn wait(&self) -> Duration {
        Duration::from_millis(self.wait.load(Ordering::Relaxed))
    }

    fn give_up(&self) -> io::Error {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        let waited = self.wait();
        io::Error::new(io::ErrorKind::TimedOut, Unanswered { waited })
    }
}

impl Threads {
    /// Gives a task to a thread that has none.
    fn take(self: &Arc<Threads>, task: Task) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        if queue.idle <= queue.tasks.len() {
            let threads = Arc::clone(self);
            let thread = Builder::new().name("drive-asked".to_owned());
            thread.spawn(move || threads.work())?;
        }
        queue.tasks.push_back(task);
        self.come.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                drop(queue);
                task();
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let none = |queue: &mut Queue| queue.tasks.is_empty();
            let waited = self.come.wait_timeout_while(queue, IDLE, none);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.idle -= 1;
            if queue.tasks.is_empty() {
                return;
            }
        }
    }
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
        assert!(Unanswered::is(&error), "{error}");
    }

    #[test]
    fn whoever_owes_an_answer_is_asked_nothing_else_until_it_has_come() {
        let drive = memory();
        drive.inject(Fault::Silent);
        refused(drive.write(4096, &[7; 512]));
        assert!(drive.owes_an_answer());
        assert_eq!(drive.given_up(), 1);
        drive.wait_at_most(Duration::from_secs(3600));
        // At once.
        refused(drive.read(0, &mut [0; 512]));
        refused(drive.flush());
        assert_eq!(drive.given_up(), 3);
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
        // Some come while the last one has not gone to sleep.
        let threads = lock(&blocking.threads.queue).idle;
        assert!(threads < 100, "{threads}");
    }

    #[test]
    fn no_request_is_lost_when_threads_come_and_go() {
        let blocking = Blocking::default();
        // Around the end of a thread.
        for round in 0..40_u64 {
            assert_eq!(blocking.ask(move || Ok(round)).expect("an answer"), round);
            let begun = MonotonicClock.now();
            let pause = IDLE - Duration::from_millis(1) + Duration::from_micros(50 * round);
            let pause = if round % 8 == 0 {
                pause
            } else {
                Duration::ZERO
            };
            while MonotonicClock.now().since(begun) < pause {
                std::thread::park_timeout(Duration::from_micros(20));
            }
        }
    }
}
