//! The layers of the array and of a volume on it: one shard on this thread, between the load and
//! its drives, without the engine, rings or sockets. What it adds to the drives is what the array
//! costs; what the volume's map and its (absent) limits add to that is what the volume costs; and
//! what an export adds is what reaching it costs.
//!
//! Nothing of it is to be kept: the drives get no superblocks, and their region maps are taken for
//! dirty, so that no write waits for them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use array::format::{
    ExtentRun, ExtentSpace, HedgedReads, Layout, VolumeRecord, VolumeState, WriteHole,
};
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
use volume::{Gate, Haste, Limiter, VolumeMap};

use super::device::{Kind, Request};
use super::load::{Lane, Run};
use crate::expect::Asked;
use crate::output;

/// The only reactor.
const HERE: ReactorIndex = ReactorIndex(0);
/// The unit of its requests.
pub(super) const BLOCK: BlockSize = BlockSize::B4096;
/// Bytes of data that all slots share at the most.
const DATA_BYTES_MAX: usize = 64 << 20;

/// The fixed numbers of what is measured.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    pub(super) layout: Layout,
    /// The volume on it; none where the array is loaded by itself.
    pub(super) volume: Option<VolumeRecord>,
}

/// The numbers of an array on drives of which the smallest has so many bytes.
///
/// # Errors
/// What is wrong, as a sentence.
pub(super) fn shape(asked: &Asked, drive_bytes: u64) -> Result<Shape, String> {
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
    Ok(Shape {
        geometry: geometry.map_err(|error| error.to_string())?,
        layout,
        volume: None,
    })
}

impl Shape {
    /// The same array with a volume of so many bytes, laid out as the first volume of a new array
    /// is: all its extents one after the other, from the first on.
    ///
    /// # Errors
    /// Why there is no such volume, as a sentence.
    pub(super) fn with_volume(&self, bytes: u64) -> Result<Shape, String> {
        let space = ExtentSpace::new(&self.geometry);
        let blocks = bytes / BLOCK.bytes();
        if blocks == 0 || !bytes.is_multiple_of(BLOCK.bytes()) {
            return Err(format!("a volume is a multiple of 4096 bytes, not {bytes}"));
        }
        let extents = ExtentRun {
            first: 0,
            count: space.needed(blocks),
        };
        if !space.has(extents) {
            return Err(format!(
                "a volume of {} does not fit: these drives make an array with {} for volumes",
                output::size(bytes),
                output::size(space.bytes(space.count()))
            ));
        }
        let volume = VolumeRecord {
            uuid: Uuid::nil(),
            name: "bench".to_owned(),
            size_blocks: blocks,
            extents: vec![extents],
            state: VolumeState::Ready,
            stable_buffers: false,
        };
        Ok(Shape {
            volume: Some(volume),
            ..self.clone()
        })
    }

    /// Bytes that can be read and written.
    pub(super) fn size_bytes(&self) -> u64 {
        let volume = self.volume.as_ref().map(|volume| volume.size_blocks);
        volume.unwrap_or(self.geometry.blocks()) * BLOCK.bytes()
    }
}

/// What a ring of the volume has: its map, and its place before the volume's limits.
struct Volume {
    map: VolumeMap,
    limiter: Arc<Limiter>,
    gate: Gate,
}

impl Volume {
    fn new(record: &VolumeRecord, geometry: &Geometry) -> Volume {
        let map = VolumeMap::new(record, &ExtentSpace::new(geometry));
        let limiter = Arc::new(Limiter::default());
        Volume {
            map: map.expect("it was made to fit"),
            gate: Gate::new(Arc::clone(&limiter)),
            limiter,
        }
    }

    /// Whether the limits let a request go now, which moves so many bytes.
    fn admits(&mut self, bytes: u64, now: Instant) -> bool {
        !self.gate.is_limited(now) || self.gate.admits(bytes, now, Haste::None)
    }

    /// The request in blocks of the array.
    fn moved(&self, request: &BlockRequest) -> Result<BlockRequest, Status> {
        let stability = self.map.stability();
        if request.operation == Operation::Flush {
            return Ok(BlockRequest {
                stability,
                ..*request
            });
        }
        let (start, blocks) = self.map.locate(request.start, request.blocks)?;
        // The load keeps inside one run of extents; else it would go on piece by piece.
        assert_eq!(blocks, request.blocks, "the volume is one run");
        Ok(BlockRequest {
            start,
            stability,
            ..*request
        })
    }
}

/// An array on this thread.
pub(super) struct ArrayLane {
    // Dropped first: it waits until the kernel has let go of all memory.
    world: World,
    shard: Shard,
    /// Between the load and the shard; none where the array is loaded by itself.
    volume: Option<Volume>,
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

