//! One reactor's share of the data path: its drives' port, its shards, its rings, and one turn
//! of them all.
//!
//! A turn: messages in, rings popped, shards moved, drives submitted and reaped (one system call),
//! answers shown to guests, messages out. Nothing waits.

mod asked;
mod attention;
mod rings;
mod times;

pub use times::ReactorTimes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use array::{Event, Message, Refusal, Shard};
use block::{Completion, Cookie};
use drive::{Pins, Port};
use queues::{Park, Post};
use reactor::{Duty, EventFd};
use units::limits::ARRAYS_MAX;
use units::{ArrayIndex, Clock, Instant, MonotonicClock, ReactorIndex};
use vhost_user_blk::{Queue, QueueKey};
use volume::{Gate, Limiter, VolumeMap};

use self::asked::{ControlRequest, WaitingControl};
use self::attention::Attention;
use self::times::{Spent, Times};
use crate::lines::{Lines, Wait};
use crate::past::Past;
use crate::ports::{Envelope, INBOX_PIECES, MemberCookie, Ports};
use crate::road::{self, Advance, Asker};
use crate::shares::{Helpers, Shares};
use crate::splits::Splits;

/// Watch tokens of the port: the wake event, then kicks by ring position.
const WAKE_TOKEN: u64 = 0;
const KICK_TOKENS: u64 = 1;

/// Between two looks of whoever waits until drives do not read a guest's memory any more.
const BORROWERS_LOOK: Duration = Duration::from_millis(10);

/// A ring on this reactor.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) export: u64,
    /// What this thread works for when it works for this ring.
    duty: Duty,
    pub(crate) key: QueueKey,
    pub(crate) queue: Queue,
    /// log2 of the bytes of its blocks: the array's, or smaller ones.
    shift: u32,
    pub(crate) array: ArrayIndex,
    pub(crate) volume: Arc<VolumeMap>,
    gate: Gate,
    limiter: Arc<Limiter>,
    past: Arc<Past>,
    /// Its volume's line on this reactor.
    line: usize,
    /// What its next request was turned away for in the last turn.
    waits_for: Option<Wait>,
    /// Told where the ring goes on, once it is drained.
    stopping: Option<(Sender<Stopped>, Leaving)>,
    attention: Attention,
}

/// Why a ring leaves its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It ends.
    Ends,
    /// It goes on elsewhere.
    Moves,
}

impl Ring {
    /// A ring of an export, on a volume of an array, under its limits and among its other rings.
    pub(crate) fn new(
        ((export, uuid), key): ((u64, [u8; 16]), QueueKey),
        queue: Queue,
        (array, volume): (ArrayIndex, Arc<VolumeMap>),
        (limiter, past): (Arc<Limiter>, Arc<Past>),
    ) -> Ring {
        Ring {
            export,
            duty: Duty::Export(uuid),
            key,
            shift: queue.block().shift(),
            queue,
            array,
            volume,
            gate: Gate::new(Arc::clone(&limiter)),
            limiter,
            past,
            line: 0,
            waits_for: None,
            stopping: None,
            attention: Attention::Polled,
        }
    }
}

/// A ring that was taken off its reactor.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It ended here.
    Ended(u32),
    /// It goes on elsewhere.
    Moved(Box<Ring>),
}

