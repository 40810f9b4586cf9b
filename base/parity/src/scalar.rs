//! The backend for every CPU: eight bytes in a word.

use crate::field::PRODUCTS;
use crate::kernels::{self, Pass, Vector};

/// Makes a checked pass.
///
/// # Safety
/// `pass.check()` has passed.
pub(crate) unsafe fn run(pass: &Pass<'_>) {
    // SAFETY: words need no special instructions; checked by the caller.
    unsafe { kernels::run::<u64>(pass) };
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

impl Vector for u64 {
    type Factor = &'static [u8; 256];
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> u64 {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u64 {
        // SAFETY: readable (caller).
        unsafe { from.cast::<u64>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: writable (caller).
        unsafe { to.cast::<u64>().write_unaligned(self) };
    }

    #[inline(always)]
    fn plus(self, other: u64) -> u64 {
        self ^ other
    }

    #[inline(always)]
    fn double(self) -> u64 {
        // Bits that fall out of a byte come back as 0x1d in the same byte.
        let carries = self >> 7 & LOW_BITS;
        (self << 1 & !LOW_BITS) ^ (carries * 0x1d)
    }

    #[inline(always)]
    unsafe fn factor(number: u8) -> &'static [u8; 256] {
        &PRODUCTS[usize::from(number)]
    }

    #[inline(always)]
    fn times(self, factor: &'static [u8; 256]) -> u64 {
        let mut bytes = self.to_ne_bytes();
        for byte in &mut bytes {
            *byte = factor[usize::from(*byte)];
        }
        u64::from_ne_bytes(bytes)
    }
}
