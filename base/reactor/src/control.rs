//! The way into a reactor from other threads: closures that run between two turns.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::ThreadId;

use queues::Wake;
use queues::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// The reactor has stopped, or died in a panic; the closure did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reactor has stopped")
    }
}

impl std::error::Error for Stopped {}

type Closure<C> = Box<dyn FnOnce(&mut C) + Send>;

/// What a reactor and its handles share.
pub(crate) struct Control<C> {
    /// Whether the reactor has to look into `state`; it changes under the lock only.
    attention: AtomicBool,
    state: Mutex<State<C>>,
    wake: Arc<dyn Wake>,
    thread: OnceLock<ThreadId>,
}

struct State<C> {
    closures: VecDeque<Closure<C>>,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    /// Takes no more closures, and stops after those it has.
    Stopping,
    Stopped,
}

/// What the reactor finds when it looks.
pub(crate) enum Next<C> {
    Closure(Closure<C>),
    Nothing,
    Stop,
}

impl<C> Control<C> {
    pub(crate) fn new(wake: Arc<dyn Wake>) -> Arc<Control<C>> {
        Arc::new(Control {
            attention: AtomicBool::new(false),
            state: Mutex::new(State {
                closures: VecDeque::new(),
                life: Life::Running,
            }),
            wake,
            thread: OnceLock::new(),
        })
    }

    /// Whether there is something to look at; one load.
    #[inline]
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Acquire)
    }

    pub(crate) fn next(&self) -> Next<C> {
        let mut state = self.lock();
        let closure = state.closures.pop_front();
        let more = !state.closures.is_empty() || state.life != Life::Running;
        self.attention.store(more, Ordering::Release);
        match (closure, state.life) {
            (Some(closure), _) => Next::Closure(closure),
            (None, Life::Running) => Next::Nothing,
            (None, Life::Stopping | Life::Stopped) => Next::Stop,
        }
    }

    /// Says which thread must never wait for the reactor.
    pub(crate) fn runs_here(&self) {
        self.thread.get_or_init(|| std::thread::current().id());
    }

    /// The reactor is gone: refuses closures from now on and drops those it has, which tells
    /// whoever waits for them.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.life = Life::Stopped;
        let left = std::mem::take(&mut state.closures);
        // They may do anything when dropped, so not under the lock.
        drop(state);
        drop(left);
    }

    fn send(&self, closure: Closure<C>) -> Result<(), Stopped> {
        let mut state = self.lock();
        if state.life != Life::Running {
            return Err(Stopped);
        }
        state.closures.push_back(closure);
        self.attention.store(true, Ordering::Release);
        drop(state);
        // Always, for a system call more on the control path costs less than one too few.
        self.wake.wake();
        Ok(())
    }

    fn stop(&self) {
        let mut state = self.lock();
        if state.life == Life::Running {
            state.life = Life::Stopping;
        }
        self.attention.store(true, Ordering::Release);
        drop(state);
        self.wake.wake();
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state
            .lock()
            .expect("nothing that can panic runs under this lock")
    }
}

/// A way to one reactor; any thread may hold one.
pub struct Handle<C> {
    control: Arc<Control<C>>,
}

impl<C> Handle<C> {
    pub(crate) fn new(control: Arc<Control<C>>) -> Handle<C> {
        Handle { control }
    }

    /// Lets the reactor run `closure` between two turns, after those handed over before it. Does
    /// not wait for it.
    ///
    /// # Errors
    /// [`Stopped`] when the reactor takes no more; the closure is dropped. One that was taken is
    /// dropped unrun if the reactor panics first.
    pub fn run(&self, closure: impl FnOnce(&mut C) + Send + 'static) -> Result<(), Stopped> {
        self.control.send(Box::new(closure))
    }

    /// Lets the reactor run `closure` and waits for what it returns. For control threads.
    ///
    /// # Errors
    /// [`Stopped`] when the reactor does not run it to its end.
    ///
    /// # Panics
    /// On the reactor's own thread, which would wait for itself.
    pub fn call<R: Send + 'static>(
        &self,
        closure: impl FnOnce(&mut C) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        assert!(
            self.control.thread.get() != Some(&std::thread::current().id()),
            "a reactor cannot wait for itself"
        );
        let (sender, receiver) = mpsc::sync_channel(1);
        self.run(move |core| {
            // The caller waits, so it takes the answer.
            let _ = sender.send(closure(core));
        })?;
        receiver.recv().map_err(|mpsc::RecvError| Stopped)
    }

    #[cfg(test)]
    pub(crate) fn wants_attention(&self) -> bool {
        self.control.wants_attention()
    }

    /// Asks the reactor to stop once it has run the closures handed over before; it takes no more.
    pub fn stop(&self) {
        self.control.stop();
    }
}

impl<C> Clone for Handle<C> {
    fn clone(&self) -> Handle<C> {
        Handle::new(Arc::clone(&self.control))
    }
}

impl<C> fmt::Debug for Handle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("attention", &self.control.attention)
            .finish_non_exhaustive()
    }
}
