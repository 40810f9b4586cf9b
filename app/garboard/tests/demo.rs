//! `garboard demo` with the real engine, short: it passes, it fails when a drive lies, it needs no
//! root, and however it ends it leaves nothing behind that nobody asked for.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// A user who is not root, and owns nothing.
const NOBODY: u32 = 65534;
/// Longer than an engine takes to end.
const END_SECONDS_MAX: i64 = 60;

fn demo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_garboard"));
    command.arg("demo").args(arguments).env("TMPDIR", folder);
    command
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("it is there").count()
}

/// The passed demo's report, in JSON.
fn passed(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["passed"], true, "{report}");
    report
}

#[test]
fn the_demo_passes_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = demo(
        folder.path(),
        &["--seconds", "1", "--kills", "3", "--output", "json"],
    );
    let report = passed(&command.output().expect("it runs"));
    assert_eq!(report["errors_total"], 0);
    assert_eq!(report["blocks_verified"], report["blocks_total"]);
    let steps = report["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 10);
    for step in &steps[2..9] {
        assert!(step["requests"].as_u64() > Some(0), "{step}");
    }
    assert_eq!(entries(folder.path()), 0, "files left behind");
}

#[test]
fn the_demo_passes_with_groups_of_one_parity() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = [
        "--level",
        "50",
        "--seconds",
        "1",
        "--kills",
        "3",
        "--output",
        "json",
    ];
    let report = passed(&demo(folder.path(), &arguments).output().expect("it runs"));
    assert_eq!(report["blocks_verified"], report["blocks_total"]);
    let pulls = report["steps"].as_array().expect("a list").iter();
    let pulls = pulls.filter(|step| {
        step["name"]
            .as_str()
            .is_some_and(|it| it.contains("pulled"))
    });
    assert_eq!(pulls.count(), 1, "one is all that a group can do without");
    let refused = demo(folder.path(), &["--level", "0"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("level 0 does not survive"), "{said}");
    assert_eq!(entries(folder.path()), 0, "files left behind");
}

/// A demo that tells its story in lines.
struct Running {
    folder: TempDir,
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it with long phases of load, and waits for the step `number`.
    fn until_step(number: u32) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = demo(folder.path(), &["--seconds", "600"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut running = Running {
            folder,
            child,
            lines,
        };
        let begin = format!("{number}. ");
        let mut line = String::new();
        while !line.starts_with(&begin) {
            line.clear();
            let bytes = running.lines.read_line(&mut line).expect("UTF-8");
            assert!(bytes > 0, "it ended before step {number}");
        }
        running
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// What it says from here on, and its status.
    fn end(mut self) -> (TempDir, String, ExitStatus) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("UTF-8");
        let status = self.child.wait().expect("it ends");
        (self.folder, text, status)
    }
}

/// The engines whose files are below `folder`.
fn engines(folder: &Path) -> Vec<Pid> {
    let name = folder.to_str().expect("UTF-8").as_bytes();
    let processes = fs::read_dir("/proc").expect("it is there").flatten();
    let engine = |process: fs::DirEntry| {
        let command = fs::read(process.path().join("cmdline")).ok()?;
        let found = command.windows(name.len()).any(|part| part == name);
        let number = process.file_name().to_str()?.parse().ok()?;
        found.then(|| Pid::from_raw(number)).flatten()
    };
    processes.filter_map(engine).collect()
}

#[test]
fn a_demo_that_is_told_to_end_leaves_no_engine_and_no_folder() {
    for (step, signal, name) in [
        (1, Signal::TERM, "SIGTERM"),
        (3, Signal::INT, "SIGINT"),
        (3, Signal::HUP, "SIGHUP"),
    ] {
        let running = Running::until_step(step);
        running.send(signal);
        let (folder, text, status) = running.end();
        assert_eq!(status.code(), Some(1), "{name}: {text}");
        assert!(text.contains(&format!("ended by {name}")), "{text}");
        assert_eq!(engines(folder.path()), [], "{name}: engines left");
        assert_eq!(entries(folder.path()), 0, "{name}: files left");
    }
}

#[test]
fn a_demo_that_nobody_reads_any_more_ends_and_leaves_nothing_behind() {
    let Running {
        folder,
        mut child,
        lines,
    } = Running::until_step(1);
    drop(lines);
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert_eq!(engines(folder.path()), [], "engines left");
    assert_eq!(entries(folder.path()), 0, "files left");
}

#[test]
fn a_demo_that_is_killed_takes_its_engine_along() {
    let running = Running::until_step(3);
    let engines = engines(running.folder.path());
    assert_eq!(engines.len(), 1);
    let engine = pidfd_open(engines[0], PidfdFlags::empty()).expect("it runs");
    running.send(Signal::KILL);
    let (_folder, _, status) = running.end();
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    let patience = Timespec {
        tv_sec: END_SECONDS_MAX,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&engine, PollFlags::IN)], Some(&patience));
    assert_eq!(ready, Ok(1), "the engine still runs");
}

#[test]
fn a_demo_whose_drive_lies_fails_and_keeps_what_can_be_looked_at() {
    let running = Running::until_step(3);
    let folder = fs::read_dir(running.folder.path()).expect("it is there");
    let kept = folder.flatten().next().expect("the demo's folder").path();
    let drive = format!("of={}", kept.join("d0").display());
    let scribble = |how: &[&str]| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/urandom", &drive, "bs=1M", "seek=32", "count=160"]);
        dd.args(["conv=notrunc", "status=none"]).args(how);
        dd.status().expect("it runs").success()
    };
    // Past the page cache, as the engine writes: a mixture of both ways makes flushes fail. Where
    // that is not possible the engine cannot do it either.
    assert!(scribble(&["oflag=direct"]) || scribble(&[]));
    let (folder, text, status) = running.end();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("FAILED: guest: block "), "{text}");
    assert!(text.contains("bytes that were never written so"), "{text}");
    assert!(kept.join("engine.log").exists(), "{text}");
    assert_eq!(engines(folder.path()), [], "engines left");
}

/// Nothing is free on the file system of `/proc`.
#[test]
fn a_demo_without_room_begins_nothing_and_says_where_to_go() {
    let output = demo(Path::new("/proc"), &["--output", "json"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(told["code"], "full", "{told}");
    let next = told["next"].as_str().expect("a way out");
    assert!(next.contains("TMPDIR") && next.contains("2GiB"), "{told}");
}

/// Root runs it as somebody else; who is not root has seen it pass above.
#[test]
fn the_demo_needs_no_root() {
    if !geteuid().is_root() {
        println!("not root: every other test here is this one");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The program may be where only root may go.
    let program = folder.path().join("garboard");
    fs::copy(env!("CARGO_BIN_EXE_garboard"), &program).expect("copied");
    let own = folder.path().join("own");
    fs::create_dir(&own).expect("made");
    for path in [folder.path(), &own] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let mut command = Command::new(&program);
    command.args(["demo", "--seconds", "1", "--output", "json"]);
    command.env_clear().env("TMPDIR", &own);
    // Groups are dropped along with the user.
    command.uid(NOBODY).gid(NOBODY).current_dir(&own);
    passed(&command.output().expect("it runs"));
    assert_eq!(entries(&own), 0, "files left behind");
}
