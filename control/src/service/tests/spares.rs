//! Spares against the pretended engine: which one starts, when, and what they are not used for.
use units::Instant;

use super::super::spares::refuse_unfit_of_all;
use super::*;
use crate::body::{PoolArrayBody, PoolCreateBody, SpareBody};
use crate::view::{ArrayView, DriveState};
use crate::wanted::WantedCopy;

/// Seconds of false time.
fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

fn spare(drive: &str) -> SpareBody {
    SpareBody {
        drive: drive.into(),
        force: false,
    }
}

fn pool(drives: &[&str], arrays: &[&str]) -> PoolCreateBody {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    PoolCreateBody {
        name: "p".into(),
        uuid: None,
        drives: names(drives),
        arrays: names(arrays),
        force: false,
    }
}

/// As [`Bed::full`], with ten more drives `e0` to `e9` of so many MiB.
fn bed(mebibytes: &[u64]) -> Bed {
    let bed = Bed::full();
    for (number, mebibytes) in mebibytes.iter().enumerate() {
        let spec = format!("file:/e{number}");
        bed.host.plug(&spec, mebibytes << 20);
        let body = DriveAddBody {
            name: Some(format!("e{number}")),
            ..drive(&spec)
        };
        bed.control().add_drive(body).expect("added");
    }
    bed
}

impl Bed {
    fn tend(&self, seconds: u64) {
        self.control().tend_spares(at(seconds)).expect("looked");
    }

    /// The drive of a member of `a`, and what the member does.
    fn place(&self, member: usize) -> (Option<String>, MemberState) {
        let array = self.control().array("a").expect("there");
        let place = &array.members[member];
        (place.drive.clone(), place.state)
    }

    fn fail(&self, member: u16) {
        let control = self.control();
        control.fail_member("a", member).expect("redundant");
    }

    /// As when the drive fails by itself.
    fn lose(&self, member: u16) {
        self.fail(member);
        self.control().tending().given_up.clear();
    }

    fn state_of(&self, drive: &str) -> DriveState {
        self.control().drive(drive).expect("there").state
    }
}

