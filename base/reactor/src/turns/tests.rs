//! The loop under false time, with events at every moment at which one can come.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use units::FalseClock;

use super::*;
use crate::Stopped;

const SPIN: Duration = Duration::from_micros(20);
const TURN: Duration = Duration::from_micros(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A wake-up that is kept until it is taken.
#[derive(Default)]
struct Bell(AtomicBool);

impl Bell {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Where the core takes wake-ups besides its sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nowhere,
    InTurn,
    InPrepare,
    InWoken,
}

/// How far the core is on its way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Preparing,
    /// Whoever brings a request wakes us.
    Listening,
}

/// Something that comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Request,
    Closure,
}

/// What the core and the test share.
struct World {
    clock: FalseClock,
    bell: Arc<Bell>,
    takes: Takes,
    handle: Option<Handle<FakeCore>>,
    /// The event that comes at this many moments from now.
    coming: Option<(usize, Event)>,
    requests: usize,
    phase: Phase,
    answered: usize,
    closures_ran: Arc<AtomicUsize>,
    turns: usize,
    sleeps: Vec<Option<Duration>>,
    deadline: Option<Instant>,
    /// How long a sleep without a wake-up lasts; the event that ends it.
    idle_ends_with: Option<Event>,
}

impl World {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Request => {
                self.requests += 1;
                if self.phase == Phase::Listening {
                    self.bell.wake();
                }
            }
            Event::Closure => {
                let ran = Arc::clone(&self.closures_ran);
                let handle = self.handle.as_ref().expect("set at the start");
                handle
                    .run(move |_| {
                        ran.fetch_add(1, Ordering::SeqCst);
                    })
                    .expect("it runs");
            }
        }
    }

    /// A moment at which something can come.
    fn moment(&mut self) {
        if let Some((moments, event)) = self.coming {
            self.coming = moments.checked_sub(1).map(|left| (left, event));
            if self.coming.is_none() {
                self.happen(event);
            }
        }
    }

    fn done(&self) -> usize {
        self.answered + self.closures_ran.load(Ordering::SeqCst)
    }
}

struct FakeCore(Rc<RefCell<World>>);

impl Core for FakeCore {
    fn turn(&mut self, _now: Instant) -> usize {
        let mut world = self.0.borrow_mut();
        world.turns += 1;
        world.clock.advance(TURN);
        world.moment();
        if world.takes == Takes::InTurn {
            world.bell.take();
        }
        world.moment();
        let work = std::mem::take(&mut world.requests);
        world.answered += work;
        world.moment();
        work
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut world = self.0.borrow_mut();
        assert_eq!(world.phase, Phase::Running);
        world.phase = Phase::Preparing;
        world.moment();
        world.phase = Phase::Listening;
        world.moment();
        if world.takes == Takes::InPrepare {
            world.bell.take();
        }
        world.moment();
        let ready = world.requests == 0;
        world.moment();
        ready
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        let mut world = self.0.borrow_mut();
        assert_eq!(world.phase, Phase::Listening);
        world.moment();
        world.sleeps.push(limit);
        if world.bell.take() {
            return;
        }
        assert_eq!(world.requests, 0, "sleeps over a request");
        let handle = world.handle.as_ref().expect("set at the start");
        assert!(!handle.wants_attention(), "sleeps over a closure");
        world.clock.advance(limit.unwrap_or(HOUR));
        if let Some(event) = world.idle_ends_with.take() {
            world.happen(event);
            assert!(world.bell.take(), "what comes now wakes us");
        }
    }

    fn woken(&mut self) {
        let mut world = self.0.borrow_mut();
        assert_eq!(world.phase, Phase::Listening);
        world.moment();
        if world.takes == Takes::InWoken {
            world.bell.take();
        }
        world.phase = Phase::Running;
        world.moment();
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.borrow().deadline
    }
}

type Shared = Rc<RefCell<World>>;

fn world(polling: Polling) -> (Loop<FakeCore, FalseClock>, Handle<FakeCore>, Shared) {
    let clock = FalseClock::default();
    let bell = Arc::new(Bell::default());
    let world = Rc::new(RefCell::new(World {
        clock: clock.clone(),
        bell: Arc::clone(&bell),
        takes: Takes::Nowhere,
        handle: None,
        coming: None,
        requests: 0,
        phase: Phase::Running,
        answered: 0,
        closures_ran: Arc::default(),
        turns: 0,
        sleeps: Vec::new(),
        deadline: None,
        idle_ends_with: None,
    }));
    let core = FakeCore(Rc::clone(&world));
    let (turns, handle) = Loop::new(core, clock, bell, polling, SPIN);
    world.borrow_mut().handle = Some(handle.clone());
    (turns, handle, world)
}

#[test]
fn nothing_that_comes_at_any_moment_is_missed() {
    let takes = [
        Takes::Nowhere,
        Takes::InTurn,
        Takes::InPrepare,
        Takes::InWoken,
    ];
    for polling in [Polling::Always, Polling::Adaptive, Polling::Never] {
        for takes in takes {
            for event in [Event::Request, Event::Closure] {
                for moment in 0..150 {
                    let (mut turns, _handle, world) = world(polling);
                    world.borrow_mut().takes = takes;
                    world.borrow_mut().coming = Some((moment, event));
                    let mut left = 100;
                    while world.borrow().done() == 0 {
                        let what = format!("{event:?} at {moment}, {polling:?}, taken {takes:?}");
                        assert!(left > 0, "missed {what}");
                        left -= 1;
                        assert_ne!(turns.turn(), Turn::Stopped);
                    }
                    assert_eq!(world.borrow().done(), 1);
                }
            }
        }
    }
}

