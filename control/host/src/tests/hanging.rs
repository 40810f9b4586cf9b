//! Drives that do not answer: whoever asks is told in time, and nothing is lost.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use array::{Command, Owners, Room};
use control::request::{ExportCreate, Level, MemberReplace, QueueMove};
use control::view::{ArrayState, DriveState, MemberState, Sharing};
use control::{Answer, Engine, EngineError, ErrorKind};
use drive::Fault;
use engine::ZeroError;
use units::{ReactorIndex, Role, StripeIndex};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::{Host, Tuning};

/// How long the drives hang.
pub(super) const HANG: Duration = Duration::from_millis(1500);
/// How long the engine waits for them.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

pub(super) fn hang(bench: &Bench) {
    for name in ["one", "two", "three"] {
        bench.inject(name, Fault::Delay(HANG));
    }
}

pub(super) fn relieve(bench: &Bench) {
    for drive in bench.host.state().drives.values() {
        drive.drive.clear_faults();
    }
}

/// Runs what cannot be done while the drives hang: it says so before they answer.
pub(super) fn late<T: std::fmt::Debug>(
    bench: &Bench,
    run: impl FnOnce(&Host) -> Answer<T>,
) -> EngineError {
    let patience = bench.host.engine.patience();
    bench.host.engine.set_patience(PATIENCE);
    let refusal = run(&bench.host).expect_err("the drives hang");
    bench.host.engine.set_patience(patience);
    assert_eq!(refusal.kind, ErrorKind::Busy, "{refusal}");
    assert!(!refusal.next.is_empty(), "{refusal}");
    refusal
}

#[test]
fn zeroing_waits_while_the_array_is_full_of_requests() {
    super::on_both_kinds(|| {
        let bench = Bench::tank_tuned(Tuning {
            room: Room {
                requests: 1,
                ..Room::default()
            },
            ..Tuning::default()
        });
        // Zeroes for what is unwritten would need no room.
        let starts = (0..8).map(|position| position * 256);
        let volume = volume_of("v", "tank", 16 * MIB);
        bench.host.create_volume(&volume).expect("room");
        let export = export_of(&bench, "e", "v");
        bench.host.export_named(&export).expect("a socket");
        let mut guest = Guest::connect(&bench.path("e.sock"));
        let sectors = bench.array("tank").block_bytes / 512;
        for start in starts.clone() {
            guest.fill(start * sectors, 1);
        }
        for name in ["one", "two", "three"] {
            bench.inject(name, Fault::Delay(Duration::from_millis(10)));
        }
        let index = bench.host.state().arrays["tank"].index;
        let zero = |start: u64| {
            let engine = Arc::clone(&bench.host.engine);
            let run = move || engine.zero(index, start, 256);
            std::thread::Builder::new().spawn(run).expect("a thread")
        };
        let threads: Vec<_> = starts.clone().map(zero).collect();
        for thread in threads {
            thread.join().expect("no panic").expect("zeroed");
        }
        for start in starts {
            assert_eq!(guest.read(start * sectors), [0; 4096]);
        }
    });
}

/// Turns of all reactors while drives hang.
fn turns_meanwhile(bench: &Bench) -> u64 {
    let turns = || {
        let reports = bench.host.engine.reports(&[]);
        reports.iter().map(|report| report.turns).sum::<u64>()
    };
    let before = turns();
    std::thread::park_timeout(HANG / 3);
    turns() - before
}

#[test]
fn a_reactor_sleeps_while_its_rings_wait_for_room_and_misses_none() {
    // Room for one request; for 64 that go piece by piece. Each guest has five.
    for (requests, each, sector) in [(1, 1, 0), (4096, 7, 1)] {
        let bench = Bench::tank_tuned(Tuning {
            room: Room {
                requests,
                ..Room::default()
            },
            ..Tuning::default()
        });
        wait_until("the first resync", || bench.host.jobs().is_empty());
        let volume = volume_of("v", "tank", 16 * MIB);
        bench.host.create_volume(&volume).expect("room");
        let mut guests = Vec::new();
        for name in ["e", "f"] {
            let create = ExportCreate {
                cores: vec![0],
                sharing: Sharing::Shared,
                ..export_of(&bench, name, "v")
            };
            let view = bench.host.export_named(&create).expect("a volume");
            guests.extend((0..each).map(|_| Guest::connect(&view.socket)));
        }
        guests[0].fill(0, 1);
        guests[0].fill(8, 1);
        hang(&bench);
        for guest in &mut guests {
            (0..5).for_each(|_| guest.ask_read(sector));
        }
        // By now the array is full.
        let mut last = Guest::connect(&bench.path("f.sock"));
        last.begin_flush();
        let turns = turns_meanwhile(&bench);
        assert!(turns < 2000, "{turns} turns with nothing to do");
        relieve(&bench);
        last.wait();
        for guest in &mut guests {
            (0..5).for_each(|_| guest.wait());
            assert!(guest.answered_with() == [1; 4096]);
        }
    }
}

