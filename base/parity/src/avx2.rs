//! The backend for x86-64 CPUs with AVX2: 32 bytes, products by byte shuffles.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use crate::field::PRODUCTS;
use crate::kernels::{self, Pass, Vector};

/// Makes a checked pass.
///
/// # Safety
/// The CPU has AVX2; `pass.check()` has passed.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn run(pass: &Pass<'_>) {
    // SAFETY: the caller's promise is the same.
    unsafe { kernels::run::<Bytes32>(pass) };
}

/// Products with the 16 low and the 16 high nibbles. For byte shuffles.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    /// `low[n]` = factor · n.
    pub(crate) low: [u8; 16],
    /// `high[n]` = factor · 16n.
    pub(crate) high: [u8; 16],
}

/// `NIBBLES[a]` multiplies by a.
pub(crate) static NIBBLES: [Nibbles; 256] = nibbles();

/// Exists only where the CPU has AVX2 (see [`Vector`]).
#[derive(Clone, Copy)]
struct Bytes32(__m256i);

/// Products with all low and with all high nibbles, in both halves.
#[derive(Clone, Copy)]
struct Shuffles(__m256i, __m256i);

#[target_feature(enable = "avx2")]
#[inline]
fn double(bytes: __m256i) -> __m256i {
    let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes);
    let reduce = _mm256_and_si256(carries, _mm256_set1_epi8(0x1d));
    _mm256_xor_si256(_mm256_add_epi8(bytes, bytes), reduce)
}

#[target_feature(enable = "avx2")]
#[inline]
fn times(bytes: __m256i, Shuffles(low, high): Shuffles) -> __m256i {
    let nibble = _mm256_set1_epi8(0x0f);
    let lows = _mm256_and_si256(bytes, nibble);
    let highs = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), nibble);
    _mm256_xor_si256(
        _mm256_shuffle_epi8(low, lows),
        _mm256_shuffle_epi8(high, highs),
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn both_halves(half: &[u8; 16]) -> __m256i {
    // SAFETY: a reference to 16 bytes.
    let half = unsafe { _mm_loadu_si128(half.as_ptr().cast::<__m128i>()) };
    _mm256_broadcastsi128_si256(half)
}

impl Vector for Bytes32 {
    type Factor = Shuffles;
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Bytes32 {
        // SAFETY: the CPU has AVX2 (caller).
        Bytes32(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Bytes32 {
        // SAFETY: readable, and the CPU has AVX2 (caller).
        Bytes32(unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: writable (caller); AVX2 by existence.
        unsafe { _mm256_storeu_si256(to.cast::<__m256i>(), self.0) };
    }

    #[inline(always)]
    fn plus(self, other: Bytes32) -> Bytes32 {
        // SAFETY: AVX2 by existence.
        Bytes32(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Bytes32 {
        // SAFETY: AVX2 by existence.
        Bytes32(unsafe { double(self.0) })
    }

    #[inline(always)]
    unsafe fn factor(number: u8) -> Shuffles {
        let nibbles = &NIBBLES[usize::from(number)];
        // SAFETY: the CPU has AVX2 (caller).
        let low = unsafe { both_halves(&nibbles.low) };
        // SAFETY: as above.
        let high = unsafe { both_halves(&nibbles.high) };
        Shuffles(low, high)
    }

    #[inline(always)]
    fn times(self, factor: Shuffles) -> Bytes32 {
        // SAFETY: AVX2 by existence.
        Bytes32(unsafe { times(self.0, factor) })
    }
}

const fn nibbles() -> [Nibbles; 256] {
    let mut table = [Nibbles {
        low: [0; 16],
        high: [0; 16],
    }; 256];
    let mut a = 0;
    while a < 256 {
        let mut n = 0;
        while n < 16 {
            table[a].low[n] = PRODUCTS[a][n];
            table[a].high[n] = PRODUCTS[a][n << 4];
            n += 1;
        }
        a += 1;
    }
    table
}
