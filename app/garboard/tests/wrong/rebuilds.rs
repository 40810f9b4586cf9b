//! Rebuilds that were stopped, and what comes after them.

use std::thread;

use crate::bed::{Bed, holds};

const STOP: &[&str] = &["array", "rebuild", "a", "stop"];
const FAIL_1: &[&str] = &["array", "fail", "a", "--member", "1", "--yes"];

/// A drive that takes seconds to fill.
fn add_slow(bed: &Bed) {
    let spec = "paced:hdd-7200,scale=1/2,size=64MiB";
    bed.engine().json(&["drive", "add", spec, "--name", "slow"]);
}

fn replace(drive: &str) -> [&str; 7] {
    ["array", "replace", "a", "--member", "1", "--drive", drive]
}

/// Member 1 is out, and the rebuild that filled the drive `slow` in its place was stopped; its job.
fn with_a_stopped_rebuild(bed: &Bed) -> u64 {
    add_slow(bed);
    bed.engine().json(FAIL_1);
    bed.engine().json(&replace("slow"));
    let job = bed.engine().json(STOP);
    assert_eq!(job["state"], "cancelled", "{job}");
    job["id"].as_u64().expect("a number")
}

#[test]
fn a_stopped_rebuild_is_told_and_a_drive_that_replaces_it_is_filled_by_its_own() {
    let bed = Bed::new("5", 3, 1);
    let stopped = with_a_stopped_rebuild(&bed);
    let (state, warnings) = bed.state();
    assert_eq!(state, "degraded");
    let told = ["its rebuild is stopped", "`garboard array rebuild a start`"];
    holds(&warnings, &told);
    bed.engine().json(FAIL_1);
    let array = bed
        .engine()
        .json(&[&replace("d3")[..], &["--wait"]].concat());
    assert_eq!(array["state"], "optimal", "{array}");
    let jobs = bed.engine().json(&["array", "rebuild", "a", "show"]);
    let jobs = jobs.as_array().expect("a list");
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    assert_eq!(
        (jobs[0]["id"].as_u64(), &jobs[0]["state"]),
        (Some(stopped), &"cancelled".into())
    );
    assert_eq!(jobs[1]["state"], "done");
    assert!(!bed.state().1.contains("stopped"), "{:?}", bed.state());
    bed.is_sound(1);
}

#[test]
fn who_waits_for_a_replacement_is_told_when_its_rebuild_is_stopped() {
    let bed = Bed::new("5", 3, 0);
    add_slow(&bed);
    bed.engine().json(FAIL_1);
    let refusal = thread::scope(|scope| {
        let waits = || {
            bed.engine()
                .refused(&[&replace("slow")[..], &["--wait"]].concat())
        };
        let waits = scope.spawn(waits);
        // Whether that one has seen a job already or not.
        while !bed.engine().command(STOP).status.success() {
            assert!(!waits.is_finished(), "nobody stopped it");
        }
        waits.join().expect("it is refused")
    });
    holds(&refusal.to_string(), &["`garboard array rebuild a start`"]);
    assert_eq!(bed.state().0, "degraded");
    bed.engine()
        .json(&["array", "rebuild", "a", "start", "--wait"]);
    bed.await_optimal();
    bed.is_sound(1);
}

#[test]
fn a_member_that_returns_is_filled_unless_what_was_stopped_is_due_yet() {
    for ended in [true, false] {
        let bed = Bed::new("6", 4, 0);
        with_a_stopped_rebuild(&bed);
        bed.engine()
            .json(&["drive", "remove", "d2", "--force", "--yes"]);
        bed.guest().write(2);
        if ended {
            bed.engine().json(FAIL_1);
        }
        let spec = crate::bed::spec(&bed.path("d2.img"));
        bed.engine().json(&["drive", "add", &spec, "--name", "d2"]);
        let members = |bed: &Bed| bed.array()["members"].clone();
        if ended {
            let is_filled = || members(&bed)[2]["state"] == "online";
            bed.wait_until("it is filled", is_filled);
        } else {
            assert_eq!(members(&bed)[2]["state"], "rebuilding");
            holds(&bed.state().1, &["its rebuild is stopped"]);
            bed.engine()
                .json(&["array", "rebuild", "a", "start", "--wait"]);
            bed.await_optimal();
        }
        bed.guest().verify(2);
    }
}

#[test]
fn no_resync_is_begun_while_parity_is_needed() {
    let bed = Bed::new("5", 3, 1);
    let start = ["array", "resync", "a", "start"];
    let confirmed = [&start[..], &["--yes"]].concat();
    for command in [&start[..], &confirmed] {
        let job = bed.engine().json(&[command, &["--wait"]].concat());
        assert_eq!(job["state"], "done");
    }
    bed.engine().json(FAIL_1);
    let only = [
        "member 1 is out",
        "only parity",
        "`garboard array replace a --member 1`",
    ];
    for command in [&start[..], &confirmed] {
        bed.refused(command, "unsafe", &only);
    }
    bed.engine()
        .json(&[&replace("d3")[..], &["--wait"]].concat());
    bed.is_sound(1);
}

#[test]
fn a_resync_that_was_stopped_goes_on_and_nobody_is_asked() {
    let bed = Bed::new("1", 2, 1);
    add_slow(&bed);
    let create = [
        "array", "create", "b", "--level", "1", "--drives", "d2,slow",
    ];
    bed.engine().json(&[&create[..], &["--wait"]].concat());
    let resync = |more: &[&str]| {
        bed.engine()
            .json(&[&["array", "resync", "b"], more].concat())
    };
    let job = resync(&["start", "--yes"]);
    assert_eq!(resync(&["stop"])["id"], job["id"]);
    let array = bed.engine().json(&["array", "show", "b"]);
    holds(&array["warnings"].to_string(), &["its resync is stopped"]);
    let again = resync(&["start"]);
    assert_eq!(
        (&again["id"], &again["state"]),
        (&job["id"], &"running".into())
    );
}
