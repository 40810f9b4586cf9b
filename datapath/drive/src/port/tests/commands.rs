//! Drives that take commands: how requests become commands, against a device that carries any
//! command out at once and does nothing (`/dev/null`, Linux 6.2). What a drive makes of them is
//! seen in `test/e2e/nvme.test.sh`.

use super::*;
use crate::drive::Backing;
use crate::info::{DriveInfo, DriveKind};
use crate::nvme::{Generic, Namespace, RetryWaits};

const TRANSFER_BYTES_MAX: u64 = 64 << 10;

/// A drive of 16 MiB, of which one command moves 64 KiB or zeroes 256 KiB.
fn info() -> DriveInfo {
    DriveInfo {
        volatile_cache: true,
        can_discard: true,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        joined_bytes_max: TRANSFER_BYTES_MAX,
        memory_align: 4,
        memory_boundary: 4096,
        ..crate::open::plain_info(DriveKind::NvmeGeneric, 16 << 20)
    }
}

fn attach(bench: &mut Bench, commands: &str) -> Arc<Drive> {
    attach_as(bench, commands, info())
}

fn attach_as(bench: &mut Bench, commands: &str, info: DriveInfo) -> Arc<Drive> {
    let open = |path: &str| {
        let file = File::options().read(true).write(true).open(path);
        file.unwrap()
    };
    let generic = Generic {
        commands: open(commands),
        block: open("/dev/null"),
        namespace: Namespace {
            id: 1,
            block_bytes: 512,
            zero_bytes_max: 256 << 10,
            deallocates: false,
            retry_waits: RetryWaits([1, 600, 0]),
        },
    };
    let drive = Drive::of_commands(info, generic);
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    drive
}

/// Commands that were sent.
fn sent(bench: &Bench) -> u64 {
    let commands = bench.port.rings.commands.as_ref();
    commands
        .expect("there is such a drive")
        .counters()
        .operations
}

/// Commands for one request, and bytes that were copied for it.
fn cost(operation: Operation, length: u64, pieces: &[(usize, usize)]) -> (u64, u64) {
    let mut bench = Bench::small();
    attach(&mut bench, "/dev/null");
    let segments: Vec<Segment> = pieces
        .iter()
        .map(|(at, length)| bench.segment(*at, *length))
        .collect();
    let mut request = bench.request(operation, 4096, &segments);
    request.length = length;
    assert_eq!(bench.run(request), Status::Ok);
    let copied = bench.port.counters(DRIVE).unwrap().bounced_bytes;
    (sent(&bench), copied)
}

#[test]
fn a_request_is_cut_into_commands_that_the_drive_takes() {
    let kib = 1 << 10;
    for (operation, length, commands) in [
        (Operation::Read, 64 * kib, 1),
        (Operation::Write, 64 * kib + 512, 2),
        (Operation::Write, 1 << 20, 16),
        (Operation::WriteZeroes, 256 * kib, 1),
        (Operation::WriteZeroes, 1 << 20, 4),
        (Operation::Discard, 257 * kib, 2),
        (Operation::Flush, 0, 1),
    ] {
        let bytes = units::bytes_usize(length);
        let pieces = match operation {
            Operation::Read | Operation::Write => vec![(0, bytes)],
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => vec![],
        };
        let wanted = (commands, 0);
        assert_eq!(
            cost(operation, length, &pieces),
            wanted,
            "{operation:?} {length}"
        );
    }
}

#[test]
fn memory_that_is_no_list_of_pages_is_copied_and_other_memory_is_not() {
    for (pieces, copied) in [
        // Anywhere, in one piece; pieces that meet at pages, the first and the last shorter.
        (&[(4, 8192)][..], false),
        (&[(3584, 512), (8192, 4096), (16384, 512)], false),
        // Not at a double word; one piece ends, or begins, within a page.
        (&[(2, 8192)], true),
        (&[(0, 512), (8192, 512)], true),
        (&[(3584, 512), (8704, 512)], true),
        (&[(0, 4096), (8192, 512), (16384, 4096)], true),
    ] {
        let length = pieces.iter().map(|(_, length)| *length).sum();
        let length = units::bytes_u64(length);
        for operation in [Operation::Read, Operation::Write] {
            let wanted = (1, if copied { length } else { 0 });
            assert_eq!(cost(operation, length, pieces), wanted, "{pieces:?}");
        }
    }
}

