//! `garboard bench` as a user meets it: an engine with pretended drives, another back-end, and
//! what is refused.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::Engine;
use rustix::process::Signal;
use serde_json::Value;
use units::{Clock, MonotonicClock};

/// Options of short measurements.
const SHORT: [&str; 7] = ["--yes", "--seconds", "0.2", "--jobs", "2", "--depth", "4"];

/// An engine with a RAID 5 of five drives of `spec`, and exports `e0`… of volumes of 32 MiB.
fn engine(folder: &std::path::Path, spec: &str, exports: usize) -> Engine {
    let engine = Engine::start(folder);
    engine.fill(&vec![spec.to_owned(); 5]);
    for number in 0..exports {
        let (volume, export) = (format!("v{number}"), format!("e{number}"));
        let size = ["--size", "32MiB"];
        engine.json(&[&["volume", "create", &volume, "--array", "a"], &size[..]].concat());
        engine.json(&[
            "export", "vhost", &volume, "--name", &export, "--queues", "2",
        ]);
    }
    engine
}

fn points(report: &Value) -> &Vec<Value> {
    report["points"].as_array().expect("a list")
}

#[test]
fn paced_drives_are_measured_against_their_theory() {
    let folder = tempfile::tempdir().expect("a folder");
    // A read takes 7.5 ms, a drive answers 27,000 a second.
    let engine = engine(folder.path(), "paced:kioxia-cm7,scale=1/100,size=64MiB", 1);
    let report = engine.json(&[
        "bench",
        "e0",
        "--yes",
        "--seconds",
        "0.5",
        "--jobs",
        "1",
        "--depth",
        "1,8",
    ]);
    assert_eq!(report["layer"], "export");
    assert_eq!(report["slower"], 100);
    assert_eq!(report["drive_model"]["name"], "kioxia-cm7");
    assert_eq!(report["range_bytes"], 32 << 20);
    let names: Vec<&str> = points(&report)
        .iter()
        .filter_map(|point| point["workload"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "random_read",
            "random_read",
            "random_write",
            "random_write",
            "sequential_read",
            "sequential_read",
            "stripe_write",
            "stripe_write"
        ]
    );
    for (point, requests) in points(&report).iter().zip([1.0, 8.0]) {
        let theory = point["theoretical"]["value"].as_f64().expect("a theory");
        assert!((theory - requests * 1e6 / 7500.0).abs() < 1.0, "{point}");
        assert_eq!(point["theoretical"]["bound"], "the requests in flight");
        // No answer is early; how late they are is the machine's business.
        assert!(
            point["latency_us_p50"].as_f64().expect("a number") >= 7_500.0,
            "{point}"
        );
        let off = 100.0 + point["window_error_percent"].as_f64().expect("a number");
        let efficiency = point["efficiency_percent"].as_f64().expect("a number");
        assert!(efficiency > 20.0 && efficiency <= off + 1.0, "{point}");
    }
    for point in points(&report) {
        assert!(point["requests"].as_u64().expect("a number") > 0, "{point}");
        assert_eq!(point["errors"], 0, "{point}");
        assert!(
            point["cores_used"].as_f64().expect("a number") < 1.1,
            "{point}"
        );
        let order: Vec<f64> = ["p50", "p99", "p999", "max"]
            .iter()
            .filter_map(|name| point[format!("latency_us_{name}")].as_f64())
            .collect();
        assert!(order.len() == 4 && order.is_sorted(), "{point}");
    }
}

#[test]
fn what_an_array_logs_belongs_to_its_theory() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "paced:kioxia-cm7,scale=1/100,size=64MiB", 1);
    let one = ["--yes", "--seconds", "0.2", "--jobs", "1", "--depth", "1"];
    let writes = ["--workloads", "random_write"];
    let theory = || {
        let report = engine.json(&[&["bench", "e0"][..], &one[..], &writes[..]].concat());
        let value = points(&report)[0]["theoretical"]["value"].as_f64();
        (value.expect("a theory"), report)
    };
    // Read and write, at 1/100 of the speed.
    let (plain, _) = theory();
    assert!((plain - 1e6 / 8900.0).abs() < 0.1, "{plain}");
    engine.json(&["array", "modify", "a", "--write-hole", "strict"]);
    let (strict, report) = theory();
    assert!((strict - 1e6 / 10_300.0).abs() < 0.1, "{strict}");
    says(&report, "the array logs all writes");
}

