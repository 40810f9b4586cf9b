//! `garboard doctor` as a user meets it: on this host, on a made-up one, with an engine.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::Engine;
use serde_json::Value;

/// Runs `garboard doctor` where no engine is.
fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_garboard"))
        .args(["--socket", "/nonexistent/api.sock", "doctor"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

/// A file of a made-up host.
fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

#[test]
fn this_host_is_examined_without_an_engine() {
    let output = doctor(&["--output", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(
        report["engine"]
            .as_str()
            .expect("text")
            .contains("does not answer")
    );
    let findings = report["findings"].as_array().expect("a list");
    let checks: Vec<&str> = findings
        .iter()
        .filter_map(|f| f["check"].as_str())
        .collect();
    for check in [
        "kernel",
        "io_uring",
        "cores",
        "smt",
        "isolation",
        "memlock",
        "iommu",
    ] {
        assert!(checks.contains(&check), "{checks:?}");
    }
    for finding in findings {
        for name in ["severity", "subject", "check", "found"] {
            assert!(finding[name].is_string(), "{finding}");
        }
        let good = finding["severity"] == "good";
        assert_eq!(finding["costs"].is_null(), good, "{finding}");
    }
    let counted: u64 = ["critical", "warning", "notice", "good"]
        .iter()
        .map(|name| report[name].as_u64().expect("a number"))
        .sum();
    assert_eq!(usize::try_from(counted).expect("few"), findings.len());
}

#[test]
fn a_host_that_refuses_io_uring_is_told_so_and_the_command_succeeds() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "proc/sys/kernel/io_uring_disabled", "2\n");
    write(folder.path(), "proc/sys/kernel/osrelease", "6.12.0\n");
    let root = folder.path().to_str().expect("UTF-8");
    let output = doctor(&["--root", root]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let first = text.lines().next().expect("a line");
    assert!(
        first.starts_with("critical  host: io_uring: switched off"),
        "{first}"
    );
    assert!(
        text.contains("fix: sysctl kernel.io_uring_disabled=0"),
        "{text}"
    );
    assert!(
        text.lines()
            .last()
            .expect("a line")
            .starts_with("1 critical,"),
        "{text}"
    );
}

#[test]
fn a_folder_that_is_no_copy_of_a_host_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().to_str().expect("UTF-8");
    let output = doctor(&["--root", root]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "nothing of it is good or bad");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("neither sys nor proc"), "{said}");
}

#[test]
fn an_engines_drives_and_arrays_are_examined_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let mut specs = common::files(folder.path(), 3);
    specs.push("mem:64MiB".to_owned());
    engine.fill(&specs);
    let report = engine.json(&["doctor"]);
    assert_eq!(report["engine"], "answers");
    let findings = report["findings"].as_array().expect("a list");
    let find = |check: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("{check}: {findings:#?}"))
    };
    assert_eq!(find("pretended")["severity"], "critical");
    assert_eq!(find("pretended")["subject"], "array a");
    assert_eq!(find("pretended")["found"], "drives d3 are pretended");
    assert_eq!(find("state")["severity"], "good");
}
