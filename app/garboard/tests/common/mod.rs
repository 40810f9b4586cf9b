//! The real program as an engine, and its commands, for tests.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

/// Longer than an engine takes to start, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `garboard serve`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    folder: PathBuf,
    child: Child,
    notices: UnixDatagram,
}

impl Engine {
    /// Starts one in `folder` and waits until it says that it is ready.
    pub(crate) fn start(folder: &Path) -> Engine {
        Engine::start_with(folder, &[])
    }

    /// The same, with more variables in its environment.
    pub(crate) fn start_with(folder: &Path, variables: &[(&str, &str)]) -> Engine {
        let mut log = File::options();
        let log = log
            .create(true)
            .append(true)
            .open(folder.join("engine.log"));
        Engine::start_logging(folder, log.expect("a file"), variables)
    }

    /// The same, with a log of the caller's.
    pub(crate) fn start_logging(folder: &Path, log: File, variables: &[(&str, &str)]) -> Engine {
        let mut command = serve(&folder.join("state"), &folder.join("api.sock"));
        command.args(["--cores", "0"]).stderr(log);
        command.envs(variables.iter().copied());
        Engine::start_command(folder, command)
    }

    /// Starts one on these CPUs that never sleeps.
    pub(crate) fn start_awake(folder: &Path, cores: &str) -> Engine {
        let log = File::create(folder.join("engine.log")).expect("a file");
        let mut command = serve(&folder.join("state"), &folder.join("api.sock"));
        command.args(["--cores", cores, "--poll", "always"]);
        command.stderr(log);
        Engine::start_command(folder, command)
    }

    fn start_command(folder: &Path, mut command: Command) -> Engine {
        let address = folder.join("notices.sock");
        let _ = std::fs::remove_file(&address);
        let notices = UnixDatagram::bind(&address).expect("bound");
        notices.set_read_timeout(Some(PATIENCE)).expect("not zero");
        command.env("NOTIFY_SOCKET", &address);
        let child = command.spawn().expect("it runs");
        let engine = Engine {
            folder: folder.to_owned(),
            child,
            notices,
        };
        assert_eq!(engine.notice().expect("a notice"), "READY=1");
        engine
    }

    /// The next thing that it tells systemd.
    pub(crate) fn notice(&self) -> io::Result<String> {
        let mut text = [0; 512];
        let bytes = self.notices.recv(&mut text)?;
        let text = String::from_utf8_lossy(&text[..bytes]);
        Ok(text.trim_end().to_owned())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_garboard"))
            .arg("--socket")
            .arg(self.folder.join("api.sock"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("it runs")
    }

    /// Runs a command that succeeds, and gives back its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--output", "json"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs a command that succeeds, and gives back what it tells a person.
    pub(crate) fn says(&self, arguments: &[&str]) -> (String, String) {
        let output = self.command(arguments);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {error}");
        (out, error)
    }

    /// Runs a command that is refused, and gives back the error.
    pub(crate) fn refused(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--output", "json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        serde_json::from_slice(&output.stderr).expect("JSON")
    }

    /// Makes drives `d0`… of `specs`, a RAID 5 `a` of them, and a volume `v`.
    pub(crate) fn fill(&self, specs: &[String]) {
        let mut names = Vec::new();
        for (number, spec) in specs.iter().enumerate() {
            let name = format!("d{number}");
            self.json(&["drive", "add", spec, "--name", &name]);
            names.push(name);
        }
        let drives = names.join(",");
        self.json(&[
            "array", "create", "a", "--level", "5", "--drives", &drives, "--wait",
        ]);
        self.json(&["volume", "create", "v", "--array", "a", "--size", "32MiB"]);
    }

    /// Where it was started.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it tells Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let mut socket = UnixStream::connect(self.folder.join("api.sock")).expect("it listens");
        let request = "GET /metrics HTTP/1.0\r\nhost: engine\r\n\r\n";
        socket.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("answered");
        answer
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process numbers are small")
    }

    /// Sends `signal` and waits for the end.
    pub(crate) fn end(mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `garboard serve` there. It hears of hangups also where whoever runs the tests does not, as
/// under `nohup`.
pub(crate) fn serve(state: &Path, socket: &Path) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP");
    command.arg(env!("CARGO_BIN_EXE_garboard"));
    command.arg("serve").arg("--state-dir").arg(state);
    command.arg("--socket").arg(socket);
    command.stdin(Stdio::null());
    command
}

/// Specs of `count` new file drives of 64 MiB in `folder`.
pub(crate) fn files(folder: &Path, count: u32) -> Vec<String> {
    let spec = |number| {
        let path = folder.join(format!("d{number}.img"));
        format!("file:{},size=64MiB,create", path.display())
    };
    (0..count).map(spec).collect()
}

/// A block device over a file, gone when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    /// Whether this machine lets us; says so when not.
    pub(crate) fn can_be_made() -> bool {
        let can = geteuid().is_root() && Path::new("/dev/loop-control").exists();
        if !can {
            eprintln!("not tested: loop devices need root and /dev/loop-control");
        }
        can
    }

    pub(crate) fn over(file: &Path) -> Loop {
        let mut losetup = Command::new("losetup");
        let output = losetup.args(["--find", "--show"]).arg(file).output();
        let output = output.expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        Loop(
            String::from_utf8(output.stdout)
                .expect("UTF-8")
                .trim()
                .to_owned(),
        )
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // What is left of a failed test is nothing that the test can mend.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// What a program of which JSON was wanted has told.
pub(crate) fn report(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The error that it ended with.
pub(crate) fn refused(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1));
    serde_json::from_slice(&output.stderr).expect("JSON")
}

/// What a report of `garboard bench` has measured.
pub(crate) fn points(report: &Value) -> &Vec<Value> {
    report["points"].as_array().expect("a list")
}
