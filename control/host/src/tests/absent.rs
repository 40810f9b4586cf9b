//! Members that are not here when the log is done again: they are out before that.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use array::format::{ArrayConfig, ExclusionCause, MemberState};
use control::request::{ArrayModify, Level, WriteHole};
use control::view::{self, ArrayState};
use control::{Engine, ErrorKind};
use units::{DriveIndex, Role, StripeIndex, bytes_usize};

use super::begun::{self, DRIVES};
use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::records;

const ALL: [&str; 7] = ["one", "two", "three", "four", "five", "six", "seven"];
const SECTORS: std::ops::Range<u64> = 0..4096;

/// An array of files that was killed when its last member was out and its guest had written for a
/// while. All others are here again, but for the first.
fn killed(level: Level, members: usize) -> Bench {
    let bench = Bench::new();
    let members = &ALL[..members];
    members.iter().for_each(|name| bench.file(name));
    bench.create("tank", level, members);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let last = u16::try_from(members.len() - 1).expect("few");
    bench.host.fail_member("tank", last).expect("one may fail");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for sector in SECTORS.step_by(64) {
        guest.fill(sector, 0x11);
    }
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let next = Bench::on(folder);
    for name in &members[1..members.len() - 1] {
        next.reopen(name, "").expect("a file");
    }
    next.host.assemble();
    next
}

/// An array of files that logs everything, which was killed when its guest had written for a
/// while. All members are here again, and know nothing else than what is on them.
fn killed_strict(level: Level) -> Bench {
    let bench = Bench::new();
    let members = &ALL[..4];
    members.iter().for_each(|name| bench.file(name));
    bench.create("tank", level, members);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let strict = ArrayModify {
        write_hole: Some(WriteHole::Strict),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &strict).expect("an option");
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for sector in SECTORS.step_by(64) {
        guest.fill(sector, 0x11);
    }
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let next = Bench::on(folder);
    for name in members {
        next.reopen(name, "").expect("a file");
    }
    next.host.assemble();
    next
}

/// The newest record on a drive.
fn record(bench: &Bench, drive: &str) -> ArrayConfig {
    let drive = Arc::clone(&bench.host.state().drives[drive].drive);
    let found = records::read(DriveIndex(0), &drive).expect("a file");
    found.config().expect("a record").clone()
}

/// Why a member is out.
fn cause(config: &ArrayConfig, member: usize) -> Option<ExclusionCause> {
    match config.members[member].state {
        MemberState::Excluded { cause, .. } => Some(cause),
        MemberState::InSync | MemberState::Rebuilding { .. } | MemberState::Missing => None,
    }
}

/// A drive holds something else than what is done again, and does not take that: a start fails when
/// others have taken it. Gives its file, and what it held.
fn take_nothing(bench: &Bench, drive: &str) -> (std::fs::File, Vec<u8>) {
    let layout = bench.superblock(drive).layout;
    let mut file = std::fs::File::options();
    let file = file.read(true).write(true).open(bench.path(drive));
    let file = file.expect("a file");
    let mut held = vec![0; bytes_usize(layout.data.length)];
    let read = file.read_exact_at(&mut held, layout.data.offset);
    read.expect("a file");
    let written = file.write_all_at(&vec![0xEE; held.len()], layout.data.offset);
    written.expect("room");
    for area in [layout.data, layout.bad_ranges] {
        let (offset, length) = (area.offset, area.length);
        bench.inject(drive, drive::Fault::Unwritable { offset, length });
    }
    (file, held)
}

#[test]
fn who_is_not_here_is_out_before_the_log_is_done_again() {
    let bench = killed(Level::Raid6, 5);
    let before = record(&bench, "two");
    assert_eq!(cause(&before, 0), None);
    let (file, held) = take_nothing(&bench, "two");
    let refused = bench.host.start_array("tank", false);
    let refused = refused.expect_err("it takes nothing");
    assert!(refused.to_string().contains("its log holds"), "{refused}");
    for name in ["two", "three", "four"] {
        let config = record(&bench, name);
        assert_eq!(cause(&config, 0), Some(ExclusionCause::Absent), "{name}");
        assert_eq!(config.update.0, before.update.0 + 1, "{name}");
        assert_eq!(config.log_from, before.log_from, "the log counts on");
    }

    // It is here again, and of no account before it has what was done without it.
    bench.host.state().drives["two"].drive.clear_faults();
    let data = bench.superblock("two").layout.data;
    file.write_all_at(&held, data.offset).expect("room");
    bench.reopen("one", "").expect("a file");
    bench.host.assemble();
    let started = bench.host.start_array("tank", false);
    assert_eq!(started.expect("enough").state, ArrayState::Degraded);
    wait_until("it is in sync", || {
        let one = &bench.array("tank").members[0];
        one.state == view::MemberState::Online && one.drive.as_deref() == Some("one")
    });
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for sector in SECTORS.step_by(64) {
        assert_eq!(guest.read(sector), [0x11; 4096], "{sector}");
    }
}

/// A drive takes no records.
fn refuse_records(bench: &Bench, drive: &str) {
    for area in bench.superblock(drive).layout.config {
        let (offset, length) = (area.offset, area.length);
        bench.inject(drive, drive::Fault::Unwritable { offset, length });
    }
}

