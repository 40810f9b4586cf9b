//! Calls that the engine carries out, but not in time: who asked is told so, and the wanted state
//! says what has been done.

use super::*;

fn identity(bed: &Bed, drive: &str) -> String {
    bed.control().wanted.state().drives[drive].identity.clone()
}

#[test]
fn an_array_that_is_made_late_is_known_by_its_drives() {
    let bed = Bed::bare();
    for number in 0..4 {
        let added = bed.control().add_drive(drive(&format!("file:/{number}")));
        added.expect("added");
    }
    bed.host.late_next("create_array");
    let made = array("a", &["d0", "d1", "d2", "d3"]);
    let refused = bed.control().create_array(made).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    let uuid = bed.control().array("a").expect("it is there").uuid;
    assert_eq!(identity(&bed, "d3"), format!("member {uuid} 3"));
}

#[test]
fn an_array_that_is_made_late_has_its_spares() {
    let mut bed = Bed::bare();
    for number in 0..5 {
        let added = bed.control().add_drive(drive(&format!("file:/{number}")));
        added.expect("added");
    }
    bed.host.late_next("create_array");
    let made = ArrayCreateBody {
        spares: vec!["d4".into()],
        ..array("a", &["d0", "d1", "d2", "d3"])
    };
    let refused = bed.control().create_array(made).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert_eq!(bed.control().array("a").expect("there").spares, ["d4"]);
    bed.kill_and_start();
    assert_eq!(bed.control().array("a").expect("there").spares, ["d4"]);
}

#[test]
fn an_array_that_is_made_late_is_said_to_be_late_also_when_nothing_can_be_recorded() {
    let host = FakeHost::new();
    let (wanted, switch) = wanted::failing::wanted();
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    for number in 0..5 {
        let place = format!("file:/{number}");
        host.plug(&place, 1 << 30);
        control.add_drive(drive(&place)).expect("added");
    }
    host.sign("file:/4", "ext4");
    host.late_next("create_array");
    switch.fail();
    let made = ArrayCreateBody {
        spares: vec!["d4".into()],
        force: true,
        ..array("a", &["d0", "d1", "d2", "d3"])
    };
    let refused = control.create_array(made).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
    assert!(refused.message.contains("drive d4 is erased"), "{refused}");
    switch.work();
    assert!(control.array("a").expect("it is there").spares.is_empty());
}

#[test]
fn an_array_that_is_being_destroyed_is_not_called_made() {
    let bed = Bed::full();
    let control = bed.control();
    control.delete_volume("v").expect("not exported");
    let again = ArrayCreateBody {
        uuid: Some(control.array("a").expect("there").uuid),
        ..array("a", &["d0", "d1", "d2", "d3"])
    };
    control.create_array(again.clone()).expect("made already");
    bed.host.late_next("destroy_array");
    control.destroy_array("a", false).expect_err("late");
    let refused = control.create_array(again.clone()).expect_err("it goes");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert!(refused.message.contains("being destroyed"), "{refused}");
    assert!(
        refused.next.contains("garboard array destroy a"),
        "{refused:?}"
    );
    control.destroy_array("a", false).expect("in time");
    control.create_array(again).expect("it is gone");
}

#[test]
fn a_volume_has_no_limits_of_one_that_was_deleted_late() {
    let mut bed = Bed::full();
    let uuid = bed.control().volume("v").expect("there").uuid;
    let limited = |bed: &Bed| {
        let limits = bed.control().wanted.state().limits;
        limits.keys().any(|volume| volume.uuid == uuid)
    };
    bed.control().limit_volume("v", &limit(10)).expect("there");
    bed.host.late_next("delete_volume");
    bed.control().delete_volume("v").expect_err("late");
    bed.kill_and_start();
    let again = VolumeCreateBody {
        uuid: Some(uuid),
        ..volume("v")
    };
    bed.control().create_volume(again.clone()).expect("room");
    assert!(!limited(&bed));
    bed.kill_and_start();
    let limit_now = bed.control().volume("v").expect("there").limit;
    assert!(limit_now.is_none(), "{limit_now:?}");
    // One that is there keeps its own, however often it is asked for.
    bed.control().limit_volume("v", &limit(10)).expect("there");
    bed.control().create_volume(again).expect("there already");
    assert!(limited(&bed));
}

