//! `cargo xtask miri`: the tests of crates with unsafe code, interpreted by Miri. It sees accesses
//! outside of what was allocated, of memory that is gone or holds no value, misaligned ones,
//! unordered ones of two threads, and those against the rules of references.
//!
//! It sees what a test does, and knows few system calls: what needs files or mappings is ignored
//! there. It needs Rust's nightly toolchain with `miri`, so it is no part of `check`.

use std::process::Command;

use crate::Workspace;
use crate::workspace::must;

/// What is interpreted: a crate, and which of its tests.
const CRATES: [(&str, &[&str]); 6] = [
    ("block", &[]),
    ("queues", &[]),
    ("memory", &[]),
    ("virtqueue", &[]),
    ("parity", &[]),
    // What a drive holds that nobody has vouched for. Records are of 64 KiB, which takes hours.
    ("array", &["superblock"]),
];

/// Interprets the tests of `crates`, or of all.
///
/// # Errors
/// When a crate is not among them, or the first time that a test does what it must not.
pub fn run(workspace: &Workspace, crates: &[&str]) -> Result<(), String> {
    if let Some(other) = crates
        .iter()
        .find(|name| !CRATES.iter().any(|(known, _)| known == *name))
    {
        let known = CRATES.map(|(name, _)| name).join(", ");
        return Err(format!("no crate {other} for Miri; there are {known}"));
    }
    let wanted = |name: &str| crates.is_empty() || crates.contains(&name);
    for (name, tests) in CRATES.iter().filter(|(name, _)| wanted(name)) {
        let mut command = Command::new("rustup");
        command.current_dir(workspace.root());
        command.args(["run", "nightly", "cargo", "miri", "test", "--locked"]);
        command.args(["-p", name, "--lib"]);
        if tests.is_empty() {
            command.arg("--tests");
        }
        command.arg("--").args(*tests);
        // Tests ask for the time, and one forgets a buffer on purpose.
        let flags = "-Zmiri-disable-isolation -Zmiri-ignore-leaks";
        command.env("MIRIFLAGS", flags);
        command.env("CARGO_TARGET_DIR", workspace.target().join("miri"));
        must(&format!("miri {name}"), &mut command).map_err(|error| {
            format!("{error}\nit needs: rustup toolchain install nightly --component miri,rust-src")
        })?;
    }
    Ok(())
}
