//! The kernels, written once over [`Vector`]; each backend compiles them with its instructions.
//!
//! A kernel makes one pass over all sources in blocks of a few vectors, with the sums of up to
//! [`ROWS`] targets in registers. What does not live here: how a map is cut into passes.

use std::marker::PhantomData;
use std::ops::Range;

use memory::{Segment, prefetch};

use crate::field::PRODUCTS;

/// Targets of one pass: what fits in the 16 registers of AVX2 with two vectors each.
pub(crate) const ROWS: usize = 4;

/// Vectors per block of one sum.
const WIDEST: usize = 8;
/// Vectors per block and target, where nothing is multiplied by a table.
const WIDE: usize = 4;
/// Vectors per block and target, where something is.
const NARROW: usize = 2;

/// Bytes of a line of a cache.
const LINE: usize = 64;
/// What is copied next is asked for when a pass begins, so much of each source: it was written by
/// another core, and nobody else guesses which page comes after this one.
const AHEAD: usize = 4 * LINE;

/// Which kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One target, all factors 1: P.
    Sum,
    /// Two targets, factors 1 and 2ⁱ: P and Q.
    SumAndPowers,
    /// Any factors.
    Rows,
    /// The first target has all factors 1, the others have any.
    SumAndRows,
}

/// One pass: `targets = factors · sources` on some bytes of equally long segments.
pub(crate) struct Pass<'a> {
    /// Which kernel.
    pub(crate) shape: Shape,
    /// What is summed.
    pub(crate) sources: &'a [Segment],
    /// Empty, or what is added to each source first: its old content, so that the change of the
    /// source is summed.
    pub(crate) old: &'a [Segment],
    /// Of each source, the factor for each target.
    pub(crate) factors: &'a [[u8; ROWS]],
    /// One to [`ROWS`].
    pub(crate) targets: &'a [Segment],
    /// Which bytes of the segments.
    pub(crate) bytes: Range<usize>,
    /// Empty, or where each source is copied to while it is summed: into one sum, or one with
    /// powers.
    pub(crate) copies: &'a [Segment],
    /// Whether the sum is added to what the targets hold (powers: after shifting that up by the
    /// number of sources) instead of replacing it.
    pub(crate) add: bool,
}

impl Pass<'_> {
    /// Whether it adds one source to one sum.
    #[inline(always)]
    fn is_small(&self) -> bool {
        let one_sum = match self.shape {
            Shape::Sum => true,
            Shape::SumAndRows => self.targets.len() == 1,
            Shape::SumAndPowers | Shape::Rows => false,
        };
        one_sum && self.sources.len() == 1 && self.add
    }

    /// Asserts what the kernels rely on, for memory safety too. Most of it is known where a pass is
    /// made.
    #[inline(always)]
    pub(crate) fn check(&self) {
        let count = self.sources.len();
        let rows = match self.shape {
            Shape::Sum => 1..=1,
            Shape::SumAndPowers => 2..=2,
            Shape::Rows | Shape::SumAndRows => 1..=ROWS,
        };
        assert!(rows.contains(&self.targets.len()), "rows of a pass");
        assert!(self.factors.len() == count, "each source has its factors");
        assert!(self.old.is_empty() || self.old.len() == count);
        assert!(self.bytes.start <= self.bytes.end);
        let may_copy = match self.shape {
            Shape::Sum => self.old.is_empty() || self.is_small(),
            Shape::SumAndPowers => self.old.is_empty(),
            Shape::Rows | Shape::SumAndRows => false,
        };
        assert!(self.copies.is_empty() || may_copy, "a sum that copies");
        assert!(self.copies.is_empty() || self.copies.len() == count);
        for list in [self.sources, self.old, self.targets, self.copies] {
            for segment in list {
                assert!(segment.len() >= self.bytes.end, "a segment is too short");
            }
        }
    }
}

/// Some bytes in a register, each a number of the field. That a value exists proves that the CPU
/// has the instructions: only `zero` and `load` make one, and their callers promise it.
pub(crate) trait Vector: Copy {
    /// What multiplies a vector by one number.
    type Factor: Copy;
    /// Bytes of a vector.
    const BYTES: usize;

    /// # Safety
    /// The CPU has the instructions of this backend.
    unsafe fn zero() -> Self;

    /// Loads bytes at any alignment.
    ///
    /// # Safety
    /// The CPU has the instructions of this backend; `BYTES` at `from` are readable.
    unsafe fn load(from: *const u8) -> Self;

    /// Stores bytes at any alignment.
    ///
    /// # Safety
    /// `BYTES` at `to` are writable.
    unsafe fn store(self, to: *mut u8);

    /// The sum: XOR.
    fn plus(self, other: Self) -> Self;

