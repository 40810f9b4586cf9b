//! The logs of members, as a start reads them.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use array::format::LOG_HEADER_BYTES;
use array::{RegionMap, Replay};
use control::Engine;
use control::view::ArrayState;
use units::{DriveIndex, MemberIndex};

use super::guests::Guest;
use super::{Bench, MIB, export_of, volume_of, wait_until};
use crate::{logs, records};

/// A degraded array on files whose guest has written for a while.
fn logged() -> Bench {
    let bench = Bench::file_tank();
    wait_until("the first resync", || bench.host.jobs().is_empty());
    let volume = volume_of("v", "tank", 8 * MIB);
    bench.host.create_volume(&volume).expect("room");
    bench.host.fail_member("tank", 2).expect("one may fail");
    let export = export_of(&bench, "e", "v");
    bench.host.export_named(&export).expect("a socket");
    let mut guest = Guest::connect(&bench.path("e.sock"));
    for sector in (0..1024).step_by(8) {
        guest.fill(sector, 0x11);
    }
    // The log has room for less than that: some of each chunk is the last.
    for sector in (0..1024).step_by(128) {
        guest.fill(sector, 0x11);
    }
    bench
}

#[test]
fn every_slot_that_holds_something_is_read() {
    super::on_both_kinds(|| {
        let bench = logged();
        let superblock = bench.superblock("one");
        let space = superblock.log();
        let drives = ["one", "two"].map(|name| Arc::clone(&bench.host.state().drives[name].drive));
        let mut expected = Vec::new();
        for drive in &drives {
            let filled = (0..space.slots()).filter(|slot| {
                let mut header = [0; LOG_HEADER_BYTES];
                drive.read(space.slot(*slot), &mut header).expect("a file");
                header.starts_with(b"GBLOGENT")
            });
            expected.push(filled.count());
        }
        assert!(expected.iter().all(|slots| *slots > 4), "{expected:?}");
        let found = records::read(DriveIndex(0), &drives[0]).expect("a file");
        let mut configs = found.configs.into_iter().flatten().collect::<Vec<_>>();
        configs.sort_by_key(|(_, config)| config.update);
        let (_, config) = configs.pop().expect("a record");
        let regions = RegionMap::new(superblock.regions(), superblock.array);
        let mut replay = Replay::new(&config, &superblock, &regions, |_| true);
        let named: Vec<_> = drives
            .iter()
            .map(|drive| Some(("a drive".to_owned(), Arc::clone(drive))))
            .collect();
        let logs = logs::read_all(&named, &superblock, &replay);
        let read: Vec<usize> = logs.iter().map(logs::MemberLog::slots).collect();
        assert_eq!(read, expected);
        for (position, log) in logs.into_iter().enumerate() {
            let member = MemberIndex::from_at(position);
            let missed = log.take(member, &mut replay);
            assert_eq!(missed.expect("a file"), 0);
        }
        let parts = replay.redo();
        // Each write of a block has a piece for its data, or none where that member is out, and
        // one for its parity.
        assert!(
            parts.len() >= expected.iter().sum::<usize>() / 4,
            "{}",
            parts.len()
        );
        assert!(parts.iter().all(|part| !part.bytes.is_empty()));

        // One that is pulled meanwhile is no member whose log cannot be read.
        drives[1].inject(drive::Fault::Pulled);
        let mut replay = Replay::new(&config, &superblock, &regions, |_| true);
        let mut logs = logs::read_all(&named, &superblock, &replay);
        let pulled = logs.pop().expect("two");
        drives[1].clear_faults();
        assert!(pulled.take(MemberIndex(1), &mut replay).is_err());
        drives[0].inject(drive::Fault::Media {
            offset: superblock.layout.log.offset,
            length: superblock.layout.log.length,
        });
        let mut replay = Replay::new(&config, &superblock, &regions, |_| true);
        let mut logs = logs::read_all(&named, &superblock, &replay);
        let other = logs.pop().expect("two").take(MemberIndex(1), &mut replay);
        assert_eq!(other.expect("it is back"), 0);
        let missed = logs.remove(0).take(MemberIndex(0), &mut replay);
        let slots = usize::try_from(space.slots()).expect("few");
        assert_eq!(missed.expect("it is there"), slots);
        assert_eq!(replay.doubtful(), [MemberIndex(0)]);
    });
}

