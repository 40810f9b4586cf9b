//! Pinned memory through the real program. A guest's that is promised to stay: pinned while the
//! guest is there, made use of, and let go. Buffers of the engine: while their array is busy, and
//! until it ends.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::Engine;
use serde_json::Value;
use units::{Clock, MonotonicClock};

const LIMIT: Duration = Duration::from_secs(60);

fn export(engine: &Engine, name: &str) -> Value {
    let list = engine.json(&["export", "list"]);
    let mut exports = list.as_array().expect("a list").iter();
    let found = exports.find(|export| export["name"] == name);
    found.expect("it was made").clone()
}

fn pinned_bytes(engine: &Engine, name: &str) -> u64 {
    export(engine, name)["pinned_bytes"]
        .as_u64()
        .expect("a number")
}

/// Transfers of pinned memory that all reactors have made.
fn pinned_transfers(engine: &Engine) -> f64 {
    let metrics = engine.metrics();
    let lines = metrics.lines();
    let values = lines.filter(|line| line.starts_with("garboard_reactor_pinned_transfers_total{"));
    values
        .map(|line| line.rsplit(' ').next().expect("a value"))
        .map(|value| value.parse::<f64>().expect("a number"))
        .sum()
}

/// Asks until it is so, for a minute at the most.
fn eventually(what: &str, so: impl Fn() -> bool) {
    let begun = MonotonicClock.now();
    while !so() {
        assert!(MonotonicClock.now().since(begun) < LIMIT, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn bench(engine: &Engine, name: &str, workload: &str) -> Command {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_garboard"));
    bench
        .arg("--socket")
        .arg(engine.folder().join("api.sock"))
        .args(["bench", name, "--yes", "--workloads", workload])
        .args(["--jobs", "2", "--depth", "4", "--output", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    bench
}

/// A guest that compares what it reads, for some seconds, has seen no wrong byte. Reads go
/// straight to its memory.
fn load(engine: &Engine, name: &str, seconds: &str, workload: &str) {
    let mut bench = bench(engine, name, workload);
    let ended = bench.args(["--verify", "--seconds", seconds]).status();
    let ended = ended.expect("it runs");
    assert!(ended.success(), "{ended}");
}

/// A guest that reads and writes until it is ended: whoever looks at what it brings about may take
/// as long as a busy machine does.
struct Lasting(Child);

impl Lasting {
    fn begin(engine: &Engine, name: &str) -> Lasting {
        let mut bench = bench(engine, name, "random_mixed");
        let begun = bench.args(["--seconds", "3600"]).spawn();
        Lasting(begun.expect("it runs"))
    }

    fn end(mut self) {
        let ended = self.0.try_wait().expect("it is ours");
        assert_eq!(ended, None, "it goes on");
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn memory_that_is_promised_to_stay_is_pinned_while_its_guest_is_there_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let file = |number: u32| {
        let path = folder.path().join(format!("drive{number}"));
        format!("file:{},size=64MiB,create", path.display())
    };
    engine.fill(&[file(0), file(1), file(2)]);
    engine.json(&[
        "export",
        "vhost",
        "v",
        "--name",
        "stays",
        "--pin-guest-memory",
    ]);
    engine.json(&["volume", "create", "w", "--array", "a", "--size", "16MiB"]);
    engine.json(&["export", "vhost", "w", "--name", "plain"]);
    assert_eq!(pinned_bytes(&engine, "stays"), 0, "nobody is there");

    load(&engine, "plain", "0.5", "random_read");
    assert!(pinned_transfers(&engine).abs() < 0.5, "nobody promised");

    let guest = Lasting::begin(&engine, "stays");
    eventually("pinned", || pinned_bytes(&engine, "stays") > 0);
    eventually("made use of", || pinned_transfers(&engine) > 100.0);
    let told = finding(&engine).expect("its guest is there");
    let (shown, _) = engine.says(&["export", "show", "stays"]);
    guest.end();
    assert_eq!(told["severity"], "good", "{told}");
    assert!(shown.contains("pinned ("), "{shown}");
    eventually("let go", || pinned_bytes(&engine, "stays") == 0);
    assert_eq!(finding(&engine), None, "nobody is there");
    load(&engine, "stays", "2", "random_mixed");
    engine.json(&["array", "scrub", "a", "start", "--wait"]);
    let log = std::fs::read_to_string(folder.path().join("engine.log")).expect("a log");
    assert!(log.contains("vhost_memory_pinned"), "{log}");
}

#[test]
fn buffers_of_a_busy_array_are_pinned_until_it_ends() {
    let pinned = |engine: &Engine| {
        let status = engine.json(&["status"]);
        let bytes = &status["engine"]["pinned_buffer_bytes"];
        bytes.as_u64().expect("a number")
    };
    // On a busy machine what fills the volume may be enough to be called busy.
    let mut engines = (0..5).map(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = Engine::start(folder.path());
        let file = |number: u32| {
            let path = folder.path().join(format!("drive{number}"));
            format!("file:{},size=64MiB,create", path.display())
        };
        engine.fill(&[file(0), file(1), file(2)]);
        engine.json(&["export", "vhost", "v", "--name", "plain"]);
        load(&engine, "plain", "2", "random_read");
        (engine, folder)
    });
    let reads = engines.find(|(engine, _)| pinned(engine) == 0);
    let (engine, folder) = reads.expect("reads need none");
    let pinned = || pinned(&engine);

    let guest = Lasting::begin(&engine, "plain");
    eventually("pinned", || pinned() > 0);
    let begun = pinned_transfers(&engine);
    eventually("made use of", || pinned_transfers(&engine) > begun + 100.0);
    guest.end();
    load(&engine, "plain", "2", "random_mixed");
    assert!(pinned() > 0, "it may be busy again");
    engine.json(&["export", "remove", "plain"]);
    engine.json(&["array", "stop", "a"]);
    assert_eq!(pinned(), 0);
    engine.json(&["array", "start", "a"]);
    engine.json(&["export", "vhost", "v", "--name", "plain"]);
    let guest = Lasting::begin(&engine, "plain");
    eventually("pinned anew", || pinned() > 0);
    guest.end();
    load(&engine, "plain", "2", "random_mixed");
    engine.json(&["array", "scrub", "a", "start", "--wait"]);
    let log = std::fs::read_to_string(folder.path().join("engine.log")).expect("a log");
    assert!(log.contains("buffers_pinned"), "{log}");
}

/// What doctor says of the export's promise.
fn finding(engine: &Engine) -> Option<Value> {
    let report = engine.json(&["doctor"]);
    let findings = report["findings"].as_array().expect("a list").clone();
    let of_promise = |finding: &Value| finding["check"] == "pinned_guest_memory";
    findings.into_iter().find(of_promise)
}
