//! Ends long work at its next step when somebody asks for the end, so that what is done so far is
//! told; who asks twice does not wait for the step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::{Answer, EngineError, ErrorKind};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell says of a process that SIGINT ended.
const EXIT_AT_ONCE: i32 = 130;

/// Whether SIGINT or SIGTERM has come.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on, on a thread of its own.
    pub(crate) fn listen() -> Answer<Interrupt> {
        let wrong = |error: std::io::Error| {
            EngineError::new(ErrorKind::Internal, "signals", error.to_string())
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(wrong)?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
        drop(guard);
        let came = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&came);
        let listen = move || {
            runtime.block_on(next(&mut interrupt, &mut terminate));
            theirs.store(true, Ordering::Relaxed);
            runtime.block_on(next(&mut interrupt, &mut terminate));
            std::process::exit(EXIT_AT_ONCE);
        };
        let thread = std::thread::Builder::new().name("garboard-signals".into());
        thread.spawn(listen).map_err(wrong)?;
        Ok(Interrupt(came))
    }

    /// An error when it came.
    pub(crate) fn check(&self) -> Answer<()> {
        if self.0.load(Ordering::Relaxed) {
            let text = "ended by a signal";
            return Err(EngineError::new(ErrorKind::Internal, "bench", text));
        }
        Ok(())
    }
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
