//! After a change that ended late: nobody builds on it before it is known whether it was made, and
//! then everything is as the array says.

use std::sync::Arc;
use std::time::Duration;

use array::Command;
use control::request::{ArrayModify, BackgroundKind, DriveSpec, HedgedReads, Level, MemberReplace};
use control::view::{ArrayState, DriveState, MemberState};
use control::{Answer, Engine, EngineError, ErrorKind};
use drive::Fault;

use super::guests::Guest;
use super::hanging::{hang, relieve};
use super::spares::Run;
use super::{Bench, MIB, array_of, export_of, volume_of, wait_until};
use crate::Host;

/// How long the engine waits for drives that do not answer: longer than what comes before takes.
const PATIENCE: Duration = Duration::from_millis(500);

/// The array cannot do without them: it waits until they are back, and so does whoever changes it.
/// Nothing else is under way that would find out first: who comes later is refused at once.
fn take_away(bench: &Bench, drives: &[&str]) {
    wait_until("no pass runs", || bench.array("tank").jobs.is_empty());
    let index = bench.host.state().arrays["tank"].index;
    let settled = bench.host.engine.change(index, Command::Settle);
    settled.expect("its last record is durable");
    for name in drives {
        bench.inject(name, Fault::Pulled);
    }
}

/// What the control path does once a second, and what it does every few.
fn tick(bench: &Bench) {
    bench.host.tend_copies();
    bench.host.close_gone();
}

fn replace(drive: &str) -> MemberReplace {
    MemberReplace {
        member: 1,
        drive: drive.to_owned(),
        force: false,
    }
}

/// Runs what cannot be done while the drives are away: it says so, and they do not come back by
/// themselves.
fn late<T: std::fmt::Debug>(bench: &Bench, run: impl FnOnce(&Host) -> Answer<T>) -> EngineError {
    let patience = bench.host.engine.patience();
    bench.host.engine.set_patience(PATIENCE);
    let refusal = run(&bench.host).expect_err("the drives are away");
    bench.host.engine.set_patience(patience);
    assert_eq!(refusal.kind, ErrorKind::Busy, "{refusal}");
    refusal
}

/// Refused with this code and cause, and a way out.
fn refused<T: std::fmt::Debug>(
    bench: &Bench,
    (kind, word): (ErrorKind, &str),
    run: impl FnOnce(&Host) -> Answer<T>,
) {
    let refusal = run(&bench.host).expect_err(word);
    assert_eq!(refusal.kind, kind, "{refusal}");
    let text = refusal.to_string();
    assert!(text.contains(word), "no `{word}` in: {text}");
    assert!(!refusal.next.is_empty(), "no way out: {text}");
}

/// Refused because of an earlier change; says of which array, and what to do.
fn undecided<T: std::fmt::Debug>(bench: &Bench, run: impl FnOnce(&Host) -> Answer<T>) {
    let refusal = late(bench, run);
    for word in [
        "array tank has not answered an earlier change",
        "array tank waits for member",
        "`garboard array show tank`",
    ] {
        let text = refusal.to_string();
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
}

#[test]
fn a_drive_that_returns_late_is_a_member_and_stays_one() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        bench.host.fail_member("tank", 1).expect("two are left");
        take_away(&bench, &["one", "three"]);
        late(&bench, |host| host.replace_member("tank", &replace("two")));
        tick(&bench);
        assert_eq!(bench.drive("two").state, DriveState::Member);
        // To ask again would erase the log of a member.
        undecided(&bench, |host| host.replace_member("tank", &replace("two")));
        relieve(&bench);
        wait_until("it is filled", || {
            bench.array("tank").members[1].state == MemberState::Online
        });
        tick(&bench);
        assert_eq!(bench.drive("two").state, DriveState::Member);
        refused(&bench, (ErrorKind::Busy, "it is member 1"), |host| {
            host.remove_drive("two", false)
        });
        refused(&bench, (ErrorKind::Busy, "it is member 1"), |host| {
            host.wipe_drive("two", true)
        });
    });
}