#[test]
fn an_array_that_cannot_stop_yet_says_so_and_stops_later() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        bench
            .host
            .create_volume(&volume_of("v", "tank", MIB))
            .expect("room");
        hang(&bench);
        late(&bench, |host| host.stop_array("tank"));
        assert_ne!(bench.array("tank").state, ArrayState::Stopped);
        late(&bench, |host| host.destroy_array("tank", true));
        assert_eq!(
            bench.drive("one").signature.as_deref(),
            Some("garboard member")
        );
        relieve(&bench);
        wait_until("it stops", || bench.host.stop_array("tank").is_ok());
        assert_eq!(bench.array("tank").state, ArrayState::Stopped);
        let started = bench
            .host
            .start_array("tank", false)
            .expect("nothing is lost");
        assert_eq!(started.state, ArrayState::Optimal);
        assert_eq!(bench.host.volumes().len(), 1);
    });
}

#[test]
fn an_array_that_cannot_start_yet_serves_later() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        bench
            .host
            .create_volume(&volume_of("v", "tank", MIB))
            .expect("room");
        bench.host.stop_array("tank").expect("unused");
        hang(&bench);
        late(&bench, |host| host.start_array("tank", false));
        relieve(&bench);
        wait_until("it serves", || {
            bench
                .host
                .create_volume(&volume_of("w", "tank", MIB))
                .is_ok()
        });
        bench.host.stop_array("tank").expect("unused");
        assert_eq!(bench.host.volumes().len(), 2);
    });
}

#[test]
fn nothing_is_written_before_a_late_start_has_said_who_is_here() {
    super::on_both_kinds(|| {
        let drives = ["one", "two", "three", "four"];
        let bench = Bench::new();
        drives.into_iter().for_each(|name| bench.file(name));
        bench.create("tank", Level::Raid10, &drives);
        let volume = volume_of("v", "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        let export = export_of(&bench, "e", "v");
        bench.host.export_named(&export).expect("a socket");
        Guest::connect(&bench.path("e.sock")).fill(0, 1);
        let geometry = bench.superblock("one").geometry;
        let folder = Arc::clone(&bench.folder);
        drop(bench);
        // Of the two that hold the block one is not here, and one of the others does not answer.
        let holds = |member: usize| {
            let place = |role| geometry.member(StripeIndex(0), Role(role)).at() == member;
            [0, 1].into_iter().any(place)
        };
        let missing = (0..4).find(|&member| holds(member)).expect("two");
        let stuck = (0..4).find(|&member| !holds(member)).expect("two");
        let next = Bench::on(folder);
        for (member, name) in drives.into_iter().enumerate() {
            if member != missing {
                next.open_file(name).expect("it is there");
            }
        }
        next.host.assemble();
        next.inject(drives[stuck], Fault::Delay(HANG));
        late(&next, |host| host.start_array("tank", false));
        let export = export_of(&next, "e", "v");
        next.host.export_named(&export).expect("a socket");
        let guest = RefCell::new(Guest::connect(&next.path("e.sock")));
        guest.borrow_mut().begin_fill(0, 2);
        std::thread::park_timeout(HANG / 4);
        assert_eq!(
            guest.borrow_mut().answer(),
            None,
            "no record tells who is out"
        );
        relieve(&next);
        wait_until("a write", || guest.borrow_mut().answer() == Some(0));
    });
}

#[test]
fn a_drive_that_becomes_a_member_late_is_nobody_elses_meanwhile() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        for name in ["spare", "other"] {
            bench.memory(name);
        }
        bench.host.fail_member("tank", 1).expect("two are left");
        hang(&bench);
        let replace = MemberReplace {
            member: 1,
            drive: "spare".to_owned(),
            force: false,
        };
        late(&bench, |host| host.replace_member("tank", &replace));
        assert_eq!(bench.drive("spare").state, DriveState::Member);
        let taken = super::array_of("pond", Level::Raid1, &["spare", "other"]);
        let refusal = bench.host.create_array(&taken).expect_err("taken");
        assert_eq!(refusal.kind, ErrorKind::Busy);
        relieve(&bench);
        wait_until("the rebuild is through", || {
            bench.array("tank").members[1].state == MemberState::Online
        });
        assert_eq!(
            bench.array("tank").members[1].drive.as_deref(),
            Some("spare")
        );
    });
}

