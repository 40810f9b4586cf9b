//! What a vhost-user-blk session asks of the engine: rings on reactors.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use memory::RegionTable;
use reactor::Duty;
use units::{ArrayIndex, Clock, MonotonicClock, ReactorIndex};
use vhost_user_blk::{Event, Host, MemoryChange, Queue, QueueKey, SessionEvent};
use volume::{Limiter, VolumeMap};

use crate::control::Engine;
use crate::core::{Core, Leaving, Ring, Stopped};
use crate::past::Past;
use crate::pins::Pinner;

/// Between two attempts to get at what another thread holds.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Why a ring was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// There is none of this key.
    NoRing,
    /// What it took is not answered yet.
    Late,
}

/// What an export serves.
#[derive(Clone, Debug)]
pub struct Served {
    /// The array.
    pub array: ArrayIndex,
    /// The volume's place on it.
    pub map: Arc<VolumeMap>,
    /// The volume's limits: one for all its exports.
    pub limiter: Arc<Limiter>,
    /// What its rings did that have ended: of all its exports, too.
    pub past: Arc<Past>,
    /// Front-ends promise that no pages of guest memory are exchanged: the engine may pin them.
    pub memory_stays: bool,
}

/// Where rings of an export may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Anywhere. They begin near the array's drives.
    Anywhere,
    /// On the reactors that somebody has named, in this order.
    Named(Vec<ReactorIndex>),
}

/// The rings of one export, spread over the reactors that it may use.
pub struct ExportHost {
    engine: Arc<Engine>,
    /// Names the export among all of this engine, for ever.
    export: u64,
    /// Names it over restarts: what a crash is told of.
    uuid: [u8; 16],
    array: ArrayIndex,
    /// Held while a ring with it comes to a reactor: none comes with earlier extents.
    volume: Mutex<Arc<VolumeMap>>,
    limiter: Arc<Limiter>,
    past: Arc<Past>,
    spread: Spread,
    /// By number: where a queue that was moved has gone. It begins there when its front-end comes
    /// again, which has another number then. Held whenever rings are asked to change: one that is
    /// on its way from reactor to reactor is on neither, and would miss its end or new memory. When
    /// memory is taken away it is held until drives have let go of it.
    places: Mutex<BTreeMap<u16, ReactorIndex>>,
    /// Where front-ends promise that their memory stays.
    pinner: Option<Pinner>,
    /// Queues of each front-end that are on a reactor.
    running: Mutex<BTreeMap<u32, usize>>,
    events: Sender<(u64, SessionEvent)>,
}

impl fmt::Debug for ExportHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportHost")
            .field("export", &self.export)
            .finish_non_exhaustive()
    }
}

impl ExportHost {
    /// An export (its number, its uuid) of a volume, with rings as `spread` says; `events` are for
    /// the log.
    ///
    /// # Errors
    /// When a thread that it needs cannot be made.
    ///
    /// # Panics
    /// When somebody has named no reactor.
    pub fn new(
        engine: Arc<Engine>,
        (export, uuid): (u64, [u8; 16]),
        served: Served,
        spread: Spread,
        events: Sender<(u64, SessionEvent)>,
    ) -> io::Result<ExportHost> {
        assert!(
            spread != Spread::Named(Vec::new()),
            "an export has a reactor"
        );
        let pin = || Pinner::start(&engine, (export, uuid), events.clone());
        let pinner = served.memory_stays.then(pin).transpose()?;
        Ok(ExportHost {
            engine,
            export,
            uuid,
            array: served.array,
            volume: Mutex::new(served.map),
            limiter: served.limiter,
            past: served.past,
            spread,
            places: Mutex::default(),
            pinner,
            running: Mutex::default(),
            events,
        })
    }

