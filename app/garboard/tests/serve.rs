//! `garboard serve` with the real engine: how it ends, how it comes back, and that there is one.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use common::{Engine, files, serve};
use rustix::process::Signal;

/// Jobs of the engine that resync.
fn resyncs(engine: &Engine) -> usize {
    let jobs = engine.json(&["job", "list"]);
    let jobs = jobs.as_array().expect("a list").iter();
    jobs.filter(|job| job["kind"] == "resync").count()
}

#[test]
fn after_sigterm_and_sigint_nothing_is_resynced_and_after_sigkill_all_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("api.sock");
    let engine = Engine::start(folder.path());
    engine.fill(&files(folder.path(), 3));
    let mut engine = engine;
    for signal in [Signal::TERM, Signal::INT] {
        let status = engine.end(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}");
        assert!(!socket.exists(), "{signal:?}: the socket is left behind");
        engine = Engine::start(folder.path());
        assert_eq!(resyncs(&engine), 0, "{signal:?}");
        assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
        assert_eq!(engine.json(&["volume", "show", "v"])["name"], "v");
    }
    let status = engine.end(Signal::KILL);
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    assert!(socket.exists(), "a killed engine cannot remove its socket");
    let engine = Engine::start(folder.path());
    assert_eq!(resyncs(&engine), 1, "a stale socket is taken over");
}

#[test]
fn systemd_is_told_of_readiness_and_of_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    // Ready means that commands are answered.
    engine.json(&["status"]);
    let pid = rustix::process::Pid::from_raw(engine.id()).expect("not zero");
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(engine.notice().expect("a notice"), "STOPPING=1");
}

/// Starts a second engine, which must be refused; gives back what it says.
fn refused(state: &Path, socket: &Path) -> String {
    let output = serve(state, socket).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn a_second_engine_is_refused_its_state_its_socket_and_its_drives() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    engine.fill(&files(folder.path(), 3));
    let (state, socket) = (folder.path().join("state"), folder.path().join("api.sock"));
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (other_state, other_socket) = (elsewhere.path().join("s"), elsewhere.path().join("a"));

    let error = refused(&state, &other_socket);
    assert!(error.contains("state directory"), "{error}");
    assert!(error.contains("another engine has it"), "{error}");
    let error = refused(&other_state, &socket);
    assert!(
        error.contains(&format!("socket {}", socket.display())),
        "{error}"
    );
    assert!(error.contains("another engine has it"), "{error}");

    let second = Engine::start(elsewhere.path());
    let spec = format!("file:{}", folder.path().join("d0.img").display());
    let error = second.refused(&["drive", "add", &spec]);
    assert_eq!(error["code"], "busy", "{error}");
    let found = second.json(&["drive", "list"]);
    assert_eq!(found.as_array().map(Vec::len), Some(0), "{found}");
    assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
}
