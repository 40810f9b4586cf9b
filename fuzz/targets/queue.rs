//! A guest that writes anything into its memory: rings of both layouts, indirect tables, request
//! headers, ranges. Every chain that is taken is answered; more is written between turns.
#![no_main]

use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock};

use block::{Full, Operation, Request, Status};
use guest::Memory;
use libfuzzer_sys::fuzz_target;
use memory::{Mapping, Region, RegionTable};
use units::{BlockSize, Instant, bytes_u64};
use vhost_user_blk::{
    Access, CacheMode, Event, Events, Notice, Profile, Queue, QueueSetup, RangeLimits, Shown,
    feature,
};
use virtqueue::{Features, Layout, RingMemory, Vring};

const BYTES: usize = 16 << 10;
const SIZE: u16 = 8;
const SECTORS: u64 = 4096;

struct Machine {
    mapping: Arc<Mapping>,
    table: Arc<RegionTable>,
    shown: Arc<Shown>,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let memory = Memory::new(BYTES).expect("memory");
    let mapping = Mapping::new(memory.file().as_fd(), 0, bytes_u64(BYTES)).expect("mapped");
    // Two regions that touch, and a hole behind them.
    let region = |first: u64, length: u64| Region {
        guest_base: first,
        front_end_base: first,
        length,
        mapping: Arc::clone(&mapping),
        offset: first,
    };
    let half = bytes_u64(BYTES) / 2;
    let table = RegionTable::new(vec![region(0, half), region(half, half)]).expect("two regions");
    let limits = RangeLimits {
        sectors_max: 1024,
        ranges_max: 4,
        alignment_sectors: 8,
    };
    let profile = Profile {
        serial: [b'0'; 20],
        block: BlockSize::B512,
        logical_block: BlockSize::B512,
        physical_block_exponent: 3,
        minimum_io_blocks: 128,
        optimal_io_blocks: 512,
        queues: 1,
        queue_size: SIZE,
        cache: CacheMode::WriteBack,
        access: Access::ReadWrite,
        discard: Some(limits),
        write_zeroes: Some(limits),
    };
    let shown = Arc::new(Shown::new(profile, SECTORS));
    Machine {
        mapping,
        table,
        shown,
    }
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let machine = &*MACHINE;
    let all = machine.mapping.segment();
    all.fill(0);
    let layout = if choice & 1 == 0 {
        Layout::Split
    } else {
        Layout::Packed
    };
    let features = Features {
        event_idx: choice & 2 != 0,
        indirect: choice & 4 != 0,
    };
    // The rings come first, so that short inputs reach them.
    let ring = RingMemory {
        descriptors: all.part(0, 128),
        driver: all.part(128, 64),
        device: all.part(192, 128),
    };
    let turns: Vec<&[u8]> = data.splitn(4, |byte| *byte == 0xA5).collect();
    write(all, turns[0]);
    let Ok(vring) = Vring::new(layout, SIZE, ring, features, 0) else {
        return;
    };
    let wake = Event::new().expect("an event");
    let write_through = if choice & 8 == 0 { feature::FLUSH } else { 0 };
    let mut queue = Queue::new(QueueSetup {
        vring,
        size: SIZE,
        kept: vec![Arc::clone(&machine.mapping)],
        memory: Arc::clone(&machine.table),
        events: Events::default(),
        shown: Arc::clone(&machine.shown),
        features: feature::VERSION_1 | write_through,
        notice: Arc::new(Notice::new(wake)),
    });
    // Each turn takes one request: as many more as there may be in the ring.
    for more in turns.iter().skip(1).chain([&&[][..]; SIZE as usize]) {
        turn(&mut queue);
        write(all, more);
    }
    assert!(queue.is_drained() || queue.broken().is_some());
});

/// Writes to the start of guest memory.
fn write(all: memory::Segment, bytes: &[u8]) {
    let count = bytes.len().min(all.len());
    all.part(0, count).copy_from_slice(&bytes[..count]);
}

/// One turn of a device whose volume takes one request and no more.
fn turn(queue: &mut Queue) {
    let mut taken = Vec::new();
    let mut refuse = false;
    queue.poll(Instant(0), &mut |request: Request| {
        refuse = !refuse;
        if !refuse {
            return Err(Full(request));
        }
        check(&request);
        taken.push(request.cookie.0);
        Ok(())
    });
    for cookie in taken {
        let slot = u32::try_from(cookie).expect("a slot");
        queue.complete(slot, Status::Ok, Instant(0));
    }
    queue.publish();
}

/// A request that got this far is inside the volume and carries what it names.
fn check(request: &Request) {
    let end = request.start + u64::from(request.blocks);
    assert!(end <= SECTORS, "{request:?}");
    let carries = matches!(request.operation, Operation::Read | Operation::Write);
    let bytes = u64::from(request.blocks) * 512;
    assert_eq!(
        bytes_u64(request.segments.bytes()),
        if carries { bytes } else { 0 }
    );
    for part in request.segments.as_slice() {
        part.fill(request.operation as u8);
    }
}
