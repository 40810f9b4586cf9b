//! Requests that share an operation: bytes, answers, errors and counts are as of each by itself.

use super::*;

const CHUNK: u64 = 16 << 10;

fn chunk_at(at: u64) -> usize {
    units::bytes_usize(at * 3 * CHUNK)
}

/// Submits so many chunks in order, each of two pieces that lie apart, and returns their memory.
fn submit_chunks(bench: &mut Bench, operation: Operation, chunks: u64) -> Vec<Segment> {
    let mut memory = Vec::new();
    for at in 0..chunks {
        let length = units::bytes_usize(CHUNK);
        let pieces = [
            bench.segment(chunk_at(at), length / 4),
            bench.segment(chunk_at(at) + length, length * 3 / 4),
        ];
        memory.extend(pieces);
        let request = bench.request(operation, at * CHUNK, &pieces);
        bench.port.submit(request).unwrap();
    }
    memory
}

fn all_ok(answers: &BTreeMap<u64, Status>, wanted: usize) {
    assert_eq!(answers.len(), wanted);
    assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
}

#[test]
fn neighbours_of_one_turn_share_operations_of_256_kib_and_each_is_answered() {
    for folder in folders() {
        let mut bench = Bench::small();
        let drive = Drive::open(&file_spec(folder.path(), "d", 4 << 20)).unwrap();
        bench.port.attach(DRIVE, drive.clone()).unwrap();
        let memory = submit_chunks(&mut bench, Operation::Write, 40);
        fill(&memory, 3);
        let wanted = bytes_of(&memory);
        all_ok(&bench.drain(), 40);
        let mut stored = vec![0; wanted.len()];
        drive.read(0, &mut stored).unwrap();
        assert!(stored == wanted);
        memory.iter().for_each(|segment| segment.fill(0));
        submit_chunks(&mut bench, Operation::Read, 40);
        all_ok(&bench.drain(), 40);
        assert!(bytes_of(&memory) == wanted);
        let counters = bench.port.port_counters();
        assert_eq!(
            (counters.operations, counters.joined),
            (6, 74),
            "twice 256, 256 and 128 KiB"
        );
        assert_eq!(counters.parted, 0);
        assert_eq!(bench.port.counters(DRIVE).unwrap().reads.requests, 40);
    }
}

#[test]
fn what_must_not_be_joined_is_not() {
    let folder = disk();
    let other = DriveIndex(4);
    let mut bench = Bench::small();
    for (index, name) in [(DRIVE, "a"), (other, "b")] {
        let drive = Drive::open(&file_spec(folder.path(), name, 4 << 20)).unwrap();
        bench.port.attach(index, drive).unwrap();
    }
    let page = |bench: &Bench, at: usize| bench.segment(at * 4096, 4096);
    let mut pair = |what: &str, change: &mut dyn FnMut(&mut Bench, &mut DriveRequest)| {
        let before = bench.port.port_counters();
        let memory = [page(&bench, 0)];
        let first = bench.request(Operation::Read, 0, &memory);
        bench.port.submit(first).unwrap();
        let memory = [page(&bench, 2)];
        let mut second = bench.request(Operation::Read, 4096, &memory);
        change(&mut bench, &mut second);
        bench.port.submit(second).unwrap();
        all_ok(&bench.drain(), 2);
        let after = bench.port.port_counters();
        let operations = after.operations - before.operations;
        assert_eq!(operations + after.joined - before.joined, 2, "{what}");
        operations
    };
    assert_eq!(pair("neighbours", &mut |_, _| ()), 1);
    assert_eq!(pair("another turn", &mut |bench, _| bench.hand_over()), 2);
    assert_eq!(pair("a gap", &mut |_, second| second.offset += 4096), 2);
    let mut drive = |_: &mut Bench, second: &mut DriveRequest| second.drive = other;
    assert_eq!(pair("another drive", &mut drive), 2);
    let mut kind = |_: &mut Bench, second: &mut DriveRequest| second.operation = Operation::Write;
    assert_eq!(pair("another direction", &mut kind), 2);
    let mut seam = |bench: &mut Bench, second: &mut DriveRequest| {
        let memory = [bench.segment(512, 4096)];
        *second = bench.request(Operation::Read, 4096, &memory);
    };
    assert_eq!(pair("a seam within a page", &mut seam), 2);
    let mut long = |bench: &mut Bench, second: &mut DriveRequest| {
        let memory = [bench.segment(8192, 256 << 10)];
        *second = bench.request(Operation::Read, 4096, &memory);
    };
    assert_eq!(pair("too long together", &mut long), 2);
    let mut many = |bench: &mut Bench, second: &mut DriveRequest| {
        let memory: Vec<Segment> = (0..64).map(|at| bench.segment(at * 4096, 512)).collect();
        *second = bench.request(Operation::Read, 4096, &memory);
    };
    assert_eq!(pair("too many segments", &mut many), 2);
}

