//! Front-ends that take their memory away, and bus errors that are none of our business.
// Miri knows neither memory files nor signals.
#![cfg(not(miri))]
#![allow(unsafe_code, reason = "bus errors are made by hand")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::{Arc, Barrier};

use memory::guest::{MAPPINGS_MAX, Mapping, Region, RegionTable, survive_truncation, truncations};
use memory::{Segment, SegmentList};

const LENGTH: u64 = 256 << 10;

/// A file in memory, full of sevens.
fn file() -> File {
    // SAFETY: makes a new descriptor.
    let descriptor = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(descriptor >= 0);
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all_at(&vec![7; usize::try_from(LENGTH).unwrap()], 0)
        .unwrap();
    file
}

fn table(mapping: &Arc<Mapping>) -> Arc<RegionTable> {
    let region = Region {
        guest_base: 0,
        front_end_base: 0,
        length: LENGTH,
        mapping: Arc::clone(mapping),
        offset: 0,
    };
    RegionTable::new(vec![region]).unwrap()
}

fn byte(segment: Segment, at: usize) -> u8 {
    let mut byte = [0];
    segment.part(at, 1).copy_to_slice(&mut byte);
    byte[0]
}

/// One test, because the table and the count are the process's.
#[test]
fn memory_that_is_taken_away_breaks_its_own_mapping_only() {
    survive_truncation().unwrap();
    survive_truncation().unwrap();
    a_load_and_a_store_are_survived();
    a_copy_past_the_caches_is_survived();
    many_threads_are_survived();
    a_slot_is_free_again_after_its_mapping();
    a_full_table_is_an_error();
}

fn a_load_and_a_store_are_survived() {
    let (hostile, good) = (file(), file());
    let mapping = Mapping::new(hostile.as_fd(), 0, LENGTH).unwrap();
    let other = Mapping::new(good.as_fd(), 0, LENGTH).unwrap();
    let (ours, others) = (table(&mapping), table(&other));
    let last = usize::try_from(LENGTH).unwrap() - 1;

    hostile.set_len(LENGTH / 2).unwrap();
    assert_eq!(byte(mapping.segment(), 0), 7);
    assert!(!ours.is_broken(), "nobody has noticed yet");
    assert_eq!(byte(mapping.segment(), last), 0);
    assert!(ours.is_broken() && mapping.is_broken());
    assert!(!others.is_broken() && !other.is_broken());
    assert_eq!(truncations(), 1);

    // All of it is ours now: storing is harmless and reaches nobody.
    mapping.segment().fill(9);
    let mut first = [0; 1];
    hostile.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [7]);
    assert_eq!(byte(other.segment(), last), 7);

    good.set_len(0).unwrap();
    other.segment().part(last, 1).fill(1);
    assert!(others.is_broken());
    assert_eq!(truncations(), 2);
}

fn a_copy_past_the_caches_is_survived() {
    let before = truncations();
    let hostile = file();
    let mapping = Mapping::new(hostile.as_fd(), 0, LENGTH).unwrap();
    hostile.set_len(LENGTH / 2).unwrap();
    let half = usize::try_from(LENGTH / 2).unwrap();
    let list = [mapping.segment().part(half - 4096, 8192)];
    // SAFETY: `list` outlives the list of it.
    let list = unsafe { SegmentList::new(&list) };
    let mut copy = vec![1; 8192];
    // SAFETY: `copy` outlives the segment and is not touched meanwhile.
    let target = unsafe { Segment::new(copy.as_mut_ptr(), copy.len()) };
    list.stream_to(0, target);
    assert!(copy[..4096].iter().all(|&byte| byte == 7), "what was there");
    assert!(copy[4096..].iter().all(|&byte| byte == 0), "ours now");
    assert!(mapping.is_broken());
    assert_eq!(truncations(), before + 1);
}

fn many_threads_are_survived() {
    for _ in 0..20 {
        let before = truncations();
        let hostile = file();
        let mapping = Mapping::new(hostile.as_fd(), 0, LENGTH).unwrap();
        hostile.set_len(0).unwrap();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (segment, start) = (mapping.segment(), &start);
                scope.spawn(move || {
                    start.wait();
                    for at in (thread..segment.len()).step_by(1024) {
                        assert_eq!(byte(segment, at), 0);
                    }
                });
            }
        });
        assert!(mapping.is_broken());
        assert_eq!(truncations(), before + 1, "however many threads found out");
    }
}

fn a_slot_is_free_again_after_its_mapping() {
    let file = file();
    for _ in 0..MAPPINGS_MAX + 10 {
        let mapping = Mapping::new(file.as_fd(), 0, 1).unwrap();
        assert!(
            !mapping.is_broken(),
            "a new one, in the slot of a broken one"
        );
    }
}

