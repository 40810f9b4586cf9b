//! The host with its real engine below: one or two reactors, drives of memory and of files.

#![allow(
    clippy::too_many_lines,
    clippy::semicolon_if_nothing_returned,
    reason = "tables of cases, with a change in each"
)]

mod absent;
mod assembly;
mod away;
mod bad_arrays;
mod bad_drives;
mod bad_exports;
mod bad_volumes;
mod balance;
mod begun;
mod borrowed;
mod budget;
mod caches;
mod contents;
mod copies;
mod gone;
mod guests;
mod hanging;
mod hedged;
mod holding;
mod jobs;
mod late;
mod limits;
mod logs;
mod losses;
mod memberships;
mod modes;
mod nodes;
mod numbers;
mod places;
mod restless;
mod returns;
mod scrub;
mod sharing;
mod shutdown;
mod silent;
mod spares;
mod times;
mod torn;
mod totals;
mod trust;
mod undecided;
mod unreadable;
mod unwritten;
mod ways_back;
mod zeroing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::{Patience, Room};
use control::request::{
    ArrayCreate, ArrayOptions, DriveAdd, DriveKnown, DriveSpec, ExportCreate, ExportSocket,
    ExportWishes, Level, VolumeCreate, VolumeLimit,
};
use control::settings::{EngineSettings, Poll};
use control::view::{
    Access, ArrayView, DriveView, ExportView, GuestMemory, IoCounters, JobView, Sharing, VolumeView,
};
use control::{Answer, Engine, EngineError, ErrorKind};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{Host, Tuning};

const MIB: u64 = 1 << 20;
/// Large enough for one member with a few extents, small enough for a test.
const DRIVE_BYTES: u64 = 64 * MIB;

/// An engine of one process, and the folder of its files.
struct Bench {
    folder: Arc<TempDir>,
    host: Arc<Host>,
}

impl Drop for Bench {
    /// As at a kill: nothing is marked clean, and the reactors are gone afterwards.
    fn drop(&mut self) {
        self.host.state().exports.clear();
        self.host.state().drives.clear();
        self.host.engine.stop();
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::on(Arc::new(tempfile::tempdir().expect("a folder")))
    }

    /// Another engine over the files of one before.
    fn on(folder: Arc<TempDir>) -> Bench {
        Bench::tuned(folder, Tuning::default())
    }

    fn tuned(folder: Arc<TempDir>, tuning: Tuning) -> Bench {
        Bench::with_cores(folder, tuning, vec![0, 1])
    }

