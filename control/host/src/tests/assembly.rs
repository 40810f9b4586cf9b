//! What lies on drives at a start, and what is made of it: good, damaged, foreign, copied, old.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use control::request::{ArrayImport, Level, VolumeLimit};
use control::view::{ArrayState, DriveState, DriveView, MemberState, VolumeKey};
use control::{Engine, ErrorKind};
use drive::Fault;

use super::guests::Guest;
use super::{Bench, DRIVE_BYTES, MIB, export_of, file_at, volume_of, wait_until};

const ALL: [&str; 3] = ["one", "two", "three"];

/// A second engine that has opened these files of the first, by their paths alone.
fn restarted(bench: Bench, drives: &[&str]) -> Bench {
    let bench = bench.next();
    for name in drives {
        bench.reopen(name, "").expect("a file");
    }
    bench
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).expect("a copy");
}

/// Everything that names a member: superblocks at both ends, both records.
fn overwrite(path: &Path, bytes: u8) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    let garbage = vec![bytes; usize::try_from(4 * MIB).expect("small")];
    file.write_all_at(&garbage, 0).expect("written");
    file.write_all_at(&garbage, DRIVE_BYTES - 4 * MIB)
        .expect("written");
}

#[test]
fn an_array_comes_back_as_it_was() {
    let bench = Bench::file_tank();
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let (array, volumes) = (bench.array("tank"), bench.host.volumes());
    let bench = restarted(bench, &["three", "one", "two"]);
    let assembled = bench.host.assemble();
    assert_eq!(assembled.len(), 1);
    assert_eq!(assembled[0].state, ArrayState::Stopped);
    let started = bench.host.start_array("tank", false).expect("all are here");
    assert_eq!(started.state, ArrayState::Optimal);
    assert_eq!((started.uuid, started.members), (array.uuid, array.members));
    assert_eq!(bench.host.volumes(), volumes);
}

#[test]
fn a_member_that_is_not_there_is_excluded_and_said_so() {
    let bench = restarted(Bench::file_tank(), &["one", "three"]);
    bench.host.assemble();
    let started = bench
        .host
        .start_array("tank", false)
        .expect("two are enough");
    assert_eq!(started.state, ArrayState::Degraded);
    assert_eq!(started.members[1].state, MemberState::Missing);
    // Somebody says that it shall stay out: then it does.
    let bench = restarted(bench, &["one", "three"]);
    bench.host.assemble();
    let bench = restarted(bench, &ALL);
    bench.host.assemble();
    let two = bench.drive("two");
    assert_eq!(two.state, DriveState::Failed);
    assert_eq!(two.array.as_deref(), Some("tank"));
    assert!(two.cause.expect("said").contains("member 1"));
}

#[test]
fn too_few_members_are_not_started_and_named() {
    let bench = restarted(Bench::file_tank(), &["two"]);
    bench.host.assemble();
    let refusal = bench.refused(
        (ErrorKind::Degraded, "needs 2 members in sync and has 1"),
        |host| host.start_array("tank", true),
    );
    assert!(refusal.message.contains("member 0"), "{refusal}");
    assert!(refusal.next.contains("drive add"), "{refusal}");
}

#[test]
fn a_minority_is_started_only_by_force() {
    let bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.file(name);
    }
    bench.create("tank", Level::Raid1, &ALL);
    let bench = restarted(bench, &["two"]);
    bench.host.assemble();
    let refusal = bench.refused((ErrorKind::Unsafe, "only 1 of the 3"), |host| {
        host.start_array("tank", false)
    });
    assert!(refusal.next.contains("--force"), "{refusal}");
    let started = bench.host.start_array("tank", true).expect("forced");
    assert_eq!(started.state, ArrayState::Degraded);
}

