//! A guest for tests: a mock front-end, rings, and virtio-blk requests.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use guest::front_end::{Bells, FrontEnd, InflightMemory, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part, Token};
use vhost_user_blk::feature;
use vmm_sys_util::poll::PollContext;

pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const OK: u8 = 0;
pub const IOERR: u8 = 1;
pub const UNSUPP: u8 = 2;
/// What a status byte holds before it is answered.
const UNANSWERED: u8 = 0xAA;

pub const ALL_PROTOCOL: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS;

pub fn protocol_without_inflight() -> u64 {
    ALL_PROTOCOL & !protocol::INFLIGHT_SHMFD
}

pub const ALL_FEATURES: u64 = !feature::RING_PACKED;

/// Where the parts of a request in flight are.
#[derive(Clone, Copy, Debug)]
struct Sent {
    data: u64,
    length: usize,
    status: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub token: Token,
    pub status: u8,
    /// The data of what the device writes.
    pub data: Vec<u8>,
    /// The length in the used ring.
    pub written: u32,
}

/// One ring and its event descriptors.
pub struct Ring {
    pub driver: Driver,
    pub bells: Bells,
    sent: BTreeMap<Token, Sent>,
    indirect: bool,
}

impl Ring {
    pub fn new(memory: &Arc<Memory>, options: Options) -> Ring {
        Ring {
            driver: Driver::new(memory, options),
            bells: Bells::new().unwrap(),
            sent: BTreeMap::new(),
            indirect: false,
        }
    }

    pub fn kick(&mut self) {
        if self.driver.kick_wanted() {
            self.bells.kick.write(1).unwrap();
        }
    }

    /// Sends a request with `out` behind its header and room for `room` bytes before its status.
    pub fn send(&mut self, kind: u32, sector: u64, out: &[u8], room: usize) -> Token {
        let memory = Arc::clone(self.driver.memory());
        let data = memory.allocate(out.len().max(room).max(1), 512);
        memory.write(data, out);
        self.send_at(kind, sector, (data, out.len(), room))
    }

    /// As `send`, with the data at an address of the caller's choice.
    pub fn send_at(
        &mut self,
        kind: u32,
        sector: u64,
        (data, out, room): (u64, usize, usize),
    ) -> Token {
        let memory = Arc::clone(self.driver.memory());
        let header = memory.allocate(17, 16);
        memory.write(header, &kind.to_le_bytes());
        memory.write(header + 8, &sector.to_le_bytes());
        memory.write(header + 16, &[UNANSWERED]);
        let part = |address, length: usize, writable| Part {
            address,
            length: u32::try_from(length).unwrap(),
            writable,
        };
        let mut parts = vec![part(header, 16, false)];
        if out > 0 {
            parts.push(part(data, out, false));
        }
        if room > 0 {
            parts.push(part(data, room, true));
        }
        parts.push(part(header + 16, 1, true));
        let token = if self.indirect {
            self.driver.submit_indirect(&parts)
        } else {
            self.driver.submit(&parts)
        };
        let token = token.expect("the ring has room");
        let sent = Sent {
            data,
            length: room,
            status: header + 16,
        };
        self.sent.insert(token, sent);
        self.kick();
        token
    }

    /// Takes an answer, if there is one.
    pub fn reap(&mut self) -> Option<Answer> {
        let used = self.driver.reap()?;
        let sent = self.sent.remove(&used.token).expect("it was sent");
        let memory = self.driver.memory();
        let data = if (Memory::START..Memory::START + (1 << 32)).contains(&sent.data) {
            memory.read(sent.data, sent.length)
        } else {
            Vec::new()
        };
        Some(Answer {
            token: used.token,
            status: memory.read(sent.status, 1)[0],
            data,
            written: used.written,
        })
    }

    /// Sleeps until the device calls, and takes the answer.
    pub fn wait(&mut self) -> Answer {
        let context: PollContext<u32> = PollContext::new().unwrap();
        context.add(&self.bells.call, 0).unwrap();
        loop {
            let _ = self.bells.call.read();
            if self.driver.enable_calls()
                && let Some(answer) = self.reap()
            {
                return answer;
            }
            if let Some(answer) = self.reap() {
                return answer;
            }
            let _ = context.wait().unwrap();
        }
    }

    pub fn wait_all(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while !self.sent.is_empty() {
            answers.push(self.wait());
        }
        answers
    }

    pub fn pending(&self) -> usize {
        self.sent.len()
    }

