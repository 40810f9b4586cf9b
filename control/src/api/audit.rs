//! One log line for each call that changes something: who asked for what, and what came of it.

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

use super::exchange::{Failure, is_look};

/// Who is at the other end of the socket, as the kernel says (SO_PEERCRED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// User number.
    pub user: Option<u32>,
    /// Group number.
    pub group: Option<u32>,
    /// Process number.
    pub process: Option<i32>,
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        let credentials = stream.io().peer_cred().ok();
        Peer {
            user: credentials.map(|peer| peer.uid()),
            group: credentials.map(|peer| peer.gid()),
            process: credentials.and_then(|peer| peer.pid()),
        }
    }
}

/// Lets the call pass, and logs it when it was one that changes something.
pub(super) async fn audit(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    if is_look(&method) {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let peer = request
        .extensions()
        .get::<ConnectInfo<Peer>>()
        .map(|peer| peer.0);
    let peer = peer.unwrap_or_default();
    let response = next.run(request).await;
    let (code, object) = match response.extensions().get::<Failure>() {
        Some(Failure(error)) => (error.kind.code(), error.object.as_str()),
        None => ("ok", ""),
    };
    tracing::info!(
        event = "audit",
        user = peer.user,
        group = peer.group,
        process = peer.process,
        method = %method,
        path,
        query,
        code,
        object,
    );
    response
}
