//! The packed ring: one ring of descriptors that guest and device both write (virtio 1.2, 2.8).

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use memory::Segment;
use units::limits::QUEUE_SIZE_MAX;

use crate::chain::{Chain, Descriptor, Gather, Head, INDIRECT, NEXT, Scratch, WRITE};
use crate::inflight::PackedRecord;
use crate::planted;
use crate::shared::Cells;
use crate::split::crosses;
use crate::{Area, Features, GuestMemory, RingError, RingMemory};

/// Flag whose value equals the guest's wrap counter when the descriptor is available.
const AVAIL: u16 = 1 << 7;
/// Flag whose value equals the device's wrap counter when the descriptor is used.
const USED: u16 = 1 << 15;
/// Bit of the wrap counter beside an index.
const WRAP: u16 = 1 << 15;

/// Half-words of one descriptor, and where its buffer id and its flags are among them.
const HALVES: usize = 8;
const ID: usize = 6;
const DESCRIPTOR_FLAGS: usize = 7;
/// Words of one descriptor, and where its length is among them.
const WORDS: usize = 4;
const LENGTH: usize = 2;

/// Half-words of an event suppression area.
const EVENT_PLACE: usize = 0;
const EVENT_FLAGS: usize = 1;
/// Tell me always, never, or at one place.
const EVENT_ENABLE: u16 = 0;
const EVENT_DISABLE: u16 = 1;
const EVENT_AT_PLACE: u16 = 2;

/// Where a side is in the ring, and its wrap counter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) index: u16,
    pub(crate) wrap: bool,
}

impl Place {
    /// Where a ring begins its life.
    pub(crate) const START: Place = Place {
        index: 0,
        wrap: true,
    };

    /// From an index with its wrap counter in bit 15.
    pub(crate) fn from_bits(bits: u16) -> Place {
        Place {
            index: bits & !WRAP,
            wrap: bits & WRAP != 0,
        }
    }

    /// To an index with its wrap counter in bit 15.
    pub(crate) fn bits(self) -> u16 {
        self.index | if self.wrap { WRAP } else { 0 }
    }

    /// `count` descriptors further, at most one lap of the ring.
    #[inline(always)]
    pub(crate) fn advance(self, count: u16, size: u16) -> Place {
        assert!(self.index < size && count <= size, "a place is in its ring");
        let index = self.index + count;
        if index < size {
            return Place { index, ..self };
        }
        Place {
            index: index - size,
            wrap: !self.wrap,
        }
    }

    /// How many descriptors lie between `used` and this, if that can be.
    fn ahead_of(self, used: Place, size: u16) -> Option<u16> {
        let lap = if self.wrap == used.wrap { 0 } else { size };
        let ahead = (self.index + lap).checked_sub(used.index)?;
        (ahead <= size).then_some(ahead)
    }

    /// Whether `flags` say that the guest made this descriptor available in this lap, and that we
    /// have not used it yet.
    #[inline(always)]
    pub(crate) fn is_available(self, flags: u16) -> bool {
        flags & (AVAIL | USED) == if self.wrap { AVAIL } else { USED }
    }

    fn available_flags(self) -> u16 {
        if self.wrap { AVAIL } else { USED }
    }

    fn used_flags(self) -> u16 {
        if self.wrap { AVAIL | USED } else { 0 }
    }

    fn at(self) -> usize {
        usize::from(self.index)
    }
}

/// What we know about a buffer id.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Descriptors of its chain in the ring; 0 when it is not in flight.
    descriptors: u16,
    /// Its entry in the in-flight record.
    entry: u16,
}

/// One answer that the guest does not see yet.
#[derive(Clone, Copy, Debug)]
struct Answer {
    place: Place,
    flags: u16,
    entry: u16,
}

/// A chain that an engine before us took and did not answer.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    pub(crate) entry: u16,
    pub(crate) chain: Vec<Descriptor>,
}

/// The device's side of one packed ring.
#[derive(Debug)]
pub(crate) struct Packed {
    size: u16,
    ring: DescriptorRing,
    suppression: Suppression,
    /// The descriptor to take next.
    next_avail: Place,
    /// The descriptor to fill next with an answer.
    next_used: Place,
    /// The place the guest has seen answers up to.
    published: Place,
    /// Descriptors of the ring that are neither in flight nor answered without being published.
    free: u16,
    /// Answers to publish, in order.
    answers: Vec<Answer>,
    /// By buffer id.
    buffers: Box<[Buffer]>,
    /// A copy of the chain being taken.
    chain: Vec<Descriptor>,
    record: Option<PackedRecord>,
    /// What to take first, last first.
    recovered: Vec<Recovered>,
}

