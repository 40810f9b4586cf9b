//! Arrays that wait for members that they cannot do without.

use std::cell::RefCell;
use std::time::Duration;

use array::{MapState, PassState};
use control::request::ArrayModify;
use control::view::{ArrayState, DriveState};
use control::{Engine, ErrorKind};
use drive::Fault;
use units::{Clock, MonotonicClock};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};

const DRIVES: [&str; 3] = ["one", "two", "three"];
const OK: Option<u8> = Some(0);
const IO_ERROR: Option<u8> = Some(1);

/// An array of level 5 with a guest on a volume, whose requests wait for so long.
fn served(hold_timeout_ms: u64) -> (Bench, RefCell<Guest>) {
    let bench = Bench::tank();
    let modify = ArrayModify {
        hold_timeout_ms: Some(hold_timeout_ms),
        ..ArrayModify::default()
    };
    let view = bench.host.modify_array("tank", &modify).expect("it runs");
    assert_eq!(view.hold_timeout_ms, Some(hold_timeout_ms));
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    bench
        .host
        .export_named(&export_of(&bench, "e", "v"))
        .expect("a socket");
    let guest = RefCell::new(Guest::connect(&bench.path("e.sock")));
    guest.borrow_mut().write(0);
    wait_until("a write", || guest.borrow_mut().answer() == OK);
    (bench, guest)
}

fn inject(bench: &Bench, fault: Fault) {
    for name in DRIVES {
        bench.inject(name, fault);
    }
}

fn relieve(bench: &Bench) {
    for drive in bench.host.state().drives.values() {
        drive.drive.clear_faults();
    }
}

fn state(bench: &Bench) -> ArrayState {
    bench.array("tank").state
}

/// Whether all members are in sync and no pass is due.
fn is_whole(bench: &Bench) -> bool {
    let index = bench.host.state().arrays["tank"].index;
    let array = bench.host.engine.array_state(index).expect("it runs");
    let running = |pass: array::PassStatus| pass.state == PassState::Running;
    let in_sync = |member: &array::MapMember| member.state == MapState::InSync;
    array.map.members.iter().all(in_sync) && !array.pass.is_some_and(running)
}

#[test]
fn a_write_waits_while_all_drives_are_away_and_is_carried_out_when_they_are_back() {
    super::on_both_kinds(|| {
        for fault in [Fault::Pulled, Fault::NoSpace] {
            let (bench, guest) = served(60_000);
            inject(&bench, fault);
            guest.borrow_mut().write(8);
            wait_until("the array holds", || state(&bench) == ArrayState::Holding);
            let view = bench.array("tank");
            let hold = view.hold.expect("it holds");
            assert!(hold.left_s.is_some_and(|left| left <= 60), "{hold:?}");
            assert!(!hold.members.is_empty(), "{hold:?}");
            for member in &hold.members {
                let drive = DRIVES[usize::from(member.member)];
                assert_eq!(member.drive.as_deref(), Some(drive));
            }
            let warnings = bench.host.status().warnings;
            assert!(warnings[0].starts_with("array tank holds"), "{warnings:?}");
            std::thread::park_timeout(Duration::from_millis(300));
            assert_eq!(guest.borrow_mut().answer(), None, "nobody is told");
            relieve(&bench);
            wait_until("the write is answered", || {
                guest.borrow_mut().answer() == OK
            });
            wait_until("it is over", || state(&bench) == ArrayState::Optimal);
            assert!(is_whole(&bench), "nobody was left out");
            assert_eq!(bench.array("tank").hold, None);
        }
    });
}

#[test]
fn what_waits_too_long_fails_until_the_drives_are_back() {
    super::on_both_kinds(|| {
        let (bench, guest) = served(1000);
        inject(&bench, Fault::Pulled);
        guest.borrow_mut().write(8);
        let begun = MonotonicClock.now();
        wait_until("an error", || guest.borrow_mut().answer() == IO_ERROR);
        let waited = MonotonicClock.now().since(begun);
        assert!(waited >= Duration::from_millis(900), "{waited:?}");
        assert_eq!(state(&bench), ArrayState::Failed);
        assert_eq!(bench.array("tank").hold.expect("it waits").left_s, None);
        let begun = MonotonicClock.now();
        guest.borrow_mut().write(8);
        wait_until("an error", || guest.borrow_mut().answer() == IO_ERROR);
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < Duration::from_millis(500), "at once: {waited:?}");
        relieve(&bench);
        wait_until("it is over", || state(&bench) == ArrayState::Optimal);
        guest.borrow_mut().write(8);
        wait_until("a write", || guest.borrow_mut().answer() == OK);
    });
}

#[test]
fn nothing_waits_where_the_timeout_is_zero() {
    super::on_both_kinds(|| {
        let (bench, guest) = served(0);
        inject(&bench, Fault::Pulled);
        let begun = MonotonicClock.now();
        guest.borrow_mut().write(8);
        wait_until("an error", || guest.borrow_mut().answer() == IO_ERROR);
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    });
}

