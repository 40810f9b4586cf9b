//! What was away comes back as what it was.

use super::*;

#[test]
fn a_member_that_returns_without_a_name_keeps_its_own() {
    let mut bed = Bed::full();
    let uuid = bed.control().drive("d1").expect("found").uuid;
    bed.control = None;
    let content = bed.host.unplug("file:/1");
    bed.start();
    bed.host.replug("file:/elsewhere", content);
    let back = bed.control().add_drive(drive("file:/elsewhere"));
    let back = back.expect("it is known by what is on it");
    assert_eq!((back.name.as_str(), back.uuid), ("d1", uuid));
    assert_eq!(back.state, DriveState::Member);
    assert_eq!(bed.control().drives().expect("read").len(), 5);
    bed.kill_and_start();
    let kept = bed.control().drive("d1").expect("found");
    assert_eq!(kept.state, DriveState::Member);
}

#[test]
fn an_array_that_was_stopped_forgotten_and_imported_starts_with_the_next_engine() {
    let mut bed = Bed::full();
    bed.control().stop_array("a").expect("stopped");
    for name in ["d0", "d1", "d2", "d3"] {
        bed.control().remove_drive(name, true).expect("by force");
    }
    bed.kill_and_start();
    assert!(bed.control().arrays().is_empty());
    let body = ImportBody {
        array: "a".into(),
        specs: Vec::new(),
        force: false,
    };
    bed.control().import_array(body).expect("imported");
    bed.kill_and_start();
    let array = bed.control().array("a").expect("found");
    assert_eq!(array.state, ArrayState::Optimal);
}
