//! Opening and refusing: files, what is no file, and (by hand, as root) a loop device.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::Drive;

fn disk() -> tempfile::TempDir {
    let test = std::env::current_exe().unwrap();
    tempfile::tempdir_in(test.parent().unwrap()).unwrap()
}

fn refusal(spec: &str) -> (OpenErrorKind, String) {
    let error = Drive::open(&spec.parse().unwrap()).unwrap_err();
    (error.kind, error.to_string())
}

#[test]
fn a_created_file_is_sparse_zero_private_and_of_the_size_asked() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (folder, volatile) in [(disk(), true), (memory, false)] {
        let path = folder.path().join("d");
        let spec: DriveSpec = format!("file:{},size=8MiB,create", path.display())
            .parse()
            .unwrap();
        let drive = Drive::open(&spec).unwrap();
        let facts = fs::metadata(&path).unwrap();
        assert_eq!(facts.len(), 8 << 20);
        assert!(facts.blocks() < 64, "{} blocks", facts.blocks());
        assert_eq!(facts.mode() & 0o777, 0o600);
        let info = drive.info();
        assert_eq!(info.size_bytes, 8 << 20);
        assert_eq!(
            info.path.as_deref(),
            Some(&*fs::canonicalize(&path).unwrap())
        );
        assert!(info.reads_zero_when_new);
        assert_eq!(info.volatile_cache, volatile);
        let identity = info.identity().unwrap();
        assert!(
            identity.starts_with("path:/") && identity.ends_with("/d"),
            "{identity}"
        );
        drop(drive);
        let again = Drive::open(&spec.reopened()).unwrap();
        assert!(!again.info().reads_zero_when_new);
    }
}

#[test]
fn a_file_that_is_not_at_its_path_any_more_was_taken_away() {
    let folder = disk();
    let (path, away) = (folder.path().join("d"), folder.path().join("away"));
    let spec = format!("file:{},size=8MiB,create", path.display());
    let drive = Drive::open(&spec.parse().unwrap()).unwrap();
    assert!(!drive.is_taken_away());
    fs::rename(&path, &away).unwrap();
    assert!(drive.is_taken_away(), "nothing is there");
    fs::write(&path, "another").unwrap();
    assert!(drive.is_taken_away(), "another file is there");
    fs::rename(&away, &path).unwrap();
    assert!(!drive.is_taken_away() && !drive.is_deleted());
    fs::remove_file(&path).unwrap();
    assert!(drive.is_taken_away() && drive.is_deleted());
    let memory = Drive::open(&"mem:8MiB".parse().unwrap()).unwrap();
    assert!(!memory.is_taken_away() && !memory.is_deleted());
}

#[test]
fn a_file_in_memory_says_that_it_is_buffered_and_why() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let spec = format!("file:{}/d,size=1MiB,create", folder.path().display());
    let drive = Drive::open(&spec.parse().unwrap()).unwrap();
    let info = drive.info();
    assert!(!info.direct_io);
    assert!(info.buffered_reason.as_ref().unwrap().contains("tmpfs"));
    assert_eq!((info.memory_align, info.length_align()), (1, 1));
}

#[test]
fn a_file_on_disk_is_opened_past_the_page_cache() {
    let folder = disk();
    let spec = format!("file:{}/d,size=1MiB,create", folder.path().display());
    let drive = Drive::open(&spec.parse().unwrap()).unwrap();
    let info = drive.info();
    assert!(info.direct_io, "the tests need a disk with direct I/O");
    assert_eq!(info.buffered_reason, None);
    assert_eq!(info.length_align(), info.block_bytes);
}

/// Whether the kernel does not wait for the answers of an open drive.
fn waits_not(drive: &Drive) -> bool {
    let file = std::os::fd::AsFd::as_fd(drive.file().expect("it has one"));
    let flags = rustix::fs::fcntl_getfl(file).expect("open");
    flags.contains(rustix::fs::OFlags::NONBLOCK)
}

