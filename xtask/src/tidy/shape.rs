//! What a Rust file looks like: its head, its length, its lines, and words that mean "not
//! finished".

use super::source::{SourceFile, has_word};

const LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;

/// Code that panics instead of being written, or prints to a developer.
const UNFINISHED_MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Everything about `file` that a reader would stumble over.
pub(crate) fn findings(file: &SourceFile) -> Vec<String> {
    let mut findings = Vec::new();
    let mut lines = file.text.lines();
    let first = lines.find(|line| !line.starts_with("#!"));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.push(file.finding(1, "does not open with //! (what lives here)"));
    }
    let lines = file.lines_before_tests();
    if !file.is_test() && lines > LINES_MAX {
        findings.push(file.finding(lines, &format!("{lines} lines; {LINES_MAX} at most")));
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        let columns = line.chars().count();
        // A sentence for people stays in one piece, so that it can be searched for, and so
        // does a row of a table.
        let trimmed = line.trim_start();
        let holds_text = line.contains('"') && !trimmed.starts_with("//");
        let is_table = trimmed.starts_with("//! |") || trimmed.starts_with("/// |");
        if columns > COLUMNS_MAX && !holds_text && !is_table {
            findings
                .push(file.finding(number, &format!("{columns} columns; {COLUMNS_MAX} at most")));
        }
    }
    for (number, line) in (1..).zip(file.code.lines()) {
        for name in UNFINISHED_MACROS {
            if has_word(line, name) && line.contains(&format!("{name}!")) {
                findings.push(file.finding(number, &format!("{name}!")));
            }
        }
        if line.contains("#[ignore]") {
            findings.push(file.finding(number, "a test is ignored without a reason"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in(path: &str, text: &str) -> Vec<String> {
        findings(&SourceFile::new(path, text.to_owned()))
    }

    #[test]
    fn a_good_file_passes() {
        let text = "//! Good.\n// \"todo!\" in prose\nfn f() { g(\"dbg!(x)\") }\n";
        assert_eq!(findings_in("a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_head_is_found() {
        let found = findings_in("a.rs", "fn f() {}\n");
        assert_eq!(found, ["a.rs:1: does not open with //! (what lives here)"]);
        assert_eq!(findings_in("a.rs", "").len(), 1);
        let text = "#![allow(x)]\n//! x\n";
        assert_eq!(findings_in("a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_tests() {
        let text = format!("//! x\n{}", "fn f() {}\n".repeat(LINES_MAX));
        assert_eq!(
            findings_in("a.rs", &text),
            ["a.rs:601: 601 lines; 600 at most"]
        );
        assert_eq!(findings_in("a/tests.rs", &text), Vec::<String>::new());
        let tests = format!("//! x\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(findings_in("a.rs", &tests), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_is_found_in_characters() {
        let line = format!("// {}", "é".repeat(98));
        assert_eq!(
            findings_in("a.rs", &format!("//! x\n{line}\n")),
            ["a.rs:2: 101 columns; 100 at most"]
        );
        let text = format!("f(\"{}\");", "x".repeat(100));
        assert_eq!(findings_in("a.rs", &format!("//! x\n{text}\n")).len(), 0);
        let text = format!("//! | {} |", "x".repeat(100));
        assert_eq!(findings_in("a.rs", &text).len(), 0);
        let line = format!("// {}", "é".repeat(97));
        assert_eq!(
            findings_in("a.rs", &format!("//! x\n{line}\n")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn unfinished_code_is_found() {
        for name in UNFINISHED_MACROS {
            let text = format!("//! x\nfn f() {{ {name}!() }}\n");
            assert_eq!(findings_in("a.rs", &text), [format!("a.rs:2: {name}!")]);
        }
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        let found = findings_in("a.rs", "//! x\n#[ignore]\nfn f() {}\n");
        assert_eq!(found, ["a.rs:2: a test is ignored without a reason"]);
        let text = "//! x\n#[ignore = \"root\"]\nfn f() {}\n";
        assert_eq!(findings_in("a.rs", text), Vec::<String>::new());
    }
}
