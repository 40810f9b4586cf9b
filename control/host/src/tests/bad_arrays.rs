//! Arrays and their members: everything a user can get wrong is refused, said, and changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use control::request::{
    ArrayCreate, ArrayImport, ArrayModify, ArrayOptions, BackgroundKind, Level, MemberReplace,
};
use control::view::{DriveState, MemberState};
use control::{Engine, ErrorKind};
use drive::Fault;

use super::bad_drives::FOREIGN;
use super::{Bench, DRIVE_BYTES, array_of, file_at, file_to_fill, volume_of};
use crate::Host;

fn with(create: &ArrayCreate, change: impl FnOnce(&mut ArrayCreate)) -> ArrayCreate {
    let mut create = create.clone();
    change(&mut create);
    create
}

#[test]
fn shapes_that_make_no_array_are_refused() {
    let bench = Bench::new();
    for name in ["a", "b", "c", "d"] {
        bench.memory(name);
    }
    let four = ["a", "b", "c", "d"];
    let good = array_of("tank", Level::Raid5, &four);
    let level = |level, drives: &[&str]| array_of("tank", level, drives);
    let option = |change: fn(&mut ArrayOptions)| with(&good, |create| change(&mut create.options));
    let cases = [
        (level(Level::Raid5, &[]), ErrorKind::Invalid, "no drives"),
        (
            level(Level::Raid1, &["a"]),
            ErrorKind::Invalid,
            "at least 2",
        ),
        (
            level(Level::Raid5, &["a", "b"]),
            ErrorKind::Invalid,
            "at least 3",
        ),
        (
            level(Level::Raid6, &["a", "b", "c"]),
            ErrorKind::Invalid,
            "at least 4",
        ),
        (
            level(Level::Raid7, &["a", "b", "c"]),
            ErrorKind::Invalid,
            "at least 4",
        ),
        (level(Level::Nm, &four), ErrorKind::Invalid, "parity"),
        (
            level(Level::Raid50, &four),
            ErrorKind::Invalid,
            "at least 6",
        ),
        (
            level(Level::Raid10, &["a", "b", "c"]),
            ErrorKind::Invalid,
            "at least 4",
        ),
        (
            level(Level::Raid5, &["a", "b", "a"]),
            ErrorKind::Invalid,
            "drive a is named twice",
        ),
        (
            level(Level::Raid5, &["a", "b", "x"]),
            ErrorKind::NotFound,
            "drive x",
        ),
        (option(|o| o.parity = Some(2)), ErrorKind::Invalid, "parity"),
        (
            option(|o| o.group_size = Some(2)),
            ErrorKind::Invalid,
            "group",
        ),
        (
            option(|o| o.chunk_bytes = Some(0)),
            ErrorKind::Invalid,
            "chunk",
        ),
        (
            option(|o| o.chunk_bytes = Some(5000)),
            ErrorKind::Invalid,
            "chunk",
        ),
        (
            option(|o| o.chunk_bytes = Some(1 << 40)),
            ErrorKind::Invalid,
            "chunk",
        ),
        (
            option(|o| o.block_bytes = Some(1024)),
            ErrorKind::Invalid,
            "no block size",
        ),
        (
            with(&good, |c| c.name = "no/name".into()),
            ErrorKind::Invalid,
            "name",
        ),
        (
            with(&good, |c| c.name = String::new()),
            ErrorKind::Invalid,
            "name",
        ),
        (
            with(&good, |c| c.name = "x".repeat(64)),
            ErrorKind::Invalid,
            "name",
        ),
    ];
    for (create, kind, word) in cases {
        bench.refused((kind, word), |host| host.create_array(&create));
    }
    bench
        .host
        .create_array(&good)
        .expect("nothing was left behind");
}