    /// With a reactor for each of these, by the number of its CPU.
    fn with_cores(folder: Arc<TempDir>, tuning: Tuning, cores: Vec<u16>) -> Bench {
        let settings = EngineSettings {
            cores,
            memory_bytes: None,
            poll: Poll::Never,
            runtime_dir: folder.path().to_owned(),
            state_dir: folder.path().to_owned(),
        };
        let host = Host::start_tuned(&settings, tuning).expect("a machine with io_uring");
        Bench { folder, host }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn memory(&self, name: &str) {
        let size_bytes = DRIVE_BYTES;
        self.add(name, DriveSpec::Memory { size_bytes })
            .expect("memory");
    }

    fn add(&self, name: &str, spec: DriveSpec) -> Answer<DriveView> {
        self.host.add_drive(&DriveAdd {
            name: name.to_owned(),
            uuid: Uuid::new_v4(),
            spec,
        })
    }

    /// A new file of the drive's own name.
    fn file(&self, name: &str) {
        let spec = DriveSpec::File {
            path: self.path(name),
            size_bytes: Some(DRIVE_BYTES),
            create: true,
        };
        self.add(name, spec).expect("a new file");
    }

    /// The file of this path, as it is.
    fn open_file(&self, name: &str) -> Answer<DriveView> {
        self.add(name, file_at(&self.path(name)))
    }

    /// As a start of the engine opens it.
    fn reopen(&self, name: &str, identity: &str) -> Answer<DriveView> {
        self.host.open_drive(&DriveKnown {
            name: name.to_owned(),
            uuid: Uuid::new_v4(),
            spec: file_at(&self.path(name)),
            identity: identity.to_owned(),
            member_of: None,
        })
    }

    fn drive(&self, name: &str) -> DriveView {
        self.host.drive_view(name).expect("a drive")
    }

    fn array(&self, name: &str) -> ArrayView {
        self.host.array_view(name).expect("an array")
    }

    fn create(&self, name: &str, level: Level, drives: &[&str]) -> ArrayView {
        self.host
            .create_array(&array_of(name, level, drives))
            .expect("good drives")
    }

    /// Level 5 on three drives of memory: `one`, `two`, `three`.
    fn tank() -> Bench {
        Bench::tank_tuned(Tuning::default())
    }

    /// As `tank`, with other times.
    fn patient(patience: Patience) -> Bench {
        let room = Room {
            patience,
            ..Room::default()
        };
        Bench::tank_tuned(Tuning {
            room,
            ..Tuning::default()
        })
    }

    fn tank_tuned(tuning: Tuning) -> Bench {
        Bench::tank_of(Level::Raid5, &["one", "two", "three"], tuning)
    }

    fn tank_of(level: Level, drives: &[&str], tuning: Tuning) -> Bench {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let bench = Bench::tuned(folder, tuning);
        for name in drives {
            bench.memory(name);
        }
        bench.create("tank", level, drives);
        bench
    }

    /// Level 5 on three files: `one`, `two`, `three`.
    fn file_tank() -> Bench {
        let bench = Bench::new();
        for name in ["one", "two", "three"] {
            bench.file(name);
        }
        bench.create("tank", Level::Raid5, &["one", "two", "three"]);
        bench
    }

    /// Ends this engine in order, and begins another one over the same folder, without drives.
    fn next(self) -> Bench {
        self.host.shutdown().expect("clean");
        Bench::on(Arc::clone(&self.folder))
    }

    fn inject(&self, drive: &str, fault: drive::Fault) {
        self.host.state().drives[drive].drive.inject(fault);
    }

    /// What a member's own superblock says.
    fn superblock(&self, drive: &str) -> array::format::Superblock {
        let drive = Arc::clone(&self.host.state().drives[drive].drive);
        let found = crate::records::read(units::DriveIndex(0), &drive).expect("memory");
        let first = found.superblocks.into_iter().next();
        first.expect("a first copy").expect("a good one")
    }

    fn listing(&self) -> Listing {
        let mut drives = self.host.drives();
        for drive in &mut drives {
            drive.counters = IoCounters::default();
        }
        let mut arrays = self.host.arrays();
        // How long they take is looked at once a second.
        for member in arrays.iter_mut().flat_map(|array| &mut array.members) {
            member.pace = None;
        }
        Listing {
            drives,
            arrays,
            volumes: self.host.volumes(),
            exports: self.host.exports(),
            jobs: self.host.jobs(),
        }
    }

    /// Runs what must be refused: with this code, an object, a cause with `word` in it and a way
    /// out; and nothing has changed.
    fn refused<T: std::fmt::Debug>(
        &self,
        (kind, word): (ErrorKind, &str),
        run: impl FnOnce(&Host) -> Answer<T>,
    ) -> EngineError {
        let before = self.listing();
        let refusal = run(&self.host).expect_err(word);
        assert_eq!(self.listing(), before, "changed by what failed: {refusal}");
        assert_eq!(refusal.kind, kind, "{refusal}");
        let cause = format!("{}: {}", refusal.object, refusal.message);
        assert!(cause.contains(word), "no `{word}` in: {refusal}");
        assert!(!refusal.object.is_empty(), "no object: {refusal}");
        assert!(!refusal.next.is_empty(), "no way out: {refusal}");
        refusal
    }
}

/// Volumes as tests call them: by names that only one volume has.
impl Host {
    fn volume_named(&self, name: &str) -> Answer<VolumeView> {
        let mut volumes = self.volumes().into_iter();
        let found = volumes.find(|volume| volume.name == name);
        found.ok_or_else(|| crate::error::not_found("volume", name))
    }

