//! All interleavings of a reactor and of threads that hand closures to it, as loom sees them:
//! `RUSTFLAGS="--cfg loom" cargo test -p reactor --release --test loom`.
#![cfg(loom)]

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex, mpsc};
use loom::thread;
use queues::Wake;
use reactor::{Core, Handle, Loop, Polling, Turn};
use units::{Clock, Instant};

/// Checks all interleavings with at most `preemptions` involuntary switches.
fn bounded(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// Loom's stand-in for an eventfd: a wake-up that comes early ends the next wait.
struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell {
            rung: Mutex::new(false),
            ringing: Condvar::new(),
        })
    }

    fn take(&self) {
        *self.rung.lock().unwrap() = false;
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ringing.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(&self) {
        *self.rung.lock().unwrap() = true;
        self.ringing.notify_one();
    }
}

/// Where a core takes wake-ups besides its sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nowhere,
    InPrepare,
    InWoken,
}

/// What only the reactor touches that has it.
struct Ring {
    /// Without an order of its own: who has the ring sees all turns that it had elsewhere.
    turns: AtomicU32,
    counted: u32,
}

impl Ring {
    fn poll(&mut self) {
        assert_eq!(self.turns.load(Ordering::Relaxed), self.counted);
        self.counted += 1;
        self.turns.store(self.counted, Ordering::Relaxed);
    }
}

/// A core that has nothing to do but to poll its ring, and to let that leave.
struct Place {
    bell: Arc<Bell>,
    takes: Takes,
    ring: Option<Ring>,
    leaving: Option<mpsc::Sender<Ring>>,
    closures: usize,
}

impl Core for Place {
    fn turn(&mut self, _now: Instant) -> usize {
        let Some(ring) = &mut self.ring else {
            return 0;
        };
        ring.poll();
        let Some(answer) = self.leaving.take() else {
            return 0;
        };
        answer.send(self.ring.take().expect("polled")).unwrap();
        1
    }

    fn prepare_sleep(&mut self) -> bool {
        if self.takes == Takes::InPrepare {
            self.bell.take();
        }
        true
    }

    fn sleep(&mut self, _limit: Option<Duration>) {
        self.bell.wait();
    }

    fn woken(&mut self) {
        if self.takes == Takes::InWoken {
            self.bell.take();
        }
    }
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant(0)
    }
}

/// A reactor that sleeps whenever it can.
fn reactor(takes: Takes) -> (Loop<Place, Still>, Handle<Place>) {
    let bell = Bell::new();
    let place = Place {
        bell: Arc::clone(&bell),
        takes,
        ring: None,
        leaving: None,
        closures: 0,
    };
    Loop::new(place, Still, bell, Polling::Never, Duration::ZERO)
}

/// A closure that is missed is a deadlock, which loom reports.
#[test]
fn closures_that_come_while_a_reactor_goes_to_sleep_are_run() {
    for takes in [Takes::Nowhere, Takes::InPrepare, Takes::InWoken] {
        bounded(3, move || {
            let (mut turns, handle) = reactor(takes);
            let senders = [handle.clone(), handle].map(|handle| {
                thread::spawn(move || handle.run(|place| place.closures += 1).unwrap())
            });
            while turns.core().closures < 2 {
                let _ = turns.turn();
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}

#[test]
fn a_reactor_that_is_stopped_runs_what_came_before_and_ends() {
    bounded(3, || {
        let (mut turns, handle) = reactor(Takes::InPrepare);
        let other = thread::spawn(move || {
            handle.run(|place| place.closures += 1).unwrap();
            handle.stop();
        });
        while turns.turn() != Turn::Stopped {}
        assert_eq!(turns.core().closures, 1);
        other.join().unwrap();
    });
}

/// As `ExportHost::move_ring` of the engine does it.
#[test]
fn a_ring_that_moves_is_on_one_reactor_at_a_time_and_brings_along_what_it_was() {
    bounded(2, || {
        let (here, way_here) = reactor(Takes::InPrepare);
        let (there, way_there) = reactor(Takes::InPrepare);
        let threads = [here, there].map(|turns| thread::spawn(move || turns.run()));
        let turns = AtomicU32::new(0);
        let mut ring = Ring { turns, counted: 0 };
        for way in [&way_here, &way_there] {
            way.run(|place| place.ring = Some(ring)).unwrap();
            let (sender, answer) = mpsc::channel();
            way.run(|place| place.leaving = Some(sender)).unwrap();
            ring = answer.recv().unwrap();
        }
        assert!(ring.counted >= 2, "one turn on each");
        ring.poll();
        way_here.stop();
        way_there.stop();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