#[test]
fn everything_is_verified_when_that_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let report = engine.json(&[
        "bench",
        "e0",
        "--yes",
        "--seconds",
        "0.2",
        "--verify",
        "--workloads",
        "all",
        "--jobs",
        "2",
        "--depth",
        "4",
    ]);
    assert_eq!(report["verified"], true);
    assert_eq!(report["errors"], 0);
    let skipped = report["skipped"].as_array().expect("a list");
    let burst = |text: &Value| text.as_str().expect("said").starts_with("burst_");
    assert!(
        skipped.len() == 4 && skipped.iter().all(burst),
        "bursts are longer than the volume: {skipped:?}"
    );
    assert_eq!(points(&report).len(), 11);
    for point in points(&report) {
        let name = point["workload"].as_str().expect("a name");
        let reads = name.ends_with("_read") || name == "random_mixed";
        let verified = point["verified_bytes"].as_u64().expect("a number");
        assert_eq!(verified > 0, reads, "{point}");
        assert!(
            point["theoretical"].is_null(),
            "memory has no model: {point}"
        );
    }
}

#[test]
fn theory_needs_a_model_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    // With a model there is a theory, which memory beats.
    let report = engine.json(&[
        "bench",
        "e0",
        "--seconds",
        "0.1",
        "--drive-model",
        "hdd-7200",
        "--workloads",
        "random_read",
        "--jobs",
        "1",
        "--depth",
        "1",
    ]);
    assert!(
        points(&report)[0]["efficiency_percent"]
            .as_f64()
            .expect("a number")
            > 100.0
    );
    // And the engine serves on.
    let (table, _) = engine.says(&[
        "bench",
        "e0",
        "--seconds",
        "0.1",
        "--workloads",
        "random_read",
        "--jobs",
        "1",
        "--depth",
        "1",
    ]);
    assert!(
        table.contains("note: no theory: the drives' figures are not known"),
        "{table}"
    );
    assert!(
        table.contains("note: memory of memory and paced drives is"),
        "{table}"
    );
    assert!(table.contains("random_read"), "{table}");
}

/// That it is among what is said beside the figures.
fn says(report: &Value, text: &str) {
    let notes = report["assumptions"].to_string();
    assert!(notes.contains(text), "{text}: {notes}");
}

/// That a page has plots of the rival, and says of it what a terminal does.
fn tells_of_the_rival(page: &str) {
    for plot in [
        "Against the rival",
        "Latency against the rival",
        "Pair by pair",
    ] {
        assert!(page.contains(&format!("<b>{plot}</b>")), "{plot}");
    }
    let said = page.lines().filter(|line| line.starts_with("<li>"));
    let said: Vec<&str> = said.filter(|line| line.contains("theirs")).collect();
    for text in [
        "x the rival (median of 3 pairs",
        " IOPS, p50 ",
        ", p99 ",
        "a request; theirs ",
    ] {
        assert!(
            said.iter().any(|line| line.contains(text)),
            "{text}: {said:?}"
        );
    }
}

/// That the ratios of latencies are those of the pairs.
fn latencies_are_compared_pair_by_pair(against: &Value) {
    let pairs = against["pairs"].as_array().expect("a list");
    for name in ["p50", "p99", "p999"] {
        let ratio = |pair: &Value| {
            let of = |who: &str| pair[who][format!("us_{name}")].as_f64();
            of("ours_latency").expect("ours") / of("theirs_latency").expect("theirs")
        };
        let mut ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        for (which, ratio) in ["min", "median", "max"].iter().zip(&ratios) {
            let said = against[format!("latency_{name}")][which].as_f64();
            assert!((said.expect("a ratio") - ratio).abs() < 1e-9, "{against}");
        }
    }
}

