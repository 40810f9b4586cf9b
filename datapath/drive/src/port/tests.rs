//! A port against real files (on disk and in memory), memory drives, and ordered faults.

mod commands;
mod joined;
mod paced;
mod pinned;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use memory::{Segment, SegmentSlots};
use proptest::prelude::*;
use units::Size;

use super::*;
use crate::fault::Fault;
use crate::mapping;
use crate::uring::{Mode, Ring};
use crate::{DriveSpec, OpenErrorKind};

const DRIVE: DriveIndex = DriveIndex(3);
const ALL_OPERATIONS: [Operation; 5] = [
    Operation::Read,
    Operation::Write,
    Operation::Flush,
    Operation::Discard,
    Operation::WriteZeroes,
];

/// A port with memory to transfer, and the lists that its requests carry.
struct Bench {
    // First, because it is dropped first: the port waits for the kernel.
    port: Port,
    memory: Mapping,
    lists: SegmentSlots,
    lent: usize,
}

const LISTS: usize = 256;

impl Bench {
    fn new(options: PortOptions) -> Bench {
        Bench::on(Port::new(options).expect("io_uring works where the tests run"))
    }

    fn on(port: Port) -> Bench {
        Bench {
            port,
            memory: Mapping::new(32 << 20).unwrap(),
            lists: SegmentSlots::new(LISTS, 16),
            lent: 0,
        }
    }

    fn small() -> Bench {
        Bench::new(PortOptions::default())
    }

    fn lend(&mut self, segments: &[Segment]) -> SegmentList {
        self.lent += 1;
        self.lists
            .lend(self.lent - 1, |list| list.extend_from_slice(segments))
    }

    /// Only when nothing is pending.
    fn take_back(&mut self) {
        assert_eq!(self.port.pending(), 0);
        for slot in 0..self.lent {
            self.lists.take_back(slot);
        }
        self.lent = 0;
    }

    fn request(&mut self, operation: Operation, offset: u64, segments: &[Segment]) -> DriveRequest {
        let segments = self.lend(segments);
        DriveRequest {
            drive: DRIVE,
            operation,
            offset,
            length: units::bytes_u64(segments.bytes()),
            segments,
            cookie: Cookie(offset),
        }
    }

    fn bare(operation: Operation, offset: u64, length: u64) -> DriveRequest {
        DriveRequest {
            drive: DRIVE,
            operation,
            offset,
            length,
            segments: SegmentList::EMPTY,
            cookie: Cookie(offset),
        }
    }

    /// Answers of everything pending, by cookie; each cookie exactly once.
    fn drain(&mut self) -> BTreeMap<u64, Status> {
        let mut answers = BTreeMap::new();
        let mut done = Vec::new();
        while self.port.pending() > 0 {
            self.port.wait(None);
            self.port.poll(&mut done);
            for completion in done.drain(..) {
                let old = answers.insert(completion.cookie.0, completion.status);
                assert_eq!(old, None, "answered twice: {completion:?}");
            }
        }
        self.take_back();
        answers
    }

    fn run(&mut self, request: DriveRequest) -> Status {
        self.port.submit(request).expect("the port is empty");
        let answers = self.drain();
        assert_eq!(answers.len(), 1);
        answers[&request.cookie.0]
    }

    fn write(&mut self, offset: u64, segments: &[Segment]) -> Status {
        let request = self.request(Operation::Write, offset, segments);
        self.run(request)
    }

    fn read(&mut self, offset: u64, segments: &[Segment]) -> Status {
        let request = self.request(Operation::Read, offset, segments);
        self.run(request)
    }

    /// Gives the kernel what was submitted, and does not look for answers.
    fn hand_over(&mut self) {
        self.port.start_ready();
        self.port.rings.turn();
    }

    fn segment(&self, at: usize, length: usize) -> Segment {
        self.memory.segment(at, length)
    }
}

fn file_spec(folder: &Path, name: &str, size: u64) -> DriveSpec {
    DriveSpec::File {
        path: folder.join(name),
        size: Some(Size(size)),
        create: true,
    }
}

/// Asks until it is true, for at most ten seconds.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = MonotonicClock.now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = MonotonicClock.now().since(begun);
        assert!(waited < Duration::from_secs(10), "never: {what}");
        std::thread::yield_now();
    }
}

