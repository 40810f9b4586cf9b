//! Unsafe code: only on the islands that STYLE.md lists, and no more of it than xtask/unsafe.txt
//! says.

use std::collections::BTreeMap;

use super::source::{SourceFile, has_word};

/// The paths in backticks at the start of the list below the heading "Islands" of STYLE.md.
///
/// # Errors
/// When there is no such list.
pub(crate) fn islands(style: &str) -> Result<Vec<String>, String> {
    let below = style
        .lines()
        .skip_while(|line| !line.trim_start_matches('#').starts_with(" Islands"));
    let list = below.skip(1).take_while(|line| !line.starts_with('#'));
    let paths = list.filter_map(|line| line.strip_prefix("* `")?.split('`').next());
    let islands: Vec<String> = paths.map(str::to_owned).collect();
    if islands.is_empty() {
        return Err("STYLE.md: no list of islands below a heading \"Islands\"".to_owned());
    }
    Ok(islands)
}

/// Unsafe code elsewhere.
pub(crate) fn strays(files: &[SourceFile], islands: &[String]) -> Vec<String> {
    let on_island = |file: &SourceFile| {
        let mut islands = islands.iter();
        islands.any(|island| file.path == *island || file.path.starts_with(&format!("{island}/")))
    };
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !on_island(file))
    {
        for (number, line) in (1..).zip(file.code.lines()) {
            if has_word(line, "unsafe") {
                findings.push(file.finding(number, "unsafe outside the islands of STYLE.md"));
            }
        }
    }
    findings
}

/// How many unsafe blocks each crate of the product has outside its tests, by the crate's folder.
pub(crate) fn counts(files: &[SourceFile]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        let Some((folder, _)) = file.path.split_once("/src/") else {
            continue;
        };
        if folder.starts_with("test/") {
            continue;
        }
        let lines = file.code.lines().take(file.lines_before_tests());
        let blocks = lines
            .filter(|line| has_word(line, "unsafe") && line.contains("unsafe {"))
            .count();
        if blocks > 0 {
            *counts.entry(folder.to_owned()).or_insert(0) += blocks;
        }
    }
    counts
}

/// The counts as the text of xtask/unsafe.txt: a crate's folder and its number on each line.
pub(crate) fn encode(counts: &BTreeMap<String, usize>) -> String {
    let lines = counts
        .iter()
        .map(|(folder, count)| format!("{folder} {count}\n"));
    lines.collect()
}

/// Where `counts` is not what `kept` says. A smaller number is a finding too: else the room would
/// be filled again unseen.
pub(crate) fn growth(counts: &BTreeMap<String, usize>, kept: &str) -> Vec<String> {
    if encode(counts) == kept {
        return Vec::new();
    }
    let kept: BTreeMap<&str, &str> = kept
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let mut folders: Vec<&str> = counts.keys().map(String::as_str).collect();
    folders.extend(kept.keys());
    folders.sort_unstable();
    folders.dedup();
    let mut findings = Vec::new();
    for folder in folders {
        let now = counts.get(folder).copied().unwrap_or(0).to_string();
        let before = kept.get(folder).copied().unwrap_or("0");
        if now != before {
            findings.push(format!(
                "{folder}: {now} unsafe blocks, xtask/unsafe.txt says {before}; if that is right, \
                 say why in the commit and run `cargo xtask tidy --bless`"
            ));
        }
    }
    if findings.is_empty() {
        findings.push("xtask/unsafe.txt: not as `cargo xtask tidy --bless` writes it".to_owned());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile::new(path, text.to_owned())
    }

    #[test]
    fn islands_are_read_from_the_list() {
        let style = "# S\n* `no`: x\n\n### Islands\nText `no`.\n\n* `base/a`: why\n* `b/c.rs`\n## Next\n* `no`\n";
        assert_eq!(islands(style).unwrap(), ["base/a", "b/c.rs"]);
        assert!(islands("# Style\n* `base/a`\n").is_err());
    }

    #[test]
    fn unsafe_outside_an_island_is_found() {
        let islands = ["base/a".to_owned(), "b/src/c.rs".to_owned()];
        let files = [
            file("base/a/src/lib.rs", "unsafe { x() }"),
            file("b/src/c.rs", "unsafe fn f() {}"),
            file("base/ab/src/lib.rs", "// unsafe in prose\nunsafe { x() }"),
            file("b/src/d.rs", "unsafe impl Send for X {}"),
            file("c/src/d.rs", "#![forbid(unsafe_code)]"),
        ];
        let found = strays(&files, &islands);
        let paths: Vec<&str> = found
            .iter()
            .filter_map(|line| line.split(": ").next())
            .collect();
        assert_eq!(paths, ["base/ab/src/lib.rs:2", "b/src/d.rs:1"]);
    }

    #[test]
    fn blocks_are_counted_outside_tests() {
        let files = [
            file(
                "a/src/x.rs",
                "let a = unsafe { f() };\nlet b = unsafe { f() };\nunsafe fn g() {}",
            ),
            file(
                "a/src/y.rs",
                "unsafe { f() }\n#[cfg(test)]\nmod tests {\nunsafe { f() }\n}",
            ),
            file("a/src/tests.rs", "unsafe { f() }"),
            file("b/src/lib.rs", "fn f() {}"),
            file("test/c/src/lib.rs", "unsafe { f() }"),
        ];
        assert_eq!(counts(&files), BTreeMap::from([("a".to_owned(), 3)]));
    }

    #[test]
    fn any_change_of_a_count_is_found() {
        let counts = BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 1)]);
        assert_eq!(growth(&counts, &encode(&counts)), Vec::<String>::new());
        for kept in [
            "a 2\nb 1\n",
            "a 4\nb 1\n",
            "a 3\n",
            "a 3\nb 1\nc 1\n",
            "b 1\na 3\n",
        ] {
            assert_eq!(growth(&counts, kept).len(), 1, "{kept}");
        }
    }
}
