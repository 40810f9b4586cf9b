//! Drives with an old story: the host remembers that others went on without them.

use std::fs;
use std::sync::Arc;

use control::body::ImportBody;
use control::request::{DriveSpec, Level};
use control::view::ArrayState;
use control::{Engine, ErrorKind};
use drive::Fault;

use super::hanging::{HANG, late, relieve};
use super::spares::Run;
use super::{Bench, MIB, file_at, wait_until};

fn mirror() -> Run {
    let run = Run::on(Bench::new());
    for name in ["one", "two"] {
        let spec = DriveSpec::File {
            path: run.bench.path(name),
            size_bytes: Some(64 * MIB),
            create: true,
        };
        run.add(name, spec);
    }
    run.create_of(Level::Raid1, "tank", (&["one", "two"], &[]));
    run
}

/// A mirror whose first member was left out while the second went on, killed; and the second is not
/// there at the next start.
fn only_the_one_left_out() -> Run {
    let run = mirror();
    run.pull("tank", "one");
    run.look();
    // Not beside it, where it would be found.
    fs::create_dir(run.bench.path("away")).expect("a folder");
    fs::rename(run.bench.path("two"), run.bench.path("away/two")).expect("there");
    again(run)
}

/// Killed, and started again.
fn again(run: Run) -> Run {
    let Run { control, bench } = run;
    drop(control);
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    Run::on(Bench::on(folder))
}

#[test]
fn a_drive_that_was_left_out_does_not_start_alone_from_what_it_had() {
    let run = only_the_one_left_out();
    let stopped = run.array("tank");
    assert_eq!(stopped.state, ArrayState::Stopped);
    let warnings = stopped.warnings.join(" ");
    assert!(warnings.contains("this host has seen update"), "{warnings}");
    let refused = run.control.start_array("tank", false);
    let refused = refused.expect_err("the other one has gone on");
    assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
    // With that one it starts, with what was written there.
    fs::rename(run.bench.path("away/two"), run.bench.path("two")).expect("there");
    let run = again(run);
    assert_ne!(run.array("tank").state, ArrayState::Stopped);
    run.control
        .volume("after-one")
        .expect("made without drive one");
}

#[test]
fn what_was_started_by_force_starts_by_itself_from_then_on() {
    let run = only_the_one_left_out();
    let forced = run.control.start_array("tank", true).expect("force");
    let warnings = forced.warnings.join(" ");
    assert!(warnings.contains("by force"), "{warnings}");
    // Also if nobody has looked since.
    let run = again(run);
    assert_eq!(run.array("tank").state, ArrayState::Degraded);
    run.control.stop_array("tank").expect("not exported");
    run.control
        .start_array("tank", false)
        .expect("its own story");
}

#[test]
fn a_drive_that_was_left_out_does_not_start_alone_after_a_stop_either() {
    let run = mirror();
    run.pull("tank", "one");
    run.control.stop_array("tank").expect("not exported");
    run.bench.host.state().drives["one"].drive.clear_faults();
    run.control.remove_drive("two", true).expect("force");
    let refused = run.control.start_array("tank", false);
    let refused = refused.expect_err("the other one has gone on");
    assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
    let shown = run.array("tank");
    let cause = shown.cause.expect("it cannot start");
    assert!(cause.contains("this host has seen update"), "{cause}");
    run.control.start_array("tank", true).expect("force");
    run.control.stop_array("tank").expect("not exported");
    run.control
        .start_array("tank", false)
        .expect("its own story");
}

#[test]
fn what_was_put_back_and_started_by_force_starts_by_itself_from_then_on() {
    let run = mirror();
    run.control.stop_array("tank").expect("not exported");
    let folder = Arc::clone(&run.bench.folder);
    let files = ["one", "two"].map(|name| folder.path().join(name));
    let then = files.each_ref().map(|file| fs::read(file).expect("a file"));
    run.control.start_array("tank", false).expect("complete");
    run.look();
    run.control.stop_array("tank").expect("not exported");
    let Run { control, bench } = run;
    drop(control);
    drop(bench);
    for (file, then) in files.iter().zip(then) {
        fs::write(file, then).expect("a file");
    }
    let run = Run::on(Bench::on(folder));
    run.look();
    let refused = run.control.start_array("tank", false);
    refused.expect_err("it is known to have gone on");
    run.control.start_array("tank", true).expect("force");
    let run = again(run);
    assert_eq!(run.array("tank").state, ArrayState::Optimal);
}

#[test]
fn a_start_that_has_not_written_anything_is_not_remembered() {
    let run = mirror();
    run.control.stop_array("tank").expect("not exported");
    let on_drives = run.array("tank").update;
    for name in ["one", "two"] {
        run.bench.inject(name, Fault::Delay(HANG));
    }
    late(&run.bench, |host| host.start_array("tank", false));
    let uuid = run.array("tank").uuid;
    assert!(!run.bench.host.memberships().contains_key(&uuid));
    let known = run.bench.host.state().memberships[&uuid].update;
    assert!(known <= on_drives);
    relieve(&run.bench);
    wait_until("it has started", || {
        run.array("tank").state == ArrayState::Optimal
    });
}

#[test]
fn a_drive_that_was_left_out_is_not_imported_alone_either() {
    let run = only_the_one_left_out();
    run.control.remove_drive("one", true).expect("force");
    let spec = file_at(&run.bench.path("one"));
    let found = run.control.find_arrays(std::slice::from_ref(&spec));
    let cause = found.expect("looked")[0].cause.clone();
    assert!(cause.is_some_and(|cause| cause.contains("has seen")));
    let import = |force| ImportBody {
        array: "tank".to_owned(),
        specs: vec![spec.clone()],
        force,
    };
    let refused = run.control.import_array(import(false));
    let refused = refused.expect_err("the other one has gone on");
    assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
    run.control.import_array(import(true)).expect("force");
}