    /// Each byte times 2.
    fn double(self) -> Self;

    /// What multiplies by `number`.
    ///
    /// # Safety
    /// The CPU has the instructions of this backend.
    unsafe fn factor(number: u8) -> Self::Factor;

    /// Each byte times the factor.
    fn times(self, factor: Self::Factor) -> Self;
}

/// A pass under way. That it exists proves that the CPU has the instructions of `V`, that the
/// pass is checked, and so that every access inside `pass.bytes` hits mapped memory.
struct Work<'a, V> {
    pass: &'a Pass<'a>,
    vector: PhantomData<V>,
}

/// Makes the pass with the vectors `V`.
///
/// # Safety
/// The CPU has the instructions of `V`; `pass.check()` has passed.
#[inline(always)]
pub(crate) unsafe fn run<V: Vector>(pass: &Pass<'_>) {
    let work = Work::<V> {
        pass,
        vector: PhantomData,
    };
    let done = if pass.old.is_empty() {
        blocks::<V, false>(&work)
    } else {
        blocks::<V, true>(&work)
    };
    for at in done..pass.bytes.end {
        one_byte(&work, at);
    }
}

impl<V: Vector> Work<'_, V> {
    /// One vector of a source, or of its change.
    #[inline(always)]
    fn read<const CHANGE: bool>(&self, source: usize, at: usize) -> V {
        debug_assert!(at + V::BYTES <= self.pass.bytes.end);
        let from = self.pass.sources[source].address().wrapping_add(at);
        // SAFETY: `at` is inside (kernels take whole blocks only), the rest by existence.
        let vector = unsafe { V::load(from) };
        if !CHANGE {
            return vector;
        }
        let from = self.pass.old[source].address().wrapping_add(at);
        // SAFETY: as above.
        vector.plus(unsafe { V::load(from) })
    }

    /// What the sums of one target start from.
    #[inline(always)]
    fn begin<const WIDTH: usize>(&self, row: usize, at: usize) -> [V; WIDTH] {
        self.begin_from(row, at, self.pass.add)
    }

    /// The same: from what the target holds, or from nothing.
    #[inline(always)]
    fn begin_from<const WIDTH: usize>(&self, row: usize, at: usize, add: bool) -> [V; WIDTH] {
        debug_assert!(at + WIDTH * V::BYTES <= self.pass.bytes.end);
        // SAFETY: the CPU can, by existence.
        let mut total = [unsafe { V::zero() }; WIDTH];
        if add {
            let from = self.pass.targets[row].address().wrapping_add(at);
            for (index, vector) in total.iter_mut().enumerate() {
                // SAFETY: inside (kernels take whole blocks only), the rest by existence.
                *vector = unsafe { V::load(from.wrapping_add(index * V::BYTES)) };
            }
        }
        total
    }

    /// Stores the sums of one target.
    #[inline(always)]
    fn end<const WIDTH: usize>(&self, row: usize, at: usize, total: [V; WIDTH]) {
        debug_assert!(at + WIDTH * V::BYTES <= self.pass.bytes.end);
        let to = self.pass.targets[row].address().wrapping_add(at);
        for (index, vector) in total.into_iter().enumerate() {
            // SAFETY: inside (kernels take whole blocks only); segments are writable.
            unsafe { vector.store(to.wrapping_add(index * V::BYTES)) };
        }
    }

    #[inline(always)]
    fn factor(&self, number: u8) -> V::Factor {
        // SAFETY: the CPU can, by existence.
        unsafe { V::factor(number) }
    }
}

/// Computes all whole blocks. Returns the first byte that is left.
#[inline(always)]
fn blocks<V: Vector, const CHANGE: bool>(work: &Work<'_, V>) -> usize {
    // First: all else would take it as long as its bytes.
    if work.pass.is_small() {
        return if work.pass.copies.is_empty() {
            small_sum::<V, CHANGE, false>(work)
        } else {
            small_sum::<V, CHANGE, true>(work)
        };
    }
    if !work.pass.copies.is_empty() {
        return match work.pass.shape {
            Shape::SumAndPowers => copies::<V, true>(work),
            Shape::Sum | Shape::Rows | Shape::SumAndRows => copies::<V, false>(work),
        };
    }
    match (work.pass.shape, work.pass.targets.len()) {
        (Shape::Sum, _) | (Shape::SumAndRows, 1) => sum::<V, CHANGE>(work),
        (Shape::SumAndPowers, _) => sum_and_powers::<V, CHANGE>(work),
        (Shape::SumAndRows, 2) => rows::<V, 2, true, CHANGE>(work),
        (Shape::SumAndRows, 3) => rows::<V, 3, true, CHANGE>(work),
        (Shape::SumAndRows, _) => rows::<V, 4, true, CHANGE>(work),
        (Shape::Rows, 1) => rows::<V, 1, false, CHANGE>(work),
        (Shape::Rows, 2) => rows::<V, 2, false, CHANGE>(work),
        (Shape::Rows, 3) => rows::<V, 3, false, CHANGE>(work),
        (Shape::Rows, _) => rows::<V, 4, false, CHANGE>(work),
    }
}

