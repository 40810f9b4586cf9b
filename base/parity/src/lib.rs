//! Parity: the one N+M code of every level, and the kernels that compute it.
//!
//! The code is a nested extended Cauchy code over GF(2⁸) with the polynomial 0x11d. Its first row
//! is P (plain XOR), its second is Q (powers of 2), both as Linux md computes them; a code with
//! fewer parity rows is the first rows of a code with more. So RAID 5 is M = 1, RAID 6 is M = 2,
//! triple parity is M = 3, a mirror is k = 1, and RAID 0 is M = 0.
//!
//! Everything here is one linear map over bytes: targets = matrix · sources. [`Code`] holds the
//! generator matrix, [`Decoder`] the matrix that gives lost roles from those that are left.
//! Nothing is allocated by any call but those that make a [`DecoderCache`], and the first
//! [`Backend::best`].
//!
//! What does not live here: which chunk has which role, and when to compute what.
#![allow(
    unsafe_code,
    reason = "an island: vector instructions on memory shared with guests and drives"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod backend;
mod check;
mod code;
mod decode;
mod field;
mod kernels;
mod map;
mod scalar;
#[cfg(test)]
mod tests;
mod tune;

pub use backend::Backend;
pub use check::{Finding, LOCATED_MAX, is_zero};
pub use code::{Change, Code, CodeError};
pub use decode::{Decoder, DecoderCache};

use kernels::{Pass, Shape};
use memory::Segment;

/// `target ^= source`, with the best instructions of this CPU.
///
/// # Panics
/// When the lengths differ.
pub fn xor_into(target: Segment, source: Segment) {
    assert_eq!(target.len(), source.len(), "both sides of a sum");
    let best = Backend::best().ready();
    best.expect("of those that are available").run(&Pass {
        shape: Shape::Sum,
        sources: &[source],
        old: &[],
        factors: &[[1, 0, 0, 0]],
        targets: &[target],
        bytes: 0..target.len(),
        copies: &[],
        add: true,
    });
}