#[test]
fn a_rival_gets_the_same_load_pair_by_pair() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 2);
    let socket = engine.json(&["export", "show", "e1"])["socket"].clone();
    let path = folder.path().join("page.html");
    let report = engine.json(&[
        "bench",
        "e0",
        "--yes",
        "--against",
        socket.as_str().expect("a path"),
        "--pairs",
        "3",
        "--seconds",
        "0.1",
        "--workloads",
        "random_read,random_write",
        "--jobs",
        "1",
        "--depth",
        "1",
        "--html",
        path.to_str().expect("UTF-8"),
    ]);
    says(&report, "3 of at least 7 pairs");
    let page = std::fs::read_to_string(&path).expect("written");
    tells_of_the_rival(&page);
    assert_eq!(points(&report).len(), 2);
    for point in points(&report) {
        let against = &point["against"];
        let pairs = against["pairs"].as_array().expect("a list");
        assert_eq!(pairs.len(), 3);
        let mut ratios: Vec<f64> = pairs
            .iter()
            .map(|pair| {
                let (ours, theirs) = (&pair["ours_iops"], &pair["theirs_iops"]);
                let (ours, theirs) = (
                    ours.as_f64().expect("a rate"),
                    theirs.as_f64().expect("a rate"),
                );
                assert!((pair["ratio"].as_f64().expect("a ratio") - ours / theirs).abs() < 1e-9);
                ours / theirs
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        for (name, ratio) in [
            ("min", ratios[0]),
            ("median", ratios[1]),
            ("max", ratios[2]),
        ] {
            let said = against[format!("ratio_{name}")].as_f64().expect("a ratio");
            assert!((said - ratio).abs() < 1e-9, "{name}");
        }
        assert!(against["theirs"]["iops"].as_f64().expect("a rate") > 0.0);
        latencies_are_compared_pair_by_pair(against);
        // What ours costs is not lost beside a rival, and what its process spends is known.
        let reads = point["workload"] == "random_read";
        let each = point["cost"]["drive_requests_per_request"].as_f64();
        let each = each.expect("told beside a rival, too");
        let wanted = if reads { 1.0 } else { 4.0 };
        assert!((each - wanted).abs() < 0.1 * wanted + 0.05, "{point}");
        for spent in [&point["processors"], &against["theirs_processors"]] {
            let cores = spent["cores_used"].as_f64().expect("a number");
            assert!(cores > 0.01 && cores < 16.0, "{spent}");
        }
    }
}

/// The names of all fields in a value, but those of a drive's model.
fn fields(value: &Value, names: &mut std::collections::BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        names.insert(name.clone());
        let own = name != "drive_model";
        own.then(|| fields(value, names));
    }
    for value in value.as_array().into_iter().flatten() {
        fields(value, names);
    }
}

#[test]
fn every_field_of_the_json_is_in_the_document_and_one_layer_is_a_list_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "paced:kioxia-cm7,scale=1/10,size=64MiB", 2);
    let socket = engine.json(&["export", "show", "e1"])["socket"].clone();
    let short = ["--yes", "--seconds", "0.1", "--jobs", "1", "--depth", "4"];
    let run = |more: &[&str]| engine.json(&[&["bench"][..], &short[..], more].concat());
    let rate = ["e0", "--workloads", "random_read", "--rate", "100,50%"];
    let pairs = [
        "--against",
        socket.as_str().expect("a path"),
        "--pairs",
        "4",
    ];
    let both = ["e0", "e1", "--workloads", "random_read"];
    let drives = ["--drive", "mem:96MiB"].repeat(3);
    let list = ["--workloads", "random_read,burst_read_64m"];
    let ladder = ["--level", "5", "--write"];
    let rival = run(&[&rate[..], &pairs[..]].concat());
    for name in ["layer", "points", "assumptions"] {
        assert_eq!(rival["layers"][0][name], rival[name], "as at the top");
    }
    assert_eq!(rival["ladders"].as_array().expect("a list").len(), 0);
    let several = run(&[&drives[..], &list[..], &ladder[..]].concat());
    assert!(several["points"].is_null(), "of which layer?");
    let files = folder.path().to_str().expect("UTF-8");
    let files = run(&[
        "--directory",
        files,
        "--range",
        "8MiB",
        "--workloads",
        "random_read",
    ]);
    let mut names = std::collections::BTreeSet::new();
    for found in [&rival, &run(&both), &several, &files] {
        fields(found, &mut names);
    }
    assert!(names.len() > 100, "{names:?}");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/measuring.md")).expect("read");
    let told = |name: &&String| !document.contains(&format!("`{name}`"));
    let missing: Vec<&String> = names.iter().filter(told).collect();
    assert_eq!(missing, [""; 0], "docs/measuring.md");
}

#[test]
fn several_exports_are_not_held_against_one_rival() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 3);
    let socket = engine.json(&["export", "show", "e2"])["socket"].clone();
    let against = ["--against", socket.as_str().expect("a path")];
    let reads = ["--workloads", "random_read"];
    let wrong = engine.refused(
        &[
            &["bench", "e0", "e1"][..],
            &SHORT[..],
            &reads[..],
            &against[..],
        ]
        .concat(),
    );
    let message = wrong["message"].as_str().expect("text");
    assert!(message.contains("2 exports"), "{message}");
}

