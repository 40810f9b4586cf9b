//! Spares and pools as they are said on the command line, with the real engine.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use common::{Engine, files};

/// Waits until the array is as it should be.
fn optimal(engine: &Engine) {
    for _ in 0..1000 {
        if engine.json(&["array", "show", "a"])["state"] == "optimal" {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!(
        "no spare made it good: {}",
        engine.json(&["array", "show", "a"])
    );
}

#[test]
fn spares_and_pools_are_made_shown_and_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    for (number, spec) in files(folder.path(), 6).iter().enumerate() {
        engine.json(&["drive", "add", spec, "--name", &format!("d{number}")]);
    }
    let create = ["array", "create", "a", "--level", "6", "--drives"];
    let made = engine.json(&[&create[..], &["d0,d1,d2,d3", "--spares", "d4", "--wait"]].concat());
    assert_eq!(made["spares"][0], "d4");
    assert_eq!(engine.json(&["drive", "show", "d4"])["state"], "spare");
    let refused = engine.refused(&["drive", "remove", "d4"]);
    assert_eq!(refused["code"], "busy");
    let next = refused["next"].as_str().expect("a text");
    assert!(
        next.contains("garboard array spare remove a --drive d4"),
        "{next}"
    );

    let pool = engine.json(&["pool", "create", "p", "--drives", "d5"]);
    assert_eq!(pool["drives"][0], "d5");
    engine.json(&["pool", "attach", "p", "--array", "a"]);
    let (table, _) = engine.says(&["pool", "list"]);
    assert!(table.contains("d5") && table.contains("ARRAYS"), "{table}");
    let (shown, _) = engine.says(&["array", "show", "a"]);
    assert!(shown.contains("spares") && shown.contains("d4"), "{shown}");
    let busy = engine.refused(&["drive", "wipe", "d5", "--yes"]);
    assert_eq!(busy["code"], "busy");

    // Both spares start by themselves: its own first.
    engine.json(&["array", "fail", "a", "--member", "1", "--yes"]);
    engine.json(&["array", "fail", "a", "--member", "3", "--yes"]);
    optimal(&engine);
    let members = engine.json(&["array", "show", "a"])["members"].clone();
    assert_eq!(members[1]["drive"], "d4", "{members}");
    assert_eq!(members[3]["drive"], "d5", "{members}");
    assert_eq!(
        engine.json(&["pool", "show", "p"])["drives"],
        serde_json::json!([])
    );

    // And what is not needed goes back.
    let wiped = engine.json(&[
        "array", "spare", "add", "a", "--drive", "d1", "--force", "--yes",
    ]);
    assert_eq!(wiped["spares"][0], "d1");
    let freed = engine.json(&["array", "spare", "remove", "a", "--drive", "d1"]);
    assert_eq!(freed["spares"], serde_json::json!([]));
    engine.json(&["pool", "add", "p", "--drive", "d1"]);
    engine.json(&["pool", "remove", "p", "--drive", "d1"]);
    engine.json(&["pool", "detach", "p", "--array", "a"]);
    engine.json(&["pool", "delete", "p"]);
    assert_eq!(engine.json(&["pool", "list"]), serde_json::json!([]));
    assert_eq!(engine.json(&["drive", "show", "d1"])["state"], "free");
}

#[test]
fn what_somebody_put_on_a_drive_since_it_was_added_is_seen_when_it_becomes_a_spare() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let specs = files(folder.path(), 4);
    engine.fill(&specs[..3]);
    engine.json(&["drive", "add", &specs[3], "--name", "d3"]);
    // The magic of ext4.
    let mut options = OpenOptions::new();
    let file = options.write(true).open(folder.path().join("d3.img"));
    let file = file.expect("it is there");
    file.write_all_at(&[0x53, 0xEF], 0x438).expect("room");
    file.sync_all().expect("a disk");
    let spare = ["array", "spare", "add", "a", "--drive", "d3"];
    for command in [&spare[..], &["pool", "create", "p", "--drives", "d3"]] {
        let refused = engine.refused(command);
        assert_eq!(refused["code"], "unsafe", "{refused}");
        assert!(refused.to_string().contains("ext"), "{refused}");
    }
    let forced = engine.json(&[&spare[..], &["--force", "--yes"]].concat());
    assert_eq!(forced["spares"][0], "d3");
}
