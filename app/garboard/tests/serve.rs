//! `garboard serve` with the real engine: how it ends, how it comes back, and that there is one.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
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
fn a_signal_ends_it_clean_and_it_comes_back_also_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("api.sock");
    let engine = Engine::start(folder.path());
    engine.fill(&files(folder.path(), 3));
    let mut engine = engine;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
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
    assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
}

#[test]
fn a_resync_that_a_clean_end_cut_off_is_done_after_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let specs = files(folder.path(), 3);
    let large = |spec: &String| spec.replace("64MiB", "2GiB");
    engine.fill(&specs.iter().map(large).collect::<Vec<_>>());
    let job = engine.json(&["array", "resync", "a", "start", "--yes"]);
    assert_eq!(job["state"], "running", "too fast for this test: {job}");
    assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    let engine = Engine::start(folder.path());
    assert_eq!(resyncs(&engine), 1);
}

/// Flips a bit in the middle of a file.
fn rot(path: &Path) {
    let mut bytes = std::fs::read(path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    let file = std::fs::File::options().write(true).open(path);
    let file = file.expect("it is there");
    file.write_all_at(
        &bytes[middle..=middle],
        u64::try_from(middle).expect("small"),
    )
    .expect("written");
    file.sync_all().expect("written");
}

#[test]
fn a_scrub_repairs_what_it_can_locate_and_ends_in_an_error_where_it_cannot() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    for (number, spec) in files(folder.path(), 7).iter().enumerate() {
        engine.json(&["drive", "add", spec, "--name", &format!("d{number}")]);
    }
    for (name, level, drives) in [("six", "6", "d0,d1,d2,d3"), ("five", "5", "d4,d5,d6")] {
        engine.json(&[
            "array", "create", name, "--level", level, "--drives", drives,
        ]);
    }
    for number in [1, 5] {
        rot(&folder.path().join(format!("d{number}.img")));
    }
    let job = engine.json(&["array", "scrub", "six", "start", "--wait"]);
    assert_eq!(
        (&job["kind"], &job["state"]),
        (&"scrub".into(), &"done".into())
    );
    let shown = engine.json(&["array", "scrub", "six", "show"]);
    assert_eq!(
        (&shown["repaired_blocks"], &shown["unrepaired_blocks"]),
        (&1.into(), &0.into())
    );
    assert_eq!(shown["findings"][0]["members"], serde_json::json!([1]));

    let refused = engine.refused(&["array", "scrub", "five", "start", "--wait"]);
    assert_eq!(
        (&refused["code"], &refused["object"]),
        (&"degraded".into(), &"array five".into())
    );
    let shown = engine.json(&["array", "scrub", "five", "show"]);
    assert_eq!(shown["findings"][0]["outcome"], "not_located");
    // It is known and still there: so says the next one.
    engine.refused(&["array", "scrub", "five", "start", "--wait"]);
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

/// `/dev/full` is a file on a full file system for all who write to it.
#[test]
fn an_engine_whose_log_cannot_be_written_to_serves_and_ends_clean() {
    let folder = tempfile::tempdir().expect("a folder");
    let full = || File::options().write(true).open("/dev/full");
    for _ in 0..2 {
        let engine = Engine::start_logging(folder.path(), full().expect("Linux has it"), &[]);
        if engine.json(&["drive", "list"]) == serde_json::json!([]) {
            engine.fill(&files(folder.path(), 3));
        }
        assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
        assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    }
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

#[test]
fn an_export_without_wishes_has_small_blocks_but_on_level_0_those_of_its_array_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    engine.fill(&files(folder.path(), 3));
    let (_, error) = engine.says(&["export", "vhost", "v"]);
    assert_eq!(error, "", "512 is usual");
    for number in 0..4 {
        engine.json(&["drive", "add", "mem:64MiB", "--name", &format!("m{number}")]);
    }
    for (array, level, drives, volume) in [("j", "1", "m0,m1", "u"), ("k", "0", "m2,m3", "w")] {
        let words = [
            "array", "create", array, "--level", level, "--drives", drives,
        ];
        engine.json(&[&words[..], &["--block-size", "4096"]].concat());
        engine.json(&[
            "volume", "create", volume, "--array", array, "--size", "16MiB",
        ]);
    }
    let (_, error) = engine.says(&["export", "vhost", "u"]);
    assert_eq!(error, "", "the array puts parts of its blocks together");
    let shown = engine.json(&["export", "show", "u"]);
    assert_eq!(shown["profile"]["block_bytes"], 512);
    assert_eq!(shown["profile"]["physical_block_bytes"], 4096);
    let error = engine.refused(&["export", "vhost", "w", "--block-size", "512"]);
    assert!(
        error["next"].to_string().contains("--block-size 4096"),
        "{error}"
    );
    let (out, error) = engine.says(&["export", "vhost", "w"]);
    assert!(out.starts_with("export w of volume w at "), "{out}");
    assert!(error.contains("blocks of 4096 bytes"), "{error}");
    assert_eq!(
        engine.json(&["export", "show", "w"])["profile"]["block_bytes"],
        4096
    );
}

#[test]
fn a_cpu_that_is_not_here_is_told_once_and_with_a_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_garboard"))
        .args(["serve", "--cores", "4095", "--state-dir"])
        .arg(folder.path())
        .arg("--socket")
        .arg(folder.path().join("api.sock"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    let told = error.lines().find(|line| line.starts_with("error: "));
    let told = told.expect("an error");
    assert_eq!(told.matches("engine: ").count(), 1, "{told}");
    assert!(told.contains("--cores LIST"), "{told}");
}