#[test]
fn halves_that_both_went_on_are_imported_one_at_a_time() {
    let bench = Bench::new();
    for name in ["one", "two"] {
        bench.file(name);
    }
    bench.create("tank", Level::Raid1, &["one", "two"]);
    let mut bench = bench;
    for half in ["one", "two"] {
        bench = restarted(bench, &[half]);
        bench.host.assemble();
        if bench.array("tank").state == ArrayState::Stopped {
            bench.host.start_array("tank", true).expect("forced");
        }
    }
    let bench = restarted(bench, &[]);
    let import = |drives: &[&str], force| ArrayImport {
        array: "tank".to_owned(),
        specs: drives
            .iter()
            .map(|name| file_at(&bench.path(name)))
            .collect(),
        force,
        taken: BTreeSet::new(),
    };
    for force in [false, true] {
        let refusal = bench.refused((ErrorKind::Unsafe, "not even by force: split"), |host| {
            host.import_array(&import(&["one", "two"], force))
        });
        assert!(refusal.next.contains("--search"), "{refusal}");
        let dates = refusal.message.matches(" UTC after").count();
        assert_eq!(dates, 2, "each side says when it was written: {refusal}");
    }
    let imported = bench.host.import_array(&import(&["two"], true));
    let imported = imported.expect("one half");
    assert_eq!(imported.state, ArrayState::Degraded);
}

#[test]
fn garbage_and_truncated_members_are_left_out() {
    for damage in [
        (|path| overwrite(path, 0xa5)) as fn(&Path),
        |path| overwrite(path, 0),
        |path| overwrite(path, b'G'),
        |path| {
            fs::File::options()
                .write(true)
                .open(path)
                .expect("a file")
                .set_len(MIB)
                .expect("cut")
        },
        |path| {
            let file = fs::File::options().write(true).open(path).expect("a file");
            file.set_len(DRIVE_BYTES / 2).expect("cut");
        },
        // Only the records.
        |path| {
            let file = fs::File::options().write(true).open(path).expect("a file");
            let garbage = vec![0x5a; usize::try_from(2 * MIB).expect("small")];
            file.write_all_at(&garbage, MIB + 64 * 1024)
                .expect("written");
        },
    ] {
        let bench = Bench::file_tank().next();
        damage(&bench.path("two"));
        for name in ALL {
            bench.reopen(name, "").expect("a file of whatever");
        }
        bench.host.assemble();
        let started = bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        assert_eq!(started.state, ArrayState::Degraded);
        assert_eq!(started.members[1].drive, None);
        assert_ne!(bench.drive("two").state, DriveState::Member);
    }
}

