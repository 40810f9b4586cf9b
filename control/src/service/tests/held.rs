//! Exports that are held back: what is served without them, what they say, how they come back.

use super::*;
use crate::crashes::{Crash, FILE_NAME, HeldBack, Suspect, now_s};
use crate::metrics::Samples;
use crate::service::held;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A full bed with export `v` of volume `v` and export `w` of volume `w`.
fn bed() -> Bed {
    let bed = Bed::full();
    bed.control().create_volume(volume("w")).expect("created");
    for name in ["v", "w"] {
        bed.control().create_export(export(name)).expect("created");
    }
    bed
}

fn uuid(bed: &Bed, name: &str) -> Uuid {
    bed.control().export(name).expect("there").uuid
}

/// Three crashes just now.
fn crashes(suspect: Suspect) -> Vec<Crash> {
    let crash = Crash {
        at_s: now_s(),
        version: VERSION.to_owned(),
        suspect,
        message: "index out of bounds".to_owned(),
    };
    vec![crash; 3]
}

/// The engine crashes for this suspect once more, and starts.
fn crash(bed: &mut Bed, suspect: Suspect) {
    let kept = held::decide(&crashes(suspect), now_s(), &bed.control().wanted);
    assert_eq!(kept.expect("decided"), [], "they count once");
    let _ = bed.host.calls();
    bed.kill_and_start();
}

fn states(bed: &Bed) -> Vec<(String, ExportState)> {
    let exports = bed.control().exports().into_iter();
    exports.map(|export| (export.name, export.state)).collect()
}

fn both(v: ExportState, w: ExportState) -> Vec<(String, ExportState)> {
    vec![("v".to_owned(), v), ("w".to_owned(), w)]
}

#[test]
fn an_export_that_is_held_back_is_not_made_and_says_why_until_it_is_resumed() {
    let mut bed = bed();
    let suspect = Suspect::Export(uuid(&bed, "v"));
    crash(&mut bed, suspect);
    let made = bed.host.calls();
    assert!(made.contains(&"create_export w".to_owned()), "{made:?}");
    assert!(!made.contains(&"create_export v".to_owned()), "{made:?}");
    let control = bed.control();
    let shown = control.export("v").expect("shown");
    assert_eq!(shown.state, ExportState::Held);
    let cause = shown.cause.expect("a cause");
    assert!(
        cause.contains("its requests crashed the engine 3 times"),
        "{cause}"
    );
    assert!(cause.contains("index out of bounds"), "{cause}");
    let status = control.status();
    assert_eq!((status.exports.total, status.exports.attention), (2, 1));
    let warned = |text: &String| text.contains("garboard export resume v");
    assert!(status.engine.warnings.iter().any(warned));
    let metrics = control.metrics();
    let metric = metrics.iter().find(|metric| metric.name == "export_held");
    let Some(Samples::Gauges(samples)) = metric.map(|metric| &metric.samples) else {
        panic!("no gauge: {metric:?}");
    };
    let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
    assert_eq!(values, [1.0, 0.0]);

    // Its guest still has requests in flight: nobody else gets its volume.
    let refused = control.delete_volume("v").expect_err("exported");
    assert_eq!(refused.kind, ErrorKind::Busy);
    let mut second = export("v");
    second.name = Some("second".to_owned());
    let refused = control.create_export(second).expect_err("held back");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert!(
        refused.next.contains("garboard export resume v"),
        "{refused}"
    );
    let to = QueueMove { queue: 0, core: 1 };
    let refused = control.move_queue("v", to).expect_err("held back");
    assert!(
        refused.next.contains("garboard export resume v"),
        "{refused}"
    );

    // Starts and drives that come back do not let it go on.
    bed.control().restore().expect("restored");
    assert_eq!(states(&bed), both(ExportState::Held, ExportState::Waiting));
    bed.kill_and_start();
    assert_eq!(states(&bed), both(ExportState::Held, ExportState::Waiting));
    let resumed = bed.control().resume_export("v").expect("resumed");
    assert_eq!(resumed.state, ExportState::Waiting);
    let refused = bed.control().resume_export("v").expect_err("it is served");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    bed.kill_and_start();
    assert_eq!(
        states(&bed),
        both(ExportState::Waiting, ExportState::Waiting)
    );
}

