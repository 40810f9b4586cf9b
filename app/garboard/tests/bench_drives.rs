//! `garboard bench` on drives by themselves: what is measured, and what is never written.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Engine, points, refused, report};
use rustix::process::Signal;
use serde_json::Value;

const SHORT: [&str; 6] = ["--seconds", "0.6", "--jobs", "1", "--depth", "8"];

/// Runs `garboard bench` where no engine is.
fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_garboard"))
        .args([
            "--socket",
            "/nonexistent/api.sock",
            "--output",
            "json",
            "bench",
        ])
        .args(SHORT)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

/// A file of 64 MiB in which every byte is 0xA5, so that any write shows.
fn marked(folder: &Path) -> (String, String) {
    let path = folder.join("drive.img");
    std::fs::write(&path, vec![0xA5; 64 << 20]).expect("written");
    let path = path.to_str().expect("UTF-8").to_owned();
    (format!("file:{path}"), path)
}

fn is_untouched(path: &str) -> bool {
    let bytes = std::fs::read(path).expect("read");
    bytes.iter().all(|byte| *byte == 0xA5)
}

#[test]
fn all_drives_are_loaded_at_once_and_the_slow_one_is_named() {
    let fast = "paced:kioxia-cm7,scale=1/200,size=64MiB";
    let slow = "paced:kioxia-cm7,scale=1/800,size=64MiB";
    let drives = ["--drive", fast, "--drive", fast, "--drive", slow];
    let list = ["--workloads", "random_read,sequential_read,random_write"];
    let found = report(&bench(&[&drives[..], &list[..]].concat()));
    assert_eq!(found["layer"], "drives");
    assert_eq!(found["drives"].as_array().expect("a list").len(), 3);
    let skipped = found["skipped"].as_array().expect("a list");
    assert_eq!(skipped, &["random_write: writing needs --write"]);
    assert_eq!(points(&found).len(), 2);
    for point in points(&found) {
        let drives = point["drives"].as_array().expect("a list");
        let number = |drive: &Value, name: &str| drive[name].as_f64().expect("a number");
        let sum: f64 = drives.iter().map(|drive| number(drive, "iops")).sum();
        assert!((sum - number(point, "iops")).abs() < 1e-6 * sum, "{point}");
        assert_eq!(drives[2]["drive"], slow);
        assert_eq!(drives[2]["outlier"], true, "{point}");
        assert!(number(&drives[2], "below_median_percent") > 50.0, "{point}");
        assert!(point["theoretical"].is_null(), "they are not all alike");
    }
}

#[test]
fn what_memory_costs_at_its_first_use_is_said_of_memory_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, _) = marked(folder.path());
    let paced = "paced:kioxia-cm7,size=64MiB";
    let none = "paced:kioxia-cm7,size=64MiB,content=none";
    for (spec, written, slower, faster) in [
        ("mem:64MiB", "0", true, false),
        (paced, "0", true, false),
        (paced, "1", false, false),
        (none, "0", false, false),
        ("null:64MiB", "0", false, false),
        (file.as_str(), "0", false, true),
    ] {
        let list = ["--drive", spec, "--workloads", "random_read", "--write"];
        let more = ["--yes", "--precondition", written, "--seconds", "0.1"];
        let found = Command::new(env!("CARGO_BIN_EXE_garboard"))
            .args(["--output", "json", "bench"])
            .args([&list[..], &more[..], &SHORT[2..]].concat())
            .output();
        let notes = report(&found.expect("it runs"))["assumptions"].to_string();
        assert_eq!(notes.contains("which is slower"), slower, "{spec}: {notes}");
        assert_eq!(
            notes.contains("may be answered faster"),
            faster,
            "{spec}: {notes}"
        );
    }
}