#[test]
fn drives_and_names_of_one_array_are_not_for_another() {
    let bench = Bench::tank();
    for name in ["a", "b", "c"] {
        bench.memory(name);
    }
    let refusal = bench.refused(
        (ErrorKind::Busy, "drive two is member 1 of array tank"),
        |host| host.create_array(&array_of("pond", Level::Raid5, &["a", "b", "two"])),
    );
    assert!(refusal.next.contains("free drive"), "{refusal}");
    let forced = with(&array_of("pond", Level::Raid5, &["a", "b", "two"]), |c| {
        c.force = true
    });
    bench.refused((ErrorKind::Busy, "drive two"), |host| {
        host.create_array(&forced)
    });
    bench.refused((ErrorKind::Exists, "array tank"), |host| {
        host.create_array(&array_of("tank", Level::Raid5, &["a", "b", "c"]))
    });
    let uuid = bench.array("tank").uuid;
    let twin = with(&array_of("pond", Level::Raid5, &["a", "b", "c"]), |c| {
        c.uuid = uuid
    });
    bench.refused((ErrorKind::Exists, "array pond"), |host| {
        host.create_array(&twin)
    });
    bench.host.stop_array("tank").expect("unused");
    bench.refused(
        (ErrorKind::Busy, "drive two is member 1 of array tank"),
        |host| host.create_array(&array_of("pond", Level::Raid5, &["a", "b", "two"])),
    );
}

#[test]
fn foreign_content_is_named_and_only_force_makes_it_a_member() {
    let bench = Bench::new();
    bench.file("one");
    bench.file("two");
    for (kind, offset, magic) in FOREIGN {
        let file = file_to_fill(bench.path("three")).expect("a file");
        file.set_len(DRIVE_BYTES).expect("sparse");
        file.write_all_at(magic, offset).expect("written");
        bench
            .open_file("three")
            .expect("a drive may carry anything");
        let create = array_of("tank", Level::Raid5, &["one", "two", "three"]);
        let carried = format!("drive three carries {kind}");
        let refusal = bench.refused((ErrorKind::Unsafe, &carried), |host| {
            host.create_array(&create)
        });
        assert!(refusal.next.contains("--force"), "{refusal}");
        for name in ["one", "two"] {
            assert_eq!(bench.drive(name).signature, None, "{name} was not touched");
        }
        let mut still = vec![0; magic.len()];
        file.read_exact_at(&mut still, offset).expect("read");
        assert_eq!(still, magic);
        bench.host.remove_drive("three", false).expect("free");
        fs::remove_file(bench.path("three")).expect("ours");
    }
    let file = file_to_fill(bench.path("three")).expect("a file");
    file.set_len(DRIVE_BYTES).expect("sparse");
    file.write_all_at(b"XFSB", 0).expect("written");
    bench
        .open_file("three")
        .expect("a drive may carry anything");
    let create = array_of("tank", Level::Raid5, &["one", "two", "three"]);
    bench
        .host
        .create_array(&with(&create, |c| c.force = true))
        .expect("forced");
    assert_eq!(
        bench.drive("three").signature.as_deref(),
        Some("garboard member")
    );
}

#[test]
fn drives_too_small_for_a_member_are_refused() {
    let bench = Bench::new();
    bench.memory("a");
    bench.memory("b");
    bench
        .add(
            "c",
            control::request::DriveSpec::Memory {
                size_bytes: 8 << 20,
            },
        )
        .expect("memory");
    bench.refused((ErrorKind::Full, "small"), |host| {
        host.create_array(&array_of("tank", Level::Raid5, &["a", "b", "c"]))
    });
}

#[test]
fn a_create_that_fails_half_way_leaves_nothing_behind() {
    for fault in [
        Fault::Unwritable {
            offset: 0,
            length: DRIVE_BYTES,
        },
        Fault::FlushFails,
        Fault::Pulled,
        Fault::NoSpace,
    ] {
        let bench = Bench::new();
        for name in ["one", "two", "three"] {
            bench.file(name);
        }
        bench.inject("three", fault);
        let create = array_of("tank", Level::Raid5, &["one", "two", "three"]);
        bench
            .host
            .create_array(&create)
            .expect_err("the third drive fails");
        assert_eq!(bench.host.arrays(), []);
        for name in ["one", "two"] {
            let drive = bench.drive(name);
            assert_eq!(
                (drive.state, drive.signature),
                (DriveState::Free, None),
                "{fault:?}"
            );
        }
        bench.host.state().drives["three"].drive.clear_faults();
        assert_eq!(
            bench.host.assemble(),
            [],
            "nothing to put together after {fault:?}"
        );
        bench
            .host
            .create_array(&with(&create, |c| c.force = true))
            .expect("all is well now");
    }
}

