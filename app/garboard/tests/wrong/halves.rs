//! Too few members, a minority by force, and halves that went on without each other.

use crate::bed::{Bed, holds, spec};

/// Takes drives away, or brings them back.
pub(crate) fn hide(bed: &Bed, drives: &[&str]) {
    for drive in drives {
        bed.rename(&format!("{drive}.img"), &format!("{drive}.away"));
        // Not found by what is on it, either.
        std::fs::create_dir_all(bed.path("away")).expect("a folder");
        bed.rename(&format!("{drive}.away"), &format!("away/{drive}"));
    }
}

pub(crate) fn show(bed: &Bed, drives: &[&str]) {
    for drive in drives {
        bed.rename(&format!("away/{drive}"), &format!("{drive}.img"));
    }
}

const START: [&str; 5] = ["array", "start", "a", "--force", "--yes"];

#[test]
fn too_few_members_are_not_started_even_by_force() {
    let mut bed = Bed::new("5", 3, 0);
    bed.stop();
    hide(&bed, &["d0", "d2"]);
    bed.start();
    let (state, warnings) = bed.state();
    assert_eq!(state, "stopped");
    holds(
        &warnings,
        &["needs 2 members in sync and has 1", "member 0", "member 2"],
    );
    bed.refused(
        &START,
        "degraded",
        &["needs 2 members in sync and has 1", "drive add"],
    );
    bed.stop();
    show(&bed, &["d0", "d2"]);
    bed.start();
    assert_eq!(bed.state().0, "optimal");
    bed.guest().verify(1);
}

#[test]
fn halves_that_went_on_without_each_other_are_refused_and_either_can_be_given_up() {
    let mirror: [&[&str]; 2] = [&["d0"], &["d1"]];
    let parity: [&[&str]; 2] = [&["d0", "d1"], &["d2", "d3"]];
    for (level, [low, high]) in [("1", mirror), ("6", parity)] {
        let mut bed = Bed::new(level, 2 * low.len(), 0);
        bed.stop();
        // The half with the lowest member goes on by itself.
        hide(&bed, high);
        bed.start();
        assert_eq!(bed.state().0, "degraded");
        bed.guest().write(2);
        bed.stop();
        show(&bed, high);
        hide(&bed, low);
        // The other needs force, and is told what that costs.
        bed.start();
        assert_eq!(bed.state().0, "stopped");
        let lost = "all that they acknowledged since would be lost";
        bed.refused(
            &START[..3],
            "unsafe",
            &["--force", "may have gone on", lost, "member 0"],
        );
        bed.engine().json(&START);
        holds(&bed.state().1, &["started by force with", "is lost"]);
        bed.guest().verify(1);
        bed.guest().write(3);
        bed.stop();
        show(&bed, low);
        bed.start();
        let (state, warnings) = bed.state();
        assert_eq!(state, "stopped");
        holds(
            &warnings,
            &[
                "split brain",
                "with members 0",
                &format!("with members {}", low.len()),
            ],
        );
        bed.refused(
            &START,
            "unsafe",
            &["split brain", "both sides", "drive remove DRIVE --force"],
        );
        // One side is given up, and what is on it stays there.
        for drive in low {
            bed.engine()
                .json(&["drive", "remove", drive, "--force", "--yes"]);
        }
        bed.engine().json(&["array", "start", "a"]);
        bed.guest().verify(3);
        // What is added again now is not mixed in.
        for drive in low {
            let place = spec(&bed.path(&format!("{drive}.img")));
            bed.engine()
                .json(&["drive", "add", &place, "--name", drive]);
        }
        assert_eq!(bed.state().0, "degraded");
        bed.guest().verify(3);
        for (member, drive) in low.iter().enumerate() {
            let member = member.to_string();
            let replace = [
                "array", "replace", "a", "--member", &member, "--drive", drive,
            ];
            bed.engine()
                .json(&[&replace[..], &["--force", "--wait", "--yes"]].concat());
        }
        bed.await_optimal();
        bed.is_sound(3);
    }
}
