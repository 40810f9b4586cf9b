//! Arrays found on drives that an engine does not know, or knows elsewhere: files in another
//! folder, and block devices (loop devices, which only root may make).

mod common;

use std::path::{Path, PathBuf};

use common::{Engine, Loop, files};
use rustix::process::Signal;
use tempfile::TempDir;

const MEMBERS: u32 = 3;

/// Drives in a folder that an engine, which is gone, has made an array and a volume of, and the
/// volume's uuid.
fn filled() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    engine.fill(&files(folder.path(), MEMBERS));
    let uuid = engine.json(&["volume", "show", "v"])["uuid"].to_string();
    assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    (folder, uuid)
}

fn image(number: u32) -> String {
    format!("d{number}.img")
}

/// Moves the drives to another folder, in another order of names.
fn moved(from: &Path) -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir_in(from.parent().expect("not the root")).expect("a folder");
    let to = |number: u32| {
        let path = folder.path().join(format!("{}.moved", MEMBERS - number));
        std::fs::rename(from.join(image(number)), &path).expect("one file system");
        path
    };
    let paths = (0..MEMBERS).map(to).collect();
    (folder, paths)
}

/// Imports array `a` from `specs` into an engine that knows nothing, and looks at it, twice.
fn import(specs: &[String], volume: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = Engine::start(folder.path());
    let search: Vec<&str> = specs.iter().flat_map(|spec| ["--search", spec]).collect();
    let found = engine.json(&[&["array", "import"][..], &search].concat());
    assert_eq!(found[0]["name"], "a", "{found}");
    assert_eq!(
        found[0]["drives"].as_array().map(Vec::len),
        Some(specs.len())
    );
    let taken = engine.json(&[&["array", "import", "a"][..], &search].concat());
    assert_eq!(
        found[0]["size_bytes"], taken["size_bytes"],
        "what volumes can have"
    );
    for start in ["imported", "started again"] {
        let array = engine.json(&["array", "show", "a"]);
        assert_eq!(array["state"], "optimal", "{start}");
        let shown = engine.json(&["volume", "show", "v"]);
        assert_eq!(shown["uuid"].to_string(), volume, "{start}");
        engine.json(&["export", "vhost", "v"]);
        engine.json(&["export", "remove", "v", "--yes"]);
        assert_eq!(engine.end(Signal::TERM).code(), Some(0), "{start}");
        engine = Engine::start(folder.path());
    }
}

#[test]
fn files_that_were_moved_are_imported_by_an_engine_that_knows_nothing() {
    let (folder, volume) = filled();
    let (_kept, paths) = moved(folder.path());
    let spec = |path: &PathBuf| format!("file:{}", path.display());
    import(&paths.iter().map(spec).collect::<Vec<_>>(), &volume);
}

#[test]
fn too_few_members_are_not_imported_and_all_of_them_are_afterwards() {
    let (folder, volume) = filled();
    let (_kept, paths) = moved(folder.path());
    let spec = |path: &PathBuf| format!("file:{}", path.display());
    let specs: Vec<String> = paths.iter().map(spec).collect();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(elsewhere.path());
    let error = engine.refused(&["array", "import", "a", "--search", &specs[0]]);
    assert_eq!(error["object"], "array a", "{error}");
    for kind in ["drive", "array"] {
        let left = engine.json(&[kind, "list"]);
        assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");
    }
    drop(engine);
    import(&specs, &volume);
}

/// A mirror of as many drives that an engine has made which is gone.
fn mirror(members: u32) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    let mut names = Vec::new();
    for (number, spec) in files(folder.path(), members).iter().enumerate() {
        let name = format!("d{number}");
        engine.json(&["drive", "add", spec, "--name", &name]);
        names.push(name);
    }
    let drives = names.join(",");
    engine.json(&[
        "array", "create", "m", "--level", "1", "--drives", &drives, "--wait",
    ]);
    assert_eq!(engine.end(Signal::TERM).code(), Some(0));
    folder
}

