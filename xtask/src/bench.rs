//! `cargo xtask bench`: the programs of `test/bench`, which measure parts of the engine against
//! each other or against a limit in the same run. Tables for people: nothing here fails by time.
//! What a user's drives, arrays and exports reach is measured by `garboard bench`.

use std::process::Command;

use crate::Workspace;
use crate::workspace::must;

/// The programs that there are.
const PROGRAMS: [&str; 4] = ["reactors", "iops", "beside", "idle"];
/// What is run when nothing is named: two minutes.
const RUNS: [&[&str]; 5] = [
    &["reactors", "read", "0.5", "5"],
    &["reactors", "rmw", "0.5", "5"],
    &["reactors", "full", "0.5", "5"],
    &["reactors", "bound", "0.5", "5"],
    &["iops"],
];

/// Builds and runs the named program with its words, or the usual ones one after another.
///
/// # Errors
/// When there is no such program, or one cannot be built or fails.
pub fn run(workspace: &Workspace, words: &[&str]) -> Result<(), String> {
    let named = [words];
    let runs = if words.is_empty() { &RUNS[..] } else { &named };
    if let Some(other) = runs.iter().find(|run| !PROGRAMS.contains(&run[0])) {
        let known = PROGRAMS.join(", ");
        return Err(format!(
            "no program {} of test/bench; there are {known}",
            other[0]
        ));
    }
    workspace.build_programs()?;
    for run in runs {
        println!("== {}", run.join(" "));
        let mut program = Command::new(workspace.target().join("release").join(run[0]));
        must(&run.join(" "), program.args(&run[1..]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_program_is_named_with_those_that_there_are() {
        let told = run(&Workspace::here(), &["speed"]).expect_err("there is none");
        assert!(told.contains("no program speed"), "{told}");
        assert!(told.contains("reactors, iops"), "{told}");
    }

    #[test]
    fn each_usual_run_is_of_a_program_that_the_crate_has() {
        let manifest = Workspace::here().root().join("test/bench/Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect("it is there");
        for program in PROGRAMS.iter().chain(RUNS.iter().map(|run| &run[0])) {
            assert!(PROGRAMS.contains(program), "{program}");
            let declared = format!("name = \"{program}\"\n");
            assert!(manifest.contains(&declared), "{program}");
        }
    }
}