impl Packed {
    pub(crate) fn new(
        size: u16,
        memory: &RingMemory,
        features: Features,
        base: u32,
    ) -> Result<Packed, RingError> {
        if size == 0 || size > QUEUE_SIZE_MAX {
            return Err(RingError::QueueSize(size));
        }
        let ring = DescriptorRing::new(size, memory)?;
        let suppression = Suppression::new(memory, features)?;
        let (avail, used) = places(base, ring.is_fresh());
        let ahead = avail.ahead_of(used, size);
        let inside = avail.index < size && used.index < size;
        let ahead = ahead.filter(|_| inside).ok_or(RingError::Base(base))?;
        let entries = usize::from(size);
        Ok(Packed {
            size,
            ring,
            suppression,
            next_avail: avail,
            next_used: used,
            published: used,
            free: size - ahead,
            answers: Vec::with_capacity(entries),
            buffers: vec![Buffer::default(); entries].into_boxed_slice(),
            chain: Vec::with_capacity(entries),
            record: None,
            recovered: Vec::new(),
        })
    }

    /// Goes on where the record says, if there is a past; keeps the record from now on. How many
    /// requests an engine before us left unanswered.
    pub(crate) fn attach(&mut self, mut record: PackedRecord) -> Result<u16, RingError> {
        let recovered = record.recover(&self.ring, self.next_used)?;
        if let Some((used, recovered)) = recovered {
            let mut taken = 0;
            for one in &recovered {
                let descriptors = u16::try_from(one.chain.len()).unwrap_or(u16::MAX);
                let head = self.check_head(one.chain.last().map_or(u16::MAX, |last| last.link))?;
                self.buffers[head.at()] = Buffer {
                    descriptors,
                    entry: one.entry,
                };
                // Cannot overflow: the record has checked that all chains fit the ring.
                taken += descriptors;
            }
            self.next_used = used;
            self.published = used;
            self.next_avail = used.advance(taken, self.size);
            self.free = self.size - taken;
            self.recovered = recovered;
            self.recovered.reverse();
            planted::spoil(&mut self.recovered);
        }
        self.record = Some(record);
        Ok(u16::try_from(self.recovered.len()).expect("at most one per descriptor"))
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
        // Acquire: what the guest wrote before these flags is to be seen after them.
        let flags = self.ring.flags(self.next_avail, Ordering::Acquire);
        if !self.next_avail.is_available(flags) {
            return Ok(false);
        }
        let after = self.copy_chain(flags)?;
        let head = self.check_head(self.chain[self.chain.len() - 1].link)?;
        gather(&self.chain, head, Gather::new(memory, scratch, chain))?;
        let descriptors = u16::try_from(self.chain.len()).expect("at most the queue size");
        let entry = match &mut self.record {
            None => 0,
            Some(record) => record.take(&self.chain),
        };
        self.buffers[head.at()] = Buffer { descriptors, entry };
        self.free -= descriptors;
        self.next_avail = after;
        Ok(true)
    }

    #[cold]
    fn pop_recovered<M: GuestMemory>(
        &mut self,
        memory: &M,
        scratch: &mut Scratch,
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        let Some(recovered) = self.recovered.pop() else {
            return Ok(false);
        };
        let head = Head(recovered.chain.last().expect("checked by attach").link);
        gather(&recovered.chain, head, Gather::new(memory, scratch, chain))?;
        chain.again = true;
        Ok(true)
    }

    /// Copies the chain at `next_avail`, each word read once. Where the next one begins.
    #[inline(always)]
    fn copy_chain(&mut self, first_flags: u16) -> Result<Place, RingError> {
        self.chain.clear();
        let (mut place, mut flags) = (self.next_avail, first_flags);
        for _ in 0..self.free {
            let descriptor = self.ring.descriptor(place, flags);
            self.chain.push(descriptor);
            place = place.advance(1, self.size);
            if !descriptor.has(NEXT) {
                return Ok(place);
            }
            flags = self.ring.flags(place, Ordering::Relaxed);
        }
        if self.free == self.size {
            return Err(RingError::ChainTooLong);
        }
        Err(RingError::Overrun)
    }