    fn keeps_all(&self, drive: DriveIndex) -> bool {
        self.port.keeps_all(drive)
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
        shape: &Shape,
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
            shard: shard(shape.geometry, &shape.layout)?,
            volume: shape
                .volume
                .as_ref()
                .map(|record| Volume::new(record, &shape.geometry)),
            memory,
            lists: SegmentSlots::new(slots, 1),
            data: (0..slots).map(|slot| places[slot % buffers]).collect(),
            waiting: VecDeque::with_capacity(slots),
            drives_done: Vec::with_capacity(slots),
        })
    }

    /// Sends a request through the volume, if there is one, to the shard.
    fn send(&mut self, request: BlockRequest, now: Instant) -> Result<(), Full<BlockRequest>> {
        let Some(volume) = &mut self.volume else {
            return self.shard.submit(request, &mut self.world);
        };
        let bytes = u64::from(request.blocks) * BLOCK.bytes();
        if request.operation != Operation::Flush && !volume.admits(bytes, now) {
            return Err(Full(request));
        }
        let moved = match volume.moved(&request) {
            Ok(moved) => moved,
            Err(status) => {
                let cookie = request.cookie;
                self.world.done.push(Completion { cookie, status });
                return Ok(());
            }
        };
        let number = volume.limiter.number();
        let sent = self.shard.submit_in(number, moved, &mut self.world);
        sent.map_err(|_| Full(request))?;
        volume.gate.passed();
        Ok(())
    }

    /// Moves everything until nothing moves by itself any more.
    fn turn(&mut self) {
        // Once a turn, as reactors do.
        let now = MonotonicClock.now();
        for _ in 0..self.waiting.len() {
            let request = self.waiting.pop_front().expect("counted");
            if let Err(Full(request)) = self.send(request, now) {
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
        trial_offset: layout.bad_ranges.offset,
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

#[cfg(test)]
mod tests {
    use array::Level;
    use drive::DriveSpec;
    use units::Size;

    use super::super::load::Limit;
    use super::super::pattern::Order;
    use super::super::workloads::work;
    use super::*;

    const DRIVE: u64 = 64 << 20;

    fn array() -> Shape {
        let asked = Asked {
            level: Level::L5,
            drives: 3,
            spares: 0,
            group_size: None,
            parity: None,
            chunk_bytes: 64 << 10,
            lost: Some(0),
        };
        shape(&asked, DRIVE).expect("an array")
    }

    fn lane(drives: &[(String, Arc<Drive>)], shape: &Shape) -> ArrayLane {
        let run = Run {
            work: work(Order::Random, 4096, 0),
            jobs: 1,
            depth: 1,
            range: 1 << 20,
            limit: Limit::Requests(1),
            rate: None,
        };
        ArrayLane::new(drives, shape, &run).expect("a lane")
    }

    /// One request of the only slot; whether it went well.
    fn ask(lane: &mut ArrayLane, kind: Kind, offset: u64) -> bool {
        let bytes = 4096;
        lane.submit(
            0,
            Request {
                kind,
                offset,
                bytes,
            },
        );
        loop {
            lane.kick().expect("the array goes on");
            if let Some((slot, status)) = lane.reap() {
                assert_eq!(slot, 0);
                return status == 0;
            }
        }
    }

    #[test]
    fn a_volume_is_where_its_extents_are_and_ends_with_them() {
        let drive = |number: usize| {
            let drive = Drive::open(&DriveSpec::Memory { size: Size(DRIVE) });
            (format!("d{number}"), drive.expect("memory"))
        };
        let drives: Vec<_> = (0..3).map(drive).collect();
        let array = array();
        let extent = ExtentSpace::new(&array.geometry).extent_blocks() * BLOCK.bytes();
        let mut volume = array.with_volume(extent / 2).expect("it fits");
        assert_eq!(volume.size_bytes(), extent / 2);
        let record = volume.volume.as_mut().expect("there is one");
        record.extents[0].first = 1;

        let mut through = lane(&drives, &volume);
        through.put(0, &[0xC3; 4096]);
        assert!(ask(&mut through, Kind::Write, 8192));
        assert!(ask(&mut through, Kind::Flush, 0));
        assert!(!ask(&mut through, Kind::Read, extent / 2), "behind its end");
        drop(through);

        let mut below = lane(&drives, &array);
        let mut found = vec![0; 4096];
        assert!(ask(&mut below, Kind::Read, extent + 8192));
        below.get(0, &mut found);
        assert!(found == [0xC3; 4096], "not what went through the volume");
    }

    #[test]
    fn a_volume_that_does_not_fit_is_refused_with_what_does() {
        let array = array();
        let whole = array.geometry.blocks() * BLOCK.bytes();
        let text = array.with_volume(2 * whole).expect_err("too large");
        assert!(
            text.contains("does not fit") && text.contains("MiB"),
            "{text}"
        );
        for odd in [0, 4097] {
            let text = array.with_volume(odd).expect_err("no multiple");
            assert!(text.contains("4096"), "{text}");
        }
    }
}
