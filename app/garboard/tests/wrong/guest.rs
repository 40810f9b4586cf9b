//! A guest that knows what it wrote: every block says where it is and of which writing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guest::front_end::{Bells, FrontEnd, PROTOCOL_FEATURES, protocol};
use guest::{Driver, Layout, Memory, Options, Part};
use units::{Clock, MonotonicClock};

use crate::common::Engine;

/// `VIRTIO_F_VERSION_1`, `VIRTIO_BLK_F_FLUSH`, and what vhost-user needs.
const FEATURES: u64 = 1 << 32 | 1 << 9 | PROTOCOL_FEATURES;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
/// Bytes of one request.
const REQUEST_BYTES: u32 = 128 << 10;
const BLOCK_BYTES: usize = 4096;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A virtual machine with one ring.
pub(crate) struct Guest {
    memory: Arc<Memory>,
    driver: Driver,
    bells: Bells,
    _front_end: FrontEnd,
    header: u64,
    data: u64,
    status: u64,
    bytes: u64,
}

impl Guest {
    /// Attaches to the export of volume `v`.
    pub(crate) fn attach(engine: &Engine) -> Guest {
        let shown = engine.json(&["export", "show", "v"]);
        let socket: PathBuf = shown["socket"].as_str().expect("a path").into();
        let bytes = engine.json(&["volume", "show", "v"])["size_bytes"].as_u64();
        let memory = Arc::new(Memory::new(1 << 20).expect("memory"));
        let driver = Driver::new(&memory, Options::new(Layout::Split, 16));
        let bells = Bells::new().expect("bells");
        let mut front_end = FrontEnd::connect(&socket).expect("it listens");
        let settle = |front_end: &mut FrontEnd| {
            front_end.negotiate(FEATURES, protocol::REPLY_ACK)?;
            front_end.set_memory(&memory)?;
            front_end.set_ring(0, &driver, driver.base(), &bells)?;
            front_end.enable(0, true)
        };
        settle(&mut front_end).expect("it agrees");
        Guest {
            header: memory.allocate(16, 16),
            data: memory.allocate(usize::try_from(REQUEST_BYTES).expect("small"), 4096),
            status: memory.allocate(1, 1),
            memory,
            driver,
            bells,
            _front_end: front_end,
            bytes: bytes.expect("a number"),
        }
    }

    /// Writes the whole volume anew, as writing number `writing`, and flushes.
    pub(crate) fn write(&mut self, writing: u64) {
        self.write_some(writing, self.bytes);
        assert_eq!(self.request(FLUSH, 0), 0, "flushed");
    }

    /// Writes the first `bytes` of the volume, without a flush.
    pub(crate) fn write_some(&mut self, writing: u64, bytes: u64) {
        for at in (0..bytes).step_by(usize::try_from(REQUEST_BYTES).expect("small")) {
            self.memory.write(self.data, &content(at, writing));
            assert_eq!(self.request(WRITE, at), 0, "written at {at}");
        }
    }

    /// Writes the beginning of the volume, and gives back the status.
    pub(crate) fn try_write(&mut self, writing: u64) -> u8 {
        self.memory.write(self.data, &content(0, writing));
        self.request(WRITE, 0)
    }

    /// Reads the whole volume: every block is of writing number `writing`.
    pub(crate) fn verify(&mut self, writing: u64) {
        self.verify_some(writing, self.bytes);
    }

    /// Reads the first `bytes` of the volume.
    pub(crate) fn verify_some(&mut self, writing: u64, bytes: u64) {
        for at in (0..bytes).step_by(usize::try_from(REQUEST_BYTES).expect("small")) {
            let length = usize::try_from(REQUEST_BYTES).expect("small");
            assert_eq!(self.request(READ, at), 0, "read at {at}");
            let read = self.memory.read(self.data, length);
            let wanted = content(at, writing);
            let wrong = read
                .iter()
                .zip(&wanted)
                .position(|(read, wanted)| read != wanted);
            assert_eq!(wrong, None, "writing {writing}, at {at}: {:?}", &read[..16]);
        }
    }

    /// One request, and the status that it is answered with.
    fn request(&mut self, kind: u32, at: u64) -> u8 {
        self.memory.write(self.header, &kind.to_le_bytes());
        self.memory
            .write(self.header + 8, &(at / 512).to_le_bytes());
        self.memory.write(self.status, &[0xAA]);
        let part = |address, length, writable| Part {
            address,
            length,
            writable,
        };
        let mut parts = vec![part(self.header, 16, false)];
        if kind != FLUSH {
            parts.push(part(self.data, REQUEST_BYTES, kind == READ));
        }
        parts.push(part(self.status, 1, true));
        self.driver.submit(&parts).expect("room");
        self.bells.kick.write(1).expect("kicked");
        let begun = MonotonicClock.now();
        while self.driver.reap().is_none() {
            assert!(MonotonicClock.now().since(begun) < PATIENCE, "no answer");
            std::thread::park_timeout(Duration::from_micros(50));
        }
        self.memory.read(self.status, 1)[0]
    }
}

/// What lies at byte `at` after writing number `writing`.
fn content(at: u64, writing: u64) -> Vec<u8> {
    let blocks = usize::try_from(REQUEST_BYTES).expect("small") / BLOCK_BYTES;
    let mut bytes = Vec::with_capacity(blocks * BLOCK_BYTES);
    for block in (0..).map(|block| at / 4096 + block).take(blocks) {
        let mut word = (block << 32 | writing).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..BLOCK_BYTES / 8 {
            word = word.rotate_left(17).wrapping_add(0x632b_e59b_d9b4_e019);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}