#[test]
fn the_first_event_after_a_long_idle_is_served_at_once() {
    for polling in [Polling::Adaptive, Polling::Never] {
        for event in [Event::Request, Event::Closure] {
            let (mut turns, _handle, world) = world(polling);
            world.borrow_mut().idle_ends_with = Some(event);
            while turns.turn() != Turn::Slept {}
            assert!(world.borrow().clock.now() >= Instant::default() + HOUR);
            assert_eq!(world.borrow().done(), 0);
            assert_eq!(turns.turn(), Turn::Busy);
            assert_eq!(world.borrow().done(), 1);
            assert_eq!(world.borrow().sleeps, [None]);
            assert!(
                (0..200).any(|_| turns.turn() == Turn::Slept),
                "and it sleeps again"
            );
        }
    }
}

#[test]
fn a_loop_looks_as_long_as_it_should_before_it_sleeps() {
    for (polling, looks) in [(Polling::Adaptive, 20), (Polling::Never, 0)] {
        let (mut turns, _handle, world) = world(polling);
        for busy in [true, false, true] {
            // Work begins a new spell, however much of the last one had passed.
            if busy {
                assert!((0..looks / 2).all(|_| turns.turn() == Turn::Idle));
                world.borrow_mut().happen(Event::Request);
                assert_eq!(turns.turn(), Turn::Busy);
            }
        }
        // Whatever ended the sleep, it looks again; half as long, for the sleep was an hour.
        for (sleeps, looks) in [(1, looks), (2, looks / 2)] {
            let idle = std::iter::from_fn(|| (turns.turn() == Turn::Idle).then_some(())).count();
            assert_eq!(idle, looks, "{polling:?}");
            assert_eq!(world.borrow().sleeps.len(), sleeps);
        }
    }
}

#[test]
fn a_loop_that_always_polls_never_sleeps() {
    let (mut turns, _handle, world) = world(Polling::Always);
    assert!((0..10_000).all(|_| turns.turn() == Turn::Idle));
    assert_eq!(
        (world.borrow().turns, world.borrow().sleeps.len()),
        (10_000, 0)
    );
}

#[test]
fn an_idle_engine_hardly_turns() {
    let (mut turns, _handle, world) = world(Polling::Adaptive);
    while world.borrow().sleeps.len() < 1_000 {
        let _ = turns.turn();
    }
    // Sleeps of an hour: the look shrinks to an eighth of its first length, 2.5 µs.
    assert!(
        world.borrow().turns < 1_000 * 4 + 100,
        "{}",
        world.borrow().turns
    );
}

#[test]
fn a_sleep_ends_at_the_deadline() {
    let (mut turns, _handle, world) = world(Polling::Never);
    let deadline = Instant::default() + Duration::from_millis(5);
    world.borrow_mut().deadline = Some(deadline);
    assert_eq!(turns.turn(), Turn::Slept);
    assert_eq!(
        world.borrow().sleeps,
        [Some(Duration::from_millis(5) - TURN)]
    );
    assert_eq!(world.borrow().clock.now(), deadline);
    // It has passed: the core gets its turn before it may sleep.
    assert_eq!(turns.turn(), Turn::Busy);
    assert_eq!(world.borrow().sleeps.len(), 1);
    world.borrow_mut().deadline = None;
    assert_eq!(turns.turn(), Turn::Slept);
}

#[test]
fn closures_run_in_order_and_leave_turns_to_the_core() {
    let (mut turns, handle, world) = world(Polling::Always);
    let order: Arc<std::sync::Mutex<Vec<usize>>> = Arc::default();
    for number in 0..CLOSURES_PER_TURN * 2 + 1 {
        let order = Arc::clone(&order);
        handle
            .run(move |_| order.lock().unwrap().push(number))
            .unwrap();
    }
    for (turn, ran) in [(1, 16), (2, 32), (3, 33)] {
        assert_eq!(turns.turn(), Turn::Busy);
        assert_eq!(order.lock().unwrap().len(), ran);
        assert_eq!(world.borrow().turns, turn);
    }
    assert_eq!(turns.turn(), Turn::Idle);
    assert!(order.lock().unwrap().is_sorted());
}

#[test]
fn a_stop_comes_after_the_closures_before_it_and_refuses_those_behind() {
    let (mut turns, handle, world) = world(Polling::Never);
    world.borrow_mut().happen(Event::Closure);
    handle.stop();
    handle.stop();
    assert_eq!(handle.run(|_| unreachable!()), Err(Stopped));
    assert_eq!(turns.turn(), Turn::Stopped);
    assert_eq!(world.borrow().done(), 1);
}

#[test]
fn a_loop_that_is_gone_refuses_and_drops_closures() {
    let (turns, handle, _world) = world(Polling::Never);
    let alive = Arc::new(());
    let inside = Arc::clone(&alive);
    handle.run(move |_| drop(inside)).unwrap();
    drop(turns);
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(handle.run(|_| ()), Err(Stopped));
    assert_eq!(handle.call(|_| ()), Err(Stopped));
}