#[test]
fn one_bad_copy_of_a_superblock_is_written_anew() {
    let bench = Bench::file_tank().next();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(bench.path("two"))
        .expect("a file");
    let mut good = vec![0; 4096];
    file.read_exact_at(&mut good, MIB).expect("read");
    assert_eq!(&good[..8], b"GARBOARD");
    file.write_all_at(&[0xa5; 4096], MIB).expect("written");
    for name in ALL {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    let started = bench
        .host
        .start_array("tank", false)
        .expect("there are copies");
    assert_eq!(started.state, ArrayState::Optimal);
    let mut again = vec![0; 4096];
    file.read_exact_at(&mut again, MIB).expect("read");
    assert_eq!(again, good);
}

#[test]
fn a_member_of_another_array_is_not_taken() {
    let bench = Bench::file_tank();
    for name in ["a", "b", "c"] {
        bench.file(name);
    }
    bench.create("pond", Level::Raid5, &["a", "b", "c"]);
    let bench = bench.next();
    copy(&bench.path("b"), &bench.path("two"));
    for name in ["one", "two", "three"] {
        bench.reopen(name, "").expect("a file");
    }
    let assembled = bench.host.assemble();
    assert_eq!(assembled.len(), 2);
    let started = bench
        .host
        .start_array("tank", false)
        .expect("two are enough");
    assert_eq!(started.state, ArrayState::Degraded);
    assert_eq!(started.members[1].drive, None);
    assert_eq!(bench.drive("two").array.as_deref(), Some("pond"));
    bench.refused((ErrorKind::Degraded, "has 1"), |host| {
        host.start_array("pond", true)
    });
}

#[test]
fn a_copy_beside_the_member_is_left_out() {
    let bench = Bench::file_tank().next();
    copy(&bench.path("two"), &bench.path("a-twin"));
    for name in ["one", "two", "three", "a-twin"] {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    let twin = bench.drive("a-twin");
    assert_eq!(twin.state, DriveState::Failed);
    assert!(twin.cause.expect("said").contains("is used instead"));
    let started = bench.host.start_array("tank", false).expect("all are here");
    assert_eq!(started.state, ArrayState::Optimal);
    assert_eq!(started.members[1].drive.as_deref(), Some("two"));
}

#[test]
fn two_drives_that_claim_one_place_are_both_left_out_when_nothing_tells_them_apart() {
    let bench = Bench::file_tank().next();
    copy(&bench.path("two"), &bench.path("twin"));
    fs::rename(bench.path("two"), bench.path("other")).expect("renamed");
    for name in ["one", "other", "three", "twin"] {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    for name in ["other", "twin"] {
        let drive = bench.drive(name);
        assert_eq!(drive.state, DriveState::Failed);
        let cause = drive.cause.expect("said");
        assert!(cause.contains("claims to be the same member"), "{cause}");
    }
    let said = bench.array("tank").warnings.join("\n");
    assert!(
        said.contains("drive other is") && said.contains("drive twin is"),
        "{said}"
    );
    let started = bench
        .host
        .start_array("tank", false)
        .expect("two are enough");
    assert_eq!(started.state, ArrayState::Degraded);
}

#[test]
fn an_older_copy_put_back_is_left_out() {
    let bench = Bench::file_tank();
    copy(&bench.path("two"), &bench.path("old"));
    for size in 1..4 {
        let name = format!("v{size}");
        bench
            .host
            .create_volume(&volume_of(&name, "tank", size * MIB))
            .expect("room");
    }
    let volumes = bench.host.volumes();
    let bench = bench.next();
    copy(&bench.path("old"), &bench.path("two"));
    for name in ALL {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    let two = bench.drive("two");
    assert_eq!(two.state, DriveState::Failed);
    assert!(two.cause.expect("said").contains("is older than"));
    let started = bench
        .host
        .start_array("tank", false)
        .expect("two are enough");
    assert_eq!(started.state, ArrayState::Degraded);
    assert_eq!(started.members[1].state, MemberState::Failed);
    assert_eq!(bench.host.volumes(), volumes);
}

#[test]
fn an_older_copy_beside_the_member_is_not_used() {
    let bench = Bench::file_tank();
    copy(&bench.path("two"), &bench.path("old"));
    bench
        .host
        .create_volume(&volume_of("v", "tank", MIB))
        .expect("room");
    let bench = restarted(bench, &["old", "one", "two", "three"]);
    bench.host.assemble();
    assert_eq!(bench.drive("old").state, DriveState::Failed);
    let started = bench.host.start_array("tank", false).expect("all are here");
    assert_eq!(started.state, ArrayState::Optimal);
    assert_eq!(started.members[1].drive.as_deref(), Some("two"));
}

#[test]
fn two_arrays_of_one_name_are_both_there() {
    let first = Bench::file_tank().next();
    for name in ALL {
        fs::rename(first.path(name), first.path(&format!("old-{name}"))).expect("renamed");
    }
    for name in ALL {
        first.file(name);
    }
    first.create("tank", Level::Raid5, &ALL);
    let uuid = first.array("tank").uuid;
    let second = first.next();
    for name in ["old-one", "old-two", "old-three", "one", "two", "three"] {
        second.reopen(name, "").expect("a file");
    }
    assert_eq!(second.host.assemble().len(), 2);
    for array in second.host.arrays() {
        second
            .host
            .start_array(&array.name, false)
            .expect("complete");
    }
    let names: Vec<String> = second
        .host
        .arrays()
        .into_iter()
        .map(|array| array.name)
        .collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"tank".to_owned()), "{names:?} of {uuid}");
}

#[test]
fn an_unwritable_member_does_not_stop_a_start() {
    for fault in [
        Fault::Unwritable {
            offset: 0,
            length: DRIVE_BYTES,
        },
        Fault::FlushFails,
        Fault::Pulled,
    ] {
        let bench = Bench::file_tank().next();
        // Something to mend on it.
        let file = fs::File::options()
            .write(true)
            .open(bench.path("two"))
            .expect("a file");
        file.write_all_at(&[0xa5; 4096], MIB).expect("written");
        for name in ALL {
            bench.reopen(name, "").expect("a file");
        }
        bench.host.assemble();
        bench.inject("two", fault);
        let started = bench
            .host
            .start_array("tank", false)
            .expect("two are enough");
        assert_eq!(started.state, ArrayState::Degraded, "{fault:?}");
        assert_eq!(started.members[1].state, MemberState::Failed, "{fault:?}");
        let two = bench.drive("two");
        assert_eq!(two.state, DriveState::Failed, "{fault:?}");
        // And it stays out, although its own record looks well.
        bench.host.state().drives["two"].drive.clear_faults();
        bench.host.stop_array("tank").expect("unused");
        assert_eq!(
            bench.array("tank").members[1].state,
            MemberState::Failed,
            "{fault:?}"
        );
    }
}

#[test]
fn unwritable_members_beyond_redundancy_stop_a_start_and_are_named() {
    let bench = Bench::file_tank().next();
    for name in ["two", "three"] {
        let file = fs::File::options()
            .write(true)
            .open(bench.path(name))
            .expect("a file");
        file.write_all_at(&[0xa5; 4096], MIB).expect("written");
    }
    for name in ALL {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    for name in ["two", "three"] {
        bench.inject(
            name,
            Fault::Unwritable {
                offset: 0,
                length: DRIVE_BYTES,
            },
        );
    }
    let before = bench.array("tank").update;
    let refusal = bench
        .host
        .start_array("tank", false)
        .expect_err("one is not enough");
    assert_eq!(refusal.kind, ErrorKind::Degraded, "{refusal}");
    assert!(refusal.message.contains("drive t"), "{refusal}");
    assert_eq!(bench.array("tank").state, ArrayState::Stopped);
    assert_eq!(bench.array("tank").update, before);
    for name in ["two", "three"] {
        bench.host.state().drives[name].drive.clear_faults();
    }
    let started = bench.host.start_array("tank", false).expect("all is well");
    assert_eq!(started.state, ArrayState::Optimal);
}

/// Two arrays come together, each with a volume `v`, of one uuid or not; and these volumes.
fn two_with_volumes(one_uuid: bool) -> (Bench, [VolumeKey; 2]) {
    let bench = Bench::new();
    for name in ["one", "two", "three", "four"] {
        bench.file(name);
    }
    bench.create("attic", Level::Raid1, &["one", "two"]);
    let attics = volume_of("v", "attic", MIB);
    let attics = bench.host.create_volume(&attics).expect("room").key();
    bench.host.stop_array("attic").expect("idle");
    // Another engine knows nothing of the first array.
    let bench = restarted(bench, &["three", "four"]);
    bench.create("tank", Level::Raid1, &["three", "four"]);
    let mut tanks = volume_of("v", "tank", MIB);
    if one_uuid {
        tanks.uuid = attics.uuid;
    }
    let tanks = bench.host.create_volume(&tanks).expect("room").key();
    for name in ["one", "two"] {
        bench.reopen(name, "").expect("a file");
    }
    bench.host.assemble();
    bench.host.start_array("attic", false).expect("complete");
    (bench, [attics, tanks])
}

#[test]
fn volumes_of_one_name_on_two_arrays_are_never_taken_for_one_another() {
    for one_uuid in [false, true] {
        let (bench, [attics, tanks]) = two_with_volumes(one_uuid);
        assert_eq!(attics.uuid == tanks.uuid, one_uuid);
        let serve = |bench: &Bench, name: &str, volume: &VolumeKey| {
            let export = export_of(bench, name, "v");
            bench.host.create_export(&export, volume).expect("served");
            Guest::connect(&bench.path(&format!("{name}.sock")))
        };
        for (name, volume, byte) in [("a", &attics, 1), ("t", &tanks, 2)] {
            serve(&bench, name, volume).fill(0, byte);
        }
        for (name, volume, byte) in [("a2", &attics, 1), ("t2", &tanks, 2)] {
            bench.host.remove_export(&name[..1]).expect("there");
            let read = serve(&bench, name, volume).read(0);
            assert!(read.iter().all(|other| *other == byte), "{name}");
        }
        // A guest of one grows with its own volume only.
        bench.host.remove_export("t2").expect("there");
        let resized = bench.host.resize_volume(&tanks, 2 * MIB).expect("room");
        assert_eq!(
            (resized.key(), resized.size_bytes),
            (tanks.clone(), 2 * MIB)
        );
        let mut guest = Guest::connect(&bench.path("a2.sock"));
        assert_eq!(guest.read(0), [1; 4096]);
        guest.ask_read(MIB / 512);
        let guest = RefCell::new(guest);
        wait_until("an error behind its end", || {
            guest.borrow_mut().answer() == Some(1)
        });
        drop(guest);
        bench.host.delete_volume(&tanks).expect("not exported");
        bench.host.remove_export("a2").expect("there");
        let left = bench.host.volumes();
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].key(), left[0].size_bytes), (attics, MIB));
    }
}

