//! `array replace`, `spare`, `fail`, `import` in every wrong state.

use std::fs::File;

use serde_json::Value;

use crate::bed::{Bed, holds, spec};

fn replace<'a>(member: &'a str, drive: &'a str) -> [&'a str; 7] {
    [
        "array", "replace", "a", "--member", member, "--drive", drive,
    ]
}

fn small(bed: &Bed, name: &str, mib: u64) {
    let path = bed.path(name);
    let file = File::create(&path).expect("a file");
    file.set_len(mib << 20).expect("sparse");
    bed.engine()
        .json(&["drive", "add", &spec(&path), "--name", name]);
}

#[test]
fn only_a_free_drive_that_fits_takes_the_place_of_a_member_that_is_out() {
    let bed = Bed::new("6", 4, 2);
    small(&bed, "small", 48);
    bed.refused(&replace("7", "d4"), "not_found", &["members 0 to 3"]);
    bed.engine()
        .json(&["array", "fail", "a", "--member", "1", "--yes"]);
    bed.refused(
        &replace("1", "d0"),
        "busy",
        &["drive d0 is member 0 of array a"],
    );
    bed.refused(
        &replace("1", "small"),
        "full",
        &["drive small has", "needs"],
    );
    bed.refused(&replace("1", "nobody"), "not_found", &[]);
    bed.guest().write(2);
    bed.engine().json(&replace("1", "d4"));
    // While it is filled, it is a member, and can be taken away again.
    bed.refused(&["drive", "remove", "d4"], "busy", &["member 1 of array a"]);
    bed.engine()
        .json(&["drive", "remove", "d4", "--force", "--yes"]);
    bed.guest().verify(2);
    bed.engine()
        .json(&[&replace("1", "d5")[..], &["--wait"]].concat());
    bed.await_optimal();
    bed.is_sound(2);
    // The last redundancy stays.
    bed.engine()
        .json(&["array", "fail", "a", "--member", "0", "--yes"]);
    bed.engine()
        .json(&["array", "fail", "a", "--member", "2", "--yes"]);
    bed.refused(
        &["array", "fail", "a", "--member", "0", "--yes"],
        "invalid",
        &["out already"],
    );
    bed.refused(
        &["array", "fail", "a", "--member", "3", "--yes"],
        "unsafe",
        &["data is lost"],
    );
    bed.refused(
        &["drive", "remove", "d3", "--force", "--yes"],
        "unsafe",
        &["lose data"],
    );
    bed.guest().verify(2);
}

#[test]
fn only_a_free_drive_that_fits_becomes_a_spare() {
    let mut bed = Bed::new("5", 3, 2);
    small(&bed, "small", 48);
    let add = |drive: &'static str| ["array", "spare", "add", "a", "--drive", drive];
    bed.refused(&add("d0"), "busy", &["member of array a"]);
    bed.refused(
        &add("small"),
        "full",
        &["has 50331648 bytes", "needs 67108864"],
    );
    bed.refused(&add("nobody"), "not_found", &[]);
    let remove = ["array", "spare", "remove", "a", "--drive", "d3"];
    bed.refused(&remove, "not_found", &["no spare of array a"]);
    bed.engine().json(&add("d3"));
    bed.engine().json(&add("d3"));
    bed.refused(
        &["drive", "remove", "d3"],
        "busy",
        &["array spare remove a --drive d3"],
    );
    bed.refused(&["drive", "wipe", "d3", "--yes"], "busy", &["spare"]);
    bed.refused(&replace("1", "d3"), "busy", &["spare"]);
    let create = ["array", "create", "b", "--level", "0", "--drives", "d3,d4"];
    bed.refused(&create, "busy", &["d3"]);
    // A member that was failed carries what may be wanted.
    bed.engine()
        .json(&["array", "fail", "a", "--member", "2", "--yes"]);
    // The spare takes its place at some moment: what is compared below must not change meanwhile.
    bed.await_optimal();
    bed.refused(&add("d2"), "unsafe", &["garboard member", "--force"]);
    let members = bed.array()["members"].clone();
    assert_eq!(members[2]["drive"], "d3", "{members}");
    bed.refused(&remove, "not_found", &["no spare of array a"]);
    bed.is_sound(1);
    // A stopped array takes neither.
    bed.engine().json(&["export", "remove", "v", "--yes"]);
    bed.engine().json(&["array", "stop", "a"]);
    bed.refused(&replace("1", "d4"), "busy", &["array start a"]);
    bed.refused(&["drive", "remove", "d1"], "busy", &["not started"]);
    bed.stop();
    bed.start();
    // Stopped by command, it stays so.
    let status = bed.engine().json(&["status"]);
    assert_eq!(status["arrays"]["attention"], 0, "{status}");
}

