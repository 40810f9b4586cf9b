//! Guests with rings in their memory, and the export's queue between these and the array.
//!
//! The guests' side is our own driver (`test/guest`). The engine's side is what runs in production:
//! `vhost_user_blk::Queue` over `virtqueue`, with an in-flight region, and from there
//! `engine::road`. Each ring is looked at between any two events, and so an engine may end in any
//! state of it. One that is killed leaves the rings, their memory and the in-flight regions behind,
//! and the next one goes on with them. What guests may read is for the client to judge; judged here
//! is that requests are taken in order, and answered once, with a status and in full.

mod chain;
mod change;
mod machine;
mod ring;
mod served;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use block::Operation;
use memory::Segment;
use units::BlockSize;
use uuid::Uuid;
use volume::VolumeMap;

use self::change::Change;
use self::machine::{DATA_BYTES, Machine, SLOTS, SlotPlace};
pub(crate) use self::ring::Answered;
use self::ring::{Ring, Wish};
use self::served::Reactor;
pub(crate) use self::served::is_of_a_ring;
use crate::random::Random;
use crate::world::World;

/// Of a thousand histories, so many have guests with rings.
const OFTEN: u64 = 250;
/// Rings of one volume.
const RINGS: usize = 2;
/// Of a thousand requests, before so many a guest asks for something that makes no sense, or breaks
/// its ring.
const ODD: u64 = 60;
const BREAKING: u64 = 12;
/// Of a thousand events of a ring with requests under way, so many move, stop or reset it, or
/// switch its cache mode.
const DISTURBED: u64 = 8;

/// Slots that are kept free: a bank, and two more.
const KEPT: usize = SLOTS / 2 + 2;

/// What came of rings.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingCounts {
    /// Requests answered.
    pub answered: u64,
    /// Requests that an engine took that one before it had taken.
    pub again: u64,
    /// Times that requests outlived their engine.
    pub outlived: u64,
    /// Rings that went to another reactor, that were stopped and went on, and that were reset.
    pub moved: u64,
    /// See `moved`.
    pub stopped: u64,
    /// See `moved`.
    pub reset: u64,
    /// Rings that a guest broke.
    pub broken: u64,
    /// Requests that make no sense.
    pub odd: u64,
    /// Writes that were durable when they were answered.
    pub durable: u64,
    /// Banks of memory that were taken away while requests lay there.
    pub banks: u64,
    /// Machines of which all memory was cut off.
    pub truncated: u64,
}

impl RingCounts {
    /// Adds those of another history.
    pub fn add(&mut self, other: &RingCounts) {
        self.answered += other.answered;
        self.again += other.again;
        self.outlived += other.outlived;
        self.moved += other.moved;
        self.stopped += other.stopped;
        self.reset += other.reset;
        self.broken += other.broken;
        self.odd += other.odd;
        self.durable += other.durable;
        self.banks += other.banks;
        self.truncated += other.truncated;
    }
}

impl fmt::Display for RingCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests from rings ({} again, after {} kills; {} durable at once, {} senseless), \
             {} rings moved, {} stopped, {} reset, {} broken, {} banks of memory taken away, {} \
             machines cut off",
            self.answered,
            self.again,
            self.outlived,
            self.durable,
            self.odd,
            self.moved,
            self.stopped,
            self.reset,
            self.broken,
            self.banks,
            self.truncated
        )
    }
}

/// What a guest asks of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks<'b> {
    pub(crate) volume: Uuid,
    pub(crate) operation: Operation,
    /// First byte, and bytes.
    pub(crate) place: (u64, u64),
    /// What is written.
    pub(crate) bytes: &'b [u8],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Rings {
    random: Random,
    machine: Arc<Machine>,
    /// Slots that no request uses.
    free: Vec<SlotPlace>,
    /// By place.
    rings: BTreeMap<usize, Ring>,
    next_place: usize,
    /// Of the engine, by number.
    reactors: Vec<Reactor>,
    /// Of the array.
    block: BlockSize,
    answers: Vec<Answered>,
    change: Change,
    pub(crate) counts: RingCounts,
}

impl Rings {
    /// Guests of a history, if it has some with rings.
    pub(crate) fn drawn(seed: u64, block: BlockSize) -> Option<Rings> {
        let mut random = Random::new(seed ^ 0x0A16_0521);
        if !random.happens(OFTEN) {
            return None;
        }
        let (machine, free) = Machine::start();
        Some(Rings {
            random,
            machine,
            free,
            rings: BTreeMap::new(),
            next_place: served::FIRST_PLACE,
            reactors: Vec::new(),
            block,
            answers: Vec::new(),
            change: Change::None,
            counts: RingCounts::default(),
        })
    }