#[test]
fn of_two_volumes_of_one_uuid_each_has_its_own_limits_exports_and_counters() {
    let (bench, [attics, tanks]) = two_with_volumes(true);
    let limit = |iops| VolumeLimit {
        iops: Some(iops),
        ..VolumeLimit::default()
    };
    let view = |key: &VolumeKey| {
        let mut volumes = bench.host.volumes().into_iter();
        volumes.find(|volume| volume.key() == *key).expect("there")
    };
    for (key, iops) in [(&attics, 1000), (&tanks, 2000)] {
        let limited = bench.host.limit_volume(key, &limit(iops));
        assert_eq!(limited.expect("there").limit, limit(iops));
    }
    assert_eq!(view(&attics).limit, limit(1000));
    let export = export_of(&bench, "a", "v");
    bench.host.create_export(&export, &attics).expect("served");
    Guest::connect(&bench.path("a.sock")).fill(0, 1);
    let told = [&attics, &tanks].map(|key| {
        let view = view(key);
        (view.exports.len(), view.counters.written_bytes_total)
    });
    assert_eq!(told, [(1, 4096), (0, 0)]);
    bench.host.delete_volume(&tanks).expect("not exported");
    assert_eq!(view(&attics).limit, limit(1000));
    assert_eq!(view(&attics).counters.written_bytes_total, 4096);
}