fn rebuilt_on(drive: &str) -> (Option<String>, MemberState) {
    (Some(drive.into()), MemberState::Rebuilding)
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_is_lost_for_longer_than_the_grace() {
    let bed = bed(&[100]);
    let control = bed.control();
    let array = control.add_spare("a", &spare("e0")).expect("free");
    assert_eq!(array.spares, ["e0"]);
    let shown = control.drive("e0").expect("there");
    assert_eq!(
        (shown.state, shown.array),
        (DriveState::Spare, Some("a".into()))
    );
    bed.tend(0);
    bed.lose(1);
    bed.tend(100);
    bed.tend(129);
    assert_eq!(bed.place(1).1, MemberState::Failed, "it may come back");
    bed.tend(130);
    assert_eq!(bed.place(1), rebuilt_on("e0"));
    assert_eq!(bed.state_of("e0"), DriveState::Member);
    assert!(control.array("a").expect("there").spares.is_empty());
    assert!(control.jobs().iter().any(|job| job.array == "a"));
}

#[test]
fn nobody_waits_for_a_member_that_was_failed_by_command() {
    let bed = bed(&[100]);
    bed.control().add_spare("a", &spare("e0")).expect("free");
    bed.fail(2);
    bed.tend(7);
    assert_eq!(bed.place(2), rebuilt_on("e0"));
}

#[test]
fn a_member_that_comes_back_in_time_keeps_its_place() {
    let mut bed = bed(&[100]);
    bed.control().add_spare("a", &spare("e0")).expect("free");
    let content = bed.host.unplug("file:/1");
    bed.kill_and_start();
    bed.tend(10);
    bed.host.replug("file:/1", content);
    let body = DriveAddBody {
        name: Some("d1".into()),
        ..drive("file:/1")
    };
    bed.control().add_drive(body).expect("back");
    bed.tend(50);
    bed.tend(90);
    assert_eq!(bed.place(1), (Some("d1".into()), MemberState::Online));
    assert_eq!(bed.state_of("e0"), DriveState::Spare);
}

#[test]
fn a_spare_outlives_a_kill_and_starts_for_what_was_missing_at_the_start() {
    let mut bed = bed(&[100]);
    bed.control().add_spare("a", &spare("e0")).expect("free");
    let _gone = bed.host.unplug("file:/3");
    bed.kill_and_start();
    assert_eq!(bed.state_of("e0"), DriveState::Spare);
    assert_eq!(bed.place(3).1, MemberState::Missing);
    bed.tend(1);
    bed.tend(31);
    assert_eq!(bed.place(3), rebuilt_on("e0"));
    bed.kill_and_start();
    assert_eq!(bed.state_of("e0"), DriveState::Member);
    let wanted = bed.control().wanted.state();
    assert!(wanted.spares.is_empty(), "{:?}", wanted.spares);
}

#[test]
fn a_spare_that_was_taken_just_before_a_kill_is_none_afterwards() {
    let mut bed = bed(&[100]);
    bed.control().add_spare("a", &spare("e0")).expect("free");
    let before = tempfile::tempdir().expect("a folder");
    std::fs::copy(
        bed.state.path().join(FILE_NAME),
        before.path().join(FILE_NAME),
    )
    .expect("copied");
    bed.fail(2);
    bed.tend(7);
    assert_eq!(bed.place(2), rebuilt_on("e0"));
    // What was recorded last is what was there before the spare started.
    bed.state = before;
    bed.kill_and_start();
    let wanted = bed.control().wanted.state();
    assert!(wanted.spares.is_empty(), "{:?}", wanted.spares);
}

#[test]
fn the_arrays_own_spares_go_first_and_the_smallest_that_fits() {
    let bed = bed(&[100, 63, 300, 200]);
    let control = bed.control();
    let drives = ["e0", "e1"];
    control.create_pool(&pool(&drives, &[])).expect("free");
    let body = PoolArrayBody { array: "a".into() };
    control.attach_pool("p", &body).expect("none has another");
    for own in ["e2", "e3"] {
        control.add_spare("a", &spare(own)).expect("free");
    }
    bed.fail(0);
    bed.fail(1);
    bed.tend(1);
    assert_eq!(
        (bed.place(0), bed.place(1)),
        (rebuilt_on("e3"), rebuilt_on("e2"))
    );
    assert_eq!(bed.state_of("e0"), DriveState::Spare);
}

#[test]
fn two_arrays_that_want_the_last_drive_of_a_pool_get_it_once() {
    let bed = bed(&[100; 6]);
    let control = bed.control();
    control
        .create_array(array("b", &["e0", "e1", "e2", "e3"]))
        .expect("free");
    control
        .create_pool(&pool(&["e4"], &["a", "b"]))
        .expect("free");
    bed.fail(1);
    control.fail_member("b", 2).expect("redundant");
    for second in 1..4 {
        bed.tend(second);
    }
    let arrays = control.arrays();
    let of_pool = |array: &&ArrayView| {
        let mut drives = array
            .members
            .iter()
            .filter_map(|place| place.drive.as_ref());
        drives.any(|drive| drive == "e4")
    };
    assert_eq!(arrays.iter().filter(of_pool).count(), 1);
    let without = arrays.iter().find(|array| !of_pool(array)).expect("one");
    let warning = without.warnings.join(" ");
    assert!(warning.contains("none left"), "{warning}");
    control.add_pool_drive("p", &spare("e5")).expect("free");
    bed.tend(5);
    let arrays = control.arrays();
    assert!(arrays.iter().all(|array| array.warnings.is_empty()));
    let rebuilding = |array: &ArrayView| {
        let mut places = array.members.iter();
        places.any(|place| place.state == MemberState::Rebuilding)
    };
    assert!(arrays.iter().all(rebuilding), "{arrays:?}");
}

#[test]
fn spares_of_a_pool_that_are_too_small_are_named() {
    let bed = bed(&[63]);
    let control = bed.control();
    // A pool for no array as yet takes any drive.
    control.create_pool(&pool(&["e0"], &[])).expect("free");
    let body = PoolArrayBody { array: "a".into() };
    control.attach_pool("p", &body).expect("none has another");
    bed.fail(1);
    bed.tend(1);
    let warnings = control.array("a").expect("there").warnings.join(" ");
    assert!(
        warnings.contains("member 1") && warnings.contains("spare e0 does not fit"),
        "{warnings}"
    );
    assert_eq!(bed.place(1).1, MemberState::Failed);
}

#[test]
fn a_drive_that_fits_no_array_of_a_pool_does_not_come_into_it() {
    let bed = bed(&[63]);
    let control = bed.control();
    let refused = control.create_pool(&pool(&["e0"], &["a"]));
    let refused = refused.expect_err("a is of larger drives");
    assert_eq!(refused.kind, ErrorKind::Full, "{refused}");
    assert!(refused.message.contains("array a"), "{refused}");
    control.create_pool(&pool(&[], &["a"])).expect("no drive");
    let refused = control.add_pool_drive("p", &spare("e0"));
    assert_eq!(refused.expect_err("still").kind, ErrorKind::Full);
    // Another array, of such drives.
    let (large, drive) = (
        control.array("a").expect("there"),
        control.drive("e0").expect("there"),
    );
    let mut small = large.clone();
    small.member_bytes = 62 << 20;
    let refused = |arrays: &[&ArrayView]| {
        refuse_unfit_of_all(&arrays.iter().copied().cloned().collect::<Vec<_>>(), &drive).is_err()
    };
    assert!(!refused(&[&large, &small]) && !refused(&[&small, &large]) && !refused(&[]));
    assert!(refused(&[&large, &large]));
}

#[test]
fn a_spare_that_cannot_be_used_is_left_for_the_next() {
    let bed = bed(&[100, 200]);
    let control = bed.control();
    for own in ["e0", "e1"] {
        control.add_spare("a", &spare(own)).expect("free");
    }
    bed.fail(1);
    bed.host.fail_next("replace_member");
    bed.tend(1);
    assert_eq!(bed.place(1), rebuilt_on("e1"));
    assert_eq!(bed.state_of("e0"), DriveState::Spare);
    bed.fail(2);
    bed.tend(2);
    let warnings = control.array("a").expect("there").warnings.join(" ");
    assert!(warnings.contains("drive e0 cannot be used"), "{warnings}");
    // After a while it is tried again.
    bed.tend(2);
    bed.tend(700);
    assert_eq!(bed.place(2), rebuilt_on("e0"));
}

#[test]
fn a_spare_whose_rebuild_fails_is_followed_by_the_next() {
    let bed = bed(&[100, 200]);
    for own in ["e0", "e1"] {
        bed.control().add_spare("a", &spare(own)).expect("free");
    }
    bed.fail(1);
    bed.tend(1);
    assert_eq!(bed.place(1), rebuilt_on("e0"));
    bed.lose(1);
    bed.tend(2);
    bed.tend(31);
    assert_eq!(bed.place(1).1, MemberState::Failed);
    bed.tend(32);
    assert_eq!(bed.place(1), rebuilt_on("e1"));
}

#[test]
fn a_removed_spare_does_not_start() {
    let bed = bed(&[100, 100]);
    let control = bed.control();
    control.add_spare("a", &spare("e0")).expect("free");
    control.create_pool(&pool(&["e1"], &["a"])).expect("free");
    control.remove_spare("a", "e0").expect("a spare");
    control.remove_pool_drive("p", "e1").expect("in the pool");
    assert_eq!(bed.state_of("e0"), DriveState::Free);
    bed.fail(1);
    bed.tend(1);
    bed.tend(100);
    assert_eq!(bed.place(1).1, MemberState::Failed);
    control.detach_pool("p", "a").expect("attached");
    control.delete_pool("p").expect("nobody's");
    assert!(control.pools().is_empty());
}

#[test]
fn an_array_is_made_with_its_spares_or_not_at_all() {
    let bed = bed(&[100, 100, 100, 100, 100, 63]);
    let control = bed.control();
    let with = |spares: &[&str]| ArrayCreateBody {
        spares: spares.iter().map(|&name| name.to_owned()).collect(),
        ..array("b", &["e0", "e1", "e2", "e3"])
    };
    let refused = control
        .create_array(with(&["e4", "e5"]))
        .expect_err("small");
    assert_eq!(
        (refused.kind, refused.object.as_str()),
        (ErrorKind::Full, "drive e5")
    );
    assert_eq!(bed.state_of("e0"), DriveState::Free);
    assert_eq!(bed.state_of("e4"), DriveState::Free);
    let twice = control.create_array(with(&["e3"])).expect_err("a member");
    assert!(twice.message.contains("named twice"), "{twice}");
    let made = control.create_array(with(&["e4"])).expect("free");
    assert_eq!(made.spares, ["e4"]);
    control.destroy_array("b", false).expect("empty");
    assert_eq!(bed.state_of("e4"), DriveState::Free);
}

/// `b` on four drives, by force.
fn forced(spares: &[&str]) -> ArrayCreateBody {
    ArrayCreateBody {
        spares: spares.iter().map(|&name| name.to_owned()).collect(),
        force: true,
        ..array("b", &["e0", "e1", "e2", "e3"])
    }
}

#[test]
fn no_member_is_touched_before_its_spares_are_ready() {
    let bed = bed(&[100, 100, 100, 100, 100, 63]);
    bed.host.sign("file:/e4", "ext4");
    let _before = bed.host.calls();
    bed.host.fail_next("wipe_drive");
    let refused = bed.control().create_array(forced(&["e4"]));
    assert_eq!(refused.expect_err("unwritable").object, "e4");
    assert_eq!(bed.host.calls(), ["wipe_drive e4"]);
    let refused = bed.control().create_array(forced(&["e4", "e5"]));
    assert_eq!(refused.expect_err("small").object, "drive e5");
    assert_eq!(bed.host.calls(), [""; 0]);
    let made = bed.control().create_array(forced(&["e4"])).expect("free");
    assert_eq!(made.spares, ["e4"]);
}

#[test]
fn spares_are_erased_only_for_an_array_that_may_be_made() {
    let bed = bed(&[100; 6]);
    for spare in ["file:/e4", "file:/e5"] {
        bed.host.sign(spare, "ext4");
    }
    let few = ArrayCreateBody {
        drives: vec!["e0".into(), "e1".into()],
        ..forced(&["e4"])
    };
    let pointless = ArrayCreateBody {
        level: Level::Raid0,
        ..forced(&["e4"])
    };
    for (body, word) in [(few, "too few drives"), (pointless, "no redundancy")] {
        let before = bed.everything();
        let refused = bed.control().create_array(body).expect_err(word);
        assert!(refused.message.contains(word), "{refused}");
        assert_eq!(bed.everything(), before, "{word}");
    }
    bed.host.fail_next("create_array");
    let refused = bed.control().create_array(forced(&["e4", "e5"]));
    let told = refused.expect_err("it failed").message;
    assert!(told.ends_with("; drives e4, e5 are erased"), "{told}");
    assert_eq!(bed.state_of("e4"), DriveState::Free);
}

/// A pool of `e0`, `e1` and `e2`, by force.
fn forced_pool() -> PoolCreateBody {
    PoolCreateBody {
        force: true,
        ..pool(&["e0", "e1", "e2"], &[])
    }
}

#[test]
fn all_drives_of_a_pool_are_looked_at_before_one_is_erased() {
    let bed = bed(&[100; 3]);
    for drive in ["file:/e0", "file:/e2"] {
        bed.host.sign(drive, "ext4");
    }
    let before = bed.everything();
    bed.host.fail_next("check_wipe e2");
    let refused = bed.control().create_pool(&forced_pool());
    assert_eq!(refused.expect_err("unreadable").object, "e2");
    assert_eq!(bed.everything(), before);
    bed.control().create_pool(&forced_pool()).expect("free");
}

#[test]
fn who_is_refused_is_told_what_is_erased_already() {
    let bed = bed(&[100; 3]);
    for drive in ["file:/e0", "file:/e1", "file:/e2"] {
        bed.host.sign(drive, "ext4");
    }
    bed.host.fail_next("wipe_drive e2");
    let refused = bed.control().create_pool(&forced_pool());
    let refused = refused.expect_err("unwritable");
    assert_eq!(refused.object, "e2");
    assert!(
        refused.message.ends_with("; drives e0, e1 are erased"),
        "{refused}"
    );
    assert!(bed.control().pools().is_empty());
    bed.host.fail_next("wipe_drive e2");
    let refused = bed.control().create_pool(&forced_pool());
    let message = refused.expect_err("unwritable").message;
    assert!(!message.contains("erased"), "nothing now: {message}");
}

#[test]
fn what_waits_for_an_array_that_is_not_here_can_be_freed() {
    let mut bed = bed(&[100, 100]);
    let uuid = bed.control().array("a").expect("there").uuid.to_string();
    bed.control().add_spare("a", &spare("e0")).expect("free");
    let made = bed.control().create_pool(&pool(&["e1"], &["a"]));
    made.expect("free");
    for number in 0..4 {
        drop(bed.host.unplug(&format!("file:/{number}")));
    }
    bed.kill_and_start();
    let control = bed.control();
    assert_eq!(
        control.drive("e0").expect("there").array,
        Some(uuid.clone())
    );
    let by_name = control.remove_spare("a", "e0").expect_err("it is not here");
    let way = format!("`garboard array spare remove {uuid} --drive e0`");
    assert_eq!(by_name.kind, ErrorKind::NotFound);
    assert!(by_name.next.contains(&way), "{by_name:?}");
    let removed = control.remove_drive("e0", true).expect_err("a spare");
    assert!(removed.next.contains(&way), "{removed:?}");
    for (array, drive) in [(uuid.as_str(), "e1"), (&uuid, "x"), ("x", "d4")] {
        let refused = control.remove_spare(array, drive).expect_err("none");
        assert!(refused.message == "there is no such array", "{refused}");
    }
    control.remove_spare(&uuid, "e0").expect("a spare");
    assert_eq!(bed.state_of("e0"), DriveState::Free);
    assert_eq!(control.pool("p").expect("there").arrays.concat(), uuid);
    control.detach_pool("p", "a").expect_err("it is not here");
    control.detach_pool("p", &uuid).expect("attached");
    control.delete_pool("p").expect("nobody's");
}

#[test]
fn a_pool_forgets_an_array_that_is_destroyed() {
    let bed = bed(&[100; 4]);
    let control = bed.control();
    control
        .create_array(array("b", &["e0", "e1", "e2"]))
        .expect("free");
    control
        .create_pool(&pool(&["e3"], &["a", "b"]))
        .expect("free");
    control.destroy_array("b", false).expect("empty");
    assert_eq!(control.pool("p").expect("there").arrays, ["a"]);
}

#[test]
fn what_carries_something_is_erased_only_by_force() {
    let bed = bed(&[100]);
    bed.host.sign("file:/e0", "ext4");
    let control = bed.control();
    let refused = control.add_spare("a", &spare("e0")).expect_err("signed");
    assert_eq!(refused.kind, ErrorKind::Unsafe);
    assert!(refused.message.contains("ext4"), "{refused}");
    let force = SpareBody {
        force: true,
        ..spare("e0")
    };
    control.add_spare("a", &force).expect("forced");
    assert_eq!(control.drive("e0").expect("there").signature, None);
    bed.fail(1);
    bed.tend(1);
    assert_eq!(bed.place(1), rebuilt_on("e0"));
}

type Call = Box<dyn Fn(&Control) -> Answer<()>>;

fn call<T: 'static>(run: impl Fn(&Control) -> Answer<T> + 'static) -> Call {
    Box::new(move |control| run(control).map(drop))
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn wrong_calls_about_spares_are_refused_and_change_nothing() {
    use ErrorKind::{Busy, Exists, Full, Invalid, NotFound};
    let bed = bed(&[100, 100, 63, 100, 100, 100]);
    let control = bed.control();
    control.add_spare("a", &spare("e0")).expect("free");
    control.create_pool(&pool(&["e1"], &["a"])).expect("free");
    let other = PoolCreateBody {
        name: "q".into(),
        ..pool(&[], &[])
    };
    control.create_pool(&other).expect("new");
    let nothing = ArrayCreateBody {
        level: Level::Raid0,
        ..array("z", &["e3", "e4"])
    };
    control.create_array(nothing).expect("free");
    let to = |array: &str| PoolArrayBody {
        array: array.into(),
    };
    let cases: Vec<(ErrorKind, &str, Call)> = vec![
        (
            Busy,
            "spare of array a",
            call(|c| c.remove_drive("e0", true)),
        ),
        (Busy, "in pool p", call(|c| c.remove_drive("e1", true))),
        (Busy, "spare of array a", call(|c| c.wipe_drive("e0", true))),
        (Busy, "in pool p", call(|c| c.wipe_drive("e1", true))),
        (
            Busy,
            "spare of array a",
            call(|c| c.create_array(array("b", &["e0", "d4", "e5"]))),
        ),
        (Busy, "in pool p", call(|c| c.add_spare("a", &spare("e1")))),
        (
            Busy,
            "spare of array a",
            call(|c| c.add_pool_drive("p", &spare("e0"))),
        ),
        (
            Busy,
            "in pool p",
            call(|c| c.add_pool_drive("q", &spare("e1"))),
        ),
        (
            Busy,
            "member of array a",
            call(|c| c.add_spare("a", &spare("d0"))),
        ),
        (
            Full,
            "a member needs",
            call(|c| c.add_spare("a", &spare("e2"))),
        ),
        (
            NotFound,
            "no such drive",
            call(|c| c.add_spare("a", &spare("x"))),
        ),
        (
            NotFound,
            "no such array",
            call(|c| c.add_spare("x", &spare("e2"))),
        ),
        (
            Invalid,
            "no redundancy",
            call(|c| c.add_spare("z", &spare("e5"))),
        ),
        (
            NotFound,
            "no spare of array a",
            call(|c| c.remove_spare("a", "e1")),
        ),
        (
            NotFound,
            "no spare of pool p",
            call(|c| c.remove_pool_drive("p", "e0")),
        ),
        (
            NotFound,
            "no such pool",
            call(|c| c.remove_pool_drive("x", "e0")),
        ),
        (
            Exists,
            "of this name",
            call(|c| c.create_pool(&pool(&[], &[]))),
        ),
        (
            Busy,
            "from pool p",
            call(move |c| c.attach_pool("q", &to("a"))),
        ),
        (
            Invalid,
            "no redundancy",
            call(move |c| c.attach_pool("q", &to("z"))),
        ),
        (
            NotFound,
            "takes no spares",
            call(|c| c.detach_pool("q", "a")),
        ),
        (Busy, "array a takes spares", call(|c| c.delete_pool("p"))),
        (
            Busy,
            "in pool p",
            call(|c| {
                let body = ReplaceBody {
                    drive: "e1".into(),
                    force: true,
                };
                c.replace_member("a", 1, &body)
            }),
        ),
        (
            Invalid,
            "named twice",
            call(|c| {
                let body = PoolCreateBody {
                    name: "r".into(),
                    ..pool(&["e5", "e5"], &[])
                };
                c.create_pool(&body)
            }),
        ),
    ];
    for (kind, says, call) in cases {
        let before = bed.everything();
        let refused = call(control).expect_err(says);
        assert_eq!(refused.kind, kind, "{says}: {refused}");
        let text = format!("{}: {}", refused.object, refused.message);
        assert!(text.contains(says), "{says}: {text}");
        assert!(!refused.next.is_empty(), "{says}: {text}");
        assert_eq!(bed.everything(), before, "{says}");
    }
}

#[test]
fn a_drive_that_carries_something_after_it_was_erased_is_no_spare() {
    let bed = bed(&[1024]);
    bed.host.sign("file:/e0", "ext4");
    bed.host.fail_next("erase");
    let by_force = SpareBody {
        force: true,
        ..spare("e0")
    };
    let refused = bed.control().add_spare("a", &by_force);
    let refused = refused.expect_err("it would be refused at a loss");
    assert!(refused.message.contains("carries ext4"), "{refused}");
    let array = bed.control().array("a").expect("there");
    assert!(array.spares.is_empty(), "{array:?}");
    bed.control().add_spare("a", &by_force).expect("erased");
}

/// An array that survives two losses, over a wanted state that can be made to refuse writes; `d4`
/// and `d5` are free.
fn on_a_switch() -> (FakeHost, Control, wanted::failing::Switch) {
    let host = FakeHost::new();
    let (wanted, switch) = wanted::failing::wanted();
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    for number in 0..6 {
        let place = format!("file:/{number}");
        host.plug(&place, 1 << 30);
        control.add_drive(drive(&place)).expect("added");
    }
    let made = ArrayCreateBody {
        level: Level::Raid6,
        ..array("a", &["d0", "d1", "d2", "d3"])
    };
    control.create_array(made).expect("created");
    (host, control, switch)
}

#[test]
fn a_second_spare_does_not_wait_until_the_first_is_recorded() {
    let (_host, control, switch) = on_a_switch();
    for drive in ["d4", "d5"] {
        control.add_spare("a", &spare(drive)).expect("free");
    }
    let lose = |member| {
        control.fail_member("a", member).expect("redundant");
        control.tending().given_up.clear();
    };
    let filled = || {
        let array = control.array("a").expect("there");
        let members = array.members.iter().take(2);
        members
            .filter(|member| member.state != MemberState::Missing)
            .count()
    };
    lose(0);
    control.tend_spares(at(0)).expect("it is lost");
    switch.fail();
    let look = |seconds| control.tend_spares(at(seconds)).expect_err("unrecorded");
    look(1000);
    lose(1);
    look(2000);
    look(3000);
    let array = control.array("a").expect("there");
    let drives: Vec<_> = array
        .members
        .iter()
        .map(|member| member.drive.clone())
        .collect();
    assert_eq!(filled(), 2, "{drives:?}");
    for spare in ["d4", "d5"] {
        assert!(drives.contains(&Some(spare.to_owned())), "{drives:?}");
    }
}

#[test]
fn a_copy_that_has_ended_does_not_begin_again_because_that_cannot_be_recorded() {
    let (host, control, switch) = on_a_switch();
    let array = control.array("a").expect("there").uuid;
    let drive = control.drive("d4").expect("there").uuid;
    let copy = WantedCopy { member: 1, drive };
    let change = Change::Copy(array, copy);
    control.wanted.apply(&[change]).expect("recorded");
    // It was under way, and is not any more.
    control.tending().copies.begun.insert(array);
    switch.fail();
    let _before = host.calls();
    for look in 1..4 {
        control.tend_spares(at(look)).expect("looked");
    }
    assert_eq!(host.calls(), [""; 0]);
}