#[test]
fn a_drive_that_takes_a_place_late_stays_there_if_nothing_was_there_before() {
    let bench = Bench::file_tank();
    let bench = bench.next();
    for name in ["one", "three"] {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("enough");
    bench.file("spare");
    take_away(&bench, &["one", "three"]);
    let spare = replace("spare");
    late(&bench, |host| host.replace_member("tank", &spare));
    tick(&bench);
    assert_eq!(bench.drive("spare").state, DriveState::Member);
    relieve(&bench);
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    tick(&bench);
    assert_eq!(bench.drive("spare").state, DriveState::Member);
}

/// The drive `spare`, which is to take a place late, is there when it is prepared, and gone when
/// the record is written.
fn fails_in_its_record(bench: &Bench) {
    bench.inject("spare", Fault::Pulled);
    for name in ["one", "three"] {
        bench.host.state().drives[name].drive.clear_faults();
    }
    wait_until("it is not taken", || {
        tick(bench);
        bench.drive("spare").state == DriveState::Failed
    });
}

#[test]
fn a_drive_that_is_refused_late_is_left_out_and_may_be_taken_again() {
    let bench = Bench::tank();
    bench.memory("spare");
    bench.host.fail_member("tank", 1).expect("two are left");
    take_away(&bench, &["one", "three"]);
    let spare = replace("spare");
    late(&bench, |host| host.replace_member("tank", &spare));
    fails_in_its_record(&bench);
    let cause = |name| bench.drive(name).cause.expect("left out");
    assert!(
        cause("spare").contains("has not taken it"),
        "{}",
        cause("spare")
    );
    assert!(
        !cause("two").contains("has not taken it"),
        "{}",
        cause("two")
    );
    relieve(&bench);
    wait_until("the array works", || {
        bench.array("tank").state == ArrayState::Degraded
    });
    let taken = bench.host.replace_member("tank", &spare);
    taken.expect("it is well again");
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
}

#[test]
fn a_new_drive_that_fails_at_once_leaves_the_place_to_who_had_it() {
    let bench = Bench::tank();
    bench.memory("spare");
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let had_it = bench.superblock("two").member_uuid;
    bench.host.fail_member("tank", 1).expect("two are left");
    let place = || {
        let state = bench.host.engine.array_state(units::ArrayIndex(0));
        state.expect("it runs").config.members[1].clone()
    };
    let before = place();
    take_away(&bench, &["one", "three"]);
    late(&bench, |host| {
        host.replace_member("tank", &replace("spare"))
    });
    fails_in_its_record(&bench);
    assert_eq!(place(), before);
    // It returns, and is not made anew.
    let two = bench.host.replace_member("tank", &replace("two"));
    two.expect("its own place");
    wait_until("what it has missed is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    assert_eq!(bench.superblock("two").member_uuid, had_it);
}

#[test]
fn a_drive_that_may_yet_become_a_member_is_not_removed_before_that_is_known() {
    let bench = Bench::tank();
    bench.host.fail_member("tank", 1).expect("two are left");
    take_away(&bench, &["one", "three"]);
    late(&bench, |host| host.replace_member("tank", &replace("two")));
    let waits = (ErrorKind::Degraded, "array tank waits for member");
    refused(&bench, waits, |host| host.remove_drive("two", true));
    let index = bench.host.state().drives["two"].index;
    bench.memory("four");
    assert_ne!(bench.host.state().drives["four"].index, index);
    for name in ["one", "three"] {
        bench.host.state().drives[name].drive.clear_faults();
    }
    wait_until("it is let go", || {
        tick(&bench);
        bench.host.remove_drive("two", true).is_ok()
    });
    wait_until("the others work", || {
        bench.array("tank").state == ArrayState::Degraded
    });
}

#[test]
fn a_drive_that_was_removed_late_is_forgotten_and_does_not_return() {
    type End = fn(&Run);
    let looked: End = |run| {
        wait_until("it is let go", || {
            run.tend();
            run.control.drive("two").is_err()
        });
    };
    // Neither is clean: the drives were away.
    let stopped: End = |run| {
        run.control.stop_array("tank").expect_err("not clean");
        run.control.start_array("tank", true).expect("two are left");
    };
    let ended: End = |run| {
        run.control.shutdown().expect_err("not clean");
    };
    for end in [looked, stopped, ended] {
        let run = Run::new();
        run.memory(&[("one", 64), ("two", 64), ("three", 64)]);
        run.create("tank", &["one", "two", "three"], &[]);
        take_away(&run.bench, &["one", "three"]);
        let refusal = late(&run.bench, |_| run.control.remove_drive("two", true));
        assert!(refusal.to_string().contains("let go"), "{refusal}");
        for name in ["one", "three"] {
            run.backing(name).clear_faults();
        }
        wait_until("the array has left it out", || is_decided(&run.bench));
        end(&run);
        let gone = run.control.drive("two").expect_err("removed");
        assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
    }
}

#[test]
fn a_drive_that_is_removed_late_and_taken_away_is_forgotten() {
    let run = Run::new();
    for name in ["one", "two", "three"] {
        let path = run.bench.path(name);
        let (size_bytes, create) = (Some(64 * MIB), true);
        let file = DriveSpec::File {
            path,
            size_bytes,
            create,
        };
        run.add(name, file);
    }
    run.create("tank", &["one", "two", "three"], &[]);
    take_away(&run.bench, &["one", "three"]);
    late(&run.bench, |_| run.control.remove_drive("two", true));
    for name in ["one", "three"] {
        run.backing(name).clear_faults();
    }
    wait_until("the array has left it out", || is_decided(&run.bench));
    std::fs::remove_file(run.bench.path("two")).expect("a file");
    wait_until("it is let go", || {
        let closed = run.bench.host.close_gone();
        assert!(closed.is_empty(), "it would be wanted: {closed:?}");
        run.bench.host.removed_late() == ["two"]
    });
    run.tend();
    let gone = run.control.drive("two").expect_err("removed");
    assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
}

#[test]
fn a_drive_that_was_to_be_removed_late_is_there_when_its_array_has_ended() {
    for destroys in [false, true] {
        let bench = Bench::tank();
        take_away(&bench, &["one", "three"]);
        late(&bench, |host| host.remove_drive("two", true));
        let signature = || bench.host.signature_on("two");
        signature().expect_err("it is taken out of the array");
        if destroys {
            bench.host.destroy_array("tank", true).expect("by force");
            assert_eq!(signature(), Ok(None));
        } else {
            bench.host.stop_array("tank").expect_err("it is not clean");
            assert_eq!(signature(), Ok(Some("garboard member".to_owned())));
            relieve(&bench);
            bench.host.assemble();
            bench.host.start_array("tank", true).expect("all are there");
        }
        bench.host.remove_drive("two", true).expect("asked again");
    }
}

#[test]
fn a_drive_that_was_left_out_when_it_was_to_be_removed_late_forgets_its_array() {
    for destroys in [true, false] {
        let bench = Bench::tank();
        take_away(&bench, &["one", "three"]);
        late(&bench, |host| host.remove_drive("two", true));
        for name in ["one", "three"] {
            let drive = Arc::clone(&bench.host.state().drives[name].drive);
            drive.clear_faults();
        }
        wait_until("the array has left it out", || {
            tick(&bench);
            bench.drive("two").state == DriveState::Failed
        });
        let signature = || bench.host.signature_on("two");
        signature().expect_err("nobody has let it go");
        if destroys {
            bench.host.destroy_array("tank", true).expect("unused");
            assert_eq!(signature(), Ok(None));
            assert!(bench.host.assemble().is_empty(), "no ghost of it");
        } else {
            bench.host.stop_array("tank").expect_err("it is not clean");
            assert_eq!(signature(), Ok(Some("garboard member".to_owned())));
        }
    }
}

#[test]
fn a_volume_that_is_deleted_late_is_not_exported_any_more() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        let volume = volume_of("v", "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        let limit = control::request::VolumeLimit {
            iops: Some(1000),
            ..control::request::VolumeLimit::default()
        };
        bench.host.limit_named("v", &limit).expect("there");
        take_away(&bench, &["one", "two", "three"]);
        late(&bench, |host| host.delete_named("v"));
        let export = export_of(&bench, "e", "v");
        undecided(&bench, |host| host.export_named(&export));
        undecided(&bench, |host| host.resize_named("v", 2 * MIB));
        relieve(&bench);
        wait_until("it is gone", || bench.host.volumes().is_empty());
        let gone = bench.host.export_named(&export).expect_err("gone");
        assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
        // The array lists it no more a moment before it says that it is through with that.
        wait_until("another one can be made", || {
            match bench.host.create_volume(&volume) {
                Err(error) if error.kind == ErrorKind::Busy => false,
                made => made.map(|_| true).expect("room"),
            }
        });
        let again = bench.host.volumes().pop().expect("made");
        assert!(again.limit.is_none(), "{:?}", again.limit);
    });
}

