//! Drives: everything a user can get wrong is refused, said, and changes nothing.

use std::fs;
use std::os::unix::fs::FileExt;

use control::request::{DriveSpec, Lamp, Level};
use control::view::DriveState;
use control::{Engine, ErrorKind};
use drive::Fault;

use super::{Bench, DRIVE_BYTES, MIB, file_at, file_to_fill};

/// What people have on their drives: where its magic is, and what we call it.
pub(super) const FOREIGN: [(&str, u64, &[u8]); 6] = [
    ("GPT partition table", 512, b"EFI PART"),
    ("MBR partition table", 446, &{
        let mut table = [0; 66];
        table[4] = 0x83;
        table[64] = 0x55;
        table[65] = 0xaa;
        table
    }),
    ("ext4", 1024 + 56, &{
        let mut superblock = [0; 48];
        superblock[0] = 0x53;
        superblock[1] = 0xef;
        superblock[96 - 56] = 0x40;
        superblock
    }),
    ("xfs", 0, b"XFSB"),
    ("LVM2 physical volume", 512, b"LABELONE"),
    ("md member (1.2)", 4096, &0xa92b_4efc_u32.to_le_bytes()),
];

#[test]
fn a_file_that_is_not_there_comes_with_the_way_to_make_one() {
    let bench = Bench::new();
    let refused = |spec| bench.add("d", spec).expect_err("not there");
    let nowhere = bench.path("nowhere");
    assert!(refused(file_at(&nowhere)).next.contains("size=SIZE,create"));
    let in_no_folder = DriveSpec::File {
        path: bench.path("no/folder"),
        size_bytes: Some(MIB),
        create: true,
    };
    assert!(refused(in_no_folder).next.contains("make the folder"));
    let block = DriveSpec::Block { path: nowhere };
    assert!(!refused(block).next.contains("create"));
}

#[test]
fn paths_that_are_no_drive_are_refused() {
    let bench = Bench::new();
    let folder = bench.path("folder");
    fs::create_dir(&folder).expect("a folder");
    fs::write(bench.path("empty"), b"").expect("a file");
    fs::write(bench.path("small"), vec![0; 8192]).expect("a file");
    let sized = |name: &str, size_bytes, create| DriveSpec::File {
        path: bench.path(name),
        size_bytes: Some(size_bytes),
        create,
    };
    let block = |path| DriveSpec::Block { path };
    let cases = [
        (
            file_at(&bench.path("nowhere")),
            ErrorKind::NotFound,
            "no such path",
        ),
        (file_at(&folder), ErrorKind::Invalid, "neither a file nor"),
        (
            file_at(&bench.path("empty")),
            ErrorKind::Invalid,
            "less than one block",
        ),
        (
            sized("small", MIB, false),
            ErrorKind::Invalid,
            "fewer than size=",
        ),
        (
            sized("small", MIB, true),
            ErrorKind::Exists,
            "the file exists",
        ),
        (
            sized("folder/x/y", MIB, true),
            ErrorKind::NotFound,
            "no such path",
        ),
        (
            block(bench.path("small")),
            ErrorKind::Invalid,
            "regular file",
        ),
        (
            block(bench.path("nowhere")),
            ErrorKind::NotFound,
            "no such path",
        ),
        (
            block("/dev/null".into()),
            ErrorKind::Invalid,
            "not a block device",
        ),
        (
            DriveSpec::Memory { size_bytes: 1 },
            ErrorKind::Invalid,
            "at least one block",
        ),
        (
            DriveSpec::Memory {
                size_bytes: u64::MAX,
            },
            ErrorKind::Invalid,
            "8 EiB",
        ),
        (
            DriveSpec::Memory {
                size_bytes: 1 << 62,
            },
            ErrorKind::Invalid,
            "no address space",
        ),
    ];
    for (spec, kind, word) in cases {
        let refusal = bench.refused((kind, word), |_| bench.add("d", spec.clone()));
        assert_eq!(refusal.object, "drive d");
    }
    assert!(!bench.path("folder/x").exists());
    assert_eq!(fs::read(bench.path("small")).expect("there"), vec![0; 8192]);
}

#[test]
fn a_drive_is_added_once_and_a_name_is_used_once() {
    let bench = Bench::new();
    bench.file("one");
    std::os::unix::fs::symlink(bench.path("one"), bench.path("link")).expect("a link");
    fs::hard_link(bench.path("one"), bench.path("hard")).expect("a link");
    for path in ["one", "link", "hard"] {
        let spec = file_at(&bench.path(path));
        let refusal = bench.refused((ErrorKind::Exists, "is drive one already"), |_| {
            bench.add("again", spec.clone())
        });
        assert_eq!(refusal.object, "drive again");
    }
    let memory = DriveSpec::Memory {
        size_bytes: DRIVE_BYTES,
    };
    bench.refused((ErrorKind::Exists, "drive one"), |_| {
        bench.add("one", memory)
    });
}

#[test]
fn what_is_not_there_is_said_so() {
    let bench = Bench::tank();
    let missing = (ErrorKind::NotFound, "drive nine");
    bench.refused(missing, |host| host.remove_drive("nine", false));
    bench.refused(missing, |host| host.remove_drive("nine", true));
    bench.refused(missing, |host| host.wipe_drive("nine", true));
    bench.refused(missing, |host| host.locate_drive("nine", Lamp::On));
    bench.refused((ErrorKind::Invalid, "no bay"), |host| {
        host.locate_drive("one", Lamp::On)
    });
}

