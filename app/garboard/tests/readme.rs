//! The commands of README.md's "first volume in five minutes" and of docs/measuring.md after them,
//! exactly as they are written, only in another folder.

mod common;

use std::path::Path;
use std::process::Command;

use common::Engine;

/// The lines of a page's examples that talk to a running engine.
fn lines(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = std::fs::read_to_string(path).expect("it is there");
    let examples = text.split("```").skip(1).step_by(2);
    let lines = examples.flat_map(str::lines);
    let talks = |line: &&str| line.starts_with("for ") || line.starts_with("garboard ");
    let lines = lines.filter(talks).map(ToOwned::to_owned);
    lines
        .filter(|line| !line.contains("garboard serve"))
        .collect()
}

#[test]
fn the_commands_of_the_readme_work_as_they_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let program = Path::new(env!("CARGO_BIN_EXE_garboard"));
    let programs = program.parent().expect("in a folder").display().to_string();
    let search = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let (first, more) = (lines("README.md"), lines("docs/measuring.md"));
    assert!(first.len() >= 9 && more.len() >= 4, "{first:?}, {more:?}");
    for line in first.into_iter().chain(more) {
        let here = folder.path().to_str().expect("UTF-8");
        let mut bash = Command::new("bash");
        bash.args(["-ec", &line.replace("/tmp/garboard", here)]);
        bash.env("PATH", &search);
        bash.env("GARBOARD_SOCKET", folder.path().join("api.sock"));
        let output = bash.output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
    }
    let members = engine.json(&["array", "show", "a"])["members"].clone();
    assert_eq!(members[1]["drive"], "d6", "{members}");
}
