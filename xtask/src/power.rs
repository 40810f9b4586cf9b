//! `cargo xtask power`: power loss on a real kernel, in full. The work is done by
//! `test/e2e/power.test.sh`, of which `cargo xtask e2e` runs a short slice.

use std::path::Path;
use std::process::Command;

use crate::Workspace;
use crate::workspace::must;

/// Level, members, the member that is failed before, if any, or how many are lost with the power,
/// and options of the array.
const RUNS: [&str; 23] = [
    "1:2:",
    "1:2:0",
    "5:3:",
    "5:3:1",
    "5:3::--unwritten-regions",
    "6:4:",
    "6:4:2",
    "6:4:2:--unwritten-regions",
    "10:4:",
    "10:4:3",
    "7:5:",
    "7:5:1",
    "50:6::--group-size=3",
    "50:6:4:--group-size=3",
    "60:8::--group-size=4",
    "60:8:5:--group-size=4",
    "70:10::--group-size=5",
    "70:10:6:--group-size=5",
    "nm:6::--parity=2",
    "nm:6:1:--parity=2",
    "5:3:lost=1:--write-hole=strict",
    "6:5:lost=2:--write-hole=strict",
    "7:7:lost=3:--write-hole=strict",
];
/// Cut points of each run when nobody says.
const CUTS: &str = "1000";
/// Where replays are fast: nothing is kept there.
const MEMORY: &str = "/dev/shm";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'w> {
    cuts: &'w str,
    seed: &'w str,
    /// A fault of `array::planted`, which the recording engine then has.
    planted: Option<&'w str>,
    runs: Vec<&'w str>,
}

impl<'w> Asked<'w> {
    fn parse(words: &[&'w str]) -> Result<Asked<'w>, String> {
        let mut asked = Asked {
            cuts: CUTS,
            seed: "1",
            planted: None,
            runs: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} wants a value"));
            match *word {
                "--cuts" => asked.cuts = value()?,
                "--seed" => asked.seed = value()?,
                "--planted" => asked.planted = Some(value()?),
                level => {
                    let of = |run: &&&str| run.split(':').next() == Some(level);
                    let before = asked.runs.len();
                    asked.runs.extend(RUNS.iter().filter(of));
                    if asked.runs.len() == before {
                        return Err(format!(
                            "{level}: there are the levels 1, 5, 6, 7, 10, 50, 60, 70 and nm"
                        ));
                    }
                }
            }
        }
        if asked.runs.is_empty() {
            asked.runs = RUNS.to_vec();
        }
        Ok(asked)
    }
}

/// Records and replays the levels that `words` name, or all.
///
/// # Errors
/// When the programs cannot be built, or something is read that must not be; with a planted fault,
/// when nothing wrong is found.
pub fn run(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    let asked = Asked::parse(words)?;
    let build = "build --release --package garboard --package e2e --locked";
    must("build", &mut workspace.cargo(build))?;
    let mut test = Command::new(workspace.root().join("test/e2e/power.test.sh"));
    test.current_dir(workspace.root());
    test.env("POWER_RUNS", asked.runs.join(" "));
    test.env("POWER_CUTS", asked.cuts);
    test.env("POWER_SEED", asked.seed);
    if let Some(fault) = asked.planted {
        let build = "build --package garboard --features planted --locked";
        must("build", &mut workspace.cargo(build))?;
        test.env("POWER_PLANTED", fault);
        let recorder = workspace.target().join("debug/garboard");
        test.env("POWER_RECORDER", recorder);
    }
    if std::env::var_os("TMPDIR").is_none() && Path::new(MEMORY).is_dir() {
        test.env("TMPDIR", MEMORY);
    }
    must("power", &mut test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_run_optimal_and_degraded() {
        let asked = Asked::parse(&["5", "--cuts", "7", "--planted", "X"]).unwrap();
        let wanted = Asked {
            cuts: "7",
            seed: "1",
            planted: Some("X"),
            runs: vec![
                "5:3:",
                "5:3:1",
                "5:3::--unwritten-regions",
                "5:3:lost=1:--write-hole=strict",
            ],
        };
        assert_eq!(asked, wanted);
        assert_eq!(Asked::parse(&[]).unwrap().runs, RUNS);
        assert!(Asked::parse(&["8"]).is_err());
        assert!(Asked::parse(&["--cuts"]).is_err());
    }
}
