//! Guests that leave their memory alone while it is written from: whole stripes go to the drives
//! from there, and nothing is lost that others would not lose.

use std::cell::RefCell;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use array::Patience;
use array::format::Superblock;
use control::Engine;
use control::request::Level;
use control::view::ArrayState;
use drive::Fault;
use tempfile::TempDir;
use units::{Clock, MonotonicClock};

use super::begun::{BUFFERS, CHUNK_SECTORS, DRIVES, TABLE, bench, chunk, file, new_tank, start};
use super::guests::Guest;
use super::unwritten::counted;
use super::{Bench, MIB, export_of, volume_of, wait_until};

/// All data of a stripe.
const STRIPE: usize = 128 << 10;
const CHUNK: usize = 64 << 10;

/// A guest of a new volume that promises to leave its memory alone.
fn guest(bench: &Bench) -> Guest {
    let mut volume = volume_of("v", "tank", MIB);
    volume.stable_buffers = true;
    bench.host.create_volume(&volume).expect("room");
    connect(bench)
}

fn connect(bench: &Bench) -> Guest {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    Guest::connect(&bench.path("e.sock"))
}

fn fill_stripe(guest: &mut Guest, byte: u8) {
    guest.begin_fill_all(0, byte, STRIPE);
    guest.wait();
}

#[test]
fn whole_stripes_of_a_guest_that_leaves_its_memory_alone_are_not_copied() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let bench = new_tank(&folder);
    let mut guest = guest(&bench);
    let before = counted(&bench, "array_copied_bytes");
    fill_stripe(&mut guest, 0x22);
    assert_eq!(counted(&bench, "array_borrowed_writes"), 1);
    assert_eq!(counted(&bench, "array_copied_bytes"), before);
    let superblock = bench.superblock("one");
    let found = [0, 1, 2].map(|role| chunk(&bench, &superblock, role).1);
    assert_eq!(found, [0x22, 0x22, 0]);
    guest.fill(0, 0x33);
    assert_eq!(counted(&bench, "array_borrowed_writes"), 1, "a part of one");
    assert_eq!(counted(&bench, "array_copied_bytes"), before + 4096);
    assert_eq!(guest.read(0), [0x33; 4096]);
    assert_eq!(guest.read(8), [0x22; 4096]);
}

#[test]
fn copies_of_a_guest_that_leaves_its_memory_alone_are_written_from_there() {
    let bench = Bench::tank_of(Level::Raid1, &["one", "two"], crate::Tuning::default());
    let mut guest = guest(&bench);
    guest.fill(16, 0x44);
    assert_eq!(counted(&bench, "array_borrowed_writes"), 1);
    assert_eq!(counted(&bench, "array_copied_bytes"), 0);
    for member in [0, 1] {
        assert_eq!(guest.read(16), [0x44; 4096]);
        if member == 0 {
            bench.host.fail_member("tank", 0).expect("one is left");
        }
    }
}

/// As if the engine was killed in the middle of a write of stripe 0, which was full of 0x11: role 0
/// has got 0x22, the others have not.
fn kill_half_way(killed: Bench, folder: &TempDir) -> Superblock {
    let superblock = killed.superblock("one");
    let (data, _) = chunk(&killed, &superblock, 0);
    let path = killed.path(data);
    drop(killed);
    let drive = std::fs::File::options().write(true).open(path);
    let drive = drive.expect("it is there");
    let offset = superblock.layout.data.offset;
    drive.write_all_at(&[0x22; CHUNK], offset).expect("room");
    let file = file(folder);
    let place = |number: u64| (BUFFERS + number * (64 << 10)) >> 12;
    let blocks = CHUNK_SECTORS * 512 / superblock.geometry.block_size().bytes();
    let words = [
        (1 << 8) | 4 | 1,
        0,
        blocks,
        0b111,
        (place(1) << 32) | place(0),
        place(2),
    ];
    for (word, offset) in words.into_iter().zip((TABLE..).step_by(8)) {
        let written = file.write_all_at(&u64::to_ne_bytes(word), offset);
        written.expect("room");
    }
    superblock
}

fn killed_half_way() -> (Arc<TempDir>, Superblock, Bench) {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let killed = new_tank(&folder);
    fill_stripe(&mut guest(&killed), 0x11);
    let superblock = kill_half_way(killed, &folder);
    let next = bench(&folder);
    (folder, superblock, next)
}

#[test]
fn rows_that_were_half_written_at_a_kill_agree_again() {
    let (_folder, superblock, next) = killed_half_way();
    start(&next, &DRIVES[..3]);
    let found = [0, 1, 2].map(|role| chunk(&next, &superblock, role).1);
    assert_eq!(found, [0x22, 0x11, 0x33]);
    assert!(next.array("tank").lost.is_none());
    let mut guest = connect(&next);
    assert_eq!(guest.read(0), [0x22; 4096], "new");
    assert_eq!(guest.read(CHUNK_SECTORS), [0x11; 4096], "or old");
}

#[test]
fn what_a_member_had_of_them_that_is_gone_is_lost_until_the_guest_writes_it_again() {
    let (_folder, superblock, next) = killed_half_way();
    let (data, _) = chunk(&next, &superblock, 0);
    let others: Vec<&str> = DRIVES[..3].iter().copied().filter(|&n| n != data).collect();
    start(&next, &others);
    assert_eq!(chunk(&next, &superblock, 2).1, 0x11, "as of zeroes");
    let lost = next.array("tank").lost.expect("some is");
    assert_eq!(lost.bytes, CHUNK_SECTORS * 512);
    let guest = RefCell::new(connect(&next));
    guest.borrow_mut().ask_read(0);
    wait_until("an error", || guest.borrow_mut().answer() == Some(1));
    let mut guest = guest.into_inner();
    assert_eq!(guest.read(CHUNK_SECTORS), [0x11; 4096], "it is here");
    fill_stripe(&mut guest, 0x44);
    assert_eq!(guest.read(0), [0x44; 4096]);
    assert!(next.array("tank").lost.is_none());
    assert_eq!(next.array("tank").state, ArrayState::Degraded);
}

/// Where a second region of memory is told to lie.
const ANOTHER: u64 = 1 << 40;

#[test]
fn memory_is_taken_back_only_when_a_drive_that_hung_has_let_go_of_it() {
    let all = |guest: &Guest| guest.front_end.set_memory(&guest.memory());
    let one = |guest: &Guest| guest.front_end.remove_memory(&guest.memory(), ANOTHER);
    for take_back in [all, one] {
        let bench = Bench::patient(Patience {
            late: 10,
            ..Patience::default()
        });
        let mut guest = guest(&bench);
        let memory = guest.memory();
        guest.front_end.add_memory(&memory, ANOTHER).expect("taken");
        fill_stripe(&mut guest, 0x11);
        let hangs = Duration::from_secs(2);
        bench.inject("two", Fault::Delay(hangs));
        let began = MonotonicClock.now();
        fill_stripe(&mut guest, 0x22);
        let has_hung = || MonotonicClock.now().since(began) >= hangs;
        assert!(!has_hung(), "answered without it");
        take_back(&guest).expect("taken back");
        assert!(has_hung(), "not before its drive has answered");
        assert_eq!(guest.read(0), [0x22; 4096]);
    }
}