#[inline(always)]
fn sum<V: Vector, const CHANGE: bool>(work: &Work<'_, V>) -> usize {
    let (mut at, end) = (work.pass.bytes.start, work.pass.bytes.end);
    let sources = work.pass.sources.len();
    while end - at >= WIDEST * V::BYTES {
        let mut total = work.begin::<WIDEST>(0, at);
        let mut source = 0;
        // Two sources at a time: AVX-512 sums three vectors in one instruction, and the compiler
        // knows.
        while sources - source >= 2 {
            for (index, vector) in total.iter_mut().enumerate() {
                let here = at + index * V::BYTES;
                let first = work.read::<CHANGE>(source, here);
                let second = work.read::<CHANGE>(source + 1, here);
                *vector = vector.plus(first.plus(second));
            }
            source += 2;
        }
        if source < sources {
            for (index, vector) in total.iter_mut().enumerate() {
                let here = at + index * V::BYTES;
                *vector = vector.plus(work.read::<CHANGE>(source, here));
            }
        }
        work.end(0, at, total);
        at += WIDEST * V::BYTES;
    }
    at
}

/// Copies all sources while they are summed, two at a time, from the last to the first.
///
/// The vectors of both are loaded before any of them is stored: a load waits for a store before it
/// that looks like its own in the low 12 bits, and chunks and copies all lie at the same place of
/// their pages. Two, because the vectors of more push each other out of the nearest cache; the sums
/// wait there for the next two.
#[inline(always)]
fn copies<V: Vector, const POWERS: bool>(work: &Work<'_, V>) -> usize {
    let mut add = work.pass.add;
    let mut end = work.pass.sources.len();
    let mut done = work.pass.bytes.start;
    while end > 0 {
        let first = (end - 1) / 2 * 2;
        done = if end - first == 2 {
            copy_some::<V, 2, POWERS>(work, first, add)
        } else {
            copy_some::<V, 1, POWERS>(work, first, add)
        };
        (add, end) = (true, first);
    }
    done
}

/// Copies `COUNT` sources from `first` on, and adds them to the sums. Each vector is loaded once
/// and stored and summed from its register: what is copied is what is summed, whoever changes the
/// source meanwhile.
#[inline(always)]
fn copy_some<V: Vector, const COUNT: usize, const POWERS: bool>(
    work: &Work<'_, V>,
    first: usize,
    add: bool,
) -> usize {
    let (mut at, end) = (work.pass.bytes.start, work.pass.bytes.end);
    let address = |list: &[Segment], one: usize| list[first + one].address();
    let sources: [_; COUNT] = std::array::from_fn(|one| address(work.pass.sources, one));
    let copies: [_; COUNT] = std::array::from_fn(|one| address(work.pass.copies, one));
    for source in sources {
        for line in (0..AHEAD).step_by(LINE) {
            prefetch(source.wrapping_add(end + line));
        }
    }
    while end - at >= WIDE * V::BYTES {
        let mut p = work.begin_from::<WIDE>(0, at, add);
        let mut q = p;
        if POWERS {
            q = work.begin_from(1, at, add);
        }
        let vectors: [[V; WIDE]; COUNT] = std::array::from_fn(|one| {
            std::array::from_fn(|index| {
                let from = sources[one].wrapping_add(at + index * V::BYTES);
                // SAFETY: inside (kernels take whole blocks only), the rest by existence.
                unsafe { V::load(from) }
            })
        });
        for one in (0..COUNT).rev() {
            for index in 0..WIDE {
                let vector = vectors[one][index];
                let to = copies[one].wrapping_add(at + index * V::BYTES);
                // SAFETY: inside (whole blocks only); segments are writable.
                unsafe { vector.store(to) };
                p[index] = p[index].plus(vector);
                if POWERS {
                    q[index] = q[index].double().plus(vector);
                }
            }
        }
        work.end(0, at, p);
        if POWERS {
            work.end(1, at, q);
        }
        at += WIDE * V::BYTES;
    }
    at
}

