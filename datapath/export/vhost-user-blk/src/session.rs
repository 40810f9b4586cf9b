//! The control side of an export: its socket, its threads, and the front-ends that come and go.
//!
//! One thread listens; each front-end that is served has a thread of its own, so that one that
//! is slow, silent or being drained does not keep others from being answered or refused. Who
//! comes while one that has hung up is being drained waits in its own thread, as soon as it says
//! something about rings or memory: requests of the same rings would be carried out twice.
//! What does not live here: what messages mean (`connection.rs`), requests (`queue.rs`).

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use units::{Clock, Instant, MonotonicClock};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::connection::{Connection, Outside};
use crate::host::{Host, SessionEvent};
use crate::profile::{Profile, Shown};
use crate::protocol::touches_rings;
use crate::socket::{BindError, Bound, SocketSettings};
use crate::system::{Event, Patience, Readiness, peek_channel, peek_request, wait, wait_end};

/// Front-ends of one shared export at a time.
pub const FRONT_ENDS_MAX: usize = 8;
/// Threads of front-ends of one export: those that are connected, and those that leave.
const FRONT_END_THREADS_MAX: usize = 64;
/// Broken queues are told to the log at most once in this time.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// When to try again after a connection could not be accepted.
const RETRY: Patience = Patience::Milliseconds(1000);

/// How many front-ends may use an export at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One. A second one is turned away.
    Exclusive,
    /// Up to [`FRONT_ENDS_MAX`], each with rings of its own.
    Shared,
}

/// What an export is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, for threads and logs.
    pub name: String,
    /// Where it listens.
    pub socket: SocketSettings,
    /// How many front-ends may use it.
    pub sharing: Sharing,
    /// What a guest is shown.
    pub profile: Profile,
    /// The size in sectors of 512 bytes.
    pub sectors: u64,
}

/// A front-end that is being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontEndStatus {
    /// Its number.
    pub front_end: u32,
    /// The virtio features that it chose; 0 before it has.
    pub features: u64,
    /// The protocol features that it chose.
    pub protocol_features: u64,
    /// The queues that run, in the order in which they were started.
    pub queues: Vec<u16>,
}

/// A session as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Whether handshakes are answered.
    pub ready: bool,
    /// The size in sectors of 512 bytes.
    pub sectors: u64,
    /// Who is being served.
    pub front_ends: Vec<FrontEndStatus>,
}

/// A front-end, as others than its thread see it.
struct Known {
    front_end: u32,
    outside: Arc<Mutex<Outside>>,
    /// A second handle of its connection, to look at and to shut.
    stream: UnixStream,
    wake: Event,
}

impl Known {
    /// Whether the connection has ended, from either side.
    fn is_gone(&self) -> bool {
        wait([Some(self.stream.as_fd())], Patience::None)
            .is_ok_and(|found| found == [Readiness::Gone])
    }
}

/// What the threads of a session share.
struct Common {
    name: String,
    sharing: Sharing,
    host: Arc<dyn Host>,
    shown: Shown,
    ready: AtomicBool,
    stopping: AtomicBool,
    /// Wakes the thread that listens.
    wake: Event,
    known: Mutex<Vec<Known>>,
}

impl Common {
    fn known(&self) -> std::sync::MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many front-ends are connected, and which have hung up and have rings that may not have
    /// ended yet.
    fn present(&self) -> (usize, Vec<u32>) {
        let known = self.known();
        let gone = known.iter().filter(|known| known.is_gone());
        let gone: Vec<u32> = gone.map(|known| known.front_end).collect();
        (known.len() - gone.len(), gone)
    }

