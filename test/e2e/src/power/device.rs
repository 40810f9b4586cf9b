//! The guest of the export: one ring, a few requests at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part, Token};

/// Requests at a time.
pub(crate) const DEPTH: usize = 4;
/// Bytes of the longest.
pub(crate) const REQUEST_BYTES: usize = 256 << 10;
const QUEUE_SIZE: u16 = 64;
/// Version 1, event index, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 = protocol::REPLY_ACK | protocol::CONFIG;
const STATUS_UNANSWERED: u8 = 0xAA;
/// Between two looks at the ring.
const LOOK_PAUSE: Duration = Duration::from_micros(200);

/// What a request does (virtio 1.2, 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
}

struct Slot {
    header: u64,
    data: u64,
    token: Option<Token>,
    length: usize,
}

/// A device that is attached.
pub(crate) struct Device {
    front_end: FrontEnd,
    driver: Driver,
    bells: Bells,
    slots: Vec<Slot>,
    memory: Arc<Memory>,
}

impl Device {
    pub(crate) fn connect(socket: &Path) -> io::Result<Device> {
        let memory = Arc::new(Memory::new(DEPTH * REQUEST_BYTES + (1 << 20))?);
        let driver = Driver::new(&memory, Options::new(Layout::Split, QUEUE_SIZE));
        let bells = Bells::new()?;
        let mut front_end = FrontEnd::connect(socket)?;
        let chosen = front_end.negotiate(FEATURES, PROTOCOL)?;
        if chosen != (FEATURES, PROTOCOL) {
            return Err(io::Error::other("the engine does not offer what it should"));
        }
        front_end.set_memory(&memory)?;
        front_end.set_ring(0, &driver, driver.base(), &bells)?;
        front_end.enable(0, true)?;
        let slot = || Slot {
            header: memory.allocate(32, 32),
            data: memory.allocate(REQUEST_BYTES, 4096),
            token: None,
            length: 0,
        };
        Ok(Device {
            front_end,
            driver,
            bells,
            slots: std::iter::repeat_with(slot).take(DEPTH).collect(),
            memory,
        })
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> io::Result<usize> {
        let capacity = self.front_end.configuration(0, 8)?;
        let sectors = u64::from_le_bytes(capacity[..].try_into().expect("eight bytes"));
        Ok(units::bytes_usize(sectors) * 512)
    }

    /// A slot without a request.
    pub(crate) fn free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.token.is_none())
    }

    /// Submits a request in a free slot; a write's bytes are `data`.
    pub(crate) fn submit(
        &mut self,
        slot: usize,
        (kind, offset, length): (Kind, usize, usize),
        data: &[u8],
    ) -> io::Result<()> {
        let number: u32 = match kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush => 4,
        };
        let place = &mut self.slots[slot];
        let memory = &self.memory;
        memory.write(place.header, &number.to_le_bytes());
        memory.write(place.header + 4, &[0; 4]);
        let sector = units::bytes_u64(offset / 512);
        memory.write(place.header + 8, &sector.to_le_bytes());
        memory.write(place.header + 16, &[STATUS_UNANSWERED]);
        memory.write(place.data, data);
        let part = |address, length: usize, writable| Part {
            address,
            length: u32::try_from(length).expect("a request is short"),
            writable,
        };
        let mut parts = vec![part(place.header, 16, false)];
        if kind != Kind::Flush {
            parts.push(part(place.data, length, kind == Kind::Read));
        }
        parts.push(part(place.header + 16, 1, true));
        place.token = self.driver.submit(&parts);
        place.length = length;
        assert!(place.token.is_some(), "a ring has more room than slots");
        if self.driver.kick_wanted() {
            self.bells.kick.write(1)?;
        }
        Ok(())
    }

    /// Waits for an answer: its slot. Anything but success is an error.
    pub(crate) fn wait(&mut self) -> io::Result<usize> {
        match self.wait_any() {
            (slot, true) => Ok(slot),
            (_, false) => Err(io::Error::other("a request ended with an error")),
        }
    }

    /// Waits for an answer: its slot, and whether it says success.
    pub(crate) fn wait_any(&mut self) -> (usize, bool) {
        let used = loop {
            if let Some(used) = self.driver.reap() {
                break used;
            }
            std::thread::park_timeout(LOOK_PAUSE);
        };
        let found = self.slots.iter().position(|s| s.token == Some(used.token));
        let slot = found.expect("the driver knows what is in flight");
        self.slots[slot].token = None;
        let status = self.memory.read(self.slots[slot].header + 16, 1)[0];
        (slot, status == 0)
    }

    /// What a read has brought.
    pub(crate) fn data(&self, slot: usize) -> Vec<u8> {
        self.memory
            .read(self.slots[slot].data, self.slots[slot].length)
    }

    /// Reads everything.
    pub(crate) fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut all = vec![0; self.bytes()?];
        let mut offsets = [0; DEPTH];
        let (mut next, mut done) = (0, 0);
        while done < all.len() {
            if let Some(slot) = self.free().filter(|_| next < all.len()) {
                let length = REQUEST_BYTES.min(all.len() - next);
                self.submit(slot, (Kind::Read, next, length), &[])?;
                offsets[slot] = next;
                next += length;
                continue;
            }
            let slot = self.wait()?;
            let data = self.data(slot);
            all[offsets[slot]..offsets[slot] + data.len()].copy_from_slice(&data);
            done += data.len();
        }
        Ok(all)
    }
}
