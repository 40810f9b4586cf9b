//! Words that may stand in no file at all: marks of unfinished work, and places outside the
//! project, which stands alone.
//!
//! The words are put together here from parts, since this file is judged too.

use super::source::{SourceFile, has_word};

/// Marks of unfinished work.
const MARKS: [[&str; 2]; 2] = [["FIX", "ME"], ["XX", "X"]];
/// Paths of somebody's machine. Found where a path may begin.
const OUTSIDE: [[&str; 2]; 2] = [["/wo", "rk"], ["../sha", "red"]];
/// Hosts that packages come from: a build asks whatever registry its machine is set up with.
const HOSTS: [[&str; 2]; 5] = [
    ["index.crates", ".io"],
    ["static.crates", ".io"],
    ["deb.debian", ".org"],
    ["pypi", ".org"],
    ["registry.npmjs", ".org"],
];
/// The only registry Cargo.lock may name.
const LOCK_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Lines of `file` with such a word.
pub(crate) fn findings(file: &SourceFile) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for mark in MARKS.map(|parts| parts.concat()) {
            if has_word(line, &mark) {
                findings.push(file.finding(number, &format!("{mark}: finish it")));
            }
        }
        for place in OUTSIDE.map(|parts| parts.concat()) {
            if begins_path(line, &place) {
                findings.push(file.finding(number, &format!("{place}: outside the project")));
            }
        }
        for host in HOSTS.map(|parts| parts.concat()) {
            if line.contains(&host) {
                findings.push(file.finding(number, &format!("{host}: names a package host")));
            }
        }
    }
    findings
}

/// Sources in the lock file's text that are not the public registry.
pub(crate) fn foreign_sources(lock: &str) -> Vec<String> {
    let sources = (1..)
        .zip(lock.lines())
        .filter(|(_, line)| line.starts_with("source = "));
    sources
        .filter(|(_, line)| *line != format!("source = \"{LOCK_SOURCE}\""))
        .map(|(number, line)| format!("Cargo.lock:{number}: not the public registry: {line}"))
        .collect()
}

/// Whether `path` stands in `line` as the beginning of a path, not as a part of a longer one.
fn begins_path(line: &str, path: &str) -> bool {
    let in_path = |char: Option<char>| {
        char.is_some_and(|char| char.is_alphanumeric() || "._-/".contains(char))
    };
    let ends = |rest: Option<char>| !rest.is_some_and(|char| char.is_alphanumeric() || char == '-');
    line.match_indices(path).any(|(start, _)| {
        let rest = line[start + path.len()..].chars().next();
        !in_path(line[..start].chars().next_back()) && (path.ends_with('/') || ends(rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in(text: &str) -> usize {
        findings(&SourceFile::new("a.md", text.to_owned())).len()
    }

    #[test]
    fn each_word_is_found() {
        let all = MARKS.iter().chain(&OUTSIDE).chain(&HOSTS);
        for word in all.map(|parts| parts.concat()) {
            assert_eq!(findings_in(&format!("see {word}")), 1, "{word}");
            assert_eq!(findings_in(&format!("`{word}`")), 1, "{word}");
        }
    }

    #[test]
    fn parts_of_other_words_and_paths_are_not() {
        for text in [
            "test/workload",
            "src/work.rs",
            "/workspace",
            "MAXXXL",
            "a/../shared-memory",
        ] {
            assert_eq!(findings_in(text), 0, "{text}");
        }
    }

    #[test]
    fn a_lock_file_may_name_one_registry_only() {
        let good = format!("name = \"a\"\nsource = \"{LOCK_SOURCE}\"\n");
        assert_eq!(foreign_sources(&good), Vec::<String>::new());
        let bad = format!("{good}source = \"registry+https://mirror.example/index\"\n");
        assert_eq!(foreign_sources(&bad).len(), 1);
        assert_eq!(
            foreign_sources("source = \"git+https://example/x#1\"").len(),
            1
        );
    }
}
