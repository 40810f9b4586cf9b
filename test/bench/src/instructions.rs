//! `instructions read|rmw|full COUNT`: the device side of one reactor, from ring to completion, on
//! drives that answer at once. Run under callgrind, which counts what `serve` does:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no \
//!     --toggle-collect='instructions::serve' instructions read 10000
//! ```
//!
//! `cargo xtask instructions` does that, and compares the counts with those that are kept.
//!
//! It also counts allocations made while serving, which must be none.
#![allow(clippy::print_stdout, reason = "a program for people")]
#![allow(
    unsafe_code,
    reason = "the global allocator counts; nothing else is unsafe"
)]

use std::alloc::{GlobalAlloc, Layout as AllocLayout, System};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use array::format::{HedgedReads, Layout as MemberLayout, WriteHole};
use array::{
    ArrayMap, Begun, BegunOf, BegunSpace, Event, Geometry, GeometryParameters, Io, Level, LogSpace,
    MapMember, MapState, MemberRequest, Message, RegionMap, RegionSpace, Room, Shard, Shared,
    Suspects,
};
use block::{Completion, Cookie, Full, Histogram, Request, Status};
use guest::{Driver, Layout, Memory, Options, Part};
use memory::{Mapping, Region, RegionTable};
use units::limits::BUCKETS;
use units::{ArrayIndex, BlockSize, DriveIndex, Instant, ReactorIndex, StripeIndex, Update};
use vhost_user_blk::{
    Access, CacheMode, Events, Notice, Profile, Queue, QueueSetup, Shown, feature,
};
use virtqueue::{Features, RingMemory, Vring};

/// Counts allocations while told to.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: AllocLayout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: AllocLayout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Drives that answer at the next look and move no bytes.
#[derive(Default)]
struct Null {
    taken: Vec<Cookie>,
    answers: Vec<Completion>,
    member_requests: u64,
}

impl Io for Null {
    fn now(&self) -> Instant {
        Instant(0)
    }
    fn drive_room(&self) -> usize {
        4096
    }
    fn drive(&mut self, request: MemberRequest) {
        self.member_requests += 1;
        self.taken.push(request.cookie);
    }
    fn times(&self, _: DriveIndex) -> Option<[&Histogram; 2]> {
        None
    }
    fn ask(&mut self, _: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        Err(Full(message))
    }
    fn reply(&mut self, _: ReactorIndex, _: Message) {}
    fn complete(&mut self, completion: Completion) {
        self.answers.push(completion);
    }
    fn event(&mut self, _: Event) {}
}

struct Device {
    queue: Queue,
    shard: Shard,
    io: Null,
    reaped: Vec<Cookie>,
    done: Vec<Completion>,
}

/// One turn of the device after another, until all that was asked is answered.
#[inline(never)]
fn serve(device: &mut Device) {
    let Device {
        queue,
        shard,
        io,
        reaped,
        done,
    } = device;
    queue.poll(Instant(0), &mut |request: Request| {
        shard.submit(request, io)
    });
    while queue.pending() > 0 {
        shard.poll(io);
        std::mem::swap(&mut io.taken, reaped);
        for cookie in reaped.drain(..) {
            shard.drive_done(cookie, Status::Ok, io);
        }
        std::mem::swap(&mut io.answers, done);
        for Completion { cookie, status } in done.drain(..) {
            let slot = u32::try_from(cookie.0).expect("a slot of the queue");
            queue.complete(slot, status, Instant(0));
        }
    }
    queue.publish();
}

const RING: u16 = 256;
const BATCH: usize = 32;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (kind, count) = match arguments.as_slice() {
        [_, kind, count] => (kind.as_str(), count.parse().unwrap_or(10_000)),
        _ => ("read", 10_000),
    };
    let (write, bytes) = match kind {
        "read" => (false, 4096),
        "rmw" => (true, 4096),
        _ => (true, 4 * 65536),
    };
    let guest_memory = Arc::new(Memory::new(64 << 20).expect("memory"));
    let mut driver = Driver::new(&guest_memory, Options::new(Layout::Split, RING));
    let mut device = device(&guest_memory, &driver);
    let mut requests = Vec::new();
    for _ in 0..BATCH {
        let header = guest_memory.allocate(16, 16);
        requests.push((
            header,
            guest_memory.allocate(bytes, 4096),
            guest_memory.allocate(1, 1),
        ));
    }
    let blocks = device.shard.map().geometry.blocks() - 512;
    let mut place = 7u64;
    let mut served = 0usize;
    while served < count {
        for &(header, data, status) in &requests {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let unit = if bytes == 4096 { 8 } else { 512 };
            let sector = (place >> 20) % (blocks / unit) * unit;
            guest_memory.store_u32(header, u32::from(write));
            guest_memory.store_u64(header + 8, sector);
            let length = u32::try_from(bytes).expect("small");
            let parts = [
                Part {
                    address: header,
                    length: 16,
                    writable: false,
                },
                Part {
                    address: data,
                    length,
                    writable: !write,
                },
                Part {
                    address: status,
                    length: 1,
                    writable: true,
                },
            ];
            driver.submit(&parts).expect("the ring has room");
        }
        COUNTING.store(served >= count / 2, Ordering::Relaxed);
        serve(&mut device);
        COUNTING.store(false, Ordering::Relaxed);
        while driver.reap().is_some() {
            served += 1;
        }
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    let per_request = device.io.member_requests / units::bytes_u64(served);
    println!(
        "{kind}: {served} requests served, {per_request} member requests each, {allocations} \
         allocations, kernels {:?}",
        parity::Backend::best()
    );
    assert_eq!(allocations, 0, "nothing is allocated per request");
}

