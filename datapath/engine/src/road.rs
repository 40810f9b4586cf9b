//! The road of requests from a ring into the array of its volume, and of the answers back: without
//! threads, drives or a clock, so that the simulator's requests go the same way.
//!
//! What does not live here: which rings are polled, and when.

use array::planted::{self, Fault};
use array::{Io, Shard};
use block::{Completion, Cookie, Full, Operation, Request};
use units::{ArrayIndex, Instant, bytes_usize};
use volume::{Gate, Haste, VolumeMap};

pub use crate::lines::{Lines, Wait};
use crate::lines::{PRICE_SHIFT, SLOT_MASK, price_for, price_in};
pub use crate::splits::Splits;

/// Who asked an array: the high word of its cookies.
const SPLIT_BIT: u64 = 1 << 63;
const CONTROL_BIT: u64 = 1 << 62;

/// Who asked an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A request that goes piece by piece, by its slot.
    Split(usize),
    /// The control path, by the number of its request.
    Control(u64),
    /// A ring, by its place; the slot of its request, and what that cost.
    Ring {
        /// Of the ring.
        place: usize,
        /// Of the request in its queue.
        slot: u32,
        /// For [`Lines::answered`].
        price: u64,
    },
}

impl Asker {
    /// The cookie of a request of the control path.
    #[must_use]
    pub(crate) fn control(id: u64) -> Cookie {
        Cookie(CONTROL_BIT | id)
    }

    /// Who asked with this cookie.
    #[inline(always)]
    #[must_use]
    pub fn of(cookie: Cookie) -> Asker {
        if cookie.0 & SPLIT_BIT != 0 {
            return Asker::Split(bytes_usize(cookie.0 & !SPLIT_BIT));
        }
        if cookie.0 & CONTROL_BIT != 0 {
            return Asker::Control(cookie.0 & !CONTROL_BIT);
        }
        Asker::Ring {
            place: bytes_usize(cookie.0 >> 32),
            slot: u32::try_from(cookie.0 & SLOT_MASK).expect("masked"),
            price: price_in(cookie),
        }
    }
}

/// From one ring into the array of its volume.
#[derive(Debug)]
pub struct Road<'c, P> {
    /// Of the ring.
    pub place: usize,
    /// The volume's number.
    pub number: u16,
    /// log2 of the bytes of the ring's blocks, and of the array's.
    pub shifts: (u32, u32),
    /// The volume.
    pub volume: &'c VolumeMap,
    /// Its array.
    pub array: ArrayIndex,
    /// The array's shard here.
    pub shard: &'c mut Shard,
    /// What the shard meets.
    pub ports: P,
    /// Requests that go piece by piece.
    pub splits: &'c mut Splits,
    /// Of these, such as may go on.
    pub waiting_splits: &'c mut Vec<usize>,
}

impl<P: Io> Road<'_, P> {
    #[inline]
    fn submit(&mut self, request: Request) -> Result<(), Full<Request>> {
        let high = u64::try_from(self.place).expect("few rings") << 32;
        let cookie = Cookie(high | request.cookie.0);
        let stability = self.volume.stability();
        let request = Request {
            stability,
            ..request
        };
        if request.operation == Operation::Write && request.start == planted::POISON_SECTOR {
            assert!(!planted::is(Fault::PoisonedRequest), "a planted panic");
            if planted::is(Fault::PoisonedStack) {
                assert_eq!(fill_the_stack(0), 0);
            }
        }
        // Whether the guest's blocks are smaller than the array's, and by how much.
        let finer = self.shifts.1 - self.shifts.0;
        let inside = (1 << finer) - 1;
        let whole = (request.start | u64::from(request.blocks)) & inside == 0;
        let asked = request.blocks >> finer;
        let (start, blocks) = match self.volume.locate(request.start >> finer, asked) {
            _ if request.operation == Operation::Flush => (0, 0),
            _ if !whole => (0, 0),
            Ok(found) => found,
            Err(status) => {
                self.ports.complete(Completion { cookie, status });
                return Ok(());
            }
        };
        if blocks < asked || !whole {
            let queue = u32::try_from(self.place).expect("few rings");
            let whose = (self.array, queue);
            let Some(split) = self.splits.begin(whose, request, self.shifts) else {
                return Err(Full(request));
            };
            self.waiting_splits.push(split);
            return Ok(());
        }
        let moved = Request {
            cookie,
            start,
            blocks,
            ..request
        };
        self.shard
            .submit_in(self.number, moved, &mut self.ports)
            .map_err(|_| Full(request))
    }
}

