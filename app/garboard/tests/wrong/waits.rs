//! Commands to an array that waits for members, or has given that up.

use std::thread;

use crate::bed::{Bed, holds};

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
/// All but the first superblock of a drive lies behind that.
const LITTLE: Option<u64> = Some(1 << 20);

/// Commands that need a record which cannot be written.
fn refuses_changes(bed: &Bed, how: &str) {
    let commands: [&[&str]; 10] = [
        &["array", "fail", "a", "--member", "0", "--yes"],
        &["array", "fail", "a", "--member", "1", "--yes"],
        &["array", "replace", "a", "--member", "1", "--drive", "d3"],
        &["array", "modify", "a", "--rebuild-floor", "50MiB"],
        &["array", "modify", "a", "--hold-timeout", "5000"],
        &["array", "resync", "a", "start", "--yes"],
        &["array", "scrub", "a", "start"],
        &["volume", "create", "u", "--array", "a", "--size", "4MiB"],
        &["volume", "resize", "v", "--size", "8MiB"],
        &["volume", "delete", "w", "--yes"],
    ];
    let words = [
        how,
        "member 0 (drive d0",
        "member 1 (drive d1",
        "member 2 (drive d2",
        "RLIMIT_FSIZE",
        "bring them back: `garboard array show a`",
    ];
    for command in commands {
        bed.refused(command, "degraded", &words);
    }
    let remove = ["drive", "remove", "d0", "--force", "--yes"];
    bed.refused(
        &remove,
        "degraded",
        &[&words[..4], &["let another"]].concat(),
    );
    let running: [(&[&str], &str, &[&str]); 7] = [
        (&["drive", "remove", "d0"], "busy", &["member 0 of array a"]),
        (&["array", "start", "a"], "busy", &["runs already"]),
        (&["array", "stop", "a"], "busy", &["export remove v"]),
        (
            &["array", "destroy", "a", "--yes"],
            "busy",
            &["export remove v"],
        ),
        (
            &["array", "rebuild", "a", "start"],
            "invalid",
            &["nothing is missing"],
        ),
        (
            &["array", "resync", "a", "stop"],
            "not_found",
            &["job list"],
        ),
        (&["drive", "wipe", "d0", "--yes"], "busy", &["member 0"]),
    ];
    for (command, code, words) in running {
        bed.refused(command, code, words);
    }
    // What records nothing on members goes on.
    for command in [
        &["array", "spare", "add", "a", "--drive", "d4"][..],
        &["array", "spare", "remove", "a", "--drive", "d4"],
        &["volume", "limit", "v", "--iops", "100000"],
        &["export", "vhost", "w", "--name", "e"],
        &["export", "remove", "e", "--yes"],
    ] {
        bed.engine().json(command);
    }
}

fn with_another_volume() -> Bed {
    let bed = Bed::new("5", 3, 2);
    let create = ["volume", "create", "w", "--array", "a", "--size", "4MiB"];
    bed.engine().json(&create);
    bed
}

#[test]
fn while_an_array_waits_for_its_members_no_change_is_promised_and_none_is_made_later() {
    let bed = with_another_volume();
    let mut guest = bed.guest();
    bed.limit_files(LITTLE);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(guest.try_write(2), OK, "it waited"));
        bed.await_state("holding");
        refuses_changes(&bed, "array a waits for");
        bed.limit_files(None);
    });
    bed.await_optimal();
    guest.write(2);
    drop(guest);
    bed.is_sound(2);
}

#[test]
fn after_an_array_has_given_up_waiting_commands_name_whom_it_lacks() {
    let bed = with_another_volume();
    bed.engine()
        .json(&["array", "modify", "a", "--hold-timeout", "1000"]);
    let mut guest = bed.guest();
    bed.limit_files(LITTLE);
    assert_eq!(guest.try_write(2), IO_ERROR);
    bed.await_state("failed");
    refuses_changes(&bed, "array a has given up waiting for");
    bed.limit_files(None);
    bed.await_optimal();
    guest.write(2);
    drop(guest);
    bed.is_sound(2);
    // And then they do what they did before.
    bed.engine()
        .json(&["array", "fail", "a", "--member", "0", "--yes"]);
    bed.engine().json(&["volume", "delete", "w", "--yes"]);
    bed.guest().verify(2);
    holds(&bed.log(), &["hold_timed_out", "array_resumes"]);
}