#[test]
fn a_given_rate_is_kept_or_it_is_said_that_it_was_not() {
    let folder = tempfile::tempdir().expect("a folder");
    // A drive answers 2,700 reads a second, and needs 0.75 ms for each.
    let engine = engine(folder.path(), "paced:kioxia-cm7,scale=1/10,size=64MiB", 1);
    let reads = ["--workloads", "random_read", "--jobs", "1", "--depth", "16"];
    let run = |more: &[&str]| {
        let short = ["--seconds", "1"];
        engine.json(&[&["bench", "e0"][..], &reads[..], &short[..], more].concat())
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let report = run(&["--rate", "500,50%"]);
    let [given, half] = points(&report).as_slice() else {
        panic!("a point for each rate: {report}");
    };
    for point in [given, half] {
        let rate = &point["rate"];
        let (asked, found) = (number(&rate["asked_iops"]), number(&point["iops"]));
        // What was late in the warm-up, a tenth of the time, may come on top.
        assert!(found < 1.11 * asked, "never more than was asked: {point}");
        if rate["kept_up"] == true {
            assert!(found >= 0.99 * asked, "{point}");
        }
        assert!(point["theoretical"].is_null(), "less than could be had");
        // None is early.
        assert!(number(&point["latency_us_p50"]) >= 750.0, "{point}");
    }
    assert!((number(&given["rate"]["asked_iops"]) - 500.0).abs() < 1e-6);
    assert!(given["rate"]["peak_iops"].is_null(), "{given}");
    let peak = number(&half["rate"]["peak_iops"]);
    let asked = number(&half["rate"]["asked_iops"]);
    assert!((asked - peak / 2.0).abs() <= 1.0, "{half}");
    // Far more than sixteen in flight can do: those that wait count from when they were due.
    let report = run(&["--rate", "1000k"]);
    let [over] = points(&report).as_slice() else {
        panic!("one point: {report}");
    };
    assert_eq!(over["rate"]["kept_up"], false);
    assert!(number(&over["rate"]["unsent"]) > 900e3, "{over}");
    assert!(number(&over["latency_us_p50"]) > 400e3, "{over}");
    let (table, _) = engine.says(
        &[
            &["bench", "e0"][..],
            &reads[..],
            &["--seconds", "0.2", "--rate", "1000k"],
        ]
        .concat(),
    );
    assert!(table.contains("random_read at 1000000/s"), "{table}");
    assert!(table.contains("it did not keep up"), "{table}");
    assert!(
        table.contains("latencies count from when a request was due"),
        "{table}"
    );
}

#[test]
fn the_client_keeps_to_a_cpu_and_says_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let reads = ["--workloads", "random_read"];
    let run =
        |more: &[&str]| engine.json(&[&["bench", "e0"][..], &SHORT[..], &reads[..], more].concat());
    let said = |report: &Value, text: &str| {
        let notes = report["assumptions"].as_array().expect("a list").iter();
        let mut notes = notes.filter_map(Value::as_str);
        assert!(notes.any(|note| note.contains(text)), "{text}: {report}");
    };
    // The engine's reactor is on CPU 0.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let report = run(&[]);
    if cpus > 1 {
        assert!(
            report["client_cpu"].as_u64().expect("a number") > 0,
            "{report}"
        );
        said(&report, "threads are on 0");
    } else {
        assert!(report["client_cpu"].is_null(), "{report}");
    }
    let host = report["host"].clone();
    let report = run(&["--client-core", "0"]);
    assert_eq!(report["client_cpu"], 0);
    said(&report, "which it shares with a server");
    let report = run(&["--client-core", "any"]);
    assert!(report["client_cpu"].is_null(), "{report}");
    said(&report, "the client is not pinned");
    assert_eq!(report["host"], host, "the host is not what it keeps to");
    let list = ["bench", "e0", "--yes", "--client-core", "1000"];
    let nowhere = engine.refused(&list);
    let message = nowhere["message"].as_str().expect("text");
    assert!(message.starts_with("CPU 1000 is not there"), "{message}");
}

#[test]
fn what_a_limit_of_the_volume_bounds_is_said_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    engine.json(&["volume", "limit", "v0", "--bandwidth", "50MiB/s"]);
    let list = [
        &["bench", "e0"][..],
        &SHORT[..],
        &["--workloads", "random_read"],
    ]
    .concat();
    let notes = engine.json(&list)["assumptions"].to_string();
    assert!(
        notes.contains("volume v0 is limited to - IOPS, 50MiB/s"),
        "{notes}"
    );
}