#[test]
fn who_does_not_take_that_record_is_out_by_the_next_one() {
    let bench = killed(Level::Raid7, 7);
    let before = record(&bench, "three");
    refuse_records(&bench, "two");
    let _ = take_nothing(&bench, "three");
    let refused = bench.host.start_array("tank", false);
    refused.expect_err("one takes nothing of what is done again");
    let after = record(&bench, "three");
    assert_eq!(after, record(&bench, "six"));
    assert_eq!(after.log_from, before.log_from);
    assert_eq!(cause(&after, 0), Some(ExclusionCause::Absent));
    assert_eq!(cause(&after, 1), Some(ExclusionCause::WriteError));
    let MemberState::Excluded { since, missed, .. } = after.members[1].state else {
        unreachable!()
    };
    assert_eq!(since.0, before.update.0 + 2);
    assert_eq!(missed.held, before.name_of_update(), "what it has");
    assert_eq!(cause(&record(&bench, "two"), 0), None);
}

#[test]
fn nothing_is_done_again_where_too_few_take_that_record() {
    let bench = killed(Level::Raid6, 5);
    refuse_records(&bench, "two");
    let refused = bench.host.start_array("tank", false);
    let refused = refused.expect_err("three are out of five");
    assert_eq!(refused.kind, ErrorKind::Degraded);
    assert!(refused.message.contains("takes no records"), "{refused}");
    // Once it does, the record that the others have is as good as any.
    bench.host.state().drives["two"].drive.clear_faults();
    let started = bench.host.start_array("tank", false);
    assert_eq!(started.expect("enough").state, ArrayState::Degraded);
    let config = record(&bench, "two");
    assert_eq!(cause(&config, 0), Some(ExclusionCause::Absent));
    assert_eq!(cause(&config, 1), None);
}

/// The array could not start without it, when the one that is not here now is back.
#[test]
fn who_cannot_be_done_without_and_takes_no_record_leaves_all_as_they_were() {
    let bench = killed(Level::Raid6, 5);
    let before = record(&bench, "three");
    let _ = take_nothing(&bench, "two");
    let length = 1 << 30;
    bench.inject("two", drive::Fault::Unwritable { offset: 0, length });
    let refused = bench.host.start_array("tank", false);
    let refused = refused.expect_err("the others are not enough");
    assert!(
        refused.to_string().contains("takes no records"),
        "{refused}"
    );
    for name in ["two", "three", "four"] {
        assert_eq!(record(&bench, name).update, before.update, "{name}");
    }
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let next = Bench::on(folder);
    for name in ["one", "three", "four"] {
        next.reopen(name, "").expect("a file");
    }
    next.host.assemble();
    let started = next.host.start_array("tank", false);
    assert_eq!(started.expect("enough").state, ArrayState::Degraded);
}

#[test]
fn a_drive_without_room_is_not_left_out() {
    let bench = killed(Level::Raid7, 7);
    let before = record(&bench, "three");
    bench.inject("two", drive::Fault::NoSpace);
    let refused = bench.host.start_array("tank", false);
    let refused = refused.expect_err("it has no room");
    assert_eq!(refused.kind, ErrorKind::Full, "{refused}");
    let after = record(&bench, "three");
    assert_eq!((after.update, cause(&after, 1)), (before.update, None));
}

/// The first stripe has parity on the member that is out, so nothing of it is on the log. Should
/// the power fail after a start was killed that has left out one more, memory is gone.
#[test]
fn what_only_memory_tells_is_in_its_place_before_anybody_is_left_out() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = begun::bench(&folder);
    DRIVES.iter().for_each(|name| bench.file(name));
    bench.create("tank", Level::Raid6, &DRIVES);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let superblock = bench.superblock("one");
    let geometry = superblock.geometry;
    let of_role = |role| geometry.member(StripeIndex(0), Role(role));
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let failed = bench.host.fail_member("tank", of_role(4).0);
    failed.expect("one may fail");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    // Some of each chunk is in the log at the end, though it has room for few.
    for sector in SECTORS.step_by(64).chain(SECTORS.step_by(128)) {
        guest.fill(sector, 0x11);
    }
    drop((guest, bench));
    begun::begin_of(&begun::file(&folder), 0b1001);

    let next = begun::bench(&folder);
    let (away, fails) = (of_role(1), of_role(2));
    let here = (0..5).filter(|at| ![away.at(), of_role(4).at()].contains(at));
    for at in here {
        next.open_file(DRIVES[at]).expect("a file");
    }
    next.host.assemble();
    let (file, held) = take_nothing(&next, DRIVES[fails.at()]);
    let refused = next.host.start_array("tank", false);
    let refused = refused.expect_err("it takes nothing");
    assert!(refused.to_string().contains("its log holds"), "{refused}");
    let config = record(&next, DRIVES[fails.at()]);
    let out = cause(&config, away.at());
    assert_eq!(out, Some(ExclusionCause::Absent));
    assert_eq!(begun::chunk(&next, &superblock, 0).1, 0xD0);
    assert_eq!(begun::chunk(&next, &superblock, 3).1, 0xB0);

    // Who starts at last says what it may have cost.
    let name = DRIVES[fails.at()];
    next.host.state().drives[name].drive.clear_faults();
    let data = superblock.layout.data.offset;
    file.write_all_at(&held, data).expect("room");
    next.open_file(DRIVES[away.at()]).expect("a file");
    next.host.assemble();
    let stopped = next.array("tank");
    assert_eq!(stopped.torn_without, [0; 0], "there is nobody to wait for");
    let started = next.host.start_array("tank", false).expect("enough");
    let said = started.warnings.join(" ");
    let without = format!("started without member {} after", away.0);
    assert!(said.contains(&without), "{said}");
    let config = record(&next, DRIVES[fails.at()]);
    assert_eq!(
        config.unfinished_since.0, 0,
        "this one has not come to nothing"
    );
}

