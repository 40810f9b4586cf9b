//! Which crate may know which: data flows from exports over volumes and arrays to drives, and the
//! arrows between crates point the same way, never back.

use std::path::Path;

use serde_json::Value;

/// Folders from the top of the workspace to its bottom, and what a crate there may use besides the
/// crates of its own folder. Test crates may use anything and stand apart.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("app", &["control", "control/host", "datapath", "base"]),
    ("control/host", &["control", "datapath", "base"]),
    ("control", &["base/units"]),
    (
        "datapath/engine",
        &[
            "datapath/export",
            "datapath/volume",
            "datapath/array",
            "datapath/drive",
            "base",
        ],
    ),
    (
        "datapath/export",
        &[
            "datapath/volume",
            "datapath/array",
            "datapath/drive",
            "base",
        ],
    ),
    (
        "datapath/volume",
        &["datapath/array", "datapath/drive", "base"],
    ),
    ("datapath/array", &["datapath/drive", "base"]),
    ("datapath/drive", &["base"]),
    ("base", &[]),
];

/// Dependencies between crates of the workspace that point the wrong way.
///
/// # Errors
/// When `metadata` is not what `cargo metadata` prints.
pub(crate) fn findings(metadata: &Value, root: &Path) -> Result<Vec<String>, String> {
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata: no packages")?;
    let folder_of = |path: &str| -> Option<String> {
        let folder = Path::new(path).strip_prefix(root).ok()?;
        Some(folder.to_string_lossy().into_owned())
    };
    let mut findings = Vec::new();
    for package in packages {
        let manifest = package["manifest_path"]
            .as_str()
            .ok_or("a package without manifest")?;
        let Some(from) = folder_of(manifest.trim_end_matches("/Cargo.toml")) else {
            continue;
        };
        let dependencies = package["dependencies"]
            .as_array()
            .ok_or("no dependencies")?;
        for dependency in dependencies {
            let Some(to) = dependency["path"].as_str().and_then(folder_of) else {
                continue;
            };
            let for_tests = dependency["kind"] == "dev";
            if !allowed(&from, &to, for_tests) {
                findings.push(format!("{from}/Cargo.toml: must not depend on {to}"));
            }
        }
    }
    Ok(findings)
}

/// Whether the crate in folder `from` may depend on the one in `to`.
fn allowed(from: &str, to: &str, for_tests: bool) -> bool {
    if below(from, "test") {
        return true;
    }
    if below(to, "test") {
        // The demo's guest is the one that the tests use: a real client, and not a back door.
        return for_tests || (from, to) == ("app/garboard", "test/guest");
    }
    let home = MAY_USE.iter().find(|(folder, _)| below(from, folder));
    home.is_some_and(|(folder, uses)| {
        let inside = below(to, folder) && !is_lower_part(to, folder);
        from == to || inside || uses.iter().any(|used| reaches(to, used))
    })
}

/// `control` itself may be used where `control/host` may not.
fn reaches(to: &str, used: &str) -> bool {
    if used == "control" {
        to == used
    } else {
        below(to, used)
    }
}

/// Whether `to` lies in `folder` but has rules of its own.
fn is_lower_part(to: &str, folder: &str) -> bool {
    let mut others = MAY_USE.iter().filter(|(other, _)| *other != folder);
    others.any(|(other, _)| other.len() > folder.len() && below(to, other))
}

fn below(path: &str, folder: &str) -> bool {
    path == folder
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_down() {
        for (from, to) in [
            ("app/garboard", "control"),
            ("app/garboard", "control/host"),
            ("app/garboard", "base/units"),
            ("control/host", "control"),
            ("control/host", "datapath/engine"),
            ("control", "base/units"),
            ("datapath/engine", "datapath/export/vhost-user-blk"),
            (
                "datapath/export/vhost-user-blk",
                "datapath/export/virtqueue",
            ),
            ("datapath/volume", "datapath/array"),
            ("datapath/array", "base/parity"),
            ("base/block", "base/memory"),
            ("test/sim", "datapath/array"),
        ] {
            assert!(allowed(from, to, false), "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_that_point_up_are_found() {
        for (from, to) in [
            ("base/block", "datapath/drive"),
            ("base/block", "control"),
            ("datapath/drive", "datapath/array"),
            ("datapath/array", "datapath/volume"),
            ("datapath/volume", "datapath/export/virtqueue"),
            ("datapath/export/virtqueue", "datapath/engine"),
            ("datapath/engine", "control"),
            ("control", "control/host"),
            ("control", "datapath/array"),
            ("control", "base/memory"),
            ("control/host", "app/garboard"),
            ("app/garboard", "xtask"),
            ("xtask", "base/units"),
            ("elsewhere", "base/units"),
        ] {
            assert!(!allowed(from, to, false), "{from} -> {to}");
            assert!(!allowed(from, to, true), "{from} -> {to}, in tests");
        }
    }

    #[test]
    fn test_crates_are_for_tests_only() {
        assert!(allowed("datapath/array", "test/model", true));
        assert!(!allowed("datapath/array", "test/model", false));
        assert!(allowed("app/garboard", "test/guest", false));
        assert!(!allowed("app/garboard", "test/sim", false));
        assert!(!allowed("control", "test/guest", false));
    }

    #[test]
    fn a_wrong_arrow_in_metadata_is_found() {
        let package = |folder: &str, to: &str, kind: Value| {
            serde_json::json!({
                "manifest_path": format!("/r/{folder}/Cargo.toml"),
                "dependencies": [{"path": format!("/r/{to}"), "kind": kind}, {"path": null}],
            })
        };
        let metadata = serde_json::json!({"packages": [
            package("base/units", "control", Value::Null),
            package("datapath/array", "test/model", Value::from("dev")),
            {"manifest_path": "/elsewhere/Cargo.toml", "dependencies": []},
        ]});
        let found = findings(&metadata, Path::new("/r")).unwrap();
        assert_eq!(found, ["base/units/Cargo.toml: must not depend on control"]);
        assert!(findings(&Value::Null, Path::new("/r")).is_err());
    }
}