#[test]
fn arrays_that_are_not_there_or_do_not_serve_are_named() {
    let bench = Bench::tank();
    bench.memory("spare");
    let missing = (ErrorKind::NotFound, "array pond");
    let replace = MemberReplace {
        member: 0,
        drive: "spare".into(),
        force: false,
    };
    let modify = ArrayModify::default();
    bench.refused(missing, |host| host.start_array("pond", true));
    bench.refused(missing, |host| host.stop_array("pond"));
    bench.refused(missing, |host| host.destroy_array("pond", true));
    bench.refused(missing, |host| host.modify_array("pond", &modify));
    bench.refused(missing, |host| host.fail_member("pond", 0));
    bench.refused(missing, |host| host.replace_member("pond", &replace));
    bench.refused(missing, |host| {
        host.start_background("pond", BackgroundKind::Resync)
    });
    bench.refused(missing, |host| {
        host.stop_background("pond", BackgroundKind::Resync)
    });
    bench.refused((ErrorKind::Busy, "runs already"), |host| {
        host.start_array("tank", true)
    });

    bench.host.stop_array("tank").expect("unused");
    let stopped = (ErrorKind::Busy, "not started");
    bench.refused(stopped, |host| host.stop_array("tank"));
    bench.refused(stopped, |host| host.modify_array("tank", &modify));
    bench.refused(stopped, |host| host.fail_member("tank", 0));
    bench.refused(stopped, |host| host.replace_member("tank", &replace));
    bench.refused(stopped, |host| {
        host.start_background("tank", BackgroundKind::Resync)
    });
    bench.refused(stopped, |host| {
        host.stop_background("tank", BackgroundKind::Resync)
    });
}

#[test]
fn an_array_with_volumes_is_destroyed_only_by_force() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", 1 << 20))
        .expect("room");
    let refusal = bench.refused((ErrorKind::Unsafe, "1 volume"), |host| {
        host.destroy_array("tank", false)
    });
    assert!(refusal.next.contains("--force"), "{refusal}");
    bench.host.destroy_array("tank", true).expect("forced");
    assert_eq!(bench.drive("one").signature, None);
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let bench = Bench::tank();
    let modify = |change: fn(&mut ArrayModify)| {
        let mut modify = ArrayModify::default();
        change(&mut modify);
        modify
    };
    for (modify, word) in [
        (
            modify(|m| m.latency_target_us = Some(1 << 40)),
            "latency target",
        ),
        (
            modify(|m| m.hold_timeout_ms = Some(u64::MAX)),
            "hold timeout",
        ),
    ] {
        bench.refused((ErrorKind::Invalid, word), |host| {
            host.modify_array("tank", &modify)
        });
    }
}

#[test]
fn members_are_failed_only_while_the_array_survives() {
    let bench = Bench::tank();
    bench.refused((ErrorKind::NotFound, "member 3 of array tank"), |host| {
        host.fail_member("tank", 3)
    });
    let view = bench.host.fail_member("tank", 1).expect("two are left");
    assert_eq!(view.members[1].state, MemberState::Failed);
    bench.refused((ErrorKind::Unsafe, "data is lost"), |host| {
        host.fail_member("tank", 0)
    });
    bench.refused((ErrorKind::Invalid, "out already"), |host| {
        host.fail_member("tank", 1)
    });
}

#[test]
fn only_a_free_and_fitting_drive_takes_the_place_of_a_lost_one() {
    let bench = Bench::tank();
    bench.memory("spare");
    bench
        .add(
            "small",
            control::request::DriveSpec::Memory {
                size_bytes: 32 << 20,
            },
        )
        .expect("memory");
    let file = file_to_fill(bench.path("xfs")).expect("a file");
    file.set_len(DRIVE_BYTES).expect("sparse");
    file.write_all_at(b"XFSB", 0).expect("written");
    bench.open_file("xfs").expect("a drive may carry anything");
    let replace = |member, drive: &str| MemberReplace {
        member,
        drive: drive.into(),
        force: false,
    };
    bench.host.fail_member("tank", 1).expect("two are left");
    for (member, drive, kind, word) in [
        (7, "spare", ErrorKind::NotFound, "member 7 of array tank"),
        (1, "nine", ErrorKind::NotFound, "drive nine"),
        (
            1,
            "one",
            ErrorKind::Busy,
            "drive one is member 0 of array tank",
        ),
        (1, "small", ErrorKind::Full, "a member needs"),
        (1, "xfs", ErrorKind::Unsafe, "drive xfs carries xfs"),
    ] {
        bench.refused((kind, word), |host| {
            host.replace_member("tank", &replace(member, drive))
        });
    }
    bench
        .host
        .replace_member("tank", &replace(1, "spare"))
        .expect("free and large enough");
}

