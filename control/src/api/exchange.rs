//! From HTTP to a blocking call and back.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// Runs `work` on a thread that may block, to its end, even when the client hangs up.
pub(super) async fn run<T, W>(State(control): State<Arc<Control>>, work: W) -> Result<T, Failure>
where
    T: Send + 'static,
    W: FnOnce(&Control) -> Answer<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(move || work(&control)).await {
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
