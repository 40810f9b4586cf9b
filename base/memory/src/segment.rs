//! One contiguous piece of memory, and lists of them.
//!
//! The promise is made once, at construction: whoever builds a `Segment` says that its bytes stay
//! mapped, readable and writable until the request that carries it is completed. The bytes may be
//! changed by a guest or a drive at any time, so there is never a `&[u8]` of them here.

use std::ptr;

/// One contiguous piece of memory; laid out as the kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    address: *mut u8,
    length: usize,
}

const _: () = assert!(
    size_of::<Segment>() == 16,
    "handed to the kernel as an iovec"
);

// SAFETY: a segment is an address and a promise about it, made by the constructor; the promise
// does not depend on the thread.
unsafe impl Send for Segment {}
// SAFETY: as above; no method gives out a reference to the bytes.
unsafe impl Sync for Segment {}

/// Memory that stays mapped, at the same addresses, as long as this is there.
pub trait Lasting: Send + Sync {
    /// All of it.
    fn segment(&self) -> Segment;
}

impl Segment {
    /// No memory at all.
    pub const EMPTY: Segment = Segment {
        address: ptr::null_mut(),
        length: 0,
    };

    /// # Safety
    /// `address` points to `length` bytes that stay mapped, readable and writable until the
    /// request that carries this segment is completed, and that nobody holds a Rust reference to
    /// while a method of the segment runs.
    #[inline]
    #[must_use]
    pub unsafe fn new(address: *mut u8, length: usize) -> Segment {
        Segment { address, length }
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Where the bytes are.
    #[inline]
    #[must_use]
    pub fn address(self) -> *mut u8 {
        self.address
    }

    /// `length` bytes of this segment from `offset` on.
    ///
    /// # Panics
    /// When they are not inside.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn part(self, offset: usize, length: usize) -> Segment {
        let inside = offset <= self.length && length <= self.length - offset;
        if !inside {
            outside((offset, length), self.length);
        }
        Segment {
            address: self.address.wrapping_add(offset),
            length,
        }
    }

    /// Copies all of `source` to the start of this segment.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_from(self, source: Segment) {
        assert!(self.length == source.length, "copies are as long");
        // SAFETY: both are mapped (constructor); `copy` allows overlap. A guest may store
        // meanwhile: that is a race on bytes whose value we do not rely on.
        unsafe { ptr::copy(source.address, self.address, self.length) };
    }

    /// Copies `source` here.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_from_slice(self, source: &[u8]) {
        assert!(self.length == source.len(), "copies are as long");
        // SAFETY: mapped (constructor); a Rust slice never overlaps a segment (constructor).
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), self.address, self.length) };
    }

    /// Copies this segment to `target`.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub fn copy_to_slice(self, target: &mut [u8]) {
        assert!(self.length == target.len(), "copies are as long");
        // SAFETY: mapped (constructor); a Rust slice never overlaps a segment (constructor).
        unsafe { ptr::copy_nonoverlapping(self.address, target.as_mut_ptr(), self.length) };
    }

    /// Whether both hold the same bytes now.
    ///
    /// # Panics
    /// When the lengths differ.
    #[must_use]
    pub fn equals(self, other: Segment) -> bool {
        assert!(self.length == other.length, "as long as each other");
        // SAFETY: both are mapped (constructor); `memcmp` reads bytes and keeps no reference.
        unsafe { libc::memcmp(self.address.cast(), other.address.cast(), self.length) == 0 }
    }

    /// Starts to bring the first `bytes` into this core's cache, without waiting; a hint.
    #[inline]
    pub fn prefetch(self, bytes: usize) {
        const LINE: usize = 64;
        for offset in (0..self.length.min(bytes)).step_by(LINE) {
            prefetch(self.address.wrapping_add(offset));
        }
    }

    /// Sets every byte.
    #[inline]
    pub fn fill(self, byte: u8) {
        // SAFETY: mapped and writable (constructor).
        unsafe { ptr::write_bytes(self.address, byte, self.length) };
    }
}

/// Apart, because what a message shows would else be put together for every part.
#[cold]
#[inline(never)]
#[track_caller]
fn outside((offset, length): (usize, usize), whole: usize) -> ! {
    panic!("part {offset}+{length} of a segment of {whole}")
}

/// Starts to bring the cache line of an address into this core's cache; a hint, harmless for any
/// address.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees and never faults, whatever the
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Starts to bring the line at `address` into the cache in order to write there: a line that was
/// only read has to be taken from other cores a second time.
#[inline]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // (The intrinsic is a prefetch to read where the compiler does not know that the processor has
    // another one. Those that have none do nothing here.)
    // SAFETY: no byte and no flag changes, and it never faults, whatever the address.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address.addr(),
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// A list of segments that somebody else keeps until the request is completed.
///
/// The bytes of the list are those of its segments, one after another, from `skip` on.
#[derive(Clone, Copy, Debug)]
pub struct SegmentList {
    first: *const Segment,
    count: u32,
}

