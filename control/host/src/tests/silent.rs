//! Drives that do not answer what the control path asks them: nobody waits for them for long, and
//! what can be done without them is done.

use std::sync::Arc;
use std::time::Duration;

use control::request::{DriveKnown, DriveSpec, Level, MemberReplace};
use control::view::{ArrayState, DriveState};
use control::{Answer, Engine, ErrorKind};
use drive::Fault;
use tempfile::TempDir;
use units::{Clock, MonotonicClock};
use uuid::Uuid;

use super::spares::Run;
use super::{Bench, MIB, array_of, file_at, volume_of, wait_until};
use crate::{Host, Tuning};

const DRIVES: [&str; 4] = ["one", "two", "three", "four"];

/// An engine that waits for no answer for long.
fn impatient(folder: Arc<TempDir>) -> Bench {
    let tuning = Tuning {
        answer_wait: Duration::from_millis(300),
        ..Tuning::default()
    };
    Bench::tuned(folder, tuning)
}

/// Files, and such an engine.
fn files() -> Bench {
    let bench = impatient(Arc::new(tempfile::tempdir().expect("a folder")));
    for name in DRIVES {
        bench.file(name);
    }
    bench
}

/// An array of three, which another engine has left behind, as it is found and does not run.
fn left_behind(in_order: bool) -> Bench {
    let bench = files();
    bench.create("tank", Level::Raid5, &DRIVES[..3]);
    wait_until("parity is right", || bench.host.jobs().is_empty());
    let folder = Arc::clone(&bench.folder);
    if in_order {
        bench.host.shutdown().expect("clean");
    }
    drop(bench);
    let bench = impatient(folder);
    for name in &DRIVES[..3] {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench
}

/// Answers nobody from now on.
fn silence(bench: &Bench, name: &str) {
    bench.inject(name, Fault::Silent);
}

/// Answers again, what it was asked before as well.
fn speak(bench: &Bench, name: &str) {
    let drive = Arc::clone(&bench.host.state().drives[name].drive);
    drive.clear_faults();
    wait_until("what it was asked is answered", || {
        bench.host.asks.drives.under_way() == 0 && !drive.owes_an_answer()
    });
}

#[test]
fn a_member_that_does_not_answer_lets_its_array_serve_without_it_and_comes_back() {
    let run = Run::on(files());
    for name in DRIVES {
        let spec = file_at(&run.bench.path(name));
        let body = control::body::DriveAddBody {
            spec,
            name: Some(name.to_owned()),
            uuid: None,
        };
        run.bench.host.remove_drive(name, false).expect("free");
        run.control.add_drive(body).expect("a file");
    }
    run.create("tank", &["one", "two", "three"], &[]);
    wait_until("parity is right", || {
        run.bench.array("tank").jobs.is_empty()
    });
    run.control.stop_array("tank").expect("unused");
    silence(&run.bench, "three");
    let hung = Arc::downgrade(&run.bench.host.state().drives["three"].drive);
    let refusal = run.control.start_array("tank", false);
    assert_eq!(
        refusal.expect_err("it is asked").kind,
        ErrorKind::Unreachable
    );
    let started = run.control.start_array("tank", false);
    let started = started.expect("two are enough");
    assert_eq!(started.state, ArrayState::Degraded);
    let look = || run.control.tend_drives(MonotonicClock.now()).expect("told");
    look();
    let away = run.control.drive("three").expect("wanted");
    assert_eq!(away.state, DriveState::Missing);
    let cause = away.cause.expect("it is told");
    assert!(cause.contains("has not answered"), "{cause}");
    let hung = hung.upgrade().expect("it is still asked");
    hung.clear_faults();
    drop(hung);
    wait_until("it is back", || {
        look();
        run.control.array("tank").expect("there").state == ArrayState::Optimal
    });
}

#[test]
fn an_array_that_a_member_does_not_answer_while_it_is_started_is_started_without_it() {
    for in_order in [true, false] {
        for silent in &DRIVES[..3] {
            let bench = left_behind(in_order);
            silence(&bench, silent);
            let hung = Arc::clone(&bench.host.state().drives[*silent].drive);
            let refusal = bench.host.start_array("tank", false);
            let refusal = refusal.expect_err("all members are asked");
            assert_eq!(refusal.kind, ErrorKind::Unreachable, "{refusal}");
            assert!(refusal.object.ends_with(silent), "{refusal}");
            assert!(refusal.next.contains("again"), "{refusal}");
            let started = bench.host.start_array("tank", false);
            assert_eq!(started.expect("two").state, ArrayState::Degraded);
            hung.clear_faults();
        }
    }
}

/// What it was asked in vain counts as an error until then, and may yet be done.
#[test]
fn a_member_that_answers_too_late_in_a_start_ends_it_and_is_there_in_the_next() {
    for in_order in [true, false] {
        for silent in &DRIVES[..3] {
            let bench = left_behind(in_order);
            silence(&bench, silent);
            let hung = Arc::clone(&bench.host.state().drives[*silent].drive);
            let started = std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name("start".to_owned());
                let start = || bench.host.start_array("tank", false).map(|_| ());
                let start = thread.spawn_scoped(scope, start).expect("a thread");
                wait_until("it is given up", || hung.given_up() > 0);
                hung.clear_faults();
                start.join().expect("no panic")
            });
            let refusal = started.expect_err("it was asked in vain");
            assert_eq!(refusal.kind, ErrorKind::Unreachable, "{refusal}");
            wait_until("it answers", || !hung.owes_an_answer());
            bench.host.assemble();
            bench.host.start_array("tank", false).expect("all are here");
            assert_eq!(bench.array("tank").state, ArrayState::Optimal);
        }
    }
}

