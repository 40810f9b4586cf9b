//! Chance from a seed: SplitMix64.

/// What the state grows by at each draw.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.skip(1);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// As if `next` had been called so often.
    pub fn skip(&mut self, times: u64) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(times));
    }

    /// The next bytes, a multiple of eight.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether an event of `chances` in a thousand happens.
    pub fn happens(&mut self, chances: u64) -> bool {
        self.below(1000) < chances
    }

    /// A position below `end`.
    pub fn position(&mut self, end: usize) -> usize {
        units::bytes_usize(self.below(units::bytes_u64(end)))
    }
}
