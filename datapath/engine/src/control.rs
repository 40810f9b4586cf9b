//! The engine as the control path sees it: blocking calls that reach the reactors by closures.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use array::format::ArrayConfig;
use array::{
    Begun, BegunSpace, Command, Coordinator, CoordinatorSettings, Event, Geometry, LogSpace,
    MapIdentity, MemberPlace, Owners, Refusal, RegionMap, Room, Shard, Shared, Suspects, WallClock,
    initial_map,
};
use block::{Cookie, Operation, Part, Request, Stability, Status};
use drive::{Drive, DriveCounters, Port, PortCounters, PortOptions};
use memory::SegmentList;
use queues::{Wake, mesh};
use reactor::{EventFd, Handle, Polling, Settings};
use units::limits::INBOX_MESSAGES;
use units::{ArrayIndex, Clock, DriveIndex, MonotonicClock, NodeIndex, ReactorIndex};
use vhost_user_blk::{Counters, QueueKey};

use crate::budget::Budget;
use crate::core::{Core, ReactorTimes};
use crate::error::{ChangeError, StartError, ZeroError};
use crate::near::Places;
use crate::pins::Pinned;
use crate::stop::Stop;
use crate::undecided::{LateChange, LateZeroes};

/// How long a reactor looks for work at first before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// User bytes of one window of a background pass.
const WINDOW_BYTES: u64 = 64 << 20;
/// A region that nobody wrote for once or twice this long is clean again.
const CLEAR_AFTER: Duration = Duration::from_secs(5);
/// While an array is written to, its record is renewed so often.
const RENEW_AFTER: Duration = Duration::from_secs(60);
/// Between two looks at something that ends by itself.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// The most blocks of one zeroing request of the control path.
const ZERO_BLOCKS: u32 = 1 << 17;

/// How the engine is to run.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// One reactor each; pinned to the core, if one is named.
    pub cores: Vec<Option<usize>>,
    /// By reactor: the node of its core, where that is known.
    pub nodes: Vec<Option<NodeIndex>>,
    /// When reactors sleep.
    pub polling: Polling,
    /// Room of each shard; `foreign_works` is set here.
    pub room: Room,
    /// Bytes that transfer buffers of all arrays may take, if there is a limit.
    pub memory_bytes: Option<u64>,
    /// How long the control path waits for what drives have to answer first. A drive that hangs
    /// must not hang whoever asks.
    pub patience: Duration,
}

/// An array to be served.
#[derive(Debug)]
pub struct ArrayStart {
    /// Its number in this engine.
    pub array: ArrayIndex,
    /// Its uuid: what a crash is told of.
    pub uuid: [u8; 16],
    /// Its fixed numbers.
    pub geometry: Geometry,
    /// The configuration to commit first; see `array::Command::Start`.
    pub config: ArrayConfig,
    /// By member: the drive, for members in sync or rebuilding.
    pub places: Vec<Option<MemberPlace>>,
    /// Where update ids come from; different in every engine.
    pub seed: u64,
    /// The region map as the drives have it.
    pub regions: RegionMap,
    /// Regions whose parity is not trusted ([`RegionMap::suspects`]).
    pub suspects: Suspects,
    /// Where the log lies on its members.
    pub log: LogSpace,
    /// When the array was created: seconds since 1970 UTC.
    pub created: u64,
    /// Of its shards ([`Engine::take_room`]).
    pub room: Room,
    /// Where the next engine finds what this one has begun ([`Engine::begun_space`]).
    pub begun: Option<Arc<Begun>>,
    /// The node of its drives, if it belongs to one.
    pub node: Option<NodeIndex>,
}

/// One reactor, for status and metrics.
#[derive(Clone, Debug)]
pub struct ReactorReport {
    /// Which.
    pub reactor: ReactorIndex,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// Turns since the start.
    pub turns: u64,
    /// Requests of guests that it has answered.
    pub requests: u64,
    /// What it did with its time.
    pub times: ReactorTimes,
    /// Its port.
    pub port: PortCounters,
    /// Its drives.
    pub drives: Vec<(DriveIndex, DriveCounters)>,
}

