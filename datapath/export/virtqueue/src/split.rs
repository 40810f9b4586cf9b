//! The split ring: descriptor table, avail ring, used ring (virtio 1.2, 2.7).

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use units::limits::QUEUE_SIZE_MAX;

use crate::chain::{Chain, Descriptor, Gather, Head, INDIRECT, NEXT, Scratch};
use crate::inflight::SplitRecord;
use crate::planted;
use crate::shared::{Cells, Pairs};
use crate::{Area, Features, GuestMemory, Layout, RingError, RingMemory};

/// Word of the avail and of the used ring that holds the flags.
const FLAGS: usize = 0;
/// Word of the avail and of the used ring that holds the index.
const INDEX: usize = 1;
/// First word of the avail ring's heads.
const HEADS: usize = 2;
/// Byte of the used ring where its elements begin.
const USED_ELEMENTS: usize = 4;
/// Requests whose memory is brought near at once.
const AHEAD: u16 = 16;
/// In either ring's flags: do not tell me.
const SILENT: u16 = 1;

/// The device's side of one split ring.
#[derive(Debug)]
pub(crate) struct Split {
    size: u16,
    event_idx: bool,
    descriptors: Pairs,
    /// Flags, index, heads, and with `event_idx` the used index at which the guest wants a call.
    avail: Cells<AtomicU16>,
    /// Flags and index of the used ring.
    used: Cells<AtomicU16>,
    /// Pairs of words: head, bytes written.
    used_elements: Cells<AtomicU32>,
    /// The avail index at which we want a kick.
    avail_event: Option<Cells<AtomicU16>>,
    /// Avail entry to take next.
    next_avail: u16,
    /// How far the guest had come when we looked last.
    seen_avail: u16,
    /// Up to where what it wrote was asked for; not beyond what was seen.
    brought_avail: u16,
    /// Used entry to fill next.
    next_used: u16,
    /// The used index that the guest sees.
    published: u16,
    /// By head: whether it is in flight.
    in_flight: Box<[bool]>,
    record: Option<SplitRecord>,
    /// Heads that an engine before us took and did not answer, last first.
    recovered: Vec<u16>,
}

