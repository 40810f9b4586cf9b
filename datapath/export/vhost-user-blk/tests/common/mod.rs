//! A host for tests: one thread is the reactor, a vector is the volume, and time stands still
//! where a test wants it to.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "shared by several test programs, each of which uses a part"
)]

pub mod machine;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use block::{Full, Operation, Request, Status};
use memory::{RegionTable, Segment};
use units::{BlockSize, Clock, MonotonicClock, bytes_usize};
use vhost_user_blk::{
    Access, CacheMode, Counters, Event, Host, MemoryChange, Profile, Queue, QueueKey, RangeLimits,
    Session, SessionEvent, SessionHandle, Settings, Sharing, SocketSettings,
};
use vmm_sys_util::poll::PollContext;

/// Sectors of the volume of most tests.
pub const SECTORS: u64 = 8192;

pub fn profile(queues: u16) -> Profile {
    let limits = RangeLimits {
        sectors_max: 2048,
        ranges_max: 16,
        alignment_sectors: 8,
    };
    Profile {
        serial: *b"0123456789abcdef0123",
        block: BlockSize::B512,
        logical_block: BlockSize::B512,
        physical_block_exponent: 3,
        minimum_io_blocks: 128,
        optimal_io_blocks: 512,
        queues,
        queue_size: 256,
        cache: CacheMode::WriteBack,
        access: Access::ReadWrite,
        discard: Some(limits),
        write_zeroes: Some(limits),
    }
}

/// What was asked of the volume, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub operation: Operation,
    pub start: u64,
    pub blocks: u32,
}

/// The volume: bytes that outlive engines.
#[derive(Debug, Default)]
pub struct Volume {
    pub bytes: Vec<u8>,
    /// Bytes that a power cut would leave: the bytes at the last flush.
    pub durable: Vec<u8>,
    pub asked: Vec<Asked>,
    /// Times that each block was written, for tests that count.
    pub writes: BTreeMap<u64, u32>,
}

impl Volume {
    pub fn new(sectors: u64) -> Arc<Mutex<Volume>> {
        let bytes = vec![0; bytes_usize(sectors * 512)];
        Arc::new(Mutex::new(Volume {
            durable: bytes.clone(),
            bytes,
            ..Volume::default()
        }))
    }

    fn perform(&mut self, request: &Request) -> Status {
        let start = bytes_usize(request.start * 512);
        let length = bytes_usize(u64::from(request.blocks) * 512);
        let Some(bytes) = self.bytes.get_mut(start..start + length) else {
            return Status::OutOfRange;
        };
        let mut at = 0;
        let mut part = |segment: Segment| {
            at += segment.len();
            at - segment.len()..at
        };
        match request.operation {
            Operation::Read => request.segments.for_each_part(0, length, |segment| {
                segment.copy_from_slice(&bytes[part(segment)]);
            }),
            Operation::Write => {
                request.segments.for_each_part(0, length, |segment| {
                    segment.copy_to_slice(&mut bytes[part(segment)]);
                });
                *self.writes.entry(request.start).or_default() += 1;
            }
            Operation::Flush => self.durable.clone_from(&self.bytes),
            Operation::Discard | Operation::WriteZeroes => bytes.fill(0),
        }
        Status::Ok
    }
}

/// What the reactor does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Performs and completes them.
    Serve,
    /// Takes them and does nothing.
    Hold,
    /// Performs them and does not say so.
    PerformAndHold,
    /// Takes so many and is full then; performs them, last first.
    Full(usize),
    /// Serves everything but flushes, which it takes and holds.
    HoldFlushes,
    /// Completes with a media error.
    Fail,
    /// Completes with a media error what begins at this block, and serves the rest.
    FailAt(u64),
}

struct State {
    queues: BTreeMap<QueueKey, Queue>,
    held: VecDeque<(QueueKey, Request)>,
    mode: Mode,
    events: Vec<SessionEvent>,
    /// Counters of queues that were stopped.
    counted: Vec<Counters>,
    memory_changes: Vec<MemoryChange>,
    turns_idle: u64,
    stopping: bool,
}

/// A host with one reactor.
pub struct TestHost {
    state: Mutex<State>,
    changed: Condvar,
    wake: Event,
    volume: Arc<Mutex<Volume>>,
}

