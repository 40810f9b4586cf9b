//! What all tests of this crate share: chunks with guards, chance with a seed, and parity by its
//! definition.

mod check;
mod field;
#[cfg(feature = "isal")]
mod isal;
mod kernels;
mod matrix;
mod recovery;

use memory::Segment;
use units::RoleSet;

use crate::field::{multiply, power};
use crate::{Backend, Code};

/// The backends to test: all that this CPU can run. Miri is slow and takes the fastest; it runs
/// AVX-512 and GFNI on any machine with
/// `RUSTFLAGS="-C target-feature=+avx2,+avx512f,+avx512bw,+gfni"`, and scalar code without.
pub(super) fn backends() -> Vec<Backend> {
    Backend::available()
        .filter(|&backend| !cfg!(miri) || backend == Backend::best())
        .collect()
}

/// Chance, from a seed (xorshift64*).
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits fit") % bound
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next().to_le_bytes()[7];
        }
    }

    /// `count` different numbers below `bound`, ascending.
    pub(super) fn subset(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..bound).collect();
        while left.len() > count {
            let at = self.below(left.len());
            left.remove(at);
        }
        left
    }
}

const GUARD: u8 = 0xc5;
const GUARD_BYTES: usize = 64;

/// Equally long chunks at odd places of memory, each between guards.
pub(super) struct Chunks {
    memory: Vec<Vec<u8>>,
    length: usize,
    skew: usize,
}

impl Chunks {
    pub(super) fn new(count: usize, length: usize, skew: usize) -> Chunks {
        let memory = (0..count)
            .map(|index| {
                let mut chunk = vec![GUARD; length + 2 * GUARD_BYTES];
                let first = GUARD_BYTES - (index * skew) % GUARD_BYTES;
                chunk[first..first + length].fill(0);
                chunk
            })
            .collect();
        Chunks {
            memory,
            length,
            skew,
        }
    }

    fn first(&self, index: usize) -> usize {
        GUARD_BYTES - (index * self.skew) % GUARD_BYTES
    }

    pub(super) fn segments(&mut self) -> Vec<Segment> {
        (0..self.memory.len())
            .map(|index| {
                let first = self.first(index);
                let address = self.memory[index][first..].as_mut_ptr();
                // SAFETY: the tests use segments only before they touch the chunks again.
                unsafe { Segment::new(address, self.length) }
            })
            .collect()
    }

    pub(super) fn get(&self, index: usize) -> &[u8] {
        let first = self.first(index);
        &self.memory[index][first..first + self.length]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut [u8] {
        let first = self.first(index);
        &mut self.memory[index][first..first + self.length]
    }

    pub(super) fn randomize(&mut self, chance: &mut Chance) {
        for index in 0..self.memory.len() {
            chance.fill(self.get_mut(index));
        }
    }

    pub(super) fn assert_guards(&self) {
        for (index, chunk) in self.memory.iter().enumerate() {
            let first = self.first(index);
            let (before, rest) = chunk.split_at(first);
            let after = &rest[self.length..];
            assert!(
                before.iter().chain(after).all(|&byte| byte == GUARD),
                "something was written beside chunk {index}"
            );
        }
    }
}

/// Whether parity agrees with data.
pub(super) fn agrees(code: &Code, data: &[Segment], parity: &[Segment]) -> bool {
    let (k, n) = (code.data(), code.data() + code.parity());
    let decoder = code.decoder(RoleSet::range(0, n), RoleSet::range(k, n));
    decoder
        .expect("all data is there")
        .is_consistent(data, parity)
}

/// The element of the generator by its text-book form, with division by search.
pub(super) fn element(row: usize, column: usize) -> u8 {
    let divide = |a: u8, b: u8| {
        (0..=255)
            .find(|&quotient| multiply(quotient, b) == a)
            .expect("b is not zero")
    };
    match row {
        0 => 1,
        1 => power(2, column),
        _ => {
            let cauchy = |column| divide(1, divide(1, power(2, column)) ^ power(2, row - 1));
            divide(cauchy(column), cauchy(0))
        }
    }
}

/// Parity by its definition, bit by bit, from the coefficients of the code.
pub(super) fn expected_parity(code: &Code, data: &Chunks) -> Vec<Vec<u8>> {
    (0..code.parity())
        .map(|row| {
            let mut sum = vec![0; data.length];
            for column in 0..code.data() {
                let factor = code.coefficient(row, column);
                let products: [u8; 256] =
                    std::array::from_fn(|b| multiply(factor, u8::try_from(b).expect("a byte")));
                for (total, byte) in sum.iter_mut().zip(data.get(column)) {
                    *total ^= products[usize::from(*byte)];
                }
            }
            sum
        })
        .collect()
}
