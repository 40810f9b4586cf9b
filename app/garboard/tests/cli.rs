//! The real binary against the real API over a pretended engine: words, forms, exit statuses,
//! questions, and that a refused command changes nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use control::fake::FakeHost;
use control::settings::Given;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A running control path over a pretended host with six drives.
struct Bed {
    host: FakeHost,
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<control::Answer<()>>>,
}

impl Bed {
    fn new() -> Bed {
        let host = FakeHost::new();
        for number in 0..6 {
            host.plug(&format!("file:/{number}"), 1 << 30);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut bed = Bed {
            host,
            folder,
            stop: None,
            server: None,
        };
        bed.start();
        bed
    }

    /// Five drives, array `a` on the first four, volume `v`, export `e` of it.
    fn full() -> Bed {
        let bed = Bed::new();
        for number in 0..5 {
            bed.ok(&["drive", "add", &format!("file:/{number}")]);
        }
        bed.ok(&[
            "array",
            "create",
            "a",
            "--level",
            "6",
            "--drives",
            "d0,d1,d2,d3",
        ]);
        bed.ok(&["volume", "create", "v", "--array", "a", "--size", "64MiB"]);
        bed.ok(&["export", "vhost", "v", "--name", "e", "--queues", "2"]);
        bed
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/api.sock")
    }

    fn given(&self) -> Given {
        Given {
            socket: Some(self.socket()),
            state_dir: Some(self.folder.path().join("state")),
            ..Given::default()
        }
    }

    /// Serves on a thread of its own; returns when calls are answered.
    fn start(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let (given, host) = (self.given(), self.host.clone());
        let (ready, is_ready) = mpsc::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(garboard::serve::run(
                given,
                move |_| {
                    // The socket is bound by now: who connects waits for the answer.
                    ready.send(()).expect("the test waits");
                    Ok(std::sync::Arc::new(host.engine()))
                },
                async {
                    let _ = stopped.await;
                },
            ))
        };
        self.server = Some(
            Builder::new()
                .name("server".into())
                .spawn(serve)
                .expect("a thread"),
        );
        if is_ready.recv().is_err() {
            panic!("no engine: {:?}", self.join());
        }
        self.stop = Some(stop);
    }

    fn stop(&mut self) -> control::Answer<()> {
        self.stop
            .take()
            .expect("running")
            .send(())
            .expect("it waits");
        self.join()
    }

    fn join(&mut self) -> control::Answer<()> {
        let server = self.server.take().expect("running");
        server.join().expect("no panic")
    }

    fn command(&self, arguments: &[&str]) -> Output {
        command(&self.socket(), arguments)
    }

    /// Runs a command that succeeds and gives back what it wrote.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        out
    }

    /// Runs a command that succeeds, in JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--output", "json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs a command that fails, in JSON, and gives back the error object.
    fn error(&self, arguments: &[&str], status: i32) -> Value {
        let output = self.command(&[arguments, &["--output", "json"]].concat());
        let (out, error) = texts(&output);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {out}{error}"
        );
        assert_eq!(out, "", "{arguments:?}: a failure has no result");
        let value: Value = serde_json::from_str(&error).expect(&error);
        for field in ["code", "object", "message", "next"] {
            assert!(value[field].is_string(), "{arguments:?}: {error}");
        }
        value
    }

    /// Everything that can be listed, without what moves by itself.
    fn everything(&self) -> String {
        ["drive", "volume", "export"]
            .iter()
            .map(|kind| self.ok(&[kind, "list", "--output", "json"]))
            .chain([self.ok(&["array", "list"])])
            .collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.stop.is_some() {
            let stopped = self.stop();
            assert!(std::thread::panicking() || stopped.is_ok(), "{stopped:?}");
        }
    }
}

