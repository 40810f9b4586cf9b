//! Members that return: only what they have missed is filled, everything is right afterwards, and
//! drives that are not the one that left are not taken for it.

use std::fs;
use std::time::Duration;

use control::request::{Level, MemberReplace};
use control::view::{ArrayState, DriveState, MemberState};
use control::{Engine, ErrorKind};

use super::guests::Guest;
use super::{Bench, DRIVE_BYTES, MIB, export_of, volume_of, wait_until};

const ALL: [&str; 3] = ["one", "two", "three"];
/// Sectors of a mebibyte.
const SECTORS: u64 = 2048;

/// A tank of three files with a volume that a guest writes to.
fn served() -> (Bench, Guest) {
    let bench = Bench::file_tank();
    let volume = volume_of("v", "tank", 60 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let guest = connect(&bench);
    (bench, guest)
}

fn connect(bench: &Bench) -> Guest {
    bench
        .host
        .export_named(&export_of(bench, "e", "v"))
        .expect("a socket");
    let guest = Guest::connect(&bench.path("e.sock"));
    wait_until("the queue is there", || {
        !bench.host.exports()[0].queues.is_empty()
    });
    guest
}

fn optimal(bench: &Bench) {
    wait_until("all members are in sync", || {
        bench.array("tank").state == ArrayState::Optimal
    });
}

fn replace(drive: &str, force: bool) -> MemberReplace {
    MemberReplace {
        member: 1,
        drive: drive.to_owned(),
        force,
    }
}

/// Somebody removes a drive.
fn remove(bench: &Bench, drive: &str) {
    let uuid = bench.host.state().drives[drive].uuid;
    bench.host.remove_drive(drive, false).expect("nobody's");
    Engine::give_up_claims(&*bench.host, uuid);
}

/// What was written to a drive since it was opened, in hundredths of a member.
fn written_percent(bench: &Bench, drive: &str) -> u64 {
    bench.drive(drive).counters.written_bytes_total * 100 / DRIVE_BYTES
}

/// Another engine over the same files, without these drives in the beginning.
fn next(bench: Bench, drives: &[&str]) -> Bench {
    let bench = bench.next();
    for name in drives {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench
}

#[test]
fn a_member_that_left_for_a_copy_which_took_no_place_returns_by_itself() {
    let (bench, mut guest) = served();
    guest.fill(0, 1);
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    let index = bench.host.state().arrays["tank"].index;
    let member = units::MemberIndex(1);
    let leave = array::Command::Leave { member };
    bench.host.engine.change(index, leave).expect("redundant");
    guest.fill(SECTORS, 2);
    drop(guest);
    // The engine is killed before the copy has the place.
    let folder = std::sync::Arc::clone(&bench.folder);
    drop(bench);
    let bench = Bench::on(folder);
    for name in ALL {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("two are left");
    optimal(&bench);
    let written = written_percent(&bench, "two");
    assert!(written < 50, "{written} % of it were written");
    bench.host.fail_member("tank", 0).expect("redundant");
    let mut guest = connect(&bench);
    for (sector, byte) in [(0, 1), (SECTORS, 2)] {
        assert_eq!(guest.read(sector), [byte; 4096]);
    }
}

#[test]
fn a_drive_that_was_pulled_is_filled_where_it_missed_something() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        // A region that is dirty when it leaves counts as missed.
        guest.fill(50 * SECTORS, 1);
        bench.host.remove_drive("two", true).expect("two are left");
        for mib in [0, 7, 59] {
            guest.fill(mib * SECTORS, 2);
        }
        let back = bench.open_file("two").expect("it is back");
        assert_eq!((back.state, back.member), (DriveState::Member, Some(1)));
        guest.fill(8 * SECTORS, 3);
        optimal(&bench);
        let written = written_percent(&bench, "two");
        assert!((1..10).contains(&written), "{written} % of it were written");
        // It holds what it should: without another one everything must come from it.
        bench.host.fail_member("tank", 0).expect("two are left");
        for (mib, byte) in [(0, 2), (7, 2), (8, 3), (9, 0), (50, 1), (59, 2)] {
            assert_eq!(guest.read(mib * SECTORS), vec![byte; 4096], "MiB {mib}");
        }
    });
}

