//! The load: random writes, reads and flushes on all queues, every read compared with what the
//! block must hold, on a thread of its own.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use units::{Clock, Instant, MonotonicClock};

use super::content::{BLOCK_BYTES, Content};
use super::machine::{Answered, Kind, Machine, QUEUES, REQUEST_BLOCKS_MAX, Request};

/// Longest silence of the engine that is taken for a pause and not for the end.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How often the thread looks at what it is told, and tries to connect.
const LOOK: Duration = Duration::from_millis(5);
/// Blocks of a request: mostly small, some as large as a full stripe and larger.
const SIZES: [u32; 10] = [1, 1, 1, 1, 2, 4, 16, 32, 64, REQUEST_BLOCKS_MAX];

/// What the load is told to do, and has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing; reached when nothing is in flight.
    #[default]
    Pause,
    /// Random requests; reached at once.
    Run,
    /// Read every block; reached when all were read.
    Verify,
    /// End.
    Stop,
}

/// What was done, all told.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Tally {
    /// Requests answered.
    pub(super) requests: u64,
    /// Bytes written.
    pub(super) written_bytes: u64,
    /// Bytes read and found right.
    pub(super) verified_bytes: u64,
    /// Requests that failed, and blocks that held something else than was written.
    pub(super) errors: u64,
    /// The longest time without an answer while requests were in flight, since it was last asked.
    pub(super) pause_us_max: u64,
    /// Connections after the first.
    pub(super) reconnects: u64,
    /// Blocks found right by the last full reading.
    pub(super) blocks_verified: u64,
    /// What went wrong first.
    pub(super) fault: Option<String>,
    /// A block held something else than was written.
    pub(super) is_wrong: bool,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mode,
    reached: Mode,
    tally: Tally,
}

/// The thread, from outside.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Load {
    /// Connects to `socket` and waits for orders. `blocks` is the size of the volume, `seed`
    /// chooses the requests and the bytes.
    pub(super) fn start(socket: PathBuf, blocks: u32, seed: u64) -> io::Result<Load> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let mut machine = Machine::new(socket)?;
        machine.connect()?;
        let theirs = Arc::clone(&shared);
        let thread = Builder::new().name("demo-load".into()).spawn(move || {
            let mut worker = Worker::new(machine, theirs, (blocks, seed));
            worker.run()
        })?;
        Ok(Load {
            shared,
            thread: Some(thread),
        })
    }

    /// Tells it what to do.
    pub(super) fn want(&self, mode: Mode) {
        lock(&self.shared).wanted = mode;
    }

    /// Whether it has come to `mode`.
    ///
    /// # Errors
    /// Why the thread ended although nobody said so.
    pub(super) fn reached(&mut self, mode: Mode) -> io::Result<bool> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.end()?;
            return Err(io::Error::other("the load has ended"));
        }
        let shared = lock(&self.shared);
        Ok(shared.wanted == mode && shared.reached == mode)
    }

    /// What was done so far.
    pub(super) fn tally(&self) -> Tally {
        lock(&self.shared).tally.clone()
    }

    /// The longest pause since this was asked last.
    pub(super) fn take_pause(&self) -> u64 {
        std::mem::take(&mut lock(&self.shared).tally.pause_us_max)
    }

    /// Ends the thread.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.want(Mode::Stop);
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other(
                "the engine broke the rules of the rings: the guest's driver stopped",
            )),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Already failing: what the load says about it was asked before, or does not matter.
        let _ = self.end();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Worker {
    machine: Machine,
    shared: Arc<Mutex<Shared>>,
    content: Content,
    /// By block: the version that it holds, or will when its write is answered.
    versions: Vec<u32>,
    /// By block: whether a request on it is in flight.
    busy: Vec<bool>,
    chance: u64,
    buffer: Vec<u8>,
    /// The next block of a full reading.
    next: u32,
    last_answer: Instant,
}