#[test]
fn an_import_takes_no_name_that_a_drive_has() {
    let bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.file(name);
    }
    bench.create("tank", Level::Raid5, &ALL);
    let bench = restarted(bench, &[]);
    // A member of another array, and a drive that is only wanted.
    let own = ["tank-1", "tank-1-2"];
    for name in own {
        bench.file(name);
    }
    bench.create("other", Level::Raid1, &own);
    let import = ArrayImport {
        array: "tank".to_owned(),
        specs: ALL.map(|name| file_at(&bench.path(name))).to_vec(),
        force: false,
        taken: BTreeSet::from(["tank-0".to_owned()]),
    };
    let imported = bench.host.import_array(&import).expect("complete");
    let names: Vec<&str> = (imported.members.iter())
        .filter_map(|member| member.drive.as_deref())
        .collect();
    assert_eq!(names, ["tank-0-2", "tank-1-3", "tank-2"]);
    assert_eq!(bench.array("other").state, ArrayState::Optimal);
    assert_eq!(bench.host.drives().len(), 5);
}

#[test]
fn an_array_is_listed_while_it_is_put_together_again() {
    let bench = Bench::file_tank();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looks = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let arrays = bench.host.arrays();
                let of_drives = bench.host.drives();
                let is_member = |drive: &DriveView| drive.array.as_deref() == Some("tank");
                if arrays.len() != 1 || !of_drives.iter().all(is_member) {
                    return Err(format!("look {looks}: {arrays:?} {of_drives:?}"));
                }
                looks += 1;
            }
            Ok(looks)
        });
        for _ in 0..20 {
            bench.host.stop_array("tank").expect("nothing uses it");
            bench.host.start_array("tank", false).expect("all are here");
        }
        is_over.store(true, Ordering::Relaxed);
        let looks = looker.join().expect("no panic").expect("listed always");
        assert!(looks > 20, "{looks}");
    });
}