/// Opens a drive that the kernel may hold for a moment longer; every other refusal is wrong.
fn open_when_free(spec: &DriveSpec) -> Option<Arc<Drive>> {
    match Drive::open(spec) {
        Ok(drive) => Some(drive),
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::InUse, "{error}");
            None
        }
    }
}

/// A folder on a real file system and one in memory.
fn folders() -> Vec<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    vec![disk(), memory]
}

/// Beside the test itself, because `/tmp` is memory on many machines.
fn disk() -> tempfile::TempDir {
    let test = std::env::current_exe().unwrap();
    tempfile::tempdir_in(test.parent().unwrap()).unwrap()
}

fn memory_drive(size: u64) -> Arc<Drive> {
    Drive::open(&DriveSpec::Memory { size: Size(size) }).unwrap()
}

fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    let mut all = Vec::new();
    for segment in segments {
        let from = all.len();
        all.resize(from + segment.len(), 0);
        segment.copy_to_slice(&mut all[from..]);
    }
    all
}

/// Bytes that do not repeat within any transfer of a test, so that a wrong place shows.
fn fill(segments: &[Segment], seed: u8) {
    let mut state = u32::from(seed);
    for segment in segments {
        let bytes: Vec<u8> = (0..segment.len())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        segment.copy_from_slice(&bytes);
    }
}

#[derive(Clone, Debug)]
struct Step {
    operation: Operation,
    block: u64,
    blocks: u64,
    /// Lengths that the memory is cut into, over and over, and where it begins.
    cuts: Vec<usize>,
    begin: usize,
    seed: u8,
}

const BLOCKS: u64 = 128;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        4 => Just(Operation::Read),
        6 => Just(Operation::Write),
        1 => Just(Operation::Flush),
        1 => Just(Operation::WriteZeroes),
        1 => Just(Operation::Discard),
    ];
    let cut = prop_oneof![Just(512usize), Just(4096), 1usize..2000];
    let begin = prop_oneof![Just(0usize), Just(512), 1usize..600];
    let step = (
        operation,
        0..BLOCKS,
        1..=BLOCKS,
        proptest::collection::vec(cut, 1..4),
        begin,
        any::<u8>(),
    );
    let step = step.prop_map(|(operation, block, blocks, cuts, begin, seed)| Step {
        operation,
        block,
        blocks: blocks.min(BLOCKS - block),
        cuts,
        begin,
        seed,
    });
    proptest::collection::vec(step, 1..24)
}

/// Plays steps on the drive and on a `Vec`, and compares every read and the end.
fn play(bench: &mut Bench, drive: &Drive, model: &mut [u8], steps: &[Step]) {
    let block = drive.info().block_bytes;
    for step in steps {
        let (offset, length) = (step.block * block, step.blocks * block);
        let at = units::bytes_usize(offset);
        let end = at + units::bytes_usize(length);
        let mut segments = Vec::new();
        let mut place = step.begin;
        let mut left = end - at;
        for cut in step.cuts.iter().cycle() {
            let take = left.min(*cut);
            segments.push(bench.segment(place, take));
            left -= take;
            place += take + 3;
            if left == 0 {
                break;
            }
        }
        match step.operation {
            Operation::Read => {
                assert_eq!(bench.read(offset, &segments), Status::Ok);
                assert!(bytes_of(&segments) == model[at..end], "{step:?}");
            }
            Operation::Write => {
                fill(&segments, step.seed);
                assert_eq!(bench.write(offset, &segments), Status::Ok);
                model[at..end].copy_from_slice(&bytes_of(&segments));
            }
            Operation::Flush | Operation::WriteZeroes | Operation::Discard => {
                let request = Bench::bare(step.operation, offset, length);
                assert_eq!(bench.run(request), Status::Ok);
                if step.operation != Operation::Flush {
                    model[at..end].fill(0);
                }
            }
        }
    }
    let mut all = vec![0; model.len()];
    drive.read(0, &mut all).unwrap();
    assert!(all == model, "the drive differs from the model at the end");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn any_history_on_any_kind_of_drive_reads_as_the_model_says(
        steps in steps(),
        small in 1u16..3,
    ) {
        let size = BLOCKS * 512;
        let folders = folders();
        let mut drives: Vec<Arc<Drive>> = folders
            .iter()
            .map(|folder| Drive::open(&file_spec(folder.path(), "d", size)).unwrap())
            .collect();
        drives.push(memory_drive(size));
        for drive in drives {
            let mut bench = Bench::new(PortOptions {
                requests: 16,
                bounce_buffers: small,
                bounce_bytes: 4096,
                joined_bytes_max: limits::JOINED_BYTES_MAX,
            });
            bench.port.attach(DRIVE, drive.clone()).unwrap();
            let mut model = vec![0; units::bytes_usize(size)];
            play(&mut bench, &drive, &mut model, &steps);
        }
    }
}

