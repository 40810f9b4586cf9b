//! One reactor's share of an array: takes requests that arrive on this reactor, and carries out
//! the tickets of the stripes that this reactor owns.
//!
//! A request (`request`) is cut into pieces. Reads of blocks that are where they belong go
//! straight to the drives. All else is work for the owner of the stripes (`work`), which cuts it
//! into tickets (`ticket`), each on some lanes of one cell. A *cell* is at most 64 KiB of each
//! chunk of one stripe: the most that one ticket covers and the unit of background passes
//! (`background`). Metadata and membership are decided on the array's home reactor (`coordinate`).

mod background;
mod begun;
mod bounce;
mod compute;
mod coordinate;
mod counters;
mod doubt;
mod flushes;
mod handover;
mod hold;
mod invariants;
mod issue;
mod kept;
mod laggards;
mod late;
mod lending;
mod log;
mod losses;
mod regions;
mod request;
mod rest;
pub(crate) mod room;
mod scrub;
mod shared;
#[cfg(test)]
mod tests;
mod throttle;
mod ticket;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;

use block::{Completion, Full, Operation, Request, Status};
use memory::{Lasting, SegmentSlots};
use parity::{Code, CodeError, DecoderCache};
use units::limits::{REACTORS_MAX, SHARD_LINES};
use units::{Instant, MemberIndex, ReactorIndex, Role};

pub(crate) use self::background::cell_lanes;
use self::background::{Background, stripe_cells};
use self::bounce::Bounce;
pub use self::bounce::Hedging;
pub use self::coordinate::HoldStatus;
pub(crate) use self::coordinate::{HandingOver, HoldKeeper, Renewal, Retry};
pub use self::counters::ShardCounters;
use self::flushes::Flushes;
use self::handover::Handover;
use self::hold::Hold;
use self::issue::{DriveIo, Order};
pub(crate) use self::laggards::LaggardKeeper;
use self::laggards::Pacing;
use self::late::Late;
pub use self::late::{Patience, Waits};
use self::lending::Lending;
pub use self::lending::Lends;
use self::log::Log;
pub(crate) use self::log::Retire;
pub(crate) use self::losses::{LossAsked, Losses};
pub(crate) use self::regions::RegionKeeper;
use self::request::RequestSlot;
use self::room::Kept;
pub use self::room::Room;
pub use self::shared::Shared;
use self::throttle::Throttle;
use self::ticket::Ticket;
use self::work::Work;
use crate::begun::Table;
use crate::buffers::Buffers;
use crate::coordinator::Coordinator;
use crate::geometry::{Geometry, StripePlaces};
use crate::io::{Io, MemberFailure, Message};
use crate::lanes::Lanes;
use crate::lines::Lines;
use crate::map::ArrayMap;
use crate::planted::{self, Fault};
use crate::slots::Slots;

/// Decoders that a shard keeps: a rotation of a group has at most 64 places, and few patterns of
/// loss are met at a time.
const DECODERS: usize = 256;

/// The line of requests of the control path; no volume is in it.
const CONTROL_LINE: u16 = 0;
/// All others are the volumes': those whose numbers are the same modulo these share one.
#[allow(clippy::cast_possible_truncation, reason = "there are few")]
const VOLUME_LINES: u16 = SHARD_LINES as u16 - 1;

/// Why a shard could not be made.
#[derive(Debug)]
pub enum ShardError {
    /// The host refuses the memory.
    Memory(std::io::Error),
    /// The geometry has no code.
    Code(CodeError),
}

impl std::fmt::Display for ShardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ShardError::Memory(error) => write!(f, "no memory for transfer buffers: {error}"),
            ShardError::Code(error) => write!(f, "no parity code for this geometry: {error:?}"),
        }
    }
}

impl std::error::Error for ShardError {}

