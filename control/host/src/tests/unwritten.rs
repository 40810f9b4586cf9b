//! Arrays over drives that hold anything: whole at once, and zeroes wherever nothing was written.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use array::MapState;
use array::format::Superblock;
use control::metrics::Samples;
use control::request::{ArrayModify, DriveSpec, Level, MemberReplace};
use control::view::{ArrayState, JobKind, JobState, JobView};
use control::{Engine, ErrorKind};
use drive::Fault;
use tempfile::TempDir;

use super::begun::{DRIVES, bench, start};
use super::guests::Guest;
use super::hanging::{hang, late, relieve};
use super::{Bench, DRIVE_BYTES, Kind, MIB, export_of, volume_of, wait_until};

/// Bytes that were on the drives before.
const GARBAGE: u8 = 0xA5;
const VOLUME_BYTES: u64 = 64 * MIB;
const SECTOR: u64 = 512;

/// A file full of garbage.
fn spoil(folder: &TempDir, name: &str) {
    let bytes = vec![GARBAGE; units::bytes_usize(DRIVE_BYTES)];
    std::fs::write(folder.path().join(name), bytes).expect("room");
}

/// Level 5 on three files that are full of garbage, and a volume.
fn new_tank(folder: &Arc<TempDir>) -> Bench {
    let _kind = Kind::unwritten(true);
    let bench = bench(folder);
    for name in &DRIVES[..3] {
        spoil(folder, name);
        bench.open_file(name).expect("a file");
    }
    let array = bench.create("tank", Level::Raid5, &DRIVES[..3]);
    assert_eq!(array.state, ArrayState::Optimal);
    assert!(bench.host.jobs().is_empty(), "{:?}", bench.host.jobs());
    let volume = volume_of("vol", "tank", VOLUME_BYTES);
    bench.host.create_volume(&volume).expect("room");
    bench
}

fn guest(bench: &Bench) -> Guest {
    let export = export_of(bench, "web", "vol");
    bench.host.export_named(&export).expect("a socket");
    Guest::connect(&bench.path("web.sock"))
}

/// Some blocks all over the volume hold what was written there, and others zeroes.
fn holds(guest: &mut Guest, written: &[(u64, u8)]) {
    for mib in 0..VOLUME_BYTES / MIB {
        for byte in [0, 4096, 64 << 10, MIB - 4096] {
            let sector = (mib * MIB + byte) / SECTOR;
            let known = written.iter().find(|(at, _)| *at == sector);
            let expected = known.map_or(0, |(_, byte)| *byte);
            let found = guest.read(sector);
            assert_eq!(found, [expected; 4096], "sector {sector}");
        }
    }
}

/// Regions that were written.
fn written(bench: &Bench) -> usize {
    let index = bench.host.state().arrays["tank"].index;
    let missed = bench.host.engine.missed_since(index, units::Update(0));
    missed.expect("some are not").count()
}

/// What a counter of the array has come to.
pub(super) fn counted(bench: &Bench, name: &str) -> u64 {
    let metrics = bench.host.metrics();
    let family = metrics.iter().find(|metric| metric.name == name);
    let Samples::Counters(samples) = &family.expect("there").samples else {
        panic!("it is a counter");
    };
    samples.iter().map(|(_, count)| count).sum()
}

#[test]
fn a_new_array_reads_zeroes_whatever_its_drives_hold() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = new_tank(&folder);
    let mut web = guest(&bench);
    holds(&mut web, &[]);
    assert_eq!(written(&bench), 0);
    assert!(counted(&bench, "array_unwritten_pieces") > 0);
    assert_eq!(counted(&bench, "array_regions_zeroed"), 0);
    let spots = [(8, 1), (40 * MIB / SECTOR, 2)];
    for (sector, byte) in spots {
        web.fill(sector, byte);
    }
    holds(&mut web, &spots);
    assert_eq!(written(&bench), 2);
    assert_eq!(counted(&bench, "array_regions_zeroed"), 2);
    drop((web, bench));
    // As after a kill, and without a member.
    let bench = super::begun::bench(&folder);
    start(&bench, &DRIVES[..2]);
    let mut web = guest(&bench);
    holds(&mut web, &spots);
    web.fill(20 * MIB / SECTOR, 3);
    holds(&mut web, &[spots[0], spots[1], (20 * MIB / SECTOR, 3)]);
    // Nothing that was on the drives has become anything.
    assert_eq!(written(&bench), 3);
}