#[test]
fn an_array_that_stops_late_is_not_begun_anything_with() {
    super::on_both_kinds(|| {
        for destroys in [false, true] {
            let bench = Bench::tank();
            let volume = volume_of("v", "tank", MIB);
            bench.host.create_volume(&volume).expect("room");
            hang(&bench);
            if destroys {
                late(&bench, |host| host.destroy_array("tank", true));
            } else {
                late(&bench, |host| host.stop_array("tank"));
            }
            let uuid = bench.array("tank").uuid;
            assert_eq!(bench.host.is_being_destroyed(uuid), destroys);
            relieve(&bench);
            let stopping = (ErrorKind::Busy, "tank is being stopped");
            let export = export_of(&bench, "e", "v");
            let w = volume_of("w", "tank", MIB);
            refused(&bench, stopping, |host| host.export_named(&export));
            refused(&bench, stopping, |host| host.create_volume(&w));
            refused(&bench, stopping, |host| host.start_array("tank", false));
            let warnings = bench.array("tank").warnings;
            assert!(
                warnings
                    .iter()
                    .any(|warning| warning.contains("was told to stop")),
                "{warnings:?}"
            );
            wait_until("it stops", || bench.host.stop_array("tank").is_ok());
            assert_eq!(bench.array("tank").state, ArrayState::Stopped);
            assert!(!bench.host.is_being_destroyed(uuid), "it is only stopped");
            let started = bench.host.start_array("tank", false).expect("all is there");
            assert_eq!(started.warnings, Vec::<String>::new());
            bench.host.export_named(&export).expect("it runs again");
        }
    });
}