#[test]
fn a_list_of_more_pieces_than_a_command_takes_goes_in_several() {
    let mut bench = Bench::small();
    let info = DriveInfo {
        transfer_bytes_max: 1 << 20,
        ..info()
    };
    attach_as(&mut bench, "/dev/null", info);
    bench.lists = SegmentSlots::new(LISTS, 130);
    let pages: Vec<Segment> = (0..128).map(|at| bench.segment(at * 8192, 4096)).collect();
    let request = bench.request(Operation::Write, 0, &pages);
    assert_eq!(bench.run(request), Status::Ok);
    assert_eq!(sent(&bench), 2, "64 pages each");
    assert_eq!(bench.port.counters(DRIVE).unwrap().bounced_bytes, 0);
}

#[test]
fn lists_of_commands_under_way_lie_apart() {
    let mut bench = Bench::small();
    attach(&mut bench, "/dev/null");
    let lists = [[0, 1], [4, 6]].map(|pages| pages.map(|at| bench.segment(at * 8192, 4096)));
    for (list, offset) in lists.iter().zip([0, 1 << 20]) {
        let request = bench.request(Operation::Write, offset, list);
        bench.port.submit(request).unwrap();
    }
    assert!(bench.drain().values().all(|status| status.is_ok()));
    let commands = bench.port.rings.commands.as_ref().unwrap();
    let kept = [commands.list(0), commands.list(1)].map(|list| &list[..2]);
    assert_eq!(kept, [&lists[0][..], &lists[1][..]]);
}

#[test]
fn neighbours_of_one_turn_share_a_command() {
    let mut bench = Bench::small();
    attach(&mut bench, "/dev/null");
    for at in 0..8 {
        let segments = [bench.segment(at * 32768, 16384)];
        let offset = units::bytes_u64(at * 16384);
        let request = bench.request(Operation::Write, offset, &segments);
        bench.port.submit(request).unwrap();
    }
    let answers = bench.drain();
    assert_eq!(answers.len(), 8);
    assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
    let counters = bench.port.port_counters();
    assert_eq!((sent(&bench), counters.joined), (2, 6));
    assert_eq!(counters.parted, 0);
}

#[test]
fn a_device_that_takes_no_commands_answers_every_kind_of_request() {
    for operation in ALL_OPERATIONS {
        let mut bench = Bench::small();
        attach(&mut bench, "/dev/zero");
        let segments = match operation {
            Operation::Read | Operation::Write => vec![bench.segment(0, 4096)],
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => vec![],
        };
        let mut request = bench.request(operation, 0, &segments);
        request.length = 4096;
        let wanted = match operation {
            // Its old content may stay.
            Operation::Discard => Status::Ok,
            Operation::Read | Operation::Write | Operation::Flush | Operation::WriteZeroes => {
                Status::Unsupported
            }
        };
        assert_eq!(bench.run(request), wanted, "{operation:?}");
    }
}

#[test]
fn a_write_that_the_drive_gave_up_is_sent_again_and_a_flush_is_not() {
    for (operation, wanted, commands) in [
        (Operation::Write, Status::Ok, 1),
        (Operation::Flush, Status::Media, 0),
    ] {
        let mut bench = Bench::small();
        attach(&mut bench, "/dev/null");
        let segments = match operation {
            Operation::Read | Operation::Write => vec![bench.segment(0, 4096)],
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => vec![],
        };
        let request = bench.request(operation, 0, &segments);
        bench.port.submit(request).unwrap();
        // An internal error.
        answer_first(&mut bench, 0x006);
        let answers: Vec<Status> = bench.drain().into_values().collect();
        assert_eq!(answers, [wanted], "{operation:?}");
        assert_eq!(sent(&bench), commands, "{operation:?}");
    }
}

/// As if what was submitted had been sent, and this were the answer.
fn answer_first(bench: &mut Bench, status: i32) {
    let port = &mut bench.port;
    let slot = port.ready.pop_front().expect("it was submitted");
    let mut next = Some(slot);
    while let Some(slot) = next {
        let task = port.tasks.get(slot);
        let bytes = task.request.length;
        task.stage = Stage::InKernel { bytes };
        next = task.next;
    }
    port.in_kernel += 1;
    port.now = MonotonicClock.now();
    port.advance(slot, status);
}