#[test]
fn bursts_of_several_drives_have_one_rate() {
    let spec = "paced:kioxia-cm7,scale=1/20,size=96MiB,content=none";
    let drives = ["--drive", spec].repeat(3);
    let list = ["--workloads", "burst_read_64m", "--range", "64TiB"];
    let found = report(&bench(&[&drives[..], &list[..]].concat()));
    let point = &points(&found)[0];
    let number = |value: &Value| value.as_f64().expect("a number");
    let (all, bursts) = (number(&point["bytes_per_second"]), &point["bursts"]);
    let last = number(&bursts["last_done_bytes_per_second"]);
    assert!((last - all).abs() < 0.01 * all, "{point}");
    let each = point["drives"].as_array().expect("a list").iter();
    let each: f64 = each.map(|drive| number(&drive["bytes_per_second"])).sum();
    assert!((each - all).abs() < 0.2 * all, "{point}");
    // 96 MiB are all there is, and that is said.
    assert_eq!(found["range_bytes"], 96 << 20);
    let notes = found["assumptions"].to_string();
    assert!(notes.contains("--range 64TiB is longer than"), "{notes}");
}

#[test]
fn drives_that_are_alike_have_a_theory() {
    let spec = "paced:kioxia-cm7,scale=1/200,size=64MiB";
    let drives = ["--drive", spec, "--drive", spec, "--write", "--yes"];
    let list = ["--workloads", "random_read,random_write"];
    let found = report(&bench(&[&drives[..], &list[..]].concat()));
    // Sixteen in flight, each 75 us (14 us to write) at 1/200, are less than the drives could.
    for (point, theory) in points(&found).iter().zip([1066.7, 5714.3]) {
        let value = point["theoretical"]["value"].as_f64().expect("a number");
        assert!((value - theory).abs() < 0.1, "{point}");
        assert_eq!(point["theoretical"]["bound"], "the requests in flight");
        let off = 101.0 + point["window_error_percent"].as_f64().expect("a number");
        let efficiency = point["efficiency_percent"].as_f64().expect("a number");
        assert!(efficiency <= off, "{point}");
    }
}

#[test]
fn the_array_of_the_drives_is_measured_above_them() {
    let spec = "paced:kioxia-cm7,scale=1/200,size=64MiB";
    let drives = ["--drive", spec].repeat(5);
    let list = ["--workloads", "random_read,random_write,stripe_write"];
    let level = ["--level", "5", "--write", "--yes"];
    let found = report(&bench(&[&drives[..], &list[..], &level[..]].concat()));
    let layers = found["layers"].as_array().expect("a list");
    let names: Vec<&str> = layers.iter().filter_map(|l| l["layer"].as_str()).collect();
    assert_eq!(names, ["drives", "array"]);
    for layer in layers {
        assert_eq!(layer["errors"], 0, "{layer}");
        assert!(layer["ended_early"].is_null(), "{layer}");
        for point in points(layer) {
            let off = 101.0 + point["window_error_percent"].as_f64().expect("a number");
            // None where too few requests were answered to tell one.
            let efficiency = point["efficiency_percent"].as_f64().unwrap_or(0.0);
            assert!(efficiency <= off, "{point}");
        }
        // On a busy machine one may see no answer in its time, but not all of them.
        let requests = points(layer).iter().map(|point| point["requests"].as_u64());
        let requests: u64 = requests.map(|count| count.expect("a number")).sum();
        assert!(requests > 0, "{layer}");
    }
    // A small write reads before it writes: its theory says so, and that it is of one array.
    let write = &points(&layers[1])[1]["theoretical"]["value"];
    let expected = 8.0 * 1e6 / ((75.0 + 14.0) * 200.0);
    assert!(
        (write.as_f64().expect("a number") - expected).abs() < 0.1,
        "{write}"
    );
    assert_eq!(
        bench(&[&drives[..], &["--level", "5"]].concat())
            .status
            .code(),
        Some(2)
    );
    let short = [&drives[..4], &["--level", "6"][..], &level[2..]].concat();
    let wrong = refused(&bench(&short));
    assert_eq!(wrong["code"], "invalid", "{wrong}");
}