#[test]
fn a_first_write_that_a_kill_has_ended_leaves_zeroes_around_it() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = new_tank(&folder);
    let mut web = guest(&bench);
    bench.inject("two", Fault::NoSpace);
    web.begin_fill(0, 7);
    wait_until("it waits for a member", || {
        bench.array("tank").hold.is_some()
    });
    assert_eq!(written(&bench), 0, "it is not zeroed everywhere");
    drop((web, bench));
    let bench = super::begun::bench(&folder);
    start(&bench, &DRIVES[..3]);
    let mut web = guest(&bench);
    // It may be carried out when the engine lets go of the drives, or not.
    let found = web.read(0);
    assert!(found == [0; 4096] || found == [7; 4096], "{found:?}");
    holds(&mut web, &[(0, found[0])]);
    web.fill(0, 8);
    holds(&mut web, &[(0, 8)]);
}

#[test]
fn a_member_is_filled_where_something_was_written_and_nowhere_else() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = new_tank(&folder);
    let mut web = guest(&bench);
    let spots = [(8, 1), (40 * MIB / SECTOR, 2)];
    for (sector, byte) in spots {
        web.fill(sector, byte);
    }
    bench.host.fail_member("tank", 1).expect("not needed");
    let passes = ArrayModify {
        rebuild_floor_bytes_per_second: Some(1),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &passes).expect("valid");
    spoil(&folder, "four");
    bench.open_file("four").expect("a file");
    let replace = MemberReplace {
        member: 1,
        drive: "four".to_owned(),
        force: true,
    };
    bench.host.replace_member("tank", &replace).expect("free");
    if let Some(job) = bench.host.jobs().first() {
        assert_eq!(job.kind, JobKind::Rebuild);
        assert!(job.total_bytes <= 8 * MIB, "{job:?}");
    }
    // What is written meanwhile is written to it as well.
    web.fill(20 * MIB / SECTOR, 3);
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    let spots = [spots[0], spots[1], (20 * MIB / SECTOR, 3)];
    holds(&mut web, &spots);
    let index = bench.host.state().arrays["tank"].index;
    let state = bench.host.engine.array_state(index).expect("it runs");
    assert_eq!(state.map.members[1].state, MapState::InSync);
    bench.host.fail_member("tank", 0).expect("not needed");
    holds(&mut web, &spots);
}

#[test]
fn a_copy_of_a_member_is_made_of_what_was_written() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = new_tank(&folder);
    let mut web = guest(&bench);
    let spots = [(8, 1), (40 * MIB / SECTOR, 2)];
    for (sector, byte) in spots {
        web.fill(sector, byte);
    }
    spoil(&folder, "four");
    bench.open_file("four").expect("a file");
    let replace = MemberReplace {
        member: 1,
        drive: "four".to_owned(),
        force: true,
    };
    bench.host.replace_member("tank", &replace).expect("free");
    // What is first written from here on is not copied, or twice.
    web.fill(20 * MIB / SECTOR, 3);
    wait_until("the copy has the place", || {
        bench.host.tend_copies();
        let array = bench.array("tank");
        let placed = array.members[1].drive.as_deref() == Some("four");
        placed && array.state == ArrayState::Optimal
    });
    let jobs = bench.host.jobs();
    let copy = jobs.iter().find(|job| job.kind == JobKind::Copy);
    let copy = copy.expect("it was made");
    assert!(copy.total_bytes <= 8 * MIB, "{copy:?}");
    let spots = [spots[0], spots[1], (20 * MIB / SECTOR, 3)];
    bench.host.fail_member("tank", 0).expect("not needed");
    holds(&mut web, &spots);
    web.fill(50 * MIB / SECTOR, 4);
    let all = [spots[0], spots[1], spots[2], (50 * MIB / SECTOR, 4)];
    holds(&mut web, &all);
}

fn is_done(job: &JobView) -> bool {
    job.state == JobState::Done
}

