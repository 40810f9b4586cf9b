//! Commands against each state that an array can be in: done, or refused with object, cause and way
//! out, and the array is as it was. Those that wait for members are in `waits.rs`.

use crate::bed::{Bed, holds};
use crate::halves::{hide, show};

/// A command, the code that it is refused with, and words of the refusal.
type Refused = (
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const START: &[&str] = &["array", "start", "a", "--force", "--yes"];
const IMPORT: &[&str] = &["array", "import", "a"];
const STOP: &[&str] = &["array", "stop", "a"];
const DESTROY: &[&str] = &["array", "destroy", "a", "--yes"];
const FAIL_0: &[&str] = &["array", "fail", "a", "--member", "0", "--yes"];
const FAIL_1: &[&str] = &["array", "fail", "a", "--member", "1", "--yes"];
const FAIL_9: &[&str] = &["array", "fail", "a", "--member", "9", "--yes"];
const REPLACE_1: &[&str] = &["array", "replace", "a", "--member", "1", "--drive", "d3"];
const MODIFY: &[&str] = &["array", "modify", "a", "--rebuild-floor", "50MiB"];
const REBUILD: &[&str] = &["array", "rebuild", "a", "start"];
const REBUILD_STOP: &[&str] = &["array", "rebuild", "a", "stop"];
const RESYNC: &[&str] = &["array", "resync", "a", "start", "--yes"];
const RESYNC_STOP: &[&str] = &["array", "resync", "a", "stop"];
const SCRUB: &[&str] = &["array", "scrub", "a", "start"];
const SCRUB_STOP: &[&str] = &["array", "scrub", "a", "stop"];
const CREATE: &[&str] = &["volume", "create", "w", "--array", "a", "--size", "4MiB"];
const RESIZE: &[&str] = &["volume", "resize", "v", "--size", "8MiB"];
const DELETE: &[&str] = &["volume", "delete", "v", "--yes"];
const EXPORT: &[&str] = &["export", "vhost", "v", "--name", "e"];
const WIPE_1: &[&str] = &["drive", "wipe", "d1", "--yes"];

/// What needs an array that runs.
const NOT_STARTED: &[&str] = &["not started", "`garboard array start a`"];

fn are_refused(bed: &Bed, cases: &[Refused]) {
    let state = bed.state().0;
    for (command, code, words) in cases {
        bed.refused(command, code, words);
        assert_eq!(bed.state().0, state, "{command:?}");
    }
}

/// Of whichever array that does not run.
fn refuses_as_stopped(bed: &Bed) {
    let needs = [
        FAIL_0,
        FAIL_1,
        FAIL_9,
        REPLACE_1,
        MODIFY,
        REBUILD,
        REBUILD_STOP,
        RESYNC,
        RESYNC_STOP,
        SCRUB,
        SCRUB_STOP,
        CREATE,
        RESIZE,
        EXPORT,
    ];
    for command in needs.into_iter().filter(|command| *command != FAIL_9) {
        are_refused(bed, &[(command, "busy", NOT_STARTED)]);
    }
    are_refused(
        bed,
        &[
            (FAIL_9, "not_found", &["members 0 to", "array show a"]),
            (IMPORT, "exists", &["knows it already", "array start a"]),
            (STOP, "busy", &["not started", "nothing is to be done"]),
        ],
    );
    takes_spares(bed);
}

/// Of whichever array that runs and waits for nobody.
fn refuses_as_running(bed: &Bed) {
    are_refused(
        bed,
        &[
            (START, "busy", &["runs already", "array show a"]),
            (IMPORT, "exists", &["it runs", "array show a"]),
            (STOP, "busy", &["export v", "export remove v"]),
            (DESTROY, "busy", &["exported as v", "export remove v"]),
            (DELETE, "busy", &["exported as v", "export remove v"]),
            (EXPORT, "busy", &["export v serves volume v", "remove it"]),
            (FAIL_9, "not_found", &["members 0 to", "array show a"]),
            (SCRUB_STOP, "not_found", &["no scrub runs", "scrub a show"]),
            (RESYNC_STOP, "not_found", &["nothing of the kind", "job"]),
        ],
    );
    takes_spares(bed);
}

/// Spares are wanted state: every array takes them and gives them back.
fn takes_spares(bed: &Bed) {
    let add = ["array", "spare", "add", "a", "--drive", "d4"];
    let remove = ["array", "spare", "remove", "a", "--drive", "d4"];
    are_refused(
        bed,
        &[(
            &["pool", "add", "p", "--drive", "d4"],
            "not_found",
            &["no such pool"],
        )],
    );
    bed.refused(&remove, "not_found", &["no spare of array a"]);
    // A place that is out would be filled by it.
    if bed.state().0 != "degraded" {
        bed.engine().json(&add);
        bed.refused(&["drive", "wipe", "d4", "--yes"], "busy", &["spare"]);
        bed.engine().json(&remove);
        let create = ["pool", "create", "p", "--drives", "d4", "--arrays", "a"];
        bed.engine().json(&create);
        bed.refused(&add, "busy", &["p"]);
        bed.engine().json(&["pool", "detach", "p", "--array", "a"]);
        bed.engine().json(&["pool", "remove", "p", "--drive", "d4"]);
        bed.engine().json(&["pool", "delete", "p"]);
    }
}

#[test]
fn a_stopped_array_is_changed_by_nothing_but_a_start() {
    let bed = Bed::new("5", 3, 2);
    bed.engine().json(&["export", "remove", "v", "--yes"]);
    bed.engine().json(STOP);
    refuses_as_stopped(&bed);
    are_refused(
        &bed,
        &[
            (DELETE, "busy", NOT_STARTED),
            (DESTROY, "unsafe", &["holds 1 volume", "--force"]),
            (WIPE_1, "busy", &["member 1 of array a"]),
            (
                &["drive", "remove", "d1"],
                "busy",
                &["not started", "--force"],
            ),
        ],
    );
    bed.engine().json(START);
    bed.engine()
        .json(&["export", "vhost", "v", "--queues", "1"]);
    bed.await_optimal();
    bed.is_sound(1);
}

#[test]
fn an_optimal_and_a_degraded_array_refuse_what_would_lose_data() {
    let bed = Bed::new("5", 3, 2);
    refuses_as_running(&bed);
    are_refused(
        &bed,
        &[
            (REBUILD, "invalid", &["nothing is missing", "array show a"]),
            (REBUILD_STOP, "not_found", &["nothing of the kind", "job"]),
            (WIPE_1, "busy", &["member 1 of array a", "array fail a"]),
            (&["drive", "remove", "d1"], "busy", &["member 1", "--force"]),
        ],
    );
    bed.engine().json(FAIL_1);
    assert_eq!(bed.state().0, "degraded");
    refuses_as_running(&bed);
    are_refused(
        &bed,
        &[
            (
                FAIL_0,
                "unsafe",
                &["without member 0 data is lost", "replace"],
            ),
            (FAIL_1, "invalid", &["member 1 is out already"]),
            (REBUILD, "invalid", &["no member waits", "array replace a"]),
            (
                &["drive", "remove", "d0", "--force", "--yes"],
                "unsafe",
                &["would lose data without it", "fill its lost places"],
            ),
        ],
    );
    bed.guest().verify(1);
    bed.engine().json(&[REPLACE_1, &["--wait"]].concat());
    bed.await_optimal();
    bed.is_sound(1);
}

#[test]
fn a_place_that_is_being_filled_is_not_copied() {
    let bed = Bed::new("5", 3, 2);
    bed.engine().json(FAIL_1);
    let slow = "paced:hdd-7200,scale=1/2,size=64MiB";
    bed.engine().json(&["drive", "add", slow, "--name", "slow"]);
    let replace = ["array", "replace", "a", "--member", "1", "--drive", "slow"];
    bed.engine().json(&replace);
    bed.engine().json(REBUILD_STOP);
    are_refused(
        &bed,
        &[
            (
                REPLACE_1,
                "busy",
                &["a rebuild is filling it", "array fail a"],
            ),
            (
                FAIL_0,
                "unsafe",
                &["without member 0 data is lost", "replace"],
            ),
            (RESYNC, "busy", &["a rebuild runs", "wait"]),
        ],
    );
    bed.guest().verify(1);
    // The way out is one.
    bed.engine().json(FAIL_1);
    bed.engine().json(REPLACE_1);
    bed.await_optimal();
    bed.is_sound(1);
}

#[test]
fn an_incomplete_array_and_both_sides_of_a_split_brain_are_left_as_they_are() {
    let mut bed = Bed::new("5", 3, 2);
    bed.stop();
    hide(&bed, &["d0", "d2"]);
    bed.start();
    are_refused(
        &bed,
        &[(
            START,
            "degraded",
            &["needs 2 members in sync and has 1", "drive add"],
        )],
    );
    refuses_as_stopped(&bed);
    are_refused(&bed, &[(DELETE, "busy", &["export remove v"])]);
    bed.stop();
    show(&bed, &["d0", "d2"]);
    bed.start();
    bed.await_optimal();
    bed.is_sound(1);

    // Free drives have the names that the commands know.
    let mut bed = Bed::new("1", 2, 3);
    bed.stop();
    hide(&bed, &["d1"]);
    bed.start();
    bed.guest().write(2);
    bed.stop();
    show(&bed, &["d1"]);
    hide(&bed, &["d0"]);
    bed.start();
    bed.engine().json(START);
    bed.guest().write(3);
    bed.stop();
    show(&bed, &["d0"]);
    bed.start();
    holds(&bed.state().1, &["split brain"]);
    are_refused(&bed, &[(START, "unsafe", &["split brain", "drive remove"])]);
    refuses_as_stopped(&bed);
    // Neither side is given up by the way, whichever is shown.
    for drive in ["d0", "d1"] {
        let refusal = bed.engine().refused(&["drive", "remove", drive]);
        holds(&refusal.to_string(), &["split brain", "--force", "array a"]);
    }
    let forced = ["drive", "remove", "d0", "--force", "--yes"];
    bed.engine().json(&forced);
    bed.engine().json(&["array", "start", "a"]);
    bed.guest().verify(3);
}