#[test]
fn a_minority_is_imported_only_by_force_and_after_a_question_that_names_the_loss() {
    let folder = mirror(MEMBERS);
    let (_kept, paths) = moved(folder.path());
    let spec = format!("file:{}", paths[0].display());
    let elsewhere = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(elsewhere.path());
    let import = ["array", "import", "m", "--search", &spec];
    for more in [&[][..], &["--yes"], &["--force"]] {
        let error = engine.refused(&[&import[..], more].concat());
        assert_eq!(error["code"], "unsafe", "{more:?}: {error}");
        let said = error.to_string();
        assert!(said.contains("only 1 of the 3"), "{more:?}: {said}");
        let left = engine.json(&["array", "list"]);
        assert_eq!(left.as_array().map(Vec::len), Some(0), "{more:?}: {left}");
    }
    let asked = engine.refused(&[&import[..], &["--force"]].concat());
    for word in ["1 of 3 members found", "member 1: missing", "--yes"] {
        assert!(asked.to_string().contains(word), "no `{word}` in {asked}");
    }
    let array = engine.json(&[&import[..], &["--force", "--yes"]].concat());
    assert_eq!(array["state"], "degraded", "{array}");
    let told = array["warnings"].to_string();
    assert_eq!(told.matches("started by force").count(), 1, "{told}");
}

#[test]
fn a_start_that_is_refused_even_by_force_is_announced_to_nobody() {
    let folder = mirror(2);
    // Beside the others it would be found.
    let elsewhere = tempfile::tempdir_in(folder.path().parent().expect("not the root"));
    let elsewhere = elsewhere.expect("a folder");
    let away = |number| elsewhere.path().join(image(number));
    let at = |number| folder.path().join(image(number));
    // The first half of two starts by itself.
    let by_force = ["array", "start", "m", "--force", "--yes"];
    for (gone, start) in [(1, &["array", "show", "m"][..]), (0, &by_force)] {
        std::fs::rename(at(gone), away(gone)).expect("one file system");
        let engine = Engine::start(folder.path());
        assert_eq!(engine.json(start)["state"], "degraded", "without {gone}");
        assert_eq!(engine.end(Signal::TERM).code(), Some(0));
        std::fs::rename(away(gone), at(gone)).expect("one file system");
    }
    let engine = Engine::start(folder.path());
    for more in [&[][..], &["--force"], &["--force", "--yes"]] {
        let error = engine.refused(&[&["array", "start", "m"][..], more].concat());
        assert_eq!(error["code"], "unsafe", "{more:?}: {error}");
        let said = error["message"].as_str().expect("a sentence");
        let first = "it cannot be started, not even by force: split brain";
        assert!(said.starts_with(first), "{more:?}: {said}");
    }
}

#[test]
fn an_array_of_a_name_that_another_one_has_is_imported_by_its_uuid_and_it_is_said() {
    let (folder, _) = filled();
    let (_kept, paths) = moved(folder.path());
    let elsewhere = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(elsewhere.path());
    engine.fill(&files(elsewhere.path(), MEMBERS));
    let specs = paths.iter().map(|path| format!("file:{}", path.display()));
    let specs: Vec<String> = specs.collect();
    let search: Vec<&str> = specs.iter().flat_map(|spec| ["--search", spec]).collect();
    let found = engine.json(&[&["array", "import"][..], &search].concat());
    let uuid = found[0]["uuid"].as_str().expect("a uuid");
    let error = engine.refused(&[&["array", "import", "a"][..], &search].concat());
    assert_eq!(error["code"], "exists", "{error}");
    let said = error.to_string();
    assert!(said.contains("another array of this name"), "{said}");
    assert!(
        said.contains(&format!("`garboard array import {uuid}`")),
        "{said}"
    );
    let taken = engine.json(&[&["array", "import", uuid][..], &search].concat());
    assert_eq!(taken["name"], uuid.replace('-', ""));
    let said = taken["warnings"].to_string();
    assert!(said.contains("known here that is called a,"), "{said}");
    let error = engine.refused(&["array", "import", uuid]).to_string();
    assert!(error.contains("knows it already"), "{error}");
}

#[test]
fn files_that_were_moved_are_added_again_to_the_engine_that_had_them() {
    let (folder, volume) = filled();
    let (_kept, paths) = moved(folder.path());
    let engine = Engine::start(folder.path());
    assert_eq!(engine.json(&["drive", "show", "d0"])["state"], "missing");
    for (number, path) in paths.iter().enumerate() {
        let spec = format!("file:{}", path.display());
        let drive = engine.json(&["drive", "add", &spec]);
        assert_eq!(drive["name"], format!("d{number}"), "who it is is on it");
        assert_eq!(drive["spec"], spec);
    }
    assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
    assert_eq!(
        engine.json(&["volume", "show", "v"])["uuid"].to_string(),
        volume
    );
}

#[test]
fn block_devices_are_imported() {
    if !Loop::can_be_made() {
        return;
    }
    let (folder, volume) = filled();
    let over = |number| Loop::over(&folder.path().join(image(number)));
    let devices: Vec<Loop> = (0..MEMBERS).map(over).collect();
    let specs: Vec<String> = devices.iter().map(|device| device.0.clone()).collect();
    import(&specs, &volume);
}
