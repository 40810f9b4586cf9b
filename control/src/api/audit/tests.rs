//! The audit line over a real socket, in the form that journald reads.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tracing_subscriber::fmt::MakeWriter;

use crate::api::{Peer, router};
use crate::fake::FakeHost;
use crate::log::Line;
use crate::service::Control;
use crate::wanted::Wanted;

/// Lines of a log, for looking at.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("one writer at a time")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;
    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Lines {
    /// The audit lines so far, and forgets them.
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().expect("one reader at a time"));
        let text = String::from_utf8(bytes).expect("UTF-8");
        text.lines()
            .filter(|line| line.contains("audit"))
            .map(ToOwned::to_owned)
            .collect()
    }
}

async fn ask(path: &std::path::Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).await.expect("it listens");
    let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("it answers");
    answer
}

#[tokio::test]
async fn every_changing_call_and_no_other_leaves_one_line_that_says_who() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .event_format(Line { journal: true })
        .finish();
    // This test's runtime has one thread, so this thread's log is the server's as well.
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(folder.path()).expect("begun");
    let host = FakeHost::new();
    let control = Control::new(Arc::new(host.engine()), wanted, folder.path().into());
    let path = folder.path().join("api.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let service = router(Arc::new(control)).into_make_service_with_connect_info::<Peer>();
    let server = tokio::spawn(async move { axum::serve(listener, service).await });

    assert!(
        ask(&path, "GET /v1/drives")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert_eq!(lines.take(), [""; 0]);

    assert!(
        ask(&path, "DELETE /v1/drives/d7?force=true")
            .await
            .starts_with("HTTP/1.1 404")
    );
    let user = std::fs::metadata(&path).expect("there").uid();
    let process = std::process::id();
    let audit = lines.take();
    assert_eq!(audit.len(), 1, "{audit:?}");
    for part in [
        "<6>event=\"audit\"".to_owned(),
        format!("user={user} "),
        format!("process={process} "),
        "method=DELETE".to_owned(),
        "path=\"/v1/drives/d7\"".to_owned(),
        "query=\"force=true\"".to_owned(),
        "code=\"not_found\"".to_owned(),
        "object=\"drive d7\"".to_owned(),
    ] {
        assert!(audit[0].contains(&part), "{part} in {}", audit[0]);
    }
    server.abort();
}
