//! One ring of one export on one reactor: chains in, requests out, answers back.
//!
//! No thread, no socket, no clock: the reactor that owns the queue calls [`Queue::poll`],
//! [`Queue::complete`] and [`Queue::publish`] each turn. Whatever a guest does wrong breaks its
//! own queue only. What does not live here: what chains mean (`request.rs`), how rings work
//! (crate `virtqueue`).

mod retired;
mod slot;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use block::{Full, Operation, Request, Status};
use memory::guest::{Mapping, RegionTable};
use memory::{Segment, SegmentList, SegmentSlots};
use units::{BlockSize, Instant, bytes_u64};
use virtqueue::planted::{self, Fault};
use virtqueue::{Chain, RingError, Vring};

use crate::counters::{Answer, Counters};
use crate::profile::{CacheMode, Shown};
use crate::request::{self, Malformed, Parts, Work};
use crate::system::Event;
use retired::Retired;
use slot::{Phase, Slot, worse};

/// Segments of a request for which there is room from the start; larger requests make room once.
const SEGMENTS_AT_START: usize = 8;
/// A request of so many pieces of memory more counts as one request more of those that a poll takes
/// at most.
const SEGMENTS_OF_ONE: usize = 32;

/// Why a queue does not serve any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The guest broke a rule of its ring.
    Ring(RingError),
    /// A request has no header, or no place for its status.
    Request(Malformed),
    /// The front-end took memory away that it had promised.
    MemoryGone,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Ring(error) => error.fmt(f),
            Broken::Request(Malformed::ShortHeader) => {
                f.write_str("a request is shorter than its header")
            }
            Broken::Request(Malformed::NoStatus) => {
                f.write_str("a request has no place for its status")
            }
            Broken::MemoryGone => f.write_str("guest memory was taken away under the queue"),
        }
    }
}

/// Where a queue says that it is broken, and whom it wakes to say so.
#[derive(Debug)]
pub struct Notice {
    why: Mutex<Option<Broken>>,
    wake: Event,
}

impl Notice {
    /// An empty notice; `wake` is signalled when it is filled.
    #[must_use]
    pub fn new(wake: Event) -> Notice {
        Notice {
            why: Mutex::new(None),
            wake,
        }
    }

    fn give(&self, why: Broken) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.wake.signal();
    }

    /// Takes what was said.
    #[must_use]
    pub fn take(&self) -> Option<Broken> {
        self.why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// The event descriptors of a queue.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// The guest wakes us; `None`: it never does, so the ring must be polled always.
    pub kick: Option<Event>,
    /// We wake the guest; `None`: it polls.
    pub call: Option<Event>,
    /// We say that the queue is broken.
    pub error: Option<Event>,
}

/// What a queue is made of.
#[derive(Debug)]
pub struct QueueSetup {
    /// The ring, with its in-flight region if there is one.
    pub vring: Vring,
    /// Descriptors of the ring.
    pub size: u16,
    /// What the ring and its in-flight region lie in.
    pub kept: Vec<Arc<Mapping>>,
    /// Guest memory.
    pub memory: Arc<RegionTable>,
    /// Event descriptors.
    pub events: Events,
    /// What the guest is shown.
    pub shown: Arc<Shown>,
    /// The feature word that was negotiated.
    pub features: u64,
    /// Where to say that the queue is broken.
    pub notice: Arc<Notice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Finishes what was taken; takes nothing new.
    Quiescing,
    Broken(Broken),
}

/// One ring of one export on one reactor.
#[derive(Debug)]
pub struct Queue {
    vring: Vring,
    state: State,
    chain: Chain,
    slots: Vec<Slot>,
    lists: SegmentSlots,
    /// The slot whose next piece found the volume full. Nothing is taken before it is through.
    held: Option<u16>,
    /// Slots whose write is done and whose flush is not yet submitted.
    flushes: VecDeque<u16>,
    pending: usize,
    unpublished: usize,
    /// Whether `publish` was never called: an engine before us may have owed a call.
    fresh: bool,
    kept: Vec<Arc<Mapping>>,
    memory: Arc<RegionTable>,
    retired: Retired,
    events: Events,
    shown: Arc<Shown>,
    features: u64,
    notice: Arc<Notice>,
    counters: Counters,
}

