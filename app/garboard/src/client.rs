//! One HTTP call at a time over the engine's UNIX socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::claim::SOCKET_PATH_BYTES_MAX;
use control::{Answer, EngineError, ErrorKind};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// A client of the engine behind one socket.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    /// A client that has not connected yet.
    pub(crate) fn new(socket: PathBuf) -> Answer<Client> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| EngineError::new(ErrorKind::Internal, "client", error.to_string()))?;
        Ok(Client { socket, runtime })
    }

    /// Asks, and gives back the answer or the engine's error.
    pub(crate) fn call<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Answer<T> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| {
                EngineError::new(ErrorKind::Invalid, "request", error.to_string())
            })?,
            None => Vec::new(),
        };
        let (status, bytes) = self
            .runtime
            .block_on(exchange(&self.socket, method, path, body))?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|error| self.foreign(status, &error));
        }
        match serde_json::from_slice::<EngineError>(&bytes) {
            Ok(error) => Err(error),
            Err(error) => Err(self.foreign(status, &error)),
        }
    }

    /// Asks for a text that is no JSON: the metrics.
    pub(crate) fn text(&self, path: &str) -> Answer<String> {
        let (status, bytes) =
            self.runtime
                .block_on(exchange(&self.socket, Method::GET, path, Vec::new()))?;
        if status.is_success() {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        let object = format!("engine at {}", self.socket.display());
        let message = format!("it does not give {path}: {status}");
        Err(EngineError::new(ErrorKind::Internal, object, message))
    }

    /// Lets time pass.
    pub(crate) fn pause(&self, duration: Duration) {
        // Made inside: a sleep belongs to the runtime it is made in.
        self.runtime
            .block_on(async { tokio::time::sleep(duration).await });
    }

    fn foreign(&self, status: StatusCode, error: &serde_json::Error) -> EngineError {
        let object = format!("engine at {}", self.socket.display());
        let message = format!("its answer ({status}) is not understood: {error}");
        EngineError::new(ErrorKind::Internal, object, message)
            .next("check that engine and command line are of one version")
    }
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Answer<(StatusCode, Bytes)> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| unreachable(socket, &error))?;
    let broken = |error: hyper::Error| {
        let message = format!("the connection ended before the answer: {error}");
        EngineError::new(ErrorKind::Unreachable, engine(socket), message)
            .next("look whether it was done before you repeat it; with --uuid a create can be")
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Its errors come out of the sender as well.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "garboard")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| EngineError::new(ErrorKind::Invalid, "request", error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let bytes = response
        .into_body()
        .collect()
        .await
        .map_err(broken)?
        .to_bytes();
    Ok((status, bytes))
}

fn engine(socket: &Path) -> String {
    format!("engine at {}", socket.display())
}

fn unreachable(socket: &Path, error: &io::Error) -> EngineError {
    let bytes = socket.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let message = format!("its path has {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} fit");
        return EngineError::new(ErrorKind::Unreachable, engine(socket), message)
            .next("give the --socket where the engine is, or set GARBOARD_SOCKET to it");
    }
    let next = if error.kind() == io::ErrorKind::PermissionDenied {
        "use an account that may connect, or its group"
    } else {
        "start it with `garboard serve`, or say with --socket where it is"
    };
    EngineError::new(
        ErrorKind::Unreachable,
        engine(socket),
        format!("nobody answers: {error}"),
    )
    .next(next)
}