#[test]
fn what_an_array_is_at_besides_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let list = [
        &["bench", "e0"][..],
        &SHORT[..],
        &["--workloads", "random_read"],
    ]
    .concat();
    for job in engine.json(&["job", "list"]).as_array().expect("a list") {
        engine.json(&["job", "wait", &job["id"].to_string()]);
    }
    let notes = engine.json(&list)["assumptions"].to_string();
    assert!(!notes.contains("when this begins"), "{notes}");
    engine.json(&["array", "fail", "a", "--member", "0", "--yes"]);
    let notes = engine.json(&list)["assumptions"].to_string();
    let said = "array a is degraded when this begins";
    assert!(notes.contains(said), "{notes}");
}

#[test]
fn what_the_engine_spends_is_told_per_request_and_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let list = ["--workloads", "random_read,random_write,stripe_write"];
    let report = engine.json(&[&["bench", "e0"][..], &SHORT[..], &list[..]].concat());
    let number = |value: &Value| value.as_f64().expect("a number");
    // A small write reads old data and parity and writes both; a full stripe only writes.
    for (point, (requests, read, written, copied)) in points(&report).iter().zip([
        (1.0, 1.0, 0.0, 0.0),
        (4.0, 2.0, 2.0, 1.0),
        (20.0, 0.0, 1.25, 1.0),
    ]) {
        let cost = &point["cost"];
        // The array's own records come on top, and few requests that end outside the window. Both
        // weigh much where a slow machine makes but a few requests.
        let requests_made = number(&point["requests"]).max(1.0);
        let near = |name: &str, value: f64| {
            let found = number(&cost[name]);
            let records = 20.0 / requests_made;
            assert!(
                (found - value).abs() <= 0.1 * value + 0.05 + records,
                "{name}: {point}"
            );
        };
        near("drive_requests_per_request", requests);
        near("drive_read_bytes_per_byte", read);
        near("drive_written_bytes_per_byte", written);
        near("copied_bytes_per_byte", copied);
        assert_eq!(number(&cost["messages_per_request"]), 0.0, "one reactor");
        let drives = cost["drives"].as_array().expect("a list");
        assert_eq!(drives.len(), 5, "the members");
        assert_eq!(cost["cores_used"], point["cores_used"]);
    }
}

#[test]
fn bursts_and_interleaved_streams_write_what_they_should() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 0);
    engine.json(&["volume", "create", "w", "--array", "a", "--size", "96MiB"]);
    engine.json(&["export", "vhost", "w", "--name", "f", "--queues", "2"]);
    let list = [
        "burst_write_64m,burst_read_64m,interleaved_write",
        "--verify",
    ];
    let report =
        engine.json(&[&["bench", "f"][..], &SHORT[..], &["--workloads"], &list[..]].concat());
    assert_eq!(report["errors"], 0, "{report}");
    let [write, read, interleaved] = points(&report).as_slice() else {
        panic!("three points: {report}");
    };
    for point in [write, read] {
        let bursts = &point["bursts"];
        let count = bursts["count"].as_u64().expect("a number");
        assert!(count > 0);
        assert_eq!(point["requests"].as_u64(), Some(64 * count), "whole bursts");
        let number = |name: &str| bursts[name].as_f64().expect("a number");
        assert!(number("first_done_us_p50") <= number("last_done_us_p50"));
        assert!(number("last_done_bytes_per_second") > 0.0);
    }
    assert!(interleaved["bursts"].is_null());
    assert_eq!(interleaved["request_bytes"], 48 << 10);
}

#[test]
fn several_exports_are_loaded_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 2);
    let list = ["--workloads", "random_write", "--precondition", "1"];
    let report = engine.json(&[&["bench", "e0", "e1"][..], &SHORT[..], &list[..]].concat());
    assert_eq!(report["sockets"].as_array().expect("a list").len(), 2);
    let drives = engine.json(&["drive", "list"]);
    let drives = drives.as_array().expect("a list").iter();
    let written = drives.map(|drive| drive["counters"]["written_bytes_total"].as_u64());
    let written: u64 = written.map(|bytes| bytes.expect("a number")).sum();
    // Two volumes of 32 MiB, with their parity.
    assert!(written > 80 << 20, "all was written beforehand: {written}");
    let cost = &points(&report)[0]["cost"];
    let each = cost["drive_requests_per_request"]
        .as_f64()
        .expect("a number");
    assert!((each - 4.0).abs() < 0.5, "both are counted: {each}");
    let twice = engine.refused(&["bench", "e0", "e0", "--yes", "--seconds", "0.1"]);
    assert_eq!(twice["message"], "it is named twice");
}

