//! Drives that the host takes away and gives back, under the control path that looks for them.

use std::fs;
use std::sync::Arc;

use control::body::{ArrayCreateBody, DriveAddBody, VolumeCreateBody};
use control::request::{ArrayOptions, DriveSpec, Level};
use control::view::{ArrayState, DriveState, MemberState};
use control::wanted::Wanted;
use control::{Control, Engine};
use drive::Fault;
use units::{Clock, MonotonicClock};

use super::guests::Guest;
use super::{Bench, DRIVE_BYTES, MIB, export_of, wait_until};

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
        let bench = Bench::new();
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
        bench.host.create_export(&export).expect("a socket");
        let guest = Guest::connect(&bench.path("e.sock"));
        wait_until("the queue is there", || {
            !bench.host.exports()[0].queues.is_empty()
        });
        (Run { bench, control }, guest)
    }

    fn look(&self) {
        let now = MonotonicClock.now();
        self.control.tend_drives(now).expect("looked");
    }

    /// The host takes a drive away: it is nowhere near, and does not answer.
    fn take_away(&self, name: &str) {
        let away = self.bench.path("away");
        let _ = fs::create_dir(&away);
        fs::rename(self.bench.path(name), away.join(name)).expect("moved");
        self.bench.inject(name, Fault::Pulled);
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

#[test]
fn a_drive_that_was_away_is_taken_back_by_itself_and_filled_where_it_missed_something() {
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
}

#[test]
fn one_that_somebody_left_out_stays_out_when_it_is_back() {
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
}

#[test]
fn members_that_are_waited_for_are_not_closed() {
    let (run, mut guest) = Run::served();
    guest.fill(0, 1);
    run.take_away("one");
    guest.fill(SECTORS, 2);
    run.take_away("two");
    guest.begin_fill(2 * SECTORS, 3);
    wait_until("the array waits", || {
        run.bench.array("tank").state == ArrayState::Holding
    });
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
}
