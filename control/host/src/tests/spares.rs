//! Spares over the real engine: members are lost, and drives that wait take their places.

use std::sync::Arc;
use std::time::Duration;

use array::format::{Layout, Superblock};
use control::body::{
    ArrayCreateBody, DriveAddBody, PoolArrayBody, PoolCreateBody, ReplaceBody, SpareBody,
    VolumeCreateBody,
};
use control::request::{ArrayOptions, DriveSpec, Level};
use control::view::{ArrayState, ArrayView, DriveState};
use control::wanted::Wanted;
use control::{Control, Engine, ErrorKind};
use drive::{Drive, Fault};
use units::{Clock, MemberIndex, MonotonicClock, Size};
use uuid::Uuid;

use super::{Bench, MIB, wait_until};

/// The control path over an engine; a spare waits for nothing.
pub(super) struct Run {
    pub(super) control: Control,
    pub(super) bench: Bench,
}

impl Run {
    pub(super) fn on(bench: Bench) -> Run {
        let wanted = Wanted::open(bench.folder.path()).expect("opens");
        let engine = Arc::clone(&bench.host) as Arc<dyn Engine>;
        let control = Control::new(engine, wanted, bench.folder.path().to_owned());
        let control = control.with_spare_grace(Duration::ZERO);
        control.restore().expect("restored");
        Run { control, bench }
    }

    pub(super) fn new() -> Run {
        Run::on(Bench::new())
    }

    /// Memory drives of so many MiB.
    pub(super) fn memory(&self, drives: &[(&str, u64)]) {
        for (name, mebibytes) in drives {
            let size_bytes = mebibytes * MIB;
            self.add(name, DriveSpec::Memory { size_bytes });
        }
    }

    pub(super) fn add(&self, name: &str, spec: DriveSpec) {
        let body = DriveAddBody {
            spec,
            name: Some(name.to_owned()),
            uuid: None,
        };
        self.control.add_drive(body).expect("added");
    }

    /// Level 5 on these drives.
    pub(super) fn create(&self, name: &str, drives: &[&str], spares: &[&str]) {
        self.create_of(Level::Raid5, name, (drives, spares));
    }

    pub(super) fn create_of(&self, level: Level, name: &str, (drives, spares): (&[&str], &[&str])) {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let body = ArrayCreateBody {
            name: name.to_owned(),
            uuid: None,
            level,
            drives: names(drives),
            options: ArrayOptions::default(),
            spares: names(spares),
            force: false,
        };
        self.control.create_array(body).expect("free drives");
    }

    /// Pulls a drive, and lets its array notice that.
    pub(super) fn pull(&self, array: &str, drive: &str) {
        self.bench.inject(drive, Fault::Pulled);
        let body = VolumeCreateBody {
            name: format!("after-{drive}"),
            uuid: None,
            array: array.to_owned(),
            size_bytes: MIB,
            stable_buffers: false,
        };
        self.control.create_volume(body).expect("it goes on");
        assert_eq!(self.array(array).state, ArrayState::Degraded);
    }

    pub(super) fn tend(&self) {
        let now = MonotonicClock.now();
        self.control.tend_spares(now).expect("looked");
    }

    /// Who is in sync.
    pub(super) fn look(&self) {
        let now = MonotonicClock.now();
        self.control.tend_memberships(now).expect("looked");
    }

    pub(super) fn array(&self, name: &str) -> ArrayView {
        self.control.array(name).expect("there")
    }

    pub(super) fn is_optimal_with(&self, name: &str, drive: &str) {
        wait_until("the rebuild", || {
            self.array(name).state == ArrayState::Optimal
        });
        let array = self.array(name);
        let mut places = array.members.iter();
        assert!(
            places.any(|place| place.drive.as_deref() == Some(drive)),
            "{array:?}"
        );
        let warnings = array.warnings.join(" ");
        assert!(!warnings.contains("spare"), "{warnings}");
    }

    pub(super) fn state_of(&self, drive: &str) -> DriveState {
        self.control.drive(drive).expect("there").state
    }
}

fn pool(drives: &[&str]) -> PoolCreateBody {
    PoolCreateBody {
        name: "p".to_owned(),
        uuid: None,
        drives: drives.iter().map(|&name| name.to_owned()).collect(),
        arrays: Vec::new(),
        force: false,
    }
}

