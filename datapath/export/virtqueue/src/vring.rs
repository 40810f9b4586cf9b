//! One ring of either layout, and whether it is broken.

use std::sync::atomic::{Ordering, fence};

use crate::chain::{Chain, Head, Scratch};
use crate::inflight::Record;
use crate::packed::Packed;
use crate::split::Split;
use crate::{Features, GuestMemory, Inflight, Layout, RingError, RingMemory};

/// The device's side of one ring.
///
/// One turn of its owner: `pop` until there is nothing (or no room), `push` what is finished,
/// `publish` once, and call the guest when that says so.
///
/// ```
/// use virtqueue::{Chain, GuestMemory, RingError, Vring};
///
/// /// One turn: answers each request with zeroes. Whether the guest is to be called.
/// fn turn<M: GuestMemory>(
///     vring: &mut Vring,
///     memory: &M,
///     chain: &mut Chain,
/// ) -> Result<bool, RingError> {
///     while vring.pop(memory, chain)? {
///         for segment in &chain.writable {
///             segment.fill(0);
///         }
///         let written = u32::try_from(chain.writable_bytes).unwrap_or(u32::MAX);
///         vring.push(chain.head, written);
///     }
///     Ok(vring.publish())
/// }
/// ```
#[derive(Debug)]
pub struct Vring {
    ring: Ring,
    scratch: Scratch,
    health: Result<(), RingError>,
    kicks: Kicks,
    /// Chains taken and not yet pushed.
    in_flight: u16,
    /// A call that an engine before us may have died before making.
    owes_call: bool,
}

#[derive(Debug)]
enum Ring {
    Split(Split),
    Packed(Packed),
}

/// What the guest was told about kicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kicks {
    Enabled,
    Disabled,
}

impl Vring {
    /// A ring that starts at `base`, in the format of vhost-user's `SET_VRING_BASE`: split, the
    /// avail index; packed, the place of the next avail descriptor with its wrap counter in bit
    /// 15, and above them the same of the next used one. Kicks are enabled to begin with, and
    /// work may be waiting without one.
    ///
    /// # Errors
    /// When size, memory or base cannot be those of a ring.
    pub fn new(
        layout: Layout,
        size: u16,
        memory: RingMemory,
        features: Features,
        base: u32,
    ) -> Result<Vring, RingError> {
        let ring = match layout {
            Layout::Split => Ring::Split(Split::new(size, &memory, features, base)?),
            Layout::Packed => Ring::Packed(Packed::new(size, &memory, features, base)?),
        };
        let mut vring = Vring {
            ring,
            scratch: Scratch::new(features.indirect),
            health: Ok(()),
            kicks: Kicks::Disabled,
            in_flight: 0,
            owes_call: true,
        };
        // Work that is already there is found by the owner's first turn.
        let _ = vring.enable_kicks();
        Ok(vring)
    }

    /// Records from now on in `inflight` what is taken and not answered. When an engine before us
    /// left requests there, the ring goes on from where that one stopped, whatever its base, and
    /// `pop` gives those requests first, in their old order, as [`Chain::again`]. How many.
    ///
    /// # Errors
    /// When the region was made for a smaller queue or the other layout, or contradicts itself.
    /// The ring is broken then.
    ///
    /// # Panics
    /// When requests were taken before.
    pub fn attach(&mut self, inflight: Inflight) -> Result<u16, RingError> {
        assert_eq!(self.in_flight, 0, "the record has to know every request");
        let recovered = match (&mut self.ring, inflight.record) {
            (Ring::Split(split), Record::Split(record)) => split.attach(record),
            (Ring::Packed(packed), Record::Packed(record)) => packed.attach(record),
            // A front-end may ask for the region first, and choose the layout then.
            (Ring::Split(_), Record::Packed(_)) | (Ring::Packed(_), Record::Split(_)) => {
                Err(RingError::InflightRegion)
            }
        };
        self.health = recovered.map(|_| ());
        if self.kicks == Kicks::Enabled {
            // The place at which we want a kick has moved.
            let _ = self.enable_kicks();
        }
        recovered
    }

