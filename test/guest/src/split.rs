//! The driver's side of a split ring (virtio 1.2, 2.7).

use std::sync::atomic::{Ordering, fence};

use crate::driver::{
    INDIRECT, Layout, NEXT, Options, Part, RingAddresses, Token, Used, WRITE, passes, table_part,
    write_descriptor, write_table,
};
use crate::memory::Memory;

#[derive(Debug)]
pub(crate) struct SplitDriver {
    size: u16,
    event_idx: bool,
    descriptors: u64,
    avail: u64,
    used: u64,
    next_avail: u16,
    next_used: u16,
    /// The avail index when kicks were thought about last.
    kicked: u16,
    /// Descriptors that are in no chain.
    free: Vec<u16>,
    /// By head: the descriptors of its chain, when it is in flight.
    chains: Vec<Option<Vec<u16>>>,
}

impl SplitDriver {
    pub(crate) fn new(memory: &Memory, options: Options) -> SplitDriver {
        let size = usize::from(options.size);
        let driver = SplitDriver {
            size: options.size,
            event_idx: options.event_idx,
            descriptors: memory.allocate(16 * size, 16),
            avail: memory.allocate(6 + 2 * size, 2),
            used: memory.allocate(6 + 8 * size, 4),
            next_avail: options.start,
            next_used: options.start,
            kicked: options.start,
            free: (0..options.size).rev().collect(),
            chains: vec![None; size],
        };
        memory.store_u16(driver.avail + 2, options.start);
        memory.store_u16(driver.used + 2, options.start);
        driver
    }

    pub(crate) fn addresses(&self) -> RingAddresses {
        let size = usize::from(self.size);
        RingAddresses {
            descriptors: (self.descriptors, 16 * size),
            driver: (self.avail, 6 + 2 * size),
            device: (self.used, 6 + 8 * size),
        }
    }

    pub(crate) fn base(&self) -> u32 {
        u32::from(self.next_avail)
    }

    pub(crate) fn submit(&mut self, memory: &Memory, parts: &[Part]) -> Option<Token> {
        assert!(!parts.is_empty());
        if parts.len() > self.free.len() {
            return None;
        }
        let chain: Vec<u16> = self.free.split_off(self.free.len() - parts.len());
        for (place, part) in parts.iter().enumerate() {
            let next = chain.get(place + 1);
            let flags = next.map_or(0, |_| NEXT) | if part.writable { WRITE } else { 0 };
            let at = self.descriptors + 16 * u64::from(chain[place]);
            let link = next.copied().unwrap_or(0);
            write_descriptor(memory, Layout::Split, at, (*part, flags, link));
        }
        Some(self.expose(memory, chain))
    }

    pub(crate) fn submit_table(
        &mut self,
        memory: &Memory,
        table: u64,
        parts: &[Part],
    ) -> Option<Token> {
        let head = self.free.pop()?;
        write_table(memory, Layout::Split, table, parts);
        let at = self.descriptors + 16 * u64::from(head);
        let part = table_part(table, parts);
        write_descriptor(memory, Layout::Split, at, (part, INDIRECT, 0));
        Some(self.expose(memory, vec![head]))
    }

    fn expose(&mut self, memory: &Memory, chain: Vec<u16>) -> Token {
        let head = chain[0];
        let slot = u64::from(self.next_avail % self.size);
        memory.store_u16(self.avail + 4 + 2 * slot, head);
        self.next_avail = self.next_avail.wrapping_add(1);
        memory.store_u16(self.avail + 2, self.next_avail);
        self.chains[usize::from(head)] = Some(chain);
        Token(head)
    }

    pub(crate) fn reap(&mut self, memory: &Memory) -> Option<Used> {
        let index = memory.load_u16(self.used + 2);
        let waiting = index.wrapping_sub(self.next_used);
        assert!(waiting <= self.size, "the used index jumped to {index}");
        if waiting == 0 {
            return None;
        }
        let at = self.used + 4 + 8 * u64::from(self.next_used % self.size);
        let head = u16::try_from(memory.load_u32(at)).expect("a used head is a descriptor");
        let written = memory.load_u32(at + 4);
        self.next_used = self.next_used.wrapping_add(1);
        let chain = self.chains[usize::from(head)].take();
        self.free.extend(chain.expect("a used head was in flight"));
        Some(Used {
            token: Token(head),
            written,
        })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.chains.iter().flatten().count()
    }

    pub(crate) fn kick_wanted(&mut self, memory: &Memory) -> bool {
        let old = std::mem::replace(&mut self.kicked, self.next_avail);
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = memory.load_u16(self.used + 4 + 8 * u64::from(self.size));
            passes(event, old, self.next_avail)
        } else {
            old != self.next_avail && memory.load_u16(self.used) & 1 == 0
        }
    }

    pub(crate) fn enable_calls(&mut self, memory: &Memory) -> bool {
        if self.event_idx {
            memory.store_u16(self.avail + 4 + 2 * u64::from(self.size), self.next_used);
        } else {
            memory.store_u16(self.avail, 0);
        }
        fence(Ordering::SeqCst);
        memory.load_u16(self.used + 2) != self.next_used
    }

    pub(crate) fn disable_calls(&mut self, memory: &Memory) {
        if self.event_idx {
            let behind = self.next_used.wrapping_sub(1);
            memory.store_u16(self.avail + 4 + 2 * u64::from(self.size), behind);
        } else {
            memory.store_u16(self.avail, 1);
        }
    }
}