impl TestHost {
    pub fn start(volume: &Arc<Mutex<Volume>>) -> (Arc<TestHost>, Reactor) {
        let host = Arc::new(TestHost {
            state: Mutex::new(State {
                queues: BTreeMap::new(),
                held: VecDeque::new(),
                mode: Mode::Serve,
                events: Vec::new(),
                counted: Vec::new(),
                memory_changes: Vec::new(),
                turns_idle: 0,
                stopping: false,
            }),
            changed: Condvar::new(),
            wake: Event::new().unwrap(),
            volume: Arc::clone(volume),
        });
        let reactor = Arc::clone(&host);
        let thread = Builder::new()
            .name("reactor".to_owned())
            .spawn(move || reactor.run())
            .unwrap();
        let reactor = Reactor {
            host: Arc::clone(&host),
            thread: Some(thread),
        };
        (host, reactor)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
        self.wake.signal();
    }

    /// Waits until something is true of the host.
    fn wait_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.state();
        loop {
            if let Some(found) = found(&mut state) {
                return found;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until so many requests are held.
    pub fn wait_held(&self, count: usize) {
        self.wait_for(|state| (state.held.len() >= count).then_some(()));
    }

    /// Waits for an event and takes it and all before it.
    pub fn wait_event(&self, is_it: impl Fn(&SessionEvent) -> bool) -> SessionEvent {
        self.wait_for(|state| {
            let at = state.events.iter().position(&is_it)?;
            state.events.drain(..=at).next_back()
        })
    }

    pub fn events(&self) -> Vec<SessionEvent> {
        self.state().events.clone()
    }

    pub fn memory_changes(&self) -> Vec<MemoryChange> {
        self.state().memory_changes.clone()
    }

    pub fn running(&self) -> Vec<QueueKey> {
        self.state().queues.keys().copied().collect()
    }

    pub fn counters(&self, key: QueueKey) -> Counters {
        self.state().queues[&key].counters().clone()
    }

    /// Counters of the queues that were stopped.
    pub fn counted(&self) -> Vec<Counters> {
        self.state().counted.clone()
    }

    pub fn volume(&self) -> MutexGuard<'_, Volume> {
        self.volume.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the reactor has nothing to do and has asked for kicks.
    pub fn wait_idle(&self) {
        // The first idle turn may have begun before what the test did.
        for _ in 0..2 {
            let before = self.state().turns_idle;
            self.wake.signal();
            self.wait_for(|state| (state.turns_idle > before).then_some(()));
        }
    }

    fn run(&self) {
        loop {
            let mut state = self.state();
            if state.stopping {
                return;
            }
            let worked = self.turn(&mut state);
            self.changed.notify_all();
            if worked {
                continue;
            }
            let mut waiting = false;
            for queue in state.queues.values_mut() {
                // What the volume handed back waits for the test, not for a kick.
                waiting |= queue.enable_kicks() && !queue.is_held();
            }
            state.turns_idle += 1;
            self.changed.notify_all();
            if waiting {
                continue;
            }
            let context: PollContext<u32> = PollContext::new().unwrap();
            let kicks: Vec<Event> = (state.queues.values())
                .filter_map(|queue| queue.kick().cloned())
                .collect();
            drop(state);
            context.add(&self.wake.as_fd().as_raw_fd(), 0).unwrap();
            for kick in &kicks {
                context.add(&kick.as_fd().as_raw_fd(), 0).unwrap();
            }
            let _ = context.wait().unwrap();
            self.wake.clear();
            for queue in self.state().queues.values_mut() {
                queue.clear_kick();
                queue.disable_kicks();
            }
        }
    }

    /// One turn over all queues. Whether anything happened.
    fn turn(&self, state: &mut State) -> bool {
        let State {
            queues, held, mode, ..
        } = state;
        let mut worked = 0;
        let now = MonotonicClock.now();
        for (key, queue) in queues.iter_mut() {
            worked += queue.poll(now, &mut |request| {
                if let Mode::Full(most) = *mode
                    && held.len() >= most
                {
                    return Err(Full(request));
                }
                let mut volume = self.volume();
                volume.asked.push(Asked {
                    operation: request.operation,
                    start: request.start,
                    blocks: request.blocks,
                });
                if *mode == Mode::PerformAndHold {
                    volume.perform(&request);
                }
                held.push_back((*key, request));
                Ok(())
            });
        }
        while let Some((key, request, status)) = self.next_done(*mode, held) {
            let slot = u32::try_from(request.cookie.0).unwrap();
            let queue = queues.get_mut(&key).expect("queues are drained first");
            queue.complete(slot, status, now);
            worked += 1;
        }
        for queue in queues.values_mut() {
            worked += queue.publish();
        }
        worked > 0
    }

    /// The next request that is to be completed, and how.
    fn next_done(
        &self,
        mode: Mode,
        held: &mut VecDeque<(QueueKey, Request)>,
    ) -> Option<(QueueKey, Request, Status)> {
        let (key, request) = match mode {
            Mode::Hold | Mode::PerformAndHold => None,
            Mode::HoldFlushes => {
                let at = held
                    .iter()
                    .position(|(_, request)| request.operation != Operation::Flush)?;
                held.remove(at)
            }
            Mode::Full(_) => held.pop_back(),
            Mode::Serve | Mode::Fail | Mode::FailAt(_) => held.pop_front(),
        }?;
        let fails = mode == Mode::Fail || mode == Mode::FailAt(request.start);
        let status = if fails {
            Status::Media
        } else {
            self.volume().perform(&request)
        };
        Some((key, request, status))
    }

    fn with_queue(&self, key: QueueKey, change: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.state().queues.get_mut(&key) {
            change(queue);
        }
        self.wake.signal();
    }
}

impl Host for TestHost {
    fn start_queue(&self, key: QueueKey, queue: Queue) {
        let before = self.state().queues.insert(key, queue);
        assert!(before.is_none(), "{key} was started twice");
        self.wake.signal();
    }

    fn stop_queue(&self, key: QueueKey) -> u32 {
        self.with_queue(key, Queue::quiesce);
        self.wait_for(|state| {
            let drained = state.queues.get(&key).is_none_or(Queue::is_drained);
            drained.then_some(())?;
            // A killed engine has no queues any more.
            let Some(queue) = state.queues.remove(&key) else {
                return Some(0);
            };
            state.counted.push(queue.counters().clone());
            Some(queue.stop())
        })
    }

    fn set_memory(&self, front_end: u32, memory: &Arc<RegionTable>, change: MemoryChange) {
        let mut state = self.state();
        state.memory_changes.push(change);
        for (key, queue) in &mut state.queues {
            if key.front_end == front_end {
                queue.set_memory(Arc::clone(memory));
            }
        }
        drop(state);
        if change == MemoryChange::Removed {
            self.wait_for(|state| {
                let of = |key: &QueueKey| key.front_end == front_end;
                let mut queues = state.queues.iter().filter(|(key, _)| of(key));
                queues.all(|(_, queue)| queue.has_let_go()).then_some(())
            });
        }
    }

    fn set_call(&self, key: QueueKey, call: Option<Event>) {
        self.with_queue(key, |queue| queue.set_call(call));
    }

    fn set_kick(&self, key: QueueKey, kick: Option<Event>) {
        self.with_queue(key, |queue| queue.set_kick(kick));
    }

    fn set_error(&self, key: QueueKey, error: Option<Event>) {
        self.with_queue(key, |queue| queue.set_error(error));
    }

    fn event(&self, event: &SessionEvent) {
        self.state().events.push(event.clone());
        self.changed.notify_all();
    }
}

/// Ends the reactor's thread when it goes.
pub struct Reactor {
    host: Arc<TestHost>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.host.state().stopping = true;
        self.host.wake.signal();
        let ended = self.thread.take().expect("joined once").join();
        if !std::thread::panicking() {
            ended.expect("the reactor does not panic");
        }
    }
}

/// An engine that serves one export.
pub struct Engine {
    pub host: Arc<TestHost>,
    pub session: Option<SessionHandle>,
    reactor: Option<Reactor>,
    pub path: PathBuf,
}

/// A place for sockets that goes when the test ends.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn settings(path: &std::path::Path, profile: Profile) -> Settings {
    Settings {
        name: "test".to_owned(),
        socket: SocketSettings {
            path: path.to_owned(),
            owner: None,
            group: None,
            mode: 0o600,
        },
        sharing: Sharing::Exclusive,
        profile,
        sectors: SECTORS,
    }
}

impl Engine {
    pub fn start(settings: Settings, volume: &Arc<Mutex<Volume>>) -> Engine {
        let (host, reactor) = TestHost::start(volume);
        let path = settings.socket.path.clone();
        let session = Session::start(settings, Arc::clone(&host) as Arc<dyn Host>).unwrap();
        session.set_ready(true);
        Engine {
            host,
            session: Some(session),
            reactor: Some(reactor),
            path,
        }
    }

    pub fn session(&self) -> &SessionHandle {
        self.session.as_ref().expect("not stopped")
    }

    /// What `kill -9` leaves of an engine: nothing is answered, nothing is finished. What the
    /// reactor had taken and not answered is as good as lost.
    pub fn kill(mut self) {
        let mut state = self.host.state();
        state.mode = Mode::Hold;
        let queues = std::mem::take(&mut state.queues);
        state.held.clear();
        self.host.changed.notify_all();
        drop(state);
        drop(queues);
        drop(self.session.take());
        drop(self.reactor.take());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A test that fails ends, whatever it holds.
            self.host.set_mode(Mode::Serve);
        }
        drop(self.session.take());
        drop(self.reactor.take());
    }
}
