//! The signals that end the demo before its end: it then still ends its engine and removes its
//! folder.

use control::{Answer, EngineError, ErrorKind};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from its making on; what comes is noted and kills nobody.
#[derive(Debug)]
pub(super) struct Signals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    came: Option<&'static str>,
}

impl Signals {
    /// Begins to listen.
    pub(super) fn listen() -> Answer<Signals> {
        let begin = || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let guard = runtime.enter();
            let (interrupt, terminate, hangup) = (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            );
            drop(guard);
            Ok(Signals {
                runtime,
                interrupt,
                terminate,
                hangup,
                came: None,
            })
        };
        begin().map_err(|error: std::io::Error| {
            EngineError::new(ErrorKind::Internal, "demo", error.to_string())
        })
    }

    /// The first signal that came, if any did; never waits.
    pub(super) fn came(&mut self) -> Option<&'static str> {
        let Signals {
            runtime,
            interrupt,
            terminate,
            hangup,
            came,
        } = self;
        if came.is_none() {
            *came = runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => Some("SIGINT"),
                    _ = terminate.recv() => Some("SIGTERM"),
                    _ = hangup.recv() => Some("SIGHUP"),
                    // Long enough for the runtime to look at its pipe.
                    () = tokio::time::sleep(std::time::Duration::from_millis(1)) => None,
                }
            });
        }
        *came
    }

    /// An error when a signal came.
    pub(super) fn check(&mut self) -> Answer<()> {
        match self.came() {
            None => Ok(()),
            Some(name) => Err(EngineError::new(
                ErrorKind::Internal,
                "demo",
                format!("ended by {name}"),
            )),
        }
    }
}
