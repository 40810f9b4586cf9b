//! Blocks that nobody can tell any more: a rebuild goes on without them, they fail until they are
//! written, over stops and kills, and a bad block that takes no writes keeps no array from
//! starting.

use std::sync::Arc;

use array::format::Superblock;
use control::request::{ArrayCreate, ArrayModify, BackgroundKind, Level, MemberReplace, WriteHole};
use control::view::{ArrayState, JobState, LostRun};
use control::{Engine, ErrorKind};
use drive::Fault;
use units::{Role, StripeIndex};

use super::guests::Guest;
use super::{Bench, MIB, array_of, export_of, volume_of, wait_until};

const ALL: [&str; 3] = ["one", "two", "three"];
/// A chunk.
const CHUNK_SECTORS: u64 = 128;
const BLOCK: u64 = 4096;

/// A tank of three files, and a guest of its one volume.
fn served() -> (Bench, Guest) {
    let bench = Bench::file_tank();
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let guest = connect(&bench);
    (bench, guest)
}

fn connect(bench: &Bench) -> Guest {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let guest = Guest::connect(&bench.path("e.sock"));
    wait_until("the queue is there", || {
        !bench.host.exports()[0].queues.is_empty()
    });
    guest
}

/// The drive that has a role of the first stripe.
fn holder(superblock: &Superblock, role: u8) -> &'static str {
    let member = superblock.geometry.member(StripeIndex(0), Role(role));
    ALL[member.at()]
}

#[test]
fn drives_that_were_members_are_not_blank_any_more() {
    let bench = Bench::file_tank();
    assert_eq!(bench.array("tank").state, ArrayState::Optimal, "new files");
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    for chunk in 0..8 {
        guest.fill(chunk * CHUNK_SECTORS, 0xA5);
    }
    drop(guest);
    bench.host.remove_export("e").expect("served");
    bench.host.destroy_array("tank", true).expect("forced");
    // In another order their parity would not agree.
    bench.create(
        "tank",
        control::request::Level::Raid5,
        &["three", "one", "two"],
    );
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    for chunk in 0..8 {
        let found = guest.read(chunk * CHUNK_SECTORS);
        assert!(found.iter().all(|byte| *byte == 0), "of another volume");
    }
}

#[test]
fn drives_that_somebody_has_written_to_are_not_blank_any_more() {
    let forced: fn(&Bench, &mut ArrayCreate) = |_, create| create.force = true;
    let wiped: fn(&Bench, &mut ArrayCreate) = |bench, _| {
        for name in ["one", "two", "three"] {
            bench.host.wipe_drive(name, true).expect("nobody's");
        }
    };
    let wiped_by_others: fn(&Bench, &mut ArrayCreate) = |bench, create| {
        let refused = bench.host.create_array(create);
        let refused = refused.expect_err("it is not empty");
        assert_eq!(refused.kind, ErrorKind::Unsafe);
        for name in ["one", "two", "three"] {
            let drive = Arc::clone(&bench.host.state().drives[name].drive);
            drive.write(0, &[0; 4096]).expect("room");
        }
    };
    for way in [forced, wiped, wiped_by_others] {
        let bench = Bench::new();
        for name in ["one", "two", "three"] {
            bench.file(name);
            // A file system, as by somebody else.
            let drive = Arc::clone(&bench.host.state().drives[name].drive);
            drive.write(0, &vec![0xA5; 48 << 20]).expect("room");
            let mut block = vec![0; 4096];
            block[0x438..0x43A].copy_from_slice(&[0x53, 0xEF]);
            drive.write(0, &block).expect("room");
        }
        let mut create = array_of("tank", Level::Raid5, &["one", "two", "three"]);
        way(&bench, &mut create);
        bench.host.create_array(&create).expect("free");
        let volume = volume_of("v", "tank", 8 * MIB);
        bench.host.create_volume(&volume).expect("room");
        let mut guest = connect(&bench);
        for chunk in 0..8 {
            let found = guest.read(chunk * CHUNK_SECTORS);
            assert!(found.iter().all(|byte| *byte == 0), "of the file system");
        }
    }
}

/// The status of a read of a block.
fn read_status(guest: &mut Guest, sector: u64) -> u8 {
    guest.ask_read(sector);
    answer_of(guest)
}

fn answer_of(guest: &mut Guest) -> u8 {
    let guest = std::cell::RefCell::new(guest);
    let mut status = None;
    let found = std::cell::RefCell::new(&mut status);
    wait_until("an answer", || {
        let answer = guest.borrow_mut().answer();
        **found.borrow_mut() = answer;
        answer.is_some()
    });
    status.expect("it came")
}

