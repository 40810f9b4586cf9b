//! Drives that the host takes away and gives back, under the control path that looks for them.

use std::fs;
use std::sync::Arc;

use array::format::Superblock;
use control::body::{ArrayCreateBody, DriveAddBody, ReplaceBody, VolumeCreateBody};
use control::request::{ArrayOptions, DriveKnown, DriveSpec, Level};
use control::view::{ArrayState, DriveState, JobKind, JobView, MemberState};
use control::wanted::Wanted;
use control::{Control, Engine, ErrorKind};
use drive::Fault;
use units::{Clock, MonotonicClock};

use super::guests::Guest;
use super::{Bench, DRIVE_BYTES, MIB, export_of, wait_until};
use crate::records;

/// Sectors of a mebibyte.
const SECTORS: u64 = 2048;
const ALL: [&str; 3] = ["one", "two", "three"];

struct Run {
    bench: Bench,
    control: Control,
}

impl Run {
    /// Level 5 on three files, and a volume that a guest writes to.
    fn served() -> (Run, Guest) {
        Run::served_on(Bench::new())
    }

    fn served_on(bench: Bench) -> (Run, Guest) {
        let wanted = Wanted::open(bench.folder.path()).expect("blank");
        let engine = Arc::clone(&bench.host) as Arc<dyn Engine>;
        let control = Control::new(engine, wanted, bench.folder.path().to_owned());
        control.restore().expect("nothing yet");
        for name in ALL {
            let spec = DriveSpec::File {
                path: bench.path(name),
                size_bytes: Some(DRIVE_BYTES),
                create: true,
            };
            let body = DriveAddBody {
                spec,
                name: Some(name.to_owned()),
                uuid: None,
            };
            control.add_drive(body).expect("a new file");
        }
        let body = ArrayCreateBody {
            name: "tank".to_owned(),
            uuid: None,
            level: Level::Raid5,
            drives: ALL.map(str::to_owned).to_vec(),
            options: ArrayOptions::default(),
            spares: Vec::new(),
            force: false,
        };
        control.create_array(body).expect("free drives");
        let body = VolumeCreateBody {
            name: "v".to_owned(),
            uuid: None,
            array: "tank".to_owned(),
            size_bytes: 60 * MIB,
            stable_buffers: false,
        };
        control.create_volume(body).expect("room");
        let export = export_of(&bench, "e", "v");
        bench.host.export_named(&export).expect("a socket");
        let guest = Guest::connect(&bench.path("e.sock"));
        wait_until("the queue is there", || {
            !bench.host.exports()[0].queues.is_empty()
        });
        (Run { bench, control }, guest)
    }

    /// A new file.
    fn add(&self, name: &str) {
        let spec = DriveSpec::File {
            path: self.bench.path(name),
            size_bytes: Some(DRIVE_BYTES),
            create: true,
        };
        let body = DriveAddBody {
            spec,
            name: Some(name.to_owned()),
            uuid: None,
        };
        self.control.add_drive(body).expect("a new file");
    }

    /// Member 1 is to be this drive.
    fn replace(&self, drive: &str) {
        let replace = ReplaceBody {
            drive: drive.to_owned(),
            force: false,
        };
        let replaced = self.control.replace_member("tank", 1, &replace);
        replaced.expect("it fits");
    }

    fn look(&self) {
        let now = MonotonicClock.now();
        self.control.tend_drives(now).expect("looked");
        self.control.tend_awaited(now).expect("looked");
    }

    /// The host takes a drive away: it is nowhere near, and does not answer.
    fn take_away(&self, name: &str) {
        let away = self.bench.path("away");
        let _ = fs::create_dir(&away);
        fs::rename(self.bench.path(name), away.join(name)).expect("moved");
        self.bench.inject(name, Fault::Pulled);
    }

    /// As `take_away`, of what comes back as another device with the same content: nothing of it
    /// was lost.
    fn unplug(&self, name: &str) {
        let away = self.bench.path("away");
        let _ = fs::create_dir(&away);
        self.bench.inject(name, Fault::Pulled);
        fs::copy(self.bench.path(name), away.join(name)).expect("room");
        fs::remove_file(self.bench.path(name)).expect("it was there");
    }

    fn await_hold(&self) {
        wait_until("the array waits", || {
            self.bench.array("tank").state == ArrayState::Holding
        });
    }

    /// Gives it back, under another name perhaps.
    fn give_back(&self, name: &str, under: &str) {
        let from = self.bench.path("away").join(name);
        fs::rename(from, self.bench.path(under)).expect("moved");
    }

    /// Looks until the drive is there again: what it was asked may keep its lock for a moment.
    fn look_until(&self, name: &str, state: DriveState) {
        wait_until("it is taken back", || {
            self.look();
            self.state(name) == state
        });
    }