#[test]
fn another_version_of_the_program_tries_again() {
    let mut bed = bed();
    let export = uuid(&bed, "v");
    let old = HeldBack {
        suspect: Suspect::Export(export),
        crashes: 3,
        at_s: now_s(),
        version: "0.0.0".to_owned(),
        message: String::new(),
    };
    let change = Change::HoldBack(export, Box::new(old));
    bed.control().wanted.apply(&[change]).expect("written");
    held::decide(&[], now_s(), &bed.control().wanted).expect("decided");
    bed.kill_and_start();
    assert_eq!(
        states(&bed),
        both(ExportState::Waiting, ExportState::Waiting)
    );
}

#[test]
fn crashes_of_an_export_that_was_removed_are_forgotten() {
    let mut bed = bed();
    let gone = Suspect::Export(uuid(&bed, "v"));
    bed.control().remove_export("v").expect("removed");
    crash(&mut bed, gone);
    assert_eq!(bed.control().wanted.state().held.len(), 0);
}

#[test]
fn an_export_that_is_held_back_can_be_removed_and_its_successor_is_served() {
    let mut bed = bed();
    let suspect = Suspect::Export(uuid(&bed, "v"));
    crash(&mut bed, suspect);
    bed.control().remove_export("v").expect("removed");
    assert_eq!(bed.control().wanted.state().held.len(), 0);
    bed.control().create_export(export("v")).expect("created");
    assert_eq!(
        states(&bed),
        both(ExportState::Waiting, ExportState::Waiting)
    );
}

#[test]
fn an_export_that_is_held_back_keeps_no_volume_of_its_uuid_on_another_array() {
    let mut bed = Bed::full();
    let own = bed.control().volume("v").expect("the only one").uuid;
    bed.control().create_export(export("v")).expect("created");
    twin_of(&bed, own);
    let suspect = Suspect::Export(uuid(&bed, "v"));
    crash(&mut bed, suspect);
    bed.control = None;
    let away = ["file:/0", "file:/1", "file:/2", "file:/3"].map(|at| bed.host.unplug(at));
    bed.start();
    let other = ExportCreateBody {
        name: Some("x".to_owned()),
        ..export("v")
    };
    bed.control().create_export(other).expect("it is of b");
    drop(away);
}

#[test]
fn an_array_that_is_held_back_holds_its_exports_which_are_resumed_one_by_one() {
    let mut bed = bed();
    let array = bed.control().array("a").expect("there").uuid;
    let members = ["file:/0", "file:/1", "file:/2", "file:/3"];
    let drives = members.map(|spec| (spec, bed.host.unplug(spec)));
    crash(&mut bed, Suspect::Array(array));
    // It is not even there: nothing is lost of the verdict.
    assert_eq!(
        states(&bed),
        both(ExportState::Missing, ExportState::Missing)
    );
    for (spec, content) in drives {
        bed.host.replug(spec, content);
    }
    bed.control().restore().expect("restored");
    assert_eq!(states(&bed), both(ExportState::Held, ExportState::Held));
    let cause = bed.control().export("w").expect("there").cause;
    let cause = cause.expect("a cause");
    assert!(cause.contains("requests to its array"), "{cause}");
    bed.control().resume_export("w").expect("resumed");
    bed.kill_and_start();
    assert_eq!(states(&bed), both(ExportState::Held, ExportState::Waiting));
}

#[test]
fn an_export_that_cannot_be_resumed_says_why_and_is_not_held_back_any_more() {
    let mut bed = bed();
    let suspect = Suspect::Export(uuid(&bed, "v"));
    crash(&mut bed, suspect);
    bed.host.fail_next("create_export");
    let refused = bed.control().resume_export("v").expect_err("no socket");
    assert_eq!(refused.kind, ErrorKind::Busy);
    let says = refused
        .message
        .starts_with("it is not held back any more, but ");
    assert!(says, "{refused}");
    assert_eq!(
        states(&bed),
        both(ExportState::Missing, ExportState::Waiting)
    );
    bed.control().restore().expect("restored");
    assert_eq!(
        states(&bed),
        both(ExportState::Waiting, ExportState::Waiting)
    );
}