#[test]
fn an_array_that_starts_late_takes_back_what_was_left_out() {
    let bench = Bench::tank();
    take_away(&bench, &["two"]);
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("two are enough");
    bench.host.stop_array("tank").expect("not exported");
    bench.host.state().drives["two"].drive.clear_faults();
    hang(&bench);
    late(&bench, |host| host.start_array("tank", false));
    relieve(&bench);
    wait_until("the drive that was away has returned", || {
        tick(&bench);
        bench.array("tank").state == ArrayState::Optimal
    });
}

/// What becomes of what was late is known.
fn is_decided(bench: &Bench) -> bool {
    tick(bench);
    let index = bench.host.state().arrays["tank"].index;
    bench.host.engine.undecided(index).is_empty()
}

#[test]
fn a_stop_that_was_late_in_a_resync_has_stopped_it() {
    let bench = Bench::tank();
    let resync = BackgroundKind::Resync;
    bench.host.start_background("tank", resync).expect("begins");
    hang(&bench);
    late(&bench, |host| host.stop_array("tank"));
    late(&bench, |host| host.stop_array("tank"));
    relieve(&bench);
    wait_until("it has answered", || is_decided(&bench));
    // Parity is not right everywhere, so there is no clean mark to be written.
    let stopped = bench.host.stop_array("tank").expect("it has stopped");
    assert_eq!(stopped.state, ArrayState::Stopped);
    bench.host.start_array("tank", false).expect("all is there");
}

