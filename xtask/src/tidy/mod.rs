//! `cargo xtask tidy`: the rules of STYLE.md that a program can check. Each rule is a pure function
//! from text to findings, with tests that show it failing; this file gathers the text.

mod direction;
mod licences;
mod mentions;
mod shape;
mod source;
mod unsafety;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Workspace;
use source::SourceFile;

/// Folders that hold nothing of ours.
const PASSED_OVER: [&str; 3] = [".git", "target", "corpus"];
/// Where the counts of unsafe blocks are kept.
const UNSAFE_COUNTS: &str = "xtask/unsafe.txt";

/// Judges the whole workspace.
///
/// # Errors
/// All findings, one on a line, or why the workspace could not be read.
pub fn run(workspace: &Workspace) -> Result<(), String> {
    let files = read_files(workspace.root())?;
    let metadata = read_metadata(workspace, "Cargo.toml")?;
    // A workspace of its own, with a lock of its own: that it still fits is asked here already.
    read_metadata(workspace, "fuzz/Cargo.toml")?;
    let mut findings = Vec::new();
    for file in &files {
        findings.extend(mentions::findings(file));
        if file.is_rust() {
            findings.extend(shape::findings(file));
        }
    }
    let islands = unsafety::islands(text_of(&files, "STYLE.md")?)?;
    findings.extend(unsafety::strays(&files, &islands));
    let counts = unsafety::counts(&files);
    findings.extend(unsafety::growth(&counts, text_of(&files, UNSAFE_COUNTS)?));
    findings.extend(direction::findings(&metadata, workspace.root())?);
    findings.extend(licences::findings(&metadata)?);
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        findings.extend(mentions::foreign_sources(text_of(&files, lock)?));
    }

    print_counts(&counts);
    if findings.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\ntidy: {} findings",
        findings.join("\n"),
        findings.len()
    ))
}

/// Writes the counts of unsafe blocks as they are now. A count that grew needs a sentence in the
/// commit that keeps it.
///
/// # Errors
/// Why a file could not be read or written.
pub fn bless(workspace: &Workspace) -> Result<(), String> {
    let files = read_files(workspace.root())?;
    let text = unsafety::encode(&unsafety::counts(&files));
    fs::write(workspace.root().join(UNSAFE_COUNTS), text).map_err(|error| error.to_string())
}

fn print_counts(counts: &BTreeMap<String, usize>) {
    let total: usize = counts.values().sum();
    println!("unsafe blocks outside tests: {total}");
    for (folder, count) in counts {
        println!("{count:>5} {folder}");
    }
}

fn text_of<'f>(files: &'f [SourceFile], path: &str) -> Result<&'f str, String> {
    let file = files.iter().find(|file| file.path == path);
    file.map(|file| file.text.as_str())
        .ok_or_else(|| format!("{path}: missing"))
}

/// What cargo knows about the packages of `manifest` on the machine this runs on.
///
/// # Errors
/// Also when its lock does not fit what it needs now.
fn read_metadata(workspace: &Workspace, manifest: &str) -> Result<serde_json::Value, String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = workspace
        .cargo("metadata --format-version 1 --locked --filter-platform")
        .args([&platform, "--manifest-path", manifest])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata of {manifest}: failed"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Every text file of the workspace, sorted by path.
fn read_files(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| error.to_string())?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.file_name();
            let kind = entry.file_type().map_err(|error| error.to_string())?;
            // `.git` is a file where the workspace is one of several work trees.
            if PASSED_OVER.iter().any(|passed| name == *passed) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && let Ok(bytes) = fs::read(entry.path())
                && let Ok(text) = String::from_utf8(bytes)
            {
                let path = entry.path();
                let path = path.strip_prefix(root).expect("found below the root");
                files.push(SourceFile::new(&path.to_string_lossy(), text));
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        assert_eq!(run(&Workspace::here()), Ok(()));
    }

    #[test]
    fn built_and_foreign_files_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        for (folder, name) in [
            ("target", "a.rs"),
            ("src", "b.rs"),
            (".git", "c"),
            ("src", "d"),
        ] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
            fs::write(root.path().join(folder).join(name), "//! x\n").unwrap();
        }
        fs::write(root.path().join("src/.git"), "gitdir: elsewhere\n").unwrap();
        fs::write(root.path().join("src/image"), [0xFF, 0xFE]).unwrap();
        let files = read_files(root.path()).unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["src/b.rs", "src/d"]);
    }
}
