//! `cargo xtask check`: everything that judges the code, in one order, and beside it all that needs
//! the finished program: these wait for guests, timeouts and drives most of the time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::Workspace;
use crate::fuzz;
use crate::instructions;
use crate::tidy;
use crate::workspace::{ended, must};

/// A slice of the faults: those that a few seeds catch, one of each kind. Each change of the
/// simulator draws other histories, so one that needs a hundred seeds by the mean gets many more.
const PLANTED: [&str; 25] = [
    "--seeds",
    "1500",
    "AnswerBeforeExclusion",
    "AnswerBeforeEveryReactor",
    "ReadWithoutLanes",
    "ReadAnUnfilledMember",
    "TornRecordTaken",
    "MediaErrorStays",
    "NewVolumeNotZeroed",
    "ResyncSkipsAStripe",
    "LogSkipped",
    "DriveBeforeLogRetired",
    "ClaimsOfTheCommitCount",
    "DirtyBeforeEveryReactor",
    "InflightTakenTwice",
    "InflightReversed",
    "InflightForgotten",
    "AnsweredBeforeStatus",
    "ThroughWithoutFlush",
    "LeavesUndrained",
    "StopsBeforeRecovered",
    "MemoryLetGo",
    "ReplayBeforeExclusion",
    "ExclusionBeforeBegun",
    "HelpedLanesNotAwaited",
];
/// And some for the small models.
const PLANTED_SMALL: [&str; 7] = [
    "--exhaustive",
    "AnswerBeforeExclusion",
    "AcceptTheLowerUpdate",
    "RecordOverTheLast",
    "MemberForgottenInFlush",
    "WriteBeforeDirty",
    "LogSkipped",
];

/// And what assertions of the array see by themselves.
const PLANTED_ASSERTED: [&str; 3] = ["--asserted", "--seeds", "1000"];

/// Twice what the longest step takes on two cores beside everything else, its build with it.
const STEP_SECONDS_MAX: &str = "2700";

/// Runs all checks, one after another, and stops at the first that fails; the end-to-end tests run
/// beside them, to their end.
///
/// # Errors
/// Which check failed.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let cargo = |words: &str| {
        println!("== cargo {words}");
        must(
            &format!("cargo {words}"),
            &mut limited(&workspace.cargo(words)),
        )
    };
    cargo("fmt --all --check")?;
    cargo("fmt --manifest-path fuzz/Cargo.toml --check")?;
    println!("== tidy");
    tidy::run(workspace)?;
    cargo("clippy --workspace --all-targets --locked -- -D warnings")?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut guests = Command::new(program);
    guests.arg("e2e");
    let guests = Beside::start(
        "end-to-end tests",
        guests,
        workspace.target().join("e2e.log"),
    )?;
    let checked = rest(workspace, &cargo);
    if let Err(failed) = &checked {
        eprintln!("{failed}; the end-to-end tests go on");
    }
    let guests = guests.wait();
    checked.and(guests)
}

/// A command that is killed, with all that it began, when it takes far too long: a test that hangs
/// is told by its name then, above, and not by whoever runs out of patience with all of this.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--verbose", "--kill-after=10", STEP_SECONDS_MAX]);
    limited.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}

/// All that needs no finished program.
fn rest(workspace: &Workspace, cargo: &dyn Fn(&str) -> Result<(), String>) -> Result<(), String> {
    // With faults that are not switched on: the tests of a program that crashes switch some on.
    cargo("test --workspace --locked --features garboard/planted,sim/planted")?;
    sim(workspace, &["--seeds", "600"])?;
    sim(workspace, &["--seed", "600", "--seeds", "12", "--twice"])?;
    sim(workspace, &["--exhaustive"])?;
    planted(workspace, &PLANTED)?;
    planted(workspace, &PLANTED_SMALL)?;
    planted(workspace, &PLANTED_ASSERTED)?;
    instructions::run(workspace, false)?;
    isal(cargo)?;
    // What a guest changes meanwhile is loaded once: that is for the optimizer to break.
    cargo("test --package parity --release --locked")?;
    root_only(cargo)?;
    loom(workspace)?;
    fuzz::run(workspace, &["--runs", "10000"])?;
    documentation(workspace)
}

/// A program under way beside the others; what it says is shown at the end.
struct Beside {
    what: &'static str,
    child: Child,
    said: PathBuf,
}

impl Beside {
    fn start(what: &'static str, mut command: Command, said: PathBuf) -> Result<Beside, String> {
        println!(
            "== {what} begin beside what follows; see {}",
            said.display()
        );
        let wrong = |error: std::io::Error| format!("{what}: {error}");
        let output = File::create(&said).map_err(wrong)?;
        let errors = output.try_clone().map_err(wrong)?;
        let child = command.stdout(output).stderr(errors).spawn();
        let child = child.map_err(wrong)?;
        Ok(Beside { what, child, said })
    }