    /// The rings of a front-end have ended: those that wait for that may go on.
    fn forget(&self, front_end: u32) {
        let mut known = self.known();
        known.retain(|known| known.front_end != front_end);
        for other in known.iter() {
            other.wake.signal();
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// An export that is being served. Dropping it stops it.
pub struct SessionHandle {
    common: Arc<Common>,
    listener: Option<JoinHandle<()>>,
}

/// Starts sessions.
#[derive(Debug)]
pub struct Session;

impl Session {
    /// Listens at the socket. Front-ends can connect from now on, but nothing they say is
    /// answered before [`SessionHandle::set_ready`].
    ///
    /// # Errors
    /// [`BindError`] when the socket cannot be had.
    ///
    /// # Panics
    /// When the profile was not checked ([`Profile::check`]).
    pub fn start(settings: Settings, host: Arc<dyn Host>) -> Result<SessionHandle, BindError> {
        assert_eq!(settings.profile.check(), Ok(()), "profiles are checked");
        let path = &settings.socket.path;
        let fail = |step| move |source| BindError::io(path.clone(), step, source);
        memory::guest::survive_truncation().map_err(fail("no handler for lost guest memory"))?;
        let bound = Bound::new(&settings.socket)?;
        let common = Arc::new(Common {
            sharing: settings.sharing,
            host,
            shown: Shown::new(settings.profile, settings.sectors),
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            wake: Event::new().map_err(fail("no event descriptor"))?,
            known: Mutex::default(),
            name: settings.name,
        });
        let listening = Listening {
            bound: Some(bound),
            common: Arc::clone(&common),
            threads: Vec::new(),
            next: 0,
            exhausted: false,
        };
        let listener = Builder::new()
            .name(thread_name("vhost", &common.name))
            .spawn(move || listening.run())
            .map_err(fail("no thread"))?;
        Ok(SessionHandle {
            common,
            listener: Some(listener),
        })
    }
}

/// The kernel shows 15 bytes of a thread's name.
fn thread_name(kind: &str, name: &str) -> String {
    let mut whole = format!("{kind} {name}").replace('\0', "");
    while whole.len() > 15 {
        whole.pop();
    }
    whole
}

impl SessionHandle {
    /// Says that the array behind the export can be served (or cannot, for front-ends to come).
    pub fn set_ready(&self, ready: bool) {
        self.common.ready.store(ready, Ordering::Release);
        self.common.wake.signal();
    }

    /// Changes the size, and tells the guests.
    pub fn resize(&self, sectors: u64) {
        self.common.shown.set_sectors(sectors);
        for known in self.common.known().iter() {
            let outside = known.outside.lock();
            let mut outside = outside.unwrap_or_else(PoisonError::into_inner);
            outside.tell_of_configuration();
        }
    }

    /// Stops serving: the socket goes, front-ends are disconnected, and what was taken from
    /// their rings is finished first.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    /// How things are.
    #[must_use]
    pub fn status(&self) -> SessionStatus {
        let status = |known: &Known| {
            let outside = known.outside.lock();
            let outside = outside.unwrap_or_else(PoisonError::into_inner);
            FrontEndStatus {
                front_end: known.front_end,
                features: outside.features,
                protocol_features: outside.protocol_features,
                queues: outside.running.clone(),
            }
        };
        SessionStatus {
            ready: self.common.ready.load(Ordering::Acquire),
            sectors: self.common.shown.sectors(),
            // One that has hung up stays until its last request is answered, and is nobody's then.
            front_ends: (self.common.known().iter())
                .filter(|known| !known.is_gone())
                .map(status)
                .collect(),
        }
    }

    fn stop_threads(&mut self) {
        self.common.stopping.store(true, Ordering::Release);
        self.common.wake.signal();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle")
            .field("name", &self.common.name)
            .finish_non_exhaustive()
    }
}

/// The thread that listens.
struct Listening {
    /// Until it is to end: who connects then is refused, and does not wait for an answer.
    bound: Option<Bound>,
    common: Arc<Common>,
    threads: Vec<(u32, JoinHandle<()>)>,
    next: u32,
    /// The last connection could not be accepted; it is still waiting.
    exhausted: bool,
}

impl Listening {
    fn run(mut self) {
        self.common.host.begin_thread();
        while !self.common.is_stopping() {
            let ready = self.common.ready.load(Ordering::Acquire);
            let looking = ready && !self.exhausted;
            let bound = self.bound.as_ref().filter(|_| looking);
            let listener = bound.map(|bound| bound.listener.as_fd());
            let patience = if self.exhausted {
                RETRY
            } else {
                Patience::Endless
            };
            let woken = wait([Some(self.common.wake.as_fd()), listener], patience);
            self.exhausted = false;
            let [wake, connecting] = match woken {
                Ok(woken) => woken,
                Err(error) => {
                    let why = error.to_string();
                    self.common.host.event(&SessionEvent::Failed { why });
                    break;
                }
            };
            if wake != Readiness::Idle {
                self.common.wake.clear();
            }
            self.reap();
            if connecting != Readiness::Idle {
                self.accept();
            }
        }
        self.bound = None;
        for known in self.common.known().iter() {
            known.wake.signal();
            let _ = known.stream.shutdown(Shutdown::Both);
        }
        while let Some((front_end, _)) = self.threads.last() {
            self.join(*front_end);
        }
    }

    /// Buries the threads that have ended.
    fn reap(&mut self) {
        let ended = |(front_end, thread): &(u32, JoinHandle<()>)| {
            thread.is_finished().then_some(*front_end)
        };
        let all: Vec<u32> = self.threads.iter().filter_map(ended).collect();
        for front_end in all {
            self.join(front_end);
        }
    }

    fn join(&mut self, front_end: u32) {
        let found = self.threads.iter().position(|(of, _)| *of == front_end);
        let (_, thread) = self.threads.remove(found.expect("it was just seen"));
        if thread.join().is_err() {
            self.common.host.event(&SessionEvent::Panicked);
        }
    }

    fn accept(&mut self) {
        let bound = self
            .bound
            .as_ref()
            .expect("who connects is looked for only then");
        let stream = match bound.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let harmless = [
                    ErrorKind::WouldBlock,
                    ErrorKind::ConnectionAborted,
                    ErrorKind::Interrupted,
                ];
                if !harmless.contains(&error.kind()) {
                    let why = "the connection could not be accepted; it will be tried again";
                    self.common.host.event(&SessionEvent::Refused { why });
                    // Most likely out of descriptors. The connection waits in its queue, so
                    // looking again at once would be a busy loop.
                    self.exhausted = true;
                }
                return;
            }
        };
        // A front-end that came back has closed its old connection before; whoever is gone makes
        // room. What was taken from its rings is finished first: also of a shared export who
        // comes may be the same guest, with the same rings and memory.
        let (connected, gone) = self.common.present();
        let most = match self.common.sharing {
            Sharing::Exclusive => 1,
            Sharing::Shared => FRONT_ENDS_MAX,
        };
        if connected >= most || self.threads.len() >= FRONT_END_THREADS_MAX {
            let why = "as many front-ends as may be are connected";
            self.common.host.event(&SessionEvent::Refused { why });
            return;
        }
        if self.serve(stream, gone).is_err() {
            let why = "no resources for another front-end";
            self.common.host.event(&SessionEvent::Refused { why });
        }
    }

    fn serve(&mut self, stream: UnixStream, earlier: Vec<u32>) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        let front_end = self.next;
        self.next += 1;
        let wake = Event::new()?;
        let connection = Connection::new(
            front_end,
            Arc::clone(&self.common.host),
            Arc::new(self.common.shown.for_front_end()),
            wake.clone(),
        );
        let known = Known {
            front_end,
            outside: Arc::clone(&connection.outside),
            stream: stream.try_clone()?,
            wake: wake.clone(),
        };
        let serving = Serving {
            front_end,
            common: Arc::clone(&self.common),
            stream: stream.try_clone()?,
            wake,
            earlier,
            teller: Teller::default(),
        };
        self.common
            .host
            .event(&SessionEvent::Connected { front_end });
        self.common.known().push(known);
        let spawned = Builder::new()
            .name(thread_name("front-end", &self.common.name))
            .spawn(move || serving.run(stream, connection));
        match spawned {
            Ok(thread) => {
                self.threads.push((front_end, thread));
                Ok(())
            }
            Err(error) => {
                self.common.known().pop();
                Err(error)
            }
        }
    }
}