/// See the module.
pub struct Engine {
    handles: Vec<Handle<Core>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    cores: Vec<Option<usize>>,
    pub(crate) places: Places,
    pub(crate) room: Room,
    pub(crate) budget: Mutex<Budget>,
    events: Mutex<Option<Receiver<(ArrayIndex, Event)>>>,
    pub(crate) late: Mutex<Vec<LateChange>>,
    /// Arrays that have been told to stop, until all reactors have let go of them.
    pub(crate) stops: Mutex<BTreeMap<ArrayIndex, Stop>>,
    /// Held while what has become of late stops is noted among these.
    pub(crate) noting_stops: Mutex<()>,
    pinned: Mutex<Pinned>,
    patience_ms: AtomicU64,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("cores", &self.cores)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the reactors.
    ///
    /// # Errors
    /// When io_uring is refused, or a thread, core or memory is.
    pub fn start(settings: &EngineSettings) -> Result<Arc<Engine>, StartError> {
        let count = settings.cores.len();
        let budget = Budget::new(settings.memory_bytes, count);
        if let Some(given) = settings.memory_bytes
            && given < budget.least()
        {
            let least = budget.least();
            return Err(StartError::Memory { given, least });
        }
        let mut wakes = Vec::with_capacity(count);
        for _ in 0..count {
            wakes.push(Arc::new(EventFd::new().map_err(StartError::Io)?));
        }
        let wakers = wakes
            .iter()
            .map(|wake| Arc::clone(wake) as Arc<dyn Wake>)
            .collect();
        let posts = mesh(wakers, INBOX_MESSAGES);
        let places = Places::new(count, &settings.nodes);
        let (sender, events) = channel();
        let mut handles = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for (position, (post, wake)) in posts.into_iter().zip(&wakes).enumerate() {
            let (events_out, inside) = (sender.clone(), Arc::clone(wake));
            let beside = places.beside(ReactorIndex::from_at(position));
            let settings = Settings {
                index: ReactorIndex::from_at(position),
                core: settings.cores[position],
                polling: settings.polling,
                spin: SPIN,
            };
            // Made there, so that the kernel's part of it is memory of its node as well.
            let build = move || {
                let port = Port::new(PortOptions::default()).map_err(io::Error::other)?;
                Ok(Core::new(port, post, inside, events_out, beside))
            };
            let waker = Arc::clone(wake) as Arc<dyn Wake>;
            let started = reactor::start(settings, MonotonicClock, waker, build);
            let (handle, thread) = started.map_err(StartError::of_reactor)?;
            handles.push(handle);
            threads.push(thread);
        }
        let foreign_works = (count - 1) * INBOX_MESSAGES;
        Ok(Arc::new(Engine {
            handles,
            threads: Mutex::new(threads),
            cores: settings.cores.clone(),
            places,
            room: Room {
                foreign_works,
                ..settings.room
            },
            budget: Mutex::new(budget),
            events: Mutex::new(Some(events)),
            late: Mutex::default(),
            stops: Mutex::default(),
            noting_stops: Mutex::default(),
            pinned: Mutex::default(),
            patience_ms: AtomicU64::new(milliseconds(settings.patience)),
        }))
    }

    /// What arrays tell; for whoever asks first.
    ///
    /// # Panics
    /// When a thread panicked while it asked.
    #[must_use]
    pub fn take_events(&self) -> Option<Receiver<(ArrayIndex, Event)>> {
        self.events
            .lock()
            .expect("nothing panics under this lock")
            .take()
    }