    /// Takes the next request. `false`: there is none.
    ///
    /// # Errors
    /// When the guest broke a rule. The ring stays broken: every later `pop` says the same. What
    /// was taken before may still be answered.
    #[inline]
    pub fn pop<M: GuestMemory>(
        &mut self,
        memory: &M,
        chain: &mut Chain,
    ) -> Result<bool, RingError> {
        self.health?;
        let popped = match &mut self.ring {
            Ring::Split(split) => split.pop(memory, &mut self.scratch, chain),
            Ring::Packed(packed) => packed.pop(memory, &mut self.scratch, chain),
        };
        match popped {
            Ok(true) => self.in_flight += 1,
            Ok(false) => {}
            Err(error) => self.health = Err(error),
        }
        popped
    }

    /// Answers a request: `written` bytes of its writable memory are filled. The guest sees it
    /// after [`Vring::publish`].
    ///
    /// # Panics
    /// When `head` is not in flight: it was answered twice, or never popped from this ring.
    #[inline(always)]
    pub fn push(&mut self, head: Head, written: u32) {
        match &mut self.ring {
            Ring::Split(split) => split.push(head, written),
            Ring::Packed(packed) => packed.push(head, written),
        }
        self.in_flight -= 1;
    }

    /// Shows the guest all answers pushed. Whether it is to be called.
    ///
    /// Once per turn. The first time the answer is yes, even without a push: an engine that died
    /// may have published and not called. Where the ring stands does not tell, because its indices
    /// come around to where a new one begins.
    #[inline]
    #[must_use = "the guest waits for the call"]
    pub fn publish(&mut self) -> bool {
        let wanted = match &mut self.ring {
            Ring::Split(split) => split.publish(),
            Ring::Packed(packed) => packed.publish(),
        };
        wanted | std::mem::take(&mut self.owes_call)
    }

    /// Asks the guest for a kick when it makes the next request available. Whether there is one
    /// already, for which no kick may come.
    #[must_use = "no kick may come for what is already there"]
    pub fn enable_kicks(&mut self) -> bool {
        match &mut self.ring {
            Ring::Split(split) => split.enable_kicks(),
            Ring::Packed(packed) => packed.enable_kicks(),
        }
        self.kicks = Kicks::Enabled;
        // The guest makes available and then looks at our wish; we do it the other way round.
        fence(Ordering::SeqCst);
        self.waiting()
    }

    /// Tells the guest that no kicks are needed; some may come all the same.
    pub fn disable_kicks(&mut self) {
        if self.kicks == Kicks::Enabled {
            self.kicks = Kicks::Disabled;
            match &mut self.ring {
                Ring::Split(split) => split.disable_kicks(),
                Ring::Packed(packed) => packed.disable_kicks(),
            }
        }
    }

    /// Whether there is something for `pop`. Never on a broken ring.
    #[must_use]
    pub fn waiting(&self) -> bool {
        self.health.is_ok()
            && match &self.ring {
                Ring::Split(split) => split.waiting(),
                Ring::Packed(packed) => packed.waiting(),
            }
    }

    /// After a `pop`: whether another one may give a request without a look at how far the guest
    /// has come meanwhile. Whoever looks after each request runs behind a guest that is about to
    /// make more available, takes them one by one, and each time waits for what the guest's core
    /// has just written; in the next turn there are several, which come side by side.
    #[inline(always)]
    #[must_use]
    pub fn sees_more(&self) -> bool {
        match &self.ring {
            Ring::Split(split) => split.sees_more(),
            // Each descriptor says by itself that it is available.
            Ring::Packed(_) => true,
        }
    }