#[test]
fn a_copy_that_is_put_in_its_place_late_is_not_thrown_away() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        bench.memory("spare");
        wait_until("parity is right everywhere", || {
            bench.array("tank").jobs.is_empty()
        });
        let replace = MemberReplace {
            member: 1,
            drive: "spare".to_owned(),
            force: false,
        };
        let array = bench.host.replace_member("tank", &replace).expect("free");
        let job = array.jobs[0];
        let view = || {
            let jobs = bench.host.jobs();
            jobs.into_iter().find(|view| view.id == job).expect("kept")
        };
        wait_until("it is copied", || {
            // All bytes may be there while it still looks for what was written meanwhile.
            let state = bench.host.state();
            let copy = state.copies.get(&job);
            copy.is_some_and(crate::arrays::copy::CopyEntry::has_ended)
        });
        hang(&bench);
        bench.host.engine.set_patience(PATIENCE);
        wait_until("it waits for the others", || {
            bench.host.tend_copies();
            view().cause.is_some_and(|cause| cause.starts_with("made"))
        });
        // And once more.
        bench.host.tend_copies();
        relieve(&bench);
        bench.host.engine.set_patience(Duration::from_secs(30));
        wait_until("it takes its place", || {
            bench.host.tend_copies();
            bench.array("tank").members[1].drive.as_deref() == Some("spare")
        });
        assert_eq!(view().state, control::view::JobState::Done);
        wait_until("what it lacks is filled", || {
            bench.array("tank").state == ArrayState::Optimal
        });
        assert_eq!(bench.drive("two").state, DriveState::Failed);
        assert_eq!(bench.drive("spare").state, DriveState::Member);
    });
}

#[test]
fn a_volume_that_is_zeroed_late_keeps_its_extents_until_the_next_start() {
    let bench = Bench::tank();
    let all = bench.array("tank").free_bytes;
    bench
        .host
        .create_volume(&volume_of("old", "tank", all))
        .expect("room");
    bench.host.delete_named("old").expect("not exported");
    hang(&bench);
    let index = bench.host.state().arrays["tank"].index;
    bench.host.engine.set_patience(PATIENCE);
    let zeroed = bench.host.engine.zero(index, 0, 256);
    bench.host.engine.set_patience(Duration::from_secs(30));
    let zeroed = zeroed.expect_err("the drives hang");
    assert!(matches!(zeroed, ZeroError::Late(_)), "{zeroed:?}");
    late(&bench, |host| {
        host.create_volume(&volume_of("v", "tank", 20 * MIB))
    });
    relieve(&bench);
    wait_until("the array is at rest", || {
        bench.host.stop_array("tank").is_ok()
    });
    bench.host.start_array("tank", false).expect("all are here");
    assert_eq!(
        bench.array("tank").free_bytes,
        all,
        "given back by the start"
    );
    assert_eq!(bench.array("tank").volumes, 0);
}

#[test]
fn no_reactor_lets_go_of_an_array_while_another_has_requests_for_it() {
    let room = Room {
        works: 1,
        ..Room::default()
    };
    let bench = Bench::tank_tuned(Tuning {
        room,
        ..Tuning::default()
    });
    let index = bench.host.state().arrays["tank"].index;
    // Most of what is zeroed is the home's own, a part after the other.
    let owners = Owners::new(|bucket| ReactorIndex(u16::from(bucket % 8 == 7)));
    let engine = &bench.host.engine;
    engine
        .change(index, Command::Distribute(owners))
        .expect("nothing is under way");
    for name in ["one", "two", "three"] {
        bench.inject(name, Fault::Delay(Duration::from_millis(20)));
    }
    engine.set_patience(PATIENCE);
    let zeroed = engine.zero(index, 0, 40 * MIB / 512);
    engine.set_patience(Duration::from_secs(30));
    let zeroed = zeroed.expect_err("most is still to be asked for");
    assert!(matches!(zeroed, ZeroError::Late(_)), "{zeroed:?}");
    bench
        .host
        .stop_array("tank")
        .expect("all that was asked for is done");
}

#[test]
fn a_queue_that_cannot_leave_stays_and_moves_later() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        bench
            .host
            .create_volume(&volume_of("v", "tank", MIB))
            .expect("room");
        bench
            .host
            .export_named(&export_of(&bench, "e", "v"))
            .expect("a socket");
        let mut guest = Guest::connect(&bench.path("e.sock"));
        wait_until("the queue is there", || {
            !bench.host.exports()[0].queues.is_empty()
        });
        let to = QueueMove { queue: 0, core: 1 };
        hang(&bench);
        guest.write(0);
        wait_until("the write is on its way", || {
            let index = bench.host.state().arrays["tank"].index;
            bench
                .host
                .engine
                .array_state(index)
                .expect("it runs")
                .pending
                > 0
        });
        late(&bench, |host| host.move_queue("e", to));
        let view = bench.host.exports().remove(0);
        assert_eq!(view.queues[0].core, Some(0), "it stays where it is");
        // Nobody is held up by it.
        bench.host.exports()[0].queues.first().expect("still there");
        relieve(&bench);
        let guest = RefCell::new(guest);
        wait_until("the write is answered", || {
            guest.borrow_mut().answer() == Some(0)
        });
        guest.borrow_mut().write(16);
        wait_until("it serves on", || guest.borrow_mut().answer() == Some(0));
        let view = bench.host.move_queue("e", to).expect("nothing is pending");
        assert_eq!(view.queues[0].core, Some(1));
        guest.borrow_mut().write(8);
        wait_until("it serves there", || guest.borrow_mut().answer() == Some(0));
    });
}

