//! What an unclean stop may have torn: a member is not given away before the resync has been there,
//! and what is started without one says so.

use std::sync::Arc;
use std::time::Duration;

use control::request::{ArrayModify, Level, WriteHole};
use control::view::ArrayView;
use control::{Engine, ErrorKind};
use drive::Fault;

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

const ALL: [&str; 3] = ["one", "two", "three"];

/// An array of three files that went down while a guest wrote, with nothing in memory that tells of
/// it; nothing is opened yet.
fn went_down(level: Level, write_hole: WriteHole) -> Bench {
    went_down_of(&ALL, level, write_hole)
}

/// The same of these files.
fn went_down_of(names: &[&str], level: Level, write_hole: WriteHole) -> Bench {
    let bench = Bench::new();
    names.iter().for_each(|name| bench.file(name));
    bench.create("tank", level, names);
    wait_until("parity is right everywhere", || {
        bench.host.jobs().is_empty()
    });
    let modify = ArrayModify {
        write_hole: Some(write_hole),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &modify).expect("it runs");
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for mib in 0..8 {
        guest.fill(mib * MIB / 512, 7);
    }
    drop(guest);
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    Bench::on(folder)
}

fn open(bench: &Bench, names: &[&str]) -> ArrayView {
    for name in names {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench.array("tank")
}

fn is_untrusted(bench: &Bench) -> bool {
    let warnings = bench.array("tank").warnings;
    warnings.iter().any(|text| text.starts_with("parity of "))
}

/// An array that is here again, and whose resync takes a while.
fn resyncing() -> Bench {
    let bench = went_down(Level::Raid5, WriteHole::Auto);
    open(&bench, &ALL);
    for name in ALL {
        bench.inject(name, Fault::Delay(Duration::from_millis(300)));
    }
    bench.host.start_array("tank", false).expect("complete");
    assert!(is_untrusted(&bench));
    bench
}

#[test]
fn a_member_is_not_given_away_while_parity_waits_for_its_resync() {
    let bench = resyncing();
    let refused = bench.host.fail_member("tank", 0).expect_err("a loss");
    assert_eq!(refused.kind, ErrorKind::Unsafe);
    assert!(refused.message.contains("waits for a resync"), "{refused}");
    let refused = bench.host.remove_drive("one", false).expect_err("a loss");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert!(refused.next.contains("--force"), "{refused}");
    assert!(refused.message.contains("cannot be told"), "{refused}");
    wait_until("the resync is done", || !is_untrusted(&bench));
    bench.host.fail_member("tank", 0).expect("parity tells");
}

#[test]
fn by_force_a_member_leaves_an_array_that_waits_for_its_resync() {
    let bench = resyncing();
    bench.host.remove_drive("one", true).expect("he knows");
}

#[test]
fn a_start_without_a_member_that_was_in_sync_is_told_where_it_may_be_torn() {
    for (level, write_hole, torn) in [
        (Level::Raid5, WriteHole::Auto, true),
        (Level::Raid5, WriteHole::Off, true),
        (Level::Raid5, WriteHole::Strict, false),
        (Level::Raid1, WriteHole::Auto, false),
    ] {
        let what = format!("{level:?}, {write_hole:?}");
        let bench = went_down(level, write_hole);
        let stopped = open(&bench, &ALL[..2]);
        let away: &[u16] = if torn { &[2] } else { &[] };
        assert_eq!(stopped.torn_without, away, "{what}");
        let told = |view: &ArrayView, text: &str| view.warnings.join(" ").contains(text);
        assert_eq!(told(&stopped, "it waits for them"), torn, "{what}");
        let started = bench.host.start_array("tank", false).expect("two are here");
        assert_eq!(started.torn_without, [0; 0], "{what}: it runs");
        assert_eq!(told(&started, "started without member 2"), torn, "{what}");
        let lasts = usize::from(torn);
        assert_eq!(started.start_warnings.len(), lasts, "{what}");
        bench.host.forget_start_warnings(started.uuid);
        let known = bench.array("tank");
        assert!(!told(&known, "started without member 2"), "{what}");
        assert_eq!(known.start_warnings, [""; 0], "{what}");
    }
}

#[test]
fn an_array_that_cannot_start_waits_for_nobody_in_particular() {
    let bench = went_down(Level::Raid5, WriteHole::Auto);
    let failed = open(&bench, &ALL[..1]);
    let said = failed.warnings.join(" ");
    assert!(said.contains("failed: "), "{said}");
    assert!(!said.contains("waits for them"), "{said}");
    assert_eq!(failed.torn_without, [0; 0]);
    let short = open(&bench, &ALL[1..2]);
    assert_eq!(short.torn_without, [2], "it can, and waits");
}

#[test]
fn an_array_that_needs_force_does_not_say_that_it_starts_by_itself() {
    let all = ["one", "two", "three", "four"];
    let bench = went_down_of(&all, Level::Raid6, WriteHole::Auto);
    let half = open(&bench, &all[2..]);
    let said = half.warnings.join(" ");
    assert!(said.contains("needs --force"), "{said}");
    assert!(said.contains("can only be guessed"), "{said}");
    assert!(!said.contains("waits for them"), "{said}");
}

#[test]
fn complete_arrays_and_those_that_were_stopped_wait_for_nobody() {
    let bench = went_down(Level::Raid5, WriteHole::Auto);
    assert_eq!(open(&bench, &ALL).torn_without, [0; 0], "complete");
    bench.host.start_array("tank", false).expect("complete");
    wait_until("the resync is done", || !is_untrusted(&bench));
    bench.host.stop_array("tank").expect("nobody uses it");
    bench.host.remove_drive("three", true).expect("stopped");
    assert_eq!(bench.array("tank").torn_without, [0; 0]);
    let started = bench.host.start_array("tank", false).expect("two are here");
    let said = started.warnings.join(" ");
    assert!(!said.contains("started without"), "{said}");
}