/// The member with the second chunk of the first stripe fails, the first block of the first chunk
/// goes bad, and a new drive is filled.
fn lose(bench: &Bench, unwritable: bool) {
    let superblock = bench.superblock("one");
    let member = superblock.geometry.member(StripeIndex(0), Role(1));
    bench
        .host
        .fail_member("tank", member.0)
        .expect("one may fail");
    let (offset, length) = (superblock.layout.data.offset, BLOCK);
    let bad = holder(&superblock, 0);
    bench.inject(bad, Fault::Media { offset, length });
    if unwritable {
        bench.inject(bad, Fault::Unwritable { offset, length });
    }
    bench.file("four");
    let replace = MemberReplace {
        member: member.0,
        drive: "four".to_owned(),
        force: false,
    };
    bench
        .host
        .replace_member("tank", &replace)
        .expect("it is out");
    wait_until("all members are in sync", || {
        bench.array("tank").state == ArrayState::Optimal
    });
}

fn check_lost(bench: &Bench, guest: &mut Guest) {
    let lost = bench.array("tank").lost.expect("two blocks");
    let run = |offset_bytes| LostRun {
        volume: Some("v".to_owned()),
        offset_bytes,
        bytes: BLOCK,
    };
    assert_eq!(lost.runs, [run(0), run(CHUNK_SECTORS * 512)]);
    assert_eq!(lost.bytes, 2 * BLOCK);
    for sector in [0, CHUNK_SECTORS] {
        assert_eq!(read_status(guest, sector), 1, "sector {sector} is lost");
    }
    assert_eq!(guest.read(8)[0], 0x33, "beside it");
    assert_eq!(guest.read(CHUNK_SECTORS + 8)[0], 0x44, "beside the other");
}

fn fill(guest: &mut Guest) {
    guest.fill(0, 0x11);
    guest.fill(CHUNK_SECTORS, 0x22);
    guest.fill(8, 0x33);
    guest.fill(CHUNK_SECTORS + 8, 0x44);
}

#[test]
fn a_rebuild_goes_on_without_what_is_lost_and_that_fails_until_it_is_written() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        fill(&mut guest);
        lose(&bench, false);
        check_lost(&bench, &mut guest);
        let read_errors = || {
            let members = bench.array("tank").members.into_iter();
            let paces = members.filter_map(|member| member.pace);
            paces.map(|pace| pace.read_errors).max().unwrap_or(0)
        };
        wait_until("the bad block is counted", || read_errors() > 0);
        // Its cell, and what the guest asked of it before it was given up.
        assert!(read_errors() <= 2, "it is one bad block");
        drop(guest);
        let bench = bench.next();
        let first = bench.path("one");
        assert!(first.exists());
        for name in ["one", "two", "three", "four"] {
            bench.open_file(name).expect("it is there");
        }
        bench.host.assemble();
        bench.host.start_array("tank", false).expect("clean");
        let mut guest = connect(&bench);
        check_lost(&bench, &mut guest);
        guest.fill(0, 0x55);
        assert_eq!(guest.read(0)[0], 0x55);
        assert_eq!(read_status(&mut guest, CHUNK_SECTORS), 1, "not written yet");
        guest.fill(CHUNK_SECTORS, 0x66);
        assert_eq!(guest.read(CHUNK_SECTORS)[0], 0x66);
        assert_eq!(bench.array("tank").lost, None);
    });
}

#[test]
fn a_bad_block_that_takes_no_writes_keeps_no_rebuild_and_no_start_from_going_on() {
    for readable in [false, true] {
        keeps_nothing_from_going_on(readable);
    }
}

fn keeps_nothing_from_going_on(readable: bool) {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        let modify = ArrayModify {
            // What was logged stays in the log, and is written again by the next engine.
            write_hole: Some(WriteHole::Strict),
            ..ArrayModify::default()
        };
        bench.host.modify_array("tank", &modify).expect("it runs");
        fill(&mut guest);
        let superblock = bench.superblock("one");
        let bad = holder(&superblock, 0);
        lose(&bench, true);
        check_lost(&bench, &mut guest);
        let folder = std::sync::Arc::clone(&bench.folder);
        drop(guest);
        drop(bench);
        let next = Bench::on(folder);
        for name in ["one", "two", "three", "four"] {
            next.open_file(name).expect("it is there");
        }
        let (offset, length) = (superblock.layout.data.offset, BLOCK);
        next.inject(bad, Fault::Unwritable { offset, length });
        next.host.assemble();
        if !readable {
            next.inject(bad, Fault::Media { offset, length });
        }
        // What it held before can be read, and is what its row says then.
        next.host
            .start_array("tank", false)
            .expect("nothing is lost by that");
        let mut guest = connect(&next);
        check_lost(&next, &mut guest);
    });
}

