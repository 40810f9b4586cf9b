//! Transfers of pinned memory: the same bytes, whatever becomes of the pins meanwhile.

use memory::Lasting;

use super::*;
use crate::{Pin, Pins};

const MIB: usize = 1 << 20;

fn pinned(memory: &Arc<Mapping>) -> Arc<Pin> {
    let memory = Arc::clone(memory) as Arc<dyn Lasting>;
    Arc::new(Pin::new(memory, &|| true).expect("this kernel pins"))
}

fn set(pins: &[&Arc<Pin>]) -> Arc<Pins> {
    let pins = pins.iter().map(|pin| Arc::clone(pin)).collect();
    Arc::new(Pins::new(pins).expect("this kernel hands pins on"))
}

fn with_drive(folder: &Path) -> Bench {
    let mut bench = Bench::small();
    let drive = Drive::open(&file_spec(folder, "d", 4 << 20)).unwrap();
    bench.port.attach(DRIVE, drive).unwrap();
    bench
}

/// Writes what `segments` hold and reads it again; how many of the two used a pin.
fn there_and_back(bench: &mut Bench, segments: &[Segment], seed: u8) -> u64 {
    let before = bench.port.port_counters().pinned;
    fill(segments, seed);
    let wanted = bytes_of(segments);
    assert_eq!(bench.write(64 << 10, segments), Status::Ok);
    segments.iter().for_each(|segment| segment.fill(0));
    assert_eq!(bench.read(64 << 10, segments), Status::Ok);
    assert!(bytes_of(segments) == wanted, "other bytes came back");
    bench.port.port_counters().pinned - before
}

#[test]
fn memory_that_is_pinned_is_used_so_one_piece_or_many_and_all_other_as_before() {
    for folder in folders() {
        let mut bench = with_drive(folder.path());
        let memory = [0; 3].map(|_| Arc::new(Mapping::new(MIB).unwrap()));
        let piece = |of: usize, at: usize, bytes: usize| memory[of].segment(at, bytes);
        assert_eq!(there_and_back(&mut bench, &[piece(0, 0, 8192)], 1), 0);
        let pins = [pinned(&memory[0]), pinned(&memory[1])];
        bench.port.set_pins(set(&[&pins[0], &pins[1]]));
        for (pieces, used) in [
            (vec![piece(0, 0, 4096)], 2),
            (vec![piece(1, MIB - 65536, 65536)], 2),
            (vec![piece(0, 4096, 4096), piece(0, 65536, 8192)], 2),
            (vec![piece(1, 0, 4096), piece(1, MIB - 4096, 4096)], 2),
            // One buffer has not both.
            (vec![piece(0, 0, 4096), piece(1, 0, 4096)], 0),
            (vec![piece(2, 0, 65536)], 0),
            (vec![piece(0, 0, 4096), piece(2, 0, 4096)], 0),
        ] {
            assert_eq!(there_and_back(&mut bench, &pieces, 7), used, "{pieces:?}");
        }
        // Those of other numbers in the next set are found by these.
        bench.port.set_pins(set(&[&pins[1]]));
        assert_eq!(there_and_back(&mut bench, &[piece(1, 0, 65536)], 9), 2);
        assert_eq!(there_and_back(&mut bench, &[piece(0, 0, 65536)], 11), 0);
    }
}

#[test]
fn pins_come_and_go_while_transfers_are_queued_and_under_way() {
    for folder in folders() {
        let mut bench = with_drive(folder.path());
        let memory = [0; 4].map(|_| Arc::new(Mapping::new(MIB).unwrap()));
        let pins = memory.each_ref().map(pinned);
        let all: Vec<&Arc<Pin>> = pins.iter().collect();
        let pieces: Vec<Segment> = (0..32)
            .map(|at| memory[at % 4].segment(at * 4096, 4096))
            .collect();
        fill(&pieces, 5);
        let wanted = bytes_of(&pieces);
        for operation in [Operation::Write, Operation::Read] {
            for (at, piece) in pieces.iter().enumerate() {
                // Apart, so that none are joined.
                let offset = units::bytes_u64(at) * 8192;
                let request = bench.request(operation, offset, &[*piece]);
                bench.port.submit(request).unwrap();
                if at % 3 == 0 {
                    // Into the ring, without a call.
                    bench.port.start_ready();
                }
                // Each set has the same memory under other numbers, or not at all.
                let set_of = &all[at % 4..];
                bench.port.set_pins(set(set_of));
            }
            let answers = bench.drain();
            assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
            if operation == Operation::Write {
                pieces.iter().for_each(|piece| piece.fill(0));
            }
        }
        assert!(bytes_of(&pieces) == wanted);
        assert!(bench.port.port_counters().pinned > 16);
    }
}

