//! `cargo xtask races`: tests that run real threads, under ThreadSanitizer: accesses to memory of
//! which two threads make one at the same time, unordered, and one of them a write.
//!
//! The simulator has one thread, and loom sees models of small parts: this sees all of a real run,
//! but only what happens in it. It needs Rust's nightly toolchain with `rust-src`, because the
//! standard library must be built to be watched, too; so it is no part of `check`.

use std::process::Command;

use crate::Workspace;
use crate::workspace::must;

/// Crates whose tests start threads that share something.
const CRATES: [&str; 6] = ["queues", "reactor", "memory", "drive", "engine", "host"];
/// Others have no sanitizer here that is known to work.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// What may be touched by two at once, and why.
const ALLOWED: &str = "xtask/races.txt";

/// Runs the tests of `crates`, or of all that share something; fails with the first race.
///
/// # Errors
/// When a crate is not among those, or a test fails or races.
pub fn run(workspace: &Workspace, crates: &[&str]) -> Result<(), String> {
    if let Some(other) = crates.iter().find(|name| !CRATES.contains(name)) {
        let known = CRATES.join(", ");
        return Err(format!("no crate {other} with threads; there are {known}"));
    }
    let crates = if crates.is_empty() { &CRATES } else { crates };
    let allowed = workspace.root().join(ALLOWED);
    let mut command = Command::new("rustup");
    command.current_dir(workspace.root());
    command.args(["run", "nightly", "cargo", "test", "--locked"]);
    command.args(["--lib", "--tests"]);
    command.args(["-Zbuild-std", "--target", TARGET]);
    command.args(crates.iter().flat_map(|name| ["-p", name]));
    command.env("RUSTFLAGS", "-Zsanitizer=thread -Cdebuginfo=1");
    command.env("CARGO_TARGET_DIR", workspace.target().join("races"));
    let options = format!(
        "halt_on_error=1 history_size=7 suppressions={}",
        allowed.display()
    );
    command.env("TSAN_OPTIONS", options);
    must("races", &mut command).map_err(|error| {
        format!("{error}\nit needs: rustup toolchain install nightly --component rust-src")
    })
}
