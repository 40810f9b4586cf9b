//! The device side of a reactor without the engine around it: an array whose drives answer at once,
//! queues on it, and the guest of each queue.

use std::os::fd::AsFd;
use std::sync::Arc;

use array::format::{HedgedReads, Layout as MemberLayout, WriteHole};
use array::{
    ArrayMap, Begun, BegunOf, BegunSpace, Geometry, GeometryParameters, Level, LogSpace, MapMember,
    MapState, Owners, RegionMap, RegionSpace, Room, Shared, Suspects,
};
use guest::{Driver, Layout, Memory, Options, Part, Token};
use memory::{Mapping, Region, RegionTable, Segment};
use units::{ArrayIndex, BlockSize, DriveIndex, ReactorIndex, StripeIndex, Update};
use vhost_user_blk::{
    Access, CacheMode, Events, Notice, Profile, Queue, QueueSetup, Shown, feature,
};
use virtqueue::{Features, RingMemory, Vring};

const RING: u16 = 256;
const BLOCK: BlockSize = BlockSize::B512;
pub(crate) const CHUNK: usize = 64 << 10;
/// Data chunks of a stripe.
const DATA: usize = 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) bytes: usize,
    /// Requests under way.
    pub(crate) depth: usize,
    /// Data chunks of a stripe, where one reactor owns all, and others do nothing but help.
    pub(crate) helped: Option<usize>,
    level: Level,
    members: usize,
}

impl Load {
    /// `read`, `rmw` (4 KiB writes), `full` (stripes), or `helped:K`: stripes of K data chunks;
    /// all on RAID 5. `rmw6`: 4 KiB writes on RAID 6, `mirror`: on RAID 1 of two.
    ///
    /// # Panics
    /// When K is no number.
    pub(crate) fn named(kind: &str, depth: usize) -> Load {
        let chunks = kind.strip_prefix("helped:");
        let helped: Option<usize> = chunks.map(|count| count.parse().expect("data chunks"));
        let (write, bytes) = match kind {
            "read" => (false, 4096),
            "rmw" | "rmw6" | "mirror" => (true, 4096),
            _ => (true, helped.unwrap_or(DATA) * CHUNK),
        };
        let data = helped.unwrap_or(DATA);
        let (level, members) = match kind {
            "rmw6" => (Level::L6, data + 2),
            "mirror" => (Level::L1, 2),
            _ => (Level::L5, data + 1),
        };
        Load {
            write,
            bytes,
            depth,
            helped,
            level,
            members,
        }
    }
}

/// A guest with one ring, which asks at random places.
pub(crate) struct Guest {
    pub(crate) memory: Arc<Memory>,
    pub(crate) driver: Driver,
    load: Load,
    /// Header, data and status byte of each.
    requests: Vec<(u64, u64, u64)>,
    place: u64,
    blocks: u64,
}

impl Guest {
    pub(crate) fn new(load: Load, seed: u64, blocks: u64) -> Guest {
        let memory = Arc::new(Memory::new(64 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, RING));
        let request = |_| {
            let header = memory.allocate(16, 16);
            let data = memory.allocate(load.bytes, 4096);
            (header, data, memory.allocate(1, 1))
        };
        let requests = (0..load.depth).map(request).collect();
        Guest {
            memory,
            driver,
            load,
            requests,
            place: seed,
            blocks: blocks - units::bytes_u64(load.bytes / 512),
        }
    }

    /// Asks for one more, in the memory of request `index`.
    pub(crate) fn ask(&mut self, index: usize) -> Token {
        let (header, data, status) = self.requests[index];
        self.place = self
            .place
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let unit = units::bytes_u64(self.load.bytes / 512);
        let sector = (self.place >> 20) % (self.blocks / unit) * unit;
        self.memory.store_u32(header, u32::from(self.load.write));
        self.memory.store_u64(header + 8, sector);
        let length = u32::try_from(self.load.bytes).expect("small");
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let parts = [
            part(header, 16, false),
            part(data, length, !self.load.write),
            part(status, 1, true),
        ];
        self.driver.submit(&parts).expect("the ring has room")
    }
}

/// An array with chunks of 64 KiB, 64 MiB of data on each member, all of whose regions are dirty;
/// its reactors own its stripes in turn, or the first owns all.
pub(crate) fn array(load: Load, reactors: usize) -> (Arc<ArrayMap>, Arc<Shared>) {
    let members = load.members;
    let owners = if load.helped.is_some() { 1 } else { reactors };
    let geometry = Geometry::new(GeometryParameters {
        level: load.level,
        members,
        parity: None,
        group_size: None,
        chunk_bytes: units::bytes_u64(CHUNK),
        block: BLOCK,
        member_data_blocks: (64 << 20) / 512,
    })
    .expect("a good shape");
    let layout = MemberLayout::for_member(128 << 20, BLOCK, members).expect("large enough");
    let member = |drive| MapMember {
        drive: Some(DriveIndex::from_at(drive)),
        incarnation: 0,
        data_offset: layout.data.offset,
        trial_offset: layout.bad_ranges.offset,
        state: MapState::InSync,
    };
    let owner = |bucket: usize| ReactorIndex::from_at(bucket % owners);
    let owners = Owners::new(owner);
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
        members: (0..members).map(member).collect(),
        hopeless: vec![false; members],
        missed: vec![None; members],
        held: vec![false; members],
        released: vec![0; members],
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
    let room = BegunSpace::new(reactors, &Room::default());
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
        (log, reactors),
        begun,
    );
    shared.open_regions();
    (Arc::new(map), shared)
}

/// The chunks of data of each request of `guest`, and what keeps them mapped.
#[allow(dead_code, reason = "one of the programs asks for it")]
pub(crate) fn stripes(guest: &Guest) -> (Arc<Mapping>, Vec<Vec<Segment>>) {
    let (mapping, table) = memory_of(guest);
    let chunk = |at: u64| table.guest(at, units::bytes_u64(CHUNK)).expect("inside");
    let chunks = |(_, data, _): &(u64, u64, u64)| {
        let places = (0..guest.load.bytes / CHUNK).map(|at| data + units::bytes_u64(at * CHUNK));
        places.map(chunk).collect()
    };
    (mapping, guest.requests.iter().map(chunks).collect())
}

fn memory_of(guest: &Guest) -> (Arc<Mapping>, Arc<RegionTable>) {
    let mapping = Mapping::new(guest.memory.file().as_fd(), 0, 64 << 20).expect("mapped");
    let region = Region {
        guest_base: Memory::START,
        front_end_base: Memory::START,
        length: 64 << 20,
        mapping: Arc::clone(&mapping),
        offset: 0,
    };
    let table = RegionTable::new(vec![region]).expect("one region");
    (mapping, table)
}

/// The device's side of the ring of `guest`, on an array of so many blocks.
pub(crate) fn queue(guest: &Guest, blocks: u64) -> Queue {
    let (mapping, table) = memory_of(guest);
    let addresses = guest.driver.addresses();
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
        block: BLOCK,
        logical_block: BLOCK,
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
        shown: Arc::new(Shown::new(profile, blocks)),
        features: feature::VERSION_1 | feature::FLUSH | feature::EVENT_IDX,
        notice: Arc::new(Notice::new(wake)),
    });
    queue.disable_kicks();
    queue
}
