//! What went wrong half-way: it is done when it is asked for again, or looked at again, and what
//! was not asked for is not done.

use units::limits::START_GRACE;

use super::*;
use crate::body::SpareBody;
use crate::crashes::{HeldBack, Suspect};
use crate::wanted::WantedCopy;

#[test]
fn a_stop_that_could_not_be_recorded_is_recorded_when_it_is_asked_for_again() {
    let (host, control, switch) = on_a_switch();
    let uuid = control.array("a").expect("there").uuid;
    let is_recorded = || control.wanted.state().stopped.contains(&uuid);
    switch.fail();
    control.stop_array("a").expect_err("it is not recorded");
    assert_eq!(
        control.array("a").expect("there").state,
        ArrayState::Stopped
    );
    assert!(!is_recorded());
    switch.work();
    // It is not started any more, says the engine.
    host.fail_next("stop_array");
    control.stop_array("a").expect("it is now");
    assert!(is_recorded());
    host.fail_next("stop_array");
    control.stop_array("a").expect_err("nothing is left to do");
}

#[test]
fn an_array_that_is_asked_for_again_gets_the_spares_that_it_was_to_have() {
    let bed = Bed::full();
    let control = bed.control();
    let uuid = control.array("a").expect("there").uuid;
    let body = ArrayCreateBody {
        uuid: Some(uuid),
        spares: vec!["d4".into()],
        ..array("a", &["d0", "d1", "d2", "d3"])
    };
    for _ in 0..2 {
        let made = control.create_array(body.clone()).expect("it is there");
        assert_eq!(made.spares, ["d4"]);
    }
    // One that has taken a place is none any more.
    control.fail_member("a", 1).expect("two may fail");
    control.tend_spares(MonotonicClock.now()).expect("looked");
    assert_eq!(
        control.drive("d4").expect("there").state,
        DriveState::Member
    );
    let made = control.create_array(body.clone()).expect("it is there");
    assert!(made.spares.is_empty(), "{:?}", made.spares);
    // Nor is one that is gone, or carries something by now.
    control.add_drive(drive("file:/5")).expect("added");
    bed.host.sign("file:/5", "ext4");
    let others = ArrayCreateBody {
        spares: vec!["gone".into(), "d5".into()],
        force: true,
        ..body
    };
    let made = control.create_array(others).expect("it is there");
    assert!(made.spares.is_empty(), "{:?}", made.spares);
}

#[test]
fn a_spare_that_was_used_is_none_any_more_though_that_is_recorded_late() {
    let (host, control, switch) = on_a_switch();
    let control = control.with_spare_grace(Duration::ZERO);
    host.plug("file:/4", 1 << 30);
    control.add_drive(drive("file:/4")).expect("added");
    let spare = SpareBody {
        drive: "d4".into(),
        force: false,
    };
    control.add_spare("a", &spare).expect("free");
    control.fail_member("a", 1).expect("two may fail");
    let now = MonotonicClock.now();
    switch.fail();
    control
        .tend_spares(now)
        .expect_err("nothing can be recorded");
    let used = control.drive("d4").expect("there");
    assert_eq!(used.member, Some(1));
    let is_spare = || control.wanted.state().spares.contains_key(&used.uuid);
    assert!(is_spare());
    switch.work();
    control.tend_spares(now).expect("it is recorded");
    assert!(!is_spare());
}

#[test]
fn an_import_that_cannot_be_recorded_is_taken_back() {
    let bed = Bed::full();
    let host = bed.host.clone();
    drop(bed);
    let (wanted, switch) = wanted::failing::wanted();
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    switch.fail();
    control
        .import_array(body.clone())
        .expect_err("nothing can be recorded");
    let runs = |array: &ArrayView| array.state != ArrayState::Stopped;
    assert!(!control.arrays().iter().any(runs), "{:?}", control.arrays());
    assert!(control.drives().is_empty(), "{:?}", control.drives());
    switch.work();
    control.import_array(body).expect("it is as it was");
}