/// Who waits for a member request.
#[derive(Clone, Copy, Debug, Default)]
enum IoOwner {
    /// Nobody: the slot is free.
    #[default]
    Nobody,
    /// A request that went straight to the drive: blocks `first..first + blocks` of it.
    Direct {
        request: u32,
        first: u32,
        blocks: u32,
    },
    /// Like that, through a buffer of ours.
    Bounced { bounce: u32 },
    /// Nobody any more, since this look; it has such a buffer.
    GivenUp { bounce: u32, look: u32 },
    /// A flush request.
    Flush { request: u32 },
    /// A ticket.
    Ticket { ticket: u32, role: Role },
    /// A ticket whose pieces are logged.
    Log { ticket: u32 },
    /// The log.
    LogFlush,
    /// The coordinator.
    Metadata,
    /// The round of the region map.
    Region,
    /// Regions that are to be cleared.
    Clear,
    /// Regions that are zeroed for their first write.
    Zeroing,
    /// Nobody any more, since this look; its memory is in this grave.
    Abandoned { grave: Option<u32>, look: u32 },
    /// Nobody but whoever waits for the member.
    Probe,
    /// Nobody: how long the drive takes is of interest.
    Trial,
    /// Nobody but whoever asks which members are gone besides one.
    RollCall { serial: u32 },
    /// Requests of which it is not known what their errors mean.
    Doubt,
}

/// See the module.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of the map, each asked of every request or ticket, or in every turn"
)]
pub struct Shard {
    me: ReactorIndex,
    map: Arc<ArrayMap>,
    /// Until then nothing can move, if nothing comes.
    rests_until: Instant,
    /// All is where it belongs, and nobody is waited for or in doubt.
    optimal: bool,
    /// Whether the map names members of which nobody knows what they hold.
    any_hopeless: bool,
    /// Whether members are waited for, and whether it is broken for that or otherwise.
    holding: bool,
    broken: bool,
    /// Serial of the newest map by which every shard acts.
    effective: u64,
    code: Arc<Code>,
    decoders: DecoderCache,
    shared: Arc<Shared>,

    requests: Slots<RequestSlot>,
    waiting_requests: Lines,
    retries: VecDeque<request::Retry>,
    works: Slots<Work>,
    /// Work slots kept free for what other reactors may send: the sum of their credits.
    foreign_work_slots: usize,
    waiting_works: Lines,
    /// What tickets may still cost in this turn of the line whose turn it is, in bytes.
    allowed: i64,
    turn_bytes: u32,
    /// By reactor: pieces under way there, and the most that may be.
    asked_works: Vec<usize>,
    asked_works_max: usize,
    tickets: Slots<Ticket>,
    lanes: Lanes,
    /// Cells of one stripe.
    stripe_cells: u64,
    /// Tickets whose lanes were granted and that were not begun yet.
    granted: Vec<u32>,
    /// Filled and emptied within a turn.
    starting: Vec<u32>,
    /// Tickets that let writes before them bring more of their stripe; what claims had come and
    /// gone when that was last looked at; and by line whether it was worth it.
    delayed: Vec<u32>,
    delayed_at: u64,
    delays: [i8; SHARD_LINES],
    /// By size of what they wait for: who needs a small buffer does not wait for large ones.
    buffer_waiters: [VecDeque<u32>; 2],
    room_waiters: VecDeque<u32>,
    /// Tickets whose region is not dirty on the drives yet, and the regions that were asked for.
    region_waiters: Vec<u32>,
    asked_regions: Vec<u32>,
    barrier_waiters: Vec<u32>,
    unsettled_flushes: Vec<u32>,

    ios: Slots<DriveIo>,
    kept: Kept,
    lists: SegmentSlots,
    buffers: Buffers,
    bounces: Slots<Bounce>,
    /// Tickets that borrow.
    borrowers: usize,
    lending: Lending,
    reports: Vec<MemberFailure>,
    late: Late,
    flushes: Flushes,
    pacing: Pacing,
    hold: Hold,
    background: Background,
    throttle: Throttle,
    log: Log,
    losses: Losses,
    handover: Handover,
    /// Requests whose next stripe nobody owns.
    unowned: Vec<u32>,
    /// What the next engine is to know of the tickets.
    begun: Option<Table>,
    coordinator: Option<Box<Coordinator>>,
    counters: ShardCounters,
}