/// Who ended waited for its last request under a lock that all others of its export need.
#[test]
fn a_queue_that_cannot_end_yet_holds_up_no_other_of_its_export() {
    let bench = Bench::tank();
    let volume = volume_of("v", "tank", MIB);
    bench.host.create_volume(&volume).expect("room");
    let create = ExportCreate {
        sharing: Sharing::Shared,
        ..export_of(&bench, "e", "v")
    };
    bench.host.export_named(&create).expect("a socket");
    let socket = bench.path("e.sock");
    let (mut ends, mut other) = (Guest::connect(&socket), Guest::connect(&socket));
    let queues = || bench.host.exports().remove(0).queues.len();
    wait_until("the queues are there", || queues() == 2);
    let to = |core| QueueMove { queue: 0, core };
    bench.host.move_queue("e", to(0)).expect("both are idle");

    for name in ["one", "two", "three"] {
        // Too short for a member to be late.
        bench.inject(name, Fault::Delay(Duration::from_millis(2500)));
    }
    let index = bench.host.state().arrays["tank"].index;
    let pending = || {
        let state = bench.host.engine.array_state(index).expect("it runs");
        state.pending
    };
    ends.write(0);
    wait_until("the write is on its way", || pending() > 0);
    drop(ends);
    let patience = bench.host.engine.patience();
    bench.host.engine.set_patience(PATIENCE);
    // Until the engine has seen that it has hung up, it may be moved as the other.
    let moved = (0..10).any(|_| bench.host.move_queue("e", to(1)).is_ok());
    let hung = pending() > 0;
    bench.host.engine.set_patience(patience);
    relieve(&bench);
    assert!(moved && hung, "the drives still hung: {hung}");
    wait_until("it has ended", || queues() == 1);
    other.fill(8, 2);
}

#[test]
fn an_export_that_cannot_end_yet_holds_its_volume_and_nobody_else() {
    super::on_both_kinds(|| {
        let bench = Bench::tank();
        for name in ["v", "w"] {
            bench
                .host
                .create_volume(&volume_of(name, "tank", MIB))
                .expect("room");
        }
        bench
            .host
            .export_named(&export_of(&bench, "e", "v"))
            .expect("a socket");
        let mut guest = Guest::connect(&bench.path("e.sock"));
        wait_until("the queue is there", || {
            !bench.host.exports()[0].queues.is_empty()
        });
        hang(&bench);
        guest.write(0);
        wait_until("the write is on its way", || {
            let index = bench.host.state().arrays["tank"].index;
            bench
                .host
                .engine
                .array_state(index)
                .expect("it runs")
                .pending
                > 0
        });
        late(&bench, |host| host.remove_export("e"));
        late(&bench, |host| host.remove_export("e"));
        late(&bench, |host| host.delete_named("v"));
        late(&bench, |host| host.stop_array("tank"));
        let mut again = export_of(&bench, "f", "v");
        late(&bench, |host| host.export_named(&again));
        again.name = "e".to_owned();
        late(&bench, |host| host.export_named(&again));
        bench
            .host
            .export_named(&export_of(&bench, "g", "w"))
            .expect("another volume");
        relieve(&bench);
        wait_until("it has ended", || bench.host.state().ending.is_empty());
        bench.host.delete_named("v").expect("nobody has it");
    });
}

#[test]
fn a_scrub_that_runs_is_shown_also_when_somebody_is_late_to_start_it() {
    let bench = Bench::tank();
    wait_until("parity is right", || bench.array("tank").jobs.is_empty());
    for name in ["one", "two", "three"] {
        bench.inject(name, Fault::Delay(Duration::from_millis(20)));
    }
    let go_on = control::scrub::ScrubBody {
        from_beginning: false,
    };
    let begun = bench.host.start_scrub("tank", go_on).expect("it begins");
    hang(&bench);
    late(&bench, |host| {
        let start_over = control::scrub::ScrubBody {
            from_beginning: true,
        };
        host.start_scrub("tank", start_over)
    });
    assert_eq!(bench.array("tank").jobs, [begun.id]);
    relieve(&bench);
}