/// Writes over the region map of a member that no engine uses.
fn spoil_map(bench: &Bench, name: &str, superblock: &Superblock, byte: u8) {
    let area = superblock.layout.region_map;
    let mut options = std::fs::File::options();
    let file = options.write(true).open(bench.path(name));
    let file = file.expect("it is there");
    let bytes = vec![byte; units::bytes_usize(area.length)];
    file.write_all_at(&bytes, area.offset).expect("room");
}

/// An engine over three files whose array was stopped, and has lost all copies of its region map.
fn without_map(folder: &Arc<TempDir>, bench: Bench, byte: u8) -> Bench {
    let superblock = bench.superblock("one");
    bench.host.shutdown().expect("clean");
    for name in &DRIVES[..3] {
        spoil_map(&bench, name, &superblock, byte);
    }
    drop(bench);
    let bench = super::begun::bench(folder);
    start(&bench, &DRIVES[..3]);
    bench
}

/// Whether it is said of the first volume, and of no other.
fn says_that_map_was_lost(bench: &Bench) -> bool {
    let warnings = format!("{:?}", bench.array("tank").warnings);
    let says = warnings.contains("region map");
    assert_eq!(says, warnings.contains("volumes vol may"), "{warnings}");
    says
}

#[test]
fn where_no_copy_of_the_map_is_left_data_is_there_and_new_volumes_are_zeroed() {
    // Unreadable, and blank as a drive that was discarded.
    for byte in [0xEE, 0] {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let bench = new_tank(&folder);
        let mut web = guest(&bench);
        web.fill(8, 1);
        drop(web);
        let bench = without_map(&folder, bench, byte);
        assert!(says_that_map_was_lost(&bench));
        wait_until("parity is right everywhere", || {
            bench.host.jobs().iter().all(is_done)
        });
        let new = volume_of("new", "tank", 16 * MIB);
        bench.host.create_volume(&new).expect("room");
        let export = export_of(&bench, "other", "new");
        bench.host.export_named(&export).expect("a socket");
        let mut other = Guest::connect(&bench.path("other.sock"));
        let mut web = guest(&bench);
        let mut check = || {
            assert_eq!(web.read(8), [1; 4096]);
            for mib in 0..16 {
                assert_eq!(other.read(mib * MIB / SECTOR), [0; 4096], "MiB {mib}");
            }
        };
        check();
        bench.host.fail_member("tank", 0).expect("not needed");
        check();
        drop((web, other, bench));
        // The next engine finds a map, and what it was made of is in the record.
        let bench = super::begun::bench(&folder);
        start(&bench, &DRIVES[..3]);
        assert!(says_that_map_was_lost(&bench));
        bench.host.delete_named("vol").expect("not exported");
        assert!(!says_that_map_was_lost(&bench));
    }
}

/// Sectors of the block before the end of a volume that ends within its second extent, of one in a
/// region of it that was never written, and of some behind the end in that extent.
fn around_the_end(bench: &Bench) -> (u64, u64, [u64; 3]) {
    let extent = bench.array("tank").extent_bytes;
    let size = extent + extent / 2;
    let behind = [size, size + MIB, 2 * extent - 4096];
    let behind = behind.map(|byte| byte / SECTOR);
    ((size - 4096) / SECTOR, extent / SECTOR, behind)
}

/// A volume that ends within its second extent, with a block before its end; and then all copies of
/// the map are lost.
fn ends_where_nobody_can_tell(folder: &Arc<TempDir>) -> Bench {
    let bench = new_tank(folder);
    bench.host.delete_named("vol").expect("not exported");
    let extent = bench.array("tank").extent_bytes;
    let volume = volume_of("vol", "tank", extent + extent / 2);
    bench.host.create_volume(&volume).expect("room");
    let mut web = guest(&bench);
    web.fill(around_the_end(&bench).0, 7);
    drop(web);
    without_map(folder, bench, 0xEE)
}

