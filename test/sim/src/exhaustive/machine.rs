//! One array on one reactor with a fixed order of events: what happens next is never drawn.

mod asleep;
mod drives;
mod errors;
mod memory;
mod places;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::memory::{Backing, Buffer, Pages, Pool, SegmentList, SegmentSlots};
use array::format::{Area, ArrayConfig};
use array::{
    Command, Coordinator, CoordinatorSettings, Event, Geometry, Io, LogSpace, MapIdentity,
    MemberPlace, MemberRequest, Message, Owners, PassState, Refusal, RegionMap, Shard, Shared,
    Suspects, Times, WallClock, initial_map,
};
use block::{Completion, Cookie, Full, Operation, Part, Request, Stability, Status};
use units::{ArrayIndex, DriveIndex, Instant, ReactorIndex, bytes_usize};

use self::asleep::Asleep;
use self::errors::Errors;
pub(super) use self::errors::{Choice, Error};
use self::memory::Change;
pub(super) use self::room::room;
use super::begun::{Memory, Told};
use super::disk::{Disk, Write, mix};
use crate::disks::Medium;

const ME: ReactorIndex = ReactorIndex(0);
/// Requests of the guest at a time.
const IN_FLIGHT: usize = 8;
/// The longest request.
const REQUEST_BYTES: usize = 64 << 10;
/// Idle regions are clean after so long.
const CLEAR_AFTER: Duration = Duration::from_millis(20);
/// Longer than any scenario: records that change nothing are not of interest.
const RENEW_AFTER: Duration = Duration::from_secs(60);
/// Time that passes while nothing happens.
const PAUSE: Duration = Duration::from_millis(5);
/// So many pauses in which nothing happens are for ever.
const PAUSES_MAX: usize = 2_000;
/// So many events without what is awaited have no end: none that ends was seen to need more than
/// 803. Each of them may be a moment at which stops come, so the bound is not far above.
const STEPS_MAX: usize = 4_000;
/// After so long a drive is there again that the array waits for.
const AWAY: Duration = Duration::from_millis(500);
/// Drives are looked at after so long: that is longer than most scenarios.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Room for more than anybody asks.
const AMPLE: usize = 1000;
/// More polls than that without an answer of a drive are an endless loop.
const POLLS_MAX: usize = 10_000;

/// Which of the requests under way a drive answers next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// The oldest.
    Oldest,
    /// The newest.
    Newest,
    /// The oldest, those of one drive only when there is no other.
    Late(usize),
    /// The oldest, and most turns find room for two requests at most, as if others had filled the
    /// ports.
    Tight,
}

/// A request that a drive has taken.
#[derive(Debug)]
struct Taken {
    request: MemberRequest,
    write: Option<Write>,
    began: usize,
}

#[derive(Debug)]
enum Token {
    Write(model::Write),
    Read(model::Read),
    Flush(model::Flush),
}

#[derive(Debug)]
struct Pending {
    token: Token,
    start: u64,
    slot: usize,
    buffer: Buffer,
    bytes: usize,
    /// Whether it has that much in memory.
    carries: bool,
}

/// Everything outside the shard.
#[derive(Debug)]
struct Outside {
    disks: Vec<Disk>,
    taken: Vec<Taken>,
    now: Instant,
    /// How many requests to drives find room.
    room: usize,
    completions: Vec<Completion>,
    events: Vec<Event>,
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
        let write = match request.operation {
            Operation::Write => Some(Write::carried_by(&request)),
            Operation::WriteZeroes | Operation::Discard => Some(Write::new(
                request.offset,
                &vec![0; bytes_usize(request.length)],
            )),
            Operation::Read | Operation::Flush => None,
        };
        self.taken.push(Taken {
            began: self.disks[request.drive.at()].begin_flush(),
            request,
            write,
        });
    }
    fn times(&self, _: DriveIndex) -> Option<Times<'_>> {
        None
    }
    fn ask(&mut self, _: ReactorIndex, message: Message) -> Result<(), Full<Message>> {
        unreachable!("there is one reactor: {message:?}")
    }
    fn reply(&mut self, _: ReactorIndex, message: Message) {
        unreachable!("there is one reactor: {message:?}")
    }
    fn complete(&mut self, completion: Completion) {
        self.completions.push(completion);
    }
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// What a machine is made of.
pub(super) struct Setup {
    pub(super) geometry: Geometry,
    pub(super) config: ArrayConfig,
    pub(super) places: Vec<Option<MemberPlace>>,
    pub(super) disks: Vec<Disk>,
    pub(super) regions: RegionMap,
    pub(super) suspects: Suspects,
    pub(super) log: LogSpace,
    pub(super) model: model::Volume,
    pub(super) told: Option<Told>,
}