#[test]
fn a_bad_file_of_crashes_stops_nobody() {
    let bed = bed();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    held::begin(folder.path(), &bed.control().wanted);
    std::fs::write(&path, vec![0xFF; 1 << 20]).expect("written");
    held::begin(folder.path(), &bed.control().wanted);
    assert!(std::fs::read(&path).expect("read").is_empty(), "begun anew");
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("made");
    held::begin(folder.path(), &bed.control().wanted);
    held::begin(&folder.path().join("nowhere"), &bed.control().wanted);
    assert_eq!(
        states(&bed),
        both(ExportState::Waiting, ExportState::Waiting)
    );
}

/// A bed as [`bed`], over a wanted state that can be made to refuse writes.
fn bed_on_a_switch() -> (FakeHost, Control, wanted::failing::Switch) {
    let host = FakeHost::new();
    let (wanted, switch) = wanted::failing::wanted();
    let control = start(&host, wanted);
    for number in 0..4 {
        let place = format!("file:/{number}");
        host.plug(&place, 1 << 30);
        control.add_drive(drive(&place)).expect("added");
    }
    let made = array("a", &["d0", "d1", "d2", "d3"]);
    control.create_array(made).expect("created");
    for name in ["v", "w"] {
        control.create_volume(volume(name)).expect("created");
        control.create_export(export(name)).expect("created");
    }
    (host, control, switch)
}

fn start(host: &FakeHost, wanted: Wanted) -> Control {
    let control = Control::new(Arc::new(host.engine()), wanted, "/run/test".into());
    control.restore().expect("nothing is fatal");
    control
}

/// The engine ends, and another one finds its wanted state, and decides by these crashes.
fn next(
    host: &FakeHost,
    control: Control,
    found: &[Crash],
    decided: fn(Answer<Vec<Crash>>),
) -> Control {
    let Control { engine, wanted, .. } = control;
    drop(engine);
    let wanted = wanted::failing::again(wanted).expect("read");
    decided(held::decide(found, now_s(), &wanted));
    start(host, wanted)
}

fn states_of(control: &Control) -> Vec<(String, ExportState)> {
    let exports = control.exports().into_iter();
    exports.map(|export| (export.name, export.state)).collect()
}

/// `v` is held back, be it recorded or not, until somebody lets it go on and that is recorded.
fn stays_held(host: &FakeHost, control: Control, switch: &wanted::failing::Switch) {
    let v_held = both(ExportState::Held, ExportState::Waiting);
    let refused = control.resume_export("v").expect_err("no room");
    assert_eq!(refused.kind, ErrorKind::Full, "{refused}");
    control.restore().expect("nothing is fatal");
    let state = states_of(&control).remove(0);
    assert_eq!(state, ("v".to_owned(), ExportState::Held));
    switch.work();
    // Any other change records it.
    control.limit_volume("v", &limit(5)).expect("room again");
    // It may be served already.
    let _ = control.resume_export("w");
    let control = next(host, control, &[], |kept| assert_eq!(kept, Ok(vec![])));
    assert_eq!(states_of(&control), v_held);
    control.resume_export("v").expect("resumed");
    let control = next(host, control, &[], |kept| assert_eq!(kept, Ok(vec![])));
    let served = both(ExportState::Waiting, ExportState::Waiting);
    assert_eq!(states_of(&control), served);
}

#[test]
fn an_export_is_held_back_also_when_that_cannot_be_recorded() {
    let (host, control, switch) = bed_on_a_switch();
    let export = control.export("v").expect("there").uuid;
    switch.fail();
    let found = crashes(Suspect::Export(export));
    // All crashes are kept for the start after this one.
    let control = next(&host, control, &found, |kept| {
        assert_eq!(kept.expect_err("no room").kind, ErrorKind::Full);
    });
    let v_held = both(ExportState::Held, ExportState::Waiting);
    assert_eq!(states_of(&control), v_held);
    stays_held(&host, control, &switch);
}

#[test]
fn exports_are_held_back_with_their_array_also_when_that_cannot_be_recorded() {
    let (host, control, switch) = bed_on_a_switch();
    let array = control.array("a").expect("there").uuid;
    let found = crashes(Suspect::Array(array));
    // The array's own is recorded. Only when it is there its exports are known.
    let Control { engine, wanted, .. } = control;
    drop(engine);
    let kept = held::decide(&found, now_s(), &wanted);
    assert_eq!(kept, Ok(vec![]));
    switch.fail();
    let control = start(&host, wanted);
    let held = both(ExportState::Held, ExportState::Held);
    assert_eq!(states_of(&control), held);
    stays_held(&host, control, &switch);
}
