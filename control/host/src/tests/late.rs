//! One member hangs: what the others can answer is answered without it, and then it is out. Or it
//! takes many times as long as the others.

use std::cell::RefCell;
use std::time::Duration;

use array::{Patience, Room};
use control::Engine;
use control::request::{ExportCreate, Level};
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
    let bench = Bench::patient(patience);
    for name in exports {
        let volume = volume_of(name, "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        // What one reactor has seen of a member the other one hears.
        let export = ExportCreate {
            cores: vec![u16::from(name == &"second")],
            ..export_of(&bench, name, name)
        };
        bench.host.export_named(&export).expect("served");
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
    super::on_both_kinds(|| {
        let bench = tank(u32::MAX, &["first", "second"]);
        let (mut first, mut second) = (guest(&bench, "first"), guest(&bench, "second"));
        for chunk in 0..8 {
            first.fill(chunk * SECTORS_PER_CHUNK, 9);
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
    });
}

#[test]
fn a_member_that_keeps_a_write_is_told_of_with_what_becomes_of_it() {
    let bench = tank(u32::MAX, &["first"]);
    let mut first = guest(&bench, "first");
    first.fill(0, 1);
    let told = |bench: &Bench| {
        let of_array = bench.array("tank").warnings.concat();
        (of_array, bench.host.status().warnings.concat())
    };
    let hangs = "member 1, drive two, has not answered a request for ";
    assert!(!told(&bench).0.contains(hangs));
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    bench.inject("two", Fault::Delay(Duration::from_secs(8)));
    // A whole stripe.
    first.begin_fill_all(0, 2, 2 * 64 * 1024);
    wait_until("it is told of", || told(&bench).0.contains(hangs));
    let (of_array, of_all) = told(&bench);
    assert!(
        of_array.contains("it is left out when it answers nothing"),
        "{of_array}"
    );
    assert!(
        of_all.contains("array tank: member 1, drive two"),
        "{of_all}"
    );
    bench.host.state().drives["two"].drive.clear_faults();
    wait_until("it has answered", || !told(&bench).0.contains(hangs));
    assert!(!told(&bench).1.contains(hangs));
    assert_eq!(bench.array("tank").state, ArrayState::Optimal);
}

#[test]
fn a_member_that_hangs_once_more_keeps_no_read() {
    super::on_both_kinds(|| {
        let bench = tank(u32::MAX, &["first"]);
        let mut first = guest(&bench, "first");
        for chunk in 0..8 {
            let byte = u8::try_from(chunk).expect("few");
            first.fill(chunk * SECTORS_PER_CHUNK, byte + 1);
        }
        let counters = |of: fn(&array::ShardCounters) -> u64| {
            let index = bench.host.state().arrays["tank"].index;
            let state = bench.host.engine.array_state(index).expect("it runs");
            state.counters.iter().map(of).sum::<u64>()
        };
        bench.inject("two", Fault::Delay(Duration::from_millis(200)));
        let first = RefCell::new(first);
        let read_all = || {
            for chunk in 0..8 {
                let byte = u8::try_from(chunk).expect("few");
                let found = first.borrow_mut().read(chunk * SECTORS_PER_CHUNK);
                assert_eq!(found, [byte + 1; 4096]);
            }
        };
        read_all();
        assert!(counters(|counters| counters.slow_spells) > 0);
        bench.host.state().drives["two"].drive.clear_faults();
        let before = counters(|counters| counters.bounced_reads);
        wait_until(
            "it has answered, and reads of it go through buffers",
            || {
                read_all();
                counters(|counters| counters.bounced_reads) > before
            },
        );
        let before = counters(|counters| counters.given_up_reads);
        // Now what it has taken is answered all the same.
        bench.inject("two", Fault::Delay(FOR_EVER));
        read_all();
        assert!(counters(|counters| counters.given_up_reads) > before);
        bench.host.fail_member("tank", 1).expect("two are left");
        let drive = bench.host.state().drives["two"].index;
        bench.host.engine.detach_drive(drive).expect("it runs");
    });
}

#[test]
fn a_member_that_answers_nothing_is_out_and_what_waits_for_it_is_answered() {
    super::on_both_kinds(|| {
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
    });
}

#[test]
fn drives_that_are_all_slow_are_not_read_around() {
    super::on_both_kinds(|| {
        let bench = tank(u32::MAX, &["first"]);
        let mut first = guest(&bench, "first");
        // What was never written is not read from any of them.
        first.fill(0, 1);
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
    });
}

/// All of a volume: where the chunks of a few lie is not even.
const CHUNKS: u64 = MIB >> 16;

/// Windows that are short, and few requests say enough.
fn hasty() -> Tuning {
    let patience = Patience {
        window: Duration::from_millis(100),
        enough: 3,
        ..Patience::default()
    };
    Tuning {
        room: Room {
            patience,
            ..Room::default()
        },
        ..Tuning::default()
    }
}

/// A guest of array `tank` that has filled its volume.
fn reader(bench: &Bench) -> Guest {
    let volume = volume_of("first", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(bench, "first", "first");
    bench.host.export_named(&export).expect("served");
    let mut first = guest(bench, "first");
    for chunk in 0..CHUNKS {
        let byte = u8::try_from(chunk).expect("few");
        first.fill(chunk * SECTORS_PER_CHUNK, byte + 1);
    }
    first
}

#[test]
fn a_member_that_is_slow_for_long_is_read_around_and_without_a_spare_parity_it_stays() {
    super::on_both_kinds(|| {
        let bench = Bench::tank_of(Level::Raid5, &["one", "two", "three"], hasty());
        let first = RefCell::new(reader(&bench));
        bench.inject("two", Fault::Delay(Duration::from_millis(25)));
        let pace = |bench: &Bench| bench.array("tank").members[1].pace.clone();
        let read_all = || {
            for chunk in 0..CHUNKS {
                let byte = u8::try_from(chunk).expect("few");
                let found = first.borrow_mut().read(chunk * SECTORS_PER_CHUNK);
                assert_eq!(found, [byte + 1; 4096]);
            }
        };
        wait_until("the slow member is known as one", || {
            read_all();
            pace(&bench).is_some_and(|pace| pace.lags)
        });
        let known = pace(&bench).expect("it was there");
        assert!(known.slow_seconds >= 5, "{known:?}");
        assert!(
            known.read_p99_us.is_some_and(|p99| p99 >= 25_000),
            "{known:?}"
        );
        assert!(
            bench.array("tank").members[0]
                .pace
                .as_ref()
                .is_some_and(|pace| !pace.lags)
        );
        // It is tried all the same, so that it stays known how slow it is.
        wait_until("many windows are slow", || {
            read_all();
            pace(&bench).is_some_and(|pace| pace.slow_seconds > 40)
        });
        let index = bench.host.state().arrays["tank"].index;
        let state = bench.host.engine.array_state(index).expect("it runs");
        let sum = |of: fn(&array::ShardCounters) -> u64| state.counters.iter().map(of).sum::<u64>();
        assert!(sum(|counters| counters.trials) > 0);
        assert!(sum(|counters| counters.laggard_detours) > 0);
        assert_eq!(sum(|counters| counters.left_behind), 0);
        assert_eq!(bench.array("tank").state, ArrayState::Optimal);
    });
}

#[test]
fn a_member_that_is_slow_for_longer_is_left_out_when_one_more_may_be_lost() {
    super::on_both_kinds(|| {
        let drives = ["one", "two", "three", "four"];
        let bench = Bench::tank_of(Level::Raid6, &drives, hasty());
        wait_until("parity is right everywhere", || {
            bench.array("tank").jobs.is_empty()
        });
        let first = RefCell::new(reader(&bench));
        bench.inject("two", Fault::Delay(Duration::from_millis(25)));
        wait_until("the slow member is out", || {
            for chunk in 0..CHUNKS {
                let byte = u8::try_from(chunk).expect("few");
                let found = first.borrow_mut().read(chunk * SECTORS_PER_CHUNK);
                assert_eq!(found, [byte + 1; 4096]);
            }
            bench.array("tank").state == ArrayState::Degraded
        });
        let member = &bench.array("tank").members[1];
        assert_eq!(member.state, MemberState::Failed);
        assert_eq!(member.cause.as_deref(), Some("did not answer in time"));
        assert_eq!(member.pace, None);
    });
}

/// All that member "two" of array `tank` holds cannot be read until it is written again.
fn wear_out(bench: &Bench) {
    let data = bench.host.state().arrays["tank"].superblock.layout.data;
    let (offset, length) = (data.offset, data.length);
    bench.inject("two", Fault::Media { offset, length });
}

/// Reads every block of the volume, each once, until `enough`.
fn read_blocks(first: &RefCell<Guest>, enough: impl Fn() -> bool) {
    for block in 0..SECTORS_PER_CHUNK / 8 {
        for chunk in 0..CHUNKS {
            let byte = u8::try_from(chunk).expect("few");
            let expected = if block == 0 { byte + 1 } else { 0 };
            let sector = chunk * SECTORS_PER_CHUNK + block * 8;
            assert_eq!(first.borrow_mut().read(sector), [expected; 4096]);
        }
        if enough() {
            return;
        }
    }
}

fn failed_reads(bench: &Bench) -> u32 {
    let pace = bench.array("tank").members[1].pace.clone();
    pace.map_or(0, |pace| pace.read_errors)
}

#[test]
fn a_member_that_can_often_not_read_is_left_out_when_one_more_may_be_lost() {
    super::on_both_kinds(|| {
        let drives = ["one", "two", "three", "four"];
        let mut tuning = hasty();
        tuning.room.patience.read_errors = 8;
        let bench = Bench::tank_of(Level::Raid6, &drives, tuning);
        wait_until("parity is right everywhere", || {
            bench.array("tank").jobs.is_empty()
        });
        let first = RefCell::new(reader(&bench));
        wear_out(&bench);
        let is_out = || bench.array("tank").state == ArrayState::Degraded;
        read_blocks(&first, is_out);
        wait_until("the drive that wears out is out", is_out);
        let member = &bench.array("tank").members[1];
        assert_eq!(member.state, MemberState::Failed);
        assert_eq!(member.cause.as_deref(), Some("read errors"));
    });
}

#[test]
fn a_member_that_can_often_not_read_stays_while_nothing_more_may_be_lost() {
    super::on_both_kinds(|| {
        let mut tuning = hasty();
        tuning.room.patience.read_errors = 8;
        let bench = Bench::tank_of(Level::Raid5, &["one", "two", "three"], tuning);
        wait_until("parity is right everywhere", || {
            bench.array("tank").jobs.is_empty()
        });
        let first = RefCell::new(reader(&bench));
        wear_out(&bench);
        read_blocks(&first, || false);
        // The home has judged by the same number that it tells.
        wait_until("it is known how often", || failed_reads(&bench) > 8);
        let index = bench.host.state().arrays["tank"].index;
        let state = bench.host.engine.array_state(index).expect("it runs");
        let sum = |of: fn(&array::ShardCounters) -> u64| state.counters.iter().map(of).sum::<u64>();
        assert!(sum(|counters| counters.rewrites) > 8);
        assert_eq!(sum(|counters| counters.left_behind), 0);
        assert_eq!(bench.array("tank").state, ArrayState::Optimal);
    });
}