/// Who looks at a machine between any two events.
pub(super) trait Watch {
    /// A stop may come now.
    fn look(&mut self, machine: &Machine);
}

/// Nobody.
pub(super) struct Unwatched;

impl Watch for Unwatched {
    fn look(&mut self, _: &Machine) {}
}

/// See the module.
pub(super) struct Machine {
    shard: Shard,
    outside: Outside,
    schedule: Schedule,
    /// This drive answers nothing.
    hung: Option<usize>,
    pool: Pool,
    lists: SegmentSlots,
    pending: BTreeMap<u64, Pending>,
    /// What guests may read.
    pub(super) model: model::Volume,
    cookie: u64,
    command: u64,
    /// Answers to commands.
    answers: BTreeMap<u64, Result<(), Refusal>>,
    tight_polls: usize,
    errors: Errors,
    change: Change,
    asleep: Asleep,
    /// Where data lies on every drive.
    area: Area,
    told: Option<Told>,
}

impl Machine {
    pub(super) fn new(setup: Setup, schedule: Schedule) -> Machine {
        let Setup {
            geometry,
            config,
            places,
            disks,
            regions,
            suspects,
            log,
            model,
            told,
        } = setup;
        let first = places.iter().flatten().next().expect("some member");
        let area = first.layout.data;
        let owners = Owners::new(|_| ME);
        let identity = MapIdentity {
            array: ArrayIndex(0),
            geometry,
            owners,
            home: ME,
        };
        let known = (&regions, suspects);
        let map = Arc::new(initial_map(identity, &config, &places, known));
        let begun = told.as_ref().map(Told::begun);
        let shared = Shared::new(&map, &regions, (log, 1), begun);
        let settings = CoordinatorSettings {
            config,
            places,
            reactors: vec![ME],
            seed: 1,
            window_bytes: geometry.stripe_bytes(),
            regions,
            clear_after: CLEAR_AFTER,
            renew_after: RENEW_AFTER,
            clock: WallClock {
                at: Instant(0),
                seconds: 0,
            },
            created: 0,
        };
        let mut shard = Shard::new(ME, map, shared, room()).expect("memory");
        shard.set_coordinator(Coordinator::new(settings).expect("memory"));
        Machine {
            shard,
            outside: Outside {
                disks,
                taken: Vec::new(),
                now: Instant(0),
                room: AMPLE,
                completions: Vec::new(),
                events: Vec::new(),
            },
            schedule,
            hung: None,
            pool: guest_memory(),
            lists: SegmentSlots::new(IN_FLIGHT, 4),
            pending: BTreeMap::new(),
            model,
            cookie: 0,
            command: 0,
            answers: BTreeMap::new(),
            tight_polls: 0,
            errors: Errors::default(),
            change: Change::default(),
            asleep: Asleep::default(),
            area,
            told,
        }
    }

    /// What the next engine finds in memory, if this one is killed now.
    pub(super) fn memory(&self) -> Option<Memory> {
        let told = self.told.as_ref()?;
        Some(told.left(self.outside.now))
    }

    /// Tells apart what it says.
    pub(super) fn said(&self) -> u64 {
        self.told.as_ref().map_or(0, Told::said)
    }

    pub(super) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Tells machines apart whose guests may read other things.
    pub(super) fn knowledge(&self) -> u64 {
        self.model.fingerprint(mix)
    }

    /// Submits a request of the guest.
    pub(super) fn ask(&mut self, operation: Operation, start: u64, content: &[u8]) {
        let slot = (0..IN_FLIGHT)
            .find(|slot| self.pending.values().all(|pending| pending.slot != *slot))
            .expect("few requests");
        let buffer = self.pool.acquire().expect("one for each slot");
        let segment = self.pool.segment(&buffer).part(0, content.len());
        segment.copy_from_slice(content);
        let offset = bytes_usize(start) * 512;
        let token = match operation {
            Operation::Read => Token::Read(self.model.begin_read(offset)),
            Operation::Flush => Token::Flush(self.model.begin_flush()),
            Operation::Write | Operation::WriteZeroes | Operation::Discard => {
                Token::Write(self.model.begin_write(offset, content))
            }
        };
        let carries = matches!(operation, Operation::Read | Operation::Write);
        let list = self.lists.lend(slot, |list| {
            if carries {
                list.push(segment);
            }
        });
        let segments = if carries { list } else { SegmentList::EMPTY };
        self.cookie += 1;
        let request = Request {
            operation,
            start,
            blocks: u32::try_from(content.len() / 512).expect("short"),
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie: Cookie(self.cookie),
        };
        let pending = Pending {
            token,
            start,
            slot,
            buffer,
            bytes: content.len(),
            carries,
        };
        self.pending.insert(self.cookie, pending);
        self.asleep.wake();
        let taken = self.shard.submit(request, &mut self.outside);
        assert!(taken.is_ok(), "there is room");
    }

