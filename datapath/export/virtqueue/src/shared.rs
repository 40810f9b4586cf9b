//! Words in memory that a guest or a front-end loads and stores at the same time.
//!
//! The only place of the crate that touches such memory. What the words mean lives elsewhere.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use memory::Segment;

/// An atomic word whose value is little-endian in memory, as virtio 1.x says.
pub(crate) trait Word {
    /// The value, in the machine's own order.
    type Value;
    /// Loads the word once.
    fn load_value(&self, ordering: Ordering) -> Self::Value;
    /// Stores the word once.
    fn store_value(&self, value: Self::Value, ordering: Ordering);
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word for $atomic {
            type Value = $value;
            #[inline(always)]
            fn load_value(&self, ordering: Ordering) -> $value {
                <$value>::from_le(self.load(ordering))
            }
            #[inline(always)]
            fn store_value(&self, value: $value, ordering: Ordering) {
                self.store(value.to_le(), ordering);
            }
        }
    };
}

word!(AtomicU8, u8);
word!(AtomicU16, u16);
word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// A table of words in shared memory. It keeps the segment, and with it the promise of whoever
/// built the segment: the bytes stay mapped as long as the table is used.
pub(crate) struct Cells<A> {
    memory: Segment,
    count: usize,
    words: PhantomData<fn() -> A>,
}

impl<A> Cells<A> {
    /// The words from byte `offset` of `memory` on, `count` of them; `None` when they are not all
    /// inside, or not aligned.
    #[inline(always)]
    pub(crate) fn new(memory: Segment, offset: usize, count: usize) -> Option<Cells<A>> {
        let bytes = count.checked_mul(size_of::<A>())?;
        let end = offset.checked_add(bytes)?;
        if end > memory.len() {
            return None;
        }
        let memory = memory.part(offset, bytes);
        let aligned = memory.address().addr().is_multiple_of(align_of::<A>());
        (aligned && !memory.address().is_null()).then_some(Cells {
            memory,
            count,
            words: PhantomData,
        })
    }

    #[inline(always)]
    fn at(&self, index: usize) -> &A {
        self.get(index).expect("a word is in its table")
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Option<&A> {
        if index >= self.count {
            return None;
        }
        let word = self.memory.address().cast::<A>().wrapping_add(index);
        // SAFETY: inside and aligned (checked by `new` and above); mapped as long as `self` is
        // used, by the promise of the segment's constructor. Others may store at any moment: the
        // type is atomic, so that is a race on values and nothing else.
        Some(unsafe { &*word })
    }
}

impl<A: Word> Cells<A> {
    /// Starts to bring word `index` into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        memory::prefetch(self.memory.address().wrapping_add(size_of::<A>() * index));
    }

    /// Loads word `index`, once.
    #[inline(always)]
    pub(crate) fn load(&self, index: usize, ordering: Ordering) -> A::Value {
        self.at(index).load_value(ordering)
    }

    /// Stores word `index`, once.
    #[inline(always)]
    pub(crate) fn store(&self, index: usize, value: A::Value, ordering: Ordering) {
        // The tests stop a queue between any two stores, as a killed process would. It has to
        // happen here, where no store can be forgotten; nothing of it is in the product.
        #[cfg(test)]
        crate::stop::before_store();
        self.at(index).store_value(value, ordering);
    }
}

impl<A> std::fmt::Debug for Cells<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} words at {:?}", self.count, self.memory.address())
    }
}

/// A table of pairs of long words.
#[derive(Debug)]
pub(crate) struct Pairs(Cells<[AtomicU64; 2]>);

impl Pairs {
    /// The first `count` pairs of `memory`; `None` when it is shorter, or not aligned.
    #[inline(always)]
    pub(crate) fn new(memory: Segment, count: usize) -> Option<Pairs> {
        Cells::new(memory, 0, count).map(Pairs)
    }

    /// How many pairs.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.0.count
    }

    /// Loads both words of a pair, each once.
    #[inline(always)]
    pub(crate) fn pair(&self, at: usize) -> [u64; 2] {
        self.get(at).expect("a pair is in its table")
    }

    /// The same, if the table has such a pair.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<[u64; 2]> {
        let [first, second] = self.0.get(at)?;
        let first = first.load_value(Ordering::Relaxed);
        Some([first, second.load_value(Ordering::Relaxed)])
    }

    /// Starts to bring a pair into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        memory::prefetch(self.0.memory.address().wrapping_add(16 * at));
    }
}

/// Calls `take` with each 16 bytes of `segments`, as two words, loading every byte once. They
/// need not be aligned, nor end with a segment. What is left over at the end is not looked at.
pub(crate) fn for_each_pair(segments: &[Segment], mut take: impl FnMut([u64; 2])) {
    let (mut bytes, mut filled) = ([0u8; 16], 0);
    for segment in segments {
        let cells = Cells::<AtomicU8>::new(*segment, 0, segment.len());
        let Some(cells) = cells else { continue };
        for at in 0..segment.len() {
            bytes[filled] = cells.load(at, Ordering::Relaxed);
            filled += 1;
            if filled == bytes.len() {
                filled = 0;
                let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
                take([
                    u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                    u64::from_le_bytes([i, j, k, l, m, n, o, p]),
                ]);
            }
        }
    }
}
