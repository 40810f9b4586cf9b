//! Drives that cannot read some of what the engine itself keeps on them: another copy serves.

use std::sync::Arc;

use array::format::{ArrayConfig, FormatError, Superblock};
use control::request::Level;
use control::view::{ArrayState, MemberState};
use control::{Engine, ErrorKind};
use drive::Fault;
use units::DriveIndex;

use super::guests::Guest;
use super::{Bench, MIB, export_of, file_at, volume_of, wait_until};
use crate::records;

const ALL: [&str; 3] = ["one", "two", "three"];
const SECTORS: u64 = MIB / 512;

fn serve(bench: &Bench) -> Guest {
    let export = export_of(bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    Guest::connect(&bench.path("e.sock"))
}

/// What a kill leaves of an array of three files that a guest has written to, and what the member
/// on `two` keeps where. `degraded`: `one` had failed before.
fn killed(degraded: bool) -> (Bench, Superblock) {
    let bench = Bench::file_tank();
    wait_until("parity is right everywhere", || {
        bench.array("tank").jobs.is_empty()
    });
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    if degraded {
        bench.host.fail_member("tank", 0).expect("two are left");
    }
    let mut guest = serve(&bench);
    for mib in 0..8 {
        guest.fill(mib * SECTORS, byte(mib));
    }
    drop(guest);
    let two = bench.superblock("two");
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let bench = Bench::on(folder);
    for name in ALL {
        bench.reopen(name, "").expect("a file");
    }
    (bench, two)
}

fn byte(mib: u64) -> u8 {
    u8::try_from(mib + 1).expect("few")
}

fn unreadable(bench: &Bench, offset: u64) {
    let length = 4096;
    bench.inject("two", Fault::Media { offset, length });
}

fn check(bench: &Bench) {
    let mut guest = serve(bench);
    for mib in 0..8 {
        assert_eq!(guest.read(mib * SECTORS), [byte(mib); 4096], "MiB {mib}");
    }
}

#[test]
fn no_one_bad_sector_of_a_members_records_costs_the_member() {
    super::on_both_kinds(|| {
        let (bench, two) = killed(false);
        drop(bench);
        let member_bytes = two.layout.member_bytes;
        let places = Superblock::offsets(member_bytes)
            .into_iter()
            .chain(two.layout.config.map(|area| area.offset))
            .chain(two.layout.config.map(|area| area.record_places()[1]))
            .chain([two.layout.region_map.offset, two.log().slot(0)])
            // Behind what the record needs.
            .chain(
                two.layout
                    .config
                    .map(|area| area.offset + area.length - 4096),
            );
        for offset in places {
            let (bench, _) = killed(false);
            unreadable(&bench, offset);
            bench.host.assemble();
            let started = bench.host.start_array("tank", false);
            let started = started.unwrap_or_else(|refused| panic!("at {offset}: {refused}"));
            let member = &started.members[1];
            assert_eq!(member.drive.as_deref(), Some("two"), "at {offset}");
            assert_eq!(member.state, MemberState::Online, "at {offset}");
            wait_until("parity is right everywhere", || {
                let tank = bench.array("tank");
                tank.state == ArrayState::Optimal && tank.warnings.is_empty()
            });
            // Its own chunks, and parity made of them.
            bench.host.fail_member("tank", 0).expect("two are left");
            check(&bench);
        }
    });
}

#[test]
fn a_superblock_that_cannot_be_read_is_written_anew() {
    super::on_both_kinds(|| {
        let (bench, two) = killed(false);
        let offset = Superblock::offsets(two.layout.member_bytes)[0];
        unreadable(&bench, offset);
        bench.host.assemble();
        bench
            .host
            .start_array("tank", false)
            .expect("there are copies");
        let drive = Arc::clone(&bench.host.state().drives["two"].drive);
        let mut copy = [0; 512];
        drive.read(offset, &mut copy).expect("it has been written");
        assert_eq!(&copy[..8], b"GARBOARD");
    });
}

/// The array starts with all its members in spite of this.
fn starts_whole(bench: &Bench) {
    bench.host.assemble();
    let started = bench.host.start_array("tank", false);
    let started = started.expect("nothing of it is needed");
    assert_eq!(started.members[1].state, MemberState::Online);
}

#[test]
fn a_superblock_that_cannot_be_written_either_costs_no_member() {
    super::on_both_kinds(|| {
        let (bench, two) = killed(false);
        let offset = Superblock::offsets(two.layout.member_bytes)[0];
        unreadable(&bench, offset);
        let length = 4096;
        bench.inject("two", Fault::Unwritable { offset, length });
        starts_whole(&bench);
    });
}

#[test]
fn a_log_of_which_much_cannot_be_read_holds_up_no_whole_array() {
    super::on_both_kinds(|| {
        let (bench, two) = killed(false);
        let (offset, length) = (two.layout.log.offset, two.layout.log.length);
        bench.inject("two", Fault::Media { offset, length });
        starts_whole(&bench);
    });
}

#[test]
fn of_a_long_record_just_what_it_needs_is_read() {
    super::on_both_kinds(|| {
        let bench = Bench::new();
        bench.memory("two");
        unreadable(&bench, 12 << 10);
        let drive = Arc::clone(&bench.host.state().drives["two"].drive);
        let mut area = vec![0; 64 << 10];
        let record = |length: u32| {
            move |start: &[u8]| {
                let room = start.len();
                let whole = room >= usize::try_from(length).expect("few");
                whole
                    .then_some(())
                    .ok_or(FormatError::Length { length, room })
            }
        };
        let read = records::read_start(&drive, 0, &mut area, record(9_000));
        assert_eq!(read.expect("12 KiB can be read"), Ok(()));
        // One that ends behind the sector, and one that would not fit.
        let read = records::read_start(&drive, 0, &mut area, record(13_000));
        assert!(read.is_err());
        let read = records::read_start(&drive, 0, &mut area, record(1 << 20));
        assert!(read.expect("its head can be read").is_err());
    });
}

#[test]
fn a_log_that_cannot_be_read_holds_up_only_an_array_that_needs_it() {
    super::on_both_kinds(|| {
        let (bench, two) = killed(true);
        unreadable(&bench, two.log().slot(0));
        bench.host.assemble();
        bench.refused(
            (ErrorKind::Unsafe, "two cannot read some of its log"),
            |host| host.start_array("tank", false),
        );
        let forced = bench.host.start_array("tank", true).expect("forced");
        let said = forced.warnings.concat();
        assert!(said.contains("could not read of the log"), "{said}");
        check(&bench);
    });
}

/// A member that the array cannot do without has a bad block where records belong.
#[test]
fn an_array_works_whose_needed_member_refuses_records_where_they_belong() {
    super::on_both_kinds(|| {
        for (areas, can_read) in [(0..1, true), (0..1, false), (1..2, false), (0..2, true)] {
            let (bench, two) = killed(true);
            let spoil = |bench: &Bench, can_read: bool| {
                for area in &two.layout.config[areas.clone()] {
                    let (offset, length) = (area.offset, 4096);
                    bench.inject("two", Fault::Unwritable { offset, length });
                    if !can_read {
                        unreadable(bench, offset);
                    }
                }
            };
            spoil(&bench, can_read);
            bench.host.assemble();
            let started = bench.host.start_array("tank", false);
            started.expect("all data is there");
            let works = |bench: &Bench| {
                wait_until("it waits for nobody", || {
                    bench.array("tank").state == ArrayState::Degraded
                });
                check(bench);
            };
            works(&bench);
            // Records of both areas.
            for name in ["w", "x", "y"] {
                let volume = volume_of(name, "tank", MIB);
                bench.host.create_volume(&volume).expect("room");
            }
            // After a kill, and after a stop, which tells the same of itself.
            let folder = Arc::clone(&bench.folder);
            drop(bench);
            let bench = Bench::on(folder);
            ALL.into_iter()
                .for_each(|name| drop(bench.reopen(name, "").expect("a file")));
            spoil(&bench, false);
            bench.host.assemble();
            bench
                .host
                .start_array("tank", false)
                .expect("what was recorded is found");
            works(&bench);
            assert_eq!(bench.host.volumes().len(), 4, "{areas:?}");
            bench.host.remove_export("e").expect("nobody uses it");
            for volume in ["v", "w", "x", "y"] {
                bench.host.delete_named(volume).expect("unused");
            }
            bench.host.stop_array("tank").expect("unused");
            bench
                .host
                .start_array("tank", false)
                .expect("as it was stopped");
            assert_eq!(bench.host.volumes().len(), 0, "{areas:?}");
            // Nothing of it is left to be found.
            bench.host.stop_array("tank").expect("unused");
            bench.host.destroy_array("tank", false).expect("stopped");
            let found = bench.host.find_arrays(&[file_at(&bench.path("two"))]);
            assert!(found.is_ok_and(|found| found.is_empty()), "{areas:?}");
        }
    });
}

/// A mirror of `two` and `one` after a kill.
fn mirror(drives: &[&str]) -> (Bench, Superblock) {
    let bench = Bench::new();
    for name in ["one", "two"] {
        bench.file(name);
    }
    bench.create("tank", Level::Raid1, &["two", "one"]);
    let two = bench.superblock("two");
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let bench = Bench::on(folder);
    for name in drives {
        bench.reopen(name, "").expect("a file");
    }
    (bench, two)
}

#[test]
fn a_record_that_may_be_newer_proves_nothing() {
    super::on_both_kinds(|| {
        // The first of two starts by itself otherwise; the second may have gone on without it.
        let (bench, two) = mirror(&["two"]);
        unreadable(&bench, two.layout.config[0].offset);
        bench.host.assemble();
        bench.refused((ErrorKind::Unsafe, "force"), |host| {
            host.start_array("tank", false)
        });
    });
}

#[test]
fn what_lies_behind_a_record_hides_none() {
    super::on_both_kinds(|| {
        let (bench, two) = mirror(&["one", "two"]);
        for area in two.layout.config {
            unreadable(&bench, area.offset + area.length - 4096);
        }
        bench.host.assemble();
        let started = bench.host.start_array("tank", false).expect("whole");
        let online = |member: &control::view::MemberView| member.state == MemberState::Online;
        assert!(started.members.iter().all(online));
    });
}

#[test]
fn a_former_member_of_which_nobody_can_tell_what_it_holds_is_filled_by_force_only() {
    let bench = Bench::tank();
    let places = Superblock::offsets(bench.superblock("two").layout.member_bytes);
    let replace = |force| control::request::MemberReplace {
        member: 1,
        drive: "two".to_owned(),
        force,
    };
    let write = |byte: u8| {
        let drive = Arc::clone(&bench.host.state().drives["two"].drive);
        for place in places {
            drive.write(place, &[byte; 4096]).expect("memory");
        }
    };
    let filled = |force| {
        let replaced = bench.host.replace_member("tank", &replace(force));
        replaced.expect("it may be had");
        wait_until("it is filled", || {
            bench.array("tank").state == ArrayState::Optimal
        });
        bench.host.fail_member("tank", 1).expect("two are left");
    };
    let refused = |cause: &str| {
        let refused = bench.refused((ErrorKind::Unsafe, cause), |host| {
            host.replace_member("tank", &replace(false))
        });
        assert!(refused.next.contains("what it holds is lost"), "{refused}");
    };
    bench.host.fail_member("tank", 1).expect("two are left");
    write(0xa5);
    refused("two was a member of array tank, and no superblock says so");
    filled(true);
    for place in places {
        unreadable(&bench, place);
    }
    refused("two was a member of array tank, and its ends cannot be read");
    filled(true);
    // A new one, perhaps, at the place of the old.
    write(0);
    filled(false);
}

/// A start that came to nothing takes its record back, and nothing else; where it cannot be read,
/// nobody is to find it there some day.
#[test]
fn a_record_that_is_taken_back_is_nowhere_any_more() {
    let (bench, superblock) = killed(false);
    let two = Arc::clone(&bench.host.state().drives["two"].drive);
    let newest = || {
        let found = records::read(DriveIndex(0), &two).expect("a file");
        found.config().cloned()
    };
    let last = newest().expect("a record");
    let mut other = last.clone();
    other.update_id += 1;
    records::erase_config(&two, &superblock, &other).expect("nothing of that one");
    assert_eq!(newest().as_ref(), Some(&last));

    let [place, _] = superblock.layout.config[ArrayConfig::slot(last.update).at()].record_places();
    unreadable(&bench, place);
    records::erase_config(&two, &superblock, &last).expect("it takes writes");
    two.clear_faults();
    let before = newest().expect("that of the other area");
    assert_eq!(before.update.0 + 1, last.update.0);
}