/// One of whom the log cannot tell, and one who misses what only memory tells: without memory that
/// one would speak for rows of which the others have the new half.
#[test]
fn who_misses_what_only_memory_tells_is_left_out_by_the_same_record() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = begun::bench(&folder);
    ALL.iter().for_each(|name| bench.file(name));
    bench.create("tank", Level::Raid7, &ALL);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let geometry = bench.superblock("one").geometry;
    let of_role = |stripe, role| geometry.member(StripeIndex(stripe), Role(role)).at();
    let (out, misses, parity) = (of_role(0, 6), of_role(0, 0), of_role(0, 4));
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let failed = bench
        .host
        .fail_member("tank", u16::try_from(out).expect("few"));
    failed.expect("one may fail");
    // A stripe with data on the one that is out, so that it is logged, and on the one that misses
    // something, which has nothing to do with what is written to another chunk.
    let place = (1..64).flat_map(|stripe| (0..4).map(move |role| (stripe, role)));
    let mut place = place.filter(|&(stripe, role)| {
        let data: Vec<usize> = (0..4).map(|role| of_role(stripe, role)).collect();
        let written = of_role(stripe, role);
        let is_other = ![out, misses, parity].contains(&written);
        data.contains(&out) && data.contains(&misses) && is_other
    });
    let (stripe, role) = place.next().expect("members take turns");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    guest.fill((stripe * 4 + u64::from(role)) * begun::CHUNK_SECTORS, 0x22);
    drop((guest, bench));
    begun::begin_of(&begun::file(&folder), 0b1_0001);

    let fails = of_role(stripe, role);
    let mut others = (4..7).map(|role| of_role(stripe, role));
    let away = others.find(|at| ![out, misses, parity, fails].contains(at));
    let away = away.expect("three have parity");
    let next = begun::bench(&folder);
    for at in (0..ALL.len()).filter(|at| ![out, misses, away].contains(at)) {
        next.open_file(ALL[at]).expect("a file");
    }
    next.host.assemble();
    let _ = take_nothing(&next, ALL[fails]);
    let refused = next.host.start_array("tank", false);
    let refused = refused.expect_err("it takes nothing");
    assert!(refused.to_string().contains("its log holds"), "{refused}");
    let config = record(&next, ALL[parity]);
    for at in [away, misses] {
        assert_eq!(cause(&config, at), Some(ExclusionCause::Absent), "{at}");
    }
}

/// The log of a group that cannot be read is left to the resync, all being here. Before that is
/// through, a strict array is no better than another one.
#[test]
fn a_strict_array_whose_log_was_not_done_again_is_not_believed_before_it_is_resynced() {
    let second = killed_strict(Level::Raid5);
    let log = second.superblock("one").layout.log;
    let (offset, length) = (log.offset, log.length / 2);
    second.inject("two", drive::Fault::Media { offset, length });
    // The resync takes its time.
    for name in &ALL[..4] {
        second.inject(name, drive::Fault::Delay(Duration::from_millis(500)));
    }
    let started = second.host.start_array("tank", false);
    assert!(!started.expect("all are here").jobs.is_empty());
    let folder = Arc::clone(&second.folder);
    drop(second);
    let third = Bench::on(Arc::clone(&folder));
    for name in ["one", "three", "four"] {
        third.reopen(name, "").expect("a file");
    }
    third.host.assemble();
    assert_eq!(third.array("tank").torn_without, [1]);
    drop(third);

    let third = Bench::on(folder);
    for name in &ALL[..4] {
        third.reopen(name, "").expect("a file");
    }
    third.host.assemble();
    third.host.start_array("tank", false).expect("all are here");
    wait_until("it is resynced", || third.array("tank").jobs.is_empty());
    let fourth = third.next();
    for name in ["one", "three", "four"] {
        fourth.reopen(name, "").expect("a file");
    }
    fourth.host.assemble();
    assert_eq!(fourth.array("tank").torn_without, [0; 0]);
    fourth.host.start_array("tank", false).expect("enough");
    all_is_there(&fourth);
}

/// What the guest has written is there.
fn all_is_there(bench: &Bench) {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for sector in SECTORS.step_by(64) {
        assert_eq!(guest.read(sector), [0x11; 4096], "{sector}");
    }
}
