//! One front-end: what it has told us over vhost-user, and the rings that follow from it.
//!
//! Protocol: vhost-user of the QEMU documentation, carried by crate `vhost`. A ring runs while it
//! is enabled, has a kick, a size, addresses, and memory behind them, in whatever order these
//! came; every message that changes one of them calls [`Connection::settle`].
//! What does not live here: sockets and threads (`session.rs`), the trait (`protocol.rs`).

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use memory::guest::RegionTable;
use units::limits;
use virtqueue::{Features, Layout, RingError, Vring};

use crate::guest_memory::{self, RegionPlace, Regions, RingPlace};
use crate::host::{Host, MemoryChange, QueueKey, SessionEvent};
use crate::inflight::{InflightMemory, InflightShape};
use crate::profile::{CacheMode, Shown, feature};
use crate::queue::{Events, Notice, Queue, QueueSetup};
use crate::system::{Event, send_now};

/// Why a message cannot be followed. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) &'static str);

/// Where a ring is, as addresses of the front-end's own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
}

/// What a ring was told about kicks. A ring without any has not been started.
#[derive(Clone, Debug)]
enum Kick {
    Stopped,
    Polled,
    By(Event),
}

/// Whether a ring is served.
#[derive(Clone, Debug)]
enum Service {
    Stopped,
    /// It cannot be served as it is; nothing is tried until something about it changes.
    Refused,
    Running(Arc<Notice>),
}

#[derive(Debug)]
struct Ring {
    size: u16,
    addresses: Option<RingAddresses>,
    base: u32,
    kick: Kick,
    call: Option<Event>,
    error: Option<Event>,
    enabled: bool,
    service: Service,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            size: 0,
            addresses: None,
            base: 0,
            kick: Kick::Stopped,
            call: None,
            error: None,
            enabled: false,
            service: Service::Stopped,
        }
    }

    fn events(&self) -> Events {
        Events {
            kick: match &self.kick {
                Kick::Stopped | Kick::Polled => None,
                Kick::By(event) => Some(event.clone()),
            },
            call: self.call.clone(),
            error: self.error.clone(),
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.service, Service::Running(_))
    }

    /// What is known has changed, so a refusal is no longer the last word.
    fn changed(&mut self) {
        if matches!(self.service, Service::Refused) {
            self.service = Service::Stopped;
        }
    }
}

/// What others may know of a connection, and the channel for what we have to say.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    pub(crate) features: u64,
    pub(crate) protocol_features: u64,
    pub(crate) running: Vec<u16>,
    pub(crate) channel: Option<UnixStream>,
}