impl Worker {
    fn new(machine: Machine, shared: Arc<Mutex<Shared>>, (blocks, seed): (u32, u64)) -> Worker {
        let count = usize::try_from(blocks).expect("32 bits fit");
        Worker {
            machine,
            shared,
            content: Content::new(seed),
            versions: vec![0; count],
            busy: vec![false; count],
            chance: seed | 1,
            buffer: Vec::new(),
            next: 0,
            last_answer: MonotonicClock.now(),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut before = Mode::Pause;
        loop {
            let mode = lock(&self.shared).wanted;
            if mode == Mode::Stop {
                return Ok(());
            }
            if mode == Mode::Verify && before != Mode::Verify {
                self.next = 0;
                lock(&self.shared).tally.blocks_verified = 0;
            }
            before = mode;
            if !self.machine.is_connected() && self.machine.connect().is_ok() {
                lock(&self.shared).tally.reconnects += 1;
            }
            let mut answered = 0;
            for queue in 0..usize::from(QUEUES) {
                while let Some(answer) = self.machine.reap(queue) {
                    self.take(&answer, mode);
                    answered += 1;
                }
                self.refill(queue, mode)?;
            }
            self.watch(answered)?;
            self.arrive(mode);
            if answered == 0 {
                self.machine.wait(LOOK)?;
            }
        }
    }

    /// Notes what an answer says.
    fn take(&mut self, answered: &Answered, mode: Mode) {
        let request = answered.request;
        for block in request.range() {
            self.busy[at(block)] = false;
        }
        let mut fault = None;
        let mut is_wrong = false;
        if answered.status != 0 {
            fault = Some(format!(
                "{:?} of {} blocks from {} ended with status {}",
                request.kind, request.blocks, request.first, answered.status
            ));
        } else if request.kind == Kind::Read {
            self.buffer.resize(request.bytes(), 0);
            self.machine.get(answered.data, &mut self.buffer);
            let blocks = self.buffer.chunks_exact(BLOCK_BYTES);
            for (block, found) in request.range().zip(blocks) {
                let version = self.versions[at(block)];
                let checked = self.content.check(block, version, found);
                is_wrong |= checked.is_err();
                fault = fault.or(checked.err());
            }
        }
        let bytes = units::bytes_u64(request.bytes());
        let mut shared = lock(&self.shared);
        let tally = &mut shared.tally;
        tally.requests += 1;
        if let Some(fault) = fault {
            tally.errors += 1;
            tally.fault.get_or_insert(fault);
            tally.is_wrong |= is_wrong;
            return;
        }
        match request.kind {
            Kind::Write => tally.written_bytes += bytes,
            Kind::Read => {
                tally.verified_bytes += bytes;
                if mode == Mode::Verify {
                    tally.blocks_verified += u64::from(request.blocks);
                }
            }
            Kind::Flush => {}
        }
    }

    /// Fills the free slots of a queue as `mode` says.
    fn refill(&mut self, queue: usize, mode: Mode) -> io::Result<()> {
        while let Some(data) = self.machine.room(queue) {
            let request = match mode {
                Mode::Run => self.choose(),
                // What was in flight at the order is answered first, and counts as load.
                Mode::Verify if self.next > 0 || self.machine.in_flight() == 0 => self.sequel(),
                Mode::Verify | Mode::Pause | Mode::Stop => None,
            };
            let Some(request) = request else { break };
            for block in request.range() {
                self.busy[at(block)] = true;
            }
            if request.kind == Kind::Write {
                self.prepare(request, data);
            }
            self.machine.submit(queue, request);
        }
        self.machine.kick(queue)
    }

    /// Puts the next version of the blocks into guest memory.
    fn prepare(&mut self, request: Request, data: u64) {
        self.buffer.resize(request.bytes(), 0);
        for (block, target) in request
            .range()
            .zip(self.buffer.chunks_exact_mut(BLOCK_BYTES))
        {
            self.versions[at(block)] += 1;
            self.content.fill(block, self.versions[at(block)], target);
        }
        self.machine.put(data, &self.buffer);
    }

    /// A random request on blocks that no other request is on: what a read must find is certain.
    fn choose(&mut self) -> Option<Request> {
        let kind = match self.random(100) {
            0..2 => Kind::Flush,
            2..55 => Kind::Write,
            _ => Kind::Read,
        };
        if kind == Kind::Flush {
            let (first, blocks) = (0, 0);
            return Some(Request {
                kind,
                first,
                blocks,
            });
        }
        // Free blocks are many; who finds none this time finds some next time.
        for _ in 0..8 {
            let size = self.random(u32::try_from(SIZES.len()).expect("ten"));
            let blocks = SIZES[at(size)];
            let all = u32::try_from(self.versions.len()).expect("made from 32 bits");
            let request = Request {
                kind,
                first: self.random(all - blocks + 1),
                blocks,
            };
            if request.range().all(|block| !self.busy[at(block)]) {
                return Some(request);
            }
        }
        None
    }

    /// The next read of a full reading.
    fn sequel(&mut self) -> Option<Request> {
        let all = u32::try_from(self.versions.len()).expect("made from 32 bits");
        let blocks = REQUEST_BLOCKS_MAX.min(all - self.next);
        let request = Request {
            kind: Kind::Read,
            first: self.next,
            blocks,
        };
        self.next += blocks;
        (blocks > 0).then_some(request)
    }

    /// Measures pauses.
    fn watch(&mut self, answered: u32) -> io::Result<()> {
        let now = MonotonicClock.now();
        let silence = now.since(self.last_answer);
        if answered > 0 || self.machine.in_flight() == 0 {
            self.last_answer = now;
        }
        if self.machine.in_flight() > 0 || answered > 0 {
            let micros = u64::try_from(silence.as_micros()).unwrap_or(u64::MAX);
            let mut shared = lock(&self.shared);
            shared.tally.pause_us_max = shared.tally.pause_us_max.max(micros);
        }
        if silence > SILENCE_MAX {
            let count = self.machine.in_flight();
            let text = format!("{count} requests have no answer after {SILENCE_MAX:?}");
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    fn arrive(&mut self, mode: Mode) {
        let idle = self.machine.in_flight() == 0;
        let arrived = match mode {
            Mode::Run => true,
            Mode::Verify => idle && at(self.next) == self.versions.len(),
            Mode::Pause | Mode::Stop => idle,
        };
        if arrived {
            lock(&self.shared).reached = mode;
        }
    }

    /// A random number below `end` (xorshift; good enough to choose blocks).
    fn random(&mut self, end: u32) -> u32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let high = u32::try_from(self.chance >> 32).expect("32 bits are left");
        high % end
    }
}

fn at(block: u32) -> usize {
    usize::try_from(block).expect("32 bits fit")
}
