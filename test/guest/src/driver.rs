//! A driver's side of one ring, of either layout.

use std::sync::Arc;

use crate::Memory;
use crate::packed::PackedDriver;
use crate::split::SplitDriver;

/// The two ways to lay out a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Descriptor table, avail ring, used ring.
    Split,
    /// One ring of descriptors.
    Packed,
}

/// How a ring is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which layout.
    pub layout: Layout,
    /// Descriptors.
    pub size: u16,
    /// Whether `VIRTIO_F_EVENT_IDX` was negotiated.
    pub event_idx: bool,
    /// Split: the index at which both rings begin, so that a wrap can be near. Packed: how many
    /// descriptors went around before.
    pub start: u16,
}

impl Options {
    /// A ring that begins its life, with event index.
    #[must_use]
    pub fn new(layout: Layout, size: u16) -> Options {
        Options {
            layout,
            size,
            event_idx: true,
            start: 0,
        }
    }
}

/// Where the three parts of a ring are, as guest addresses, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    /// Descriptor table or ring.
    pub descriptors: (u64, usize),
    /// Avail ring, or the driver's event suppression.
    pub driver: (u64, usize),
    /// Used ring, or the device's event suppression.
    pub device: (u64, usize),
}

/// One piece of memory of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Guest address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Whether the device is to write it.
    pub writable: bool,
}

/// Names a request until it is used: the head (split) or the buffer id (packed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u16);

/// A request that the device has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which one.
    pub token: Token,
    /// How many bytes the device says it wrote.
    pub written: u32,
}

/// Flags of a descriptor.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// The driver's side of one ring. Checks the device: an answer to a request that is not in flight
/// is a panic.
#[derive(Debug)]
pub struct Driver {
    memory: Arc<Memory>,
    options: Options,
    ring: Ring,
}

#[derive(Debug)]
enum Ring {
    Split(SplitDriver),
    Packed(PackedDriver),
}

impl Driver {
    /// A ring in `memory`.
    #[must_use]
    pub fn new(memory: &Arc<Memory>, options: Options) -> Driver {
        let ring = match options.layout {
            Layout::Split => Ring::Split(SplitDriver::new(memory, options)),
            Layout::Packed => Ring::Packed(PackedDriver::new(memory, options)),
        };
        Driver {
            memory: Arc::clone(memory),
            options,
            ring,
        }
    }

    /// How the ring was made.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// The memory the ring is in.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Where the ring is.
    #[must_use]
    pub fn addresses(&self) -> RingAddresses {
        match &self.ring {
            Ring::Split(split) => split.addresses(),
            Ring::Packed(packed) => packed.addresses(),
        }
    }

    /// What `SET_VRING_BASE` says of a ring of which everything is used.
    #[must_use]
    pub fn base(&self) -> u32 {
        match &self.ring {
            Ring::Split(split) => split.base(),
            Ring::Packed(packed) => packed.base(),
        }
    }

    /// Makes a request available; `None` when the ring is full. The device is not kicked: see
    /// [`Driver::kick_wanted`].
    pub fn submit(&mut self, parts: &[Part]) -> Option<Token> {
        match &mut self.ring {
            Ring::Split(split) => split.submit(&self.memory, parts),
            Ring::Packed(packed) => packed.submit(&self.memory, parts),
        }
    }

    /// As [`Driver::submit`], with the parts in an indirect table.
    pub fn submit_indirect(&mut self, parts: &[Part]) -> Option<Token> {
        let table = self.memory.allocate(16 * parts.len(), 16);
        self.submit_table(table, parts)
    }

    /// As [`Driver::submit_indirect`], with the table at an address of the caller's choice. A
    /// table need not be aligned.
    pub fn submit_table(&mut self, table: u64, parts: &[Part]) -> Option<Token> {
        match &mut self.ring {
            Ring::Split(split) => split.submit_table(&self.memory, table, parts),
            Ring::Packed(packed) => packed.submit_table(&self.memory, table, parts),
        }
    }

    /// Takes back one finished request.
    pub fn reap(&mut self) -> Option<Used> {
        match &mut self.ring {
            Ring::Split(split) => split.reap(&self.memory),
            Ring::Packed(packed) => packed.reap(&self.memory),
        }
    }