#[test]
fn every_mode_of_the_ring_serves() {
    let folder = disk();
    for (name, mode) in [
        ("a", Mode::Deferred),
        ("b", Mode::Cooperative),
        ("c", Mode::Plain),
    ] {
        let ring = Ring::with_mode(mode, 64, 600).expect("this kernel knows all modes");
        let mut bench =
            Bench::on(Port::with_rings(Rings::with(ring), PortOptions::default()).unwrap());
        let drive = Drive::open(&file_spec(folder.path(), name, 1 << 20)).unwrap();
        bench.port.attach(DRIVE, drive).unwrap();
        let memory = [bench.segment(0, 8192)];
        fill(&memory, 7);
        let wanted = bytes_of(&memory);
        assert_eq!(bench.write(4096, &memory), Status::Ok);
        memory[0].fill(0);
        assert_eq!(bench.read(4096, &memory), Status::Ok);
        assert_eq!(bytes_of(&memory), wanted, "{mode:?}");
    }
}

#[test]
fn many_more_requests_than_the_ring_has_entries_are_answered_once_each() {
    let folder = disk();
    for (name, mode) in [
        ("a", Mode::Deferred),
        ("b", Mode::Cooperative),
        ("c", Mode::Plain),
    ] {
        let ring = Ring::with_mode(mode, 64, 600).expect("this kernel knows all modes");
        let options = PortOptions {
            joined_bytes_max: 0,
            ..PortOptions::default()
        };
        let mut bench = Bench::on(Port::with_rings(Rings::with(ring), options).unwrap());
        let drive = Drive::open(&file_spec(folder.path(), name, 8 << 20)).unwrap();
        bench.port.attach(DRIVE, drive).unwrap();
        let first = bench.segment(0, 512);
        let request = bench.request(Operation::Read, 0, &[first]);
        for at in 0..u64::from(limits::PORT_REQUESTS) {
            let (offset, cookie) = (at * 512, Cookie(at));
            let request = DriveRequest {
                offset,
                cookie,
                ..request
            };
            bench.port.submit(request).unwrap();
        }
        assert!(bench.port.submit(request).is_err(), "no more than it takes");
        let answers = bench.drain();
        assert_eq!(answers.len(), keys::at(limits::PORT_REQUESTS), "{mode:?}");
        assert!(answers.values().all(|status| *status == Status::Ok));
        assert_eq!(bench.port.port_counters().operations, 16384);
    }
}

#[test]
fn a_port_made_on_one_thread_serves_on_another() {
    let mut bench = Bench::small();
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    let reactor = std::thread::Builder::new().name("reactor".to_owned());
    let thread = reactor.spawn(move || {
        let memory = [bench.segment(0, 4096)];
        bench.read(0, &memory)
    });
    assert_eq!(thread.unwrap().join().unwrap(), Status::Ok);
}

#[test]
fn more_segments_than_the_kernel_takes_are_one_request() {
    for folder in folders() {
        let mut bench = Bench::small();
        let drive = Drive::open(&file_spec(folder.path(), "d", 4 << 20)).unwrap();
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        let segments: Vec<Segment> = (0..2500).map(|at| bench.segment(at * 1024, 512)).collect();
        fill(&segments, 1);
        let wanted = bytes_of(&segments);
        // Twice, which is more than the ring has room for without forgetting the first.
        for _ in 0..2 {
            assert_eq!(bench.write(512, &segments), Status::Ok);
            segments.iter().for_each(|segment| segment.fill(0));
            assert_eq!(bench.read(512, &segments), Status::Ok);
            assert!(bytes_of(&segments) == wanted);
        }
        let mut stored = vec![0; wanted.len()];
        drive.read(512, &mut stored).unwrap();
        assert!(stored == wanted);
        let operations = bench.port.port_counters().operations;
        assert_eq!(operations, 12, "4 × ⌈2500 / 1024⌉");
        assert_eq!(bench.port.counters(DRIVE).unwrap().writes.requests, 2);
    }
}

