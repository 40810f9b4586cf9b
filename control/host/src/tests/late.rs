//! One member hangs: what the others can answer is answered without it, and then it is out.

use std::cell::RefCell;
use std::time::Duration;

use array::{Patience, Room};
use control::Engine;
use control::view::{ArrayState, MemberState};
use drive::Fault;

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::Tuning;

/// Longer than anything here waits.
const FOR_EVER: Duration = Duration::from_secs(60);
const SECTORS_PER_CHUNK: u64 = 128;

/// Level 5 on three drives, one volume, and so many guests' sockets.
fn tank(late: u32, exports: &[&str]) -> Bench {
    let patience = Patience {
        late,
        ..Patience::default()
    };
    let bench = Bench::tank_tuned(Tuning {
        room: Room {
            patience,
            ..Room::default()
        },
        ..Tuning::default()
    });
    for name in exports {
        let volume = volume_of(name, "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        let export = export_of(&bench, name, name);
        bench.host.create_export(&export).expect("served");
    }
    bench
}

fn guest(bench: &Bench, name: &str) -> Guest {
    Guest::connect(&bench.path(&format!("{name}.sock")))
}

fn slow_spells(bench: &Bench) -> u64 {
    let index = bench.host.state().arrays["tank"].index;
    let state = bench.host.engine.array_state(index).expect("it runs");
    let of = |counters: &array::ShardCounters| counters.slow_spells;
    state.counters.iter().map(of).sum()
}

#[test]
fn a_member_that_does_not_answer_is_read_around() {
    let bench = tank(u32::MAX, &["first", "second"]);
    let (mut first, mut second) = (guest(&bench, "first"), guest(&bench, "second"));
    for chunk in 0..8 {
        let byte = u8::try_from(chunk).expect("few");
        second.fill(chunk * SECTORS_PER_CHUNK, byte + 1);
    }
    bench.inject("two", Fault::Delay(FOR_EVER));
    // Until a read meets the member, nobody knows.
    for chunk in 0..8 {
        first.ask_read(chunk * SECTORS_PER_CHUNK);
        let guest = RefCell::new(&mut first);
        wait_until("an answer, or the member's being slow", || {
            guest.borrow_mut().answer().is_some() || slow_spells(&bench) > 0
        });
        if slow_spells(&bench) > 0 {
            break;
        }
    }
    assert_eq!(slow_spells(&bench), 1);
    for chunk in 0..8 {
        let byte = u8::try_from(chunk).expect("few");
        assert_eq!(second.read(chunk * SECTORS_PER_CHUNK), [byte + 1; 4096]);
    }
    assert_eq!(bench.array("tank").state, ArrayState::Optimal);
    // Somebody who knows more need not wait either.
    bench.host.fail_member("tank", 1).expect("two are left");
    let drive = bench.host.state().drives["two"].index;
    bench.host.engine.detach_drive(drive).expect("it runs");
}

#[test]
fn a_member_that_answers_nothing_is_out_and_what_waits_for_it_is_answered() {
    let bench = tank(20, &["first"]);
    let mut first = guest(&bench, "first");
    for chunk in 0..8 {
        first.fill(chunk * SECTORS_PER_CHUNK, 1);
    }
    bench.inject("two", Fault::Delay(FOR_EVER));
    for chunk in 0..8 {
        let byte = u8::try_from(chunk).expect("few");
        first.fill(chunk * SECTORS_PER_CHUNK, byte + 1);
    }
    let array = bench.array("tank");
    assert_eq!(array.state, ArrayState::Degraded);
    assert_eq!(array.members[1].state, MemberState::Failed);
    assert_eq!(
        array.members[1].cause.as_deref(),
        Some("did not answer in time")
    );
    for chunk in 0..8 {
        let byte = u8::try_from(chunk).expect("few");
        assert_eq!(first.read(chunk * SECTORS_PER_CHUNK), [byte + 1; 4096]);
    }
    // The last that is left is waited for.
    bench.inject("three", Fault::Delay(Duration::from_millis(500)));
    first.fill(0, 7);
    assert_eq!(first.read(0), [7; 4096]);
    assert_eq!(bench.array("tank").state, ArrayState::Degraded);
}

#[test]
fn drives_that_are_all_slow_are_not_read_around() {
    let bench = tank(u32::MAX, &["first"]);
    let mut first = guest(&bench, "first");
    for name in ["one", "two", "three"] {
        bench.inject(name, Fault::Delay(Duration::from_millis(80)));
    }
    // One at a time: the others have nothing to do meanwhile.
    let mut read_some = || {
        for chunk in 0..9 {
            first.read(chunk * SECTORS_PER_CHUNK);
        }
        slow_spells(&bench)
    };
    // Nobody knows at first what is usual for them.
    let before = read_some();
    assert!(before > 0);
    assert_eq!(read_some(), before);
    for name in ["one", "two", "three"] {
        bench.host.state().drives[name].drive.clear_faults();
    }
}
