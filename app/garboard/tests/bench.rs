//! `garboard bench` as a user meets it: an engine with pretended drives, another back-end, and
//! what is refused.

mod common;

use common::Engine;
use serde_json::Value;

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
    assert_eq!(
        report["skipped"].as_array().expect("a list").len(),
        0,
        "{report}"
    );
    assert_eq!(points(&report).len(), 9);
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
    assert!(table.contains("random_read"), "{table}");
}

#[test]
fn a_rival_gets_the_same_load_pair_by_pair() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = engine(folder.path(), "mem:64MiB", 2);
    let socket = engine.json(&["export", "show", "e1"])["socket"].clone();
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
        "4",
    ]);
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
    }
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
    let report = engine.json(&[
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
    assert_eq!(points(&report).len(), 0);
    let skipped = report["skipped"][0].as_str().expect("said");
    assert!(
        skipped.starts_with("random_read 4x512: 2048 requests"),
        "{skipped}"
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
    ] {
        assert_eq!(engine.command(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