fn a_full_table_is_an_error() {
    let file = file();
    let mut mappings: Vec<Arc<Mapping>> = Vec::new();
    let error = loop {
        match Mapping::new(file.as_fd(), 0, 1) {
            Ok(mapping) => mappings.push(mapping),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert_eq!(mappings.len(), MAPPINGS_MAX);
    mappings.pop();
    assert!(Mapping::new(file.as_fd(), 0, 1).is_ok());

    // The handler finds the last of so many, too.
    let last = mappings.pop().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(byte(last.segment(), 0), 0);
    assert!(last.is_broken());
}

const CHILD: &str = "MEMORY_TEST_CHILD";
const PREVIOUS_HANDLER_EXIT: i32 = 42;

/// Runs the test `child` in a process of its own, which does what `mode` says.
fn child_process(mode: &str) -> ExitStatus {
    process_of("child", mode)
}

fn process_of(test: &str, mode: &str) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CHILD, mode)
        .output()
        .unwrap()
        .status
}

#[test]
fn a_bus_error_elsewhere_ends_the_process_as_before() {
    for mode in ["fault, default", "fault, ignored", "sent, default"] {
        assert_eq!(child_process(mode).signal(), Some(libc::SIGBUS), "{mode}");
    }
}

#[test]
fn a_bus_error_elsewhere_goes_to_the_handler_before_us() {
    for mode in ["fault, handler", "sent, handler"] {
        let code = child_process(mode).code();
        assert_eq!(code, Some(PREVIOUS_HANDLER_EXIT), "{mode}");
    }
}

/// A host that promises no memory which it has not (vm.overcommit_memory=2) refuses to map zeroes
/// for all of a large guest, and the process ended.
#[test]
fn memory_is_survived_where_little_can_be_mapped() {
    let status = process_of("scarce", "");
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "the other half of the test above"]
fn scarce() {
    survive_truncation().unwrap();
    let (file, length) = (file(), 8u64 << 30);
    file.set_len(length).unwrap();
    let mapping = Mapping::new(file.as_fd(), 0, length).unwrap();
    file.set_len(LENGTH / 2).unwrap();
    // What is mapped from now on is locked, and few bytes may be: the nearest to such a host that a
    // process can make for itself. The owner of the machine may lock all, so nobody goes on.
    let most = libc::rlimit {
        rlim_cur: 5 << 20,
        rlim_max: 5 << 20,
    };
    // SAFETY: reads a structure that outlives the call.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const most) };
    // SAFETY: a system call of a number. Who is nobody already stays so.
    let _ = unsafe { libc::setuid(65534) };
    // SAFETY: a system call of a number.
    let locked = unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) };
    assert_eq!((limited, locked), (0, 0));
    let whole = mapping.segment();
    for at in [
        whole.len() - 1,
        whole.len() / 2,
        whole.len() / 2 + (9 << 20),
    ] {
        assert_eq!(byte(whole, at), 0);
        whole.part(at, 1).fill(9);
        assert_eq!(byte(whole, at), 9, "ours now");
        assert!(mapping.is_broken());
    }
    assert_eq!(truncations(), 1);
}

#[test]
#[ignore = "the other half of the tests above"]
fn child() {
    let mode = std::env::var(CHILD).expect("run by the tests above");
    let (cause, previous) = mode.split_once(", ").unwrap();
    let handler: extern "C" fn(libc::c_int) = previous_handler;
    let action = match previous {
        "default" => libc::SIG_DFL,
        "ignored" => libc::SIG_IGN,
        _ => handler as libc::sighandler_t,
    };
    // SAFETY: the handler is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, action) };
    survive_truncation().unwrap();

    // A guest mapping that is well, and one that is survived.
    let (good, hostile) = (file(), file());
    let well = Mapping::new(good.as_fd(), 0, LENGTH).unwrap();
    let broken = Mapping::new(hostile.as_fd(), 0, LENGTH).unwrap();
    hostile.set_len(0).unwrap();
    assert_eq!(byte(broken.segment(), 0), 0);
    assert_eq!(byte(well.segment(), 0), 7);

    match cause {
        // SAFETY: sends a signal to this thread.
        "sent" => assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0),
        _ => fault_elsewhere(),
    }
    std::process::exit(0);
}

extern "C" fn previous_handler(_signal: libc::c_int) {
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(PREVIOUS_HANDLER_EXIT) };
}

/// Loads a byte behind the end of a file that is no guest's.
fn fault_elsewhere() {
    let empty = file();
    empty.set_len(0).unwrap();
    // SAFETY: the kernel chooses the address.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            empty.as_raw_fd(),
            0,
        )
    };
    assert_ne!(address, libc::MAP_FAILED);
    // SAFETY: mapped above; that the load is a bus error is what the test is about.
    let _ = unsafe { address.cast::<u8>().read_volatile() };
}