#[test]
fn commands_about_a_drive_that_does_not_answer_say_so() {
    let bench = files();
    bench.create("tank", Level::Raid5, &["one", "two", "three"]);
    bench.host.fail_member("tank", 2).expect("two are enough");
    silence(&bench, "four");
    let replace = MemberReplace {
        member: 2,
        drive: "four".to_owned(),
        force: true,
    };
    let other = array_of("other", Level::Raid0, &["four"]);
    type Command<'c> = &'c dyn Fn(&Host) -> Answer<()>;
    let commands: [Command<'_>; 4] = [
        &|host| host.wipe_drive("four", true).map(|_| ()),
        &|host| host.signature_on("four").map(|_| ()),
        &|host| host.replace_member("tank", &replace).map(|_| ()),
        &|host| host.create_array(&other).map(|_| ()),
    ];
    for command in commands {
        bench.refused((ErrorKind::Unreachable, "does not answer"), command);
        // It is asked by one at a time.
        let refused = command(&bench.host).expect_err("it still owes an answer");
        assert!(
            matches!(refused.kind, ErrorKind::Unreachable | ErrorKind::Busy),
            "{refused}"
        );
        speak(&bench, "four");
        silence(&bench, "four");
    }
    speak(&bench, "four");
    bench
        .host
        .replace_member("tank", &replace)
        .expect("it answers");
}

/// It has no number of its own, so it is not closed to be looked for again.
#[test]
fn a_spare_that_does_not_answer_keeps_no_other_one_from_its_place() {
    let run = Run::on(impatient(Arc::new(tempfile::tempdir().expect("a folder"))));
    let drives = ["one", "two", "three", "four", "five"];
    run.memory(&drives.map(|name| (name, 64)));
    run.create("tank", &drives[..3], &drives[3..]);
    wait_until("parity is right", || run.array("tank").jobs.is_empty());
    silence(&run.bench, "four");
    run.pull("tank", "one");
    run.tend();
    run.is_optimal_with("tank", "five");
    assert_eq!(run.state_of("four"), DriveState::Spare);
    // With none left the array says why, until it answers.
    run.pull("tank", "two");
    run.tend();
    let warnings = run.array("tank").warnings.join(" ");
    assert!(warnings.contains("drive four cannot be used"), "{warnings}");
    speak(&run.bench, "four");
    run.tend();
    run.is_optimal_with("tank", "four");
}

#[test]
fn an_array_is_destroyed_without_the_member_that_does_not_answer_and_that_is_told() {
    let run = Run::on(files());
    run.create("tank", &["one", "two", "three"], &[]);
    silence(&run.bench, "two");
    let gone = run.control.destroy_array("tank", false).expect("destroyed");
    let [warning] = &gone.warnings[..] else {
        panic!("of one drive: {:?}", gone.warnings);
    };
    assert!(warning.contains("garboard drive wipe two"), "{warning}");
    speak(&run.bench, "two");
    let holds = |name: &str| run.bench.host.signature_on(name).expect("it answers");
    assert_eq!(holds("one"), None);
    assert!(holds("two").is_some_and(|found| found.contains("garboard")));
    run.control.wipe_drive("two", true).expect("it answers");
    assert_eq!(holds("two"), None);
}