impl Queue {
    /// A queue that has taken nothing yet. All its room is made here.
    #[must_use]
    pub fn new(setup: QueueSetup) -> Queue {
        let size = usize::from(setup.size);
        Queue {
            vring: setup.vring,
            state: State::Running,
            chain: Chain::with_capacity(size),
            slots: (0..size).map(|_| Slot::free()).collect(),
            lists: SegmentSlots::new(size, SEGMENTS_AT_START),
            held: None,
            flushes: VecDeque::with_capacity(size),
            pending: 0,
            unpublished: 0,
            fresh: true,
            kept: setup.kept,
            memory: setup.memory,
            retired: Retired::default(),
            events: setup.events,
            shown: setup.shown,
            features: setup.features,
            notice: setup.notice,
            counters: Counters::default(),
        }
    }

    /// Takes what the guest has made available by now, and hands it to `submit` in order, until
    /// there is nothing more or `submit` is full; what was handed back is tried again next time.
    /// Cookies are slot numbers below the ring's size. Returns how many requests were submitted or
    /// answered.
    pub fn poll(
        &mut self,
        now: Instant,
        submit: &mut impl FnMut(Request) -> Result<(), Full<Request>>,
    ) -> usize {
        if matches!(self.state, State::Broken(_)) {
            return 0;
        }
        if self.memory_is_gone() {
            self.break_down(Broken::MemoryGone);
            return 0;
        }
        if planted::is(Fault::AnsweredBeforeStatus) {
            let answered = |slot: &&Slot| slot.phase == Phase::Free && !slot.status.is_empty();
            let answered = self.slots.iter().filter(answered);
            answered.for_each(Slot::write_status);
        }
        let mut done = 0;
        // At most one ring's worth, so that one queue does not keep its reactor for itself. One
        // of many pieces is more than one: nothing else counts those that are not the volume's.
        let mut most = self.slots.len();
        // One call of `submit` for all that there is to submit: it is long, and inlined here.
        while let Some(index) = self.next_slot(now, &mut most, &mut done) {
            let slot = &mut self.slots[usize::from(index)];
            while slot.submitted < slot.pieces {
                if submit(slot.next_request()).is_err() {
                    self.hold(index);
                    return done;
                }
                slot.submitted += 1;
                slot.outstanding += 1;
                done += 1;
            }
        }
        done
    }

