//! Tests: one shard alone. What it asks of drives and of other shards is looked at, and answered
//! as the test wants and when it wants.

mod bare;
mod borrowing;
mod committing;
mod copying;
mod counting;
mod failing;
mod groups;
mod handover;
mod holding;
mod home;
mod keeping;
mod lending;
mod logging;
mod maps;
mod merging;
mod paces;
mod pinging;
mod refusing;
mod resting;
mod returning;
mod scrubbing;
mod sharing;
mod slow;
mod starving;
mod suspects;
mod telling;
mod zeroing;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use block::{Completion, Cookie, Full, Histogram, Operation, Part, Request, Stability, Status};
use memory::{Backing, Buffer, Pages, Pool, SegmentList, SegmentSlots};
use units::{
    ArrayIndex, BlockSize, DriveIndex, Instant, MemberIndex, ReactorIndex, StripeIndex, bytes_u64,
    bytes_usize,
};

use super::{Patience, Room, Shard, Shared};
use crate::command::Command;
use crate::coordinator::{Coordinator, CoordinatorSettings, MapIdentity, MemberPlace, initial_map};
use crate::format::{ArrayConfig, Layout};
use crate::geometry::{Geometry, GeometryParameters, Level};
use crate::io::{Event, Help, Io, MemberRequest, Message, Times};
use crate::log::LogSpace;
use crate::map::{ArrayMap, MapState};
use crate::owners::Owners;
use crate::regions::{RegionMap, RegionSpace};
use crate::scrub::WallClock;

pub(in crate::shard) const ME: ReactorIndex = ReactorIndex(0);
pub(in crate::shard) const OTHER: ReactorIndex = ReactorIndex(1);
/// A RAID 5 of three with chunks of eight blocks: blocks of a stripe.
pub(in crate::shard) const STRIPE_BLOCKS: u64 = 16;
const CHUNK_BYTES: u64 = 4096;
const MEMBERS: usize = 3;
const ROWS: u64 = 32;
const REGION_STRIPES: u32 = 4;
const CLEAR_AFTER: Duration = Duration::from_millis(20);
const AMPLE: usize = 1000;

/// What was counted of a drive: of reads and of writes.
#[derive(Debug, Default)]
pub(in crate::shard) struct Drive {
    pub(in crate::shard) counts: [u64; 2],
    pub(in crate::shard) took: [Histogram; 2],
}

/// Everything outside of the shard.
#[derive(Debug)]
pub(in crate::shard) struct Outside {
    pub(in crate::shard) now: Instant,
    /// How many requests to drives find room.
    pub(in crate::shard) room: usize,
    /// What drives were asked and have not answered, the oldest first.
    pub(in crate::shard) asked: Vec<MemberRequest>,
    /// What other shards were asked and answered.
    pub(in crate::shard) messages: Vec<Message>,
    pub(in crate::shard) replies: Vec<Message>,
    pub(in crate::shard) completions: Vec<Completion>,
    pub(in crate::shard) events: Vec<Event>,
    /// By drive, if they are counted.
    pub(in crate::shard) times: Vec<Drive>,
    /// Who has time for it.
    pub(in crate::shard) help: Help,
    /// Messages that the other shard has no room for now.
    pub(in crate::shard) refuses: fn(&Message) -> bool,
    /// Drives without a cache that they could lose.
    pub(in crate::shard) keeping: Vec<DriveIndex>,
    requests: usize,
    /// Messages that the shard counts: all but answers that it gives at once.
    told: u64,
}