    fn resize_named(&self, name: &str, size_bytes: u64) -> Answer<VolumeView> {
        self.resize_volume(&self.volume_named(name)?.key(), size_bytes)
    }

    fn delete_named(&self, name: &str) -> Answer<()> {
        self.delete_volume(&self.volume_named(name)?.key())
    }

    fn limit_named(&self, name: &str, limit: &VolumeLimit) -> Answer<VolumeView> {
        self.limit_volume(&self.volume_named(name)?.key(), limit)
    }

    fn export_named(&self, create: &ExportCreate) -> Answer<ExportView> {
        self.create_export(create, &self.volume_named(&create.volume)?.key())
    }
}

thread_local! {
    /// Whether arrays that this test makes have unwritten regions.
    static UNWRITTEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// As long as it lives, arrays that this thread makes have unwritten regions, or have none. The
/// next test may run on the same thread.
struct Kind(());

impl Kind {
    fn unwritten(unwritten: bool) -> Kind {
        UNWRITTEN.set(unwritten);
        Kind(())
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        UNWRITTEN.set(false);
    }
}

/// Runs a test on arrays without unwritten regions and on those with them.
fn on_both_kinds(test: impl Fn()) {
    for unwritten in [false, true] {
        let _kind = Kind::unwritten(unwritten);
        test();
    }
}

/// Everything that a command could have changed.
#[derive(Debug, PartialEq)]
struct Listing {
    drives: Vec<DriveView>,
    arrays: Vec<ArrayView>,
    volumes: Vec<VolumeView>,
    exports: Vec<ExportView>,
    jobs: Vec<JobView>,
}

fn file_at(path: &Path) -> DriveSpec {
    DriveSpec::File {
        path: path.to_owned(),
        size_bytes: None,
        create: false,
    }
}

fn array_of(name: &str, level: Level, drives: &[&str]) -> ArrayCreate {
    ArrayCreate {
        name: name.to_owned(),
        uuid: Uuid::new_v4(),
        level,
        drives: drives.iter().map(|&drive| drive.to_owned()).collect(),
        options: ArrayOptions {
            unwritten_regions: Some(UNWRITTEN.get() && level != Level::Raid0),
            ..ArrayOptions::default()
        },
        force: false,
    }
}

fn volume_of(name: &str, array: &str, size_bytes: u64) -> VolumeCreate {
    VolumeCreate {
        name: name.to_owned(),
        uuid: Uuid::new_v4(),
        array: array.to_owned(),
        size_bytes,
        stable_buffers: false,
    }
}

fn export_of(bench: &Bench, name: &str, volume: &str) -> ExportCreate {
    ExportCreate {
        name: name.to_owned(),
        uuid: Uuid::new_v4(),
        volume: volume.to_owned(),
        socket: ExportSocket {
            path: bench.path(&format!("{name}.sock")),
            owner: None,
            group: None,
            mode: 0o660,
        },
        wishes: ExportWishes {
            serial: "0123456789abcdef0123".to_owned(),
            ..ExportWishes::default()
        },
        profile: None,
        cores: Vec::new(),
        access: Access::ReadWrite,
        sharing: Sharing::Exclusive,
        guest_memory: GuestMemory::Unpinned,
    }
}

/// Waits until `reached`, which the engine brings about by itself.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    use units::Clock;
    let begun = units::MonotonicClock.now();
    while !reached() {
        let waited = units::MonotonicClock.now().since(begun);
        assert!(waited.as_secs() < 20, "{what} did not come about");
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
}

/// A new file that can be read back.
fn file_to_fill(path: PathBuf) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::File::options();
    options.read(true).write(true).create_new(true).open(path)
}