/// Where requests of one ring meet the limits of their volume and wait for its turn.
#[derive(Debug)]
pub struct Entrance<'c> {
    /// If there are limits.
    pub gate: Option<&'c mut Gate>,
    /// Whether somebody waits for the ring to be drained.
    pub haste: Haste,
    /// When the turn began.
    pub now: Instant,
    /// All volumes of the reactor.
    pub lines: &'c mut Lines,
    /// This volume's.
    pub line: usize,
    /// What the request that was turned away waits for.
    pub waits: Option<Wait>,
}

impl Entrance<'_> {
    /// Lets a request that moves so many bytes go, or hands it back.
    ///
    /// # Errors
    /// When it is not its turn, or the array is full.
    #[inline(always)]
    pub fn submit<P: Io>(
        &mut self,
        request: Request,
        bytes: u64,
        road: &mut Road<'_, P>,
    ) -> Result<(), Full<Request>> {
        if request.operation == Operation::Flush {
            return self.send(request, road);
        }
        // The limits first: who has drawn a time and may go is not asked to wait for it any more.
        if let Some(gate) = &mut self.gate
            && !gate.admits(
                written_of(&request, bytes, road.shifts.0),
                self.now,
                self.haste,
            )
        {
            return Err(Full(request));
        }
        if let Err(wait) = self.lines.admits(self.line) {
            self.waits = Some(wait);
            return Err(Full(request));
        }
        let price = price_for(&request, bytes, road.shifts.0);
        let cookie = Cookie(request.cookie.0 | price << PRICE_SHIFT);
        self.send(Request { cookie, ..request }, road)?;
        self.lines.taken(self.line, price);
        if let Some(gate) = &mut self.gate {
            gate.passed();
        }
        Ok(())
    }

    #[inline(always)]
    fn send<P: Io>(
        &mut self,
        request: Request,
        road: &mut Road<'_, P>,
    ) -> Result<(), Full<Request>> {
        let sent = road.submit(request);
        if sent.is_err() {
            self.waits = Some(Wait::ForRoom);
        }
        sent
    }
}

/// Bytes that go through memory. A discard is one request, however much it covers.
#[inline]
#[must_use]
pub fn bytes_of(request: &Request, shift: u32) -> u64 {
    match request.operation {
        Operation::Read | Operation::Write => u64::from(request.blocks) << shift,
        Operation::Flush | Operation::Discard | Operation::WriteZeroes => 0,
    }
}

/// Of the zeroes of one request no more count for the limit of a volume: all of its rings wait for
/// that before anything else of it goes on.
const ZEROES_COUNTED_MAX: u64 = 16 << 20;

/// Bytes that the limit of a volume counts: `moved`, or those that are to be zeroes, which a guest
/// need not carry but drives have to write.
fn written_of(request: &Request, moved: u64, shift: u32) -> u64 {
    match request.operation {
        Operation::WriteZeroes => (u64::from(request.blocks) << shift).min(ZEROES_COUNTED_MAX),
        Operation::Read | Operation::Write | Operation::Flush | Operation::Discard => moved,
    }
}

/// How far a request has come that goes piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It has ended.
    Ended(Completion),
    /// Its next piece is on its way.
    Sent,
    /// Its next piece finds no room.
    Waits,
}

/// Hands the next piece of a request over that goes piece by piece. `volume` with its number.
pub fn advance<P: Io>(
    splits: &mut Splits,
    slot: usize,
    (volume, number): (&VolumeMap, u16),
    shard: &mut Shard,
    ports: &mut P,
) -> Advance {
    let Some(piece) = splits.next_piece(slot, volume) else {
        let ended = splits.end(slot);
        let cookie = Cookie(u64::from(ended.queue) << 32 | ended.request.cookie.0);
        let status = ended.status;
        return Advance::Ended(Completion { cookie, status });
    };
    let piece_of = u64::try_from(slot).expect("few splits");
    let piece = Request {
        cookie: Cookie(SPLIT_BIT | piece_of),
        ..piece
    };
    if shard.submit_in(number, piece, ports).is_ok() {
        return Advance::Sent;
    }
    splits.hand_back(slot);
    Advance::Waits
}

/// Never comes back: its thread's stack is not endless.
fn fill_the_stack(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    match room[0] {
        u64::MAX => 0,
        depth => fill_the_stack(depth + 1) + room[1],
    }
}