fn command(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_garboard"))
        .arg("--socket")
        .arg(socket)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_first_volume_in_a_few_commands() {
    let bed = Bed::full();
    let drives = bed.json(&["drive", "list"]);
    assert_eq!(drives.as_array().map(Vec::len), Some(5));
    assert_eq!(
        (&drives[0]["state"], &drives[4]["state"]),
        (&"member".into(), &"free".into())
    );
    let volume = bed.json(&["volume", "show", "v"]);
    assert_eq!(volume["size_bytes"], 64 << 20);
    let uuid = volume["uuid"].as_str().expect("a uuid");
    assert_eq!(bed.json(&["volume", "show", uuid]), volume);
    let export = bed.json(&["export", "show", "e"]);
    let serial: String = uuid
        .chars()
        .filter(|digit| *digit != '-')
        .take(20)
        .collect();
    assert_eq!(export["profile"]["serial"], serial);
    let socket = bed.folder.path().join("run/exports/e/vhost.sock");
    assert_eq!(export["socket"], socket.to_str().expect("UTF-8"));
    let table = bed.ok(&["array", "list"]);
    assert!(
        table.contains("NAME") && table.contains("optimal"),
        "{table}"
    );
    let text = bed.ok(&["array", "show", "a"]);
    assert!(
        text.contains("write hole") && text.contains("0 online d0"),
        "{text}"
    );
    let status = bed.ok(&["status"]);
    assert!(
        status.contains("drives") && status.contains("reactor"),
        "{status}"
    );
    let status = bed.json(&["status"]);
    assert_eq!(status["volumes"]["total"], 1);
    bed.ok(&["volume", "resize", "v", "--size", "1.5GiB"]);
    bed.ok(&[
        "volume",
        "limit",
        "v",
        "--iops",
        "100",
        "--bandwidth",
        "10MiB",
    ]);
    let limited = bed.ok(&["volume", "list"]);
    assert!(
        limited.contains("1.5GiB") && limited.contains("100 IOPS, 10MiB/s"),
        "{limited}"
    );
    bed.ok(&["export", "move", "e", "--queue", "1", "--core", "0"]);
    bed.ok(&["export", "remove", "e"]);
    bed.ok(&["volume", "delete", "v", "--yes"]);
    bed.ok(&["array", "destroy", "a", "--yes"]);
    bed.ok(&["drive", "remove", "d0"]);
    assert_eq!(
        bed.json(&["drive", "list"]).as_array().map(Vec::len),
        Some(4)
    );
}

#[test]
fn a_lost_member_is_replaced_and_waited_for() {
    let bed = Bed::full();
    bed.ok(&["array", "fail", "a", "--member", "1", "--yes"]);
    assert_eq!(bed.json(&["array", "show", "a"])["state"], "degraded");
    bed.ok(&[
        "array", "replace", "a", "--member", "1", "--drive", "d4", "--wait",
    ]);
    let jobs = bed.json(&["array", "rebuild", "a", "show"]);
    assert_eq!(
        (&jobs[0]["kind"], &jobs[0]["state"]),
        (&"rebuild".into(), &"done".into())
    );
    let job = bed.json(&["array", "resync", "a", "start", "--yes"]);
    let id = job["id"].to_string();
    assert_eq!(bed.json(&["job", "cancel", &id])["state"], "cancelled");
    let error = bed.error(&["job", "wait", &id], 1);
    assert_eq!(error["message"], "it was cancelled");
    let again = bed.json(&["array", "resync", "a", "start", "--wait"]);
    assert_eq!(again["state"], "done");
    assert!(bed.ok(&["job", "list"]).contains("cancelled"));
}

#[test]
fn a_scrub_is_started_paused_shown_and_ends_in_an_error_when_something_stays_wrong() {
    let bed = Bed::full();
    let job = bed.json(&["array", "scrub", "a", "start"]);
    assert_eq!(
        (&job["kind"], &job["state"]),
        (&"scrub".into(), &"running".into())
    );
    assert_eq!(bed.json(&["array", "scrub", "a", "show"])["job"], job["id"]);
    assert_eq!(
        bed.json(&["array", "scrub", "a", "stop"])["state"],
        "cancelled"
    );
    let error = bed.error(&["array", "scrub", "a", "stop"], 1);
    assert_eq!(error["code"], "not_found");
    let shown = bed.ok(&["array", "scrub", "a", "show"]);
    for text in [
        "mismatch, repaired: stripe 7, block 3+1, member 1, volume v at 4096+512",
        "mismatch, not located: stripe 7, block 3+1, member unknown, volume v at 4096+512",
        "1 d1: 1 block wrong",
        "8 of 8 stripes",
        "2023-11-14 22:13 UTC",
    ] {
        assert!(shown.contains(text), "no `{text}` in {shown}");
    }
    let error = bed.error(
        &["array", "scrub", "a", "start", "--from-beginning", "--wait"],
        1,
    );
    assert_eq!(error["code"], "degraded");
    assert_eq!(error["message"], "left wrong: 1 block");
    bed.ok(&[
        "array",
        "modify",
        "a",
        "--scrub-every",
        "14d",
        "--scrub-rate",
        "10MiB",
    ]);
}

#[test]
fn what_closes_the_write_hole_is_changed_while_an_array_runs() {
    let bed = Bed::full();
    let help = bed.ok(&["array", "modify", "--help"]);
    for text in ["auto", "strict", "off", "written twice", "No log"] {
        assert!(help.contains(text), "no `{text}` in {help}");
    }
    assert_eq!(bed.json(&["array", "show", "a"])["write_hole"], "auto");
    for mode in ["strict", "off", "strict", "auto"] {
        let said = bed.ok(&["array", "modify", "a", "--write-hole", mode]);
        assert_eq!(said.trim(), "array a modified");
        assert_eq!(bed.json(&["array", "show", "a"])["write_hole"], mode);
        let shown = bed.ok(&["array", "show", "a"]);
        let row = shown.lines().find(|line| line.contains("write hole"));
        assert!(row.is_some_and(|row| row.ends_with(mode)), "{shown}");
    }
    bed.ok(&["array", "modify", "a", "--hold-timeout", "30000"]);
    let kept = bed.json(&["array", "show", "a"]);
    assert_eq!(kept["write_hole"], "auto", "what is not named stays");
    assert_eq!(kept["hold_timeout_ms"], 30_000);
}

#[test]
fn which_reads_are_hedged_is_changed_while_an_array_runs() {
    let bed = Bed::full();
    let help = bed.ok(&["array", "modify", "--help"]);
    for text in ["--hedged-reads", "within 50 ms", "copied once more"] {
        assert!(help.contains(text), "no `{text}` in {help}");
    }
    assert_eq!(bed.json(&["array", "show", "a"])["hedged_reads"], "auto");
    for which in ["always", "auto"] {
        bed.ok(&["array", "modify", "a", "--hedged-reads", which]);
        assert_eq!(bed.json(&["array", "show", "a"])["hedged_reads"], which);
        let shown = bed.ok(&["array", "show", "a"]);
        let row = shown.lines().find(|line| line.contains("hedged reads"));
        assert!(row.is_some_and(|row| row.ends_with(which)), "{shown}");
    }
}

#[test]
fn unwritten_regions_are_asked_for_or_not_or_left_open() {
    let bed = Bed::new();
    for number in 0..6 {
        bed.ok(&["drive", "add", &format!("file:/{number}")]);
    }
    let create = |name: &str, drives: &str, uuid: &str, more: &[&str]| {
        let shape = ["array", "create", name, "--level", "1", "--drives", drives];
        let arguments = [&shape[..], &["--uuid", uuid], more].concat();
        command(&bed.socket(), &arguments).status.code()
    };
    let cases = [
        ("a", "d0,d1", &["--unwritten-regions"][..], true),
        ("b", "d2,d3", &["--unwritten-regions=false"], false),
        ("c", "d4,d5", &[], false),
    ];
    for (number, (name, drives, more, expected)) in cases.into_iter().enumerate() {
        let uuid = format!("00000000-0000-4000-8000-00000000000{number}");
        let create = |more: &[&str]| create(name, drives, &uuid, more);
        assert_eq!(create(more), Some(0), "{name}");
        let shown = bed.json(&["array", "show", name]);
        assert_eq!(shown["unwritten_regions"], expected, "{name}");
        // Once more: the array is there already, or it is another one.
        assert_eq!(create(&[]), Some(0), "{name}");
        for asked in [true, false] {
            let option = format!("--unwritten-regions={asked}");
            let status = i32::from(asked != expected);
            assert_eq!(create(&[&option]), Some(status), "{name} {option}");
        }
        assert_eq!(create(&["--unwritten-regions=some"]), Some(2));
    }
}

#[test]
fn a_minority_starts_only_by_force_and_after_a_question() {
    let mut bed = Bed::full();
    bed.stop().expect("a clean end");
    let lost: Vec<_> = (0..3)
        .map(|number| bed.host.unplug(&format!("file:/{number}")))
        .collect();
    bed.start();
    assert_eq!(bed.json(&["drive", "show", "d1"])["state"], "missing");
    for arguments in [
        &["array", "start", "a"][..],
        &["array", "start", "a", "--yes"],
        &["array", "start", "a", "--force"],
    ] {
        let error = bed.error(arguments, 1);
        assert_eq!(error["code"], "unsafe", "{arguments:?}");
        assert!(
            error.to_string().contains("3 of 4 members are missing"),
            "{error}"
        );
        assert_eq!(bed.json(&["array", "show", "a"])["state"], "stopped");
    }
    bed.ok(&["array", "start", "a", "--force", "--yes"]);
    assert_eq!(bed.json(&["array", "show", "a"])["state"], "failed");
    drop(lost);
}

#[test]
fn wrong_usage_exits_with_2_and_reaches_no_engine() {
    let bed = Bed::new();
    let _ = bed.host.calls();
    for arguments in [
        &["drive"][..],
        &["drive", "ad", "mem:1GiB"],
        &["drive", "add"],
        &["drive", "add", "sda"],
        &["drive", "add", "mem:lots"],
        &["drive", "add", "mem:0"],
        &["drive", "add", "file:/x,size=1,size=1"],
        &["drive", "add", "mem:1GiB", "--name", "a b"],
        &["drive", "add", "mem:1GiB", "--name", ".."],
        &[
            "drive",
            "add",
            "mem:1GiB",
            "--name",
            "9c2dfe0e-6a5a-4f9c-9a4c-0123456789ab",
        ],
        &["drive", "add", "mem:1GiB", "--uuid", "7"],
        &["drive", "show", "a/b"],
        &["array", "create", "a", "--level", "4", "--drives", "a,b"],
        &["array", "create", "a", "--level", "5"],
        &["array", "create", "a", "--level", "5", "--drives", "a,,b"],
        &[
            "array", "create", "a", "--level", "5", "--drives", "a,b", "--chunk", "64KB!",
        ],
        &[
            "array",
            "create",
            "a",
            "--level",
            "5",
            "--drives",
            "a,b",
            "--write-hole",
            "maybe",
        ],
        &["array", "fail", "a"],
        &["array", "fail", "a", "--member", "-1"],
        &["array", "rebuild", "a", "pause"],
        &["volume", "create", "v", "--array", "a", "--size", "-5"],
        &[
            "volume",
            "create",
            &"v".repeat(64),
            "--array",
            "a",
            "--size",
            "5GiB",
        ],
        &["export", "vhost", "v", "--cores", "5-3"],
        &["export", "vhost", "v", "--queues", "many"],
        &["job", "show", "x"],
        &["top", "--interval", "0"],
        &["serve", "--memory", "much"],
        &["serve", "--poll", "sometimes"],
        &["serve", "--http", "nowhere"],
        &["status", "--output", "xml"],
    ] {
        let output = bed.command(arguments);
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {out}{error}");
        assert!(out.is_empty() && !error.is_empty(), "{arguments:?}");
    }
    assert_eq!(bed.error(&["drive", "add", "sda"], 2)["code"], "invalid");
    assert_eq!(bed.host.calls(), [""; 0]);
}

#[test]
fn wrong_usage_in_json_names_the_argument_and_the_help_of_the_command() {
    let bed = Bed::new();
    let lacks = bed.error(&["volume", "create", "v", "--array", "a"], 2);
    assert_eq!(lacks["object"], "argument --size <SIZE>");
    let message = lacks["message"].as_str().expect("a text");
    assert!(message.ends_with("--size <SIZE>"), "{message}");
    let next = lacks["next"].as_str().expect("a text");
    assert!(next.contains("`garboard volume create --help`"), "{next}");
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
#[test]
fn refusals_exit_with_1_name_the_code_and_change_nothing() {
    let bed = Bed::full();
    let before = bed.everything();
    for (arguments, code, object) in [
        (&["drive", "show", "x"][..], "not_found", "drive x"),
        (&["drive", "add", "file:/0"], "exists", "drive file:/0"),
        (&["drive", "add", "file:/9"], "not_found", "drive file:/9"),
        (&["drive", "remove", "d0"], "busy", "drive d0"),
        (&["drive", "remove", "d0", "--force"], "unsafe", "drive d0"),
        (&["drive", "wipe", "d4"], "unsafe", "drive d4"),
        (&["drive", "wipe", "d0", "--yes"], "busy", "drive d0"),
        (
            &["array", "create", "b", "--level", "5", "--drives", "d4"],
            "invalid",
            "array b",
        ),
        (
            &["array", "create", "b", "--level", "5", "--drives", "d4,d4"],
            "invalid",
            "array b",
        ),
        (
            &["array", "create", "b", "--level", "5", "--drives", "d4,d0"],
            "busy",
            "drive d0",
        ),
        (
            &["array", "create", "b", "--level", "5", "--drives", "d4,d9"],
            "not_found",
            "drive d9",
        ),
        (
            &[
                "array", "create", "b", "--level", "0", "--drives", "d4", "--chunk", "3KiB",
            ],
            "invalid",
            "array b",
        ),
        (
            &[
                "array", "create", "b", "--level", "0", "--drives", "d4", "--force",
            ],
            "unsafe",
            "array b",
        ),
        (
            &["array", "create", "a", "--level", "0", "--drives", "d4"],
            "exists",
            "array a",
        ),
        (&["array", "destroy", "a"], "unsafe", "array a"),
        (&["array", "destroy", "a", "--yes"], "busy", "volume v"),
        (&["array", "stop", "a"], "busy", "array a"),
        (
            &["array", "fail", "a", "--member", "0"],
            "unsafe",
            "member 0 of array a",
        ),
        (
            &["array", "fail", "a", "--member", "9", "--yes"],
            "not_found",
            "member 9 of array a",
        ),
        (
            &["array", "replace", "a", "--member", "0", "--drive", "d4"],
            "busy",
            "member 0 of array a",
        ),
        (&["array", "import", "zz"], "not_found", "array zz"),
        (&["array", "modify", "a"], "invalid", "array a"),
        (
            &["volume", "create", "v", "--array", "a", "--size", "1MiB"],
            "exists",
            "volume v",
        ),
        (
            &["volume", "create", "w", "--array", "b", "--size", "1MiB"],
            "not_found",
            "array b",
        ),
        (
            &["volume", "create", "w", "--array", "a", "--size", "1TiB"],
            "full",
            "volume w",
        ),
        (
            &["volume", "create", "w", "--array", "a", "--size", "0"],
            "invalid",
            "volume w",
        ),
        (
            &["volume", "resize", "v", "--size", "1MiB"],
            "invalid",
            "volume v",
        ),
        (&["volume", "delete", "v"], "unsafe", "volume v"),
        (&["volume", "delete", "v", "--yes"], "busy", "volume v"),
        (
            &["volume", "limit", "v", "--iops", "0"],
            "invalid",
            "volume v",
        ),
        (&["export", "vhost", "w"], "not_found", "volume w"),
        (&["export", "vhost", "v", "--name", "f"], "busy", "volume v"),
        (
            &["export", "vhost", "v", "--name", "e"],
            "exists",
            "export e",
        ),
        (
            &["export", "move", "e", "--queue", "2", "--core", "0"],
            "not_found",
            "queue 2 of export e",
        ),
        (&["export", "remove", "f"], "not_found", "export f"),
        (&["vm", "qemu", "f"], "not_found", "export f"),
        (
            &["vm", "qemu", "e", "--memory", "1000"],
            "invalid",
            "export e",
        ),
        (&["job", "show", "77"], "not_found", "job 77"),
    ] {
        let error = bed.error(arguments, 1);
        assert_eq!(
            (&error["code"], &error["object"]),
            (&code.into(), &object.into()),
            "{arguments:?}: {error}"
        );
    }
    assert_eq!(bed.everything(), before);
}

#[test]
fn errors_for_people_name_object_cause_and_next_step() {
    let bed = Bed::new();
    let output = bed.command(&["drive", "show", "x"]);
    let (out, error) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    let expected =
        "error: drive x: there is no such drive; `garboard drive list` shows what is there\n";
    assert_eq!(error, expected);
}

#[test]
fn what_a_new_array_wastes_and_what_a_socket_had_made_for_it_is_said() {
    let bed = Bed::full();
    bed.host.plug("file:/large", 3 << 30);
    bed.ok(&["drive", "add", "file:/large", "--name", "large"]);
    bed.ok(&["drive", "add", "file:/5", "--name", "d5"]);
    let said = |arguments: &[&str]| {
        let output = bed.command(arguments);
        let (_, error) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        error
    };
    let create = ["array", "create", "b", "--level", "1", "--drives"];
    let wasted = said(&[&create[..], &["d4,large"]].concat());
    assert!(
        wasted.contains("the smallest is d4") && wasted.contains("2GiB of other members"),
        "{wasted}"
    );
    // Nothing is said where members are alike, or where somebody wants JSON.
    said(&["array", "destroy", "b", "--yes"]);
    assert_eq!(said(&[&create[..], &["d4,d5"]].concat()), "");
    said(&["array", "destroy", "b", "--yes"]);
    let json = [&create[..], &["d4,large", "--output", "json"]].concat();
    assert_eq!(said(&json), "");

    let folder = bed.folder.path().join("slip/of");
    let socket = folder.join("the.sock");
    let export = ["export", "vhost", "v", "--name", "e", "--socket"];
    let there = bed.folder.path().join("run/f.sock");
    bed.ok(&["export", "remove", "e"]);
    let there = there.to_str().expect("UTF-8");
    assert_eq!(said(&[&export[..], &[there]].concat()), "");
    bed.ok(&["export", "remove", "e"]);
    let socket = socket.to_str().expect("UTF-8");
    let made = said(&[&export[..], &[socket]].concat());
    assert!(
        made.contains(folder.to_str().expect("UTF-8")) && made.contains("has been made"),
        "{made}"
    );
}

#[test]
fn nobody_there_exits_with_3() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("api.sock");
    let unreachable = || {
        let output = command(&socket, &["drive", "list", "--output", "json"]);
        let (_, error) = texts(&output);
        assert_eq!(output.status.code(), Some(3), "{error}");
        let error: Value = serde_json::from_str(&error).expect("JSON");
        assert_eq!(error["code"], "unreachable");
    };
    unreachable();
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
    unreachable();
    let output = Command::new(env!("CARGO_BIN_EXE_garboard"))
        .args(["status"])
        .env("GARBOARD_SOCKET", &socket)
        .output()
        .expect("it runs");
    let (_, error) = texts(&output);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains(socket.to_str().expect("UTF-8")), "{error}");
}