impl Io for Outside {
    fn now(&self) -> Instant {
        self.now
    }
    fn drive_room(&self) -> usize {
        self.room
    }
    fn drive(&mut self, request: MemberRequest) {
        self.room = self.room.checked_sub(1).expect("it looks for room before");
        let memory = request.segments.as_slice().iter();
        let bytes: usize = memory.map(|part| part.len()).sum();
        let carries = matches!(request.operation, Operation::Read | Operation::Write);
        let expected = if carries { request.length } else { 0 };
        assert_eq!(bytes_u64(bytes), expected, "{request:?}");
        self.requests += 1;
        self.asked.push(request);
    }
    fn keeps_all(&self, drive: DriveIndex) -> bool {
        self.keeping.contains(&drive)
    }
    fn times(&self, drive: DriveIndex) -> Option<Times<'_>> {
        let times = self.times.get(drive.at())?;
        Some(Times {
            counts: times.counts,
            took: times.took.each_ref(),
        })
    }
    fn ask(&mut self, to: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        assert_eq!(to, OTHER, "there are two");
        if (self.refuses)(&message) {
            return Err(Full(message));
        }
        self.messages.push(message);
        self.told += 1;
        Ok(())
    }
    fn help(&mut self) -> Help {
        self.help
    }
    fn reply(&mut self, _: ReactorIndex, message: Message) {
        let at_once = matches!(
            message,
            Message::Installed { .. }
                | Message::Ack
                | Message::Kept
                | Message::Heard
                | Message::HoldState { .. }
        );
        self.told += u64::from(!at_once);
        self.replies.push(message);
    }
    fn complete(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Outside {
    fn new() -> Outside {
        Outside {
            now: Instant(1_000_000_000),
            room: AMPLE,
            asked: Vec::new(),
            messages: Vec::new(),
            replies: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            times: Vec::new(),
            help: Help::NOBODY,
            refuses: |_| false,
            keeping: Vec::new(),
            requests: 0,
            told: 0,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(in crate::shard) struct Bench {
    pub(in crate::shard) shard: Shard,
    pub(in crate::shard) outside: Outside,
    /// What the next engine is told, if it is.
    file: Option<File>,
    pool: Pool,
    memory: Option<Buffer>,
    lists: SegmentSlots,
    cookie: u64,
    /// What the guest promises of its memory.
    pub(in crate::shard) stability: Stability,
    /// Of its blocks, which part it asks for.
    pub(in crate::shard) part: Part,
    /// Lengths of the pieces that its memory is in, over and over; empty: one piece.
    pub(in crate::shard) pieces: Vec<usize>,
    /// The number of the volume that it asks for; `None`: it is the control path.
    pub(in crate::shard) volume: Option<u16>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.pool.release(self.memory.take().expect("it is there"));
    }
}

/// What a bench's array is like.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Shape {
    pub(in crate::shard) level: Level,
    pub(in crate::shard) members: usize,
    pub(in crate::shard) group_size: Option<usize>,
    pub(in crate::shard) chunk_bytes: u64,
    pub(in crate::shard) region_stripes: u32,
    /// Of windows of passes.
    pub(in crate::shard) window_stripes: u64,
    /// Whether the next engine is told of what is begun.
    pub(in crate::shard) tells: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            level: Level::L5,
            members: MEMBERS,
            group_size: None,
            chunk_bytes: CHUNK_BYTES,
            region_stripes: REGION_STRIPES,
            window_stripes: 1,
            tells: false,
        }
    }
}

impl Shape {
    pub(in crate::shard) fn geometry(self) -> Geometry {
        Geometry::new(GeometryParameters {
            level: self.level,
            members: self.members,
            parity: None,
            group_size: self.group_size,
            chunk_bytes: self.chunk_bytes,
            block: BlockSize::B512,
            member_data_blocks: ROWS * self.chunk_bytes / 512,
        })
        .expect("a good shape")
    }
}

impl Bench {
    /// A shard that owns all stripes, of an array that is in sync and whose regions are dirty. Its
    /// home is another one.
    pub(in crate::shard) fn new() -> Bench {
        Bench::shaped(Shape::default())
    }

    /// The same of an array of another shape.
    pub(in crate::shard) fn shaped(shape: Shape) -> Bench {
        let all_dirty = |_: &mut ArrayConfig, regions: &mut RegionMap| {
            *regions = regions.clone().all_dirty();
        };
        let bench = Bench::of(shape, OTHER, all_dirty);
        bench.shard.shared.open_regions();
        bench
    }

    /// The home of an array, with nobody else; started. Its regions are clean.
    pub(in crate::shard) fn home(change: impl FnOnce(&mut ArrayConfig, &mut RegionMap)) -> Bench {
        Bench::home_of(Shape::default(), change)
    }

