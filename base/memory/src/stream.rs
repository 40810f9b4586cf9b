//! Copies past the caches, for bytes that nobody reads soon: a plain store of a line that is in no
//! cache loads the line first, and pushes out another that somebody may want.
//!
//! What does not live here: which bytes these are.

use std::sync::OnceLock;
use std::time::Duration;

use units::{Clock, MonotonicClock};

use crate::map::Map;
use crate::segment::{Segment, SegmentList};

/// Bytes of one copy when both ways are timed.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that are copied to, each time.
const TIMED_BYTES: usize = 1 << 20;
/// The least of so many times counts, since other work of the machine only ever slows one down.
const ROUNDS: usize = 5;

/// Whether copies past the caches are faster on this machine, where what they write lies in no
/// cache. Measured at the first call, which takes some milliseconds; ask when there is time.
#[must_use]
pub fn streaming_pays() -> bool {
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(|| cfg!(all(target_arch = "x86_64", not(miri))) && measure())
}

/// By a tenth at least, so that chance does not decide; without memory for it, no.
fn measure() -> bool {
    let Ok(map) = Map::anonymous(TIMED_BYTES + PIECE_BYTES, 0) else {
        return false;
    };
    let whole = map.whole();
    whole.fill(1);
    let (target, source) = (
        whole.part(0, TIMED_BYTES),
        whole.part(TIMED_BYTES, PIECE_BYTES),
    );
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let ways: [fn(Segment, Segment); 2] = [Segment::copy_from, |target, source| {
            store(target, source);
            finish();
        }];
        for (least, copy) in least.iter_mut().zip(ways) {
            evict(target);
            let began = MonotonicClock.now();
            for at in (0..TIMED_BYTES).step_by(PIECE_BYTES) {
                copy(target.part(at, PIECE_BYTES), source);
            }
            *least = (*least).min(MonotonicClock.now().since(began));
        }
    }
    let [plain, streaming] = least;
    streaming * 10 <= plain * 9
}

impl SegmentList {
    /// Copies bytes from `offset` on into all of `target`, past the caches: whoever reads them next
    /// gets them from memory. Target and list do not overlap.
    pub fn stream_to(&self, offset: usize, target: Segment) {
        let mut done = 0;
        self.for_each_part(offset, target.len(), |part| {
            store(target.part(done, part.len()), part);
            done += part.len();
        });
        finish();
    }
}

/// Bytes of a store: all x86-64 CPUs have these, and wider ones are no faster.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const VECTOR: usize = 16;
/// Stores of one step: two lines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STEP: usize = 8;

/// Copies all of `source`; nobody else sees it for sure before `finish`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store(target: Segment, source: Segment) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    assert!(target.len() == source.len(), "copies are as long");
    let length = target.len();
    // Such stores are aligned.
    let first = target.address().addr().next_multiple_of(VECTOR) - target.address().addr();
    let first = first.min(length);
    target.part(0, first).copy_from(source.part(0, first));
    let mut at = first;
    while length - at >= STEP * VECTOR {
        let (from, to) = (
            source.address().wrapping_add(at).cast::<__m128i>(),
            target.address().wrapping_add(at).cast::<__m128i>(),
        );
        let vectors: [__m128i; STEP] = std::array::from_fn(|index| {
            // SAFETY: inside the segment (the loop), which is mapped (its constructor).
            unsafe { _mm_loadu_si128(from.wrapping_add(index)) }
        });
        for (index, vector) in vectors.into_iter().enumerate() {
            // SAFETY: inside the segment (the loop), which is mapped and writable (its
            // constructor); aligned, from `first` on.
            unsafe { _mm_stream_si128(to.wrapping_add(index), vector) };
        }
        at += STEP * VECTOR;
    }
    let rest = length - at;
    target.part(at, rest).copy_from(source.part(at, rest));
}

/// All that was stored comes before what this core stores from now on, as a release promises:
/// such stores keep no order by themselves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn finish() {
    // SAFETY: all x86-64 CPUs have it; it touches no memory.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// Puts the bytes out of all caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn evict(segment: Segment) {
    for offset in (0..segment.len()).step_by(64) {
        let line = segment.part(offset, 1).address();
        // SAFETY: a mapped address (constructor); writes a line back and changes no byte.
        unsafe { std::arch::x86_64::_mm_clflush(line) };
    }
    // SAFETY: all x86-64 CPUs have it; it touches no memory.
    unsafe { std::arch::x86_64::_mm_mfence() };
}

/// Elsewhere copies are plain.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn store(target: Segment, source: Segment) {
    target.copy_from(source);
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn finish() {}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn evict(_: Segment) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_past_the_caches_are_copies_of_any_bytes_to_any_place() {
        let sources: Vec<u8> = (0..=250).cycle().take(700).collect();
        let mut bytes = sources.clone();
        // SAFETY: `bytes` outlives the segment and is not touched meanwhile.
        let from = unsafe { Segment::new(bytes.as_mut_ptr(), 700) };
        let pieces = [from.part(3, 130), from.part(200, 1), from.part(301, 399)];
        // SAFETY: `pieces` outlives the list.
        let list = unsafe { SegmentList::new(&pieces) };
        let flat: Vec<u8> = [&sources[3..133], &sources[200..201], &sources[301..]].concat();
        let most = if cfg!(miri) { 2 } else { 33 };
        for place in 0..most {
            for (offset, length) in [
                (0, 530),
                (1, 128),
                (7, 0),
                (100, 317),
                (131, 399),
                (129, 20),
            ] {
                let mut room = [0xa5u8; 600];
                // SAFETY: `room` outlives the segment and is not touched meanwhile.
                let to = unsafe { Segment::new(room.as_mut_ptr(), 600) };
                list.stream_to(offset, to.part(place, length));
                let (before, rest) = room.split_at(place);
                let (copied, after) = rest.split_at(length);
                assert_eq!(copied, &flat[offset..offset + length], "{offset}+{length}");
                let untouched = before.iter().chain(after).all(|&byte| byte == 0xa5);
                assert!(untouched, "{offset}+{length} to {place}");
            }
        }
    }
}
