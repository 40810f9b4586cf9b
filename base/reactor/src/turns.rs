//! The endless loop of a reactor, one turn at a time, so that a test can drive it under false time.
//!
//! Nothing that comes while a reactor goes to sleep is missed, by this order: the core asks its
//! bringers of work to wake it and looks once more; then we look for closures once more; then it
//! sleeps. A closure handed over before that last look is seen by it; one handed over later leaves
//! a wake-up that nobody takes before the sleep.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use queues::Wake;
use units::{Clock, Instant};

use crate::control::{Control, Next};
use crate::spin::Spin;
use crate::{Core, Handle, Polling};

/// Closures that run between two turns at most, so that control never starves the data path.
pub const CLOSURES_PER_TURN: usize = 16;

/// For so long without work nothing is done for whoever shares the core (`spin_loop` takes a fifth
/// of a turn that finds nothing): the next request often comes sooner.
const EAGER: Duration = Duration::from_micros(20);

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// There was work.
    Busy,
    /// There was none, and we look on.
    Idle,
    /// There was none, and the core slept.
    Slept,
    /// A handle asked to stop; do not turn again.
    Stopped,
}

/// A core and what turns it.
pub struct Loop<C: Core, K: Clock> {
    core: C,
    clock: K,
    control: Arc<Control<C>>,
    polling: Polling,
    spin: Spin,
    /// Since when there was no work.
    idle_since: Option<Instant>,
}

impl<C: Core, K: Clock> Loop<C, K> {
    /// A loop that the caller turns, and a way into it. `wake` ends the sleep of `core`; `spin` is
    /// how long [`Polling::Adaptive`] looks for work at first.
    pub fn new(
        core: C,
        clock: K,
        wake: Arc<dyn Wake>,
        polling: Polling,
        spin: Duration,
    ) -> (Loop<C, K>, Handle<C>) {
        let control = Control::new(wake);
        let turns = Loop::with_control(core, clock, Arc::clone(&control), polling, spin);
        (turns, Handle::new(control))
    }

    pub(crate) fn with_control(
        core: C,
        clock: K,
        control: Arc<Control<C>>,
        polling: Polling,
        spin: Duration,
    ) -> Loop<C, K> {
        Loop {
            core,
            clock,
            control,
            polling,
            spin: Spin::new(spin),
            idle_since: None,
        }
    }

    /// Turns until a handle says stop.
    pub fn run(mut self) {
        while self.turn() != Turn::Stopped {}
    }

    /// Runs waiting closures, gives the core its turn, and lets it sleep if that is due.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        let mut work = 0;
        if self.control.wants_attention() {
            self.control.runs_here();
            while work < CLOSURES_PER_TURN {
                match self.control.next() {
                    Next::Closure(closure) => closure(&mut self.core),
                    Next::Nothing => break,
                    Next::Stop => return Turn::Stopped,
                }
                work += 1;
            }
        }
        // The one look at the clock of a turn.
        let now = self.clock.now();
        work += self.core.turn(now);
        if work > 0 {
            self.idle_since = None;
            return Turn::Busy;
        }
        self.idle(now)
    }

    /// After a turn without work that began `now`.
    fn idle(&mut self, now: Instant) -> Turn {
        let idle = now.since(*self.idle_since.get_or_insert(now));
        let goes_on = match self.polling {
            Polling::Always => true,
            Polling::Adaptive => idle < self.spin.length(),
            Polling::Never => false,
        };
        if goes_on {
            if idle >= EAGER {
                std::hint::spin_loop();
            }
            return Turn::Idle;
        }
        // Awake again, whatever woke us, we look for as long as before.
        self.idle_since = None;
        self.sleep()
    }

    fn sleep(&mut self) -> Turn {
        let ready = self.core.prepare_sleep();
        let now = self.clock.now();
        let limit = self.core.deadline().map(|deadline| deadline.since(now));
        let sleeps = ready && limit != Some(Duration::ZERO) && !self.control.wants_attention();
        if sleeps {
            self.core.sleep(limit);
            self.spin.slept(self.clock.now().since(now));
        }
        self.core.woken();
        if sleeps { Turn::Slept } else { Turn::Busy }
    }

    /// The core, between two turns.
    pub fn core(&mut self) -> &mut C {
        &mut self.core
    }
}

impl<C: Core, K: Clock> Drop for Loop<C, K> {
    /// Tells the handles, also when a panic ends the loop.
    fn drop(&mut self) {
        self.control.close();
    }
}

impl<C: Core, K: Clock> fmt::Debug for Loop<C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop")
            .field("polling", &self.polling)
            .field("spin", &self.spin)
            .field("idle_since", &self.idle_since)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