#[test]
fn a_volume_on_that_array_is_measured_above_it() {
    let drives = ["--drive", "mem:64MiB"].repeat(3);
    let list = ["--workloads", "random_read,random_write,write_flush"];
    let volume = ["--level", "5", "--write", "--yes", "--volume"];
    let found = report(&bench(
        &[&drives[..], &list[..], &volume[..], &["40MiB"]].concat(),
    ));
    let layers = found["layers"].as_array().expect("a list");
    let names: Vec<&str> = layers.iter().filter_map(|l| l["layer"].as_str()).collect();
    assert_eq!(names, ["drives", "array", "volume"]);
    assert_eq!(layers[2]["size_bytes"], 40 << 20);
    assert_eq!(layers[1]["range_bytes"], 40 << 20, "as far as the volume");
    for point in points(&layers[2]) {
        assert_eq!(point["errors"], 0, "{point}");
        assert!(point["requests"].as_u64().expect("a number") > 0, "{point}");
    }
    let large = [&drives[..], &volume[..], &["1GiB"]].concat();
    let wrong = refused(&bench(&large));
    let message = wrong["message"].as_str().expect("text");
    assert!(message.contains("1GiB does not fit"), "{message}");
    let long = [
        &drives[..],
        &list[..],
        &volume[..],
        &["40MiB", "--range", "48MiB"],
    ]
    .concat();
    let found = report(&bench(&long));
    for layer in found["layers"].as_array().expect("a list") {
        let least = if layer["layer"] == "drives" { 48 } else { 40 };
        assert_eq!(
            layer["range_bytes"],
            least << 20,
            "no longer than the volume"
        );
    }
    let alone = [&drives[..], &["--write", "--yes", "--volume", "40MiB"]].concat();
    assert_eq!(bench(&alone).status.code(), Some(2));
}

#[test]
fn a_volume_that_is_too_short_is_found_out_before_drives_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, path) = marked(folder.path());
    let drives = [
        "--drive",
        &spec,
        "--drive",
        "mem:64MiB",
        "--drive",
        "mem:64MiB",
    ];
    let list = [
        "--workloads",
        "random_write",
        "--level",
        "5",
        "--volume",
        "512KiB",
    ];
    let wrong = refused(&bench(
        &[&drives[..], &list[..], &["--write", "--yes"]].concat(),
    ));
    let message = wrong["message"].as_str().expect("text");
    assert!(message.contains("--volume"), "{message}");
    assert!(is_untouched(&path));
}

#[test]
fn nothing_is_written_that_somebody_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, path) = marked(folder.path());
    let writes = ["--workloads", "random_write,random_read"];
    // Without --write it is only read.
    let read = bench(&[&["--drive", &spec][..], &writes[..]].concat());
    assert_eq!(points(&report(&read)).len(), 1);
    assert!(is_untouched(&path));
    let reads = ["--drive", &spec, "--workloads", "random_read"];
    let wrong = refused(&bench(&[&reads[..], &["--precondition", "1"]].concat()));
    assert!(wrong["message"].as_str().expect("text").contains("--write"));
    // What drives are not measured by is not ignored.
    for other in ["--verify", "--states=degraded", "--against=/x"] {
        let usage = bench(&[&reads[..], &[other]].concat());
        assert_eq!(usage.status.code(), Some(2), "{other}");
    }
    // Nobody is there to be asked.
    let unsure = refused(&bench(
        &[&["--drive", &spec, "--write"][..], &writes[..]].concat(),
    ));
    assert_eq!(unsure["code"], "unsafe");
    assert!(is_untouched(&path));
    let sure = [&["--drive", &spec, "--write", "--yes"][..], &writes[..]].concat();
    assert_eq!(points(&report(&bench(&sure))).len(), 2);
    assert!(!is_untouched(&path));
}

#[test]
fn nobody_is_asked_about_drives_that_hold_nothing() {
    for spec in ["mem:64MiB", "null:64MiB", "paced:kioxia-cm7,size=64MiB"] {
        let alone = ["--drive", spec, "--write", "--workloads", "random_write"];
        assert_eq!(points(&report(&bench(&alone))).len(), 1, "{spec}");
    }
    // One that does hold something is asked about, and alone named.
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, path) = marked(folder.path());
    let drives = ["--drive", "mem:64MiB", "--drive", &spec, "--write"];
    let unsure = refused(&bench(&drives));
    assert_eq!(unsure["code"], "unsafe");
    let message = unsure["message"].as_str().expect("text");
    assert!(message.contains(&path), "{message}");
    assert!(!message.contains("mem:"), "{message}");
    assert!(is_untouched(&path));
}

