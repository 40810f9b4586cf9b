//! Copies of members, drives that changed places, and drives of another size.

use crate::bed::{Bed, holds, spec};

#[test]
fn a_copy_made_while_the_array_ran_is_old_after_a_clean_stop() {
    let mut bed = Bed::new("5", 3, 0);
    bed.image("d1").copy_to(&bed.path("copy"));
    bed.guest().write(2);
    bed.stop();
    bed.rename("copy", "d1.img");
    bed.start();
    bed.guest().verify(2);
    let (state, warnings) = bed.state();
    assert_eq!(state, "degraded");
    holds(
        &warnings,
        &[
            "drive d1 is left out: member 1",
            "is older than",
            "`garboard array replace a --member 1 --drive d1` fills it anew",
        ],
    );
    // And the way out is one.
    let replace = ["array", "replace", "a", "--member", "1", "--drive", "d1"];
    bed.engine()
        .json(&[&replace[..], &["--wait", "--yes"]].concat());
    bed.await_optimal();
    bed.is_sound(2);
}

#[test]
fn a_copy_made_before_the_last_start_is_old_after_a_kill() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    bed.image("d1").copy_to(&bed.path("copy"));
    bed.start();
    bed.guest().write(2);
    bed.kill();
    bed.rename("copy", "d1.img");
    bed.start();
    bed.guest().verify(2);
    let (state, cause) = bed.drive("d1");
    assert_eq!(state, "failed");
    holds(&cause, &["member 1", "is older than"]);
}

#[test]
fn a_copy_beside_its_original_is_named_and_never_used() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    bed.image("d1").copy_to(&bed.path("twin"));
    bed.start();
    let twin = spec(&bed.path("twin"));
    bed.engine()
        .json(&["drive", "add", &twin, "--name", "twin"]);
    let (state, cause) = bed.drive("twin");
    assert_eq!(state, "failed");
    holds(
        &cause,
        &[
            "member 1 of array a, which is drive d1: a copy",
            "drive wipe twin",
        ],
    );
    let found = bed.engine().json(&["array", "import", "--search", &twin]);
    assert_eq!(found.as_array().map(Vec::len), Some(0), "{found}");
    // Both are there at the next start, too.
    bed.kill();
    bed.start();
    let (state, warnings) = bed.state();
    assert_eq!(state, "optimal");
    holds(
        &warnings,
        &[
            "drive twin is left out: member 1: copy with",
            "drive d1 is used instead",
        ],
    );
    bed.guest().verify(1);
    // The original goes, and the copy is not taken for it.
    bed.stop();
    std::fs::remove_file(bed.path("d1.img")).expect("removed");
    bed.start();
    assert_eq!(bed.state().0, "degraded");
    bed.guest().verify(1);
}

#[test]
fn drives_that_changed_places_are_told_by_what_is_on_them() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    bed.rename("d1.img", "aside");
    bed.rename("d2.img", "d1.img");
    bed.rename("aside", "d2.img");
    bed.start();
    assert_eq!(bed.state(), ("optimal".to_owned(), String::new()));
    bed.guest().verify(1);
    let drive = bed.engine().json(&["drive", "show", "d1"]);
    let place = drive["spec"].as_str().expect("a text");
    assert!(place.starts_with(&spec(&bed.path("d2.img"))), "{place}");
}

#[test]
fn a_drive_may_grow_and_not_shrink() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    bed.image("d1").resize(80 << 20);
    bed.start();
    assert_eq!(bed.state(), ("optimal".to_owned(), String::new()));
    bed.guest().verify(1);
    bed.stop();
    bed.image("d1").resize(60 << 20);
    bed.start();
    assert_eq!(bed.state().0, "degraded");
    let (state, cause) = bed.drive("d1");
    assert_eq!(state, "missing");
    holds(&cause, &["62914560", "fewer than size="]);
    bed.guest().verify(1);
    // With its size back it is filled where it missed something.
    bed.stop();
    bed.image("d1").resize(80 << 20);
    bed.start();
    bed.guest().verify(1);
}

#[test]
fn a_member_of_another_array_is_no_member_of_this_one() {
    let mut bed = Bed::new("5", 3, 0);
    let other = Bed::new("5", 3, 0);
    bed.stop();
    other.image("d1").copy_to(&bed.path("d1.img"));
    bed.start();
    bed.guest().verify(1);
    let (state, cause) = bed.drive("d1");
    assert_eq!(state, "missing", "{cause}");
    holds(&cause, &["is another drive (member:"]);
    let array = bed.engine().json(&["array", "show", "a"]);
    assert_eq!(array["members"][1]["state"], "missing", "{array}");
}
