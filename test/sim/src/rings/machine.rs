//! The machine of all guests with rings: its memory, as they and as engines see it.

use std::os::fd::AsFd;
use std::sync::Arc;

use guest::Memory;
use memory::{Mapping, Region, RegionTable, Segment};
use units::{bytes_u64, bytes_usize};

/// Requests under way at a time.
pub(super) const SLOTS: usize = 10;
/// Bytes that one of them may carry.
pub(super) const DATA_BYTES: usize = 64 << 10;
/// Before the data of a slot: room for a table of descriptors, and the header right before it.
const BEFORE: usize = 512;
/// Behind it: the status.
const BEHIND: usize = 512;
const SLOT_BYTES: usize = BEFORE + DATA_BYTES + BEHIND;
/// For rings, and for what front-ends remember of them.
const RING_BYTES: usize = 1 << 20;

thread_local! {
    /// One for all histories of a thread: an engine that is killed leaves guests' memory mapped.
    static MACHINE: Arc<Machine> = Arc::new(Machine::new());
}

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) memory: Arc<Memory>,
    pub(super) mapping: Arc<Mapping>,
    pub(super) table: Arc<RegionTable>,
}

impl Machine {
    fn new() -> Machine {
        let bytes = RING_BYTES + SLOTS * SLOT_BYTES;
        let memory = Memory::new(bytes).expect("memory");
        let length = bytes_u64(bytes);
        let mapping = Mapping::new(memory.file().as_fd(), 0, length).expect("mapped");
        let region = Region {
            guest_base: Memory::START,
            front_end_base: Memory::START,
            length,
            mapping: Arc::clone(&mapping),
            offset: 0,
        };
        let table = RegionTable::new(vec![region]).expect("one region");
        Machine {
            memory: Arc::new(memory),
            mapping,
            table,
        }
    }

    /// This thread's machine, switched on. The addresses of its slots.
    pub(super) fn start() -> (Arc<Machine>, Vec<SlotPlace>) {
        let machine = MACHINE.with(Arc::clone);
        machine.memory.reset();
        let slot = |_| SlotPlace(machine.memory.allocate(SLOT_BYTES, 512));
        let slots = (0..SLOTS).map(slot).collect();
        (machine, slots)
    }

    /// Where an engine finds so many bytes at a guest's address.
    pub(super) fn found(&self, address: u64, length: usize) -> Segment {
        let offset = bytes_usize(address - Memory::START);
        self.mapping.segment().part(offset, length)
    }
}

/// Memory of one request: a table of descriptors, the header, the data and the status, all but the
/// first right behind each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotPlace(u64);

impl SlotPlace {
    pub(super) fn table(self) -> u64 {
        self.0
    }

    pub(super) fn header(self) -> u64 {
        self.data() - 16
    }

    pub(super) fn data(self) -> u64 {
        self.0 + bytes_u64(BEFORE)
    }
}