    /// The same of an array of another shape.
    pub(in crate::shard) fn home_of(
        shape: Shape,
        change: impl FnOnce(&mut ArrayConfig, &mut RegionMap),
    ) -> Bench {
        let mut bench = Bench::of(shape, ME, change);
        bench.command(Command::Start);
        bench.outside.events.clear();
        bench
    }

    fn of(
        shape: Shape,
        home: ReactorIndex,
        change: impl FnOnce(&mut ArrayConfig, &mut RegionMap),
    ) -> Bench {
        let (geometry, members) = (shape.geometry(), shape.members);
        let layout = Layout::for_member(64 << 20, BlockSize::B512, members).expect("large enough");
        let mut config = crate::format::tests::config(u16::try_from(members).expect("few"));
        config.resynced_until = StripeIndex(geometry.stripes());
        let area = (layout.region_map.offset, layout.region_map.length);
        let space = RegionSpace::new(&geometry, shape.region_stripes, area).expect("fits");
        let mut regions = RegionMap::new(space, config.array);
        change(&mut config, &mut regions);
        let place = |at| {
            Some(MemberPlace {
                drive: DriveIndex::from_at(at),
                layout,
                appearance: bytes_u64(at) + 1,
                records: Default::default(),
            })
        };
        let places: Vec<Option<MemberPlace>> = (0..members).map(place).collect();
        let identity = MapIdentity {
            array: ArrayIndex(0),
            geometry,
            owners: Owners::new(|_| ME),
            home,
        };
        let suspects = regions.suspects(true, config.resynced_until);
        let known = (&regions, suspects);
        let map = Arc::new(initial_map(identity, &config, &places, known));
        let log = LogSpace::new(&geometry, (layout.log.offset, layout.log.length));
        let (file, begun) = shape.tells.then(telling::file).unzip();
        let shared = Shared::new(&map, &regions, (log, 1), begun);
        let mut shard = Shard::new(ME, map, shared, room()).expect("memory");
        if home == ME {
            let settings = CoordinatorSettings {
                config,
                places,
                reactors: vec![ME],
                seed: 1,
                window_bytes: shape.window_stripes * geometry.stripe_bytes(),
                regions,
                clear_after: CLEAR_AFTER,
                renew_after: Duration::from_secs(3600),
                clock: WallClock {
                    at: Instant(0),
                    seconds: 0,
                },
                created: 0,
            };
            shard.set_coordinator(Coordinator::new(settings).expect("memory"));
        }
        let mut pool = Pool::new(1, 256 << 10, Backing::Anonymous(Pages::Plain)).expect("memory");
        Bench {
            shard,
            outside: Outside::new(),
            file,
            memory: pool.acquire(),
            pool,
            lists: SegmentSlots::new(128, 64),
            cookie: 0,
            stability: Stability::MayChange,
            part: Part::WHOLE,
            volume: None,
            pieces: Vec::new(),
        }
    }

    // ---- the guest -----------------------------------------------------------------------

    /// Asks for something; its cookie.
    pub(in crate::shard) fn ask(&mut self, operation: Operation, start: u64, blocks: u32) -> u64 {
        let carries = matches!(operation, Operation::Read | Operation::Write);
        let memory = self
            .pool
            .segment(self.memory.as_ref().expect("there is one"));
        let whole = usize::try_from(blocks).expect("few") * 512;
        let bytes = if self.part.is_whole() {
            whole
        } else {
            usize::from(self.part.bytes)
        };
        let slot = bytes_usize(self.cookie);
        let whole = [bytes];
        let pieces = if self.pieces.is_empty() {
            &whole[..]
        } else {
            &self.pieces
        };
        let list = self.lists.lend(slot, |list| {
            let mut at = 0;
            for piece in pieces.iter().cycle() {
                let length = (*piece).min(bytes - at);
                list.push(memory.part(at, length));
                at += length;
                if at == bytes {
                    break;
                }
            }
        });
        self.cookie += 1;
        let request = Request {
            operation,
            start,
            blocks,
            part: self.part,
            segments: if carries { list } else { SegmentList::EMPTY },
            stability: self.stability,
            cookie: Cookie(self.cookie),
        };
        let taken = match self.volume {
            Some(number) => self.shard.submit_in(number, request, &mut self.outside),
            None => self.shard.submit(request, &mut self.outside),
        };
        assert!(taken.is_ok(), "there is room");
        self.cookie
    }