#[test]
fn what_a_killed_engine_has_logged_is_durable_before_any_of_it_is_in_its_place() {
    let bench = logged();
    let data = bench.superblock("one").layout.data;
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    // As if nothing had come to its place.
    let lost = vec![0xEE; units::bytes_usize(data.length)];
    let mut file = std::fs::File::options();
    let file = file.write(true).read(true).open(folder.path().join("one"));
    let file = file.expect("a file");
    file.write_all_at(&lost, data.offset).expect("room");
    let changed = || {
        let mut now = vec![0; lost.len()];
        file.read_exact_at(&mut now, data.offset).expect("a file");
        now.iter().filter(|byte| **byte != 0xEE).count()
    };

    let next = Bench::on(folder);
    for name in ["one", "two", "three"] {
        next.reopen(name, "").expect("a file");
    }
    next.host.assemble();
    next.inject("two", drive::Fault::FlushFails);
    let refused = next.host.start_array("tank", false);
    let refused = refused.expect_err("what it holds may be lost");
    assert!(refused.to_string().contains("flushing"), "{refused}");
    assert_eq!(changed(), 0, "a start that fails has not begun");
    next.host.state().drives["two"].drive.clear_faults();
    let started = next.host.start_array("tank", false);
    assert_eq!(started.expect("two").state, ArrayState::Degraded);
    assert!(changed() >= 4096, "the last writes");
}

/// What the next start does again, of what these drives have in their logs.
fn redone(bench: &Bench) -> Vec<array::Redo> {
    let drives = ["one", "two"].map(|name| Arc::clone(&bench.host.state().drives[name].drive));
    let superblock = bench.superblock("one");
    let found = records::read(DriveIndex(0), &drives[0]).expect("a file");
    let configs = found.configs.into_iter().flatten();
    let (_, config) = configs
        .max_by_key(|(_, config)| config.update)
        .expect("some");
    let regions = RegionMap::new(superblock.regions(), superblock.array);
    let mut replay = Replay::new(&config, &superblock, &regions, |member| member.0 < 2);
    let named = drives.map(|drive| Some(("a drive".to_owned(), drive)));
    for (at, log) in logs::read_all(&named, &superblock, &replay)
        .into_iter()
        .enumerate()
    {
        log.take(MemberIndex::from_at(at), &mut replay)
            .expect("a file");
    }
    replay.redo()
}

/// A degraded array whose engine was killed, and a block of "one" that is in the log and holds
/// something older: its place in the file, and the drive beside it. "one" has data or parity there.
fn half_written(parity: bool) -> (Bench, u64, Arc<drive::Drive>) {
    let bench = logged();
    let superblock = bench.superblock("one");
    let (geometry, data) = (superblock.geometry, superblock.layout.data);
    let folder = Arc::clone(&bench.folder);
    drop(bench);
    let next = Bench::on(Arc::clone(&folder));
    for name in ["one", "two"] {
        next.reopen(name, "").expect("a file");
    }
    let shift = geometry.block_size().shift();
    let suits = |part: &array::Redo| {
        let stripe = geometry.stripe_at(part.member, part.offset >> shift);
        let role = |member| {
            geometry
                .role(stripe, MemberIndex(member))
                .expect("one group")
        };
        part.member.0 == 0 && (role(0).0 == 2) == parity && role(2).0 < 2
    };
    let part = redone(&next).into_iter().rfind(suits).expect("some block");
    let offset = data.offset + part.offset;
    let mut file = std::fs::File::options();
    let file = file
        .write(true)
        .open(folder.path().join("one"))
        .expect("a file");
    let length = 1 << shift;
    file.write_all_at(&vec![0xEE; units::bytes_usize(length)], offset)
        .expect("room");
    let two = Arc::clone(&next.host.state().drives["two"].drive);
    next.inject("one", drive::Fault::Unwritable { offset, length });
    (next, offset, two)
}

#[test]
fn what_a_needed_drive_does_not_take_at_a_start_stays_and_parity_goes_with_it() {
    let (next, offset, two) = half_written(false);
    next.host.assemble();
    next.host.start_array("tank", false).expect("it is there");
    let one = Arc::clone(&next.host.state().drives["one"].drive);
    let read = |drive: &drive::Drive| {
        let mut bytes = vec![0; 512];
        drive.read(offset, &mut bytes).expect("it can be read");
        bytes[..4].to_vec()
    };
    assert_eq!(read(&one), [0xEE; 4], "it keeps what it holds");
    // What the member held that is out is what both say.
    assert_eq!(read(&two), [0xEE ^ 0x11; 4]);
}

#[test]
fn parity_that_is_not_taken_at_a_start_keeps_the_array_from_starting() {
    let (next, ..) = half_written(true);
    next.host.assemble();
    let refused = next.host.start_array("tank", false);
    refused.expect_err("what the member held that is out would be another");
}

#[test]
fn a_drive_that_takes_nothing_at_a_start_is_not_believed() {
    let (next, ..) = half_written(false);
    let superblock = next.superblock("one");
    next.inject(
        "one",
        drive::Fault::Unwritable {
            offset: superblock.layout.bad_ranges.offset,
            length: superblock.layout.bad_ranges.length,
        },
    );
    next.host.assemble();
    next.host
        .start_array("tank", false)
        .expect_err("it takes nothing");
}