    /// Gives all rings the volume's new extents, after it grew.
    ///
    /// # Panics
    /// When a thread panicked while it changed the volume.
    pub fn set_volume(&self, volume: &Arc<VolumeMap>) {
        // Not under `places`: a ring that cannot leave its reactor must not hold this up.
        let mut held = self.volume();
        *held = Arc::clone(volume);
        for handle in self.engine.handles() {
            let (export, volume) = (self.export, Arc::clone(volume));
            handle
                .call(move |core| core.set_volume(export, &volume))
                .ok();
        }
    }

    /// Where its rings may be.
    #[must_use]
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The reactors on which its rings begin, in the order in which they take them.
    fn first(&self) -> Vec<ReactorIndex> {
        match &self.spread {
            Spread::Anywhere => self.engine.near(self.array),
            Spread::Named(reactors) => reactors.clone(),
        }
    }

    /// Moves a ring to another reactor while the guest runs: it takes nothing new until what was
    /// taken is answered, for as long as `patience` at most, and goes on there.
    ///
    /// # Errors
    /// `NoRing`; `Late` when what was taken is not answered in time: the ring goes on where it is.
    ///
    /// # Panics
    /// When a thread panicked while it moved a ring.
    pub fn move_ring(
        &self,
        key: QueueKey,
        to: ReactorIndex,
        patience: Duration,
    ) -> Result<(), MoveError> {
        let mut places = self.places_in_time(patience)?;
        let answer = self.let_leave(key, Leaving::Moves);
        let answer = answer.ok_or(MoveError::NoRing)?;
        let stopped = match answer.recv_timeout(patience) {
            Ok(stopped) => stopped,
            Err(RecvTimeoutError::Disconnected) => return Err(MoveError::NoRing),
            Err(RecvTimeoutError::Timeout) => {
                for handle in self.engine.handles() {
                    let export = self.export;
                    handle.call(move |core| core.stay(export, key)).ok();
                }
                // It may have left a moment before.
                answer.try_recv().map_err(|_| MoveError::Late)?
            }
        };
        let Stopped::Moved(ring) = stopped else {
            return Err(MoveError::NoRing);
        };
        places.insert(key.index, to);
        let mut ring = *ring;
        ring.queue.resume();
        let volume = self.volume();
        ring.volume = Arc::clone(&volume);
        let there = self.engine.handle(to).call(move |core| core.add_ring(ring));
        there.map_err(|_| MoveError::NoRing)
    }

    /// Asks all reactors to let a ring leave; the one that has it answers.
    fn let_leave(&self, key: QueueKey, leaving: Leaving) -> Option<Receiver<Stopped>> {
        let (sender, answer) = channel();
        for handle in self.engine.handles() {
            let (export, sender) = (self.export, sender.clone());
            handle
                .run(move |core| core.stop_ring(export, key, (sender, leaving)))
                .ok()?;
        }
        Some(answer)
    }

    fn on_ring(&self, key: QueueKey, change: impl Fn(&mut Queue) + Clone + Send + 'static) {
        let _places = self.places();
        for handle in self.engine.handles() {
            let (export, change) = (self.export, change.clone());
            handle
                .call(move |core| core.with_ring(export, key, |queue| change(queue)))
                .ok();
        }
    }

    /// As [`ExportHost::places`], for whoever must not wait for a hanging drive.
    fn places_in_time(
        &self,
        patience: Duration,
    ) -> Result<MutexGuard<'_, BTreeMap<u16, ReactorIndex>>, MoveError> {
        let begun = MonotonicClock.now();
        loop {
            match self.places.try_lock() {
                Ok(places) => return Ok(places),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Poisoned(_)) => panic!("nothing panics under this lock"),
            }
            if MonotonicClock.now().since(begun) > patience {
                return Err(MoveError::Late);
            }
            std::thread::park_timeout(LOOK_PAUSE);
        }
    }

    fn volume(&self) -> MutexGuard<'_, Arc<VolumeMap>> {
        self.volume.lock().expect("nothing panics under this lock")
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.running.lock().expect("nothing panics under this lock")
    }

    /// A queue of a front-end has ended: whether it has no other.
    fn was_last(&self, front_end: u32) -> bool {
        let mut running = self.running();
        let Some(queues) = running.get_mut(&front_end) else {
            return false;
        };
        *queues -= 1;
        let was_last = *queues == 0;
        running.retain(|_, queues| *queues > 0);
        was_last
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u16, ReactorIndex>> {
        self.places.lock().expect("nothing panics under this lock")
    }
}