    /// Requests that the device has not finished.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        match &self.ring {
            Ring::Split(split) => split.in_flight(),
            Ring::Packed(packed) => packed.in_flight(),
        }
    }

    /// Whether the device wants a kick for what was submitted since this was asked last.
    pub fn kick_wanted(&mut self) -> bool {
        match &mut self.ring {
            Ring::Split(split) => split.kick_wanted(&self.memory),
            Ring::Packed(packed) => packed.kick_wanted(&self.memory),
        }
    }

    /// Asks for a call when the next request is finished. Whether one is finished already.
    pub fn enable_calls(&mut self) -> bool {
        match &mut self.ring {
            Ring::Split(split) => split.enable_calls(&self.memory),
            Ring::Packed(packed) => packed.enable_calls(&self.memory),
        }
    }

    /// Asks for no calls.
    pub fn disable_calls(&mut self) {
        match &mut self.ring {
            Ring::Split(split) => split.disable_calls(&self.memory),
            Ring::Packed(packed) => packed.disable_calls(&self.memory),
        }
    }

    /// Writes descriptor `index` of the ring as it is told, without any check. `link` is the next
    /// descriptor (split) or the buffer id (packed).
    pub fn raw_descriptor(&self, index: u16, part: Part, flags: u16, link: u16) {
        let (start, _) = self.addresses().descriptors;
        let at = start + 16 * u64::from(index);
        let flags = flags | if part.writable { WRITE } else { 0 };
        write_descriptor(&self.memory, self.options.layout, at, (part, flags, link));
    }

    /// Writes half-word `index` of the driver's area: split, flags, avail index, heads, used
    /// event; packed, event place, event flags.
    pub fn raw_driver(&self, index: u64, value: u16) {
        self.memory
            .store_u16(self.addresses().driver.0 + 2 * index, value);
    }
}

/// Writes one descriptor, its flags not before the rest.
pub(crate) fn write_descriptor(
    memory: &Memory,
    layout: Layout,
    at: u64,
    (part, flags, link): (Part, u16, u16),
) {
    if !at.is_multiple_of(8) {
        // A table that is not aligned, which nobody looks at before a descriptor names it.
        let (low, high) = match layout {
            Layout::Split => (flags, link),
            Layout::Packed => (link, flags),
        };
        memory.write(at, &part.address.to_le_bytes());
        memory.write(at + 8, &part.length.to_le_bytes());
        memory.write(at + 12, &low.to_le_bytes());
        memory.write(at + 14, &high.to_le_bytes());
        return;
    }
    memory.store_u64(at, part.address);
    match layout {
        Layout::Split => {
            let word = u64::from(part.length) | u64::from(flags) << 32 | u64::from(link) << 48;
            memory.release_u64(at + 8, word);
        }
        // The device waits for the flags alone.
        Layout::Packed => {
            memory.store_u32(at + 8, part.length);
            memory.write(at + 12, &link.to_le_bytes());
            memory.store_u16(at + 14, flags);
        }
    }
}

/// Writes an indirect table.
pub(crate) fn write_table(memory: &Memory, layout: Layout, table: u64, parts: &[Part]) {
    for (index, part) in (0u16..).zip(parts) {
        let last = usize::from(index) + 1 == parts.len();
        let next = layout == Layout::Split && !last;
        let flags = if next { NEXT } else { 0 } | if part.writable { WRITE } else { 0 };
        let link = if next { index + 1 } else { 0 };
        let at = table + 16 * u64::from(index);
        write_descriptor(memory, layout, at, (*part, flags, link));
    }
}

/// The descriptor that stands for a table.
pub(crate) fn table_part(table: u64, parts: &[Part]) -> Part {
    let length = u32::try_from(16 * parts.len()).expect("a table fits memory");
    Part {
        address: table,
        length,
        writable: false,
    }
}

/// Whether going from `old` to `new` passes the entry `event`.
pub(crate) fn passes(event: u16, old: u16, new: u16) -> bool {
    let steps = new.wrapping_sub(old);
    (0..steps).any(|step| old.wrapping_add(step) == event)
}