#[test]
fn exports_of_several_arrays_have_the_sum_of_their_theories() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "paced:kioxia-cm7,scale=1/100,size=64MiB", 1);
    for name in ["m0", "m1"] {
        let spec = "paced:kioxia-cm7,scale=1/200,size=64MiB";
        engine.json(&["drive", "add", spec, "--name", name]);
    }
    let mirror = ["--level", "1", "--drives", "m0,m1"];
    engine.json(&[&["array", "create", "b", "--yes"][..], &mirror[..]].concat());
    engine.json(&["volume", "create", "w", "--array", "b", "--size", "16MiB"]);
    engine.json(&["export", "vhost", "w", "--name", "f"]);
    let one = ["--seconds", "0.3", "--jobs", "1", "--depth", "1"];
    let reads = ["--workloads", "random_read"];
    let report = engine.json(&[&["bench", "e0", "f"][..], &one[..], &reads[..]].concat());
    let point = &points(&report)[0];
    let theory = &point["theoretical"];
    let sum = 1e6 / 7500.0 + 1e6 / 15_000.0;
    let value = theory["value"].as_f64().expect("a theory");
    assert!((value - sum).abs() < 0.1, "{theory}");
    assert_eq!(
        theory["formula"],
        "sum of 2 arrays: requests in flight/time of one on idle drives"
    );
    says(&report, "which have no drive in common");
    says(&report, "array b: drives are paced as kioxia-cm7 at 1/200");
    assert!(report["drive_model"].is_null(), "they are not alike");
    let devices = point["devices"].as_array().expect("both");
    let names = ["export e0", "export f"];
    for ((device, name), least) in devices.iter().zip(names).zip([7500.0, 15_000.0]) {
        assert_eq!(device["device"], name);
        let p50 = device["latency_us_p50"].as_f64().expect("a number");
        assert!(p50 >= least, "{device}");
    }
    let (table, _) = engine.says(&[&["bench", "e0", "f"][..], &one[..], &reads[..]].concat());
    assert!(table.contains("random_read 1x1: export f: "), "{table}");
}

#[test]
fn an_array_is_measured_degraded_and_while_it_is_filled() {
    let folder = tempfile::tempdir().expect("a folder");
    // The member takes seconds to be filled.
    let engine = engine(folder.path(), "paced:hdd-7200,size=64MiB", 1);
    let list = [
        "--workloads",
        "random_read",
        "--states",
        "as_found,degraded,rebuilding",
    ];
    let report = engine.json(&[&["bench", "e0"][..], &SHORT[..], &list[..]].concat());
    assert!(report["ended_early"].is_null(), "{report}");
    let states: Vec<&str> = points(&report)
        .iter()
        .filter_map(|point| point["state"].as_str())
        .collect();
    assert_eq!(states, ["as_found", "degraded", "rebuilding"]);
    let reads = |point: usize| {
        let cost = &points(&report)[point]["cost"];
        cost["drive_requests_per_request"]
            .as_f64()
            .expect("a number")
    };
    assert!(reads(0) < 1.3 && reads(1) > 1.2, "{report}");
    let members = engine.json(&["array", "show", "a"])["members"].clone();
    assert_ne!(members[0]["state"], "failed", "it is filled again");
}

#[test]
fn what_was_measured_is_kept_when_a_run_ends_early() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    engine.json(&["array", "fail", "a", "--member", "0", "--yes"]);
    let page = folder.path().join("page.html");
    let list = [
        "--workloads",
        "random_read",
        "--states",
        "as_found,degraded",
        "--output",
        "json",
        "--html",
        page.to_str().expect("UTF-8"),
    ];
    let output = engine.command(&[&["bench", "e0"][..], &SHORT[..], &list[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(points(&report).len(), 1);
    let why = report["ended_early"].as_str().expect("said");
    assert!(why.contains("only an optimal array"), "{why}");
    let error: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    let message = error["message"].as_str().expect("text");
    assert!(
        message.starts_with("it ended early, after 1 points"),
        "{message}"
    );
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains("The run ended early"), "{page}");
}

#[test]
fn what_was_measured_is_kept_when_somebody_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let page = folder.path().join("page.html");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_garboard"));
    bench.arg("--socket").arg(engine.folder().join("api.sock"));
    bench.args(["bench", "e0", "--yes", "--seconds", "1"]);
    bench.arg("--html").arg(&page);
    bench
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut bench = bench.spawn().expect("it runs");
    let mut said = BufReader::new(bench.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("random_read 1x2") {
        line.clear();
        assert!(
            said.read_line(&mut line).expect("UTF-8") > 0,
            "it ended by itself"
        );
    }
    let process = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("UTF-8");
    let output = bench.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(rest.contains("ended by a signal"), "{rest}");
    assert!(told.contains("random_read"), "{told}");
    assert!(!told.contains("sequential_write"), "{told}");
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains("ended by a signal"));
}