    fn state(&self, name: &str) -> DriveState {
        self.control.drive(name).expect("wanted").state
    }

    fn optimal(&self) {
        wait_until("all members are in sync", || {
            self.bench.array("tank").state == ArrayState::Optimal
        });
    }
}

/// The next engine over the same files and the same wanted state.
fn after_a_kill(run: Run) -> Run {
    let folder = Arc::clone(&run.bench.folder);
    drop(run.control);
    drop(run.bench);
    let bench = Bench::on(folder);
    let wanted = Wanted::open(bench.folder.path()).expect("it is there");
    let engine = Arc::clone(&bench.host) as Arc<dyn Engine>;
    let control = Control::new(engine, wanted, bench.folder.path().to_owned());
    control.restore().expect("all drives are here");
    Run { bench, control }
}

#[test]
fn a_copy_that_an_engine_has_not_finished_is_begun_again_by_the_next_one_and_once() {
    let (mut run, guest) = Run::served();
    drop(guest);
    run.add("four");
    wait_until("parity is right", || {
        run.bench.array("tank").jobs.is_empty()
    });
    run.replace("four");
    let tick = |run: &Run| {
        run.control
            .tend_spares(MonotonicClock.now())
            .expect("looked")
    };
    for _ in 0..2 {
        run = after_a_kill(run);
        assert_eq!(run.state("four"), DriveState::Free, "nobody has looked yet");
        let copies = |job: &JobView| job.kind == JobKind::Copy;
        // Not while parity is made anew.
        wait_until("it begins again", || {
            tick(&run);
            run.bench.host.jobs().iter().any(copies)
        });
        let jobs = run.bench.host.jobs();
        assert_eq!(jobs.iter().filter(|job| copies(job)).count(), 1);
    }
    wait_until("it takes its place", || {
        tick(&run);
        run.bench.array("tank").members[1].drive.as_deref() == Some("four")
    });
    tick(&run);
    run.optimal();
    // What was asked for is done: nobody does it again.
    run = after_a_kill(run);
    tick(&run);
    assert_eq!(
        run.bench.array("tank").members[1].drive.as_deref(),
        Some("four")
    );
    assert!(
        run.bench
            .host
            .jobs()
            .iter()
            .all(|job| job.kind != JobKind::Copy)
    );
}

#[test]
fn a_copy_that_waits_for_its_drive_does_not_push_out_who_has_the_place_since() {
    let (mut run, guest) = Run::served();
    drop(guest);
    run.add("four");
    run.add("five");
    wait_until("parity is right", || {
        run.bench.array("tank").jobs.is_empty()
    });
    run.replace("four");
    let away = run.bench.path("away");
    fs::rename(run.bench.path("four"), &away).expect("moved");
    run = after_a_kill(run);
    run.control.fail_member("tank", 1).expect("one may fail");
    run.replace("five");
    run.optimal();
    fs::rename(&away, run.bench.path("four")).expect("moved");
    run = after_a_kill(run);
    assert_eq!(run.state("four"), DriveState::Free);
    wait_until("parity is right", || {
        run.bench.array("tank").jobs.is_empty()
    });
    run.control
        .tend_spares(MonotonicClock.now())
        .expect("looked");
    let jobs = run.bench.host.jobs();
    assert!(jobs.iter().all(|job| job.kind != JobKind::Copy), "{jobs:?}");
    let drive = run.bench.array("tank").members[1].drive.clone();
    assert_eq!(drive.as_deref(), Some("five"));
}

#[test]
fn a_member_whose_file_was_deleted_is_told_and_nobody_else_goes_before_it_is_replaced() {
    let (run, guest) = Run::served();
    let warnings = || run.bench.array("tank").warnings;
    let told = || {
        warnings()
            .iter()
            .filter(|one| one.contains("was deleted"))
            .count()
    };
    fs::rename(run.bench.path("one"), run.bench.path("moved")).expect("moved");
    run.look();
    assert_eq!(told(), 0, "it has a name: {:?}", warnings());
    fs::remove_file(run.bench.path("moved")).expect("it is there");
    let refused = run.bench.host.fail_member("tank", 1).expect_err("needed");
    assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
    assert!(refused.next.contains("--member 0"), "{refused}");
    let refused = run
        .bench
        .host
        .remove_drive("two", true)
        .expect_err("needed");
    assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
    run.look();
    assert_eq!(told(), 1, "{:?}", warnings());
    let member = run.bench.array("tank").members[0].clone();
    let cause = member.cause.unwrap_or_default();
    assert_eq!(member.state, MemberState::Online);
    assert!(cause.contains("was deleted"), "{cause}");
    assert_eq!(
        run.bench.array("tank").state,
        ArrayState::Optimal,
        "it works"
    );
    run.bench
        .host
        .fail_member("tank", 0)
        .expect("this is the one");
    run.look();
    assert_eq!(told(), 0, "{:?}", warnings());
    drop(guest);
}