#[test]
fn a_spare_fills_the_place_of_a_pulled_drive_by_itself() {
    let run = Run::new();
    run.memory(&[("one", 64), ("two", 64), ("three", 64), ("four", 64)]);
    run.create("tank", &["one", "two", "three"], &["four"]);
    run.tend();
    assert_eq!(run.state_of("four"), DriveState::Spare);
    run.pull("tank", "two");
    run.tend();
    run.is_optimal_with("tank", "four");
    assert!(run.control.jobs().iter().any(|job| job.array == "tank"));
}

#[test]
fn two_arrays_share_a_pool_and_none_gets_what_the_other_has() {
    let run = Run::new();
    let drives = ["a1", "a2", "a3", "b1", "b2", "b3"].map(|name| (name, 64));
    run.memory(&drives);
    run.memory(&[("small", 16), ("large", 96), ("fits", 64)]);
    run.create("a", &["a1", "a2", "a3"], &[]);
    run.create("b", &["b1", "b2", "b3"], &[]);
    let control = &run.control;
    control
        .create_pool(&pool(&["small", "fits"]))
        .expect("free");
    for array in ["a", "b"] {
        let array = array.to_owned();
        control
            .attach_pool("p", &PoolArrayBody { array })
            .expect("no other");
    }
    run.pull("a", "a1");
    run.pull("b", "b3");
    run.tend();
    run.is_optimal_with("a", "fits");
    let left = run.array("b");
    assert_eq!(left.state, ArrayState::Degraded);
    let warnings = left.warnings.join(" ");
    assert!(warnings.contains("spare small does not fit"), "{warnings}");
    let body = SpareBody {
        drive: "large".to_owned(),
        force: false,
    };
    control.add_pool_drive("p", &body).expect("free");
    run.tend();
    run.is_optimal_with("b", "large");
    assert_eq!(control.pool("p").expect("there").drives, ["small"]);
}

#[test]
fn a_spare_that_fails_is_followed_by_the_next() {
    let run = Run::new();
    run.memory(&[("one", 64), ("two", 64), ("three", 64)]);
    run.memory(&[("bad", 64), ("good", 65)]);
    run.create("tank", &["one", "two", "three"], &["bad", "good"]);
    let data = Fault::Unwritable {
        offset: 0,
        length: 64 * MIB,
    };
    run.bench.inject("bad", data);
    run.pull("tank", "three");
    // The rebuild may begin on the bad one before that is noticed.
    wait_until("the good one has started", || {
        run.tend();
        run.state_of("good") == DriveState::Member
    });
    run.is_optimal_with("tank", "good");
}

#[test]
fn spares_outlive_the_engine_and_fill_what_is_missing_at_its_start() {
    let run = Run::new();
    let names = ["one", "two", "three", "four"];
    for name in names {
        let spec = DriveSpec::File {
            path: run.bench.path(name),
            size_bytes: Some(64 * MIB),
            create: true,
        };
        run.add(name, spec);
    }
    run.create("tank", &names[..3], &["four"]);
    let Run { control, bench } = run;
    control.shutdown().expect("clean");
    drop(control);
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    std::fs::remove_file(folder.path().join("two")).expect("lost");

    let run = Run::on(Bench::on(folder));
    assert_eq!(run.state_of("four"), DriveState::Spare);
    assert_eq!(run.array("tank").spares, ["four"]);
    assert_eq!(run.array("tank").state, ArrayState::Degraded);
    run.tend();
    run.is_optimal_with("tank", "four");
    assert!(run.array("tank").spares.is_empty());
}

/// As the engine leaves it when it is killed before the array knows.
fn half_made(run: &Run, drive: &str, member: u16, member_uuid: Option<Uuid>) {
    let (own, handle) = {
        let state = run.bench.host.state();
        let superblock = state.arrays["tank"].superblock;
        let own = Superblock {
            member: MemberIndex(member),
            member_uuid: member_uuid.unwrap_or_else(Uuid::new_v4),
            ..superblock
        };
        (own, Arc::clone(&state.drives[drive].drive))
    };
    crate::records::erase(&handle, &own).expect("a file");
    crate::records::format(&handle, &own).expect("a file");
}