#[test]
fn a_back_end_that_ends_is_not_waited_for() {
    for exports in [&["e0"][..], &["e0", "e1"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path(), "mem:64MiB", 2);
        let mut bench = Command::new(env!("CARGO_BIN_EXE_garboard"));
        bench.arg("--socket").arg(engine.folder().join("api.sock"));
        bench.arg("bench").args(exports);
        bench.args([
            "--workloads",
            "random_read",
            "--seconds",
            "30",
            "--jobs",
            "1",
        ]);
        bench.args(["--depth", "4", "--output", "json"]);
        bench
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut bench = bench.spawn().expect("it runs");
        // Until it has asked each of them for something: before, it is still connecting.
        let read = || {
            let volumes = engine.json(&["volume", "list"]);
            let used = |name: &str| {
                let volumes = volumes.as_array().expect("a list");
                volumes.iter().any(|volume| {
                    volume["exports"][0] == name && volume["counters"]["reads_total"] != 0
                })
            };
            exports.iter().all(|name| used(name))
        };
        while !read() {
            assert!(bench.try_wait().expect("ours").is_none(), "it ended");
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        assert!(!engine.end(Signal::KILL).success());
        let begun = MonotonicClock.now();
        let output = bench.wait_with_output().expect("it ends");
        let took = MonotonicClock.now().since(begun);
        assert!(took.as_secs() < 20, "{took:?}");
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(told.contains("hung up"), "{told}");
    }
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let path = folder.path().join("page.html");
    let list = [
        "--workloads",
        "random_read,stripe_write",
        "--html",
        path.to_str().expect("UTF-8"),
    ];
    let report = engine.json(&[&["bench", "e0"][..], &SHORT[..], &list[..]].concat());
    let page = std::fs::read_to_string(&path).expect("written");
    for outside in ["http:", "https:", "src=", "href=", "<script", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for text in [
        "random read",
        "stripe write",
        "Bytes of drives",
        "All points",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.matches("<svg").count() >= 6, "its plots");
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    let note = report["assumptions"][1].as_str().expect("text");
    assert!(page.contains(note), "{note}");
    // Where it cannot be written is told before anything is measured.
    let nowhere = engine.refused(&["bench", "e0", "--yes", "--html", "/nonexistent/page.html"]);
    assert_eq!(nowhere["object"], "file /nonexistent/page.html");
}

#[test]
fn what_must_not_be_measured_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let unsure = engine.refused(&["bench", "e0", "--seconds", "0.1"]);
    assert_eq!(unsure["code"], "unsafe");
    assert!(
        unsure["message"]
            .as_str()
            .expect("text")
            .contains("volume v0"),
        "{unsure}"
    );
    engine.json(&["export", "vhost", "v", "--name", "r", "--read-only"]);
    let writes = engine.refused(&["bench", "r", "--yes", "--seconds", "0.1"]);
    assert!(
        writes["message"]
            .as_str()
            .expect("text")
            .contains("read-only"),
        "{writes}"
    );
    let reads = [
        "bench",
        "r",
        "--seconds",
        "0.1",
        "--workloads",
        "random_read",
        "--jobs",
        "1",
    ];
    engine.json(&[&reads[..], &["--depth", "1"]].concat());
    let nobody = engine.refused(&[
        "bench",
        "--target",
        "/nonexistent.sock",
        "--workloads",
        "random_read",
        "--seconds",
        "0.1",
    ]);
    assert!(
        nobody["object"]
            .as_str()
            .expect("text")
            .contains("/nonexistent.sock"),
        "{nobody}"
    );
    assert_eq!(engine.refused(&["bench", "nosuch"])["code"], "not_found");
    // More than the queues hold is skipped, and said.
    let output = engine.command(&[
        "--output",
        "json",
        "bench",
        "r",
        "--seconds",
        "0.1",
        "--workloads",
        "random_read",
        "--jobs",
        "4",
        "--depth",
        "512",
    ]);
    assert_eq!(common::refused(&output)["code"], "invalid");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report");
    assert_eq!(points(&report).len(), 0);
    let skipped = report["skipped"][0].as_str().expect("said");
    assert!(
        skipped.starts_with("random_read 4x512: 2048 requests"),
        "{skipped}"
    );
}

#[test]
fn an_export_that_is_not_served_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let before = engine(folder.path(), "mem:64MiB", 1);
    assert!(before.end(Signal::TERM).success());
    // What was in memory is gone.
    let engine = Engine::start(folder.path());
    let refused = engine.refused(&["bench", "e0", "--seconds", "0.1"]);
    assert_eq!(refused["object"], "export e0", "{refused}");
    let next = refused["next"].as_str().expect("a way out");
    assert!(next.contains("garboard export show e0"), "{next}");
}

