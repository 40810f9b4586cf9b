//! `cargo xtask instructions`: counts the instructions of one request under valgrind and compares
//! them with what the tree says they are. Counts repeat where times do not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Workspace;

/// Where the counts are kept.
const BOUNDS: &str = "test/bench/instructions.txt";
/// A count may be so much larger than the one that is kept, in percent.
const TOLERANCE: u64 = 3;
/// What is measured, and how many requests of it.
const KINDS: [(&str, u64); 5] = [
    ("read", 4000),
    ("rmw", 4000),
    ("rmw6", 4000),
    ("mirror", 4000),
    ("full", 400),
];

const HEAD: &str = "\
# Instructions of one request from ring to completion, by `cargo xtask instructions`, which fails
# when it counts 3 % more; `--bless` writes what it counts. What the C library copies is not in it:
# which of its functions does that depends on the machine.
";

/// The counts of one machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Which instructions compute parity: counts of others tell nothing.
    kernels: String,
    by_kind: BTreeMap<String, u64>,
}

impl Counts {
    fn parse(text: &str) -> Result<Counts, String> {
        let mut counts = Counts::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.split_once(' ').ok_or(format!("{BOUNDS}: {line}"))?;
            if name == "kernels" {
                value.clone_into(&mut counts.kernels);
            } else {
                let value = value.parse().map_err(|_| format!("{BOUNDS}: {line}"))?;
                counts.by_kind.insert(name.to_owned(), value);
            }
        }
        Ok(counts)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}kernels {}\n", self.kernels);
        for (kind, count) in &self.by_kind {
            writeln!(text, "{kind} {count}").expect("a string takes all");
        }
        text
    }

    /// What is too much here, in words.
    fn above(&self, bounds: &Counts) -> Vec<String> {
        let too_much = |(kind, count): (&String, &u64)| {
            let kept = bounds.by_kind.get(kind);
            let fine = kept.is_some_and(|kept| count * 100 <= kept * (100 + TOLERANCE));
            (!fine).then(|| format!("{kind}: {count} instructions, {BOUNDS} says {kept:?}"))
        };
        self.by_kind.iter().filter_map(too_much).collect()
    }
}

/// What callgrind counted in the program itself, and in all.
fn sums(profile: &str) -> (u64, u64) {
    let (mut own, mut all) = (0, 0);
    let (mut is_own, mut is_call) = (false, false);
    let mut objects = BTreeMap::new();
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            // A name is written once, behind its number.
            if let Some((number, name)) = object.split_once(' ') {
                objects.insert(number, name);
            }
            let number = object.split(' ').next().unwrap_or_default();
            let name = objects.get(number).copied().unwrap_or_default();
            is_own = Path::new(name).file_name() == Some("instructions".as_ref());
        } else if let Some(object) = line.strip_prefix("cob=") {
            if let Some((number, name)) = object.split_once(' ') {
                objects.insert(number, name);
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok());
            // What was called has lines of its own.
            let cost: u64 = if is_call { 0 } else { cost.unwrap_or(0) };
            is_call = false;
            all += cost;
            own += if is_own { cost } else { 0 };
        }
    }
    (own, all)
}

/// Counts, and judges by the counts that are kept; `bless` keeps these instead.
///
/// # Errors
/// When the program cannot be built or run, or needs more instructions than before.
pub fn run(workspace: &Workspace, bless: bool) -> Result<(), String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("== valgrind is not installed: instructions are not counted");
        return Ok(());
    }
    println!("== instructions");
    workspace.build_programs()?;
    let mut counts = Counts::default();
    for (kind, requests) in KINDS {
        let (kernels, served, profile) = count(workspace, kind, requests)?;
        let (own, all) = sums(&profile);
        println!(
            "{kind}: {} and {} in copies",
            own / served,
            (all - own) / served
        );
        counts.kernels = kernels;
        counts.by_kind.insert(kind.to_owned(), own / served);
    }
    let path = workspace.root().join(BOUNDS);
    if bless {
        return fs::write(&path, counts.text()).map_err(|error| format!("{BOUNDS}: {error}"));
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("{BOUNDS}: {error}"))?;
    let bounds = Counts::parse(&text)?;
    if bounds.kernels != counts.kernels {
        println!(
            "== not compared: parity is computed by {} here, {BOUNDS} is of {}",
            counts.kernels, bounds.kernels
        );
        return Ok(());
    }
    let above = counts.above(&bounds);
    if above.is_empty() {
        return Ok(());
    }
    Err(above.join("\n"))
}

/// Runs one kind: which kernels computed, how many requests were served, and the profile.
fn count(
    workspace: &Workspace,
    kind: &str,
    requests: u64,
) -> Result<(String, u64, String), String> {
    let file = workspace.target().join(format!("callgrind.{kind}"));
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--collect-atstart=no"]);
    command.arg("--toggle-collect=instructions::serve");
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(workspace.target().join("release/instructions"));
    command.args([kind, &requests.to_string()]);
    let output = command
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("instructions {kind}: {said}{errors}"));
    }
    // "read: 4000 requests served, … ; kernels Avx2"
    let served = said.split(' ').nth(1).and_then(|word| word.parse().ok());
    let kernels = said.trim_end().rsplit(' ').next();
    let (Some(served), Some(kernels)) = (served, kernels) else {
        return Err(format!("instructions {kind} said: {said}"));
    };
    let profile = fs::read_to_string(&file).map_err(|error| format!("callgrind: {error}"))?;
    Ok((kernels.to_owned(), served, profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        Counts {
            kernels: "Avx2".to_owned(),
            by_kind: of.iter().map(|&(kind, n)| (kind.to_owned(), n)).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let some = counts(&[("read", 1000), ("rmw", 5000)]);
        assert_eq!(Counts::parse(&some.text()), Ok(some));
    }

    #[test]
    fn three_percent_more_is_allowed_and_no_more() {
        let bounds = counts(&[("read", 1000)]);
        assert!(counts(&[("read", 1030)]).above(&bounds).is_empty());
        assert_eq!(counts(&[("read", 1031)]).above(&bounds).len(), 1);
        assert_eq!(counts(&[("write", 1)]).above(&bounds).len(), 1);
    }

    #[test]
    fn calls_and_other_objects_do_not_count_as_own() {
        let profile = "ob=(1) /t/instructions\nfn=(1) serve\n10 5\n+3 7\ncob=(2) /lib/libc.so.6\n\
                       cfn=(2) memcpy\ncalls=1 0\n* 400\nob=(2)\nfn=(2)\n0 400\nob=(1)\nfn=(3) x\n\
                       -1 2\n";
        assert_eq!(sums(profile), (14, 414));
    }
}