#[test]
fn what_is_submitted_in_a_turn_goes_in_one_call_and_nothing_costs_nothing() {
    let mut bench = Bench::small();
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    let mut done = Vec::new();
    bench.port.poll(&mut done);
    assert_eq!(bench.port.port_counters().enters, 0);
    for at in 0..100u64 {
        let memory = [bench.segment(units::bytes_usize(at) * 512, 512)];
        let request = bench.request(Operation::Read, at * 1024, &memory);
        bench.port.submit(request).unwrap();
    }
    assert_eq!(bench.port.port_counters().enters, 0);
    bench.port.poll(&mut done);
    assert_eq!(bench.port.port_counters().enters, 1);
    assert_eq!(bench.port.port_counters().operations, 100);
    let early = done.len();
    assert_eq!(early + bench.drain().len(), 100);
    // The kernel may put its own last reference down after the answers, which takes a call.
    eventually("polls stop calling", || {
        let enters = bench.port.port_counters().enters;
        for _ in 0..100 {
            bench.port.poll(&mut done);
        }
        (bench.port.port_counters().enters == enters).then_some(())
    });
}

#[test]
fn the_kernel_flushes_only_what_has_a_volatile_cache() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (folder, operations) in [(disk(), 1), (memory, 0)] {
        let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
        assert_eq!(drive.has_volatile_cache(), operations == 1);
        let mut bench = Bench::small();
        assert!(!bench.port.keeps_all(DRIVE), "not here yet");
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        assert_eq!(bench.port.keeps_all(DRIVE), operations == 0);
        let flush = || Bench::bare(Operation::Flush, 0, 0);
        assert_eq!(bench.run(flush()), Status::Ok);
        assert_eq!(bench.port.port_counters().operations, operations);
        drive.inject(Fault::FlushFails);
        assert!(!bench.port.keeps_all(DRIVE), "a test wants to see it asked");
        assert_eq!(bench.run(flush()), Status::Media);
        drive.inject(Fault::Pulled);
        assert_eq!(bench.run(flush()), Status::Gone);
    }
}

#[test]
fn a_full_port_gives_the_request_back_and_counts_answers_not_fetched() {
    let mut bench = Bench::new(PortOptions {
        requests: 4,
        ..PortOptions::default()
    });
    bench.port.attach(DRIVE, memory_drive(1 << 20)).unwrap();
    for at in 0..4 {
        assert_eq!(bench.port.room(), 4 - at);
        let offset = units::bytes_u64(at) * 512;
        let flush = Bench::bare(Operation::Flush, offset, 0);
        bench.port.submit(flush).unwrap();
    }
    let Full(back) = bench
        .port
        .submit(Bench::bare(Operation::Flush, 77, 0))
        .unwrap_err();
    assert_eq!(back.cookie, Cookie(77));
    assert_eq!(bench.drain().len(), 4);
    assert_eq!(bench.port.room(), 4);
}

#[test]
fn misaligned_requests_wait_for_the_one_bounce_buffer_and_none_is_lost() {
    let mut bench = Bench::new(PortOptions {
        requests: 64,
        bounce_buffers: 1,
        bounce_bytes: 4096,
        joined_bytes_max: limits::JOINED_BYTES_MAX,
    });
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    let mut wanted = Vec::new();
    for at in 0..40u64 {
        let memory = [bench.segment(units::bytes_usize(at) * 10_000 + 1, 8192)];
        fill(&memory, u8::try_from(at).unwrap());
        wanted.extend(bytes_of(&memory));
        let request = bench.request(Operation::Write, at * 8192, &memory);
        bench.port.submit(request).unwrap();
    }
    let answers = bench.drain();
    assert_eq!(answers.len(), 40);
    assert!(answers.values().all(|status| status.is_ok()));
    let mut stored = vec![0; wanted.len()];
    drive.read(0, &mut stored).unwrap();
    assert!(stored == wanted);
    assert!(bench.port.port_counters().starved > 0);
    let counters = bench.port.counters(DRIVE).unwrap();
    assert_eq!(counters.bounced_bytes, 40 * 8192);
    assert_eq!(counters.writes.bytes, 40 * 8192);
}