#[test]
fn a_pin_keeps_its_addresses_as_long_as_a_ring_knows_it() {
    let folder = disk();
    let mut bench = with_drive(folder.path());
    let memory = Arc::new(Mapping::new(MIB).unwrap());
    let (place, weak) = (memory.segment(0, MIB), Arc::downgrade(&memory));
    bench.port.set_pins(set(&[&pinned(&memory)]));
    drop(memory);
    assert!(weak.upgrade().is_some(), "others could come there");
    assert_eq!(there_and_back(&mut bench, &[place.part(0, 4096)], 3), 2);
    bench.port.set_pins(Arc::default());
    assert!(weak.upgrade().is_none());
    // What comes there next is read for what it is. The kernel likes to use a gap again.
    let next = Arc::new(Mapping::new(MIB).unwrap());
    let used = there_and_back(&mut bench, &[next.segment(0, 65536)], 4);
    assert_eq!(used, 0);
}

#[test]
fn a_kernel_that_refuses_a_pin_after_all_gets_the_request_without() {
    for folder in folders() {
        let mut bench = with_drive(folder.path());
        let memory = Arc::new(Mapping::new(MIB).unwrap());
        bench.port.set_pins(set(&[&pinned(&memory)]));
        bench.port.rings.plain.forget_buffers();
        let piece = memory.segment(8192, 65536);
        assert_eq!(there_and_back(&mut bench, &[piece], 3), 1, "the first try");
        assert_eq!(there_and_back(&mut bench, &[piece], 4), 0);
    }
}

#[test]
fn a_port_that_goes_leaves_nothing_pinned() {
    let memory = Arc::new(Mapping::new(MIB).unwrap());
    let folder = disk();
    let mut bench = with_drive(folder.path());
    bench.port.set_pins(set(&[&pinned(&memory)]));
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(bench);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn all_transfers_that_a_kernel_refuses_for_their_pins_are_made_without() {
    for folder in folders() {
        let mut bench = with_drive(folder.path());
        let memory = Arc::new(Mapping::new(MIB).unwrap());
        bench.port.set_pins(set(&[&pinned(&memory)]));
        bench.port.rings.plain.forget_buffers();
        let pieces: Vec<Segment> = (0..8).map(|at| memory.segment(at * 8192, 4096)).collect();
        fill(&pieces, 6);
        let wanted = bytes_of(&pieces);
        for operation in [Operation::Write, Operation::Read] {
            for (at, piece) in pieces.iter().enumerate() {
                let request = bench.request(operation, units::bytes_u64(at) * 8192, &[*piece]);
                bench.port.submit(request).unwrap();
            }
            let answers = bench.drain();
            assert!(answers.values().all(|status| status.is_ok()), "{answers:?}");
            if operation == Operation::Write {
                assert_eq!(bench.port.port_counters().pinned, 8, "all were tried so");
                pieces.iter().for_each(|piece| piece.fill(0));
            }
        }
        assert!(bytes_of(&pieces) == wanted);
    }
}

#[test]
fn a_drives_own_error_of_memory_that_is_not_pinned_costs_no_pins() {
    let folder = disk();
    let mut bench = with_drive(folder.path());
    let memory = Arc::new(Mapping::new(MIB).unwrap());
    bench.port.set_pins(set(&[&pinned(&memory)]));
    let nowhere = mapping::nowhere(4096);
    assert_eq!(bench.write(0, &[nowhere]), Status::Invalid);
    assert_eq!(there_and_back(&mut bench, &[memory.segment(0, 4096)], 3), 2);
}
