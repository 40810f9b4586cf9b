//! The demo's virtual machine, as far as the engine can tell: memory, rings, and a front-end that
//! comes back with all of it when the engine has gone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guest::front_end::{Bells, FrontEnd, InflightMemory, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use vmm_sys_util::poll::PollContext;

use super::content::BLOCK_BYTES;

/// Queues of the demo's export.
pub(super) const QUEUES: u16 = 4;
/// Requests in flight on each.
pub(super) const DEPTH: usize = 16;
/// Blocks of the largest request: 1 MiB.
pub(super) const REQUEST_BLOCKS_MAX: u32 = 256;
/// Bytes of one data segment; a request of 1 MiB has four.
const SEGMENT_BYTES: usize = 256 << 10;
const QUEUE_SIZE: u16 = 64;
const SECTORS_PER_BLOCK: u64 = 8;

/// Virtio features a guest wants: version 1, event index, indirect tables, several queues, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 28 | 1 << 12 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 =
    protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG | protocol::INFLIGHT_SHMFD;

/// What a request does (virtio 1.2, 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// A request of consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) first: u32,
    pub(super) blocks: u32,
}

impl Request {
    pub(super) fn range(self) -> std::ops::Range<u32> {
        self.first..self.first + self.blocks
    }

    pub(super) fn bytes(self) -> usize {
        BLOCK_BYTES * usize::try_from(self.blocks).expect("32 bits fit")
    }
}

/// An answered request, its status byte (0 is success) and where its data is.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) request: Request,
    pub(super) status: u8,
    pub(super) data: u64,
}

/// Room for one request in guest memory.
#[derive(Clone, Debug)]
struct Slot {
    header: u64,
    table: u64,
    data: u64,
    request: Option<Request>,
}

#[derive(Debug)]
struct Ring {
    driver: Driver,
    bells: Bells,
    slots: Vec<Slot>,
    /// Slots without a request.
    free: Vec<usize>,
    /// By token: the slot.
    of_token: Vec<Option<usize>>,
}

/// The machine. Outlives its connections.
pub(super) struct Machine {
    memory: Arc<Memory>,
    rings: Vec<Ring>,
    inflight: Option<InflightMemory>,
    front_end: Option<FrontEnd>,
    poll: PollContext<u32>,
    socket: PathBuf,
}

const STATUS_UNANSWERED: u8 = 0xAA;

impl Machine {
    /// A machine that has not connected.
    pub(super) fn new(socket: PathBuf) -> io::Result<Machine> {
        let data = REQUEST_BYTES_MAX * DEPTH * usize::from(QUEUES);
        let memory = Arc::new(Memory::new(data + (4 << 20))?);
        let poll = PollContext::new().map_err(|error| os(&error))?;
        let mut rings = Vec::new();
        for index in 0..QUEUES {
            let ring = Ring::new(&memory)?;
            poll.add(&ring.bells.call, u32::from(index))
                .map_err(|error| os(&error))?;
            rings.push(ring);
        }
        Ok(Machine {
            memory,
            rings,
            inflight: None,
            front_end: None,
            poll,
            socket,
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.front_end.is_some()
    }

    /// Connects as a virtual machine monitor does: the same memory and rings, and the record of
    /// what is in flight, so that the engine finishes what another one left.
    pub(super) fn connect(&mut self) -> io::Result<()> {
        let mut front_end = FrontEnd::connect(&self.socket)?;
        let (features, chosen) = front_end.negotiate(FEATURES, PROTOCOL)?;
        if features != FEATURES || chosen != PROTOCOL {
            return Err(io::Error::other("the engine does not offer what it should"));
        }
        front_end.set_memory(&self.memory)?;
        if self.inflight.is_none() {
            self.inflight = Some(front_end.make_inflight(QUEUES, QUEUE_SIZE)?);
        }
        let inflight = self.inflight.as_ref().expect("made above");
        front_end.set_inflight(inflight)?;
        for (index, ring) in (0..).zip(&self.rings) {
            front_end.set_ring(index, &ring.driver, ring.driver.base(), &ring.bells)?;
            front_end.enable(index, true)?;
        }
        self.poll
            .add(&front_end, u32::from(QUEUES))
            .map_err(|error| os(&error))?;
        self.front_end = Some(front_end);
        Ok(())
    }

    /// The first free slot of a queue; where its data goes.
    pub(super) fn room(&self, queue: usize) -> Option<u64> {
        let ring = &self.rings[queue];
        ring.free.last().map(|slot| ring.slots[*slot].data)
    }

    /// Makes a request available, in the slot that [`Machine::room`] named.
    pub(super) fn submit(&mut self, queue: usize, request: Request) {
        self.rings[queue].submit(&self.memory, request);
    }

    /// Kicks a queue where that is wanted.
    pub(super) fn kick(&mut self, queue: usize) -> io::Result<()> {
        let ring = &mut self.rings[queue];
        if ring.driver.kick_wanted() {
            ring.bells.kick.write(1)?;
        }
        Ok(())
    }

    /// Takes an answer. An answer to what is not in flight is a panic of the driver.
    pub(super) fn reap(&mut self, queue: usize) -> Option<Answered> {
        self.rings[queue].reap(&self.memory)
    }

    /// Requests that were not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.rings.iter().map(|ring| DEPTH - ring.free.len()).sum()
    }

    /// Guest memory from `address` on.
    pub(super) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write(address, bytes);
    }