#[test]
fn a_start_that_fails_late_is_given_up_when_nobody_is_served() {
    for is_exported in [false, true] {
        let bench = Bench::file_tank();
        let volume = volume_of("v", "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        bench.host.stop_array("tank").expect("not exported");
        hang(&bench);
        late(&bench, |host| host.start_array("tank", false));
        let export = export_of(&bench, "v", "v");
        if is_exported {
            bench.host.export_named(&export).expect("it will serve");
        }
        relieve(&bench);
        for name in ["one", "two", "three"] {
            bench.inject(name, Fault::FlushFails);
        }
        wait_until("it has answered", || is_decided(&bench));
        if is_exported {
            // Rings may have requests for it.
            assert!(
                bench
                    .host
                    .engine
                    .array_state(units::ArrayIndex(0))
                    .is_some()
            );
            refused(&bench, (ErrorKind::Busy, "export v serves"), |host| {
                host.stop_array("tank")
            });
            bench.host.remove_export("v").expect("there");
            bench
                .host
                .stop_array("tank")
                .expect_err("it has never started");
        }
        assert_eq!(bench.array("tank").state, ArrayState::Stopped);
        relieve(&bench);
        bench.host.assemble();
        bench.host.start_array("tank", false).expect("all is there");
        bench.host.export_named(&export).expect("it serves");
    }
}

#[test]
fn an_array_of_which_one_reactor_lets_go_late_is_what_it_was() {
    let bench = Bench::tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    let modify = ArrayModify {
        hedged_reads: Some(HedgedReads::Always),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &modify).expect("it runs");
    // The home of the array is the other reactor.
    let mut export = export_of(&bench, "v", "v");
    export.cores = vec![1];
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("v.sock"));
    bench.inject("two", Fault::Delay(Duration::from_secs(3)));
    // They are answered by the others; the drive still has one.
    for chunk in 0..4 {
        guest.read(chunk * 128);
    }
    bench.host.fail_member("tank", 1).expect("redundant");
    let state = || bench.host.engine.array_state(units::ArrayIndex(0));
    drop(guest);
    bench.host.remove_export("v").expect("there");
    late(&bench, |host| host.stop_array("tank"));
    assert!(state().is_none(), "its home has let go");
    let volumes: Vec<_> = bench.host.volumes().iter().map(|own| own.uuid).collect();
    assert_eq!(volumes, [volume.uuid]);
    refused(&bench, (ErrorKind::Unsafe, "holds 1 volume"), |host| {
        host.destroy_array("tank", false)
    });
    refused(&bench, (ErrorKind::Busy, "is being stopped"), |host| {
        host.remove_drive("one", true)
    });
    wait_until("the drive has answered", || {
        bench.host.stop_array("tank").is_ok()
    });
    assert_eq!(bench.array("tank").state, ArrayState::Stopped);
}

/// Nothing on the array reads as zeroes: a volume is made in two updates.
fn used(bench: &Bench) -> u64 {
    let all = bench.array("tank").free_bytes;
    let old = volume_of("old", "tank", all);
    bench.host.create_volume(&old).expect("room");
    bench.host.delete_named("old").expect("not exported");
    all
}

#[test]
fn a_volume_whose_making_begins_late_is_taken_back() {
    let bench = Bench::tank();
    let all = used(&bench);
    take_away(&bench, &["one", "two", "three"]);
    let v = volume_of("v", "tank", all);
    let refusal = late(&bench, |host| host.create_volume(&v));
    assert!(refusal.message.contains("taken back"), "{refusal}");
    relieve(&bench);
    // It takes the same name and all extents.
    wait_until("it is made from the beginning", || {
        bench.host.create_volume(&v).is_ok()
    });
}

#[test]
fn a_growth_that_begins_late_is_taken_back() {
    let bench = Bench::tank();
    let all = used(&bench);
    let v = volume_of("v", "tank", MIB);
    bench.host.create_volume(&v).expect("room");
    let free = bench.array("tank").free_bytes;
    take_away(&bench, &["one", "two", "three"]);
    let refusal = late(&bench, |host| host.resize_named("v", all));
    assert!(refusal.message.contains("taken back"), "{refusal}");
    let late_update = bench.array("tank").update + 1;
    relieve(&bench);
    wait_until("it is taken back", || {
        tick(&bench);
        let array = bench.array("tank");
        array.update > late_update && array.free_bytes == free
    });
    assert_eq!(bench.host.volumes()[0].size_bytes, MIB);
    let grown = bench.host.resize_named("v", all).expect("asked again");
    assert_eq!(grown.size_bytes, all);
}

