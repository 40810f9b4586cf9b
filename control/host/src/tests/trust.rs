//! After a kill nothing is resynced, unless something speaks against it.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use array::format::Superblock;
use array::{ArrayMap, MapState, Patience, Room};
use control::Engine;
use control::request::Level;
use drive::Fault;
use tempfile::TempDir;

use super::begun::{
    BLOCK, BUFFERS, CHUNK_SECTORS, DRIVES, begin, bench, chunk, file, files, lasting, new_tank,
    start,
};
use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::Tuning;

/// Where the head says that parity is trusted, that something is torn, which shards wait for
/// members that they have not heard to be gone, when the clock of its times began, since when a
/// flush is under way and the second member's, that flushes of members failed, and, by member, that
/// they are gone: docs/on-disk.md.
const TRUST: u64 = 24 * 8;
const TORN: u64 = 25 * 8;
const HELD: u64 = 26 * 8;
const CLOCK: u64 = 28 * 8;
pub(super) const FLUSHING: u64 = 512 * 8;
pub(super) const UNFLUSHED: u64 = 1536 * 8;
pub(super) const GONE: u64 = 1540 * 8;

/// Where something lies on a member.
type Place = fn(&Superblock) -> u64;

/// What happens between two engines.
type Spoil<'a> = &'a dyn Fn(&TempDir);

pub(super) fn folder() -> Arc<TempDir> {
    // Of files in memory it is always known whether they were away.
    Arc::new(tempfile::tempdir_in("/dev/shm").expect("a folder"))
}

/// A word of the head of a life's file.
fn word(path: &std::path::Path, offset: u64) -> u64 {
    let mut word = [0; 8];
    let file = std::fs::File::open(path).expect("it is there");
    file.read_exact_at(&mut word, offset).expect("memory");
    u64::from_ne_bytes(word)
}

/// How many members are told to be gone, by any shard.
fn gone(path: &std::path::Path) -> usize {
    let is_gone = |member: &usize| word(path, GONE + 16 * units::bytes_u64(*member)) != 0;
    (0..DRIVES.len()).filter(is_gone).count()
}

/// Whether a member is told to be gone, by any shard.
fn is_gone(path: &std::path::Path) -> bool {
    gone(path) > 0
}

pub(super) fn map(bench: &Bench) -> Arc<ArrayMap> {
    let index = bench.host.state().arrays["tank"].index;
    bench.host.engine.array_state(index).expect("it runs").map
}

/// Regions that the array was to resync when it started.
fn suspects(bench: &Bench) -> usize {
    map(bench).suspects.count()
}