/// See the module.
#[derive(Debug)]
pub struct Core {
    port: Port,
    pub(super) shares: Shares,
    post: Post<Envelope>,
    wake: Arc<EventFd>,
    shards: Vec<Option<Box<Shard>>>,
    /// Behind the last of them that is there.
    shards_end: usize,
    /// By array: what this thread works for when it works for its shard.
    duties: Vec<Duty>,
    rings: Vec<Option<Ring>>,
    /// Requests of rings that have left, less those that rings had done elsewhere when they came.
    requests_past: u64,
    /// The places of those that do not sleep.
    awake: Vec<usize>,
    /// Which of them is polled first in this turn.
    first_awake: usize,
    /// The place of the ring that is looked at next although it may sleep.
    next_sleeper: usize,
    /// Every kick was watched while the reactor slept just now.
    watched_all: bool,
    lines: Lines,
    splits: Splits,
    waiting_splits: Vec<usize>,
    controls: BTreeMap<u64, ControlRequest>,
    waiting_controls: VecDeque<WaitingControl>,
    commands: BTreeMap<u64, Sender<Result<(), Refusal>>>,
    let_go: Vec<(u64, u32, Sender<()>)>,
    next_id: u64,
    events_out: Sender<(ArrayIndex, Event)>,
    /// Filled and emptied within a turn.
    done: Vec<Completion>,
    answers: Vec<Completion>,
    events: Vec<(ArrayIndex, Event)>,
    fired: Vec<u64>,
    turns: u64,
    times: Times,
}

impl Core {
    pub(crate) fn new(
        mut port: Port,
        post: Post<Envelope>,
        wake: Arc<EventFd>,
        events_out: Sender<(ArrayIndex, Event)>,
        beside: Vec<ReactorIndex>,
    ) -> Core {
        use std::os::fd::{AsFd, AsRawFd};
        port.watch(wake.as_fd().as_raw_fd(), WAKE_TOKEN);
        let mut shares = Shares::new(port.room(), INBOX_PIECES);
        shares.helpers = Helpers::new(beside);
        Core {
            shares,
            port,
            post,
            wake,
            shards: (0..ARRAYS_MAX).map(|_| None).collect(),
            shards_end: 0,
            duties: vec![Duty::Nobody; ARRAYS_MAX],
            rings: Vec::new(),
            requests_past: 0,
            awake: Vec::new(),
            first_awake: 0,
            next_sleeper: 0,
            watched_all: false,
            lines: Lines::default(),
            splits: Splits::default(),
            waiting_splits: Vec::new(),
            controls: BTreeMap::new(),
            waiting_controls: VecDeque::new(),
            commands: BTreeMap::new(),
            let_go: Vec::new(),
            next_id: 0,
            events_out,
            done: Vec::with_capacity(4096),
            answers: Vec::with_capacity(4096),
            events: Vec::new(),
            fired: Vec::new(),
            turns: 0,
            times: Times::new(MonotonicClock.now()),
        }
    }

    /// Replaces the guest memory that drives may use without looking its pages up.
    pub(crate) fn set_pins(&mut self, pins: Arc<Pins>) {
        self.port.set_pins(pins);
    }

    fn receive(&mut self) -> usize {
        let (mut moved, now) = (0, self.times.turn_began);
        while let Some((from, Envelope { array, message })) = self.post.receive() {
            if matches!(
                message,
                Message::WorkDone { .. } | Message::DirtyDone { .. }
            ) {
                self.shares.pieces(from).answered(array);
            }
            if matches!(message, Message::Lend(_)) {
                // Nobody else asks in this turn.
                self.post.tell_idle(false);
            }
            self.duties[array.at()].begin();
            let Core {
                shards,
                port,
                shares,
                post,
                answers,
                events,
                ..
            } = self;
            let Some(shard) = shards[array.at()].as_mut() else {
                let Some(answer) = answer_of_ended(message) else {
                    continue;
                };
                post.reply(
                    from,
                    Envelope {
                        array,
                        message: answer,
                    },
                );
                continue;
            };
            let mut ports = Ports {
                array,
                now,
                port,
                shares,
                post,
                completions: answers,
                events,
            };
            shard.message(from, message, &mut ports);
            moved += 1;
        }
        moved
    }

    /// Those that do not rest, or those that do.
    fn poll_shards(&mut self, resting: bool) -> usize {
        let (mut moved, now) = (0, self.times.turn_began);
        for position in 0..self.shards_end {
            let Core {
                shards,
                duties,
                port,
                shares,
                post,
                answers,
                events,
                ..
            } = self;
            let Some(shard) = &mut shards[position] else {
                continue;
            };
            if shard.rests(now) != resting {
                continue;
            }
            duties[position].begin();
            let array = ArrayIndex::from_at(position);
            let mut ports = Ports {
                array,
                now,
                port,
                shares,
                post,
                completions: answers,
                events,
            };
            moved += shard.poll_all(&mut ports);
        }
        moved
    }

