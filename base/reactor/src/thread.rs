//! Threads for reactors, each on a core of its own.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use queues::Wake;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use units::{Clock, ReactorIndex};

use crate::control::Control;
use crate::{Core, Handle, Loop, Polling};

/// How a reactor is to run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which one; names its thread.
    pub index: ReactorIndex,
    /// The only core its thread runs on, if any.
    pub core: Option<usize>,
    /// When it sleeps.
    pub polling: Polling,
    /// How long [`Polling::Adaptive`] looks for work at first; tens of microseconds.
    pub spin: Duration,
}

/// Starts a reactor: a thread, pinned first, that builds its core and turns it until
/// [`Handle::stop`]. `wake` ends the core's sleep. Returns when the core is built.
///
/// A panic on the thread ends it: handles say [`crate::Stopped`], the join handle has the panic,
/// and the process decides what that means.
///
/// # Errors
/// When there can be no thread, the core does not exist or is not allowed, or `build` fails.
pub fn start<C: Core>(
    settings: Settings,
    clock: impl Clock + Send + 'static,
    wake: Arc<dyn Wake>,
    build: impl FnOnce() -> io::Result<C> + Send + 'static,
) -> io::Result<(Handle<C>, JoinHandle<()>)> {
    let control = Control::new(wake);
    let inside = Arc::clone(&control);
    let (sender, built) = mpsc::sync_channel(1);
    let thread = Builder::new()
        .name(format!("reactor-{}", settings.index.0))
        .spawn(move || {
            let core = match pin(settings.core).and_then(|()| build()) {
                Ok(core) => core,
                Err(error) => {
                    // `start` waits for it.
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            let Settings { polling, spin, .. } = settings;
            let turns = Loop::with_control(core, clock, inside, polling, spin);
            let _ = sender.send(Ok(()));
            turns.run();
        })?;
    let index = settings.index;
    match built.recv() {
        Ok(Ok(())) => Ok((Handle::new(control), thread)),
        Ok(Err(error)) => Err(error),
        Err(mpsc::RecvError) => Err(io::Error::other(format!(
            "{index} panicked before it could begin"
        ))),
    }
}

fn pin(core: Option<usize>) -> io::Result<()> {
    let Some(core) = core else {
        return Ok(());
    };
    let wrong = |why: String| {
        let text = format!("core {core} cannot be used: {why}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    if core >= CpuSet::MAX_CPU {
        return Err(wrong(format!(
            "cores are numbered below {}",
            CpuSet::MAX_CPU
        )));
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|errno| wrong(errno.to_string()))
}

/// The cores to use when nobody chose: all that this process may run on but one, four at most, one
/// at least. The lowest are left to others, for interrupts tend to be there.
#[must_use]
pub fn default_cores() -> Vec<usize> {
    let allowed: Vec<usize> = match sched_getaffinity(None) {
        Ok(cores) => (0..CpuSet::MAX_CPU)
            .filter(|core| cores.is_set(*core))
            .collect(),
        // More cores than a set can hold: the first one is there.
        Err(_) => vec![0],
    };
    choose(&allowed)
}

fn choose(allowed: &[usize]) -> Vec<usize> {
    let count = allowed.len().saturating_sub(1).clamp(1, 4);
    allowed[allowed.len().saturating_sub(count)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_by_default_are_all_but_one_and_four_at_most() {
        let cases: [(&[usize], &[usize]); 6] = [
            (&[0], &[0]),
            (&[5], &[5]),
            (&[0, 1], &[1]),
            (&[0, 1, 2, 3], &[1, 2, 3]),
            (&[0, 1, 2, 3, 4], &[1, 2, 3, 4]),
            (&[0, 2, 4, 6, 8, 10, 12], &[6, 8, 10, 12]),
        ];
        for (allowed, chosen) in cases {
            assert_eq!(choose(allowed), chosen);
        }
        assert!(!default_cores().is_empty());
    }
}