    #[inline(always)]
    fn check_head(&self, id: u16) -> Result<Head, RingError> {
        match self.buffers.get(usize::from(id)) {
            None => Err(RingError::HeadOutOfRange(id)),
            Some(buffer) if buffer.descriptors != 0 => Err(RingError::HeadInFlight(id)),
            Some(_) => Ok(Head(id)),
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, head: Head, written: u32) {
        let Buffer { descriptors, entry } = std::mem::take(&mut self.buffers[head.at()]);
        assert!(descriptors != 0, "buffer {} is answered once", head.0);
        let place = self.next_used;
        self.ring.answer(place, head, written);
        let wrote = if written == 0 { 0 } else { WRITE };
        self.answers.push(Answer {
            place,
            flags: place.used_flags() | wrote,
            entry,
        });
        self.next_used = place.advance(descriptors, self.size);
    }

    /// Shows the guest what was pushed. Whether it wants a call for that.
    pub(crate) fn publish(&mut self) -> bool {
        let Some((first, later)) = self.answers.split_first() else {
            return false;
        };
        if let Some(record) = &mut self.record {
            record.begin_publish(
                self.answers.iter().map(|answer| answer.entry),
                self.next_used,
            );
        }
        // The guest looks at answers in order, so that the flags of the first one publish all.
        // Release: the record comes before any of them.
        for answer in later {
            self.ring
                .store_flags(answer.place, answer.flags, Ordering::Release);
        }
        // Release: the other answers, and the data we wrote, come before these flags.
        self.ring
            .store_flags(first.place, first.flags, Ordering::Release);
        if let Some(record) = &mut self.record {
            record.finish_publish(self.answers.iter().map(|answer| answer.entry));
        }
        let published = self.answered();
        self.answers.clear();
        self.published = self.next_used;
        self.free += published;
        fence(Ordering::SeqCst);
        self.suppression
            .wants_call(self.published, published, self.size)
    }

    /// Descriptors that the answers of this turn give back.
    fn answered(&self) -> u16 {
        if self.next_used == self.published {
            return 0;
        }
        self.next_used
            .ahead_of(self.published, self.size)
            .expect("no more is answered than was taken")
    }

    pub(crate) fn enable_kicks(&mut self) {
        self.suppression.enable_kicks(self.next_avail);
    }

    pub(crate) fn disable_kicks(&mut self) {
        self.suppression.disable_kicks();
    }

    pub(crate) fn waiting(&self) -> bool {
        let flags = self.ring.flags(self.next_avail, Ordering::Acquire);
        !self.recovered.is_empty() || self.next_avail.is_available(flags)
    }

    pub(crate) fn owes_recovered(&self) -> bool {
        !self.recovered.is_empty()
    }

    pub(crate) fn base(&self) -> u32 {
        u32::from(self.next_avail.bits()) | u32::from(self.published.bits()) << 16
    }
}

/// Where the two sides are at `base`. Some front-ends start a new packed ring at 0, or leave out
/// the used half, although its wrap counters begin as 1. Taken by the letter that would be a
/// ring after its first lap, which has descriptors with the used flag in it: the two cannot be
/// confused.
fn places(base: u32, fresh: bool) -> (Place, Place) {
    if fresh && (base == 0 || base == u32::from(WRAP)) {
        return (Place::START, Place::START);
    }
    let [a, b, c, d] = base.to_le_bytes();
    let avail = Place::from_bits(u16::from_le_bytes([a, b]));
    (avail, Place::from_bits(u16::from_le_bytes([c, d])))
}

/// Gathers a chain that was copied from the ring.
#[inline(always)]
fn gather<M: GuestMemory>(
    chain: &[Descriptor],
    head: Head,
    mut gather: Gather<'_, M>,
) -> Result<(), RingError> {
    for descriptor in chain {
        if descriptor.has(INDIRECT) {
            gather.add_packed_table(*descriptor)?;
        } else {
            gather.add(*descriptor)?;
        }
    }
    gather.finish(head)
}

/// The ring itself: one memory, seen in words of three sizes.
#[derive(Debug)]
pub(crate) struct DescriptorRing {
    size: u16,
    addresses: Cells<AtomicU64>,
    words: Cells<AtomicU32>,
    halves: Cells<AtomicU16>,
}

impl DescriptorRing {
    fn new(size: u16, memory: &RingMemory) -> Result<DescriptorRing, RingError> {
        let entries = usize::from(size);
        let short = RingError::RingMemory(Area::Descriptors);
        if !memory.descriptors.address().addr().is_multiple_of(16) {
            return Err(short);
        }
        Ok(DescriptorRing {
            size,
            addresses: Cells::new(memory.descriptors, 0, 2 * entries).ok_or(short)?,
            words: Cells::new(memory.descriptors, 0, WORDS * entries).ok_or(short)?,
            halves: Cells::new(memory.descriptors, 0, HALVES * entries).ok_or(short)?,
        })
    }