impl Split {
    pub(crate) fn new(
        size: u16,
        memory: &RingMemory,
        features: Features,
        base: u32,
    ) -> Result<Split, RingError> {
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(RingError::QueueSize(size));
        }
        let entries = usize::from(size);
        let bytes = Layout::Split.ring_bytes(size, features);
        let descriptors = Pairs::new(memory.descriptors, entries)
            .filter(|_| memory.descriptors.address().addr().is_multiple_of(16))
            .ok_or(RingError::RingMemory(Area::Descriptors))?;
        let avail = Cells::new(memory.driver, 0, bytes.driver / 2)
            .ok_or(RingError::RingMemory(Area::Driver))?;
        let device = RingError::RingMemory(Area::Device);
        let used = Cells::new(memory.device, 0, 2).ok_or(device)?;
        let elements = Cells::new(memory.device, USED_ELEMENTS, 2 * entries).ok_or(device)?;
        let avail_event = if features.event_idx {
            Some(Cells::new(memory.device, bytes.device - 2, 1).ok_or(device)?)
        } else {
            None
        };
        let next_avail = u16::try_from(base).map_err(|_| RingError::Base(base))?;
        // The used index is not part of the base: it is where the guest will look.
        let next_used = used.load(INDEX, Ordering::Acquire);
        Ok(Split {
            size,
            event_idx: features.event_idx,
            descriptors,
            avail,
            used,
            used_elements: elements,
            avail_event,
            next_avail,
            seen_avail: next_avail,
            brought_avail: next_avail,
            next_used,
            published: next_used,
            in_flight: vec![false; entries].into_boxed_slice(),
            record: None,
            recovered: Vec::new(),
        })
    }

    /// Goes on after what the record knows, if there is a past; keeps the record from now on. How
    /// many requests an engine before us left unanswered.
    pub(crate) fn attach(&mut self, mut record: SplitRecord) -> Result<u16, RingError> {
        let recovered = record.recover(self.size, self.next_used)?;
        self.record = Some(record);
        let Some(mut heads) = recovered else {
            return Ok(0);
        };
        let count = u16::try_from(heads.len()).expect("at most one per descriptor");
        for &head in &heads {
            self.in_flight[usize::from(head)] = true;
        }
        // What was taken is what was answered and what is in flight. The front-end cannot know
        // how far an engine had come that died, so its base counts for nothing.
        self.next_avail = self.next_used.wrapping_add(count);
        (self.seen_avail, self.brought_avail) = (self.next_avail, self.next_avail);
        heads.reverse();
        planted::spoil(&mut heads);
        self.recovered = heads;
        Ok(count)
    }

    #[inline(always)]
    pub(crate) fn pop<M: GuestMemory>(
        &mut self,
        memory: &M,
        scratch: &mut Scratch,
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        if !self.recovered.is_empty() {
            return self.pop_recovered(memory, scratch, chain);
        }
        if self.next_avail == self.brought_avail {
            if self.next_avail == self.seen_avail && !self.look()? {
                return Ok(false);
            }
            self.bring(memory, scratch.hint);
        }
        let slot = usize::from(self.next_avail & (self.size - 1));
        let head = self.avail.load(HEADS + slot, Ordering::Relaxed);
        let gather = Gather::new(memory, scratch, chain);
        match self.in_flight.get_mut(usize::from(head)) {
            None => return Err(RingError::HeadOutOfRange(head)),
            Some(true) => return Err(RingError::HeadInFlight(head)),
            Some(in_flight) => {
                follow(&self.descriptors, Head(head), gather)?;
                *in_flight = true;
            }
        }
        self.next_avail = self.next_avail.wrapping_add(1);
        if let Some(record) = &mut self.record {
            record.take(Head(head));
        }
        Ok(true)
    }

    #[cold]
    fn pop_recovered<M: GuestMemory>(
        &mut self,
        memory: &M,
        scratch: &mut Scratch,
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        let Some(head) = self.recovered.pop() else {
            return Ok(false);
        };
        follow(
            &self.descriptors,
            Head(head),
            Gather::new(memory, scratch, chain),
        )?;
        chain.again = true;
        Ok(true)
    }

    /// Reads the avail index. Whether there is something to take.
    fn look(&mut self) -> Result<bool, RingError> {
        // The next head is most often in another line than the index: both come side by side.
        self.avail
            .prefetch(HEADS + usize::from(self.next_avail & (self.size - 1)));
        // Acquire: what the guest wrote before the index is to be seen after it.
        let index = self.avail.load(INDEX, Ordering::Acquire);
        if index.wrapping_sub(self.next_avail) > self.size {
            return Err(RingError::IndexJump {
                from: self.next_avail,
                to: index,
            });
        }
        self.seen_avail = index;
        Ok(index != self.next_avail)
    }

    /// Starts to bring what the guest wrote for the next requests that were seen into this core's
    /// cache. It was written on another core: one after the other, each would cost two or three
    /// times the way there and back. Everything is read again, and judged, when its turn has come.
    #[inline(always)]
    fn bring<M: GuestMemory>(&mut self, memory: &M, hint: usize) {
        let count = self.seen_avail.wrapping_sub(self.next_avail).min(AHEAD);
        self.brought_avail = self.next_avail.wrapping_add(count);
        if count < 2 {
            return;
        }
        let mask = self.size - 1;
        let mut seen = [0; AHEAD as usize];
        let heads = &mut seen[..usize::from(count)];
        for (head, ahead) in heads.iter_mut().zip(0..) {
            let slot = usize::from(self.next_avail.wrapping_add(ahead) & mask);
            // Whatever the guest says, it is a place in the table.
            *head = self.avail.load(HEADS + slot, Ordering::Relaxed) & mask;
            self.descriptors.prefetch(usize::from(*head));
        }
        let mut tables = false;
        for &head in &*heads {
            // The header, or a table of descriptors.
            let descriptor = self.descriptor(head);
            let Some(place) = memory.peek(descriptor.address, hint) else {
                continue;
            };
            if descriptor.has(INDIRECT) {
                tables = true;
                memory::prefetch(place.address());
            } else {
                bring_header(place.address());
            }
        }
        if tables {
            self.bring_from_tables(memory, hint, heads);
        }
    }

    /// The same for the headers that tables of descriptors name.
    fn bring_from_tables<M: GuestMemory>(&self, memory: &M, hint: usize, heads: &[u16]) {
        for &head in heads {
            let descriptor = self.descriptor(head);
            let table = memory
                .peek(descriptor.address, hint)
                .filter(|place| descriptor.has(INDIRECT) && place.len() >= 16)
                .and_then(|place| Pairs::new(place, 1));
            if let Some(table) = table
                && let Some(header) = memory.peek(table.pair(0)[0], hint)
            {
                bring_header(header.address());
            }
        }
    }

    #[inline(always)]
    fn descriptor(&self, index: u16) -> Descriptor {
        Descriptor::from_split(self.descriptors.pair(usize::from(index)))
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, head: Head, written: u32) {
        let was = std::mem::replace(&mut self.in_flight[head.at()], false);
        assert!(was, "a head is answered once");
        let at = 2 * usize::from(self.next_used & (self.size - 1));
        let elements = &self.used_elements;
        elements.store(at, u32::from(head.0), Ordering::Relaxed);
        elements.store(at + 1, written, Ordering::Relaxed);
        self.next_used = self.next_used.wrapping_add(1);
        if let Some(record) = &mut self.record {
            record.answer(head);
        }
    }

    /// Shows the guest what was pushed. Whether it wants a call for that.
    pub(crate) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return false;
        }
        if let Some(record) = &mut self.record {
            record.begin_publish();
        }
        // Release: the elements, and the data we wrote for the guest, come before the index.
        self.used.store(INDEX, new, Ordering::Release);
        if let Some(record) = &mut self.record {
            record.finish_publish(new);
        }
        self.published = new;
        // The guest stores its wish and then looks at the index; we do it the other way round.
        fence(Ordering::SeqCst);
        if self.event_idx {
            let at = HEADS + usize::from(self.size);
            let wish = self.avail.load(at, Ordering::Relaxed);
            crosses(wish, old, new)
        } else {
            self.avail.load(FLAGS, Ordering::Relaxed) & SILENT == 0
        }
    }

    pub(crate) fn enable_kicks(&mut self) {
        match &self.avail_event {
            Some(event) => event.store(0, self.next_avail, Ordering::Relaxed),
            None => self.used.store(FLAGS, 0, Ordering::Relaxed),
        }
    }

    pub(crate) fn disable_kicks(&mut self) {
        // With the event index, a wish that lies behind is as good as none.
        if self.avail_event.is_none() {
            self.used.store(FLAGS, SILENT, Ordering::Relaxed);
        }
    }

    pub(crate) fn waiting(&self) -> bool {
        !self.recovered.is_empty() || self.avail.load(INDEX, Ordering::Acquire) != self.next_avail
    }

    /// Whether more was seen when the guest's index was read last than was taken.
    pub(crate) fn sees_more(&self) -> bool {
        self.next_avail != self.seen_avail || !self.recovered.is_empty()
    }

    pub(crate) fn owes_recovered(&self) -> bool {
        !self.recovered.is_empty()
    }

    pub(crate) fn base(&self) -> u32 {
        u32::from(self.next_avail)
    }
}

/// Follows the chain from `head` on.
#[inline(always)]
fn follow<M: GuestMemory>(
    descriptors: &Pairs,
    head: Head,
    mut gather: Gather<'_, M>,
) -> Result<(), RingError> {
    let mut index = head.0;
    for _ in 0..descriptors.len() {
        let Some(words) = descriptors.get(usize::from(index)) else {
            return Err(RingError::NextOutOfRange(index));
        };
        let descriptor = Descriptor::from_split(words);
        if descriptor.has(INDIRECT) {
            gather.add_split_table(descriptor)?;
            return gather.finish(head);
        }
        gather.add(descriptor)?;
        if !descriptor.has(NEXT) {
            return gather.finish(head);
        }
        index = descriptor.link;
    }
    Err(RingError::ChainTooLong)
}

/// Starts to bring the header of a request. Drivers keep the place of its status beside it, so that
/// a line is read first and written later.
#[inline(always)]
fn bring_header(address: *const u8) {
    memory::prefetch_to_write(address);
}

/// Whether going from index `old` to index `new` passes the entry `event` (virtio 1.2, 2.7.7.1).
pub(crate) fn crosses(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
