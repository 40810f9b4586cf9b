//! `cargo xtask fuzz`: the programs of `fuzz/`, built so that libFuzzer sees which branches inputs
//! take, and run one after another.
//!
//! Everything that this needs is in stable Rust: the coverage is LLVM's own pass.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Workspace;
use crate::workspace::must;

/// What LLVM adds to every branch and comparison.
const COVERAGE: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1";

/// Seconds of each target when nobody says.
const SECONDS: &str = "600";
/// Longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;

/// The targets, as `fuzz/Cargo.toml` names them.
const TARGETS: [&str; 8] = [
    "superblock",
    "config",
    "region",
    "log",
    "queue",
    "inflight",
    "messages",
    "api",
];

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wishes {
    seconds: Option<String>,
    runs: Option<String>,
    keep: bool,
    targets: Vec<String>,
}

impl Wishes {
    fn read(words: &[&str]) -> Result<Wishes, String> {
        let mut wishes = Wishes::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--seconds" | "--runs" => {
                    let number = words.next().filter(|word| word.parse::<u32>().is_ok());
                    let number = number.ok_or(format!("{word} takes a number"))?;
                    let number = Some((*number).to_owned());
                    if word == "--runs" {
                        wishes.runs = number;
                    } else {
                        wishes.seconds = number;
                    }
                }
                "--keep" => wishes.keep = true,
                target if TARGETS.contains(&target) => wishes.targets.push(target.to_owned()),
                other => {
                    let known = TARGETS.join(", ");
                    return Err(format!("no fuzz target {other}; there are {known}"));
                }
            }
        }
        if wishes.targets.is_empty() {
            wishes.targets = TARGETS.map(str::to_owned).to_vec();
        }
        Ok(wishes)
    }
}

impl Wishes {
    /// How long a target runs, as libFuzzer is told. So many runs are the same ones each time.
    fn length(&self) -> Vec<String> {
        let seconds = self.seconds.as_deref().unwrap_or(SECONDS);
        match &self.runs {
            Some(runs) => vec![format!("-runs={runs}"), "-seed=1".to_owned()],
            None => vec![format!("-max_total_time={seconds}")],
        }
    }
}

/// Builds and runs fuzz targets.
///
/// # Errors
/// When one cannot be built, or finds something: where the input is that it found.
pub fn run(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    let wishes = Wishes::read(words)?;
    let folder = workspace.root().join("fuzz");
    let built = build(workspace, &folder)?;
    let length = wishes.length();
    for target in &wishes.targets {
        println!("== fuzz {target}");
        let program = built.join(target);
        let (found, corpus) = (
            workspace.target().join("fuzz-found").join(target),
            folder.join("corpus").join(target),
        );
        if wishes.runs.is_some() && found.exists() {
            // What was found before would make other runs of them.
            fs::remove_dir_all(&found).map_err(|error| format!("{found:?}: {error}"))?;
        }
        for folder in [&found, &corpus] {
            fs::create_dir_all(folder).map_err(|error| format!("{folder:?}: {error}"))?;
        }
        let artifacts = format!("-artifact_prefix={}/", workspace.target().display());
        // The first folder gets what is new, so that a run of CI changes nothing that is kept.
        let mut command = std::process::Command::new(&program);
        command
            .args(&length)
            .arg(format!("-max_len={INPUT_BYTES_MAX}"))
            .args(["-timeout=20", "-print_final_stats=1", "-verbosity=0"])
            .arg(&artifacts)
            .args([&found, &corpus]);
        must(&format!("fuzz target {target}"), &mut command)?;
        if wishes.keep {
            let mut command = std::process::Command::new(&program);
            command
                .args(["-merge=1", "-verbosity=0"])
                .args([&corpus, &found]);
            must(&format!("keeping what {target} found"), &mut command)?;
        }
    }
    Ok(())
}

/// Builds all targets; the folder that they are in.
fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, String> {
    // A target by name keeps the flags from what runs during the build.
    let machine = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = workspace.target().join("fuzz");
    println!("== building the fuzz targets");
    let mut command = workspace.cargo("build --quiet --release --bins --locked --target");
    command
        .arg(&machine)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", COVERAGE);
    must("fuzz", &mut command)?;
    Ok(target.join(machine).join("release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let wishes = Wishes::read(&["--seconds", "5", "queue", "--keep", "api"]).unwrap();
        assert_eq!(wishes.seconds.as_deref(), Some("5"));
        assert_eq!(wishes.targets, ["queue", "api"]);
        assert!(wishes.keep);
        assert_eq!(Wishes::read(&[]).unwrap().targets.len(), TARGETS.len());
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["rings"]] {
            assert!(Wishes::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_target_is_built() {
        let manifest = Workspace::here().root().join("fuzz/Cargo.toml");
        let text = fs::read_to_string(manifest).unwrap();
        let mut named: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("path = \"targets/")?
                    .strip_suffix(".rs\"")
            })
            .filter(|name| *name != "common")
            .collect();
        let mut known = TARGETS.to_vec();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