    /// Takes the verdict on a request. The guest sees the answer after [`Queue::publish`].
    ///
    /// # Panics
    /// When nothing was submitted with that slot number.
    // Inlined into the loop over answers, or each of them saves and restores all registers.
    #[inline(always)]
    pub fn complete(&mut self, slot: u32, status: Status, now: Instant) {
        let index = u16::try_from(slot).expect("a slot number is below the ring's size");
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.outstanding > 0, "a slot is completed once");
        slot.outstanding -= 1;
        slot.verdict = worse(slot.verdict, status);
        let broken = matches!(self.state, State::Broken(_));
        if slot.outstanding > 0 || (!broken && slot.submitted < slot.pieces) {
            return;
        }
        let moved = slot.phase == Phase::Moving && slot.verdict.is_ok() && !broken;
        if slot.through && moved && slot.operation().is_some_and(Operation::changes) {
            slot.begin_flush();
            self.flushes.push_back(index);
            self.counters.flushes_added += 1;
        } else {
            self.finish_now(index, now);
        }
    }

    /// Shows the guest all answers and calls it if it wants that. Returns how many answers.
    pub fn publish(&mut self) -> usize {
        let answers = std::mem::take(&mut self.unpublished);
        if answers == 0 && !self.fresh {
            return 0;
        }
        if self.memory_is_gone() {
            // What was moved meanwhile came from nowhere, so nothing is acknowledged for it.
            self.break_down(Broken::MemoryGone);
            return answers;
        }
        self.fresh = false;
        if self.vring.publish()
            && let Some(call) = &self.events.call
        {
            call.signal();
            self.counters.calls += 1;
        }
        answers
    }

    /// The unit of the requests that it submits.
    #[must_use]
    pub fn block(&self) -> BlockSize {
        self.shown.profile.block
    }

    /// How many chains were taken and not yet answered.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Replaces the call, and calls once: the guest may have missed one in between.
    pub fn set_call(&mut self, call: Option<Event>) {
        if let Some(call) = &call {
            call.signal();
            self.counters.calls += 1;
        }
        self.events.call = call;
    }

    /// Replaces the kick.
    pub fn set_kick(&mut self, kick: Option<Event>) {
        self.events.kick = kick;
    }

    /// Replaces the event that says that the queue is broken.
    pub fn set_error(&mut self, error: Option<Event>) {
        self.events.error = error;
    }

    /// What to wait for while no reactor polls; `None`: the queue must be polled always.
    #[must_use]
    pub fn kick(&self) -> Option<&Event> {
        self.events.kick.as_ref()
    }

    /// Takes a kick that has come.
    pub fn clear_kick(&mut self) {
        let kicked = self.events.kick.as_ref().is_some_and(Event::clear);
        self.counters.kicks += u64::from(kicked);
    }

    /// Asks for a kick at the next request. Whether there is work already, for which no kick
    /// will come.
    #[must_use = "no kick comes for work that is there already"]
    pub fn enable_kicks(&mut self) -> bool {
        let owes = self.held.is_some() || !self.flushes.is_empty() || self.owes_recovered();
        (self.state == State::Running && self.vring.enable_kicks()) || owes
    }

    /// Whether there is something for [`Queue::poll`] to see: requests, or that memory is gone.
    #[must_use]
    pub fn wants_a_look(&self) -> bool {
        self.state == State::Running && (self.vring.waiting() || self.memory_is_gone())
    }

    /// Whether a request that was taken waits because the volume handed it back. Nothing new is
    /// taken before it is through.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether flushes that follow writes are still to be submitted.
    #[must_use]
    pub fn owes_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Tells the guest that no kicks are needed.
    pub fn disable_kicks(&mut self) {
        if self.state == State::Running {
            self.vring.disable_kicks();
        }
    }

    /// Takes nothing new from now on. What was taken goes on; see [`Queue::is_drained`].
    pub fn quiesce(&mut self) {
        if self.state == State::Running {
            self.state = State::Quiescing;
        }
    }

    /// Takes requests again after [`Queue::quiesce`].
    pub fn resume(&mut self) {
        if self.state == State::Quiescing {
            self.state = State::Running;
        }
    }

    /// Whether everything that was taken is answered and shown.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let is_drained = self.pending == 0 && self.unpublished == 0;
        is_drained && !self.owes_recovered() || planted::is(Fault::LeavesUndrained)
    }

    /// Ends the queue. Returns where the ring goes on, for `GET_VRING_BASE`.
    ///
    /// # Panics
    /// When it is not drained.
    #[must_use]
    pub fn stop(self) -> u32 {
        assert!(self.is_drained(), "{} chains are pending", self.pending);
        self.vring.base()
    }

    /// Why the queue does not serve any more, if so.
    #[must_use]
    pub fn broken(&self) -> Option<Broken> {
        match self.state {
            State::Broken(why) => Some(why),
            State::Running | State::Quiescing => None,
        }
    }

    /// What the queue has done.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a queue that takes nothing new is still to take what an engine before had taken: it
    /// is not new, and where the ring goes on lies behind it.
    fn owes_recovered(&self) -> bool {
        let owes = self.state == State::Quiescing && self.vring.owes_recovered();
        owes && !planted::is(Fault::StopsBeforeRecovered)
    }

    /// The slot of which something is to be submitted next: flushes that write-through added, what
    /// was handed back, and then what the guest asks for.
    #[inline(always)]
    fn next_slot(&mut self, now: Instant, most: &mut usize, done: &mut usize) -> Option<u16> {
        if !self.flushes.is_empty() {
            return self.flushes.pop_front();
        }
        if self.held.is_some() {
            return self.held.take();
        }
        while *most > 0 && (self.state == State::Running || self.owes_recovered()) {
            if *most < self.slots.len() && !self.vring.sees_more() {
                break;
            }
            *most -= 1;
            match self.vring.pop(&*self.memory, &mut self.chain) {
                Ok(false) => break,
                Err(error) => self.break_down(Broken::Ring(error)),
                Ok(true) => {
                    let segments = self.chain.readable.len() + self.chain.writable.len();
                    *most = most.saturating_sub(segments / SEGMENTS_OF_ONE);
                    if let Some(index) = self.take(now, done) {
                        return Some(index);
                    }
                }
            }
        }
        None
    }

    /// The volume is full: the slot is the first to be submitted when it is asked again.
    #[cold]
    fn hold(&mut self, index: u16) {
        self.counters.full += 1;
        match self.slots[usize::from(index)].phase {
            Phase::Flushing => self.flushes.push_front(index),
            Phase::Moving => self.held = Some(index),
            Phase::Free => unreachable!("nothing of it is to be submitted"),
        }
    }

    /// Parses the chain that was popped. The slot, if anything is to be submitted for it.
    #[inline(always)]
    fn take(&mut self, now: Instant, done: &mut usize) -> Option<u16> {
        let parts = Parts {
            readable: &self.chain.readable,
            writable: &self.chain.writable,
            readable_bytes: self.chain.readable_bytes,
            writable_bytes: self.chain.writable_bytes,
        };
        let envelope = match request::open(parts) {
            Ok(envelope) => envelope,
            Err(why) => {
                self.break_down(Broken::Request(why));
                return None;
            }
        };
        let index = self.chain.head.id();
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.phase == Phase::Free, "a ring gives a head once");
        let shown = (&self.shown.profile, self.shown.sectors());
        slot.work = request::parse(&envelope, parts, shown, &mut slot.ranges);
        slot.phase = Phase::Moving;
        slot.head = self.chain.head;
        slot.bytes = 0;
        (slot.submitted, slot.outstanding) = (0, 0);
        slot.verdict = Status::Ok;
        slot.through = self.shown.cache_for(self.features) == CacheMode::WriteThrough
            && !planted::is(Fault::ThroughWithoutFlush);
        slot.status = envelope.status;
        slot.writable = envelope.writable;
        slot.begun = now;
        slot.table = self.retired.current;
        slot.pieces = match slot.work {
            Work::Answer(status) => {
                slot.verdict = status;
                0
            }
            Work::Serial => {
                request::copy_serial(parts, &self.shown.profile.serial);
                0
            }
            Work::Move(operation, blocks) => {
                let fill = |list: &mut Vec<Segment>| request::data_of(operation, parts, list);
                let list = usize::from(index);
                slot.segments = match request::only_data_of(operation, parts) {
                    Some(data) => self.lists.lend_one(list, data),
                    None => self.lists.lend(list, fill),
                };
                slot.bytes = u64::from(blocks.count) << self.shown.profile.block.shift();
                1
            }
            Work::Large(operation) => {
                slot.segments = self.lists.lend(usize::from(index), |list| {
                    request::data_of(operation, parts, list);
                    request::cut_data(list);
                });
                slot.bytes = bytes_u64(slot.segments.bytes());
                slot.ranges.len()
            }
            Work::Flush => 1,
            Work::Ranges(_) => slot.ranges.len(),
        };
        let pieces = slot.pieces;
        self.pending += 1;
        self.counters.resubmitted += u64::from(self.chain.again);
        if pieces == 0 {
            self.finish(index, now);
            *done += 1;
            return None;
        }
        Some(index)
    }

    /// Answers a chain that asked for nothing of the volume, or that nobody waits for any more.
    #[cold]
    fn finish(&mut self, index: u16, now: Instant) {
        self.finish_now(index, now);
    }

    /// Answers a chain and frees its slot. A broken queue answers nothing.
    #[inline(always)]
    fn finish_now(&mut self, index: u16, now: Instant) {
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.phase != Phase::Free && slot.outstanding == 0);
        slot.phase = Phase::Free;
        if matches!(slot.work, Work::Move(..) | Work::Large(_)) {
            slot.segments = SegmentList::EMPTY;
            self.lists.take_back(usize::from(index));
        }
        self.pending -= 1;
        if !matches!(self.state, State::Broken(_)) {
            if !planted::is(Fault::AnsweredBeforeStatus) {
                slot.write_status();
            }
            // A chain's bytes are bounded far below 4 GiB by the ring.
            let written = u32::try_from(slot.writable).unwrap_or(u32::MAX);
            self.vring.push(slot.head, written);
            self.unpublished += 1;
            let answer = Answer {
                well: slot.verdict.is_ok(),
                took_ns: now.0.saturating_sub(slot.begun.0),
            };
            let operation = slot.operation();
            self.counters.answered(operation, slot.bytes, answer);
        }
        // Last: its status was still in that memory.
        if slot.table != self.retired.current {
            self.retired.answered();
        }
    }

    fn memory_is_gone(&self) -> bool {
        self.memory.is_broken() || self.kept.iter().any(|mapping| mapping.is_broken())
    }

    /// Gives the queue up: nothing is taken or answered any more. What was submitted finishes
    /// silently; the guest may find its requests again after it has reset its ring.
    fn break_down(&mut self, why: Broken) {
        if matches!(self.state, State::Broken(_)) {
            return;
        }
        // A ring whose memory is gone reads as zeroes, which is wrong in a way of its own.
        let why = if self.memory_is_gone() {
            Broken::MemoryGone
        } else {
            why
        };
        self.state = State::Broken(why);
        self.held = None;
        self.flushes.clear();
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.phase != Phase::Free && slot.outstanding == 0 {
                let index = u16::try_from(index).expect("a ring has at most 1024 slots");
                let begun = slot.begun;
                self.finish(index, begun);
            }
        }
        if let Some(error) = &self.events.error {
            error.signal();
        }
        self.notice.give(why);
    }
}

impl Drop for Queue {
    /// Requests that are still pending go on to use the memory, so it stays mapped for ever.
    fn drop(&mut self) {
        if self.pending > 0 {
            std::mem::forget(Arc::clone(&self.memory));
            std::mem::forget(std::mem::take(&mut self.retired.tables));
        }
    }
}
