//! A guest with one queue: connects, and writes a block.

use std::path::Path;
use std::sync::Arc;

use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};

/// Version 1, event index, several queues, flush.
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 12 | 1 << 9 | PROTOCOL_FEATURES;
const PROTOCOL: u64 =
    protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS;
const UNANSWERED: u8 = 0xaa;

pub(super) struct Guest {
    memory: Arc<Memory>,
    driver: Driver,
    bells: Bells,
    pub(super) front_end: FrontEnd,
    header: u64,
    data: u64,
}

/// The most bytes of one request.
const BYTES_MAX: usize = 256 << 10;

impl Guest {
    pub(super) fn connect(socket: &Path) -> Guest {
        let memory = Arc::new(Memory::new(1 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, 16));
        let (header, data) = (memory.allocate(32, 32), memory.allocate(BYTES_MAX, 4096));
        let bells = Bells::new().expect("events");
        let mut front_end = FrontEnd::connect(socket).expect("the engine listens");
        front_end.negotiate(FEATURES, PROTOCOL).expect("agreed");
        front_end.set_memory(&memory).expect("taken");
        front_end
            .set_ring(0, &driver, driver.base(), &bells)
            .expect("taken");
        front_end.enable(0, true).expect("enabled");
        Guest {
            memory,
            driver,
            bells,
            front_end,
            header,
            data,
        }
    }

    /// Begins to write one block of 4 KiB.
    pub(super) fn write(&mut self, sector: u64) {
        self.ask(1, sector);
    }

    /// Begins to read one block.
    pub(super) fn ask_read(&mut self, sector: u64) {
        self.ask(0, sector);
    }

    /// Writes a block full of one byte, and waits until that is answered.
    pub(super) fn fill(&mut self, sector: u64, byte: u8) {
        self.begin_fill(sector, byte);
        self.wait();
    }

    /// Begins to write a block full of one byte.
    pub(super) fn begin_fill(&mut self, sector: u64, byte: u8) {
        self.memory.write(self.data, &[byte; 4096]);
        self.ask(1, sector);
    }

    /// Begins to write so many bytes, all the same.
    pub(super) fn begin_fill_all(&mut self, sector: u64, byte: u8, bytes: usize) {
        self.memory.write(self.data, &vec![byte; bytes]);
        self.ask_for(1, sector, bytes);
    }

    /// Begins to make so many sectors zeroes that it does not carry.
    pub(super) fn begin_zeroing(&mut self, sector: u64, sectors: u32) {
        let range = [sector, u64::from(sectors)].map(u64::to_le_bytes);
        self.memory.write(self.data, &range.concat());
        self.ask_for(13, 0, 16);
    }

    /// Begins to flush.
    pub(super) fn begin_flush(&mut self) {
        self.ask_for(4, 0, 0);
    }

    /// The memory that it has told of.
    pub(super) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    /// What a block holds.
    pub(super) fn read(&mut self, sector: u64) -> Vec<u8> {
        self.memory.write(self.data, &[0xEE; 4096]);
        self.ask(0, sector);
        self.wait();
        self.memory.read(self.data, 4096)
    }

    /// What the read that was answered last has brought.
    pub(super) fn answered_with(&self) -> Vec<u8> {
        self.memory.read(self.data, 4096)
    }

    /// Waits for the answer to what was begun.
    pub(super) fn wait(&mut self) {
        let guest = std::cell::RefCell::new(self);
        super::wait_until("an answer", || {
            let answer = guest.borrow_mut().answer();
            assert!(answer.is_none_or(|status| status == 0), "{answer:?}");
            answer.is_some()
        });
    }

    fn ask(&mut self, operation: u32, sector: u64) {
        self.ask_for(operation, sector, 4096);
    }

    fn ask_for(&mut self, operation: u32, sector: u64, bytes: usize) {
        let length = u32::try_from(bytes).expect("short");
        self.memory.write(self.header, &operation.to_le_bytes());
        self.memory.write(self.header + 4, &[0; 4]);
        self.memory.write(self.header + 8, &sector.to_le_bytes());
        self.memory.write(self.header + 16, &[UNANSWERED]);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let mut parts = vec![
            part(self.header, 16, false),
            part(self.data, length, operation == 0),
            part(self.header + 16, 1, true),
        ];
        parts.retain(|part| part.length > 0);
        self.driver.submit(&parts).expect("room");
        self.bells.kick.write(1).expect("kicked");
    }

    /// The status of an answer that has come.
    pub(super) fn answer(&mut self) -> Option<u8> {
        self.driver.reap()?;
        Some(self.memory.read(self.header + 16, 1)[0])
    }
}