// SAFETY: as for Segment; the list is only read while the request is pending.
unsafe impl Send for SegmentList {}
// SAFETY: a list can be copied, so to share one is to have one; nothing changes through it.
unsafe impl Sync for SegmentList {}

impl SegmentList {
    /// The list without segments.
    pub const EMPTY: SegmentList = SegmentList {
        first: ptr::null(),
        count: 0,
    };

    /// # Safety
    /// The caller keeps `segments` unmoved and unchanged until the request that carries the list
    /// is completed.
    ///
    /// # Panics
    /// With more than `u32::MAX` segments.
    #[inline]
    #[must_use]
    pub unsafe fn new(segments: &[Segment]) -> SegmentList {
        let count = u32::try_from(segments.len()).expect("a queue bounds its segments");
        SegmentList {
            first: segments.as_ptr(),
            count,
        }
    }

    /// The segments.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Segment] {
        if self.count == 0 {
            return &[];
        }
        let count = usize::try_from(self.count).expect("u32 fits usize");
        // SAFETY: kept by the constructor's caller while the request is pending.
        unsafe { std::slice::from_raw_parts(self.first, count) }
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.as_slice().iter().map(|segment| segment.len()).sum()
    }

    /// The segments of bytes `offset..offset + length`, which begin and end with segments.
    ///
    /// # Panics
    /// When they do not, or the list is shorter.
    #[must_use]
    pub fn whole(&self, offset: usize, length: usize) -> SegmentList {
        let segments = self.as_slice();
        let (mut first, mut skip) = (0, offset);
        while skip > 0 {
            skip = skip
                .checked_sub(segments[first].len())
                .expect("a segment begins there");
            first += 1;
        }
        let (mut end, mut left) = (first, length);
        while left > 0 {
            left = left
                .checked_sub(segments[end].len())
                .expect("a segment ends there");
            end += 1;
        }
        SegmentList {
            first: segments[first..end].as_ptr(),
            count: u32::try_from(end - first).expect("no more than of all"),
        }
    }

    /// Appends the segments of bytes `offset..offset + length` to `out`.
    ///
    /// # Panics
    /// When the list is shorter.
    pub fn cut(&self, offset: usize, length: usize, out: &mut Vec<Segment>) {
        self.for_each_part(offset, length, |part| out.push(part));
    }

    /// Calls `visit` with each segment of bytes `offset..offset + length`, in order.
    ///
    /// # Panics
    /// When the list is shorter.
    #[inline]
    pub fn for_each_part(&self, offset: usize, length: usize, mut visit: impl FnMut(Segment)) {
        let (mut skip, mut left) = (offset, length);
        for segment in self.as_slice() {
            if left == 0 {
                return;
            }
            if skip >= segment.len() {
                skip -= segment.len();
                continue;
            }
            let take = left.min(segment.len() - skip);
            visit(segment.part(skip, take));
            skip = 0;
            left -= take;
        }
        assert!(left == 0, "a request carries as many bytes as it names");
    }

    /// A walk over the bytes from `offset` on.
    ///
    /// # Panics
    /// When the list is shorter.
    #[must_use]
    pub fn walk(&self, offset: usize) -> Walk<'_> {
        let mut segments = self.as_slice();
        let mut skip = offset;
        while let [first, rest @ ..] = segments
            && skip >= first.len()
        {
            (skip, segments) = (skip - first.len(), rest);
        }
        assert!(!segments.is_empty() || skip == 0, "a list has that byte");
        Walk { segments, skip }
    }

    /// Copies bytes from `offset` on into all of `target`.
    #[inline]
    pub fn copy_to(&self, offset: usize, target: Segment) {
        if let [only] = self.as_slice() {
            // As most guests lay out small requests.
            return target.copy_from(only.part(offset, target.len()));
        }
        let mut done = 0;
        self.for_each_part(offset, target.len(), |part| {
            target.part(done, part.len()).copy_from(part);
            done += part.len();
        });
    }

    /// Copies all of `source` to the bytes from `offset` on.
    #[inline]
    pub fn copy_from(&self, offset: usize, source: Segment) {
        let mut done = 0;
        self.for_each_part(offset, source.len(), |part| {
            part.copy_from(source.part(done, part.len()));
            done += part.len();
        });
    }
}