#[test]
fn a_drive_that_takes_a_place_late_is_known_as_that_member() {
    let bed = Bed::full();
    let uuid = bed.control().array("a").expect("found").uuid;
    bed.control().fail_member("a", 1).expect("failed");
    bed.host.late_next("replace_member");
    let body = ReplaceBody {
        drive: "d4".into(),
        force: false,
    };
    let refused = bed.control().replace_member("a", 1, &body);
    assert_eq!(refused.expect_err("late").kind, ErrorKind::Busy);
    assert_eq!(identity(&bed, "d4"), format!("member {uuid} 1"));
}

#[test]
fn the_drives_of_an_array_that_is_imported_late_are_wanted() {
    let bed = Bed::full();
    let mut other = Bed::bare();
    other.host = bed.host.clone();
    drop(bed);
    other.control = None;
    other.start();
    other.host.late_next("import_array");
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    let refused = other.control().import_array(body).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert_eq!(other.control().wanted.state().drives.len(), 4);
}

#[test]
fn an_array_that_was_stopped_and_is_imported_late_starts_with_the_next_engine() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("unused");
    for drive in ["d0", "d1", "d2", "d3"] {
        bed.control().remove_drive(drive, true).expect("forced");
    }
    bed.kill_and_start();
    bed.host.late_next("import_array");
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    let refused = bed.control().import_array(body).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    bed.kill_and_start();
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Optimal);
}

#[test]
fn an_array_that_starts_late_is_started_by_the_next_engine_too() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("unused");
    bed.host.late_next("start_array");
    let refused = bed.control().start_array("a", false).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    bed.kill_and_start();
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Optimal);
}

#[test]
fn a_drive_that_is_removed_late_stays_open_until_it_can_be_forgotten() {
    let (host, control, switch) = on_a_switch();
    host.late_next("remove_drive");
    let refused = control.remove_drive("d1", true).expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    switch.fail();
    let _ = host.calls();
    for second in 0..2 {
        let now = Instant(second * 1_000_000_000);
        control.tend_spares(now).expect("looked");
        // It would be a member again.
        control.tend_drives(now).expect("looked");
        control.restore().expect("nothing is fatal");
    }
    let calls = host.calls();
    let opened: Vec<_> = calls.iter().filter(|call| call.contains("d1")).collect();
    assert!(opened.is_empty(), "{opened:?}");
    assert_eq!(control.engine.removed_late(), ["d1"]);
    switch.work();
    control.tend_spares(Instant(1)).expect("looked");
    let gone = control.drive("d1").expect_err("removed");
    assert_eq!(gone.kind, ErrorKind::NotFound, "{gone}");
    assert!(!control.wanted.state().drives.contains_key("d1"));
}

#[test]
fn an_export_that_ends_late_is_not_made_again() {
    let mut bed = Bed::full();
    bed.control().create_export(export("v")).expect("exported");
    bed.host.fail_next("remove_export");
    let refused = bed.control().remove_export("v").expect_err("refused");
    assert_eq!(refused.kind, ErrorKind::Internal);
    bed.kill_and_start();
    assert_eq!(bed.control().exports().len(), 1, "nothing was done");
    bed.host.late_next("remove_export");
    let refused = bed.control().remove_export("v").expect_err("late");
    assert_eq!(refused.kind, ErrorKind::Busy);
    bed.kill_and_start();
    assert!(bed.control().exports().is_empty(), "it ends all the same");
}

#[test]
fn a_drive_that_is_back_where_it_was_needs_no_record() {
    let (host, control, switch) = on_a_switch();
    control.fail_member("a", 1).expect("one may be lost");
    let content = host.unplug("file:/1");
    let state = |now| {
        control.tend_drives(now).expect("looked");
        let drive = control.drive("d1").expect("known");
        (drive.state == DriveState::Missing, drive.cause)
    };
    assert!(state(Instant(0)).0, "it is gone");
    switch.fail();
    host.replug("file:/1", content);
    for seconds in [5, 10, 15] {
        let (is_missing, cause) = state(Instant(seconds * 1_000_000_000));
        assert!(!is_missing, "{cause:?}");
    }
}