impl Host for ExportHost {
    fn start_queue(&self, key: QueueKey, queue: Queue) {
        let places = self.places();
        if let Some(pinner) = &self.pinner {
            *self.running().entry(key.front_end).or_default() += 1;
            pinner.want(key.front_end, Some(queue.memory()));
        }
        let volume = self.volume();
        let place = (self.array, Arc::clone(&volume));
        let shared = (Arc::clone(&self.limiter), Arc::clone(&self.past));
        let ring = Ring::new(((self.export, self.uuid), key), queue, place, shared);
        // Guests of one queue each do not all come to the same.
        let reactors = self.first();
        let first = u64::from(key.index) + self.export.saturating_sub(1);
        let first = first % units::bytes_u64(reactors.len());
        let first = reactors[units::bytes_usize(first)];
        let handle = self
            .engine
            .handle(places.get(&key.index).copied().unwrap_or(first));
        handle.call(move |core| core.add_ring(ring)).ok();
    }

    fn stop_queue(&self, key: QueueKey) -> u32 {
        let answer = {
            let _places = self.places();
            self.let_leave(key, Leaving::Ends)
        };
        // For as long as it takes: the guest's memory is let go afterwards, and drives still read
        // and write there. Whoever must not wait for this waits with a bound of its own; others
        // change rings meanwhile, and this one ends whatever they do.
        let stopped = answer.and_then(|answer| answer.recv().ok());
        if let Some(pinner) = &self.pinner
            && self.was_last(key.front_end)
        {
            pinner.want(key.front_end, None);
        }
        match stopped {
            Some(Stopped::Ended(base)) => base,
            Some(Stopped::Moved(_)) | None => 0,
        }
    }

    fn set_memory(&self, front_end: u32, memory: &Arc<RegionTable>, change: MemoryChange) {
        let _places = self.places();
        for handle in self.engine.handles() {
            let (export, memory) = (self.export, Arc::clone(memory));
            let set = move |core: &mut Core| {
                core.each_ring(export, |key, queue| {
                    if key.front_end == front_end {
                        queue.set_memory(Arc::clone(&memory));
                    }
                });
            };
            handle.call(set).ok();
        }
        if let Some(pinner) = &self.pinner
            && self.running().contains_key(&front_end)
        {
            pinner.want(front_end, Some(Arc::clone(memory)));
        }
        if change == MemoryChange::Added {
            return;
        }
        for handle in self.engine.handles() {
            let (sender, answer) = channel();
            let export = self.export;
            let asked = handle.run(move |core| core.await_let_go(export, front_end, sender));
            if asked.is_ok() {
                // An error means that the reactor is gone, and with it what pointed there.
                answer.recv().ok();
            }
        }
    }

    fn set_call(&self, key: QueueKey, call: Option<Event>) {
        self.on_ring(key, move |queue| queue.set_call(call.clone()));
    }

    fn set_kick(&self, key: QueueKey, kick: Option<Event>) {
        self.on_ring(key, move |queue| queue.set_kick(kick.clone()));
    }

    fn set_error(&self, key: QueueKey, error: Option<Event>) {
        self.on_ring(key, move |queue| queue.set_error(error.clone()));
    }

    fn begin_thread(&self) {
        Duty::Export(self.uuid).begin();
        // It makes rings and what they remember, for reactors that are mostly of one node.
        let first = self.first().first().copied();
        if let Some(node) = first.and_then(|reactor| self.engine.nodes()[reactor.at()]) {
            memory::prefer(node).ok();
        }
    }

    fn event(&self, event: &SessionEvent) {
        self.events.send((self.export, event.clone())).ok();
    }
}