impl Outside {
    /// Says that there is another configuration to read, where somebody can be told.
    pub(crate) fn tell_of_configuration(&mut self) {
        if let Some(channel) = &self.channel
            && !send_now(channel, &configuration_changed())
        {
            // It does not read, or is gone; a half-sent message would garble the next.
            self.channel = None;
        }
    }
}

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG` of version 1, without payload, no reply wanted.
fn configuration_changed() -> [u8; 12] {
    const CONFIG_CHANGE: u32 = 2;
    const VERSION: u32 = 1;
    let mut message = [0u8; 12];
    message[..4].copy_from_slice(&CONFIG_CHANGE.to_ne_bytes());
    message[4..8].copy_from_slice(&VERSION.to_ne_bytes());
    message
}

/// One front-end.
pub(crate) struct Connection {
    front_end: u32,
    host: Arc<dyn Host>,
    pub(crate) shown: Arc<Shown>,
    /// The size that it was told when it last read the configuration.
    read_sectors: Option<u64>,
    pub(crate) outside: Arc<Mutex<Outside>>,
    wake: Event,
    features: u64,
    regions: Regions,
    memory: Arc<RegionTable>,
    inflight: Option<InflightMemory>,
    rings: Vec<Ring>,
    /// The channel that was seen coming, until the message that brings it is taken.
    pub(crate) peeked: Option<UnixStream>,
}

impl Connection {
    /// A front-end that has said nothing yet. `wake` is signalled when a queue breaks.
    pub(crate) fn new(
        front_end: u32,
        host: Arc<dyn Host>,
        shown: Arc<Shown>,
        wake: Event,
    ) -> Connection {
        let queues = shown.profile.queues;
        let regions = Regions::default();
        Connection {
            front_end,
            host,
            shown,
            read_sectors: None,
            outside: Arc::default(),
            wake,
            features: 0,
            memory: regions.table(),
            regions,
            inflight: None,
            rings: (0..queues).map(|_| Ring::new()).collect(),
            peeked: None,
        }
    }

    fn key(&self, index: u16) -> QueueKey {
        QueueKey {
            front_end: self.front_end,
            index,
        }
    }

    fn outside(&self) -> std::sync::MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&mut self, index: u32) -> Result<(u16, &mut Ring), Refused> {
        let number = u16::try_from(index).map_err(|_| NO_QUEUE)?;
        match self.rings.get_mut(usize::from(number)) {
            Some(ring) => Ok((number, ring)),
            None => Err(NO_QUEUE),
        }
    }

    fn stopped_ring(&mut self, index: u32) -> Result<(u16, &mut Ring), Refused> {
        let (number, ring) = self.ring(index)?;
        if ring.is_running() {
            return Err(Refused("a ring is changed while it runs"));
        }
        ring.changed();
        Ok((number, ring))
    }

    pub(crate) fn layout(&self) -> Layout {
        if self.features & feature::RING_PACKED != 0 {
            Layout::Packed
        } else {
            Layout::Split
        }
    }

    pub(crate) fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        if features & !self.shown.profile.features() != 0 {
            return Err(Refused("features were chosen that were not offered"));
        }
        if features != self.features && self.rings.iter().any(Ring::is_running) {
            return Err(Refused("features were changed while rings run"));
        }
        self.features = features;
        self.outside().features = features;
        // Without the protocol's own features there is no message to enable a ring.
        if features & feature::PROTOCOL_FEATURES == 0 {
            for index in 0..self.shown.profile.queues {
                self.rings[usize::from(index)].enabled = true;
                self.settle(index);
            }
        }
        Ok(())
    }

    pub(crate) fn set_size(&mut self, index: u32, size: u32) -> Result<(), Refused> {
        let (number, ring) = self.stopped_ring(index)?;
        // The protocol has no message that would tell a front-end our queue size.
        match u16::try_from(size) {
            Ok(size) if size > 0 && size <= limits::QUEUE_SIZE_MAX => ring.size = size,
            _ => return Err(Refused("a ring is larger than can be served")),
        }
        self.settle(number);
        Ok(())
    }

    pub(crate) fn set_addresses(
        &mut self,
        index: u32,
        addresses: RingAddresses,
    ) -> Result<(), Refused> {
        let (number, ring) = self.ring(index)?;
        // A front-end may say again what is so, when it only switches logging.
        if ring.addresses == Some(addresses) && ring.is_running() {
            return Ok(());
        }
        let (_, ring) = self.stopped_ring(index)?;
        ring.addresses = Some(addresses);
        self.settle(number);
        Ok(())
    }

    pub(crate) fn set_base(&mut self, index: u32, base: u32) -> Result<(), Refused> {
        let (_, ring) = self.stopped_ring(index)?;
        ring.base = base;
        Ok(())
    }

    /// Stops a ring, and says where it goes on.
    pub(crate) fn base(&mut self, index: u32) -> Result<u32, Refused> {
        let (number, ring) = self.ring(index)?;
        ring.kick = Kick::Stopped;
        ring.changed();
        self.settle(number);
        Ok(self.rings[usize::from(number)].base)
    }

    pub(crate) fn set_kick(&mut self, index: u32, file: Option<File>) -> Result<(), Refused> {
        let kick = match event(file)? {
            Some(event) => Kick::By(event),
            None => Kick::Polled,
        };
        let (number, ring) = self.ring(index)?;
        ring.kick = kick;
        ring.changed();
        if ring.is_running() {
            let kick = ring.events().kick;
            self.host.set_kick(self.key(number), kick);
        }
        self.settle(number);
        Ok(())
    }

    pub(crate) fn set_call(&mut self, index: u32, file: Option<File>) -> Result<(), Refused> {
        let call = event(file)?;
        let (number, ring) = self.ring(index)?;
        ring.call.clone_from(&call);
        if ring.is_running() {
            self.host.set_call(self.key(number), call);
        }
        Ok(())
    }

    pub(crate) fn set_error(&mut self, index: u32, file: Option<File>) -> Result<(), Refused> {
        let error = event(file)?;
        let (number, ring) = self.ring(index)?;
        ring.error.clone_from(&error);
        if ring.is_running() {
            self.host.set_error(self.key(number), error);
        }
        Ok(())
    }

    pub(crate) fn set_enabled(&mut self, index: u32, enabled: bool) -> Result<(), Refused> {
        let (number, ring) = self.ring(index)?;
        ring.enabled = enabled;
        ring.changed();
        self.settle(number);
        Ok(())
    }

    /// Replaces all memory. Rings are stopped for it: their own memory is replaced too.
    /// No regions, which are to take the place of those that there are.
    pub(crate) fn new_memory(&self) -> Regions {
        self.regions.anew()
    }

    pub(crate) fn set_memory(&mut self, regions: Regions) {
        self.stop_all();
        self.regions = regions.in_place();
        self.memory = self.regions.table();
        self.settle_all();
    }

    pub(crate) fn add_region(&mut self, region: guest_memory::NewRegion) -> Result<(), Refused> {
        self.regions = self.regions.with(region)?;
        self.memory = self.regions.table();
        self.host
            .set_memory(self.front_end, &self.memory, MemoryChange::Added);
        self.settle_all();
        Ok(())
    }

    /// Removes a region. Returns when nothing points into it any more.
    pub(crate) fn remove_region(&mut self, place: RegionPlace) -> Result<(), Refused> {
        self.regions = self.regions.without(place)?;
        // Drives may read it for longer than rings know.
        let before = std::mem::replace(&mut self.memory, self.regions.table());
        for index in 0..self.shown.profile.queues {
            let ring = &self.rings[usize::from(index)];
            if ring.is_running() && self.place_of(ring).is_none() {
                self.stop(index);
            }
        }
        self.host
            .set_memory(self.front_end, &self.memory, MemoryChange::Removed);
        drop(before);
        Ok(())
    }

    pub(crate) fn make_inflight(
        &self,
        queues: u16,
        size: u16,
    ) -> Result<(InflightShape, File), Refused> {
        let shape = InflightShape::new(self.layout(), queues, size)
            .ok_or(Refused("an in-flight region for more than can be served"))?;
        let file = shape
            .make()
            .map_err(|_| Refused("no memory for the in-flight region"))?;
        Ok((shape, file))
    }

    pub(crate) fn set_inflight(
        &mut self,
        shape: InflightShape,
        file: &File,
    ) -> Result<(), Refused> {
        if self.rings.iter().any(Ring::is_running) {
            return Err(Refused("the in-flight region is changed while rings run"));
        }
        let inflight = InflightMemory::map(shape, file).map_err(Refused)?;
        // An engine before us may have been told to write through; a guest says so only once.
        match inflight.cache() {
            Some(cache) => self.shown.set_cache(cache),
            None => inflight.set_cache(self.shown.cache()),
        }
        self.inflight = Some(inflight);
        Ok(())
    }

    pub(crate) fn read_configuration(
        &mut self,
        offset: u32,
        length: u32,
    ) -> Result<Vec<u8>, Refused> {
        // Before: a size that changes meanwhile is told again.
        self.read_sectors = Some(self.shown.sectors());
        let bytes = self.shown.read_configuration(offset, length);
        bytes.ok_or(Refused(
            "more configuration was asked for than there can be",
        ))
    }

    pub(crate) fn write_configuration(&mut self, offset: u32, bytes: &[u8]) {
        self.shown.write_configuration(offset, bytes);
        self.remember_cache(self.shown.cache());
    }

    fn remember_cache(&self, cache: CacheMode) {
        if let Some(inflight) = &self.inflight {
            inflight.set_cache(cache);
        }
    }

    /// The guest starts again: no rings. Memory, features and the ways to call and complain are the
    /// front-end's, and stay. So does the cache mode, which may be either after a reset (VIRTIO
    /// 1.2, 5.2.5): front-ends keep a copy of the configuration space, which shows the old one.
    pub(crate) fn reset(&mut self) {
        self.stop_all();
        for ring in &mut self.rings {
            *ring = Ring {
                call: ring.call.take(),
                error: ring.error.take(),
                ..Ring::new()
            };
        }
        self.inflight = None;
    }

    /// Starts or stops a ring, as it follows from all that was said about it.
    fn settle(&mut self, index: u16) {
        let ring = &self.rings[usize::from(index)];
        let ready = ring.enabled && !matches!(ring.kick, Kick::Stopped) && ring.size > 0;
        match (&ring.service, ready) {
            (Service::Stopped, true) => self.start(index),
            (Service::Running(_), false) => self.stop(index),
            (Service::Stopped, false) | (Service::Running(_), true) | (Service::Refused, _) => {}
        }
    }

    fn settle_all(&mut self) {
        for index in 0..self.shown.profile.queues {
            self.rings[usize::from(index)].changed();
            self.settle(index);
        }
    }

    fn stop_all(&mut self) {
        for index in 0..self.shown.profile.queues {
            if self.rings[usize::from(index)].is_running() {
                self.stop(index);
            }
        }
    }

    fn ring_features(&self) -> Features {
        Features {
            event_idx: self.features & feature::EVENT_IDX != 0,
            indirect: self.features & feature::INDIRECT_DESC != 0,
        }
    }

    fn place_of(&self, ring: &Ring) -> Option<RingPlace> {
        let bytes = self.layout().ring_bytes(ring.size, self.ring_features());
        guest_memory::ring_place(&self.memory, ring.addresses?, bytes)
    }

    /// Starts a ring, unless its memory is still to come.
    fn start(&mut self, index: u16) {
        let ring = &self.rings[usize::from(index)];
        let Some(mut place) = self.place_of(ring) else {
            return;
        };
        let key = self.key(index);
        let vring = match self.vring(index, &mut place) {
            Ok(vring) => vring,
            Err(why) => {
                if let Some(error) = &ring.error {
                    error.signal();
                }
                self.host.event(&SessionEvent::QueueNotStarted { key, why });
                self.rings[usize::from(index)].service = Service::Refused;
                return;
            }
        };
        let notice = Arc::new(Notice::new(self.wake.clone()));
        let size = ring.size;
        let queue = Queue::new(QueueSetup {
            vring,
            size,
            kept: place.kept,
            memory: Arc::clone(&self.memory),
            events: ring.events(),
            shown: Arc::clone(&self.shown),
            features: self.features,
            notice: Arc::clone(&notice),
        });
        self.host.start_queue(key, queue);
        self.host.event(&SessionEvent::QueueStarted { key, size });
        self.rings[usize::from(index)].service = Service::Running(notice);
        let size_is_old = self
            .read_sectors
            .is_some_and(|read| read != self.shown.sectors());
        let mut outside = self.outside();
        if size_is_old && outside.running.is_empty() {
            // QEMU forgets what it is told while its guest uses no ring (as firmware hands over to
            // a system), and would show the old size until it ends.
            outside.tell_of_configuration();
        }
        outside.running.push(index);
    }

    fn vring(&self, index: u16, place: &mut RingPlace) -> Result<Vring, RingError> {
        let ring = &self.rings[usize::from(index)];
        let (layout, features) = (self.layout(), self.ring_features());
        let mut vring = Vring::new(layout, ring.size, place.memory, features, ring.base)?;
        if let Some(memory) = &self.inflight {
            let (inflight, mapping) = memory.of_queue(index)?;
            place.kept.push(mapping);
            vring.attach(inflight)?;
        }
        Ok(vring)
    }

    fn stop(&mut self, index: u16) {
        let base = self.host.stop_queue(self.key(index));
        let ring = &mut self.rings[usize::from(index)];
        ring.base = base;
        ring.service = Service::Stopped;
        self.outside().running.retain(|running| *running != index);
    }

    pub(crate) fn note_protocol_features(&mut self, features: u64) {
        self.outside().protocol_features = features;
    }

    /// The message that brings the channel was taken, so the duplicate is ours to use.
    pub(crate) fn take_channel(&mut self) {
        let channel = self.peeked.take();
        self.outside().channel = channel;
    }

    /// The queues that have broken since this was asked last.
    pub(crate) fn broken(&self) -> Vec<(QueueKey, crate::queue::Broken)> {
        let taken = |(at, ring): (usize, &Ring)| match &ring.service {
            Service::Running(notice) => {
                let index = u16::try_from(at).expect("at most 256 rings");
                notice.take().map(|why| (self.key(index), why))
            }
            Service::Stopped | Service::Refused => None,
        };
        self.rings.iter().enumerate().filter_map(taken).collect()
    }
}

impl Drop for Connection {
    /// A front-end that goes leaves nothing running, whatever took it away.
    fn drop(&mut self) {
        self.stop_all();
    }
}

const NO_QUEUE: Refused = Refused("there is no such queue");

fn event(file: Option<File>) -> Result<Option<Event>, Refused> {
    file.map(Event::from_front_end)
        .transpose()
        .map_err(|_| Refused("a kick, call or error is not an event"))
}