/// An internal error, and to be sent again after the first of the drive's times, or the second.
const AFTER_TENTH: i32 = 0x0806;
const AFTER_MINUTE: i32 = 0x1006;

#[test]
fn what_a_drive_wants_later_is_sent_later() {
    // At odd memory, which takes a buffer; and as two that share a command.
    for (at, requests) in [(0, 1), (2, 1), (0, 2)] {
        let mut bench = Bench::new(PortOptions {
            bounce_buffers: 1,
            ..PortOptions::default()
        });
        attach(&mut bench, "/dev/null");
        for which in 0..requests {
            let segments = [bench.segment(at + which * 4096, 4096)];
            let offset = units::bytes_u64(which * 4096);
            let request = bench.request(Operation::Write, offset, &segments);
            bench.port.submit(request).unwrap();
        }
        let port = &mut bench.port;
        let buffer = (at > 0).then(|| port.buffers.acquire());
        port.tasks.get(port.ready[0]).buffer = buffer.flatten();
        let begun = MonotonicClock.now();
        answer_first(&mut bench, AFTER_TENTH);
        assert!(bench.port.buffers.any_free() && bench.port.ready.is_empty());
        let answers = bench.drain();
        let waited = MonotonicClock.now().since(begun);
        assert_eq!(answers.len(), requests);
        assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
        assert!(waited >= Duration::from_millis(100), "after {waited:?}");
        assert_eq!(sent(&bench), units::bytes_u64(requests));
        // Asleep, not turning.
        assert!(bench.port.port_counters().waits < 20);
    }
}

#[test]
fn a_drive_that_leaves_does_not_wait_for_what_it_wanted_later() {
    let mut bench = Bench::small();
    let drive = attach(&mut bench, "/dev/null");
    let segments = [bench.segment(0, 4096)];
    let request = bench.request(Operation::Read, 0, &segments);
    bench.port.submit(request).unwrap();
    answer_first(&mut bench, AFTER_MINUTE);
    bench.port.detach(DRIVE);
    let answers: Vec<Status> = bench.drain().into_values().collect();
    assert_eq!(answers, [Status::Gone]);
    assert!(bench.port.paused.is_empty() && sent(&bench) == 0);
    assert_eq!(Arc::strong_count(&drive), 1);
}

#[test]
fn drives_of_both_kinds_are_served_side_by_side_and_let_go() {
    let folder = folders().remove(0);
    let mut bench = Bench::small();
    let drive = attach(&mut bench, "/dev/null");
    let other = DriveIndex(DRIVE.0 + 1);
    let file = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(other, file.clone()).unwrap();
    for (at, index) in [DRIVE, other, DRIVE, other].into_iter().enumerate() {
        let segments = [bench.segment(at * 4096, 4096)];
        let offset = units::bytes_u64(at * 8192);
        let mut request = bench.request(Operation::Write, offset, &segments);
        request.drive = index;
        bench.port.submit(request).unwrap();
    }
    let answers = bench.drain();
    assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
    for (index, drive) in [(DRIVE, drive), (other, file)] {
        assert_eq!(bench.port.counters(index).unwrap().writes.requests, 2);
        bench.port.detach(index);
        assert_eq!(Arc::strong_count(&drive), 1, "{index}");
    }
}

#[test]
fn a_detached_drive_is_let_go_of_and_its_lock_with_it() {
    let folder = folders().remove(0);
    let path = folder.path().join("commands");
    fs::write(&path, "").unwrap();
    let mut bench = Bench::small();
    let drive = attach(&mut bench, path.to_str().unwrap());
    let Backing::Generic(generic) = drive.backing() else {
        unreachable!("it takes commands");
    };
    generic.commands.try_lock().unwrap();
    let request = Bench::bare(Operation::Flush, 0, 0);
    assert_eq!(bench.run(request), Status::Unsupported, "a file takes none");
    bench.port.detach(DRIVE);
    drop(drive);
    let again = File::open(&path).unwrap();
    let begun = MonotonicClock.now();
    while again.try_lock().is_err() {
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < Duration::from_secs(5), "it is locked still");
        bench.port.wait(Some(Duration::from_millis(1)));
    }
}
