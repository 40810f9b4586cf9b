//! Drives that were away between a kill and the next start, or of which the killed engine tells
//! that they may have lost something: that is taken from the others, and not made the truth.

use std::os::unix::fs::FileExt;

use array::MapState;
use array::format::Superblock;
use control::Engine;
use control::view::ArrayState;
use drive::Fault;
use tempfile::TempDir;
use units::{Role, StripeIndex, bytes_u64};

use super::begun::{BLOCK, BUFFERS, CHUNK_SECTORS, DRIVES, begin, bench, chunk, file, start};
use super::guests::Guest;
use super::trust::{FLUSHING, GONE, UNFLUSHED, WRITTEN, folder, killed, map};
use super::{Bench, export_of, wait_until};

/// Where the head of a life's file says what shows that drives were not away: docs/on-disk.md.
const APPEARANCES: u64 = 32 * 8;

/// What happens between two engines.
type Spoil<'a> = &'a dyn Fn(&TempDir, &Superblock);

fn guest(bench: &Bench) -> Guest {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    Guest::connect(&bench.path("e.sock"))
}

/// The drive with this role in the first stripe.
fn drive_of(superblock: &Superblock, role: u8) -> &'static str {
    DRIVES[superblock.geometry.member(StripeIndex(0), Role(role)).at()]
}

/// A drive was away, and has lost what was written last to its chunk of the first stripe.
fn loses(folder: &TempDir, superblock: &Superblock, drive: &str) {
    let (path, other) = (folder.path().join(drive), folder.path().join("other"));
    std::fs::copy(&path, &other).expect("room");
    let file = std::fs::File::options().write(true).open(&other);
    let lost = file.and_then(|file| file.write_all_at(&[0; BLOCK], superblock.layout.data.offset));
    lost.expect("room");
    std::fs::rename(&other, &path).expect("one file system");
}

/// Sets words of what the killed engine tells.
fn tell(folder: &TempDir, words: &[(u64, u64)]) {
    for (offset, word) in words {
        let written = file(folder).write_all_at(&word.to_ne_bytes(), *offset);
        written.expect("memory");
    }
}

/// All drives are members, and what was in use is resynced.
fn assert_all_stay(bench: &Bench, what: &str) {
    let map = map(bench);
    let is_member = |member: &array::MapMember| member.state == MapState::InSync;
    assert!(map.members.iter().all(is_member), "{what}");
    assert!(map.suspects.count() > 0, "{what}");
}

fn is_in_order(bench: &Bench) -> bool {
    let tank = bench.array("tank");
    tank.jobs.is_empty() && tank.state == ArrayState::Optimal
}

#[test]
fn what_a_drive_has_lost_that_was_away_is_taken_from_the_others() {
    for role in 0..3 {
        let folder = folder();
        let superblock = killed(&folder);
        loses(&folder, &superblock, drive_of(&superblock, role));
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(map(&next).suspects.count(), 0, "the others agree");
        let mut guest = guest(&next);
        let read = |guest: &mut Guest| [guest.read(0)[0], guest.read(CHUNK_SECTORS)[0]];
        assert_eq!(read(&mut guest), WRITTEN, "role {role}");
        wait_until("its return", || is_in_order(&next));
        assert_eq!(read(&mut guest), WRITTEN, "role {role}, filled");
        let chunks = [0, 1, 2].map(|role| chunk(&next, &superblock, role).1);
        assert_eq!(chunks, [0x11, 0x44, 0x11 ^ 0x44], "role {role}");
    }
}

