//! What was taken out, stopped or left out by command: every way back is open, and what is said of
//! it is true of now.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use control::request::{ArrayImport, BackgroundKind, DriveAdd, MemberReplace};
use control::view::{ArrayState, DriveState, JobState};
use control::{Engine, ErrorKind};
use drive::Fault;
use uuid::Uuid;

use super::{Bench, file_at, wait_until};

#[test]
fn a_stopped_array_takes_back_members_that_were_removed_and_added_again() {
    let bench = Bench::file_tank();
    bench.host.stop_array("tank").expect("unused");
    for name in ["one", "two"] {
        bench.host.remove_drive(name, true).expect("by force");
    }
    let cause = bench.array("tank").cause.expect("one is not enough");
    assert!(cause.contains("garboard drive add"), "{cause}");
    bench.refused((ErrorKind::Degraded, "has 1"), |host| {
        host.start_array("tank", false)
    });
    bench.open_file("one").expect("it is back");
    // It starts as soon as it can, and is still not complete.
    let tank = bench.array("tank");
    assert_eq!((tank.state, tank.cause), (ArrayState::Stopped, None));
    let back = bench.open_file("two").expect("it is back");
    assert_eq!((back.state, back.member), (DriveState::Member, Some(1)));
    assert!(bench.array("tank").warnings.is_empty());
    let started = bench.host.start_array("tank", false).expect("complete");
    assert_eq!(started.state, ArrayState::Optimal);
}

#[test]
fn a_drive_says_who_it_is_without_being_opened_for_good() {
    let bench = Bench::file_tank();
    let spec = file_at(&bench.path("two"));
    let identity = bench.drive("two").identity;
    // It is open here under its name.
    assert_eq!(bench.host.identify_drive(&spec).expect("looked"), "");
    bench.host.remove_drive("two", true).expect("two are left");
    assert_eq!(bench.host.identify_drive(&spec).expect("looked"), identity);
    bench.open_file("two").expect("nobody holds it");
}

/// An array of which nothing is to be done, with a slow member.
fn slow_tank() -> Bench {
    let bench = Bench::tank();
    wait_until("the initialization is through", || {
        let jobs = bench.host.jobs();
        jobs.iter().all(|job| job.state == JobState::Done)
    });
    bench.inject("one", Fault::Delay(Duration::from_millis(10)));
    bench
}

#[test]
fn a_resync_that_was_stopped_goes_on_as_the_same_job_and_is_done() {
    let bench = slow_tank();
    let kind = BackgroundKind::Resync;
    let job = bench.host.start_background("tank", kind).expect("begins");
    let state = || {
        let jobs = bench.host.jobs();
        let own = jobs.iter().find(|other| other.id == job.id);
        own.expect("kept").state
    };
    for _ in 0..2 {
        bench.host.stop_background("tank", kind).expect("it runs");
        assert_eq!(state(), JobState::Cancelled);
        let again = bench.host.start_background("tank", kind).expect("goes on");
        assert_eq!((again.id, again.state), (job.id, JobState::Running));
    }
    bench.host.state().drives["one"].drive.clear_faults();
    wait_until("it is done", || state() == JobState::Done);
}

#[test]
fn nobody_waits_for_a_job_whose_array_is_stopped_and_it_goes_on_with_that() {
    let bench = slow_tank();
    let kind = BackgroundKind::Resync;
    let job = bench.host.start_background("tank", kind).expect("begins");
    let own = || {
        let mut jobs = bench.host.jobs().into_iter();
        jobs.find(|other| other.id == job.id).expect("kept")
    };
    assert_eq!(own().state, JobState::Running);
    bench.host.stop_array("tank").expect("unused");
    let stopped = own();
    let cause = stopped.cause.expect("it says why");
    assert_eq!(stopped.state, JobState::Cancelled);
    assert!(cause.contains("is stopped"), "{cause}");
    bench.host.state().drives["one"].drive.clear_faults();
    bench.host.start_array("tank", false).expect("complete");
    wait_until("it is done", || own().state == JobState::Done);
    // Also if nobody has looked between the start and that.
    let mut state = bench.host.state();
    let view = &mut state.jobs.get_mut(&job.id).expect("kept").view;
    (view.state, view.cause) = (JobState::Cancelled, Some(cause));
    drop(state);
    let done = own();
    assert_eq!((done.state, done.cause), (JobState::Done, None));
}

#[test]
fn warnings_are_those_of_the_members_of_now() {
    let bench = Bench::file_tank();
    bench.memory("spare");
    let together =
        |names: &str| format!("drives {names} are files of one file system and fail together");
    assert_eq!(bench.array("tank").warnings, [together("one, two, three")]);
    bench.host.fail_member("tank", 1).expect("two are left");
    let replace = MemberReplace {
        member: 1,
        drive: "spare".to_owned(),
        force: false,
    };
    bench.host.replace_member("tank", &replace).expect("fits");
    assert_eq!(bench.array("tank").warnings, [together("one, three")]);
}

