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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

/// Room for the threads of changes.
pub(super) type Changes = Arc<Semaphore>;

/// All of it.
pub(super) fn changes() -> Changes {
    Arc::new(Semaphore::new(CHANGES_MAX))
}

tokio::task_local! {
    /// That of the call of this task. It is held until the thread has ended, even when the client
    /// hangs up.
    static CHANGE: Arc<OwnedSemaphorePermit>;
}

/// Lets a call that changes something wait until there is room for its thread.
pub(super) async fn wait_for_room(
    State(changes): State<Changes>,
    request: Request,
    next: Next,
) -> Response {
    // What makes others end waits for none of them.
    let ends = request.uri().path().starts_with("/v1/jobs/");
    if ends || is_look(request.method()) {
        return next.run(request).await;
    }
    let permit = changes.acquire_owned().await.expect("nobody closes it");
    CHANGE.scope(Arc::new(permit), next.run(request)).await
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
    let change = CHANGE.try_with(Arc::clone).ok();
    let work = move || {
        let done = work(&control);
        drop(change);
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