    /// One system call at the most: submits what was gathered, reaps what is done.
    fn poll_drives(&mut self) -> usize {
        let mut done = std::mem::take(&mut self.done);
        // Operations of all arrays go together.
        Duty::Nobody.begin();
        self.port.poll(&mut done);
        let (moved, now) = (done.len(), self.times.turn_began);
        let mut working_for = None;
        for completion in done.drain(..) {
            let MemberCookie { array, slot } = MemberCookie::unpack(completion.cookie);
            self.shares.drives.answered(array);
            if working_for.replace(array) != Some(array) {
                self.duties[array.at()].begin();
            }
            let Core {
                shards,
                port,
                shares,
                post,
                answers,
                events,
                ..
            } = self;
            let shard = shards[array.at()]
                .as_mut()
                .expect("arrays end when all is answered");
            let mut ports = Ports {
                array,
                now,
                port,
                shares,
                post,
                completions: answers,
                events,
            };
            shard.drive_done(Cookie(u64::from(slot)), completion.status, &mut ports);
        }
        self.done = done;
        moved
    }

    /// Hands answers to whoever asked.
    fn deliver(&mut self) -> usize {
        let moved = self.answers.len();
        if moved == 0 {
            return 0;
        }
        // Later than the turn's begin, if drives answered.
        let now = self.port.now().max(self.times.turn_began);
        let mut answers = std::mem::take(&mut self.answers);
        let mut working_for = None;
        for Completion { cookie, status } in answers.drain(..) {
            match Asker::of(cookie) {
                Asker::Split(slot) => {
                    self.splits.piece_done(slot, status);
                    self.waiting_splits.push(slot);
                }
                Asker::Control(id) => {
                    let control = self.controls.remove(&id);
                    control.expect("asked once").answer.send(status).ok();
                }
                Asker::Ring { place, slot, price } => {
                    let ring = self.rings[place]
                        .as_mut()
                        .expect("a ring ends when it is drained");
                    if working_for.replace(place) != Some(place) {
                        ring.duty.begin();
                    }
                    self.lines.answered(ring.line, price);
                    ring.queue.complete(slot, status, now);
                }
            }
        }
        self.answers = answers;
        moved
    }

    /// Moves requests on that cross a border between extents.
    fn advance_splits(&mut self) -> usize {
        let mut moved = 0;
        let mut waiting = std::mem::take(&mut self.waiting_splits);
        waiting.retain(|&slot| {
            let kept = !self.advance_split(slot);
            moved += usize::from(!kept);
            kept
        });
        waiting.append(&mut self.waiting_splits);
        self.waiting_splits = waiting;
        moved
    }

    /// Whether the split is done or its next piece is on its way.
    fn advance_split(&mut self, slot: usize) -> bool {
        let place = self.splits.ring_of(slot);
        let ring = self.rings[place]
            .as_ref()
            .expect("a ring ends when it is drained");
        ring.duty.begin();
        let (array, volume) = (ring.array, Arc::clone(&ring.volume));
        let number = ring.limiter.number();
        let now = self.times.turn_began;
        let Core {
            shards,
            port,
            shares,
            post,
            answers,
            events,
            splits,
            ..
        } = self;
        let shard = shards[array.at()]
            .as_mut()
            .expect("arrays end when all is answered");
        let mut ports = Ports {
            array,
            now,
            port,
            shares,
            post,
            completions: answers,
            events,
        };
        match road::advance(splits, slot, (&volume, number), shard, &mut ports) {
            Advance::Ended(completion) => answers.push(completion),
            Advance::Sent => {}
            Advance::Waits => return false,
        }
        true
    }

