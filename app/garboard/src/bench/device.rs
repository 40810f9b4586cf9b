//! A front-end without a guest: connects to a vhost-user-blk socket of any back-end, and keeps
//! requests in flight on its rings.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use units::{bytes_u64, bytes_usize};
use vmm_sys_util::poll::PollContext;

use super::load::Lane;

/// `VIRTIO_BLK_F_*` and `VIRTIO_F_*` that are used when they are offered.
const SIZE_MAX: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 5;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const MULTI_QUEUE: u64 = 1 << 12;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const WANTED: u64 = SIZE_MAX
    | READ_ONLY
    | FLUSH
    | TOPOLOGY
    | MULTI_QUEUE
    | INDIRECT
    | EVENT_INDEX
    | VERSION_1
    | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;

/// How long a back-end may leave a message unanswered: one that drains slow drives takes a while.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors of each ring.
const QUEUE_SIZE: u16 = 256;
/// Bytes of `virtio_blk_config` up to the number of queues.
const CONFIGURATION_BYTES: u32 = 36;
/// A segment where the device does not say how long one may be.
const SEGMENT_BYTES: usize = 256 << 10;
/// Bytes of data that all slots share at the most.
const DATA_BYTES_MAX: usize = 64 << 20;

/// What a request does (virtio 1.2, 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// What is asked of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// First byte, a multiple of 512.
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// How many requests there will be, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Requests in flight.
    pub(super) slots: usize,
    /// Bytes of the longest.
    pub(super) bytes: usize,
    /// Rings that are wanted; there are fewer when the device has fewer.
    pub(super) queues: usize,
    /// Whether each slot needs data of its own, because it is compared.
    pub(super) own_data: bool,
}

/// What the device says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) size_bytes: u64,
    pub(super) queues: usize,
    /// The length that the device likes best, usually a full stripe; 0 when it does not say.
    pub(super) optimal_bytes: u64,
    pub(super) features: u64,
}

impl Facts {
    pub(super) fn is_read_only(&self) -> bool {
        self.features & READ_ONLY != 0
    }

    /// What both of two devices have.
    pub(super) fn common(self, other: &Facts) -> Facts {
        Facts {
            size_bytes: self.size_bytes.min(other.size_bytes),
            queues: self.queues.min(other.queues),
            optimal_bytes: self.optimal_bytes,
            features: (self.features & other.features)
                | ((self.features | other.features) & READ_ONLY),
        }
    }

    pub(super) fn can_flush(&self) -> bool {
        self.features & FLUSH != 0
    }
}

struct Ring {
    driver: Driver,
    bells: Bells,
    /// By token: the slot.
    of_token: Vec<Option<usize>>,
}

struct Slot {
    header: u64,
    table: u64,
    data: u64,
    queue: usize,
}

/// A connection with its rings and slots.
pub(super) struct Device {
    pub(super) facts: Facts,
    // Dropped last: the device writes to it until the connection has ended.
    front_end: FrontEnd,
    rings: Vec<Ring>,
    slots: Vec<Slot>,
    segment_bytes: usize,
    /// The parts of the request that is submitted, so that nothing is allocated for each.
    parts: Vec<Part>,
    poll: PollContext<u32>,
    memory: Arc<Memory>,
}

/// Asks a device what it is and which process has it, and leaves again.
pub(super) fn look(socket: &Path) -> io::Result<(Facts, Option<u32>)> {
    look_for(socket, PATIENCE)
}

fn look_for(socket: &Path, patience: Duration) -> io::Result<(Facts, Option<u32>)> {
    answered(patience, || {
        let mut front_end = FrontEnd::connect(socket)?;
        front_end.set_patience(patience)?;
        let (features, chosen) = front_end.negotiate(WANTED, PROTOCOL)?;
        let (facts, _) = facts(&front_end, features, chosen)?;
        Ok((facts, front_end.peer_process()))
    })
}

/// What `ask` says, in clearer words where the back-end said nothing.
fn answered<T>(patience: Duration, ask: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    ask().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return error;
        }
        let text = format!(
            "the back-end has left a message unanswered for {} s: is it stopped, or its CPU taken?",
            patience.as_secs_f32()
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    })
}