#[test]
fn an_array_that_is_destroyed_is_not_held_back_when_another_has_its_uuid() {
    let bed = Bed::full();
    let control = bed.control();
    let uuid = control.array("a").expect("there").uuid;
    let held = HeldBack {
        suspect: Suspect::Array(uuid),
        crashes: 3,
        at_s: 1,
        version: "0.0.0".to_owned(),
        message: String::new(),
    };
    let held = Change::HoldBack(uuid, Box::new(held));
    control.wanted.apply(&[held]).expect("recorded");
    control.destroy_array("a", true).expect("by force");
    assert!(control.wanted.state().held.is_empty());
}

#[test]
fn drives_that_an_array_leaves_behind_when_it_is_destroyed_are_told() {
    let bed = Bed::full();
    bed.host.fail_next("erase_members");
    let gone = bed.control().destroy_array("a", true).expect("by force");
    assert_eq!(gone.warnings.len(), 4, "{:?}", gone.warnings);
    let warning = &gone.warnings[0];
    assert!(
        warning.contains("garboard drive wipe d0 --force"),
        "{warning}"
    );
}

#[test]
fn a_drive_that_was_to_be_a_copy_and_is_a_spare_since_stays_one() {
    let bed = Bed::full();
    let control = bed.control();
    let array = control.array("a").expect("there").uuid;
    let drive = control.drive("d4").expect("there").uuid;
    let copy = WantedCopy { member: 1, drive };
    let spare = SpareBody {
        drive: "d4".into(),
        force: false,
    };
    control.add_spare("a", &spare).expect("free");
    control
        .wanted
        .apply(&[Change::Copy(array, copy)])
        .expect("recorded");
    let _ = bed.host.calls();
    control.tend_spares(MonotonicClock.now()).expect("looked");
    assert!(bed.host.calls().is_empty());
    assert!(control.wanted.state().copies.is_empty());
}

#[test]
fn an_array_that_waits_for_others_to_follow_is_not_started_by_who_starts_another() {
    let mut bed = Bed::full();
    for number in 4..6 {
        let _ = bed.control().add_drive(drive(&format!("file:/{number}")));
    }
    let mut mirror = array("b", &["d4", "d5"]);
    mirror.level = Level::Raid1;
    bed.control().create_array(mirror).expect("created");
    bed.control().stop_array("b").expect("unused");
    let _ = bed.host.unplug("file:/0");
    let _ = bed.host.unplug("file:/1");
    let late = bed.host.unplug("file:/2");
    bed.kill_and_start();
    let tend = |seconds: u64| {
        let now = bed.control().begun + START_GRACE + Duration::from_secs(seconds);
        bed.control().tend_drives(now).expect("looked");
        bed.control().tend_starts(now).expect("looked");
        bed.control().array("a").expect("found").state
    };
    assert_eq!(tend(0), ArrayState::Stopped, "too few are here");
    bed.host.replug("file:/2", late);
    assert_eq!(tend(100), ArrayState::Stopped, "the other one may follow");
    bed.control().start_array("b", false).expect("it is whole");
    assert_eq!(tend(101), ArrayState::Stopped, "nobody has asked for it");
    assert_eq!(tend(100 + START_GRACE.as_secs()), ArrayState::Degraded);
}

#[test]
fn an_array_that_is_all_back_starts_by_itself_although_another_is_started_just_then() {
    let mut bed = Bed::full();
    for number in 4..6 {
        let _ = bed.control().add_drive(drive(&format!("file:/{number}")));
    }
    let mut mirror = array("b", &["d4", "d5"]);
    mirror.level = Level::Raid1;
    bed.control().create_array(mirror).expect("created");
    bed.control().stop_array("b").expect("unused");
    let places = ["file:/0", "file:/1", "file:/2", "file:/3"];
    let away = places.map(|place| (place, bed.host.unplug(place)));
    bed.kill_and_start();
    let now = bed.control().begun + START_GRACE;
    bed.control().tend_starts(now).expect("looked");
    for (place, content) in away {
        bed.host.replug(place, content);
    }
    bed.control().start_array("b", false).expect("it is whole");
    bed.control().tend_drives(now).expect("looked");
    let state = bed.control().array("a").expect("found").state;
    assert_eq!(state, ArrayState::Optimal);
}