    /// One request and its answer.
    pub fn ask(&mut self, kind: u32, sector: u64, out: &[u8], room: usize) -> Answer {
        let token = self.send(kind, sector, out, room);
        let answer = self.wait();
        assert_eq!(answer.token, token, "nothing else is in flight");
        answer
    }

    pub fn write(&mut self, sector: u64, bytes: &[u8]) {
        let answer = self.ask(OUT, sector, bytes, 0);
        assert_eq!((answer.status, answer.written), (OK, 1));
    }

    pub fn read(&mut self, sector: u64, bytes: usize) -> Vec<u8> {
        let answer = self.ask(IN, sector, &[], bytes);
        let written = u32::try_from(bytes + 1).unwrap();
        assert_eq!((answer.status, answer.written), (OK, written));
        answer.data
    }
}

/// How a guest is.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub layout: Layout,
    pub size: u16,
    /// Descriptors of the rings that in-flight memory is asked for, if more than that.
    pub size_told: u16,
    pub queues: u16,
    pub memory_bytes: usize,
    pub indirect: bool,
    /// Virtio features to choose, of those offered; the layout's own is added.
    pub features: u64,
    pub protocol: u64,
}

impl Kind {
    pub fn new(layout: Layout, queues: u16) -> Kind {
        Kind {
            layout,
            size: 32,
            size_told: 0,
            queues,
            memory_bytes: 32 << 20,
            indirect: false,
            features: ALL_FEATURES,
            protocol: ALL_PROTOCOL,
        }
    }

    /// The feature word to ask for.
    pub fn wanted(&self) -> u64 {
        let packed = match self.layout {
            Layout::Packed => feature::RING_PACKED,
            Layout::Split => 0,
        };
        self.features & !feature::RING_PACKED | packed
    }
}

/// A guest with rings in its memory. Outlives its connections, as a virtual machine does.
pub struct Guest {
    pub kind: Kind,
    pub memory: Arc<Memory>,
    pub rings: Vec<Ring>,
    pub inflight: Option<InflightMemory>,
    pub front_end: Option<FrontEnd>,
}

impl Guest {
    /// Connects and starts all rings.
    pub fn start(path: &Path, kind: Kind) -> Guest {
        let mut guest = Guest::boot(kind);
        guest.connect(path).unwrap();
        guest
    }

    /// A guest that has not connected.
    pub fn boot(kind: Kind) -> Guest {
        let memory = Arc::new(Memory::new(kind.memory_bytes).unwrap());
        let options = Options {
            event_idx: kind.features & feature::EVENT_IDX != 0,
            ..Options::new(kind.layout, kind.size)
        };
        let rings = (0..kind.queues).map(|_| {
            let mut ring = Ring::new(&memory, options);
            ring.indirect = kind.indirect;
            ring
        });
        Guest {
            kind,
            rings: rings.collect(),
            memory,
            inflight: None,
            front_end: None,
        }
    }

    pub fn front_end(&self) -> &FrontEnd {
        self.front_end.as_ref().expect("connected")
    }

    /// Connects as QEMU does, with what is in flight from before if there is any.
    pub fn connect(&mut self, path: &Path) -> io::Result<()> {
        let mut front_end = FrontEnd::connect(path)?;
        let (_, protocol) = front_end.negotiate(self.kind.wanted(), self.kind.protocol)?;
        front_end.set_memory(&self.memory)?;
        if protocol & protocol::INFLIGHT_SHMFD != 0 {
            let inflight = match self.inflight.take() {
                Some(inflight) => inflight,
                None => {
                    let size = self.kind.size_told.max(self.kind.size);
                    front_end.make_inflight(self.kind.queues, size)?
                }
            };
            front_end.set_inflight(&inflight)?;
            self.inflight = Some(inflight);
        }
        for (index, ring) in (0..).zip(&self.rings) {
            front_end.set_ring(index, &ring.driver, ring.driver.base(), &ring.bells)?;
            if protocol != 0 {
                front_end.enable(index, true)?;
            }
        }
        self.front_end = Some(front_end);
        Ok(())
    }

    pub fn disconnect(&mut self) {
        self.front_end = None;
    }
}

pub const NEGOTIATED: u64 = PROTOCOL_FEATURES;

/// The payload of a discard or write-zeroes.
pub fn ranges(of: &[(u64, u32)]) -> Vec<u8> {
    let bytes = |(sector, sectors): &(u64, u32)| {
        let sector = sector.to_le_bytes().to_vec();
        [sector, sectors.to_le_bytes().to_vec(), vec![0; 4]].concat()
    };
    of.iter().flat_map(bytes).collect()
}

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
