//! An engine that ends while drives hang: whatever can be marked clean is, and soon.

use std::sync::Arc;
use std::time::Duration;

use control::Engine;
use control::request::Level;
use control::view::ArrayState;
use drive::{Drive, Fault};
use units::{Clock, DriveIndex, MonotonicClock};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::shutdown::HOLD_PATIENCE;

/// More than anybody waits.
const HANG: Duration = Duration::from_secs(120);
const TANK: [&str; 3] = ["one", "two", "three"];
const POND: [&str; 2] = ["four", "five"];

/// Two arrays with nothing to resync: `tank`, and beside it `pond`.
fn bench() -> Bench {
    let bench = Bench::tank();
    POND.iter().for_each(|name| bench.memory(name));
    bench.create("pond", Level::Raid1, &POND);
    wait_until("parity is right everywhere", || {
        let arrays = bench.host.arrays();
        arrays.iter().all(|array| array.jobs.is_empty())
    });
    bench
}

/// Guests of the array, one for each export.
fn guests(bench: &Bench, array: &str, exports: &[&str]) -> Vec<Guest> {
    let guest = |name: &&str| {
        let volume = volume_of(name, array, MIB);
        bench.host.create_volume(&volume).expect("room");
        let export = export_of(bench, name, name);
        bench.host.export_named(&export).expect("a socket");
        Guest::connect(&bench.path(&format!("{name}.sock")))
    };
    exports.iter().map(guest).collect()
}

/// Each of them has a request under way that its array does not answer.
fn ask(bench: &Bench, array: &str, guests: &mut [Guest]) {
    guests.iter_mut().for_each(|guest| guest.write(0));
    let index = bench.host.state().arrays[array].index;
    wait_until("all have asked", || {
        let state = bench.host.engine.array_state(index).expect("it runs");
        state.pending >= guests.len()
    });
}

fn drives(bench: &Bench, names: &[&str]) -> Vec<Arc<Drive>> {
    let state = bench.host.state();
    let drive = |name: &&str| Arc::clone(&state.drives[*name].drive);
    names.iter().map(drive).collect()
}

fn inject(drives: &[Arc<Drive>], fault: Fault) {
    drives.iter().for_each(|drive| drive.inject(fault));
}

fn is_clean(drive: &Drive) -> bool {
    let found = crate::records::read(DriveIndex(0), drive).expect("memory");
    found.config().expect("a record").clean
}

#[test]
fn exports_that_hang_are_waited_for_together() {
    let bench = bench();
    let exports = ["e", "f", "g", "h"];
    let mut guests = guests(&bench, "tank", &exports);
    let (tank, pond) = (drives(&bench, &TANK), drives(&bench, &POND));
    inject(&tank, Fault::Delay(HANG));
    ask(&bench, "tank", &mut guests);
    let patience = Duration::from_secs(3);
    bench.host.engine.set_patience(patience);
    let begun = MonotonicClock.now();
    bench.host.shutdown().expect_err("nothing is answered");
    let took = MonotonicClock.now().since(begun);
    tank.iter().for_each(|drive| drive.clear_faults());
    assert!(took < 3 * patience, "{took:?}");
    assert!(is_clean(&pond[0]));
    assert!(!is_clean(&tank[0]));
}

#[test]
fn an_array_that_waits_for_members_does_not_hurry_the_others() {
    let bench = bench();
    let mut slow = guests(&bench, "pond", &["e"]);
    let mut waiting = guests(&bench, "tank", &["f"]);
    let (tank, pond) = (drives(&bench, &TANK), drives(&bench, &POND));
    inject(&tank, Fault::Pulled);
    ask(&bench, "tank", &mut waiting);
    wait_until("the array holds", || {
        bench.array("tank").state == ArrayState::Holding
    });
    slow.iter_mut().for_each(|guest| guest.fill(0, 1));
    // Longer than what waits is given, and too short for a member to be late.
    inject(&pond, Fault::Delay(HOLD_PATIENCE + HOLD_PATIENCE / 4));
    ask(&bench, "pond", &mut slow);
    let index = bench.host.state().arrays["pond"].index;
    wait_until("its drives have them", || {
        let state = bench.host.engine.array_state(index).expect("it runs");
        let mut oldest = state.waits.oldest.iter();
        oldest.all(|age| *age > Duration::from_millis(20))
    });
    // What comes after that is answered at once.
    pond.iter().for_each(|drive| drive.clear_faults());
    bench.host.shutdown().expect_err("one waits");
    assert!(is_clean(&pond[0]), "it had the time that it takes");
}

/// Arrays were stopped one after the other: those behind one that hung were still unclean when
/// whoever ended the engine had enough.
#[test]
fn an_array_that_hangs_keeps_no_other_from_being_clean() {
    let bench = bench();
    let (tank, pond) = (drives(&bench, &TANK), drives(&bench, &POND));
    inject(&pond, Fault::Delay(HANG));
    let patience = Duration::from_secs(8);
    bench.host.engine.set_patience(patience);
    let begun = MonotonicClock.now();
    let took = || MonotonicClock.now().since(begun);
    let clean_after = std::thread::scope(|scope| {
        scope.spawn(|| bench.host.shutdown().expect_err("one hangs"));
        while !is_clean(&tank[0]) && took() < patience {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        took()
    });
    pond.iter().for_each(|drive| drive.clear_faults());
    assert!(clean_after < patience, "{clean_after:?}");
    assert!(!is_clean(&pond[0]));
}
