//! `cargo xtask e2e`: the tests that need the finished program, one after another.
//!
//! Each is an executable `test/e2e/NAME.test.sh`, run in the workspace's folder after the programs
//! have been built. Exit status 0 is a pass; there is no other way to pass and no second try.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Workspace;

/// Longer than any one test takes on a slow machine; then it hangs.
const TEST_SECONDS_MAX: &str = "1200";

/// Builds the programs and runs the tests whose name contains one of `names`, or all.
///
/// # Errors
/// When the program cannot be built, no test has such a name, or a test fails.
pub fn run(workspace: &Workspace, names: &[&str]) -> Result<(), String> {
    workspace.build_programs()?;
    let tests = tests_in(&workspace.root().join("test/e2e"), names)?;
    run_all(&tests, |test| {
        Command::new("timeout")
            .args(["--kill-after=10", TEST_SECONDS_MAX])
            .arg(test)
            .current_dir(workspace.root())
            .stdin(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// The executable tests of `folder`, sorted by name.
fn tests_in(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut tests = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = name_of(&path);
        let asked = names.is_empty() || names.iter().any(|part| name.contains(part));
        if !name.ends_with(".test.sh") || !asked {
            continue;
        }
        let mode = fs::metadata(&path).map_err(|error| error.to_string())?;
        if mode.permissions().mode() & 0o111 == 0 {
            return Err(format!("{}: not executable", path.display()));
        }
        tests.push(path);
    }
    tests.sort();
    if tests.is_empty() {
        return Err(format!(
            "no test in {} is called {names:?}",
            folder.display()
        ));
    }
    Ok(tests)
}

/// Runs every test, also after one has failed, and says how many passed.
fn run_all(tests: &[PathBuf], passes: impl Fn(&Path) -> bool) -> Result<(), String> {
    let mut failed = Vec::new();
    for test in tests {
        println!("== {}", name_of(test));
        if passes(test) {
            println!("-- {}: passed", name_of(test));
        } else {
            println!("-- {}: FAILED", name_of(test));
            failed.push(name_of(test));
        }
    }
    let summary = format!(
        "{} passed, {} failed",
        tests.len() - failed.len(),
        failed.len()
    );
    println!("{summary}");
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("end to end: {summary}: {}", failed.join(", ")))
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, u32)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in files {
            let path = folder.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        folder
    }

    #[test]
    fn tests_are_found_by_name_and_sorted() {
        let folder = folder_with(&[("b.test.sh", 0o755), ("a.test.sh", 0o755), ("vm.sh", 0o755)]);
        let found = |names: &[&str]| -> Vec<String> {
            let tests = tests_in(folder.path(), names).unwrap();
            tests.iter().map(|test| name_of(test)).collect()
        };
        assert_eq!(found(&[]), ["a.test.sh", "b.test.sh"]);
        assert_eq!(found(&["b"]), ["b.test.sh"]);
    }

    #[test]
    fn a_test_that_cannot_run_is_not_passed_over() {
        let folder = folder_with(&[("a.test.sh", 0o644)]);
        let refused = tests_in(folder.path(), &[]).unwrap_err();
        assert!(refused.contains("not executable"), "{refused}");
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        let folder = folder_with(&[("vm.sh", 0o755)]);
        assert!(tests_in(folder.path(), &[]).is_err());
    }

    #[test]
    fn one_failure_fails_all_and_the_others_still_run() {
        let tests = [PathBuf::from("a.test.sh"), PathBuf::from("b.test.sh")];
        let ran = std::cell::Cell::new(0);
        let result = run_all(&tests, |test| {
            ran.set(ran.get() + 1);
            name_of(test) != "a.test.sh"
        });
        assert_eq!(ran.get(), 2);
        let message = result.unwrap_err();
        assert_eq!(message, "end to end: 1 passed, 1 failed: a.test.sh");
        assert_eq!(run_all(&tests, |_| true), Ok(()));
    }
}