impl Shard {
    /// The share of reactor `me` of the array that `map` describes.
    ///
    /// # Errors
    /// When memory is refused or the geometry has no code.
    pub fn new(
        me: ReactorIndex,
        map: Arc<ArrayMap>,
        shared: Arc<Shared>,
        room: Room,
    ) -> Result<Shard, ShardError> {
        let (log, writers) = shared.log;
        let geometry = &map.geometry;
        let code = Code::new(geometry.data(), geometry.parity()).map_err(ShardError::Code)?;
        let begun = shared.begun.clone();
        let flushes = Flushes::new(Arc::clone(&shared), me, room.drive_requests);
        let table = begun.as_deref().map(|begun| begun.table(me.at(), &room));
        let in_file = begun.as_deref().map(|begun| begun.buffers(me.at()));
        let buffers = Buffers::new(room.small_buffers, room.large_buffers, in_file);
        let works = room.works + room.foreign_works;
        let losses = Losses::new(room.tickets, &map.lost_blocks, &shared.regions);
        Ok(Shard {
            me,
            rests_until: Instant(0),
            optimal: map.is_optimal(),
            any_hopeless: map.hopeless.contains(&true),
            holding: map.is_holding(),
            broken: map.is_broken(),
            effective: map.serial,
            code: Arc::new(code),
            decoders: DecoderCache::new(DECODERS),
            shared,
            requests: Slots::new(room.requests),
            waiting_requests: Lines::new(SHARD_LINES, room.requests, room.line_bytes),
            retries: VecDeque::with_capacity(room.drive_requests),
            works: Slots::new(works),
            foreign_work_slots: room.foreign_works,
            waiting_works: Lines::new(SHARD_LINES, works, room.line_bytes),
            allowed: 0,
            turn_bytes: room.turn_bytes,
            asked_works: vec![0; REACTORS_MAX],
            asked_works_max: room.asked_works,
            tickets: Slots::new(room.tickets),
            lanes: Lanes::new(room.tickets),
            stripe_cells: stripe_cells(geometry),
            granted: Vec::with_capacity(room.tickets),
            starting: Vec::with_capacity(room.tickets),
            delayed: Vec::with_capacity(room.tickets),
            delayed_at: 0,
            delays: [0; SHARD_LINES],
            buffer_waiters: [(); 2].map(|()| VecDeque::with_capacity(room.tickets)),
            room_waiters: VecDeque::with_capacity(room.tickets),
            region_waiters: Vec::with_capacity(room.tickets),
            asked_regions: Vec::with_capacity(room.tickets),
            barrier_waiters: Vec::with_capacity(room.tickets),
            unsettled_flushes: Vec::with_capacity(room.requests),
            ios: Slots::new(room.drive_requests),
            kept: Kept::new(&room, geometry.group_members()),
            lists: SegmentSlots::new(room.drive_requests, 4),
            buffers: buffers.map_err(ShardError::Memory)?,
            begun: table.transpose().map_err(ShardError::Memory)?,
            bounces: Slots::new(room.drive_requests),
            borrowers: 0,
            lending: Lending::new(room.lends, geometry.block_size()),
            reports: Vec::with_capacity(map.members.len()),
            late: Late::new(room.patience, &map),
            flushes,
            pacing: Pacing::new(&map),
            hold: Hold::new(room.tickets).map_err(ShardError::Memory)?,
            background: Background::new(&map),
            throttle: Throttle::new(room.makes_way, map.owners.share(me)),
            log: Log::new(log, me.at(), writers).map_err(ShardError::Memory)?,
            losses,
            handover: Handover::default(),
            unowned: Vec::with_capacity(room.requests),
            coordinator: None,
            counters: ShardCounters::default(),
            map,
        })
    }

    /// The map by which this shard acts.
    #[must_use]
    pub fn map(&self) -> &Arc<ArrayMap> {
        &self.map
    }

    /// Counts since the shard began.
    #[must_use]
    pub fn counters(&self) -> ShardCounters {
        self.counters
    }

    /// The memory of the transfer buffers that are used before the others, and by most transfers
    /// alone.
    #[must_use]
    pub fn first_buffers(&self) -> [Arc<dyn Lasting>; 2] {
        self.buffers.first_memory()
    }

    /// Takes a request in blocks of the array. The answer comes through [`Io::complete`], maybe
    /// before this returns.
    ///
    /// # Errors
    /// `Full` with the request when no slot is free.
    #[inline]
    pub fn submit(&mut self, request: Request, io: &mut impl Io) -> Result<(), Full<Request>> {
        self.take(CONTROL_LINE, request, io)
    }