#[test]
fn a_growth_that_is_made_late_is_seen_by_guests() {
    let bench = Bench::tank();
    let v = volume_of("v", "tank", MIB);
    bench.host.create_volume(&v).expect("room");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    guest.fill(0, 1);
    take_away(&bench, &["one", "two", "three"]);
    late(&bench, |host| host.resize_named("v", 2 * MIB));
    relieve(&bench);
    wait_until("it has grown", || {
        tick(&bench);
        bench.host.engine.undecided(units::ArrayIndex(0)).is_empty()
    });
    assert_eq!(bench.host.volumes()[0].size_bytes, 2 * MIB);
    guest.fill(3 * MIB / 2 / 512, 2);
}

#[test]
fn a_volume_that_is_made_late_is_not_undone_by_the_next_one() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        take_away(&bench, &["one", "two", "three"]);
        let (v, w) = (volume_of("v", "tank", MIB), volume_of("w", "tank", MIB));
        late(&bench, |host| host.create_volume(&v));
        late(&bench, |host| host.create_volume(&w));
        relieve(&bench);
        wait_until("the next one is made", || {
            bench.host.volumes().iter().any(|volume| volume.name == "w")
                || bench.host.create_volume(&w).is_ok()
        });
        let volumes = bench.host.volumes();
        let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["v", "w"]);
    });
}

#[test]
fn a_name_that_a_volume_gets_late_is_not_given_to_another() {
    let bench = Bench::tank();
    for name in ["four", "five"] {
        bench.memory(name);
    }
    bench.create("pond", Level::Raid1, &["four", "five"]);
    take_away(&bench, &["one", "two", "three"]);
    late(&bench, |host| {
        host.create_volume(&volume_of("v", "tank", MIB))
    });
    let (same, other) = (volume_of("v", "pond", MIB), volume_of("w", "pond", MIB));
    undecided(&bench, |host| host.create_volume(&same));
    bench.host.create_volume(&other).expect("another name");
    relieve(&bench);
    // The volume can be seen a moment before the array's answer is.
    wait_until("it is made, and known to be", || {
        let again = bench.host.create_volume(&same);
        again.expect_err("the name is taken").kind == ErrorKind::Exists
    });
    refused(&bench, (ErrorKind::Exists, "tank"), |host| {
        host.create_volume(&same)
    });
}

#[test]
fn a_change_of_options_that_is_late_is_not_taken_back_by_the_next_one() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        let timeout = ArrayModify {
            hold_timeout_ms: Some(77_000),
            ..ArrayModify::default()
        };
        let floor = ArrayModify {
            rebuild_floor_bytes_per_second: Some(77),
            ..ArrayModify::default()
        };
        take_away(&bench, &["one", "two", "three"]);
        late(&bench, |host| host.modify_array("tank", &timeout));
        late(&bench, |host| host.modify_array("tank", &floor));
        relieve(&bench);
        wait_until("the next one is made", || {
            bench.host.modify_array("tank", &floor).is_ok()
        });
        let array = bench.array("tank");
        assert_eq!(array.hold_timeout_ms, Some(77_000));
        assert_eq!(array.rebuild_floor_bytes_per_second, 77);
    });
}

#[test]
fn an_array_whose_drives_hang_is_refused_nothing_that_needs_no_earlier_change() {
    let bench = Bench::tank();
    let v = volume_of("v", "tank", MIB);
    bench.host.create_volume(&v).expect("room");
    take_away(&bench, &["one", "two", "three"]);
    let options = ArrayModify {
        rebuild_floor_bytes_per_second: Some(77),
        ..ArrayModify::default()
    };
    late(&bench, |host| host.modify_array("tank", &options));
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("it is as it was");
    let replaced = array_of("pond", Level::Raid1, &["one", "two"]);
    refused(&bench, (ErrorKind::Busy, "drive one is member 0"), |host| {
        host.create_array(&replaced)
    });
    relieve(&bench);
}
