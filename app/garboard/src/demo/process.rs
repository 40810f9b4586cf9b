//! The engine of the demo: this same program as a child process, in a folder of its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use control::claim::SOCKET_PATH_BYTES_MAX;
use control::settings::CoreList;
use control::view::StatusView;
use control::{Answer, EngineError, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};
use units::{Clock, MonotonicClock, Size};

use super::signals::Signals;
use crate::client::Client;

/// How often the process is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long the engine may take to mark everything clean.
const STOP_MAX: Duration = Duration::from_secs(60);

/// With less room than this, what failed there failed for lack of it.
const ROOM_MIN: Size = Size(4 << 20);

/// The folder of the demo: drives, sockets, the engine's state and its log.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new one in `$TMPDIR`, or in the working directory where that is not set, if there is
    /// `room` for what will be in it.
    pub(super) fn create(room: Size) -> Answer<Folder> {
        let parent = match std::env::var_os("TMPDIR") {
            Some(parent) if !parent.is_empty() => PathBuf::from(parent),
            Some(_) | None => PathBuf::from("."),
        };
        let name = format!("garboard-demo-{}", std::process::id());
        let refusal = |kind, why: String| {
            let object = format!("folder {}", parent.join(&name).display());
            EngineError::new(kind, object, why).next(format!(
                "set TMPDIR to a folder of yours with {room} of room"
            ))
        };
        let wrong = |why| refusal(ErrorKind::Invalid, why);
        let path = std::path::absolute(parent.join(&name)).map_err(|e| wrong(e.to_string()))?;
        if path.join("export.sock.4194304.9").as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(wrong("its name is too long for a socket in it".into()));
        }
        let free = free(&parent).map_err(|error| wrong(error.to_string()))?;
        if free < room {
            let why = format!("its file system has {free} free, and the drives may take {room}");
            return Err(refusal(ErrorKind::Full, why));
        }
        fs::create_dir(&path).map_err(|error| wrong(error.to_string()))?;
        Ok(Folder(path))
    }

    /// Whether nothing more can be written there.
    pub(super) fn is_full(&self) -> bool {
        free(&self.0).is_ok_and(|free| free < ROOM_MIN)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

/// What the file system of a folder has for us.
fn free(folder: &Path) -> io::Result<Size> {
    let system = rustix::fs::statvfs(folder)?;
    Ok(Size(system.f_bavail.saturating_mul(system.f_frsize)))
}

/// The running engine; killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the engine and waits until it answers.
    pub(super) fn start(
        folder: &Folder,
        client: &Client,
        signals: &mut Signals,
    ) -> Answer<Process> {
        let mut process = Process::launch(folder)?;
        loop {
            if client
                .call::<(), StatusView>(hyper::Method::GET, "/v1/status", None)
                .is_ok()
            {
                return Ok(process);
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                let text = format!("it ended at its start ({status}): {}", process.last_words());
                return Err(failed(text));
            }
            signals.check()?;
            client.pause(LOOK);
        }
    }

    /// Starts the engine, and waits for nothing.
    pub(super) fn launch(folder: &Folder) -> Answer<Process> {
        let started = spawn(folder, &folder.join("engine.log"));
        started.map_err(|error| failed(format!("not started: {error}")))
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When the engine does not end, or says that something was not left clean.
    pub(super) fn stop(mut self, client: &Client) -> Answer<()> {
        let sent = kill_process(Pid::from_child(&self.child), Signal::TERM);
        sent.map_err(|error| failed(format!("SIGTERM cannot be sent: {error}")))?;
        let begun = MonotonicClock.now();
        loop {
            let ended = self.child.try_wait();
            match ended.map_err(|error| failed(error.to_string()))? {
                Some(status) => return self.judge(status),
                None if MonotonicClock.now().since(begun) > STOP_MAX => {
                    return Err(failed(format!("not ended {STOP_MAX:?} after SIGTERM")));
                }
                None => client.pause(LOOK),
            }
        }
    }

    fn judge(&self, status: ExitStatus) -> Answer<()> {
        if status.success() {
            return Ok(());
        }
        let text = format!("it did not end well ({status}): {}", self.last_words());
        Err(failed(text))
    }

    /// SIGKILL, as when memory runs out or somebody errs.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// What the log says last.
    pub(super) fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(message: String) -> EngineError {
    EngineError::new(ErrorKind::Internal, "engine", message)
}

fn spawn(folder: &Folder, log: &Path) -> io::Result<Process> {
    let output = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("serve")
        .arg("--socket")
        .arg(folder.join("api.sock"));
    command.arg("--state-dir").arg(folder.join("state"));
    // A demo that is killed, and can clean up nothing, takes its engine along.
    command.arg("--parent").arg(std::process::id().to_string());
    if let Some(cores) = cores() {
        command.arg("--cores").arg(cores);
    }
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Control-C at the terminal is for the demo, which then ends the engine itself.
        .process_group(0);
    let child = command.spawn()?;
    let log = log.to_owned();
    Ok(Process { child, log })
}

/// The first two CPUs that this process may use.
fn cores() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let CoreList(cores) = line.trim().parse().ok()?;
    let first: Vec<String> = cores.iter().take(2).map(ToString::to_string).collect();
    Some(first.join(","))
}