#[test]
fn requests_that_are_wrong_in_themselves_reach_no_drive() {
    let folder = disk();
    let file = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    for drive in [file, memory_drive(1 << 20)] {
        let mut bench = Bench::small();
        bench.port.attach(DRIVE, drive).unwrap();
        let memory = [bench.segment(0, 512)];
        for (offset, wanted) in [
            (1 << 20, Status::OutOfRange),
            ((1 << 20) - 256, Status::OutOfRange),
            (u64::MAX - 511, Status::OutOfRange),
            (u64::MAX, Status::OutOfRange),
            (1, Status::Invalid),
        ] {
            assert_eq!(bench.read(offset, &memory), wanted, "{offset}");
            assert_eq!(bench.write(offset, &memory), wanted, "{offset}");
        }
        let mut short = bench.request(Operation::Read, 0, &memory);
        short.length = 1024;
        assert_eq!(bench.run(short), Status::Invalid);
        let zeroes = Bench::bare(Operation::WriteZeroes, 1024, 1 << 20);
        assert_eq!(bench.run(zeroes), Status::OutOfRange);
        assert_eq!(bench.port.counters(DRIVE).unwrap().refused, 12);
        assert_eq!(bench.port.port_counters().operations, 0);
    }
}

#[test]
fn a_file_that_somebody_cut_off_is_a_media_error_where_bytes_are_missing() {
    for folder in folders() {
        let mut bench = Bench::small();
        let spec = file_spec(folder.path(), "d", 1 << 20);
        let drive = Drive::open(&spec).unwrap();
        bench.port.attach(DRIVE, drive).unwrap();
        let file = File::options().write(true).open(spec.path().unwrap());
        file.unwrap().set_len(10_000).unwrap();
        let memory = [bench.segment(0, 8192)];
        assert_eq!(bench.read(0, &memory), Status::Ok);
        assert_eq!(bench.read(8192, &memory), Status::Media);
        assert_eq!(bench.read(65536, &memory), Status::Media);
        assert_eq!(bench.port.counters(DRIVE).unwrap().media_errors, 2);
    }
}

#[test]
fn memory_that_went_away_is_not_the_drives_fault() {
    for folder in folders() {
        let mut bench = Bench::small();
        let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
        bench.port.attach(DRIVE, drive).unwrap();
        let gone = [mapping::nowhere(512)];
        assert_eq!(bench.write(0, &gone), Status::Invalid);
        let counters = bench.port.counters(DRIVE).unwrap();
        assert_eq!((counters.refused, counters.media_errors), (1, 0));
    }
}

/// Answers what was submitted last as the kernel would that takes no such memory or place.
fn answer_misfit(bench: &mut Bench, bytes: u64) {
    let port = &mut bench.port;
    let slot = port.ready.pop_front().expect("it was submitted");
    port.tasks.get(slot).stage = Stage::InKernel { bytes };
    port.in_kernel += 1;
    port.advance(slot, -libc::EINVAL);
}

#[test]
fn what_a_drive_takes_no_longer_goes_through_a_buffer_and_is_never_the_askers_fault() {
    for folder in folders() {
        let mut bench = Bench::small();
        let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
        bench.port.attach(DRIVE, drive).unwrap();
        let memory = [bench.segment(0, 8192)];
        fill(&memory, 7);
        let written = bytes_of(&memory);
        for operation in [Operation::Write, Operation::Read] {
            let request = bench.request(operation, 4096, &memory);
            bench.port.submit(request).unwrap();
            answer_misfit(&mut bench, request.length);
            let answers: Vec<Status> = bench.drain().into_values().collect();
            assert_eq!(answers, [Status::Ok], "{operation:?}");
            let was = bytes_of(&memory);
            memory[0].fill(0);
            assert!(was == written, "{operation:?}");
        }
        assert_eq!(bench.port.counters(DRIVE).unwrap().bounced_bytes, 2 * 8192);
        for (operation, list, tries) in [
            (Operation::Read, &memory[..], 2),
            (Operation::Write, &memory, 2),
            (Operation::WriteZeroes, &[], 1),
        ] {
            let mut request = bench.request(operation, 0, list);
            request.length = 8192;
            bench.port.submit(request).unwrap();
            for _ in 0..tries {
                answer_misfit(&mut bench, request.length);
            }
            let answers: Vec<Status> = bench.drain().into_values().collect();
            assert_eq!(answers, [Status::Media], "{operation:?}");
        }
        let counters = bench.port.counters(DRIVE).unwrap();
        assert_eq!((counters.refused, counters.media_errors), (0, 3));
    }
}