    /// As [`Shard::submit`], in the line of the volume with this number: volumes take turns.
    ///
    /// # Errors
    /// As [`Shard::submit`].
    #[inline]
    pub fn submit_in(
        &mut self,
        number: u16,
        request: Request,
        io: &mut impl Io,
    ) -> Result<(), Full<Request>> {
        self.take(CONTROL_LINE + 1 + number % VOLUME_LINES, request, io)
    }

    #[inline]
    fn take(&mut self, line: u16, request: Request, io: &mut impl Io) -> Result<(), Full<Request>> {
        let end = request.start.checked_add(u64::from(request.blocks));
        let inside = end.is_some_and(|end| end <= self.map.geometry.blocks());
        let (verdict, empty) = match request.operation {
            Operation::Flush => (Status::Ok, false),
            Operation::Read | Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                if inside {
                    (Status::Ok, request.blocks == 0)
                } else {
                    (Status::OutOfRange, true)
                }
            }
        };
        if empty {
            io.complete(Completion {
                cookie: request.cookie,
                status: verdict,
            });
            return Ok(());
        }
        let Some(slot) = self.requests.acquire() else {
            return Err(Full(request));
        };
        self.hear_when_idle(io.now());
        self.begin_request(slot, line, request, io);
        self.stir_by_request(request.operation);
        Ok(())
    }

    /// Takes a message of the shard on reactor `from`.
    pub fn message(&mut self, from: ReactorIndex, message: Message, io: &mut impl Io) {
        if !planted::is(Fault::RestsThroughMessages) {
            self.stir();
        }
        match message {
            Message::Work(work) => self.begin_work(from, work),
            Message::WorkDone { request, status } => {
                self.asked_works[from.at()] -= 1;
                self.piece_done(request, status, io);
            }
            Message::Install(map) => {
                let serial = map.serial;
                self.install(map, io);
                io.reply(from, Message::Installed { serial });
            }
            Message::Installed { serial } => self.installed(serial),
            Message::Effective { serial } => {
                self.make_effective(serial);
                io.reply(from, Message::Installed { serial });
            }
            Message::Report(failure) => {
                if !planted::is(Fault::MessageLost) {
                    self.coordinate_failure(failure);
                }
                io.reply(from, Message::Ack);
            }
            Message::WindowDone { serial, ok, tally } => {
                self.coordinate_window_done(serial, ok, tally);
                io.reply(from, Message::Ack);
            }
            Message::Dirty { region } => self.dirty_asked(from, region, io),
            Message::DirtyDone { region } => self.dirty_answered(region),
            Message::KeepDirty => {
                self.keep_dirty();
                io.reply(from, Message::Kept);
            }
            Message::Kept => self.kept_dirty(),
            Message::DrainLog { life, since } => self.drain_log(from, life, since),
            Message::LogDrained => self.log_drained(),
            Message::Fence { owner } => self.begin_fence(from, owner),
            Message::Fenced => self.decider().handing_over.fenced(),
            Message::Knock => io.reply(from, Message::Heard),
            Message::Heard => self.heard(io),
            Message::HandOver => self.begin_hand_over(from),
            Message::HandedOver { named } => self.decider().handing_over.handed_over(named),
            Message::HoldCheck { member } => {
                let waits = self.is_waiting_for(member, io.now());
                io.reply(from, Message::HoldState { waits });
            }
            Message::HoldState { waits } => self.hold_checked(waits),
            Message::ChangeLosses { change, rows } => self.change_asked(from, change, rows),
            Message::LossesChanged { ok } => self.losses_changed(ok, io),
            Message::Lend(lent) => self.help(from, lent, io),
            Message::Lent { record } => self.helper_answered(record, io),
            Message::Ack => {}
        }
    }

    /// Moves everything forward. Returns how much moved.
    fn advance(&mut self, io: &mut impl Io) -> usize {
        // First, and no step by itself: whatever a slow member lets move does so in this turn.
        self.advance_paces(io);
        let mut moved = self.advance_late(io) + self.advance_hold(io) + self.send_reports(io);
        moved += self.retry_reads(io);
        moved += self.advance_requests(io);
        moved += self.advance_works(io);
        moved += self.advance_lending(io) + self.advance_tickets(io);
        moved += self.advance_background(io);
        moved += self.advance_regions(io) + self.advance_losses(io) + self.advance_handover(io);
        moved += self.coordinate(io);
        moved
    }

    /// Whether nothing is in flight: no request, no ticket, no member request, no buffer, no change
    /// that other shards still have to confirm.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.is_working()
            && !self.coordinator().is_some_and(Coordinator::is_changing)
            && self.requests.in_use() == 0
            && self.ios.in_use() == 0
    }

    /// Whether anything is in flight besides requests that reads of drives answer, and changes that
    /// the home makes.
    fn is_working(&self) -> bool {
        self.works.in_use() > 0
            || self.tickets.in_use() > 0
            || self.buffers.in_use() > 0
            || !self.lending.is_idle()
            || !self.reports.is_empty()
            || !self.hold.is_empty()
            || !self.losses.is_idle()
            || !self.handover.is_idle()
            || !self.asked_regions.is_empty()
    }

    /// Ends the shard as the death of its process would: whatever was in flight is forgotten.
    /// For simulators; nobody may use its memory any more.
    pub fn die(self) {
        drop(self);
    }

    /// Gives back the memory of what is in flight, which nobody uses any more.
    fn forget_all(&mut self) {
        self.lending.take_back();
        for slot in self.tickets.used() {
            self.buffers.release(&mut self.tickets[slot].buffers);
            self.forget_kept(slot);
        }
        self.open_graves();
        self.forget_bounces();
        for slot in self.ios.used() {
            if self.ios[slot].listed {
                self.lists.take_back(crate::slots::at(slot));
            }
        }
    }

    /// Whether nothing that writes was planned before the last member was excluded.
    #[must_use]
    pub fn is_by_present_members(&self) -> bool {
        let barrier = self.map.barrier;
        self.effective >= barrier
            && self
                .tickets
                .used()
                .into_iter()
                .all(|slot| self.tickets[slot].is_planned_since(barrier))
    }

    /// Member requests that failed and wait to be made again.
    #[must_use]
    pub fn held(&self) -> usize {
        self.hold.len()
    }

    /// Acts by `map` from now on.
    fn install(&mut self, map: Arc<ArrayMap>, io: &mut impl Io) {
        assert!(map.serial > self.map.serial, "maps are installed in order");
        let followers = self.followers(&map);
        self.follow_doubts(&map);
        self.any_hopeless = map.hopeless.contains(&true);
        (self.holding, self.broken) = (map.is_holding(), map.is_broken());
        let before = std::mem::replace(&mut self.map, map);
        if !Arc::ptr_eq(&before.owners, &self.map.owners) {
            self.assert_owns_all();
        }
        self.follow_losses(&before.lost_blocks);
        if !planted::is(Fault::HedgedReadsNotFollowed) {
            self.late.follow(&self.map);
            self.hear_shaky(io.now());
        }
        self.background.follow(&self.map);
        self.follow_tickets(followers);
        self.flushes.follow(&self.map);
        self.throttle.follow(&self.map, self.me);
        self.log.forget(self.map.log_from);
        self.reports
            .retain(|failure| !self.map.settled(failure.member, failure.incarnation));
        self.settle(io);
    }

    /// Every shard acts by the map of `serial`.
    fn make_effective(&mut self, serial: u64) {
        self.effective = self.effective.max(serial);
    }

    /// Lets go of what waited for a membership change. Runs each turn while something waits.
    fn settle(&mut self, io: &mut impl Io) -> usize {
        self.settle_tickets(io) + self.settle_flushes(io)
    }

    fn geometry(&self) -> &Geometry {
        &self.map.geometry
    }

    /// Bytes of `blocks` blocks.
    fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) << self.map.geometry.block_size().shift()
    }

    /// Where on the drive lane `lane` of `role` in a stripe is.
    #[inline]
    fn drive_offset(&self, stripe: &StripePlaces, role: Role, lane: u32) -> (MemberIndex, u64) {
        let index = stripe.member(role);
        let block = stripe.block + u64::from(lane);
        let in_data = block << self.map.geometry.block_size().shift();
        (index, self.map.members[index.at()].data_offset + in_data)
    }
}

/// A reactor that stops while drives do not answer, or while its array waits for members, drops
/// shards that are not idle, after the port through which drives use their memory.
impl Drop for Shard {
    fn drop(&mut self) {
        self.forget_all();
    }
}
