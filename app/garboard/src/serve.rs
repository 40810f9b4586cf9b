//! The engine's process: claims, builds, restores, serves, ends.

use std::path::PathBuf;
use std::sync::Arc;

use array::planted::Fault;
use control::claim::{ApiSocket, StateDir};
use control::crashes::{self, Suspect};
use control::settings::{EngineSettings, Given, Places};
use control::wanted::Wanted;
use control::{Answer, Control, Engine, EngineError, ErrorKind};
use reactor::Duty;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

/// Threads of the control path that do not block. Blocking calls have their own.
const CONTROL_THREADS: usize = 2;

/// Runs the built-in engine until SIGTERM, SIGINT, or SIGHUP (its terminal is
/// closed), then finishes.
pub(crate) fn until_a_signal(given: Given) -> Answer<()> {
    control::log::begin();
    open_many_files();
    plant();
    stop_on_panic();
    memory::faults::tell_faults(note_fault).map_err(|error| internal(&error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("garboard-control")
        .enable_all()
        .build()
        .map_err(|error| internal(&error.to_string()))?;
    let result = runtime.block_on(async {
        let no_signals = |error: std::io::Error| internal(&error.to_string());
        // Before anything else, so that a signal during a long restore is not lost.
        let terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        let hangup = hangup().map_err(no_signals)?;
        let stop = first(terminate, interrupt, hangup);
        run(given, crate::engine::engine, stop).await
    });
    // Blocked calls of clients that hung up must not hold the end.
    runtime.shutdown_background();
    result
}

/// Takes all descriptors that this process may have. Each queue of a guest needs three, and each
/// front-end a handful: 64 of them with four queues each are more than the 1024 that a login gives.
/// (The limit is there for programs that use select(2), which we do not.)
fn open_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Has the kernel send SIGTERM to this process when its parent, which is process `parent`, ends.
pub(crate) fn end_with(parent: i32) -> Answer<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let set = set_parent_process_death_signal(Some(Signal::TERM));
    set.map_err(|error| internal(&error.to_string()))?;
    // One that ended before that is seen by whose child this is now.
    if getppid().map(|now| now.as_raw_nonzero().get()) == Some(parent) {
        Ok(())
    } else {
        Err(internal(&format!("process {parent} is not its parent")))
    }
}

/// SIGHUP, unless this process was started to outlive its terminal (`nohup`).
fn hangup() -> std::io::Result<Option<Signal>> {
    // The kernel's own word for it: bit n − 1 of the mask is signal n (proc_pid_status(5)). Where
    // it is not to be had, no signal counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = ignored.is_some_and(|mask| mask & 1 == 1);
    (!is_ignored)
        .then(|| signal(SignalKind::hangup()))
        .transpose()
}

async fn first(mut terminate: Signal, mut interrupt: Signal, mut hangup: Option<Signal>) {
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        _ = hung_up => "SIGHUP",
    };
    tracing::info!(event = "signal", name);
}

/// A panic is a programmer's error, and a crash is a tested path: exports reconnect and arrays
/// resync. Going on with half of a change made is not tested.
fn stop_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        note_crash(panic);
        std::process::abort();
    }));
}

/// Switches on the fault that a test names. Only a build for such tests has any.
fn plant() {
    if !cfg!(feature = "planted") {
        return;
    }
    let wanted = std::env::var("GARBOARD_PLANTED").unwrap_or_default();
    let mut faults = Fault::CRASHES.iter().chain(Fault::ALL);
    let found = faults.find(|fault| format!("{fault:?}") == wanted);
    array::planted::switch_on(found.copied());
}

/// Tells the next start whose request this was, so that no guest brings the engine down for ever.
fn note_crash(panic: &std::panic::PanicHookInfo<'_>) {
    let Some(suspect) = suspect() else { return };
    let said = panic.payload_as_str().unwrap_or("it said nothing");
    match panic.location() {
        Some(place) => crashes::note(suspect, &format_args!("{said} ({place})")),
        None => crashes::note(suspect, &said),
    }
}

/// The same for a fault. Runs in the handler of its signal: takes no lock, allocates nothing.
fn note_fault(signal: i32) {
    if let Some(suspect) = suspect() {
        crashes::note(suspect, &format_args!("a fault: signal {signal}"));
    }
}

/// For whom this thread works.
fn suspect() -> Option<Suspect> {
    match Duty::now() {
        Duty::Nobody => None,
        Duty::Export(uuid) => Some(Suspect::Export(Uuid::from_bytes(uuid))),
        Duty::Array(uuid) => Some(Suspect::Array(Uuid::from_bytes(uuid))),
    }
}

fn internal(message: &str) -> EngineError {
    EngineError::new(ErrorKind::Internal, "engine", message)
}

/// Claims the state directory and the socket, builds the engine, brings back what is wanted, and
/// serves until `stop` resolves. The socket is bound before the engine is built, so that a second
/// engine is refused at once; who calls meanwhile waits for the answer.
///
/// # Errors
/// `Busy` when another engine has the state directory or the socket; what the engine says when
/// it cannot be built, or cannot be ended cleanly.
pub async fn run<B>(given: Given, build: B, stop: impl Future<Output = ()>) -> Answer<()>
where
    B: FnOnce(&EngineSettings) -> anyhow::Result<Arc<dyn Engine>> + Send + 'static,
{
    let places = Places::here();
    let socket_path = absolute(places.socket(given.socket)?)?;
    let state_dir = given.state_dir.or(places.state_dir).ok_or_else(|| {
        EngineError::new(
            ErrorKind::Invalid,
            "state directory",
            "HOME and XDG_STATE_HOME are not set",
        )
        .next("give --state-dir DIR")
    })?;
    let state = StateDir::claim(&absolute(state_dir)?)?;
    let socket = ApiSocket::claim(&socket_path)?;
    let http = match given.http {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let settings = EngineSettings {
        cores: given.cores.unwrap_or_default().0,
        memory_bytes: given.memory.map(|memory| memory.0),
        poll: given.poll.unwrap_or_default(),
        runtime_dir: socket.dir().to_owned(),
        state_dir: state.path().to_owned(),
    };
    let begin = move || -> Answer<Arc<Control>> {
        let wanted = Wanted::open(&settings.state_dir)?;
        control::service::held::begin(&settings.state_dir, &wanted);
        let engine = build(&settings).map_err(|error| {
            let said = error.downcast::<EngineError>();
            said.unwrap_or_else(|error| internal(&format!("{error:#}")))
        })?;
        let control = Control::new(engine, wanted, settings.runtime_dir);
        control.restore()?;
        Ok(Arc::new(control))
    };
    let begun = tokio::task::spawn_blocking(begin).await;
    let control = begun.map_err(|error| internal(&error.to_string()))??;
    control::serve::serve(control, socket, http, stop).await
}

fn absolute(path: PathBuf) -> Answer<PathBuf> {
    std::path::absolute(&path).map_err(|error| {
        EngineError::new(
            ErrorKind::Invalid,
            format!("path {}", path.display()),
            error.to_string(),
        )
    })
}

async fn listen(address: std::net::SocketAddr) -> Answer<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        EngineError::new(
            ErrorKind::Invalid,
            format!("address {address}"),
            error.to_string(),
        )
        .next("give another --http ADDR:PORT")
    })
}
