//! The engine's side of rings: what its reactors do with them, as `engine::Core` does it.

use std::sync::Arc;

use block::{Completion, Full, Operation, Request, Status};
use engine::road::{self, Advance, Asker, Entrance, Lines, Road, Splits, bytes_of};
use guest::Token;
use memory::RegionTable;
use units::{ArrayIndex, ReactorIndex};
use uuid::Uuid;
use vhost_user_blk::{Event, Events, Notice, Queue, QueueSetup, feature};
use virtqueue::{Features, Vring};
use volume::{Haste, VolumeMap};

use super::Rings;
use super::ring::{Leaving, Ring, layout};
use crate::random::Random;
use crate::world::World;

/// Of the first ring. Cookies of others than rings lie below its own.
pub(super) const FIRST_PLACE: usize = 2;
const ARRAY: ArrayIndex = ArrayIndex(0);
/// Of a thousand requests, so many are handed back, as if others had filled the array.
const REFUSED: u64 = 80;
/// Of a thousand rings that outlived an engine, so many are stopped before the next has taken
/// anything.
const HASTY: u64 = 150;

/// Whether it is a ring that asked with this cookie.
pub(crate) fn is_of_a_ring(completion: &Completion) -> bool {
    match Asker::of(completion.cookie) {
        Asker::Split(_) => true,
        Asker::Ring { place, .. } => place >= FIRST_PLACE,
        Asker::Control(_) => false,
    }
}

/// What rings share on a reactor.
#[derive(Debug)]
pub(super) struct Reactor {
    splits: Splits,
    waiting: Vec<usize>,
    pub(super) lines: Lines,
}

impl Reactor {
    pub(super) fn new() -> Reactor {
        let mut splits = Splits::default();
        splits.set(ARRAY, true);
        Reactor {
            splits,
            waiting: Vec::new(),
            lines: Lines::default(),
        }
    }
}

/// A ring that is on a reactor.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) queue: Queue,
    pub(super) reactor: usize,
    pub(super) line: usize,
    /// The number of the last request that was taken.
    pub(super) taken: Option<u64>,
}

impl Rings {
    /// The reactor of a ring takes from it, or shows answers there, or begins to serve it.
    pub(super) fn serve(&mut self, world: &mut World, place: usize, volume: &VolumeMap) {
        let is_truncated = self.is_truncated();
        let Rings {
            random,
            rings,
            reactors,
            block,
            counts,
            change,
            ..
        } = self;
        let ring = rings.get_mut(&place).expect("it is there");
        let sectors = volume.blocks() * (block.bytes() / 512);
        ring.shown.set_sectors(sectors);
        if ring.running.is_none() {
            if random.happens(300) && ring.leaving.is_none() && !is_truncated {
                let at = random.position(reactors.len());
                let memory = ring.machine().table(change.unknown());
                let there = (at, &mut reactors[at].lines);
                let (mut running, again) = start(ring, memory, there);
                counts.again += u64::from(again);
                if again > 0 && random.happens(HASTY) {
                    running.queue.quiesce();
                    ring.leaving = Some(Leaving::Stops);
                }
                ring.running = Some(running);
            }
            return;
        }
        if random.happens(600) {
            poll(
                ring,
                place,
                volume,
                block.shift(),
                (world, reactors, random),
            );
        }
        let running = ring.running.as_mut().expect("it runs");
        if random.happens(600) {
            running.queue.publish();
        }
        if let Some(why) = running.queue.broken()
            && ring.leaving != Some(Leaving::Resets)
            && !is_truncated
        {
            assert!(ring.is_abused(), "a ring broke: {why}; {:?}", ring.sent);
            counts.broken += 1;
            let running = ring.running.as_mut().expect("it runs");
            running.queue.quiesce();
            ring.leaving = Some(Leaving::Resets);
        }
    }