#[test]
fn a_volume_that_grows_where_nobody_can_tell_shows_zeroes_behind_its_end() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = ends_where_nobody_can_tell(&folder);
    let (last, never, behind) = around_the_end(&bench);
    let extent = bench.array("tank").extent_bytes;
    let grown = bench.host.resize_named("vol", 2 * extent);
    assert_eq!(grown.expect("room").size_bytes, 2 * extent);
    let mut web = guest(&bench);
    let mut check = || {
        for sector in behind {
            assert_eq!(web.read(sector), [0; 4096], "sector {sector}");
        }
        // Below it all is as it was.
        assert_eq!(web.read(last), [7; 4096]);
        assert_eq!(web.read(never), [GARBAGE; 4096]);
    };
    check();
    wait_until("parity is right everywhere", || {
        bench.host.jobs().iter().all(is_done)
    });
    bench.host.fail_member("tank", 0).expect("not needed");
    check();
}

#[test]
fn where_zeroes_may_land_behind_the_end_of_a_volume_nobody_moves_it() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = ends_where_nobody_can_tell(&folder);
    let extent = bench.array("tank").extent_bytes;
    wait_until("parity is right everywhere", || {
        bench.host.jobs().iter().all(is_done)
    });
    hang(&bench);
    late(&bench, |host| host.resize_named("vol", 2 * extent));
    relieve(&bench);
    let busy = (ErrorKind::Busy, "zeroed in time");
    bench.refused(busy, |host| host.resize_named("vol", 2 * extent));
    bench.refused(busy, |host| host.delete_named("vol"));
    wait_until("the array is at rest", || {
        bench.host.stop_array("tank").is_ok()
    });
    bench.host.start_array("tank", false).expect("all are here");
    let grown = bench.host.resize_named("vol", 2 * extent);
    assert_eq!(grown.expect("nothing is under way").size_bytes, 2 * extent);
    bench.host.delete_named("vol").expect("not exported");
}

#[test]
fn blocks_of_the_map_behind_many_that_cannot_be_read_are_read() {
    const GIB: u64 = 1 << 30;
    const BLOCK_BYTES: u64 = 504 * MIB;
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let _kind = Kind::unwritten(true);
    let bench = bench(&folder);
    for name in &DRIVES[..2] {
        let file = std::fs::File::create(bench.path(name)).expect("a new file");
        file.set_len(11 * GIB).expect("nothing is in it");
        bench.open_file(name).expect("a file");
    }
    bench.create("tank", Level::Raid1, &DRIVES[..2]);
    let volume = volume_of("vol", "tank", 20 * BLOCK_BYTES);
    bench.host.create_volume(&volume).expect("room");
    let mut web = guest(&bench);
    bench.host.fail_member("tank", 1).expect("not needed");
    let sector = 19 * BLOCK_BYTES / SECTOR;
    web.fill(sector, 7);
    let area = bench.superblock("one").layout.region_map;
    drop((web, bench));
    let bench = super::begun::bench(&folder);
    bench.open_file("one").expect("it is there");
    let (offset, length) = (area.offset, 18 * 2 * 4096);
    bench.inject("one", Fault::Media { offset, length });
    bench.host.assemble();
    bench.host.start_array("tank", false).expect("enough");
    assert_eq!(written(&bench), 18 * 504 + 1);
    let mut web = guest(&bench);
    assert_eq!(web.read(sector), [7; 4096]);
}

#[test]
fn a_test_that_fails_leaves_the_next_one_on_its_thread_the_usual_arrays() {
    let fails = || super::on_both_kinds(|| assert!(!super::UNWRITTEN.get(), "on purpose"));
    assert!(std::panic::catch_unwind(fails).is_err());
    assert!(!super::UNWRITTEN.get());
}

#[test]
fn where_drives_keep_nothing_there_is_nothing_to_make_agree() {
    let size_bytes = 1 << 40;
    let null = DriveSpec::Null { size_bytes };
    let paced = DriveSpec::Paced {
        model: "kioxia-cm7".to_owned(),
        slower: 1000,
        interference_percent: 0,
        size_bytes,
        forgets: true,
    };
    let bench = Bench::new();
    for (name, spec) in [("one", &null), ("two", &paced), ("three", &paced)] {
        bench.add(name, spec.clone()).expect("no memory is taken");
    }
    // A pass over them would take hours.
    bench.create("tank", Level::Raid5, &["one", "two", "three"]);
    assert_eq!(bench.host.jobs(), []);
}
