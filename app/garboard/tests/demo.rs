//! `garboard demo` with the real engine, short.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_demo_passes_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_garboard"));
    command.args(["demo", "--seconds", "1", "--output", "json"]);
    let output = command
        .env("TMPDIR", folder.path())
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["passed"], true, "{report}");
    assert_eq!(report["errors_total"], 0);
    assert_eq!(report["blocks_verified"], report["blocks_total"]);
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(8));
    for step in report["steps"].as_array().into_iter().flatten().skip(2) {
        assert!(step["requests"].as_u64() > Some(0), "{step}");
    }
    let left = std::fs::read_dir(folder.path())
        .expect("it is there")
        .count();
    assert_eq!(left, 0, "files left behind");
}