#[test]
fn a_drive_that_was_away_is_taken_back_by_itself_and_filled_where_it_missed_something() {
    super::on_both_kinds(|| {
        let (run, mut guest) = Run::served();
        guest.fill(50 * SECTORS, 1);
        for round in 0..2 {
            run.take_away("two");
            for mib in [0, 7, 59] {
                guest.fill((mib + round) % 60 * SECTORS, 2);
            }
            assert_eq!(run.bench.array("tank").state, ArrayState::Degraded);
            run.look();
            assert_eq!(run.state("two"), DriveState::Missing, "round {round}");
            guest.fill(8 * SECTORS, 3);
            run.look();
            assert_eq!(run.state("two"), DriveState::Missing, "round {round}");
            let under = if round == 0 { "two" } else { "other" };
            run.give_back("two", under);
            run.look_until("two", DriveState::Member);
            run.optimal();
            let written = run.bench.drive("two").counters.written_bytes_total * 100 / DRIVE_BYTES;
            // Neighbours of what is written often are filled, too; never all.
            assert!(written < 50, "{written} % of it were written");
        }
        // It holds what it should: without another one everything must come from it.
        let host = &run.bench.host;
        host.fail_member("tank", 0).expect("two are left");
        for (mib, byte) in [(0, 2), (1, 2), (7, 2), (8, 3), (9, 0), (50, 1), (59, 2)] {
            assert_eq!(guest.read(mib * SECTORS), vec![byte; 4096], "MiB {mib}");
        }
    });
}

#[test]
fn one_that_somebody_left_out_stays_out_when_it_is_back() {
    super::on_both_kinds(|| {
        let (run, mut guest) = Run::served();
        guest.fill(0, 1);
        run.control.fail_member("tank", 1).expect("two are left");
        run.take_away("two");
        run.look();
        assert_eq!(run.state("two"), DriveState::Missing);
        run.give_back("two", "two");
        run.look_until("two", DriveState::Free);
        let member = &run.bench.array("tank").members[1];
        assert_eq!(member.state, MemberState::Failed);
        assert_eq!(guest.read(0), vec![1; 4096]);
    });
}

#[test]
fn members_that_are_waited_for_are_not_closed() {
    super::on_both_kinds(|| {
        let (run, mut guest) = Run::served();
        guest.fill(0, 1);
        run.take_away("one");
        guest.fill(SECTORS, 2);
        run.take_away("two");
        guest.begin_fill(2 * SECTORS, 3);
        run.await_hold();
        run.look();
        assert_eq!(run.state("one"), DriveState::Missing);
        assert_eq!(run.state("two"), DriveState::Member, "it is waited for");
        run.give_back("two", "two");
        run.bench.host.state().drives["two"].drive.clear_faults();
        guest.wait();
        run.give_back("one", "one");
        run.look_until("one", DriveState::Member);
        run.optimal();
        for (mib, byte) in [(0, 1), (1, 2), (2, 3)] {
            assert_eq!(guest.read(mib * SECTORS), vec![byte; 4096], "MiB {mib}");
        }
    });
}

/// Files of memory, which lose nothing that they have acknowledged.
fn without_caches() -> Bench {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    Bench::on(Arc::new(folder))
}

#[test]
fn members_that_are_waited_for_may_come_back_as_other_devices() {
    super::on_both_kinds(|| {
        let (run, mut guest) = Run::served_on(without_caches());
        (0..20).for_each(|mib| guest.fill(mib * SECTORS, 1));
        for round in 2..4 {
            ALL.iter().for_each(|name| run.unplug(name));
            guest.begin_fill(2 * SECTORS, round);
            run.await_hold();
            run.look();
            assert_eq!(run.bench.array("tank").state, ArrayState::Holding);
            for name in ALL {
                run.give_back(name, &format!("{name}.{round}"));
            }
            run.look();
            guest.wait();
            run.optimal();
            guest.fill(3 * SECTORS, round);
            for name in ALL {
                let DriveSpec::File { path, .. } = run.bench.drive(name).spec else {
                    panic!("it is a file");
                };
                assert_eq!(path, run.bench.path(&format!("{name}.{round}")));
                // Where a test expects it.
                fs::rename(&path, run.bench.path(name)).expect("moved");
            }
            for mib in 0..20 {
                let byte = if [2, 3].contains(&mib) { round } else { 1 };
                assert_eq!(guest.read(mib * SECTORS), vec![byte; 4096], "MiB {mib}");
            }
        }
        // Without another one everything must come from these.
        run.bench.host.fail_member("tank", 0).expect("two are left");
        assert_eq!(guest.read(2 * SECTORS), vec![3; 4096]);
        assert_eq!(guest.read(5 * SECTORS), vec![1; 4096]);
    });
}

