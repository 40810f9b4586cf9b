//! The layer of the array: one shard on this thread, between the load and its drives, without the
//! engine, rings or sockets. What it adds to the drives is what the array costs; what an export
//! adds to it is what reaching it costs.
//!
//! Nothing of it is to be kept: the drives get no superblocks, and their region maps are taken for
//! dirty, so that no write waits for them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use array::format::{HedgedReads, Layout, WriteHole};
use array::{
    ArrayMap, Event, Geometry, GeometryParameters, Io, LogSpace, MapMember, MapState,
    MemberRequest, Message, Owners, RegionMap, RegionSpace, Room, Shard, Shared, Suspects, Times,
};
use block::{
    Completion, Cookie, Full, Operation, Part, Request as BlockRequest, Stability, Status,
};
use drive::{Drive, DriveRequest, Port, PortOptions};
use guest::Memory;
use memory::SegmentSlots;
use units::{
    ArrayIndex, BlockSize, Clock, DriveIndex, Instant, MonotonicClock, ReactorIndex, StripeIndex,
    Update, bytes_u64, bytes_usize,
};
use uuid::Uuid;

use super::device::{Kind, Request};
use super::load::{Lane, Run};
use crate::expect::Asked;

/// The only reactor.
const HERE: ReactorIndex = ReactorIndex(0);
/// The unit of its requests.
pub(super) const BLOCK: BlockSize = BlockSize::B4096;
/// Bytes of data that all slots share at the most.
const DATA_BYTES_MAX: usize = 64 << 20;

/// The numbers of an array on drives of which the smallest has so many bytes.
///
/// # Errors
/// What is wrong, as a sentence.
pub(super) fn shape(asked: &Asked, drive_bytes: u64) -> Result<(Geometry, Layout), String> {
    let layout = Layout::for_member(drive_bytes, BLOCK, asked.drives);
    let layout = layout.map_err(|small| small.to_string())?;
    let geometry = Geometry::new(GeometryParameters {
        level: asked.level,
        members: asked.drives,
        parity: asked.parity,
        group_size: asked.group_size,
        chunk_bytes: asked.chunk_bytes,
        block: BLOCK,
        member_data_blocks: layout.data.length / BLOCK.bytes(),
    });
    Ok((geometry.map_err(|error| error.to_string())?, layout))
}

/// An array on this thread.
pub(super) struct ArrayLane {
    // Dropped first: it waits until the kernel has let go of all memory.
    world: World,
    shard: Shard,
    memory: Arc<Memory>,
    lists: SegmentSlots,
    /// By slot: where its data is.
    data: Vec<u64>,
    /// Requests that the shard had no room for.
    waiting: VecDeque<BlockRequest>,
    drives_done: Vec<Completion>,
}

/// The drives, as the shard sees them.
struct World {
    port: Port,
    done: Vec<Completion>,
    /// What the array would have told the control path.
    event: Option<String>,
}

impl Io for World {
    fn now(&self) -> Instant {
        MonotonicClock.now()
    }

    fn drive_room(&self) -> usize {
        self.port.room()
    }

    fn drive(&mut self, request: MemberRequest) {
        let request = DriveRequest {
            drive: request.drive,
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            segments: request.segments,
            cookie: request.cookie,
        };
        self.port
            .submit(request)
            .expect("the shard looked at the room");
    }

    fn times(&self, _: DriveIndex) -> Option<Times<'_>> {
        // Nothing is decided here.
        None
    }

    fn ask(&mut self, _: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        // There is no other reactor.
        Err(Full(message))
    }

    fn reply(&mut self, _: ReactorIndex, _: Message) {}

    fn complete(&mut self, completion: Completion) {
        self.done.push(completion);
    }

    fn event(&mut self, event: Event) {
        self.event.get_or_insert_with(|| format!("{event:?}"));
    }
}

impl ArrayLane {
    pub(super) fn new(
        drives: &[(String, Arc<Drive>)],
        (geometry, layout): &(Geometry, Layout),
        run: &Run,
    ) -> io::Result<ArrayLane> {
        let slots = run.jobs * run.depth;
        let bytes = bytes_usize(run.work.bytes);
        let buffers = (DATA_BYTES_MAX / bytes).clamp(1, slots);
        let memory = Arc::new(Memory::new(buffers * (bytes + 4096) + (1 << 20))?);
        let places: Vec<u64> = (0..buffers).map(|_| memory.allocate(bytes, 4096)).collect();
        let mut port = Port::new(PortOptions::default()).map_err(io::Error::other)?;
        for ((_, drive), number) in drives.iter().zip(0..) {
            port.attach(DriveIndex(number), Arc::clone(drive))
                .map_err(io::Error::other)?;
        }
        Ok(ArrayLane {
            world: World {
                port,
                done: Vec::with_capacity(slots),
                event: None,
            },
            shard: shard(*geometry, layout)?,
            memory,
            lists: SegmentSlots::new(slots, 1),
            data: (0..slots).map(|slot| places[slot % buffers]).collect(),
            waiting: VecDeque::with_capacity(slots),
            drives_done: Vec::with_capacity(slots),
        })
    }