/// A guest writes both data chunks of the first stripe.
fn write(bench: &Bench, bytes: [u8; 2]) {
    let exists = bench.host.volumes().iter().any(|volume| volume.name == "v");
    if !exists {
        let volume = volume_of("v", "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
    }
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    guest.fill(0, bytes[0]);
    guest.fill(CHUNK_SECTORS, bytes[1]);
}

/// What guests had written to both data chunks of the first stripe.
pub(super) const WRITTEN: [u8; 2] = [0x11, 0x44];

/// An array that was killed while a region was in use. Gives the superblock of a member.
pub(super) fn killed(folder: &Arc<TempDir>) -> Superblock {
    let killed = new_tank(folder);
    write(&killed, WRITTEN);
    killed.superblock("one")
}

#[test]
fn a_killed_array_needs_no_resync_and_so_again_and_again() {
    let folder = folder();
    killed(&folder);
    for byte in [0x22, 0x33, 0x55] {
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(suspects(&next), 0);
        write(&next, [byte, 0x44]);
        let superblock = next.superblock("one");
        let (_, parity) = chunk(&next, &superblock, 2);
        assert_eq!(parity, byte ^ 0x44);
    }
}

#[test]
fn a_member_that_vanished_with_the_engine_is_no_reason_for_a_resync() {
    let folder = folder();
    killed(&folder);
    let next = bench(&folder);
    start(&next, &["one", "three"]);
    assert_eq!(suspects(&next), 0);
    write(&next, [0x22, 0x44]);
    drop(next);
    let next = bench(&folder);
    start(&next, &["one", "three"]);
    assert_eq!(suspects(&next), 0, "degraded as it is");
}

#[test]
fn whatever_is_doubtful_is_resynced() {
    let word = |folder: &TempDir, offset, word: u64| {
        let written = file(folder).write_all_at(&word.to_ne_bytes(), offset);
        written.expect("memory");
    };
    let cases: [(&str, Spoil<'_>); 6] = [
        ("nothing was said of parity", &|folder| {
            word(folder, TRUST, 0)
        }),
        ("what is said is of another version", &|folder| {
            word(folder, TRUST, 1)
        }),
        ("a write was given up", &|folder| word(folder, TORN, 1)),
        ("another boot", &|folder| word(folder, 24, 1)),
        ("the memory is gone", &|folder| {
            std::fs::remove_file(&files(folder)[0]).expect("it is there");
        }),
        ("two drives are others", &|folder| {
            for name in ["one", "two"] {
                let (path, copy) = (folder.path().join(name), folder.path().join("copy"));
                std::fs::copy(&path, &copy).expect("room");
                std::fs::rename(&copy, &path).expect("one file system");
            }
        }),
    ];
    for (what, spoil) in cases {
        let folder = folder();
        killed(&folder);
        spoil(&folder);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert!(suspects(&next) > 0, "{what}");
        wait_until("the resync", || map(&next).is_optimal());
        // Then parity is trusted again.
        write(&next, [0x22, 0x44]);
        drop(next);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(suspects(&next), 0, "{what}");
    }
}

#[test]
fn a_drive_that_does_not_take_what_was_begun_makes_a_resync() {
    let folder = folder();
    killed(&folder);
    begin(&file(&folder));
    let next = bench(&folder);
    for name in &DRIVES[..3] {
        next.open_file(name).expect("it is there");
    }
    let superblock = next.superblock("one");
    let (data, _) = chunk(&next, &superblock, 0);
    let offset = superblock.layout.data.offset;
    next.inject(
        data,
        Fault::Unwritable {
            offset,
            length: 4096,
        },
    );
    next.host.assemble();
    next.host.start_array("tank", false).expect("all are here");
    assert!(suspects(&next) > 0);
}

#[test]
fn a_flush_that_failed_is_no_doubt_when_its_member_is_out() {
    let folder = folder();
    let bench = new_tank(&folder);
    bench.inject("two", Fault::FlushFails);
    write(&bench, [0x11, 0x44]);
    let is_out = || {
        let state = bench.host.state();
        let uuid = state.arrays["tank"].uuid;
        let two = &state.drives["two"].role;
        !matches!(two, crate::state::DriveRole::Member { array, .. } if *array == uuid)
    };
    wait_until("its exclusion", is_out);
    drop(bench);
    let next = self::bench(&folder);
    start(&next, &["one", "three"]);
    assert_eq!(suspects(&next), 0);
}

/// An array that was killed while regions were in use, found again, but not started.
fn found(folder: &Arc<TempDir>, drives: &[&str]) -> Bench {
    let next = bench(folder);
    for name in drives {
        next.open_file(name).expect("it is there");
    }
    next
}

#[test]
fn a_flush_that_fails_in_a_start_is_not_forgotten_by_the_next() {
    let folder = folder();
    killed(&folder);
    begin(&file(&folder));
    let here = ["one", "three"];
    let next = found(&folder, &here);
    next.inject("three", Fault::FlushFails);
    next.host.assemble();
    let refused = next.host.start_array("tank", false);
    refused.expect_err("what its missing member holds needs all the others");
    drop(next);
    let next = bench(&folder);
    start(&next, &here);
    assert!(suspects(&next) > 0);
}

#[test]
fn a_member_whose_flush_fails_in_a_start_is_left_out_rather_than_believed() {
    let folder = folder();
    killed(&folder);
    let file = file(&folder);
    begin(&file);
    // And its parity.
    let parity = BUFFERS + units::bytes_u64(BLOCK);
    let written = file.write_all_at(&[0xD0 ^ 0x44; BLOCK], parity);
    written.expect("memory");
    let next = found(&folder, &DRIVES[..3]);
    let (second, _) = chunk(&next, &next.superblock("one"), 1);
    next.inject(second, Fault::FlushFails);
    next.host.assemble();
    next.host.start_array("tank", false).expect("two know all");
    let map = map(&next);
    assert!(map.members.iter().any(|it| it.state == MapState::Lost));
    assert_eq!(map.suspects.count(), 0);
    let export = export_of(&next, "e", "v");
    next.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&next.path("e.sock"));
    assert_eq!(guest.read(0)[0], 0xD0);
    assert_eq!(guest.read(CHUNK_SECTORS)[0], 0x44);
}

#[test]
fn an_array_that_is_stopped_while_it_waits_for_members_is_resynced() {
    for fault in [Fault::Pulled, Fault::NoSpace] {
        let folder = folder();
        let killed = new_tank(&folder);
        write(&killed, [0x11, 0x44]);
        let file = files(&folder).remove(0);
        for name in ["one", "two"] {
            killed.inject(name, fault);
        }
        killed.host.engine.set_patience(Duration::from_millis(10));
        let volume = volume_of("w", "tank", MIB);
        let refused = killed.host.create_volume(&volume);
        refused.expect_err("one of three is not enough");
        killed.host.remove_export("e").expect("it is there");
        let _ = killed.host.stop_array("tank");
        wait_until("its end", || word(&file, TORN) != 0);
        for name in ["one", "two"] {
            killed.host.state().drives[name].drive.clear_faults();
        }
        drop(killed);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert!(suspects(&next) > 0, "{fault:?}");
    }
}

#[test]
fn a_flush_that_nobody_waits_for_any_more_and_that_fails_is_not_forgotten() {
    let folder = folder();
    let tuning = Tuning {
        room: Room {
            patience: Patience {
                late: 100,
                ..Patience::default()
            },
            ..Room::default()
        },
        lasting: Some(lasting(&folder)),
        ..Tuning::default()
    };
    let bench = Bench::tuned(Arc::clone(&folder), tuning);
    DRIVES[..3].iter().for_each(|name| bench.file(name));
    bench.create("tank", Level::Raid5, &DRIVES[..3]);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    // So that the next record is preceded by a flush.
    write(&bench, [0x11, 0x44]);
    // Given up after a second; the record without it takes long enough for its answer to come
    // before it is out.
    bench.inject("two", Fault::Delay(Duration::from_millis(1200)));
    bench.inject("two", Fault::FlushFails);
    bench.inject("three", Fault::Delay(Duration::from_millis(450)));
    let volume = volume_of("w", "tank", MIB);
    let file = files(&folder).remove(0);
    std::thread::scope(|scope| {
        let made = scope.spawn(|| bench.host.create_volume(&volume).map(|_| ()));
        // It is named, as gone until its drive has said that it is there.
        wait_until("it is told", || {
            word(&file, UNFLUSHED) == 1 << 1 || word(&file, GONE + 16) != 0
        });
        let made = made.join().expect("no panic");
        made.expect("two are enough");
    });
}

#[test]
fn a_flush_that_hangs_is_a_doubt_until_it_has_ended_well() {
    for (ends, hang_ms) in [(false, 60_000), (true, 2_500)] {
        let folder = folder();
        let killed = new_tank(&folder);
        write(&killed, [0x11, 0x44]);
        let file = files(&folder).remove(0);
        for name in &DRIVES[..3] {
            killed.inject(name, Fault::Delay(Duration::from_millis(hang_ms)));
        }
        killed.host.engine.set_patience(Duration::from_millis(10));
        let volume = volume_of("w", "tank", MIB);
        let refused = killed.host.create_volume(&volume);
        refused.expect_err("its record is not flushed");
        wait_until("it is told", || word(&file, FLUSHING) != 0);
        // By a clock of others.
        std::thread::park_timeout(Duration::from_millis(if ends { 0 } else { 1_100 }));
        for name in &DRIVES[..3] {
            killed.host.state().drives[*name].drive.clear_faults();
        }
        wait_until("its end", || !ends || word(&file, FLUSHING) == 0);
        drop(killed);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(suspects(&next) == 0, ends);
    }
}

#[test]
fn a_member_that_is_gone_and_waited_for_is_a_doubt_until_it_is_back() {
    for returns in [false, true] {
        let folder = folder();
        let killed = new_tank(&folder);
        write(&killed, [0x11, 0x44]);
        let file = files(&folder).remove(0);
        for name in ["one", "two"] {
            killed.inject(name, Fault::Pulled);
        }
        let volume = volume_of("w", "tank", MIB);
        killed.host.engine.set_patience(Duration::from_millis(10));
        let refused = killed.host.create_volume(&volume);
        refused.expect_err("one of three is not enough");
        wait_until("it is told of both", || gone(&file) == 2);
        let back = ["one", "two"].into_iter().filter(|_| returns);
        for name in back {
            killed.host.state().drives[name].drive.clear_faults();
        }
        // One shard may act by it while another still waits for them, and says so.
        let is_over = || !is_gone(&file) && word(&file, HELD) == 0;
        wait_until("the return", || !returns || is_over());
        drop(killed);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(suspects(&next) == 0, returns);
    }
}

#[test]
fn a_member_that_stays_away_is_a_doubt_until_it_is_out() {
    let folder = folder();
    let bench = new_tank(&folder);
    write(&bench, [0x11, 0x44]);
    let file = files(&folder).remove(0);
    for name in ["one", "two"] {
        bench.inject(name, Fault::Pulled);
    }
    bench.host.engine.set_patience(Duration::from_millis(10));
    let volume = volume_of("w", "tank", MIB);
    let refused = bench.host.create_volume(&volume);
    refused.expect_err("one of three is not enough");
    wait_until("it is told", || is_gone(&file));
    // The record that excludes it takes its time.
    bench.inject("three", Fault::Delay(Duration::from_millis(700)));
    bench.host.state().drives["one"].drive.clear_faults();
    wait_until("it is told no more", || !is_gone(&file));
    let map = map(&bench);
    let is_out = |member: &array::MapMember| member.state == MapState::Lost;
    assert!(map.members.iter().any(is_out), "{:?}", map.members);
}

#[test]
fn what_an_engine_tells_does_not_count_where_records_cannot_be_read() {
    let cases: [(&str, &[&str], Place, bool); 3] = [
        ("one copy", &["one"], |of| of.layout.region_map.offset, true),
        (
            "all copies",
            &["one", "two"],
            |of| of.layout.region_map.offset,
            false,
        ),
        ("the log", &["three"], |of| of.log().slot(0), false),
    ];
    for (what, drives, place, trusted) in cases {
        let folder = folder();
        killed(&folder);
        let next = found(&folder, &DRIVES[..3]);
        let offset = place(&next.superblock("one"));
        let length = 4096;
        for drive in drives {
            next.inject(drive, Fault::Media { offset, length });
        }
        next.host.assemble();
        next.host.start_array("tank", false).expect("all are here");
        assert_eq!(suspects(&next) == 0, trusted, "{what}");
    }
}

#[test]
fn a_file_that_may_be_there_and_cannot_be_opened_is_not_taken_for_none() {
    let folder = folder();
    killed(&folder);
    let path = files(&folder).remove(0);
    let kept = folder.path().join("kept");
    std::fs::rename(&path, &kept).expect("one file system");
    std::fs::create_dir(&path).expect("room");
    let next = found(&folder, &DRIVES[..3]);
    next.host.assemble();
    let refused = next.host.start_array("tank", false);
    let refused = refused.expect_err("it is not known what had begun");
    assert!(refused.to_string().contains("had begun"), "{refused}");
    std::fs::remove_dir(&path).expect("it is empty");
    std::fs::rename(&kept, &path).expect("one file system");
    let started = next.host.start_array("tank", false);
    started.expect("nothing is in its way");
    assert_eq!(suspects(&next), 0, "nothing was written before");
}

#[test]
fn trust_is_taken_from_files_that_others_can_write_to() {
    use std::os::unix::fs::PermissionsExt;
    for (up, kind) in [(0, "the file"), (1, "the folder")] {
        let folder = folder();
        killed(&folder);
        let file = files(&folder).remove(0);
        let open = file.ancestors().nth(up).expect(kind);
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(open, mode).expect("ours");
        assert_ne!(word(&file, TRUST), 0);
        let name = file.file_stem().and_then(|name| name.to_str());
        let array = name.and_then(|name| name.parse().ok()).expect("a uuid");
        lasting(&folder).withdraw(array).expect("ours");
        assert_eq!(word(&file, TRUST), 0, "{kind}");
    }
}

#[test]
fn an_array_that_was_stopped_needs_no_file() {
    let folder = folder();
    let stopped = new_tank(&folder);
    let file = files(&folder).remove(0);
    stopped.host.stop_array("tank").expect("unused");
    drop(stopped);
    std::fs::create_dir(&file).expect("room");
    let next = found(&folder, &DRIVES[..3]);
    next.host.assemble();
    next.host
        .start_array("tank", false)
        .expect("it was stopped");
    assert_eq!(suspects(&next), 0);
}

/// As if a flush had been asked for so long before `killed` by the file's own clock.
fn flush_since(folder: &TempDir, age: Duration) {
    let path = files(folder).remove(0);
    let up = drive::since_boot().expect("it is up");
    let began = Duration::from_nanos(word(&path, CLOCK));
    let at = up.saturating_sub(age).saturating_sub(began);
    let at = u64::try_from(at.as_nanos()).expect("years");
    let written = file(folder).write_all_at(&at.max(1).to_ne_bytes(), FLUSHING);
    written.expect("memory");
}

#[test]
fn a_flush_that_was_under_way_is_a_doubt_unless_it_ended_at_once() {
    for (age_ms, trusted) in [(0, true), (1_500, false)] {
        let folder = folder();
        // The clock of a process is no older than the process.
        wait_until("a second or two", || {
            units::Clock::now(&units::MonotonicClock).0 > 2_000_000_000
        });
        killed(&folder);
        flush_since(&folder, Duration::from_millis(age_ms));
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(suspects(&next) == 0, trusted, "{age_ms} ms");
    }
}

#[test]
fn what_a_flush_did_is_judged_by_when_the_drives_were_locked() {
    let folder = folder();
    killed(&folder);
    flush_since(&folder, Duration::ZERO);
    let next = found(&folder, &DRIVES[..3]);
    std::thread::park_timeout(Duration::from_millis(1_100));
    next.host.assemble();
    next.host.start_array("tank", false).expect("all are here");
    assert_eq!(suspects(&next), 0);
}

#[test]
fn trust_is_taken_from_files_of_other_users_that_can_be_opened() {
    let folder = folder();
    killed(&folder);
    let file = files(&folder).remove(0);
    let theirs = folder.path().join("garboard-12345");
    std::fs::create_dir(&theirs).expect("room");
    let copy = theirs.join(file.file_name().expect("it has one"));
    std::fs::copy(&file, &copy).expect("room");
    assert_ne!(word(&copy, TRUST), 0);
    let next = bench(&folder);
    start(&next, &DRIVES[..3]);
    assert_eq!(word(&copy, TRUST), 0);
    assert_eq!(suspects(&next), 0);
}

#[test]
fn a_region_map_that_somebody_has_erased_is_not_taken_for_that_of_a_new_array() {
    let folder = folder();
    killed(&folder);
    // As after a power failure.
    std::fs::remove_file(files(&folder).remove(0)).expect("ours");
    let next = found(&folder, &DRIVES[..3]);
    let area = next.superblock("one").layout.region_map;
    let zeroes = vec![0; units::bytes_usize(area.length)];
    for name in &DRIVES[..3] {
        let drive = Arc::clone(&next.host.state().drives[*name].drive);
        drive.write(area.offset, &zeroes).expect("it is there");
    }
    next.host.assemble();
    next.host.start_array("tank", false).expect("all are here");
    let regions = next.superblock("one").regions().count();
    assert_eq!(suspects(&next), regions, "nobody can tell");
}