#[test]
fn what_may_have_lost_something_or_was_used_elsewhere_is_not_gone_on_with() {
    super::on_both_kinds(|| {
        type Meanwhile<'a> = &'a dyn Fn(&Run, &[Superblock; 2]);
        let away = |run: &Run, name: &str| run.bench.path("away").join(name);
        // Somebody had them for a while, and made a record of his own.
        let used: Meanwhile<'_> = &|run, own| {
            let index = run.bench.host.state().arrays["tank"].index;
            let [durable, _] = run.bench.host.engine.records(index).expect("it runs");
            let theirs = durable.next(0xF00D);
            for (name, own) in ["one", "two"].iter().zip(own) {
                let drive = format!("file:{}", away(run, name).display());
                let drive = drive::Drive::open(&drive.parse().expect("a spec")).expect("free");
                records::write_config(&drive, own, own.member, &theirs).expect("room");
            }
        };
        let nothing: Meanwhile<'_> = &|_, _| {};
        let cases = [
            ("it was used", "went on by itself", without_caches(), used),
            (
                "it may have lost something",
                "volatile cache",
                Bench::new(),
                nothing,
            ),
        ];
        for (what, why, bench, meanwhile) in cases {
            let (run, mut guest) = Run::served_on(bench);
            guest.fill(0, 1);
            let own = ["one", "two"].map(|name| run.bench.superblock(name));
            ["one", "two"].iter().for_each(|name| run.unplug(name));
            guest.begin_fill(0, 2);
            run.await_hold();
            meanwhile(&run, &own);
            for name in ["one", "two"] {
                run.give_back(name, name);
            }
            run.look();
            let there = run.bench.drive("one");
            let known = DriveKnown {
                name: there.name,
                uuid: there.uuid,
                spec: there.spec,
                identity: there.identity,
                member_of: None,
            };
            assert!(run.bench.host.is_back(&known), "{what}");
            let refused = run.bench.host.reopen_awaited(&known);
            let refused = refused.expect_err(what);
            assert!(refused.to_string().contains(why), "{refused}");
            assert_eq!(run.bench.array("tank").state, ArrayState::Holding, "{what}");
            assert_eq!(guest.answer(), None, "{what}");
            for drive in run.bench.host.state().drives.values() {
                drive.drive.clear_faults();
            }
            guest.wait();
        }
    });
}

#[test]
fn of_two_that_claim_to_be_who_is_waited_for_neither_is_taken() {
    super::on_both_kinds(|| {
        let (run, mut guest) = Run::served_on(without_caches());
        guest.fill(0, 1);
        ["one", "two"].iter().for_each(|name| run.unplug(name));
        guest.begin_fill(0, 2);
        run.await_hold();
        let away = run.bench.path("away");
        fs::copy(away.join("one"), run.bench.path("copy")).expect("room");
        for name in ["one", "two"] {
            run.give_back(name, name);
        }
        run.look();
        wait_until("the other one is taken", || {
            let drives = run.bench.host.state();
            !drives.drives["two"].drive.is_taken_away()
        });
        assert!(run.bench.host.state().drives["one"].drive.is_taken_away());
        assert_eq!(guest.answer(), None, "nobody knows which one is right");
        fs::remove_file(run.bench.path("copy")).expect("it was there");
        wait_until("it is taken", || {
            run.look();
            !run.bench.host.state().drives["one"].drive.is_taken_away()
        });
        guest.wait();
    });
}

#[test]
fn a_copy_whose_engine_ended_just_before_it_was_recorded_is_made_again() {
    let (mut run, guest) = Run::served();
    drop(guest);
    run.add("four");
    run.replace("four");
    let copies = |run: &Run| run.control.array("tank").expect("there").jobs.len();
    assert!(copies(&run) > 0);
    run = after_a_kill(run);
    // As it is when it takes the place, which its array has not recorded.
    let own = Superblock {
        member_uuid: uuid::Uuid::new_v4(),
        ..run.bench.superblock("two")
    };
    let four = Arc::clone(&run.bench.host.state().drives["four"].drive);
    records::write_superblocks(&four, &own).expect("a file");
    drop(four);
    run = after_a_kill(run);
    assert_eq!(run.state("four"), DriveState::Failed, "it fills no place");
    wait_until("parity is right", || {
        run.bench.array("tank").jobs.is_empty()
    });
    wait_until("it takes its place", || {
        run.control
            .tend_spares(MonotonicClock.now())
            .expect("looked");
        run.bench.array("tank").members[1].drive.as_deref() == Some("four")
    });
    run.optimal();
}
