//! What the tests share: a mock guest's ring, seen from the device's side.
#![allow(
    dead_code,
    reason = "each test file uses a part of it; the unit tests another"
)]

use std::sync::Arc;

use guest::{Driver, Memory, Part};
use memory::Segment;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::FileFailurePersistence;
use virtqueue::{BadAddress, Chain, Features, GuestMemory, Layout, RingError, RingMemory, Vring};

/// A guest's memory as the device sees it: in pieces that end at each multiple of `piece`.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) memory: Arc<Memory>,
    pub(crate) piece: u64,
}

impl View {
    pub(crate) fn new(memory: &Arc<Memory>) -> View {
        View {
            memory: Arc::clone(memory),
            piece: 1 << 40,
        }
    }
}

impl GuestMemory for View {
    fn translate(
        &self,
        address: u64,
        length: u64,
        _hint: &mut usize,
        out: &mut Vec<Segment>,
    ) -> Result<(), BadAddress> {
        let bad = BadAddress { address, length };
        self.memory.find(address, length).ok_or(bad)?;
        let (mut at, end) = (address, address + length);
        while at < end {
            let stop = end.min((at / self.piece + 1) * self.piece);
            out.push(self.memory.find(at, stop - at).ok_or(bad)?);
            at = stop;
        }
        Ok(())
    }

    fn peek(&self, address: u64, _hint: usize) -> Option<Segment> {
        let bytes = [4096, 16, 1];
        bytes
            .iter()
            .find_map(|&bytes| self.memory.find(address, bytes))
    }
}

pub(crate) fn layout(driver: &Driver) -> Layout {
    match driver.options().layout {
        guest::Layout::Split => Layout::Split,
        guest::Layout::Packed => Layout::Packed,
    }
}

pub(crate) fn features(driver: &Driver) -> Features {
    Features {
        event_idx: driver.options().event_idx,
        indirect: true,
    }
}

pub(crate) fn ring_memory(driver: &Driver) -> RingMemory {
    let find = |(address, length): (u64, usize)| {
        let segment = driver.memory().find(address, units::bytes_u64(length));
        segment.expect("a ring is in guest memory")
    };
    let addresses = driver.addresses();
    RingMemory {
        descriptors: find(addresses.descriptors),
        driver: find(addresses.driver),
        device: find(addresses.device),
    }
}

/// Memory of a guest; on the heap where files cannot be mapped.
pub(crate) fn memory(bytes: usize) -> Arc<Memory> {
    Arc::new(if cfg!(miri) {
        Memory::heap(bytes.min(1 << 20))
    } else {
        Memory::new(bytes).expect("a memory file")
    })
}

/// The device's side of a ring that the driver has just made.
pub(crate) fn vring(driver: &Driver) -> Vring {
    try_vring(driver, driver.base()).expect("the ring is good")
}

pub(crate) fn try_vring(driver: &Driver, base: u32) -> Result<Vring, RingError> {
    let (layout, size) = (layout(driver), driver.options().size);
    Vring::new(layout, size, ring_memory(driver), features(driver), base)
}

/// Bytes of segments, one after another.
pub(crate) fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    let mut all = Vec::new();
    for segment in segments {
        let mut bytes = vec![0; segment.len()];
        segment.copy_to_slice(&mut bytes);
        all.extend(bytes);
    }
    all
}

/// What request number `number` says, or is answered, when it has `length` bytes.
pub(crate) fn text(number: u64, length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (number.wrapping_mul(0x9e37_79b9).wrapping_add(at * 7) >> 3).to_le_bytes()[0])
        .collect()
}

/// Memory for the parts of a request, readable ones first, filled with the request's text.
pub(crate) fn parts(memory: &Memory, number: u64, readable: &[u32], writable: &[u32]) -> Vec<Part> {
    let total = readable.iter().map(|&length| u64::from(length)).sum();
    let (text, mut said) = (text(number, total), 0);
    let mut parts = Vec::new();
    for (&length, is_writable) in (readable.iter().map(|length| (length, false)))
        .chain(writable.iter().map(|length| (length, true)))
    {
        let bytes = usize::try_from(length).expect("small");
        let address = memory.allocate(bytes, 1);
        if !is_writable {
            memory.write(address, &text[said..said + bytes]);
            said += bytes;
        }
        parts.push(Part {
            address,
            length,
            writable: is_writable,
        });
    }
    parts
}

/// Does what request number `number` asks of the device: reads all, writes all.
pub(crate) fn serve(chain: &Chain, number: u64) -> u32 {
    assert_eq!(
        bytes_of(&chain.readable),
        text(number, chain.readable_bytes),
        "request {number} says what it said"
    );
    let answer = text(!number, chain.writable_bytes);
    let mut done = 0;
    for segment in &chain.writable {
        segment.copy_from_slice(&answer[done..done + segment.len()]);
        done += segment.len();
    }
    assert_eq!(done, answer.len(), "the segments are as long as they say");
    u32::try_from(done).expect("small")
}

/// Whether the writable parts hold the device's answer to request number `number`.
pub(crate) fn is_answered(memory: &Memory, number: u64, parts: &[Part]) -> bool {
    let mut all = Vec::new();
    for part in parts.iter().filter(|part| part.writable) {
        all.extend(memory.read(part.address, usize::try_from(part.length).expect("small")));
    }
    all == text(!number, units::bytes_u64(all.len()))
}

/// How property tests run: a history that fails is kept beside its test, and tried first.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("failures");
    ProptestConfig {
        failure_persistence: Some(Box::new(kept)),
        ..ProptestConfig::with_cases(if cfg!(miri) { 3 } else { count })
    }
}