    /// Gives a command; its number.
    pub(super) fn command(&mut self, command: Command) -> u64 {
        self.command += 1;
        self.asleep.wake();
        self.shard.command(self.command, command);
        self.command
    }

    /// One event: the shard does what it can, then a drive answers or time passes. Whether anything
    /// happened.
    ///
    /// # Panics
    /// When a guest reads what it must not.
    pub(super) fn step(&mut self, watch: &mut dyn Watch) -> bool {
        self.pass_moment();
        let moved = self.advance();
        self.asleep.judge(moved, self.outside.now);
        self.pass_moment();
        watch.look(self);
        let Some(next) = self.next() else {
            self.asleep
                .fall((moved == 0).then(|| self.shard.deadline()));
            self.outside.now = Instant(self.outside.now.0 + nanoseconds(PAUSE));
            return moved > 0;
        };
        self.outside.now = Instant(self.outside.now.0 + 1_000);
        let taken = self.outside.taken.remove(next);
        let cookie = taken.request.cookie;
        let status = self.carry_out(taken);
        self.pass_moment();
        watch.look(self);
        self.shard.drive_done(cookie, status, &mut self.outside);
        self.collect();
        true
    }

    /// The shard does what it can, or a little where there is hardly any room; how much that was.
    fn advance(&mut self) -> usize {
        if self.schedule == Schedule::Tight {
            self.tight_polls += 1;
            self.outside.room = self.tight_polls % 3;
            let moved = self.shard.poll(&mut self.outside);
            self.collect();
            self.outside.room = AMPLE;
            // With nothing under way, whoever asks for more at once would wait for ever.
            if moved > 0 && !self.outside.taken.is_empty() {
                return moved;
            }
        }
        let mut moved = 0;
        for polls in 0.. {
            assert!(polls < POLLS_MAX, "the shard goes round and round");
            let progress = self.shard.poll(&mut self.outside);
            self.outside.room = AMPLE;
            moved += progress;
            self.collect();
            if progress == 0 {
                break;
            }
        }
        moved
    }

    /// Goes on until `done` says so.
    ///
    /// # Panics
    /// When that never happens: because nothing does, or because something does without end.
    pub(super) fn run(&mut self, watch: &mut dyn Watch, done: impl Fn(&Machine) -> bool) {
        let (mut steps, mut pauses, mut held) = (0, 0, None);
        while !done(self) {
            steps += 1;
            pauses = if self.step(watch) { 0 } else { pauses + 1 };
            let (now, is_holding) = (self.outside.now, self.shard.map().is_holding());
            held = is_holding.then(|| held.unwrap_or(now));
            if held.is_some_and(|since| now.since(since) >= AWAY) {
                self.end_error();
            }
            assert!(pauses < PAUSES_MAX, "it hangs: {:?}", self.shard);
            assert!(
                steps < STEPS_MAX,
                "it does not come to an end: {:?}",
                self.shard
            );
        }
    }

    /// Gives a command and goes on until it is answered.
    pub(super) fn finish(
        &mut self,
        watch: &mut dyn Watch,
        command: Command,
    ) -> Result<(), Refusal> {
        let number = self.command(command);
        self.run(watch, |machine| machine.answers.contains_key(&number));
        self.answers.remove(&number).expect("looked at")
    }

    /// Whether nobody waits for anything.
    pub(super) fn is_quiet(&self) -> bool {
        let runs = |pass: array::PassStatus| pass.state == PassState::Running;
        self.is_answered() && self.shard.is_idle() && !self.shard.pass_status().is_some_and(runs)
    }