    /// Copies guest memory from `address` on.
    pub(super) fn get(&self, address: u64, target: &mut [u8]) {
        let length = units::bytes_u64(target.len());
        let segment = self.memory.find(address, length).expect("a slot's data");
        segment.copy_to_slice(target);
    }

    /// Sleeps until a call or the end of the connection, at most `longest`; notices the end.
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<()> {
        for ring in &mut self.rings {
            let _ = ring.bells.call.read();
            if ring.driver.enable_calls() {
                return Ok(());
            }
        }
        let events = self
            .poll
            .wait_timeout(longest)
            .map_err(|error| os(&error))?;
        // The engine says nothing unasked: whatever comes is the end.
        let cut = events
            .iter()
            .any(|event| event.token() == u32::from(QUEUES));
        drop(events);
        // Told to the context, or it complains about a loop after many engines have ended.
        if cut && let Some(front_end) = self.front_end.take() {
            self.poll.delete(&front_end).map_err(|error| os(&error))?;
        }
        Ok(())
    }
}

const REQUEST_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(REQUEST_BYTES_MAX == BLOCK_BYTES * 256 && REQUEST_BLOCKS_MAX == 256);

impl Ring {
    fn new(memory: &Arc<Memory>) -> io::Result<Ring> {
        let driver = Driver::new(memory, Options::new(Layout::Split, QUEUE_SIZE));
        let slot = || Slot {
            header: memory.allocate(32, 32),
            table: memory.allocate(16 * 8, 16),
            data: memory.allocate(REQUEST_BYTES_MAX, 4096),
            request: None,
        };
        Ok(Ring {
            driver,
            bells: Bells::new()?,
            slots: std::iter::repeat_with(slot).take(DEPTH).collect(),
            free: (0..DEPTH).collect(),
            of_token: vec![None; usize::from(QUEUE_SIZE)],
        })
    }

    fn submit(&mut self, memory: &Memory, request: Request) {
        let place = self.free.pop().expect("room was looked for");
        let slot = &mut self.slots[place];
        let kind: u32 = match request.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush => 4,
        };
        memory.write(slot.header, &kind.to_le_bytes());
        memory.write(slot.header + 4, &[0; 4]);
        let sector = u64::from(request.first) * SECTORS_PER_BLOCK;
        memory.write(slot.header + 8, &sector.to_le_bytes());
        memory.write(slot.header + 16, &[STATUS_UNANSWERED]);
        let part = |address, length: usize, writable| Part {
            address,
            length: u32::try_from(length).expect("a segment is short"),
            writable,
        };
        let mut parts = vec![part(slot.header, 16, false)];
        let bytes = request.bytes();
        for from in (0..bytes).step_by(SEGMENT_BYTES) {
            let address = slot.data + units::bytes_u64(from);
            let length = SEGMENT_BYTES.min(bytes - from);
            parts.push(part(address, length, request.kind == Kind::Read));
        }
        parts.push(part(slot.header + 16, 1, true));
        slot.request = Some(request);
        let token = self.driver.submit_table(slot.table, &parts);
        let token = token.expect("a ring has more descriptors than slots");
        self.of_token[usize::from(token.0)] = Some(place);
    }

    fn reap(&mut self, memory: &Memory) -> Option<Answered> {
        let used = self.driver.reap()?;
        let place = self.of_token[usize::from(used.token.0)].take();
        let place = place.expect("the driver knows what is in flight");
        let slot = &mut self.slots[place];
        let mut status = memory.read(slot.header + 16, 1)[0];
        let request = slot.request.take().expect("it was submitted");
        let written = match request.kind {
            Kind::Read => request.bytes() + 1,
            Kind::Write | Kind::Flush => 1,
        };
        if usize::try_from(used.written) != Ok(written) && status == 0 {
            // The used length lies: as bad as an error.
            status = STATUS_UNANSWERED;
        }
        self.free.push(place);
        Some(Answered {
            request,
            status,
            data: slot.data,
        })
    }
}

fn os(error: &vmm_sys_util::errno::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}