/// It looks as it did, and has lost what was written last.
#[test]
fn what_the_killed_engine_tells_of_a_member_is_enough() {
    type Words = fn(u64) -> Vec<(u64, u64)>;
    let cases: [(&str, Words); 3] = [
        ("a flush failed", |member| vec![(UNFLUSHED, 1 << member)]),
        ("gone", |member| vec![(GONE + member * 16 + 8, 1 << 63)]),
        ("a flush hung", |member| {
            vec![(FLUSHING + 64, 1), (FLUSHING + 64 + 16, member + 1)]
        }),
    ];
    for (what, words) in cases {
        let folder = folder();
        let superblock = killed(&folder);
        let member = superblock.geometry.member(StripeIndex(0), Role(1));
        let drive = std::fs::File::options()
            .write(true)
            .open(folder.path().join(DRIVES[member.at()]));
        let lost = drive.and_then(|it| it.write_all_at(&[0; BLOCK], superblock.layout.data.offset));
        lost.expect("room");
        tell(&folder, &words(u64::from(member.0)));
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_eq!(map(&next).suspects.count(), 0, "{what}: the others agree");
        let mut guest = guest(&next);
        assert_eq!(guest.read(CHUNK_SECTORS)[0], WRITTEN[1], "{what}");
        wait_until("its return", || is_in_order(&next));
        assert_eq!(guest.read(CHUNK_SECTORS)[0], WRITTEN[1], "{what}, filled");
    }
}

/// By what the killed engine tells, too.
#[test]
fn where_more_may_have_lost_something_all_stay() {
    let cases: [(&str, &[(u64, u64)]); 3] = [
        ("two failed a flush", &[(UNFLUSHED, 0b11)]),
        (
            "flushes of two hung",
            &[(FLUSHING, 1), (FLUSHING + 8, 1), (FLUSHING + 16, 2)],
        ),
        ("one of nobody knows whom", &[(FLUSHING, 1)]),
    ];
    for (what, words) in cases {
        let folder = folder();
        killed(&folder);
        tell(&folder, words);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_all_stay(&next, what);
    }
}

#[test]
fn what_had_begun_is_written_to_the_others_first() {
    let folder = folder();
    let superblock = killed(&folder);
    let file = file(&folder);
    begin(&file);
    // And its parity.
    let parity = file.write_all_at(&[0xD0 ^ 0x44; BLOCK], BUFFERS + bytes_u64(BLOCK));
    parity.expect("memory");
    loses(&folder, &superblock, drive_of(&superblock, 1));
    let next = bench(&folder);
    start(&next, &DRIVES[..3]);
    let mut guest = guest(&next);
    assert_eq!(guest.read(0)[0], 0xD0);
    assert_eq!(guest.read(CHUNK_SECTORS)[0], 0x44);
    wait_until("its return", || is_in_order(&next));
    assert_eq!(guest.read(CHUNK_SECTORS)[0], 0x44);
}

#[test]
fn a_drive_that_was_away_stays_where_it_is_needed() {
    let two = |folder: &TempDir, superblock: &Superblock| {
        loses(folder, superblock, "two");
        loses(folder, superblock, "three");
    };
    let unknown = |folder: &TempDir, superblock: &Superblock| {
        loses(folder, superblock, "two");
        tell(folder, &[(APPEARANCES, 0)]);
    };
    let nothing = |folder: &TempDir, _: &Superblock| {
        tell(folder, &[(APPEARANCES, 0)]);
    };
    let cases: [(&str, Spoil<'_>); 3] = [
        ("one is not enough", &two),
        ("it was hardly away", &nothing),
        ("another one may have been away as well", &unknown),
    ];
    for (what, spoil) in cases {
        let folder = folder();
        let superblock = killed(&folder);
        spoil(&folder, &superblock);
        let next = bench(&folder);
        start(&next, &DRIVES[..3]);
        assert_all_stay(&next, what);
    }
}

#[test]
fn a_drive_that_was_away_stays_where_another_one_fails() {
    let folder = folder();
    let superblock = killed(&folder);
    begin(&file(&folder));
    loses(&folder, &superblock, drive_of(&superblock, 1));
    let next = bench(&folder);
    for name in &DRIVES[..3] {
        next.open_file(name).expect("it is there");
    }
    let offset = superblock.layout.data.offset;
    let length = 4096;
    let fault = Fault::Unwritable { offset, length };
    next.inject(drive_of(&superblock, 0), fault);
    next.host.assemble();
    next.host.start_array("tank", false).expect("all are here");
    let map = map(&next);
    let away = superblock.geometry.member(StripeIndex(0), Role(1));
    assert_eq!(map.members[away.at()].state, MapState::InSync);
    assert!(map.suspects.count() > 0);
    assert_eq!(guest(&next).read(CHUNK_SECTORS)[0], 0, "what it has left");
}