#[test]
fn the_kernel_waits_for_what_a_file_on_disk_has_to_be_waited_for() {
    for (folder, expected) in [
        (disk(), false),
        (tempfile::tempdir_in("/dev/shm").unwrap(), true),
    ] {
        let spec = format!(
            "file:{},size=8MiB,create",
            folder.path().join("d").display()
        );
        let create: DriveSpec = spec.parse().unwrap();
        let made = Drive::open(&create).unwrap();
        assert_eq!(waits_not(&made), expected, "{spec}");
        drop(made);
        let again = Drive::open(&create.reopened()).unwrap();
        assert_eq!(waits_not(&again), expected, "{spec}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_and_others_rounded_down() {
    let folder = disk();
    let path = folder.path().join("d");
    let open = |option: &str| format!("file:{}{option}", path.display());
    fs::write(&path, vec![1; 10_000]).unwrap();
    let drive = Drive::open(&open("").parse().unwrap()).unwrap();
    let block = drive.info().block_bytes;
    assert_eq!(drive.info().size_bytes, 10_000 / block * block);
    drop(drive);
    let drive = Drive::open(&open(",size=8KiB").parse().unwrap()).unwrap();
    assert_eq!(drive.info().size_bytes, 8192);
    drop(drive);
    let (kind, words) = refusal(&open(",size=16KiB"));
    assert_eq!(kind, OpenErrorKind::Size);
    assert!(
        words.contains("10000") && words.contains("16384"),
        "{words}"
    );
    fs::write(&path, vec![1; 100]).unwrap();
    assert_eq!(refusal(&open("")).0, OpenErrorKind::Size);
    assert_eq!(refusal("mem:511").0, OpenErrorKind::Size);
    assert_eq!(refusal("null:9000PiB").0, OpenErrorKind::Size);
}

#[test]
fn what_exists_is_not_created_over_and_a_failed_creation_leaves_nothing() {
    let folder = disk();
    let path = folder.path().join("d");
    fs::write(&path, b"precious").unwrap();
    let (kind, words) = refusal(&format!("file:{},size=1MiB,create", path.display()));
    assert_eq!(kind, OpenErrorKind::Exists);
    assert!(words.contains("leave out `create`"), "{words}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let large = folder.path().join("large");
    let (kind, _) = refusal(&format!("file:{},size=8191PiB,create", large.display()));
    assert_eq!(kind, OpenErrorKind::Size);
    assert!(!large.exists());
    let small = folder.path().join("small");
    let (kind, _) = refusal(&format!("file:{},size=100,create", small.display()));
    assert_eq!(kind, OpenErrorKind::Size);
    assert!(!small.exists());
}

#[test]
fn each_wrong_path_is_refused_with_what_to_write_instead() {
    let folder = disk();
    let file = folder.path().join("d");
    fs::write(&file, vec![0; 4096]).unwrap();
    let place = folder.path().display().to_string();
    let file = file.display().to_string();
    for (spec, kind, word) in [
        (
            file.clone(),
            OpenErrorKind::WrongKind,
            format!("file:{file}"),
        ),
        (
            place.clone(),
            OpenErrorKind::WrongKind,
            "not a block".into(),
        ),
        (
            format!("file:{place}"),
            OpenErrorKind::WrongKind,
            "neither".into(),
        ),
        (
            "file:/dev/null".into(),
            OpenErrorKind::WrongKind,
            "neither".into(),
        ),
        (
            "/dev/null".into(),
            OpenErrorKind::WrongKind,
            "not a block".into(),
        ),
        (
            format!("file:{place}/no"),
            OpenErrorKind::NotFound,
            "no such".into(),
        ),
        (
            format!("{place}/no"),
            OpenErrorKind::NotFound,
            "no such".into(),
        ),
        (
            format!("file:{place}/no/d,size=1MiB,create"),
            OpenErrorKind::NotFound,
            "no such".into(),
        ),
    ] {
        let (got, words) = refusal(&spec);
        assert_eq!(got, kind, "{words}");
        assert!(words.contains(&word), "{words}");
    }
}

#[test]
fn blocking_transfers_outside_or_across_blocks_are_refused() {
    for spec in ["mem:1MiB", "null:1MiB"] {
        let drive = Drive::open(&spec.parse().unwrap()).unwrap();
        for (offset, length) in [(1 << 20, 512), (u64::MAX - 511, 512), (1, 512), (0, 100)] {
            let mut bytes = vec![0; length];
            let error = drive.read(offset, &mut bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let error = drive.write(offset, &bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}

/// A loop device over a file, as long as this value lives.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(file: &Path) -> LoopDevice {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let name = String::from_utf8(output.stdout).unwrap();
        LoopDevice(PathBuf::from(name.trim()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

#[test]
#[ignore = "needs root and a free loop device; run with --ignored"]
fn a_block_device_is_ours_alone_and_does_everything() {
    use block::{Cookie, Operation, Status};
    use memory::{SegmentList, SegmentSlots};
    use units::DriveIndex;

    let folder = disk();
    let file = folder.path().join("d");
    fs::write(&file, vec![0xA5; 4 << 20]).unwrap();
    let device = LoopDevice::new(&file);
    let spec: DriveSpec = device.0.display().to_string().parse().unwrap();
    let (kind, words) = refusal(&format!("file:{spec}"));
    assert_eq!(kind, OpenErrorKind::WrongKind);
    assert!(words.contains("write just"), "{words}");
    let drive = Drive::open(&spec).unwrap();
    let info = drive.info();
    assert_eq!(
        (info.kind, info.size_bytes),
        (DriveKind::BlockDevice, 4 << 20)
    );
    let (kind, words) = refusal(&spec.to_string());
    assert_eq!(kind, OpenErrorKind::InUse);
    assert!(words.contains("in use"), "{words}");

    let room = Mapping::new(1 << 20).unwrap();
    let mut lists = SegmentSlots::new(2, 4);
    let mut port = crate::Port::new(crate::PortOptions::default()).unwrap();
    port.attach(DriveIndex(0), drive.clone()).unwrap();
    let memory = room.segment(3, 8192);
    memory.fill(0x11);
    let list = lists.lend(0, |list| list.push(memory));
    for (operation, offset, length, segments) in [
        (Operation::Write, 4096, 8192, list),
        (Operation::Flush, 0, 0, SegmentList::EMPTY),
        (Operation::WriteZeroes, 65536, 65536, SegmentList::EMPTY),
        (Operation::Discard, 1 << 20, 65536, SegmentList::EMPTY),
    ] {
        let request = crate::DriveRequest {
            drive: DriveIndex(0),
            operation,
            offset,
            length,
            segments,
            cookie: Cookie(offset),
        };
        port.submit(request).unwrap();
        let mut done = Vec::new();
        while port.poll(&mut done) == 0 {
            port.wait(None);
        }
        assert_eq!(done[0].status, Status::Ok, "{operation:?}");
    }
    lists.take_back(0);
    let mut all = vec![1; 4 << 20];
    drive.read(0, &mut all).unwrap();
    for (at, byte) in all.iter().enumerate() {
        let wanted = match at {
            4096..12288 => 0x11,
            65536..131_072 => 0,
            0x10_0000..0x11_0000 if info.discard_reads_zero => 0,
            _ => 0xA5,
        };
        assert_eq!(*byte, wanted, "at {at}");
    }
    drop(port);
}

#[test]
#[ignore = "needs root and a free loop device; run with --ignored"]
fn behind_the_new_end_of_a_device_that_became_smaller_are_errors_and_not_no_space() {
    use block::{Cookie, Operation, Status};
    use memory::{SegmentList, SegmentSlots};
    use units::DriveIndex;

    let folder = disk();
    let file = folder.path().join("d");
    fs::write(&file, vec![0; 4 << 20]).unwrap();
    let device = LoopDevice::new(&file);
    let drive = Drive::open(&device.0.display().to_string().parse().unwrap()).unwrap();
    let room = Mapping::new(8192).unwrap();
    let mut lists = SegmentSlots::new(1, 1);
    let list = lists.lend(0, |list| list.push(room.segment(0, 8192)));
    let mut port = crate::Port::new(crate::PortOptions::default()).unwrap();
    port.attach(DriveIndex(0), drive.clone()).unwrap();
    let shortened = File::options().write(true).open(&file).unwrap();
    shortened.set_len((2 << 20) + 4096).unwrap();
    let looks = Command::new("losetup").arg("-c").arg(&device.0).status();
    assert!(looks.unwrap().success());
    let end = (2 << 20) + 4096;
    for (operation, offset, wanted) in [
        (Operation::Write, end - 8192, Status::Ok),
        (Operation::Write, end - 4096, Status::Media),
        (Operation::Write, end, Status::Media),
        (Operation::WriteZeroes, end, Status::Media),
        (Operation::Read, end - 8192, Status::Ok),
        (Operation::Read, end - 4096, Status::Media),
        (Operation::Read, end, Status::Media),
    ] {
        let moves = operation != Operation::WriteZeroes;
        let request = crate::DriveRequest {
            drive: DriveIndex(0),
            operation,
            offset,
            length: 8192,
            segments: if moves { list } else { SegmentList::EMPTY },
            cookie: Cookie(offset),
        };
        port.submit(request).unwrap();
        let mut done = Vec::new();
        while port.poll(&mut done) == 0 {
            port.wait(None);
        }
        assert_eq!(done[0].status, wanted, "{operation:?} {offset}");
    }
    lists.take_back(0);
    drop(port);
}

#[test]
#[ignore = "needs root and a free loop device; run with --ignored"]
fn a_cache_that_is_turned_on_later_is_flushed_from_then_on() {
    use block::{Cookie, Operation, Status};
    use memory::SegmentList;
    use units::DriveIndex;

    let folder = disk();
    let file = folder.path().join("d");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let device = LoopDevice::new(&file);
    let name = device.0.file_name().unwrap().to_str().unwrap();
    let mode = format!("/sys/block/{name}/queue/write_cache");
    // The kernel remembers what the last user of this number wrote there.
    fs::write(&mode, "write back").unwrap();
    let spec: DriveSpec = device.0.display().to_string().parse().unwrap();
    let drive = Drive::open(&spec).unwrap();
    assert!(drive.has_volatile_cache() && drive.cache_watch().is_none());
    drop(drive);
    fs::write(&mode, "write through").unwrap();
    let drive = Drive::open(&spec).unwrap();
    let mut port = crate::Port::new(crate::PortOptions::default()).unwrap();
    port.attach(DriveIndex(0), drive.clone()).unwrap();
    let mut flush = || {
        let request = crate::DriveRequest {
            drive: DriveIndex(0),
            operation: Operation::Flush,
            offset: 0,
            length: 0,
            segments: SegmentList::EMPTY,
            cookie: Cookie(0),
        };
        port.submit(request).unwrap();
        let mut done = Vec::new();
        while port.poll(&mut done) == 0 {
            port.wait(None);
        }
        assert_eq!(done[0].status, Status::Ok);
        port.port_counters().operations
    };
    let watch = drive.cache_watch().expect("it may be turned on");
    assert!(watch.turned_on().is_none() && !drive.has_volatile_cache());
    assert_eq!(flush(), 0);
    fs::write(&mode, "write back").unwrap();
    let turned_on = watch.turned_on().expect("it was");
    assert!(std::sync::Arc::ptr_eq(&turned_on, &drive) && drive.has_volatile_cache());
    assert!(watch.turned_on().is_none(), "it is no news any more");
    assert!(drive.cache_watch().is_none());
    assert_eq!(flush(), 1);
    drop((port, turned_on, drive));
    assert!(watch.turned_on().is_none(), "it is closed");
}

/// A process that keeps the lock on `path` for so long, taken by another one that has ended: what
/// is left of a killed engine while a slow drive still works for it. Ready when the lock is held.
fn left_behind(path: &Path, seconds: &str) -> std::process::Child {
    use std::io::Read;
    let script = format!("exec 9<>\"$0\"; flock 9; echo held; exec sleep {seconds}");
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut said = [0; 5];
    let out = child.stdout.as_mut().expect("piped");
    out.read_exact(&mut said).expect("it says so");
    child
}

#[test]
fn a_drive_waits_for_the_requests_of_an_engine_that_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d0");
    drop(open_file(&path, Some(Size(1 << 20)), true).expect("made"));
    let mut rest = left_behind(&path, "0.5");
    let begun = MonotonicClock.now();
    open_file(&path, None, false).expect("had once they have landed");
    assert!(MonotonicClock.now().since(begun) >= Duration::from_millis(200));
    rest.wait().expect("it has ended");

    let mut rest = left_behind(&path, "30");
    let (file, _) = open_direct(&path, Purpose::Use).expect("it is there");
    let refusal =
        lock_file(&path, &file, Lock::Alone, Duration::from_millis(50)).expect_err("not in time");
    assert_eq!(refusal.kind, OpenErrorKind::InUse);
    assert!(refusal.to_string().contains("which has ended"), "{refusal}");
    rest.kill().expect("it runs");
    rest.wait().expect("it has ended");
}

#[test]
fn nobody_waits_for_an_engine_that_lives() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d0");
    let first = open_file(&path, Some(Size(1 << 20)), true).expect("made");
    let begun = MonotonicClock.now();
    let refusal = open_file(&path, None, false).expect_err("locked");
    assert!(MonotonicClock.now().since(begun) < GONE_WAIT);
    assert!(refusal.to_string().contains("another engine"), "{refusal}");
    drop(first);
}

#[test]
fn a_drive_in_use_is_looked_at_without_its_lock_and_takes_no_write() {
    let folder = disk();
    let path = folder.path().join("d");
    let create: DriveSpec = format!("file:{},size=8MiB,create", path.display())
        .parse()
        .unwrap();
    let owner = Drive::open(&create).unwrap();
    owner.write(4096, &[7; 4096]).unwrap();
    owner.flush().unwrap();
    let spec = create.reopened();
    assert_eq!(
        Drive::open(&spec).unwrap_err().kind,
        OpenErrorKind::InUse,
        "the owner has it"
    );
    let looker = Drive::open_to_look(&spec).unwrap();
    assert_eq!(looker.info().size_bytes, 8 << 20);
    let mut found = vec![0; 4096];
    looker.read(4096, &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    looker.write(4096, &[8; 4096]).unwrap_err();
    owner.read(4096, &mut found).unwrap();
    assert_eq!(found, [7; 4096]);
    // Who looks keeps nobody out.
    drop(owner);
    Drive::open(&spec).unwrap();
}
