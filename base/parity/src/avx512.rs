//! The backend for x86-64 CPUs with AVX-512 and GFNI: 64 bytes, products by bit matrices.
//!
//! `gf2p8affineqb` multiplies each byte by any 8×8 bit matrix; multiplying by a number of any
//! field, ours too, is such a matrix.

use std::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use crate::field::PRODUCTS;
use crate::kernels::{self, Pass, Vector};

/// Makes a checked pass.
///
/// # Safety
/// The CPU has AVX-512 F and BW and GFNI; `pass.check()` has passed.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(crate) unsafe fn run(pass: &Pass<'_>) {
    // SAFETY: the caller's promise is the same.
    unsafe { kernels::run::<Bytes64>(pass) };
}

/// `AFFINE[a]` multiplies by a: the bit matrix in the order of `gf2p8affineqb`, where byte 7 − i
/// holds the row of result bit i.
pub(crate) static AFFINE: [u64; 256] = affine();

/// Exists only where the CPU has AVX-512 and GFNI (see [`Vector`]).
#[derive(Clone, Copy)]
struct Bytes64(__m512i);

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn times(bytes: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn matrix(number: u8) -> __m512i {
    _mm512_set1_epi64(AFFINE[usize::from(number)].cast_signed())
}

impl Vector for Bytes64 {
    type Factor = __m512i;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Bytes64 {
        // SAFETY: the CPU has AVX-512 (caller).
        Bytes64(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Bytes64 {
        // SAFETY: readable, and the CPU has AVX-512 (caller).
        Bytes64(unsafe { _mm512_loadu_si512(from.cast::<__m512i>()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: writable (caller); AVX-512 by existence.
        unsafe { _mm512_storeu_si512(to.cast::<__m512i>(), self.0) };
    }

    #[inline(always)]
    fn plus(self, other: Bytes64) -> Bytes64 {
        // SAFETY: AVX-512 by existence.
        Bytes64(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Bytes64 {
        // SAFETY: AVX-512 and GFNI by existence.
        let two = unsafe { matrix(2) };
        self.times(two)
    }

    #[inline(always)]
    unsafe fn factor(number: u8) -> __m512i {
        // SAFETY: the CPU has AVX-512 (caller).
        unsafe { matrix(number) }
    }

    #[inline(always)]
    fn times(self, factor: __m512i) -> Bytes64 {
        // SAFETY: AVX-512 and GFNI by existence.
        Bytes64(unsafe { times(self.0, factor) })
    }
}

const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut column = 0;
        while column < 8 {
            let product = PRODUCTS[a][1 << column];
            let mut row = 0;
            while row < 8 {
                if product >> row & 1 == 1 {
                    table[a] |= 1 << (8 * (7 - row) + column);
                }
                row += 1;
            }
            column += 1;
        }
        a += 1;
    }
    table
}