#[test]
fn only_what_is_complete_and_unknown_is_imported() {
    let mut bed = Bed::new("1", 3, 0);
    bed.refused(
        &["array", "import", "a"],
        "exists",
        &["it runs", "array show a"],
    );
    bed.stop();
    let other = Bed::new("5", 3, 0);
    for drive in 0..3 {
        bed.rename(&format!("d{drive}.img"), &format!("m{drive}"));
        std::fs::create_dir_all(bed.path("away")).expect("a folder");
        bed.rename(&format!("m{drive}"), &format!("away/m{drive}"));
    }
    let place = |drive: u32| spec(&bed.path(&format!("away/m{drive}")));
    let (zero, one, two) = (place(0), place(1), place(2));
    let engine = other.engine();
    // Another array of this name runs here: the one on the drives has a uuid.
    let found = engine.json(&["array", "import", "--search", &one, "--search", &two]);
    let uuid = found[0]["uuid"].as_str().expect("a uuid").to_owned();
    other.refused(
        &["array", "import", "a", "--search", &one],
        "exists",
        &["another array of this name"],
    );
    // A minority is refused, and named with the cause.
    let search = ["array", "import", &uuid, "--search", &one];
    other.refused(
        &search,
        "unsafe",
        &["only 1 of the 3", "--force", "would be lost"],
    );
    assert_eq!(
        engine.json(&["drive", "list"]).as_array().map(Vec::len),
        Some(3)
    );
    let nowhere = spec(&bed.path("nowhere"));
    other.refused(
        &["array", "import", &uuid, "--search", &nowhere],
        "not_found",
        &["no such path"],
    );
    let forced = engine.json(&[&search[..], &["--force", "--yes"]].concat());
    holds(
        &forced["warnings"].to_string(),
        &["started by force with 1 of the 3"],
    );
    let name = forced["name"].as_str().expect("a name").to_owned();
    assert_ne!(name, "a");
    // Both have a volume `v`, and nobody guesses.
    let volumes = engine.json(&["volume", "list"]);
    for volume in volumes.as_array().expect("two") {
        let uuid = volume["uuid"].as_str().expect("a uuid");
        other.refused(
            &["volume", "delete", "v", "--yes"],
            "invalid",
            &["2 volumes", uuid],
        );
        let shown = engine.json(&["volume", "show", uuid]);
        assert_eq!(shown["array"], volume["array"]);
    }
    let is_free = |volume: &&Value| volume["exports"].as_array().is_some_and(Vec::is_empty);
    let free = volumes.as_array().and_then(|all| all.iter().find(is_free));
    let free = &free.expect("the imported one")["uuid"];
    let deleted = engine.json(&["volume", "delete", free.as_str().expect("a uuid"), "--yes"]);
    assert_eq!(deleted["uuid"], *free);
    let left = engine.json(&["volume", "list"]);
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    assert_ne!(left[0]["exports"].as_array().map(Vec::len), Some(0));
    // The others were left behind, and are no array any more that starts by itself.
    let found = engine.json(&["array", "import", "--search", &zero, "--search", &two]);
    assert_eq!(found.as_array().map(Vec::len), Some(0), "{found}");
}