#[test]
fn a_member_that_a_start_did_without_comes_back_with_the_next() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        guest.fill(0, 1);
        drop(guest);
        bench.host.remove_export("e").expect("removed");
        let bench = next(bench, &["one", "three"]);
        bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        let mut guest = connect(&bench);
        guest.fill(5 * SECTORS, 2);
        drop(guest);
        bench.host.remove_export("e").expect("removed");
        let bench = next(bench, &ALL);
        let started = bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        assert_eq!(started.members[1].drive.as_deref(), Some("two"));
        optimal(&bench);
        let written = written_percent(&bench, "two");
        assert!(written < 10, "{written} % of it were written");
        bench.host.fail_member("tank", 2).expect("two are left");
        let mut guest = connect(&bench);
        assert_eq!(guest.read(0), vec![1; 4096]);
        assert_eq!(guest.read(5 * SECTORS), vec![2; 4096]);
    });
}

#[test]
fn a_failed_member_returns_when_somebody_says_so() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        guest.fill(0, 1);
        bench.host.fail_member("tank", 1).expect("two are left");
        guest.fill(3 * SECTORS, 2);
        drop(guest);
        bench.host.remove_export("e").expect("removed");
        let bench = next(bench, &ALL);
        let started = bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        assert_eq!(
            started.members[1].state,
            MemberState::Failed,
            "not by itself"
        );
        let view = bench
            .host
            .replace_member("tank", &replace("two", false))
            .expect("itself");
        assert_eq!(view.members[1].drive.as_deref(), Some("two"));
        optimal(&bench);
        assert!(written_percent(&bench, "two") < 10);
        bench.host.fail_member("tank", 0).expect("two are left");
        let mut guest = connect(&bench);
        assert_eq!(guest.read(0), vec![1; 4096]);
        assert_eq!(guest.read(3 * SECTORS), vec![2; 4096]);
    });
}

#[test]
fn force_fills_the_same_drive_from_end_to_end() {
    let (bench, mut guest) = served();
    guest.fill(0, 1);
    bench.host.fail_member("tank", 1).expect("two are left");
    bench
        .host
        .replace_member("tank", &replace("two", true))
        .expect("as a new one");
    optimal(&bench);
    assert!(written_percent(&bench, "two") > 80);
    assert_eq!(guest.read(0), vec![1; 4096]);
}

#[test]
fn of_two_drives_that_claim_the_place_neither_returns() {
    super::on_both_kinds(|| {
        let (bench, guest) = served();
        drop(guest);
        bench.host.remove_export("e").expect("removed");
        let bench = next(bench, &["one", "three"]);
        bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        let bench = bench.next();
        fs::copy(bench.path("two"), bench.path("copy")).expect("a copy");
        for name in ["one", "two", "three", "copy"] {
            bench.reopen(name, "").expect("a file");
        }
        bench.host.assemble();
        let started = bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        assert_eq!(started.members[1].state, MemberState::Missing);
        bench.refused(
            (ErrorKind::Invalid, "claims to be the same member"),
            |host| host.replace_member("tank", &replace("two", false)),
        );
        remove(&bench, "copy");
        let array = bench.array("tank");
        assert_eq!(
            array.members[1].drive.as_deref(),
            Some("two"),
            "the only one"
        );
        optimal(&bench);
    });
}