#[test]
fn lengths_are_those_of_odd_workloads_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 1);
    let list = [
        "--workloads",
        "random_read,odd_write,interleaved_write,even_write",
        "--length",
        "1MiB,128KiB",
        "--verify",
    ];
    let report = engine.json(&[&["bench", "e0"][..], &SHORT[..], &list[..]].concat());
    assert_eq!(report["errors"], 0, "{report}");
    let asked: Vec<(&str, u64)> = points(&report)
        .iter()
        .filter_map(|point| {
            Some((
                point["workload"].as_str()?,
                point["request_bytes"].as_u64()?,
            ))
        })
        .collect();
    let (long, short) = (1 << 20, 128 << 10);
    assert_eq!(
        asked,
        [
            ("random_read", 4096),
            ("odd_write", long),
            ("odd_write", short),
            ("interleaved_write", long),
            ("interleaved_write", short),
            ("even_write", long),
            ("even_write", short),
        ]
    );
}

#[test]
fn job_files_of_an_export_have_its_stripes() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    // Three data drives: 192 KiB, of which 1 MiB is no multiple.
    engine.fill(&vec!["mem:64MiB".to_owned(); 4]);
    engine.json(&["export", "vhost", "v", "--name", "e"]);
    let list = ["--workloads", "stripe_write,burst_write_64m"];
    let jobs = |name: &str, export: &str| {
        let path = folder.path().join(name);
        let more = ["--jobs", "1", "--depth", "2", "--range", "64TiB"];
        let fio = ["--fio-jobs", path.to_str().expect("UTF-8")];
        let (said, _) = engine.says(&[&["bench", export][..], &list, &more, &fio].concat());
        let files = std::fs::read_dir(path).expect("a folder");
        let names = files.map(|file| file.expect("one").file_name());
        (said, names.collect::<Vec<_>>())
    };
    let (said, names) = jobs("known", "e");
    assert_eq!(names, ["stripe_write-1179648-1x2.fio"]);
    assert!(
        said.contains("left out: burst_write_64m 1x2: fio"),
        "{said}"
    );
    assert!(!said.contains("note:"), "{said}");
    let job = folder.path().join("known").join(&names[0]);
    let job = std::fs::read_to_string(job).expect("read");
    let size = engine.json(&["volume", "show", "v"])["size_bytes"].as_u64();
    let size = size.expect("a number") / 1_179_648 * 1_179_648;
    assert!(
        job.contains(&format!("size={size}\n")),
        "no longer than it: {job}"
    );
    let wrong = engine.refused(&["bench", "nosuch", "--fio-jobs", "/nonexistent"]);
    assert_eq!(wrong["code"], "not_found");
    // And without an engine it is said what was taken.
    let path = folder.path().join("unknown");
    let mut alone = Command::new(env!("CARGO_BIN_EXE_garboard"));
    alone.args([
        "--socket",
        "/nonexistent/api.sock",
        "bench",
        "e",
        "--range",
        "64MiB",
    ]);
    alone.args(list).arg("--fio-jobs").arg(&path);
    let said = alone.stdin(Stdio::null()).output().expect("it runs");
    assert!(said.status.success());
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    assert!(
        said.contains("taken for 1 MiB: no engine answers"),
        "{said}"
    );
}

#[test]
fn wrong_usage_ends_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(folder.path());
    for wrong in [
        &["bench"][..],
        &["bench", "e0", "--target", "/x"],
        &["bench", "e0", "--workloads", "sideways"],
        &["bench", "e0", "--seconds", "0"],
        &["bench", "e0", "--depth", "0"],
        &["bench", "e0", "--pairs", "3"],
        &["bench", "e0", "--rate", "0"],
        &["bench", "e0", "--rate", "101%"],
        &["bench", "e0", "--rate", "fast"],
        &["bench", "--drive", "mem:1GiB", "--rate", "5"],
        &["bench", "e0", "--client-core", "-1"],
        &["bench", "e0", "--client-core", "none"],
    ] {
        assert_eq!(engine.command(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