#[test]
fn members_are_neither_removed_nor_wiped() {
    let bench = Bench::tank();
    let refusal = bench.refused((ErrorKind::Busy, "member 1 of array tank"), |host| {
        host.remove_drive("two", false)
    });
    assert!(refusal.next.contains("--force takes it out"), "{refusal}");
    bench.refused((ErrorKind::Busy, "member 1 of array tank"), |host| {
        host.wipe_drive("two", true)
    });
    bench.host.stop_array("tank").expect("unused");
    bench.refused((ErrorKind::Busy, "not started"), |host| {
        host.remove_drive("two", false)
    });
    bench.refused((ErrorKind::Busy, "member 1 of array tank"), |host| {
        host.wipe_drive("two", true)
    });
}

#[test]
fn a_drive_that_holds_the_only_copy_stays_even_when_forced() {
    let bench = Bench::tank();
    bench.host.remove_drive("one", true).expect("two are left");
    bench.refused((ErrorKind::Unsafe, "would lose data"), |host| {
        host.remove_drive("two", true)
    });
    bench.host.wipe_drive("three", true).expect_err("a member");
}

#[test]
fn foreign_content_is_named_and_only_force_erases_it() {
    let bench = Bench::new();
    for (position, (kind, offset, magic)) in FOREIGN.into_iter().enumerate() {
        let name = format!("d{position}");
        let file = file_to_fill(bench.path(&name)).expect("a file");
        file.set_len(DRIVE_BYTES).expect("sparse");
        file.write_all_at(magic, offset).expect("written");
        let view = bench.open_file(&name).expect("a drive may carry anything");
        assert_eq!(view.signature.as_deref(), Some(kind));
        let refusal = bench.refused((ErrorKind::Unsafe, kind), |host| {
            host.wipe_drive(&name, false)
        });
        assert!(refusal.next.contains("--force"), "{refusal}");
        let mut still = vec![0; magic.len()];
        file.read_exact_at(&mut still, offset).expect("read");
        assert_eq!(still, magic);
        let wiped = bench.host.wipe_drive(&name, true).expect("forced");
        assert_eq!(wiped.signature, None);
    }
}

#[test]
fn a_drive_that_cannot_be_read_is_not_wiped() {
    let bench = Bench::new();
    bench.memory("one");
    bench.inject("one", Fault::Pulled);
    bench.refused((ErrorKind::Unsafe, "its ends cannot be read"), |host| {
        host.wipe_drive("one", false)
    });
    bench.refused((ErrorKind::Internal, "wiping the drive failed"), |host| {
        host.wipe_drive("one", true)
    });
}

#[test]
fn a_second_engine_is_refused_the_drives_of_the_first() {
    let first = Bench::file_tank();
    let second = Bench::on(std::sync::Arc::clone(&first.folder));
    let before = first.listing();
    let refusal = second.refused((ErrorKind::Busy, "in use by another engine"), |_| {
        second.open_file("one")
    });
    let own = format!("process {}", std::process::id());
    assert!(refusal.message.contains(&own), "{refusal}");
    let specs = [file_at(&first.path("one"))];
    second.refused((ErrorKind::Busy, "in use by another engine"), |host| {
        host.find_arrays(&specs)
    });
    assert_eq!(first.listing(), before);
}

#[test]
fn a_removed_drive_is_free_for_others_and_keeps_what_is_on_it() {
    let first = Bench::file_tank();
    first.host.stop_array("tank").expect("unused");
    first.host.remove_drive("one", true).expect("forced");
    let second = Bench::on(std::sync::Arc::clone(&first.folder));
    super::wait_until("the lock is let go", || second.open_file("one").is_ok());
    assert_eq!(
        second.drive("one").signature.as_deref(),
        Some("garboard member")
    );
    assert_eq!(second.drive("one").state, DriveState::Free);
    second.refused((ErrorKind::Unsafe, "garboard member"), |host| {
        host.create_array(&super::array_of("tank", Level::Raid0, &["one"]))
    });
}

/// A drive that hangs would let everybody wait who only wants to see the list.
#[test]
fn what_a_drive_holds_is_told_without_asking_it() {
    let bench = Bench::file_tank();
    let mut bytes = vec![0; 4096];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    let path = bench.path("four");
    let file = file_to_fill(path).expect("new");
    file.set_len(DRIVE_BYTES).expect("room");
    file.write_all_at(&bytes, 0).expect("written");
    bench.open_file("four").expect("a file");
    let kinds = |bench: &Bench| ["two", "four"].map(|name| bench.drive(name).signature);
    let before = kinds(&bench);
    assert_eq!(before[0].as_deref(), Some("garboard member"));
    assert!(
        before[1]
            .as_deref()
            .is_some_and(|kind| kind.starts_with("ext"))
    );
    for name in ["two", "four"] {
        bench.inject(name, Fault::Pulled);
    }
    assert_eq!(kinds(&bench), before);
    bench.host.state().drives["four"].drive.clear_faults();
    let wiped = bench.host.wipe_drive("four", true).expect("free");
    assert_eq!(wiped.signature, None);
}
