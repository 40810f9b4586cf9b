//! Serving: the API on its socket, `/metrics` on a port, systemd's readiness and watchdog, and
//! the order of the end.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use units::limits::{AWAITED_LOOK, CACHE_LOOK, DRIVE_LOOK, LOAD_LOOK, MEMBERSHIP_LOOK, SPARE_LOOK};
use units::{Clock, Instant, MonotonicClock};

use crate::api::{self, Peer};
use crate::claim::ApiSocket;
use crate::port::Port;
use crate::service::Control;
use crate::{Answer, EngineError, ErrorKind};

/// How long calls that are under way may take to end after the stop was asked for; the engine's
/// own finish begins after that.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `stop` resolves, then finishes: no new calls, the running ones end, arrays are
/// marked clean. The wanted state must have been restored.
///
/// # Errors
/// `Internal` when a listener cannot be used, and what [`Control::shutdown`] says.
pub async fn serve(
    control: Arc<Control>,
    socket: ApiSocket,
    http: Option<TcpListener>,
    stop: impl Future<Output = ()>,
) -> Answer<()> {
    let internal =
        |error: std::io::Error| EngineError::new(ErrorKind::Internal, "engine", error.to_string());
    let listener = UnixListener::from_std(socket.listener()?).map_err(internal)?;
    let (stopping, stopped) = watch::channel(false);
    let ended = move |mut stopped: watch::Receiver<bool>| async move {
        // An error means that the sender is gone, which ends it too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let router = api::router(Arc::clone(&control)).into_make_service_with_connect_info::<Peer>();
    let service = axum::serve(listener, router).with_graceful_shutdown(ended(stopped.clone()));
    let mut tasks = vec![tokio::spawn(async move { service.await })];
    if let Some(http) = http {
        let router = api::metrics_router(Arc::clone(&control));
        let port = Port::new(http);
        let service = axum::serve(port, router).with_graceful_shutdown(ended(stopped));
        tasks.push(tokio::spawn(async move { service.await }));
    }
    let watchdog = tokio::spawn(watchdog(Arc::clone(&control)));
    let spares = tokio::spawn(tend(Arc::clone(&control), SPARES, SPARE_LOOK));
    let starts = tokio::spawn(tend(Arc::clone(&control), STARTS, SPARE_LOOK));
    let drives = tokio::spawn(tend(Arc::clone(&control), DRIVES, DRIVE_LOOK));
    let awaited = tokio::spawn(tend(Arc::clone(&control), AWAITED, AWAITED_LOOK));
    let memberships = tokio::spawn(tend(Arc::clone(&control), MEMBERSHIPS, MEMBERSHIP_LOOK));
    let caches = tokio::spawn(tend(Arc::clone(&control), CACHES, CACHE_LOOK));
    let load = tokio::spawn(tend(Arc::clone(&control), LOAD, LOAD_LOOK));
    notify(&[NotifyState::Ready]);
    tracing::info!(event = "engine_ready", version = env!("CARGO_PKG_VERSION"));

    stop.await;
    notify(&[NotifyState::Stopping]);
    tracing::info!(event = "engine_stopping");
    let long = Arc::clone(&control);
    let ended = tokio::task::spawn_blocking(move || long.end_long_calls());
    // Nobody listens only when all services ended by themselves.
    let _ = stopping.send(true);
    let drained = async {
        // Whoever waits for them is told so, and goes.
        let _ = ended.await;
        for task in tasks {
            let _ = task.await;
        }
    };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!(event = "calls_cut_off", seconds = DRAIN.as_secs());
    }
    spares.abort();
    starts.abort();
    drives.abort();
    awaited.abort();
    memberships.abort();
    caches.abort();
    load.abort();
    let finished = tokio::task::spawn_blocking(move || control.shutdown()).await;
    watchdog.abort();
    let finished = finished.unwrap_or_else(|error| {
        Err(EngineError::new(
            ErrorKind::Internal,
            "engine",
            error.to_string(),
        ))
    });
    match &finished {
        Ok(()) => tracing::info!(event = "engine_stopped"),
        Err(error) => tracing::error!(event = "engine_stopped_dirty", %error),
    }
    drop(socket);
    finished
}

/// What is looked at again and again: a call, what it is called when it fails.
type Look = (fn(&Control, Instant) -> Answer<()>, &'static str);

/// Looks for members to be replaced by spares.
const SPARES: Look = (Control::tend_spares, "spares_not_tended");
/// Looks for drives that have gone, and for those that are back.
const DRIVES: Look = (Control::tend_drives, "drives_not_tended");

/// Looks for arrays that have waited long enough for members.
const STARTS: Look = (Control::tend_starts, "starts_not_tended");

/// Looks for drives that arrays wait for.
const AWAITED: Look = (Control::tend_awaited, "awaited_drives_not_tended");

/// Looks who is in sync.
const MEMBERSHIPS: Look = (Control::tend_memberships, "memberships_not_recorded");

/// Looks for write caches that somebody has turned on.
const CACHES: Look = (Control::tend_write_caches, "write_caches_not_tended");

/// Looks at the load of reactors.
const LOAD: Look = (Control::tend_load, "load_not_tended");

/// Looks again and again. An error is told when it was not there the time before.
async fn tend(control: Arc<Control>, (look, failed): Look, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = false;
    loop {
        ticks.tick().await;
        let control = Arc::clone(&control);
        let look = move || look(&control, MonotonicClock.now());
        let looked = tokio::task::spawn_blocking(look).await;
        if let Ok(Err(error)) = &looked
            && !told
        {
            tracing::error!(event = failed, %error);
        }
        told = matches!(looked, Ok(Err(_)));
    }
}

/// Tells systemd's watchdog that the engine answers, as often as it asked for; a hung engine
/// goes silent.
async fn watchdog(control: Arc<Control>) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut ticks = tokio::time::interval(limit / 2);
    loop {
        ticks.tick().await;
        let control = Arc::clone(&control);
        let answer = tokio::task::spawn_blocking(move || control.status()).await;
        if answer.is_ok() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(event = "systemd_not_told", %error);
    }
}