    /// Whether the guest waits for nothing.
    pub(super) fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.outside.taken.is_empty()
    }

    /// Whether all have answered but the drive that hangs.
    pub(super) fn is_hanging(&self) -> bool {
        self.next().is_none()
    }

    /// Whether no write of the guest is under way.
    pub(super) fn is_written(&self) -> bool {
        let mut pending = self.pending.values();
        pending.all(|pending| !matches!(pending.token, Token::Write(_)))
    }

    /// Lets time pass until idle regions are clean.
    pub(super) fn idle(&mut self, watch: &mut dyn Watch) {
        self.run(watch, Machine::is_quiet);
        self.pass(watch, 4 * CLEAR_AFTER);
        self.run(watch, Machine::is_quiet);
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, watch: &mut dyn Watch, time: Duration) {
        let end = self.outside.now + time;
        self.run(watch, |machine| machine.outside.now >= end);
    }

    /// A drive hangs, or no drive does. What one is asked that hangs it carries out later, and what
    /// it writes then is what is in memory by then.
    pub(super) fn hang(&mut self, drive: Option<usize>) {
        let hung = std::mem::replace(&mut self.hung, drive);
        let taken = self.outside.taken.iter_mut();
        let asked = taken.filter(|taken| Some(taken.request.drive.at()) == hung);
        asked.for_each(Taken::read_again);
    }

    /// The process ends.
    pub(super) fn die(mut self) {
        self.shard.die();
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.lists.take_back(pending.slot);
            self.pool.release(pending.buffer);
        }
    }

    fn next(&self) -> Option<usize> {
        let taken = self.outside.taken.iter();
        let taken = taken.map(|taken| taken.request.drive.at()).enumerate();
        let mut taken = taken.filter(|(_, drive)| self.hung != Some(*drive));
        let next = match self.schedule {
            Schedule::Oldest | Schedule::Tight => taken.next(),
            Schedule::Newest => taken.next_back(),
            Schedule::Late(late) => {
                let mut others = taken.clone().filter(|(_, drive)| *drive != late);
                others.next().or_else(|| taken.next())
            }
        };
        next.map(|(position, _)| position)
    }

    fn carry_out(&mut self, mut taken: Taken) -> Status {
        if let Some(status) = self.err(&mut taken) {
            return status;
        }
        let Taken {
            request,
            write,
            began,
        } = taken;
        let disk = &mut self.outside.disks[request.drive.at()];
        if disk.gone {
            return Status::Gone;
        }
        match request.operation {
            Operation::Read if disk.is_unreadable(request.offset, request.length) => {
                return Status::Media;
            }
            Operation::Read => {
                let content = disk.get(request.offset, request.length);
                let mut done = 0;
                for segment in request.segments.as_slice() {
                    segment.copy_from_slice(&content[done..done + segment.len()]);
                    done += segment.len();
                }
            }
            Operation::Flush => disk.flush(began),
            Operation::Write | Operation::WriteZeroes | Operation::Discard => {
                let write = write.expect("it writes");
                if let Some(refused) = disk.refused(&write) {
                    return self.refuse(request.drive.at(), refused);
                }
                disk.write(write);
            }
        }
        Status::Ok
    }

    fn collect(&mut self) {
        for event in self.outside.events.drain(..) {
            if let Event::CommandDone { id, result } = event {
                self.answers.insert(id, result);
            }
        }
        for completion in std::mem::take(&mut self.outside.completions) {
            let pending = self.pending.remove(&completion.cookie.0).expect("once");
            let well = completion.status.is_ok();
            assert!(well || self.may_fail(&pending), "{:?}", pending.token);
            let mut found = vec![0; pending.bytes];
            let segment = self.pool.segment(&pending.buffer).part(0, pending.bytes);
            segment.copy_to_slice(&mut found);
            match pending.token {
                Token::Write(write) if !well => self.model.fail_write(write),
                Token::Write(write) => self.model.finish_write(write),
                Token::Flush(flush) => self.model.finish_flush(flush),
                Token::Read(read) if !well => self.model.abandon_read(&read),
                Token::Read(read) => {
                    let judged = self.model.finish_read(read, &found);
                    judged.unwrap_or_else(|mismatch| panic!("{mismatch}"));
                }
            }
            self.lists.take_back(pending.slot);
            self.pool.release(pending.buffer);
        }
    }
}

fn guest_memory() -> Pool {
    let backing = Backing::Anonymous(Pages::Plain);
    Pool::new(IN_FLIGHT, REQUEST_BYTES, backing).expect("memory")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("short")
}