#[test]
fn a_single_member_without_space_is_waited_for_and_left_out_in_the_end() {
    super::on_both_kinds(|| {
        let (bench, guest) = served(1000);
        bench.inject("two", Fault::NoSpace);
        // The second chunk of the first stripe: its parity is on the third drive.
        guest.borrow_mut().write(128);
        wait_until("the array holds", || state(&bench) == ArrayState::Holding);
        assert_eq!(
            bench.array("tank").hold.expect("it holds").members[0].cause,
            "the file system that it lies on is full"
        );
        wait_until("the write is answered", || {
            guest.borrow_mut().answer() == OK
        });
        assert_eq!(state(&bench), ArrayState::Degraded);
    });
}

#[test]
fn an_array_that_holds_can_be_stopped_and_says_that_it_is_not_clean() {
    super::on_both_kinds(|| {
        let (bench, guest) = served(60_000);
        inject(&bench, Fault::Pulled);
        guest.borrow_mut().write(8);
        wait_until("the array holds", || state(&bench) == ArrayState::Holding);
        // A guest whose request waits keeps its export; the engine ends all the same.
        let patience = bench.host.engine.patience();
        bench.host.engine.set_patience(Duration::from_millis(300));
        let refusal = bench.host.stop_array("tank").expect_err("exported");
        assert_eq!(refusal.kind, ErrorKind::Busy);
        bench.host.engine.set_patience(patience);
        let begun = MonotonicClock.now();
        bench
            .host
            .shutdown()
            .expect_err("it cannot be marked clean");
        let took = MonotonicClock.now().since(begun);
        assert!(took < Duration::from_secs(15), "{took:?}");
        assert_eq!(guest.borrow_mut().answer(), None, "left to the next engine");
    });
}

#[test]
fn an_unused_array_that_holds_stops_at_once_and_comes_up_dirty() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    inject(&bench, Fault::Pulled);
    let index = bench.host.state().arrays["tank"].index;
    let engine = std::sync::Arc::clone(&bench.host.engine);
    engine.set_patience(Duration::from_millis(200));
    engine.zero(index, 0, 256).expect_err("the drives are away");
    wait_until("the array holds", || state(&bench) == ArrayState::Holding);
    engine.set_patience(Duration::from_secs(30));
    let begun = MonotonicClock.now();
    let refusal = bench.host.stop_array("tank").expect_err("not clean");
    let took = MonotonicClock.now().since(begun);
    assert!(took < Duration::from_secs(5), "{took:?}: {refusal}");
    relieve(&bench);
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("all are back");
    wait_until("it was resynced", || state(&bench) == ArrayState::Optimal);
}

#[test]
fn a_change_that_waits_for_members_says_whom_it_waits_for_and_so_does_the_next() {
    let (bench, _guest) = served(60_000);
    let floor = |bytes| ArrayModify {
        rebuild_floor_bytes_per_second: Some(bytes),
        ..ArrayModify::default()
    };
    let patience = bench.host.engine.patience();
    bench.host.engine.set_patience(Duration::from_millis(300));
    inject(&bench, Fault::Pulled);
    // The hold begins with it.
    let late = bench.host.modify_array("tank", &floor(1 << 20));
    let next = bench.host.modify_array("tank", &floor(2 << 20));
    bench.host.engine.set_patience(patience);
    for refused in [late, next] {
        let refused = refused.expect_err("the members are away");
        assert_eq!(refused.kind, ErrorKind::Busy, "{refused}");
        let text = refused.to_string();
        for words in [
            "array tank waits for member",
            "it is gone",
            "array show tank",
        ] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
        assert!(!text.contains("--force"), "{text}");
    }
    relieve(&bench);
    wait_until("it is over", || state(&bench) == ArrayState::Optimal);
    wait_until("the first is made", || {
        bench.array("tank").rebuild_floor_bytes_per_second == 1 << 20
    });
}

#[test]
fn a_drive_that_alone_is_waited_for_can_be_removed_and_no_other() {
    let (bench, guest) = served(60_000);
    let remove = |drive: &str| bench.host.remove_drive(drive, true);
    let is_refused = |drive: &str| {
        let refused = remove(drive).expect_err("others are waited for");
        assert_eq!(refused.kind, ErrorKind::Degraded, "{refused}");
        let text = refused.to_string();
        for words in [
            "array tank waits for member",
            "let another member go",
            "array show tank",
        ] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
    };
    let begins = |fault: &dyn Fn()| {
        fault();
        guest.borrow_mut().write(8);
        wait_until("the array holds", || state(&bench) == ArrayState::Holding);
    };
    let goes_on = || {
        wait_until("it is written", || guest.borrow_mut().answer() == OK);
        wait_until("it is over", || state(&bench) != ArrayState::Holding);
    };
    begins(&|| inject(&bench, Fault::Pulled));
    DRIVES.into_iter().for_each(is_refused);
    relieve(&bench);
    goes_on();
    wait_until("all are there", || state(&bench) == ArrayState::Optimal);
    begins(&|| bench.inject("two", Fault::NoSpace));
    is_refused("one");
    remove("two").expect("the array can do without it");
    goes_on();
    assert_eq!(state(&bench), ArrayState::Degraded);
    assert_eq!(bench.drive("one").state, DriveState::Member);
}