    /// How many reactors there are.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.handles.len()
    }

    /// How the file is cut in which the next engine finds what this one has begun of an array.
    #[must_use]
    pub fn begun_space(&self, room: &Room) -> BegunSpace {
        BegunSpace::new(self.handles.len(), room)
    }

    /// The reactor that is pinned to `core`.
    #[must_use]
    pub fn reactor_on(&self, core: usize) -> Option<ReactorIndex> {
        let position = self.cores.iter().position(|&pinned| pinned == Some(core))?;
        Some(ReactorIndex::from_at(position))
    }

    pub(crate) fn pinned(&self) -> MutexGuard<'_, Pinned> {
        self.pinned.lock().expect("nothing panics under this lock")
    }

    pub(crate) fn handle(&self, reactor: ReactorIndex) -> &Handle<Core> {
        &self.handles[reactor.at()]
    }

    pub(crate) fn handles(&self) -> &[Handle<Core>] {
        &self.handles
    }

    /// Makes a drive reachable from all reactors.
    ///
    /// # Errors
    /// When a reactor is gone.
    pub fn attach_drive(&self, index: DriveIndex, drive: &Arc<Drive>) -> Result<(), StartError> {
        for handle in &self.handles {
            let drive = Arc::clone(drive);
            let attached = handle.call(move |core| core.port().attach(index, drive))?;
            if let Err(refused) = attached {
                // Those that have it already let go of it.
                self.detach_drive(index)?;
                return Err(StartError::Port(refused));
            }
        }
        Ok(())
    }

    /// As `attach_drive`, of a member that an array waits for. Its home, which looks whether it
    /// works, has it last: no other reactor misses it then.
    ///
    /// # Errors
    /// As `attach_drive`.
    pub fn attach_awaited(
        &self,
        index: DriveIndex,
        drive: &Arc<Drive>,
        array: ArrayIndex,
    ) -> Result<(), StartError> {
        let home = self.home(array);
        let others = (0..self.handles.len()).map(ReactorIndex::from_at);
        let others = others.filter(|reactor| *reactor != home);
        for reactor in others.chain([home]) {
            let drive = Arc::clone(drive);
            let handle = self.handle(reactor);
            let attached = handle.call(move |core| core.port().attach(index, drive))?;
            if let Err(refused) = attached {
                self.detach_drive(index)?;
                return Err(StartError::Port(refused));
            }
        }
        Ok(())
    }

    /// Takes a drive away. What is pending on it is answered `Gone`.
    ///
    /// # Errors
    /// When a reactor is gone.
    pub fn detach_drive(&self, index: DriveIndex) -> Result<(), StartError> {
        for handle in &self.handles {
            handle.call(move |core| core.port().detach(index))?;
        }
        Ok(())
    }

    /// Makes the array's shards on all reactors and commits its first configuration; it serves
    /// requests when this returns.
    ///
    /// # Errors
    /// When memory is refused, or the configuration cannot be written; `Late` when it is not
    /// known whether it can: the array serves once its drives answer, until it is stopped.
    pub fn start_array(&self, start: ArrayStart) -> Result<(), StartError> {
        let array = start.array;
        let started = self.make_shards(start);
        if !matches!(started, Ok(()) | Err(StartError::Late)) {
            self.budget().give_back(array);
        }
        started
    }

    fn make_shards(&self, start: ArrayStart) -> Result<(), StartError> {
        let ArrayStart {
            array,
            uuid,
            geometry,
            config,
            places,
            seed,
            regions,
            suspects,
            log,
            created,
            room,
            begun,
            node,
        } = start;
        let reactors: Vec<ReactorIndex> =
            (0..self.handles.len()).map(ReactorIndex::from_at).collect();
        let all = reactors.len();
        let logs = geometry.has_write_hole();
        let writers = if logs { log.writers(all) } else { all };
        let (near, home) = self.places.put(array, node, writers);
        let owners = Owners::new(|bucket: usize| near[bucket % near.len()]);
        let identity = MapIdentity {
            array,
            geometry,
            owners,
            home,
        };
        let map = Arc::new(initial_map(
            identity,
            &config,
            &places,
            (&regions, suspects),
        ));
        let shared = || Shared::new(&map, &regions, (log, all), begun);
        let shared = memory::near(self.places.of(home), shared).map_err(StartError::Io)?;
        let mut shards = Vec::with_capacity(reactors.len());
        for &reactor in &reactors {
            let (map, shared) = (Arc::clone(&map), Arc::clone(&shared));
            let shard = || Shard::new(reactor, map, shared, room).map(Box::new);
            let shard = memory::near(self.places.of(reactor), shard).map_err(StartError::Io)?;
            shards.push(shard.map_err(StartError::Shard)?);
        }
        let window_bytes = WINDOW_BYTES;
        let settings = CoordinatorSettings {
            config,
            places,
            reactors,
            seed,
            window_bytes,
            regions,
            clear_after: CLEAR_AFTER,
            renew_after: RENEW_AFTER,
            clock: wall_clock(),
            created,
        };
        let coordinator = Coordinator::new(settings).map_err(StartError::Io)?;
        shards[home.at()].set_coordinator(coordinator);
        for (handle, shard) in self.handles.iter().zip(shards) {
            handle.call(move |core| core.set_shard(array, uuid, shard))?;
        }
        let started = self.command(array, home, Command::Start);
        match started {
            Ok(()) => Ok(()),
            Err(ChangeError::Late) => Err(StartError::Late),
            Err(ChangeError::Refused(refusal)) => {
                self.give_up(array, refusal.clone())?;
                Err(StartError::Refused(refusal))
            }
        }
    }

    pub(crate) fn command(
        &self,
        array: ArrayIndex,
        home: ReactorIndex,
        command: Command,
    ) -> Result<(), ChangeError> {
        let answer = self.ask(array, home, command.clone());
        let answer = answer.map_err(ChangeError::Refused)?;
        match answer.recv_timeout(self.patience()) {
            Ok(result) => result.map_err(ChangeError::Refused),
            Err(RecvTimeoutError::Timeout) => {
                self.note_late(LateChange {
                    array,
                    command,
                    answer,
                });
                Err(ChangeError::Late)
            }
            Err(RecvTimeoutError::Disconnected) => Err(ChangeError::Refused(stopped())),
        }
    }

    /// Asks for a change, and does not wait.
    pub(crate) fn ask(
        &self,
        array: ArrayIndex,
        home: ReactorIndex,
        command: Command,
    ) -> Result<Receiver<Result<(), Refusal>>, Refusal> {
        let (sender, answer) = channel();
        let sent = self
            .handle(home)
            .run(move |core| core.command(array, command, sender));
        sent.map_err(|_| stopped())?;
        Ok(answer)
    }

    /// How long a caller waits for drives.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }

    /// Changes it, for whoever begins to wait from now on.
    pub fn set_patience(&self, patience: Duration) {
        self.patience_ms
            .store(milliseconds(patience), Ordering::Relaxed);
    }

    /// Asks for a change of the array and waits until it is durable and acted by everywhere.
    ///
    /// # Errors
    /// When the array refuses. `Late` when it will be carried out, or refused, once the drives
    /// answer: [`Engine::take_decided`] tells which.
    pub fn change(&self, array: ArrayIndex, command: Command) -> Result<(), ChangeError> {
        self.command(array, self.home(array), command)
    }

    /// Makes `blocks` blocks of the array read as zeroes, durably.
    ///
    /// # Errors
    /// The verdict of the array. `Late`: the blocks must not be used for anything else before
    /// [`LateZeroes::are_over`], or before the array has been stopped.
    pub fn zero(&self, array: ArrayIndex, start: u64, blocks: u64) -> Result<(), ZeroError> {
        let mut done = 0;
        while done < blocks {
            let count = u32::try_from((blocks - done).min(u64::from(ZERO_BLOCKS)));
            let count = count.expect("at most ZERO_BLOCKS");
            self.control_request(array, Operation::WriteZeroes, start + done, count)?;
            done += u64::from(count);
        }
        self.control_request(array, Operation::Flush, 0, 0)
    }

    fn control_request(
        &self,
        array: ArrayIndex,
        operation: Operation,
        start: u64,
        blocks: u32,
    ) -> Result<(), ZeroError> {
        let segments = SegmentList::EMPTY;
        let request = Request {
            operation,
            start,
            blocks,
            part: Part::WHOLE,
            segments,
            stability: Stability::MayChange,
            cookie: Cookie(0),
        };
        let (sender, answer) = channel();
        let home = self.handle(self.home(array));
        let sent = home.run(move |core| core.control_request(array, request, sender));
        let gone = || ZeroError::Status(Status::Gone);
        sent.map_err(|_| gone())?;
        match answer.recv_timeout(self.patience()) {
            Ok(Status::Ok) => Ok(()),
            Ok(status) => Err(ZeroError::Status(status)),
            Err(RecvTimeoutError::Timeout) => Err(ZeroError::Late(LateZeroes(answer))),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// Lets every reactor look once at what changed elsewhere, and waits until each has begun to.
    pub fn wake_reactors(&self) {
        for handle in &self.handles {
            // A reactor that is gone has nobody to let go on.
            handle.call(|_| ()).ok();
        }
    }

    /// All reactors, for status and metrics.
    #[must_use]
    pub fn reports(&self, drives: &[DriveIndex]) -> Vec<ReactorReport> {
        let mut reports = Vec::with_capacity(self.handles.len());
        for (position, handle) in self.handles.iter().enumerate() {
            let wanted = drives.to_vec();
            let report = handle.call(move |core| {
                let port = core.port().port_counters();
                let drives = wanted.into_iter().filter_map(|drive| {
                    core.port()
                        .counters(drive)
                        .map(|counters| (drive, *counters))
                });
                let drives = drives.collect();
                ((core.turns(), core.requests(), core.times()), port, drives)
            });
            let Ok(((turns, requests, times), port, drives)) = report else {
                continue;
            };
            let reactor = ReactorIndex::from_at(position);
            reports.push(ReactorReport {
                reactor,
                core: self.cores[position],
                turns,
                requests,
                times,
                port,
                drives,
            });
        }
        reports
    }

    /// The rings of an export: reactor, key, counters.
    #[must_use]
    pub fn rings(&self, export: u64) -> Vec<(ReactorIndex, QueueKey, Counters)> {
        let mut rings = Vec::new();
        for (position, handle) in self.handles.iter().enumerate() {
            let reactor = ReactorIndex::from_at(position);
            let found = handle.call(move |core| {
                let mut found = Vec::new();
                core.each_ring(export, |key, queue| {
                    found.push((reactor, *key, queue.counters().clone()));
                });
                found
            });
            rings.extend(found.unwrap_or_default());
        }
        rings
    }

    /// Stops the reactors. Arrays that still run come up dirty.
    pub fn stop(&self) {
        for handle in &self.handles {
            handle.stop();
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("nothing panics under it"));
        for thread in threads {
            thread.join().ok(); // A panic was reported by the thread itself.
        }
    }
}

/// Why a change is not made whose reactor is gone.
pub(crate) fn stopped() -> Refusal {
    Refusal::Failed("a reactor has stopped".to_owned())
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The time of day now.
fn wall_clock() -> WallClock {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    WallClock {
        at: MonotonicClock.now(),
        seconds: since.map_or(0, |since| since.as_secs()),
    }
}