#[test]
fn an_old_copy_of_the_member_that_left_is_filled_from_end_to_end() {
    let (bench, mut guest) = served();
    fs::copy(bench.path("two"), bench.path("old")).expect("a copy");
    guest.fill(0, 1);
    // Updates that the copy does not have.
    let volume = volume_of("w", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    bench.host.remove_drive("two", true).expect("two are left");
    let old = bench.open_file("old").expect("a file");
    assert_eq!(old.state, DriveState::Free, "not by itself");
    bench
        .host
        .replace_member("tank", &replace("old", false))
        .expect_err("it carries something");
    bench
        .host
        .replace_member("tank", &replace("old", true))
        .expect("as a new one");
    optimal(&bench);
    assert!(written_percent(&bench, "old") > 80);
    bench.host.fail_member("tank", 0).expect("two are left");
    assert_eq!(guest.read(0), vec![1; 4096]);
}

#[test]
fn a_member_that_lacks_little_is_whole_before_one_that_lacks_all() {
    let bench = Bench::new();
    let names = ["one", "two", "three", "four"];
    for name in names {
        bench.file(name);
    }
    bench.create("tank", Level::Raid6, &names);
    let volume = volume_of("v", "tank", 100 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    for name in ["two", "four"] {
        bench.host.remove_drive(name, true).expect("two are left");
    }
    guest.fill(95 * SECTORS, 1);
    bench.file("new");
    // It takes some ten seconds to be filled.
    bench.inject("new", drive::Fault::Delay(Duration::from_millis(200)));
    let by_new = MemberReplace {
        member: 3,
        drive: "new".to_owned(),
        force: false,
    };
    let replaced = bench.host.replace_member("tank", &by_new);
    assert_eq!(
        replaced.expect("a place").members[3].state,
        MemberState::Rebuilding
    );
    bench.open_file("two").expect("it is back");
    wait_until("it has what it lacked", || {
        bench.array("tank").members[1].state == MemberState::Online
    });
    assert_eq!(
        bench.array("tank").members[3].state,
        MemberState::Rebuilding
    );
    // The one that is filled may be lost now, and another one.
    bench.host.fail_member("tank", 3).expect("three are left");
    bench.host.fail_member("tank", 0).expect("two are left");
    assert_eq!(guest.read(95 * SECTORS), vec![1; 4096]);
    assert_eq!(guest.read(0), vec![0; 4096]);
}

#[test]
fn an_old_copy_keeps_a_member_out_only_as_long_as_it_is_there_and_it_is_said_how_to_go_on() {
    let (bench, guest) = served();
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    fs::copy(bench.path("two"), bench.path("clone")).expect("a copy");
    for size in 1..4 {
        let volume = volume_of(&format!("more{size}"), "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
    }
    drop(guest);
    bench.host.remove_drive("two", true).expect("two are left");
    bench.open_file("clone").expect("a file");
    bench.open_file("two").expect("it is back");
    bench.host.close_gone();
    let array = bench.array("tank");
    assert_eq!(array.members[1].drive, None);
    let said = array.warnings.join("\n");
    for word in [
        "drives clone, two all say that they are member 1",
        "`garboard drive remove DRIVE` forgets a copy",
        "`garboard array replace tank --member 1 --drive DRIVE`",
    ] {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
    remove(&bench, "clone");
    assert!(!bench.array("tank").warnings.join("\n").contains("clone"));
    assert_eq!(bench.array("tank").members[1].drive.as_deref(), Some("two"));
    optimal(&bench);
}

#[test]
fn a_copy_does_not_return_by_itself_when_the_one_that_it_rivals_is_only_away() {
    for removed in [false, true] {
        let (bench, guest) = served();
        wait_until("parity is right everywhere", || {
            bench.array("tank").jobs.is_empty()
        });
        drop(guest);
        // As good as the right one, by its record.
        fs::copy(bench.path("two"), bench.path("clone")).expect("a copy");
        bench.open_file("clone").expect("a file");
        bench.host.remove_drive("two", true).expect("two are left");
        bench.open_file("two").expect("it is back");
        assert_eq!(bench.array("tank").members[1].drive, None);
        // As the host does when it is away. Somebody may remove it then.
        let two = bench.host.state().drives["two"].uuid;
        bench.host.remove_drive("two", false).expect("nobody's");
        if removed {
            Engine::give_up_claims(&*bench.host, two);
        }
        bench.host.close_gone();
        // As when it is opened anew.
        bench.host.bring_back("clone");
        let drive = bench.array("tank").members[1].drive.clone();
        let said = bench.array("tank").warnings.join("\n");
        if removed {
            assert_eq!(drive.as_deref(), Some("clone"));
            continue;
        }
        assert_eq!(drive, None, "it may be the copy");
        for word in [
            "drive clone says that it is member 1",
            "one that is away",
            "`garboard array replace tank --member 1 --drive clone`",
        ] {
            assert!(said.contains(word), "no `{word}` in: {said}");
        }
        let replaced = bench.host.replace_member("tank", &replace("clone", false));
        let members = replaced.expect("somebody wants it").members;
        assert_eq!(members[1].drive.as_deref(), Some("clone"));
        assert!(bench.host.state().contested.is_empty(), "it has its place");
    }
}
