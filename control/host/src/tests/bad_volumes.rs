//! Volumes: everything a user can get wrong is refused, said, and changes nothing.

use control::request::VolumeLimit;
use control::request::{ArrayModify, Level};
use control::{Engine, ErrorKind};
use drive::Fault;

use super::{Bench, MIB, export_of, volume_of, wait_until};

#[test]
fn volumes_that_cannot_be_are_refused() {
    let bench = Bench::tank();
    for name in ["a", "b"] {
        bench.memory(name);
    }
    bench.create("pond", Level::Raid1, &["a", "b"]);
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let free = bench.array("tank").free_bytes;
    let long = "x".repeat(64);
    for (name, array, size, kind, word) in [
        ("w", "nine", MIB, ErrorKind::NotFound, "array nine"),
        ("w", "tank", 0, ErrorKind::Invalid, "size 0"),
        ("w", "tank", MIB + 1, ErrorKind::Invalid, "not a multiple"),
        ("w", "tank", free + 512, ErrorKind::Full, "space"),
        ("w", "tank", u64::MAX - 511, ErrorKind::Full, "space"),
        ("no/name", "tank", MIB, ErrorKind::Invalid, "name"),
        ("", "tank", MIB, ErrorKind::Invalid, "name"),
        (&long, "tank", MIB, ErrorKind::Invalid, "name"),
        ("v", "tank", MIB, ErrorKind::Exists, "volume v"),
        ("v", "pond", MIB, ErrorKind::Exists, "volume v"),
    ] {
        bench.refused((kind, word), |host| {
            host.create_volume(&volume_of(name, array, size))
        });
    }
    let uuid = bench.host.volume_named("v").expect("made").uuid;
    let mut twin = volume_of("w", "tank", MIB);
    twin.uuid = uuid;
    bench.refused((ErrorKind::Exists, "uuid"), |host| {
        host.create_volume(&twin)
    });
    twin.array = "pond".into();
    bench.refused((ErrorKind::Exists, "uuid"), |host| {
        host.create_volume(&twin)
    });
    bench
        .host
        .create_volume(&volume_of("w", "tank", free))
        .expect("all of it");
    bench.refused((ErrorKind::Full, "space"), |host| {
        host.create_volume(&volume_of("x", "tank", 512))
    });
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", 3 * MIB))
        .expect("room");
    let all = bench.array("tank").size_bytes;
    for (name, size, kind, word) in [
        ("w", MIB, ErrorKind::NotFound, "volume w"),
        ("v", 0, ErrorKind::Invalid, "size 0"),
        ("v", 3 * MIB + 1, ErrorKind::Invalid, "not a multiple"),
        ("v", 2 * MIB, ErrorKind::Invalid, "shrink"),
        ("v", all + 512, ErrorKind::Full, "space"),
        ("v", u64::MAX - 511, ErrorKind::Full, "space"),
    ] {
        bench.refused((kind, word), |host| host.resize_named(name, size));
    }
    let view = bench.host.resize_named("v", all).expect("all of it");
    assert_eq!(view.size_bytes, all);
}

#[test]
fn a_limit_of_nothing_and_limits_of_no_volume_are_refused() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let limit = VolumeLimit {
        iops: Some(1),
        bytes_per_second: Some(0),
        ..VolumeLimit::default()
    };
    bench.refused((ErrorKind::Invalid, "a limit of 0"), |host| {
        host.limit_named("v", &limit)
    });
    bench.refused((ErrorKind::NotFound, "volume w"), |host| {
        host.limit_named("w", &VolumeLimit::default())
    });
    bench.refused((ErrorKind::NotFound, "volume w"), |host| {
        host.limit_named("w", &limit)
    });
}

#[test]
fn what_is_exported_is_neither_deleted_nor_stopped() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    bench
        .host
        .export_named(&export_of(&bench, "e", "v"))
        .expect("a socket");
    let served = (ErrorKind::Busy, "export e serves");
    for refusal in [
        bench.refused(served, |host| host.delete_named("v")),
        bench.refused(served, |host| host.stop_array("tank")),
        bench.refused(served, |host| host.destroy_array("tank", true)),
    ] {
        assert!(refusal.next.contains("export remove e"), "{refusal}");
    }
    bench.refused((ErrorKind::NotFound, "volume w"), |host| {
        host.delete_named("w")
    });
    bench.host.remove_export("e").expect("there");
    bench.host.delete_named("v").expect("not exported");
}

#[test]
fn volumes_of_a_stopped_array_are_named_and_left_alone() {
    let bench = Bench::tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    bench.host.stop_array("tank").expect("unused");
    let stopped = (ErrorKind::Busy, "array tank is not started");
    for refusal in [
        bench.refused(stopped, |host| host.delete_named("v")),
        bench.refused(stopped, |host| host.resize_named("v", 2 * MIB)),
        bench.refused(stopped, |host| {
            host.export_named(&export_of(&bench, "e", "v"))
        }),
    ] {
        assert!(refusal.next.contains("array start tank"), "{refusal}");
    }
    bench.refused((ErrorKind::Busy, "not started"), |host| {
        host.create_volume(&volume_of("w", "tank", MIB))
    });
}

/// Makes every extent of the array one that held data.
fn used(bench: &Bench) {
    let all = bench.array("tank").free_bytes;
    bench
        .host
        .create_volume(&volume_of("old", "tank", all))
        .expect("room");
    bench.host.delete_named("old").expect("not exported");
}

/// Two of three members do not take a few blocks of what the second extent has there, after others
/// that they took; and nobody waits for members that fail. A few, because each one is looked into:
/// for all of a piece that may take a slow machine longer than a command waits.
fn two_members_fail(bench: &Bench) {
    let modify = ArrayModify {
        hold_timeout_ms: Some(0),
        ..ArrayModify::default()
    };
    bench.host.modify_array("tank", &modify).expect("it runs");
    let fails = Fault::Unwritable {
        offset: bench.superblock("one").layout.data.offset + 13 * MIB,
        length: 16 << 10,
    };
    for name in ["one", "two"] {
        bench.inject(name, fails);
    }
}

#[test]
fn a_create_whose_zeroing_fails_leaves_no_volume() {
    let bench = Bench::tank();
    used(&bench);
    let before = bench.listing();
    two_members_fail(&bench);
    let failed = bench
        .host
        .create_volume(&volume_of("v", "tank", 20 * MIB))
        .expect_err("no");
    assert_eq!(failed.kind, ErrorKind::Degraded, "{failed}");
    assert_eq!(bench.host.volumes(), before.volumes);
    assert_eq!(bench.array("tank").free_bytes, before.arrays[0].free_bytes);
    assert_eq!(bench.array("tank").volumes, 0);
}

#[test]
fn a_grow_whose_zeroing_fails_leaves_the_volume_as_it_was() {
    let bench = Bench::tank();
    used(&bench);
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let before = bench.listing();
    two_members_fail(&bench);
    let all = bench.array("tank").size_bytes;
    let failed = bench
        .host
        .resize_named("v", all)
        .expect_err("it cannot be zeroed");
    assert_eq!(failed.kind, ErrorKind::Degraded, "{failed}");
    assert_eq!(bench.host.volumes(), before.volumes);
    assert_eq!(bench.array("tank").free_bytes, before.arrays[0].free_bytes);
    bench.host.delete_named("v").expect("not busy");
    wait_until("it is gone", || bench.host.volumes().is_empty());
}
