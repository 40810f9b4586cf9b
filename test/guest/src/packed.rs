//! The driver's side of a packed ring (virtio 1.2, 2.8).

use std::sync::atomic::{Ordering, fence};

use crate::driver::{
    INDIRECT, Layout, NEXT, Options, Part, RingAddresses, Token, Used, WRITE, table_part,
    write_descriptor, write_table,
};
use crate::memory::Memory;

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const AT_PLACE: u16 = 2;

/// How many descriptors a side has gone past since the ring began; place and wrap counter follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lap {
    passed: u64,
    size: u16,
}

impl Lap {
    fn index(self) -> u16 {
        u16::try_from(self.passed % u64::from(self.size)).expect("below the size")
    }

    fn wrap(self) -> bool {
        (self.passed / u64::from(self.size)).is_multiple_of(2)
    }

    fn bits(self) -> u16 {
        self.index() | if self.wrap() { 1 << 15 } else { 0 }
    }

    fn pass(&mut self, count: u16) {
        self.passed += u64::from(count);
    }

    fn after(self, count: u16) -> Lap {
        Lap {
            passed: self.passed + u64::from(count),
            ..self
        }
    }
}

#[derive(Debug)]
pub(crate) struct PackedDriver {
    size: u16,
    event_idx: bool,
    descriptors: u64,
    driver_events: u64,
    device_events: u64,
    avail: Lap,
    used: Lap,
    /// How far kicks were thought about last.
    kicked: Lap,
    ids: Vec<u16>,
    /// By buffer id: the descriptors of its chain, when it is in flight.
    chains: Vec<Option<u16>>,
}

impl PackedDriver {
    pub(crate) fn new(memory: &Memory, options: Options) -> PackedDriver {
        let size = options.size;
        let begin = Lap {
            passed: u64::from(options.start),
            size,
        };
        let driver = PackedDriver {
            size,
            event_idx: options.event_idx,
            descriptors: memory.allocate(16 * usize::from(size), 16),
            driver_events: memory.allocate(4, 4),
            device_events: memory.allocate(4, 4),
            avail: begin,
            used: begin,
            kicked: begin,
            ids: (0..size).collect(),
            chains: vec![None; usize::from(size)],
        };
        // What went around before was all used, one descriptor each.
        let first = u64::from(options.start).saturating_sub(u64::from(size));
        for passed in first..u64::from(options.start) {
            let place = Lap { passed, size };
            let at = driver.descriptors + 16 * u64::from(place.index());
            memory.store_u16(at + 14, if place.wrap() { AVAIL | USED } else { 0 });
        }
        driver
    }

    pub(crate) fn addresses(&self) -> RingAddresses {
        RingAddresses {
            descriptors: (self.descriptors, 16 * usize::from(self.size)),
            driver: (self.driver_events, 4),
            device: (self.device_events, 4),
        }
    }

    pub(crate) fn base(&self) -> u32 {
        u32::from(self.avail.bits()) | u32::from(self.used.bits()) << 16
    }

    pub(crate) fn submit(&mut self, memory: &Memory, parts: &[Part]) -> Option<Token> {
        assert!(!parts.is_empty());
        let count = u16::try_from(parts.len()).ok()?;
        self.expose(memory, count, |place| {
            let part = parts[usize::from(place)];
            let next = if place + 1 < count { NEXT } else { 0 };
            (part, next | if part.writable { WRITE } else { 0 })
        })
    }

    pub(crate) fn submit_table(
        &mut self,
        memory: &Memory,
        table: u64,
        parts: &[Part],
    ) -> Option<Token> {
        write_table(memory, Layout::Packed, table, parts);
        self.expose(memory, 1, |_| (table_part(table, parts), INDIRECT))
    }

    fn expose(
        &mut self,
        memory: &Memory,
        count: u16,
        describe: impl Fn(u16) -> (Part, u16),
    ) -> Option<Token> {
        let taken = self.avail.passed - self.used.passed;
        if taken + u64::from(count) > u64::from(self.size) {
            return None;
        }
        let id = self.ids.pop().expect("as many ids as descriptors");
        // The first descriptor goes last: its flags make all of them available.
        for place in (0..count).rev() {
            let lap = self.avail.after(place);
            let (part, flags) = describe(place);
            let turn = if lap.wrap() { AVAIL } else { USED };
            let at = self.descriptors + 16 * u64::from(lap.index());
            write_descriptor(memory, Layout::Packed, at, (part, flags | turn, id));
        }
        self.avail.pass(count);
        self.chains[usize::from(id)] = Some(count);
        Some(Token(id))
    }

    pub(crate) fn reap(&mut self, memory: &Memory) -> Option<Used> {
        let at = self.descriptors + 16 * u64::from(self.used.index());
        let flags = memory.load_u16(at + 14);
        let turn = if self.used.wrap() { AVAIL | USED } else { 0 };
        if flags & (AVAIL | USED) != turn || self.used.passed == self.avail.passed {
            return None;
        }
        let id = memory.load_u16(at + 12);
        let written = if flags & WRITE == 0 {
            0
        } else {
            memory.load_u32(at + 8)
        };
        let count = self.chains[usize::from(id)].take();
        self.used
            .pass(count.expect("a used buffer id was in flight"));
        self.ids.push(id);
        Some(Used {
            token: Token(id),
            written,
        })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.chains.iter().flatten().count()
    }

    pub(crate) fn kick_wanted(&mut self, memory: &Memory) -> bool {
        let old = std::mem::replace(&mut self.kicked, self.avail);
        fence(Ordering::SeqCst);
        let flags = memory.load_u16(self.device_events + 2);
        if !self.event_idx || flags != AT_PLACE {
            return old != self.avail && flags != 1;
        }
        let wish = memory.load_u16(self.device_events);
        let new = self.avail.passed;
        (old.passed..new).any(|passed| Lap { passed, ..old }.bits() == wish)
    }

    pub(crate) fn enable_calls(&mut self, memory: &Memory) -> bool {
        if self.event_idx {
            memory.store_u16(self.driver_events, self.used.bits());
            memory.store_u16(self.driver_events + 2, AT_PLACE);
        } else {
            memory.store_u16(self.driver_events + 2, 0);
        }
        fence(Ordering::SeqCst);
        let at = self.descriptors + 16 * u64::from(self.used.index());
        let flags = memory.load_u16(at + 14);
        let turn = if self.used.wrap() { AVAIL | USED } else { 0 };
        flags & (AVAIL | USED) == turn && self.used.passed != self.avail.passed
    }

    pub(crate) fn disable_calls(&mut self, memory: &Memory) {
        memory.store_u16(self.driver_events + 2, 1);
    }
}
