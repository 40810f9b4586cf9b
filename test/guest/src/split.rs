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
    /// The used index as it was seen last.
    seen_used: u16,
    /// Descriptors that are in no chain.
    free: Vec<u16>,
    /// By descriptor: the next one of its chain.
    links: Vec<u16>,
    /// By head: how many descriptors its chain has; 0 when it is not in flight.
    lengths: Vec<u16>,
    /// Chains that the device has not finished.
    in_flight: usize,
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
            seen_used: options.start,
            free: (0..options.size).rev().collect(),
            links: vec![0; size],
            lengths: vec![0; size],
            in_flight: 0,
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
        let first = self.free.len() - parts.len();
        let head = self.free[first];
        for (place, part) in parts.iter().enumerate() {
            let own = self.free[first + place];
            let next = self.free.get(first + place + 1).copied();
            let flags = next.map_or(0, |_| NEXT) | if part.writable { WRITE } else { 0 };
            let at = self.descriptors + 16 * u64::from(own);
            let link = next.unwrap_or(0);
            write_descriptor(memory, Layout::Split, at, (*part, flags, link));
            self.links[usize::from(own)] = link;
        }
        self.free.truncate(first);
        let length = u16::try_from(parts.len()).expect("no longer than the ring");
        Some(self.expose(memory, head, length))
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
        Some(self.expose(memory, head, 1))
    }

    /// Makes the chain of so many descriptors from `head` on available.
    fn expose(&mut self, memory: &Memory, head: u16, length: u16) -> Token {
        let slot = u64::from(self.next_avail % self.size);
        memory.store_u16(self.avail + 4 + 2 * slot, head);
        self.next_avail = self.next_avail.wrapping_add(1);
        memory.store_u16(self.avail + 2, self.next_avail);
        self.lengths[usize::from(head)] = length;
        self.in_flight += 1;
        Token(head)
    }

    pub(crate) fn reap(&mut self, memory: &Memory) -> Option<Used> {
        if self.seen_used == self.next_used {
            // The device's core writes this line too: it is looked at when there is nothing else.
            self.seen_used = memory.load_u16(self.used + 2);
            let waiting = self.seen_used.wrapping_sub(self.next_used);
            let index = self.seen_used;
            assert!(waiting <= self.size, "the used index jumped to {index}");
            if waiting == 0 {
                return None;
            }
        }
        let at = self.used + 4 + 8 * u64::from(self.next_used % self.size);
        let head = u16::try_from(memory.load_u32(at)).expect("a used head is a descriptor");
        let written = memory.load_u32(at + 4);
        self.next_used = self.next_used.wrapping_add(1);
        let length = std::mem::take(&mut self.lengths[usize::from(head)]);
        assert!(length > 0, "a used head was in flight");
        let mut own = head;
        for _ in 0..length {
            self.free.push(own);
            own = self.links[usize::from(own)];
        }
        self.in_flight -= 1;
        Some(Used {
            token: Token(head),
            written,
        })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
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