    /// How many descriptors there are.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Whether no descriptor has the used flag.
    fn is_fresh(&self) -> bool {
        (0..usize::from(self.size)).all(|at| {
            let flags = self
                .halves
                .load(HALVES * at + DESCRIPTOR_FLAGS, Ordering::Relaxed);
            flags & USED == 0
        })
    }

    /// Whether the descriptor at `place` is still the guest's request, and not our answer.
    pub(crate) fn is_unanswered(&self, place: Place) -> bool {
        place.is_available(self.flags(place, Ordering::Acquire))
    }

    /// Takes back answers that the guest cannot have seen, from `first` to before `end`: else it
    /// would find them when the ones before them are answered anew.
    pub(crate) fn retract(&self, first: Place, end: Place) {
        let mut place = first;
        for _ in 0..self.size {
            self.store_flags(place, place.available_flags(), Ordering::Release);
            place = place.advance(1, self.size);
            if place == end {
                return;
            }
        }
    }

    #[inline(always)]
    fn flags(&self, place: Place, ordering: Ordering) -> u16 {
        self.halves
            .load(HALVES * place.at() + DESCRIPTOR_FLAGS, ordering)
    }

    #[inline(always)]
    fn store_flags(&self, place: Place, flags: u16, ordering: Ordering) {
        self.halves
            .store(HALVES * place.at() + DESCRIPTOR_FLAGS, flags, ordering);
    }

    /// The descriptor whose flags were read before the rest.
    #[inline(always)]
    fn descriptor(&self, place: Place, flags: u16) -> Descriptor {
        let at = place.at();
        Descriptor {
            address: self.addresses.load(2 * at, Ordering::Relaxed),
            length: self.words.load(WORDS * at + LENGTH, Ordering::Relaxed),
            link: self.halves.load(HALVES * at + ID, Ordering::Relaxed),
            flags,
        }
    }

    /// Fills in an answer, without its flags.
    #[inline(always)]
    fn answer(&self, place: Place, head: Head, written: u32) {
        let at = place.at();
        self.words
            .store(WORDS * at + LENGTH, written, Ordering::Relaxed);
        self.halves
            .store(HALVES * at + ID, head.0, Ordering::Relaxed);
    }
}

/// Who wants to be told what: the two event suppression areas (virtio 1.2, 2.8.10).
#[derive(Debug)]
struct Suppression {
    event_idx: bool,
    /// The guest's wish.
    guest: Cells<AtomicU16>,
    /// Our wish.
    device: Cells<AtomicU16>,
}

impl Suppression {
    fn new(memory: &RingMemory, features: Features) -> Result<Suppression, RingError> {
        let area = |segment: Segment, area| {
            Cells::new(segment, 0, 2)
                .filter(|_| segment.address().addr().is_multiple_of(4))
                .ok_or(RingError::RingMemory(area))
        };
        Ok(Suppression {
            event_idx: features.event_idx,
            guest: area(memory.driver, Area::Driver)?,
            device: area(memory.device, Area::Device)?,
        })
    }

    /// Whether the guest wants a call for the last `count` descriptors up to `used`.
    fn wants_call(&self, used: Place, count: u16, size: u16) -> bool {
        // Acquire: the place belongs to these flags, or to later ones.
        let flags = self.guest.load(EVENT_FLAGS, Ordering::Acquire);
        if !self.event_idx || flags != EVENT_AT_PLACE {
            return flags != EVENT_DISABLE;
        }
        let wish = Place::from_bits(self.guest.load(EVENT_PLACE, Ordering::Relaxed));
        // A wish of the lap before lies a ring's size behind its index.
        let lap = if wish.wrap == used.wrap { 0 } else { size };
        let event = wish.index.wrapping_sub(lap);
        crosses(event, used.index.wrapping_sub(count), used.index)
    }

    fn enable_kicks(&self, place: Place) {
        if self.event_idx {
            self.device
                .store(EVENT_PLACE, place.bits(), Ordering::Relaxed);
            // Release: the place is to be seen with the flag that makes it count.
            self.device
                .store(EVENT_FLAGS, EVENT_AT_PLACE, Ordering::Release);
        } else {
            self.device
                .store(EVENT_FLAGS, EVENT_ENABLE, Ordering::Relaxed);
        }
    }

    fn disable_kicks(&self) {
        self.device
            .store(EVENT_FLAGS, EVENT_DISABLE, Ordering::Relaxed);
    }
}