#[test]
fn a_replacement_brings_no_log_of_an_earlier_life() {
    let bench = Bench::tank();
    bench.host.fail_member("tank", 1).expect("two are left");
    let superblock = bench.superblock("one");
    let log = superblock.layout.log;
    // Its place is the same on every drive of one size. Two slots' headers, the last one too.
    bench.memory("old");
    let slots = superblock.log();
    let headers = [slots.slot(0), slots.slot(slots.slots() - 1)];
    let old = || Arc::clone(&bench.host.state().drives["old"].drive);
    for offset in headers {
        assert!((log.offset..log.offset + log.length).contains(&offset));
        old().write(offset, &[0xa5; 4096]).expect("memory");
    }
    let replace = MemberReplace {
        member: 1,
        drive: "old".into(),
        force: false,
    };
    bench.host.replace_member("tank", &replace).expect("free");
    for offset in headers {
        let mut header = [1; 4096];
        old().read(offset, &mut header).expect("memory");
        assert!(header.iter().all(|byte| *byte == 0), "at {offset}");
    }
}

#[test]
fn a_replacement_that_cannot_be_written_is_free_again() {
    let bench = Bench::tank();
    bench.file("spare");
    bench.host.fail_member("tank", 1).expect("two are left");
    bench.inject("spare", Fault::FlushFails);
    let replace = MemberReplace {
        member: 1,
        drive: "spare".into(),
        force: false,
    };
    bench
        .host
        .replace_member("tank", &replace)
        .expect_err("it cannot be written");
    bench.host.state().drives["spare"].drive.clear_faults();
    assert_eq!(bench.drive("spare").state, DriveState::Free);
    assert_eq!(bench.array("tank").members[1].state, MemberState::Failed);
    let forced = MemberReplace {
        force: true,
        ..replace
    };
    bench
        .host
        .replace_member("tank", &forced)
        .expect("all is well now");
}

#[test]
fn background_work_that_makes_no_sense_is_refused() {
    let bench = Bench::tank();
    bench.memory("a");
    bench.memory("b");
    bench.create("plain", Level::Raid0, &["a", "b"]);
    bench.refused((ErrorKind::Invalid, "no parity"), |host| {
        host.start_background("plain", BackgroundKind::Resync)
    });
    let rebuild = |host: &Host| host.start_background("tank", BackgroundKind::Rebuild);
    let refusal = bench.refused((ErrorKind::Invalid, "nothing is missing"), rebuild);
    assert!(!refusal.next.contains("replace"), "{refusal}");
    bench.host.fail_member("tank", 1).expect("two are left");
    let refusal = bench.refused((ErrorKind::Invalid, "no member waits"), rebuild);
    assert!(refusal.next.contains("array replace tank"), "{refusal}");
    bench.refused((ErrorKind::NotFound, "nothing of the kind"), |host| {
        host.stop_background("tank", BackgroundKind::Rebuild)
    });
    bench.refused((ErrorKind::NotFound, "job 99"), |host| host.cancel_job(99));
}

#[test]
fn only_what_is_there_and_new_is_imported() {
    let bench = Bench::file_tank();
    let import = |array: &str, specs| ArrayImport {
        array: array.into(),
        specs,
        force: false,
        taken: BTreeSet::new(),
    };
    fs::write(bench.path("blank"), vec![0; 8 << 20]).expect("a file");
    let blank = vec![file_at(&bench.path("blank"))];
    let nowhere = vec![file_at(&bench.path("nowhere"))];
    bench.refused((ErrorKind::NotFound, "array pond"), |host| {
        host.import_array(&import("pond", blank))
    });
    bench.refused((ErrorKind::NotFound, "no such path"), |host| {
        host.import_array(&import("tank", nowhere))
    });
}