    /// All that it writes from now on is this, and what it has asked for changes, too.
    pub(in crate::shard) fn fill(&mut self, byte: u8) {
        let memory = self.memory.as_ref().expect("there is one");
        self.pool.segment(memory).fill(byte);
    }

    /// What it writes from now on begins with this.
    pub(in crate::shard) fn store(&mut self, bytes: &[u8]) {
        let memory = self.memory.as_ref().expect("there is one");
        let memory = self.pool.segment(memory);
        memory.part(0, bytes.len()).copy_from_slice(bytes);
    }

    /// What a drive is asked to write.
    pub(in crate::shard) fn content(request: &MemberRequest) -> Vec<u8> {
        let mut content = Vec::new();
        for segment in request.segments.as_slice() {
            let start = content.len();
            content.resize(start + segment.len(), 0);
            segment.copy_to_slice(&mut content[start..]);
        }
        content
    }

    /// Writes all of a stripe.
    pub(in crate::shard) fn write_stripe(&mut self, stripe: u64) -> u64 {
        let blocks = u32::try_from(STRIPE_BLOCKS).expect("few");
        let cookie = self.ask(Operation::Write, stripe * STRIPE_BLOCKS, blocks);
        self.poll();
        cookie
    }

    pub(in crate::shard) fn verdict(&self, cookie: u64) -> Option<Status> {
        let mut done = self.outside.completions.iter();
        done.find(|done| done.cookie.0 == cookie)
            .map(|done| done.status)
    }

    // ---- the reactor ---------------------------------------------------------------------

    /// One turn. Whoever has asked drives for something has moved.
    pub(in crate::shard) fn turn(&mut self) -> usize {
        self.turn_by(|shard, outside| shard.poll(outside))
    }

    fn turn_by(&mut self, turn: impl FnOnce(&mut Shard, &mut Outside) -> usize) -> usize {
        let before = self.outside.requests;
        let moved = turn(&mut self.shard, &mut self.outside);
        let asked = self.outside.requests - before;
        assert!(
            moved > 0 || asked == 0,
            "it asks for {asked}, and says that nothing moves"
        );
        let counters = self.shard.counters();
        let counted = (counters.drive_requests, counters.messages);
        let made = (units::bytes_u64(self.outside.requests), self.outside.told);
        assert_eq!(counted, made, "requests of drives, and messages");
        moved
    }

    /// Turns until nothing moves. Then the reactor may sleep: nothing is left for another turn,
    /// and nothing is due about which a turn does nothing.
    pub(in crate::shard) fn poll(&mut self) {
        let turns = (0..1000).take_while(|_| self.turn() > 0).count();
        assert!(turns < 1000, "it goes round and round");
        let now = self.outside.now;
        let due = self.shard.deadline().filter(|&at| at <= now);
        // One that rests is asked before its reactor sleeps.
        let moved = self.turn_by(|shard, outside| shard.poll_all(outside));
        assert!(due.is_some() || moved == 0, "its reactor sleeps over it");
        let is_the_same = due.is_some() && self.shard.deadline() == due;
        assert!(moved > 0 || !is_the_same, "its reactor turns and turns");
    }

    pub(in crate::shard) fn pass(&mut self, time: Duration) {
        self.outside.now = self.outside.now + time;
        self.poll();
    }

    /// Hands a message of the other shard over.
    pub(in crate::shard) fn tell(&mut self, message: Message) {
        self.shard.message(OTHER, message, &mut self.outside);
        self.poll();
    }

    /// The shard acts by another map that did not come to it as maps do.
    pub(in crate::shard) fn set_map(&mut self, map: ArrayMap) {
        (self.shard.holding, self.shard.broken) = (map.is_holding(), map.is_broken());
        self.shard.follow_doubts(&map);
        self.shard.map = Arc::new(map);
    }

