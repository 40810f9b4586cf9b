//! A drive's number is used again only when nothing in the engine means the drive before by it.

use control::Engine;
use control::view::MemberState;

use super::Bench;

#[test]
fn a_new_drive_does_not_take_the_place_of_one_that_a_stopped_array_lost() {
    let bench = Bench::tank();
    bench.host.stop_array("tank").expect("nothing uses it");
    bench.host.remove_drive("three", true).expect("forced");
    bench.memory("other");
    let view = bench
        .host
        .start_array("tank", false)
        .expect("two of three are enough");
    assert_eq!(view.members[2].drive, None);
    assert_ne!(view.members[2].state, MemberState::Online);
    assert_eq!(bench.drive("other").signature, None, "nobody wrote on it");
    bench.host.shutdown().expect("clean");
}

#[test]
fn a_new_drive_does_not_take_the_place_of_one_pulled_from_a_running_array() {
    let bench = Bench::tank();
    bench.host.remove_drive("three", true).expect("forced");
    bench.memory("other");
    bench.host.stop_array("tank").expect("nothing uses it");
    let view = bench
        .host
        .start_array("tank", false)
        .expect("two of three are enough");
    assert_eq!(view.members[2].drive, None);
    assert_eq!(bench.drive("other").signature, None, "nobody wrote on it");
    bench.host.shutdown().expect("clean");
}