/// A RAID 5 of 4 + 1, chunk 64 KiB, 64 MiB of data on each member, and one queue on it.
#[allow(
    clippy::too_many_lines,
    reason = "one thing after another is put together, each once"
)]
fn device(guest_memory: &Arc<Memory>, driver: &Driver) -> Device {
    let block = BlockSize::B512;
    let geometry = Geometry::new(GeometryParameters {
        level: Level::L5,
        members: 5,
        parity: None,
        group_size: None,
        chunk_bytes: 64 << 10,
        block,
        member_data_blocks: (64 << 20) / 512,
    })
    .expect("a good shape");
    let layout = MemberLayout::for_member(128 << 20, block, 5).expect("large enough");
    let member = |drive| MapMember {
        drive: Some(DriveIndex(drive)),
        incarnation: 0,
        data_offset: layout.data.offset,
        state: MapState::InSync,
    };
    let owners: Arc<[ReactorIndex]> = vec![ReactorIndex(0); BUCKETS].into();
    let area = layout.region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    let space = RegionSpace::new(&geometry, stripes, (area.offset, area.length)).expect("fits");
    let log = LogSpace::new(&geometry, (layout.log.offset, layout.log.length));
    let map = ArrayMap {
        array: ArrayIndex(0),
        serial: 0,
        barrier: 0,
        update: Update(1),
        geometry,
        members: (0..5).map(member).collect(),
        hopeless: vec![false; 5],
        missed: vec![None; 5],
        held: vec![false; 5],
        released: vec![0; 5],
        given_up: false,
        trusted_until: StripeIndex(geometry.stripes()),
        lost_blocks: Arc::default(),
        window: None,
        owners,
        home: ReactorIndex(0),
        read_only: false,
        suspects: Arc::new(Suspects::none(&space)),
        log_life: 1,
        log_from: 1,
        write_hole: WriteHole::Auto,
        hedged_reads: HedgedReads::Auto,
    };
    let room = BegunSpace::new(1, &Room::default());
    let length = usize::try_from(room.bytes()).expect("some MiB");
    let file = memory::words::unnamed_file(length).expect("memory");
    let whose = BegunOf {
        array: uuid::Uuid::nil(),
        boot: uuid::Uuid::nil(),
        life: 1,
    };
    let begun = Some(Begun::create(file, room, &whose).expect("memory"));
    // Where writes go again and again, regions are dirty.
    let shared = Shared::new(
        &map,
        &RegionMap::new(space, uuid::Uuid::nil()).all_dirty(),
        (log, 1),
        begun,
    );
    shared.open_regions();
    let shard =
        Shard::new(ReactorIndex(0), Arc::new(map), shared, Room::default()).expect("memory");
    let mapping = Mapping::new(guest_memory.file().as_fd(), 0, 64 << 20).expect("mapped");
    let region = Region {
        guest_base: Memory::START,
        front_end_base: Memory::START,
        length: 64 << 20,
        mapping: Arc::clone(&mapping),
        offset: 0,
    };
    let table = RegionTable::new(vec![region]).expect("one region");
    let addresses = driver.addresses();
    let part = |(address, length): (u64, usize)| {
        table
            .front_end(address, units::bytes_u64(length))
            .expect("inside")
    };
    let ring = RingMemory {
        descriptors: part(addresses.descriptors),
        driver: part(addresses.driver),
        device: part(addresses.device),
    };
    let features = Features {
        event_idx: true,
        indirect: true,
    };
    let vring = Vring::new(virtqueue::Layout::Split, RING, ring, features, 0).expect("a good ring");
    let profile = Profile {
        serial: [b'0'; 20],
        block,
        logical_block: block,
        physical_block_exponent: 3,
        minimum_io_blocks: 128,
        optimal_io_blocks: 512,
        queues: 1,
        queue_size: RING,
        cache: CacheMode::WriteBack,
        access: Access::ReadWrite,
        discard: None,
        write_zeroes: None,
    };
    let wake = vhost_user_blk::Event::new().expect("an event");
    let mut queue = Queue::new(QueueSetup {
        vring,
        size: RING,
        kept: vec![mapping],
        memory: table,
        events: Events::default(),
        shown: Arc::new(Shown::new(profile, geometry.blocks())),
        features: feature::VERSION_1 | feature::FLUSH | feature::EVENT_IDX,
        notice: Arc::new(Notice::new(wake)),
    });
    queue.disable_kicks();
    Device {
        queue,
        shard,
        io: Null::default(),
        reaped: Vec::new(),
        done: Vec::new(),
    }
}