#[test]
fn who_hangs_up_or_answers_nonsense_is_an_error_and_no_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("api.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let answers: [&[u8]; 3] = [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{{{{{",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}",
    ];
    let serve = move || {
        use std::io::{Read, Write};
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).expect("a request");
            stream.write_all(answer).expect("it listens");
        }
    };
    let server = Builder::new()
        .name("nonsense".into())
        .spawn(serve)
        .expect("a thread");
    for status in [3, 1, 1] {
        let output = command(&socket, &["drive", "list"]);
        assert_eq!(output.status.code(), Some(status), "{:?}", texts(&output));
    }
    server.join().expect("no panic");
}

#[test]
fn attachments_are_exact() {
    let bed = Bed::full();
    let socket = bed.folder.path().join("run/exports/e/vhost.sock");
    let socket = socket.to_str().expect("UTF-8");
    let unitless = bed.error(&["vm", "qemu", "e", "--memory", "1"], 1);
    let next = unitless["next"].as_str().expect("a way out");
    assert!(next.contains("512MiB"), "{next}");
    let qemu = bed.ok(&["vm", "qemu", "e", "--memory", "2GiB"]);
    assert!(
        qemu.contains(&format!(
            "-chardev socket,id=garboard-e,path={socket},reconnect=1"
        )),
        "{qemu}"
    );
    assert!(
        qemu.contains("size=2048M,share=on") && qemu.contains("num-queues=2"),
        "{qemu}"
    );
    let arguments = bed.json(&["vm", "cloud-hypervisor", "e"]);
    assert_eq!(arguments["arguments"][0], "--cpus");
    assert!(
        bed.ok(&["vm", "libvirt", "e"])
            .contains(&format!("path='{socket}'"))
    );
}