#[test]
fn drives_whose_paths_were_swapped_are_opened_as_who_they_are() {
    let bench = Bench::file_tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let names = ["one", "two", "three"];
    let identities = names.map(|name| bench.drive(name).identity);
    let bench = bench.next();
    let paths = ["two", "three", "one"];
    let known = |(name, at): (&str, usize)| DriveKnown {
        name: name.to_owned(),
        uuid: Uuid::new_v4(),
        spec: file_at(&bench.path(paths[at])),
        identity: identities[at].clone(),
        member_of: None,
    };
    let known: Vec<DriveKnown> = names.into_iter().zip(0..).map(known).collect();
    let opened = bench.host.open_drives(&known);
    for (known, (opened, name)) in known.iter().zip(opened.into_iter().zip(names)) {
        let opened = opened.expect("it is somewhere");
        assert_eq!(opened.identity, known.identity);
        assert_eq!(opened.spec, file_at(&bench.path(name)));
    }
}

#[test]
fn of_two_drives_at_one_path_the_second_is_looked_for_elsewhere() {
    let bench = Bench::file_tank();
    let identities = ["one", "two"].map(|name| bench.drive(name).identity);
    let bench = bench.next();
    let known = identities.map(|identity| DriveKnown {
        name: format!(
            "d{}",
            identity.len() + usize::from(identity.contains(":1:"))
        ),
        uuid: Uuid::new_v4(),
        spec: file_at(&bench.path("one")),
        identity,
        member_of: None,
    });
    let opened = bench.host.open_drives(&known);
    let specs: Vec<DriveSpec> = opened
        .into_iter()
        .map(|one| one.expect("there").spec)
        .collect();
    assert_eq!(specs, ["one", "two"].map(|name| file_at(&bench.path(name))));
}

#[test]
fn a_place_that_is_named_twice_is_looked_at_once() {
    let bench = Bench::file_tank();
    let bench = bench.next();
    let specs: Vec<DriveSpec> = ["one", "two", "three", "one"]
        .map(|name| file_at(&bench.path(name)))
        .into();
    let found = bench.host.find_arrays(&specs).expect("files");
    let [array] = &found[..] else {
        panic!("one array: {found:?}");
    };
    assert_eq!((array.drives.len(), &array.cause), (3, &None));
}

#[test]
fn a_drive_that_is_no_more_does_not_take_the_path_of_the_one_that_is_there() {
    let alias = |bench: &Bench| {
        let alias = bench.path("alias");
        std::os::unix::fs::symlink(bench.path("one"), &alias).expect("a link");
        alias
    };
    type At = fn(&Bench) -> std::path::PathBuf;
    let paths: [At; 2] = [|bench| bench.path("one"), alias];
    for path in paths {
        let bench = Bench::file_tank();
        let identity = bench.drive("one").identity;
        let bench = bench.next();
        let known = |name: &str, spec, identity: &str| DriveKnown {
            name: name.to_owned(),
            uuid: Uuid::new_v4(),
            spec,
            identity: identity.to_owned(),
            member_of: None,
        };
        let gone =
            "member:5f5e1000-0000-4000-8000-000000000000:0:5f5e1000-0000-4000-8000-000000000001";
        let known = [
            known("gone", file_at(&path(&bench)), gone),
            known("one", file_at(&bench.path("one")), &identity),
        ];
        let opened = bench.host.open_drives(&known);
        let [gone, one] = opened.try_into().expect("two");
        gone.expect_err("it is nowhere");
        assert_eq!(one.expect("it is at its path").identity, identity);
    }
}

#[test]
fn a_member_that_is_silent_when_it_returns_is_asked_again() {
    let bench = files();
    bench.create("tank", Level::Raid5, &["one", "two", "three"]);
    wait_until("parity is right", || bench.array("tank").jobs.is_empty());
    bench.inject("three", Fault::Pulled);
    bench.host.fail_member("tank", 2).expect("two are enough");
    bench.host.state().drives["three"].drive.clear_faults();
    silence(&bench, "three");
    let hung = Arc::downgrade(&bench.host.state().drives["three"].drive);
    bench.host.bring_back("three");
    let closed = bench.host.close_gone();
    let [(name, cause)] = &closed[..] else {
        panic!("one is to be opened anew: {closed:?}");
    };
    assert_eq!(name, "three");
    assert!(cause.contains("has not answered"), "{cause}");
    hung.upgrade().expect("it is still asked").clear_faults();
}