    /// Puts a request into a ring of its volume, if one has room, for the caller's `key`. Where its
    /// data is.
    pub(crate) fn submit(&mut self, asks: Asks<'_>, key: usize) -> Option<Segment> {
        let is_short = self.free.len() < KEPT || self.is_truncated();
        if bytes_max() < asks.place.1 || is_short {
            return None;
        }
        let place = self.ring_for(asks.volume)?;
        let ring = self.rings.get_mut(&place).expect("just found");
        let wish = Wish::new(asks, ring.shown.profile.block, key)?;
        match self.random.below(1000) {
            0..BREAKING => {
                let slot = take_slot(&mut self.free, self.change);
                if !ring.ask_to_break(slot, &mut self.random) {
                    self.free.push(slot);
                }
            }
            BREAKING..ODD => {
                let slot = take_slot(&mut self.free, self.change);
                let taken = ring.ask(Wish::odd(&mut self.random), slot, &mut self.random);
                self.counts.odd += u64::from(taken);
                if !taken {
                    self.free.push(slot);
                }
            }
            _ => {}
        }
        let slot = take_slot(&mut self.free, self.change);
        if !ring.ask(wish, slot, &mut self.random) {
            self.free.push(slot);
            return None;
        }
        Some(ring.data_of(slot, asks.place.1))
    }

    /// A ring of the volume whose guest asks for something now.
    fn ring_for(&mut self, volume: Uuid) -> Option<usize> {
        let its = |(place, ring): (&usize, &Ring)| (ring.volume == volume).then_some(*place);
        let mut places: Vec<usize> = self.rings.iter().filter_map(its).collect();
        if places.is_empty() || (places.len() < RINGS && self.random.happens(50)) {
            let ring = Ring::new(&self.machine, volume, self.block, &mut self.random);
            self.rings.insert(self.next_place, ring);
            places.push(self.next_place);
            self.next_place += 1;
        }
        let place = places[self.random.position(places.len())];
        self.rings[&place].asks().then_some(place)
    }

    /// What may happen to rings between two events of the world. `map` finds volumes.
    pub(crate) fn turn<'m>(
        &mut self,
        world: &mut World,
        map: impl Fn(Uuid) -> Option<&'m VolumeMap>,
    ) {
        if !self.is_busy() {
            return;
        }
        let Rings { rings, free, .. } = self;
        rings.retain(|_, ring| {
            let stays = map(ring.volume).is_some();
            if !stays {
                free.extend(ring.slots());
            }
            stays
        });
        while self.reactors.len() < world.shards.len() {
            self.reactors.push(Reactor::new());
        }
        let at = self.random.position(self.reactors.len());
        if self.random.happens(500) {
            self.deliver(world, at, &map);
        }
        self.change_memory();
        let nth = self.random.position(self.rings.len());
        let Some(&place) = self.rings.keys().nth(nth) else {
            return;
        };
        let volume = map(self.rings[&place].volume).expect("only these are left");
        self.serve(world, place, volume);
        if self.is_truncated() {
            self.end_truncated(place);
            return;
        }
        self.reap(place);
        if self.rings[&place].waits() && self.random.happens(DISTURBED) {
            self.disturb(place, world.shards.len());
        }
        self.lead_on(world, place);
    }

    /// Whether there is anything to do for rings.
    fn is_busy(&self) -> bool {
        self.free.len() < SLOTS
            || self.is_truncated()
            || self.rings.values().any(|ring| ring.leaving.is_some())
    }

    /// The guest looks for answers.
    fn reap(&mut self, place: usize) {
        let ring = self.rings.get_mut(&place).expect("it is there");
        while self.random.happens(700)
            && let Some((slot, answered)) = ring.reap()
        {
            self.free.push(slot);
            self.counts.answered += 1;
            if let Some(answered) = answered {
                self.counts.durable += u64::from(answered.durable && answered.well());
                self.answers.push(answered);
            }
        }
    }

    /// The answers since they were taken last.
    pub(crate) fn take_answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// The engine has died; guests live on and wait.
    pub(crate) fn outlive(&mut self) {
        self.reactors.clear();
        if !self.is_truncated() {
            // The front-end offers the next engine all memory.
            self.change = Change::None;
        }
        for ring in self.rings.values_mut() {
            ring.lose_engine();
        }
        let waits = self.rings.values().any(Ring::waits);
        self.counts.outlived += u64::from(waits);
    }

    /// All guests have gone.
    pub(crate) fn power_off(&mut self) {
        self.change = Change::None;
        self.rings.clear();
        self.reactors.clear();
        self.answers.clear();
        (self.machine, self.free) = Machine::start();
    }
}

/// A slot that no request uses, where guests put something now.
fn take_slot(free: &mut Vec<SlotPlace>, change: Change) -> SlotPlace {
    let fine = |slot: &SlotPlace| Some(slot.bank()) != change.avoided();
    let last = free.iter().rposition(fine);
    free.remove(last.expect("more are free than a bank has"))
}

/// Of one request.
fn bytes_max() -> u64 {
    units::bytes_u64(DATA_BYTES)
}