#[test]
fn detaching_under_load_answers_everything_once_and_frees_the_drive() {
    let mut bench = Bench::new(PortOptions {
        requests: 128,
        bounce_buffers: 2,
        bounce_bytes: 4096,
        joined_bytes_max: limits::JOINED_BYTES_MAX,
    });
    let folder = disk();
    let spec = file_spec(folder.path(), "d", 8 << 20);
    bench
        .port
        .attach(DRIVE, Drive::open(&spec).unwrap())
        .unwrap();
    for at in 0..100u64 {
        // Half of them queue for bounce buffers.
        let odd = units::bytes_usize(at % 2);
        let memory = [bench.segment(units::bytes_usize(at) * 20_000 / 512 * 512 + odd, 16384)];
        let request = bench.request(Operation::Write, at * 16384, &memory);
        bench.port.submit(request).unwrap();
        if at == 50 {
            bench.hand_over();
        }
    }
    bench.port.detach(DRIVE);
    let operations = bench.port.port_counters().operations;
    let late = DriveRequest {
        cookie: Cookie(1),
        ..Bench::bare(Operation::Flush, 0, 0)
    };
    bench.port.submit(late).unwrap();
    let answers = bench.drain();
    assert_eq!(answers.len(), 101);
    assert!(answers.values().all(|status| *status == Status::Gone));
    // Requests of several operations do not go on.
    assert_eq!(bench.port.port_counters().operations, operations);
    assert_eq!(bench.port.counters(DRIVE), None);
    let again = eventually("the last holder let go", || {
        assert_eq!(bench.port.poll(&mut Vec::new()), 0);
        open_when_free(&spec.reopened())
    });
    bench.port.attach(DRIVE, again).unwrap();
    let memory = [bench.segment(0, 512)];
    assert_eq!(bench.read(0, &memory), Status::Ok);
}

#[test]
fn a_new_drive_may_take_a_number_while_the_old_one_is_leaving() {
    let mut bench = Bench::small();
    let folder = disk();
    let old = Drive::open(&file_spec(folder.path(), "old", 8 << 20)).unwrap();
    let new = Drive::open(&file_spec(folder.path(), "new", 8 << 20)).unwrap();
    bench.port.attach(DRIVE, old.clone()).unwrap();
    let memory = [bench.segment(0, 1 << 20)];
    fill(&memory, 9);
    let write = bench.request(Operation::Write, 0, &memory);
    bench.port.submit(write).unwrap();
    bench.port.detach(DRIVE);
    bench.port.attach(DRIVE, new.clone()).unwrap();
    let write = bench.request(Operation::Write, 1 << 20, &memory);
    bench.port.submit(write).unwrap();
    let answers = bench.drain();
    assert_eq!(answers[&0], Status::Gone);
    assert_eq!(answers[&(1 << 20)], Status::Ok);
    let mut stored = vec![0; 1 << 20];
    new.read(1 << 20, &mut stored).unwrap();
    assert!(stored == bytes_of(&memory));
    old.read(1 << 20, &mut stored).unwrap();
    assert!(stored.iter().all(|byte| *byte == 0));
}

#[test]
fn dropping_a_port_waits_for_the_kernel_and_frees_the_lock() {
    let folder = disk();
    let spec = file_spec(folder.path(), "d", 16 << 20);
    let drive = Drive::open(&spec).unwrap();
    drive.write(0, &vec![0x5A; 8 << 20]).unwrap();
    let mut bench = Bench::small();
    bench.port.attach(DRIVE, drive).unwrap();
    let memory = [bench.segment(0, 8 << 20)];
    let read = bench.request(Operation::Read, 0, &memory);
    bench.port.submit(read).unwrap();
    bench.hand_over();
    assert_eq!(bench.port.in_kernel, 1);
    bench.port.wait_for_kernel();
    assert_eq!(bench.port.in_kernel, 0);
    let Bench {
        port,
        memory: _kept,
        ..
    } = bench;
    drop(port);
    // Whatever the kernel was still to write would be missing here, and land in freed memory.
    assert!(bytes_of(&memory).iter().all(|byte| *byte == 0x5A));
    eventually("the lock is free", || open_when_free(&spec.reopened()));
}

