//! `garboard expect` as a user meets it: no engine, both forms, a file of one's own, wrong usage.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `garboard expect` where no engine is.
fn expect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_garboard"))
        .args(["--socket", "/nonexistent/api.sock", "expect"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = expect(&[arguments, &["--output", "json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The error of wrong usage, as JSON.
fn wrong(arguments: &[&str]) -> String {
    let output = expect(&[arguments, &["--output", "json"]].concat());
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let error: Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(error["code"], "invalid", "{arguments:?}");
    error["message"].as_str().expect("a message").to_owned()
}

const GROUPS: [&str; 8] = [
    "--level",
    "50",
    "--drives",
    "24",
    "--group-size",
    "12",
    "--drive-model",
    "kioxia-cm7",
];

#[test]
fn every_workload_is_an_object_with_value_formula_and_bound() {
    let answer = json(&GROUPS);
    let workloads = answer["workloads"].as_object().expect("an object");
    for (name, value) in [
        ("random_read", 64_800_000_u64),
        ("random_write", 8_400_000),
        ("sequential_read", 336_000_000_000),
        ("sequential_read_data", 308_000_000_000),
        ("sequential_write", 148_500_000_000),
        ("degraded_random_read", 32_400_000),
    ] {
        assert_eq!(workloads[name]["value"], value, "{name}");
    }
    for (name, workload) in workloads {
        assert!(workload["value"].is_u64(), "{name}");
        for text in ["formula", "bound", "unit"] {
            assert!(workload[text].is_string(), "{name}: {text}");
        }
        // What binds is the least of all that could.
        let bounds = workload["bounds"].as_array().expect("bounds");
        let least = bounds.iter().filter_map(|bound| bound["value"].as_u64());
        assert_eq!(least.min(), workload["value"].as_u64(), "{name}");
    }
    assert_eq!(answer["drive_model"]["read_iops"]["value"], 2_700_000);
    assert!(answer["usable_bytes"].as_u64() < answer["raw_bytes"].as_u64());
}

#[test]
fn a_person_reads_figures_formulas_bounds_and_sources() {
    let output = expect(&GROUPS);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in [
        "24 drives serve in 2 groups of 11+1",
        "64.8 M IOPS",
        "8.40 M IOPS",
        "336 GB/s",
        "308 GB/s",
        "149 GB/s",
        "N·SW·k/(k+M)",
        "sequential writes of the drives",
        "W 700 k IOPS: published figures of 24 drives",
        "two bounds, all drives and data drives",
        "--host-bandwidth",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // One long cell would make every line of the table wrap on a narrow screen.
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
}

#[test]
fn a_model_of_ones_own_is_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    let mut text = String::from("name = \"mine\"\ntitle = \"a drive of mine\"\n");
    for (figure, value) in [
        ("capacity_bytes", 1_000_000_000_000_u64),
        ("read_iops", 1000),
        ("write_iops", 500),
        ("read_bytes_per_second", 4_000_000_000),
        ("write_bytes_per_second", 2_000_000_000),
        ("read_latency_us", 100),
        ("write_latency_us", 20),
    ] {
        text.push_str(&format!(
            "{figure} = {{ value = {value}, source = \"fio\" }}\n"
        ));
    }
    std::fs::write(&path, &text).expect("written");
    let path = path.to_str().expect("UTF-8");
    let arguments = ["--level", "6", "--drives", "10", "--drive-model", path];
    let answer = json(&arguments);
    assert_eq!(answer["workloads"]["random_read"]["value"], 10_000);
    assert_eq!(answer["workloads"]["random_read"]["requests_in_flight"], 1);
    assert_eq!(answer["drive_model"]["read_iops"]["source"], "fio");

    std::fs::write(path, text.replace("value = 1000,", "value = 0,")).expect("written");
    assert!(wrong(&arguments).contains("read_iops is 0"));
}

#[test]
fn limits_beside_the_drives_bind_when_they_are_given() {
    let limited = json(
        &[
            &GROUPS[..],
            &["--cores", "4", "--core-read-iops", "1000000"],
            &["--network-bandwidth", "25GB", "--rebuild-rate", "1GB"],
        ]
        .concat(),
    );
    let read = &limited["workloads"]["random_read"];
    assert_eq!(read["value"], 4_000_000);
    assert_eq!(read["bound"], "the engine's cores");
    let write = &limited["workloads"]["sequential_write"];
    assert_eq!(write["value"], 25_000_000_000_u64);
    assert_eq!(limited["workloads"]["rebuild_time"]["value"], 3_840);
}

#[test]
fn wrong_usage_is_told_and_ends_with_2() {
    let with = |more: &[&'static str]| -> Vec<&'static str> {
        let model = ["--drive-model", "kioxia-cm7"];
        [&model[..], more].concat()
    };
    for (arguments, says) in [
        (with(&["--level", "8", "--drives", "4"]), "is not a level"),
        (with(&["--level", "5"]), "required"),
        (with(&["--level", "5", "--drives", "2"]), "3"),
        (with(&["--level", "5", "--drives", "0"]), "none to serve"),
        (with(&["--level", "50", "--drives", "24"]), "group"),
        (
            with(&["--level", "50", "--drives", "24", "--group-size", "7"]),
            "24",
        ),
        (
            with(&["--level", "6", "--drives", "8", "--lost", "3"]),
            "survives the loss of 2",
        ),
        (
            with(&["--level", "6", "--drives", "8", "--chunk", "3KiB"]),
            "chunk",
        ),
        (
            with(&["--level", "6", "--drives", "8", "--core-read-iops", "5"]),
            "required",
        ),
        (
            with(&["--level", "6", "--drives", "8", "--host-bandwidth", "0"]),
            "rate",
        ),
        (with(&["--level", "nm", "--drives", "8"]), "parity"),
        (
            vec!["--level", "5", "--drives", "4", "--drive-model", "nosuch"],
            "no built-in drive model (there are kioxia-cm7, kioxia-cm6, intel-p5520",
        ),
    ] {
        let message = wrong(&arguments);
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}