/// A small write: nothing else is summed, so nothing else is looked up for each block.
///
/// All of a vector is loaded before anything of it is stored: copies lie at the same place of
/// their pages as what is loaded, and a load waits for a store that looks like its own in the low
/// 12 bits.
#[inline(always)]
fn small_sum<V: Vector, const CHANGE: bool, const COPY: bool>(work: &Work<'_, V>) -> usize {
    let (mut at, end) = (work.pass.bytes.start, work.pass.bytes.end);
    let target = work.pass.targets[0].address();
    let source = work.pass.sources[0].address();
    let old = work.pass.old.first().map_or(source, |old| old.address());
    let copy = work.pass.copies.first();
    let copy = copy.map_or(target, |copy| copy.address());
    while end - at >= WIDEST * V::BYTES {
        for index in 0..WIDEST {
            let here = at + index * V::BYTES;
            let load = |from: *mut u8| {
                // SAFETY: inside (kernels take whole blocks only), the rest by existence.
                unsafe { V::load(from.wrapping_add(here)) }
            };
            let store = |vector: V, to: *mut u8| {
                // SAFETY: inside; segments are writable.
                unsafe { vector.store(to.wrapping_add(here)) };
            };
            // Loaded once: what is copied is what is summed, whoever changes it meanwhile.
            let fresh = load(source);
            let change = if CHANGE { fresh.plus(load(old)) } else { fresh };
            let total = change.plus(load(target));
            if COPY {
                store(fresh, copy);
            }
            store(total, target);
        }
        at += WIDEST * V::BYTES;
    }
    at
}

/// Horner's rule, from the last source to the first: Q = (… · 2 + d₁) · 2 + d₀.
#[inline(always)]
fn sum_and_powers<V: Vector, const CHANGE: bool>(work: &Work<'_, V>) -> usize {
    let (mut at, end) = (work.pass.bytes.start, work.pass.bytes.end);
    while end - at >= WIDE * V::BYTES {
        let mut p = work.begin::<WIDE>(0, at);
        let mut q = work.begin::<WIDE>(1, at);
        for source in (0..work.pass.sources.len()).rev() {
            for index in 0..WIDE {
                let vector = work.read::<CHANGE>(source, at + index * V::BYTES);
                p[index] = p[index].plus(vector);
                q[index] = q[index].double().plus(vector);
            }
        }
        work.end(0, at, p);
        work.end(1, at, q);
        at += WIDE * V::BYTES;
    }
    at
}

#[inline(always)]
fn rows<V: Vector, const COUNT: usize, const FIRST_IS_SUM: bool, const CHANGE: bool>(
    work: &Work<'_, V>,
) -> usize {
    let (mut at, end) = (work.pass.bytes.start, work.pass.bytes.end);
    while end - at >= NARROW * V::BYTES {
        let mut totals = [work.begin::<NARROW>(0, at); COUNT];
        for (row, total) in totals.iter_mut().enumerate().skip(1) {
            *total = work.begin(row, at);
        }
        for (source, factors) in work.pass.factors.iter().enumerate() {
            let first = work.read::<CHANGE>(source, at);
            let second = work.read::<CHANGE>(source, at + V::BYTES);
            if FIRST_IS_SUM {
                totals[0][0] = totals[0][0].plus(first);
                totals[0][1] = totals[0][1].plus(second);
            }
            for row in usize::from(FIRST_IS_SUM)..COUNT {
                let factor = work.factor(factors[row]);
                totals[row][0] = totals[row][0].plus(first.times(factor));
                totals[row][1] = totals[row][1].plus(second.times(factor));
            }
        }
        for (row, total) in totals.into_iter().enumerate() {
            work.end(row, at, total);
        }
        at += NARROW * V::BYTES;
    }
    at
}

/// The same for one byte and any shape: what is left after the last whole block.
fn one_byte<V: Vector>(work: &Work<'_, V>, at: usize) {
    let pass = work.pass;
    let mut totals = [0u8; ROWS];
    if pass.add {
        for (total, target) in totals.iter_mut().zip(pass.targets) {
            *total = load_byte(*target, at);
        }
    }
    for (index, factors) in pass.factors.iter().enumerate() {
        let mut byte = load_byte(pass.sources[index], at);
        if let Some(copy) = pass.copies.get(index) {
            copy.part(at, 1).fill(byte);
        }
        if let Some(old) = pass.old.get(index) {
            byte ^= load_byte(*old, at);
        }
        for (total, factor) in totals.iter_mut().zip(factors) {
            *total ^= PRODUCTS[usize::from(*factor)][usize::from(byte)];
        }
    }
    for (total, target) in totals.iter().zip(pass.targets) {
        target.part(at, 1).fill(*total);
    }
}

fn load_byte(segment: Segment, at: usize) -> u8 {
    let byte = segment.part(at, 1).address();
    // SAFETY: one byte of a segment, which is mapped (its constructor).
    unsafe { byte.read() }
}
