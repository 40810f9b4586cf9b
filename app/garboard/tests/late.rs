//! A drive that comes some seconds after the engine, when the power had failed before: through the
//! real program.

mod common;

use std::time::Duration;

use common::Engine;
use rustix::process::geteuid;
use serde_json::Value;
use units::{Clock, MonotonicClock};

const LIMIT: Duration = Duration::from_secs(60);

/// As if the power had failed: what the killed engine has left in memory is gone.
fn forget_begun(array: &Value) {
    let uuid = array["uuid"].as_str().expect("a uuid");
    let folder = format!("/dev/shm/garboard-{}", geteuid().as_raw());
    // No folder where there is no room for one: then nothing is left anyway.
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(uuid)) {
            std::fs::remove_file(path).expect("ours");
        }
    }
}

#[test]
fn a_drive_that_is_late_after_a_power_failure_is_waited_for_and_not_filled() {
    let folder = tempfile::tempdir().expect("a folder");
    // The engine finds drives that have moved within their folder.
    let away = tempfile::tempdir_in(folder.path()).expect("a folder");
    let drive = |number: u32| folder.path().join(format!("drive{number}"));
    let spec = |number: u32| format!("file:{},size=64MiB,create", drive(number).display());
    let engine = Engine::start(folder.path());
    engine.fill(&[spec(0), spec(1), spec(2)]);
    engine.json(&["export", "vhost", "v", "--name", "e"]);
    let load = ["bench", "e", "--yes", "--seconds", "0.2", "--workloads"];
    engine.json(&[&load[..], &["random_write"]].concat());
    let array = engine.json(&["array", "show", "a"]);
    drop(engine);
    forget_begun(&array);
    let away = away.path().join("drive1");
    std::fs::rename(drive(1), &away).expect("on one file system");

    let engine = Engine::start(folder.path());
    let state = |engine: &Engine| engine.json(&["array", "show", "a"])["state"].clone();
    let waits = engine.json(&["array", "show", "a"]);
    assert_eq!(waits["state"], "stopped", "{waits}");
    assert_eq!(waits["torn_without"], serde_json::json!([1]), "{waits}");
    let (shown, _) = engine.says(&["array", "show", "a"]);
    assert!(shown.contains("waits for them 30 s"), "{shown}");
    std::fs::rename(&away, drive(1)).expect("on one file system");
    let begun = MonotonicClock.now();
    while state(&engine) != "optimal" {
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < LIMIT, "never: {}", state(&engine));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let jobs = engine.json(&["job", "list"]);
    let filled = |job: &Value| job["kind"] == "rebuild";
    assert!(
        !jobs.as_array().expect("a list").iter().any(filled),
        "{jobs}"
    );
    let log = std::fs::read_to_string(folder.path().join("engine.log")).expect("a log");
    assert!(log.contains("array_waits"), "{log}");
    assert!(!log.contains("started_torn"), "{log}");
}
