//! The port of `/metrics`, which anybody may reach: few connections at once, and whoever asks
//! nothing, or takes no answer, is cut off.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Others wait until one has ended.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may be without an answer on it: longer than who scrapes waits between two.
const SILENCE_MAX: Duration = if cfg!(test) {
    Duration::from_secs(2)
} else {
    Duration::from_secs(120)
};

/// See the module.
pub(crate) struct Port {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Port {
    pub(crate) fn new(listener: TcpListener) -> Port {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Port { listener, room }
    }
}

impl Listener for Port {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            silence: Box::pin(tokio::time::sleep(SILENCE_MAX)),
            _room: room.expect("nobody closes it"),
        };
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends some time after its last answer.
pub(crate) struct Connection {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    /// An error instead of more waiting, when there was enough of it.
    fn or_silent<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_pending() && self.silence.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        poll
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.or_silent(context, poll)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(poll, Poll::Ready(Ok(_))) {
            let end = Instant::now() + SILENCE_MAX;
            self.silence.as_mut().reset(end);
        }
        self.or_silent(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.or_silent(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_silent(context, poll)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use axum::Router;
    use axum::routing::get;

    use super::*;

    async fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = Port::new(listener);
        let address = port.local_addr().expect("bound");
        let router = Router::new().route("/metrics", get(|| async { "told" }));
        tokio::spawn(async { axum::serve(port, router).await });
        address
    }

    /// What comes until the connection ends, having sent this.
    async fn told(address: SocketAddr, sends: &'static [u8]) -> String {
        let talk = move || -> io::Result<String> {
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(sends)?;
            let mut told = Vec::new();
            match stream.read_to_end(&mut told) {
                // Cut off is an end as well.
                Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
                Ok(_) | Err(_) => Ok(String::from_utf8_lossy(&told).into_owned()),
            }
        };
        let told = tokio::task::spawn_blocking(talk).await.expect("no panic");
        told.expect("it ends")
    }

    #[tokio::test]
    async fn whoever_asks_is_answered_and_whoever_does_not_is_cut_off() {
        let address = served().await;
        let asks = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
        assert!(
            told(address, asks).await.ends_with("told"),
            "and then it is silent"
        );
        assert_eq!(told(address, b"").await, "");
        assert_eq!(told(address, b"GET /metrics HT").await, "");
    }

    #[tokio::test]
    async fn whoever_asks_again_and_again_keeps_the_connection() {
        let address = served().await;
        let talk = move || -> io::Result<usize> {
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(SILENCE_MAX / 3))?;
            let mut told = Vec::new();
            for _ in 0..5 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")?;
                // Until it says nothing more for a while.
                stream.read_to_end(&mut told).expect_err("it stays");
            }
            let told = String::from_utf8_lossy(&told).into_owned();
            Ok(told.matches("told").count())
        };
        let answers = tokio::task::spawn_blocking(talk).await.expect("no panic");
        assert_eq!(answers.expect("it is open"), 5);
    }

    #[tokio::test]
    async fn so_many_that_say_nothing_make_room_for_who_asks() {
        let address = served().await;
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let asks = b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        assert!(told(address, asks).await.ends_with("told"));
    }
}