    /// Moves everything until nothing moves by itself any more.
    fn turn(&mut self) {
        for _ in 0..self.waiting.len() {
            let request = self.waiting.pop_front().expect("counted");
            if let Err(Full(request)) = self.shard.submit(request, &mut self.world) {
                self.waiting.push_front(request);
                break;
            }
        }
        self.shard.poll(&mut self.world);
        self.world.port.poll(&mut self.drives_done);
        for Completion { cookie, status } in self.drives_done.drain(..) {
            self.shard.drive_done(cookie, status, &mut self.world);
        }
        self.shard.poll(&mut self.world);
    }
}

/// An optimal array whose regions are dirty, as where writes go again and again.
fn shard(geometry: Geometry, layout: &Layout) -> io::Result<Shard> {
    let area = layout.region_map;
    let stripes = RegionSpace::stripes_for(&geometry, area.length);
    let space = RegionSpace::new(&geometry, stripes, (area.offset, area.length));
    let space = space.ok_or_else(|| io::Error::other("the region map does not fit"))?;
    let members = geometry.members();
    let log = LogSpace::new(&geometry, (layout.log.offset, layout.log.length));
    let member = |number: usize| MapMember {
        drive: u16::try_from(number).ok().map(DriveIndex),
        incarnation: 0,
        data_offset: layout.data.offset,
        state: MapState::InSync,
    };
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
        owners: Owners::new(|_| HERE),
        home: HERE,
        read_only: false,
        suspects: Arc::new(Suspects::none(&space)),
        log_life: 1,
        log_from: 1,
        write_hole: WriteHole::Auto,
        hedged_reads: HedgedReads::Auto,
    };
    let regions = RegionMap::new(space, Uuid::nil()).all_dirty();
    let shared = Shared::new(&map, &regions, (log, 1), None);
    shared.open_regions();
    Shard::new(HERE, Arc::new(map), shared, Room::default()).map_err(io::Error::other)
}

impl Lane for ArrayLane {
    fn submit(&mut self, slot: usize, request: Request) {
        let (operation, bytes) = match request.kind {
            Kind::Read => (Operation::Read, request.bytes),
            Kind::Write => (Operation::Write, request.bytes),
            Kind::Flush => (Operation::Flush, 0),
        };
        let segment = self.memory.find(self.data[slot], bytes_u64(request.bytes));
        let segment = segment.expect("a slot's data");
        let segments = self.lists.lend(slot, |list| {
            if bytes > 0 {
                list.push(segment);
            }
        });
        let blocks = bytes_u64(bytes) / BLOCK.bytes();
        self.waiting.push_back(BlockRequest {
            operation,
            start: request.offset / BLOCK.bytes(),
            blocks: u32::try_from(blocks).expect("a request is short"),
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie: Cookie(bytes_u64(slot)),
        });
    }

    fn kick(&mut self) -> io::Result<()> {
        self.turn();
        match self.world.event.take() {
            None => Ok(()),
            // Without a control path there is nobody who would exclude a member.
            Some(event) => Err(io::Error::other(format!("the array says {event}"))),
        }
    }

    fn reap(&mut self) -> Option<(usize, u8)> {
        let Completion { cookie, status } = self.world.done.pop()?;
        let slot = bytes_usize(cookie.0);
        self.lists.take_back(slot);
        Some((slot, u8::from(status != Status::Ok)))
    }

    fn wait(&mut self, longest: Duration) -> io::Result<()> {
        self.world.port.wait(Some(longest));
        Ok(())
    }

    fn put(&self, slot: usize, bytes: &[u8]) {
        self.memory.write(self.data[slot], bytes);
    }

    fn get(&self, slot: usize, target: &mut [u8]) {
        let segment = self.memory.find(self.data[slot], bytes_u64(target.len()));
        segment.expect("a slot's data").copy_to_slice(target);
    }
}