    fn tell_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for (array, event) in events.drain(..) {
            if let Event::CommandDone { id, result } = event {
                if let Some(answer) = self.commands.remove(&id) {
                    answer.send(result).ok();
                }
            } else {
                self.events_out.send((array, event)).ok();
            }
        }
        self.events = events;
    }

    /// When somebody waits for guests' memory that drives may still read: when that is looked at
    /// again, because a drive may answer on any reactor.
    fn look_at_borrowers(&self) -> Option<Instant> {
        let ends = |ring: &Ring| ring.stopping.is_some();
        let waits = !self.let_go.is_empty() || self.awake_rings().any(ends);
        let mut rings = self.rings.iter().flatten();
        let borrows = waits && rings.any(|ring| ring.borrows(&self.shards));
        borrows.then(|| self.times.turn_began + BORROWERS_LOOK)
    }
}

impl reactor::Core for Core {
    fn turn(&mut self, now: Instant) -> usize {
        self.turns += 1;
        self.times.turn(now);
        self.port.tell_time(now);
        self.take_kicks();
        let mut moved = self.receive();
        Duty::Nobody.begin();
        if !self.waiting_controls.is_empty() {
            moved += self.submit_controls();
        }
        moved += self.poll_rings();
        moved += self.poll_shards(false);
        moved += self.poll_drives();
        moved += self.deliver();
        moved += self.advance_splits();
        self.publish_rings();
        Duty::Nobody.begin();
        self.tell_let_go();
        if !self.events.is_empty() {
            self.tell_events();
        }
        self.post.publish();
        self.post.tell_idle(moved == 0);
        if moved > 0 {
            self.times.last = Spent::Busy;
        }
        moved
    }

    fn prepare_sleep(&mut self) -> bool {
        // Those that rest were not asked in this turn. What they tell is told in the next.
        let mut quiet = self.poll_shards(true) == 0;
        quiet &= self.answers.is_empty() && self.events.is_empty();
        quiet &= self.ask_for_kicks();
        quiet && self.post.park() == Park::Parked
    }

    /// When an array whose home this is wants to look for regions to clear, or a volume's limit
    /// lets a ring go on.
    fn deadline(&self) -> Option<Instant> {
        let shards = self.shards.iter().flatten();
        shards
            .filter_map(|shard| shard.deadline())
            .chain(self.awake_rings().filter_map(Ring::waits_until))
            .chain(self.look_at_borrowers())
            .min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.times.last = Spent::Asleep;
        self.watched_all = self.port.wait(limit);
    }

    fn woken(&mut self) {
        self.post.unpark();
        self.take_kicks();
        self.let_sleep();
    }
}

/// What a shard is told after it has ended needs only an answer, because its home waits for that:
/// nobody here acts by an old map.
fn answer_of_ended(message: Message) -> Option<Message> {
    Some(match message {
        Message::Install(map) => Message::Installed { serial: map.serial },
        Message::Effective { serial } => Message::Installed { serial },
        Message::Report(_) | Message::WindowDone { .. } => Message::Ack,
        Message::KeepDirty => Message::Kept,
        Message::DrainLog { .. } => Message::LogDrained,
        Message::HoldCheck { .. } => Message::HoldState { waits: false },
        Message::Fence { .. } => Message::Fenced,
        Message::Knock => Message::Heard,
        Message::HandOver => Message::HandedOver { named: false },
        Message::ChangeLosses { .. } => Message::LossesChanged { ok: false },
        Message::Lend(lent) => Message::Lent {
            record: lent.record(),
        },
        Message::Ack | Message::LossesChanged { .. } => return None,
        // An array ends when all of these are answered.
        Message::Work(_)
        | Message::WorkDone { .. }
        | Message::Installed { .. }
        | Message::Dirty { .. }
        | Message::DirtyDone { .. }
        | Message::Kept
        | Message::HoldState { .. }
        | Message::Fenced
        | Message::Heard
        | Message::HandedOver { .. }
        | Message::Lent { .. }
        | Message::LogDrained => {
            panic!("{message:?} for an array that has ended")
        }
    })
}
