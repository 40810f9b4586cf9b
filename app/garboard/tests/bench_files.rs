//! `garboard bench --directory`: what is measured of a file system, what is never touched there,
//! and what becomes of reports that are put together.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{points, refused, report};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use units::{Clock, MonotonicClock};

const SHORT: [&str; 8] = [
    "--range",
    "8MiB",
    "--seconds",
    "0.2",
    "--jobs",
    "2",
    "--depth",
    "4",
];

/// `garboard bench` where no engine is.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_garboard"));
    command.args(["--socket", "/nonexistent/api.sock", "--output", "json"]);
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command
}

fn bench(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it runs")
}

/// A folder with a file that somebody needs.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("precious"), b"precious").expect("written");
    folder
}

/// Whether nothing else is there, and that as it was.
fn is_as_it_was(folder: &Path) -> bool {
    let count = fs::read_dir(folder).expect("a folder").count();
    count == 1 && fs::read(folder.join("precious")).expect("read") == b"precious"
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_file_system_gets_the_same_load_and_keeps_nothing_of_it() {
    let folder = folder();
    let all = ["--workloads", "all", "--directory", text(folder.path())];
    let found = report(&bench(&[&SHORT[..], &all[..]].concat()));
    assert!(is_as_it_was(folder.path()));
    assert_eq!(found["layer"], "file_system");
    assert_eq!(found["range_bytes"], 8 << 20);
    assert_eq!(found["errors"], 0, "{found}");
    let system = &found["file_system"];
    let path = fs::canonicalize(folder.path()).expect("a path");
    assert_eq!(system["directory"], text(&path));
    // Another program's opinion.
    let stat = Command::new("findmnt")
        .args(["-no", "FSTYPE", "-T"])
        .arg(&path)
        .output();
    if let Ok(stat) = stat {
        let kind = String::from_utf8_lossy(&stat.stdout);
        assert_eq!(system["kind"], kind.trim(), "{system}");
    }
    let names: Vec<&str> = points(&found)
        .iter()
        .filter_map(|point| point["workload"].as_str())
        .collect();
    for name in ["random_read", "random_write", "odd_write", "write_flush"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    // On a busy machine one may see no answer in its time, but not all of them.
    let requests = points(&found)
        .iter()
        .map(|point| point["requests"].as_u64());
    let requests: u64 = requests.map(|count| count.expect("a number")).sum();
    assert!(requests > 0, "{found}");
    assert!(
        points(&found)
            .iter()
            .all(|point| point["theoretical"].is_null())
    );
    let skipped = found["skipped"].to_string();
    assert!(skipped.contains("shorter than a burst"), "{skipped}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_made() {
    let folder = folder();
    let here = ["--directory", text(folder.path())];
    let large = refused(&bench(&[&here[..], &["--range", "4096PiB"]].concat()));
    let message = large["message"].as_str().expect("text");
    assert!(
        message.contains("does not fit") && message.contains("free"),
        "{message}"
    );
    let file = folder.path().join("precious");
    let wrong = refused(&bench(&["--directory", text(&file)]));
    assert_eq!(wrong["message"], "not a directory");
    let none = refused(&bench(&["--directory", "/nonexistent"]));
    assert_eq!(none["object"], "directory /nonexistent");
    for other in [
        &["--write"][..],
        &["--verify"],
        &["--level", "5"],
        &["--drive", "mem:1GiB"],
        &["e"],
    ] {
        let usage = bench(&[&here[..], other].concat());
        assert_eq!(usage.status.code(), Some(2), "{other:?}");
    }
    assert!(is_as_it_was(folder.path()));
}

#[test]
fn an_interrupted_run_tells_what_it_has_and_a_killed_one_leaves_nothing() {
    let folder = folder();
    let long = [
        "--seconds",
        "1",
        "--jobs",
        "1",
        "--depth",
        "1,2,4,8",
        "--range",
        "8MiB",
        "--directory",
        text(folder.path()),
        "--workloads",
        "random_read",
    ];
    for signal in [Signal::INT, Signal::KILL] {
        let mut child = command(&long);
        let child = child
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        // It is at work when the file is open and has no name any more.
        let open = format!("/proc/{}/fd", child.id());
        let begun = MonotonicClock.now();
        let is_at_work = || {
            let links = fs::read_dir(&open).into_iter().flatten().flatten();
            let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
            let own = targets.filter(|path| path.starts_with(folder.path()));
            own.filter(|path| text(path).ends_with(" (deleted)"))
                .count()
                > 0
        };
        while !is_at_work() {
            assert!(
                MonotonicClock.now().since(begun) < Duration::from_secs(60),
                "it does nothing"
            );
            std::thread::yield_now();
        }
        assert!(is_as_it_was(folder.path()), "while it is measured");
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(process.expect("a process"), signal).expect("sent");
        let output = child.wait_with_output().expect("it ends");
        assert!(!output.status.success());
        assert!(is_as_it_was(folder.path()), "{signal:?}");
        if signal == Signal::INT {
            let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert!(points(&found).len() < 4, "{found}");
            let why = found["ended_early"].as_str().expect("text");
            assert!(why.contains("signal"), "{why}");
        }
    }
}

#[test]
fn fio_loads_the_same_file_where_it_is_there() {
    let folder = folder();
    let list = ["--fio", "--workloads", "random_read,write_flush"];
    let found = bench(&[&SHORT[..], &list, &["--directory", text(folder.path())]].concat());
    assert!(is_as_it_was(folder.path()));
    if Command::new("fio").arg("--version").output().is_ok() {
        let found = report(&found);
        assert_eq!(points(&found).len(), 2);
        for point in points(&found) {
            assert!(point["requests"].as_u64().expect("a number") > 0, "{point}");
        }
    } else {
        let message = refused(&found)["message"].to_string();
        assert!(message.contains("cannot be started"), "{message}");
    }
}

#[test]
fn reports_of_layers_made_apart_are_put_beside_each_other() {
    let folder = folder();
    let place = tempfile::tempdir().expect("a folder");
    let made = |name: &str| text(&place.path().join(name)).to_owned();
    let list = ["--workloads", "random_read,write_flush"];
    let (files, below) = (made("files.json"), made("below.json"));
    let directory = ["--directory", text(folder.path())];
    let output = bench(&[&SHORT[..], &list, &directory].concat());
    fs::write(&files, &output.stdout).expect("written");
    let drives = ["--drive", "mem:64MiB"].repeat(3);
    let level = ["--level", "5", "--volume", "16MiB", "--write", "--yes"];
    let output = bench(&[&SHORT[..], &list, &drives, &level].concat());
    fs::write(&below, &output.stdout).expect("written");

    let page = made("page.html");
    let with = ["--with", &files, "--with", &below, "--html", &page];
    let all = report(&bench(&with));
    let layers = all["layers"].as_array().expect("a list");
    let names: Vec<&str> = layers.iter().filter_map(|l| l["layer"].as_str()).collect();
    assert_eq!(names, ["drives", "array", "volume", "file_system"]);
    let alone: Value = serde_json::from_slice(&fs::read(&files).expect("read")).expect("JSON");
    for name in ["begun_s", "host", "file_system", "assumptions", "skipped"] {
        assert_eq!(layers[3][name], alone[name], "as it was");
    }
    for (point, before) in points(&layers[3]).iter().zip(points(&alone)) {
        assert_eq!(point["requests"], before["requests"]);
    }
    let ladders = all["ladders"].as_array().expect("a list");
    assert_eq!(ladders.len(), 2);
    for (ladder, number) in ladders.iter().zip(0..) {
        let rungs = ladder["rungs"].as_array().expect("a list");
        assert_eq!(rungs.len(), 4);
        assert!(rungs[0]["of_below"].is_null());
        // As many in flight on three drives together as in the array.
        assert_eq!(rungs[0]["in_flight"], rungs[1]["in_flight"]);
        let drives = layers[0]["points"][number]["together"]["iops"].as_f64();
        let array = layers[1]["points"][number]["iops"].as_f64();
        let of = array.expect("a rate") / drives.expect("one of all together");
        let said = rungs[1]["of_below"]["rate"].as_f64().expect("a ratio");
        assert!((said - of).abs() < 1e-9 * of, "{ladder}");
        assert_eq!(rungs[3]["of_below"]["below"], "volume");
        let iops = |layer: usize| {
            layers[layer]["points"][number]["iops"]
                .as_f64()
                .expect("one")
        };
        let ratio = rungs[3]["of_below"]["rate"].as_f64().expect("a ratio");
        assert!((ratio - iops(3) / iops(2)).abs() < 1e-9 * ratio, "{ladder}");
    }
    let page = fs::read_to_string(&page).expect("read");
    assert!(page.contains("layer by layer") && page.contains(">file system<"));
    // Beside what is measured now, and what was put together before.
    let together = made("together.json");
    fs::write(&together, serde_json::to_vec(&all).expect("JSON")).expect("written");
    let more = [
        &["--with", &together, "--drive", "mem:64MiB"][..],
        &SHORT,
        &list,
    ]
    .concat();
    let more = report(&bench(&more));
    assert_eq!(more["layers"].as_array().expect("a list").len(), 5);

    assert_eq!(
        bench(&[]).status.code(),
        Some(2),
        "nothing to measure or to show"
    );
}

#[test]
fn with_reports_alone_nothing_is_measured_and_what_went_wrong_is_told() {
    let folder = folder();
    let place = tempfile::tempdir().expect("a folder");
    let files = text(&place.path().join("files.json")).to_owned();
    let list = [
        "--workloads",
        "random_read",
        "--directory",
        text(folder.path()),
    ];
    let output = bench(&[&SHORT[..], &list].concat());
    fs::write(&files, &output.stdout).expect("written");
    // As those of earlier versions are, of one layer alone.
    let mut broken = report(&output)["layers"][0].clone();
    for in_vain in [&["--write"][..], &["--against", "/x"], &["--depth", "8"]] {
        let wrong = refused(&bench(&[&["--with", &files][..], in_vain].concat()));
        let message = wrong["message"].as_str().expect("text");
        let what = format!("{} has no effect", in_vain[0]);
        assert!(message.contains(&what), "{message}");
    }

    // Of a report that others made, too, people are told what went wrong.
    (broken["errors"], broken["first_error"]) = (7.into(), "no answer".into());
    broken["ended_early"] = "out of time".into();
    fs::write(&files, serde_json::to_vec(&broken).expect("JSON")).expect("written");
    let mut table = Command::new(env!("CARGO_BIN_EXE_garboard"));
    let output = table.args(["bench", "--with", &files]).output();
    let told = String::from_utf8(output.expect("it runs").stdout).expect("UTF-8");
    for word in [
        "errors: 7, the first: no answer",
        "ended early: out of time",
    ] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let file = text(&place.path().join("file.json")).to_owned();
    let none = refused(&bench(&["--with", &file]));
    assert!(none["message"].as_str().expect("text").contains("No such"));
    for (content, why) in [
        (&b"{\"layer\": \"moon\"}"[..], "no report"),
        (b"\xff\xfe junk", "no report"),
        (b"{\"layers\": []}", "no layer"),
    ] {
        fs::write(&file, content).expect("written");
        let wrong = refused(&bench(&["--with", &file]));
        assert_eq!(wrong["object"], format!("file {file}"));
        let message = wrong["message"].as_str().expect("text");
        assert!(message.contains(why), "{message}");
    }
}