#[test]
fn a_port_that_is_not_to_join_asks_once_for_each_request() {
    let folder = disk();
    let mut bench = Bench::new(PortOptions {
        joined_bytes_max: 0,
        ..PortOptions::default()
    });
    let drive = Drive::open(&file_spec(folder.path(), "d", 4 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    submit_chunks(&mut bench, Operation::Read, 40);
    all_ok(&bench.drain(), 40);
    let counters = bench.port.port_counters();
    assert_eq!((counters.operations, counters.joined), (40, 0));
}

#[test]
fn nothing_joins_past_a_flush_or_what_bounces() {
    let folder = disk();
    let mut bench = Bench::small();
    let drive = Drive::open(&file_spec(folder.path(), "d", 4 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    let flush = Bench::bare(Operation::Flush, 256 << 10, 0);
    let odd = [bench.segment(5 * 4096 + 1, 4096)];
    let bounced = bench.request(Operation::Write, 64 << 10, &odd);
    let zeroes = Bench::bare(Operation::WriteZeroes, 128 << 10, 4096);
    for between in [flush, bounced, zeroes] {
        let before = bench.port.port_counters().joined;
        let [first, second] = [0, 1].map(|at| {
            let memory = [bench.segment(at * 4096, 4096)];
            bench.request(Operation::Write, units::bytes_u64(at) * 4096, &memory)
        });
        for request in [first, between, second] {
            bench.port.submit(request).unwrap();
        }
        all_ok(&bench.drain(), 3);
        assert_eq!(bench.port.port_counters().joined, before, "{between:?}");
    }
}

#[test]
fn memory_that_went_away_is_the_fault_of_its_own_request_only() {
    for folder in folders() {
        for operation in [Operation::Read, Operation::Write] {
            let mut bench = Bench::small();
            let drive = Drive::open(&file_spec(
                folder.path(),
                &format!("{operation:?}"),
                1 << 20,
            ))
            .unwrap();
            drive.write(0, &[0x11; 5 * 4096]).unwrap();
            bench.port.attach(DRIVE, drive.clone()).unwrap();
            let mut memory = Vec::new();
            for at in 0..5usize {
                let segment = match at {
                    2 => mapping::nowhere(4096),
                    _ => bench.segment(at * 8192, 4096),
                };
                memory.push(segment);
                let request = bench.request(operation, units::bytes_u64(at) * 4096, &[segment]);
                bench.port.submit(request).unwrap();
            }
            let whole = [0, 1, 3, 4].map(|at| memory[at]);
            whole.iter().for_each(|segment| segment.fill(0x22));
            let answers = bench.drain();
            let wanted = [
                Status::Ok,
                Status::Ok,
                Status::Invalid,
                Status::Ok,
                Status::Ok,
            ];
            let answers: Vec<Status> = answers.into_values().collect();
            assert_eq!(answers, wanted, "{operation:?}");
            let (kept, counters) = (bytes_of(&whole), bench.port.port_counters());
            assert!(counters.parted >= 3 && counters.joined == 4);
            let byte = if operation == Operation::Read {
                0x11
            } else {
                0x22
            };
            assert!(kept.iter().all(|have| *have == byte));
            let mut stored = [0; 5 * 4096];
            drive.read(0, &mut stored).unwrap();
            for at in [0, 1, 3, 4] {
                let block = &stored[at * 4096..(at + 1) * 4096];
                assert!(block.iter().all(|have| *have == byte), "{operation:?} {at}");
            }
        }
    }
}

#[test]
fn where_a_file_was_cut_off_only_what_is_missing_fails() {
    for folder in folders() {
        let mut bench = Bench::small();
        let spec = file_spec(folder.path(), "d", 1 << 20);
        bench
            .port
            .attach(DRIVE, Drive::open(&spec).unwrap())
            .unwrap();
        let file = File::options().write(true).open(spec.path().unwrap());
        file.unwrap().set_len(2 * CHUNK + 4096).unwrap();
        submit_chunks(&mut bench, Operation::Read, 4);
        let answers: Vec<Status> = bench.drain().into_values().collect();
        let wanted = [Status::Ok, Status::Ok, Status::Media, Status::Media];
        assert_eq!(answers, wanted);
        let counters = bench.port.port_counters();
        assert_eq!((counters.joined, counters.parted), (3, 2));
    }
}

#[test]
fn an_ordered_fault_hits_its_request_and_parts_the_others() {
    let folder = disk();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    let mut bench = Bench::small();
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    let (offset, length) = (CHUNK, 512);
    drive.inject(Fault::Media { offset, length });
    submit_chunks(&mut bench, Operation::Read, 4);
    let answers: Vec<Status> = bench.drain().into_values().collect();
    assert_eq!(answers, [Status::Ok, Status::Media, Status::Ok, Status::Ok]);
    assert_eq!(bench.port.port_counters().operations, 2);
}

#[test]
fn a_flush_in_the_turn_of_joined_writes_is_answered_beside_them() {
    let folder = disk();
    let mut bench = Bench::small();
    let drive = Drive::open(&file_spec(folder.path(), "d", 1 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    submit_chunks(&mut bench, Operation::Write, 3);
    let flush = Bench::bare(Operation::Flush, 7, 0);
    bench.port.submit(flush).unwrap();
    all_ok(&bench.drain(), 4);
    assert_eq!(bench.port.port_counters().operations, 2);
}

#[test]
fn detaching_a_drive_answers_joined_requests_in_the_kernel_and_in_the_queue() {
    let folder = disk();
    let mut bench = Bench::small();
    let spec = file_spec(folder.path(), "d", 4 << 20);
    bench
        .port
        .attach(DRIVE, Drive::open(&spec).unwrap())
        .unwrap();
    submit_chunks(&mut bench, Operation::Write, 9);
    // What of it does not go through is not made again.
    let gone = [mapping::nowhere(units::bytes_usize(CHUNK))];
    let request = bench.request(Operation::Write, 9 * CHUNK, &gone);
    bench.port.submit(request).unwrap();
    bench.hand_over();
    assert_eq!(bench.port.in_kernel, 1);
    for at in 10..20 {
        let memory = [bench.segment(chunk_at(at), units::bytes_usize(CHUNK))];
        let request = bench.request(Operation::Write, at * CHUNK, &memory);
        bench.port.submit(request).unwrap();
    }
    bench.port.detach(DRIVE);
    assert_eq!(bench.port.pending(), 20);
    let answers = bench.drain();
    assert_eq!(answers.len(), 20);
    assert!(answers.values().all(|status| *status == Status::Gone));
    assert_eq!(bench.port.port_counters().operations, 1);
    eventually("the last holder let go", || {
        bench.port.poll(&mut Vec::new());
        open_when_free(&spec.reopened())
    });
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    operation: Operation,
    /// Goes on where the last one ended; else at this block.
    block: Option<u64>,
    blocks: u64,
    /// Where its memory begins: 1 bounces, 512 has a seam within a page.
    shift: usize,
    pieces: usize,
    turn_ends: bool,
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let block = prop_oneof![3 => Just(None), 1 => (0..64u64).prop_map(Some)];
    let shift = prop_oneof![8 => Just(0usize), 1 => Just(1), 1 => Just(512)];
    let operation = prop_oneof![Just(Operation::Read), Just(Operation::Write)];
    let ask = (operation, block, 1..24u64, shift, 1..4usize, 0..12u8);
    let ask = ask.prop_map(|(operation, block, blocks, shift, pieces, end)| Ask {
        operation,
        block,
        blocks,
        shift,
        pieces,
        turn_ends: end == 0,
    });
    proptest::collection::vec(ask, 1..60)
}

/// Ends a turn of so many requests, of which these are reads.
fn settle(bench: &mut Bench, wanted: usize, reads: &mut Vec<(Vec<Segment>, usize)>, model: &[u8]) {
    all_ok(&bench.drain(), wanted);
    for (memory, at) in reads.drain(..) {
        let read = bytes_of(&memory);
        assert!(read == model[at..at + read.len()], "at {at}");
    }
}

/// Plays turns of requests on a drive and on a `Vec`. Requests of a turn may be carried out in any
/// order, so one that meets a write of its turn begins another. Returns what was joined.
fn play_turns(asks: &[Ask], drive: &Arc<Drive>, requests: u32) -> u64 {
    const BLOCK: u64 = 4096;
    let blocks = drive.info().size_bytes / BLOCK;
    let mut bench = Bench::new(PortOptions {
        requests,
        bounce_buffers: 1,
        bounce_bytes: 8192,
        joined_bytes_max: limits::JOINED_BYTES_MAX,
    });
    bench.port.attach(DRIVE, drive.clone()).unwrap();
    let mut model = vec![0; units::bytes_usize(drive.info().size_bytes)];
    let mut taken: Vec<std::ops::Range<u64>> = Vec::new();
    let mut reads = Vec::new();
    let (mut end, mut room) = (0, 0);
    for (number, ask) in asks.iter().enumerate() {
        let first = ask.block.unwrap_or(end).min(blocks - ask.blocks);
        let range = first..first + ask.blocks;
        end = range.end;
        let meets =
            |other: &std::ops::Range<u64>| other.start < range.end && range.start < other.end;
        if taken.iter().any(meets) || bench.port.room() == 0 || ask.turn_ends {
            settle(&mut bench, taken.len(), &mut reads, &model);
            taken.clear();
            room = 0;
        }
        let at = units::bytes_usize(first * BLOCK);
        let piece = units::bytes_usize(ask.blocks * BLOCK) / ask.pieces / 512 * 512;
        let mut left = units::bytes_usize(ask.blocks * BLOCK);
        let mut memory = Vec::new();
        while left > 0 {
            let length = if memory.len() + 1 == ask.pieces {
                left
            } else {
                piece
            };
            memory.push(bench.segment(room + ask.shift, length));
            room = (room + length).next_multiple_of(4096) + 4096;
            left -= length;
        }
        let request = bench.request(ask.operation, first * BLOCK, &memory);
        if ask.operation == Operation::Write {
            fill(&memory, u8::try_from(number).unwrap());
            let written = bytes_of(&memory);
            model[at..at + written.len()].copy_from_slice(&written);
        } else {
            memory.iter().for_each(|segment| segment.fill(0xEE));
            reads.push((memory, at));
        }
        let cookie = Cookie(units::bytes_u64(number));
        bench
            .port
            .submit(DriveRequest { cookie, ..request })
            .unwrap();
        taken.push(range);
    }
    settle(&mut bench, taken.len(), &mut reads, &model);
    let mut all = vec![0; model.len()];
    drive.read(0, &mut all).unwrap();
    assert!(all == model, "the drive differs from the model at the end");
    bench.port.port_counters().joined
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn turns_of_any_requests_read_as_the_model_says(asks in asks(), requests in 4u32..40) {
        for folder in folders() {
            let drive = Drive::open(&file_spec(folder.path(), "d", 256 * 4096)).unwrap();
            play_turns(&asks, &drive, requests);
        }
    }
}
