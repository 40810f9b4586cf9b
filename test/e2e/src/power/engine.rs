//! The real program on the host, and its API.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const LOOK_PAUSE: Duration = Duration::from_millis(2);
/// So many looks are longer than anything takes.
const LOOKS_MAX: u32 = 60_000;

/// A running `garboard serve`; killed when dropped.
pub(crate) struct Engine {
    child: Child,
    socket: PathBuf,
}

impl Engine {
    /// Starts one; returns when it answers.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Engine, String> {
        let socket = folder.join("api.sock");
        // One that was killed leaves it.
        let _ = std::fs::remove_file(&socket);
        let mut options = std::fs::OpenOptions::new();
        let log = options
            .create(true)
            .append(true)
            .open(folder.join("engine.log"));
        let child = Command::new(program)
            .arg("serve")
            .arg("--state-dir")
            .arg(folder.join("state"))
            .arg("--socket")
            .arg(&socket)
            .args(["--cores", "0", "--poll", "adaptive"])
            .stdin(Stdio::null())
            .stderr(log.map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut engine = Engine { child, socket };
        for _ in 0..LOOKS_MAX {
            if UnixStream::connect(&engine.socket).is_ok() {
                engine.get("/v1/status")?;
                return Ok(engine);
            }
            if let Ok(Some(status)) = engine.child.try_wait() {
                return Err(format!("the engine ended: {status}"));
            }
            std::thread::park_timeout(LOOK_PAUSE);
        }
        Err("the engine does not answer".to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, String> {
        self.call("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.call("POST", path, Some(body))
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let exchange = || -> io::Result<String> {
            let mut socket = UnixStream::connect(&self.socket)?;
            let length = body.len();
            write!(
                socket,
                "{method} {path} HTTP/1.0\r\nhost: engine\r\ncontent-type: application/json\r\n\
                 content-length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(|error| format!("{method} {path}: {error}"))?;
        let wrong = || format!("{method} {path}: {answer}");
        let (head, found) = answer.split_once("\r\n\r\n").ok_or_else(wrong)?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            return Err(wrong());
        }
        serde_json::from_str(found).map_err(|_| wrong())
    }

    /// Waits until `path` answers what is wanted.
    pub(crate) fn wait(
        &self,
        path: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, String> {
        let mut last = Value::Null;
        for _ in 0..LOOKS_MAX {
            last = self.get(path)?;
            if is_wanted(&last) {
                return Ok(last);
            }
            std::thread::park_timeout(LOOK_PAUSE);
        }
        Err(format!("{path} stays at {last}"))
    }

    /// Ends it cleanly.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).expect("small");
        let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| error.to_string())?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the engine did not end cleanly: {status}"))
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
