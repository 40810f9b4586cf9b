//! Reactors as real threads, asleep in a real system call.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use reactor::{Core, EventFd, Handle, Polling, Settings, Stopped, default_cores, start};
use rustix::thread::{CpuSet, sched_getaffinity};
use units::{Instant, MonotonicClock, ReactorIndex};

/// A core that has nothing to do but sleep.
struct Sleeper {
    wake: Arc<EventFd>,
    closures: usize,
    sleeps: Arc<AtomicUsize>,
}

impl Core for Sleeper {
    fn turn(&mut self, _now: Instant) -> usize {
        0
    }

    fn prepare_sleep(&mut self) -> bool {
        true
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        self.wake.wait(limit);
    }

    fn woken(&mut self) {
        self.wake.drain();
    }
}

const PLAIN: Settings = Settings {
    index: ReactorIndex(3),
    core: None,
    polling: Polling::Never,
    spin: Duration::from_micros(20),
};

fn sleeper(settings: Settings) -> io::Result<(Handle<Sleeper>, JoinHandle<()>)> {
    let wake = Arc::new(EventFd::new()?);
    let inside = Arc::clone(&wake);
    start(settings, MonotonicClock, wake, move || {
        Ok(Sleeper {
            wake: inside,
            closures: 0,
            sleeps: Arc::default(),
        })
    })
}

#[test]
fn a_sleeping_reactor_answers_every_call_and_stops_when_asked() {
    for polling in [Polling::Never, Polling::Adaptive, Polling::Always] {
        let (handle, thread) = sleeper(Settings { polling, ..PLAIN }).unwrap();
        for number in 1..=2_000 {
            let count = |core: &mut Sleeper| {
                core.closures += 1;
                core.closures
            };
            assert_eq!(handle.call(count), Ok(number));
        }
        handle.stop();
        thread.join().unwrap();
        assert_eq!(handle.call(|_| ()), Err(Stopped));
    }
}

#[test]
fn an_idle_reactor_stays_asleep() {
    let (handle, thread) = sleeper(PLAIN).unwrap();
    let sleeps = handle.call(|core| Arc::clone(&core.sleeps)).unwrap();
    // Every wake-up is one of ours: sleeps and calls keep step, give or take the wake-ups that come
    // before a sleep and end it at once.
    for _ in 0..100 {
        handle.call(|_| ()).unwrap();
    }
    handle.stop();
    thread.join().unwrap();
    assert!(sleeps.load(Ordering::SeqCst) <= 2 * 102);
}

#[test]
fn a_thread_is_named_and_pinned_before_its_core_is_built() {
    let core = default_cores()[0];
    let wake = Arc::new(EventFd::new().unwrap());
    let inside = Arc::clone(&wake);
    let settings = Settings {
        core: Some(core),
        ..PLAIN
    };
    let (handle, thread) = start(settings, MonotonicClock, wake, move || {
        let cores = sched_getaffinity(None)?;
        let mine: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| cores.is_set(*core))
            .collect();
        assert_eq!(mine, [core]);
        assert_eq!(std::thread::current().name(), Some("reactor-3"));
        Ok(Sleeper {
            wake: inside,
            closures: 0,
            sleeps: Arc::default(),
        })
    })
    .unwrap();
    handle.stop();
    thread.join().unwrap();
}

#[test]
fn a_core_that_is_not_there_is_an_error() {
    for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
        let settings = Settings {
            core: Some(core),
            ..PLAIN
        };
        let error = sleeper(settings).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&core.to_string()), "{error}");
    }
}

#[test]
fn a_core_that_cannot_be_built_is_an_error() {
    let wake = || Arc::new(EventFd::new().unwrap());
    let refuses = || Err(io::Error::other("no drive"));
    let refused = start::<Sleeper>(PLAIN, MonotonicClock, wake(), refuses);
    assert_eq!(refused.map(|_| ()).unwrap_err().to_string(), "no drive");
    let panics = || panic!("on purpose");
    let error = start::<Sleeper>(PLAIN, MonotonicClock, wake(), panics);
    let text = error.map(|_| ()).unwrap_err().to_string();
    assert_eq!(text, "reactor 3 panicked before it could begin");
}

#[test]
fn a_panic_on_the_reactor_is_told_to_whoever_waits() {
    let (handle, thread) = sleeper(PLAIN).unwrap();
    let result = handle.call::<()>(|_| panic!("on purpose"));
    assert_eq!(result, Err(Stopped));
    assert!(thread.join().is_err());
    assert_eq!(handle.call(|_| ()), Err(Stopped));
    assert_eq!(handle.run(|_| ()), Err(Stopped));
}

#[test]
fn a_reactor_that_would_wait_for_itself_panics_instead() {
    let (handle, thread) = sleeper(PLAIN).unwrap();
    let same = handle.clone();
    assert_eq!(handle.call(move |_| same.call(|_| ())), Err(Stopped));
    assert!(thread.join().is_err());
}
