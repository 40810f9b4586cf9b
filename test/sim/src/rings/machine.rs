//! The machine of all guests with rings: its memory, as they and as engines see it.
//!
//! Rings lie in a region of their own. Requests lie in two banks, of which one may be taken away.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;

use guest::Memory;
use memory::guest::survive_truncation;
use memory::{Mapping, Region, RegionTable, Segment};
use units::{bytes_u64, bytes_usize};

/// Requests that have room in a bank.
const BANK_SLOTS: usize = 10;
/// Requests under way at a time, at the most.
pub(super) const SLOTS: usize = BANK_SLOTS * BANKS;
pub(super) const BANKS: usize = 2;
/// Bytes that a request may carry.
pub(super) const DATA_BYTES: usize = 64 << 10;
/// Before the data of a slot: room for a table of descriptors, and the header right before it.
const BEFORE: usize = 512;
/// Behind it: the status.
const BEHIND: usize = 512;
const SLOT_BYTES: usize = BEFORE + DATA_BYTES + BEHIND;
const BANK_BYTES: usize = (BANK_SLOTS * SLOT_BYTES).next_multiple_of(4096);
/// For rings, and for what front-ends remember of them.
const RING_BYTES: usize = 1 << 20;
const BYTES: usize = RING_BYTES + BANKS * BANK_BYTES;

thread_local! {
    /// One for all histories of a thread: an engine that is killed leaves guests' memory mapped.
    static MACHINE: RefCell<Arc<Machine>> = RefCell::new(Arc::new(Machine::new()));
}

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) memory: Arc<Memory>,
    /// Where the rings are.
    pub(super) mapping: Arc<Mapping>,
    /// All memory.
    table: Arc<RegionTable>,
    /// All but one bank.
    without: [Arc<RegionTable>; BANKS],
}

impl Machine {
    fn new() -> Machine {
        survive_truncation().expect("a signal handler");
        let memory = Memory::new(BYTES).expect("memory");
        let region = |first: usize, bytes: usize| {
            let (offset, length) = (bytes_u64(first), bytes_u64(bytes));
            let mapping = Mapping::new(memory.file().as_fd(), offset, length);
            Region {
                guest_base: Memory::START + offset,
                front_end_base: Memory::START + offset,
                length,
                mapping: mapping.expect("mapped"),
                offset: 0,
            }
        };
        let rings = region(0, RING_BYTES);
        let [first, second] = [0, 1].map(|bank| region(RING_BYTES + bank * BANK_BYTES, BANK_BYTES));
        let table = |regions: &[&Region]| {
            let regions = regions.iter().map(|&region| region.clone()).collect();
            RegionTable::new(regions).expect("they lie beside each other")
        };
        Machine {
            mapping: Arc::clone(&rings.mapping),
            table: table(&[&rings, &first, &second]),
            without: [table(&[&rings, &second]), table(&[&rings, &first])],
            memory: Arc::new(memory),
        }
    }

    /// This thread's machine, switched on, and its slots.
    pub(super) fn start() -> (Arc<Machine>, Vec<SlotPlace>) {
        let machine = MACHINE.with_borrow(Arc::clone);
        machine.memory.reset();
        let slots = (0..SLOTS).map(|nth| {
            let bank = RING_BYTES + nth % BANKS * BANK_BYTES;
            SlotPlace(Memory::START + bytes_u64(bank + nth / BANKS * SLOT_BYTES))
        });
        (machine, slots.collect())
    }

    /// The front-end cuts off all memory, and is gone with the guests. The thread gets another
    /// machine.
    pub(super) fn truncate(&self) {
        self.memory.file().set_len(0).expect("its own file");
        MACHINE.set(Arc::new(Machine::new()));
    }

    /// Memory as the front-end offers it.
    pub(super) fn table(&self, without: Option<usize>) -> Arc<RegionTable> {
        Arc::clone(without.map_or(&self.table, |bank| &self.without[bank]))
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
    pub(super) fn bank(self) -> usize {
        bytes_usize(self.0 - Memory::START).saturating_sub(RING_BYTES) / BANK_BYTES
    }

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
