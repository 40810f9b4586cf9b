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
const PLANTED_ASSERTED: [&str; 3] = ["--asserted", "--seeds", "300"];

/// Runs all checks, one after another, and stops at the first that fails; the end-to-end tests run
/// beside them, to their end.
///
/// # Errors
/// Which check failed.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let cargo = |words: &str| {
        println!("== cargo {words}");
        must(&format!("cargo {words}"), &mut workspace.cargo(words))
    };
    cargo("fmt --all --check")?;
    cargo("fmt --manifest-path fuzz/Cargo.toml --check")?;
    println!("== tidy");
    tidy::run(workspace)?;
    cargo("clippy --workspace --all-targets --locked -- -D warnings")?;
    let guests = EndToEnd::start(workspace)?;
    let checked = rest(workspace, &cargo);
    if let Err(failed) = &checked {
        eprintln!("{failed}; the end-to-end tests go on");
    }
    let guests = guests.wait();
    checked.and(guests)
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

/// The end-to-end tests, under way in a process of their own; what they say is shown at the end.
struct EndToEnd {
    child: Child,
    said: PathBuf,
}

impl EndToEnd {
    fn start(workspace: &Workspace) -> Result<EndToEnd, String> {
        let said = workspace.target().join("e2e.log");
        println!(
            "== the end-to-end tests begin beside what follows; see {}",
            said.display()
        );
        let wrong = |error: std::io::Error| format!("end-to-end tests: {error}");
        let output = File::create(&said).map_err(wrong)?;
        let errors = output.try_clone().map_err(wrong)?;
        let program = std::env::current_exe().map_err(wrong)?;
        let mut command = Command::new(program);
        command.arg("e2e").stdout(output).stderr(errors);
        let child = command.spawn().map_err(wrong)?;
        Ok(EndToEnd { child, said })
    }

    fn wait(mut self) -> Result<(), String> {
        println!("== the end-to-end tests");
        let status = self.child.wait();
        let said = std::fs::read(&self.said).unwrap_or_default();
        print!("{}", String::from_utf8_lossy(&said));
        ended("end-to-end tests", status)
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

/// All interleavings of the structures that two threads share. Its own target folder, since the
/// flag changes every crate.
fn loom(workspace: &Workspace) -> Result<(), String> {
    let words = "test --package queues --release --test loom --locked";
    println!("== cargo {words} (loom)");
    let mut command = workspace.cargo(words);
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", workspace.target().join("loom"));
    must("loom", &mut command)
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