    /// Answers that have come to a reactor go to its rings, and requests go on that go piece by
    /// piece.
    pub(super) fn deliver<'m>(
        &mut self,
        world: &mut World,
        at: usize,
        map: &impl Fn(Uuid) -> Option<&'m VolumeMap>,
    ) {
        let reactor = ReactorIndex::from_at(at);
        for Completion { cookie, status } in world.take_answers(reactor, is_of_a_ring) {
            match Asker::of(cookie) {
                Asker::Split(slot) => {
                    self.reactors[at].splits.piece_done(slot, status);
                    self.reactors[at].waiting.push(slot);
                }
                asker => self.answered(world, at, (asker, status)),
            }
        }
        let waiting = std::mem::take(&mut self.reactors[at].waiting);
        for slot in waiting {
            let splits = &mut self.reactors[at].splits;
            let place = splits.ring_of(slot);
            let volume = map(self.rings[&place].volume).expect("it is in use");
            let (shard, mut ports) = world.door(reactor);
            let number = number(place);
            let advance = road::advance(splits, slot, (volume, number), shard, &mut ports);
            drop(ports);
            world.shut(reactor);
            match advance {
                Advance::Sent => {}
                Advance::Waits => self.reactors[at].waiting.push(slot),
                Advance::Ended(Completion { cookie, status }) => {
                    self.answered(world, at, (Asker::of(cookie), status));
                }
            }
        }
    }

    fn answered(&mut self, world: &World, at: usize, (asker, status): (Asker, Status)) {
        let Asker::Ring { place, slot, price } = asker else {
            panic!("no ring asked, but {asker:?}");
        };
        let ring = self.rings.get_mut(&place);
        let ring = ring.and_then(|ring| ring.running.as_mut());
        let ring = ring.filter(|running| running.reactor == at);
        let running = ring.expect("a ring leaves when it is drained");
        self.reactors[at].lines.answered(running.line, price);
        running.queue.complete(slot, status, world.outside.now);
    }

    /// Somebody moves a ring, pauses its machine, or begins anew with its driver.
    pub(super) fn disturb(&mut self, place: usize, reactors: usize) {
        let ring = self.rings.get_mut(&place).expect("it is there");
        if let (Some(Leaving::Moves(_)), Some(running)) = (ring.leaving, &mut ring.running) {
            // It takes too long.
            running.queue.resume();
            ring.leaving = None;
            return;
        }
        if ring.leaving.is_some() {
            return;
        }
        let leaving = match self.random.below(8) {
            0..=2 => Leaving::Moves(self.random.position(reactors)),
            3 | 4 => Leaving::Stops,
            5 => Leaving::Resets,
            _ => return ring.switch_cache(),
        };
        if let Some(running) = &mut ring.running {
            running.queue.quiesce();
            ring.leaving = Some(leaving);
        }
    }

    /// A ring that is drained leaves.
    pub(super) fn lead_on(&mut self, world: &World, place: usize) {
        let Rings {
            random,
            rings,
            reactors,
            free,
            answers,
            counts,
            ..
        } = self;
        let ring = rings.get_mut(&place).expect("it is there");
        let Some(leaving) = ring.leaving else {
            return;
        };
        if let Some(running) = &mut ring.running {
            let borrows = world.shards[running.reactor].is_borrowing();
            let waits = borrows && !matches!(leaving, Leaving::Moves(_));
            if waits || !running.queue.is_drained() {
                return;
            }
            reactors[running.reactor].lines.leave(running.line);
            if let Leaving::Moves(to) = leaving {
                running.queue.resume();
                running.reactor = to;
                running.line = reactors[to].lines.join(ARRAY, &ring.limiter);
                counts.moved += 1;
            } else {
                let running = ring.running.take().expect("it runs");
                ring.base = running.queue.stop();
            }
        }
        ring.leaving = None;
        match leaving {
            Leaving::Moves(_) => {}
            Leaving::Stops => {
                counts.stopped += 1;
                if random.happens(500) {
                    ring.forget_region();
                }
            }
            Leaving::Resets => {
                counts.reset += 1;
                for (slot, answered) in ring.reset(random) {
                    free.push(slot);
                    answers.extend(answered);
                }
            }
        }
    }
}

/// A ring comes to a reactor; and how many requests an engine before had taken from it.
fn start(
    ring: &Ring,
    memory: Arc<RegionTable>,
    (reactor, lines): (usize, &mut Lines),
) -> (Running, u16) {
    let options = ring.driver.options();
    let features = Features {
        event_idx: options.event_idx,
        indirect: ring.features & feature::INDIRECT_DESC != 0,
    };
    let layout = layout(options.layout);
    let vring = Vring::new(layout, options.size, ring.memory(), features, ring.base);
    let mut vring = vring.expect("a good ring");
    let again = vring.attach(ring.inflight()).expect("a good region");
    assert!(usize::from(again) <= ring.sent.len(), "{again} were sent");
    let machine = ring.machine();
    let mut queue = Queue::new(QueueSetup {
        vring,
        size: options.size,
        kept: vec![Arc::clone(&machine.mapping)],
        memory,
        events: Events::default(),
        shown: Arc::clone(&ring.shown),
        features: ring.features,
        notice: Arc::new(Notice::new(Event::new().expect("a descriptor"))),
    });
    queue.disable_kicks();
    let running = Running {
        queue,
        reactor,
        line: lines.join(ARRAY, &ring.limiter),
        taken: None,
    };
    (running, again)
}

/// One turn of a reactor for a ring.
fn poll(
    ring: &mut Ring,
    place: usize,
    volume: &VolumeMap,
    shift: u32,
    (world, reactors, random): (&mut World, &mut [Reactor], &mut Random),
) {
    let Ring {
        running,
        sent,
        leaving,
        ..
    } = ring;
    let Running {
        queue,
        reactor,
        line,
        taken,
    } = running.as_mut().expect("it runs");
    let Reactor {
        splits,
        waiting,
        lines,
    } = &mut reactors[*reactor];
    lines.begin_turn();
    let now = world.outside.now;
    let (shard, ports) = world.door(ReactorIndex::from_at(*reactor));
    let own = queue.block().shift();
    let mut entrance = Entrance {
        gate: None,
        haste: leaving.map_or(Haste::None, |_| Haste::Drains),
        now,
        lines,
        line: *line,
        waits: None,
    };
    let mut road = Road {
        place,
        number: number(place),
        shifts: (own, shift),
        volume,
        array: ARRAY,
        shard,
        ports,
        splits,
        waiting_splits: waiting,
    };
    queue.poll(now, &mut |request: Request| {
        if random.happens(REFUSED) {
            return Err(Full(request));
        }
        let token = u16::try_from(request.cookie.0).expect("a slot of the queue");
        let one = sent.get(&Token(token));
        let one = one.unwrap_or_else(|| panic!("nobody has asked for {request:?}"));
        // Flushes that the queue adds come when their writes are done.
        if request.operation != Operation::Flush || one.operation == Operation::Flush {
            let in_order = taken.is_none_or(|last| one.order >= last);
            assert!(in_order, "{one:?} is taken after number {taken:?}");
            *taken = Some(one.order);
        }
        entrance.submit(request, bytes_of(&request, own), &mut road)
    });
    drop(road);
    world.shut(ReactorIndex::from_at(*reactor));
}

/// What the array knows a ring's volume by.
fn number(place: usize) -> u16 {
    u16::try_from(place).expect("few rings")
}