/// The thread of one front-end.
struct Serving {
    front_end: u32,
    common: Arc<Common>,
    /// A second handle of the connection, to wait on.
    stream: UnixStream,
    wake: Event,
    /// Who had hung up when this one came: until their rings have ended it is told what it asks,
    /// and no more.
    earlier: Vec<u32>,
    teller: Teller,
}

/// Tells others when the rings of a front-end have ended, whatever ended them.
struct Leaves(Arc<Common>, u32);

impl Drop for Leaves {
    fn drop(&mut self) {
        let Leaves(common, front_end) = self;
        common.forget(*front_end);
        // The thread that listens buries us.
        common.wake.signal();
    }
}

impl Serving {
    fn run(mut self, stream: UnixStream, connection: Connection) {
        let leaves = Leaves(Arc::clone(&self.common), self.front_end);
        self.common.host.begin_thread();
        let connection = Arc::new(Mutex::new(connection));
        let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
        // Foreign bytes are parsed by a foreign crate in there: a panic is this front-end's end,
        // not the engine's. Nothing that it may have left half done is used afterwards but to
        // stop the queues.
        let ended = panic::catch_unwind(AssertUnwindSafe(|| self.talk(&mut messages, &connection)));
        drop(messages);
        // The last handle: stops the queues of this front-end.
        drop(connection);
        let (front_end, host) = (self.front_end, &self.common.host);
        match ended {
            Ok(why) => host.event(&SessionEvent::Disconnected { front_end, why }),
            Err(_) => host.event(&SessionEvent::Panicked),
        }
        drop(leaves);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the next message has to wait until the rings of earlier front-ends have ended.
    fn is_held(&mut self) -> bool {
        if self.earlier.is_empty() {
            return false;
        }
        let known = self.common.known();
        let is_there = |of: &u32| known.iter().any(|known| known.front_end == *of);
        self.earlier.retain(is_there);
        !self.earlier.is_empty() && peek_request(&self.stream).is_some_and(touches_rings)
    }

    /// Follows messages until the connection ends; says why it did.
    fn talk(
        &mut self,
        messages: &mut BackendReqHandler<Mutex<Connection>>,
        connection: &Mutex<Connection>,
    ) -> String {
        let lock = || connection.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.common.is_stopping() {
            let is_held = self.is_held();
            let ready = if is_held {
                wait_end(&self.wake, &self.stream)
            } else {
                let both = [Some(self.wake.as_fd()), Some(self.stream.as_fd())];
                wait(both, Patience::Endless)
            };
            let [wake, talking] = match ready {
                Ok(ready) => ready,
                Err(error) => return error.to_string(),
            };
            if wake != Readiness::Idle {
                self.wake.clear();
                let broken = lock().broken();
                self.teller.tell(broken, &*self.common.host);
            }
            match talking {
                Readiness::Idle => continue,
                Readiness::Gone if is_held => return "it hung up".to_owned(),
                // What has come meanwhile may have to wait.
                Readiness::Readable | Readiness::Gone if self.is_held() => continue,
                Readiness::Readable | Readiness::Gone => {}
            }
            if let Some(channel) = peek_channel(&self.stream) {
                lock().peeked = Some(channel);
            }
            match messages.handle_request() {
                Ok(()) => {}
                Err(Error::Disconnected) => return "it hung up".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
        "the export is stopped".to_owned()
    }
}

/// Tells the log about broken queues, but not all of them when a guest breaks one after another.
#[derive(Default)]
struct Teller {
    last: Option<Instant>,
    untold: u64,
}

impl Teller {
    fn tell(
        &mut self,
        broken: Vec<(crate::host::QueueKey, crate::queue::Broken)>,
        host: &dyn Host,
    ) {
        for (key, why) in broken {
            let now = MonotonicClock.now();
            if self.last.is_some_and(|last| now.since(last) < TELL_EVERY) {
                self.untold += 1;
                continue;
            }
            self.last = Some(now);
            let untold = std::mem::take(&mut self.untold);
            host.event(&SessionEvent::QueueBroken { key, why, untold });
        }
    }
}