#[test]
fn members_are_read_while_they_serve_and_never_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    engine.fill(&common::files(folder.path(), 3));
    let found = engine.json(
        &[
            &["bench", "--members", "a", "--workloads", "random_read"][..],
            &SHORT[..],
        ]
        .concat(),
    );
    let drives = points(&found)[0]["drives"].as_array().expect("a list");
    assert_eq!(drives.len(), 3);
    let list = ["--workloads", "random_write"];
    // What nothing was measured of is told, and is no success.
    let words = ["--output", "json", "bench", "--members", "a"];
    let none = engine.command(&[&words[..], &list[..]].concat());
    let wrong = refused(&none);
    let message = wrong["message"].as_str().expect("text");
    assert!(message.starts_with("nothing was measured"), "{message}");
    let none: Value = serde_json::from_slice(&none.stdout).expect("the report");
    let why = none["skipped"][0].as_str().expect("a reason");
    assert!(why.contains("are only read"), "{why}");
    let usage = engine.command(&["bench", "--members", "a", "--write"]);
    assert_eq!(usage.status.code(), Some(2));
    let member = format!("file:{}", folder.path().join("d1.img").display());
    let write = ["--drive", &member, "--write", "--yes"];
    let busy = refused(&bench(&write));
    assert_eq!(busy["code"], "busy", "{busy}");
    // The engine goes, the array stays.
    assert!(engine.end(Signal::TERM).success());
    let kept = refused(&bench(&write));
    assert_eq!(kept["code"], "unsafe", "{kept}");
    let message = kept["message"].as_str().expect("text");
    assert!(message.contains("garboard"), "{message}");
    let engine = Engine::start(folder.path());
    assert_eq!(engine.json(&["array", "show", "a"])["state"], "optimal");
}

#[test]
fn fio_gets_the_same_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let (spec, path) = marked(folder.path());
    let jobs = folder.path().join("jobs");
    let list = [
        "--workloads",
        "random_read,burst_read_64m,interleaved_write",
    ];
    let write = [
        "--drive",
        &spec,
        "--fio-jobs",
        jobs.to_str().expect("UTF-8"),
    ];
    let written = bench(&[&write[..], &list[..]].concat());
    assert!(written.status.success());
    let said = String::from_utf8(written.stdout).expect("UTF-8");
    assert!(said.contains("left out: burst_read_64m 1x8: fio"), "{said}");
    let mut names: Vec<String> = std::fs::read_dir(&jobs)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("one")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort_unstable();
    // fio has no bursts.
    assert_eq!(
        names,
        [
            "interleaved_write-49152-1x8.fio",
            "random_read-4096-1x8.fio"
        ]
    );
    let job = std::fs::read_to_string(jobs.join(&names[1])).expect("read");
    assert!(job.contains(&format!("filename={path}\n")), "{job}");
    let found = bench(&["--drive", &spec, "--fio", "--workloads", "random_read"]);
    let is_there = Command::new("fio").arg("--version").output().is_ok();
    if is_there {
        let found = report(&found);
        let point = &points(&found)[0];
        assert!(point["requests"].as_u64().expect("a number") > 0, "{point}");
        assert!(point["latency_us_p50"].as_f64().expect("a number") > 0.0);
        assert_eq!(point["errors"], 0);
        assert!(is_untouched(&path));
    } else {
        let message = refused(&found)["message"].to_string();
        assert!(message.contains("cannot be started"), "{message}");
    }
    let memory = refused(&bench(&[
        "--drive",
        "mem:64MiB",
        "--fio",
        "--workloads",
        "random_read",
    ]));
    assert_eq!(memory["message"], "fio cannot open it");
}