/// An array with a spare, of which a member was lost while no engine ran.
fn lost_beside(spare: impl Fn(&Run)) -> Run {
    let run = Run::new();
    let names = ["one", "two", "three", "four"];
    for name in names {
        let spec = DriveSpec::File {
            path: run.bench.path(name),
            size_bytes: Some(64 * MIB),
            create: true,
        };
        run.add(name, spec);
    }
    run.create("tank", &names[..3], &["four"]);
    wait_until("parity is right", || run.array("tank").jobs.is_empty());
    spare(&run);
    let Run { control, bench } = run;
    control.shutdown().expect("clean");
    drop(control);
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    std::fs::remove_file(folder.path().join("two")).expect("lost");
    let run = Run::on(Bench::on(folder));
    assert_eq!(run.array("tank").state, ArrayState::Degraded);
    assert_eq!(run.state_of("four"), DriveState::Failed);
    run.tend();
    run
}

#[test]
fn a_spare_that_was_half_made_a_member_when_the_engine_ended_becomes_one() {
    let run = lost_beside(|run| half_made(run, "four", 1, None));
    run.is_optimal_with("tank", "four");
    assert!(run.array("tank").spares.is_empty());
}

#[test]
fn a_spare_that_says_it_is_a_member_whom_the_array_knows_is_told_and_not_taken() {
    let run = lost_beside(|run| {
        let index = run.bench.host.state().arrays["tank"].index;
        let state = run.bench.host.engine.array_state(index).expect("it runs");
        half_made(run, "four", 1, Some(state.config.members[1].uuid));
    });
    assert_eq!(run.array("tank").state, ArrayState::Degraded);
    let warnings = run.array("tank").warnings.join(" ");
    let wanted = "drive four cannot be used";
    assert!(
        warnings.contains(wanted) && warnings.contains("drive wipe"),
        "{warnings}"
    );
    let body = ReplaceBody {
        drive: "four".to_owned(),
        force: true,
    };
    run.control
        .replace_member("tank", 1, &body)
        .expect("said so");
    run.tend();
    run.is_optimal_with("tank", "four");
}

#[test]
fn members_hold_what_they_held_when_a_spare_cannot_be_made_ready() {
    let run = Run::new();
    run.memory(&[("one", 64), ("two", 64), ("three", 64), ("bad", 64)]);
    let drive = |name: &str| Arc::clone(&run.bench.host.state().drives[name].drive);
    let names = ["one", "two", "three"];
    for name in names {
        drive(name).write(0, &[7; 4096]).expect("memory");
    }
    let mut magic = [0; 4096];
    magic[..8].copy_from_slice(&drive::GARBOARD_MAGIC);
    drive("bad").write(MIB, &magic).expect("memory");
    let all = Fault::Unwritable {
        offset: 0,
        length: 64 * MIB,
    };
    run.bench.inject("bad", all);
    let body = || ArrayCreateBody {
        name: "tank".to_owned(),
        uuid: None,
        level: Level::Raid5,
        drives: names.map(str::to_owned).to_vec(),
        options: ArrayOptions::default(),
        spares: vec!["bad".to_owned()],
        force: true,
    };
    let before = run.bench.host.engine.buffer_bytes();
    let refused = run.control.create_array(body()).expect_err("unwritable");
    assert_eq!(refused.object, "drive bad", "{refused}");
    assert_eq!(run.bench.host.engine.buffer_bytes(), before);
    for name in names {
        let mut found = [0; 4096];
        drive(name).read(0, &mut found).expect("memory");
        assert_eq!(found, [7; 4096], "{name}");
        assert_eq!(run.state_of(name), DriveState::Free);
    }
    drive("bad").clear_faults();
    let made = run.control.create_array(body()).expect("well again");
    assert_eq!(made.spares, ["bad"]);
}

#[test]
fn a_removed_spare_stays_free() {
    let run = Run::new();
    run.memory(&[("one", 64), ("two", 64), ("three", 64), ("four", 64)]);
    run.create("tank", &["one", "two", "three"], &["four"]);
    run.control.remove_spare("tank", "four").expect("a spare");
    run.pull("tank", "one");
    run.tend();
    assert_eq!(run.array("tank").state, ArrayState::Degraded);
    assert_eq!(run.state_of("four"), DriveState::Free);
}