    /// # Errors
    /// How it ended, when it did not end well.
    fn wait(mut self) -> Result<(), String> {
        println!("== {}", self.what);
        let status = self.child.wait();
        let said = std::fs::read(&self.said).unwrap_or_default();
        print!("{}", String::from_utf8_lossy(&said));
        ended(self.what, status)
    }
}

/// The tests that compare parity with an independent implementation, and those too long for each
/// save.
fn isal(cargo: &dyn Fn(&str) -> Result<(), String>) -> Result<(), String> {
    if Path::new("/usr/include/isa-l.h").exists() {
        cargo("test --package parity --lib --locked --features isal")?;
    } else {
        println!("== ISA-L is not installed (libisal-dev): parity is not compared with it");
    }
    cargo("test --package parity --lib --locked -- --ignored")
}

/// The tests that need loop devices, where there are any.
fn root_only(cargo: &dyn Fn(&str) -> Result<(), String>) -> Result<(), String> {
    if std::fs::File::open("/dev/loop-control").is_err() {
        println!("== no loop devices here: drives on block devices are not tested");
        return Ok(());
    }
    cargo("test --package drive --lib --locked -- --ignored")
}

/// All interleavings of the structures that threads share. Its own target folder, since the flag
/// changes every crate.
fn loom(workspace: &Workspace) -> Result<(), String> {
    for tests in [
        "--package queues --package reactor --test loom",
        "--package array --lib interleavings",
    ] {
        let words = format!("test --release --locked {tests}");
        println!("== cargo {words} (loom)");
        let mut command = workspace.cargo(&words);
        command.env("RUSTFLAGS", "--cfg loom");
        command.env("CARGO_TARGET_DIR", workspace.target().join("loom"));
        must("loom", &mut command)?;
    }
    Ok(())
}

/// Runs the simulator with `words` as its command line.
///
/// # Errors
/// When it cannot be built, or a seed fails.
pub fn sim(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    // With faults that are not switched on, because all that the array can assert is asserted so.
    let run = "run --quiet --release --package sim --locked --features planted --bin sim --";
    let mut command = workspace.cargo(run);
    must("sim", command.args(words))
}

/// Breaks the array on purpose, one fault after another, and runs the simulator until it sees it.
///
/// # Errors
/// When it cannot be built, or a fault is not seen.
pub fn planted(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    let run = "run --quiet --release --package sim --locked --features planted --bin planted --";
    must("planted", workspace.cargo(run).args(words))
}

fn documentation(workspace: &Workspace) -> Result<(), String> {
    let words = "doc --workspace --no-deps --locked";
    println!("== cargo {words}");
    let mut command = workspace.cargo(words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    must("documentation", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_beside_the_others_fails() {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        for (script, expected) in [
            ("echo all; echo well >&2", Ok(())),
            (
                "echo all; echo well >&2; exit 3",
                Err("guests: failed (exit status: 3)"),
            ),
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let guests = Beside::start("guests", command, said.clone()).unwrap();
            assert_eq!(guests.wait(), expected.map_err(str::to_owned), "{script}");
            assert_eq!(std::fs::read_to_string(&said).unwrap(), "all\nwell\n");
        }
    }

    #[test]
    fn the_script_says_what_it_does_and_runs_nothing_when_it_is_given_words() {
        let folder = tempfile::tempdir().unwrap();
        let ran = folder.path().join("ran");
        // Whatever it would begin with leaves a trace, and ends it.
        for tool in ["dpkg-query", "cargo"] {
            let path = folder.path().join(tool);
            let text = format!("#!/bin/sh\ntouch {}\nexit 1\n", ran.display());
            std::fs::write(&path, text).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, executable).unwrap();
        }
        let usual = std::env::var("PATH").unwrap();
        for (words, status, said) in [
            (&["--help"][..], 0, "takes no argument"),
            (&["-h"], 0, "usage: ./check"),
            (&["first"], 1, "`first`"),
            (&["--no-guests"], 1, "./check --help"),
            (&[""], 1, "./check --help"),
        ] {
            let output = Command::new("bash")
                .arg(Workspace::here().root().join("check"))
                .args(words)
                .env("PATH", format!("{}:{usual}", folder.path().display()))
                .output()
                .unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8(text).unwrap();
            assert!(!ran.exists(), "{words:?}: {text}");
            assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
            assert!(text.contains(said), "{words:?}: {text}");
        }
    }
}