#[test]
fn a_warning_of_a_drive_that_was_left_out_ends_with_it() {
    let bench = Bench::file_tank();
    bench.host.remove_drive("two", true).expect("two are left");
    bench.host.stop_array("tank").expect("unused");
    std::fs::copy(bench.path("one"), bench.path("copy")).expect("a copy");
    bench.open_file("copy").expect("a file");
    let said = bench.array("tank").warnings.join("\n");
    assert!(said.contains("drive copy is left out"), "{said}");
    bench
        .host
        .start_array("tank", false)
        .expect("two are enough");
    bench.host.remove_drive("copy", false).expect("nobody's");
    let said = bench.array("tank").warnings.join("\n");
    assert!(!said.contains("copy"), "{said}");
}

#[test]
fn a_member_is_not_removed_without_force_and_the_way_that_is_told_works() {
    let bench = Bench::file_tank();
    let refusal = bench.refused((ErrorKind::Busy, "member 1 of array tank"), |host| {
        host.remove_drive("two", false)
    });
    assert!(refusal.next.contains("--force takes it out"), "{refusal}");
    bench
        .host
        .remove_drive("two", true)
        .expect("as it was told");
    let refusal = bench.refused((ErrorKind::Busy, "member 0 of array tank"), |host| {
        host.remove_drive("one", false)
    });
    assert!(!refusal.next.contains("--force"), "{refusal}");
    assert!(refusal.next.contains("array show tank"), "{refusal}");
}

#[test]
fn the_way_out_is_told_of_what_was_refused_not_of_something_else() {
    let bench = Bench::file_tank();
    let import = ArrayImport {
        array: "nosuch".to_owned(),
        specs: Vec::new(),
        force: false,
        taken: BTreeSet::new(),
    };
    let refusal = bench.refused((ErrorKind::NotFound, "array nosuch"), |host| {
        host.import_array(&import)
    });
    assert!(refusal.next.contains("garboard array import"), "{refusal}");
    let refusal = bench.refused((ErrorKind::NotFound, "drive nine"), |host| {
        host.add_drive(&DriveAdd {
            name: "nine".to_owned(),
            uuid: Uuid::new_v4(),
            spec: file_at(&bench.path("nine")),
        })
    });
    assert!(!refusal.message.starts_with("drive"), "{refusal}");
    bench.host.stop_array("tank").expect("unused");
    let refusal = bench.refused((ErrorKind::Busy, "not started"), |host| {
        host.stop_array("tank")
    });
    assert!(!refusal.next.contains("array start"), "{refusal}");
}

/// What a drive that was a member holds when it comes back: the file, from end to end.
type Use = fn(&mut [u8]);

#[test]
fn only_what_holds_nothing_else_is_filled_anew_without_force() {
    let ext = |bytes: &mut [u8]| bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let blank: Use = |bytes| bytes.fill(0);
    // Another disk at the path of a member that had no number of its maker's.
    let other: Use = |bytes| bytes.fill(0);
    // What makes a file system does not reach a superblock at the end.
    let formatted: Use = |bytes| bytes[..8 << 20].fill(0);
    for (use_it, is_ext, word) in [
        (blank, false, None),
        (other, true, Some("ext")),
        (formatted, true, Some("ext")),
    ] {
        let bench = Bench::file_tank();
        let identity = bench.drive("two").identity;
        let bench = bench.next();
        let mut bytes = fs::read(bench.path("two")).expect("a file");
        use_it(&mut bytes);
        if is_ext {
            ext(&mut bytes);
        }
        fs::write(bench.path("two"), &bytes).expect("a file");
        for name in ["one", "three"] {
            bench.reopen(name, "").expect("a file");
        }
        bench.host.assemble();
        bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        bench.reopen("two", &identity).expect("a file of whatever");
        assert_ne!(bench.drive("two").state, DriveState::Member);
        let replace = |force| MemberReplace {
            member: 1,
            drive: "two".to_owned(),
            force,
        };
        if let Some(word) = word {
            let refusal = bench.refused((ErrorKind::Unsafe, word), |host| {
                host.replace_member("tank", &replace(false))
            });
            assert!(refusal.next.contains("--force"), "{refusal}");
        }
        let force = word.is_some();
        let replaced = bench.host.replace_member("tank", &replace(force));
        let replaced = replaced.expect("its own place");
        assert_eq!(replaced.members[1].drive.as_deref(), Some("two"));
    }
}