#[test]
fn what_a_member_that_is_out_may_bring_back_is_not_given_up() {
    super::on_both_kinds(|| {
        let (bench, mut guest) = served();
        fill(&mut guest);
        let superblock = bench.superblock("one");
        let (bad, out) = (holder(&superblock, 0), holder(&superblock, 1));
        let folder = std::sync::Arc::clone(&bench.folder);
        drop(guest);
        drop(bench);
        let next = Bench::on(folder);
        for name in ALL.into_iter().filter(|name| *name != out) {
            next.open_file(name).expect("it is there");
        }
        let (offset, length) = (superblock.layout.data.offset, BLOCK);
        next.inject(bad, Fault::Media { offset, length });
        next.host.assemble();
        next.host
            .start_array("tank", false)
            .expect("two are enough");
        wait_until("the resync stops", || {
            let mut jobs = next.host.jobs().into_iter();
            jobs.any(|job| job.state == JobState::Failed)
        });
        let warned = next.array("tank").warnings.join("\n");
        for words in [
            "its resync has stopped because a stripe",
            "tried again after a minute at first, and each hour in the end",
            "`garboard array resync tank start` tries again now",
        ] {
            assert!(warned.contains(words), "no `{words}` in: {warned}");
        }
        assert_eq!(next.array("tank").lost, None);
        next.open_file(out).expect("it is back");
        wait_until("all members are in sync", || {
            next.array("tank").state == ArrayState::Optimal
        });
        // It was written to when the engine was killed: what it has counts for nothing.
        assert!(next.array("tank").lost.is_some());
    });
}

#[test]
fn a_block_that_a_drive_refuses_fails_alone_where_nothing_is_protected() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        bench.file(name);
    }
    bench.create("tank", Level::Raid0, &["one", "two"]);
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    let mut guest = connect(&bench);
    guest.fill(0, 0x11);
    let superblock = bench.superblock("one");
    let (offset, length) = (superblock.layout.data.offset, BLOCK);
    let bad = holder(&superblock, 0);
    bench.inject(bad, Fault::Unwritable { offset, length });
    guest.begin_fill(0, 0x22);
    assert_eq!(answer_of(&mut guest), 1, "it is told");
    let array = bench.array("tank");
    assert!(array.hold.is_none(), "nobody is waited for");
    guest.fill(8, 0x33);
    assert!(guest.read(8).iter().all(|byte| *byte == 0x33));
    assert!(guest.read(0).iter().all(|byte| *byte == 0x11), "as it was");
    // One that takes no writes at all is waited for.
    bench.inject(
        bad,
        Fault::Unwritable {
            offset: superblock.layout.bad_ranges.offset,
            length: superblock.layout.bad_ranges.length,
        },
    );
    guest.begin_fill(0, 0x44);
    wait_until("it is waited for", || bench.array("tank").hold.is_some());
    bench.host.state().drives[bad].drive.clear_faults();
    assert_eq!(answer_of(&mut guest), 0);
    assert!(guest.read(0).iter().all(|byte| *byte == 0x44));
}

#[test]
fn a_rebuild_that_a_full_list_stops_is_warned_of_until_it_has_ended() {
    let bench = Bench::tank();
    wait_until("the first resync", || bench.array("tank").jobs.is_empty());
    bench.memory("four");
    bench.host.fail_member("tank", 1).expect("one may fail");
    let superblock = bench.superblock("one");
    let chunk = superblock.geometry.chunk_bytes();
    // Each makes two words of the list, where neither member has parity.
    for stripe in 0..400 {
        let offset = superblock.layout.data.offset + stripe * chunk;
        let length = superblock.geometry.block_size().bytes();
        bench.inject("one", Fault::Media { offset, length });
    }
    let replace = MemberReplace {
        member: 1,
        drive: "four".to_owned(),
        force: false,
    };
    bench.host.replace_member("tank", &replace).expect("free");
    let warned = || bench.array("tank").warnings.join("\n");
    wait_until("it stops", || {
        warned().contains("list of lost blocks has no room")
    });
    for words in [
        "its rebuild has stopped",
        "`garboard array show tank` lists",
        "`garboard array rebuild tank start`",
    ] {
        assert!(warned().contains(words), "no `{words}` in: {}", warned());
    }
    let tank = bench.array("tank");
    let stopped = tank.stopped_pass.expect("told by itself, too");
    assert!(stopped.contains("its rebuild has stopped"), "{stopped}");
    assert!(tank.lost.is_some());
    // The drive reads again: nothing more is lost.
    bench.host.state().drives["one"].drive.clear_faults();
    let rebuild = BackgroundKind::Rebuild;
    bench
        .host
        .start_background("tank", rebuild)
        .expect("goes on");
    wait_until("it is filled", || {
        bench.array("tank").state == ArrayState::Optimal
    });
    assert_eq!(bench.array("tank").stopped_pass, None);
    assert_eq!(warned(), "");
}