#[test]
fn top_prints_rates_as_lines_of_json() {
    let bed = Bed::full();
    let text = bed.ok(&["top", "--count", "2", "--interval", "1", "--output", "json"]);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (
            &lines[0]["volumes"][0]["name"],
            &lines[0]["volumes"][0]["read_iops"]
        ),
        (&"v".into(), &0.into())
    );
}

#[test]
fn a_second_engine_is_refused_and_a_restarted_one_remembers() {
    let mut bed = Bed::full();
    let second = tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(garboard::serve::run(
            bed.given(),
            |_| anyhow::bail!("a second engine was built"),
            std::future::pending(),
        ));
    assert_eq!(second.expect_err("refused").kind, control::ErrorKind::Busy);
    // The same socket with another state directory is refused as well, without an engine.
    let elsewhere = Given {
        state_dir: Some(bed.folder.path().join("other")),
        ..bed.given()
    };
    let second = tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(garboard::serve::run(
            elsewhere,
            |_| anyhow::bail!("a second engine was built"),
            std::future::pending(),
        ));
    assert_eq!(second.expect_err("refused").kind, control::ErrorKind::Busy);

    bed.stop().expect("a clean end");
    assert_eq!(
        bed.host.calls().last().map(String::as_str),
        Some("shutdown")
    );
    assert!(!bed.socket().exists());
    assert_eq!(bed.command(&["status"]).status.code(), Some(3));
    bed.start();
    assert_eq!(bed.json(&["array", "show", "a"])["state"], "optimal");
    assert_eq!(bed.json(&["export", "show", "e"])["state"], "waiting");
}

#[test]
fn an_engine_that_cannot_be_built_leaves_nothing_behind() {
    let mut bed = Bed::new();
    bed.stop().expect("a clean end");
    let failed = tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(garboard::serve::run(
            bed.given(),
            |_| anyhow::bail!("io_uring is not allowed here"),
            std::future::pending(),
        ));
    let error = failed.expect_err("not built");
    assert!(error.message.contains("io_uring is not allowed"), "{error}");
    assert!(!bed.socket().exists());
    bed.start();
    bed.ok(&["status"]);
}
