//! What a killed engine had begun is written again by the next one, and by no other.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use array::format::Superblock;
use array::{Patience, Room};
use control::Engine;
use control::request::{ArrayModify, Level};
use drive::Fault;
use tempfile::TempDir;
use units::{Role, StripeIndex, bytes_usize};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::Tuning;
use crate::begun::Lasting;

/// Where the table of the first shard is, and its buffers: docs/design/003-begun-writes.md.
pub(super) const TABLE: u64 = 64 << 10;
pub(super) const BUFFERS: u64 = TABLE + (64 << 10);
pub(super) const BLOCK: usize = 4096;
pub(super) const CHUNK_SECTORS: u64 = 128;
pub(super) const DRIVES: [&str; 5] = ["one", "two", "three", "four", "five"];

pub(super) fn lasting(folder: &TempDir) -> Lasting {
    Lasting {
        folder: folder.path().join("lasting"),
        state_dir: folder.path().to_owned(),
    }
}

pub(super) fn bench(folder: &Arc<TempDir>) -> Bench {
    let tuning = Tuning {
        room: Room {
            tickets: 64,
            small_buffers: 128,
            large_buffers: 128,
            // Nobody is read around here: reads are to wait.
            patience: Patience {
                slow: 200,
                ..Patience::default()
            },
            ..Room::default()
        },
        lasting: Some(lasting(folder)),
        ..Tuning::default()
    };
    Bench::tuned(Arc::clone(folder), tuning)
}

pub(super) fn new_tank(folder: &Arc<TempDir>) -> Bench {
    new_tank_of(folder, &DRIVES[..3])
}

fn new_tank_of(folder: &Arc<TempDir>, drives: &[&str]) -> Bench {
    let bench = bench(folder);
    drives.iter().for_each(|name| bench.file(name));
    bench.create("tank", Level::Raid5, drives);
    wait_until("the first resync", || bench.host.jobs().is_empty());
    bench
}

/// The files of lives.
pub(super) fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lasting(folder).folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let is_life = |path: &PathBuf| path.extension().is_some() && !path.is_symlink();
    let lives = paths.filter(is_life);
    lives.collect()
}

/// The one file of the last life.
pub(super) fn file(folder: &TempDir) -> File {
    let found = files(folder);
    assert_eq!(found.len(), 1, "{found:?}");
    let mut options = File::options();
    options.read(true).write(true);
    options.open(&found[0]).expect("it is there")
}

/// As if a ticket had begun to write the first block of role 0, and the parity of its row, in the
/// first stripe.
pub(super) fn begin(file: &File) {
    begin_of(file, 0b101);
}

/// As `begin`, of these two roles.
pub(super) fn begin_of(file: &File, roles: u64) {
    let words = [
        (1 << 8) | 1,
        0,
        1,
        roles,
        (((BUFFERS >> 12) + 1) << 32) | (BUFFERS >> 12),
    ];
    file.write_all_at(&[0xD0; BLOCK], BUFFERS).expect("room");
    let second = BUFFERS + units::bytes_u64(BLOCK);
    file.write_all_at(&[0xB0; BLOCK], second).expect("room");
    for (word, offset) in words.into_iter().zip((TABLE..).step_by(8)) {
        file.write_all_at(&u64::to_ne_bytes(word), offset)
            .expect("room");
    }
}

/// The first bytes of the chunk of a role in the first stripe, and the drive that has it.
pub(super) fn chunk(bench: &Bench, superblock: &Superblock, role: u8) -> (&'static str, u8) {
    let member = superblock.geometry.member(StripeIndex(0), Role(role));
    let name = DRIVES[member.at()];
    let drive = std::fs::read(bench.path(name)).expect("a file");
    (name, drive[bytes_usize(superblock.layout.data.offset)])
}

pub(super) fn start(bench: &Bench, drives: &[&str]) {
    for name in drives {
        bench.open_file(name).expect("it is there");
    }
    bench.host.assemble();
    bench
        .host
        .start_array("tank", false)
        .expect("enough members");
}

#[test]
fn what_was_begun_is_written_again_when_a_member_is_gone() {
    super::on_both_kinds(|| {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let killed = new_tank(&folder);
        let superblock = killed.superblock("one");
        let (data, before) = chunk(&killed, &superblock, 0);
        drop(killed);
        assert_eq!(before, 0);
        begin(&file(&folder));
        let last = files(&folder);
        let next = bench(&folder);
        let others: Vec<&str> = ["one", "two", "three"]
            .into_iter()
            .filter(|&n| n != data)
            .collect();
        start(&next, &others);
        let (parity, content) = chunk(&next, &superblock, 2);
        assert_ne!(parity, data);
        assert_eq!(content, 0xB0, "parity of what its lost member was to get");
        assert_eq!(chunk(&next, &superblock, 0).1, 0, "its drive is not here");
        let now = files(&folder);
        assert_eq!(now.len(), 1, "{now:?}");
        assert_ne!(now, last, "every life has its own");
        next.host.stop_array("tank").expect("clean");
        assert_eq!(
            files(&folder),
            Vec::<PathBuf>::new(),
            "nothing is left to be done"
        );
    });
}