/// A walk over the bytes of a list, as far at a time as they are in one piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk<'l> {
    /// What is left, from `skip` bytes of the first on.
    segments: &'l [Segment],
    skip: usize,
}

impl Walk<'_> {
    /// How many of the next bytes are in one piece; 0 at the end.
    #[inline]
    #[must_use]
    pub fn in_one_piece(&self) -> usize {
        self.segments
            .first()
            .map_or(0, |first| first.len() - self.skip)
    }

    /// The next `bytes`, which are in one piece.
    ///
    /// # Panics
    /// When they are not.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Segment {
        let taken = self.segments[0].part(self.skip, bytes);
        self.skip += bytes;
        while let [first, rest @ ..] = self.segments
            && self.skip == first.len()
        {
            (self.skip, self.segments) = (0, rest);
        }
        taken
    }

    /// Goes on behind the next `bytes`.
    ///
    /// # Panics
    /// When the list is shorter.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        self.skip += bytes;
        while let [first, rest @ ..] = self.segments
            && self.skip >= first.len()
        {
            (self.skip, self.segments) = (self.skip - first.len(), rest);
        }
        let inside = !self.segments.is_empty() || self.skip == 0;
        assert!(inside, "a list has that byte");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_at_any_place() {
        let mut bytes: Vec<u8> = (0..=99).collect();
        let base = bytes.as_mut_ptr();
        // SAFETY: `bytes` outlives the segments and is not touched meanwhile.
        let whole = unsafe { Segment::new(base, 100) };
        let segments = [whole.part(50, 7), whole.part(0, 1), whole.part(90, 10)];
        // SAFETY: `segments` outlives the list.
        let list = unsafe { SegmentList::new(&segments) };
        let flat: Vec<u8> = (50..57).chain(0..1).chain(90..100).collect();
        for offset in 0..flat.len() {
            for length in 0..=flat.len() - offset {
                let mut got = vec![0u8; length];
                let mut out = Vec::new();
                list.cut(offset, length, &mut out);
                let mut done = 0;
                for part in out {
                    part.copy_to_slice(&mut got[done..done + part.len()]);
                    done += part.len();
                }
                assert_eq!(got, flat[offset..offset + length]);
            }
        }
    }

    #[test]
    fn a_walk_comes_by_all_bytes_from_any_place_on() {
        let mut bytes: Vec<u8> = (0..=99).collect();
        // SAFETY: `bytes` outlives the segments and is not touched meanwhile.
        let whole = unsafe { Segment::new(bytes.as_mut_ptr(), 100) };
        let segments = [
            Segment::EMPTY,
            whole.part(50, 7),
            Segment::EMPTY,
            whole.part(0, 1),
            whole.part(90, 10),
        ];
        // SAFETY: `segments` outlives the list.
        let list = unsafe { SegmentList::new(&segments) };
        let flat: Vec<u8> = (50..57).chain(0..1).chain(90..100).collect();
        for (offset, most) in (0..=flat.len()).flat_map(|offset| [(offset, 3), (offset, 99)]) {
            let mut walk = list.walk(offset);
            let mut got = Vec::new();
            while walk.in_one_piece() > 0 {
                let part = walk.take(walk.in_one_piece().min(most));
                let mut taken = vec![0; part.len()];
                part.copy_to_slice(&mut taken);
                got.extend(taken);
            }
            assert_eq!(got, flat[offset..], "from {offset} on");
            for skip in 0..=flat.len() - offset {
                let mut walk = list.walk(offset);
                walk.skip(skip);
                let (left, there) = (walk.in_one_piece(), list.walk(offset + skip));
                assert_eq!(left, there.in_one_piece(), "{offset} and {skip} on");
            }
        }
    }

    #[test]
    fn whole_segments_are_a_list_of_their_own() {
        let mut bytes = [0; 100];
        // SAFETY: `bytes` outlives the segments and is not touched meanwhile.
        let all = unsafe { Segment::new(bytes.as_mut_ptr(), 100) };
        let segments = [all.part(50, 7), all.part(0, 1), all.part(90, 10)];
        // SAFETY: `segments` outlives the list.
        let list = unsafe { SegmentList::new(&segments) };
        let of = |offset, length| list.whole(offset, length).as_slice().to_vec();
        assert_eq!(of(0, 18), segments);
        assert_eq!(of(0, 7), segments[..1]);
        assert_eq!(of(7, 11), segments[1..]);
        assert_eq!(of(8, 10), segments[2..]);
        assert_eq!(of(7, 0), []);
        for (offset, length) in [(1, 6), (0, 6), (7, 2), (17, 1)] {
            let within = std::panic::catch_unwind(|| list.whole(offset, length).bytes());
            assert!(within.is_err(), "{offset}, {length}");
        }
    }
}