impl Run {
    /// A drive of memory, added by the control path, that has a serial number.
    pub(super) fn numbered(&self, name: &str, size_bytes: u64) {
        self.add(name, DriveSpec::Memory { size_bytes });
        let size = Size(size_bytes);
        let drive = Drive::numbered(size, "0123").expect("memory");
        self.swap(name, drive);
    }

    pub(super) fn backing(&self, name: &str) -> Arc<Drive> {
        Arc::clone(&self.bench.host.state().drives[name].drive)
    }

    /// Takes the drive out, and adds it anew as it is.
    pub(super) fn again(&self, name: &str) {
        self.swap(name, self.backing(name));
    }

    pub(super) fn swap(&self, name: &str, drive: Arc<Drive>) {
        let uuid = self.control.drive(name).expect("there").uuid;
        let size_bytes = drive.info().size_bytes;
        self.bench.host.close(name);
        let spec = DriveSpec::Memory { size_bytes };
        let opened = crate::opened::Opened::of(drive);
        let adopted = self.bench.host.adopt(name, uuid, &spec, opened);
        adopted.expect("the name is free");
        assert_eq!(self.state_of(name), DriveState::Free);
    }
}

#[test]
fn a_former_member_of_which_nobody_can_tell_what_it_holds_is_a_spare_by_force_and_then_used() {
    // So large that nothing erases the copies near the end of what could be a member on it.
    const LARGE: u64 = (8 << 30) + 7 * MIB;
    let by_size = Superblock::offsets(Layout::member_bytes(LARGE));
    assert!(by_size[3] + 4096 < LARGE - drive::WIPE_BYTES);
    let run = Run::new();
    run.memory(&[("one", 64), ("three", 64)]);
    run.numbered("two", LARGE);
    run.create("tank", &["one", "two", "three"], &[]);
    let own = Superblock::offsets(run.bench.superblock("two").layout.member_bytes);
    let overwrite = |places: &[u64]| {
        let drive = run.backing("two");
        for &place in places {
            drive.write(place, &[0xa5; 4096]).expect("memory");
        }
    };
    let spare = |force| {
        let drive = "two".to_owned();
        run.control.add_spare("tank", &SpareBody { drive, force })
    };
    let replace = || {
        let drive = "two".to_owned();
        let body = ReplaceBody {
            drive,
            force: false,
        };
        run.control.replace_member("tank", 1, &body)
    };
    let lose = || run.control.fail_member("tank", 1).expect("two are left");
    let fill = || {
        run.tend();
        run.is_optimal_with("tank", "two");
    };
    // Random data all over it.
    lose();
    overwrite(&[own, by_size].concat());
    assert_eq!(spare(false).expect_err("left out").kind, ErrorKind::Unsafe);
    spare(true).expect("erased");
    fill();
    // The same, and nobody knows any more that it was left out.
    lose();
    overwrite(&[own, by_size].concat());
    run.again("two");
    for refused in [spare(false).map(drop), replace().map(drop)] {
        let refused = refused.expect_err("known by its number");
        assert_eq!(refused.kind, ErrorKind::Unsafe, "{refused}");
        assert!(refused.to_string().contains("array tank"), "{refused}");
    }
    spare(true).expect("erased");
    fill();
    // Erased by others, who left what is far behind.
    lose();
    overwrite(&by_size[2..]);
    run.backing("two").wipe().expect("memory");
    run.again("two");
    spare(false).expect("blank");
    // Nor does it matter afterwards: it was looked at.
    overwrite(&by_size);
    fill();
    lose();
    run.backing("two").wipe().expect("memory");
    run.again("two");
    replace().expect("blank");
    run.is_optimal_with("tank", "two");
}

#[test]
fn a_former_member_returns_although_a_sector_beside_its_superblocks_cannot_be_read() {
    let run = Run::new();
    run.memory(&[("one", 64), ("three", 64)]);
    run.numbered("two", 64 * MIB);
    run.create("tank", &["one", "two", "three"], &[]);
    run.control.fail_member("tank", 1).expect("two are left");
    let (offset, length) = (MIB / 2, 4096);
    let fault = drive::Fault::Media { offset, length };
    run.backing("two").inject(fault);
    run.again("two");
    let body = ReplaceBody {
        drive: "two".to_owned(),
        force: false,
    };
    let returned = run.control.replace_member("tank", 1, &body);
    returned.expect("its superblock tells what it holds");
    run.is_optimal_with("tank", "two");
}
