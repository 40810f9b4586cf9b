//! The audit line of the real binary's calls, in the form that journald reads.
//!
//! Alone in its process: what logs for one test must not depend on what other tests do.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use control::Control;
use control::claim::ApiSocket;
use control::fake::FakeHost;
use control::wanted::Wanted;
use tokio::runtime::Runtime;
use tracing_subscriber::fmt::MakeWriter;

/// Lines of a log, for looking at.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().expect("no panic while writing");
        all.extend_from_slice(bytes);
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
        let bytes = std::mem::take(&mut *self.0.lock().expect("no panic while writing"));
        let text = String::from_utf8(bytes).expect("UTF-8");
        let audit = text.lines().filter(|line| line.contains("audit"));
        audit.map(ToOwned::to_owned).collect()
    }
}

#[test]
fn every_changing_call_and_no_other_leaves_one_line_that_says_who() {
    let lines = Lines::default();
    control::log::begin_on(lines.clone(), true);
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::open(folder.path()).expect("begun");
    let engine = Arc::new(FakeHost::new().engine());
    let control = Arc::new(Control::new(engine, wanted, folder.path().into()));
    let path = folder.path().join("api.sock");
    let socket = ApiSocket::claim(&path).expect("bound");
    let runtime = Runtime::new().expect("a runtime");
    runtime.spawn(control::serve::serve(
        control,
        socket,
        None,
        std::future::pending(),
    ));
    let call = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_garboard"));
        command.arg("--socket").arg(&path).args(arguments);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("it runs");
        (child.id(), child.wait().expect("it ends").code())
    };

    assert_eq!(call(&["drive", "list"]).1, Some(0));
    assert_eq!(lines.take(), [""; 0]);

    let (process, status) = call(&["export", "move", "e7", "--queue", "0", "--core", "0"]);
    assert_eq!(status, Some(1));
    let user = std::fs::metadata(&path).expect("there").uid();
    let audit = lines.take();
    assert_eq!(audit.len(), 1, "{audit:?}");
    for part in [
        "<6>event=\"audit\"".to_owned(),
        format!("user={user} "),
        format!("process={process} "),
        "method=PUT".to_owned(),
        "path=\"/v1/exports/e7/queues/0\"".to_owned(),
        "code=\"not_found\"".to_owned(),
        "object=\"export e7\"".to_owned(),
    ] {
        assert!(audit[0].contains(&part), "{part} in {}", audit[0]);
    }
}
