//! From HTTP to a blocking call and back.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::body::ForceBody;
use crate::service::Control;
use crate::{Answer, EngineError, ErrorKind};

/// An error on its way out. Also travels as an extension of the response, for the audit line.
#[derive(Clone, Debug)]
pub(super) struct Failure(pub(super) EngineError);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (status_of(self.0.kind), Json(&self.0)).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Exists | ErrorKind::Busy => StatusCode::CONFLICT,
        ErrorKind::Unsafe => StatusCode::PRECONDITION_FAILED,
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
        ErrorKind::Degraded | ErrorKind::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What a handler gives back.
pub(super) type Reply<T> = Result<Json<T>, Failure>;

/// Changes that have a thread at once. Others wait without one: what only looks, and the watchdog,
/// always finds one, also while those wait for drives.
const CHANGES_MAX: usize = if cfg!(test) { 2 } else { 256 };

/// Volumes that are made or grow at once: what they get may be zeroed for hours, and other changes
/// are not to wait for that.
const ZEROINGS_MAX: usize = if cfg!(test) { 1 } else { 128 };

/// Room for the threads of changes.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    most: Arc<Semaphore>,
    zeroings: Arc<Semaphore>,
}

/// All of it.
pub(super) fn changes() -> Changes {
    Changes {
        most: Arc::new(Semaphore::new(CHANGES_MAX)),
        zeroings: Arc::new(Semaphore::new(ZEROINGS_MAX)),
    }
}

tokio::task_local! {
    /// Where the call of this task finds room for its thread, once it is there as a whole: who
    /// sends half of it keeps nobody waiting.
    static ROOM: Arc<Semaphore>;
}

/// Says where a call that changes something has to find room for its thread.
pub(super) async fn wait_for_room(
    State(changes): State<Changes>,
    request: Request,
    next: Next,
) -> Response {
    let (path, method) = (request.uri().path(), request.method());
    // What makes others end waits for none of them.
    let ends = path.starts_with("/v1/jobs/");
    if ends || is_look(method) {
        return next.run(request).await;
    }
    let room = if may_zero(method, path) {
        changes.zeroings
    } else {
        changes.most
    };
    ROOM.scope(room, next.run(request)).await
}

/// Whether a call makes a volume or lets it grow.
pub(super) fn may_zero(method: &Method, path: &str) -> bool {
    let makes = *method == Method::POST && path == "/v1/volumes";
    makes || *method == Method::PATCH && path.starts_with("/v1/volumes/")
}

/// Whether a call only looks.
pub(super) fn is_look(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// Runs `work` on a thread that may block, to its end, even when the client hangs up.
pub(super) async fn run<T, W>(State(control): State<Arc<Control>>, work: W) -> Result<T, Failure>
where
    T: Send + 'static,
    W: FnOnce(&Control) -> Answer<T> + Send + 'static,
{
    let room = ROOM.try_with(Arc::clone).ok();
    // Held until the thread has ended, even when the client hangs up.
    let permit = match room {
        Some(room) => Some(room.acquire_owned().await.expect("nobody closes it")),
        None => None,
    };
    let work = move || {
        let done = work(&control);
        drop(permit);
        done
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer.map_err(Failure),
        Err(error) => {
            let error = EngineError::new(ErrorKind::Internal, "engine", error.to_string())
                .next("read the engine's log");
            Err(Failure(error))
        }
    }
}

/// [`run`], as JSON.
pub(super) async fn reply<T, W>(control: State<Arc<Control>>, work: W) -> Reply<T>
where
    T: Serialize + Send + 'static,
    W: FnOnce(&Control) -> Answer<T> + Send + 'static,
{
    run(control, work).await.map(Json)
}

fn refused(message: impl Into<String>) -> Failure {
    Failure(EngineError::new(ErrorKind::Invalid, "request", message))
}

/// A JSON body; an empty one is `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, Failure> {
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| refused(rejection.body_text()))?;
        let bytes = if bytes.is_empty() {
            &b"{}"[..]
        } else {
            &bytes[..]
        };
        serde_json::from_slice(bytes)
            .map(Body)
            .map_err(|error| refused(error.to_string()))
    }
}

/// `?force=true`.
pub(super) struct Force(pub(super) bool);

impl<S: Send + Sync> FromRequestParts<S> for Force {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Force, Failure> {
        let query = Query::<ForceBody>::from_request_parts(parts, state).await;
        query
            .map(|query| Force(query.0.force))
            .map_err(|rejection| refused(rejection.body_text()))
    }
}

/// The parts of the path that name objects.
pub(super) struct Key<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Key<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Key<T>, Failure> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        path.map(|path| Key(path.0))
            .map_err(|rejection| refused(rejection.body_text()))
    }
}