    /// Whether `pop` is still to give requests that an engine before us took.
    #[must_use]
    pub fn owes_recovered(&self) -> bool {
        match &self.ring {
            Ring::Split(split) => split.owes_recovered(),
            Ring::Packed(packed) => packed.owes_recovered(),
        }
    }

    /// How many requests were taken and not yet pushed.
    #[must_use]
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Where the ring goes on, in the format of vhost-user's `GET_VRING_BASE`. Meaningful when
    /// nothing is in flight and all is published.
    #[must_use]
    pub fn base(&self) -> u32 {
        match &self.ring {
            Ring::Split(split) => split.base(),
            Ring::Packed(packed) => packed.base(),
        }
    }

    /// Why the ring is broken, if it is.
    ///
    /// # Errors
    /// The rule that the guest broke.
    pub fn health(&self) -> Result<(), RingError> {
        self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BadAddress;
    use memory::Segment;

    /// Guest memory that begins at guest address 0.
    struct Flat(Segment);

    impl GuestMemory for Flat {
        fn translate(
            &self,
            address: u64,
            length: u64,
            _hint: &mut usize,
            out: &mut Vec<Segment>,
        ) -> Result<(), BadAddress> {
            let bad = BadAddress { address, length };
            let end = address.checked_add(length).ok_or(bad)?;
            if end > units::bytes_u64(self.0.len()) {
                return Err(bad);
            }
            out.push(
                self.0
                    .part(units::bytes_usize(address), units::bytes_usize(length)),
            );
            Ok(())
        }
    }

    #[test]
    fn a_ring_can_move_to_another_thread() {
        fn assert_send<T: Send>() {}
        assert_send::<Vring>();
        assert_send::<Inflight>();
    }

    #[test]
    fn a_chain_of_three_is_taken_and_answered() {
        let mut bytes = vec![0u64; 512];
        // SAFETY: `bytes` outlives the segment and is only used through it.
        let all = unsafe { Segment::new(bytes.as_mut_ptr().cast(), 4096) };
        let start = all.address().addr().next_multiple_of(16) - all.address().addr();
        let memory = RingMemory {
            descriptors: all.part(start, 64),
            driver: all.part(start + 64, 14),
            device: all.part(start + 80, 38),
        };
        let describe = |index: usize, address: u64, length: u32, flags: u16, next: u16| {
            let at = memory.descriptors.part(16 * index, 16);
            at.part(0, 8).copy_from_slice(&address.to_le_bytes());
            at.part(8, 4).copy_from_slice(&length.to_le_bytes());
            at.part(12, 2).copy_from_slice(&flags.to_le_bytes());
            at.part(14, 2).copy_from_slice(&next.to_le_bytes());
        };
        describe(2, 1024, 16, 1, 0);
        describe(0, 2048, 512, 3, 3);
        describe(3, 1040, 1, 2, 0);
        memory
            .driver
            .copy_from_slice(&[0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let features = Features {
            event_idx: true,
            indirect: false,
        };
        let mut vring = Vring::new(Layout::Split, 4, memory, features, 0).expect("a good ring");
        let (mut chain, flat) = (Chain::default(), Flat(all));

        assert!(vring.waiting());
        assert_eq!(vring.pop(&flat, &mut chain), Ok(true));
        assert_eq!(chain.head.id(), 2);
        assert_eq!(chain.readable, [all.part(1024, 16)]);
        assert_eq!(chain.writable, [all.part(2048, 512), all.part(1040, 1)]);
        assert_eq!((chain.readable_bytes, chain.writable_bytes), (16, 513));
        assert_eq!(vring.pop(&flat, &mut chain), Ok(false));

        vring.push(chain.head, 513);
        assert!(vring.publish(), "the guest waits for entry 0");
        let mut used = [0u8; 12];
        memory.device.part(0, 12).copy_to_slice(&mut used);
        assert_eq!(used, [0, 0, 1, 0, 2, 0, 0, 0, 1, 2, 0, 0]);
        assert!(!vring.publish(), "nothing new");
    }
}