#[test]
fn a_second_opening_of_the_same_file_is_refused_by_name() {
    for folder in folders() {
        let spec = file_spec(folder.path(), "d", 1 << 20);
        let drive = Drive::open(&spec).unwrap();
        let error = Drive::open(&spec.reopened()).unwrap_err();
        assert_eq!(error.kind, OpenErrorKind::InUse);
        assert!(
            error.to_string().contains("in use by another engine"),
            "{error}"
        );
        let us = format!("process {}", std::process::id());
        eventually("the holder is named", || {
            let error = Drive::open(&spec.reopened()).unwrap_err();
            error.to_string().contains(&us).then_some(())
        });
        let link = folder.path().join("link");
        fs::hard_link(spec.path().unwrap(), &link).unwrap();
        let by_link: DriveSpec = format!("file:{}", link.display()).parse().unwrap();
        assert_eq!(
            Drive::open(&by_link).unwrap_err().kind,
            OpenErrorKind::InUse
        );
        drop(drive);
        Drive::open(&by_link).expect("no request was made, so nobody else held it");
    }
}

#[test]
fn a_pulled_drive_is_gone_for_every_operation_and_comes_back_unchanged() {
    let folder = disk();
    let file = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    let null = Drive::open(&DriveSpec::Null {
        size: Size(1 << 20),
    })
    .unwrap();
    for drive in [file, memory_drive(1 << 20), null] {
        let mut bench = Bench::small();
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        drive.inject(Fault::Pulled);
        for operation in ALL_OPERATIONS {
            let memory = [bench.segment(0, 512)];
            memory[0].fill(0xEE);
            let request = match operation {
                Operation::Read | Operation::Write => bench.request(operation, 512, &memory),
                Operation::Flush | Operation::Discard | Operation::WriteZeroes => {
                    Bench::bare(operation, 512, 512)
                }
            };
            assert_eq!(bench.run(request), Status::Gone, "{operation:?}");
        }
        let error = drive.read(0, &mut [0; 512]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        drive.write(0, &[1; 512]).unwrap_err();
        drive.flush().unwrap_err();
        drive.clear_faults();
        let mut stored = [1; 1024];
        drive.read(0, &mut stored).unwrap();
        assert_eq!(stored, [0; 1024]);
    }
}

#[test]
fn a_drive_pulled_under_requests_answers_gone() {
    let mut bench = Bench::small();
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    let memory = [bench.segment(0, 4096)];
    let write = bench.request(Operation::Write, 0, &memory);
    bench.port.submit(write).unwrap();
    drive.inject(Fault::Pulled);
    assert_eq!(bench.drain()[&0], Status::Gone);
}

#[test]
fn bad_bytes_are_bad_until_they_are_rewritten() {
    let folder = disk();
    let file = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    for drive in [file, memory_drive(1 << 20)] {
        let mut bench = Bench::small();
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        drive.inject(Fault::Media {
            offset: 4096,
            length: 1024,
        });
        let memory = [bench.segment(0, 512)];
        assert_eq!(bench.read(3584, &memory), Status::Ok);
        assert_eq!(bench.read(4096, &memory), Status::Media);
        assert_eq!(bench.write(4096, &memory), Status::Ok);
        assert_eq!(bench.read(4096, &memory), Status::Ok);
        assert_eq!(bench.read(4608, &memory), Status::Media);
        drive.write(4608, &[0; 512]).unwrap();
        assert_eq!(bench.read(4608, &memory), Status::Ok);
        let counters = bench.port.counters(DRIVE).unwrap();
        assert_eq!(counters.media_errors, 2);
        assert_eq!(counters.reads.requests, 3);
    }
}

#[test]
fn a_delayed_answer_comes_late_and_not_never() {
    let delay = Duration::from_millis(20);
    let folder = disk();
    let file = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    for drive in [file, memory_drive(1 << 20)] {
        let mut bench = Bench::small();
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        drive.inject(Fault::Delay(delay));
        let begun = MonotonicClock.now();
        let memory = [bench.segment(0, 512)];
        assert_eq!(bench.read(0, &memory), Status::Ok);
        assert!(MonotonicClock.now().since(begun) >= delay);
        let waits = bench.port.port_counters().waits;
        assert!(waits <= 4, "slept {waits} times for one answer");
        let request = bench.request(Operation::Read, 0, &memory);
        bench.port.submit(request).unwrap();
        bench.port.detach(DRIVE);
        assert_eq!(bench.drain().values().next(), Some(&Status::Gone));
    }
}

#[test]
fn waiting_ends_by_an_answer_by_a_watched_file_and_by_the_limit() {
    let mut bench = Bench::small();
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    bench.port.watch(reader.as_raw_fd(), 42);
    let mut tokens = Vec::new();

    let limit = Duration::from_millis(10);
    let begun = MonotonicClock.now();
    bench.port.wait(Some(limit));
    assert!(MonotonicClock.now().since(begun) >= limit);
    bench.port.fired(&mut tokens);
    assert!(tokens.is_empty());

    // No limit: were any of these to miss, the test would hang.
    let memory = [bench.segment(0, 512)];
    let request = bench.request(Operation::Read, 0, &memory);
    bench.port.submit(request).unwrap();
    bench.port.wait(None);
    assert_eq!(bench.drain()[&0], Status::Ok);

    let other = std::thread::Builder::new().name("guest".to_owned());
    let other = other.spawn(move || {
        writer.write_all(b"kick").unwrap();
        writer
    });
    bench.port.wait(None);
    let writer = other.unwrap().join().unwrap();
    bench.port.fired(&mut tokens);
    assert_eq!(tokens, [42]);

    // Still readable, so it fires again although nothing new was written.
    bench.port.wait(None);
    tokens.clear();
    bench.port.fired(&mut tokens);
    assert_eq!(tokens, [42]);

    bench.port.unwatch(42);
    bench.port.wait(Some(limit));
    tokens.clear();
    bench.port.fired(&mut tokens);
    assert!(tokens.is_empty());
    drop(writer);
}

#[test]
fn a_watch_can_go_while_it_is_armed_and_its_token_return() {
    let mut bench = Bench::small();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let limit = Some(Duration::from_millis(1));
    for _ in 0..10 {
        bench.port.watch(reader.as_raw_fd(), 5);
        bench.port.wait(limit);
        bench.port.unwatch(5);
    }
    bench.port.watch(reader.as_raw_fd(), 5);
    bench.port.wait(limit);
    writer.write_all(b"kick").unwrap();
    let mut tokens = Vec::new();
    // The answers for the old ones may come first, each ends one sleep at most.
    for _ in 0..32 {
        bench.port.wait(limit);
        bench.port.fired(&mut tokens);
    }
    assert!(tokens.contains(&5));
    bench.port.unwatch(5);
    drop((reader, writer));
    tokens.clear();
    for _ in 0..4 {
        bench.port.wait(limit);
    }
    bench.port.fired(&mut tokens);
    assert!(tokens.is_empty());
}

#[test]
fn two_ports_share_a_memory_drive() {
    let drive = memory_drive(1 << 20);
    let mut one = Bench::small();
    let mut two = Bench::small();
    one.port.attach(DRIVE, drive.clone()).unwrap();
    two.port.attach(DriveIndex(3), drive).unwrap();
    let memory = [one.segment(3, 4096)];
    fill(&memory, 77);
    assert_eq!(one.write(8192, &memory), Status::Ok);
    let other = [two.segment(5, 4096)];
    assert_eq!(two.read(8192, &other), Status::Ok);
    assert_eq!(bytes_of(&other), bytes_of(&memory));
}

#[test]
fn a_null_drive_leaves_memory_alone() {
    let mut bench = Bench::small();
    let null = Drive::open(&DriveSpec::Null {
        size: Size(1 << 20),
    })
    .unwrap();
    bench.port.attach(DRIVE, null).unwrap();
    let memory = [bench.segment(1, 512)];
    memory[0].fill(0xA5);
    assert_eq!(bench.read(0, &memory), Status::Ok);
    assert_eq!(bytes_of(&memory), [0xA5; 512]);
    assert_eq!(bench.port.port_counters().enters, 0);
}