/// The facts, and the longest segment.
fn facts(front_end: &FrontEnd, features: u64, chosen: u64) -> io::Result<(Facts, usize)> {
    if chosen & protocol::CONFIG == 0 {
        return Err(io::Error::other(
            "the back-end does not tell its configuration",
        ));
    }
    let bytes = front_end.configuration(0, CONFIGURATION_BYTES)?;
    let number = |at: usize, length: usize| {
        let parts = bytes[at..at + length].iter().rev();
        parts.fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let has = |feature: u64| features & feature != 0;
    let block = number(20, 4).max(512);
    let queues = if has(MULTI_QUEUE) { number(34, 2) } else { 1 };
    let segment = if has(SIZE_MAX) { number(8, 4) } else { 0 };
    let segment = bytes_usize(segment).min(SEGMENT_BYTES);
    Ok((
        Facts {
            size_bytes: number(0, 8).saturating_mul(512),
            queues: bytes_usize(queues.max(1)),
            optimal_bytes: if has(TOPOLOGY) {
                number(28, 4) * block
            } else {
                0
            },
            features,
        },
        if segment == 0 { SEGMENT_BYTES } else { segment },
    ))
}

impl Device {
    /// Connects, and makes room.
    ///
    /// # Errors
    /// When nobody listens, the back-end refuses, or its rings are too short for the requests.
    pub(super) fn connect(socket: &Path, room: &Room) -> io::Result<Device> {
        answered(PATIENCE, || Device::connected(socket, room))
    }

    fn connected(socket: &Path, room: &Room) -> io::Result<Device> {
        let mut front_end = FrontEnd::connect(socket)?;
        front_end.set_patience(PATIENCE)?;
        let (features, chosen) = front_end.negotiate(WANTED, PROTOCOL)?;
        let (facts, segment_bytes) = facts(&front_end, features, chosen)?;
        let queues = room.queues.clamp(1, facts.queues);
        let segments = room.bytes.div_ceil(segment_bytes);
        let each = if features & INDIRECT != 0 {
            1
        } else {
            segments + 2
        };
        if room.slots.div_ceil(queues) * each > usize::from(QUEUE_SIZE) {
            let text = format!(
                "{} requests in flight do not fit {queues} rings of {QUEUE_SIZE}",
                room.slots
            );
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        let shared = (DATA_BYTES_MAX / room.bytes).clamp(1, room.slots);
        let buffers = if room.own_data { room.slots } else { shared };
        let slot_bytes = 64 + 16 * (segments + 2) + 64;
        let ring_bytes = usize::from(QUEUE_SIZE) * 64 + (16 << 10);
        let bytes = buffers * (room.bytes + 4096) + room.slots * slot_bytes + queues * ring_bytes;
        let memory = Arc::new(Memory::new(bytes.next_multiple_of(1 << 20) + (1 << 20))?);
        front_end.set_memory(&memory)?;
        let poll = PollContext::new().map_err(os)?;
        // All that it ever says by itself is that it has ended.
        poll.add(front_end.connection(), u32::MAX).map_err(os)?;
        let mut rings = Vec::new();
        for index in 0..u32::try_from(queues).expect("a device has few rings") {
            let mut options = Options::new(Layout::Split, QUEUE_SIZE);
            options.event_idx = features & EVENT_INDEX != 0;
            let mut driver = Driver::new(&memory, options);
            let bells = Bells::new()?;
            front_end.set_ring(index, &driver, driver.base(), &bells)?;
            front_end.enable(index, true)?;
            driver.disable_calls();
            poll.add(&bells.call, index).map_err(os)?;
            rings.push(Ring {
                driver,
                bells,
                of_token: vec![None; usize::from(QUEUE_SIZE)],
            });
        }
        let data: Vec<u64> = (0..buffers)
            .map(|_| memory.allocate(room.bytes, 4096))
            .collect();
        let slots = (0..room.slots).map(|slot| Slot {
            header: memory.allocate(32, 32),
            table: memory.allocate(16 * (segments + 2), 16),
            data: data[slot % buffers],
            queue: slot % queues,
        });
        Ok(Device {
            slots: slots.collect(),
            facts,
            front_end,
            rings,
            segment_bytes,
            parts: Vec::with_capacity(segments + 2),
            poll,
            memory,
        })
    }

    /// Stops all rings, so that nothing is written to our memory any more.
    pub(super) fn leave(self) -> io::Result<()> {
        let rings = u32::try_from(self.rings.len()).expect("a device has few rings");
        answered(PATIENCE, || {
            (0..rings).try_for_each(|index| self.front_end.stop_ring(index).map(|_| ()))
        })
    }
}

impl Lane for Device {
    /// Makes a request available in a slot that has none.
    fn submit(&mut self, slot: usize, request: Request) {
        let place = &self.slots[slot];
        // A flush has no sector: some devices refuse one that names any.
        let (kind, sector) = match request.kind {
            Kind::Read => (0, request.offset / 512),
            Kind::Write => (1, request.offset / 512),
            Kind::Flush => (4, 0),
        };
        self.memory.store_u32(place.header, kind);
        self.memory.store_u32(place.header + 4, 0);
        self.memory.store_u64(place.header + 8, sector);
        self.memory.store_u8(place.header + 16, UNANSWERED);
        let part = |address, length: usize, writable| Part {
            address,
            length: u32::try_from(length).expect("a segment is short"),
            writable,
        };
        let parts = &mut self.parts;
        parts.clear();
        parts.push(part(place.header, 16, false));
        let bytes = match request.kind {
            Kind::Read | Kind::Write => request.bytes,
            Kind::Flush => 0,
        };
        for from in (0..bytes).step_by(self.segment_bytes) {
            let length = self.segment_bytes.min(bytes - from);
            let address = place.data + bytes_u64(from);
            parts.push(part(address, length, request.kind == Kind::Read));
        }
        parts.push(part(place.header + 16, 1, true));
        let ring = &mut self.rings[place.queue];
        let token = if self.facts.features & INDIRECT != 0 {
            ring.driver.submit_table(place.table, parts)
        } else {
            ring.driver.submit(parts)
        };
        let token = token.expect("connect made sure of room");
        ring.of_token[usize::from(token.0)] = Some(slot);
    }

    /// Tells the back-end of what was submitted, where it wants to be told.
    fn kick(&mut self) -> io::Result<()> {
        for ring in &mut self.rings {
            if ring.driver.kick_wanted() {
                ring.bells.kick.write(1)?;
            }
        }
        Ok(())
    }

    /// Takes an answer: the slot, and whether it went well.
    fn reap(&mut self) -> Option<(usize, u8)> {
        for ring in &mut self.rings {
            if let Some(used) = ring.driver.reap() {
                let slot = ring.of_token[usize::from(used.token.0)].take();
                let slot = slot.expect("the driver knows what is in flight");
                let status = self.memory.load_u8(self.slots[slot].header + 16);
                return Some((slot, status));
            }
        }
        None
    }

    /// Puts bytes into a slot's data.
    fn put(&self, slot: usize, bytes: &[u8]) {
        self.memory.write(self.slots[slot].data, bytes);
    }

    /// Copies from a slot's data.
    fn get(&self, slot: usize, target: &mut [u8]) {
        let length = bytes_u64(target.len());
        let segment = self.memory.find(self.slots[slot].data, length);
        segment.expect("a slot's data").copy_to_slice(target);
    }

    /// Sleeps until an answer is there, at most `longest`.
    fn wait(&mut self, longest: Duration) -> io::Result<()> {
        let mut ready = false;
        for ring in &mut self.rings {
            let _ = ring.bells.call.read();
            ready |= ring.driver.enable_calls();
        }
        if !ready {
            let events = self.poll.wait_timeout(longest).map_err(os)?;
            if events.iter_hungup().next().is_some() {
                let text = "the back-end hung up: it has ended, or lets us go";
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, text));
            }
        }
        for ring in &mut self.rings {
            ring.driver.disable_calls();
        }
        Ok(())
    }
}

/// The status byte before the device has written it.
const UNANSWERED: u8 = 0xAA;

#[allow(clippy::needless_pass_by_value, reason = "given to map_err")]
fn os(error: vmm_sys_util::errno::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_back_end_that_says_nothing_is_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("vhost.sock");
        // Connections wait in its queue: nobody takes them.
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let error = look_for(&socket, Duration::from_millis(20)).expect_err("nobody answers");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let text = error.to_string();
        assert!(text.contains("unanswered for 0.02 s"), "{text}");
    }
}