#[test]
fn a_stop_leaves_what_a_hold_that_was_given_up_had_begun_to_the_next_engine() {
    super::on_both_kinds(|| {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let bench = new_tank_of(&folder, &DRIVES);
        let modify = ArrayModify {
            hold_timeout_ms: Some(1000),
            ..ArrayModify::default()
        };
        bench.host.modify_array("tank", &modify).expect("it runs");
        let volume = volume_of("v", "tank", MIB);
        bench.host.create_volume(&volume).expect("room");
        let export = export_of(&bench, "e", "v");
        bench.host.export_named(&export).expect("a socket");
        let guest = RefCell::new(Guest::connect(&bench.path("e.sock")));
        guest.borrow_mut().fill(0, 0x11);
        guest.borrow_mut().fill(CHUNK_SECTORS, 0x44);
        let superblock = bench.superblock("one");
        let names = [0, 1, 2, 3, 4].map(|role| chunk(&bench, &superblock, role).0);
        // The old data, which parity is computed from, is on its way when two others go.
        bench.inject(names[0], Fault::Delay(Duration::from_millis(500)));
        guest.borrow_mut().begin_fill(0, 0x22);
        std::thread::park_timeout(Duration::from_millis(100));
        bench.inject(names[2], Fault::Pulled);
        bench.inject(names[4], Fault::Pulled);
        wait_until("an error", || guest.borrow_mut().answer() == Some(1));
        let torn = [0, 4].map(|role| chunk(&bench, &superblock, role).1);
        assert_eq!(torn, [0x22, 0x11 ^ 0x44]);
        let here = [0, 2, 3, 4].map(|role: usize| names[role]);
        bench.host.shutdown().expect_err("it is not clean");
        drop(bench);
        let next = self::bench(&folder);
        start(&next, &here);
        let (_, parity) = chunk(&next, &superblock, 4);
        assert_eq!(parity, 0x22 ^ 0x44, "what nobody was writing is lost");
    });
}

#[test]
fn what_is_not_of_this_boot_or_not_ours_is_not_written() {
    super::on_both_kinds(|| {
        for spoil in [
            |file: &File| file.write_all_at(&[0xFF; 8], 24).expect("another boot"),
            |file: &File| file.set_len(TABLE).expect("too short"),
            |file: &File| file.write_all_at(&[0xFF; 8], TABLE + 8).expect("no stripe"),
            |file: &File| {
                let all = std::fs::Permissions::from_mode(0o606);
                file.set_permissions(all).expect("anybody's");
            },
        ] {
            let folder = Arc::new(tempfile::tempdir().expect("a folder"));
            let killed = new_tank(&folder);
            let superblock = killed.superblock("one");
            drop(killed);
            let file = file(&folder);
            begin(&file);
            spoil(&file);
            let next = bench(&folder);
            start(&next, &["one", "two", "three"]);
            for role in [0, 2] {
                assert_eq!(chunk(&next, &superblock, role).1, 0, "role {role}");
            }
        }
    });
}

#[test]
fn a_clean_array_has_nothing_to_be_done() {
    super::on_both_kinds(|| {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let bench = new_tank(&folder);
        let superblock = bench.superblock("one");
        let saved = std::fs::read(&files(&folder)[0]).expect("it is there");
        let path = files(&folder).remove(0);
        let next = bench.next();
        drop(next);
        assert_eq!(files(&folder), Vec::<PathBuf>::new());
        // Somebody brings it back.
        std::fs::write(&path, saved).expect("room");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("ours");
        begin(&file(&folder));
        let next = self::bench(&folder);
        start(&next, &["one", "two", "three"]);
        assert_eq!(chunk(&next, &superblock, 0).1, 0);
    });
}

#[test]
fn where_there_is_no_folder_the_array_runs_without() {
    super::on_both_kinds(|| {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        std::fs::write(folder.path().join("lasting"), "in the way").expect("room");
        let bench = bench(&folder);
        for name in ["one", "two", "three"] {
            bench.file(name);
        }
        let tank = bench.create("tank", Level::Raid5, &["one", "two", "three"]);
        let said = tank
            .warnings
            .iter()
            .any(|text| text.contains("not recorded"));
        assert!(said, "{:?}", tank.warnings);
    });
}

#[test]
fn what_engines_left_whose_state_is_gone_is_removed() {
    super::on_both_kinds(|| {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        drop(new_tank(&folder));
        let mut other = lasting(&folder);
        other.sweep();
        assert_eq!(files(&folder).len(), 1, "its state directory is there");
        let link = std::fs::read_dir(&other.folder).expect("a folder");
        let link = link.map(|entry| entry.expect("readable").path());
        let link = link
            .into_iter()
            .find(|path| path.extension().is_some_and(|it| it == "of"))
            .expect("one");
        std::fs::remove_file(&link).expect("ours");
        other.state_dir = folder.path().join("gone");
        std::os::unix::fs::symlink(&other.state_dir, &link).expect("room");
        let locked = file(&folder);
        locked.lock().expect("nobody has it");
        other.sweep();
        assert_eq!(files(&folder).len(), 1, "its engine lives");
        drop(locked);
        let mounts = link.with_extension("ns");
        let ours = std::fs::read_link(&mounts).expect("it is there");
        std::fs::remove_file(&mounts).expect("ours");
        std::os::unix::fs::symlink("mnt:[1]", &mounts).expect("room");
        other.sweep();
        assert_eq!(files(&folder).len(), 1, "it saw other mounts");
        std::fs::remove_file(&mounts).expect("ours");
        std::os::unix::fs::symlink(&ours, &mounts).expect("room");
        other.sweep();
        assert_eq!(files(&folder), Vec::<PathBuf>::new());
        assert!(!link.is_symlink());
    });
}