    /// Another map comes; not everybody acts by it.
    pub(in crate::shard) fn install(&mut self, change: impl FnOnce(&mut ArrayMap)) -> u64 {
        let mut map = self.shard.successor();
        change(&mut map);
        let serial = map.serial;
        self.tell(Message::Install(Arc::new(map)));
        serial
    }

    /// Everybody acts by it.
    pub(in crate::shard) fn make_effective(&mut self, serial: u64) {
        self.tell(Message::Effective { serial });
    }

    /// A member is left out; everybody knows.
    pub(in crate::shard) fn exclude(&mut self, member: usize) {
        let serial = self.install(|map| {
            map.members[member].state = MapState::Lost;
            map.barrier = map.serial;
        });
        self.make_effective(serial);
    }

    // ---- drives --------------------------------------------------------------------------

    /// What drives are asked now: which, and what.
    pub(in crate::shard) fn is_asked(&self, operation: Operation) -> Vec<usize> {
        let asked = self.outside.asked.iter();
        let asked = asked.filter(|request| request.operation == operation);
        asked.map(|request| request.drive.at()).collect()
    }

    /// A drive answers the oldest request of this kind.
    pub(in crate::shard) fn answer(&mut self, drive: usize, operation: Operation, status: Status) {
        let is_it =
            |request: &MemberRequest| request.drive.at() == drive && request.operation == operation;
        let at = self.outside.asked.iter().position(is_it);
        let request = self.outside.asked.remove(at.expect("it is asked"));
        self.outside.room += 1;
        self.shard
            .drive_done(request.cookie, status, &mut self.outside);
    }

    /// A drive cannot read what it is asked: neither into the guest's memory nor, when the owner
    /// asks once more, into ours.
    pub(in crate::shard) fn cannot_read(&mut self, drive: usize) {
        for _ in 0..2 {
            self.answer(drive, Operation::Read, Status::Media);
            self.poll();
        }
    }

    /// All drives but those that hang answer all that they are asked, and what comes of it.
    pub(in crate::shard) fn answer_all_but(&mut self, hung: &[usize]) {
        self.poll();
        let mut count = 0;
        let answers = |request: &MemberRequest| !hung.contains(&request.drive.at());
        while let Some(at) = self.outside.asked.iter().position(answers) {
            count += 1;
            assert!(count < 10_000, "it asks again and again");
            let request = self.outside.asked.remove(at);
            self.outside.room += 1;
            self.shard
                .drive_done(request.cookie, Status::Ok, &mut self.outside);
            self.poll();
        }
    }

    pub(in crate::shard) fn answer_all(&mut self) {
        self.answer_all_but(&[]);
    }

    // ---- the home ------------------------------------------------------------------------

    /// Gives a command and answers everything.
    pub(in crate::shard) fn command(&mut self, command: Command) {
        self.shard.command(1, command);
        self.answer_all();
    }

    pub(in crate::shard) fn is_done(&self) -> bool {
        let done = |event: &Event| matches!(event, Event::CommandDone { .. });
        self.outside.events.iter().any(done)
    }
}

/// Looks at each turn, and soon impatient.
pub(in crate::shard) const SLOW: u32 = 3;

fn room() -> Room {
    Room {
        requests: 16,
        works: 16,
        foreign_works: 16,
        asked_works: 7,
        tickets: 12,
        drive_requests: 100,
        home_requests: 0,
        ticket_requests: 0,
        small_buffers: 128,
        large_buffers: 128,
        patience: Patience {
            slow: SLOW,
            ..Patience::default()
        },
        lends: lending::LENDS,
        ..Room::default()
    }
}

/// One look further.
pub(in crate::shard) const LOOK: Duration = Duration::from_millis(10);

/// The role's member in a stripe.
pub(in crate::shard) fn member_of(bench: &Bench, stripe: u64, role: u8) -> usize {
    let stripe = StripeIndex(stripe);
    let (member, _): (MemberIndex, _) = bench.shard.map.member(stripe, units::Role(role));
    member.at()
}
