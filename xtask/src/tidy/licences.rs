//! Licences of everything that is linked: permissive ones only, judged from the SPDX expressions
//! in the packages' manifests (SPDX specification 2.3, annex D).

use serde_json::Value;

/// Licences that ask for no more than a notice.
const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Packages whose licence is not on the list.
///
/// # Errors
/// When `metadata` is not what `cargo metadata` prints.
pub(crate) fn findings(metadata: &Value) -> Result<Vec<String>, String> {
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata: no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            findings.push(format!(
                "package {name}: licence {licence} is not on the list"
            ));
        }
    }
    Ok(findings)
}

/// Whether the expression can be fulfilled with allowed licences alone.
fn is_allowed(expression: &str) -> bool {
    // "MIT/Apache-2.0" is how old manifests say OR.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    any_of(&mut words).is_some_and(|allowed| allowed && words.is_empty())
}

/// `A OR B …`; `None` when the text is no expression.
fn any_of(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = all_of(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        allowed |= all_of(words)?;
    }
    Some(allowed)
}

/// `A AND B …`, which binds tighter than OR.
fn all_of(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        allowed &= one(words)?;
    }
    Some(allowed)
}

/// One licence, perhaps WITH an exception, or an expression in parentheses.
fn one(words: &mut &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let allowed = any_of(words)?;
        let (close, rest) = words.split_first()?;
        *words = rest;
        return (*close == ")").then_some(allowed);
    }
    if words.first() == Some(&"WITH") {
        let exception = words.get(1)?;
        let licence = format!("{first} WITH {exception}");
        *words = &words[2..];
        return Some(ALLOWED.contains(&licence.as_str()));
    }
    Some(ALLOWED.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissive_expressions_pass() {
        for licence in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "GPL-2.0 AND Zlib OR MIT",
        ] {
            assert!(is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn others_and_nonsense_are_found() {
        for licence in [
            "GPL-3.0",
            "MIT AND GPL-2.0",
            "(MIT OR Apache-2.0) AND LGPL-2.1",
            "GPL-2.0 WITH Classpath-exception-2.0",
            "MIT WITH",
            "MIT OR",
            "(MIT",
            "MIT MIT",
            "none",
            "",
        ] {
            assert!(!is_allowed(licence), "{licence}");
        }
    }

    #[test]
    fn the_package_is_named() {
        let metadata = serde_json::json!({"packages": [
            {"name": "good", "license": "MIT"},
            {"name": "bad", "license": "GPL-3.0"},
            {"name": "silent", "license": null},
        ]});
        let found = findings(&metadata).unwrap();
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains("bad") && found[1].contains("silent"),
            "{found:?}"
        );
        assert!(findings(&Value::Null).is_err());
    }
}
